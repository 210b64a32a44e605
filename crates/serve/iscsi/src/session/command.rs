//! Commands of a session: begun, their data received, finished, answered.

use std::future::{Future, ready};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use block::Buffer;
use iscsi::pdu::TaskAttribute;
use iscsi::target::{Command, DataFault, Receipt, Response, TaskId};
use logical_unit::{
    CommandIn, Data, DataIn, Job, Misdeclared, Plan, Receive, Reply, Running, SiblingUnits, Status, Step,
    TransferFault,
};
use reactor::JoinHandle;
use scsi_session::{Turn, Work};

use super::{Outgoing, Session, Task, TaskState, Waiting};
use crate::inbox::Landing;
use crate::management;
use reactor::Payload;

impl Session {
    pub(super) fn arrive(&mut self, now: Instant, command: Command) {
        self.traffic.commands += 1;
        let Some(index) = self.luns.find(command.lun.0) else { return self.answer_absent(now, &command) };
        let turn = turn(command.attribute);
        let slot = self.luns.slot(index);
        if slot.enter(turn) {
            self.open_task(now, Some(index), &command, true);
            self.begin_command(index, &command, false);
        } else if command.write {
            // Its immediate data follows at once, so it must have a place; only its effect can wait.
            self.open_task(now, Some(index), &command, false);
            self.begin_command(index, &command, true);
        } else {
            self.open_task(now, Some(index), &command, false);
            self.luns.slot(index).waiting.push_back(Waiting::Begin(command));
        }
    }

    pub(super) fn begin_command(&mut self, index: usize, command: &Command, stage: bool) {
        let (slot, visible) = self.luns.slot_among(index);
        if let Some(fault) = misdeclared(command) {
            let reply = slot.unit.misdeclared(fault);
            return self.answer(command.task, reply);
        }
        match slot.unit.begin(&mut slot.nexus, &command_in(command, visible, stage)) {
            Plan::Reply(reply) => self.answer(command.task, reply),
            Plan::Receive(receive) => self.receive(command, receive),
            Plan::Run(job) => self.run_with_memory(command.task, job),
        }
    }

    /// Finishes a command that takes nothing from the initiator, once there is memory for what it reads.
    fn run_with_memory(&mut self, id: TaskId, job: Job) {
        if self.waiting_for_memory.is_empty() && self.charge(id, job.working_bytes()) {
            self.finish(id, job, Data::None);
        } else {
            self.waiting_for_memory.push_back((id, job));
        }
    }

    /// Starts commands that waited for memory, in order.
    pub(crate) fn resume_waiting_for_memory(&mut self) {
        while let Some((id, job)) = self.waiting_for_memory.pop_front() {
            if self.waiting_task(id).is_none() {
                continue; // ended while it waited
            }
            if !self.charge(id, job.working_bytes()) {
                return self.waiting_for_memory.push_front((id, job));
            }
            self.finish(id, job, Data::None);
        }
    }

    /// Charges memory for a command's data; it is returned with the task.
    pub(super) fn charge(&mut self, id: TaskId, bytes: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let Some(charge) = self.budget.take(bytes) else { return false };
        if let Some(task) = self.task(id) {
            match &mut task.charge {
                Some(held) => held.merge(charge),
                None => task.charge = Some(charge),
            }
        }
        true
    }

    pub(super) fn open_task(
        &mut self,
        started: Instant,
        slot: Option<usize>,
        command: &Command,
        entered: bool,
    ) {
        let index = command.task.index();
        if self.tasks.len() <= index {
            self.tasks.resize_with(index + 1, || None);
        }
        self.tasks[index] = Some(Task {
            id: command.task,
            slot,
            turn: turn(command.attribute),
            operation: scsi_session::operation(command.cdb()[0]),
            entered,
            started,
            state: TaskState::Held,
            charge: None,
        });
    }

    pub(super) fn task(&mut self, id: TaskId) -> Option<&mut Task> {
        self.tasks.get_mut(id.index())?.as_mut().filter(|task| task.id == id)
    }

