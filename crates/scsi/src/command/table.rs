//! The table of commands.

use super::*;

/// Every command, those of one operation code side by side, in ascending order: REPORT SUPPORTED OPERATION
/// CODES lists them as they stand here.
pub(crate) static TABLE: &[Command] = &[
    Command::new("TEST UNIT READY", &[0x00, 0, 0, 0, 0, 0x04], ready::plan).needs_medium(),
    Command::new("REQUEST SENSE", &[0x03, 0x01, 0, 0, 0xff, 0x04], request_sense::plan).always(),
    Command::new("READ(6)", &[0x08, 0x1f, 0xff, 0xff, 0xff, 0x04], read::plan).reads(),
    Command::new("WRITE(6)", &[0x0a, 0x1f, 0xff, 0xff, 0xff, 0x04], write::plan).writes(),
    Command::new("INQUIRY", &[0x12, 0x01, 0xff, 0xff, 0xff, 0x04], inquiry::plan).always(),
    Command::new("READ CAPACITY(10)", &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0x04], capacity::plan_10)
        .needs_medium(),
    Command::new("READ(10)", &[0x28, 0xf8, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0x04], read::plan).reads(),
    Command::new("WRITE(10)", &[0x2a, 0xf8, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0x04], write::plan)
        .writes(),
    Command::new("READ(16)", &TRANSFER_16_READ, read::plan).reads(),
    Command::new("WRITE(16)", &TRANSFER_16_WRITE, write::plan).writes(),
    Command::new(
        "READ CAPACITY(16)",
        &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x04],
        capacity::plan_16,
    )
    .action()
    .needs_medium(),
    Command::new("REPORT LUNS", &[0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x04], luns::plan)
        .always(),
    Command::new("READ(12)", &TRANSFER_12_READ, read::plan).reads(),
    Command::new("WRITE(12)", &TRANSFER_12_WRITE, write::plan).writes(),
];

const TRANSFER_12_READ: [u8; 12] = transfer_12(0xa8);
const TRANSFER_12_WRITE: [u8; 12] = transfer_12(0xaa);
const TRANSFER_16_READ: [u8; 16] = transfer_16(0x88);
const TRANSFER_16_WRITE: [u8; 16] = transfer_16(0x8a);

/// Protection, DPO, FUA, LBA and length are looked at.
const fn transfer_12(opcode: u8) -> [u8; 12] {
    [opcode, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]
}

const fn transfer_16(opcode: u8) -> [u8; 16] {
    [opcode, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x04]
}
