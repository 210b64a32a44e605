//! Operations on sets that are not in use, such as creating a set by writing superblocks to its members.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::{Allocation, BlockDevice, BlockSize, Blocks, Buffer, Durability, Extent};
use disk_contents::Consent;
use raid::choose::{Found, FoundSet, Refusal, Trust, find};
use raid::disks::{self, Disk};
use raid::superblock::{
    Areas, MemberRecord, SLOT_BYTES, ScrubRecord, SetRecord, Uuid, area_copies,
};
use raid::{
    AssemblyError, Layout, Level, LostBlocks, MemberState, MemberStates, MetadataStore,
    ProtectionAreas, Scrubbed, Summed, has_journal, journal_blocks_min, newer_journal,
};
use serde::Serialize;
use volume::backend::{Opening, Undo};
use volume::spec::{Bytes, Spec};

use crate::failure::Failure;
use crate::opening;
use crate::peers::random;
use crate::raid::open::{Assembled, LostJournal, Manner, Members, not_assembled, said};
use crate::raid::state::{
    Condition, JournalStatus, MemberCondition, MemberStatus, Scrub, ScrubStatus, write_meaning,
    write_members,
};
use crate::raid::{KINDS, LOST, Raid, STRIP, check_losses_are_seen, is_set, named};
use crate::reservation::Overwritten;

/// The parameters of a new set.
#[derive(Clone, Debug, Default)]
pub struct Creation {
    /// The set's display name.
    pub name: String,
    /// Journal size on each member with a copy; RAID 5 and 6 only. 0 selects a write-intent bitmap instead,
    /// which does not close the write hole. [default: 32 MiB, for RAID 5 and 6]
    pub journal: Option<Bytes>,
    /// Whether to keep checksums of all blocks, which identify the member with a corrupt block. Available for
    /// RAID 1 and 10, and for RAID 5 and 6 with a journal.
    pub checksums: bool,
    /// Volumes that can replace a member.
    pub spares: Vec<Spec>,
    /// A separate volume for the journal. The members still reserve space for the journal, in case the volume
    /// fails.
    pub journal_on: Option<Spec>,
}

/// Default journal size.
const JOURNAL: Bytes = Bytes(32 << 20);

/// Size of a write-intent bitmap. It has room for two bitmaps of `REGIONS_MAX` bits, with block headers; the
/// second records the regions that absent members miss.
const BITMAP_BYTES: u64 = 64 << 10;
const REGIONS_MAX: u64 = 3 * BITMAP_BYTES;
/// Minimum length of a region.
const REGION_BYTES: u64 = 64 << 20;

/// Makes the volumes of `spec` the members of a new set, which [`open`](crate::open) then assembles. Missing
/// files are created, and removed again on failure. If a member specifies a set that does not exist, that set
/// is created first, with default options.
///
/// # Errors
/// Such a set is not possible; or a volume fails, or has content and there is no consent to lose it.
pub async fn create(
    spec: &Spec,
    creation: &Creation,
    consent: Consent<'_>,
) -> Result<SetRecord, Failure> {
    let opening = opening();
    let created = created(spec, creation, consent, &opening).await;
    created.inspect_err(|_| opening.undo.take_back())
}

