use block::BlockSize;
use proptest::prelude::*;
use testkit::{TestDisk, ready};

use super::*;
use crate::choose::{FoundSet, Journal, LeftOut, Refusal, Trust, only_set};
use crate::layout::Level;
use crate::superblock::tests::{set, uuid};

const DISK_BYTES: usize = 5 << 20;

/// Creates a disk with old content.
fn memory(block_size: BlockSize) -> Arc<TestDisk> {
    let disk = TestDisk::new(block_size, DISK_BYTES as u64 >> block_size.shift());
    disk.with_bytes(|bytes| bytes.fill(0x55));
    Arc::new(disk.with_profile(|profile| (profile.thin, profile.durable) = (false, false)))
}

/// A new set of memory disks.
struct Scene {
    memory: Vec<Arc<TestDisk>>,
    disks: Vec<Disk>,
}

impl Scene {
    fn new(level: Level, members: u8) -> Scene {
        Scene::with_record(&set(level, members))
    }

    fn with_record(record: &SetRecord) -> Scene {
        let count = record.uuids().count();
        let memory: Vec<_> = (0..count).map(|_| memory(record.block_size)).collect();
        let disk = |(index, device): (usize, &Arc<TestDisk>)| Disk {
            name: format!("disk{index}"),
            device: Arc::clone(device) as Arc<dyn BlockDevice>,
        };
        let disks: Vec<Disk> = memory.iter().enumerate().map(disk).collect();
        ready(create(record, &disks)).expect("a new set");
        Scene { memory, disks }
    }

    fn found(&self) -> Result<FoundSet, Refusal> {
        only_set(
            &ready(look_at(&self.disks)),
            Trust::CertainOnly,
            Journal::Needed,
        )
    }

    fn opened(&self) -> OpenSet {
        open(&self.found().expect("a set that starts"), &self.disks).expect("its parts")
    }
}

#[test]
fn what_was_created_is_put_together_in_any_order() {
    for block_size in [
        BlockSize::B512,
        BlockSize::B4096,
        BlockSize::new(65_536).expect("a size"),
    ] {
        let record = SetRecord {
            block_size,
            ..set(Level::Raid5, 3)
        };
        let mut scene = Scene::with_record(&record);
        scene.disks.rotate_left(1);
        let OpenSet {
            members,
            states,
            layout,
            records,
            ..
        } = scene.opened();
        assert_eq!(states, MemberStates::in_sync(3));
        assert_eq!(
            records.set(),
            SetRecord {
                generation: 1,
                ..record
            }
        );
        let parts = members[0].as_ref().expect("there");
        assert!(parts.data.device().geometry().blocks >= layout.member_blocks());
        assert_eq!(
            parts
                .journal
                .as_ref()
                .expect("a journal")
                .geometry()
                .bytes(),
            128 << 10
        );
        // The first block of member 0's data is at 1 MiB of the first disk.
        let block = Buffer::zeroed(block_size.bytes() as usize).share();
        ready(
            parts
                .data
                .device()
                .write(Extent::new(0, 1), block, Durability::Cached),
        )
        .expect("written");
        let bytes = scene.memory[0].contents();
        assert_eq!(
            (
                bytes[(1 << 20) - 1],
                bytes[1 << 20],
                bytes[(1 << 20) + 65_536]
            ),
            (0, 0, 0x55)
        );
    }
}

#[test]
fn a_failed_member_is_remembered_without_it() {
    let scene = Scene::new(Level::Raid5, 3);
    let records = scene.opened().records;
    ready(records.start(&MemberStates::in_sync(3))).expect("started");
    let mut states = MemberStates::in_sync(3);
    states.members[1] = MemberState::Failed;
    scene.memory[1].tear_after(Some(0));
    ready(records.record(&states)).expect("recorded on the others");
    let found = scene.found().expect("degraded");
    assert_eq!((found.states(), found.members[1]), (states, None));
    assert!(!found.record.clean);
    ready(records.close()).expect("closed");
    assert!(scene.found().expect("degraded").record.clean);
}

#[test]
fn a_record_that_too_few_members_have_is_an_error() {
    let scene = Scene::new(Level::Raid5, 3);
    let records = scene.opened().records;
    ready(records.start(&MemberStates::in_sync(3))).expect("started");
    scene.memory[0].tear_after(Some(0));
    scene.memory[2].tear_after(Some(100));
    let result = ready(records.record(&MemberStates::in_sync(3)));
    assert!(
        matches!(result, Err(DeviceError::Unwritable(_))),
        "{result:?}"
    );
}

