//! Scenes: what a set does in one situation.

use std::sync::{Arc, Mutex};

use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry, Null,
    Pending, Run,
};
use raid::{
    AreaCopy, Assembly, AssemblyError, Layout, Level, MemberDevice, MemberState, MemberStates, MetadataStore,
    Origin, ProtectionAreas, RaidDevice, Scrubbed,
};

use crate::disk::Disk;
use crate::rig::{Guard, Rig};
use crate::world::{End, HereSpawner, StepClock, end, run, seed};

pub(crate) fn try_write(
    device: &Arc<RaidDevice>,
    lba: u64,
    blocks: u64,
    byte: u8,
) -> Result<(), DeviceError> {
    let device = Arc::clone(device);
    end(async move {
        let data = Buffer::from(&vec![byte; blocks as usize * 512][..]).share();
        device.write(Extent::new(lba, blocks), data, Durability::Cached).await
    })
}

pub(crate) fn write(device: &Arc<RaidDevice>, lba: u64, blocks: u64, byte: u8) {
    try_write(device, lba, blocks, byte).expect("written");
}

pub(crate) fn read(device: &Arc<RaidDevice>, lba: u64, blocks: u64) -> Vec<u8> {
    let device = Arc::clone(device);
    let data =
        end(
            async move { device.read(Extent::new(lba, blocks), Buffer::zeroed(blocks as usize * 512)).await },
        );
    data.expect("read").to_vec()
}

pub(crate) fn flush(device: &Arc<RaidDevice>) -> Result<(), DeviceError> {
    let device = Arc::clone(device);
    end(async move { device.flush().await })
}

pub(crate) fn scrub(device: &Arc<RaidDevice>, stripe: u64, repairs: bool) -> Scrubbed {
    let device = Arc::clone(device);
    end(async move { device.scrub_step(stripe, repairs).await }).expect("scrubbed")
}

pub(crate) fn synchronised(device: &Arc<RaidDevice>) -> Result<(), DeviceError> {
    let device = Arc::clone(device);
    end(async move {
        let mut done = 0;
        while let Some(progress) = device.synchronise_step(done).await? {
            done = progress.done % progress.total;
        }
        Ok(())
    })
}

fn rebuild(device: &Arc<RaidDevice>, member: usize, steps: u64) -> bool {
    let device = Arc::clone(device);
    let whole = async move {
        for _ in 0..steps {
            if device.rebuild_step(member).await?.is_none() {
                return Ok(true);
            }
        }
        Ok::<bool, DeviceError>(false)
    };
    end(whole).expect("rebuilt")
}

pub(crate) fn crashed(rig: &mut Rig) -> Arc<RaidDevice> {
    rig.disks.iter().for_each(|disk| disk.crash());
    Arc::new(rig.assemble(Origin::Existing, &[]).expect("assembled"))
}

/// The same of a mirror, after a write to each of two regions.
pub(crate) fn crashed_with_two_regions(rig: &mut Rig) -> Arc<RaidDevice> {
    let device = rig.created();
    write(&device, 0, 1, 1);
    write(&device, 40, 1, 1);
    drop(device);
    let device = crashed(rig);
    assert_eq!(device.status().unsynced_regions, 2);
    device
}

pub(crate) fn requests(rig: &Rig) -> [u64; 3] {
    let each = rig.disks.iter().map(|disk| disk.take_requests());
    each.fold([0; 3], |sum, one| [sum[0] + one[0], sum[1] + one[1], sum[2] + one[2]])
}

#[test]
fn a_write_of_a_whole_stripe_reads_nothing_and_a_small_one_reads_what_it_must() {
    seed(1);
    let mut rig = Rig::new(Level::Raid5, 5, 4, Guard::Nothing);
    let device = rig.created();
    requests(&rig);
    write(&device, 32, 32, 7);
    assert_eq!(requests(&rig), [0, 5, 0]);
    write(&device, 32, 8, 8);
    assert_eq!(requests(&rig), [2, 2, 0]);
    // Three of four strips: the fourth is read, and parity is not.
    write(&device, 32, 24, 9);
    assert_eq!(requests(&rig), [1, 4, 0]);
}

#[test]
fn writes_of_one_stripe_that_wait_for_each_other_are_one_write() {
    seed(15);
    let mut rig = Rig::new(Level::Raid5, 5, 4, Guard::Nothing);
    let device = rig.created();
    requests(&rig);
    let write = |strip: u64| {
        let device = Arc::clone(&device);
        let request: crate::world::Task = Box::pin(async move {
            let data = Buffer::from(&vec![strip as u8; 4096][..]).share();
            let written = device.write(Extent::new(strip * 8, 8), data, Durability::Cached).await;
            written.expect("written");
        });
        request
    };
    assert_eq!(run((0..9).map(write).collect(), u64::MAX), End::Done);
    // The first goes alone, and those that came meanwhile together.
    let [_, writes, _] = requests(&rig);
    assert!(writes < 18, "{writes}");
    (0..9).for_each(|strip| assert_eq!(read(&device, strip * 8, 8), vec![strip as u8; 4096]));
    (0..4).for_each(|stripe| assert_eq!(scrub(&device, stripe, false), Scrubbed::Right));
}

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
    assert_eq!(scrub(&device, 1, true), Scrubbed::Unreadable { is_repaired: false });
    assert_eq!(scrub(&device, 2, true), Scrubbed::Unreadable { is_repaired: true });
    assert_eq!(scrub(&device, 2, true), Scrubbed::Right);
    assert_eq!(read(&device, 32, 16), vec![7; 16 * 512]);
}

