//! Consent to overwrite storage: what would be lost, and whether that was agreed to.

use std::error::Error;
use std::fmt;

use block::{BlockDevice, DeviceError};

use crate::contents;

/// Whether data may be lost.
#[derive(Clone, Copy)]
pub enum Consent<'a> {
    /// Given beforehand.
    Given,
    /// Asked by this function: it gets a sentence that names what would be lost, and returns whether it may
    /// be.
    Ask(&'a dyn Fn(&str) -> bool),
}

/// Storage that is about to be overwritten.
#[derive(Clone, Copy)]
pub struct Overwritten<'a> {
    /// The device.
    pub device: &'a dyn BlockDevice,
    /// Its place, for people.
    pub name: &'a dyn fmt::Display,
    /// The part that is written, for people, if it is not all of it.
    pub part: Option<&'a str>,
}

/// Why it must not be overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The device, by its name, is write-protected.
    WriteProtected(String),
    /// There is content, named by the sentence, and no consent.
    Kept(String),
    /// The device, by its name, cannot be read.
    Unreadable(String, DeviceError),
}

impl Consent<'_> {
    /// Whether what `sentence` names may be lost.
    ///
    /// # Errors
    /// [`Refused::Kept`] if it may not.
    pub fn to(self, sentence: String) -> Result<(), Refused> {
        match self {
            Consent::Ask(ask) if !ask(&sentence) => Err(Refused::Kept(sentence)),
            Consent::Given | Consent::Ask(_) => Ok(()),
        }
    }
}

impl Overwritten<'_> {
    /// Checks that it is not write-protected, and that it is empty or there is consent.
    ///
    /// # Errors
    /// What keeps it from being overwritten.
    pub async fn consent(&self, consent: Consent<'_>) -> Result<(), Refused> {
        let name = self.name.to_string();
        if self.device.profile().read_only {
            return Err(Refused::WriteProtected(name));
        }
        if matches!(consent, Consent::Given) {
            return Ok(());
        }
        let found = contents(self.device).await;
        let Some(found) = found.map_err(|error| Refused::Unreadable(name.clone(), error))? else {
            return Ok(());
        };
        let part = self.part.map(|part| format!(", of which {part} would be overwritten"));
        consent.to(format!("{found} is on {name}{}", part.unwrap_or_default()))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::WriteProtected(name) => write!(f, "{name} is write-protected"),
            Refused::Kept(sentence) => f.write_str(sentence),
            Refused::Unreadable(name, error) => write!(f, "cannot read {name}: {error}"),
        }
    }
}

impl Error for Refused {}
