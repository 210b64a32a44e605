//! Assembles a set from its members.

use std::sync::Arc;

use block::{
    Blocks, DeviceError, Durability, Geometry, Operations, OptimalTransfer, Permits, Profile,
    Sleeper, Spawner,
};
use derive_more::{Display, Error};

use crate::area::{Area, AreaCopy};
use crate::device::RaidDevice;
use crate::intent::Intent;
use crate::journal::record::HEADERS;
use crate::journal::{Journal, Log};
use crate::layout::{Layout, Level};
use crate::member::{MemberDevice, MemberState, MemberStates, MetadataStore};
use crate::members::Members;
use crate::merge::{WRITES_MAX, WaitingWrites};
use crate::set::{Protection, Set};

/// The protection against inconsistency if a crash interrupts writes.
#[derive(Clone)]
pub enum ProtectionAreas {
    /// A journal, for RAID 5 and 6. It has a copy on one member more than the level can lose, or is on a
    /// separate device. With a separate device, areas on members are in reserve, and the journal moves there
    /// if the device fails.
    Journal(Vec<AreaCopy>),
    /// A write-intent bitmap, for RAID 1 and 10, and for RAID 5 and 6 without a journal.
    Bitmap {
        /// The copies of the bitmap, located as for a journal.
        copies: Vec<AreaCopy>,
        /// Number of stripes per bit.
        region_stripes: u64,
    },
    /// No protection, for RAID 0. At other levels, inconsistencies after a crash are not repaired.
    Nothing,
}

/// The previous use of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Members of a set that was in use. Its journal is replayed, or its bitmap is read.
    Existing,
    /// Members of a set that was in use and whose journal is lost. Nothing is replayed, and a new journal is
    /// started. Parity may be inconsistent, and acknowledged writes that have not reached the members are
    /// lost. A set with a bitmap is assembled as for [`Origin::Existing`].
    WithoutJournal,
    /// A new set of members with arbitrary content. With a bitmap, the whole set is synchronised. With a
    /// journal, the states must be [`MemberStates::of_new_set`].
    New,
    /// A new set of members that read as zeros, and so are consistent.
    NewOfZeros,
}

/// Whether the regions that members not in sync have missed are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// All members were in sync when the set was last used, so they have missed nothing.
    Nothing,
    /// The second bitmap records the missed regions. Members that are being rebuilt have missed no others.
    Noted,
    /// The missed regions are unknown, so members are rebuilt completely.
    Unknown,
}

/// The parts of a set to assemble.
pub struct Assembly {
    /// The layout, as it was when the set was created.
    pub layout: Layout,
    /// The data area of each member; `None` for a missing member.
    pub members: Vec<Option<MemberDevice>>,
    /// The states recorded last.
    pub states: MemberStates,
    /// The store that records the states.
    pub metadata: Arc<dyn MetadataStore>,
    /// The protection from the write hole.
    pub protection: ProtectionAreas,
    /// The previous use of the members.
    pub origin: Origin,
    /// A random number, which is different for each assembly and unknown to users of the set.
    pub nonce: u64,
    /// Limit on the memory for buffers of outstanding stripes, in bytes. Whatever the value, at least two
    /// stripes may be outstanding.
    pub memory_bytes: u64,
    /// Whether the regions that members not in sync have missed are known.
    pub missed: Missed,
    /// Whether to assemble the set even if data may be wrong, because a member is missing and parity may be
    /// inconsistent.
    pub accepts_wrong_data: bool,
    /// The clock that measures the duration of reads.
    pub sleeper: Arc<dyn Sleeper>,
    /// Runs writes, which continue after their requests were dropped.
    pub spawner: Arc<dyn Spawner>,
}

