//! Lost acknowledged writes: counted here, reported by each front end to each of its initiators.
//!
//! A device counts the losses that it detects ([`block::BlockDevice::losses`]); a failed flush that the
//! device did not count is counted here. To which initiators a loss was reported is in memory only. An
//! initiator that survives the server detects possible losses by the cache generation, so a loss is recorded
//! for the next start before it is reported: the kernel reports a failed write-back once, and not to a server
//! that starts later.

use std::sync::atomic::{AtomicU64, Ordering};

use block::DeviceError;

use crate::Volume;

#[derive(Default)]
pub(crate) struct LostWrites {
    /// Failed flushes that the device did not count.
    uncounted: AtomicU64,
    /// The number of losses recorded for the next start.
    recorded: AtomicU64,
}

impl Volume {
    /// Flushes acknowledged writes to stable storage.
    ///
    /// # Errors
    /// Writes may be lost if the error [is a loss](DeviceError::is_loss), and [`Volume::lost_writes`] has
    /// counted it.
    pub async fn flush(&self) -> Result<(), DeviceError> {
        let counted = self.device.losses();
        let flushed = self.device.flush().await;
        if flushed.is_err_and(DeviceError::is_loss) && self.device.losses() == counted {
            self.lost_writes.uncounted.fetch_add(1, Ordering::AcqRel);
        }
        self.record_lost_writes().await;
        flushed
    }

    /// To be called before a loss is reported. If it cannot be recorded, it is reported all the same.
    pub async fn record_lost_writes(&self) {
        let losses = self.lost_writes();
        if losses > self.lost_writes.recorded.load(Ordering::Acquire)
            && let Some(state) = &self.persistent_state
            && state.record_loss().await.is_ok()
        {
            self.lost_writes.recorded.fetch_max(losses, Ordering::AcqRel);
        }
    }

    /// How often acknowledged writes were lost, or may have been.
    pub fn lost_writes(&self) -> u64 {
        self.device.losses() + self.lost_writes.uncounted.load(Ordering::Acquire)
    }
}
