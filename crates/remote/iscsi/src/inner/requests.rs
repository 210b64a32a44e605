//! What a target is asked beside commands: task management functions, pings, and which targets there are.

use std::task::{Poll, Waker};

use iscsi::pdu::{Cid, TaskManagementResult};
use reactor::Receiver;

use super::SessionInner;
use crate::error::CommandError;
use crate::management::Management;

/// The one text exchange there may be.
pub(super) enum TextExchange {
    Idle,
    Sent(Option<Waker>),
    Received(Vec<u8>),
}

impl SessionInner {
    /// Asks the target for a task management function; whoever receives hears what it says.
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

    /// Asks the target for the same data back, by one connection or by any; whoever receives gets them.
    pub(crate) fn ping(&mut self, cid: Option<Cid>, data: &[u8]) -> Result<Receiver<Vec<u8>>, CommandError> {
        let by = self.connections.iter().find(|connection| cid.is_none_or(|cid| connection.cid == cid));
        let by = by.ok_or(CommandError::ConnectionLost)?.id;
        let answer = self.pings.asked(self.machine.ping(by, data).ok_or(CommandError::ConnectionLost)?);
        self.wake_connections();
        Ok(answer)
    }

    /// Asks which targets there are.
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
