//! What a session consists of, and how word gets from the machine to those who wait.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use iscsi::initiator::{
    Command, ConnectionId, ConnectionStart, Event, Failure, Leaving, Session as Machine, SubmitError, TaskId,
    Times,
};
use iscsi::pdu::{
    AsyncEvent, AsyncMessage, Cid, LogoutReason, LogoutResult, Lun, TaskAttribute,
    TaskManagementFunction as Function, TaskManagementResult,
};
use reactor::{Receiver, Stream};

use crate::error::{CommandError, Ending};
use crate::management::{Functions, Management};
use crate::patience::{Patience, Rung};
use crate::session::Order;
use crate::standing::Standing;
use crate::statistics::{Account, Class, ConnectionStatistics, Meter, Outcome, Statistics};
use crate::tasks::{Beginning, Ended, Overdue, Status, Tasks, Ticket};

/// The parts of a session.
pub(crate) struct Parts {
    pub(crate) machine: Machine,
    pub(crate) tasks: Tasks,
    /// As of the last round: near enough for deadlines of seconds, and free.
    pub(crate) now: Instant,
    pub(crate) patience: Patience,
    standing: Standing,
    wires: Vec<Wire>,
    /// Requests for which the command window had no room, or there was no session.
    waiting: VecDeque<Waker>,
    /// We are logging out, for good.
    is_leaving: bool,
    /// The target has agreed: nothing that was sent is under way.
    is_logged_out: bool,
    /// Commands that were on lost connections since the session began, or began again.
    lost_commands: usize,
    /// Woken when the session is over.
    ended: Vec<Waker>,
    text: Text,
    functions: Functions,
    pub(crate) meter: Meter,
}

/// A connection that is alive, as far as others than its own task need to know.
struct Wire {
    id: ConnectionId,
    cid: Cid,
    under_way: usize,
    /// Why its task is to end it, once everything is sent.
    ending: Option<Ending>,
    task: Option<Waker>,
    /// For its addresses and its path.
    stream: Option<Rc<dyn Stream>>,
}

impl Wire {
    fn statistics(&self) -> Option<ConnectionStatistics> {
        let stream = self.stream.as_ref()?;
        Some(ConnectionStatistics {
            cid: self.cid,
            local: stream.local(),
            peer: stream.peer(),
            path: stream.path(),
        })
    }
}

/// The one text exchange there may be.
enum Text {
    None,
    Asked(Option<Waker>),
    Answered(Vec<u8>),
}

/// A time without a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    pub(crate) away: Duration,
    /// How many commands were under way when it began.
    pub(crate) commands: usize,
}

/// What became of an order.
pub(crate) enum Submitted {
    As(Ticket),
    NoRoom(Order),
    Never(Ended),
}

impl Submitted {
    fn never(order: Order, error: CommandError) -> Submitted {
        Submitted::Never(Ended::without(order.transfer, error))
    }
}

impl Parts {
    pub(crate) fn new(machine: Machine, now: Instant, patience: Patience) -> Parts {
        Parts {
            machine,
            tasks: Tasks::default(),
            now,
            patience,
            standing: Standing::new(now),
            wires: Vec::new(),
            waiting: VecDeque::new(),
            is_leaving: false,
            is_logged_out: false,
            lost_commands: 0,
            ended: Vec::new(),
            text: Text::None,
            functions: Functions::default(),
            meter: Meter::new(now),
        }
    }