async fn created(
    spec: &Spec,
    creation: &Creation,
    consent: Consent<'_>,
    opening: &Opening,
) -> Result<SetRecord, Failure> {
    let Raid {
        level,
        strip,
        members,
        ..
    } = named(spec)?;
    let strip = strip.unwrap_or(STRIP);
    if level.parity_strips() == 0 && creation.journal.is_some_and(|journal| journal.0 > 0) {
        return Err(Failure::refused(format_args!(
            "{level} has no journal, unlike RAID 5 and 6: omit --journal"
        )));
    }
    if creation.journal_on.is_some()
        && (level.parity_strips() == 0 || creation.journal.is_some_and(|journal| journal.0 == 0))
    {
        return Err(Failure::refused(format_args!(
            "--journal-on needs a set with a journal: RAID 5 or 6, without --journal 0; this set is {level}"
        )));
    }
    let mut disks = Vec::new();
    for spec in members
        .iter()
        .chain(&creation.spares)
        .chain(&creation.journal_on)
    {
        if !spec.keeps_data() {
            return Err(Failure::refused(format_args!(
                "{spec} does not keep its data after a restart; use volumes that do"
            )));
        }
        if is_set(spec) && status(spec).await?.0.is_empty() {
            create_inner(spec, consent, opening).await?;
        }
        let device = spec.open(opening).await.map_err(Failure::from)?;
        check_losses_are_seen(level, spec, device.as_ref())?;
        disks.push(Disk {
            name: spec.to_string(),
            device,
        });
    }
    let record = record(level, strip, members.len(), &disks, creation).await?;
    for Disk { name, device } in &disks {
        Overwritten {
            device: device.as_ref(),
            name,
            part: None,
            lun: None,
        }
        .consent(consent)
        .await?;
    }
    all_are_different(&disks).await?;
    disks::create(&record, &disks)
        .await
        .map_err(|error| Failure::failed(format_args!("creating the set: {error}")))?;
    Ok(record)
}

/// Creates a set that becomes a member.
async fn create_inner(spec: &Spec, consent: Consent<'_>, opening: &Opening) -> Result<(), Failure> {
    let files = files_to_make(spec);
    // The undo record of a file's creation keeps the file open, but the set must open the file again.
    let inner = Opening {
        undo: Undo::default(),
        ..opening.clone()
    };
    let created = Box::pin(created(spec, &Creation::default(), consent, &inner)).await;
    created.inspect_err(|_| inner.undo.take_back())?;
    opening.undo.add(move || {
        files.iter().for_each(|file| {
            let _ = std::fs::remove_file(file);
        });
    });
    Ok(())
}

/// Files to create for a new set.
fn files_to_make(spec: &Spec) -> Vec<PathBuf> {
    match spec.backend().members() {
        [] => spec
            .backend()
            .makes_file()
            .map(Path::to_owned)
            .into_iter()
            .collect(),
        members => members.iter().flat_map(files_to_make).collect(),
    }
}

/// Detects two names for one network disk: writes a mark through one name, and searches for it through the
/// others. Afterwards, the first block is restored.
async fn all_are_different(disks: &[Disk]) -> Result<(), Failure> {
    let block_bytes = disks[0].device.geometry().block_size.bytes() as usize;
    let first = Extent::new(0, 1);
    for (index, Disk { name, device }) in disks.iter().enumerate() {
        let failed = |error| Failure::device(name, error);
        let before = device
            .read(first, Buffer::zeroed(block_bytes))
            .await
            .map_err(failed)?
            .share();
        let mut mark = Buffer::zeroed(block_bytes);
        random(&mut mark[..64]);
        let mark = mark.share();
        device
            .write(first, mark.clone(), Durability::Cached)
            .await
            .map_err(failed)?;
        let mut twin = None;
        for other in &disks[index + 1..] {
            let found = other.device.read(first, Buffer::zeroed(block_bytes)).await;
            if found.is_ok_and(|found| found[..] == mark[..]) {
                twin = Some(&other.name);
            }
        }
        device
            .write(first, before, Durability::Cached)
            .await
            .map_err(failed)?;
        if let Some(twin) = twin {
            return Err(Failure::refused(format_args!(
                "{name} and {twin} are the same disk"
            )));
        }
    }
    Ok(())
}

