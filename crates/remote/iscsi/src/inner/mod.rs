//! The state of a session on its thread, and the delivery of the state machine's events. Sections: the state,
//! requests other than commands (functions, pings, text), connections, commands (submission, timeouts,
//! escalation), and events.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use derive_more::Display;
use iscsi::initiator::{
    Command, ConnectionId, ConnectionStart, Event, Failure, LogoutScope, PingId,
    Session as Machine, SubmitError, TaskId, Times, TmfId,
};
use iscsi::pdu::{
    AsyncEvent, AsyncMessage, Cid, LogoutReason, LogoutResult, Lun, TaskAttribute,
    TaskManagementFunction as Function, TaskManagementResult,
};
use reactor::{Receiver, Sender, Stream, mailbox};
use scsi::LunAddress;

use crate::caches::{CacheEffect, Caches};
use crate::effect::{Account, Effect, Registrations};
use crate::error::{CommandError, Ending};
use crate::session_state::SessionState;
use crate::statistics::{Class, ConnectionStatistics, Meter, Outcome, Statistics};
use crate::tasks::{CommandSpec, NewTask, Overdue, Status, Tasks, Ticket};
use crate::url::{EscalationStep, Timeouts};

/// The state of a session, behind [`crate::session::Session`].
pub(crate) struct SessionInner {
    pub(crate) machine: Machine,
    pub(crate) tasks: Tasks,
    /// Time of the last iteration. It is precise enough for deadlines of seconds, and saves a system call.
    pub(crate) now: Instant,
    pub(crate) timeouts: Timeouts,
    state: SessionState,
    connections: Vec<LiveConnection>,
    /// Requests that wait for space in the command window, or for the session. A request that is polled again
    /// adds another waker. [`Self::pass_time`] wakes all of them, so a superfluous waker delays another
    /// request at most until then.
    waiting: VecDeque<Waker>,
    /// Whether a final logout was requested.
    is_leaving: bool,
    /// Deadline for the response to a logout that the target requested. After it, all connections are closed.
    logout_due: Option<Instant>,
    /// Whether the target has confirmed the logout, so that no command is outstanding.
    is_logged_out: bool,
    /// Number of commands lost with connections since the session began or was last restarted. Includes
    /// commands that were lost while other connections remained.
    lost_commands: usize,
    /// Number of these lost commands that may change something and that the target may still execute. A
    /// confirmed logout of the command's connection or of the session settles a command, and so does a
    /// reinstatement.
    unsettled: usize,
    /// Tasks to wake when the session is over.
    ended: Vec<Waker>,
    /// Whether lost connections are reset, so that their data is no longer delivered. Set if no session will
    /// replace this one.
    pub(crate) resets_lost: bool,
    /// The reason why the session's last connection ended.
    pub(crate) last_ending: Option<String>,
    text: TextExchange,
    functions: Callers<TmfId, TaskManagementResult>,
    pings: Callers<PingId, Vec<u8>>,
    pub(crate) meter: Meter,
    /// Unflushed writes, shared with the devices that sent them.
    caches: Arc<Caches>,
    /// Registrations, shared with units whose commands fail if a registration is missing.
    registrations: Arc<Registrations>,
}

impl SessionInner {
    pub(crate) fn new(
        machine: Machine,
        now: Instant,
        timeouts: Timeouts,
        caches: Arc<Caches>,
        registrations: Arc<Registrations>,
    ) -> SessionInner {
        SessionInner {
            machine,
            tasks: Tasks::default(),
            now,
            timeouts,
            state: SessionState::new(now),
            connections: Vec::new(),
            waiting: VecDeque::new(),
            is_leaving: false,
            logout_due: None,
            is_logged_out: false,
            lost_commands: 0,
            unsettled: 0,
            ended: Vec::new(),
            resets_lost: false,
            last_ending: None,
            text: TextExchange::Idle,
            functions: Callers::default(),
            pings: Callers::default(),
            meter: Meter::new(now),
            caches,
            registrations,
        }
    }

