//! A device that is as slow as a rotating disk, for testing the cost of random access and the gain from
//! several disks.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::device::{BlockDevice, Durability, Profile};
use crate::lock::Lock;
use crate::paced::{Pace, Paced, Work};
use crate::tasks::{Sleeper, later};

/// Serves requests one after another, with the timing of a disk model. Whatever the model's cache, the inner
/// device has stored a write's data when the write is acknowledged.
///
/// A dropped request keeps its place in the queue, so later requests are not served earlier.
pub type RotatingDisk<D> = Paced<D, Rotation>;

/// The pace of a [`RotatingDisk`].
pub struct Rotation {
    drive: Lock<Drive>,
    has_cache: bool,
}

impl<D: BlockDevice> RotatingDisk<D> {
    /// Makes `inner` as slow as a disk of this `model` with this `cache`.
    pub fn new(
        inner: D,
        model: DiskModel,
        cache: DiskCache,
        sleeper: Arc<dyn Sleeper>,
    ) -> RotatingDisk<D> {
        let has_cache = cache.bytes > 0 && !cache.write_through;
        Paced {
            inner,
            pace: Rotation {
                drive: Lock::new(Drive::new(model, cache)),
                has_cache,
            },
            sleeper,
        }
    }
}

impl Pace for Rotation {
    /// Returns the time at which the drive completes the request.
    fn begin(&self, now: Instant, work: Work, capacity: u64) -> Option<Instant> {
        let mut drive = self.drive.lock();
        let done = match work {
            Work::Read(bytes) => drive.read(now, bytes, capacity),
            Work::Write(bytes, durability) => {
                drive.write(now, bytes, durability == Durability::Stable, capacity)
            }
            Work::Zero(bytes) => drive.write(now, bytes, false, capacity),
            Work::Flush => drive.flush(now, capacity),
            Work::Manage => return None,
        };
        Some(done.max(drive.transmit(now)))
    }

    fn profile(&self, inner: Profile) -> Profile {
        Profile {
            solid_state: false,
            volatile_cache: inner.volatile_cache || self.has_cache,
            ..inner
        }
    }
}

/// A rotating disk, described by its data sheet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskModel {
    /// An average seek, in seconds.
    pub seek_s: f64,
    /// Revolutions per second: 120 for 7200 rpm.
    pub turns_per_s: f64,
    /// Media transfer rate in bytes per second.
    pub bytes_per_s: f64,
    /// Time of each request on the disk's interface, in seconds. The head continues meanwhile, so this time
    /// limits requests that are short or in the cache.
    pub request_s: f64,
}

impl DiskModel {
    /// Returns the average time of a random access of this many bytes, in seconds.
    pub fn access_s(&self, bytes: f64) -> f64 {
        (self.seek_s + 0.5 / self.turns_per_s + bytes / self.bytes_per_s).max(self.request_s)
    }

    /// Returns the time of a seek over a fraction of the disk, from 0 to 1.
    fn seek_over_s(&self, distance: f64) -> f64 {
        /// Shortest seek, as a fraction of the average.
        const SHORTEST: f64 = 0.1;
        /// Mean of the square root of the distance between two random positions, ∫ 2(1-d)√d.
        const MEAN: f64 = 8.0 / 15.0;
        self.seek_s * (SHORTEST + (1.0 - SHORTEST) * distance.sqrt() / MEAN)
    }

    fn track_bytes(&self) -> f64 {
        self.bytes_per_s / self.turns_per_s
    }

    fn transfer(&self, bytes: u64) -> Duration {
        seconds(bytes as f64 / self.bytes_per_s)
    }
}

/// The cache of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskCache {
    /// Size, applied separately to read-ahead and to pending writes. 0 disables the cache.
    pub bytes: u64,
    /// Acknowledge writes only when they are on the medium.
    pub write_through: bool,
}

/// The mechanics of a rotating disk: the position of its head over time, and the content of its cache.
///
/// ```text
///   a request     |-- seek --|-- until its first block passes --|-- transfer --|
/// ```
///
/// - *Seek*: a constant part (a tenth of the average), and a part that grows with the square root of the
///   distance, as long as the arm accelerates (Ruemmler and Wilkes, 1994). A seek between two random
///   positions takes the average time.
/// - *Rotation*: a block has an angle, and the disk rotates continuously, including between requests.
/// - *Transfer*: tracks follow one another without a pause, because of their skew, and all have the same
///   length.
/// - *Reading ahead*: after a read the head continues reading until the cache is full or another request
///   needs the head.
/// - *Writing behind*: writes are acknowledged when they are in the cache, and reach the medium in the order of their
///   addresses while the head is idle.
///
/// Requests are served in order of arrival, and use the interface one after another. The model does not
/// include zones, defects, and out-of-order reads (NCQ), which make a disk with many outstanding random reads
/// faster.
///
/// The model has no clock: it derives all times from the arrival times of requests.
struct Drive {
    model: DiskModel,
    cache: DiskCache,
    /// Time at which the disk was at angle 0.
    started: Option<Instant>,
    /// Time at which the interface has completed all requests.
    sent: Option<Instant>,
    /// Time at which the head has completed all its work.
    idle_from: Option<Instant>,
    /// The head passed this byte at time `passed`. It continues reading from there only if `ahead` is set.
    head: u64,
    passed: Option<Instant>,
    ahead: Option<Ahead>,
    /// Written data that is not on the medium yet.
    dirty: Dirty,
}

