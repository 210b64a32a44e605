//! Commands as CDBs (SPC-4, SBC-3).

pub use crate::commands::Cdb;
use crate::commands::{self, CommandCode};
use crate::luns::LunSelection;
use crate::reservations::{ReserveIn, ReserveOut};

/// The action of START STOP UNIT (SBC-3 5.25).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartStop {
    /// Makes the medium ready.
    Start,
    /// Writes the cache to the medium and stops it.
    Stop,
    /// Loads the medium.
    Load,
    /// Ejects the medium.
    Eject,
}

/// TEST UNIT READY (SPC-4 6.45).
pub fn test_unit_ready() -> Cdb {
    [0; 16]
}

/// INQUIRY (SPC-4 6.6) of a vital product data page, or of the standard data.
pub fn inquiry(page: Option<u8>, allocation_bytes: u16) -> Cdb {
    let mut cdb = commands::INQUIRY.cdb();
    cdb[1] = u8::from(page.is_some());
    cdb[2] = page.unwrap_or(0);
    cdb[3..5].copy_from_slice(&allocation_bytes.to_be_bytes());
    cdb
}

/// MODE SENSE(6) (SPC-4 6.12) of one page's current values, without block descriptors.
pub fn mode_sense(page: u8, allocation_bytes: u8) -> Cdb {
    let mut cdb = commands::MODE_SENSE_6.cdb();
    cdb[1] = 1 << 3; // DBD: no block descriptors
    cdb[2] = page;
    cdb[4] = allocation_bytes;
    cdb
}

/// REPORT LUNS (SPC-4 6.33) of all LUNs accessible to this initiator.
pub fn report_luns(allocation_bytes: u32) -> Cdb {
    put(
        commands::REPORT_LUNS.cdb(),
        6,
        allocation_bytes.to_be_bytes(),
    )
}

/// READ CAPACITY(10) (SBC-3 5.15).
pub fn read_capacity_10() -> Cdb {
    commands::READ_CAPACITY_10.cdb()
}

/// READ CAPACITY(16) (SBC-3 5.16).
pub fn read_capacity_16(allocation_bytes: u32) -> Cdb {
    put(
        commands::READ_CAPACITY_16.cdb(),
        10,
        allocation_bytes.to_be_bytes(),
    )
}

/// READ(16) (SBC-3 5.14).
pub fn read_16(lba: u64, blocks: u32) -> Cdb {
    over(commands::READ_16, lba, blocks)
}

/// WRITE(16) (SBC-3 5.38); with `force_unit_access` the data is on the medium before the status is sent.
pub fn write_16(lba: u64, blocks: u32, force_unit_access: bool) -> Cdb {
    put(
        over(commands::WRITE_16, lba, blocks),
        1,
        [u8::from(force_unit_access) << 3],
    )
}

/// READ(10), for targets that do not support the 16-byte form; `None` if the LBA or the length does not fit.
pub fn read_10(lba: u64, blocks: u32) -> Option<Cdb> {
    over_10(commands::READ_10, lba, blocks)
}

/// WRITE(10), for targets that do not support the 16-byte form; `None` if the LBA or the length does not fit.
pub fn write_10(lba: u64, blocks: u32, force_unit_access: bool) -> Option<Cdb> {
    Some(put(
        over_10(commands::WRITE_10, lba, blocks)?,
        1,
        [u8::from(force_unit_access) << 3],
    ))
}

/// SYNCHRONIZE CACHE(10) (SBC-3 5.30) of the whole medium.
pub fn synchronize_cache() -> Cdb {
    commands::SYNCHRONIZE_CACHE_10.cdb()
}

/// WRITE SAME(16) (SBC-3 5.44) of one block of data, which is sent with the command.
pub fn write_same_16(lba: u64, blocks: u32, unmap: bool) -> Cdb {
    put(
        over(commands::WRITE_SAME_16, lba, blocks),
        1,
        [u8::from(unmap) << 3],
    )
}

/// REQUEST SENSE (SPC-4 6.39), for sense data in fixed format.
pub fn request_sense(allocation_bytes: u8) -> Cdb {
    put(commands::REQUEST_SENSE.cdb(), 4, [allocation_bytes])
}

/// START STOP UNIT (SBC-3 5.25).
pub fn start_stop(what: StartStop) -> Cdb {
    let mut cdb = commands::START_STOP_UNIT.cdb();
    cdb[4] = match what {
        StartStop::Stop => 0,
        StartStop::Start => 1, // START
        StartStop::Eject => 2, // LOEJ
        StartStop::Load => 2 | 1,
    };
    cdb
}

