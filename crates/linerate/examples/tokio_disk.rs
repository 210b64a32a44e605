//! A remote LUN in a tokio program. The program copies a file to the LUN, which is an `AsyncWrite`, and reads
//! it back. Then 32 tokio tasks read one block each, with all requests outstanding at the same time.
//!
//! ```console
//! $ cargo run --example tokio_disk -- iscsi://san1/iqn.2026-01.io.linerate:vm1/0 FILE
//! ```
//!
//! The program overwrites the LUN, starting at its first byte. docs/library.md explains the program.

use std::error::Error;
use std::process::ExitCode;

use block::{Buffer, Extent};
use blocking::{Lun, TokioLun};
use iscsi_client::Url;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::task::JoinSet;

type Anything = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, file] = arguments.as_slice() else {
        eprintln!("usage: tokio_disk URL FILE");
        return ExitCode::FAILURE;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build();
    let outcome = runtime
        .map_err(Anything::from)
        .and_then(|runtime| runtime.block_on(run(url, file)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tokio_disk: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(url: &str, file: &str) -> Result<(), Anything> {
    let content = std::fs::read(file)?;
    let lun = Lun::open(&Url::parse(url)?).await?;
    let mut disk = TokioLun::new(lun.clone());
    disk.write_all(&content).await?;
    disk.flush().await?; // the data is now on stable storage, if the target's report is true
    disk.rewind().await?;
    let mut back = vec![0; content.len()];
    disk.read_exact(&mut back).await?;
    if back != content {
        return Err("the read data differs from the written data".into());
    }
    println!("{} bytes were written and read back", content.len());
    println!("32 blocks have the sum {}", sum_of_blocks(&lun).await?);
    lun.close().await?;
    Ok(())
}

/// Starts one task for each block. Each task has a clone of the LUN, and awaits its request like any other
/// future.
async fn sum_of_blocks(lun: &Lun) -> Result<u64, Anything> {
    let mut tasks = JoinSet::new();
    for lba in 0..32 {
        let lun = lun.clone();
        let bytes = lun.geometry().block_size.bytes() as usize;
        tasks.spawn(async move { lun.read(Extent::new(lba, 1), Buffer::zeroed(bytes)).await });
    }
    let mut sum = 0;
    while let Some(block) = tasks.join_next().await {
        sum += block??.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    }
    Ok(sum)
}
