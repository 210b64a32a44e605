//! The life cycle of a command in a session, which is the same for every transport. No function in this
//! module blocks.
//!
//! A transport implements [`ScsiSession`] for its session. Each session has one [`Commands`].
//!
//! 1. The transport announces a command ([`ScsiSession::arrive`]).
//! 2. The logical unit plans it.
//! 3. The transport receives the data of the command, if any.
//! 4. The logical unit finishes the command, immediately or as a task of the executor.
//! 5. The transport sends the reply ([`ScsiSession::respond`]).
//!
//! ```text
//!   arrive ─► begin ─┬─ Plan::Reply ────────────────────────────────────► answer
//!                    ├─ Plan::Receive ─► data received ─► finish ─┬─ Now ─► answer
//!                    └─ Plan::Run ──────────────────────► finish ─┴─ Later ─► (executor) ─► answer
//! ```
//!
//! The states of a task ([`TaskState`]); the initial state is `Held`:
//!
//! ```text
//!          Plan::Receive              data complete
//!   Held ────────────────► Receiving ───────────────► Held
//!
//!   Held ── turn and memory ─► finish ─┬─ Later ───► Running ─┐
//!                                      ├─ Lasting ─► Lasting ─┼─► Answered ── sent ──► removed
//!                                      └─ Now ────────────────┘
//!   not Answered ── aborted by its own session ────► removed, or handled as in the next line
//!   not Answered ── aborted by another initiator ──► Cleared ── devices quiesced ──► Answered
//! ```
//!
//! [`ScsiSession::expire`] ends a command that has waited too long. The core's timer calls it, so the check
//! adds no cost to the path of a command:
//!
//! ```text
//!   waits for                         limit               then
//!   a device request                  the LUN's deadline  the command fails, the device's volume is fenced
//!   its turn, memory, or a range lock the LUN's deadline  BUSY, or the command fails; nothing is fenced
//! ```
//!
//! The deadline of a device request counts from the request: a command that waits for its turn, for memory or
//! for its initiator's data does not indicate a hanging device, and must not fence the volume.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::future::{Future, ready};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use block::DeviceError;
use front_end_core::{
    AbortOrder, Budget, Charge, CoreTally, Counted, Operation, Owners, Server, Span, Traffic,
};
use logical_unit::{
    CommandIn, Data, DataIn, DeviceRequest, Effect, Job, LogicalUnit, Misdeclared, NexusId, Plan,
    Receive, Reply, Running, SenseData, SiblingUnits, Status, Step, Watch,
};
use reactor::{JoinHandle, Sender};

use crate::luns::{AbortedUnits, Export, Luns, Turn, add_units, quiesce};
use crate::tally::{Failure, failure, operation};

/// The header of a command, and the properties that the transport has determined.
pub struct Declared<'a, I> {
    /// The name of the command while it exists.
    pub id: I,
    /// The eight bytes of its LUN field.
    pub lun: u64,
    /// The CDB.
    pub cdb: &'a [u8],
    /// Determines when the command may start.
    pub turn: Turn,
    /// Bytes that the initiator offers to send.
    pub data_out_bytes: u32,
    /// The size of the initiator's buffer, in bytes.
    pub data_in_bytes: u32,
    /// An error in the header itself, independent of the CDB.
    pub fault: Option<Misdeclared>,
    /// Whether the data of the command may arrive before its turn. Such data needs a destination.
    pub sends_early: bool,
}

impl<'a, I> Declared<'a, I> {
    /// Converts the command to the logical unit's form. `stage` is true if its data must be kept until its
    /// turn.
    fn command_in(&self, luns: &'a Arc<dyn SiblingUnits>, stage: bool) -> CommandIn<'a> {
        let Declared {
            cdb,
            data_out_bytes,
            data_in_bytes,
            ..
        } = *self;
        CommandIn {
            cdb,
            data_out_bytes,
            data_in_bytes,
            luns,
            stage,
        }
    }
}

/// A session of a transport. The transport supplies the required methods; the provided ones implement the
/// life cycle of a command, which all transports share.
pub trait ScsiSession: Sized + 'static {
    /// The name of a command while it exists.
    type Id: Copy + Eq + Debug + 'static;
    /// A command as received.
    type Command;
    /// The destination of a command's data.
    type Landing;
    /// The data that an answered command sends.
    type Outgoing;

    /// Parameter data up to this length counts as a part of the task itself. Longer data is charged to the
    /// session.
    const UNCHARGED_BYTES: usize;

    /// The commands of the session.
    fn commands(&self) -> &Commands<Self>;

    /// The commands of the session, mutable.
    fn commands_mut(&mut self) -> &mut Commands<Self>;

    /// Returns a small number, unique among the session's commands while this one exists.
    fn index(id: Self::Id) -> usize;

    /// Returns the header of a command.
    fn declared(command: &Self::Command) -> Declared<'_, Self::Id>;

    /// The target's name; `None` for a discovery session.
    fn target(&self) -> Option<&str>;

    /// Receives the data of a command, and calls [`ScsiSession::finish_in_turn`] when it is complete.
    fn receive(&mut self, command: &Self::Command, index: usize, receive: Receive);

    /// Converts the data of a reply for sending to the initiator.
    fn outgoing(data: DataIn) -> Self::Outgoing;

