//! What is shown while it goes on, on standard error.

use std::cell::Cell;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use crate::output::remark;

use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};

use super::arguments::{CopyArguments, ProgressKind};

/// How far something is.
pub(super) struct Progress {
    shown: Shown,
    /// "copied", "compared".
    verb: &'static str,
    bytes: u64,
    begun: Instant,
    quiet: bool,
}

enum Shown {
    Bar(ProgressBar),
    /// When the next line is due.
    Lines(Cell<Instant>),
    Nothing,
}

const LINE_EVERY: Duration = Duration::from_secs(5);

impl Progress {
    /// Of so many bytes in all.
    pub(super) fn new(arguments: &CopyArguments, verb: &'static str, bytes: u64) -> Progress {
        let usual = if stderr().is_terminal() { ProgressKind::Bar } else { ProgressKind::None };
        let shown = match arguments.progress.unwrap_or(usual) {
            _ if arguments.quiet => Shown::Nothing,
            ProgressKind::Bar => Shown::Bar(bar(verb, bytes)),
            ProgressKind::Plain => Shown::Lines(Cell::new(Instant::now() + LINE_EVERY)),
            ProgressKind::None => Shown::Nothing,
        };
        Progress { shown, verb, bytes, begun: Instant::now(), quiet: arguments.quiet }
    }

    /// Everything before this byte is done.
    pub(super) fn at(&self, byte: u64) {
        match &self.shown {
            Shown::Bar(bar) => bar.set_position(byte),
            Shown::Lines(due) if Instant::now() >= due.get() => {
                due.set(Instant::now() + LINE_EVERY);
                remark(self.line(byte));
            }
            Shown::Lines(_) | Shown::Nothing => {}
        }
    }

    fn line(&self, byte: u64) -> String {
        let percent = (u128::from(byte) * 100).checked_div(u128::from(self.bytes)).unwrap_or(100);
        let rate = byte as f64 / self.begun.elapsed().as_secs_f64();
        let (done, all, rate) = (BinaryBytes(byte), BinaryBytes(self.bytes), BinaryBytes(rate as u64));
        format!("{} {done} of {all} ({percent} %), {rate}/s", self.verb)
    }

    /// Says something beside.
    pub(super) fn note(&self, sentence: Option<String>) {
        let Some(sentence) = sentence.filter(|_| !self.quiet) else { return };
        match &self.shown {
            Shown::Bar(bar) => bar.suspend(|| remark(sentence)),
            Shown::Lines(_) | Shown::Nothing => remark(sentence),
        }
    }
}

/// What is to be seen afterwards is the result.
impl Drop for Progress {
    fn drop(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
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
