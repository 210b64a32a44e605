//! Finds sets among disks by their content, whatever the order of the disks. This module does no I/O: it
//! evaluates superblocks and sizes.
//!
//! An ambiguous set is refused, with a message that contains the findings and a remedy. The rules:
//!
//! - The newest record of a set determines which members are current, because a member is recorded as failed
//!   before the first write that it misses is acknowledged. A member with an older record that is in
//!   sync according to the newest one has not missed data. The exception is a record so old that the disk must
//!   be an old copy of the member.
//! - Each record is written to enough members to run the set without the others. If the missing members could
//!   have continued without the members found, a newer record may exist. The set is then refused, unless
//!   [`Trust::MembersFound`] is given.
//! - A set that was run in two places has two histories. They are detected by two different records with the
//!   same generation, or by two members that each record the other as failed.

#[cfg(test)]
mod tests;

use std::fmt;

use crate::layout::Level;
use crate::member::{MemberState, MemberStates};
use crate::superblock::{MemberRecord, NoSuperblock, SetRecord, Superblock, Uuid};

/// A disk that may be a member.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The name of the disk for display.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its block size in bytes.
    pub block_bytes: u32,
    /// The superblock, or the reason why there is none.
    pub superblock: Result<Superblock, NoSuperblock>,
}

/// Whether a set may start when a newer record may exist on missing members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The set may not start.
    CertainOnly,
    /// The set may start: the user has confirmed that the missing members are permanently lost.
    MembersFound,
}

/// A set, and the disks that are its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSet {
    /// The newest record of the set.
    pub record: SetRecord,
    /// For each member, in the order of the layout, the index of its disk, if the disk is present and
    /// current.
    pub members: Vec<Option<usize>>,
    /// For each member, whether it has missed only the regions in the second bitmap.
    pub readded: Vec<bool>,
    /// The spares that are present, and their disks.
    pub spares: Vec<(Uuid, usize)>,
    /// The disk with the journal, if the journal is on a separate device.
    pub journal: Option<usize>,
    /// Disks that belong or belonged to the set but cannot be used.
    pub left_out: Vec<(usize, LeftOut)>,
    /// Whether the journal device is lost, as the user has confirmed ([`Journal::Lost`]). The journal areas
    /// on the members were only in reserve, so their content is not the set's journal.
    pub is_journal_lost: bool,
    /// The reason why the set must not be started, if there is one.
    pub refusal: Option<Refusal>,
}

/// The result of a search.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The sets, by UUID.
    pub sets: Vec<FoundSet>,
    /// Disks that belong to no set.
    pub others: Vec<(usize, NoSuperblock)>,
}

impl FoundSet {
    /// Returns the states of the members. Missing members count as failed.
    pub fn states(&self) -> MemberStates {
        let records = self
            .record
            .members
            .iter()
            .zip(&self.members)
            .zip(&self.readded);
        let state =
            |((record, disk), is_readded): ((&MemberRecord, &Option<usize>), &bool)| match disk {
                Some(_) if *is_readded => MemberState::Rebuilding { done: 0 },
                Some(_) => record.state,
                None => MemberState::Failed,
            };
        MemberStates {
            members: records.map(state).collect(),
            lost: self.record.lost.clone(),
        }
    }

    /// Whether a member is missing, or is not in sync.
    pub fn is_degraded(&self) -> bool {
        self.states().lacking().contains(&true)
    }

    /// Whether a member or the journal device is missing although the set has not recorded its failure.
    pub fn is_missing_a_member(&self) -> bool {
        let mut members = self.record.members.iter().zip(&self.members);
        members.any(|(record, disk)| record.state != MemberState::Failed && disk.is_none())
            || self.record.journal_device.is_some() && self.journal.is_none()
    }

    /// Returns the disks that are present and usable, with their UUIDs: members, spares and the journal
    /// device.
    pub(crate) fn disks(&self) -> impl Iterator<Item = (Uuid, usize)> {
        let members = self.record.members.iter().zip(&self.members);
        let members = members.filter_map(|(member, disk)| Some((member.uuid, (*disk)?)));
        members
            .chain(self.spares.iter().copied())
            .chain(self.record.journal_device.zip(self.journal))
    }
}

