//! Lost acknowledged writes: counted here, reported by each front end to each of its initiators.
//!
//! A device counts its losses ([`block::BlockDevice::losses`]); a failed flush that it does not count is counted here. To which initiators a loss was reported is in memory only, and only those
//! that were logged in are known. An initiator that used an earlier server detects possible losses by the cache
//! generation, which contains the mark of the last loss: it changes as soon as a loss was counted, since that
//! initiator may come back after it. A loss is recorded for the next start before it is reported: the kernel
//! reports a failed write-back once, and not to a server that starts later.

use std::sync::atomic::{AtomicU64, Ordering};

use block::{BlockDevice, DeviceError, Extent, Lock};

use crate::{LossMark, Volume};

/// What a volatile cache was when it lost acknowledged writes last: a host that finds another one than before has to expect that its own
/// are among them, and one that finds the same has lost nothing, however often the server was restarted.
pub type CacheGeneration = [u8; 16];

#[derive(Default)]
pub(crate) struct LostWrites {
    /// Failed flushes that the device did not count.
    uncounted: AtomicU64,
    /// The number of losses recorded for the next start.
    recorded: AtomicU64,
    /// The number of losses that the mark stands for, and the mark.
    marked: Lock<(u64, LossMark)>,
}

impl LostWrites {
    /// None yet, and this is the mark of those before.
    pub(crate) fn since(mark: LossMark) -> LostWrites {
        LostWrites { marked: Lock::new((0, mark)), ..LostWrites::default() }
    }
}

impl Volume {
    /// Flushes acknowledged writes to stable storage.
    ///
    /// # Errors
    /// Writes may be lost if the error [is a loss](DeviceError::is_loss), and [`Volume::lost_writes`] has
    /// counted it.
    pub async fn flush(&self) -> Result<(), DeviceError> {
        let counted = self.device.losses().count();
        let flushed = self.device.flush().await;
        if flushed.is_err_and(DeviceError::is_loss) && self.device.losses().count() == counted {
            self.lost_writes.uncounted.fetch_add(1, Ordering::AcqRel);
        }
        self.record_lost_writes().await;
        flushed
    }

    /// The volume is closed without a flush that succeeded: what it acknowledged since the last one counts as lost, since a later
    /// failure to write it back may have no witness. The loss is recorded for the next start.
    pub async fn abandon_unflushed(&self) {
        self.lost_writes.uncounted.fetch_add(1, Ordering::AcqRel);
        self.record_lost_writes().await;
    }

    /// To be called before a loss is reported. If it cannot be recorded, it is reported all the same.
    pub async fn record_lost_writes(&self) {
        let is_recorded = |losses| losses <= self.lost_writes.recorded.load(Ordering::Acquire);
        let Some(state) = self.persistent_state.as_ref().filter(|_| !is_recorded(self.lost_writes())) else {
            return;
        };
        // No mark is stored behind a later one.
        let _order = self.save_locks.exclude(Extent::new(1, 1)).await;
        let losses = self.lost_writes();
        if !is_recorded(losses) && state.record_loss(self.loss_mark()).await.is_ok() {
            self.lost_writes.recorded.fetch_max(losses, Ordering::AcqRel);
        }
    }

    /// The mark of all losses up to now.
    pub fn loss_mark(&self) -> LossMark {
        let losses = self.lost_writes();
        let mut marked = self.lost_writes.marked.lock();
        if losses > marked.0 {
            let unsaved = || u128::from(losses).to_be_bytes();
            let mark = self.persistent_state.as_ref().map_or_else(unsaved, |state| state.new_loss_mark());
            *marked = (losses, mark);
        }
        marked.1
    }

    /// The generation of the cache behind this volume: that of its start, and the mark of the losses since. `None` if nobody has given
    /// one. All protocols derive from it what they report, so that no host takes a restart for a loss.
    pub fn cache_generation(&self) -> Option<CacheGeneration> {
        let mut generation = self.cache_generation?;
        generation.iter_mut().zip(self.loss_mark()).for_each(|(byte, mark)| *byte ^= mark);
        Some(generation)
    }

    /// How often acknowledged writes were lost, or may have been.
    pub fn lost_writes(&self) -> u64 {
        self.device.losses().count() + self.lost_writes.uncounted.load(Ordering::Acquire)
    }
}
