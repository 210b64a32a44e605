//! Tests of sets that take new space of their disks into use, with concurrent writes and a crash at any
//! point.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent};
use raid::disks::{Disk as NamedDisk, Growth, OpenSet, Records, create};
use raid::superblock::SetRecord;
use raid::{Level, Origin, RaidDevice, Scrubbed, Summed};

use crate::by_content::{DISK_BLOCKS, record, started};
use crate::disk::{Disk, Part};
use crate::number;
use crate::world::{End, Task, draw, end, once_in, pause, run, seed};

/// Lengths of the disks in blocks: initially, and after growing.
const SIZES: [u64; 3] = [DISK_BLOCKS, 3200, 4352];

struct Scene {
    disks: Vec<Disk>,
    set: OpenSet,
    device: Arc<RaidDevice>,
    /// By block: its possible contents.
    model: Rc<RefCell<Vec<Vec<u8>>>>,
}

/// Returns the disks, presented with this length.
fn named(disks: &[Disk], blocks: u64) -> Vec<NamedDisk> {
    let named = |(index, disk): (usize, &Disk)| NamedDisk {
        name: format!("disk{index}"),
        device: Arc::new(Part {
            disk: disk.clone(),
            start: 0,
            blocks,
        }) as Arc<dyn BlockDevice>,
    };
    disks.iter().enumerate().map(named).collect()
}

impl Scene {
    fn new(level: Level, members: u8, has_sums: bool) -> Scene {
        let disk = |_| Disk::of_zeros_until(DISK_BLOCKS, SIZES[2]);
        let disks: Vec<Disk> = (0..members).map(disk).collect();
        let sums_bytes = if has_sums {
            Summed::area_bytes(DISK_BLOCKS)
        } else {
            0
        };
        let record = SetRecord {
            clean: true,
            ..record(level, members, sums_bytes)
        };
        let created = named(&disks, SIZES[0]);
        end(async move { create(&record, &created).await }).expect("created");
        let (set, device) = started(&named(&disks, SIZES[0]), Origin::NewOfZeros);
        let model = vec![vec![0]; device.geometry().blocks.0 as usize];
        let mut scene = Scene {
            disks,
            set,
            device,
            model: Rc::new(RefCell::new(model)),
        };
        (0..20).for_each(|_| assert_eq!(run(scene.writes(1), u64::MAX), End::Done));
        scene.close();
        scene
    }

    /// Starts the same set on copies of its disks, presented with this length.
    fn copied(&self, blocks: u64) -> Scene {
        let disks: Vec<Disk> = self.disks.iter().map(Disk::copy).collect();
        let (set, device) = started(&named(&disks, blocks), Origin::Existing);
        Scene {
            disks,
            set,
            device,
            model: Rc::new(RefCell::new(self.model.borrow().clone())),
        }
    }

    fn close(&mut self) {
        let (records, device) = (Arc::clone(&self.set.records), Arc::clone(&self.device));
        end(async move {
            device.close().await.expect("closed");
            records.close().await.expect("closed");
        });
    }

    /// Makes power fail, and finds the set again.
    fn crash(&mut self, blocks: u64) {
        self.disks.iter().for_each(Disk::crash);
        (self.set, self.device) = started(&named(&self.disks, blocks), Origin::Existing);
        let device = Arc::clone(&self.device);
        let synchronised = end(async move {
            let mut done = 0;
            while let Some(progress) = device.synchronise_step(done).await? {
                done = if progress.done == progress.total {
                    0
                } else {
                    progress.done
                };
            }
            Ok::<(), DeviceError>(())
        });
        synchronised.expect("synchronised");
    }

    fn growing(&self) -> Task {
        let (records, device) = (Arc::clone(&self.set.records), Arc::clone(&self.device));
        let model = Rc::clone(&self.model);
        Box::pin(async move {
            grow(&records, &device).await.expect("grown");
            model
                .borrow_mut()
                .resize(device.geometry().blocks.0 as usize, vec![0]);
        })
    }

    /// Makes one write after another, of arbitrary data to arbitrary blocks.
    fn writes(&self, count: u64) -> Vec<Task> {
        let (device, model) = (Arc::clone(&self.device), Rc::clone(&self.model));
        vec![Box::pin(async move {
            for _ in 0..count {
                pause().await;
                let blocks = device.geometry().blocks.0;
                let lba = draw(blocks);
                let extent = Extent::new(lba, (1 + draw(40)).min(blocks - lba));
                let range = lba as usize..(lba + extent.blocks.0) as usize;
                let value = if once_in(6) { 0 } else { 1 + draw(255) as u8 };
                model.borrow_mut().resize(blocks as usize, vec![0]);
                model.borrow_mut()[range.clone()]
                    .iter_mut()
                    .for_each(|block| block.push(value));
                if value == 0 {
                    device.write_zeroes(extent, true).await.expect("zeroed");
                    device.flush().await.expect("flushed");
                } else {
                    let data =
                        Buffer::from(&vec![value; extent.blocks.0 as usize * 512][..]).share();
                    let durability = if once_in(2) {
                        Durability::Stable
                    } else {
                        Durability::Cached
                    };
                    device
                        .write(extent, data, durability)
                        .await
                        .expect("written");
                    device.flush().await.expect("flushed");
                }
                model.borrow_mut()[range]
                    .iter_mut()
                    .for_each(|block| *block = vec![value]);
            }
        })]
    }

