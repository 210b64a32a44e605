//! The LUNs of a target ([`Export`]), and the LUNs that are visible to one session ([`Luns`]), each with its
//! I_T nexus.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use derive_more::Display;
use front_end_core::{AbortOrder, CoreTally, Owners, Server, VolumeTally};
use logical_unit::{
    InquiryFacts, LogicalUnit, LunAddress, Nexus, NexusId, SessionTraits, SiblingUnits, flat_number,
};
use volume::Volume;

/// A LUN of a target.
#[derive(Clone)]
pub struct Export {
    /// The LUN, from 0 to 16,383 (SAM-5 4.7: the range of flat space addressing).
    pub lun: u16,
    /// The name of the volume.
    pub volume: String,
    /// The logical unit.
    pub unit: Arc<LogicalUnit>,
    /// The initiators to which the LUN is visible; `None` for all initiators that may log in.
    pub initiators: Option<Vec<NamePattern>>,
    /// The deadline of a device request. After the deadline, the command fails, and the volume is fenced
    /// until the device responds again.
    pub deadline: Duration,
}

impl Export {
    /// Whether the LUN is visible to this initiator.
    pub fn is_seen_by(&self, initiator: &str) -> bool {
        self.initiators
            .as_ref()
            .is_none_or(|names| names.iter().any(|name| name.matches(initiator)))
    }
}

/// An initiator's name, or a prefix followed by `*`. Names compare without regard to case (RFC 7143 section
/// 4.2.7.1 requires normalised, lower-case names).
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[display("{stem}{}", if *open_ended { "*" } else { "" })]
pub struct NamePattern {
    stem: String,
    open_ended: bool,
}

impl NamePattern {
    /// Parses a pattern such as `iqn.1993-08.org.debian:01:abc` or `iqn.1993-08.org.debian:*`.
    pub fn new(pattern: &str) -> NamePattern {
        let stem = pattern.strip_suffix('*');
        NamePattern {
            stem: stem.unwrap_or(pattern).to_ascii_lowercase(),
            open_ended: stem.is_some(),
        }
    }

    /// Returns a matching name: the stem, with `rest` appended if the pattern has a star. `None` if every
    /// name matches.
    pub fn example(&self, rest: &str) -> Option<String> {
        match (self.open_ended, self.stem.is_empty()) {
            (true, true) => None,
            (true, false) => Some(format!("{}{rest}", self.stem)),
            (false, _) => Some(self.stem.clone()),
        }
    }

    /// Whether `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        if self.open_ended {
            name.starts_with(&self.stem)
        } else {
            name == self.stem
        }
    }
}

/// The order in which a command may start relative to the other commands of its LUN, as required by its task
/// attribute (SAM-5 section 8.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// In any order: SIMPLE, untagged, and ACA, which never applies here.
    Simple,
    /// After all earlier commands, and before all later ones.
    Ordered,
    /// Immediately.
    HeadOfQueue,
}

/// A LUN of a session. `W` is the type of a command that waits for its turn at the LUN.
pub struct Slot<W> {
    /// The LUN itself, a number.
    pub lun: u16,
    /// The logical unit.
    pub unit: Arc<LogicalUnit>,
    /// The session's nexus at the logical unit.
    pub nexus: Nexus,
    /// The deadline of requests to the device of the unit.
    pub deadline: Duration,
    /// The statistics of its volume on this core.
    pub tally: Rc<VolumeTally>,
    /// Number of commands started and not yet answered.
    pub active: usize,
    /// Whether one of the active commands is ORDERED, so that no other command may start.
    pub ordered: bool,
    /// Commands that wait for their turn (SAM-5 section 8.6, task attributes).
    pub waiting: VecDeque<W>,
    /// Whether a loop that starts the waiting commands is running.
    pub is_beginning: bool,
}

impl<W> Slot<W> {
    /// Whether a command with this turn may start now (SAM-5 section 8.6): a HEAD OF QUEUE command always
    /// may; an ORDERED command may if no other command is active; any other command may unless an ORDERED
    /// command is active or waits.
    pub fn may_enter(&self, turn: Turn) -> bool {
        match turn {
            Turn::HeadOfQueue => true,
            Turn::Ordered => self.active == 0,
            Turn::Simple => !self.ordered,
        }
    }

