//! How progress is shown, on standard error.

use std::io::{IsTerminal, stderr};
use std::time::Instant;

use bench_runner::progress::{Form, Progress};

use crate::output::remark;

/// How to show the progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProgressKind {
    /// A bar with rate and time left
    Bar,
    /// A line every five seconds
    Plain,
    /// A JSON object a line, every second
    Json,
    /// Nothing
    None,
}

/// What was asked for; else a bar where somebody sees it, and lines elsewhere.
pub(crate) fn kind(asked: Option<ProgressKind>, quiet: bool) -> ProgressKind {
    let usual = if stderr().is_terminal() { ProgressKind::Bar } else { ProgressKind::Plain };
    if quiet { ProgressKind::None } else { asked.unwrap_or(usual) }
}

/// Lines on standard error.
pub(crate) type Lines = Progress<fn(&str)>;

/// For storage that does not answer before anything is measured: lines, on a terminal too.
pub(crate) fn opening(kind: ProgressKind) -> Lines {
    let say: fn(&str) = if kind == ProgressKind::None { |_| {} } else { |line| remark(line) };
    let form = if kind == ProgressKind::Json { Form::Json } else { Form::Plain };
    Progress::new(form, Instant::now(), say).about("opening")
}

/// From now on.
pub(crate) fn lines(form: Form) -> Lines {
    Progress::new(form, Instant::now(), |line| remark(line))
}
