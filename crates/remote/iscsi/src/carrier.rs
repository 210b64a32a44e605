//! SCSI commands by another protocol than iSCSI: what a session gives, so that [`RemoteTarget`](crate::RemoteTarget), and with it
//! [`RemoteLun`](crate::RemoteLun), [`Unit`](crate::Unit) and [`verbs`](crate::verbs), serve LUNs of both.
//!
//! A carrier has sessions, one after the other, which count as reinstatements of one. A command that was lost with a session
//! either has ended, or will not be executed after any command of the next one.

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

/// What a carrier answers, later.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Sessions that carry SCSI commands, usable from any thread. Dropped, they end.
pub trait Carrier: Send + Sync {
    /// Sends a command, and gives its end with its data. Dropped early, the command is aborted.
    fn carry(&self, command: CommandSpec) -> Answer<'_, CommandEnd>;
    /// Sends a task management function.
    fn manage(&self, management: Management) -> Answer<'_, Result<TaskManagementResult, CommandError>>;
    /// Ends when there is a session in which commands may be sent, with those that were lost in an earlier one; an error if
    /// none has come for too long, or none will.
    fn usable(&self) -> Answer<'_, Result<(), CommandError>>;
    /// Ends when no command that was dropped before this call can be executed any more; an error if that will never be known.
    fn quiesced(&self) -> Answer<'_, Result<(), CommandError>>;
    /// Ends the session.
    fn close(&self) -> Answer<'_, ()>;
    /// Number of reinstatements. It changes after `is_lost`.
    fn reinstatements(&self) -> u64;
    /// Whether the present session is lost, and the next one has not begun.
    fn is_lost(&self) -> bool;
    /// Counts a command that is sent again because its outcome was unknown.
    fn replayed(&self);
    /// The data of a command, at most.
    fn data_bytes_max(&self) -> usize;
    /// Both ends, as far as iSCSI has words for them.
    fn nexus(&self) -> Nexus;
}

/// What a session records of its commands: what a loss of the target's cache would lose. Each is recorded when it ends, whether
/// its requester waits or not, and before its requester is told.
#[derive(Clone, Debug, Default)]
pub struct CommandRecord(pub(crate) Arc<Caches>);

/// A command that is recorded when it ends.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    lun: Lun,
    effect: Effect,
}

impl CommandRecord {
    /// A command begins.
    pub fn begin(&self, lun: Lun, cdb: &Cdb, transfer: &Transfer) -> Recorded {
        Recorded { lun, effect: Effect::from_cdb(cdb, transfer.sent()) }
    }

    /// The session was lost, and another one begins: the target may have been restarted. To be called before a command of that
    /// one is sent.
    pub fn renewed(&self) {
        self.0.renewed();
    }

    /// It has ended.
    pub fn end(&self, command: Recorded, outcome: &Result<Status, CommandError>) {
        self.0.note(command.lun, command.effect, CacheEffect::from_outcome(outcome));
    }
}
