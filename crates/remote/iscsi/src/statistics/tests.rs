use std::time::{Duration, Instant};

use iscsi::initiator::{Counters, RoundTrips};
use iscsi::pdu::{Cid, Residual};

use crate::error::CommandError;
use crate::statistics::record::{bytes, span};
use crate::statistics::{Outcome, *};
use crate::tasks::Status;

fn us(microseconds: u64) -> Duration {
    Duration::from_micros(microseconds)
}

fn near(time: Duration, expected: Duration) -> bool {
    time.abs_diff(expected) <= expected / 100
}

fn answer(status: u8, sense: &[u8]) -> Result<Status, CommandError> {
    Ok(Status {
        status,
        sense: sense.into(),
        in_bytes: 4096,
        residual: Residual::Underflow(512),
    })
}

/// Returns a session with little activity.
fn little() -> Statistics {
    Statistics {
        time: Duration::from_secs(2),
        read: ClassStatistics::default(),
        write: ClassStatistics::default(),
        other: ClassStatistics::default(),
        counters: Counters::default(),
        received: Calls::default(),
        sent: Calls::default(),
        digests: DigestTime::default(),
        incidents: Incidents::default(),
        window_room: 31,
        under_way: 1,
        connections: Vec::new(),
    }
}

#[test]
fn percentiles_count_what_took_no_time() {
    let mut latency = Latency::default();
    (0..90).for_each(|_| latency.record(0));
    (1..=10).for_each(|n| latency.record(100_000 * n));
    assert_eq!(
        (
            latency.count(),
            latency.percentile(50.0),
            latency.percentile(90.0)
        ),
        (100, us(0), us(0))
    );
    assert!(
        near(latency.percentile(91.0), us(100)),
        "{:?}",
        latency.percentile(91.0)
    );
    assert!(near(latency.percentile(99.0), us(900)) && near(latency.percentile(100.0), us(1000)));
    assert_eq!((latency.mean(), latency.sum()), (us(55), us(5500)));
    assert!(near(latency.max(), us(1000)));
}

#[test]
fn what_never_happened_took_no_time() {
    let never = Latency::default();
    assert_eq!(
        (
            never.count(),
            never.mean(),
            never.percentile(99.0),
            never.max()
        ),
        (0, us(0), us(0), us(0))
    );
}

#[test]
fn what_takes_longer_than_anything_counts_as_the_longest() {
    let mut latency = Latency::default();
    latency.record(u64::MAX);
    assert_eq!(latency.count(), 1);
    assert!(latency.percentile(50.0) >= Duration::from_secs(1000));
}

#[test]
fn an_interval_is_the_difference_of_two_states() {
    let mut latency = Latency::default();
    latency.record(10_000);
    latency.record(0);
    let earlier = latency.clone();
    latency.record(5_000_000);
    let since = latency.since(&earlier);
    assert_eq!(since.count(), 1);
    assert!(near(since.percentile(1.0), us(5000)) && since.mean() == us(5000));
    assert_eq!(latency.since(&latency).count(), 0);
    assert_eq!(
        earlier.since(&latency).count(),
        0,
        "of the wrong order nothing comes, and no panic"
    );
}

#[test]
fn commands_are_told_apart_by_their_operation_codes() {
    assert_eq!(Class::from_cdb(&[0x28, 0, 0]), Class::Read);
    assert_eq!(Class::from_cdb(&[0x8a]), Class::Write);
    let mut variable = [0; 32];
    (variable[0], variable[8], variable[9]) = (0x7f, 0x00, 0x0b);
    assert_eq!(Class::from_cdb(&variable), Class::Write);
    for other in [&[][..], &[0x12], &[0x93], &[0x7f], &[0x42, 1]] {
        assert_eq!(Class::from_cdb(other), Class::Other);
    }
}

#[test]
fn only_what_went_well_has_a_latency() {
    let unit_attention = [0x70, 0, 0x06, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0];
    let medium_error = [0x72, 0x03, 0x11, 0];
    assert_eq!(
        Outcome::from_result(&answer(0x00, &[])),
        Outcome::Good {
            in_bytes: 4096,
            unwanted_bytes: 512
        }
    );
    assert_eq!(Outcome::from_result(&answer(0x08, &[])), Outcome::Busy);
    assert_eq!(
        Outcome::from_result(&answer(0x28, &[])),
        Outcome::TaskSetFull
    );
    assert_eq!(
        Outcome::from_result(&answer(0x02, &unit_attention)),
        Outcome::UnitAttention
    );
    assert_eq!(
        Outcome::from_result(&answer(0x02, &medium_error)),
        Outcome::Failed
    );
    assert_eq!(
        Outcome::from_result(&Err(CommandError::ConnectionLost)),
        Outcome::Failed
    );
}

