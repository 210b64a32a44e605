//! Tests in virtual time, on an Ethernet that loses, duplicates, delays and reorders frames.

use std::cell::Cell;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use block::{BlockDevice as _, Buffer, DeviceError, Durability, Extent, Lba, Losses};
use hyperscsi::ETHERTYPE;
use hyperscsi_client::{OpenError, Opened, Url, discover, open, open_target};
use iscsi_client::verbs::{Compared, LunSelection};
use iscsi_client::{Management, RemoteLun, TaskManagementResult};
use reactor::{
    DatagramBatch, DatagramEndpoint, OutDatagram, OutSlice, block_on, now, sleep, spawn, timeout,
};
use testkit::{Conditions, Ethernet, Random};

use crate::load::{BLOCK, BLOCKS, work};
use crate::server::{
    Rules, TARGET, fast_disk, on_interface, open as open_endpoint, ours, slow_disk, unit,
};

const BAD: Conditions = Conditions {
    lost_percent: 15,
    doubled_percent: 15,
    delay: Duration::from_millis(40),
    late_percent: 2,
    late: Duration::from_secs(5),
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

thread_local! {
    static SEED: Cell<u64> = const { Cell::new(0) };
}

/// Fills `bytes` with pseudo-random numbers from a seed, so that a run can be repeated.
fn random(bytes: &mut [u8]) {
    for byte in bytes {
        let seed = SEED.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        SEED.set(seed);
        *byte = (seed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8;
    }
}

fn url(options: &str) -> Url {
    Url::parse(&format!("hyperscsi://client/{TARGET}/0{options}")).expect("a URL")
}

async fn opened(options: &str) -> RemoteLun {
    open(&url(options), random)
        .await
        .unwrap_or_else(|error| panic!("{error}"))
}

async fn refused(url: &Url) -> String {
    let error = open(url, random).await.err();
    error.expect("it cannot be opened").to_string()
}

async fn write(lun: &RemoteLun, lba: u64, version: u8) -> Result<(), DeviceError> {
    let mut data = Buffer::zeroed(BLOCK);
    data.fill(version);
    lun.write(Extent::new(lba, 1), data.share(), Durability::Cached)
        .await
}

async fn read(lun: &RemoteLun, lba: u64) -> Result<u8, DeviceError> {
    let block = lun.read(Extent::new(lba, 1), Buffer::zeroed(BLOCK)).await?;
    assert!(
        block.iter().all(|byte| *byte == block[0]),
        "one write filled it"
    );
    Ok(block[0])
}

#[test]
fn what_was_acknowledged_is_read_whatever_befalls_frames() {
    for seed in 0..4 {
        let ethernet = Ethernet::new(seed, BAD, if seed % 2 == 0 { 1500 } else { 9000 });
        block_on(ethernet.world(), async {
            let disk = slow_disk(seed, BLOCKS);
            let _server = on_interface("server", unit(&disk, 1), Rules::default());
            let lun = Rc::new(opened("").await);
            work(&lun, seed, 6, 40).await;
            assert_eq!(
                lun.target().reinstatements(),
                0,
                "no frame's fate ends a session"
            );
        });
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| {
        SEED.set(seed);
        let ethernet = Ethernet::new(seed, BAD, 1500);
        block_on(ethernet.world(), async {
            let (begin, disk) = (now(), slow_disk(seed, BLOCKS));
            let _server = on_interface("server", unit(&disk, 1), Rules::default());
            let lun = Rc::new(opened("").await);
            work(&lun, seed, 4, 20).await;
            (now() - begin, disk.writes())
        })
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_lun_is_the_disk_that_it_says_it_is() {
    let ethernet = Ethernet::new(1, GOOD, 9000);
    block_on(ethernet.world(), async {
        let _server = on_interface("server", unit(&fast_disk(8192), 1), Rules::default());
        let lun = opened("").await;
        assert_eq!(
            (lun.geometry().blocks.0, lun.geometry().block_size.bytes()),
            (8192, 512)
        );
        assert!(lun.profile().thin && lun.profile().volatile_cache && lun.profile().solid_state);
        // The write is longer than the limit of a command.
        let mut data = Buffer::zeroed(3 << 20);
        data.iter_mut()
            .enumerate()
            .for_each(|(at, byte)| *byte = (at / 777) as u8);
        let (whole, expected) = (Extent::new(8, (3 << 20) / 512), data.to_vec());
        lun.write(whole, data.share(), Durability::Stable)
            .await
            .expect("written");
        let read = lun
            .read(whole, Buffer::zeroed(3 << 20))
            .await
            .expect("read");
        assert!(read[..] == expected[..]);
        lun.unmap(Extent::new(8, 1)).await.expect("unmapped");
        let zeros = lun
            .read(Extent::new(8, 1), Buffer::zeroed(512))
            .await
            .expect("read");
        assert!(zeros.iter().all(|byte| *byte == 0));

        let of = |byte: u8| {
            let mut block = Buffer::zeroed(512);
            block.fill(byte);
            block.share()
        };
        let unit = lun.unit();
        let swap = unit.compare_and_write(8, 1, &of(0), &of(7)).await;
        assert_eq!(swap, Ok(Compared::Written));
        let swap = unit.compare_and_write(8, 1, &of(0), &of(8)).await;
        assert_eq!(
            swap,
            Ok(Compared::Differs {
                offset_bytes: Some(0)
            })
        );
        assert_eq!(self::read(&lun, 8).await, Ok(7));
        let luns = unit
            .report_luns(LunSelection::Ordinary)
            .await
            .expect("a list");
        assert_eq!(luns, [unit.lun()]);
        let reset = unit
            .target()
            .manage(Management::LogicalUnitReset(unit.lun()))
            .await;
        assert_eq!(reset, Ok(TaskManagementResult::FunctionComplete));
        lun.close().await;
    });
}

fn secret_file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file");
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a file of ours");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn keys_must_match() {
    let directory = tempfile::tempdir().expect("a folder");
    let right = secret_file(directory.path(), "right", "a long secret \r\n\n");
    let wrong = secret_file(directory.path(), "wrong", "another one\n");
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let rules = Rules {
            secret: Some("a long secret "),
            ..Rules::default()
        };
        let server = on_interface("server", unit(&slow_disk(1, BLOCKS), 1), rules);
        let lun = Rc::new(opened(&format!("?key={right}")).await);
        work(&lun, 1, 2, 20).await;
        let lun = opened(&format!("?key={right}&cipher=chacha20-poly1305")).await;
        write(&lun, 0, 1).await.expect("written");
        assert_eq!(read(&lun, 0).await, Ok(1));
        let name = "iqn.2026-01.io.linerate:initiator";
        assert_eq!(
            refused(&url(&format!("?key={wrong}"))).await,
            format!(
                "{TARGET}: the target rejected the key of {name}: it has a different key for this name, or \
                 none (key=FILE, name=NAME)"
            )
        );
        assert_eq!(
            refused(&url("?name=me")).await,
            format!(
                "{TARGET}: the target requires a key for me; specify a file that contains it (key=FILE)"
            )
        );
        assert!(
            refused(&url("?key=/none"))
                .await
                .starts_with("the key in /none cannot be used: ")
        );
        drop(server);
        // A client that requires authentication rejects a target without it.
        let _open = on_interface("server", unit(&slow_disk(1, BLOCKS), 1), Rules::default());
        assert!(
            refused(&url(&format!("?key={right}")))
                .await
                .contains("the target rejected the key of")
        );
    });
}

/// A mirror returns every frame to its sender from the server's address, once unchanged and once damaged.
#[test]
fn frames_that_are_thrown_back_and_damaged_change_nothing() {
    let directory = tempfile::tempdir().expect("a folder");
    let key = secret_file(directory.path(), "key", "a long secret");
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let rules = Rules {
            secret: Some("a long secret"),
            ..Rules::default()
        };
        let _server = on_interface("server", unit(&slow_disk(1, BLOCKS), 1), rules);
        // The last letter of an interface's name determines its address, so this interface has the server's
        // address.
        let mirror = open_endpoint(DatagramEndpoint::Ethernet {
            interface: "mirror".to_owned(),
            ether_type: ETHERTYPE,
        });
        let thrown = Rc::new(Cell::new(0));
        let count = Rc::clone(&thrown);
        let throwing = spawn(async move {
            let (mut batch, mut random) = (DatagramBatch::new(64, 1500), Random::new(7));
            loop {
                let received = mirror.receive(&mut batch).await.expect("an interface");
                for index in 0..received {
                    let Some((to, frame)) = batch.get_mut(index) else {
                        break;
                    };
                    for _ in 0..2 {
                        let payload = [OutSlice::Bytes(frame)];
                        mirror
                            .try_send(&[OutDatagram {
                                to,
                                payload: &payload,
                            }])
                            .expect("it carries them");
                        let at = random.below(frame.len() as u64) as usize;
                        frame[at] ^= 1 << random.below(8);
                    }
                    count.set(count.get() + 2);
                }
            }
        });
        let lun = Rc::new(opened(&format!("?key={key}")).await);
        work(&lun, 1, 4, 40).await;
        throwing.abort();
        assert_eq!(lun.target().reinstatements(), 0);
        assert!(thrown.get() > 1000, "{}", thrown.get());
    });
}

