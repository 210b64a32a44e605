//! Login (RFC 7143 section 6.3), as two state machines without I/O.
//!
//! ```text
//!                      SecurityNegotiation ──▶ OperationalNegotiation ──▶ FullFeature
//!                              │                         ▲                    ▲
//!        authenticate ─────────┘   may also be the first │      or be skipped │
//! ```
//!
//! [`TargetLogin`] and [`InitiatorLogin`] each drive one login on one connection. The driver passes received
//! PDUs to `handle_pdu`. `poll_transmit` returns PDUs to send, and `poll_event` returns queries to the driver
//! and results. Neither state machine has a clock: the driver ends a login that takes too long.

mod initiator;
#[cfg(test)]
mod pair;
mod target;
#[cfg(test)]
mod tests;

pub use initiator::{
    Attached, Authenticated, InitiatorConfig, InitiatorEvent, InitiatorLogin, LoginFailure,
};
pub use target::{ClaimedNames, TargetLogin, TargetPolicy};

use derive_more::Display;

use crate::chap::{ChapError, ChapPolicy};
use crate::keys::Key;
use crate::name::{BadName, Name};
use crate::negotiate::{NegotiationError, Offers, Parameters, SessionType};
use crate::pdu::{Bhs, Cid, Isid, LoginStatus, Malformed, Sn, Tsih};
use crate::text::MalformedText;

/// Maximum size of the data of a login PDU: the default of MaxRecvDataSegmentLength, which applies until the
/// key is declared (section 13.12). A driver need not read more from a peer that has not logged in.
pub const LOGIN_DATA_BYTES_MAX: usize = 8192;

/// Maximum size of one text in a login, over all its PDUs: the size that every implementation without
/// certificate authentication must accept (section 6.2). A peer that has not logged in cannot make a target
/// store more.
pub const LOGIN_TEXT_BYTES_MAX: usize = 16384;

/// Maximum number of PDUs from a peer in one login. A login with mutual CHAP takes five; this allows texts in
/// several PDUs, and ends a login that never finishes.
pub const LOGIN_PDUS_MAX: usize = 64;

/// A PDU to send: its header, and its data without padding. There are no digests before the full feature phase.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    pub bhs: Bhs,
    /// The data, with the length stated in the header.
    pub data: Vec<u8>,
}

// The interface between the target's login and its driver: queries, replies, and login failures with their status.

/// An event for the driver of a target's login.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetEvent {
    /// A login request. Reply with [`TargetLogin::admit`].
    Admit(AdmissionRequest),
    /// A CHAP response has arrived for this user name, which may be any text. Reply with
    /// [`TargetLogin::judge`]; [`TargetLogin::proved`] then returns whether it was correct.
    Proof { user: String },
    /// Negotiation is complete, and the session is needed. Reply with [`TargetLogin::grant`].
    SessionNeeded(Box<SessionRequest>),
    /// Login complete: once everything is sent, the connection is in full feature phase.
    LoggedIn(Box<LoggedIn>),
    /// Login failed: once everything is sent, close the connection.
    Failed(LoginError),
}

/// The identity of the initiator, and the target and session that it requests.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// InitiatorName. Not authenticated yet.
    pub initiator_name: Name,
    /// TargetName; always set for a normal session.
    pub target_name: Option<Name>,
    pub session_type: SessionType,
    /// The initiator's part of the session identifier.
    pub isid: Isid,
    /// [`Tsih::NEW`] for a new session, or to reinstate one; otherwise the session to join.
    pub tsih: Tsih,
    pub cid: Cid,
}

/// The driver's reply to [`TargetEvent::Admit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Continue the login.
    Accept(Box<Acceptance>),
    /// Refuse with this status. While the server starts or reloads, use [`LoginStatus::ServiceUnavailable`]:
    /// initiators do not retry after "not found".
    Refuse(LoginStatus),
    /// Redirect the initiator to another address.
    Redirect {
        /// `host[:port][,tag]` (section 13.8).
        address: String,
        /// Whether the redirection is permanent.
        permanent: bool,
    },
}

