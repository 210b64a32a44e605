//! Tests of lost blocks: a set continues without them and reports them, and they become readable when they
//! are written.

use std::sync::{Arc, Mutex};

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent, Lba};
use raid::{LOST_MAX, Level, MemberState, Origin, RaidDevice, Scrubbed};

use crate::disk::Disk;
use crate::rig::{
    Guard, Rig, ask, crashed, fail, flush, read, replace, scrub, synchronised, try_write, write,
};
use crate::world::{End, end, run, seed, wait_a_poll};

const LEVELS: [(Level, usize, Guard); 4] = [
    (Level::Raid1, 2, Guard::Bitmap),
    (Level::Raid10, 4, Guard::Bitmap),
    (Level::Raid5, 4, Guard::Journal),
    (Level::Raid6, 5, Guard::Journal),
];

fn try_read(device: &Arc<RaidDevice>, lba: u64) -> Result<Vec<u8>, DeviceError> {
    ask(device, async move |device| {
        device.read(Extent::new(lba, 1), Buffer::zeroed(512)).await
    })
    .map(|data| data.to_vec())
}

/// Returns the blocks that do not read as `byte`. They must be unreadable.
fn unreadable(device: &Arc<RaidDevice>, byte: u8) -> Vec<u64> {
    let is_lost = |lba: &u64| match try_read(device, *lba) {
        Ok(data) => {
            assert_eq!(data, vec![byte; 512], "block {lba}");
            false
        }
        Err(error) => {
            assert_eq!(error, DeviceError::Unreadable(Lba(*lba)));
            true
        }
    };
    (0..device.layout().blocks().0).filter(is_lost).collect()
}

fn rebuilt(device: &Arc<RaidDevice>, member: usize) -> Result<(), DeviceError> {
    ask(device, async move |device| {
        while device.rebuild_step(member).await?.is_some() {}
        Ok(())
    })
}

fn lost(device: &RaidDevice) -> u64 {
    device.status().lost_blocks.iter().sum()
}

/// Returns members that must be rebuilt so that a bad sector of this member cannot be reconstructed from
/// others.
fn partners(level: Level, member: usize, members: usize) -> Vec<usize> {
    match level {
        Level::Raid1 | Level::Raid10 => vec![member ^ 1],
        Level::Raid6 => vec![(member + 1) % members, (member + 2) % members],
        Level::Raid0 | Level::Raid5 => vec![(member + 1) % members],
    }
}

/// Rebuilds a full set despite two bad sectors on one member, in two stripes in which the member has data.
fn rebuilt_beside_bad_sectors(
    level: Level,
    members: usize,
    guard: Guard,
    has_sums: bool,
) -> (Rig, Arc<RaidDevice>) {
    let mut rig = Rig::with(level, members, 12, guard, has_sums);
    let device = rig.created();
    write(&device, 0, rig.layout.blocks().0, 7);
    flush(&device).expect("flushed");
    let bad = rig.layout.strip(1, 0);
    let partners = partners(level, bad.member, members);
    partners.iter().for_each(|member| fail(&device, *member));
    rig.disks[bad.member].spoil(rig.data_lba(bad.lba + 2));
    partners
        .iter()
        .for_each(|member| replace(&mut rig, &device, *member));
    for member in partners {
        assert_eq!(rebuilt(&device, member), Ok(()), "{level}");
        assert_eq!(
            device.status().states.members[member],
            MemberState::InSync,
            "{level}"
        );
    }
    (rig, device)
}

