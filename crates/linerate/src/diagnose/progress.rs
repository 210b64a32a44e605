//! How far it is, for whoever sits at the terminal.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use bench_runner::progress::{Form, Moment};
use indicatif::{ProgressBar, ProgressStyle};

use crate::progress::{self, ProgressKind};

/// A bar or lines on standard error, or nothing.
pub(crate) enum Progress {
    /// A bar.
    Bar(ProgressBar),
    /// Lines, and how far it is.
    Lines(Box<RefCell<(progress::Lines, Moment)>>),
    /// Nothing is shown.
    Nothing,
}

impl Progress {
    /// Shown in this way.
    pub(crate) fn shown(kind: ProgressKind) -> Progress {
        let lines =
            |form| Progress::Lines(Box::new(RefCell::new((progress::lines(form), Moment::default()))));
        match kind {
            ProgressKind::Bar => {
                let bar = ProgressBar::new(1);
                let style = ProgressStyle::with_template("{msg} {wide_bar} {percent} %");
                bar.set_style(style.expect("a template with known keys"));
                bar.enable_steady_tick(Duration::from_millis(500));
                Progress::Bar(bar)
            }
            ProgressKind::Plain => lines(Form::Plain),
            ProgressKind::Json => lines(Form::Json),
            ProgressKind::None => Progress::Nothing,
        }
    }
}

impl diagnose::measure::Progress for Progress {
    fn of(&self, steps: usize) {
        match self {
            Progress::Bar(bar) => bar.set_length(steps as u64),
            Progress::Lines(lines) => lines.borrow_mut().1.steps_max = Some(steps as u64),
            Progress::Nothing => {}
        }
    }

    fn begins(&self, what: &str) {
        match self {
            Progress::Bar(bar) => bar.set_message(what.to_owned()),
            Progress::Lines(lines) => {
                let (lines, moment) = &mut *lines.borrow_mut();
                moment.doing = what.to_owned();
                moment.step = Some(moment.step.map_or(1, |step| step + 1));
                lines.at(Instant::now(), || moment.clone());
            }
            Progress::Nothing => {}
        }
    }

    fn ended(&self) {
        if let Progress::Bar(bar) = self {
            bar.inc(1);
        }
    }
}

/// What is to be seen afterwards is the result.
impl Drop for Progress {
    fn drop(&mut self) {
        if let Progress::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
