use block::BlockSize;
use crc_fast::crc32_iscsi;
use proptest::prelude::*;

use super::{newer, *};

pub(crate) fn uuid(number: u8) -> Uuid {
    Uuid([number; 16])
}

/// Creates the record of a set with members 1, 2, … and no spares, each with 4 MiB of data.
pub(crate) fn set(level: Level, members: u8) -> SetRecord {
    let record = |number| MemberRecord::new(uuid(number), MemberState::InSync);
    SetRecord {
        uuid: uuid(0xaa),
        name: "backup".to_owned(),
        generation: 7,
        level,
        strip_bytes: 64 << 10,
        block_size: BlockSize::B512,
        areas: Areas::plan(5 << 20, 128 << 10, 4096, 0).expect("room"),
        journal_device: None,
        area_copies: area_copies(level, usize::from(members)) as u16,
        region_stripes: 16,
        in_use_from: 0,
        missed_from: 0,
        clean: true,
        members: (1..=members).map(record).collect(),
        spares: Vec::new(),
        scrub: None,
        lost: LostBlocks::default(),
    }
}

pub(crate) fn superblock(set: &SetRecord, member: u8) -> Superblock {
    Superblock {
        set: set.clone(),
        member: uuid(member),
    }
}

/// Creates a slot that starts with these bytes.
fn slot(bytes: &[u8]) -> Vec<u8> {
    let mut slot = vec![0; SLOT_BYTES as usize];
    slot[..bytes.len()].copy_from_slice(bytes);
    slot
}

