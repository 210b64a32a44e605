//! Losses of acknowledged writes, and who has been told of them.
//!
//! Any nexus may have written what could not be brought to stable storage, or read it and relied on it. Each is told: its
//! flushes and its writes with FUA fail with MEDIUM ERROR, WRITE ERROR until the initiator has acknowledged one of these
//! answers. An answer can be lost with its connection, or be discarded with a task that is aborted, so building it is not
//! enough; and of two flushes under way at once both fail. A nexus that comes later is not told; one that comes back is,
//! since its initiator continues with the writes of the session that it lost.
//!
//! Who has been told is known in memory only. An initiator that outlives the server learns by the generation of the cache
//! that it must reckon with losses (VPD page C0h), so a loss is noted for the next start before anybody is told of it: the
//! kernel reports a failed write-back once, and not to a server that starts later.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use block::DeviceError;

use crate::nexus::{Nexus, NexusId};
use crate::persistent::NexusName;
use crate::unit::{LogicalUnit, State};

/// Flushes that failed and that the device did not count by itself.
#[derive(Default)]
pub(super) struct Losses {
    uncounted: AtomicU64,
    /// So many are noted for the next start.
    noted: AtomicU64,
}

/// What nexuses that are gone had been told.
#[derive(Default)]
pub(crate) struct Departed {
    nexuses: VecDeque<Gone>,
    /// The lowest count of those that are not remembered any more. Every nexus that is not known may be one of them.
    forgotten: Option<u64>,
}

/// A nexus by hashes of its names, which are up to 500 bytes long. Where two share a hash, one may be told twice.
struct Gone {
    name: u64,
    initiator: u64,
    told: u64,
}

/// So many are remembered, those that left last. Beyond that a nexus that is new may be told of a loss from before its time,
/// once: a spurious error is better than none.
const DEPARTED_MAX: usize = 4096;

impl LogicalUnit {
    /// Brings what was acknowledged to stable storage. If writes are lost, all nexuses will be told.
    pub async fn flush(&self) -> Result<(), DeviceError> {
        let counted = self.device().losses();
        let flushed = self.device().flush().await;
        if flushed.is_err_and(DeviceError::is_loss) && self.device().losses() == counted {
            self.losses.uncounted.fetch_add(1, Ordering::AcqRel);
        }
        self.note_losses().await;
        flushed
    }

    /// To be called before anybody is told of a loss. If it cannot be noted, they are told all the same.
    pub(super) async fn note_losses(&self) {
        let losses = self.losses();
        if losses > self.losses.noted.load(Ordering::Acquire)
            && let Some(keep) = self.keep()
            && keep.note_loss().await.is_ok()
        {
            self.losses.noted.fetch_max(losses, Ordering::AcqRel);
        }
    }

    /// How often acknowledged writes were lost, or may have been.
    pub(super) fn losses(&self) -> u64 {
        self.device().losses() + self.losses.uncounted.load(Ordering::Acquire)
    }

    /// The losses so far, if this nexus has not been told of all of them.
    pub(super) fn untold_losses(&self, nexus: NexusId) -> Option<u64> {
        let losses = self.losses();
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

impl State {
    /// What a nexus of this name has been told, if it was here before; else what its initiator port has been told by
    /// another target port, since an initiator may have been sent from there.
    pub(super) fn losses_told(&mut self, name: &NexusName) -> Option<u64> {
        let present = |is_meant: &dyn Fn(&NexusName) -> bool| {
            let meant = self.nexuses.iter().filter(|nexus| is_meant(&nexus.name));
            meant.map(|nexus| nexus.losses_told).min()
        };
        let (same, elsewhere) =
            (present(&|other| other == name), present(&|other| other.initiator == name.initiator));
        let known = self.departed.take(name).into_iter().chain(same).min();
        known.or_else(|| self.departed.by_initiator(name).into_iter().chain(elsewhere).min())
    }
}

impl Departed {
    pub(super) fn note(&mut self, name: &NexusName, told: u64) {
        let told = self.take(name).map_or(told, |before| before.min(told));
        if self.nexuses.len() == DEPARTED_MAX
            && let Some(Gone { told, .. }) = self.nexuses.pop_front()
        {
            self.forgotten = Some(self.forgotten.map_or(told, |lowest| lowest.min(told)));
        }
        self.nexuses.push_back(Gone { name: hash(name), initiator: hash(&name.initiator), told });
    }

    fn take(&mut self, name: &NexusName) -> Option<u64> {
        let name = hash(name);
        let place = self.nexuses.iter().position(|gone| gone.name == name)?;
        self.nexuses.remove(place).map(|gone| gone.told)
    }

    /// By any target port. One that is not known may have been forgotten.
    fn by_initiator(&self, name: &NexusName) -> Option<u64> {
        let initiator = hash(&name.initiator);
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
