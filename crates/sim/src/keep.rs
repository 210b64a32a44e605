//! Where a logical unit keeps its reservations, a small file that is replaced as a whole, and how often writes were lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use block::Pending;
use scsi::Keep;

use crate::universe;

/// Both outlive the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimKeep {
    file: Arc<Mutex<Option<Vec<u8>>>>,
    losses: Arc<AtomicU64>,
}

impl SimKeep {
    /// How many losses of writes were noted.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }
}

/// How long it takes until the next thing is stored, and then until that is told.
fn times() -> [u64; 2] {
    universe::draw(|random| [random.delay(10_000, 50_000_000), random.delay(10_000, 50_000_000)])
}

impl Keep for SimKeep {
    fn save<'a>(&'a self, bytes: Vec<u8>) -> Pending<'a, ()> {
        Box::pin(async move {
            // It is replaced at some moment between the beginning and the end, whether anybody waits for that or not.
            let times = times();
            let place = Arc::clone(&self.file);
            let replace = move || *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes);
            universe::after(times[0], replace);
            reactor::sleep(std::time::Duration::from_nanos(times[0] + times[1])).await;
            Ok(())
        })
    }

    fn load(&self) -> Option<Vec<u8>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note_loss(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let times = times();
            let losses = Arc::clone(&self.losses);
            universe::after(times[0], move || {
                losses.fetch_add(1, Ordering::Relaxed);
            });
            reactor::sleep(std::time::Duration::from_nanos(times[0] + times[1])).await;
            Ok(())
        })
    }
}
