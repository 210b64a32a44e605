//! What one client asks of a device.

use serde::{Deserialize, Serialize};

use super::Percent;

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
    #[serde(default = "one")]
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

/// How random places are spread over the span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Every place as likely as any other.
    #[default]
    Uniform,
    /// Place number k of a fixed shuffle with a chance in proportion to k^-theta.
    Zipf {
        /// Above 0 and other than 1; 0.99 is YCSB's, 1.2 fio's.
        theta: f64,
    },
    /// The k-th place of a fixed shuffle by a Pareto distribution, as fio's: a share `h` of the places takes 1 - `h` of the
    /// requests (0.2: the 80/20 rule).
    Pareto {
        /// Above 0 and below 1.
        h: f64,
    },
    /// A share of the requests goes to a share of the span, at its start (vdbench's hot band, fio's zones).
    Hot {
        /// How many of the requests.
        requests: Percent,
        /// To how much of the span; not 0.
        span: Percent,
    },
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

fn one() -> u32 {
    1
}
