//! Checks common to READ, WRITE, VERIFY and similar commands: the extent they name, protection fields, FUA.

use block::{Durability, Extent, Geometry};
use scsi::{Condition, SenseKey, asc};

use crate::cdb::{Cdb, Layout};
use crate::nexus::View;

/// The longest transfer of one command (VPD page B0h, MAXIMUM TRANSFER LENGTH), which a session must be able
/// to hold in memory. libiscsi's WriteSame16.Unmap assumes that 65,536 blocks can be written at once where
/// WRITE SAME can name as many.
pub(crate) const TRANSFER_BYTES_MAX: u64 = 32 << 20;

/// The same in blocks.
pub(crate) fn transfer_blocks_max(geometry: Geometry) -> u64 {
    TRANSFER_BYTES_MAX >> geometry.block_size.shift()
}

/// The blocks a command names, none of them outside the medium, and no more than may be moved at once.
pub(crate) fn extent(cdb: Cdb<'_>, geometry: Geometry) -> Result<Extent, Condition> {
    let extent = unlimited_extent(cdb, geometry)?;
    if extent.blocks.0 > transfer_blocks_max(geometry) {
        return Err(Condition::invalid_field(cdb.layout().length_at()));
    }
    Ok(extent)
}

/// The same for commands that move no data.
pub(crate) fn unlimited_extent(cdb: Cdb<'_>, geometry: Geometry) -> Result<Extent, Condition> {
    refuse_protection(cdb)?;
    let extent = cdb.extent();
    within(extent, geometry)?;
    Ok(extent)
}

/// LBA OUT OF RANGE unless all blocks exist. The block after the last is outside even where no blocks are
/// asked for (SBC-3 4.4: an LBA names a block).
pub(crate) fn within(extent: Extent, geometry: Geometry) -> Result<(), Condition> {
    if geometry.contains(extent) && extent.lba.0 < geometry.blocks.0 {
        return Ok(());
    }
    Err(Condition::new(SenseKey::IllegalRequest, asc::LBA_OUT_OF_RANGE))
}

/// RDPROTECT, WRPROTECT and VRPROTECT: the medium has no protection information, so they must be zero
/// (SBC-3 tables 80, 118 and 92). Six-byte commands have LBA bits there.
pub(crate) fn refuse_protection(cdb: Cdb<'_>) -> Result<(), Condition> {
    if cdb.layout() != Layout::Six && cdb.byte(1) & 0xe0 != 0 {
        return Err(Condition::invalid_bit(1, 7));
    }
    Ok(())
}

/// FUA: bit 3 of byte 1, but in six-byte commands.
pub(crate) fn fua(cdb: Cdb<'_>) -> bool {
    cdb.layout() != Layout::Six && cdb.bit(1, 3)
}

/// When a write may be acknowledged: the CDB's FUA bit and the write cache decide. Where nothing is lost in a
/// crash of this process, every write is stable as it is.
pub(crate) fn durability(view: &View, fua: bool) -> Durability {
    if view.volatile_cache && (fua || view.write_through) { Durability::Stable } else { Durability::Cached }
}
