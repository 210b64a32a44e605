//! Lines of the log for people.

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{self, FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The time to milliseconds.
#[derive(Debug)]
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

/// How a line of the log is written for people: one that is too long is cut, and ends in `…`. What comes first in a line is what
/// matters most.
pub struct LogLine(Format<Full, Milliseconds>);

impl LogLine {
    /// In colours or not.
    pub fn new(colours: bool) -> LogLine {
        LogLine(fmt::format().with_timer(Milliseconds).with_ansi(colours))
    }
}

/// With the end of the line.
const LINE_MAX: usize = 200;

impl<S, N> FormatEvent<S, N> for LogLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
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
