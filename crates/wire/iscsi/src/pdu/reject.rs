//! Reject (RFC 7143 section 11.17). Its data segment is the header of the PDU that was not acceptable.

use num_enum::{FromPrimitive, IntoPrimitive};

use super::{Bhs, Malformed, Opcode, TargetNumbers};
use crate::serial::Sn;

/// Rejection of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The reason.
    pub reason: RejectReason,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: TargetNumbers,
    /// Of a refused acknowledgement or SNACK: the next DataSN or R2TSN.
    pub data_sn: Sn,
    /// The refused header, in bytes without padding.
    pub data_segment_length: u32,
}

/// Reason codes (section 11.17.1).
#[expect(missing_docs, reason = "the names are the standard's")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromPrimitive, IntoPrimitive)]
#[repr(u8)]
pub enum RejectReason {
    /// Data digest error; the PDU may be retransmitted.
    DataDigestError = 2,
    SnackReject = 3,
    ProtocolError = 4,
    /// Command not supported, or not in this type of session.
    CommandNotSupported = 5,
    ImmediateCommandReject = 6,
    TaskInProgress = 7,
    InvalidDataAck = 8,
    InvalidPduField = 9,
    /// Out of Target Transfer Tags (long operation reject).
    LongOperationReject = 10,
    WaitingForLogout = 12,
    /// Any other number; 11 is deprecated.
    #[num_enum(catch_all)]
    Other(u8),
}

impl Reject {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<Reject, Malformed> {
        bhs.expect(Opcode::Reject)?;
        if bhs.itt_raw() != NO_TASK {
            return Err(Malformed::UnexpectedItt);
        }
        Ok(Reject {
            reason: RejectReason::from(bhs.u8(2)),
            numbers: bhs.numbers(),
            data_sn: Sn(bhs.u32(36)),
            data_segment_length: bhs.data_segment_length(),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::Reject);
        bhs.set_u8(2, self.reason.into());
        bhs.set_data_segment_length(self.data_segment_length);
        bhs.set_u32(16, NO_TASK);
        bhs.set_numbers(self.numbers);
        bhs.set_u32(36, self.data_sn.0);
        bhs
    }
}

/// Bytes 16 to 19: the refused task's tag is in the header that comes as data, not here.
const NO_TASK: u32 = 0xffff_ffff;

#[cfg(test)]
mod tests {
    use super::super::round_trip::{altered, assert_any_header_holds, assert_golden};
    use super::*;

    fn protocol_error() -> Reject {
        Reject {
            reason: RejectReason::ProtocolError,
            numbers: TargetNumbers { stat_sn: Sn(9), exp_cmd_sn: Sn(6), max_cmd_sn: Sn(0x105) },
            data_sn: Sn(0),
            data_segment_length: 48,
        }
    }

    #[test]
    fn golden() {
        let golden = "3f800400 00000030 00000000 00000000 ffffffff 00000000
                      00000009 00000006 00000105 00000000 00000000 00000000";
        assert_golden(&protocol_error(), golden, Reject::parse, Reject::emit);
    }

    #[test]
    fn any_header_holds() {
        let parse = |bhs: &Bhs| {
            let mut bhs = *bhs;
            bhs.set_u32(16, NO_TASK);
            Reject::parse(&bhs)
        };
        assert_any_header_holds(Opcode::Reject, parse, Reject::emit);
    }

    #[test]
    fn a_reject_names_no_task() {
        let bhs = altered(protocol_error().emit(), 16, 0);
        assert_eq!(Reject::parse(&bhs), Err(Malformed::UnexpectedItt));
    }

    #[test]
    fn every_number_is_its_reason_s_own() {
        assert!((0..=255).all(|number| u8::from(RejectReason::from(number)) == number));
    }
}
