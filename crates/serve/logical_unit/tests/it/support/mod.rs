//! A test bench for a logical unit: a RAM device, one or two nexuses, and helpers for tests.

mod answer;
mod cdb;
mod disk;
mod feed;
mod paper;

pub use answer::CommandResult;
pub use cdb::*;
pub use disk::{Disk, DiskOptions};
pub use feed::feed;
pub use paper::Paper;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use block::{BlockDevice, Buffer};
use logical_unit::{
    CommandIn, Damaged, Data, Identity, InitiatorPort, Job, Landing, LogicalUnit,
    LogicalUnitOptions, Nexus, Plan, Reply, Running, SessionTraits, SiblingUnits, Step, TargetPort,
};
use volume::{Volume, VolumeOptions};

pub struct Bench {
    pub disk: Arc<Disk>,
    pub unit: Arc<LogicalUnit>,
    pub nexus: Nexus,
    pub luns: Arc<dyn SiblingUnits>,
}

/// LUN 0 and LUN 7, without a unit to copy to.
pub struct TwoLuns;

impl SiblingUnits for TwoLuns {
    fn luns(&self) -> Vec<u64> {
        vec![0, 7 << 48]
    }

    fn by_designator(&self, _designator: &[u8]) -> Option<Arc<LogicalUnit>> {
        None
    }

    fn luns_reported(&self) {}
}

pub fn unit_options() -> LogicalUnitOptions {
    LogicalUnitOptions {
        identity: Identity::new(*b"0123456789abcdef"),
        removable: false,
        thin: None,
    }
}

impl Bench {
    /// Creates a bench with 4,096 blocks of 512 bytes, thin provisioning and a write cache. The nexus has
    /// received its unit attention.
    pub fn new() -> Bench {
        Bench::with(DiskOptions::default(), unit_options())
    }

    pub fn of_disk(disk: DiskOptions) -> Bench {
        Bench::with(disk, unit_options())
    }

    pub fn of_unit(change: impl FnOnce(&mut LogicalUnitOptions)) -> Bench {
        let mut options = unit_options();
        change(&mut options);
        Bench::with(DiskOptions::default(), options)
    }

    pub fn with(disk: DiskOptions, options: LogicalUnitOptions) -> Bench {
        let disk = Arc::new(Disk::new(disk));
        let unit = unit_over(Arc::clone(&disk) as _, VolumeOptions::default(), options);
        Bench::over(disk, unit.expect("nothing was kept"))
    }

    /// Creates a logical unit over a read-only volume.
    pub fn read_only() -> Bench {
        let disk = Arc::new(Disk::new(DiskOptions::default()));
        let volume = VolumeOptions {
            read_only: true,
            ..VolumeOptions::default()
        };
        let unit = unit_over(Arc::clone(&disk) as _, volume, unit_options());
        Bench::over(disk, unit.expect("nothing was kept"))
    }

    /// Creates a logical unit that saves its persistent state on `paper`.
    pub fn keeping(paper: &Arc<Paper>) -> Bench {
        let disk = Arc::new(Disk::new(DiskOptions::default()));
        let volume = VolumeOptions {
            cache_generation: Some([7; 16]),
            ..kept_on(paper)
        };
        let unit = unit_over(Arc::clone(&disk) as _, volume, unit_options());
        Bench::over(disk, unit.expect("what was kept is whole"))
    }

    fn over(disk: Arc<Disk>, unit: Arc<LogicalUnit>) -> Bench {
        let nexus = attach(&unit, 1);
        let mut bench = Bench {
            disk,
            unit,
            nexus,
            luns: Arc::new(TwoLuns),
        };
        bench.hear_attentions();
        bench
    }

    /// Attaches another initiator through another port. It has not received its unit attention.
    pub fn newcomer(&self) -> Nexus {
        attach(&self.unit, 2)
    }

    /// Attaches another initiator, which has received its unit attention.
    pub fn second(&mut self) -> Nexus {
        let mut nexus = self.newcomer();
        self.by(&mut nexus, &[0; 6]);
        nexus
    }

    pub fn hear_attentions(&mut self) {
        while self
            .command(&[0; 6])
            .sense
            .is_some_and(|sense| sense.key() == 6)
        {}
    }

    /// Executes a command that sends no data to the unit. Its buffer has space for everything it may return.
    pub fn command(&mut self, cdb: &[u8]) -> CommandResult {
        self.exchange(cdb, &[], 1 << 24)
    }

    /// [`Bench::command`] from another initiator.
    pub fn by(&mut self, nexus: &mut Nexus, cdb: &[u8]) -> CommandResult {
        std::mem::swap(&mut self.nexus, nexus);
        let answer = self.command(cdb);
        std::mem::swap(&mut self.nexus, nexus);
        answer
    }

    /// Executes a command with data from another initiator.
    pub fn send_by(&mut self, nexus: &mut Nexus, cdb: &[u8], data: &[u8]) -> CommandResult {
        std::mem::swap(&mut self.nexus, nexus);
        let answer = self.send(cdb, data);
        std::mem::swap(&mut self.nexus, nexus);
        answer
    }

    /// Executes a command with data for the unit.
    pub fn send(&mut self, cdb: &[u8], data: &[u8]) -> CommandResult {
        self.exchange(cdb, data, 0)
    }

    pub fn exchange(&mut self, cdb: &[u8], data_out: &[u8], room: u32) -> CommandResult {
        let plan = self.begin(cdb, data_out.len() as u32, room);
        CommandResult::from_reply(self.carry_out(plan, data_out))
    }

