//! The test bed of a cell: two hosts of a lab, the link between them, and a target and a TCP peer in one of
//! the hosts. A part is rebuilt only if the setting requires this, together with the parts that depend on it.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use backends::Failure;
use bench::plan::Setting;
use bench_runner::client::{Site, lab_failure};
use host::{Epoll, EpollOptions};
use iscsi::negotiate::Offers;
use iscsi_client::Url;
use iscsi_server::Limits;
use lab::{Conditions, Counts, Direction, HostPlan, Lab, Plan};
use logical_unit::LogicalUnit;
use reactor::{ListenOptions, Receiver, Sender, StreamOptions, mailbox};

use crate::own_target::{self, OwnTarget, OwnTargetOptions};
use crate::tcp;

/// The size of the volume. It is larger than the outstanding data of any cell, and smaller than the memory of
/// most machines.
pub(crate) const VOLUME_BYTES: u64 = 256 << 20;
/// The size of the link's buffer. No cell fills it, so frames are lost only if a cell configures a loss: the
/// tables of the document are not about its "transmit and receive buffer sizes".
const BUFFER_BYTES: u64 = 64 << 20;
/// Larger windows are not set on a socket, since the machine-wide net.core.rmem_max would limit them. The
/// kernel chooses them, and the lab provides the space (`tcp_rmem`).
const SET_WINDOW_BYTES_MAX: u32 = 1 << 20;

const NAME: &str = "iqn.2026-01.io.linerate:wan";
const CLIENT: &str = "client";
const SERVER: &str = "server";
const WIRE: &str = "wire";

/// The test bed in its current state.
pub(crate) struct TestBed {
    unit: Arc<LogicalUnit>,
    wire: Option<Wire>,
    service: Option<Service>,
    /// The frame counters of wires that have been removed.
    before: Counts,
}

/// The lab, with the setting for which it was built.
struct Wire {
    lab: Arc<Lab>,
    link: LinkKey,
    way: PathKey,
}

/// A target and a TCP peer in a host of the lab.
struct Service {
    target: OwnTarget,
    peer: Peer,
    key: ServiceKey,
}

/// The rate and MTU of the link, which an interface gets when it is created.
#[derive(Clone, PartialEq)]
struct LinkKey {
    bits_per_s: f64,
    mtu: u32,
    window_bytes: Option<u32>,
}

/// The conditions that can be changed while the lab runs.
#[derive(Clone, PartialEq)]
struct PathKey {
    rtt_ms: f64,
    loss: f64,
}

/// The properties of a target that are fixed when it starts.
#[derive(Clone, PartialEq)]
struct ServiceKey {
    link: LinkKey,
    congestion: String,
    command_window: Option<u32>,
}

impl LinkKey {
    fn from_setting(setting: &Setting) -> LinkKey {
        LinkKey {
            bits_per_s: setting.link_bits_per_s,
            mtu: setting.mtu,
            window_bytes: setting.tcp_window_bytes,
        }
    }
}

impl PathKey {
    fn from_setting(setting: &Setting) -> PathKey {
        PathKey {
            rtt_ms: setting.rtt_ms,
            loss: setting.loss,
        }
    }
}

impl ServiceKey {
    fn from_setting(setting: &Setting) -> ServiceKey {
        ServiceKey {
            link: LinkKey::from_setting(setting),
            congestion: setting.congestion.clone(),
            command_window: setting.command_window,
        }
    }
}

impl TestBed {
    /// Creates a test bed with only the volume.
    pub(crate) fn new() -> Result<TestBed, Failure> {
        let unit = own_target::memory(VOLUME_BYTES)?;
        Ok(TestBed {
            unit,
            wire: None,
            service: None,
            before: Counts::default(),
        })
    }

    /// Whether no part has to be rebuilt for this setting. If a part has to be rebuilt, no client may be
    /// connected.
    pub(crate) fn fits(&self, setting: &Setting) -> bool {
        let wire = self.wire.as_ref().is_some_and(|wire| {
            (&wire.link, &wire.way)
                == (
                    &LinkKey::from_setting(setting),
                    &PathKey::from_setting(setting),
                )
        });
        wire && self
            .service
            .as_ref()
            .is_some_and(|service| service.key == ServiceKey::from_setting(setting))
    }

