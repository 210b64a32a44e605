//! Reasons to end a login at the target, and their login status.

use std::fmt;

use crate::chap::ChapError;
use crate::keys::Key;
use crate::name::BadName;
use crate::negotiate::NegotiationError;
use crate::pdu::{LoginStatus, Malformed};
use crate::text::MalformedText;

/// Why a login failed at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginError {
    /// The first PDU was not a Login Request.
    NotALogin,
    /// Another PDU than a Login Request during the login.
    AnotherPdu,
    /// A malformed header.
    Malformed(Malformed),
    /// A malformed text.
    MalformedText(MalformedText),
    /// The initiator does not support version 0, the only one.
    Version,
    /// Too many PDUs, or too large ones.
    TooMuch,
    /// A request with another session, connection, initiator or target than the first.
    IdentityChanged,
    /// A request for another stage than that of the login.
    WrongStage,
    /// A request out of turn, or before our text was complete.
    OutOfTurn,
    /// A required key is missing.
    MissingKey(Key),
    /// InitiatorName is invalid.
    BadInitiatorName(BadName),
    /// TargetName is invalid, so no such target can exist.
    BadTargetName(BadName),
    /// SessionType is neither Normal nor Discovery.
    UnknownSessionType,
    /// An invalid negotiation of a key.
    Negotiation(NegotiationError),
    /// No common authentication method.
    NoSharedAuthMethod,
    /// The initiator skipped the required authentication.
    AuthenticationSkipped,
    /// CHAP authentication failed.
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

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoginError::NotALogin => f.write_str("the connection does not begin with a login"),
            LoginError::AnotherPdu => f.write_str("another PDU than a login request"),
            LoginError::Malformed(broken) => broken.fmt(f),
            LoginError::MalformedText(broken) => broken.fmt(f),
            LoginError::Version => f.write_str("no version of iSCSI in common"),
            LoginError::TooMuch => f.write_str("the login takes too many requests, or too large ones"),
            LoginError::IdentityChanged => {
                f.write_str("the login changed its session, connection or names on the way")
            }
            LoginError::WrongStage => f.write_str("a request for another stage than the login is in"),
            LoginError::OutOfTurn => f.write_str("a request that should have waited"),
            LoginError::MissingKey(key) => write!(f, "{} is missing", key.name()),
            LoginError::BadInitiatorName(why) => write!(f, "InitiatorName: {why}"),
            LoginError::BadTargetName(why) => write!(f, "TargetName: {why}"),
            LoginError::UnknownSessionType => f.write_str("an unknown SessionType"),
            LoginError::Negotiation(error) => error.fmt(f),
            LoginError::NoSharedAuthMethod => f.write_str("no authentication method that both sides accept"),
            LoginError::AuthenticationSkipped => f.write_str("the initiator skipped authentication"),
            LoginError::Chap(error) => error.fmt(f),
            LoginError::Refused(status) => status.fmt(f),
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
