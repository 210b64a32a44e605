//! The target's side of a session in full feature phase (RFC 7143), as a state machine without I/O.
//!
//! One [`Session`] handles all connections of an iSCSI session, on one thread. The driver passes each
//! received header to the session, gets the destination of its data segment, and executes the session's
//! events. [`Session::poll_transmit`] returns the PDUs to send on a connection. Payload does not pass through
//! the state machine: the session names a task and an offset, and the driver receives into, or sends from,
//! the task's memory.
//!
//! ```text
//!              handle_header ─► Segment ─► (driver receives) ─► handle_segment
//!   wire ──►        │                                                │           ──► poll_transmit ──► wire
//!                   ▼                                                ▼                     ▲
//!             Event::Command ─► expect_data ─► R2Ts … ─► Event::DataComplete ─► respond ───┘
//! ```
//!
//! States of a task (`task`). The module of each transition is in parentheses:
//!
//! ```text
//!  SCSI Command ──┬─ CmdSN is next (receive) ────► announced ── expect_data (transmit) ──► takes data (receive)
//!                 │                                 ▲     │ no data, or refused               │
//!                 └─ CmdSN is ahead ──► held ───────┘     ▼                                   │ DataComplete
//!                      (window)   release (receive)   with the driver ◄───────────────────────┘ or DataFailed
//!                                                         │ respond (transmit)
//!                                                         ▼
//!  ended ◄── last PDU sent (transmit) ◄── queued ◄── response: queued when the data that the initiator is sending
//!                                                    has arrived (receive), or at the end of a fence (fence)
//!  ended ◄── from any state: abort (transmit), connection lost (session), logout (requests), TMF (task_management)
//! ```
//!
//! States of a connection, named as in section 8.1:
//!
//! ```text
//!  add_connection ──► S5 LOGGED_IN ── Logout Request (requests) ───────► S6 IN_LOGOUT ── Event::Close ──► removed
//!    (session)          │    ▲   │                                           ▲
//!                       │    │   └── asked to log out (requests) ► S7 LOGOUT_REQUESTED ── deadline ──► removed
//!                       │    └── PDUs received (receive) restart the keepalive (requests)
//!                       └── silent, Fatal (driver), cold reset (task_management) ──► Event::Close ──► removed
//! ```
//!
//! At ErrorRecoveryLevel 0, a session ends with its last connection. The driver then drops the [`Session`].
//!
//! Reading order:
//!
//! - this file (actions for the driver) and `session` (the tables)
//! - `window` (delivery order)
//! - `receive` and `task` (commands and their data), `transmit` (Data-In and status)
//! - `task_management` and `fence` (the end of many commands)
//! - `requests` (the rest of the protocol)
//!
//! ErrorRecoveryLevel is 0: an error ends a command or the connection, and PDUs are never retransmitted. No
//! PDU is kept until the initiator's ExpStatSN acknowledges it, so ExpStatSN is evaluated only for receipts
//! and while a `fence` is active.

mod connection;
mod fence;
mod receive;
mod requests;
mod session;
mod task;
mod task_management;
mod transmit;
mod window;

use std::time::Duration;

use derive_more::{Display, Error};

use crate::negotiate::Parameters;
use crate::pdu::{Lun, Sn, TaskAttribute, TaskManagementFunction, TaskManagementResult};
use crate::slab::Key;

pub use receive::{Destination, Segment};
pub use requests::Notice;
pub use session::{Counters, Session};
pub use task::{TASK_EVENTS, TASK_STATES};
pub use transmit::{Payload, Response, Transmit};

pub use crate::keepalive::NopPolicy;

// The interface between the state machine and its driver: configuration, identifiers, events, and the errors
// that close a connection.

pub use crate::slab::ConnectionId;

/// Configuration of a session.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The parameters negotiated by the leading login.
    pub parameters: Parameters,
    /// Maximum number of outstanding commands.
    pub window: u32,
    /// The CmdSN of the first command. It equals the CmdSN of the leading login, because a login does not
    /// consume its CmdSN.
    pub exp_cmd_sn: Sn,
    /// When to ping the initiator, and when to close its connection.
    pub nop: NopPolicy,
    /// Maximum number of outstanding immediate commands and task management functions.
    pub immediate_max: u32,
    /// Maximum size of the data held for commands and requests that arrived before their turn in CmdSN order,
    /// including a fixed overhead for each piece.
    pub staged_bytes_max: usize,
    /// Maximum number of queued PDUs in addition to those of commands: responses to pings and text requests,
    /// and Rejects.
    pub unsent_max: usize,
    /// Maximum size of the data of these PDUs. The last queued PDU may exceed it.
    pub unsent_bytes_max: usize,
    /// Maximum size of the text of one exchange.
    pub text_bytes_max: usize,
    /// The response to ABORT TASK for a finished task. Section 11.6.1 (c) specifies "task does not exist",
    /// but ESXi then considers the target broken and resets it. "Function complete" is the better response to
    /// ESXi.
    pub abort_of_finished: TaskManagementResult,
}

