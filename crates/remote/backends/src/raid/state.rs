//! The status of sets, and the progress, rate and remaining time of long operations.

use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};

use derive_more::Display;
use raid::Scrubbed;
use raid::superblock::ScrubRecord;
use serde::{Deserialize, Serialize};
use volume::backend::Add;

use crate::secrets::masked;

/// The progress of a long operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Stripes completed.
    pub done: u64,
    /// Stripes in total.
    pub total: u64,
    /// Bytes per second and member, averaged over about ten seconds; 0 until it is known.
    pub bytes_per_s: u64,
    /// Estimated time remaining at that rate.
    pub seconds_left: Option<u64>,
}

impl Progress {
    /// Returns the completed percentage.
    pub fn percent(&self) -> u64 {
        100 * self.done / self.total.max(1)
    }
}

/// Interval between samples. The rate is measured since the last sample but one.
const SAMPLE: Duration = Duration::from_secs(5);

/// Measures the rate of a long operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    earlier: (Instant, u64),
    later: (Instant, u64),
    now: (Instant, u64),
    total: u64,
    stripe_bytes: u64,
}

impl Pace {
    /// Creates the rate measurement of an operation. `stripe_bytes` is the length of a stripe on one member.
    pub(crate) fn new(now: Instant, done: u64, total: u64, stripe_bytes: u64) -> Pace {
        let start = (now, done);
        Pace {
            earlier: start,
            later: start,
            now: start,
            total,
            stripe_bytes,
        }
    }

    pub(crate) fn done(&mut self, now: Instant, done: u64) {
        debug_assert!(now >= self.now.0, "samples are taken in order");
        self.now = (now, done);
        if now.saturating_duration_since(self.later.0) >= SAMPLE {
            (self.earlier, self.later) = (self.later, self.now);
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        let (done, total) = (self.now.1, self.total);
        let seconds = self
            .now
            .0
            .saturating_duration_since(self.earlier.0)
            .as_secs_f64();
        let moved = done.saturating_sub(self.earlier.1);
        let rate = if seconds > 0.0 {
            moved as f64 / seconds
        } else {
            0.0
        };
        let left = (rate > 0.0).then(|| (total.saturating_sub(done) as f64 / rate).ceil() as u64);
        Progress {
            done,
            total,
            bytes_per_s: (rate * self.stripe_bytes as f64) as u64,
            seconds_left: left,
        }
    }
}

/// Default rate per member while the set has users, in bytes per second: 4 % of a 1 Gbit/s link. On a hard
/// disk, the cost of this work is mainly the seeks between it and user I/O, not the transfers. Without users,
/// the rate is not limited.
const BESIDE_USERS_BYTES: u64 = 5 << 20;
/// The set counts as in use for this long after a user request starts.
const USERS_STAY: Duration = Duration::from_secs(1);

/// Limits the rate at which a set rebuilds, synchronises, scrubs and grows: user I/O has priority.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// The configured rate in bytes per second and member, with or without users; `None` for the default.
    configured: Option<u64>,
    /// The number of user requests started, at the last check, and the time of the last check that found new
    /// requests.
    known: Cell<(u64, Option<Instant>)>,
}

impl Throttle {
    pub(crate) fn new(configured: Option<u64>) -> Throttle {
        Throttle {
            configured,
            known: Cell::new((0, None)),
        }
    }

    /// Returns the minimum duration of a step that moved `moved_bytes` of each member. `requests` is the
    /// number of user requests started so far.
    pub(crate) fn step_time(
        &self,
        now: Instant,
        requests: u64,
        members: usize,
        moved_bytes: u64,
    ) -> Duration {
        let (known, asked) = self.known.get();
        debug_assert!(requests >= known, "requests are counted upwards");
        let asked = if requests == known { asked } else { Some(now) };
        self.known.set((requests, asked));
        let has_users =
            asked.is_some_and(|asked| now.saturating_duration_since(asked) < USERS_STAY);
        let beside_users = has_users.then_some(BESIDE_USERS_BYTES * members as u64);
        match self.configured.or(beside_users) {
            Some(bytes_per_s) => {
                Duration::from_secs_f64(moved_bytes as f64 / bytes_per_s.max(1) as f64)
            }
            None => Duration::ZERO,
        }
    }
}

