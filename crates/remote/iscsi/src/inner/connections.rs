//! The connections of a session: added, lost and removed, and the effect on the session.

use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use iscsi::initiator::{ConnectionId, ConnectionStart, Session as Machine};
use iscsi::pdu::{Cid, LogoutReason, Lun};
use reactor::Stream;

use super::SessionInner;
use super::requests::TextExchange;
use crate::error::Ending;
use crate::session_state::SessionState;
use crate::statistics::ConnectionStatistics;

/// A live connection, as far as other tasks than its own need it.
pub(super) struct LiveConnection {
    pub(super) id: ConnectionId,
    pub(super) cid: Cid,
    pub(super) under_way: usize,
    /// Why its task is to close it.
    pub(super) ending: Option<Ending>,
    pub(super) task: Option<Waker>,
    /// For its addresses and its path.
    stream: Option<Rc<dyn Stream>>,
}

impl LiveConnection {
    pub(super) fn statistics(&self) -> Option<ConnectionStatistics> {
        let stream = self.stream.as_ref()?;
        Some(ConnectionStatistics {
            cid: self.cid,
            local: stream.local(),
            peer: stream.peer(),
            path: stream.path(),
        })
    }
}

/// How a session was restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// In the same portal group: the target has ended all earlier commands.
    Reinstated,
    /// In another one: earlier commands may still be executed.
    Moved,
}

/// An outage of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    pub(crate) away: Duration,
    /// Commands outstanding when it began.
    pub(crate) commands: usize,
    /// Those of them that may still be executed.
    pub(crate) unsettled: usize,
    /// LUNs with registrations that are no longer valid.
    pub(crate) orphaned: Vec<Lun>,
}

impl SessionInner {
    /// Adds a connection.
    pub(crate) fn add_connection(&mut self, now: Instant, cid: Cid, start: ConnectionStart) -> ConnectionId {
        let id = self.machine.add_connection(now, cid, start);
        self.connections.push(LiveConnection {
            id,
            cid,
            under_way: 0,
            ending: None,
            task: None,
            stream: None,
        });
        self.state.joined(cid);
        id
    }

    /// Keeps a connection's stream for the statistics.
    pub(crate) fn watch(&mut self, id: ConnectionId, stream: &Rc<dyn Stream>) {
        if let Some(connection) = self.connection(id) {
            connection.stream = Some(Rc::clone(stream));
        }
    }

    /// Begins an iteration of a connection's task; `task` is woken when there is something to send.
    pub(crate) fn begin_round(&mut self, id: ConnectionId, now: Instant, task: &Waker) {
        self.now = now;
        let changed = |connection: &&mut LiveConnection| {
            !connection.task.as_ref().is_some_and(|kept| kept.will_wake(task))
        };
        if let Some(connection) = self.connection(id).filter(changed) {
            connection.task = Some(task.clone());
        }
    }

    /// Whether this connection, or any, is alive.
    pub(crate) fn has_connection(&self, cid: Option<Cid>) -> bool {
        self.connections.iter().any(|connection| cid.is_none_or(|cid| connection.cid == cid))
    }

    /// Number of outstanding commands of a connection.
    pub(crate) fn under_way(&mut self, id: ConnectionId) -> usize {
        self.connection(id).map_or(0, |connection| connection.under_way)
    }

    /// Why a connection is to be closed now, if it is.
    pub(crate) fn ending_of(&mut self, id: ConnectionId) -> Option<Ending> {
        self.connection(id)?.ending.take()
    }

    /// Why a connection closed by the target has ended: a target that confirms a logout closes all
    /// connections of the session, most of them without a PDU.
    pub(crate) fn closed_by_target(&mut self, id: ConnectionId) -> Ending {
        let otherwise = if self.is_leaving { Ending::LoggedOut } else { Ending::Closed };
        self.ending_of(id).unwrap_or(otherwise)
    }

    /// Removes a connection, with its commands.
    pub(crate) fn remove_connection(&mut self, id: ConnectionId) {
        self.machine.remove_connection(self.now, id);
        if let Some(place) = self.connections.iter().position(|connection| connection.id == id) {
            let connection = self.connections.swap_remove(place);
            self.deliver_events();
            self.connection_lost(connection.cid);
        }
        self.wake_connections();
    }