/// Whether a set may start when its journal device is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// The set may not start.
    Needed,
    /// The set may start, with a journal on its members. The user has confirmed that the device is lost.
    Lost,
}

/// Finds all sets with a member among the `candidates`.
pub fn find(candidates: &[Candidate], trust: Trust) -> Found {
    let mut found = Found::default();
    let mut uuids: Vec<Uuid> = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        match &candidate.superblock {
            Ok(superblock) => uuids.push(superblock.set.uuid),
            Err(reason) => found.others.push((index, *reason)),
        }
    }
    uuids.sort_unstable();
    uuids.dedup();
    found.sets = uuids
        .into_iter()
        .filter_map(|uuid| found_set(candidates, uuid, trust))
        .collect();
    refuse_shared(&mut found.sets, candidates);
    found
}

/// Finds the only set among the candidates. Every readable candidate must belong to it.
///
/// # Errors
/// There is no set or more than one, a candidate does not belong to the set, or the set must not be started.
pub fn only_set(
    candidates: &[Candidate],
    trust: Trust,
    journal: Journal,
) -> Result<FoundSet, Refusal> {
    let Found { mut sets, others } = find(candidates, trust);
    let name = |index: usize| candidates[index].name.clone();
    // An unreadable disk counts as missing. The usual rules determine whether the set can run without it.
    let is_missing =
        |reason: &NoSuperblock| matches!(reason, NoSuperblock::Unreadable(_)) && !sets.is_empty();
    if let Some((index, reason)) = others.iter().find(|(_, reason)| !is_missing(reason)) {
        return Err(Refusal::NotAMember {
            disk: name(*index),
            reason: *reason,
        });
    }
    match sets.len() {
        0 => Err(Refusal::NoDisks),
        1 => {
            let mut set = sets.swap_remove(0);
            // Because this refusal is checked last, there is no other reason to refuse the set.
            if journal == Journal::Lost && matches!(set.refusal, Some(Refusal::NoJournal { .. })) {
                (set.record.journal_device, set.refusal, set.is_journal_lost) = (None, None, true);
            }
            set.refusal.clone().map_or(Ok(set), Err)
        }
        _ => Err(Refusal::SeveralSets {
            sets: sets.iter().map(|set| set.record.uuid).collect(),
        }),
    }
}

/// Evaluates the candidates that belong to this set. Returns `None` if there are none.
fn found_set(candidates: &[Candidate], uuid: Uuid, trust: Trust) -> Option<FoundSet> {
    let disks: Vec<(usize, &Superblock)> = candidates
        .iter()
        .enumerate()
        .filter_map(|(index, candidate)| Some((index, candidate.superblock.as_ref().ok()?)))
        .filter(|(_, superblock)| superblock.set.uuid == uuid)
        .collect();
    let record = disks
        .iter()
        .map(|(_, superblock)| &superblock.set)
        .max_by_key(|set| set.generation)?
        .clone();
    let mut set = FoundSet {
        members: vec![None; record.members.len()],
        readded: vec![false; record.members.len()],
        spares: Vec::new(),
        journal: None,
        left_out: Vec::new(),
        is_journal_lost: false,
        refusal: None,
        record,
    };
    set.refusal = contradiction(candidates, &disks, &set.record);
    for (index, superblock) in &disks {
        set.place(*index, superblock);
    }
    set.leave_out_short(candidates);
    set.refusal = set
        .refusal
        .take()
        .or_else(|| set.wrong_size(candidates))
        .or_else(|| set.too_few(trust));
    Some(set)
}

