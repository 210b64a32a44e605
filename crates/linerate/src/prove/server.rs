//! The target that is proved: one RAM volume, one reactor thread, a port the system picks.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use host::{Epoll, EpollOptions, RamDevice, RamOptions};
use iscsi::negotiate::Offers;
use reactor::StreamOptions;
use scsi::{Identity, LogicalUnit, LogicalUnitOptions};
use target::{Access, Export, Limits, Portal, ServerConfig, Target};

use crate::failure::Failure;
use crate::remote::random;

/// Larger than the caches of most machines, smaller than their memory.
pub(super) const VOLUME_BYTES: u64 = 256 << 20;

const NAME: &str = "iqn.2026-01.io.linerate:prove";
/// A command that takes longer than this on memory never ends.
const DEADLINE: Duration = Duration::from_secs(10);
/// Our own initiator has logged out by then.
const GRACE: Duration = Duration::from_secs(1);

/// A target that serves until it is told to stop.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    /// The thread that serves, as the kernel numbers it.
    pub(super) thread: u32,
    server: Arc<target::Server>,
    threads: Vec<JoinHandle<Result<(), Failure>>>,
}

impl Server {
    pub(super) fn start(options: EpollOptions, congestion: Option<&str>) -> Result<Server, Failure> {
        let (server, cores) = target::Server::new(config(unit()?, congestion));
        let (report, bound) = mpsc::channel();
        let (number, numbered) = mpsc::channel();
        let threads = cores.into_iter().map(|core| {
            let (report, number) = (report.clone(), number.clone());
            let main = move || {
                // Whoever waits for it has given up, then.
                let _ = number.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
                let world = Epoll::shared(options).map_err(Failure::failed)?;
                reactor::block_on(world, core.run(report));
                Ok(())
            };
            thread::Builder::new().name("target".to_owned()).spawn(main).map_err(Failure::failed)
        });
        let threads = threads.collect::<Result<_, _>>()?;
        let addresses = bound.recv().map_err(|_| Failure::failed("the target did not start"))?;
        let addresses =
            addresses.map_err(|error| Failure::failed(format!("cannot listen on loopback: {error}")))?;
        let address = addresses.first().ok_or_else(|| Failure::failed("the target listens nowhere"))?;
        let thread = numbered.recv().map_err(|_| Failure::failed("the target did not start"))?;
        server.open();
        Ok(Server { address: *address, thread, server, threads })
    }

    pub(super) fn url(&self) -> String {
        format!("iscsi://{}/{NAME}/0", self.address)
    }

    pub(super) fn stop(self) -> Result<(), Failure> {
        self.server.shutdown(GRACE);
        for thread in self.threads {
            thread.join().map_err(|_| Failure::failed("the target broke down"))??;
        }
        Ok(())
    }
}

fn unit() -> Result<Arc<LogicalUnit>, Failure> {
    let device = RamDevice::new(RamOptions::new(VOLUME_BYTES)).map_err(Failure::failed)?;
    let options = LogicalUnitOptions {
        identity: Identity::new(*NAME_UUID),
        read_only: false,
        removable: false,
        thin: None,
    };
    LogicalUnit::new(Arc::new(device), options, None).map_err(Failure::failed)
}

/// The volume lives for seconds and meets one initiator: any identity will do.
const NAME_UUID: &[u8; 16] = b"linerate's proof";

fn config(unit: Arc<LogicalUnit>, congestion: Option<&str>) -> ServerConfig {
    let stream = StreamOptions { congestion: congestion.map(str::to_owned), ..StreamOptions::default() };
    let portal = Portal { listen: (Ipv4Addr::LOCALHOST, 0).into(), tag: 1, advertise: None, stream };
    let target = Target {
        name: NAME.to_owned(),
        alias: None,
        exports: vec![Export { lun: 0, unit, initiators: None, deadline: DEADLINE }],
        access: Access::default(),
        authentication: None,
        offers: Offers::of_target(),
        portal_groups: Vec::new(),
        redirect: None,
    };
    ServerConfig {
        portals: vec![portal],
        targets: vec![target],
        discovery_authentication: None,
        limits: Limits::default(),
        cores: 1,
        random,
    }
}
