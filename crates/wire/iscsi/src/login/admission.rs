//! What a target's login asks of its driver, and what the driver may answer.

use crate::chap::ChapPolicy;
use crate::name::Name;
use crate::negotiate::{Offers, Parameters, SessionType};
use crate::pdu::{Cid, Isid, LoginStatus, Tsih};
use crate::serial::Sn;

use super::LoginError;

/// What a target's login wants its driver to know or to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetEvent {
    /// Somebody is at the door. Answer with [`super::TargetLogin::admit`].
    Admit(AdmissionRequest),
    /// The initiator offers to prove that it is this CHAP user, which may be any text. Answer with
    /// [`super::TargetLogin::judge`]; whether the proof held, [`super::TargetLogin::proved`] says at once.
    Proof {
        /// Who.
        user: String,
    },
    /// Everything is agreed but the session itself. Answer with [`super::TargetLogin::grant`].
    SessionNeeded(Box<SessionRequest>),
    /// The login is done: once everything is sent, the connection is in full feature phase.
    LoggedIn(Box<LoggedIn>),
    /// The login has failed: once everything is sent, close the connection.
    Failed(LoginError),
}

/// Who wants to log in, and to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// The initiator, as it calls itself. Not proved yet.
    pub initiator_name: Name,
    /// The target wanted; always there for a normal session.
    pub target_name: Option<Name>,
    /// What for.
    pub session_type: SessionType,
    /// The initiator's part of the session's identifier.
    pub isid: Isid,
    /// [`Tsih::NEW`] for a new session, or to replace one; else the session that the connection is to join.
    pub tsih: Tsih,
    /// The connection's identifier within its session.
    pub cid: Cid,
}

/// The driver's answer to [`TargetEvent::Admit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Go on.
    Accept(Box<Acceptance>),
    /// No, and why not. While starting or reloading say [`LoginStatus::ServiceUnavailable`]: initiators give up on
    /// a target that is "not found".
    Refuse(LoginStatus),
    /// Try there.
    Redirect {
        /// `host[:port][,tag]` (section 13.8).
        address: String,
        /// Whether it is to be remembered.
        permanent: bool,
    },
}

/// On what conditions a login may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// The tag of the portal group, which a normal session's first response must give; none for discovery.
    pub target_portal_group_tag: Option<u16>,
    /// How the initiator must prove itself, if it must.
    pub authentication: Option<ChapPolicy>,
    /// What this target would like to agree on.
    pub offers: Offers,
    /// What the session has agreed on, if the connection is to join one.
    pub session: Option<Parameters>,
    /// What to refuse the login with, once the initiator has proved itself if it must: strangers are not told which
    /// sessions there are.
    pub refusal: Option<LoginStatus>,
}

/// What is agreed, for a driver to find or make a session by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// Who wants it, now proved if that was asked for.
    pub request: AdmissionRequest,
    /// The CHAP name that was proved.
    pub authenticated_as: Option<String>,
    /// What both sides will work by.
    pub parameters: Parameters,
    /// The CmdSN of the first command of a new session.
    pub cmd_sn: Sn,
}

/// A session for a login: what [`TargetEvent::SessionNeeded`] is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The session's handle; never [`Tsih::NEW`].
    pub tsih: Tsih,
    /// The next CmdSN expected: of a new session the request's `cmd_sn`, else the session's own.
    pub exp_cmd_sn: Sn,
    /// The last CmdSN that there is room for.
    pub max_cmd_sn: Sn,
}

/// A connection in full feature phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// Who, to what, on which connection. `tsih` is the session's now.
    pub request: AdmissionRequest,
    /// The CHAP name that was proved.
    pub authenticated_as: Option<String>,
    /// What both sides work by.
    pub parameters: Parameters,
    /// The next CmdSN expected.
    pub exp_cmd_sn: Sn,
    /// The last CmdSN that there is room for.
    pub max_cmd_sn: Sn,
    /// The number of this connection's next status.
    pub stat_sn: Sn,
}
