//! HyperSCSI as a front end of a configured server: `[hyperscsi]`, and `[[hyperscsi.target]]` for each target.
//!
//! With an address of its own on the command line (`--listen hyperscsi://INTERFACE` or `hyperscsi+udp://ADDR:PORT`) it has the
//! volumes of the command line, each as LUN 0 of a target with the volume's name, for any initiator.

mod edit;
mod target;

use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use ::hyperscsi::{Counters, ETHERTYPE, FRAME_BYTES_MAX, FRAME_BYTES_MIN, UDP_PORT};
use front_end_core::{HostAddress, ListenAddress, Portal, Server};
use hyperscsi_server::{HYPERSCSI, HyperScsi, SessionStatus};
use reactor::{DatagramEndpoint, DatagramOptions, DatagramRing, StreamOptions};

use self::target::Target;
use super::portals::interface;
use super::{Configured, Document, Kind, Running, Serving, listen_address, portal_changes};
use crate::config::{Config, Unfit, VolumeName};
use crate::control;
use crate::desired::Desired;

/// Its line of the table.
pub const KIND: Kind = Kind {
    name: HYPERSCSI,
    listen,
    heading: "[[hyperscsi.target]]",
    read: |document| Box::new(HyperScsiConfig::read(document)),
    add: edit::add,
    remove: edit::remove,
};

/// Frames that come faster than they are taken wait here, those of many initiators.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// A ring makes a lone request quicker by a quarter to a half: frames are seen in it without a system call. As many of them as the
/// receive buffer has room for.
const RING: DatagramRing = DatagramRing { payload_bytes: FRAME_BYTES_MAX, places_max: usize::MAX };
/// What stands before the address of a UDP socket.
const UDP_SCHEME: &str = "hyperscsi+udp";

/// What a configuration says of HyperSCSI.
#[derive(Debug, Default)]
pub struct HyperScsiConfig {
    /// Where initiators are.
    listen: Vec<ListenAddress>,
    /// What they find.
    targets: Vec<Target>,
}

struct Listen(ListenAddress);

/// `[hyperscsi://]INTERFACE`, or `hyperscsi+udp://ADDR[:PORT]`.
fn listen(text: &str) -> Result<ListenAddress, Unfit> {
    let endpoint = match text.starts_with("hyperscsi+") {
        true => DatagramEndpoint::Udp(listen_address(text, UDP_SCHEME, UDP_PORT)?),
        false => DatagramEndpoint::Ethernet {
            interface: interface(text, HYPERSCSI)?.to_owned(),
            ether_type: ETHERTYPE,
        },
    };
    Ok(ListenAddress::Datagrams(DatagramOptions {
        endpoint,
        receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES),
        ring: Some(RING),
        payload_bytes_min: FRAME_BYTES_MIN,
        share: None,
    }))
}

impl FromStr for Listen {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Listen, Unfit> {
        listen(text).map(Listen)
    }
}

impl Config {
    /// What it says of HyperSCSI; `None` if it was read by a table of front ends without it.
    fn hyperscsi(&self) -> Option<&HyperScsiConfig> {
        self.front_end()
    }
}

impl HyperScsiConfig {
    fn read(document: &Document<'_>) -> HyperScsiConfig {
        let Some(section) = document.root.section("hyperscsi", "[hyperscsi]") else {
            return HyperScsiConfig::default();
        };
        let listen = section.required("listen", section.list::<Listen>("listen"), "[\"eth0\"]");
        let targets = target::all(&section, document);
        section.done();
        let listen = listen.unwrap_or_default().into_iter().map(|Listen(address)| address).collect();
        HyperScsiConfig { listen, targets }
    }

    /// As `hyperscsi_server` serves it.
    fn served(&self, serving: Serving<'_>) -> hyperscsi_server::Config {
        let targets = self.targets.iter().map(|target| Arc::new(target.served(serving))).collect();
        hyperscsi_server::Config { targets, random }
    }
}

/// Seeds of keys and of numbers of sessions.
fn random(bytes: &mut [u8]) {
    // It worked at the start, when identities may have been drawn; Linux does not fail afterwards.
    getrandom::fill(bytes).expect("the system's random source works");
}

fn own_portals(portals: &[Portal]) -> impl Iterator<Item = &Portal> {
    portals.iter().filter(|portal| portal.front_end == HYPERSCSI)
}

