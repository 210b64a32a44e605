//! LUNs without a device, and the REPORT LUNS well-known logical unit.

use std::sync::Arc;

use logical_unit::{CommandIn, Reply, SiblingUnits};

use crate::support::*;

fn asked(
    answer: impl Fn(&CommandIn<'_>) -> Reply,
    cdb: &[u8],
    data_out_bytes: u32,
    data_in_bytes: u32,
) -> CommandResult {
    let luns: Arc<dyn SiblingUnits> = Arc::new(TwoLuns);
    CommandResult::from_reply(answer(&CommandIn {
        cdb,
        data_out_bytes,
        data_in_bytes,
        luns: &luns,
        stage: false,
    }))
}

fn absent(cdb: &[u8], room: u32) -> CommandResult {
    asked(logical_unit::absent, cdb, 0, room)
}

fn well_known(cdb: &[u8], room: u32) -> CommandResult {
    asked(logical_unit::well_known, cdb, 0, room)
}

#[test]
fn inquiry_says_that_nothing_can_be_here() {
    let data = absent(&inquiry(None, 96), 96).good().data;
    assert_eq!((data[0], data.len()), (0x7f, 96));
    assert_eq!(absent(&inquiry(None, 5), 96).good().data.len(), 5);
    absent(&inquiry(Some(0x83), 96), 96).invalid_field(1);
}

#[test]
fn report_luns_and_request_sense_are_answered() {
    assert_eq!(absent(&twelve(0xa0, 0, 0, 256), 256).good().data.len(), 24);
    let sense = absent(&[3, 0, 0, 0, 18, 0], 18).good().data;
    assert_eq!((sense[2], sense[12]), (5, 0x25));
}

#[test]
fn anything_else_is_not_supported_there() {
    for cdb in [sized(0x28, 0, 0, 1), TEST_UNIT_READY.to_vec(), vec![]] {
        absent(&cdb, 512).check(5, 0x2500);
    }
}

#[test]
fn the_well_known_logical_unit_is_of_its_own_kind() {
    assert_eq!(well_known(&inquiry(None, 96), 96).good().data[0], 0x1e);
    well_known(&TEST_UNIT_READY, 0).good();
    well_known(&sized(0x28, 0, 0, 1), 512).unknown();
    let sense = well_known(&[3, 0, 0, 0, 18, 0], 18).good().data;
    assert_eq!(sense[2], 0);
}

#[test]
fn data_offered_to_a_command_that_returns_data_are_refused() {
    for answer in [logical_unit::absent, logical_unit::well_known] {
        asked(answer, &inquiry(None, 96), 96, 0).check(5, 0x0e03);
        asked(answer, &twelve(0xa0, 0, 0, 256), 256, 256).check(5, 0x0e03);
    }
}
