//! The initiator's side of a session in full feature phase (RFC 7143), as a state machine without I/O.
//!
//! One [`Session`] handles all connections of an iSCSI session, on one thread. The driver submits a command
//! with [`Session::submit`] on a connection of its choice; [`Session::poll_transmit`] for this connection
//! then returns the PDUs to send. The driver passes each received header to [`Session::handle_header`], which
//! returns the destination of the following data. [`Session::poll_event`] returns the results. Payload does
//! not pass through the state machine.
//!
//! ```text
//!   submit ──► poll_transmit ──► wire ──► handle_header ─► Segment ─► (driver receives) ─► handle_segment
//!                  ▲                            │ R2T                                          │
//!                  └──── Data-Out ◄─────────────┘                          Event::Done ◄───────┘
//! ```
//!
//! States of a command ([`Phase`]). The module of each transition is in parentheses:
//!
//! ```text
//!  submit ──► Queued ── command sent ──► Sending ◄── R2T (receive, exchange) ── R2t
//!  (submit)     │       (transmit)        │  └── all that may be sent is sent ───►┘
//!               │                         │ everything sent (transmit)
//!               │                         ▼
//!               │                       Answer ── Data-In (receive) ──► Data ── last Data-In ──► Status
//!               │                         └─────── status (receive) ─────┴────────────────────────┴──► Event::Done
//!               ▼
//!  Event::Failed: connection lost, aborted (task_management), rejected or refused by the target (receive)
//! ```
//!
//! States of a connection, named as in section 8.1:
//!
//! ```text
//!  add_connection ──► S5 LOGGED_IN ── log_out (submit) ──► S6 IN_LOGOUT ── LoggedOut, or LogoutLost ──► removed
//!   (session)            ├── AsyncMessage (receive): Event::Message, S7 LOGOUT_REQUESTED is the driver's ──► log_out
//!                        ├── silent (transmit) ───► Event::Close ──► removed (task_management)
//!                        └── Fatal (receive) ──► removed; log_out_other by another connection (S8 CLEANUP_WAIT)
//! ```
//!
//! A target cannot make a driver access memory outside a task's data: offsets and lengths are checked here,
//! and a violation by the target ends the connection ([`Fatal`]). ErrorRecoveryLevel is 0.

mod connection;
mod exchange;
mod receive;
mod session;
mod submit;
mod task_management;
mod transmit;

use std::time::{Duration, Instant};

use derive_more::{AddAssign, Display};

use crate::login::Attached;
use crate::negotiate::Parameters;
use crate::pdu::{
    AsyncMessage, Cid, LogoutResult, Malformed, RejectReason, Residual, Sn, TaskManagementResult,
};
use crate::slab::Key;

pub use exchange::{TASK_EVENTS, TASK_STATES};
pub use receive::{Destination, Segment};
pub use session::Session;
pub use submit::{Command, SubmitError};
pub use transmit::{Payload, Transmit};

pub use crate::keepalive::NopPolicy;

// The interface between the state machine and its driver: configuration, identifiers, events, the errors
// that close a connection, and counters.

pub use crate::slab::ConnectionId;

/// Configuration of a session.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The parameters negotiated by the leading login.
    pub parameters: Parameters,
    /// The CmdSN of the first command.
    pub cmd_sn: Sn,
    pub max_cmd_sn: Sn,
    /// Maximum number of outstanding commands, task management functions and pings; must not exceed 65,535.
    pub tasks_max: u32,
    /// When to ping the target, and when to close its connection.
    pub nop: NopPolicy,
    /// Maximum size of a text response.
    pub text_bytes_max: usize,
}

/// State of a connection at the end of its login.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionStart {
    pub exp_stat_sn: Sn,
    /// Our MaxRecvDataSegmentLength.
    pub local_max_recv_data_segment_length: u32,
    /// The target's MaxRecvDataSegmentLength.
    pub peer_max_recv_data_segment_length: u32,
}

impl SessionConfig {
    /// The configuration after the leading login, with the default limits.
    pub fn new(attached: &Attached) -> SessionConfig {
        SessionConfig {
            parameters: attached.parameters.clone(),
            cmd_sn: attached.exp_cmd_sn,
            max_cmd_sn: attached.max_cmd_sn,
            // More than the command window of any common target. A larger window would not be used
            // completely.
            tasks_max: 4096,
            nop: NopPolicy::OF_INITIATOR,
            text_bytes_max: TEXT_BYTES_MAX,
        }
    }
}

impl ConnectionStart {
    /// The state after the connection's login.
    pub fn new(attached: &Attached) -> ConnectionStart {
        ConnectionStart {
            exp_stat_sn: attached.exp_stat_sn,
            local_max_recv_data_segment_length: attached
                .parameters
                .local_max_recv_data_segment_length,
            peer_max_recv_data_segment_length: attached
                .parameters
                .peer_max_recv_data_segment_length,
        }
    }
}

/// Maximum size of a text response. A server may have tens of thousands of targets, each with several
/// addresses. A longer text cannot be a list of targets.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// Identifies an outstanding command. Another command may reuse the index after this one has ended. The whole
/// identifier repeats only after 2^32 further exchanges with the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(Key);

