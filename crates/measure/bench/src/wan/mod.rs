//! Document 002's matrix, as values: what is to be measured over which distance, and what came of it beside what a model
//! expects and what was published.
//!
//! ```text
//!   WanPlan ── suite ── Suite of cells, each with its Setting ──(measured)── Record ── Wan: rows, constants, verdict
//! ```
//!
//! The document prints reads, most solicited and most unsolicited writes of four sizes, alone and 32 at once, over four
//! round trips; plain TCP with a small and a large window; and the same without a delay on Gigabit Ethernet. It names and does
//! not print what connections, sessions, the largest packet, the command window and TCP's congestion control change; a few
//! cells for each show that. Nothing here runs anything: who measures makes the ways that the settings ask for.

mod constants;
mod ideal;
mod published;
mod row;
mod suite;
#[cfg(test)]
mod tests;
mod verdict;

pub use constants::Constants;
pub use published::Published;
pub use row::{Asked, Met, Row, Wan};

pub use suite::{BLOCK_BYTES, DEPTHS, LAN_BITS_PER_S, RTTS_MS, TCP_WINDOWS_BYTES, WAYS, WanPlan, suite};
pub use verdict::{Off, Share, Verdict};
