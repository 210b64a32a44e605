//! Why a set is not started, in sentences: what was found, and what can be done.

use std::fmt;

use crate::Level;
use crate::superblock::{NoSuperblock, Uuid};

/// Why a disk of a set is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// The set recorded that the member failed, and went on without it.
    Stale {
        /// Which member.
        member: usize,
        /// The generation on the disk.
        seen: u64,
        /// The set's.
        newest: u64,
    },
    /// It is an old copy of the device with the journal.
    OldJournal {
        /// The generation on the disk.
        seen: u64,
        /// The set's.
        newest: u64,
    },
    /// It had the journal, which is on the members now.
    FormerJournal {
        /// The set's generation.
        newest: u64,
    },
    /// Another disk has taken its place.
    Replaced {
        /// The set's generation.
        newest: u64,
    },
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeftOut::Stale { member, seen, newest } => write!(
                f,
                "it was member {member} until generation {seen}, and the set continued without it (generation \
                 {newest}): its data are old. Add it again to have it rebuilt"
            ),
            LeftOut::OldJournal { seen, newest } => write!(
                f,
                "it is an old copy of the device with the journal (generation {seen}, and the set has {newest}): what is in it was written \
                 over since. Attach the device itself"
            ),
            LeftOut::FormerJournal { newest } => write!(
                f,
                "it had the journal, which is on the members now (generation {newest}). Clear it to use it for something else"
            ),
            LeftOut::Replaced { newest } => write!(
                f,
                "it is no longer of this set, where another disk has its place (generation {newest}). Clear it to use \
                 it for something else"
            ),
        }
    }
}

/// Why there is no set to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are no disks.
    NoDisks,
    /// A disk that is not a member.
    NotAMember {
        /// The disk.
        disk: String,
        /// What is on it.
        reason: NoSuperblock,
    },
    /// The disks are of more than one set.
    SeveralSets {
        /// These.
        sets: Vec<Uuid>,
    },
    /// Two disks say that they are the same member.
    Duplicate {
        /// The disks.
        disks: [String; 2],
        /// The member.
        member: Uuid,
    },
    /// The set was run in two places, each without the other's members.
    TwoHistories {
        /// A disk whose record does not agree with the newest one.
        disk: String,
        /// The set.
        set: Uuid,
    },
    /// A member is shorter than it was.
    TooSmall {
        /// The disk.
        disk: String,
        /// Its length.
        bytes: u64,
        /// What the set uses of it.
        needed: u64,
    },
    /// A member has blocks of another size than before.
    BlockSize {
        /// The disk.
        disk: String,
        /// Its block size.
        block_bytes: u32,
        /// The set's.
        needed: u32,
    },
    /// Data are missing.
    TooManyLacking {
        /// The level.
        level: Level,
        /// Members that are not there, by index.
        missing: Vec<(usize, Uuid)>,
        /// Disks that are there with old data.
        stale: usize,
    },
    /// The journal's device is missing.
    NoJournal {
        /// Nothing that is needed was in the journal.
        clean: bool,
        /// An old copy of it is there.
        is_old: bool,
    },
    /// Stripes may be incomplete, no journal tells which, and the lost strips would be computed from them.
    DirtyAndDegraded {
        /// Members that are not there.
        missing: Vec<(usize, Uuid)>,
    },
    /// The missing members could have gone on without those that are there.
    NewerMayExist {
        /// Members that are not there.
        missing: Vec<(usize, Uuid)>,
    },
    /// Two sets have one disk.
    ClaimedTwice {
        /// The member.
        member: Uuid,
        /// Its disk, if it is there.
        disk: Option<String>,
        /// The sets.
        sets: [Uuid; 2],
    },
}

/// `member 1 (UUID) and member 3 (UUID)`.
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
            Refusal::NoDisks => write!(f, "no disks were given; name the members of the set"),
            Refusal::NotAMember { disk, reason } => {
                write!(f, "{disk} is not a member of a set: {reason}. Leave it out")
            }
            Refusal::SeveralSets { sets } => {
                write!(f, "the disks are of {} sets (", sets.len())?;
                for (at, set) in sets.iter().enumerate() {
                    write!(f, "{}{set}", if at == 0 { "" } else { ", " })?;
                }
                write!(f, "); name those of one")
            }
            Refusal::Duplicate { disks: [one, other], member } => write!(
                f,
                "{one} and {other} are both member {member}: one is a copy of the other. Leave out the copy, which \
                 may be older"
            ),
            Refusal::TwoHistories { disk, set } => write!(
                f,
                "{disk} and the other disks of set {set} have gone on without each other, and each may hold writes \
                 that the other lacks. Start the set without {disk}, or with it alone, and add the rest again to \
                 have it rebuilt: what only the rest holds is lost then"
            ),
            Refusal::TooSmall { disk, bytes, needed } => write!(
                f,
                "{disk} has {bytes} bytes, and as a member it had at least {needed}: its end is missing. Leave it \
                 out, and replace it"
            ),
            Refusal::BlockSize { disk, block_bytes, needed } => write!(
                f,
                "{disk} has blocks of {block_bytes} bytes, and as a member it had {needed}. Attach it as before"
            ),
            Refusal::TooManyLacking { level, missing, stale } => {
                write!(
                    f,
                    "{level} cannot give its data: {} {} missing",
                    Members(missing),
                    is_or_are(missing)
                )?;
                match stale {
                    0 => write!(f, ". Attach enough of them"),
                    1 => write!(f, ", and one disk is there whose data are old. Attach enough of the others"),
                    _ => write!(
                        f,
                        ", and {stale} disks are there whose data are old. Attach enough of the others"
                    ),
                }
            }
            Refusal::NoJournal { clean, is_old } => {
                write!(f, "the device with the journal is missing")?;
                if *is_old {
                    write!(f, ", and what was given is an old copy of it")?;
                }
                f.write_str(match clean {
                    true => ". The set was closed, and nothing is lost with it: attach it",
                    false => {
                        ", and the set was not closed: writes that only the journal has would be lost. Attach it"
                    }
                })
            }
            Refusal::DirtyAndDegraded { missing } => write!(
                f,
                "the set was not closed, it has no journal, and {} {} missing: what was on it would be computed from \
                 stripes that may be incomplete. Attach it",
                Members(missing),
                is_or_are(missing)
            ),
            Refusal::NewerMayExist { missing } => write!(
                f,
                "{} {} missing, and could have continued without the disks that are here: these may be old. Attach \
                 the missing disks, or confirm that they are lost",
                Members(missing),
                is_or_are(missing)
            ),
            Refusal::ClaimedTwice { member, disk, sets: [one, other] } => {
                let disk = disk.as_deref().unwrap_or("a disk that is not here");
                write!(
                    f,
                    "member {member} ({disk}) is in set {one} and in set {other}. Leave out the disks of one"
                )
            }
        }
    }
}

impl std::error::Error for Refusal {}
