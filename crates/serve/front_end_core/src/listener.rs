//! Listening sockets, and the accepted connections that have not logged in yet. The number of these
//! connections is limited, and a new one may evict an older one.
//!
//! A connection is never refused, because otherwise a peer that opens connections and sends nothing could
//! lock out other hosts. At the limit, the oldest connection of the address with the most connections is
//! closed, so a flood from one address evicts its own connections. Addresses that have sessions are evicted
//! last, so that they can add connections and reinstate sessions.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use reactor::{
    DatagramAddress, DatagramEndpoint, DatagramOptions, DatagramShare, Datagrams,
    DetachedDatagrams, JoinHandle, ListenOptions, Listener, Receiver, Stream,
};

use crate::address::AddressBlock;
use crate::front_end::Accepted;
use crate::log_limit::AUDIT;
use crate::portal::{ListenAddress, Portal, each_once};
use crate::server::RunningCore;

/// The listening portals, and their connections that have not logged in.
pub(crate) struct Listeners {
    listening: Vec<Listening>,
    /// Portals that were closed because the new configuration does not contain them, until
    /// [`Listeners::set`].
    closed: Vec<Portal>,
    logins: SharedLogins,
    last_number: Cell<u32>,
}

/// A listening portal.
struct Listening {
    /// The portal as configured; its port may be 0.
    wanted: Portal,
    /// The portal with its actual port.
    taken: Portal,
    task: JoinHandle<()>,
    number: u32,
    /// The sockets for the other cores, until they are passed to those cores.
    parts: Vec<OpenedPart>,
}

/// Receives the datagrams of a portal on a core other than the first.
pub(crate) struct Receiving {
    wanted: Portal,
    task: JoinHandle<()>,
}

impl Receiving {
    /// Receives from a socket that another core has opened.
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

    /// Whether this socket can continue to serve one of these portals.
    pub(crate) fn stays_for_any(&self, portals: &[Portal]) -> bool {
        portals.iter().any(|portal| self.wanted.stays_for(portal))
    }

    pub(crate) fn close(self) {
        self.task.abort();
    }
}

/// A core's socket for a portal, during its transfer to the core.
pub(crate) struct OpenedPart {
    portal: Portal,
    datagrams: DetachedDatagrams,
}

impl Listeners {
    /// Creates the listeners, without portals. Up to `logins` connections may be logging in.
    pub(crate) fn new(logins: usize) -> Listeners {
        Listeners {
            listening: Vec::new(),
            closed: Vec::new(),
            logins: Rc::new(RefCell::new(Logins::new(logins))),
            last_number: Cell::new(0),
        }
    }

    /// Removes a login that has ended, successfully or not.
    pub(crate) fn forget_login(&self, number: u64) {
        self.logins.borrow_mut().remove(number);
    }

    /// Changes the limit on connections that have not logged in.
    pub(crate) fn set_limit(&self, logins: usize) {
        self.logins.borrow_mut().set_limit(logins);
    }

    /// Closes all portals except these, so that new portals can use their addresses.
    /// [`RunningCore::close_but`] closes the sockets from which other cores receive.
    pub(crate) fn close_but(&mut self, portals: &[Portal]) {
        let all = std::mem::take(&mut self.listening);
        let (stay, gone): (Vec<_>, Vec<_>) = all.into_iter().partition(|listening| {
            portals
                .iter()
                .any(|portal| listening.wanted.stays_for(portal))
        });
        self.listening = stay;
        self.closed.extend(gone.into_iter().map(Listening::close));
    }

