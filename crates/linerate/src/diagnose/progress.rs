//! How far it is, for whoever sits at the terminal.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A line on standard error, if that is a terminal and somebody wants it.
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    /// Shown to whoever looks.
    pub(crate) fn shown() -> Progress {
        Progress(stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1);
            let style = ProgressStyle::with_template("{msg} {wide_bar} {percent} %");
            bar.set_style(style.expect("a template with known keys"));
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        }))
    }
}

impl diagnose::measure::Progress for Progress {
    fn of(&self, steps: usize) {
        if let Some(bar) = &self.0 {
            bar.set_length(steps as u64);
        }
    }

    fn begins(&self, what: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(what.to_owned());
        }
    }

    fn ended(&self) {
        if let Some(bar) = &self.0 {
            bar.inc(1);
        }
    }
}

/// What is to be seen afterwards is the result.
impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