    /// Sends the answer of a task. Its data is now in the state of the task ([`Task::outgoing`]). If the
    /// answer reports losses, the transport calls [`Commands::note_told`] once the initiator has acknowledged
    /// the answer.
    fn respond(&mut self, id: Self::Id, answer: Answer<'_>);

    /// Called after commands were answered while no received command was being handled.
    fn after_answers(&mut self) {}

    /// Aborts the session's own commands that use `unit`, except `except`, because this session ordered the
    /// abort. Adds the units that the commands used to `units`. Returns the commands that still need an
    /// answer ([`ScsiSession::tell_aborted`]).
    fn abort_own(
        &mut self,
        unit: &Arc<LogicalUnit>,
        except: Option<Self::Id>,
        units: &mut Vec<Arc<LogicalUnit>>,
    ) -> Vec<Self::Id> {
        self.commands_mut().clear_unit(unit, except, units)
    }

    /// Handles the arrival of a command.
    fn arrive(&mut self, now: Instant, command: Self::Command) {
        let commands = self.commands_mut();
        commands.traffic.commands += 1;
        let declared = Self::declared(&command);
        let slot = commands.luns.find(declared.lun);
        let entered = slot.is_some_and(|index| commands.luns.slot(index).enter(declared.turn));
        commands.open(now, slot, &declared, entered);
        let Some(index) = slot else {
            return self.answer_absent(&declared);
        };
        if entered {
            self.begin_command(index, &command, false);
        } else if declared.sends_early {
            // The data of the command can be received now. Only the effect of the command waits for its turn,
            // and later commands wait for this one.
            commands
                .luns
                .slot(index)
                .waiting
                .push_back(Waiting::Data(declared.id));
            self.begin_command(index, &command, true);
        } else {
            commands
                .luns
                .slot(index)
                .waiting
                .push_back(Waiting::Begin(command));
        }
    }

    /// Has the logical unit plan a command.
    fn begin_command(&mut self, index: usize, command: &Self::Command, stage: bool) {
        let declared = Self::declared(command);
        debug_assert!(
            self.commands_mut()
                .held_task(declared.id)
                .is_some_and(|task| task.slot == Some(index) && task.entered != stage),
            "a command begins once, in its turn or with an effect that waits for it: {:?}",
            declared.id
        );
        let (slot, visible) = self.commands_mut().luns.slot_among(index);
        if let Some(fault) = declared.fault {
            let reply = slot.unit.misdeclared(fault);
            return self.answer(declared.id, reply);
        }
        match slot
            .unit
            .begin(&mut slot.nexus, &declared.command_in(visible, stage))
        {
            Plan::Reply(reply) => self.answer(declared.id, reply),
            Plan::Receive(receive) => self.receive(command, index, receive),
            // The command needs none of the data that the initiator declares.
            Plan::Run(job) if stage => self.await_turn(index, Waiting::Run(declared.id, job)),
            Plan::Run(job) => self.run_with_memory(declared.id, index, job),
        }
    }

    /// Finishes a command without data from the initiator, once memory for its own data is available.
    fn run_with_memory(&mut self, id: Self::Id, index: usize, job: Job) {
        let commands = self.commands_mut();
        if commands.waiting_for_memory.is_empty() && commands.charge(id, job.working_bytes()) {
            self.finish(id, index, job, Data::None);
        } else {
            commands.waiting_for_memory.push_back((id, job));
        }
    }

    /// Starts commands that waited for memory, in order.
    fn resume_waiting_for_memory(&mut self) {
        if !self.commands().waiting_for_memory.is_empty() {
            self.begin_with_memory();
        }
    }

    /// Implements [`ScsiSession::resume_waiting_for_memory`] for a queue that is not empty.
    #[cold]
    fn begin_with_memory(&mut self) {
        if std::mem::replace(&mut self.commands_mut().is_resuming, true) {
            return; // called from the loop below, which continues
        }
        while let Some((id, job)) = self.commands_mut().waiting_for_memory.pop_front() {
            let commands = self.commands_mut();
            let Some(index) = commands.held_task(id).and_then(|task| task.slot) else {
                continue; // the command ended while it waited
            };
            if !commands.charge(id, job.working_bytes()) {
                commands.waiting_for_memory.push_front((id, job));
                break;
            }
            self.finish(id, index, job, Data::None);
        }
        self.commands_mut().is_resuming = false;
    }

    /// Finishes a command whose data has arrived, when its turn comes.
    fn finish_in_turn(&mut self, id: Self::Id, index: usize, job: Job, data: Data) {
        let Commands { tasks, .. } = self.commands_mut();
        let Some(task) = task_of(tasks, id) else {
            return;
        };
        debug_assert!(
            matches!(task.state, TaskState::Held),
            "its data has arrived: {id:?}"
        );
        if task.entered {
            self.finish(id, index, job, data);
        } else {
            self.await_turn(index, Waiting::Finish(id, job, data));
        }
    }

    /// Replaces the entry of a command that waits for its turn.
    fn await_turn(&mut self, index: usize, waiting: Waiting<Self>) {
        let id = waiting.id();
        let is_its =
            |other: &&mut Waiting<Self>| matches!(other, Waiting::Data(other) if *other == id);
        match self
            .commands_mut()
            .luns
            .slot(index)
            .waiting
            .iter_mut()
            .find(is_its)
        {
            Some(place) => *place = waiting,
            None => debug_assert!(
                false,
                "a write that has not entered waits for its turn: {id:?}"
            ),
        }
    }

    /// Has the logical unit finish a command, immediately or as a task of the executor.
    fn finish(&mut self, id: Self::Id, index: usize, job: Job, data: Data) {
        debug_assert!(
            self.commands_mut()
                .held_task(id)
                .is_some_and(|task| task.slot == Some(index)),
            "{id:?} waits"
        );
        let luns = &mut self.commands_mut().luns;
        let is_short =
            job.working_bytes().max(data.buffer_bytes()) <= logical_unit::AT_ONCE_BYTES_MAX;
        match luns.slot(index).unit.finish(job, data) {
            Step::Now(reply) => self.answer(id, reply),
            Step::Later(Running { mut reply, watch }) => {
                luns.tally(index).note_wait();
                watch.time_requests(reactor::now);
                // With this first poll, a request reaches its device before the answers of this iteration are
                // sent. A command that completes in its first poll needs no task.
                let begun =
                    is_short.then(|| reply.as_mut().poll(&mut Context::from_waker(Waker::noop())));
                let reply: Pin<Box<dyn Future<Output = Reply>>> = match begun {
                    Some(Poll::Ready(reply)) if reply.effects.is_none() => {
                        return self.answer_reporting(id, reply, watch.reported_losses());
                    }
                    Some(Poll::Ready(reply)) => Box::pin(ready(reply)),
                    Some(Poll::Pending) | None => reply,
                };
                let task = self.commands().spawn(id, reply);
                self.commands_mut()
                    .set_state(id, TaskState::Running(Work { task, watch }));
            }
            Step::Lasting { reply, work } => {
                // The task continues after its handle is dropped. No command owns this work.
                drop(reactor::spawn(work));
                let task = self.commands().spawn(id, reply);
                self.commands_mut().set_state(id, TaskState::Lasting(task));
            }
        }
    }

    /// Answers a command that the device has completed.
    fn complete(&mut self, id: Self::Id, reply: Reply) {
        let commands = self.commands();
        let Some(task) = commands.task(id) else {
            return;
        };
        let losses = match &task.state {
            // The function that aborted the command answers it.
            TaskState::Cleared => return,
            TaskState::Running(work) => {
                if let Some(index) = task.slot {
                    commands
                        .luns
                        .tally(index)
                        .record_device(task.operation, work.watch.device_time());
                }
                work.watch.reported_losses()
            }
            _ => 0,
        };
        self.answer_reporting(id, reply, losses);
        self.after_answers();
    }

    /// Answers a command for a LUN that does not exist.
    fn answer_absent(&mut self, command: &Declared<'_, Self::Id>) {
        let answer = if command.lun == logical_unit::REPORT_LUNS_WELL_KNOWN {
            logical_unit::well_known
        } else {
            logical_unit::absent
        };
        let reply = answer(&command.command_in(&self.commands().luns.visible(), false));
        self.answer(command.id, reply);
    }

    /// Answers a task. Only the first answer counts: its data may be queued already.
    fn answer(&mut self, id: Self::Id, reply: Reply) {
        self.answer_reporting(id, reply, 0);
    }

    /// Answers a task with a reply that reports `losses` lost acknowledged writes; see
    /// [`ScsiSession::answer`].
    fn answer_reporting(&mut self, id: Self::Id, reply: Reply, losses: u64) {
        let Reply {
            status,
            sense,
            data,
            expected_bytes,
            effects: _,
        } = reply;
        let commands = self.commands_mut();
        if let DataIn::Bytes(bytes) = &data
            && bytes.len() > Self::UNCHARGED_BYTES
            && !commands.charge(id, bytes.len())
        {
            return self.answer(id, Reply::status(Status::TaskSetFull));
        }
        let Some(task) = task_of(&mut commands.tasks, id).filter(|task| !task.is_answered()) else {
            return;
        };
        if matches!(task.state, TaskState::Receiving) {
            commands.receiving[Self::index(id)] = None;
        }
        let data_bytes = data.len();
        task.state = TaskState::Answered(Self::outgoing(data));
        let (slot, operation) = (task.slot, task.operation);
        let entered = std::mem::take(&mut task.entered);
        commands.traffic.read_bytes += data_bytes as u64;
        let report = slot.filter(|_| losses > 0).map(|index| LossReport {
            nexus: commands.luns.slot(index).nexus.id().number(),
            losses,
        });
        let answer = Answer {
            status,
            sense: sense.as_ref(),
            data_bytes,
            expected_bytes,
            report,
        };
        if status != Status::Good {
            self.count_failure(slot, operation, &answer);
        }
        self.respond(id, answer);
        match (slot, entered) {
            (Some(index), true) => self.leave(index),
            (Some(index), false) => self.commands_mut().forget_turn(index, id),
            (None, _) => {}
        }
    }

    /// Counts an answer whose status is not GOOD.
    fn count_failure(&self, slot: Option<usize>, operation: Operation, answer: &Answer<'_>) {
        let commands = self.commands();
        match (failure(answer.status, answer.sense), slot) {
            (Failure::None, _) | (Failure::Of(_), None) => {}
            (Failure::UnitAttention(kind), _) => {
                commands
                    .tally
                    .note(Counted::UnitAttention, self.target(), kind)
            }
            (Failure::Of(kind), Some(index)) => commands.luns.tally(index).failed(operation, kind),
        }
    }

    /// Records that a command has left its LUN, and starts commands that waited for it.
    fn leave(&mut self, index: usize) {
        let slot = self.commands_mut().luns.slot(index);
        slot.leave();
        if !slot.waiting.is_empty() {
            self.begin_waiting(index);
        }
    }

    /// Starts waiting commands of a LUN, in the order of their arrival.
    #[cold]
    fn begin_waiting(&mut self, index: usize) {
        if std::mem::replace(&mut self.commands_mut().luns.slot(index).is_beginning, true) {
            return; // called from the loop below, which continues
        }
        while let Some(next) = self.commands_mut().luns.slot(index).waiting.pop_front() {
            let Commands { luns, tasks, .. } = self.commands_mut();
            let Some(task) = task_of(tasks, next.id()).filter(|task| next.is_still(&task.state))
            else {
                continue; // it ended while it waited, and never starts
            };
            let slot = luns.slot(index);
            if !slot.may_enter(task.turn) {
                slot.waiting.push_front(next);
                break;
            }
            slot.take_turn(task.turn);
            task.entered = true;
            match next {
                Waiting::Begin(command) => self.begin_command(index, &command, false),
                Waiting::Data(_) => {} // finished once its data has arrived
                Waiting::Run(id, job) => self.run_with_memory(id, index, job),
                Waiting::Finish(id, job, data) => self.finish(id, index, job, data),
            }
        }
        self.commands_mut().luns.slot(index).is_beginning = false;
    }

    /// Removes a command that [`Commands::clear`] has aborted, without answering it.
    fn forget_cleared(&mut self, id: Self::Id) {
        let place = self.commands_mut().tasks.get_mut(Self::index(id));
        let task = place.and_then(|place| place.take_if(|task| task.id == id));
        if let Some(Task {
            slot: Some(index),
            entered: true,
            ..
        }) = task
        {
            self.leave(index);
        }
    }

    /// Answers aborted commands with TASK ABORTED, because TAS is set in the control mode page (SPC-4 7.5.8).
    fn tell_aborted(&mut self, aborted: &[Self::Id]) {
        for id in aborted {
            self.answer(*id, Reply::status(Status::TaskAborted));
        }
        self.after_answers();
    }

    /// Ends commands that have waited too long according to the last [`Commands::observe`]. Returns the units
    /// whose devices are unresponsive, with the time since the request. The caller must fence these units.
    fn expire(&mut self, now: Instant) -> Vec<(Arc<LogicalUnit>, Duration)> {
        let commands = self.commands();
        let late = commands
            .observed()
            .filter_map(|(task, Observed { stage, since, .. })| {
                let (index, time) = (task.slot?, now.saturating_duration_since(since));
                let has_deadline = matches!(stage, WaitingFor::Others | WaitingFor::Device(_));
                (has_deadline && time > commands.luns.deadline(index))
                    .then_some((task.id, index, stage, time))
            });
        let late: Vec<_> = late.collect();
        let mut hung: Vec<(Arc<LogicalUnit>, Duration)> = Vec::new();
        for (id, index, stage, time) in late {
            let commands = self.commands_mut();
            // A command that expired earlier in this loop may have caused this one to start or to end.
            let Some(task) = task_of(&mut commands.tasks, id).filter(|task| task.stage() == stage)
            else {
                continue;
            };
            let TaskState::Running(work) = std::mem::replace(&mut task.state, TaskState::Held)
            else {
                // The command has not started, so it has changed nothing (SAM-5 5.3.1, BUSY).
                commands.forget_waiting(id);
                self.answer(id, Reply::status(Status::Busy));
                continue;
            };
            let (unit, others) = (commands.luns.unit(index), work.give_up());
            commands.aborted_units.add(std::slice::from_ref(&unit));
            commands.aborted_units.add(&others);
            if let WaitingFor::Device(request) = stage {
                let silent = request
                    .unit
                    .checked_sub(1)
                    .and_then(|other| others.get(other))
                    .unwrap_or(&unit);
                silent.volume().health().timed_out();
                if !hung.iter().any(|(known, _)| Arc::ptr_eq(known, silent)) {
                    hung.push((Arc::clone(silent), time));
                }
            }
            self.answer(id, unit.gave_up(DeviceError::TimedOut));
        }
        hung
    }
}

/// The answer of a command, without its data.
pub struct Answer<'a> {
    /// Its status.
    pub status: Status,
    /// The sense data; present with CHECK CONDITION.
    pub sense: Option<&'a SenseData>,
    /// The length of its data.
    pub data_bytes: usize,
    /// The length of data that the command requests ([`Reply::expected_bytes`]).
    pub expected_bytes: u64,
    /// The losses that the answer reports.
    pub report: Option<LossReport>,
}

