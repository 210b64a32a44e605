//! The target's half of a session in full feature phase (RFC 7143), as a machine without I/O.
//!
//! One [`Session`] serves all connections of a session, which live on one thread. A driver hands it headers as
//! they arrive, asks it where each data segment belongs, and does what its events say; what there is to send comes
//! out of [`Session::poll_transmit`], connection by connection. Payload never passes through here: the machine
//! names a task and an offset, and the driver receives into, or sends from, where the bytes lie.
//!
//! ```text
//!              handle_header ─► Segment ─► (driver receives) ─► handle_segment
//!   wire ──►        │                                                │           ──► poll_transmit ──► wire
//!                   ▼                                                ▼                     ▲
//!             Event::Command ─► expect_data ─► R2Ts … ─► Event::DataComplete ─► respond ───┘
//! ```
//!
//! The order of things: [`event`] (what the driver is asked to do), `window` (in which order commands are
//! delivered), `receive`, `commands`, `landing` and `inbound` (what arrives), `answer` and `transmit` (Data-In and
//! status), `tmf` and `fence` (what ends many commands at once), `text`, `logout`, `nop`, `notice` (the rest
//! of the protocol).
//!
//! ErrorRecoveryLevel is 0: what went wrong on a connection ends a command, or the connection, and nothing is sent
//! twice. So ExpStatSN, which tells what need not be kept to be sent again, is looked at only while a `fence` stands.

mod commands;
mod config;
mod connection;
mod data_out;
mod event;
mod fatal;
mod fence;
mod inbound;
mod logout;
mod nop;
mod notice;
mod outbound;
mod receive;
mod respond;
mod tags;
mod task;
mod task_management;
mod text;
mod timeout;
mod transmit;
mod window;

use std::collections::VecDeque;
use std::time::Instant;

pub use config::{ConnectionStart, SessionConfig};
pub use event::{
    CloseReason, Command, ConnectionId, DataFault, Event, LogoutId, Receipt, TaskId, TextQuery, TmfId,
    TmfRequest,
};
pub use fatal::Fatal;
pub use notice::Notice;
pub use receive::{Destination, Segment};
pub use respond::Response;
pub use task::{TASK_EVENTS, TASK_STATES};
pub use transmit::{Payload, Transmit};

pub use crate::keepalive::NopPolicy;

use self::connection::Connection;
use self::fence::Fences;
use self::logout::Logout;
use self::tags::Tags;
use self::task::Task;
use self::task_management::{EarlyAbort, Tmf};
use self::window::Window;
use crate::negotiate::Parameters;
use crate::pdu::Cid;
use crate::serial::Sn;
use crate::slab::{Key, Slab};

/// A session: its command window, its tasks and its connections.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    window: Window,
    tasks: Slab<Task>,
    tags: Tags,
    tmfs: Slab<Tmf>,
    logouts: Slab<Logout>,
    early_aborts: Vec<EarlyAbort>,
    fences: Fences,
    connections: Vec<Option<Connection>>,
    /// Distinguishes the connections that have had the same index.
    generation: u16,
    events: VecDeque<Event>,
    counters: Counters,
    /// Non-immediate tasks whose last PDU has not been sent, and functions that are not done: each keeps a place of
    /// the command window.
    active: u32,
    /// Immediate tasks and task management functions under way.
    immediate: u32,
    /// Data of commands and requests that wait for their turn, and segments on their way to the machine, in bytes, those of
    /// the keeping included.
    staged_bytes: usize,
    /// Bytes that the driver lets it keep beyond what it keeps.
    staging_limit: usize,
}

/// What has happened in a session so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// SCSI commands handed to the driver.
    pub commands: u64,
    /// Commands outside the command window, or repeated within it: ignored, as section 4.2.2.1 demands.
    pub commands_ignored: u64,
    /// Data-Out PDUs for tasks that are not there any more: dropped.
    pub data_out_late: u64,
    /// Data segments that did not match their digest.
    pub digest_errors: u64,
    /// PDUs answered by a Reject.
    pub rejects: u64,
}