/// Creates a set whose last disk contains the journal and has exactly its length.
fn with_journal_device() -> (SetRecord, Scene) {
    let record = SetRecord {
        journal_device: Some(uuid(9)),
        ..set(Level::Raid5, 3)
    };
    (record.clone(), Scene::with_record(&record))
}

#[test]
fn a_journal_on_a_device_of_its_own_is_found_by_content_and_needs_no_more_room_than_it_has() {
    let (record, mut scene) = with_journal_device();
    let end = record.areas.journal_end();
    let part = |blocks| {
        Part::new(
            Arc::clone(&scene.memory[3]) as Arc<dyn BlockDevice>,
            Extent::new(0, blocks),
        )
    };
    let (fits, short) = (
        part(end >> 9).expect("a part"),
        part((end >> 9) - 1).expect("a part"),
    );
    scene.disks[3].device = Arc::new(short);
    assert!(
        matches!(scene.found(), Err(Refusal::TooSmall { needed, .. }) if needed == end),
        "{:?}",
        scene.found()
    );
    scene.disks[3].device = Arc::new(fits);
    scene.disks.rotate_left(2);
    let parts = scene.opened();
    assert_eq!(
        parts
            .journal
            .as_ref()
            .expect("its device")
            .geometry()
            .bytes(),
        record.areas.journal.bytes
    );
    let ProtectionAreas::Journal(copies) = parts.protection() else {
        panic!("no journal")
    };
    let members: Vec<_> = copies.iter().map(|copy| copy.member).collect();
    assert_eq!(
        members,
        [Some(0), Some(1), None],
        "with areas of members in reserve"
    );
    let zeros = scene.memory[3].contents()[192 << 10..end as usize]
        .iter()
        .all(|byte| *byte == 0);
    assert!(zeros, "no journal of before is found");
}

#[test]
fn an_old_copy_of_the_journal_and_none_are_refused_and_it_can_be_given_up() {
    let (_, mut scene) = with_journal_device();
    let states = MemberStates::in_sync(3);
    ready(scene.opened().records.start(&states)).expect("started");
    let old = scene.memory[3].contents();
    let records = scene.opened().records;
    ready(records.start(&states)).expect("started again");
    let is = scene.memory[3].contents();
    scene.memory[3].with_bytes(|bytes| bytes.copy_from_slice(&old));
    let said = scene.found().expect_err("an old copy").to_string();
    assert!(
        said.contains("an old copy of it") && said.contains("would be lost"),
        "{said}"
    );
    scene.memory[3].with_bytes(|bytes| bytes.copy_from_slice(&is));
    assert_eq!(scene.found().expect("it is there").journal, Some(3));
    // First with a copy in addition to the journal disk, then without either.
    scene.disks.push(scene.disks[3].clone());
    assert!(matches!(scene.found(), Err(Refusal::Duplicate { .. })));
    scene.disks.truncate(3);
    assert!(matches!(
        scene.found(),
        Err(Refusal::NoJournal {
            clean: false,
            is_old: false
        })
    ));
    ready(records.close()).expect("closed");
    let said = scene.found().expect_err("none").to_string();
    assert!(said.contains("the journal contains no data"), "{said}");
    let candidates = ready(look_at(&scene.disks));
    let found = only_set(&candidates, Trust::CertainOnly, Journal::Lost).expect("without it");
    assert_eq!(found.record.journal_device, None);
    // `Journal::Lost` does not override the refusal because of missing members.
    let few = only_set(&candidates[..1], Trust::CertainOnly, Journal::Lost);
    assert!(
        matches!(few, Err(Refusal::TooManyLacking { .. })),
        "{few:?}"
    );
}

