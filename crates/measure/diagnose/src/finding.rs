//! The conclusions from the measurements: the findings, and the verdict.

use model::Term;
use serde::{Deserialize, Serialize};

use crate::{Evidence, LoadRun, confirmed};

/// A complete diagnosis: the measurements, the findings, and the verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The measurements.
    pub evidence: Evidence,
    /// The model's explanation of each load, in the same order.
    pub explained: Vec<Explained>,
    /// The findings, in order of decreasing gain; at most three.
    pub findings: Vec<Finding>,
    /// The overall verdict.
    pub verdict: Verdict,
}

/// The model's explanation of a load; all zeros for a load that moved no data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// The median measured rate, in bytes per second.
    pub bytes_per_s: f64,
    /// The model's prediction without a change, in bytes per second.
    pub modelled_per_s: f64,
    /// Every limit separately, in bytes per second, the lowest first.
    pub terms: Vec<(Term, f64)>,
}

/// A cause that was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// The index of the most affected load in [`Evidence::loads`].
    pub load: usize,
    /// The evidence, in sentences with numbers.
    pub because: Vec<String>,
    /// The expected gain from a fix.
    pub gain: Gain,
    /// The remedies, each for a different place, the most likely one first.
    pub remedies: Vec<Remedy>,
    /// The change on the client that tests the finding, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Change>,
}

/// The gain from a fix: the ratio of the new rate to the old one, for example 1.17 for 17 % more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The model's prediction; `None` if the gain is infinite because nothing works at all.
    pub predicted: Option<f64>,
    /// The lower end of the predicted range, which covers measurement errors.
    pub low: f64,
    /// The upper end of the predicted range.
    pub high: f64,
    /// The measured gain, if the finding was tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Confirmed>,
}

/// The result of testing a change, in alternating rounds with and without it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Confirmed {
    /// The median of the ratios of adjacent rounds: the rate with the change to the rate without it.
    pub ratio: f64,
    /// The lower end of the 95 % interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Confirmed {
    /// Whether the improvement by the change is statistically significant.
    pub fn brings(&self) -> bool {
        self.low > 1.0
    }

    /// Whether the change makes hardly any difference, so that the finding was not the cause.
    pub fn brings_nothing(&self) -> bool {
        self.high < GAIN_MIN && !self.brings()
    }
}

/// The minimum gain of a finding: worth the effort of a fix, and larger than the scatter of a benchmark.
pub(super) const GAIN_MIN: f64 = 1.15;

/// A setting to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remedy {
    /// Where the setting is.
    pub at: Where,
    /// The setting in the syntax of that place, or an instruction.
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
    /// The network between the two ends.
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
    /// Linux's `nbd-client`.
    NbdClient,
    /// The programs of libnbd: `nbdcopy`.
    Nbdcopy,
    /// The program that uses the storage.
    Application,
}

/// A change on the client: in keys of the URL, or in the load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Keys of the URL with their new values. `tls` with the value `off` stands for `nbd://` instead of
    /// `nbds://`.
    pub settings: Vec<(String, String)>,
    /// The new queue depth, if it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// The new length of requests in bytes, if it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u32>,
}

/// The overall verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The first finding limits the path.
    HeldBack,
    /// No cause was found: the path reaches this share of a limit that is expensive to change.
    Fine {
        /// The limit, as in [`Explained::terms`].
        term: Term,
        /// The achieved share of the limit, for example 0.97.
        share: f64,
    },
    /// The path is slower than its layers predict, and no measurement explains this share of the time.
    NotKnown {
        /// The unexplained share of the time of the least explained load, for example 0.3 for thirty percent.
        unexplained: f64,
        /// The index of this load in [`Evidence::loads`].
        #[serde(default)]
        load: usize,
    },
    /// No cause was found, but the rounds of a load differ too much for a conclusion.
    Uncertain {
        /// The larger half of the 95 % interval of the load's rate, as a share of the median: 1.3 for ±130 %.
        interval: f64,
    },
}

// The causes that a diagnosis can find.

/// A cause of low throughput that can be fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The load's queue depth is too low for the distance.
    Depth,
    /// The target's command window or its queue allows fewer outstanding commands than the client would send.
    CommandWindow,
    /// A TCP window is smaller than the bandwidth-delay product of the path.
    TcpWindow,
    /// A write waits for an R2T before its first data: InitialR2T, ImmediateData, FirstBurstLength.
    Solicitation,
    /// A write waits for R2Ts repeatedly: MaxBurstLength, MaxOutstandingR2T.
    SmallBursts,
    /// Data is transferred in many short PDUs: MaxRecvDataSegmentLength.
    SmallSegments,
    /// Digests use CPU time, and a CPU is saturated.
    Digests,
    /// The link runs below its rated speed.
    LinkRate,
    /// The path silently drops long packets: the MTU differs along the path.
    PathMtu,
    /// Packets are lost.
    Loss,
    /// The delay of packets varies without a load.
    Jitter,
    /// One of several connections uses a slower path.
    SlowPath,
    /// The storage behind the target is slow.
    Medium,
    /// Requests make no progress at times.
    Stalls,
    /// It takes long to make writes durable.
    Flush,
    /// Writes are shorter than a physical block, or cross its boundaries, so each is a read-modify-write.
    Misalignment,
    /// The target does not have enough CPU time.
    TargetCpu,
    /// This machine does not have enough CPU time.
    ClientCpu,
    /// Delayed acknowledgements interact with Nagle's algorithm.
    DelayedAck,
    /// One NBD connection is slower than several.
    Connections,
    /// Encryption uses CPU time, and a CPU is saturated.
    Tls,
}

/// The same load over a session with a change, in rounds that alternate with rounds without the change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// The change in the session.
    pub otherwise: Otherwise,
    /// Bytes per second without and with the change, for each pair of rounds.
    pub pairs: Vec<(f64, f64)>,
    /// The first failure in the changed session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
}

/// A change of an NBD session that can be tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Otherwise {
    /// The session has this number of connections.
    Connections(u16),
    /// The session does not use TLS.
    Plain,
}

impl LoadRun {
    /// Returns the result of this change, if it was tested often enough.
    pub(super) fn tried(&self, is: fn(Otherwise) -> bool) -> Option<(&Beside, Confirmed)> {
        let beside = self.beside.iter().find(|beside| is(beside.otherwise))?;
        Some((beside, confirmed(&beside.pairs)?))
    }

    /// Returns the gain from several connections, if it was tested.
    pub(super) fn by_connections(&self) -> Option<f64> {
        self.tried(Otherwise::is_connections)
            .map(|(_, tried)| tried.ratio)
    }
}

impl Beside {
    /// Returns the median rates without and with the change, in bytes per second.
    pub fn medians(&self) -> (f64, f64) {
        let median = |of: fn(&(f64, f64)) -> f64| {
            stats::median(&self.pairs.iter().map(of).collect::<Vec<_>>())
        };
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

    /// Returns the change as keys of the URL.
    pub(super) fn change(self) -> Change {
        let (key, value) = match self {
            Otherwise::Connections(count) => ("connections", count.to_string()),
            Otherwise::Plain => ("tls", "off".to_owned()),
        };
        Change {
            settings: vec![(key.to_owned(), value)],
            ..Change::default()
        }
    }
}
