//! Asking before something is lost.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};

use block::BlockDevice;
use initiator::RemoteLun;

use super::{Contents, contents};
use crate::attach::reservation;
use crate::failure::{Failure, Kind};
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
        let name = self.name;
        if self.device.profile().read_only {
            return Err(Failure::new(Kind::WriteProtected, format_args!("{name} is write-protected")));
        }
        if let Some(lun) = self.lun {
            reservation::check(lun, false, "reading is possible").await?;
        }
        if yes {
            return Ok(());
        }
        let found = contents(self.device).await;
        let found = found.map_err(|error| Failure::device(format_args!("cannot read {name}"), error))?;
        let part = self.part.as_ref().map(|part| format!(", of which {part} would be overwritten"));
        consent(&format!("{name}{}", part.unwrap_or_default()), found.as_ref())
    }
}

/// Whether what is on `device` may be lost: yes if there is nothing, or if whoever sits at the terminal says so. Everybody
/// else is refused, and told what is there.
pub(super) fn consent(device: &str, contents: Option<&Contents>) -> Result<(), Failure> {
    contents.map_or(Ok(()), |contents| ask(&format!("{contents} is on {device}")))
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
    prompt(question);
    let mut line = String::new();
    BufReader::new(File::open("/dev/tty")?).read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