async fn record(
    level: Level,
    strip: Bytes,
    members: usize,
    disks: &[Disk],
    creation: &Creation,
) -> Result<SetRecord, Failure> {
    let block_size = disks[0].device.geometry().block_size;
    if let Some(other) = disks
        .iter()
        .find(|disk| disk.device.geometry().block_size != block_size)
    {
        let (has, others) = (
            other.device.geometry().block_size.bytes(),
            block_size.bytes(),
        );
        return Err(Failure::refused(format_args!(
            "{} has {has}-byte blocks, and other volumes have {others}-byte blocks",
            other.name
        )));
    }
    let data_disks = members + creation.spares.len();
    debug_assert_eq!(
        disks.len(),
        data_disks + usize::from(creation.journal_on.is_some()),
        "each volume of the set is open"
    );
    let bytes = disks[..data_disks]
        .iter()
        .map(|disk| disk.device.geometry().bytes())
        .min()
        .unwrap_or(0);
    let layout = |data_bytes: u64| {
        let blocks = Blocks(data_bytes >> block_size.shift());
        Layout::new(level, members, strip.0, block_size, blocks).map_err(Failure::refused)
    };
    let least = journal_blocks_min(&layout(bytes)?) << block_size.shift();
    let journal = creation.journal.unwrap_or(JOURNAL);
    let has_journal = level.parity_strips() > 0 && journal.0 > 0;
    let journal_bytes = if has_journal { journal.0.max(least) } else { 0 };
    let bitmap_bytes = if has_journal || level == Level::Raid0 {
        0
    } else {
        BITMAP_BYTES.max(bitmap_min(block_size))
    };
    if creation.checksums && (level == Level::Raid0 || (level.parity_strips() > 0 && !has_journal))
    {
        return Err(Failure::refused(format_args!(
            "{level} {} cannot have checksums; use RAID 1 or 10, or RAID 5 or 6 with a journal",
            if level == Level::Raid0 {
                "has no redundancy, so it"
            } else {
                "without a journal"
            }
        )));
    }
    let sums_bytes = if creation.checksums {
        Summed::area_bytes(bytes >> block_size.shift())
    } else {
        0
    };
    let areas = Areas::plan(bytes, journal_bytes, bitmap_bytes, sums_bytes).ok_or_else(|| {
        let areas = Areas::plan(u64::MAX >> 1, journal_bytes, bitmap_bytes, sums_bytes);
        let metadata = areas.map_or(0, |areas| areas.data.offset);
        let least = Bytes(metadata + strip.0.max(SLOT_BYTES));
        let journal = if has_journal { ", or a smaller --journal" } else { "" };
        Failure::refused(format_args!(
            "the smallest member has {}, and the set's metadata needs {} of it; use members of {least} or \
             more{journal}",
            Bytes(bytes),
            Bytes(metadata)
        ))
    })?;
    if let Some(journal) = disks.get(data_disks) {
        let (has, needed) = (journal.device.geometry().bytes(), areas.journal_end());
        if has < needed {
            return Err(Failure::refused(format_args!(
                "{} has {has} bytes, and the journal needs {needed}; use --journal SIZE for a smaller \
                 journal, of at least {}",
                journal.name,
                Bytes(least.next_multiple_of(SLOT_BYTES))
            )));
        }
    }
    let layout = layout(areas.data.bytes)?;
    let stripe_bytes = layout.stripe_blocks() << block_size.shift();
    let region_stripes = (REGION_BYTES / stripe_bytes)
        .max(layout.stripes().div_ceil(REGIONS_MAX))
        .max(1);
    debug_assert!(
        layout.stripes().div_ceil(region_stripes) <= REGIONS_MAX,
        "each region has a bit in the bitmap"
    );
    let are_zero = all_are_zero(&disks[..members], areas).await;
    // A set with a bitmap starts with all members in sync, and is resynchronised while in use. A journal has
    // no regions to resynchronise, so a set with a journal starts degraded and is rebuilt.
    let begins_degraded = !are_zero && has_journal;
    let states = match begins_degraded {
        true => MemberStates::of_new_set(&layout),
        false => MemberStates::in_sync(members),
    };
    let member = |state: MemberState| MemberRecord::new(uuid(), state);
    Ok(SetRecord {
        uuid: uuid(),
        name: creation.name.clone(),
        generation: 1,
        level,
        strip_bytes: strip.0,
        block_size,
        areas,
        journal_device: creation.journal_on.as_ref().map(|_| uuid()),
        area_copies: u16::try_from(area_copies(level, members)).unwrap_or(u16::MAX),
        region_stripes,
        in_use_from: 0,
        missed_from: 0,
        // Inconsistent stripes are resynchronised or rebuilt when the set is first opened.
        clean: are_zero || begins_degraded,
        members: states.members.into_iter().map(member).collect(),
        spares: creation.spares.iter().map(|_| uuid()).collect(),
        scrub: None,
        lost: LostBlocks::default(),
    })
}

