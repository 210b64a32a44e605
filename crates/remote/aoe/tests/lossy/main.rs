//! Client and server on an Ethernet that loses, duplicates, delays and reorders frames. The tests keep a
//! model of each sector's content. They check that reads return the acknowledged data, and that no older
//! write overwrites it, however late copies of that write arrive.

mod frames;
mod servers;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use aoe_client::{RemoteAoe, Url, discover, open};
use block::{BlockDevice as _, BlockSize, Buffer, DeviceError, Durability, Extent};
use reactor::{block_on, now, sleep, spawn, timeout};
use testkit::{Conditions, Ethernet, Random, TestDisk};

use servers::{DEVICE, forgetful, ours, slow_disk};

const SECTORS: usize = 96;
const SECTOR: usize = 512;

const BAD: Conditions = Conditions {
    lost_percent: 15,
    doubled_percent: 15,
    delay: Duration::from_millis(40),
    late_percent: 0,
    late: Duration::ZERO,
    carried_bytes: usize::MAX,
};
const GOOD: Conditions = Conditions {
    lost_percent: 0,
    doubled_percent: 0,
    delay: Duration::from_micros(50),
    late_percent: 0,
    late: Duration::ZERO,
    carried_bytes: usize::MAX,
};

/// Frames are delayed up to the time that the default quarantine allows for. Many replies are lost, so that
/// copies of a command arrive long after the original.
const LATE: Conditions = Conditions {
    lost_percent: 40,
    doubled_percent: 0,
    delay: Duration::from_millis(1),
    late_percent: 15,
    late: Duration::from_secs(2),
    carried_bytes: usize::MAX,
};

fn url(options: &str) -> Url {
    Url::parse(&format!("aoe://client/{DEVICE}{options}")).expect("a URL")
}

async fn opened(options: &str) -> RemoteAoe {
    open(&url(options)).await.expect("it answers")
}

/// The content of each sector, and which sectors are in use.
struct Model {
    versions: Vec<u8>,
    used: Vec<bool>,
}

/// Reads and writes random sectors from several tasks, and checks the data. No two tasks use a sector at the
/// same time.
async fn work(device: &Rc<RemoteAoe>, seed: u64, tasks: u64, requests: u64) {
    let model = Rc::new(RefCell::new(Model {
        versions: vec![0; SECTORS],
        used: vec![false; SECTORS],
    }));
    let all: Vec<_> = (0..tasks)
        .map(|task| {
            let (device, model) = (Rc::clone(device), Rc::clone(&model));
            spawn(async move {
                let mut random = Random::new(seed ^ task << 32);
                for _ in 0..requests {
                    let (lba, sectors) = (
                        random.below(SECTORS as u64 - 8) as usize,
                        1 + random.below(8) as usize,
                    );
                    let range = lba..lba + sectors;
                    while model.borrow().used[range.clone()].contains(&true) {
                        sleep(Duration::from_millis(1)).await;
                    }
                    model.borrow_mut().used[range.clone()].fill(true);
                    one(&device, &model, lba, sectors, &mut random).await;
                    model.borrow_mut().used[range].fill(false);
                }
            })
        })
        .collect();
    for task in all {
        task.await;
    }
    for lba in 0..SECTORS - 1 {
        check(device, &model, lba, 1).await;
    }
}

async fn one(
    device: &RemoteAoe,
    model: &RefCell<Model>,
    lba: usize,
    sectors: usize,
    random: &mut Random,
) {
    let extent = Extent::new(lba as u64, sectors as u64);
    match random.below(10) {
        0 => device.flush().await.expect("flushed"),
        1 => {
            device.write_zeroes(extent, true).await.expect("zeroed");
            model.borrow_mut().versions[lba..lba + sectors].fill(0);
        }
        2..=5 => check(device, model, lba, sectors).await,
        _ => {
            let version = 1 + random.below(255) as u8;
            let mut data = Buffer::zeroed(sectors * SECTOR);
            data.fill(version);
            device
                .write(extent, data.share(), Durability::Cached)
                .await
                .expect("written");
            model.borrow_mut().versions[lba..lba + sectors].fill(version);
        }
    }
}