#[test]
fn reconnects_keep_what_the_old_session_moved() {
    let mut meter = Meter::new(Instant::now());
    let before = Counters {
        commands: 7,
        nops: nops(2),
        ..Counters::default()
    };
    meter.reconnected(&before, Duration::from_secs(3));
    meter.reconnected(&before, Duration::from_secs(1));
    assert_eq!((meter.before.commands, meter.before.nops.count), (14, 4));
    let Incidents {
        reconnects,
        away,
        away_longest,
        ..
    } = meter.incidents;
    assert_eq!(
        (reconnects, away, away_longest),
        (2, Duration::from_secs(4), Duration::from_secs(3))
    );
}

fn nops(count: u64) -> RoundTrips {
    RoundTrips {
        count,
        sum: us(60 * count),
        min: Some(us(40)),
        max: Some(us(90)),
    }
}

#[test]
fn the_digests_that_were_not_timed_count_by_their_bytes() {
    let digests = DigestTime {
        segments: 100,
        bytes: 1_000_000,
        sampled_bytes: 10_000,
        sampled: us(2),
    };
    assert_eq!(
        (digests.estimate(), DigestTime::default().estimate()),
        (us(200), us(0))
    );
}

#[test]
fn the_table_shows_what_there_is_to_see() {
    let mut read = ClassStatistics {
        commands: 3,
        bytes: 12_288,
        ..ClassStatistics::default()
    };
    (0..3).for_each(|_| read.latency.record(80_000));
    (0..3).for_each(|_| read.phases[Phase::Answer as usize].record(80_000));
    let counters = Counters {
        pdus_in: 8,
        pdus_out: 4,
        nops: nops(1),
        ..Counters::default()
    };
    let incidents = Incidents {
        busy: 2,
        ..Incidents::default()
    };
    let calls = Calls {
        calls: 6,
        idle: 2,
        bytes: 999,
    };
    let connection = ConnectionStatistics {
        cid: Cid(1),
        local: ([127, 0, 0, 1], 5).into(),
        peer: ([127, 0, 0, 1], 3260).into(),
        path: None,
    };
    let statistics = Statistics {
        read,
        counters,
        incidents,
        received: calls,
        sent: calls,
        connections: vec![connection],
        ..little()
    };
    let expected = "\
in 2.00 s         commands  errors      data      mean       p50       p99     p99.9   longest
read                     3       0   12.3 kB   80.0 µs   80.4 µs   80.4 µs   80.4 µs   80.4 µs
  answer                                       80.0 µs   80.4 µs   80.4 µs   80.4 µs   80.4 µs
window        full 0 times, in total 0; 1 outstanding, space for 31
calls         2.0 PDUs per read, 1.0 per write
NOPs          1, mean 60.0 µs, from 40.0 µs to 90.0 µs
incidents     2 BUSY
connection 1  127.0.0.1:3260
";
    assert_eq!(statistics.to_string(), expected);
}

#[test]
fn programs_read_units_in_the_names() {
    let object = serde_json::to_value(little()).unwrap();
    assert_eq!(
        (&object["seconds"], &object["window"]["room"]),
        (&2.0.into(), &31.into())
    );
    assert_eq!(object["read"]["parts_us"]["r2t"]["p99"], 0.0);
    assert!(object["nops"]["mean_us"].is_null());
}

#[test]
fn three_digits_are_enough() {
    let times = [0, 7, 999, 1500, 12_345_678, 2_000_000_000];
    let said = times.map(|ns| span(Duration::from_nanos(ns)));
    assert_eq!(
        said,
        ["0", "7.00 ns", "999 ns", "1.50 µs", "12.3 ms", "2.00 s"]
    );
    assert_eq!(
        [0, 999, 4096, 20_000_000].map(bytes),
        ["0 B", "999 B", "4.10 kB", "20.0 MB"]
    );
}
