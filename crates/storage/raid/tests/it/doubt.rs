//! Tests of members that have lost their caches, or may have lost them.

use std::sync::Arc;

use block::{BlockDevice, Buffer, Durability, Extent};
use raid::{Level, MemberState, MemberStates, Origin, RaidDevice, Scrubbed};

use crate::disk::Disk;
use crate::rig::{Guard, Rig, ask, flush, read, rebuild, scrub, write};
use crate::world::seed;

/// Writes blocks, flushes them and writes them again. Then a member loses its cache, so that some of its
/// blocks revert.
fn with_a_member_that_lost_its_cache(
    level: Level,
    guard: Guard,
    member: usize,
) -> (Rig, Arc<RaidDevice>) {
    let mut rig = Rig::new(level, 4, 8, guard);
    let device = rig.created();
    let blocks = rig.layout.blocks().0;
    write(&device, 0, blocks, 1);
    flush(&device).expect("flushed");
    write(&device, 0, blocks, 2);
    rig.disks[member].lose_cache_unseen();
    (rig, device)
}

const REDUNDANT: [(Level, Guard); 8] = [
    (Level::Raid1, Guard::Nothing),
    (Level::Raid1, Guard::Bitmap),
    (Level::Raid10, Guard::Bitmap),
    (Level::Raid5, Guard::Nothing),
    (Level::Raid5, Guard::Bitmap),
    (Level::Raid5, Guard::Journal),
    (Level::Raid6, Guard::Bitmap),
    (Level::Raid6, Guard::Journal),
];

/// Regression test: a server was killed and restarted while its disk was a member. Its clients detected this
/// only at the next flush. Until then, a partial block write read stale data from the disk and wrote it to
/// all members.
#[test]
fn a_member_that_lost_its_cache_is_not_read_before_it_was_asked() {
    seed(31);
    for ((level, guard), member) in REDUNDANT
        .into_iter()
        .flat_map(|kind| (0..4).map(move |at| (kind, at)))
    {
        let (rig, device) = with_a_member_that_lost_its_cache(level, guard, member);
        for lba in 0..rig.layout.blocks().0 {
            // To change one byte, a block is read, modified and written.
            let mut block = read(&device, lba, 1);
            assert_eq!(
                block,
                vec![2; 512],
                "{level}, {guard:?}, member {member}: block {lba}"
            );
            block[0] = 3;
            let data = Buffer::from(&block[..]).share();
            let extent = Extent::new(lba, 1);
            ask(&device, async move |device| {
                device.write(extent, data, Durability::Cached).await
            })
            .expect("written");
        }
        assert_eq!(
            device.status().states.members[member],
            MemberState::Failed,
            "{level}, {guard:?}"
        );
        assert_eq!(flush(&device), Ok(()));
        let changed: Vec<u8> = read(&device, 0, rig.layout.blocks().0);
        assert!(
            changed
                .chunks(512)
                .all(|block| block[0] == 3 && block[1..].iter().all(|byte| *byte == 2))
        );
    }
}

/// Read-modify-write uses old parity and old data.
#[test]
fn small_writes_take_no_old_parity_and_no_old_data_from_it() {
    seed(32);
    for ((level, guard), member) in REDUNDANT
        .into_iter()
        .flat_map(|kind| (0..4).map(move |at| (kind, at)))
    {
        let (rig, device) = with_a_member_that_lost_its_cache(level, guard, member);
        let blocks = rig.layout.blocks().0;
        (0..blocks)
            .step_by(3)
            .for_each(|lba| write(&device, lba, 1, 4));
        assert_eq!(flush(&device), Ok(()));
        // Each strip of another member must be reconstructed from parity, or read from its copy.
        for other in (0..4).filter(|other| *other != member) {
            let failed = device.status().states.lacking();
            let mut lacking = failed.clone();
            lacking[other] = true;
            if rig.layout.survives(&lacking) && !failed[other] {
                assert_eq!(
                    ask(&device, async move |device| device.fail(other).await),
                    Ok(())
                );
            }
        }
        for lba in 0..blocks {
            let expected = if lba % 3 == 0 { 4 } else { 2 };
            assert_eq!(
                read(&device, lba, 1),
                vec![expected; 512],
                "{level}, {guard:?}, member {member}: {lba}"
            );
        }
    }
}

