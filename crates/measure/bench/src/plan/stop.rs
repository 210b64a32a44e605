//! When a run has measured enough.

use serde::{Deserialize, Serialize};

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
