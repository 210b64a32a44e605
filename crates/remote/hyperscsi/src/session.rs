//! A session on its thread: the machine, the commands that it has, and their requesters.
//!
//! ```text
//!   New ── logged in ──► Up ── no record of it, silence, left ──► Down ── logged in ──► Up, one reinstatement more
//!    │                                                             │ fail_after(reconnect): requests fail, logins go on
//!    └── refused, silence ──► Over ◄── closed; lost, and not to come back
//! ```
//!
//! The machine begins another session by itself when the target has lost its record of one. When nothing answers any more, or the
//! target has closed the session, it ends: the target is looked for again, and another machine logs in, with the same name and port.
//! Either way the commands of the lost session are lost, and none of them is executed after one of the next session.
//!
//! Each command has one ticket, from its submission until its requester has its end, or was dropped and it has ended. Data of
//! writes are copied into the machine when there is room, and no more than [`OUT_BYTES_MAX`] of them are there.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyperscsi::initiator::{EndReason, Event, RequestId};
use hyperscsi::{
    Command, Counters, DATA_BYTES_MAX, Function, FunctionResult, Initiator, Response, TaskAttribute,
};
use initiator::carrier::{CommandRecord, Recorded};
use initiator::{
    CommandError, CommandSpec, Ended, EscalationStep, Lun, Residual, Status, Timeouts, Transfer, status,
};
use reactor::{DatagramAddress, Receiver, Sender, mailbox};
use scsi::cdb::Cdb;

use crate::driver::Driver;
use crate::link::Link;
use crate::open::Connector;

/// Data of writes in the machine. A target's credit is no more.
const OUT_BYTES_MAX: usize = 8 << 20;
/// Interval of timeout checks; timeouts are seconds long.
const TICK: Duration = Duration::from_millis(500);
/// A session in which nothing else is said asks for an acknowledgement every 5 s: after this time without any, it is not the command
/// that takes long.
const SILENT: Duration = Duration::from_secs(7);
/// Between logins of a lost session. Short enough for a target that is back, long enough not to overload one that is not.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LONGEST: Duration = Duration::from_secs(3);

/// A session, shared by its task and by the requests on its thread.
pub(crate) struct Session {
    inner: RefCell<Inner>,
    shared: Arc<Shared>,
}

/// What other threads read.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    reinstatements: AtomicU64,
    is_lost: AtomicBool,
    replays: AtomicU64,
}

/// How a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// Bytes of a frame.
    pub frame_bytes: usize,
    /// Commands that may be outstanding.
    pub queue_depth: u32,
    /// Whether frames are sealed, and the target has proven to know the key.
    pub is_encrypted: bool,
    /// Its paths.
    pub paths: Vec<PathStatus>,
    /// What its machine has counted.
    pub counters: Counters,
    /// Sessions that were lost and begun again.
    pub reinstatements: u64,
    /// Commands that were sent again because their outcome was unknown.
    pub replays: u64,
}

/// How a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// This end.
    pub local: DatagramAddress,
    /// The other one.
    pub remote: DatagramAddress,
    /// Whether it carries frames.
    pub is_up: bool,
    /// Its round trip, once it is measured.
    pub round_trip: Option<Duration>,
    /// Its window.
    pub window_frames: u32,
}

/// What the last login agreed on.
#[derive(Clone, Copy, Default)]
struct Agreed {
    frame_bytes: usize,
    queue_depth: u32,
    is_encrypted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Up {
        since: Instant,
    },
    /// Requests wait, unless they fail by now.
    Down {
        since: Instant,
        fails: bool,
    },
    Over(EndReason),
}

struct Inner {
    agreed: Agreed,
    /// Both ends of each path.
    ends: Vec<(DatagramAddress, DatagramAddress)>,
    /// `None` between one that has ended and the next.
    machine: Option<Initiator>,
    phase: Phase,
    is_leaving: bool,
    /// Until the next login of a lost session.
    pause: Duration,
    /// Of the last login that failed, which is told once.
    said: String,
    tasks: BTreeMap<u64, Task>,
    next_ticket: u64,
    /// Not given to the machine yet, in order.
    waiting: VecDeque<u64>,
    /// By the machine's number of it.
    sent: HashMap<RequestId, u64>,
    out_bytes: usize,
    functions: HashMap<RequestId, Sender<FunctionResult>>,
    /// Commands of the lost session may still be executed.
    are_some_lost: bool,
    /// When the target was last heard of, and the frames received by then.
    heard: Instant,
    frames: u64,
    timeouts: Timeouts,
    record: CommandRecord,
    driver: Option<Waker>,
    /// Woken when the phase changes or a dropped command ends.
    waiters: Vec<Waker>,
}