impl Configured for HyperScsiConfig {
    fn take_over(&mut self, desired: &Desired) -> Result<(), String> {
        let listen = desired.listen_by(HYPERSCSI);
        if listen.is_empty() {
            return Ok(());
        }
        self.listen = listen;
        for volume in &desired.volumes {
            let target = Target::of_volume(&volume.name);
            if self.targets.iter().any(|other| other.name == target.name) {
                return Err(format!(
                    "the file has the HyperSCSI target {} already; rename the volume",
                    target.name
                ));
            }
            self.targets.push(target);
        }
        match self.targets.is_empty() {
            false => Ok(()),
            true => {
                Err("nothing is exported by HyperSCSI; add --volume, or [[hyperscsi.target]] to the file"
                    .to_owned())
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.targets.is_empty() && self.listen.is_empty()
    }

    fn volumes(&self) -> Vec<&VolumeName> {
        self.targets.iter().flat_map(|target| &target.luns).map(|lun| &lun.volume).collect()
    }

    fn portals(&self) -> Vec<Portal> {
        let portal = |listen: &ListenAddress| Portal {
            front_end: HYPERSCSI,
            listen: listen.clone(),
            tag: 1,
            advertise: None,
            stream: StreamOptions::default(),
        };
        self.listen.iter().map(portal).collect()
    }

    fn changes(&self, wanted: &Config, renamed: &[(VolumeName, VolumeName)]) -> Vec<String> {
        let Some(after) = wanted.hyperscsi() else { return Vec::new() };
        let HyperScsiConfig { listen: _, targets } = after;
        let mut lines = target::changes(&self.targets, targets, renamed);
        lines.extend(portal_changes(&self.portals(), &after.portals(), |portal| self.describe(portal)));
        lines
    }

    fn summary(&self, config: &Config) -> String {
        let mut text = String::new();
        for target in &self.targets {
            let _ = writeln!(text, "HyperSCSI target {} for {}", target.name, target.audience(None));
            for lun in &target.luns {
                let masked = if lun.initiators.is_some() { ", for listed initiators" } else { "" };
                let spec = config.volume(&lun.volume).map(|volume| format!(" = {}", volume.spec));
                let _ =
                    writeln!(text, "  LUN {}: {}{}{masked}", lun.lun, lun.volume, spec.unwrap_or_default());
            }
        }
        text
    }

    fn exports_of(&self, volume: &VolumeName) -> Vec<control::Lun> {
        let all = self.targets.iter().flat_map(|target| target.luns.iter().map(move |lun| (target, lun)));
        let its = all.filter(|(_, lun)| lun.volume == *volume);
        let exported = |(target, lun): (&Target, &target::Lun)| control::Lun {
            front_end: HYPERSCSI.to_owned(),
            target: target.name.clone(),
            lun: Some(lun.lun),
        };
        its.map(exported).collect()
    }

    fn targets(&self, portals: &[Portal]) -> Vec<control::Target> {
        self.targets.iter().map(|target| target.told(own_portals(portals))).collect()
    }

    fn announcement(&self, portals: &[Portal], volumes: &[control::Volume]) -> String {
        let urls: Vec<String> = own_portals(portals).map(|portal| portal.listen.url(HYPERSCSI)).collect();
        match urls.split_first() {
            Some((first, more)) => {
                self.targets.iter().map(|target| target.announced(first, more.len(), volumes)).collect()
            }
            None => String::new(),
        }
    }

    fn usage(&self, portals: &[Portal]) -> String {
        let Some(first) = own_portals(portals).next() else { return String::new() };
        // The interface of a host has a name of its own.
        let place = match &first.listen {
            ListenAddress::Datagrams(DatagramOptions {
                endpoint: DatagramEndpoint::Ethernet { .. }, ..
            }) => {
                format!("{HYPERSCSI}://eth0")
            }
            listen => listen.url(HYPERSCSI),
        };
        self.targets.iter().map(|target| target.usage(&place)).collect()
    }

    fn start(&self, serving: Serving<'_>, _: usize) -> Arc<dyn Running> {
        HyperScsi::new(self.served(serving))
    }
}

impl Running for HyperScsi {
    fn adopt(&self, wanted: Serving<'_>) {
        let nothing = hyperscsi_server::Config { targets: Vec::new(), random };
        HyperScsi::adopt(self, wanted.config.hyperscsi().map_or(nothing, |wants| wants.served(wanted)));
    }

    fn losses(&self, server: &Server, wanted: Serving<'_>, _: &[Portal]) -> Vec<String> {
        let nothing = hyperscsi_server::Config { targets: Vec::new(), random };
        let wanted = wanted.config.hyperscsi().map_or(nothing, |wants| wants.served(wanted));
        HyperScsi::losses(self, server, &wanted)
    }

    fn sessions(&self, server: &Server) -> Vec<control::Session> {
        HyperScsi::sessions(self, server).into_iter().map(session).collect()
    }

    fn drop_sessions(&self, server: &Server, which: &str, _: bool) -> usize {
        HyperScsi::drop_sessions(self, server, which)
    }
}

fn session(status: SessionStatus) -> control::Session {
    let parameters = parameters(&status);
    let mut connections: Vec<control::Connection> =
        status.paths.iter().map(|path| connection(path.peer, &path.portal)).collect();
    if connections.is_empty() {
        connections.push(connection(status.peer, &status.portal));
    }
    control::Session {
        front_end: HYPERSCSI.to_owned(),
        user: status.is_encrypted.then(|| status.initiator.clone()),
        initiator: status.initiator,
        isid: Some(format!("{:08x}", status.port)),
        tsih: Some(status.handle),
        target: Some(status.target),
        age_seconds: status.age.as_secs_f64(),
        core: status.core,
        connections,
        parameters,
        in_flight: status.in_flight,
        commands: status.traffic.commands,
        read_bytes: status.traffic.read_bytes,
        written_bytes: status.traffic.written_bytes,
    }
}

fn connection(peer: HostAddress, portal: &str) -> control::Connection {
    control::Connection { cid: None, peer, local: portal.to_owned() }
}

/// What was agreed on, what has become of frames, and how each path is, in the order of the connections.
fn parameters(status: &SessionStatus) -> Vec<String> {
    let Counters { frames_sent, frames_received, frames_repeated, frames_damaged, .. } = status.counters;
    let protection = if status.is_encrypted { "sealed" } else { "crc32c" };
    let mut parameters = vec![
        format!("Frames={protection}"),
        format!("FrameBytes={}", status.frame_bytes),
        format!("FramesSent={frames_sent}"),
        format!("FramesReceived={frames_received}"),
        format!("FramesRepeated={frames_repeated}"),
        format!("FramesDamaged={frames_damaged}"),
        format!("FragmentsLost={}", status.counters.fragments_lost),
    ];
    for (number, path) in status.paths.iter().enumerate() {
        parameters.push(format!("Path{number}={}", if path.is_up { "up" } else { "down" }));
        if let Some(trip) = path.round_trip {
            parameters.push(format!("Path{number}RoundTripUs={}", trip.as_micros()));
        }
        parameters.push(format!("Path{number}WindowFrames={}", path.window_frames));
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_interface_or_one_of_udp() {
        let url = |text: &str| listen(text).map(|address| address.url(HYPERSCSI)).ok();
        for (text, meant) in [
            ("eth0", "hyperscsi://eth0"),
            ("hyperscsi://eth0", "hyperscsi://eth0"),
            ("hyperscsi+udp://192.0.2.1", "hyperscsi+udp://192.0.2.1:5674"),
            ("hyperscsi+udp://[::]:7", "hyperscsi+udp://[::]:7"),
        ] {
            assert_eq!(url(text).as_deref(), Some(meant));
        }
        for wrong in ["", "hyperscsi://", "hyperscsi+udp://eth0", "hyperscsi+tcp://192.0.2.1", "aoe://eth0"] {
            assert_eq!(url(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn keys_and_lists_of_a_target_are_read() {
        let text = "[hyperscsi]\nlisten = [\"eth0\"]\n[volume.vm1]\nspec = \"ram:1MiB\"\n\
                    [[hyperscsi.target]]\nname = \"disks\"\ninitiators = [\"host*\"]\nstations = [\"02:00:00:00:00:01\"]\n\
                    [[hyperscsi.target.lun]]\nlun = 3\nvolume = \"vm1\"\ninitiators = [\"host1\"]\n\
                    [[hyperscsi.target.key]]\ninitiator = \"host1\"\nsecret = \"sixteen bytes or\"\n";
        let config = Config::parse("x.toml", text).expect("nothing wrong");
        let summary = config.hyperscsi().expect("its part").summary(&config);
        let expected = "HyperSCSI target disks for listed initiators from listed stations, with keys\n  \
                        LUN 3: vm1 = ram:1MiB, for listed initiators\n";
        assert_eq!(summary, expected);
        for (from, to, why) in [
            ("name = \"disks\"", "name = \"a b\"", "a name"),
            ("sixteen bytes or", "short", "16 bytes"),
            ("initiator = \"host1\"", "initiator = \"host*\"", "a name"),
            ("volume = \"vm1\"", "volume = \"vm2\"", "no volume `vm2`"),
            ("lun = 3", "lun = 16384", "16383"),
            ("[[hyperscsi.target.key]]", "[[hyperscsi.target.keys]]", "unknown key `keys`"),
        ] {
            let mistake = Config::parse("x.toml", &text.replace(from, to)).expect_err(why).to_string();
            assert!(mistake.contains(why), "{why}: {mistake}");
        }
    }
}
