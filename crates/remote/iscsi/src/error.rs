//! Errors, and their origin.

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
    /// Its connection or session is lost.
    ConnectionLost,
    /// The target did not respond in time.
    TimedOut,
    /// The target rejected the PDU, or ended the command without executing it.
    Rejected,
    /// A reset of the logical unit or of the target ended the command.
    Aborted,
    /// The command was not sent: it was meant for a session that has been lost, and the device has not been
    /// verified in the new one.
    Reinstated,
    /// Its connection is lost, and the session has moved to another portal group since, in which earlier
    /// commands cannot be ended: it may be executed at any time.
    Unsettled,
    /// The data exceed the limit of a command.
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

/// Why a LUN could not be attached, or a discovery failed.
#[derive(Debug)]
pub enum OpenError {
    /// The URL is wrong.
    Url(UrlError),
    /// The host has no address.
    Resolve {
        /// The host.
        host: String,
        /// The resolver's error.
        error: io::Error,
    },
    /// The host name exists, but has no address.
    NoAddress(String),
    /// Not a name that an iSCSI node may have.
    Name(String),
    /// A file with a secret cannot be read.
    Secret {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file with a secret is given, and no account name.
    SecretWithoutUser(PathBuf),
    /// No connection could be established.
    Connect {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The connection was lost during the login, or during the inquiry of the LUN.
    Broken {
        /// The address.
        address: SocketAddr,
        /// The reason.
        ending: Ending,
    },
    /// The login was refused, by the target or by us.
    Login {
        /// The address.
        address: SocketAddr,
        /// The reason.
        why: LoginFailure,
    },
    /// The login took longer than it may.
    LoginTimedOut(SocketAddr),
    /// Too many redirections.
    Redirected(SocketAddr),
    /// A connection that was to join a session reached another portal group, which cannot be part of the
    /// session (RFC 7143 section 4.4.1).
    AnotherGroup {
        /// The address.
        address: SocketAddr,
        /// The portal group tag of the session.
        session: u16,
        /// That of the connection.
        connection: u16,
    },
    /// The target has no such LUN.
    NoSuchLun(u16),
    /// The LUN is not a disk: its peripheral device type (SPC-4 6.6.2).
    NotADisk(u8),
    /// A mandatory command failed.
    Command {
        /// The command.
        name: &'static str,
        /// Why it has no status.
        error: CommandError,
    },
    /// A mandatory command was refused.
    Refused {
        /// The command.
        name: &'static str,
        /// Its status.
        status: u8,
        /// Its sense data.
        sense: Option<Sense>,
    },
    /// The response to a command is invalid.
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

/// The text of a status with sense data.
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
    /// Logout, confirmed by the target.
    LoggedOut,
    /// The target closed the connection.
    Closed,
    /// No traffic and no response to a ping.
    Silent,
    /// The target neither ends a command nor aborts it.
    Unresponsive,
    /// A socket error.
    Io(io::Error),
    /// An invalid PDU during the login.
    NotALogin,
    /// A header digest error: the start of the next PDU is unknown (RFC 7143 section 7.7).
    HeaderDigest,
    /// A protocol error of the target.
    Fatal(Fatal),
    /// The machine named data outside the command's buffer: a bug of ours.
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
