//! A session on its core: connects the iSCSI state machine to the logical units. Its commands have the life
//! cycle that all SCSI sessions share ([`scsi_session::ScsiSession`]). This module receives the data of
//! commands, and sends their responses to the initiator.
//!
//! Memory that the state machine holds is charged like the memory of commands. It contains data that arrived
//! before the turn of its command, pings and texts being received, and queued responses to them. Data arrives
//! early when several connections carry one command sequence and one of them is late. An initiator that omits
//! a command, or does not send the rest of a ping, would hold this memory indefinitely. Its connection is cut
//! when other commands need the memory (`Session::slowest_holder`).
//!
//! Other modules implement task management (`management`), the handling of slow peers (`slow_peers`), and the
//! status of a session (`report`).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{Buffer, WholeBlocks};
use front_end_core::{Budget, Charge, CoreTally, Counted, Portal};
use iscsi::negotiate::DigestKind;
use iscsi::pdu::{Cid, TaskAttribute, TaskManagementResult};
use iscsi::target::{
    Command, ConnectionId, ConnectionStart, DataFault, Event, NopPolicy, Receipt, Response,
    SessionConfig, TaskId,
};
use logical_unit::{
    Data, DataIn, InitiatorPort, LogicalUnit, Misdeclared, Receive, Reply, SessionTraits, Status,
    TargetPort, TransferFault,
};
use reactor::{Payload, Sender};
use scsi_session::{
    Answer, Commands, Declared, LossReport, Luns, Receiving, Removed, ScsiSession, Turn,
};

use crate::config::{Config, Target};
use crate::context::Context;
use crate::link::Link;
use crate::registry::Admitted;
use crate::registry::SessionSlot;

/// A session, shared by its connections and running commands.
pub(crate) type SharedSession = Rc<RefCell<Session>>;

/// A session.
pub(crate) struct Session {
    pub(crate) machine: iscsi::target::Session,
    pub(crate) commands: Commands<Session>,
    pub(crate) identity: Identity,
    pub(crate) context: Context,
    pub(crate) tally: Rc<CoreTally>,
    /// The connections, by the index of their [`ConnectionId`].
    pub(crate) links: Vec<Option<(ConnectionId, Rc<Link>)>>,
    /// The CIDs that logins have reserved in this session.
    reserved: Vec<Cid>,
    this: Weak<RefCell<Session>>,
    /// The charge for memory that the state machine holds.
    kept: Charge,
    /// The maximum data segment that is buffered until its digest is checked; zero without data digests.
    checked_bytes_max: u32,
    /// Senders that are dropped when the session ends, which wakes the tasks that wait for its end.
    ending: Vec<Sender<()>>,
    /// Whether the server has asked the initiator to log out.
    has_requested_logout: bool,
}

/// The identity of the session, for the registry and for status.
pub(crate) struct Identity {
    pub(crate) initiator: String,
    /// The label for monitoring.
    pub(crate) counted_as: Arc<str>,
    /// The authenticated CHAP name.
    pub(crate) user: Option<String>,
    pub(crate) isid: iscsi::pdu::Isid,
    pub(crate) slot: SessionSlot,
    /// `None` for a discovery session.
    pub(crate) target: Option<Arc<Target>>,
    /// The portal group of its login.
    pub(crate) tag: u16,
    pub(crate) started: Instant,
}

/// The data that a task sends.
pub(crate) struct Outgoing {
    pub(crate) payload: Payload,
    /// Excludes overlapping atomic commands until the payload is sent.
    pub(crate) lock: Option<block::Shared>,
}

/// The destination of a data segment.
pub(crate) enum Landing {
    /// Blocks in the volume's own memory.
    Memory {
        blocks: WholeBlocks,
        /// Whether memory for an incomplete block is charged to the command.
        is_charged: bool,
    },
    /// A buffer for the data from offset `start` on. The data before `start` has already been stored.
    Buffer { start: usize, buffer: Buffer },
}

