//! Tests of sets that are found by the content of their disks. The sets are created, used and crashed, and
//! disks fail, return with old data, or are replaced. Whichever disks are found, in whatever order,
//! acknowledged writes must be read back.

use std::sync::Arc;

use block::{BlockDevice, BlockSize, Buffer, Durability, Extent};
use raid::choose::{FoundSet, Trust, find};
use raid::disks::{Disk as NamedDisk, MemberParts, OpenSet, create, look_at, open};
use raid::superblock::{Areas, MemberRecord, SetRecord, Uuid, area_copies};
use raid::{Assembly, Level, LostBlocks, MemberState, MemberStates, Origin, RaidDevice};

use crate::disk::Disk;
use crate::world::{HereSpawner, StepClock, draw, end, once_in, seed};

/// Length of a disk in blocks: 1 MiB before the data, and a quarter of a MiB for the data.
pub(crate) const DISK_BLOCKS: u64 = 2560;

pub(crate) struct Scene {
    /// All disks that may be found: the disks of the set, and disks that were lost.
    pub(crate) pile: Vec<Disk>,
    /// The disk of each member.
    pub(crate) members: Vec<Disk>,
    pub(crate) set: OpenSet,
    pub(crate) device: Arc<RaidDevice>,
    /// By block: the byte written last.
    pub(crate) model: Vec<u8>,
    uuids: u8,
}

fn named(disks: &[Disk]) -> Vec<NamedDisk> {
    let named = |(index, disk): (usize, &Disk)| NamedDisk {
        name: format!("disk{index}"),
        device: Arc::new(disk.clone()) as Arc<dyn BlockDevice>,
    };
    disks.iter().enumerate().map(named).collect()
}

pub(crate) fn record(level: Level, members: u8, checksums_bytes: u64) -> SetRecord {
    let areas = Areas::plan(DISK_BLOCKS * 512, 128 << 10, 4096, checksums_bytes).expect("room");
    let member = |number| MemberRecord::new(Uuid([number; 16]), MemberState::InSync);
    SetRecord {
        uuid: Uuid([0xaa; 16]),
        name: String::new(),
        generation: 1,
        level,
        strip_bytes: 4096,
        block_size: BlockSize::B512,
        areas,
        journal_device: None,
        area_copies: area_copies(level, usize::from(members)) as u16,
        region_stripes: 4,
        in_use_from: 0,
        missed_from: 0,
        clean: false,
        members: (1..=members).map(member).collect(),
        spares: Vec::new(),
        scrub: None,
        lost: LostBlocks::default(),
    }
}

/// Finds the only set among these disks.
fn found(disks: &[NamedDisk]) -> FoundSet {
    let looked_at = disks.to_vec();
    let candidates = end(async move { look_at(&looked_at).await });
    let mut sets = find(&candidates, Trust::CertainOnly).sets;
    assert_eq!(sets.len(), 1, "{sets:?}");
    let set = sets.remove(0);
    assert_eq!(set.refusal, None);
    set
}

pub(crate) fn started(disks: &[NamedDisk], origin: Origin) -> (OpenSet, Arc<RaidDevice>) {
    let set = open(&found(disks), disks).expect("the parts of a set");
    assert_eq!(set.is_new(), origin != Origin::Existing);
    let assembly = Assembly {
        layout: set.layout,
        members: set.data(),
        states: set.states.clone(),
        metadata: Arc::clone(&set.records) as _,
        protection: set.protection(),
        origin,
        nonce: draw(u64::MAX),
        memory_bytes: 1 << 20,
        missed: set.missed(),
        accepts_wrong_data: false,
        sleeper: Arc::new(StepClock),
        spawner: Arc::new(HereSpawner),
    };
    let device = end(RaidDevice::assemble(assembly)).expect("assembled");
    (set, Arc::new(device))
}

impl Scene {
    fn new(level: Level, members: u8) -> Scene {
        let disks: Vec<Disk> = (0..members).map(|_| Disk::new(DISK_BLOCKS)).collect();
        let (record, created) = (record(level, members, 0), named(&disks));
        end(async move { create(&record, &created).await }).expect("created");
        let (set, device) = started(&named(&disks), Origin::NewOfZeros);
        let model = vec![0; device.geometry().blocks.0 as usize];
        Scene {
            pile: disks.clone(),
            members: disks,
            set,
            device,
            model,
            uuids: members,
        }
    }

