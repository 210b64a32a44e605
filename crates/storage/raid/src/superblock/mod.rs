//! The superblock, which a set writes to each of its members, so that they are recognised by content and not
//! by order.
//!
//! `docs/raid-format.md` has the layout byte by byte. A superblock has two parts: the [`SetRecord`], which is the same
//! on all members, and the UUID of the member that contains it. Writes alternate between two slots, so a torn
//! write leaves the previous superblock intact.
//!
//! ```text
//!   0        64 KiB    128 KiB   192 KiB                  1 MiB or more
//!   | zeros  | slot 0  | slot 1  | bitmap, journal, …     | data …
//! ```
//!
//! This file contains the values and their rules; `bytes.rs` contains their on-disk format.

mod bytes;
#[cfg(test)]
pub(crate) mod tests;

use std::cmp::Ordering;
use std::fmt;

use block::{BlockDevice, BlockSize, Blocks, DeviceError, bytewise};
use bytes::BadBytes;
use derive_more::{Display, Error};

use crate::layout::{BadLayout, Layout, Level, MEMBERS_MAX};
use crate::lost::{LOST_RECORDED_MAX, LostBlocks};
use crate::member::{MemberState, MemberStates};

/// The length of a slot, and the offset of the first slot: a multiple of every block size.
pub const SLOT_BYTES: u64 = 64 << 10;

/// Data starts at a multiple of this, so that strips do not straddle the strips of an underlying layer.
pub const DATA_ALIGNMENT: u64 = 1 << 20;

/// Maximum length of a set's name in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Maximum number of spares of a set.
pub const SPARES_MAX: usize = 64;

/// Identifies a set, or a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    /// Displays the UUID in the form of RFC 9562.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) {
                "-"
            } else {
                ""
            };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A range of bytes of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// The first byte.
    pub offset: u64,
    /// The length; 0 if there is no such area.
    pub bytes: u64,
}

impl Area {
    /// Returns the end of the area, or `None` if it is beyond the address space.
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.bytes)
    }
}

/// The areas of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas {
    /// The strips.
    pub data: Area,
    /// The journal. If the set has a journal device, the area is on that device. Members then have the same
    /// area, unused and in reserve.
    pub journal: Area,
    /// The bitmap of stripes that may be inconsistent after a crash.
    pub bitmap: Area,
    /// Checksums of the data blocks.
    pub checksums: Area,
}

impl Areas {
    /// Lays out a member of `member_bytes` with the given sizes of the journal, the bitmap and the checksums.
    /// These follow the slots, each at a multiple of [`SLOT_BYTES`]; the data is last.
    pub fn plan(
        member_bytes: u64,
        journal_bytes: u64,
        bitmap_bytes: u64,
        checksums_bytes: u64,
    ) -> Option<Areas> {
        let mut next = SLOTS_END;
        let mut area = |bytes: u64| {
            let area = Area {
                offset: next,
                bytes: bytes.checked_next_multiple_of(SLOT_BYTES)?,
            };
            next = area.end()?;
            Some(if bytes == 0 { Area::default() } else { area })
        };
        let (bitmap, journal, checksums) = (
            area(bitmap_bytes)?,
            area(journal_bytes)?,
            area(checksums_bytes)?,
        );
        let offset = next.checked_next_multiple_of(DATA_ALIGNMENT)?;
        let data = Area {
            offset,
            bytes: member_bytes.checked_sub(offset)? & !(SLOT_BYTES - 1),
        };
        (data.bytes > 0).then_some(Areas {
            data,
            journal,
            bitmap,
            checksums,
        })
    }

    fn each(&self) -> [Area; 4] {
        [self.data, self.journal, self.bitmap, self.checksums]
    }

    /// Returns the minimum length of the journal device in bytes.
    pub fn journal_end(&self) -> u64 {
        self.journal.end().unwrap_or(u64::MAX).max(SLOTS_END)
    }

    /// Returns the minimum length of a member in bytes. The record must have been checked.
    pub fn end(&self) -> u64 {
        self.each()
            .iter()
            .filter_map(|area| area.end())
            .max()
            .unwrap_or(0)
    }
}

