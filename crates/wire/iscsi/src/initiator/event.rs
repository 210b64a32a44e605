//! Events from the machine to its driver, and the identifiers that both use.

use super::phase_times::Times;
pub use crate::connections::ConnectionId;
use crate::pdu::{AsyncMessage, Cid, LogoutResult, RejectReason, Residual, TaskManagementResult};
use crate::slab::Key;

/// An outstanding command. Its index is reused after its end; the whole identifier is not, within any
/// relevant time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(pub(super) Key);

/// An outstanding task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TmfId(pub(super) Key);

/// An outstanding ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PingId(pub(super) Key);

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A command ended with a status. All of its data that the target sent have arrived.
    Done {
        /// The command.
        task: TaskId,
        /// SAM-5 status.
        status: u8,
        /// Sense data; empty if none.
        sense: Box<[u8]>,
        /// The residual; of a bidirectional command that of its write.
        residual: Residual,
        /// The residual of a bidirectional command's read.
        read_residual: Residual,
        /// Bytes received as Data-In, contiguous from the start of the command's data.
        data_in_bytes: u32,
        /// Time spent per phase.
        times: Times,
    },
    /// A command ended without a status. Whether it had an effect is unknown.
    Failed {
        /// The command.
        task: TaskId,
        /// The reason.
        why: Failure,
    },
    /// A task management function has its response. [`Event::Failed`] of the commands that it ended came
    /// before.
    Managed {
        /// The function.
        tmf: TmfId,
        /// The response; `None` if its connection was lost.
        result: Option<TaskManagementResult>,
    },
    /// A text response: pairs, each ended by a NUL.
    Text {
        /// Its connection.
        connection: ConnectionId,
        /// The text.
        text: Vec<u8>,
    },
    /// A ping sent by [`super::Session::ping`] has ended.
    Pong {
        /// The ping.
        ping: PingId,
        /// The returned data; `None` if the target rejected the ping, or its connection was lost.
        data: Option<Vec<u8>>,
    },
    /// The target has answered a logout. A connection that was logged out is to be closed and removed; of one
    /// that was lost before no command can have an effect any more.
    LoggedOut {
        /// The connection that carried the logout.
        connection: ConnectionId,
        /// What was to be logged out.
        leaving: LogoutScope,
        /// The response; `None` if the connection that carried the logout of another was lost.
        result: Option<LogoutResult>,
    },
    /// An asynchronous message: a logout request, a notice of dropped connections, a SCSI event.
    Message {
        /// Its connection.
        connection: ConnectionId,
        /// The message.
        message: AsyncMessage,
        /// Sense data of a SCSI event.
        sense: Box<[u8]>,
    },
    /// Close the connection and remove it.
    Close {
        /// The connection.
        connection: ConnectionId,
        /// The reason.
        reason: CloseReason,
    },
}

/// The scope of a logout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogoutScope {
    /// The session, with all its connections.
    Session,
    /// The connection that the logout is sent on.
    Connection,
    /// Another connection, which was lost.
    OtherConnection(Cid),
}

/// Why a command has no status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its connection is gone.
    ConnectionLost,
    /// Aborted at our request.
    Aborted,
    /// The target rejected its PDU.
    Rejected(RejectReason),
    /// The target could not execute it, without details (iSCSI service response, section 11.4.3).
    TargetFailure,
}

/// Why a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// No traffic and no response to a ping.
    Silent,
    /// The logout will not be answered: the target refused, or the connection that carried the session's
    /// logout was lost.
    LogoutLost,
}

impl TaskId {
    /// An index unique among the commands of the session.
    pub fn index(self) -> usize {
        self.0.index as usize
    }
}
