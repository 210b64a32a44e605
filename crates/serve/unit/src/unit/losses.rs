//! Which nexuses have been told of the losses of acknowledged writes that the volume counts.
//!
//! Any nexus may have written what could not be brought to stable storage, or read it and relied on it. Each is told: its
//! flushes and its writes with FUA fail with MEDIUM ERROR, WRITE ERROR until the initiator has acknowledged one of these
//! answers. An answer can be lost with its connection, or be discarded with a task that is aborted, so building it is not
//! enough; and of two flushes under way at once both fail. A nexus that comes later is not told; one that comes back is,
//! since its initiator continues with the writes of the session that it lost.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::nexus::{Nexus, NexusId, NexusName};
use crate::unit::{LogicalUnit, UnitState};

/// What nexuses that are gone had been told.
#[derive(Default)]
pub(crate) struct Departed {
    nexuses: VecDeque<DepartedNexus>,
    /// The lowest count of those that are not remembered any more. Every nexus that is not known may be one of them.
    forgotten: Option<u64>,
}

/// A nexus by hashes of its names, which are up to 500 bytes long. Where two share a hash, one may be told twice.
struct DepartedNexus {
    name: u64,
    initiator: u64,
    told: u64,
}

/// So many are remembered, those that left last. Beyond that a nexus that is new may be told of a loss from before its time,
/// once: a spurious error is better than none.
const DEPARTED_MAX: usize = 4096;

impl LogicalUnit {
    /// The losses so far, if this nexus has not been told of all of them.
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
    /// The initiator has acknowledged an answer that reported so many losses ([`super::Watch::reported_losses`]).
    pub fn note_told(&self, losses: u64) {
        self.unit.note(|state| {
            if let Some(nexus) = state.nexus(self.id) {
                nexus.losses_told = nexus.losses_told.max(losses);
            }
        });
    }
}

impl UnitState {
    /// What a nexus of this name has been told, if it was here before; else what its initiator port has been told by
    /// another target port, since an initiator may have been sent from there.
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

    /// By any target port. One that is not known may have been forgotten.
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
