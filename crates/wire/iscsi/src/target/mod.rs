//! The target's side of a session in full feature phase (RFC 7143), as a state machine without I/O.
//!
//! One [`Session`] serves all connections of a session, on one thread. The driver passes received headers to
//! it, gets the destination of each data segment, and executes its events; PDUs to send come from
//! [`Session::poll_transmit`], per connection. Payload does not pass through the state machine: it names a
//! task and an offset, and the driver receives to, or sends from, that memory.
//!
//! ```text
//!              handle_header ─► Segment ─► (driver receives) ─► handle_segment
//!   wire ──►        │                                                │           ──► poll_transmit ──► wire
//!                   ▼                                                ▼                     ▲
//!             Event::Command ─► expect_data ─► R2Ts … ─► Event::DataComplete ─► respond ───┘
//! ```
//!
//! States of a task (`task`), with the files of the transitions:
//!
//! ```text
//!  SCSI Command ──┬─ CmdSN is next (receive) ────► announced ── expect_data (transmit) ──► takes data (receive)
//!                 │                                 ▲     │ no data, or refused               │
//!                 └─ CmdSN is ahead ──► held ───────┘     ▼                                   │ DataComplete
//!                      (window)   release (receive)   with the driver ◄───────────────────────┘ or DataFailed
//!                                                         │ respond (transmit)
//!                                                         ▼
//!  ended ◄── last PDU sent (transmit) ◄── queued ◄── response: queued immediately, or after its data is drained on a
//!                                                    digest error (receive), or at the end of a fence (fence)
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
//! A session ends with its last connection (ErrorRecoveryLevel 0); the driver then drops it.
//!
//! Reading order: [`interface`] (actions for the driver), `session` (the tables), `window` (delivery order), `receive`
//! and `task` (commands and their data), `transmit` (Data-In and status), `task_management` and `fence` (the end of
//! many commands), `requests` (the rest of the protocol).
//!
//! ErrorRecoveryLevel is 0: an error ends a command or the connection, and no PDU is sent twice. So ExpStatSN, which
//! releases PDUs kept for retransmission, is evaluated only for receipts and while a `fence` is active.

mod connection;
mod fence;
mod interface;
mod receive;
mod requests;
mod session;
mod task;
mod task_management;
mod transmit;
mod window;

pub use interface::{
    CloseReason, Command, ConnectionId, ConnectionStart, DataFault, Event, Fatal, LogoutId, Receipt,
    SessionConfig, TaskId, TextQuery, TmfId, TmfRequest,
};
pub use receive::{Destination, Segment};
pub use requests::Notice;
pub use session::{Counters, Session};
pub use task::{TASK_EVENTS, TASK_STATES};
pub use transmit::{Payload, Response, Transmit};

pub use crate::keepalive::NopPolicy;