/// State of a connection at the end of its login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionStart {
    /// The StatSN of its next status.
    pub stat_sn: Sn,
    /// Our MaxRecvDataSegmentLength.
    pub local_max_recv_data_segment_length: u32,
    /// The initiator's MaxRecvDataSegmentLength.
    pub peer_max_recv_data_segment_length: u32,
}

impl SessionConfig {
    /// A configuration for a discovery session. The limits are low, because the initiator may be
    /// unauthenticated, and sends only text requests, pings and a logout, one at a time.
    pub fn of_discovery(parameters: Parameters, exp_cmd_sn: Sn) -> SessionConfig {
        SessionConfig {
            window: SessionConfig::DISCOVERY_WINDOW,
            immediate_max: 8,
            staged_bytes_max: 0,
            unsent_max: 16,
            unsent_bytes_max: 16 << 10,
            text_bytes_max: 8 << 10,
            ..SessionConfig::new(parameters, exp_cmd_sn)
        }
    }

    /// The command window of a discovery session.
    pub const DISCOVERY_WINDOW: u32 = 8;

    /// A configuration with the default limits.
    pub fn new(parameters: Parameters, exp_cmd_sn: Sn) -> SessionConfig {
        SessionConfig {
            parameters,
            exp_cmd_sn,
            // Issue 2 requires at least 256; open-iscsi uses 128 (cmds_max) by default.
            window: 256,
            nop: NopPolicy::of_target(Duration::from_secs(15)),
            immediate_max: 64,
            // Enough for 64 commands with the largest FirstBurstLength that Linux offers, 256 KiB.
            staged_bytes_max: 16 << 20,
            // More pings and text requests than any initiator has outstanding, and the data of four pings of
            // 256 KiB.
            unsent_max: 1024,
            unsent_bytes_max: 1 << 20,
            text_bytes_max: 64 << 10,
            abort_of_finished: TaskManagementResult::TaskDoesNotExist,
        }
    }
}

impl ConnectionStart {
    /// The state negotiated by a connection's login.
    pub fn new(stat_sn: Sn, parameters: &Parameters) -> ConnectionStart {
        ConnectionStart {
            stat_sn,
            local_max_recv_data_segment_length: parameters.local_max_recv_data_segment_length,
            peer_max_recv_data_segment_length: parameters.peer_max_recv_data_segment_length,
        }
    }
}

/// Identifies a task of a session. Another task may reuse the index after this one has ended. The whole
/// identifier repeats only after 2^32 further tasks with the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId {
    key: Key,
    connection: ConnectionId,
}

/// An outstanding task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TmfId(Key);

/// A pending logout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogoutId(Key);

/// An action for the driver.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A command to start. Commands are reported in CmdSN order, after their header has arrived and before
    /// any of their data.
    ///
    /// To accept the data of a write, the driver must call [`Session::expect_data`] before it next calls
    /// `poll_event` or `handle_segment`: data that arrives before the call is dropped.
    Command(Command),
    /// Data of a command that arrived before its turn in CmdSN order and was held together with its data.
    /// This event follows the command's [`Event::Command`]. The driver stores the bytes in the task's memory,
    /// as if they had just arrived.
    StagedData {
        task: TaskId,
        /// Bytes from the start of the command's data.
        offset: u32,
        bytes: Vec<u8>,
    },
    /// All requested data has arrived, in order.
    DataComplete { task: TaskId },
    /// The command's data can no longer arrive completely. The driver ends the command with the CHECK
    /// CONDITION of section 11.4.7.2 for this [`DataFault`].
    DataFailed { task: TaskId, fault: DataFault },
    /// Execute a task management function, then call [`Session::tmf_done`].
    TaskManagement(TmfRequest),
    /// List the requested targets, and pass the list to [`Session::text_reply`].
    SendTargets {
        connection: ConnectionId,
        /// The targets requested.
        which: TextQuery,
        /// The target with which this part of the list starts, as returned with the previous part; `None` for
        /// the first part.
        from: Option<String>,
        /// Maximum size of this part, in bytes: the amount that the initiator accepts in one PDU.
        segment_max: usize,
    },
    /// A task that was announced to the driver ended without a response, for example because its connection
    /// was lost. Release its resources.
    TaskGone { task: TaskId },
    /// The initiator logged out another connection of its session, or one that no longer exists. After the
    /// response, it will retry that connection's outstanding commands. Call [`Session::logout_done`] when
    /// none of them can reach the medium any more.
    LogoutPending { logout: LogoutId },
    /// The initiator acknowledged the status of a [`Response`] with this receipt.
    Acknowledged(Receipt),
    /// A PDU is queued on a connection that the driver would not otherwise poll, because an acknowledgement
    /// on another connection, or a timeout, caused it. Call [`Session::poll_transmit`].
    TransmitReady { connection: ConnectionId },
    /// Close the connection after sending what `poll_transmit` returned for it, then remove it.
    Close {
        connection: ConnectionId,
        reason: CloseReason,
    },
}

