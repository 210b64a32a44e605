//! The state of a session: its phase, the protocol's state machine, and the commands with their requesters.
//!
//! Each command has one ticket. The ticket is valid from submission until the requester has the result or, if
//! the requester was dropped, until the command has ended. The state machine sends write data without copying
//! it. Up to [`OUT_BYTES_MAX`] of write data is outstanding.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::ops::Deref;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use hyperscsi::initiator::{EndReason, Event, RequestId};
use hyperscsi::{
    Command, Counters, DATA_BYTES_MAX, Function, FunctionResult, Initiator, Payload, Response,
    TaskAttribute,
};
use iscsi_client::{
    CommandEnd, CommandError, CommandRecord, CommandSpec, EscalationStep, Lun, Recorded, Residual,
    Status, Timeouts, Transfer, status,
};
use reactor::{DatagramAddress, Sender};
use scsi::cdb::Cdb;

/// State that other threads read.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) reinstatements: AtomicU64,
    pub(crate) is_lost: AtomicBool,
    replays: AtomicU64,
}

impl Shared {
    pub(crate) fn reinstatements(&self) -> u64 {
        self.reinstatements.load(Relaxed)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Relaxed)
    }

    pub(crate) fn replayed(&self) {
        self.replays.fetch_add(1, Relaxed);
    }

    pub(crate) fn replays(&self) -> u64 {
        self.replays.load(Relaxed)
    }
}

/// Maximum amount of write data in the state machine. A target does not grant more credit.
const OUT_BYTES_MAX: usize = 8 << 20;
/// An idle session requests an acknowledgement every 5 s. If no frame arrives for this long, a timeout is
/// caused by the path, not by the command.
const SILENT: Duration = Duration::from_secs(7);
/// Pauses between the logins of a lost session. They are short enough to reach a recovered target soon, and
/// long enough not to overload a target that has not recovered.
pub(crate) const PAUSE_FIRST: Duration = Duration::from_millis(50);
pub(crate) const PAUSE_LONGEST: Duration = Duration::from_secs(3);

/// A session that lasts this long resets the pauses to the shortest. A session that is lost sooner does not.
const STEADY: Duration = Duration::from_secs(10);

/// The results of the last login.
#[derive(Clone, Copy, Default)]
pub(crate) struct Agreed {
    pub(crate) frame_bytes: usize,
    pub(crate) queue_depth: u32,
    pub(crate) is_encrypted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    New,
    Up {
        since: Instant,
    },
    /// The session is lost. Requests wait for the next login, or fail if `fails` is set.
    Down {
        since: Instant,
        fails: bool,
    },
    Over(EndReason),
}

pub(crate) struct Inner {
    pub(crate) agreed: Agreed,
    /// The local and the remote address of each path.
    pub(crate) ends: Vec<(DatagramAddress, DatagramAddress)>,
    /// `None` between two logins.
    pub(crate) machine: Option<Initiator>,
    /// Counters of earlier state machines.
    pub(crate) counted: Counters,
    pub(crate) phase: Phase,
    pub(crate) is_leaving: bool,
    /// The pause before the next login of a lost session.
    pub(crate) pause: Duration,
    /// The error of the last failed login, which is logged only once.
    pub(crate) said: String,
    pub(crate) tasks: BTreeMap<u64, Task>,
    pub(crate) next_ticket: u64,
    /// Commands that were not passed to the state machine yet, in order.
    pub(crate) waiting: VecDeque<u64>,
    /// Tickets by the state machine's request ID.
    pub(crate) sent: HashMap<RequestId, u64>,
    pub(crate) out_bytes: usize,
    /// Number of changes that the target may still execute although their requester was dropped or has
    /// received an error. Messages arrive in any order, so no newer change is sent before these changes have
    /// ended.
    pub(crate) unsettled: usize,
    pub(crate) functions: HashMap<RequestId, Sender<FunctionResult>>,
    /// Whether commands of the lost session may still be executed.
    pub(crate) are_some_lost: bool,
    /// Time of the last frame from the target. `frames` is the number of frames received by then.
    pub(crate) heard: Instant,
    pub(crate) frames: u64,
    /// Time of the last turn. It is needed because a request may be dropped when the clock is no longer
    /// available.
    pub(crate) now: Instant,
    pub(crate) timeouts: Timeouts,
    pub(crate) record: CommandRecord,
    pub(crate) driver: Option<Waker>,
    /// Tasks to wake when the phase changes or a dropped command ends.
    pub(crate) waiters: Vec<Waker>,
}

