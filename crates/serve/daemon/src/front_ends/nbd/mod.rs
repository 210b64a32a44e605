//! NBD as a front end of a configured server: `[nbd]`, and `[[nbd.export]]` for each volume.
//!
//! With an address of its own on the command line (`--listen nbd://…`) it exports the volumes of the command line, each
//! under its own name, to anybody.

mod edit;
mod export;
mod summary;
mod tls;

use std::str::FromStr;
use std::sync::Arc;

use front_end_core::{ListenAddress, Portal, Server};
use nbd_server::{ClientStatus, Limits, NBD, Nbd};
use reactor::StreamOptions;
use volume::spec::{Bytes, Time};

use self::export::Export;
use self::tls::Tls;
use super::{Configured, Document, Kind, Running, Serving, listen_address_or_path, portal_changes};
use crate::config::{Config, Section, Unfit, VolumeName};
use crate::control;
use crate::desired::Desired;

/// Its line of the table.
pub const KIND: Kind = Kind {
    name: NBD,
    listen,
    heading: "[[nbd.export]]",
    read: |document| Box::new(NbdConfig::read(document)),
    add: edit::add,
    remove: edit::remove,
};

/// The port that IANA gave it.
const PORT: u16 = 10809;

/// What a configuration says of NBD.
#[derive(Debug, Default)]
pub struct NbdConfig {
    /// Where clients connect.
    listen: Vec<ListenAddress>,
    /// What they find.
    exports: Vec<Export>,
    tls: Option<Tls>,
    limits: Limits,
}

struct Listen(ListenAddress);

fn listen(text: &str) -> Result<ListenAddress, Unfit> {
    listen_address_or_path(text, NBD, PORT)
}

impl FromStr for Listen {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Listen, Unfit> {
        listen(text).map(Listen)
    }
}

impl Config {
    /// What it says of NBD; `None` if it was read by a table of front ends without it.
    fn nbd(&self) -> Option<&NbdConfig> {
        self.front_end()
    }
}

impl NbdConfig {
    fn read(document: &Document<'_>) -> NbdConfig {
        let limits = document.limits.map(limits).unwrap_or_default();
        let Some(section) = document.root.section("nbd", "[nbd]") else {
            return NbdConfig { limits, ..NbdConfig::default() };
        };
        let listen = section.required("listen", section.list::<Listen>("listen"), "[\"0.0.0.0:10809\"]");
        let tls = tls::read(&section);
        let exports = export::all(&section, document, tls.as_ref());
        section.done();
        let listen = listen.unwrap_or_default().into_iter().map(|Listen(address)| address).collect();
        NbdConfig { listen, exports, tls, limits }
    }

    /// With which clients are to connect.
    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "nbds" } else { "nbd" }
    }

    fn export(&self, name: &str) -> Option<&Export> {
        self.exports.iter().find(|export| export.name == name)
    }

    /// As `nbd_server` serves it. An export whose volume is not open, in the middle of a change, is left out.
    fn served(&self, serving: Serving<'_>) -> nbd_server::Config {
        let exports = self.exports.iter().filter_map(|export| export.served(serving)).map(Arc::new).collect();
        nbd_server::Config {
            exports,
            tls: self.tls.as_ref().map(|tls| tls.served.clone()),
            limits: self.limits,
        }
    }
}

impl Configured for NbdConfig {
    fn take_over(&mut self, desired: &Desired) -> Result<(), String> {
        let listen = desired.listen_by(NBD);
        if listen.is_empty() {
            return Ok(());
        }
        self.listen = listen;
        for volume in &desired.volumes {
            if self.export(volume.name.as_str()).is_some() {
                return Err(format!("the file has an export {} already; rename the volume", volume.name));
            }
            self.exports.push(Export::of_volume(&volume.name));
        }
        match self.exports.is_empty() {
            false => Ok(()),
            true => Err("nothing is exported by NBD; add --volume, or [[nbd.export]] to the file".to_owned()),
        }
    }

    fn is_empty(&self) -> bool {
        self.exports.is_empty() && self.listen.is_empty()
    }

    fn volumes(&self) -> Vec<&VolumeName> {
        self.exports.iter().map(|export| &export.volume).collect()
    }

    fn portals(&self) -> Vec<Portal> {
        let portal = |listen: &ListenAddress| Portal {
            front_end: NBD,
            listen: listen.clone(),
            tag: 1,
            advertise: None,
            stream: StreamOptions::default(),
        };
        self.listen.iter().map(portal).collect()
    }

