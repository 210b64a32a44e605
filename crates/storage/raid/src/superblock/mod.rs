//! The record that a set writes to each of its members, so that they are recognised by content and not by order.
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
//! This file has the values and their rules; `bytes.rs` has their form on a disk.

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

/// The length of a slot, and the offset of the first one. A multiple of every block size.
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
    /// In the form of RFC 9562.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
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

/// Bytes of a member, from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// The first byte.
    pub offset: u64,
    /// Its length; 0 if there is no such area.
    pub bytes: u64,
}

impl Area {
    /// The end of the area, or `None` beyond the address space.
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.bytes)
    }
}

/// The areas of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas {
    /// The strips.
    pub data: Area,
    /// The journal. If the set has a journal device, the area is on that device; members have the same area,
    /// in reserve and unused.
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
            let area = Area { offset: next, bytes: bytes.checked_next_multiple_of(SLOT_BYTES)? };
            next = area.end()?;
            Some(if bytes == 0 { Area::default() } else { area })
        };
        let (bitmap, journal, checksums) =
            (area(bitmap_bytes)?, area(journal_bytes)?, area(checksums_bytes)?);
        let offset = next.checked_next_multiple_of(DATA_ALIGNMENT)?;
        let data = Area { offset, bytes: member_bytes.checked_sub(offset)? & !(SLOT_BYTES - 1) };
        (data.bytes > 0).then_some(Areas { data, journal, bitmap, checksums })
    }

    fn each(&self) -> [Area; 4] {
        [self.data, self.journal, self.bitmap, self.checksums]
    }

    /// Minimum length of the journal device in bytes.
    pub fn journal_end(&self) -> u64 {
        self.journal.end().unwrap_or(u64::MAX).max(SLOTS_END)
    }

    /// Minimum length of a member in bytes. The record must have been checked.
    pub fn end(&self) -> u64 {
        self.each().iter().filter_map(|area| area.end()).max().unwrap_or(0)
    }
}

/// A member as recorded by its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// Its UUID. A disk that replaces another gets its own.
    pub uuid: Uuid,
    /// Its state.
    pub state: MemberState,
    /// For a failed member, the generation of the first record that marks it failed. Its own records are
    /// older, unless it was used without this set since. 0 if unknown.
    pub failed_in: u64,
}

impl MemberRecord {
    /// A member that has not failed, or failed at an unknown time.
    pub fn new(uuid: Uuid, state: MemberState) -> MemberRecord {
        MemberRecord { uuid, state, failed_in: 0 }
    }
}

/// The latest scrub, as recorded: an unfinished scrub resumes after its recorded stripes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecord {
    /// Inconsistent strips are rewritten.
    pub repairs: bool,
    /// The whole set was compared.
    pub has_ended: bool,
    /// Stripes compared, starting with the first.
    pub stripes: u64,
    /// Of these, stripes with nothing to compare, because a member does not have its strip.
    pub degraded: u64,
    /// Stripes with unreadable strips.
    pub unreadable: u64,
    /// Stripes with inconsistent strips.
    pub mismatches: u64,
    /// Of the last two, the number repaired.
    pub repaired: u64,
    /// Checksum mismatches of each member.
    pub wrong_blocks: Vec<u32>,
}

/// What all members of a set have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetRecord {
    /// The set.
    pub uuid: Uuid,
    /// Its display name: at most [`NAME_BYTES_MAX`] bytes, without control characters.
    pub name: String,
    /// Increases with every record: of two records of a set, the higher one is newer.
    pub generation: u64,
    /// Its redundancy.
    pub level: Level,
    /// Length of a strip.
    pub strip_bytes: u64,
    /// Block size of the set and of its members.
    pub block_size: BlockSize,
    /// The same on all members.
    pub areas: Areas,
    /// The device with the journal, if it is not a member.
    pub journal_device: Option<Uuid>,
    /// Number of members, from the first on, with a copy of the journal and of the bitmap. On the others the
    /// areas are unused.
    pub area_copies: u16,
    /// Stripes per bit of the bitmap.
    pub region_stripes: u64,
    /// All members that are in sync had the record of this generation before the set was last taken into use. One with an older
    /// record is an old copy of a member.
    pub in_use_from: u64,
    /// If a member that is not in sync has a superblock of this generation or a newer one, the second bitmap
    /// has all regions that it missed. 0: the bitmap is incomplete.
    pub missed_from: u64,
    /// The set was closed after this record: no stripe is incomplete.
    pub clean: bool,
    /// The members, in the order of the layout.
    pub members: Vec<MemberRecord>,
    /// Disks that can replace a member.
    pub spares: Vec<Uuid>,
    /// The latest scrub of the set in use.
    pub scrub: Option<ScrubRecord>,
    /// The lost blocks of members.
    pub lost: LostBlocks,
}

