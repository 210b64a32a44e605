//! The known losses of a device's acknowledged writes.
//!
//! ```text
//!   no doubt ── the server restarted, or was reset ──► in doubt ── query: same cache ────► no loss
//!                                                         └──── query: another cache ──► one more loss
//! ```
//!
//! A reader that chooses among copies compares the whole value with the value at which a copy was in sync.
//! The value of a device in doubt does not equal any earlier certain value.
//!
//! If a query was sent before a doubt was raised, its reply may describe the earlier cache, and must not
//! resolve the doubt. So a query starts with a call of [`LossCounter::doubts`], and [`LossCounter::resolve`]
//! compares the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of times that acknowledged writes were or may have been lost, and whether the count is certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses(u64);

/// The highest bit marks a doubt.
const DOUBT: u64 = 1 << 63;
/// The lowest bits are the count; no device reaches its limit. In the bits between the count and `DOUBT`, a
/// [`LossCounter`] numbers its doubts.
const COUNT_BITS: u32 = 40;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

impl Losses {
    /// No losses: for a device without a volatile cache.
    pub const NONE: Losses = Losses(0);

    /// Returns this number of losses, without a doubt.
    pub fn counted(count: u64) -> Losses {
        debug_assert!(count <= COUNT);
        Losses(count)
    }

    /// Returns the number of known losses.
    pub fn count(self) -> u64 {
        self.0 & !DOUBT
    }

    /// Returns whether there may be one more loss.
    /// [`BlockDevice::resolve_losses`](crate::BlockDevice::resolve_losses) determines this.
    pub fn is_in_doubt(self) -> bool {
        self.0 & DOUBT != 0
    }

    /// Returns the same number of losses, in doubt: there may be one more.
    #[must_use]
    pub fn in_doubt(self) -> Losses {
        Losses(self.0 | DOUBT)
    }

    /// Returns the losses after `before`, including the doubt.
    #[must_use]
    pub fn since(self, before: Losses) -> Losses {
        Losses((self.0 & DOUBT) | self.count().saturating_sub(before.count()))
    }

    /// Returns the combined losses of two devices, for a device that uses both.
    #[must_use]
    pub fn and(self, other: Losses) -> Losses {
        debug_assert!(self.count() + other.count() <= COUNT);
        Losses(((self.0 | other.0) & DOUBT) | (self.count() + other.count()))
    }
}

/// The losses of a device. The device's own thread counts them, and all threads read them.
#[derive(Clone, Debug, Default)]
pub struct LossCounter(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// The losses, the doubt, and the number of doubts.
    losses: AtomicU64,
    /// The number of losses that the device's user has recorded.
    recorded: AtomicU64,
}

impl LossCounter {
    /// Returns the current losses.
    pub fn get(&self) -> Losses {
        Losses(self.0.losses.load(Ordering::Acquire) & (DOUBT | COUNT))
    }

    /// Counts one loss.
    pub fn count(&self) {
        let before = self.0.losses.fetch_add(1, Ordering::AcqRel);
        debug_assert!(before & COUNT < COUNT);
    }

    /// Raises a doubt: there may be one more loss.
    pub fn doubt(&self) {
        let doubted = |now: u64| {
            let number = (now & !DOUBT).wrapping_add(1 << COUNT_BITS);
            Some(number | DOUBT)
        };
        let _ = self
            .0
            .losses
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, doubted); // never fails
    }

    /// Returns the doubts raised so far. Call this before querying the device.
    pub fn doubts(&self) -> Doubts {
        Doubts(self.0.losses.load(Ordering::Acquire) & !(DOUBT | COUNT))
    }

    /// Resolves these doubts after the reply to a query. If the reply reveals a loss, count it before this
    /// call, so that no reader sees the old count without a doubt. If a doubt was raised after the query
    /// started, does nothing and returns false.
    pub fn resolve(&self, asked_after: Doubts) -> bool {
        let resolved = |now: u64| (now & !(DOUBT | COUNT) == asked_after.0).then_some(now & !DOUBT);
        self.0
            .losses
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, resolved)
            .is_ok()
    }

    /// Records that the user has recorded this many losses, as
    /// [`BlockDevice::losses_recorded`](crate::BlockDevice::losses_recorded) reports it.
    pub fn recorded(&self, count: u64) {
        self.0.recorded.fetch_max(count, Ordering::AcqRel);
    }

    /// Returns whether the user has recorded all losses so far.
    pub fn are_recorded(&self) -> bool {
        self.0.recorded.load(Ordering::Acquire) >= self.get().count()
    }
}

/// The doubts raised about a device up to a point in time. The reply to a query resolves only doubts that
/// were raised before the query.
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
        assert!(
            counter.get() != in_sync && counter.get().is_in_doubt() && counter.get().count() == 0
        );
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
        assert_eq!(
            counter.get(),
            Losses::NONE,
            "the number of a doubt is no loss"
        );
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