    fn happens(&mut self) {
        match draw(10) {
            0 => self.lose_one(),
            1 => self.replace_one(),
            2 => self.restart(once_in(2)),
            _ => self.write(),
        }
        self.check();
    }

    fn write(&mut self) {
        let blocks = self.model.len() as u64;
        let lba = draw(blocks);
        let extent = Extent::new(lba, (1 + draw(40)).min(blocks - lba));
        self.write_at(extent, 1 + draw(255) as u8);
    }

    pub(crate) fn write_at(&mut self, extent: Extent, value: u8) {
        let (device, lba) = (Arc::clone(&self.device), extent.lba.0);
        let data = Buffer::from(&vec![value; extent.blocks.0 as usize * 512][..]).share();
        end(async move { device.write(extent, data, Durability::Stable).await }).expect("written");
        self.model[lba as usize..(lba + extent.blocks.0) as usize].fill(value);
    }

    /// Loses a member's disk. The disk stays in the pile with its old content, as if it returned.
    fn lose_one(&mut self) {
        let mut lacking = self.states().lacking();
        let member = draw(lacking.len() as u64) as usize;
        lacking[member] = true;
        if self.states().members[member] == MemberState::InSync
            && self.set.layout.survives(&lacking)
        {
            self.pile.push(self.members[member].copy());
            self.members[member].die();
            let device = Arc::clone(&self.device);
            end(async move { device.fail(member).await }).expect("the others go on");
        }
    }

    fn replace_one(&mut self) {
        let Some(member) = self
            .states()
            .members
            .iter()
            .position(|state| *state == MemberState::Failed)
        else {
            return;
        };
        self.uuids += 1;
        let (uuid, disk) = (Uuid([self.uuids; 16]), Disk::used(DISK_BLOCKS));
        let whole = Arc::new(disk.clone()) as Arc<dyn BlockDevice>;
        let parts = MemberParts::new(&self.set.records.set(), member, &whole).expect("room");
        let (records, device) = (Arc::clone(&self.set.records), Arc::clone(&self.device));
        let area = if self.set.layout.has_parity() {
            parts.journal
        } else {
            parts.bitmap
        };
        let is_halfway = once_in(3);
        end(async move {
            let vacancy = device.vacancy(member).expect("it has failed");
            records
                .replace(member, uuid, whole)
                .await
                .expect("recorded");
            device
                .replace(vacancy, parts.data, area)
                .await
                .expect("replaced");
            while device
                .rebuild_step(member)
                .await
                .expect("rebuilt")
                .is_some()
            {
                if is_halfway && once_in(20) {
                    break;
                }
            }
        });
        self.pile.push(disk.clone());
        self.members[member] = disk;
    }

    /// Crashes the machine, or closes the set, and then finds it among the disks in another order.
    pub(crate) fn restart(&mut self, crashes: bool) {
        if crashes {
            self.pile.iter().for_each(Disk::crash);
        } else {
            let (records, device) = (Arc::clone(&self.set.records), Arc::clone(&self.device));
            end(async move {
                device.close().await.expect("closed");
                records.close().await.expect("closed");
            });
        }
        for last in (1..self.pile.len()).rev() {
            self.pile.swap(last, draw(last as u64 + 1) as usize);
        }
        (self.set, self.device) = started(&named(&self.pile), Origin::Existing);
    }

    pub(crate) fn states(&self) -> MemberStates {
        self.device.status().states
    }

    pub(crate) fn check(&self) {
        let (device, blocks) = (Arc::clone(&self.device), self.model.len() as u64);
        let read = end(async move {
            device
                .read(
                    Extent::new(0, blocks),
                    Buffer::recycled(blocks as usize * 512),
                )
                .await
        });
        let read = read.expect("readable");
        let is_right =
            |(lba, value): (usize, &u8)| read[lba * 512..][..512].iter().all(|byte| byte == value);
        assert!(
            self.model.iter().enumerate().all(is_right),
            "{:?}",
            self.states()
        );
    }
}

