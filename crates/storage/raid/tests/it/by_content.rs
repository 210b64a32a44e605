//! Sets that are found by what is on their disks: created, used, crashed, with disks that fail, that come back with old data,
//! and that are replaced. Whatever is found in whatever order, what was acknowledged is read.

use std::sync::Arc;

use block::{BlockDevice, BlockSize, Buffer, Durability, Extent};
use raid::choose::{FoundSet, Trust, find};
use raid::disks::{Disk as NamedDisk, MemberParts, OpenSet, create, look_at, open};
use raid::superblock::{Areas, MemberRecord, SetRecord, Uuid, area_copies};
use raid::{Assembly, Level, LostBlocks, MemberState, MemberStates, Origin, RaidDevice};

use crate::disk::Disk;
use crate::world::{HereSpawner, StepClock, draw, end, once_in, seed};

/// 1 MiB in front of the data, and a quarter behind.
pub(crate) const DISK_BLOCKS: u64 = 2560;

struct Scene {
    /// All disks that may be found: those of the set, and those that were lost.
    pile: Vec<Disk>,
    /// The disk of each member.
    members: Vec<Disk>,
    set: OpenSet,
    device: Arc<RaidDevice>,
    /// By block: what was written last.
    model: Vec<u8>,
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
    let member = |number| MemberRecord { uuid: Uuid([number; 16]), state: MemberState::InSync };
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
        clean: false,
        members: (1..=members).map(member).collect(),
        spares: Vec::new(),
        scrub: None,
        lost: LostBlocks::default(),
    }
}

/// The one set that is in a pile.
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
        Scene { pile: disks.clone(), members: disks, set, device, model, uuids: members }
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
        let value = 1 + draw(255) as u8;
        let data = Buffer::from(&vec![value; extent.blocks.0 as usize * 512][..]).share();
        let device = Arc::clone(&self.device);
        end(async move { device.write(extent, data, Durability::Stable).await }).expect("written");
        self.model[lba as usize..(lba + extent.blocks.0) as usize].fill(value);
    }

    /// A disk is gone. It is in the pile as it was before, as if it came back.
    fn lose_one(&mut self) {
        let mut lacking = self.states().lacking();
        let member = draw(lacking.len() as u64) as usize;
        lacking[member] = true;
        if self.states().members[member] == MemberState::InSync && self.set.layout.survives(&lacking) {
            self.pile.push(self.members[member].copy());
            self.members[member].die();
            let device = Arc::clone(&self.device);
            end(async move { device.fail(member).await }).expect("the others go on");
        }
    }

    fn replace_one(&mut self) {
        let Some(member) = self.states().members.iter().position(|state| *state == MemberState::Failed)
        else {
            return;
        };
        self.uuids += 1;
        let (uuid, disk) = (Uuid([self.uuids; 16]), Disk::used(DISK_BLOCKS));
        let whole = Arc::new(disk.clone()) as Arc<dyn BlockDevice>;
        let parts = MemberParts::new(&self.set.records.set(), member, &whole).expect("room");
        let (records, device) = (Arc::clone(&self.set.records), Arc::clone(&self.device));
        let area = if self.set.layout.has_parity() { parts.journal } else { parts.bitmap };
        let is_halfway = once_in(3);
        end(async move {
            records.replace(member, uuid, whole).await.expect("recorded");
            device.replace(member, parts.data, area).await.expect("replaced");
            while device.rebuild_step(member).await.expect("rebuilt").is_some() {
                if is_halfway && once_in(20) {
                    break;
                }
            }
        });
        self.pile.push(disk.clone());
        self.members[member] = disk;
    }

    /// The machine crashes, or the set is closed; and is found again in a pile in another order.
    fn restart(&mut self, crashes: bool) {
        if crashes {
            self.pile.iter().for_each(Disk::crash);
        } else {
            let (records, device) = (Arc::clone(&self.set.records), Arc::clone(&self.device));
            end(async move {
                device.flush().await.expect("flushed");
                records.close().await.expect("closed");
            });
        }
        for last in (1..self.pile.len()).rev() {
            self.pile.swap(last, draw(last as u64 + 1) as usize);
        }
        (self.set, self.device) = started(&named(&self.pile), Origin::Existing);
    }

    fn states(&self) -> MemberStates {
        self.device.status().states
    }

    fn check(&self) {
        let (device, blocks) = (Arc::clone(&self.device), self.model.len() as u64);
        let read = end(async move {
            device.read(Extent::new(0, blocks), Buffer::recycled(blocks as usize * 512)).await
        });
        let read = read.expect("readable");
        let is_right = |(lba, value): (usize, &u8)| read[lba * 512..][..512].iter().all(|byte| byte == value);
        assert!(self.model.iter().enumerate().all(is_right), "{:?}", self.states());
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
            // Of its journal or bitmap, or of its record.
            disks[0].fail_write_after(writes);
            let (set, device) = started(&named(&disks), Origin::NewOfZeros);
            disks[0].let_writes_succeed();
            let model = vec![0; device.geometry().blocks.0 as usize];
            let mut scene = Scene { pile: disks.clone(), members: disks, set, device, model, uuids: members };
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
    let levels =
        [(Level::Raid1, 3), (Level::Raid5, 3), (Level::Raid6, 5), (Level::Raid10, 4), (Level::Raid0, 2)];
    for (level, members) in levels {
        for case in 0..3 {
            seed(1000 * u64::from(members) + case);
            let mut scene = Scene::new(level, members);
            (0..30).for_each(|_| scene.happens());
        }
    }
}
