//! What a session consists of, and how word gets from the machine to those who wait.

use std::collections::VecDeque;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use iscsi::initiator::{
    Command, ConnectionId, ConnectionStart, Event, Failure, Session as Machine, SubmitError, TaskId,
};
use iscsi::pdu::{AsyncEvent, Cid, LogoutReason, TaskAttribute, TaskManagementResult};
use reactor::Receiver;

use crate::error::{CommandError, Ending};
use crate::management::{Functions, Management};
use crate::session::Order;
use crate::tasks::{Ended, Status, Tasks, Ticket};

/// The parts of a session.
pub(crate) struct Parts {
    pub(crate) machine: Machine,
    pub(crate) tasks: Tasks,
    /// As of the last round: near enough for deadlines of seconds, and free.
    pub(crate) now: Instant,
    wires: Vec<Wire>,
    /// Requests for which the command window had no room.
    waiting: VecDeque<Waker>,
    /// The session is being logged out.
    is_leaving: bool,
    /// Woken when the last connection has ended.
    ended: Vec<Waker>,
    text: Text,
    functions: Functions,
}

/// A connection, as far as others than its own task need to know.
struct Wire {
    id: ConnectionId,
    under_way: usize,
    /// Why its task is to end it, once everything is sent.
    ending: Option<Ending>,
    is_alive: bool,
    task: Option<Waker>,
}

/// The one text exchange there may be.
enum Text {
    None,
    Asked(Option<Waker>),
    Answered(Vec<u8>),
}

/// What became of an order.
pub(crate) enum Submitted {
    As(Ticket),
    NoRoom(Order),
    Never(Ended),
}

impl Parts {
    pub(crate) fn new(machine: Machine, now: Instant) -> Parts {
        Parts {
            machine,
            tasks: Tasks::default(),
            now,
            wires: Vec::new(),
            waiting: VecDeque::new(),
            is_leaving: false,
            ended: Vec::new(),
            text: Text::None,
            functions: Functions::default(),
        }
    }

    // --- connections

    /// A connection has joined the session.
    pub(crate) fn add_connection(&mut self, now: Instant, cid: Cid, start: ConnectionStart) -> ConnectionId {
        let id = self.machine.add_connection(now, cid, start);
        self.wires.push(Wire { id, under_way: 0, ending: None, is_alive: true, task: None });
        id
    }

