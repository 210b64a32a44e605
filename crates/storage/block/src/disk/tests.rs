use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::buffer::Buffer;
use crate::extent::Extent;
use crate::extent::{BlockSize, Blocks, Geometry};
use crate::null::Null;
use crate::testing::{ManualClock, draw, poll, seed};

/// A disk of 2009, from document 001.
const MODEL: DiskModel = DiskModel {
    seek_s: 8.5e-3,
    turns_per_s: 120.0,
    bytes_per_s: 100e6,
    request_s: 0.0,
};
const CAPACITY: u64 = 1 << 40;
const CACHE: DiskCache = DiskCache {
    bytes: 16 << 20,
    write_through: false,
};
const NO_CACHE: DiskCache = DiskCache {
    bytes: 0,
    write_through: true,
};

/// A drive with the current time, for requests that are made one after another.
struct Scene {
    drive: Drive,
    start: Instant,
    now: Instant,
}

impl Scene {
    fn new(cache: DiskCache) -> Scene {
        seed(1);
        let now = Instant::now();
        Scene {
            drive: Drive::new(MODEL, cache),
            start: now,
            now,
        }
    }

    fn read(&mut self, at: u64, bytes: u64) -> f64 {
        self.until(|drive, now| drive.read(now, at..at + bytes, CAPACITY))
    }

    fn write(&mut self, at: u64, bytes: u64) -> f64 {
        self.until(|drive, now| drive.write(now, at..at + bytes, false, CAPACITY))
    }

    fn flush(&mut self) -> f64 {
        self.until(|drive, now| drive.flush(now, CAPACITY))
    }