    /// Listens on exactly these portals and returns their addresses. An unchanged portal stays open and loses
    /// no connection. If a portal cannot be opened, the error names it, and the previous portals stay open.
    pub(crate) fn set(
        &mut self,
        local: &Rc<RunningCore>,
        portals: &[Portal],
    ) -> io::Result<Vec<ListenAddress>> {
        self.close_but(portals);
        let mut before = std::mem::take(&mut self.listening);
        // Unchanged portals are reused.
        let mut places: Vec<Option<Listening>> = Vec::new();
        for wanted in portals {
            let place = before
                .iter()
                .position(|listening| listening.wanted.stays_for(wanted));
            places.push(place.map(|place| before.remove(place).renamed(wanted)));
        }
        // These portals were listed twice, and are now listed once.
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
                    Err(error) => {
                        tracing::error!(%error, "cannot reopen the portal after a failed reload")
                    }
                }
            }
        }
        local.server().set_portals(
            self.listening
                .iter()
                .map(|listening| listening.taken.clone())
                .collect(),
        );
        opened?;
        debug_assert_eq!(
            self.listening.len(),
            portals.len(),
            "all are listened on, or none"
        );
        Ok(self
            .listening
            .iter()
            .map(|listening| listening.taken.listen.clone())
            .collect())
    }

    /// Opens missing portals. If a portal cannot be opened, the existing portals stay open.
    fn open_missing(
        &mut self,
        local: &Rc<RunningCore>,
        portals: &[Portal],
        mut places: Vec<Option<Listening>>,
    ) -> io::Result<()> {
        let missing: Vec<usize> = (0..places.len())
            .filter(|place| places[*place].is_none())
            .collect();
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
        self.listening
            .iter_mut()
            .for_each(|listening| listening.hand_over(local));
        failed.map_or(Ok(()), Err)
    }

    /// Opens a datagram portal, with a socket for each core that receives its datagrams.
    fn open_datagrams(
        local: &Rc<RunningCore>,
        wanted: &Portal,
        options: &DatagramOptions,
        number: u32,
    ) -> io::Result<Listening> {
        let server = local.server();
        let shared_at = server
            .shares_datagrams_at(wanted.front_end)
            .filter(|_| server.datagram_cores() > 1);
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
            share: Some(DatagramShare {
                index,
                count,
                word_at,
            }),
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
            let portal = Portal {
                listen: ListenAddress::Datagrams(options),
                ..taken.clone()
            };
            Ok(OpenedPart { portal, datagrams })
        });
        let parts = parts.collect::<io::Result<Vec<OpenedPart>>>()?;
        Ok(Listening::receiving(
            local,
            wanted,
            [taken, own],
            number,
            datagrams,
            parts,
        ))
    }

    fn open(&self, local: &Rc<RunningCore>, wanted: &Portal) -> io::Result<Listening> {
        let number = self.last_number.get() + 1;
        self.last_number.set(number);
        let options = ListenOptions {
            stream: wanted.stream.clone(),
        };
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", wanted.listen));
        let listener = match &wanted.listen {
            ListenAddress::Inet(address) => reactor::world().listen(*address, &options),
            ListenAddress::Unix(path) => reactor::world().listen_local(path),
            ListenAddress::Datagrams(options) => {
                // The error messages of this function include the remedy.
                let opened = Listeners::open_datagrams(local, wanted, options, number);
                return opened.map_err(io::Error::other).map_err(named);
            }
        };
        let listener = listener.map_err(named)?;
        let listen = wanted
            .listen
            .inet()
            .map_or_else(|| wanted.listen.clone(), |_| listener.local().into());
        let taken = Portal {
            listen,
            ..wanted.clone()
        };
        let task = accept(
            Rc::clone(local),
            Rc::clone(&self.logins),
            taken.clone(),
            listener,
        );
        Ok(Listening {
            wanted: wanted.clone(),
            taken,
            task: reactor::spawn(task),
            number,
            parts: Vec::new(),
        })
    }
}

impl Listening {
    /// Receives a portal's datagrams on this core; `of_this_core` is this core's part of the portal.
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
        Listening {
            wanted: wanted.clone(),
            taken,
            task,
            number,
            parts,
        }
    }

    /// Passes the other cores their sockets.
    fn hand_over(&mut self, local: &RunningCore) {
        let number = self.number;
        debug_assert!(
            self.parts.len() < local.server().cores(),
            "each part has a core"
        );
        for (core, part) in (1..).zip(self.parts.drain(..)) {
            let wanted = self.wanted.clone();
            local
                .server()
                .run_on(core, move |local| local.receive(wanted, number, part));
        }
    }

    fn renamed(mut self, wanted: &Portal) -> Listening {
        self.wanted.advertise.clone_from(&wanted.advertise);
        self.taken.advertise.clone_from(&wanted.advertise);
        self
    }

    /// Stops listening; accepted connections continue.
    fn close(self) -> Portal {
        self.task.abort();
        self.wanted
    }
}

