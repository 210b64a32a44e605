//! Delivery of the machine's events.

use std::task::Waker;
use std::time::Duration;

use iscsi::initiator::{ConnectionId, Event, Failure, LogoutScope, TaskId, Times};
use iscsi::pdu::{AsyncEvent, AsyncMessage, Cid, LogoutResult};

use super::SessionInner;
use super::requests::TextExchange;
use crate::caches::CacheEffect;
use crate::error::{CommandError, Ending};
use crate::statistics::Outcome;
use crate::tasks::Status;

impl SessionInner {
    /// Delivers all events of the machine.
    pub(crate) fn deliver_events(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            self.deliver(event);
        }
        self.wake_waiting();
    }

    fn deliver(&mut self, event: Event) {
        match event {
            Event::Done { task, status, sense, residual, data_in_bytes, times, .. } => {
                let in_bytes = data_in_bytes as usize;
                self.finish(task, Ok(Status { status, sense, in_bytes, residual }), &times);
            }
            Event::Failed { task, why } => self.finish(task, Err(meaning(why)), &Times::default()),
            Event::Text { text, .. } => {
                if let TextExchange::Sent(waker) =
                    std::mem::replace(&mut self.text, TextExchange::Received(text))
                {
                    waker.into_iter().for_each(Waker::wake);
                }
            }
            Event::LoggedOut { leaving: LogoutScope::Session | LogoutScope::Connection, result, .. } => {
                self.is_logged_out = result == Some(LogoutResult::Success);
                self.end_all(|| Ending::LoggedOut);
            }
            Event::LoggedOut { leaving: LogoutScope::OtherConnection(cid), result, .. } => {
                self.connection_logged_out(cid, result)
            }
            Event::Close { connection, reason: _ } => {
                if let Some(connection) = self.connection(connection) {
                    connection.ending = Some(Ending::Silent);
                    connection.task.iter().for_each(Waker::wake_by_ref);
                }
            }
            Event::Message { connection, message, sense } => {
                self.handle_message(connection, &message, &sense)
            }
            Event::Managed { tmf, result } => self.functions.answered(tmf, result),
            Event::Pong { ping, data } => self.pings.answered(ping, data),
        }
    }

    /// The target has answered the logout of a lost connection. If it cannot log it out, the session is
    /// dropped: reinstating it ends all of its tasks.
    pub(super) fn connection_logged_out(&mut self, cid: Cid, result: Option<LogoutResult>) {
        match result {
            Some(LogoutResult::Success | LogoutResult::CidNotFound) => {
                self.state.settle(cid);
                if self.state.is_settled() {
                    self.unsettled = 0;
                }
            }
            None => {
                self.state.settling_failed(cid);
                self.settle_losses();
            }
            Some(_) => self.end_all(|| Ending::Unresponsive),
        }
    }

    /// Section 11.9.1: after a request to log out, "this Async Message MUST be sent on the same connection as
    /// the one requesting to be logged out"; Parameter2 of the others is Time2Wait.
    fn handle_message(&mut self, connection: ConnectionId, message: &AsyncMessage, sense: &[u8]) {
        tracing::debug!(?message, "the target says something of its own accord");
        match message.event {
            AsyncEvent::LogoutRequested => self.log_out_for_now(connection),
            AsyncEvent::ConnectionDropped | AsyncEvent::SessionDropped => {
                let [_, time2wait, _] = message.parameters;
                self.state.set_time2wait(Duration::from_secs(time2wait.into()));
            }
            AsyncEvent::Scsi => self.caches.note_sense(message.lun, sense),
            AsyncEvent::NegotiationRequested | AsyncEvent::TasksTerminated | AsyncEvent::Other(_) => {}
        }
    }

    fn finish(&mut self, task: TaskId, outcome: Result<Status, CommandError>, times: &Times) {
        let is_lost = outcome == Err(CommandError::ConnectionLost);
        let how = Outcome::from_result(&outcome);
        let trace = CacheEffect::from_outcome(&outcome);
        let Some(left) = self.tasks.end(task, outcome) else { return };
        if is_lost {
            self.lost_commands += 1;
            self.unsettled += usize::from(left.account.effect.changes_something());
        }
        self.caches.note(left.lun, left.account.effect, trace);
        if trace == CacheEffect::Done {
            self.registrations.note(left.lun, left.account.effect);
        }
        self.meter.ended(&left, how, times);
        if let Some(connection) = self.connection(left.connection) {
            connection.under_way = connection.under_way.saturating_sub(1);
        }
    }
}

fn meaning(failure: Failure) -> CommandError {
    match failure {
        Failure::ConnectionLost => CommandError::ConnectionLost,
        Failure::Aborted => CommandError::Aborted,
        Failure::Rejected(_) | Failure::TargetFailure => CommandError::Rejected,
    }
}
