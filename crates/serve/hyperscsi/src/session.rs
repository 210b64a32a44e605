//! A session on its core: connects the protocol machine to the logical units and holds the commands between them.
//!
//! The machine announces a command with its data; the logical unit plans it and finishes it, at once or as a task of the
//! executor; the reply goes to the machine, which sends it until it is acknowledged. Nothing here blocks.
//!
//! The states of a task:
//!
//! ```text
//!   Held ── turn and memory ─► finish ─┬─ Later ───► Running ─┐
//!                                      ├─ Lasting ─► Lasting ─┼─► answered: removed
//!                                      └─ Now ────────────────┘
//!   any ── aborted ──► Cleared ── devices quiesced ──► answered: removed
//! ```

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, ready};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use block::Buffer;
use front_end_core::{AUDIT, Budget, Charge, HostAddress, Operation, SessionInfo, Span, Traffic};
use hyperscsi::target::{SessionId, TaskId};
use hyperscsi::{Command, Counters, Payload, Response, TaskAttribute};
use logical_unit::{
    CommandIn, Data, DataIn, InitiatorPort, Job, Landing, LogicalUnit, Misdeclared, NexusId, Plan, Receive,
    Reply, Running, Status, Step, TargetPort,
};
use reactor::JoinHandle;
use scsi_session::{AbortedUnits, Failure, Luns, Turn, Work, add_units, failure, operation};
use volume::Volume;

use crate::config::{Config, Target};
use crate::core::CoreSessions;
use crate::front_end::HYPERSCSI;
use crate::late::Waited;
use crate::management;
use crate::status::{PathStatus, SessionStatus};

/// A session, shared by its running commands.
pub(crate) type SharedSession = Rc<RefCell<Session>>;

/// A session that has begun.
pub(crate) struct Began {
    pub(crate) id: SessionId,
    /// Our number of it.
    pub(crate) handle: u16,
    pub(crate) initiator: String,
    /// The name under which monitoring has it.
    pub(crate) counted_as: Arc<str>,
    pub(crate) port: u32,
    pub(crate) target: Arc<Target>,
    /// Its name is proven.
    pub(crate) is_encrypted: bool,
    /// Where it logged in from, and by which portal.
    pub(crate) peer: HostAddress,
    pub(crate) portal: String,
}

/// A session.
pub(crate) struct Session {
    began: Began,
    started: Instant,
    this: Weak<RefCell<Session>>,
    pub(crate) core: Rc<CoreSessions>,
    pub(crate) luns: Luns<Waiting>,
    pub(crate) tasks: BTreeMap<u64, Task>,
    /// Memory its commands may hold.
    budget: Rc<Budget>,
    /// Commands that wait for memory.
    waiting_for_memory: VecDeque<(u64, Job)>,
    is_resuming: bool,
    traffic: Traffic,
    /// Of the latest command that was answered.
    span: Span,
    /// Losses of acknowledged writes that replies report, until the initiator has these: by their commands, the nexus and
    /// the count.
    telling: BTreeMap<u64, (u64, u64)>,
    /// Units whose devices may still carry out aborted commands.
    aborted_units: AbortedUnits,
}

/// A command between its arrival and its reply.
pub(crate) struct Task {
    /// `None`: addressed to a LUN that does not exist.
    pub(crate) slot: Option<usize>,
    turn: Turn,
    operation: Operation,
    /// It has begun and is counted at its LUN.
    entered: bool,
    pub(crate) started: Instant,
    pub(crate) state: TaskState,
    /// Memory held for its data.
    charge: Option<Charge>,
    /// What the initiator has room for, and what it has sent.
    data_in_bytes: u32,
    data_out_bytes: u32,
    pub(crate) waited: Option<Waited>,
}

pub(crate) enum TaskState {
    /// It waits for its turn, or for memory.
    Held,
    /// A task of the executor awaits its device.
    Running(Work),
    /// A task of the executor awaits the logical unit's own work (SANITIZE, FORMAT UNIT), which has no
    /// deadline.
    Lasting(JoinHandle<()>),
    /// Aborted; answered once the device has quiesced.
    Cleared,
}

/// What waits for its turn at a LUN.
pub(crate) struct Waiting {
    number: u64,
    command: Command,
}

