//! The persistent state of a volume: a small file with reservations that is replaced as a whole, and the
//! mark of the last loss of writes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block::Pending;
use volume::{LossMark, PersistentState};

use crate::universe;

/// Both outlive the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimKeep {
    file: Arc<Mutex<Option<Vec<u8>>>>,
    /// The mark of the last loss of writes that was recorded.
    loss: Arc<AtomicU64>,
    /// So many marks were drawn.
    marks: Arc<AtomicU64>,
    /// What is to be stored, and by whom.
    coming: Arc<Mutex<BTreeMap<u64, Coming>>>,
    next: Arc<AtomicU64>,
}

/// What is to be stored.
#[derive(Clone, Debug)]
enum Coming {
    File(Vec<u8>),
    Loss(u64),
}

impl SimKeep {
    /// Has it stored after so long, if the process that wants it lives until then.
    fn store_after(&self, time: u64, what: Coming) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.coming().insert(number, what);
        let keep = self.clone();
        universe::after(time, move || {
            let what = keep.coming().remove(&number);
            what.into_iter().for_each(|what| keep.store(what));
        });
    }

    fn store(&self, what: Coming) {
        match what {
            Coming::File(bytes) => *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes),
            // In the order in which they were drawn, as a folder of files stores them.
            Coming::Loss(mark) => drop(self.loss.fetch_max(mark, Ordering::Relaxed)),
        }
    }

    /// The process is dead: what it was about to store is stored now, or never.
    pub(crate) fn kill(&self) {
        for what in std::mem::take(&mut *self.coming()).into_values() {
            if universe::draw(|random| random.once_in(2)) {
                self.store(what);
            }
        }
    }

    fn coming(&self) -> MutexGuard<'_, BTreeMap<u64, Coming>> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long it takes until the next thing is stored, and then until that is told.
fn times() -> [u64; 2] {
    universe::draw(|random| {
        [random.mostly_small(10_000, 50_000_000), random.mostly_small(10_000, 50_000_000)]
    })
}

impl PersistentState for SimKeep {
    fn save<'a>(&'a self, bytes: Vec<u8>) -> Pending<'a, ()> {
        Box::pin(async move {
            // It is replaced at some moment between the beginning and the end, whether anybody waits for that
            // or not.
            let times = times();
            self.store_after(times[0], Coming::File(bytes));
            reactor::sleep(std::time::Duration::from_nanos(times[0] + times[1])).await;
            Ok(())
        })
    }

    fn load(&self) -> Option<Vec<u8>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn loss_mark(&self) -> LossMark {
        u128::from(self.loss.load(Ordering::Relaxed)).to_be_bytes()
    }

    fn new_loss_mark(&self) -> LossMark {
        u128::from(self.marks.fetch_add(1, Ordering::Relaxed) + 1).to_be_bytes()
    }

    fn record_loss(&self, mark: LossMark) -> Pending<'_, ()> {
        Box::pin(async move {
            let times = times();
            // Marks are numbers here.
            self.store_after(times[0], Coming::Loss(u128::from_be_bytes(mark) as u64));
            reactor::sleep(std::time::Duration::from_nanos(times[0] + times[1])).await;
            Ok(())
        })
    }
}