    /// Rebuilds the parts that do not match the setting.
    pub(crate) fn make(&mut self, setting: &Setting) -> Result<(), Failure> {
        let (link, way, key) = (
            LinkKey::from_setting(setting),
            PathKey::from_setting(setting),
            ServiceKey::from_setting(setting),
        );
        if self
            .service
            .as_ref()
            .is_some_and(|service| service.key != key)
        {
            self.end_service()?;
        }
        if let Some(old) = self.wire.take_if(|wire| wire.link != link) {
            self.before += &counts(&old.lab)?;
        }
        let wire = match self.wire.take() {
            Some(wire) if wire.way != way => {
                let on = wire
                    .lab
                    .link(WIRE)
                    .and_then(|on| on.set(Direction::Both, &conditions(setting)));
                on.map_err(lab_failure)?;
                Wire { way, ..wire }
            }
            Some(wire) => wire,
            None => Wire {
                lab: Arc::new(built(setting)?),
                link,
                way,
            },
        };
        if self.service.is_none() {
            self.service = Some(self.served(&wire.lab, setting, key)?);
        }
        self.wire = Some(wire);
        Ok(())
    }

    fn served(
        &self,
        lab: &Arc<Lab>,
        setting: &Setting,
        key: ServiceKey,
    ) -> Result<Service, Failure> {
        let address = lab.host(SERVER).map_err(lab_failure)?.address();
        let site = Site::Host {
            lab: Arc::clone(lab),
            name: SERVER.to_owned(),
        };
        let listen = SocketAddr::new(address, 0);
        let usual = Limits::default();
        let options = OwnTargetOptions {
            name: NAME,
            listen,
            unit: Arc::clone(&self.unit),
            stream: stream(setting),
            by_all_protocols: false,
            limits: Limits {
                window: setting.command_window.unwrap_or(usual.window),
                ..usual
            },
            epoll: EpollOptions {
                spin: SPIN,
                ..EpollOptions::default()
            },
        };
        let target = OwnTarget::start(options, &site)?;
        Ok(Service {
            target,
            peer: Peer::start(listen, stream(setting), &site)?,
            key,
        })
    }

    fn end_service(&mut self) -> Result<(), Failure> {
        self.service
            .take()
            .map_or(Ok(()), |service| service.target.stop())
    }

    /// Returns the host of the lab in which clients run.
    pub(crate) fn client(&self) -> Option<Site> {
        let lab = Arc::clone(&self.wire.as_ref()?.lab);
        Some(Site::Host {
            lab,
            name: CLIENT.to_owned(),
        })
    }

    /// Returns the address of the peer for plain TCP.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.service.as_ref().map(|service| service.peer.address)
    }

    /// Returns the URL of the volume, with the keys of this setting.
    pub(crate) fn url(&self, setting: &Setting) -> Result<Option<Url>, Failure> {
        let (Some(service), Some(keys)) = (&self.service, setting.way.keys()) else {
            return Ok(None);
        };
        let mut url = Url::parse(&service.target.url()).map_err(Failure::failed)?;
        url.settings.offers = Offers {
            immediate_data: keys.immediate_data,
            initial_r2t: keys.initial_r2t,
            first_burst_length: keys.first_burst_bytes,
            max_burst_length: keys.max_burst_bytes,
            max_recv_data_segment_length: keys.initiator_segment_bytes,
            max_outstanding_r2t: keys.outstanding_r2ts,
            max_connections: setting.connections.clamp(1, 8),
            ..url.settings.offers
        };
        url.settings.stream = stream(setting);
        Ok(Some(url))
    }

    /// Returns the frame counters of the lab's links.
    pub(crate) fn counts(&self) -> Result<Counts, Failure> {
        let mut all = self.before.clone();
        if let Some(wire) = &self.wire {
            all += &counts(&wire.lab)?;
        }
        Ok(all)
    }
}

/// Clients do not poll. Two hosts, two ends and a wire share the CPUs, and polling would take CPU time from
/// the others.
pub(crate) const SPIN: Duration = Duration::ZERO;