#[test]
fn a_rebuild_ends_beside_a_bad_sector_and_only_its_column_is_lost_until_it_is_written() {
    for ((level, members, guard), has_sums) in LEVELS
        .into_iter()
        .flat_map(|each| [(each, false), (each, true)])
    {
        seed(31);
        let (mut rig, device) = rebuilt_beside_bad_sectors(level, members, guard, has_sums);
        assert!(lost(&device) > 0, "{level}");
        let unread = unreadable(&device, 7);
        let first = rig.layout.stripe_blocks() + 2;
        assert!(unread.contains(&first), "{level}: {unread:?}");
        assert!(
            unread
                .iter()
                .all(|lba| lba % rig.layout.strip_blocks() == 2),
            "{level}: {unread:?}"
        );
        // If the list were only in memory, it would be lost now.
        drop(device);
        let device = crashed(&mut rig);
        assert_eq!(unreadable(&device, 7), unread, "{level}");
        // Write the blocks around the lost one too.
        for lba in &unread {
            write(&device, lba / 8 * 8, 8, 7);
            assert_eq!(try_read(&device, *lba), Ok(vec![7; 512]), "{level}");
        }
        assert_eq!(
            (unreadable(&device, 7), lost(&device)),
            (vec![], 0),
            "{level}"
        );
        flush(&device).expect("flushed");
        drop(device);
        let device = crashed(&mut rig);
        assert_eq!(
            (unreadable(&device, 7), lost(&device)),
            (vec![], 0),
            "{level}"
        );
        assert_eq!(synchronised(&device), Ok(()));
        for stripe in 0..rig.layout.stripes() {
            assert_eq!(scrub(&device, stripe, true), Scrubbed::Right, "{level}");
        }
    }
}

#[test]
fn a_member_is_replaced_in_a_set_with_lost_blocks_and_no_more_is_lost() {
    for (level, members, guard) in LEVELS {
        seed(32);
        let (mut rig, device) = rebuilt_beside_bad_sectors(level, members, guard, false);
        let unread = unreadable(&device, 7);
        let with_bad_sector = rig.layout.strip(1, 0).member;
        fail(&device, with_bad_sector);
        replace(&mut rig, &device, with_bad_sector);
        assert_eq!(rebuilt(&device, with_bad_sector), Ok(()), "{level}");
        assert_eq!(unreadable(&device, 7), unread, "{level}");
        write(&device, 0, rig.layout.blocks().0, 8);
        assert_eq!(
            (unreadable(&device, 8), lost(&device)),
            (vec![], 0),
            "{level}"
        );
    }
}

#[test]
fn a_degraded_set_takes_a_write_of_a_bad_sector_and_the_missing_block_is_lost_not_garbage() {
    seed(33);
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        let mut rig = Rig::new(level, members, 6, Guard::Journal);
        let device = rig.created();
        write(&device, 0, rig.layout.blocks().0, 7);
        let bad = rig.layout.strip(1, 0);
        let missing = partners(level, bad.member, members);
        missing.iter().for_each(|member| fail(&device, *member));
        rig.disks[bad.member].spoil(rig.data_lba(bad.lba));
        let lba = rig.layout.stripe_blocks();
        write(&device, lba, 8, 9);
        assert_eq!(read(&device, lba, 8), vec![9; 8 * 512]);
        drop(device);
        rig.disks.iter().for_each(Disk::crash);
        let device = Arc::new(rig.assemble(Origin::Existing, &missing).expect("assembled"));
        assert_eq!(read(&device, lba, 8), vec![9; 8 * 512]);
        missing
            .iter()
            .for_each(|member| replace(&mut rig, &device, *member));
        missing
            .iter()
            .for_each(|member| assert_eq!(rebuilt(&device, *member), Ok(()), "{level}"));
        // The parity of this column was already lost.
        let column = |lba: u64| {
            (
                lba / rig.layout.stripe_blocks(),
                lba % rig.layout.strip_blocks(),
            )
        };
        for lba in 0..rig.layout.blocks().0 {
            match try_read(&device, lba) {
                Ok(data) => assert!(
                    [vec![7; 512], vec![9; 512]].contains(&data),
                    "block {lba} is garbage"
                ),
                Err(error) => assert_eq!(
                    (error, column(lba)),
                    (DeviceError::Unreadable(Lba(lba)), (1, 0))
                ),
            }
        }
    }
}

#[test]
fn bad_sectors_of_several_members_in_one_stripe_are_read_and_repaired_by_the_others() {
    for (level, members, guard) in LEVELS {
        seed(34);
        let mut rig = Rig::new(level, members, 6, guard);
        let device = rig.created();
        write(&device, 0, rig.layout.blocks().0, 7);
        let spoil = |rig: &Rig| {
            for strip in 0..rig.layout.strips() {
                let place = rig.layout.strip(1, strip);
                rig.disks[place.member].spoil(rig.data_lba(place.lba + strip as u64));
            }
        };
        spoil(&rig);
        assert_eq!(
            read(&device, 0, rig.layout.blocks().0),
            vec![7; rig.layout.blocks().0 as usize * 512]
        );
        spoil(&rig);
        assert_eq!(
            scrub(&device, 1, true),
            Scrubbed::Unreadable { is_repaired: true },
            "{level}"
        );
        assert_eq!(scrub(&device, 1, true), Scrubbed::Right, "{level}");
    }
}