    /// A task that waits for its turn or for memory; `None` if it was aborted meanwhile.
    pub(super) fn waiting_task(&mut self, id: TaskId) -> Option<&mut Task> {
        self.task(id).filter(|task| matches!(task.state, TaskState::Held))
    }

    pub(super) fn receive(&mut self, command: &Command, receive: Receive) {
        let Receive { bytes, place, job } = receive;
        // Of what goes to memory, one data segment at a time waits for its digest.
        let buffered = match place {
            logical_unit::Landing::Buffer => bytes,
            logical_unit::Landing::Memory(_) => bytes.min(self.checked_bytes_max),
        };
        let memory_bytes = match buffered {
            0 => 0,
            bytes => Buffer::memory_bytes(bytes as usize),
        };
        let landing = match place {
            _ if !self.charge(command.task, memory_bytes + job.working_bytes()) => {
                // Bounded memory comes first; initiators retry this (SAM-5 5.3.1, TASK SET FULL).
                return self.answer(command.task, Reply::status(Status::TaskSetFull));
            }
            logical_unit::Landing::Memory(blocks) => Landing::Memory { blocks, is_charged: false },
            logical_unit::Landing::Buffer => {
                Landing::Buffer { start: 0, buffer: Buffer::recycled(bytes as usize) }
            }
        };
        if let Some(task) = self.task(command.task) {
            task.state = TaskState::Receiving(job, landing);
        }
        self.machine.expect_data(command.task, bytes);
    }

    /// The destination of a task's data; `None` if they are no longer wanted.
    pub(crate) fn landing(&mut self, id: TaskId) -> Option<&mut Landing> {
        match &mut self.task(id)?.state {
            TaskState::Receiving(_, landing) => Some(landing),
            _ => None,
        }
    }

    /// Stores data that arrived before their command's turn.
    pub(super) fn land(&mut self, id: TaskId, offset: u32, bytes: &[u8]) {
        if let Some(landing) = self.landing(id) {
            landing.put(offset as usize, bytes);
            self.charge_incomplete(id);
        }
    }

    /// Charges memory for an incomplete block at the end of the data received so far. If there is none, the
    /// command is answered and its further data are dropped; whole blocks that were stored stay, and are
    /// written again when it is retried.
    pub(crate) fn charge_incomplete(&mut self, id: TaskId) {
        let Some(Landing::Memory { blocks, is_charged: charged @ false }) = self.landing(id) else { return };
        let bytes = blocks.incomplete_bytes();
        if bytes == 0 {
            return;
        }
        *charged = true;
        if !self.charge(id, bytes) {
            self.answer(id, Reply::status(Status::TaskSetFull));
        }
    }

    pub(super) fn data_complete(&mut self, id: TaskId) {
        let Some(task) = self.task(id).filter(|task| matches!(task.state, TaskState::Receiving(..))) else {
            return;
        };
        let TaskState::Receiving(job, landing) = std::mem::replace(&mut task.state, TaskState::Held) else {
            return;
        };
        let (slot, turn, entered) = (task.slot, task.turn, task.entered);
        let data = self.unstage(landing, job.writes_blocks());
        let Some(index) = slot else { return };
        if entered || self.enter(id, index, turn) {
            self.finish(id, job, data);
        } else {
            self.luns.slot(index).waiting.push_back(Waiting::Finish(id, job, data));
        }
    }

    /// The received data in the form that the logical unit takes, counted if they are blocks.
    fn unstage(&mut self, landing: Landing, are_blocks: bool) -> Data {
        let (bytes, data) = match landing {
            Landing::Memory { blocks, .. } => (blocks.len(), Data::Placed),
            Landing::Buffer { start, buffer } => (start + buffer.len(), Data::Buffer(buffer)),
        };
        if are_blocks {
            self.traffic.written_bytes += bytes as u64;
        }
        data
    }

    pub(super) fn data_failed(&mut self, id: TaskId, fault: DataFault) {
        let Some(index) = self.task(id).and_then(|task| task.slot) else { return };
        if fault == DataFault::Digest {
            self.count_digest_error();
        }
        let fault = match fault {
            DataFault::Digest => TransferFault::Digest,
            DataFault::Sequence => TransferFault::NotEnoughUnsolicited,
            DataFault::Unsolicited => TransferFault::UnexpectedUnsolicited,
        };
        let reply = self.luns.unit(index).transfer_failed(fault);
        self.answer(id, reply);
    }

