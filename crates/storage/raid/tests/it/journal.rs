//! Tests of journals that are on a separate device, lost, or written by other programs.

use std::sync::{Arc, Mutex};

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent, Lba, Pending};
use raid::{
    AreaCopy, Assembly, AssemblyError, Level, MemberStates, MetadataStore, Origin, ProtectionAreas,
    RaidDevice, Scrubbed,
};

use crate::disk::Disk;
use crate::rig::{Guard, Rig, ask, crashed, fail, read, scrub, try_write, write};
use crate::world::{End, HereSpawner, StepClock, draw, end, run, seed};

#[test]
fn a_set_without_its_journal_has_what_its_members_have() {
    for (seed_number, has_sums) in [(22, false), (23, true)] {
        seed(seed_number);
        let mut rig = Rig::with(Level::Raid5, 3, 4, Guard::Journal, has_sums);
        let device = rig.created();
        write(&device, 0, 16 * 4, 7);
        // Close the set, so that the journal's content is on the members.
        ask(&device, async move |device| device.close().await).expect("closed");
        for disk in &rig.disks[..rig.areas()] {
            let area = rig.area(disk);
            let garbage = Buffer::from(&[0x5a; 1024][..]).share();
            end(async move {
                area.write(Extent::new(0, 2), garbage, Durability::Stable)
                    .await
            })
            .expect("written");
        }
        // Simulates the stale parity of an interrupted write.
        if !has_sums {
            let place = layout_parity(&rig);
            let disk = rig.disks[place.member].clone();
            let (lba, garbage) = (rig.data_lba(place.lba), Buffer::from(&[1; 512][..]).share());
            end(async move {
                disk.write(Extent::new(lba, 1), garbage, Durability::Stable)
                    .await
            })
            .expect("written");
        }
        assert_eq!(
            rig.assemble(Origin::Existing, &[]).err(),
            Some(AssemblyError::NoJournal)
        );
        let device = Arc::new(
            rig.assemble(Origin::WithoutJournal, &[])
                .expect("assembled"),
        );
        let found: Vec<Scrubbed> = (0..4).map(|stripe| scrub(&device, stripe, true)).collect();
        let first = if has_sums {
            Scrubbed::Right
        } else {
            Scrubbed::Mismatch { is_repaired: true }
        };
        assert_eq!(
            found,
            [first, Scrubbed::Right, Scrubbed::Right, Scrubbed::Right]
        );
        assert_eq!(read(&device, 0, 64), vec![7; 64 * 512]);
        // The new journal works: after a crash it is replayed, even if a member is missing.
        write(&device, 0, 64, 9);
        rig.disks.iter().for_each(|disk| disk.crash());
        let device = Arc::new(rig.assemble(Origin::Existing, &[1]).expect("assembled"));
        assert_eq!(read(&device, 0, 64), vec![9; 64 * 512]);
    }
}

/// Returns the location of the first stripe's parity.
fn layout_parity(rig: &Rig) -> raid::Strip {
    rig.layout.strip(0, rig.layout.data_strips())
}

#[test]
fn a_new_journal_is_begun_wherever_an_old_one_has_been() {
    seed(16);
    let mut rig = Rig::new(Level::Raid5, 3, 4, Guard::Journal);
    // This header has the highest generation, and refers to records that were never written.
    let mut header = vec![0; 512];
    header[..8].copy_from_slice(b"LNRJHEAD");
    header[12] = 1;
    header[16..24].fill(0xff);
    let sum = crc_fast::crc32_iscsi(&header[12..48]).to_le_bytes();
    header[8..12].copy_from_slice(&sum);
    for disk in rig.disks.clone() {
        let (area, header) = (rig.area(&disk), Buffer::from(&header[..]).share());
        end(async move {
            area.write(Extent::new(1, 1), header, Durability::Stable)
                .await
        })
        .expect("written");
    }
    let device = rig.created();
    write(&device, 0, 8, 4);
    drop(device);
    assert_eq!(read(&crashed(&mut rig), 0, 8), vec![4; 4096]);
}

