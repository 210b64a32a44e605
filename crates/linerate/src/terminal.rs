//! What is asked at the terminal: consent before something is lost, and secrets.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};

pub(crate) use backends::Overwritten;
use disk_contents::Consent;

use crate::output::prompt;

/// Consent that was given on the command line, or that the terminal is asked for. Everybody else is refused.
pub(crate) fn consent(yes: bool) -> Consent<'static> {
    if yes { Consent::Given } else { Consent::Ask(&ask) }
}

/// Standard input may be the data: it is the terminal that is asked.
fn ask(sentence: &str) -> bool {
    io::stderr().is_terminal() && answered(&format!("{sentence}. Overwrite? [y/N] ")).unwrap_or(false)
}

fn answered(question: &str) -> io::Result<bool> {
    prompt(question);
    let mut line = String::new();
    BufReader::new(File::open("/dev/tty")?).read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// A secret, without an echo, if somebody sits there.
pub(crate) fn secret(question: &str) -> Option<io::Result<String>> {
    io::stdin().is_terminal().then(|| rpassword::prompt_password(question))
}