    pub(super) fn finish(&mut self, id: TaskId, job: Job, data: Data) {
        let Some(index) = self.task(id).and_then(|task| task.slot) else { return };
        let is_short = job.working_bytes().max(data.buffer_bytes()) <= logical_unit::AT_ONCE_BYTES_MAX;
        match self.luns.slot(index).unit.finish(job, data) {
            Step::Now(reply) => self.answer(id, reply),
            Step::Later(Running { mut reply, watch }) => {
                self.luns.tally(index).note_wait();
                watch.time_requests(reactor::now);
                // Begun here, a request is with its device before this round's answers are sent, and what a
                // device ends at once needs no task.
                let begun = is_short.then(|| reply.as_mut().poll(&mut Context::from_waker(Waker::noop())));
                let reply: Pin<Box<dyn Future<Output = Reply>>> = match begun {
                    Some(Poll::Ready(reply)) if reply.effects.is_none() => {
                        return self.answer_reporting(id, reply, watch.reported_losses());
                    }
                    Some(Poll::Ready(reply)) => Box::pin(ready(reply)),
                    Some(Poll::Pending) | None => reply,
                };
                let task = self.spawn(id, reply);
                self.set_state(id, TaskState::Running(Work { task, watch }));
            }
            Step::Lasting { reply, work } => {
                // A dropped handle lets the task run on: no command owns this work.
                drop(reactor::spawn(work));
                let task = self.spawn(id, reply);
                self.set_state(id, TaskState::Lasting(task));
            }
        }
    }

    /// Spawns a task that awaits the device and completes the command. The command's other effects are
    /// carried out before its response, also if it was aborted meanwhile.
    fn spawn(&self, id: TaskId, work: Pin<Box<dyn Future<Output = Reply>>>) -> JoinHandle<()> {
        let (session, server) = (Weak::clone(&self.this), Arc::clone(&self.context.server));
        reactor::spawn(async move {
            let mut reply = work.await;
            if let Some(effects) = reply.effects.take() {
                // In a place of its own: nearly no command needs room for it.
                Box::pin(management::settle(server, Weak::clone(&session), id, effects)).await;
            }
            if let Some(session) = session.upgrade() {
                session.borrow_mut().complete(id, reply);
            }
        })
    }

    /// The device has had the requests of a command for so long.
    fn record_device(&mut self, id: TaskId, time: Duration) {
        let Some((Some(slot), operation)) = self.task(id).map(|task| (task.slot, task.operation)) else {
            return;
        };
        self.luns.tally(slot).record_device(operation, time);
    }

    fn set_state(&mut self, id: TaskId, state: TaskState) {
        if let Some(task) = self.task(id) {
            task.state = state;
        }
    }

    /// The device has completed a command.
    fn complete(&mut self, id: TaskId, reply: Reply) {
        // One that another initiator has ended is told that, when everything is told so.
        let (losses, device_time) = match self.task(id).map(|task| &task.state) {
            None | Some(TaskState::Cleared) => return,
            Some(TaskState::Running(work)) => (work.watch.reported_losses(), Some(work.watch.device_time())),
            Some(_) => (0, None),
        };
        if let Some(time) = device_time {
            self.record_device(id, time);
        }
        self.answer_reporting(id, reply, losses);
        self.handle_events(reactor::now());
    }

    pub(super) fn answer_absent(&mut self, now: Instant, command: &Command) {
        let visible = self.luns.visible();
        self.open_task(now, None, command, false);
        let answer = if command.lun.0 == logical_unit::REPORT_LUNS_WELL_KNOWN {
            logical_unit::well_known
        } else {
            logical_unit::absent
        };
        let reply = answer(&command_in(command, &visible, false));
        self.answer(command.task, reply);
    }

