//! Measures random 4 KiB direct reads from a 256 MiB file, at two queue depths, with io_uring and with
//! threads.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use block::{BlockDevice as _, BlockSize, Buffer, Durability, Extent, Random};
use host::{Epoll, EpollOptions, FileDevice, FileOptions, IoEngine, cputime};
use reactor::{block_on, spawn};

const BLOCKS: u64 = 65_536;
const READS: u64 = 40_000;

fn main() {
    let path = std::env::args()
        .nth(1)
        .map_or_else(|| "linerate-file-io".into(), PathBuf::from);
    for round in 0..2 {
        for engine in [IoEngine::Uring, IoEngine::Threads] {
            for depth in [1, 32] {
                measure(round, engine, depth, &path);
            }
        }
    }
    std::fs::remove_file(path).expect("removed");
}

fn measure(round: u32, engine: IoEngine, depth: u64, path: &std::path::Path) {
    let world = Epoll::with_engine(EpollOptions::default(), engine).expect("an epoll");
    block_on(Rc::new(world), async {
        let device = Rc::new(open(path).await);
        let (start, cpu) = (Instant::now(), cputime::process());
        let readers: Vec<_> = (0..depth)
            .map(|reader| spawn(read(Rc::clone(&device), reader, READS / depth)))
            .collect();
        for reader in readers {
            reader.await;
        }
        let (time, cpu) = (start.elapsed(), cputime::process() - cpu);
        let per_second = READS as f64 / time.as_secs_f64();
        println!(
            "round {round}, {engine}, depth {depth}: {per_second:.0} reads/s, {:?} CPU each",
            cpu / READS as u32
        );
    });
}

async fn open(path: &std::path::Path) -> FileDevice {
    let options = FileOptions {
        bytes: Some(BLOCKS * 4096),
        direct: true,
        block_size: BlockSize::B4096,
        ..FileOptions::new(path)
    };
    let device = FileDevice::open(options).expect("a file for direct I/O");
    let data = Buffer::zeroed(1 << 20).share();
    for lba in (0..BLOCKS).step_by(256) {
        device
            .write(Extent::new(lba, 256), data.clone(), Durability::Cached)
            .await
            .expect("written");
    }
    device
}

async fn read(device: Rc<FileDevice>, seed: u64, reads: u64) {
    let mut random = Random::new(seed);
    for _ in 0..reads {
        let extent = Extent::new(random.below(BLOCKS), 1);
        device
            .read(extent, Buffer::recycled(4096))
            .await
            .expect("read");
    }
}
