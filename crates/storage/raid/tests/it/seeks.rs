//! The speed-up of random access by several disks that have to seek, in virtual time. The reference is the
//! number of accesses according to Patterson, Gibson and Katz (1988): a short write is one access, two on a
//! mirror, and four with parity.

use std::sync::Arc;

use block::{
    BlockDevice, BlockSize, Blocks, Buffer, DiskCache, DiskModel, Durability, Extent, Geometry,
    Null, Pending, Sleeper as _,
};
use raid::{
    Assembly, Layout, Level, MemberStates, MetadataStore, Origin, ProtectionAreas, RaidDevice,
};

use crate::world::{End, HereSpawner, StepClock, Task, draw, end, run, seed};

/// A disk of 2009, but ten times as fast in every respect: the clock advances with each poll, and a million
/// polls would take too long.
const MODEL: DiskModel = DiskModel {
    seek_s: 8.5e-4,
    turns_per_s: 1200.0,
    bytes_per_s: 1e9,
    request_s: 0.0,
};
const DISK_BLOCKS: Blocks = Blocks(1 << 21);
const REQUEST_BLOCKS: u64 = 8;
const DEPTH: u64 = 16;
const REQUESTS_EACH: u64 = 40;

/// A store for a set whose members never fail.
struct NothingToRecord;

impl MetadataStore for NothingToRecord {
    fn record(&self, _: &MemberStates) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn missed_is_noted(&self, _: bool) -> Pending<'_, bool> {
        Box::pin(std::future::ready(Ok(false)))
    }
}

fn disk() -> Arc<dyn BlockDevice> {
    let geometry = Geometry {
        block_size: BlockSize::B512,
        blocks: DISK_BLOCKS,
        physical_exponent: 0,
    };
    let cache = DiskCache {
        bytes: 0,
        write_through: true,
    };
    Arc::new(block::RotatingDisk::new(
        Null::new(geometry),
        MODEL,
        cache,
        Arc::new(StepClock),
    ))
}

fn set(level: Level, members: usize) -> Arc<dyn BlockDevice> {
    let layout =
        Layout::new(level, members, 64 << 10, BlockSize::B512, DISK_BLOCKS).expect("a layout");
    let assembly = Assembly {
        layout,
        members: (0..members).map(|_| Some(disk().into())).collect(),
        states: MemberStates::in_sync(members),
        metadata: Arc::new(NothingToRecord),
        protection: ProtectionAreas::Nothing,
        origin: Origin::NewOfZeros,
        nonce: 1,
        memory_bytes: 64 << 20,
        missed: raid::Missed::Nothing,
        accepts_wrong_data: false,
        sleeper: Arc::new(StepClock),
        spawner: Arc::new(HereSpawner),
    };
    Arc::new(end(RaidDevice::assemble(assembly)).expect("a set"))
}

/// Measures random requests per second at queue depth 16.
fn iops(device: &Arc<dyn BlockDevice>, writes: bool) -> f64 {
    seed(7);
    let user = |_| -> Task {
        let device = Arc::clone(device);
        Box::pin(async move {
            for _ in 0..REQUESTS_EACH {
                let places = device.geometry().blocks.0 / REQUEST_BLOCKS;
                let extent = Extent::new(draw(places) * REQUEST_BLOCKS, REQUEST_BLOCKS);
                let buffer = Buffer::zeroed(REQUEST_BLOCKS as usize * 512);
                match writes {
                    true => {
                        device
                            .write(extent, buffer.share(), Durability::Cached)
                            .await
                    }
                    false => device.read(extent, buffer).await.map(drop),
                }
                .expect("it works");
            }
        })
    };
    let start = StepClock.now();
    assert_eq!(run((0..DEPTH).map(user).collect(), u64::MAX), End::Done);
    (DEPTH * REQUESTS_EACH) as f64 / (StepClock.now() - start).as_secs_f64()
}

#[track_caller]
fn is_within(value: f64, range: std::ops::Range<f64>) {
    assert!(range.contains(&value), "{value} is not in {range:?}");
}

#[test]
fn random_reads_gain_from_each_disk() {
    let one = iops(&disk(), false);
    is_within(one * MODEL.access_s(4096.0), 0.9..1.1);
    // Sixteen requests do not keep all disks busy all the time.
    is_within(iops(&set(Level::Raid0, 4), false) / one, 3.0..4.2);
    is_within(iops(&set(Level::Raid1, 2), false) / one, 1.6..2.2);
    is_within(iops(&set(Level::Raid10, 4), false) / one, 3.0..4.4);
    // With parity, all members have data too.
    is_within(iops(&set(Level::Raid5, 4), false) / one, 3.0..4.2);
}

#[test]
fn random_writes_pay_for_redundancy() {
    // A write takes two accesses. At queue depth 16, the disks of a mirror are idle less often.
    let striped = iops(&set(Level::Raid0, 4), true);
    is_within(striped / iops(&set(Level::Raid10, 4), true), 1.5..2.2);
    // A write takes four accesses. Two of them need a full rotation instead of a seek, until the block that
    // was just read passes the head again.
    is_within(striped / iops(&set(Level::Raid5, 4), true), 2.6..4.4);
    // A write also takes four accesses: one of two data strips is read, and the other is written with P and
    // Q.
    is_within(striped / iops(&set(Level::Raid6, 4), true), 2.6..4.4);
}
