//! The terminal: confirmation before data is lost, secrets, and the form of the progress.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, stderr};
use std::time::Instant;

use bench_runner::progress::{Form, Progress};
use disk_contents::Consent;

use crate::output::{prompt, remark};

pub(crate) use backends::Overwritten;

/// Consent given on the command line, or requested on the terminal. Without a terminal, it is refused.
pub(crate) fn consent(yes: bool) -> Consent<'static> {
    if yes { Consent::Given } else { Consent::Ask(&ask) }
}

/// Standard input may be the data, so the question is asked on the terminal.
fn ask(sentence: &str) -> bool {
    io::stderr().is_terminal() && answered(&format!("{sentence}. Overwrite? [y/N] ")).unwrap_or(false)
}

fn answered(question: &str) -> io::Result<bool> {
    prompt(question);
    let mut line = String::new();
    BufReader::new(File::open("/dev/tty")?).read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// A secret, without an echo, if there is a terminal.
pub(crate) fn secret(question: &str) -> Option<io::Result<String>> {
    io::stdin().is_terminal().then(|| rpassword::prompt_password(question))
}

/// The form of the progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProgressKind {
    /// A bar with rate and remaining time
    Bar,
    /// A line every five seconds
    Plain,
    /// A JSON object per line, every second
    Json,
    /// Nothing
    None,
}

/// The requested form; by default a bar on a terminal, and lines elsewhere.
pub(crate) fn kind(asked: Option<ProgressKind>, quiet: bool) -> ProgressKind {
    let usual = if stderr().is_terminal() { ProgressKind::Bar } else { ProgressKind::Plain };
    if quiet { ProgressKind::None } else { asked.unwrap_or(usual) }
}

/// Lines on standard error.
pub(crate) type Lines = Progress<fn(&str)>;

/// For unresponsive storage before the measurement: lines, even on a terminal.
pub(crate) fn opening(kind: ProgressKind) -> Lines {
    let say: fn(&str) = if kind == ProgressKind::None { |_| {} } else { |line| remark(line) };
    let form = if kind == ProgressKind::Json { Form::Json } else { Form::Plain };
    Progress::new(form, Instant::now(), say).about("opening")
}

/// From now on.
pub(crate) fn lines(form: Form) -> Lines {
    Progress::new(form, Instant::now(), |line| remark(line))
}
