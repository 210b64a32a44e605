//! A session on its core: connects the iSCSI machine to the logical units and holds the commands between
//! them.
//!
//! The machine announces a command ([`Event::Command`]); the logical unit plans it; its data, if any, are
//! received; the logical unit finishes it, at once or as a task of the executor; the reply goes to the
//! machine, and connections send it. Nothing here blocks.
//!
//! ```text
//!   Event::Command ─► begin ─┬─ Plan::Reply ────────────────────────────────────► answer
//!                            ├─ Plan::Receive ─► data received ─► finish ─┬─ Now ─► answer
//!                            └─ Plan::Run ──────────────────────► finish ─┴─ Later ─► (executor) ─► answer
//! ```
//!
//! The states of a task ([`TaskState`]); it begins as `Held`:
//!
//! ```text
//!          Plan::Receive              data complete
//!   Held ────────────────► Receiving ───────────────► Held
//!
//!   Held ── turn and memory ─► finish ─┬─ Later ───► Running ─┐
//!                                      ├─ Lasting ─► Lasting ─┼─► Answered ── last PDU sent ──► removed
//!                                      └─ Now ────────────────┘
//!   not Answered ── aborted by its own session ────► removed
//!   not Answered ── aborted by another initiator ──► Cleared ── devices quiesced ──► Answered
//! ```

mod change;
mod command;
mod counted;
mod early;
mod ending;
mod late;
mod links;
mod report;
mod turns;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

use front_end_core::{Budget, Charge, CoreTally, Operation, Span, Traffic};
use iscsi::negotiate::DigestKind;
use iscsi::pdu::TaskManagementResult;
use iscsi::target::{Command, ConnectionId, Event, NopPolicy, SessionConfig, TaskId};
use logical_unit::{Data, InitiatorPort, Job, TargetPort};
use reactor::{JoinHandle, Sender};
use scsi_session::{AbortedUnits, Luns, Turn, Work};

pub(crate) use self::change::Removed;
use self::late::Observed;
#[cfg(test)]
pub(crate) use self::late::PATIENCE;
pub(crate) use self::late::SLOW;
use crate::admission::Admitted;
use crate::config::Target;
use crate::core::CoreSessions;
use crate::front_end::Context;
use crate::inbox::Landing;
use crate::link::Link;
use crate::management;
use crate::registry::SessionSlot;
use reactor::Payload;

/// A session, shared by its connections and running commands.
pub(crate) type SharedSession = Rc<RefCell<Session>>;

/// A session.
pub(crate) struct Session {
    pub(crate) machine: iscsi::target::Session,
    pub(crate) luns: Luns<Waiting>,
    pub(crate) traffic: Traffic,
    pub(crate) identity: Identity,
    this: Weak<RefCell<Session>>,
    context: Context,
    tally: Rc<CoreTally>,
    /// Of the latest command that was answered.
    span: Span,
    /// By the index of their [`TaskId`].
    tasks: Vec<Option<Task>>,
    /// By the index of their [`ConnectionId`].
    links: Vec<Option<(ConnectionId, Rc<Link>)>>,
    /// Memory its commands may hold.
    budget: Rc<Budget>,
    /// Memory that the machine holds.
    kept: Charge,
    /// Commands that wait for memory.
    waiting_for_memory: VecDeque<(TaskId, Job)>,
    /// What each task waited for at the last tick, by the index of its [`TaskId`].
    observed: Vec<Option<Observed>>,
    /// The largest data segment that is buffered until its digest is checked; zero without data digests.
    checked_bytes_max: u32,
    /// Units whose devices may still carry out aborted commands.
    aborted_units: AbortedUnits,
    /// Dropped when the session ends, which wakes those that wait for that.
    ending: Vec<Sender<()>>,
}

