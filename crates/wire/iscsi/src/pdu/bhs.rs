//! The basic header segment (RFC 7143 section 11.2.1): forty-eight bytes, big endian, in front of every PDU.
//!
//! ```text
//!    byte 0        1        2        3
//!    0  .I opcode | F  opcode-specific       |
//!    4  AHS words | DataSegmentLength        |
//!    8  LUN, or opcode-specific              |
//!   16  Initiator Task Tag                   |
//!   20  opcode-specific, to byte 47          |
//! ```

use super::{Itt, Lun, Malformed, Opcode};
use crate::serial::Sn;

/// Bytes in a basic header segment.
pub const BHS_BYTES: usize = 48;

/// A basic header segment in wire format.
///
/// The readers and writers take offsets that our own code knows, never the peer's; an offset past the end is a
/// mistake in this crate, and panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bhs(pub [u8; BHS_BYTES]);

impl Bhs {
    /// An empty header of this opcode, not immediate, with the F bit set, as most PDUs have it.
    pub fn new(opcode: Opcode) -> Bhs {
        let mut bhs = Bhs([0; BHS_BYTES]);
        bhs.set_u8(0, opcode as u8);
        bhs.set_u8(1, FINAL);
        bhs
    }

    /// The PDU's type, if section 11.2.1.2 defines it.
    pub fn opcode(&self) -> Option<Opcode> {
        Opcode::try_from(self.0[0] & OPCODE_MASK).ok()
    }

    /// The I bit: immediate delivery, outside the CmdSN order. Initiator PDUs only.
    pub fn immediate(&self) -> bool {
        self.0[0] & IMMEDIATE != 0
    }

    /// Length of all additional header segments together, in bytes (the wire counts four-byte words).
    pub fn total_ahs_length(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Length of the data segment in bytes, without its padding.
    pub fn data_segment_length(&self) -> u32 {
        self.u24(5)
    }

    /// The Initiator Task Tag as it stands, reserved value and all: for answers to PDUs that do not parse.
    pub fn itt_raw(&self) -> u32 {
        self.u32(16)
    }

    /// Bytes 8 to 15, where they are a LUN.
    pub fn lun(&self) -> Lun {
        Lun(self.u64(8))
    }

    /// The byte at an offset.
    pub fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    /// The two bytes at an offset.
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.bytes(at))
    }

    /// The three bytes at an offset.
    pub fn u24(&self, at: usize) -> u32 {
        let [high, middle, low] = self.bytes(at);
        u32::from_be_bytes([0, high, middle, low])
    }

    /// The four bytes at an offset.
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes(at))
    }

    /// The eight bytes at an offset.
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.bytes(at))
    }

    /// Some bytes at an offset.
    pub fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|i| self.0[at + i])
    }

    /// Sets the byte at an offset.
    pub fn set_u8(&mut self, at: usize, value: u8) {
        self.0[at] = value;
    }

    /// Sets two bytes at an offset.
    pub fn set_u16(&mut self, at: usize, value: u16) {
        self.set_bytes(at, &value.to_be_bytes());
    }

    /// Sets three bytes at an offset; the value must fit.
    pub fn set_u24(&mut self, at: usize, value: u32) {
        let [high, rest @ ..] = value.to_be_bytes();
        debug_assert_eq!(high, 0, "{value} does not fit in 24 bits");
        self.set_bytes(at, &rest);
    }

    /// Sets four bytes at an offset.
    pub fn set_u32(&mut self, at: usize, value: u32) {
        self.set_bytes(at, &value.to_be_bytes());
    }

    /// Sets eight bytes at an offset.
    pub fn set_u64(&mut self, at: usize, value: u64) {
        self.set_bytes(at, &value.to_be_bytes());
    }

    /// Sets some bytes at an offset.
    pub fn set_bytes(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Sets the I bit.
    pub fn set_immediate(&mut self, immediate: bool) {
        if immediate {
            self.0[0] |= IMMEDIATE;
        }
    }

    /// Sets the length of the data segment: bytes, without padding.
    pub fn set_data_segment_length(&mut self, length: u32) {
        self.set_u24(5, length);
    }

    /// Sets the LUN field.
    pub fn set_lun(&mut self, lun: Lun) {
        self.set_u64(8, lun.0);
    }

    /// Whether a bit of the flags in byte 1 is set.
    pub(super) fn flag(&self, bit: u8) -> bool {
        self.0[1] & bit != 0
    }

    /// The Initiator Task Tag, where the PDU must have one.
    pub(super) fn itt(&self) -> Result<Itt, Malformed> {
        Itt::new(self.itt_raw()).ok_or(Malformed::ReservedItt)
    }

    pub(super) fn numbers(&self) -> TargetNumbers {
        TargetNumbers {
            stat_sn: Sn(self.u32(24)),
            exp_cmd_sn: Sn(self.u32(28)),
            max_cmd_sn: Sn(self.u32(32)),
        }
    }

    pub(super) fn set_numbers(&mut self, numbers: TargetNumbers) {
        self.set_u32(24, numbers.stat_sn.0);
        self.set_u32(28, numbers.exp_cmd_sn.0);
        self.set_u32(32, numbers.max_cmd_sn.0);
    }

    /// Refuses a header of another kind, and one with additional header segments: only the SCSI Command has any
    /// (section 11.2.2.1 defines no others).
    pub(super) fn expect(&self, opcode: Opcode) -> Result<(), Malformed> {
        self.expect_opcode(opcode)?;
        if self.total_ahs_length() == 0 { Ok(()) } else { Err(Malformed::UnexpectedAhs) }
    }

    /// Fails for another type of header.
    pub(super) fn expect_opcode(&self, opcode: Opcode) -> Result<(), Malformed> {
        if self.opcode() == Some(opcode) { Ok(()) } else { Err(Malformed::WrongOpcode) }
    }

    /// Refuses data, for the PDUs whose "DataSegmentLength MUST be 0".
    pub(super) fn expect_no_data(&self) -> Result<(), Malformed> {
        if self.data_segment_length() == 0 { Ok(()) } else { Err(Malformed::UnexpectedData) }
    }
}

