//! Measurement plans as values: a [`Suite`] has steps, a step has cells, and a cell has roles. Each role runs
//! a [`Workload`] on the storage.
//!
//! ```text
//!   Suite ── Step ── Cell ── Role ── Workload ── Access
//!   vmware4  measure  rand-8k  client 0  depth 64  8 KiB, 70 % reads, 100 % random, aligned to 512 B
//! ```
//!
//! A cell that also configures its path to the storage (a link, a distance, a session's keys) has a
//! [`Setting`].
//!
//! This module contains no I/O. Suites come from data files (`suites/*.toml`), Iometer's files, or command
//! line options ([`Sweep`]). A record of results contains its suite, so it can be understood, shown and
//! repeated without the program that made it.

use derive_more::Display;
use model::{Direction, Keys};
use serde::{Deserialize, Serialize};

mod distribution;
mod sweep;
mod text;

pub use distribution::Distribution;
pub use sweep::Sweep;
pub use text::{Blocks, BlocksList, Rate, WorkloadKind, load_words, pace};

/// A named test: `vmware4`, `pts`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suite {
    /// The name on the command line: lower case, digits and `-`.
    pub name: String,
    /// A heading for reports.
    pub title: String,
    /// The purpose and the source of the suite, in a few sentences.
    pub about: String,
    /// The number of the source document whose tests the suite repeats, such as `001`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// Assumptions where the source gives no value; one sentence each.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// The steps, in the order of execution.
    pub steps: Vec<Step>,
}

/// A part of a suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Deallocate the whole span (with UNMAP, or by writing zeros where UNMAP is not possible): SNIA's purge.
    Purge,
    /// Write the span from start to end, `passes` times. This serves as SNIA's workload-independent
    /// preconditioning, or creates the file that a test reads.
    Fill {
        /// The length of each request.
        block_bytes: u32,
        /// The queue depth.
        depth: u32,
        /// Number of passes.
        passes: u32,
    },
    /// Run cells.
    Measure {
        /// The condition that ends each run, unless a cell overrides it.
        stop: Stop,
        /// The order, and the number of repeats.
        order: Order,
        /// The cells; their names are unique in the suite.
        cells: Vec<Cell>,
    },
}

/// The order and the number of the runs of a step's cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Run each cell once, in the given order: for tests in which the order matters.
    Once,
    /// Run all cells repeatedly, in an order that changes from round to round, so that drift of the machine
    /// affects all cells alike. The step ends after `repeats_max` rounds, or earlier, after at least
    /// `repeats_min` rounds, if all medians are precise enough.
    Interleaved {
        /// Minimum number of rounds.
        repeats_min: u32,
        /// Maximum number of rounds.
        repeats_max: u32,
    },
    /// Run all cells in their order, in rounds, until the tracked cell is steady by SNIA's rule over the last
    /// five rounds. The rule: the range is at most 20 % of the mean, and the fitted line rises or falls by at
    /// most 10 % of the mean. Only these five rounds count as results.
    SteadyRounds {
        /// The name of the cell that is tracked.
        tracked: String,
        /// Maximum number of rounds.
        rounds_max: u32,
    },
}

/// One measurement: a point of a curve, a bar of a chart, a row of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// A name that is unique in the suite, such as `read-4KiB`.
    pub name: String,
    /// The curve or group to which the cell belongs, such as `read`.
    pub series: String,
    /// The concurrent roles; at least one.
    pub roles: Vec<Role>,
    /// The condition that ends each run, if it differs from the step's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// The path to the storage, if the cell configures it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<Box<Setting>>,
}

/// The work of one client in a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Role {
    /// The name, if the cell has several roles: `reader`, `VM01`.
    pub name: String,
    /// The client's number, from 0. A client is either a machine (an agent), or a local thread with separate
    /// sessions.
    pub client: u16,
    /// The number of sessions, each with [`Workload::depth`] outstanding requests.
    #[serde(default = "one_session")]
    pub sessions: u16,
    /// If set, requests go through a cache that reads this number of bytes ahead and gathers writes, as they
    /// do for programs that use files. The cache is the page cache for a file or block device, and a model of
    /// it (`block::Buffered`) for a LUN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ahead_bytes: Option<u32>,
    /// Whether the role uses a separate part of the span ([`Cell::divide`]), like a machine with its own
    /// disk. If two clients read the same part, one of them may find the other's data in a cache.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
    /// The requests.
    pub workload: Workload,
}

