//! How far something is that takes long, how fast, and for how long yet.

use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};

use raid::Scrubbed;
use raid::superblock::ScrubRecord;
use serde::{Deserialize, Serialize};

/// How far something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What is done, in stripes.
    pub done: u64,
    /// Of so many.
    pub total: u64,
    /// In bytes of each member a second, over the last ten seconds or so; 0 until it is known.
    pub bytes_per_s: u64,
    /// At that rate.
    pub seconds_left: Option<u64>,
}

impl Progress {
    /// Of 100.
    pub fn percent(&self) -> u64 {
        100 * self.done / self.total.max(1)
    }
}

/// A rate is that of the time since the sample before the last one.
const SAMPLE: Duration = Duration::from_secs(5);

/// Measures how fast something is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    earlier: (Instant, u64),
    later: (Instant, u64),
    now: (Instant, u64),
    total: u64,
    stripe_bytes: u64,
}

impl Pace {
    /// `stripe_bytes`: of a member.
    pub(crate) fn new(now: Instant, done: u64, total: u64, stripe_bytes: u64) -> Pace {
        let start = (now, done);
        Pace { earlier: start, later: start, now: start, total, stripe_bytes }
    }

    pub(crate) fn done(&mut self, now: Instant, done: u64) {
        self.now = (now, done);
        if now.saturating_duration_since(self.later.0) >= SAMPLE {
            (self.earlier, self.later) = (self.later, self.now);
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        let (done, total) = (self.now.1, self.total);
        let seconds = self.now.0.saturating_duration_since(self.earlier.0).as_secs_f64();
        let moved = done.saturating_sub(self.earlier.1);
        let rate = if seconds > 0.0 { moved as f64 / seconds } else { 0.0 };
        let left = (rate > 0.0).then(|| (total.saturating_sub(done) as f64 / rate).ceil() as u64);
        Progress { done, total, bytes_per_s: (rate * self.stripe_bytes as f64) as u64, seconds_left: left }
    }
}

/// How fast a set may work beside its users, of each member and second, unless that is configured: 4 % of a link of 1 Gbit/s, and
/// of what a disk moves less than seeks between the two cost. Without users nothing slows it.
const BESIDE_USERS_BYTES: u64 = 5 << 20;
/// Users are taken to be there for so long behind the beginning of a request.
const USERS_STAY: Duration = Duration::from_secs(1);

/// How fast a set rebuilds, synchronises, scrubs and grows: requests of users come first.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// Bytes a second of all members, users or not.
    configured: Option<u64>,
    /// Requests of users that had begun at the last look, and when there was another one.
    known: Cell<(u64, Option<Instant>)>,
}

impl Throttle {
    pub(crate) fn new(configured: Option<u64>) -> Throttle {
        Throttle { configured, known: Cell::new((0, None)) }
    }

    /// The least time of a step that moved so many bytes of `members`, if `requests` of users have begun by now.
    pub(crate) fn step_time(
        &self,
        now: Instant,
        requests: u64,
        members: usize,
        moved_bytes: u64,
    ) -> Duration {
        let (known, asked) = self.known.get();
        let asked = if requests == known { asked } else { Some(now) };
        self.known.set((requests, asked));
        let has_users = asked.is_some_and(|asked| now.saturating_duration_since(asked) < USERS_STAY);
        let beside_users = has_users.then_some(BESIDE_USERS_BYTES * members as u64);
        match self.configured.or(beside_users) {
            Some(bytes_per_s) => Duration::from_secs_f64(moved_bytes as f64 / bytes_per_s.max(1) as f64),
            None => Duration::ZERO,
        }
    }
}

/// What a set does for itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Working {
    /// The member that is rebuilt; `None` for what is synchronised or zeroed.
    pub(crate) member: Option<usize>,
    pub(crate) pace: Pace,
}

impl Working {
    pub(crate) fn progress(&self) -> Progress {
        self.pace.progress()
    }
}

