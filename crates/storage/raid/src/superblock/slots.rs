//! The two slots of a member.

use std::cmp::Ordering;

use block::{BlockDevice, DeviceError, bytewise};
use derive_more::{Display, Error};

use super::bytes::BadBytes;
use super::{BadRecord, SLOT_BYTES, Superblock};

/// Where the second slot ends: areas lie behind it.
pub const SLOTS_END: u64 = 3 * SLOT_BYTES;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The one in front.
    First,
    /// The one behind it.
    Second,
}

impl Slot {
    /// Its first byte on the member.
    pub fn offset(self) -> u64 {
        match self {
            Slot::First => SLOT_BYTES,
            Slot::Second => 2 * SLOT_BYTES,
        }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Slot {
        match self {
            Slot::First => Slot::Second,
            Slot::Second => Slot::First,
        }
    }
}

/// Why a device is not a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum NoSuperblock {
    /// Neither slot begins as a superblock: the device is empty, or somebody else's.
    #[display("it has no RAID superblock of linerate")]
    Foreign,
    /// The device is shorter than the slots.
    #[display("it has {_0} bytes, and the superblocks of a member end at {SLOTS_END}")]
    TooSmall(#[error(not(source))] u64),
    /// Written by a newer linerate.
    #[display("its superblock has version {_0}, which a newer linerate wrote; use that one")]
    NewerVersion(#[error(not(source))] u32),
    /// No slot has a whole superblock.
    #[display("both copies of its superblock are damaged; replace it as a failed member")]
    Torn,
    /// A whole superblock that breaks a rule.
    #[display("its superblock is whole, and wrong: {_0}")]
    Wrong(#[error(not(source))] BadRecord),
    /// A whole superblock with a number that has no meaning.
    #[display("its superblock is whole, and wrong: the number at byte {_0} has no meaning")]
    WrongValue(#[error(not(source))] usize),
    /// The slots are of different sets, or members.
    #[display("its two superblocks are of different sets or members: it was copied over in part")]
    Contradictory,
    /// The device could not be read.
    #[display("it could not be read: {_0}")]
    Unreadable(#[error(not(source))] DeviceError),
}

/// Reads the newer superblock of a device, and tells in which slot it is.
///
/// # Errors
/// It is no member, or nobody can tell which one.
pub async fn read(device: &dyn BlockDevice) -> Result<(Superblock, Slot), NoSuperblock> {
    let bytes = device.geometry().bytes();
    if bytes < SLOTS_END {
        return Err(NoSuperblock::TooSmall(bytes));
    }
    let both = bytewise::read(device, SLOT_BYTES..SLOTS_END).await.map_err(NoSuperblock::Unreadable)?;
    let (first, second) = both.split_at(SLOT_BYTES as usize);
    newer(first, second)
}

/// The newer of two slots.
///
/// # Errors
/// Neither has one, or they contradict each other.
pub fn newer(first: &[u8], second: &[u8]) -> Result<(Superblock, Slot), NoSuperblock> {
    match (Superblock::parse(first), Superblock::parse(second)) {
        (Ok(first), Ok(second)) => {
            let same_member = first.member == second.member && first.set.uuid == second.set.uuid;
            // The slots are written by turns, each with a later generation.
            match first.set.generation.cmp(&second.set.generation) {
                Ordering::Greater if same_member => Ok((first, Slot::First)),
                Ordering::Less if same_member => Ok((second, Slot::Second)),
                _ => Err(NoSuperblock::Contradictory),
            }
        }
        (Err(BadBytes::Version(version)), _) | (_, Err(BadBytes::Version(version))) => {
            Err(NoSuperblock::NewerVersion(version))
        }
        // Whole bytes that say nonsense were not torn: what they meant is unknown, and the other copy is older.
        (Err(BadBytes::Record(bad)), _) | (_, Err(BadBytes::Record(bad))) => Err(NoSuperblock::Wrong(bad)),
        (Err(BadBytes::Value(at)), _) | (_, Err(BadBytes::Value(at))) => Err(NoSuperblock::WrongValue(at)),
        (Ok(one), Err(BadBytes::NoMagic | BadBytes::Checksum)) => Ok((one, Slot::First)),
        (Err(BadBytes::NoMagic | BadBytes::Checksum), Ok(one)) => Ok((one, Slot::Second)),
        (Err(BadBytes::NoMagic), Err(BadBytes::NoMagic)) => Err(NoSuperblock::Foreign),
        (Err(BadBytes::NoMagic | BadBytes::Checksum), Err(BadBytes::NoMagic | BadBytes::Checksum)) => {
            Err(NoSuperblock::Torn)
        }
    }
}
