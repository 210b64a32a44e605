//! A set over simulated disks, with everything that survives a crash: the disks, and the recorded states.

use std::sync::{Arc, Mutex};

use block::{BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Pending};
use raid::{
    AreaCopy, Assembly, AssemblyError, Layout, Level, MemberDevice, MemberState, MemberStates,
    MetadataStore, Missed, Origin, ProtectionAreas, RaidDevice, Scrubbed, Summed,
    journal_blocks_min,
};

use crate::disk::{Disk, Part};
use crate::world::{HereSpawner, StepClock, end, pause};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    Journal,
    /// A journal on a separate disk, with areas on members in reserve.
    JournalDisk,
    Bitmap,
    Nothing,
}

impl Guard {
    pub(crate) fn is_journal(self) -> bool {
        matches!(self, Guard::Journal | Guard::JournalDisk)
    }

    /// Whether a set with this protection can have checksums.
    pub(crate) fn takes_sums(self, level: Level) -> bool {
        self.is_journal()
            || (self == Guard::Bitmap && matches!(level, Level::Raid1 | Level::Raid10))
    }
}

pub(crate) struct Rig {
    pub(crate) layout: Layout,
    pub(crate) disks: Vec<Disk>,
    pub(crate) journal: Disk,
    pub(crate) guard: Guard,
    pub(crate) store: Arc<Store>,
    /// Whether to assemble the set even if data may be wrong.
    pub(crate) accepts_wrong_data: bool,
    /// Whether blocks have checksums.
    pub(crate) has_sums: bool,
    /// Failed members whose disks are present again at the next assembly.
    pub(crate) returning: Vec<usize>,
    nonce: u64,
}

/// A store for states, whose requests take some time.
pub(crate) struct Store {
    states: Mutex<MemberStates>,
    recording: Mutex<u32>,
    journal_on_members: Mutex<bool>,
    /// Whether the second bitmap contains all regions that members not in sync have missed.
    is_missed_noted: Mutex<bool>,
    /// Whether a member has been replaced since all members were in sync.
    is_one_replaced: Mutex<bool>,
}

impl Store {
    /// Whether a failed member may be re-added, as its superblock would show.
    pub(crate) fn is_missed_noted(&self) -> bool {
        *self.is_missed_noted.lock().expect("no panic")
    }

    /// Records that a member is replaced by a disk without data.
    pub(crate) fn forget_missed(&self) {
        *self.is_missed_noted.lock().expect("no panic") = false;
        *self.is_one_replaced.lock().expect("no panic") = true;
    }

    /// Whether the journal disk no longer belongs to the set.
    pub(crate) fn is_journal_on_members(&self) -> bool {
        *self.journal_on_members.lock().expect("no panic")
    }

    pub(crate) fn states(&self) -> MemberStates {
        self.states.lock().expect("no panic").clone()
    }

    /// Sets the states recorded last.
    pub(crate) fn set(&self, states: MemberStates) {
        *self.states.lock().expect("no panic") = states;
    }

    /// Sets the states of all members to in sync.
    pub(crate) fn reset(&self, members: usize) {
        *self.states.lock().expect("no panic") = MemberStates::in_sync(members);
    }
}

impl MetadataStore for Store {
    fn record(&self, states: &MemberStates) -> Pending<'_, ()> {
        let states = states.clone();
        Box::pin(async move {
            *self.recording.lock().expect("no panic") += 1;
            assert_eq!(
                *self.recording.lock().expect("no panic"),
                1,
                "one record at a time"
            );
            pause().await;
            if !states.lacking().contains(&true) {
                *self.is_missed_noted.lock().expect("no panic") = false;
                *self.is_one_replaced.lock().expect("no panic") = false;
            }
            *self.states.lock().expect("no panic") = states;
            pause().await;
            *self.recording.lock().expect("no panic") -= 1;
            Ok::<(), DeviceError>(())
        })
    }

    fn missed_is_noted(&self, is_noted: bool) -> Pending<'_, bool> {
        Box::pin(async move {
            pause().await;
            let is_one_replaced = *self.is_one_replaced.lock().expect("no panic");
            let is_noted = is_noted && self.states().lacking().contains(&true) && !is_one_replaced;
            *self.is_missed_noted.lock().expect("no panic") = is_noted;
            pause().await;
            Ok::<bool, DeviceError>(is_noted)
        })
    }

    fn journal_on_members(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            pause().await;
            *self.journal_on_members.lock().expect("no panic") = true;
            pause().await;
            Ok::<(), DeviceError>(())
        })
    }
}

/// Number of stripes per bit of the bitmap.
const REGION_STRIPES: u64 = 2;

impl Rig {
    /// Creates a set of `members` disks with `rows` strips of 4 KiB.
    pub(crate) fn new(level: Level, members: usize, rows: u64, guard: Guard) -> Rig {
        Rig::with(level, members, rows, guard, false)
    }

