//! A session on its core: the iSCSI machine on one side, logical units on the other, and the commands between
//! them.
//!
//! A command goes through here in this order: the machine announces it ([`Event::Command`]); the logical unit
//! plans it; its data, if it takes any, lands; the logical unit finishes it, at once or as a task of the
//! executor; the reply goes back to the machine, and connections send it. Nothing here waits.
//!
//! ```text
//!   Event::Command ─► begin ─┬─ Plan::Reply ──────────────────────────────► answer
//!                            ├─ Plan::Receive ─► data lands ─► finish ─┬─ Now ─► answer
//!                            └─ Plan::Run ───────────────────► finish ─┴─ Later ─► (executor) ─► answer
//! ```

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

use block::{Buffer, DeviceError};
use iscsi::negotiate::DigestKind;
use iscsi::pdu::{Lun, TaskAttribute, TaskManagementResult};
use iscsi::target::{
    CloseReason, Command, ConnectionId, ConnectionStart, DataFault, Event, NopPolicy, Response,
    SessionConfig, TaskId, TextQuery,
};
use reactor::{JoinHandle, Sender};
use scsi::{
    CommandIn, Data, DataIn, InitiatorPort, Job, LogicalUnit, NexusId, Plan, Receive, Reply, Status, Step,
    TargetPort, TransferFault,
};

use crate::admission::{Admitted, LOG};
use crate::connection::End;
use crate::directory::{self, Asker};
use crate::inbox::Landing;
use crate::link::Link;
use crate::luns::Luns;
use crate::management;
use crate::outbox::Payload;
use crate::server::Server;
use crate::status::{self, ConnectionStatus, SessionStatus, Traffic};

/// A session as its connections and its running commands share it.
pub(crate) type SharedSession = Rc<RefCell<Session>>;

/// A session.
pub(crate) struct Session {
    pub(crate) machine: iscsi::target::Session,
    pub(crate) luns: Luns,
    pub(crate) traffic: Traffic,
    pub(crate) identity: Identity,
    me: Weak<RefCell<Session>>,
    server: Arc<Server>,
    /// By the index of their [`TaskId`].
    tasks: Vec<Option<Task>>,
    /// By the index of their [`ConnectionId`].
    links: Vec<Option<(ConnectionId, Rc<Link>)>>,
    /// Receive buffers held, in bytes.
    staged_bytes: usize,
    /// Data digests are on: data must be checked before it reaches the medium, and must not change between
    /// being summed and being sent.
    digests: bool,
    /// Units that were at work on commands which have been given up.
    given_up: Vec<Arc<LogicalUnit>>,
    /// Who waits for the session's end; told by being dropped.
    ending: Vec<Sender<()>>,
}

/// Whose session it is, as people and the registry know it.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) initiator: String,
    pub(crate) isid: iscsi::pdu::Isid,
    pub(crate) tsih: iscsi::pdu::Tsih,
    /// `None` for a discovery session.
    pub(crate) target: Option<usize>,
    pub(crate) started: Instant,
}

/// A command between its arrival and its last PDU.
struct Task {
    id: TaskId,
    /// `None`: addressed to a LUN that does not exist.
    slot: Option<usize>,
    attribute: TaskAttribute,
    /// It has its turn at the LUN; counted there.
    entered: bool,
    started: Instant,
    state: State,
    landing: Landing,
    outgoing: Payload,
    /// Keeps overlapping atomic commands out until the data is sent.
    lock: Option<block::Shared>,
}

enum State {
    /// Its data is on the way.
    Receiving(Job),
    /// Its data is there; it waits for its turn.
    Held,
    /// A task of the executor works on it.
    Running(JoinHandle<()>),
    /// Answered; what is left is sending.
    Answered,
}

/// What waits for its turn at a LUN.
pub(crate) enum Waiting {
    /// A command that has not begun.
    Begin(Command),
    /// A write whose data is there.
    Finish(TaskId, Job, Data),
}

