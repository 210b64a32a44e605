//! Coverage: which events the state machines received in which state of a task, and why the other pairs of
//! state and event cannot occur in simulations.

use std::collections::BTreeMap;
use std::fmt;

use iscsi::observed::Observation;
use iscsi::{initiator, target};

use crate::Outcome;

/// The pairs of state and event that occurred in several simulations.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    met: BTreeMap<Observation, u64>,
}

/// Pairs that cannot occur in any simulation.
struct Never {
    side: &'static str,
    /// All, if there are none.
    states: &'static [&'static str],
    /// All, if there are none.
    events: &'static [&'static str],
    why: &'static str,
}

const NEVER: [Never; 14] = [
    Never {
        side: "target",
        states: &["not there"],
        events: &[
            "the driver takes data",
            "the driver answers",
            "the driver gives it up",
            "its connection is lost",
        ],
        why: "the driver drops tasks with the state machine; only existing tasks lose a connection",
    },
    Never {
        side: "target",
        states: &["waits for its turn"],
        events: &[
            "the driver takes data",
            "the driver answers",
            "the driver gives it up",
        ],
        why: "the driver has not received it yet",
    },
    Never {
        side: "target",
        states: &["takes data", "answered"],
        events: &["the driver takes data"],
        why: "the driver reports once, before its response, how much data it accepts",
    },
    Never {
        side: "target",
        states: &["answered"],
        events: &["the driver answers"],
        why: "it responds once",
    },
    Never {
        side: "target",
        states: &["with the driver"],
        events: &["its data are there"],
        why: "unwanted data is dropped",
    },
    Never {
        side: "target",
        states: &[],
        events: &["QUERY TASK"],
        why: "our target offers iSCSIProtocolLevel 1; QUERY TASK needs 2 (RFC 7144 section 4)",
    },
    Never {
        side: "initiator",
        states: &[],
        events: &["Reject", "the target cannot carry it out"],
        why: "our target does neither with our initiator's requests; the fuzz target initiator_whole does",
    },
    Never {
        side: "initiator",
        states: &["not there"],
        events: &["Data-In", "R2T", "SCSI Response"],
        why: "our target sends nothing for an ended task, and the initiator keeps the task until then",
    },
    Never {
        side: "initiator",
        states: &["not there"],
        events: &[
            "ABORT TASK is asked for",
            "its connection is lost",
            "it was aborted",
        ],
        why: "only existing tasks are aborted or lose their connection",
    },
    Never {
        side: "initiator",
        states: &["queued"],
        events: &["Data-In", "R2T", "SCSI Response"],
        why: "the target has not received it yet",
    },
    Never {
        side: "initiator",
        states: &["sends data", "awaits an R2T"],
        events: &["Data-In"],
        why: "our initiator sends no bidirectional commands",
    },
    Never {
        side: "initiator",
        states: &["awaits an answer", "takes data"],
        events: &["R2T"],
        why: "our target does not request data twice, and not for a read",
    },
    Never {
        side: "initiator",
        states: &["takes data"],
        events: &["SCSI Response"],
        why: "our target sends data only for successful reads, and the status with the last data",
    },
    Never {
        side: "initiator",
        states: &["awaits its status"],
        events: &[],
        why: "the same",
    },
];

impl Never {
    fn is_it(&self, met: &Observation) -> bool {
        let among = |all: &[&str], one: &str| all.is_empty() || all.contains(&one);
        self.side == met.side && among(self.states, met.state) && among(self.events, met.event)
    }
}

impl Coverage {
    /// Adds the pairs that occurred in a simulation.
    pub fn add(&mut self, outcome: &Outcome) {
        for (met, times) in &outcome.met {
            *self.met.entry(*met).or_default() += times;
        }
    }

    /// Whether all pairs that occurred were expected.
    pub fn is_sound(&self) -> bool {
        self.strange().next().is_none()
    }

    /// Returns the unexpected pairs that occurred: pairs in no table, and pairs listed as impossible.
    fn strange(&self) -> impl Iterator<Item = &Observation> {
        let can_be = |met: &Observation| {
            all().any(|one| one == *met) && !NEVER.iter().any(|never| never.is_it(met))
        };
        self.met.keys().filter(move |met| !can_be(met))
    }
}

/// Returns all pairs of a task's state and an event.
fn all() -> impl Iterator<Item = Observation> {
    let target = pairs("target", &target::TASK_STATES, &target::TASK_EVENTS);
    target.chain(pairs(
        "initiator",
        &initiator::TASK_STATES,
        &initiator::TASK_EVENTS,
    ))
}

fn pairs(
    side: &'static str,
    states: &'static [&'static str],
    events: &'static [&'static str],
) -> impl Iterator<Item = Observation> {
    states.iter().flat_map(move |state| {
        events
            .iter()
            .map(move |event| Observation { side, state, event })
    })
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing: Vec<Observation> = all().filter(|met| !self.met.contains_key(met)).collect();
        let (met, count) = (all().count() - missing.len(), all().count());
        writeln!(
            f,
            "{met} of {count} pairs of a task's state and an event occurred"
        )?;
        for Never {
            side,
            states,
            events,
            why,
        } in &NEVER
        {
            let [states, events] = [states, events].map(|list| match list {
                [] => "any".to_owned(),
                list => list.join(", "),
            });
            writeln!(f, "  impossible at the {side}: {states} × {events}: {why}")?;
        }
        for Observation { side, state, event } in missing
            .iter()
            .filter(|met| !NEVER.iter().any(|never| never.is_it(met)))
        {
            writeln!(
                f,
                "  did not occur, but is possible: {side}: {state}: {event}"
            )?;
        }
        for Observation { side, state, event } in self.strange() {
            writeln!(f, "  OCCURRED, BUT IS IMPOSSIBLE: {side}: {state}: {event}")?;
        }
        Ok(())
    }
}
