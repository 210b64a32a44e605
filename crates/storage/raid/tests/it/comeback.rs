//! Tests of a member that fails and returns: the record of the regions that it has missed, and the end of
//! that record.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent, Spawner};
use raid::disks::MemberParts;
use raid::superblock::Uuid;
use raid::{Assembly, Level, MemberState, Missed, Origin, ProtectionAreas, RaidDevice};

use crate::by_content::{DISK_BLOCKS, Scene};
use crate::disk::{Disk, Part};
use crate::rig::{Guard, Rig, ask};
use crate::world::{HereSpawner, StepClock, end, seed, wait_a_poll};

/// Number of blocks in a region: 4 stripes with strips of 4 KiB.
const REGION_BLOCKS: u64 = 32;

/// Returns the blocks of the second bitmap on a disk.
fn second_bitmap(scene: &Scene) -> Range<u64> {
    let area = scene.set.records.set().areas.bitmap;
    let (start, blocks) = (area.offset / 512, area.bytes / 512);
    start + blocks / 2..start + blocks
}

/// Runs `future` concurrently with the calling task. Its result is stored when it completes.
fn beside<T: 'static>(future: impl Future<Output = T> + 'static) -> Rc<RefCell<Option<T>>> {
    let result = Rc::new(RefCell::new(None));
    let into = Rc::clone(&result);
    HereSpawner.spawn(Box::pin(async move {
        let output = future.await;
        *into.borrow_mut() = Some(output);
    }));
    result
}

async fn result_of<T>(result: &RefCell<Option<T>>) -> T {
    loop {
        if let Some(result) = result.take() {
            return result;
        }
        wait_a_poll().await;
    }
}

/// A block of the second bitmap is written while member 0 becomes in sync and member 1 fails. The regions
/// that member 0 had missed are not in the bitmap for member 1.
#[test]
fn a_bit_of_an_earlier_absence_is_not_taken_for_one_of_the_next() {
    seed(41);
    let mut scene = Scene::with_bitmap(Level::Raid1, 3);
    let last = Extent::new(scene.model.len() as u64 - REGION_BLOCKS, 8);
    scene.lose_contact(0);
    scene.settle();
    scene.write_at(last, 5);
    scene.settle();
    assert!(scene.comes_back(0));
    scene.rebuild(3);
    let stripes = scene.device.layout().stripes();
    assert_eq!(
        scene.device.status().states.members[0],
        MemberState::Rebuilding { done: stripes - 1 }
    );
    let slow = scene.members[2].clone();
    slow.hold_writes(second_bitmap(&scene));
    let (device, failing) = (Arc::clone(&scene.device), scene.members[1].clone());
    end(async move {
        let writing = Arc::clone(&device);
        let written = beside(async move {
            let data = Buffer::from(&[7; 4096][..]).share();
            writing
                .write(Extent::new(0, 8), data, Durability::Cached)
                .await
        });
        slow.holds_one().await;
        device.rebuild_step(0).await.expect("rebuilt");
        device.settle(0).await.expect("all are in sync");
        failing.die();
        device.flush().await.expect("the others go on");
        slow.hold_writes(0..0);
        result_of(&written).await.expect("written");
        device.settle(0).await.expect("recorded");
    });
    scene.model[..8].fill(7);
    assert_eq!(scene.device.status().missed_regions, Some(1));
    scene.write_at(last, 6);
    scene.settle();
    scene.members[1].revive();
    scene.restart(true);
    assert_eq!(
        scene.states().members[1],
        MemberState::Rebuilding { done: 0 }
    );
    scene.rebuild(1000);
    scene.check();
    scene.assert_whole();
}

/// Creates a mirror without member 1. The regions that this member misses are recorded.
fn with_one_away() -> Scene {
    let mut scene = Scene::with_bitmap(Level::Raid1, 2);
    scene.lose_contact(1);
    scene.settle();
    assert!(scene.set.records.set().missed_from > 0);
    scene
}

