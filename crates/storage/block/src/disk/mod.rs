//! A device as slow as a rotating disk: to try what random access costs on one, and what several of them gain.

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

/// Serves requests as late as a disk of a model would, one after the other. Data are stored by the inner device when a
/// request is acknowledged, whatever the disk's cache would have done with them.
///
/// A dropped request keeps its place: those behind it are not served earlier.
pub type RotatingDisk<D> = Paced<D, Rotation>;

/// The pace of a [`RotatingDisk`].
pub struct Rotation {
    drive: Lock<Drive>,
    has_cache: bool,
}

impl<D: BlockDevice> RotatingDisk<D> {
    /// `inner`, as slow as `model` with `cache`.
    pub fn new(inner: D, model: DiskModel, cache: DiskCache, sleeper: Arc<dyn Sleeper>) -> RotatingDisk<D> {
        let has_cache = cache.bytes > 0 && !cache.write_through;
        Paced { inner, pace: Rotation { drive: Lock::new(Drive::new(model, cache)), has_cache }, sleeper }
    }
}

impl Pace for Rotation {
    /// When the drive has done the request.
    fn begin(&self, now: Instant, work: Work, capacity: u64) -> Option<Instant> {
        let mut drive = self.drive.lock();
        match work {
            Work::Read(bytes) => Some(drive.read(now, bytes, capacity)),
            Work::Write(bytes, durability) => {
                Some(drive.write(now, bytes, durability == Durability::Stable, capacity))
            }
            Work::Zero(bytes) => Some(drive.write(now, bytes, false, capacity)),
            Work::Flush => Some(drive.flush(now, capacity)),
            Work::Manage => None,
        }
    }

    fn profile(&self, inner: Profile) -> Profile {
        Profile { solid_state: false, volatile_cache: inner.volatile_cache || self.has_cache, ..inner }
    }
}

/// A rotating disk, by the figures of its data sheet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskModel {
    /// An average seek, in seconds.
    pub seek_s: f64,
    /// Turns a second: 120 for 7200 a minute.
    pub turns_per_s: f64,
    /// Data that pass its heads, in bytes a second.
    pub bytes_per_s: f64,
}

impl DiskModel {
    /// The average way to a random place, and so many bytes there, in seconds.
    pub fn access_s(&self, bytes: f64) -> f64 {
        self.seek_s + 0.5 / self.turns_per_s + bytes / self.bytes_per_s
    }

    /// A seek over a part of the disk, between 0 and 1.
    fn seek_over_s(&self, distance: f64) -> f64 {
        /// Of the average.
        const SHORTEST: f64 = 0.1;
        /// The mean of the square root of the distance between two random places, ∫ 2(1-d)√d.
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
    /// So much is read ahead, and as much again can wait to be written. 0 is no cache.
    pub bytes: u64,
    /// Writes are acknowledged when they are on the medium.
    pub write_through: bool,
}

/// The mechanics of a rotating disk: where its head is when, and what its cache has.
///
/// ```text
///   a request     |-- seek --|-- until its first block passes --|-- transfer --|
/// ```
///
/// - *Seek*: a part that any seek takes (a tenth of the average), and a part that grows with the square root of the
///   distance, as far as the arm accelerates (Ruemmler and Wilkes, 1994). Two random places are the average apart.
/// - *Rotation*: a block has an angle, and the disk turns all the time, also between requests.
/// - *Transfer*: tracks follow each other without a gap, as their skew provides, and all have one length.
/// - *Reading ahead*: after a read the head goes on reading until the cache is full or another request wants it.
/// - *Writing behind*: writes are acknowledged when they are in the cache, and reach the medium in the order of their
///   places while nothing else is to be done.
///
/// Requests that wait for the head are served in the order of their arrival. Left out: zones, defects, the time of the
/// interface, and reads out of order (NCQ), which make a disk faster with many outstanding random reads.
///
/// All times are those of requests.
struct Drive {
    model: DiskModel,
    cache: DiskCache,
    /// When it stood at angle 0.
    started: Option<Instant>,
    /// When the head has done all that it was given.
    idle_from: Option<Instant>,
    /// The head passed this byte at this time; it does not read on unless there is `ahead`.
    head: u64,
    passed: Option<Instant>,
    ahead: Option<Ahead>,
    /// Written and not on the medium yet.
    dirty: Dirty,
}

/// What is being read ahead.
#[derive(Clone, Copy)]
struct Ahead {
    /// The first byte that the cache has.
    first: u64,
    /// The head passes `from` at `since`, and continues.
    from: u64,
    since: Instant,
    /// The end of what was asked for.
    wanted: u64,
}

/// The longest piece that is written behind at once, so that a read does not wait for long.
const PIECE_BYTES: u64 = 1 << 20;

impl Drive {
    fn new(model: DiskModel, cache: DiskCache) -> Drive {
        let (started, idle_from, passed, ahead) = (None, None, None, None);
        Drive { model, cache, started, idle_from, head: 0, passed, ahead, dirty: Dirty::default() }
    }