/// A superblock: the set's record, on one of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The set.
    pub set: SetRecord,
    /// The member, spare or journal device that contains it.
    pub member: Uuid,
}

/// Why a record is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum BadRecord {
    /// Invalid members, strips or sizes.
    #[display("{_0}")]
    Layout(#[error(not(source))] BadLayout),
    /// The data does not start at a whole MiB.
    #[display("the data begins at byte {_0}, which is not a multiple of 1 MiB")]
    DataAlignment(#[error(not(source))] u64),
    /// An area overlaps the slots or another area, is not aligned to blocks, or exceeds the address space.
    #[display("an area of {} bytes at byte {} is not valid", _0.bytes, _0.offset)]
    Area(#[error(not(source))] Area),
    /// A UUID occurs twice.
    #[display("{_0} is in the set twice")]
    SameMember(#[error(not(source))] Uuid),
    /// The UUID belongs to no disk of the set.
    #[display("{_0} is not in the set")]
    NotInSet(#[error(not(source))] Uuid),
    /// The name is too long, or has control characters.
    #[display("a name has at most {NAME_BYTES_MAX} bytes and no control characters")]
    Name,
    /// All copies of the journal or bitmap could be lost while the set continues.
    #[display("the set cannot have {_0} copies of the journal or bitmap: too few, or more than members")]
    AreaCopies(#[error(not(source))] u16),
    /// The journal device has no area for the journal, or the level has no journal.
    #[display("there is a journal device without an area for the journal, or the level has no journal")]
    JournalDevice,
    /// Lost blocks of an unknown member or beyond its data, or more extents than fit in a record.
    #[display("the list of lost blocks is not valid")]
    LostBlocks,
    /// Too many spares.
    #[display("a set has at most {SPARES_MAX} spares")]
    TooManySpares,
}

impl SetRecord {
    /// The layout.
    ///
    /// # Errors
    /// There is no such set.
    pub fn layout(&self) -> Result<Layout, BadLayout> {
        let blocks = Blocks(self.areas.data.bytes >> self.block_size.shift());
        Layout::new(self.level, self.members.len(), self.strip_bytes, self.block_size, blocks)
    }

    /// The states of the members, in order.
    pub fn states(&self) -> MemberStates {
        let members = self.members.iter().map(|member| member.state).collect();
        MemberStates { members, lost: self.lost.clone() }
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
        // Areas in reserve, if there is a journal device.
        let needs_copies = self.areas.bitmap.bytes > 0 || self.areas.journal.bytes > 0;
        if self.journal_device.is_some() && (self.level.parity_strips() == 0 || self.areas.journal.bytes == 0)
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

    /// Minimum length of a disk of the set in bytes.
    pub fn needed_bytes(&self, disk: Uuid) -> u64 {
        if self.journal_device == Some(disk) { self.areas.journal_end() } else { self.areas.end() }
    }

    /// The UUIDs of members, spares and the journal device.
    pub fn uuids(&self) -> impl Iterator<Item = Uuid> {
        let members = self.uuids_of_members();
        members.chain(self.spares.iter().copied()).chain(self.journal_device)
    }

    /// The UUIDs of the members, in order.
    pub(crate) fn uuids_of_members(&self) -> impl Iterator<Item = Uuid> {
        self.members.iter().map(|member| member.uuid)
    }

    /// The next record of the set, with new states.
    #[must_use]
    pub fn next(&self, states: &MemberStates, clean: bool) -> SetRecord {
        let lost = states.lost.clone();
        debug_assert_eq!(states.members.len(), self.members.len());
        let mut next = SetRecord { generation: self.generation + 1, clean, lost, ..self.clone() };
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

    /// Whether a member that is not in sync has missed only regions of the second bitmap, according to the
    /// superblock on its disk. False if the member was used without this set since it left: then its
    /// superblock is newer than the last one that the set wrote to it, or marks as failed a member that has
    /// not failed.
    pub fn can_readd(&self, member: usize, found: &Superblock) -> bool {
        let Some(record) = self.members.get(member).filter(|record| record.uuid == found.member) else {
            return false;
        };
        let state = |uuid: Uuid| found.set.members.iter().find(|other| other.uuid == uuid).map(|it| it.state);
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

/// Number of copies of a journal or bitmap, chosen so that a copy survives whenever the set's data does. They
/// are on adjacent members, which in RAID 10 have the copies of a strip.
pub fn area_copies(level: Level, members: usize) -> usize {
    match level {
        Level::Raid0 | Level::Raid1 => members,
        Level::Raid5 | Level::Raid10 => 2,
        Level::Raid6 => 3,
    }
}

const _: () = assert!(bytes::bytes_max() <= SLOT_BYTES as usize, "the longest superblock fits its slot");
const _: () = assert!(MEMBERS_MAX <= u16::MAX as usize);

/// End of the second slot; areas follow it.
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
    /// Offset of its first byte on the member.
    pub fn offset(self) -> u64 {
        match self {
            Slot::First => SLOT_BYTES,
            Slot::Second => 2 * SLOT_BYTES,
        }
    }

    /// The other slot.
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
    /// Neither slot starts like a superblock: the device is empty or used for something else.
    #[display("it has no Linerate RAID superblock")]
    Foreign,
    /// The device is shorter than the slots.
    #[display("it has {_0} bytes, and the superblocks of a member end at {SLOTS_END}")]
    TooSmall(#[error(not(source))] u64),
    /// Written by a newer linerate.
    #[display("a newer version of Linerate wrote its superblock (format {_0}); use that version")]
    NewerVersion(#[error(not(source))] u32),
    /// No slot has a whole superblock.
    #[display("both copies of its superblock are damaged; replace it as a failed member")]
    Torn,
    /// A whole superblock that breaks a rule.
    #[display("its superblock is intact but invalid: {_0}")]
    Wrong(#[error(not(source))] BadRecord),
    /// A whole superblock with an invalid value.
    #[display("its superblock is intact but invalid: unknown value at byte {_0}")]
    WrongValue(#[error(not(source))] usize),
    /// The slots belong to different sets or members.
    #[display("its two superblocks belong to different sets or members: it is a partial copy")]
    Contradictory,
    /// The device could not be read.
    #[display("it could not be read: {_0}")]
    Unreadable(#[error(not(source))] DeviceError),
}

/// Reads the newer superblock of a device; also returns its slot.
///
/// # Errors
/// The device is not a member, or its slots contradict each other.
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
/// Neither slot has a superblock, or they contradict each other.
pub fn newer(first: &[u8], second: &[u8]) -> Result<(Superblock, Slot), NoSuperblock> {
    match (Superblock::parse(first), Superblock::parse(second)) {
        (Ok(first), Ok(second)) => {
            let same_member = first.member == second.member && first.set.uuid == second.set.uuid;
            // Writes alternate between the slots, each with a later generation.
            match first.set.generation.cmp(&second.set.generation) {
                Ordering::Greater if same_member => Ok((first, Slot::First)),
                Ordering::Less if same_member => Ok((second, Slot::Second)),
                _ => Err(NoSuperblock::Contradictory),
            }
        }
        (Err(BadBytes::Version(version)), _) | (_, Err(BadBytes::Version(version))) => {
            Err(NoSuperblock::NewerVersion(version))
        }
        // Intact bytes with an invalid record were not torn: their meaning is unknown, and the other copy is older.
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
