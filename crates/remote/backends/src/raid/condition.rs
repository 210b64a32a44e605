//! How a set is: one model behind its status, refusals and the table in docs/raid.md.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a set is, in use or not. Of several that fit, the one furthest down the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// All members have all of their data.
    Healthy,
    /// New space of members is taken into use.
    Growing,
    /// Members may differ, since a crash or since the set was made over used disks, and nobody uses the set.
    Unsynchronised,
    /// Such members are made to fit.
    Synchronising,
    /// A member is rebuilt.
    Rebuilding,
    /// A member is missing or has failed, and nothing takes its place.
    Degraded,
    /// A set in use has stopped.
    Failed,
    /// A set that is not in use does not start.
    Refused,
}

/// What a condition means to people.
#[derive(Clone, Copy, Debug)]
pub struct Meaning {
    /// What hosts see.
    pub users: &'static str,
    /// What there is to do.
    pub remedy: &'static str,
}

impl Condition {
    /// All of them, as the document has them.
    pub const ALL: [Condition; 8] = [
        Condition::Healthy,
        Condition::Growing,
        Condition::Unsynchronised,
        Condition::Synchronising,
        Condition::Rebuilding,
        Condition::Degraded,
        Condition::Failed,
        Condition::Refused,
    ];

    /// What hosts see, and what there is to do.
    pub fn meaning(self) -> Meaning {
        let (users, remedy) = match self {
            Condition::Healthy => ("all requests succeed", "nothing"),
            Condition::Growing => ("all requests succeed; the new size shows at the end", "nothing"),
            Condition::Unsynchronised => (
                "the set starts; until it is synchronised, no member may fail",
                "serve the set, or `raid scrub --repair`: it is synchronised in use",
            ),
            Condition::Synchronising => (
                "all requests succeed; until it is synchronised, no member may fail",
                "nothing: it ends by itself",
            ),
            Condition::Rebuilding => (
                "all requests succeed, more slowly",
                "nothing: it ends by itself, and resumes after a restart",
            ),
            Condition::Degraded => (
                "all requests succeed; the next failure may lose data",
                "attach the member and `raid assemble VOLUME`, or `raid replace` it",
            ),
            Condition::Failed => (
                "every request fails (NOT READY, EIO)",
                "attach the members: the set starts again by itself, or by `raid assemble VOLUME`",
            ),
            Condition::Refused => ("the set does not start", "the refusal says it"),
        };
        Meaning { users, remedy }
    }

    /// Whether no data are at risk, and none are refused: commands have the exit code 0.
    pub fn is_well(self) -> bool {
        matches!(self, Condition::Healthy | Condition::Growing)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Condition::Healthy => "healthy",
            Condition::Growing => "growing",
            Condition::Unsynchronised => "unsynchronised",
            Condition::Synchronising => "synchronising",
            Condition::Rebuilding => "rebuilding",
            Condition::Degraded => "degraded",
            Condition::Failed => "failed",
            Condition::Refused => "refused",
        })
    }
}
