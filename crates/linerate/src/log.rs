//! Writes structured logs on standard error. Standard output is for results.

use std::io::{self, IsTerminal};

use daemon::config::{Log, LogFormat, LogTargets};
use daemon::{LogLine, log_fields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::failure::Failure;

/// The default filter: only problems, the audit log, and the served volumes.
const USUAL: &str = "warn,audit=info,daemon=info";

/// The format of log lines: the values of `--log-format`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum LogLines {
    /// Text for people
    Text,
    /// JSON, one object per line
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

/// Starts logging. The command line overrides the configuration file.
pub(crate) fn begin(arguments: &Log, file: &Log) -> Result<(), Failure> {
    let filter = arguments
        .filter
        .as_deref()
        .or(file.filter.as_deref())
        .unwrap_or(USUAL);
    let LogTargets(targets) = filter
        .parse()
        .map_err(|error| Failure::refused(format!("cannot log `{filter}`: {error}")))?;
    // Do not report errors of the log itself: if the log cannot be written, the report could not be written
    // either, and would cause a panic.
    let lines = fmt::layer()
        .with_writer(io::stderr)
        .log_internal_errors(false);
    let lines = match arguments.format.or(file.format).unwrap_or_default() {
        LogFormat::Text => {
            let lines = lines.with_ansi(has_colours()).fmt_fields(log_fields());
            lines.event_format(LogLine::new(has_colours())).boxed()
        }
        LogFormat::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .try_init()
        .map_err(Failure::failed)
}

/// Whether to use colours. Respects NO_COLOR (no-color.org).
fn has_colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
