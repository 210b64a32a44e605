//! Standard output, which may be closed or full: `linerate serve | head` must serve on, and nobody misses the rest.

use std::fmt;
use std::io::{self, Write};

/// Says it, now.
pub(crate) fn say(text: &str) {
    let mut out = io::stdout().lock();
    // Whoever read has gone; there is nobody to tell.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Says a line beside the results, on standard error. That may be a file on a full disk, which is no reason to end.
pub(crate) fn remark(line: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Text of a peer's as a terminal may see it: nothing in it that moves a cursor or changes a colour.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}