/// Replaces member number `member` with `with`, in a set that is not in use. The member must be missing or
/// have failed. The next time the set is opened with the new volume among its members, that volume is
/// rebuilt.
///
/// # Errors
/// The set does not start, or still has that member. Or the volume is too small, fails, or has content and
/// there is no consent to lose it.
pub async fn replace(
    spec: &Spec,
    member: usize,
    with: &Spec,
    consent: Consent<'_>,
) -> Result<(), Failure> {
    let set = named(spec)?;
    if let Some(named) = set.members.iter().find(|named| are_one_store(named, with)) {
        return Err(Failure::refused(format_args!(
            "{named} is already listed as a member of the set, and cannot replace one; remove it from the \
             brackets, or use another volume"
        )));
    }
    let parts = set.parts(&opening()).await?;
    match parts.states.members.get(member) {
        None => Err(Failure::refused(format_args!(
            "the set has members 0 to {}",
            parts.states.members.len() - 1
        ))),
        Some(MemberState::InSync) => Err(Failure::refused(format_args!(
            "member {member} is in sync; to replace it, omit its volume"
        ))),
        Some(_) => Ok(()),
    }?;
    if parts.is_new() {
        return Err(Failure::refused(
            "the set was never used: create it again with the other volume",
        ));
    }
    let device = new_member(with, &parts.records.set(), consent, &opening()).await?;
    let failed = |error| Failure::device(format_args!("cannot make {with} a member"), error);
    parts.records.start(&parts.states).await.map_err(failed)?;
    parts
        .records
        .replace(member, uuid(), device)
        .await
        .map_err(failed)
}

/// Returns whether two specifications refer to the same file or disk, or are identical.
pub(crate) fn are_one_store(one: &Spec, other: &Spec) -> bool {
    match (one.file(), other.file()) {
        (Some(one), Some(other)) => is_one_file(one, other),
        _ => one == other,
    }
}

/// Returns whether two paths refer to the same file or disk.
pub fn is_one_file(one: &Path, other: &Path) -> bool {
    one == other
        || one
            .canonicalize()
            .is_ok_and(|one| other.canonicalize().is_ok_and(|other| other == one))
}

/// Opens a volume that becomes a disk of this set.
pub(crate) async fn new_member(
    with: &Spec,
    record: &SetRecord,
    consent: Consent<'_>,
    opening: &Opening,
) -> Result<Arc<dyn BlockDevice>, Failure> {
    if !with.keeps_data() {
        return Err(Failure::refused(format_args!(
            "{with} does not keep its data, but the set does"
        )));
    }
    let device = with.open(opening).await.map_err(Failure::from)?;
    check_losses_are_seen(record.level, with, device.as_ref())?;
    let (geometry, needed) = (device.geometry(), record.areas.end());
    if geometry.block_size != record.block_size || geometry.bytes() < needed {
        return Err(Failure::refused(format_args!(
            "{with} has {} bytes in {}-byte blocks; a member needs at least {needed} bytes in {}-byte blocks",
            geometry.bytes(),
            geometry.block_size.bytes(),
            record.block_size.bytes()
        )));
    }
    Overwritten {
        device: device.as_ref(),
        name: with,
        part: None,
        lun: None,
    }
    .consent(consent)
    .await?;
    Ok(device)
}

/// Returns the minimum size of a bitmap, which is two blocks.
fn bitmap_min(block_size: BlockSize) -> u64 {
    2 * u64::from(block_size.bytes())
}

/// Returns whether the members contain only zeros, so that they are consistent.
async fn all_are_zero(disks: &[Disk], areas: Areas) -> bool {
    for Disk { device, .. } in disks {
        if !is_zero(device, areas).await {
            return false;
        }
    }
    true
}