/// A rebuild, a resync, or the zeroing of new space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Working {
    /// The member being rebuilt; `None` while synchronising or zeroing.
    pub(crate) member: Option<usize>,
    pub(crate) pace: Pace,
}

impl Working {
    pub(crate) fn progress(&self) -> Progress {
        self.pace.progress()
    }
}

/// A scrub of a set in use.
#[derive(Clone, Debug)]
pub(crate) struct Scrubbing {
    pub(crate) repairs: bool,
    pub(crate) found: Scrub,
    pub(crate) pace: Pace,
    pub(crate) has_ended: bool,
    /// Checksum mismatches of each member when the counters were last read; later ones are added to the
    /// findings.
    pub(crate) known_wrong: Vec<u64>,
    /// The latest record, and the time at which it was written.
    pub(crate) recorded: (Instant, ScrubRecord),
}

/// A scrub of a set in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// Whether the scrub repairs inconsistent stripes.
    pub repairs: bool,
    /// Whether the scrub has completed.
    pub has_ended: bool,
    /// The scrub's progress.
    pub progress: Progress,
    /// The scrub's findings so far.
    pub found: Scrub,
}

impl ScrubStatus {
    /// Creates the status from the recorded scrub of a set that is not in use.
    pub(crate) fn recorded(record: &ScrubRecord, stripes: u64) -> ScrubStatus {
        let (done, total) = (record.stripes.min(stripes), stripes);
        ScrubStatus {
            repairs: record.repairs,
            has_ended: record.has_ended,
            progress: Progress {
                done,
                total,
                bytes_per_s: 0,
                seconds_left: None,
            },
            found: Scrub::from(record),
        }
    }
}

/// Interval at which the progress of a scrub is recorded. After an unclean shutdown, the scrub repeats up to
/// this much work.
const RECORD_EVERY: Duration = Duration::from_secs(10);
/// The interval if a repairing scrub has new findings. It is shorter because such a scrub finds an error only
/// once.
const RECORD_FOUND_EVERY: Duration = Duration::from_secs(1);

impl Scrubbing {
    /// Starts a scrub, or resumes one after the recorded stripe.
    pub(crate) fn new(
        record: ScrubRecord,
        now: Instant,
        stripes: u64,
        stripe_bytes: u64,
    ) -> Scrubbing {
        Scrubbing {
            repairs: record.repairs,
            found: Scrub::from(&record),
            pace: Pace::new(now, record.stripes.min(stripes), stripes, stripe_bytes),
            has_ended: record.has_ended,
            known_wrong: Vec::new(),
            recorded: (now, record),
        }
    }

    /// Adds new checksum mismatches to the findings. `counts` contains each member's mismatches since it
    /// joined the set.
    pub(crate) fn add_wrong(&mut self, counts: Vec<u64>) {
        self.found.wrong_blocks.resize(counts.len(), 0);
        for (member, (total, count)) in self.found.wrong_blocks.iter_mut().zip(&counts).enumerate()
        {
            // A replaced member starts counting at 0.
            *total += count.saturating_sub(self.known_wrong.get(member).copied().unwrap_or(0));
        }
        self.known_wrong = counts;
    }

    pub(crate) fn record(&self) -> ScrubRecord {
        ScrubRecord {
            repairs: self.repairs,
            has_ended: self.has_ended,
            ..self.found.record()
        }
    }

    /// Returns the record to write now, if one is due.
    pub(crate) fn to_record(&self, now: Instant) -> Option<ScrubRecord> {
        let (at, known) = &self.recorded;
        let record = self.record();
        let found_more = ScrubRecord {
            stripes: known.stripes,
            ..record.clone()
        } != *known;
        let every = match (record.has_ended, found_more) {
            (true, _) => Duration::ZERO,
            (false, true) => RECORD_FOUND_EVERY,
            (false, false) => RECORD_EVERY,
        };
        (record != *known && now.saturating_duration_since(*at) >= every).then_some(record)
    }

