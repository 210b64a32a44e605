//! Losses of acknowledged writes, and who has been told of them.
//!
//! Any nexus may have written what could not be brought to stable storage, or read it and relied on it. Each is told once: its
//! next flush, or its next write with FUA, fails with MEDIUM ERROR, WRITE ERROR. One that comes later is not told; one that
//! comes back is, since its initiator goes on with the writes of the session that it lost.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use block::DeviceError;

use crate::nexus::NexusId;
use crate::persistent::NexusName;
use crate::unit::{LogicalUnit, State};

/// Flushes that failed and that the device did not count by itself.
#[derive(Default)]
pub(super) struct Losses {
    uncounted: AtomicU64,
}

/// What nexuses that are gone had been told.
#[derive(Default)]
pub(crate) struct Departed {
    told: VecDeque<(NexusName, u64)>,
}

/// That many nexuses that are gone are remembered, those that left last: initiators have some tens of paths, and a name is
/// up to 500 bytes long.
const DEPARTED_MAX: usize = 64;

impl LogicalUnit {
    /// Brings what was acknowledged to stable storage. If writes are lost, every nexus will be told.
    pub async fn flush(&self) -> Result<(), DeviceError> {
        let counted = self.device().losses();
        let flushed = self.device().flush().await;
        if flushed.is_err_and(DeviceError::is_loss) && self.device().losses() == counted {
            self.losses.uncounted.fetch_add(1, Ordering::AcqRel);
        }
        flushed
    }

    /// How often acknowledged writes were lost, or may have been.
    pub(super) fn losses(&self) -> u64 {
        self.device().losses() + self.losses.uncounted.load(Ordering::Acquire)
    }

    /// How a flush ends for this nexus that the device ended so.
    pub(super) fn flushed(
        &self,
        by: Option<NexusId>,
        ended: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if ended.is_err_and(|error| !error.is_loss()) {
            return ended;
        }
        let untold = self.tell_losses(by);
        match ended {
            // A device that is full is told as such, and the writes of others are lost all the same.
            Err(DeviceError::NoSpace) => ended,
            Ok(()) => untold,
            Err(_) => Err(DeviceError::WritesLost),
        }
    }

    /// WRITES LOST, if acknowledged writes were lost of which this nexus has not been told. Then it has been.
    pub(super) fn tell_losses(&self, to: Option<NexusId>) -> Result<(), DeviceError> {
        let losses = self.losses();
        match to {
            Some(nexus) if losses > 0 && self.note(|state| state.tell_losses(nexus, losses)) => {
                Err(DeviceError::WritesLost)
            }
            _ => Ok(()),
        }
    }
}

impl State {
    /// Whether this nexus hears anything new by that.
    fn tell_losses(&mut self, to: NexusId, losses: u64) -> bool {
        let Some(nexus) = self.nexus(to) else { return false };
        let is_new = nexus.losses_told < losses;
        nexus.losses_told = nexus.losses_told.max(losses);
        is_new
    }

    /// What a nexus of this name has been told, if there is one, or was one not long ago.
    pub(super) fn losses_told(&mut self, name: &NexusName) -> Option<u64> {
        let departed = self.departed.take(name);
        let here = self.nexuses.iter().filter(|nexus| nexus.name == *name).map(|nexus| nexus.losses_told);
        here.chain(departed).min()
    }
}

impl Departed {
    pub(super) fn note(&mut self, name: NexusName, told: u64) {
        let told = self.take(&name).map_or(told, |before| before.min(told));
        if self.told.len() == DEPARTED_MAX {
            self.told.pop_front();
        }
        self.told.push_back((name, told));
    }

    fn take(&mut self, name: &NexusName) -> Option<u64> {
        let place = self.told.iter().position(|(departed, _)| departed == name)?;
        self.told.remove(place).map(|(_, told)| told)
    }
}