/// Finds disks that are valid individually but contradict each other.
fn contradiction(
    candidates: &[Candidate],
    disks: &[(usize, &Superblock)],
    newest: &SetRecord,
) -> Option<Refusal> {
    let name = |index: usize| candidates[index].name.clone();
    for (at, (index, superblock)) in disks.iter().enumerate() {
        let twin = disks[..at]
            .iter()
            .find(|(_, other)| other.member == superblock.member);
        if let Some((other, _)) = twin {
            return Some(Refusal::Duplicate {
                disks: [name(*other), name(*index)],
                member: superblock.member,
            });
        }
        let same_generation = superblock.set.generation == newest.generation;
        let differs = same_generation && superblock.set != *newest;
        if differs || (!same_generation && was_run_apart(superblock, newest)) {
            return Some(Refusal::TwoHistories {
                disk: name(*index),
                set: newest.uuid,
            });
        }
    }
    None
}

/// Whether this superblock was written while its member was used without the rest of the set: the newest
/// record marks the member failed, and the superblock marks a member failed that is in sync in the newest
/// record.
fn was_run_apart(superblock: &Superblock, newest: &SetRecord) -> bool {
    let state = |set: &SetRecord, uuid| {
        set.members
            .iter()
            .find(|member| member.uuid == uuid)
            .map(|member| member.state)
    };
    let failed = Some(MemberState::Failed);
    state(newest, superblock.member) == failed
        && superblock.set.members.iter().any(|member| {
            member.state == MemberState::Failed
                && state(newest, member.uuid) == Some(MemberState::InSync)
        })
}

impl FoundSet {
    fn place(&mut self, disk: usize, superblock: &Superblock) {
        let record = &self.record;
        let is_old_copy = superblock.set.generation < record.in_use_from;
        if let Some(member) = record
            .members
            .iter()
            .position(|member| member.uuid == superblock.member)
        {
            match record.members[member].state {
                MemberState::Failed | MemberState::Rebuilding { .. }
                    if record.can_readd(member, superblock) =>
                {
                    (self.members[member], self.readded[member]) = (Some(disk), true);
                }
                MemberState::InSync | MemberState::Rebuilding { .. } if !is_old_copy => {
                    self.members[member] = Some(disk)
                }
                _ => {
                    let (found_generation, newest) = (superblock.set.generation, record.generation);
                    self.left_out.push((
                        disk,
                        LeftOut::Stale {
                            member,
                            found_generation,
                            newest,
                        },
                    ));
                }
            }
        } else if record.spares.contains(&superblock.member) {
            self.spares.push((superblock.member, disk));
        } else if record.journal_device == Some(superblock.member) {
            if is_old_copy {
                let (found_generation, newest) = (superblock.set.generation, record.generation);
                self.left_out.push((
                    disk,
                    LeftOut::OldJournal {
                        found_generation,
                        newest,
                    },
                ));
            } else {
                self.journal = Some(disk);
            }
        } else if superblock.set.journal_device == Some(superblock.member) {
            self.left_out.push((
                disk,
                LeftOut::FormerJournal {
                    newest: record.generation,
                },
            ));
        } else {
            self.left_out.push((
                disk,
                LeftOut::Replaced {
                    newest: record.generation,
                },
            ));
        }
    }

    /// Excludes a returning member that is now too short, so that the set runs without it.
    fn leave_out_short(&mut self, candidates: &[Candidate]) {
        for member in 0..self.members.len() {
            let Some(disk) = self.members[member].filter(|_| self.readded[member]) else {
                continue;
            };
            let candidate = &candidates[disk];
            if candidate.bytes < self.record.areas.end()
                || candidate.block_bytes != self.record.block_size.bytes()
            {
                (self.members[member], self.readded[member]) = (None, false);
                let found_generation = candidate
                    .superblock
                    .as_ref()
                    .map_or(0, |superblock| superblock.set.generation);
                self.left_out.push((
                    disk,
                    LeftOut::Stale {
                        member,
                        found_generation,
                        newest: self.record.generation,
                    },
                ));
            }
        }
    }

