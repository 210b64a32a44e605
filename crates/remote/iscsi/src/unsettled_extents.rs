//! Blocks that are not used, because an earlier write of them may still be carried out.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use block::{Blocks, Extent, Lba, Lock};

/// Extents of writes that failed before they had ended for certain, each with the session that it was sent
/// in.
#[derive(Debug, Default)]
pub(crate) struct UnsettledExtents {
    /// Nearly always there are none, and no request looks further.
    is_any: AtomicBool,
    extents: Lock<Extents>,
}

#[derive(Debug, Default)]
struct Extents {
    present: Vec<Unsettled>,
    added: u64,
}

#[derive(Debug)]
struct Unsettled {
    number: u64,
    epoch: u64,
    extent: Extent,
}

/// What may become of such writes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// They have ended.
    Ended,
    /// The session still has them, and aborts them. Should it be lost before that, they are unsettled.
    InSession,
    /// They may be carried out at any time.
    Unsettled,
}

/// From so many on all blocks are barred: a session has fewer commands under way.
const EXTENTS_MAX: usize = 4096;

impl UnsettledExtents {
    /// A write of these blocks, sent in the session `epoch`, may still be carried out. Whether that is news.
    pub(crate) fn add(&self, epoch: u64, extent: Extent) -> bool {
        let mut extents = self.extents.lock();
        let all = Extent { lba: Lba(0), blocks: Blocks(u64::MAX) };
        let extent = if extents.present.len() < EXTENTS_MAX { extent } else { all };
        let number = extents.added;
        let before = extents.present.iter_mut().find(|old| (old.epoch, old.extent) == (epoch, extent));
        let is_news = before.is_none();
        match before {
            Some(old) => old.number = number,
            None => extents.present.push(Unsettled { number, epoch, extent }),
        }
        extents.added += 1;
        self.is_any.store(true, Relaxed);
        is_news
    }

    /// A mark for [`UnsettledExtents::end_before`]: those that are there are before it.
    pub(crate) fn mark(&self) -> u64 {
        self.extents.lock().added
    }

    /// Those from before `mark` have ended.
    pub(crate) fn end_before(&self, mark: u64) {
        let mut extents = self.extents.lock();
        extents.present.retain(|unsettled| unsettled.number >= mark);
        self.is_any.store(!extents.present.is_empty(), Relaxed);
    }

    /// Whether any of these blocks has a write with this outcome.
    pub(crate) fn has(
        &self,
        extent: Extent,
        meant: WriteOutcome,
        outcome: impl Fn(u64) -> WriteOutcome,
    ) -> bool {
        self.is_any.load(Relaxed) && self.look(extent, meant, outcome)
    }

    #[cold]
    fn look(&self, extent: Extent, meant: WriteOutcome, outcome: impl Fn(u64) -> WriteOutcome) -> bool {
        let mut extents = self.extents.lock();
        extents.present.retain(|unsettled| outcome(unsettled.epoch) != WriteOutcome::Ended);
        self.is_any.store(!extents.present.is_empty(), Relaxed);
        extents
            .present
            .iter()
            .any(|unsettled| unsettled.extent.overlaps(extent) && outcome(unsettled.epoch) == meant)
    }
}

#[cfg(test)]
mod tests {
    use super::WriteOutcome::{Ended, InSession, Unsettled};
    use super::*;

    #[test]
    fn blocks_are_barred_until_their_session_is_settled() {
        let unsettled = UnsettledExtents::default();
        unsettled.add(3, Extent::new(10, 5));
        unsettled.add(4, Extent::new(100, 1));
        let has = |extent| unsettled.has(extent, Unsettled, |_| Unsettled);
        assert!(has(Extent::new(14, 1)) && !has(Extent::new(15, 1)));
        let one = |epoch| if epoch == 3 { Ended } else { Unsettled };
        assert!(!unsettled.has(Extent::new(14, 1), Unsettled, one));
        assert!(has(Extent::new(100, 1)) && !has(Extent::new(14, 1)));
    }

    #[test]
    fn blocks_of_a_write_that_its_session_still_has_are_barred_once_that_is_lost() {
        let unsettled = UnsettledExtents::default();
        unsettled.add(3, Extent::new(10, 5));
        let (early, block) = (|_| InSession, Extent::new(14, 1));
        assert!(!unsettled.has(block, Unsettled, early) && unsettled.has(block, InSession, early));
        assert!(unsettled.has(block, Unsettled, |_| Unsettled));
    }

    #[test]
    fn those_that_have_ended_bar_nothing_and_later_ones_do() {
        let unsettled = UnsettledExtents::default();
        unsettled.add(3, Extent::new(10, 5));
        let mark = unsettled.mark();
        unsettled.add(3, Extent::new(20, 5));
        unsettled.end_before(mark);
        let has = |extent| unsettled.has(extent, Unsettled, |_| Unsettled);
        assert!(!has(Extent::new(10, 5)) && has(Extent::new(20, 5)));
        let mark = unsettled.mark();
        unsettled.add(3, Extent::new(20, 5)); // once more
        unsettled.end_before(mark);
        assert!(has(Extent::new(20, 5)));
    }

    #[test]
    fn too_many_bar_everything() {
        let unsettled = UnsettledExtents::default();
        for lba in 0..10_000 {
            unsettled.add(0, Extent::new(lba, 1));
        }
        assert!(unsettled.has(Extent::new(1 << 40, 1), Unsettled, |_| Unsettled));
        assert!(unsettled.extents.lock().present.len() <= EXTENTS_MAX + 1);
    }
}