async fn is_zero(device: &Arc<dyn BlockDevice>, areas: Areas) -> bool {
    let shift = device.geometry().block_size.shift();
    let data = Extent::new(areas.data.offset >> shift, areas.data.bytes >> shift);
    let runs = device.allocation(data, 1).await;
    runs.is_ok_and(|runs| matches!(&runs[..], [only] if only.allocation == Allocation::Deallocated && only.extent == data))
}

/// Returns a random UUID (RFC 9562 5.4).
pub(crate) fn uuid() -> Uuid {
    let mut bytes = [0; 16];
    random(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid(bytes)
}

// Status of the sets that are recorded on the members of a specification.

/// A set as recorded on its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetStatus {
    /// The set's UUID.
    pub uuid: String,
    /// The set's name; empty if it has none.
    pub name: String,
    /// The RAID level, such as `RAID 5`.
    pub level: String,
    /// The set's condition.
    pub state: Condition,
    /// Length of a strip in bytes.
    pub strip_bytes: u64,
    /// Capacity in bytes.
    pub bytes: u64,
    /// Generation of the newest superblock.
    pub generation: u64,
    /// Whether the set was closed cleanly, so that no stripe is incomplete. False while the set is in use,
    /// and after a crash.
    pub closed: bool,
    /// Whether the disks had content when the set was created, and the set has not been used since. Until its
    /// first use, copies may differ or parity may be wrong.
    pub unsynchronised: bool,
    /// The members, in the order of the layout.
    pub members: Vec<MemberStatus>,
    /// The set's journal, if it is on a separate volume.
    pub journal: Option<JournalStatus>,
    /// Names of the volumes that can replace a member.
    pub spares: Vec<String>,
    /// Former members, each with the reason for its exclusion.
    pub left_out: Vec<String>,
    /// The latest recorded scrub of the set in use.
    pub scrub: Option<ScrubStatus>,
    /// The reason why the set cannot start; `None` if it can start.
    pub refusal: Option<String>,
    /// A specification that opens the set, with the volumes that are known.
    pub specification: String,
}

impl SetStatus {
    /// Returns whether the set's condition is good and no block is lost.
    pub fn is_healthy(&self) -> bool {
        self.state.is_well() && self.members.iter().all(|member| member.lost_blocks == 0)
    }
}

/// Returns the sets that the volumes of `spec` belong to, in the state in which `spec` would start them, and
/// a line for each volume that belongs to no set. Writes nothing.
///
/// # Errors
/// `spec` is not the specification of a set.
pub async fn status(spec: &Spec) -> Result<(Vec<SetStatus>, Vec<String>), Failure> {
    let named = named(spec)?;
    look_with(&named.members, &named.overruled()).await
}

/// Like [`status`], for a list of volumes, which may belong to several sets.
///
/// # Errors
/// A volume cannot be read without modifying it.
pub async fn look(volumes: &[Spec]) -> Result<(Vec<SetStatus>, Vec<String>), Failure> {
    look_with(volumes, &Overruled::default()).await
}

/// The refusals to start that a specification overrides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overruled {
    pub(crate) missing_are_lost: bool,
    pub(crate) data_may_be_wrong: bool,
}

impl Raid {
    fn overruled(&self) -> Overruled {
        let Raid {
            missing_are_lost,
            data_may_be_wrong,
            ..
        } = *self;
        Overruled {
            missing_are_lost,
            data_may_be_wrong,
        }
    }
}

