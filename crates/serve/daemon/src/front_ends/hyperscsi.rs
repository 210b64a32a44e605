//! HyperSCSI as a front end of a configured server: `[hyperscsi]`, and `[[hyperscsi.target]]` for each
//! target.
//!
//! If the command line has an address for HyperSCSI (`--listen hyperscsi://INTERFACE` or
//! `hyperscsi+udp://ADDR:PORT`), each volume of the command line is served as LUN 0 of a target with the
//! volume's name, for any initiator.

use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use front_end_core::{HostAddress, ListenAddress, Network, Portal, Server};
use hyperscsi::{Counters, ETHERTYPE, FRAME_BYTES_MAX, FRAME_BYTES_MIN, Psk, UDP_PORT, is_name};
use hyperscsi_server::{Access, HYPERSCSI, HyperScsi, NamePattern, SessionStatus};
use reactor::{DatagramEndpoint, DatagramOptions, DatagramRing, MacAddress};
use toml_edit::{Item, Table};

use super::exposed::{
    AccessLists, Contents, Exposed, Lun, announced, before, differing, place_of_target, texts,
};
use super::sections::{self, Listening, add_lun, each_once, random, remove_luns, section_to_edit};
use crate::config::section::Section;
use crate::config::values::{Unfit, VolumeName, interface, listen_address};
use crate::config::{
    Addition, Beside, Config, Configured, Document, FrontEndKind, RunningFrontEnd, Serving,
};
use crate::control;

/// The entry of HyperSCSI in the front-end table.
pub const KIND: FrontEndKind = FrontEndKind {
    name: HYPERSCSI,
    listen,
    heading: "[[hyperscsi.target]]",
    read: |document| Box::new(HyperScsiConfig::read(document)),
    add,
    remove,
};

/// Size of the receive buffer, for bursts of frames that may come from many initiators.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// A ring reduces the latency of a single request by a quarter to a half, because frames in it are received
/// without a system call. The ring holds as many frames as the receive buffer.
const RING: DatagramRing = DatagramRing {
    payload_bytes: FRAME_BYTES_MAX,
    places_max: usize::MAX,
};
/// The scheme of a UDP socket's address.
const UDP_SCHEME: &str = "hyperscsi+udp";

/// The HyperSCSI part of a configuration: listen addresses and targets.
#[derive(Debug, Default)]
pub struct HyperScsiConfig(Listening<Target>);

/// A target and its access lists.
#[derive(Clone, Debug, PartialEq)]
struct Target {
    name: String,
    /// Initiators that may use it; `None` for any.
    initiators: Option<Vec<NamePattern>>,
    /// Ethernet stations that initiators may use; `None` for any.
    stations: Option<Vec<MacAddress>>,
    /// Networks that initiators may connect from over UDP; `None` for any.
    networks: Option<Vec<Network>>,
    /// The keys of initiators, each name once. If there is any key, every initiator needs one.
    keys: Vec<(String, Psk)>,
    /// Its LUNs, each number once.
    luns: Vec<Lun>,
}

struct Name(String);

struct Pattern(NamePattern);

/// Minimum length of a secret: 128 bits if it is random. An attacker can record a login and test secrets
/// against it offline.
const SECRET_MIN: usize = 16;
const SECRET_MAX: usize = 255;

impl FromStr for Name {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Name, Unfit> {
        match is_name(text) {
            true => Ok(Name(text.to_owned())),
            false => Err(Unfit(format!(
                "`{text}` is not a valid name; use up to 223 letters, digits and .:-_"
            ))),
        }
    }
}

impl FromStr for Pattern {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Pattern, Unfit> {
        let stem = text.strip_suffix('*');
        if stem != Some("") {
            stem.unwrap_or(text).parse::<Name>()?;
        }
        Ok(Pattern(NamePattern::new(text)))
    }
}

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

impl HyperScsiConfig {
    fn read(document: &Document<'_>) -> HyperScsiConfig {
        let Some(section) = document.root.section("hyperscsi", "[hyperscsi]") else {
            return HyperScsiConfig::default();
        };
        let targets = section.sections("target", "[[hyperscsi.target]]");
        let targets = targets
            .iter()
            .filter_map(|section| Target::read(section, document));
        let targets = each_once(targets, section.mistakes, |name, _| {
            format!(
                "the target {name} is defined twice; put all its LUNs under one [[hyperscsi.target]]"
            )
        });
        let listening = Listening::read(&section, &KIND, "[\"eth0\"]", targets);
        section.done();
        HyperScsiConfig(listening)
    }

