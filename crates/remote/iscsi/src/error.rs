//! The errors of the initiator.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use block::DeviceError;
use derive_more::Display;
use failover::JournalFileError;
use iscsi::initiator::Fatal;
use iscsi::login::LoginFailure;
use iscsi::name::BadName;
use scsi::{Sense, device_type, status_words};

use crate::url::UrlError;

/// The reason why a command has no status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum CommandError {
    /// The command's connection or session is lost.
    #[display("the connection to the target is lost")]
    ConnectionLost,
    /// The target did not respond in time.
    #[display("the target timed out")]
    TimedOut,
    /// The target rejected the PDU, or terminated the command without executing it.
    #[display("the target rejected the command's PDU")]
    Rejected,
    /// A reset of the logical unit or of the target aborted the command.
    #[display("a reset terminated the command")]
    Aborted,
    /// The command was not sent. It was meant for a session that has been lost, and the device has not been
    /// verified in the new session.
    #[display("the session was lost and reinstated")]
    Reinstated,
    /// The command's connection is lost, and the session has since moved to another portal group. Earlier
    /// commands cannot be aborted from there, so the target may still execute this command at any time.
    #[display(
        "the session has moved to another portal group, and the command may still be executed"
    )]
    Unsettled,
    /// The data exceeds the limit of a command.
    #[display("the data exceeds the protocol's limit for a command")]
    TooLong,
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

/// The reason why a LUN could not be attached, or why a discovery failed.
#[derive(Debug, Display)]
pub enum OpenError {
    /// The journal file cannot be used.
    JournalFile(JournalFileError),
    /// The URL is wrong.
    Url(UrlError),
    /// The host name could not be resolved.
    #[display("{host}: {error}")]
    Resolve {
        /// The host.
        host: String,
        /// The resolver's error.
        error: io::Error,
    },
    /// The host name exists, but has no address.
    #[display("{_0} has no address")]
    NoAddress(String),
    /// A login cannot contain this name.
    #[display("{name:?} is not an iSCSI name, such as iqn.2026-01.com.example:disk: {why}")]
    Name {
        /// The name.
        name: String,
        /// The reason why the name is invalid.
        why: BadName,
    },
    /// A file with a secret cannot be read.
    #[display("the secret in {} cannot be used: {error}", path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file with a secret is specified, but no account name.
    #[display("{} contains a secret, but no user is specified", _0.display())]
    SecretWithoutUser(PathBuf),
    /// No connection could be established.
    #[display("cannot connect to {address}: {error}")]
    Connect {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The connection was lost during the login, or while the LUN was queried.
    #[display("the connection to {address} was lost: {ending}")]
    Broken {
        /// The address.
        address: SocketAddr,
        /// The reason.
        ending: Ending,
    },
    /// The login was rejected, by the target or by this initiator.
    #[display("{address}: {why}")]
    Login {
        /// The address.
        address: SocketAddr,
        /// The reason.
        why: LoginFailure,
    },
    /// The login timed out.
    #[display("the login at {_0} timed out")]
    LoginTimedOut(SocketAddr),
    /// A login failed at an address that the target's portal had redirected it to.
    #[display("{error}; {from} redirected the login to this address")]
    AfterRedirection {
        /// The portal that redirected the login last.
        from: SocketAddr,
        /// The error.
        error: Box<OpenError>,
    },
    /// READ CAPACITY reported a block size that is not supported here.
    #[display("the LUN has blocks of {_0} bytes; only powers of two from 512 are supported")]
    BlockSize(u32),
    /// Too many redirections.
    #[display("{_0} redirected the login too often")]
    Redirected(SocketAddr),
    /// A connection that was meant to join a session reached another portal group, which cannot be part of
    /// the session (RFC 7143 section 4.4.1).
    #[display(
        "{address} is now in portal group {connection}, but the session is in portal group {session}"
    )]
    AnotherGroup {
        /// The address.
        address: SocketAddr,
        /// The portal group tag of the session.
        session: u16,
        /// The portal group tag of the connection.
        connection: u16,
    },
    /// Several sessions are possible only for a block device.
    #[display(
        "this command uses one portal: the keys address and sessions, and a second source, apply only to \
         commands that read and write blocks, such as bench, copy, attach and serve"
    )]
    SeveralPaths,
    /// The path leads to a different device than the other paths.
    #[display("the LUN at {address} is not the same device as over the other paths: {why}")]
    AnotherDevice {
        /// The address.
        address: SocketAddr,
        /// The difference.
        why: String,
    },
    /// The target has no such LUN.
    #[display("the target has no LUN {_0}")]
    NoSuchLun(u16),
    /// The LUN is not a disk. The value is its peripheral device type (SPC-4 6.6.2).
    #[display("the LUN is not a disk: its device type is {_0:#04x}, a {}", device_type(*_0))]
    NotADisk(u8),
    /// A mandatory command failed.
    #[display("{name} failed: {error}")]
    Command {
        /// The command.
        name: &'static str,
        /// The reason why the command has no status.
        error: CommandError,
    },
    /// The target rejected a mandatory command.
    #[display("the target refused {name}: {}", refusal(*status, *sense))]
    Refused {
        /// The command.
        name: &'static str,
        /// The command's status.
        status: u8,
        /// The command's sense data.
        sense: Option<Sense>,
    },
    /// The response to a command is invalid.
    #[display("the response to {_0} is invalid")]
    Nonsense(&'static str),
}

/// Returns the text for a status with sense data.
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

/// The reason why a connection ended.
#[derive(Debug, Display)]
pub enum Ending {
    /// The target has confirmed a logout.
    #[display("logged out")]
    LoggedOut,
    /// The target closed the connection.
    #[display("the target closed the connection")]
    Closed,
    /// There was no traffic, and the target did not respond to a ping.
    #[display("the target is unresponsive, even to NOPs")]
    Silent,
    /// The target has neither completed nor aborted a command in time.
    #[display("the target neither executes a command nor aborts it")]
    Unresponsive,
    /// A socket error.
    Io(io::Error),
    /// An invalid PDU during the login.
    #[display("the data received is not a login response")]
    NotALogin,
    /// The peer sent the greeting of an NBD server.
    #[display("this port speaks NBD: use a URL that begins with nbd://")]
    Nbd,
    /// A header digest error: the start of the next PDU is unknown (RFC 7143 section 7.7).
    #[display("a received header has an incorrect digest")]
    HeaderDigest,
    /// A protocol error of the target.
    #[display("the target violated the protocol: {_0}")]
    Fatal(Fatal),
    /// The state machine referred to data outside the command's buffer, which is a bug in this initiator.
    #[display("data was received outside the requested range")]
    NoPlace,
}

impl From<Fatal> for Ending {
    fn from(fatal: Fatal) -> Ending {
        Ending::Fatal(fatal)
    }
}
