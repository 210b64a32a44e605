//! Structured logs on standard error; standard output is for what a command answers.

use std::io::{self, IsTerminal};

use manage::config::{Log, LogFormat};
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// Quiet: what needs attention, and one line for each login and logout.
const USUAL: &str = "warn,linerate::login=info";

/// How log lines are written: the words of `--log-format`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum LogLines {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl From<LogLines> for LogFormat {
    fn from(lines: LogLines) -> LogFormat {
        match lines {
            LogLines::Text => LogFormat::Text,
            LogLines::Json => LogFormat::Json,
        }
    }
}

/// Begins to log. What the command line says goes before what the file says.
pub(crate) fn begin(arguments: &Log, file: &Log) -> Result<(), Failure> {
    let filter = arguments.filter.as_deref().or(file.filter.as_deref()).unwrap_or(USUAL);
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failure::refused(format!(
            "cannot log `{filter}`: {error}; write one such as info or warn,target=debug"
        ))
    })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // A log that cannot be written says so where it cannot be written, and panics at that.
    let lines = lines.log_internal_errors(false);
    let begun = match arguments.format.or(file.format).unwrap_or_default() {
        LogFormat::Text => lines.with_ansi(has_colours()).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    begun.map_err(Failure::failed)
}

/// Not where NO_COLOR says so (no-color.org).
fn has_colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
