//! Tests of the behaviour of a set in one situation each.

use std::sync::Arc;

use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry,
    LossCounter, Losses, Null, Pending, Run,
};
use raid::{
    Assembly, AssemblyError, Layout, Level, MemberDevice, MemberState, MemberStates, MetadataStore,
    Origin, ProtectionAreas, RaidDevice, Scrubbed,
};

use crate::rig::{
    Guard, Rig, ask, crashed, crashed_with_two_regions, flush, read, rebuild, requests, scrub,
    synchronised, try_write, write,
};
use crate::world::{End, HereSpawner, StepClock, end, run, seed};

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
    // Three of four strips are written. So the fourth is read, but not parity.
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
            let written = device
                .write(Extent::new(strip * 8, 8), data, Durability::Cached)
                .await;
            written.expect("written");
        });
        request
    };
    assert_eq!(run((0..9).map(write).collect(), u64::MAX), End::Done);
    // The first write is executed alone; writes that arrived while it was outstanding are merged.
    let [_, writes, _] = requests(&rig);
    assert!(writes < 18, "{writes}");
    (0..9).for_each(|strip| assert_eq!(read(&device, strip * 8, 8), vec![strip as u8; 4096]));
    (0..4).for_each(|stripe| assert_eq!(scrub(&device, stripe, false), Scrubbed::Right));
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
    rig.disks
        .iter()
        .for_each(|disk| drop(disk.take_requests().to_vec()));
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
        assert_eq!(
            (read(&device, 0, 8), read(&device, 8, 40)),
            (vec![1; 4096], vec![2; 40 * 512])
        );
    }
    let mut rig = Rig::of_used_disks(Level::Raid10, 3, 6, Guard::Bitmap);
    let device = Arc::new(rig.assemble(Origin::New, &[]).expect("a set"));
    assert!(device.status().unsynced_regions > 1);
    let before = read(&device, 0, 72);
    assert_eq!(
        (synchronised(&device), device.status().unsynced_regions),
        (Ok(()), 0)
    );
    (0..9).for_each(|stripe| assert_eq!(scrub(&device, stripe, false), Scrubbed::Right));
    assert_eq!(read(&device, 0, 72), before);
}

fn plain(device: Arc<dyn BlockDevice>) -> Option<MemberDevice> {
    Some(device.into())
}

/// A store whose requests never complete, or fail.
struct NoStore {
    fails: bool,
}

impl MetadataStore for NoStore {
    fn record(&self, _: &MemberStates) -> Pending<'_, ()> {
        let fails = self.fails;
        Box::pin(async move {
            if fails {
                Err(DeviceError::NotReady)
            } else {
                std::future::pending().await
            }
        })
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
    let device = end(RaidDevice::assemble(assembly(
        &rig,
        Arc::new(NoStore { fails: false }),
    )))
    .expect("a set");
    let device = Arc::new(device);
    rig.disks[1].die();
    let (writing, has_ended) = (
        Arc::clone(&device),
        std::rc::Rc::new(std::cell::Cell::new(false)),
    );
    let ended = std::rc::Rc::clone(&has_ended);
    let hanging = Box::pin(async move {
        let data = Buffer::zeroed(512).share();
        let _ = writing
            .write(Extent::new(0, 1), data, Durability::Cached)
            .await;
        ended.set(true);
    });
    // A task that is always ready keeps the executor from reporting a deadlock.
    let clock = Box::pin(block::Sleeper::sleep(
        &StepClock,
        std::time::Duration::from_secs(1),
    ));
    run(vec![hanging, clock], 10_000);
    assert!(!has_ended.get());
    assert_eq!(device.status().states.members[1], MemberState::Failed);
}

