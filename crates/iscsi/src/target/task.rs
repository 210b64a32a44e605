//! A SCSI task between its command's arrival and its status.

use std::time::Instant;

use super::answer::Answer;
use super::event::{Command, ConnectionId};
use super::inbound::Inbound;
use super::landing::staged_cost;
use crate::pdu::{Itt, Lun};

/// A task.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) connection: ConnectionId,
    pub(super) itt: Itt,
    pub(super) lun: Lun,
    pub(super) immediate: bool,
    /// The driver knows of it.
    pub(super) announced: bool,
    /// The command, while it waits for its turn.
    pub(super) waiting: Option<Box<Waiting>>,
    pub(super) lengths: Lengths,
    pub(super) inbound: Inbound,
    /// The driver's answer, once it has given one.
    pub(super) answer: Option<Answer>,
    /// The answer is among those to be sent.
    pub(super) queued: bool,
}

/// What the initiator expects to move, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lengths {
    pub(super) write: u32,
    pub(super) read: u32,
    pub(super) bidirectional: bool,
}

/// A command that overtook others, and its data.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) command: Command,
    /// When it came.
    pub(super) since: Instant,
    pub(super) staged: Vec<Staged>,
    /// There was no room for its data.
    pub(super) overrun: bool,
}

/// Data of a command that waits.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) offset: u32,
    pub(super) bytes: Vec<u8>,
}

impl Task {
    /// Whether its command waits for its turn.
    pub(super) fn is_held(&self) -> bool {
        self.waiting.is_some()
    }

    pub(super) fn staged_bytes(&self) -> usize {
        let staged = self.waiting.iter().flat_map(|waiting| &waiting.staged);
        staged.map(|staged| staged_cost(staged.bytes.len())).sum()
    }

    /// Whether nobody wants more of its data: the driver never asked for any, has answered, or has been told that
    /// it cannot be complete.
    pub(super) fn refuses_data(&self) -> bool {
        self.answer.is_some() || !(self.inbound.is_wanted() || self.is_held())
    }
}
