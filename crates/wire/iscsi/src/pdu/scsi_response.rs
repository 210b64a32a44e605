//! SCSI Response (RFC 7143 section 11.4). Its data segment is the sense data, behind a length of two bytes, and
//! possibly response data.

use super::{Bhs, Itt, Malformed, Opcode, Residual, TargetNumbers};
use crate::serial::Sn;

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiResponse {
    /// iSCSI service response.
    pub response: Response,
    /// SAM-5 status, valid if the command was completed.
    pub status: u8,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Of a read whose data was resent under new tags (ErrorRecoveryLevel above 0); else zero.
    pub snack_tag: u32,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: TargetNumbers,
    /// ExpDataSN: number of Data-In (bidirectional: and R2T) PDUs sent for the command.
    pub exp_data_sn: Sn,
    /// Of the data, or of a bidirectional command's written data.
    pub residual: Residual,
    /// Of a bidirectional command's read data.
    pub read_residual: Residual,
    /// Sense and response data, in bytes without padding.
    pub data_segment_length: u32,
}

/// iSCSI service response (section 11.4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Response {
    /// Command completed at target; see the status.
    #[default]
    Completed,
    /// The target could not carry it out.
    TargetFailure,
    /// 0x80 to 0xff: the vendor's own.
    VendorSpecific(u8),
}

impl ScsiResponse {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<ScsiResponse, Malformed> {
        bhs.expect(Opcode::ScsiResponse)?;
        Ok(ScsiResponse {
            response: Response::new(bhs.u8(2)).ok_or(Malformed::ReservedResponse)?,
            status: bhs.u8(3),
            itt: bhs.itt()?,
            snack_tag: bhs.u32(20),
            numbers: bhs.numbers(),
            exp_data_sn: Sn(bhs.u32(36)),
            residual: Residual::parse(bhs.flag(OVERFLOW), bhs.flag(UNDERFLOW), bhs.u32(44))?,
            read_residual: Residual::parse(bhs.flag(READ_OVERFLOW), bhs.flag(READ_UNDERFLOW), bhs.u32(40))?,
            data_segment_length: bhs.data_segment_length(),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let (flags, count) = self.residual.emit(OVERFLOW, UNDERFLOW);
        let (read_flags, read_count) = self.read_residual.emit(READ_OVERFLOW, READ_UNDERFLOW);
        let mut bhs = Bhs::new(Opcode::ScsiResponse);
        bhs.set_u8(1, bhs.u8(1) | flags | read_flags);
        bhs.set_u8(2, self.response.number());
        bhs.set_u8(3, self.status);
        bhs.set_data_segment_length(self.data_segment_length);
        bhs.set_u32(16, self.itt.get());
        bhs.set_u32(20, self.snack_tag);
        bhs.set_numbers(self.numbers);
        bhs.set_u32(36, self.exp_data_sn.0);
        bhs.set_u32(40, read_count);
        bhs.set_u32(44, count);
        bhs
    }
}

impl Response {
    fn new(number: u8) -> Option<Response> {
        match number {
            0 => Some(Response::Completed),
            1 => Some(Response::TargetFailure),
            2..=0x7f => None,
            0x80.. => Some(Response::VendorSpecific(number)),
        }
    }

    fn number(self) -> u8 {
        match self {
            Response::Completed => 0,
            Response::TargetFailure => 1,
            Response::VendorSpecific(number) => number,
        }
    }
}

const READ_OVERFLOW: u8 = 0x10;
const READ_UNDERFLOW: u8 = 0x08;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;

#[cfg(test)]
mod tests {
    use super::super::round_trip::{altered, assert_any_header_holds, assert_golden};
    use super::*;

    /// CHECK CONDITION with fixed sense data, nothing of 512 bytes transferred.
    fn check_condition() -> ScsiResponse {
        ScsiResponse {
            response: Response::Completed,
            status: 2,
            itt: Itt::new(0x11).expect("a tag"),
            snack_tag: 0,
            numbers: TargetNumbers { stat_sn: Sn(7), exp_cmd_sn: Sn(6), max_cmd_sn: Sn(0x105) },
            exp_data_sn: Sn(0),
            residual: Residual::Underflow(512),
            read_residual: Residual::None,
            data_segment_length: 20,
        }
    }

    #[test]
    fn golden() {
        let golden = "21820002 00000014 00000000 00000000 00000011 00000000
                      00000007 00000006 00000105 00000000 00000000 00000200";
        assert_golden(&check_condition(), golden, ScsiResponse::parse, ScsiResponse::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(Opcode::ScsiResponse, ScsiResponse::parse, ScsiResponse::emit);
    }

    #[test]
    fn overflow_and_underflow_at_once_are_refused() {
        for flags in [OVERFLOW | UNDERFLOW, READ_OVERFLOW | READ_UNDERFLOW] {
            let bhs = altered(check_condition().emit(), 1, 0x80 | flags);
            assert_eq!(ScsiResponse::parse(&bhs), Err(Malformed::ContradictoryResidual));
        }
    }

    #[test]
    fn a_reserved_response_is_refused() {
        let bhs = altered(check_condition().emit(), 2, 0x40);
        assert_eq!(ScsiResponse::parse(&bhs), Err(Malformed::ReservedResponse));
    }
}
