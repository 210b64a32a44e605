//! A memory device for tests. Each request takes a millisecond of virtual time. The device can simulate
//! faults.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use block::{BlockDevice, BlockSize, Buffer, DeviceError, Durability, Extent, Pending, Slice};
use testkit::TestDisk;

pub(crate) struct Disk {
    disk: TestDisk,
    fault: Fault,
    writes: AtomicU64,
    stable_writes: AtomicU64,
    flushes: AtomicU64,
    /// The time of the first request.
    begun: OnceLock<Instant>,
    /// With `Fault::IsOneByOne`, the time at which the device has completed all its requests.
    free: Mutex<Option<Instant>>,
}

#[derive(PartialEq)]
pub(crate) enum Fault {
    None,
    /// Each request starts only after the previous one has completed.
    IsOneByOne,
    /// Flushes have no effect, and FUA is ignored, but both report success.
    LiesAboutItsCache,
    /// Requests that start in the second second of the test complete after that second.
    StallsInItsSecondSecond,
    Hangs,
    Fails,
    LosesEveryTenthWrite,
    IsInstant,
}

impl Disk {
    pub(crate) const BLOCKS: u64 = 512;

    pub(crate) fn new() -> Disk {
        Disk::that(Fault::None)
    }

    pub(crate) fn that(fault: Fault) -> Disk {
        let disk = TestDisk::new(BlockSize::B512, Disk::BLOCKS).with_profile(|profile| {
            (profile.thin, profile.volatile_cache, profile.durable) = (false, false, false);
        });
        Disk {
            disk,
            fault,
            writes: AtomicU64::new(0),
            stable_writes: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            begun: OnceLock::new(),
            free: Mutex::new(None),
        }
    }

    pub(crate) fn read_only() -> Disk {
        let disk = Disk::new();
        Disk {
            disk: disk.disk.with_profile(|profile| profile.read_only = true),
            ..disk
        }
    }

    /// Returns the number of completed writes.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Relaxed)
    }

    /// Returns the number of writes with FUA.
    pub(crate) fn stable_writes(&self) -> u64 {
        self.stable_writes.load(Relaxed)
    }

    /// Returns the number of flushes.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(Relaxed)
    }

    /// Discards writes that are not on stable storage.
    pub(crate) fn crash(&self) {
        self.disk.lose_cache();
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
    block::forward!(self => self.disk; geometry, profile, allocation, losses, quiesced);

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            self.take_time().await?;
            self.disk.read(extent, buffer).await
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(async move {
            self.take_time().await?;
            let number = self.writes.fetch_add(1, Relaxed);
            self.stable_writes
                .fetch_add(u64::from(durability == Durability::Stable), Relaxed);
            match self.fault {
                Fault::LosesEveryTenthWrite if number % 10 == 9 => Ok(()),
                Fault::LiesAboutItsCache => self.disk.write(extent, data, Durability::Cached).await,
                _ => self.disk.write(extent, data, durability).await,
            }
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.flushes.fetch_add(1, Relaxed);
        match self.fault {
            Fault::LiesAboutItsCache => Box::pin(async { Ok(()) }),
            _ => self.disk.flush(),
        }
    }

    fn unmap(&self, _: Extent) -> Pending<'_, ()> {
        Box::pin(async { Err(DeviceError::Unsupported) })
    }

    fn write_zeroes(&self, extent: Extent, _: bool) -> Pending<'_, ()> {
        self.unmap(extent)
    }
}
