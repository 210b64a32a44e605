//! The logical units that one session sees, each with its I_T nexus.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use iscsi::pdu::{Lun, TaskAttribute};
use iscsi::target::TaskId;
use unit::{InitiatorPort, LogicalUnit, Neighbours, Nexus, TargetPort};

use crate::config::Target;
use crate::session::Waiting;

/// A LUN of a session.
pub(crate) struct Slot {
    pub(crate) lun: u16,
    pub(crate) unit: Arc<LogicalUnit>,
    pub(crate) nexus: Nexus,
    pub(crate) deadline: Duration,
    /// Commands begun and not yet answered.
    pub(crate) active: usize,
    /// One of them is ORDERED: nothing overtakes it.
    pub(crate) ordered: bool,
    /// What must wait for its turn (SAM-5 section 8.6, task attributes).
    pub(crate) waiting: VecDeque<Waiting>,
}

impl Slot {
    /// Whether a command of this attribute may go now (SAM-5 section 8.6): HEAD OF QUEUE always, ORDERED alone,
    /// others unless something ORDERED is at work or waits.
    pub(crate) fn may_enter(&self, attribute: TaskAttribute) -> bool {
        match attribute {
            TaskAttribute::HeadOfQueue => true,
            TaskAttribute::Ordered => self.active == 0,
            TaskAttribute::Simple | TaskAttribute::Untagged | TaskAttribute::Aca => !self.ordered,
        }
    }

    /// Lets a newcomer in, unless it or somebody before it must wait.
    pub(crate) fn enter(&mut self, attribute: TaskAttribute) -> bool {
        let overtakes = !self.waiting.is_empty() && attribute != TaskAttribute::HeadOfQueue;
        let enters = !overtakes && self.may_enter(attribute);
        if enters {
            self.take_turn(attribute);
        }
        enters
    }

    /// Counts a command that may go.
    pub(crate) fn take_turn(&mut self, attribute: TaskAttribute) {
        self.active += 1;
        self.ordered |= attribute == TaskAttribute::Ordered;
    }

    /// A command has been answered or given up. An ORDERED one was alone.
    pub(crate) fn leave(&mut self) {
        self.active -= 1;
        self.ordered &= self.active > 0;
    }
}

impl Waiting {
    /// Which command it is.
    pub(crate) fn task(&self) -> TaskId {
        match self {
            Waiting::Begin(command) => command.task,
            Waiting::Finish(task, ..) => *task,
        }
    }
}

/// All LUNs of a session.
pub(crate) struct Luns {
    slots: Vec<Slot>,
    visible: Arc<dyn Neighbours>,
}

/// What commands that look beyond their own logical unit may see.
struct Visible {
    units: Vec<(u16, Arc<LogicalUnit>)>,
}

impl Neighbours for Visible {
    fn luns(&self) -> Vec<u64> {
        self.units.iter().map(|(lun, _)| encode(*lun).0).collect()
    }

    fn by_designator(&self, designator: &[u8]) -> Option<Arc<LogicalUnit>> {
        let found = self.units.iter().find(|(_, unit)| unit.identity().has_designator(designator));
        found.map(|(_, unit)| Arc::clone(unit))
    }
}

impl Luns {
    /// The LUNs of `target` that `initiator` may see; none for a discovery session.
    pub(crate) fn new(target: Option<&Target>, initiator: &InitiatorPort, port: &TargetPort) -> Luns {
        let exports = target.into_iter().flat_map(|target| &target.exports);
        let mut slots: Vec<Slot> = exports
            .filter(|export| match &export.initiators {
                None => true,
                Some(names) => names.iter().any(|name| name.matches(&initiator.name)),
            })
            .map(|export| Slot {
                lun: export.lun,
                unit: Arc::clone(&export.unit),
                nexus: export.unit.attach(initiator.clone(), port.clone()),
                deadline: export.deadline,
                active: 0,
                ordered: false,
                waiting: VecDeque::new(),
            })
            .collect();
        slots.sort_by_key(|slot| slot.lun);
        let units = slots.iter().map(|slot| (slot.lun, Arc::clone(&slot.unit))).collect();
        Luns { slots, visible: Arc::new(Visible { units }) }
    }

    /// The index of the slot that a LUN field addresses.
    pub(crate) fn find(&self, lun: Lun) -> Option<usize> {
        let number = decode(lun)?;
        // LUNs mostly count up from 0: look there first.
        match self.slots.get(usize::from(number)) {
            Some(slot) if slot.lun == number => Some(usize::from(number)),
            _ => self.slots.binary_search_by_key(&number, |slot| slot.lun).ok(),
        }
    }

    pub(crate) fn slot(&mut self, index: usize) -> &mut Slot {
        &mut self.slots[index]
    }

    /// A slot, and what its commands may see of the others.
    pub(crate) fn slot_among(&mut self, index: usize) -> (&mut Slot, &Arc<dyn Neighbours>) {
        (&mut self.slots[index], &self.visible)
    }

    pub(crate) fn unit(&self, index: usize) -> Arc<LogicalUnit> {
        Arc::clone(self.unit_at(index))
    }

    pub(crate) fn unit_at(&self, index: usize) -> &Arc<LogicalUnit> {
        &self.slots[index].unit
    }

    pub(crate) fn deadline(&self, index: usize) -> Duration {
        self.slots[index].deadline
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    pub(crate) fn visible(&self) -> Arc<dyn Neighbours> {
        Arc::clone(&self.visible)
    }
}

/// The LUN field of a number (SAM-5 section 4.7.7): peripheral device addressing to 255, flat space beyond.
pub(crate) fn encode(lun: u16) -> Lun {
    let flat = if lun < 256 { lun } else { 0x4000 | lun };
    Lun(u64::from(flat) << 48)
}

/// The number in a LUN field, if it is of a single level and of a form we hand out or initiators make up
/// themselves: peripheral device addressing on bus 0, or flat space addressing, for small numbers too.
fn decode(lun: Lun) -> Option<u16> {
    let first = (lun.0 >> 48) as u16;
    if lun.0 & 0x0000_ffff_ffff_ffff != 0 {
        return None;
    }
    match first >> 14 {
        0b00 if first < 256 => Some(first),
        0b01 => Some(first & 0x3fff),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lun_fields_round_trip() {
        for lun in [0, 1, 255, 256, 4095, 16_383] {
            assert_eq!(decode(encode(lun)), Some(lun));
        }
        assert_eq!(encode(3).0, 0x0003_0000_0000_0000);
        assert_eq!(encode(300).0, 0x412c_0000_0000_0000);
    }

    #[test]
    fn fields_of_several_levels_address_nothing_here() {
        assert_eq!(decode(Lun(0x0001_0002_0000_0000)), None);
        assert_eq!(decode(Lun(0x0101_0000_0000_0000)), None, "bus 1");
        assert_eq!(decode(Lun(0xc101_0000_0000_0000)), None, "well-known logical units are found elsewhere");
        assert_eq!(decode(Lun(0x4003_0000_0000_0000)), Some(3), "flat space addressing of a small number");
    }
}