/// A member as recorded by its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// The member's UUID. A disk that replaces another one gets a new UUID.
    pub uuid: Uuid,
    /// The member's state.
    pub state: MemberState,
    /// For a failed member, the generation of the first record that marks it failed; 0 if unknown. The
    /// records on the member itself are older, unless the member has since been used without this set.
    pub failed_in: u64,
}

impl MemberRecord {
    /// Creates the record of a member that has not failed, or has failed at an unknown time.
    pub fn new(uuid: Uuid, state: MemberState) -> MemberRecord {
        MemberRecord {
            uuid,
            state,
            failed_in: 0,
        }
    }
}

/// The record of the latest scrub. An unfinished scrub resumes after the recorded stripes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecord {
    /// Whether the scrub rewrites inconsistent strips.
    pub repairs: bool,
    /// Whether the whole set has been compared.
    pub has_ended: bool,
    /// Number of stripes compared, starting with the first.
    pub stripes: u64,
    /// Number of these stripes that could not be compared, because a member does not have its strip.
    pub degraded: u64,
    /// Number of stripes with unreadable strips.
    pub unreadable: u64,
    /// Number of stripes with inconsistent strips.
    pub mismatches: u64,
    /// Number of unreadable or inconsistent stripes that were repaired.
    pub repaired: u64,
    /// Number of checksum mismatches of each member.
    pub wrong_blocks: Vec<u32>,
}

/// The record of a set, which is the same on all members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetRecord {
    /// The UUID of the set.
    pub uuid: Uuid,
    /// The display name of the set: at most [`NAME_BYTES_MAX`] bytes, without control characters.
    pub name: String,
    /// A number that increases with every record. Of two records of a set, the one with the higher number is
    /// newer.
    pub generation: u64,
    /// The RAID level.
    pub level: Level,
    /// Length of a strip.
    pub strip_bytes: u64,
    /// Block size of the set and of its members.
    pub block_size: BlockSize,
    /// The areas, which are the same on all members.
    pub areas: Areas,
    /// The UUID of the separate device with the journal, if there is one.
    pub journal_device: Option<Uuid>,
    /// Number of members that have a copy of the journal and of the bitmap, counted from the first member. On
    /// the other members, these areas are unused.
    pub area_copies: u16,
    /// Number of stripes per bit of the bitmap.
    pub region_stripes: u64,
    /// The generation of a record that all in-sync members had before the set was last put into use. A disk
    /// with an older record is an old copy of a member.
    pub in_use_from: u64,
    /// If a member that is not in sync has a superblock of this generation or a newer one, the second bitmap
    /// contains all regions that the member has missed. 0 means that the bitmap is incomplete.
    pub missed_from: u64,
    /// Whether the set was closed with this record, so that no stripe is incomplete.
    pub clean: bool,
    /// The members, in the order of the layout.
    pub members: Vec<MemberRecord>,
    /// Disks that can replace a member.
    pub spares: Vec<Uuid>,
    /// The latest scrub.
    pub scrub: Option<ScrubRecord>,
    /// The lost blocks of members.
    pub lost: LostBlocks,
}

/// A superblock: the set's record, as stored on one of its disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The record of the set.
    pub set: SetRecord,
    /// The UUID of the member, spare or journal device that contains the superblock.
    pub member: Uuid,
}

