//! `linerate diagnose` finds out why the path to a LUN or an NBD export is slow. The crate [`diagnose`]
//! measures and draws the conclusions; this module handles the arguments, the progress display, and the
//! output.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::report::{DiagnosisReport, read_diagnosis, verdict};
use bench::Extent;
use bench_runner::folder::{DIAGNOSIS, Folder, timestamp};
use bench_runner::progress::{Form, Moment};
use diagnose::measure::{Options, Subject, confirm, evidence};
use diagnose::{Diagnosis, Verdict, diagnose};
use indicatif::{ProgressBar, ProgressStyle};
use iscsi_client::Url;
use model::{Direction, LinkRate, Load};

use crate::bench::seconds;
use crate::failure::{Failure, FailureKind};
use crate::output::{say, width};
use crate::remote;
use crate::spec::Bytes;
use crate::terminal::{self, ProgressKind};

/// Diagnoses a LUN, whose data may be overwritten, in about `seconds`, and writes the report to a directory,
/// replacing an earlier report. With `quiet`, nothing is printed.
pub(crate) async fn of_own(
    url: &Url,
    seconds: f64,
    out: PathBuf,
    quiet: bool,
) -> Result<(), Failure> {
    let options = Options {
        quick: false,
        seconds: Some(seconds),
        own: None,
        allow_write: Some(Extent::ALL),
        consent: terminal::consent(true),
        expected_link_bits_per_s: None,
        seed: 1,
    };
    let show = ShowOptions::report(out, quiet);
    let stage = Stage::new(&show, Folder::replace)?;
    let subject = Subject::Lun(Box::new(url.clone()));
    let evidence = evidence(
        &subject,
        &options,
        &Progress::shown(crate::terminal::kind(None, false)),
    )
    .await?;
    stage.show(&diagnose(evidence)).map(|_| ())
}

/// Runs the command.
pub(crate) fn run(arguments: &DiagnoseArguments) -> Result<ExitCode, Failure> {
    let options = arguments.options()?;
    let stage = Stage::new(arguments.show(), Folder::create)?;
    let subject = Subject::parse(&arguments.url)?;
    let progress = Progress::shown(crate::terminal::kind(arguments.show().progress, false));
    let evidence = remote::run(evidence(&subject, &options, &progress))?;
    if let Some(file) = arguments.evidence() {
        let json = serde_json::to_string_pretty(&evidence).map_err(Failure::failed)? + "\n";
        if file.as_os_str() == "-" {
            say(&json);
            return Ok(ExitCode::SUCCESS);
        }
        std::fs::write(file, json).map_err(|error| Failure::unwritten(file.display(), &error))?;
    }
    let mut diagnosis = diagnose(evidence);
    if arguments.confirm {
        remote::run(async {
            confirm(&mut diagnosis, &subject, &options, &progress).await;
            Ok(())
        })?;
    }
    drop(progress);
    stage.show(&diagnosis)
}