    /// Returns the HyperSCSI part of a configuration; `None` if it was read by a table of front ends without
    /// HyperSCSI.
    fn of(config: &Config) -> Option<&HyperScsiConfig> {
        config.front_end()
    }
}

/// Returns the configuration for `hyperscsi_server`; empty without a section.
fn served(config: Option<&HyperScsiConfig>, serving: Serving<'_>) -> hyperscsi_server::Config {
    let served = |target: &Target| {
        Arc::new(hyperscsi_server::Target {
            name: target.name.clone(),
            exports: sections::exports(&target.luns, serving),
            access: Access {
                initiators: target.initiators.clone(),
                stations: target.stations.clone(),
                networks: target.networks.clone(),
            },
            keys: target.keys.iter().cloned().collect(),
        })
    };
    let targets = config
        .iter()
        .flat_map(|config| &config.0.exports)
        .map(served)
        .collect();
    hyperscsi_server::Config { targets, random }
}

impl Target {
    /// Reads a target, its name, and its position in the file.
    fn read(
        section: &Section<'_>,
        document: &Document<'_>,
    ) -> Option<(String, Range<usize>, Option<Target>)> {
        let name = section.required("name", section.parsed::<Name>("name"), "\"disks\"");
        let initiators = patterns(section);
        let (stations, networks) = (section.list("stations"), section.list("networks"));
        let keys = keys(section);
        let luns = sections::luns(section, "[[hyperscsi.target.lun]]", document, patterns);
        section.done();
        // A target may have no LUN if it has access settings: they outlive its last volume, and apply to the
        // next volume.
        let says_more = ["initiators", "stations", "networks", "key"];
        if !section.has("lun") && !says_more.iter().any(|key| section.has(key)) {
            let sentence = "this target has no LUN; add [[hyperscsi.target.lun]] with lun = 0 and volume = \"…\" below it";
            section.mistakes.add(section.at(), sentence);
        }
        let name = name?.value.0;
        Some((
            name.clone(),
            section.at(),
            Some(Target {
                name,
                initiators,
                stations,
                networks,
                keys,
                luns,
            }),
        ))
    }
}

fn patterns(section: &Section<'_>) -> Option<Vec<NamePattern>> {
    Some(
        section
            .list::<Pattern>("initiators")?
            .into_iter()
            .map(|pattern| pattern.0)
            .collect(),
    )
}

fn keys(target: &Section<'_>) -> Vec<(String, Psk)> {
    let sections = target.sections("key", "[[hyperscsi.target.key]]");
    let read = |section: &Section<'_>| {
        let initiator = section.required(
            "initiator",
            section.parsed::<Name>("initiator"),
            "\"host1\"",
        );
        let secret = section.secret("16 random letters or more");
        section.done();
        let (initiator, (place, secret)) = (initiator?, secret?);
        let length = secret.len();
        if !(SECRET_MIN..=SECRET_MAX).contains(&length) {
            let sentence = format!(
                "this secret has {length} bytes; a HyperSCSI secret must have 16 to {SECRET_MAX}"
            );
            section.mistakes.add(place.at.clone(), sentence);
        }
        let name = initiator.value.0;
        Some((
            name.clone(),
            initiator.at,
            Some((name, Psk::from_secret(&secret))),
        ))
    };
    each_once(
        sections.iter().filter_map(read),
        target.mistakes,
        |name, _| format!("the initiator `{name}` has two keys; keep one"),
    )
}

impl Exposed for Target {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn words(&self) -> [&'static str; 2] {
        ["HyperSCSI ", "target "]
    }

