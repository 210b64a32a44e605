//! Blocks that are not used, because an earlier write of them may still be carried out.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use block::{Blocks, Extent, Lba, Lock};

/// Extents of writes that failed before they had ended for certain, each with the session that it was sent
/// in.
#[derive(Debug, Default)]
pub(crate) struct UnsettledExtents {
    /// Nearly always there are none, and no request looks further.
    is_any: AtomicBool,
    extents: Lock<Vec<(u64, Extent)>>,
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
        let unsettled = (epoch, if extents.len() < EXTENTS_MAX { extent } else { all });
        let is_news = !extents.contains(&unsettled);
        if is_news {
            extents.push(unsettled);
        }
        self.is_any.store(true, Relaxed);
        is_news
    }

    /// Whether any of these blocks is barred; not by sessions that are settled meanwhile.
    pub(crate) fn has(&self, extent: Extent, outcome: impl Fn(u64) -> WriteOutcome) -> bool {
        self.is_any.load(Relaxed) && self.look(extent, outcome)
    }

    #[cold]
    fn look(&self, extent: Extent, outcome: impl Fn(u64) -> WriteOutcome) -> bool {
        let mut extents = self.extents.lock();
        extents.retain(|(epoch, _)| outcome(*epoch) != WriteOutcome::Ended);
        self.is_any.store(!extents.is_empty(), Relaxed);
        extents.iter().any(|(epoch, unsettled)| {
            unsettled.overlaps(extent) && outcome(*epoch) == WriteOutcome::Unsettled
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_barred_until_their_session_is_settled() {
        let unsettled = UnsettledExtents::default();
        unsettled.add(3, Extent::new(10, 5));
        unsettled.add(4, Extent::new(100, 1));
        let any = |_| WriteOutcome::Unsettled;
        assert!(unsettled.has(Extent::new(14, 1), any) && !unsettled.has(Extent::new(15, 1), any));
        let one = |epoch| if epoch == 3 { WriteOutcome::Ended } else { WriteOutcome::Unsettled };
        assert!(!unsettled.has(Extent::new(14, 1), one));
        assert!(unsettled.has(Extent::new(100, 1), any) && !unsettled.has(Extent::new(14, 1), any));
    }

    #[test]
    fn blocks_of_a_write_that_its_session_still_has_are_barred_once_that_is_lost() {
        let unsettled = UnsettledExtents::default();
        unsettled.add(3, Extent::new(10, 5));
        assert!(!unsettled.has(Extent::new(14, 1), |_| WriteOutcome::InSession));
        assert!(unsettled.has(Extent::new(14, 1), |_| WriteOutcome::Unsettled));
    }

    #[test]
    fn too_many_bar_everything() {
        let unsettled = UnsettledExtents::default();
        for lba in 0..10_000 {
            unsettled.add(0, Extent::new(lba, 1));
        }
        assert!(unsettled.has(Extent::new(1 << 40, 1), |_| WriteOutcome::Unsettled));
        assert!(unsettled.extents.lock().len() <= EXTENTS_MAX + 1);
    }
}