impl Suite {
    /// Returns all cells, in order.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.steps.iter().flat_map(|step| match step {
            Step::Measure { cells, .. } => cells.as_slice(),
            Step::Purge | Step::Fill { .. } => &[],
        })
    }

    /// Returns whether any step writes.
    pub fn writes(&self) -> bool {
        let beside = self
            .steps
            .iter()
            .any(|step| !matches!(step, Step::Measure { .. }));
        beside
            || self
                .cells()
                .flat_map(|cell| &cell.roles)
                .any(|role| role.workload.writes())
    }

    /// Returns the maximum total time of all cells, in seconds. Purges and fills are not included, since
    /// their time is unknown.
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

    /// Returns the number of clients: the highest client number plus one.
    pub fn clients(&self) -> u16 {
        self.cells()
            .flat_map(|cell| &cell.roles)
            .map(|role| role.client.saturating_add(1))
            .max()
            .unwrap_or(1)
    }
}

impl Role {
    /// Creates the role of a client that runs this workload in one session without a cache.
    pub fn new(name: impl Into<String>, client: u16, workload: Workload) -> Role {
        Role {
            name: name.into(),
            client,
            sessions: 1,
            read_ahead_bytes: None,
            apart: false,
            workload,
        }
    }

    /// Returns the requests of the role alone: without the client's identity, the seed, and the part of the
    /// storage. The part is no property of the requests, because it follows from the size of the storage
    /// where a workload uses all of it.
    pub fn requests(&self) -> Role {
        let workload = Workload {
            seed: 0,
            span: Span::default(),
            ..self.workload.clone()
        };
        Role {
            name: String::new(),
            client: 0,
            apart: false,
            workload,
            ..self.clone()
        }
    }
}

impl Order {
    /// Returns the maximum number of rounds.
    pub fn rounds_max(&self) -> u32 {
        match self {
            Order::Once => 1,
            Order::Interleaved { repeats_max, .. } => *repeats_max,
            Order::SteadyRounds { rounds_max, .. } => *rounds_max,
        }
    }
}

impl Cell {
    /// Creates a cell without its own stop and setting.
    pub fn new(name: impl Into<String>, series: impl Into<String>, roles: Vec<Role>) -> Cell {
        Cell {
            name: name.into(),
            series: series.into(),
            roles,
            stop: None,
            setting: None,
        }
    }

    /// Returns the condition that ends a run of this cell, in a step with the given stop.
    pub fn stop(&self, step: Stop) -> Stop {
        self.stop.unwrap_or(step)
    }

    /// Returns whether the results of both cells can be compared: the same clients make the same requests.
    /// The span and the alignment of the requests may differ, because a comparison can be about their effect.
    pub fn is_comparable(&self, other: &Cell) -> bool {
        let requests = |cell: &Cell| -> Vec<(u16, Role)> {
            let of_role = |role: &Role| {
                let mut requests = role.requests();
                requests
                    .workload
                    .accesses
                    .iter_mut()
                    .for_each(|access| access.align = Align::Natural);
                (role.client, requests)
            };
            cell.roles.iter().map(of_role).collect()
        };
        requests(self) == requests(other)
    }

