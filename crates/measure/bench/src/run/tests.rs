//! Scenarios for the end of a run and for its counters.

mod known_devices;

use std::sync::Arc;
use std::time::Duration;

use block::DeviceError;
use reactor::{Alone, block_on};

use super::*;
use crate::Failure;
use crate::plan::{Access, Align, Data, Durable, Pace, Percent};
use crate::test_disk::{Disk, Fault};

#[test]
fn a_hung_device_ends_the_run_and_its_requests_count_as_errors() {
    let run = measure(Disk::that(Fault::Hangs), &reads_of_4k());
    assert_eq!((run.ios(), run.errors, run.seconds), (0, 4, 1.0));
    assert_eq!(
        run.first_failure,
        Some(Failure::Device(DeviceError::TimedOut).to_string())
    );
    assert_eq!(run.samples.len(), 10);
    assert!(
        run.samples.iter().all(|sample| sample.under_way > 3.99),
        "{:?}",
        run.samples
    );
}

#[test]
fn a_device_that_only_fails_is_left_alone_before_the_time_is_over() {
    let run = measure(Disk::that(Fault::Fails), &reads_of_4k());
    assert_eq!(run.ios(), 0);
    assert!((100..104).contains(&run.errors), "{}", run.errors);
}

#[test]
fn a_lost_write_is_found_by_the_generation_of_the_one_before_it() {
    let run = measure(Disk::that(Fault::LosesEveryTenthWrite), &verified(50));
    assert!(run.mismatches > 0);
    let failure = run.first_failure.expect("there are mismatches");
    assert!(
        failure.contains("generation") || failure.contains("does not contain"),
        "{failure}"
    );
}

#[test]
fn a_sound_device_is_found_sound() {
    let run = measure(Disk::new(), &verified(50));
    assert_eq!(
        (run.errors, run.mismatches, run.first_failure),
        (0, 0, None)
    );
    assert!(run.reads.ios > 1000 && run.writes.ios > 1000);
}

#[test]
fn a_read_only_device_takes_no_writes() {
    let devices: [Arc<dyn BlockDevice>; 1] = [Arc::new(Disk::read_only())];
    let orders = Orders::for_time(Duration::from_secs(1));
    let refused = block_on(
        Alone::virtual_time(),
        run(&devices, &verified(99), &orders, &mut |_| Go::On),
    );
    assert_eq!(refused, Err(WorkloadError::ReadOnly));
}

#[test]
fn durable_writes_have_fua_or_are_followed_by_flushes() {
    let asked = |durable| {
        let disk = Arc::new(Disk::new());
        let devices: [Arc<dyn BlockDevice>; 1] = [disk.clone()];
        let workload = Workload {
            durable,
            ..Workload::simple(4096, 1, Percent::NONE, Percent::ALL)
        };
        let orders = Orders {
            requests: Some(64),
            ..Orders::for_time(Duration::from_secs(1))
        };
        let ended = block_on(
            Alone::virtual_time(),
            run(&devices, &workload, &orders, &mut |_| Go::On),
        );
        assert_eq!(ended.expect("the workload fits").errors, 0);
        assert!(disk.writes() >= 64, "{}", disk.writes());
        [disk.writes(), disk.stable_writes(), disk.flushes()]
    };
    let [_, stable, flushes] = asked(Durable::Cached);
    assert_eq!((stable, flushes), (0, 0));
    let [writes, stable, flushes] = asked(Durable::Fua);
    assert_eq!((stable, flushes), (writes, 0));
    let [writes, stable, flushes] = asked(Durable::FlushAfter(8));
    assert_eq!((stable, flushes), (0, writes / 8));
}

#[test]
fn depth_requests_are_under_way_all_the_time() {
    // Requests take one millisecond each, four are outstanding, and the run takes one second. The virtual
    // clock also advances slightly in every turn of the reactor.
    let run = measure(Disk::new(), &reads_of_4k());
    assert!((3_800..=4_000).contains(&run.ios()), "{}", run.ios());
    assert!((1_000_000..1_060_000).contains(&run.reads.service.quantile_ns(0.5)));
    assert!(
        (3.99..=4.0).contains(&run.under_way_mean),
        "{}",
        run.under_way_mean
    );
    assert_eq!(run.seconds, 1.0);
}

#[test]
fn two_ways_to_the_same_data_are_measured_together_and_verified_together() {
    let disk: Arc<dyn BlockDevice> = Arc::new(Disk::new());
    let devices = [Arc::clone(&disk), disk];
    let orders = Orders::for_time(Duration::from_secs(1));
    let run = block_on(
        Alone::virtual_time(),
        run(&devices, &verified(30), &orders, &mut |_| Go::On),
    );
    let run = run.expect("the workload fits");
    assert!((7_000..=8_000).contains(&run.ios()), "{}", run.ios());
    assert_eq!(run.mismatches, 0);
}

