//! The sets to compare, and requests to them.

use std::sync::Arc;

use block::{BlockDevice, BlockSize, Blocks, Buffer, Durability, Extent, Pending, Random};
use raid::{
    AreaCopy, Assembly, Layout, Level, MemberStates, MetadataStore, Origin, ProtectionAreas,
    RaidDevice, Summed,
};

use crate::medium::Medium;
use crate::tasks::{Clock, Here, end};
use crate::{Work, cpu_time};

const STRIP_BYTES: u64 = 64 << 10;
const MEMBER_BYTES: u64 = 64 << 20;
const JOURNAL_BYTES: u64 = 32 << 20;
const BITMAP_BYTES: u64 = 64 << 10;
const RANDOM_BYTES: u64 = 4 << 10;
const BLOCK_SHIFT: u32 = 9;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Guard {
    Nothing,
    Bitmap,
    Journal,
    JournalInFiles,
    /// A journal on a separate device.
    JournalFile,
}

/// A kind of set to measure.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) members: usize,
    level: Level,
    guard: Guard,
    has_sums: bool,
}

const fn kind(name: &'static str, level: Level, members: usize, guard: Guard) -> Kind {
    Kind {
        name,
        members,
        level,
        guard,
        has_sums: false,
    }
}

const fn summed(name: &'static str, level: Level, members: usize, guard: Guard) -> Kind {
    Kind {
        name,
        members,
        level,
        guard,
        has_sums: true,
    }
}

pub(crate) const SETS: [Kind; 13] = [
    kind("raid0", Level::Raid0, 4, Guard::Nothing),
    kind("raid1", Level::Raid1, 2, Guard::Nothing),
    kind("raid1, bitmap", Level::Raid1, 2, Guard::Bitmap),
    summed("raid1, bitmap, checksums", Level::Raid1, 2, Guard::Bitmap),
    kind("raid10", Level::Raid10, 4, Guard::Nothing),
    kind("raid5", Level::Raid5, 4, Guard::Nothing),
    kind("raid5, journal", Level::Raid5, 4, Guard::Journal),
    summed("raid5, journal, checksums", Level::Raid5, 4, Guard::Journal),
    kind(
        "raid5, journal in files",
        Level::Raid5,
        4,
        Guard::JournalInFiles,
    ),
    kind(
        "raid5, journal in a separate file",
        Level::Raid5,
        4,
        Guard::JournalFile,
    ),
    kind("raid6", Level::Raid6, 6, Guard::Nothing),
    kind("raid6, journal", Level::Raid6, 6, Guard::Journal),
    kind(
        "raid6, journal in files",
        Level::Raid6,
        6,
        Guard::JournalInFiles,
    ),
];

impl Kind {
    /// Returns the number of data strips in a row, not counting parity and copies.
    fn data_members(&self) -> u64 {
        match self.level {
            Level::Raid1 => 4, // so that the request length is the same as at the other levels
            Level::Raid10 => self.members as u64 / 2,
            level => (self.members - level.parity_strips()) as u64,
        }
    }

    pub(crate) fn request_bytes(&self, work: Work) -> u64 {
        match work {
            Work::RandomRead | Work::RandomWrite | Work::DegradedRandomRead => RANDOM_BYTES,
            Work::SequentialWrite | Work::SequentialRead | Work::DegradedSequentialRead => {
                self.data_members() * STRIP_BYTES
            }
        }
    }
}

/// A store that records nothing, because the sets do not survive the process.
struct Forgetful;

impl MetadataStore for Forgetful {
    fn record(&self, _: &MemberStates) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn missed_is_noted(&self, _: bool) -> Pending<'_, bool> {
        Box::pin(std::future::ready(Ok(false)))
    }
}

/// A set over members in memory, and the same set with one member missing.
pub(crate) struct TestSet {
    kind: &'static Kind,
    device: Arc<RaidDevice>,
    has_failed: bool,
    random: Random,
}