/// An outstanding task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TmfId(Key);

/// An outstanding ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PingId(Key);

/// An event.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A command ended with a status. All data that the target sent for it has arrived.
    Done {
        task: TaskId,
        status: u8,
        /// Sense data; empty if none.
        sense: Box<[u8]>,
        /// The residual; for a bidirectional command, the residual of its write.
        residual: Residual,
        /// The residual of a bidirectional command's read.
        read_residual: Residual,
        /// Bytes received as Data-In, contiguous from the start of the command's data.
        data_in_bytes: u32,
        /// Time spent per phase.
        times: Times,
    },
    /// A command ended without a status. Whether it had an effect is unknown.
    Failed { task: TaskId, why: Failure },
    /// A task management function was answered. [`Event::Failed`] for the commands that it ended was reported
    /// earlier.
    Managed {
        tmf: TmfId,
        /// The response; `None` if its connection was lost.
        result: Option<TaskManagementResult>,
    },
    /// A text response: pairs, each terminated by a NUL. Empty if the target rejected the request.
    Text {
        connection: ConnectionId,
        text: Vec<u8>,
    },
    /// A ping sent by [`Session::ping`] has ended.
    Pong {
        ping: PingId,
        /// The returned data; `None` if the target rejected the ping, or its connection was lost.
        data: Option<Vec<u8>>,
    },
    /// A logout has ended. Close and remove the connections that were logged out. If the target has confirmed
    /// the logout of a lost connection, commands of that connection can no longer have an effect.
    LoggedOut {
        /// The connection that carried the logout.
        connection: ConnectionId,
        /// The scope of the logout.
        leaving: LogoutScope,
        /// The response; `None` if the connection that carried the logout of another was lost.
        result: Option<LogoutResult>,
    },
    /// An asynchronous message: a logout request, a notice of dropped connections, or a SCSI event.
    Message {
        connection: ConnectionId,
        message: AsyncMessage,
        /// Sense data of a SCSI event.
        sense: Box<[u8]>,
    },
    /// Close the connection and remove it.
    Close {
        connection: ConnectionId,
        reason: CloseReason,
    },
}

/// The scope of a logout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogoutScope {
    /// The session, with all its connections.
    Session,
    /// The connection that carries the logout.
    Connection,
    /// Another connection, which was lost.
    OtherConnection(Cid),
}

/// Why a command has no status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its connection was lost.
    ConnectionLost,
    /// Aborted at our request.
    Aborted,
    /// The target rejected its PDU.
    Rejected(RejectReason),
    /// The target could not execute the command, and gave no details (iSCSI service response, section
    /// 11.4.3).
    TargetFailure,
}

/// Why a connection must be closed.
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

/// A protocol violation by the target. The connection must be closed, and at ErrorRecoveryLevel 0 its
/// commands are lost.
#[expect(
    missing_docs,
    reason = "where a variant has no more to say than it displays"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Fatal {
    /// A header digest error. The driver checks digests, and reports this error itself.
    #[display("header digest mismatch")]
    HeaderDigest,
    /// A data digest error. Without SNACK the data cannot be requested again (section 7.8).
    #[display("data digest mismatch")]
    DataDigest,
    #[display("malformed PDU: {_0}")]
    Malformed(Malformed),
    #[display("a PDU has {length} bytes of data, more than MaxRecvDataSegmentLength")]
    SegmentTooLong {
        /// Bytes of data announced.
        length: u32,
    },
    #[display("a response does not belong to a request")]
    UnknownTag,
    /// A response on a different connection than its request (section 4.2.2.3, connection allegiance).
    #[display("a response arrived on a different connection than its request")]
    ForeignTask,
    #[display("a response does not match its request")]
    WrongAnswer,
    #[display("a read returned more data than requested")]
    DataInBeyondEnd,
    /// Data-In out of order under DataPDUInOrder and DataSequenceInOrder, or with a gap.
    #[display("Data-In PDUs are out of order")]
    DataInOutOfOrder,
    /// An R2T beyond the data, longer than MaxBurstLength, or out of order.
    #[display("an R2T is out of order, or requests data beyond the end")]
    BadR2t,
    #[display("there are more R2Ts than MaxOutstandingR2T")]
    TooManyR2ts,
    #[display("a text response is too long")]
    TextTooLong,
    #[display("sense data or a rejected header is truncated")]
    Truncated,
    #[display("the peer sends pings without receiving the responses")]
    TooManyUnanswered,
    #[display("the connection is not part of the session")]
    NotConnected,
}

impl std::error::Error for Fatal {}

impl From<Malformed> for Fatal {
    fn from(malformed: Malformed) -> Fatal {
        Fatal::Malformed(malformed)
    }
}

