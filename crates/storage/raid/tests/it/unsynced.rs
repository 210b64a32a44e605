//! Tests of sets with a bitmap: which regions may be inconsistent, how this affects reads and small writes,
//! and when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::{
    BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry, Null,
    Pending, Slice,
};
use raid::{
    Assembly, AssemblyError, Level, MemberDevice, MemberState, MemberStates, Origin, RaidDevice,
    Scrubbed,
};

use crate::disk::Disk;
use crate::rig::{
    Guard, Rig, ask, crashed, crashed_with_two_regions, fail, flush, read, rebuild, replace,
    requests, scrub, synchronised, write,
};
use crate::world::{End, end, run, seed};

#[test]
fn a_small_write_whose_parity_may_be_wrong_reads_its_columns_alone_and_outlives_its_member() {
    seed(21);
    for (level, parity) in [(Level::Raid5, 1), (Level::Raid6, 2)] {
        let mut rig = Rig::of_used_disks(level, 4 + parity, 6, Guard::Bitmap);
        let device = Arc::new(rig.assemble(Origin::New, &[]).expect("a set"));
        assert!(device.status().unsynced_regions > 0);
        for lba in [33, 41] {
            write(&device, lba, 2, 7); // their bits are set from the start
            requests(&rig);
            write(&device, lba, 2, lba as u8);
            assert_eq!(requests(&rig), [3, 1 + parity as u64, 0]);
        }
        let written = rig.layout.strip(1, 0).member;
        ask(&device, async move |device| device.fail(written).await).expect("failed");
        assert_eq!(
            (read(&device, 33, 2), read(&device, 41, 2)),
            (vec![33; 1024], vec![41; 1024])
        );
        // The parity of neighbouring blocks may still be wrong.
        assert!(device.status().unsynced_regions > 0);
    }
}

#[test]
fn a_write_that_ends_while_an_idle_set_is_flushed_keeps_its_bit() {
    let mut kept = 0;
    for number in 0..400 {
        seed(number);
        let mut rig = Rig::new(Level::Raid1, 2, 12, Guard::Bitmap);
        let device = rig.created();
        write(&device, 0, 1, 1);
        let (settling, writing) = (Arc::clone(&device), Arc::clone(&device));
        // The write has started, and completes before, during or after the flush of the set.
        let slow = Box::pin(async move {
            let data = Buffer::from(&[7; 512][..]).share();
            writing
                .write(Extent::new(40, 1), data, Durability::Cached)
                .await
                .expect("written");
        });
        let settled = Box::pin(async move {
            let known = settling.settle(0).await.expect("settled");
            settling.settle(known).await.expect("settled");
        });
        assert_eq!(run(vec![slow, settled], 100_000), End::Done);
        drop(device);
        let device = crashed(&mut rig);
        let copies: Vec<Vec<u8>> = rig
            .disks
            .iter()
            .map(|disk| {
                let (disk, lba) = (disk.clone(), rig.data_lba(40));
                end(async move { disk.read(Extent::new(lba, 1), Buffer::zeroed(512)).await })
                    .expect("read")
                    .to_vec()
            })
            .collect();
        if copies[0] != copies[1] {
            assert!(
                device.status().unsynced_regions > 0,
                "seed {number}: the copies differ, which is not reported"
            );
            kept += 1;
        }
    }
    assert!(kept > 0, "no seed had what this is about");
}

#[test]
fn a_bad_sector_is_not_filled_in_from_parity_that_may_not_fit() {
    seed(22);
    let mut rig = Rig::of_used_disks(Level::Raid5, 3, 6, Guard::Bitmap);
    let device = Arc::new(rig.assemble(Origin::New, &[]).expect("a set"));
    let strip = rig.layout.strip(0, 0);
    let lba = rig.data_lba(strip.lba);
    rig.disks[strip.member].spoil(lba);
    let result = ask(&device, async move |device| {
        device.read(Extent::new(0, 1), Buffer::zeroed(512)).await
    });
    assert_eq!(
        result.map(|data| data.to_vec()),
        Err(DeviceError::Unreadable(block::Lba(0)))
    );
    let regions = device.status().unsynced_regions;
    let all = synchronised(&device);
    // The parity of its column is also lost. The other columns are synchronised nevertheless.
    assert_eq!(
        (all, regions > 1, device.status().unsynced_regions),
        (Ok(()), true, 0)
    );
    assert_eq!(device.status().lost_blocks.iter().sum::<u64>(), 1);
    assert_eq!(
        scrub(&device, 0, true),
        Scrubbed::Unreadable { is_repaired: false }
    );
    // A write of the block restores its column.
    write(&device, 0, 1, 9);
    assert_eq!(read(&device, 0, 1), vec![9; 512]);
    assert_eq!(scrub(&device, 0, true), Scrubbed::Right);
    assert_eq!(device.status().lost_blocks.iter().sum::<u64>(), 0);
}

