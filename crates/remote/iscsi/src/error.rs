//! What can go wrong, and whose fault it was.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use block::DeviceError;
use iscsi::initiator::Fatal;
use iscsi::login::LoginFailure;
use scsi::{Sense, status_words};

use crate::url::UrlError;
use crate::verbs::device_type;

/// Why a command has no status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The connection it was on is gone, or the session is.
    ConnectionLost,
    /// The target did not answer in time.
    TimedOut,
    /// The target refused the PDU, or ended the command without carrying it out.
    Rejected,
    /// A reset of the logical unit or of the target ended the command.
    Aborted,
    /// The command was not sent: it was meant for a session that was lost since, and the one in its place has not
    /// been looked at.
    Reinstated,
    /// The connection it was on is gone, and the session has moved to another portal group since, where nobody can end what
    /// was sent before: it may be carried out at any time.
    Unsettled,
    /// The data are longer than a command can move.
    TooLong,
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::ConnectionLost => write!(f, "the connection to the target is lost"),
            CommandError::TimedOut => write!(f, "the target did not answer in time"),
            CommandError::Rejected => write!(f, "the target rejected the command's PDU"),
            CommandError::Aborted => write!(f, "the command was ended by a reset"),
            CommandError::Reinstated => write!(f, "the session was lost and begun again"),
            CommandError::Unsettled => {
                write!(
                    f,
                    "the session has moved to another portal group, and the command may still be carried out"
                )
            }
            CommandError::TooLong => write!(f, "a command moves less than 4 GiB"),
        }
    }
}

impl std::error::Error for CommandError {}

impl From<CommandError> for DeviceError {
    fn from(error: CommandError) -> DeviceError {
        match error {
            CommandError::ConnectionLost
            | CommandError::Rejected
            | CommandError::Aborted
            | CommandError::Reinstated => DeviceError::NotReady,
            CommandError::TimedOut => DeviceError::TimedOut,
            CommandError::Unsettled => DeviceError::Unsettled,
            CommandError::TooLong => DeviceError::OutOfRange,
        }
    }
}

