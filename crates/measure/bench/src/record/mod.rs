//! What was measured, as it is written to `result.json`: every sample, every latency, and everything that has to be known
//! to believe them. All other forms of a result (report, tables, comparison) are made of this one.
//!
//! The format has a version, [`FORMAT`]; names are only ever added within one. Times are in seconds, latencies in
//! nanoseconds (histograms) or microseconds (`_us`), sizes in bytes: the unit is in the name.

mod environment;
mod flow;
mod run;

use serde::{Deserialize, Serialize};

pub use environment::{Fact, Facts, Group};
pub use flow::Flow;
pub use model::link::Limit;
pub use run::{CellRun, ClientRun, Cpu, Ended, Run, Sample, ServerCpu, ServerMachine};
pub use stats::Histogram;

use crate::plan::Suite;

/// The version of the format that this program writes.
pub const FORMAT: u32 = 1;

/// All of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`], when it was written.
    pub format: u32,
    /// The version of the program that wrote it.
    pub version: String,
    /// The arguments that make it again, without secrets.
    pub command: Vec<String>,
    /// When it began: RFC 3339, UTC.
    pub begun: String,
    /// When it ended; `None` if it did not come to its end, and can be resumed.
    pub ended: Option<String>,
    /// What was measured.
    pub subject: Subject,
    /// On what, with what settings.
    pub environment: Facts,
    /// What was to be run.
    pub suite: Suite,
    /// What was run, in that order.
    pub runs: Vec<CellRun>,
    /// Ceilings that are known: of the link, or measured on this machine.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// What went wrong beside the runs, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The storage that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// As it was named on the command line, without user and secret.
    pub place: String,
    /// `iscsi`, `file`, `block device`, `ram`, …
    pub kind: String,
    /// Its capacity.
    pub bytes: u64,
    /// Its logical block.
    pub block_bytes: u32,
    /// Vendor and product, as it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// What tells it from other storage of the same name, so that a measurement can be gone on with; `None` if it ends
    /// with the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}
