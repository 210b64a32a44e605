use proptest::prelude::*;

use super::*;
use crate::layout::Level;
use crate::superblock::tests::{set, superblock, uuid};

/// Creates a disk that is the member with this number and contains this record.
fn disk(record: &SetRecord, member: u8) -> Candidate {
    Candidate {
        name: format!("disk{member}"),
        bytes: 5 << 20,
        block_bytes: 512,
        superblock: Ok(superblock(record, member)),
    }
}

fn foreign(reason: NoSuperblock) -> Candidate {
    Candidate {
        name: "/dev/sdx".to_owned(),
        bytes: 1 << 30,
        block_bytes: 512,
        superblock: Err(reason),
    }
}

/// Returns the next record, in which these members have failed.
fn failed(record: &SetRecord, members: &[usize]) -> SetRecord {
    let mut states = record.states();
    members
        .iter()
        .for_each(|member| states.members[*member] = MemberState::Failed);
    record.next(&states, false)
}

fn refusal(candidates: &[Candidate]) -> Refusal {
    only_set(candidates, Trust::CertainOnly, Journal::Needed).expect_err("a refusal")
}

#[test]
fn members_are_found_by_content_in_any_order() {
    let record = set(Level::Raid5, 4);
    let pile = [3, 1, 4, 2].map(|member| disk(&record, member));
    let found = only_set(&pile, Trust::CertainOnly, Journal::Needed).expect("all of it");
    assert_eq!(found.members, [Some(1), Some(3), Some(0), Some(2)]);
    assert!(!found.is_degraded() && found.left_out.is_empty());
}

#[test]
fn a_pile_has_several_sets_and_other_disks() {
    let one = set(Level::Raid1, 2);
    let mut two = set(Level::Raid0, 2);
    two.uuid = uuid(0xbb);
    two.members
        .iter_mut()
        .zip([50, 51])
        .for_each(|(member, number)| member.uuid = uuid(number));
    let pile = [
        disk(&two, 51),
        disk(&one, 1),
        foreign(NoSuperblock::Foreign),
        disk(&one, 2),
        disk(&two, 50),
    ];
    let found = find(&pile, Trust::CertainOnly);
    let members: Vec<_> = found
        .sets
        .iter()
        .map(|set| (set.members.clone(), set.refusal.clone()))
        .collect();
    assert_eq!(
        members,
        [
            (vec![Some(1), Some(3)], None),
            (vec![Some(4), Some(0)], None)
        ]
    );
    assert_eq!(found.others, [(2, NoSuperblock::Foreign)]);
    assert!(matches!(refusal(&pile), Refusal::NotAMember { .. }));
    let without = [pile[0].clone(), pile[1].clone()];
    assert!(
        refusal(&without)
            .to_string()
            .contains("to 2 sets (aaaaaaaa-aaaa-"),
        "{}",
        refusal(&without)
    );
    assert_eq!(refusal(&[]), Refusal::NoDisks);
}

#[test]
fn a_stale_member_is_left_out_and_its_data_are_not_used() {
    let before = set(Level::Raid5, 3);
    let after = failed(&before, &[1]);
    let found = only_set(
        &[disk(&after, 1), disk(&before, 2), disk(&after, 3)],
        Trust::CertainOnly,
        Journal::Needed,
    )
    .expect("degraded");
    assert_eq!(found.members, [Some(0), None, Some(2)]);
    assert_eq!(
        found.left_out,
        [(
            1,
            LeftOut::Stale {
                member: 1,
                found_generation: 7,
                newest: 8
            }
        )]
    );
    assert!(
        found.left_out[0]
            .1
            .to_string()
            .contains("until generation 7")
    );
    let refused = refusal(&[disk(&after, 1), disk(&before, 2)]);
    let said = refused.to_string();
    assert!(
        said.starts_with("RAID 5 is incomplete: member 1 (02020202-") && said.contains("is old"),
        "{said}"
    );
}

