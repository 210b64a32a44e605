//! The tables of a session, and the initiator's view of the target's command window (RFC 7143 section 4.2.2.1).

use std::collections::VecDeque;
use std::time::Instant;

use super::connection::Connection;
use super::exchange::{Exchange, TASK_STATES, Task};
use super::{ConnectionId, ConnectionStart, Counters, Event, SessionConfig, Stall, TaskId};
use crate::negotiate::Parameters;
use crate::observed::report;
use crate::pdu::{Cid, Itt, Sn};
use crate::slab::{Connections, Key, Slab};

/// A session: the target's command window, outstanding exchanges, and connections.
#[derive(Debug)]
pub struct Session {
    pub(super) config: SessionConfig,
    pub(super) window: Window,
    pub(super) exchanges: Slab<Exchange>,
    /// Number of commands that have been submitted and not sent. They have no CmdSN yet, but each has a slot
    /// reserved in the window.
    pub(super) unsent: u32,
    pub(super) connections: Connections<Connection>,
    pub(super) events: VecDeque<Event>,
    /// Tags of commands that ended without a status, and for which further PDUs may arrive: the target
    /// rejected the command, or a function answered on another connection ended it.
    pub(super) ended: VecDeque<Itt>,
    pub(super) counters: Counters,
    pub(super) stall: Stall,
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
    pub fn add_connection(
        &mut self,
        now: Instant,
        cid: Cid,
        start: ConnectionStart,
    ) -> ConnectionId {
        self.connections
            .add(|id| Connection::new(id, cid, start, now))
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
        debug_assert!(
            self.unsent <= self.window.room(),
            "each unsent command has its CmdSN in the window"
        );
        let tasks = self
            .config
            .tasks_max
            .saturating_sub(self.exchanges.len() as u32);
        self.window.room().saturating_sub(self.unsent).min(tasks)
    }

    /// Whether a command may be submitted now.
    pub fn can_submit(&self) -> bool {
        self.room() > 0
    }

    /// Bytes received and sent for a command, including PDUs in progress.
    pub fn moved_bytes(&self, task: TaskId) -> u64 {
        match self.exchanges.get(task.0) {
            Some(Exchange::Task(task)) => {
                u64::from(task.inbound.bytes()) + task.outbound.handed_out()
            }
            _ => 0,
        }
    }

    /// Number of outstanding commands and functions.
    pub fn in_flight(&self) -> usize {
        self.exchanges.len()
    }

    /// The counters. A stall is counted when it starts, its duration when it ends.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The connections.
    pub fn connections(&self) -> impl Iterator<Item = (ConnectionId, Cid)> {
        self.connections
            .iter()
            .map(|connection| (connection.id, connection.cid))
    }

    /// Reports an event of a command before it takes effect.
    pub(super) fn observe(&self, event: &'static str, which: impl FnOnce(&Session) -> Option<Key>) {
        report("initiator", event, || {
            match which(self).and_then(|key| self.exchanges.get(key)) {
                Some(Exchange::Task(task)) => TASK_STATES[1 + task.clock.phase() as usize],
                _ => TASK_STATES[0],
            }
        });
    }

    pub(super) fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(id)
    }

    pub(super) fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id)
    }

    /// The exchange of a tag, if it is outstanding.
    pub(super) fn find(&self, itt: Itt) -> Option<Key> {
        self.exchanges
            .at(itt.get() & INDEX_MASK)
            .map(|(key, _)| key)
            .filter(|&key| tag(key) == itt)
    }

    pub(super) fn task_mut(&mut self, key: Key) -> Option<&mut Task> {
        match self.exchanges.get_mut(key)? {
            Exchange::Task(task) => Some(task),
            Exchange::Tmf(_)
            | Exchange::Text(_)
            | Exchange::Ping { .. }
            | Exchange::Logout { .. } => None,
        }
    }
}

/// The Initiator Task Tag of an exchange: its index in the low half, and a generation above it, so that a
/// duplicate response does not end another task.
pub(super) fn tag(key: Key) -> Itt {
    debug_assert!(key.index <= INDEX_MASK, "more exchanges than tags");
    let tag = (key.generation & 0x7fff) << 16 | (key.index & INDEX_MASK);
    Itt::new(tag)
        .unwrap_or_else(|| unreachable!("bit 31 is clear, so this is not the reserved tag"))
}

pub(super) const INDEX_MASK: u32 = 0xffff;

/// CmdSN, MaxCmdSN and ExpCmdSN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// CmdSN of the next command.
    cmd_sn: Sn,
    exp_cmd_sn: Sn,
    max_cmd_sn: Sn,
}

impl Window {
    pub(super) fn new(cmd_sn: Sn, max_cmd_sn: Sn) -> Window {
        Window {
            cmd_sn,
            exp_cmd_sn: cmd_sn,
            max_cmd_sn,
        }
    }

    pub(super) fn cmd_sn(&self) -> Sn {
        self.cmd_sn
    }

    /// Number of commands that may be sent.
    pub(super) fn room(&self) -> u32 {
        if self.cmd_sn.le(self.max_cmd_sn) {
            self.cmd_sn.distance(self.max_cmd_sn).saturating_add(1)
        } else {
            0
        }
    }

    /// Consumes the next CmdSN.
    pub(super) fn take(&mut self) -> Sn {
        debug_assert!(self.room() > 0, "a CmdSN beyond the window");
        let taken = self.cmd_sn;
        self.cmd_sn = taken.next();
        taken
    }

    /// Whether the target may still be waiting for this CmdSN.
    pub(super) fn is_unacknowledged(&self, cmd_sn: Sn) -> bool {
        self.exp_cmd_sn.le(cmd_sn) && cmd_sn.lt(self.cmd_sn)
    }

    /// Updates the window. "If the PDU MaxCmdSN is less than the PDU ExpCmdSN-1 (in Serial Arithmetic sense),
    /// they are both ignored"; smaller values than the known ones are outdated, and also ignored.
    pub(super) fn update(&mut self, exp_cmd_sn: Sn, max_cmd_sn: Sn) {
        if max_cmd_sn.lt(exp_cmd_sn.minus(1)) {
            return;
        }
        if self.max_cmd_sn.lt(max_cmd_sn) {
            self.max_cmd_sn = max_cmd_sn;
        }
        if self.exp_cmd_sn.lt(exp_cmd_sn) && exp_cmd_sn.le(self.cmd_sn) {
            self.exp_cmd_sn = exp_cmd_sn;
        }
        debug_assert!(
            self.exp_cmd_sn.le(self.cmd_sn),
            "the target acknowledges a command that was never sent"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_closes_when_it_is_used_up_and_opens_as_told() {
        let mut window = Window::new(Sn(u32::MAX), Sn(0));
        assert_eq!(window.room(), 2);
        assert_eq!((window.take(), window.take()), (Sn(u32::MAX), Sn(0)));
        assert_eq!(window.room(), 0);
        window.update(Sn(1), Sn(3));
        assert_eq!(window.room(), 3);
    }

    #[test]
    fn old_and_contradictory_news_is_ignored() {
        let mut window = Window::new(Sn(10), Sn(20));
        window.update(Sn(10), Sn(15));
        window.update(Sn(30), Sn(28));
        assert_eq!(window.room(), 11);
    }

    #[test]
    fn a_target_cannot_acknowledge_what_was_not_sent() {
        let mut window = Window::new(Sn(10), Sn(20));
        let sent = window.take();
        window.update(Sn(15), Sn(20));
        assert!(window.is_unacknowledged(sent));
        window.update(Sn(11), Sn(20));
        assert!(!window.is_unacknowledged(sent));
    }
}