#[test]
fn a_device_that_never_waits_still_lets_every_slot_have_its_turn() {
    let run = measure_for(
        Duration::from_millis(1),
        Disk::that(Fault::IsInstant),
        &reads_of_4k(),
    );
    assert!(run.ios() > 0);
}

#[test]
fn draining_keeps_fewer_under_way_than_the_depth() {
    // Iometer's "test connection rate" with T = 500 transactions at a depth of Q = 64, on a device that
    // executes one request at a time. The average queue depth is Q - Q (Q - 1) / 2T = 59.97. The run has 20
    // rounds of half a second each.
    let workload = Workload {
        depth: 64,
        drain_after: Some(500),
        ..reads_of_4k()
    };
    let run = measure_for(
        Duration::from_secs(10),
        Disk::that(Fault::IsOneByOne),
        &workload,
    );
    assert!(
        (59.94..59.99).contains(&run.under_way_mean),
        "{}",
        run.under_way_mean
    );
    assert!((9_900..=10_000).contains(&run.ios()), "{}", run.ios());
}

#[test]
fn without_draining_it_is_the_depth() {
    let workload = Workload {
        depth: 64,
        ..reads_of_4k()
    };
    let run = measure_for(
        Duration::from_secs(10),
        Disk::that(Fault::IsOneByOne),
        &workload,
    );
    assert!(
        (63.99..=64.0).contains(&run.under_way_mean),
        "{}",
        run.under_way_mean
    );
}

#[test]
fn a_pause_between_bursts_is_one_for_all_requests() {
    // As in Iometer, the pause starts when a slot becomes free: 4 concurrent requests take 1 ms, followed by
    // 9 ms of pause.
    let mut workload = reads_of_4k();
    workload.accesses[0].burst = 4;
    workload.accesses[0].delay_ms = 9;
    let run = measure_for(Duration::from_secs(1), Disk::new(), &workload);
    assert!((390..=400).contains(&run.ios()), "{}", run.ios());
}

#[test]
fn a_pause_longer_than_the_run_does_not_keep_it_from_ending() {
    let mut workload = reads_of_4k();
    workload.accesses[0].delay_ms = 3_600_000;
    let (run, took) = timed(
        &Orders::for_time(Duration::from_secs(1)),
        Disk::new(),
        &workload,
    );
    assert_eq!((run.ios(), run.errors), (0, 0));
    assert!(took < Duration::from_millis(1010), "{took:?}");
}

/// A closed loop sends no requests while the device stalls, so it measures only a few slow requests. An open
/// loop continues, and counts every request that has to wait.
#[test]
fn a_stall_shows_in_the_response_time_of_an_open_loop_and_not_in_a_closed_one() {
    let three_seconds = Duration::from_secs(3);
    let stalling = || Disk::that(Fault::StallsInItsSecondSecond);
    let closed = measure_for(three_seconds, stalling(), &reads_of_4k());
    assert!(
        closed.reads.service.quantile_ns(0.999) < 1_100_000,
        "hidden from 999 of 1000"
    );
    assert!(closed.reads.service.max_ns() > 1_000_000_000);

    let pace = Pace::Constant { per_second: 1000.0 };
    let open = measure_for(
        three_seconds,
        stalling(),
        &Workload {
            pace,
            ..reads_of_4k()
        },
    );
    assert!(
        open.reads.service.quantile_ns(0.99) < 1_100_000,
        "the device itself answers as fast as ever"
    );
    // A third of all requests became due during the stall, and the last of them waited for all earlier ones:
    // half a second on average, plus the time in which 4 slots complete 1000 requests, a quarter of a second.
    assert!(
        open.reads.response.quantile_ns(0.8) > 200_000_000,
        "{}",
        open.reads.response.quantile_ns(0.8)
    );
    assert!(
        open.reads.response.quantile_ns(0.5) < 100_000_000,
        "{}",
        open.reads.response.quantile_ns(0.5)
    );
    assert!(
        (980..=1010).contains(&open.backlog_max),
        "{}",
        open.backlog_max
    );
    let stalled = &open.samples[12..19];
    assert!(
        stalled
            .iter()
            .all(|sample| sample.reads == 0 && sample.under_way > 3.99),
        "{stalled:?}"
    );
}

