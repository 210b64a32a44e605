//! A session's connections: they join, are lost, and leave; what that means for the session.

use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use iscsi::initiator::{ConnectionId, ConnectionStart, Session as Machine};
use iscsi::pdu::{Cid, LogoutReason, Lun};
use reactor::Stream;

use super::Parts;
use super::requests::Text;
use crate::error::Ending;
use crate::session_state::Standing;
use crate::statistics::ConnectionStatistics;

/// A connection that is alive, as far as others than its own task need to know.
pub(super) struct Wire {
    pub(super) id: ConnectionId,
    pub(super) cid: Cid,
    pub(super) under_way: usize,
    /// Why its task is to end it.
    pub(super) ending: Option<Ending>,
    pub(super) task: Option<Waker>,
    /// For its addresses and its path.
    stream: Option<Rc<dyn Stream>>,
}

impl Wire {
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

/// How a session was begun again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Return {
    /// In the same portal group: the target has ended all that was sent before.
    Reinstated,
    /// In another one: what was sent before goes on.
    Moved,
}

/// A time without a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    pub(crate) away: Duration,
    /// How many commands were under way when it began.
    pub(crate) commands: usize,
    /// How many of them may still be carried out.
    pub(crate) unsettled: usize,
    /// Where keys are registered that do not count any more.
    pub(crate) orphaned: Vec<Lun>,
}

impl Parts {
    /// A connection has joined the session.
    pub(crate) fn add_connection(&mut self, now: Instant, cid: Cid, start: ConnectionStart) -> ConnectionId {
        let id = self.machine.add_connection(now, cid, start);
        self.wires.push(Wire { id, cid, under_way: 0, ending: None, task: None, stream: None });
        self.standing.joined(cid);
        id
    }

    /// What a connection's stream tells of itself belongs to the statistics.
    pub(crate) fn watch(&mut self, id: ConnectionId, stream: &Rc<dyn Stream>) {
        if let Some(wire) = self.wire(id) {
            wire.stream = Some(Rc::clone(stream));
        }
    }

    /// A round of a connection's task begins; `task` is woken when there is something to send.
    pub(crate) fn begin_round(&mut self, id: ConnectionId, now: Instant, task: &Waker) {
        self.now = now;
        let changed = |wire: &&mut Wire| !wire.task.as_ref().is_some_and(|kept| kept.will_wake(task));
        if let Some(wire) = self.wire(id).filter(changed) {
            wire.task = Some(task.clone());
        }
    }

    /// Whether a connection is alive, or any.
    pub(crate) fn has_connection(&self, cid: Option<Cid>) -> bool {
        self.wires.iter().any(|wire| cid.is_none_or(|cid| wire.cid == cid))
    }

    /// How many commands a connection carries.
    pub(crate) fn under_way(&mut self, id: ConnectionId) -> usize {
        self.wire(id).map_or(0, |wire| wire.under_way)
    }

    /// Why a connection is to be ended now, if it is.
    pub(crate) fn ending_of(&mut self, id: ConnectionId) -> Option<Ending> {
        self.wire(id)?.ending.take()
    }

    /// Why a connection has ended that the target has closed: one that agrees to a logout closes all connections
    /// of the session, on most of which it says nothing.
    pub(crate) fn closed_by_target(&mut self, id: ConnectionId) -> Ending {
        let otherwise = if self.is_leaving { Ending::LoggedOut } else { Ending::Closed };
        self.ending_of(id).unwrap_or(otherwise)
    }

    /// A connection has ended, and its commands with it.
    pub(crate) fn remove_connection(&mut self, id: ConnectionId) {
        self.machine.remove_connection(self.now, id);
        if let Some(place) = self.wires.iter().position(|wire| wire.id == id) {
            let wire = self.wires.swap_remove(place);
            self.deliver_events();
            self.lose(wire.cid);
        }
        self.wake_wires();
    }