#[test]
fn a_set_that_cannot_record_a_failure_leaves_service() {
    seed(8);
    let rig = Rig::new(Level::Raid1, 2, 4, Guard::Nothing);
    let device = end(RaidDevice::assemble(assembly(
        &rig,
        Arc::new(NoStore { fails: true }),
    )))
    .expect("a set");
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
        let _ = writing
            .write(Extent::new(0, 16), data, Durability::Cached)
            .await;
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
    ask(&device, async move |device| device.fail(1).await).expect("failed");
    assert_eq!(
        ask(&device, async move |device| device.fail(0).await),
        Err(DeviceError::Unsupported)
    );
    rig.disks[1] = rig.spare();
    let (spare, area) = (rig.data(&rig.disks[1]), rig.area(&rig.disks[1]));
    ask(&device, async move |device| {
        device.replace(device.vacancy(1)?, spare, Some(area)).await
    })
    .expect("replaced");
    assert!(!rebuild(&device, 1, 280));
    let device = crashed(&mut rig);
    assert_eq!(
        device.status().states.members[1],
        MemberState::Rebuilding { done: 256 }
    );
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
    let results: Vec<_> = (0..4)
        .map(|stripe| try_write(&device, stripe * 16, 16, 3))
        .collect();
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
    ask(&device, async move |device| {
        for step in [0, 1, 0, 1, 0] {
            device.synchronise_step(step).await.expect("device");
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
    let mut pairs: Vec<Rig> = (0..2)
        .map(|_| Rig::new(Level::Raid1, 2, 4, Guard::Bitmap))
        .collect();
    let members: Vec<Arc<RaidDevice>> = pairs.iter_mut().map(Rig::created).collect();
    let layout = Layout::new(Level::Raid0, 2, 4096, BlockSize::B512, Blocks(32)).expect("a layout");
    let outer = Rig::new(Level::Raid0, 2, 4, Guard::Nothing);
    let assembly = Assembly {
        layout,
        members: members
            .iter()
            .map(|member| plain(Arc::<RaidDevice>::clone(member)))
            .collect(),
        ..assembly(&outer, Arc::new(NoStore { fails: true }))
    };
    let device = Arc::new(end(RaidDevice::assemble(assembly)).expect("a set"));
    pairs[0].disks[1].die();
    pairs[1].disks[0].die();
    write(&device, 3, 50, 9);
    assert_eq!(read(&device, 3, 50), vec![9; 50 * 512]);
    assert_eq!(
        members[1].status().states.members,
        [MemberState::Failed, MemberState::InSync]
    );
}

/// A member that reports a loss of earlier writes to its next flush, or that does not respond.
struct Remote(Null, LossCounter, Result<(), DeviceError>);

impl BlockDevice for Remote {
    block::forward!(self => self.0; geometry, profile, read, write, unmap, write_zeroes, allocation, quiesced);

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async { self.2 })
    }

    fn losses(&self) -> Losses {
        self.1.get()
    }

    fn losses_recorded(&self, count: u64) {
        self.1.recorded(count);
    }
}

/// Regression test: the first member's report hid that the second member was not flushed.
#[test]
fn a_report_of_an_earlier_loss_does_not_hide_that_another_member_was_not_flushed() {
    let geometry = Geometry {
        block_size: BlockSize::B512,
        blocks: Blocks(64),
        physical_exponent: 0,
    };
    let flushed = |second: Result<(), DeviceError>| {
        let rig = Rig::new(Level::Raid0, 2, 8, Guard::Nothing);
        let losses = LossCounter::default();
        let first = Remote(
            Null::new(geometry),
            losses.clone(),
            Err(DeviceError::WritesLost),
        );
        let second = Remote(Null::new(geometry), LossCounter::default(), second);
        let members = vec![plain(Arc::new(first)), plain(Arc::new(second))];
        let assembly = Assembly {
            members,
            ..assembly(&rig, Arc::new(NoStore { fails: false }))
        };
        let device = end(RaidDevice::assemble(assembly)).expect("a set");
        losses.count();
        end(async move { block::flush_now(&device).await })
    };
    assert_eq!(
        flushed(Err(DeviceError::NotReady)),
        Err(DeviceError::NotReady)
    );
    assert_eq!(flushed(Ok(())), Ok(()));
}

/// A member's journal file records its losses for the next process.
#[test]
fn members_keep_their_records_of_losses_until_the_user_of_the_set_has_recorded_them() {
    let geometry = Geometry {
        block_size: BlockSize::B512,
        blocks: Blocks(64),
        physical_exponent: 0,
    };
    let rig = Rig::new(Level::Raid1, 2, 8, Guard::Nothing);
    let counters = [(); 3].map(|()| LossCounter::default());
    let remote = |at: usize| {
        let counter = counters[at].clone();
        plain(Arc::new(Remote(Null::new(geometry), counter, Ok(()))))
    };
    let assembly = Assembly {
        members: vec![remote(0), remote(1)],
        ..assembly(&rig, Arc::clone(&rig.store) as Arc<dyn MetadataStore>)
    };
    let device = Arc::new(end(RaidDevice::assemble(assembly)).expect("a set"));
    let are_recorded = || counters.each_ref().map(LossCounter::are_recorded);
    let flushed = || {
        let device = Arc::clone(&device);
        end(async move { block::flush_now(&*device).await })
    };

    // The set continues without this member, so its user is not affected by the loss.
    counters[1].count();
    assert_eq!(flushed(), Ok(()));
    assert_eq!(device.losses().count(), 0);
    assert_eq!(are_recorded(), [true, false, true]);

    // The other member is the last one.
    counters[0].count();
    assert_eq!(flushed(), Ok(()));
    assert_eq!((flushed(), device.losses().count()), (Ok(()), 1));
    device.losses_recorded(0);
    assert_eq!(are_recorded(), [false, false, true]);
    device.losses_recorded(1);
    assert_eq!(are_recorded(), [true, false, true]);

    // A returning member is rebuilt, so that its losses do not matter.
    let (set, returning) = (Arc::clone(&device), remote(1).expect("a device"));
    let vacancy = device.vacancy(1).expect("it has failed");
    end(async move { set.replace(vacancy, returning, None).await }).expect("replaced");
    assert_eq!(are_recorded(), [true; 3]);
}

#[test]
fn holes_of_members_are_holes_of_the_set() {
    let geometry = Geometry {
        block_size: BlockSize::B512,
        blocks: Blocks(512),
        physical_exponent: 0,
    };
    let rig = Rig::new(Level::Raid5, 3, 64, Guard::Nothing);
    let members = (0..3)
        .map(|_| plain(Arc::new(Null::new(geometry))))
        .collect();
    let assembly = Assembly {
        members,
        ..assembly(&rig, Arc::new(NoStore { fails: true }))
    };
    let device = Arc::new(end(RaidDevice::assemble(assembly)).expect("a set"));
    let runs = |extent| {
        let device = Arc::clone(&device);
        end(async move { device.allocation(extent, 4).await }).expect("runs")
    };
    let hole = |extent| {
        [Run {
            extent,
            allocation: Allocation::Deallocated,
        }]
    };
    assert_eq!(runs(Extent::new(3, 100)), hole(Extent::new(3, 100)));
    // A query covers at most 64 strips of 8 blocks, even if its extent is longer, so that other tasks can
    // run.
    assert_eq!(runs(Extent::new(0, 1024)), hole(Extent::new(0, 512)));
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
    assert_eq!(sentence, "the set has 3 members, but 2 were given");
    let sentence = refusal(&rig, &|assembly| {
        assembly.members[0] = None;
        assembly.states.members[2] = MemberState::Rebuilding { done: 3 };
    });
    assert_eq!(
        sentence,
        "data of the RAID 5 set would be lost: 2 of its 3 members are missing, failed or not yet rebuilt"
    );
    let sentence = refusal(&rig, &|assembly| {
        assembly.states.members[2] = MemberState::Rebuilding { done: 9 }
    });
    assert_eq!(
        sentence,
        "the recorded rebuild progress of member 2 is beyond the end of the set"
    );
    let other = |blocks, block_size| {
        plain(Arc::new(Null::new(Geometry {
            block_size,
            blocks: Blocks(blocks),
            physical_exponent: 0,
        })))
    };
    let sentence = refusal(&rig, &|assembly| {
        assembly.members[1] = other(31, BlockSize::B512)
    });
    assert_eq!(sentence, "member 1 has 31 blocks for data, but needs 32");
    let sentence = refusal(&rig, &|assembly| {
        assembly.members[1] = other(31, BlockSize::B4096)
    });
    assert_eq!(
        sentence,
        "member 1 has 4096-byte blocks, but the set has 512-byte blocks"
    );
    let journal = |device: Arc<dyn BlockDevice>| {
        ProtectionAreas::Journal(vec![raid::AreaCopy {
            device,
            member: Some(0),
        }])
    };
    let sentence = refusal(&rig, &|assembly| {
        assembly.protection = journal(rig.area(&rig.disks[0]))
    });
    assert_eq!(
        sentence,
        "the journal's area contains no journal: data that it protected may be wrong"
    );
    let sentence = refusal(&rig, &|assembly| {
        assembly.protection = journal(Arc::new(Null::new(
            rig.data(&rig.disks[0]).device().geometry(),
        )));
    });
    assert!(
        sentence.starts_with("the journal has 32 blocks, but needs "),
        "{sentence}"
    );
    let mirror = Rig::new(Level::Raid1, 2, 4, Guard::Bitmap);
    let sentence = refusal(&mirror, &|assembly| {
        assembly.protection = journal(rig.area(&rig.disks[0]))
    });
    assert!(sentence.starts_with("RAID 1 has no journal"), "{sentence}");
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

/// The other host may run the set: continuing without the member would cause split brain.
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
                let buffer = Buffer::zeroed(all as usize * 512);
                let extent = Extent::new(0, all);
                let read = ask(&device, async move |device| {
                    device.read(extent, buffer).await.map(drop)
                });
                // In a mirror, the read may have used another member.
                if level.parity_strips() > 0 {
                    assert_eq!(read, Err(DeviceError::Fenced), "{level}");
                }
            }
            assert_eq!(
                try_write(&device, 0, 32, 9),
                Err(DeviceError::Fenced),
                "{level}"
            );
            assert_eq!(
                rig.store.states(),
                MemberStates::in_sync(members),
                "{level}: nothing is recorded"
            );
            requests(&rig);
            assert_eq!(try_write(&device, 0, 32, 9), Err(DeviceError::Fenced));
            assert_eq!(flush(&device), Err(DeviceError::Fenced));
            let buffer = Buffer::zeroed(512);
            let read = ask(&device, async move |device| {
                device.read(Extent::new(0, 1), buffer).await.map(drop)
            });
            assert_eq!(read, Err(DeviceError::Fenced));
            assert_eq!(requests(&rig), [0; 3], "{level}: nothing reaches a member");
            assert!(device.status().is_out_of_service);
        }
    }
}
