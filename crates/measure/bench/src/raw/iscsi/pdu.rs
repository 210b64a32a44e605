//! Headers (RFC 7143 section 11), as far as both halves need them.

/// A basic header segment.
pub(super) type Header = [u8; HEADER_BYTES];
pub(super) const HEADER_BYTES: usize = 48;

/// What an initiator sends.
pub(super) mod request {
    pub(in super::super) const NOP_OUT: u8 = 0x00;
    pub(in super::super) const COMMAND: u8 = 0x01;
    pub(in super::super) const TASK_MANAGEMENT: u8 = 0x02;
    pub(in super::super) const LOGIN: u8 = 0x03;
    pub(in super::super) const DATA_OUT: u8 = 0x05;
    pub(in super::super) const LOGOUT: u8 = 0x06;
}

/// What a target sends.
pub(super) mod answer {
    pub(in super::super) const NOP_IN: u8 = 0x20;
    pub(in super::super) const RESPONSE: u8 = 0x21;
    pub(in super::super) const TASK_MANAGEMENT: u8 = 0x22;
    pub(in super::super) const LOGIN: u8 = 0x23;
    pub(in super::super) const DATA_IN: u8 = 0x25;
    pub(in super::super) const LOGOUT: u8 = 0x26;
    pub(in super::super) const R2T: u8 = 0x31;
    pub(in super::super) const REJECT: u8 = 0x3f;
}

/// The final bit of byte 1; in a login it is T, to the next stage.
pub(super) const FINAL: u8 = 0x80;
/// The immediate bit of byte 0.
pub(super) const IMMEDIATE: u8 = 0x40;
/// A tag that names nothing.
pub(super) const RESERVED_TAG: u32 = u32::MAX;

/// Byte 0 without the immediate bit.
pub(super) fn opcode(header: &Header) -> u8 {
    header[0] & 0x3f
}

/// DataSegmentLength.
pub(super) fn data_bytes(header: &Header) -> usize {
    usize::from(header[5]) << 16 | usize::from(header[6]) << 8 | usize::from(header[7])
}

/// What follows the header: additional headers, and data with their padding. Digests are never agreed on.
pub(super) fn bytes_behind(header: &Header) -> usize {
    usize::from(header[4]) * 4 + padded(data_bytes(header))
}

/// Data segments are filled up to words.
pub(super) fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(4)
}

pub(super) fn set_data_bytes(header: &mut Header, bytes: usize) {
    // A segment has 24 bits of length; all of ours are far shorter.
    header[5..8].copy_from_slice(&(bytes as u32).to_be_bytes()[1..]);
}

pub(super) fn word(header: &Header, at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

pub(super) fn set_word(header: &mut Header, at: usize, value: u32) {
    header[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Where fields stand that most headers have.
pub(super) mod field {
    /// InitiatorTaskTag.
    pub(in super::super) const ITT: usize = 16;
    /// TargetTransferTag.
    pub(in super::super) const TTT: usize = 20;
    /// ExpectedDataTransferLength of a command.
    pub(in super::super) const EDTL: usize = 20;
    /// CmdSN of what an initiator sends.
    pub(in super::super) const CMD_SN: usize = 24;
    /// StatSN of what a target sends.
    pub(in super::super) const STAT_SN: usize = 24;
    /// ExpCmdSN of what a target sends, ExpStatSN of what an initiator sends.
    pub(in super::super) const EXPECTED_SN: usize = 28;
    /// MaxCmdSN of what a target sends.
    pub(in super::super) const MAX_CMD_SN: usize = 32;
    /// DataSN of data, R2TSN of an R2T.
    pub(in super::super) const DATA_SN: usize = 36;
    /// BufferOffset of data and of R2Ts.
    pub(in super::super) const OFFSET: usize = 40;
    /// The residual count, and the length that an R2T asks for.
    pub(in super::super) const LENGTH: usize = 44;
}

/// A header with this opcode and tag, final.
pub(super) fn header(opcode: u8, tag: u32) -> Header {
    let mut header = [0; HEADER_BYTES];
    header[0] = opcode;
    header[1] = FINAL;
    set_word(&mut header, field::ITT, tag);
    header
}