/// A scrub beside users.
#[derive(Clone, Debug)]
pub(crate) struct Scrubbing {
    pub(crate) repairs: bool,
    pub(crate) found: Scrub,
    pub(crate) pace: Pace,
    pub(crate) has_ended: bool,
    /// Of each member, its blocks that did not fit when that was last looked at: those since then are added to what is found.
    pub(crate) known_wrong: Vec<u64>,
    /// When it was recorded, and what.
    pub(crate) recorded: (Instant, ScrubRecord),
}

/// A scrub of a set in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// Whether it writes what does not fit anew.
    pub repairs: bool,
    /// Whether all has been looked at.
    pub has_ended: bool,
    /// How far it is.
    pub progress: Progress,
    /// What it has found.
    pub found: Scrub,
}

impl ScrubStatus {
    /// One of a set that nobody uses, as it is recorded.
    pub(crate) fn recorded(record: &ScrubRecord, stripes: u64) -> ScrubStatus {
        let (done, total) = (record.stripes.min(stripes), stripes);
        ScrubStatus {
            repairs: record.repairs,
            has_ended: record.has_ended,
            progress: Progress { done, total, bytes_per_s: 0, seconds_left: None },
            found: Scrub::from(record),
        }
    }
}

/// How often a scrub is recorded. A set that is not closed repeats as much of it.
const RECORD_EVERY: Duration = Duration::from_secs(10);
/// What it finds is found once only if it repairs, so that is recorded sooner.
const RECORD_FOUND_EVERY: Duration = Duration::from_secs(1);

impl Scrubbing {
    /// Begins, or resumes behind what is recorded.
    pub(crate) fn new(record: ScrubRecord, now: Instant, stripes: u64, stripe_bytes: u64) -> Scrubbing {
        Scrubbing {
            repairs: record.repairs,
            found: Scrub::from(&record),
            pace: Pace::new(now, record.stripes.min(stripes), stripes, stripe_bytes),
            has_ended: record.has_ended,
            known_wrong: Vec::new(),
            recorded: (now, record),
        }
    }

    /// Adds blocks that did not fit their checksums, by the count of each member since it is one here.
    pub(crate) fn add_wrong(&mut self, counts: Vec<u64>) {
        self.found.wrong_blocks.resize(counts.len(), 0);
        for (member, (total, count)) in self.found.wrong_blocks.iter_mut().zip(&counts).enumerate() {
            // One that was replaced counts anew.
            *total += count.saturating_sub(self.known_wrong.get(member).copied().unwrap_or(0));
        }
        self.known_wrong = counts;
    }

    pub(crate) fn record(&self) -> ScrubRecord {
        ScrubRecord { repairs: self.repairs, has_ended: self.has_ended, ..self.found.record() }
    }

    /// What is to be recorded now, if something is.
    pub(crate) fn to_record(&self, now: Instant) -> Option<ScrubRecord> {
        let (at, known) = &self.recorded;
        let record = self.record();
        let found_more = ScrubRecord { stripes: known.stripes, ..record.clone() } != *known;
        let every = match (record.has_ended, found_more) {
            (true, _) => Duration::ZERO,
            (false, true) => RECORD_FOUND_EVERY,
            (false, false) => RECORD_EVERY,
        };
        (record != *known && now.saturating_duration_since(*at) >= every).then_some(record)
    }

    pub(crate) fn status(&self) -> ScrubStatus {
        let Scrubbing { repairs, found, pace, has_ended, .. } = self;
        ScrubStatus {
            repairs: *repairs,
            has_ended: *has_ended,
            progress: pace.progress(),
            found: found.clone(),
        }
    }
}

