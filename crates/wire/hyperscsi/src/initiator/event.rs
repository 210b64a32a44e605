//! Events from the machine to its driver.

use derive_more::{Display, Error};

use crate::login::Refusal;
use crate::pdu::{FunctionResult, Response};

/// A command or a function of an initiator. No two of one machine are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub(super) session: u32,
    pub(super) number: u64,
}

/// An action for the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The session has begun: requests may be submitted.
    LoggedIn {
        /// Commands that may be outstanding.
        queue_depth: u32,
        /// Bytes of a frame.
        frame_bytes: usize,
        /// Whether the frames are sealed, and the peer is proven to know the key.
        is_encrypted: bool,
    },
    /// The session goes on in another epoch. Nothing was lost.
    Resumed,
    /// A command ended.
    Completed {
        /// Which.
        id: RequestId,
        /// How.
        response: Response,
    },
    /// A task management function ended.
    FunctionDone {
        /// Which.
        id: RequestId,
        /// How.
        result: FunctionResult,
    },
    /// A request will not be answered: the session is gone. It may have been executed, but will not be after any
    /// request of the next session.
    Lost {
        /// Which.
        id: RequestId,
    },
    /// The target has no record of the session: an I_T nexus loss (SAM-5 6.3.4). Another login is under way.
    NexusLost,
    /// The machine has ended.
    Ended(EndReason),
}

/// Why a machine has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum EndReason {
    /// [`super::Initiator::disconnect`].
    #[display("the session was closed")]
    Disconnected,
    /// The target closed the session.
    #[display("the target closed the session")]
    ByTarget,
    /// The target refused the login.
    #[display("{_0}")]
    Refused(#[error(not(source))] Refusal),
    /// Nothing answered.
    #[display("nothing answers")]
    Unreachable,
    /// The target broke a rule of the protocol.
    #[display("the target broke a rule of the protocol")]
    TargetMisbehaved,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum SubmitError {
    /// There is no session: before [`Event::LoggedIn`], after [`Event::NexusLost`] or [`Event::Ended`].
    #[display("there is no session")]
    NoSession,
    /// As many requests as the target allows are outstanding.
    #[display("too many requests are outstanding")]
    Full,
    /// The CDB or the data are longer than the protocol allows.
    #[display("the command is longer than the protocol allows")]
    TooLong,
}
