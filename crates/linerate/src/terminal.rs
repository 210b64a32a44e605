//! Interaction on the terminal: confirmation before data is lost, prompts for secrets, and the form of the
//! progress display.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, stderr};
use std::time::Instant;

use bench_runner::progress::{Form, Progress};
use disk_contents::Consent;

use crate::output::{prompt, remark};

pub(crate) use backends::Overwritten;

/// Consent to overwrite data: given on the command line, or requested on the terminal. Without a terminal, it
/// is refused.
pub(crate) fn consent(yes: bool) -> Consent<'static> {
    if yes {
        Consent::Given
    } else {
        Consent::Ask(&ask)
    }
}

/// Asks on the terminal, because standard input may be the data.
fn ask(sentence: &str) -> bool {
    io::stderr().is_terminal()
        && answered(&format!("{sentence}. Overwrite? [y/N] ")).unwrap_or(false)
}

fn answered(question: &str) -> io::Result<bool> {
    prompt(question);
    let mut line = String::new();
    BufReader::new(File::open("/dev/tty")?).read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Prompts for a secret, without echo; `None` if there is no terminal.
pub(crate) fn secret(question: &str) -> Option<io::Result<String>> {
    io::stdin()
        .is_terminal()
        .then(|| rpassword::prompt_password(question))
}

/// The form of the progress display.
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

/// The requested form of the progress display. The default is a bar on a terminal, and lines otherwise.
pub(crate) fn kind(asked: Option<ProgressKind>, quiet: bool) -> ProgressKind {
    let usual = if stderr().is_terminal() {
        ProgressKind::Bar
    } else {
        ProgressKind::Plain
    };
    if quiet {
        ProgressKind::None
    } else {
        asked.unwrap_or(usual)
    }
}

/// Progress lines on standard error.
pub(crate) type Lines = Progress<fn(&str)>;

/// The display while storage is opened before the measurement, in case it is unresponsive: lines, even on a
/// terminal.
pub(crate) fn opening(kind: ProgressKind) -> Lines {
    let say: fn(&str) = if kind == ProgressKind::None {
        |_| {}
    } else {
        |line| remark(line)
    };
    let form = if kind == ProgressKind::Json {
        Form::Json
    } else {
        Form::Plain
    };
    Progress::new(form, Instant::now(), say).about("opening")
}

/// Creates a display of progress lines that starts now.
pub(crate) fn lines(form: Form) -> Lines {
    Progress::new(form, Instant::now(), |line| remark(line))
}
