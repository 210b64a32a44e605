//! The known losses of a device's acknowledged writes.
//!
//! ```text
//!   nothing lost ── the server was renewed, or reset ──► in doubt ── asked: the same cache ──► as before
//!                                                            └────── asked: another one ──► one loss more
//! ```
//!
//! A reader that chooses among copies compares the whole value with the one at which a copy was in sync: a
//! device in doubt equals no known value.
//!
//! The reply to a query that was sent before a doubt was raised describes the earlier cache, and does not
//! resolve the doubt. So a query starts with [`LossCounter::doubts`], which [`LossCounter::resolve`]
//! compares.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of times that acknowledged writes were or may have been lost, and whether the count is certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses(u64);

/// The highest bit marks a doubt.
const DOUBT: u64 = 1 << 63;
/// The lowest bits are the count, whose limit no device reaches. Between them a [`LossCounter`] numbers its doubts.
const COUNT_BITS: u32 = 40;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

impl Losses {
    /// No losses: for a device without a volatile cache.
    pub const NONE: Losses = Losses(0);

    /// This many losses, without doubt.
    pub fn counted(count: u64) -> Losses {
        debug_assert!(count <= COUNT);
        Losses(count)
    }

    /// Number of known losses.
    pub fn count(self) -> u64 {
        self.0 & !DOUBT
    }

    /// Whether there may be one more: [`BlockDevice::resolve_losses`](crate::BlockDevice::resolve_losses)
    /// determines that.
    pub fn is_in_doubt(self) -> bool {
        self.0 & DOUBT != 0
    }

    /// The same number, with the doubt of one more.
    #[must_use]
    pub fn in_doubt(self) -> Losses {
        Losses(self.0 | DOUBT)
    }

    /// The losses after `before`, including the doubt.
    #[must_use]
    pub fn since(self, before: Losses) -> Losses {
        Losses((self.0 & DOUBT) | self.count().saturating_sub(before.count()))
    }

    /// The combined losses of a device over one or more others.
    #[must_use]
    pub fn and(self, other: Losses) -> Losses {
        debug_assert!(self.count() + other.count() <= COUNT);
        Losses(((self.0 | other.0) & DOUBT) | (self.count() + other.count()))
    }
}

/// The losses of a device, counted by its own thread and read by all threads.
#[derive(Clone, Debug, Default)]
pub struct LossCounter(Arc<AtomicU64>);

impl LossCounter {
    /// The current losses.
    pub fn get(&self) -> Losses {
        Losses(self.0.load(Ordering::Acquire) & (DOUBT | COUNT))
    }

    /// Counts one loss.
    pub fn count(&self) {
        let before = self.0.fetch_add(1, Ordering::AcqRel);
        debug_assert!(before & COUNT < COUNT);
    }

    /// Raises a doubt: there may be one more loss.
    pub fn doubt(&self) {
        let doubted = |now: u64| {
            let number = (now & !DOUBT).wrapping_add(1 << COUNT_BITS);
            Some(number | DOUBT)
        };
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, doubted); // never refused
    }

    /// The doubts so far. Read them before you query the device's losses.
    pub fn doubts(&self) -> Doubts {
        Doubts(self.0.load(Ordering::Acquire) & !(DOUBT | COUNT))
    }

    /// Resolves these doubts after the reply to a query. Count a loss revealed by the reply before this call,
    /// so that no reader sees the old count without a doubt. Returns false, without effect, if a doubt was
    /// raised since the query.
    pub fn resolve(&self, asked_after: Doubts) -> bool {
        let resolved = |now: u64| (now & !(DOUBT | COUNT) == asked_after.0).then_some(now & !DOUBT);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, resolved).is_ok()
    }
}

/// The doubts of a device up to a moment: a reply resolves only doubts raised before its query.
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