/// A SCSI command.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its task.
    pub task: TaskId,
    pub lun: Lun,
    /// The task attribute (SAM-5).
    pub attribute: TaskAttribute,
    /// It is an immediate command, outside the CmdSN order.
    pub immediate: bool,
    /// R: the initiator expects to read.
    pub read: bool,
    /// W: the initiator expects to write.
    pub write: bool,
    /// Expected Data Transfer Length, in bytes; for a bidirectional command, the length of the write.
    pub edtl: u32,
    /// For a bidirectional command: bytes that the initiator expects to read.
    pub bidirectional_read_edtl: Option<u32>,
    /// Bytes of immediate data.
    pub immediate_data: u32,
    cdb: [u8; 16],
    /// The whole CDB, if it is longer than sixteen bytes.
    long_cdb: Option<Box<[u8]>>,
}

/// The acknowledgement of a response, which the driver requests. Until it arrives, the response can still be
/// lost with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The subject of the response's report, as a number that the driver assigns.
    pub subject: u64,
    /// The value that the response reports for the subject.
    pub value: u64,
}

/// Errors in a command's data. Each variant has its additional sense code (section 11.4.7.2); the sense key
/// is always ABORTED COMMAND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataFault {
    /// Data digest error. 47/05, PROTOCOL SERVICE CRC ERROR.
    Digest,
    /// Wrong order or amount: the standard's "incorrect amount of data". 0C/0D, WRITE ERROR - NOT ENOUGH
    /// UNSOLICITED DATA.
    Sequence,
    /// Unsolicited data that the negotiated parameters do not allow. 0C/0C, WRITE ERROR - UNEXPECTED
    /// UNSOLICITED DATA.
    Unsolicited,
}

/// A task management function to execute.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TmfRequest {
    /// Its identifier, for the response.
    pub tmf: TmfId,
    pub connection: ConnectionId,
    /// The function. The state machine itself answers TASK REASSIGN, QUERY TASK, and ABORT TASK for tasks
    /// that are not with the driver.
    pub function: TaskManagementFunction,
    /// The logical unit, for functions that apply to one.
    pub lun: Lun,
    /// The task to abort, for ABORT TASK; otherwise `None`.
    pub referenced: Option<TaskId>,
}

/// The targets requested by SendTargets (RFC 7143 appendix C).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextQuery {
    /// All targets that the initiator may access. Discovery sessions only.
    All,
    /// One target, by name. In a normal session, only the session's own target is reported.
    One(String),
    /// The session's own target. Never in discovery sessions.
    Own,
}

/// Why a connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Logout completed.
    Logout,
    /// A requested logout did not arrive before its deadline.
    LogoutOverdue,
    /// No traffic and no response to a ping.
    Silent,
    /// The initiator was notified that the connection is dropped.
    Dropped,
    /// A TARGET COLD RESET has completed, which ends all sessions of the target.
    Reset,
}

impl TaskId {
    /// An index unique among the tasks of the session.
    pub fn index(self) -> usize {
        self.key.index as usize
    }

    /// The connection on which the command arrived (section 4.2.2.3, connection allegiance).
    pub fn connection(self) -> ConnectionId {
        self.connection
    }
}

impl Command {
    /// The CDB: 16 bytes, zero-filled if the CDB is shorter; up to 260 bytes if the initiator sent a longer
    /// CDB.
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

/// An error that cannot be reported to the initiator in a PDU. The connection must be closed, and at
/// ErrorRecoveryLevel 0 its commands are lost.
#[expect(
    missing_docs,
    reason = "where a variant has no more to say than it displays"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum Fatal {
    /// A header digest error: the start of the next PDU is unknown (section 7.8). The driver checks digests,
    /// and reports this error itself.
    #[display("header digest mismatch")]
    HeaderDigest,
    #[display("a PDU has {length} bytes of data, more than MaxRecvDataSegmentLength")]
    SegmentTooLong {
        /// Bytes of data announced.
        length: u32,
    },
    #[display("a login request arrived after the login")]
    LoginInFullFeaturePhase,
    /// Data for a task of another connection (section 4.2.2.3, connection allegiance).
    #[display("data arrived for a task of another connection")]
    ForeignTask,
    /// More responses are queued than allowed, because the peer sends requests without receiving the
    /// responses.
    #[display("the peer sends requests without receiving the responses")]
    TooManyUnanswered,
    #[display("the connection is not part of the session")]
    NotConnected,
}
