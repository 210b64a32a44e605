//! The observer of a measurement.

use std::time::Duration;

use bench::plan::Stop;
use bench::record::{CellRun, Sample};
use bench::schedule::Left;

use super::crew::Purged;

/// An observer of the progress. It writes to standard error or to the whole screen; standard output is for
/// results. What it does not want to know it leaves out; `()` wants to know nothing.
pub trait View {
    /// A run begins.
    fn begins(&mut self, _doing: &RunStart<'_>) {}

    /// The warm-up is over.
    fn counting(&mut self) {}

    /// A sample of one client.
    fn sample(&mut self, _role: usize, _sample: &Sample) {}

    /// The storage has not answered for so long; told about every second.
    fn waiting(&mut self, _waited: Duration) {}

    /// The progress of a purge.
    fn purged(&mut self, _purged: Purged) {}

    /// A run has ended.
    fn ended(&mut self, _run: &CellRun) {}

    /// A remark.
    fn note(&mut self, _sentence: &str) {}
}

impl View for () {}

/// A run that begins.
pub struct RunStart<'a> {
    /// `read-4KiB`, or `fill`.
    pub name: &'a str,
    /// Which run it is, from 1.
    pub number: u64,
    /// The names of the clients; empty if nothing is measured.
    pub roles: Vec<String>,
    /// When it ends.
    pub stop: Stop,
    /// The remaining runs and time, this run included.
    pub left: Left,
}

impl RunStart<'_> {
    /// The largest number of runs in total.
    pub fn runs_max(&self) -> u64 {
        (self.number - 1 + self.left.runs_max).max(self.number)
    }

    /// "12 s left", "1 to 4 min left".
    pub fn time_left(&self) -> String {
        let unit = |seconds: u64| match seconds {
            0..120 => (1, "s"),
            120..7200 => (60, "min"),
            _ => (3600, "h"),
        };
        let (least, most) = (self.left.time_min.as_secs(), self.left.time_max.as_secs_f64().ceil() as u64);
        let (scale, name) = unit(most);
        let (least, most) = (least.div_ceil(scale), most.div_ceil(scale));
        if least == most { format!("{most} {name} left") } else { format!("{least} to {most} {name} left") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_is_one_number_or_two() {
        let left = |least, most| {
            let (time_min, time_max) = (Duration::from_secs(least), Duration::from_secs(most));
            let left = Left { runs_min: 1, runs_max: 3, time_min, time_max };
            RunStart { name: "x", number: 2, roles: Vec::new(), stop: Stop::after(1.0), left }
        };
        assert_eq!(left(12, 12).time_left(), "12 s left");
        assert_eq!(left(50, 200).time_left(), "1 to 4 min left");
        assert_eq!(left(50, 200).runs_max(), 4);
    }
}
