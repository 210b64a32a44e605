//! Finds out how to reach a target: the local datagram endpoints, the target's addresses, and the maximum
//! frame length.
//!
//! A login must be sent to a single MAC address, because other servers on the same Ethernet would reject a
//! target name that they do not have. Therefore, a discovery request is first broadcast in all frame lengths
//! that the interface supports. The replies show which stations have the target, and which lengths arrive
//! there. The login verifies the lengths in the opposite direction.

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{io, mem};

use derive_more::Display;
use hyperscsi::initiator::EndReason;
use hyperscsi::{
    ETHERTYPE, FRAME_BYTES_MAX, FRAME_BYTES_MIN, Frame, Initiator, PATHS_MAX, Refusal, SESSION_AT,
    discovery,
};
use reactor::{
    DatagramAddress, DatagramBatch, DatagramEndpoint, DatagramOptions, DatagramRing, Datagrams,
    MacAddress, OutDatagram, OutSlice, Sleep,
};

use crate::url::{Options, Place, UdpHost};

/// Why a LUN could not be opened.
#[derive(Debug, Display)]
pub enum OpenError {
    /// An interface or socket cannot be used.
    #[display("{_0}")]
    Interface(io::Error),
    /// The host name could not be resolved.
    #[display("{host}: {error}")]
    Resolve {
        /// The host.
        host: String,
        /// The resolver's error.
        error: io::Error,
    },
    /// The host name exists, but has no address.
    #[display("{_0} has no address")]
    NoAddress(String),
    /// The file with the key cannot be read.
    #[display("the key in {} cannot be used: {error}", path.display())]
    Key {
        /// The key file.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
    /// No target replied.
    #[display("no HyperSCSI target responded at {place} within {} s", time.as_secs_f64())]
    Silent {
        /// The place that was searched.
        place: String,
        /// The time waited.
        time: Duration,
    },
    /// Only other targets replied.
    #[display("no target {target} responded at {place}; there {} {}", if names.len() == 1 { "is" } else { "are" }, names.join(", "))]
    Elsewhere {
        /// The target searched for.
        target: String,
        /// The place that was searched.
        place: String,
        /// The names of the targets there.
        names: Vec<String>,
    },
    /// The target rejected the login.
    #[display("{target}: {}", refused(*refusal, *has_key, name))]
    Refused {
        /// The target.
        target: String,
        /// The reason.
        refusal: Refusal,
        /// Whether a key was given.
        has_key: bool,
        /// The initiator's name.
        name: String,
    },
    /// The login failed.
    #[display("{target}: {reason}")]
    Login {
        /// The target.
        target: String,
        /// The reason.
        reason: EndReason,
    },
    /// The LUN cannot be used.
    #[display("{_0}")]
    Lun(iscsi_client::OpenError),
}

impl std::error::Error for OpenError {}

fn refused(refusal: Refusal, has_key: bool, name: &str) -> String {
    match refusal {
        Refusal::Authentication if has_key => {
            format!(
                "the target rejected the key of {name}: it has a different key for this name, or none \
                 (key=FILE, name=NAME)"
            )
        }
        Refusal::Authentication => {
            format!(
                "the target requires a key for {name}; specify a file that contains it (key=FILE)"
            )
        }
        Refusal::UnknownTarget => {
            format!("the target does not exist, or {name} has no access to it (name=NAME)")
        }
        other => other.to_string(),
    }
}

/// A function that fills bytes with random numbers.
pub type Random = fn(&mut [u8]);

/// Interval between discovery requests.
const AGAIN: Duration = Duration::from_millis(250);
/// Time to wait for more replies after the first. Further stations of the target may reply, and the
/// replies to longer frames may arrive later.
const GATHER: Duration = Duration::from_millis(50);
/// Time without a reply after which a login to a host is tried anyway, because a host need not report that it
/// has the target.
const SILENCE: Duration = Duration::from_secs(1);
/// If other targets have replied within this time and the wanted target has not, the wanted target is not
/// there.
const ELSEWHERE: Duration = Duration::from_secs(2);
/// Size of the receive buffer: enough for the full windows of all paths.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// The size of the receive ring: four windows, in kernel memory. A ring reduces the latency of a single
/// request by a quarter to a half, because frames are received without a system call.
const RING: DatagramRing = DatagramRing {
    payload_bytes: FRAME_BYTES_MAX,
    places_max: 1024,
};
/// Maximum number of frames sent in one call.
pub(crate) const BATCH: usize = 64;
/// Maximum number of replying stations that are recorded.
const STATIONS_MAX: usize = 256;

/// The Ethernet payload that every network interface supports.
const ETHERNET: u16 = 1500;

/// Endpoints, and the paths of a session over them.
pub(crate) struct Link {
    pub(crate) endpoints: Vec<Box<dyn Datagrams>>,
    /// Indexed by path number.
    pub(crate) routes: Vec<Route>,
    /// Frame lengths to try in a login, in this order.
    pub(crate) sizes: Vec<u16>,
}

impl Link {
    /// The local and the remote address of each path.
    pub(crate) fn ends(&self) -> Vec<(DatagramAddress, DatagramAddress)> {
        self.routes
            .iter()
            .map(|route| (self.endpoints[route.endpoint].local(), route.to))
            .collect()
    }
}

/// A path from an endpoint to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) endpoint: usize,
    pub(crate) to: DatagramAddress,
}

