//! Scenes: how a run ends, and what it counts.

use std::sync::Arc;

use block::DeviceError;
use reactor::block_on;

use super::*;
use crate::Failure;
use crate::plan::{Data, Percent};
use crate::test_disk::{Disk, Fault, Virtual};

#[test]
fn a_hung_device_ends_the_run_and_its_requests_count_as_errors() {
    let run = measure(Disk::that(Fault::Hangs), &reads_of_4k());
    assert_eq!((run.ios(), run.errors, run.seconds), (0, 4, 1.0));
    assert_eq!(run.first_failure, Some(Failure::Device(DeviceError::TimedOut).to_string()));
    assert_eq!(run.samples.len(), 10);
    assert!(run.samples.iter().all(|sample| sample.under_way > 3.99), "{:?}", run.samples);
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
    assert!(failure.contains("generation") || failure.contains("does not hold"), "{failure}");
}

#[test]
fn a_sound_device_is_found_sound() {
    let run = measure(Disk::new(), &verified(50));
    assert_eq!((run.errors, run.mismatches, run.first_failure), (0, 0, None));
    assert!(run.reads.ios > 1000 && run.writes.ios > 1000);
}

#[test]
fn a_read_only_device_takes_no_writes() {
    let devices: [Arc<dyn BlockDevice>; 1] = [Arc::new(Disk::read_only())];
    let orders = Orders::for_time(Duration::from_secs(1));
    let refused = block_on(Virtual::world(), run(&devices, &verified(99), &orders, &mut |_| Go::On));
    assert_eq!(refused, Err(WorkloadError::ReadOnly));
}

#[test]
fn depth_requests_are_under_way_all_the_time() {
    // One millisecond each, four at a time, for one second. The virtual clock moves a little at every turn, too.
    let run = measure(Disk::new(), &reads_of_4k());
    assert!((3_800..=4_000).contains(&run.ios()), "{}", run.ios());
    assert!((1_000_000..1_060_000).contains(&run.reads.service.quantile_ns(0.5)));
    assert!((3.99..=4.0).contains(&run.under_way_mean), "{}", run.under_way_mean);
    assert_eq!(run.seconds, 1.0);
}

#[test]
fn two_ways_to_the_same_data_are_measured_together_and_verified_together() {
    let disk: Arc<dyn BlockDevice> = Arc::new(Disk::new());
    let devices = [Arc::clone(&disk), disk];
    let orders = Orders::for_time(Duration::from_secs(1));
    let run = block_on(Virtual::world(), run(&devices, &verified(30), &orders, &mut |_| Go::On));
    let run = run.expect("the workload fits");
    assert!((7_000..=8_000).contains(&run.ios()), "{}", run.ios());
    assert_eq!(run.mismatches, 0);
}

#[test]
fn a_device_that_never_waits_still_lets_every_slot_have_its_turn() {
    let run = measure_for(Duration::from_millis(1), Disk::that(Fault::IsInstant), &reads_of_4k());
    assert!(run.ios() > 0);
}

fn reads_of_4k() -> Workload {
    Workload::simple(4096, 4, Percent::ALL, Percent::ALL)
}

fn verified(read: u8) -> Workload {
    let read = Percent::new(read).expect("at most 100");
    Workload { data: Data::Stamped, ..Workload::simple(4096, 4, read, Percent::ALL) }
}

fn measure(disk: Disk, workload: &Workload) -> Run {
    measure_for(Duration::from_secs(1), disk, workload)
}

fn measure_for(time: Duration, disk: Disk, workload: &Workload) -> Run {
    measure_to(&Orders::for_time(time), disk, workload)
}

fn measure_to(orders: &Orders, disk: Disk, workload: &Workload) -> Run {
    let devices: [Arc<dyn BlockDevice>; 1] = [Arc::new(disk)];
    block_on(Virtual::world(), run(&devices, workload, orders, &mut |_| Go::On)).expect("the workload fits")
}
