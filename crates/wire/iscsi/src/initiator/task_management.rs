//! Task management, and the end of tasks without a status.

use std::time::Instant;

use super::connection::PreparedPdu;
use super::exchange::{Exchange, Task, Tmf};
use super::session::{Session, tag};
use super::{ConnectionId, Event, Failure, PingId, TaskId, TmfId};
use crate::pdu::{
    Itt, Lun, Sn, TaskManagementFunction as Function, TaskManagementRequest,
    TaskManagementResponse, TaskManagementResult,
};
use crate::slab::Key;

impl Session {
    /// Aborts a command by sending ABORT TASK. The command fails when the target confirms the abort, unless
    /// its status arrives first. A command that has not been sent fails immediately. Returns `None` in this
    /// case, if the command has already ended, and if no ABORT TASK can be sent now.
    pub fn abort_task(&mut self, _now: Instant, task: TaskId) -> Option<TmfId> {
        self.observe("ABORT TASK is asked for", |_| Some(task.0));
        let entry = self.task_mut(task.0)?;
        let (connection, lun) = (entry.connection, entry.lun);
        let Some(ref_cmd_sn) = entry.cmd_sn else {
            self.fail(task.0, Failure::Aborted);
            return None;
        };
        self.open_tmf(Tmf {
            connection,
            function: Function::AbortTask,
            lun,
            referenced: Some(tag(task.0)),
            cmd_sn: None,
            ref_cmd_sn,
            plugs_gap: false,
        })
    }

    /// Sends a function that affects more than one task. When the target has executed it, the commands that
    /// it ends fail, and [`Event::Managed`] follows. `None` if it cannot be sent now.
    pub fn manage(
        &mut self,
        _now: Instant,
        id: ConnectionId,
        function: Function,
        lun: Lun,
    ) -> Option<TmfId> {
        self.open_tmf(Tmf {
            connection: id,
            function,
            lun,
            referenced: None,
            cmd_sn: None,
            ref_cmd_sn: Sn(0),
            plugs_gap: false,
        })
    }

    /// Removes a connection. Its commands fail; [`Event::Failed`] names them. The target may be waiting for
    /// the CmdSNs of these commands. These gaps are plugged on another connection, so that the session can
    /// continue.
    pub fn remove_connection(&mut self, _now: Instant, id: ConnectionId) {
        if self.connection(id).is_none() {
            return;
        }
        self.connections.remove(id);
        let doomed: Vec<Key> = self
            .exchanges
            .iter()
            .filter(|(_, entry)| entry.connection() == id)
            .map(|(key, _)| key)
            .collect();
        for key in doomed {
            match self.exchanges.get(key) {
                Some(Exchange::Task(_)) => self.fail(key, Failure::ConnectionLost),
                Some(Exchange::Tmf(_)) => self.tmf_connection_lost(key),
                Some(&Exchange::Logout {
                    connection,
                    leaving,
                }) => {
                    self.exchanges.remove(key);
                    self.logout_lost(connection, leaving);
                }
                Some(Exchange::Ping { .. }) => self.fail_ping(key),
                Some(Exchange::Text(_)) => drop(self.exchanges.remove(key)),
                None => {}
            }
        }
    }

    /// Reports the loss of a function's response; if the function was to plug a gap, plugs it on another
    /// connection.
    fn tmf_connection_lost(&mut self, key: Key) {
        let Some(Exchange::Tmf(tmf)) = self.exchanges.remove(key) else {
            return;
        };
        match tmf.referenced {
            Some(itt) if tmf.plugs_gap => {
                self.plug_gap(tmf.connection, itt, tmf.lun, tmf.ref_cmd_sn);
            }
            Some(_) | None => self.events.push_back(Event::Managed {
                tmf: TmfId(key),
                result: None,
            }),
        }
    }

    /// Ends a ping that will not be answered.
    pub(super) fn fail_ping(&mut self, key: Key) {
        if let Some(Exchange::Ping {
            is_keepalive: false,
            ..
        }) = self.exchanges.remove(key)
        {
            self.events.push_back(Event::Pong {
                ping: PingId(key),
                data: None,
            });
        }
    }

    /// Ends a command without a status.
    pub(super) fn fail(&mut self, key: Key, why: Failure) {
        if let Some(task) = self.task_mut(key) {
            let connection = task.connection;
            self.fail_task(connection, key, why);
        }
    }

    /// Ends a command without a status; plugs its gap on `connection` if possible.
    fn fail_task(&mut self, connection: ConnectionId, key: Key, why: Failure) {
        let event = match why {
            Failure::ConnectionLost => "its connection is lost",
            Failure::Aborted => "it was aborted",
            Failure::Rejected(_) => "Reject",
            Failure::TargetFailure => "the target cannot carry it out",
        };
        self.observe(event, |_| Some(key));
        let Some((lun, cmd_sn)) = self.end_task(key, |task| (task.lun, task.cmd_sn)) else {
            return;
        };
        self.events.push_back(Event::Failed {
            task: TaskId(key),
            why,
        });
        if let Some(cmd_sn) = cmd_sn {
            self.plug_gap(connection, tag(key), lun, cmd_sn);
        }
    }

    /// Stores the tag of an ended command for late PDUs.
    pub(super) fn remember_ended(&mut self, itt: Itt) {
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(itt);
        debug_assert!(
            self.ended.len() <= ENDED_MAX,
            "tags of ended commands are bounded"
        );
    }

