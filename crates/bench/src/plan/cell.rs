//! Suites, and what they are made of.

use serde::{Deserialize, Serialize};

use super::{Rule, Stop, Workload};

/// A test as people name it: `vmware4`, `pts`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suite {
    /// What it is called on the command line: lower case, digits and `-`.
    pub name: String,
    /// For a heading.
    pub title: String,
    /// What it measures and where it comes from, in a few sentences.
    pub about: String,
    /// The source document that it repeats, such as `001`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// What the source does not say and is assumed here; one sentence each.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// In this order.
    pub steps: Vec<Step>,
}

/// A part of a suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The whole span is given back (UNMAP, or zeros where that is not possible): SNIA's purge.
    Purge,
    /// The span is written once from its start to its end, several times if `passes` says so: SNIA's
    /// workload-independent preconditioning, or the file that a test reads.
    Fill {
        /// The length of each request.
        block_bytes: u32,
        /// Requests under way at once.
        depth: u32,
        /// How often.
        passes: u32,
    },
    /// Cells are run.
    Measure {
        /// When each run of a cell ends.
        stop: Stop,
        /// In which order, and how often.
        order: Order,
        /// What is run; their names are unique in the suite.
        cells: Vec<Cell>,
    },
}

/// In which order, and how often, the cells of a step are run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Each once, one after the other: where the order is the test.
    Once,
    /// All of them again and again, in an order that changes from round to round, so that a machine that drifts harms none
    /// more than another. Ends after `repeats_max` rounds, or after `repeats_min` if the medians are known well enough.
    Interleaved {
        /// At least so many rounds.
        repeats_min: u32,
        /// And no more than these.
        repeats_max: u32,
    },
    /// Rounds of all cells, in their order, until the tracked cell is steady by SNIA's rule over the last five rounds:
    /// largest minus smallest at most 20 % of the mean, and the fitted line rises or falls by at most 10 % of it. The
    /// results are those of these five rounds.
    SteadyRounds {
        /// The name of the cell that is tracked.
        tracked: String,
        /// And no more rounds than these.
        rounds_max: u32,
    },
}

/// One thing that is measured: a point of a curve, a bar of a chart, a row of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Unique in its suite, such as `read-4KiB`.
    pub name: String,
    /// The curve or group it belongs to, such as `read`.
    pub series: String,
    /// Who does what at the same time. At least one.
    pub roles: Vec<Role>,
    /// A stop of its own, instead of its step's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
}

/// What one client does in a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Role {
    /// What it is called where there are several: `reader`, `VM01`.
    pub name: String,
    /// Which client: 0 is the first. Each client is a machine (an agent), or a thread with sessions of its own here.
    pub client: u16,
    /// Sessions that each have [`Workload::depth`] requests.
    #[serde(default = "one")]
    pub sessions: u16,
    /// Requests go through a cache that reads so many bytes ahead and gathers writes, as those of programs do that use files:
    /// the page cache where the storage is a file or a block device, a model of it (`block::Buffered`) where it is a LUN.
    /// Straight to the storage if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ahead_bytes: Option<u32>,
    /// What it asks.
    pub workload: Workload,
}

impl Suite {
    /// Every cell, in order.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.steps.iter().flat_map(|step| match step {
            Step::Measure { cells, .. } => cells.as_slice(),
            Step::Purge | Step::Fill { .. } => &[],
        })
    }

    /// Whether anything in it writes.
    pub fn writes(&self) -> bool {
        let beside = self.steps.iter().any(|step| !matches!(step, Step::Measure { .. }));
        beside || self.cells().flat_map(|cell| &cell.roles).any(|role| role.workload.writes())
    }

    /// Clients that it takes: one more than the highest number.
    pub fn clients(&self) -> u16 {
        self.cells().flat_map(|cell| &cell.roles).map(|role| role.client.saturating_add(1)).max().unwrap_or(1)
    }
}

impl Cell {
    /// When a run of it ends, in a step with this stop.
    pub fn stop(&self, step: Stop) -> Stop {
        self.stop.unwrap_or(step)
    }

    /// Whether a run of it takes the same time always.
    pub fn takes_fixed_time(&self, step: Stop) -> bool {
        matches!(self.stop(step).rule, Rule::Time)
    }
}

fn one() -> u16 {
    1
}