async fn check(device: &RemoteAoe, model: &RefCell<Model>, lba: usize, sectors: usize) {
    let extent = Extent::new(lba as u64, sectors as u64);
    let read = device
        .read(extent, Buffer::zeroed(sectors * SECTOR))
        .await
        .expect("read");
    for (sector, version) in read
        .chunks(SECTOR)
        .zip(&model.borrow().versions[lba..lba + sectors])
    {
        assert!(
            sector.iter().all(|byte| byte == version),
            "{} instead of {version} near {lba}",
            sector[0]
        );
    }
}

#[test]
fn what_our_server_acknowledged_is_read_whatever_befalls_frames() {
    for seed in 0..12 {
        let ethernet = Ethernet::new(seed, BAD, 1500);
        block_on(ethernet.world(), async {
            let block_size = if seed % 3 == 0 {
                BlockSize::new(4096).expect("a size")
            } else {
                BlockSize::B512
            };
            let _server = ours(slow_disk(seed, SECTORS, block_size), "server");
            let device = Rc::new(opened("").await);
            work(&device, seed, 6, 60).await;
            let counters = device.counters().await.expect("its thread runs");
            assert!(
                counters.retransmissions > 50 && counters.stray > 10,
                "{counters:?}"
            );
        });
    }
}

#[test]
fn a_server_that_carries_copies_out_again_spoils_nothing() {
    for seed in 100..108 {
        let ethernet = Ethernet::new(seed, BAD, 1500);
        block_on(ethernet.world(), async {
            forgetful(slow_disk(seed, SECTORS, BlockSize::B512), "server");
            let device = Rc::new(opened("").await);
            work(&device, seed, 6, 40).await;
        });
    }
}

#[test]
fn frames_that_are_seconds_late_spoil_nothing() {
    for seed in 200..203 {
        let ethernet = Ethernet::new(seed, LATE, 1500);
        block_on(ethernet.world(), async {
            let _server = ours(slow_disk(seed, SECTORS, BlockSize::B512), "server");
            let device = Rc::new(opened("?sectors=2&timeout=300s").await);
            work(&device, seed, 4, 15).await;
        });
    }
}

/// Writes the first sector.
async fn write(device: &RemoteAoe, version: u8) {
    let mut data = Buffer::zeroed(SECTOR);
    data.fill(version);
    device
        .write(Extent::new(0, 1), data.share(), Durability::Cached)
        .await
        .expect("written");
}

/// Reads the version in the first sector.
async fn version(device: &RemoteAoe) -> u8 {
    let read = device
        .read(Extent::new(0, 1), Buffer::zeroed(SECTOR))
        .await
        .expect("read");
    assert!(read.iter().all(|byte| *byte == read[0]));
    read[0]
}

#[test]
fn a_copy_within_a_long_quarantine_does_not_replace_a_newer_write() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let _server = ours(slow_disk(1, SECTORS, BlockSize::B512), "server");
        let device = opened("?quarantine=10s").await;
        ethernet.hold_next(Duration::from_secs(7));
        write(&device, 1).await; // executed by its second copy
        write(&device, 2).await;
        sleep(Duration::from_secs(8)).await;
        assert_eq!(version(&device).await, 2);
    });
}

#[test]
fn a_copy_of_a_write_whose_answers_were_lost_for_seconds_does_not_replace_a_newer_one() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let _server = ours(slow_disk(1, SECTORS, BlockSize::B512), "server");
        let device = Rc::new(opened("").await);
        let (writer, begin) = (Rc::clone(&device), now());
        ethernet.mute(Some("server"));
        let first = spawn(async move { write(&writer, 1).await });
        // The client sends the write again after 10 ms, 30 ms, and so on, up to 630 ms, 1270 ms and 2550 ms.
        sleep(Duration::from_secs(1)).await;
        ethernet.hold_next(Duration::from_millis(1800));
        sleep(Duration::from_secs(1)).await;
        ethernet.mute(None);
        first.await;
        write(&device, 2).await;
        assert!(
            now() - begin < Duration::from_millis(2600),
            "an answered write needs no quarantine"
        );
        sleep(Duration::from_secs(3)).await;
        assert_eq!(version(&device).await, 2);
    });
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| {
        let ethernet = Ethernet::new(seed, BAD, 1500);
        block_on(ethernet.world(), async {
            let begin = now();
            forgetful(slow_disk(seed, SECTORS, BlockSize::B512), "server");
            let device = Rc::new(opened("").await);
            work(&device, seed, 4, 20).await;
            now() - begin
        })
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn nobody_there_is_said_after_the_timeout() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let begin = now();
        let Err(error) = open(&url("?timeout=3s")).await else {
            panic!("there is no server")
        };
        assert_eq!(
            error.to_string(),
            "no AoE device 7.1 responded on client within 3 s"
        );
        assert!(now() - begin >= Duration::from_secs(3) && now() - begin < Duration::from_secs(4));
    });
}