    /// Removes an ended command, and returns the value that `wanted` reads from it.
    pub(super) fn end_task<T>(
        &mut self,
        key: Key,
        wanted: impl FnOnce(&mut Task) -> T,
    ) -> Option<T> {
        let task = self.task_mut(key)?;
        let (is_unsent, wanted) = (task.cmd_sn.is_none(), wanted(task));
        debug_assert!(
            self.unsent >= u32::from(is_unsent),
            "an unsent command that was not counted"
        );
        self.unsent -= u32::from(is_unsent);
        self.exchanges.discard(key);
        Some(wanted)
    }

    /// Plugs the gap of an ended command. A CmdSN that the target has not received leaves a gap, which the
    /// initiator "MUST plug … by aborting the task" (section 7.3). Otherwise, the target holds all later
    /// commands forever. If the target has received the CmdSN after all, there is nothing to abort, and the
    /// response is ignored.
    ///
    /// A function may have been executed before a command on another connection arrived at the target. The
    /// function then ended the command only on our side, and the command must not start later. It is aborted
    /// on the connection of the function, because an abort behind it on its own connection would be too late.
    fn plug_gap(&mut self, connection: ConnectionId, referenced: Itt, lun: Lun, ref_cmd_sn: Sn) {
        if !self.window.is_unacknowledged(ref_cmd_sn) {
            return;
        }
        let here = self
            .open_connection(connection)
            .map(|connection| connection.id);
        let other = || {
            self.connections
                .iter()
                .find(|connection| !connection.is_leaving)
                .map(|other| other.id)
        };
        let Some(connection) = here.or_else(other) else {
            return;
        };
        self.open_tmf(Tmf {
            connection,
            function: Function::AbortTask,
            lun,
            referenced: Some(referenced),
            cmd_sn: None,
            ref_cmd_sn,
            plugs_gap: true,
        });
    }

    fn open_tmf(&mut self, tmf: Tmf) -> Option<TmfId> {
        let id = tmf.connection;
        let Tmf {
            function,
            lun,
            referenced,
            ref_cmd_sn,
            ..
        } = tmf;
        let key = self.open_exchange(id, Exchange::Tmf(tmf))?;
        let pdu = TaskManagementRequest {
            immediate: true,
            function,
            lun,
            itt: tag(key),
            referenced_task: referenced,
            cmd_sn: Sn(0),
            exp_stat_sn: Sn(0),
            ref_cmd_sn,
            exp_data_sn: Sn(0),
        };
        let ready = PreparedPdu {
            bhs: Box::new(pdu.emit()),
            data: Vec::new(),
            exchange: Some(key),
        };
        self.connection_mut(id)?.urgent.push_back(ready);
        Some(TmfId(key))
    }

    pub(super) fn complete_tmf(&mut self, key: Key, pdu: &TaskManagementResponse) {
        let Some(Exchange::Tmf(tmf)) = self.exchanges.remove(key) else {
            return;
        };
        let is_over = match pdu.result {
            TaskManagementResult::FunctionComplete => true,
            // The command ended before it could be aborted. Its status is not in transit, because it would
            // have arrived before this response.
            TaskManagementResult::TaskDoesNotExist => tmf.function == Function::AbortTask,
            TaskManagementResult::LunDoesNotExist
            | TaskManagementResult::TaskStillAllegiant
            | TaskManagementResult::ReassignmentNotSupported
            | TaskManagementResult::NotSupported
            | TaskManagementResult::AuthorizationFailed
            | TaskManagementResult::FunctionSucceeded
            | TaskManagementResult::FunctionRejected
            | TaskManagementResult::Other(_) => false,
        };
        if is_over {
            self.end_aborted_tasks(&tmf);
        }
        if !tmf.plugs_gap {
            self.events.push_back(Event::Managed {
                tmf: TmfId(key),
                result: Some(pdu.result),
            });
        }
    }

    /// Ends, on our side, the commands that a function ended at the target.
    fn end_aborted_tasks(&mut self, tmf: &Tmf) {
        let ended: Vec<Key> = self
            .exchanges
            .iter()
            .filter(|(key, entry)| match entry {
                Exchange::Task(task) => tmf.ends(tag(*key), task),
                Exchange::Tmf(_)
                | Exchange::Text(_)
                | Exchange::Ping { .. }
                | Exchange::Logout { .. } => false,
            })
            .map(|(key, _)| key)
            .collect();
        for key in ended {
            if self
                .exchanges
                .get(key)
                .is_some_and(|entry| entry.connection() != tmf.connection)
            {
                self.remember_ended(tag(key));
            }
            self.fail_task(tmf.connection, key, Failure::Aborted);
        }
    }
}

impl Tmf {
    /// Whether this function, if executed, ends a command. A function ends only commands that were sent
    /// before it.
    fn ends(&self, itt: Itt, task: &Task) -> bool {
        let was_before = match (task.cmd_sn, self.cmd_sn) {
            (Some(task), Some(function)) => task.lt(function),
            (None, _) | (_, None) => false,
        };
        was_before
            && match self.function {
                Function::AbortTask => self.referenced == Some(itt),
                Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset => {
                    task.lun == self.lun
                }
                Function::TargetWarmReset | Function::TargetColdReset | Function::ITNexusReset => {
                    true
                }
                Function::ClearAca
                | Function::TaskReassign
                | Function::QueryTask
                | Function::QueryTaskSet
                | Function::QueryAsynchronousEvent
                | Function::Other(_) => false,
            }
    }
}

/// Maximum number of stored tags. A reset may end a whole window of commands.
const ENDED_MAX: usize = 1024;