/// A newer program's journal may contain acknowledged writes.
#[test]
fn a_journal_of_a_newer_program_is_neither_replayed_nor_discarded() {
    seed(16);
    let mut rig = Rig::new(Level::Raid5, 3, 4, Guard::Journal);
    let device = rig.created();
    write(&device, 0, 8, 4);
    drop(device);
    let mut header = vec![0; 512];
    header[..8].copy_from_slice(b"LNRJHEAD");
    header[12] = 9;
    let sum = crc_fast::crc32_iscsi(&header[12..48]).to_le_bytes();
    header[8..12].copy_from_slice(&sum);
    for disk in rig.disks.clone() {
        let (area, header) = (rig.area(&disk), Buffer::from(&header[..]).share());
        end(async move {
            area.write(Extent::new(1, 1), header, Durability::Stable)
                .await
        })
        .expect("written");
    }
    for origin in [Origin::Existing, Origin::WithoutJournal] {
        assert_eq!(
            rig.assemble(origin, &[]).err(),
            Some(AssemblyError::NewerJournal { version: 9 })
        );
    }
    assert!(rig.assemble(Origin::New, &[]).is_ok());
}

fn accept(device: &Arc<RaidDevice>, stripe: u64) -> Scrubbed {
    ask(device, async move |device| device.accept_step(stripe).await).expect("looked at")
}

fn without_journal(rig: &mut Rig, device: &Arc<RaidDevice>, missing: &[usize]) -> Arc<RaidDevice> {
    ask(device, async move |device| device.close().await).expect("closed");
    Arc::new(
        rig.assemble(Origin::WithoutJournal, missing)
            .expect("assembled"),
    )
}

/// Without the journal's replay, blocks may be newer than their checksums.
#[test]
fn without_its_journal_data_whose_checksums_are_older_are_accepted() {
    seed(33);
    let mut rig = Rig::with_sums(Level::Raid5, 3, 4, Guard::Journal);
    let device = rig.created();
    write(&device, 0, 64, 7);
    let layout = rig.layout;
    // Two strips have errors in different columns, so they can reconstruct each other's blocks. In a third
    // column, both data and parity do not match their checksums.
    for (strip, column) in [(0, 1), (1, 2), (0, 5), (2, 5)] {
        let place = layout.strip(0, strip);
        rig.disks[place.member].corrupt(rig.data_lba(place.lba + column));
    }
    let device = without_journal(&mut rig, &device, &[]);
    assert_eq!(
        scrub(&device, 0, true),
        Scrubbed::Unreadable { is_repaired: false }
    );
    assert_eq!(
        accept(&device, 0),
        Scrubbed::Unreadable { is_repaired: true }
    );
    assert_eq!(scrub(&device, 0, true), Scrubbed::Right);
    let found = read(&device, 0, 64);
    let as_it_was: Vec<bool> = found
        .chunks(512)
        .map(|block| block.iter().all(|byte| *byte == 7))
        .collect();
    assert_eq!(
        (0..64)
            .filter(|block| !as_it_was[*block])
            .collect::<Vec<_>>(),
        [5]
    );
    assert_eq!(found[5 * 512], 7 ^ 0x5a);
    assert_eq!(accept(&device, 1), Scrubbed::Right);
}

#[test]
fn without_its_journal_an_unreadable_column_is_not_accepted_and_the_others_are() {
    seed(35);
    let mut rig = Rig::with_sums(Level::Raid5, 3, 4, Guard::Journal);
    let device = rig.created();
    write(&device, 0, 64, 7);
    let device = without_journal(&mut rig, &device, &[]);
    for strip in [0, 1] {
        let place = rig.layout.strip(0, strip);
        let disk = &rig.disks[place.member];
        disk.corrupt(rig.data_lba(place.lba + 5));
        disk.spoil(rig.data_lba(place.lba + 2));
    }
    for _ in 0..2 {
        assert_eq!(
            accept(&device, 0),
            Scrubbed::Unreadable { is_repaired: false }
        );
    }
    let read_block = |lba: u64| {
        ask(&device, async move |device| {
            device.read(Extent::new(lba, 1), Buffer::zeroed(512)).await
        })
        .map(|data| data[0])
    };
    assert_eq!(read_block(2), Err(DeviceError::Unreadable(Lba(2))));
    assert_eq!((read_block(5), read_block(6)), (Ok(7 ^ 0x5a), Ok(7)));
    write(&device, 0, 16, 8);
    assert_eq!(accept(&device, 0), Scrubbed::Right);
}

#[test]
fn without_its_journal_q_of_a_degraded_set_is_made_to_fit() {
    seed(34);
    let mut rig = Rig::new(Level::Raid6, 5, 4, Guard::Journal);
    let device = rig.created();
    write(&device, 0, 24, 7);
    let layout = rig.layout;
    let (q, lacking, other) = (
        layout.strip(0, 4),
        layout.strip(0, 1).member,
        layout.strip(0, 0).member,
    );
    rig.disks[q.member].corrupt(rig.data_lba(q.lba + 3));
    let device = without_journal(&mut rig, &device, &[lacking]);
    assert_eq!(accept(&device, 0), Scrubbed::Degraded);
    // Both strips are reconstructed from P and Q.
    ask(&device, async move |device| device.fail(other).await).expect("failed");
    assert_eq!(read(&device, 0, 24), vec![7; 24 * 512]);
}

