//! What the machine asks its driver to do, and the names by which both speak of connections, tasks and functions.

use crate::pdu::{Lun, TaskAttribute, TaskManagementFunction};
use crate::slab::Key;

/// A connection of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    pub(super) index: u16,
    pub(super) generation: u16,
}

/// A task of a session. Its index is used again when it is gone; the whole is not, in any time that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId {
    pub(super) key: Key,
    pub(super) connection: ConnectionId,
}

/// A task management function under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TmfId(pub(super) Key);

/// A logout that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogoutId(pub(super) Key);

/// Something for the driver to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Begin a command. They come in the order of CmdSN, and when their header has arrived, before any data.
    ///
    /// A command that takes data gets [`super::Session::expect_data`] at once, before the next call of
    /// `poll_event` or `handle_segment`, or not at all: until then nobody wants its data, and it is dropped.
    Command(Command),
    /// Data of the command announced just before: it overtook others on another connection, and its data was kept
    /// while it waited. The driver puts it where the task's data belong, as if it were arriving now.
    StagedData {
        /// The task.
        task: TaskId,
        /// Bytes from the start of the command's data.
        offset: u32,
        /// The data.
        bytes: Vec<u8>,
    },
    /// All the data asked for has arrived, whole and in order.
    DataComplete {
        /// The task.
        task: TaskId,
    },
    /// The data will never be complete. The driver answers the command with the CHECK CONDITION of section
    /// 11.4.7.2; [`DataFault`] says which.
    DataFailed {
        /// The task.
        task: TaskId,
        /// What was wrong.
        fault: DataFault,
    },
    /// Carry out a task management function and call [`super::Session::tmf_done`].
    TaskManagement(TmfRequest),
    /// Tell which targets there are, by [`super::Session::text_reply`].
    SendTargets {
        /// Who asks.
        connection: ConnectionId,
        /// Which are meant.
        which: TextQuery,
    },
    /// A task the driver knows has ended without an answer: its connection is gone. Drop what belongs to it.
    TaskGone {
        /// The task.
        task: TaskId,
    },
    /// An initiator has another connection of its session logged out than the one that it asks by, or one that is gone
    /// already. It will send what was under way there again as soon as it has its answer: when nothing of it can reach
    /// the medium any more, call [`super::Session::logout_done`].
    LogoutPending {
        /// The logout.
        logout: LogoutId,
    },
    /// The initiator has acknowledged the status of a [`super::Response`] that had this receipt.
    Acknowledged(Receipt),
    /// There is something to say on a connection, and nothing has arrived there or been answered that would lead
    /// the driver to ask [`super::Session::poll_transmit`]: an acknowledgement on another connection has set it
    /// free, or the clock.
    TransmitReady {
        /// Which.
        connection: ConnectionId,
    },
    /// Close the connection, once what has come out of `poll_transmit` for it is sent; then remove it.
    Close {
        /// Which.
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
}

/// A SCSI command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its task.
    pub task: TaskId,
    /// The logical unit's address.
    pub lun: Lun,
    /// Where the task stands among the others of its logical unit.
    pub attribute: TaskAttribute,
    /// It came outside the order of CmdSN, as an immediate command.
    pub immediate: bool,
    /// R: the initiator expects to read.
    pub read: bool,
    /// W: the initiator expects to write.
    pub write: bool,
    /// Expected Data Transfer Length, in bytes; of a bidirectional command, of what it writes.
    pub edtl: u32,
    /// Of a bidirectional command: bytes that the initiator expects to read.
    pub bidirectional_read_edtl: Option<u32>,
    /// Bytes of data that come with the command itself.
    pub immediate_data: u32,
    pub(super) cdb: [u8; 16],
    /// The whole CDB, if it is longer than sixteen bytes.
    pub(super) long_cdb: Option<Box<[u8]>>,
}

/// What the driver wants to know of an answer once the initiator has it: until then the answer can be lost with its
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// What the answer is about, as the driver numbers it.
    pub subject: u64,
    /// What it says of that.
    pub value: u64,
}

/// What was wrong with a command's data: additional sense by section 11.4.7.2, all with ABORTED COMMAND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataFault {
    /// It did not match its digest. 47/05, PROTOCOL SERVICE CRC ERROR.
    Digest,
    /// It came in another order or amount than was asked for: the standard's "incorrect amount of data". 0C/0D,
    /// WRITE ERROR - NOT ENOUGH UNSOLICITED DATA.
    Sequence,
    /// It came unasked where none was agreed on. 0C/0C, WRITE ERROR - UNEXPECTED UNSOLICITED DATA.
    Unsolicited,
}

/// A task management function to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TmfRequest {
    /// Its name, for the answer.
    pub tmf: TmfId,
    /// Who asks.
    pub connection: ConnectionId,
    /// What to do. TASK REASSIGN, and ABORT TASK for tasks that are not there, never come here: the machine
    /// answers them.
    pub function: TaskManagementFunction,
    /// The logical unit, for the functions that concern one.
    pub lun: Lun,
    /// The task, for ABORT TASK and QUERY TASK. `None` for QUERY TASK if there is no such task.
    pub referenced: Option<TaskId>,
}

/// Which targets an initiator asks for (RFC 7143 appendix C).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextQuery {
    /// All that it may see. In discovery sessions only.
    All,
    /// One, by its name. In a session with a target, only that one is told of.
    One(String),
    /// The session's own target. Never in discovery sessions.
    Own,
}

/// Why the machine wants a connection closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The initiator has logged out, and has its answer.
    Logout,
    /// It was asked to log out, and did not in time.
    LogoutOverdue,
    /// It has been silent, even when asked.
    Silent,
    /// It was told that the connection would be dropped.
    Dropped,
    /// A TARGET COLD RESET has been answered: it ends the target's sessions.
    Reset,
}

impl ConnectionId {
    /// A small number that no other connection of the session has at the same time.
    pub fn index(self) -> usize {
        usize::from(self.index)
    }
}

impl TaskId {
    /// A small number that no other task of the session has at the same time.
    pub fn index(self) -> usize {
        self.key.index as usize
    }

    /// The connection that it came by, and whose it is (section 4.2.2.3, connection allegiance).
    pub fn connection(self) -> ConnectionId {
        self.connection
    }
}

impl Command {
    /// The CDB: sixteen bytes, shorter ones filled with zeros; or up to 260, if the initiator sent more.
    pub fn cdb(&self) -> &[u8] {
        self.long_cdb.as_deref().unwrap_or(&self.cdb)
    }

    /// Bytes that the initiator expects to read.
    pub fn data_in_bytes(&self) -> u32 {
        match (self.bidirectional_read_edtl, self.read && !self.write) {
            (Some(bytes), _) => bytes,
            (None, true) => self.edtl,
            (None, false) => 0,
        }
    }

    /// Bytes that the initiator expects to write.
    pub fn data_out_bytes(&self) -> u32 {
        if self.write { self.edtl } else { 0 }
    }
}
