//! What is to be measured, as values: a [`Suite`] of steps, whose cells have roles, each of which puts a [`Workload`]
//! on the storage.
//!
//! ```text
//!   Suite ── Step ── Cell ── Role ── Workload ── Access
//!   vmware4  measure  rand-8k  client 0  depth 64  8 KiB, 70 % reads, 100 % random, aligned to 512 B
//! ```
//!
//! A cell whose way to the storage is made for it too (a link, a distance, a session's keys) has a [`Setting`].
//!
//! Nothing here runs anything. Suites are written as data (`suites/*.toml`), read from Iometer's files, or made of
//! options ([`Sweep`]), and all of them are these values; a record of results holds the suite that it is of, so that it can be
//! understood, shown and repeated without the program that made it.

use derive_more::Display;
use model::{Direction, Keys};
use serde::{Deserialize, Serialize};

mod distribution;
mod sweep;
mod text;

pub use distribution::Distribution;
pub use sweep::Sweep;
pub use text::{Blocks, BlocksList, Rate, WorkloadKind, load_words, pace};

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
    #[serde(default = "one_session")]
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

fn one_session() -> u16 {
    1
}

/// Requests of one or several kinds, so many at once or so many a second.
///
/// The rules are Iometer's, since most of the published tests were made with it (`IOTargetDisk::Seek`,
/// `Grunt::Do_IOs`): for each burst a line of [`Workload::accesses`] is drawn by its share; each request goes to a random place
/// with the chance [`Access::random`], and otherwise follows the last request, whatever that was; its start is rounded
/// up to [`Access::align`]; if it would pass the end of the span it goes to the start of it; and it reads with the
/// chance [`Access::read`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// The kinds of requests. At least one; their shares make 100 %.
    pub accesses: Vec<Access>,
    /// Requests under way at once: exactly so many in a closed loop, at most so many in an open one. At least 1.
    pub depth: u32,
    /// When the next request is made.
    #[serde(default)]
    pub pace: Pace,
    /// The part of the device that is used.
    #[serde(default)]
    pub span: Span,
    /// How random places are spread over the span.
    #[serde(default)]
    pub distribution: Distribution,
    /// What is written, and whether reads are checked.
    #[serde(default)]
    pub data: Data,
    /// Every so many requests all that are under way come to their end before the next: what Iometer's "test connection
    /// rate" does to a disk ("transactions per connection").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_after: Option<u32>,
    /// Where places, kinds and data come from: the same seed gives the same requests.
    #[serde(default)]
    pub seed: u64,
}

/// One line of an access specification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// The length of a request in bytes, a multiple of the device's logical block.
    pub block_bytes: u32,
    /// How many of the requests are of this line.
    pub share: Percent,
    /// How many of them read; the others write.
    pub read: Percent,
    /// How many of them go to a random place; the others follow the request before them.
    pub random: Percent,
    /// Where they may start.
    #[serde(default)]
    pub align: Align,
    /// Requests made without a pause, and of this line; 1 or more.
    #[serde(default = "one_request")]
    pub burst: u32,
    /// The pause before each burst, in milliseconds; what is under way goes on meanwhile.
    #[serde(default)]
    pub delay_ms: u32,
}

/// Where a request may start, counted from the start of the span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Align {
    /// At multiples of its own length.
    #[default]
    Natural,
    /// At any logical block (Iometer's 0, "sector boundaries").
    Block,
    /// At multiples of so many bytes.
    Bytes(u32),
}

/// When the next request is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// When one has ended (closed loop): what slows one request down keeps others from being made.
    #[default]
    Closed,
    /// So many a second in all sessions together, at equal distances, whatever the device does (open loop).
    Constant {
        /// Requests a second.
        per_second: f64,
    },
    /// So many a second in all sessions together on average, independent of each other: exponentially distributed
    /// distances (open loop).
    Poisson {
        /// Requests a second.
        per_second: f64,
    },
}

/// A part of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Where it starts, in bytes.
    #[serde(default)]
    pub start_bytes: u64,
    /// How long it is; to the end of the device if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// What is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// Numbers that nothing can compress and that differ from request to request.
    #[default]
    Random,
    /// Zeros, as the `dd` tests of document 000 wrote: storage that compresses or knows holes looks faster than it is.
    Zeros,
    /// Every block says where it belongs, its generation and a checksum, and every read of a block that was written is
    /// checked ([`crate::pattern`]).
    Stamped,
}

impl Pace {
    /// Whether requests are made whether others have ended or not.
    pub fn is_open(self) -> bool {
        self.per_second().is_some()
    }

    /// The rate of an open loop.
    pub fn per_second(self) -> Option<f64> {
        match self {
            Pace::Closed => None,
            Pace::Constant { per_second } | Pace::Poisson { per_second } => Some(per_second),
        }
    }
}