#[test]
fn a_set_without_its_journal_has_what_its_members_have() {
    for (seed_number, has_sums) in [(22, false), (23, true)] {
        seed(seed_number);
        let mut rig = match has_sums {
            true => Rig::with_sums(Level::Raid5, 3, 4, Guard::Journal),
            false => Rig::new(Level::Raid5, 3, 4, Guard::Journal),
        };
        let device = rig.created();
        write(&device, 0, 16 * 4, 7);
        // What the journal had is on the members, as after the set was closed.
        let closing = Arc::clone(&device);
        end(async move { closing.close().await }).expect("closed");
        for disk in &rig.disks[..rig.areas()] {
            let area = rig.area(disk);
            let garbage = Buffer::from(&[0x5a; 1024][..]).share();
            end(async move { area.write(Extent::new(0, 2), garbage, Durability::Stable).await })
                .expect("written");
        }
        // Stale parity, of a write that was cut in two.
        if !has_sums {
            let place = layout_parity(&rig);
            let disk = rig.disks[place.member].clone();
            let (lba, garbage) = (rig.data_lba(place.lba), Buffer::from(&[1; 512][..]).share());
            end(async move { disk.write(Extent::new(lba, 1), garbage, Durability::Stable).await })
                .expect("written");
        }
        assert_eq!(rig.assemble(Origin::Existing, &[]).err(), Some(AssemblyError::NoJournal));
        let device = Arc::new(rig.assemble(Origin::WithoutJournal, &[]).expect("assembled"));
        let found: Vec<Scrubbed> = (0..4).map(|stripe| scrub(&device, stripe, true)).collect();
        let first = if has_sums { Scrubbed::Right } else { Scrubbed::Mismatch { is_repaired: true } };
        assert_eq!(found, [first, Scrubbed::Right, Scrubbed::Right, Scrubbed::Right]);
        assert_eq!(read(&device, 0, 64), vec![7; 64 * 512]);
        // The new journal is one: what it has is replayed, and a member may lack then.
        write(&device, 0, 64, 9);
        rig.disks.iter().for_each(|disk| disk.crash());
        let device = Arc::new(rig.assemble(Origin::Existing, &[1]).expect("assembled"));
        assert_eq!(read(&device, 0, 64), vec![9; 64 * 512]);
    }
}

/// Where the parity of the first stripe lies.
fn layout_parity(rig: &Rig) -> raid::Strip {
    rig.layout.strip(0, rig.layout.data_strips())
}

#[test]
fn a_slow_copy_is_avoided_and_tried_again_when_it_is_fast() {
    seed(2);
    let mut rig = Rig::new(Level::Raid1, 2, 4, Guard::Bitmap);
    let device = rig.created();
    rig.disks[0].slow_down(3000);
    requests(&rig);
    (0..100).for_each(|_| drop(read(&device, 0, 1)));
    assert!(rig.disks[0].take_requests()[0] < 10);
    rig.disks[0].slow_down(0);
    (0..3000).for_each(|_| drop(read(&device, 0, 1)));
    rig.disks.iter().for_each(|disk| drop(disk.take_requests().to_vec()));
    (0..100).for_each(|_| drop(read(&device, 0, 1)));
    assert!(rig.disks[0].take_requests()[0] > 10);
}

#[test]
fn a_new_set_of_used_disks_becomes_right() {
    seed(3);
    for level in [Level::Raid5, Level::Raid6] {
        let mut rig = Rig::of_used_disks(level, 5, 6, Guard::Journal);
        let device = Arc::new(rig.assemble(Origin::New, &[]).expect("a set"));
        write(&device, 0, 8, 1);
        for member in 0..5 {
            assert!(rebuild(&device, member, 100));
        }
        write(&device, 8, 40, 2);
        (0..6).for_each(|stripe| assert_eq!(scrub(&device, stripe, false), Scrubbed::Right));
        assert_eq!((read(&device, 0, 8), read(&device, 8, 40)), (vec![1; 4096], vec![2; 40 * 512]));
    }
    let mut rig = Rig::of_used_disks(Level::Raid10, 3, 6, Guard::Bitmap);
    let device = Arc::new(rig.assemble(Origin::New, &[]).expect("a set"));
    assert!(device.status().unsynced_regions > 1);
    let before = read(&device, 0, 72);
    assert_eq!((synchronised(&device), device.status().unsynced_regions), (Ok(()), 0));
    (0..9).for_each(|stripe| assert_eq!(scrub(&device, stripe, false), Scrubbed::Right));
    assert_eq!(read(&device, 0, 72), before);
}

