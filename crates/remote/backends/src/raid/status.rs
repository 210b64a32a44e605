//! What the members of a specification say of their sets.

use std::fmt;

use raid::choose::{Found, FoundSet, Refusal, Trust, find};
use raid::disks::Disk;
use raid::superblock::SetRecord;
use raid::{Level, MemberState, disks};
use serde::{Deserialize, Serialize};
use volume::backend::Opening;
use volume::spec::{Bytes, Spec};

use super::condition::{Condition, Meaning};
use super::open::{Members, not_assembled, said};
use super::progress::{Progress, ScrubStatus};
use super::{KINDS, LOST, Raid, named};
use crate::failure::Failure;
use crate::opening;

/// A set as its members have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetStatus {
    /// Its UUID.
    pub uuid: String,
    /// Its name; empty without one.
    pub name: String,
    /// `RAID 5`.
    pub level: String,
    /// How it is.
    pub state: Condition,
    /// Length of a strip.
    pub strip_bytes: u64,
    /// Capacity.
    pub bytes: u64,
    /// Of its newest record.
    pub generation: u64,
    /// It was closed: no stripe is incomplete. Not while it is used, nor after a crash.
    pub closed: bool,
    /// Its disks had content when it was made, so that copies differ, or parity lacks, until it is used for the first time.
    pub unsynchronised: bool,
    /// In the order of the layout.
    pub members: Vec<MemberStatus>,
    /// Where its journal is, if that is on a volume of its own.
    pub journal: Option<JournalStatus>,
    /// Names of the volumes that can replace a member.
    pub spares: Vec<String>,
    /// Volumes that were of it, each with the reason for which they are not used.
    pub left_out: Vec<String>,
    /// The latest scrub of the set in use, as it is recorded.
    pub scrub: Option<ScrubStatus>,
    /// Why it does not start; `None` if it does.
    pub refusal: Option<String>,
    /// What opens it, as far as its volumes are known.
    pub specification: String,
}

impl SetStatus {
    /// Whether it is well, and no block is lost.
    pub fn is_healthy(&self) -> bool {
        self.state.is_well() && self.members.iter().all(|member| member.lost_blocks == 0)
    }
}

/// The journal of a set, on a volume of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalStatus {
    /// The volume; `None` if it is missing.
    pub volume: Option<String>,
    /// It is missing or has failed. In a set that is in use the journal is on the members since.
    pub has_failed: bool,
}

impl fmt::Display for JournalStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.volume, self.has_failed) {
            (Some(volume), false) => write!(f, "journal: on  {volume}"),
            (Some(volume), true) => {
                write!(f, "journal: on the members, since its volume has failed  {volume}")
            }
            (None, _) => write!(f, "journal: missing  -"),
        }
    }
}

/// A member of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// The volume; `None` if it is missing.
    pub volume: Option<String>,
    /// How it is.
    pub state: MemberCondition,
    /// How much of it is rebuilt, where it is rebuilding.
    pub percent: Option<u64>,
    /// Blocks that it does not have, because nothing could tell them when it was rebuilt or synchronised. Where no other member can tell them
    /// either, they cannot be read until they are written.
    #[serde(default)]
    pub lost_blocks: u64,
    /// It is not in sync, and the regions that it misses are recorded: if it returns, only these are rebuilt.
    #[serde(default)]
    pub missed_regions_recorded: bool,
}

/// How a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberCondition {
    /// It has all of its data.
    #[serde(rename = "in sync")]
    InSync,
    /// It has a part of them.
    #[serde(rename = "rebuilding")]
    Rebuilding,
    /// It is not used any more.
    #[serde(rename = "failed")]
    Failed,
    /// It is not there.
    #[serde(rename = "missing")]
    Missing,
}

impl fmt::Display for MemberCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemberCondition::InSync => "in sync",
            MemberCondition::Rebuilding => "rebuilding",
            MemberCondition::Failed => "failed",
            MemberCondition::Missing => "missing",
        })
    }
}

impl MemberCondition {
    /// All of them.
    pub const ALL: [MemberCondition; 4] = [
        MemberCondition::InSync,
        MemberCondition::Rebuilding,
        MemberCondition::Failed,
        MemberCondition::Missing,
    ];
}

