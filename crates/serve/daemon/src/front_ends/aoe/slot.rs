//! `[[aoe.slot]]`: a volume at an address.

use std::sync::Arc;

use aoe::Address;
use reactor::MacAddress;

use crate::config::{Section, VolumeName};
use crate::front_ends::{Document, Serving, for_whom};

/// A volume at an address, and who may use it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slot {
    /// Shelf and slot.
    pub(super) address: Address,
    pub(super) volume: VolumeName,
    /// Hosts cannot write.
    pub(super) read_only: bool,
    /// The stations that may use it; `None` is any.
    pub(super) stations: Option<Vec<MacAddress>>,
}

impl Slot {
    /// A volume for any station.
    pub(super) fn of_volume(address: Address, volume: &VolumeName) -> Slot {
        Slot { address, volume: volume.clone(), read_only: false, stations: None }
    }

    pub(super) fn audience(&self) -> String {
        let who = if self.stations.is_some() { "listed stations" } else { "any station" };
        format!("{who}{}", if self.read_only { ", read-only" } else { "" })
    }

    pub(super) fn served(&self, serving: Serving<'_>) -> Option<aoe_server::Slot> {
        Some(aoe_server::Slot {
            address: self.address,
            volume: Arc::clone(serving.volumes.unit(&self.volume)?.volume()),
            read_only: self.read_only,
            stations: self.stations.clone(),
            deadline: serving.config.volume(&self.volume)?.deadline,
        })
    }
}

/// All slots of `[aoe]`.
pub(super) fn all(section: &Section<'_>, document: &Document<'_>) -> Vec<Slot> {
    let mut slots: Vec<(Address, Option<Slot>)> = Vec::new();
    for section in section.sections("slot", "[[aoe.slot]]") {
        let Some((address, slot)) = read(&section, document) else { continue };
        if slots.iter().any(|(other, _)| *other == address) {
            let sentence = format!("there are two slots {address}; give one another `address`");
            section.mistakes.add(section.at(), sentence);
        }
        slots.push((address, slot));
    }
    slots.into_iter().filter_map(|(_, slot)| slot).collect()
}

/// A slot, which may have no volume.
fn read(section: &Section<'_>, document: &Document<'_>) -> Option<(Address, Option<Slot>)> {
    let volume = section.required("volume", section.text("volume"), "\"vm1\"");
    let address = section.required("address", section.parsed::<Address>("address"), "\"7.1\"");
    let (read_only, stations) = (section.flag("read-only").unwrap_or(false), section.list("stations"));
    section.done();
    let volume = volume.and_then(|volume| document.volume(section, &volume));
    let address = address?.value;
    Some((address, volume.map(|volume| Slot { address, volume, read_only, stations })))
}

/// What is different between two lists of slots, a line each.
pub(super) fn changes(now: &[Slot], wanted: &[Slot], renamed: &[(VolumeName, VolumeName)]) -> Vec<String> {
    let mut lines = Vec::new();
    for after in wanted {
        let Slot { address, volume, read_only, stations } = after;
        let Some(before) = now.iter().find(|before| before.address == *address) else {
            lines.push(format!("+ AoE {address} = {volume} {}", for_whom(&after.audience())));
            continue;
        };
        let called_now = renamed.iter().find(|(from, _)| *from == before.volume);
        if called_now.map_or(&before.volume, |(_, to)| to) != volume {
            let audience = for_whom(&after.audience());
            lines.push(format!("~ AoE {address}: {} -> {volume} {audience}", before.volume));
        }
        let differences =
            [(before.read_only != *read_only, "read-only"), (before.stations != *stations, "stations")];
        let differs = differences.iter().filter(|(differs, _)| *differs);
        lines.extend(differs.map(|(_, key)| format!("~ AoE {address}: {key}")));
        if before.audience() != after.audience() {
            lines.push(format!("~ AoE {address} is {}", for_whom(&after.audience())));
        }
    }
    let is_gone = |before: &&Slot| wanted.iter().all(|after| after.address != before.address);
    let gone = now.iter().filter(is_gone);
    lines.extend(
        gone.map(|before| format!("- AoE {}, which was {}", before.address, for_whom(&before.audience()))),
    );
    lines
}
