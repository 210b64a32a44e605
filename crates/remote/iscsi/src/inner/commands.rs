//! Commands: submission, abort, timeouts and escalation.

use std::mem;
use std::task::Waker;
use std::time::{Duration, Instant};

use iscsi::initiator::{Command, SubmitError, TaskId};
use iscsi::pdu::{Lun, TaskAttribute, TaskManagementFunction as Function};
use scsi::LunAddress;

use super::SessionInner;
use crate::effect::Effect;
use crate::error::{CommandError, Ending};
use crate::session::CommandSpec;
use crate::statistics::{Account, Class};
use crate::tasks::{NewTask, Overdue, Ticket};
use crate::timeouts::EscalationStep;

/// The result of a submission.
pub(crate) enum Submitted {
    /// Sent, with its data.
    Sent(Ticket),
    NoRoom,
    Failed(CommandError),
}

impl SessionInner {
    /// Records how long a command waited before its submission.
    pub(crate) fn note_wait(&mut self, ticket: Ticket, since: Instant) {
        let waited = self.now.saturating_duration_since(since);
        if let Some(account) = self.tasks.account(ticket) {
            account.waited_ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        }
    }

    /// Submits a command to the machine, or registers `waker` for room in the window.
    pub(crate) fn submit(&mut self, spec: &mut CommandSpec, waker: &Waker) -> Submitted {
        let lengths = (u32::try_from(spec.transfer.in_bytes()), u32::try_from(spec.transfer.out_bytes()));
        let (Ok(read_bytes), Ok(write_bytes)) = lengths else {
            return Submitted::Failed(CommandError::TooLong);
        };
        if self.state.is_awaited() {
            self.waiting.push_back(waker.clone());
            return Submitted::NoRoom;
        }
        if spec.epoch.is_some_and(|epoch| epoch != self.state.epoch()) {
            return Submitted::Failed(CommandError::Reinstated);
        }
        let Some(connection) = self.connections.iter_mut().min_by_key(|connection| connection.under_way)
        else {
            return Submitted::Failed(CommandError::ConnectionLost);
        };
        let (lun, attribute) = (spec.lun, TaskAttribute::Simple);
        let command = Command { lun, cdb: &spec.cdb, attribute, read_bytes, write_bytes };
        match self.machine.submit(self.now, connection.id, &command) {
            Ok(id) => {
                connection.under_way += 1;
                connection.task.iter().for_each(Waker::wake_by_ref);
                let until = self.now + self.timeouts.command;
                let effect = Effect::from_cdb(&spec.cdb, spec.transfer.sent());
                let class = Class::from_cdb(&spec.cdb);
                let account = Account { class, effect, waited_ns: 0 };
                let (transfer, waits_for_end) = (mem::take(&mut spec.transfer), spec.waits_for_end);
                let beginning =
                    NewTask { id, connection: connection.id, lun, transfer, until, waits_for_end, account };
                Submitted::Sent(self.tasks.insert(beginning, waker.clone()))
            }
            // The target requested the logout of this connection: the session will be restarted.
            Err(SubmitError::NotConnected) if self.will_reconnect() => {
                self.waiting.push_back(waker.clone());
                Submitted::NoRoom
            }
            Err(SubmitError::NoRoom) => {
                self.waiting.push_back(waker.clone());
                Submitted::NoRoom
            }
            Err(SubmitError::NotConnected | SubmitError::CdbLength) => {
                Submitted::Failed(CommandError::ConnectionLost)
            }
        }
    }

    /// How long a request that has waited since `since` has waited while the session was up.
    pub(crate) fn waited(&self, since: Instant) -> Duration {
        self.state.waited(since, self.now)
    }

    /// The requester was dropped: the command is aborted.
    pub(crate) fn abandon(&mut self, ticket: Ticket) {
        if let Some(task) = self.tasks.orphan(ticket, self.now + self.timeouts.abort) {
            self.abort(task);
            self.deliver_events();
            self.wake_connections();
        }
    }

    fn abort(&mut self, task: TaskId) {
        let asked = self.machine.abort_task(self.now, task);
        self.meter.incidents.aborts += u64::from(asked.is_some());
    }

    /// Wakes one waiting request for every command that fits into the window.
    pub(crate) fn wake_waiting(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        for _ in 0..self.machine.room() {
            let Some(waker) = self.waiting.pop_front() else { return };
            waker.wake();
        }
    }

    /// Processes expired timeouts: those of the machine, of commands, and of requests that wait for room or
    /// for the session.
    pub(crate) fn pass_time(&mut self, now: Instant) {
        self.now = now;
        self.machine.handle_timeout(now);
        let machine = &self.machine;
        self.tasks.note_progress(now, self.timeouts.command, |task| machine.moved_bytes(task));
        let overdue = self.tasks.escalate(now, &self.timeouts);
        self.escalate(&overdue);
        if self.state.is_overdue(now) {
            tracing::warn!("the target does not let go of a lost connection: the session is begun again");
            self.end_all(|| Ending::Unresponsive);
        }
        if self.logout_due.take_if(|due| *due <= now).is_some() {
            tracing::warn!(
                "the target does not answer the logout that it asked for: the session is begun again"
            );
            self.end_all(|| Ending::Unresponsive);
        }
        if self.state.fail_requests_after(self.timeouts.reconnect, now) {
            tracing::warn!("the session has been lost for too long: requests fail from now on");
            self.waiting.drain(..).for_each(Waker::wake);
        }
        self.deliver_events();
        self.wake_connections();
        // Waiting requests check their own timeouts.
        self.waiting.drain(..).for_each(Waker::wake);
    }

    /// Escalates commands that do not end: one reset, for any number of commands.
    fn escalate(&mut self, overdue: &[Overdue]) {
        let mut resets = Vec::new();
        for &Overdue { id, lun, step } in overdue {
            match step {
                EscalationStep::Wait => {}
                EscalationStep::AbortTask => {
                    self.meter.incidents.timeouts += 1;
                    self.abort(id);
                }
                EscalationStep::LogicalUnitReset => resets.push((Function::LogicalUnitReset, lun)),
                EscalationStep::TargetReset => resets.push((Function::TargetWarmReset, Lun(0))),
                EscalationStep::LeaveSession => self.end_all(|| Ending::Unresponsive),
            }
        }
        for (index, &(function, lun)) in resets.iter().enumerate() {
            if resets[..index].contains(&(function, lun)) {
                continue;
            }
            let at = LunAddress::parse(lun.0);
            tracing::warn!(?function, lun = %at, "commands neither end nor can be aborted");
            if let Some(by) = self.connections.first().map(|connection| connection.id) {
                self.machine.manage(self.now, by, function, lun);
                self.meter.incidents.resets += 1;
            }
        }
    }
}