pub(crate) struct Task {
    pub(crate) lun: Lun,
    pub(crate) cdb: Cdb,
    pub(crate) transfer: Transfer,
    pub(crate) epoch: Option<u64>,
    pub(crate) waits_for_end: bool,
    pub(crate) recorded: Recorded,
    pub(crate) state: TaskState,
    pub(crate) was_sent: bool,
    pub(crate) step: EscalationStep,
    /// Deadline of the current step.
    pub(crate) until: Instant,
    pub(crate) requester: Requester,
}

pub(crate) enum TaskState {
    Waiting { since: Instant },
    Sent(RequestId),
    Ended(Result<Status, CommandError>),
}

pub(crate) enum Requester {
    Waits(Option<Waker>),
    /// The timeout has passed, and the requester has not been notified yet.
    Expired,
    /// The requester was dropped or notified.
    Gone,
}

impl Task {
    /// Whether the command may change the medium. A command that returns no data is treated as a change.
    fn is_change(&self) -> bool {
        self.transfer.in_bytes() == 0
    }

    /// Whether the command is a change that may still be executed although its requester no longer waits.
    fn is_unsettled(&self) -> bool {
        self.is_change()
            && matches!(self.state, TaskState::Sent(_))
            && !matches!(self.requester, Requester::Waits(_))
    }
}

impl Inner {
    /// Creates the state of a session that logs in through this state machine.
    pub(crate) fn new(
        machine: Initiator,
        ends: Vec<(DatagramAddress, DatagramAddress)>,
        timeouts: Timeouts,
        record: CommandRecord,
    ) -> Inner {
        let now = reactor::now();
        Inner {
            agreed: Agreed::default(),
            ends,
            machine: Some(machine),
            counted: Counters::default(),
            phase: Phase::New,
            is_leaving: false,
            pause: PAUSE_FIRST,
            said: String::new(),
            tasks: BTreeMap::new(),
            next_ticket: 0,
            waiting: VecDeque::new(),
            sent: HashMap::new(),
            out_bytes: 0,
            unsettled: 0,
            functions: HashMap::new(),
            are_some_lost: false,
            heard: now,
            frames: 0,
            now,
            timeouts,
            record,
            driver: None,
            waiters: Vec::new(),
        }
    }

    /// Drops the state machine, but keeps its counters.
    fn drop_machine(&mut self) {
        self.counted += self
            .machine
            .take()
            .map(|machine| machine.counters())
            .unwrap_or_default();
    }

    /// The counters of all state machines of the session.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.counted;
        counters += self
            .machine
            .as_ref()
            .map(Initiator::counters)
            .unwrap_or_default();
        counters
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    pub(crate) fn wait<T>(&mut self, waker: &Waker) -> Poll<T> {
        if !self.waiters.iter().any(|waiting| waiting.will_wake(waker)) {
            self.waiters.push(waker.clone());
        }
        Poll::Pending
    }

    pub(crate) fn wake_waiters(&mut self) {
        self.waiters.drain(..).for_each(Waker::wake);
    }

    pub(crate) fn wake_driver(&mut self) {
        self.driver.take().into_iter().for_each(Waker::wake);
    }

    pub(crate) fn say(&mut self, error: &str) {
        if self.said != error {
            tracing::warn!("cannot log in again yet: {error}");
            error.clone_into(&mut self.said);
        }
    }

