//! Structured logs on standard error; standard output is for what a command answers.

use std::io::{self, IsTerminal};

use manage::config::{Log, LogFormat, LogTargets};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{self, FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::failure::Failure;

/// Quiet: what needs attention, who does what, and what is served.
const USUAL: &str = "warn,audit=info,manage=info";

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
    let LogTargets(targets) = filter(arguments, file)?;
    // A log that cannot be written says so where it cannot be written, and panics at that.
    let lines = fmt::layer().with_writer(io::stderr).log_internal_errors(false);
    let lines = match arguments.format.or(file.format).unwrap_or_default() {
        LogFormat::Text => {
            let format = fmt::format().with_timer(Milliseconds).with_ansi(has_colours());
            lines.with_ansi(has_colours()).event_format(Short(format)).boxed()
        }
        LogFormat::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(targets)).try_init().map_err(Failure::failed)
}

/// What is to be logged.
pub(crate) fn filter(arguments: &Log, file: &Log) -> Result<LogTargets, Failure> {
    let filter = arguments.filter.as_deref().or(file.filter.as_deref()).unwrap_or(USUAL);
    filter.parse().map_err(|error| Failure::refused(format!("cannot log `{filter}`: {error}")))
}

/// The time to milliseconds.
struct Milliseconds;

impl FormatTime for Milliseconds {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        write!(writer, "{}Z", time.get(..MILLISECONDS_END).unwrap_or(&time))
    }
}

/// `2026-11-25T16:15:40.123`
const MILLISECONDS_END: usize = 23;

/// Lines for people: a longer one is cut, and ends so. What comes first in a line is what matters most.
struct Short<F>(F);

/// With the end of the line.
const LINE_MAX: usize = 200;

impl<S, N, F> FormatEvent<S, N> for Short<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        match cut(&line) {
            None => writer.write_str(&line),
            Some(end) if line.contains(ESCAPE) => writeln!(writer, "{}…\u{1b}[0m", &line[..end]),
            Some(end) => writeln!(writer, "{}…", &line[..end]),
        }
    }
}

const ESCAPE: char = '\u{1b}';

/// Where a line that is too long ends; colours have no length.
fn cut(line: &str) -> Option<usize> {
    let (mut seen, mut in_colour, mut end) = (0, false, 0);
    for (at, letter) in line.char_indices() {
        match (in_colour, letter) {
            (false, ESCAPE) => in_colour = true,
            (true, 'm') => in_colour = false,
            (true, _) => {}
            (false, _) => seen += 1,
        }
        if seen == LINE_MAX - 1 && end == 0 {
            end = at;
        }
    }
    (seen > LINE_MAX).then_some(end)
}

/// Not where NO_COLOR says so (no-color.org).
fn has_colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_and_colours_have_no_length() {
        assert_eq!(cut(&format!("{}\n", "x".repeat(199))), None);
        assert_eq!(cut(&format!("{}\n", "x".repeat(200))), Some(198));
        assert_eq!(cut(&format!("{}\n", "é".repeat(200))), Some(2 * 198));
        assert_eq!(cut(&format!("\u{1b}[2m{}\u{1b}[0m\n", "x".repeat(199))), None);
    }
}