/// Targets that replied from one address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// The place queried: an interface, or a host with its port.
    pub asked: String,
    /// The replying address.
    pub from: DatagramAddress,
    /// The targets' names.
    pub targets: Vec<String>,
}

/// Queries all targets. Returns the targets that reply within `time`, in order.
///
/// # Errors
/// An interface cannot be used, or a host has no address.
pub async fn discover(
    place: &Place,
    time: Duration,
    random: Random,
) -> Result<Vec<Found>, OpenError> {
    let mut search = Search::open(place, &Options::default(), random).await?;
    search.run(time, |_, _| false).await;
    let asked = |endpoint: usize| match place {
        Place::Ethernet(interfaces) => interfaces.get(endpoint).cloned(),
        Place::Udp(hosts) => hosts.get(endpoint).map(UdpHost::to_string),
    };
    let found = search.stations.into_iter().map(|station| Found {
        asked: asked(search.places[station.route.endpoint]).unwrap_or_default(),
        from: station.route.to,
        targets: station.targets,
    });
    let mut found: Vec<Found> = found.collect();
    found.sort();
    Ok(found)
}

/// Finds the stations of a target, and the frame lengths that arrive there.
pub(crate) async fn find(
    place: &Place,
    target: &str,
    options: &Options,
    time: Duration,
    random: Random,
) -> Result<Link, OpenError> {
    let mut search = Search::open(place, options, random).await?;
    let is_named = matches!(place, Place::Udp(_)) || !options.stations.is_empty();
    let begun = reactor::now();
    // A host that the URL names need not reply to a discovery request.
    let silence = if is_named { SILENCE.min(time) } else { time };
    let mut first = None;
    search
        .run(time, |search, now| {
            let found = search.of(target).count();
            if found > 0 || is_named && !search.stations.is_empty() {
                let since = *first.get_or_insert(now);
                return search.is_complete(target, is_named) || now >= since + GATHER;
            }
            let is_elsewhere = !search.stations.is_empty() && now >= begun + ELSEWHERE;
            is_elsewhere || now >= begun + silence
        })
        .await;
    search.link(place, target, is_named, time)
}

/// A discovery in progress.
struct Search {
    endpoints: Vec<Box<dyn Datagrams>>,
    /// For each endpoint, the index of its interface or host.
    places: Vec<usize>,
    /// The addresses to query.
    asked: Vec<Route>,
    /// Frame lengths, the longest first.
    sizes: Vec<u16>,
    /// The nonces of the queries, one for each frame length.
    nonces: Vec<u64>,
    stations: Vec<Station>,
}