    /// Makes a request, and returns its duration in seconds.
    fn until(&mut self, request: impl FnOnce(&mut Drive, Instant) -> Instant) -> f64 {
        let end = request(&mut self.drive, self.now);
        assert!(end >= self.now, "nothing ends before it comes");
        let took = (end - self.now).as_secs_f64();
        self.now = end;
        took
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    fn passed(&self) -> f64 {
        (self.now - self.start).as_secs_f64()
    }
}

fn place(bytes: u64) -> u64 {
    draw(CAPACITY / bytes) * bytes
}

fn close(value: f64, expected: f64, share: f64) {
    assert!(
        (value / expected - 1.0).abs() < share,
        "{value} is not {expected}"
    );
}

/// Compares the drive, which models positions and angles, with `measure/model`, which uses averages.
#[test]
fn random_accesses_take_a_seek_half_a_turn_and_a_transfer_on_average() {
    for bytes in [4 << 10, 1 << 20] {
        let mut scene = Scene::new(NO_CACHE);
        let reads: f64 = (0..20_000).map(|_| scene.read(place(bytes), bytes)).sum();
        close(reads / 20_000.0, MODEL.access_s(bytes as f64), 0.01);
    }
}

#[test]
fn what_follows_each_other_passes_at_the_rate_of_the_medium() {
    let rate = |cache, bytes: u64, pause| {
        let mut scene = Scene::new(cache);
        scene.read(0, bytes);
        let start = scene.passed();
        for index in 1..2000 {
            scene.wait(pause);
            scene.read(index * bytes, bytes);
        }
        1999.0 * bytes as f64 / (scene.passed() - start)
    };
    close(
        rate(CACHE, 64 << 10, Duration::ZERO),
        MODEL.bytes_per_s,
        0.01,
    );
    // Read-ahead hides a pause between requests.
    close(
        rate(CACHE, 64 << 10, Duration::from_micros(200)),
        MODEL.bytes_per_s,
        0.01,
    );
    // Without read-ahead, the next byte has already passed the head, and returns after a revolution.
    let turn = 1.0 / MODEL.turns_per_s;
    close(
        rate(NO_CACHE, 64 << 10, Duration::from_micros(200)),
        65_536.0 / turn,
        0.1,
    );
}

#[test]
fn a_short_seek_is_shorter_than_a_long_one() {
    let mean = |span: u64| {
        let mut scene = Scene::new(NO_CACHE);
        (0..4000)
            .map(|_| scene.read(draw(span / 4096) * 4096, 4096))
            .sum::<f64>()
            / 4000.0
    };
    let half_a_turn = 0.5 / MODEL.turns_per_s;
    let (tenth, all) = (
        mean(CAPACITY / 10) - half_a_turn,
        mean(CAPACITY) - half_a_turn,
    );
    // Within a tenth of the disk, the part of a seek that depends on distance is multiplied by the square
    // root of a tenth.
    close(tenth / all, 0.1 + 0.9 * 0.1f64.sqrt(), 0.03);
}

#[test]
fn writes_are_quick_until_the_cache_is_full_and_then_as_quick_as_the_head() {
    let mut scene = Scene::new(CACHE);
    let quick = (0..4096)
        .filter(|_| scene.write(place(4096), 4096) == 0.0)
        .count();
    assert_eq!(quick, 4096, "16 MiB fit");
    let start = scene.passed();
    for _ in 0..2000 {
        scene.write(place(4096), 4096);
    }
    let each = (scene.passed() - start) / 2000.0;
    // In address order, the seeks are short: an access takes the constant part of a seek, half a revolution,
    // and a little more.
    let shortest = 0.1 * MODEL.seek_s + 0.5 / MODEL.turns_per_s;
    assert!(
        (shortest..0.6 * MODEL.access_s(4096.0)).contains(&each),
        "{each}"
    );
    let flush = scene.flush();
    assert!(flush > 4000.0 * shortest, "{flush}");
    assert_eq!(scene.flush(), 0.0);
}

#[test]
fn a_write_that_follows_another_needs_no_turn() {
    let mut scene = Scene::new(CACHE);
    let writes = 4096;
    for index in 0..writes {
        scene.write(index << 16, 64 << 10);
    }
    scene.flush();
    close(
        (writes << 16) as f64 / scene.passed(),
        MODEL.bytes_per_s,
        0.05,
    );
}

#[test]
fn what_waits_to_be_written_is_read_from_the_cache_and_written_while_nothing_else_is_done() {
    let mut scene = Scene::new(CACHE);
    scene.write(1 << 30, 8192);
    assert_eq!(scene.read((1 << 30) + 4096, 4096), 0.0);
    scene.wait(Duration::from_millis(100));
    assert_eq!(scene.flush(), 0.0);
    let through = DiskCache {
        write_through: true,
        ..CACHE
    };
    let mut scene = Scene::new(through);
    assert!(scene.write(1 << 30, 4096) > 0.0);
    assert_eq!(scene.flush(), 0.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_request_ends_whatever_came_before(
        requests in prop::collection::vec((0..4u8, 0..1u64 << 20, 1..64u64, 0..20u64), 1..60),
        cache in 0..64u64,
    ) {
        let mut drive = Drive::new(MODEL, DiskCache { bytes: cache * 4096, write_through: false });
        let mut now = Instant::now();
        for (kind, at, blocks, pause_ms) in requests {
            now += Duration::from_millis(pause_ms);
            let bytes = at * 4096..(at + blocks) * 4096;
            let end = match kind {
                0 | 1 => drive.read(now, bytes, CAPACITY),
                2 => drive.write(now, bytes, false, CAPACITY),
                _ => drive.flush(now, CAPACITY),
            };
            prop_assert!(end >= now);
            // Sixty requests, each of which takes less than a seek over the whole disk, a revolution and the
            // transfer of 256 KiB.
            prop_assert!(end - now < Duration::from_secs(4));
        }
    }
}

#[test]
fn the_layer_answers_when_the_drive_has_done_it() {
    let clock = Arc::new(ManualClock::default());
    let geometry = Geometry {
        block_size: BlockSize::B512,
        blocks: Blocks(CAPACITY / 512),
        physical_exponent: 0,
    };
    let disk = RotatingDisk::new(Null::new(geometry), MODEL, CACHE, Arc::clone(&clock) as _);
    assert!(!disk.profile().solid_state && disk.profile().volatile_cache);
    let mut read = disk.read(Extent::new(1 << 20, 8), Buffer::zeroed(4096));
    assert!(poll(read.as_mut()).is_none());
    let (seek, turn) = (Duration::from_micros(850), Duration::from_micros(8334));
    clock.pass(seek);
    assert!(poll(read.as_mut()).is_none(), "a seek is not all");
    clock.pass(2 * turn);
    assert!(poll(read.as_mut()).is_some_and(|result| result.is_ok()));
    let mut beyond = disk.read(Extent::new(CAPACITY / 512, 1), Buffer::zeroed(512));
    assert_eq!(
        poll(beyond.as_mut()).map(|result| result.err()),
        Some(Some(crate::DeviceError::OutOfRange))
    );
}

/// The hard drive in table 4 of document 000: 2,384 reads per second of 4 KiB, and as many of 8 KiB, but
/// 58.6 MB/s from 64 KiB.
#[test]
fn short_requests_take_the_time_of_the_interface_and_long_ones_that_of_the_medium() {
    let model = DiskModel {
        bytes_per_s: 60e6,
        request_s: 0.42e-3,
        ..MODEL
    };
    let clock = Arc::new(ManualClock::default());
    let geometry = Geometry {
        block_size: BlockSize::B512,
        blocks: Blocks(CAPACITY / 512),
        physical_exponent: 0,
    };
    let disk = RotatingDisk::new(Null::new(geometry), model, CACHE, Arc::clone(&clock) as _);
    let mut next = 0;
    let mut took = |blocks: u64| {
        let mut read = disk.read(
            Extent::new(next, blocks),
            Buffer::zeroed(blocks as usize * 512),
        );
        next += blocks;
        let mut us = 0;
        while poll(read.as_mut()).is_none() {
            clock.pass(Duration::from_micros(10));
            us += 10;
        }
        us
    };
    took(8); // the first read seeks
    assert_eq!([8, 8, 16, 16].map(&mut took), [420; 4]);
    let reads = 100_u32;
    let long: u64 = (0..reads).map(|_| took(128)).sum();
    close(long as f64 / f64::from(reads), 65_536.0 / 60.0, 0.02);
}

proptest! {
    #[test]
    fn the_ranges_are_the_bytes_that_were_inserted_and_not_removed(
        changes in prop::collection::vec((0..64u64, 1..16u64, any::<bool>()), 1..40),
        asked in (0..80u64, 1..16u64),
    ) {
        let mut dirty = Dirty::default();
        let mut expected = [false; 96];
        for (start, length, is_inserted) in changes {
            match is_inserted {
                true => dirty.insert(start..start + length),
                false => dirty.remove(&(start..start + length)),
            }
            expected[start as usize..(start + length) as usize].fill(is_inserted);
        }
        let count = expected.iter().filter(|dirty| **dirty).count() as u64;
        prop_assert_eq!((dirty.bytes(), dirty.is_empty()), (count, count == 0));
        let asked = asked.0..asked.0 + asked.1;
        let all = expected[asked.start as usize..asked.end as usize].iter().all(|dirty| *dirty);
        prop_assert_eq!(dirty.holds(&asked), all);
        // A range starts at a dirty byte if the byte before it is clean.
        let starts: Vec<u64> =
            (0..96).filter(|at| expected[*at] && (*at == 0 || !expected[*at - 1])).map(|at| at as u64).collect();
        let next = starts.iter().find(|start| **start >= asked.start).or(starts.first());
        prop_assert_eq!(dirty.from(asked.start).map(|range| range.start), next.copied());
    }
}
