//! Logout Request (RFC 7143 section 11.14).

use num_enum::TryFromPrimitive;

use super::bhs::FINAL;
use super::{Bhs, Cid, Itt, Malformed, Opcode};
use crate::serial::Sn;

/// Logout of this connection, another, or the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutRequest {
    /// I: immediate delivery, outside the CmdSN order.
    pub immediate: bool,
    /// Reason code.
    pub reason: LogoutReason,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// The connection to close; without meaning if the session is to be closed.
    pub cid: Cid,
    /// CmdSN.
    pub cmd_sn: Sn,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
}

/// Reason Code (section 11.14.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromPrimitive)]
#[repr(u8)]
pub enum LogoutReason {
    /// All connections, and the session's commands with them.
    CloseSession = 0,
    /// The connection named, and its commands.
    CloseConnection = 1,
    /// The connection named, keeping its commands for reassignment (ErrorRecoveryLevel 2).
    RemoveForRecovery = 2,
}

impl LogoutRequest {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<LogoutRequest, Malformed> {
        bhs.expect(Opcode::LogoutRequest)?;
        bhs.expect_no_data()?;
        Ok(LogoutRequest {
            immediate: bhs.immediate(),
            reason: LogoutReason::try_from(bhs.u8(1) & !FINAL)
                .map_err(|_| Malformed::ReservedLogoutReason)?,
            itt: bhs.itt()?,
            cid: Cid(bhs.u16(20)),
            cmd_sn: Sn(bhs.u32(24)),
            exp_stat_sn: Sn(bhs.u32(28)),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::LogoutRequest);
        bhs.set_immediate(self.immediate);
        bhs.set_u8(1, FINAL | self.reason as u8);
        bhs.set_u32(16, self.itt.get());
        bhs.set_u16(20, self.cid.0);
        bhs.set_u32(24, self.cmd_sn.0);
        bhs.set_u32(28, self.exp_stat_sn.0);
        bhs
    }
}

#[cfg(test)]
mod tests {
    use super::super::round_trip::{altered, assert_any_header_holds, assert_golden};
    use super::*;

    fn close_connection() -> LogoutRequest {
        LogoutRequest {
            immediate: true,
            reason: LogoutReason::CloseConnection,
            itt: Itt::new(0x20).expect("a tag"),
            cid: Cid(7),
            cmd_sn: Sn(6),
            exp_stat_sn: Sn(9),
        }
    }

    #[test]
    fn golden() {
        let golden = "46810000 00000000 00000000 00000000 00000020 00070000
                      00000006 00000009 00000000 00000000 00000000 00000000";
        assert_golden(&close_connection(), golden, LogoutRequest::parse, LogoutRequest::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(Opcode::LogoutRequest, LogoutRequest::parse, LogoutRequest::emit);
    }

    #[test]
    fn reserved_reasons_are_refused() {
        let bhs = altered(close_connection().emit(), 1, FINAL | 3);
        assert_eq!(LogoutRequest::parse(&bhs), Err(Malformed::ReservedLogoutReason));
    }
}