/// An address that has replied.
struct Station {
    route: Route,
    targets: Vec<String>,
    /// For each frame length, whether a query of this length has arrived at the station.
    sizes: Vec<bool>,
}

impl Search {
    async fn open(place: &Place, options: &Options, random: Random) -> Result<Search, OpenError> {
        let (mut endpoints, mut places, mut asked) = (Vec::new(), Vec::new(), Vec::new());
        let mut longest = u16::MAX;
        let mut sizes = Vec::new();
        match place {
            Place::Ethernet(interfaces) => {
                let mut failure = None;
                // An interface that is specified twice, possibly by different names, is one path. Otherwise
                // each frame would arrive twice.
                let mut names = BTreeSet::new();
                for (index, interface) in interfaces.iter().enumerate() {
                    let interface = reactor::world().interface_name(interface);
                    if !names.insert(interface.clone()) {
                        continue;
                    }
                    let endpoint = DatagramEndpoint::Ethernet {
                        interface,
                        ether_type: ETHERTYPE,
                    };
                    match open(endpoint) {
                        Ok(endpoint) => {
                            longest = longest.min(
                                u16::try_from(endpoint.payload_bytes_max()).unwrap_or(u16::MAX),
                            );
                            let stations = options.stations.iter().copied();
                            let stations: Vec<MacAddress> = match options.stations.is_empty() {
                                true => vec![MacAddress::BROADCAST],
                                false => stations.collect(),
                            };
                            let to = |station| Route {
                                endpoint: endpoints.len(),
                                to: DatagramAddress::Ethernet(station),
                            };
                            for route in stations.into_iter().map(to) {
                                if !asked.contains(&route) {
                                    asked.push(route);
                                }
                            }
                            places.push(index);
                            endpoints.push(endpoint);
                        }
                        Err(error) => failure = Some(error),
                    }
                }
                match failure {
                    Some(error) if endpoints.is_empty() => return Err(OpenError::Interface(error)),
                    Some(error) => tracing::warn!("a path is not used: {error}"),
                    None => {}
                }
                sizes.extend([longest.min(FRAME_BYTES_MAX as u16), ETHERNET]);
            }
            Place::Udp(hosts) => {
                for (index, host) in hosts.iter().enumerate() {
                    let to = resolve(host).await?;
                    if asked
                        .iter()
                        .any(|route: &Route| route.to == DatagramAddress::Udp(to))
                    {
                        continue; // a host that is specified twice is one path
                    }
                    let any: IpAddr = match to {
                        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                    };
                    let endpoint = open(DatagramEndpoint::Udp(SocketAddr::new(any, 0)))
                        .map_err(OpenError::Interface)?;
                    // Excluding UDP and IP headers.
                    let headers = if to.is_ipv4() { 28 } else { 48 };
                    // The lengths for loopback, for jumbo frames, and for any Ethernet.
                    sizes.extend([FRAME_BYTES_MAX as u16, 9000 - headers, ETHERNET - headers]);
                    asked.push(Route {
                        endpoint: endpoints.len(),
                        to: DatagramAddress::Udp(to),
                    });
                    places.push(index);
                    endpoints.push(endpoint);
                }
            }
        }
        sizes.push(FRAME_BYTES_MIN as u16);
        sizes.extend(options.frame);
        let longest = longest.min(options.frame.unwrap_or(u16::MAX));
        sizes.retain(|size| *size <= longest);
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.dedup();
        let mut bytes = [0; 8];
        random(&mut bytes);
        let nonce = u64::from_be_bytes(bytes);
        debug_assert_eq!(places.len(), endpoints.len(), "each endpoint has its place");
        let nonces = (0..sizes.len() as u64)
            .map(|index| nonce.wrapping_add(index))
            .collect();
        Ok(Search {
            endpoints,
            places,
            asked,
            sizes,
            nonces,
            stations: Vec::new(),
        })
    }

