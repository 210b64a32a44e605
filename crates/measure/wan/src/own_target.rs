//! A temporary target in this process for a measurement, with one LUN and one reactor thread. `prove` uses
//! such a target on loopback, and the WAN matrix one in a host of a lab.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ::hyperscsi::FRAME_BYTES_MIN;
use backends::Failure;
use backends::peers::random;
use bench_runner::client::Site;
use front_end_core::{FrontEnd, ListenAddress, Portal, Server};
use host::{Epoll, EpollOptions, RamDevice, RamOptions};
use hyperscsi_server::{HYPERSCSI, HyperScsi};
use iscsi_server::{Config, Export, ISCSI, Iscsi, Limits, Target};
use logical_unit::{Identity, LogicalUnit, LogicalUnitOptions};
use nbd_server::{NBD, Nbd};
use reactor::{DatagramEndpoint, DatagramOptions, StreamOptions};
use volume::{Volume, VolumeOptions};

/// The deadline of commands. A command on memory that takes longer than this will never complete.
const DEADLINE: Duration = Duration::from_secs(10);
/// Number of reactor threads. With one, the cost corresponds to the capacity of one core.
const CORES: usize = 1;
/// The time for initiators to log out at shutdown. Linerate's initiator needs less.
const GRACE: Duration = Duration::from_secs(1);

/// Options of the target.
pub struct OwnTargetOptions {
    /// The iSCSI name.
    pub name: &'static str,
    /// The address to listen on; port 0 selects a free one.
    pub listen: SocketAddr,
    /// The logical unit at LUN 0.
    pub unit: Arc<LogicalUnit>,
    /// The options of the target's sockets.
    pub stream: StreamOptions,
    /// Whether to also serve NBD and HyperSCSI, on other ports of the same address.
    pub by_all_protocols: bool,
    /// Limits.
    pub limits: Limits,
    /// The event loop options of the target's thread.
    pub epoll: EpollOptions,
}

/// A target that serves until [`OwnTarget::stop`] is called.
pub struct OwnTarget {
    /// The listening address.
    pub address: SocketAddr,
    /// The address for NBD, if it is served.
    nbd: Option<SocketAddr>,
    /// The address for HyperSCSI over UDP, if it is served.
    hyperscsi: Option<String>,
    /// The number of the serving thread in the kernel.
    pub thread: u32,
    name: &'static str,
    server: Arc<Server>,
    threads: Vec<JoinHandle<Result<(), Failure>>>,
}

impl OwnTarget {
    /// Starts the target on the network of this site.
    pub fn start(options: OwnTargetOptions, site: &Site) -> Result<OwnTarget, Failure> {
        let (name, epoll, listen) = (options.name, options.epoll, options.listen);
        let (exports, disks) = (nbd(&options)?, hyperscsi(&options));
        let (served, config) = served(options);
        let front_ends: Vec<Arc<dyn FrontEnd>> = vec![
            Iscsi::new(config, CORES),
            Nbd::new(exports, CORES),
            HyperScsi::new(disks),
        ];
        let (server, cores) = Server::new(served, CORES, front_ends);
        let (report, bound) = mpsc::channel();
        let (number, numbered) = mpsc::channel();
        let threads = cores.into_iter().map(|core| {
            let (report, number, site) = (report.clone(), number.clone(), site.clone());
            let serve = move || {
                // Sending fails only if the receiver was dropped.
                let _ = number.send(
                    rustix::thread::gettid()
                        .as_raw_nonzero()
                        .get()
                        .unsigned_abs(),
                );
                let world = Epoll::shared(epoll).map_err(Failure::failed)?;
                reactor::block_on(world, core.run(report));
                Ok(())
            };
            let main = move || site.run(serve)?;
            thread::Builder::new()
                .name("target".to_owned())
                .spawn(main)
                .map_err(Failure::failed)
        });
        let threads = threads.collect::<Result<_, _>>()?;
        // Drop these senders, or the receiving side would not detect the end of the threads.
        drop((report, number));
        let addresses = bound
            .recv()
            .map_err(|_| Failure::failed("the target did not start"))?;
        let addresses = addresses
            .map_err(|error| Failure::failed(format!("cannot listen on {listen}: {error}")))?;
        let is_udp = |at: &&ListenAddress| matches!(at, ListenAddress::Datagrams(_));
        let hyperscsi = addresses.iter().find(is_udp).map(|at| at.url(HYPERSCSI));
        let addresses: Vec<SocketAddr> = addresses.iter().filter_map(ListenAddress::inet).collect();
        let address = addresses
            .first()
            .ok_or_else(|| Failure::failed("the target is not listening"))?;
        let thread = numbered
            .recv()
            .map_err(|_| Failure::failed("the target did not start"))?;
        server.open();
        let nbd = addresses.get(1).copied();
        Ok(OwnTarget {
            address: *address,
            nbd,
            hyperscsi,
            thread,
            name,
            server,
            threads,
        })
    }

