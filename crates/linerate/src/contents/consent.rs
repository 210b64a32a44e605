//! Asking before something is lost.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};

use super::Contents;
use crate::failure::Failure;

/// Whether what is on `device` may be overwritten: yes if there is nothing, if the command line said so, or if
/// whoever sits at the terminal does. Everybody else is refused, and told what is there.
pub(crate) fn consent(device: &str, contents: Option<&Contents>, yes: bool) -> Result<(), Failure> {
    match contents {
        Some(contents) if !yes => ask(&format!("{contents} is on {device}")),
        _ => Ok(()),
    }
}

/// The same for anything else that would be lost, told in a sentence.
pub(crate) fn ask(sentence: &str) -> Result<(), Failure> {
    if io::stderr().is_terminal() && answered(&format!("{sentence}. Overwrite? [y/N] ")).unwrap_or(false) {
        return Ok(());
    }
    Err(Failure::refused(format!("{sentence}; say --yes to overwrite it")))
}

/// Standard input may be the data: it is the terminal that is asked.
fn answered(question: &str) -> io::Result<bool> {
    eprint!("{question}");
    let mut line = String::new();
    BufReader::new(File::open("/dev/tty")?).read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
