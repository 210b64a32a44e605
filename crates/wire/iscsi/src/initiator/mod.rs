//! The initiator's side of a session in full feature phase (RFC 7143), as a state machine without I/O.
//!
//! One [`Session`] serves all connections of a session, on one thread. Commands enter through
//! [`Session::submit`], on a connection chosen by the caller, and are sent when [`Session::poll_transmit`] is
//! called for it. Received headers enter through [`Session::handle_header`], which returns the destination of
//! the following data; [`Session::poll_event`] returns the results. Payload does not pass through the state
//! machine.
//!
//! ```text
//!   submit ──► poll_transmit ──► wire ──► handle_header ─► Segment ─► (driver receives) ─► handle_segment
//!                  ▲                            │ R2T                                          │
//!                  └──── Data-Out ◄─────────────┘                          Event::Done ◄───────┘
//! ```
//!
//! States of a command ([`Phase`]), with the files of the transitions:
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
//! A target cannot make a driver access memory outside a task's data: offsets and lengths are checked here, and a
//! target that breaks a rule loses the connection ([`Fatal`]). ErrorRecoveryLevel is 0.

mod connection;
mod exchange;
mod interface;
mod receive;
mod session;
mod submit;
mod task_management;
mod transmit;

pub use exchange::{TASK_EVENTS, TASK_STATES};
pub use interface::{
    CloseReason, ConnectionId, ConnectionStart, Counters, Event, Failure, Fatal, LogoutScope, Phase, PingId,
    RoundTrips, SessionConfig, TaskId, Times, TmfId,
};
pub use receive::{Destination, Segment};
pub use session::Session;
pub use submit::{Command, SubmitError};
pub use transmit::{Payload, Transmit};

pub use crate::keepalive::NopPolicy;
