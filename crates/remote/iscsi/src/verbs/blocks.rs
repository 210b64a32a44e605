//! Commands on blocks other than READ and WRITE: capacity, LBA status, UNMAP, WRITE SAME, COMPARE AND WRITE.

use block::{Extent, Slice};
use scsi::{BlockLimits, Capacity, LbaStatus, LbaStatusDescriptor, Sense, UnmapDescriptor, cdb, status};

use super::{VerbError, parameters};
use crate::unit::Unit;

/// Blocks in a row of which the same became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaRun {
    /// Which.
    pub extent: Extent,
    /// What became of them.
    pub status: LbaStatus,
}

/// What WRITE SAME does.
#[derive(Clone, Debug, Default)]
pub struct WriteSame {
    /// The block to write everywhere; without, NDOB: zeros that need not be sent (SBC-4 5.50).
    pub block: Option<Slice>,
    /// UNMAP: the blocks may be given back if they read the same then.
    pub unmap: bool,
    /// ANCHOR: their space is kept for them.
    pub anchor: bool,
}

/// What COMPARE AND WRITE found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// What was expected; the new data are there.
    Written,
    /// Something else; nothing was written.
    Differs {
        /// Where, in bytes from the start of what was compared, if the target says.
        offset_bytes: Option<u64>,
    },
}

/// Descriptors of one GET LBA STATUS.
const RUNS_AT_ONCE: usize = 256;
/// WRITE SAME where the target names no limit: more blocks take it a while already.
const WRITE_SAME_BLOCKS: u32 = 1 << 21;

impl Unit {
    /// READ CAPACITY(16), or (10) where the target does not know the long one.
    pub async fn read_capacity(&self) -> Result<Capacity, VerbError> {
        let name = "READ CAPACITY";
        let capacity = match self.ask(name, cdb::read_capacity_16(32), 32).await {
            Ok(data) => Capacity::parse_16(&data),
            // Whatever its reason: if it is not that it does not know the command, it refuses this one too.
            Err(VerbError::Refused { .. }) => {
                Capacity::parse_10(&self.ask(name, cdb::read_capacity_10(), 8).await?)
            }
            Err(error) => return Err(error),
        };
        capacity.ok_or(VerbError::Nonsense(name))
    }

    /// GET LBA STATUS of all blocks of `extent`, as often as it takes. The runs follow each other from its
    /// start; they end early after `runs_max` descriptors, and where the target begins to tell nonsense.
    pub async fn lba_status(&self, extent: Extent, runs_max: usize) -> Result<Vec<LbaRun>, VerbError> {
        let name = "GET LBA STATUS";
        let end = extent.end().ok_or(VerbError::OutOfRange(name))?.0;
        let (mut runs, mut descriptors, mut next): (Vec<LbaRun>, usize, u64) = (Vec::new(), 0, extent.lba.0);
        while next < end && descriptors < runs_max {
            let bytes = 8 + 16 * RUNS_AT_ONCE.min(runs_max - descriptors);
            let answer = self.ask(name, cdb::get_lba_status(next, bytes as u32), bytes).await?;
            let came = lba_runs(&answer, next, end);
            let Some(last) = came.last() else { break };
            (next, descriptors) = (last.extent.lba.0 + last.extent.blocks.0, descriptors + came.len());
            came.into_iter().for_each(|run| append(&mut runs, run));
        }
        Ok(runs)
    }

    /// UNMAP: the blocks of these extents need not be kept any more. They are told in as many commands as the
    /// target's Block Limits page wants; `anchor` keeps their space for them.
    pub async fn unmap(&self, extents: &[Extent], anchor: bool) -> Result<(), VerbError> {
        let name = "UNMAP";
        if extents.iter().any(|extent| extent.end().is_none()) {
            return Err(VerbError::OutOfRange(name));
        }
        let limits = self.block_limits().await?;
        for list in unmap_lists(extents, &limits) {
            let cdb = cdb::unmap(anchor, list.len() as u16);
            self.tell(name, cdb, parameters(&list)).await?;
        }
        Ok(())
    }

