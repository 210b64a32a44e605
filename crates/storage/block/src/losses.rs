//! The acknowledged writes that a device has lost, as far as it knows.
//!
//! ```text
//!   nothing lost ── the server was renewed, or reset ──► in doubt ── asked: the same cache ──► as before
//!                                                            └────── asked: another one ──► one loss more
//! ```
//!
//! A reader that chooses among copies compares the whole value with the one at which a copy was in sync: a device in doubt is
//! equal to none.
//!
//! An answer that was asked for before a doubt was raised describes the cache before that doubt. It resolves nothing: the question
//! starts with [`LossCounter::doubts`], and [`LossCounter::resolve`] compares.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often acknowledged writes were lost, or may have been, and whether that count is certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses(u64);

/// The highest bit.
const DOUBT: u64 = 1 << 63;
/// The lowest bits are the count, whose limit no device reaches. Between them a [`LossCounter`] numbers its doubts.
const COUNT_BITS: u32 = 40;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

impl Losses {
    /// None: of a device without a cache that it could lose.
    pub const NONE: Losses = Losses(0);

    /// So many, and no doubt.
    pub fn counted(count: u64) -> Losses {
        debug_assert!(count <= COUNT);
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
        debug_assert!(self.count() + other.count() <= COUNT);
        Losses(((self.0 | other.0) & DOUBT) | (self.count() + other.count()))
    }
}

/// The losses of a device, which its own thread counts and all threads read.
#[derive(Clone, Debug, Default)]
pub struct LossCounter(Arc<AtomicU64>);

impl LossCounter {
    /// Now.
    pub fn get(&self) -> Losses {
        Losses(self.0.load(Ordering::Acquire) & (DOUBT | COUNT))
    }

    /// One more.
    pub fn count(&self) {
        let before = self.0.fetch_add(1, Ordering::AcqRel);
        debug_assert!(before & COUNT < COUNT);
    }

    /// There may be one more.
    pub fn doubt(&self) {
        let doubted = |now: u64| {
            let number = (now & !DOUBT).wrapping_add(1 << COUNT_BITS);
            Some(number | DOUBT)
        };
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, doubted); // never refused
    }

    /// The doubts so far. Read them before the device is asked what it has lost.
    pub fn doubts(&self) -> Doubts {
        Doubts(self.0.load(Ordering::Acquire) & !(DOUBT | COUNT))
    }

    /// The device was asked after these doubts, and has answered. A loss that the answer has revealed is counted before this call, so
    /// that no reader finds the old count without doubt. False, and without effect, if a doubt was raised since the question.
    pub fn resolve(&self, asked_after: Doubts) -> bool {
        let resolved = |now: u64| (now & !(DOUBT | COUNT) == asked_after.0).then_some(now & !DOUBT);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, resolved).is_ok()
    }
}

/// The doubts of a device up to a moment: an answer resolves those only that its question came after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Doubts(u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_in_doubt_equals_no_count() {
        let counter = LossCounter::default();
        let in_sync = counter.get();
        counter.doubt();
        assert!(counter.get() != in_sync && counter.get().is_in_doubt() && counter.get().count() == 0);
        assert!(counter.resolve(counter.doubts()));
        assert_eq!(counter.get(), in_sync, "nothing was lost");
        counter.doubt();
        let asked_after = counter.doubts();
        counter.count();
        assert!(counter.resolve(asked_after));
        assert_eq!(counter.get(), Losses::counted(1));
    }

    #[test]
    fn an_answer_older_than_a_doubt_does_not_resolve_it() {
        let counter = LossCounter::default();
        for was_in_doubt in [false, true] {
            if was_in_doubt {
                counter.doubt();
            }
            let asked_after = counter.doubts();
            counter.doubt();
            assert!(!counter.resolve(asked_after) && counter.get().is_in_doubt());
            assert!(counter.resolve(counter.doubts()) && !counter.get().is_in_doubt());
        }
        assert_eq!(counter.get(), Losses::NONE, "the number of a doubt is no loss");
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