    /// Returns the URL of the LUN, for clients on the same network.
    pub fn url(&self) -> String {
        format!("iscsi://{}/{}/0", self.address, self.name)
    }

    /// Returns the URL of the NBD export, if NBD is served.
    pub fn nbd_url(&self) -> Option<String> {
        self.nbd.map(|address| format!("nbd://{address}/"))
    }

    /// Returns the URL of the HyperSCSI LUN, if HyperSCSI is served.
    pub fn hyperscsi_url(&self) -> Option<String> {
        self.hyperscsi
            .as_ref()
            .map(|place| format!("{place}/{HYPERSCSI}/0"))
    }

    /// Ends the target's sessions, and waits for its threads.
    pub fn stop(self) -> Result<(), Failure> {
        self.server.shutdown(GRACE);
        for thread in self.threads {
            thread
                .join()
                .map_err(|_| Failure::failed("the target failed"))??;
        }
        Ok(())
    }
}

/// Creates a logical unit in memory, with this size.
pub fn memory(bytes: u64) -> Result<Arc<LogicalUnit>, Failure> {
    let device = RamDevice::new(RamOptions::new(bytes)).map_err(Failure::failed)?;
    let options = LogicalUnitOptions {
        identity: Identity::new(*ANY_UUID),
        removable: false,
        thin: None,
    };
    let volume = Volume::new(Arc::new(device), VolumeOptions::default());
    volume
        .and_then(|volume| LogicalUnit::new(volume, options))
        .map_err(Failure::failed)
}

/// The identity of the volume. The volume exists for one measurement, and only Linerate's initiator uses it,
/// so any identity is sufficient.
const ANY_UUID: &[u8; 16] = b"linerate's proof";

/// Returns the configuration of NBD, with optional TLS.
fn nbd(options: &OwnTargetOptions) -> Result<nbd_server::Config, Failure> {
    let export = nbd_server::Export {
        name: options.name.to_owned(),
        description: String::new(),
        volume: Arc::clone(options.unit.volume()),
        identity: None,
        read_only: false,
        networks: None,
        clients: None,
        deadline: DEADLINE,
    };
    let tls = Some(nbd_server::Tls::for_loopback().map_err(Failure::failed)?);
    Ok(nbd_server::Config {
        exports: vec![Arc::new(export)],
        tls,
        ..nbd_server::Config::default()
    })
}

/// Returns the configuration of HyperSCSI, without access control.
fn hyperscsi(options: &OwnTargetOptions) -> hyperscsi_server::Config {
    let (volume, unit) = (options.name.to_owned(), Arc::clone(&options.unit));
    let target = hyperscsi_server::Target {
        name: HYPERSCSI.to_owned(),
        exports: vec![Export {
            lun: 0,
            volume,
            unit,
            initiators: None,
            deadline: DEADLINE,
        }],
        access: hyperscsi_server::Access::default(),
        keys: BTreeMap::new(),
    };
    hyperscsi_server::Config {
        targets: vec![Arc::new(target)],
        random,
    }
}

/// Returns the address of a protocol over UDP. The receive buffer has space for bursts of a whole window.
fn datagrams(at: SocketAddr) -> ListenAddress {
    ListenAddress::Datagrams(DatagramOptions {
        endpoint: DatagramEndpoint::Udp(at),
        receive_buffer_bytes: Some(8 << 20),
        ring: None,
        payload_bytes_min: FRAME_BYTES_MIN,
        share: None,
    })
}

fn served(options: OwnTargetOptions) -> (front_end_core::Config, Config) {
    let OwnTargetOptions {
        name,
        listen,
        unit,
        stream,
        by_all_protocols,
        limits,
        ..
    } = options;
    let portal = Portal {
        front_end: ISCSI,
        listen: listen.into(),
        tag: 1,
        advertise: None,
        stream,
    };
    let other = SocketAddr::new(listen.ip(), 0);
    let by_nbd = Portal {
        front_end: NBD,
        listen: other.into(),
        ..portal.clone()
    };
    let by_hyperscsi = Portal {
        front_end: HYPERSCSI,
        listen: datagrams(other),
        ..portal.clone()
    };
    let others = [by_nbd, by_hyperscsi]
        .into_iter()
        .filter(|_| by_all_protocols);
    let portals = std::iter::once(portal).chain(others).collect();
    let volumes = vec![(name.to_owned(), Arc::clone(unit.volume()))];
    let export = Export {
        lun: 0,
        volume: name.to_owned(),
        unit,
        initiators: None,
        deadline: DEADLINE,
    };
    let target = Target::open(name, vec![export]);
    let served = front_end_core::Config {
        volumes,
        portals,
        limits: front_end_core::Limits::default(),
    };
    let targets = vec![Arc::new(target)];
    (
        served,
        Config {
            targets,
            discovery_authentication: None,
            limits,
            random,
        },
    )
}
