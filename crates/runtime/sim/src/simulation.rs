//! The state that all parts of a simulation share: its volumes, its server, and its random parameters.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use front_end_core::Server;
use iscsi_server::{Iscsi, Limits};
use logical_unit::LogicalUnit;
use nbd_server::Nbd;

use crate::disk::{Disk, NEVER};
use crate::features::{Addition, Feature};
use crate::network::{self, Machine, NetworkConditions};
use crate::universe::draw;
use crate::volume::Volume;

pub(crate) const TARGET: &str = "iqn.2026-01.io.linerate:simulated";

/// Number of portal groups. Each has one portal.
pub(crate) const GROUPS: u16 = 2;

/// Returns the address of a portal group.
pub(crate) fn portal(group: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 255, 0, group as u8)), 3260)
}

/// The state shared by all parts of a simulation.
pub(crate) struct Simulation {
    pub(crate) volumes: Vec<Rc<Volume>>,
    pub(crate) is_over: Cell<bool>,
    pub(crate) commands: Cell<u64>,
    pub(crate) server: RefCell<Option<RunningServer>>,
    pub(crate) servers: Cell<u64>,
    /// Start time of the latest server, in nanoseconds.
    pub(crate) started: Cell<u64>,
    pub(crate) crashes: Cell<u64>,
    pub(crate) ends: Cell<u64>,
    pub(crate) core_count: usize,
    pub(crate) limits: Limits,
    pub(crate) server_limits: front_end_core::Limits,
    /// Whether no faults are injected, except orderly restarts of the server.
    pub(crate) is_calm: bool,
    /// Whether pauses are long, so that events that take minutes occur: detection of unresponsive peers,
    /// expired deadlines, long stalls.
    pub(crate) is_long: bool,
    /// Whether there is a portal that redirects logins.
    pub(crate) redirects: bool,
    /// Whether the server is repeatedly unreachable for longer than our initiator waits. The only other
    /// faults are then those of disks. Requests in transit arrive long after the session was re-established,
    /// possibly in another portal group.
    pub(crate) is_moving: bool,
    /// Whether initiators send as many commands as possible, without faults: see [`crate::Run::dense`].
    pub(crate) is_dense: bool,
    without: Vec<Feature>,
    with: Vec<Addition>,
    /// Bit mask of exports hidden from NBD clients, by LUN.
    pub(crate) hidden: Cell<u64>,
}

/// A server that is running or shutting down.
pub(crate) struct RunningServer {
    pub(crate) machine: Machine,
    pub(crate) handle: Arc<Server>,
    pub(crate) iscsi: Arc<Iscsi>,
    pub(crate) nbd: Option<Arc<Nbd>>,
    /// Logical units that must have been freed once the server has shut down.
    pub(crate) units: Vec<Weak<LogicalUnit>>,
    /// Volumes for NBD clients that must have been freed once the server has shut down.
    pub(crate) volumes: Vec<Weak<volume::Volume>>,
    pub(crate) ends: bool,
    /// Whether a configuration change is outstanding.
    pub(crate) changes: Rc<Cell<bool>>,
}

/// Features that prevent initiators from sending at full rate.
const NOT_DENSE: [Feature; 13] = [
    Feature::Crashes,
    Feature::Ends,
    Feature::Changes,
    Feature::NetworkTrouble,
    Feature::DiskTrouble,
    Feature::Ours,
    Feature::Fencing,
    Feature::Adversary,
    Feature::Redirections,
    Feature::Resets,
    Feature::Aborts,
    Feature::SlowPeers,
    Feature::Want,
];

/// Size of the staging memory in calm simulations, small enough that one initiator that does not read can use
/// it up.
const CALM_STAGING: usize = 1 << 20;
/// Send timeout of the server in calm simulations. It is longer than a command waits for memory before it
/// fails with BUSY.
const CALM_STALL: Duration = Duration::from_secs(90);

