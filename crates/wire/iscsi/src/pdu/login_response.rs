//! Login Response (RFC 7143 section 11.13). Its data segment is keys and values: [`crate::text`].

use std::fmt;

use super::bhs::CONTINUE;
use super::login_request::{parse_stages, stage_flags};
use super::{Bhs, Isid, Itt, Malformed, Opcode, Stage, Tsih};
use crate::serial::Sn;

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
    /// StatSN.
    pub stat_sn: Sn,
    /// ExpCmdSN.
    pub exp_cmd_sn: Sn,
    /// MaxCmdSN.
    pub max_cmd_sn: Sn,
    /// Status of the login.
    pub status: LoginStatus,
    /// Text, in bytes without padding.
    pub data_segment_length: u32,
}

/// Status-Class and Status-Detail (section 11.13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoginStatus {
    /// 0000: success; the login continues or is complete.
    Success,
    /// 0101: target moved temporarily to TargetAddress.
    TargetMovedTemporarily,
    /// 0102: target moved permanently to TargetAddress.
    TargetMovedPermanently,
    /// 0200: initiator error.
    InitiatorError,
    /// 0201: authentication failure.
    AuthenticationFailure,
    /// 0202: authorization failure.
    AuthorizationFailure,
    /// 0203: target not found.
    NotFound,
    /// 0204: target removed.
    TargetRemoved,
    /// 0205: unsupported version.
    UnsupportedVersion,
    /// 0206: too many connections.
    TooManyConnections,
    /// 0207: missing parameter.
    MissingParameter,
    /// 0208: the session cannot include this portal.
    CannotIncludeInSession,
    /// 0209: session type not supported.
    SessionTypeNotSupported,
    /// 020a: session does not exist.
    SessionDoesNotExist,
    /// 020b: invalid during login.
    InvalidDuringLogin,
    /// 0300: target error.
    TargetError,
    /// 0301: service unavailable.
    ServiceUnavailable,
    /// 0302: out of resources.
    OutOfResources,
    /// A status that the standard does not list; its class still applies.
    Other {
        /// Status-Class.
        class: u8,
        /// Status-Detail.
        detail: u8,
    },
}

impl LoginResponse {
    /// Takes the header apart. Of a refusal the stages have no meaning and are not looked at (section 11.13).
    pub fn parse(bhs: &Bhs) -> Result<LoginResponse, Malformed> {
        bhs.expect(Opcode::LoginResponse)?;
        let status = LoginStatus::new(bhs.u8(36), bhs.u8(37));
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
            stat_sn: Sn(bhs.u32(24)),
            exp_cmd_sn: Sn(bhs.u32(28)),
            max_cmd_sn: Sn(bhs.u32(32)),
            status,
            data_segment_length: bhs.data_segment_length(),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let (class, detail) = self.status.class_and_detail();
        let mut bhs = Bhs::new(Opcode::LoginResponse);
        bhs.set_u8(1, stage_flags(self.continues, self.stage, self.transit_to));
        bhs.set_u8(2, self.version_max);
        bhs.set_u8(3, self.version_active);
        bhs.set_data_segment_length(self.data_segment_length);
        bhs.set_bytes(8, &self.isid.0);
        bhs.set_u16(14, self.tsih.0);
        bhs.set_u32(16, self.itt.get());
        bhs.set_u32(24, self.stat_sn.0);
        bhs.set_u32(28, self.exp_cmd_sn.0);
        bhs.set_u32(32, self.max_cmd_sn.0);
        bhs.set_u8(36, class);
        bhs.set_u8(37, detail);
        bhs
    }
}

/// Every status that the standard lists, its class and detail, and its meaning in words.
const STATUSES: [(LoginStatus, u8, u8, &str); 18] = [
    (LoginStatus::Success, 0, 0, "success"),
    (LoginStatus::TargetMovedTemporarily, 1, 1, "the target has moved for now"),
    (LoginStatus::TargetMovedPermanently, 1, 2, "the target has moved for good"),
    (LoginStatus::InitiatorError, 2, 0, "the initiator made a mistake"),
    (LoginStatus::AuthenticationFailure, 2, 1, "the initiator could not be authenticated"),
    (LoginStatus::AuthorizationFailure, 2, 2, "the initiator is not allowed to use this target"),
    (LoginStatus::NotFound, 2, 3, "there is no such target"),
    (LoginStatus::TargetRemoved, 2, 4, "the target has been removed"),
    (LoginStatus::UnsupportedVersion, 2, 5, "no version of iSCSI in common"),
    (LoginStatus::TooManyConnections, 2, 6, "too many connections in this session"),
    (LoginStatus::MissingParameter, 2, 7, "a parameter is missing, such as a name"),
    (LoginStatus::CannotIncludeInSession, 2, 8, "the session cannot include this connection"),
    (LoginStatus::SessionTypeNotSupported, 2, 9, "sessions of this type are not supported"),
    (LoginStatus::SessionDoesNotExist, 2, 10, "the session does not exist"),
    (LoginStatus::InvalidDuringLogin, 2, 11, "the request has no place in a login"),
    (LoginStatus::TargetError, 3, 0, "the target failed"),
    (LoginStatus::ServiceUnavailable, 3, 1, "the target is not available now; try again"),
    (LoginStatus::OutOfResources, 3, 2, "the target is out of resources"),
];

impl LoginStatus {
    /// The status of this class and detail.
    pub fn new(class: u8, detail: u8) -> LoginStatus {
        STATUSES
            .iter()
            .find(|entry| (entry.1, entry.2) == (class, detail))
            .map_or(LoginStatus::Other { class, detail }, |entry| entry.0)
    }

    /// Status-Class and Status-Detail.
    pub fn class_and_detail(self) -> (u8, u8) {
        match (self, self.entry()) {
            (LoginStatus::Other { class, detail }, _) => (class, detail),
            (_, Some(entry)) => (entry.1, entry.2),
            // A listed status without its line would be a mistake in this file; say that the target failed.
            (_, None) => (3, 0),
        }
    }

    fn entry(self) -> Option<&'static (LoginStatus, u8, u8, &'static str)> {
        STATUSES.iter().find(|entry| entry.0 == self)
    }
}

impl fmt::Display for LoginStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (class, detail) = self.class_and_detail();
        let words = self.entry().map_or("unknown status", |entry| entry.3);
        write!(f, "{words} ({class:02x}{detail:02x})")
    }
}

impl fmt::Display for LoginResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login Response{} {:?}", if self.continues { " [C]" } else { "" }, self.stage)?;
        if let Some(next) = self.transit_to {
            write!(f, " to {next:?}")?;
        }
        write!(
            f,
            " isid {} tsih {} itt {} stat_sn {} exp_cmd_sn {} max_cmd_sn {} data {}: {}",
            self.isid,
            self.tsih,
            self.itt,
            self.stat_sn,
            self.exp_cmd_sn,
            self.max_cmd_sn,
            self.data_segment_length,
            self.status,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::round_trip::{altered, assert_any_header_holds, assert_golden};
    use super::*;

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
            stat_sn: Sn(3),
            exp_cmd_sn: Sn(1),
            max_cmd_sn: Sn(0x100),
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
    fn every_status_has_its_line_and_its_number() {
        for (status, class, detail, _) in STATUSES {
            assert_eq!(LoginStatus::new(class, detail), status);
            assert_eq!(status.class_and_detail(), (class, detail));
        }
        assert_eq!(LoginStatus::new(2, 0x63).class_and_detail(), (2, 0x63));
        assert_eq!(LoginStatus::NotFound.to_string(), "there is no such target (0203)");
    }
}