    /// Starts a new command, unless it or an earlier command must wait. Returns whether it has started.
    pub fn enter(&mut self, turn: Turn) -> bool {
        debug_assert!(
            self.waiting.is_empty() || self.active > 0,
            "a command waits for others that are active"
        );
        let overtakes = !self.waiting.is_empty() && turn != Turn::HeadOfQueue;
        let enters = !overtakes && self.may_enter(turn);
        if enters {
            self.take_turn(turn);
        }
        enters
    }

    /// Counts a command that starts.
    pub fn take_turn(&mut self, turn: Turn) {
        debug_assert!(
            turn != Turn::Ordered || self.active == 0,
            "ORDERED begins alone"
        );
        self.active += 1;
        self.ordered |= turn == Turn::Ordered;
    }

    /// Records that a command was answered or aborted. An ORDERED command was the only active command.
    pub fn leave(&mut self) {
        debug_assert!(self.active > 0, "only an entered command leaves");
        self.active -= 1;
        self.ordered &= self.active > 0;
    }
}

/// All LUNs of a session. A command refers to its LUN by index, which stays valid while the LUN has commands.
pub struct Luns<W> {
    places: Vec<Option<Slot<W>>>,
    /// Indices of the LUNs, in the order of their numbers. A removed LUN is not listed here, although it
    /// keeps its slot until [`Luns::sweep`].
    by_number: Vec<(u16, usize)>,
    /// The INQUIRY data of removed LUNs, by number: a later unit at the LUN may have different data.
    told: BTreeMap<u16, InquiryFacts>,
    visible: Arc<dyn SiblingUnits>,
    session: Arc<SessionTraits>,
    tally: Rc<CoreTally>,
}

/// The LUNs that are visible to commands that address several of them (REPORT LUNS, EXTENDED COPY).
struct Visible {
    units: Vec<(u16, Arc<LogicalUnit>, NexusId)>,
}

impl SiblingUnits for Visible {
    fn luns(&self) -> Vec<u64> {
        self.units
            .iter()
            .map(|(lun, ..)| LunAddress::Number(u64::from(*lun)).write())
            .collect()
    }

    fn by_designator(&self, designator: &[u8]) -> Option<Arc<LogicalUnit>> {
        let found = self
            .units
            .iter()
            .find(|(_, unit, _)| unit.identity().has_designator(designator));
        found.map(|(_, unit, _)| Arc::clone(unit))
    }

    fn luns_reported(&self) {
        self.units
            .iter()
            .for_each(|(_, unit, nexus)| unit.luns_reported(*nexus));
    }
}

impl<W> Luns<W> {
    /// Creates the LUNs of a session: the `exports` that are visible to its initiator.
    pub fn new(exports: &[Export], session: SessionTraits, tally: Rc<CoreTally>) -> Luns<W> {
        let (visible, session) = (Arc::new(Visible { units: Vec::new() }), Arc::new(session));
        let (places, by_number, told) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut luns = Luns {
            places,
            by_number,
            told,
            visible,
            session,
            tally,
        };
        luns.add_missing(exports);
        luns
    }

    /// Removes LUNs that are no longer in `exports`, and updates the deadlines of the others. Returns the
    /// indices of the removed LUNs, whose slots [`Luns::sweep`] frees.
    pub fn remove_gone(&mut self, exports: &[Export]) -> Vec<usize> {
        let (mut gone, told) = (Vec::new(), &mut self.told);
        self.by_number.retain(|&(lun, place)| {
            let Some(slot) = &mut self.places[place] else {
                return false;
            };
            let stays = exports.iter().find(|export| {
                let is_same = export.lun == lun && Arc::ptr_eq(&export.unit, &slot.unit);
                is_same && export.is_seen_by(&self.session.ports.host.name)
            });
            match stays {
                Some(export) => slot.deadline = export.deadline,
                None => {
                    told.insert(lun, slot.unit.inquiry_facts());
                    gone.push(place);
                }
            }
            stays.is_some()
        });
        debug_assert!(
            gone.iter()
                .all(|place| self.by_number.iter().all(|(_, there)| there != place)),
            "a removed LUN is found no more"
        );
        gone
    }