    /// Returns the statistics of the session.
    pub(crate) fn statistics(&self, now: Instant) -> Statistics {
        self.meter.statistics(
            now,
            &self.machine,
            self.connections
                .iter()
                .filter_map(LiveConnection::statistics)
                .collect(),
        )
    }
}

// Task management functions requested by a caller (SAM-5 clause 7, RFC 7143 section 11.5).
//
// The session also sends functions itself, to abort dropped commands. No task waits for the responses to
// these functions, because it is sufficient that the command ends.

/// A task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Management {
    /// Aborts all commands of this session on a logical unit.
    #[display("ABORT TASK SET")]
    AbortTaskSet(Lun),
    /// Aborts all commands of all sessions on a logical unit.
    #[display("CLEAR TASK SET")]
    ClearTaskSet(Lun),
    /// Clears an auto contingent allegiance.
    #[display("CLEAR ACA")]
    ClearAca(Lun),
    /// Aborts all commands on a logical unit, and resets the unit to its power-on state. Persistent
    /// reservations remain, but reservations by RESERVE(6) do not.
    #[display("LOGICAL UNIT RESET")]
    LogicalUnitReset(Lun),
    /// Resets all logical units.
    #[display("TARGET WARM RESET")]
    TargetWarmReset,
    /// Resets all logical units and ends all sessions, including this one.
    #[display("TARGET COLD RESET")]
    TargetColdReset,
    /// Queries whether any command of this session is outstanding on a logical unit (RFC 7144).
    #[display("QUERY TASK SET")]
    QueryTaskSet(Lun),
    /// Queries whether a unit attention is pending on a logical unit (RFC 7144).
    #[display("QUERY ASYNCHRONOUS EVENT")]
    QueryAsynchronousEvent(Lun),
    /// Aborts all commands of this session on a logical unit, and releases its reservation by RESERVE(6) (RFC
    /// 7144).
    #[display("I_T NEXUS RESET")]
    ITNexusReset(Lun),
}

impl Management {
    pub(crate) fn function(self) -> Function {
        match self {
            Management::AbortTaskSet(_) => Function::AbortTaskSet,
            Management::ClearTaskSet(_) => Function::ClearTaskSet,
            Management::ClearAca(_) => Function::ClearAca,
            Management::LogicalUnitReset(_) => Function::LogicalUnitReset,
            Management::TargetWarmReset => Function::TargetWarmReset,
            Management::TargetColdReset => Function::TargetColdReset,
            Management::QueryTaskSet(_) => Function::QueryTaskSet,
            Management::QueryAsynchronousEvent(_) => Function::QueryAsynchronousEvent,
            Management::ITNexusReset(_) => Function::ITNexusReset,
        }
    }

    /// Returns the LUN field of the function. It is reserved for functions that concern the whole target (RFC
    /// 7143 section 11.5.3).
    pub(crate) fn lun(self) -> Lun {
        match self {
            Management::AbortTaskSet(lun)
            | Management::ClearTaskSet(lun)
            | Management::ClearAca(lun)
            | Management::LogicalUnitReset(lun)
            | Management::QueryTaskSet(lun)
            | Management::QueryAsynchronousEvent(lun)
            | Management::ITNexusReset(lun) => lun,
            Management::TargetWarmReset | Management::TargetColdReset => Lun(0),
        }
    }
}

// NOP-Outs that a caller requests, to measure round-trip times and check data.
//
// The session's keepalive pings are sent by the state machine, without a waiting caller.

/// The response to a ping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pong {
    /// The time from submission to response.
    pub time: Duration,
    /// The returned data. A correct target returns the data sent, up to the data segment limits of both
    /// sides.
    pub data: Vec<u8>,
}

/// Outstanding functions or pings, each with the sender for its response.
struct Callers<Id, T>(Vec<(Id, Sender<T>)>);

impl<Id, T> Default for Callers<Id, T> {
    fn default() -> Callers<Id, T> {
        Callers(Vec::new())
    }
}