    /// Repeats the query until `is_enough` returns true or the time has passed.
    async fn run(
        &mut self,
        time: Duration,
        mut is_enough: impl FnMut(&Search, std::time::Instant) -> bool,
    ) {
        let end = reactor::now() + time;
        let longest = self
            .sizes
            .first()
            .map_or(FRAME_BYTES_MIN, |size| usize::from(*size));
        let mut batch = DatagramBatch::new(BATCH, longest);
        let mut ask_at = reactor::now();
        loop {
            let now = reactor::now();
            if now >= end || is_enough(self, now) {
                return;
            }
            if now >= ask_at {
                self.ask();
                ask_at = now + AGAIN;
            }
            let wait = ask_at
                .min(now + GATHER)
                .min(end)
                .saturating_duration_since(now);
            let arrived = poll_fn(|cx| {
                let mut is_ready = false;
                for endpoint in &self.endpoints {
                    is_ready |= endpoint.poll_receivable(cx).is_ready(); // polls all of them
                }
                if is_ready {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            });
            if reactor::timeout(wait, arrived).await.is_ok() {
                self.receive(&mut batch);
                reactor::yield_now().await; // enforces the timeout, whatever arrives
            }
        }
    }

    /// Sends the query in all frame lengths. A length that an endpoint rejects is dropped.
    fn ask(&mut self) {
        let mut refused = vec![false; self.sizes.len()];
        for route in &self.asked {
            for (index, (size, nonce)) in self.sizes.iter().zip(&self.nonces).enumerate() {
                let mut frame = discovery::question(*nonce);
                frame.resize(usize::from(*size), 0);
                let payload = [OutSlice::Bytes(&frame)];
                let sent = self.endpoints[route.endpoint].try_send(&[OutDatagram {
                    to: route.to,
                    payload: &payload,
                }]);
                // A query that fails for another reason gets no reply, and is repeated.
                refused[index] |=
                    sent.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput);
            }
        }
        if refused.iter().all(|refused| *refused) {
            return; // keep the shortest length
        }
        let mut refused = refused.iter();
        let keep: Vec<bool> =
            std::iter::from_fn(|| refused.next().map(|refused| !refused)).collect();
        retain(&mut self.sizes, &keep);
        retain(&mut self.nonces, &keep);
        self.stations
            .iter_mut()
            .for_each(|station| retain(&mut station.sizes, &keep));
    }

    fn receive(&mut self, batch: &mut DatagramBatch) {
        for endpoint in 0..self.endpoints.len() {
            let Ok(received) = self.endpoints[endpoint].try_receive(batch) else {
                continue;
            };
            for index in 0..received {
                if let Some((to, frame)) = batch.get_mut(index) {
                    self.take(Route { endpoint, to }, frame);
                }
            }
        }
    }

    fn take(&mut self, route: Route, frame: &mut [u8]) {
        let is_asked = |asked: &Route| {
            asked.endpoint == route.endpoint
                && (asked.to == route.to
                    || asked.to == DatagramAddress::Ethernet(MacAddress::BROADCAST))
        };
        if !self.asked.iter().any(is_asked) {
            return;
        }
        let answered = self.nonces.iter().enumerate();
        let answered = answered
            .filter_map(|(index, nonce)| Some((index, discovery::answered(*nonce, frame)?)))
            .next();
        let Some((size, targets)) = answered else {
            return;
        };
        let has_room = self.stations.len() < STATIONS_MAX;
        match self
            .stations
            .iter_mut()
            .find(|station| station.route == route)
        {
            Some(station) => {
                station.sizes[size] = true;
                let new = targets
                    .into_iter()
                    .filter(|name| !station.targets.contains(name));
                let new: Vec<String> = new.collect();
                station.targets.extend(new);
            }
            None if has_room => {
                let mut sizes = vec![false; self.sizes.len()];
                sizes[size] = true;
                self.stations.push(Station {
                    route,
                    targets,
                    sizes,
                });
            }
            None => {}
        }
    }