/// Adds a matching checksum to bytes with any content.
fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[12..16].fill(0);
    let sum = crc32_iscsi(&bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Checks the table of docs/raid-format.md, written out by hand.
#[test]
fn the_bytes_are_those_of_the_document() {
    let mut record = set(Level::Raid6, 4);
    record.members[2].state = MemberState::Rebuilding { done: 0x0102 };
    record.spares.push(uuid(9));
    record.scrub = Some(ScrubRecord {
        repairs: true,
        has_ended: false,
        stripes: 0x0203,
        degraded: 1,
        unreadable: 2,
        mismatches: 3,
        repaired: 4,
        wrong_blocks: vec![0, 0, 0x0405, 0],
    });
    let bytes = superblock(&record, 3).emit();
    assert_eq!(bytes.len(), 320 + 5 * 32);
    assert_eq!(&bytes[..12], b"LNRTRAID\x01\0\0\0");
    assert_eq!(&bytes[16..24], [0xe0, 1, 0, 0, 1, 0, 0, 0]);
    assert_eq!(&bytes[24..32], [7, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        (&bytes[32..48], &bytes[48..64], &bytes[64..80]),
        (&[0xaa; 16][..], &[3; 16][..], &[0; 16][..])
    );
    assert_eq!(
        &bytes[80..104],
        [
            6, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 4, 0, 1, 0, 3, 0, 0, 0
        ]
    );
    assert_eq!(&bytes[232..240], [16, 0, 0, 0, 0, 0, 0, 0]);
    // 4 MiB of data at offset 1 MiB; the bitmap follows the slots, and the journal follows the bitmap.
    let areas = [
        (104, 1 << 20, 4 << 20),
        (120, 256 << 10, 128 << 10),
        (136, 192 << 10, 64 << 10),
        (152, 0, 0),
    ];
    for (at, offset, length) in areas {
        assert_eq!(bytes[at..at + 8], u64::to_le_bytes(offset));
        assert_eq!(bytes[at + 8..at + 16], u64::to_le_bytes(length));
    }
    assert_eq!(&bytes[168..176], b"backup\0\0");
    let third = &bytes[320 + 64..320 + 96];
    assert_eq!(
        (&third[..16], &third[16..32]),
        (
            &[3; 16][..],
            &[2, 0, 0, 0, 5, 4, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0][..]
        )
    );
    assert_eq!(
        bytes[248..264],
        [3, 0, 0, 0, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 0, 0]
    );
    for (at, number) in [(264, 1), (272, 2), (280, 3), (288, 4)] {
        assert_eq!(bytes[at..at + 8], u64::to_le_bytes(number));
    }
    // A superblock as written by a program that does not support scrub records.
    let mut old = bytes.clone();
    old[248..296].fill(0);
    old[320 + 64 + 20..320 + 64 + 24].fill(0);
    let (read, _) = newer(&slot(&summed(old)), &slot(&[])).expect("a superblock");
    assert_eq!(
        read.set,
        SetRecord {
            scrub: None,
            ..record.clone()
        }
    );
    record.scrub = record.scrub.map(|scrub| ScrubRecord {
        has_ended: true,
        repairs: false,
        ..scrub
    });
    assert_eq!(superblock(&record, 3).emit()[248], 5);
    assert_eq!(&bytes[320 + 128..320 + 144], [9; 16]);
}

#[test]
fn the_newer_slot_counts_and_a_torn_one_does_not() {
    let old = set(Level::Raid1, 2);
    let states = MemberStates {
        members: vec![MemberState::InSync, MemberState::Failed],
        ..old.states()
    };
    let new = old.next(&states, false);
    assert_eq!((new.generation, new.clean), (8, false));
    let (old_slot, new_slot) = (
        slot(&superblock(&old, 1).emit()),
        slot(&superblock(&new, 1).emit()),
    );
    assert_eq!(
        newer(&old_slot, &new_slot),
        Ok((superblock(&new, 1), Slot::Second))
    );
    assert_eq!(
        newer(&new_slot, &old_slot),
        Ok((superblock(&new, 1), Slot::First))
    );
    let empty = slot(&[]);
    assert_eq!(
        newer(&old_slot, &empty),
        Ok((superblock(&old, 1), Slot::First))
    );
    // A write over the older record that is torn at each byte.
    for end in 1..superblock(&new, 1).emit().len() {
        let mut torn = empty.clone();
        torn[..end].copy_from_slice(&new_slot[..end]);
        let found = newer(&old_slot, &torn);
        let is_whole = torn == new_slot;
        assert_eq!(
            found.map(|(found, _)| found.set.generation),
            Ok(if is_whole { 8 } else { 7 }),
            "{end}"
        );
    }
    let mut damaged = new_slot.clone();
    damaged[200] ^= 1;
    assert_eq!(newer(&damaged, &damaged), Err(NoSuperblock::Torn));
    assert_eq!(newer(&empty, &empty), Err(NoSuperblock::Foreign));
}

#[test]
fn what_is_not_certain_is_no_superblock() {
    let record = set(Level::Raid5, 3);
    let good = slot(&superblock(&record, 1).emit());
    let other_set = slot(
        &superblock(
            &SetRecord {
                uuid: uuid(0xbb),
                generation: 8,
                ..record.clone()
            },
            1,
        )
        .emit(),
    );
    let other_member = slot(
        &superblock(
            &SetRecord {
                generation: 8,
                ..record.clone()
            },
            2,
        )
        .emit(),
    );
    for other in [&good, &other_set, &other_member] {
        assert_eq!(newer(&good, other), Err(NoSuperblock::Contradictory));
    }
    let mut newer_version = superblock(&record, 1).emit();
    newer_version[8] = 4;
    assert_eq!(
        newer(&slot(&newer_version), &good).map(|(_, slot)| slot),
        Ok(Slot::Second),
        "it is torn"
    );
    assert_eq!(
        newer(&slot(&summed(newer_version)), &good),
        Err(NoSuperblock::NewerVersion(4))
    );
    // A program without support for journal devices must not use a set with one. A set without one is written
    // as before.
    let on_device = superblock(
        &SetRecord {
            journal_device: Some(uuid(9)),
            ..record.clone()
        },
        1,
    )
    .emit();
    assert_eq!((on_device[8], superblock(&record, 1).emit()[8]), (2, 1));
    for (bytes, version) in [(on_device, 1), (superblock(&record, 1).emit(), 2)] {
        let mut other = bytes;
        other[8] = version;
        assert_eq!(
            newer(&slot(&summed(other)), &good),
            Err(NoSuperblock::WrongValue(64))
        );
    }
    // A program without support for lost blocks would read them, so it must not use the set until there are
    // none.
    let mut lost = record.clone();
    lost.lost.insert(2, 5..9);
    let with_lost = superblock(&lost, 1).emit();
    assert_eq!(
        (with_lost[8], with_lost[304], with_lost.len()),
        (3, 1, 320 + 3 * 32 + 24)
    );
    assert_eq!(
        newer(&slot(&with_lost), &slot(&[])).map(|(found, _)| found.set),
        Ok(lost)
    );
    for (bytes, version) in [(with_lost, 1), (superblock(&record, 1).emit(), 3)] {
        let mut other = bytes;
        other[8] = version;
        assert_eq!(
            newer(&slot(&summed(other)), &good),
            Err(NoSuperblock::WrongValue(304))
        );
    }
    let stranger = slot(&superblock(&record, 77).emit());
    assert_eq!(
        newer(&stranger, &good),
        Err(NoSuperblock::Wrong(BadRecord::NotInSet(uuid(77))))
    );
    let numbers = [
        (20, "flags"),
        (80, "level"),
        (84, "block size"),
        (248, "scrub"),
        (320 + 16, "state"),
    ];
    for (at, name) in numbers {
        let mut bytes = superblock(&record, 1).emit();
        bytes[at] = 0x77;
        assert_eq!(
            newer(&slot(&summed(bytes)), &good),
            Err(NoSuperblock::WrongValue(at)),
            "{name}"
        );
    }
}

#[test]
fn a_record_that_cannot_be_is_refused() {
    let good = set(Level::Raid5, 3);
    let refused = |change: &dyn Fn(&mut SetRecord)| {
        let mut record = good.clone();
        change(&mut record);
        record.check().expect_err("a broken rule").to_string()
    };
    assert_eq!(good.check(), Ok(()));
    assert!(refused(&|set| set.members.truncate(2)).contains("at least 3 members"));
    assert!(refused(&|set| set.strip_bytes = 5000).contains("power of two"));
    assert!(refused(&|set| set.areas.data.offset += 512).contains("not a multiple of 1 MiB"));
    assert!(refused(&|set| set.areas.journal.offset = SLOT_BYTES).contains("is not valid"));
    assert!(
        refused(&|set| set.areas.journal.offset = set.areas.bitmap.offset).contains("is not valid")
    );
    assert!(refused(&|set| set.areas.bitmap.bytes = 100).contains("is not valid"));
    assert!(
        refused(&|set| set.areas.checksums = Area {
            offset: u64::MAX - 511,
            bytes: 512
        })
        .contains("is not valid")
    );
    assert!(refused(&|set| set.area_copies = 1).contains("too few"));
    assert!(refused(&|set| set.area_copies = 4).contains("more than members"));
    assert!(refused(&|set| set.journal_device = Some(uuid(2))).contains("twice"));
    let without_area = |set: &mut SetRecord| {
        set.journal_device = Some(uuid(9));
        set.areas.journal = Area::default();
    };
    assert!(refused(&without_area).contains("without an area"));
    assert!(refused(&|set| set.spares.push(uuid(2))).contains("twice"));
    assert!(refused(&|set| set.name = "a\nb".to_owned()).contains("control"));
    assert!(refused(&|set| set.name = "x".repeat(65)).contains("at most 64"));
    assert!(
        refused(&|set| set.spares = (100..200).map(uuid).collect()).contains("at most 64 spares")
    );
    assert_eq!(Areas::plan(1 << 20, 0, 0, 0), None);
    assert_eq!(Areas::plan(u64::MAX, u64::MAX, 0, 0), None);
}

fn records() -> impl Strategy<Value = Superblock> {
    let levels = [
        Level::Raid0,
        Level::Raid1,
        Level::Raid5,
        Level::Raid6,
        Level::Raid10,
    ];
    let state = prop_oneof![
        Just(MemberState::InSync),
        any::<u64>().prop_map(|done| MemberState::Rebuilding { done }),
        Just(MemberState::Failed),
    ];
    let members = prop::collection::vec(state, 4..40);
    (
        proptest::sample::select(levels.to_vec()),
        members,
        0..8u8,
        (
            any::<(bool, bool)>(),
            prop::option::of(any::<((bool, bool), [u64; 5], u32)>()),
        ),
        1..u64::MAX,
        "[a-zäß]{0,16}",
        (
            (0..1u64 << 30, 0..1u64 << 20, 0..1u64 << 20),
            prop::collection::vec((0..1u64 << 20, 1..9u64, any::<u8>()), 0..9),
        ),
    )
        .prop_map(
            |(
                level,
                members,
                spares,
                ((clean, has_journal), scrub),
                generation,
                name,
                (areas, lost),
            )| {
                let count = members.len() as u8;
                let mut record = set(level, count);
                record
                    .members
                    .iter_mut()
                    .zip(members)
                    .for_each(|(member, state)| member.state = state);
                record.spares = (0..spares).map(|spare| uuid(100 + spare)).collect();
                record.areas = Areas::plan(8 << 30, areas.0, areas.1, areas.2).expect("room");
                let can_have = level.parity_strips() > 0 && areas.0 > 0;
                record.journal_device = (has_journal && can_have).then(|| uuid(99));
                record.scrub = scrub.map(|((repairs, has_ended), numbers, wrong)| {
                    let [stripes, degraded, unreadable, mismatches, repaired] = numbers;
                    let wrong_blocks = (0..u32::from(count)).map(|member| wrong ^ member).collect();
                    ScrubRecord {
                        repairs,
                        has_ended,
                        stripes,
                        degraded,
                        unreadable,
                        mismatches,
                        repaired,
                        wrong_blocks,
                    }
                });
                for (start, blocks, member) in lost {
                    let last = record.areas.data.bytes >> record.block_size.shift();
                    record.lost.insert(
                        usize::from(member % count),
                        start..(start + blocks).min(last),
                    );
                }
                Superblock {
                    set: SetRecord {
                        generation,
                        clean,
                        name,
                        ..record
                    },
                    member: uuid(count),
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_written_is_read_back(written in records()) {
        prop_assert_eq!(written.set.check(), Ok(()));
        let bytes = slot(&written.emit());
        prop_assert_eq!(newer(&bytes, &slot(&[])), Ok((written, Slot::First)));
    }

    #[test]
    fn no_changed_byte_goes_unnoticed(written in records(), at: prop::sample::Index, change in 1..=255u8) {
        let mut bytes = written.emit();
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        prop_assert!(newer(&slot(&bytes), &slot(&[])).is_err(), "{at}");
    }

    /// Arbitrary content with a matching checksum.
    #[test]
    fn no_bytes_make_it_panic(
        written in records(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 1..9usize), 1..6),
        end: prop::sample::Index,
    ) {
        let mut bytes = written.emit();
        for (at, value, length) in changes {
            let at = at.index(bytes.len() - 8);
            bytes[at..at + length.min(8)].copy_from_slice(&value.to_le_bytes()[..length.min(8)]);
        }
        let _ = newer(&summed(bytes.clone()), &slot(&bytes));
        let end = end.index(bytes.len());
        let _ = newer(&bytes[..end], &[]);
        let mut shorter = bytes[..end.max(20)].to_vec();
        shorter[16..20].copy_from_slice(&(end.max(20) as u32).to_le_bytes());
        if let Ok((read, _)) = newer(&summed(shorter), &[]) {
            prop_assert_eq!(read.set.check(), Ok(()));
        }
    }
}

/// Whichever members are lost, a copy of the journal survives as long as the data does.
#[test]
fn a_copy_of_the_journal_is_left_as_long_as_the_data_are() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10] {
        for members in 4..8u8 {
            let layout = set(level, members).layout().expect("a layout");
            for lost in 0..1u32 << members {
                let lacking: Vec<bool> =
                    (0..members).map(|member| lost >> member & 1 == 1).collect();
                let copies = area_copies(level, usize::from(members));
                assert!(
                    !layout.survives(&lacking) || lacking[..copies].contains(&false),
                    "{level} {lacking:?}"
                );
            }
        }
    }
}
