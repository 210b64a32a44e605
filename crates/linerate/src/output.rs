//! Writes to standard output, which may be a closed pipe or a full disk.
//!
//! A closed pipe is not an error: `linerate serve | head` continues to serve, and nothing is reported. Any other
//! error is reported on standard error as soon as it happens. The command continues, because a server whose log is
//! on a full disk must keep serving. It eventually exits with the code of that error ([`error`]).

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::OnceLock;

use serde::Serialize;

use crate::failure::Failure;
pub(crate) use foreign::printable;

/// The first error of writing to standard output.
static ERROR: OnceLock<io::Error> = OnceLock::new();

/// Prints the text immediately.
pub(crate) fn say(text: &str) {
    let mut out = io::stdout().lock();
    note(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Records the outcome of writing to standard output by other means than [`say`].
pub(crate) fn note(written: io::Result<()>) {
    let Err(error) = written else { return };
    let sentence = format!("linerate: cannot write to standard output: {error}");
    if error.kind() != ErrorKind::BrokenPipe && ERROR.set(error).is_ok() {
        remark(sentence);
    }
}

/// The first error of writing to standard output, if there was one.
pub(crate) fn error() -> Option<&'static io::Error> {
    ERROR.get()
}

/// Prints a line in addition to the results, on standard error. Errors are ignored, because standard error
/// may be a file on a full disk.
pub(crate) fn remark(line: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Prints an error on standard error. With JSON, also prints it on standard output, so that a program need
/// not read standard error. A message may contain text from a target; its control characters are removed.
pub(crate) fn report(failure: &Failure) -> ExitCode {
    report_json(&failure.to_string(), failure.code());
    let lines: Vec<String> = failure.to_string().lines().map(printable).collect();
    remark(format_args!("linerate: {}", lines.join("\n")));
    ExitCode::from(failure.code())
}

/// The form of each result for programs.
#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u32,
    #[serde(flatten)]
    result: &'a T,
}

/// Prints a result for programs on one line, with the version of the JSON format.
pub(crate) fn say_json(result: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(&Versioned { version: 1, result }).map_err(Failure::failed)?;
    say(&(line + "\n"));
    Ok(())
}

/// Like [`say_json`], but prints a list under its name, on several lines.
pub(crate) fn say_json_list(name: &str, list: &impl Serialize) -> Result<(), Failure> {
    let result = BTreeMap::from([(name, list)]);
    let text = serde_json::to_string_pretty(&Versioned {
        version: 1,
        result: &result,
    });
    say(&(text.map_err(Failure::failed)? + "\n"));
    Ok(())
}

/// Whether the command line requests JSON. Words after `--` belong to another program.
pub(crate) fn wants_json() -> bool {
    std::env::args_os()
        .skip(1)
        .take_while(|word| word != "--")
        .any(|word| word == "--json")
}

/// Prints an error as a line of JSON, if the command line requests JSON.
pub(crate) fn report_json(error: &str, code: u8) {
    if wants_json() {
        say(&format!(
            "{}\n",
            serde_json::json!({ "version": 1, "error": error, "code": code })
        ));
    }
}

/// Prints a question on standard error. The user types the answer after it.
pub(crate) fn prompt(question: &str) {
    let _ = io::stderr().lock().write_all(question.as_bytes());
}

/// The number of columns of standard output; unlimited for a file.
pub(crate) fn width() -> usize {
    columns(std::io::stdout())
}

/// The number of columns of a stream; unlimited for a file.
pub(crate) fn columns(stream: impl AsFd) -> usize {
    let size = rustix::termios::tcgetwinsize(stream).ok();
    size.filter(|size| size.ws_col > 0)
        .map_or(1000, |size| usize::from(size.ws_col))
}