/// The reason why a set was not assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum AssemblyError {
    /// The number of members or states differs from the layout.
    #[display("the set has {expected} members, but {given} were given")]
    MemberCount {
        /// The number in the layout.
        expected: usize,
        /// The number that was given.
        given: usize,
    },
    /// A member has a different block size.
    #[display("member {member} has {found}-byte blocks, but the set has {expected}-byte blocks")]
    BlockSize {
        /// The index of the member.
        member: usize,
        /// The block size of the member.
        found: u32,
        /// The set's block size.
        expected: u32,
    },
    /// A member has too few blocks.
    #[display("member {member} has {found} blocks for data, but needs {needed}")]
    MemberTooSmall {
        /// The index of the member.
        member: usize,
        /// Number of blocks that there are.
        found: u64,
        /// Number of blocks that the layout needs.
        needed: u64,
    },
    /// The progress of a rebuild is beyond the end of the set.
    #[display("the recorded rebuild progress of member {member} is beyond the end of the set")]
    BadState {
        /// The index of the member.
        member: usize,
    },
    /// Too many members are missing or incomplete.
    #[display(
        "data of the {level} set would be lost: {lacking} of its {members} members are missing, failed or \
         not yet rebuilt"
    )]
    TooManyLacking {
        /// The level.
        level: Level,
        /// Number of members.
        members: usize,
        /// Number of missing or incomplete members.
        lacking: usize,
    },
    /// The level does not support the protection.
    #[display(
        "{level} has no {protection}: RAID 5 and 6 have a journal or a bitmap, RAID 1 and 10 a bitmap"
    )]
    NoSuchProtection {
        /// The level.
        level: Level,
        /// The protection that was given.
        protection: &'static str,
    },
    /// Blocks have checksums, but nothing records which blocks may not match them after a crash.
    #[display("{level} with checksums needs {}", checksums_need(*level))]
    UnprotectedChecksums {
        /// The level.
        level: Level,
    },
    /// No copy of the journal or bitmap is present, or its block size differs from the members'.
    #[display(
        "no copy of the {protection} can be used: all copies are missing, or have a different block size"
    )]
    NoArea {
        /// `journal` or `bitmap`.
        protection: &'static str,
    },
    /// The area is too small.
    #[display("the {protection} has {found} blocks, but needs {needed}")]
    AreaTooSmall {
        /// `journal` or `bitmap`.
        protection: &'static str,
        /// Number of blocks that there are.
        found: u64,
        /// Number of blocks that are needed.
        needed: u64,
    },
    /// There is no journal in the area.
    #[display("the journal's area contains no journal: data that it protected may be wrong")]
    NoJournal,
    /// A newer program wrote the journal, which may contain acknowledged writes.
    #[display(
        "a newer version of Linerate wrote the journal (format {version}): start the set with that version"
    )]
    NewerJournal {
        /// The version of the journal's format.
        version: u32,
    },
    /// A member is missing, and the data reconstructed for it may be wrong.
    #[display(
        "a member is missing, and after a crash parity may be inconsistent in {regions} regions: the data \
         reconstructed for the member there may be wrong"
    )]
    DataMayBeWrong {
        /// Number of such regions.
        regions: u64,
    },
    /// A request failed.
    #[display("assembling the set: {_0}")]
    Device(#[error(not(source))] DeviceError),
}

impl From<DeviceError> for AssemblyError {
    fn from(error: DeviceError) -> AssemblyError {
        AssemblyError::Device(error)
    }
}

fn checksums_need(level: Level) -> &'static str {
    match level {
        Level::Raid0 => "redundancy, which it does not have",
        Level::Raid1 | Level::Raid10 => "a bitmap",
        Level::Raid5 | Level::Raid6 => "a journal",
    }
}

impl RaidDevice {
    /// Assembles a set. Replays its journal, or reads from its bitmap which regions may be inconsistent.
    pub async fn assemble(assembly: Assembly) -> Result<RaidDevice, AssemblyError> {
        check_members(&assembly)?;
        let Assembly {
            layout,
            states,
            metadata,
            nonce,
            sleeper,
            spawner,
            origin,
            ..
        } = assembly;
        let has_sums = assembly
            .members
            .iter()
            .flatten()
            .any(|member| member.summed().is_some());
        let profile = profile(&layout, &assembly.members, &assembly.protection);
        let physical_exponent = assembly
            .members
            .iter()
            .flatten()
            .map(|member| member.device().geometry().physical_exponent);
        let geometry = Geometry {
            block_size: layout.block_size(),
            blocks: layout.blocks(),
            physical_exponent: physical_exponent.max().unwrap_or(0),
        };
        let operations = Arc::new(Operations::new(spawner));
        let members = Members::new(
            layout,
            assembly.members,
            &states,
            metadata,
            Arc::clone(&operations),
            sleeper,
        );
        let members = Arc::new(members);
        let stripe_bytes =
            (layout.strip_blocks() << layout.block_size().shift()) * layout.strips() as u64;
        let in_flight = usize::try_from(assembly.memory_bytes / (2 * stripe_bytes))
            .unwrap_or(usize::MAX)
            .max(2);
        let mut set = Set {
            layout,
            geometry,
            profile,
            has_sums,
            members: Arc::clone(&members),
            locks: Arc::default(),
            waiting_writes: WaitingWrites::default(),
            permits: Arc::new(Permits::new(in_flight)),
            operations: Arc::clone(&operations),
            protection: Protection::Nothing,
        };
        let is_new = matches!(origin, Origin::New | Origin::NewOfZeros);
        match assembly.protection {
            ProtectionAreas::Nothing if is_new => {}
            ProtectionAreas::Nothing => members.started().await?,
            ProtectionAreas::Journal(copies) => {
                set.protection =
                    Protection::Journal(open_journal(&set, &copies, origin, nonce).await?);
            }
            ProtectionAreas::Bitmap {
                copies,
                region_stripes,
            } => {
                let may_refuse = !assembly.accepts_wrong_data;
                let intent = open_bitmap(
                    &set,
                    &copies,
                    region_stripes,
                    origin,
                    may_refuse,
                    assembly.missed,
                )
                .await?;
                set.protection = Protection::Intent(intent);
            }
        }
        if is_new {
            members.started().await?;
        }
        Ok(RaidDevice { set: Arc::new(set) })
    }
}

