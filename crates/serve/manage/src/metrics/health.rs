//! Whether a server is healthy, and what is wrong.

use serde::Serialize;
use server::Phase;

use super::sample::Sample;

/// The health of a server, as `/healthz` says it in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Whether nothing is wrong.
    pub healthy: bool,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

/// Something that keeps hosts from their volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What it is about: `server`, `reactor` or `volume`.
    pub kind: &'static str,
    /// Which one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For people.
    pub problem: String,
}

impl Health {
    pub(super) fn of(sample: &Sample) -> Health {
        let mut problems = Vec::new();
        let mut add = |kind, name, problem: String| problems.push(Problem { kind, name, problem });
        match sample.phase {
            Phase::Open => {}
            Phase::Starting => add("server", None, "is starting: hosts are told to try again".to_owned()),
            Phase::Draining => add("server", None, "is ending: hosts are told to try again".to_owned()),
        }
        for (number, core) in sample.cores.iter().enumerate() {
            if core.is_none() {
                add("reactor", Some(number.to_string()), "the thread does not answer".to_owned());
            }
        }
        for volume in &sample.volumes {
            let (condition, name) = (volume.volume.health().condition(), || Some(volume.name.clone()));
            if let Some(time) = condition.silent {
                let problem = format!("the device does not answer for {} s", time.as_secs_f64().round());
                add("volume", name(), problem);
            } else if volume.volume.is_fenced() {
                add("volume", name(), "is out of service until its device answers".to_owned());
            }
            if condition.is_failing {
                let cause = condition
                    .latest
                    .map_or("its storage fails".to_owned(), |latest| latest.error.to_string());
                add("volume", name(), cause);
            }
        }
        Health { healthy: problems.is_empty(), problems }
    }
}
