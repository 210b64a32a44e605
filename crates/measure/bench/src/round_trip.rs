//! Writes an extent once, and reads all of it back.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use block::{BlockDevice, Blocks, Buffer, Durability, Extent};

use crate::{Failure, pattern};

/// Parameters of a round trip.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    /// The extent, which must lie on the device.
    pub extent: Extent,
    /// The length of each request; the last one may be shorter. At least one block.
    pub request: Blocks,
    /// The queue depth.
    pub depth: u32,
    /// The generation of the written blocks. It must differ from the generation of the blocks' previous
    /// content.
    pub generation: u64,
}

/// Fills the extent of `device` with [`pattern`]s, then reads all of it and checks every block. Returns the
/// first failure of either pass.
///
/// Both passes run on the reactor of this thread.
pub async fn round_trip(device: &Arc<dyn BlockDevice>, trip: RoundTrip) -> Result<(), Failure> {
    pass(device, trip, Direction::Write).await?;
    pass(device, trip, Direction::Read).await
}

/// Reads the whole extent and checks that every block has the content that [`round_trip`] wrote. Use it over
/// another path to the same data.
pub async fn read_back(device: &Arc<dyn BlockDevice>, trip: RoundTrip) -> Result<(), Failure> {
    pass(device, trip, Direction::Read).await
}

#[derive(Clone, Copy)]
enum Direction {
    Write,
    Read,
}

async fn pass(
    device: &Arc<dyn BlockDevice>,
    trip: RoundTrip,
    direction: Direction,
) -> Result<(), Failure> {
    let done = Rc::new(Cell::new(Blocks(0)));
    let slots: Vec<_> = (0..trip.depth.max(1))
        .map(|_| reactor::spawn(slot(Arc::clone(device), trip, direction, Rc::clone(&done))))
        .collect();
    let mut outcome = Ok(());
    for slot in slots {
        // Wait for all slots, so that no request is outstanding afterwards.
        outcome = outcome.and(slot.await);
    }
    outcome
}

async fn slot(
    device: Arc<dyn BlockDevice>,
    trip: RoundTrip,
    direction: Direction,
    done: Rc<Cell<Blocks>>,
) -> Result<(), Failure> {
    while let Some(piece) = take(&trip, &done) {
        match direction {
            Direction::Write => write(&*device, piece, trip.generation).await?,
            Direction::Read => read(&*device, piece, trip.generation).await?,
        }
    }
    Ok(())
}

/// Takes the next part of the extent that no slot has taken.
fn take(trip: &RoundTrip, done: &Cell<Blocks>) -> Option<Extent> {
    let before = done.get().0;
    let left = trip
        .extent
        .blocks
        .0
        .checked_sub(before)
        .filter(|left| *left > 0)?;
    let blocks = trip.request.0.max(1).min(left);
    done.set(Blocks(before + blocks));
    Some(Extent::new(trip.extent.lba.0 + before, blocks))
}

async fn write(device: &dyn BlockDevice, piece: Extent, generation: u64) -> Result<(), Failure> {
    let geometry = device.geometry();
    let mut data = Buffer::recycled(geometry.length(piece) as usize);
    pattern::stamp(
        &mut data,
        piece.lba,
        geometry.block_size.bytes() as usize,
        generation,
    );
    device
        .write(piece, data.share(), Durability::Cached)
        .await
        .map_err(Failure::Device)
}

async fn read(device: &dyn BlockDevice, piece: Extent, generation: u64) -> Result<(), Failure> {
    let geometry = device.geometry();
    let buffer = Buffer::recycled(geometry.length(piece) as usize);
    let data = device.read(piece, buffer).await.map_err(Failure::Device)?;
    pattern::check(
        &data,
        piece.lba,
        geometry.block_size.bytes() as usize,
        generation,
    )
}

#[cfg(test)]
mod tests {
    use block::{DeviceError, Lba};
    use reactor::{Alone, block_on};

    use super::*;
    use crate::test_disk::{Disk, Fault};

    fn trip(disk: Disk, trip: RoundTrip) -> Result<(), Failure> {
        let device: Arc<dyn BlockDevice> = Arc::new(disk);
        block_on(Alone::virtual_time(), async move {
            round_trip(&device, trip).await
        })
    }

    const ALL: RoundTrip = RoundTrip {
        extent: Extent {
            lba: Lba(0),
            blocks: Blocks(Disk::BLOCKS),
        },
        request: Blocks(7),
        depth: 4,
        generation: 9,
    };

    #[test]
    fn a_lost_write_is_found() {
        let failed = trip(Disk::that(Fault::LosesEveryTenthWrite), ALL);
        assert!(matches!(failed, Err(Failure::NotOurs { .. })), "{failed:?}");
    }

    #[test]
    fn an_error_of_the_device_is_told() {
        let failed = trip(Disk::that(Fault::Fails), ALL);
        assert_eq!(failed, Err(Failure::Device(DeviceError::NotReady)));
    }

    #[test]
    fn every_block_of_a_sound_device_comes_back() {
        assert_eq!(trip(Disk::new(), ALL), Ok(()));
        assert_eq!(
            trip(
                Disk::new(),
                RoundTrip {
                    request: Blocks(1000),
                    depth: 1,
                    ..ALL
                }
            ),
            Ok(())
        );
    }
}
