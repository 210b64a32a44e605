//! How far something is that takes long, how fast, and for how long yet.

use std::cell::Cell;
use std::time::{Duration, Instant};

use raid::superblock::ScrubRecord;
use serde::{Deserialize, Serialize};

use super::scrub::Scrub;

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
pub(super) struct Pace {
    earlier: (Instant, u64),
    later: (Instant, u64),
    now: (Instant, u64),
    total: u64,
    stripe_bytes: u64,
}

impl Pace {
    /// `stripe_bytes`: of a member.
    pub(super) fn new(now: Instant, done: u64, total: u64, stripe_bytes: u64) -> Pace {
        let start = (now, done);
        Pace { earlier: start, later: start, now: start, total, stripe_bytes }
    }

    pub(super) fn done(&mut self, now: Instant, done: u64) {
        self.now = (now, done);
        if now.saturating_duration_since(self.later.0) >= SAMPLE {
            (self.earlier, self.later) = (self.later, self.now);
        }
    }

    pub(super) fn progress(&self) -> Progress {
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
pub(super) struct Throttle {
    /// Bytes a second of all members, users or not.
    configured: Option<u64>,
    /// Requests of users that had begun at the last look, and when there was another one.
    known: Cell<(u64, Option<Instant>)>,
}

impl Throttle {
    pub(super) fn new(configured: Option<u64>) -> Throttle {
        Throttle { configured, known: Cell::new((0, None)) }
    }

    /// The least time of a step that moved so many bytes of `members`, if `requests` of users have begun by now.
    pub(super) fn step_time(
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
pub(super) struct Working {
    /// The member that is rebuilt; `None` for what is synchronised or zeroed.
    pub(super) member: Option<usize>,
    pub(super) pace: Pace,
}

impl Working {
    pub(super) fn progress(&self) -> Progress {
        self.pace.progress()
    }
}

/// A scrub beside users.
#[derive(Clone, Debug)]
pub(super) struct Scrubbing {
    pub(super) repairs: bool,
    pub(super) found: Scrub,
    pub(super) pace: Pace,
    pub(super) has_ended: bool,
    /// Of each member, its blocks that did not fit when that was last looked at: those since then are added to what is found.
    pub(super) known_wrong: Vec<u64>,
    /// When it was recorded, and what.
    pub(super) recorded: (Instant, ScrubRecord),
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
    pub(super) fn recorded(record: &ScrubRecord, stripes: u64) -> ScrubStatus {
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
    pub(super) fn new(record: ScrubRecord, now: Instant, stripes: u64, stripe_bytes: u64) -> Scrubbing {
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
    pub(super) fn add_wrong(&mut self, counts: Vec<u64>) {
        self.found.wrong_blocks.resize(counts.len(), 0);
        for (member, (total, count)) in self.found.wrong_blocks.iter_mut().zip(&counts).enumerate() {
            // One that was replaced counts anew.
            *total += count.saturating_sub(self.known_wrong.get(member).copied().unwrap_or(0));
        }
        self.known_wrong = counts;
    }

    pub(super) fn record(&self) -> ScrubRecord {
        ScrubRecord { repairs: self.repairs, has_ended: self.has_ended, ..self.found.record() }
    }

    /// What is to be recorded now, if something is.
    pub(super) fn to_record(&self, now: Instant) -> Option<ScrubRecord> {
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

    pub(super) fn status(&self) -> ScrubStatus {
        let Scrubbing { repairs, found, pace, has_ended, .. } = self;
        ScrubStatus {
            repairs: *repairs,
            has_ended: *has_ended,
            progress: pace.progress(),
            found: found.clone(),
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
