//! Which events the machines have met in which state of a task, and why they cannot meet the others here.

use std::collections::BTreeMap;
use std::fmt;

use iscsi::observed::Met;
use iscsi::{initiator, target};

use crate::Outcome;

/// What several simulations have met.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    met: BTreeMap<Met, u64>,
}

/// Pairs that no simulation meets.
struct Never {
    side: &'static str,
    /// All, if there are none.
    states: &'static [&'static str],
    /// All, if there are none.
    events: &'static [&'static str],
    why: &'static str,
}

const NEVER: [Never; 0] = [];

impl Never {
    fn is_it(&self, met: &Met) -> bool {
        let among = |all: &[&str], one: &str| all.is_empty() || all.contains(&one);
        self.side == met.side && among(self.states, met.state) && among(self.events, met.event)
    }
}

impl Coverage {
    /// Adds what a simulation has met.
    pub fn add(&mut self, outcome: &Outcome) {
        for (met, times) in &outcome.met {
            *self.met.entry(*met).or_default() += times;
        }
    }

    /// Whether everything that was met could be.
    pub fn is_sound(&self) -> bool {
        self.strange().next().is_none()
    }

    /// What was met and could not be: it is in no table, or among what is never met.
    fn strange(&self) -> impl Iterator<Item = &Met> {
        let can_be = |met: &Met| all().any(|one| one == *met) && !NEVER.iter().any(|never| never.is_it(met));
        self.met.keys().filter(move |met| !can_be(met))
    }
}

/// Every state of a task with every event.
fn all() -> impl Iterator<Item = Met> {
    let target = pairs("target", &target::TASK_STATES, &target::TASK_EVENTS);
    target.chain(pairs("initiator", &initiator::TASK_STATES, &initiator::TASK_EVENTS))
}

fn pairs(
    side: &'static str,
    states: &'static [&'static str],
    events: &'static [&'static str],
) -> impl Iterator<Item = Met> {
    states.iter().flat_map(move |state| events.iter().map(move |event| Met { side, state, event }))
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing: Vec<Met> = all().filter(|met| !self.met.contains_key(met)).collect();
        let (met, count) = (all().count() - missing.len(), all().count());
        writeln!(f, "{met} of {count} pairs of a task's state and an event were met")?;
        for Never { side, states, events, why } in &NEVER {
            let [states, events] = [states, events].map(|list| match list {
                [] => "any".to_owned(),
                list => list.join(", "),
            });
            writeln!(f, "  cannot be at the {side}: {states} × {events}: {why}")?;
        }
        for Met { side, state, event } in
            missing.iter().filter(|met| !NEVER.iter().any(|never| never.is_it(met)))
        {
            writeln!(f, "  not met, and could be: {side}: {state}: {event}")?;
        }
        for Met { side, state, event } in self.strange() {
            writeln!(f, "  MET, AND CANNOT BE: {side}: {state}: {event}")?;
        }
        Ok(())
    }
}
