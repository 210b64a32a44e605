//! Shortens a suite: shorter runs and fewer rounds. Its results are less certain, so the suite records that
//! it was shortened.

use bench::plan::{Order, Step, Stop, Suite};

/// By how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shorter {
    /// No run is counted for longer.
    pub seconds: Option<f64>,
    /// Nothing is run more often.
    pub rounds: Option<u32>,
}

impl Shorter {
    /// The suite, as much shorter.
    pub fn made_of(self, mut suite: Suite) -> Suite {
        let before = suite.clone();
        for step in &mut suite.steps {
            let Step::Measure { stop, order, cells } = step else { continue };
            let own = cells.iter_mut().filter_map(|cell| cell.stop.as_mut());
            std::iter::once(stop).chain(own).for_each(|stop| self.shorten(stop));
            self.thin(order);
        }
        if suite != before {
            suite.assumed.push(self.in_words());
        }
        suite
    }

    fn shorten(self, stop: &mut Stop) {
        let most = self.seconds.unwrap_or(f64::INFINITY);
        stop.max_s = stop.max_s.min(most);
        stop.min_s = stop.min_s.min(most);
        stop.warm_up_s = stop.warm_up_s.min(most); // what is not counted takes no longer than what is
    }

    fn thin(self, order: &mut Order) {
        let most = self.rounds.unwrap_or(u32::MAX);
        match order {
            Order::Once => {}
            Order::Interleaved { repeats_min, repeats_max } => {
                *repeats_max = (*repeats_max).min(most);
                *repeats_min = (*repeats_min).min(most);
            }
            Order::SteadyRounds { rounds_max, .. } => *rounds_max = (*rounds_max).min(most),
        }
    }

    fn in_words(self) -> String {
        let seconds = self.seconds.map(|seconds| format!("no run took more than {seconds} s"));
        let rounds = self.rounds.map(|rounds| format!("nothing was run more than {rounds} times"));
        let said: Vec<_> = seconds.into_iter().chain(rounds).collect();
        format!("Shortened when it was started: {}; the suite itself asks for more.", said.join(", and "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNCHANGED: Shorter = Shorter { seconds: None, rounds: None };

    fn suite(name: &str) -> Suite {
        bench::suite::named(name).expect("a preset")
    }

    fn longest_s(suite: &Suite) -> f64 {
        let stops = suite.steps.iter().flat_map(|step| match step {
            Step::Measure { stop, cells, .. } => cells.iter().map(|cell| cell.stop(*stop)).collect(),
            Step::Purge | Step::Fill { .. } => Vec::new(),
        });
        stops.map(|stop| stop.warm_up_s.max(stop.min_s).max(stop.max_s)).fold(0.0, f64::max)
    }

    #[test]
    fn every_run_of_every_suite_can_be_short() {
        for preset in bench::suite::presets() {
            let short = Shorter { seconds: Some(0.25), rounds: Some(1) }.made_of(preset.clone());
            assert!(longest_s(&short) <= 0.25, "{}", short.name);
            assert!(short.assumed.last().is_some_and(|said| said.contains("0.25 s")), "{}", short.name);
            assert_eq!(UNCHANGED.made_of(preset.clone()), *preset);
        }
    }

    #[test]
    fn what_is_short_already_is_not_made_longer() {
        let long = Shorter { seconds: Some(1e6), rounds: Some(1000) };
        assert_eq!(long.made_of(suite("vmware4")), suite("vmware4"));
    }
}
