//! Reasons to refuse a login: the status that the initiator gets, and the more detailed log text.

use std::fmt;
use std::time::Duration;

use iscsi::pdu::{LoginStatus, Tsih};

/// A rule that forbids a login. What breaks the protocol is [`iscsi::login::LoginError`]'s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The server does not accept logins yet, or any more.
    NotOpen,
    /// The target does not exist.
    NoSuchTarget,
    /// The target is not accessible through this portal group.
    PortalGroup(u16),
    /// The target's `initiators` do not list the initiator.
    InitiatorNotListed,
    /// The target's `networks` do not contain its address.
    NetworkNotListed,
    /// The account's `initiators` do not list the initiator.
    NotTheUsersName,
    /// The session of the same name and ISID belongs to this user.
    SessionOfAnother(String),
    /// Its TSIH names no session of its nexus and user.
    NoSuchSession(Tsih),
    /// The session's limit of connections is reached.
    SessionIsFull,
    /// The server's limit of sessions is reached.
    ServerIsFull,
    /// The session of its nexus was reinstated too often while this login waited.
    ReplacedTooOften,
    /// Too many wrong secrets for this user from its address; the remaining delay.
    TooManyGuesses(Duration),
}

impl Refusal {
    /// Its name in metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Refusal::NotOpen => "not_open",
            Refusal::NoSuchTarget => "no_such_target",
            Refusal::PortalGroup(_) => "portal_group",
            Refusal::InitiatorNotListed => "initiator_not_listed",
            Refusal::NetworkNotListed => "network_not_listed",
            Refusal::NotTheUsersName => "not_the_users_name",
            Refusal::SessionOfAnother(_) => "session_of_another",
            Refusal::NoSuchSession(_) => "no_such_session",
            Refusal::SessionIsFull => "session_full",
            Refusal::ServerIsFull => "server_full",
            Refusal::ReplacedTooOften => "replaced_too_often",
            Refusal::TooManyGuesses(_) => "too_many_guesses",
        }
    }

    /// The login status. An initiator without access to a target that is hidden gets the same status as for one that does not
    /// exist.
    pub(crate) fn status(&self, hidden: bool) -> LoginStatus {
        match self {
            Refusal::NotOpen | Refusal::TooManyGuesses(_) => LoginStatus::ServiceUnavailable,
            Refusal::InitiatorNotListed | Refusal::NetworkNotListed if !hidden => {
                LoginStatus::AuthorizationFailure
            }
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

/// The cause in the log, with the key of the configuration that decides it: `docs/operate.md` has them all.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotOpen => f.write_str("server starts or ends"),
            Refusal::NoSuchTarget => f.write_str("no such target"),
            Refusal::PortalGroup(tag) => write!(f, "portal group {tag} not listed (groups)"),
            Refusal::InitiatorNotListed => f.write_str("initiator not listed (initiators)"),
            Refusal::NetworkNotListed => f.write_str("address not listed (networks)"),
            Refusal::NotTheUsersName => f.write_str("initiator not of account"),
            Refusal::SessionOfAnother(user) => write!(f, "session of another user: {user}"),
            Refusal::NoSuchSession(tsih) => write!(f, "no such session: {}", tsih.0),
            Refusal::SessionIsFull => f.write_str("session full (connections-per-session)"),
            Refusal::ServerIsFull => f.write_str("server full (sessions)"),
            Refusal::ReplacedTooOften => f.write_str("session replaced too often meanwhile"),
            Refusal::TooManyGuesses(wait) => {
                write!(f, "too many wrong secrets: put off for {} s", wait.as_secs() + 1)
            }
        }
    }
}
