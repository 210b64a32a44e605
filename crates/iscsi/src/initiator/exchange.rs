//! What is under way: a command, or anything else that has a tag and awaits an answer.

use std::time::Instant;

use super::event::{ConnectionId, Leaving};
use super::times::Clock;
use super::transfer::{Inbound, Outbound};
use crate::pdu::{Itt, Lun, TaskAttribute, TaskManagementFunction};
use crate::serial::Sn;
use crate::text::Assembly;

/// Something that awaits an answer.
#[derive(Debug)]
pub(super) enum Exchange {
    Task(Task),
    Management(Management),
    Text(Text),
    /// `ours`: the keepalive's, nobody waits for its answer.
    Ping {
        connection: ConnectionId,
        ours: bool,
        /// When it was handed out.
        sent: Option<Instant>,
    },
    Logout {
        connection: ConnectionId,
        leaving: Leaving,
    },
}

/// A command.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) connection: ConnectionId,
    pub(super) lun: Lun,
    pub(super) attribute: TaskAttribute,
    pub(super) cdb: [u8; 16],
    /// Additional header segments: a long CDB, a bidirectional command's read length. Empty for nearly all.
    pub(super) ahs: Box<[u8]>,
    /// `None` until it is sent.
    pub(super) cmd_sn: Option<Sn>,
    pub(super) outbound: Outbound,
    pub(super) inbound: Inbound,
    pub(super) clock: Clock,
}

/// A task management function.
#[derive(Debug)]
pub(super) struct Management {
    pub(super) connection: ConnectionId,
    pub(super) function: TaskManagementFunction,
    pub(super) lun: Lun,
    pub(super) referenced: Option<Itt>,
    /// CmdSN that the function was sent with: commands before it are concerned. `None` until it is sent.
    pub(super) cmd_sn: Option<Sn>,
    /// ABORT TASK: the CmdSN of the task.
    pub(super) ref_cmd_sn: Sn,
    /// It only fills a gap in the CmdSNs, and nobody waits for its answer.
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
            Exchange::Management(management) => management.connection,
            Exchange::Text(text) => text.connection,
            Exchange::Ping { connection, .. } | Exchange::Logout { connection, .. } => *connection,
        }
    }
}