/// Strips that read as written may be only in a cache, because a flush of their member has failed. They are
/// consistent until power fails.
#[test]
fn without_its_journal_consistent_stripes_are_written_again() {
    for (number, level, missing) in (0..8).flat_map(|number| {
        [
            (number, Level::Raid5, &[][..]),
            (number, Level::Raid6, &[]),
            (number, Level::Raid6, &[4]),
        ]
    }) {
        seed(number);
        let mut rig = Rig::new(level, 5, 4, Guard::Journal);
        let device = rig.created();
        write(&device, 0, 64, 7);
        ask(&device, async move |device| device.close().await).expect("closed");
        let device = Arc::new(rig.assemble(Origin::Existing, &[]).expect("assembled"));
        write(&device, 0, 64, 8);
        drop(device);
        rig.disks.iter().for_each(|disk| {
            disk.kill();
            disk.fail_flush_unseen();
        });
        let device = Arc::new(
            rig.assemble(Origin::WithoutJournal, missing)
                .expect("assembled"),
        );
        for stripe in 0..rig.layout.stripes() {
            let expected = match missing {
                [] => Scrubbed::Right,
                _ => Scrubbed::Degraded,
            };
            assert_eq!(accept(&device, stripe), expected);
        }
        ask(&device, async move |device| device.close().await).expect("closed");
        rig.disks.iter().for_each(Disk::crash);
        let device = Arc::new(rig.assemble(Origin::Existing, missing).expect("assembled"));
        fail(&device, 0);
        assert!(
            read(&device, 0, 64).iter().all(|byte| *byte == 8),
            "seed {number}, {level}, {missing:?}"
        );
    }
}

/// A killed process may leave a record that is only in a cache, and that no flush stores. If power fails while
/// the record is being replayed, it must not be lost together with a part of the replay.
#[test]
fn a_record_that_is_only_in_a_cache_is_stored_before_it_is_replayed() {
    for number in 0..2000 {
        seed(number);
        let mut rig = Rig::new(Level::Raid5, 3, 2, Guard::Journal);
        let device = rig.created();
        let data = Buffer::from(&[7; 20 * 512][..]).share();
        let write = async move {
            let _ = device
                .write(Extent::new(2, 20), data, Durability::Cached)
                .await;
        };
        run(vec![Box::pin(write)], 10 + draw(60));
        for disk in &rig.disks {
            disk.kill();
            // Repeat this, so that most blocks are affected.
            (0..4).for_each(|_| disk.fail_flush_unseen());
        }
        let assembly = rig.assembly(Origin::Existing, &[]);
        let replay = async move { drop(RaidDevice::assemble(assembly).await) };
        run(vec![Box::pin(replay)], 20 + draw(150));
        let device = crashed(&mut rig);
        for stripe in 0..rig.layout.stripes() {
            assert_eq!(
                scrub(&device, stripe, false),
                Scrubbed::Right,
                "seed {number}, stripe {stripe}"
            );
        }
    }
}