#[test]
fn a_block_that_no_copy_of_a_mirror_has_keeps_no_other_one_from_being_synchronised() {
    for has_sums in [false, true] {
        seed(25);
        let mut rig = Rig::with(Level::Raid1, 2, 12, Guard::Bitmap, has_sums);
        let device = crashed_with_two_regions(&mut rig);
        let lba = rig.data_lba(0);
        rig.disks.iter().for_each(|disk| disk.spoil(lba));
        assert_eq!(
            (synchronised(&device), device.status().unsynced_regions),
            (Ok(()), 0)
        );
    }
}

#[test]
fn a_member_without_a_cache_may_be_replaced_by_one_with() {
    seed(23);
    let mut rig = Rig::new(Level::Raid1, 2, 4, Guard::Bitmap);
    rig.disks.iter().for_each(Disk::say_no_cache);
    assert!(rig.created().profile().volatile_cache);
}

#[test]
fn a_start_that_is_refused_records_nothing() {
    seed(24);
    let mut rig = Rig::new(Level::Raid5, 3, 6, Guard::Bitmap);
    let device = rig.created();
    write(&device, 0, 1, 1);
    drop(device);
    let refused = rig.assemble(Origin::Existing, &[2]);
    assert!(
        matches!(refused, Err(AssemblyError::DataMayBeWrong { regions: 1 })),
        "{:?}",
        refused.err()
    );
    assert_eq!(rig.store.states(), MemberStates::in_sync(3));
    assert_eq!(
        read(
            &Arc::new(rig.assemble(Origin::Existing, &[]).expect("all are there")),
            0,
            1
        ),
        vec![1; 512]
    );
}

#[test]
fn a_degraded_mirror_takes_writes_in_clean_regions_after_its_last_member_has_lost_its_cache() {
    for is_seen in [false, true] {
        seed(25);
        let mut rig = Rig::new(Level::Raid1, 2, 8, Guard::Bitmap);
        let device = rig.created();
        write(&device, 0, 1, 1);
        ask(&device, async move |device| device.fail(1).await).expect("failed");
        match is_seen {
            true => rig.disks[0].lose_cache(),
            false => rig.disks[0].lose_cache_unseen(),
        }
        let before = device.losses();
        for region in 1..4 {
            write(&device, region * 16, 1, 2);
            assert_eq!(read(&device, region * 16, 1), vec![2; 512]);
        }
        // The loss must still be reported to users.
        ask(&device, async move |device| device.resolve_losses().await).expect("asked");
        assert!(before.is_in_doubt() || device.losses().count() == before.count());
        assert_eq!(device.losses().count(), 1);
    }
}

#[test]
fn the_last_copy_is_readable_after_a_crash_even_if_it_cannot_be_written() {
    seed(26);
    let mut rig = Rig::new(Level::Raid1, 2, 4, Guard::Bitmap);
    let device = rig.created();
    write(&device, 0, 8, 5);
    flush(&device).expect("flushed");
    drop(device);
    rig.disks.iter().for_each(Disk::crash);
    let device = Arc::new(rig.assemble(Origin::Existing, &[1]).expect("assembled"));
    for _ in 0..2 {
        rig.disks[0].fail_write_after(0);
        assert_eq!(read(&device, 0, 8), vec![5; 4096]);
        assert!(
            device.status().unsynced_regions > 0,
            "it must be written later"
        );
    }
}

#[test]
fn a_block_of_the_last_copy_that_cannot_be_written_stops_no_resync_and_no_rebuild() {
    seed(27);
    let mut rig = Rig::new(Level::Raid1, 2, 12, Guard::Bitmap);
    let device = rig.created();
    write(&device, 0, 96, 5);
    flush(&device).expect("flushed");
    write(&device, 0, 1, 5);
    write(&device, 40, 1, 5);
    drop(device);
    rig.disks.iter().for_each(Disk::crash);
    let device = Arc::new(rig.assemble(Origin::Existing, &[1]).expect("assembled"));
    rig.disks[0].wear_out(rig.data_lba(0));
    replace(&mut rig, &device, 1);
    assert_eq!(synchronised(&device), Ok(()));
    assert_eq!(read(&device, 0, 8), vec![5; 4096]);
    assert_eq!(device.status().unsynced_regions, 1, "the other is done");
    assert!(rebuild(&device, 1, 100));
    // Now there is another copy, and the disk fails.
    assert_eq!(synchronised(&device), Ok(()));
    let status = device.status();
    assert_eq!(
        (status.states.members[0], status.unsynced_regions),
        (MemberState::Failed, 0)
    );
    assert_eq!(read(&device, 0, 96), vec![5; 96 * 512]);
}