#[test]
fn scrubbing_finds_what_has_changed_by_itself_and_repairs_it() {
    seed(4);
    // The member with the first data strip of stripe 0, and what it reads afterwards.
    for (level, members, right) in
        [(Level::Raid6, 5, true), (Level::Raid1, 3, true), (Level::Raid5, 4, false)]
    {
        let guard = if level == Level::Raid1 { Guard::Bitmap } else { Guard::Journal };
        let mut rig = Rig::new(level, members, 4, guard);
        let device = rig.created();
        write(&device, 0, 8, 5);
        let member = device.layout().strip(0, 0).member;
        rig.disks[member].corrupt(rig.data_lba(3));
        assert_eq!(scrub(&device, 0, false), Scrubbed::Mismatch { is_repaired: false });
        assert_eq!(scrub(&device, 0, true), Scrubbed::Mismatch { is_repaired: true });
        assert_eq!(scrub(&device, 0, true), Scrubbed::Right);
        // RAID 5 cannot know which strip is wrong: its data are taken to be right.
        assert_eq!(read(&device, 0, 8) == vec![5; 4096], right, "{level}");
    }
}

/// Which member lies is known: what it has is not returned, and is written anew; by reads and by scrubbing, which tells the member.
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
        // A mirror may read the other copy each time.
        if guard == Guard::Journal {
            assert_eq!((scrub(&device, 0, false), wrong()), (Scrubbed::Right, 1), "{level}");
        }
        scrub(&device, 0, true);
        let before = wrong();
        corrupt(4);
        corrupt(6);
        assert_eq!(scrub(&device, 0, false), Scrubbed::Unreadable { is_repaired: false });
        assert_eq!(scrub(&device, 0, true), Scrubbed::Unreadable { is_repaired: true });
        assert_eq!(scrub(&device, 0, true), Scrubbed::Right);
        assert_eq!(wrong(), before + 4, "{level}");
        // A checksum that changes costs nothing but a recovery. It is in memory until the set is opened anew.
        rig.disks[place.member].corrupt(rig.sum_lba(place.lba));
        flush(&device).expect("flushed");
        drop(device);
        let device = crashed(&mut rig);
        assert_eq!(read(&device, 0, 8), vec![5; 4096], "{level}");
        assert_eq!(device.status().states, MemberStates::in_sync(members));
    }
}

/// More checksums than are read at once: those of the middle are zeroed without being read.
#[test]
fn blocks_that_are_cleared_have_checksums_of_zeros() {
    seed(19);
    let mut rig = Rig::with_sums(Level::Raid5, 3, 500, Guard::Journal);
    let device = rig.created();
    write(&device, 0, 8000, 7);
    let clearing = Arc::clone(&device);
    end(async move { clearing.unmap(Extent::new(100, 7800)).await }).expect("cleared");
    write(&device, 4000, 5, 8);
    for device in [device, crashed(&mut rig)] {
        let data = read(&device, 0, 8000);
        let byte = |block: usize| match block {
            0..100 | 7900.. => 7,
            4000..4005 => 8,
            _ => 0,
        };
        assert!(data.chunks(512).enumerate().all(|(block, data)| data.iter().all(|is| *is == byte(block))));
        assert_eq!(device.status().wrong_blocks, [0; 3]);
    }
    assert_eq!(scrub(&crashed(&mut rig), 250, true), Scrubbed::Right);
}

#[test]
fn checksums_without_what_tells_where_a_crash_left_them_are_refused() {
    seed(18);
    for (level, guard) in
        [(Level::Raid0, Guard::Nothing), (Level::Raid5, Guard::Bitmap), (Level::Raid1, Guard::Nothing)]
    {
        let mut rig = Rig::with_sums(level, 3, 4, guard);
        let refused = rig.assemble(Origin::NewOfZeros, &[]).err();
        assert_eq!(refused, Some(AssemblyError::UnprotectedChecksums { level }));
    }
}