async fn look_with(
    volumes: &[Spec],
    overruled: &Overruled,
) -> Result<(Vec<SetStatus>, Vec<String>), Failure> {
    let members = Members::open(
        volumes,
        &Opening {
            read_only: true,
            ..opening()
        },
    )
    .await?;
    let candidates = disks::look_at(&members.disks).await;
    let trust = if overruled.missing_are_lost {
        Trust::MembersFound
    } else {
        Trust::CertainOnly
    };
    let Found { sets, others } = find(&candidates, trust);
    let certain = find(&candidates, Trust::CertainOnly);
    let name = |index: usize| members.disks[index].name.clone();
    let mut statuses = Vec::new();
    for set in &sets {
        let refusal = match &set.refusal {
            Some(Refusal::NoJournal { .. }) if is_new(&set.record) => Some(
                "the volume with the journal is missing; attach it. If it is lost, create the set again: it was \
                 never used".to_owned(),
            ),
            Some(refusal) => Some(said(refusal)),
            None => not_started(set, &members.disks, overruled).await?,
        };
        let mut status = of_set(set, &name, refusal);
        let is_needed = |certain: &FoundSet| {
            certain.record.uuid == set.record.uuid
                && matches!(certain.refusal, Some(Refusal::NewerMayExist { .. }))
        };
        if overruled.missing_are_lost && certain.sets.iter().any(is_needed) {
            status.specification += &format!("?{LOST}");
        }
        statuses.push(status);
    }
    let others = others
        .iter()
        .map(|(index, reason)| format!("{}: {reason}", name(*index)));
    Ok((
        statuses,
        others
            .chain(members.absent.iter().map(ToString::to_string))
            .collect(),
    ))
}

/// Returns the reason why the journal or the bitmap of a set prevents the set from starting.
async fn not_started(
    set: &FoundSet,
    disks: &[Disk],
    overruled: &Overruled,
) -> Result<Option<String>, Failure> {
    let parts = disks::open(set, disks).map_err(Failure::failed)?;
    if parts.is_new() {
        return Ok(None);
    }
    let (protection, accepts) = (parts.protection(), overruled.data_may_be_wrong);
    let obstacle = raid::obstacle(&parts.layout, &parts.states, &protection, accepts).await;
    Ok(obstacle.map(|error| not_assembled(&error)))
}

fn of_set(set: &FoundSet, name: &dyn Fn(usize) -> String, refusal: Option<String>) -> SetStatus {
    let layout = set.record.layout().ok();
    let stripes = layout.map_or(1, |layout| layout.stripes().max(1));
    let states = set.states().members;
    let members = set.members.iter().enumerate().map(|(index, disk)| {
        // A returning member is rebuilt at the next start.
        let found = match set.record.members[index].state {
            MemberState::Failed => states[index],
            state => state,
        };
        let (state, percent) = match (found, disk) {
            (MemberState::Failed, _) => (MemberCondition::Failed, None),
            (_, None) => (MemberCondition::Missing, None),
            (MemberState::InSync, _) => (MemberCondition::InSync, None),
            (MemberState::Rebuilding { done }, _) => {
                (MemberCondition::Rebuilding, Some(100 * done / stripes))
            }
        };
        MemberStatus {
            volume: disk.map(name),
            state,
            percent,
            lost_blocks: set.record.lost.blocks_of(index),
            missed_regions_recorded: set.record.missed_from > 0 && state == MemberCondition::Failed,
        }
    });
    let members: Vec<MemberStatus> = members.collect();
    let spares: Vec<String> = set.spares.iter().map(|(_, disk)| name(*disk)).collect();
    let kind = KINDS
        .iter()
        .find(|(_, level)| *level == set.record.level)
        .map_or("raid", |(kind, _)| kind.name);
    let strip = match set.record.level {
        Level::Raid1 => String::new(),
        _ => format!("{}:", Bytes(set.record.strip_bytes)),
    };
    let journal = set.record.journal_device.map(|_| {
        let volume = set.journal.map(name);
        JournalStatus {
            has_failed: volume.is_none(),
            volume,
        }
    });
    let volumes = members
        .iter()
        .filter_map(|member| member.volume.clone())
        .chain(spares.clone());
    let volumes: Vec<_> = volumes
        .chain(journal.iter().filter_map(|journal| journal.volume.clone()))
        .collect();
    let may_differ = is_new(&set.record) && set.record.level != Level::Raid0 && !fits(&set.record);
    let has = |state| {
        members
            .iter()
            .any(|member: &MemberStatus| member.state == state)
    };
    let state = match () {
        () if refusal.is_some() => Condition::Refused,
        () if has(MemberCondition::Failed) || has(MemberCondition::Missing) => Condition::Degraded,
        () if journal.as_ref().is_some_and(|journal| journal.has_failed) => Condition::Degraded,
        () if has(MemberCondition::Rebuilding) => Condition::Rebuilding,
        () if may_differ => Condition::Unsynchronised,
        () => Condition::Healthy,
    };
    SetStatus {
        state,
        specification: format!("{kind}:{strip}[{}]", volumes.join(", ")),
        uuid: set.record.uuid.to_string(),
        name: set.record.name.clone(),
        level: set.record.level.to_string(),
        strip_bytes: set.record.strip_bytes,
        bytes: layout.map_or(0, |layout| layout.blocks().0 << layout.block_size().shift()),
        generation: set.record.generation,
        closed: set.record.clean,
        unsynchronised: may_differ,
        members,
        journal,
        spares,
        left_out: set
            .left_out
            .iter()
            .map(|(disk, why)| format!("{}: {why}", name(*disk)))
            .collect(),
        scrub: set
            .record
            .scrub
            .as_ref()
            .map(|scrub| ScrubStatus::recorded(scrub, stripes)),
        refusal,
    }
}

