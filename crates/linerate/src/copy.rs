//! `linerate copy` copies any storage to any other storage. The library `copy` does the work; this module
//! handles the arguments and the output.

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use backends::location::Location;
use bench_runner::progress::{Form, Moment};
use copy::{JournalPlace, Observer, Options, Phase, Position, Report};
use daemon::state;
use indicatif::{BinaryBytes, ProgressBar, ProgressState, ProgressStyle};
use readable::figures::significant;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{remark, say, say_json};
use crate::remote;
use crate::spec::{Bytes, Time};
use crate::terminal::{self, ProgressKind};

/// Runs the command.
pub(crate) fn run(arguments: &CopyArguments) -> Result<(), Failure> {
    let from = Location::parse(&arguments.source)?;
    let to = Location::parse(&arguments.destination)?;
    let progress = Progress::new(arguments, Interrupt::listen()?);
    let copied = remote::run(copy::copy(&from, &to, &arguments.options(), &progress));
    drop(progress);
    let report = copied?;
    match (arguments.json, arguments.quiet) {
        (true, _) => say_json(&report)?,
        (false, true) => {}
        (false, false) => say(&text(&report)),
    }
    report.verdict()
}

#[derive(Debug, clap::Args)]
pub(crate) struct CopyArguments {
    /// Storage to copy from (see `linerate help targets`)
    #[arg(value_name = "SOURCE", value_hint = clap::ValueHint::AnyPath)]
    source: String,
    /// Storage to copy to; a path that does not exist is created, with the source's holes (a volume
    /// specification must contain the size: file:PATH?size=1GiB)
    #[arg(value_name = "DESTINATION", value_hint = clap::ValueHint::AnyPath)]
    destination: String,
    /// Overwrite the destination without asking
    #[arg(long)]
    yes: bool,
    /// Read the destination back and compare
    #[arg(long)]
    verify: bool,
    /// Print the SHA-256 of the data
    #[arg(long)]
    checksum: bool,
    /// Queue depth: outstanding requests [default: 16, and 2 between local files]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: Option<u16>,
    /// Block size of requests [default: 256KiB, and 1MiB between local files]
    #[arg(long, value_name = "SIZE", value_parser = request)]
    request: Option<Bytes>,
    /// Write zeros that the source stores as data, instead of skipping them
    #[arg(long)]
    no_zero_detect: bool,
    /// Do not use EXTENDED COPY, with which a target that has both source and destination copies internally
    #[arg(long)]
    no_xcopy: bool,
    /// Continue after read errors: zeros are written instead of the data, and the exit code is 1
    #[arg(long)]
    skip_errors: bool,
    /// Copy a disk image in a container format (QCOW2, VMDK, VHDX, VDI) to a device byte by byte
    #[arg(long)]
    raw: bool,
    /// Directory for the state of interrupted copies [default: within the state directory]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    journal: Option<PathBuf>,
    /// Start from the beginning instead of resuming an earlier copy
    #[arg(long)]
    restart: bool,
    /// Interval of the checkpoints from which a copy can resume; each flushes the destination
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = checkpoint)]
    checkpoint: Time,
    /// Progress display [default: a bar on a terminal, otherwise a line every five seconds]
    #[arg(long, value_name = "FORM")]
    progress: Option<ProgressKind>,
    /// Print only errors
    #[arg(long, short)]
    quiet: bool,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

impl CopyArguments {
    /// The options in the library's form.
    fn options(&self) -> Options<'_> {
        Options {
            consent: terminal::consent(self.yes),
            verify: self.verify,
            checksum: self.checksum,
            depth: self.depth,
            request_bytes: self.request.map(|request| request.0),
            detect_zeros: !self.no_zero_detect,
            offload: !self.no_xcopy,
            skip_errors: self.skip_errors,
            journal: match (&self.journal, state::usual_directory()) {
                (Some(named), _) => JournalPlace::Directory(named.clone()),
                (None, Ok(state)) => JournalPlace::Below(state.join("copies")),
                (None, Err(_)) => JournalPlace::Nowhere,
            },
            restart: self.restart,
            raw: self.raw,
            checkpoint: self.checkpoint.0,
        }
    }
}

fn checkpoint(text: &str) -> Result<Time, String> {
    let time: Time = text
        .parse()
        .map_err(|error: crate::spec::NotAValue| error.to_string())?;
    let fits = (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&time.0);
    if fits {
        Ok(time)
    } else {
        Err("the checkpoint interval must be from 1s to 1h".to_owned())
    }
}

fn request(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text
        .parse()
        .map_err(|error: crate::spec::NotAValue| error.to_string())?;
    let fits = bytes.0.is_power_of_two() && (64 << 10..=64 << 20).contains(&bytes.0);
    if fits {
        Ok(bytes)
    } else {
        Err("the request size is a power of two from 64KiB to 64MiB".to_owned())
    }
}

/// The progress of a copy.
struct Progress {
    kind: ProgressKind,
    quiet: bool,
    interrupt: Interrupt,
    shown: RefCell<Shown>,
}

enum Shown {
    Bar(Bar),
    Lines(Box<Lines>),
    Nothing,
}

/// A progress bar, its verb ("copied" or "compared"), and the bytes that its rate counts.
struct Bar {
    verb: &'static str,
    moved_bytes: Arc<AtomicU64>,
    bar: ProgressBar,
}

/// Progress lines, with their verb ("copied" or "compared"), the bytes, and the start.
struct Lines {
    verb: &'static str,
    bytes: u64,
    begun: Instant,
    lines: RefCell<terminal::Lines>,
}