/// Commands that were aborted because their LUNs were removed.
#[derive(Default)]
pub(crate) struct Removed {
    /// The units whose devices may still carry them out.
    pub(crate) units: Vec<Arc<LogicalUnit>>,
    /// To be answered by [`Session::tell_aborted`] when these have quiesced.
    pub(crate) tasks: Vec<u64>,
}

impl Session {
    pub(crate) fn begin(core: &Rc<CoreSessions>, began: Began) -> SharedSession {
        let [a, b, c, d] = began.port.to_be_bytes();
        let initiator =
            InitiatorPort { name: format!("{HYPERSCSI}:{}", began.initiator), qualifier: [0, 0, a, b, c, d] };
        let port = TargetPort {
            name: format!("{HYPERSCSI}:{}", began.target.name),
            group: TARGET_PORT,
            relative_port: TARGET_PORT,
        };
        let now = reactor::now();
        let mut luns = Luns::new(&[], initiator, port, Rc::clone(&core.tally));
        luns.add_missing(&exports(&began.target, &began.initiator));
        Rc::new_cyclic(|this| {
            RefCell::new(Session {
                started: now,
                this: Weak::clone(this),
                luns,
                tasks: BTreeMap::new(),
                budget: Budget::new(core.memory.limit(), Some(Rc::clone(&core.memory))),
                waiting_for_memory: VecDeque::new(),
                is_resuming: false,
                traffic: Traffic::default(),
                span: Span::new(now, now),
                telling: BTreeMap::new(),
                aborted_units: AbortedUnits::default(),
                core: Rc::clone(core),
                began,
            })
        })
    }

    pub(crate) fn weak(&self) -> Weak<RefCell<Session>> {
        Weak::clone(&self.this)
    }

    pub(crate) fn id(&self) -> SessionId {
        self.began.id
    }

    pub(crate) fn handle(&self) -> u16 {
        self.began.handle
    }

    pub(crate) fn target(&self) -> &str {
        &self.began.target.name
    }

    pub(crate) fn counted_as(&self) -> Arc<str> {
        Arc::clone(&self.began.counted_as)
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic
    }

    pub(crate) fn is_called(&self, handle: Option<u16>, initiator: &str) -> bool {
        handle == Some(self.began.handle) || self.began.initiator == initiator
    }

    /// A command has arrived.
    pub(crate) fn arrive(&mut self, now: Instant, number: u64, command: Command) {
        self.traffic.commands += 1;
        let lun = u64::from_be_bytes(command.lun);
        let index = self.luns.find(lun);
        let turn = turn(command.attribute);
        let entered = index.is_some_and(|index| self.luns.slot(index).enter(turn));
        let task = Task {
            slot: index,
            turn,
            operation: operation(command.cdb.first().copied().unwrap_or(0)),
            entered,
            started: now,
            state: TaskState::Held,
            charge: None,
            data_in_bytes: command.data_in_bytes,
            data_out_bytes: command.data_out.len() as u32,
            waited: None,
        };
        self.tasks.insert(number, task);
        match index {
            None => self.answer_absent(number, &command),
            Some(index) if entered => self.begin_command(number, index, &command),
            Some(index) => self.luns.slot(index).waiting.push_back(Waiting { number, command }),
        }
    }

    fn begin_command(&mut self, number: u64, index: usize, command: &Command) {
        let (slot, visible) = self.luns.slot_among(index);
        if let Some(fault) = misdeclared(command) {
            let reply = slot.unit.misdeclared(fault);
            return self.answer(number, reply);
        }
        let command_in = CommandIn {
            cdb: &command.cdb,
            data_out_bytes: command.data_out.len() as u32,
            data_in_bytes: command.data_in_bytes,
            luns: visible,
            stage: false,
        };
        match slot.unit.begin(&mut slot.nexus, &command_in) {
            Plan::Reply(reply) => self.answer(number, reply),
            Plan::Receive(receive) => self.receive(number, receive, &command.data_out),
            Plan::Run(job) => self.run_with_memory(number, job),
        }
    }

