//! A session on its core: connects the protocol state machine to the logical units. Its commands have the
//! same life cycle as in every SCSI session ([`scsi_session::ScsiSession`]). In this protocol, commands
//! arrive with all of their data, and the state machine retransmits a reply until it is acknowledged. A
//! command therefore ends when its reply is passed to the state machine.
//!
//! Task management (SAM-5 chapter 7): a function and the commands that it aborts are answered when the
//! aborted commands can no longer reach the medium. By then, these commands have been removed on every core,
//! and their devices have quiesced. If a device does not quiesce in time, its volume is fenced (not ready for
//! any initiator) until it does, and the responses are sent immediately ([`front_end_core::Server::fence`]).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

use block::Buffer;
use front_end_core::{
    AUDIT, Budget, CoreTally, Counted, HostAddress, Operation, Server, SessionInfo, Traffic,
};
use hyperscsi::target::{SessionId, TaskId};
use hyperscsi::{Command, Counters, Function, FunctionResult, Payload, Response, TaskAttribute};
use logical_unit::{
    Data, DataIn, InitiatorPort, Landing, LogicalUnit, Misdeclared, Receive, Reply, SessionTraits,
    Status, TargetPort,
};
use scsi_session::{
    Answer, Commands, Declared, LossReport, Luns, Removed, ScsiSession, Task, Turn,
    abort_everybodys, add_units, quiesce, with,
};

use crate::config::{Config, Target};
use crate::context::{HYPERSCSI, Wire};
use crate::status::{PathStatus, SessionStatus};

/// A session, shared by its running commands.
pub(crate) type SharedSession = Rc<RefCell<Session>>;

/// The properties of a session that has started.
pub(crate) struct Began {
    pub(crate) id: SessionId,
    /// The session's number, assigned by the target.
    pub(crate) handle: u16,
    pub(crate) initiator: String,
    /// The label for monitoring.
    pub(crate) counted_as: Arc<str>,
    pub(crate) port: u32,
    pub(crate) target: Arc<Target>,
    /// Whether frames are encrypted, and the initiator name is therefore authenticated.
    pub(crate) is_encrypted: bool,
    /// The initiator's address, and the portal used.
    pub(crate) peer: HostAddress,
    pub(crate) portal: String,
}

/// A session.
pub(crate) struct Session {
    began: Began,
    started: Instant,
    this: Weak<RefCell<Session>>,
    server: Arc<Server>,
    wire: Rc<Wire>,
    tally: Rc<CoreTally>,
    pub(crate) commands: Commands<Session>,
    /// The reports of lost writes in replies that the initiator has not acknowledged yet, by command number.
    reports: BTreeMap<u64, LossReport>,
}

/// Identifies a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    index: usize,
    /// The command's number, assigned by the initiator.
    number: u64,
    /// Number of bytes that the initiator expects to transfer.
    expected_bytes: u32,
}

/// A command of a session.
pub(crate) struct Arrived {
    tag: Tag,
    command: Command,
}