    pub(crate) fn status(&self) -> ScrubStatus {
        let Scrubbing {
            repairs,
            found,
            pace,
            has_ended,
            ..
        } = self;
        ScrubStatus {
            repairs: *repairs,
            has_ended: *has_ended,
            progress: pace.progress(),
            found: found.clone(),
        }
    }
}

/// The findings of a scrub, in stripes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrub {
    /// Stripes read.
    pub stripes: u64,
    /// Stripes that could not be compared because a member's strip is missing.
    pub degraded: u64,
    /// Stripes with unreadable strips.
    pub unreadable: u64,
    /// Inconsistent stripes.
    pub mismatches: u64,
    /// Unreadable or inconsistent stripes that were repaired.
    pub repaired: u64,
    /// Inconsistent stripes that are due for a resync on next use, after a crash or since the set was
    /// created.
    #[serde(default)]
    pub unsynchronised: u64,
    /// Checksum mismatches of each member, in a set with checksums.
    pub wrong_blocks: Vec<u64>,
}

impl From<&ScrubRecord> for Scrub {
    fn from(record: &ScrubRecord) -> Scrub {
        Scrub {
            stripes: record.stripes,
            degraded: record.degraded,
            unreadable: record.unreadable,
            mismatches: record.mismatches,
            repaired: record.repaired,
            unsynchronised: 0,
            wrong_blocks: record
                .wrong_blocks
                .iter()
                .map(|blocks| u64::from(*blocks))
                .collect(),
        }
    }
}

impl Scrub {
    /// Creates the record of a running scrub that does not repair.
    pub(crate) fn record(&self) -> ScrubRecord {
        let Scrub {
            stripes,
            degraded,
            unreadable,
            mismatches,
            repaired,
            ref wrong_blocks,
            ..
        } = *self;
        let wrong = |blocks: &u64| u32::try_from(*blocks).unwrap_or(u32::MAX);
        ScrubRecord {
            repairs: false,
            has_ended: false,
            stripes,
            degraded,
            unreadable,
            mismatches,
            repaired,
            wrong_blocks: wrong_blocks.iter().map(wrong).collect(),
        }
    }

    /// Returns whether the whole set was compared and no errors remain.
    pub fn is_proof(&self) -> bool {
        self.is_right() && self.degraded == 0
    }

    /// Returns whether no errors remain among the stripes compared.
    pub fn is_right(&self) -> bool {
        self.unreadable + self.mismatches == self.repaired
    }

    pub(crate) fn add(&mut self, found: Scrubbed) {
        self.stripes += 1;
        match found {
            Scrubbed::Right => {}
            Scrubbed::Degraded => self.degraded += 1,
            Scrubbed::Unreadable { is_repaired } => {
                self.unreadable += 1;
                self.repaired += u64::from(is_repaired);
            }
            Scrubbed::Mismatch { is_repaired } => {
                self.mismatches += 1;
                self.repaired += u64::from(is_repaired);
            }
        }
    }
}

impl fmt::Display for Scrub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scrub {
            stripes,
            mismatches,
            unreadable,
            repaired,
            ..
        } = self;
        write!(
            f,
            "{stripes} stripes: {mismatches} inconsistent, {unreadable} unreadable, {repaired} of these repaired"
        )?;
        let wrong = self
            .wrong_blocks
            .iter()
            .enumerate()
            .filter(|(_, blocks)| **blocks > 0);
        for (member, blocks) in wrong {
            write!(
                f,
                "; member {member} had blocks with wrong checksums ({blocks} times)"
            )?;
        }
        if self.unsynchronised > 0 {
            write!(
                f,
                "; {} of the inconsistent stripes have not been synchronised since a crash, or since the set \
                 was created on used disks: using the set synchronises them, and so does --repair",
                self.unsynchronised
            )?;
        }
        match self.degraded {
            0 => Ok(()),
            degraded => {
                write!(
                    f,
                    "; {degraded} could not be compared, because a member is missing or not rebuilt yet"
                )
            }
        }
    }
}