/// What a scrub has found, in stripes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrub {
    /// Looked at.
    pub stripes: u64,
    /// With nothing to compare: a member lacks its strip.
    pub degraded: u64,
    /// With strips that cannot be read.
    pub unreadable: u64,
    /// With strips that do not fit each other.
    pub mismatches: u64,
    /// Of the last two, those that are right now.
    pub repaired: u64,
    /// Of those that do not fit, those that are to be synchronised when the set is used, after a crash or since it was made.
    #[serde(default)]
    pub unsynchronised: u64,
    /// Of a set with checksums: of each member, how often a block was not what its checksum says.
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
            wrong_blocks: record.wrong_blocks.iter().map(|blocks| u64::from(*blocks)).collect(),
        }
    }
}

impl Scrub {
    /// As it is recorded, of one that has not ended and does not repair.
    pub(crate) fn record(&self) -> ScrubRecord {
        let Scrub { stripes, degraded, unreadable, mismatches, repaired, ref wrong_blocks, .. } = *self;
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

    /// Whether all of the set was compared, and is right.
    pub fn is_proof(&self) -> bool {
        self.is_right() && self.degraded == 0
    }

    /// Whether nothing is left that is not right, of what was compared.
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
        let Scrub { stripes, mismatches, unreadable, repaired, .. } = self;
        write!(
            f,
            "{stripes} stripes: {mismatches} do not fit, {unreadable} cannot be read, {repaired} of these repaired"
        )?;
        let wrong = self.wrong_blocks.iter().enumerate().filter(|(_, blocks)| **blocks > 0);
        for (member, blocks) in wrong {
            write!(f, "; member {member} had blocks that do not fit their checksums ({blocks} times)")?;
        }
        if self.unsynchronised > 0 {
            write!(
                f,
                "; {} of those that do not fit were never synchronised, since a crash or since the set was made over used disks: that is \
                 done when the set is used, or by --repair",
                self.unsynchronised
            )?;
        }
        match self.degraded {
            0 => Ok(()),
            degraded => {
                write!(
                    f,
                    "; {degraded} could not be compared, since a member lacks them or is not rebuilt yet"
                )
            }
        }
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

/// What is there to do, if there is anything.
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

// How a set is: one model behind its status, refusals and the table in docs/raid.md.

/// How a set is, in use or not. Of several that fit, the one furthest down the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// All members have all of their data.
    Healthy,
    /// New space of members is taken into use.
    Growing,
    /// Members may differ, since a crash or since the set was made over used disks, and nobody uses the set.
    Unsynchronised,
    /// Such members are made to fit.
    Synchronising,
    /// A member is rebuilt.
    Rebuilding,
    /// A member is missing or has failed, and nothing takes its place.
    Degraded,
    /// A set in use has stopped.
    Failed,
    /// A set that is not in use does not start.
    Refused,
}

/// What a condition means to people.
#[derive(Clone, Copy, Debug)]
pub struct Meaning {
    /// What hosts see.
    pub users: &'static str,
    /// What there is to do.
    pub remedy: &'static str,
}

impl Condition {
    /// All of them, as the document has them.
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

    /// What hosts see, and what there is to do.
    pub fn meaning(self) -> Meaning {
        let (users, remedy) = match self {
            Condition::Healthy => ("all requests succeed", "nothing"),
            Condition::Growing => ("all requests succeed; the new size shows at the end", "nothing"),
            Condition::Unsynchronised => (
                "the set starts; until it is synchronised, no member may fail",
                "serve the set, or `raid scrub --repair`: it is synchronised in use",
            ),
            Condition::Synchronising => (
                "all requests succeed; until it is synchronised, no member may fail",
                "nothing: it ends by itself",
            ),
            Condition::Rebuilding => (
                "all requests succeed, more slowly",
                "nothing: it ends by itself, and resumes after a restart",
            ),
            Condition::Degraded => (
                "all requests succeed; the next failure may lose data",
                "attach the member and `raid assemble VOLUME`, or `raid replace` it",
            ),
            Condition::Failed => (
                "every request fails (NOT READY, EIO)",
                "attach the members: the set starts again by itself, or by `raid assemble VOLUME`",
            ),
            Condition::Refused => ("the set does not start", "follow the message"),
        };
        Meaning { users, remedy }
    }

