//! Lost blocks while the set is in use: which reads fail, and when a block is removed from the list.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use block::{BlockDevice, DeviceError, Extent, Lba};

use super::{Member, Members, certain_losses};
use crate::lost::{LOST_MAX, LOST_RECORDED_MAX, LostBlocks};

/// The lost blocks of members. A record contains all three lists, so that a block is removed from the
/// recorded list only once its new content is on stable storage.
#[derive(Default)]
pub(super) struct Lost {
    pub(super) blocks: LostBlocks,
    /// Blocks that were written after they were lost.
    pub(super) healed: Healed,
    /// Blocks that were written after they were lost, and whose members are being flushed.
    pub(super) settling: Healed,
    /// Whether an extent was rejected because the list was full.
    pub(super) was_full: bool,
}

/// Blocks that were written after they were lost, but may not be on stable storage yet.
#[derive(Clone, Default)]
pub(super) struct Healed {
    blocks: LostBlocks,
    /// The state of each member of these blocks before the first of them was written.
    members: BTreeMap<usize, BeforeWrite>,
}

/// The state of a member before a write. If it is the same after a flush, the write is on stable storage.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BeforeWrite {
    incarnation: u64,
    losses: u64,
}

impl Healed {
    fn extend(&mut self, later: Healed) {
        self.blocks.extend(&later.blocks);
        for (member, before) in later.members {
            self.members.entry(member).or_insert(before);
        }
    }

    pub(super) fn remove_member(&mut self, member: usize) {
        self.blocks.remove_member(member);
        self.members.remove(&member);
    }
}

impl Lost {
    pub(super) fn recorded(&self) -> LostBlocks {
        let mut all = self.blocks.clone();
        all.extend(&self.healed.blocks);
        all.extend(&self.settling.blocks);
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.healed.blocks.is_empty() && self.settling.blocks.is_empty()
    }

    /// Returns an upper limit on the number of extents in a record, whichever healed blocks are settled
    /// first.
    pub(super) fn extents_max(&self) -> usize {
        self.blocks.extents() + self.healed.blocks.extents() + self.settling.blocks.extents()
    }
}

impl Members {
    /// Returns the error for a read of an extent, if the member does not have all of its blocks.
    pub(crate) fn lost_of(&self, index: usize, extent: Extent) -> Option<DeviceError> {
        if !self.has_lost() {
            return None;
        }
        let first = self
            .lost
            .lock()
            .blocks
            .first_of(index, extent.lba.0..extent.lba.0 + extent.blocks.0)?;
        Some(DeviceError::Unreadable(Lba(first)))
    }

