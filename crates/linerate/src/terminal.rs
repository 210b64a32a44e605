//! What is asked at the terminal: consent before something is lost, and secrets.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};

use backends::reservation;
use block::BlockDevice;
use contents::Consent;
use initiator::RemoteLun;

use crate::failure::Failure;
use crate::output::prompt;

/// Storage that a command is about to write over, whatever is there.
pub(crate) struct Overwritten<'a> {
    pub(crate) device: &'a dyn BlockDevice,
    /// Its place, for people.
    pub(crate) name: &'a dyn Display,
    /// The part that is written, for people, if it is not all of it.
    pub(crate) part: Option<String>,
    /// The LUN that it is, if reservations of other initiators are to be told beforehand.
    pub(crate) lun: Option<&'a RemoteLun>,
}

impl Overwritten<'_> {
    /// Whether that may be done: it is not write-protected, nobody has reserved it, and there is nothing on it, or it was
    /// said that it may be lost.
    pub(crate) async fn consent(&self, yes: bool) -> Result<(), Failure> {
        let Overwritten { device, name, ref part, lun } = *self;
        if let Some(lun) = lun.filter(|_| !device.profile().read_only) {
            reservation::check(lun, false, "reading is possible").await?;
        }
        let overwritten = contents::Overwritten { device, name, part: part.as_deref() };
        Ok(overwritten.consent(consent(yes)).await?)
    }
}

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
