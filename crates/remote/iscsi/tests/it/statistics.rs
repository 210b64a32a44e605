//! A session's statistics, with tgt as the target.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use block::{BlockDevice, Buffer, Durability, Extent};
use iscsi::pdu::Cid;
use iscsi_client::{CommandError, Phase, RemoteLun, Statistics};

use crate::scenes::{attach, run, with};
use crate::tgt::Tgt;

async fn told(lun: &RemoteLun) -> Statistics {
    lun.target()
        .statistics()
        .await
        .expect("the session is on this thread")
}

/// Writes 100 blocks, and reads 300.
async fn write_100_and_read_300_blocks(lun: &RemoteLun) {
    lun.write(
        Extent::new(0, 100),
        Buffer::zeroed(51_200).share(),
        Durability::Stable,
    )
    .await
    .expect("written");
    for lba in [0, 100, 200] {
        lun.read(Extent::new(lba, 100), Buffer::recycled(51_200))
            .await
            .expect("read");
    }
}

#[test]
fn commands_and_bytes_are_counted_as_they_move() {
    with(Tgt::start(), async |tgt| {
        let lun = attach(&tgt.url("", 1, "")).await;
        let before = told(&lun).await;
        write_100_and_read_300_blocks(&lun).await;
        let since = told(&lun).await.since(&before);
        assert_eq!(
            (since.read.commands, since.read.bytes, since.read.errors),
            (3, 153_600, 0)
        );
        assert_eq!(
            (
                since.write.commands,
                since.write.bytes,
                since.other.commands
            ),
            (1, 51_200, 0)
        );
        assert_eq!(
            (since.read.latency.count(), since.write.latency.count()),
            (3, 1)
        );
        let counters = &since.counters;
        assert_eq!((counters.commands, counters.data_in_bytes), (4, 153_600));
        let written = [
            counters.immediate_bytes,
            counters.unsolicited_bytes,
            counters.solicited_bytes,
        ];
        assert_eq!(written.iter().sum::<u64>(), 51_200);
        assert!(since.received.bytes > 153_600 && since.sent.bytes > 51_200);
        assert!(since.pdus_per_write().is_some_and(|pdus| pdus >= 1.0));
        assert_eq!(since.digests.bytes, 0);
        let [connection] = &since.connections[..] else {
            panic!("one connection: {since}")
        };
        assert_eq!(connection.peer, lun.target().nexus().address);
    });
}

#[test]
fn the_parts_of_a_latency_make_the_whole() {
    with(Tgt::start(), async |tgt| {
        let lun = attach(&tgt.url("", 1, "?initial-r2t=yes&immediate-data=no")).await;
        write_100_and_read_300_blocks(&lun).await;
        let statistics = told(&lun).await;
        for class in [&statistics.read, &statistics.write, &statistics.other] {
            let phases = Phase::ALL.iter().map(|phase| class.phase(*phase).sum());
            assert_eq!(
                phases.sum::<Duration>() + class.waiting.sum(),
                class.latency.sum()
            );
        }
        let Statistics {
            write, counters, ..
        } = &statistics;
        assert_eq!(
            (
                counters.solicited_bytes,
                counters.immediate_bytes + counters.unsolicited_bytes
            ),
            (51_200, 0)
        );
        assert!(
            counters.r2ts > 0 && !write.phase(Phase::R2t).sum().is_zero(),
            "{statistics}"
        );
    });
}

#[test]
fn digests_are_counted_both_ways_and_timed() {
    with(
        Tgt::start().map(|tgt| tgt.with_digests("None", "CRC32C")),
        async |tgt| {
            let lun = attach(&tgt.url("", 1, "?data-digest=crc32c")).await;
            let before = told(&lun).await;
            write_100_and_read_300_blocks(&lun).await;
            let statistics = told(&lun).await;
            assert_eq!(statistics.since(&before).digests.bytes, 153_600 + 51_200);
            assert!(!statistics.digests.estimate().is_zero());
        },
    );
}

#[test]
fn commands_that_find_no_room_are_seen_to_wait() {
    with(Tgt::start(), async |tgt| {
        let lun = Arc::new(attach(&tgt.url("", 1, "")).await);
        let all = told(&lun).await.window_room + 50;
        let readers: Vec<_> = (0..all)
            .map(|_| {
                let lun = Arc::clone(&lun);
                reactor::spawn(async move {
                    lun.read(Extent::new(0, 1), Buffer::recycled(512))
                        .await
                        .map(drop)
                })
            })
            .collect();
        for reader in readers {
            reader.await.expect("read");
        }
        let statistics = told(&lun).await;
        assert!(
            statistics.counters.window_stalls > 0 && !statistics.counters.window_stalled.is_zero()
        );
        assert!(!statistics.read.waiting.sum().is_zero(), "{statistics}");
    });
}

#[test]
fn a_lost_session_is_told_of_with_what_moved_before() {
    with(Tgt::start(), async |mut tgt| {
        let lun = attach(&tgt.url("", 1, "")).await;
        write_100_and_read_300_blocks(&lun).await;
        tgt.kill();
        tgt.start_again();
        write_100_and_read_300_blocks(&lun).await;
        let Statistics {
            incidents,
            counters,
            read,
            write,
            ..
        } = told(&lun).await;
        assert_eq!((incidents.reconnects, incidents.connections_lost), (1, 1));
        assert!(incidents.away > Duration::ZERO && incidents.away == incidents.away_longest);
        assert!(
            counters.data_in_bytes > 300 * 1024 && read.bytes == 307_200 && write.bytes == 102_400
        );
    });
}

#[test]
fn another_thread_hears_the_same() {
    with(Tgt::start(), async |tgt| {
        let lun = Arc::new(attach(&tgt.url("", 1, "")).await);
        write_100_and_read_300_blocks(&lun).await;
        let (ended, mut over) = reactor::mailbox();
        let elsewhere = Arc::clone(&lun);
        let thread = thread::spawn(move || {
            let statistics = run(async { elsewhere.target().statistics().await });
            assert!(ended.send(()).is_ok());
            statistics
        });
        over.recv().await;
        let statistics = thread
            .join()
            .expect("the other thread ends")
            .expect("the session is there");
        assert_eq!(statistics.read.bytes, 153_600);
    });
}

#[test]
fn what_a_session_has_done_can_be_printed() {
    with(Tgt::start(), async |tgt| {
        let lun = attach(&tgt.url("", 1, "")).await;
        write_100_and_read_300_blocks(&lun).await;
        let table = told(&lun).await.to_string();
        for word in ["read", "write", "answer", "PDUs per read", "connection 0"] {
            assert!(table.contains(word), "{table}");
        }
    });
}

#[test]
fn a_ping_brings_its_data_back_by_the_connection_that_was_named() {
    with(Tgt::start(), async |tgt| {
        let lun = attach(&tgt.url("", 1, "")).await;
        let target = Arc::clone(lun.target());
        let data = vec![0xa5; 1000];
        for cid in [None, Some(Cid(0))] {
            let pong = target.ping(cid, &data).await.expect("answered");
            assert!(pong.data == data && pong.time > Duration::ZERO, "{pong:?}");
        }
        assert_eq!(
            target.ping(Some(Cid(7)), &[]).await,
            Err(CommandError::ConnectionLost),
            "no such connection"
        );
        let elsewhere = thread::spawn(move || run(async move { target.ping(None, &data).await }));
        while !elsewhere.is_finished() {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        assert!(
            elsewhere.join().expect("no panic").is_ok(),
            "from another thread"
        );
    });
}