#[test]
fn a_member_that_missed_a_record_and_no_write_is_in_sync() {
    // The machine crashed after writing the record to the first member and before writing it to the second.
    let before = set(Level::Raid1, 2);
    let after = before.next(&before.states(), false);
    let found = only_set(
        &[disk(&before, 1), disk(&after, 2)],
        Trust::CertainOnly,
        Journal::Needed,
    )
    .expect("whole");
    assert_eq!(
        (found.members, found.record),
        (vec![Some(0), Some(1)], after)
    );
}

#[test]
fn a_replaced_member_is_told() {
    let before = set(Level::Raid1, 2);
    let mut after = before.next(&before.states(), false);
    after.members[1].uuid = uuid(9);
    let found = only_set(
        &[disk(&after, 1), disk(&before, 2), disk(&after, 9)],
        Trust::CertainOnly,
        Journal::Needed,
    )
    .expect("whole");
    assert_eq!(found.left_out, [(1, LeftOut::Replaced { newest: 8 })]);
    assert_eq!(found.members, [Some(0), Some(2)]);
}

#[test]
fn one_half_of_a_mirror_is_not_taken_for_the_newer_one() {
    let record = set(Level::Raid1, 2);
    let half = [disk(&record, 1)];
    let said = refusal(&half).to_string();
    assert!(
        said.contains("could have continued without")
            && said.contains("confirm that they are lost"),
        "{said}"
    );
    let found = only_set(&half, Trust::MembersFound, Journal::Needed).expect("confirmed");
    assert_eq!(
        found.states().members,
        [MemberState::InSync, MemberState::Failed]
    );
    // Two of three disks of a RAID 5 are certainly current, because the third cannot have continued alone.
    let record = set(Level::Raid5, 3);
    assert!(
        only_set(
            &[disk(&record, 1), disk(&record, 3)],
            Trust::CertainOnly,
            Journal::Needed
        )
        .expect("degraded")
        .is_degraded()
    );
    // One half of a mirror is certainly current if it records the other half as failed.
    let record = failed(&set(Level::Raid1, 2), &[1]);
    assert!(
        only_set(&[disk(&record, 1)], Trust::CertainOnly, Journal::Needed)
            .expect("degraded")
            .is_degraded()
    );
}

#[test]
fn two_halves_that_ran_apart_are_refused() {
    let before = set(Level::Raid1, 2);
    let (here, there) = (failed(&before, &[1]), failed(&before, &[0]));
    let same_generation = [disk(&here, 1), disk(&there, 2)];
    assert!(matches!(
        refusal(&same_generation),
        Refusal::TwoHistories { .. }
    ));
    let later = here.next(&here.states(), true);
    let said = refusal(&[disk(&later, 1), disk(&there, 2)]).to_string();
    assert!(
        said.contains("disk2 and the other disks of set") && said.contains("without each other"),
        "{said}"
    );
}

#[test]
fn copies_short_disks_and_other_blocks_are_refused() {
    let record = set(Level::Raid5, 3);
    let all = [disk(&record, 1), disk(&record, 2), disk(&record, 3)];
    let with = |candidate: Candidate| [&all[..], &[candidate]].concat();
    let copy = Candidate {
        name: "copy".to_owned(),
        ..disk(&record, 2)
    };
    let said = refusal(&with(copy)).to_string();
    assert!(
        said.starts_with("disk2 and copy are both member 02020202"),
        "{said}"
    );
    let short = [
        all[0].clone(),
        Candidate {
            bytes: (5 << 20) - 512,
            ..all[1].clone()
        },
        all[2].clone(),
    ];
    assert!(
        refusal(&short)
            .to_string()
            .contains("but had at least 5242880")
    );
    let other = [
        Candidate {
            block_bytes: 4096,
            ..all[0].clone()
        },
        all[1].clone(),
        all[2].clone(),
    ];
    assert!(
        refusal(&other)
            .to_string()
            .contains("4096-byte blocks, but had 512-byte blocks")
    );
    let reasons = [
        (NoSuperblock::Foreign, "no Linerate RAID superblock"),
        (
            NoSuperblock::Torn,
            "both copies of its superblock are damaged",
        ),
        (
            NoSuperblock::NewerVersion(2),
            "a newer version of Linerate wrote",
        ),
        (NoSuperblock::Contradictory, "different sets or members"),
    ];
    for (reason, says) in reasons {
        assert!(
            refusal(&with(foreign(reason))).to_string().contains(says),
            "{reason:?}"
        );
    }
}

