//! Recognises the content of a disk by its first two MiB and its last MiB: partition tables, file systems,
//! RAID members, disk images. A command that would overwrite a disk checks it first, and names the content
//! that would be lost ([`Overwritten`]).
//!
//! This crate evaluates only signatures at fixed offsets, and labels or UUIDs that identify the disk. It does
//! not mount file systems, and does not follow references. The caller asks the user for consent
//! ([`Consent`]). `signatures` lists the formats.
//!
//! ```
//! let mut disk = vec![0; 1 << 20];
//! assert_eq!(disk_contents::of_bytes(&disk, 512), None);
//!
//! disk[..4].copy_from_slice(b"XFSB");
//! disk[108..112].copy_from_slice(b"data");
//! let found = disk_contents::of_bytes(&disk, 512).expect("a file system");
//! assert_eq!(found.to_string(), "an XFS file system (label data)");
//! ```

mod signatures;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;

use block::{BlockDevice, DeviceError};

use signatures::{Ends, Recognised};

/// The recognised content, which is at least one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents(Vec<Recognised>);

/// Recognises the content of `device`. Returns `None` if the device begins and ends with zeros, or has no
/// blocks.
///
/// Reads at most 3 MiB.
///
/// # Errors
/// Errors of the device.
pub async fn contents(device: &dyn BlockDevice) -> Result<Option<Contents>, DeviceError> {
    Ok(recognised(&Ends::read(device).await?))
}

/// Returns the size of the file system on `device`, if its format is supported (ext2 to ext4, XFS) and
/// nothing else is recognised. (If there is also a partition table, the superblock may be left over from
/// earlier use.) The file system may be smaller than its disk.
///
/// # Errors
/// Errors of the device.
pub async fn file_system_bytes(device: &dyn BlockDevice) -> Result<Option<u64>, DeviceError> {
    Ok(file_system_bytes_of(&Ends::read(device).await?))
}

fn file_system_bytes_of(ends: &Ends) -> Option<u64> {
    match recognised(ends)?.0.as_slice() {
        [_] => signatures::file_system_bytes(ends),
        _ => None,
    }
}

/// Recognises the content of a device in memory, from all of its bytes. Its blocks have `block_bytes` bytes.
pub fn of_bytes(bytes: &[u8], block_bytes: u64) -> Option<Contents> {
    recognised(&Ends::new(bytes, block_bytes))
}

fn recognised(ends: &Ends) -> Option<Contents> {
    let found = signatures::found(ends);
    (!found.is_empty()).then_some(Contents(found))
}

impl Contents {
    /// Returns the container format, with its article, if the content is a disk image. The bytes of such an
    /// image are not those of the disk that it contains.
    pub fn disk_image(&self) -> Option<&'static str> {
        self.0
            .iter()
            .map(|found| found.what)
            .find(|what| what.ends_with(" image"))
    }
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, found) in self.0.iter().enumerate() {
            let last = index + 1 == self.0.len();
            f.write_str(match (index, last) {
                (0, _) => "",
                (_, true) => " and ",
                (_, false) => ", ",
            })?;
            write!(f, "{found}")?;
        }
        Ok(())
    }
}

/// Consent to the loss of data.
#[derive(Clone, Copy)]
pub enum Consent<'a> {
    /// The user gave consent beforehand.
    Given,
    /// Ask the user with this function. Its argument is a sentence that names the content that would be lost;
    /// the result is whether the user consents.
    Ask(&'a dyn Fn(&str) -> bool),
}

/// Storage that is about to be overwritten.
#[derive(Clone, Copy)]
pub struct Overwritten<'a> {
    /// The device.
    pub device: &'a dyn BlockDevice,
    /// The device's name for display.
    pub name: &'a dyn fmt::Display,
    /// The part that is overwritten, for display; `None` for the whole device.
    pub part: Option<&'a str>,
}

/// The reason why the device must not be overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The device with this name is write-protected.
    WriteProtected(String),
    /// The device has content, which the sentence names, and the user has not consented to its loss.
    Kept(String),
    /// The device with this name is unreadable.
    Unreadable(String, DeviceError),
}

impl Consent<'_> {
    /// Checks that the user consents to the loss of the content that `sentence` names.
    ///
    /// # Errors
    /// [`Refused::Kept`] without consent.
    pub fn to(self, sentence: String) -> Result<(), Refused> {
        match self {
            Consent::Ask(ask) if !ask(&sentence) => Err(Refused::Kept(sentence)),
            Consent::Given | Consent::Ask(_) => Ok(()),
        }
    }
}

impl Overwritten<'_> {
    /// Checks that the device is not write-protected, and that it is empty or the user consents to
    /// overwriting it.
    ///
    /// # Errors
    /// The reason why the device must not be overwritten.
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
        let part = self
            .part
            .map(|part| format!(", of which {part} would be overwritten"));
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