#[test]
fn a_lost_block_is_there_again_when_its_sector_can_be_read_again() {
    for (level, members, guard) in LEVELS {
        seed(35);
        let (rig, device) = rebuilt_beside_bad_sectors(level, members, guard, false);
        rig.disks.iter().for_each(Disk::recover);
        assert_eq!(unreadable(&device, 7), Vec::<u64>::new(), "{level}");
        for stripe in 0..rig.layout.stripes() {
            let found = scrub(&device, stripe, true);
            assert!(
                matches!(
                    found,
                    Scrubbed::Right | Scrubbed::Unreadable { is_repaired: true }
                ),
                "{found:?}"
            );
        }
        assert_eq!(lost(&device), 0, "{level}");
    }
}

#[test]
fn a_new_set_over_disks_with_a_bad_sector_is_in_sync_without_that_block() {
    for (level, members, guard) in [
        (Level::Raid1, 2, Guard::Bitmap),
        (Level::Raid10, 4, Guard::Bitmap),
        (Level::Raid5, 3, Guard::Journal),
        (Level::Raid5, 3, Guard::Bitmap),
        (Level::Raid6, 4, Guard::Journal),
    ] {
        seed(36);
        let mut rig = Rig::of_used_disks(level, members, 6, guard);
        let bad = rig.layout.strip(1, 0);
        rig.disks[bad.member].spoil(rig.data_lba(bad.lba));
        let device = Arc::new(rig.assemble(Origin::New, &[]).expect("a set"));
        for member in 0..members {
            assert_eq!(rebuilt(&device, member), Ok(()), "{level}");
        }
        assert_eq!(
            (synchronised(&device), device.status().unsynced_regions),
            (Ok(()), 0),
            "{level}"
        );
        assert!(!device.status().states.lacking().contains(&true));
        let stripe = rig.layout.stripe_blocks();
        write(&device, stripe, stripe, 7);
        assert_eq!(
            (read(&device, stripe, stripe), lost(&device)),
            (vec![7; stripe as usize * 512], 0),
            "{level}"
        );
        for stripe in 0..rig.layout.stripes() {
            assert_eq!(scrub(&device, stripe, true), Scrubbed::Right, "{level}");
        }
    }
}

#[test]
fn a_rebuild_waits_when_the_list_of_lost_blocks_is_full_and_resumes_when_some_are_written() {
    seed(37);
    let mut rig = Rig::new(Level::Raid1, 2, 2 * LOST_MAX as u64 / 8 + 8, Guard::Bitmap);
    let device = rig.created();
    fail(&device, 1);
    for lba in (0..=2 * LOST_MAX as u64).step_by(2) {
        rig.disks[0].spoil(rig.data_lba(lba));
    }
    replace(&mut rig, &device, 1);
    assert!(matches!(
        rebuilt(&device, 1),
        Err(DeviceError::Unreadable(_))
    ));
    assert!(device.status().is_lost_list_full);
    write(&device, 0, 64, 7);
    assert_eq!(rebuilt(&device, 1), Ok(()));
    assert!(!device.status().is_lost_list_full);
    assert_eq!(
        (read(&device, 0, 64), try_read(&device, 64)),
        (vec![7; 64 * 512], Err(DeviceError::Unreadable(Lba(64))))
    );
}

/// Creates a set whose members have lost two extents of three blocks in each of `stripes` stripes. The total
/// is slightly below the limit of a record.
fn with_lost_extents(rig: &mut Rig, members: &[usize], stripes: u64) -> Arc<RaidDevice> {
    drop(rig.created());
    let mut states = rig.store.states();
    for (member, stripe) in members
        .iter()
        .flat_map(|member| (0..stripes).map(move |stripe| (*member, stripe)))
    {
        states.lost.insert(member, stripe * 8..stripe * 8 + 3);
        states.lost.insert(member, stripe * 8 + 4..stripe * 8 + 7);
    }
    rig.store.set(states);
    Arc::new(rig.assemble(Origin::Existing, &[]).expect("assembled"))
}