    /// Whether no data are at risk, and none are refused: commands have the exit code 0.
    pub fn is_well(self) -> bool {
        matches!(self, Condition::Healthy | Condition::Growing)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Condition::Healthy => "healthy",
            Condition::Growing => "growing",
            Condition::Unsynchronised => "unsynchronised",
            Condition::Synchronising => "synchronising",
            Condition::Rebuilding => "rebuilding",
            Condition::Degraded => "degraded",
            Condition::Failed => "failed",
            Condition::Refused => "refused",
        })
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
        assert_eq!(pace.progress(), Progress { done: 100, total: 1000, bytes_per_s: 0, seconds_left: None });
        (1..=10).for_each(|second| pace.done(at(second), 100 + 10 * second));
        let Progress { bytes_per_s, seconds_left, .. } = pace.progress();
        assert_eq!((bytes_per_s, seconds_left), (10 << 20, Some(80)));
        // It becomes slower, and what was fast is forgotten.
        (11..=30).for_each(|second| pace.done(at(second), 200 + (second - 10)));
        assert_eq!(pace.progress().bytes_per_s, 1 << 20);
    }

    #[test]
    fn users_slow_a_step_down_until_a_second_behind_their_last_request() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let (members, moved) = (3, 3 * BESIDE_USERS_BYTES / 10);
        let throttle = Throttle::new(None);
        assert_eq!(throttle.step_time(at(0), 0, members, moved), Duration::ZERO, "nobody has asked");
        let slow = Duration::from_millis(100);
        assert_eq!(throttle.step_time(at(10), 1, members, moved), slow);
        assert_eq!(throttle.step_time(at(1009), 1, members, moved), slow, "users pause");
        assert_eq!(throttle.step_time(at(1010), 1, members, moved), Duration::ZERO, "they have gone");
        assert_eq!(throttle.step_time(at(9000), 2, members, moved), slow, "they come back");
        // What is configured holds with users and without.
        let throttle = Throttle::new(Some(moved));
        assert_eq!(throttle.step_time(at(0), 0, members, moved), Duration::from_secs(1));
        assert_eq!(throttle.step_time(at(10), 1, members, moved), Duration::from_secs(1));
    }

    #[test]
    fn a_scrub_is_recorded_from_time_to_time_and_sooner_if_it_finds_something() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let record =
            ScrubRecord { repairs: true, stripes: 40, wrong_blocks: vec![0, 2], ..ScrubRecord::default() };
        let mut scrubbing = Scrubbing::new(record.clone(), start, 100, 1 << 20);
        assert_eq!((scrubbing.record(), scrubbing.status().progress.done), (record, 40));
        scrubbing.add_wrong(vec![0, 0]);
        scrubbing.found.add(raid::Scrubbed::Right);
        assert_eq!(
            (scrubbing.to_record(at(9)), scrubbing.to_record(at(10)).map(|record| record.stripes)),
            (None, Some(41))
        );
        scrubbing.found.add(raid::Scrubbed::Mismatch { is_repaired: true });
        scrubbing.add_wrong(vec![3, 1]);
        let found = scrubbing.to_record(at(1)).expect("it has found something");
        assert_eq!((found.mismatches, found.repaired, &found.wrong_blocks[..]), (1, 1, &[3, 3][..]));
        scrubbing.recorded = (at(1), found);
        assert_eq!(scrubbing.to_record(at(60)), None, "nothing is new");
        // A member is replaced, and counts from 0.
        scrubbing.add_wrong(vec![3, 0]);
        scrubbing.add_wrong(vec![3, 1]);
        assert_eq!(scrubbing.record().wrong_blocks, [3, 4]);
        scrubbing.has_ended = true;
        assert!(scrubbing.to_record(at(1)).is_some_and(|record| record.has_ended));
    }
}