impl Session {
    pub(crate) fn begin(
        server: &Arc<Server>,
        wire: &Rc<Wire>,
        tally: &Rc<CoreTally>,
        memory: &Rc<Budget>,
        began: Began,
    ) -> SharedSession {
        let [a, b, c, d] = began.port.to_be_bytes();
        let initiator = InitiatorPort {
            name: format!("{HYPERSCSI}:{}", began.initiator),
            qualifier: [0, 0, a, b, c, d],
        };
        let port = TargetPort {
            name: format!("{HYPERSCSI}:{}", began.target.name),
            group: TARGET_PORT,
            relative_port: TARGET_PORT,
        };
        let mut luns = Luns::new(
            &[],
            SessionTraits::new(initiator, port, reactor::now),
            Rc::clone(tally),
        );
        luns.add_missing(&exports(&began.target, &began.initiator));
        let budget = Budget::new(memory.limit(), Some(Rc::clone(memory)));
        let (server, tally) = (Arc::clone(server), Rc::clone(tally));
        Rc::new_cyclic(|this| {
            RefCell::new(Session {
                commands: Commands::new(
                    Weak::clone(this),
                    Arc::clone(&server),
                    Rc::clone(&tally),
                    luns,
                    budget,
                ),
                started: reactor::now(),
                this: Weak::clone(this),
                reports: BTreeMap::new(),
                server,
                wire: Rc::clone(wire),
                tally,
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

    pub(crate) fn target_name(&self) -> &str {
        &self.began.target.name
    }

    pub(crate) fn counted_as(&self) -> Arc<str> {
        Arc::clone(&self.began.counted_as)
    }

    pub(crate) fn is_called(&self, handle: Option<u16>, initiator: &str) -> bool {
        handle == Some(self.began.handle) || self.began.initiator == initiator
    }

    /// Starts a command that has arrived.
    pub(crate) fn begin_task(&mut self, now: Instant, number: u64, command: Command) {
        debug_assert!(self.tag(number).is_none(), "a command is announced once");
        let expected_bytes = command.data_in_bytes.max(command.data_out.len() as u32);
        let tag = Tag {
            index: self.commands.free_index(),
            number,
            expected_bytes,
        };
        self.arrive(now, Arrived { tag, command });
    }

    /// Returns the unanswered command with this number.
    pub(crate) fn tag(&self, number: u64) -> Option<Tag> {
        self.commands
            .tasks()
            .map(|task| task.id)
            .find(|tag| tag.number == number)
    }

    /// Records that the initiator has received a reply that reported lost writes.
    pub(crate) fn note_told(&mut self, number: u64) {
        if let Some(report) = self.reports.remove(&number) {
            self.commands.note_told(report);
        }
    }

    /// Returns the unit at a LUN, if it is visible to this session.
    pub(crate) fn unit(&self, lun: [u8; 8]) -> Option<Arc<LogicalUnit>> {
        let luns = &self.commands.luns;
        luns.find(u64::from_be_bytes(lun))
            .map(|index| luns.unit(index))
    }

    /// All units visible to this session.
    pub(crate) fn units(&self) -> Vec<Arc<LogicalUnit>> {
        self.commands
            .luns
            .iter()
            .map(|slot| Arc::clone(&slot.unit))
            .collect()
    }

    /// Executes a function and responds. The session's own commands are aborted immediately, since the
    /// function does not affect later commands; the rest of the function runs as a task.
    pub(crate) fn manage(
        &mut self,
        task: TaskId,
        function: Function,
        lun: [u8; 8],
        referenced: Option<TaskId>,
    ) {
        self.tally
            .note(Counted::TaskManagement, self.target(), name(function));
        let (mut units, mut cleared) = (Vec::new(), Vec::new());
        let unit = self.unit(lun);
        // The units on which commands of other sessions are aborted as well.
        let (everybodys, result) = match (function, unit) {
            (Function::AbortTask, _) => {
                if let Some(tag) = referenced.and_then(|referenced| self.tag(referenced.number)) {
                    self.commands.clear(tag, &mut units);
                    cleared.push(tag);
                }
                (Vec::new(), FunctionResult::Complete)
            }
            (Function::AbortTaskSet, Some(unit)) => {
                cleared = self.commands.clear_unit(&unit, None, &mut units);
                (Vec::new(), FunctionResult::Complete)
            }
            (Function::ClearTaskSet | Function::LogicalUnitReset, Some(unit)) => {
                cleared = self.commands.clear_unit(&unit, None, &mut units);
                if function == Function::LogicalUnitReset {
                    unit.reset();
                }
                (vec![unit], FunctionResult::Complete)
            }
            (Function::TargetReset | Function::ITNexusReset, _) => {
                let all = self.units();
                for unit in &all {
                    cleared.extend(self.commands.clear_unit(unit, None, &mut units));
                    if function == Function::TargetReset {
                        unit.reset();
                    }
                }
                (
                    if function == Function::TargetReset {
                        all
                    } else {
                        Vec::new()
                    },
                    FunctionResult::Complete,
                )
            }
            (
                Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset,
                None,
            ) => (Vec::new(), FunctionResult::IncorrectLun),
            (Function::QueryTask | Function::QueryTaskSet | Function::Other(_), _) => {
                (Vec::new(), FunctionResult::Rejected)
            }
        };
        add_units(&mut units, &everybodys);
        let (server, wire, session) =
            (Arc::clone(&self.server), Rc::clone(&self.wire), self.weak());
        drop(reactor::spawn(async move {
            for unit in &everybodys {
                let spared = with(&session, |session| session.commands.nexus_of(unit)).flatten();
                abort_everybodys(&server, unit, spared).await;
            }
            quiesce(&server, units).await;
            with(&session, |session| session.tell_aborted(&cleared));
            tracing::info!(?function, ?result, "task management");
            wire.function_done(task, result);
        }));
    }

    /// Ends the session. Returns the units whose devices may still execute its commands.
    pub(crate) fn end(&mut self) -> Vec<Arc<LogicalUnit>> {
        let initiator = &self.began.counted_as;
        self.tally
            .session_ended(&self.began.target.name, initiator, self.commands.traffic);
        self.commands.end()
    }

    /// Adapts to this configuration. Returns the aborted commands, and whether the session may stay.
    pub(crate) fn adapt(&mut self, config: &Config) -> (Removed<Tag>, bool) {
        let Began {
            initiator,
            peer,
            is_encrypted,
            target: before,
            ..
        } = &self.began;
        let target = config.target(&before.name);
        let target = target
            .filter(|target| target.keeps(initiator, *peer, *is_encrypted))
            .cloned();
        let exports = target
            .as_ref()
            .map_or_else(Vec::new, |target| exports(target, initiator));
        // Keep only the name of a removed target, so that its volumes can be closed.
        let nothing = || {
            Arc::new(Target {
                exports: Vec::new(),
                ..Target::clone(before)
            })
        };
        let may_stay = target.is_some();
        self.began.target = target.unwrap_or_else(nothing);
        (self.commands.adapt_luns(&exports), may_stay)
    }

    fn user(&self) -> Option<&str> {
        self.began
            .is_encrypted
            .then_some(self.began.initiator.as_str())
    }

    /// Logs the login.
    pub(crate) fn log_in(&self) {
        let Began {
            initiator,
            handle: session,
            port,
            peer,
            portal,
            ..
        } = &self.began;
        let (user, target) = (self.user(), self.target_name());
        tracing::info!(target: AUDIT, %peer, session, initiator, user, target, port, portal, "logged in");
    }

    /// Logs the logout and the session's traffic.
    pub(crate) fn log_out(&self, why: &str) {
        let Began {
            initiator,
            handle: session,
            peer,
            ..
        } = &self.began;
        let Traffic {
            commands,
            read_bytes,
            written_bytes,
            ..
        } = self.commands.traffic;
        let (user, target) = (self.user(), self.target_name());
        tracing::info!(target: AUDIT, why, %peer, session, initiator, user, target, "session ended");
        tracing::info!(target: AUDIT, %peer, session, commands, read_bytes, written_bytes, "moved by its session");
    }

    /// Its description for an observer of the server.
    pub(crate) fn info(&self) -> SessionInfo<'_> {
        SessionInfo {
            initiator: &self.began.initiator,
            user: self.user(),
            target: Some(self.target_name()),
            front_end: HYPERSCSI,
            handle: Some(self.began.handle),
        }
    }

    /// Its status for monitoring.
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
            target: self.target_name().to_owned(),
            is_encrypted: self.began.is_encrypted,
            peer: self.began.peer,
            portal: self.began.portal.clone(),
            age: reactor::now().saturating_duration_since(self.started),
            core,
            luns: self.commands.luns.iter().map(|slot| slot.lun).collect(),
            in_flight: self.commands.in_flight(),
            traffic: self.commands.traffic,
            frame_bytes,
            counters,
            paths,
        }
    }
}

impl ScsiSession for Session {
    type Id = Tag;
    type Command = Arrived;
    type Landing = ();
    type Outgoing = Payload;

    /// No reply is charged here: the state machine owns a reply as soon as it exists, and accounts for its
    /// memory.
    const UNCHARGED_BYTES: usize = usize::MAX;

    fn commands(&self) -> &Commands<Session> {
        &self.commands
    }

    fn commands_mut(&mut self) -> &mut Commands<Session> {
        &mut self.commands
    }

    fn index(tag: Tag) -> usize {
        tag.index
    }

    fn declared(Arrived { tag, command }: &Arrived) -> Declared<'_, Tag> {
        let moves_both_ways = command.data_in_bytes > 0 && !command.data_out.is_empty();
        Declared {
            id: *tag,
            lun: u64::from_be_bytes(command.lun),
            cdb: &command.cdb,
            turn: match command.attribute {
                TaskAttribute::Ordered => Turn::Ordered,
                TaskAttribute::HeadOfQueue => Turn::HeadOfQueue,
                TaskAttribute::Simple | TaskAttribute::Untagged | TaskAttribute::Aca => {
                    Turn::Simple
                }
            },
            data_out_bytes: command.data_out.len() as u32,
            data_in_bytes: command.data_in_bytes,
            fault: match command.attribute {
                TaskAttribute::Aca => Some(Misdeclared::Aca),
                _ => moves_both_ways.then_some(Misdeclared::BothDirections),
            },
            sends_early: false,
        }
    }

    fn target(&self) -> Option<&str> {
        Some(self.target_name())
    }

    /// Stores the data, which has arrived with the command.
    fn receive(&mut self, arrived: &Arrived, index: usize, receive: Receive) {
        let (Receive { bytes, place, job }, sent) = (receive, &arrived.command.data_out);
        let data = &sent[..sent.len().min(bytes as usize)];
        let buffer_bytes = match place {
            Landing::Memory(_) => 0,
            Landing::Buffer => Buffer::memory_bytes(data.len()),
        };
        if !self
            .commands
            .charge(arrived.tag, buffer_bytes + job.working_bytes())
        {
            // The memory limit takes precedence over the command. Initiators retry after TASK SET FULL (SAM-5
            // 5.3.1).
            return self.answer(arrived.tag, Reply::status(Status::TaskSetFull));
        }
        if job.writes_blocks() {
            self.commands.traffic.written_bytes += data.len() as u64;
            self.commands.luns.tally(index).moved(0, data.len() as u64);
        }
        let data = match place {
            Landing::Memory(mut blocks) => {
                blocks.put(0, data);
                Data::Placed
            }
            Landing::Buffer => Data::Buffer(Buffer::from(data)),
        };
        self.finish(arrived.tag, index, job, data);
    }

    fn outgoing(data: DataIn) -> Payload {
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

    fn respond(&mut self, tag: Tag, answer: Answer<'_>) {
        let Answer {
            status,
            sense,
            data_bytes,
            expected_bytes,
            report,
        } = answer;
        if let Some(Task {
            slot: Some(index),
            operation: Operation::Read,
            ..
        }) = self.commands.task(tag)
        {
            self.commands.luns.tally(*index).moved(data_bytes as u64, 0);
        }
        let Some(data) = self.commands.sent(tag, reactor::now()) else {
            return;
        };
        debug_assert_eq!(
            data.len(),
            data_bytes,
            "the state machine sends each response of the unit"
        );
        let response = Response {
            status: status.code(),
            residual: (expected_bytes as i64).saturating_sub(i64::from(tag.expected_bytes)),
            sense: sense.map_or_else(Vec::new, |sense| sense.bytes().to_vec()),
            data,
        };
        debug_assert!(
            !self.reports.contains_key(&tag.number),
            "a command has one reply"
        );
        self.reports
            .extend(report.map(|report| (tag.number, report)));
        let id = TaskId {
            session: self.began.id,
            number: tag.number,
        };
        self.wire.respond(id, response, report.is_some());
        self.resume_waiting_for_memory();
    }
}

/// All portals belong to one target port, because a session may change its path.
const TARGET_PORT: u16 = 1;

/// Returns the LUNs of a target that this initiator can see. They are selected here by its HyperSCSI name,
/// because the port name of the session, by which reservations identify the initiator, has a prefix.
fn exports(target: &Target, initiator: &str) -> Vec<scsi_session::Export> {
    let seen = target
        .exports
        .iter()
        .filter(|export| export.is_seen_by(initiator));
    seen.map(|export| scsi_session::Export {
        initiators: None,
        ..export.clone()
    })
    .collect()
}

/// A buffer that the state machine sends from.
struct Sent(Buffer);

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Wraps a buffer for the state machine. The state machine accounts for a reply by its length, so the buffer
/// must not be much larger than that.
fn sent(buffer: Buffer) -> Payload {
    let length = buffer.len();
    match Buffer::memory_bytes(length) <= length + length / 4 {
        true => Payload::new(Sent(buffer)),
        false => buffer.to_vec().into(),
    }
}

fn name(function: Function) -> &'static str {
    match function {
        Function::AbortTask => "abort_task",
        Function::AbortTaskSet => "abort_task_set",
        Function::ClearTaskSet => "clear_task_set",
        Function::LogicalUnitReset => "logical_unit_reset",
        Function::TargetReset => "target_reset",
        Function::QueryTask => "query_task",
        Function::QueryTaskSet => "query_task_set",
        Function::ITNexusReset => "i_t_nexus_reset",
        Function::Other(_) => "other",
    }
}
