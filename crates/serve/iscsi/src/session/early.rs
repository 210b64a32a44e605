//! Memory that the iSCSI machine of a session holds: data that arrived before their command's turn, pings and
//! texts that are being received, and responses to them that are queued. It is charged like the memory of
//! commands.
//!
//! Data arrive early when several connections carry one command sequence and one of them is late. An
//! initiator that omits a command, or does not send the rest of a ping, would hold memory without limit; it
//! loses the connection when others need the memory (`Session::slowest_holder`).

use super::Session;

impl Session {
    /// Allows the machine to hold as much as the budget has.
    pub(crate) fn grant_room(&mut self) {
        self.machine.set_staging_limit(self.budget.free());
    }

    /// Charges what it holds now.
    pub(crate) fn settle_kept(&mut self) {
        self.kept.set(self.machine.staged_bytes());
    }
}
