//! What a session with something changed made of a load.

use serde::{Deserialize, Serialize};

use super::{Change, Confirmed, LoadRun, confirmed};

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
