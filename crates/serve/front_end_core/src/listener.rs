//! Portals: listening sockets, and accepting connections.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use reactor::{
    DatagramAddress, DatagramEndpoint, DatagramOptions, DatagramShare, Datagrams, DetachedDatagrams,
    JoinHandle, ListenOptions, Listener, Receiver, Stream, StreamOptions,
};

use crate::address::AddressBlock;
use crate::core::RunningCore;
use crate::front_end::Accepted;
use crate::log_limit::AUDIT;
use crate::logins::Logins;

/// Where a portal listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// At an address of this machine; port 0 takes a free one.
    Inet(SocketAddr),
    /// On the Unix socket of this path. Who connects there counts as 127.0.0.1, with port 0.
    Unix(PathBuf),
    /// For datagrams, which the front end [receives](crate::CoreFrontEnd::receive) itself.
    Datagrams(DatagramOptions),
}

impl ListenAddress {
    /// The address, if it is one of a network.
    pub fn inet(&self) -> Option<SocketAddr> {
        match self {
            ListenAddress::Inet(address) => Some(*address),
            ListenAddress::Unix(_) | ListenAddress::Datagrams(_) => None,
        }
    }

    /// As people are told of it: `SCHEME://ADDR:PORT`, `SCHEME+unix://PATH`, `SCHEME://INTERFACE` or
    /// `SCHEME+udp://ADDR:PORT`.
    pub fn url(&self, scheme: &str) -> String {
        match self {
            ListenAddress::Inet(address) => format!("{scheme}://{address}"),
            ListenAddress::Unix(path) => format!("{scheme}+unix://{}", path.display()),
            ListenAddress::Datagrams(DatagramOptions {
                endpoint: DatagramEndpoint::Ethernet { interface, .. },
                ..
            }) => format!("{scheme}://{interface}"),
            ListenAddress::Datagrams(DatagramOptions {
                endpoint: DatagramEndpoint::Udp(address), ..
            }) => {
                format!("{scheme}+udp://{address}")
            }
        }
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> ListenAddress {
        ListenAddress::Inet(address)
    }
}

/// `ADDR:PORT`, `unix:PATH`, the name of an interface, or `udp:ADDR:PORT`.
impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Inet(address) => address.fmt(f),
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            ListenAddress::Datagrams(options) => match &options.endpoint {
                DatagramEndpoint::Ethernet { interface, .. } => f.write_str(interface),
                DatagramEndpoint::Udp(address) => write!(f, "udp:{address}"),
            },
        }
    }
}

/// An address to listen on, and the front end whose hosts connect there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// The name of the front end ([`FrontEnd::name`](crate::FrontEnd::name)).
    pub front_end: &'static str,
    /// Where to listen.
    pub listen: ListenAddress,
    /// A number that means something to the front end: its portal group tag, at least 1, in iSCSI (RFC 7143
    /// section 4.4.1).
    pub tag: u16,
    /// What discovery says instead of the address, for targets behind address translation: `host:port`.
    pub advertise: Option<String>,
    /// How accepted connections are set up.
    pub stream: StreamOptions,
}

impl Portal {
    /// Whether a connection with the local address `local` was accepted by this portal.
    pub fn took_in(&self, local: SocketAddr) -> bool {
        self.listen.inet().is_some_and(|listen| {
            let (ip, here) = (listen.ip().to_canonical(), local.ip().to_canonical());
            // Two interfaces may have one link-local address.
            let is_here = match (listen, local) {
                (SocketAddr::V6(listen), SocketAddr::V6(local)) => {
                    ip == here && (listen.scope_id() == 0 || listen.scope_id() == local.scope_id())
                }
                _ => ip == here,
            };
            listen.port() == local.port() && (ip.is_unspecified() || is_here)
        })
    }
}

/// Refuses portals of which one is there twice, by one name or two: each frame of an interface would be taken twice. Asks the world of this
/// thread for names.
///
/// # Errors
/// The text names the portal.
pub fn each_once(portals: &[Portal]) -> io::Result<()> {
    for (index, Portal { listen, .. }) in portals.iter().enumerate() {
        if let Some(before) = portals[..index].iter().find(|before| is_same_place(&before.listen, listen)) {
            let why = match before.listen.to_string() == listen.to_string() {
                true => format!("{listen}: it is there twice; name it once"),
                false => format!(
                    "{listen}: this is the interface {} under another name; name it once",
                    before.listen
                ),
            };
            return Err(io::Error::other(why));
        }
    }
    Ok(())
}

