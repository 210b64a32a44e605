//! Atomic commands: COMPARE AND WRITE, ORWRITE(16) and WRITE ATOMIC(16) (SBC-4 5.3, 5.16, 5.48). They hold an
//! exclusive range lock, so overlapping commands neither read nor write a mixture of old and new data.

use block::{Buffer, Compared, Extent};
use scsi::Condition;

use super::read_write;
use crate::access::miscompare;
use crate::command::call::Call;
use crate::failure::Failure;
use crate::plan::{Outcome, Plan};

/// Plans COMPARE AND WRITE. Data-Out has twice the number of blocks in the CDB: first the expected data, then
/// the data to write.
pub(crate) fn plan_compare_and_write(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let geometry = call.geometry();
    read_write::refuse_protection(call.cdb)?;
    let extent = Extent::new(call.cdb.u64(2), u64::from(call.cdb.byte(NUMBER_OF_BLOCKS)));
    read_write::within(extent, geometry)?;
    let half = geometry.length(extent) as u32;
    if extent.is_empty() && call.command.data_out_bytes != 0 {
        // A larger transfer length would not fit in the one-byte field.
        return Err(Condition::invalid_field(NUMBER_OF_BLOCKS as u16).into());
    }
    read_write::exactly(call, half * 2)?;
    if extent.is_empty() {
        return call.good();
    }
    let durability = read_write::durability(&call.view, read_write::fua(call.cdb));
    // Memory for a separate copy of the data to write, and for the data read from the medium.
    let working_bytes = Buffer::memory_bytes(half as usize) + call.unit.piece_memory_bytes(extent);
    call.receive(half * 2, working_bytes, move |access, data| async move {
        let (expected, written) = halves(data, half as usize)?;
        let _excluded = access.locks().exclude(extent).await;
        let (expected, written) = (expected.share(), written.share());
        // Use the storage's own atomic operation if it has one: other users of the storage are not excluded
        // by this server's range lock.
        if let Some(compared) = access.compare_and_store(extent, &expected, &written, durability) {
            return match compared.await? {
                Compared::Written => Ok(Outcome::default()),
                Compared::Differs { offset_bytes } => Err(miscompare(offset_bytes).into()),
            };
        }
        access.compare(extent, &expected, 0).await?;
        access.store(extent, written, durability).await?;
        Ok(Outcome::default())
    })
}

/// Plans ORWRITE, which sets the bits that are 1 in the data.
pub(crate) fn plan_or_write(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let geometry = call.geometry();
    let extent = read_write::transfer_extent(call.cdb, geometry)?;
    if extent.is_empty() {
        return call.good();
    }
    let durability = read_write::durability(&call.view, read_write::fua(call.cdb));
    let bytes = geometry.length(extent) as u32;
    call.receive(
        bytes,
        Buffer::memory_bytes(bytes as usize),
        move |access, data| async move {
            let blocks = data.len() as u64 >> geometry.block_size.shift();
            let extent = Extent::new(extent.lba.0, blocks.min(extent.blocks.0));
            let _excluded = access.locks().exclude(extent).await;
            let mut blocks = access.fetch(extent).await?;
            blocks
                .iter_mut()
                .zip(data.iter())
                .for_each(|(block, bits)| *block |= bits);
            access.store(extent, blocks.share(), durability).await?;
            Ok(Outcome::default())
        },
    )
}

pub(crate) fn plan_write_atomic(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let geometry = call.geometry();
    read_write::refuse_protection(call.cdb)?;
    if call.cdb.u16(ATOMIC_BOUNDARY) != 0 {
        // MAXIMUM ATOMIC BOUNDARY SIZE is 0: no boundary can be requested.
        return Err(Condition::invalid_field(ATOMIC_BOUNDARY as u16).into());
    }
    let extent = Extent::new(call.cdb.u64(2), u64::from(call.cdb.u16(12)));
    read_write::within(extent, geometry)?;
    if extent.blocks.0 > read_write::atomic_blocks_max(geometry) {
        return Err(Condition::invalid_field(12).into());
    }
    if extent.is_empty() {
        return call.good();
    }
    let bytes = geometry.length(extent) as u32;
    read_write::exactly(call, bytes)?;
    let durability = read_write::durability(&call.view, read_write::fua(call.cdb));
    call.receive(bytes, 0, move |access, data| async move {
        read_write::whole(&data, bytes as usize)?;
        let _excluded = access.locks().exclude(extent).await;
        access.store(extent, data.share(), durability).await?;
        Ok(Outcome::default())
    })
}

fn halves(data: Buffer, half: usize) -> Result<(Buffer, Buffer), Condition> {
    read_write::whole(&data, half * 2)?;
    let written = Buffer::from(&data[half..]);
    let mut expected = data;
    expected.truncate(half);
    Ok((expected, written))
}

/// NUMBER OF LOGICAL BLOCKS of COMPARE AND WRITE.
const NUMBER_OF_BLOCKS: usize = 13;
/// ATOMIC BOUNDARY of WRITE ATOMIC(16).
const ATOMIC_BOUNDARY: usize = 10;
