//! Several threads use one logical unit, and atomic commands must stay atomic.

use crate::support::*;
use std::sync::Arc;
use std::thread;

const BLOCK: usize = 512;

/// Creates a thread's own access to the unit of `bench`: another nexus, the same medium.
fn another(bench: &Bench, number: u8) -> Bench {
    let (disk, unit, luns) = (
        Arc::clone(&bench.disk),
        Arc::clone(&bench.unit),
        Arc::clone(&bench.luns),
    );
    let mut another = Bench {
        disk,
        unit,
        nexus: attach(&bench.unit, number),
        luns,
    };
    another.hear_attentions();
    another
}

fn run_all(bench: &Bench, threads: u8, work: impl Fn(Bench, u8) + Send + Sync) {
    let work = &work;
    thread::scope(|scope| {
        for number in 0..threads {
            let bench = another(bench, 10 + number);
            scope.spawn(move || work(bench, number));
        }
    });
}

#[test]
fn no_increment_by_compare_and_write_is_lost() {
    for in_memory in [false, true] {
        let mut bench = Bench::of_disk(DiskOptions {
            in_memory,
            ..DiskOptions::default()
        });
        run_all(&bench, 4, |mut bench, _| {
            let mut wins = 0u32;
            while wins < 100 {
                let old = bench.read(5, 1);
                let count = u32::from_be_bytes(old[..4].try_into().expect("four bytes"));
                let mut new = old.clone();
                new[..4].copy_from_slice(&(count + 1).to_be_bytes());
                let answer = bench.send(&compare_and_write(5, 1), &[old, new].concat());
                match answer.sense {
                    None => wins += 1,
                    Some(_) => drop(answer.check(0xe, 0x1d00)),
                }
            }
        });
        assert_eq!(bench.read(5, 1)[..4], 400u32.to_be_bytes());
    }
}

#[test]
fn no_read_sees_half_of_an_atomic_write() {
    for in_memory in [false, true] {
        let bench = Bench::of_disk(DiskOptions {
            in_memory,
            ..DiskOptions::default()
        });
        run_all(&bench, 4, |mut bench, number| {
            for round in 0..200u8 {
                if number < 2 {
                    bench
                        .send(&write_atomic(2040, 16), &[round ^ number << 7; 16 * BLOCK])
                        .good();
                } else {
                    let seen = bench.read(2040, 16);
                    assert!(seen.iter().all(|byte| *byte == seen[0]), "a mixture");
                }
            }
        });
    }
}

#[test]
fn bits_set_by_many_are_all_there() {
    let mut bench = Bench::new();
    run_all(&bench, 8, |mut bench, number| {
        for lba in 0..64 {
            bench
                .send(&sixteen(0x8b, 0, lba, 1), &[1 << number; BLOCK])
                .good();
        }
    });
    assert_eq!(bench.read(0, 64), vec![0xff; 64 * BLOCK]);
}
