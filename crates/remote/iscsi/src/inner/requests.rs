//! What a target is asked beside commands: task management functions, pings, and which targets there are.

use std::task::{Poll, Waker};

use iscsi::pdu::{Cid, TaskManagementResult};
use reactor::Receiver;

use super::Parts;
use crate::error::CommandError;
use crate::management::Management;

/// The one text exchange there may be.
pub(super) enum Text {
    None,
    Asked(Option<Waker>),
    Answered(Vec<u8>),
}

impl Parts {
    /// Asks the target for a task management function; whoever receives hears what it says.
    pub(crate) fn manage(
        &mut self,
        what: Management,
    ) -> Result<Receiver<TaskManagementResult>, CommandError> {
        let first = self.wires.first().map(|wire| wire.id).ok_or(CommandError::ConnectionLost)?;
        let asked = self.machine.manage(self.now, first, what.function(), what.lun());
        let answer = self.functions.asked(asked.ok_or(CommandError::ConnectionLost)?);
        self.wake_wires();
        Ok(answer)
    }

    /// Asks the target for the same data back, by one connection or by any; whoever receives gets them.
    pub(crate) fn ping(&mut self, cid: Option<Cid>, data: &[u8]) -> Result<Receiver<Vec<u8>>, CommandError> {
        let by = self.wires.iter().find(|wire| cid.is_none_or(|cid| wire.cid == cid));
        let by = by.ok_or(CommandError::ConnectionLost)?.id;
        let answer = self.pings.asked(self.machine.ping(by, data).ok_or(CommandError::ConnectionLost)?);
        self.wake_wires();
        Ok(answer)
    }

    /// Asks which targets there are.
    pub(crate) fn ask_for_targets(&mut self, which: &str) -> Result<(), CommandError> {
        let first = self.wires.first().map(|wire| wire.id).ok_or(CommandError::ConnectionLost)?;
        if !self.machine.send_targets(first, which) {
            return Err(CommandError::ConnectionLost);
        }
        self.text = Text::Asked(None);
        self.wake_wires();
        Ok(())
    }

    pub(crate) fn poll_text(&mut self, waker: &Waker) -> Poll<Result<Vec<u8>, CommandError>> {
        match std::mem::replace(&mut self.text, Text::None) {
            Text::Answered(text) => Poll::Ready(Ok(text)),
            Text::None => Poll::Ready(Err(CommandError::ConnectionLost)),
            Text::Asked(_) => {
                self.text = Text::Asked(Some(waker.clone()));
                Poll::Pending
            }
        }
    }
}