/// Whether both are one place. Port 0 is another one each time.
fn is_same_place(one: &ListenAddress, other: &ListenAddress) -> bool {
    use DatagramEndpoint::{Ethernet, Udp};
    match (one, other) {
        (ListenAddress::Datagrams(one), ListenAddress::Datagrams(other)) => {
            match (&one.endpoint, &other.endpoint) {
                (
                    Ethernet { interface: one, ether_type: frames },
                    Ethernet { interface: other, ether_type: others },
                ) => {
                    let name = |name| reactor::world().interface_name(name);
                    frames == others && (one == other || name(one) == name(other))
                }
                (Udp(one), Udp(other)) => one == other && one.port() != 0,
                _ => false,
            }
        }
        (ListenAddress::Inet(one), ListenAddress::Inet(other)) => one == other && one.port() != 0,
        (ListenAddress::Unix(one), ListenAddress::Unix(other)) => one == other,
        _ => false,
    }
}

impl Portal {
    /// Other datagrams of a portal whose interface has failed, once it is up again: one that was removed and made anew is another.
    /// `None` if the old ones are to be tried again.
    pub async fn open_again(&self) -> Option<Box<dyn Datagrams>> {
        let ListenAddress::Datagrams(options) = &self.listen else { return None };
        loop {
            reactor::sleep(OPEN_PAUSE).await;
            // Of one port all would have to be opened again, in their order. It is bound to no interface that can go.
            if matches!(options.endpoint, DatagramEndpoint::Udp(_)) && options.share.is_some() {
                return None;
            }
            match reactor::world().datagrams(options) {
                Ok(datagrams) => return Some(datagrams),
                // The right to open one was given up since the start.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return None,
                Err(_) => {}
            }
        }
    }
}

/// The listening portals, and their connections that have not logged in.
pub(crate) struct Listeners {
    listening: Vec<Listening>,
    /// Those that are not wanted any more, until [`Listeners::set`].
    closed: Vec<Portal>,
    logins: SharedLogins,
    last_number: Cell<u32>,
}

/// A portal that is listened on.
struct Listening {
    /// As it was asked for: its port may be 0.
    wanted: Portal,
    /// With the port that was taken.
    taken: Portal,
    task: JoinHandle<()>,
    number: u32,
    /// What the cores from the second on are to receive, until they have it.
    parts: Vec<OpenedPart>,
}

/// Datagrams of a portal that a core receives which is not the first.
pub(crate) struct Receiving {
    wanted: Portal,
    task: JoinHandle<()>,
}

impl Receiving {
    /// Receives what another core has opened.
    pub(crate) fn begin(
        local: &RunningCore,
        wanted: Portal,
        number: u32,
        opened: OpenedPart,
    ) -> Option<Receiving> {
        let OpenedPart { portal, datagrams } = opened;
        let front_end = Rc::clone(local.front_end_of(&wanted)?);
        match reactor::world().adopt_datagrams(datagrams) {
            Ok(datagrams) => {
                let task = reactor::spawn(front_end.receive(portal, number, datagrams));
                Some(Receiving { wanted, task })
            }
            Err(error) => {
                tracing::error!(portal = %wanted.listen, %error, "a core cannot receive there");
                None
            }
        }
    }

    /// Whether it can go on for one of these portals.
    pub(crate) fn stays_for_any(&self, portals: &[Portal]) -> bool {
        portals.iter().any(|portal| is_same(&self.wanted, portal))
    }

    pub(crate) fn close(self) {
        self.task.abort();
    }
}

/// A portal as one core has it, on its way there.
pub(crate) struct OpenedPart {
    portal: Portal,
    datagrams: DetachedDatagrams,
}

impl Listeners {
    /// No portal yet; at most `logins` connections that have not logged in.
    pub(crate) fn new(logins: usize) -> Listeners {
        Listeners {
            listening: Vec::new(),
            closed: Vec::new(),
            logins: Rc::new(RefCell::new(Logins::new(logins))),
            last_number: Cell::new(0),
        }
    }

    /// A login is over, whatever came of it.
    pub(crate) fn forget_login(&self, number: u64) {
        self.logins.borrow_mut().remove(number);
    }

    /// Changes the limit of connections that have not logged in.
    pub(crate) fn set_limit(&self, logins: usize) {
        self.logins.borrow_mut().set_limit(logins);
    }

