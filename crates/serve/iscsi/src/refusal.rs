//! Why a login is refused: what the initiator is told of it, and what the log says, which is more.

use std::fmt;
use std::time::Duration;

use iscsi::pdu::{LoginStatus, Tsih};

/// A rule that forbids a login. What breaks the protocol is [`iscsi::login::LoginError`]'s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The server does not accept logins yet, or any more.
    NotOpen,
    /// The name of a target that is not served.
    NoSuchTarget,
    /// The target is not reached by this portal group.
    PortalGroup(u16),
    /// The target's `initiators` do not list the initiator.
    InitiatorNotListed,
    /// The target's `networks` do not hold its address.
    NetworkNotListed,
    /// The account's `initiators` do not list the initiator.
    NotTheUsersName,
    /// The session of the same name and ISID belongs to this user.
    SessionOfAnother(String),
    /// It names a session that does not exist, or that is not of its nexus and user.
    NoSuchSession(Tsih),
    /// The session has as many connections as it may.
    SessionIsFull,
    /// There are as many sessions as there may be.
    ServerIsFull,
    /// The session of its nexus was replaced again and again meanwhile.
    ReplacedTooOften,
    /// Its address has got this user's secret wrong too often, and is put off for so long.
    TooManyGuesses(Duration),
}

impl Refusal {
    /// What the initiator is told. Who may not log in to a target is told the same as if it were not there.
    pub(crate) fn status(&self) -> LoginStatus {
        match self {
            Refusal::NotOpen | Refusal::TooManyGuesses(_) => LoginStatus::ServiceUnavailable,
            Refusal::NoSuchTarget
            | Refusal::PortalGroup(_)
            | Refusal::InitiatorNotListed
            | Refusal::NetworkNotListed => LoginStatus::NotFound,
            Refusal::NotTheUsersName | Refusal::SessionOfAnother(_) => LoginStatus::AuthorizationFailure,
            Refusal::NoSuchSession(_) => LoginStatus::SessionDoesNotExist,
            Refusal::SessionIsFull => LoginStatus::TooManyConnections,
            Refusal::ServerIsFull | Refusal::ReplacedTooOften => LoginStatus::OutOfResources,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotOpen => f.write_str("the server is starting or ending"),
            Refusal::NoSuchTarget => f.write_str("there is no target of this name"),
            Refusal::PortalGroup(tag) => {
                write!(f, "the target is not reached by portal group {tag} (groups)")
            }
            Refusal::InitiatorNotListed => {
                f.write_str("the target does not list this initiator (initiators)")
            }
            Refusal::NetworkNotListed => f.write_str("the target does not list this address (networks)"),
            Refusal::NotTheUsersName => f.write_str("the account does not list this initiator (initiators)"),
            Refusal::SessionOfAnother(user) => {
                write!(f, "user `{user}` has a session with this initiator name and ISID")
            }
            Refusal::NoSuchSession(tsih) => {
                write!(f, "it names session {}, and has no such session", tsih.0)
            }
            Refusal::SessionIsFull => {
                f.write_str("the session has all its connections (connections-per-session)")
            }
            Refusal::ServerIsFull => f.write_str("there are too many sessions (sessions)"),
            Refusal::ReplacedTooOften => f.write_str("its session was replaced too often meanwhile"),
            Refusal::TooManyGuesses(wait) => write!(
                f,
                "too many wrong secrets for this user from this address; the next is looked at in {} s",
                wait.as_secs() + 1
            ),
        }
    }
}
