//! The acknowledged writes that a device has lost, as far as it knows.
//!
//! ```text
//!   nothing lost ── the server was renewed, or reset ──► in doubt ── asked: the same cache ──► as before
//!                                                            └────── asked: another one ──► one loss more
//! ```
//!
//! A reader that chooses among copies compares the whole value with the one at which a copy was in sync: a device in doubt is
//! equal to none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often acknowledged writes were lost, or may have been, and whether that count is certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses(u64);

/// The rest is the count, which no device reaches.
const DOUBT: u64 = 1 << 63;

impl Losses {
    /// None: of a device without a cache that it could lose.
    pub const NONE: Losses = Losses(0);

    /// So many, and no doubt.
    pub fn counted(count: u64) -> Losses {
        debug_assert!(count < DOUBT);
        Losses(count)
    }

    /// How many are known.
    pub fn count(self) -> u64 {
        self.0 & !DOUBT
    }

    /// Whether there may be one more: [`BlockDevice::resolve_losses`](crate::BlockDevice::resolve_losses) finds out.
    pub fn is_in_doubt(self) -> bool {
        self.0 & DOUBT != 0
    }

    /// As many, and there may be one more.
    #[must_use]
    pub fn in_doubt(self) -> Losses {
        Losses(self.0 | DOUBT)
    }

    /// Those after `before`, with the doubt.
    #[must_use]
    pub fn since(self, before: Losses) -> Losses {
        Losses((self.0 & DOUBT) | self.count().saturating_sub(before.count()))
    }

    /// Those of a device over another, or over several.
    #[must_use]
    pub fn and(self, other: Losses) -> Losses {
        Losses(((self.0 | other.0) & DOUBT) | (self.count() + other.count()))
    }
}

/// The losses of a device, which its own thread counts and all threads read.
#[derive(Clone, Debug, Default)]
pub struct LossCounter(Arc<AtomicU64>);

impl LossCounter {
    /// Now.
    pub fn get(&self) -> Losses {
        Losses(self.0.load(Ordering::Acquire))
    }

    /// One more.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// There may be one more.
    pub fn doubt(&self) {
        self.0.fetch_or(DOUBT, Ordering::AcqRel);
    }

    /// The device was asked. A loss that this has revealed is counted before, so that no reader finds the old count without doubt.
    pub fn resolve(&self) {
        self.0.fetch_and(!DOUBT, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_in_doubt_equals_no_count() {
        let counter = LossCounter::default();
        let in_sync = counter.get();
        counter.doubt();
        assert!(counter.get() != in_sync && counter.get().is_in_doubt() && counter.get().count() == 0);
        counter.resolve();
        assert_eq!(counter.get(), in_sync, "nothing was lost");
        counter.doubt();
        counter.count();
        counter.resolve();
        assert_eq!(counter.get(), Losses::counted(1));
    }

    #[test]
    fn one_part_in_doubt_puts_the_whole_in_doubt() {
        let counter = LossCounter::default();
        counter.count();
        counter.doubt();
        let whole = Losses::counted(2).and(counter.get());
        assert!(whole.count() == 3 && whole.is_in_doubt());
        assert!(!Losses::counted(2).and(Losses::NONE).is_in_doubt());
    }
}
