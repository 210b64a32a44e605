//! What is shown while a copy runs, on standard error; and whether a signal has asked for its end.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use bench_runner::progress::{Form, Moment};
use copy::{Observer, Phase};
use indicatif::{ProgressBar, ProgressStyle};

use super::arguments::CopyArguments;
use crate::interrupt::Interrupt;
use crate::output::remark;
use crate::progress::{self, ProgressKind};

/// How far a copy is.
pub(super) struct Progress {
    kind: ProgressKind,
    quiet: bool,
    interrupt: Interrupt,
    shown: RefCell<Shown>,
}

enum Shown {
    Bar(ProgressBar),
    Lines(Box<Lines>),
    Nothing,
}

/// Lines with what is in them: "copied" or "compared", so many bytes, since when.
struct Lines {
    verb: &'static str,
    bytes: u64,
    begun: Instant,
    lines: RefCell<progress::Lines>,
}

impl Progress {
    pub(super) fn new(arguments: &CopyArguments, interrupt: Interrupt) -> Progress {
        let kind = progress::kind(arguments.progress, arguments.quiet);
        Progress { kind, quiet: arguments.quiet, interrupt, shown: RefCell::new(Shown::Nothing) }
    }

    /// What was shown is gone afterwards: the result is to be seen.
    fn show(&self, shown: Shown) {
        if let Shown::Bar(bar) = self.shown.replace(shown) {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Progress {
    fn begin(&self, phase: Phase, bytes: u64) {
        let verb = match phase {
            Phase::Copy => "copied",
            Phase::Compare => "compared",
        };
        let lines = |form| {
            let lines = RefCell::new(progress::lines(form));
            Shown::Lines(Box::new(Lines { verb, bytes, begun: Instant::now(), lines }))
        };
        self.show(match self.kind {
            ProgressKind::Bar => Shown::Bar(bar(verb, bytes)),
            ProgressKind::Plain => lines(Form::Plain),
            ProgressKind::Json => lines(Form::Json),
            ProgressKind::None => Shown::Nothing,
        });
    }

    fn at(&self, byte: u64) {
        match &*self.shown.borrow() {
            Shown::Bar(bar) => bar.set_position(byte),
            Shown::Lines(lines) => lines.lines.borrow_mut().at(Instant::now(), || lines.moment(byte)),
            Shown::Nothing => {}
        }
    }

    fn note(&self, sentence: &str) {
        match &*self.shown.borrow() {
            _ if self.quiet => {}
            Shown::Bar(bar) => bar.suspend(|| remark(sentence)),
            Shown::Lines(lines) => lines.lines.borrow_mut().remark(sentence),
            Shown::Nothing => remark(sentence),
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.is_asked()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show(Shown::Nothing);
    }
}

impl Lines {
    fn moment(&self, byte: u64) -> Moment {
        let percent = byte as f64 / self.bytes.max(1) as f64 * 100.0;
        let mb_per_s = byte as f64 / 1e6 / self.begun.elapsed().as_secs_f64().max(1e-3);
        let (done_percent, mb_per_s) = (Some(percent), Some(mb_per_s));
        Moment { doing: self.verb.to_owned(), done_percent, mb_per_s, ..Moment::default() }
    }
}

fn bar(verb: &'static str, bytes: u64) -> ProgressBar {
    const TEMPLATE: &str = "{msg} {wide_bar} {percent:>3} %  {binary_bytes} of {binary_total_bytes}  \
                            {binary_bytes_per_sec}  {eta} left";
    let style = ProgressStyle::with_template(TEMPLATE).expect("a template with known keys");
    let bar = ProgressBar::new(bytes).with_style(style).with_message(verb);
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