    /// Assigns a part of the span to each role with `apart`, on a device of `device_bytes`. The parts are
    /// equal, in the order of the roles. Their length is a multiple of 1 MiB if it is at least 1 MiB, and
    /// otherwise of 4 KiB.
    ///
    /// Roles that write are also kept apart if one of them would verify another one's data.
    pub fn divide(&mut self, device_bytes: u64) {
        if self.verifies_foreign_data() {
            self.roles
                .iter_mut()
                .filter(|role| role.workload.writes())
                .for_each(|role| role.apart = true);
        }
        let parts = self.roles.iter().filter(|role| role.apart).count().max(1) as u64;
        for (index, role) in self.roles.iter_mut().filter(|role| role.apart).enumerate() {
            let span = &mut role.workload.span;
            let left = device_bytes.saturating_sub(span.start_bytes);
            let part = span.bytes.unwrap_or(left).min(left) / parts;
            let step = if part >= 1 << 20 { 1 << 20 } else { 4096 };
            let part = part - part % step;
            *span = Span {
                start_bytes: span.start_bytes + part * index as u64,
                bytes: Some(part),
            };
            role.apart = false;
        }
    }

    /// Returns whether a role verifies blocks that another role overwrites. A role records only its own
    /// writes, so it would report the other's data as wrong.
    pub fn verifies_foreign_data(&self) -> bool {
        let part = |role: &Role| {
            let Span { start_bytes, bytes } = role.workload.span;
            (
                start_bytes,
                bytes.map_or(u64::MAX, |bytes| start_bytes.saturating_add(bytes)),
            )
        };
        let overlap = |one: &Role, other: &Role| {
            let ((start, end), (other_start, other_end)) = (part(one), part(other));
            start < other_end && other_start < end
        };
        let writers: Vec<&Role> = self
            .roles
            .iter()
            .filter(|role| role.workload.writes())
            .collect();
        let mut pairs = writers
            .iter()
            .enumerate()
            .flat_map(|(at, one)| writers[..at].iter().map(move |other| (one, other)));
        pairs.any(|(one, other)| {
            let verified = [one, other]
                .iter()
                .any(|role| role.workload.data == Data::Stamped);
            verified && overlap(one, other)
        })
    }

    /// Returns whether all runs of the cell take the same time.
    pub fn takes_fixed_time(&self, step: Stop) -> bool {
        matches!(self.stop(step).rule, Rule::Time)
    }
}

fn one_session() -> u16 {
    1
}

/// One or several kinds of requests, with a fixed queue depth or a fixed rate.
///
/// The rules are Iometer's (`IOTargetDisk::Seek`, `Grunt::Do_IOs`), since most of the published tests were
/// run with it:
///
/// - For each burst, a line of [`Workload::accesses`] is drawn by its share.
/// - Each request goes to a random offset with probability [`Access::random`]; otherwise it starts at the end
///   of the previous request, even if that belongs to another line.
/// - The start is rounded up to a multiple of [`Access::align`]. If the request would then extend past the
///   end of the span, it goes to the start of the span.
/// - The request is a read with probability [`Access::read`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// The kinds of requests. There is at least one; their shares add up to 100 %.
    pub accesses: Vec<Access>,
    /// The queue depth, 1 or more: exact in a closed loop, the maximum in an open loop.
    pub depth: u32,
    /// The timing of requests.
    #[serde(default)]
    pub pace: Pace,
    /// The part of the device that is used.
    #[serde(default)]
    pub span: Span,
    /// Distribution of random offsets over the span.
    #[serde(default)]
    pub distribution: Distribution,
    /// The content of writes, and whether reads are checked.
    #[serde(default)]
    pub data: Data,
    /// If set, all outstanding requests must complete after this number of requests, before the next one
    /// starts. This is the effect of Iometer's "test connection rate" on a disk ("transactions per
    /// connection").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_after: Option<u32>,
    /// The guarantee that writes request.
    #[serde(default, skip_serializing_if = "Durable::is_cached")]
    pub durable: Durable,
    /// The seed of offsets, kinds and data. The same seed produces the same requests.
    #[serde(default)]
    pub seed: u64,
}

/// One line of an access specification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// The length of a request in bytes, a multiple of the device's logical block.
    pub block_bytes: u32,
    /// The share of all requests that this line produces.
    pub share: Percent,
    /// The share of reads; the other requests are writes.
    pub read: Percent,
    /// The share of requests to random offsets; the other requests start at the end of the previous request.
    pub random: Percent,
    /// The alignment of the start of requests.
    #[serde(default)]
    pub align: Align,
    /// The number of consecutive requests of this line without a pause, 1 or more.
    #[serde(default = "one_request")]
    pub burst: u32,
    /// The pause before each burst, in milliseconds. Outstanding requests continue during the pause.
    #[serde(default)]
    pub delay_ms: u32,
}

