//! Whether data lies in the part that is cut off a volume.

use block::{Allocation, BlockDevice, Blocks, Buffer, DeviceError, Extent, Lba};
use volume::spec::Bytes;

use crate::config::VolumeName;
use backends::Failure;

/// Refuses to cut a volume to `bytes` if data lies behind. A file system of a known length that ends before it was made smaller
/// first: what it has left behind is no data.
///
/// # Errors
/// There is data, or the device fails.
pub(crate) async fn check(name: &VolumeName, device: &dyn BlockDevice, bytes: Bytes) -> Result<(), Failure> {
    let failed = |error| Failure::device(format_args!("volume {name} cannot be looked at"), error);
    let refused = |why: String| {
        Failure::refused(format!(
            "volume {name} is not cut to {bytes}: {why}; shrink its file system or partitions first, or add --discard-data"
        ))
    };
    let system = contents::file_system_bytes(device).await.map_err(failed)?;
    match system {
        Some(length) if length > bytes.0 => {
            return Err(refused(format!("its file system has {length} bytes")));
        }
        Some(_) => return Ok(()),
        None => {}
    }
    match first_data(device, bytes.0).await.map_err(failed)? {
        None => Ok(()),
        Some(at) => {
            let found = contents::contents(device).await.map_err(failed)?;
            let found = found.map_or_else(String::new, |found| format!(", and it has {found}"));
            Err(refused(format!("data lies behind it, from byte {at} on{found}")))
        }
    }
}

/// Where the first block lies that is not all zeros, from this byte on.
async fn first_data(device: &dyn BlockDevice, from: u64) -> Result<Option<u64>, DeviceError> {
    const STEP_BYTES: u64 = 1 << 20;
    const RUNS: usize = 64;
    let geometry = device.geometry();
    let step = Blocks((STEP_BYTES >> geometry.block_size.shift()).max(1));
    let mut at = from >> geometry.block_size.shift();
    while at < geometry.blocks.0 {
        let rest = Extent { lba: Lba(at), blocks: Blocks(geometry.blocks.0 - at) };
        for run in device.allocation(rest, RUNS).await? {
            let end = run.extent.lba.0 + run.extent.blocks.0;
            while run.allocation == Allocation::Mapped && at < end {
                let piece = Extent { lba: Lba(at), blocks: Blocks(step.0.min(end - at)) };
                let data = device.read(piece, Buffer::recycled(geometry.length(piece) as usize)).await?;
                if let Some(byte) = data.iter().position(|byte| *byte != 0) {
                    return Ok(Some(geometry.offset(piece) + byte as u64));
                }
                at += piece.blocks.0;
            }
            at = end;
        }
    }
    Ok(None)
}