/// The journal of a set, on a separate volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalStatus {
    /// The volume; `None` if it is missing.
    pub volume: Option<String>,
    /// Whether the journal's volume is missing or has failed. A set in use then keeps its journal on the
    /// members.
    pub has_failed: bool,
}

impl fmt::Display for JournalStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.volume, self.has_failed) {
            (Some(volume), false) => write!(f, "journal: on  {volume}"),
            (Some(volume), true) => {
                write!(
                    f,
                    "journal: on the members, because its volume has failed  {volume}"
                )
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
    /// The member's condition.
    pub state: MemberCondition,
    /// Percentage rebuilt, while rebuilding.
    pub percent: Option<u64>,
    /// Blocks missing on this member, because no source was available when it was rebuilt or synchronised. If
    /// no other member can supply them, they are unreadable until they are written.
    #[serde(default)]
    pub lost_blocks: u64,
    /// The member is not in sync, but the regions that it missed are recorded: if it returns, only these
    /// regions are rebuilt.
    #[serde(default)]
    pub missed_regions_recorded: bool,
}

/// The condition of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display)]
pub enum MemberCondition {
    /// All data of the member is current.
    #[serde(rename = "in sync")]
    #[display("in sync")]
    InSync,
    /// Part of the member's data is current.
    #[serde(rename = "rebuilding")]
    #[display("rebuilding")]
    Rebuilding,
    /// The member is no longer used.
    #[serde(rename = "failed")]
    #[display("failed")]
    Failed,
    /// The member is not available.
    #[serde(rename = "missing")]
    #[display("missing")]
    Missing,
}

impl MemberCondition {
    /// All conditions.
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
    /// The set's UUID; `None` if its members are volatile.
    pub uuid: Option<String>,
    /// The set's name; empty if it has none.
    pub name: String,
    /// The RAID level, such as `RAID 5`.
    pub level: String,
    /// The set's condition.
    pub state: Condition,
    /// Progress of a rebuild or resync.
    pub work: Option<Progress>,
    /// The members, in the order of the layout.
    pub members: Vec<MemberStatus>,
    /// The journal's volume, even if it has failed; `None` if the journal is on the members.
    #[serde(default)]
    pub journal: Option<JournalStatus>,
    /// Names of the volumes that can replace a member.
    pub spares: Vec<String>,
    /// The reason why the set has stopped, and the way to restart it.
    #[serde(default)]
    pub why: Option<String>,
    /// The scrub that was requested last.
    pub scrub: Option<ScrubStatus>,
    /// The reason why a rebuild, resync or scrub stopped. The operation will be retried.
    #[serde(default)]
    pub trouble: Option<String>,
}

impl SetState {
    /// Returns the number of members that are not in sync.
    pub fn lacking(&self) -> usize {
        self.members
            .iter()
            .filter(|member| member.state != MemberCondition::InSync)
            .count()
    }

    /// Returns the number of lost blocks on all members.
    pub fn lost_blocks(&self) -> u64 {
        self.members.iter().map(|member| member.lost_blocks).sum()
    }