    /// A round of a connection's task begins; `task` is woken when there is something to send.
    pub(crate) fn begin_round(&mut self, id: ConnectionId, now: Instant, task: &Waker) {
        self.now = now;
        let changed = |wire: &&mut Wire| !wire.task.as_ref().is_some_and(|kept| kept.will_wake(task));
        if let Some(wire) = self.wire(id).filter(changed) {
            wire.task = Some(task.clone());
        }
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
        if let Some(wire) = self.wire(id) {
            wire.is_alive = false;
            wire.task = None;
        }
        self.deliver_events();
        self.wake_wires();
        if !self.is_alive() {
            self.waiting.drain(..).for_each(Waker::wake);
            self.ended.drain(..).for_each(Waker::wake);
            if let Text::Asked(waker) = std::mem::replace(&mut self.text, Text::None) {
                waker.into_iter().for_each(Waker::wake);
            }
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.wires.iter().any(|wire| wire.is_alive)
    }

    pub(crate) fn poll_ended(&mut self, waker: &Waker) -> Poll<()> {
        if !self.is_alive() {
            return Poll::Ready(());
        }
        self.ended.push(waker.clone());
        Poll::Pending
    }

    /// Asks the target to end the session.
    pub(crate) fn log_out(&mut self) {
        if let Some(first) = self.wires.iter().find(|wire| wire.is_alive) {
            self.is_leaving |= self.machine.log_out(self.now, first.id, LogoutReason::CloseSession);
            self.wake_wires();
        }
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
    pub(crate) fn submit(&mut self, order: Order, waker: &Waker, time: Duration) -> Submitted {
        let lengths = (u32::try_from(order.transfer.in_bytes()), u32::try_from(order.transfer.out_bytes()));
        let (Ok(read_bytes), Ok(write_bytes)) = lengths else {
            return Submitted::Never(Ended::without(order.transfer, CommandError::TooLong));
        };
        let alive = self.wires.iter_mut().filter(|wire| wire.is_alive);
        let Some(wire) = alive.min_by_key(|wire| wire.under_way) else {
            return Submitted::Never(Ended::without(order.transfer, CommandError::ConnectionLost));
        };
        let attribute = TaskAttribute::Simple;
        let command = Command { lun: order.lun, cdb: &order.cdb, attribute, read_bytes, write_bytes };
        match self.machine.submit(wire.id, &command) {
            Ok(task) => {
                wire.under_way += 1;
                wire.task.iter().for_each(Waker::wake_by_ref);
                let (transfer, deadline) = (order.transfer, self.now + time);
                Submitted::As(self.tasks.insert(task, wire.id, transfer, waker.clone(), deadline))
            }
            Err(SubmitError::NoRoom) => {
                self.waiting.push_back(waker.clone());
                Submitted::NoRoom(order)
            }
            Err(SubmitError::NotConnected | SubmitError::CdbLength) => {
                Submitted::Never(Ended::without(order.transfer, CommandError::ConnectionLost))
            }
        }
    }

    /// Nobody waits for a command any more: the target is asked to abort it.
    pub(crate) fn abandon(&mut self, ticket: Ticket) {
        if let Some(task) = self.tasks.orphan(ticket) {
            self.machine.abort_task(self.now, task);
            self.deliver_events();
            self.wake_wires();
        }
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

    /// Lets deadlines pass: the machine's, those of commands, and those of requests that wait for room.
    ///
    /// A command that is given up is aborted; a target that does not even do that in the time a command may take
    /// (`time`) is left, so that what it holds is free again.
    pub(crate) fn pass_time(&mut self, now: Instant, time: Duration) {
        self.now = now;
        if now.checked_sub(time).is_some_and(|then| self.tasks.has_undead(then)) {
            self.end_all(|| Ending::Undead);
        }
        self.machine.handle_timeout(now);
        for task in self.tasks.expire(now) {
            self.machine.abort_task(now, task);
        }
        self.deliver_events();
        self.waiting.drain(..).for_each(Waker::wake);
        self.wake_wires();
    }

    /// Asks the target for a task management function; whoever receives hears what it says.
    pub(crate) fn manage(
        &mut self,
        what: Management,
    ) -> Result<Receiver<TaskManagementResult>, CommandError> {
        let first = self.wires.iter().find(|wire| wire.is_alive).ok_or(CommandError::ConnectionLost)?;
        let asked = self.machine.manage(self.now, first.id, what.function(), what.lun());
        let answer = self.functions.asked(asked.ok_or(CommandError::ConnectionLost)?);
        self.wake_wires();
        Ok(answer)
    }

    // --- text

    pub(crate) fn ask_for_targets(&mut self, which: &str) -> Result<(), CommandError> {
        let first = self.wires.iter().find(|wire| wire.is_alive).ok_or(CommandError::ConnectionLost)?;
        if !self.machine.send_targets(first.id, which) {
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
            Event::Done { task, status, sense, residual, read_residual: _, data_in_bytes } => {
                let in_bytes = data_in_bytes as usize;
                self.end(task, Ok(Status { status, sense, in_bytes, residual }));
            }
            Event::Failed { task, why } => self.end(task, Err(meaning(why))),
            Event::Text { text, .. } => {
                if let Text::Asked(waker) = std::mem::replace(&mut self.text, Text::Answered(text)) {
                    waker.into_iter().for_each(Waker::wake);
                }
            }
            Event::LoggedOut { .. } => self.end_all(|| Ending::LoggedOut),
            Event::Close { connection, reason: _ } => {
                if let Some(wire) = self.wire(connection) {
                    wire.ending = Some(Ending::Silent);
                    wire.task.iter().for_each(Waker::wake_by_ref);
                }
            }
            Event::Message { message, .. } => {
                tracing::debug!(?message, "the target says something of its own accord");
                // Section 11.9.1: the target "requests Logout; this Async Message MUST be sent on the same
                // connection as the one requesting to be logged out".
                if matches!(message.event, AsyncEvent::LogoutRequested) {
                    self.log_out();
                }
            }
            Event::Managed { tmf, result } => self.functions.answered(tmf, result),
            // Pings of ours are the machine's.
            Event::Pong { .. } => {}
        }
    }

    fn end(&mut self, task: TaskId, outcome: Result<Status, CommandError>) {
        let connection = self.tasks.end(task, outcome);
        if let Some(wire) = connection.and_then(|connection| self.wire(connection)) {
            wire.under_way = wire.under_way.saturating_sub(1);
        }
    }
}

fn meaning(failure: Failure) -> CommandError {
    match failure {
        Failure::ConnectionLost => CommandError::ConnectionLost,
        Failure::Aborted | Failure::Rejected(_) | Failure::TargetFailure => CommandError::Rejected,
    }
}