/// Returns the portal with these options and its actual port.
fn at(portal: &Portal, options: &DatagramOptions, taken: DatagramAddress) -> Portal {
    let mut options = options.clone();
    if let DatagramAddress::Udp(at) = taken {
        options.endpoint = DatagramEndpoint::Udp(at);
    }
    Portal {
        listen: ListenAddress::Datagrams(options),
        ..portal.clone()
    }
}

/// Returns the size of each core's receive buffer if `cores` cores receive; a single core would have `bytes`.
/// Up to [`BUFFERS_TOGETHER`] cores have buffers of full size. With more cores the buffers are smaller, so
/// that their total stays bounded. Each buffer serves only the sessions of its core.
fn bytes_of_each(bytes: usize, cores: usize) -> usize {
    (bytes * BUFFERS_TOGETHER / cores).clamp(bytes / BUFFERS_TOGETHER, bytes)
}

async fn accept(
    local: Rc<RunningCore>,
    logins: SharedLogins,
    portal: Portal,
    listener: Box<dyn Listener>,
) {
    let mut burst = 0u32;
    loop {
        match listener.try_accept() {
            Ok(stream) => {
                welcome(&local, &logins, &portal, stream);
                burst = (burst + 1) % BURST;
                if burst == 0 {
                    reactor::yield_now().await; // the accepted connections run before one is evicted
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if poll_fn(|cx| listener.poll_acceptable(cx)).await.is_err() {
                    reactor::sleep(ACCEPT_PAUSE).await;
                }
            }
            Err(error) => {
                // The process is probably out of file descriptors; connections that end will free some.
                tracing::warn!(portal = %portal.listen, %error, "cannot accept a connection");
                reactor::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Starts the login of a connection. If its address has reached its connection limit, a connection from
/// that address that has not logged in is evicted.
fn welcome(
    local: &Rc<RunningCore>,
    logins: &SharedLogins,
    portal: &Portal,
    stream: Box<dyn Stream>,
) {
    let (server, address) = (local.server(), stream.peer().ip());
    if let Some(permit) = server.admit(address) {
        return begin_login(
            local,
            logins,
            Accepted {
                portal: portal.clone(),
                stream,
                permit,
            },
        );
    }
    let oldest = logins
        .borrow_mut()
        .take_oldest(AddressBlock::containing(address));
    let (local, logins, portal) = (Rc::clone(local), Rc::clone(logins), portal.clone());
    drop(reactor::spawn(async move {
        if let Some(login) = oldest {
            // Nothing is ever sent: the mailbox is closed when the connection has ended.
            let _: Option<()> = give_way(&local, &login).recv().await;
        }
        let server = local.server();
        match server.admit(address) {
            Some(permit) => begin_login(
                &local,
                &logins,
                Accepted {
                    portal,
                    stream,
                    permit,
                },
            ),
            None if server.may_log(address) => {
                let (peer, most) = (stream.peer(), server.limits().connections_per_address);
                tracing::warn!(target: AUDIT, %peer, most, "refused: too many connections from this address");
            }
            None => {}
        }
    }));
}

/// Passes a connection to the core that runs its login. The cores are selected round-robin: the peer is not
/// authenticated, and the work that it causes (TLS, for example) must not keep a single core from serving its
/// sessions.
fn begin_login(local: &Rc<RunningCore>, logins: &SharedLogins, accepted: Accepted) {
    let (server, peer) = (local.server(), accepted.stream.peer());
    // This cannot happen: a server has the front ends of all its portals.
    if local.front_end_of(&accepted.portal).is_none() {
        return;
    }
    let core = local.next_login_core();
    let begin = |number| {
        let Accepted {
            portal,
            stream,
            permit,
        } = accepted;
        match core {
            0 => local.log_in(
                number,
                Accepted {
                    portal,
                    stream,
                    permit,
                },
            ),
            _ => {
                let stream = stream.detach();
                server.run_on(core, move |there| match reactor::world().adopt(stream) {
                    Ok(stream) => there.log_in(
                        number,
                        Accepted {
                            portal,
                            stream,
                            permit,
                        },
                    ),
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
    let ended = logins
        .borrow_mut()
        .add(block, begin, |block| server.has_sessions(block));
    if let Some(login) = ended {
        drop(give_way(local, &login));
    }
}

/// Ends a connection that has not logged in. The returned mailbox is closed once the connection has ended.
fn give_way(local: &Rc<RunningCore>, login: &Login) -> Receiver<()> {
    let (gone, ends) = reactor::mailbox();
    let &Login { core, number, peer } = login;
    local.server().run_on(core, move |there| {
        if there.end_login(number) && there.server().may_log(peer.ip()) {
            let why = "displaced by newer connections that are logging in";
            tracing::warn!(target: AUDIT, %peer, why, "login refused");
        }
        drop(gone);
    });
    ends
}

/// A connection that is logging in.
struct Login {
    /// The core that runs the task of the login, and the number of the task.
    core: usize,
    number: u64,
    peer: SocketAddr,
}

type SharedLogins = Rc<RefCell<Logins<Login>>>;

/// Maximum total of the receive buffers of all cores, as a multiple N of the buffer of a single core. With
/// many cores, the buffer of each core is still 1/N of that size.
const BUFFERS_TOGETHER: usize = 4;
/// Maximum number of connections accepted in a row before other tasks run.
const BURST: u32 = 16;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that have not logged in, each with a handle that can end it.
pub(crate) struct Logins<T> {
    most: usize,
    next: u64,
    waiting: BTreeMap<u64, (AddressBlock, T)>,
    /// The numbers of the logins from each address, in order of arrival.
    per_block: BTreeMap<AddressBlock, BTreeSet<u64>>,
    /// The addresses in `per_block`, sorted by rank. A login of the last address is evicted first.
    ranks: BTreeSet<Rank>,
}

/// The number of logins of an address, and the number of its oldest login: of two addresses with the same
/// number of logins, the address with the older login ranks higher.
type Rank = (usize, Reverse<u64>, AddressBlock);

impl<T> Logins<T> {
    /// Creates the table for up to `most` logins, at least one.
    pub(crate) fn new(most: usize) -> Logins<T> {
        Logins {
            most: most.max(1),
            next: 0,
            waiting: BTreeMap::new(),
            per_block: BTreeMap::new(),
            ranks: BTreeSet::new(),
        }
    }

    /// Changes the maximum number of logins, at least one.
    pub(crate) fn set_limit(&mut self, most: usize) {
        self.most = most.max(1);
    }

    /// Adds a connection. Returns the connection to close if the limit is exceeded.
    pub(crate) fn add(
        &mut self,
        from: AddressBlock,
        login: impl FnOnce(u64) -> T,
        has_sessions: impl Fn(AddressBlock) -> bool,
    ) -> Option<T> {
        let gives_way = if self.waiting.len() >= self.most {
            self.heaviest(has_sessions)
        } else {
            None
        };
        let ended = gives_way.and_then(|block| self.take_oldest(block));
        debug_assert!(
            gives_way.is_none() || ended.is_some(),
            "an address that gives way has a login"
        );
        let number = self.next;
        self.next += 1;
        let before = self.waiting.insert(number, (from, login(number)));
        debug_assert!(before.is_none(), "numbers are not used again");
        self.change(from, |numbers| numbers.insert(number));
        ended
    }

    /// Removes a connection whose login succeeded or failed.
    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let (from, login) = self.waiting.remove(&number)?;
        self.change(from, |numbers| numbers.remove(&number));
        Some(login)
    }

    pub(crate) fn take_oldest(&mut self, block: AddressBlock) -> Option<T> {
        let oldest = *self.per_block.get(&block)?.first()?;
        self.remove(oldest)
    }

    /// Changes the logins of an address, and updates its rank.
    fn change(&mut self, block: AddressBlock, act: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let numbers = self.per_block.entry(block).or_default();
        let rank = |numbers: &BTreeSet<u64>| -> Option<Rank> {
            Some((numbers.len(), Reverse(*numbers.first()?), block))
        };
        if let Some(before) = rank(numbers) {
            let had_rank = self.ranks.remove(&before);
            debug_assert!(had_rank, "an address with logins has a rank");
        }
        let has_changed = act(numbers);
        debug_assert!(has_changed, "a login comes once and goes once");
        match rank(numbers) {
            Some(after) => drop(self.ranks.insert(after)),
            None => drop(self.per_block.remove(&block)),
        }
        debug_assert_eq!(
            self.ranks.len(),
            self.per_block.len(),
            "each address has one rank"
        );
    }

    fn heaviest(&self, has_sessions: impl Fn(AddressBlock) -> bool) -> Option<AddressBlock> {
        let stranger = self
            .ranks
            .iter()
            .rev()
            .find(|(_, _, block)| !has_sessions(*block));
        stranger
            .or_else(|| self.ranks.last())
            .map(|(_, _, block)| *block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u32) -> AddressBlock {
        AddressBlock::containing(std::net::Ipv4Addr::from_bits(number).into())
    }

    /// Adds a login from each address in turn, and returns the number of the login that each of them evicts.
    fn come(logins: &mut Logins<u64>, from: &[u32], has_sessions: &[u32]) -> Vec<Option<u64>> {
        let has_sessions = |from| has_sessions.iter().any(|number| block(*number) == from);
        from.iter()
            .map(|number| logins.add(block(*number), |login| login, has_sessions))
            .collect()
    }

    #[test]
    fn a_crowd_from_one_address_takes_its_own_places() {
        let mut logins = Logins::new(4);
        assert_eq!(come(&mut logins, &[7, 9, 9, 9], &[]), [None; 4]);
        assert_eq!(
            come(&mut logins, &[9, 9, 8], &[]),
            [Some(1), Some(2), Some(3)],
            "and others come in"
        );
        assert_eq!(
            logins.waiting.keys().copied().collect::<Vec<_>>(),
            [0, 4, 5, 6]
        );
    }

    #[test]
    fn a_crowd_of_addresses_takes_the_oldest_and_spares_who_is_logged_in() {
        let mut logins = Logins::new(3);
        assert_eq!(
            come(&mut logins, &[1, 2, 3, 4, 5], &[]),
            [None, None, None, Some(0), Some(1)]
        );
        let mut logins = Logins::new(3);
        assert_eq!(
            come(&mut logins, &[1, 1, 3, 4, 5], &[1]),
            [None, None, None, Some(2), Some(3)]
        );
        assert_eq!(
            come(&mut logins, &[1, 1, 1], &[1]),
            [Some(4), Some(0), Some(1)],
            "but not for ever"
        );
    }

    /// Checking whether an address has sessions locks the registry.
    #[test]
    fn an_address_is_asked_about_once_at_most_when_one_more_comes() {
        let mut logins = Logins::new(1000);
        come(&mut logins, &(0..1000).collect::<Vec<u32>>(), &[]);
        let ask = |logins: &mut Logins<u64>, strangers: bool| {
            let asked = std::cell::Cell::new(0);
            let has_sessions = |_| {
                asked.set(asked.get() + 1);
                !strangers
            };
            let ended = logins.add(block(7), |login| login, has_sessions);
            (ended, asked.get())
        };
        assert_eq!(
            ask(&mut logins, true),
            (Some(0), 1),
            "the first stranger gives way"
        );
        assert_eq!(ask(&mut logins, true), (Some(7), 1));
        assert_eq!(ask(&mut logins, false), (Some(1000), 999));
    }

    #[test]
    fn who_is_done_leaves_room() {
        let mut logins = Logins::new(2);
        come(&mut logins, &[1, 2], &[]);
        assert_eq!((logins.remove(0), logins.remove(0)), (Some(0), None));
        assert_eq!(come(&mut logins, &[3], &[]), [None]);
        assert_eq!(
            (logins.take_oldest(block(3)), logins.take_oldest(block(3))),
            (Some(2), None)
        );
        assert_eq!(
            (logins.per_block.len(), logins.ranks.len()),
            (1, 1),
            "nothing is kept of who has gone"
        );
    }
}
