//! SCSI Command (RFC 7143 section 11.3).

use num_enum::TryFromPrimitive;

use super::bhs::FINAL;
use super::{Bhs, Itt, Lun, Malformed, Opcode};
use crate::serial::Sn;

/// A SCSI command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiCommand {
    /// I: immediate delivery, outside the CmdSN order.
    pub immediate: bool,
    /// F: no unsolicited Data-Out follows.
    pub is_final: bool,
    /// R: the command reads.
    pub read: bool,
    /// W: the command writes.
    pub write: bool,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Additional header segments, all together, in bytes (a multiple of 4, at most 1020); see [`super::Ahs`].
    pub total_ahs_length: usize,
    /// Immediate data, in bytes without padding.
    pub data_segment_length: u32,
    /// The logical unit's address.
    pub lun: Lun,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// EDTL: bytes that the initiator expects to move; of a bidirectional command, to write.
    pub expected_data_transfer_length: u32,
    /// CmdSN.
    pub cmd_sn: Sn,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
    /// The first sixteen bytes of the CDB, shorter ones filled with zeros.
    pub cdb: [u8; 16],
}

/// Task attribute (SAM-5 section 8.9), as section 11.3.1 numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, TryFromPrimitive)]
#[repr(u8)]
pub enum TaskAttribute {
    /// As the device server's defaults have it.
    Untagged = 0,
    /// In any order among other simple tasks.
    #[default]
    Simple = 1,
    /// After all older tasks, before all younger.
    Ordered = 2,
    /// Before all others.
    HeadOfQueue = 3,
    /// To clear an auto contingent allegiance.
    Aca = 4,
}

impl ScsiCommand {
    /// A command with the attribute Simple that moves no data, with an ExpStatSN of 0.
    pub fn simple(lun: Lun, itt: Itt, cmd_sn: Sn, cdb: [u8; 16]) -> ScsiCommand {
        ScsiCommand {
            immediate: false,
            is_final: true,
            read: false,
            write: false,
            attribute: TaskAttribute::Simple,
            total_ahs_length: 0,
            data_segment_length: 0,
            lun,
            itt,
            expected_data_transfer_length: 0,
            cmd_sn,
            exp_stat_sn: Sn(0),
            cdb,
        }
    }

    /// Takes the header apart. The additional header segments are [`super::Ahs`]'s to read.
    pub fn parse(bhs: &Bhs) -> Result<ScsiCommand, Malformed> {
        bhs.expect_opcode(Opcode::ScsiCommand)?;
        let command = ScsiCommand {
            immediate: bhs.immediate(),
            is_final: bhs.flag(FINAL),
            read: bhs.flag(READ),
            write: bhs.flag(WRITE),
            attribute: TaskAttribute::try_from(bhs.u8(1) & ATTRIBUTE_MASK)
                .map_err(|_| Malformed::ReservedAttribute)?,
            total_ahs_length: bhs.total_ahs_length(),
            data_segment_length: bhs.data_segment_length(),
            lun: bhs.lun(),
            itt: bhs.itt()?,
            expected_data_transfer_length: bhs.u32(20),
            cmd_sn: Sn(bhs.u32(24)),
            exp_stat_sn: Sn(bhs.u32(28)),
            cdb: bhs.bytes(32),
        };
        // Section 11.3.1: "Setting both the W and the F bit to 0 is an error."
        if !command.write && !command.is_final {
            return Err(Malformed::UnsolicitedDataWithoutWrite);
        }
        Ok(command)
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        debug_assert!(self.total_ahs_length.is_multiple_of(4) && self.total_ahs_length <= 1020);
        let mut bhs = Bhs::new(Opcode::ScsiCommand);
        bhs.set_immediate(self.immediate);
        bhs.set_u8(1, self.flags() | self.attribute as u8);
        bhs.set_u8(4, (self.total_ahs_length / 4) as u8);
        bhs.set_data_segment_length(self.data_segment_length);
        bhs.set_lun(self.lun);
        bhs.set_u32(16, self.itt.get());
        bhs.set_u32(20, self.expected_data_transfer_length);
        bhs.set_u32(24, self.cmd_sn.0);
        bhs.set_u32(28, self.exp_stat_sn.0);
        bhs.set_bytes(32, &self.cdb);
        bhs
    }

    fn flags(&self) -> u8 {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        flag(self.is_final, FINAL) | flag(self.read, READ) | flag(self.write, WRITE)
    }
}

const READ: u8 = 0x40;
const WRITE: u8 = 0x20;
const ATTRIBUTE_MASK: u8 = 0x07;

#[cfg(test)]
mod tests {
    use super::super::round_trip::{altered, assert_any_header_holds, assert_golden};
    use super::*;

    /// WRITE(10) of eight blocks at LBA 0x1234 with all its data at once.
    fn write_10() -> ScsiCommand {
        let mut cdb = [0; 16];
        cdb[..9].copy_from_slice(&[0x2a, 0, 0, 0, 0x12, 0x34, 0, 0, 8]);
        ScsiCommand {
            immediate: false,
            is_final: true,
            read: false,
            write: true,
            attribute: TaskAttribute::Simple,
            total_ahs_length: 0,
            data_segment_length: 4096,
            lun: Lun(0x0001_0000_0000_0000),
            itt: Itt::new(0x11).expect("a tag"),
            expected_data_transfer_length: 4096,
            cmd_sn: Sn(5),
            exp_stat_sn: Sn(0x0a0b_0c0d),
            cdb,
        }
    }

    #[test]
    fn golden() {
        let golden = "01a10000 00001000 00010000 00000000 00000011 00001000
                      00000005 0a0b0c0d 2a000000 12340000 08000000 00000000";
        assert_golden(&write_10(), golden, ScsiCommand::parse, ScsiCommand::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(Opcode::ScsiCommand, ScsiCommand::parse, ScsiCommand::emit);
    }

    #[test]
    fn data_announced_for_no_write_is_refused() {
        let bhs = altered(write_10().emit(), 1, READ);
        assert_eq!(ScsiCommand::parse(&bhs), Err(Malformed::UnsolicitedDataWithoutWrite));
    }

    #[test]
    fn reserved_attributes_are_refused() {
        let bhs = altered(write_10().emit(), 1, FINAL | 5);
        assert_eq!(ScsiCommand::parse(&bhs), Err(Malformed::ReservedAttribute));
    }
}
