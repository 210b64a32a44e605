//! Data and holes of a file: lseek(2) with SEEK_DATA and SEEK_HOLE.

use std::fs::File;
use std::io;

use block::{Allocation, Extent, Geometry, Run};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// The runs at the start of `extent`, which is not empty. What is not `sparse` takes space everywhere; a file
/// system without holes reports so itself (lseek(2)). Moves the file's position, which is not used otherwise.
pub(super) fn runs(
    file: &File,
    geometry: Geometry,
    sparse: bool,
    extent: Extent,
    runs_max: usize,
) -> io::Result<Vec<Run>> {
    if !sparse {
        return Ok(vec![Run { extent, allocation: Allocation::Mapped }]);
    }
    let (start, end) = (extent.lba.0, extent.lba.0 + extent.blocks.0);
    let mut runs: Vec<Run> = Vec::new();
    let mut at = start;
    while at < end && runs.len() < runs_max.max(1) {
        let (blocks, allocation) = next(file, geometry, at, end)?;
        match runs.last_mut().filter(|last| last.allocation == allocation) {
            Some(last) => last.extent.blocks.0 += blocks,
            None => runs.push(Run { extent: Extent::new(at, blocks), allocation }),
        }
        at += blocks;
    }
    Ok(runs)
}

/// How many blocks from `at` on are of one kind. A block with any data in it is mapped.
fn next(file: &File, geometry: Geometry, at: u64, end: u64) -> io::Result<(u64, Allocation)> {
    let shift = geometry.block_size.shift();
    let data = found(seek(file, SeekFrom::Data(at << shift)), end << shift)? >> shift;
    if data > at {
        return Ok((data.min(end) - at, Allocation::Deallocated));
    }
    let hole = found(seek(file, SeekFrom::Hole(at << shift)), end << shift)?;
    let hole = hole.div_ceil(u64::from(geometry.block_size.bytes()));
    Ok((hole.clamp(at + 1, end) - at, Allocation::Mapped))
}

/// ENXIO: none up to the end of the file.
fn found(sought: Result<u64, Errno>, none: u64) -> io::Result<u64> {
    match sought {
        Err(Errno::NXIO) => Ok(none),
        sought => Ok(sought?),
    }
}
