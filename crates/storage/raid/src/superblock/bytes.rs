//! The on-disk format of a superblock: little-endian, at the offsets in `docs/raid-format.md`.

use block::BlockSize;
use crc_fast::crc32_iscsi;

use super::{
    Area, Areas, BadRecord, MemberRecord, NAME_BYTES_MAX, SPARES_MAX, ScrubRecord, SetRecord,
    Superblock, Uuid,
};
use crate::layout::{Level, MEMBERS_MAX};
use crate::lost::{LOST_RECORDED_MAX, LostBlocks};
use crate::member::MemberState;

/// The first bytes of a superblock.
pub(super) const MAGIC: [u8; 8] = *b"LNRTRAID";

/// Version for a set that has no journal, or a journal on its members. Programs without support for a
/// separate journal device can read only this version.
const VERSION: u32 = 1;

/// Version for a set whose journal is on a separate device.
const VERSION_JOURNAL_DEVICE: u32 = 2;

/// Version for a set with lost blocks, which a program without support for them would read. The set may have
/// a separate journal device.
const VERSION_LOST_BLOCKS: u32 = 3;

/// Offset of the UUID of the journal device.
const JOURNAL_DEVICE_AT: usize = 64;

/// Length of the fixed part.
const HEADER_BYTES: usize = 320;

/// Length of a member's entry in the table that follows.
const ENTRY_BYTES: usize = 32;

const CLEAN: u32 = 1;

/// Offset of the number of lost extents. The extents themselves follow the members and spares.
const LOST_AT: usize = 304;
const LOST_BYTES: usize = 24;

/// Offset of the record of the latest scrub: flags, followed by its counts.
const SCRUB_AT: usize = 248;
const SCRUB_KNOWN: u32 = 1;
const SCRUB_REPAIRS: u32 = 2;
const SCRUB_ENDED: u32 = 4;
/// Offset of `missed_from`. Programs without support for a second bitmap write zeros here.
const MISSED_FROM_AT: usize = 296;
/// Offset, within a member's entry, of the number of checksum mismatches that the scrub has found on the
/// member.
const WRONG_BLOCKS_AT: usize = 20;

/// Returns the length of the longest superblock.
pub(super) const fn bytes_max() -> usize {
    HEADER_BYTES + (MEMBERS_MAX + SPARES_MAX) * ENTRY_BYTES + LOST_RECORDED_MAX * LOST_BYTES
}

/// The reason why bytes are not a valid superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadBytes {
    /// The magic number is missing.
    NoMagic,
    /// A newer program wrote the superblock.
    Version(u32),
    /// The bytes were written incompletely, or have changed since.
    Checksum,
    /// The bytes are intact, but the record breaks a rule.
    Record(BadRecord),
    /// An invalid value at this offset.
    Value(usize),
}