/// A set in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetState {
    /// Its UUID; a set of volumes that forget has none.
    pub uuid: Option<String>,
    /// Its name; empty without one.
    pub name: String,
    /// `RAID 5`.
    pub level: String,
    /// How it is.
    pub state: Condition,
    /// How far a rebuild or a synchronisation is.
    pub work: Option<Progress>,
    /// In the order of the layout.
    pub members: Vec<MemberStatus>,
    /// Where its journal is, or was until it failed, if that is a volume of its own.
    #[serde(default)]
    pub journal: Option<JournalStatus>,
    /// Names of the volumes that can replace a member.
    pub spares: Vec<String>,
    /// Why it has stopped, and what starts it again.
    #[serde(default)]
    pub why: Option<String>,
    /// The scrub that was asked for last.
    pub scrub: Option<ScrubStatus>,
    /// Why a rebuild, a synchronisation or a scrub stopped; it is tried again.
    #[serde(default)]
    pub trouble: Option<String>,
}

impl SetState {
    /// Members that do not have all of their data.
    pub fn lacking(&self) -> usize {
        self.members.iter().filter(|member| member.state != MemberCondition::InSync).count()
    }

    /// Blocks that members in sync do not have.
    pub fn lost_blocks(&self) -> u64 {
        self.members.iter().map(|member| member.lost_blocks).sum()
    }
}

/// The sets of which the volumes of `spec` are members, as they would start by it, and a line for each volume that is of none. Nothing
/// is written.
///
/// # Errors
/// It names no set.
pub async fn status(spec: &Spec) -> Result<(Vec<SetStatus>, Vec<String>), Failure> {
    let named = named(spec)?;
    look_with(&named.members, &named.overruled()).await
}

/// The same of volumes that may be of any sets.
///
/// # Errors
/// A volume cannot be looked at without a change.
pub async fn look(volumes: &[Spec]) -> Result<(Vec<SetStatus>, Vec<String>), Failure> {
    look_with(volumes, &Overruled::default()).await
}

/// What a specification overrules.
#[derive(Clone, Debug, Default)]
pub(super) struct Overruled {
    pub(super) missing_are_lost: bool,
    pub(super) data_may_be_wrong: bool,
}

impl Raid {
    fn overruled(&self) -> Overruled {
        let Raid { missing_are_lost, data_may_be_wrong, .. } = *self;
        Overruled { missing_are_lost, data_may_be_wrong }
    }
}

async fn look_with(
    volumes: &[Spec],
    overruled: &Overruled,
) -> Result<(Vec<SetStatus>, Vec<String>), Failure> {
    let members = Members::open(volumes, &Opening { read_only: true, ..opening() }).await?;
    let candidates = disks::look_at(&members.disks).await;
    let trust = if overruled.missing_are_lost { Trust::MembersFound } else { Trust::CertainOnly };
    let Found { sets, others } = find(&candidates, trust);
    let certain = find(&candidates, Trust::CertainOnly);
    let name = |index: usize| members.disks[index].name.clone();
    let mut statuses = Vec::new();
    for set in &sets {
        let refusal = match &set.refusal {
            Some(Refusal::NoJournal { .. }) if is_new(&set.record) => Some(
                "the volume with the journal is missing. Attach it; if it is lost, create the set anew: it was never used".to_owned(),
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
    let others = others.iter().map(|(index, reason)| format!("{}: {reason}", name(*index)));
    Ok((statuses, others.chain(members.absent.iter().map(ToString::to_string)).collect()))
}

/// Why the journal or the bitmap of a set that was found keeps it from starting.
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
        // One that comes back is rebuilt by its next start.
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
    let kind =
        KINDS.iter().find(|(_, level)| *level == set.record.level).map_or("raid", |(kind, _)| kind.name);
    let strip = match set.record.level {
        Level::Raid1 => String::new(),
        _ => format!("{}:", Bytes(set.record.strip_bytes)),
    };
    let journal = set.record.journal_device.map(|_| {
        let volume = set.journal.map(name);
        JournalStatus { has_failed: volume.is_none(), volume }
    });
    let volumes = members.iter().filter_map(|member| member.volume.clone()).chain(spares.clone());
    let volumes: Vec<_> =
        volumes.chain(journal.iter().filter_map(|journal| journal.volume.clone())).collect();
    let may_differ = is_new(&set.record) && set.record.level != Level::Raid0 && !fits(&set.record);
    let has = |state| members.iter().any(|member: &MemberStatus| member.state == state);
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
        left_out: set.left_out.iter().map(|(disk, why)| format!("{}: {why}", name(*disk))).collect(),
        scrub: set.record.scrub.as_ref().map(|scrub| ScrubStatus::recorded(scrub, stripes)),
        refusal,
    }
}

/// Whether it was never started.
fn is_new(record: &SetRecord) -> bool {
    record.generation == disks::FIRST_GENERATION
}

/// Whether strips fit each other, as those of a set that was made of zeros.
fn fits(record: &SetRecord) -> bool {
    record.clean && record.members.iter().all(|member| member.state == MemberState::InSync)
}

impl fmt::Display for SetStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { String::new() } else { format!(" {:?}", self.name) };
        write!(f, "{} {}{name}: {}, {}", self.level, self.uuid, self.state, Bytes(self.bytes))?;
        if self.level != Level::Raid1.to_string() {
            write!(f, ", strips of {}", Bytes(self.strip_bytes))?;
        }
        write_members(f, &self.members, self.journal.as_ref(), &self.spares)?;
        if self.unsynchronised {
            write!(f, "\n  new, of disks that had content: ")?;
            let is_whole = self.members.iter().all(|member| member.state == MemberCondition::InSync);
            let has_parity = [Level::Raid5, Level::Raid6].iter().any(|level| self.level == level.to_string());
            f.write_str(match is_whole {
                true if has_parity => "parity is computed region by region, which begins when the set is used; until then no member may fail",
                true => "copies differ until they are synchronised, which begins when the set is used; a scrub finds them until then",
                false => "degraded until parity is computed, which begins when the set is used; until then no member may fail",
            })?;
        }
        self.left_out.iter().try_for_each(|left_out| write!(f, "\n  left out: {left_out}"))?;
        match &self.scrub {
            Some(ScrubStatus { has_ended: false, progress, found, .. }) => {
                write!(f, "\n  scrub: {progress}, resumes when the set is opened; {found}")?;
            }
            Some(ScrubStatus { found, .. }) => write!(f, "\n  scrubbed: {found}")?,
            None => {}
        }
        match &self.refusal {
            Some(refusal) => write!(f, "\n  does not start: {refusal}"),
            None => write_meaning(f, self.state),
        }
    }
}

