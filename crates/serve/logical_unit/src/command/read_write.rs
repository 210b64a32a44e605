//! READ, WRITE, VERIFY, WRITE AND VERIFY, SYNCHRONIZE CACHE and PRE-FETCH in all lengths (SBC-3 5.9 to 5.16,
//! 5.24 to 5.37). Also the checks and limits shared by all commands that address blocks: extents, protection
//! fields, FUA.

use block::{Buffer, Durability, Extent, Geometry, Shared, WholeBlocks};
use scsi::{Condition, SenseKey, asc};

use crate::access::give_way;
use crate::cdb::{Cdb, Layout};
use crate::command::call::Call;
use crate::failure::Failure;
use crate::nexus::View;
use crate::plan::{DataIn, Job, Landing, Outcome, Plan, Receive, Reply, Work};

pub(crate) fn plan_read(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let geometry = call.geometry();
    let extent = transfer_extent(call.cdb, geometry)?;
    let wanted = geometry.length(extent);
    if call.command.data_out_bytes > 0 {
        return declared_a_write(call, wanted);
    }
    let bytes = wanted.min(u64::from(call.command.data_in_bytes)) as u32;
    // A partially transferred block is not counted.
    call.nexus
        .counters
        .count_read(u64::from(bytes) >> geometry.block_size.shift());
    if bytes == 0 {
        return Ok(Plan::Reply(Reply::good(wanted)));
    }
    let fua = fua(call.cdb) && call.view.volatile_cache;
    if u64::from(bytes) == wanted
        && !fua
        && !call.command.stage
        && let Some(data) = from_memory(call, extent)
    {
        return Ok(Plan::Reply(Reply {
            data,
            ..Reply::good(wanted)
        }));
    }
    // Blocks that do not fit the initiator's buffer are not read.
    let blocks = u64::from(bytes).div_ceil(u64::from(geometry.block_size.bytes()));
    let extent = Extent::new(extent.lba.0, blocks);
    let work = Work::Read {
        extent,
        bytes,
        flush: fua,
    };
    Ok(Plan::Run(Job {
        working_bytes: Buffer::memory_bytes(bytes as usize),
        ..call.job(work, wanted)
    }))
}

/// Plans a READ that the initiator has declared as a write. No block is read or returned. This cannot damage
/// the medium, so the command completes with GOOD. The residual count reports an overflow by the whole length
/// of the blocks (RFC 7143 11.4.5.1), as libiscsi's iSCSIResiduals.Read10Invalid expects.
#[cold]
fn declared_a_write(call: &Call<'_>, wanted: u64) -> Result<Plan, Failure> {
    call.command.takes_data()?;
    Ok(Plan::Reply(Reply::good(
        u64::from(call.command.data_out_bytes) + wanted,
    )))
}

/// Returns the blocks in the device's own memory, without a copy. `None` if the device is not memory, or an
/// atomic write has locked the blocks.
fn from_memory(call: &Call<'_>, extent: Extent) -> Option<DataIn> {
    let region = call.unit.device().memory(extent)?;
    let lock = call.unit.locks().try_share(extent)?;
    Some(DataIn::Region(region, Some(lock)))
}

pub(crate) fn plan_write(call: &mut Call<'_>) -> Result<Plan, Failure> {
    call.command.takes_data()?;
    let geometry = call.geometry();
    let extent = transfer_extent(call.cdb, geometry)?;
    let durability = durability(&call.view, fua(call.cdb));
    let wanted = geometry.length(extent);
    let bytes = wanted.min(u64::from(call.command.data_out_bytes)) as u32;
    call.nexus
        .counters
        .count_write(u64::from(bytes) >> geometry.block_size.shift());
    if bytes == 0 {
        return Ok(Plan::Reply(Reply::good(wanted)));
    }
    let whole = u64::from(bytes) == wanted;
    let direct = whole && !call.command.stage && durability == Durability::Cached;
    if direct && let Some((blocks, lock)) = onto_memory(call, extent) {
        let job = call.job(Work::Placed(extent, lock), wanted);
        debug_assert_eq!(blocks.len(), bytes as usize, "the data fill their blocks");
        return Ok(Plan::Receive(Receive {
            bytes,
            place: Landing::Memory(blocks),
            job,
        }));
    }
    let job = call.job(Work::Write(extent, durability), wanted);
    Ok(Plan::Receive(Receive {
        bytes,
        place: Landing::Buffer,
        job,
    }))
}

/// Returns the blocks in the device's own memory, and their lock. `None` if the device is not memory, or an
/// atomic write has locked the blocks. Nothing is checked again after the data has been received. Therefore
/// the checks that were made before the lock was taken must still be valid now: a SANITIZE on another core
/// could have processed these blocks in between. A later SANITIZE waits for the lock.
fn onto_memory(call: &Call<'_>, extent: Extent) -> Option<(WholeBlocks, Shared)> {
    let lock = call.unit.locks().try_share(extent)?;
    if call.unit.generation() != call.view.generation {
        return None;
    }
    let blocks = call.unit.device().memory_to_write(extent)?;
    Some((blocks, lock))
}

