//! The initiator's half of a session in full feature phase (RFC 7143), as a machine without I/O.
//!
//! One [`Session`] has all connections of a session, which live on one thread. Commands go in by
//! [`Session::submit`], on a connection of the caller's choice, and are sent as [`Session::poll_transmit`] is asked
//! for that connection's PDUs. Headers that arrive go in by [`Session::handle_header`], which says where the data
//! behind them belong; how commands end comes out of [`Session::poll_event`]. Payload never passes through here.
//!
//! ```text
//!   submit ──► poll_transmit ──► wire ──► handle_header ─► Segment ─► (driver receives) ─► handle_segment
//!                  ▲                            │ R2T                                          │
//!                  └──── Data-Out ◄─────────────┘                          Event::Done ◄───────┘
//! ```
//!
//! Nothing a target says makes a driver touch memory outside a task's data: offsets and lengths are checked here,
//! and whoever breaks a rule loses the connection ([`Fatal`]). ErrorRecoveryLevel is 0.

mod config;
mod connection;
mod counters;
mod event;
mod exchange;
mod fatal;
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
use crate::negotiate::Parameters;
use crate::pdu::{Cid, Itt};
use crate::serial::Sn;
use crate::slab::{Key, Slab};

/// A session: the target's command window, what is under way, and the connections.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    window: Window,
    exchanges: Slab<Exchange>,
    /// Commands that were submitted and have not been sent: they have no CmdSN, but room in the window.
    unsent: u32,
    connections: Vec<Option<Connection>>,
    /// Distinguishes the connections that have had the same index.
    generation: u16,
    events: VecDeque<Event>,
    /// Tags of commands that have ended without a status, and of which the target may have said something before it
    /// knew: it rejected them, or a function ended them that was answered on another connection.
    ended: VecDeque<Itt>,
    counters: Counters,
    stall: Stall,
}

impl Session {
    /// A session without connections. The first is the one whose login made it.
    pub fn new(config: SessionConfig) -> Session {
        Session {
            window: Window::new(config.cmd_sn, config.max_cmd_sn),
            config,
            exchanges: Slab::new(),
            unsent: 0,
            connections: Vec::new(),
            generation: 0,
            events: VecDeque::new(),
            ended: VecDeque::new(),
            counters: Counters::default(),
            stall: Stall::default(),
        }
    }

    /// A connection has logged in.
    pub fn add_connection(&mut self, now: Instant, cid: Cid, start: ConnectionStart) -> ConnectionId {
        let free = self.connections.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        self.generation = self.generation.wrapping_add(1);
        // MaxConnections is a 16-bit number, and the login keeps to it.
        let id = ConnectionId { index: index as u16, generation: self.generation };
        self.connections[index] = Some(Connection::new(id, cid, start, now));
        id
    }

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The parameters that the leading login agreed on.
    pub fn parameters(&self) -> &Parameters {
        &self.config.parameters
    }

    /// The CmdSN that the next command will have: what a further connection's login says.
    pub fn cmd_sn(&self) -> Sn {
        self.window.cmd_sn()
    }

    /// Commands that may be submitted now.
    pub fn room(&self) -> u32 {
        let tasks = self.config.tasks_max.saturating_sub(self.exchanges.len() as u32);
        self.window.room().saturating_sub(self.unsent).min(tasks)
    }

    /// Whether a command may be submitted now.
    pub fn can_submit(&self) -> bool {
        self.room() > 0
    }

    /// Commands and functions under way.
    pub fn in_flight(&self) -> usize {
        self.exchanges.len()
    }

    /// What the session has moved. A stall counts at once, and its time when it is over.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The connections there are.
    pub fn connections(&self) -> impl Iterator<Item = (ConnectionId, Cid)> {
        self.connections.iter().flatten().map(|connection| (connection.id, connection.cid))
    }

    fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(id.index())?.as_ref().filter(|connection| connection.id == id)
    }

    fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id.index())?.as_mut().filter(|connection| connection.id == id)
    }

    /// What a tag names, if it is one of ours and still under way.
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

/// The Initiator Task Tag of an exchange: its place in the low half, and above it the how manieth tenant of the
/// place it is, so that an answer that comes twice does not end another's task.
fn tag(key: Key) -> Itt {
    let tag = (key.generation & 0x7fff) << 16 | (key.index & INDEX_MASK);
    Itt::new(tag).unwrap_or_else(|| unreachable!("bit 31 is clear, so this is not the reserved tag"))
}

const INDEX_MASK: u32 = 0xffff;