    /// Submits a command, which may fail immediately.
    pub(crate) fn submit(&mut self, now: Instant, spec: CommandSpec, epoch: u64) -> u64 {
        let CommandSpec {
            lun,
            cdb,
            transfer,
            epoch: meant,
            waits_for_end,
        } = spec;
        let is_long = transfer.in_bytes().max(transfer.out_bytes()) > DATA_BYTES_MAX;
        let state = match self.phase {
            _ if is_long => TaskState::Ended(Err(CommandError::TooLong)),
            Phase::Over(_) | Phase::Down { fails: true, .. } => {
                TaskState::Ended(Err(CommandError::ConnectionLost))
            }
            Phase::Up { .. } if meant.is_some_and(|meant| meant != epoch) => {
                TaskState::Ended(Err(CommandError::Reinstated))
            }
            Phase::New | Phase::Up { .. } | Phase::Down { fails: false, .. } => {
                TaskState::Waiting { since: now }
            }
        };
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        if matches!(state, TaskState::Waiting { .. }) {
            debug_assert!(
                self.waiting.back().is_none_or(|last| *last < ticket),
                "commands wait in order"
            );
            self.waiting.push_back(ticket);
        }
        let recorded = self.record.begin(lun, &cdb, &transfer);
        let task = Task {
            lun,
            cdb,
            transfer,
            epoch: meant,
            waits_for_end,
            recorded,
            state,
            was_sent: false,
            step: EscalationStep::Wait,
            until: now,
            requester: Requester::Waits(None),
        };
        let earlier = self.tasks.insert(ticket, task);
        debug_assert!(earlier.is_none(), "a ticket is of one command");
        ticket
    }

    /// Passes waiting commands to the state machine while it has space for more.
    pub(crate) fn fill(&mut self, now: Instant, epoch: u64) {
        let Phase::Up { .. } = self.phase else { return };
        while let Some(position) = self.next_to_send() {
            let ticket = self.waiting[position];
            let Some(machine) = self.machine.as_mut().filter(|machine| machine.room() > 0) else {
                return;
            };
            let Some(task) = self.tasks.get_mut(&ticket) else {
                self.waiting.remove(position);
                continue;
            };
            if task.epoch.is_some_and(|meant| meant != epoch) {
                self.waiting.remove(position);
                self.end(ticket, Err(CommandError::Reinstated));
                continue;
            }
            debug_assert!(
                self.unsettled == 0 || !task.is_change(),
                "no change overtakes an unsettled one"
            );
            debug_assert!(
                matches!(task.state, TaskState::Waiting { .. }),
                "a waiting command was not sent"
            );
            let out_bytes = task.transfer.out_bytes();
            if self.out_bytes > 0 && self.out_bytes + out_bytes > OUT_BYTES_MAX {
                return;
            }
            self.waiting.remove(position);
            let command = Command {
                lun: task.lun.0.to_be_bytes(),
                attribute: TaskAttribute::Simple,
                cdb: task.cdb.to_vec(),
                data_in_bytes: task.transfer.in_bytes() as u32,
                data_out: sent(&task.transfer),
            };
            match machine.submit(command) {
                Ok(id) => {
                    task.state = TaskState::Sent(id);
                    (task.was_sent, task.until) = (true, now + self.timeouts.command);
                    self.out_bytes += out_bytes;
                    debug_assert!(
                        self.out_bytes <= OUT_BYTES_MAX.max(out_bytes),
                        "outstanding write data is limited"
                    );
                    let earlier = self.sent.insert(id, ticket);
                    debug_assert!(earlier.is_none(), "the machine numbers each command");
                }
                // The state machine has space, and the length was checked, so the session has just ended.
                Err(_) => self.end(ticket, Err(CommandError::ConnectionLost)),
            }
        }
    }

    /// The position of the first waiting command that may be sent now.
    fn next_to_send(&self) -> Option<usize> {
        let may = |ticket: &u64| {
            self.unsettled == 0 || !self.tasks.get(ticket).is_some_and(Task::is_change)
        };
        self.waiting.iter().position(may)
    }

    /// Records the end of a command.
    pub(crate) fn end(&mut self, ticket: u64, outcome: Result<Status, CommandError>) {
        let Some(task) = self.tasks.get_mut(&ticket) else {
            return;
        };
        match task.state {
            TaskState::Ended(_) => return,
            TaskState::Waiting { .. } => {}
            TaskState::Sent(id) => {
                self.unsettled -= usize::from(task.is_unsettled());
                let was_sent = self.sent.remove(&id);
                debug_assert!(
                    was_sent == Some(ticket) && self.out_bytes >= task.transfer.out_bytes()
                );
                self.out_bytes -= task.transfer.out_bytes();
                self.record.end(task.recorded, &outcome);
            }
        }
        match &mut task.requester {
            Requester::Waits(waker) => {
                let waker = waker.take();
                task.state = TaskState::Ended(outcome);
                waker.into_iter().for_each(Waker::wake);
            }
            Requester::Expired => task.state = TaskState::Ended(Err(CommandError::TimedOut)),
            Requester::Gone => drop(self.tasks.remove(&ticket)),
        }
        self.wake_waiters();
    }