#[test]
fn a_block_that_cannot_be_read_is_read_from_the_others_and_written_anew() {
    seed(5);
    for (level, guard) in [(Level::Raid1, Guard::Bitmap), (Level::Raid5, Guard::Journal)] {
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
    let reading = Arc::clone(&device);
    let result =
        end(async move { reading.read(Extent::new(20, 20), Buffer::zeroed(20 * 512)).await.map(drop) });
    assert_eq!(result, Err(DeviceError::Unreadable(block::Lba(29))));
    rig.disks[0].lose_cache();
    assert_eq!((device.losses().count(), flush(&device)), (1, Ok(())));
    assert_eq!(device.status().states, MemberStates::in_sync(2));
}

/// Blocks that were written, flushed and written again, of which some are as before on a member that has lost its cache.
fn with_a_member_that_lost_its_cache(level: Level, guard: Guard, member: usize) -> (Rig, Arc<RaidDevice>) {
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

/// A server was killed and started again while its disk was a member. The clients of it knew that at the next flush; until then a
/// block that was changed in part was read from it, old, and written to all members.
#[test]
fn a_member_that_lost_its_cache_is_not_read_before_it_was_asked() {
    seed(31);
    for ((level, guard), member) in REDUNDANT.into_iter().flat_map(|kind| (0..4).map(move |at| (kind, at))) {
        let (rig, device) = with_a_member_that_lost_its_cache(level, guard, member);
        for lba in 0..rig.layout.blocks().0 {
            // A byte of it: the block is read, changed and written.
            let mut block = read(&device, lba, 1);
            assert_eq!(block, vec![2; 512], "{level}, {guard:?}, member {member}: block {lba}");
            block[0] = 3;
            let (device, data) = (Arc::clone(&device), Buffer::from(&block[..]).share());
            end(async move { device.write(Extent::new(lba, 1), data, Durability::Cached).await })
                .expect("written");
        }
        assert_eq!(device.status().states.members[member], MemberState::Failed, "{level}, {guard:?}");
        assert_eq!(flush(&device), Ok(()));
        let changed: Vec<u8> = read(&device, 0, rig.layout.blocks().0);
        assert!(changed.chunks(512).all(|block| block[0] == 3 && block[1..].iter().all(|byte| *byte == 2)));
    }
}

/// Parity is changed by what it was, and by what the data were.
#[test]
fn small_writes_take_no_old_parity_and_no_old_data_from_it() {
    seed(32);
    for ((level, guard), member) in REDUNDANT.into_iter().flat_map(|kind| (0..4).map(move |at| (kind, at))) {
        let (rig, device) = with_a_member_that_lost_its_cache(level, guard, member);
        let blocks = rig.layout.blocks().0;
        (0..blocks).step_by(3).for_each(|lba| write(&device, lba, 1, 4));
        assert_eq!(flush(&device), Ok(()));
        // Each strip of another member by parity, or its copy.
        for other in (0..4).filter(|other| *other != member) {
            let failed = device.status().states.lacking();
            let mut lacking = failed.clone();
            lacking[other] = true;
            if rig.layout.survives(&lacking) && !failed[other] {
                let device = Arc::clone(&device);
                assert_eq!(end(async move { device.fail(other).await }), Ok(()));
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
    for (level, guard) in [(Level::Raid1, Guard::Bitmap), (Level::Raid6, Guard::Journal)] {
        let (mut rig, device) = with_a_member_that_lost_its_cache(level, guard, 0);
        assert_eq!(scrub(&device, 0, true), Scrubbed::Degraded, "it is out, and nothing is repaired by it");
        let disk = rig.spare();
        rig.disks[3] = disk.clone();
        let (failed, replaced) = (Arc::clone(&device), Arc::clone(&device));
        assert_eq!(end(async move { failed.fail(3).await }), Ok(()));
        let (data, area) = (rig.data(&disk), (level == Level::Raid1).then(|| rig.area(&disk)));
        assert_eq!(end(async move { replaced.replace(replaced.vacancy(3)?, data, area).await }), Ok(()));
        assert!(rebuild(&device, 3, 1000));
        assert_eq!(read(&device, 0, rig.layout.blocks().0), vec![2; rig.layout.blocks().0 as usize * 512]);
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
        assert_eq!(device.status().states, MemberStates::in_sync(4), "{level}, {guard:?}");
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
    assert_eq!(device.status().states.members, [MemberState::Failed, MemberState::InSync]);
}

/// A set that is a member of another one.
#[test]
fn a_set_is_in_doubt_with_a_member_that_it_needs() {
    seed(36);
    let mut rig = Rig::new(Level::Raid0, 2, 4, Guard::Nothing);
    let device = rig.created();
    rig.disks[1].lose_cache_unseen();
    assert!(device.losses().is_in_doubt());
    let asked = Arc::clone(&device);
    assert_eq!(end(async move { asked.resolve_losses().await }), Ok(()));
    assert_eq!((device.losses().is_in_doubt(), device.losses().count()), (false, 1));
}

/// A gateway was killed, and the servers of its members were not: what they have in their caches is of the run before. One that
/// loses it later would not be known to have lost anything.
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
        assert_eq!(read(&device, 0, blocks), vec![6; blocks as usize * 512], "{level}");
    }
}

fn plain(device: Arc<dyn BlockDevice>) -> Option<MemberDevice> {
    Some(device.into())
}

/// Never comes to an end, or fails.
struct NoStore {
    fails: bool,
}

impl MetadataStore for NoStore {
    fn record(&self, _: &MemberStates) -> Pending<'_, ()> {
        let fails = self.fails;
        Box::pin(async move { if fails { Err(DeviceError::NotReady) } else { std::future::pending().await } })
    }

    fn start(&self, _: &MemberStates) -> Pending<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn missed_is_noted(&self, _: bool) -> Pending<'_, bool> {
        Box::pin(std::future::ready(Ok(false)))
    }
}

fn assembly(rig: &Rig, metadata: Arc<dyn MetadataStore>) -> Assembly {
    Assembly {
        layout: rig.layout,
        members: rig.disks.iter().map(|disk| Some(rig.data(disk))).collect(),
        states: MemberStates::in_sync(rig.disks.len()),
        metadata,
        protection: ProtectionAreas::Nothing,
        origin: Origin::NewOfZeros,
        nonce: 1,
        memory_bytes: 0,
        missed: raid::Missed::Nothing,
        accepts_wrong_data: false,
        sleeper: Arc::new(StepClock),
        spawner: Arc::new(HereSpawner),
    }
}

#[test]
fn a_write_that_a_member_missed_waits_for_the_record_of_its_failure() {
    seed(7);
    let rig = Rig::new(Level::Raid1, 2, 4, Guard::Nothing);
    let device =
        end(RaidDevice::assemble(assembly(&rig, Arc::new(NoStore { fails: false })))).expect("a set");
    let device = Arc::new(device);
    rig.disks[1].die();
    let (writing, has_ended) = (Arc::clone(&device), std::rc::Rc::new(std::cell::Cell::new(false)));
    let ended = std::rc::Rc::clone(&has_ended);
    let hanging = Box::pin(async move {
        let data = Buffer::zeroed(512).share();
        let _ = writing.write(Extent::new(0, 1), data, Durability::Cached).await;
        ended.set(true);
    });
    // Something that is always ready keeps the executor from taking the wait for a deadlock.
    let clock = Box::pin(block::Sleeper::sleep(&StepClock, std::time::Duration::from_secs(1)));
    run(vec![hanging, clock], 10_000);
    assert!(!has_ended.get());
    assert_eq!(device.status().states.members[1], MemberState::Failed);
}

#[test]
fn a_set_that_cannot_record_a_failure_leaves_service() {
    seed(8);
    let rig = Rig::new(Level::Raid1, 2, 4, Guard::Nothing);
    let device = end(RaidDevice::assemble(assembly(&rig, Arc::new(NoStore { fails: true })))).expect("a set");
    let device = Arc::new(device);
    rig.disks[1].die();
    assert_eq!(try_write(&device, 0, 1, 1), Err(DeviceError::NotReady));
    assert!(device.status().is_out_of_service);
    assert_eq!(try_write(&device, 0, 1, 1), Err(DeviceError::NotReady));
}

#[test]
fn a_set_whose_write_was_dropped_with_its_thread_leaves_service() {
    seed(14);
    let mut rig = Rig::new(Level::Raid5, 3, 4, Guard::Journal);
    let device = rig.created();
    let writing = Arc::clone(&device);
    let request = Box::pin(async move {
        let data = Buffer::zeroed(16 * 512).share();
        let _ = writing.write(Extent::new(0, 16), data, Durability::Cached).await;
    });
    assert_eq!(run(vec![request], 5), End::Crashed);
    assert!(device.status().is_out_of_service);
    assert_eq!(flush(&device), Err(DeviceError::NotReady));
}

#[test]
fn a_rebuild_resumes_where_it_was_recorded() {
    seed(9);
    let mut rig = Rig::new(Level::Raid5, 3, 300, Guard::Journal);
    let device = rig.created();
    write(&device, 0, 4000, 3);
    let failing = Arc::clone(&device);
    end(async move { failing.fail(1).await }).expect("failed");
    let refused = Arc::clone(&device);
    assert_eq!(end(async move { refused.fail(0).await }), Err(DeviceError::Unsupported));
    rig.disks[1] = rig.spare();
    let (spare, area) = (rig.data(&rig.disks[1]), rig.area(&rig.disks[1]));
    let replacing = Arc::clone(&device);
    end(async move { replacing.replace(replacing.vacancy(1)?, spare, Some(area)).await }).expect("replaced");
    assert!(!rebuild(&device, 1, 280));
    let device = crashed(&mut rig);
    assert_eq!(device.status().states.members[1], MemberState::Rebuilding { done: 256 });
    assert!(rebuild(&device, 1, 45));
    assert_eq!(rig.store.states(), MemberStates::in_sync(3));
    rig.disks[0].die();
    assert_eq!(read(&device, 0, 4000), vec![3; 4000 * 512]);
}

#[test]
fn a_set_with_parity_that_loses_one_member_too_many_serves_no_garbage() {
    seed(10);
    let mut rig = Rig::new(Level::Raid5, 3, 4, Guard::Journal);
    let device = rig.created();
    write(&device, 0, 64, 1);
    rig.disks[2].die();
    write(&device, 0, 8, 2);
    rig.disks[1].fail_write_after(0);
    let results: Vec<_> = (0..4).map(|stripe| try_write(&device, stripe * 16, 16, 3)).collect();
    assert!(results.contains(&Err(DeviceError::NotReady)));
    assert!(device.status().is_out_of_service);
    drop(device);
    let device = crashed(&mut rig);
    for block in 0..64 {
        let byte = read(&device, block, 1)[0];
        let old = if block < 8 { 2 } else { 1 };
        assert!(byte == 3 || byte == old, "block {block} has {byte}");
    }
}

#[test]
fn only_regions_that_were_written_lately_are_synchronised() {
    seed(11);
    let mut rig = Rig::new(Level::Raid1, 2, 12, Guard::Bitmap);
    let device = crashed_with_two_regions(&mut rig);
    let synchronised = Arc::clone(&device);
    end(async move {
        for step in [0, 1, 0, 1, 0] {
            synchronised.synchronise_step(step).await.expect("synchronised");
        }
    });
    assert_eq!(device.status().unsynced_regions, 0);
    (0..9).for_each(|_| assert_eq!(flush(&device), Ok(())));
    write(&device, 80, 1, 1);
    drop(device);
    assert_eq!(crashed(&mut rig).status().unsynced_regions, 1);
}

#[test]
fn a_striped_set_of_mirrors_is_a_set_of_sets() {
    seed(12);
    let mut pairs: Vec<Rig> = (0..2).map(|_| Rig::new(Level::Raid1, 2, 4, Guard::Bitmap)).collect();
    let members: Vec<Arc<RaidDevice>> = pairs.iter_mut().map(Rig::created).collect();
    let layout = Layout::new(Level::Raid0, 2, 4096, BlockSize::B512, Blocks(32)).expect("a layout");
    let outer = Rig::new(Level::Raid0, 2, 4, Guard::Nothing);
    let assembly = Assembly {
        layout,
        members: members.iter().map(|member| plain(Arc::<RaidDevice>::clone(member))).collect(),
        ..assembly(&outer, Arc::new(NoStore { fails: true }))
    };
    let device = Arc::new(end(RaidDevice::assemble(assembly)).expect("a set"));
    pairs[0].disks[1].die();
    pairs[1].disks[0].die();
    write(&device, 3, 50, 9);
    assert_eq!(read(&device, 3, 50), vec![9; 50 * 512]);
    assert_eq!(members[1].status().states.members, [MemberState::Failed, MemberState::InSync]);
}

#[test]
fn holes_of_members_are_holes_of_the_set() {
    let geometry = Geometry { block_size: BlockSize::B512, blocks: Blocks(64), physical_exponent: 0 };
    let rig = Rig::new(Level::Raid5, 3, 8, Guard::Nothing);
    let members = (0..3).map(|_| plain(Arc::new(Null::new(geometry)))).collect();
    let assembly = Assembly { members, ..assembly(&rig, Arc::new(NoStore { fails: true })) };
    let device = end(RaidDevice::assemble(assembly)).expect("a set");
    let runs = end(async move { device.allocation(Extent::new(3, 100), 4).await }).expect("runs");
    assert_eq!(runs, [Run { extent: Extent::new(3, 100), allocation: Allocation::Deallocated }]);
}

#[test]
fn what_makes_no_set_is_refused_with_a_sentence() {
    let refusal = |rig: &Rig, change: &dyn Fn(&mut Assembly)| {
        let mut assembly = assembly(rig, Arc::new(NoStore { fails: false }));
        assembly.origin = Origin::Existing;
        change(&mut assembly);
        end(RaidDevice::assemble(assembly))
            .err()
            .map(|error: AssemblyError| error.to_string())
            .expect("refused")
    };
    let rig = Rig::new(Level::Raid5, 3, 4, Guard::Journal);
    let sentence = refusal(&rig, &|assembly| drop(assembly.members.pop()));
    assert_eq!(sentence, "the set has 3 members, and 2 were given");
    let sentence = refusal(&rig, &|assembly| {
        assembly.members[0] = None;
        assembly.states.members[2] = MemberState::Rebuilding { done: 3 };
    });
    assert_eq!(sentence, "RAID 5 of 3 members lacks data: 2 of them are missing, failed or not yet rebuilt");
    let sentence =
        refusal(&rig, &|assembly| assembly.states.members[2] = MemberState::Rebuilding { done: 9 });
    assert_eq!(sentence, "member 2 is said to be rebuilt further than the set is long");
    let other = |blocks, block_size| {
        plain(Arc::new(Null::new(Geometry { block_size, blocks: Blocks(blocks), physical_exponent: 0 })))
    };
    let sentence = refusal(&rig, &|assembly| assembly.members[1] = other(31, BlockSize::B512));
    assert_eq!(sentence, "member 1 has 31 blocks for data, and 32 are needed");
    let sentence = refusal(&rig, &|assembly| assembly.members[1] = other(31, BlockSize::B4096));
    assert_eq!(sentence, "member 1 has blocks of 4096 bytes, and the set of 512");
    let journal = |device: Arc<dyn BlockDevice>| {
        ProtectionAreas::Journal(vec![raid::AreaCopy { device, member: Some(0) }])
    };
    let sentence = refusal(&rig, &|assembly| assembly.protection = journal(rig.area(&rig.disks[0])));
    assert_eq!(sentence, "the area of the journal has none in it: what it was to protect may be wrong");
    let sentence = refusal(&rig, &|assembly| {
        assembly.protection = journal(Arc::new(Null::new(rig.data(&rig.disks[0]).device().geometry())));
    });
    assert!(sentence.starts_with("the journal has 32 blocks, and "), "{sentence}");
    let mirror = Rig::new(Level::Raid1, 2, 4, Guard::Bitmap);
    let sentence = refusal(&mirror, &|assembly| assembly.protection = journal(rig.area(&rig.disks[0])));
    assert!(sentence.starts_with("RAID 1 has no journal"), "{sentence}");
}

#[test]
fn a_new_journal_is_begun_wherever_an_old_one_has_been() {
    seed(16);
    let mut rig = Rig::new(Level::Raid5, 3, 4, Guard::Journal);
    // "LNRJHEAD" with the highest generation, and records that never were.
    let mut header = vec![0; 512];
    header[..8].copy_from_slice(b"LNRJHEAD");
    header[12] = 1;
    header[16..24].fill(0xff);
    let sum = crc_fast::crc32_iscsi(&header[12..48]).to_le_bytes();
    header[8..12].copy_from_slice(&sum);
    for disk in rig.disks.clone() {
        let (area, header) = (rig.area(&disk), Buffer::from(&header[..]).share());
        end(async move { area.write(Extent::new(1, 1), header, Durability::Stable).await }).expect("written");
    }
    let device = rig.created();
    write(&device, 0, 8, 4);
    drop(device);
    assert_eq!(read(&crashed(&mut rig), 0, 8), vec![4; 4096]);
}

/// It may have acknowledged writes in it.
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
        end(async move { area.write(Extent::new(1, 1), header, Durability::Stable).await }).expect("written");
    }
    for origin in [Origin::Existing, Origin::WithoutJournal] {
        assert_eq!(rig.assemble(origin, &[]).err(), Some(AssemblyError::NewerJournal { version: 9 }));
    }
    assert!(rig.assemble(Origin::New, &[]).is_ok());
}