    /// Takes a command's data, which are here already.
    fn receive(&mut self, number: u64, receive: Receive, data: &[u8]) {
        let Receive { bytes, place, job } = receive;
        let data = &data[..data.len().min(bytes as usize)];
        let buffer_bytes = match place {
            Landing::Memory(_) => 0,
            Landing::Buffer => Buffer::memory_bytes(data.len()),
        };
        if !self.charge(number, buffer_bytes + job.working_bytes()) {
            // Bounded memory comes first; initiators retry this (SAM-5 5.3.1, TASK SET FULL).
            return self.answer(number, Reply::status(Status::TaskSetFull));
        }
        if job.writes_blocks() {
            self.traffic.written_bytes += data.len() as u64;
            if let Some(index) = self.tasks.get(&number).and_then(|task| task.slot) {
                self.luns.tally(index).moved(0, data.len() as u64);
            }
        }
        let data = match place {
            Landing::Memory(mut blocks) => {
                blocks.put(0, data);
                Data::Placed
            }
            Landing::Buffer => Data::Buffer(Buffer::from(data)),
        };
        self.finish(number, job, data);
    }

    /// Finishes a command that takes nothing from the initiator, once there is memory for what it reads.
    fn run_with_memory(&mut self, number: u64, job: Job) {
        if self.waiting_for_memory.is_empty() && self.charge(number, job.working_bytes()) {
            self.finish(number, job, Data::None);
        } else {
            self.waiting_for_memory.push_back((number, job));
        }
    }

    /// Starts commands that waited for memory, in order.
    pub(crate) fn resume_waiting_for_memory(&mut self) {
        if std::mem::replace(&mut self.is_resuming, true) {
            return; // what is started below has ended: the loop goes on
        }
        while let Some((number, job)) = self.waiting_for_memory.pop_front() {
            if !self.is_held(number) {
                continue; // ended while it waited
            }
            if !self.charge(number, job.working_bytes()) {
                self.waiting_for_memory.push_front((number, job));
                break;
            }
            self.finish(number, job, Data::None);
        }
        self.is_resuming = false;
    }

    /// Charges memory for a command's data; it is returned with the task.
    fn charge(&mut self, number: u64, bytes: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let Some(charge) = self.budget.take(bytes) else { return false };
        if let Some(task) = self.tasks.get_mut(&number) {
            task.charge = Some(charge);
        }
        true
    }

    /// Whether a task waits for its turn or for memory; not if it was aborted meanwhile.
    fn is_held(&self, number: u64) -> bool {
        self.tasks.get(&number).is_some_and(|task| matches!(task.state, TaskState::Held))
    }

    fn finish(&mut self, number: u64, job: Job, data: Data) {
        let Some(index) = self.tasks.get(&number).and_then(|task| task.slot) else { return };
        let is_short = job.working_bytes().max(data.buffer_bytes()) <= logical_unit::AT_ONCE_BYTES_MAX;
        match self.luns.slot(index).unit.finish(job, data) {
            Step::Now(reply) => self.answer(number, reply),
            Step::Later(Running { mut reply, watch }) => {
                self.luns.tally(index).note_wait();
                watch.time_requests(reactor::now);
                // Begun here, a request is with its device before this round's replies are sent, and what a
                // device ends at once needs no task.
                let begun = is_short.then(|| reply.as_mut().poll(&mut Context::from_waker(Waker::noop())));
                let reply: Pin<Box<dyn Future<Output = Reply>>> = match begun {
                    Some(Poll::Ready(reply)) if reply.effects.is_none() => {
                        return self.answer_reporting(number, reply, watch.reported_losses());
                    }
                    Some(Poll::Ready(reply)) => Box::pin(ready(reply)),
                    Some(Poll::Pending) | None => reply,
                };
                let task = self.spawn(number, reply);
                self.set_state(number, TaskState::Running(Work { task, watch }));
            }
            Step::Lasting { reply, work } => {
                // A dropped handle lets the task run on: no command owns this work.
                drop(reactor::spawn(work));
                let task = self.spawn(number, reply);
                self.set_state(number, TaskState::Lasting(task));
            }
        }
    }

