//! Reports of lost acknowledged writes, per nexus; the volume counts the losses.
//!
//! Any nexus may have written the lost data, or read them and relied on them, so a loss is reported to each:
//! its flushes and writes with FUA fail with MEDIUM ERROR, WRITE ERROR until the initiator has acknowledged
//! one of these responses. A response can be lost with its connection, or discarded with an aborted task, so
//! sending it is not enough; and of two outstanding flushes both fail. A nexus that attaches after the loss
//! gets no report; one that returns does, since its initiator continues with the writes of its lost session.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::nexus::{Nexus, NexusId, NexusName};
use crate::unit::{LogicalUnit, UnitState};

/// Losses that were reported to nexuses which have detached since.
#[derive(Default)]
pub(crate) struct Departed {
    nexuses: VecDeque<DepartedNexus>,
    /// The lowest count among entries that were dropped. Every unknown nexus may be one of them.
    forgotten: Option<u64>,
}

/// A nexus by hashes of its names, which are up to 500 bytes long. If two have the same hash, a loss may be
/// reported to one of them twice.
struct DepartedNexus {
    name: u64,
    initiator: u64,
    told: u64,
}

/// The number of entries, the latest to detach. Beyond it a loss may be reported once to a nexus that
/// attached later: a spurious error is better than a missing one.
const DEPARTED_MAX: usize = 4096;

impl LogicalUnit {
    /// The count of losses, if not all of them were reported to this nexus.
    pub(super) fn untold_losses(&self, nexus: NexusId) -> Option<u64> {
        let losses = self.volume().lost_writes();
        let is_untold = losses > 0
            && self.look(|state| {
                let nexus = state.nexuses.iter().find(|attached| attached.id == nexus);
                nexus.is_some_and(|nexus| nexus.losses_told < losses)
            });
        is_untold.then_some(losses)
    }
}

impl Nexus {
    /// The initiator has acknowledged a response that reported this count of losses
    /// ([`super::Watch::reported_losses`]).
    pub fn note_told(&self, losses: u64) {
        self.unit.note(|state| {
            if let Some(nexus) = state.nexus(self.id) {
                nexus.losses_told = nexus.losses_told.max(losses);
            }
        });
    }
}

impl UnitState {
    /// The count reported to a nexus of this name, if it was attached before; else that reported to its
    /// initiator port through another target port, since the initiator may have been redirected from there.
    pub(super) fn losses_told(&mut self, name: &NexusName) -> Option<u64> {
        let present = |is_meant: &dyn Fn(&NexusName) -> bool| {
            let meant = self.nexuses.iter().filter(|nexus| is_meant(&nexus.name));
            meant.map(|nexus| nexus.losses_told).min()
        };
        let (same, elsewhere) = (present(&|other| other == name), present(&|other| other.host == name.host));
        let known = self.departed.take(name).into_iter().chain(same).min();
        known.or_else(|| self.departed.by_initiator(name).into_iter().chain(elsewhere).min())
    }
}

impl Departed {
    pub(super) fn note(&mut self, name: &NexusName, told: u64) {
        let told = self.take(name).map_or(told, |before| before.min(told));
        if self.nexuses.len() == DEPARTED_MAX
            && let Some(DepartedNexus { told, .. }) = self.nexuses.pop_front()
        {
            self.forgotten = Some(self.forgotten.map_or(told, |lowest| lowest.min(told)));
        }
        self.nexuses.push_back(DepartedNexus { name: hash(name), initiator: hash(&name.host), told });
    }

    fn take(&mut self, name: &NexusName) -> Option<u64> {
        let name = hash(name);
        let place = self.nexuses.iter().position(|gone| gone.name == name)?;
        self.nexuses.remove(place).map(|gone| gone.told)
    }

    /// The count reported through any target port. An unknown nexus may have been dropped.
    fn by_initiator(&self, name: &NexusName) -> Option<u64> {
        let initiator = hash(&name.host);
        let gone = self.nexuses.iter().filter(|gone| gone.initiator == initiator);
        gone.map(|gone| gone.told).chain(self.forgotten).min()
    }
}

/// The same in every process, so that simulations repeat.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