/// VERIFY(16) (SBC-3 5.33) of the medium, without data to compare.
pub fn verify_16(lba: u64, blocks: u32) -> Cdb {
    over(commands::VERIFY_16, lba, blocks)
}

/// SANITIZE (SBC-4 5.31): IMMED, AUSE and the service action in one byte.
pub fn sanitize(flags_and_action: u8, parameter_bytes: u16) -> Cdb {
    put(
        put(commands::SANITIZE_OVERWRITE.cdb(), 1, [flags_and_action]),
        7,
        parameter_bytes.to_be_bytes(),
    )
}

/// GET LBA STATUS (SBC-3 5.6).
pub fn get_lba_status(lba: u64, allocation_bytes: u32) -> Cdb {
    put(
        put(commands::GET_LBA_STATUS.cdb(), 2, lba.to_be_bytes()),
        10,
        allocation_bytes.to_be_bytes(),
    )
}

/// MODE SENSE(10) (SPC-4 6.13) of a page. The two highest bits of `page` select the values: 0 current, 1
/// changeable, 2 default, 3 saved.
pub fn mode_sense_10(page: u8, subpage: u8, allocation_bytes: u16) -> Cdb {
    let mut cdb = commands::MODE_SENSE_10.cdb();
    (cdb[2], cdb[3]) = (page, subpage);
    cdb[7..9].copy_from_slice(&allocation_bytes.to_be_bytes());
    cdb
}

/// MODE SENSE(6) (SPC-4 6.12) of a page. `page` also selects the values, as in [`mode_sense_10`].
pub fn mode_sense_6(page: u8, subpage: u8, allocation_bytes: u8) -> Cdb {
    let mut cdb = commands::MODE_SENSE_6.cdb();
    (cdb[2], cdb[3], cdb[4]) = (page, subpage, allocation_bytes);
    cdb
}

/// MODE SELECT(10) (SPC-4 6.11) of pages in the standard format; with `save` they persist across a reset.
pub fn mode_select_10(save: bool, parameter_bytes: u16) -> Cdb {
    put(
        put(commands::MODE_SELECT_10.cdb(), 1, [0x10 | u8::from(save)]),
        7,
        parameter_bytes.to_be_bytes(),
    )
}

/// MODE SELECT(6) (SPC-4 6.10) of pages in the standard format; with `save` they persist across a reset.
pub fn mode_select_6(save: bool, parameter_bytes: u8) -> Cdb {
    let mut cdb = commands::MODE_SELECT_6.cdb();
    (cdb[1], cdb[4]) = (0x10 | u8::from(save), parameter_bytes);
    cdb
}

/// REPORT LUNS with a SELECT REPORT value.
pub fn report_luns_of(which: LunSelection, allocation_bytes: u32) -> Cdb {
    let mut cdb = report_luns(allocation_bytes);
    cdb[2] = which as u8;
    cdb
}

/// REPORT TARGET PORT GROUPS (SPC-4 6.37).
pub fn report_target_port_groups(allocation_bytes: u32) -> Cdb {
    maintenance_in(commands::REPORT_TARGET_PORT_GROUPS, allocation_bytes)
}

/// REPORT SUPPORTED OPERATION CODES (SPC-4 6.35) of all commands, with timeouts.
pub fn report_supported_opcodes(allocation_bytes: u32) -> Cdb {
    let mut cdb = maintenance_in(commands::REPORT_SUPPORTED_OPERATION_CODES, allocation_bytes);
    cdb[2] = 0x80; // RCTD
    cdb
}

/// REPORT SUPPORTED OPERATION CODES of one command, which is selected by its operation code alone, or by its
/// operation code and service action.
pub fn report_one_opcode(opcode: u8, service_action: Option<u16>, allocation_bytes: u32) -> Cdb {
    let mut cdb = report_supported_opcodes(allocation_bytes);
    cdb[2] |= if service_action.is_some() { 2 } else { 1 };
    cdb[3] = opcode;
    cdb[4..6].copy_from_slice(&service_action.unwrap_or(0).to_be_bytes());
    cdb
}

/// PERSISTENT RESERVE IN (SPC-4 6.15).
pub fn persistent_reserve_in(action: ReserveIn, allocation_bytes: u16) -> Cdb {
    put(
        put(
            commands::PERSISTENT_RESERVE_IN_READ_KEYS.cdb(),
            1,
            [action as u8],
        ),
        7,
        allocation_bytes.to_be_bytes(),
    )
}