    /// Spawns a task that awaits the device and completes the command. The command's other effects are
    /// carried out before its reply, also if it was aborted meanwhile.
    fn spawn(&self, number: u64, work: Pin<Box<dyn Future<Output = Reply>>>) -> JoinHandle<()> {
        let (session, server) = (self.weak(), Arc::clone(&self.core.server));
        reactor::spawn(async move {
            let mut reply = work.await;
            if let Some(effects) = reply.effects.take() {
                Box::pin(management::settle(server, Weak::clone(&session), number, effects)).await;
            }
            if let Some(session) = session.upgrade() {
                session.borrow_mut().complete(number, reply);
            }
        })
    }

    fn set_state(&mut self, number: u64, state: TaskState) {
        if let Some(task) = self.tasks.get_mut(&number) {
            task.state = state;
        }
    }

    /// The device has completed a command.
    fn complete(&mut self, number: u64, reply: Reply) {
        // One that was ended is told that, when everything is told so.
        let losses = match self.tasks.get(&number).map(|task| (task, &task.state)) {
            None | Some((_, TaskState::Cleared)) => return,
            Some((task, TaskState::Running(work))) => {
                if let Some(index) = task.slot {
                    self.luns.tally(index).record_device(task.operation, work.watch.device_time());
                }
                work.watch.reported_losses()
            }
            Some(_) => 0,
        };
        self.answer_reporting(number, reply, losses);
    }

    fn answer_absent(&mut self, number: u64, command: &Command) {
        let visible = self.luns.visible();
        let lun = u64::from_be_bytes(command.lun);
        let answer = if lun == logical_unit::REPORT_LUNS_WELL_KNOWN {
            logical_unit::well_known
        } else {
            logical_unit::absent
        };
        let reply = answer(&CommandIn {
            cdb: &command.cdb,
            data_out_bytes: command.data_out.len() as u32,
            data_in_bytes: command.data_in_bytes,
            luns: &visible,
            stage: false,
        });
        self.answer(number, reply);
    }

    /// Answers a task. Only the first answer counts.
    pub(crate) fn answer(&mut self, number: u64, reply: Reply) {
        self.answer_reporting(number, reply, 0);
    }

    /// The same with a reply that reports so many losses of acknowledged writes.
    fn answer_reporting(&mut self, number: u64, mut reply: Reply, losses: u64) {
        let Some(task) = self.tasks.remove(&number) else { return };
        // What waits for its turn has its data there, which are not to outlive it: their credit is given back.
        if let (Some(index), false) = (task.slot, task.entered) {
            self.luns.slot(index).waiting.retain(|waiting| waiting.number != number);
        }
        self.waiting_for_memory.retain(|(waiting, _)| *waiting != number);
        let asked = task.data_in_bytes.max(task.data_out_bytes);
        let data = payload(std::mem::take(&mut reply.data));
        self.traffic.read_bytes += data.len() as u64;
        if let Some(index) = task.slot {
            let tally = self.luns.tally(index);
            self.span = self.span.to(task.started, reactor::now());
            tally.record(task.operation, self.span);
            if task.operation == Operation::Read {
                tally.moved(data.len() as u64, 0);
            }
        }
        if reply.status != Status::Good {
            self.count_failure(&task, &reply);
        }
        if let Some(index) = task.slot.filter(|_| losses > 0) {
            self.telling.insert(number, (self.luns.slot(index).nexus.id().number(), losses));
        }
        let response = Response {
            status: reply.status.code(),
            residual: (reply.expected_bytes as i64).saturating_sub(i64::from(asked)),
            sense: reply.sense.as_ref().map_or_else(Vec::new, |sense| sense.bytes().to_vec()),
            data,
        };
        let wants_receipt = self.telling.contains_key(&number);
        self.core.respond(TaskId { session: self.began.id, number }, response, wants_receipt);
        let (slot, entered) = (task.slot, task.entered);
        drop(task); // with its memory
        if let (Some(index), true) = (slot, entered) {
            self.leave(index);
        }
        if !self.waiting_for_memory.is_empty() {
            self.resume_waiting_for_memory();
        }
    }

    /// The initiator has a reply that reported losses of acknowledged writes.
    pub(crate) fn note_told(&mut self, number: u64) {
        if let Some((nexus, losses)) = self.telling.remove(&number)
            && let Some(nexus) = self.luns.nexus(nexus)
        {
            nexus.note_told(losses);
        }
    }

