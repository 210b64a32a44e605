//! SCSI commands over a protocol other than iSCSI: the interface of a session. With it,
//! [`RemoteTarget`](crate::RemoteTarget), and therefore [`RemoteLun`](crate::RemoteLun),
//! [`Unit`](crate::Unit) and [`verbs`](crate::verbs), serve LUNs of both.
//!
//! A carrier has consecutive sessions, which count as reinstatements of one. A command that was lost with a
//! session either has ended, or will not be executed after any command of the next one.

use std::pin::Pin;
use std::sync::Arc;

use iscsi::pdu::{Lun, TaskManagementResult};
use scsi::cdb::Cdb;

use crate::caches::{CacheEffect, Caches};
use crate::effect::Effect;
use crate::error::CommandError;
use crate::inner::Management;
use crate::session_state::Nexus;
use crate::tasks::{CommandEnd, CommandSpec, Status, Transfer};

/// The future result of a carrier's operation.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Sessions that carry SCSI commands, usable from any thread. They end when dropped.
pub trait Carrier: Send + Sync {
    /// Sends a command, and returns its result with its data. If dropped early, the command is aborted.
    fn carry(&self, command: CommandSpec) -> Answer<'_, CommandEnd>;
    /// Sends a task management function.
    fn manage(&self, management: Management) -> Answer<'_, Result<TaskManagementResult, CommandError>>;
    /// Resolves when there is a session in which commands may be sent, including those that were lost in an
    /// earlier one. Fails if there has been none for too long, or there will be none.
    fn usable(&self) -> Answer<'_, Result<(), CommandError>>;
    /// Resolves once no command dropped before this call can still be executed. Fails if that cannot be
    /// determined.
    fn quiesced(&self) -> Answer<'_, Result<(), CommandError>>;
    /// Ends the session.
    fn close(&self) -> Answer<'_, ()>;
    /// Number of reinstatements. It changes after `is_lost` does.
    fn reinstatements(&self) -> u64;
    /// Whether the current session is lost, and the next one has not started.
    fn is_lost(&self) -> bool;
    /// Counts a resent command whose outcome was unknown.
    fn replayed(&self);
    /// Maximum data length of a command.
    fn data_bytes_max(&self) -> usize;
    /// Both sides of the session, in iSCSI's terms.
    fn nexus(&self) -> Nexus;
}

/// A session's record of its commands: the writes that a loss of the target's cache would lose. Each is
/// recorded when it ends, whether or not its requester waits, and before the requester gets the result.
#[derive(Clone, Debug, Default)]
pub struct CommandRecord(pub(crate) Arc<Caches>);

/// A command that is recorded when it ends.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    lun: Lun,
    effect: Effect,
}

impl CommandRecord {
    /// Starts the record of a command.
    pub fn begin(&self, lun: Lun, cdb: &Cdb, transfer: &Transfer) -> Recorded {
        Recorded { lun, effect: Effect::from_cdb(cdb, transfer.sent()) }
    }

    /// The session was lost, and another one starts: the target may have been restarted. Must be called
    /// before a command is sent in the new session.
    pub fn renewed(&self) {
        self.0.renewed();
    }

    /// Records the end of a command.
    pub fn end(&self, command: Recorded, outcome: &Result<Status, CommandError>) {
        self.0.note(command.lun, command.effect, CacheEffect::from_outcome(outcome));
    }
}