/// A phase of a command.
///
/// ```text
///           submit    poll_transmit                                 Data-In          last Data-In   status
///   reading   │ Queued │                 Answer                        │     Data        │  Status   │
///   writing   │ Queued │ Sending │ R2t │ Sending │ R2t │ Sending │        Answer                      │
///                      command         R2T             R2T     last Data-Out                      status
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Submitted, not transmitted.
    Queued,
    /// Data may be sent and is not yet transmitted: unsolicited data, or data requested by an R2T.
    Sending,
    /// All data that may be sent is transmitted, and the target has not requested the rest.
    R2t,
    /// Everything is transmitted, and no response has arrived: time spent in the network and the target.
    Answer,
    /// Data-In has started to arrive and is incomplete.
    Data,
    /// All data has arrived, and the status follows separately. This phase takes no time if the status
    /// arrives with the last data.
    Status,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Phase; 6] = [
        Phase::Queued,
        Phase::Sending,
        Phase::R2t,
        Phase::Answer,
        Phase::Data,
        Phase::Status,
    ];
}

/// Total time of a command in each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// By phase, in nanoseconds.
    spent: [u64; Phase::ALL.len()],
}

impl Times {
    /// Time per phase in nanoseconds, in the order of [`Phase::ALL`].
    pub fn spent_ns(&self) -> &[u64; Phase::ALL.len()] {
        &self.spent
    }

    /// Time from submission to status, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.spent
            .iter()
            .fold(0, |sum, spent| sum.saturating_add(*spent))
    }
}

/// Counters since the start of the session. Those of several sessions can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AddAssign)]
pub struct Counters {
    /// PDUs received.
    pub pdus_in: u64,
    /// PDUs transmitted.
    pub pdus_out: u64,
    /// Commands transmitted.
    pub commands: u64,
    /// Bytes received as Data-In.
    pub data_in_bytes: u64,
    /// Bytes sent as immediate data.
    pub immediate_bytes: u64,
    /// Bytes sent as unsolicited Data-Out.
    pub unsolicited_bytes: u64,
    /// Bytes sent as solicited Data-Out.
    pub solicited_bytes: u64,
    /// R2Ts received.
    pub r2ts: u64,
    /// Our PDUs that the target rejected.
    pub rejects: u64,
    /// Number of submissions refused because the target's command window was full, or the limit on
    /// outstanding commands was reached.
    pub window_stalls: u64,
    /// Total duration of these stalls: from a refused command until one can be submitted again.
    pub window_stalled: Duration,
    /// Answered NOP-Outs, from the caller and from the keepalive.
    pub nops: RoundTrips,
}

/// Round-trip times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips {
    /// Number of round trips.
    pub count: u64,
    /// Their sum.
    pub sum: Duration,
    /// The shortest; `None` before the first.
    pub min: Option<Duration>,
    /// The longest.
    pub max: Option<Duration>,
}

impl Counters {
    /// The difference to `earlier` counters of the same session. The minimum and maximum round-trip times
    /// within the interval are unknown, so those of the whole session are returned.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            pdus_in: self.pdus_in.saturating_sub(earlier.pdus_in),
            pdus_out: self.pdus_out.saturating_sub(earlier.pdus_out),
            commands: self.commands.saturating_sub(earlier.commands),
            data_in_bytes: self.data_in_bytes.saturating_sub(earlier.data_in_bytes),
            immediate_bytes: self.immediate_bytes.saturating_sub(earlier.immediate_bytes),
            unsolicited_bytes: self
                .unsolicited_bytes
                .saturating_sub(earlier.unsolicited_bytes),
            solicited_bytes: self.solicited_bytes.saturating_sub(earlier.solicited_bytes),
            r2ts: self.r2ts.saturating_sub(earlier.r2ts),
            rejects: self.rejects.saturating_sub(earlier.rejects),
            window_stalls: self.window_stalls.saturating_sub(earlier.window_stalls),
            window_stalled: self.window_stalled.saturating_sub(earlier.window_stalled),
            nops: RoundTrips {
                count: self.nops.count.saturating_sub(earlier.nops.count),
                sum: self.nops.sum.saturating_sub(earlier.nops.sum),
                ..self.nops
            },
        }
    }
}

impl RoundTrips {
    /// The mean; `None` without round trips.
    pub fn mean(&self) -> Option<Duration> {
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        self.sum.checked_div(count)
    }

    fn note(&mut self, time: Duration) {
        *self += RoundTrips {
            count: 1,
            sum: time,
            min: Some(time),
            max: Some(time),
        };
    }
}

impl std::ops::AddAssign for RoundTrips {
    fn add_assign(&mut self, other: RoundTrips) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.into_iter().chain(other.min).min();
        self.max = self.max.max(other.max);
    }
}

/// A period in which no command can be submitted.
#[derive(Clone, Copy, Debug, Default)]
struct Stall(Option<Instant>);

impl Stall {
    fn begin(&mut self, now: Instant, counters: &mut Counters) {
        if self.0.is_none() {
            self.0 = Some(now);
            counters.window_stalls += 1;
        }
    }

    fn end(&mut self, now: Instant, counters: &mut Counters) {
        if let Some(begun) = self.0.take() {
            let lasted = now.saturating_duration_since(begun);
            counters.window_stalled = counters.window_stalled.saturating_add(lasted);
        }
    }

    fn is_on(self) -> bool {
        self.0.is_some()
    }
}
