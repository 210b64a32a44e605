//! The logical units that one session sees, each with its I_T nexus.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use iscsi::pdu::{Lun, TaskAttribute};
use iscsi::target::TaskId;
use unit::{InitiatorPort, LogicalUnit, LunAddress, Nexus, NexusId, SiblingUnits, TargetPort, flat_number};
use volume::Volume;

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

/// All LUNs of a session. Commands know theirs by its place, which it keeps as long as there are any.
pub(crate) struct Luns {
    places: Vec<Option<Slot>>,
    /// The places of the LUNs that there are, in the order of their numbers. A LUN that was removed keeps its place for a
    /// while and is not among them.
    by_number: Vec<(u16, usize)>,
    visible: Arc<dyn SiblingUnits>,
    initiator: InitiatorPort,
    port: TargetPort,
}

/// What commands that look beyond their own logical unit may see.
struct Visible {
    units: Vec<(u16, Arc<LogicalUnit>)>,
}

impl SiblingUnits for Visible {
    fn luns(&self) -> Vec<u64> {
        self.units.iter().map(|(lun, _)| LunAddress::Number(u64::from(*lun)).write()).collect()
    }

    fn by_designator(&self, designator: &[u8]) -> Option<Arc<LogicalUnit>> {
        let found = self.units.iter().find(|(_, unit)| unit.identity().has_designator(designator));
        found.map(|(_, unit)| Arc::clone(unit))
    }
}

impl Luns {
    /// The LUNs of `target` that `initiator` may see; none for a discovery session.
    pub(crate) fn new(target: Option<&Target>, initiator: InitiatorPort, port: TargetPort) -> Luns {
        let visible = Arc::new(Visible { units: Vec::new() });
        let mut luns = Luns { places: Vec::new(), by_number: Vec::new(), visible, initiator, port };
        luns.add_missing(target);
        luns
    }

    /// Takes out of the numbers what `target` does not show any more, and adopts the deadlines of the rest. Returns the
    /// units behind what was taken out; [`Luns::sweep`] frees their places.
    pub(crate) fn remove_gone(&mut self, target: Option<&Target>) -> Vec<Arc<LogicalUnit>> {
        let exports = target.map_or(&[][..], |target| &target.exports);
        let mut gone = Vec::new();
        self.by_number.retain(|&(lun, place)| {
            let Some(slot) = &mut self.places[place] else { return false };
            let stays = exports.iter().find(|export| {
                let is_same = export.lun == lun && Arc::ptr_eq(&export.unit, &slot.unit);
                is_same && export.is_seen_by(&self.initiator.name)
            });
            match stays {
                Some(export) => slot.deadline = export.deadline,
                None => gone.push(Arc::clone(&slot.unit)),
            }
            stays.is_some()
        });
        gone
    }

    /// Adds what `target` shows and is not there. Returns how many LUNs these are.
    pub(crate) fn add_missing(&mut self, target: Option<&Target>) -> usize {
        let before = self.by_number.len();
        for export in target.into_iter().flat_map(|target| &target.exports) {
            let Err(at) = self.by_number.binary_search_by_key(&export.lun, |(lun, _)| *lun) else { continue };
            if !export.is_seen_by(&self.initiator.name) {
                continue;
            }
            let slot = Slot {
                lun: export.lun,
                unit: Arc::clone(&export.unit),
                nexus: export.unit.attach(self.initiator.clone(), self.port.clone()),
                deadline: export.deadline,
                active: 0,
                ordered: false,
                waiting: VecDeque::new(),
            };
            let place = self.places.iter().position(Option::is_none).unwrap_or_else(|| {
                self.places.push(None);
                self.places.len() - 1
            });
            self.places[place] = Some(slot);
            self.by_number.insert(at, (export.lun, place));
        }
        let units = self.iter().map(|slot| (slot.lun, Arc::clone(&slot.unit))).collect();
        self.visible = Arc::new(Visible { units });
        self.by_number.len() - before
    }

    /// Tells the initiator, at its next command for any of them, that there are other LUNs than before.
    pub(crate) fn tell_changed(&self) {
        self.iter().for_each(|slot| slot.unit.luns_changed(slot.nexus.id()));
    }

    /// Whether a LUN that was removed has its place still.
    pub(crate) fn are_some_gone(&self) -> bool {
        self.places.iter().flatten().count() > self.by_number.len()
    }

    /// Frees the places of LUNs that were removed, unless a command needs them.
    pub(crate) fn sweep(&mut self, is_needed: impl Fn(usize) -> bool) {
        let Luns { places, by_number, .. } = self;
        for (place, slot) in places.iter_mut().enumerate() {
            let is_there = by_number.iter().any(|(_, there)| *there == place);
            slot.take_if(|_| !is_there && !is_needed(place));
        }
    }

    /// The place of the LUN that a LUN field addresses.
    pub(crate) fn find(&self, lun: Lun) -> Option<usize> {
        let number = flat_number(lun.0)?;
        // LUNs mostly count up from 0: look there first.
        match self.by_number.get(usize::from(number)) {
            Some((lun, place)) if *lun == number => Some(*place),
            _ => {
                let at = self.by_number.binary_search_by_key(&number, |(lun, _)| *lun).ok()?;
                Some(self.by_number[at].1)
            }
        }
    }

    pub(crate) fn slot(&mut self, place: usize) -> &mut Slot {
        self.places[place].as_mut().expect(KEPT)
    }

    /// A slot, and what its commands may see of the others.
    pub(crate) fn slot_among(&mut self, place: usize) -> (&mut Slot, &Arc<dyn SiblingUnits>) {
        (self.places[place].as_mut().expect(KEPT), &self.visible)
    }

    pub(crate) fn unit(&self, place: usize) -> Arc<LogicalUnit> {
        Arc::clone(self.unit_at(place))
    }

    pub(crate) fn unit_at(&self, place: usize) -> &Arc<LogicalUnit> {
        &self.kept(place).unit
    }

    pub(crate) fn deadline(&self, place: usize) -> Duration {
        self.kept(place).deadline
    }

    fn kept(&self, place: usize) -> &Slot {
        self.places[place].as_ref().expect(KEPT)
    }

    /// Those that there are, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.by_number.iter().filter_map(|(_, place)| self.places[*place].as_ref())
    }

    /// The unit of `volume` and the nexus there, of a LUN that was removed and has commands, too.
    pub(crate) fn user_of(&self, volume: &Arc<Volume>) -> Option<(Arc<LogicalUnit>, NexusId)> {
        let mut slots = self.iter().chain(self.places.iter().flatten());
        let slot = slots.find(|slot| Arc::ptr_eq(slot.unit.volume(), volume))?;
        Some((Arc::clone(&slot.unit), slot.nexus.id()))
    }

    /// The nexus of this name, if its LUN is there still.
    pub(crate) fn nexus(&self, id: u64) -> Option<&Nexus> {
        self.places.iter().flatten().map(|slot| &slot.nexus).find(|nexus| nexus.id().number() == id)
    }

    pub(crate) fn visible(&self) -> Arc<dyn SiblingUnits> {
        Arc::clone(&self.visible)
    }
}

const KEPT: &str = "a LUN keeps its place as long as it has commands";
