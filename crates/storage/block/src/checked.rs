//! Checks a device under test: reads must return the last written data, and each request must complete as the
//! interface specifies. A violation causes a panic with the block's address.
//!
//! For every block that was written or read, the model keeps checksums of the possible contents. There are
//! several possible contents while changes of a block are outstanding, and after changes that overlapped,
//! failed or were dropped. The next read without a concurrent change determines the content, which must then
//! stay the same. A dropped change may still reach the medium, so it counts as outstanding until
//! [`BlockDevice::quiesced`] has resolved.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::buffer::{Buffer, Slice};
use crate::device::{BlockDevice, DeviceError, Durability, Pending, Run};
use crate::extent::Extent;
use crate::forward;
use crate::lock::Lock;

/// Any device, checked against a model of its contents. It does not expose its memory, so that every access
/// is checked.
pub struct Checked<D> {
    inner: D,
    model: Lock<Model>,
}

impl<D: BlockDevice> Checked<D> {
    /// Checks `inner` from now on. The current content of a block is recorded when the block is first read.
    pub fn new(inner: D) -> Checked<D> {
        Checked {
            inner,
            model: Lock::default(),
        }
    }

    /// Returns the inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the number of outstanding requests: 0 once all have ended or were dropped.
    pub fn open(&self) -> u64 {
        let model = self.model.lock();
        model.begun - model.ended - model.dropped
    }

    /// Returns the number of requests that have ended.
    pub fn ended(&self) -> u64 {
        self.model.lock().ended
    }

    /// Checks one request: it must end once or be dropped, and must fail with OutOfRange if and only if it is
    /// not `legal`.
    async fn watch<T>(
        &self,
        extent: Extent,
        legal: bool,
        request: Pending<'_, T>,
    ) -> Result<T, DeviceError> {
        self.model.lock().begun += 1;
        let mut open = Open {
            model: &self.model,
            ended: false,
        };
        let result = request.await;
        open.ended = true;
        match &result {
            Ok(_) => assert!(
                legal,
                "{extent} does not fit the device or the buffer, and succeeded"
            ),
            Err(DeviceError::OutOfRange) => {
                assert!(!legal, "{extent} fits the device, and was refused")
            }
            Err(_) => {}
        }
        result
    }

    /// Checks a request that writes blocks with the given checksums.
    async fn change(
        &self,
        extent: Extent,
        sums: Vec<u64>,
        request: Pending<'_, ()>,
    ) -> Result<(), DeviceError> {
        let legal = self.geometry().contains(extent) && sums.len() as u64 == extent.blocks.0;
        if !legal {
            return self.watch(extent, false, request).await;
        }
        let change = Change { extent, sums };
        self.model.lock().begin(&change);
        let mut under_way = UnderWay {
            model: &self.model,
            change: Some(change),
        };
        let result = self.watch(extent, true, request).await;
        if let Some(change) = under_way.change.take() {
            self.model.lock().end(&change, result.is_ok());
        }
        result
    }

    /// Returns the checksums of zeroed blocks. If it is not `certain` that the blocks are zeroed, as with
    /// unmap on a device that is not thin, returns [`ANYTHING`].
    fn zeros(&self, extent: Extent, certain: bool) -> Vec<u64> {
        let geometry = self.geometry();
        if !geometry.contains(extent) {
            return Vec::new();
        }
        let block = vec![0; geometry.block_size.bytes() as usize];
        let sum = if certain { checksum(&block) } else { ANYTHING };
        vec![sum; extent.blocks.0 as usize]
    }

    fn sums(&self, data: &[u8]) -> Vec<u64> {
        data.chunks(self.geometry().block_size.bytes() as usize)
            .map(checksum)
            .collect()
    }
}

struct Open<'a> {
    model: &'a Lock<Model>,
    ended: bool,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut model = self.model.lock();
        let counter = if self.ended {
            &mut model.ended
        } else {
            &mut model.dropped
        };
        *counter += 1;
    }
}

/// The new content of the blocks of a request.
struct Change {
    extent: Extent,
    sums: Vec<u64>,
}