#[test]
fn a_server_that_dies_fails_requests_at_their_deadline_and_one_that_comes_back_goes_on() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let _server = ours(slow_disk(1, SECTORS, BlockSize::B512), "server");
        let device = opened("?timeout=5s").await;
        ethernet.set(Conditions {
            lost_percent: 100,
            ..GOOD
        });
        let begin = now();
        let read = device.read(Extent::new(0, 1), Buffer::zeroed(SECTOR)).await;
        assert_eq!(read.map(drop), Err(DeviceError::NotReady));
        assert!(now() - begin >= Duration::from_secs(5) && now() - begin < Duration::from_secs(6));
        let pending = device.read(Extent::new(0, 1), Buffer::zeroed(SECTOR));
        let _ = timeout(Duration::from_secs(2), pending).await;
        ethernet.set(GOOD);
        device
            .read(Extent::new(0, 1), Buffer::zeroed(SECTOR))
            .await
            .expect("it is back");
    });
}

#[test]
fn an_answer_that_comes_while_a_copy_waits_to_be_sent_ends_it() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let disk = slow_disk(1, SECTORS, BlockSize::B512);
        let _server = ours(Arc::clone(&disk), "server");
        let device = Rc::new(opened("?timeout=5s").await);
        disk.delay_next(Duration::from_millis(400));
        let reader = Rc::clone(&device);
        let reading =
            spawn(async move { reader.read(Extent::new(0, 1), Buffer::zeroed(SECTOR)).await });
        sleep(Duration::from_millis(5)).await;
        ethernet.clog(Some("client"));
        sleep(Duration::from_secs(1)).await;
        ethernet.clog(None);
        sleep(Duration::from_millis(1)).await;
        let counters = device.counters().await.expect("its thread runs");
        assert_eq!(
            (counters.answered, counters.retransmissions),
            (2, 1),
            "while the copy waited"
        );
        reading.await.expect("its answer has come");
        device
            .read(Extent::new(0, 1), Buffer::zeroed(SECTOR))
            .await
            .expect("it goes on");
    });
}

#[test]
fn a_write_that_was_given_up_does_not_come_after_a_newer_one() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let disk = slow_disk(1, SECTORS, BlockSize::B512);
        let _server = ours(Arc::clone(&disk), "server");
        let device = opened("?timeout=3s").await;
        let write = async |version| {
            let mut data = Buffer::zeroed(SECTOR);
            data.fill(version);
            device
                .write(Extent::new(0, 1), data.share(), Durability::Cached)
                .await
        };
        disk.delay_next(Duration::from_secs(8));
        assert_eq!(write(1).await, Err(DeviceError::NotReady));
        let mut refusals = 0;
        while write(2).await.is_err() {
            refusals += 1;
        }
        assert_eq!(refusals, 1, "the server is at the first one for 5 s more");
        sleep(Duration::from_secs(10)).await;
        let read = device
            .read(Extent::new(0, 1), Buffer::zeroed(SECTOR))
            .await
            .expect("read");
        assert!(read.iter().all(|byte| *byte == 2), "{}", read[0]);
        device.quiesced().await.expect("nothing is left");
    });
}

#[test]
fn an_interface_that_is_made_anew_is_served_again() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let _server = ours(slow_disk(1, SECTORS, BlockSize::B512), "server");
        let device = opened("?timeout=5s").await;
        ethernet.unplug("server");
        sleep(Duration::from_secs(1)).await;
        ethernet.plug();
        device
            .read(Extent::new(0, 1), Buffer::zeroed(SECTOR))
            .await
            .expect("it is back");
    });
}