    fn contents(&self) -> Contents<'_> {
        Contents::Luns(&self.luns)
    }

    fn audience(&self, lun: Option<&Lun>) -> String {
        let is_listed =
            self.initiators.is_some() || lun.is_some_and(|lun| lun.initiators.is_some());
        let who = if is_listed {
            "listed initiators"
        } else {
            "any initiator"
        };
        let near = match (&self.stations, &self.networks) {
            (None, None) => "",
            (Some(_), None) => " from listed stations",
            (None, Some(_)) => " from listed networks",
            (Some(_), Some(_)) => " from listed stations and networks",
        };
        let proof = if self.keys.is_empty() {
            ""
        } else {
            ", with keys"
        };
        format!("{who}{near}{proof}")
    }

    fn access(&self) -> AccessLists {
        let is_near = self.stations.is_some() || self.networks.is_some();
        let near = [texts(self.stations.as_ref()), texts(self.networks.as_ref())];
        AccessLists {
            initiators: texts(self.initiators.as_ref()),
            networks: is_near.then(|| near.into_iter().flatten().flatten().collect()),
            users: self
                .keys
                .iter()
                .map(|(initiator, _)| initiator.clone())
                .collect(),
            ..AccessLists::default()
        }
    }

    fn differences(&self, old: &dyn Exposed) -> Vec<&'static str> {
        // All fields are listed, so that a new field must be compared or omitted on purpose.
        let Target {
            name: _,
            initiators,
            stations,
            networks,
            keys,
            luns: _,
        } = self;
        let old: &Target = before(old);
        differing(&[
            (old.initiators != *initiators, "initiators"),
            (old.stations != *stations, "stations"),
            (old.networks != *networks, "networks"),
            (old.keys != *keys, "keys"),
        ])
    }
}

impl Configured for HyperScsiConfig {
    fn kind(&self) -> &'static FrontEndKind {
        &KIND
    }

    fn take_over(&mut self, beside: &Beside<'_>) -> Result<(), String> {
        self.0
            .take_over(beside, &KIND, "HyperSCSI", |targets, volume| {
                // The characters of a volume name are all valid in a target name.
                let name = volume.to_string();
                if targets.iter().any(|target| target.name == name) {
                    return Err(format!(
                        "the file already has a HyperSCSI target {name}; rename the volume"
                    ));
                }
                let luns = vec![Lun {
                    lun: 0,
                    volume: volume.clone(),
                    initiators: None,
                }];
                Ok(Target {
                    name,
                    initiators: None,
                    stations: None,
                    networks: None,
                    keys: Vec::new(),
                    luns,
                })
            })
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn exposed(&self) -> Vec<&dyn Exposed> {
        self.0.exposed()
    }

    fn portals(&self) -> Vec<Portal> {
        self.0.portals(&KIND)
    }

    fn announcement(&self, portals: &[Portal], volumes: &[control::Volume]) -> String {
        let mut own = portals
            .iter()
            .filter(|portal| portal.front_end == HYPERSCSI);
        let Some(first) = own.next() else {
            return String::new();
        };
        let (url, more) = (first.listen.url(HYPERSCSI), own.count());
        let place = |target: &Target| place_of_target(&url, &target.name, &target.luns, more);
        self.0
            .exports
            .iter()
            .map(|target| announced(target, volumes, &place(target)))
            .collect()
    }

    fn usage(&self, portals: &[Portal]) -> String {
        let Some(first) = portals.iter().find(|portal| portal.front_end == HYPERSCSI) else {
            return String::new();
        };
        // The interface has a different name on the initiator's host.
        let url = match &first.listen {
            ListenAddress::Datagrams(DatagramOptions {
                endpoint: DatagramEndpoint::Ethernet { .. },
                ..
            }) => format!("{HYPERSCSI}://eth0"),
            listen => listen.url(HYPERSCSI),
        };
        let usage = |target: &Target| {
            let (name, key) = (
                &target.name,
                if target.keys.is_empty() {
                    ""
                } else {
                    "?key=FILE"
                },
            );
            let line = |lun: &Lun| format!("linerate info '{url}/{name}/{}{key}'\n", lun.lun);
            let lines: Vec<String> = target.luns.iter().map(line).collect();
            format!(
                "HyperSCSI {name}\n  Linerate  {}",
                lines.join("            ")
            )
        };
        self.0.exports.iter().map(usage).collect()
    }

    fn start(&self, serving: Serving<'_>, _: usize) -> Arc<dyn RunningFrontEnd> {
        HyperScsi::new(served(Some(self), serving))
    }
}

impl RunningFrontEnd for HyperScsi {
    fn adopt(&self, wanted: Serving<'_>) {
        HyperScsi::adopt(self, served(HyperScsiConfig::of(wanted.config), wanted));
    }