    /// Returns whether the set's condition is good and no block is lost.
    pub fn is_healthy(&self) -> bool {
        self.state.is_well() && self.lost_blocks() == 0
    }
}

/// Writes the remedy, if there is anything to do.
pub(crate) fn write_meaning(f: &mut fmt::Formatter<'_>, state: Condition) -> fmt::Result {
    if state.is_well() {
        return Ok(());
    }
    let Meaning { users, remedy } = state.meaning();
    write!(f, "\n  {state}: {users}. To do: {remedy}")
}

pub(crate) fn write_members(
    f: &mut fmt::Formatter<'_>,
    members: &[MemberStatus],
    journal: Option<&JournalStatus>,
    spares: &[String],
) -> fmt::Result {
    for (index, member) in members.iter().enumerate() {
        let MemberStatus {
            volume,
            state,
            percent,
            lost_blocks,
            missed_regions_recorded,
        } = member;
        let percent = percent
            .map(|percent| format!(", {percent} %"))
            .unwrap_or_default();
        write!(
            f,
            "\n  member {index}: {state}{percent}  {}",
            volume.as_deref().unwrap_or("-")
        )?;
        if *missed_regions_recorded {
            write!(
                f,
                "\n    missed regions are recorded: if it returns, only these are rebuilt"
            )?;
        }
        match lost_blocks {
            0 => {}
            1 => write!(
                f,
                "\n    1 of its blocks is lost: reads of it fail until it is rewritten"
            )?,
            lost => write!(
                f,
                "\n    {lost} of its blocks are lost: reads of these fail until they are rewritten"
            )?,
        }
    }
    journal
        .iter()
        .try_for_each(|journal| write!(f, "\n  {journal}"))?;
    spares
        .iter()
        .try_for_each(|spare| write!(f, "\n  spare: {spare}"))
}

impl fmt::Display for SetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() {
            String::new()
        } else {
            format!(" {:?}", self.name)
        };
        write!(f, "{}{name}: {}", self.level, self.state)?;
        self.work.iter().try_for_each(|work| write!(f, " {work}"))?;
        write_members(f, &self.members, self.journal.as_ref(), &self.spares)?;
        match &self.scrub {
            Some(ScrubStatus {
                has_ended: false,
                progress,
                found,
                ..
            }) => {
                write!(f, "\n  scrub: {progress}; {found}")?;
            }
            Some(ScrubStatus { found, .. }) => write!(f, "\n  scrubbed: {found}")?,
            None => {}
        }
        self.trouble
            .iter()
            .try_for_each(|trouble| write!(f, "\n  stopped: {trouble}"))?;
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
            write!(
                f,
                ", {:.1} MiB/s",
                self.bytes_per_s as f64 / f64::from(1 << 20)
            )?;
        }
        match self.seconds_left {
            Some(seconds @ 120..) => write!(f, ", {} min left", seconds.div_ceil(60)),
            Some(seconds) => write!(f, ", {seconds} s left"),
            None => Ok(()),
        }
    }
}

// The condition of a set: one model for the status of a set, the refusals to start it, and the table in
// docs/raid.md.

/// The condition of a set, in use or not. If several apply, the one furthest down the table is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// All members are in sync.
    #[display("healthy")]
    Healthy,
    /// New space of the members is being added.
    #[display("growing")]
    Growing,
    /// Members may differ, after a crash or because the set was created on used disks, and the set is not in
    /// use.
    #[display("unsynchronised")]
    Unsynchronised,
    /// Members that may differ are being resynchronised.
    #[display("synchronising")]
    Synchronising,
    /// A member is being rebuilt.
    #[display("rebuilding")]
    Rebuilding,
    /// A member is missing or has failed, and has no replacement.
    #[display("degraded")]
    Degraded,
    /// A set in use has stopped.
    #[display("failed")]
    Failed,
    /// A set that is not in use cannot start.
    #[display("refused")]
    Refused,
}

/// The effect of a condition on users, and the remedy.
#[derive(Clone, Copy, Debug)]
pub struct Meaning {
    /// The consequences for hosts.
    pub users: &'static str,
    /// The action for the administrator.
    pub remedy: &'static str,
}

impl Condition {
    /// All conditions, in the order of the document.
    pub const ALL: [Condition; 8] = [
        Condition::Healthy,
        Condition::Growing,
        Condition::Unsynchronised,
        Condition::Synchronising,
        Condition::Rebuilding,
        Condition::Degraded,
        Condition::Failed,
        Condition::Refused,
    ];

