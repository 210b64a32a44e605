//! AoE as a front end of a configured server: `[aoe]`, and `[[aoe.slot]]` for each volume.
//!
//! If the command line has an interface for AoE (`--listen aoe://INTERFACE`), the volumes of the command line
//! are served at the slots of shelf 0, in order, for any station.

use std::sync::Arc;

use aoe::{Address, ETHER_TYPE};
use aoe_server::{AOE, Aoe, Limits, StationStatus};
use front_end_core::{ListenAddress, Portal, Server};
use reactor::{DatagramEndpoint, DatagramOptions, MacAddress};
use toml_edit::{Table, TableLike};

use super::exposed::{AccessLists, Contents, Exposed, Lun, announced, before, differing, texts};
use super::sections::{Listening, add_export, each_once, remove_exports, section_to_edit};
use crate::config::file::{Tables, text_of};
use crate::config::section::Section;
use crate::config::values::{Unfit, VolumeName, interface};
use crate::config::{
    Addition, Beside, Config, Configured, Document, FrontEndKind, RunningFrontEnd, Serving,
};
use crate::control;

/// The entry of AoE in the front-end table.
pub const KIND: FrontEndKind = FrontEndKind {
    name: AOE,
    listen,
    heading: "[[aoe.slot]]",
    read: |document| Box::new(AoeConfig::read(document)),
    add,
    remove: |root, volume| {
        remove_exports(root, "aoe", "slot", volume, &["address", "volume"], |_| {})
    },
};

/// Size of the receive buffer, for bursts of frames that may come from many hosts.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// The AoE part of a configuration: interfaces and slots.
#[derive(Debug, Default)]
pub struct AoeConfig(Listening<Slot>);

/// A slot: an address, its volume and its access list.
#[derive(Clone, Debug, PartialEq)]
struct Slot {
    /// Shelf and slot.
    address: Address,
    volume: VolumeName,
    read_only: bool,
    /// The stations that may use it; `None` for any.
    stations: Option<Vec<MacAddress>>,
}

/// `[aoe://]INTERFACE`.
fn listen(text: &str) -> Result<ListenAddress, Unfit> {
    let interface = interface(text, AOE)?.to_owned();
    Ok(ListenAddress::Datagrams(DatagramOptions {
        endpoint: DatagramEndpoint::Ethernet {
            interface,
            ether_type: ETHER_TYPE,
        },
        receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES),
        ring: None,
        payload_bytes_min: aoe::ATA_BYTES + aoe::SECTOR_BYTES,
        share: None,
    }))
}

impl AoeConfig {
    fn read(document: &Document<'_>) -> AoeConfig {
        let Some(section) = document.root.section("aoe", "[aoe]") else {
            return AoeConfig::default();
        };
        let slots = section.sections("slot", "[[aoe.slot]]");
        let slots = slots
            .iter()
            .filter_map(|section| Slot::read(section, document));
        let slots = each_once(slots, section.mistakes, |address, _| {
            format!("two slots have the address {address}; change one `address`")
        });
        let listening = Listening::read(&section, &KIND, "[\"eth0\"]", slots);
        section.done();
        AoeConfig(listening)
    }

    /// Returns the AoE part of a configuration; `None` if it was read by a table of front ends without AoE.
    fn of(config: &Config) -> Option<&AoeConfig> {
        config.front_end()
    }

    fn slot(&self, address: Address) -> Option<&Slot> {
        self.0.exports.iter().find(|slot| slot.address == address)
    }

    /// Returns the configuration for `aoe_server`. A slot whose volume is not open, as happens during a
    /// change, is omitted.
    fn served(&self, serving: Serving<'_>) -> aoe_server::Config {
        let served = |slot: &Slot| {
            Some(Arc::new(aoe_server::Slot {
                address: slot.address,
                volume: Arc::clone(serving.unit(&slot.volume)?.volume()),
                read_only: slot.read_only,
                stations: slot.stations.clone(),
                deadline: serving.config.volume(&slot.volume)?.deadline,
            }))
        };
        aoe_server::Config {
            slots: self.0.exports.iter().filter_map(served).collect(),
            limits: Limits::default(),
        }
    }
}

impl Slot {
    /// Reads a slot, which may have no volume, with its address and its position in the file.
    fn read(
        section: &Section<'_>,
        document: &Document<'_>,
    ) -> Option<(Address, std::ops::Range<usize>, Option<Slot>)> {
        let volume = section.required("volume", section.text("volume"), "\"vm1\"");
        let address = section.required("address", section.parsed::<Address>("address"), "\"7.1\"");
        let (read_only, stations) = (
            section.flag("read-only").unwrap_or(false),
            section.list("stations"),
        );
        section.done();
        let volume = volume.and_then(|volume| document.volume(section, &volume));
        let address = address?.value;
        Some((
            address,
            section.at(),
            volume.map(|volume| Slot {
                address,
                volume,
                read_only,
                stations,
            }),
        ))
    }
}

impl Exposed for Slot {
    fn name(&self) -> String {
        self.address.to_string()
    }

    fn words(&self) -> [&'static str; 2] {
        ["AoE ", ""]
    }