impl Session {
    /// The session of a leading login. Its connections join it one by one.
    pub(crate) fn begin(server: &Arc<Server>, admitted: &Admitted) -> SharedSession {
        let login = &admitted.login;
        let limits = &server.config.limits;
        let target = admitted.target.map(|index| &server.config.targets[index]);
        let initiator = login.request.initiator_name.as_str().to_owned();
        let config = SessionConfig {
            window: limits.window,
            nop: NopPolicy {
                interval: limits.nop_interval,
                timeout: limits.nop_interval,
                ..NopPolicy::OF_TARGET
            },
            abort_of_finished: abort_of_finished(&initiator),
            ..SessionConfig::new(login.parameters.clone(), login.exp_cmd_sn)
        };
        let port = InitiatorPort { name: initiator.clone(), isid: login.request.isid.0 };
        let target_port = TargetPort {
            name: target.map_or(String::new(), |target| target.name.clone()),
            group: admitted.tag,
            relative_port: admitted.tag,
        };
        Rc::new_cyclic(|me| {
            RefCell::new(Session {
                machine: iscsi::target::Session::new(config),
                luns: Luns::new(target, &port, &target_port),
                traffic: Traffic::default(),
                identity: Identity {
                    initiator,
                    isid: login.request.isid,
                    tsih: login.request.tsih,
                    target: admitted.target,
                    started: reactor::now(),
                },
                me: Weak::clone(me),
                server: Arc::clone(server),
                tasks: Vec::new(),
                links: Vec::new(),
                staged_bytes: 0,
                digests: login.parameters.data_digest != DigestKind::None,
                given_up: Vec::new(),
                ending: Vec::new(),
            })
        })
    }

