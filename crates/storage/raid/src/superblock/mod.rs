//! What a set writes on each of its members, so that they are recognised by content and not by their order.
//!
//! `docs/raid-format.md` has the layout byte by byte. A superblock has two parts: the [`SetRecord`], which is the same
//! on all members, and the UUID of the member on which it lies. It is written in one of two slots, by turns: a write
//! that is torn leaves the one before it.
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

/// The length of a slot, and the offset of the first: any block size divides it.
pub const SLOT_BYTES: u64 = 64 << 10;

/// Data begin at a multiple of this, so that no layer below sees strips that cross its own.
pub const DATA_ALIGNMENT: u64 = 1 << 20;

/// Bytes of a set's name at most.
pub const NAME_BYTES_MAX: usize = 64;

/// Spares of a set at most.
pub const SPARES_MAX: usize = 64;

/// Identifies a set, or a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    /// As RFC 9562 writes it.
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
    /// The byte behind the last, or `None` beyond the address space.
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.bytes)
    }
}

/// Where a member has what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas {
    /// The strips.
    pub data: Area,
    /// Writes of stripes that are not complete yet. On the journal's own device, if the set has one: members have the same area in reserve
    /// then, without use.
    pub journal: Area,
    /// Which stripes may differ after a crash.
    pub bitmap: Area,
    /// Checksums of the data blocks.
    pub checksums: Area,
}

impl Areas {
    /// Areas of a member of `member_bytes` with so many bytes for the journal, the bitmap and the checksums: these
    /// behind the slots, each from a multiple of [`SLOT_BYTES`] on, and the data last.
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

    /// Bytes that the journal's own device must have.
    pub fn journal_end(&self) -> u64 {
        self.journal.end().unwrap_or(u64::MAX).max(SLOTS_END)
    }

    /// Bytes that a member must have. The areas are those of a record that was checked.
    pub fn end(&self) -> u64 {
        self.each().iter().filter_map(|area| area.end()).max().unwrap_or(0)
    }
}

/// A member, as the set knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// Its UUID. A disk that replaces another gets its own.
    pub uuid: Uuid,
    /// What it holds.
    pub state: MemberState,
    /// Of a failed member, the generation of the first record that says so: its own are older, unless it was used without this set since. 0 if
    /// that is not known.
    pub failed_in: u64,
}

impl MemberRecord {
    /// A member that has not failed, or of which it is not known when.
    pub fn new(uuid: Uuid, state: MemberState) -> MemberRecord {
        MemberRecord { uuid, state, failed_in: 0 }
    }
}

/// The latest scrub, as far as it was recorded: one that has not ended resumes behind its stripes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecord {
    /// What does not fit is written anew.
    pub repairs: bool,
    /// All of the set was compared.
    pub has_ended: bool,
    /// Stripes that were compared, from the first on.
    pub stripes: u64,
    /// Of these, stripes with nothing to compare: a member lacks its strip.
    pub degraded: u64,
    /// Stripes with strips that could not be read.
    pub unreadable: u64,
    /// Stripes whose strips did not fit each other.
    pub mismatches: u64,
    /// Of the last two, those that were repaired.
    pub repaired: u64,
    /// Of each member, blocks that did not fit their checksums.
    pub wrong_blocks: Vec<u32>,
}

/// What all members of a set have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetRecord {
    /// The set.
    pub uuid: Uuid,
    /// Its name, for people: at most [`NAME_BYTES_MAX`] bytes, without control characters.
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
    /// The device with the journal, if it is none of the members.
    pub journal_device: Option<Uuid>,
    /// So many members have a copy of the journal and of the bitmap, from the first on: the others have the areas unused.
    pub area_copies: u16,
    /// Stripes that a bit of the bitmap stands for.
    pub region_stripes: u64,
    /// All members that are in sync had the record of this generation before the set was last taken into use. One with an older
    /// record is an old copy of a member.
    pub in_use_from: u64,
    /// The second bitmap has all regions that a member not in sync has missed, if its superblock has this generation or a newer one.
    /// 0: it has not.
    pub missed_from: u64,
    /// The set was closed after this record: no stripe is incomplete.
    pub clean: bool,
    /// The members, in the order of the layout.
    pub members: Vec<MemberRecord>,
    /// Disks that can replace a member.
    pub spares: Vec<Uuid>,
    /// The latest scrub of the set in use.
    pub scrub: Option<ScrubRecord>,
    /// Blocks that members do not have.
    pub lost: LostBlocks,
}

/// A superblock: the set's record, on one of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The set.
    pub set: SetRecord,
    /// The member, spare or journal device on which it lies.
    pub member: Uuid,
}

/// Why a record is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum BadRecord {
    /// Members, strips or sizes that make no set.
    #[display("{_0}")]
    Layout(#[error(not(source))] BadLayout),
    /// The data do not begin at a whole MiB.
    #[display("the data begin at byte {_0}, which is no multiple of 1 MiB")]
    DataAlignment(#[error(not(source))] u64),
    /// An area lies in the slots, in another, across a block or beyond the address space.
    #[display("an area of {} bytes at byte {} is not possible", _0.bytes, _0.offset)]
    Area(#[error(not(source))] Area),
    /// The same UUID twice.
    #[display("{_0} is in the set twice")]
    SameMember(#[error(not(source))] Uuid),
    /// The UUID of no disk of the set.
    #[display("{_0} is not in the set")]
    NotInSet(#[error(not(source))] Uuid),
    /// The name is too long, or has control characters.
    #[display("a name has at most {NAME_BYTES_MAX} bytes and no control characters")]
    Name,
    /// A copy of the journal or bitmap could be lost while the set goes on.
    #[display("{_0} copies of the journal or bitmap are too few, or more than there are members")]
    AreaCopies(#[error(not(source))] u16),
    /// The journal has a device, and no area on it, or the level has no journal.
    #[display("a journal has a device of its own, and no area: RAID 5 and 6 have one")]
    JournalDevice,
    /// Lost blocks of no member or behind its data, or more extents than a record has room for.
    #[display("the list of lost blocks is not possible")]
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

    /// Whether such a set can be.
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
        // In reserve, if the journal has a device of its own.
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

    /// Bytes that a disk of the set must have.
    pub fn needed_bytes(&self, disk: Uuid) -> u64 {
        if self.journal_device == Some(disk) { self.areas.journal_end() } else { self.areas.end() }
    }

    /// Of members, spares and the journal.
    pub fn uuids(&self) -> impl Iterator<Item = Uuid> {
        let members = self.uuids_of_members();
        members.chain(self.spares.iter().copied()).chain(self.journal_device)
    }

    /// The UUIDs of the members, in order.
    pub(crate) fn uuids_of_members(&self) -> impl Iterator<Item = Uuid> {
        self.members.iter().map(|member| member.uuid)
    }

    /// The same set one record later, with other states.
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

    /// Whether a member that is not in sync lacks only what the second bitmap has, by the superblock on its disk. Not if it was used without
    /// this set since it left: its superblock is newer than the last one that the set has written on it, or says that a member has failed
    /// that has not.
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

/// Copies of a journal or bitmap of which one is left as long as the set has its data: adjacent members, since in RAID 10
/// these have the copies of a strip.
pub fn area_copies(level: Level, members: usize) -> usize {
    match level {
        Level::Raid0 | Level::Raid1 => members,
        Level::Raid5 | Level::Raid10 => 2,
        Level::Raid6 => 3,
    }
}

const _: () = assert!(bytes::bytes_max() <= SLOT_BYTES as usize, "the longest superblock fits its slot");
const _: () = assert!(MEMBERS_MAX <= u16::MAX as usize);

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