#[test]
fn parity_that_may_not_fit_is_not_used_without_consent() {
    seed(13);
    let mut rig = Rig::new(Level::Raid5, 3, 4, Guard::Bitmap);
    let device = rig.created();
    write(&device, 0, 1, 1);
    drop(device);
    let refused = rig.assemble(Origin::Existing, &[1]).err();
    assert_eq!(refused, Some(AssemblyError::DataMayBeWrong { regions: 1 }));
    rig.accepts_wrong_data = true;
    assert!(rig.assemble(Origin::Existing, &[1]).is_ok());
}

/// The other host may run the set: going on without the member would make two of it.
#[test]
fn a_set_with_a_member_that_another_host_has_taken_over_stops() {
    let cases = [
        (Level::Raid1, 2, Guard::Bitmap),
        (Level::Raid5, 3, Guard::Journal),
        (Level::Raid6, 4, Guard::Nothing),
        (Level::Raid10, 4, Guard::Nothing),
    ];
    for (level, members, guard) in cases {
        for reads_first in [false, true] {
            seed(31);
            let mut rig = Rig::new(level, members, 4, guard);
            let device = rig.created();
            write(&device, 0, 32, 7);
            rig.disks[1].fence();
            if reads_first {
                let all = device.geometry().blocks.0;
                let device = Arc::clone(&device);
                let buffer = Buffer::zeroed(all as usize * 512);
                let read = end(async move { device.read(Extent::new(0, all), buffer).await.map(drop) });
                // Of a mirror that member may not have been asked.
                if level.parity_strips() > 0 {
                    assert_eq!(read, Err(DeviceError::Fenced), "{level}");
                }
            }
            assert_eq!(try_write(&device, 0, 32, 9), Err(DeviceError::Fenced), "{level}");
            assert_eq!(rig.store.states(), MemberStates::in_sync(members), "{level}: nothing is recorded");
            requests(&rig);
            assert_eq!(try_write(&device, 0, 32, 9), Err(DeviceError::Fenced));
            assert_eq!(flush(&device), Err(DeviceError::Fenced));
            let (asked, buffer) = (Arc::clone(&device), Buffer::zeroed(512));
            let read = end(async move { asked.read(Extent::new(0, 1), buffer).await.map(drop) });
            assert_eq!(read, Err(DeviceError::Fenced));
            assert_eq!(requests(&rig), [0; 3], "{level}: nothing reaches a member");
            assert!(device.status().is_out_of_service);
        }
    }
}

