//! What follows from what was measured.

use serde::{Deserialize, Serialize};

use super::{Cause, Evidence};
use model::Term;

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
