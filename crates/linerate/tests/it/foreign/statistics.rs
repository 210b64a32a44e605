//! A session's statistics match the facts, with any target.

use std::time::Duration;

use iscsi_client::{ClassStatistics, Phase, RemoteLun, Statistics};

use super::san::Disk;
use super::{Needs, open, round_trip, with_each};

/// 1.5 MiB: longer than any burst.
const BLOCKS: u64 = 3072;
const BYTES: u64 = BLOCKS * 512;

async fn told(lun: &RemoteLun) -> Statistics {
    lun.target()
        .statistics()
        .await
        .expect("the session is on this thread")
}

fn parts(class: &ClassStatistics) -> Duration {
    class.waiting.sum()
        + Phase::ALL
            .iter()
            .map(|phase| class.phase(*phase).sum())
            .sum::<Duration>()
}

#[test]
fn every_byte_is_counted_and_every_part_of_a_latency_makes_its_whole() {
    with_each(Needs::Nothing, async |san| {
        let lun = open(&san.url(Disk::Plain, "")).await;
        let before = told(&lun).await;
        round_trip(&lun, 0, BLOCKS, 1).await;
        let since = told(&lun).await.since(&before);
        assert_eq!(
            (
                since.read.bytes,
                since.write.bytes,
                since.read.errors + since.write.errors
            ),
            (BYTES, BYTES, 0)
        );
        let counters = &since.counters;
        let written = [
            counters.immediate_bytes,
            counters.unsolicited_bytes,
            counters.solicited_bytes,
        ];
        assert_eq!(
            (counters.data_in_bytes, written.iter().sum::<u64>()),
            (BYTES, BYTES),
            "{since}"
        );
        assert!(
            counters.r2ts > 0 && !since.write.phase(Phase::R2t).sum().is_zero(),
            "{since}"
        );
        for class in [&since.read, &since.write] {
            assert_eq!(parts(class), class.latency.sum(), "{since}");
        }
    });
}

#[test]
fn the_kernel_tells_of_every_connection() {
    with_each(Needs::Connections, async |san| {
        let lun = open(&san.url(Disk::Plain, "?connections=3")).await;
        for at in 0..9 {
            round_trip(&lun, at * 64, 64, 1).await;
        }
        let statistics = told(&lun).await;
        let cids: Vec<u16> = statistics
            .connections
            .iter()
            .map(|connection| connection.cid.0)
            .collect();
        assert_eq!(cids, [0, 1, 2]);
        for connection in &statistics.connections {
            let path = connection.path.as_ref().expect("Linux tells");
            assert!(
                path.received_bytes.is_some_and(|bytes| bytes > 0) && !path.round_trip.is_zero()
            );
        }
        let received: u64 = statistics
            .connections
            .iter()
            .flat_map(|one| one.path.as_ref()?.received_bytes)
            .sum();
        assert!(received > statistics.received.bytes, "logins come on top");
    });
}

#[test]
fn a_busy_connection_is_pinged_and_lives() {
    with_each(Needs::Nothing, async |san| {
        let lun = open(&san.url(Disk::Plain, "?nop-interval=3")).await;
        while told(&lun).await.counters.nops.count < 2 {
            round_trip(&lun, 0, 64, 1).await;
        }
        let Statistics {
            counters,
            incidents,
            ..
        } = told(&lun).await;
        assert!(
            counters.nops.count >= 2 && counters.nops.min <= counters.nops.max,
            "{counters:?}"
        );
        assert_eq!((incidents.connections_lost, incidents.reconnects), (0, 0));
    });
}
