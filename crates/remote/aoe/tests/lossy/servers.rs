//! Servers of one disk of memory: ours, and one that carries out again whatever it is sent again, as `vblade` does.

use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aoe::{Address, AtaOperation, Body, Config, ETHER_TYPE, Frame, IDENTITY_BYTES, Identity, SECTOR_BYTES};
use aoe_server::{AOE, Aoe, Limits, Slot};
use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry, Pending,
    Profile, Run, Slice,
};
use front_end_core::{ListenAddress, Portal, Server};
use reactor::{
    DatagramAddress, DatagramBatch, DatagramEndpoint, DatagramOptions, OutDatagram, OutSlice, StreamOptions,
};
use volume::{Volume, VolumeOptions};

use crate::ethernet::Random;

pub(crate) const DEVICE: Address = Address { major: 7, minor: 1 };

pub(crate) fn endpoint(interface: &str) -> DatagramOptions {
    DatagramOptions {
        endpoint: DatagramEndpoint::Ethernet { interface: interface.to_owned(), ether_type: ETHER_TYPE },
        receive_buffer_bytes: None,
        ring: None,
        payload_bytes_min: 0,
        share: None,
    }
}

/// A disk whose requests take some time, each another.
pub(crate) struct Disk {
    bytes: Mutex<Vec<u8>>,
    random: Mutex<Random>,
    block_size: BlockSize,
    /// What befalls the next request: it takes longer, and if it is a flush, it fails.
    next: Mutex<(Duration, Option<DeviceError>)>,
    losses: block::LossCounter,
}

impl Disk {
    pub(crate) fn new(seed: u64, sectors: usize, block_size: BlockSize) -> Arc<Disk> {
        let bytes = Mutex::new(vec![0; sectors * SECTOR_BYTES]);
        let losses = block::LossCounter::default();
        Arc::new(Disk { bytes, random: Mutex::new(Random(seed)), block_size, next: Mutex::default(), losses })
    }

    pub(crate) fn delay_next(&self, time: Duration) {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).0 = time;
    }

    pub(crate) fn fail_next(&self, error: DeviceError) {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).1 = Some(error);
    }

    /// With what a flush fails.
    async fn work(&self) -> Option<DeviceError> {
        let (delay, error) = std::mem::take(&mut *self.next.lock().unwrap_or_else(PoisonError::into_inner));
        let time = self.random.lock().unwrap_or_else(PoisonError::into_inner).below(3000);
        reactor::sleep(Duration::from_micros(time) + delay).await;
        error
    }

    fn range(&self, extent: Extent) -> std::ops::Range<usize> {
        let geometry = self.geometry();
        let start = geometry.offset(extent) as usize;
        start..start + geometry.length(extent) as usize
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        let blocks = Blocks(bytes >> self.block_size.shift());
        Geometry { block_size: self.block_size, blocks, physical_exponent: 0 }
    }

    fn profile(&self) -> Profile {
        Profile {
            read_only: false,
            thin: true,
            granularity: Blocks(1),
            volatile_cache: true,
            durable: true,
            solid_state: true,
            optimal_transfer: None,
            loses_unseen: false,
        }
    }

    fn read(&self, extent: Extent, mut buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            let _ = self.work().await;
            let range = self.range(extent);
            let all = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
            buffer.copy_from_slice(&all[range]);
            Ok(buffer)
        })
    }

    fn write(&self, extent: Extent, data: Slice, _: Durability) -> Pending<'_, ()> {
        Box::pin(async move {
            let _ = self.work().await;
            let range = self.range(extent);
            self.bytes.lock().unwrap_or_else(PoisonError::into_inner)[range].copy_from_slice(&data);
            Ok(())
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let Some(error) = self.work().await else { return Ok(()) };
            if error.is_loss() {
                self.losses.count();
            }
            Err(error)
        })
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.write_zeroes(extent, true)
    }

    fn write_zeroes(&self, extent: Extent, _: bool) -> Pending<'_, ()> {
        let zeros = Buffer::zeroed(self.geometry().length(extent) as usize).share();
        self.write(extent, zeros, Durability::Cached)
    }

    fn allocation(&self, extent: Extent, _: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move { Ok(vec![Run { extent, allocation: Allocation::Mapped }]) })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok::<(), DeviceError>(()) })
    }

    fn losses(&self) -> block::Losses {
        self.losses.get()
    }
}

