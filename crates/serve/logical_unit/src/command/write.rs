//! WRITE(6), (10), (12) and (16) (SBC-3 5.30 to 5.33).

use block::{Durability, Extent, Shared, WholeBlocks};

use super::{Call, transfer};
use crate::failure::Failure;
use crate::plan::{Landing, Plan, Receive, Reply, Work};

pub(crate) fn plan(call: &mut Call<'_>) -> Result<Plan, Failure> {
    call.command.takes_data()?;
    let geometry = call.geometry();
    let extent = transfer::extent(call.cdb, geometry)?;
    let durability = transfer::durability(&call.view, transfer::fua(call.cdb));
    let wanted = geometry.length(extent);
    let bytes = wanted.min(u64::from(call.command.data_out_bytes)) as u32;
    call.nexus.counters.count_write(u64::from(bytes) >> geometry.block_size.shift());
    if bytes == 0 {
        return Ok(Plan::Reply(Reply::good(wanted)));
    }
    let whole = u64::from(bytes) == wanted;
    let direct = whole && !call.command.stage && durability == Durability::Cached;
    if direct && let Some((blocks, lock)) = onto_memory(call, extent) {
        let job = call.job(Work::Placed(extent, lock), wanted);
        return Ok(Plan::Receive(Receive { bytes, place: Landing::Memory(blocks), job }));
    }
    let job = call.job(Work::Write(extent, durability), wanted);
    Ok(Plan::Receive(Receive { bytes, place: Landing::Buffer, job }))
}

/// The place of the blocks on the medium, if it is memory and no atomic write is at work there. Nothing is
/// checked again when the data have landed, so what was checked before the lock was taken must still hold: a
/// SANITIZE on another core could have passed these blocks in between. One that begins later waits for the
/// lock.
fn onto_memory(call: &Call<'_>, extent: Extent) -> Option<(WholeBlocks, Shared)> {
    let lock = call.unit.locks().try_share(extent)?;
    if call.unit.generation() != call.view.generation {
        return None;
    }
    let blocks = call.unit.device().memory_to_write(extent)?;
    Some((blocks, lock))
}