/// Losses of acknowledged writes that a reply reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossReport {
    /// The number of the nexus.
    pub nexus: u64,
    /// The reported count.
    pub losses: u64,
}

/// A command, from its arrival until its last PDU is sent.
pub struct Task<S: ScsiSession> {
    /// Its name.
    pub id: S::Id,
    /// The index of its LUN; `None` if it was addressed to a LUN that does not exist.
    pub slot: Option<usize>,
    /// Its operation, for statistics.
    pub operation: Operation,
    state: TaskState<S>,
    turn: Turn,
    /// Whether the command has started and is counted at its LUN.
    entered: bool,
    started: Instant,
    /// Memory held for its data.
    charge: Option<Charge>,
}

/// The state of a command.
enum TaskState<S: ScsiSession> {
    /// The data of the command is being received ([`Commands::receiving`]).
    Receiving,
    /// The command waits for its turn, or for memory.
    Held,
    /// A task of the executor awaits the device.
    Running(Work),
    /// A task of the executor awaits the logical unit's own work (SANITIZE, FORMAT UNIT), which has no
    /// deadline.
    Lasting(JoinHandle<()>),
    /// The command was aborted, and must be answered once the device has quiesced.
    Cleared,
    /// The command was answered, and the transport is sending the data and response.
    Answered(S::Outgoing),
}

