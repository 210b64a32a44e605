//! Commands with data declared in a direction in which they transfer none (iSCSI: the R and W bits, RFC 7143
//! 11.3.1): the whole command is rejected. If it were executed, it would return GOOD, but without the data.

use crate::support::*;

const INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT: u16 = 0x0e03;

/// Creates a CDB with a parameter list of this length.
fn with_length(opcode: u8, flags: u8, length: u16) -> Vec<u8> {
    ten(opcode, flags, 0, length).to_vec()
}

/// Returns commands with Data-Out, and their data.
fn takers() -> Vec<(Vec<u8>, Vec<u8>)> {
    let block = || vec![0x55; 512];
    let (unmap, list) = unmap(&[(0, 1)]);
    let sanitize = with_length(0x48, 0x81, 5);
    vec![
        (six(0x0a, 0, 1).to_vec(), block()),
        (sized(0x2a, 0, 0, 1), block()),
        (sized(0xaa, 0, 0, 1), block()),
        (sized(0x8a, 0, 0, 1), block()),
        (sized(0x2e, 0, 0, 1), block()),
        (sized(0x2f, 0x02, 0, 1), block()),
        (sized(0x41, 0, 0, 1), block()),
        (sized(0x93, 0, 0, 1), block()),
        (sized(0x8b, 0, 0, 1), block()),
        (write_atomic(0, 1).to_vec(), block()),
        (
            compare_and_write(0, 1).to_vec(),
            [[0xaa; 512], [0x55; 512]].concat(),
        ),
        (unmap.to_vec(), list),
        (vec![0x15, 0x10, 0, 0, 16, 0], vec![0; 16]),
        (with_length(0x55, 0x10, 28), vec![0; 28]),
        (with_length(0x5f, 0, 24), vec![0; 24]),
        (sized(0x83, 0, 0, 16), vec![0; 16]),
        (sanitize, vec![1, 0, 0, 1, 0]),
        (vec![0x04, 0x10, 0, 0, 0, 0], vec![0; 4]),
        (vec![0x1d, 0x10, 0, 0, 4, 0], vec![0; 4]),
    ]
}

/// Returns commands with Data-In.
fn givers() -> Vec<Vec<u8>> {
    vec![
        inquiry(None, 96).to_vec(),
        inquiry(Some(0x83), 255).to_vec(),
        vec![0x03, 0, 0, 0, 18, 0],
        vec![0x1a, 0, 0x3f, 0, 255, 0],
        sized(0x25, 0, 0, 0),
        sized(0x37, 0, 0, 8),
        vec![0x1c, 1, 0, 0, 8, 0],
        with_length(0x4d, 0, 8),
        with_length(0x5e, 0, 8),
        sized(0x84, 0x03, 0, 255),
        sized(0x9e, 0x10, 0, 32),
        get_lba_status(0, 24).to_vec(),
        sized(0xa0, 0, 0, 512),
        sized(0xa3, 0x0a, 0, 255),
        sized(0xa3, 0x0c, 0, 255),
        sized(0xb7, 0, 0, 8),
    ]
}

/// Creates a small disk whose first block holds AAh; commands that write change it.
fn bench(in_memory: bool) -> Bench {
    let mut bench = Bench::of_disk(DiskOptions {
        in_memory,
        blocks: 64,
        ..DiskOptions::default()
    });
    bench.write(0, &[0xaa; 512]);
    bench
}

fn is_misdeclared(answer: &CommandResult) -> bool {
    let told = answer.sense.map(|sense| (sense.key(), sense.asc()));
    told == Some((5, INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT))
}

#[test]
fn a_command_that_takes_data_is_refused_where_data_are_expected_from_it() {
    for in_memory in [false, true] {
        for (cdb, data) in takers() {
            let mut bench = bench(in_memory);
            for data in [&data[..], &[]] {
                let answer = bench.exchange(&cdb, data, 512);
                assert!(
                    is_misdeclared(&answer),
                    "{cdb:x?} with {} bytes: {answer:?}",
                    data.len()
                );
            }
            assert_eq!(bench.read(0, 1), [0xaa; 512], "{cdb:x?}");
            let answer = bench.exchange(&cdb, &data, 0);
            assert!(
                !is_misdeclared(&answer),
                "{cdb:x?} in its own direction: {answer:?}"
            );
        }
    }
}

#[test]
fn a_command_that_returns_data_is_refused_where_data_are_offered_to_it() {
    for in_memory in [false, true] {
        for cdb in givers() {
            let mut bench = bench(in_memory);
            for room in [512, 0] {
                let answer = bench.exchange(&cdb, &[0; 512], room);
                assert!(
                    is_misdeclared(&answer),
                    "{cdb:x?} with room for {room} bytes: {answer:?}"
                );
            }
            let answer = bench.exchange(&cdb, &[], 512);
            assert!(
                !is_misdeclared(&answer),
                "{cdb:x?} in its own direction: {answer:?}"
            );
        }
    }
}

/// A READ declared as a write transfers no data, and reports its whole length as the residual count (RFC 7143
/// 11.4.5.1, overflow). A READ declared with both directions is rejected: no supported command is
/// bidirectional.
#[test]
fn a_read_that_is_declared_a_write_says_that_all_of_it_is_left() {
    for cdb in [
        six(0x08, 0, 2).to_vec(),
        sized(0x28, 0, 0, 2),
        sized(0xa8, 0, 0, 2),
        sized(0x88, 0, 0, 2),
    ] {
        let mut bench = Bench::new();
        let answer = bench.exchange(&cdb, &[0; 512], 0);
        let good = answer.good();
        assert_eq!((good.expected_bytes, good.data.len()), (512 + 1024, 0));
        bench
            .exchange(&cdb, &[0; 512], 512)
            .check(5, INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
    }
}

/// The command itself is valid: the data that is not transferred is the residual count (RFC 7143 11.4.5.1,
/// overflow).
#[test]
fn a_command_without_a_direction_says_what_it_would_move() {
    let mut bench = Bench::new();
    for cdb in [sized(0x28, 0, 0, 2), sized(0x2a, 0, 0, 2)] {
        assert_eq!(bench.exchange(&cdb, &[], 0).good().expected_bytes, 1024);
    }
}
