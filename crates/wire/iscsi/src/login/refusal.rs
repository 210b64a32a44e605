//! Why a target ends a login, and what it tells the initiator.

use std::fmt;

use crate::chap::ChapError;
use crate::keys::Key;
use crate::name::BadName;
use crate::negotiate::NegotiationError;
use crate::pdu::{LoginStatus, Malformed};
use crate::text::MalformedText;

/// Why a login failed at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The connection began with something else than a login.
    NotALogin,
    /// Something else than a login request came in the middle of a login.
    AnotherPdu,
    /// A request's header breaks a rule.
    Malformed(Malformed),
    /// A request's text breaks a rule.
    MalformedText(MalformedText),
    /// The initiator does not speak version 0, the only one there is.
    Version,
    /// Too many requests, or too large ones.
    TooMuch,
    /// A request that names another session or connection than the login began with, or another initiator or
    /// target.
    IdentityChanged,
    /// A request for another stage than the login is in.
    WrongStage,
    /// A request that should have waited, or let us finish our text.
    OutOfTurn,
    /// A key that must be there is not.
    MissingKey(Key),
    /// The initiator's name is none.
    BadInitiatorName(BadName),
    /// The target's name is none, so there cannot be such a target.
    BadTargetName(BadName),
    /// SessionType is neither Normal nor Discovery.
    UnknownSessionType,
    /// A key was negotiated in a way that it cannot be.
    Negotiation(NegotiationError),
    /// No authentication method that both sides accept.
    NoSharedAuthMethod,
    /// The initiator skips the authentication that it must pass.
    AuthenticationSkipped,
    /// The initiator did not prove itself.
    Chap(ChapError),
    /// The driver refused.
    Refused(LoginStatus),
}

impl Cause {
    /// What the initiator is told; nothing where the standard says to just close the connection.
    pub fn status(self) -> Option<LoginStatus> {
        match self {
            // Section 4.2.3: "A target receiving any PDU except a Login Request before the Login Phase is started MUST
            // immediately terminate the connection on which the PDU was received."
            Cause::NotALogin => None,
            // The same: "... it MUST send a Login reject (with Status "invalid during login") and then disconnect."
            Cause::AnotherPdu => Some(LoginStatus::InvalidDuringLogin),
            Cause::Version => Some(LoginStatus::UnsupportedVersion),
            Cause::MissingKey(_) => Some(LoginStatus::MissingParameter),
            Cause::BadTargetName(_) => Some(LoginStatus::NotFound),
            Cause::UnknownSessionType => Some(LoginStatus::SessionTypeNotSupported),
            Cause::NoSharedAuthMethod | Cause::AuthenticationSkipped | Cause::Chap(_) => {
                Some(LoginStatus::AuthenticationFailure)
            }
            Cause::Refused(status) => Some(status),
            Cause::Malformed(_)
            | Cause::MalformedText(_)
            | Cause::TooMuch
            | Cause::IdentityChanged
            | Cause::WrongStage
            | Cause::OutOfTurn
            | Cause::BadInitiatorName(_)
            | Cause::Negotiation(_) => Some(LoginStatus::InitiatorError),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::NotALogin => f.write_str("the connection does not begin with a login"),
            Cause::AnotherPdu => f.write_str("another PDU than a login request"),
            Cause::Malformed(broken) => broken.fmt(f),
            Cause::MalformedText(broken) => broken.fmt(f),
            Cause::Version => f.write_str("no version of iSCSI in common"),
            Cause::TooMuch => f.write_str("the login takes too many requests, or too large ones"),
            Cause::IdentityChanged => {
                f.write_str("the login changed its session, connection or names on the way")
            }
            Cause::WrongStage => f.write_str("a request for another stage than the login is in"),
            Cause::OutOfTurn => f.write_str("a request that should have waited"),
            Cause::MissingKey(key) => write!(f, "{} is missing", key.name()),
            Cause::BadInitiatorName(why) => write!(f, "InitiatorName: {why}"),
            Cause::BadTargetName(why) => write!(f, "TargetName: {why}"),
            Cause::UnknownSessionType => f.write_str("an unknown SessionType"),
            Cause::Negotiation(error) => error.fmt(f),
            Cause::NoSharedAuthMethod => f.write_str("no authentication method that both sides accept"),
            Cause::AuthenticationSkipped => f.write_str("the initiator skipped authentication"),
            Cause::Chap(error) => error.fmt(f),
            Cause::Refused(status) => status.fmt(f),
        }
    }
}

impl std::error::Error for Cause {}

impl From<Malformed> for Cause {
    fn from(broken: Malformed) -> Cause {
        Cause::Malformed(broken)
    }
}

impl From<MalformedText> for Cause {
    fn from(broken: MalformedText) -> Cause {
        Cause::MalformedText(broken)
    }
}

impl From<NegotiationError> for Cause {
    fn from(error: NegotiationError) -> Cause {
        Cause::Negotiation(error)
    }
}

impl From<ChapError> for Cause {
    fn from(error: ChapError) -> Cause {
        Cause::Chap(error)
    }
}