    fn of<'a>(&'a self, target: &'a str) -> impl Iterator<Item = &'a Station> {
        self.stations
            .iter()
            .filter(move |station| station.targets.iter().any(|name| name == target))
    }

    /// Whether the discovery is complete: every endpoint reaches the target, and queries of every length have
    /// arrived there.
    fn is_complete(&self, target: &str, is_named: bool) -> bool {
        let all = |station: &&Station| station.sizes.iter().all(|arrived| *arrived);
        let of_endpoint = |endpoint: usize| {
            let mut stations = self.stations.iter().filter(|station| {
                station.route.endpoint == endpoint
                    && (is_named || station.targets.iter().any(|name| name == target))
            });
            stations.any(|station| all(&station))
        };
        (0..self.endpoints.len()).all(of_endpoint)
    }

    fn link(
        self,
        place: &Place,
        target: &str,
        is_named: bool,
        time: Duration,
    ) -> Result<Link, OpenError> {
        let found: Vec<&Station> = self.of(target).collect();
        let routes: Vec<Route> = match is_named {
            true => self.asked.clone(),
            false => found.iter().map(|station| station.route).collect(),
        };
        if routes.is_empty() {
            let place = format!("{}://{place}", place.scheme());
            let mut names: Vec<String> = self
                .stations
                .into_iter()
                .flat_map(|station| station.targets)
                .collect();
            names.sort();
            names.dedup();
            return Err(match names.is_empty() {
                true => OpenError::Silent { place, time },
                false => OpenError::Elsewhere {
                    target: target.to_owned(),
                    place,
                    names,
                },
            });
        }
        let answered: Vec<&Station> = match found.is_empty() {
            true => self.stations.iter().collect(),
            false => found,
        };
        // The longest frame length that has arrived at all stations that replied.
        let arrived = |size: &usize| answered.iter().all(|station| station.sizes[*size]);
        let best = (0..self.sizes.len())
            .find(|size| !answered.is_empty() && arrived(size))
            .unwrap_or(0);
        let sizes = self.sizes[best..].to_vec();
        let routes: Vec<Route> = routes.into_iter().take(PATHS_MAX).collect();
        debug_assert!(
            (1..routes.len()).all(|at| !routes[..at].contains(&routes[at])),
            "no path is used twice"
        );
        Ok(Link {
            endpoints: self.endpoints,
            routes,
            sizes,
        })
    }
}

fn retain<T>(values: &mut Vec<T>, keep: &[bool]) {
    debug_assert_eq!(
        values.len(),
        keep.len(),
        "there is a value for each frame length"
    );
    let mut keep = keep.iter();
    values.retain(|_| keep.next().copied().unwrap_or(true));
}

fn open(endpoint: DatagramEndpoint) -> io::Result<Box<dyn Datagrams>> {
    let options = DatagramOptions {
        endpoint,
        receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES),
        ring: Some(RING),
        payload_bytes_min: FRAME_BYTES_MIN,
        share: None,
    };
    reactor::world().datagrams(&options)
}

/// Resolves a host to its first address.
async fn resolve(host: &UdpHost) -> Result<SocketAddr, OpenError> {
    let addresses = reactor::resolve(&host.host, host.port).await;
    let addresses = addresses.map_err(|error| OpenError::Resolve {
        host: host.host.clone(),
        error,
    })?;
    addresses
        .first()
        .copied()
        .ok_or_else(|| OpenError::NoAddress(host.host.clone()))
}

// Drives a state machine: passes received frames to it, and sends its frames through the endpoints of its
// paths.