    /// Processes the response to a command.
    pub(crate) fn complete(&mut self, id: RequestId, response: Response) {
        let Some(&ticket) = self.sent.get(&id) else {
            return;
        };
        let Some(task) = self.tasks.get_mut(&ticket) else {
            return;
        };
        debug_assert!(
            matches!(task.state, TaskState::Sent(sent) if sent == id),
            "a response belongs to an outstanding command"
        );
        if let Transfer::In { buffer, range } = &mut task.transfer
            && let Some(place) = buffer
                .get_mut(range.clone())
                .and_then(|room| room.get_mut(..response.data.len()))
        {
            place.copy_from_slice(&response.data);
        }
        let is_aborted =
            response.status == status::TASK_ABORTED && task.step != EscalationStep::Wait;
        let outcome = match is_aborted {
            true => Err(CommandError::Aborted),
            false => Ok(Status {
                status: response.status,
                sense: response.sense.into_boxed_slice(),
                in_bytes: response.data.len(),
                residual: residual(response.residual),
            }),
        };
        self.end(ticket, outcome);
    }

    /// Handles the state machine's events. Returns true if there were any.
    pub(crate) fn take_events(&mut self, now: Instant, shared: &Shared) -> bool {
        let mut is_any = false;
        while let Some(event) = self.machine.as_mut().and_then(Initiator::poll_event) {
            is_any = true;
            match event {
                Event::LoggedIn {
                    queue_depth,
                    frame_bytes,
                    is_encrypted,
                } => {
                    tracing::debug!(queue_depth, frame_bytes, is_encrypted, "logged in");
                    self.agreed = Agreed {
                        frame_bytes,
                        queue_depth,
                        is_encrypted,
                    };
                    self.logged_in(now, shared);
                }
                Event::Resumed => {
                    tracing::debug!("the session continues with new keys and sequence numbers")
                }
                Event::Completed { id, response } => self.complete(id, response),
                Event::FunctionDone { id, result } => {
                    if let Some(asked) = self.functions.remove(&id) {
                        let _ = asked.send(result); // fails if the requester was dropped
                    }
                }
                Event::Lost { id } => {
                    self.functions.remove(&id);
                    if let Some(&ticket) = self.sent.get(&id) {
                        self.are_some_lost = true;
                        self.end(ticket, Err(CommandError::ConnectionLost));
                    }
                }
                Event::NexusLost => {
                    self.lose(now, now, "the target has no record of the session", shared)
                }
                Event::Ended(reason) => {
                    self.drop_machine();
                    let is_failed_login = matches!(self.phase, Phase::New);
                    if self.is_leaving || is_failed_login {
                        self.end_session(reason, shared);
                    } else {
                        // An unreachable target has been unresponsive since its last frame.
                        let since = if reason == EndReason::Unreachable {
                            self.heard
                        } else {
                            now
                        };
                        self.lose(now, since, &reason.to_string(), shared);
                    }
                }
            }
        }
        is_any
    }

    pub(crate) fn logged_in(&mut self, now: Instant, shared: &Shared) {
        debug_assert!(
            self.sent.is_empty(),
            "the commands of the previous session have ended"
        );
        debug_assert!(!self.is_over(), "an ended session does not return");
        let before = mem::replace(&mut self.phase, Phase::Up { since: now });
        self.are_some_lost = false;
        self.heard = now;
        self.said.clear();
        if let Phase::Down { since, .. } = before {
            self.record.renewed();
            shared.is_lost.store(false, Relaxed);
            shared.reinstatements.fetch_add(1, Relaxed);
            let away = now.saturating_duration_since(since).as_secs_f64();
            tracing::warn!("the session was restored after {away:.1} s");
        }
        self.wake_waiters();
    }