impl<Id: PartialEq, T: Send> Callers<Id, T> {
    fn add(&mut self, id: Id) -> Receiver<T> {
        debug_assert!(
            self.0.iter().all(|(asked, _)| *asked != id),
            "each is answered once"
        );
        let (sender, receiver) = mailbox();
        self.0.push((id, sender));
        receiver
    }

    /// Delivers a response. If there is none, the receiver is closed.
    fn answer(&mut self, id: &Id, answer: Option<T>) {
        let Some(place) = self.0.iter().position(|(asked, _)| asked == id) else {
            return;
        };
        let (_, sender) = self.0.swap_remove(place);
        if let Some(answer) = answer {
            let _ = sender.send(answer); // fails if the caller was dropped
        }
    }
}

// Requests other than commands: task management functions, pings, and SendTargets.

/// The text exchange. There is at most one at a time: [`SessionInner::ask_for_targets`] replaces an earlier
/// exchange, whose caller is not woken. Responses are not matched to requests.
pub(crate) enum TextExchange {
    /// No exchange, or its connection was lost.
    Idle,
    /// A request was sent. Contains the waker of the caller, once it has polled.
    Sent(Option<Waker>),
    /// The response was received, and not fetched yet.
    Received(Vec<u8>),
}

impl SessionInner {
    /// Sends a task management function. The receiver yields the response, or is closed if the connection is
    /// lost.
    pub(crate) fn manage(
        &mut self,
        what: Management,
    ) -> Result<Receiver<TaskManagementResult>, CommandError> {
        let first = self
            .connections
            .first()
            .map(|connection| connection.id)
            .ok_or(CommandError::ConnectionLost)?;
        let asked = self
            .machine
            .manage(self.now, first, what.function(), what.lun());
        let answer = self
            .functions
            .add(asked.ok_or(CommandError::ConnectionLost)?);
        self.wake_connections();
        Ok(answer)
    }

    /// Pings the target over the connection `cid`, or over any connection. The receiver yields the returned
    /// data, or is closed if the connection is lost.
    pub(crate) fn ping(
        &mut self,
        cid: Option<Cid>,
        data: &[u8],
    ) -> Result<Receiver<Vec<u8>>, CommandError> {
        let by = self
            .connections
            .iter()
            .find(|connection| cid.is_none_or(|cid| connection.cid == cid));
        let by = by.ok_or(CommandError::ConnectionLost)?.id;
        let answer = self.pings.add(
            self.machine
                .ping(by, data)
                .ok_or(CommandError::ConnectionLost)?,
        );
        self.wake_connections();
        Ok(answer)
    }

    /// Sends SendTargets; [`Self::poll_text`] returns the response. `which` is `All`, a target's name, or
    /// empty for the session's own target.
    pub(crate) fn ask_for_targets(&mut self, which: &str) -> Result<(), CommandError> {
        let first = self
            .connections
            .first()
            .map(|connection| connection.id)
            .ok_or(CommandError::ConnectionLost)?;
        if !self.machine.send_targets(first, which) {
            return Err(CommandError::ConnectionLost);
        }
        self.text = TextExchange::Sent(None);
        self.wake_connections();
        Ok(())
    }

    /// Returns the response to SendTargets. Fails if the last connection is lost, or if none was requested.
    pub(crate) fn poll_text(&mut self, waker: &Waker) -> Poll<Result<Vec<u8>, CommandError>> {
        match std::mem::replace(&mut self.text, TextExchange::Idle) {
            TextExchange::Received(text) => Poll::Ready(Ok(text)),
            TextExchange::Idle => Poll::Ready(Err(CommandError::ConnectionLost)),
            TextExchange::Sent(_) => {
                self.text = TextExchange::Sent(Some(waker.clone()));
                Poll::Pending
            }
        }
    }
}

// The connections of a session: adds and removes connections, and handles the effect of a loss on the
// session.

