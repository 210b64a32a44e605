//! VERIFY(10), (12) and (16) and WRITE AND VERIFY(10), (12) and (16) (SBC-3 5.24 to 5.29, 5.34 to 5.37).

use block::{Buffer, Durability, Extent};
use scsi::Condition;

use super::{Call, transfer};
use crate::cdb::Cdb;
use crate::failure::Failure;
use crate::plan::{Outcome, Plan};
use crate::unit::give_way;

/// BYTCHK: what to compare the medium with (SBC-3 table 93).
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteCheck {
    /// Nothing: it is enough that it can be read.
    Readable,
    /// The data, block by block.
    Data,
    /// One block of data, with every block.
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

pub(crate) fn plan(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let geometry = call.geometry();
    let check = ByteCheck::from_cdb(call.cdb)?;
    let extent = match check {
        ByteCheck::Data => transfer::extent(call.cdb, geometry)?,
        ByteCheck::Readable | ByteCheck::OneBlock => transfer::unlimited_extent(call.cdb, geometry)?,
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
        ByteCheck::Data => {
            call.receive(geometry.length(extent) as u32, piece_memory_bytes, move |access, data| async move {
                let _shared = access.locks().share(extent).await;
                access.compare(received(extent, &data, geometry), &data, 0).await?;
                Ok(Outcome::default())
            })
        }
        ByteCheck::OneBlock => {
            call.receive(geometry.block_size.bytes(), piece_memory_bytes, move |access, data| async move {
                // Piece by piece, so that other commands do not wait for the whole medium.
                for piece in access.pieces(extent) {
                    let _shared = access.locks().share(piece).await;
                    let done = Extent::new(extent.lba.0, piece.lba.0 - extent.lba.0);
                    access.compare(piece, &data, geometry.length(done)).await?;
                    give_way().await;
                }
                Ok(Outcome::default())
            })
        }
    }
}

/// Writes, and reads back what is then on the medium.
pub(crate) fn plan_write(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let geometry = call.geometry();
    let check = ByteCheck::from_cdb(call.cdb)?;
    if check == ByteCheck::OneBlock {
        return Err(Condition::invalid_bit(1, 2).into());
    }
    let extent = transfer::extent(call.cdb, geometry)?;
    if extent.is_empty() {
        return call.good();
    }
    let piece_memory_bytes = call.unit.piece_memory_bytes(extent);
    call.receive(geometry.length(extent) as u32, piece_memory_bytes, move |access, mut data| async move {
        let extent = received(extent, &data, geometry);
        data.truncate(geometry.length(extent) as usize);
        // Other writes in between would cause a miscompare.
        let _excluded = access.locks().exclude(extent).await;
        let data = data.share();
        access.store(extent, data.clone(), Durability::Stable).await?;
        match check {
            ByteCheck::Data => access.compare(extent, &data, 0).await?,
            ByteCheck::Readable | ByteCheck::OneBlock => access.scan(extent).await?,
        }
        Ok(Outcome::default())
    })
}

/// The blocks for which data have come: the initiator may offer less than the CDB names.
fn received(extent: Extent, data: &Buffer, geometry: block::Geometry) -> Extent {
    let blocks = data.len() as u64 >> geometry.block_size.shift();
    Extent::new(extent.lba.0, blocks.min(extent.blocks.0))
}