/// Maximum number of batches sent in one turn. Only one batch is received per turn, so that its frames are
/// acknowledged, and requesters continue, while more frames arrive.
const ROUNDS: usize = 16;

/// Maximum number of frames queued for a blocked endpoint. Further frames are dropped, and count as lost in
/// transit.
const WAITING_MAX: usize = 1024;

/// Drives a state machine over the endpoints of a link.
pub(crate) struct Driver {
    link: Link,
    batch: DatagramBatch,
    /// Queued frames by endpoint, so that a blocked endpoint does not delay the others.
    outgoing: Vec<Outgoing>,
    spare: Vec<Frame>,
    timer: Option<Sleep>,
    /// Endpoints whose failure has been reported.
    has_failed: Vec<bool>,
    /// The session whose frames the endpoints receive, in addition to frames that belong to no session;
    /// `None` until the endpoints are configured.
    receives: Option<Option<u32>>,
}

/// Queued frames of an endpoint.
#[derive(Default)]
struct Outgoing {
    frames: VecDeque<(DatagramAddress, Frame)>,
    /// Whether the endpoint is blocked in this turn.
    is_blocked: bool,
}

impl Driver {
    pub(crate) fn new(link: Link) -> Driver {
        let longest = link
            .sizes
            .iter()
            .copied()
            .max()
            .unwrap_or(FRAME_BYTES_MIN as u16);
        debug_assert!(
            link.routes
                .iter()
                .all(|route| route.endpoint < link.endpoints.len()),
            "each path leaves through an endpoint"
        );
        Driver {
            batch: DatagramBatch::new(BATCH, usize::from(longest)),
            outgoing: link.endpoints.iter().map(|_| Outgoing::default()).collect(),
            spare: Vec::new(),
            timer: None,
            has_failed: vec![false; link.endpoints.len()],
            receives: None,
            link,
        }
    }