/// A member without data that counts the writes that would allocate blocks.
struct Sparse(Null, Arc<AtomicU64>);

impl BlockDevice for Sparse {
    block::forward!(self => self.0;
        geometry, profile, read, unmap, write_zeroes, flush, losses, allocation, quiesced);

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.write(extent, data, durability)
    }
}

#[test]
fn holes_are_still_holes_after_they_were_synchronised_or_accepted() {
    for (level, members, guard, reads_first) in [
        (Level::Raid1, 2, Guard::Bitmap, false),
        (Level::Raid1, 2, Guard::Bitmap, true),
        (Level::Raid5, 3, Guard::Bitmap, false),
        (Level::Raid5, 3, Guard::Journal, false),
    ] {
        let writes = Arc::new(AtomicU64::new(0));
        let mut rig = Rig::new(level, members, 4, guard);
        let geometry = Geometry {
            block_size: BlockSize::B512,
            blocks: Blocks(32),
            physical_exponent: 0,
        };
        let sparse = || {
            Some(MemberDevice::from(
                Arc::new(Sparse(Null::new(geometry), Arc::clone(&writes))) as Arc<dyn BlockDevice>,
            ))
        };
        let members = (0..members).map(|_| sparse()).collect();
        let assembly = Assembly {
            members,
            ..rig.assembly(Origin::New, &[])
        };
        let device = Arc::new(end(RaidDevice::assemble(assembly)).expect("a set"));
        if reads_first {
            read(&device, 0, 32);
        }
        assert_eq!(
            (synchronised(&device), device.status().unsynced_regions),
            (Ok(()), 0)
        );
        if guard.is_journal() {
            for stripe in 0..rig.layout.stripes() {
                let found = ask(&device, async move |device| {
                    device.accept_step(stripe).await
                });
                assert_eq!(found, Ok(Scrubbed::Right));
            }
        }
        assert_eq!(writes.load(Ordering::Relaxed), 0, "{level}");
    }
}

/// Asserts that the copies of all stripes are equal, or become equal.
fn assert_equal_copies(rig: &Rig, device: &Arc<RaidDevice>, when: &str) {
    assert_eq!(synchronised(device), Ok(()));
    for stripe in 0..rig.layout.stripes() {
        assert_eq!(
            scrub(device, stripe, false),
            Scrubbed::Right,
            "{when}, stripe {stripe}"
        );
    }
}

/// The last member stays in the set after its flush has failed. Its cache then differs from its stable storage,
/// and the member that is rebuilt from it has the content of the cache.
#[test]
fn a_member_that_stays_after_a_failed_flush_is_written_again_before_it_is_one_of_two_copies() {
    for number in 0..16 {
        seed(number);
        let mut rig = Rig::new(Level::Raid1, 2, 8, Guard::Bitmap);
        let device = rig.created();
        write(&device, 0, 8, 1);
        flush(&device).expect("flushed");
        fail(&device, 1);
        write(&device, 0, 8, 2);
        rig.disks[0].fail_flush();
        assert!(flush(&device).is_err());
        // Without the failure, these flushes would clear the bits of all regions.
        (0..20).for_each(|_| flush(&device).expect("flushed"));
        replace(&mut rig, &device, 1);
        assert!(rebuild(&device, 1, 100));
        (0..20).for_each(|_| flush(&device).expect("flushed"));
        drop(device);
        let device = crashed(&mut rig);
        assert_eq!(device.status().states, MemberStates::in_sync(2));
        assert_equal_copies(&rig, &device, &format!("seed {number}"));
    }
}

/// The source of a rebuild loses its cache. The blocks that were written to both members are then older on the
/// source.
#[test]
fn a_member_that_stays_after_a_loss_is_made_equal_to_the_copy_that_is_rebuilt() {
    for number in 0..16 {
        seed(number);
        let mut rig = Rig::new(Level::Raid1, 2, 8, Guard::Bitmap);
        let device = rig.created();
        write(&device, 0, 8, 1);
        flush(&device).expect("flushed");
        fail(&device, 1);
        replace(&mut rig, &device, 1);
        assert!(!rebuild(&device, 1, 2));
        write(&device, 0, 8, 2);
        rig.disks[0].lose_cache();
        assert!(rebuild(&device, 1, 100));
        (0..20).for_each(|_| {
            let _ = flush(&device);
        });
        assert_eq!(device.status().states, MemberStates::in_sync(2));
        assert_equal_copies(&rig, &device, &format!("seed {number}"));
    }
}