/// The identity of the session, for the registry and for status.
pub(crate) struct Identity {
    pub(crate) initiator: String,
    /// The name under which monitoring has it.
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

/// A command between its arrival and its last PDU.
struct Task {
    id: TaskId,
    /// `None`: addressed to a LUN that does not exist.
    slot: Option<usize>,
    turn: Turn,
    operation: Operation,
    /// It has begun and is counted at its LUN.
    entered: bool,
    started: Instant,
    state: TaskState,
    /// Memory held for its data.
    charge: Option<Charge>,
}

enum TaskState {
    /// Its data are being received to this destination.
    Receiving(Job, Landing),
    /// It waits for its turn, or for memory.
    Held,
    /// A task of the executor awaits its device.
    Running(Work),
    /// A task of the executor awaits the logical unit's own work (SANITIZE, FORMAT UNIT), which has no
    /// deadline.
    Lasting(JoinHandle<()>),
    /// Aborted by another initiator; answered once the device has quiesced.
    Cleared,
    /// Answered; its data and response are being sent.
    Answered(Outgoing),
}

/// What a task sends.
pub(crate) struct Outgoing {
    pub(crate) payload: Payload,
    /// Keeps overlapping atomic commands out until the payload is sent.
    pub(crate) lock: Option<block::Shared>,
}

/// What waits for its turn at a LUN.
pub(crate) enum Waiting {
    /// A command that has not begun.
    Begin(Command),
    /// A write whose data have arrived.
    Finish(TaskId, Job, Data),
}

impl Waiting {
    /// Which command it is.
    fn task(&self) -> TaskId {
        match self {
            Waiting::Begin(command) => command.task,
            Waiting::Finish(task, ..) => *task,
        }
    }
}

impl Session {
    /// The session of a leading login. Its connections join it one by one.
    pub(crate) fn begin(core: &CoreSessions, admitted: &Admitted) -> SharedSession {
        let (context, memory) = (&core.context, core.memory());
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
        // A discovery session needs no authentication and does not use the memory of others: its own limit is
        // small.
        let within = target.map(|_| Rc::clone(memory));
        let budget = Budget::new(limits.session_staging_bytes, within);
        let port = InitiatorPort { name: initiator.clone(), qualifier: login.request.isid.0 };
        let target_port = TargetPort {
            name: target.map_or(String::new(), |target| target.name.clone()),
            group: admitted.tag,
            relative_port: admitted.tag,
        };
        let now = reactor::now();
        Rc::new_cyclic(|this| {
            RefCell::new(Session {
                machine: iscsi::target::Session::new(config),
                luns: Luns::new(
                    target.map_or(&[], |target| &target.exports),
                    port,
                    target_port,
                    Rc::clone(&core.tally),
                ),
                traffic: Traffic::default(),
                identity: Identity {
                    counted_as: context.initiator_names().label(&initiator),
                    initiator,
                    user: login.authenticated_as.clone(),
                    isid: login.request.isid,
                    slot: admitted.slot,
                    target: admitted.target.clone(),
                    tag: admitted.tag,
                    started: now,
                },
                this: Weak::clone(this),
                context: context.clone(),
                tally: Rc::clone(&core.tally),
                span: Span::new(now, now),
                tasks: Vec::new(),
                links: Vec::new(),
                kept: budget.hold(0),
                budget,
                waiting_for_memory: VecDeque::new(),
                observed: Vec::new(),
                checked_bytes_max: match login.parameters.data_digest {
                    DigestKind::None => 0,
                    DigestKind::Crc32c => login.parameters.local_max_recv_data_segment_length,
                },
                aborted_units: AbortedUnits::default(),
                ending: Vec::new(),
            })
        })
    }

    pub(crate) fn weak(&self) -> Weak<RefCell<Session>> {
        Weak::clone(&self.this)
    }

    pub(crate) fn context(&self) -> Context {
        self.context.clone()
    }

    /// Handles the machine's events.
    pub(crate) fn handle_events(&mut self, now: Instant) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Command(command) => self.arrive(now, command),
                Event::StagedData { task, offset, bytes } => self.land(task, offset, &bytes),
                Event::DataComplete { task } => self.data_complete(task),
                Event::DataFailed { task, fault } => self.data_failed(task, fault),
                Event::TaskManagement(request) => management::start(self, request),
                Event::LogoutPending { logout } => management::quiesce_connection(self, logout),
                Event::SendTargets { connection, which, from, segment_max } => {
                    self.send_targets(connection, &which, from.as_deref(), segment_max);
                }
                Event::TaskGone { task } => drop(self.forget(task)),
                Event::TransmitReady { connection } => self.wake(connection),
                Event::Acknowledged(receipt) => self.note_told(receipt),
                Event::Close { connection, reason } => self.close_link(connection, reason),
            }
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