    fn contents(&self) -> Contents<'_> {
        Contents::Volume(&self.volume)
    }

    fn audience(&self, _: Option<&Lun>) -> String {
        let who = if self.stations.is_some() {
            "listed stations"
        } else {
            "any station"
        };
        format!("{who}{}", if self.read_only { ", read-only" } else { "" })
    }

    fn access(&self) -> AccessLists {
        AccessLists {
            initiators: texts(self.stations.as_ref()),
            ..AccessLists::default()
        }
    }

    fn differences(&self, old: &dyn Exposed) -> Vec<&'static str> {
        let (
            Slot {
                address: _,
                volume: _,
                read_only,
                stations,
            },
            old,
        ) = (self, before::<Slot>(old));
        differing(&[
            (old.read_only != *read_only, "read-only"),
            (old.stations != *stations, "stations"),
        ])
    }
}

impl Configured for AoeConfig {
    fn kind(&self) -> &'static FrontEndKind {
        &KIND
    }

    fn take_over(&mut self, beside: &Beside<'_>) -> Result<(), String> {
        self.0.take_over(beside, &KIND, "AoE", |slots, volume| {
            let mut all = (0..u8::MAX).map(|minor| Address { major: 0, minor });
            let free = all.find(|address| slots.iter().all(|slot| slot.address != *address));
            let address = free.ok_or("shelf 0 has 255 slots; configure the others in the file")?;
            Ok(Slot {
                address,
                volume: volume.clone(),
                read_only: false,
                stations: None,
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
        let Some(portal) = portals.iter().find(|portal| portal.front_end == AOE) else {
            return String::new();
        };
        let place = |slot: &Slot| {
            format!(
                "{AOE}://{}/{}, on hosts of its Ethernet",
                portal.listen, slot.address
            )
        };
        self.0
            .exports
            .iter()
            .map(|slot| announced(slot, volumes, &place(slot)))
            .collect()
    }

    fn usage(&self, portals: &[Portal]) -> String {
        if portals.iter().all(|portal| portal.front_end != AOE) {
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
        self.0.exports.iter().map(usage).collect()
    }

    fn start(&self, serving: Serving<'_>, _: usize) -> Arc<dyn RunningFrontEnd> {
        Aoe::new(self.served(serving))
    }
}

impl RunningFrontEnd for Aoe {
    fn adopt(&self, wanted: Serving<'_>) {
        let config = AoeConfig::of(wanted.config).map(|aoe| aoe.served(wanted));
        Aoe::adopt(self, config.unwrap_or_default());
    }

    fn losses(&self, server: &Server, wanted: Serving<'_>, _: &[Portal]) -> Vec<String> {
        let now = self.config();
        let serves_still = |station: &StationStatus| {
            let before = now.slots.iter().find(|slot| slot.address == station.slot);
            let after = AoeConfig::of(wanted.config).and_then(|aoe| aoe.slot(station.slot));
            let (Some(before), Some(after)) = (before, after) else {
                return false;
            };
            wanted
                .unit(&after.volume)
                .is_some_and(|unit| Arc::ptr_eq(unit.volume(), &before.volume))
                && after.read_only == before.read_only
                && after
                    .stations
                    .as_ref()
                    .is_none_or(|stations| stations.contains(&station.station))
        };
        let stations = self.stations(server);
        let lost = stations.iter().filter(|station| !serves_still(station));
        lost.map(|station| format!("{} uses AoE {}", station.station, station.slot))
            .collect()
    }

    /// Reports each station as a session without a connection.
    fn sessions(&self, server: &Server) -> Vec<control::ServedSession> {
        let session = |status: StationStatus| control::ServedSession {
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
        };
        self.stations(server).into_iter().map(session).collect()
    }
}

/// Adds a slot at the address that the addition names as its target, or at the first free address in shelf 0.
fn add(root: &mut Table, addition: &Addition<'_>) -> Result<(), String> {
    if addition.lun.is_some() || !addition.initiators.is_empty() {
        return Err("AoE slots have neither LUNs nor initiators; omit these options".to_owned());
    }
    let aoe = section_to_edit(root, "aoe", "eth0")?;
    // Compare addresses as numbers: `07.1` is 7.1.
    let address_of = |slot: &dyn TableLike| text_of(slot, "address")?.parse::<Address>().ok();
    let address: Address = match addition.target {
        Some(text) => text.parse().map_err(|error| format!("`{text}`: {error}"))?,
        None => {
            let mut slots = Tables::under(aoe, "slot")?;
            let mut all = (0..u8::MAX).map(|minor| Address { major: 0, minor });
            all.find(|address| !slots.any(|slot| address_of(slot) == Some(*address)))
                .ok_or("shelf 0 has no free slot; name a slot of another shelf as the target")?
        }
    };
    let entries = [
        ("address", address.to_string().into()),
        ("volume", addition.volume.as_str().into()),
    ];
    let taken = format!("slot {address} already exists");
    add_export(
        aoe,
        "slot",
        |slot| address_of(slot) == Some(address),
        addition.volume,
        entries,
        taken,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_named_with_its_scheme_or_without() {
        for text in ["eth0", "aoe://eth0"] {
            assert_eq!(
                listen(text).map(|address| address.url(AOE)).ok().as_deref(),
                Some("aoe://eth0")
            );
        }
        for wrong in [
            "",
            "aoe://",
            "nbd://eth0",
            "eth0/1",
            "an-interface-too-long",
            "192.0.2.1:7 ",
        ] {
            assert!(listen(wrong).is_err(), "{wrong}");
        }
    }
}