/// Returns whether the set has never been started.
fn is_new(record: &SetRecord) -> bool {
    record.generation == disks::FIRST_GENERATION
}

/// Returns whether the set's strips are consistent, as in a set that was created on zeroed members.
fn fits(record: &SetRecord) -> bool {
    record.clean
        && record
            .members
            .iter()
            .all(|member| member.state == MemberState::InSync)
}

impl fmt::Display for SetStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() {
            String::new()
        } else {
            format!(" {:?}", self.name)
        };
        write!(
            f,
            "{} {}{name}: {}, {}",
            self.level,
            self.uuid,
            self.state,
            Bytes(self.bytes)
        )?;
        if self.level != Level::Raid1.to_string() {
            write!(f, ", strips of {}", Bytes(self.strip_bytes))?;
        }
        write_members(f, &self.members, self.journal.as_ref(), &self.spares)?;
        if self.unsynchronised {
            write!(f, "\n  new, of disks that had content: ")?;
            let is_whole = self
                .members
                .iter()
                .all(|member| member.state == MemberCondition::InSync);
            let has_parity = [Level::Raid5, Level::Raid6]
                .iter()
                .any(|level| self.level == level.to_string());
            f.write_str(match is_whole {
                true if has_parity => {
                    "when the set is used, parity is computed region by region; if a \
                                       member fails before parity is complete, data can be lost"
                }
                true => {
                    "the copies differ until the set is used and has synchronised them; until then, a \
                         scrub reports them"
                }
                false => {
                    "degraded until the set is used and has computed parity; if a member fails before \
                          parity is complete, data can be lost"
                }
            })?;
        }
        self.left_out
            .iter()
            .try_for_each(|left_out| write!(f, "\n  excluded: {left_out}"))?;
        match &self.scrub {
            Some(ScrubStatus {
                has_ended: false,
                progress,
                found,
                ..
            }) => {
                write!(
                    f,
                    "\n  scrub: {progress}, resumes when the set is opened; {found}"
                )?;
            }
            Some(ScrubStatus { found, .. }) => write!(f, "\n  scrubbed: {found}")?,
            None => {}
        }
        match &self.refusal {
            Some(refusal) => write!(f, "\n  cannot start: {refusal}"),
            None => write_meaning(f, self.state),
        }
    }
}

// Scrubbing: reads and compares all strips of a set.

/// Reads and compares all stripes of a set that is not in use. With `repairs`, makes inconsistent strips
/// consistent: keeps the data, and rewrites parity and second copies. Calls `tells` with the number of
/// completed stripes and the total.
///
/// # Errors
/// The set does not start, or a request fails.
pub async fn scrub(
    spec: &Spec,
    repairs: bool,
    tells: &mut dyn FnMut(u64, u64),
) -> Result<Scrub, Failure> {
    // The set must not repair anything automatically, and must not write at all unless `repairs` is set.
    let opening = Opening {
        read_only: !repairs,
        ..opening()
    };
    let assembled = named(spec)?.assembled(&opening).await?;
    scrubbed(assembled, repairs, false, tells).await
}