#[test]
fn a_member_that_fails_at_the_first_start_is_no_member_at_the_next() {
    let mut failed = 0;
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        for writes in 0..6 {
            seed(7000 + writes);
            let disks: Vec<Disk> = (0..members).map(|_| Disk::new(DISK_BLOCKS)).collect();
            let (record, created) = (record(level, members, 0), named(&disks));
            end(async move { create(&record, &created).await }).expect("created");
            // The write that fails may be one of the journal or bitmap, or of the record.
            disks[0].fail_write_after(writes);
            let (set, device) = started(&named(&disks), Origin::NewOfZeros);
            disks[0].let_writes_succeed();
            let model = vec![0; device.geometry().blocks.0 as usize];
            let mut scene = Scene {
                pile: disks.clone(),
                members: disks,
                set,
                device,
                model,
                uuids: members,
            };
            failed += u32::from(scene.states().members[0] == MemberState::Failed);
            (0..20).for_each(|_| scene.write());
            scene.restart(false);
            scene.check();
        }
    }
    assert!(failed > 2, "{failed} members failed");
}

#[test]
fn a_set_that_is_found_by_content_has_what_was_acknowledged() {
    let levels = [
        (Level::Raid1, 3),
        (Level::Raid5, 3),
        (Level::Raid6, 5),
        (Level::Raid10, 4),
        (Level::Raid0, 2),
    ];
    for (level, members) in levels {
        for case in 0..3 {
            seed(1000 * u64::from(members) + case);
            let mut scene = Scene::new(level, members);
            (0..30).for_each(|_| scene.happens());
        }
    }
}

impl Scene {
    /// Creates a set with a bitmap, whatever the level.
    pub(crate) fn with_bitmap(level: Level, members: u8) -> Scene {
        let disks: Vec<Disk> = (0..members).map(|_| Disk::new(DISK_BLOCKS)).collect();
        let areas = Areas::plan(DISK_BLOCKS * 512, 0, 4096, 0).expect("room");
        let (record, created) = (
            SetRecord {
                areas,
                ..record(level, members, 0)
            },
            named(&disks),
        );
        end(async move { create(&record, &created).await }).expect("created");
        let (set, device) = started(&named(&disks), Origin::NewOfZeros);
        let model = vec![0; device.geometry().blocks.0 as usize];
        Scene {
            pile: disks.clone(),
            members: disks,
            set,
            device,
            model,
            uuids: members,
        }
    }

    /// Makes a member unresponsive, and lets the set detect this.
    pub(crate) fn lose_contact(&mut self, member: usize) {
        self.members[member].die();
        let device = Arc::clone(&self.device);
        end(async move { device.flush().await }).expect("the others go on");
        assert_eq!(self.states().members[member], MemberState::Failed);
    }

    pub(crate) fn settle(&self) {
        let device = Arc::clone(&self.device);
        let settled = end(async move {
            let known = device.settle(0).await?;
            device.settle(known).await
        });
        settled.expect("settled");
    }

    /// Lets the disk of a failed member return and be used again. Returns false if the set does not accept
    /// it.
    pub(crate) fn comes_back(&mut self, member: usize) -> bool {
        // The disk has lost its cache.
        self.members[member].crash();
        self.members[member].revive();
        let whole = Arc::new(self.members[member].clone()) as Arc<dyn BlockDevice>;
        let parts = MemberParts::new(&self.set.records.set(), member, &whole).expect("room");
        let (records, device) = (Arc::clone(&self.set.records), Arc::clone(&self.device));
        end(async move {
            let vacancy = device.vacancy(member).expect("it has failed");
            let is_back = records.readd(member, whole).await.expect("recorded");
            if is_back {
                device
                    .readd(vacancy, parts.data, parts.bitmap)
                    .await
                    .expect("a member again");
            }
            is_back
        })
    }