#[test]
fn a_mirror_takes_every_write_when_its_list_of_lost_blocks_is_full() {
    seed(38);
    let mut rig = Rig::new(Level::Raid1, 2, 1020, Guard::Bitmap);
    let device = with_lost_extents(&mut rig, &[1], 1015);
    let written: Vec<u64> = (0..30)
        .flat_map(|stripe| [8 * stripe + 1, 8 * stripe + 5])
        .collect();
    written.iter().for_each(|lba| write(&device, *lba, 1, 9));
    assert!(device.status().is_lost_list_full);
    flush(&device).expect("flushed");
    drop(device);
    let device = crashed(&mut rig);
    written
        .iter()
        .for_each(|lba| assert_eq!(try_read(&device, *lba), Ok(vec![9; 512]), "block {lba}"));
    write(&device, 0, rig.layout.blocks().0, 5);
    assert_eq!(
        (lost(&device), device.status().is_lost_list_full),
        (0, false)
    );
}

#[test]
fn only_a_write_that_finds_no_place_fails_when_the_list_of_lost_blocks_is_full() {
    seed(39);
    let mut rig = Rig::new(Level::Raid1, 2, 520, Guard::Bitmap);
    let device = with_lost_extents(&mut rig, &[0, 1], 505);
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for lba in (0..30).flat_map(|stripe| [8 * stripe + 1, 8 * stripe + 5]) {
        match try_write(&device, lba, 1, 9) {
            Ok(()) => taken.push(lba),
            Err(error) => {
                assert_eq!(error, DeviceError::NoSpace);
                refused.push(lba);
            }
        }
        write(&device, 8 * 510, 8, 7);
    }
    assert!(
        !taken.is_empty() && !refused.is_empty(),
        "{taken:?}, {refused:?}"
    );
    flush(&device).expect("flushed");
    drop(device);
    let device = crashed(&mut rig);
    taken
        .iter()
        .for_each(|lba| assert_eq!(try_read(&device, *lba), Ok(vec![9; 512]), "block {lba}"));
    for lba in refused {
        assert_eq!(
            try_read(&device, lba),
            Err(DeviceError::Unreadable(Lba(lba)))
        );
    }
    // A write of a whole extent frees an entry.
    write(&device, 0, 8 * 30, 5);
    assert!(!device.status().is_lost_list_full);
    write(&device, 8 * 40 + 1, 1, 9);
}

#[test]
fn a_set_with_a_journal_starts_and_takes_writes_when_its_list_of_lost_blocks_is_full() {
    seed(40);
    let mut rig = Rig::new(Level::Raid5, 3, 1020, Guard::Journal);
    let device = with_lost_extents(&mut rig, &[0], 1015);
    let written: Vec<u64> = (0..40)
        .filter_map(|stripe| {
            let strip = (0..2).find(|strip| rig.layout.strip(stripe, *strip).member == 0)?;
            Some(stripe * rig.layout.stripe_blocks() + strip as u64 * 8)
        })
        .flat_map(|first| [first + 1, first + 5])
        .collect();
    written.iter().for_each(|lba| write(&device, *lba, 1, 9));
    assert!(device.status().is_lost_list_full);
    drop(device);
    let device = crashed(&mut rig);
    written
        .iter()
        .for_each(|lba| assert_eq!(try_read(&device, *lba), Ok(vec![9; 512]), "block {lba}"));
    write(&device, 0, rig.layout.blocks().0, 5);
    assert_eq!(
        (lost(&device), device.status().is_lost_list_full),
        (0, false)
    );
}

