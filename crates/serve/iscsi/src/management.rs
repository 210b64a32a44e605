//! Task management (RFC 7143 section 11.5): selects the commands that a function aborts, on all cores, and
//! sends its response.
//!
//! The response is sent when the aborted commands can no longer reach the medium: they have been removed on
//! every core, and their devices have quiesced. If a device does not quiesce in time, its volume is fenced
//! (not ready for any initiator) until it does, and the response is sent immediately
//! ([`front_end_core::Server::fence`]).

use std::cell::RefCell;
use std::rc::Weak;
use std::sync::Arc;

use front_end_core::{Counted, Server};
use iscsi::pdu::{TaskManagementFunction as Function, TaskManagementResult as Outcome};
use iscsi::target::{LogoutId, TaskId, TmfRequest};
use logical_unit::LogicalUnit;
use scsi_session::{ScsiSession, abort_everybodys, add_units, quiesce, with};

use crate::context::Context;
use crate::session::Session;

impl Session {
    /// Executes a function and sends its response. The session's own commands are aborted immediately, since
    /// the function does not affect later commands; the rest of the function runs as a task.
    pub(crate) fn manage(&mut self, request: TmfRequest) {
        self.tally.note(
            Counted::TaskManagement,
            self.target(),
            name(request.function),
        );
        let (units, untold) = self.end_own(&request);
        let (context, session) = (self.context.clone(), self.weak());
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

    /// Responds to the logout of a lost connection when the devices of its aborted commands have quiesced.
    pub(crate) fn quiesce_connection(&mut self, logout: LogoutId) {
        let (server, units, session) =
            (Arc::clone(&self.context.server), self.units(), self.weak());
        drop(reactor::spawn(async move {
            quiesce(&server, units).await;
            with(&session, |session| {
                session.machine.logout_done(logout);
                session.handle_events(reactor::now());
                session.wake_all();
            });
        }));
    }

    /// Aborts the session's own commands selected by the function. Returns the units whose devices must
    /// quiesce before the response, and the copies that were addressed to another LUN, whose initiator still
    /// needs a response.
    fn end_own(&mut self, request: &TmfRequest) -> (Vec<Arc<LogicalUnit>>, Vec<TaskId>) {
        let unit = self.unit(request.lun.0);
        let all = self.units();
        match (request.function, unit) {
            (Function::AbortTask, unit) => {
                let mut units = request
                    .referenced
                    .map_or_else(Vec::new, |task| self.abort(task));
                add_units(&mut units, unit.as_slice());
                (units, Vec::new())
            }
            (
                Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset,
                Some(unit),
            ) => {
                let mut units = vec![Arc::clone(&unit)];
                let untold = self.abort_own(&unit, None, &mut units);
                if request.function == Function::LogicalUnitReset {
                    unit.reset();
                }
                (units, untold)
            }
            (Function::ITNexusReset | Function::TargetWarmReset | Function::TargetColdReset, _) => {
                for unit in &all {
                    drop(self.abort_own(unit, None, &mut Vec::new()));
                    if request.function != Function::ITNexusReset {
                        unit.reset();
                    }
                }
                (all, Vec::new())
            }
            // Queries, unsupported functions, and functions for LUNs that do not exist.
            _ => (Vec::new(), Vec::new()),
        }
    }
}

async fn carry_out(
    context: &Context,
    session: &Weak<RefCell<Session>>,
    request: &TmfRequest,
    units: Vec<Arc<LogicalUnit>>,
) -> Outcome {
    let server = &context.server;
    let unit = with(session, |session| session.unit(request.lun.0)).flatten();
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
        // There is no ACA condition to clear: INQUIRY reports NORMACA = 0.
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
            let has_tasks =
                |session: &mut Session| session.commands.tasks_of(&unit).next().is_some();
            return yes(with(session, has_tasks) == Some(true));
        }
        (
            Function::QueryAsynchronousEvent | Function::TaskReassign | Function::Other(_),
            Some(_),
        ) => {
            return Outcome::NotSupported;
        }
    }
    Outcome::FunctionComplete
}

/// Returns the response to a query (RFC 7144 section 4.2).
fn yes(found: bool) -> Outcome {
    if found {
        Outcome::FunctionSucceeded
    } else {
        Outcome::FunctionComplete
    }
}

/// TARGET COLD RESET ends all sessions of the target. This function ends the other sessions immediately. The
/// state machine ends the requesting session after its response.
fn close_others(context: &Context, session: &Weak<RefCell<Session>>) {
    let own = with(session, |session| {
        (session.identity.target.clone(), session.identity.slot.tsih)
    });
    if let Some((Some(target), tsih)) = own {
        for core in 0..context.server.cores() {
            let target = Arc::clone(&target);
            context.tell(core, move |core| core.close_target(&target.name, tsih));
        }
    }
}

/// Aborts all commands of other sessions for `unit`. The requesting session's earlier commands have already
/// been aborted, and its later commands are executed.
async fn end_everybodys(
    server: &Server,
    session: &Weak<RefCell<Session>>,
    unit: &Arc<LogicalUnit>,
) {
    let spared = with(session, |session| session.commands.nexus_of(unit)).flatten();
    abort_everybodys(server, unit, spared).await;
}

fn name(function: Function) -> &'static str {
    match function {
        Function::AbortTask => "abort_task",
        Function::AbortTaskSet => "abort_task_set",
        Function::ClearAca => "clear_aca",
        Function::ClearTaskSet => "clear_task_set",
        Function::LogicalUnitReset => "logical_unit_reset",
        Function::TargetWarmReset => "target_warm_reset",
        Function::TargetColdReset => "target_cold_reset",
        Function::TaskReassign => "task_reassign",
        Function::QueryTask => "query_task",
        Function::QueryTaskSet => "query_task_set",
        Function::ITNexusReset => "i_t_nexus_reset",
        Function::QueryAsynchronousEvent => "query_asynchronous_event",
        Function::Other(_) => "other",
    }
}