/// The possible start offsets of a request, relative to the span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Align {
    /// Multiples of the request's length.
    #[default]
    Natural,
    /// Multiples of the logical block length (Iometer's 0, "sector boundaries").
    Block,
    /// Multiples of this number of bytes.
    Bytes(u32),
}

/// The timing of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// Closed loop: send the next request when one completes. A slow request delays later ones.
    #[default]
    Closed,
    /// Open loop: send requests at fixed intervals, regardless of completions. The rate applies to all
    /// sessions together.
    Constant {
        /// Requests per second.
        per_second: f64,
    },
    /// Open loop: send requests at independent, exponentially distributed intervals. The average rate applies
    /// to all sessions combined.
    Poisson {
        /// Requests per second.
        per_second: f64,
    },
}

/// A part of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The start, in bytes.
    #[serde(default)]
    pub start_bytes: u64,
    /// The length, in bytes; `None` extends the span to the end of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// The content of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// Incompressible data that differs from request to request.
    #[default]
    Random,
    /// Zeros, as written by the `dd` tests of document 000. Storage that compresses data or detects zeros
    /// appears faster than it is.
    Zeros,
    /// Random data of which this share consists of zeros, in each 4 KiB and in each shorter request. This
    /// share compresses away.
    Compressible(Percent),
    /// Every block contains its address, its generation and a checksum. Reads of blocks that this run has
    /// written are checked ([`crate::pattern`]).
    Stamped,
}

/// The guarantee that writes request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durable {
    /// None: the storage may cache writes.
    #[default]
    Cached,
    /// Every write is on stable storage when it completes (FUA), as with `O_DSYNC`.
    Fua,
    /// A flush follows after this number of writes of a session, 1 or more, and counts as part of the last of
    /// them, as `fsync` of a database.
    FlushAfter(u32),
}

impl Durable {
    /// Returns whether writes request no guarantee.
    pub fn is_cached(&self) -> bool {
        *self == Durable::Cached
    }
}

impl Pace {
    /// Returns whether requests are sent independently of completions.
    pub fn is_open(self) -> bool {
        self.per_second().is_some()
    }

    /// Returns the rate of an open loop, or `None` for a closed loop.
    pub fn per_second(self) -> Option<f64> {
        match self {
            Pace::Closed => None,
            Pace::Constant { per_second } | Pace::Poisson { per_second } => Some(per_second),
        }
    }
}

impl Workload {
    /// Creates a workload with one kind of request, in a closed loop over the whole device.
    pub fn simple(block_bytes: u32, depth: u32, read: Percent, random: Percent) -> Workload {
        let access = Access {
            block_bytes,
            share: Percent::ALL,
            read,
            random,
            align: Align::Natural,
            burst: 1,
            delay_ms: 0,
        };
        Workload {
            accesses: vec![access],
            depth,
            pace: Pace::Closed,
            span: Span::default(),
            distribution: Distribution::Uniform,
            data: Data::Random,
            drain_after: None,
            durable: Durable::Cached,
            seed: 1,
        }
    }

    /// Returns whether any request may write.
    pub fn writes(&self) -> bool {
        self.accesses
            .iter()
            .any(|access| access.share > Percent::NONE && access.read < Percent::ALL)
    }

    /// Returns whether any request may read.
    pub fn reads(&self) -> bool {
        self.accesses
            .iter()
            .any(|access| access.share > Percent::NONE && access.read > Percent::NONE)
    }

    /// Returns the length of the longest request, in bytes.
    pub fn block_bytes_max(&self) -> u32 {
        self.accesses
            .iter()
            .map(|access| access.block_bytes)
            .max()
            .unwrap_or(0)
    }

    /// Returns the average length of a request, in bytes.
    pub fn block_bytes_mean(&self) -> f64 {
        let weighed =
            |access: &Access| f64::from(access.block_bytes) * f64::from(access.share.get()) / 100.0;
        self.accesses.iter().map(weighed).sum()
    }
}

