//! Recognises the content of a disk by its first two MiB and its last MiB: partition tables, file systems,
//! members of sets, disk images. A command that will overwrite a disk checks here first and names what would
//! be lost ([`Overwritten`]).
//!
//! Nothing is mounted or followed: only signatures at fixed offsets, and labels or UUIDs that identify the
//! disk, are read. The caller asks the user ([`Consent`]). Reading order: [`contents`], `ends`, `signatures`,
//! `partitions`, `sets`, `consent`.
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

mod consent;
mod ends;
mod partitions;
mod sets;
mod signatures;

use std::fmt;

use block::{BlockDevice, DeviceError};

use ends::Ends;

pub use consent::{Consent, Overwritten, Refused};

/// The recognised content; at least one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents(Vec<Recognised>);

/// One recognised item.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Recognised {
    /// With its article: "an ext4 file system".
    what: &'static str,
    detail: Option<Detail>,
}

/// A detail that identifies the item.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Detail {
    Partitions(usize),
    Label(String),
    /// Of which set this is a member.
    Set(String),
    Uuid([u8; 16]),
}

/// Recognises the content of `device`; `None` if it begins and ends with zeros or has no blocks.
///
/// Reads at most 3 MiB.
///
/// # Errors
/// Those of the device.
pub async fn contents(device: &dyn BlockDevice) -> Result<Option<Contents>, DeviceError> {
    Ok(recognised(&Ends::read(device).await?))
}

/// The bytes that the file system on `device` takes, if its length is known here (ext2 to ext4, XFS) and nothing else is recognised: a
/// superblock may be left over under a partition table. The file system may have been made smaller than its disk.
///
/// # Errors
/// Those of the device.
pub async fn file_system_bytes(device: &dyn BlockDevice) -> Result<Option<u64>, DeviceError> {
    Ok(file_system_bytes_of(&Ends::read(device).await?))
}

fn file_system_bytes_of(ends: &Ends) -> Option<u64> {
    match recognised(ends)?.0.as_slice() {
        [_] => signatures::file_system_bytes(ends),
        _ => None,
    }
}

/// Recognises the content of a device in memory, given all of its bytes, with blocks of `block_bytes`.
pub fn of_bytes(bytes: &[u8], block_bytes: u64) -> Option<Contents> {
    recognised(&Ends::new(bytes, block_bytes))
}

fn recognised(ends: &Ends) -> Option<Contents> {
    let systems = signatures::found(ends);
    let mut found = partitions::found(ends, signatures::in_the_boot_sector(ends));
    found.extend(systems);
    found.extend(sets::found(ends));
    if found.is_empty() && !ends.are_zero() {
        found.push(Recognised::new("data of an unknown kind"));
    }
    (!found.is_empty()).then_some(Contents(found))
}

impl Contents {
    /// The format of a disk image in a container, with its article: bytes of it are not those of the disk in it.
    pub fn disk_image(&self) -> Option<&'static str> {
        self.0.iter().map(|found| found.what).find(|what| what.ends_with(" image"))
    }
}

impl Recognised {
    fn new(what: &'static str) -> Recognised {
        Recognised { what, detail: None }
    }

    /// With its label, if it has one that can be read.
    fn labelled(what: &'static str, label: &[u8]) -> Recognised {
        Recognised { what, detail: readable(label).map(Detail::Label) }
    }
}

/// A label as people may see it: up to its first zero, nothing that moves a cursor, no spaces around it.
fn readable(label: &[u8]) -> Option<String> {
    let text = label.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let shown: String =
        text.trim().chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect();
    (!shown.is_empty()).then_some(shown)
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

impl fmt::Display for Recognised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        match &self.detail {
            None => Ok(()),
            Some(Detail::Partitions(1)) => f.write_str(" with 1 partition"),
            Some(Detail::Partitions(count)) => write!(f, " with {count} partitions"),
            Some(Detail::Label(label)) => write!(f, " (label {label})"),
            Some(Detail::Set(name)) => write!(f, " (of {name})"),
            Some(Detail::Uuid(uuid)) => {
                let number = u128::from_be_bytes(*uuid);
                let [b, c, d] = [80, 64, 48].map(|bits| number >> bits & 0xffff);
                let (a, e) = (number >> 96, number & 0xffff_ffff_ffff);
                write!(f, " (UUID {a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x})")
            }
        }
    }
}

#[cfg(test)]
mod tests;
