//! The initiator's end: a remote LUN, and as many tasks as the queue depth.

use std::sync::Arc;

use block::{BlockDevice, Buffer, Durability, Extent, Lba};
use iscsi_client::{RemoteLun, Url};

use crate::outside::{End, Outside};
use crate::target_end::NAME;
use crate::world::{self, ADDRESS};
use crate::{Anything, VOLUME_BYTES, Work};

/// Runs it on this thread.
pub(crate) fn run(work: Work, outside: &Arc<Outside>) -> Result<(), Anything> {
    outside.begin(End::Initiator);
    reactor::block_on(world::shared(End::Initiator, outside), work_on(work))
}

async fn work_on(work: Work) -> Result<(), Anything> {
    let digests = if work.digests { "?header-digest=crc32c&data-digest=crc32c" } else { "" };
    let url = Url::parse(&format!("iscsi://{ADDRESS}/{NAME}/0{digests}"))?;
    let lun = Arc::new(iscsi_client::open(&url, never_random).await?);
    // The additional cost of the first write to an offset is part of every run, and cancels out.
    let everything = Extent { lba: Lba(0), blocks: lun.geometry().blocks };
    let zeros = Buffer::zeroed(VOLUME_BYTES as usize).share();
    lun.write(everything, zeros, Durability::Cached).await?;
    let askers: Vec<_> =
        (0..work.depth).map(|number| reactor::spawn(ask(Arc::clone(&lun), work, number))).collect();
    for asker in askers {
        asker.await?;
    }
    Ok(())
}

/// Sends one command after the other, at scattered offsets.
async fn ask(lun: Arc<RemoteLun>, work: Work, number: u32) -> Result<(), Anything> {
    let geometry = lun.geometry();
    let blocks = u64::from(work.bytes >> geometry.block_size.shift());
    let places = geometry.blocks.0 / blocks;
    let mut buffer = Buffer::zeroed(work.bytes as usize);
    let data = Buffer::zeroed(work.bytes as usize).share();
    for turn in 0..u64::from(work.commands / work.depth) {
        let place = (turn * u64::from(work.depth) + u64::from(number)).wrapping_mul(SCATTER) % places;
        let extent = Extent::new(place * blocks, blocks);
        match work.write {
            true => lun.write(extent, data.clone(), Durability::Cached).await?,
            false => buffer = lun.read(extent, buffer).await?,
        }
    }
    Ok(())
}

/// A prime: its multiples reach every offset of a volume before any offset repeats.
const SCATTER: u64 = 1_000_003;

/// For identifiers that must exist but have no effect: a count must not be random.
pub(crate) fn never_random(bytes: &mut [u8]) {
    bytes.fill(0x5a);
}