// VERIFY(10), (12) and (16) and WRITE AND VERIFY(10), (12) and (16) (SBC-3 5.24 to 5.29, 5.34 to 5.37).

/// BYTCHK: the data with which the medium is compared (SBC-3 table 93).
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteCheck {
    /// Nothing: the blocks must only be readable.
    Readable,
    /// The data, block by block.
    Data,
    /// One block of data, compared with every block.
    OneBlock,
}

impl ByteCheck {
    fn from_cdb(cdb: Cdb<'_>) -> Result<ByteCheck, Condition> {
        match cdb.byte(1) >> 1 & 3 {
            0 => Ok(ByteCheck::Readable),
            1 => Ok(ByteCheck::Data),
            3 => Ok(ByteCheck::OneBlock),
            _ => Err(Condition::invalid_bit(1, 2)),
        }
    }
}

pub(crate) fn plan_verify(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let geometry = call.geometry();
    let check = ByteCheck::from_cdb(call.cdb)?;
    let extent = match check {
        ByteCheck::Data => transfer_extent(call.cdb, geometry)?,
        ByteCheck::Readable | ByteCheck::OneBlock => unlimited_extent(call.cdb, geometry)?,
    };
    if extent.is_empty() {
        return call.good();
    }
    let piece_memory_bytes = call.unit.piece_memory_bytes(extent);
    match check {
        ByteCheck::Readable => call.run(piece_memory_bytes, move |access| async move {
            access.scan(extent).await?;
            Ok(Outcome::default())
        }),
        ByteCheck::Data => call.receive(
            geometry.length(extent) as u32,
            piece_memory_bytes,
            move |access, data| async move {
                let _shared = access.locks().share(extent).await;
                access
                    .compare(received(extent, &data, geometry), &data, 0)
                    .await?;
                Ok(Outcome::default())
            },
        ),
        ByteCheck::OneBlock => {
            call.receive(
                geometry.block_size.bytes(),
                piece_memory_bytes,
                move |access, data| async move {
                    // The blocks are locked and read piece by piece, so that other commands do not wait for the
                    // whole extent.
                    for piece in access.pieces(extent) {
                        let _shared = access.locks().share(piece).await;
                        let done = Extent::new(extent.lba.0, piece.lba.0 - extent.lba.0);
                        access.compare(piece, &data, geometry.length(done)).await?;
                        give_way().await;
                    }
                    Ok(Outcome::default())
                },
            )
        }
    }
}

/// Writes the data, then reads it back from the medium.
pub(crate) fn plan_write_and_verify(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let geometry = call.geometry();
    let check = ByteCheck::from_cdb(call.cdb)?;
    if check == ByteCheck::OneBlock {
        return Err(Condition::invalid_bit(1, 2).into());
    }
    let extent = transfer_extent(call.cdb, geometry)?;
    if extent.is_empty() {
        return call.good();
    }
    let piece_memory_bytes = call.unit.piece_memory_bytes(extent);
    call.receive(
        geometry.length(extent) as u32,
        piece_memory_bytes,
        move |access, mut data| async move {
            let extent = received(extent, &data, geometry);
            data.truncate(geometry.length(extent) as usize);
            // Exclude concurrent writes, which would cause a miscompare.
            let _excluded = access.locks().exclude(extent).await;
            let data = data.share();
            access
                .store(extent, data.clone(), Durability::Stable)
                .await?;
            match check {
                ByteCheck::Data => access.compare(extent, &data, 0).await?,
                ByteCheck::Readable | ByteCheck::OneBlock => access.scan(extent).await?,
            }
            Ok(Outcome::default())
        },
    )
}

/// Returns the blocks for which data was received: the initiator may offer less than the CDB specifies.
fn received(extent: Extent, data: &Buffer, geometry: block::Geometry) -> Extent {
    let blocks = data.len() as u64 >> geometry.block_size.shift();
    Extent::new(extent.lba.0, blocks.min(extent.blocks.0))
}

/// Plans SYNCHRONIZE CACHE, which flushes all blocks to stable storage, whichever blocks the CDB names. Even
/// with IMMED, GOOD is returned only after the flush: an earlier response would not be useful.
pub(crate) fn plan_synchronize(call: &mut Call<'_>) -> Result<Plan, Failure> {
    within(call.cdb.extent(), call.geometry())?;
    call.run(0, |access| async move {
        access.flush().await?;
        Ok(Outcome::default())
    })
}

/// Plans PRE-FETCH, which reads nothing: Linerate has no cache to fetch into, and the device manages its own.
/// GOOD means that not all blocks are in the cache; CONDITION MET would guarantee that they are.
pub(crate) fn plan_prefetch(call: &mut Call<'_>) -> Result<Plan, Failure> {
    within(call.cdb.extent(), call.geometry())?;
    call.good()
}

// Checks common to READ, WRITE, VERIFY and similar commands: their extent, protection fields, FUA.

/// The longest transfer of one command (VPD page B0h, MAXIMUM TRANSFER LENGTH). A session must be able to
/// hold this amount in memory. libiscsi's WriteSame16.Unmap assumes that a command can write 65,536 blocks if
/// WRITE SAME can address that many.
pub(crate) const TRANSFER_BYTES_MAX: u64 = 32 << 20;