impl Change {
    fn blocks(&self) -> impl Iterator<Item = (u64, u64)> {
        (self.extent.lba.0..).zip(self.sums.iter().copied())
    }
}

/// An outstanding change whose future has not been dropped.
struct UnderWay<'a> {
    model: &'a Lock<Model>,
    change: Option<Change>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(change) = self.change.take() {
            self.model.lock().loose.push(change);
        }
    }
}

#[derive(Default)]
struct Model {
    blocks: HashMap<u64, Block>,
    /// Counts the starts and ends of changes.
    clock: u64,
    /// Dropped changes that may still be outstanding at the device.
    loose: Vec<Change>,
    begun: u64,
    ended: u64,
    dropped: u64,
}

struct Block {
    /// Checksums of the possible contents.
    may_be: Vec<u64>,
    /// Number of outstanding changes.
    changing: usize,
    /// Whether some of the outstanding changes were concurrent, so that their order is unknown.
    overlapped: bool,
    /// Value of the clock when a change last started or ended.
    touched: u64,
}

/// Represents unknown content instead of a checksum.
const ANYTHING: u64 = u64::MAX;

fn checksum(block: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    block.hash(&mut hasher);
    hasher.finish().min(ANYTHING - 1)
}

impl Model {
    fn block(&mut self, lba: u64) -> &mut Block {
        let unknown = || Block {
            may_be: vec![ANYTHING],
            changing: 0,
            overlapped: false,
            touched: 0,
        };
        self.blocks.entry(lba).or_insert_with(unknown)
    }

    fn begin(&mut self, change: &Change) {
        self.clock += 1;
        let now = self.clock;
        for (lba, sum) in change.blocks() {
            let block = self.block(lba);
            block.overlapped |= block.changing > 0;
            block.changing += 1;
            block.touched = now;
            block.may_be.push(sum);
        }
    }

    fn end(&mut self, change: &Change, succeeded: bool) {
        self.clock += 1;
        let now = self.clock;
        for (lba, sum) in change.blocks() {
            let block = self.block(lba);
            block.changing -= 1;
            block.touched = now;
            if succeeded && !block.overlapped {
                block.may_be = vec![sum];
            }
            block.overlapped &= block.changing > 0;
        }
    }

    /// Checks a read that started at `since`. Blocks that changed during the read are not checked.
    fn compare(&mut self, extent: Extent, sums: &[u64], since: u64) {
        for (lba, &found) in (extent.lba.0..).zip(sums) {
            let block = self.block(lba);
            if block.changing > 0 || block.touched > since {
                continue;
            }
            let possible = block
                .may_be
                .iter()
                .any(|&may| may == found || may == ANYTHING);
            assert!(possible, "block {lba} does not read as it was last written");
            block.may_be = vec![found];
        }
    }
}