#[test]
fn a_mirror_that_was_read_after_a_crash_does_not_go_back_in_time_when_its_source_is_taken_out() {
    let mut differed = 0;
    for (number, has_sums) in (0..60).flat_map(|number| [(number, false), (number, true)]) {
        seed(number);
        let mut rig = Rig::with(Level::Raid1, 2, 4, Guard::Bitmap, has_sums);
        let device = rig.created();
        write(&device, 0, 8, 1);
        let writing = Arc::clone(&device);
        let cut = run(
            vec![Box::pin(async move {
                let data = Buffer::from(&[2; 8 * 512][..]).share();
                let _ = writing
                    .write(Extent::new(0, 8), data, Durability::Cached)
                    .await;
            })],
            4 + number % 40,
        );
        drop(device);
        rig.disks.iter().for_each(Disk::crash);
        let contents: Vec<Vec<u8>> = rig.disks.iter().map(|disk| contents(&rig, disk)).collect();
        differed += u64::from(cut == End::Crashed && contents[0] != contents[1]);
        let device = Arc::new(rig.assemble(Origin::Existing, &[]).expect("assembled"));
        let before = read(&device, 0, 8);
        fail(&device, 0);
        assert_eq!(
            read(&device, 0, 8),
            before,
            "seed {number}, checksums: {has_sums}"
        );
        // Check the same after another crash.
        drop(device);
        rig.disks.iter().for_each(Disk::crash);
        let device = Arc::new(rig.assemble(Origin::Existing, &[0]).expect("assembled"));
        assert_eq!(
            read(&device, 0, 8),
            before,
            "seed {number}, checksums: {has_sums}"
        );
    }
    assert!(differed > 0, "no seed had what this is about");
}

#[test]
fn a_set_that_is_only_read_returns_the_same_copy_each_time_after_a_crash_and_writes_nothing() {
    for (number, has_sums) in (0..20).flat_map(|number| [(number, false), (number, true)]) {
        seed(number);
        let mut rig = Rig::with(Level::Raid1, 2, 4, Guard::Bitmap, has_sums);
        let device = rig.created();
        write(&device, 0, 8, 1);
        write(&device, 0, 8, 2);
        drop(device);
        rig.disks.iter().for_each(Disk::say_read_only);
        let device = crashed(&mut rig);
        let before: Vec<Vec<u8>> = rig.disks.iter().map(|disk| contents(&rig, disk)).collect();
        let first = read(&device, 0, 8);
        assert!(
            (0..4).all(|_| read(&device, 0, 8) == first),
            "seed {number}, checksums: {has_sums}"
        );
        assert!(rig.disks.iter().map(|disk| contents(&rig, disk)).eq(before));
    }
}

fn contents(rig: &Rig, disk: &Disk) -> Vec<u8> {
    let (disk, lba) = (disk.clone(), rig.data_lba(0));
    end(async move {
        disk.read(Extent::new(lba, 8), Buffer::zeroed(8 * 512))
            .await
    })
    .expect("read")
    .to_vec()
}

#[test]
fn a_scrub_blames_no_healthy_mirror_where_a_crash_left_blocks_and_checksums_that_do_not_fit() {
    let mut differed = 0;
    for number in 0..60 {
        seed(number);
        let mut rig = Rig::with_sums(Level::Raid1, 2, 4, Guard::Bitmap);
        let device = rig.created();
        write(&device, 0, 8, 1);
        write(&device, 0, 8, 2);
        drop(device);
        let device = crashed(&mut rig);
        let found = scrub(&device, 0, false);
        assert!(
            matches!(
                found,
                Scrubbed::Right | Scrubbed::Mismatch { is_repaired: false }
            ),
            "{found:?}"
        );
        differed += u64::from(found != Scrubbed::Right);
        assert_eq!(device.status().wrong_blocks, [0; 2]);
        assert_eq!(scrub(&device, 0, true), Scrubbed::Right);
        assert_eq!(device.status().wrong_blocks, [0; 2]);
    }
    assert!(differed > 0, "no seed had what this is about");
}

/// Creates a mirror whose member 1 has lost block 10, because member 0 could not read it.
fn mirror_with_a_lost_block() -> (Rig, Arc<RaidDevice>) {
    let (rig, device) = rebuilt_beside_bad_sectors(Level::Raid1, 2, Guard::Bitmap, false);
    assert_eq!(device.status().lost_blocks, [0, 1]);
    (rig, device)
}