#[test]
fn a_disk_that_does_not_answer_is_missing() {
    let silent = foreign(NoSuperblock::Unreadable(block::DeviceError::NotReady));
    let record = set(Level::Raid5, 3);
    let degraded = [disk(&record, 1), silent.clone(), disk(&record, 3)];
    assert_eq!(
        only_set(&degraded, Trust::CertainOnly, Journal::Needed)
            .expect("degraded")
            .members,
        [Some(0), None, Some(2)]
    );
    let record = set(Level::Raid1, 2);
    assert!(matches!(
        refusal(&[disk(&record, 1), silent.clone()]),
        Refusal::NewerMayExist { .. }
    ));
    assert!(refusal(&[silent]).to_string().contains("could not be read"));
}

#[test]
fn two_sets_must_not_claim_one_disk() {
    let one = set(Level::Raid1, 2);
    let other = SetRecord {
        uuid: uuid(0xbb),
        ..one.clone()
    };
    let found = find(&[disk(&one, 1), disk(&other, 2)], Trust::MembersFound);
    assert!(
        found
            .sets
            .iter()
            .all(|set| matches!(set.refusal, Some(Refusal::ClaimedTwice { .. })))
    );
    let said = found.sets[0].refusal.as_ref().expect("refused").to_string();
    assert!(
        said.contains("is in set aaaaaaaa-") && said.contains("and in set bbbbbbbb-"),
        "{said}"
    );
}

#[test]
fn lost_strips_are_not_computed_from_stripes_that_may_be_incomplete() {
    let mut record = set(Level::Raid5, 3);
    record.clean = false;
    let two = |record: &SetRecord| [disk(record, 1), disk(record, 2)];
    assert!(
        only_set(&two(&record), Trust::CertainOnly, Journal::Needed).is_ok(),
        "the journal completes them"
    );
    record.areas.journal.bytes = 0;
    assert!(
        only_set(&two(&record), Trust::CertainOnly, Journal::Needed).is_ok(),
        "the bitmap says where"
    );
    record.areas.bitmap.bytes = 0;
    assert!(matches!(
        refusal(&two(&record)),
        Refusal::DirtyAndDegraded { .. }
    ));
    record.clean = true;
    assert!(only_set(&two(&record), Trust::CertainOnly, Journal::Needed).is_ok());
    record.journal_device = Some(uuid(9));
    record.areas.journal.bytes = 64 << 10;
    let said = refusal(&two(&record)).to_string();
    assert!(
        said.contains("the device with the journal is missing"),
        "{said}"
    );
    let with_journal = [&two(&record)[..], &[disk(&record, 9)]].concat();
    assert_eq!(
        only_set(&with_journal, Trust::CertainOnly, Journal::Needed)
            .expect("degraded")
            .journal,
        Some(2)
    );
}

/// An event in a set's life.
#[derive(Clone, Debug)]
enum Happening {
    /// A write that reaches all members except the failed ones.
    Write,
    /// A member is lost, and returns later with its old content.
    Fail(usize),
    /// A failed member is rebuilt.
    Rebuild(usize),
    /// A record reaches only the first N members before the machine crashes.
    Crash(usize),
}

fn happenings(members: usize) -> impl Strategy<Value = Vec<Happening>> {
    let happening = prop_oneof![
        3 => Just(Happening::Write),
        3 => (0..members).prop_map(Happening::Fail),
        1 => (0..members).prop_map(Happening::Rebuild),
        1 => (0..=members).prop_map(Happening::Crash),
    ];
    prop::collection::vec(happening, 0..12)
}

/// The disks of a set, each with the number of the last write that it contains.
struct World {
    record: SetRecord,
    on_disks: Vec<SetRecord>,
    written: Vec<u64>,
    acknowledged: u64,
}

impl World {
    fn new(level: Level, members: u8) -> World {
        let record = set(level, members);
        let members = usize::from(members);
        World {
            on_disks: vec![record.clone(); members],
            record,
            written: vec![0; members],
            acknowledged: 0,
        }
    }