/// The part of a live connection that other tasks need.
pub(crate) struct LiveConnection {
    pub(crate) id: ConnectionId,
    pub(crate) cid: Cid,
    /// Number of outstanding commands.
    pub(crate) under_way: usize,
    /// The reason why the connection's task must close it; `None` if it stays open.
    pub(crate) ending: Option<Ending>,
    /// Wakes the connection's task.
    pub(crate) task: Option<Waker>,
    /// The connection's stream, which reports its addresses and its path.
    stream: Option<Rc<dyn Stream>>,
}

impl LiveConnection {
    pub(crate) fn statistics(&self) -> Option<ConnectionStatistics> {
        let stream = self.stream.as_ref()?;
        Some(ConnectionStatistics {
            cid: self.cid,
            local: stream.local(),
            peer: stream.peer(),
            path: stream.path(),
        })
    }
}

/// The kind of session restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// The session was restarted in the same portal group, so the target has terminated all earlier commands.
    Reinstated,
    /// The session was restarted in another portal group, so earlier commands may still be executed.
    Moved,
}

/// An outage of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    /// The length of the outage.
    pub(crate) away: Duration,
    /// Commands lost with connections since the previous restart, during this outage or before.
    pub(crate) commands: usize,
    /// Number of these commands that may change something and may still be executed.
    pub(crate) unsettled: usize,
    /// LUNs with registrations that are no longer valid.
    pub(crate) orphaned: Vec<Lun>,
}