#[test]
fn a_replacement_that_fails_keeps_the_record_of_missed_regions() {
    seed(42);
    let mut scene = with_one_away();
    scene.write_at(Extent::new(0, 8), 3);
    let (records, bad) = (Arc::clone(&scene.set.records), Disk::used(DISK_BLOCKS));
    bad.die();
    let replaced = end(async move { records.replace(1, Uuid([9; 16]), Arc::new(bad)).await });
    assert_eq!(replaced, Err(DeviceError::NotReady));
    scene.settle();
    assert!(
        scene.set.records.set().missed_from > 0,
        "the record is lost"
    );
    assert_eq!(scene.device.status().missed_regions, Some(1));
    assert!(scene.comes_back(1));
    scene.rebuild(1000);
    scene.check();
    scene.assert_whole();
}

#[test]
fn missed_regions_that_the_superblocks_do_not_record_are_not_reported_as_recorded() {
    seed(43);
    let scene = with_one_away();
    let (records, disk) = (Arc::clone(&scene.set.records), Disk::used(DISK_BLOCKS));
    // The superblocks name the new disk, but it could not be put in the set.
    end(async move { records.replace(1, Uuid([9; 16]), Arc::new(disk)).await }).expect("recorded");
    scene.settle();
    assert_eq!(
        scene.set.records.set().missed_from,
        0,
        "it does not cover a new disk"
    );
    assert_eq!(scene.device.status().missed_regions, None);
}

#[test]
fn a_failed_member_that_is_taken_out_by_hand_is_not_added_again() {
    seed(44);
    let mut scene = with_one_away();
    let device = Arc::clone(&scene.device);
    end(async move { device.fail(1).await }).expect("taken out");
    assert_eq!(scene.set.records.set().missed_from, 0);
    assert!(!scene.comes_back(1));
    scene.settle();
    assert_eq!(scene.device.status().missed_regions, None);
}

/// When the power fails, only the assembly has recorded the missed regions.
#[test]
fn a_set_that_starts_without_a_member_records_what_that_misses_before_the_first_write() {
    for (level, members) in [(Level::Raid10, 4), (Level::Raid5, 3), (Level::Raid6, 4)] {
        seed(45);
        let mut scene = Scene::with_bitmap(level, members);
        scene.write_at(Extent::new(0, 8), 3);
        let away = scene.pile.remove(1);
        scene.restart(false);
        assert_eq!(scene.states().members[1], MemberState::Failed);
        assert_eq!(scene.device.status().missed_regions, Some(0), "{level}");
        scene.write_at(Extent::new(0, 8), 4);
        // A degraded RAID 5 that crashed is refused unless its first bitmap is clear.
        let device = Arc::clone(&scene.device);
        end(async move {
            for _ in 0..9 {
                device.flush().await.expect("flushed");
            }
        });
        scene.pile.push(away);
        scene.restart(true);
        assert_eq!(
            scene.states().members[1],
            MemberState::Rebuilding { done: 0 }
        );
        scene.members[1].take_requests();
        scene.rebuild(1000);
        let [_, writes, _] = scene.members[1].take_requests();
        assert!(writes < 20, "{level}: {writes} writes");
        scene.check();
        scene.assert_whole();
    }
}