impl<D: BlockDevice> BlockDevice for Checked<D> {
    forward!(self => self.inner; geometry, profile, losses, space, allocated_bytes, refresh, grow, take_os_error);

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            let (geometry, length) = (self.geometry(), buffer.len());
            let legal = geometry.contains(extent) && geometry.length(extent) == length as u64;
            let since = self.model.lock().clock;
            let data = self
                .watch(extent, legal, self.inner.read(extent, buffer))
                .await?;
            assert_eq!(data.len(), length, "the buffer of a read keeps its length");
            let sums = self.sums(&data);
            self.model.lock().compare(extent, &sums, since);
            Ok(data)
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(async move {
            let whole = data.len() as u64 == extent.blocks.0 << self.geometry().block_size.shift();
            let sums = if whole { self.sums(&data) } else { Vec::new() };
            self.change(extent, sums, self.inner.write(extent, data, durability))
                .await
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(self.watch(Extent::new(0, 0), true, self.inner.flush()))
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(async move {
            let sums = self.zeros(extent, self.profile().thin);
            self.change(extent, sums, self.inner.unmap(extent)).await
        })
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(async move {
            let sums = self.zeros(extent, true);
            self.change(extent, sums, self.inner.write_zeroes(extent, may_unmap))
                .await
        })
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            let legal = self.geometry().contains(extent);
            let runs = self
                .watch(extent, legal, self.inner.allocation(extent, runs_max))
                .await?;
            assert!(
                runs.len() <= runs_max.max(1),
                "{} runs, more than the requested {runs_max}",
                runs.len()
            );
            let mut at = extent.lba;
            for run in &runs {
                assert_eq!(run.extent.lba, at, "runs follow each other without gaps");
                assert!(!run.extent.is_empty(), "a run has blocks");
                at = run.extent.end().unwrap_or(at);
            }
            assert!(Some(at) <= extent.end(), "runs stay within the extent");
            assert!(extent.is_empty() || !runs.is_empty(), "at least one run");
            Ok(runs)
        })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let loose = std::mem::take(&mut self.model.lock().loose);
            self.inner.quiesced().await?;
            let mut model = self.model.lock();
            loose.iter().for_each(|change| model.end(change, false));
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Fault, FaultControl};
    use crate::testing::{ManualClock, Memory, poll, ready};
    use std::sync::Arc;

    fn filled(byte: u8) -> Slice {
        Buffer::from(&[byte; 512][..]).share()
    }

    fn first() -> Extent {
        Extent::new(0, 1)
    }

    fn read<D: BlockDevice>(device: &Checked<D>) -> u8 {
        ready(device.read(first(), Buffer::zeroed(512))).expect("readable")[0]
    }

    #[test]
    fn an_honest_device_passes() {
        let device = Checked::new(Memory::new(64));
        ready(device.write(first(), filled(1), Durability::Stable)).expect("written");
        ready(device.write(first(), filled(2), Durability::Cached)).expect("written");
        assert_eq!(read(&device), 2);
        ready(device.unmap(first())).expect("unmapped");
        assert_eq!(read(&device), 0);
        assert_eq!(
            ready(device.read(Extent::new(63, 2), Buffer::zeroed(1024))).err(),
            Some(DeviceError::OutOfRange)
        );
        ready(device.allocation(Extent::new(3, 5), 1)).expect("runs");
        assert_eq!((device.open(), device.ended()), (0, 7));
    }

    #[test]
    #[should_panic(expected = "block 0 does not read as it was last written")]
    fn a_device_that_changes_a_byte_is_found_out() {
        let device = Checked::new(Memory::new(64));
        ready(device.write(first(), filled(1), Durability::Stable)).expect("written");
        device.inner().corrupt(17);
        read(&device);
    }

    #[test]
    #[should_panic(expected = "block 0 does not read as it was last written")]
    fn a_device_that_does_not_keep_what_it_showed_is_found_out() {
        let device = Checked::new(Memory::new(64));
        read(&device);
        device.inner().corrupt(17);
        read(&device);
    }

    fn hanging() -> (Checked<Fault<Memory>>, FaultControl) {
        let control = FaultControl::default();
        let clock = Arc::new(ManualClock::default());
        (
            Checked::new(Fault::new(Memory::new(64), clock, control.clone())),
            control,
        )
    }

    #[test]
    fn a_dropped_write_may_or_may_not_have_happened() {
        let (device, control) = hanging();
        ready(device.write(first(), filled(1), Durability::Cached)).expect("written");
        control.hang();
        let mut write = device.write(first(), filled(2), Durability::Cached);
        assert!(poll(write.as_mut()).is_none());
        assert_eq!(device.open(), 1);
        drop(write);
        control.pass();
        ready(device.quiesced()).expect("fenced");
        assert_eq!((read(&device), device.open()), (1, 0));
    }

    #[test]
    fn of_overlapping_writes_either_may_stay() {
        let (device, control) = hanging();
        control.hang();
        let mut early = device.write(first(), filled(1), Durability::Cached);
        assert!(poll(early.as_mut()).is_none());
        let mut late = device.write(first(), filled(2), Durability::Cached);
        assert!(poll(late.as_mut()).is_none());
        control.pass();
        assert!(poll(late.as_mut()).is_some() && poll(early.as_mut()).is_some());
        assert_eq!(read(&device), 1);
    }
}
