//! READ(6), (10), (12) and (16) (SBC-3 5.11 to 5.14).

use block::{Buffer, Extent};

use super::{Call, transfer};
use crate::failure::Failure;
use crate::plan::{DataIn, Job, Plan, Reply, Work};

pub(crate) fn plan(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let geometry = call.geometry();
    let extent = transfer::extent(call.cdb, geometry)?;
    let wanted = geometry.length(extent);
    if call.command.data_out_bytes > 0 {
        return declared_a_write(call, wanted);
    }
    let bytes = wanted.min(u64::from(call.command.data_in_bytes)) as u32;
    // A block of which only a part is wanted is not one that was sent.
    call.nexus.counters.count_read(u64::from(bytes) >> geometry.block_size.shift());
    if bytes == 0 {
        return Ok(Plan::Reply(Reply::good(wanted)));
    }
    let fua = transfer::fua(call.cdb) && call.view.volatile_cache;
    if u64::from(bytes) == wanted
        && !fua
        && !call.command.stage
        && let Some(reply) = from_memory(call, extent)
    {
        return Ok(Plan::Reply(reply));
    }
    // Blocks that the initiator has no room for are not read.
    let blocks = u64::from(bytes).div_ceil(u64::from(geometry.block_size.bytes()));
    let extent = Extent::new(extent.lba.0, blocks);
    let work = Work::Read { extent, bytes, flush: fua };
    Ok(Plan::Run(Job { working_bytes: Buffer::memory_bytes(bytes as usize), ..call.job(work, wanted) }))
}

/// The initiator has declared a write, so no block is read or returned. That cannot damage the medium, so the
/// command ends with GOOD: its residual count is an overflow by the whole length of the blocks (RFC 7143
/// 11.4.5.1), as libiscsi's iSCSIResiduals.Read10Invalid expects.
#[cold]
fn declared_a_write(call: &Call<'_>, wanted: u64) -> Result<Plan, Failure> {
    call.command.takes_data()?;
    Ok(Plan::Reply(Reply::good(u64::from(call.command.data_out_bytes) + wanted)))
}

/// The blocks where they lie, if they lie in memory and no atomic write is at work on them.
fn from_memory(call: &Call<'_>, extent: Extent) -> Option<Reply> {
    let region = call.unit.device().memory(extent)?;
    let lock = call.unit.locks().try_share(extent)?;
    Some(Reply::data(DataIn::Region(region, Some(lock)), call.command.data_in_bytes))
}