fn accept(device: &Arc<RaidDevice>, stripe: u64) -> Scrubbed {
    let device = Arc::clone(device);
    end(async move { device.accept_step(stripe).await }).expect("looked at")
}

fn without_journal(rig: &mut Rig, device: &Arc<RaidDevice>, missing: &[usize]) -> Arc<RaidDevice> {
    let closing = Arc::clone(device);
    end(async move { closing.close().await }).expect("closed");
    Arc::new(rig.assemble(Origin::WithoutJournal, missing).expect("assembled"))
}

/// What the journal had to write again: blocks with their checksums.
#[test]
fn without_its_journal_data_whose_checksums_are_older_are_accepted() {
    seed(33);
    let mut rig = Rig::with_sums(Level::Raid5, 3, 4, Guard::Journal);
    let device = rig.created();
    write(&device, 0, 64, 7);
    let layout = rig.layout;
    // In columns of their own two strips, which recover each other's blocks; in another one both data and parity do not fit.
    for (strip, column) in [(0, 1), (1, 2), (0, 5), (2, 5)] {
        let place = layout.strip(0, strip);
        rig.disks[place.member].corrupt(rig.data_lba(place.lba + column));
    }
    let device = without_journal(&mut rig, &device, &[]);
    assert_eq!(scrub(&device, 0, true), Scrubbed::Unreadable { is_repaired: false });
    assert_eq!(accept(&device, 0), Scrubbed::Unreadable { is_repaired: true });
    assert_eq!(scrub(&device, 0, true), Scrubbed::Right);
    let found = read(&device, 0, 64);
    let as_it_was: Vec<bool> = found.chunks(512).map(|block| block.iter().all(|byte| *byte == 7)).collect();
    assert_eq!((0..64).filter(|block| !as_it_was[*block]).collect::<Vec<_>>(), [5]);
    assert_eq!(found[5 * 512], 7 ^ 0x5a);
    assert_eq!(accept(&device, 1), Scrubbed::Right);
}