    /// A command has left its LUN: starts waiting commands, in the order of their arrival.
    fn leave(&mut self, index: usize) {
        self.luns.slot(index).leave();
        while let Some(next) = self.luns.slot(index).waiting.pop_front() {
            // One that was ended while it waited never begins.
            let Some(turn) = self.tasks.get(&next.number).map(|task| task.turn) else { continue };
            if !self.is_held(next.number) {
                continue;
            }
            let slot = self.luns.slot(index);
            if !slot.may_enter(turn) {
                return slot.waiting.push_front(next);
            }
            slot.take_turn(turn);
            if let Some(task) = self.tasks.get_mut(&next.number) {
                task.entered = true;
            }
            self.begin_command(next.number, index, &next.command);
        }
    }

    fn count_failure(&self, task: &Task, reply: &Reply) {
        match (failure(reply), task.slot) {
            (Failure::None, _) | (Failure::Of(_), None) => {}
            (Failure::UnitAttention(kind), _) => self.core.tally.unit_attention(Some(self.target()), kind),
            (Failure::Of(kind), Some(index)) => self.luns.tally(index).failed(task.operation, kind),
        }
    }

    /// Aborts a command's device requests and frees its memory. It is answered later.
    fn clear(&mut self, number: u64, units: &mut Vec<Arc<LogicalUnit>>) {
        let Some(task) = self.tasks.get_mut(&number) else { return };
        task.charge = None;
        let others = match std::mem::replace(&mut task.state, TaskState::Cleared) {
            TaskState::Running(work) => work.give_up(),
            TaskState::Lasting(reply) => return reply.abort(), // what goes on is the logical unit's
            TaskState::Held => return,
            // An earlier function aborted it, but the devices may still have its requests.
            TaskState::Cleared => {
                let own = task.slot.map(|index| self.luns.unit(index));
                add_units(units, own.as_slice());
                return add_units(units, &self.aborted_units.open());
            }
        };
        let own = task.slot.map(|index| self.luns.unit(index));
        for more in [own.as_slice(), &others] {
            self.aborted_units.add(more);
            add_units(units, more);
        }
    }

    /// Aborts the command with this number. It is to be told once the units have quiesced.
    pub(crate) fn clear_one(&mut self, number: u64, units: &mut Vec<Arc<LogicalUnit>>) -> Vec<u64> {
        let is_there = self.tasks.contains_key(&number);
        self.clear(number, units);
        is_there.then_some(number).into_iter().collect()
    }

    /// Aborts every command that uses `unit` but this one. They have no further effect once the devices have quiesced; then
    /// answer them by [`Session::tell_aborted`]. Adds the units that they used to `units`.
    #[must_use]
    pub(crate) fn clear_unit(
        &mut self,
        unit: &Arc<LogicalUnit>,
        except: Option<u64>,
        units: &mut Vec<Arc<LogicalUnit>>,
    ) -> Vec<u64> {
        let is_meant = |number: &u64| Some(*number) != except;
        let cleared: Vec<u64> = self.tasks_of(unit).filter(is_meant).collect();
        // The waiting first, so that nothing begins because something else was aborted.
        cleared.iter().for_each(|number| self.clear(*number, units));
        cleared
    }

    /// Answers commands that were aborted with TASK ABORTED.
    pub(crate) fn tell_aborted(&mut self, cleared: &[u64]) {
        cleared.iter().for_each(|number| self.answer(*number, Reply::status(Status::TaskAborted)));
    }

    /// The commands that use `unit`: those for its LUN, and copies that another LUN received.
    fn tasks_of<'a>(&'a self, unit: &'a Arc<LogicalUnit>) -> impl Iterator<Item = u64> + 'a {
        let same = |other: &Arc<LogicalUnit>| Arc::ptr_eq(other, unit);
        let of_unit = self.tasks.iter().filter(move |(_, task)| {
            let others = match &task.state {
                TaskState::Running(work) => work.watch.others(),
                _ => &[],
            };
            task.slot.is_some_and(|index| same(self.luns.unit_at(index))) || others.iter().any(same)
        });
        of_unit.map(|(number, _)| *number)
    }

    /// The unit behind a LUN field, if this session sees one there.
    pub(crate) fn unit(&self, lun: [u8; 8]) -> Option<Arc<LogicalUnit>> {
        self.luns.find(u64::from_be_bytes(lun)).map(|index| self.luns.unit(index))
    }