    fn changes(&self, wanted: &Config, renamed: &[(VolumeName, VolumeName)]) -> Vec<String> {
        // A difference of limits is told by iSCSI, whose keys they are, too.
        let Some(NbdConfig { listen: _, exports, tls, limits: _ }) = wanted.nbd() else { return Vec::new() };
        let after = wanted.nbd().map(NbdConfig::portals).unwrap_or_default();
        let mut lines = export::changes(&self.exports, exports, renamed);
        lines.extend(tls::changes(self.tls.as_ref(), tls.as_ref()));
        lines.extend(portal_changes(&self.portals(), &after, |portal| self.describe(portal)));
        lines
    }

    fn summary(&self, config: &Config) -> String {
        let encryption = self.tls.as_ref().map(summary::encryption).unwrap_or_default();
        encryption + &self.exports.iter().map(|export| summary::of(export, config)).collect::<String>()
    }

    fn exports_of(&self, volume: &VolumeName) -> Vec<control::Lun> {
        let its = self.exports.iter().filter(|export| export.volume == *volume);
        let told = |export: &Export| control::Lun {
            front_end: NBD.to_owned(),
            target: export.name.clone(),
            lun: None,
        };
        its.map(told).collect()
    }

    fn targets(&self, portals: &[Portal]) -> Vec<control::Target> {
        self.exports.iter().map(|export| summary::told(export, portals)).collect()
    }

    fn announcement(&self, portals: &[Portal], volumes: &[control::Volume]) -> String {
        self.exports
            .iter()
            .filter_map(|export| summary::announced(export, self.scheme(), portals, volumes))
            .collect()
    }

    fn usage(&self, portals: &[Portal]) -> String {
        self.exports.iter().filter_map(|export| summary::usage(export, self.tls.as_ref(), portals)).collect()
    }

    fn start(&self, serving: Serving<'_>, cores: usize) -> Arc<dyn Running> {
        Nbd::new(self.served(serving), cores)
    }
}

impl Running for Nbd {
    fn adopt(&self, wanted: Serving<'_>) {
        let config = wanted.config.nbd().map(|nbd| nbd.served(wanted));
        Nbd::adopt(self, config.unwrap_or_default());
    }

    fn losses(&self, server: &Server, wanted: Serving<'_>, _: &[Portal]) -> Vec<String> {
        let now = self.config();
        let serves_still = |client: &ClientStatus| {
            let before = now.exports.iter().find(|export| export.name == client.export);
            let Some(nbd) = wanted.config.nbd() else { return false };
            let after = nbd.export(&client.export);
            let is_required = nbd.tls.as_ref().is_some_and(|tls| tls.served.is_required);
            let (Some(before), Some(after)) = (before, after) else { return false };
            let volume = wanted.volumes.unit(&after.volume).map(|unit| unit.volume());
            volume.is_some_and(|volume| Arc::ptr_eq(volume, &before.volume))
                && after.read_only == before.read_only
                && after.admits(&client.requester)
                && (client.requester.encryption.is_some() || !is_required)
        };
        let clients = self.clients(server);
        let lost = clients.iter().filter(|client| !serves_still(client));
        lost.map(|client| format!("{} uses the export {}", client.peer, client.export)).collect()
    }

    fn sessions(&self, server: &Server) -> Vec<control::Session> {
        self.clients(server).into_iter().map(session).collect()
    }

    fn drop_sessions(&self, server: &Server, which: &str, force: bool) -> usize {
        self.drop_clients(server, which, force)
    }
}

/// The keys of `[limits]` that mean the same for every front end.
fn limits(section: &Section<'_>) -> Limits {
    let usual = Limits::default();
    let time = |key| section.parsed::<Time>(key).map(|time| time.value.0);
    let staging = section.parsed::<Bytes>("session-staging").map(|bytes| bytes.value.0 as usize);
    let requests = section.count("window", 1..=65_535).map(|count| count.value as usize);
    Limits {
        handshake_time: time("login-time").unwrap_or(usual.handshake_time),
        send_stall: time("send-stall").unwrap_or(usual.send_stall),
        requests: requests.unwrap_or(usual.requests),
        staging_bytes: staging.unwrap_or(usual.staging_bytes),
    }
}

fn session(status: ClientStatus) -> control::Session {
    control::Session {
        front_end: NBD.to_owned(),
        initiator: status.peer.ip().to_canonical().to_string(),
        user: None,
        isid: None,
        tsih: Some(status.number),
        target: Some(status.export),
        age_seconds: status.age.as_secs_f64(),
        core: status.core,
        connections: vec![control::Connection {
            cid: None,
            peer: status.peer.into(),
            local: status.local.to_string(),
        }],
        parameters: status.parameters.iter().map(|(key, value)| format!("{key}={value}")).collect(),
        in_flight: status.in_flight,
        commands: status.traffic.commands,
        read_bytes: status.traffic.read_bytes,
        written_bytes: status.traffic.written_bytes,
    }
}