/// The reason why a record is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum BadRecord {
    /// The number of members, the strip size or another size is invalid.
    #[display("{_0}")]
    Layout(#[error(not(source))] BadLayout),
    /// The data does not start at a multiple of [`DATA_ALIGNMENT`].
    #[display("the data begins at byte {_0}, which is not a multiple of 1 MiB")]
    DataAlignment(#[error(not(source))] u64),
    /// An area overlaps the slots or another area, is not aligned to blocks, or exceeds the address space.
    #[display("an area of {} bytes at byte {} is not valid", _0.bytes, _0.offset)]
    Area(#[error(not(source))] Area),
    /// A UUID appears twice.
    #[display("{_0} is in the set twice")]
    SameMember(#[error(not(source))] Uuid),
    /// The UUID does not belong to a disk of the set.
    #[display("{_0} is not in the set")]
    NotInSet(#[error(not(source))] Uuid),
    /// The name is too long, or contains control characters.
    #[display("a name has at most {NAME_BYTES_MAX} bytes and no control characters")]
    Name,
    /// All copies of the journal or bitmap could be lost while the set continues.
    #[display(
        "the set cannot have {_0} copies of the journal or bitmap: too few, or more than members"
    )]
    AreaCopies(#[error(not(source))] u16),
    /// The journal device has no area for the journal, or the level has no journal.
    #[display(
        "there is a journal device without an area for the journal, or the level has no journal"
    )]
    JournalDevice,
    /// Lost blocks belong to an unknown member or are beyond its data, or there are more extents than fit in
    /// a record.
    #[display("the list of lost blocks is not valid")]
    LostBlocks,
    /// There are too many spares.
    #[display("a set has at most {SPARES_MAX} spares")]
    TooManySpares,
}

impl SetRecord {
    /// Returns the layout.
    ///
    /// # Errors
    /// The layout is invalid.
    pub fn layout(&self) -> Result<Layout, BadLayout> {
        let blocks = Blocks(self.areas.data.bytes >> self.block_size.shift());
        Layout::new(
            self.level,
            self.members.len(),
            self.strip_bytes,
            self.block_size,
            blocks,
        )
    }

    /// Returns the states of the members, in order.
    pub fn states(&self) -> MemberStates {
        let members = self.members.iter().map(|member| member.state).collect();
        MemberStates {
            members,
            lost: self.lost.clone(),
        }
    }

    /// Checks the rules of a record.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check(&self) -> Result<(), BadRecord> {
        self.layout().map_err(BadRecord::Layout)?;
        if !self.areas.data.offset.is_multiple_of(DATA_ALIGNMENT) {
            return Err(BadRecord::DataAlignment(self.areas.data.offset));
        }
        self.check_areas()?;
        let member_blocks = self.areas.data.bytes >> self.block_size.shift();
        let is_there = |(member, blocks): (usize, std::ops::Range<u64>)| {
            member < self.members.len() && blocks.end <= member_blocks
        };
        if self.lost.extents() > LOST_RECORDED_MAX || !self.lost.iter().all(is_there) {
            return Err(BadRecord::LostBlocks);
        }
        if self.name.len() > NAME_BYTES_MAX || self.name.chars().any(char::is_control) {
            return Err(BadRecord::Name);
        }
        if self.spares.len() > SPARES_MAX {
            return Err(BadRecord::TooManySpares);
        }
        let copies = usize::from(self.area_copies);
        // If there is a journal device, the journal areas of members are in reserve.
        let needs_copies = self.areas.bitmap.bytes > 0 || self.areas.journal.bytes > 0;
        if self.journal_device.is_some()
            && (self.level.parity_strips() == 0 || self.areas.journal.bytes == 0)
        {
            return Err(BadRecord::JournalDevice);
        }
        if copies > self.members.len()
            || (needs_copies && copies < area_copies(self.level, self.members.len()))
        {
            return Err(BadRecord::AreaCopies(self.area_copies));
        }
        let mut uuids: Vec<Uuid> = self.uuids().collect();
        uuids.sort_unstable();
        match uuids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(BadRecord::SameMember(pair[0])),
            None => Ok(()),
        }
    }

    fn check_areas(&self) -> Result<(), BadRecord> {
        let mut areas = self.areas.each();
        areas.sort_unstable_by_key(|area| area.offset);
        let mut free = SLOTS_END;
        for area in areas.into_iter().filter(|area| area.bytes > 0) {
            let end = area.end().filter(|end| *end <= 1 << 63);
            let is_whole = self.block_size.exact(area.offset | area.bytes).is_some();
            match end.filter(|_| is_whole && area.offset >= free) {
                Some(end) => free = end,
                None => return Err(BadRecord::Area(area)),
            }
        }
        Ok(())
    }

    /// Returns the minimum length of a disk of the set in bytes.
    pub fn needed_bytes(&self, disk: Uuid) -> u64 {
        if self.journal_device == Some(disk) {
            self.areas.journal_end()
        } else {
            self.areas.end()
        }
    }

    /// Returns the UUIDs of members, spares and the journal device.
    pub fn uuids(&self) -> impl Iterator<Item = Uuid> {
        let members = self.uuids_of_members();
        members
            .chain(self.spares.iter().copied())
            .chain(self.journal_device)
    }

    /// Returns the UUIDs of the members, in order.
    pub(crate) fn uuids_of_members(&self) -> impl Iterator<Item = Uuid> {
        self.members.iter().map(|member| member.uuid)
    }

    /// Returns the next record of the set, with new states.
    #[must_use]
    pub fn next(&self, states: &MemberStates, clean: bool) -> SetRecord {
        let lost = states.lost.clone();
        debug_assert_eq!(states.members.len(), self.members.len());
        let mut next = SetRecord {
            generation: self.generation + 1,
            clean,
            lost,
            ..self.clone()
        };
        for (member, state) in next.members.iter_mut().zip(&states.members) {
            member.failed_in = match (*state, member.state) {
                (MemberState::Failed, MemberState::Failed) => member.failed_in,
                (MemberState::Failed, _) => next.generation,
                _ => 0,
            };
            member.state = *state;
        }
        if !next.states().lacking().contains(&true) {
            next.missed_from = 0;
        }
        next
    }

    /// Whether an out-of-sync member has missed only regions in the second bitmap, according to the
    /// superblock on its disk. Returns false if the member was used without this set since it left. Its
    /// superblock is then newer than the last one that the set wrote to it, or marks a member as failed that
    /// has not failed.
    pub fn can_readd(&self, member: usize, found: &Superblock) -> bool {
        let Some(record) = self
            .members
            .get(member)
            .filter(|record| record.uuid == found.member)
        else {
            return false;
        };
        let state = |uuid: Uuid| {
            found
                .set
                .members
                .iter()
                .find(|other| other.uuid == uuid)
                .map(|it| it.state)
        };
        let was_whole = match state(found.member) {
            Some(MemberState::InSync) => true,
            Some(MemberState::Rebuilding { .. }) => found.set.missed_from > 0,
            Some(MemberState::Failed) | None => false,
        };
        let last = match record.state {
            MemberState::Failed => record.failed_in.saturating_sub(1),
            MemberState::Rebuilding { .. } => self.generation,
            MemberState::InSync => return false,
        };
        let has_denied = |other: &MemberRecord| {
            other.state == MemberState::InSync && state(other.uuid) == Some(MemberState::Failed)
        };
        found.set.uuid == self.uuid
            && self.missed_from > 0
            && (self.missed_from..=last).contains(&found.set.generation)
            && was_whole
            && !self.members.iter().any(has_denied)
    }
}