/// A command whose data is being received.
pub struct Receiving<S: ScsiSession> {
    /// The job that the logical unit finishes.
    pub job: Job,
    /// The destination of the data.
    pub landing: S::Landing,
}

/// A running command: a task of the executor that awaits its device.
struct Work {
    task: JoinHandle<()>,
    /// The progress of the command.
    watch: Rc<Watch>,
}

impl Work {
    /// Aborts the command. A command that must run to completion continues as a task. Returns the units,
    /// other than the unit of its LUN, whose devices may still execute the command.
    fn give_up(self) -> Vec<Arc<LogicalUnit>> {
        if !self.watch.is_committed() {
            self.task.abort();
        }
        self.watch.others().to_vec()
    }
}

/// A command that waits for its turn at a LUN.
pub enum Waiting<S: ScsiSession> {
    /// A command that has not begun.
    Begin(S::Command),
    /// A write whose data is arriving.
    Data(S::Id),
    /// A command that needs none of the data that its initiator declared.
    Run(S::Id, Job),
    /// A write whose data has arrived.
    Finish(S::Id, Job, Data),
}

impl<S: ScsiSession> Waiting<S> {
    fn id(&self) -> S::Id {
        match self {
            Waiting::Begin(command) => S::declared(command).id,
            Waiting::Data(id) | Waiting::Run(id, _) | Waiting::Finish(id, ..) => *id,
        }
    }