impl Landing {
    /// Stores `bytes` at `offset`, where the previous bytes ended. Bytes beyond the end of the destination
    /// were not requested and are dropped.
    pub(crate) fn put(&mut self, offset: usize, bytes: &[u8]) {
        match self {
            Landing::Memory { blocks, .. } => blocks.put(offset, bytes),
            Landing::Buffer { start, buffer } => {
                let room = offset
                    .checked_sub(*start)
                    .and_then(|at| buffer.get_mut(at..))
                    .unwrap_or_default();
                let length = bytes.len().min(room.len());
                room[..length].copy_from_slice(&bytes[..length]);
            }
        }
    }
}

/// Time for an initiator to log out when its target was removed, or its session must end.
const LOGOUT_TIME: Duration = Duration::from_secs(5);

impl Session {
    /// Creates the session of a leading login. Its connections join it one by one.
    pub(crate) fn begin(
        context: &Context,
        memory: &Rc<Budget>,
        tally: &Rc<CoreTally>,
        admitted: &Admitted,
    ) -> SharedSession {
        let login = &admitted.login;
        let limits = &context.config().limits;
        let target = admitted.target.as_deref();
        let initiator = login.request.initiator_name.as_str().to_owned();
        let usual = match target {
            Some(_) => SessionConfig {
                window: limits.window,
                ..SessionConfig::new(login.parameters.clone(), login.exp_cmd_sn)
            },
            None => SessionConfig::of_discovery(login.parameters.clone(), login.exp_cmd_sn),
        };
        let config = SessionConfig {
            nop: NopPolicy::of_target(limits.nop_interval),
            abort_of_finished: abort_of_finished(&initiator),
            ..usual
        };
        // The budget of a discovery session is not part of the core's budget, because the session may be
        // unauthenticated. Its separate limit is small.
        let within = target.map(|_| Rc::clone(memory));
        let budget = Budget::new(limits.session_staging_bytes, within);
        let port = InitiatorPort {
            name: initiator.clone(),
            qualifier: login.request.isid.0,
        };
        let target_port = TargetPort {
            name: target.map_or(String::new(), |target| target.name.clone()),
            group: admitted.tag,
            relative_port: admitted.tag,
        };
        let exports = target.map_or(&[][..], |target| &target.exports);
        // A negotiated value that affects the execution of SCSI commands would be added here.
        let traits = SessionTraits::new(port, target_port, reactor::now);
        let luns = Luns::new(exports, traits, Rc::clone(tally));
        let server = Arc::clone(&context.server);
        Rc::new_cyclic(|this| {
            RefCell::new(Session {
                machine: iscsi::target::Session::new(config),
                kept: budget.hold(0),
                commands: Commands::new(Weak::clone(this), server, Rc::clone(tally), luns, budget),
                identity: Identity {
                    counted_as: context.initiator_names().label(&initiator),
                    initiator,
                    user: login.authenticated_as.clone(),
                    isid: login.request.isid,
                    slot: admitted.slot,
                    target: admitted.target.clone(),
                    tag: admitted.tag,
                    started: reactor::now(),
                },
                context: context.clone(),
                tally: Rc::clone(tally),
                links: Vec::new(),
                reserved: Vec::new(),
                this: Weak::clone(this),
                checked_bytes_max: match login.parameters.data_digest {
                    DigestKind::None => 0,
                    DigestKind::Crc32c => login.parameters.local_max_recv_data_segment_length,
                },
                ending: Vec::new(),
                has_requested_logout: false,
            })
        })
    }

    pub(crate) fn weak(&self) -> Weak<RefCell<Session>> {
        Weak::clone(&self.this)
    }

