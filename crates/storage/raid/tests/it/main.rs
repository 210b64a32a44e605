//! Tests of the set through its public interface: the model check, and tests of single situations.
//!
//! `RAID_CASES=100000 cargo test -p linerate-raid --release --test it model` runs that many cases of each
//! kind; `RAID_SEED=17` runs only that seed.

mod by_content;
mod comeback;
mod crash;
mod disk;
mod doubt;
mod growth;
mod journal;
mod lost;
mod model;
mod rig;
mod scenes;
mod scrub;
mod seeks;
mod unsynced;
mod world;

use crash::{Trouble, case, crash_at};
use raid::Level;
use rig::Guard;

const LEVELS: [Level; 5] = [
    Level::Raid0,
    Level::Raid1,
    Level::Raid5,
    Level::Raid6,
    Level::Raid10,
];

/// Number of cases of each kind in an ordinary run.
const CASES: u64 = 60;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Returns the first error found in a series of cases.
fn first_fault(level: Level, guard: Guard, trouble: Trouble) -> Option<String> {
    let seeds = match number("RAID_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("RAID_CASES").unwrap_or(CASES),
    };
    seeds.into_iter().find_map(|seed| {
        let fault = case(level, guard, trouble, seed).err()?;
        Some(format!(
            "{level}, {guard:?}, {trouble:?}, RAID_SEED={seed}: {fault}"
        ))
    })
}

fn all_right(levels: &[Level], guard: Guard, trouble: Trouble) {
    for level in levels {
        assert_eq!(first_fault(*level, guard, trouble), None);
    }
}

const NONE: Trouble = Trouble {
    crashes: false,
    kills: false,
    failures: false,
    lost_members: false,
    corruption: false,
    bad_sectors: false,
    hides_doubt: false,
    comebacks: false,
};

#[test]
fn model_of_a_healthy_set() {
    all_right(&LEVELS, Guard::Nothing, NONE);
}

#[test]
fn model_of_a_set_with_failing_members() {
    all_right(
        &LEVELS[1..],
        Guard::Nothing,
        Trouble {
            failures: true,
            ..NONE
        },
    );
}

#[test]
fn model_of_a_journal_with_crashes_failing_and_lost_members() {
    let trouble = Trouble {
        crashes: true,
        failures: true,
        lost_members: true,
        ..NONE
    };
    all_right(&[Level::Raid5, Level::Raid6], Guard::Journal, trouble);
}

/// The journal disk also fails, and crashes together with the others: it loses unflushed writes and tears
/// writes.
#[test]
fn model_of_a_journal_on_a_disk_of_its_own() {
    let trouble = Trouble {
        crashes: true,
        failures: true,
        lost_members: true,
        ..NONE
    };
    all_right(&[Level::Raid5, Level::Raid6], Guard::JournalDisk, trouble);
    all_right(
        &[Level::Raid5, Level::Raid6],
        Guard::JournalDisk,
        Trouble {
            corruption: true,
            ..trouble
        },
    );
}

#[test]
fn model_of_a_bitmap_with_crashes_failing_and_lost_members() {
    let trouble = Trouble {
        crashes: true,
        failures: true,
        lost_members: true,
        ..NONE
    };
    all_right(&[Level::Raid1, Level::Raid10], Guard::Bitmap, trouble);
}

/// Failed members return while the set is in use or at the next start, and only the regions that they have
/// missed are rebuilt. This must be correct whatever a crash interrupts, and whichever member fails next.
#[test]
fn model_of_members_that_come_back() {
    let trouble = Trouble {
        crashes: true,
        failures: true,
        lost_members: true,
        comebacks: true,
        ..NONE
    };
    for trouble in [
        trouble,
        Trouble {
            crashes: false,
            lost_members: false,
            ..trouble
        },
    ] {
        all_right(&[Level::Raid1, Level::Raid10], Guard::Bitmap, trouble);
        all_right(
            &[Level::Raid1, Level::Raid10],
            Guard::Bitmap,
            Trouble {
                bad_sectors: true,
                ..trouble
            },
        );
        all_right(
            &[Level::Raid1, Level::Raid10],
            Guard::Bitmap,
            Trouble {
                corruption: true,
                ..trouble
            },
        );
    }
    // There is no crash, because after it parity may be inconsistent and cannot reconstruct a missing member.
    let trouble = Trouble {
        crashes: false,
        lost_members: false,
        ..trouble
    };
    all_right(&[Level::Raid5, Level::Raid6], Guard::Bitmap, trouble);
}

