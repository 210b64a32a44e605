//! Login Response (RFC 7143 section 11.13). Its data segment is keys and values: [`crate::text`].

use derive_more::Display;
use num_enum::{FromPrimitive, IntoPrimitive};

use super::bhs::CONTINUE;
use super::login_request::{parse_stages, stage_flags};
use super::{Bhs, Isid, Itt, Malformed, Opcode, Stage, TargetNumbers, Tsih};

/// Continues, completes or refuses a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginResponse {
    /// C: the text continues in the next response.
    pub continues: bool,
    /// CSG: the stage of the request that this answers.
    pub stage: Stage,
    /// T and NSG: the stage that the login now is in, if it moves.
    pub transit_to: Option<Stage>,
    /// Version-max.
    pub version_max: u8,
    /// Version-active.
    pub version_active: u8,
    /// As in the request.
    pub isid: Isid,
    /// TSIH, in the last response; before, as in the request.
    pub tsih: Tsih,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: TargetNumbers,
    /// Status of the login.
    pub status: LoginStatus,
    /// Text, in bytes without padding.
    pub data_segment_length: u32,
}

/// Status-Class, the upper byte, and Status-Detail (section 11.13.5).
#[expect(missing_docs, reason = "where a variant has no more to say than it displays")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, FromPrimitive, IntoPrimitive)]
#[display("{_variant} ({:04x})", u16::from(*self))]
#[repr(u16)]
pub enum LoginStatus {
    #[display("success")]
    Success = 0x0000,
    #[display("the target has moved for now")]
    TargetMovedTemporarily = 0x0101,
    #[display("the target has moved for good")]
    TargetMovedPermanently = 0x0102,
    #[display("the initiator made a mistake")]
    InitiatorError = 0x0200,
    #[display("the initiator could not be authenticated")]
    AuthenticationFailure = 0x0201,
    #[display("the initiator is not allowed to use this target")]
    AuthorizationFailure = 0x0202,
    #[display("there is no such target")]
    NotFound = 0x0203,
    #[display("the target has been removed")]
    TargetRemoved = 0x0204,
    #[display("no version of iSCSI in common")]
    UnsupportedVersion = 0x0205,
    #[display("too many connections in this session")]
    TooManyConnections = 0x0206,
    #[display("a parameter is missing, such as a name")]
    MissingParameter = 0x0207,
    #[display("the session cannot include this connection")]
    CannotIncludeInSession = 0x0208,
    #[display("sessions of this type are not supported")]
    SessionTypeNotSupported = 0x0209,
    #[display("the session does not exist")]
    SessionDoesNotExist = 0x020a,
    #[display("the request has no place in a login")]
    InvalidDuringLogin = 0x020b,
    #[display("the target failed")]
    TargetError = 0x0300,
    #[display("the target is not available now; try again")]
    ServiceUnavailable = 0x0301,
    #[display("the target is out of resources")]
    OutOfResources = 0x0302,
    #[display("unknown status")]
    #[num_enum(catch_all)]
    Other(u16),
}

impl LoginResponse {
    /// Takes the header apart. Of a refusal the stages have no meaning and are not looked at (section 11.13).
    pub fn parse(bhs: &Bhs) -> Result<LoginResponse, Malformed> {
        bhs.expect(Opcode::LoginResponse)?;
        let status = LoginStatus::from(bhs.u16(36));
        let going_on = status == LoginStatus::Success;
        let (stage, transit_to) =
            if going_on { parse_stages(bhs)? } else { (Stage::SecurityNegotiation, None) };
        Ok(LoginResponse {
            continues: going_on && bhs.flag(CONTINUE),
            stage,
            transit_to,
            version_max: bhs.u8(2),
            version_active: bhs.u8(3),
            isid: Isid(bhs.bytes(8)),
            tsih: Tsih(bhs.u16(14)),
            itt: bhs.itt()?,
            numbers: bhs.numbers(),
            status,
            data_segment_length: bhs.data_segment_length(),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::LoginResponse);
        bhs.set_u8(1, stage_flags(self.continues, self.stage, self.transit_to));
        bhs.set_u8(2, self.version_max);
        bhs.set_u8(3, self.version_active);
        bhs.set_data_segment_length(self.data_segment_length);
        bhs.set_bytes(8, &self.isid.0);
        bhs.set_u16(14, self.tsih.0);
        bhs.set_u32(16, self.itt.get());
        bhs.set_numbers(self.numbers);
        bhs.set_u16(36, self.status.into());
        bhs
    }
}

#[cfg(test)]
mod tests {
    use super::super::round_trip::{altered, assert_any_header_holds, assert_golden};
    use super::*;
    use crate::serial::Sn;

    fn logged_in() -> LoginResponse {
        LoginResponse {
            continues: false,
            stage: Stage::OperationalNegotiation,
            transit_to: Some(Stage::FullFeature),
            version_max: 0,
            version_active: 0,
            isid: Isid([0x80, 1, 2, 3, 4, 5]),
            tsih: Tsih(0x10),
            itt: Itt::new(1).expect("a tag"),
            numbers: TargetNumbers { stat_sn: Sn(3), exp_cmd_sn: Sn(1), max_cmd_sn: Sn(0x100) },
            status: LoginStatus::Success,
            data_segment_length: 100,
        }
    }

    #[test]
    fn golden() {
        let golden = "23870000 00000064 80010203 04050010 00000001 00000000
                      00000003 00000001 00000100 00000000 00000000 00000000";
        assert_golden(&logged_in(), golden, LoginResponse::parse, LoginResponse::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(Opcode::LoginResponse, LoginResponse::parse, LoginResponse::emit);
    }

    #[test]
    fn the_stages_of_a_refusal_do_not_matter() {
        let refusal = LoginResponse { status: LoginStatus::NotFound, ..logged_in() };
        let parsed = LoginResponse::parse(&altered(refusal.emit(), 1, 0xff)).expect("a refusal");
        assert_eq!((parsed.status, parsed.transit_to), (LoginStatus::NotFound, None));
    }

    #[test]
    fn every_number_is_its_status_s_own() {
        assert!((0..=0xffff).all(|number| u16::from(LoginStatus::from(number)) == number));
        assert_eq!(LoginStatus::from(0x0263), LoginStatus::Other(0x0263));
        assert_eq!(LoginStatus::NotFound.to_string(), "there is no such target (0203)");
    }
}
