//! For tests: a device in memory whose every request takes a millisecond of a virtual clock, and what can be
//! wrong with it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry, Pending,
    Profile, Run, Slice,
};

pub(crate) struct Disk {
    bytes: Mutex<Vec<u8>>,
    fault: Fault,
    read_only: bool,
    writes: AtomicU64,
    /// What a crash leaves, where writes go to a cache.
    medium: Mutex<Vec<u8>>,
    /// When it was asked first.
    begun: OnceLock<Instant>,
    /// When one that takes requests one by one has done all that it has.
    free: Mutex<Option<Instant>>,
}

#[derive(PartialEq)]
pub(crate) enum Fault {
    None,
    /// No request begins before the one before it has ended.
    IsOneByOne,
    /// Flushing and stable writes do nothing, and say that they have.
    LiesAboutItsCache,
    /// What it is asked in its second second ends after it.
    StallsInItsSecondSecond,
    Hangs,
    Fails,
    LosesEveryTenthWrite,
    IsInstant,
}

impl Disk {
    pub(crate) const BLOCKS: u64 = 512;

    pub(crate) fn new() -> Disk {
        let bytes = Mutex::new(vec![0; Disk::BLOCKS as usize * 512]);
        Disk {
            medium: Mutex::new(vec![0; Disk::BLOCKS as usize * 512]),
            bytes,
            fault: Fault::None,
            read_only: false,
            writes: AtomicU64::new(0),
            begun: OnceLock::new(),
            free: Mutex::new(None),
        }
    }

    pub(crate) fn that(fault: Fault) -> Disk {
        Disk { fault, ..Disk::new() }
    }

    pub(crate) fn read_only() -> Disk {
        Disk { read_only: true, ..Disk::new() }
    }

    /// Writes that have ended.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Relaxed)
    }

    /// Forgets what it has not brought to its medium.
    pub(crate) fn crash(&self) {
        self.bytes.lock().expect("no panic").clone_from(&self.medium.lock().expect("no panic"));
    }

    /// Brings a part to the medium.
    fn keep(&self, range: Range<usize>) {
        if self.fault != Fault::LiesAboutItsCache {
            let bytes = self.bytes.lock().expect("no panic");
            self.medium.lock().expect("no panic")[range.clone()].copy_from_slice(&bytes[range]);
        }
    }

    fn range(&self, extent: Extent) -> Range<usize> {
        let start = self.geometry().offset(extent) as usize;
        start..start + self.geometry().length(extent) as usize
    }

    async fn take_time(&self) -> Result<(), DeviceError> {
        let (now, time) = (reactor::now(), Duration::from_millis(1));
        let begun = *self.begun.get_or_init(|| now);
        match self.fault {
            Fault::IsOneByOne => {
                let done = {
                    let mut free = self.free.lock().expect("no panic");
                    let begins = free.unwrap_or(now).max(now);
                    *free.insert(begins + time)
                };
                reactor::sleep_until(done).await;
                Ok(())
            }
            Fault::StallsInItsSecondSecond => {
                let again = begun + Duration::from_secs(2);
                let stalls = (now - begun).as_secs() == 1;
                reactor::sleep_until(if stalls { again } else { now } + time).await;
                Ok(())
            }
            Fault::Hangs => std::future::pending().await,
            Fault::Fails => Err(DeviceError::NotReady),
            Fault::IsInstant => Ok(()),
            Fault::None | Fault::LosesEveryTenthWrite | Fault::LiesAboutItsCache => {
                reactor::sleep(time).await;
                Ok(())
            }
        }
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        Geometry { block_size: BlockSize::B512, blocks: Blocks(Disk::BLOCKS), physical_exponent: 0 }
    }

    fn profile(&self) -> Profile {
        Profile {
            read_only: self.read_only,
            thin: false,
            granularity: Blocks(1),
            volatile_cache: false,
            durable: false,
            solid_state: true,
            optimal_transfer: None,
            loses_unseen: false,
        }
    }

    fn read(&self, extent: Extent, mut buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            self.take_time().await?;
            buffer.copy_from_slice(&self.bytes.lock().expect("no panic")[self.range(extent)]);
            Ok(buffer)
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(async move {
            self.take_time().await?;
            let number = self.writes.fetch_add(1, Relaxed);
            if self.fault != Fault::LosesEveryTenthWrite || number % 10 != 9 {
                self.bytes.lock().expect("no panic")[self.range(extent)].copy_from_slice(&data);
            }
            if durability == Durability::Stable {
                self.keep(self.range(extent));
            }
            Ok(())
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.keep(0..Disk::BLOCKS as usize * 512);
            Ok(())
        })
    }

    fn unmap(&self, _: Extent) -> Pending<'_, ()> {
        Box::pin(async { Err(DeviceError::Unsupported) })
    }

    fn write_zeroes(&self, _: Extent, _: bool) -> Pending<'_, ()> {
        Box::pin(async { Err(DeviceError::Unsupported) })
    }

    fn allocation(&self, extent: Extent, _: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move { Ok(vec![Run { extent, allocation: Allocation::Mapped }]) })
    }

    fn losses(&self) -> block::Losses {
        block::Losses::NONE
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}
