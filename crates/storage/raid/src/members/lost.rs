//! Blocks that members have lost, while the set is in use: which reads fail for that, and when a block is off the list.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use block::{DeviceError, Extent, Lba};

use super::Members;
use crate::lost::{LOST_MAX, LOST_RECORDED_MAX, LostBlocks};

/// Blocks that members do not have. A record has all three: a block that was written is off the recorded list only when what was written
/// is on stable storage.
#[derive(Default)]
pub(super) struct Lost {
    pub(super) blocks: LostBlocks,
    /// They were written since.
    pub(super) healed: LostBlocks,
    /// These too, and their members are being flushed.
    pub(super) settling: LostBlocks,
    /// There was no room for another one.
    pub(super) was_full: bool,
}

impl Lost {
    pub(super) fn recorded(&self) -> LostBlocks {
        let mut all = self.blocks.clone();
        all.extend(&self.healed);
        all.extend(&self.settling);
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.healed.is_empty() && self.settling.is_empty()
    }

    /// Extents that a record has at most, whichever of the healed blocks are settled first.
    pub(super) fn extents_max(&self) -> usize {
        self.blocks.extents() + self.healed.extents() + self.settling.extents()
    }
}

impl Members {
    /// The error of a read of blocks that the member does not have.
    pub(crate) fn lost_of(&self, index: usize, extent: Extent) -> Option<DeviceError> {
        if !self.has_lost() {
            return None;
        }
        let first = self.lost.lock().blocks.first_of(index, extent.lba.0..extent.lba.0 + extent.blocks.0)?;
        Some(DeviceError::Unreadable(Lba(first)))
    }

    /// Of an extent of a member, it has all blocks but these. False if the list has no room for them; it is as it was then. The caller excludes
    /// requests for the extent. [`Members::recorded`] must follow before anything depends on it.
    pub(crate) fn lose(&self, index: usize, extent: Extent, columns: &[Range<u64>]) -> bool {
        if columns.is_empty() && !self.has_lost() {
            return true;
        }
        let first = extent.lba.0;
        debug_assert!(
            first + extent.blocks.0 <= self.layout().member_blocks().0,
            "a member lacks what it had"
        );
        let mut lost = self.lost.lock();
        let mut blocks = lost.blocks.clone();
        blocks.remove(index, first..first + extent.blocks.0);
        columns.iter().for_each(|part| blocks.insert(index, first + part.start..first + part.end));
        debug_assert!(columns.iter().all(|part| part.end <= extent.blocks.0));
        if blocks == lost.blocks {
            return true;
        }
        let recorded = blocks.extents() + lost.healed.extents() + lost.settling.extents();
        if recorded > LOST_RECORDED_MAX || !columns.is_empty() && blocks.extents() > LOST_MAX {
            lost.was_full = true;
            // Blocks that a member has may stay on the list: they are read by the others.
            return columns.is_empty();
        }
        lost.blocks = blocks;
        self.has_lost.store(!lost.is_empty(), Ordering::Release);
        self.changed.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// It has none of them.
    pub(crate) fn lose_all(&self, index: usize, extent: Extent) -> bool {
        let all = 0..extent.blocks.0;
        self.lose(index, extent, std::slice::from_ref(&all))
    }

    /// A member has these blocks now, if they were lost. They stay on the list if they cut an extent of it and a record has no room for
    /// one more: before a write is acknowledged, the others must have it. [`Members::settle_healed`] must follow.
    pub(crate) fn wrote(&self, index: usize, extent: Extent) {
        if !self.has_lost() {
            return;
        }
        let mut lost = self.lost.lock();
        debug_assert!(index < self.layout.members());
        let healed = lost.blocks.remove(index, extent.lba.0..extent.lba.0 + extent.blocks.0);
        if healed.is_empty() {
            return;
        }
        lost.was_full = lost.extents_max() + healed.len() > LOST_RECORDED_MAX;
        debug_assert!(healed.iter().all(|blocks| blocks.end <= extent.lba.0 + extent.blocks.0));
        let Lost { blocks, healed: list, was_full, .. } = &mut *lost;
        let list = if *was_full { blocks } else { list };
        healed.into_iter().for_each(|blocks| list.insert(index, blocks));
    }

    /// Ends once blocks that were written so far are off the recorded list: before the write is acknowledged, since a crash would take its data
    /// away otherwise.
    pub(crate) async fn settle_healed(self: &Arc<Self>) -> Result<(), DeviceError> {
        if !self.has_lost() {
            return Ok(());
        }
        let is_settled = {
            let lost = self.lost.lock();
            lost.healed.is_empty() && lost.settling.is_empty()
        };
        if is_settled {
            return self.recorded().await;
        }
        let members = Arc::clone(self);
        self.operations.run(async move { members.settle().await }).await
    }

    async fn settle(self: &Arc<Self>) -> Result<(), DeviceError> {
        let _turn = self.settling.exclude(Extent::new(0, 1)).await;
        let healed = {
            let mut lost = self.lost.lock();
            let healed = std::mem::take(&mut lost.healed);
            // Those of a turn that was dropped with its thread are settled with them.
            lost.settling.extend(&healed);
            lost.settling.clone()
        };
        if healed.is_empty() {
            return self.recorded().await;
        }
        let flushed = self.flush_healed(&healed).await;
        {
            let mut lost = self.lost.lock();
            let settled = std::mem::take(&mut lost.settling);
            // They stay on the recorded list: after a crash they are lost again, so their writes have failed.
            if flushed.is_err() {
                lost.healed.extend(&settled);
                return flushed;
            }
            // Counted before another write can find the lists empty: it waits for the record then.
            self.changed.fetch_add(1, Ordering::AcqRel);
        }
        let recorded = self.recorded().await;
        let lost = self.lost.lock();
        self.has_lost.store(!lost.is_empty(), Ordering::Release);
        recorded
    }

    async fn flush_healed(self: &Arc<Self>, healed: &LostBlocks) -> Result<(), DeviceError> {
        for member in self.all_present() {
            if healed.blocks_of(member.index) > 0 {
                self.flush_one(member).await?;
            }
        }
        Ok(())
    }

    /// Whether there may be lost blocks.
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Acquire)
    }

    /// Of each member, how many blocks it does not have.
    pub(crate) fn lost_blocks(&self) -> Vec<u64> {
        let lost = self.lost.lock();
        (0..self.layout.members()).map(|index| lost.blocks.blocks_of(index)).collect()
    }

    /// Whether a block that nothing could tell did not fit the list, and none was healed since.
    pub(crate) fn is_lost_list_full(&self) -> bool {
        self.lost.lock().was_full
    }
}