/// A member may read as written without being stable: after a failed flush of which the killed process has
/// left no record, a later power failure restores its old content.
#[test]
fn model_of_a_bitmap_with_killed_processes_and_failed_flushes() {
    let trouble = Trouble {
        crashes: true,
        kills: true,
        ..NONE
    };
    all_right(
        &[Level::Raid1, Level::Raid10, Level::Raid5, Level::Raid6],
        Guard::Bitmap,
        trouble,
    );
    let trouble = Trouble {
        failures: true,
        lost_members: true,
        ..trouble
    };
    all_right(&[Level::Raid1, Level::Raid10], Guard::Bitmap, trouble);
    all_right(
        &[Level::Raid1, Level::Raid10],
        Guard::Bitmap,
        Trouble {
            comebacks: true,
            ..trouble
        },
    );
    all_right(
        &[Level::Raid1, Level::Raid10],
        Guard::Bitmap,
        Trouble {
            corruption: true,
            ..trouble
        },
    );
    all_right(
        &[Level::Raid1, Level::Raid10],
        Guard::Bitmap,
        Trouble {
            bad_sectors: true,
            ..trouble
        },
    );
}

/// Likewise, a record may be read from the journal without being stable.
#[test]
fn model_of_a_journal_with_killed_processes_and_failed_flushes() {
    let trouble = Trouble {
        crashes: true,
        kills: true,
        failures: true,
        lost_members: true,
        ..NONE
    };
    for guard in [Guard::Journal, Guard::JournalDisk] {
        all_right(&[Level::Raid5, Level::Raid6], guard, trouble);
        all_right(
            &[Level::Raid5, Level::Raid6],
            guard,
            Trouble {
                corruption: true,
                ..trouble
            },
        );
        all_right(
            &[Level::Raid5, Level::Raid6],
            guard,
            Trouble {
                bad_sectors: true,
                ..trouble
            },
        );
    }
}

#[test]
fn model_of_parity_with_a_bitmap_and_crashes() {
    let trouble = Trouble {
        crashes: true,
        ..NONE
    };
    all_right(&[Level::Raid5, Level::Raid6], Guard::Bitmap, trouble);
}

/// Seeds that found bugs in the past:
///
/// - A replayed record undid a rebuild.
/// - A replayed clear reached a member that did not have the stripe.
/// - A record omitted a member whose failure was not recorded yet.
/// - A replayed full-stripe record computed parity that no member had when it was written, over rebuilt blocks.
#[test]
fn model_of_seeds_that_found_faults() {
    let trouble = Trouble {
        crashes: true,
        failures: true,
        lost_members: true,
        ..NONE
    };
    for (level, seed) in [
        (Level::Raid5, 55),
        (Level::Raid5, 350),
        (Level::Raid6, 8754),
        (Level::Raid5, 343),
        (Level::Raid5, 321),
        (Level::Raid5, 153),
    ] {
        assert_eq!(
            case(level, Guard::Journal, trouble, seed),
            Ok(()),
            "{level}, seed {seed}"
        );
    }
}

/// Crashes after each poll of some requests, and so at every point of every write.
#[test]
fn model_of_a_crash_at_every_point() {
    let levels = [
        (Level::Raid1, Guard::Bitmap),
        (Level::Raid10, Guard::Bitmap),
        (Level::Raid5, Guard::Journal),
        (Level::Raid6, Guard::Journal),
        (Level::Raid5, Guard::JournalDisk),
        (Level::Raid6, Guard::JournalDisk),
    ];
    let trouble = Trouble {
        lost_members: true,
        ..NONE
    };
    for (level, guard) in levels {
        for (corruption, kills) in [(false, false), (true, false), (false, true)] {
            all_right_at_every_point(
                level,
                guard,
                Trouble {
                    corruption,
                    kills,
                    ..trouble
                },
            );
        }
    }
    for level in [Level::Raid5, Level::Raid6] {
        all_right_at_every_point(
            level,
            Guard::Bitmap,
            Trouble {
                kills: true,
                ..NONE
            },
        );
    }
}

