//! Task management (RFC 7143 section 11.5): which commands end, on which cores, and when that may be said.
//!
//! A function is answered when the commands it ended can no longer touch the medium: they are gone from every
//! core, and their devices have quiesced. A device that does not quiesce in time leaves its
//! logical unit fenced, not ready for any initiator, until it does; then the answer is given all the same, because
//! the fence keeps the promise.

use std::cell::RefCell;
use std::rc::Weak;
use std::sync::Arc;

use iscsi::pdu::{TaskManagementFunction as Function, TaskManagementResult as Outcome};
use iscsi::target::{LogoutId, TaskId, TmfRequest};
use server::{AbortOrder, Owners, Server};
use unit::{Effect, LogicalUnit};

use crate::front_end::{Context, quiesce};
use crate::session::Session;

/// Carries a function out and answers it. What the session itself has under way ends at once, since a command
/// that follows on the heels of the function is not meant by it; the rest goes on aside from the session's other
/// work.
pub(crate) fn start(session: &mut Session, request: TmfRequest) {
    let (units, untold) = end_own(session, &request);
    let (context, session) = (session.context(), session.weak());
    drop(reactor::spawn(async move {
        let result = carry_out(&context, &session, &request, units).await;
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
pub(crate) fn quiesce_connection(session: &mut Session, logout: LogoutId) {
    let (context, units, session) = (session.context(), session.units(), session.weak());
    drop(reactor::spawn(async move {
        quiesce(&context.server, units).await;
        with(&session, |session| {
            session.machine.logout_done(logout);
            session.handle_events(reactor::now());
            session.wake_all();
        });
    }));
}

/// Ends the commands that the function is about. Returns two lists: the units whose devices must quiesce
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
pub(crate) async fn settle(
    server: Arc<Server>,
    session: Weak<RefCell<Session>>,
    task: TaskId,
    effects: Box<[Effect]>,
) {
    for effect in effects {
        match effect {
            Effect::AbortTasks { unit, nexuses, by } => {
                // Of its own nexus everything ends but the command itself.
                let own = nexuses
                    .contains(&by)
                    .then(|| with(&session, |session| session.abort_unit(&unit, Some(task))));
                let (mut units, untold) = own.flatten().unwrap_or_default();
                with(&session, |session| session.wake_all());
                let volume = Arc::clone(unit.volume());
                server.abort(AbortOrder { volume, owners: Owners::These(nexuses), spared: Some(by) }).await;
                add_units(&mut units, &[unit]);
                quiesce(&server, units).await;
                with(&session, |session| session.tell_aborted(&untold));
            }
        }
    }
}

async fn carry_out(
    context: &Context,
    session: &Weak<RefCell<Session>>,
    request: &TmfRequest,
    units: Vec<Arc<LogicalUnit>>,
) -> Outcome {
    let server = &*context.server;
    let unit = with(session, |session| session.unit(request.lun)).flatten();
    match (request.function, unit) {
        (Function::TargetWarmReset | Function::TargetColdReset, _) => {
            for unit in &units {
                end_everybodys(server, session, unit).await;
            }
            quiesce(server, units).await;
            if request.function == Function::TargetColdReset {
                close_others(context, session);
            }
        }
        // No initiator can be in the state that this one ends: INQUIRY says NORMACA = 0.
        (Function::ClearAca, _) => return Outcome::NotSupported,
        (Function::ITNexusReset | Function::AbortTask, _) => quiesce(server, units).await,
        (Function::QueryTask, _) => return yes(request.referenced.is_some()),
        (_, None) => return Outcome::LunDoesNotExist,
        (Function::AbortTaskSet, Some(_)) => quiesce(server, units).await,
        (Function::ClearTaskSet | Function::LogicalUnitReset, Some(unit)) => {
            end_everybodys(server, session, &unit).await;
            quiesce(server, units).await;
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
fn close_others(context: &Context, session: &Weak<RefCell<Session>>) {
    let own = with(session, |session| (session.identity.target.clone(), session.identity.slot.tsih));
    if let Some((Some(target), tsih)) = own {
        for core in 0..context.server.cores() {
            let target = Arc::clone(&target);
            context.tell(core, move |core| core.close_target(&target.name, tsih));
        }
    }
}

/// Ends all commands for `unit` but those of the session that asked: what it had under way has ended already, and what came
/// since is to be carried out.
async fn end_everybodys(server: &Server, session: &Weak<RefCell<Session>>, unit: &Arc<LogicalUnit>) {
    let spared = with(session, |session| session.nexus_of(unit)).flatten();
    server.abort(AbortOrder { volume: Arc::clone(unit.volume()), owners: Owners::All, spared }).await;
}

/// Does something with a session, if it is still there.
fn with<T>(session: &Weak<RefCell<Session>>, what: impl FnOnce(&mut Session) -> T) -> Option<T> {
    session.upgrade().map(|session| what(&mut session.borrow_mut()))
}