    /// Returns the consequences for hosts, and the action for the administrator.
    pub fn meaning(self) -> Meaning {
        let (users, remedy) = match self {
            Condition::Healthy => ("all requests succeed", "nothing"),
            Condition::Growing => (
                "all requests succeed; the new size applies at the end",
                "nothing",
            ),
            Condition::Unsynchronised => (
                "the set can start; if a member fails before synchronisation completes, data can be lost",
                "serve the set, which synchronises it, or run `raid scrub --repair`",
            ),
            Condition::Synchronising => (
                "all requests succeed; if a member fails before synchronisation completes, data can be lost",
                "nothing: it completes automatically",
            ),
            Condition::Rebuilding => (
                "all requests succeed, more slowly",
                "nothing: it completes automatically, and resumes after a restart",
            ),
            Condition::Degraded => (
                "all requests succeed; the next failure may lose data",
                "attach the member and run `raid assemble VOLUME`, or run `raid replace`",
            ),
            Condition::Failed => (
                "every request fails (NOT READY, EIO)",
                "attach the members: the set restarts automatically, or with `raid assemble VOLUME`",
            ),
            Condition::Refused => ("the set does not start", "follow the error message"),
        };
        Meaning { users, remedy }
    }

    /// Returns whether no data is at risk and no request is refused: commands then exit with code 0.
    pub fn is_well(self) -> bool {
        matches!(self, Condition::Healthy | Condition::Growing)
    }
}

// Metrics of a set in use. The first labels of all figures are the volume and the number of the set.

volume::figures! { pub(crate) FIGURES of SetState:
    Gauge "linerate_raid_members_lacking" ["volume", "set", "level"] "Members without all of their data; 0 if the set is healthy."
        => |set, add| add(&[&set.level], &set.lacking());
    Gauge "linerate_raid_failed" ["volume", "set"] "1 if requests to the set fail, because data or the journal is missing."
        => |set, add| add(&[], &u8::from(set.state == Condition::Failed));
    Gauge "linerate_raid_spares" ["volume", "set"] "Spares of the set."
        => |set, add| add(&[], &set.spares.len());
    Gauge "linerate_raid_member_state" ["volume", "set", "member", "disk", "state"] "1 if the member is in this state: in sync, rebuilding, failed or missing."
        => members;
    Gauge "linerate_raid_rebuild_ratio" ["volume", "set", "member"] "Rebuilt share of the member; absent when no rebuild is running."
        => |set, add| for (number, member) in set.members.iter().enumerate() {
            member.percent.iter().for_each(|percent| add(&[&number.to_string()], &(*percent as f64 / 100.0)));
        };
    Gauge "linerate_raid_synchronising" ["volume", "set"] "1 while the set resynchronises after an unclean shutdown."
        => |set, add| add(&[], &u8::from(set.state == Condition::Synchronising));
    Gauge "linerate_raid_work_bytes_per_second" ["volume", "set"] "Rate of the rebuild or resync per member."
        => |set, add| set.work.iter().for_each(|work| add(&[], &work.bytes_per_s));
    Gauge "linerate_raid_work_seconds_left" ["volume", "set"] "Estimated time remaining of the rebuild or resync."
        => |set, add| set.work.iter().filter_map(|work| work.seconds_left).for_each(|seconds| add(&[], &seconds));
    Gauge "linerate_raid_scrub_ratio" ["volume", "set"] "Completed share of the latest scrub."
        => |set, add| set.scrub.iter().for_each(|scrub| {
            add(&[], &(scrub.progress.done as f64 / scrub.progress.total.max(1) as f64));
        });
    Gauge "linerate_raid_scrub_bytes_per_second" ["volume", "set"] "Scrub rate per member; absent when no scrub is running."
        => |set, add| scrubbing(set).iter().for_each(|scrub| add(&[], &scrub.bytes_per_s));
    Gauge "linerate_raid_scrub_seconds_left" ["volume", "set"] "Estimated time remaining of the scrub."
        => |set, add| scrubbing(set).iter().filter_map(|scrub| scrub.seconds_left).for_each(|seconds| add(&[], &seconds));
    Gauge "linerate_raid_scrub_wrong_stripes" ["volume", "set"] "Inconsistent or unreadable stripes found by the latest scrub and not repaired."
        => |set, add| set.scrub.iter().map(|scrub| &scrub.found).for_each(|found| {
            add(&[], &(found.unreadable + found.mismatches).saturating_sub(found.repaired));
        });
}

