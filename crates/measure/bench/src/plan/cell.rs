//! Suites, and what they are made of.

use serde::{Deserialize, Serialize};

use super::{Rule, Setting, Span, Stop, Workload};

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
    /// The way to the storage, where it is made for this cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<Box<Setting>>,
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
    /// It keeps to a part of the span of its own ([`Cell::divide`]), as machines do that have a disk each: two that read the
    /// same would find what the other has just brought into a cache.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
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

    /// The longest that its cells can take together, in seconds; purging and filling are not in it, which nobody knows
    /// beforehand.
    pub fn longest_s(&self) -> f64 {
        let of_step = |step: &Step| match step {
            Step::Purge | Step::Fill { .. } => 0.0,
            Step::Measure { stop, order, cells } => {
                let of_cell = |cell: &Cell| cell.stop(*stop).warm_up_s + cell.stop(*stop).max_s;
                cells.iter().map(of_cell).sum::<f64>() * f64::from(order.rounds_max())
            }
        };
        self.steps.iter().map(of_step).sum()
    }

    /// Clients that it takes: one more than the highest number.
    pub fn clients(&self) -> u16 {
        self.cells().flat_map(|cell| &cell.roles).map(|role| role.client.saturating_add(1)).max().unwrap_or(1)
    }
}

impl Role {
    /// A client with one session that does this, straight to the storage.
    pub fn new(name: impl Into<String>, client: u16, workload: Workload) -> Role {
        Role { name: name.into(), client, sessions: 1, read_ahead_bytes: None, apart: false, workload }
    }
}

impl Order {
    /// The most rounds.
    pub fn rounds_max(&self) -> u32 {
        match self {
            Order::Once => 1,
            Order::Interleaved { repeats_max, .. } => *repeats_max,
            Order::SteadyRounds { rounds_max, .. } => *rounds_max,
        }
    }
}

impl Cell {
    /// Roles that run as long as their step says, on storage that is there.
    pub fn new(name: impl Into<String>, series: impl Into<String>, roles: Vec<Role>) -> Cell {
        Cell { name: name.into(), series: series.into(), roles, stop: None, setting: None }
    }

    /// When a run of it ends, in a step with this stop.
    pub fn stop(&self, step: Stop) -> Stop {
        self.stop.unwrap_or(step)
    }

    /// Gives each role that keeps apart its part of the span, on a device of so many bytes: as many equal parts as there
    /// are such roles, in their order, each a multiple of a MiB if it is that long, and of 4 KiB otherwise.
    pub fn divide(&mut self, device_bytes: u64) {
        let parts = self.roles.iter().filter(|role| role.apart).count().max(1) as u64;
        for (index, role) in self.roles.iter_mut().filter(|role| role.apart).enumerate() {
            let span = &mut role.workload.span;
            let left = device_bytes.saturating_sub(span.start_bytes);
            let part = span.bytes.unwrap_or(left).min(left) / parts;
            let step = if part >= 1 << 20 { 1 << 20 } else { 4096 };
            let part = part - part % step;
            *span = Span { start_bytes: span.start_bytes + part * index as u64, bytes: Some(part) };
            role.apart = false;
        }
    }

    /// Whether a run of it takes the same time always.
    pub fn takes_fixed_time(&self, step: Stop) -> bool {
        matches!(self.stop(step).rule, Rule::Time)
    }
}

fn one() -> u16 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Percent;

    fn readers(count: u16, span: Span) -> Cell {
        let role = |client| Role {
            name: format!("client {}", client + 1),
            client,
            sessions: 1,
            read_ahead_bytes: None,
            apart: true,
            workload: Workload { span, ..Workload::simple(32_768, 1, Percent::ALL, Percent::NONE) },
        };
        let roles = (0..count).map(role).collect();
        Cell::new("readers", "readers", roles)
    }

    fn parts(mut cell: Cell, device_bytes: u64) -> Vec<(u64, u64)> {
        cell.divide(device_bytes);
        let once = cell.clone();
        cell.divide(device_bytes);
        assert_eq!(cell, once, "a divided cell stays as it is");
        let spans = cell.roles.iter().map(|role| role.workload.span);
        spans.map(|span| (span.start_bytes, span.bytes.expect("a part"))).collect()
    }

    #[test]
    fn roles_that_keep_apart_share_the_span() {
        const MIB: u64 = 1 << 20;
        let all = readers(3, Span::default());
        assert_eq!(parts(all, 10 * MIB), [(0, 3 * MIB), (3 * MIB, 3 * MIB), (6 * MIB, 3 * MIB)]);
        let some = readers(2, Span { start_bytes: 4096, bytes: Some(4 * MIB) });
        assert_eq!(parts(some, 100 * MIB), [(4096, 2 * MIB), (4096 + 2 * MIB, 2 * MIB)]);
    }

    #[test]
    fn a_small_device_gives_small_parts() {
        let some = readers(2, Span { start_bytes: 0, bytes: Some(1 << 30) });
        assert_eq!(parts(some, 65_536), [(0, 32_768), (32_768, 32_768)]);
    }
}
