//! What the machine keeps of a session by itself: data that came before their command's turn, and answers to pings and
//! texts that are yet to be sent. It counts as memory of the session's commands does.
//!
//! Data come early when several connections carry one order of commands, and another one is late. An initiator that
//! leaves a command out keeps what follows it waiting for as long as it likes, so that it loses the connection if others
//! want for memory.

use std::time::Instant;

use iscsi::serial::Sn;
use iscsi::target::ConnectionId;

use super::Session;

/// Data that came before their command's turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Early {
    /// The command number that is missing.
    waits_for: Sn,
    /// Since when it is, as far as was seen.
    pub(super) since: Instant,
    /// By which some of the data came.
    pub(super) connection: ConnectionId,
}

impl Session {
    /// Lets the machine keep as much as there is memory for.
    pub(crate) fn grant_room(&mut self) {
        self.machine.set_room(self.budget.free());
    }

    /// Counts what it keeps now.
    pub(crate) fn settle_kept(&mut self) {
        self.kept.set(self.machine.kept_bytes());
    }

    /// Looks whether there are data that came early.
    pub(super) fn observe_early(&mut self, now: Instant) {
        let next = self.machine.exp_cmd_sn();
        let before = self.early.filter(|before| before.waits_for == next);
        self.early = self.machine.early_connection().map(|connection| Early {
            waits_for: next,
            since: before.map_or(now, |before| before.since),
            connection,
        });
    }
}
