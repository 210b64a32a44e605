//! Blocks that are not used, because an earlier write of them may still be carried out.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use block::{Blocks, Extent, Lba, Lock};

/// Extents of writes that failed before they had ended for certain, each with the session that it was sent in.
#[derive(Debug, Default)]
pub(crate) struct BarredExtents {
    /// Nearly always there are none, and no request looks further.
    is_any: AtomicBool,
    extents: Lock<Vec<(u64, Extent)>>,
}

/// What may become of such writes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// They have ended.
    Ended,
    /// The session still has them, and aborts them. Should it be lost before that, they are unsettled.
    InSession,
    /// They may be carried out at any time.
    Unsettled,
}

/// From so many on all blocks are barred: a session has fewer commands under way.
const EXTENTS_MAX: usize = 4096;

impl BarredExtents {
    /// A write of these blocks, sent in the session `epoch`, may still be carried out. Whether that is news.
    pub(crate) fn add(&self, epoch: u64, extent: Extent) -> bool {
        let mut extents = self.extents.lock();
        let all = Extent { lba: Lba(0), blocks: Blocks(u64::MAX) };
        let barred = (epoch, if extents.len() < EXTENTS_MAX { extent } else { all });
        let is_news = !extents.contains(&barred);
        if is_news {
            extents.push(barred);
        }
        self.is_any.store(true, Relaxed);
        is_news
    }

    /// Whether any of these blocks is barred; not by sessions that are settled meanwhile.
    pub(crate) fn has(&self, extent: Extent, fate: impl Fn(u64) -> Fate) -> bool {
        self.is_any.load(Relaxed) && self.look(extent, fate)
    }

    #[cold]
    fn look(&self, extent: Extent, fate: impl Fn(u64) -> Fate) -> bool {
        let mut extents = self.extents.lock();
        extents.retain(|(epoch, _)| fate(*epoch) != Fate::Ended);
        self.is_any.store(!extents.is_empty(), Relaxed);
        extents.iter().any(|(epoch, barred)| barred.overlaps(extent) && fate(*epoch) == Fate::Unsettled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_barred_until_their_session_is_settled() {
        let barred = BarredExtents::default();
        barred.add(3, Extent::new(10, 5));
        barred.add(4, Extent::new(100, 1));
        let unsettled = |_| Fate::Unsettled;
        assert!(barred.has(Extent::new(14, 1), unsettled) && !barred.has(Extent::new(15, 1), unsettled));
        let one = |epoch| if epoch == 3 { Fate::Ended } else { Fate::Unsettled };
        assert!(!barred.has(Extent::new(14, 1), one));
        assert!(barred.has(Extent::new(100, 1), unsettled) && !barred.has(Extent::new(14, 1), unsettled));
    }

    #[test]
    fn blocks_of_a_write_that_its_session_still_has_are_barred_once_that_is_lost() {
        let barred = BarredExtents::default();
        barred.add(3, Extent::new(10, 5));
        assert!(!barred.has(Extent::new(14, 1), |_| Fate::InSession));
        assert!(barred.has(Extent::new(14, 1), |_| Fate::Unsettled));
    }

    #[test]
    fn too_many_bar_everything() {
        let barred = BarredExtents::default();
        for lba in 0..10_000 {
            barred.add(0, Extent::new(lba, 1));
        }
        assert!(barred.has(Extent::new(1 << 40, 1), |_| Fate::Unsettled));
        assert!(barred.extents.lock().len() <= EXTENTS_MAX + 1);
    }
}