#[test]
fn a_journal_that_moves_to_the_members_leaves_its_device_behind() {
    let (_, scene) = with_journal_device();
    let records = scene.opened().records;
    ready(records.start(&MemberStates::in_sync(3))).expect("started");
    scene.memory[3].tear_after(Some(0));
    ready(records.journal_on_members()).expect("recorded on the members");
    scene.memory[3].tear_after(None);
    let found = scene.found().expect("it starts");
    assert_eq!((found.record.journal_device, found.journal), (None, None));
    assert!(
        matches!(found.left_out[..], [(3, LeftOut::FormerJournal { .. })]),
        "{:?}",
        found.left_out
    );
    assert!(
        scene.memory[0].contents()[64 << 10..].starts_with(b"LNRTRAID\x01")
            || scene.memory[0].contents()[128 << 10..].starts_with(b"LNRTRAID\x01")
    );
    let ProtectionAreas::Journal(copies) = scene.opened().protection() else {
        panic!("no journal")
    };
    assert_eq!(
        copies
            .iter()
            .filter_map(|copy| copy.member)
            .collect::<Vec<_>>(),
        [0, 1]
    );
}

#[test]
fn a_set_whose_journal_another_host_has_taken_over_records_nothing() {
    let (_, scene) = with_journal_device();
    let records = scene.opened().records;
    scene.memory[3].fail_writes(Some(DeviceError::Fenced));
    assert_eq!(
        ready(records.start(&MemberStates::in_sync(3))),
        Err(DeviceError::Fenced)
    );
    assert!(records.is_taken_over());
}

#[test]
fn a_member_that_fails_while_the_record_of_missed_regions_ends_is_known_since_when() {
    let scene = Scene::new(Level::Raid1, 2);
    let records = scene.opened().records;
    ready(records.start(&MemberStates::in_sync(2))).expect("started");
    let mut states = MemberStates::in_sync(2);
    states.members[1] = MemberState::Failed;
    ready(records.record(&states)).expect("recorded");
    // All members were in sync at that point.
    ready(records.missed_is_noted(false)).expect("recorded");
    ready(records.missed_is_noted(true)).expect("recorded");
    assert!(scene.found().expect("a set").record.missed_from > 0);
}

#[test]
fn a_replacement_is_not_covered_by_the_missed_regions_of_the_member_before_it() {
    for torn in [true, false] {
        let scene = Scene::new(Level::Raid1, 3);
        let records = scene.opened().records;
        ready(records.start(&MemberStates::in_sync(3))).expect("started");
        let mut states = MemberStates::in_sync(3);
        (states.members[1], states.members[2]) = (MemberState::Failed, MemberState::Failed);
        ready(records.record(&states)).expect("recorded");
        assert_eq!(ready(records.missed_is_noted(true)), Ok(true));
        // If the write was torn, the remaining member's superblock does not record the replacement.
        scene.memory[0].tear_after(torn.then_some(100));
        let disk = memory(BlockSize::B512);
        let replaced = ready(records.replace(1, uuid(9), disk));
        assert_eq!(replaced.is_err(), torn);
        scene.memory[0].tear_after(None);
        ready(records.record(&states)).expect("recorded");
        assert_eq!(ready(records.missed_is_noted(true)), Ok(false));
        assert_eq!(records.set().missed_from, 0);
    }
}

#[test]
fn a_spare_replaces_a_member_and_what_it_replaced_is_known() {
    let mut record = set(Level::Raid1, 2);
    record.spares.push(uuid(9));
    let scene = Scene::with_record(&record);
    let records = scene.opened().records;
    let spare = Arc::clone(&scene.disks[2].device);
    ready(records.replace(1, uuid(9), spare)).expect("replaced");
    let found = scene.found().expect("a set");
    assert_eq!(
        (&found.members[..], found.spares.len()),
        (&[Some(0), Some(2)][..], 0)
    );
    assert_eq!(
        found.states().members[1],
        MemberState::Rebuilding { done: 0 }
    );
    assert!(matches!(
        found.left_out[..],
        [(1, crate::choose::LeftOut::Replaced { .. })]
    ));
    let small = Arc::new(
        Part::new(Arc::clone(&scene.disks[1].device), Extent::new(0, 9000)).expect("a part"),
    );
    assert_eq!(
        ready(records.replace(1, uuid(10), small)),
        Err(DeviceError::OutOfRange)
    );
    let old = || Arc::clone(&scene.disks[1].device);
    assert_eq!(
        ready(records.add_spare(uuid(1), old())),
        Err(DeviceError::OutOfRange),
        "it is a member"
    );
    ready(records.add_spare(uuid(10), old())).expect("a spare again");
    assert_eq!(scene.found().expect("a set").spares, [(uuid(10), 1)]);
    ready(clear(scene.disks[1].device.as_ref())).expect("cleared");
    assert!(matches!(scene.found(), Err(Refusal::NotAMember { .. })));
}