    // --- connections

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
            self.standing.lose(cid);
            return self.settle_losses();
        }
        if self.is_leaving || self.patience.reconnect.is_zero() {
            self.end(self.is_logged_out);
        } else {
            self.standing.lose_all(self.now);
        }
        if let Text::Asked(waker) = std::mem::replace(&mut self.text, Text::None) {
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// The session is over; whoever waits for anything is told.
    fn end(&mut self, settled: bool) {
        self.standing.end(settled);
        self.waiting.drain(..).for_each(Waker::wake);
        self.ended.drain(..).for_each(Waker::wake);
    }

    /// Asks the target, by a connection that is alive, to let go of what the lost ones carried.
    fn settle_losses(&mut self) {
        let Some(via) = self.wires.first().map(|wire| wire.id) else { return };
        while let Some(cid) = self.standing.next_to_settle() {
            if !self.machine.log_out_other(self.now, via, cid) {
                // It is leaving too, and what ends the session settles this.
                return self.standing.not_settled(cid);
            }
        }
    }

    /// The session was begun again, with this machine; the target has ended all that was sent before.
    pub(crate) fn begin_again(&mut self, now: Instant, machine: Machine) -> Stall {
        self.now = now;
        let before = std::mem::replace(&mut self.machine, machine);
        self.is_logged_out = false;
        let away = self.standing.reinstated(now);
        self.meter.reconnected(before.counters(), away);
        self.waiting.drain(..).for_each(Waker::wake);
        Stall { away, commands: std::mem::take(&mut self.lost_commands) }
    }

    /// The session is to have this connection, and could not get it yet.
    pub(crate) fn lacks(&mut self, cid: Cid) {
        self.standing.lacks(cid);
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
    fn log_out_for_now(&mut self, by: ConnectionId) {
        self.machine.log_out(self.now, by, LogoutReason::CloseSession);
        self.wake_wires();
    }

    /// Ends all connections without waiting for anybody.
    pub(crate) fn give_up(&mut self) {
        self.end_all(|| Ending::Closed);
    }

    fn end_all(&mut self, why: impl Fn() -> Ending) {
        self.wires.iter_mut().for_each(|wire| wire.ending = Some(why()));
        self.wake_wires();
    }

    fn wire(&mut self, id: ConnectionId) -> Option<&mut Wire> {
        self.wires.iter_mut().find(|wire| wire.id == id)
    }

    fn wake_wires(&self) {
        self.wires.iter().filter_map(|wire| wire.task.as_ref()).for_each(Waker::wake_by_ref);
    }

    // --- commands

    /// Hands a command to the machine, or `waker` to those who are woken when there is room for one.
    pub(crate) fn submit(&mut self, order: Order, waker: &Waker) -> Submitted {
        let lengths = (u32::try_from(order.transfer.in_bytes()), u32::try_from(order.transfer.out_bytes()));
        let (Ok(read_bytes), Ok(write_bytes)) = lengths else {
            return Submitted::never(order, CommandError::TooLong);
        };
        if self.standing.is_awaited() {
            self.waiting.push_back(waker.clone());
            return Submitted::NoRoom(order);
        }
        if order.epoch.is_some_and(|epoch| epoch != self.standing.epoch()) {
            return Submitted::never(order, CommandError::Reinstated);
        }
        let Some(wire) = self.wires.iter_mut().min_by_key(|wire| wire.under_way) else {
            return Submitted::never(order, CommandError::ConnectionLost);
        };
        let (lun, attribute) = (order.lun, TaskAttribute::Simple);
        let command = Command { lun, cdb: &order.cdb, attribute, read_bytes, write_bytes };
        match self.machine.submit(self.now, wire.id, &command) {
            Ok(id) => {
                wire.under_way += 1;
                wire.task.iter().for_each(Waker::wake_by_ref);
                let until = self.now + self.patience.command;
                let account = Account { class: Class::of(&order.cdb), waited: Duration::ZERO };
                let Order { transfer, insists, .. } = order;
                let beginning = Beginning { id, connection: wire.id, lun, transfer, until, insists, account };
                Submitted::As(self.tasks.insert(beginning, waker.clone()))
            }
            Err(SubmitError::NoRoom) => {
                self.waiting.push_back(waker.clone());
                Submitted::NoRoom(order)
            }
            Err(SubmitError::NotConnected | SubmitError::CdbLength) => {
                Submitted::never(order, CommandError::ConnectionLost)
            }
        }
    }

    /// How long a request that wants to send since `since` has waited for anything but a lost session.
    pub(crate) fn waited(&self, since: Instant) -> Duration {
        self.standing.waited(since, self.now)
    }

    /// Nobody waits for a command any more: the target is asked to abort it.
    pub(crate) fn abandon(&mut self, ticket: Ticket) {
        if let Some(task) = self.tasks.orphan(ticket, self.now + self.patience.abort) {
            self.abort(task);
            self.deliver_events();
            self.wake_wires();
        }
    }

    fn abort(&mut self, task: TaskId) {
        let asked = self.machine.abort_task(self.now, task);
        self.meter.incidents.aborts += u64::from(asked.is_some());
    }

    /// Wakes one who waits for every command that the window has room for.
    pub(crate) fn wake_waiting(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        for _ in 0..self.machine.room() {
            let Some(waker) = self.waiting.pop_front() else { return };
            waker.wake();
        }
    }

    /// Lets deadlines pass: the machine's, those of commands, and those of requests that wait for room or for a lost
    /// session.
    pub(crate) fn pass_time(&mut self, now: Instant) {
        self.now = now;
        self.machine.handle_timeout(now);
        let overdue = self.tasks.climb(now, &self.patience);
        self.climb(&overdue);
        if self.standing.give_up_after(self.patience.reconnect, now) {
            tracing::warn!("the session has been lost for too long: requests fail from now on");
            self.waiting.drain(..).for_each(Waker::wake);
        }
        self.deliver_events();
        self.wake_wires();
        // Whoever waits for room may have waited long enough, and only they can tell.
        self.waiting.drain(..).for_each(Waker::wake);
    }

    /// Does what is to be done about commands that do not end: a reset once, for however many it is.
    fn climb(&mut self, overdue: &[Overdue]) {
        let mut resets = Vec::new();
        for &Overdue { id, lun, rung } in overdue {
            match rung {
                Rung::Wait => {}
                Rung::AbortTask => {
                    self.meter.incidents.timeouts += 1;
                    self.abort(id);
                }
                Rung::ResetUnit => resets.push((Function::LogicalUnitReset, lun)),
                Rung::ResetTarget => resets.push((Function::TargetWarmReset, Lun(0))),
                Rung::LeaveSession => self.end_all(|| Ending::Undead),
            }
        }
        for (index, &(function, lun)) in resets.iter().enumerate() {
            if resets[..index].contains(&(function, lun)) {
                continue;
            }
            tracing::warn!(?function, ?lun, "commands neither end nor can be aborted");
            if let Some(by) = self.wires.first().map(|wire| wire.id) {
                self.machine.manage(self.now, by, function, lun);
                self.meter.incidents.resets += 1;
            }
        }
    }

    /// Asks the target for a task management function; whoever receives hears what it says.
    pub(crate) fn manage(
        &mut self,
        what: Management,
    ) -> Result<Receiver<TaskManagementResult>, CommandError> {
        let first = self.wires.first().map(|wire| wire.id).ok_or(CommandError::ConnectionLost)?;
        let asked = self.machine.manage(self.now, first, what.function(), what.lun());
        let answer = self.functions.asked(asked.ok_or(CommandError::ConnectionLost)?);
        self.wake_wires();
        Ok(answer)
    }

    // --- text

    /// Asks which targets there are.
    pub(crate) fn ask_for_targets(&mut self, which: &str) -> Result<(), CommandError> {
        let first = self.wires.first().map(|wire| wire.id).ok_or(CommandError::ConnectionLost)?;
        if !self.machine.send_targets(first, which) {
            return Err(CommandError::ConnectionLost);
        }
        self.text = Text::Asked(None);
        self.wake_wires();
        Ok(())
    }

    pub(crate) fn poll_text(&mut self, waker: &Waker) -> Poll<Result<Vec<u8>, CommandError>> {
        match std::mem::replace(&mut self.text, Text::None) {
            Text::Answered(text) => Poll::Ready(Ok(text)),
            Text::None => Poll::Ready(Err(CommandError::ConnectionLost)),
            Text::Asked(_) => {
                self.text = Text::Asked(Some(waker.clone()));
                Poll::Pending
            }
        }
    }

    // --- events

    /// Passes on what the machine has to say.
    pub(crate) fn deliver_events(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            self.deliver(event);
        }
        self.wake_waiting();
    }

    fn deliver(&mut self, event: Event) {
        match event {
            Event::Done { task, status, sense, residual, data_in_bytes, times, .. } => {
                let in_bytes = data_in_bytes as usize;
                self.finish(task, Ok(Status { status, sense, in_bytes, residual }), &times);
            }
            Event::Failed { task, why } => self.finish(task, Err(meaning(why)), &Times::default()),
            Event::Text { text, .. } => {
                if let Text::Asked(waker) = std::mem::replace(&mut self.text, Text::Answered(text)) {
                    waker.into_iter().for_each(Waker::wake);
                }
            }
            Event::LoggedOut { leaving: Leaving::Session | Leaving::This, .. } => {
                self.is_logged_out = true;
                self.end_all(|| Ending::LoggedOut);
            }
            Event::LoggedOut { leaving: Leaving::Other(cid), result, .. } => self.let_go(cid, result),
            Event::Close { connection, reason: _ } => {
                if let Some(wire) = self.wire(connection) {
                    wire.ending = Some(Ending::Silent);
                    wire.task.iter().for_each(Waker::wake_by_ref);
                }
            }
            Event::Message { connection, message, .. } => self.hear(connection, &message),
            Event::Managed { tmf, result } => self.functions.answered(tmf, result),
            // Pings of ours are the machine's.
            Event::Pong { .. } => {}
        }
    }

    /// The target has answered whether it has let go of a lost connection. One that cannot is left: reinstating the
    /// session ends everything in it for certain.
    fn let_go(&mut self, cid: Cid, result: Option<LogoutResult>) {
        match result {
            Some(LogoutResult::Success | LogoutResult::CidNotFound) => self.standing.settle(cid),
            None => {
                self.standing.not_settled(cid);
                self.settle_losses();
            }
            Some(_) => self.end_all(|| Ending::Undead),
        }
    }

    /// Section 11.9.1: after a request to log out, "this Async Message MUST be sent on the same connection as the one
    /// requesting to be logged out"; Parameter2 of the others is Time2Wait.
    fn hear(&mut self, connection: ConnectionId, message: &AsyncMessage) {
        tracing::debug!(?message, "the target says something of its own accord");
        match message.event {
            AsyncEvent::LogoutRequested => self.log_out_for_now(connection),
            AsyncEvent::ConnectionDropped | AsyncEvent::SessionDropped => {
                let [_, time2wait, _] = message.parameters;
                self.standing.wait_first(Duration::from_secs(time2wait.into()));
            }
            AsyncEvent::Scsi
            | AsyncEvent::NegotiationRequested
            | AsyncEvent::TasksTerminated
            | AsyncEvent::Other(_) => {}
        }
    }

    fn finish(&mut self, task: TaskId, outcome: Result<Status, CommandError>, times: &Times) {
        self.lost_commands += usize::from(outcome == Err(CommandError::ConnectionLost));
        let how = Outcome::of(&outcome);
        let Some(left) = self.tasks.end(task, outcome) else { return };
        self.meter.ended(&left, how, times);
        if let Some(wire) = self.wire(left.connection) {
            wire.under_way = wire.under_way.saturating_sub(1);
        }
    }

    // --- statistics

    /// A command waited before it could be submitted.
    pub(crate) fn note_wait(&mut self, ticket: Ticket, since: Instant) {
        let waited = self.now.saturating_duration_since(since);
        if let Some(account) = self.tasks.account(ticket) {
            account.waited = waited;
        }
    }

    pub(crate) fn statistics(&self, now: Instant) -> Statistics {
        self.meter.statistics(now, &self.machine, self.wires.iter().filter_map(Wire::statistics).collect())
    }
}

fn meaning(failure: Failure) -> CommandError {
    match failure {
        Failure::ConnectionLost => CommandError::ConnectionLost,
        Failure::Aborted => CommandError::Aborted,
        Failure::Rejected(_) | Failure::TargetFailure => CommandError::Rejected,
    }
}

#[cfg(test)]
mod tests;