impl TestSet {
    pub(crate) fn new(kind: &'static Kind) -> TestSet {
        let blocks = Blocks(MEMBER_BYTES >> BLOCK_SHIFT);
        let layout = Layout::new(
            kind.level,
            kind.members,
            STRIP_BYTES,
            BlockSize::B512,
            blocks,
        );
        let plain = || Arc::new(Medium::memory(MEMBER_BYTES)) as Arc<dyn BlockDevice>;
        let member = |_| {
            Some(match kind.has_sums {
                false => plain().into(),
                true => {
                    let area = Medium::memory(Summed::area_bytes(blocks.0));
                    Arc::new(Summed::new(plain(), Arc::new(area)).expect("room")).into()
                }
            })
        };
        let copies = |count: usize, medium: &dyn Fn() -> Medium| -> Vec<AreaCopy> {
            let copy = |member| AreaCopy {
                device: Arc::new(medium()),
                member: Some(member),
            };
            (0..count).map(copy).collect()
        };
        let journals = kind.level.parity_strips() + 1;
        let protection = match kind.guard {
            Guard::Nothing => ProtectionAreas::Nothing,
            Guard::Bitmap => ProtectionAreas::Bitmap {
                copies: copies(kind.members, &|| Medium::memory(BITMAP_BYTES)),
                region_stripes: 64,
            },
            Guard::Journal => {
                ProtectionAreas::Journal(copies(journals, &|| Medium::memory(JOURNAL_BYTES)))
            }
            Guard::JournalInFiles => ProtectionAreas::Journal(copies(journals, &|| {
                Medium::file(JOURNAL_BYTES).expect("/dev/shm has room")
            })),
            Guard::JournalFile => {
                let device = Arc::new(Medium::file(JOURNAL_BYTES).expect("/dev/shm has room"));
                ProtectionAreas::Journal(vec![AreaCopy {
                    device,
                    member: None,
                }])
            }
        };
        let assembly = Assembly {
            layout: layout.expect("a layout"),
            members: (0..kind.members).map(member).collect(),
            states: MemberStates::in_sync(kind.members),
            metadata: Arc::new(Forgetful),
            protection,
            origin: Origin::NewOfZeros,
            nonce: 7,
            memory_bytes: 64 << 20,
            missed: raid::Missed::Nothing,
            accepts_wrong_data: false,
            sleeper: Arc::new(Clock),
            spawner: Arc::new(Here),
        };
        let device = Arc::new(end(RaidDevice::assemble(assembly)).expect("a set"));
        TestSet {
            kind,
            device,
            has_failed: false,
            random: Random::new(1),
        }
    }

    /// Measures the CPU time per request in nanoseconds. Returns `None` if the set does not support the
    /// workload.
    pub(crate) fn measured(&mut self, work: Work, is_quick: bool) -> Option<f64> {
        if matches!(
            work,
            Work::DegradedSequentialRead | Work::DegradedRandomRead
        ) {
            if self.kind.level == Level::Raid0 {
                return None;
            }
            if !std::mem::replace(&mut self.has_failed, true) {
                let device = Arc::clone(&self.device);
                end(async move { device.fail(1).await }).expect("it continues without one");
            }
        }
        let bytes = self.kind.request_bytes(work);
        let requests = match (is_quick, bytes == RANDOM_BYTES) {
            (true, _) => 100,
            (false, true) => 20_000,
            (false, false) => (256 << 20) / bytes,
        };
        let places = (self.device.geometry().bytes()) / bytes;
        let starts: Vec<u64> = (0..requests)
            .map(|at| {
                if bytes == RANDOM_BYTES {
                    self.random.below(places)
                } else {
                    at % places
                }
            })
            .collect();
        let device = Arc::clone(&self.device);
        let begun = cpu_time();
        end(async move {
            let data = Buffer::from(&vec![0xa5; bytes as usize][..]).share();
            let mut buffer = Buffer::zeroed(bytes as usize);
            for start in starts {
                let extent = Extent::new(start * (bytes >> BLOCK_SHIFT), bytes >> BLOCK_SHIFT);
                match work {
                    Work::SequentialWrite | Work::RandomWrite => {
                        device
                            .write(extent, data.clone(), Durability::Cached)
                            .await
                            .expect("written");
                    }
                    _ if device.read_nowait(extent, &mut buffer) => {}
                    _ => buffer = device.read(extent, buffer).await.expect("read"),
                }
            }
        });
        Some((cpu_time() - begun) / requests as f64)
    }
}