#[test]
fn a_target_that_answers_with_too_few_bytes_is_not_believed() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let rules = Rules {
            shortens_reads: true,
            ..Rules::default()
        };
        let _server = on_interface("server", unit(&fast_disk(BLOCKS), 1), rules);
        let lun = opened("").await;
        let read = lun.read(Extent::new(3, 2), Buffer::zeroed(2 * BLOCK)).await;
        assert_eq!(read.map(drop), Err(DeviceError::Unreadable(Lba(3))));
    });
}

#[test]
fn who_is_not_there_is_told_from_others() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let begin = now();
        assert_eq!(
            refused(&url("?timeout=3s")).await,
            "no HyperSCSI target responded at hyperscsi://client within 3 s"
        );
        assert!(now() - begin >= Duration::from_secs(3) && now() - begin < Duration::from_secs(4));
        let _server = on_interface("server", unit(&slow_disk(1, BLOCKS), 1), Rules::default());
        let other = Url::parse("hyperscsi://client/iqn.x:other/0").expect("a URL");
        let expected =
            format!("no target iqn.x:other responded at hyperscsi://client; there is {TARGET}");
        assert_eq!(refused(&other).await, expected);
        let other = Url::parse(&format!("hyperscsi://client/{TARGET}/7")).expect("a URL");
        assert_eq!(refused(&other).await, "the target has no LUN 7");
        let found = discover(&url("").place, Duration::from_secs(1), random)
            .await
            .expect("an interface");
        let [found] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(
            (found.asked.as_str(), &found.targets[..]),
            ("client", &[TARGET.to_owned()][..])
        );
    });
}