/// Ours, as a task.
pub(crate) fn ours(disk: Arc<Disk>, interface: &str) -> Arc<Server> {
    served(disk, interface).0
}

/// What it serves: a device with this deadline.
pub(crate) fn slots(volume: &Arc<Volume>, deadline: Duration) -> aoe_server::Config {
    let volume = Arc::clone(volume);
    let slot = Slot { address: DEVICE, volume, read_only: false, stations: None, deadline };
    aoe_server::Config { slots: vec![Arc::new(slot)], limits: Limits::default() }
}

/// The same, to be reconfigured.
pub(crate) fn served(disk: Arc<Disk>, interface: &str) -> (Arc<Server>, Arc<Aoe>, front_end_core::Config) {
    let volume = Volume::new(disk, VolumeOptions::default()).expect("nothing was saved");
    let front_end = Aoe::new(slots(&volume, Duration::from_secs(30)));
    let portal = Portal {
        front_end: AOE,
        listen: ListenAddress::Datagrams(endpoint(interface)),
        tag: 1,
        advertise: None,
        stream: StreamOptions::default(),
    };
    let config = front_end_core::Config {
        volumes: vec![("disk".to_owned(), volume)],
        portals: vec![portal],
        limits: front_end_core::Limits::default(),
    };
    let (server, cores) = Server::new(config.clone(), 1, vec![Arc::clone(&front_end) as _]);
    for core in cores {
        drop(reactor::spawn(async move {
            let (bound, _heard) = mpsc::channel();
            core.run(bound).await;
        }));
    }
    server.open();
    (server, front_end, config)
}

/// The other, as a task.
pub(crate) fn forgetful(disk: Arc<Disk>, interface: &str) {
    let datagrams = reactor::world().datagrams(&endpoint(interface)).expect("an endpoint");
    drop(reactor::spawn(async move {
        let mut batch = DatagramBatch::new(16, datagrams.payload_bytes_max());
        loop {
            datagrams.receive(&mut batch).await.expect("it is up");
            let mut answers = Vec::new();
            for (from, payload) in batch.iter() {
                let Ok(frame) = Frame::parse(payload) else { continue };
                answers.extend(answer(&disk, &frame).map(|answer| (from, answer)));
            }
            for (to, answer) in answers {
                send(&*datagrams, to, &answer);
            }
        }
    }));
}

fn send(by: &dyn reactor::Datagrams, to: DatagramAddress, payload: &[u8]) {
    by.try_send(&[OutDatagram { to, payload: &[OutSlice::Bytes(payload)] }]).expect("room");
}

fn answer(disk: &Disk, frame: &Frame<'_>) -> Option<Vec<u8>> {
    let header = frame.header.answer(DEVICE, None);
    if frame.header.is_response || !frame.header.address.is_for(DEVICE) {
        return None;
    }
    let mut all = disk.bytes.lock().unwrap_or_else(PoisonError::into_inner);
    let range = |lba: u64, sectors: u32| {
        lba as usize * SECTOR_BYTES..(lba as usize + sectors as usize) * SECTOR_BYTES
    };
    let mut returned = Vec::new();
    let body = match &frame.body {
        Body::Config(query) => Body::Config(Config { buffer_count: 16, sectors_max: 2, ..query.clone() }),
        Body::Ata(ata, data) => {
            match ata.operation() {
                AtaOperation::Identify => {
                    let sectors = (all.len() / SECTOR_BYTES) as u64;
                    let identity = Identity { sectors, is_extended: true, ..Identity::default() };
                    returned = identity.bytes().to_vec();
                    assert_eq!(returned.len(), IDENTITY_BYTES);
                }
                AtaOperation::Read { lba, sectors } => returned = all[range(lba, sectors)].to_vec(),
                AtaOperation::Write { lba, sectors, .. } => {
                    let range = range(lba, sectors);
                    let length = range.len();
                    all[range].copy_from_slice(&data[..length]);
                }
                _ => return None,
            }
            Body::Ata(ata.done(), &returned)
        }
        Body::Mask(_) | Body::Reserve(_) => return None,
    };
    Some(Frame { header, body }.write())
}