    /// Closes those that are none of these portals, before others may have their address. On other cores they are closed by
    /// [`RunningCore::close_but`].
    pub(crate) fn close_but(&mut self, portals: &[Portal]) {
        let all = std::mem::take(&mut self.listening);
        let (stay, gone): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|listening| portals.iter().any(|portal| listening.stays_for(portal)));
        self.listening = stay;
        self.closed.extend(gone.into_iter().map(Listening::close));
    }

    /// Listens on exactly these portals and returns their addresses. On an error, which names the portal, the
    /// previous portals stay. A portal that is unchanged stays open and loses no connection.
    pub(crate) fn set(
        &mut self,
        local: &Rc<RunningCore>,
        portals: &[Portal],
    ) -> io::Result<Vec<ListenAddress>> {
        self.close_but(portals);
        let mut before = std::mem::take(&mut self.listening);
        // Those that stay take their place again.
        let mut places: Vec<Option<Listening>> = Vec::new();
        for wanted in portals {
            let place = before.iter().position(|listening| listening.stays_for(wanted));
            places.push(place.map(|place| before.remove(place).renamed(wanted)));
        }
        // Named twice before, and once now.
        self.closed.extend(before.into_iter().map(Listening::close));
        let opened = match each_once(portals) {
            Ok(()) => self.open_missing(local, portals, places),
            Err(error) => {
                self.listening = places.into_iter().flatten().collect();
                Err(error)
            }
        };
        let closed = std::mem::take(&mut self.closed);
        if opened.is_err() {
            for portal in closed {
                match self.open(local, &portal) {
                    Ok(mut listening) => {
                        listening.hand_over(local);
                        self.listening.push(listening);
                    }
                    Err(error) => tracing::error!(%error, "cannot listen there any more"),
                }
            }
        }
        local.server().set_portals(self.listening.iter().map(|listening| listening.taken.clone()).collect());
        opened?;
        Ok(self.listening.iter().map(|listening| listening.taken.listen.clone()).collect())
    }

    /// Listens on the portals that are missing. If one cannot be listened on, those that were there stay.
    fn open_missing(
        &mut self,
        local: &Rc<RunningCore>,
        portals: &[Portal],
        mut places: Vec<Option<Listening>>,
    ) -> io::Result<()> {
        let missing: Vec<usize> = (0..places.len()).filter(|place| places[*place].is_none()).collect();
        let mut failed = None;
        for place in &missing {
            match self.open(local, &portals[*place]) {
                Ok(listening) => places[*place] = Some(listening),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if failed.is_some() {
            missing
                .iter()
                .filter_map(|place| places[*place].take())
                .for_each(|listening| drop(listening.close()));
        }
        self.listening = places.into_iter().flatten().collect();
        self.listening.iter_mut().for_each(|listening| listening.hand_over(local));
        failed.map_or(Ok(()), Err)
    }

    /// Listens on a portal for datagrams, for each core that receives there.
    fn open_datagrams(
        local: &Rc<RunningCore>,
        wanted: &Portal,
        options: &DatagramOptions,
        number: u32,
    ) -> io::Result<Listening> {
        let server = local.server();
        let shared_at = server.shares_datagrams_at(wanted.front_end).filter(|_| server.datagram_cores() > 1);
        let Some(word_at) = shared_at else {
            let datagrams = reactor::world().datagrams(options)?;
            let taken = at(wanted, options, datagrams.local());
            return Ok(Listening::receiving(
                local,
                wanted,
                [taken.clone(), taken],
                number,
                datagrams,
                Vec::new(),
            ));
        };
        let count = server.datagram_cores() as u32;
        let part = |index: u32, options: &DatagramOptions| DatagramOptions {
            receive_buffer_bytes: options
                .receive_buffer_bytes
                .map(|bytes| bytes_of_each(bytes, count as usize)),
            share: Some(DatagramShare { index, count, word_at }),
            ..options.clone()
        };
        let own = part(0, options);
        let datagrams = reactor::world().datagrams(&own)?;
        let taken = at(wanted, options, datagrams.local());
        let (own, options) = match (at(wanted, &own, datagrams.local()), &taken.listen) {
            (own, ListenAddress::Datagrams(options)) => (own, options),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let parts = (1..count).map(|index| {
            let options = part(index, options);
            let datagrams = reactor::world().detached_datagrams(&options)?;
            let portal = Portal { listen: ListenAddress::Datagrams(options), ..taken.clone() };
            Ok(OpenedPart { portal, datagrams })
        });
        let parts = parts.collect::<io::Result<Vec<OpenedPart>>>()?;
        Ok(Listening::receiving(local, wanted, [taken, own], number, datagrams, parts))
    }

    fn open(&self, local: &Rc<RunningCore>, wanted: &Portal) -> io::Result<Listening> {
        let number = self.last_number.get() + 1;
        self.last_number.set(number);
        let options = ListenOptions { stream: wanted.stream.clone() };
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", wanted.listen));
        let listener = match &wanted.listen {
            ListenAddress::Inet(address) => reactor::world().listen(*address, &options),
            ListenAddress::Unix(path) => reactor::world().listen_local(path),
            ListenAddress::Datagrams(options) => {
                // Its sentences have their remedies.
                let opened = Listeners::open_datagrams(local, wanted, options, number);
                return opened.map_err(io::Error::other).map_err(named);
            }
        };
        let listener = listener.map_err(named)?;
        let listen = wanted.listen.inet().map_or_else(|| wanted.listen.clone(), |_| listener.local().into());
        let taken = Portal { listen, ..wanted.clone() };
        let task = accept(Rc::clone(local), Rc::clone(&self.logins), taken.clone(), listener);
        Ok(Listening { wanted: wanted.clone(), taken, task: reactor::spawn(task), number, parts: Vec::new() })
    }
}

impl Listening {
    /// A portal whose datagrams this core receives; `of_this_core` is the portal as it is known here.
    fn receiving(
        local: &RunningCore,
        wanted: &Portal,
        [taken, of_this_core]: [Portal; 2],
        number: u32,
        datagrams: Box<dyn Datagrams>,
        parts: Vec<OpenedPart>,
    ) -> Listening {
        let front_end = local.front_end_of(wanted).map(Rc::clone);
        let task = reactor::spawn(async move {
            if let Some(front_end) = front_end {
                front_end.receive(of_this_core, number, datagrams).await;
            }
        });
        Listening { wanted: wanted.clone(), taken, task, number, parts }
    }

    /// Gives the other cores what they are to receive.
    fn hand_over(&mut self, local: &RunningCore) {
        let number = self.number;
        for (core, part) in (1..).zip(self.parts.drain(..)) {
            let wanted = self.wanted.clone();
            local.server().run_on(core, move |local| local.receive(wanted, number, part));
        }
    }

    /// Whether its socket can serve `wanted` without being reopened.
    fn stays_for(&self, wanted: &Portal) -> bool {
        is_same(&self.wanted, wanted)
    }

    fn renamed(mut self, wanted: &Portal) -> Listening {
        self.wanted.advertise.clone_from(&wanted.advertise);
        self.taken.advertise.clone_from(&wanted.advertise);
        self
    }

    /// Stops listening; accepted connections stay.
    fn close(self) -> Portal {
        self.task.abort();
        self.wanted
    }
}

/// Whether what one portal listens on can serve the other without being reopened.
fn is_same(one: &Portal, other: &Portal) -> bool {
    Portal { advertise: other.advertise.clone(), ..one.clone() } == *other
}

/// A portal with these options, at the port that was taken.
fn at(portal: &Portal, options: &DatagramOptions, taken: DatagramAddress) -> Portal {
    let mut options = options.clone();
    if let DatagramAddress::Udp(at) = taken {
        options.endpoint = DatagramEndpoint::Udp(at);
    }
    Portal { listen: ListenAddress::Datagrams(options), ..portal.clone() }
}

/// The receive buffer of each of so many cores where one core would have `bytes`: not less while they are few, and together not much
/// more than a few would have. What waits at one core is of its sessions alone.
fn bytes_of_each(bytes: usize, cores: usize) -> usize {
    (bytes * BUFFERS_TOGETHER / cores).clamp(bytes / BUFFERS_TOGETHER, bytes)
}

async fn accept(local: Rc<RunningCore>, logins: SharedLogins, portal: Portal, listener: Box<dyn Listener>) {
    let mut burst = 0u32;
    loop {
        match listener.try_accept() {
            Ok(stream) => {
                welcome(&local, &logins, &portal, stream);
                burst = (burst + 1) % BURST;
                if burst == 0 {
                    reactor::yield_now().await; // those that are here have a word before they must give way
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if poll_fn(|cx| listener.poll_acceptable(cx)).await.is_err() {
                    reactor::sleep(ACCEPT_PAUSE).await;
                }
            }
            Err(error) => {
                // Out of descriptors, most likely; those that end will make room.
                tracing::warn!(portal = %portal.listen, %error, "cannot accept a connection");
                reactor::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Begins the login of a connection. At the limit of its address, one that has not logged in makes room for it.
fn welcome(local: &Rc<RunningCore>, logins: &SharedLogins, portal: &Portal, stream: Box<dyn Stream>) {
    let (server, address) = (local.server(), stream.peer().ip());
    if let Some(permit) = server.admit(address) {
        return begin_login(local, logins, Accepted { portal: portal.clone(), stream, permit });
    }
    let oldest = logins.borrow_mut().take_oldest(AddressBlock::containing(address));
    let (local, logins, portal) = (Rc::clone(local), Rc::clone(logins), portal.clone());
    drop(reactor::spawn(async move {
        if let Some(login) = oldest {
            // Nothing is ever sent: the mailbox ends with the connection.
            let _: Option<()> = give_way(&local, &login).recv().await;
        }
        let server = local.server();
        match server.admit(address) {
            Some(permit) => begin_login(&local, &logins, Accepted { portal, stream, permit }),
            None if server.may_log(address) => {
                let (peer, most) = (stream.peer(), server.limits().connections_per_address);
                tracing::warn!(target: AUDIT, %peer, most, "refused: too many connections from this address");
            }
            None => {}
        }
    }));
}

/// Hands a connection to the core that takes it through its login. All cores do so by turns: the peer is a stranger, and
/// what it makes a core do (TLS, say) must not keep one core from its sessions.
fn begin_login(local: &Rc<RunningCore>, logins: &SharedLogins, accepted: Accepted) {
    let (server, peer) = (local.server(), accepted.stream.peer());
    // A server has the front ends of its portals.
    if local.front_end_of(&accepted.portal).is_none() {
        return;
    }
    let core = local.next_login_core();
    let begin = |number| {
        let Accepted { portal, stream, permit } = accepted;
        match core {
            0 => local.log_in(number, Accepted { portal, stream, permit }),
            _ => {
                let stream = stream.detach();
                server.run_on(core, move |there| match reactor::world().adopt(stream) {
                    Ok(stream) => there.log_in(number, Accepted { portal, stream, permit }),
                    Err(error) => {
                        tracing::warn!(%peer, %error, "a connection could not change threads");
                        there.forget_login(number);
                    }
                });
            }
        }
        Login { core, number, peer }
    };
    let block = AddressBlock::containing(peer.ip());
    let ended = logins.borrow_mut().add(block, begin, |block| server.has_sessions(block));
    if let Some(login) = ended {
        drop(give_way(local, &login));
    }
}

/// Ends a connection that has not logged in. The mailbox ends once it has.
fn give_way(local: &Rc<RunningCore>, login: &Login) -> Receiver<()> {
    let (gone, ends) = reactor::mailbox();
    let &Login { core, number, peer } = login;
    local.server().run_on(core, move |there| {
        if there.end_login(number) && there.server().may_log(peer.ip()) {
            let why = "it gave way to newer connections that want to log in";
            tracing::warn!(target: AUDIT, %peer, why, "login refused");
        }
        drop(gone);
    });
    ends
}

/// A connection on its way through its login.
struct Login {
    /// The core that has its task, by this number.
    core: usize,
    number: u64,
    peer: SocketAddr,
}

type SharedLogins = Rc<RefCell<Logins<Login>>>;

/// So many times the receive buffer that one core would have is for all cores together, with a part of it for each at least.
const BUFFERS_TOGETHER: usize = 4;
/// Connections accepted in a row before other tasks run.
const BURST: u32 = 16;
/// After an error of an interface nothing is tried for so long.
const OPEN_PAUSE: Duration = Duration::from_millis(100);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_with_one_link_local_address_are_portals_apart() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let portal = |listen| Portal {
            front_end: "test",
            listen: address(listen).into(),
            tag: 1,
            advertise: None,
            stream: StreamOptions::default(),
        };
        let took_in = |listen, local| portal(listen).took_in(address(local));
        assert!(took_in("[fe80::1%2]:3260", "[fe80::1%2]:3260"));
        assert!(!took_in("[fe80::1%2]:3260", "[fe80::1%3]:3260"));
        assert!(took_in("[::]:3260", "[fe80::1%3]:3260") && took_in("10.0.0.1:1", "[::ffff:10.0.0.1]:1"));
    }
}