/// The numbers that every PDU of a target carries (Data-In only with a status): what it counts of its statuses, and the
/// command window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetNumbers {
    /// StatSN: of this status, or of the next one in a PDU that is none.
    pub stat_sn: Sn,
    /// ExpCmdSN.
    pub exp_cmd_sn: Sn,
    /// MaxCmdSN.
    pub max_cmd_sn: Sn,
}

/// Bytes that fill a segment of this length up to a whole four-byte word.
pub fn pad_bytes(length: usize) -> usize {
    length.wrapping_neg() % 4
}

/// Byte 1: the last, or only, PDU of its sequence.
pub(super) const FINAL: u8 = 0x80;
/// Byte 1 of text and login PDUs: the text continues in the next PDU.
pub(super) const CONTINUE: u8 = 0x40;

const IMMEDIATE: u8 = 0x40;
const OPCODE_MASK: u8 = 0x3f;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_big_endian() {
        let mut bhs = Bhs([0; BHS_BYTES]);
        bhs.set_u16(8, 0x0102);
        bhs.set_u24(10, 0x03_0405);
        bhs.set_u32(16, 0x0607_0809);
        bhs.set_u64(20, 0x0a0b_0c0d_0e0f_1011);
        assert_eq!(bhs.bytes(8), [1, 2, 3, 4, 5]);
        assert_eq!(bhs.bytes(16), [6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]);
        assert_eq!((bhs.u16(8), bhs.u24(10)), (0x0102, 0x03_0405));
        assert_eq!((bhs.u32(16), bhs.u64(20)), (0x0607_0809, 0x0a0b_0c0d_0e0f_1011));
    }

    #[test]
    fn the_wire_counts_ahs_in_words() {
        let mut bhs = Bhs::new(Opcode::ScsiCommand);
        bhs.set_u8(4, 0xff);
        assert_eq!(bhs.total_ahs_length(), 1020);
    }

    #[test]
    fn data_is_padded_to_whole_words() {
        assert_eq!([0, 1, 2, 3, 4].map(pad_bytes), [0, 3, 2, 1, 0]);
    }

    #[test]
    fn the_reserved_top_bit_of_the_opcode_byte_is_ignored() {
        let mut bhs = Bhs::new(Opcode::NopOut);
        bhs.set_u8(0, 0xc0);
        assert_eq!((bhs.opcode(), bhs.immediate()), (Some(Opcode::NopOut), true));
    }
}
