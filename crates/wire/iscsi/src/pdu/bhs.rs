//! The basic header segment (RFC 7143 section 11.2.1): forty-eight bytes, big endian, at the start of every PDU.
//!
//! ```text
//!    byte 0        1        2        3
//!    0  .I opcode | F  opcode-specific       |
//!    4  AHS words | DataSegmentLength        |
//!    8  LUN, or opcode-specific              |
//!   16  Initiator Task Tag                   |
//!   20  opcode-specific, to byte 47          |
//! ```

use derive_more::{Display, Error};
use num_enum::TryFromPrimitive;

/// Bytes in a basic header segment.
pub const BHS_BYTES: usize = 48;

/// A basic header segment in wire format.
///
/// The readers and writers use offsets from our own code, never the peer's; an offset past the end is a bug
/// in this crate, and panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bhs(pub [u8; BHS_BYTES]);

impl Bhs {
    /// An empty header with this opcode, not immediate, with the F bit set, as in most PDUs.
    pub fn new(opcode: Opcode) -> Bhs {
        let mut bhs = Bhs([0; BHS_BYTES]);
        bhs.set_u8(0, opcode as u8);
        bhs.set_u8(1, 0x80);
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

    /// The raw Initiator Task Tag, possibly the reserved value: for responses to PDUs that do not parse.
    pub fn itt_raw(&self) -> u32 {
        self.u32(16)
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

    /// `N` bytes at an offset.
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

    /// Sets the length of the data segment: bytes, without padding.
    pub fn set_data_segment_length(&mut self, length: u32) {
        self.set_u24(5, length);
    }

    /// Fails for a header of another type, or with additional header segments: section 11.2.2.1 defines them
    /// only for the SCSI Command.
    #[inline]
    pub(super) fn expect(&self, opcode: Opcode) -> Result<(), Malformed> {
        self.expect_opcode(opcode)?;
        if self.total_ahs_length() == 0 {
            Ok(())
        } else {
            Err(Malformed::UnexpectedAhs)
        }
    }

    /// Fails for another type of header.
    pub(super) fn expect_opcode(&self, opcode: Opcode) -> Result<(), Malformed> {
        if self.opcode() == Some(opcode) {
            Ok(())
        } else {
            Err(Malformed::WrongOpcode)
        }
    }

    /// Like [`Bhs::expect`], but also fails if there is data, for the PDUs whose "DataSegmentLength MUST be
    /// 0".
    pub(super) fn expect_no_data(&self, opcode: Opcode) -> Result<(), Malformed> {
        self.expect(opcode)?;
        if self.data_segment_length() == 0 {
            Ok(())
        } else {
            Err(Malformed::UnexpectedData)
        }
    }
}

/// The sequence numbers that every PDU of a target carries (Data-In only with a status): StatSN, and the
/// command window.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetNumbers {
    /// StatSN: of this status, or of the next one in a PDU without a status.
    pub stat_sn: Sn,
    pub exp_cmd_sn: Sn,
    pub max_cmd_sn: Sn,
}

/// The type of a PDU. Bit 5 is the sender: clear for the initiator, set for the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromPrimitive)]
#[repr(u8)]
pub enum Opcode {
    /// Initiator: ping, or the response to the target's ping.
    NopOut = 0x00,
    /// Initiator: a SCSI command.
    ScsiCommand = 0x01,
    /// Initiator: abort, reset, query.
    TaskManagementRequest = 0x02,
    /// Initiator: start or continue a login.
    LoginRequest = 0x03,
    /// Initiator: keys and values, in full feature phase.
    TextRequest = 0x04,
    /// Initiator: data of a write.
    DataOut = 0x05,
    /// Initiator: close this connection, another, or the session.
    LogoutRequest = 0x06,
    /// Initiator: request for retransmission.
    SnackRequest = 0x10,
    /// Target: ping, or the response to the initiator's ping.
    NopIn = 0x20,
    /// Target: status of a SCSI command.
    ScsiResponse = 0x21,
    /// Target: result of a task management function.
    TaskManagementResponse = 0x22,
    /// Target: continues, completes or refuses a login.
    LoginResponse = 0x23,
    /// Target: keys and values, in full feature phase.
    TextResponse = 0x24,
    /// Target: data of a read, perhaps with the command's status.
    DataIn = 0x25,
    /// Target: result of a logout.
    LogoutResponse = 0x26,
    /// Target: request for a part of a write's data.
    R2t = 0x31,
    /// Target: asynchronous event.
    AsyncMessage = 0x32,
    /// Target: rejection of a PDU.
    Reject = 0x3f,
}

/// Initiator Task Tag (RFC 7143 section 11.2.1.8): the initiator's name for a task, unique in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Display)]
#[display("{_0:#x}")]
pub struct Itt(u32);

impl Itt {
    /// A valid tag, for users that need only one.
    pub const ZERO: Itt = Itt(0);

