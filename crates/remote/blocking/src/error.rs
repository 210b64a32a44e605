//! Errors that exist because a session has a thread of its own.

use std::fmt;
use std::io;

use block::DeviceError;
use iscsi_client::CommandError;

/// The session's thread has ended: the LUN was closed, or the thread has panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the session is closed")
    }
}

impl std::error::Error for Ended {}

impl From<Ended> for DeviceError {
    fn from(_: Ended) -> DeviceError {
        DeviceError::NotReady
    }
}

impl From<Ended> for CommandError {
    fn from(_: Ended) -> CommandError {
        CommandError::ConnectionLost
    }
}

/// Why a session could not be opened, or a discovery failed.
#[derive(Debug)]
pub enum OpenError {
    /// The system gives no thread, or no epoll instance.
    System(io::Error),
    /// The initiator's reason.
    Open(iscsi_client::OpenError),
    /// The session's thread has panicked.
    Ended(Ended),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::System(error) => write!(f, "a thread for the session cannot be started: {error}"),
            OpenError::Open(error) => error.fmt(f),
            OpenError::Ended(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<Ended> for OpenError {
    fn from(error: Ended) -> OpenError {
        OpenError::Ended(error)
    }
}

impl From<iscsi_client::OpenError> for OpenError {
    fn from(error: iscsi_client::OpenError) -> OpenError {
        OpenError::Open(error)
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        OpenError::System(error)
    }
}