/// What is there to do, if there is anything.
fn write_meaning(f: &mut fmt::Formatter<'_>, state: Condition) -> fmt::Result {
    if state.is_well() {
        return Ok(());
    }
    let Meaning { users, remedy } = state.meaning();
    write!(f, "\n  {state}: {users}. To do: {remedy}")
}

fn write_members(
    f: &mut fmt::Formatter<'_>,
    members: &[MemberStatus],
    journal: Option<&JournalStatus>,
    spares: &[String],
) -> fmt::Result {
    for (index, member) in members.iter().enumerate() {
        let MemberStatus { volume, state, percent, lost_blocks, missed_regions_recorded } = member;
        let percent = percent.map(|percent| format!(", {percent} %")).unwrap_or_default();
        write!(f, "\n  member {index}: {state}{percent}  {}", volume.as_deref().unwrap_or("-"))?;
        if *missed_regions_recorded {
            write!(f, "\n    its missed regions are recorded: if it returns, only these are rebuilt")?;
        }
        match lost_blocks {
            0 => {}
            1 => write!(f, "\n    1 block of it is lost: it cannot be read until it is written")?,
            lost => {
                write!(f, "\n    {lost} blocks of it are lost: they cannot be read until they are written")?
            }
        }
    }
    journal.iter().try_for_each(|journal| write!(f, "\n  {journal}"))?;
    spares.iter().try_for_each(|spare| write!(f, "\n  spare: {spare}"))
}

impl fmt::Display for SetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { String::new() } else { format!(" {:?}", self.name) };
        write!(f, "{}{name}: {}", self.level, self.state)?;
        self.work.iter().try_for_each(|work| write!(f, " {work}"))?;
        write_members(f, &self.members, self.journal.as_ref(), &self.spares)?;
        match &self.scrub {
            Some(ScrubStatus { has_ended: false, progress, found, .. }) => {
                write!(f, "\n  scrub: {progress}; {found}")?;
            }
            Some(ScrubStatus { found, .. }) => write!(f, "\n  scrubbed: {found}")?,
            None => {}
        }
        self.trouble.iter().try_for_each(|trouble| write!(f, "\n  stopped: {trouble}"))?;
        match &self.why {
            Some(why) => write!(f, "\n  stopped: {why}"),
            None => write_meaning(f, self.state),
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.percent())?;
        if self.bytes_per_s > 0 {
            write!(f, ", {:.1} MiB/s", self.bytes_per_s as f64 / f64::from(1 << 20))?;
        }
        match self.seconds_left {
            Some(seconds @ 120..) => write!(f, ", {} min left", seconds.div_ceil(60)),
            Some(seconds) => write!(f, ", {seconds} s left"),
            None => Ok(()),
        }
    }
}