#[test]
fn a_lost_block_whose_new_content_was_not_flushed_is_still_lost() {
    for number in 0..8 {
        seed(number);
        let (mut rig, device) = mirror_with_a_lost_block();
        fail(&device, 0);
        rig.disks[1].fail_flush();
        assert!(try_write(&device, 10, 1, 9).is_err());
        // A later flush succeeds, but does not store the block.
        write(&device, 40, 1, 8);
        flush(&device).expect("flushed");
        assert_eq!(lost(&device), 1);
        drop(device);
        rig.disks[1].crash();
        let device = Arc::new(rig.assemble(Origin::Existing, &[0]).expect("assembled"));
        assert_eq!(try_read(&device, 10), Err(DeviceError::Unreadable(Lba(10))));
        write(&device, 10, 1, 9);
        drop(device);
        rig.disks[1].crash();
        let device = Arc::new(rig.assemble(Origin::Existing, &[0]).expect("assembled"));
        assert_eq!(
            (try_read(&device, 10), lost(&device)),
            (Ok(vec![9; 512]), 0)
        );
    }
}

#[test]
fn a_lost_block_whose_new_content_was_lost_before_its_flush_is_still_lost() {
    let mut failures = 0;
    for (polls, number) in (0..30).flat_map(|polls| (0..8).map(move |number| (polls, number))) {
        seed(number);
        let (mut rig, device) = mirror_with_a_lost_block();
        fail(&device, 0);
        let (writing, losing, disk) = (
            Arc::clone(&device),
            Arc::clone(&device),
            rig.disks[1].clone(),
        );
        let result = Arc::new(Mutex::new(None));
        let into = Arc::clone(&result);
        let write = async move {
            let data = Buffer::from(&[9; 512][..]).share();
            let written = writing
                .write(Extent::new(10, 1), data, Durability::Cached)
                .await;
            *into.lock().expect("no panic") = Some(written);
        };
        // A read detects the loss before the flush of the healed block.
        let lose = async move {
            for _ in 0..polls {
                wait_a_poll().await;
            }
            disk.lose_cache();
            let _ = losing.read(Extent::new(40, 1), Buffer::zeroed(512)).await;
        };
        assert_eq!(
            run(vec![Box::pin(write), Box::pin(lose)], 100_000),
            End::Done
        );
        let written = result.lock().expect("no panic").take().expect("ended");
        drop(device);
        rig.disks[1].crash();
        let device = Arc::new(rig.assemble(Origin::Existing, &[0]).expect("assembled"));
        let found = try_read(&device, 10);
        let is_lost = found == Err(DeviceError::Unreadable(Lba(10)));
        failures += u64::from(written.is_err() && is_lost);
        assert!(
            found == Ok(vec![9; 512]) || written.is_err() && is_lost,
            "seed {number}, {polls} polls: {written:?}, then {found:?}"
        );
    }
    assert!(failures > 0, "the block was never lost before its flush");
}

#[test]
fn a_lost_block_of_a_member_that_failed_before_its_flush_is_still_lost_when_it_returns() {
    seed(41);
    let (rig, device) = mirror_with_a_lost_block();
    ask(&device, async move |device| device.settle(0).await).expect("recorded");
    rig.disks.iter().for_each(Disk::recover);
    (0..20).for_each(|_| flush(&device).expect("flushed"));
    rig.disks[1].fail_flush();
    // The read rewrites the block on member 1, whose flush then fails.
    while device.status().states.members[1] == MemberState::InSync {
        assert_eq!(try_read(&device, 10), Ok(vec![7; 512]));
    }
    ask(&device, async move |device| device.settle(0).await).expect("recorded");
    assert!(rig.store.is_missed_noted());
    rig.disks[1].crash();
    let (data, area) = (rig.data(&rig.disks[1]), rig.area(&rig.disks[1]));
    ask(&device, async move |device| {
        device.readd(device.vacancy(1)?, data, Some(area)).await
    })
    .expect("added again");
    assert_eq!(rebuilt(&device, 1), Ok(()));
    fail(&device, 0);
    let found = try_read(&device, 10);
    assert!(
        found == Ok(vec![7; 512]) || found == Err(DeviceError::Unreadable(Lba(10))),
        "{found:?}"
    );
}
