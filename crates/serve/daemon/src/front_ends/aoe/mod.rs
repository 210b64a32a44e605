//! AoE as a front end of a configured server: `[aoe]`, and `[[aoe.slot]]` for each volume.
//!
//! With an interface of its own on the command line (`--listen aoe://INTERFACE`) it has the volumes of the command line at the
//! slots of shelf 0, in their order, for any station.

mod edit;
mod slot;

use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use aoe::{Address, ETHER_TYPE};
use aoe_server::{AOE, Aoe, Limits, StationStatus};
use front_end_core::{ListenAddress, Portal, Server};
use reactor::{DatagramEndpoint, DatagramOptions, StreamOptions};
use volume::spec::Bytes;

use self::slot::Slot;
use super::portals::interface;
use super::{Configured, Document, Kind, Running, Serving, portal_changes};
use crate::config::{Config, Unfit, VolumeName};
use crate::control;
use crate::desired::Desired;

/// Its line of the table.
pub const KIND: Kind = Kind {
    name: AOE,
    listen,
    heading: "[[aoe.slot]]",
    read: |document| Box::new(AoeConfig::read(document)),
    add: edit::add,
    remove: edit::remove,
};

/// Frames that come faster than they are taken wait here, those of many hosts.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// What a configuration says of AoE.
#[derive(Debug, Default)]
pub struct AoeConfig {
    /// Where hosts are.
    listen: Vec<ListenAddress>,
    /// What they find.
    slots: Vec<Slot>,
}

struct Listen(ListenAddress);

/// `[aoe://]INTERFACE`.
fn listen(text: &str) -> Result<ListenAddress, Unfit> {
    let interface = interface(text, AOE)?.to_owned();
    Ok(ListenAddress::Datagrams(DatagramOptions {
        endpoint: DatagramEndpoint::Ethernet { interface, ether_type: ETHER_TYPE },
        receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES),
        ring: None,
        payload_bytes_min: aoe::ATA_BYTES + aoe::SECTOR_BYTES,
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
    /// What it says of AoE; `None` if it was read by a table of front ends without it.
    fn aoe(&self) -> Option<&AoeConfig> {
        self.front_end()
    }
}

impl AoeConfig {
    fn read(document: &Document<'_>) -> AoeConfig {
        let Some(section) = document.root.section("aoe", "[aoe]") else { return AoeConfig::default() };
        let listen = section.required("listen", section.list::<Listen>("listen"), "[\"eth0\"]");
        let slots = slot::all(&section, document);
        section.done();
        AoeConfig {
            listen: listen.unwrap_or_default().into_iter().map(|Listen(address)| address).collect(),
            slots,
        }
    }

    fn slot(&self, address: Address) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.address == address)
    }

    /// As `aoe_server` serves it. A slot whose volume is not open, in the middle of a change, is left out.
    fn served(&self, serving: Serving<'_>) -> aoe_server::Config {
        let slots = self.slots.iter().filter_map(|slot| slot.served(serving)).map(Arc::new).collect();
        aoe_server::Config { slots, limits: Limits::default() }
    }
}

/// Where people are told to look: the interfaces.
fn interfaces(portals: &[Portal]) -> Vec<String> {
    portals.iter().filter(|portal| portal.front_end == AOE).map(|portal| portal.listen.to_string()).collect()
}

impl Configured for AoeConfig {
    fn take_over(&mut self, desired: &Desired) -> Result<(), String> {
        let listen = desired.listen_by(AOE);
        if listen.is_empty() {
            return Ok(());
        }
        self.listen = listen;
        let mut free = (0..u8::MAX).map(|minor| Address { major: 0, minor });
        for volume in &desired.volumes {
            let address = free.find(|address| self.slot(*address).is_none());
            let address = address.ok_or("shelf 0 has 255 slots; write the others into the file")?;
            self.slots.push(Slot::of_volume(address, &volume.name));
        }
        match self.slots.is_empty() {
            false => Ok(()),
            true => Err("nothing is exported by AoE; add --volume, or [[aoe.slot]] to the file".to_owned()),
        }
    }

    fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.listen.is_empty()
    }

    fn volumes(&self) -> Vec<&VolumeName> {
        self.slots.iter().map(|slot| &slot.volume).collect()
    }

    fn portals(&self) -> Vec<Portal> {
        let portal = |listen: &ListenAddress| Portal {
            front_end: AOE,
            listen: listen.clone(),
            tag: 1,
            advertise: None,
            stream: StreamOptions::default(),
        };
        self.listen.iter().map(portal).collect()
    }

    fn changes(&self, wanted: &Config, renamed: &[(VolumeName, VolumeName)]) -> Vec<String> {
        let Some(AoeConfig { listen: _, slots }) = wanted.aoe() else { return Vec::new() };
        let mut lines = slot::changes(&self.slots, slots, renamed);
        let after = wanted.aoe().map(AoeConfig::portals).unwrap_or_default();
        lines.extend(portal_changes(&self.portals(), &after, |portal| self.describe(portal)));
        lines
    }

    fn summary(&self, config: &Config) -> String {
        let mut text = String::new();
        for slot in &self.slots {
            let spec =
                config.volume(&slot.volume).map(|volume| format!(" = {}", volume.spec)).unwrap_or_default();
            let (address, audience, volume) = (slot.address, slot.audience(), &slot.volume);
            let _ = writeln!(text, "AoE {address} for {audience}\n  {volume}{spec}");
        }
        text
    }

    fn exports_of(&self, volume: &VolumeName) -> Vec<control::Lun> {
        let its = self.slots.iter().filter(|slot| slot.volume == *volume);
        let told = |slot: &Slot| control::Lun {
            front_end: AOE.to_owned(),
            target: slot.address.to_string(),
            lun: None,
        };
        its.map(told).collect()
    }

    fn targets(&self, portals: &[Portal]) -> Vec<control::Target> {
        let told = |slot: &Slot| control::Target {
            front_end: AOE.to_owned(),
            name: slot.address.to_string(),
            alias: None,
            portals: interfaces(portals),
            initiators: slot.stations.as_ref().map(|all| all.iter().map(ToString::to_string).collect()),
            networks: None,
            users: Vec::new(),
            redirect: None,
            luns: vec![control::TargetLun { lun: 0, volume: slot.volume.to_string() }],
            sessions: 0,
        };
        self.slots.iter().map(told).collect()
    }

    fn announcement(&self, portals: &[Portal], volumes: &[control::Volume]) -> String {
        let Some(interface) = interfaces(portals).into_iter().next() else { return String::new() };
        let mut text = String::new();
        for slot in &self.slots {
            let volume = volumes.iter().find(|volume| volume.name == slot.volume.as_str());
            let size = volume
                .map(|volume| format!(" ({}, {})", volume.spec, Bytes(volume.bytes)))
                .unwrap_or_default();
            let (address, audience, volume) = (slot.address, slot.audience(), &slot.volume);
            let _ = writeln!(
                text,
                "\nAoE {address}, for {audience}\n  {volume}{size}\n  {AOE}://{interface}/{address}, on hosts of its Ethernet"
            );
        }
        text
    }

    fn usage(&self, portals: &[Portal]) -> String {
        if interfaces(portals).is_empty() {
            return String::new();
        }
        let usage = |slot: &Slot| {
            let Address { major, minor } = slot.address;
            format!(
                "AoE {major}.{minor}, where eth0 is the host's interface\n  Linux     modprobe aoe aoe_iflist=eth0; aoe-discover; \
                 the disk is /dev/etherd/e{major}.{minor}\n  aoetools  aoeping -I {major} {minor} eth0\n  \
                 Linerate  linerate info {AOE}://eth0/{major}.{minor}\n"
            )
        };
        self.slots.iter().map(usage).collect()
    }

    fn start(&self, serving: Serving<'_>, _: usize) -> Arc<dyn Running> {
        Aoe::new(self.served(serving))
    }
}

impl Running for Aoe {
    fn adopt(&self, wanted: Serving<'_>) {
        let config = wanted.config.aoe().map(|aoe| aoe.served(wanted));
        Aoe::adopt(self, config.unwrap_or_default());
    }

    fn losses(&self, server: &Server, wanted: Serving<'_>, _: &[Portal]) -> Vec<String> {
        let now = self.config();
        let serves_still = |station: &StationStatus| {
            let before = now.slots.iter().find(|slot| slot.address == station.slot);
            let after = wanted.config.aoe().and_then(|aoe| aoe.slot(station.slot));
            let (Some(before), Some(after)) = (before, after) else { return false };
            let volume = wanted.volumes.unit(&after.volume).map(|unit| unit.volume());
            volume.is_some_and(|volume| Arc::ptr_eq(volume, &before.volume))
                && after.read_only == before.read_only
                && after.stations.as_ref().is_none_or(|stations| stations.contains(&station.station))
        };
        let stations = self.stations(server);
        let lost = stations.iter().filter(|station| !serves_still(station));
        lost.map(|station| format!("{} uses AoE {}", station.station, station.slot)).collect()
    }

    fn sessions(&self, server: &Server) -> Vec<control::Session> {
        self.stations(server).iter().map(session).collect()
    }
}

/// A station is a session without a connection.
fn session(status: &StationStatus) -> control::Session {
    control::Session {
        front_end: AOE.to_owned(),
        initiator: status.station.to_string(),
        user: None,
        isid: None,
        tsih: None,
        target: Some(status.slot.to_string()),
        age_seconds: status.age.as_secs_f64(),
        core: status.core,
        connections: Vec::new(),
        parameters: Vec::new(),
        in_flight: status.in_flight,
        commands: status.traffic.commands,
        read_bytes: status.traffic.read_bytes,
        written_bytes: status.traffic.written_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_named_with_its_scheme_or_without() {
        for text in ["eth0", "aoe://eth0"] {
            assert_eq!(listen(text).map(|address| address.url(AOE)).ok().as_deref(), Some("aoe://eth0"));
        }
        for wrong in ["", "aoe://", "nbd://eth0", "eth0/1", "an-interface-too-long", "192.0.2.1:7 "] {
            assert!(listen(wrong).is_err(), "{wrong}");
        }
    }
}