fn one_request() -> u32 {
    1
}

/// A share in percent: 0 to 100.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Percent(u8);

impl Percent {
    /// 0 %.
    pub const NONE: Percent = Percent(0);
    /// 100 %.
    pub const ALL: Percent = Percent(100);

    /// Creates a percentage; `None` if the value is above 100.
    pub fn new(percent: u8) -> Option<Percent> {
        (percent <= 100).then_some(Percent(percent))
    }

    /// Returns the percentage as a number from 0 to 100.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl TryFrom<u8> for Percent {
    type Error = &'static str;

    fn try_from(percent: u8) -> Result<Percent, &'static str> {
        Percent::new(percent).ok_or("a share is 0 to 100")
    }
}

impl From<Percent> for u8 {
    fn from(percent: Percent) -> u8 {
        percent.get()
    }
}

/// The condition that ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// The warm-up time, in seconds; requests in this time are not counted.
    #[serde(default)]
    pub warm_up_s: f64,
    /// Minimum counted time, in seconds.
    pub min_s: f64,
    /// Maximum counted time, in seconds.
    pub max_s: f64,
    /// The rule that ends the run between the minimum and the maximum time.
    pub rule: Rule,
}

/// A rule that ends a run between its minimum and its maximum time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// No rule: the run takes the maximum time.
    Time,
    /// The mean rate is precise enough: half of its 95 % confidence interval, corrected for autocorrelation,
    /// is at most this percentage of the mean.
    Confidence {
        /// Half of the confidence interval, in percent of the mean.
        percent: f64,
    },
    /// This number of bytes has been transferred. The run ends with the request that reaches it.
    Bytes {
        /// The number of bytes.
        bytes: u64,
    },
    /// This number of requests has completed.
    Requests {
        /// The number of requests.
        requests: u64,
    },
}

impl Stop {
    /// Creates a stop after a fixed time.
    pub fn after(seconds: f64) -> Stop {
        Stop {
            warm_up_s: 0.0,
            min_s: seconds,
            max_s: seconds,
            rule: Rule::Time,
        }
    }
}

// The path to the storage, for runners that also set up the path: the link and distance of a lab, TCP's
// window, and the negotiated parameters of a session.

/// The path over which a cell accesses the storage. Between two cells with the same setting, the runner does
/// not have to recreate anything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The part of the suite to which the cell belongs.
    pub part: Part,
    /// The direction and kind of the data on the network.
    pub way: Way,
    /// The capacity of the link in each direction, in bits per second, including Ethernet headers and gaps.
    pub link_bits_per_s: f64,
    /// The round-trip time that the link adds, in milliseconds.
    pub rtt_ms: f64,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// The share of packets that the link loses, from 0 to 1.
    #[serde(default)]
    pub loss: f64,
    /// TCP's window in each direction of a connection, in bytes; `None` is the system's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_window_bytes: Option<u32>,
    /// The number of TCP connections of each session.
    pub connections: u16,
    /// The number of sessions, each with the workload's queue depth.
    pub sessions: u16,
    /// The target's command window in a session; `None` is the target's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_window: Option<u32>,
    /// TCP's congestion control algorithm on both ends: `cubic`, `bbr`, `reno`.
    pub congestion: String,
}

/// A question that a WAN suite answers: one table of document 002, or one parameter that the document
/// mentions without results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Request size, outstanding commands and round-trip time, for reads and for both kinds of writes.
    Wan,
    /// TCP without iSCSI, with a small and with a large window.
    Tcp,
    /// Like [`Part::Wan`], on Gigabit Ethernet without added delay.
    Lan,
    /// Number of connections of a session.
    Connections,
    /// Number of sessions.
    Sessions,
    /// Size of the largest packet.
    Mtu,
    /// Size of the target's command window.
    CommandWindow,
    /// TCP's congestion control, without and with loss.
    Congestion,
}

