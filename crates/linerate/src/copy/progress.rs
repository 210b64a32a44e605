//! What is shown while a copy runs, on standard error; and whether a signal has asked for its end.

use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use copy::{Observer, Phase};
use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};

use super::arguments::{CopyArguments, ProgressKind};
use crate::interrupt::Interrupt;
use crate::output::remark;

/// How far a copy is.
pub(super) struct Progress {
    kind: ProgressKind,
    quiet: bool,
    interrupt: Interrupt,
    shown: RefCell<Shown>,
}

enum Shown {
    Bar(ProgressBar),
    Lines(Lines),
    Nothing,
}

/// A line now and then.
struct Lines {
    /// "copied", "compared".
    verb: &'static str,
    bytes: u64,
    begun: Instant,
    next: Cell<Instant>,
}

const LINE_EVERY: Duration = Duration::from_secs(5);

impl Progress {
    pub(super) fn new(arguments: &CopyArguments, interrupt: Interrupt) -> Progress {
        let usual = if stderr().is_terminal() { ProgressKind::Bar } else { ProgressKind::None };
        let kind = if arguments.quiet { ProgressKind::None } else { arguments.progress.unwrap_or(usual) };
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
        let now = Instant::now();
        self.show(match self.kind {
            ProgressKind::Bar => Shown::Bar(bar(verb, bytes)),
            ProgressKind::Plain => {
                Shown::Lines(Lines { verb, bytes, begun: now, next: Cell::new(now + LINE_EVERY) })
            }
            ProgressKind::None => Shown::Nothing,
        });
    }

    fn at(&self, byte: u64) {
        match &*self.shown.borrow() {
            Shown::Bar(bar) => bar.set_position(byte),
            Shown::Lines(lines) if Instant::now() >= lines.next.get() => {
                lines.next.set(Instant::now() + LINE_EVERY);
                remark(lines.line(byte));
            }
            Shown::Lines(_) | Shown::Nothing => {}
        }
    }

    fn note(&self, sentence: &str) {
        match &*self.shown.borrow() {
            _ if self.quiet => {}
            Shown::Bar(bar) => bar.suspend(|| remark(sentence)),
            Shown::Lines(_) | Shown::Nothing => remark(sentence),
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
    fn line(&self, byte: u64) -> String {
        let percent = (u128::from(byte) * 100).checked_div(u128::from(self.bytes)).unwrap_or(100);
        let rate = byte as f64 / self.begun.elapsed().as_secs_f64();
        let (done, all, rate) = (BinaryBytes(byte), BinaryBytes(self.bytes), BinaryBytes(rate as u64));
        format!("{} {done} of {all} ({percent} %), {rate}/s", self.verb)
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