fn check_members(assembly: &Assembly) -> Result<(), AssemblyError> {
    let Assembly {
        layout,
        members,
        states,
        ..
    } = assembly;
    for given in [members.len(), states.members.len()] {
        if given != layout.members() {
            return Err(AssemblyError::MemberCount {
                expected: layout.members(),
                given,
            });
        }
    }
    for (member, device) in members.iter().enumerate() {
        let Some(geometry) = device.as_ref().map(|member| member.device().geometry()) else {
            continue;
        };
        if geometry.block_size != layout.block_size() {
            let (found, expected) = (geometry.block_size.bytes(), layout.block_size().bytes());
            return Err(AssemblyError::BlockSize {
                member,
                found,
                expected,
            });
        }
        let (Blocks(found), Blocks(needed)) = (geometry.blocks, layout.member_blocks());
        if found < needed {
            return Err(AssemblyError::MemberTooSmall {
                member,
                found,
                needed,
            });
        }
    }
    for (member, state) in states.members.iter().enumerate() {
        if matches!(state, crate::MemberState::Rebuilding { done } if *done > layout.stripes()) {
            return Err(AssemblyError::BadState { member });
        }
    }
    let mut lacking = states.lacking();
    lacking
        .iter_mut()
        .zip(members)
        .for_each(|(lacks, device)| *lacks |= device.is_none());
    if !layout.survives(&lacking) {
        let lacking = lacking.into_iter().filter(|lacks| *lacks).count();
        return Err(AssemblyError::TooManyLacking {
            level: layout.level(),
            members: layout.members(),
            lacking,
        });
    }
    let level = layout.level();
    let has_sums = members
        .iter()
        .flatten()
        .any(|member| member.summed().is_some());
    match &assembly.protection {
        // After a crash, blocks may not match their checksums. A bitmap identifies their regions, but with
        // parity they could not be reconstructed, because parity may be wrong there too.
        ProtectionAreas::Bitmap { .. } if has_sums && layout.has_parity() => {
            Err(AssemblyError::UnprotectedChecksums { level })
        }
        ProtectionAreas::Nothing if has_sums => Err(AssemblyError::UnprotectedChecksums { level }),
        ProtectionAreas::Journal(_) if !layout.has_parity() => {
            Err(AssemblyError::NoSuchProtection {
                level,
                protection: "journal",
            })
        }
        ProtectionAreas::Bitmap { .. } if level == Level::Raid0 => {
            Err(AssemblyError::NoSuchProtection {
                level,
                protection: "bitmap",
            })
        }
        _ => Ok(()),
    }
}

fn profile(
    layout: &Layout,
    members: &[Option<MemberDevice>],
    protection: &ProtectionAreas,
) -> Profile {
    let profiles: Vec<Profile> = members
        .iter()
        .flatten()
        .map(|member| member.device().profile())
        .collect();
    let all = |property: fn(&Profile) -> bool| profiles.iter().all(property);
    let any = |property: fn(&Profile) -> bool| profiles.iter().any(property);
    let granule = profiles
        .iter()
        .map(|profile| profile.granularity.0)
        .max()
        .unwrap_or(1);
    // Only whole stripes are deallocated, so a member deallocates at least a strip, or a granule if that is
    // longer.
    let stripes = granule.div_ceil(layout.strip_blocks());
    let has_journal = matches!(protection, ProtectionAreas::Journal(_));
    Profile {
        read_only: any(|profile| profile.read_only),
        thin: all(|profile| profile.thin),
        granularity: Blocks(layout.stripe_blocks().saturating_mul(stripes.max(1))),
        // With a journal, acknowledged writes are on stable storage. Without a journal, a member that has no
        // cache may later be replaced by a member that has one.
        volatile_cache: !has_journal
            && (any(|profile| profile.volatile_cache)
                || layout.level() != Level::Raid0 && any(|profile| profile.durable)),
        durable: all(|profile| profile.durable),
        solid_state: all(|profile| profile.solid_state),
        optimal_transfer: optimal_transfer(layout),
        loses_unseen: any(|profile| profile.loses_unseen),
    }
}

