//! REPORT SUPPORTED OPERATION CODES.

use crate::support::*;

fn rsoc(option: u8, opcode: u8, service_action: u16) -> [u8; 12] {
    let [high, low] = service_action.to_be_bytes();
    [
        0xa3, 0x0c, option, opcode, high, low, 0, 0, 0xff, 0xff, 0, 0,
    ]
}

/// Returns the operation code, the service action if there is one, and the CDB length of each command.
fn listed(bench: &mut Bench) -> Vec<(u8, Option<u16>, u16)> {
    let data = bench.command(&rsoc(0, 0, 0)).good().data;
    assert_eq!(
        u32::from_be_bytes(data[..4].try_into().expect("four")) as usize,
        data.len() - 4
    );
    let descriptor = |d: &[u8]| {
        let action = u16::from_be_bytes([d[2], d[3]]);
        (
            d[0],
            (d[5] & 1 == 1).then_some(action),
            u16::from_be_bytes([d[6], d[7]]),
        )
    };
    data[4..].chunks_exact(8).map(descriptor).collect()
}

#[test]
fn every_command_listed_can_be_asked_for_alone_in_the_one_right_way() {
    let mut bench = Bench::new();
    for (opcode, action, length) in listed(&mut bench) {
        let (right, wrong) = if action.is_some() { (2, 1) } else { (1, 2) };
        let action = action.unwrap_or(0);
        for option in [right, 3] {
            let data = bench.command(&rsoc(option, opcode, action)).good().data;
            assert_eq!(
                (data[1], data.len()),
                (3, 4 + usize::from(length)),
                "{opcode:x}/{action:x}"
            );
            assert_eq!(
                (data[4], u16::from_be_bytes([data[2], data[3]])),
                (opcode, length)
            );
        }
        bench.command(&rsoc(wrong, opcode, action)).invalid_field(2);
    }
}

#[test]
fn what_is_not_there_is_not_supported() {
    for (option, opcode, action) in [(1, 0xff, 0), (2, 0xa3, 0x1f), (3, 0x9e, 0), (3, 0x28, 1)] {
        assert_eq!(
            Bench::new()
                .command(&rsoc(option, opcode, action))
                .good()
                .data,
            [0, 1, 0, 0]
        );
    }
    Bench::new().command(&rsoc(4, 0, 0)).invalid_field(2);
}

#[test]
fn timeouts_come_when_asked_for() {
    let mut bench = Bench::new();
    let plain = listed(&mut bench).len();
    let data = bench.command(&rsoc(0x80, 0, 0)).good().data;
    assert_eq!(data.len() - 4, plain * 20);
    for descriptor in data[4..].chunks_exact(20) {
        assert_eq!((descriptor[5] & 2, &descriptor[8..10]), (2, &[0, 10][..]));
    }
    let one = bench.command(&rsoc(0x81, 0x28, 0)).good().data;
    assert_eq!((one[1], one.len()), (0x83, 4 + 10 + 12));
}

#[test]
fn unmap_is_listed_only_where_it_is_supported() {
    let has_unmap = |bench: &mut Bench| listed(bench).iter().any(|command| command.0 == 0x42);
    assert!(has_unmap(&mut Bench::new()));
    assert!(!has_unmap(&mut Bench::of_unit(
        |unit| unit.thin = Some(false)
    )));
}

/// FMTPINFO is rejected: there is no protection information.
#[test]
fn format_unit_shows_no_bits_that_it_refuses() {
    let mut bench = Bench::new();
    let data = bench.command(&rsoc(1, 0x04, 0)).good().data;
    assert_eq!(data[4..8], [0x04, 0x3f, 0, 0]);
    for bit in (0..8).filter(|bit| data[5] & 1 << bit == 0) {
        bench
            .command(&[0x04, 1 << bit, 0, 0, 0, 0])
            .invalid_field(1);
    }
}

#[test]
fn compare_and_write_shows_dpo_and_fua() {
    let data = Bench::new().command(&rsoc(1, 0x89, 0)).good().data;
    assert_eq!(data[5] & 0x18, 0x18);
}

#[test]
fn a_command_that_is_not_listed_is_unknown() {
    let mut bench = Bench::new();
    let known = listed(&mut bench);
    for opcode in (0..=255).filter(|opcode| known.iter().all(|command| command.0 != *opcode)) {
        bench
            .command(&[opcode, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            .unknown();
    }
}