fn all_right_at_every_point(level: Level, guard: Guard, trouble: Trouble) {
    // A record that is only in the cache is lost in the middle of its replay only in a few of the cases.
    let seeds = if trouble.kills { 15 } else { 2 };
    for seed in 0..number("RAID_CASES").map_or(seeds, |cases| cases.div_ceil(100)) {
        let cases =
            (0..).map_while(|polls| Some((polls, crash_at(level, guard, trouble, seed, polls)?)));
        let fault = cases
            .into_iter()
            .find_map(|(polls, result)| Some((polls, result.err()?)));
        assert_eq!(fault, None, "{level}, {guard:?}, {trouble:?}, seed {seed}");
    }
}

#[test]
fn model_of_corrupt_blocks_with_checksums() {
    let trouble = Trouble {
        crashes: true,
        failures: true,
        lost_members: true,
        corruption: true,
        ..NONE
    };
    all_right(&[Level::Raid5, Level::Raid6], Guard::Journal, trouble);
    all_right(&[Level::Raid1, Level::Raid10], Guard::Bitmap, trouble);
}

/// Sectors go bad, possibly more per stripe than the set can reconstruct, while members fail or are lost and
/// the set crashes. Reads must return the written data or a medium error, rebuilds must complete, and new
/// writes must persist.
#[test]
fn model_of_bad_sectors() {
    let trouble = Trouble {
        crashes: true,
        failures: true,
        lost_members: true,
        corruption: false,
        bad_sectors: true,
        ..NONE
    };
    for trouble in [
        trouble,
        Trouble {
            crashes: false,
            lost_members: false,
            ..trouble
        },
    ] {
        all_right(&[Level::Raid5, Level::Raid6], Guard::Journal, trouble);
        all_right(&[Level::Raid1, Level::Raid10], Guard::Bitmap, trouble);
    }
    all_right(&[Level::Raid5, Level::Raid6], Guard::JournalDisk, trouble);
    // Without a journal, parity may be inconsistent after a crash, so no member may be missing then.
    all_right(
        &[Level::Raid5, Level::Raid6],
        Guard::Bitmap,
        Trouble {
            failures: false,
            lost_members: false,
            ..trouble
        },
    );
}

/// If a member that lost its cache is read before it is queried, the check must detect stale data.
#[test]
fn model_of_members_that_hide_their_doubt_finds_old_data() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10] {
        let hidden = Trouble {
            failures: true,
            hides_doubt: true,
            ..NONE
        };
        // A mirror has several members to choose from, so stale blocks are seldom read.
        let fault = (0..1_000).find_map(|seed| case(level, Guard::Nothing, hidden, seed).err());
        let fault = fault.unwrap_or_else(|| panic!("{level}: no fault"));
        assert!(
            fault.contains(" in it, not of ") || fault.contains("Mismatch"),
            "{fault}"
        );
    }
}

/// If no bitmap marks copies that differ, the check must detect them.
#[test]
fn model_without_a_bitmap_finds_copies_that_differ_after_a_crash() {
    let fault = first_fault(
        Level::Raid1,
        Guard::Nothing,
        Trouble {
            crashes: true,
            ..NONE
        },
    );
    assert!(fault.is_some_and(|fault| fault.contains("Mismatch") || fault.contains("has")));
}

/// If the write hole is not closed, the check must detect it.
#[test]
fn model_without_a_journal_finds_garbage_after_a_crash_and_a_lost_member() {
    let trouble = Trouble {
        crashes: true,
        lost_members: true,
        ..NONE
    };
    for level in [Level::Raid5, Level::Raid6] {
        let fault = first_fault(level, Guard::Bitmap, trouble).expect("a fault");
        assert!(fault.contains("garbage"), "{fault}");
    }
}
