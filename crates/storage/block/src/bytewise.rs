//! Access to a device by bytes instead of blocks. Partially written blocks are read, modified and written
//! back, so the caller must not issue concurrent writes to the same block.

use std::ops::Range;

use crate::buffer::{Buffer, Slice};
use crate::device::{BlockDevice, DeviceError, Durability};
use crate::extent::Extent;

/// Reads the bytes of `range`.
///
/// # Errors
/// Returns the errors of the device.
pub async fn read(device: &dyn BlockDevice, range: Range<u64>) -> Result<Slice, DeviceError> {
    let geometry = device.geometry();
    let extent = covering(device, &range)?;
    let buffer = device
        .read(extent, Buffer::recycled(geometry.length(extent) as usize))
        .await?;
    let skipped = (range.start - geometry.offset(extent)) as usize;
    buffer
        .share()
        .part(skipped..skipped + length(&range))
        .ok_or(DeviceError::OutOfRange)
}

/// Writes `data` from the byte `at` on.
///
/// # Errors
/// Returns the errors of the device.
pub async fn write(device: &dyn BlockDevice, at: u64, data: Slice) -> Result<(), DeviceError> {
    let range = at..at
        .checked_add(data.len() as u64)
        .ok_or(DeviceError::OutOfRange)?;
    let extent = covering(device, &range)?;
    let whole = if is_exact(device, &range) {
        data
    } else {
        with_edges(device, extent, &range, &data).await?
    };
    device.write(extent, whole, Durability::Cached).await
}

/// Zeroes the bytes of `range`, deallocating them where possible.
///
/// # Errors
/// Returns the errors of the device.
pub async fn zero(device: &dyn BlockDevice, range: Range<u64>) -> Result<(), DeviceError> {
    let block = block_bytes(device);
    let inner = range.start.next_multiple_of(block)..range.end - range.end % block;
    if inner.is_empty() {
        return write_zeros(device, range).await;
    }
    write_zeros(device, range.start..inner.start).await?;
    device.write_zeroes(covering(device, &inner)?, true).await?;
    write_zeros(device, inner.end..range.end).await
}

/// Writes zeros to a range that is shorter than two blocks.
async fn write_zeros(device: &dyn BlockDevice, range: Range<u64>) -> Result<(), DeviceError> {
    if range.is_empty() {
        return Ok(());
    }
    write(device, range.start, Buffer::zeroed(length(&range)).share()).await
}

/// Returns the blocks that contain the bytes of `range`.
///
/// # Errors
/// Returns [`DeviceError::OutOfRange`] if `range` exceeds the device.
pub fn covering(device: &dyn BlockDevice, range: &Range<u64>) -> Result<Extent, DeviceError> {
    let geometry = device.geometry();
    if range.start > range.end || range.end > geometry.bytes() {
        return Err(DeviceError::OutOfRange);
    }
    let first = range.start >> geometry.block_size.shift();
    let end = range.end.div_ceil(block_bytes(device));
    debug_assert!(end <= geometry.blocks.0);
    Ok(Extent::new(first, end.saturating_sub(first)))
}

/// Returns new content for all blocks that contain bytes of `range`: `data`, and around it the content that
/// the first and the last block have on the device.
async fn with_edges(
    device: &dyn BlockDevice,
    extent: Extent,
    range: &Range<u64>,
    data: &Slice,
) -> Result<Slice, DeviceError> {
    let geometry = device.geometry();
    let block = block_bytes(device) as usize;
    let mut whole = Buffer::recycled(geometry.length(extent) as usize);
    debug_assert!(!extent.is_empty() && data.len() as u64 == range.end - range.start);
    let last = whole.len() - block;
    let start = (range.start - geometry.offset(extent)) as usize;
    let end = start + data.len();
    if start > 0 {
        let edge = device
            .read(Extent::new(extent.lba.0, 1), Buffer::recycled(block))
            .await?;
        whole[..block].copy_from_slice(&edge);
    }
    if end < whole.len() && (last > 0 || start == 0) {
        let edge = Extent::new(extent.lba.0 + extent.blocks.0 - 1, 1);
        let edge = device.read(edge, Buffer::recycled(block)).await?;
        whole[last..].copy_from_slice(&edge);
    }
    whole[start..end].copy_from_slice(data);
    Ok(whole.share())
}

fn is_exact(device: &dyn BlockDevice, range: &Range<u64>) -> bool {
    let block = block_bytes(device);
    range.start.is_multiple_of(block) && range.end.is_multiple_of(block)
}

fn block_bytes(device: &dyn BlockDevice) -> u64 {
    u64::from(device.geometry().block_size.bytes())
}

/// Returns the length of a range that is in memory.
fn length(range: &Range<u64>) -> usize {
    (range.end - range.start) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Memory, ready};

    const SIZE: u64 = 16 << 10;

    /// Returns the content of a device after `act`. Initially, all bytes are 0xee.
    fn after(act: impl AsyncFnOnce(&dyn BlockDevice) -> Result<(), DeviceError>) -> Vec<u8> {
        let device = Memory::new(SIZE / 512);
        ready(async {
            let full = Buffer::from(&[0xee; SIZE as usize][..]).share();
            write(&device, 0, full).await.expect("room");
            act(&device).await.expect("within the device");
            read(&device, 0..SIZE).await.expect("all of it").to_vec()
        })
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let device = Memory::new(SIZE / 512);
        let refused = |start, end| covering(&device, &(start..end)).expect_err("beyond the end");
        assert_eq!(refused(0, SIZE + 1), DeviceError::OutOfRange);
        assert_eq!(refused(u64::MAX, u64::MAX), DeviceError::OutOfRange);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn only_the_bytes_meant_change(start in 0..SIZE, length in 0..SIZE, zeros: bool) {
            let end = (start + length).min(SIZE);
            let mut expected = vec![0xee; SIZE as usize];
            expected[start as usize..end as usize].fill(if zeros { 0 } else { 7 });
            let found = after(async |device| {
                if zeros {
                    return zero(device, start..end).await;
                }
                write(device, start, Buffer::from(&vec![7; (end - start) as usize][..]).share()).await
            });
            prop_assert!(found == expected, "{start}..{end}");
        }
    }
}
