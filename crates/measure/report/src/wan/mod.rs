//! Document 002's matrix: what came of it beside what a model expects and what was published.
//!
//! ```text
//!   bench::suite::wan ── Suite of cells, each with its Setting ──(measured)── Record ── Wan: rows, constants, verdict
//! ```
//!
//! The document prints reads, most solicited and most unsolicited writes of four sizes, alone and 32 at once, over four
//! round trips; plain TCP with a small and a large window; and the same without a delay on Gigabit Ethernet. It names and does
//! not print what connections, sessions, the largest packet, the command window and TCP's congestion control change; a few
//! cells for each show that.

mod constants;
mod ideal;
mod published;
mod row;
#[cfg(test)]
mod tests;
mod verdict;

pub use constants::Constants;
pub use published::Published;
pub use row::{Asked, Met, Row, Wan};
pub use verdict::{Off, Share, Verdict};