    pub(crate) fn rebuild(&self, steps: usize) {
        let states = self.states().members;
        let rebuilding = |state: &MemberState| matches!(state, MemberState::Rebuilding { .. });
        let Some(member) = states.iter().position(rebuilding) else {
            return;
        };
        let device = Arc::clone(&self.device);
        end(async move {
            for _ in 0..steps {
                if device
                    .rebuild_step(member)
                    .await
                    .expect("rebuilt")
                    .is_none()
                {
                    break;
                }
            }
        });
    }

    /// Checks that all copies, or data and parity, are consistent, including blocks that are not read.
    pub(crate) fn assert_whole(&self) {
        let device = Arc::clone(&self.device);
        end(async move {
            let mut done = 0;
            while let Some(progress) = device.synchronise_step(done).await.expect("synchronised") {
                done = progress.done % progress.total;
            }
            for stripe in 0..device.layout().stripes() {
                let found = device.scrub_step(stripe, false).await.expect("compared");
                assert_eq!(found, raid::Scrubbed::Right, "stripe {stripe}");
            }
        });
    }
}

#[test]
fn a_member_that_missed_one_write_is_rebuilt_in_one_region() {
    for (level, members) in [
        (Level::Raid1, 2),
        (Level::Raid10, 4),
        (Level::Raid5, 3),
        (Level::Raid6, 4),
    ] {
        for in_use in [false, true] {
            seed(11);
            let mut scene = Scene::with_bitmap(level, members);
            (0..20).for_each(|_| scene.write());
            scene.settle();
            scene.lose_contact(1);
            scene.settle();
            scene.write_at(Extent::new(0, 8), 9);
            match in_use {
                true => assert!(scene.comes_back(1), "{level}"),
                false => {
                    scene.members[1].revive();
                    scene.restart(false);
                }
            }
            assert_eq!(
                scene.states().members[1],
                MemberState::Rebuilding { done: 0 },
                "{level}, {in_use}"
            );
            scene.members[1].take_requests();
            scene.rebuild(1000);
            let [_, writes, _] = scene.members[1].take_requests();
            assert_eq!(scene.states().members[1], MemberState::InSync);
            // The writes are a region of 4 stripes, plus some records.
            assert!(writes < 20, "{level}: {writes} writes");
            scene.check();
            scene.assert_whole();
        }
    }
}

#[test]
fn a_member_that_comes_back_has_what_was_written_without_it() {
    let mut back = 0;
    for (level, members) in [
        (Level::Raid1, 3),
        (Level::Raid10, 4),
        (Level::Raid5, 3),
        (Level::Raid6, 5),
    ] {
        for case in 0..3 {
            seed(31_000 + 100 * u64::from(members) + case);
            let mut scene = Scene::with_bitmap(level, members);
            for _ in 0..30 {
                let lacking = scene.states().lacking();
                // Parity that may be inconsistent cannot reconstruct a missing member.
                let may_lack =
                    !scene.set.layout.has_parity() || scene.device.status().unsynced_regions == 0;
                let member = draw(u64::from(members)) as usize;
                match draw(12) {
                    0 | 1 if may_lack && !lacking.contains(&true) => scene.lose_contact(member),
                    2 | 3 => scene.settle(),
                    4 | 8 => {
                        let states = scene.states().members;
                        if let Some(member) = states
                            .iter()
                            .position(|state| *state == MemberState::Failed)
                        {
                            back += u32::from(scene.comes_back(member));
                        }
                    }
                    5 => {
                        scene.members.iter().for_each(Disk::revive);
                        // Do not crash a degraded set with parity: parity may then be inconsistent, and the
                        // set would be refused.
                        scene.restart(
                            once_in(2)
                                && !(scene.set.layout.has_parity() && lacking.contains(&true)),
                        );
                    }
                    6 | 7 => scene.rebuild(draw(8) as usize),
                    _ => scene.write(),
                }
                scene.check();
            }
            scene.members.iter().for_each(Disk::revive);
            scene.restart(false);
            (0..members).for_each(|_| scene.rebuild(10_000));
            scene.check();
            if !scene.states().lacking().contains(&true) {
                scene.assert_whole();
            }
        }
    }
    assert!(back > 2, "{back} came back in use");
}