    /// Adds the LUNs of `exports` that are missing. Returns their number.
    pub fn add_missing(&mut self, exports: &[Export]) -> usize {
        let (before, now) = (self.by_number.len(), reactor::now());
        for export in exports {
            let Err(at) = self
                .by_number
                .binary_search_by_key(&export.lun, |(lun, _)| *lun)
            else {
                continue;
            };
            if !export.is_seen_by(&self.session.ports.host.name) {
                continue;
            }
            let slot = Slot {
                lun: export.lun,
                unit: Arc::clone(&export.unit),
                nexus: export.unit.attach(Arc::clone(&self.session), now),
                deadline: export.deadline,
                tally: self.tally.volume(export.unit.volume()),
                active: 0,
                ordered: false,
                waiting: VecDeque::new(),
                is_beginning: false,
            };
            // If the LUN is mapped to another unit than before, its INQUIRY data has changed for this
            // session.
            if self
                .told
                .remove(&export.lun)
                .is_some_and(|told| told != export.unit.inquiry_facts())
            {
                export.unit.inquiry_changed(slot.nexus.id());
            }
            let place = self
                .places
                .iter()
                .position(Option::is_none)
                .unwrap_or_else(|| {
                    self.places.push(None);
                    self.places.len() - 1
                });
            self.places[place] = Some(slot);
            self.by_number.insert(at, (export.lun, place));
        }
        let units = self
            .iter()
            .map(|slot| (slot.lun, Arc::clone(&slot.unit), slot.nexus.id()))
            .collect();
        self.visible = Arc::new(Visible { units });
        debug_assert!(
            self.by_number.is_sorted_by(|one, next| one.0 < next.0),
            "a number is there once, and in order"
        );
        self.by_number.len() - before
    }

    /// Raises REPORTED LUNS DATA HAS CHANGED for the next command to each LUN.
    pub fn tell_changed(&self) {
        self.iter()
            .for_each(|slot| slot.unit.luns_changed(slot.nexus.id()));
    }

    /// Whether this unit is at one of the LUNs, excluding removed ones.
    pub fn shows(&self, unit: &Arc<LogicalUnit>) -> bool {
        self.iter().any(|slot| Arc::ptr_eq(&slot.unit, unit))
    }

    /// Whether a removed LUN still has its slot.
    pub fn are_some_gone(&self) -> bool {
        self.places.iter().flatten().count() > self.by_number.len()
    }

    /// Frees the slots of removed LUNs that no command needs.
    pub fn sweep(&mut self, is_needed: impl Fn(usize) -> bool) {
        let Luns {
            places, by_number, ..
        } = self;
        for (place, slot) in places.iter_mut().enumerate() {
            let is_there = by_number.iter().any(|(_, there)| *there == place);
            let freed = slot.take_if(|_| !is_there && !is_needed(place));
            debug_assert!(
                freed.as_ref().is_none_or(|freed| freed.waiting.is_empty()),
                "no command waits at a LUN that is freed"
            );
            debug_assert!(
                !is_there || slot.is_some(),
                "a LUN that was not removed keeps its place"
            );
        }
    }

    /// Records that the initiator has ended the session on its own initiative.
    pub fn log_out(&self) {
        self.session.log_out();
    }

    /// Returns the index of the LUN that an eight-byte LUN field addresses.
    pub fn find(&self, lun: u64) -> Option<usize> {
        let number = flat_number(lun)?;
        // LUNs are usually numbered from 0 without gaps, so try the position that equals the number first.
        match self.by_number.get(usize::from(number)) {
            Some((lun, place)) if *lun == number => Some(*place),
            _ => {
                let at = self
                    .by_number
                    .binary_search_by_key(&number, |(lun, _)| *lun)
                    .ok()?;
                Some(self.by_number[at].1)
            }
        }
    }

    /// Returns the statistics of the volume at an index.
    pub fn tally(&self, place: usize) -> &VolumeTally {
        &self.kept(place).tally
    }

    /// Returns the LUN at an index.
    pub fn slot(&mut self, place: usize) -> &mut Slot<W> {
        self.places[place].as_mut().expect(KEPT)
    }

    /// Returns a slot, and the units that are visible to its commands.
    pub fn slot_among(&mut self, place: usize) -> (&mut Slot<W>, &Arc<dyn SiblingUnits>) {
        (self.places[place].as_mut().expect(KEPT), &self.visible)
    }

    /// Returns the unit at an index.
    pub fn unit(&self, place: usize) -> Arc<LogicalUnit> {
        Arc::clone(self.unit_at(place))
    }

    /// Returns the unit at an index, borrowed.
    pub fn unit_at(&self, place: usize) -> &Arc<LogicalUnit> {
        &self.kept(place).unit
    }

    /// Returns the deadline of the LUN at an index.
    pub fn deadline(&self, place: usize) -> Duration {
        self.kept(place).deadline
    }

    fn kept(&self, place: usize) -> &Slot<W> {
        self.places[place].as_ref().expect(KEPT)
    }