    /// Writes a record of the set to the members that are in sync.
    fn record(&mut self, record: SetRecord) {
        self.record = record;
        for (disk, member) in self.on_disks.iter_mut().zip(&self.record.members) {
            if member.state == MemberState::InSync {
                disk.clone_from(&self.record);
            }
        }
    }

    fn happens(&mut self, happening: &Happening) {
        match *happening {
            Happening::Write => {
                self.acknowledged += 1;
                for (written, member) in self.written.iter_mut().zip(&self.record.members) {
                    if member.state == MemberState::InSync {
                        *written = self.acknowledged;
                    }
                }
            }
            Happening::Fail(member) => {
                let next = failed(&self.record, &[member]);
                let layout = next.layout().expect("a layout");
                if layout.survives(&next.states().lacking()) {
                    self.record(next);
                }
            }
            Happening::Rebuild(member) => {
                let mut states = self.record.states();
                states.members[member] = MemberState::InSync;
                self.written[member] = self.acknowledged;
                self.record(self.record.next(&states, false));
            }
            Happening::Crash(members) => {
                let next = self.record.next(&self.record.states(), false);
                for (disk, member) in self.on_disks.iter_mut().zip(&next.members).take(members) {
                    if member.state == MemberState::InSync {
                        disk.clone_from(&next);
                    }
                }
                self.record = next;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever has happened, and whichever disks are found in whatever order: if a set starts, it has all
    /// acknowledged writes, and reads only members that have them.
    #[test]
    fn no_old_data_are_read(
        (level, members) in prop::sample::select(vec![
            (Level::Raid0, 2u8), (Level::Raid1, 2), (Level::Raid1, 3), (Level::Raid5, 3), (Level::Raid5, 5),
            (Level::Raid6, 4), (Level::Raid6, 6), (Level::Raid10, 4), (Level::Raid10, 5),
        ]),
        happened in happenings(6),
        present in prop::collection::vec(any::<bool>(), 6),
        order in any::<u64>(),
    ) {
        let count = usize::from(members);
        let mut world = World::new(level, members);
        for happening in &happened {
            let is_about_a_member = match happening {
                Happening::Fail(member) | Happening::Rebuild(member) => *member < count,
                Happening::Crash(members) => *members <= count,
                Happening::Write => true,
            };
            if is_about_a_member {
                world.happens(happening);
            }
        }
        let mut pile: Vec<Candidate> = (0..count)
            .filter(|member| present[*member])
            .map(|member| disk(&world.on_disks[member], member as u8 + 1))
            .collect();
        if !pile.is_empty() {
            let turn = (order % pile.len() as u64) as usize;
            pile.rotate_left(turn);
        }
        let Ok(found) = only_set(&pile, Trust::CertainOnly, Journal::Needed) else { return Ok(()) };
        for (member, disk) in found.members.iter().enumerate() {
            if let Some(disk) = disk {
                prop_assert_eq!(&pile[*disk].name, &format!("disk{}", member + 1));
                prop_assert_eq!(world.written[member], world.acknowledged, "member {} is old", member);
            }
        }
        let layout = found.record.layout().expect("a layout");
        prop_assert!(layout.survives(&found.states().lacking()));
    }

    /// If all disks are present, and the set has never lost more members than its level survives, the set
    /// starts.
    #[test]
    fn a_set_that_is_whole_is_started(happened in happenings(5)) {
        let mut world = World::new(Level::Raid6, 5);
        happened.iter().for_each(|happening| world.happens(happening));
        let pile: Vec<Candidate> = (0..5).map(|member| disk(&world.on_disks[member], member as u8 + 1)).collect();
        match only_set(&pile, Trust::CertainOnly, Journal::Needed) {
            Ok(found) => prop_assert_eq!(found.record.generation, world.on_disks.iter().map(|set| set.generation).max().expect("disks")),
            Err(Refusal::TwoHistories { .. }) => {
                // A set is refused only if a disk failed while another disk, which has since been rebuilt,
                // had already failed. The refusal includes a remedy.
                let rebuilt = happened.iter().any(|happening| matches!(happening, Happening::Rebuild(_)));
                prop_assert!(rebuilt);
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
