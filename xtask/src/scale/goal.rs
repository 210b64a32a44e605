//! What is asked for, and whether it was found.

use std::fmt;

/// A goal and what was measured.
#[derive(Debug)]
pub(super) struct Goal {
    what: String,
    found: f64,
    bound: Bound,
    /// What the machine at hand has to do with it.
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    pub(super) fn at_most(what: impl Into<String>, found: f64, limit: f64) -> Goal {
        Goal { what: what.into(), found, bound: Bound::AtMost(limit), reason: None }
    }

    pub(super) fn at_least(what: impl Into<String>, found: f64, limit: f64) -> Goal {
        Goal { what: what.into(), found, bound: Bound::AtLeast(limit), reason: None }
    }

    /// If it is missed, this is said of the machine: which does not make it reached.
    pub(super) fn though(self, reason: Option<String>) -> Goal {
        Goal { reason, ..self }
    }

    /// Whether it was found.
    pub(super) fn is_reached(&self) -> bool {
        match self.bound {
            Bound::AtMost(limit) => self.found <= limit,
            Bound::AtLeast(limit) => self.found >= limit,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, limit) = match self.bound {
            Bound::AtMost(limit) => ('≤', limit),
            Bound::AtLeast(limit) => ('≥', limit),
        };
        write!(f, "{} {sign} {limit}: {:.3}, ", self.what, self.found)?;
        match (&self.reason, self.is_reached()) {
            (_, true) => f.write_str("reached"),
            (Some(reason), false) => write!(f, "**missed**, and not to be had on this machine: {reason}"),
            (None, false) => f.write_str("**missed**"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_can_be_missed() {
        assert!(Goal::at_most("seconds", 2.0, 2.0).is_reached());
        assert!(!Goal::at_most("seconds", 2.1, 2.0).is_reached());
        assert!(!Goal::at_least("Jain's index", 0.94, 0.95).is_reached());
        assert_eq!(Goal::at_least("index", 0.94, 0.95).to_string(), "index ≥ 0.95: 0.940, **missed**");
    }

    #[test]
    fn what_the_machine_cannot_do_is_said_and_counts() {
        let goal = Goal::at_most("ratio", 9.0, 3.0).though(Some("it pauses".to_owned()));
        assert!(!goal.is_reached());
        assert_eq!(
            goal.to_string(),
            "ratio ≤ 3: 9.000, **missed**, and not to be had on this machine: it pauses"
        );
    }
}