#[test]
fn a_spare_stays_one_until_it_is_a_member() {
    for torn in [0, 1000, 100 << 10, 300 << 10, (1 << 20) - (192 << 10) + 100] {
        let mut record = set(Level::Raid1, 2);
        record.spares.push(uuid(9));
        let scene = Scene::with_record(&record);
        let records = scene.opened().records;
        scene.memory[2].tear_after(Some(torn));
        let _ = ready(records.replace(1, uuid(9), Arc::clone(&scene.disks[2].device)));
        scene.memory[2].tear_after(None);
        // Find the set as after a crash at this point.
        scene
            .found()
            .unwrap_or_else(|refusal| panic!("torn after {torn}: {refusal}"));
    }
}

/// A record that is read may be only in a cache. The record before it must not be overwritten until it is on
/// stable storage.
#[test]
fn a_torn_record_after_one_that_was_not_stored_forgets_no_failure() {
    for torn in 0..64 {
        let scene = Scene::new(Level::Raid1, 2);
        let disk = &scene.memory[0];
        let records = scene.opened().records;
        ready(records.start(&MemberStates::in_sync(2))).expect("started");
        let mut states = MemberStates::in_sync(2);
        states.members[1] = MemberState::Failed;
        scene.memory[1].tear_after(Some(0));
        ready(records.record(&states)).expect("recorded");
        let stable = disk.contents();
        ready(records.record(&states)).expect("recorded");
        let cached = disk.contents();
        disk.with_bytes(|bytes| bytes.copy_from_slice(&stable));
        ready(disk.flush()).expect("flushed");
        disk.with_bytes(|bytes| bytes.copy_from_slice(&cached));
        let (_, newest) = ready(read(&**disk)).expect("a superblock");
        let next = scene.opened().records;
        disk.tear_after(Some(torn));
        let _ = ready(next.record(&states));
        // Power fails. The disk has stored what it could of the slot that was being written.
        let slot = newest.other().offset() / 512..(newest.other().offset() + SLOT_BYTES) / 512;
        disk.lose_cache_except(|lba| slot.contains(&lba));
        let (found, _) =
            ready(read(&**disk)).unwrap_or_else(|error| panic!("torn after {torn}: {error}"));
        assert_eq!(
            found.set.members[1].state,
            MemberState::Failed,
            "torn after {torn}"
        );
    }
}

#[test]
fn a_record_of_more_space_that_was_torn_is_taken_back_by_the_next_one() {
    let mut record = set(Level::Raid5, 3);
    record.areas.data.bytes -= 1 << 20;
    let scene = Scene::with_record(&record);
    let records = scene.opened().records;
    let states = MemberStates::in_sync(3);
    ready(records.start(&states)).expect("started");
    let larger = records.grown().expect("new space");
    assert!(larger.areas.data.bytes > record.areas.data.bytes);
    assert_eq!(
        larger.areas.end() >> 16,
        DISK_BYTES as u64 >> 16,
        "all of the smallest disk"
    );
    scene.memory[1].tear_after(Some(100));
    scene.memory[2].tear_after(Some(0));
    assert!(
        ready(records.grow(larger.areas)).is_err(),
        "two members lack it"
    );
    assert_eq!(records.set().areas, record.areas);
    scene
        .memory
        .iter()
        .for_each(|memory| memory.tear_after(None));
    ready(records.record(&states)).expect("recorded");
    assert_eq!(scene.found().expect("a set").record.areas, record.areas);
    ready(records.grow(larger.areas)).expect("grown");
    assert_eq!(scene.found().expect("a set").record.areas, larger.areas);
    assert_eq!(records.grown(), None);
    let mut degraded = states;
    degraded.members[0] = MemberState::Failed;
    ready(records.record(&degraded)).expect("recorded");
    assert_eq!(
        ready(records.grow(larger.areas)),
        Err(DeviceError::OutOfRange)
    );
}