    /// Passes received frames to the state machine.
    pub(crate) fn receive(&mut self, machine: &mut Initiator, now: Instant, cx: &mut Context<'_>) {
        for endpoint in 0..self.link.endpoints.len() {
            if self.link.endpoints[endpoint]
                .poll_receivable(cx)
                .is_pending()
            {
                continue;
            }
            let routes = &self.link.routes;
            let mut take = |from: DatagramAddress, frame: &mut [u8]| {
                if routes
                    .iter()
                    .any(|route| route.endpoint == endpoint && route.to == from)
                {
                    machine.handle_frame(now, frame);
                }
            };
            match self.link.endpoints[endpoint].receive_each(&mut self.batch, &mut take) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    self.note_failure(endpoint, &error);
                    cx.waker().wake_by_ref();
                }
                // The remaining frames wait for the next turn.
                _ if self.link.endpoints[endpoint].poll_receivable(cx).is_ready() => {
                    cx.waker().wake_by_ref()
                }
                _ => {}
            }
        }
        self.choose(machine.session());
    }

    /// Makes the endpoints receive only the frames of this session. Without the filter, every socket on an
    /// interface would also receive the frames of other sessions, which have their own sockets.
    fn choose(&mut self, session: Option<u32>) {
        if self.receives.replace(session) == Some(session) {
            return;
        }
        let words: Vec<u32> = session.into_iter().chain([0]).collect();
        for endpoint in &self.link.endpoints {
            if let Err(error) = endpoint.take_only(SESSION_AT, &words) {
                tracing::debug!(local = %endpoint.local(), %error, "frames of other sessions are also received");
            }
        }
    }

    /// Sends the state machine's frames until an endpoint has no more space.
    pub(crate) fn transmit(&mut self, machine: &mut Initiator, now: Instant, cx: &mut Context<'_>) {
        self.outgoing
            .iter_mut()
            .for_each(|outgoing| outgoing.is_blocked = false);
        for _ in 0..ROUNDS {
            self.fill(machine, now);
            let mut is_over = true;
            for endpoint in 0..self.outgoing.len() {
                let outgoing = &self.outgoing[endpoint];
                if !outgoing.is_blocked && !outgoing.frames.is_empty() {
                    self.send(endpoint, cx);
                    is_over = false;
                }
            }
            if is_over {
                return;
            }
        }
        cx.waker().wake_by_ref();
    }

    /// Fetches frames from the state machine until there is a batch for endpoints that are not blocked;
    /// frames for blocked endpoints are queued. If all endpoints are blocked, fetches all frames: the state
    /// machine advances its deadlines only when due frames have been fetched.
    fn fill(&mut self, machine: &mut Initiator, now: Instant) {
        let ready = self.outgoing.iter().filter(|outgoing| !outgoing.is_blocked);
        let mut ready: usize = ready.map(|outgoing| outgoing.frames.len()).sum();
        while ready < BATCH {
            let mut frame = self.spare.pop().unwrap_or_default();
            let Some(path) = machine.poll_frame(now, &mut frame) else {
                return self.give_back(frame);
            };
            let route = self.link.routes.get(usize::from(path));
            match route.map(|route| (route.to, &mut self.outgoing[route.endpoint])) {
                Some((to, outgoing)) if outgoing.frames.len() < WAITING_MAX => {
                    outgoing.frames.push_back((to, frame));
                    ready += usize::from(!outgoing.is_blocked);
                }
                _ => self.give_back(frame),
            }
        }
    }

    fn give_back(&mut self, mut frame: Frame) {
        frame.clear(); // do not keep message data after the message has ended
        if self.spare.len() < BATCH {
            self.spare.push(frame);
        }
    }

    /// Sends the first frames of an endpoint, or marks it as blocked.
    fn send(&mut self, endpoint: usize, cx: &mut Context<'_>) {
        let first = self.outgoing[endpoint].frames.iter().take(BATCH);
        let slices: Vec<OutSlice<'_>> = first
            .clone()
            .flat_map(|(_, frame)| frame.pieces())
            .map(OutSlice::Bytes)
            .collect();
        let mut rest = &slices[..];
        let datagrams: Vec<OutDatagram<'_>> = first
            .map(|(to, frame)| {
                let (payload, behind) = rest.split_at(frame.pieces().count());
                rest = behind;
                OutDatagram { to: *to, payload }
            })
            .collect();
        debug_assert!(rest.is_empty(), "each piece belongs to a frame");
        let gone = match self.link.endpoints[endpoint].try_send(&datagrams) {
            Ok(sent) => {
                self.has_failed[endpoint] = false;
                sent
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let is_ready = self.link.endpoints[endpoint].poll_sendable(cx).is_ready();
                self.outgoing[endpoint].is_blocked = !is_ready;
                return;
            }
            // The frames count as lost in transit, which the state machine handles.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => 1,
            Err(error) => {
                let all = datagrams.len();
                self.note_failure(endpoint, &error);
                all
            }
        };
        for _ in 0..gone {
            let Some((_, frame)) = self.outgoing[endpoint].frames.pop_front() else {
                break;
            };
            self.give_back(frame);
        }
    }

    fn note_failure(&mut self, endpoint: usize, error: &io::Error) {
        if !mem::replace(&mut self.has_failed[endpoint], true) {
            tracing::warn!(local = %self.link.endpoints[endpoint].local(), %error, "a path has failed");
        }
    }

    /// Wakes the task at this time, or slightly earlier.
    pub(crate) fn wait_until(&mut self, at: Option<Instant>, cx: &mut Context<'_>) {
        let Some(at) = at else { return };
        let timer = match self.timer.take() {
            Some(timer) if timer.deadline() <= at => timer,
            _ => reactor::sleep_until(at),
        };
        if Pin::new(self.timer.insert(timer)).poll(cx).is_ready() {
            self.timer = None;
            cx.waker().wake_by_ref();
        }
    }
}