impl Superblock {
    /// Encodes the superblock.
    pub fn emit(&self) -> Vec<u8> {
        let set = &self.set;
        let entries = set.members.len() + set.spares.len();
        let lost_at = HEADER_BYTES + entries * ENTRY_BYTES;
        let mut bytes = vec![0; lost_at + set.lost.extents() * LOST_BYTES];
        let length = bytes.len() as u32;
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC);
        put(8, &version(set).to_le_bytes());
        put(16, &length.to_le_bytes());
        put(20, &(if set.clean { CLEAN } else { 0 }).to_le_bytes());
        put(24, &set.generation.to_le_bytes());
        put(32, &set.uuid.0);
        put(48, &self.member.0);
        put(
            JOURNAL_DEVICE_AT,
            &set.journal_device.map_or([0; 16], |uuid| uuid.0),
        );
        put(80, &level_code(set.level).to_le_bytes());
        put(84, &set.block_size.bytes().to_le_bytes());
        put(88, &set.strip_bytes.to_le_bytes());
        put(96, &(set.members.len() as u16).to_le_bytes());
        put(98, &(set.spares.len() as u16).to_le_bytes());
        put(100, &set.area_copies.to_le_bytes());
        let areas = [
            set.areas.data,
            set.areas.journal,
            set.areas.bitmap,
            set.areas.checksums,
        ];
        for (index, area) in areas.iter().enumerate() {
            put(104 + index * 16, &area.offset.to_le_bytes());
            put(112 + index * 16, &area.bytes.to_le_bytes());
        }
        put(168, set.name.as_bytes());
        put(232, &set.region_stripes.to_le_bytes());
        put(240, &set.in_use_from.to_le_bytes());
        put(MISSED_FROM_AT, &set.missed_from.to_le_bytes());
        for (index, member) in set.members.iter().enumerate() {
            let at = HEADER_BYTES + index * ENTRY_BYTES;
            let (code, number) = state_code(member);
            put(at, &member.uuid.0);
            put(at + 16, &code.to_le_bytes());
            put(at + 24, &number.to_le_bytes());
        }
        for (index, spare) in set.spares.iter().enumerate() {
            put(
                HEADER_BYTES + (set.members.len() + index) * ENTRY_BYTES,
                &spare.0,
            );
        }
        put(LOST_AT, &(set.lost.extents() as u32).to_le_bytes());
        for (index, (member, blocks)) in set.lost.iter().enumerate() {
            let at = lost_at + index * LOST_BYTES;
            put(at, &blocks.start.to_le_bytes());
            put(at + 8, &(blocks.end - blocks.start).to_le_bytes());
            put(at + 16, &(member as u32).to_le_bytes());
        }
        if let Some(scrub) = &set.scrub {
            let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
            let flags = SCRUB_KNOWN
                | flag(scrub.repairs, SCRUB_REPAIRS)
                | flag(scrub.has_ended, SCRUB_ENDED);
            put(SCRUB_AT, &flags.to_le_bytes());
            let ScrubRecord {
                stripes,
                degraded,
                unreadable,
                mismatches,
                repaired,
                ..
            } = scrub;
            for (index, number) in [stripes, degraded, unreadable, mismatches, repaired]
                .iter()
                .enumerate()
            {
                put(SCRUB_AT + 8 + index * 8, &number.to_le_bytes());
            }
            for (index, wrong) in scrub
                .wrong_blocks
                .iter()
                .take(set.members.len())
                .enumerate()
            {
                put(
                    HEADER_BYTES + index * ENTRY_BYTES + WRONG_BLOCKS_AT,
                    &wrong.to_le_bytes(),
                );
            }
        }
        let sum = crc32_iscsi(&bytes);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the superblock at the start of `slot`.
    pub(super) fn parse(slot: &[u8]) -> Result<Superblock, BadBytes> {
        let whole = Fields(slot);
        if !slot.starts_with(&MAGIC) {
            return Err(BadBytes::NoMagic);
        }
        let bytes = slot
            .get(..whole.u32(16)? as usize)
            .ok_or(BadBytes::Checksum)?;
        let sums = bytes.get(12..16).map(|_| {
            let mut zeroed = bytes.to_vec();
            zeroed[12..16].fill(0);
            crc32_iscsi(&zeroed)
        });
        if sums != Some(whole.u32(12)?) {
            return Err(BadBytes::Checksum);
        }
        // Check the version after the checksum, which all versions have, because a torn or corrupt number is
        // not a version.
        let written = whole.u32(8)?;
        if !(VERSION..=VERSION_LOST_BLOCKS).contains(&written) {
            return Err(BadBytes::Version(written));
        }
        let superblock = Superblock {
            set: Fields(bytes).set()?,
            member: Uuid(Fields(bytes).array(48)?),
        };
        if written != version(&superblock.set) {
            let is_of_lost = [written, version(&superblock.set)].contains(&VERSION_LOST_BLOCKS);
            return Err(BadBytes::Value(if is_of_lost {
                LOST_AT
            } else {
                JOURNAL_DEVICE_AT
            }));
        }
        superblock.set.check().map_err(BadBytes::Record)?;
        if !superblock.set.uuids().any(|uuid| uuid == superblock.member) {
            return Err(BadBytes::Record(BadRecord::NotInSet(superblock.member)));
        }
        Ok(superblock)
    }
}

