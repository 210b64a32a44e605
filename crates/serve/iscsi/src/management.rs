//! Task management (RFC 7143 section 11.5): which commands end, on which cores, and when that may be said.
//!
//! A function is answered when the commands it ended can no longer touch the medium: they are gone from every
//! core, and their devices have let go of what was under way. A device that does not let go in time leaves its
//! logical unit fenced, not ready for anybody, until it does; then the answer is given all the same, because
//! the fence keeps the promise.

use std::cell::RefCell;
use std::rc::Weak;
use std::sync::Arc;
use std::time::Duration;

use iscsi::pdu::{TaskManagementFunction as Function, TaskManagementResult as Outcome};
use iscsi::target::{LogoutId, TaskId, TmfRequest};
use reactor::Sender;
use unit::{Effect, LogicalUnit, NexusId};

use crate::core::Message;
use crate::server::Server;
use crate::session::Session;

/// Whose commands for a logical unit are to end.
#[derive(Clone, Debug)]
pub(crate) enum Whose {
    /// Everybody's.
    All,
    /// Those of these nexuses.
    Of(Vec<NexusId>),
}

/// Whose commands go on all the same.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spared {
    /// The command on whose behalf the others end.
    Command(NexusId, TaskId),
    /// Those of the nexus that asked: what it had under way has ended already, and what came since is to be
    /// carried out.
    Nexus(NexusId),
    /// Nobody's.
    Nobody,
}

/// Carries a function out and answers it. What the session itself has under way ends at once, since a command
/// that follows on the heels of the function is not meant by it; the rest goes on aside from the session's other
/// work.
pub(crate) fn start(session: &mut Session, request: TmfRequest) {
    let (units, untold) = end_own(session, &request);
    let (server, session) = (session.server(), session.weak());
    drop(reactor::spawn(async move {
        let result = carry_out(&server, &session, &request, units).await;
        tracing::info!(function = ?request.function, ?result, "task management");
        with(&session, |session| {
            session.tell_aborted(&untold);
            session.machine.tmf_done(request.tmf, result);
            session.handle_events(reactor::now());
            session.wake_all();
        });
    }));
}

/// Answers the logout of a connection that was lost, when none of the session's devices is at work any more on what
/// was given up.
pub(crate) fn let_go_of_connection(session: &mut Session, logout: LogoutId) {
    let (server, units, session) = (session.server(), session.units(), session.weak());
    drop(reactor::spawn(async move {
        let_go(&server, units).await;
        with(&session, |session| {
            session.machine.let_go(logout);
            session.handle_events(reactor::now());
            session.wake_all();
        });
    }));
}

/// Ends the commands that the function is about. Returns two lists: the units whose devices must let go of these commands
/// before the function is answered, and the copies that another LUN received, whose end the initiator is yet to be told.
fn end_own(session: &mut Session, request: &TmfRequest) -> (Vec<Arc<LogicalUnit>>, Vec<TaskId>) {
    let unit = session.unit(request.lun);
    match (request.function, unit) {
        (Function::AbortTask, unit) => {
            let mut units = request.referenced.map_or_else(Vec::new, |task| session.abort(task));
            add_units(&mut units, unit.as_slice());
            (units, Vec::new())
        }
        (Function::AbortTaskSet | Function::ClearTaskSet, Some(unit)) => session.abort_unit(&unit, None),
        (Function::LogicalUnitReset, Some(unit)) => {
            let ended = session.abort_unit(&unit, None);
            unit.reset();
            ended
        }
        (Function::ITNexusReset, _) => {
            session.units().iter().for_each(|unit| drop(session.abort_unit(unit, None)));
            (session.units(), Vec::new())
        }
        (Function::TargetWarmReset | Function::TargetColdReset, _) => {
            for unit in session.units() {
                drop(session.abort_unit(&unit, None));
                unit.reset();
            }
            (session.units(), Vec::new())
        }
        // Queries, what is not supported, and LUNs that do not exist.
        _ => (Vec::new(), Vec::new()),
    }
}

/// Adds those that are not there yet.
pub(crate) fn add_units(units: &mut Vec<Arc<LogicalUnit>>, more: &[Arc<LogicalUnit>]) {
    for unit in more {
        if !units.iter().any(|known| Arc::ptr_eq(known, unit)) {
            units.push(Arc::clone(unit));
        }
    }
}

/// Carries out what a command asks for beyond its own logical unit, before it is answered.
pub(crate) async fn settle(server: Arc<Server>, task: TaskId, effects: Box<[Effect]>) {
    for effect in effects {
        match effect {
            Effect::AbortTasks { unit, nexuses, by } => {
                end_everywhere(&server, &unit, Whose::Of(nexuses), Spared::Command(by, task)).await;
                let_go(&server, vec![unit]).await;
            }
        }
    }
}

