//! Tests which commands are allowed under reservations of other initiators. Covers every command that REPORT
//! SUPPORTED OPERATION CODES lists, by SPC-4 table 66, SBC-3 table 13 and, for RESERVE, SPC-2 tables 9 and
//! B.1.

use logical_unit::Status;

use crate::support::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// RESERVE(6) of SPC-2.
    Reserve,
    WriteExclusive,
    ExclusiveAccess,
}

use Held::*;

const ALL: &[Held] = &[Reserve, WriteExclusive, ExclusiveAccess];
const PERSISTENT: &[Held] = &[WriteExclusive, ExclusiveAccess];
/// Commands that read the medium or report the unit's state.
const READS: &[Held] = &[WriteExclusive];
const NONE: &[Held] = &[];

/// The beginning of a CDB, and the reservations of others that allow it.
const RULES: &[(&[u8], &[Held])] = &[
    (&[0x00], PERSISTENT),
    (&[0x03], ALL),
    (&[0x04], NONE),
    (&[0x08], READS),
    (&[0x0a], NONE),
    (&[0x12], ALL),
    (&[0x15], NONE),
    (&[0x1a, 0, 0x3f, 0, 0xff], READS),
    (&[0x1b, 0, 0, 0, 0x01], ALL),
    (&[0x1b, 0, 0, 0, 0x00], NONE),
    (&[0x1b, 0, 0, 0, 0x11], NONE),
    (&[0x1c], NONE),
    (&[0x1d], NONE),
    (&[0x1e, 0, 0, 0, 0x00], ALL),
    (&[0x1e, 0, 0, 0, 0x01], NONE),
    (&[0x25], ALL),
    (&[0x28], READS),
    (&[0x2a], NONE),
    (&[0x2e], NONE),
    (&[0x2f], READS),
    (&[0x34], READS),
    (&[0x35], NONE),
    (&[0x37], READS),
    (&[0x41], NONE),
    (&[0x42], NONE),
    (&[0x48, 0x01], NONE),
    (&[0x48, 0x02], NONE),
    (&[0x48, 0x03], NONE),
    (&[0x48, 0x1f], NONE),
    (&[0x4d], ALL),
    (&[0x55], NONE),
    (&[0x5a, 0, 0x3f, 0, 0, 0, 0, 0, 0xff], READS),
    (&[0x83, 0x00], NONE),
    (&[0x84, 0x00], PERSISTENT),
    (&[0x84, 0x03], PERSISTENT),
    (&[0x88], READS),
    (&[0x89], NONE),
    (&[0x8a], NONE),
    (&[0x8b], NONE),
    (&[0x8e], NONE),
    (&[0x8f], READS),
    (&[0x90], READS),
    (&[0x91], NONE),
    (&[0x93], NONE),
    (&[0x9c], NONE),
    (&[0x9e, 0x10], ALL),
    (&[0x9e, 0x12], READS),
    (&[0xa0], ALL),
    (&[0xa3, 0x0a], PERSISTENT),
    (&[0xa3, 0x0c], READS),
    (&[0xa3, 0x0d], READS),
    (&[0xa8], READS),
    (&[0xaa], NONE),
    (&[0xae], NONE),
    (&[0xaf], READS),
    (&[0xb7], READS),
];

/// RESERVE, RELEASE and PERSISTENT RESERVE IN and OUT have their own rules and tests.
const ABOUT_RESERVATIONS: [u8; 6] = [0x16, 0x17, 0x56, 0x57, 0x5e, 0x5f];

/// Creates a unit that supports all commands.
fn bench() -> Bench {
    Bench::of_disk(DiskOptions {
        durable: false,
        blocks: 512,
        ..DiskOptions::default()
    })
}

/// Returns the operation code and the service action, or 0, of each command.
fn commands() -> Vec<(u8, u8)> {
    let data = bench()
        .command(&[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0])
        .good()
        .data;
    data[4..]
        .chunks(8)
        .map(|descriptor| (descriptor[0], descriptor[3]))
        .collect()
}

#[test]
fn every_command_has_its_rule() {
    let ruled = |(opcode, action): &(u8, u8)| {
        ABOUT_RESERVATIONS.contains(opcode)
            || RULES
                .iter()
                .any(|(cdb, _)| cdb[0] == *opcode && cdb.get(1).unwrap_or(&0) == action)
    };
    let missing: Vec<_> = commands()
        .into_iter()
        .filter(|command| !ruled(command))
        .collect();
    assert!(missing.is_empty(), "{missing:x?}");
}

#[test]
fn a_command_conflicts_with_the_reservations_that_the_standards_name_and_no_others() {
    let mut faults = Vec::new();
    for (beginning, allowed) in RULES {
        for held in ALL {
            let mut bench = bench();
            bench.send(&sized(0x83, 0, 0, 16), &[0; 16]).good(); // a copy for COPY STATUS(LID1) to report
            let mut holder = bench.second();
            reserve(&mut bench, &mut holder, *held);
            let cdb = [beginning, &[0; 16][beginning.len()..]].concat();
            let answer = bench.command(&cdb);
            // Only GOOD proves that it passed: errors in the CDB and unit attentions come before the check of
            // reservations.
            let expected = if allowed.contains(held) {
                Status::Good
            } else {
                Status::ReservationConflict
            };
            if answer.status != expected {
                let sense = answer.sense.map(|sense| (sense.key(), sense.asc()));
                faults.push(format!(
                    "{beginning:x?} under {held:?}: {:?} {sense:x?}",
                    answer.status
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

fn reserve(bench: &mut Bench, holder: &mut logical_unit::Nexus, held: Held) {
    let kind = match held {
        Reserve => return drop(bench.by(holder, &[0x16, 0, 0, 0, 0, 0]).good()),
        WriteExclusive => 1,
        ExclusiveAccess => 3,
    };
    let list = |key: u8, new: u8| {
        let mut list = [0; 24];
        (list[7], list[15]) = (key, new);
        list
    };
    bench
        .send_by(holder, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list(0, 1))
        .good();
    bench
        .send_by(holder, &[0x5f, 1, kind, 0, 0, 0, 0, 0, 24, 0], &list(1, 0))
        .good();
}