/// Covers every point of some writes: every write to the journal disk as the first that fails, and power
/// failures at any point after that.
#[test]
fn a_journal_whose_disk_fails_is_on_the_members_and_nothing_acknowledged_is_lost() {
    for level in [Level::Raid5, Level::Raid6] {
        for (fails_after, polls) in (0..8)
            .flat_map(|fails_after| [20, 60, 110, 200, 10_000].map(|polls| (fails_after, polls)))
        {
            seed(fails_after * 1000 + polls);
            let mut rig = Rig::new(level, 4, 4, Guard::JournalDisk);
            let mut device = rig.created();
            write(&device, 0, 20, 1);
            rig.journal.fail_write_after(fails_after);
            let acknowledged: Arc<Mutex<Vec<u8>>> = Arc::default();
            let (of, told) = (Arc::clone(&device), Arc::clone(&acknowledged));
            let ended = run(
                vec![Box::pin(async move {
                    for byte in 2..10 {
                        let data = Buffer::from(&[byte; 20 * 512][..]).share();
                        of.write(Extent::new(0, 20), data, Durability::Cached)
                            .await
                            .expect("it falls back");
                        told.lock().expect("no panic").push(byte);
                    }
                })],
                polls,
            );
            let last = acknowledged
                .lock()
                .expect("no panic")
                .last()
                .copied()
                .unwrap_or(1);
            if matches!(ended, End::Done) {
                let status = device.status();
                assert!(
                    !status.is_out_of_service
                        && !status.is_journal_on_device
                        && rig.store.is_journal_on_members()
                );
                assert_eq!(status.journal_copies, Some(level.parity_strips() + 1));
            }
            rig.disks.iter().chain([&rig.journal]).for_each(Disk::crash);
            // The content of the journal's disk is no longer used. Lose a member as well.
            if rig.store.is_journal_on_members() {
                rig.journal.die();
            }
            device = Arc::new(rig.assemble(Origin::Existing, &[0]).expect("it starts"));
            let found = read(&device, 0, 20);
            // Blocks of the outstanding write may be old or new.
            let is_right = |block: &[u8]| {
                block
                    .iter()
                    .all(|byte| *byte == block[0] && (last..=last + 1).contains(byte))
            };
            let firsts: Vec<u8> = found.chunks(512).map(|block| block[0]).collect();
            assert!(
                found.chunks(512).all(is_right),
                "{level}, {fails_after}, {polls}: {last}, {firsts:?}"
            );
        }
    }
}

/// The journal's disk can be read, but writes to it fail. The journal is replayed, and a new one is started
/// on the members.
#[test]
fn a_journal_that_can_only_be_read_is_replayed_and_begins_anew_on_the_members() {
    for level in [Level::Raid5, Level::Raid6] {
        let mut rig = Rig::new(level, 4, 4, Guard::JournalDisk);
        let device = rig.created();
        write(&device, 0, 20, 1);
        rig.disks.iter().chain([&rig.journal]).for_each(Disk::crash);
        rig.journal.fail_write_after(0);
        let device = Arc::new(rig.assemble(Origin::Existing, &[0]).expect("it starts"));
        assert!(rig.store.is_journal_on_members() && !device.status().is_journal_on_device);
        assert!(
            read(&device, 0, 20).iter().all(|byte| *byte == 1),
            "{level}"
        );
        write(&device, 0, 20, 2);
        rig.disks.iter().for_each(Disk::crash);
        rig.journal.die();
        let device = Arc::new(
            rig.assemble(Origin::Existing, &[0])
                .expect("it starts again"),
        );
        assert!(
            read(&device, 0, 20).iter().all(|byte| *byte == 2),
            "{level}"
        );
    }
}

#[test]
fn a_set_whose_store_cannot_record_where_its_journal_is_ends_its_writes() {
    struct Mute;
    impl MetadataStore for Mute {
        fn record(&self, _: &MemberStates) -> Pending<'_, ()> {
            Box::pin(async { Ok(()) })
        }

        fn missed_is_noted(&self, _: bool) -> Pending<'_, bool> {
            Box::pin(std::future::ready(Ok(false)))
        }
    }
    let rig = Rig::new(Level::Raid5, 3, 4, Guard::JournalDisk);
    let own = AreaCopy {
        device: rig.area(&rig.journal),
        member: None,
    };
    let on_member = |member: usize| AreaCopy {
        device: rig.area(&rig.disks[member]),
        member: Some(member),
    };
    for copies in [vec![own.clone()], vec![on_member(0), on_member(1), own]] {
        rig.journal.revive();
        let assembly = Assembly {
            layout: rig.layout,
            members: rig.disks.iter().map(|disk| Some(rig.data(disk))).collect(),
            states: MemberStates::in_sync(3),
            metadata: Arc::new(Mute),
            protection: ProtectionAreas::Journal(copies),
            origin: Origin::NewOfZeros,
            nonce: 7,
            memory_bytes: 1 << 20,
            missed: raid::Missed::Nothing,
            accepts_wrong_data: false,
            sleeper: Arc::new(StepClock),
            spawner: Arc::new(HereSpawner),
        };
        let device = Arc::new(end(RaidDevice::assemble(assembly)).expect("a set"));
        write(&device, 0, 8, 1);
        rig.journal.die();
        rig.disks.iter().for_each(|disk| {
            disk.take_requests();
        });
        try_write(&device, 0, 8, 2).expect_err("it has no journal");
        try_write(&device, 8, 8, 2).expect_err("nor has the next");
        assert!(
            rig.disks.iter().all(|disk| disk.take_requests()[2] > 0),
            "what was acknowledged is on stable storage"
        );
    }
}
