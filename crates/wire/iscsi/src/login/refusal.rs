//! Reasons to end a login at the target, and their login status.

use derive_more::Display;

use crate::chap::ChapError;
use crate::keys::Key;
use crate::name::BadName;
use crate::negotiate::NegotiationError;
use crate::pdu::{LoginStatus, Malformed};
use crate::text::MalformedText;

/// Why a login failed at the target.
#[expect(missing_docs, reason = "where a variant has no more to say than it displays")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum LoginError {
    #[display("the connection does not begin with a login")]
    NotALogin,
    #[display("another PDU than a login request")]
    AnotherPdu,
    Malformed(Malformed),
    MalformedText(MalformedText),
    /// The initiator does not support version 0, the only one.
    #[display("no version of iSCSI in common")]
    Version,
    #[display("the login takes too many requests, or too large ones")]
    TooMuch,
    /// A request with another session, connection, initiator or target than the first.
    #[display("the login changed its session, connection or names on the way")]
    IdentityChanged,
    #[display("a request for another stage than the login is in")]
    WrongStage,
    /// A request out of turn, or before our text was complete.
    #[display("a request that should have waited")]
    OutOfTurn,
    #[display("{} is missing", _0.name())]
    MissingKey(Key),
    #[display("InitiatorName: {_0}")]
    BadInitiatorName(BadName),
    /// TargetName is invalid, so no such target can exist.
    #[display("TargetName: {_0}")]
    BadTargetName(BadName),
    /// SessionType is neither Normal nor Discovery.
    #[display("an unknown SessionType")]
    UnknownSessionType,
    Negotiation(NegotiationError),
    #[display("no authentication method that both sides accept")]
    NoSharedAuthMethod,
    #[display("the initiator skipped authentication")]
    AuthenticationSkipped,
    Chap(ChapError),
    /// The driver refused.
    Refused(LoginStatus),
}

impl LoginError {
    /// The login status, or `None` where the standard says to close the connection silently.
    pub fn status(self) -> Option<LoginStatus> {
        match self {
            // Section 4.2.3: "A target receiving any PDU except a Login Request before the Login Phase is started MUST
            // immediately terminate the connection on which the PDU was received."
            LoginError::NotALogin => None,
            // The same: "... it MUST send a Login reject (with Status "invalid during login") and then disconnect."
            LoginError::AnotherPdu => Some(LoginStatus::InvalidDuringLogin),
            LoginError::Version => Some(LoginStatus::UnsupportedVersion),
            LoginError::MissingKey(_) => Some(LoginStatus::MissingParameter),
            LoginError::BadTargetName(_) => Some(LoginStatus::NotFound),
            LoginError::UnknownSessionType => Some(LoginStatus::SessionTypeNotSupported),
            LoginError::NoSharedAuthMethod | LoginError::AuthenticationSkipped | LoginError::Chap(_) => {
                Some(LoginStatus::AuthenticationFailure)
            }
            LoginError::Refused(status) => Some(status),
            LoginError::Malformed(_)
            | LoginError::MalformedText(_)
            | LoginError::TooMuch
            | LoginError::IdentityChanged
            | LoginError::WrongStage
            | LoginError::OutOfTurn
            | LoginError::BadInitiatorName(_)
            | LoginError::Negotiation(_) => Some(LoginStatus::InitiatorError),
        }
    }
}

impl std::error::Error for LoginError {}

impl From<Malformed> for LoginError {
    fn from(broken: Malformed) -> LoginError {
        LoginError::Malformed(broken)
    }
}

impl From<MalformedText> for LoginError {
    fn from(broken: MalformedText) -> LoginError {
        LoginError::MalformedText(broken)
    }
}

impl From<NegotiationError> for LoginError {
    fn from(error: NegotiationError) -> LoginError {
        LoginError::Negotiation(error)
    }
}

impl From<ChapError> for LoginError {
    fn from(error: ChapError) -> LoginError {
        LoginError::Chap(error)
    }
}