/// The consequences of a lost journal: both of its headers, or its device, are lost.
const LOST_WITH_JOURNAL: &str = "the journal is not replayed: writes acknowledged shortly before the set stopped, \
                                 and blocks being written then, may have their old content, or be corrupted; if a \
                                 member is missing, so may its other blocks in these stripes. With checksums, data \
                                 that cannot be verified otherwise is accepted unchanged. All other data is intact";

/// Replaces an unreadable journal with a new one, starts the set, and rewrites parity wherever it does not
/// match the data. If this is interrupted, it resumes the next time the set is opened. Without consent,
/// nothing is changed.
///
/// # Errors
/// The set has a valid journal, or cannot start for another reason; or a request fails.
pub async fn discard_journal(
    spec: &Spec,
    has_consent: bool,
    tells: &mut dyn FnMut(u64, u64),
) -> Result<Scrub, Failure> {
    if !has_consent {
        return Err(Failure::refused(format_args!(
            "use --yes to accept this: {LOST_WITH_JOURNAL}"
        )));
    }
    let lost_journal: &LostJournal = &|parts| {
        Box::pin(async {
            let ProtectionAreas::Journal(copies) = parts.protection() else {
                return Err(Failure::refused("the set has no journal"));
            };
            // If the journal's device is lost, the journal is lost, even if the members contain one: a
            // fallback to the members that was not yet recorded leaves an empty journal there.
            let has_area = !parts.is_journal_lost;
            if has_area && let Some(version) = newer_journal(&copies).await {
                return Err(Failure::refused(AssemblyError::NewerJournal { version }));
            }
            let unsure =
                |error| Failure::device("searching for the journal, which may exist", error);
            if parts.is_new() {
                return Err(Failure::refused("the set was never used: create it again"));
            }
            if has_area && has_journal(&copies).await.map_err(unsure)? {
                return Err(Failure::refused(
                    "the set has a journal that can be replayed: it can start without this option",
                ));
            }
            let failed = |error| Failure::device("recording that the set is scrubbed", error);
            let all_of_it = ScrubRecord {
                repairs: true,
                ..ScrubRecord::default()
            };
            parts
                .records
                .scrubbed(Some(all_of_it))
                .await
                .map_err(failed)
        })
    };
    let manner = Manner {
        lost_journal: Some(lost_journal),
        ..Manner::default()
    };
    let assembled = named(spec)?.assembled_so(&opening(), manner).await?;
    let records = assembled.records.clone();
    let scrub = scrubbed(assembled, true, true, tells).await?;
    if let Some(records) = records {
        let record = ScrubRecord {
            repairs: true,
            has_ended: true,
            ..scrub.record()
        };
        let failed = |error| Failure::device("recording that the set was scrubbed", error);
        records.scrubbed(Some(record)).await.map_err(failed)?;
        records.close().await.map_err(failed)?;
    }
    Ok(scrub)
}

async fn scrubbed(
    assembled: Assembled,
    repairs: bool,
    accepts: bool,
    tells: &mut dyn FnMut(u64, u64),
) -> Result<Scrub, Failure> {
    let (mut scrub, stripes) = (Scrub::default(), assembled.set.layout().stripes());
    for stripe in 0..stripes {
        let found = match accepts {
            true => assembled.set.accept_step(stripe).await,
            false => assembled.set.scrub_step(stripe, repairs).await,
        };
        let failed = |error| Failure::device(format_args!("cannot scrub stripe {stripe}"), error);
        let found = found.map_err(failed)?;
        let is_expected =
            found == Scrubbed::Mismatch { is_repaired: false } && assembled.set.is_unsynced(stripe);
        scrub.unsynchronised += u64::from(is_expected);
        scrub.add(found);
        tells(scrub.stripes, stripes);
    }
    scrub.wrong_blocks = assembled.set.status().wrong_blocks;
    if let Some(records) = assembled.records.filter(|_| repairs) {
        let failed = |error| Failure::device("closing the set", error);
        let is_synchronised = assembled.set.status().unsynced_regions == 0;
        assembled.set.close().await.map_err(failed)?;
        if is_synchronised {
            records.close().await.map_err(failed)?;
        }
    }
    Ok(scrub)
}