struct Task {
    lun: Lun,
    cdb: Cdb,
    transfer: Transfer,
    epoch: Option<u64>,
    waits_for_end: bool,
    recorded: Recorded,
    state: TaskState,
    was_sent: bool,
    step: EscalationStep,
    /// Of the step.
    until: Instant,
    requester: Requester,
}

enum TaskState {
    Waiting { since: Instant },
    Sent(RequestId),
    Ended(Result<Status, CommandError>),
}

enum Requester {
    Waits(Option<Waker>),
    /// The time is up, and the requester has not been told yet.
    Expired,
    /// Dropped, or told.
    Gone,
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

impl Session {
    /// A session that logs in by this machine, over this link. Its tasks end when it is over.
    pub(crate) fn begin(
        machine: Initiator,
        link: Link,
        connector: Connector,
        timeouts: Timeouts,
        record: CommandRecord,
    ) -> Rc<Session> {
        let inner = Inner {
            agreed: Agreed::default(),
            ends: link.ends(),
            machine: Some(machine),
            phase: Phase::New,
            is_leaving: false,
            pause: PAUSE_FIRST,
            said: String::new(),
            tasks: BTreeMap::new(),
            next_ticket: 0,
            waiting: VecDeque::new(),
            sent: HashMap::new(),
            out_bytes: 0,
            functions: HashMap::new(),
            are_some_lost: false,
            heard: reactor::now(),
            frames: 0,
            timeouts,
            record,
            driver: None,
            waiters: Vec::new(),
        };
        let session = Rc::new(Session { inner: RefCell::new(inner), shared: Arc::default() });
        drop(reactor::spawn(drive(Rc::clone(&session), link, connector)));
        drop(reactor::spawn(keep_time(Rc::downgrade(&session))));
        session
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Ends when the first login has succeeded; an error if it has not.
    pub(crate) async fn logged_in(&self) -> Result<(), EndReason> {
        poll_fn(|cx| {
            let mut inner = self.inner.borrow_mut();
            match inner.phase {
                Phase::New => inner.wait(cx.waker()),
                Phase::Over(reason) => Poll::Ready(Err(reason)),
                Phase::Up { .. } | Phase::Down { .. } => Poll::Ready(Ok(())),
            }
        })
        .await
    }

    /// Sends a command, as soon as there is room.
    pub(crate) fn request(self: &Rc<Session>, spec: CommandSpec) -> Request {
        let now = reactor::now();
        let mut inner = self.inner.borrow_mut();
        let ticket = inner.submit(now, spec, self.shared.reinstatements());
        inner.fill(now, self.shared.reinstatements());
        inner.wake_driver();
        drop(inner);
        Request { session: Rc::clone(self), ticket, is_done: false }
    }

    /// Sends a task management function; its result comes from the receiver, which ends without one if the session is lost.
    pub(crate) fn manage(
        &self,
        function: Function,
        lun: Lun,
    ) -> Result<Receiver<FunctionResult>, CommandError> {
        let mut inner = self.inner.borrow_mut();
        let machine = inner.machine.as_mut().ok_or(CommandError::ConnectionLost)?;
        let id = machine.manage(function, lun.0.to_be_bytes(), None);
        let id = id.map_err(|_| CommandError::ConnectionLost)?;
        let (sender, receiver) = mailbox();
        inner.functions.insert(id, sender);
        inner.wake_driver();
        Ok(receiver)
    }

    /// How it is, if it is logged in.
    pub(crate) fn status(&self) -> Option<SessionStatus> {
        let inner = self.inner.borrow();
        let machine = inner.machine.as_ref().filter(|_| matches!(inner.phase, Phase::Up { .. }))?;
        let paths = machine.paths().into_iter().zip(&inner.ends);
        let path = |((is_up, round_trip, window_frames), &(local, remote))| PathStatus {
            local,
            remote,
            is_up,
            round_trip,
            window_frames,
        };
        let Agreed { frame_bytes, queue_depth, is_encrypted } = inner.agreed;
        Some(SessionStatus {
            frame_bytes,
            queue_depth,
            is_encrypted,
            paths: paths.map(path).collect(),
            counters: machine.counters(),
            reinstatements: self.shared.reinstatements(),
            replays: self.shared.replays(),
        })
    }

    /// Of a function.
    pub(crate) fn reset_time(&self) -> Duration {
        self.inner.borrow().timeouts.reset
    }

    pub(crate) async fn usable(&self) -> Result<(), CommandError> {
        poll_fn(|cx| {
            let mut inner = self.inner.borrow_mut();
            match inner.phase {
                Phase::Up { .. } => Poll::Ready(Ok(())),
                Phase::Over(_) | Phase::Down { fails: true, .. } => {
                    Poll::Ready(Err(CommandError::ConnectionLost))
                }
                Phase::New | Phase::Down { fails: false, .. } => inner.wait(cx.waker()),
            }
        })
        .await
    }

    pub(crate) async fn quiesced(&self) -> Result<(), CommandError> {
        let mark = self.inner.borrow().next_ticket;
        poll_fn(|cx| {
            let mut inner = self.inner.borrow_mut();
            let mut older = inner.tasks.range(..mark);
            if older.any(|(_, task)| matches!(task.requester, Requester::Gone | Requester::Expired)) {
                return inner.wait(cx.waker());
            }
            match inner.phase {
                _ if !inner.are_some_lost => Poll::Ready(Ok(())),
                Phase::Over(_) | Phase::Down { fails: true, .. } => {
                    Poll::Ready(Err(CommandError::ConnectionLost))
                }
                Phase::New | Phase::Up { .. } | Phase::Down { fails: false, .. } => inner.wait(cx.waker()),
            }
        })
        .await
    }

    /// Says farewell, and ends when the session is over.
    pub(crate) async fn close(&self) {
        {
            let mut inner = self.inner.borrow_mut();
            inner.is_leaving = true;
            match &mut inner.machine {
                Some(machine) => machine.disconnect(reactor::now()),
                None => inner.end_session(EndReason::Disconnected, &self.shared),
            }
            inner.wake_driver();
        }
        poll_fn(|cx| {
            let mut inner = self.inner.borrow_mut();
            if inner.is_over() { Poll::Ready(()) } else { inner.wait(cx.waker()) }
        })
        .await;
    }

    /// Runs `work` unless the session is over.
    async fn unless_over<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            {
                let mut inner = self.inner.borrow_mut();
                if inner.is_over() {
                    return Poll::Ready(None);
                }
                let _: Poll<()> = inner.wait(cx.waker());
            }
            work.as_mut().poll(cx).map(Some)
        })
        .await
    }

    /// Ready when there is no machine any more.
    fn poll(&self, driver: &mut Driver, cx: &mut Context<'_>) -> Poll<()> {
        let inner = &mut *self.inner.borrow_mut();
        inner.driver = Some(cx.waker().clone());
        let now = reactor::now();
        if let Some(machine) = &mut inner.machine {
            driver.receive(machine, now, cx);
            if machine.poll_timeout().is_some_and(|at| at <= now) {
                machine.handle_timeout(now);
            }
        }
        inner.take_events(now, &self.shared);
        inner.fill(now, self.shared.reinstatements());
        let Some(machine) = &mut inner.machine else { return Poll::Ready(()) };
        driver.transmit(machine, now, cx);
        // An event may have come of the last frame.
        if inner.take_events(now, &self.shared) {
            cx.waker().wake_by_ref();
        }
        let Some(machine) = &inner.machine else { return Poll::Ready(()) };
        driver.wait_until(machine.poll_timeout(), cx);
        Poll::Pending
    }
}

