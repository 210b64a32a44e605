//! Plain-text log lines.

use std::fmt::Debug;

use tracing::field::Field;
use tracing::{Event, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Format, Full, Writer, debug_fn};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{self, FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The time in milliseconds.
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

/// The format of a plain-text log line. A line that is too long is cut, and ends in `…`, so callers must put
/// the most important fields first.
pub struct LogLine(Format<Full, Milliseconds>);

impl LogLine {
    /// Creates the format, with or without colours.
    pub fn new(colours: bool) -> LogLine {
        LogLine(fmt::format().with_timer(Milliseconds).with_ansi(colours))
    }
}

/// The format of an event's fields in plain text: `key=value`, which programs can also parse. A value with
/// blanks, quotes or control characters is quoted, and `\` precedes characters that would end the value.
pub fn log_fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    debug_fn(field).delimited(" ")
}

fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let text = format!("{value:?}");
    if field.name() == "message" {
        // The message may contain text from a peer, which must not move the cursor.
        let is_kept = |letter: char| letter == '\n' || foreign::is_printable(letter);
        return text.chars().try_for_each(|letter| match is_kept(letter) {
            true => writer.write_char(letter),
            false => write!(writer, "{}", letter.escape_default()),
        });
    }
    match writer.has_ansi_escapes() {
        true => write!(
            writer,
            "\u{1b}[3m{}\u{1b}[0m\u{1b}[2m=\u{1b}[0m",
            field.name()
        )?,
        false => write!(writer, "{}=", field.name())?,
    }
    if is_word(&text) || is_quoted(&text) {
        writer.write_str(&text)
    } else {
        write!(writer, "{text:?}")
    }
}

fn is_word(text: &str) -> bool {
    let ends_word =
        |letter: char| letter == '"' || letter.is_whitespace() || !foreign::is_printable(letter);
    !text.is_empty() && !text.contains(ends_word)
}

/// Whether `text` is a single quoted text, in the format of `Debug`.
fn is_quoted(text: &str) -> bool {
    let Some(inner) = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
    else {
        return false;
    };
    let mut is_escaped = false;
    let ends_early = |letter: char| {
        let ends = !foreign::is_printable(letter) || (letter == '"' && !is_escaped);
        is_escaped = letter == '\\' && !is_escaped;
        ends
    };
    !inner.contains(ends_early) && !is_escaped
}

/// Minimum length of a cut line. The line is cut after the word or field that reaches this length, so that
/// `key=value` stays whole.
const LINE_MAX: usize = 200;
/// Maximum length of a cut line, in case its last field is longer than any field of Linerate.
const LINE_MOST: usize = 600;

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
        self.0
            .format_event(context, Writer::new(&mut line), event)?;
        match cut(&line) {
            None => writer.write_str(&line),
            Some(end) if line.contains(ESCAPE) => writeln!(writer, "{}…\u{1b}[0m", &line[..end]),
            Some(end) => writeln!(writer, "{}…", &line[..end]),
        }
    }
}

const ESCAPE: char = '\u{1b}';

/// Returns the position at which to cut a line that is too long. Colour codes do not count.
fn cut(line: &str) -> Option<usize> {
    let (mut seen, mut in_colour, mut in_quotes, mut is_escaped) = (0, false, false, false);
    let mut end = None;
    for (at, letter) in line.char_indices() {
        match (in_colour, letter) {
            (false, ESCAPE) => in_colour = true,
            (true, 'm') => in_colour = false,
            (true, _) => {}
            (false, _) => seen += 1,
        }
        in_quotes ^= letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        let is_between = letter == ' ' && !in_quotes;
        if end.is_none() && ((seen >= LINE_MAX && is_between) || seen == LINE_MOST) {
            end = Some(at);
        }
    }
    debug_assert!(
        end.is_none_or(|end| line.is_char_boundary(end)),
        "it is cut between letters"
    );
    // A cut at the end of the line would remove nothing.
    end.filter(|end| line[*end..].trim_end() != "")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// A log that a test reads.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Runs `work`. Returns the log lines that this thread wrote meanwhile.
    pub(crate) fn logged(work: impl FnOnce()) -> String {
        let written = Written::default();
        let writer = written.clone();
        let lines = fmt::layer()
            .with_writer(move || writer.clone())
            .with_ansi(false);
        let lines = lines
            .fmt_fields(log_fields())
            .event_format(LogLine::new(false));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), work);
        String::from_utf8(written.0.lock().expect("no panic").clone()).expect("text")
    }

    #[test]
    fn fields_can_be_taken_apart() {
        let line = logged(|| {
            let why = "closed by \"them\"\n";
            tracing::event!(tracing::Level::WARN, %why, peer = %"[::1]:7", name = "a b", empty = %"", forged = %"\u{202e}txt", count = 7, odd = %"\"a\" \"b\"", "ended\u{1b}[2J");
        });
        let expected = r#"ended\u{1b}[2J why="closed by \"them\"\n" peer=[::1]:7 name="a b" empty="" forged="\u{202e}txt" count=7 odd="\"a\" \"b\"""#;
        assert!(line.trim_end().ends_with(expected), "{line}");
    }

    #[test]
    fn what_is_in_quotes_already_gets_no_others() {
        for text in [r#""a b""#, r#""a \" b""#, r#""""#] {
            assert!(is_quoted(text), "{text}");
        }
        for text in [r#""a" "b""#, r#""a\""#, "a", "\"", "\"a\nb\""] {
            assert!(!is_quoted(text), "{text}");
        }
    }

    #[test]
    fn a_field_is_whole_or_left_out() {
        let name = format!("target=iqn.2026-01.io.linerate:{}", "x".repeat(190));
        let line = format!("{} {name} {name}\n", "y".repeat(180));
        assert_eq!(
            &line[..cut(&line).expect("a cut")],
            format!("{} {name}", "y".repeat(180))
        );
        let quoted = format!("why=\"{}\"", "a \\\" ".repeat(60));
        let line = format!("{quoted} peer=[::1]:7\n");
        assert_eq!(&line[..cut(&line).expect("a cut")], quoted);
        let whole = format!("{} {name}\n", "y".repeat(180));
        assert_eq!(cut(&whole), None);
    }

    #[test]
    fn a_long_line_is_cut_and_colours_have_no_length() {
        let (long, wide) = ("x".repeat(199), "é".repeat(199));
        assert_eq!(cut(&format!("{long}\n")), None);
        assert_eq!(cut(&format!("{long} y\n")), Some(199));
        assert_eq!(cut(&format!("{wide} y\n")), Some(2 * 199));
        assert_eq!(
            cut(&format!("\u{1b}[2m{}\u{1b}[0m y\n", "x".repeat(190))),
            None
        );
        assert_eq!(cut(&format!("{}\n", "x".repeat(1000))), Some(LINE_MOST - 1));
    }
}
