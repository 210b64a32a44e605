//! Linerate's initiator with other targets: the same scenes with Linerate's server, with tgt and with istgt.
//!
//! [`san`] starts a target of either make with the same [`Disk`]s behind it. A scene declares what it
//! [`Needs`] from a target, and runs with every make that supports it. Unsupported features of a make are in
//! one table, [`obstacle`], and are printed with the reason.

mod accounts;
mod attach;
mod commands;
mod copies;
mod diagnose;
mod import;
mod istgt;
mod load;
mod neighbours;
mod outages;
mod san;
mod shapes;
mod statistics;
mod terms;
mod tgt;
mod verbs;
mod ways;

use block::{BlockDevice, Buffer, Durability, Extent, Lba, Slice};
use iscsi_client::{OpenError, RemoteLun, Url};

use crate::program::PATIENCE;
use crate::recorder;
use crate::remote::{in_a_world, random};
use san::{Disk, San};

/// The make of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Make {
    Linerate,
    Tgt,
    Istgt,
}

const MAKES: [Make; 3] = [Make::Linerate, Make::Tgt, Make::Istgt];

/// A requirement of a scene that not all targets meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// The scene has no special requirement.
    Nothing,
    /// A second connection in a session.
    Connections,
    /// CHAP with another hash than MD5.
    StrongHash,
    /// InitialR2T=No.
    UnsolicitedData,
    /// Sense data with every CHECK CONDITION.
    Sense,
    /// Logging out one connection over another (RFC 7143 section 11.14).
    LogoutOfAnother,
    /// A disk that grows while in use.
    Growth,
    /// A LUN that is added while the target is in use.
    NewLun,
    /// A response to a READ that neither transfers data nor reports any (R=0).
    ReadWithoutData,
    /// GET LBA STATUS.
    LbaStatus,
}

/// The reason why a make does not support a feature: the observation that proves this.
fn obstacle(make: Make, needs: Needs) -> Option<&'static str> {
    use Make::*;
    use Needs::*;
    Some(match (make, needs) {
        (Tgt, Connections) => "tgt 1.0.85 answers MaxConnections=1, whatever is offered",
        (Tgt, StrongHash) => "tgt 1.0.85 knows MD5, and SHA-1 by the number that became SHA-256's",
        (Istgt, StrongHash) => "istgt 20111008 knows MD5 alone",
        (Istgt, UnsolicitedData) => "istgt 20111008 refuses a configuration with InitialR2T No",
        (Istgt, Sense) => "istgt 20111008 has none for LBA OUT OF RANGE and WRITE PROTECTED",
        (Tgt, LogoutOfAnother) => "tgt 1.0.85 has one connection",
        (Istgt, LogoutOfAnother) => {
            "istgt 20111008 closes the connection that asks, without an answer, so that the session must begin again"
        }
        (Tgt, Growth) => "tgt 1.0.85 looks at a file's size once",
        (Istgt, Growth) => {
            "istgt 20111008 has the size from its configuration, which it reads once"
        }
        (Linerate, NewLun) => "linerate reads its configuration once",
        (Istgt, NewLun) => "istgt 20111008 reads its configuration once",
        (Istgt, ReadWithoutData) => "istgt 20111008 never answers it",
        (Istgt, LbaStatus) => "istgt 20111008 has no GET LBA STATUS",
        _ => return None,
    })
}

/// Runs a scene, in its own runtime environment, with every make of target that is installed here and meets
/// the scene's needs.
fn with_each(needs: Needs, mut scene: impl AsyncFnMut(&San)) {
    for_each(needs, |san| {
        in_a_world(async { reactor::timeout(PATIENCE, scene(san)).await })
            .expect("an end of the scene");
    });
}

/// Like [`with_each`], for scenes with more than one thread.
fn for_each(needs: Needs, mut scene: impl FnMut(&mut San)) {
    for make in MAKES {
        if can(make, needs)
            && let Some(mut san) = San::start(make)
        {
            eprintln!("with {make:?}:"); // the following output is about this one
            scene(&mut san);
        }
    }
}

/// Whether a make meets the needs; prints the reason if not.
fn can(make: Make, needs: Needs) -> bool {
    let obstacle = obstacle(make, needs);
    if let Some(why) = obstacle {
        eprintln!("not with {make:?}: {why}");
    }
    obstacle.is_none()
}

/// Logs in to a disk's target and queries the disk.
async fn try_open(url: &str) -> Result<RemoteLun, OpenError> {
    let url = Url::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    recorder::keep(&url.settings);
    iscsi_client::open(&url, random).await
}

async fn open(url: &str) -> RemoteLun {
    try_open(url)
        .await
        .unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Blocks that contain their address and the generation of the write.
fn stamped(lun: &RemoteLun, lba: u64, blocks: u64, generation: u64) -> Slice {
    let block_bytes = lun.geometry().block_size.bytes() as usize;
    let mut data = Buffer::zeroed(blocks as usize * block_bytes);
    bench::pattern::stamp(&mut data, Lba(lba), block_bytes, generation);
    data.share()
}

/// Writes blocks and reads them back.
async fn round_trip(lun: &RemoteLun, lba: u64, blocks: u64, generation: u64) {
    let extent = Extent::new(lba, blocks);
    let data = stamped(lun, lba, blocks, generation);
    lun.write(extent, data, Durability::Cached)
        .await
        .unwrap_or_else(|why| panic!("write {extent:?}: {why}"));
    let length = lun.geometry().length(extent) as usize;
    let read = lun.read(extent, Buffer::recycled(length)).await;
    let read = read.unwrap_or_else(|why| panic!("read {extent:?}: {why}"));
    let block_bytes = lun.geometry().block_size.bytes() as usize;
    bench::pattern::check(&read, Lba(lba), block_bytes, generation)
        .unwrap_or_else(|why| panic!("{extent:?}: {why}"));
}