#[derive(Clone, Copy)]
struct Ahead {
    /// The first cached byte.
    first: u64,
    /// The head passes byte `from` at time `since`, and continues reading.
    from: u64,
    since: Instant,
    /// The end of the requested range.
    wanted: u64,
}

/// Maximum length of a write-behind piece, so that a read does not have to wait for a long time.
const PIECE_BYTES: u64 = 1 << 20;

impl Drive {
    fn new(model: DiskModel, cache: DiskCache) -> Drive {
        let (started, sent, idle_from, passed, ahead) = (None, None, None, None, None);
        Drive {
            model,
            cache,
            started,
            sent,
            idle_from,
            head: 0,
            passed,
            ahead,
            dirty: Dirty::default(),
        }
    }

    /// Returns the time at which the interface has completed a request that arrives at `now`.
    fn transmit(&mut self, now: Instant) -> Instant {
        let free = self.sent.map_or(now, |sent| sent.max(now));
        let end = later(free, seconds(self.model.request_s));
        self.sent = Some(end);
        end
    }

    /// Returns the completion time of a read that arrives at `now`, on a disk of `capacity` bytes.
    fn read(&mut self, now: Instant, bytes: Range<u64>, capacity: u64) -> Instant {
        self.write_behind(now, capacity);
        if bytes.is_empty() || self.dirty.holds(&bytes) {
            return now;
        }
        let start = self.free_at(now);
        match self.read_from_ahead(now, start, &bytes) {
            Some(end) => end,
            None => {
                let end = self.access(start, &bytes, capacity);
                let since = end
                    - self
                        .model
                        .transfer(bytes.end - bytes.start)
                        .min(end - start);
                let ahead = Ahead {
                    first: bytes.start,
                    from: bytes.start,
                    since,
                    wanted: bytes.end,
                };
                self.ahead = (self.cache.bytes > 0).then_some(ahead);
                end
            }
        }
    }

    /// Returns the time at which a write is acknowledged; with `stable`, at which it is on the medium.
    fn write(&mut self, now: Instant, bytes: Range<u64>, stable: bool, capacity: u64) -> Instant {
        self.write_behind(now, capacity);
        let length = bytes.end.saturating_sub(bytes.start);
        if length == 0 {
            return now;
        }
        if stable || self.cache.write_through || length > self.cache.bytes {
            self.dirty.remove(&bytes);
            return self.access(self.free_at(now), &bytes, capacity);
        }
        let mut acknowledged = now;
        while self.dirty.bytes() + length > self.cache.bytes {
            acknowledged = self.write_one(self.free_at(now), capacity);
        }
        self.dirty.insert(bytes);
        debug_assert!(self.dirty.bytes() <= self.cache.bytes, "the cache has room");
        // The head does not start work before the first write arrives.
        self.idle_from = Some(self.free_at(now));
        acknowledged
    }

    /// Returns the time at which all acknowledged writes are on the medium.
    fn flush(&mut self, now: Instant, capacity: u64) -> Instant {
        self.write_behind(now, capacity);
        let mut end = now;
        while !self.dirty.is_empty() {
            end = self.write_one(self.free_at(now), capacity);
        }
        end
    }

    /// Returns the time at which the head is free for a request that arrives at `now`.
    fn free_at(&self, now: Instant) -> Instant {
        self.idle_from.map_or(now, |idle_from| idle_from.max(now))
    }

    /// Executes write-behind until `now`. A piece that has been started is completed.
    fn write_behind(&mut self, now: Instant, capacity: u64) {
        while let Some(free) = self
            .idle_from
            .filter(|free| *free < now && !self.dirty.is_empty())
        {
            self.write_one(free, capacity);
        }
    }

    /// Writes the next piece after the head's position, or the first piece if there is none after it. Returns
    /// the completion time.
    fn write_one(&mut self, free: Instant, capacity: u64) -> Instant {
        let Some(next) = self.dirty.from(self.head) else {
            return free;
        };
        let piece = next.start..next.end.min(next.start + PIECE_BYTES);
        self.dirty.remove(&piece);
        self.access(free, &piece, capacity)
    }

    /// Moves the head for one access, which starts when the head is free. Returns the completion time.
    fn access(&mut self, free: Instant, bytes: &Range<u64>, capacity: u64) -> Instant {
        let started = *self.started.get_or_insert(free);
        // If the head has just passed the preceding byte, the access needs neither a seek nor a rotation.
        let continues =
            bytes.start == self.head && self.passed == Some(free) && self.ahead.is_none();
        let passes = if continues {
            free
        } else {
            self.passing(started, free, bytes.start, capacity)
        };
        let end = later(passes, self.model.transfer(bytes.end - bytes.start));
        debug_assert!(passes >= free && end >= passes, "time does not go back");
        (self.head, self.passed, self.idle_from, self.ahead) =
            (bytes.end, Some(end), Some(end), None);
        end
    }