/// Serves a session until it is over.
async fn drive(session: Rc<Session>, link: Link, connector: Connector) {
    let mut driver = Driver::new(link);
    loop {
        poll_fn(|cx| session.poll(&mut driver, cx)).await;
        match begin_again(&session, &connector).await {
            Some(link) => driver = Driver::new(link),
            None => return,
        }
    }
}

/// Looks for the target of a lost session, with pauses, and gives the session another machine. `None` when it is over.
async fn begin_again(session: &Session, connector: &Connector) -> Option<Link> {
    loop {
        let pause = {
            let mut inner = session.inner.borrow_mut();
            let pause = inner.pause;
            inner.pause = (pause * 2).min(PAUSE_LONGEST);
            pause
        };
        session.unless_over(reactor::sleep(connector.spread(pause))).await?;
        let found = session.unless_over(connector.machine_again()).await?;
        let mut inner = session.inner.borrow_mut();
        match found {
            Ok((link, machine)) if !inner.is_over() => {
                inner.machine = Some(machine);
                inner.ends = link.ends();
                inner.frames = 0;
                return Some(link);
            }
            Ok(_) => return None,
            Err(error) => inner.say(&error.to_string()),
        }
    }
}

/// Processes timeouts while the session exists.
async fn keep_time(session: Weak<Session>) {
    loop {
        reactor::sleep(TICK).await;
        let Some(session) = session.upgrade() else { return };
        let mut inner = session.inner.borrow_mut();
        if inner.is_over() {
            return;
        }
        inner.pass_time(reactor::now(), &session.shared);
        inner.fill(reactor::now(), session.shared.reinstatements());
        inner.wake_driver();
    }
}