    /// WRITE SAME(16) in as many commands as the target's Block Limits page wants; WRITE SAME(10) where it
    /// does not know the long one, and a block is to be written that the short one can say.
    pub async fn write_same(&self, extent: Extent, what: &WriteSame) -> Result<(), VerbError> {
        let name = "WRITE SAME";
        extent.end().ok_or(VerbError::OutOfRange(name))?;
        let theirs = u32::try_from(self.block_limits().await?.write_same_blocks).unwrap_or(u32::MAX);
        let most = if theirs == 0 { WRITE_SAME_BLOCKS } else { theirs.min(WRITE_SAME_BLOCKS) };
        for piece in extent.chunks(u64::from(most)) {
            let (lba, blocks) = (piece.lba.0, piece.blocks.0 as u32);
            let Some(block) = &what.block else {
                self.carry_out(name, write_same_cdb(lba, blocks, what)).await?;
                continue;
            };
            match self.tell(name, write_same_cdb(lba, blocks, what), block.clone()).await {
                Err(error) if error.is_unsupported() && !what.anchor => {
                    let short = cdb::write_same_10(lba, blocks, what.unmap).ok_or(error)?;
                    self.tell(name, short, block.clone()).await?;
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// COMPARE AND WRITE: writes `new` if `expected` is what is there. Both are `blocks` blocks long.
    pub async fn compare_and_write(
        &self,
        lba: u64,
        blocks: u8,
        expected: &[u8],
        new: &[u8],
    ) -> Result<Compared, VerbError> {
        let name = "COMPARE AND WRITE";
        if expected.len() != new.len() {
            return Err(VerbError::OutOfRange(name));
        }
        let both = parameters(&[expected, new].concat());
        match self.tell(name, cdb::compare_and_write(lba, blocks), both).await {
            Ok(()) => Ok(Compared::Written),
            Err(VerbError::Refused {
                status: status::CHECK_CONDITION,
                sense: Some(Sense { key: 0xe, information, .. }),
                ..
            }) => Ok(Compared::Differs { offset_bytes: information }),
            Err(error) => Err(error),
        }
    }

    /// WRITE ATOMIC(16): all of it, or nothing, even if the power goes. The Block Limits page says how much.
    pub async fn write_atomic(&self, lba: u64, blocks: u16, data: Slice) -> Result<(), VerbError> {
        self.tell("WRITE ATOMIC", cdb::write_atomic_16(lba, blocks), data).await
    }
}

fn write_same_cdb(lba: u64, blocks: u32, what: &WriteSame) -> cdb::Cdb {
    let mut cdb = cdb::write_same_16(lba, blocks, what.unmap);
    cdb[1] |= u8::from(what.anchor) << 4 | u8::from(what.block.is_none());
    cdb
}

/// The runs of an answer, as far as they follow each other from block `next` on; the last ends at `end`.
pub(crate) fn lba_runs(answer: &[u8], mut next: u64, end: u64) -> Vec<LbaRun> {
    let mut runs = Vec::new();
    for LbaStatusDescriptor { lba, blocks, status } in LbaStatusDescriptor::parse_list(answer) {
        let stop = lba.saturating_add(u64::from(blocks)).min(end);
        if lba > next || stop <= next {
            break;
        }
        runs.push(LbaRun { extent: Extent::new(next, stop - next), status });
        next = stop;
    }
    runs
}

/// Adds a run that follows the last, as a part of it if it is of its kind.
fn append(runs: &mut Vec<LbaRun>, run: LbaRun) {
    match runs.last_mut() {
        Some(last) if last.status == run.status => last.extent.blocks.0 += run.extent.blocks.0,
        _ => runs.push(run),
    }
}

/// The parameter lists (SBC-3 5.28.2) of the UNMAP commands for these extents.
pub(crate) fn unmap_lists(extents: &[Extent], limits: &BlockLimits) -> Vec<Vec<u8>> {
    let unless_zero = |limit: u32| if limit == 0 { u32::MAX } else { limit };
    let (blocks_most, most) = (unless_zero(limits.unmap_blocks), unless_zero(limits.unmap_descriptors));
    let descriptors_most = UnmapDescriptor::COUNT_MAX.min(most as usize);
    let mut lists = Vec::new();
    let (mut list, mut blocks) = (Vec::new(), 0);
    for piece in extents.iter().flat_map(|extent| extent.chunks(u64::from(blocks_most))) {
        let is_full = list.len() == descriptors_most || blocks + piece.blocks.0 > u64::from(blocks_most);
        if is_full && !list.is_empty() {
            lists.push(unmap_list(&list));
            list.clear();
            blocks = 0;
        }
        blocks += piece.blocks.0;
        list.push(piece);
    }
    if !list.is_empty() {
        lists.push(unmap_list(&list));
    }
    lists
}

fn unmap_list(extents: &[Extent]) -> Vec<u8> {
    let descriptor = |extent: &Extent| UnmapDescriptor { lba: extent.lba.0, blocks: extent.blocks.0 as u32 };
    UnmapDescriptor::write_list(extents.iter().map(descriptor))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn descriptor(lba: u64, blocks: u32, status: u8) -> Vec<u8> {
        [&lba.to_be_bytes()[..], &blocks.to_be_bytes(), &[status, 0, 0, 0]].concat()
    }

    #[test]
    fn runs_of_a_target_that_tells_tales_are_cut_short() {
        let gap = [vec![0; 8], descriptor(0, 10, 0), descriptor(20, 10, 1)].concat();
        assert_eq!(lba_runs(&gap, 0, 100).len(), 1);
        let behind = [vec![0; 8], descriptor(0, 10, 0)].concat();
        assert!(lba_runs(&behind, 50, 60).is_empty());
        let endless = [vec![0; 8], descriptor(u64::MAX - 1, u32::MAX, 0)].concat();
        assert!(lba_runs(&endless, 50, 60).is_empty());
    }

    #[test]
    fn runs_begin_at_the_first_block_and_end_with_the_last() {
        let answer = [vec![0; 8], descriptor(0, 100, 0), descriptor(100, 1000, 1)].concat();
        let runs = lba_runs(&answer, 50, 120);
        assert_eq!(
            runs.iter().map(|run| run.extent).collect::<Vec<_>>(),
            [Extent::new(50, 50), Extent::new(100, 20)]
        );
    }

    #[test]
    fn neighbours_of_a_kind_are_one_run() {
        let run = |lba, blocks, status| LbaRun { extent: Extent::new(lba, blocks), status };
        let mut runs = Vec::new();
        append(&mut runs, run(0, 8, LbaStatus::Mapped));
        append(&mut runs, run(8, 8, LbaStatus::Mapped));
        append(&mut runs, run(16, 8, LbaStatus::Deallocated));
        assert_eq!(runs, [run(0, 16, LbaStatus::Mapped), run(16, 8, LbaStatus::Deallocated)]);
    }

    #[test]
    fn no_unmap_asks_for_more_than_the_limits() {
        let limits = BlockLimits { unmap_blocks: 100, unmap_descriptors: 2, ..BlockLimits::default() };
        let extents =
            [Extent::new(0, 250), Extent::new(1000, 10), Extent::new(2000, 10), Extent::new(3000, 1)];
        let lists = unmap_lists(&extents, &limits);
        let lengths: Vec<usize> = lists.iter().map(|list| (list.len() - 8) / 16).collect();
        assert_eq!(lengths, [1, 1, 2, 2], "100; 100; 50 and 10; 10 and 1");
        assert_eq!(lists[0][..8], [0, 22, 0, 16, 0, 0, 0, 0]);
    }

    #[test]
    fn an_unmap_without_limits_is_one_command() {
        let extents: Vec<Extent> = (0..4095).map(|index| Extent::new(index * 16, 8)).collect();
        assert_eq!(unmap_lists(&extents, &BlockLimits::default()).len(), 1);
        assert!(unmap_lists(&[], &BlockLimits::default()).is_empty());
    }

    proptest! {
        #[test]
        fn every_block_is_unmapped_once(
            lengths in prop::collection::vec(0u64..5000, 0..20),
            unmap_blocks in 0u32..1000, unmap_descriptors in 0u32..5,
        ) {
            let extent = |(length, index): (&u64, u64)| Extent::new(index * 10_000, *length);
            let extents: Vec<Extent> = lengths.iter().zip(0u64..).map(extent).collect();
            let limits = BlockLimits { unmap_blocks, unmap_descriptors, ..BlockLimits::default() };
            let lists = unmap_lists(&extents, &limits);
            let told = lists.iter().flat_map(|list| UnmapDescriptor::parse_list(list).into_iter().flatten());
            let told: u64 = told.map(|descriptor| u64::from(descriptor.blocks)).sum();
            prop_assert_eq!(told, lengths.iter().sum::<u64>());
        }

        #[test]
        fn any_answer_is_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..96), next: u64, length: u32,
        ) {
            let end = next.saturating_add(u64::from(length));
            let mut at = next;
            for run in lba_runs(&bytes, next, end) {
                prop_assert_eq!(run.extent.lba.0, at);
                at += run.extent.blocks.0;
                prop_assert!(at <= end);
            }
        }
    }
}
