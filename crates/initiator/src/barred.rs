//! Blocks that are not used, because an earlier write of them may still be carried out.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use block::{Blocks, Extent, Lba, Lock};

/// Extents of writes, each with the session that it was sent in.
#[derive(Debug, Default)]
pub(crate) struct BarredExtents {
    /// Nearly always there are none, and no request looks further.
    is_any: AtomicBool,
    extents: Lock<Vec<(u64, Extent)>>,
}

/// From so many on all blocks are barred: a session has fewer commands under way.
const EXTENTS_MAX: usize = 4096;

impl BarredExtents {
    /// A write of these blocks, sent in the session `epoch`, may still be carried out.
    pub(crate) fn add(&self, epoch: u64, extent: Extent) {
        let mut extents = self.extents.lock();
        let all = Extent { lba: Lba(0), blocks: Blocks(u64::MAX) };
        let barred = (epoch, if extents.len() < EXTENTS_MAX { extent } else { all });
        if !extents.contains(&barred) {
            extents.push(barred);
        }
        self.is_any.store(true, Relaxed);
    }

    /// Whether any of these blocks is barred; not by sessions that are settled meanwhile.
    pub(crate) fn has(&self, extent: Extent, is_unsettled: impl Fn(u64) -> bool) -> bool {
        self.is_any.load(Relaxed) && self.look(extent, is_unsettled)
    }

    #[cold]
    fn look(&self, extent: Extent, is_unsettled: impl Fn(u64) -> bool) -> bool {
        let mut extents = self.extents.lock();
        extents.retain(|(epoch, _)| is_unsettled(*epoch));
        self.is_any.store(!extents.is_empty(), Relaxed);
        extents.iter().any(|(_, barred)| barred.overlaps(extent))
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
        assert!(barred.has(Extent::new(14, 1), |_| true) && !barred.has(Extent::new(15, 1), |_| true));
        assert!(!barred.has(Extent::new(14, 1), |epoch| epoch != 3));
        assert!(barred.has(Extent::new(100, 1), |_| true));
    }

    #[test]
    fn too_many_bar_everything() {
        let barred = BarredExtents::default();
        (0..10_000).for_each(|lba| barred.add(0, Extent::new(lba, 1)));
        assert!(barred.has(Extent::new(1 << 40, 1), |_| true));
        assert!(barred.extents.lock().len() <= EXTENTS_MAX + 1);
    }
}