    /// The LUNs in the order of their numbers, without removed ones.
    pub fn iter(&self) -> impl Iterator<Item = &Slot<W>> {
        self.by_number
            .iter()
            .filter_map(|(_, place)| self.places[*place].as_ref())
    }

    /// Returns the unit of `volume` and the session's nexus at it. Includes removed LUNs that still have
    /// commands.
    pub fn user_of(&self, volume: &Arc<Volume>) -> Option<(Arc<LogicalUnit>, NexusId)> {
        let mut slots = self.iter().chain(self.places.iter().flatten());
        let slot = slots.find(|slot| Arc::ptr_eq(slot.unit.volume(), volume))?;
        Some((Arc::clone(&slot.unit), slot.nexus.id()))
    }

    /// Returns the nexus with this id, if its LUN still exists.
    pub fn nexus(&self, id: u64) -> Option<&Nexus> {
        self.places
            .iter()
            .flatten()
            .map(|slot| &slot.nexus)
            .find(|nexus| nexus.id().number() == id)
    }

    /// The units visible to commands of a LUN.
    pub fn visible(&self) -> Arc<dyn SiblingUnits> {
        Arc::clone(&self.visible)
    }
}

const KEPT: &str = "a LUN keeps its place as long as it has commands";

// Operations on several logical units.

/// Adds the units that are not in the list yet.
pub fn add_units(units: &mut Vec<Arc<LogicalUnit>>, more: &[Arc<LogicalUnit>]) {
    for unit in more {
        if !units.iter().any(|known| Arc::ptr_eq(known, unit)) {
            units.push(Arc::clone(unit));
        }
    }
}

/// The units of a session whose devices may still execute commands that the session has aborted. Each must
/// quiesce before the session ends. A unit that has since been closed has quiesced, because a volume is
/// closed only after its last command has ended. The list therefore keeps no unit open.
#[derive(Default)]
pub(crate) struct AbortedUnits(Vec<Weak<LogicalUnit>>);

impl AbortedUnits {
    /// Adds the units that are not in the list yet.
    pub(crate) fn add(&mut self, more: &[Arc<LogicalUnit>]) {
        self.0.retain(|known| known.strong_count() > 0);
        for unit in more {
            if !self
                .0
                .iter()
                .any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(unit)))
            {
                self.0.push(Arc::downgrade(unit));
            }
        }
        debug_assert!(
            more.iter()
                .all(|unit| self.open().iter().any(|known| Arc::ptr_eq(known, unit))),
            "all are there"
        );
    }

    /// The units that are still open.
    pub(crate) fn open(&self) -> Vec<Arc<LogicalUnit>> {
        self.0.iter().filter_map(Weak::upgrade).collect()
    }

    /// Empties the list, and returns the units that are still open.
    pub(crate) fn take(&mut self) -> Vec<Arc<LogicalUnit>> {
        std::mem::take(self).open()
    }
}

/// Waits until the devices of these units have completed or cancelled all aborted requests, or the volumes
/// are fenced until then.
pub async fn quiesce(server: &Arc<Server>, units: Vec<Arc<LogicalUnit>>) {
    server
        .quiesce(units.iter().map(|unit| Arc::clone(unit.volume())).collect())
        .await;
}

/// Aborts all commands for `unit` in all sessions of all front ends, except the commands of the nexus
/// `spared`. That nexus has already aborted its own commands, and its later commands are executed.
pub async fn abort_everybodys(server: &Server, unit: &Arc<LogicalUnit>, spared: Option<NexusId>) {
    server
        .abort(AbortOrder {
            volume: Arc::clone(unit.volume()),
            owners: Owners::All,
            spared,
        })
        .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_with_a_star_matches_what_begins_so() {
        assert!(
            NamePattern::new("iqn.1993-08.org.debian:*").matches("iqn.1993-08.ORG.debian:01:ab")
        );
        assert!(
            !NamePattern::new("iqn.1993-08.org.debian:01").matches("iqn.1993-08.org.debian:012")
        );
    }

    #[test]
    fn an_example_of_a_pattern_matches_it() {
        for (pattern, example) in [
            ("iqn.a:*", Some("iqn.a:HOST")),
            ("iqn.a:b", Some("iqn.a:b")),
            ("*", None),
        ] {
            let pattern = NamePattern::new(pattern);
            assert_eq!(pattern.example("HOST").as_deref(), example);
            assert!(
                example.is_none_or(|example| pattern.matches(example)),
                "{pattern}"
            );
        }
    }
}
