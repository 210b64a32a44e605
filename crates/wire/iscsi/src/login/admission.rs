//! Questions of the target's login to its driver, and the replies.

use crate::chap::ChapPolicy;
use crate::name::Name;
use crate::negotiate::{Offers, Parameters, SessionType};
use crate::pdu::{Cid, Isid, LoginStatus, Tsih};
use crate::serial::Sn;

use super::LoginError;

/// An event for the driver of a target's login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetEvent {
    /// A login request. Reply with [`super::TargetLogin::admit`].
    Admit(AdmissionRequest),
    /// A CHAP response for this user, which may be any text. Reply with [`super::TargetLogin::judge`];
    /// [`super::TargetLogin::proved`] then says whether it was correct.
    Proof {
        /// CHAP_N.
        user: String,
    },
    /// Negotiation is complete, and the session is needed. Reply with [`super::TargetLogin::grant`].
    SessionNeeded(Box<SessionRequest>),
    /// Login complete: once everything is sent, the connection is in full feature phase.
    LoggedIn(Box<LoggedIn>),
    /// Login failed: once everything is sent, close the connection.
    Failed(LoginError),
}

/// The initiator, and what it requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// InitiatorName. Not authenticated yet.
    pub initiator_name: Name,
    /// TargetName; always set for a normal session.
    pub target_name: Option<Name>,
    /// SessionType.
    pub session_type: SessionType,
    /// The initiator's part of the session identifier.
    pub isid: Isid,
    /// [`Tsih::NEW`] for a new session, or to reinstate one; else the session to join.
    pub tsih: Tsih,
    /// The connection's CID.
    pub cid: Cid,
}

/// The driver's reply to [`TargetEvent::Admit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Continue.
    Accept(Box<Acceptance>),
    /// Refuse with this status. While starting or reloading use [`LoginStatus::ServiceUnavailable`]:
    /// initiators give up on a target that is "not found".
    Refuse(LoginStatus),
    /// Redirect.
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
    /// The status to refuse the login with, after authentication if required: unauthenticated initiators do
    /// not learn which sessions exist.
    pub refusal: Option<LoginStatus>,
}

/// The result of the negotiation, for the driver to find or create a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// The initiator, authenticated if required.
    pub request: AdmissionRequest,
    /// The authenticated CHAP name.
    pub authenticated_as: Option<String>,
    /// The negotiated parameters.
    pub parameters: Parameters,
    /// The CmdSN of the first command of a new session.
    pub cmd_sn: Sn,
}

/// The session of a login: the reply to [`TargetEvent::SessionNeeded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The TSIH; never [`Tsih::NEW`].
    pub tsih: Tsih,
    /// ExpCmdSN: of a new session the request's `cmd_sn`, else the session's own.
    pub exp_cmd_sn: Sn,
    /// MaxCmdSN.
    pub max_cmd_sn: Sn,
}

/// A connection in full feature phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// The initiator, its target and connection. `tsih` is now that of the session.
    pub request: AdmissionRequest,
    /// The authenticated CHAP name.
    pub authenticated_as: Option<String>,
    /// The negotiated parameters.
    pub parameters: Parameters,
    /// ExpCmdSN.
    pub exp_cmd_sn: Sn,
    /// MaxCmdSN.
    pub max_cmd_sn: Sn,
    /// StatSN of this connection's next status.
    pub stat_sn: Sn,
}
