//! UNMAP (SBC-3 5.28), WRITE SAME(10) and (16) (SBC-4 5.50 and 5.51; SBC-3 5.43 and 5.44) and GET LBA STATUS:
//! the allocation of blocks.
//!
//! UNMAP in a WRITE SAME is a hint: the blocks may be unmapped only if they then read as if they had been
//! written. Unmapped blocks read as zeros (LBPRZ), so blocks of zeros are unmapped, and all other data is
//! written.

use block::{Allocation, Buffer, Durability, Extent, Geometry, Run};
use scsi::{Condition, LbaStatus, LbaStatusDescriptor, SenseKey, UnmapDescriptor, asc};

use super::read_write;
use crate::access::{DeviceAccess, give_way};
use crate::cdb::Layout;
use crate::command::call::Call;
use crate::failure::Failure;
use crate::plan::{DataIn, Outcome, Plan};

pub(crate) fn plan_unmap(call: &mut Call<'_>) -> Result<Plan, Failure> {
    if call.cdb.bit(1, UNMAP_ANCHOR) {
        return Err(Condition::invalid_bit(1, UNMAP_ANCHOR).into());
    }
    let length = call.cdb.u16(7);
    if length == 0 {
        return call.good();
    }
    let geometry = call.geometry();
    let stable = read_write::durability(&call.view, false) == Durability::Stable;
    // Memory for a second copy of the list, as extents.
    call.receive(
        u32::from(length),
        usize::from(length),
        move |access, list| async move {
            let before = access.volume().lost_writes();
            for extent in extents(&list, geometry)? {
                let _shared = access.locks().share(extent).await;
                access.unmap(extent).await?;
            }
            if stable {
                access.settle(before).await?;
            }
            Ok(Outcome::default())
        },
    )
}

/// Returns the extents of the parameter list, except empty ones. All extents are checked before any is
/// unmapped.
fn extents(list: &[u8], geometry: Geometry) -> Result<Vec<Extent>, Condition> {
    let descriptors = UnmapDescriptor::parse_list(list).ok_or(Condition::parameter_list_length())?;
    if descriptors.len() > read_write::UNMAP_DESCRIPTORS_MAX as usize {
        return Err(Condition::invalid_parameter(2));
    }
    let extents: Vec<Extent> = descriptors
        .map(|one| Extent::new(one.lba, u64::from(one.blocks)))
        .collect();
    if extents.iter().any(|extent| !geometry.contains(*extent)) {
        return Err(Condition::new(
            SenseKey::IllegalRequest,
            asc::LBA_OUT_OF_RANGE,
        ));
    }
    if extents.iter().map(|extent| extent.blocks.0).sum::<u64>()
        > u64::from(read_write::UNMAP_BLOCKS_MAX)
    {
        return Err(Condition::invalid_parameter(
            UnmapDescriptor::HEADER_BYTES as u16 + 8,
        ));
    }
    Ok(extents
        .into_iter()
        .filter(|extent| extent.blocks.0 > 0)
        .collect())
}

const UNMAP_ANCHOR: u8 = 0;

pub(crate) fn plan_write_same(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let geometry = call.geometry();
    let unmap = call.cdb.bit(1, UNMAP);
    refuse_flags(call, unmap)?;
    let extent = write_same_extent(call)?;
    // NDOB: no data-out buffer; the blocks become zeros.
    let no_data = call.cdb.layout() == Layout::Sixteen && call.cdb.bit(1, NDOB);
    let bytes = if no_data {
        0
    } else {
        geometry.block_size.bytes()
    };
    read_write::exactly(call, bytes)?;
    let stable = read_write::durability(&call.view, false) == Durability::Stable;
    call.receive(
        bytes,
        call.unit.piece_memory_bytes(extent),
        move |access, block| async move {
            read_write::whole(&block, bytes as usize)?;
            let before = access.volume().lost_writes();
            let _shared = access.locks().share(extent).await;
            // "Subsequent read operations behave as if the device server wrote the single block of user data
            // received" (SBC-4 5.50). LIO, tgt and Linux's scsi_debug unmap regardless of the data.
            if block.iter().all(|byte| *byte == 0) {
                access.write_zeroes(extent, unmap).await?;
            } else {
                repeat(&access, extent, &block).await?;
            }
            if stable {
                access.settle(before).await?;
            }
            Ok(Outcome::default())
        },
    )
}

