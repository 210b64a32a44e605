//! Scenes: how a run ends, and what it counts.

use std::sync::Arc;

use block::DeviceError;
use reactor::block_on;

use super::*;
use crate::Percent;
use crate::test_disk::{Disk, Fault, Virtual};
use crate::workload::tests::reads_of_4k;

#[test]
fn a_hung_device_ends_the_run_and_its_requests_count_as_errors() {
    let disk = Disk::that(Fault::Hangs);
    let measured = measure(disk, &reads_of_4k());
    assert_eq!((measured.ios, measured.errors), (0, 4));
    assert_eq!(measured.first_failure, Some(Failure::Device(DeviceError::TimedOut)));
}

#[test]
fn a_device_that_only_fails_is_left_alone_before_the_time_is_over() {
    let disk = Disk::that(Fault::Fails);
    let measured = measure(disk, &reads_of_4k());
    assert_eq!(measured.ios, 0);
    assert!((100..104).contains(&measured.errors), "{}", measured.errors);
}

#[test]
fn a_lost_write_is_found_by_the_generation_of_the_one_before_it() {
    let disk = Disk::that(Fault::LosesEveryTenthWrite);
    let measured = measure(disk, &verified(50));
    assert!(measured.mismatches > 0);
    let failure = measured.first_failure.expect("there are mismatches");
    assert!(matches!(failure, Failure::WrongGeneration { .. } | Failure::NotOurs { .. }), "{failure}");
}

#[test]
fn a_sound_device_is_found_sound() {
    let measured = measure(Disk::new(), &verified(50));
    assert_eq!((measured.errors, measured.mismatches, measured.first_failure), (0, 0, None));
    assert!(measured.reads > 1000 && measured.reads < measured.ios);
}

#[test]
fn a_read_only_device_takes_no_writes() {
    let disk = Disk::read_only();
    let devices: [Arc<dyn BlockDevice>; 1] = [Arc::new(disk)];
    let refused = block_on(Virtual::world(), run(&devices, &verified(99)));
    assert_eq!(refused, Err(WorkloadError::ReadOnly));
}

#[test]
fn depth_requests_are_under_way_all_the_time() {
    // One millisecond each, four at a time, for one second. The virtual clock moves a little at every turn, too.
    let measured = measure(Disk::new(), &reads_of_4k());
    assert!((3_800..=4_000).contains(&measured.ios), "{}", measured.ios);
    assert!((1_000.0..1_060.0).contains(&measured.latency_us.p50), "{:?}", measured.latency_us);
    assert_eq!(measured.seconds, 1.0);
}

#[test]
fn two_ways_to_the_same_data_are_measured_together_and_verified_together() {
    let disk: Arc<dyn BlockDevice> = Arc::new(Disk::new());
    let devices = [Arc::clone(&disk), disk];
    let measured = block_on(Virtual::world(), run(&devices, &verified(30))).expect("the workload fits");
    assert!((7_000..=8_000).contains(&measured.ios), "{}", measured.ios);
    assert_eq!(measured.mismatches, 0);
}

#[test]
fn a_device_that_never_waits_still_lets_every_slot_have_its_turn() {
    let disk = Disk::that(Fault::IsInstant);
    let measured = measure(disk, &Workload { duration: Duration::from_millis(1), ..reads_of_4k() });
    assert!(measured.ios > 0);
}

fn verified(read: u8) -> Workload {
    Workload { read: Percent::new(read).expect("at most 100"), verify: true, ..reads_of_4k() }
}

fn measure(disk: Disk, workload: &Workload) -> Measurement {
    let devices: [Arc<dyn BlockDevice>; 1] = [Arc::new(disk)];
    block_on(Virtual::world(), run(&devices, workload)).expect("the workload fits")
}
