//! Tests of blocks that are unreadable, do not match their checksums, or were silently corrupted.

use block::{BlockDevice, Buffer, DeviceError, Extent};
use raid::{AssemblyError, Level, MemberStates, Origin, Scrubbed};

use crate::rig::{Guard, Rig, ask, crashed, flush, read, scrub, write};
use crate::world::seed;

#[test]
fn a_scrub_goes_on_behind_a_stripe_that_nothing_repairs() {
    seed(21);
    let mut rig = Rig::new(Level::Raid5, 3, 4, Guard::Journal);
    let device = rig.created();
    write(&device, 0, 16 * 4, 7);
    let layout = rig.layout;
    for (stripe, strips) in [(1, 2), (2, 1)] {
        for strip in 0..strips {
            let place = layout.strip(stripe, strip);
            rig.disks[place.member].spoil(rig.data_lba(place.lba));
        }
    }
    assert_eq!(
        scrub(&device, 1, true),
        Scrubbed::Unreadable { is_repaired: false }
    );
    assert_eq!(
        scrub(&device, 2, true),
        Scrubbed::Unreadable { is_repaired: true }
    );
    assert_eq!(scrub(&device, 2, true), Scrubbed::Right);
    assert_eq!(read(&device, 32, 16), vec![7; 16 * 512]);
}

#[test]
fn scrubbing_finds_what_has_changed_by_itself_and_repairs_it() {
    seed(4);
    // Corrupts the member with the first data strip of stripe 0. `right` is whether the scrub restores the
    // data.
    for (level, members, right) in [
        (Level::Raid6, 5, true),
        (Level::Raid1, 3, true),
        (Level::Raid5, 4, false),
    ] {
        let guard = if level == Level::Raid1 {
            Guard::Bitmap
        } else {
            Guard::Journal
        };
        let mut rig = Rig::new(level, members, 4, guard);
        let device = rig.created();
        write(&device, 0, 8, 5);
        let member = device.layout().strip(0, 0).member;
        rig.disks[member].corrupt(rig.data_lba(3));
        assert_eq!(
            scrub(&device, 0, false),
            Scrubbed::Mismatch { is_repaired: false }
        );
        assert_eq!(
            scrub(&device, 0, true),
            Scrubbed::Mismatch { is_repaired: true }
        );
        assert_eq!(scrub(&device, 0, true), Scrubbed::Right);
        // RAID 5 cannot determine which strip is wrong: its data is assumed to be right.
        assert_eq!(read(&device, 0, 8) == vec![5; 4096], right, "{level}");
    }
}

/// Checksums identify the corrupt member. Reads and scrubs rewrite its block instead of using it, and a scrub
/// names the member.
#[test]
fn a_block_that_does_not_fit_its_checksum_is_read_from_the_others_and_written_anew() {
    seed(17);
    for (level, members, guard) in [
        (Level::Raid1, 2, Guard::Bitmap),
        (Level::Raid10, 3, Guard::Bitmap),
        (Level::Raid5, 4, Guard::Journal),
        (Level::Raid6, 5, Guard::Journal),
    ] {
        let mut rig = Rig::with_sums(level, members, 4, guard);
        let device = rig.created();
        write(&device, 0, 8, 5);
        assert_eq!(flush(&device), Ok(()));
        let place = device.layout().strip(0, 0);
        let corrupt = |block: u64| rig.disks[place.member].corrupt(rig.data_lba(place.lba + block));
        let wrong = || device.status().wrong_blocks[place.member];
        corrupt(3);
        (0..8).for_each(|_| assert_eq!(read(&device, 0, 8), vec![5; 4096], "{level}"));
        // In a mirror, each read may have used the other copy.
        if guard == Guard::Journal {
            assert_eq!(
                (scrub(&device, 0, false), wrong()),
                (Scrubbed::Right, 1),
                "{level}"
            );
        }
        scrub(&device, 0, true);
        let before = wrong();
        corrupt(4);
        corrupt(6);
        assert_eq!(
            scrub(&device, 0, false),
            Scrubbed::Unreadable { is_repaired: false }
        );
        assert_eq!(
            scrub(&device, 0, true),
            Scrubbed::Unreadable { is_repaired: true }
        );
        assert_eq!(scrub(&device, 0, true), Scrubbed::Right);
        assert_eq!(wrong(), before + 4, "{level}");
        // A corrupt checksum only causes a reconstruction. The set has the correct checksum in memory until
        // it is reopened.
        rig.disks[place.member].corrupt(rig.sum_lba(place.lba));
        flush(&device).expect("flushed");
        drop(device);
        let device = crashed(&mut rig);
        assert_eq!(read(&device, 0, 8), vec![5; 4096], "{level}");
        assert_eq!(device.status().states, MemberStates::in_sync(members));
    }
}

