//! Task management (SAM-5 chapter 7): which commands a function aborts, and when they and it are answered.
//!
//! Both are answered when the aborted commands can no longer touch the medium: they are removed on every core and their devices
//! have quiesced. If a device does not quiesce in time, its volume is fenced (not ready for any initiator) until it does,
//! and the answers are sent at once (`front_end_core::fence`).

use std::rc::Rc;

use hyperscsi::target::TaskId;
use hyperscsi::{Function, FunctionResult};
use scsi_session::{ScsiSession, abort_everybodys, add_units, quiesce, with};

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
    session.core.tally.task_management(session.target(), name(function));
    let (mut units, mut cleared) = (Vec::new(), Vec::new());
    let unit = session.unit(lun);
    // Of these, other sessions' commands end too.
    let (everybodys, result) = match (function, unit) {
        (Function::AbortTask, _) => {
            if let Some(tag) = referenced.and_then(|referenced| session.tag(referenced.number)) {
                session.commands.clear(tag, &mut units);
                cleared.push(tag);
            }
            (Vec::new(), FunctionResult::Complete)
        }
        (Function::AbortTaskSet, Some(unit)) => {
            cleared = session.commands.clear_unit(&unit, None, &mut units);
            (Vec::new(), FunctionResult::Complete)
        }
        (Function::ClearTaskSet | Function::LogicalUnitReset, Some(unit)) => {
            cleared = session.commands.clear_unit(&unit, None, &mut units);
            if function == Function::LogicalUnitReset {
                unit.reset();
            }
            (vec![unit], FunctionResult::Complete)
        }
        (Function::TargetReset | Function::ITNexusReset, _) => {
            let all = session.units();
            for unit in &all {
                cleared.extend(session.commands.clear_unit(unit, None, &mut units));
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
            let spared = with(&session, |session| session.commands.nexus_of(unit)).flatten();
            abort_everybodys(&core.server, unit, spared).await;
        }
        quiesce(&core.server, units).await;
        with(&session, |session| session.tell_aborted(&cleared));
        tracing::info!(?function, ?result, "task management");
        core.function_done(task, result);
    }));
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