#[test]
fn more_than_the_device_takes_waits_as_a_number() {
    let pace = Pace::Poisson {
        per_second: 10_000.0,
    };
    let run = measure(
        Disk::that(Fault::IsOneByOne),
        &Workload {
            pace,
            ..reads_of_4k()
        },
    );
    assert!((995..=1000).contains(&run.ios()), "{}", run.ios());
    assert!(
        (8_500..9_500).contains(&run.backlog_max),
        "{}",
        run.backlog_max
    );
    assert!(
        (3.98..=4.0).contains(&run.under_way_mean),
        "{}",
        run.under_way_mean
    );
}

#[test]
fn an_open_loop_keeps_its_rate() {
    for pace in [
        Pace::Constant { per_second: 500.0 },
        Pace::Poisson { per_second: 500.0 },
    ] {
        let run = measure_for(
            Duration::from_secs(20),
            Disk::new(),
            &Workload {
                depth: 64,
                pace,
                ..reads_of_4k()
            },
        );
        assert!(
            (9_700..=10_300).contains(&run.ios()),
            "{} at {pace:?}",
            run.ios()
        );
        // The value follows from Little's law, since each request takes one millisecond.
        assert!(
            (0.49..0.52).contains(&run.under_way_mean),
            "{}",
            run.under_way_mean
        );
        assert!(run.reads.response.quantile_ns(0.99) < 1_100_000);
    }
}

#[test]
fn the_rate_of_an_open_loop_is_that_of_all_sessions_together() {
    let disk: Arc<dyn BlockDevice> = Arc::new(Disk::new());
    let devices = [Arc::clone(&disk), disk];
    let workload = Workload {
        pace: Pace::Constant { per_second: 500.0 },
        ..reads_of_4k()
    };
    let orders = Orders::for_time(Duration::from_secs(1));
    let run = block_on(
        Alone::virtual_time(),
        run(&devices, &workload, &orders, &mut |_| Go::On),
    )
    .expect("it fits");
    assert!((498..=500).contains(&run.ios()), "{}", run.ios());
}

#[test]
fn samples_come_on_time_from_a_device_that_hangs() {
    let devices: [Arc<dyn BlockDevice>; 1] = [Arc::new(Disk::that(Fault::Hangs))];
    let orders = Orders::for_time(Duration::from_secs(1));
    let mut came = Vec::new();
    let ended = block_on(Alone::virtual_time(), async {
        let begun = reactor::now();
        let mut each = |sample: &Sample| {
            came.push((
                (reactor::now() - begun).as_secs_f64() - sample.at_s,
                sample.iops(),
            ));
            Go::On
        };
        run(&devices, &reads_of_4k(), &orders, &mut each).await
    });
    assert!(ended.is_ok());
    assert_eq!(came.len(), 10);
    assert!(
        came.iter()
            .all(|(late, iops)| (0.0..0.001).contains(late) && *iops == 0.0),
        "{came:?}"
    );
}

#[test]
fn the_warm_up_is_not_counted() {
    let orders = Orders {
        warm_up: Duration::from_secs(2),
        ..Orders::for_time(Duration::from_secs(1))
    };
    let (run, took) = timed(
        &orders,
        Disk::that(Fault::StallsInItsSecondSecond),
        &reads_of_4k(),
    );
    assert_eq!((run.seconds, run.samples.len()), (1.0, 10));
    assert!((3_800..=4_000).contains(&run.ios()), "{}", run.ios());
    assert!((3.0..3.01).contains(&took.as_secs_f64()), "{took:?}");
    // Four requests started during the warm-up and completed while the run was counting. They are counted
    // with their latency.
    assert!(run.reads.service.quantile_ns(0.99) < 1_100_000);
}

#[test]
fn a_run_ends_with_the_request_that_makes_enough() {
    let requests = Orders {
        requests: Some(100),
        ..Orders::for_time(Duration::from_secs(60))
    };
    let run = measure_to(&requests, Disk::that(Fault::IsOneByOne), &reads_of_4k());
    assert_eq!((run.ios(), run.errors), (100, 0));
    assert!((0.1..0.101).contains(&run.seconds), "{}", run.seconds);
    let bytes = Orders {
        bytes: Some(50 * 4096 + 1),
        ..requests
    };
    assert_eq!(
        measure_to(&bytes, Disk::that(Fault::IsOneByOne), &reads_of_4k()).ios(),
        51
    );
    let one = Orders {
        requests: Some(1),
        ..requests
    };
    assert_eq!(
        measure_to(&one, Disk::new(), &reads_of_4k()).samples.len(),
        1
    );
}