/// PERSISTENT RESERVE OUT (SPC-4 6.16); the scope is the logical unit.
pub fn persistent_reserve_out(action: ReserveOut, kind: u8, parameter_bytes: u32) -> Cdb {
    let mut cdb = commands::PERSISTENT_RESERVE_OUT_REGISTER.cdb();
    (cdb[1], cdb[2]) = (action as u8, kind);
    cdb[5..9].copy_from_slice(&parameter_bytes.to_be_bytes());
    cdb
}

/// RESERVE(6) (SPC-2 7.21).
pub fn reserve_6() -> Cdb {
    commands::RESERVE_6.cdb()
}

/// RELEASE(6) (SPC-2 7.16).
pub fn release_6() -> Cdb {
    commands::RELEASE_6.cdb()
}

/// UNMAP (SBC-3 5.28).
pub fn unmap(anchor: bool, parameter_bytes: u16) -> Cdb {
    put(
        put(commands::UNMAP.cdb(), 1, [u8::from(anchor)]),
        7,
        parameter_bytes.to_be_bytes(),
    )
}

/// WRITE SAME(10) (SBC-3 5.43); `None` if the LBA or the length does not fit.
pub fn write_same_10(lba: u64, blocks: u32, unmap: bool) -> Option<Cdb> {
    Some(put(
        over_10(commands::WRITE_SAME_10, lba, blocks)?,
        1,
        [u8::from(unmap) << 3],
    ))
}

/// COMPARE AND WRITE (SBC-3 5.2).
pub fn compare_and_write(lba: u64, blocks: u8) -> Cdb {
    put(
        put(commands::COMPARE_AND_WRITE.cdb(), 2, lba.to_be_bytes()),
        13,
        [blocks],
    )
}

/// WRITE ATOMIC(16) (SBC-4 5.48), without a boundary.
pub fn write_atomic_16(lba: u64, blocks: u16) -> Cdb {
    put(
        put(commands::WRITE_ATOMIC_16.cdb(), 2, lba.to_be_bytes()),
        12,
        blocks.to_be_bytes(),
    )
}

/// EXTENDED COPY(LID1) (SPC-4 6.4).
pub fn extended_copy(parameter_bytes: u32) -> Cdb {
    put(
        commands::EXTENDED_COPY_LID1.cdb(),
        10,
        parameter_bytes.to_be_bytes(),
    )
}

/// RECEIVE COPY OPERATING PARAMETERS (SPC-4 6.21).
pub fn receive_copy_operating_parameters(allocation_bytes: u32) -> Cdb {
    put(
        commands::RECEIVE_COPY_OPERATING_PARAMETERS.cdb(),
        10,
        allocation_bytes.to_be_bytes(),
    )
}

/// Writes bytes into a CDB at an offset.
fn put<const N: usize>(mut cdb: Cdb, at: usize, bytes: [u8; N]) -> Cdb {
    debug_assert!(
        (1..=cdb.len() - N).contains(&at),
        "a field after the CDB, or over its operation code"
    );
    cdb[at..at + N].copy_from_slice(&bytes);
    cdb
}

/// A MAINTENANCE IN command whose ALLOCATION LENGTH is in bytes 6 to 9.
fn maintenance_in(command: CommandCode, allocation_bytes: u32) -> Cdb {
    put(command.cdb(), 6, allocation_bytes.to_be_bytes())
}

fn over(command: CommandCode, lba: u64, blocks: u32) -> Cdb {
    put(
        put(command.cdb(), 2, lba.to_be_bytes()),
        10,
        blocks.to_be_bytes(),
    )
}

fn over_10(command: CommandCode, lba: u64, blocks: u32) -> Option<Cdb> {
    debug_assert!(
        (0x20..0x60).contains(&command.opcode),
        "a CDB of another length than ten bytes"
    );
    let mut cdb = command.cdb();
    cdb[2..6].copy_from_slice(&u32::try_from(lba).ok()?.to_be_bytes());
    cdb[7..9].copy_from_slice(&u16::try_from(blocks).ok()?.to_be_bytes());
    Some(cdb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_standard_has_them() {
        let read = read_16(0x0102_0304_0506_0708, 0x090a_0b0c);
        assert_eq!(
            read,
            [0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xa, 0xb, 0xc, 0, 0]
        );
        let write = write_10(0x0102_0304, 0x0506, true).unwrap();
        assert_eq!(write[..10], [0x2a, 8, 1, 2, 3, 4, 0, 5, 6, 0]);
        assert_eq!(inquiry(Some(0xb0), 64)[..6], [0x12, 1, 0xb0, 0, 64, 0]);
    }

    #[test]
    fn short_forms_end_where_their_fields_do() {
        assert!(read_10(1 << 32, 1).is_none());
        assert!(read_10(0, 1 << 16).is_none());
    }
}
