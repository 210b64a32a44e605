//! Reject (RFC 7143 section 11.17). Its data segment is the header of the PDU that was not acceptable.

use std::fmt;

use super::{Bhs, Malformed, Opcode};
use crate::serial::Sn;

/// A PDU was not acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Why.
    pub reason: RejectReason,
    /// This status's number on its connection.
    pub stat_sn: Sn,
    /// The next CmdSN that the target expects.
    pub exp_cmd_sn: Sn,
    /// The last CmdSN that the target has room for.
    pub max_cmd_sn: Sn,
    /// Of a refused acknowledgement or SNACK: the next DataSN or R2TSN.
    pub data_sn: Sn,
    /// The refused header, in bytes without padding.
    pub data_segment_length: u32,
}

/// Why a PDU was not acceptable (section 11.17.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// 2: the data does not match its digest; it may be sent again.
    DataDigestError,
    /// 3: this cannot be sent again.
    SnackReject,
    /// 4: the PDU has no place here.
    ProtocolError,
    /// 5: no such opcode, or not for this kind of session.
    CommandNotSupported,
    /// 6: too many immediate commands.
    ImmediateCommandReject,
    /// 7: the task is already under way.
    TaskInProgress,
    /// 8: an acknowledgement of data that was not sent.
    InvalidDataAck,
    /// 9: a field has a value that it must not have.
    InvalidPduField,
    /// 10: out of Target Transfer Tags.
    LongOperationReject,
    /// 12: nothing but a logout is expected.
    WaitingForLogout,
    /// Any other number; 11 is deprecated.
    Other(u8),
}

impl Reject {
    /// Takes the header apart.
    pub fn parse(bhs: &Bhs) -> Result<Reject, Malformed> {
        bhs.expect(Opcode::Reject)?;
        if bhs.itt_raw() != NO_TASK {
            return Err(Malformed::UnexpectedItt);
        }
        Ok(Reject {
            reason: RejectReason::new(bhs.u8(2)),
            stat_sn: Sn(bhs.u32(24)),
            exp_cmd_sn: Sn(bhs.u32(28)),
            max_cmd_sn: Sn(bhs.u32(32)),
            data_sn: Sn(bhs.u32(36)),
            data_segment_length: bhs.data_segment_length(),
        })
    }

    /// Puts the header together.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::Reject);
        bhs.set_u8(2, self.reason.number());
        bhs.set_data_segment_length(self.data_segment_length);
        bhs.set_u32(16, NO_TASK);
        bhs.set_u32(24, self.stat_sn.0);
        bhs.set_u32(28, self.exp_cmd_sn.0);
        bhs.set_u32(32, self.max_cmd_sn.0);
        bhs.set_u32(36, self.data_sn.0);
        bhs
    }
}

impl RejectReason {
    /// The reason of this number.
    pub fn new(number: u8) -> RejectReason {
        match number {
            2 => RejectReason::DataDigestError,
            3 => RejectReason::SnackReject,
            4 => RejectReason::ProtocolError,
            5 => RejectReason::CommandNotSupported,
            6 => RejectReason::ImmediateCommandReject,
            7 => RejectReason::TaskInProgress,
            8 => RejectReason::InvalidDataAck,
            9 => RejectReason::InvalidPduField,
            10 => RejectReason::LongOperationReject,
            12 => RejectReason::WaitingForLogout,
            other => RejectReason::Other(other),
        }
    }

    /// The reason's number.
    pub fn number(self) -> u8 {
        match self {
            RejectReason::DataDigestError => 2,
            RejectReason::SnackReject => 3,
            RejectReason::ProtocolError => 4,
            RejectReason::CommandNotSupported => 5,
            RejectReason::ImmediateCommandReject => 6,
            RejectReason::TaskInProgress => 7,
            RejectReason::InvalidDataAck => 8,
            RejectReason::InvalidPduField => 9,
            RejectReason::LongOperationReject => 10,
            RejectReason::WaitingForLogout => 12,
            RejectReason::Other(number) => number,
        }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Reject {:?} stat_sn {} exp_cmd_sn {} max_cmd_sn {} data_sn {} data {}",
            self.reason,
            self.stat_sn,
            self.exp_cmd_sn,
            self.max_cmd_sn,
            self.data_sn,
            self.data_segment_length,
        )
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
            stat_sn: Sn(9),
            exp_cmd_sn: Sn(6),
            max_cmd_sn: Sn(0x105),
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
        assert!((0..=255).all(|number| RejectReason::new(number).number() == number));
    }
}