    /// Finds a disk that is shorter than the set requires, or has a different block size.
    fn wrong_size(&self, candidates: &[Candidate]) -> Option<Refusal> {
        let areas = &self.record.areas;
        let block_bytes = self.record.block_size.bytes();
        let members = self
            .members
            .iter()
            .flatten()
            .map(|index| (index, areas.end()));
        let used = members.chain(
            self.journal
                .iter()
                .map(|index| (index, areas.journal_end())),
        );
        used.map(|(index, needed)| (&candidates[*index], needed))
            .find_map(|(candidate, needed)| {
                let disk = candidate.name.clone();
                if candidate.bytes < needed {
                    return Some(Refusal::TooSmall {
                        disk,
                        bytes: candidate.bytes,
                        needed,
                    });
                }
                (candidate.block_bytes != block_bytes).then_some(Refusal::BlockSize {
                    disk,
                    block_bytes: candidate.block_bytes,
                    needed: block_bytes,
                })
            })
    }

    fn too_few(&self, trust: Trust) -> Option<Refusal> {
        let layout = self.record.layout().ok()?;
        let lacking = self.states().lacking();
        let missing = || {
            let absent = self
                .members
                .iter()
                .enumerate()
                .filter(|(_, disk)| disk.is_none());
            absent
                .map(|(member, _)| (member, self.record.members[member].uuid))
                .collect()
        };
        if !layout.survives(&lacking) {
            let stale = self
                .left_out
                .iter()
                .filter(|(_, why)| matches!(why, LeftOut::Stale { .. }))
                .count();
            return Some(Refusal::TooManyLacking {
                level: layout.level(),
                missing: missing(),
                stale,
            });
        }
        let areas = &self.record.areas;
        // With a bitmap, the affected stripes are known, so the assembly decides.
        let is_protected =
            self.journal.is_some() || areas.journal.bytes > 0 || areas.bitmap.bytes > 0;
        if layout.has_parity() && !self.record.clean && !is_protected && lacking.contains(&true) {
            return Some(Refusal::DirtyAndDegraded { missing: missing() });
        }
        // Members that are recorded as failed cannot have continued, because the record was written without
        // them.
        let could_run_without_these: Vec<bool> = self
            .members
            .iter()
            .zip(&self.record.members)
            .map(|(disk, member)| disk.is_some() || member.state != MemberState::InSync)
            .collect();
        let others_could_run = layout.survives(&could_run_without_these);
        if others_could_run && trust == Trust::CertainOnly {
            return Some(Refusal::NewerMayExist { missing: missing() });
        }
        // Check this last, because this refusal can be overridden separately.
        (self.record.journal_device.is_some() && self.journal.is_none()).then(|| {
            Refusal::NoJournal {
                clean: self.record.clean,
                is_old: self
                    .left_out
                    .iter()
                    .any(|(_, why)| matches!(why, LeftOut::OldJournal { .. })),
            }
        })
    }
}

/// Refuses sets if two of them name the same disk.
fn refuse_shared(sets: &mut [FoundSet], candidates: &[Candidate]) {
    let claims: Vec<(Uuid, Vec<Uuid>)> = sets
        .iter()
        .map(|set| (set.record.uuid, set.record.uuids().collect()))
        .collect();
    for set in sets {
        let own: Vec<Uuid> = set.record.uuids().collect();
        let others = claims.iter().filter(|(uuid, _)| *uuid != set.record.uuid);
        let shared =
            others.flat_map(|(other, uuids)| uuids.iter().map(move |uuid| (*other, *uuid)));
        if let Some((other, member)) = shared.into_iter().find(|(_, uuid)| own.contains(uuid)) {
            let is_on = |candidate: &&Candidate| {
                candidate
                    .superblock
                    .as_ref()
                    .is_ok_and(|superblock| superblock.member == member)
            };
            let disk = candidates
                .iter()
                .find(is_on)
                .map(|candidate| candidate.name.clone());
            set.refusal = Some(Refusal::ClaimedTwice {
                member,
                disk,
                sets: [set.record.uuid, other],
            });
        }
    }
}