/// [`TRANSFER_BYTES_MAX`] in blocks.
pub(crate) fn transfer_blocks_max(geometry: Geometry) -> u64 {
    TRANSFER_BYTES_MAX >> geometry.block_size.shift()
}

/// MAXIMUM ATOMIC TRANSFER LENGTH. Longer transfers would block other writers for too long.
pub(crate) fn atomic_blocks_max(geometry: Geometry) -> u64 {
    ATOMIC_BYTES_MAX >> geometry.block_size.shift()
}

/// The maximum that fits in the one-byte fields of the block limits page and the CDB.
pub(crate) const COMPARE_AND_WRITE_BLOCKS_MAX: u8 = 255;
/// The maximum of one UNMAP: 512 MiB of 512-byte blocks. Discarding a terabyte takes two thousand commands,
/// each of which completes quickly.
pub(crate) const UNMAP_BLOCKS_MAX: u32 = 1 << 20;
/// Maximum number of descriptors in one UNMAP. A parameter list of 64 KiB could contain more, but initiators
/// send far fewer.
pub(crate) const UNMAP_DESCRIPTORS_MAX: u32 = 256;
/// The same limit as for UNMAP.
pub(crate) const WRITE_SAME_BLOCKS_MAX: u64 = 1 << 20;
/// 512 blocks of 4 KiB.
pub(crate) const ATOMIC_BYTES_MAX: u64 = 2 << 20;

/// WSNZ (VPD page B0h). Some programs expect a WRITE SAME of zero blocks with UNMAP to unmap all blocks to
/// the end, whatever the data (libiscsi's UnmapUntilEnd sends FFh and expects zeros). Units that support
/// UNMAP therefore reject a WRITE SAME of zero blocks.
pub(crate) fn refuses_zero_blocks(call: &Call<'_>) -> bool {
    call.unit.thin()
}

/// Returns the blocks that a command addresses. Rejects blocks outside the medium, and more blocks than one
/// command may transfer.
pub(crate) fn transfer_extent(cdb: Cdb<'_>, geometry: Geometry) -> Result<Extent, Condition> {
    let extent = unlimited_extent(cdb, geometry)?;
    if extent.blocks.0 > transfer_blocks_max(geometry) {
        return Err(Condition::invalid_field(cdb.layout().length_at()));
    }
    Ok(extent)
}

/// Returns the blocks that a command without data transfer addresses. Rejects blocks outside the medium.
pub(crate) fn unlimited_extent(cdb: Cdb<'_>, geometry: Geometry) -> Result<Extent, Condition> {
    refuse_protection(cdb)?;
    let extent = cdb.extent();
    within(extent, geometry)?;
    Ok(extent)
}

/// Returns LBA OUT OF RANGE unless all blocks exist. The block after the last is out of range even if no
/// blocks are requested (SBC-3 4.4: an LBA names a block).
pub(crate) fn within(extent: Extent, geometry: Geometry) -> Result<(), Condition> {
    if geometry.contains(extent) && extent.lba.0 < geometry.blocks.0 {
        return Ok(());
    }
    Err(Condition::new(
        SenseKey::IllegalRequest,
        asc::LBA_OUT_OF_RANGE,
    ))
}

/// RDPROTECT, WRPROTECT and VRPROTECT must be zero, because the medium has no protection information (SBC-3
/// tables 80, 118 and 92). In six-byte commands, these bits belong to the LBA.
pub(crate) fn refuse_protection(cdb: Cdb<'_>) -> Result<(), Condition> {
    if cdb.layout() != Layout::Six && cdb.byte(1) & 0xe0 != 0 {
        return Err(Condition::invalid_bit(1, 7));
    }
    Ok(())
}

/// FUA: bit 3 of byte 1, except in six-byte commands.
pub(crate) fn fua(cdb: Cdb<'_>) -> bool {
    cdb.layout() != Layout::Six && cdb.bit(1, 3)
}

/// Returns the durability that a write must have before it is acknowledged, by the CDB's FUA bit and the mode
/// of the write cache. Without a volatile cache, every write is stable anyway.
pub(crate) fn durability(view: &View, fua: bool) -> Durability {
    if view.volatile_cache && (fua || view.write_through) {
        Durability::Stable
    } else {
        Durability::Cached
    }
}

/// Rejects a command if the initiator offers more or less data than the CDB requires: the command cannot be
/// executed in part.
pub(crate) fn exactly(call: &Call<'_>, bytes: u32) -> Result<(), Condition> {
    (call.command.data_out_bytes == bytes)
        .then_some(())
        .ok_or(Condition::INVALID_INFORMATION_UNIT)
}

/// Checks the length of the received data, in case a front end passed a length other than the requested one.
pub(crate) fn whole(data: &Buffer, bytes: usize) -> Result<(), Condition> {
    (data.len() == bytes)
        .then_some(())
        .ok_or(Condition::INVALID_INFORMATION_UNIT)
}
