//! The workload of a path.

use serde::{Deserialize, Serialize};

/// Which way the data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the target.
    Read,
    /// To the target.
    Write,
}

/// Requests of one kind, so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Which way.
    pub direction: Direction,
    /// The length of each, in bytes.
    pub block_bytes: u32,
    /// Requests under way at once in each session, if the target lets them be.
    pub depth: u32,
    /// Sessions that each have so many.
    pub sessions: u16,
    /// At random places; one after the other if not.
    pub random: bool,
    /// Each write is on stable storage before it ends (FUA, or a SYNCHRONIZE CACHE behind it).
    pub durable: bool,
}