impl SessionInner {
    /// Adds a connection.
    pub(crate) fn add_connection(
        &mut self,
        now: Instant,
        cid: Cid,
        start: ConnectionStart,
    ) -> ConnectionId {
        debug_assert!(
            !self.has_connection(Some(cid)),
            "a CID is that of one connection"
        );
        let id = self.machine.add_connection(now, cid, start);
        debug_assert!(self.connection(id).is_none(), "a connection is added once");
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
            !connection
                .task
                .as_ref()
                .is_some_and(|kept| kept.will_wake(task))
        };
        if let Some(connection) = self.connection(id).filter(changed) {
            connection.task = Some(task.clone());
        }
    }

    /// Returns whether this connection (or, with `None`, any) is alive.
    pub(crate) fn has_connection(&self, cid: Option<Cid>) -> bool {
        self.connections
            .iter()
            .any(|connection| cid.is_none_or(|cid| connection.cid == cid))
    }

    /// Returns the number of outstanding commands on a connection.
    pub(crate) fn under_way(&mut self, id: ConnectionId) -> usize {
        self.connection(id)
            .map_or(0, |connection| connection.under_way)
    }

    /// Takes the reason why a connection must be closed now; `None` if it stays open.
    pub(crate) fn ending_of(&mut self, id: ConnectionId) -> Option<Ending> {
        self.connection(id)?.ending.take()
    }

    /// Returns the reason for the end of a connection that the target closed. A target that confirms a logout
    /// closes all connections of the session, most of them without a PDU.
    pub(crate) fn closed_by_target(&mut self, id: ConnectionId) -> Ending {
        let otherwise = if self.is_leaving {
            Ending::LoggedOut
        } else {
            Ending::Closed
        };
        self.ending_of(id).unwrap_or(otherwise)
    }

    /// Removes a connection. Its commands fail, and the loss of the last connection ends the session or
    /// starts an outage.
    pub(crate) fn remove_connection(&mut self, id: ConnectionId) {
        self.machine.remove_connection(self.now, id);
        if let Some(place) = self
            .connections
            .iter()
            .position(|connection| connection.id == id)
        {
            let connection = self.connections.swap_remove(place);
            self.deliver_events();
            self.connection_lost(connection.cid);
        }
        self.wake_connections();
    }

    fn connection_lost(&mut self, cid: Cid) {
        self.meter.incidents.connections_lost += u64::from(!self.is_leaving && !self.is_logged_out);
        if !self.connections.is_empty() {
            self.state
                .connection_lost(cid, self.now + self.timeouts.reset);
            return self.settle_losses();
        }
        // No connection is left for a response.
        self.logout_due = None;
        match self.will_reconnect() {
            true => self.state.session_lost(self.now),
            false => self.end(self.is_logged_out),
        }
        if let TextExchange::Sent(waker) = std::mem::replace(&mut self.text, TextExchange::Idle) {
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Returns whether the session is restarted when its last connection is lost.
    pub(crate) fn will_reconnect(&self) -> bool {
        !self.is_leaving && !self.timeouts.reconnect.is_zero()
    }

    /// Ends the session, and wakes all waiting tasks. `settled` is true if the target can no longer execute
    /// any of the session's commands.
    fn end(&mut self, settled: bool) {
        self.state.end(settled);
        self.waiting.drain(..).for_each(Waker::wake);
        self.ended.drain(..).for_each(Waker::wake);
    }

    /// Logs out lost connections over an open connection. The logout settles the commands of the lost
    /// connections.
    pub(crate) fn settle_losses(&mut self) {
        let Some(via) = self.connections.first().map(|connection| connection.id) else {
            return;
        };
        while let Some(cid) = self.state.next_to_settle() {
            if !self.machine.log_out_other(self.now, via, cid) {
                // The open connection is also logging out. The end of the session will settle the lost
                // connections.
                return self.state.settling_failed(cid);
            }
        }
    }

    /// Restarts the session with this state machine. All earlier connections must have been removed. Wakes
    /// the requests that wait for the session.
    pub(crate) fn restart(&mut self, now: Instant, machine: Machine, how: Restart) -> Outage {
        debug_assert!(
            self.connections.is_empty(),
            "a session restarts when all connections are lost"
        );
        self.now = now;
        let before = std::mem::replace(&mut self.machine, machine);
        // If the target has confirmed a logout, it has terminated all commands.
        let unsettled = if std::mem::take(&mut self.is_logged_out) {
            0
        } else {
            self.unsettled
        };
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
        Outage {
            away,
            commands: std::mem::take(&mut self.lost_commands),
            unsettled,
            orphaned,
        }
    }

    /// Marks a connection as missing, to be logged in later.
    pub(crate) fn connection_missing(&mut self, cid: Cid) {
        self.state.connection_missing(cid, self.now);
    }

    /// Returns the state of the session.
    pub(crate) fn state(&mut self) -> &mut SessionState {
        &mut self.state
    }

    /// Returns whether the session will not be restored.
    pub(crate) fn is_over(&self) -> bool {
        self.state.is_over()
    }

    /// Resolves when the session is over.
    pub(crate) fn poll_over(&mut self, waker: &Waker) -> Poll<()> {
        if self.state.is_over() {
            return Poll::Ready(());
        }
        self.ended.push(waker.clone());
        Poll::Pending
    }

    /// Ends the session by a final logout, without waiting for the response. If the session has no
    /// connection, it is over immediately.
    pub(crate) fn log_out(&mut self) {
        self.is_leaving = true;
        match self.connections.first().map(|connection| connection.id) {
            Some(first) => drop(
                self.machine
                    .log_out(self.now, first, LogoutReason::CloseSession),
            ),
            None => self.end(false),
        }
        self.wake_connections();
    }

    /// Logs out because the target has requested it. The session is restarted after the logout.
    pub(crate) fn log_out_for_now(&mut self, by: ConnectionId) {
        self.machine
            .log_out(self.now, by, LogoutReason::CloseSession);
        // A repeated request does not extend the deadline.
        self.logout_due
            .get_or_insert(self.now + self.timeouts.reset);
        self.wake_connections();
    }

    /// Resets all connections, without a logout: data that is still in their sockets is discarded.
    pub(crate) fn reset(&mut self) {
        self.connections
            .iter()
            .flat_map(|connection| &connection.stream)
            .for_each(|stream| stream.reset());
        self.give_up();
    }

    /// Closes all connections without a logout.
    pub(crate) fn give_up(&mut self) {
        self.end_all(|| Ending::Closed);
    }

    /// Requests that the tasks of all connections close them.
    pub(crate) fn end_all(&mut self, why: impl Fn() -> Ending) {
        self.connections
            .iter_mut()
            .for_each(|connection| connection.ending = Some(why()));
        self.wake_connections();
    }

    pub(crate) fn connection(&mut self, id: ConnectionId) -> Option<&mut LiveConnection> {
        self.connections
            .iter_mut()
            .find(|connection| connection.id == id)
    }

    pub(crate) fn wake_connections(&self) {
        self.connections
            .iter()
            .filter_map(|connection| connection.task.as_ref())
            .for_each(Waker::wake_by_ref);
    }
}

// Commands: submission, abort, timeouts and escalation.

/// The result of a submission.
pub(crate) enum Submitted {
    /// The command was passed to the state machine, with its data.
    Sent(Ticket),
    /// The window has no space, or the session is down or about to log out. The waker is registered.
    NoRoom,
    /// The command was not sent.
    Failed(CommandError),
}

impl SessionInner {
    /// Records how long a command waited before its submission.
    pub(crate) fn note_wait(&mut self, ticket: Ticket, since: Instant) {
        let waited = self.now.saturating_duration_since(since);
        if let Some(account) = self.tasks.account(ticket) {
            account.waited_ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        }
    }

    /// Submits a command to the state machine, on the connection with the fewest outstanding commands. If the
    /// command must wait for space or for the session, registers `waker`, and the caller must then submit the
    /// command again.
    pub(crate) fn submit(&mut self, spec: &mut CommandSpec, waker: &Waker) -> Submitted {
        let lengths = (
            u32::try_from(spec.transfer.in_bytes()),
            u32::try_from(spec.transfer.out_bytes()),
        );
        let (Ok(read_bytes), Ok(write_bytes)) = lengths else {
            return Submitted::Failed(CommandError::TooLong);
        };
        if self.state.is_awaited() {
            self.waiting.push_back(waker.clone());
            return Submitted::NoRoom;
        }
        if spec.epoch.is_some_and(|epoch| epoch != self.state.epoch()) {
            return Submitted::Failed(CommandError::Reinstated);
        }
        let Some(connection) = self
            .connections
            .iter_mut()
            .min_by_key(|connection| connection.under_way)
        else {
            return Submitted::Failed(CommandError::ConnectionLost);
        };
        let (lun, attribute) = (spec.lun, TaskAttribute::Simple);
        let command = Command {
            lun,
            cdb: &spec.cdb,
            attribute,
            read_bytes,
            write_bytes,
        };
        match self.machine.submit(self.now, connection.id, &command) {
            Ok(id) => {
                connection.under_way += 1;
                connection.task.iter().for_each(Waker::wake_by_ref);
                let until = self.now + self.timeouts.command;
                let effect = Effect::from_cdb(&spec.cdb, spec.transfer.sent());
                let class = Class::from_cdb(&spec.cdb);
                let account = Account {
                    class,
                    effect,
                    waited_ns: 0,
                };
                let (transfer, waits_for_end) = (mem::take(&mut spec.transfer), spec.waits_for_end);
                let beginning = NewTask {
                    id,
                    connection: connection.id,
                    lun,
                    transfer,
                    until,
                    waits_for_end,
                    account,
                };
                Submitted::Sent(self.tasks.insert(beginning, waker.clone()))
            }
            // The target has requested the logout of this connection, so the session will be restarted.
            Err(SubmitError::NotConnected) if self.will_reconnect() => {
                self.waiting.push_back(waker.clone());
                Submitted::NoRoom
            }
            Err(SubmitError::NoRoom) => {
                self.waiting.push_back(waker.clone());
                Submitted::NoRoom
            }
            Err(SubmitError::NotConnected | SubmitError::CdbLength) => {
                Submitted::Failed(CommandError::ConnectionLost)
            }
        }
    }

    /// Returns how long a request that has been waiting since `since` has waited since the session was last
    /// restored. Returns zero while the session is down.
    pub(crate) fn waited(&self, since: Instant) -> Duration {
        self.state.waited(since, self.now)
    }

    /// Aborts a command whose requester was dropped. If the command is still outstanding at the deadline of
    /// the abort, it is escalated.
    pub(crate) fn abandon(&mut self, ticket: Ticket) {
        if let Some(task) = self.tasks.orphan(ticket, self.now + self.timeouts.abort) {
            self.abort(task);
            self.deliver_events();
            self.wake_connections();
        }
    }

    fn abort(&mut self, task: TaskId) {
        let asked = self.machine.abort_task(self.now, task);
        self.meter.incidents.aborts += u64::from(asked.is_some());
    }

    /// Wakes one waiting request for every command that fits into the window.
    pub(crate) fn wake_waiting(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        for _ in 0..self.machine.room() {
            let Some(waker) = self.waiting.pop_front() else {
                return;
            };
            waker.wake();
        }
    }

    /// Processes expired timeouts of the state machine, of commands, and of requests that wait for space or
    /// for the session.
    pub(crate) fn pass_time(&mut self, now: Instant) {
        self.now = now;
        self.machine.handle_timeout(now);
        let machine = &self.machine;
        self.tasks
            .note_progress(now, self.timeouts.command, |task| machine.moved_bytes(task));
        let overdue = self.tasks.escalate(now, &self.timeouts);
        self.escalate(&overdue);
        if self.state.is_overdue(now) {
            tracing::warn!("the target did not release a lost connection: reinstating the session");
            self.end_all(|| Ending::Unresponsive);
        }
        if self.logout_due.take_if(|due| *due <= now).is_some() {
            tracing::warn!(
                "the target did not answer the logout that it had requested: reinstating the session"
            );
            self.end_all(|| Ending::Unresponsive);
        }
        if self.state.fail_requests_after(self.timeouts.reconnect, now) {
            tracing::warn!(
                "the session was not restored within the reconnect time: requests now fail"
            );
            self.waiting.drain(..).for_each(Waker::wake);
        }
        self.deliver_events();
        self.wake_connections();
        // Waiting requests check their own timeouts.
        self.waiting.drain(..).for_each(Waker::wake);
    }

    /// Escalates overdue commands. Commands that require the same reset share one.
    fn escalate(&mut self, overdue: &[Overdue]) {
        let mut resets = Vec::new();
        for &Overdue { id, lun, step } in overdue {
            match step {
                EscalationStep::Wait => {}
                EscalationStep::AbortTask => {
                    self.meter.incidents.timeouts += 1;
                    self.abort(id);
                }
                EscalationStep::LogicalUnitReset => resets.push((Function::LogicalUnitReset, lun)),
                EscalationStep::TargetReset => resets.push((Function::TargetWarmReset, Lun(0))),
                EscalationStep::LeaveSession => self.end_all(|| Ending::Unresponsive),
            }
        }
        for (index, &(function, lun)) in resets.iter().enumerate() {
            if resets[..index].contains(&(function, lun)) {
                continue;
            }
            let at = LunAddress::parse(lun.0);
            tracing::warn!(?function, lun = %at, "commands neither complete nor can be aborted");
            if let Some(by) = self.connections.first().map(|connection| connection.id) {
                self.machine.manage(self.now, by, function, lun);
                self.meter.incidents.resets += 1;
            }
        }
    }
}

// Delivery of the state machine's events.

impl SessionInner {
    /// Delivers all events of the state machine.
    pub(crate) fn deliver_events(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            self.deliver(event);
        }
        self.wake_waiting();
    }

    fn deliver(&mut self, event: Event) {
        match event {
            Event::Done {
                task,
                status,
                sense,
                residual,
                data_in_bytes,
                times,
                ..
            } => {
                let in_bytes = data_in_bytes as usize;
                self.finish(
                    task,
                    Ok(Status {
                        status,
                        sense,
                        in_bytes,
                        residual,
                    }),
                    &times,
                );
            }
            Event::Failed { task, why } => self.finish(task, Err(meaning(why)), &Times::default()),
            Event::Text { text, .. } => {
                if let TextExchange::Sent(waker) =
                    std::mem::replace(&mut self.text, TextExchange::Received(text))
                {
                    waker.into_iter().for_each(Waker::wake);
                }
            }
            Event::LoggedOut {
                leaving: LogoutScope::Session | LogoutScope::Connection,
                result,
                ..
            } => {
                self.is_logged_out = result == Some(LogoutResult::Success);
                self.end_all(|| Ending::LoggedOut);
            }
            Event::LoggedOut {
                leaving: LogoutScope::OtherConnection(cid),
                result,
                ..
            } => self.connection_logged_out(cid, result),
            Event::Close {
                connection,
                reason: _,
            } => {
                if let Some(connection) = self.connection(connection) {
                    connection.ending = Some(Ending::Silent);
                    connection.task.iter().for_each(Waker::wake_by_ref);
                }
            }
            Event::Message {
                connection,
                message,
                sense,
            } => self.handle_message(connection, &message, &sense),
            Event::Managed { tmf, result } => self.functions.answer(&tmf, result),
            Event::Pong { ping, data } => self.pings.answer(&ping, data),
        }
    }

    /// Processes the response to the logout of a lost connection. If the target cannot log the connection
    /// out, all connections are closed, because reinstating the session terminates all of its tasks. If
    /// `result` is `None`, the connection that carried the logout was also lost, and another connection
    /// repeats the logout.
    pub(crate) fn connection_logged_out(&mut self, cid: Cid, result: Option<LogoutResult>) {
        match result {
            Some(LogoutResult::Success | LogoutResult::CidNotFound) => {
                self.state.settle(cid);
                if self.state.is_settled() {
                    self.unsettled = 0;
                }
            }
            None => {
                self.state.settling_failed(cid);
                self.settle_losses();
            }
            Some(_) => self.end_all(|| Ending::Unresponsive),
        }
    }

    /// Handles an asynchronous message (RFC 7143 section 11.9.1). For a request to log out, "this Async
    /// Message MUST be sent on the same connection as the one requesting to be logged out". In the other
    /// messages, Parameter2 is Time2Wait.
    fn handle_message(&mut self, connection: ConnectionId, message: &AsyncMessage, sense: &[u8]) {
        tracing::debug!(?message, "asynchronous message from the target");
        match message.event {
            AsyncEvent::LogoutRequested => self.log_out_for_now(connection),
            AsyncEvent::ConnectionDropped | AsyncEvent::SessionDropped => {
                let [_, time2wait, _] = message.parameters;
                self.state
                    .set_time2wait(Duration::from_secs(time2wait.into()));
            }
            AsyncEvent::Scsi => self.caches.note_sense(message.lun, sense),
            AsyncEvent::NegotiationRequested
            | AsyncEvent::TasksTerminated
            | AsyncEvent::Other(_) => {}
        }
    }

    fn finish(&mut self, task: TaskId, outcome: Result<Status, CommandError>, times: &Times) {
        let is_lost = outcome == Err(CommandError::ConnectionLost);
        let how = Outcome::from_result(&outcome);
        let trace = CacheEffect::from_outcome(&outcome);
        let Some(left) = self.tasks.end(task, outcome) else {
            return;
        };
        if is_lost {
            self.lost_commands += 1;
            self.unsettled += usize::from(left.account.effect.changes_something());
            debug_assert!(self.unsettled <= self.lost_commands);
        }
        self.caches.note(left.lun, left.account.effect, trace);
        if trace == CacheEffect::Done {
            self.registrations.note(left.lun, left.account.effect);
        }
        self.meter.ended(&left, how, times);
        if let Some(connection) = self.connection(left.connection) {
            debug_assert!(connection.under_way > 0, "a command ends once");
            connection.under_way = connection.under_way.saturating_sub(1);
        }
    }
}

/// Converts a failure to the error for the requester.
fn meaning(failure: Failure) -> CommandError {
    match failure {
        Failure::ConnectionLost => CommandError::ConnectionLost,
        Failure::Aborted => CommandError::Aborted,
        Failure::Rejected(_) | Failure::TargetFailure => CommandError::Rejected,
    }
}