#[test]
fn whoever_watches_may_end_the_run() {
    let devices: [Arc<dyn BlockDevice>; 1] = [Arc::new(Disk::new())];
    let orders = Orders::for_time(Duration::from_secs(60));
    let mut each = |sample: &Sample| if sample.at_s < 0.3 { Go::On } else { Go::Stop };
    let run = block_on(
        Alone::virtual_time(),
        run(&devices, &reads_of_4k(), &orders, &mut each),
    )
    .expect("it fits");
    assert_eq!((run.seconds, run.samples.len()), (0.3, 3));
    assert!((1_150..=1_200).contains(&run.ios()), "{}", run.ios());
}

#[test]
fn several_begin_together_at_a_time_that_was_agreed_on() {
    let devices: [Arc<dyn BlockDevice>; 1] = [Arc::new(Disk::new())];
    let took = block_on(Alone::virtual_time(), async {
        let begun = reactor::now();
        let start = Some(begun + Duration::from_secs(5));
        let orders = Orders {
            start,
            ..Orders::for_time(Duration::from_secs(1))
        };
        let run = run(&devices, &reads_of_4k(), &orders, &mut |_| Go::On)
            .await
            .expect("it fits");
        assert!((3_800..=4_000).contains(&run.ios()), "{}", run.ios());
        reactor::now() - begun
    });
    assert!((6.0..6.01).contains(&took.as_secs_f64()), "{took:?}");
}

#[test]
fn a_run_that_nobody_waits_for_any_more_asks_nothing() {
    let disk = Arc::new(Disk::new());
    let devices: [Arc<dyn BlockDevice>; 1] = [Arc::clone(&disk) as Arc<dyn BlockDevice>];
    let (workload, orders) = (verified(0), Orders::for_time(Duration::from_secs(60)));
    block_on(Alone::virtual_time(), async {
        let mut each = |_: &Sample| Go::On;
        let run = run(&devices, &workload, &orders, &mut each);
        reactor::timeout(Duration::from_millis(100), run)
            .await
            .expect_err("it is dropped");
        let before = disk.writes();
        reactor::sleep(Duration::from_secs(1)).await;
        assert!(
            before > 0 && disk.writes() == before,
            "{before} writes, then {}",
            disk.writes()
        );
    });
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let pace = Pace::Poisson { per_second: 2000.0 };
    for pace in [Pace::Closed, pace] {
        let [one, two] = [(); 2].map(|()| {
            measure(
                Disk::new(),
                &Workload {
                    pace,
                    ..verified(50)
                },
            )
        });
        assert_eq!(one, two);
    }
}

#[test]
fn requests_of_any_length_and_alignment_are_verified_beside_each_other() {
    let percent = |percent| Percent::new(percent).expect("a share");
    let mut workload = verified(50);
    let half = Access {
        share: percent(50),
        random: percent(70),
        ..workload.accesses[0].clone()
    };
    let odd = Access {
        block_bytes: 1536,
        align: Align::Block,
        ..half.clone()
    };
    workload.accesses = vec![half, odd];
    let run = measure(Disk::new(), &workload);
    assert_eq!(
        (run.errors, run.mismatches),
        (0, 0),
        "{:?}",
        run.first_failure
    );
    let run = measure(Disk::that(Fault::LosesEveryTenthWrite), &workload);
    assert!(run.mismatches > 0);
}

fn reads_of_4k() -> Workload {
    Workload::simple(4096, 4, Percent::ALL, Percent::ALL)
}

fn verified(read: u8) -> Workload {
    let read = Percent::new(read).expect("at most 100");
    Workload {
        data: Data::Stamped,
        ..Workload::simple(4096, 4, read, Percent::ALL)
    }
}

fn measure(disk: Disk, workload: &Workload) -> Run {
    measure_for(Duration::from_secs(1), disk, workload)
}

fn measure_for(time: Duration, disk: Disk, workload: &Workload) -> Run {
    measure_to(&Orders::for_time(time), disk, workload)
}

fn measure_to(orders: &Orders, disk: Disk, workload: &Workload) -> Run {
    timed(orders, disk, workload).0
}

/// Executes a run. Returns its result and its duration.
fn timed(orders: &Orders, disk: Disk, workload: &Workload) -> (Run, Duration) {
    let devices: [Arc<dyn BlockDevice>; 1] = [Arc::new(disk)];
    block_on(Alone::virtual_time(), async {
        let begun = reactor::now();
        let run = run(&devices, workload, orders, &mut |_| Go::On)
            .await
            .expect("the workload fits");
        (run, reactor::now() - begun)
    })
}
