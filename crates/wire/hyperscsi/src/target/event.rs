//! Events from the machine to its driver.

use crate::login::Refusal;
use crate::pdu::{Command, Function};

/// A session of a target. No two of one machine are the same within any relevant time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub(super) u32);

/// A command or function: its session, and the initiator's number of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The session.
    pub session: SessionId,
    /// The initiator's number.
    pub number: u64,
}

/// An action for the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// An initiator has logged in.
    SessionBegan {
        /// Its session.
        session: SessionId,
        /// Its name, proven if `is_encrypted`.
        initiator: String,
        /// The initiator's port: sessions of one name with different ports are different I_T nexuses.
        port: u32,
        /// The target.
        target: String,
        /// Whether it has proven to know the key.
        is_encrypted: bool,
    },
    /// The frame that was handled last asked for a login, which was refused.
    LoginRefused {
        /// The name that it gave.
        initiator: String,
        /// The target that it named.
        target: String,
        /// Why.
        refusal: Refusal,
    },
    /// A session has ended. The driver aborts its commands, and calls [`super::Target::quiesced`] when none of them
    /// can reach the medium any more: until then the initiator's next session waits.
    SessionEnded {
        /// Which.
        session: SessionId,
        /// Why.
        reason: SessionEnd,
    },
    /// A command to begin. It ends by [`super::Target::respond`].
    Command {
        /// Its task.
        task: TaskId,
        /// The command with its data.
        command: Command,
    },
    /// A function to execute; it ends by [`super::Target::function_done`]. The commands that it ends are answered too,
    /// with TASK ABORTED.
    Function {
        /// Its task.
        task: TaskId,
        /// The function. Questions, and ABORT TASK for a command that is not running, never come here.
        function: Function,
        /// The logical unit, for the functions that concern one.
        lun: [u8; 8],
        /// The running command, for ABORT TASK.
        referenced: Option<TaskId>,
    },
    /// The initiator has the response that [`super::Target::respond_with_receipt`] sent.
    Received {
        /// The command.
        task: TaskId,
    },
}

/// Why a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// Its initiator closed it.
    Disconnected,
    /// The driver closed it.
    Closed,
    /// Another session of the same initiator and port has begun.
    Replaced,
    /// Nothing came for too long.
    Silent,
    /// The initiator broke a rule of the protocol.
    Misbehaved,
}