/// Reads numbers at their offsets. A number beyond the end counts as an invalid value.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], BadBytes> {
        self.0
            .get(at..)
            .and_then(|bytes| bytes.first_chunk())
            .copied()
            .ok_or(BadBytes::Value(at))
    }

    fn u16(&self, at: usize) -> Result<u16, BadBytes> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn u32(&self, at: usize) -> Result<u32, BadBytes> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn u64(&self, at: usize) -> Result<u64, BadBytes> {
        self.array(at).map(u64::from_le_bytes)
    }

    fn area(&self, at: usize) -> Result<Area, BadBytes> {
        Ok(Area {
            offset: self.u64(at)?,
            bytes: self.u64(at + 8)?,
        })
    }

    fn set(&self) -> Result<SetRecord, BadBytes> {
        let (members, spares) = (usize::from(self.u16(96)?), usize::from(self.u16(98)?));
        let lost = self.u32(LOST_AT)? as usize;
        let lost_at = HEADER_BYTES + (members + spares) * ENTRY_BYTES;
        if lost > LOST_RECORDED_MAX || self.0.len() != lost_at + lost * LOST_BYTES {
            return Err(BadBytes::Value(16));
        }
        let flags = self.u32(20)?;
        if flags & !CLEAN != 0 {
            return Err(BadBytes::Value(20));
        }
        let journal_device = Uuid(self.array(JOURNAL_DEVICE_AT)?);
        let entry = |index: usize| HEADER_BYTES + index * ENTRY_BYTES;
        Ok(SetRecord {
            uuid: Uuid(self.array(32)?),
            name: self.name()?,
            generation: self.u64(24).and_then(|generation| match generation {
                // There must be a next generation, and 0 is not a valid generation.
                0 | u64::MAX => Err(BadBytes::Value(24)),
                generation => Ok(generation),
            })?,
            level: level(self.u32(80)?).ok_or(BadBytes::Value(80))?,
            strip_bytes: self.u64(88)?,
            block_size: BlockSize::new(self.u32(84)?).ok_or(BadBytes::Value(84))?,
            areas: Areas {
                data: self.area(104)?,
                journal: self.area(120)?,
                bitmap: self.area(136)?,
                checksums: self.area(152)?,
            },
            journal_device: (journal_device.0 != [0; 16]).then_some(journal_device),
            area_copies: self.u16(100)?,
            region_stripes: self.u64(232)?,
            in_use_from: self.u64(240).and_then(|from| match from {
                from if from > self.u64(24)? => Err(BadBytes::Value(240)),
                from => Ok(from),
            })?,
            missed_from: self.u64(MISSED_FROM_AT)?,
            clean: flags & CLEAN != 0,
            members: (0..members)
                .map(|index| self.member(entry(index)))
                .collect::<Result<_, _>>()?,
            spares: (members..members + spares)
                .map(|index| self.array(entry(index)).map(Uuid))
                .collect::<Result<_, _>>()?,
            scrub: self.scrub(members)?,
            lost: self.lost(lost_at, lost)?,
        })
    }

    /// Decodes lost blocks. The extents must be in order, and the extents of one member must not be adjacent,
    /// so that the encoding is unique.
    fn lost(&self, at: usize, extents: usize) -> Result<LostBlocks, BadBytes> {
        let mut lost = LostBlocks::default();
        for at in (0..extents).map(|index| at + index * LOST_BYTES) {
            let (start, blocks, member) = (self.u64(at)?, self.u64(at + 8)?, self.u32(at + 16)?);
            let end = start
                .checked_add(blocks)
                .filter(|end| *end > start)
                .ok_or(BadBytes::Value(at))?;
            lost.insert(member as usize, start..end);
        }
        if lost.extents() == extents {
            Ok(lost)
        } else {
            Err(BadBytes::Value(LOST_AT))
        }
    }

    /// Decodes the record of the latest scrub. Returns `None` for a set that was written before scrubs were
    /// recorded.
    fn scrub(&self, members: usize) -> Result<Option<ScrubRecord>, BadBytes> {
        let flags = self.u32(SCRUB_AT)?;
        if flags & !(SCRUB_KNOWN | SCRUB_REPAIRS | SCRUB_ENDED) != 0 {
            return Err(BadBytes::Value(SCRUB_AT));
        }
        if flags & SCRUB_KNOWN == 0 {
            return Ok(None);
        }
        let number = |index: usize| self.u64(SCRUB_AT + 8 + index * 8);
        let wrong = |member: usize| self.u32(HEADER_BYTES + member * ENTRY_BYTES + WRONG_BLOCKS_AT);
        Ok(Some(ScrubRecord {
            repairs: flags & SCRUB_REPAIRS != 0,
            has_ended: flags & SCRUB_ENDED != 0,
            stripes: number(0)?,
            degraded: number(1)?,
            unreadable: number(2)?,
            mismatches: number(3)?,
            repaired: number(4)?,
            wrong_blocks: (0..members).map(wrong).collect::<Result<_, _>>()?,
        }))
    }

    fn member(&self, at: usize) -> Result<MemberRecord, BadBytes> {
        let (uuid, number) = (Uuid(self.array(at)?), self.u64(at + 24)?);
        let state = state(self.u32(at + 16)?, number).ok_or(BadBytes::Value(at + 16))?;
        let failed_in = if state == MemberState::Failed {
            number
        } else {
            0
        };
        Ok(MemberRecord {
            uuid,
            state,
            failed_in,
        })
    }

    fn name(&self) -> Result<String, BadBytes> {
        let field: [u8; NAME_BYTES_MAX] = self.array(168)?;
        let name = field.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8(name.to_vec()).map_err(|_| BadBytes::Value(168))
    }
}

/// Returns the lowest version that covers all features of the set. Older programs do not use a set with a
/// newer version.
fn version(set: &SetRecord) -> u32 {
    match (set.lost.is_empty(), set.journal_device) {
        (false, _) => VERSION_LOST_BLOCKS,
        (true, Some(_)) => VERSION_JOURNAL_DEVICE,
        (true, None) => VERSION,
    }
}

/// Returns the customary number of the level.
fn level_code(level: Level) -> u32 {
    match level {
        Level::Raid0 => 0,
        Level::Raid1 => 1,
        Level::Raid5 => 5,
        Level::Raid6 => 6,
        Level::Raid10 => 10,
    }
}

fn level(code: u32) -> Option<Level> {
    let all = [
        Level::Raid0,
        Level::Raid1,
        Level::Raid5,
        Level::Raid6,
        Level::Raid10,
    ];
    all.into_iter().find(|level| level_code(*level) == code)
}

/// Encodes a state, with the number of stripes in sync for a rebuilding member, or the generation of the
/// first record that marks a failed member failed.
fn state_code(member: &MemberRecord) -> (u32, u64) {
    match member.state {
        MemberState::InSync => (1, 0),
        MemberState::Rebuilding { done } => (2, done),
        MemberState::Failed => (3, member.failed_in),
    }
}

fn state(code: u32, done: u64) -> Option<MemberState> {
    match code {
        1 => Some(MemberState::InSync),
        2 => Some(MemberState::Rebuilding { done }),
        3 => Some(MemberState::Failed),
        _ => None,
    }
}