    /// Returns the time at which the head, which is free from time `free` on, passes `byte`.
    fn passing(&self, started: Instant, free: Instant, byte: u64, capacity: u64) -> Instant {
        let track = |byte: u64| (byte as f64 / self.model.track_bytes()).floor();
        let from = self
            .ahead
            .map_or(self.head, |ahead| self.reached(&ahead, free));
        let distance = from.abs_diff(byte) as f64 / capacity.max(1) as f64;
        let seek_s = if track(from) == track(byte) {
            0.0
        } else {
            self.model.seek_over_s(distance.min(1.0))
        };
        let there = later(free, seconds(seek_s));
        later(there, self.rotation(started, there, byte))
    }

    /// Returns the time from `at` until the angle of `byte` is under the head.
    fn rotation(&self, started: Instant, at: Instant, byte: u64) -> Duration {
        let turned = at.saturating_duration_since(started).as_secs_f64() * self.model.turns_per_s;
        let angle = byte as f64 / self.model.track_bytes();
        seconds((angle - turned).rem_euclid(1.0) / self.model.turns_per_s)
    }

    /// Returns the end of the cached range at `now`.
    fn reached(&self, ahead: &Ahead, now: Instant) -> u64 {
        let passed =
            now.saturating_duration_since(ahead.since).as_secs_f64() * self.model.bytes_per_s;
        ahead
            .from
            .saturating_add(passed as u64)
            .min(ahead.wanted.saturating_add(self.cache.bytes))
    }

    /// Returns the completion time of a read whose data is in the cache, or will be there once the head has
    /// passed it. Returns `None` if the read-ahead does not cover the data.
    fn read_from_ahead(
        &mut self,
        now: Instant,
        start: Instant,
        bytes: &Range<u64>,
    ) -> Option<Instant> {
        let mut ahead = self.ahead?;
        let reached = self.reached(&ahead, start);
        let first = ahead.first.max(reached.saturating_sub(self.cache.bytes));
        if !(first..=reached).contains(&bytes.start) {
            return None;
        }
        let was_full = reached == ahead.wanted.saturating_add(self.cache.bytes);
        ahead.wanted = ahead.wanted.max(bytes.end);
        if was_full {
            // The cache was full, so the head was waiting. It continues when the next byte passes it again.
            let started = *self.started.get_or_insert(start);
            (ahead.from, ahead.since) = (
                reached,
                later(start, self.rotation(started, start, reached)),
            );
        }
        let end = match bytes.end.checked_sub(ahead.from) {
            Some(rest) => later(ahead.since, self.model.transfer(rest)).max(now),
            None => now,
        };
        (self.ahead, self.head) = (Some(ahead), bytes.end);
        self.idle_from = self.idle_from.max(Some(end));
        Some(end)
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Ranges of bytes that are not adjacent.
#[derive(Debug, Default)]
struct Dirty {
    /// The end of each range, by its start.
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Dirty {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns whether one range contains all of `bytes`.
    fn holds(&self, bytes: &Range<u64>) -> bool {
        self.ranges
            .range(..=bytes.start)
            .next_back()
            .is_some_and(|(_, end)| *end >= bytes.end)
    }

    /// Returns the first range that starts at `byte` or later, or the very first range if there is none.
    fn from(&self, byte: u64) -> Option<Range<u64>> {
        let next = self
            .ranges
            .range(byte..)
            .next()
            .or_else(|| self.ranges.iter().next());
        next.map(|(start, end)| *start..*end)
    }

    fn insert(&mut self, bytes: Range<u64>) {
        self.remove(&bytes);
        let (mut start, mut end) = (bytes.start, bytes.end);
        let before = self
            .ranges
            .range(..start)
            .next_back()
            .filter(|(_, end)| **end == start);
        if let Some(before) = before.map(|(before, _)| *before) {
            self.ranges.remove(&before);
            start = before;
        }
        if let Some(after) = self.ranges.remove(&end) {
            end = after;
        }
        self.bytes += bytes.end - bytes.start;
        self.ranges.insert(start, end);
        debug_assert_eq!(
            self.bytes,
            self.ranges
                .iter()
                .map(|(start, end)| end - start)
                .sum::<u64>()
        );
    }

    fn remove(&mut self, bytes: &Range<u64>) {
        let before = self
            .ranges
            .range(..bytes.end)
            .rev()
            .take_while(|(_, end)| **end > bytes.start);
        let touched: Vec<(u64, u64)> = before.map(|(start, end)| (*start, *end)).collect();
        for (start, end) in touched {
            self.ranges.remove(&start);
            self.bytes -= end - start;
            for rest in [start..bytes.start, bytes.end..end] {
                if rest.start < rest.end {
                    self.bytes += rest.end - rest.start;
                    self.ranges.insert(rest.start, rest.end);
                }
            }
        }
    }
}