impl Workload {
    /// One kind of request in a closed loop over the whole device.
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
            seed: 1,
        }
    }

    /// Whether any request may write.
    pub fn writes(&self) -> bool {
        self.accesses.iter().any(|access| access.share > Percent::NONE && access.read < Percent::ALL)
    }

    /// Whether any request may read.
    pub fn reads(&self) -> bool {
        self.accesses.iter().any(|access| access.share > Percent::NONE && access.read > Percent::NONE)
    }

    /// The longest request.
    pub fn block_bytes_max(&self) -> u32 {
        self.accesses.iter().map(|access| access.block_bytes).max().unwrap_or(0)
    }

    /// The length of a request on average, in bytes.
    pub fn block_bytes_mean(&self) -> f64 {
        let weighed = |access: &Access| f64::from(access.block_bytes) * f64::from(access.share.get()) / 100.0;
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
    /// Nothing.
    pub const NONE: Percent = Percent(0);
    /// Everything.
    pub const ALL: Percent = Percent(100);

    /// `None` above 100.
    pub fn new(percent: u8) -> Option<Percent> {
        (percent <= 100).then_some(Percent(percent))
    }

    /// The number.
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

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// Time before anything is counted, in seconds.
    #[serde(default)]
    pub warm_up_s: f64,
    /// Counted for at least so long, in seconds.
    pub min_s: f64,
    /// And at most so long.
    pub max_s: f64,
    /// What ends it between the two.
    pub rule: Rule,
}

/// What ends a run between its shortest and its longest time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Nothing: it takes the longest time.
    Time,
    /// The mean rate is known: half of its 95 % confidence interval, corrected for autocorrelation, is at most so many
    /// percent of it.
    Confidence {
        /// In percent of the mean.
        percent: f64,
    },
    /// So much was moved, in bytes. What is left is not counted: it ends with the request that reaches it.
    Bytes {
        /// How much.
        bytes: u64,
    },
    /// So many requests have ended.
    Requests {
        /// How many.
        requests: u64,
    },
}

impl Stop {
    /// A fixed time.
    pub fn after(seconds: f64) -> Stop {
        Stop { warm_up_s: 0.0, min_s: seconds, max_s: seconds, rule: Rule::Time }
    }
}

// Between which ends a cell is measured, where whoever measures makes the way to the storage too: a lab's link and
// distance, TCP's window, and what a session agrees on.

/// The way to the storage that a cell is measured over. Two cells with the same setting need nothing made anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Which of a suite's questions the cell helps to answer.
    pub part: Part,
    /// How the data go.
    pub way: Way,
    /// What the link carries in each direction, headers and gaps of Ethernet included, in bits a second.
    pub link_bits_per_s: f64,
    /// The time there and back that the link adds, in milliseconds.
    pub rtt_ms: f64,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// The share of packets that the link loses, from 0 to 1.
    #[serde(default)]
    pub loss: f64,
    /// What TCP may have on the way in each direction of a connection, in bytes; as much as the system likes if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_window_bytes: Option<u32>,
    /// TCP connections of each session.
    pub connections: u16,
    /// Sessions, each of which has as many requests under way as the workload says.
    pub sessions: u16,
    /// Commands that the target lets be under way in a session; its own choice if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_window: Option<u32>,
    /// TCP's congestion control at both ends: `cubic`, `bbr`, `reno`.
    pub congestion: String,
}

/// A question that a WAN suite asks: a table of document 002, or an axis that it names and does not print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Request size by outstanding commands by round trip, for reads and both ways of writing.
    Wan,
    /// TCP alone, with a small and with a large window.
    Tcp,
    /// The same as [`Part::Wan`] on Gigabit Ethernet without a delay.
    Lan,
    /// Connections of a session.
    Connections,
    /// Sessions.
    Sessions,
    /// The largest packet.
    Mtu,
    /// The target's command window.
    CommandWindow,
    /// TCP's congestion control, without and with loss.
    Congestion,
}

/// How data cross the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Plain TCP without iSCSI.
    Tcp {
        /// From the initiator to the target; the other way if not.
        to_target: bool,
    },
    /// SCSI reads.
    Reads,
    /// Writes whose data all wait to be asked for (`InitialR2T=Yes`, `ImmediateData=No`): document 002's
    /// "FirstBurstLength = 0".
    MostSolicited,
    /// Writes whose data all come unasked (`InitialR2T=No`, `ImmediateData=Yes`, FirstBurstLength at least the request).
    MostUnsolicited,
}

impl Way {
    /// Which way that is for the data.
    pub fn direction(self) -> Direction {
        match self {
            Way::Reads | Way::Tcp { to_target: false } => Direction::Read,
            Way::MostSolicited | Way::MostUnsolicited | Way::Tcp { to_target: true } => Direction::Write,
        }
    }

    /// What is offered at login, the best of it: bursts of 16 MiB and eight R2Ts at once. `None` for plain TCP.
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

/// The longest request of document 002, which must fit into a first burst.
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

    #[test]
    fn more_than_everything_is_no_share() {
        assert_eq!(Percent::new(101), None);
        assert_eq!(Percent::new(100), Some(Percent::ALL));
    }
}