impl Session {
    /// A session without connections. The first is the one whose login made it.
    pub fn new(config: SessionConfig) -> Session {
        Session {
            window: Window::new(config.exp_cmd_sn, config.window),
            config,
            tasks: Slab::new(),
            tags: Tags::default(),
            tmfs: Slab::new(),
            logouts: Slab::new(),
            early_aborts: Vec::new(),
            fences: Fences::default(),
            connections: Vec::new(),
            generation: 0,
            events: VecDeque::new(),
            counters: Counters::default(),
            active: 0,
            immediate: 0,
            staged_bytes: 0,
            staging_limit: usize::MAX,
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
        self.connections[index] = Some(Connection::new(id, cid, start, now, self.config.text_bytes_max));
        id
    }

    /// A connection is gone. Its tasks die with it (ErrorRecoveryLevel 0); [`Event::TaskGone`] tells which. The
    /// session goes on if it has others.
    pub fn remove_connection(&mut self, _now: Instant, id: ConnectionId) {
        let Some(connection) = self.connection(id) else { return };
        let unsaid = connection.closes_all().or_else(|| self.fences.closing_blocked(id));
        self.staged_bytes -= connection.reserved_bytes;
        self.connections[id.index()] = None;
        self.drop_connection_tasks(id);
        self.tmfs_connection_lost(id);
        self.fences_connection_lost(id);
        // What was to end with an answer that cannot be given ends all the same.
        if let Some(reason) = unsaid {
            self.close_all(reason);
        }
        self.release();
    }

    /// What the driver is to do next.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            let event = self.events.pop_front()?;
            if self.is_current(&event) {
                return Some(event);
            }
        }
    }

    /// The parameters that the leading login agreed on.
    pub fn parameters(&self) -> &Parameters {
        &self.config.parameters
    }

    /// Tasks that are there: not delivered yet, under way, or being answered.
    pub fn commands_in_flight(&self) -> usize {
        self.tasks.len()
    }

    /// Bytes of data that it keeps itself: of commands that wait for their turn, and in answers that are yet to be sent.
    pub fn staged_bytes(&self) -> usize {
        let unsent = self.connections.iter().flatten().map(|connection| connection.urgent_bytes);
        self.staged_bytes + unsent.sum::<usize>()
    }

    /// How many bytes more it may keep. Without a word any number, up to the limits of [`SessionConfig`].
    pub fn set_staging_limit(&mut self, bytes: usize) {
        self.staging_limit = bytes;
    }

    /// What has been kept longest because what is before it in order has not come, or the rest of its segment has not:
    /// since when, and the connection it came by.
    pub fn oldest_staged(&self) -> Option<(Instant, ConnectionId)> {
        let commands = self.tasks.iter().filter(|(_, task)| task.staged_bytes() > 0);
        let commands = commands.filter_map(|(_, task)| Some((task.waiting.as_ref()?.since, task.connection)));
        let requests = self.window.held_requests().map(|request| (request.since, request.connection));
        let coming = self.connections.iter().flatten().filter(|connection| connection.reserved_bytes > 0);
        let coming = coming.map(|connection| (connection.header_at, connection.id));
        commands.chain(requests).chain(coming).min_by_key(|(since, _)| *since)
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The next CmdSN in order.
    pub fn exp_cmd_sn(&self) -> Sn {
        self.window.exp_cmd_sn()
    }

    /// The last CmdSN that the initiator has been told there is room for.
    pub fn max_cmd_sn(&self) -> Sn {
        self.window.max_cmd_sn()
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

    /// Whether an event still means something: a task may have ended between the event's cause and now.
    fn is_current(&self, event: &Event) -> bool {
        match event {
            Event::Command(Command { task, .. })
            | Event::StagedData { task, .. }
            | Event::DataComplete { task }
            | Event::DataFailed { task, .. } => {
                self.tasks.get(task.key).is_some_and(|task| task.outbound.is_none())
            }
            Event::TaskManagement(_)
            | Event::SendTargets { .. }
            | Event::TaskGone { .. }
            | Event::LogoutPending { .. }
            | Event::TransmitReady { .. }
            | Event::Acknowledged(_)
            | Event::Close { .. } => true,
        }
    }

    /// Takes a task off all books, whatever it has got to.
    fn remove_task(&mut self, key: Key) -> Option<Task> {
        let task = self.tasks.remove(key)?;
        self.tags.remove(task.itt);
        self.staged_bytes -= task.staged_bytes();
        if task.immediate {
            self.immediate -= 1;
        } else if !task.is_held() {
            self.active -= 1;
        }
        Some(task)
    }

    /// Ends the tasks of a connection, and tells the driver of those that it knows.
    fn drop_connection_tasks(&mut self, id: ConnectionId) {
        let doomed: Vec<Key> =
            self.tasks.iter().filter(|(_, task)| task.connection == id).map(|(key, _)| key).collect();
        doomed.into_iter().for_each(|key| self.drop_task(key));
    }

    fn drop_task(&mut self, key: Key) {
        self.observe("its connection is lost", |_| Some(key));
        let Some(task) = self.remove_task(key) else { return };
        if task.is_held() {
            self.window.mark_received(key);
        }
        // A command that found no room while it waited is answered without the driver.
        if task.announced {
            self.events.push_back(Event::TaskGone { task: TaskId { key, connection: task.connection } });
        }
    }
}