/// A target need not respond to discovery. A client whose URL contains the target's station can still reach
/// it.
#[test]
fn a_hidden_target_is_reached_by_its_station() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let rules = Rules {
            is_hidden: true,
            ..Rules::default()
        };
        let _server = on_interface("server", unit(&slow_disk(1, BLOCKS), 1), rules);
        let error = open(&url("?timeout=2s"), random).await.err();
        assert!(matches!(error, Some(OpenError::Silent { .. })), "{error:?}");
        let station = "02:00:00:00:00:72"; // the last byte is the last letter of the interface's name
        let lun = opened(&format!("?station={station}")).await;
        write(&lun, 0, 1).await.expect("written");
    });
}

#[test]
fn long_frames_are_used_if_they_arrive() {
    for (carried, used) in [(usize::MAX, 9000), (8000, 1500), (1400, 1232)] {
        let ethernet = Ethernet::new(
            1,
            Conditions {
                carried_bytes: carried,
                ..GOOD
            },
            9000,
        );
        block_on(ethernet.world(), async {
            let begin = now();
            let _server = on_interface("server", unit(&slow_disk(1, BLOCKS), 1), Rules::default());
            let Opened { target, session } = open_target(&url(""), random)
                .await
                .unwrap_or_else(|error| panic!("{error}"));
            assert!(
                now() - begin < Duration::from_millis(500),
                "no attempt is wasted: {:?}",
                now() - begin
            );
            assert_eq!(
                session.status().await.expect("it is logged in").frame_bytes,
                used
            );
            let lun = Rc::new(target.lun(0).await.expect("a disk"));
            work(&lun, 1, 4, 40).await;
        });
    }
}

