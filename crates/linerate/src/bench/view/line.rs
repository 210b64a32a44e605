//! One line at the bottom of the terminal.

use std::io;
use std::time::Duration;

use bench::record::Sample;
use indicatif::{ProgressBar, ProgressStyle};

use super::{RunStart, View};
use crate::bench::shown::columns;
use crate::output::remark;
use bench_runner::crew::Purged;
use bench_runner::now::Now;

/// A progress line on standard error.
pub(crate) struct Line {
    bar: ProgressBar,
    /// `[3/24] read-4KiB`.
    what: String,
    now: Now,
}

/// The bar counts milliseconds, or a purge's bytes.
const PER_SECOND: f64 = 1000.0;

impl Line {
    pub(crate) fn new() -> Line {
        let bar = ProgressBar::new(1);
        let style =
            ProgressStyle::with_template("{msg} {wide_bar} {prefix}").expect("a template with known keys");
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        Line { bar, what: String::new(), now: Now::default() }
    }

    fn show(&self) {
        // As much of it as stands beside the time left in one line.
        let room = columns(io::stderr()).saturating_sub(self.bar.prefix().chars().count() + 2);
        let mut line = format!("{}  {}", self.what, self.now.line());
        while line.chars().count() > room
            && let Some(at) = line.rfind("  ")
        {
            line.truncate(at);
        }
        self.bar.set_message(line);
    }
}

impl View for Line {
    fn begins(&mut self, doing: &RunStart<'_>) {
        self.what = format!("[{}/{}] {}", doing.number, doing.runs_max(), doing.name);
        self.now = Now::of(doing.roles.len());
        self.bar.set_length(((doing.stop.warm_up_s + doing.stop.max_s) * PER_SECOND) as u64);
        self.bar.set_position(0);
        self.bar.set_prefix(doing.time_left());
        self.bar.set_message(self.what.clone());
    }

    fn sample(&mut self, role: usize, sample: &Sample) {
        self.now.add(role, sample);
        if role == 0 {
            self.bar.set_position((sample.at_s * PER_SECOND) as u64);
            self.show();
        }
    }

    fn waiting(&mut self, waited: Duration) {
        self.now.wait(waited);
        self.show();
    }

    fn purged(&mut self, purged: Purged) {
        self.bar.set_length(purged.of_bytes);
        self.bar.set_position(purged.done_bytes);
    }

    fn note(&mut self, sentence: &str) {
        self.bar.suspend(|| remark(sentence));
    }
}

/// What is to be seen afterwards is the result.
impl Drop for Line {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