    /// Checks that reads return the written data, that strips are consistent and that checksums match.
    fn check(&mut self, when: &str) {
        let (device, blocks) = (Arc::clone(&self.device), self.device.geometry().blocks.0);
        let read = end(async move {
            device
                .read(
                    Extent::new(0, blocks),
                    Buffer::recycled(blocks as usize * 512),
                )
                .await
        });
        let read = read.unwrap_or_else(|error| panic!("{when}: {error}"));
        let mut model = self.model.borrow_mut();
        model.resize(blocks as usize, vec![0]);
        for (lba, (block, content)) in model.iter_mut().zip(read.chunks_exact(512)).enumerate() {
            let found = content[0];
            assert!(
                content.iter().all(|byte| *byte == found),
                "{when}: block {lba} is torn"
            );
            assert!(
                block.contains(&found),
                "{when}: block {lba} has {found}, not one of {block:?}"
            );
            *block = vec![found];
        }
        for stripe in 0..self.device.layout().stripes() {
            let device = Arc::clone(&self.device);
            let found = end(async move { device.scrub_step(stripe, false).await });
            assert_eq!(found, Ok(Scrubbed::Right), "{when}: stripe {stripe}");
        }
        let wrong = self.device.status().wrong_blocks;
        assert!(wrong.iter().all(|blocks| *blocks == 0), "{when}: {wrong:?}");
    }
}

async fn grow(records: &Records, device: &RaidDevice) -> Result<(), DeviceError> {
    let Some(grown) = records.grown() else {
        return Ok(());
    };
    let mut growth = Growth::begin(records, device, &grown)?;
    while growth.step(records, device).await?.is_some() {
        pause().await;
    }
    Ok(())
}

const LEVELS: [(Level, u8); 3] = [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid10, 3)];

/// Crashes after every `step` polls of a growth with concurrent writes. Then the growth completes, and the
/// set grows once more.
#[test]
fn model_of_a_crash_while_a_set_grows() {
    for ((level, members), has_sums) in LEVELS
        .into_iter()
        .flat_map(|level| [(level, true), (level, false)])
    {
        seed(u64::from(members) + u64::from(has_sums));
        let first = Scene::new(level, members, has_sums);
        // A prime number, so that the points of the crashes differ among the levels.
        let step = if number("RAID_CASES").is_some() {
            1
        } else {
            53
        };
        let mut crashes = 0;
        for polls in (1..).step_by(step) {
            let what = format!("{level}, checksums: {has_sums}, after {polls} polls");
            seed(polls);
            let mut scene = first.copied(SIZES[1]);
            let mut tasks = scene.writes(u64::MAX);
            let has_grown = Rc::new(RefCell::new(false));
            let (growing, told) = (scene.growing(), Rc::clone(&has_grown));
            tasks.push(Box::pin(async move {
                growing.await;
                *told.borrow_mut() = true;
            }));
            assert_eq!(run(tasks, polls), End::Crashed);
            scene.crash(SIZES[1]);
            scene.check(&what);
            for (blocks, time) in [(SIZES[1], "to its end"), (SIZES[2], "again")] {
                scene.close();
                (scene.set, scene.device) = started(&named(&scene.disks, blocks), Origin::Existing);
                let mut tasks = scene.writes(10);
                tasks.push(scene.growing());
                assert_eq!(run(tasks, u64::MAX), End::Done);
                assert_eq!(scene.set.records.grown(), None, "{what}, {time}");
                let data_bytes = scene.set.records.set().areas.data.bytes;
                assert!(
                    data_bytes >= (blocks - 2048 - 256) * 512,
                    "{what}, {time}: {data_bytes}"
                );
                let layout = scene.set.records.set().layout().expect("a layout");
                assert_eq!(
                    scene.device.geometry().blocks,
                    layout.blocks(),
                    "{what}, {time}"
                );
                scene.check(&format!("{what}, grown {time}"));
            }
            scene.crash(SIZES[2]);
            scene.check(&format!("{what}, grown again and crashed"));
            if *has_grown.borrow() {
                break;
            }
            crashes += 1;
        }
        assert!(crashes > 5, "{level}: it is grown after {crashes} crashes");
    }
}

/// Checksums at their new location detect a corrupt block.
#[test]
fn checksums_that_have_moved_still_tell() {
    seed(5);
    let mut scene = Scene::new(Level::Raid5, 3, true).copied(SIZES[1]);
    assert_eq!(run(vec![scene.growing()], u64::MAX), End::Done);
    let set = scene.set.records.set();
    assert_eq!(
        set.areas.checksums.offset,
        set.areas.data.end().expect("an end")
    );
    assert!(set.areas.checksums.end() <= Some(SIZES[1] * 512));
    assert_eq!(scene.set.records.grown(), None, "there is no more");
    let data = scene.device.geometry().blocks.0;
    assert_eq!(run(scene.writes(40), u64::MAX), End::Done);
    scene.check("before");
    // Corrupt a block of an old stripe, and one of a new stripe.
    for stripe in [0, scene.device.layout().stripes() - 1] {
        let place = scene.device.layout().strip(stripe, 0);
        let lba = set.areas.data.offset / 512 + place.lba;
        let device = Arc::clone(&scene.device);
        let start = device.layout().stripe_extent(stripe).lba.0;
        let filled = end(async move {
            let data = Buffer::from(&[7; 512][..]).share();
            device
                .write(Extent::new(start, 1), data, Durability::Stable)
                .await
        });
        filled.expect("written");
        scene.model.borrow_mut()[start as usize] = vec![7];
        scene.disks[place.member].corrupt(lba);
        let device = Arc::clone(&scene.device);
        let read = end(async move {
            device
                .read(Extent::new(0, data), Buffer::recycled(data as usize * 512))
                .await
        });
        assert_eq!(read.expect("readable")[start as usize * 512], 7);
    }
    let wrong: u64 = scene.device.status().wrong_blocks.iter().sum();
    assert_eq!(wrong, 2);
}