#[test]
fn a_server_that_is_started_again_under_load_loses_and_repeats_nothing() {
    for seed in 0..2 {
        let ethernet = Ethernet::new(
            seed,
            Conditions {
                lost_percent: 5,
                ..GOOD
            },
            1500,
        );
        block_on(ethernet.world(), async {
            let disk = slow_disk(seed, BLOCKS);
            let mut server = on_interface("server", unit(&disk, 1), Rules::default());
            let lun = Rc::new(opened("").await);
            let working = Rc::clone(&lun);
            let load = spawn(async move { work(&working, seed, 6, 500).await });
            for restarts in 1..=3 {
                sleep(Duration::from_millis(100)).await;
                assert!(!load.is_finished(), "it has work left");
                drop(server);
                sleep(Duration::from_millis(700)).await;
                // The new server has the same cache, so it still has all acknowledged data.
                server = on_interface("server", unit(&disk, 1), Rules::default());
                while lun.target().reinstatements() < restarts {
                    sleep(Duration::from_millis(10)).await;
                }
            }
            load.await;
            assert_eq!(lun.target().reinstatements(), 3);
        });
    }
}

/// A RAID set uses these reports to choose among its members, because a read over a reinstated session may
/// return data without acknowledged writes.
#[test]
fn a_restart_that_lost_the_cache_is_a_doubt_before_anything_is_read_and_then_a_loss() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let disk = slow_disk(1, BLOCKS);
        let server = on_interface("server", unit(&disk, 1), Rules::default());
        let lun = opened("").await;
        write(&lun, 0, 1).await.expect("written");
        lun.flush().await.expect("flushed");
        write(&lun, 0, 2).await.expect("written");
        drop(server);
        disk.lose_cache();
        let _server = on_interface("server", unit(&disk, 2), Rules::default());
        while lun.target().reinstatements() == 0 {
            assert_eq!(lun.losses(), Losses::NONE);
            sleep(Duration::from_millis(1)).await;
        }
        assert!(lun.losses().is_in_doubt(), "without any request");
        assert_eq!(
            (lun.resolve_losses().await, lun.losses()),
            (Ok(()), Losses::counted(1))
        );
        assert_eq!(lun.flush().await, Err(DeviceError::WritesLost));
        assert_eq!((lun.flush().await, read(&lun, 0).await), (Ok(()), Ok(1)));
    });
}

/// Without the pauses, the target would get a login every 50 ms, forever.
#[test]
fn a_session_that_breaks_after_each_login_is_begun_again_with_pauses() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let rules = Rules::default();
        let _server = on_interface("server", unit(&slow_disk(1, BLOCKS), 1), rules.clone());
        let lun = Rc::new(opened("").await);
        rules.ends_sessions.set(true);
        let reading = Rc::clone(&lun);
        let reads = spawn(async move {
            loop {
                let _ = read(&reading, 0).await; // the read may fail when the session ends
            }
        });
        sleep(Duration::from_secs(60)).await;
        reads.abort();
        let logins = lun.target().reinstatements();
        assert!((10..40).contains(&logins), "{logins} logins in a minute");
    });
}

#[test]
fn requests_wait_for_a_lost_session_as_long_as_they_are_told() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let disk = slow_disk(1, BLOCKS);
        let server = on_interface("server", unit(&disk, 1), Rules::default());
        let lun = opened("?reconnect-time=20s").await;
        drop(server);
        let begin = now();
        assert_eq!(write(&lun, 0, 1).await, Err(DeviceError::NotReady));
        let took = now() - begin;
        assert!(
            took >= Duration::from_secs(20) && took < Duration::from_secs(24),
            "{took:?}"
        );
        let begin = now();
        assert_eq!(read(&lun, 5).await, Err(DeviceError::NotReady));
        assert!(
            now() - begin < Duration::from_secs(1),
            "it is known to be lost"
        );
        // The client continues to log in.
        let _server = on_interface("server", unit(&disk, 1), Rules::default());
        sleep(Duration::from_secs(10)).await;
        write(&lun, 0, 2).await.expect("it is back");
        assert_eq!(read(&lun, 0).await, Ok(2));
    });
}