    /// Handles the state machine's events.
    pub(crate) fn handle_events(&mut self, now: Instant) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Command(command) => self.arrive(now, command),
                Event::StagedData {
                    task,
                    offset,
                    bytes,
                } => self.land(task, offset, &bytes),
                Event::DataComplete { task } => self.data_complete(task),
                Event::DataFailed { task, fault } => self.data_failed(task, fault),
                Event::TaskManagement(request) => self.manage(request),
                Event::LogoutPending { logout } => self.quiesce_connection(logout),
                Event::SendTargets {
                    connection,
                    which,
                    from,
                    segment_max,
                } => {
                    self.send_targets(connection, &which, from.as_deref(), segment_max);
                }
                Event::TaskGone { task } => self.forget(task, &mut Vec::new()),
                Event::TransmitReady { connection } => self.wake(connection),
                Event::Acknowledged(Receipt {
                    subject: nexus,
                    value: losses,
                }) => {
                    self.commands.note_told(LossReport { nexus, losses });
                }
                Event::Close { connection, reason } => {
                    if let Some(link) = self.link(connection) {
                        link.close(reason);
                    }
                    let have_logged_out = self.links().all(|link| link.is_logged_out());
                    if have_logged_out && !self.has_requested_logout {
                        self.commands.luns.log_out();
                    }
                }
            }
        }
    }

    /// Stores data that arrived before its command's turn.
    fn land(&mut self, id: TaskId, offset: u32, bytes: &[u8]) {
        if let Some(landing) = self.landing(id) {
            landing.put(offset as usize, bytes);
            self.charge_incomplete(id);
        }
    }

    /// Returns the destination of a task's data; `None` if the data is no longer needed.
    pub(crate) fn landing(&mut self, id: TaskId) -> Option<&mut Landing> {
        self.commands
            .receiving_mut(id)
            .map(|receiving| &mut receiving.landing)
    }

    /// Charges memory for an incomplete block at the end of the data received so far. If no memory is
    /// available, the command fails with TASK SET FULL, and its further data is dropped. Whole blocks that
    /// were already stored remain, and are written again when the initiator retries the command.
    pub(crate) fn charge_incomplete(&mut self, id: TaskId) {
        let Some(Landing::Memory {
            blocks,
            is_charged: charged @ false,
        }) = self.landing(id)
        else {
            return;
        };
        let bytes = blocks.incomplete_bytes();
        if bytes == 0 {
            return;
        }
        *charged = true;
        if !self.commands.charge(id, bytes) {
            self.answer(id, Reply::status(Status::TaskSetFull));
        }
    }

    fn data_complete(&mut self, id: TaskId) {
        let Some((index, Receiving { job, landing })) = self.commands.received(id) else {
            return;
        };
        let (bytes, data) = match landing {
            Landing::Memory { blocks, .. } => (blocks.len(), Data::Placed),
            Landing::Buffer { start, buffer } => (start + buffer.len(), Data::Buffer(buffer)),
        };
        if job.writes_blocks() {
            self.commands.traffic.written_bytes += bytes as u64;
        }
        self.finish_in_turn(id, index, job, data);
    }

    fn data_failed(&mut self, id: TaskId, fault: DataFault) {
        let Some(index) = self.commands.task(id).and_then(|task| task.slot) else {
            return;
        };
        let fault = match fault {
            DataFault::Digest => {
                self.tally.note(Counted::DigestError, self.target(), "data");
                TransferFault::Digest
            }
            DataFault::Sequence => TransferFault::NotEnoughUnsolicited,
            DataFault::Unsolicited => TransferFault::UnexpectedUnsolicited,
        };
        let reply = self.commands.luns.unit(index).transfer_failed(fault);
        self.answer(id, reply);
    }

    /// Returns the payload of a task that is being sent.
    pub(crate) fn payload(&self, id: TaskId) -> Payload {
        let outgoing = self.commands.task(id).and_then(|task| task.outgoing());
        outgoing.map_or(Payload::None, |outgoing| outgoing.payload.clone())
    }

    /// Records that the last PDU of a task is queued. Its connection holds the returned lock until everything
    /// is sent.
    pub(crate) fn sent(&mut self, id: TaskId, now: Instant) -> Option<Outgoing> {
        let outgoing = self.commands.sent(id, now);
        self.resume_waiting_for_memory();
        outgoing
    }

    /// Removes a task that the state machine has removed. Adds the units whose devices may still execute it
    /// to `units`.
    fn forget(&mut self, id: TaskId, units: &mut Vec<Arc<LogicalUnit>>) {
        self.commands.clear(id, units);
        self.forget_cleared(id);
    }

    /// Aborts a command without a response. Returns the units that must quiesce before the command has no
    /// further effect.
    pub(crate) fn abort(&mut self, id: TaskId) -> Vec<Arc<LogicalUnit>> {
        let mut units = Vec::new();
        self.machine.abort(id);
        self.forget(id, &mut units);
        units
    }

    /// Returns the unit that a LUN field addresses, if this session has a unit at this LUN.
    pub(crate) fn unit(&self, lun: u64) -> Option<Arc<LogicalUnit>> {
        self.commands
            .luns
            .find(lun)
            .map(|index| self.commands.luns.unit(index))
    }

    /// All units of this session.
    pub(crate) fn units(&self) -> Vec<Arc<LogicalUnit>> {
        self.commands
            .luns
            .iter()
            .map(|slot| Arc::clone(&slot.unit))
            .collect()
    }

    /// Allows the state machine to hold as much memory as the budget has available.
    pub(crate) fn grant_room(&mut self) {
        self.machine.set_staging_limit(self.commands.budget.free());
    }

    /// Adjusts the charge to the memory that the state machine holds now.
    pub(crate) fn settle_kept(&mut self) {
        self.kept.set(self.machine.staged_bytes());
    }

    /// Adapts to the current configuration. A session that has lost its target, or access to it, loses its
    /// LUNs and is asked to log out. Returns the aborted commands; `None` for a discovery session.
    pub(crate) fn adapt(
        &mut self,
        now: Instant,
        config: &Config,
        portals: &[Portal],
    ) -> Option<Removed<TaskId>> {
        let before = self.identity.target.as_ref()?;
        let target = config
            .target(&before.name)
            .filter(|target| self.may_stay(target))
            .cloned();
        // Keep only the name of a removed target, so that its volumes can be closed.
        self.identity.target = Some(target.clone().unwrap_or_else(|| before.without_luns()));
        let removed = self
            .commands
            .adapt_luns(target.as_ref().map_or(&[], |target| &target.exports));
        if target.is_none() {
            self.request_logout(now, LOGOUT_TIME);
        } else {
            // Ends connections whose portal was removed.
            let is_there = |local: SocketAddr| {
                portals
                    .iter()
                    .any(|portal| portal.tag == self.identity.tag && portal.took_in(local))
            };
            self.links()
                .filter(|link| !is_there(link.local))
                .for_each(|link| link.cut());
        }
        self.wake_all();
        Some(removed)
    }

    fn may_stay(&self, target: &Target) -> bool {
        let (initiator, user) = (&self.identity.initiator, self.identity.user.as_deref());
        self.links()
            .all(|link| target.keeps(initiator, link.peer.ip(), user, self.identity.tag))
    }

    /// Asks the initiator to log out. It may then continue in another session.
    pub(crate) fn request_logout(&mut self, now: Instant, within: Duration) {
        self.has_requested_logout = true;
        self.machine.request_logout(now, within);
    }

    /// Ends the session if it has this TSIH or belongs to this initiator: asks the initiator to log out, or
    /// closes the connections immediately.
    pub(crate) fn end(&mut self, tsih: Option<u16>, initiator: &str, at_once: bool) -> bool {
        let identity = &self.identity;
        if tsih != Some(identity.slot.tsih.0) && !identity.initiator.eq_ignore_ascii_case(initiator)
        {
            return false;
        }
        if at_once {
            self.links().for_each(|link| link.cut());
        } else {
            self.request_logout(reactor::now(), LOGOUT_TIME);
            self.wake_all();
        }
        true
    }

    /// Drops `done` together with the session.
    pub(crate) fn on_end(&mut self, done: Sender<()>) {
        self.ending.push(done);
    }

    /// Adds a connection. It replaces a connection with the same CID, whose commands are aborted.
    pub(crate) fn open_link(
        &mut self,
        now: Instant,
        link: Rc<Link>,
        start: ConnectionStart,
    ) -> ConnectionId {
        let older = self
            .links
            .iter()
            .flatten()
            .find(|(_, other)| other.cid == link.cid)
            .cloned();
        if let Some((id, older)) = older {
            older.cut();
            self.lose_link(now, id);
        }
        let id = self.machine.add_connection(now, link.cid, start);
        if self.links.len() <= id.index() {
            self.links.resize_with(id.index() + 1, || None);
        }
        debug_assert!(
            self.links[id.index()].is_none(),
            "a place is used again when its connection is removed"
        );
        self.links[id.index()] = Some((id, link));
        debug_assert!(
            self.links().count() <= usize::from(self.machine.parameters().max_connections),
            "a connection that joins was reserved"
        );
        id
    }

    /// Removes a lost connection and aborts its commands (ErrorRecoveryLevel 0).
    pub(crate) fn lose_link(&mut self, now: Instant, id: ConnectionId) {
        if let Some(place) = self.links.get_mut(id.index()) {
            place.take_if(|(known, _)| *known == id);
        }
        self.machine.remove_connection(now, id);
        self.handle_events(now);
        debug_assert!(
            self.commands.tasks().all(|task| task.id.connection() != id),
            "the tasks of a lost connection are gone"
        );
        self.wake_all();
    }

    /// Reserves a connection for a login, unless the session is full. The new connection will replace one
    /// with the same CID.
    pub(crate) fn reserve(&mut self, cid: Cid) -> bool {
        let taken = self
            .links()
            .map(|link| link.cid)
            .chain(self.reserved.iter().copied());
        let others: BTreeSet<Cid> = taken.filter(|&taken| taken != cid).collect();
        let has_room = others.len() < usize::from(self.machine.parameters().max_connections);
        if has_room {
            self.reserved.push(cid);
        }
        has_room
    }

    /// Ends the reservation of a login, if it has one.
    pub(crate) fn release(&mut self, cid: Cid) {
        if let Some(index) = self.reserved.iter().position(|&reserved| reserved == cid) {
            self.reserved.swap_remove(index);
        }
    }

    /// Its connections.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Rc<Link>> {
        self.links.iter().flatten().map(|(_, link)| link)
    }

    pub(crate) fn link(&self, id: ConnectionId) -> Option<&Rc<Link>> {
        let (known, link) = self.links.get(id.index())?.as_ref()?;
        (*known == id).then_some(link)
    }

    pub(crate) fn wake(&self, id: ConnectionId) {
        if let Some(link) = self.link(id) {
            link.wake();
        }
    }

    /// Wakes every connection to send its queued PDUs.
    pub(crate) fn wake_all(&self) {
        self.links().for_each(|link| link.wake());
    }
}