#[test]
fn an_interface_of_the_client_that_is_made_anew_is_used_again() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let _server = ours(slow_disk(1, SECTORS, BlockSize::B512), "server");
        let device = opened("").await;
        write(&device, 1).await;
        ethernet.unplug("client");
        sleep(Duration::from_secs(1)).await;
        ethernet.plug();
        let begin = now();
        assert_eq!(version(&device).await, 1);
        assert!(
            now() - begin < Duration::from_secs(8),
            "{:?}",
            now() - begin
        );
    });
}

#[test]
fn a_server_with_another_station_is_found_again_and_newer_writes_wait() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let disk = slow_disk(1, SECTORS, BlockSize::B512);
        let _server = ours(Arc::clone(&disk), "server");
        let device = opened("?timeout=10s").await;
        ethernet.unplug("server");
        let _other = ours(disk, "spare");
        write(&device, 1).await;
        let moved = now();
        write(&device, 2).await;
        assert!(
            now() - moved >= Duration::from_secs(2),
            "the old station may have the first one"
        );
        let begin = now();
        write(&device, 3).await;
        assert!(
            now() - begin < Duration::from_secs(1),
            "the new one remembers"
        );
        assert_eq!(version(&device).await, 3);
    });
}

#[test]
fn another_device_in_the_place_of_one_is_not_used() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let _server = ours(slow_disk(1, SECTORS, BlockSize::B512), "server");
        let device = opened("?timeout=10s").await;
        ethernet.unplug("server");
        let _other = ours(slow_disk(1, SECTORS + 8, BlockSize::B512), "spare");
        let read = device.read(Extent::new(0, 1), Buffer::zeroed(SECTOR)).await;
        assert_eq!(read.map(drop), Err(DeviceError::NotReady));
    });
}

#[test]
fn a_flood_of_nonsense_leaves_others_their_turns() {
    for flooded in ["client", "server"] {
        let ethernet = Ethernet::new(1, GOOD, 1500);
        block_on(ethernet.world(), async {
            let _server = ours(slow_disk(1, SECTORS, BlockSize::B512), "server");
            ethernet.flood(flooded);
            let found = discover("client", Duration::from_millis(1))
                .await
                .expect("an interface");
            assert_eq!(found.len(), 1);
            opened("").await;
        });
    }
}

/// A RAID set refuses a member with this property. AoE does not report that a server was restarted.
#[test]
fn a_device_may_lose_its_cache_unseen_unless_that_is_off_or_its_user_takes_the_risk() {
    for (is_volatile, options, expected) in [
        (Some(true), "", true),
        (Some(true), "?cache-loss-unseen", false),
        (Some(false), "", false),
        (None, "", true),
    ] {
        let ethernet = Ethernet::new(1, GOOD, 1500);
        block_on(ethernet.world(), async {
            let disk = TestDisk::new(BlockSize::B512, SECTORS as u64);
            let disk =
                disk.with_profile(|profile| profile.volatile_cache = is_volatile != Some(false));
            let disk = Arc::new(disk);
            let _ours = is_volatile.map(|_| ours(Arc::clone(&disk), "server"));
            if is_volatile.is_none() {
                forgetful(disk, "server"); // like `vblade`, it says nothing about a cache
            }
            let profile = opened(options).await.profile();
            assert_eq!(
                profile.loses_unseen, expected,
                "volatile: {is_volatile:?}, {options:?}"
            );
        });
    }
}

#[test]
fn long_frames_are_used_if_they_arrive() {
    for (carried, expected) in [(usize::MAX, 17), (2000, 2)] {
        let conditions = Conditions {
            carried_bytes: carried,
            ..GOOD
        };
        let ethernet = Ethernet::new(1, conditions, 9000);
        block_on(ethernet.world(), async {
            let _server = ours(slow_disk(1, SECTORS, BlockSize::B512), "server");
            let device = Rc::new(opened("").await);
            assert_eq!(device.sectors(), expected);
            work(&device, 1, 4, 40).await;
        });
    }
}

#[test]
fn all_devices_are_discovered_once() {
    let ethernet = Ethernet::new(
        1,
        Conditions {
            doubled_percent: 50,
            ..GOOD
        },
        9000,
    );
    block_on(ethernet.world(), async {
        let _server = ours(slow_disk(1, SECTORS, BlockSize::B512), "server");
        let found = discover("client", Duration::from_secs(1))
            .await
            .expect("an interface");
        let [found] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(
            (found.address, found.sectors_max, found.buffer_count),
            (DEVICE, 17, 64)
        );
    });
}
