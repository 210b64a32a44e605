//! A SCSI task, from the arrival of its command to its status.

use std::time::Instant;

use super::Session;
use super::event::{Command, ConnectionId};
use super::inbound::Inbound;
use super::outbound::{ExpectedLengths, Outbound};
use crate::observed::report;
use crate::pdu::{Itt, Lun};
use crate::slab::Key;

#[derive(Debug)]
pub(super) struct Task {
    pub(super) connection: ConnectionId,
    pub(super) itt: Itt,
    pub(super) lun: Lun,
    pub(super) immediate: bool,
    /// The driver knows the task.
    pub(super) announced: bool,
    /// The command, while it is held.
    pub(super) waiting: Option<Box<HeldCommand>>,
    pub(super) lengths: ExpectedLengths,
    pub(super) inbound: Inbound,
    /// The driver's response.
    pub(super) outbound: Option<Outbound>,
    /// The response is queued.
    pub(super) queued: bool,
}

/// A command ahead of its CmdSN, with its data.
#[derive(Debug)]
pub(super) struct HeldCommand {
    pub(super) command: Command,
    /// Time of arrival.
    pub(super) since: Instant,
    pub(super) staged: Vec<StagedData>,
    /// There was no staging room for its data.
    pub(super) overrun: bool,
}

/// Data of a held command.
#[derive(Debug)]
pub(super) struct StagedData {
    pub(super) offset: u32,
    pub(super) bytes: Vec<u8>,
}

/// States of a task for [`crate::observed`].
pub const TASK_STATES: [&str; 5] =
    ["not there", "waits for its turn", "takes data", "with the driver", "answered"];

/// Events of a task.
pub const TASK_EVENTS: [&str; 9] = [
    "SCSI Command of its tag",
    "Data-Out",
    "its data are there",
    "ABORT TASK",
    "QUERY TASK",
    "the driver takes data",
    "the driver answers",
    "the driver gives it up",
    "its connection is lost",
];

impl Session {
    /// Reports an event of a task before it takes effect.
    pub(super) fn observe(&self, event: &'static str, which: impl FnOnce(&Session) -> Option<Key>) {
        report("target", event, || match which(self).and_then(|key| self.tasks.get(key)) {
            None => "not there",
            Some(task) if task.outbound.is_some() => "answered",
            Some(task) if task.is_held() => "waits for its turn",
            Some(task) if task.inbound.is_wanted() => "takes data",
            Some(_) => "with the driver",
        });
    }
}

impl Task {
    /// Whether its command is held.
    pub(super) fn is_held(&self) -> bool {
        self.waiting.is_some()
    }

    pub(super) fn staged_bytes(&self) -> usize {
        let staged = self.waiting.iter().flat_map(|waiting| &waiting.staged);
        staged.map(|staged| staged_cost(staged.bytes.len())).sum()
    }

    /// Whether further data are dropped: the driver did not request any, has responded, or knows that they
    /// cannot be complete.
    pub(super) fn refuses_data(&self) -> bool {
        self.outbound.is_some() || !(self.inbound.is_wanted() || self.is_held())
    }
}

/// Memory taken by a held piece of data: small ones are mostly overhead.
pub(super) fn staged_cost(length: usize) -> usize {
    const OVERHEAD_BYTES: usize = 64;
    length + OVERHEAD_BYTES
}