/// The bitmap area has 2 blocks, and there are more regions than one block has bits.
#[test]
fn a_bitmap_that_outgrows_half_of_its_area_keeps_its_blocks() {
    seed(46);
    let stripes = (512 - 32) * 8;
    let mut rig = Rig::new(Level::Raid1, 2, stripes, Guard::Bitmap);
    let grown = Rig::new(Level::Raid1, 2, stripes + 8, Guard::Bitmap).layout;
    rig.disks = (0..2)
        .map(|_| Disk::new(2 + grown.member_blocks().0))
        .collect();
    let data = |member: usize, blocks| Part {
        disk: rig.disks[member].clone(),
        start: 2,
        blocks,
    };
    let area = |member: usize| Part {
        disk: rig.disks[member].clone(),
        start: 0,
        blocks: 2,
    };
    let blocks = rig.layout.member_blocks().0;
    let copies = [0, 1].map(|member| raid::AreaCopy {
        device: Arc::new(area(member)),
        member: Some(member),
    });
    let assembly = Assembly {
        layout: rig.layout,
        members: [0, 1]
            .map(|member| Some((Arc::new(data(member, blocks)) as Arc<dyn BlockDevice>).into()))
            .into(),
        states: rig.store.states(),
        metadata: Arc::clone(&rig.store) as _,
        protection: ProtectionAreas::Bitmap {
            copies: copies.into(),
            region_stripes: 1,
        },
        origin: Origin::NewOfZeros,
        nonce: 1,
        memory_bytes: 1 << 20,
        missed: Missed::Nothing,
        accepts_wrong_data: false,
        sleeper: Arc::new(StepClock),
        spawner: Arc::new(HereSpawner),
    };
    let device = Arc::new(end(RaidDevice::assemble(assembly)).expect("a set"));
    let (away, back, again) = (rig.disks[1].clone(), data(1, blocks), area(1));
    let longer: Vec<Arc<dyn BlockDevice>> = [0, 1]
        .map(|member| Arc::new(data(member, grown.member_blocks().0)) as _)
        .into();
    ask(&device, async move |device| {
        away.die();
        device.flush().await.expect("the other goes on");
        device.settle(0).await.expect("recorded");
        away.revive();
        let back = Arc::new(back) as Arc<dyn BlockDevice>;
        let vacancy = device.vacancy(1).expect("it has failed");
        device
            .readd(vacancy, back, Some(Arc::new(again)))
            .await
            .expect("a member again");
        while device.rebuild_step(1).await.expect("rebuilt").is_some() {}
        device.grow_to(grown, longer).await.expect("grown");
        let end = device.geometry().blocks.0;
        for lba in [0, end - 8] {
            let data = Buffer::from(&[7; 4096][..]).share();
            device
                .write(Extent::new(lba, 8), data, Durability::Stable)
                .await
                .expect("written");
        }
    });
    assert_eq!(device.status().states.members, [MemberState::InSync; 2]);
}

#[test]
fn a_member_that_is_taken_out_while_it_is_put_back_stays_out() {
    for is_in_place in [false, true] {
        seed(47);
        let scene = with_one_away();
        let disk = scene.members[1].clone();
        disk.revive();
        let area = scene.set.records.set().areas.bitmap;
        let area = area.offset / 512..(area.offset + area.bytes) / 512;
        let (device, records) = (Arc::clone(&scene.device), Arc::clone(&scene.set.records));
        let (readded, state) = end(async move {
            let whole = Arc::new(disk.clone()) as Arc<dyn BlockDevice>;
            let parts = MemberParts::new(&records.set(), 1, &whole).expect("room");
            let vacancy = device.vacancy(1).expect("it has failed");
            assert!(records.readd(1, whole).await.expect("recorded"));
            // The member is removed while its copy of the bitmap is being erased, or later, while the copy is
            // being written.
            disk.hold_writes(if is_in_place { 0..0 } else { area.clone() });
            let readding = Arc::clone(&device);
            let readded =
                beside(async move { readding.readd(vacancy, parts.data, parts.bitmap).await });
            while is_in_place && device.status().states.members[1] == MemberState::Failed {
                wait_a_poll().await;
            }
            disk.hold_writes(area);
            disk.holds_one().await;
            device.fail(1).await.expect("taken out");
            disk.hold_writes(0..0);
            (result_of(&readded).await, device.status().states.members[1])
        });
        assert_eq!(
            (readded, state),
            (Err(DeviceError::Unsupported), MemberState::Failed),
            "{is_in_place}"
        );
        // The member's disk then no longer belongs to the set.
        let (device, records) = (Arc::clone(&scene.device), Arc::clone(&scene.set.records));
        end(async move { device.release(1).await }).expect("released");
        assert_eq!(records.set().members[1].state, MemberState::Failed);
        records.release(1);
        assert!(records.disk(records.set().members[1].uuid).is_none());
    }
}