/// Why a LUN could not be attached, or a portal not be asked.
#[derive(Debug)]
pub enum OpenError {
    /// The URL is wrong.
    Url(UrlError),
    /// The host has no address.
    Resolve {
        /// The host.
        host: String,
        /// What the resolver said.
        error: io::Error,
    },
    /// The resolver knows the host, and no address of it.
    NoAddress(String),
    /// Not a name that an iSCSI node may have.
    Name(String),
    /// A file with a secret cannot be read.
    Secret {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A file has a secret, and nobody is named whose it is.
    SecretWithoutUser(PathBuf),
    /// No connection came about.
    Connect {
        /// Where to.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The connection broke while logging in, or while the LUN was being looked at.
    Broken {
        /// Where to.
        address: SocketAddr,
        /// Why.
        ending: Ending,
    },
    /// The target, or what we hold against it, did not let us in.
    Login {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: LoginFailure,
    },
    /// The login took longer than it may.
    LoginTimedOut(SocketAddr),
    /// The target sends us elsewhere, again and again.
    Redirected(SocketAddr),
    /// A connection that was to join a session has reached another portal group, which its session cannot have
    /// connections with (RFC 7143 section 4.4.1).
    AnotherGroup {
        /// Where.
        address: SocketAddr,
        /// The portal group tag of the session.
        session: u16,
        /// That of the connection.
        connection: u16,
    },
    /// The target has no such LUN.
    NoSuchLun(u16),
    /// The LUN is something else than a disk: its peripheral device type (SPC-4 6.6.2).
    NotADisk(u8),
    /// A command that every disk must know failed.
    Command {
        /// Which.
        name: &'static str,
        /// Why it has no status.
        error: CommandError,
    },
    /// A command that every disk must know was refused.
    Refused {
        /// Which.
        name: &'static str,
        /// Its status.
        status: u8,
        /// What it said.
        sense: Option<Sense>,
    },
    /// The answer to a command makes no sense.
    Nonsense(&'static str),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Url(error) => error.fmt(f),
            OpenError::Resolve { host, error } => write!(f, "{host}: {error}"),
            OpenError::NoAddress(host) => write!(f, "{host} has no address"),
            OpenError::Name(name) => {
                write!(f, "{name:?} is no iSCSI name, such as iqn.2026-01.com.example:disk")
            }
            OpenError::Secret { path, error } => {
                write!(f, "the secret in {} cannot be read: {error}", path.display())
            }
            OpenError::SecretWithoutUser(path) => {
                write!(f, "{} holds a secret, and no user is named whose it is", path.display())
            }
            OpenError::Connect { address, error } => write!(f, "cannot connect to {address}: {error}"),
            OpenError::Broken { address, ending } => write!(f, "the connection to {address} broke: {ending}"),
            OpenError::Login { address, why } => write!(f, "{address}: {why}"),
            OpenError::LoginTimedOut(address) => write!(f, "the login at {address} took too long"),
            OpenError::Redirected(address) => write!(f, "{address} sends us on too often"),
            OpenError::AnotherGroup { address, session, connection } => write!(
                f,
                "{address} is of portal group {connection} now, and the session is with portal group {session}"
            ),
            OpenError::NoSuchLun(lun) => write!(f, "the target has no LUN {lun}"),
            OpenError::NotADisk(kind) => {
                write!(f, "the LUN is no disk: its device type is {kind:#04x}, a {}", device_type(*kind))
            }
            OpenError::Command { name, error } => write!(f, "{name} failed: {error}"),
            OpenError::Refused { name, status, sense } => {
                write!(f, "the target refused {name}: {}", refusal(*status, *sense))
            }
            OpenError::Nonsense(name) => write!(f, "the answer to {name} makes no sense"),
        }
    }
}

/// What a target says with a command that it does not carry out.
pub(crate) fn refusal(status: u8, sense: Option<Sense>) -> String {
    match sense {
        Some(sense) => sense.to_string(),
        None => format!("{} (status {status:#04x})", status_words(status)),
    }
}

impl std::error::Error for OpenError {}

impl From<UrlError> for OpenError {
    fn from(error: UrlError) -> OpenError {
        OpenError::Url(error)
    }
}

/// Why a connection ended.
#[derive(Debug)]
pub enum Ending {
    /// We said good-bye, and the target agreed.
    LoggedOut,
    /// The target closed the connection.
    Closed,
    /// The target said nothing any more, even when asked.
    Silent,
    /// The target neither carries a command out nor aborts it.
    Unresponsive,
    /// The network failed.
    Io(io::Error),
    /// In the middle of a login came a PDU that no login has.
    NotALogin,
    /// A header's digest was wrong, so nobody knows where the next PDU begins (RFC 7143 section 7.7).
    HeaderDigest,
    /// The target broke a rule.
    Fatal(Fatal),
    /// The machine named a place for data that their command does not have: a mistake of ours.
    NoPlace,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::LoggedOut => write!(f, "logged out"),
            Ending::Closed => write!(f, "the target closed it"),
            Ending::Unresponsive => write!(f, "the target neither carries out a command nor aborts it"),
            Ending::Silent => write!(f, "the target is silent, even when asked"),
            Ending::Io(error) => error.fmt(f),
            Ending::NotALogin => write!(f, "what came is no answer to a login"),
            Ending::HeaderDigest => write!(f, "a header came with a wrong digest"),
            Ending::Fatal(fatal) => write!(f, "the target broke a rule: {fatal}"),
            Ending::NoPlace => write!(f, "data came for which there is no place"),
        }
    }
}

impl From<Fatal> for Ending {
    fn from(fatal: Fatal) -> Ending {
        Ending::Fatal(fatal)
    }
}