impl Inner {
    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    fn wait<T>(&mut self, waker: &Waker) -> Poll<T> {
        if !self.waiters.iter().any(|waiting| waiting.will_wake(waker)) {
            self.waiters.push(waker.clone());
        }
        Poll::Pending
    }

    fn wake_waiters(&mut self) {
        self.waiters.drain(..).for_each(Waker::wake);
    }

    fn wake_driver(&mut self) {
        self.driver.take().into_iter().for_each(Waker::wake);
    }

    fn say(&mut self, error: &str) {
        if self.said != error {
            tracing::warn!("cannot log in again yet: {error}");
            error.clone_into(&mut self.said);
        }
    }

    /// A new command, which may have ended at once.
    fn submit(&mut self, now: Instant, spec: CommandSpec, epoch: u64) -> u64 {
        let CommandSpec { lun, cdb, transfer, epoch: meant, waits_for_end } = spec;
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
        self.tasks.insert(ticket, task);
        ticket
    }

    /// Gives waiting commands to the machine, as many as it has room for.
    fn fill(&mut self, now: Instant, epoch: u64) {
        let Phase::Up { .. } = self.phase else { return };
        while let Some(&ticket) = self.waiting.front() {
            let Some(machine) = self.machine.as_mut().filter(|machine| machine.room() > 0) else { return };
            let Some(task) = self.tasks.get_mut(&ticket) else {
                self.waiting.pop_front();
                continue;
            };
            if task.epoch.is_some_and(|meant| meant != epoch) {
                self.waiting.pop_front();
                self.end(ticket, Err(CommandError::Reinstated));
                continue;
            }
            let out_bytes = task.transfer.out_bytes();
            if self.out_bytes > 0 && self.out_bytes + out_bytes > OUT_BYTES_MAX {
                return;
            }
            self.waiting.pop_front();
            let command = Command {
                lun: task.lun.0.to_be_bytes(),
                attribute: TaskAttribute::Simple,
                cdb: task.cdb.to_vec(),
                data_in_bytes: task.transfer.in_bytes() as u32,
                data_out: task.transfer.sent().to_vec(),
            };
            match machine.submit(command) {
                Ok(id) => {
                    task.state = TaskState::Sent(id);
                    (task.was_sent, task.until) = (true, now + self.timeouts.command);
                    self.out_bytes += out_bytes;
                    self.sent.insert(id, ticket);
                }
                // There is room, and its length was looked at: the session has just ended.
                Err(_) => self.end(ticket, Err(CommandError::ConnectionLost)),
            }
        }
    }

