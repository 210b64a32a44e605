//! What the machine keeps of a session by itself: data that came before their command's turn, pings and texts that are on
//! their way in, and answers to them that are yet to be sent. It counts as memory of the session's commands does.
//!
//! Data come early when several connections carry one order of commands, and another one is late. An initiator that
//! leaves a command out, or does not send the rest of a ping, keeps memory for as long as it likes. It loses the connection
//! if others find none (`Session::slowest_holder`).

use super::Session;

impl Session {
    /// Lets the machine keep as much as there is memory for.
    pub(crate) fn grant_room(&mut self) {
        self.machine.set_staging_limit(self.budget.free());
    }

    /// Counts what it keeps now.
    pub(crate) fn settle_kept(&mut self) {
        self.kept.set(self.machine.staged_bytes());
    }
}