#[derive(clap::Args, Debug)]
pub(crate) struct DiagnoseArguments {
    /// LUN or NBD export at the end of the path: iscsi://[USER@]HOST[:PORT]/IQN/LUN[?KEY=VALUE&...], or nbd://HOST[:PORT]/EXPORT
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    url: String,
    /// Take 10 to 15 seconds instead of 40, with less precision
    #[arg(long)]
    quick: bool,
    /// Duration of the diagnosis [default: 40s]
    #[arg(long, value_name = "TIME", conflicts_with = "quick", value_parser = seconds)]
    seconds: Option<f64>,
    /// Nominal rate of the link, such as 1Gbit/s or 100Mbit/s
    #[arg(long, value_name = "RATE")]
    link: Option<LinkRate>,
    /// Test each possible client-side change: measure alternately with and without it
    #[arg(long)]
    confirm: bool,
    /// Random seed of offsets, data and the order of measurements
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the measurements to this file as JSON before they are analysed (- is standard output, without an
    /// analysis)
    #[arg(long, value_name = "FILE", hide = true)]
    evidence: Option<PathBuf>,
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    writing: WritingOptions,
    #[command(flatten)]
    show: ShowOptions,
}

/// The slow load. The findings are then about this load; without any of these options, about typical loads.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Load to diagnose")]
struct LoadOptions {
    /// Block size of requests [default: 4KiB]
    #[arg(long, visible_alias = "bs", value_name = "SIZE")]
    block: Option<Bytes>,
    /// Queue depth: outstanding requests of each session [default: 1]
    #[arg(long, visible_alias = "iodepth", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    depth: Option<u32>,
    /// Number of sessions, each with the full queue depth [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    sessions: Option<u16>,
    /// Diagnose reads
    #[arg(long, conflicts_with = "write")]
    read: bool,
    /// Diagnose writes (needs --allow-write)
    #[arg(long)]
    write: bool,
    /// Use sequential offsets instead of random ones
    #[arg(long)]
    sequential: bool,
    /// Complete each write on stable storage, as databases do
    #[arg(long, requires = "write")]
    durable: bool,
}

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Writing")]
struct WritingOptions {
    /// Also measure writes, to all of the storage or to a part of it (--allow-write=1GiB..3GiB); existing
    /// data there is lost. Without this option, nothing is modified
    #[arg(long, value_name = "START..END", num_args = 0..=1, require_equals = true,
        default_missing_value = "..")]
    allow_write: Option<Extent>,
    /// Overwrite the data without asking
    #[arg(long, requires = "allow_write")]
    yes: bool,
}

impl DiagnoseArguments {
    fn options(&self) -> Result<Options, Failure> {
        let own = self.load.load()?;
        if own.is_some_and(|load| load.direction == Direction::Write)
            && self.writing.allow_write.is_none()
        {
            return Err(Failure::refused(
                "measuring writes destroys the data on the storage; to permit it, use --allow-write",
            ));
        }
        Ok(Options {
            quick: self.quick,
            seconds: self.seconds,
            own,
            allow_write: self.writing.allow_write,
            consent: terminal::consent(self.writing.yes),
            expected_link_bits_per_s: self.link.map(LinkRate::bits_per_s),
            seed: self.seed,
        })
    }

    fn show(&self) -> &ShowOptions {
        &self.show
    }

    fn evidence(&self) -> Option<&Path> {
        self.evidence.as_deref()
    }
}

impl LoadOptions {
    /// The load; `None` if no option of a load was given.
    fn load(&self) -> Result<Option<Load>, Failure> {
        let LoadOptions {
            block,
            depth,
            sessions,
            read,
            write,
            sequential,
            durable,
        } = self;
        let is_said = block.is_some() || depth.is_some() || sessions.is_some();
        if !is_said && !read && !write && !sequential {
            return Ok(None);
        }
        let bytes = block.map_or(4096, |block| block.0);
        let block_bytes = u32::try_from(bytes)
            .ok()
            .filter(|bytes| (1..=BLOCK_MAX).contains(bytes));
        Ok(Some(Load {
            direction: if *write {
                Direction::Write
            } else {
                Direction::Read
            },
            block_bytes: block_bytes.ok_or_else(|| {
                Failure::refused("--block: the block size must be from 1 byte to 16MiB")
            })?,
            depth: depth.unwrap_or(1),
            sessions: sessions.unwrap_or(1),
            random: !sequential,
            durable: *durable,
        }))
    }
}

/// Maximum block size. Linerate's initiator splits longer requests, so their latency would not be that of the
/// path.
const BLOCK_MAX: u32 = 16 << 20;

/// The progress display: a bar or lines on standard error, or nothing.
pub(crate) enum Progress {
    /// A bar.
    Bar(ProgressBar),
    /// Lines, and the current state.
    Lines(Box<RefCell<(terminal::Lines, Moment)>>),
    /// Nothing is shown.
    Nothing,
}