/// Checks that the machine and the user meet the requirements of a lab, before a result is started.
pub fn can_be_made() -> Result<(), Failure> {
    Lab::build(&Plan::pair(Conditions::default()))
        .map(drop)
        .map_err(lab_failure)
}

fn counts(lab: &Lab) -> Result<Counts, Failure> {
    lab.link(WIRE)
        .map(|link| link.counts())
        .map_err(lab_failure)
}

fn built(setting: &Setting) -> Result<Lab, Failure> {
    let mut plan = Plan::pair(conditions(setting));
    plan.hosts
        .iter_mut()
        .for_each(|host| prepare(host, setting));
    Lab::build(&plan).map_err(lab_failure)
}

fn prepare(host: &mut HostPlan, setting: &Setting) {
    host.congestion.clone_from(&setting.congestion);
    // Without this setting, a connection that was idle between two requests or two cells would restart with
    // ten packets.
    host.sysctls.push((
        "net.ipv4.tcp_slow_start_after_idle".to_owned(),
        "0".to_owned(),
    ));
    if let Some(window) = setting
        .tcp_window_bytes
        .filter(|window| *window > SET_WINDOW_BYTES_MAX)
    {
        // The kernel uses half of a receive buffer for its own data structures.
        let room = format!("4096 131072 {}", 2 * u64::from(window));
        host.sysctls.push(("net.ipv4.tcp_rmem".to_owned(), room));
    }
}

fn conditions(setting: &Setting) -> Conditions {
    Conditions {
        bits_per_s: Some(setting.link_bits_per_s),
        // If a record contains an invalid time, use one that exceeds the lab's maximum, so that the lab
        // rejects it.
        delay: Duration::try_from_secs_f64(setting.rtt_ms / 2e3).unwrap_or(Duration::MAX),
        loss: setting.loss,
        mtu: setting.mtu,
        buffer_bytes: BUFFER_BYTES,
        ..Conditions::default()
    }
}

/// Returns the options of the sockets at both ends.
pub(crate) fn stream(setting: &Setting) -> StreamOptions {
    let window = setting
        .tcp_window_bytes
        .filter(|window| *window <= SET_WINDOW_BYTES_MAX);
    StreamOptions {
        congestion: Some(setting.congestion.clone()),
        receive_buffer_bytes: window.map(|bytes| bytes as usize),
        ..StreamOptions::default()
    }
}

/// A peer for plain TCP, which serves until it is dropped.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// The thread ends when all senders have been dropped.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    /// Starts a peer on the network of this site.
    pub(crate) fn start(
        listen: SocketAddr,
        stream: StreamOptions,
        site: &Site,
    ) -> Result<Peer, Failure> {
        let (alive, end) = mailbox();
        let (tell, bound) = mpsc::channel();
        let site = site.clone();
        let main = move || {
            let ran = site
                .run(|| serve(listen, stream, end, &tell))
                .and_then(|served| served);
            // If the receiver has already received the address, this error is discarded.
            let _ = ran.map_err(|failure| tell.send(Err(failure)));
        };
        let thread = thread::Builder::new()
            .name("peer".to_owned())
            .spawn(main)
            .map_err(Failure::failed)?;
        let address = bound
            .recv()
            .map_err(|_| Failure::failed("the peer did not start"))??;
        Ok(Peer {
            address,
            alive: Some(alive),
            thread: Some(thread),
        })
    }
}

fn serve(
    listen: SocketAddr,
    stream: StreamOptions,
    mut end: Receiver<()>,
    tell: &mpsc::Sender<Result<SocketAddr, Failure>>,
) -> Result<(), Failure> {
    let world = Epoll::shared(EpollOptions::default()).map_err(Failure::failed)?;
    reactor::block_on(world, async {
        let listener = reactor::world().listen(listen, &ListenOptions { stream });
        let listener = listener
            .map_err(|error| Failure::failed(format_args!("cannot listen on {listen}: {error}")))?;
        // Sending fails only if the receiver was dropped.
        let _ = tell.send(Ok(listener.local()));
        let answering = reactor::spawn(async move { tcp::keep(&*listener).await });
        end.recv().await;
        answering.abort();
        Ok(())
    })
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.alive = None;
        // A thread that panicked has already reported the reason.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