/// The conditions of an accepted login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// The portal group tag, required in a normal session's first response; none for discovery.
    pub target_portal_group_tag: Option<u16>,
    /// The authentication required, if any.
    pub authentication: Option<ChapPolicy>,
    /// Values offered in the negotiation.
    pub offers: Offers,
    /// The session's parameters, if the connection joins one.
    pub session: Option<Parameters>,
    /// If set, refuse the login with this status. If authentication is required, the login is refused only
    /// afterwards: unauthenticated initiators must not find out which sessions exist.
    pub refusal: Option<LoginStatus>,
}

/// The result of the negotiation, for the driver to find or create a session.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// The initiator, authenticated if required.
    pub request: AdmissionRequest,
    /// The authenticated CHAP name.
    pub authenticated_as: Option<String>,
    pub parameters: Parameters,
    /// The CmdSN of the first command of a new session.
    pub cmd_sn: Sn,
}

/// The session of a login: the reply to [`TargetEvent::SessionNeeded`].
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The TSIH; never [`Tsih::NEW`].
    pub tsih: Tsih,
    /// ExpCmdSN: for a new session the request's `cmd_sn`, otherwise the session's own.
    pub exp_cmd_sn: Sn,
    pub max_cmd_sn: Sn,
}

/// A connection in full feature phase.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// The initiator, its target and its connection. `tsih` is now the handle of the session.
    pub request: AdmissionRequest,
    /// The authenticated CHAP name.
    pub authenticated_as: Option<String>,
    pub parameters: Parameters,
    pub exp_cmd_sn: Sn,
    pub max_cmd_sn: Sn,
    /// StatSN of this connection's next status.
    pub stat_sn: Sn,
}

/// Why a login failed at the target.
#[expect(
    missing_docs,
    reason = "where a variant has no more to say than it displays"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum LoginError {
    #[display("the first PDU of the connection is not a login request")]
    NotALogin,
    #[display("a PDU other than a login request arrived")]
    AnotherPdu,
    Malformed(Malformed),
    MalformedText(MalformedText),
    /// The initiator does not support version 0, the only one.
    #[display("no common iSCSI version")]
    Version,
    #[display("the login has too many requests, or its requests are too large")]
    TooMuch,
    /// A request whose session, connection, initiator or target differs from that of the first request.
    #[display("the session, connection or names changed during the login")]
    IdentityChanged,
    #[display("the request is for a different login stage")]
    WrongStage,
    /// A request out of turn, or before our text was complete.
    #[display("the initiator sent a request out of turn")]
    OutOfTurn,
    #[display("{} is missing", _0.name())]
    MissingKey(Key),
    #[display("InitiatorName: {_0}")]
    BadInitiatorName(BadName),
    /// TargetName is invalid, so no such target can exist.
    #[display("TargetName: {_0}")]
    BadTargetName(BadName),
    /// SessionType is neither Normal nor Discovery.
    #[display("unknown SessionType")]
    UnknownSessionType,
    Negotiation(NegotiationError),
    #[display("no common authentication method")]
    NoSharedAuthMethod,
    #[display("the initiator skipped authentication")]
    AuthenticationSkipped,
    Chap(ChapError),
    /// The driver refused the login.
    Refused(LoginStatus),
}

impl LoginError {
    /// The login status, or `None` where the standard requires closing the connection without a response.
    pub fn status(self) -> Option<LoginStatus> {
        match self {
            // Section 4.2.3: "A target receiving any PDU except a Login Request before the Login Phase is started MUST
            // immediately terminate the connection on which the PDU was received."
            LoginError::NotALogin => None,
            // Same section: "... it MUST send a Login reject (with Status "invalid during login") and then
            // disconnect."
            LoginError::AnotherPdu => Some(LoginStatus::InvalidDuringLogin),
            LoginError::Version => Some(LoginStatus::UnsupportedVersion),
            LoginError::MissingKey(_) => Some(LoginStatus::MissingParameter),
            LoginError::BadTargetName(_) => Some(LoginStatus::NotFound),
            LoginError::UnknownSessionType => Some(LoginStatus::SessionTypeNotSupported),
            LoginError::NoSharedAuthMethod
            | LoginError::AuthenticationSkipped
            | LoginError::Chap(_) => Some(LoginStatus::AuthenticationFailure),
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
