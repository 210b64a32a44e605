//! The two ends: a server with one core and one LUN, configured like `linerate serve`, and its initiator.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use block::{BlockDevice, BlockSize, Buffer, Durability, Extent, Geometry, Lba, Null};
use front_end_core::{Core, Portal};
use host::{FileDevice, FileOptions, RamDevice, RamOptions};
use iscsi_client::{RemoteLun, Url};
use iscsi_server::{Config, Export, ISCSI, Iscsi, Limits, Target};
use logical_unit::{Identity, LogicalUnit, LogicalUnitOptions};

use crate::outside::{End, Outside};
use crate::world::{self, ADDRESS};
use crate::{Anything, VOLUME_BYTES, Volume, Work};

/// The iSCSI name of the target.
const NAME: &str = "iqn.2026-01.io.linerate:instructions";

/// A server that has not been started.
pub(crate) struct Server {
    /// The handle, which must exist as long as the core runs.
    handle: Arc<front_end_core::Server>,
    core: Core,
}

/// Creates a server for one volume.
pub(crate) fn server(volume: Volume) -> Result<Server, Anything> {
    let (served, config) = served(unit(volume)?);
    let (handle, cores) = front_end_core::Server::new(served, 1, vec![Iscsi::new(config, 1)]);
    let core = cores.into_iter().next().ok_or("a server without cores")?;
    handle.open();
    Ok(Server { handle, core })
}

impl Server {
    /// Serves on this thread. Never returns.
    pub(crate) fn run(self, outside: &Arc<Outside>) {
        let Server { handle, core } = self;
        // The target does not bind a real address, so the report is not needed.
        let (bound, _) = mpsc::channel();
        reactor::block_on(world::shared(End::Target, outside), core.run(bound));
        drop(handle);
    }
}

fn unit(volume: Volume) -> Result<Arc<LogicalUnit>, Anything> {
    let device: Arc<dyn BlockDevice> = match volume {
        Volume::Ram => Arc::new(RamDevice::new(RamOptions::new(VOLUME_BYTES))?),
        Volume::Cached => {
            let file = tempfile::NamedTempFile::new_in("/dev/shm")?;
            file.as_file().set_len(VOLUME_BYTES)?;
            // The temporary file's name is removed when this function returns, and its content when the
            // device is closed.
            Arc::new(FileDevice::open(FileOptions::new(file.path()))?)
        }
        Volume::Null => {
            let block_size = BlockSize::B512;
            let blocks = block_size
                .exact(VOLUME_BYTES)
                .ok_or("a volume of whole blocks")?;
            Arc::new(Null::new(Geometry {
                block_size,
                blocks,
                physical_exponent: 0,
            }))
        }
    };
    let options = LogicalUnitOptions {
        identity: Identity::new(*b"linerate's count"),
        removable: false,
        thin: None,
    };
    Ok(LogicalUnit::new(
        volume::Volume::new(device, Default::default())?,
        options,
    )?)
}

fn served(unit: Arc<LogicalUnit>) -> (front_end_core::Config, Config) {
    let volumes = vec![("volume".to_owned(), Arc::clone(unit.volume()))];
    let portal = Portal {
        front_end: ISCSI,
        listen: ADDRESS.into(),
        tag: 1,
        advertise: None,
        stream: Default::default(),
    };
    let export = Export {
        lun: 0,
        volume: "volume".to_owned(),
        unit,
        initiators: None,
        deadline: Duration::from_secs(30),
    };
    let target = Target::open(NAME, vec![export]);
    let served = front_end_core::Config {
        volumes,
        portals: vec![portal],
        limits: front_end_core::Limits::default(),
    };
    let config = Config {
        targets: vec![Arc::new(target)],
        discovery_authentication: None,
        limits: Limits::default(),
        random: never_random,
    };
    (served, config)
}

// The initiator: a remote LUN, and one task for each outstanding command.

/// Runs the initiator on this thread.
pub(crate) fn run_initiator(work: Work, outside: &Arc<Outside>) -> Result<(), Anything> {
    outside.begin(End::Initiator);
    reactor::block_on(world::shared(End::Initiator, outside), work_on(work))
}

async fn work_on(work: Work) -> Result<(), Anything> {
    let digests = if work.digests {
        "?header-digest=crc32c&data-digest=crc32c"
    } else {
        ""
    };
    let url = Url::parse(&format!("iscsi://{ADDRESS}/{NAME}/0{digests}"))?;
    let lun = Arc::new(iscsi_client::open(&url, never_random).await?);
    // Write all blocks first. The first write to an offset costs more; this cost is part of every run, so it
    // cancels out in differences between runs.
    let everything = Extent {
        lba: Lba(0),
        blocks: lun.geometry().blocks,
    };
    let zeros = Buffer::zeroed(VOLUME_BYTES as usize).share();
    lun.write(everything, zeros, Durability::Cached).await?;
    let askers: Vec<_> = (0..work.depth)
        .map(|number| reactor::spawn(ask(Arc::clone(&lun), work, number)))
        .collect();
    for asker in askers {
        asker.await?;
    }
    Ok(())
}

/// Sends one command after the other, to scattered offsets.
async fn ask(lun: Arc<RemoteLun>, work: Work, number: u32) -> Result<(), Anything> {
    let geometry = lun.geometry();
    let blocks = u64::from(work.bytes >> geometry.block_size.shift());
    let places = geometry.blocks.0 / blocks;
    let mut buffer = Buffer::zeroed(work.bytes as usize);
    let data = Buffer::zeroed(work.bytes as usize).share();
    for turn in 0..u64::from(work.commands / work.depth) {
        let place =
            (turn * u64::from(work.depth) + u64::from(number)).wrapping_mul(SCATTER) % places;
        let extent = Extent::new(place * blocks, blocks);
        match work.write {
            true => lun.write(extent, data.clone(), Durability::Cached).await?,
            false => buffer = lun.read(extent, buffer).await?,
        }
    }
    Ok(())
}

/// A prime number. Its multiples reach every offset of a volume before any offset repeats.
const SCATTER: u64 = 1_000_003;

/// Fills identifiers that must exist, but have no effect. They must not be random, so that the count of
/// instructions is reproducible.
fn never_random(bytes: &mut [u8]) {
    bytes.fill(0x5a);
}
