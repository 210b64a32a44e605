//! Task management (SAM-5 chapter 7): which commands a function aborts, and when they and it are answered.
//!
//! Both are answered when the aborted commands can no longer touch the medium: they are removed on every core and their devices
//! have quiesced. If a device does not quiesce in time, its volume is fenced (not ready for any initiator) until it does,
//! and the answers are sent at once (`front_end_core::fence`).

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use front_end_core::{AbortOrder, Owners, Server};
use hyperscsi::target::TaskId;
use hyperscsi::{Function, FunctionResult};
use logical_unit::{Effect, LogicalUnit};
use scsi_session::{abort_everybodys, add_units, quiesce};

use crate::session::Session;

/// Carries out a function and answers it. The session's own commands are aborted at once, since commands that arrive after the
/// function are not affected by it; the rest runs as a task.
pub(crate) fn start(
    session: &mut Session,
    task: TaskId,
    function: Function,
    lun: [u8; 8],
    referenced: Option<TaskId>,
) {
    session.core.tally.task_management(Some(session.target()), name(function));
    let (mut units, mut cleared) = (Vec::new(), Vec::new());
    let unit = session.unit(lun);
    // Of these, other sessions' commands end too.
    let (everybodys, result) = match (function, unit) {
        (Function::AbortTask, _) => {
            if let Some(referenced) = referenced {
                cleared = session.clear_one(referenced.number, &mut units);
            }
            (Vec::new(), FunctionResult::Complete)
        }
        (Function::AbortTaskSet, Some(unit)) => {
            cleared = session.clear_unit(&unit, None, &mut units);
            (Vec::new(), FunctionResult::Complete)
        }
        (Function::ClearTaskSet | Function::LogicalUnitReset, Some(unit)) => {
            cleared = session.clear_unit(&unit, None, &mut units);
            if function == Function::LogicalUnitReset {
                unit.reset();
            }
            (vec![unit], FunctionResult::Complete)
        }
        (Function::TargetReset | Function::ITNexusReset, _) => {
            let all = session.units();
            for unit in &all {
                cleared.extend(session.clear_unit(unit, None, &mut units));
                if function == Function::TargetReset {
                    unit.reset();
                }
            }
            (if function == Function::TargetReset { all } else { Vec::new() }, FunctionResult::Complete)
        }
        (Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset, None) => {
            (Vec::new(), FunctionResult::IncorrectLun)
        }
        (Function::QueryTask | Function::QueryTaskSet | Function::Other(_), _) => {
            (Vec::new(), FunctionResult::Rejected)
        }
    };
    add_units(&mut units, &everybodys);
    let (core, session) = (Rc::clone(&session.core), session.weak());
    drop(reactor::spawn(async move {
        for unit in &everybodys {
            let nexus = with(&session, |session| session.user_of(unit.volume())).flatten();
            abort_everybodys(&core.server, unit, nexus.map(|(_, nexus)| nexus)).await;
        }
        quiesce(&core.server, units).await;
        with(&session, |session| session.tell_aborted(&cleared));
        tracing::info!(?function, ?result, "task management");
        core.function_done(task, result);
    }));
}

/// Carries out the effects of a command on other commands and sessions, before it is answered.
pub(crate) async fn settle(
    server: Arc<Server>,
    session: Weak<RefCell<Session>>,
    number: u64,
    effects: Box<[Effect]>,
) {
    for effect in effects {
        match effect {
            Effect::AbortTasks { unit, nexuses, by } => {
                let mut units: Vec<Arc<LogicalUnit>> = vec![Arc::clone(&unit)];
                // Of its own nexus everything ends but the command itself.
                let own = nexuses.contains(&by);
                let clear = |session: &mut Session| session.clear_unit(&unit, Some(number), &mut units);
                let cleared = if own { with(&session, clear) } else { None };
                let volume = Arc::clone(unit.volume());
                server.abort(AbortOrder { volume, owners: Owners::These(nexuses), spared: Some(by) }).await;
                quiesce(&server, units).await;
                with(&session, |session| session.tell_aborted(&cleared.unwrap_or_default()));
            }
        }
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

/// Calls `what` with the session if it still exists.
fn with<T>(session: &Weak<RefCell<Session>>, what: impl FnOnce(&mut Session) -> T) -> Option<T> {
    session.upgrade().map(|session| what(&mut session.borrow_mut()))
}
