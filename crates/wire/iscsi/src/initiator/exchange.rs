//! Exchanges: commands, and everything else that has an Initiator Task Tag and awaits a response.

use std::time::Instant;

use super::Session;
use super::event::{ConnectionId, LogoutScope};
use super::phase_times::PhaseClock;
use super::transfer::{Inbound, Outbound};
use crate::observed::report;
use crate::pdu::{Itt, Lun, TaskAttribute, TaskManagementFunction};
use crate::serial::Sn;
use crate::slab::Key;
use crate::text::Assembly;

/// An outstanding request.
#[derive(Debug)]
pub(super) enum Exchange {
    Task(Task),
    Tmf(Tmf),
    Text(Text),
    /// `is_keepalive`: sent by the keepalive, without a waiting caller.
    Ping {
        connection: ConnectionId,
        is_keepalive: bool,
        /// Time of transmission.
        sent: Option<Instant>,
    },
    Logout {
        connection: ConnectionId,
        leaving: LogoutScope,
    },
}

/// A command.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) connection: ConnectionId,
    pub(super) lun: Lun,
    pub(super) attribute: TaskAttribute,
    pub(super) cdb: [u8; 16],
    /// Additional header segments: a long CDB, a bidirectional command's read length. Usually empty.
    pub(super) ahs: Box<[u8]>,
    /// `None` until it is sent.
    pub(super) cmd_sn: Option<Sn>,
    pub(super) outbound: Outbound,
    pub(super) inbound: Inbound,
    pub(super) clock: PhaseClock,
}

/// States of a command for [`crate::observed`]: those of [`super::phase_times::Phase`].
pub const TASK_STATES: [&str; 7] = [
    "not there",
    "queued",
    "sends data",
    "awaits an R2T",
    "awaits an answer",
    "takes data",
    "awaits its status",
];

/// Events of a command.
pub const TASK_EVENTS: [&str; 8] = [
    "Data-In",
    "R2T",
    "SCSI Response",
    "Reject",
    "ABORT TASK is asked for",
    "its connection is lost",
    "it was aborted",
    "the target cannot carry it out",
];

impl Session {
    /// Reports an event of a command before it takes effect.
    pub(super) fn observe(&self, event: &'static str, which: impl FnOnce(&Session) -> Option<Key>) {
        report("initiator", event, || match which(self).and_then(|key| self.exchanges.get(key)) {
            Some(Exchange::Task(task)) => TASK_STATES[1 + task.clock.phase() as usize],
            _ => TASK_STATES[0],
        });
    }
}

/// A task management function.
#[derive(Debug)]
pub(super) struct Tmf {
    pub(super) connection: ConnectionId,
    pub(super) function: TaskManagementFunction,
    pub(super) lun: Lun,
    pub(super) referenced: Option<Itt>,
    /// CmdSN of the function: it concerns commands before. `None` until it is sent.
    pub(super) cmd_sn: Option<Sn>,
    /// ABORT TASK: the CmdSN of the task.
    pub(super) ref_cmd_sn: Sn,
    /// It only plugs a gap in the CmdSNs; no caller waits for its response.
    pub(super) plugs_gap: bool,
}

/// A text exchange.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) connection: ConnectionId,
    pub(super) answer: Assembly,
}

impl Exchange {
    pub(super) fn connection(&self) -> ConnectionId {
        match self {
            Exchange::Task(task) => task.connection,
            Exchange::Tmf(tmf) => tmf.connection,
            Exchange::Text(text) => text.connection,
            Exchange::Ping { connection, .. } | Exchange::Logout { connection, .. } => *connection,
        }
    }
}