    /// When a read that comes at `now` ends, on a disk of so many bytes.
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
                let since = end - self.model.transfer(bytes.end - bytes.start).min(end - start);
                let ahead = Ahead { first: bytes.start, from: bytes.start, since, wanted: bytes.end };
                self.ahead = (self.cache.bytes > 0).then_some(ahead);
                end
            }
        }
    }

    /// When a write is acknowledged; with `stable`, when it is on the medium.
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
        // The head begins no earlier than the first write comes.
        self.idle_from = Some(self.free_at(now));
        acknowledged
    }

    /// When all that was acknowledged is on the medium.
    fn flush(&mut self, now: Instant, capacity: u64) -> Instant {
        self.write_behind(now, capacity);
        let mut end = now;
        while !self.dirty.is_empty() {
            end = self.write_one(self.free_at(now), capacity);
        }
        end
    }

    /// When the head is free for a request that comes at `now`.
    fn free_at(&self, now: Instant) -> Instant {
        self.idle_from.map_or(now, |idle_from| idle_from.max(now))
    }

    /// Writes behind until `now`. A piece that was begun is finished.
    fn write_behind(&mut self, now: Instant, capacity: u64) {
        while let Some(free) = self.idle_from.filter(|free| *free < now && !self.dirty.is_empty()) {
            self.write_one(free, capacity);
        }
    }

    /// Writes the next piece from the head on, and after the last the first one; returns its end.
    fn write_one(&mut self, free: Instant, capacity: u64) -> Instant {
        let Some(next) = self.dirty.from(self.head) else { return free };
        let piece = next.start..next.end.min(next.start + PIECE_BYTES);
        self.dirty.remove(&piece);
        self.access(free, &piece, capacity)
    }

    /// The mechanics of one access, from when the head is free.
    fn access(&mut self, free: Instant, bytes: &Range<u64>, capacity: u64) -> Instant {
        let started = *self.started.get_or_insert(free);
        // A head that has just passed the byte before needs neither a seek nor a turn.
        let continues = bytes.start == self.head && self.passed == Some(free) && self.ahead.is_none();
        let passes = if continues { free } else { self.passing(started, free, bytes.start, capacity) };
        let end = later(passes, self.model.transfer(bytes.end - bytes.start));
        debug_assert!(passes >= free && end >= passes, "time does not go back");
        (self.head, self.passed, self.idle_from, self.ahead) = (bytes.end, Some(end), Some(end), None);
        end
    }

    /// When the head, free from `free` on, passes `byte`.
    fn passing(&self, started: Instant, free: Instant, byte: u64, capacity: u64) -> Instant {
        let track = |byte: u64| (byte as f64 / self.model.track_bytes()).floor();
        let from = self.ahead.map_or(self.head, |ahead| self.reached(&ahead, free));
        let distance = from.abs_diff(byte) as f64 / capacity.max(1) as f64;
        let seek_s = if track(from) == track(byte) { 0.0 } else { self.model.seek_over_s(distance.min(1.0)) };
        let there = later(free, seconds(seek_s));
        later(there, self.rotation(started, there, byte))
    }

    /// From `at` until the angle of `byte` is under the head.
    fn rotation(&self, started: Instant, at: Instant, byte: u64) -> Duration {
        let turned = at.saturating_duration_since(started).as_secs_f64() * self.model.turns_per_s;
        let angle = byte as f64 / self.model.track_bytes();
        seconds((angle - turned).rem_euclid(1.0) / self.model.turns_per_s)
    }

    /// How far the cache has been filled at `now`.
    fn reached(&self, ahead: &Ahead, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(ahead.since).as_secs_f64() * self.model.bytes_per_s;
        ahead.from.saturating_add(passed as u64).min(ahead.wanted.saturating_add(self.cache.bytes))
    }

    /// When a read ends that the cache has, or will have when the head has passed it.
    fn read_from_ahead(&mut self, now: Instant, start: Instant, bytes: &Range<u64>) -> Option<Instant> {
        let mut ahead = self.ahead?;
        let reached = self.reached(&ahead, start);
        let first = ahead.first.max(reached.saturating_sub(self.cache.bytes));
        if !(first..=reached).contains(&bytes.start) {
            return None;
        }
        let was_full = reached == ahead.wanted.saturating_add(self.cache.bytes);
        ahead.wanted = ahead.wanted.max(bytes.end);
        if was_full {
            // The head waited. It continues when the byte comes round again.
            let started = *self.started.get_or_insert(start);
            (ahead.from, ahead.since) = (reached, later(start, self.rotation(started, start, reached)));
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

/// Ranges of bytes, none of which touch each other.
#[derive(Debug, Default)]
struct Dirty {
    /// Start and end.
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Dirty {
    /// How many there are.
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether all of `bytes` is in it.
    fn holds(&self, bytes: &Range<u64>) -> bool {
        self.ranges.range(..=bytes.start).next_back().is_some_and(|(_, end)| *end >= bytes.end)
    }

    /// The first range that starts at `byte` or behind it, or the first of all.
    fn from(&self, byte: u64) -> Option<Range<u64>> {
        let next = self.ranges.range(byte..).next().or_else(|| self.ranges.iter().next());
        next.map(|(start, end)| *start..*end)
    }

    fn insert(&mut self, bytes: Range<u64>) {
        self.remove(&bytes);
        let (mut start, mut end) = (bytes.start, bytes.end);
        let before = self.ranges.range(..start).next_back().filter(|(_, end)| **end == start);
        if let Some(before) = before.map(|(before, _)| *before) {
            self.ranges.remove(&before);
            start = before;
        }
        if let Some(after) = self.ranges.remove(&end) {
            end = after;
        }
        self.bytes += bytes.end - bytes.start;
        self.ranges.insert(start, end);
        debug_assert_eq!(self.bytes, self.ranges.iter().map(|(start, end)| end - start).sum::<u64>());
    }

    fn remove(&mut self, bytes: &Range<u64>) {
        let before = self.ranges.range(..bytes.end).rev().take_while(|(_, end)| **end > bytes.start);
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