impl Progress {
    fn new(arguments: &CopyArguments, interrupt: Interrupt) -> Progress {
        let kind = terminal::kind(arguments.progress, arguments.quiet);
        Progress {
            kind,
            quiet: arguments.quiet,
            interrupt,
            shown: RefCell::new(Shown::Nothing),
        }
    }

    /// Replaces the display, and clears the previous one.
    fn show(&self, shown: Shown) {
        if let Shown::Bar(Bar { bar, .. }) = self.shown.replace(shown) {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Progress {
    fn begin(&self, phase: Phase, start: u64, bytes: u64) {
        let verb = match phase {
            Phase::Copy => "copied",
            Phase::Compare => "compared",
        };
        let lines = |form| {
            let lines = RefCell::new(terminal::lines(form));
            Shown::Lines(Box::new(Lines {
                verb,
                bytes,
                begun: Instant::now(),
                lines,
            }))
        };
        self.show(match self.kind {
            ProgressKind::Bar => Shown::Bar(Bar::begin(verb, start, bytes)),
            ProgressKind::Plain => lines(Form::Plain),
            ProgressKind::Json => lines(Form::Json),
            ProgressKind::None => Shown::Nothing,
        });
    }

    fn at(&self, position: Position) {
        match &*self.shown.borrow() {
            Shown::Bar(bar) => bar.at(position),
            Shown::Lines(lines) => {
                let moment = || lines.moment(position, lines.begun.elapsed());
                lines.lines.borrow_mut().at(Instant::now(), moment);
            }
            Shown::Nothing => {}
        }
    }

    fn note(&self, sentence: &str) {
        match &*self.shown.borrow() {
            _ if self.quiet => {}
            Shown::Bar(Bar { bar, .. }) => bar.suspend(|| remark(sentence)),
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
    fn moment(&self, position: Position, elapsed: Duration) -> Moment {
        let percent = position.byte as f64 / self.bytes.max(1) as f64 * 100.0;
        let mb_per_s = position.moved_bytes as f64 / 1e6 / elapsed.as_secs_f64().max(1e-3);
        let (done_percent, mb_per_s) = (Some(percent), Some(mb_per_s));
        Moment {
            doing: doing(self.verb, position).to_owned(),
            done_percent,
            mb_per_s,
            ..Moment::default()
        }
    }
}

/// The verb for a position. "hashed" explains a rate of 0: a hole is not moved, but its checksum takes time.
fn doing(verb: &'static str, position: Position) -> &'static str {
    if position.hashing { "hashed" } else { verb }
}

impl Bar {
    fn begin(verb: &'static str, start: u64, bytes: u64) -> Bar {
        const TEMPLATE: &str = "{msg} {wide_bar} {percent:>3} %  {binary_bytes} of {binary_total_bytes}  \
                                {rate}  {eta} left";
        let moved_bytes = Arc::new(AtomicU64::new(0));
        let moved = Arc::clone(&moved_bytes);
        let rate = move |state: &ProgressState, text: &mut dyn fmt::Write| {
            let rate = moved.load(Relaxed) as f64 / state.elapsed().as_secs_f64().max(1e-3);
            let _ = write!(text, "{}/s", BinaryBytes(rate as u64)); // formatting into a bar cannot fail
        };
        let style = ProgressStyle::with_template(TEMPLATE).expect("a template with known keys");
        let bar = ProgressBar::new(bytes)
            .with_style(style.with_key("rate", rate))
            .with_message(verb);
        // The remaining time is estimated from the steps since the last reset. An update moves the estimate's
        // start to the position, and the reset discards that step.
        bar.set_position(start);
        bar.tick();
        bar.reset_eta();
        bar.enable_steady_tick(Duration::from_millis(500));
        Bar {
            verb,
            moved_bytes,
            bar,
        }
    }

    fn at(&self, position: Position) {
        self.moved_bytes.store(position.moved_bytes, Relaxed);
        self.bar.set_message(doing(self.verb, position));
        self.bar.set_position(position.byte);
    }
}

/// The result in two lines, and a third line for a digest.
fn text(report: &Report) -> String {
    let own = report.bytes - report.resumed_at_bytes;
    let moved = report.written_bytes + report.offloaded_bytes;
    let mut text = format!(
        "copied {} in {:.2} s: {} of data at {} MB/s{}\n{} of holes and zeros skipped{}\n",
        BinaryBytes(own),
        report.seconds,
        BinaryBytes(moved),
        significant(report.mb_per_s),
        if report.offloaded_bytes > 0 {
            ", copied by the target itself"
        } else {
            ""
        },
        BinaryBytes(own.saturating_sub(moved)),
        if report.verified {
            "; source and destination match"
        } else {
            ""
        },
    );
    if let Some(digest) = &report.sha256 {
        text += &format!("sha256 {digest}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_counts_neither_the_work_of_an_earlier_run_nor_holes() {
        let lines = Lines {
            verb: "copied",
            bytes: 1 << 30,
            begun: Instant::now(),
            lines: terminal::lines(Form::Plain).into(),
        };
        let position = Position {
            byte: 900 << 20,
            moved_bytes: 60_000_000,
            hashing: false,
        };
        let moment = lines.moment(position, Duration::from_secs(2)).to_string();
        assert_eq!(moment, "copied: 88 %, 30.0 MB/s");
        let hole = Position {
            hashing: true,
            ..position
        };
        assert_eq!(lines.moment(hole, Duration::from_secs(4)).doing, "hashed");
    }

    #[test]
    fn the_remaining_time_of_a_resumed_copy_does_not_count_the_part_that_was_skipped() {
        let Bar { bar, .. } = Bar::begin("copied", 900 << 20, 1 << 30);
        assert_eq!((bar.position(), bar.per_sec()), (900 << 20, 0.0));
    }
}