/// The reason why a disk of a set is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// The set recorded that the member failed, and continued without it.
    Stale {
        /// The index of the member.
        member: usize,
        /// The generation on the disk.
        found_generation: u64,
        /// The generation of the set's newest record.
        newest: u64,
    },
    /// The disk is an old copy of the journal device.
    OldJournal {
        /// The generation on the disk.
        found_generation: u64,
        /// The generation of the set's newest record.
        newest: u64,
    },
    /// The disk contained the journal, which has moved to the members.
    FormerJournal {
        /// The generation of the set's newest record.
        newest: u64,
    },
    /// The disk was replaced by a different disk.
    Replaced {
        /// The generation of the set's newest record.
        newest: u64,
    },
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeftOut::Stale {
                member,
                found_generation,
                newest,
            } => write!(
                f,
                "it was member {member} until generation {found_generation}, and the set continued without it (generation \
                 {newest}): its data is old. Add it again to rebuild it"
            ),
            LeftOut::OldJournal {
                found_generation,
                newest,
            } => write!(
                f,
                "it is an old copy of the device with the journal (generation {found_generation}; the set \
                 has {newest}), and does not contain the latest writes. Attach the original device"
            ),
            LeftOut::FormerJournal { newest } => write!(
                f,
                "it had the journal, which is now on the members (generation {newest}). Clear it to use it \
                 for something else"
            ),
            LeftOut::Replaced { newest } => write!(
                f,
                "it no longer belongs to the set: another disk has replaced it (generation {newest}). Clear \
                 it to use it for something else"
            ),
        }
    }
}

/// The reason why there is no set to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are no disks.
    NoDisks,
    /// A disk does not belong to a set.
    NotAMember {
        /// The name of the disk.
        disk: String,
        /// The reason why the disk does not belong to a set.
        reason: NoSuperblock,
    },
    /// The disks belong to more than one set.
    SeveralSets {
        /// The UUIDs of the sets.
        sets: Vec<Uuid>,
    },
    /// Two disks identify themselves as the same member.
    Duplicate {
        /// The names of the disks.
        disks: [String; 2],
        /// The UUID of the member.
        member: Uuid,
    },
    /// The set was used in two places, each time without the members at the other place.
    TwoHistories {
        /// A disk whose record contradicts the newest one.
        disk: String,
        /// The UUID of the set.
        set: Uuid,
    },
    /// A member is shorter than it was.
    TooSmall {
        /// The name of the disk.
        disk: String,
        /// The length of the disk in bytes.
        bytes: u64,
        /// The length that the set needs.
        needed: u64,
    },
    /// A member's block size has changed.
    BlockSize {
        /// The name of the disk.
        disk: String,
        /// The block size of the disk.
        block_bytes: u32,
        /// The block size of the set.
        needed: u32,
    },
    /// Too many members are missing or outdated, so data is missing.
    TooManyLacking {
        /// The RAID level.
        level: Level,
        /// Missing members, by index.
        missing: Vec<(usize, Uuid)>,
        /// Number of disks with outdated data.
        stale: usize,
    },
    /// The journal's device is missing.
    NoJournal {
        /// Whether the set was shut down cleanly, so that the content of the journal is not needed.
        clean: bool,
        /// Whether an old copy of the device was found.
        is_old: bool,
    },
    /// Stripes may be incomplete, and there is no journal or bitmap that identifies these stripes. Missing
    /// strips would be reconstructed from incomplete stripes.
    DirtyAndDegraded {
        /// The missing members.
        missing: Vec<(usize, Uuid)>,
    },
    /// The missing members could have continued without the members found, so a newer record may exist.
    NewerMayExist {
        /// The missing members.
        missing: Vec<(usize, Uuid)>,
    },
    /// Two sets claim the same disk.
    ClaimedTwice {
        /// The UUID of the member.
        member: Uuid,
        /// The name of the member's disk, if it is present.
        disk: Option<String>,
        /// The UUIDs of the sets.
        sets: [Uuid; 2],
    },
}