    /// Answers a task. Only the first answer counts: its data may be queued already.
    pub(super) fn answer(&mut self, id: TaskId, reply: Reply) {
        self.answer_reporting(id, reply, 0);
    }

    /// The same with a reply that reports so many losses of acknowledged writes.
    fn answer_reporting(&mut self, id: TaskId, reply: Reply, losses: u64) {
        if let DataIn::Bytes(bytes) = &reply.data
            && bytes.len() > SMALL_BYTES
            && !self.charge(id, bytes.len())
        {
            return self.answer(id, Reply::status(Status::TaskSetFull));
        }
        if reply.status != Status::Good {
            self.count_failure(id, &reply);
        }
        let Some(task) = self.task(id).filter(|task| !matches!(task.state, TaskState::Answered(_))) else {
            return;
        };
        let outgoing = outgoing(reply.data);
        let data_in = outgoing.payload.len();
        task.state = TaskState::Answered(outgoing);
        let (slot, entered) = (task.slot, std::mem::take(&mut task.entered));
        self.traffic.read_bytes += data_in as u64;
        self.machine.respond(
            id,
            Response {
                status: reply.status.code(),
                sense: reply.sense.as_ref().map_or(&[], |sense| sense.bytes()),
                data_in: u32::try_from(data_in).unwrap_or(u32::MAX),
                expected: reply.expected_bytes,
                receipt: slot
                    .filter(|_| losses > 0)
                    .map(|slot| Receipt { subject: self.luns.slot(slot).nexus.id().number(), value: losses }),
            },
        );
        self.wake(id.connection());
        if let (Some(index), true) = (slot, entered) {
            self.leave(index);
        }
    }

    /// The initiator has an answer that reported losses of acknowledged writes.
    pub(super) fn note_told(&mut self, receipt: Receipt) {
        if let Some(nexus) = self.luns.nexus(receipt.subject) {
            nexus.note_told(receipt.value);
        }
    }

    /// The payload of a task that is being sent.
    pub(crate) fn outgoing(&mut self, id: TaskId) -> Payload {
        match self.task(id).map(|task| &task.state) {
            Some(TaskState::Answered(outgoing)) => outgoing.payload.clone(),
            _ => Payload::None,
        }
    }

    /// The last PDU of a task is queued; its connection holds the lock until all is sent.
    pub(crate) fn sent(&mut self, id: TaskId, now: Instant) -> Option<Outgoing> {
        let task = self.take(id)?;
        if let Some(index) = task.slot {
            self.span = self.span.to(task.started, now);
            self.luns.tally(index).record(task.operation, self.span);
        }
        drop(task.charge);
        if !self.waiting_for_memory.is_empty() {
            self.resume_waiting_for_memory();
        }
        match task.state {
            TaskState::Answered(outgoing) => Some(outgoing),
            _ => None,
        }
    }

    pub(super) fn take(&mut self, id: TaskId) -> Option<Task> {
        self.task(id)?;
        self.tasks[id.index()].take()
    }
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
        _ => (command.read && command.write).then_some(Misdeclared::BothDirections),
    }
}

/// A command as the logical unit takes it.
fn command_in<'a>(command: &'a Command, luns: &'a Arc<dyn SiblingUnits>, stage: bool) -> CommandIn<'a> {
    CommandIn {
        cdb: command.cdb(),
        data_out_bytes: command.data_out_bytes(),
        data_in_bytes: command.data_in_bytes(),
        luns,
        stage,
    }
}

/// Parameter data up to this length count as a part of the task itself, as sense data do: INQUIRY, REQUEST
/// SENSE.
const SMALL_BYTES: usize = 512;

/// The data of a reply, on their way to the initiator.
fn outgoing(data: DataIn) -> Outgoing {
    let (payload, lock) = match data {
        DataIn::None => (Payload::None, None),
        DataIn::Bytes(bytes) => (Payload::Bytes(bytes.into()), None),
        DataIn::Buffer(buffer) => (Payload::Buffer(Rc::new(buffer)), None),
        DataIn::Region(region, lock) => (Payload::Memory(region), lock),
    };
    Outgoing { payload, lock }
}