#[test]
fn a_session_that_is_not_to_come_back_fails_at_once() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let disk = slow_disk(1, BLOCKS);
        let server = on_interface("server", unit(&disk, 1), Rules::default());
        let lun = opened("?reconnect-time=0").await;
        drop(server);
        let _server = on_interface("server", unit(&disk, 1), Rules::default());
        let begin = now();
        assert_eq!(write(&lun, 0, 1).await, Err(DeviceError::NotReady));
        assert!(
            now() - begin < Duration::from_secs(5),
            "{:?}",
            now() - begin
        );
        sleep(Duration::from_secs(60)).await;
        assert_eq!(
            read(&lun, 5).await,
            Err(DeviceError::NotReady),
            "it stays lost"
        );
        assert_eq!(
            read(&lun, 0).await,
            Err(DeviceError::Unsettled),
            "the write may still be carried out"
        );
    });
}

#[test]
fn a_command_that_takes_too_long_is_aborted_and_never_comes_late() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let disk = slow_disk(1, BLOCKS);
        let _server = on_interface("server", unit(&disk, 1), Rules::default());
        let lun = opened("?timeout=3s").await;
        disk.delay_next(Duration::from_secs(8));
        let begin = now();
        assert_eq!(write(&lun, 0, 1).await, Err(DeviceError::TimedOut));
        assert!(now() - begin >= Duration::from_secs(3) && now() - begin < Duration::from_secs(4));
        write(&lun, 0, 2).await.expect("the first one has ended");
        sleep(Duration::from_secs(10)).await;
        assert_eq!(read(&lun, 0).await, Ok(2));
        lun.quiesced().await.expect("nothing is left");
    });
}

/// Messages of a session arrive in any order, so a cancelled write must have ended before a newer change is
/// sent.
#[test]
fn a_write_that_was_given_up_never_comes_behind_a_newer_one() {
    for seed in 0..20 {
        let ethernet = Ethernet::new(seed, GOOD, 1500);
        block_on(ethernet.world(), async {
            let disk = slow_disk(1, BLOCKS);
            let _server = on_interface("server", unit(&disk, 1), Rules::default());
            let lun = opened("?timeout=1s").await;
            for version in (0..40).step_by(2) {
                ethernet.set(Conditions {
                    lost_percent: 100,
                    ..GOOD
                });
                assert_eq!(write(&lun, 0, version).await, Err(DeviceError::TimedOut));
                ethernet.set(Conditions {
                    lost_percent: 30,
                    ..BAD
                });
                let mut newer = write(&lun, 0, version + 1).await;
                while newer.is_err() {
                    newer = write(&lun, 0, version + 1).await;
                }
                sleep(Duration::from_secs(3)).await;
                let mut found = read(&lun, 0).await;
                while found.is_err() {
                    found = read(&lun, 0).await;
                }
                assert_eq!(found, Ok(version + 1), "seed {seed}");
            }
        });
    }
}

#[test]
fn a_dropped_request_is_aborted() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let disk = slow_disk(1, BLOCKS);
        let _server = on_interface("server", unit(&disk, 1), Rules::default());
        let lun = opened("").await;
        let before = disk.writes();
        disk.delay_next(Duration::from_secs(8));
        assert!(
            timeout(Duration::from_millis(100), write(&lun, 0, 1))
                .await
                .is_err()
        );
        lun.quiesced().await.expect("nothing is left");
        write(&lun, 0, 2).await.expect("written");
        sleep(Duration::from_secs(10)).await;
        assert_eq!((read(&lun, 0).await, disk.writes()), (Ok(2), before + 1));
    });
}