/// Displays members as `member 1 (UUID) and member 3 (UUID)`.
struct Members<'a>(&'a [(usize, Uuid)]);

impl fmt::Display for Members<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (index, uuid)) in self.0.iter().enumerate() {
            let separator = match at {
                0 => "",
                at if at + 1 == self.0.len() => " and ",
                _ => ", ",
            };
            write!(f, "{separator}member {index} ({uuid})")?;
        }
        Ok(())
    }
}

fn is_or_are(members: &[(usize, Uuid)]) -> &'static str {
    if members.len() == 1 { "is" } else { "are" }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoDisks => write!(f, "no disks were given; specify the members of the set"),
            Refusal::NotAMember { disk, reason } => {
                write!(f, "{disk} is not a member of a set: {reason}. Omit it")
            }
            Refusal::SeveralSets { sets } => {
                write!(f, "the disks belong to {} sets (", sets.len())?;
                for (at, set) in sets.iter().enumerate() {
                    write!(f, "{}{set}", if at == 0 { "" } else { ", " })?;
                }
                write!(f, "); specify the disks of one set")
            }
            Refusal::Duplicate {
                disks: [one, other],
                member,
            } => write!(
                f,
                "{one} and {other} are both member {member}: one is a copy of the other. Omit the copy, which may be \
                 older"
            ),
            Refusal::TwoHistories { disk, set } => write!(
                f,
                "{disk} and the other disks of set {set} were used without each other, so each side may have \
                 writes that are missing on the other. Start the set without {disk}, or with it alone, and \
                 add the rest again to rebuild it: writes that exist only on the rest are then lost"
            ),
            Refusal::TooSmall {
                disk,
                bytes,
                needed,
            } => write!(
                f,
                "{disk} has {bytes} bytes, but had at least {needed} when it became a member: its end is \
                 missing. Omit it, and replace it"
            ),
            Refusal::BlockSize {
                disk,
                block_bytes,
                needed,
            } => write!(
                f,
                "{disk} has {block_bytes}-byte blocks, but had {needed}-byte blocks when it became a member. \
                 Attach it as before"
            ),
            Refusal::TooManyLacking {
                level,
                missing,
                stale,
            } => {
                write!(
                    f,
                    "{level} is incomplete: {} {} missing",
                    Members(missing),
                    is_or_are(missing)
                )?;
                match stale {
                    0 => write!(f, ". Attach enough of them"),
                    1 => write!(
                        f,
                        ", and the data of one disk is old. Attach enough of the others"
                    ),
                    _ => write!(
                        f,
                        ", and the data of {stale} disks is old. Attach enough of the others"
                    ),
                }
            }
            Refusal::NoJournal { clean, is_old } => {
                write!(f, "the device with the journal is missing")?;
                if *is_old {
                    write!(f, ", and the given one is an old copy of it")?;
                }
                f.write_str(match clean {
                    true => {
                        ". The set was closed cleanly, and the journal contains no data: attach the device"
                    }
                    false => {
                        ", and the set was not closed cleanly: writes that exist only in the journal would \
                         be lost. Attach the device"
                    }
                })
            }
            Refusal::DirtyAndDegraded { missing } => write!(
                f,
                "the set was not closed cleanly, it has no journal, and {} {} missing: missing data would be \
                 reconstructed from stripes that may be inconsistent. Attach the missing disks",
                Members(missing),
                is_or_are(missing)
            ),
            Refusal::NewerMayExist { missing } => write!(
                f,
                "{} {} missing, and the set could have continued without the disks that are present, so \
                 these may be old. Attach the missing disks, or confirm that they are lost",
                Members(missing),
                is_or_are(missing)
            ),
            Refusal::ClaimedTwice {
                member,
                disk,
                sets: [one, other],
            } => {
                let disk = disk.as_deref().unwrap_or("a disk that is not present");
                write!(
                    f,
                    "member {member} ({disk}) is in set {one} and in set {other}. Omit the disks of one set"
                )
            }
        }
    }
}

impl std::error::Error for Refusal {}