impl Simulation {
    pub(crate) fn set(without: Vec<Feature>, with: Vec<Addition>) -> Rc<Simulation> {
        let has = |part: Feature| !without.contains(&part);
        let is_calm = has(Feature::Ends) && draw(|random| random.once_in(6));
        let is_long = draw(|random| random.once_in(3));
        let redirects = has(Feature::Redirections) && draw(|random| random.once_in(2));
        let is_moving = redirects
            && !is_calm
            && has(Feature::NetworkTrouble)
            && draw(|random| random.once_in(3));
        let count = if has(Feature::Volumes) {
            draw(|random| random.between(1, 3)) as u16
        } else {
            1
        };
        let volumes = (0..count)
            .map(|lun| Rc::new(Volume::drawn(lun, &without, is_calm)))
            .collect();
        let core_count = if has(Feature::Cores) {
            draw(|random| random.between(1, 3)) as usize
        } else {
            1
        };
        let staging_bytes = draw(|random| *random.pick(&[256 << 10, 4 << 20, 1 << 30]));
        let limits = draw(|random| Limits {
            session_staging_bytes: *random.pick(&[256 << 10, 256 << 20]),
            window: *random.pick(&[4, 32, 256]),
            nop_interval: Duration::from_secs(random.between(2, 15)),
            send_stall: Duration::from_secs(random.between(5, 60)),
            ..Limits::default()
        });
        // In a calm simulation, memory is scarce, and an initiator that does not read keeps its connection
        // for longer than a command may wait for memory. So the target must reclaim the memory as soon as
        // other sessions need it.
        let (staging_bytes, limits) = match is_calm {
            true => (
                staging_bytes.min(CALM_STAGING),
                Limits {
                    send_stall: CALM_STALL,
                    ..limits
                },
            ),
            false => (staging_bytes, limits),
        };
        let server_limits = front_end_core::Limits {
            staging_bytes,
            ..front_end_core::Limits::default()
        };
        network::set_weather(draw(|random| NetworkConditions {
            least_delay: random.mostly_small(5_000, 5_000_000),
            most_delay: random.mostly_small(5_000_000, 200_000_000),
            lost_once_in: random.between(100, 20_000),
            most_buffer: random.between(2 << 10, 1 << 20),
        }));
        Rc::new(Simulation {
            volumes,
            is_over: Cell::new(false),
            commands: Cell::new(0),
            server: RefCell::new(None),
            servers: Cell::new(0),
            started: Cell::new(0),
            crashes: Cell::new(0),
            ends: Cell::new(0),
            core_count,
            limits: if has(Feature::Want) {
                limits
            } else {
                Limits::default()
            },
            server_limits: if has(Feature::Want) {
                server_limits
            } else {
                front_end_core::Limits::default()
            },
            is_calm,
            is_long,
            redirects,
            is_moving,
            is_dense: false,
            without,
            with,
            hidden: Cell::new(0),
        })
    }

    /// Creates the simulation of [`crate::Run::dense`].
    pub(crate) fn dense() -> Rc<Simulation> {
        let mut simulation = Simulation::set(NOT_DENSE.to_vec(), Vec::new());
        network::set_weather(NetworkConditions {
            least_delay: 1_000,
            most_delay: 10_000,
            lost_once_in: NEVER,
            most_buffer: 1 << 20,
        });
        let set = Rc::get_mut(&mut simulation).expect("not shared yet");
        (set.is_dense, set.is_long, set.is_moving, set.core_count) = (true, false, false, 1);
        set.volumes = vec![Rc::new(Volume::dense())];
        simulation
    }

    pub(crate) fn disks(&self) -> impl Iterator<Item = &Disk> {
        self.volumes.iter().filter_map(|volume| volume.disk())
    }

    pub(crate) fn has(&self, part: Feature) -> bool {
        !self.without.contains(&part)
    }

    pub(crate) fn with(&self, addition: Addition) -> bool {
        self.with.contains(&addition)
    }

    /// Whether the simulation includes our NBD client.
    pub(crate) fn has_our_nbd(&self) -> bool {
        self.with(Addition::OurNbd) || self.with(Addition::Journals)
    }

    /// Whether the volumes are exported over NBD.
    pub(crate) fn has_nbd(&self) -> bool {
        self.with(Addition::Nbd) || self.has_our_nbd() || self.with(Addition::Floods)
    }

    /// Whether there is enough memory that no command has to wait for it.
    pub(crate) fn is_roomy(&self) -> bool {
        self.server_limits.staging_bytes >= 1 << 30
            && self.limits.session_staging_bytes >= 256 << 20
    }

    /// Waits for the simulation's pause between two commands of a task.
    pub(crate) async fn pause(&self) {
        if self.is_long {
            let wait = draw(|random| random.mostly_small(1_000_000, 4_000_000_000));
            reactor::sleep(Duration::from_nanos(wait)).await;
        }
    }

    pub(crate) fn any_volume(&self) -> Rc<Volume> {
        Rc::clone(draw(|random| random.pick(&self.volumes)))
    }

    pub(crate) fn count_command(&self) {
        self.commands.set(self.commands.get() + 1);
    }
}
