//! Requests other than commands: task management functions, pings, and SendTargets.

use std::task::{Poll, Waker};

use iscsi::pdu::{Cid, TaskManagementResult};
use reactor::Receiver;

use super::SessionInner;
use crate::error::CommandError;
use crate::management::Management;

/// The text exchange; there is at most one.
pub(super) enum TextExchange {
    Idle,
    Sent(Option<Waker>),
    Received(Vec<u8>),
}

impl SessionInner {
    /// Sends a task management function; the receiver gets the response.
    pub(crate) fn manage(
        &mut self,
        what: Management,
    ) -> Result<Receiver<TaskManagementResult>, CommandError> {
        let first =
            self.connections.first().map(|connection| connection.id).ok_or(CommandError::ConnectionLost)?;
        let asked = self.machine.manage(self.now, first, what.function(), what.lun());
        let answer = self.functions.asked(asked.ok_or(CommandError::ConnectionLost)?);
        self.wake_connections();
        Ok(answer)
    }

    /// Pings the target by one connection or by any; the receiver gets the returned data.
    pub(crate) fn ping(&mut self, cid: Option<Cid>, data: &[u8]) -> Result<Receiver<Vec<u8>>, CommandError> {
        let by = self.connections.iter().find(|connection| cid.is_none_or(|cid| connection.cid == cid));
        let by = by.ok_or(CommandError::ConnectionLost)?.id;
        let answer = self.pings.asked(self.machine.ping(by, data).ok_or(CommandError::ConnectionLost)?);
        self.wake_connections();
        Ok(answer)
    }

    /// Sends SendTargets.
    pub(crate) fn ask_for_targets(&mut self, which: &str) -> Result<(), CommandError> {
        let first =
            self.connections.first().map(|connection| connection.id).ok_or(CommandError::ConnectionLost)?;
        if !self.machine.send_targets(first, which) {
            return Err(CommandError::ConnectionLost);
        }
        self.text = TextExchange::Sent(None);
        self.wake_connections();
        Ok(())
    }

    pub(crate) fn poll_text(&mut self, waker: &Waker) -> Poll<Result<Vec<u8>, CommandError>> {
        match std::mem::replace(&mut self.text, TextExchange::Idle) {
            TextExchange::Received(text) => Poll::Ready(Ok(text)),
            TextExchange::Idle => Poll::Ready(Err(CommandError::ConnectionLost)),
            TextExchange::Sent(_) => {
                self.text = TextExchange::Sent(Some(waker.clone()));
                Poll::Pending
            }
        }
    }
}