    /// Whether the command still waits in this way, given the state of its task.
    fn is_still(&self, state: &TaskState<S>) -> bool {
        match self {
            Waiting::Data(_) => matches!(state, TaskState::Receiving | TaskState::Held),
            Waiting::Begin(_) | Waiting::Run(..) | Waiting::Finish(..) => {
                matches!(state, TaskState::Held)
            }
        }
    }
}

/// The cause of a task's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingFor {
    /// Its turn, memory, or blocks locked by another command.
    Others,
    /// Its initiator's data.
    Data,
    /// This request to a device.
    Device(DeviceRequest),
    /// An operation of its logical unit, or the end of a task management function. Neither has a deadline
    /// here.
    Unit,
    /// The network.
    Sending,
}

/// A task at the last tick.
#[derive(Clone, Copy, Debug)]
pub struct Observed<I> {
    task: I,
    /// The cause of its wait.
    pub stage: WaitingFor,
    /// The first tick at which the task waited for this cause.
    pub since: Instant,
}

impl<S: ScsiSession> Task<S> {
    /// Whether the data of the command is being received.
    pub fn is_receiving(&self) -> bool {
        matches!(self.state, TaskState::Receiving)
    }

    /// Whether the command was aborted and still has to be answered.
    pub fn is_cleared(&self) -> bool {
        matches!(self.state, TaskState::Cleared)
    }

    /// The data that the task sends, if it was answered.
    pub fn outgoing(&self) -> Option<&S::Outgoing> {
        match &self.state {
            TaskState::Answered(outgoing) => Some(outgoing),
            _ => None,
        }
    }

    /// Whether the command was answered and the answer is being sent.
    pub fn is_answered(&self) -> bool {
        matches!(self.state, TaskState::Answered(_))
    }

    /// Whether memory is charged for the command.
    pub fn holds_memory(&self) -> bool {
        self.charge.is_some()
    }

    fn stage(&self) -> WaitingFor {
        match &self.state {
            TaskState::Receiving => WaitingFor::Data,
            TaskState::Held => WaitingFor::Others,
            TaskState::Running(work) => work
                .watch
                .request()
                .map_or(WaitingFor::Others, WaitingFor::Device),
            TaskState::Lasting(_) | TaskState::Cleared => WaitingFor::Unit,
            TaskState::Answered(_) => WaitingFor::Sending,
        }
    }

    /// Returns the current cause of the task's wait, and the start of the wait.
    fn observe(&self, before: Option<Observed<S::Id>>, now: Instant) -> Observed<S::Id> {
        let stage = self.stage();
        let since = match before.filter(|before| before.task == self.id) {
            Some(before) if before.stage == stage => before.since,
            // A command that arrived after the last tick has waited since its arrival.
            None if stage == WaitingFor::Others => self.started,
            _ => now,
        };
        Observed {
            task: self.id,
            stage,
            since,
        }
    }
}

/// Commands that were aborted because their LUNs were removed.
#[must_use]
pub struct Removed<I> {
    /// The units whose devices may still execute them.
    units: Vec<Arc<LogicalUnit>>,
    /// The commands to answer once these devices have quiesced.
    tasks: Vec<I>,
}

/// The commands of a session, and their shared state.
pub struct Commands<S: ScsiSession> {
    /// The LUNs that the session sees.
    pub luns: Luns<Waiting<S>>,
    /// Counters of bytes and commands.
    pub traffic: Traffic,
    /// The memory limit of its commands.
    pub budget: Rc<Budget>,
    session: Weak<RefCell<S>>,
    server: Arc<Server>,
    tally: Rc<CoreTally>,
    /// The duration of the latest answered command.
    span: Span,
    /// All tasks, by [`ScsiSession::index`].
    tasks: Vec<Option<Task<S>>>,
    /// The tasks in state [`TaskState::Receiving`], by the same index. The entries are too large to be part
    /// of every task.
    receiving: Vec<Option<Receiving<S>>>,
    /// Each task at the last tick, by the same index.
    observed: Vec<Option<Observed<S::Id>>>,
    waiting_for_memory: VecDeque<(S::Id, Job)>,
    /// Whether [`ScsiSession::resume_waiting_for_memory`] is running.
    is_resuming: bool,
    /// Units whose devices may still execute aborted commands.
    aborted_units: AbortedUnits,
}

/// Returns the task with this name, if it still exists.
fn task_of<S: ScsiSession>(tasks: &mut [Option<Task<S>>], id: S::Id) -> Option<&mut Task<S>> {
    tasks
        .get_mut(S::index(id))?
        .as_mut()
        .filter(|task| task.id == id)
}

impl<S: ScsiSession> Commands<S> {
    /// Creates the commands of a new session.
    pub fn new(
        session: Weak<RefCell<S>>,
        server: Arc<Server>,
        tally: Rc<CoreTally>,
        luns: Luns<Waiting<S>>,
        budget: Rc<Budget>,
    ) -> Commands<S> {
        let now = reactor::now();
        Commands {
            luns,
            traffic: Traffic::default(),
            budget,
            session,
            server,
            tally,
            span: Span::new(now, now),
            tasks: Vec::new(),
            receiving: Vec::new(),
            observed: Vec::new(),
            waiting_for_memory: VecDeque::new(),
            is_resuming: false,
            aborted_units: AbortedUnits::default(),
        }
    }