/// Runs a load over two interfaces, one of which is disturbed halfway through.
fn one_of_two_paths(trouble: impl Fn(&Ethernet)) {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let disk = slow_disk(1, BLOCKS);
        let _server = on_interface("server", unit(&disk, 1), Rules::default());
        let url = Url::parse(&format!("hyperscsi://client+second/{TARGET}/0")).expect("a URL");
        let lun = Rc::new(
            open(&url, random)
                .await
                .unwrap_or_else(|error| panic!("{error}")),
        );
        let working = Rc::clone(&lun);
        let load = spawn(async move { work(&working, 1, 6, 200).await });
        sleep(Duration::from_millis(100)).await;
        assert!(!load.is_finished(), "it has work left");
        trouble(&ethernet);
        timeout(Duration::from_secs(300), load)
            .await
            .expect("it goes on by the other one");
        assert_eq!(lun.target().reinstatements(), 0);
    });
}

#[test]
fn two_interfaces_are_two_paths_and_one_may_fail() {
    one_of_two_paths(|ethernet| ethernet.unplug("second"));
}

/// If the interface were two paths, each frame would arrive twice, and would count for both.
#[test]
fn an_interface_that_is_named_twice_is_one_path() {
    let station = "02:00:00:00:00:72"; // the server's
    for options in [String::new(), format!("?station={station},{station}")] {
        let ethernet = Ethernet::new(1, GOOD, 1500);
        block_on(ethernet.world(), async {
            let _server = on_interface("server", unit(&slow_disk(1, BLOCKS), 1), Rules::default());
            let url = format!("hyperscsi://client+client+alt-client/{TARGET}/0{options}");
            let url = Url::parse(&url).expect("a URL");
            let Opened { target, session } = open_target(&url, random)
                .await
                .unwrap_or_else(|error| panic!("{error}"));
            work(&Rc::new(target.lun(0).await.expect("a disk")), 1, 4, 50).await;
            let status = session.status().await.expect("it is logged in");
            assert_eq!(
                (status.paths.len(), status.counters.frames_repeated),
                (1, 0)
            );
        });
    }
}

#[test]
fn an_interface_that_takes_no_frames_leaves_the_others_theirs() {
    for clogged in ["client", "second"] {
        one_of_two_paths(|ethernet| ethernet.clog(Some(clogged)));
    }
}

#[test]
fn an_interface_that_is_made_anew_is_used_again() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let disk = slow_disk(1, BLOCKS);
        let _server = on_interface("server", unit(&disk, 1), Rules::default());
        let lun = opened("").await;
        ethernet.unplug("client");
        sleep(Duration::from_secs(1)).await;
        ethernet.plug();
        let begin = now();
        write(&lun, 0, 1).await.expect("it is back");
        assert!(
            now() - begin < Duration::from_secs(100),
            "{:?}",
            now() - begin
        );
        assert_eq!(read(&lun, 0).await, Ok(1));
    });
}

#[test]
fn a_flood_of_nonsense_leaves_others_their_turns() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let _server = on_interface("server", unit(&fast_disk(BLOCKS), 1), Rules::default());
        ethernet.flood("client");
        let lun = opened("").await;
        write(&lun, 0, 1).await.expect("written");
        assert_eq!(read(&lun, 0).await, Ok(1));
    });
}

#[test]
fn a_flood_of_nonsense_at_our_server_leaves_others_their_turns() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let _server = ours("server", random);
        ethernet.flood("server");
        let found = discover(&url("").place, Duration::from_millis(1), random)
            .await
            .expect("an interface");
        let [found] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(&found.targets[..], &[TARGET.to_owned()][..]);
    });
}

#[test]
fn a_session_that_is_closed_is_closed_at_the_server_too() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let unit = unit(&slow_disk(1, BLOCKS), 1);
        let before = Arc::strong_count(&unit);
        let _server = on_interface("server", Arc::clone(&unit), Rules::default());
        let serving = Arc::strong_count(&unit);
        let target = open_target(&url(""), random)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        sleep(Duration::from_millis(10)).await;
        assert_eq!(Arc::strong_count(&unit), serving + 1, "its nexus");
        let status = target.session.status().await.expect("it is logged in");
        assert_eq!(
            (status.queue_depth, status.is_encrypted, status.paths.len()),
            (128, false, 1)
        );
        hyperscsi_client::closed().await;
        assert_eq!(target.session.status().await, None);
        sleep(Duration::from_millis(10)).await;
        assert_eq!((Arc::strong_count(&unit), serving), (serving, before + 1));
    });
}