    fn lose(&mut self, cid: Cid) {
        self.meter.incidents.connections_lost += u64::from(!self.is_leaving && !self.is_logged_out);
        if !self.wires.is_empty() {
            self.standing.lose(cid, self.now + self.patience.reset);
            return self.settle_losses();
        }
        // Nobody is left who could answer, or be asked to.
        self.logout_due = None;
        match self.will_come_back() {
            true => self.standing.lose_all(self.now),
            false => self.end(self.is_logged_out),
        }
        if let Text::Asked(waker) = std::mem::replace(&mut self.text, Text::None) {
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Whether the session is begun again when it has lost its last connection.
    pub(super) fn will_come_back(&self) -> bool {
        !self.is_leaving && !self.patience.reconnect.is_zero()
    }

    /// The session is over; whoever waits for anything is told.
    fn end(&mut self, settled: bool) {
        self.standing.end(settled);
        self.waiting.drain(..).for_each(Waker::wake);
        self.ended.drain(..).for_each(Waker::wake);
    }

    /// Asks the target, by a connection that is alive, to let go of what the lost ones carried.
    pub(super) fn settle_losses(&mut self) {
        let Some(via) = self.wires.first().map(|wire| wire.id) else { return };
        while let Some(cid) = self.standing.next_to_settle() {
            if !self.machine.log_out_other(self.now, via, cid) {
                // It is leaving too, and what ends the session settles this.
                return self.standing.not_settled(cid);
            }
        }
    }

    /// The session was begun again, with this machine.
    pub(crate) fn begin_again(&mut self, now: Instant, machine: Machine, how: Return) -> Stall {
        self.now = now;
        let before = std::mem::replace(&mut self.machine, machine);
        // A target that has agreed to a logout has let go of everything.
        let unsettled = if std::mem::take(&mut self.is_logged_out) { 0 } else { self.unsettled };
        self.unsettled = 0;
        let (unsettled, orphaned) = match how {
            Return::Reinstated => (0, Vec::new()),
            Return::Moved => (unsettled, self.registrations.moved()),
        };
        let away = match how {
            Return::Reinstated => self.standing.reinstated(now),
            Return::Moved => self.standing.moved(now, unsettled > 0),
        };
        self.meter.reconnected(before.counters(), away);
        self.waiting.drain(..).for_each(Waker::wake);
        Stall { away, commands: std::mem::take(&mut self.lost_commands), unsettled, orphaned }
    }

    /// The session is to have this connection, and could not get it yet.
    pub(crate) fn lacks(&mut self, cid: Cid) {
        self.standing.lacks(cid, self.now);
    }

    /// What is wrong with the session.
    pub(crate) fn standing(&mut self) -> &mut Standing {
        &mut self.standing
    }

    /// Whether nothing will bring the session back.
    pub(crate) fn is_over(&self) -> bool {
        self.standing.is_over()
    }

    pub(crate) fn poll_over(&mut self, waker: &Waker) -> Poll<()> {
        if self.standing.is_over() {
            return Poll::Ready(());
        }
        self.ended.push(waker.clone());
        Poll::Pending
    }

    /// Asks the target to end the session, for good.
    pub(crate) fn log_out(&mut self) {
        self.is_leaving = true;
        match self.wires.first().map(|wire| wire.id) {
            Some(first) => drop(self.machine.log_out(self.now, first, LogoutReason::CloseSession)),
            None => self.end(false),
        }
        self.wake_wires();
    }

    /// The target wants the session ended, and does not mind if we come back.
    pub(super) fn log_out_for_now(&mut self, by: ConnectionId) {
        self.machine.log_out(self.now, by, LogoutReason::CloseSession);
        // One that asks again does not get more time.
        self.logout_due.get_or_insert(self.now + self.patience.reset);
        self.wake_wires();
    }

    /// Ends all connections without waiting for anybody.
    pub(crate) fn give_up(&mut self) {
        self.end_all(|| Ending::Closed);
    }

    pub(super) fn end_all(&mut self, why: impl Fn() -> Ending) {
        self.wires.iter_mut().for_each(|wire| wire.ending = Some(why()));
        self.wake_wires();
    }

    pub(super) fn wire(&mut self, id: ConnectionId) -> Option<&mut Wire> {
        self.wires.iter_mut().find(|wire| wire.id == id)
    }

    pub(super) fn wake_wires(&self) {
        self.wires.iter().filter_map(|wire| wire.task.as_ref()).for_each(Waker::wake_by_ref);
    }
}
