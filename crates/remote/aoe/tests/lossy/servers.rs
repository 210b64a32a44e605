//! Two servers with one RAM disk each: Linerate's, and one that executes retransmitted commands again, like
//! `vblade`.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use aoe::{
    Address, AtaOperation, Body, Config, ETHER_TYPE, Frame, IDENTITY_BYTES, Identity, SECTOR_BYTES,
};
use aoe_server::{AOE, Aoe, Limits, Slot};
use block::BlockSize;
use front_end_core::{ListenAddress, Portal, Server};
use reactor::{
    DatagramAddress, DatagramBatch, DatagramEndpoint, DatagramOptions, OutDatagram, OutSlice,
    StreamOptions,
};
use testkit::TestDisk;
use volume::{Volume, VolumeOptions};

pub(crate) const DEVICE: Address = Address { major: 7, minor: 1 };

pub(crate) fn endpoint(interface: &str) -> DatagramOptions {
    DatagramOptions {
        endpoint: DatagramEndpoint::Ethernet {
            interface: interface.to_owned(),
            ether_type: ETHER_TYPE,
        },
        receive_buffer_bytes: None,
        ring: None,
        payload_bytes_min: 0,
        share: None,
    }
}

/// A disk whose requests take up to 3 ms.
pub(crate) fn slow_disk(seed: u64, sectors: usize, block_size: BlockSize) -> Arc<TestDisk> {
    let blocks = (sectors * SECTOR_BYTES) as u64 >> block_size.shift();
    Arc::new(TestDisk::new(block_size, blocks).slow(seed, Duration::from_millis(3)))
}

/// Runs Linerate's server as a task.
pub(crate) fn ours(disk: Arc<TestDisk>, interface: &str) -> Arc<Server> {
    served(disk, interface).0
}

/// A configuration with one slot, whose device has this deadline.
pub(crate) fn slots(volume: &Arc<Volume>, deadline: Duration) -> aoe_server::Config {
    let volume = Arc::clone(volume);
    let slot = Slot {
        address: DEVICE,
        volume,
        read_only: false,
        stations: None,
        deadline,
    };
    aoe_server::Config {
        slots: vec![Arc::new(slot)],
        limits: Limits::default(),
    }
}

/// Like [`ours`], but also returns the front end and its configuration, so that a test can reconfigure the
/// server.
pub(crate) fn served(
    disk: Arc<TestDisk>,
    interface: &str,
) -> (Arc<Server>, Arc<Aoe>, front_end_core::Config) {
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

/// Runs the server that executes retransmitted commands again, as a task.
pub(crate) fn forgetful(disk: Arc<TestDisk>, interface: &str) {
    let datagrams = reactor::world()
        .datagrams(&endpoint(interface))
        .expect("an endpoint");
    drop(reactor::spawn(async move {
        let mut batch = DatagramBatch::new(16, datagrams.payload_bytes_max());
        loop {
            datagrams.receive(&mut batch).await.expect("it is up");
            let mut answers = Vec::new();
            for (from, payload) in batch.iter() {
                let Ok(frame) = Frame::parse(payload) else {
                    continue;
                };
                let answer = disk.with_bytes(|all| answer(all, &frame));
                answers.extend(answer.map(|answer| (from, answer)));
            }
            for (to, answer) in answers {
                send(&*datagrams, to, &answer);
            }
        }
    }));
}

fn send(by: &dyn reactor::Datagrams, to: DatagramAddress, payload: &[u8]) {
    by.try_send(&[OutDatagram {
        to,
        payload: &[OutSlice::Bytes(payload)],
    }])
    .expect("room");
}

fn answer(all: &mut [u8], frame: &Frame<'_>) -> Option<Vec<u8>> {
    let header = frame.header.answer(DEVICE, None);
    if frame.header.is_response || !frame.header.address.is_for(DEVICE) {
        return None;
    }
    let range = |lba: u64, sectors: u32| {
        lba as usize * SECTOR_BYTES..(lba as usize + sectors as usize) * SECTOR_BYTES
    };
    let mut returned = Vec::new();
    let body = match &frame.body {
        Body::Config(query) => Body::Config(Config {
            buffer_count: 16,
            sectors_max: 2,
            ..query.clone()
        }),
        Body::Ata(ata, data) => {
            match ata.operation() {
                AtaOperation::Identify => {
                    let sectors = (all.len() / SECTOR_BYTES) as u64;
                    let identity = Identity {
                        sectors,
                        is_extended: true,
                        ..Identity::default()
                    };
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