    /// Does all that the machine asks for.
    pub(crate) fn handle_events(&mut self, now: Instant) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Command(command) => self.arrive(now, command),
                Event::StagedData { task, offset, bytes } => self.land(task, offset, &bytes),
                Event::DataComplete { task } => self.data_complete(task),
                Event::DataFailed { task, fault } => self.data_failed(task, fault),
                Event::TaskManagement(request) => management::start(&self.server, self.me.clone(), request),
                Event::SendTargets { connection, which } => self.send_targets(connection, &which),
                Event::TaskGone { task } => self.forget(task),
                Event::Close { connection, reason } => self.close_link(connection, reason),
            }
        }
    }

    // --- commands, on their way in

    fn arrive(&mut self, now: Instant, command: Command) {
        self.traffic.commands += 1;
        let Some(index) = self.luns.find(command.lun) else { return self.answer_absent(now, &command) };
        let attribute = command.attribute;
        let slot = self.luns.slot(index);
        if slot.enter(attribute) {
            self.open_task(now, Some(index), &command, true);
            self.begin_command(index, &command, self.digests);
        } else if command.write {
            // Its immediate data follows at once, so it must have a place; only its effect can wait.
            self.open_task(now, Some(index), &command, false);
            self.begin_command(index, &command, true);
        } else {
            self.open_task(now, Some(index), &command, false);
            self.luns.slot(index).waiting.push_back(Waiting::Begin(command));
        }
    }

    fn begin_command(&mut self, index: usize, command: &Command, stage: bool) {
        let visible = self.luns.visible();
        let slot = self.luns.slot(index);
        let input = CommandIn {
            cdb: command.cdb(),
            data_out_bytes: command.data_out_bytes(),
            data_in_bytes: command.data_in_bytes(),
            luns: &visible,
            stage,
        };
        match slot.unit.begin(&mut slot.nexus, &input) {
            Plan::Reply(reply) => self.answer(command.task, reply),
            Plan::Receive(receive) => self.receive(command, receive),
            Plan::Run(job) => self.finish(command.task, job, Data::None),
        }
    }

    fn open_task(&mut self, started: Instant, slot: Option<usize>, command: &Command, entered: bool) {
        let index = command.task.index();
        if self.tasks.len() <= index {
            self.tasks.resize_with(index + 1, || None);
        }
        self.tasks[index] = Some(Task {
            id: command.task,
            slot,
            attribute: command.attribute,
            entered,
            started,
            state: State::Held,
            landing: Landing::Nowhere,
            outgoing: Payload::None,
            lock: None,
        });
    }

    fn task(&mut self, id: TaskId) -> Option<&mut Task> {
        self.tasks.get_mut(id.index())?.as_mut().filter(|task| task.id == id)
    }

    fn receive(&mut self, command: &Command, receive: Receive) {
        let Receive { bytes, place, job } = receive;
        let landing = match place {
            scsi::Landing::Memory(region) => Landing::Memory(region),
            scsi::Landing::Buffer => {
                let bytes = bytes as usize;
                if self.staged_bytes + bytes > self.server.config.limits.staging_bytes
                    && self.staged_bytes > 0
                {
                    // Bounded memory comes first; initiators retry this (SAM-5 5.3.1, TASK SET FULL).
                    return self.answer(command.task, Reply::status(Status::TaskSetFull));
                }
                self.staged_bytes += bytes;
                Landing::Buffer(Buffer::recycled(bytes))
            }
        };
        if let Some(task) = self.task(command.task) {
            task.landing = landing;
            task.state = State::Receiving(job);
        }
        self.machine.expect_data(command.task, bytes);
    }

    /// The place for a piece of a task's data.
    pub(crate) fn landing(&mut self, id: TaskId) -> Option<&mut Landing> {
        self.task(id).map(|task| &mut task.landing)
    }

    /// Data that came before their command's turn.
    fn land(&mut self, id: TaskId, offset: u32, bytes: &[u8]) {
        if let Some(landing) = self.landing(id) {
            landing.put(offset as usize, bytes);
        }
    }

    fn data_complete(&mut self, id: TaskId) {
        let Some(task) = self.task(id) else { return };
        let landing = std::mem::replace(&mut task.landing, Landing::Nowhere);
        let State::Receiving(job) = std::mem::replace(&mut task.state, State::Held) else { return };
        let (slot, attribute, entered) = (task.slot, task.attribute, task.entered);
        let data = self.unstage(landing);
        let Some(index) = slot else { return };
        if entered || self.enter(id, index, attribute) {
            self.finish(id, job, data);
        } else {
            self.luns.slot(index).waiting.push_back(Waiting::Finish(id, job, data));
        }
    }

    /// What has landed, as the logical unit takes it.
    fn unstage(&mut self, landing: Landing) -> Data {
        match landing {
            Landing::Nowhere => Data::None,
            Landing::Memory(region) => {
                self.traffic.written_bytes += region.len() as u64;
                Data::Placed
            }
            Landing::Buffer(buffer) => {
                self.staged_bytes -= buffer.len();
                self.traffic.written_bytes += buffer.len() as u64;
                Data::Buffer(buffer)
            }
        }
    }

    fn data_failed(&mut self, id: TaskId, fault: DataFault) {
        let Some(index) = self.task(id).and_then(|task| task.slot) else { return };
        let fault = match fault {
            DataFault::Digest => TransferFault::Digest,
            DataFault::Sequence => TransferFault::NotEnoughUnsolicited,
            DataFault::Unsolicited => TransferFault::UnexpectedUnsolicited,
        };
        let reply = self.luns.unit(index).transfer_failed(fault);
        self.answer(id, reply);
    }

    // --- commands, at work

    fn finish(&mut self, id: TaskId, job: Job, data: Data) {
        let Some(index) = self.task(id).and_then(|task| task.slot) else { return };
        match self.luns.slot(index).unit.finish(job, data) {
            Step::Now(reply) => self.answer(id, reply),
            Step::Later(work) => self.run(id, work),
            Step::Lasting { reply, work } => {
                // A dropped handle lets the task run on: no command owns this work.
                drop(reactor::spawn(work));
                self.run(id, reply);
            }
        }
    }

    /// A device at work, which speaks when it is done.
    fn run(&mut self, id: TaskId, work: Pin<Box<dyn Future<Output = Reply>>>) {
        let session = Weak::clone(&self.me);
        let running = reactor::spawn(async move {
            let reply = work.await;
            if let Some(session) = session.upgrade() {
                session.borrow_mut().complete(id, reply);
            }
        });
        if let Some(task) = self.task(id) {
            task.state = State::Running(running);
        }
    }

    /// The device spoke.
    pub(crate) fn complete(&mut self, id: TaskId, reply: Reply) {
        self.answer(id, reply);
        self.handle_events(reactor::now());
    }

    // --- commands, on their way out

    fn answer_absent(&mut self, now: Instant, command: &Command) {
        let visible = self.luns.visible();
        self.open_task(now, None, command, false);
        let answer =
            if command.lun.0 == scsi::REPORT_LUNS_WELL_KNOWN { scsi::well_known } else { scsi::absent };
        let reply = answer(command.cdb(), &*visible, command.data_in_bytes());
        self.answer(command.task, reply);
    }

    fn answer(&mut self, id: TaskId, reply: Reply) {
        if let Some(effects) = reply.effects {
            let Some(index) = self.task(id).and_then(|task| task.slot) else { return };
            let (unit, nexus) = (self.luns.unit(index), self.luns.slot(index).nexus.id());
            let reply = Reply { effects: None, ..reply };
            let at = management::Place { session: Weak::clone(&self.me), task: id, unit, nexus };
            return management::settle(&self.server, at, effects, reply);
        }
        let digests = self.digests;
        let Some(task) = self.task(id) else { return };
        let (outgoing, lock) = outgoing(reply.data, digests);
        let data_in = outgoing.len();
        task.outgoing = outgoing;
        task.lock = lock;
        task.state = State::Answered;
        let landing = std::mem::replace(&mut task.landing, Landing::Nowhere);
        let (slot, entered) = (task.slot, std::mem::take(&mut task.entered));
        if let Landing::Buffer(buffer) = landing {
            self.staged_bytes -= buffer.len();
        }
        self.traffic.read_bytes += data_in as u64;
        self.machine.respond(
            id,
            Response {
                status: reply.status.code(),
                sense: reply.sense.as_ref().map_or(&[], |sense| sense.bytes()),
                data_in: u32::try_from(data_in).unwrap_or(u32::MAX),
                expected: reply.expected_bytes,
            },
        );
        self.wake(id.connection());
        if let (Some(index), true) = (slot, entered) {
            self.leave(index);
        }
    }

    /// The payload of a task that is being sent.
    pub(crate) fn outgoing(&self, id: TaskId) -> Payload {
        let task = self.tasks.get(id.index()).and_then(Option::as_ref).filter(|task| task.id == id);
        task.map_or(Payload::None, |task| task.outgoing.clone())
    }

    /// The last of a task is with its connection, which keeps the lock until it is sent.
    pub(crate) fn sent(&mut self, id: TaskId) -> Option<block::Shared> {
        self.take(id).and_then(|task| task.lock)
    }

    fn take(&mut self, id: TaskId) -> Option<Task> {
        self.task(id)?;
        self.tasks[id.index()].take()
    }

    // --- turns at a LUN

    fn enter(&mut self, id: TaskId, index: usize, attribute: TaskAttribute) -> bool {
        let entered = self.luns.slot(index).enter(attribute);
        if let Some(task) = self.task(id) {
            task.entered = entered;
        }
        entered
    }

    /// A command has left its LUN: whoever waited may go, in the order they came.
    fn leave(&mut self, index: usize) {
        self.luns.slot(index).leave();
        while let Some(next) = self.luns.slot(index).waiting.pop_front() {
            let id = next.task();
            // One that was aborted while it waited is gone.
            let Some(attribute) = self.task(id).map(|task| task.attribute) else { continue };
            let slot = self.luns.slot(index);
            if !slot.may_enter(attribute) {
                return slot.waiting.push_front(next);
            }
            slot.take_turn(attribute);
            if let Some(task) = self.task(id) {
                task.entered = true;
            }
            match next {
                Waiting::Begin(command) => self.begin_command(index, &command, self.digests),
                Waiting::Finish(id, job, data) => self.finish(id, job, data),
            }
        }
    }

    // --- commands that end otherwise

    /// The machine has already forgotten it.
    fn forget(&mut self, id: TaskId) {
        let Some(task) = self.take(id) else { return };
        if let State::Running(running) = task.state {
            running.abort();
            self.remember_given_up(task.slot);
        }
        if let Landing::Buffer(buffer) = &task.landing {
            self.staged_bytes -= buffer.len();
        }
        if let (Some(index), true) = (task.slot, task.entered) {
            self.leave(index);
        }
    }

    fn remember_given_up(&mut self, slot: Option<usize>) {
        let Some(unit) = slot.map(|index| self.luns.unit(index)) else { return };
        if !self.given_up.iter().any(|known| Arc::ptr_eq(known, &unit)) {
            self.given_up.push(unit);
        }
    }

    /// Units whose devices may still be at work on what was given up.
    pub(crate) fn take_given_up(&mut self) -> Vec<Arc<LogicalUnit>> {
        std::mem::take(&mut self.given_up)
    }

    /// Gives a command up: no answer, no further effect once its device is quiesced.
    pub(crate) fn abort(&mut self, id: TaskId) {
        self.machine.abort(id);
        self.forget(id);
    }

    /// Gives up every command for `unit` but `except`. Says whether there were any.
    pub(crate) fn abort_unit(&mut self, unit: &Arc<LogicalUnit>, except: Option<TaskId>) -> bool {
        let doomed: Vec<TaskId> = self
            .tasks
            .iter()
            .flatten()
            .filter(|task| task.slot.is_some_and(|index| Arc::ptr_eq(&self.luns.unit(index), unit)))
            .map(|task| task.id)
            .filter(|id| Some(*id) != except)
            .collect();
        // The waiting first, so that nothing begins because something else was aborted.
        for slot in self.luns.iter_mut().filter(|slot| Arc::ptr_eq(&slot.unit, unit)) {
            slot.waiting.clear();
        }
        for id in &doomed {
            self.abort(*id);
        }
        !doomed.is_empty()
    }

    /// The unit behind a LUN field, if this session sees one there.
    pub(crate) fn unit(&self, lun: Lun) -> Option<Arc<LogicalUnit>> {
        self.luns.find(lun).map(|index| self.luns.unit(index))
    }

    /// Whether any command for `unit` is under way.
    pub(crate) fn has_tasks_for(&self, unit: &Arc<LogicalUnit>) -> bool {
        let slots = self.tasks.iter().flatten().filter_map(|task| task.slot);
        let mut slots = slots;
        slots.any(|index| Arc::ptr_eq(&self.luns.unit(index), unit))
    }

    /// Those whose commands were cleared hear of it, all but this session.
    pub(crate) fn tell_cleared(&self, unit: &Arc<LogicalUnit>, cleared: &[NexusId]) {
        if let Some(slot) = self.luns.iter().find(|slot| Arc::ptr_eq(&slot.unit, unit)) {
            unit.task_set_cleared(&slot.nexus, cleared);
        }
    }

    /// All units that this session sees.
    pub(crate) fn units(&self) -> Vec<Arc<LogicalUnit>> {
        self.luns.iter().map(|slot| Arc::clone(&slot.unit)).collect()
    }

    /// The nexus of this session at `unit`.
    pub(crate) fn nexus_of(&self, unit: &Arc<LogicalUnit>) -> Option<NexusId> {
        self.luns.iter().find(|slot| Arc::ptr_eq(&slot.unit, unit)).map(|slot| slot.nexus.id())
    }

    /// Commands that have been with their device for longer than they may: answered with an error, and their
    /// units, which the caller fences until the device lets go.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Arc<LogicalUnit>> {
        let luns = &self.luns;
        let late: Vec<(TaskId, usize)> = self
            .tasks
            .iter()
            .flatten()
            .filter(|task| matches!(task.state, State::Running(_)))
            .filter_map(|task| Some((task, task.slot?)))
            .filter(|(task, index)| now.duration_since(task.started) > luns.deadline(*index))
            .map(|(task, index)| (task.id, index))
            .collect();
        let mut units: Vec<Arc<LogicalUnit>> = Vec::new();
        for (id, index) in late {
            if let Some(task) = self.task(id)
                && let State::Running(running) = std::mem::replace(&mut task.state, State::Held)
            {
                running.abort();
            }
            let unit = self.luns.unit(index);
            let reply = unit.gave_up(DeviceError::TimedOut);
            if !units.iter().any(|known| Arc::ptr_eq(known, &unit)) {
                units.push(unit);
            }
            self.answer(id, reply);
        }
        units
    }

    /// Commands in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.tasks.iter().flatten().count()
    }

    // --- connections

    /// A connection has joined. An older one of the same CID, which it replaces, is gone with its commands.
    pub(crate) fn open_link(&mut self, now: Instant, link: Rc<Link>, start: ConnectionStart) -> ConnectionId {
        let older = self.links.iter().flatten().find(|(_, other)| other.cid == link.cid).cloned();
        if let Some((id, older)) = older {
            older.cut();
            self.lose_link(now, id);
        }
        let id = self.machine.add_connection(now, link.cid, start);
        if self.links.len() <= id.index() {
            self.links.resize_with(id.index() + 1, || None);
        }
        self.links[id.index()] = Some((id, link));
        id
    }

    /// A connection is gone: its commands die with it (ErrorRecoveryLevel 0).
    pub(crate) fn lose_link(&mut self, now: Instant, id: ConnectionId) {
        if let Some(place) = self.links.get_mut(id.index()) {
            place.take_if(|(known, _)| *known == id);
        }
        self.machine.remove_connection(now, id);
        self.handle_events(now);
        self.wake_all();
    }

    /// Its connections.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Rc<Link>> {
        self.links.iter().flatten().map(|(_, link)| link)
    }

    fn link(&self, id: ConnectionId) -> Option<&Rc<Link>> {
        let (known, link) = self.links.get(id.index())?.as_ref()?;
        (*known == id).then_some(link)
    }

    fn close_link(&self, id: ConnectionId, reason: CloseReason) {
        if let Some(link) = self.link(id) {
            link.close(reason);
        }
    }

    fn wake(&self, id: ConnectionId) {
        if let Some(link) = self.link(id) {
            link.wake();
        }
    }

    /// Lets every connection look whether there is something to send.
    pub(crate) fn wake_all(&self) {
        self.links().for_each(|link| link.wake());
    }

    /// `done` is dropped when the session is.
    pub(crate) fn on_end(&mut self, done: Sender<()>) {
        self.ending.push(done);
    }

    // --- what others want to know

    fn send_targets(&mut self, id: ConnectionId, which: &TextQuery) {
        let Some((address, local)) = self.link(id).map(|link| (link.peer.ip(), link.local)) else { return };
        let config = &self.server.config;
        let asker = Asker { initiator: &self.identity.initiator, address, local };
        let own = self.identity.target.map(|index| config.targets[index].name.as_str());
        let wanted = directory::visible(config, &asker).filter(|target| match which {
            TextQuery::All => true,
            TextQuery::One(name) => target.name.eq_ignore_ascii_case(name),
            TextQuery::Own => Some(target.name.as_str()) == own,
        });
        let text = directory::describe(wanted, self.server.portals(), &asker);
        self.machine.text_reply(id, text);
        self.wake(id);
    }

    /// One line for a login.
    pub(crate) fn log_in(&self, link: &Link) {
        let keys = status::keys(self.machine.parameters()).join(" ");
        tracing::info!(
            target: LOG,
            initiator = self.identity.initiator,
            target = self.target_name(),
            session = self.identity.tsih.0,
            cid = link.cid.0,
            peer = %link.peer,
            %keys,
            "logged in"
        );
    }

    /// One line for the end of a connection.
    pub(crate) fn log_out(&self, link: &Link, end: &End) {
        let (identity, traffic) = (&self.identity, self.traffic);
        tracing::info!(
            target: LOG,
            initiator = identity.initiator,
            target = self.target_name(),
            session = identity.tsih.0,
            cid = link.cid.0,
            peer = %link.peer,
            commands = traffic.commands,
            read_bytes = traffic.read_bytes,
            written_bytes = traffic.written_bytes,
            why = %end,
            "connection ended"
        );
    }

    fn target_name(&self) -> &str {
        self.identity.target.map_or("(discovery)", |index| self.server.config.targets[index].name.as_str())
    }

    /// Itself as others see it.
    pub(crate) fn status(&self, core: usize) -> SessionStatus {
        let identity = &self.identity;
        let target = identity.target.map(|index| self.server.config.targets[index].name.clone());
        SessionStatus {
            initiator: identity.initiator.clone(),
            isid: identity.isid.0.iter().map(|byte| format!("{byte:02x}")).collect(),
            tsih: identity.tsih.0,
            target,
            age: reactor::now().duration_since(identity.started),
            core,
            connections: self
                .links()
                .map(|link| ConnectionStatus { cid: link.cid.0, peer: link.peer, local: link.local })
                .collect(),
            parameters: status::keys(self.machine.parameters()),
            in_flight: self.in_flight(),
            traffic: self.traffic,
        }
    }
}

/// What an initiator is told of a task that ended before it could be aborted. ESXi, whose names begin with
/// VMware's, resets a target that follows RFC 7143 section 11.6.1 (c) here.
fn abort_of_finished(initiator: &str) -> TaskManagementResult {
    match initiator.starts_with("iqn.1998-01.com.vmware:") {
        true => TaskManagementResult::FunctionComplete,
        false => TaskManagementResult::TaskDoesNotExist,
    }
}

/// The bytes of a reply, and the lock that keeps them what they are until they are sent.
fn outgoing(data: DataIn, digests: bool) -> (Payload, Option<block::Shared>) {
    match data {
        DataIn::None => (Payload::None, None),
        DataIn::Bytes(bytes) => (Payload::Bytes(bytes.into()), None),
        DataIn::Buffer(buffer) => (Payload::Buffer(Rc::new(buffer)), None),
        DataIn::Region(region, _) if digests => {
            // The medium may change between summing and sending, and the digest would be wrong.
            let mut copy = Buffer::recycled(region.len());
            region.load(0, &mut copy);
            (Payload::Buffer(Rc::new(copy)), None)
        }
        DataIn::Region(region, lock) => (Payload::Memory(region), lock),
    }
}