    /// A tag; `None` for 0xffffffff, which is reserved.
    pub fn new(value: u32) -> Option<Itt> {
        (value != RESERVED_TAG).then_some(Itt(value))
    }

    /// The tag's value.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// Target Transfer Tag: the target's name for a transfer that it requested, or for a ping or text exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Display)]
#[display("{_0:#x}")]
pub struct Ttt(u32);

impl Ttt {
    /// A tag; `None` for 0xffffffff, which is reserved.
    pub fn new(value: u32) -> Option<Ttt> {
        (value != RESERVED_TAG).then_some(Ttt(value))
    }

    /// The tag's value.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// A LUN: eight bytes in the format of SAM-5, opaque to iSCSI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Display)]
#[display("{_0:016x}")]
pub struct Lun(pub u64);

/// Initiator part of the session identifier (section 11.12.5): six bytes that the initiator chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Isid(pub [u8; 6]);

/// Target Session Identifying Handle (section 11.12.6): the target's name for a session. Zero requests a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Display)]
pub struct Tsih(pub u16);

impl Tsih {
    /// Requests a new session; never the handle of an existing one.
    pub const NEW: Tsih = Tsih(0);
}

/// Connection identifier (section 11.12.7): the initiator's name for a connection within its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Display)]
pub struct Cid(pub u16);

/// Why a header could not be parsed.
#[expect(
    missing_docs,
    reason = "where a variant has no more to say than it displays"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum Malformed {
    /// RFC 7143 section 11.2.1.2 lists no such opcode.
    #[display("unknown opcode")]
    UnknownOpcode,
    #[display("unexpected opcode")]
    WrongOpcode,
    /// 0xffffffff where a task must be named.
    #[display("reserved Initiator Task Tag")]
    ReservedItt,
    /// 0xffffffff where a transfer must be named.
    #[display("reserved Target Transfer Tag")]
    ReservedTtt,
    /// A task is named in a PDU that belongs to none (sections 11.9, 11.17).
    #[display("unexpected Initiator Task Tag")]
    UnexpectedItt,
    #[display("unexpected additional header segments")]
    UnexpectedAhs,
    /// Data in a PDU whose DataSegmentLength must be 0.
    #[display("unexpected data")]
    UnexpectedData,
    /// An additional header segment is truncated, or its length does not match its type.
    #[display("additional header segment with a wrong length")]
    AhsLength,
    #[display("duplicate additional header segment")]
    AhsRepeated,
    /// A task attribute above 4 (section 11.3.1).
    #[display("reserved task attribute")]
    ReservedAttribute,
    /// "Setting both the W and the F bit to 0 is an error" (section 11.3.1): data announced, but no write.
    #[display("data for a command that is not a write")]
    UnsolicitedDataWithoutWrite,
    /// Both overflow and underflow (sections 11.4.1, 11.7.3).
    #[display("both overflow and underflow")]
    ContradictoryResidual,
    /// A response code between those of the standard and those of vendors (section 11.4.3).
    #[display("reserved response code")]
    ReservedResponse,
    /// Status on a Data-In that is not the last (section 11.7.3).
    #[display("status in a Data-In that is not the last")]
    StatusWithoutFinal,
    /// An R2T for no data (section 11.8.4).
    #[display("R2T with a length of 0")]
    EmptyR2t,
    /// C together with F or T (sections 11.10.2, 11.12.2).
    #[display("text with both Continue and Final")]
    ContinueAndFinal,
    /// Login stage 2 (section 11.12.3).
    #[display("reserved login stage")]
    ReservedStage,
    /// An invalid stage transition (section 11.12.3).
    #[display("login without a later next stage")]
    BackwardStage,
    /// A logout reason above 2 (section 11.14.1).
    #[display("reserved logout reason")]
    ReservedLogoutReason,
    /// A SNACK type above 3 (section 11.16.1).
    #[display("reserved SNACK type")]
    ReservedSnackKind,
}

/// Padding bytes that fill a segment of this length to a whole four-byte word.
pub fn pad_bytes(length: usize) -> usize {
    length.wrapping_neg() % 4
}

const IMMEDIATE: u8 = 0x40;
const OPCODE_MASK: u8 = 0x3f;

/// No task, or no transfer.
pub(super) const RESERVED_TAG: u32 = 0xffff_ffff;

// Sequence numbers that wrap: CmdSN, StatSN, DataSN and R2TSN.
//
// RFC 7143 section 4.2.2.1 compares them by serial number arithmetic (RFC 1982, SERIAL_BITS = 32): a number
// is less than another if counting up from it reaches the other within less than half the number circle. Two
// numbers exactly half a circle apart are not comparable: neither is less than the other.

/// A 32-bit sequence number. It has no total order, so it is not `Ord`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Display)]
pub struct Sn(pub u32);

impl Sn {
    /// The number after this one.
    pub fn next(self) -> Sn {
        self.plus(1)
    }

