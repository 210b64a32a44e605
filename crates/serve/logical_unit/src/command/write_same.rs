//! WRITE SAME(10) and (16) (SBC-4 5.50 and 5.51; SBC-3 5.43 and 5.44): one block of data for many.
//!
//! UNMAP is a hint: the blocks may be unmapped only if they read afterwards as if they had been written.
//! Unmapped blocks read as zeros (LBPRZ), so blocks of zeros are unmapped, and any other data are written.

use block::{Buffer, Durability, Extent};
use scsi::Condition;

use super::{Call, atomic, transfer, vpd};
use crate::cdb::Layout;
use crate::failure::Failure;
use crate::plan::{Outcome, Plan};
use crate::unit::{DeviceAccess, give_way};

pub(crate) fn plan(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let geometry = call.geometry();
    let unmap = call.cdb.bit(1, UNMAP);
    refuse_flags(call, unmap)?;
    let extent = extent(call)?;
    // NDOB: no data-out buffer; the blocks become zeros.
    let no_data = call.cdb.layout() == Layout::Sixteen && call.cdb.bit(1, NDOB);
    let bytes = if no_data { 0 } else { geometry.block_size.bytes() };
    atomic::exactly(call, bytes)?;
    let stable = transfer::durability(&call.view, false) == Durability::Stable;
    call.receive(bytes, call.unit.piece_memory_bytes(extent), move |access, block| async move {
        atomic::whole(&block, bytes as usize)?;
        let _shared = access.locks().share(extent).await;
        // "Subsequent read operations behave as if the device server wrote the single block of user data
        // received" (SBC-4 5.50). LIO, tgt and Linux's scsi_debug unmap whatever the data are.
        if block.iter().all(|byte| *byte == 0) {
            access.write_zeroes(extent, unmap).await?;
        } else {
            repeat(&access, extent, &block).await?;
        }
        if stable {
            access.flush().await?;
        }
        Ok(Outcome::default())
    })
}

fn refuse_flags(call: &Call<'_>, unmap: bool) -> Result<(), Condition> {
    transfer::refuse_protection(call.cdb)?;
    if call.cdb.bit(1, ANCHOR) {
        // ANC_SUP is zero.
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

/// The blocks named; 0 of them means all to the end of the medium, unless WSNZ is one.
fn extent(call: &Call<'_>) -> Result<Extent, Condition> {
    let mut extent = call.cdb.extent();
    transfer::within(extent, call.geometry())?;
    if extent.is_empty() && !refuses_zero_blocks(call) {
        extent = Extent::new(extent.lba.0, call.geometry().blocks.0 - extent.lba.0);
    } else if extent.is_empty() {
        return Err(Condition::invalid_field(call.cdb.layout().length_at()));
    }
    if extent.blocks.0 > vpd::WRITE_SAME_BLOCKS_MAX {
        return Err(Condition::invalid_field(call.cdb.layout().length_at()));
    }
    Ok(extent)
}

/// WSNZ (VPD page B0h). Programs take a WRITE SAME of zero blocks with UNMAP for "unmap all to the end",
/// whatever the data (libiscsi's UnmapUntilEnd sends FFh and wants zeros): where blocks can be unmapped, it
/// is not on offer.
pub(crate) fn refuses_zero_blocks(call: &Call<'_>) -> bool {
    call.unit.thin()
}

async fn repeat(access: &DeviceAccess, extent: Extent, block: &[u8]) -> Result<(), Failure> {
    let geometry = access.device().geometry();
    let Some(longest) = access.pieces(extent).next() else { return Ok(()) };
    let mut pattern = Buffer::recycled(geometry.length(longest) as usize);
    pattern.chunks_exact_mut(block.len()).for_each(|copy| copy.copy_from_slice(block));
    let pattern = pattern.share();
    for piece in access.pieces(extent) {
        // The first piece is the longest, so there is always that much of the pattern.
        let data = pattern.part(0..geometry.length(piece) as usize).unwrap_or_else(|| pattern.clone());
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