    /// Marks the session as lost. A new session must be started; the state of the lost session is dropped.
    pub(crate) fn lose(&mut self, now: Instant, since: Instant, why: &str, shared: &Shared) {
        match self.phase {
            Phase::Up { .. } if self.timeouts.reconnect.is_zero() => {
                tracing::warn!("the session is lost: {why}");
                return self.end_session(EndReason::Unreachable, shared);
            }
            Phase::Up { since: began } => {
                tracing::warn!("the session is lost: {why}");
                if now.saturating_duration_since(began) >= STEADY {
                    self.pause = PAUSE_FIRST;
                }
                shared.is_lost.store(true, Relaxed);
                self.phase = Phase::Down {
                    since,
                    fails: false,
                };
            }
            Phase::Down { .. } => self.say(why),
            Phase::New | Phase::Over(_) => {}
        }
        self.lose_sent();
        self.fail_after_reconnect_time(now);
        self.wake_waiters();
    }

    pub(crate) fn lose_sent(&mut self) {
        self.functions.clear();
        let lost: Vec<u64> = self.sent.values().copied().collect();
        self.are_some_lost |= !lost.is_empty();
        lost.into_iter()
            .for_each(|ticket| self.end(ticket, Err(CommandError::ConnectionLost)));
        debug_assert!(self.sent.is_empty() && self.out_bytes == 0 && self.unsettled == 0);
    }

    /// Ends the session permanently.
    pub(crate) fn end_session(&mut self, reason: EndReason, shared: &Shared) {
        if self.is_over() {
            return;
        }
        shared.is_lost.store(true, Relaxed);
        self.phase = Phase::Over(reason);
        self.drop_machine();
        self.lose_sent();
        self.fail_waiting();
        debug_assert!(
            self.machine.is_none() && self.waiting.is_empty(),
            "nothing remains of an ended session"
        );
        self.wake_waiters();
        self.wake_driver();
    }

    pub(crate) fn fail_waiting(&mut self) {
        for ticket in mem::take(&mut self.waiting) {
            self.end(ticket, Err(CommandError::ConnectionLost));
        }
    }

    pub(crate) fn fail_after_reconnect_time(&mut self, now: Instant) {
        if let Phase::Down { since, fails } = &mut self.phase
            && !*fails
            && now.saturating_duration_since(*since) >= self.timeouts.reconnect
        {
            *fails = true;
            tracing::warn!(
                "the session was not restored within the reconnect time: requests now fail"
            );
            self.fail_waiting();
            self.wake_waiters();
        }
    }

    pub(crate) fn pass_time(&mut self, now: Instant, shared: &Shared) {
        let frames = self
            .machine
            .as_ref()
            .map_or(0, |machine| machine.counters().frames_received);
        if mem::replace(&mut self.frames, frames) != frames {
            self.heard = now;
        }
        self.fail_after_reconnect_time(now);
        let Phase::Up { since: up } = self.phase else {
            return;
        };
        debug_assert_eq!(
            self.unsettled,
            self.tasks
                .values()
                .filter(|task| task.is_unsettled())
                .count(),
            "each unsettled change is counted"
        );
        debug_assert_eq!(
            self.out_bytes,
            self.sent
                .values()
                .filter_map(|ticket| self.tasks.get(ticket))
                .map(|task| task.transfer.out_bytes())
                .sum::<usize>(),
            "the write data of each outstanding command is counted"
        );
        let command = self.timeouts.command;
        let mut late = Vec::new();
        for (&ticket, task) in &self.tasks {
            match task.state {
                TaskState::Waiting { since }
                    if now.saturating_duration_since(since.max(up)) >= command =>
                {
                    late.push((ticket, None));
                }
                TaskState::Sent(id) if task.until <= now => late.push((ticket, Some(id))),
                _ => {}
            }
        }
        let is_silent = now.saturating_duration_since(self.heard) >= SILENT;
        for (ticket, id) in late {
            match id {
                None => {
                    self.waiting.retain(|waiting| *waiting != ticket);
                    self.end(ticket, Err(CommandError::TimedOut));
                }
                // The state machine determines whether the session is lost.
                Some(_) if is_silent => {}
                Some(id) => self.escalate(now, ticket, id, shared),
            }
        }
    }