    /// A command has ended.
    fn end(&mut self, ticket: u64, outcome: Result<Status, CommandError>) {
        let Some(task) = self.tasks.get_mut(&ticket) else { return };
        match task.state {
            TaskState::Ended(_) => return,
            TaskState::Waiting { .. } => {}
            TaskState::Sent(id) => {
                self.sent.remove(&id);
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

    /// A command was answered.
    fn complete(&mut self, id: RequestId, response: Response) {
        let Some(&ticket) = self.sent.get(&id) else { return };
        let Some(task) = self.tasks.get_mut(&ticket) else { return };
        if let Transfer::In { buffer, range } = &mut task.transfer
            && let Some(place) =
                buffer.get_mut(range.clone()).and_then(|room| room.get_mut(..response.data.len()))
        {
            place.copy_from_slice(&response.data);
        }
        let is_aborted = response.status == status::TASK_ABORTED && task.step != EscalationStep::Wait;
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

    /// Handles what the machine tells; whether that was anything.
    fn take_events(&mut self, now: Instant, shared: &Shared) -> bool {
        let mut is_any = false;
        while let Some(event) = self.machine.as_mut().and_then(Initiator::poll_event) {
            is_any = true;
            match event {
                Event::LoggedIn { queue_depth, frame_bytes, is_encrypted } => {
                    tracing::debug!(queue_depth, frame_bytes, is_encrypted, "logged in");
                    self.agreed = Agreed { frame_bytes, queue_depth, is_encrypted };
                    self.logged_in(now, shared);
                }
                Event::Resumed => tracing::debug!("the session goes on with new keys and numbers"),
                Event::Completed { id, response } => self.complete(id, response),
                Event::FunctionDone { id, result } => {
                    if let Some(asked) = self.functions.remove(&id) {
                        let _ = asked.send(result); // who asked may be gone
                    }
                }
                Event::Lost { id } => {
                    self.functions.remove(&id);
                    if let Some(&ticket) = self.sent.get(&id) {
                        self.are_some_lost = true;
                        self.end(ticket, Err(CommandError::ConnectionLost));
                    }
                }
                Event::NexusLost => self.lose(now, now, "the target has no record of it", shared),
                Event::Ended(reason) => {
                    self.machine = None;
                    let is_failed_login = matches!(self.phase, Phase::New);
                    if self.is_leaving || is_failed_login {
                        self.end_session(reason, shared);
                    } else {
                        // Nothing has answered for so long already.
                        let since = if reason == EndReason::Unreachable { self.heard } else { now };
                        self.lose(now, since, &reason.to_string(), shared);
                    }
                }
            }
        }
        is_any
    }

    fn logged_in(&mut self, now: Instant, shared: &Shared) {
        let before = mem::replace(&mut self.phase, Phase::Up { since: now });
        self.are_some_lost = false;
        (self.heard, self.pause) = (now, PAUSE_FIRST);
        self.said.clear();
        if let Phase::Down { since, .. } = before {
            shared.is_lost.store(false, Relaxed);
            shared.reinstatements.fetch_add(1, Relaxed);
            let away = now.saturating_duration_since(since).as_secs_f64();
            tracing::warn!("the session is back after {away:.1} s");
        }
        self.wake_waiters();
    }

    /// The session is lost, and is to be begun again. What it had was lost with it.
    fn lose(&mut self, now: Instant, since: Instant, why: &str, shared: &Shared) {
        match self.phase {
            Phase::Up { .. } if self.timeouts.reconnect.is_zero() => {
                tracing::warn!("the session is lost: {why}");
                return self.end_session(EndReason::Unreachable, shared);
            }
            Phase::Up { .. } => {
                tracing::warn!("the session is lost: {why}");
                shared.is_lost.store(true, Relaxed);
                self.phase = Phase::Down { since, fails: false };
            }
            Phase::Down { .. } => self.say(why),
            Phase::New | Phase::Over(_) => {}
        }
        self.lose_sent();
        self.fail_after_reconnect_time(now);
        self.wake_waiters();
    }

    fn lose_sent(&mut self) {
        self.functions.clear();
        let lost: Vec<u64> = self.sent.values().copied().collect();
        self.are_some_lost |= !lost.is_empty();
        lost.into_iter().for_each(|ticket| self.end(ticket, Err(CommandError::ConnectionLost)));
    }

    /// There will be no session any more.
    fn end_session(&mut self, reason: EndReason, shared: &Shared) {
        if self.is_over() {
            return;
        }
        shared.is_lost.store(true, Relaxed);
        self.phase = Phase::Over(reason);
        self.machine = None;
        self.lose_sent();
        self.fail_waiting();
        self.wake_waiters();
        self.wake_driver();
    }

    fn fail_waiting(&mut self) {
        for ticket in mem::take(&mut self.waiting) {
            self.end(ticket, Err(CommandError::ConnectionLost));
        }
    }

    fn fail_after_reconnect_time(&mut self, now: Instant) {
        if let Phase::Down { since, fails } = &mut self.phase
            && !*fails
            && now.saturating_duration_since(*since) >= self.timeouts.reconnect
        {
            *fails = true;
            tracing::warn!("the session has been lost for too long: requests fail from now on");
            self.fail_waiting();
            self.wake_waiters();
        }
    }

    fn pass_time(&mut self, now: Instant, shared: &Shared) {
        let frames = self.machine.as_ref().map_or(0, |machine| machine.counters().frames_received);
        if mem::replace(&mut self.frames, frames) != frames {
            self.heard = now;
        }
        self.fail_after_reconnect_time(now);
        let Phase::Up { since: up } = self.phase else { return };
        let command = self.timeouts.command;
        let mut late = Vec::new();
        for (&ticket, task) in &self.tasks {
            match task.state {
                TaskState::Waiting { since } if now.saturating_duration_since(since.max(up)) >= command => {
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
                // The machine finds out whether the session is lost.
                Some(_) if is_silent => {}
                Some(id) => self.escalate(now, ticket, id, shared),
            }
        }
    }

    /// A command does not end: one step further.
    fn escalate(&mut self, now: Instant, ticket: u64, id: RequestId, shared: &Shared) {
        let Some(task) = self.tasks.get_mut(&ticket) else { return };
        let (before, step) = (task.step, task.step.next());
        if let Requester::Waits(waker) = &mut task.requester
            && !task.waits_for_end
        {
            let waker = waker.take();
            task.requester = Requester::Expired;
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
                self.machine = None;
                return self.lose(now, now, "the target neither carries out a command nor aborts it", shared);
            }
        };
        let lun = lun.0.to_be_bytes();
        let asked = self.machine.as_mut().map(|machine| machine.manage(function, lun, of));
        if !matches!(asked, Some(Ok(_)))
            && let Some(task) = self.tasks.get_mut(&ticket)
        {
            // Too many requests are outstanding: again at the next look.
            (task.step, task.until) = (before, now);
        }
    }

    fn poll_request(&mut self, ticket: u64, waker: &Waker) -> Option<Ended> {
        let Some(task) = self.tasks.get_mut(&ticket) else {
            return Some(Ended::unfinished(CommandError::ConnectionLost));
        };
        if let TaskState::Ended(_) = task.state {
            let task = self.tasks.remove(&ticket)?;
            let TaskState::Ended(outcome) = task.state else { return None };
            return Some(Ended { outcome, transfer: task.transfer, was_sent: task.was_sent });
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
                Some(Ended::unfinished(CommandError::TimedOut))
            }
        }
    }

    /// The requester is gone: what was not sent is not sent, and the rest is aborted.
    fn abandon(&mut self, now: Instant, ticket: u64) {
        let Some(task) = self.tasks.get_mut(&ticket) else { return };
        match task.state {
            TaskState::Sent(id) => {
                task.requester = Requester::Gone;
                if task.step == EscalationStep::Wait {
                    let abort = Function::AbortTask;
                    let lun = task.lun.0.to_be_bytes();
                    let asked = self.machine.as_mut().map(|machine| machine.manage(abort, lun, Some(id)));
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

/// A command from its submission to its end. Dropped early, it is aborted.
pub(crate) struct Request {
    session: Rc<Session>,
    ticket: u64,
    is_done: bool,
}

impl Future for Request {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let ended = self.session.inner.borrow_mut().poll_request(self.ticket, cx.waker());
        match ended {
            Some(ended) => {
                self.is_done = true;
                Poll::Ready(ended)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.is_done {
            self.session.inner.borrow_mut().abandon(reactor::now(), self.ticket);
        }
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