/// Clears more checksums than one read covers, so that those in the middle are zeroed without being read.
#[test]
fn blocks_that_are_cleared_have_checksums_of_zeros() {
    seed(19);
    let mut rig = Rig::with_sums(Level::Raid5, 3, 500, Guard::Journal);
    let device = rig.created();
    write(&device, 0, 8000, 7);
    ask(&device, async move |device| {
        device.unmap(Extent::new(100, 7800)).await
    })
    .expect("cleared");
    write(&device, 4000, 5, 8);
    for device in [device, crashed(&mut rig)] {
        let data = read(&device, 0, 8000);
        let byte = |block: usize| match block {
            0..100 | 7900.. => 7,
            4000..4005 => 8,
            _ => 0,
        };
        assert!(
            data.chunks(512)
                .enumerate()
                .all(|(block, data)| data.iter().all(|is| *is == byte(block)))
        );
        assert_eq!(device.status().wrong_blocks, [0; 3]);
    }
    assert_eq!(scrub(&crashed(&mut rig), 250, true), Scrubbed::Right);
}

#[test]
fn checksums_without_what_tells_where_a_crash_left_them_are_refused() {
    seed(18);
    for (level, guard) in [
        (Level::Raid0, Guard::Nothing),
        (Level::Raid5, Guard::Bitmap),
        (Level::Raid1, Guard::Nothing),
    ] {
        let mut rig = Rig::with_sums(level, 3, 4, guard);
        let refused = rig.assemble(Origin::NewOfZeros, &[]).err();
        assert_eq!(refused, Some(AssemblyError::UnprotectedChecksums { level }));
    }
}

#[test]
fn a_block_that_cannot_be_read_is_read_from_the_others_and_written_anew() {
    seed(5);
    for (level, guard) in [
        (Level::Raid1, Guard::Bitmap),
        (Level::Raid5, Guard::Journal),
    ] {
        let mut rig = Rig::new(level, 3, 4, guard);
        let device = rig.created();
        write(&device, 0, 8, 5);
        let member = device.layout().strip(0, 0).member;
        rig.disks[member].spoil(rig.data_lba(3));
        (0..4).for_each(|_| assert_eq!(read(&device, 0, 8), vec![5; 4096]));
        assert!(!rig.disks[member].is_spoilt());
        assert_eq!(device.status().states, MemberStates::in_sync(3));
    }
}

#[test]
fn without_redundancy_an_error_names_the_block_of_the_set() {
    seed(6);
    let mut rig = Rig::new(Level::Raid0, 2, 4, Guard::Nothing);
    let device = rig.created();
    // Strip 3 of the set is the second of member 1.
    rig.disks[1].spoil(rig.data_lba(13));
    let result = ask(&device, async move |device| {
        device
            .read(Extent::new(20, 20), Buffer::zeroed(20 * 512))
            .await
            .map(drop)
    });
    assert_eq!(result, Err(DeviceError::Unreadable(block::Lba(29))));
    rig.disks[0].lose_cache();
    assert_eq!((device.losses().count(), flush(&device)), (1, Ok(())));
    assert_eq!(device.status().states, MemberStates::in_sync(2));
}
