//! The target's end: a server with one core and one LUN, configured like `linerate serve`.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use block::{BlockDevice, BlockSize, Geometry, Null};
use front_end_core::{Core, Portal};
use host::{FileDevice, FileOptions, RamDevice, RamOptions};
use iscsi_server::{Config, Export, ISCSI, Iscsi, Limits, Target};
use logical_unit::{Identity, LogicalUnit, LogicalUnitOptions};

use crate::outside::{End, Outside};
use crate::world::{self, ADDRESS};
use crate::{Anything, VOLUME_BYTES, Volume};

/// Its iSCSI name.
pub(crate) const NAME: &str = "iqn.2026-01.io.linerate:instructions";

/// A server that has not started.
pub(crate) struct Server {
    /// Open from the start, and valid while its core runs.
    handle: Arc<front_end_core::Server>,
    core: Core,
}

/// A server of one volume.
pub(crate) fn server(volume: Volume) -> Result<Server, Anything> {
    let (served, config) = served(unit(volume)?);
    let (handle, cores) = front_end_core::Server::new(served, 1, vec![Iscsi::new(config, 1)]);
    let core = cores.into_iter().next().ok_or("a server without cores")?;
    handle.open();
    Ok(Server { handle, core })
}

impl Server {
    /// Serves on this thread; never returns.
    pub(crate) fn run(self, outside: &Arc<Outside>) {
        let Server { handle, core } = self;
        // It binds no address that could be in use.
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
            // Its name is removed afterwards, and the file with the device.
            Arc::new(FileDevice::open(FileOptions::new(file.path()))?)
        }
        Volume::Null => {
            let block_size = BlockSize::B512;
            let blocks = block_size.exact(VOLUME_BYTES).ok_or("a volume of whole blocks")?;
            Arc::new(Null::new(Geometry { block_size, blocks, physical_exponent: 0 }))
        }
    };
    let options =
        LogicalUnitOptions { identity: Identity::new(*b"linerate's count"), removable: false, thin: None };
    Ok(LogicalUnit::new(volume::Volume::new(device, Default::default())?, options)?)
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
    let served =
        front_end_core::Config { volumes, portals: vec![portal], limits: front_end_core::Limits::default() };
    let config = Config {
        targets: vec![Arc::new(target)],
        discovery_authentication: None,
        limits: Limits::default(),
        random: crate::initiator_end::never_random,
    };
    (served, config)
}