#[test]
fn a_rebuild_and_a_scrub_take_nothing_from_it() {
    seed(33);
    for (level, guard) in [
        (Level::Raid1, Guard::Bitmap),
        (Level::Raid6, Guard::Journal),
    ] {
        let (mut rig, device) = with_a_member_that_lost_its_cache(level, guard, 0);
        assert_eq!(
            scrub(&device, 0, true),
            Scrubbed::Degraded,
            "it is out, and nothing is repaired by it"
        );
        let disk = rig.spare();
        rig.disks[3] = disk.clone();
        assert_eq!(
            ask(&device, async move |device| device.fail(3).await),
            Ok(())
        );
        let (data, area) = (
            rig.data(&disk),
            (level == Level::Raid1).then(|| rig.area(&disk)),
        );
        let replaced = ask(&device, async move |device| {
            device.replace(device.vacancy(3)?, data, area).await
        });
        assert_eq!(replaced, Ok(()));
        assert!(rebuild(&device, 3, 1000));
        assert_eq!(
            read(&device, 0, rig.layout.blocks().0),
            vec![2; rig.layout.blocks().0 as usize * 512]
        );
    }
}

#[test]
fn a_member_in_doubt_that_has_lost_nothing_stays() {
    seed(34);
    for (level, guard) in REDUNDANT {
        let mut rig = Rig::new(level, 4, 4, guard);
        let device = rig.created();
        write(&device, 0, rig.layout.blocks().0, 5);
        rig.disks.iter().for_each(Disk::doubt);
        assert_eq!(read(&device, 0, 8), vec![5; 4096]);
        assert_eq!(flush(&device), Ok(()));
        assert_eq!(
            device.status().states,
            MemberStates::in_sync(4),
            "{level}, {guard:?}"
        );
    }
}

#[test]
fn a_member_in_doubt_that_cannot_be_asked_is_out() {
    seed(35);
    let mut rig = Rig::new(Level::Raid1, 2, 4, Guard::Nothing);
    let device = rig.created();
    write(&device, 0, 8, 5);
    rig.disks[0].tell_nothing();
    rig.disks[0].doubt();
    (0..4).for_each(|_| assert_eq!(read(&device, 0, 8), vec![5; 4096]));
    assert_eq!(flush(&device), Ok(()));
    assert_eq!(
        device.status().states.members,
        [MemberState::Failed, MemberState::InSync]
    );
}

/// A set can be a member of another set, which relies on its reports of doubt.
#[test]
fn a_set_is_in_doubt_with_a_member_that_it_needs() {
    seed(36);
    let mut rig = Rig::new(Level::Raid0, 2, 4, Guard::Nothing);
    let device = rig.created();
    rig.disks[1].lose_cache_unseen();
    assert!(device.losses().is_in_doubt());
    assert_eq!(
        ask(&device, async move |device| device.resolve_losses().await),
        Ok(())
    );
    assert_eq!(
        (device.losses().is_in_doubt(), device.losses().count()),
        (false, 1)
    );
}

/// A gateway was killed, but the servers of its members were not. Their caches contain writes of the earlier
/// run, and a later loss of these writes would go undetected.
#[test]
fn what_an_earlier_run_has_written_is_flushed_before_it_is_copied() {
    seed(37);
    for level in [Level::Raid1, Level::Raid5] {
        let mut rig = Rig::new(level, 3, 4, Guard::Bitmap);
        let blocks = rig.layout.blocks().0;
        let device = rig.created();
        write(&device, 0, blocks, 6);
        drop(device);
        let device = Arc::new(rig.assemble(Origin::Existing, &[]).expect("assembled"));
        rig.disks.iter().for_each(|disk| disk.crash());
        assert_eq!(
            read(&device, 0, blocks),
            vec![6; blocks as usize * 512],
            "{level}"
        );
    }
}
