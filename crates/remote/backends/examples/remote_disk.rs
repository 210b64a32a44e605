//! A remote LUN in your own program: prints its properties, reads its first block from two threads, and
//! optionally writes a block and reads it back.
//!
//! ```console
//! $ cargo run --package linerate-backends --example remote_disk -- iscsi://san1/iqn.2026-01.io.linerate:vm1/0
//! $ cargo run --package linerate-backends --example remote_disk -- iscsi://san1/iqn.2026-01.io.linerate:vm1/0 --overwrite 2048
//! ```
//!
//! docs/library.md explains this program.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use block::{BlockDevice, Blocks, Buffer, DeviceError, Durability, Extent, Lba};
use host::{Epoll, EpollOptions};
use iscsi_client::{RemoteLun, Url};

/// Any error of this program.
type Anything = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [url] => run(url, None),
        [url, "--overwrite", block] => run(url, Some(block)),
        _ => Err("usage: remote_disk URL [--overwrite BLOCK]".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("remote_disk: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the example in a runtime environment, which provides sockets, a clock and timers to the futures of
/// this thread.
fn run(url: &str, overwrite: Option<&str>) -> Result<(), Anything> {
    let url: Url = Url::parse(url)?; // its error names the column
    let overwrite: Option<u64> = overwrite.map(str::parse).transpose()?;
    let world = Epoll::shared(EpollOptions::default())?;
    reactor::block_on(world, use_disk(&url, overwrite))
}

async fn use_disk(url: &Url, overwrite: Option<u64>) -> Result<(), Anything> {
    let disk = Arc::new(iscsi_client::open(url, random).await?);
    describe(&disk);
    println!(
        "block 0 begins with {:02x?}",
        &read_block(&*disk, Lba(0)).await?[..16]
    );
    read_from_another_thread(Arc::clone(&disk)).await?;
    match overwrite {
        Some(block) => overwrite_block(&disk, Lba(block)).await?,
        None => println!("nothing was written: --overwrite BLOCK would"),
    }
    tell_what_was_done(&disk).await;
    // The last owner logs out. To wait for the target's confirmation, close it explicitly.
    if let Some(disk) = Arc::into_inner(disk) {
        disk.close().await;
    }
    Ok(())
}

/// Prints the session's counters. They include the commands that queried the LUN's properties at login.
async fn tell_what_was_done(disk: &RemoteLun) {
    let Some(statistics) = disk.target().statistics().await else {
        return;
    };
    let (read, write) = (&statistics.read, &statistics.write);
    println!(
        "{} reads and {} writes, {} bytes, median latency of a read {:?}",
        read.commands,
        write.commands,
        read.bytes + write.bytes,
        read.latency.percentile(50.0)
    );
}

fn describe(disk: &RemoteLun) {
    let (geometry, profile) = (disk.geometry(), disk.profile());
    let bytes = geometry.bytes();
    println!(
        "{} blocks of {} bytes, {bytes} bytes",
        geometry.blocks.0,
        geometry.block_size.bytes()
    );
    println!("thin: {}, read-only: {}", profile.thin, profile.read_only);
    println!(
        "digests agreed on: {:?}",
        disk.target().parameters().header_digest
    );
}

/// Reads one block, with a deadline. The deadline is a timeout around the request: when it expires, the
/// request is dropped, which asks the target to abort the command. Dropping a request cancels it, and is safe
/// at any time.
async fn read_block(disk: &dyn BlockDevice, lba: Lba) -> Result<Buffer, Anything> {
    let extent = Extent {
        lba,
        blocks: Blocks(1),
    };
    let buffer = Buffer::zeroed(disk.geometry().length(extent) as usize);
    let read = reactor::timeout(Duration::from_secs(5), disk.read(extent, buffer)).await;
    Ok(read??)
}

/// The session stays on the thread that opened it; the LUN may be used from any thread with a runtime
/// environment. Meanwhile, this thread must keep running its own environment, so it awaits the other thread's
/// result instead of joining it.
async fn read_from_another_thread(disk: Arc<RemoteLun>) -> Result<(), Anything> {
    let (answer, mut answers) = reactor::mailbox();
    let other = thread::spawn(move || {
        let read = Epoll::shared(EpollOptions::default())
            .map_err(Anything::from)
            .and_then(|world| reactor::block_on(world, read_block(&*disk, Lba(0))));
        drop(disk);
        let _ = answer.send(read.map(|block| block.len())); // fails only if this program is exiting
    });
    let length = answers
        .recv()
        .await
        .ok_or("the other thread has no answer")??;
    other.join().map_err(|_| "the other thread failed")?;
    println!("another thread has read {length} bytes");
    Ok(())
}

async fn overwrite_block(disk: &RemoteLun, lba: Lba) -> Result<(), Anything> {
    let extent = Extent {
        lba,
        blocks: Blocks(1),
    };
    let mut block = Buffer::zeroed(disk.geometry().length(extent) as usize);
    random(&mut block);
    let block = block.share(); // any number of requests can now share the block, and none can change it
    match disk.write(extent, block.clone(), Durability::Cached).await {
        Ok(()) => disk.flush().await?, // the block is now on stable storage, if the target's report is true
        Err(DeviceError::Reserved) => return Err("another initiator has reserved the disk".into()),
        Err(error) => return Err(error.into()),
    }
    let back = read_block(disk, lba).await?;
    if back[..] != block[..] {
        return Err(format!("block {} differs from the written data", lba.0).into());
    }
    println!("block {} was overwritten and read back", lba.0);
    Ok(())
}

/// Fills `bytes` with random numbers, for the session identifier and CHAP challenges.
fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system has random numbers once it has started");
}