fn refuse_flags(call: &Call<'_>, unmap: bool) -> Result<(), Condition> {
    read_write::refuse_protection(call.cdb)?;
    if call.cdb.bit(1, ANCHOR) {
        // Anchoring is not supported: ANC_SUP is zero.
        return Err(Condition::invalid_bit(1, ANCHOR));
    }
    if unmap && !call.unit.thin() {
        return Err(Condition::invalid_bit(1, UNMAP));
    }
    for obsolete in [PBDATA, LBDATA] {
        if call.cdb.bit(1, obsolete) {
            return Err(Condition::invalid_bit(1, obsolete));
        }
    }
    Ok(())
}

/// Returns the addressed blocks. A length of 0 means all blocks to the end of the medium, unless WSNZ is one.
fn write_same_extent(call: &Call<'_>) -> Result<Extent, Condition> {
    let mut extent = call.cdb.extent();
    read_write::within(extent, call.geometry())?;
    if extent.is_empty() && !read_write::refuses_zero_blocks(call) {
        extent = Extent::new(extent.lba.0, call.geometry().blocks.0 - extent.lba.0);
    } else if extent.is_empty() {
        return Err(Condition::invalid_field(call.cdb.layout().length_at()));
    }
    if extent.blocks.0 > read_write::WRITE_SAME_BLOCKS_MAX {
        return Err(Condition::invalid_field(call.cdb.layout().length_at()));
    }
    Ok(extent)
}

async fn repeat(access: &DeviceAccess, extent: Extent, block: &[u8]) -> Result<(), Failure> {
    let geometry = access.device().geometry();
    let Some(longest) = access.pieces(extent).next() else {
        return Ok(());
    };
    let mut pattern = Buffer::recycled(geometry.length(longest) as usize);
    pattern
        .chunks_exact_mut(block.len())
        .for_each(|copy| copy.copy_from_slice(block));
    let pattern = pattern.share();
    for piece in access.pieces(extent) {
        debug_assert!(
            geometry.length(piece) <= pattern.len() as u64,
            "no piece is longer than the first"
        );
        // The first piece is the longest, so the pattern is always long enough.
        let data = pattern
            .part(0..geometry.length(piece) as usize)
            .unwrap_or_else(|| pattern.clone());
        access.store(piece, data, Durability::Cached).await?;
        give_way().await;
    }
    Ok(())
}

const ANCHOR: u8 = 4;
const UNMAP: u8 = 3;
const PBDATA: u8 = 2;
const LBDATA: u8 = 1;
const NDOB: u8 = 0;

pub(crate) fn plan_lba_status(call: &mut Call<'_>) -> Result<Plan, Failure> {
    call.command.returns_data()?;
    let geometry = call.geometry();
    let from = call.cdb.u64(2);
    read_write::within(Extent::new(from, 0), geometry)?;
    let rest = Extent::new(from, geometry.blocks.0 - from);
    let allocation_length = call.cdb.u32(10) as usize;
    // Return at least one descriptor, even if it is truncated: the length field reports it.
    let room = allocation_length.saturating_sub(HEADER_BYTES) / DESCRIPTOR_BYTES;
    let room = room.clamp(1, DESCRIPTORS_MAX);
    // Memory for the runs of one query and of the response, for the descriptors, and for the response that
    // contains them.
    let working_bytes = (RUNS_MAX + room) * size_of::<Run>() + 2 * room * DESCRIPTOR_BYTES;
    call.run(working_bytes, move |access| async move {
        let runs = if access.thin() {
            runs(&access, rest, room).await?
        } else {
            vec![mapped(rest)]
        };
        let mut data = parameter_data(&runs, room);
        data.truncate(allocation_length);
        Ok(DataIn::Bytes(data).into())
    })
}

/// Returns the runs from the start of `rest`, with adjacent runs of the same kind merged.
async fn runs(access: &DeviceAccess, rest: Extent, room: usize) -> Result<Vec<Run>, Failure> {
    let mut runs: Vec<Run> = Vec::new();
    let mut rest = rest;
    for _ in 0..QUESTIONS_MAX {
        // One run beyond the limit shows that the last one is complete.
        if rest.is_empty() || runs.len() > room {
            break;
        }
        for run in access.allocation(rest, RUNS_MAX).await? {
            let blocks = run.extent.blocks.0.min(rest.blocks.0);
            let run = Run {
                extent: Extent::new(rest.lba.0, blocks),
                ..run
            };
            rest = Extent::new(rest.lba.0 + blocks, rest.blocks.0 - blocks);
            append(&mut runs, run);
        }
    }
    Ok(runs)
}

fn append(runs: &mut Vec<Run>, run: Run) {
    debug_assert!(
        runs.last()
            .is_none_or(|last| last.extent.lba.0 + last.extent.blocks.0 == run.extent.lba.0),
        "runs follow each other without a gap"
    );
    match runs.last_mut() {
        Some(last) if last.allocation == run.allocation => {
            last.extent.blocks.0 += run.extent.blocks.0
        }
        _ => runs.push(run),
    }
}

