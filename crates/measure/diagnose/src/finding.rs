//! What follows from what was measured.

use model::Term;
use serde::{Deserialize, Serialize};

use crate::{Evidence, LoadRun, confirmed};

/// Everything that is told: what was measured, what was found, and the verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// What was measured.
    pub evidence: Evidence,
    /// How far each load of it is explained, in the same order.
    pub explained: Vec<Explained>,
    /// What is wrong, the greatest gain first; at most three.
    pub findings: Vec<Finding>,
    /// The one sentence.
    pub verdict: Verdict,
}

/// How far a load is explained; zeroes for one that moved nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// The median of what was measured, in bytes a second.
    pub bytes_per_s: f64,
    /// What the model makes of the layers, in bytes a second, with everything as it is.
    pub modelled_per_s: f64,
    /// Every limit by itself, in bytes a second, the tightest first.
    pub terms: Vec<(Term, f64)>,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What.
    pub cause: Cause,
    /// Which load suffers most: its place in [`Evidence::loads`].
    pub load: usize,
    /// What shows it, in sentences with figures.
    pub because: Vec<String>,
    /// What mending it would bring.
    pub gain: Gain,
    /// What to change, each for another system or place; the most likely one first.
    pub remedies: Vec<Remedy>,
    /// What to change on our side to try it, if that can be tried from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Change>,
}

/// What mending would bring: the new rate over the old one, 1.17 for 17 % more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// By the model. Infinite gains (nothing goes at all) are given as `None`.
    pub predicted: Option<f64>,
    /// From here to `high` is what measurement errors leave open.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// What came of trying it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Confirmed>,
}

/// What came of trying a change: alternating rounds with it and without.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Confirmed {
    /// The median of the ratios: a round with it over the round without it that was right before or behind.
    pub ratio: f64,
    /// The 95 % interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Confirmed {
    /// Whether it is faster with the change, and not by chance.
    pub fn brings(&self) -> bool {
        self.low > 1.0
    }

    /// Whether it is as fast with the change as without, or hardly faster: what was found was not the cause.
    pub fn brings_nothing(&self) -> bool {
        self.high < GAIN_MIN && !self.brings()
    }
}

/// A gain that is worth anybody's work, and more than a benchmark's own scatter.
pub(super) const GAIN_MIN: f64 = 1.15;

/// What to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remedy {
    /// Where.
    pub at: Where,
    /// The setting as it is written there, or what to do, in a sentence.
    pub change: String,
}

/// Where a setting is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Where {
    /// The URL that was given to us.
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
    /// Our own target's configuration file.
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

/// A change on our side: keys of the URL, and of the load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Keys of the URL with their new values; `tls` with `off` stands for `nbd://` in place of `nbds://`.
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
    /// The first finding holds the path back.
    HeldBack,
    /// Nothing is wrong: the path does so much of what a limit allows that nobody can change cheaply.
    Fine {
        /// The limit, as in [`Explained::terms`].
        term: Term,
        /// The share of it that was reached: 0.97.
        share: f64,
    },
    /// It is slower than its layers say, by this share of the time, and nothing that was measured says why.
    NotKnown {
        /// 0.3: thirty percent of the time is not explained.
        unexplained: f64,
    },
    /// Nothing was found, and the rounds of a load differ so much that nothing can be concluded from that.
    Uncertain {
        /// How far the 95 % interval of its rate reaches, as a share of the median: 1.3 for ±130 %.
        interval: f64,
    },
}

// What can be wrong.

/// A cause of slowness that somebody can do something about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Too few requests at once for the distance, by the load itself.
    Depth,
    /// The target's command window, or its queue, lets fewer commands be under way than are asked.
    CommandWindow,
    /// A TCP window that is smaller than what the path holds.
    TcpWindow,
    /// A write's first data wait to be asked for: InitialR2T, ImmediateData, FirstBurstLength.
    Solicitation,
    /// A write waits for an R2T again and again: MaxBurstLength, MaxOutstandingR2T.
    SmallBursts,
    /// Data travel in many short PDUs: MaxRecvDataSegmentLength.
    SmallSegments,
    /// Digests take the time of a CPU that has none left.
    Digests,
    /// The link runs at less than it is built for.
    LinkRate,
    /// Long packets do not arrive: an MTU that differs along the way, and nobody says so.
    PathMtu,
    /// Packets are lost.
    Loss,
    /// One of several connections has a slower way than the others.
    SlowPath,
    /// The storage behind the target is slow.
    Medium,
    /// Making writes durable is slow.
    Flush,
    /// Writes that are shorter than the physical block, or cross its ends: each is read, changed and written back.
    Misalignment,
    /// The target has no CPU time left.
    TargetCpu,
    /// This machine has no CPU time left.
    ClientCpu,
    /// Acknowledgements are held back and somebody waits for them: Nagle's algorithm against delayed ones.
    DelayedAck,
    /// One connection of NBD gives less than several.
    Connections,
    /// Encryption takes the time of a CPU that has none left.
    Tls,
}

// What a session with something changed made of a load.

/// The same load by a session with something changed, in rounds right before or behind its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// What was changed.
    pub otherwise: Otherwise,
    /// Bytes a second without the change and with it, round by round.
    pub pairs: Vec<(f64, f64)>,
    /// What was wrong first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
}

/// What can be changed of a session of NBD, to see what that brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Otherwise {
    /// So many connections.
    Connections(u16),
    /// No TLS.
    Plain,
}

impl LoadRun {
    /// What came of this change beside it, if that was tried often enough to tell.
    pub(super) fn tried(&self, is: fn(Otherwise) -> bool) -> Option<(&Beside, Confirmed)> {
        let beside = self.beside.iter().find(|beside| is(beside.otherwise))?;
        Some((beside, confirmed(&beside.pairs)?))
    }

    /// By how much several connections are faster, if that was tried.
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
