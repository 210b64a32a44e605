//! What of a session is counted for monitoring, besides the durations of its commands.

use std::collections::BTreeMap;
use std::sync::Arc;

use front_end_core::Traffic;
use iscsi::pdu::TaskManagementFunction as Function;
use iscsi::target::{Fatal, TaskId};
use logical_unit::Reply;
use scsi_session::{Failure, failure};

use super::{Session, TaskState};
use crate::connection::ConnectionEnd;

impl Session {
    /// The target's name; none for a discovery session.
    pub(crate) fn target(&self) -> Option<&str> {
        self.identity.target.as_ref().map(|target| target.name.as_str())
    }

    /// A reply says something else than GOOD. Replies that come too late are not sent, and not counted.
    pub(super) fn count_failure(&self, id: TaskId, reply: &Reply) {
        let task = self.tasks.get(id.index()).and_then(Option::as_ref).filter(|task| task.id == id);
        let Some(task) = task.filter(|task| !matches!(task.state, TaskState::Answered(_))) else { return };
        match (failure(reply), task.slot) {
            (Failure::None, _) | (Failure::Of(_), None) => {}
            (Failure::UnitAttention(kind), _) => self.tally.unit_attention(self.target(), kind),
            (Failure::Of(kind), Some(index)) => self.luns.tally(index).failed(task.operation, kind),
        }
    }

    /// Data did not match their digest.
    pub(super) fn count_digest_error(&self) {
        self.tally.digest_error(self.target(), "data");
    }

    pub(crate) fn count_task_management(&self, function: Function) {
        let name = match function {
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
        };
        self.tally.task_management(self.target(), name);
    }

    /// A connection of it has ended so.
    pub(crate) fn count_end_of_connection(&self, end: &ConnectionEnd) {
        self.tally.connection_closed(self.target(), end.name());
        if matches!(end, ConnectionEnd::Violation(Fatal::HeaderDigest)) {
            self.tally.digest_error(self.target(), "header");
        }
    }

    /// Its traffic so far.
    pub(crate) fn traffic(&self) -> Traffic {
        Traffic { window_full: self.machine.window_closings(), ..self.traffic }
    }

    /// Its traffic is counted to its end.
    pub(crate) fn count_end(&self) {
        if let Some(target) = self.target() {
            self.tally.session_ended(target, &self.identity.counted_as, self.traffic());
        }
    }

    /// Adds its commands to those under way, by the address of their volume.
    pub(crate) fn count_in_flight(&self, in_flight: &mut BTreeMap<usize, u64>) {
        for index in self.tasks.iter().flatten().filter_map(|task| task.slot) {
            *in_flight.entry(Arc::as_ptr(self.luns.unit_at(index).volume()) as usize).or_default() += 1;
        }
    }
}
