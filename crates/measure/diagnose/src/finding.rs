//! The conclusions from the measurements.

use model::Term;
use serde::{Deserialize, Serialize};

use crate::{Evidence, LoadRun, confirmed};

/// A complete diagnosis: the measurements, the findings, and the verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The measurements.
    pub evidence: Evidence,
    /// The model's account of each load, in the same order.
    pub explained: Vec<Explained>,
    /// The findings, the greatest gain first; at most three.
    pub findings: Vec<Finding>,
    /// The one sentence.
    pub verdict: Verdict,
}

/// The model's account of a load; zeros for one that moved nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// The median of the measurements, in bytes a second.
    pub bytes_per_s: f64,
    /// The model's prediction without a change, in bytes a second.
    pub modelled_per_s: f64,
    /// Every limit separately, in bytes a second, the tightest first.
    pub terms: Vec<(Term, f64)>,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// The most affected load: its index in [`Evidence::loads`].
    pub load: usize,
    /// The evidence, in sentences with numbers.
    pub because: Vec<String>,
    /// The expected gain from a fix.
    pub gain: Gain,
    /// The remedies, each for another system or place; the most likely one first.
    pub remedies: Vec<Remedy>,
    /// The client-side change to test it, if it can be tested from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Change>,
}

/// The gain from a fix: the new rate over the old one, 1.17 for 17 % more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// By the model. Infinite gains (nothing works at all) are represented as `None`.
    pub predicted: Option<f64>,
    /// The range from here to `high` covers measurement errors.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// The result of a test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Confirmed>,
}

/// The result of testing a change: alternating rounds with it and without.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Confirmed {
    /// The median of the ratios of adjacent rounds, with the change and without.
    pub ratio: f64,
    /// The 95 % interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Confirmed {
    /// Whether the change makes a statistically significant improvement.
    pub fn brings(&self) -> bool {
        self.low > 1.0
    }

    /// Whether the change makes hardly any difference: the finding was not the cause.
    pub fn brings_nothing(&self) -> bool {
        self.high < GAIN_MIN && !self.brings()
    }
}

/// A gain that is worth the effort, and exceeds a benchmark's own scatter.
pub(super) const GAIN_MIN: f64 = 1.15;

/// A setting to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remedy {
    /// The place of the setting.
    pub at: Where,
    /// The setting as written there, or an instruction.
    pub change: String,
}

/// The place of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Where {
    /// The URL given to `diagnose`.
    Url,
    /// `/etc/iscsi/iscsid.conf` of open-iscsi, or `iscsiadm -m node -o update`.
    OpenIscsi,
    /// Windows' initiator: registry or PowerShell.
    Windows,
    /// ESXi: `esxcli iscsi`.
    Esxi,
    /// This machine's kernel: `sysctl`, `ip`, `ethtool`.
    Kernel,
    /// The network between.
    Network,
    /// The configuration file of Linerate's target.
    Linerate,
    /// LIO: `targetcli`.
    Lio,
    /// tgt: `tgtadm` or `targets.conf`.
    Tgt,
    /// Any other target.
    Target,
    /// The NBD server.
    Server,
    /// Linux' `nbd-client`.
    NbdClient,
    /// libnbd's programs: `nbdcopy`.
    Nbdcopy,
    /// The program that uses the storage.
    Application,
}

/// A change on the client: keys of the URL, and of the load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Keys of the URL with their new values; `tls` with `off` stands for `nbd://` instead of `nbds://`.
    pub settings: Vec<(String, String)>,
    /// Another depth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Another length of requests, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u32>,
}

/// The one sentence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The first finding limits the path.
    HeldBack,
    /// Nothing is wrong: the path reaches this share of a limit that is expensive to change.
    Fine {
        /// The limit, as in [`Explained::terms`].
        term: Term,
        /// The share that was reached: 0.97.
        share: f64,
    },
    /// It is slower than its layers predict, by this share of the time, and no measurement explains it.
    NotKnown {
        /// 0.3: thirty percent of the time is unexplained.
        unexplained: f64,
    },
    /// Nothing was found, but the rounds of a load differ too much for a conclusion.
    Uncertain {
        /// The 95 % interval of its rate, as a share of the median: 1.3 for ±130 %.
        interval: f64,
    },
}

// The causes that a diagnosis can find.

/// A cause of slowness that can be fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The load's queue depth is too low for the distance.
    Depth,
    /// The target's command window, or its queue, allows fewer outstanding commands than requested.
    CommandWindow,
    /// A TCP window below the bandwidth-delay product of the path.
    TcpWindow,
    /// A write waits for an R2T before its first data: InitialR2T, ImmediateData, FirstBurstLength.
    Solicitation,
    /// A write repeatedly waits for R2Ts: MaxBurstLength, MaxOutstandingR2T.
    SmallBursts,
    /// Data travels in many short PDUs: MaxRecvDataSegmentLength.
    SmallSegments,
    /// Digests use the time of a saturated CPU.
    Digests,
    /// The link runs below its rated speed.
    LinkRate,
    /// Long packets are dropped silently: an MTU that differs along the path.
    PathMtu,
    /// Packets are lost.
    Loss,
    /// One of several connections uses a slower path.
    SlowPath,
    /// The storage behind the target is slow.
    Medium,
    /// Making writes durable is slow.
    Flush,
    /// Writes that are shorter than the physical block, or cross its ends: each is a read-modify-write.
    Misalignment,
    /// The target has no CPU time left.
    TargetCpu,
    /// This machine has no CPU time left.
    ClientCpu,
    /// Delayed acknowledgements interact with Nagle's algorithm.
    DelayedAck,
    /// One NBD connection is slower than several.
    Connections,
    /// Encryption uses the time of a saturated CPU.
    Tls,
}

// The same load over a session with a change.

/// The same load over a session with a change, in rounds adjacent to those without it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// The change in the session.
    pub otherwise: Otherwise,
    /// Bytes a second without the change and with it, round by round.
    pub pairs: Vec<(f64, f64)>,
    /// The first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
}

/// Changes of an NBD session to test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Otherwise {
    /// This number of connections.
    Connections(u16),
    /// No TLS.
    Plain,
}

impl LoadRun {
    /// The result of this change, if it was tested often enough.
    pub(super) fn tried(&self, is: fn(Otherwise) -> bool) -> Option<(&Beside, Confirmed)> {
        let beside = self.beside.iter().find(|beside| is(beside.otherwise))?;
        Some((beside, confirmed(&beside.pairs)?))
    }

    /// The gain from several connections, if tested.
    pub(super) fn by_connections(&self) -> Option<f64> {
        self.tried(Otherwise::is_connections).map(|(_, tried)| tried.ratio)
    }
}

impl Beside {
    /// The median rates without the change and with it, in bytes a second.
    pub fn medians(&self) -> (f64, f64) {
        let median =
            |of: fn(&(f64, f64)) -> f64| stats::median(&self.pairs.iter().map(of).collect::<Vec<_>>());
        (median(|pair| pair.0), median(|pair| pair.1))
    }
}

impl Otherwise {
    pub(super) fn is_connections(self) -> bool {
        matches!(self, Otherwise::Connections(_))
    }

    pub(super) fn is_plain(self) -> bool {
        self == Otherwise::Plain
    }

    /// The change, as keys of the URL.
    pub(super) fn change(self) -> Change {
        let (key, value) = match self {
            Otherwise::Connections(count) => ("connections", count.to_string()),
            Otherwise::Plain => ("tls", "off".to_owned()),
        };
        Change { settings: vec![(key.to_owned(), value)], ..Change::default() }
    }
}