    /// All units that this session sees.
    pub(crate) fn units(&self) -> Vec<Arc<LogicalUnit>> {
        self.luns.iter().map(|slot| Arc::clone(&slot.unit)).collect()
    }

    /// This session's unit of a volume and its nexus there, if it has or had it.
    pub(crate) fn user_of(&self, volume: &Arc<Volume>) -> Option<(Arc<LogicalUnit>, NexusId)> {
        self.luns.user_of(volume)
    }

    /// Commands in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.tasks.len()
    }

    /// It has ended. Returns the units whose devices may still carry out its commands.
    pub(crate) fn end(&mut self) -> Vec<Arc<LogicalUnit>> {
        let mut units = self.aborted_units.take();
        let numbers: Vec<u64> = self.tasks.keys().copied().collect();
        numbers.iter().for_each(|number| self.clear(*number, &mut units));
        self.tasks.clear();
        self.waiting_for_memory.clear();
        let initiator = &self.began.counted_as;
        self.core.tally.session_ended(&self.began.target.name, initiator, self.traffic);
        units
    }

    /// Adapts to this configuration: what was aborted, and whether it may stay.
    pub(crate) fn adapt(&mut self, config: &Config) -> (Removed, bool) {
        let Began { initiator, peer, is_encrypted, target: before, .. } = &self.began;
        let target = config.target(&before.name);
        let target = target.filter(|target| target.keeps(initiator, *peer, *is_encrypted)).cloned();
        let exports = target.as_ref().map_or_else(Vec::new, |target| exports(target, initiator));
        // Of a target that is gone the name is left: its volumes are to be closed.
        let nothing = || Arc::new(Target { exports: Vec::new(), ..Target::clone(before) });
        let may_stay = target.is_some();
        self.began.target = target.unwrap_or_else(nothing);
        let mut removed = Removed::default();
        for place in self.luns.remove_gone(&exports) {
            let unit = self.luns.unit(place);
            let cleared = match self.luns.shows(&unit) {
                true => self.clear_lun(place, &mut removed.units), // another LUN is the same unit
                false => self.clear_unit(&unit, None, &mut removed.units),
            };
            removed.tasks.extend(cleared);
            add_units(&mut removed.units, &[unit]);
        }
        if self.luns.add_missing(&exports) > 0 || !removed.units.is_empty() {
            self.luns.tell_changed();
        }
        self.sweep_luns();
        (removed, may_stay)
    }

    /// As [`Session::clear_unit`], of the commands that one LUN received, by its place.
    fn clear_lun(&mut self, place: usize, units: &mut Vec<Arc<LogicalUnit>>) -> Vec<u64> {
        let of_lun = self.tasks.iter().filter(|(_, task)| task.slot == Some(place));
        let cleared: Vec<u64> = of_lun.map(|(number, _)| *number).collect();
        cleared.iter().for_each(|number| self.clear(*number, units));
        cleared
    }

    /// Frees LUNs that were removed, once no command needs them.
    pub(crate) fn sweep_luns(&mut self) {
        if self.luns.are_some_gone() {
            let tasks = &self.tasks;
            self.luns.sweep(|place| tasks.values().any(|task| task.slot == Some(place)));
        }
    }

    /// Ends a running command that has waited too long; `index` is its LUN's place. Returns the units besides that one.
    pub(crate) fn give_up(&mut self, number: u64) -> Option<Vec<Arc<LogicalUnit>>> {
        let task = self.tasks.get_mut(&number)?;
        let own = task.slot.map(|index| self.luns.unit(index));
        match std::mem::replace(&mut task.state, TaskState::Held) {
            TaskState::Running(work) => {
                let others = work.give_up();
                self.aborted_units.add(own.as_slice());
                self.aborted_units.add(&others);
                Some(others)
            }
            other => {
                task.state = other;
                None
            }
        }
    }

    /// Adds its commands to those under way, by the address of their volume.
    pub(crate) fn count_in_flight(&self, in_flight: &mut BTreeMap<usize, u64>) {
        for index in self.tasks.values().filter_map(|task| task.slot) {
            *in_flight.entry(Arc::as_ptr(self.luns.unit_at(index).volume()) as usize).or_default() += 1;
        }
    }

    fn user(&self) -> Option<&str> {
        self.began.is_encrypted.then_some(self.began.initiator.as_str())
    }

    /// A line for a login.
    pub(crate) fn log_in(&self) {
        let Began { initiator, handle: session, port, peer, portal, .. } = &self.began;
        let (user, target) = (self.user(), self.target());
        tracing::info!(target: AUDIT, %peer, session, initiator, user, target, port, portal, "logged in");
    }

    /// A line for its end, and one for what it has moved.
    pub(crate) fn log_out(&self, why: &str) {
        let Began { initiator, handle: session, peer, .. } = &self.began;
        let Traffic { commands, read_bytes, written_bytes, .. } = self.traffic;
        let (user, target) = (self.user(), self.target());
        tracing::info!(target: AUDIT, why, %peer, session, initiator, user, target, "session ended");
        tracing::info!(target: AUDIT, %peer, session, commands, read_bytes, written_bytes, "moved by its session");
    }

    /// Itself as an observer of the server is told of it.
    pub(crate) fn info(&self) -> SessionInfo<'_> {
        SessionInfo {
            initiator: &self.began.initiator,
            user: self.user(),
            target: Some(self.target()),
            front_end: HYPERSCSI,
            handle: Some(self.began.handle),
        }
    }

    /// Itself as others see it.
    pub(crate) fn status(
        &self,
        core: usize,
        frame_bytes: usize,
        counters: Counters,
        paths: Vec<PathStatus>,
    ) -> SessionStatus {
        SessionStatus {
            initiator: self.began.initiator.clone(),
            port: self.began.port,
            handle: self.began.handle,
            target: self.target().to_owned(),
            is_encrypted: self.began.is_encrypted,
            peer: self.began.peer,
            portal: self.began.portal.clone(),
            age: reactor::now().saturating_duration_since(self.started),
            core,
            luns: self.luns.iter().map(|slot| slot.lun).collect(),
            in_flight: self.in_flight(),
            traffic: self.traffic,
            frame_bytes,
            counters,
            paths,
        }
    }
}