fn mapped(extent: Extent) -> Run {
    Run {
        extent,
        allocation: Allocation::Mapped,
    }
}

/// Returns the parameter data. A descriptor counts blocks in 32 bits, so a longer run takes several
/// descriptors.
fn parameter_data(runs: &[Run], room: usize) -> Vec<u8> {
    LbaStatusDescriptor::write_list(runs.iter().flat_map(descriptors).take(room))
}

fn descriptors(run: &Run) -> impl Iterator<Item = LbaStatusDescriptor> + use<> {
    let status = match run.allocation {
        Allocation::Mapped => LbaStatus::Mapped,
        Allocation::Deallocated => LbaStatus::Deallocated,
    };
    let chunks = run.extent.chunks(u64::from(u32::MAX));
    chunks.map(move |chunk| LbaStatusDescriptor {
        lba: chunk.lba.0,
        blocks: chunk.blocks.0 as u32,
        status,
    })
}

const HEADER_BYTES: usize = LbaStatusDescriptor::HEADER_BYTES;
const DESCRIPTOR_BYTES: usize = LbaStatusDescriptor::BYTES;
/// Maximum number of descriptors in a response, 16 KiB in total. An initiator that needs more sends another
/// command that starts where they end.
const DESCRIPTORS_MAX: usize = 1024;
/// Maximum number of runs per device query; adjacent runs of one kind may then be merged into fewer.
const RUNS_MAX: usize = 1024;
/// Maximum number of device queries per command. QEMU waits for the response while it starts a guest.
const QUESTIONS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use block::{BlockSize, Blocks};

    use super::*;

    const GEOMETRY: Geometry = Geometry {
        block_size: BlockSize::B512,
        blocks: Blocks(4096),
        physical_exponent: 0,
    };

    fn list(announced: u16, extents: &[(u64, u32)]) -> Vec<u8> {
        let mut list = vec![0; 2];
        list.extend(announced.to_be_bytes());
        list.extend([0; 4]);
        for (lba, blocks) in extents {
            list.extend(lba.to_be_bytes());
            list.extend(blocks.to_be_bytes());
            list.extend([0; 4]);
        }
        list
    }

    #[test]
    fn an_incomplete_last_descriptor_is_ignored() {
        let mut cut = list(32, &[(1, 2), (3, 4)]);
        cut.pop();
        assert_eq!(extents(&cut, GEOMETRY), Ok(vec![Extent::new(1, 2)]));
        assert_eq!(
            extents(&list(31, &[(1, 2), (3, 4)]), GEOMETRY),
            Ok(vec![Extent::new(1, 2)])
        );
    }

    #[test]
    fn no_block_after_the_last_is_no_error_and_one_is() {
        let kept = extents(&list(32, &[(4096, 0), (4095, 1)]), GEOMETRY);
        assert_eq!(
            kept,
            Ok(vec![Extent::new(4095, 1)]),
            "nothing is to be done for no blocks"
        );
        let beyond = extents(&list(16, &[(4096, 1)]), GEOMETRY).expect_err("outside");
        assert_eq!(beyond.asc, asc::LBA_OUT_OF_RANGE);
        assert!(extents(&list(16, &[(u64::MAX, u32::MAX)]), GEOMETRY).is_err());
    }

    #[test]
    fn a_list_without_header_is_too_short() {
        assert_eq!(
            extents(&[0; 7], GEOMETRY),
            Err(Condition::parameter_list_length())
        );
        assert_eq!(extents(&[0; 8], GEOMETRY), Ok(vec![]));
    }

    #[test]
    fn neighbours_of_one_kind_are_one_run() {
        let mut runs = vec![mapped(Extent::new(0, 8))];
        append(&mut runs, mapped(Extent::new(8, 8)));
        append(
            &mut runs,
            Run {
                extent: Extent::new(16, 8),
                allocation: Allocation::Deallocated,
            },
        );
        assert_eq!(runs.len(), 2);
        assert_eq!(runs[0].extent, Extent::new(0, 16));
    }

    #[test]
    fn a_run_longer_than_its_field_takes_two_descriptors() {
        let data = parameter_data(&[mapped(Extent::new(5, (1 << 32) + 1))], 8);
        assert_eq!(data[..4], 36u32.to_be_bytes());
        assert_eq!(data[16..20], u32::MAX.to_be_bytes());
        assert_eq!(data[24..32], (5 + u64::from(u32::MAX)).to_be_bytes());
        assert_eq!(data[32..36], 2u32.to_be_bytes());
    }
}