    #[inline]
    fn open(
        &mut self,
        started: Instant,
        slot: Option<usize>,
        command: &Declared<'_, S::Id>,
        entered: bool,
    ) {
        let (id, index) = (command.id, S::index(command.id));
        debug_assert_eq!(
            self.tasks.len(),
            self.receiving.len(),
            "each task has a buffer for its data"
        );
        if self.tasks.len() <= index {
            self.tasks.resize_with(index + 1, || None);
            self.receiving.resize_with(index + 1, || None);
        }
        debug_assert!(
            self.tasks[index].is_none(),
            "a name is used again when its task is gone: {id:?}"
        );
        self.tasks[index] = Some(Task {
            id,
            slot,
            operation: operation(command.cdb.first().copied().unwrap_or(0)),
            state: TaskState::Held,
            turn: command.turn,
            entered,
            started,
            charge: None,
        });
    }

    /// Spawns a task that awaits the device and completes the command. The effects of the command on other
    /// commands are executed before it is answered, even if it was aborted in the meantime.
    fn spawn(&self, id: S::Id, work: Pin<Box<dyn Future<Output = Reply>>>) -> JoinHandle<()> {
        let (session, server) = (Weak::clone(&self.session), Arc::clone(&self.server));
        reactor::spawn(async move {
            let mut reply = work.await;
            if let Some(effects) = reply.effects.take() {
                // Box this future, because few commands need its space.
                Box::pin(settle(server, Weak::clone(&session), id, effects)).await;
            }
            with(&session, |session| session.complete(id, reply));
        })
    }

    /// Returns a task, if it still exists.
    pub fn task(&self, id: S::Id) -> Option<&Task<S>> {
        self.tasks
            .get(S::index(id))?
            .as_ref()
            .filter(|task| task.id == id)
    }

    fn task_mut(&mut self, id: S::Id) -> Option<&mut Task<S>> {
        task_of(&mut self.tasks, id)
    }

    /// All tasks.
    pub fn tasks(&self) -> impl Iterator<Item = &Task<S>> {
        self.tasks.iter().flatten()
    }

    /// Returns a task that waits for its turn or for memory; `None` if it was aborted in the meantime.
    fn held_task(&mut self, id: S::Id) -> Option<&mut Task<S>> {
        self.task_mut(id)
            .filter(|task| matches!(task.state, TaskState::Held))
    }

    /// Starts to receive the data of a held task into `landing`. Afterwards, the logical unit finishes `job`.
    pub fn receive(&mut self, id: S::Id, job: Job, landing: S::Landing) {
        if let Some(task) = self.held_task(id) {
            task.state = TaskState::Receiving;
            let place = &mut self.receiving[S::index(id)];
            debug_assert!(
                place.is_none(),
                "the data of an earlier task is left: {id:?}"
            );
            *place = Some(Receiving { job, landing });
        }
    }

    /// Returns a task whose data is being received.
    pub fn receiving(&self, id: S::Id) -> Option<&Receiving<S>> {
        self.task(id)
            .and(self.receiving.get(S::index(id))?.as_ref())
    }

    /// Returns a task whose data is being received.
    pub fn receiving_mut(&mut self, id: S::Id) -> Option<&mut Receiving<S>> {
        let place = self.receiving.get_mut(S::index(id))?;
        task_of(&mut self.tasks, id).and(place.as_mut())
    }

    /// Records that all data of a task has arrived. The task now waits for its turn; returns the index of its
    /// LUN.
    pub fn received(&mut self, id: S::Id) -> Option<(usize, Receiving<S>)> {
        let task = task_of(&mut self.tasks, id)?;
        let (Some(slot), TaskState::Receiving) = (task.slot, &task.state) else {
            return None;
        };
        task.state = TaskState::Held;
        debug_assert!(
            self.receiving[S::index(id)].is_some(),
            "its data had a destination: {id:?}"
        );
        Some((slot, self.receiving[S::index(id)].take()?))
    }

    /// Returns the data that an answered task sends.
    pub fn outgoing_mut(&mut self, id: S::Id) -> Option<&mut S::Outgoing> {
        match &mut task_of(&mut self.tasks, id)?.state {
            TaskState::Answered(outgoing) => Some(outgoing),
            _ => None,
        }
    }

    fn set_state(&mut self, id: S::Id, state: TaskState<S>) {
        if let Some(task) = self.task_mut(id) {
            task.state = state;
        }
    }