/// All portals lead to one port of a target: a path may change while a session goes on.
const TARGET_PORT: u16 = 1;

/// The LUNs of a target that this initiator sees. Where LUNs are told apart, its name is the one of reservations.
fn exports(target: &Target, initiator: &str) -> Vec<scsi_session::Export> {
    let seen = target.exports.iter().filter(|export| export.is_seen_by(initiator));
    seen.map(|export| scsi_session::Export { initiators: None, ..export.clone() }).collect()
}

/// When a command may begin.
fn turn(attribute: TaskAttribute) -> Turn {
    match attribute {
        TaskAttribute::Ordered => Turn::Ordered,
        TaskAttribute::HeadOfQueue => Turn::HeadOfQueue,
        TaskAttribute::Simple | TaskAttribute::Untagged | TaskAttribute::Aca => Turn::Simple,
    }
}

/// What is wrong with a command's header, whatever its CDB.
fn misdeclared(command: &Command) -> Option<Misdeclared> {
    match command.attribute {
        TaskAttribute::Aca => Some(Misdeclared::Aca),
        _ => {
            (command.data_in_bytes > 0 && !command.data_out.is_empty()).then_some(Misdeclared::BothDirections)
        }
    }
}

/// A buffer that the machine sends from.
struct Sent(Buffer);

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Data in a buffer, for the machine. A reply counts by its length, so it is not to hold much more.
fn sent(buffer: Buffer) -> Payload {
    let length = buffer.len();
    match Buffer::memory_bytes(length) <= length + length / 4 {
        true => Payload::new(Sent(buffer)),
        false => buffer.to_vec().into(),
    }
}

/// The data of a reply, for the machine.
fn payload(data: DataIn) -> Payload {
    match data {
        DataIn::None => Payload::default(),
        DataIn::Bytes(bytes) => bytes.into(),
        DataIn::Buffer(buffer) => sent(buffer),
        DataIn::Region(region, _lock) => {
            let mut buffer = Buffer::recycled(region.len());
            region.load(0, &mut buffer);
            sent(buffer)
        }
    }
}