    pub fn begin(&mut self, cdb: &[u8], data_out_bytes: u32, data_in_bytes: u32) -> Plan {
        let command = CommandIn {
            cdb,
            data_out_bytes,
            data_in_bytes,
            luns: &self.luns,
            stage: false,
        };
        self.unit.begin(&mut self.nexus, &command)
    }

    /// Executes a plan like a front end, with an initiator that acknowledges every response.
    pub fn carry_out(&self, plan: Plan, data_out: &[u8]) -> Reply {
        let (job, data) = match plan {
            Plan::Reply(reply) => return reply,
            Plan::Run(job) => (job, Data::None),
            Plan::Receive(receive) => {
                assert!(receive.bytes > 0 && receive.bytes as usize <= data_out.len());
                let data = &data_out[..receive.bytes as usize];
                match receive.place {
                    Landing::Memory(mut blocks) => {
                        assert_eq!(blocks.len(), data.len());
                        blocks.put(0, data);
                        (receive.job, Data::Placed)
                    }
                    Landing::Buffer => (receive.job, Data::Buffer(Buffer::from(data))),
                }
            }
        };
        self.end(job, data)
    }

    /// Executes a command whose data has arrived.
    pub fn end(&self, job: Job, data: Data) -> Reply {
        match self.unit.finish(job, data) {
            Step::Now(reply) => reply,
            Step::Later(Running { reply, watch }) => {
                let reply = finish(reply);
                self.nexus.note_told(watch.reported_losses());
                reply
            }
            Step::Lasting { reply, work } => {
                finish(work);
                finish(reply)
            }
        }
    }

    /// Starts a command that uses the device, with its data.
    pub fn start(&mut self, cdb: &[u8], data_out: &[u8]) -> Running {
        let room = if data_out.is_empty() { 1 << 24 } else { 0 };
        let (job, data) = match self.begin(cdb, data_out.len() as u32, room) {
            Plan::Receive(receive) => (receive.job, Data::Buffer(Buffer::from(data_out))),
            Plan::Run(job) => (job, Data::None),
            Plan::Reply(reply) => panic!("it has ended: {reply:?}"),
        };
        match self.unit.finish(job, data) {
            Step::Later(mut running) => {
                assert!(
                    poll(&mut running.reply).is_none(),
                    "it has something to wait for"
                );
                running
            }
            Step::Now(_) | Step::Lasting { .. } => panic!("it needs the device"),
        }
    }

    pub fn block_bytes(&self) -> usize {
        self.disk.geometry().block_size.bytes() as usize
    }

    pub fn write(&mut self, lba: u64, data: &[u8]) {
        let blocks = data.len() / self.block_bytes();
        self.send(&sixteen(0x8a, 0, lba, blocks as u32), data)
            .good();
    }

    pub fn read(&mut self, lba: u64, blocks: u32) -> Vec<u8> {
        self.command(&sixteen(0x88, 0, lba, blocks)).good().data
    }
}

/// Options of a volume that saves its persistent state on `paper`.
pub fn kept_on(paper: &Arc<Paper>) -> VolumeOptions {
    VolumeOptions {
        persistent_state: Some(Arc::clone(paper) as _),
        ..VolumeOptions::default()
    }
}

/// Creates a logical unit over a volume over a device.
pub fn unit_over(
    device: Arc<dyn BlockDevice>,
    volume: VolumeOptions,
    options: LogicalUnitOptions,
) -> Result<Arc<LogicalUnit>, Damaged> {
    Volume::new(device, volume).and_then(|volume| LogicalUnit::new(volume, options))
}

pub fn attach(unit: &Arc<LogicalUnit>, number: u8) -> Nexus {
    attach_after(unit, number, Duration::ZERO)
}

/// Attaches a nexus this long after the first ones.
pub fn attach_after(unit: &Arc<LogicalUnit>, number: u8, time: Duration) -> Nexus {
    let initiator = InitiatorPort {
        name: format!("iqn.2026-11.test:initiator{number}"),
        qualifier: [0x80, 0, 0, 0, 0, number],
    };
    let target_port = TargetPort {
        name: "iqn.2026-11.test:target".into(),
        group: u16::from(number),
        relative_port: u16::from(number),
    };
    let session = SessionTraits::new(initiator, target_port, start);
    unit.attach(Arc::new(session), start() + time)
}

/// The time at which nexuses attach.
pub fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// Runs a future to completion; it may have to wait for other threads.
pub fn finish<T>(mut future: Pin<Box<dyn Future<Output = T>>>) -> T {
    loop {
        if let Poll::Ready(value) = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            return value;
        }
        std::thread::yield_now();
    }
}

/// Handles an aborted command like a front end: its reply is discarded.
pub fn give_up(running: Running) -> Option<Pin<Box<dyn Future<Output = Reply>>>> {
    running.watch.is_committed().then_some(running.reply)
}

/// Polls a future once; `None` if it must wait.
pub fn poll<T>(future: &mut Pin<Box<dyn Future<Output = T>>>) -> Option<T> {
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Returns `blocks` blocks of `bytes` bytes, each filled with its own number.
pub fn pattern(blocks: u64, bytes: usize) -> Vec<u8> {
    (0..blocks)
        .flat_map(|block| vec![(block % 251) as u8 + 1; bytes])
        .collect()
}