impl ScsiSession for Session {
    type Id = TaskId;
    type Command = Command;
    type Landing = Landing;
    type Outgoing = Outgoing;

    /// Typical responses to INQUIRY and REQUEST SENSE are shorter than this.
    const UNCHARGED_BYTES: usize = 512;

    fn commands(&self) -> &Commands<Session> {
        &self.commands
    }

    fn commands_mut(&mut self) -> &mut Commands<Session> {
        &mut self.commands
    }

    fn index(id: TaskId) -> usize {
        id.index()
    }

    fn declared(command: &Command) -> Declared<'_, TaskId> {
        Declared {
            id: command.task,
            lun: command.lun.0,
            cdb: command.cdb(),
            turn: match command.attribute {
                TaskAttribute::Ordered => Turn::Ordered,
                TaskAttribute::HeadOfQueue => Turn::HeadOfQueue,
                TaskAttribute::Simple | TaskAttribute::Untagged | TaskAttribute::Aca => {
                    Turn::Simple
                }
            },
            data_out_bytes: command.data_out_bytes(),
            data_in_bytes: command.data_in_bytes(),
            fault: match command.attribute {
                TaskAttribute::Aca => Some(Misdeclared::Aca),
                _ => (command.read && command.write).then_some(Misdeclared::BothDirections),
            },
            sends_early: command.write, // immediate data follows the command directly
        }
    }

    fn target(&self) -> Option<&str> {
        self.identity
            .target
            .as_ref()
            .map(|target| target.name.as_str())
    }

    fn receive(&mut self, command: &Command, _: usize, receive: Receive) {
        let Receive { bytes, place, job } = receive;
        // If the data goes to the volume's memory, only one data segment at a time is buffered, until its
        // digest is checked.
        let buffered = match place {
            logical_unit::Landing::Buffer => bytes,
            logical_unit::Landing::Memory(_) => bytes.min(self.checked_bytes_max),
        };
        let memory_bytes = match buffered {
            0 => 0,
            bytes => Buffer::memory_bytes(bytes as usize),
        };
        if !self
            .commands
            .charge(command.task, memory_bytes + job.working_bytes())
        {
            // The memory limit takes precedence over the command. Initiators retry after TASK SET FULL (SAM-5
            // 5.3.1).
            return self.answer(command.task, Reply::status(Status::TaskSetFull));
        }
        let landing = match place {
            logical_unit::Landing::Memory(blocks) => Landing::Memory {
                blocks,
                is_charged: false,
            },
            logical_unit::Landing::Buffer => Landing::Buffer {
                start: 0,
                buffer: Buffer::recycled(bytes as usize),
            },
        };
        self.commands.receive(command.task, job, landing);
        self.machine.expect_data(command.task, bytes);
    }

    fn outgoing(data: DataIn) -> Outgoing {
        let (payload, lock) = match data {
            DataIn::None => (Payload::None, None),
            DataIn::Bytes(bytes) => (Payload::Bytes(bytes.into()), None),
            DataIn::Buffer(buffer) => (Payload::Buffer(Rc::new(buffer)), None),
            DataIn::Region(region, lock) => (Payload::Memory(region), lock),
        };
        Outgoing { payload, lock }
    }

    fn respond(&mut self, id: TaskId, answer: Answer<'_>) {
        let response = Response {
            status: answer.status.code(),
            sense: answer.sense.map_or(&[], |sense| sense.bytes()),
            data_in: u32::try_from(answer.data_bytes).unwrap_or(u32::MAX),
            expected: answer.expected_bytes,
            receipt: answer.report.map(|LossReport { nexus, losses }| Receipt {
                subject: nexus,
                value: losses,
            }),
        };
        self.machine.respond(id, response);
        self.wake(id.connection());
    }

    fn after_answers(&mut self) {
        self.handle_events(reactor::now());
    }

    /// Commands that were addressed to another LUN (copies) still need a response, since their initiator
    /// waits for it.
    fn abort_own(
        &mut self,
        unit: &Arc<LogicalUnit>,
        except: Option<TaskId>,
        units: &mut Vec<Arc<LogicalUnit>>,
    ) -> Vec<TaskId> {
        let own = self
            .commands
            .tasks_of(unit)
            .map(|task| task.id)
            .filter(|id| Some(*id) != except);
        let mut untold: Vec<TaskId> = own.collect();
        // Clear all of them before any is removed, so that no command starts because another was aborted.
        untold.iter().for_each(|id| self.commands.clear(*id, units));
        let received =
            |session: &Session, id: TaskId| session.commands.task(id).and_then(|task| task.slot);
        untold.retain(|id| {
            let Some(received) = received(self, *id).map(|index| self.commands.luns.unit(index))
            else {
                return false;
            };
            scsi_session::add_units(units, std::slice::from_ref(&received));
            let is_copy = !Arc::ptr_eq(&received, unit);
            if !is_copy {
                self.machine.abort(*id);
                self.forget_cleared(*id);
            }
            is_copy
        });
        let is_cleared = |id: &TaskId| {
            let task = self.commands.task(*id);
            task.is_some_and(|task| task.is_cleared())
        };
        debug_assert!(untold.iter().all(is_cleared), "copies run or are aborted");
        self.wake_all();
        untold
    }
}

/// Returns the response to an abort of a task that has already ended. ESXi, whose initiator names have
/// VMware's prefix, resets the target if the response follows RFC 7143 section 11.6.1 (c).
fn abort_of_finished(initiator: &str) -> TaskManagementResult {
    match initiator.starts_with("iqn.1998-01.com.vmware:") {
        true => TaskManagementResult::FunctionComplete,
        false => TaskManagementResult::TaskDoesNotExist,
    }
}