    /// Records that, within an extent, a member has lost `columns` and no other blocks. If the list has no
    /// space, returns false and changes nothing. The caller must exclude requests for the extent, and must
    /// call [`Members::recorded`] before anything depends on the list.
    pub(crate) fn lose(&self, index: usize, extent: Extent, columns: &[Range<u64>]) -> bool {
        if columns.is_empty() && !self.has_lost() {
            return true;
        }
        let first = extent.lba.0;
        debug_assert!(
            first + extent.blocks.0 <= self.layout().member_blocks().0,
            "blocks outside the member"
        );
        let mut lost = self.lost.lock();
        let mut blocks = lost.blocks.clone();
        blocks.remove(index, first..first + extent.blocks.0);
        columns
            .iter()
            .for_each(|part| blocks.insert(index, first + part.start..first + part.end));
        debug_assert!(columns.iter().all(|part| part.end <= extent.blocks.0));
        if blocks == lost.blocks {
            return true;
        }
        let recorded = blocks.extents() + lost.extents_max() - lost.blocks.extents();
        if recorded > LOST_RECORDED_MAX || !columns.is_empty() && blocks.extents() > LOST_MAX {
            lost.was_full = true;
            // Blocks that a member has may stay on the list. They are then read from the other members.
            return columns.is_empty();
        }
        lost.blocks = blocks;
        self.has_lost.store(!lost.is_empty(), Ordering::Release);
        self.changed.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Records that a member has lost all blocks of an extent.
    pub(crate) fn lose_all(&self, index: usize, extent: Extent) -> bool {
        let all = 0..extent.blocks.0;
        self.lose(index, extent, std::slice::from_ref(&all))
    }

    /// Records that lost blocks of a member were written. If removing them would split an extent and the
    /// record is full, the blocks stay on the list; the other members must then have the write before it is
    /// acknowledged. The caller must then call [`Members::settle_healed`].
    pub(crate) fn wrote(&self, member: &Member, before: BeforeWrite, extent: Extent) {
        if !self.has_lost() {
            return;
        }
        let index = member.index;
        let mut lost = self.lost.lock();
        debug_assert!(index < self.layout.members());
        let healed = lost
            .blocks
            .remove(index, extent.lba.0..extent.lba.0 + extent.blocks.0);
        if healed.is_empty() {
            return;
        }
        lost.was_full = lost.extents_max() + healed.len() > LOST_RECORDED_MAX;
        debug_assert!(
            healed
                .iter()
                .all(|blocks| blocks.end <= extent.lba.0 + extent.blocks.0)
        );
        let Lost {
            blocks,
            healed: list,
            was_full,
            ..
        } = &mut *lost;
        let list = if *was_full {
            blocks
        } else {
            list.members.entry(index).or_insert(before);
            &mut list.blocks
        };
        healed
            .into_iter()
            .for_each(|blocks| list.insert(index, blocks));
    }

    /// Resolves once the blocks written so far have been removed from the recorded list. Must be called
    /// before a write is acknowledged: otherwise, a crash would make the written blocks lost again. Blocks that
    /// could not be flushed are lost again, even if another call has tried to flush them.
    pub(crate) async fn settle_healed(self: &Arc<Self>) -> Result<(), DeviceError> {
        if !self.has_lost() {
            return Ok(());
        }
        let is_settled = {
            let lost = self.lost.lock();
            lost.healed.blocks.is_empty() && lost.settling.blocks.is_empty()
        };
        if is_settled {
            return self.recorded().await;
        }
        let members = Arc::clone(self);
        self.operations
            .run(async move { members.settle().await })
            .await
    }

    async fn settle(self: &Arc<Self>) -> Result<(), DeviceError> {
        let _turn = self.settling.exclude(Extent::new(0, 1)).await;
        let written = {
            let mut lost = self.lost.lock();
            let healed = std::mem::take(&mut lost.healed);
            // This includes blocks of an earlier call that was dropped with its thread.
            lost.settling.extend(healed);
            lost.settling.members.clone()
        };
        if written.is_empty() {
            return self.recorded().await;
        }
        let (mut flushed, mut result) = (Vec::new(), Ok(()));
        for (index, before) in written {
            match self.flush_healed(index, before).await {
                Ok(true) => flushed.push(index),
                Ok(false) => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
        {
            let mut lost = self.lost.lock();
            let Healed { blocks, .. } = std::mem::take(&mut lost.settling);
            // A later flush may succeed without storing the other blocks: Linux does not write them again.
            let again = blocks.iter().filter(|(index, _)| !flushed.contains(index));
            again.for_each(|(index, range)| lost.blocks.insert(index, range));
            // Count the change before another write can find the lists empty, so that this write waits for
            // the record.
            self.changed.fetch_add(1, Ordering::AcqRel);
        }
        let recorded = self.recorded().await;
        let lost = self.lost.lock();
        self.has_lost.store(!lost.is_empty(), Ordering::Release);
        result.and(recorded)
    }

    /// Flushes a member to store its healed blocks. Returns false if the member has failed since it was
    /// written.
    async fn flush_healed(
        self: &Arc<Self>,
        index: usize,
        before: BeforeWrite,
    ) -> Result<bool, DeviceError> {
        let is_it = |member: &Member| member.incarnation == before.incarnation;
        let Some(member) = self.present(index).filter(is_it) else {
            return Ok(false);
        };
        self.flush_one(member.clone()).await?;
        if !self.is_present(&member) {
            return Ok(false);
        }
        if certain_losses(&*member.device).await? == before.losses {
            Ok(true)
        } else {
            Err(DeviceError::WritesLost)
        }
    }

    /// Whether there may be lost blocks.
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Acquire)
    }

    /// Returns the number of lost blocks of each member.
    pub(crate) fn lost_blocks(&self) -> Vec<u64> {
        let lost = self.lost.lock();
        (0..self.layout.members())
            .map(|index| lost.blocks.blocks_of(index))
            .collect()
    }

    /// Whether a lost block was rejected because the list was full, and none was healed since.
    pub(crate) fn is_lost_list_full(&self) -> bool {
        self.lost.lock().was_full
    }
}

impl Member {
    /// Returns the state before a write.
    pub(crate) fn before_write(&self) -> BeforeWrite {
        BeforeWrite {
            incarnation: self.incarnation,
            losses: self.device.losses().count(),
        }
    }
}