/// Returns the number of copies of a journal or bitmap, chosen so that a copy survives whenever the set's
/// data does. The copies are on adjacent members, which in RAID 10 have the copies of a strip.
pub fn area_copies(level: Level, members: usize) -> usize {
    match level {
        Level::Raid0 | Level::Raid1 => members,
        Level::Raid5 | Level::Raid10 => 2,
        Level::Raid6 => 3,
    }
}

const _: () = assert!(
    bytes::bytes_max() <= SLOT_BYTES as usize,
    "the longest superblock fits its slot"
);
const _: () = assert!(MEMBERS_MAX <= u16::MAX as usize);

/// End of the second slot. Areas follow it.
pub const SLOTS_END: u64 = 3 * SLOT_BYTES;

/// One of the two slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The first slot.
    First,
    /// The second slot.
    Second,
}

impl Slot {
    /// Returns the offset of the slot's first byte on the member.
    pub fn offset(self) -> u64 {
        match self {
            Slot::First => SLOT_BYTES,
            Slot::Second => 2 * SLOT_BYTES,
        }
    }

    /// Returns the other slot.
    #[must_use]
    pub fn other(self) -> Slot {
        match self {
            Slot::First => Slot::Second,
            Slot::Second => Slot::First,
        }
    }
}

/// The reason why a device is not a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum NoSuperblock {
    /// Neither slot starts like a superblock, so the device is empty or used for something else.
    #[display("it has no Linerate RAID superblock")]
    Foreign,
    /// The device is shorter than the slots.
    #[display("it has {_0} bytes, and the superblocks of a member end at {SLOTS_END}")]
    TooSmall(#[error(not(source))] u64),
    /// A newer version of Linerate wrote the superblock.
    #[display("a newer version of Linerate wrote its superblock (format {_0}); use that version")]
    NewerVersion(#[error(not(source))] u32),
    /// Neither slot contains a complete superblock.
    #[display("both copies of its superblock are damaged; replace it as a failed member")]
    Torn,
    /// There is a complete superblock whose record breaks a rule.
    #[display("its superblock is intact but invalid: {_0}")]
    Wrong(#[error(not(source))] BadRecord),
    /// There is a complete superblock with an invalid value.
    #[display("its superblock is intact but invalid: unknown value at byte {_0}")]
    WrongValue(#[error(not(source))] usize),
    /// The slots belong to different sets or members.
    #[display("its two superblocks belong to different sets or members: it is a partial copy")]
    Contradictory,
    /// The device could not be read.
    #[display("it could not be read: {_0}")]
    Unreadable(#[error(not(source))] DeviceError),
}

/// Reads the newer superblock of a device. Also returns its slot.
///
/// # Errors
/// The device is not a member, or its slots contradict each other.
pub async fn read(device: &dyn BlockDevice) -> Result<(Superblock, Slot), NoSuperblock> {
    let bytes = device.geometry().bytes();
    if bytes < SLOTS_END {
        return Err(NoSuperblock::TooSmall(bytes));
    }
    let both = bytewise::read(device, SLOT_BYTES..SLOTS_END)
        .await
        .map_err(NoSuperblock::Unreadable)?;
    let (first, second) = both.split_at(SLOT_BYTES as usize);
    newer(first, second)
}

/// Returns the superblock in the newer of two slots, and the slot.
///
/// # Errors
/// Neither slot contains a superblock, or they contradict each other.
pub fn newer(first: &[u8], second: &[u8]) -> Result<(Superblock, Slot), NoSuperblock> {
    match (Superblock::parse(first), Superblock::parse(second)) {
        (Ok(first), Ok(second)) => {
            let same_member = first.member == second.member && first.set.uuid == second.set.uuid;
            // Writes alternate between the slots, each with a higher generation.
            match first.set.generation.cmp(&second.set.generation) {
                Ordering::Greater if same_member => Ok((first, Slot::First)),
                Ordering::Less if same_member => Ok((second, Slot::Second)),
                _ => Err(NoSuperblock::Contradictory),
            }
        }
        (Err(BadBytes::Version(version)), _) | (_, Err(BadBytes::Version(version))) => {
            Err(NoSuperblock::NewerVersion(version))
        }
        // Intact bytes with an invalid record were not torn. Their meaning is unknown, and the superblock in
        // the other slot may be older.
        (Err(BadBytes::Record(bad)), _) | (_, Err(BadBytes::Record(bad))) => {
            Err(NoSuperblock::Wrong(bad))
        }
        (Err(BadBytes::Value(at)), _) | (_, Err(BadBytes::Value(at))) => {
            Err(NoSuperblock::WrongValue(at))
        }
        (Ok(one), Err(BadBytes::NoMagic | BadBytes::Checksum)) => Ok((one, Slot::First)),
        (Err(BadBytes::NoMagic | BadBytes::Checksum), Ok(one)) => Ok((one, Slot::Second)),
        (Err(BadBytes::NoMagic), Err(BadBytes::NoMagic)) => Err(NoSuperblock::Foreign),
        (
            Err(BadBytes::NoMagic | BadBytes::Checksum),
            Err(BadBytes::NoMagic | BadBytes::Checksum),
        ) => Err(NoSuperblock::Torn),
    }
}