    /// Creates the same set, with checksums.
    pub(crate) fn with_sums(level: Level, members: usize, rows: u64, guard: Guard) -> Rig {
        Rig::with(level, members, rows, guard, true)
    }

    /// Creates the same set, with or without checksums.
    pub(crate) fn with(
        level: Level,
        members: usize,
        rows: u64,
        guard: Guard,
        has_sums: bool,
    ) -> Rig {
        let layout =
            Layout::new(level, members, 4096, BlockSize::B512, Blocks(rows * 8)).expect("a layout");
        let states = MemberStates::in_sync(members);
        let store = Store {
            states: Mutex::new(states),
            recording: Mutex::default(),
            journal_on_members: Mutex::default(),
            is_missed_noted: Mutex::default(),
            is_one_replaced: Mutex::default(),
        };
        let mut rig = Rig {
            layout,
            disks: Vec::new(),
            journal: Disk::new(journal_blocks_min(&layout) + 20),
            guard,
            store: Arc::new(store),
            returning: Vec::new(),
            accepts_wrong_data: false,
            has_sums,
            nonce: 7,
        };
        rig.disks = (0..members).map(|_| Disk::new(rig.disk_blocks())).collect();
        rig
    }

    /// Creates the same set, on disks with arbitrary content.
    pub(crate) fn of_used_disks(level: Level, members: usize, rows: u64, guard: Guard) -> Rig {
        let mut rig = Rig::new(level, members, rows, guard);
        rig.disks = (0..members)
            .map(|_| Disk::used(rig.disk_blocks()))
            .collect();
        if guard.is_journal() {
            *rig.store.states.lock().expect("no panic") = MemberStates::of_new_set(&rig.layout);
        }
        rig
    }

    fn area_blocks(&self) -> u64 {
        journal_blocks_min(&self.layout) + 20
    }

    fn sums_blocks(&self) -> u64 {
        if self.has_sums {
            Summed::area_bytes(self.layout.member_blocks().0) / 512
        } else {
            0
        }
    }

    fn disk_blocks(&self) -> u64 {
        self.data_lba(self.layout.member_blocks().0)
    }

    /// Creates a disk for a member, with arbitrary content.
    pub(crate) fn spare(&self) -> Disk {
        Disk::used(self.disk_blocks())
    }

    /// Returns the data area of a disk.
    pub(crate) fn data(&self, disk: &Disk) -> MemberDevice {
        let (start, blocks) = (self.data_lba(0), self.layout.member_blocks().0);
        let data: Arc<dyn BlockDevice> = Arc::new(Part {
            disk: disk.clone(),
            start,
            blocks,
        });
        if !self.has_sums {
            return data.into();
        }
        let (start, blocks) = (self.area_blocks(), self.sums_blocks());
        let area = Arc::new(Part {
            disk: disk.clone(),
            start,
            blocks,
        });
        Arc::new(Summed::new(data, area).expect("room")).into()
    }

    /// Returns the block of a disk that contains this block of data.
    pub(crate) fn data_lba(&self, lba: u64) -> u64 {
        self.area_blocks() + self.sums_blocks() + lba
    }

    /// Returns the block of a disk that contains the checksum of this block of data.
    pub(crate) fn sum_lba(&self, lba: u64) -> u64 {
        self.area_blocks() + lba / 128
    }

    /// Returns the area of a disk for a journal or a bitmap.
    pub(crate) fn area(&self, disk: &Disk) -> Arc<dyn BlockDevice> {
        Arc::new(Part {
            disk: disk.clone(),
            start: 0,
            blocks: self.area_blocks(),
        })
    }

    /// Returns the number of members that have an area. These are the first members.
    pub(crate) fn areas(&self) -> usize {
        match self.layout.level() {
            Level::Raid5 => 2,
            Level::Raid6 => 3,
            Level::Raid0 | Level::Raid1 | Level::Raid10 => self.layout.members(),
        }
    }

    fn protection(&self) -> ProtectionAreas {
        let copy = |(member, disk): (usize, &Disk)| AreaCopy {
            device: self.area(disk),
            member: Some(member),
        };
        let copies: Vec<AreaCopy> = self
            .disks
            .iter()
            .enumerate()
            .take(self.areas())
            .map(copy)
            .collect();
        match self.guard {
            Guard::Journal => ProtectionAreas::Journal(copies),
            Guard::JournalDisk if self.store.is_journal_on_members() => {
                ProtectionAreas::Journal(copies)
            }
            Guard::JournalDisk => {
                let own = AreaCopy {
                    device: self.area(&self.journal),
                    member: None,
                };
                ProtectionAreas::Journal([copies, vec![own]].concat())
            }
            Guard::Bitmap => ProtectionAreas::Bitmap {
                copies,
                region_stripes: REGION_STRIPES,
            },
            Guard::Nothing => ProtectionAreas::Nothing,
        }
    }

    /// Assembles the set without these members.
    pub(crate) fn assemble(
        &mut self,
        origin: Origin,
        missing: &[usize],
    ) -> Result<RaidDevice, AssemblyError> {
        let assembly = self.assembly(origin, missing);
        self.returning.clear();
        end(RaidDevice::assemble(assembly))
    }

