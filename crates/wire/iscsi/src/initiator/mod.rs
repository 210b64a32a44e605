//! The initiator's side of a session in full feature phase (RFC 7143), as a machine without I/O.
//!
//! One [`Session`] serves all connections of a session, on one thread. Commands enter by [`Session::submit`],
//! on a connection chosen by the caller, and are sent when [`Session::poll_transmit`] is called for it.
//! Received headers enter by [`Session::handle_header`], which returns the destination of the data that
//! follow; [`Session::poll_event`] returns the results. Payload does not pass through the machine.
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
//!  submit ──► Queued ── command sent ──► Sending ◄── R2T (receive, transfer) ── R2t
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
//!     (here)             ├── AsyncMessage (receive): Event::Message, S7 LOGOUT_REQUESTED is the driver's ──► log_out
//!                        ├── silent (keepalive) ──► Event::Close ──► removed (task_management)
//!                        └── Fatal (receive) ──► removed; log_out_other by another connection (S8 CLEANUP_WAIT)
//! ```
//!
//! A target cannot make a driver access memory outside a task's data: offsets and lengths are checked here, and a
//! target that breaks a rule loses the connection ([`Fatal`]). ErrorRecoveryLevel is 0.

mod config;
mod connection;
mod counters;
mod event;
mod exchange;
mod fatal;
mod incoming;
mod keepalive;
mod phase_times;
mod receive;
mod submit;
mod task_management;
mod transfer;
mod transmit;
mod window;

use std::collections::VecDeque;
use std::time::Instant;

pub use crate::keepalive::NopPolicy;
pub use config::{ConnectionStart, SessionConfig};
pub use counters::{Counters, RoundTrips};
pub use event::{CloseReason, ConnectionId, Event, Failure, LogoutScope, PingId, TaskId, TmfId};
pub use exchange::{TASK_EVENTS, TASK_STATES};
pub use fatal::Fatal;
pub use phase_times::{Phase, Times};
pub use receive::{Destination, Segment};
pub use submit::{Command, SubmitError};
pub use transmit::{Payload, Transmit};

use self::connection::Connection;
use self::counters::Stall;
use self::exchange::{Exchange, Task};
use self::window::Window;
use crate::connections::Connections;
use crate::negotiate::Parameters;
use crate::pdu::{Cid, Itt};
use crate::serial::Sn;
use crate::slab::{Key, Slab};

/// A session: the target's command window, outstanding exchanges, and connections.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    window: Window,
    exchanges: Slab<Exchange>,
    /// Commands submitted and not sent: without a CmdSN, but with room reserved in the window.
    unsent: u32,
    connections: Connections<Connection>,
    events: VecDeque<Event>,
    /// Tags of commands that ended without a status, for which further PDUs of the target may arrive: it
    /// rejected them, or a function whose response came on another connection ended them.
    ended: VecDeque<Itt>,
    counters: Counters,
    stall: Stall,
}

impl Session {
    /// A session without connections. The first to be added is the leading one.
    pub fn new(config: SessionConfig) -> Session {
        Session {
            window: Window::new(config.cmd_sn, config.max_cmd_sn),
            config,
            exchanges: Slab::new(),
            unsent: 0,
            connections: Connections::new(),
            events: VecDeque::new(),
            ended: VecDeque::new(),
            counters: Counters::default(),
            stall: Stall::default(),
        }
    }

    /// Adds a connection after its login.
    pub fn add_connection(&mut self, now: Instant, cid: Cid, start: ConnectionStart) -> ConnectionId {
        self.connections.add(|id| Connection::new(id, cid, start, now))
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The parameters negotiated by the leading login.
    pub fn parameters(&self) -> &Parameters {
        &self.config.parameters
    }

    /// CmdSN of the next command, which the login of another connection needs.
    pub fn cmd_sn(&self) -> Sn {
        self.window.cmd_sn()
    }

    /// Number of commands that may be submitted now.
    pub fn room(&self) -> u32 {
        let tasks = self.config.tasks_max.saturating_sub(self.exchanges.len() as u32);
        self.window.room().saturating_sub(self.unsent).min(tasks)
    }

    /// Whether a command may be submitted now.
    pub fn can_submit(&self) -> bool {
        self.room() > 0
    }

    /// Bytes that were received and sent for a command, as far as their PDUs have begun.
    pub fn moved_bytes(&self, task: TaskId) -> u64 {
        match self.exchanges.get(task.0) {
            Some(Exchange::Task(task)) => u64::from(task.inbound.bytes()) + task.outbound.handed_out(),
            _ => 0,
        }
    }

    /// Number of outstanding commands and functions.
    pub fn in_flight(&self) -> usize {
        self.exchanges.len()
    }

    /// The counters. A stall counts when it begins, its duration when it ends.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The connections.
    pub fn connections(&self) -> impl Iterator<Item = (ConnectionId, Cid)> {
        self.connections.iter().map(|connection| (connection.id, connection.cid))
    }

    fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(id)
    }

    fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id)
    }

    /// The exchange of a tag, if it is outstanding.
    fn find(&self, itt: Itt) -> Option<Key> {
        self.exchanges.at(itt.get() & INDEX_MASK).map(|(key, _)| key).filter(|&key| tag(key) == itt)
    }

    fn task_mut(&mut self, key: Key) -> Option<&mut Task> {
        match self.exchanges.get_mut(key)? {
            Exchange::Task(task) => Some(task),
            Exchange::Tmf(_) | Exchange::Text(_) | Exchange::Ping { .. } | Exchange::Logout { .. } => None,
        }
    }
}

/// The Initiator Task Tag of an exchange: its index in the low half, and a generation above it, so that a
/// duplicate response does not end another task.
fn tag(key: Key) -> Itt {
    let tag = (key.generation & 0x7fff) << 16 | (key.index & INDEX_MASK);
    Itt::new(tag).unwrap_or_else(|| unreachable!("bit 31 is clear, so this is not the reserved tag"))
}

const INDEX_MASK: u32 = 0xffff;
