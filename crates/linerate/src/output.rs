//! Standard output, which may be closed or full.
//!
//! A reader that closes its pipe has what it wanted: `linerate serve | head` serves on, and nothing is reported. Any
//! other error is reported on standard error as soon as it happens. The command continues, since a server whose log is
//! on a full disk has to serve, and then ends with the exit code of that error ([`error`]).

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use crate::failure::Failure;
pub(crate) use stats::printable;

/// The first error of standard output.
static ERROR: OnceLock<io::Error> = OnceLock::new();

/// Says it, now.
pub(crate) fn say(text: &str) {
    let mut out = io::stdout().lock();
    note(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// The outcome of writing to standard output by other means than [`say`].
pub(crate) fn note(written: io::Result<()>) {
    let Err(error) = written else { return };
    let sentence = format!("linerate: cannot write to standard output: {error}");
    if error.kind() != ErrorKind::BrokenPipe && ERROR.set(error).is_ok() {
        remark(sentence);
    }
}

/// Why something that was said is not on standard output.
pub(crate) fn error() -> Option<&'static io::Error> {
    ERROR.get()
}

/// Says a line beside the results, on standard error. That may be a file on a full disk, which is no reason to end.
pub(crate) fn remark(line: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Says on standard error how a command failed. A sentence may hold a target's words, which are kept from moving the cursor.
pub(crate) fn report(failure: &Failure) -> ExitCode {
    let lines: Vec<String> = failure.to_string().lines().map(printable).collect();
    remark(format_args!("linerate: {}", lines.join("\n")));
    ExitCode::from(failure.code())
}

/// Asks, on standard error: the answer is typed behind it.
pub(crate) fn prompt(question: &str) {
    let _ = io::stderr().lock().write_all(question.as_bytes());
}