fn scrubbing(set: &SetState) -> Option<Progress> {
    set.scrub
        .as_ref()
        .filter(|scrub| !scrub.has_ended)
        .map(|scrub| scrub.progress)
}

fn members(set: &SetState, add: &mut Add<'_>) {
    for (number, member) in set.members.iter().enumerate() {
        let (number, disk) = (
            number.to_string(),
            member.volume.as_deref().map(masked).unwrap_or_default(),
        );
        for state in MemberCondition::ALL {
            add(
                &[&number, &disk, &state.to_string()],
                &u8::from(state == member.state),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pace = Pace::new(start, 100, 1000, 1 << 20);
        assert_eq!(
            pace.progress(),
            Progress {
                done: 100,
                total: 1000,
                bytes_per_s: 0,
                seconds_left: None
            }
        );
        (1..=10).for_each(|second| pace.done(at(second), 100 + 10 * second));
        let Progress {
            bytes_per_s,
            seconds_left,
            ..
        } = pace.progress();
        assert_eq!((bytes_per_s, seconds_left), (10 << 20, Some(80)));
        // The rate drops; the earlier fast samples no longer count.
        (11..=30).for_each(|second| pace.done(at(second), 200 + (second - 10)));
        assert_eq!(pace.progress().bytes_per_s, 1 << 20);
    }

    #[test]
    fn users_slow_a_step_down_until_a_second_behind_their_last_request() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let (members, moved) = (3, 3 * BESIDE_USERS_BYTES / 10);
        let throttle = Throttle::new(None);
        assert_eq!(
            throttle.step_time(at(0), 0, members, moved),
            Duration::ZERO,
            "nobody has asked"
        );
        let slow = Duration::from_millis(100);
        assert_eq!(throttle.step_time(at(10), 1, members, moved), slow);
        assert_eq!(
            throttle.step_time(at(1009), 1, members, moved),
            slow,
            "users pause"
        );
        assert_eq!(
            throttle.step_time(at(1010), 1, members, moved),
            Duration::ZERO,
            "they have gone"
        );
        assert_eq!(
            throttle.step_time(at(9000), 2, members, moved),
            slow,
            "they come back"
        );
        // The configured rate applies with and without users.
        let throttle = Throttle::new(Some(moved));
        assert_eq!(
            throttle.step_time(at(0), 0, members, moved),
            Duration::from_secs(1)
        );
        assert_eq!(
            throttle.step_time(at(10), 1, members, moved),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn a_scrub_is_recorded_from_time_to_time_and_sooner_if_it_finds_something() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let record = ScrubRecord {
            repairs: true,
            stripes: 40,
            wrong_blocks: vec![0, 2],
            ..ScrubRecord::default()
        };
        let mut scrubbing = Scrubbing::new(record.clone(), start, 100, 1 << 20);
        assert_eq!(
            (scrubbing.record(), scrubbing.status().progress.done),
            (record, 40)
        );
        scrubbing.add_wrong(vec![0, 0]);
        scrubbing.found.add(raid::Scrubbed::Right);
        assert_eq!(
            (
                scrubbing.to_record(at(9)),
                scrubbing.to_record(at(10)).map(|record| record.stripes)
            ),
            (None, Some(41))
        );
        scrubbing
            .found
            .add(raid::Scrubbed::Mismatch { is_repaired: true });
        scrubbing.add_wrong(vec![3, 1]);
        let found = scrubbing.to_record(at(1)).expect("it has found something");
        assert_eq!(
            (found.mismatches, found.repaired, &found.wrong_blocks[..]),
            (1, 1, &[3, 3][..])
        );
        scrubbing.recorded = (at(1), found);
        assert_eq!(scrubbing.to_record(at(60)), None, "nothing is new");
        // A member is replaced; its counter restarts at 0.
        scrubbing.add_wrong(vec![3, 0]);
        scrubbing.add_wrong(vec![3, 1]);
        assert_eq!(scrubbing.record().wrong_blocks, [3, 4]);
        scrubbing.has_ended = true;
        assert!(
            scrubbing
                .to_record(at(1))
                .is_some_and(|record| record.has_ended)
        );
    }
}
