//! Random reads and writes, checked against a model of each block's content.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use block::{BlockDevice, Buffer, Durability, Extent};
use reactor::{sleep, spawn};
use testkit::Random;

pub(crate) const BLOCK: usize = 512;
pub(crate) const BLOCKS: usize = 96;

/// The content of each block, and which blocks are in use.
struct Model {
    versions: Vec<u8>,
    used: Vec<bool>,
}

/// Reads and writes random blocks from several tasks, and checks the data. No two tasks use a block at the
/// same time.
pub(crate) async fn work<D: BlockDevice + 'static>(
    device: &Rc<D>,
    seed: u64,
    tasks: u64,
    requests: u64,
) {
    let model = Rc::new(RefCell::new(Model {
        versions: vec![0; BLOCKS],
        used: vec![false; BLOCKS],
    }));
    let all: Vec<_> = (0..tasks)
        .map(|task| {
            let (device, model) = (Rc::clone(device), Rc::clone(&model));
            spawn(async move {
                let mut random = Random::new(seed ^ task << 32);
                for _ in 0..requests {
                    let (lba, blocks) = (
                        random.below(BLOCKS as u64 - 24) as usize,
                        1 + random.below(24) as usize,
                    );
                    let range = lba..lba + blocks;
                    while model.borrow().used[range.clone()].contains(&true) {
                        sleep(Duration::from_millis(1)).await;
                    }
                    model.borrow_mut().used[range.clone()].fill(true);
                    one(&*device, &model, lba, blocks, &mut random).await;
                    model.borrow_mut().used[range].fill(false);
                }
            })
        })
        .collect();
    for task in all {
        task.await;
    }
    check(&**device, &model, 0, BLOCKS).await;
}

async fn one(
    device: &dyn BlockDevice,
    model: &RefCell<Model>,
    lba: usize,
    blocks: usize,
    random: &mut Random,
) {
    let extent = Extent::new(lba as u64, blocks as u64);
    match random.below(10) {
        0 => device.flush().await.expect("flushed"),
        1 => {
            device.write_zeroes(extent, true).await.expect("zeroed");
            model.borrow_mut().versions[lba..lba + blocks].fill(0);
        }
        2..=5 => check(device, model, lba, blocks).await,
        kind => {
            let version = 1 + random.below(255) as u8;
            let mut data = Buffer::zeroed(blocks * BLOCK);
            data.fill(version);
            let durability = if kind == 6 {
                Durability::Stable
            } else {
                Durability::Cached
            };
            device
                .write(extent, data.share(), durability)
                .await
                .expect("written");
            model.borrow_mut().versions[lba..lba + blocks].fill(version);
        }
    }
}

async fn check(device: &dyn BlockDevice, model: &RefCell<Model>, lba: usize, blocks: usize) {
    let extent = Extent::new(lba as u64, blocks as u64);
    let read = device
        .read(extent, Buffer::zeroed(blocks * BLOCK))
        .await
        .expect("read");
    for (block, version) in read
        .chunks(BLOCK)
        .zip(&model.borrow().versions[lba..lba + blocks])
    {
        assert!(
            block.iter().all(|byte| byte == version),
            "{} instead of {version} near {lba}",
            block[0]
        );
    }
}