    /// The number `n` steps after this one.
    pub fn plus(self, n: u32) -> Sn {
        Sn(self.0.wrapping_add(n))
    }

    /// The number `n` steps before this one.
    pub fn minus(self, n: u32) -> Sn {
        Sn(self.0.wrapping_sub(n))
    }

    /// Steps upwards from this number to `later`. Meaningful if `self.le(later)`; otherwise it is the longer
    /// path around the circle.
    pub fn distance(self, later: Sn) -> u32 {
        later.0.wrapping_sub(self.0)
    }

    /// Whether this number comes before `other`.
    pub fn lt(self, other: Sn) -> bool {
        let ahead = self.distance(other);
        ahead != 0 && ahead < HALF_CIRCLE
    }

    /// Whether this number comes before `other`, or is it.
    pub fn le(self, other: Sn) -> bool {
        self.distance(other) < HALF_CIRCLE
    }
}

/// RFC 1982: 2^(SERIAL_BITS - 1).
const HALF_CIRCLE: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_survives_the_wrap() {
        assert!(Sn(0xffff_ffff).lt(Sn(0)));
        assert!(Sn(0xffff_fff0).lt(Sn(16)));
        assert!(!Sn(0).lt(Sn(0xffff_ffff)));
        assert_eq!(Sn(0xffff_ffff).next(), Sn(0));
        assert_eq!(Sn(0xffff_fffe).distance(Sn(2)), 4);
    }

    #[test]
    fn numbers_half_a_circle_apart_are_not_comparable() {
        assert!(!Sn(0).lt(Sn(HALF_CIRCLE)));
        assert!(!Sn(HALF_CIRCLE).lt(Sn(0)));
    }

    proptest! {
        #[test]
        fn a_step_of_less_than_half_a_circle_goes_up(start: u32, step in 1..HALF_CIRCLE) {
            let (before, after) = (Sn(start), Sn(start).plus(step));
            prop_assert!(before.lt(after) && before.le(after) && !after.lt(before) && !after.le(before));
            prop_assert_eq!(before.distance(after), step);
            prop_assert_eq!(after.minus(step), before);
        }

        #[test]
        fn a_number_is_not_less_than_itself(sn: u32) {
            prop_assert!(!Sn(sn).lt(Sn(sn)) && Sn(sn).le(Sn(sn)));
        }
    }
}
