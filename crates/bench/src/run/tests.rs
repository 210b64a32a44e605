//! Scenes on a virtual clock: a device in memory whose every request takes a millisecond, and what can be wrong
//! with it.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use block::{Allocation, BlockSize, Blocks, DeviceError, Pending, Profile, Run};
use reactor::{Detached, ListenOptions, Listener, Park, SharedWorld, StreamOptions, Unpark, World, block_on};

use super::*;
use crate::Percent;
use crate::workload::tests::reads_of_4k;

#[test]
fn a_hung_device_ends_the_run_and_its_requests_count_as_errors() {
    let disk = Disk { fault: Fault::Hangs, ..Disk::new() };
    let measured = measure(disk, reads_of_4k());
    assert_eq!((measured.ios, measured.errors), (0, 4));
    assert_eq!(measured.first_failure, Some(Failure::Device(DeviceError::TimedOut)));
}

#[test]
fn a_device_that_only_fails_is_left_alone_before_the_time_is_over() {
    let disk = Disk { fault: Fault::Fails, ..Disk::new() };
    let measured = measure(disk, reads_of_4k());
    assert_eq!(measured.ios, 0);
    assert!((100..104).contains(&measured.errors), "{}", measured.errors);
}

#[test]
fn a_lost_write_is_found_by_the_generation_of_the_one_before_it() {
    let disk = Disk { fault: Fault::LosesEveryTenthWrite, ..Disk::new() };
    let measured = measure(disk, verified(50));
    assert!(measured.mismatches > 0);
    let failure = measured.first_failure.expect("there are mismatches");
    assert!(matches!(failure, Failure::WrongGeneration { .. } | Failure::NotOurs { .. }), "{failure}");
}

#[test]
fn a_sound_device_is_found_sound() {
    let measured = measure(Disk::new(), verified(50));
    assert_eq!((measured.errors, measured.mismatches, measured.first_failure), (0, 0, None));
    assert!(measured.reads > 1000 && measured.reads < measured.ios);
}

#[test]
fn a_read_only_device_takes_no_writes() {
    let disk = Disk { read_only: true, ..Disk::new() };
    let devices: [Arc<dyn BlockDevice>; 1] = [Arc::new(disk)];
    let refused = block_on(Virtual::world(), run(&devices, &verified(99)));
    assert_eq!(refused, Err(WorkloadError::ReadOnly));
}

#[test]
fn depth_requests_are_under_way_all_the_time() {
    // One millisecond each, four at a time, for one second. The virtual clock moves a little at every turn, too.
    let measured = measure(Disk::new(), reads_of_4k());
    assert!((3_800..=4_000).contains(&measured.ios), "{}", measured.ios);
    assert!((1_000.0..1_060.0).contains(&measured.latency_us.p50), "{:?}", measured.latency_us);
    assert_eq!(measured.seconds, 1.0);
}

#[test]
fn two_ways_to_the_same_data_are_measured_together_and_verified_together() {
    let disk: Arc<dyn BlockDevice> = Arc::new(Disk::new());
    let devices = [Arc::clone(&disk), disk];
    let measured = block_on(Virtual::world(), run(&devices, &verified(30))).expect("the workload fits");
    assert!((7_000..=8_000).contains(&measured.ios), "{}", measured.ios);
    assert_eq!(measured.mismatches, 0);
}

#[test]
fn a_device_that_never_waits_still_lets_every_slot_have_its_turn() {
    let disk = Disk { fault: Fault::IsInstant, ..Disk::new() };
    let measured = measure(disk, Workload { duration: Duration::from_millis(1), ..reads_of_4k() });
    assert!(measured.ios > 0);
}

fn verified(read: u8) -> Workload {
    Workload { read: Percent::new(read).expect("at most 100"), verify: true, ..reads_of_4k() }
}

fn measure(disk: Disk, workload: Workload) -> Measurement {
    let devices: [Arc<dyn BlockDevice>; 1] = [Arc::new(disk)];
    block_on(Virtual::world(), run(&devices, &workload)).expect("the workload fits")
}

struct Disk {
    bytes: Mutex<Vec<u8>>,
    fault: Fault,
    read_only: bool,
    writes: AtomicU64,
}

#[derive(PartialEq)]
enum Fault {
    None,
    Hangs,
    Fails,
    LosesEveryTenthWrite,
    IsInstant,
}

impl Disk {
    const BLOCKS: u64 = 512;

    fn new() -> Disk {
        let bytes = Mutex::new(vec![0; Disk::BLOCKS as usize * 512]);
        Disk { bytes, fault: Fault::None, read_only: false, writes: AtomicU64::new(0) }
    }

    fn range(&self, extent: Extent) -> std::ops::Range<usize> {
        let start = self.geometry().offset(extent) as usize;
        start..start + self.geometry().length(extent) as usize
    }

    async fn take_time(&self) -> Result<(), DeviceError> {
        match self.fault {
            Fault::Hangs => std::future::pending().await,
            Fault::Fails => Err(DeviceError::NotReady),
            Fault::IsInstant => Ok(()),
            Fault::None | Fault::LosesEveryTenthWrite => {
                reactor::sleep(Duration::from_millis(1)).await;
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
        }
    }

    fn read(&self, extent: Extent, mut buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            self.take_time().await?;
            buffer.copy_from_slice(&self.bytes.lock().expect("no panic")[self.range(extent)]);
            Ok(buffer)
        })
    }

    fn write(&self, extent: Extent, data: Slice, _: Durability) -> Pending<'_, ()> {
        Box::pin(async move {
            self.take_time().await?;
            let number = self.writes.fetch_add(1, Relaxed);
            if self.fault != Fault::LosesEveryTenthWrite || number % 10 != 9 {
                self.bytes.lock().expect("no panic")[self.range(extent)].copy_from_slice(&data);
            }
            Ok(())
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
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
}

/// A world where only time passes: a microsecond a turn, or straight to the next timer.
struct Virtual(Cell<Instant>);

impl Virtual {
    fn world() -> SharedWorld {
        Rc::new(Virtual(Cell::new(Instant::now())))
    }
}

struct NeverAsleep;

impl Unpark for NeverAsleep {
    fn unpark(&self) {}
}

impl World for Virtual {
    fn now(&self) -> Instant {
        self.0.get()
    }

    fn listen(&self, _: SocketAddr, _: &ListenOptions) -> io::Result<Box<dyn Listener>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn connect(&self, _: SocketAddr, _: &StreamOptions) -> io::Result<Box<dyn reactor::Stream>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn adopt(&self, _: Detached) -> io::Result<Box<dyn reactor::Stream>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn turn(&self, park: Park) {
        let time = match park {
            Park::For(time) => time,
            Park::No | Park::Forever => Duration::from_micros(1),
        };
        self.0.set(self.0.get() + time);
    }

    fn unpark(&self) -> Arc<dyn Unpark> {
        Arc::new(NeverAsleep)
    }
}