    fn connection_lost(&mut self, cid: Cid) {
        self.meter.incidents.connections_lost += u64::from(!self.is_leaving && !self.is_logged_out);
        if !self.connections.is_empty() {
            self.state.connection_lost(cid, self.now + self.timeouts.reset);
            return self.settle_losses();
        }
        // No connection is left for an answer.
        self.logout_due = None;
        match self.will_reconnect() {
            true => self.state.session_lost(self.now),
            false => self.end(self.is_logged_out),
        }
        if let TextExchange::Sent(waker) = std::mem::replace(&mut self.text, TextExchange::Idle) {
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Whether the session is restarted when its last connection is lost.
    pub(super) fn will_reconnect(&self) -> bool {
        !self.is_leaving && !self.timeouts.reconnect.is_zero()
    }

    /// The session is over; all waiting tasks are woken.
    fn end(&mut self, settled: bool) {
        self.state.end(settled);
        self.waiting.drain(..).for_each(Waker::wake);
        self.ended.drain(..).for_each(Waker::wake);
    }

    /// Logs out lost connections by a live one, so that their commands are settled.
    pub(super) fn settle_losses(&mut self) {
        let Some(via) = self.connections.first().map(|connection| connection.id) else { return };
        while let Some(cid) = self.state.next_to_settle() {
            if !self.machine.log_out_other(self.now, via, cid) {
                // It is logging out too, and the end of the session settles this.
                return self.state.settling_failed(cid);
            }
        }
    }

    /// The session was restarted, with this machine.
    pub(crate) fn restart(&mut self, now: Instant, machine: Machine, how: Restart) -> Outage {
        self.now = now;
        let before = std::mem::replace(&mut self.machine, machine);
        // A target that confirmed a logout has ended all commands.
        let unsettled = if std::mem::take(&mut self.is_logged_out) { 0 } else { self.unsettled };
        self.unsettled = 0;
        let (unsettled, orphaned) = match how {
            Restart::Reinstated => (0, Vec::new()),
            Restart::Moved => (unsettled, self.registrations.moved()),
        };
        let away = match how {
            Restart::Reinstated => self.state.reinstated(now),
            Restart::Moved => self.state.moved(now, unsettled > 0),
        };
        self.meter.reconnected(before.counters(), away);
        self.waiting.drain(..).for_each(Waker::wake);
        Outage { away, commands: std::mem::take(&mut self.lost_commands), unsettled, orphaned }
    }

    /// Marks a connection as missing, to be logged in later.
    pub(crate) fn connection_missing(&mut self, cid: Cid) {
        self.state.connection_missing(cid, self.now);
    }

    /// The state of the session.
    pub(crate) fn state(&mut self) -> &mut SessionState {
        &mut self.state
    }

    /// Whether the session will not be restored.
    pub(crate) fn is_over(&self) -> bool {
        self.state.is_over()
    }

    pub(crate) fn poll_over(&mut self, waker: &Waker) -> Poll<()> {
        if self.state.is_over() {
            return Poll::Ready(());
        }
        self.ended.push(waker.clone());
        Poll::Pending
    }

    /// Ends the session by a final logout.
    pub(crate) fn log_out(&mut self) {
        self.is_leaving = true;
        match self.connections.first().map(|connection| connection.id) {
            Some(first) => drop(self.machine.log_out(self.now, first, LogoutReason::CloseSession)),
            None => self.end(false),
        }
        self.wake_connections();
    }

    /// The target requested the logout; the session is restarted after it.
    pub(super) fn log_out_for_now(&mut self, by: ConnectionId) {
        self.machine.log_out(self.now, by, LogoutReason::CloseSession);
        // A repeated request does not extend the deadline.
        self.logout_due.get_or_insert(self.now + self.timeouts.reset);
        self.wake_connections();
    }

    /// The same, and nothing that this machine has not sent yet is delivered.
    pub(crate) fn reset(&mut self) {
        self.connections.iter().flat_map(|connection| &connection.stream).for_each(|stream| stream.reset());
        self.give_up();
    }

    /// Closes all connections without a logout.
    pub(crate) fn give_up(&mut self) {
        self.end_all(|| Ending::Closed);
    }

    pub(super) fn end_all(&mut self, why: impl Fn() -> Ending) {
        self.connections.iter_mut().for_each(|connection| connection.ending = Some(why()));
        self.wake_connections();
    }

    pub(super) fn connection(&mut self, id: ConnectionId) -> Option<&mut LiveConnection> {
        self.connections.iter_mut().find(|connection| connection.id == id)
    }

    pub(super) fn wake_connections(&self) {
        self.connections
            .iter()
            .filter_map(|connection| connection.task.as_ref())
            .for_each(Waker::wake_by_ref);
    }
}