    /// An unused index.
    pub fn free_index(&self) -> usize {
        self.tasks
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.tasks.len())
    }

    /// Returns the number of outstanding commands.
    pub fn in_flight(&self) -> usize {
        self.tasks().count()
    }

    /// Adds the numbers of outstanding commands to `in_flight`, by the address of their volume.
    pub fn count_in_flight(&self, in_flight: &mut BTreeMap<usize, u64>) {
        for index in self.tasks().filter_map(|task| task.slot) {
            *in_flight
                .entry(Arc::as_ptr(self.luns.unit_at(index).volume()) as usize)
                .or_default() += 1;
        }
    }

    /// Charges memory for a command's data; returns false if it is not available. The charge is released with
    /// the task.
    pub fn charge(&mut self, id: S::Id, bytes: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let Some(charge) = self.budget.take(bytes) else {
            return false;
        };
        if let Some(task) = self.task_mut(id) {
            match &mut task.charge {
                Some(held) => held.merge(charge),
                None => task.charge = Some(charge),
            }
        }
        true
    }

    /// Records that the answer of a task has been sent: counts the task, removes it and releases its memory.
    /// The caller must then call [`ScsiSession::resume_waiting_for_memory`].
    pub fn sent(&mut self, id: S::Id, now: Instant) -> Option<S::Outgoing> {
        let place = self.tasks.get_mut(S::index(id))?;
        let task = place.as_mut().filter(|task| task.id == id)?;
        debug_assert!(
            task.is_answered() && !task.entered,
            "{id:?} has been answered"
        );
        if let Some(index) = task.slot {
            self.span = self.span.to(task.started, now);
            self.luns.tally(index).record(task.operation, self.span);
        }
        let state = std::mem::replace(&mut task.state, TaskState::Cleared);
        *place = None;
        match state {
            TaskState::Answered(outgoing) => Some(outgoing),
            _ => None,
        }
    }

    /// Removes a command that has ended from the commands that wait for their turn.
    fn forget_turn(&mut self, index: usize, id: S::Id) {
        self.luns
            .slot(index)
            .waiting
            .retain(|waiting| waiting.id() != id);
    }

    /// Removes a command that ends before it has started from all queues, because its data must not outlive
    /// its charge.
    fn forget_waiting(&mut self, id: S::Id) {
        if let Some(index) = self.task(id).and_then(|task| task.slot) {
            self.forget_turn(index, id);
        }
        self.waiting_for_memory
            .retain(|(waiting, _)| *waiting != id);
    }

    /// Records that the initiator has received an answer that reported losses of acknowledged writes.
    pub fn note_told(&self, report: LossReport) {
        if let Some(nexus) = self.luns.nexus(report.nexus) {
            nexus.note_told(report.losses);
        }
    }

    /// Aborts a command's device requests, drops its further data, and frees its memory. Adds the units whose
    /// devices may still execute the command to `units`.
    pub fn clear(&mut self, id: S::Id, units: &mut Vec<Arc<LogicalUnit>>) {
        let Some(task) = task_of(&mut self.tasks, id).filter(|task| !task.is_answered()) else {
            return;
        };
        task.charge = None;
        let own = task.slot.map(|index| self.luns.unit(index));
        match std::mem::replace(&mut task.state, TaskState::Cleared) {
            TaskState::Running(work) => {
                for more in [own.as_slice(), &work.give_up()] {
                    self.aborted_units.add(more);
                    add_units(units, more);
                }
            }
            TaskState::Lasting(reply) => reply.abort(), // the operation continues
            TaskState::Held => self.forget_waiting(id),
            // An earlier function aborted the command, but the devices may still have its requests.
            TaskState::Cleared => {
                add_units(units, own.as_slice());
                add_units(units, &self.aborted_units.open());
            }
            TaskState::Receiving => self.receiving[S::index(id)] = None,
            TaskState::Answered(_) => {}
        }
    }

    /// Aborts every command that uses `unit`, except `except` and commands that were already answered. Adds
    /// the units that the commands used to `units`. The aborted commands have no further effect once the
    /// devices have quiesced; the caller must then answer them with [`ScsiSession::tell_aborted`].
    #[must_use]
    pub fn clear_unit(
        &mut self,
        unit: &Arc<LogicalUnit>,
        except: Option<S::Id>,
        units: &mut Vec<Arc<LogicalUnit>>,
    ) -> Vec<S::Id> {
        let doomed = self
            .tasks_of(unit)
            .filter(|task| Some(task.id) != except && !task.is_answered());
        let cleared: Vec<S::Id> = doomed.map(|task| task.id).collect();
        cleared.iter().for_each(|id| self.clear(*id, units));
        debug_assert!(
            cleared
                .iter()
                .all(|id| self.task(*id).is_some_and(Task::is_cleared)),
            "a cleared task stays in the table"
        );
        cleared
    }

    /// Returns the commands that use `unit`: commands for its LUN, and copies that another LUN received.
    pub fn tasks_of(&self, unit: &Arc<LogicalUnit>) -> impl Iterator<Item = &Task<S>> {
        let same = |other: &Arc<LogicalUnit>| Arc::ptr_eq(other, unit);
        self.tasks().filter(move |task| {
            let others = match &task.state {
                TaskState::Running(work) => work.watch.others(),
                _ => &[],
            };
            task.slot
                .is_some_and(|index| same(self.luns.unit_at(index)))
                || others.iter().any(same)
        })
    }

    /// Takes the units whose devices may still execute aborted commands.
    pub fn take_aborted_units(&mut self) -> Vec<Arc<LogicalUnit>> {
        self.aborted_units.take()
    }

    /// Aborts all commands without answering them. Returns the units whose devices may still execute them.
    pub fn end(&mut self) -> Vec<Arc<LogicalUnit>> {
        let mut units = self.aborted_units.take();
        let all: Vec<S::Id> = self.tasks().map(|task| task.id).collect();
        all.iter().for_each(|id| self.clear(*id, &mut units));
        self.tasks.clear();
        self.receiving.clear();
        debug_assert!(
            self.waiting_for_memory.is_empty(),
            "no command waits that has ended"
        );
        debug_assert!(
            self.luns.iter().all(|slot| slot.waiting.is_empty()),
            "no command that has ended waits for its turn"
        );
        units
    }

    /// Changes the session's LUNs to those of `exports`. Returns the commands that were aborted because their
    /// LUN was removed, for [`tell_removed`].
    pub fn adapt_luns(&mut self, exports: &[Export]) -> Removed<S::Id> {
        let mut removed = Removed {
            units: Vec::new(),
            tasks: Vec::new(),
        };
        for place in self.luns.remove_gone(exports) {
            let unit = self.luns.unit(place);
            let is_gone = !self.luns.shows(&unit); // false if the unit is also at another LUN
            let doomed =
                |task: &&Task<S>| !task.is_answered() && (is_gone || task.slot == Some(place));
            let cleared: Vec<S::Id> = self
                .tasks_of(&unit)
                .filter(doomed)
                .map(|task| task.id)
                .collect();
            cleared
                .iter()
                .for_each(|id| self.clear(*id, &mut removed.units));
            debug_assert!(
                self.tasks().all(|task| task.slot != Some(place)
                    || task.is_answered()
                    || task.is_cleared()),
                "no command of a removed LUN continues"
            );
            removed.tasks.extend(cleared);
            add_units(&mut removed.units, &[unit]);
        }
        if self.luns.add_missing(exports) > 0 || !removed.units.is_empty() {
            self.luns.tell_changed();
        }
        self.sweep_luns();
        removed
    }

    /// Frees removed LUNs once no command needs them.
    pub fn sweep_luns(&mut self) {
        if self.luns.are_some_gone() {
            let tasks = &self.tasks;
            self.luns
                .sweep(|place| tasks.iter().flatten().any(|task| task.slot == Some(place)));
        }
    }

    /// Returns the nexus of this session at `unit`.
    pub fn nexus_of(&self, unit: &Arc<LogicalUnit>) -> Option<NexusId> {
        self.luns.user_of(unit.volume()).map(|(_, nexus)| nexus)
    }

    /// Records the cause of each task's wait; [`Commands::observed`] returns the records.
    pub fn observe(&mut self, now: Instant) {
        self.observed.resize(self.tasks.len(), None);
        debug_assert!(
            self.tasks().all(|task| self.task(task.id).is_some()),
            "each task is at the index of its name"
        );
        debug_assert!(
            self.tasks
                .iter()
                .zip(&self.receiving)
                .all(|(task, receiving)| {
                    let receives = task
                        .as_ref()
                        .is_some_and(|task| matches!(task.state, TaskState::Receiving));
                    receives == receiving.is_some()
                }),
            "memory for data is a receiving task's, and no other's"
        );
        for (task, observed) in self.tasks.iter().zip(&mut self.observed) {
            *observed = task.as_ref().map(|task| task.observe(*observed, now));
        }
    }

    /// Each task that still exists, with its last observation.
    pub fn observed(&self) -> impl Iterator<Item = (&Task<S>, Observed<S::Id>)> {
        let tasks = self.tasks.iter().zip(&self.observed);
        let tasks = tasks.filter_map(|(task, observed)| Some((task.as_ref()?, (*observed)?)));
        tasks.filter(|(task, observed)| task.id == observed.task)
    }
}