    fn losses(&self, server: &Server, wanted: Serving<'_>, _: &[Portal]) -> Vec<String> {
        HyperScsi::losses(
            self,
            server,
            &served(HyperScsiConfig::of(wanted.config), wanted),
        )
    }

    fn sessions(&self, server: &Server) -> Vec<control::ServedSession> {
        HyperScsi::sessions(self, server)
            .into_iter()
            .map(session)
            .collect()
    }

    fn drop_sessions(&self, server: &Server, which: &str, _: bool) -> usize {
        HyperScsi::drop_sessions(self, server, which)
    }
}

fn session(status: SessionStatus) -> control::ServedSession {
    let parameters = parameters(&status);
    let mut connections: Vec<control::Connection> = status
        .paths
        .iter()
        .map(|path| connection(path.peer, &path.portal))
        .collect();
    if connections.is_empty() {
        connections.push(connection(status.peer, &status.portal));
    }
    control::ServedSession {
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
    control::Connection {
        cid: None,
        peer,
        local: portal.to_owned(),
    }
}

/// Returns the negotiated parameters, the frame counts and the state of each path, in the order of the
/// connections.
fn parameters(status: &SessionStatus) -> Vec<String> {
    let Counters {
        frames_sent,
        frames_received,
        frames_repeated,
        frames_damaged,
        ..
    } = status.counters;
    let protection = if status.is_encrypted {
        "sealed"
    } else {
        "crc32c"
    };
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
        parameters.push(format!(
            "Path{number}={}",
            if path.is_up { "up" } else { "down" }
        ));
        if let Some(trip) = path.round_trip {
            parameters.push(format!("Path{number}RoundTripUs={}", trip.as_micros()));
        }
        parameters.push(format!("Path{number}WindowFrames={}", path.window_frames));
    }
    parameters
}

/// Adds a LUN. Also adds its target if the file does not have it. The target is named after the volume unless
/// the addition specifies a name.
fn add(root: &mut Table, addition: &Addition<'_>) -> Result<(), String> {
    let section = section_to_edit(root, "hyperscsi", "eth0")?;
    let name = addition.target.unwrap_or(addition.volume.as_str());
    match is_name(name) {
        true => add_lun(section, name, |one, other| one == other, addition),
        false => Err(format!(
            "`{name}` is not a HyperSCSI target name; use letters, digits and .:-_"
        )),
    }
}

/// Removes the LUNs of this volume, and any target that then consists only of its name.
fn remove(root: &mut Table, volume: &VolumeName) -> Result<(), String> {
    let section = root.get_mut("hyperscsi").and_then(Item::as_table_like_mut);
    section
        .filter(|section| section.contains_key("target"))
        .map_or(Ok(()), |section| remove_luns(section, volume))
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
            (
                "hyperscsi+udp://192.0.2.1",
                "hyperscsi+udp://192.0.2.1:5674",
            ),
            ("hyperscsi+udp://[::]:7", "hyperscsi+udp://[::]:7"),
        ] {
            assert_eq!(url(text).as_deref(), Some(meant));
        }
        for wrong in [
            "",
            "hyperscsi://",
            "hyperscsi+udp://eth0",
            "hyperscsi+tcp://192.0.2.1",
            "aoe://eth0",
        ] {
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
        let summary = HyperScsiConfig::of(&config)
            .expect("its part")
            .summary(&config);
        let expected = "HyperSCSI target disks for listed initiators from listed stations, with keys\n  \
                        LUN 3: vm1 = ram:1MiB, for listed initiators\n";
        assert_eq!(summary, expected);
        for (from, to, why) in [
            ("name = \"disks\"", "name = \"a b\"", "not a valid name"),
            ("sixteen bytes or", "short", "16 to 255"),
            (
                "initiator = \"host1\"",
                "initiator = \"host*\"",
                "not a valid name",
            ),
            (
                "volume = \"vm1\"",
                "volume = \"vm2\"",
                "unknown volume `vm2`",
            ),
            ("lun = 3", "lun = 16384", "16383"),
            (
                "[[hyperscsi.target.key]]",
                "[[hyperscsi.target.keys]]",
                "unknown key `keys`",
            ),
        ] {
            let mistake = Config::parse("x.toml", &text.replace(from, to))
                .expect_err(why)
                .to_string();
            assert!(mistake.contains(why), "{why}: {mistake}");
        }
    }
}