#[test]
fn without_its_journal_q_of_a_degraded_set_is_made_to_fit() {
    seed(34);
    let mut rig = Rig::new(Level::Raid6, 5, 4, Guard::Journal);
    let device = rig.created();
    write(&device, 0, 24, 7);
    let layout = rig.layout;
    let (q, lacking, other) = (layout.strip(0, 4), layout.strip(0, 1).member, layout.strip(0, 0).member);
    rig.disks[q.member].corrupt(rig.data_lba(q.lba + 3));
    let device = without_journal(&mut rig, &device, &[lacking]);
    assert_eq!(accept(&device, 0), Scrubbed::Degraded);
    // Both are computed by P and Q.
    let failing = Arc::clone(&device);
    end(async move { failing.fail(other).await }).expect("failed");
    assert_eq!(read(&device, 0, 24), vec![7; 24 * 512]);
}

/// At every point of some writes: whichever write of the journal's disk is the first that fails, and whenever power fails behind that.
#[test]
fn a_journal_whose_disk_fails_is_on_the_members_and_nothing_acknowledged_is_lost() {
    for level in [Level::Raid5, Level::Raid6] {
        for (fails_after, polls) in
            (0..8).flat_map(|fails_after| [20, 60, 110, 200, 10_000].map(|polls| (fails_after, polls)))
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
                        of.write(Extent::new(0, 20), data, Durability::Cached).await.expect("it falls back");
                        told.lock().expect("no panic").push(byte);
                    }
                })],
                polls,
            );
            let last = acknowledged.lock().expect("no panic").last().copied().unwrap_or(1);
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
            // What its disk has is of no use any more, and a member is lost, too.
            if rig.store.is_journal_on_members() {
                rig.journal.die();
            }
            device = Arc::new(rig.assemble(Origin::Existing, &[0]).expect("it starts"));
            let found = read(&device, 0, 20);
            // Blocks of the one that was under way are old or new.
            let is_right =
                |block: &[u8]| block.iter().all(|byte| *byte == block[0] && (last..=last + 1).contains(byte));
            let firsts: Vec<u8> = found.chunks(512).map(|block| block[0]).collect();
            assert!(found.chunks(512).all(is_right), "{level}, {fails_after}, {polls}: {last}, {firsts:?}");
        }
    }
}

/// Its disk fails writes and can be read: what it has is replayed, and the next journal begins on the members.
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
        assert!(read(&device, 0, 20).iter().all(|byte| *byte == 1), "{level}");
        write(&device, 0, 20, 2);
        rig.disks.iter().for_each(Disk::crash);
        rig.journal.die();
        let device = Arc::new(rig.assemble(Origin::Existing, &[0]).expect("it starts again"));
        assert!(read(&device, 0, 20).iter().all(|byte| *byte == 2), "{level}");
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
    let own = AreaCopy { device: rig.area(&rig.journal), member: None };
    let on_member = |member: usize| AreaCopy { device: rig.area(&rig.disks[member]), member: Some(member) };
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
