//! What the machine tells its driver, and the names by which both speak of connections, tasks and functions.

use super::phase_times::Times;
use crate::pdu::{AsyncMessage, Cid, LogoutResult, RejectReason, Residual, TaskManagementResult};
use crate::slab::Key;

/// A connection of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    pub(super) index: u16,
    pub(super) generation: u16,
}

/// A command under way. Its index is used again when it has ended; the whole is not, in any time that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(pub(super) Key);

/// A task management function under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TmfId(pub(super) Key);

/// A ping under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PingId(pub(super) Key);

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A command has its status. Its data have arrived, as far as they came.
    Done {
        /// The command.
        task: TaskId,
        /// SAM-5 status.
        status: u8,
        /// Sense data; empty if none came.
        sense: Box<[u8]>,
        /// How far the data that moved were from what was expected; of a bidirectional command, its writing.
        residual: Residual,
        /// The same for a bidirectional command's reading.
        read_residual: Residual,
        /// Bytes that came as Data-In, all from the start of the command's data.
        data_in_bytes: u32,
        /// Where the time went.
        times: Times,
    },
    /// A command has ended without a status. Whether it had an effect is not known.
    Failed {
        /// The command.
        task: TaskId,
        /// Why.
        why: Failure,
    },
    /// A task management function has its answer. Commands that it ended have failed before.
    Managed {
        /// The function.
        tmf: TmfId,
        /// The answer; `None` if its connection was lost.
        result: Option<TaskManagementResult>,
    },
    /// A text exchange has its answer: pairs, each ended by a NUL.
    Text {
        /// By which connection.
        connection: ConnectionId,
        /// The answer.
        text: Vec<u8>,
    },
    /// A ping that [`super::Session::ping`] sent has ended.
    Pong {
        /// Which.
        ping: PingId,
        /// The data that came back; `None` if the target refused it, or its connection was lost.
        data: Option<Vec<u8>>,
    },
    /// The target has answered a logout. A connection that was to leave is to be closed and removed, if it was
    /// closed; one that was gone already has no command left that could have an effect.
    LoggedOut {
        /// By which connection.
        connection: ConnectionId,
        /// What was to be logged out.
        leaving: LogoutScope,
        /// The answer; `None` if the connection was lost by which another was to be logged out.
        result: Option<LogoutResult>,
    },
    /// The target says something of its own accord: log out, connections will be dropped, a SCSI event.
    Message {
        /// By which connection.
        connection: ConnectionId,
        /// What.
        message: AsyncMessage,
        /// Sense data of a SCSI event.
        sense: Box<[u8]>,
    },
    /// Close the connection and remove it.
    Close {
        /// Which.
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
}

/// What a logout is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogoutScope {
    /// The session, with all its connections.
    Session,
    /// The connection that the logout is sent on.
    Connection,
    /// Another connection, which is lost.
    OtherConnection(Cid),
}

/// Why a command has no status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its connection is gone.
    ConnectionLost,
    /// We had it aborted.
    Aborted,
    /// The target refused its PDU.
    Rejected(RejectReason),
    /// The target could not carry it out, and says no more (iSCSI service response, section 11.4.3).
    TargetFailure,
}

/// Why the machine wants a connection closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The target has been silent, even when asked.
    Silent,
    /// It was to be logged out, and there will be no answer: the target refused, or the connection is lost by which
    /// the session was to be.
    LogoutLost,
}

impl ConnectionId {
    /// A small number that no other connection of the session has at the same time.
    pub fn index(self) -> usize {
        usize::from(self.index)
    }
}

impl TaskId {
    /// A small number that no other command of the session has at the same time.
    pub fn index(self) -> usize {
        self.0.index as usize
    }
}