#[test]
fn a_record_that_a_fenced_member_ended_keeps_its_number_and_is_the_last() {
    let scene = Scene::new(Level::Raid5, 3);
    let records = scene.opened().records;
    let states = MemberStates::in_sync(3);
    ready(records.start(&states)).expect("started");
    let before = records.set().generation;
    scene.memory[2].fail_writes(Some(DeviceError::Fenced));
    assert_eq!(
        ready(records.scrubbed(Some(ScrubRecord::default()))),
        Err(DeviceError::Fenced)
    );
    // Members 0 and 1 have the record.
    assert_eq!(records.set().generation, before + 1);
    // The other host may be running the set, and now admits this host again.
    scene.memory[2].fail_writes(None);
    let is = scene.memory[0].contents();
    assert_eq!(ready(records.record(&states)), Err(DeviceError::Fenced));
    assert_eq!(ready(records.close()), Err(DeviceError::Fenced));
    let spare = Arc::clone(&scene.disks[1].device);
    assert_eq!(
        ready(records.add_spare(uuid(9), spare)),
        Err(DeviceError::Fenced)
    );
    assert!(is == scene.memory[0].contents(), "nothing is written");
}

#[test]
fn how_far_a_scrub_is_stays_in_all_later_records() {
    let scene = Scene::new(Level::Raid5, 3);
    let records = scene.opened().records;
    let states = MemberStates::in_sync(3);
    ready(records.start(&states)).expect("started");
    let scrub = |stripes| ScrubRecord {
        repairs: true,
        stripes,
        wrong_blocks: vec![0, 7, 0],
        ..ScrubRecord::default()
    };
    ready(records.scrubbed(Some(scrub(3)))).expect("recorded");
    assert!(!scene.found().expect("a set").record.clean);
    ready(records.record(&states)).expect("recorded");
    ready(records.close()).expect("closed");
    assert_eq!(scene.found().expect("a set").record.scrub, Some(scrub(3)));
    // A record that is torn on all disks, at any position, leaves the previous one intact.
    for after in [0, 12, 100, 256] {
        scene
            .memory
            .iter()
            .for_each(|memory| memory.tear_after(Some(after)));
        assert!(ready(records.scrubbed(Some(scrub(4)))).is_err());
        scene
            .memory
            .iter()
            .for_each(|memory| memory.tear_after(None));
        assert_eq!(
            scene.found().expect("a set").record.scrub,
            Some(scrub(3)),
            "{after}"
        );
    }
    ready(records.scrubbed(None)).expect("recorded");
    assert_eq!(scene.found().expect("a set").record.scrub, None);
}

#[test]
fn records_that_are_made_at_the_same_time_follow_each_other() {
    let scene = Scene::new(Level::Raid5, 3);
    let records = scene.opened().records;
    let mut states = MemberStates::in_sync(3);
    let first = records.record(&states);
    states.members[1] = MemberState::Failed;
    let second = records.record(&states);
    ready(second).expect("recorded");
    ready(first).expect("recorded");
    assert_eq!(records.set().generation, 3);
    assert!(scene.found().is_ok(), "no two records of one generation");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Writes records in sequence, each of which may be torn on some members. The record found afterwards is
    /// the last acknowledged one or a later one, and no disk has lost both superblocks.
    #[test]
    fn a_torn_record_leaves_the_one_before_it(
        torn in prop::collection::vec(prop::collection::vec(prop::option::of(0..700usize), 3), 1..12),
    ) {
        let scene = Scene::new(Level::Raid6, 4);
        let records = scene.opened().records;
        let mut acknowledged = 1;
        for tears in torn {
            for (memory, after) in scene.memory.iter().zip(&tears) {
                memory.tear_after(*after);
            }
            let result = ready(records.record(&MemberStates::in_sync(4)));
            scene.memory.iter().for_each(|memory| memory.tear_after(None));
            if result.is_ok() {
                acknowledged = records.set().generation;
            }
            let found = scene.found();
            prop_assert!(found.as_ref().is_ok_and(|found| found.record.generation >= acknowledged), "{found:?}");
            prop_assert_eq!(found.expect("a set").states(), MemberStates::in_sync(4));
        }
    }
}

#[test]
fn a_record_with_more_lost_extents_than_it_has_room_for_is_not_written() {
    let scene = Scene::new(Level::Raid1, 2);
    let records = scene.opened().records;
    let before: Vec<Vec<u8>> = scene
        .memory
        .iter()
        .map(|memory| memory.contents())
        .collect();
    let mut states = records.set().states();
    (0..2049).for_each(|extent| states.lost.insert(1, extent * 2..extent * 2 + 1));
    assert_eq!(ready(records.record(&states)), Err(DeviceError::OutOfRange));
    assert!(
        scene
            .memory
            .iter()
            .map(|memory| memory.contents())
            .eq(before)
    );
}