/// Calls `what` with the session if it still exists.
pub fn with<S, T>(session: &Weak<RefCell<S>>, what: impl FnOnce(&mut S) -> T) -> Option<T> {
    session
        .upgrade()
        .map(|session| what(&mut session.borrow_mut()))
}

/// Executes the effects of a command on other commands and sessions, before the command is answered.
async fn settle<S: ScsiSession>(
    server: Arc<Server>,
    session: Weak<RefCell<S>>,
    id: S::Id,
    effects: Box<[Effect]>,
) {
    for Effect::AbortTasks { unit, nexuses, by } in effects {
        let mut units = vec![Arc::clone(&unit)];
        // In the command's own nexus, all commands except this one are aborted.
        let own = nexuses.contains(&by);
        let abort_own = |session: &mut S| session.abort_own(&unit, Some(id), &mut units);
        let untold = if own { with(&session, abort_own) } else { None };
        let volume = Arc::clone(unit.volume());
        server
            .abort(AbortOrder {
                volume,
                owners: Owners::These(nexuses),
                spared: Some(by),
            })
            .await;
        quiesce(&server, units).await;
        with(&session, |session| {
            session.tell_aborted(&untold.unwrap_or_default())
        });
    }
}

/// Aborts the commands of a core's sessions that the order selects ([`front_end_core::CoreFrontEnd::abort`]).
/// Commands of other initiators are answered once the devices have quiesced, because the initiators may then
/// retry the commands.
pub fn abort_ordered<S: ScsiSession>(
    server: &Arc<Server>,
    sessions: &[Rc<RefCell<S>>],
    order: &AbortOrder,
    done: &Sender<()>,
) {
    let (mut cleared, mut others) = (Vec::new(), Vec::new());
    for shared in sessions {
        let mut session = shared.borrow_mut();
        let commands = session.commands_mut();
        let Some((unit, nexus)) = commands.luns.user_of(&order.volume) else {
            continue;
        };
        if order.is_about(nexus) {
            cleared.push((
                Rc::downgrade(shared),
                commands.clear_unit(&unit, None, &mut others),
            ));
        }
    }
    cleared.retain(|(_, tasks)| !tasks.is_empty());
    others.retain(|other| !Arc::ptr_eq(other.volume(), &order.volume));
    if !cleared.is_empty() || !others.is_empty() {
        let (server, done, volume) = (
            Arc::clone(server),
            Sender::clone(done),
            Arc::clone(&order.volume),
        );
        drop(reactor::spawn(async move {
            quiesce(&server, others).await;
            drop(done);
            server.quiesce(vec![volume]).await;
            for (session, tasks) in cleared {
                with(&session, |session| session.tell_aborted(&tasks));
            }
        }));
    }
}

/// Answers commands for removed LUNs once the devices have quiesced, frees the slots of these LUNs, and then
/// drops `done`.
pub fn tell_removed<S: ScsiSession>(
    server: &Arc<Server>,
    session: &Rc<RefCell<S>>,
    removed: Removed<S::Id>,
    done: &Sender<()>,
) {
    let Removed { units, tasks } = removed;
    if units.is_empty() {
        return;
    }
    let (server, session, done) = (
        Arc::clone(server),
        Rc::downgrade(session),
        Sender::clone(done),
    );
    drop(reactor::spawn(async move {
        quiesce(&server, units).await;
        with(&session, |session| {
            session.tell_aborted(&tasks);
            session.commands_mut().sweep_luns();
        });
        drop(done);
    }));
}