async fn carry_out(
    server: &Arc<Server>,
    session: &Weak<RefCell<Session>>,
    request: &TmfRequest,
    units: Vec<Arc<LogicalUnit>>,
) -> Outcome {
    let unit = with(session, |session| session.unit(request.lun)).flatten();
    match (request.function, unit) {
        (Function::TargetWarmReset | Function::TargetColdReset, _) => {
            for unit in &units {
                end_everywhere(server, unit, Whose::All, but_own(session, unit)).await;
            }
            let_go(server, units).await;
            if request.function == Function::TargetColdReset {
                close_others(server, session);
            }
        }
        // Nobody can be in the state that this one ends: INQUIRY says NORMACA = 0.
        (Function::ClearAca, _) => return Outcome::NotSupported,
        (Function::ITNexusReset | Function::AbortTask, _) => let_go(server, units).await,
        (Function::QueryTask, _) => return yes(request.referenced.is_some()),
        (_, None) => return Outcome::LunDoesNotExist,
        (Function::AbortTaskSet, Some(_)) => let_go(server, units).await,
        (Function::ClearTaskSet | Function::LogicalUnitReset, Some(unit)) => {
            end_everywhere(server, &unit, Whose::All, but_own(session, &unit)).await;
            let_go(server, units).await;
        }
        (Function::QueryTaskSet, Some(unit)) => {
            return yes(with(session, |session| session.has_tasks_for(&unit)) == Some(true));
        }
        (Function::QueryAsynchronousEvent | Function::TaskReassign | Function::Other(_), Some(_)) => {
            return Outcome::NotSupported;
        }
    }
    Outcome::FunctionComplete
}

/// The answer to a query (RFC 7144 section 4.2).
fn yes(found: bool) -> Outcome {
    if found { Outcome::FunctionSucceeded } else { Outcome::FunctionComplete }
}

/// TARGET COLD RESET ends all sessions of the target: the others at once, this one when it has had its answer, which is the
/// machine's business.
fn close_others(server: &Server, session: &Weak<RefCell<Session>>) {
    let own = with(session, |session| (session.identity.target.clone(), session.identity.seat.tsih));
    if let Some((Some(target), tsih)) = own {
        server.tell_all(|_| Message::CloseTarget { target: Arc::clone(&target), except: tsih });
    }
}

fn but_own(session: &Weak<RefCell<Session>>, unit: &Arc<LogicalUnit>) -> Spared {
    let own = with(session, |session| session.nexus_of(unit)).flatten();
    own.map_or(Spared::Nobody, Spared::Nexus)
}

/// Ends the commands of `whose` for `unit` on every core.
async fn end_everywhere(server: &Server, unit: &Arc<LogicalUnit>, whose: Whose, spared: Spared) {
    let (done, mut all_done) = reactor::mailbox();
    server.tell_all(|_| Message::Abort {
        unit: Arc::clone(unit),
        whose: whose.clone(),
        spared,
        done: Sender::clone(&done),
    });
    drop(done);
    // The mailbox ends when every core has dropped its sender.
    while let Some(()) = all_done.recv().await {}
}

/// Waits until the devices of these units have let go of what was aborted. Units whose devices do not in time are fenced
/// until they do.
pub(crate) async fn let_go(server: &Server, units: Vec<Arc<LogicalUnit>>) {
    let limit = server.config().limits.fence_time;
    // All at once: several that hang take no longer than one.
    let waits: Vec<_> = units.into_iter().map(|unit| reactor::spawn(let_go_of(unit, limit))).collect();
    for wait in waits {
        wait.await;
    }
}

async fn let_go_of(unit: Arc<LogicalUnit>, limit: Duration) {
    if reactor::timeout(limit, unit.volume().quiesced()).await.is_err() {
        fence(&unit, limit);
    }
}

/// Takes `unit` out of service until its device, which has not answered for so long, has let go of everything that was
/// aborted up to now. `storage` tells of it.
pub(crate) fn fence(unit: &Arc<LogicalUnit>, silent: Duration) {
    let fence = unit.volume().fence();
    let unit = Arc::clone(unit);
    unit.volume().health().falls_silent(silent);
    drop(reactor::spawn(async move {
        unit.volume().quiesced().await;
        drop(fence);
        unit.volume().health().answers();
    }));
}

/// Does something with a session, if it is still there.
fn with<T>(session: &Weak<RefCell<Session>>, what: impl FnOnce(&mut Session) -> T) -> Option<T> {
    session.upgrade().map(|session| what(&mut session.borrow_mut()))
}