/// Returns the length of a strip, and of the data in a stripe across all members, as in Linux's md. A mirror
/// has no optimal transfer size.
fn optimal_transfer(layout: &Layout) -> Option<OptimalTransfer> {
    let strips = match (layout.level(), layout.members()) {
        (Level::Raid1, _) => return None,
        (Level::Raid5 | Level::Raid6, _) => layout.data_strips(),
        (Level::Raid10, members) if members.is_multiple_of(2) => members / 2,
        // With an odd number of members, the copies of this many strips fill two rows.
        (Level::Raid0 | Level::Raid10, members) => members,
    };
    let strip = layout.strip_blocks();
    Some(OptimalTransfer {
        granularity: Blocks(strip),
        length: Blocks(strip * strips as u64),
    })
}

fn area(set: &Set, copies: &[AreaCopy], protection: &'static str) -> Result<Area, AssemblyError> {
    let area = Area::new(copies, Arc::clone(&set.members));
    let fits = |area: &Area| area.block_bytes() == set.geometry.block_size.bytes() as usize;
    area.filter(fits)
        .ok_or(AssemblyError::NoArea { protection })
}

async fn open_journal(
    set: &Set,
    copies: &[AreaCopy],
    origin: Origin,
    nonce: u64,
) -> Result<Arc<Journal>, AssemblyError> {
    let area = area(set, copies, "journal")?;
    let needed = journal_blocks_min(&set.layout);
    if area.blocks() < needed {
        return Err(AssemblyError::AreaTooSmall {
            protection: "journal",
            found: area.blocks(),
            needed,
        });
    }
    if matches!(origin, Origin::Existing | Origin::WithoutJournal)
        && let Some(version) = Log::newer_version(&area.devices()).await
    {
        return Err(AssemblyError::NewerJournal { version });
    }
    let old = match origin {
        Origin::WithoutJournal => None,
        _ => Log::newest(&area.devices()).await?,
    };
    let (mut generation, key) = old
        .as_ref()
        .map_or((0, 0), |log| (log.generation(), log.key()));
    let replayed = if origin == Origin::Existing {
        Some(old.ok_or(AssemblyError::NoJournal)?)
    } else {
        None
    };
    if matches!(origin, Origin::Existing | Origin::WithoutJournal) {
        set.members.started().await?;
    }
    if let Some(mut log) = replayed {
        log.secure(&area).await?;
        generation = log.generation();
        while let Some(change) = log.next().await? {
            set.check_change(&change)?;
            set.apply(&set.with_parity(change), Durability::Cached)
                .await?;
        }
        set.members.flush().await?;
        set.members.settle_healed().await?;
    }
    // Make the new key different from the old one, so that old records are not replayed again.
    let key = if nonce == key {
        nonce.wrapping_add(1)
    } else {
        nonce
    };
    let (members, operations) = (Arc::clone(&set.members), Arc::clone(&set.operations));
    Ok(Arc::new(
        Journal::begin(area, members, operations, generation, key).await?,
    ))
}

