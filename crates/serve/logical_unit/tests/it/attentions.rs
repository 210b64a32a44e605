//! Unit attentions.

use std::sync::Arc;

use logical_unit::{LogicalUnit, NexusId, SiblingUnits};

use crate::support::*;

#[test]
fn a_new_nexus_hears_of_power_on_once() {
    let mut bench = Bench::new();
    let mut newcomer = bench.newcomer();
    bench.by(&mut newcomer, &TEST_UNIT_READY).check(6, 0x2900);
    bench.by(&mut newcomer, &TEST_UNIT_READY).good();
    bench.command(&TEST_UNIT_READY).good();
}

#[test]
fn inquiry_report_luns_and_request_sense_are_not_stopped() {
    let mut bench = Bench::new();
    let mut newcomer = bench.newcomer();
    bench.by(&mut newcomer, &inquiry(None, 96)).good();
    bench.by(&mut newcomer, &twelve(0xa0, 0, 0, 0)).good();
    let sense = bench.by(&mut newcomer, &[3, 0, 0, 0, 18, 0]).good().data;
    assert_eq!((sense[2], sense[12], sense[13]), (6, 0x29, 0));
    bench.by(&mut newcomer, &TEST_UNIT_READY).good();
}

#[test]
fn a_read_on_the_fast_path_is_stopped_too() {
    let mut bench = Bench::of_disk(DiskOptions {
        in_memory: true,
        ..DiskOptions::default()
    });
    bench.command(&sized(0x28, 0, 0, 1)).good();
    bench.unit.capacity_changed();
    bench.command(&sized(0x28, 0, 0, 1)).check(6, 0x2a09);
    bench.command(&sized(0x28, 0, 0, 1)).good();
}

#[test]
fn several_come_in_the_order_of_their_weight() {
    let mut bench = Bench::new();
    let mut newcomer = bench.newcomer();
    bench.unit.capacity_changed();
    bench.unit.luns_changed(newcomer.id());
    bench.unit.inquiry_changed(newcomer.id());
    bench.unit.reset();
    for asc in [0x2900, 0x2903, 0x3f0e, 0x3f03, 0x2a09] {
        bench.by(&mut newcomer, &TEST_UNIT_READY).check(6, asc);
    }
    bench.by(&mut newcomer, &TEST_UNIT_READY).good();
}

#[test]
fn facts_of_inquiry_differ_if_its_data_do() {
    let facts = |bench: &Bench| bench.unit.inquiry_facts();
    let plain = facts(&Bench::new());
    assert_eq!(plain, facts(&Bench::new()));
    assert_eq!(plain, facts(&Bench::read_only()), "MODE SENSE tells that");
    let serial = "B12".parse().ok();
    let others = [
        Bench::of_unit(|unit| unit.removable = true),
        Bench::of_unit(|unit| unit.thin = Some(!unit.thin.unwrap_or(true))),
        Bench::of_unit(|unit| unit.identity.given.serial = serial),
        Bench::of_unit(|unit| unit.identity.uuid[0] ^= 1),
    ];
    for other in others {
        assert_ne!(plain, facts(&other));
    }
}

#[test]
fn a_reset_is_heard_by_all() {
    let mut bench = Bench::new();
    let mut other = bench.second();
    bench.unit.reset();
    bench.command(&TEST_UNIT_READY).check(6, 0x2903);
    bench.by(&mut other, &TEST_UNIT_READY).check(6, 0x2903);
}

/// The logical units of a session.
struct Siblings(Vec<(Arc<LogicalUnit>, NexusId)>);

impl SiblingUnits for Siblings {
    fn luns(&self) -> Vec<u64> {
        (0..self.0.len() as u64).map(|lun| lun << 48).collect()
    }

    fn by_designator(&self, _designator: &[u8]) -> Option<Arc<LogicalUnit>> {
        None
    }

    fn luns_reported(&self) {
        self.0
            .iter()
            .for_each(|(unit, nexus)| unit.luns_reported(*nexus));
    }
}

/// SPC-3 6.21: "for all logical units of that target with respect to the requesting initiator".
#[test]
fn report_luns_at_one_lun_settles_for_all_of_the_session_that_the_luns_have_changed() {
    let (mut bench, mut other) = (Bench::new(), Bench::new());
    let mut stranger = other.second();
    let units = [&bench, &other].map(|bench| (Arc::clone(&bench.unit), bench.nexus.id()));
    units
        .iter()
        .for_each(|(unit, nexus)| unit.luns_changed(*nexus));
    other.unit.luns_changed(stranger.id());
    bench.luns = Arc::new(Siblings(units.to_vec()));
    bench.command(&twelve(0xa0, 0, 0, 256)).good();
    bench.command(&TEST_UNIT_READY).good();
    other.command(&TEST_UNIT_READY).good();
    other.by(&mut stranger, &TEST_UNIT_READY).check(6, 0x3f0e);
}