/// The direction and kind of the data on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Plain TCP without iSCSI.
    Tcp {
        /// True if the initiator sends the data, false if the target sends it.
        to_target: bool,
    },
    /// SCSI reads.
    Reads,
    /// Writes with only solicited data (`InitialR2T=Yes`, `ImmediateData=No`): document 002's
    /// "FirstBurstLength = 0".
    MostSolicited,
    /// Writes with only unsolicited data (`InitialR2T=No`, `ImmediateData=Yes`, FirstBurstLength at least as
    /// long as the request).
    MostUnsolicited,
}

impl Way {
    /// Returns the direction of the data.
    pub fn direction(self) -> Direction {
        match self {
            Way::Reads | Way::Tcp { to_target: false } => Direction::Read,
            Way::MostSolicited | Way::MostUnsolicited | Way::Tcp { to_target: true } => {
                Direction::Write
            }
        }
    }

    /// Returns the keys to offer at login, with the most favourable values: bursts of 16 MiB and eight
    /// outstanding R2Ts. Returns `None` for plain TCP.
    pub fn keys(self) -> Option<Keys> {
        let asked = match self {
            Way::Tcp { .. } => return None,
            Way::MostSolicited => true,
            Way::Reads | Way::MostUnsolicited => false,
        };
        Some(Keys {
            immediate_data: !asked,
            initial_r2t: asked,
            first_burst_bytes: LONGEST_BYTES,
            max_burst_bytes: 16_776_192, // 2^24 - 1024, as open-iscsi offers it
            outstanding_r2ts: 8,
            target_segment_bytes: LONGEST_BYTES,
            initiator_segment_bytes: LONGEST_BYTES,
            header_digest: false,
            data_digest: false,
        })
    }
}

/// The length of the longest request of document 002. It must fit into a first burst.
const LONGEST_BYTES: u32 = 256 << 10;

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
            workload: Workload {
                span,
                ..Workload::simple(32_768, 1, Percent::ALL, Percent::NONE)
            },
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
        spans
            .map(|span| (span.start_bytes, span.bytes.expect("a part")))
            .collect()
    }

    #[test]
    fn roles_that_keep_apart_share_the_span() {
        const MIB: u64 = 1 << 20;
        let all = readers(3, Span::default());
        assert_eq!(
            parts(all, 10 * MIB),
            [(0, 3 * MIB), (3 * MIB, 3 * MIB), (6 * MIB, 3 * MIB)]
        );
        let some = readers(
            2,
            Span {
                start_bytes: 4096,
                bytes: Some(4 * MIB),
            },
        );
        assert_eq!(
            parts(some, 100 * MIB),
            [(4096, 2 * MIB), (4096 + 2 * MIB, 2 * MIB)]
        );
    }

    #[test]
    fn clients_that_verify_their_writes_share_no_block() {
        const MIB: u64 = 1 << 20;
        let mut cell = readers(2, Span::default());
        for role in &mut cell.roles {
            role.apart = false;
            role.workload.accesses[0].read = Percent::NONE;
        }
        cell.divide(10 * MIB);
        assert_eq!(
            cell.roles[1].workload.span,
            Span::default(),
            "clients may share data that is not verified"
        );
        cell.roles[1].workload.data = Data::Stamped;
        assert_eq!(
            parts(cell.clone(), 10 * MIB),
            [(0, 5 * MIB), (5 * MIB, 5 * MIB)]
        );
        cell.roles[0].workload.accesses[0].read = Percent::ALL;
        cell.divide(10 * MIB);
        assert_eq!(
            cell.roles[1].workload.span,
            Span::default(),
            "a reader overwrites nothing"
        );
    }

    #[test]
    fn a_small_device_gives_small_parts() {
        let some = readers(
            2,
            Span {
                start_bytes: 0,
                bytes: Some(1 << 30),
            },
        );
        assert_eq!(parts(some, 65_536), [(0, 32_768), (32_768, 32_768)]);
    }

    #[test]
    fn more_than_everything_is_no_share() {
        assert_eq!(Percent::new(101), None);
        assert_eq!(Percent::new(100), Some(Percent::ALL));
    }
}