/// Checks the journal or bitmap of a set that was in use. Returns the reason why the set could not be
/// assembled, if there is one. Writes nothing.
pub async fn obstacle(
    layout: &Layout,
    states: &MemberStates,
    protection: &ProtectionAreas,
    accepts_wrong_data: bool,
) -> Option<AssemblyError> {
    match protection {
        ProtectionAreas::Journal(copies) => match newer_journal(copies).await {
            Some(version) => Some(AssemblyError::NewerJournal { version }),
            None => match has_journal(copies).await {
                Ok(true) => None,
                Ok(false) => Some(AssemblyError::NoJournal),
                Err(error) => Some(error.into()),
            },
        },
        ProtectionAreas::Bitmap {
            copies,
            region_stripes,
        } if layout.has_parity() && states.lacking().contains(&true) && !accepts_wrong_data => {
            let in_sync = |copy: &&AreaCopy| {
                copy.member
                    .is_none_or(|member| states.members.get(member) == Some(&MemberState::InSync))
            };
            let current: Vec<_> = copies
                .iter()
                .filter(in_sync)
                .map(|copy| Arc::clone(&copy.device))
                .collect();
            let devices = if current.is_empty() {
                used_devices(copies)
            } else {
                current
            };
            let regions = crate::intent::noted(&devices, *region_stripes, layout.stripes()).await;
            (regions > 0).then_some(AssemblyError::DataMayBeWrong { regions })
        }
        ProtectionAreas::Bitmap { .. } | ProtectionAreas::Nothing => None,
    }
}

/// Returns the version of a journal that a newer program has written, and that this program can neither
/// replay nor discard.
pub async fn newer_journal(copies: &[AreaCopy]) -> Option<u32> {
    Log::newer_version(&used_devices(copies)).await
}

/// Returns the copies in use: the separate device if there is one, otherwise those on members.
fn used_devices(copies: &[AreaCopy]) -> Vec<Arc<dyn block::BlockDevice>> {
    let has_own = copies.iter().any(|copy| copy.member.is_none());
    let used = copies
        .iter()
        .filter(|copy| copy.member.is_none() == has_own);
    used.map(|copy| Arc::clone(&copy.device)).collect()
}

/// Whether there is a copy of the journal that can be replayed. An unreadable copy cannot.
///
/// # Errors
/// An unreadable copy may contain a journal, and no other copy can be replayed.
pub async fn has_journal(copies: &[AreaCopy]) -> Result<bool, DeviceError> {
    match Log::newest(&used_devices(copies)).await {
        Ok(newest) => Ok(newest.is_some()),
        Err(DeviceError::Unreadable(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the minimum size of a journal in blocks, which has space for two full-stripe writes.
pub fn journal_blocks_min(layout: &Layout) -> u64 {
    let stripe = layout.strip_blocks() * layout.strips() as u64;
    // Each write starts and ends once within a data strip, and each of these two positions splits the columns
    // of parity. An entry has 12 bytes.
    let parts = 4 * layout.strips() as u64 + 8 * WRITES_MAX as u64;
    let list = (64 + 12 * parts) >> layout.block_size().shift();
    HEADERS + 2 * (stripe + list + 1)
}

async fn open_bitmap(
    set: &Set,
    copies: &[AreaCopy],
    region_stripes: u64,
    origin: Origin,
    may_refuse: bool,
    missed: Missed,
) -> Result<Arc<Intent>, AssemblyError> {
    let area = area(set, copies, "bitmap")?;
    let region_stripes = region_stripes.max(1);
    let needed = Intent::blocks_needed(area.block_bytes(), region_stripes, set.layout.stripes());
    if area.blocks() < needed {
        return Err(AssemblyError::AreaTooSmall {
            protection: "bitmap",
            found: area.blocks(),
            needed,
        });
    }
    let intent = Intent::new(area, region_stripes, set.layout.stripes());
    match origin {
        Origin::Existing | Origin::WithoutJournal => {
            intent.load().await;
            let (regions, lacking) = (intent.unsynced(), set.members.states().lacking());
            if set.layout.has_parity() && lacking.contains(&true) && regions > 0 && may_refuse {
                return Err(AssemblyError::DataMayBeWrong { regions });
            }
            let is_noted = match missed {
                Missed::Nothing => false,
                Missed::Noted => intent.load_missed().await,
                Missed::Unknown => {
                    intent.miss_all();
                    false
                }
            };
            set.members.started().await?;
            // An earlier run may have left writes in the cache of a member's server, whose loss this run
            // would not detect. So flush them to stable storage before they are copied to other members.
            set.members.flush().await?;
            intent.write_all().await?;
            match missed {
                Missed::Noted if is_noted => set.members.rebuild_in_part(),
                Missed::Noted => set.members.record_missed(false).await.map(drop)?,
                // Record this now: a missing member may return soon, while the next work on the set may take
                // hours.
                Missed::Nothing => intent.secure_missed().await?,
                Missed::Unknown => {}
            }
        }
        Origin::New | Origin::NewOfZeros => {
            if set.members.states().lacking().contains(&true) {
                intent.miss_all();
            }
            intent.format(origin == Origin::New).await?;
        }
    }
    Ok(Arc::new(intent))
}
