//! Logout Response (RFC 7143 section 11.15).

use num_enum::{FromPrimitive, IntoPrimitive};

use super::{Bhs, Itt, Malformed, Opcode, TargetNumbers};

/// Result of a logout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutResponse {
    /// The response code.
    pub result: LogoutResult,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: TargetNumbers,
    /// Time2Wait: seconds before reassigning tasks or reconnecting.
    pub time2wait_s: u16,
    /// Time2Retain: seconds after that for which tasks are kept.
    pub time2retain_s: u16,
}

/// Response codes of a logout (section 11.15.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromPrimitive, IntoPrimitive)]
#[repr(u8)]
pub enum LogoutResult {
    /// Closed.
    Success = 0,
    /// No such connection.
    CidNotFound = 1,
    /// Connection recovery not supported (ErrorRecoveryLevel below 2).
    RecoveryNotSupported = 2,
    /// Cleanup failed.
    CleanupFailed = 3,
    /// Any other number.
    #[num_enum(catch_all)]
    Other(u8),
}

impl LogoutResponse {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<LogoutResponse, Malformed> {
        bhs.expect(Opcode::LogoutResponse)?;
        bhs.expect_no_data()?;
        Ok(LogoutResponse {
            result: LogoutResult::from(bhs.u8(2)),
            itt: bhs.itt()?,
            numbers: bhs.numbers(),
            time2wait_s: bhs.u16(40),
            time2retain_s: bhs.u16(42),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::LogoutResponse);
        bhs.set_u8(2, self.result.into());
        bhs.set_u32(16, self.itt.get());
        bhs.set_numbers(self.numbers);
        bhs.set_u16(40, self.time2wait_s);
        bhs.set_u16(42, self.time2retain_s);
        bhs
    }
}

#[cfg(test)]
mod tests {
    use super::super::round_trip::{assert_any_header_holds, assert_golden};
    use super::*;
    use crate::serial::Sn;

    #[test]
    fn golden() {
        let response = LogoutResponse {
            result: LogoutResult::CidNotFound,
            itt: Itt::new(0x20).expect("a tag"),
            numbers: TargetNumbers { stat_sn: Sn(9), exp_cmd_sn: Sn(6), max_cmd_sn: Sn(0x105) },
            time2wait_s: 2,
            time2retain_s: 20,
        };
        let golden = "26800100 00000000 00000000 00000000 00000020 00000000
                      00000009 00000006 00000105 00000000 00020014 00000000";
        assert_golden(&response, golden, LogoutResponse::parse, LogoutResponse::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(Opcode::LogoutResponse, LogoutResponse::parse, LogoutResponse::emit);
    }
}