    /// Takes the next step for a command that has not ended in time.
    pub(crate) fn escalate(&mut self, now: Instant, ticket: u64, id: RequestId, shared: &Shared) {
        let Some(task) = self.tasks.get_mut(&ticket) else {
            return;
        };
        let (before, step) = (task.step, task.step.next());
        if let Requester::Waits(waker) = &mut task.requester
            && !task.waits_for_end
        {
            let waker = waker.take();
            task.requester = Requester::Expired;
            self.unsettled += usize::from(task.is_unsettled());
            waker.into_iter().for_each(Waker::wake);
        }
        task.step = step;
        task.until = now + self.timeouts.time_limit(step);
        let (function, lun, of) = match step {
            EscalationStep::Wait => return,
            EscalationStep::AbortTask => (Function::AbortTask, task.lun, Some(id)),
            EscalationStep::LogicalUnitReset => (Function::LogicalUnitReset, task.lun, None),
            EscalationStep::TargetReset => (Function::TargetReset, Lun(0), None),
            EscalationStep::LeaveSession => {
                self.drop_machine();
                return self.lose(
                    now,
                    now,
                    "the target neither executes a command nor aborts it",
                    shared,
                );
            }
        };
        let lun = lun.0.to_be_bytes();
        let asked = self
            .machine
            .as_mut()
            .map(|machine| machine.manage(function, lun, of));
        if !matches!(asked, Some(Ok(_)))
            && let Some(task) = self.tasks.get_mut(&ticket)
        {
            // Too many requests are outstanding. Repeat this step at the next check.
            (task.step, task.until) = (before, now);
        }
    }

    pub(crate) fn poll_request(&mut self, ticket: u64, waker: &Waker) -> Option<CommandEnd> {
        let Some(task) = self.tasks.get_mut(&ticket) else {
            return Some(CommandEnd::unfinished(CommandError::ConnectionLost));
        };
        if let TaskState::Ended(_) = task.state {
            let task = self.tasks.remove(&ticket)?;
            let TaskState::Ended(outcome) = task.state else {
                return None;
            };
            return Some(CommandEnd {
                outcome,
                transfer: task.transfer,
                was_sent: task.was_sent,
            });
        }
        match &mut task.requester {
            Requester::Waits(kept) => {
                if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
                    *kept = Some(waker.clone());
                }
                None
            }
            Requester::Expired | Requester::Gone => {
                task.requester = Requester::Gone;
                Some(CommandEnd::unfinished(CommandError::TimedOut))
            }
        }
    }

    /// Processes the drop of a requester: drops its command if it was not sent, and aborts it otherwise.
    pub(crate) fn abandon(&mut self, ticket: u64) {
        let now = self.now;
        let Some(task) = self.tasks.get_mut(&ticket) else {
            return;
        };
        match task.state {
            TaskState::Sent(id) => {
                let was_unsettled = task.is_unsettled();
                task.requester = Requester::Gone;
                self.unsettled += usize::from(task.is_unsettled() && !was_unsettled);
                if task.step == EscalationStep::Wait {
                    let abort = Function::AbortTask;
                    let lun = task.lun.0.to_be_bytes();
                    let asked = self
                        .machine
                        .as_mut()
                        .map(|machine| machine.manage(abort, lun, Some(id)));
                    match asked {
                        Some(Ok(_)) => {
                            task.step = EscalationStep::AbortTask;
                            task.until = now + self.timeouts.abort;
                        }
                        _ => task.until = now,
                    }
                }
                self.wake_driver();
            }
            TaskState::Waiting { .. } => {
                self.waiting.retain(|waiting| *waiting != ticket);
                self.tasks.remove(&ticket);
            }
            TaskState::Ended(_) => drop(self.tasks.remove(&ticket)),
        }
    }
}

/// The data of a write, which the state machine sends without copying it.
struct Sent<T>(T);

impl<T: Deref<Target = [u8]>> AsRef<[u8]> for Sent<T> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn sent(transfer: &Transfer) -> Payload {
    match transfer {
        Transfer::Out(data) => Payload::new(Sent(data.clone())),
        Transfer::None | Transfer::In { .. } => Payload::default(),
    }
}

fn residual(bytes: i64) -> Residual {
    let count = u32::try_from(bytes.unsigned_abs()).unwrap_or(u32::MAX);
    match bytes {
        0 => Residual::None,
        1.. => Residual::Overflow(count),
        _ => Residual::Underflow(count),
    }
}