impl Progress {
    /// Creates the display in this form.
    pub(crate) fn shown(kind: ProgressKind) -> Progress {
        let lines = |form| {
            Progress::Lines(Box::new(RefCell::new((
                terminal::lines(form),
                Moment::default(),
            ))))
        };
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

/// Clears the display, so that only the result remains visible.
impl Drop for Progress {
    fn drop(&mut self) {
        if let Progress::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

// The output of a diagnosis: text or JSON on standard output, a directory with a report, and an exit code for
// scripts.

/// The options of the output.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Output")]
struct ShowOptions {
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also print all findings with all remedies, the layers and the loads
    #[arg(long, conflicts_with = "json")]
    details: bool,
    /// Progress display [default: a bar on a terminal, otherwise a line every five seconds]
    #[arg(long, value_name = "FORM")]
    progress: Option<ProgressKind>,
    /// Also write a report to this directory: report.html, report.md and diagnosis.json
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Compare with an earlier diagnosis: its diagnosis.json, or the directory of its report
    #[arg(long, value_name = "PATH")]
    before: Option<PathBuf>,
    /// Exit with code 13 if a bottleneck is found, and with 1 if the path is slow for an unknown reason
    #[arg(long)]
    check: bool,
    /// Print nothing.
    #[arg(skip)]
    quiet: bool,
}

/// The output of a diagnosis, checked before anything is measured.
struct Stage<'a> {
    options: &'a ShowOptions,
    before: Option<Diagnosis>,
    folder: Option<Folder>,
    begun: String,
}

impl ShowOptions {
    /// Options for output on the terminal, unless `quiet` is set, and for a report in this directory.
    fn report(out: PathBuf, quiet: bool) -> ShowOptions {
        ShowOptions {
            json: false,
            details: true,
            progress: None,
            out: Some(out),
            before: None,
            check: false,
            quiet,
        }
    }
}

impl<'a> Stage<'a> {
    /// Creates the directory of the report, if one is requested. `make` determines whether the directory's
    /// content may be replaced.
    fn new(
        options: &'a ShowOptions,
        make: fn(&Path) -> Result<Folder, Failure>,
    ) -> Result<Stage<'a>, Failure> {
        let before = options.before.as_deref().map(earlier).transpose()?;
        let folder = options.out.as_deref().map(make).transpose()?;
        Ok(Stage {
            options,
            before,
            folder,
            begun: timestamp(),
        })
    }

    /// Prints the diagnosis, even if the report cannot be written.
    fn show(&self, diagnosis: &Diagnosis) -> Result<ExitCode, Failure> {
        let version = env!("CARGO_PKG_VERSION");
        let report =
            DiagnosisReport::new(diagnosis, &self.begun, version).after(self.before.as_ref());
        let json = report.json().map_err(Failure::failed)?;
        let quiet = self.options.quiet;
        match self.options.json {
            _ if quiet => {}
            true => say(&json),
            false if self.options.details => say(&report.details(width())),
            false => say(&report.terminal(width())),
        }
        if let Some(folder) = &self.folder {
            folder.write(DIAGNOSIS, json.as_bytes())?;
            folder.write("report.md", report.markdown().as_bytes())?;
            folder.write("report.html", report.html().as_bytes())?;
            if !self.options.json && !quiet {
                say(&format!(
                    "\nreport: {}\n",
                    folder.file("report.html").display()
                ));
            }
        }
        if self.options.check {
            check(diagnosis)
        } else {
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Returns the diagnosis in a file, or in the directory of a report.
fn earlier(path: &Path) -> Result<Diagnosis, Failure> {
    let file = match path.is_dir() {
        true => path.join(DIAGNOSIS),
        false => path.to_owned(),
    };
    let refused = |why: String| Failure::refused(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(&file).map_err(|error| refused(error.to_string()))?;
    read_diagnosis(&text).map_err(|why| refused(format!("it is not a diagnosis: {why}")))
}

/// The exit code for `--check`. If the path is slow for an unknown reason, the command fails, because a
/// script must not mistake this for a path without a bottleneck.
fn check(diagnosis: &Diagnosis) -> Result<ExitCode, Failure> {
    match diagnosis.verdict {
        Verdict::Fine { .. } => Ok(ExitCode::SUCCESS),
        Verdict::HeldBack => Err(Failure::new(FailureKind::HeldBack, verdict(diagnosis))),
        Verdict::NotKnown { .. } | Verdict::Uncertain { .. } => {
            Err(Failure::failed(verdict(diagnosis)))
        }
    }
}
