//! Decides when a run has measured enough, from the samples of all its clients.

use bench::Go;
use bench::plan::{Rule, Stop};
use bench::record::{Ended, Run, Sample};
use stats::known_well_enough;

/// The stop rule of a run, which gets all samples.
pub(crate) struct StopRule {
    stop: Stop,
    /// Of each role, requests a second in each interval.
    rates: Vec<Vec<f64>>,
    /// Intervals that all roles have told of when it was last asked whether they are enough.
    judged: usize,
    known: bool,
}

impl StopRule {
    /// Of a run by so many roles.
    pub(crate) fn new(stop: Stop, roles: usize) -> StopRule {
        StopRule { stop, rates: vec![Vec::new(); roles], judged: 0, known: false }
    }

    /// One more sample of a role's. Stops when the rate of all together is known well enough.
    pub(crate) fn heard(&mut self, role: usize, sample: &Sample) -> Go {
        let Rule::Confidence { percent } = self.stop.rule else { return Go::On };
        if let Some(rates) = self.rates.get_mut(role) {
            rates.push(sample.iops());
        }
        let complete = self.rates.iter().map(Vec::len).min().unwrap_or(0);
        if complete > self.judged && sample.at_s >= self.stop.min_s {
            self.judged = complete;
            self.known = self.known || known_well_enough(&self.together(complete), percent);
        }
        if self.known { Go::Stop } else { Go::On }
    }

    fn together(&self, intervals: usize) -> Vec<f64> {
        (0..intervals).map(|at| self.rates.iter().map(|rates| rates[at]).sum()).collect()
    }

    /// What ended the run, that came to these results.
    pub(crate) fn ended<'a>(&self, runs: impl Iterator<Item = &'a Run> + Clone, interrupted: bool) -> Ended {
        let failures = runs.clone().map(|run| run.errors + run.mismatches).max().unwrap_or(0);
        let shortest = runs.map(|run| run.seconds).fold(f64::INFINITY, f64::min);
        // A loop that stops by its clock stops a little before or after.
        let is_short = shortest < self.stop.max_s * 0.99;
        match self.stop.rule {
            _ if interrupted => Ended::Interrupted,
            _ if failures > 0 && is_short && !self.known => Ended::Failures,
            Rule::Time => Ended::Time,
            Rule::Confidence { .. } if self.known => Ended::Confidence,
            Rule::Bytes { .. } | Rule::Requests { .. } if is_short => Ended::Work,
            Rule::Confidence { .. } | Rule::Bytes { .. } | Rule::Requests { .. } => Ended::OutOfTime,
        }
    }
}

#[cfg(test)]
mod tests {
    use bench::record::Flow;

    use super::*;

    fn judge(rule: Rule, roles: usize) -> StopRule {
        StopRule::new(Stop { warm_up_s: 0.0, min_s: 1.0, max_s: 10.0, rule }, roles)
    }

    fn sample(index: usize, reads: u64) -> Sample {
        Sample { at_s: (index + 1) as f64 / 10.0, seconds: 0.1, reads, ..Sample::default() }
    }

    fn run(seconds: f64, errors: u64) -> Run {
        Run {
            seconds,
            under_way_mean: 1.0,
            reads: Flow::default(),
            writes: Flow::default(),
            backlog_max: 0,
            errors,
            mismatches: 0,
            first_failure: None,
            samples: Vec::new(),
        }
    }

    #[test]
    fn a_steady_rate_is_known_after_the_shortest_time_and_not_before() {
        let mut judge = judge(Rule::Confidence { percent: 5.0 }, 1);
        let stopped = (0..100).find(|index| {
            let wobble = index % 3;
            matches!(judge.heard(0, &sample(*index, 1000 + wobble as u64)), Go::Stop)
        });
        assert!(stopped.is_some_and(|index| (9..30).contains(&index)), "{stopped:?}");
        assert_eq!(judge.ended([run(1.0, 0)].iter(), false), Ended::Confidence);
    }

    #[test]
    fn a_client_that_has_told_nothing_keeps_the_others_going() {
        let mut judge = judge(Rule::Confidence { percent: 5.0 }, 2);
        assert!((0..50).all(|index| matches!(judge.heard(0, &sample(index, 1000)), Go::On)));
    }

    #[test]
    fn what_ended_a_run_is_told_by_its_rule_and_its_length() {
        let time = judge(Rule::Time, 1);
        assert_eq!(time.ended([run(10.0, 0)].iter(), false), Ended::Time);
        assert_eq!(time.ended([run(10.0, 3)].iter(), false), Ended::Time);
        assert_eq!(time.ended([run(2.0, 100)].iter(), false), Ended::Failures);
        assert_eq!(time.ended([run(2.0, 100)].iter(), true), Ended::Interrupted);
        let work = judge(Rule::Bytes { bytes: 1 << 30 }, 1);
        assert_eq!(work.ended([run(2.0, 0)].iter(), false), Ended::Work);
        assert_eq!(work.ended([run(10.0, 0)].iter(), false), Ended::OutOfTime);
        assert_eq!(
            judge(Rule::Confidence { percent: 1.0 }, 1).ended([run(10.0, 0)].iter(), false),
            Ended::OutOfTime
        );
    }
}
