//! The clients that carry out a cell together: threads of this process, or agents on other machines.

mod local;

use std::time::Duration;

use bench::Go;
use bench::plan::{Cell, Span, Stop};
use bench::record::Sample;

pub use local::{LocalCrew, gather};

use super::client::RoleResult;
use backends::Failure;

/// Clients that begin and end together.
// The conductor and its crew run on one thread, so their futures need not be Send.
#[allow(async_fn_in_trait)]
pub trait Crew {
    /// Carries out all roles of a cell at once, from the same start, until the stop says so, or `progress`
    /// does. Gives what came of each role, in their order.
    ///
    /// Fails if the cell could not be begun. Requests that fail are no failure of this, and neither is a
    /// client that is lost in the middle.
    async fn run(
        &mut self,
        cell: &Cell,
        stop: Stop,
        progress: &mut dyn FnMut(Progress<'_>) -> Go,
    ) -> Result<CellOutcome, Failure>;

    /// Gives the blocks of a span back, or makes zeros of them where that is not possible; the first client
    /// does.
    async fn purge(&mut self, span: Span, progress: &mut dyn FnMut(Purged) -> Go) -> Result<(), Failure>;

    /// Whether all clients can still reach the storage; what their initiators do to get there again has its
    /// time.
    async fn look_alive(&mut self) -> Result<(), Failure>;

    /// What a reader of the record should know of how its cells were carried out, in sentences; asked at the
    /// end.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Logs out of the storage.
    async fn close(self);
}

/// The result of a cell.
pub struct CellOutcome {
    /// Of each role.
    pub parts: Vec<RoleResult>,
    /// A client that was lost, and what it had told is all that is known of its part: the cell has ended with
    /// it, and no other can be begun.
    pub lost: Option<Failure>,
}

/// The progress of a cell.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// The warm-up is over: requests are counted from now on.
    Counting,
    /// What one client did in a short time.
    Sample {
        /// Which role of the cell it has.
        role: usize,
        /// What it did.
        sample: &'a Sample,
    },
    /// The storage has not answered for so long; told about every second.
    Waiting(Duration),
}

/// The progress of a purge.
#[derive(Clone, Copy, Debug)]
pub struct Purged {
    /// So much of it is done.
    pub done_bytes: u64,
    /// So much there is.
    pub of_bytes: u64,
}