    /// Returns the parts of the set without these members.
    pub(crate) fn assembly(&mut self, origin: Origin, missing: &[usize]) -> Assembly {
        self.nonce += 1;
        // A crash has aborted outstanding records.
        *self.store.recording.lock().expect("no panic") = 0;
        let device = |(index, disk)| (!missing.contains(&index)).then(|| self.data(disk));
        let mut protection = self.protection();
        if let ProtectionAreas::Journal(copies) | ProtectionAreas::Bitmap { copies, .. } =
            &mut protection
        {
            copies.retain(|copy| copy.member.is_none_or(|member| !missing.contains(&member)));
        }
        let mut states = self.store.states();
        let missed = match (
            self.store.is_missed_noted(),
            states.lacking().contains(&true),
        ) {
            (true, _) => Missed::Noted,
            (false, true) => Missed::Unknown,
            (false, false) => Missed::Nothing,
        };
        for member in &self.returning {
            states.members[*member] = MemberState::Rebuilding { done: 0 };
        }
        Assembly {
            layout: self.layout,
            members: self.disks.iter().enumerate().map(device).collect(),
            states,
            missed,
            metadata: Arc::clone(&self.store) as _,
            protection,
            origin,
            nonce: self.nonce,
            memory_bytes: 1 << 20,
            accepts_wrong_data: self.accepts_wrong_data,
            sleeper: Arc::new(StepClock),
            spawner: Arc::new(HereSpawner),
        }
    }

    /// Assembles a new set of zeros.
    pub(crate) fn created(&mut self) -> Arc<RaidDevice> {
        Arc::new(self.assemble(Origin::NewOfZeros, &[]).expect("a set"))
    }
}

/// Runs a request to completion.
pub(crate) fn ask<T: 'static>(
    device: &Arc<RaidDevice>,
    request: impl AsyncFnOnce(&RaidDevice) -> T + 'static,
) -> T {
    let device = Arc::clone(device);
    end(async move { request(&device).await })
}

pub(crate) fn try_write(
    device: &Arc<RaidDevice>,
    lba: u64,
    blocks: u64,
    byte: u8,
) -> Result<(), DeviceError> {
    ask(device, async move |device| {
        let data = Buffer::from(&vec![byte; blocks as usize * 512][..]).share();
        device
            .write(Extent::new(lba, blocks), data, Durability::Cached)
            .await
    })
}

pub(crate) fn write(device: &Arc<RaidDevice>, lba: u64, blocks: u64, byte: u8) {
    try_write(device, lba, blocks, byte).expect("written");
}

pub(crate) fn read(device: &Arc<RaidDevice>, lba: u64, blocks: u64) -> Vec<u8> {
    let device = Arc::clone(device);
    let data = end(async move {
        device
            .read(
                Extent::new(lba, blocks),
                Buffer::zeroed(blocks as usize * 512),
            )
            .await
    });
    data.expect("read").to_vec()
}

pub(crate) fn flush(device: &Arc<RaidDevice>) -> Result<(), DeviceError> {
    ask(device, async move |device| device.flush().await)
}

pub(crate) fn scrub(device: &Arc<RaidDevice>, stripe: u64, repairs: bool) -> Scrubbed {
    ask(device, async move |device| {
        device.scrub_step(stripe, repairs).await
    })
    .expect("scrubbed")
}

pub(crate) fn synchronised(device: &Arc<RaidDevice>) -> Result<(), DeviceError> {
    ask(device, async move |device| {
        let mut done = 0;
        while let Some(progress) = device.synchronise_step(done).await? {
            done = progress.done % progress.total;
        }
        Ok(())
    })
}

pub(crate) fn rebuild(device: &Arc<RaidDevice>, member: usize, steps: u64) -> bool {
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

/// Marks a member failed.
pub(crate) fn fail(device: &Arc<RaidDevice>, member: usize) {
    ask(device, async move |device| device.fail(member).await).expect("failed");
}

/// Replaces a failed member with a spare.
pub(crate) fn replace(rig: &mut Rig, device: &Arc<RaidDevice>, member: usize) {
    let disk = rig.spare();
    let area = (member < rig.areas()).then(|| rig.area(&disk));
    let data = rig.data(&disk);
    rig.disks[member] = disk;
    ask(device, async move |device| {
        device.replace(device.vacancy(member)?, data, area).await
    })
    .expect("replaced");
}

pub(crate) fn crashed(rig: &mut Rig) -> Arc<RaidDevice> {
    rig.disks.iter().for_each(|disk| disk.crash());
    Arc::new(rig.assemble(Origin::Existing, &[]).expect("assembled"))
}

/// Crashes a mirror after a write to each of two regions.
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
    each.fold([0; 3], |sum, one| {
        [sum[0] + one[0], sum[1] + one[1], sum[2] + one[2]]
    })
}
