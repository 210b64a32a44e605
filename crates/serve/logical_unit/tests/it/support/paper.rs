use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use block::{DeviceError, Pending};
use volume::{LossMark, PersistentState};

use super::disk::until;

/// Records a logical unit's persistent state.
#[derive(Default)]
pub struct Paper {
    text: Mutex<Option<Vec<u8>>>,
    full: Mutex<bool>,
    wet: AtomicBool,
    losses: AtomicU32,
    mark: Mutex<LossMark>,
}

impl Paper {
    pub fn with(text: Vec<u8>) -> Paper {
        Paper {
            text: Mutex::new(Some(text)),
            ..Paper::default()
        }
    }

    pub fn text(&self) -> Option<Vec<u8>> {
        self.text
            .lock()
            .expect("no test panics while it writes")
            .clone()
    }

    /// Makes later writers wait for [`Paper::dry`], although their data can be read immediately.
    pub fn wet(&self) {
        self.wet.store(true, Ordering::Relaxed);
    }

    /// Ends the wait of all writers.
    pub fn dry(&self) {
        self.wet.store(false, Ordering::Relaxed);
    }

    /// The number of recorded losses of writes.
    pub fn losses(&self) -> u32 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Makes later writes fail.
    pub fn fill(&self) {
        *self.full.lock().expect("no test panics while it writes") = true;
    }
}

impl PersistentState for Paper {
    fn save<'a>(&'a self, bytes: Vec<u8>) -> Pending<'a, ()> {
        Box::pin(async move {
            if *self.full.lock().expect("no test panics while it writes") {
                return Err(DeviceError::NoSpace);
            }
            *self.text.lock().expect("no test panics while it writes") = Some(bytes);
            until(|| !self.wet.load(Ordering::Relaxed)).await
        })
    }

    fn load(&self) -> Option<Vec<u8>> {
        self.text()
    }

    fn loss_mark(&self) -> LossMark {
        *self.mark.lock().expect("no test panics while it writes")
    }

    fn new_loss_mark(&self) -> LossMark {
        (u128::from(self.losses.load(Ordering::Relaxed)) + 1).to_be_bytes()
    }

    fn record_loss(&self, mark: LossMark) -> Pending<'_, ()> {
        Box::pin(async move {
            if *self.full.lock().expect("no test panics while it writes") {
                return Err(DeviceError::NoSpace);
            }
            *self.mark.lock().expect("no test panics while it writes") = mark;
            self.losses.fetch_add(1, Ordering::Relaxed);
            until(|| !self.wet.load(Ordering::Relaxed)).await
        })
    }
}
