//! The terminal: questions before something is lost, secrets, and which progress is shown.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, stderr};
use std::time::Instant;

use bench_runner::progress::{Form, Progress};
use disk_contents::Consent;

use crate::output::{prompt, remark};

pub(crate) use backends::Overwritten;

/// Consent that was given on the command line, or that the terminal is asked for. Everybody else is refused.
pub(crate) fn consent(yes: bool) -> Consent<'static> {
    if yes { Consent::Given } else { Consent::Ask(&ask) }
}

/// Standard input may be the data: it is the terminal that is asked.
fn ask(sentence: &str) -> bool {
    io::stderr().is_terminal() && answered(&format!("{sentence}. Overwrite? [y/N] ")).unwrap_or(false)
}

fn answered(question: &str) -> io::Result<bool> {
    prompt(question);
    let mut line = String::new();
    BufReader::new(File::open("/dev/tty")?).read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// A secret, without an echo, if somebody sits there.
pub(crate) fn secret(question: &str) -> Option<io::Result<String>> {
    io::stdin().is_terminal().then(|| rpassword::prompt_password(question))
}

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
