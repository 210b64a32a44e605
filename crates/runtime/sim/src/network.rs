//! TCP as programs see it: byte streams whose data arrives in order, delayed, in arbitrary pieces, or not at
//! all.
//!
//! ```text
//!   try_write ──► wire (in order, each piece with the time of its arrival) ──► inbox ──► try_read
//!                  └── bounded by the sender's buffer ──┘                     └ bounded by the receiver's
//! ```
//!
//! A lost packet is only delayed, because TCP retransmits it after 200 ms or more. Data that a killed process
//! has written still arrives. A stalled direction delivers no data until the stall ends. In a half-open
//! connection, both directions are stalled forever, and one end does not detect it.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use reactor::{Detached, InSlice, Listener, OutSlice, Stream};

use crate::universe::{self, Universe, note};

/// A machine, or a process on it: the unit that can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Machine(pub(crate) usize);

/// All connections and listeners.
#[derive(Default)]
struct Network {
    listeners: BTreeMap<SocketAddr, Listening>,
    connections: BTreeMap<u64, Connection>,
    next: u64,
    next_port: u16,
    conditions: NetworkConditions,
}

thread_local! {
    static NETWORK: RefCell<Network> = RefCell::default();
}

/// Accesses the network and the universe. `act` may only access this crate's state, because both are
/// borrowed.
fn with<T>(act: impl FnOnce(&mut Network, &mut Universe) -> T) -> T {
    NETWORK.with_borrow_mut(|network| universe::with(|universe| act(network, universe)))
}

/// Like `with`, but does nothing if this thread has no universe: objects may be dropped after their
/// simulation has ended.
fn try_with<T>(act: impl FnOnce(&mut Network, &mut Universe) -> T) -> Option<T> {
    universe::try_with(|universe| NETWORK.with_borrow_mut(|network| act(network, universe)))
}

/// Drops all connections and listeners.
pub(crate) fn end() {
    drop(NETWORK.take());
}

/// Delays and losses of the network.
#[derive(Clone, Debug)]
pub(crate) struct NetworkConditions {
    /// Minimum delay of a piece from one end to the other, in nanoseconds.
    pub(crate) least_delay: u64,
    pub(crate) most_delay: u64,
    /// One in this many pieces is lost.
    pub(crate) lost_once_in: u64,
    /// Maximum socket buffer size in bytes. Each connection draws its size, at least 1 KiB.
    pub(crate) most_buffer: u64,
}

impl Default for NetworkConditions {
    fn default() -> NetworkConditions {
        NetworkConditions {
            least_delay: 20_000,
            most_delay: 2_000_000,
            lost_once_in: 2_000,
            most_buffer: 256 << 10,
        }
    }
}

/// Shortest and longest time until a lost piece is retransmitted, in nanoseconds.
const RETRANSMISSION: (u64, u64) = (200_000_000, 3_000_000_000);

struct Listening {
    machine: Machine,
    backlog: VecDeque<StreamEnd>,
    waker: Option<Waker>,
}

struct Connection {
    ends: [EndState; 2],
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamEnd {
    connection: u64,
    side: usize,
}

struct EndState {
    machine: Machine,
    address: SocketAddr,
    /// Segments that were sent and have not arrived, in order, with their arrival times.
    wire: VecDeque<(u64, Segment)>,
    wire_bytes: usize,
    /// Whether an event that processes `wire` is pending.
    pumping: bool,
    /// No segment arrives at the other end before this time.
    stalled_until: u64,
    /// Received bytes.
    inbox: VecDeque<u8>,
    buffer_bytes: usize,
    /// Whether the other end has finished sending.
    finished: bool,
    /// The error that makes this end unusable.
    broken: Option<ErrorKind>,
    connected: bool,
    /// Whether this end's stream was dropped.
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

enum Segment {
    Bytes(Vec<u8>),
    /// The end of the stream.
    Fin,
    /// A reset of the connection.
    Reset,
}

impl Network {
    fn end(&mut self, end: StreamEnd) -> Option<&mut EndState> {
        self.connections
            .get_mut(&end.connection)
            .map(|connection| &mut connection.ends[end.side])
    }

    fn other(&mut self, end: StreamEnd) -> Option<&mut EndState> {
        self.end(end.other())
    }

    /// Removes a connection that is closed at both ends and carries no data.
    fn forget(&mut self, end: StreamEnd) {
        let over = |state: &EndState| state.closed && state.wire.is_empty();
        if self
            .connections
            .get(&end.connection)
            .is_some_and(|connection| connection.ends.iter().all(over))
        {
            self.connections.remove(&end.connection);
        }
    }
}

impl StreamEnd {
    fn other(self) -> StreamEnd {
        StreamEnd {
            connection: self.connection,
            side: 1 - self.side,
        }
    }
}

impl EndState {
    fn new(machine: Machine, address: SocketAddr, buffer_bytes: usize) -> EndState {
        EndState {
            machine,
            address,
            wire: VecDeque::new(),
            wire_bytes: 0,
            pumping: false,
            stalled_until: 0,
            inbox: VecDeque::new(),
            buffer_bytes,
            finished: false,
            broken: None,
            connected: false,
            closed: false,
            reader: None,
            writer: None,
        }
    }

    fn wakers(&mut self) -> [Option<Waker>; 2] {
        [self.reader.take(), self.writer.take()]
    }
}

fn wake(wakers: impl IntoIterator<Item = Option<Waker>>) {
    wakers.into_iter().flatten().for_each(Waker::wake);
}

/// Returns the address of a machine.
pub(crate) fn address(machine: Machine, port: u16) -> SocketAddr {
    let [high, low] = (machine.0 as u16).to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, high, low)), port)
}

pub(crate) fn listen(machine: Machine, at: SocketAddr) -> io::Result<Box<dyn Listener>> {
    with(|network, _| {
        let listeners = &mut network.listeners;
        if listeners.contains_key(&at) {
            return Err(ErrorKind::AddrInUse.into());
        }
        listeners.insert(
            at,
            Listening {
                machine,
                backlog: VecDeque::new(),
                waker: None,
            },
        );
        Ok(Box::new(SimListener(at)) as Box<dyn Listener>)
    })
}

pub(crate) fn connect(machine: Machine, to: SocketAddr) -> io::Result<Box<dyn Stream>> {
    let (end, delay) = with(|network, universe| {
        let number = network.next;
        network.next += 1;
        network.next_port = network.next_port.wrapping_add(1) | 0x8000;
        let from = address(machine, network.next_port);
        let most = network.conditions.most_buffer;
        let mut buffer = || universe.random.mostly_small(1 << 10, most) as usize;
        let ends = [
            EndState::new(machine, from, buffer()),
            EndState::new(machine, to, buffer()),
        ];
        network.connections.insert(number, Connection { ends });
        let delay = network.conditions.least_delay * 2;
        (
            StreamEnd {
                connection: number,
                side: 0,
            },
            universe.random.mostly_small(delay, delay * 8),
        )
    });
    universe::after(delay, move || arrive(end, to));
    Ok(Box::new(SimStream(end)))
}

/// Handles the arrival of a connection's first packet at a listener.
fn arrive(end: StreamEnd, to: SocketAddr) {
    let wakers = with(|network, _| {
        if network.end(end).is_none_or(|state| state.closed) {
            network.connections.remove(&end.connection);
            return [None, None, None];
        }
        let Some(listening) = network.listeners.get_mut(&to) else {
            let Some(state) = network.end(end) else {
                return [None, None, None];
            };
            state.broken = Some(ErrorKind::ConnectionRefused);
            let [reader, writer] = state.wakers();
            if let Some(other) = network.other(end) {
                other.closed = true;
            }
            return [reader, writer, None];
        };
        let (machine, listener) = (listening.machine, listening.waker.take());
        listening.backlog.push_back(end.other());
        if let Some(other) = network.other(end) {
            (other.machine, other.connected) = (machine, true);
        }
        let Some(state) = network.end(end) else {
            return [None, None, listener];
        };
        state.connected = true;
        let [reader, writer] = state.wakers();
        [reader, writer, listener]
    });
    wake(wakers);
}

/// Closes all sockets of a killed machine, as its kernel does.
pub(crate) fn close_all_of(machine: Machine) {
    let ends = with(|network, _| {
        let gone: Vec<StreamEnd> = network
            .listeners
            .extract_if(.., |_, listening| listening.machine == machine)
            .flat_map(|(_, listening)| listening.backlog)
            .collect();
        drop(gone); // their ends are among those closed below
        let of = |(number, connection): (&u64, &Connection)| {
            let own = move |side: &usize| connection.ends[*side].machine == machine;
            (0..2)
                .filter(own)
                .map(|side| StreamEnd {
                    connection: *number,
                    side,
                })
                .collect::<Vec<_>>()
        };
        network.connections.iter().flat_map(of).collect::<Vec<_>>()
    });
    ends.into_iter().for_each(close);
}

/// Closes an end whose stream was dropped. Unread data causes a reset, as in Linux.
fn close(end: StreamEnd) {
    try_with(|network, universe| {
        let Some(state) = network.end(end) else {
            return;
        };
        if std::mem::replace(&mut state.closed, true) {
            return;
        }
        let last = match state.inbox.is_empty() && state.broken.is_none() {
            true => Segment::Fin,
            false => Segment::Reset,
        };
        if state.connected && state.broken.is_none() {
            send(network, universe, end, last);
        }
        network.forget(end);
    });
}

/// Puts a piece on the wire, after all earlier pieces.
fn send(network: &mut Network, universe: &mut Universe, end: StreamEnd, piece: Segment) {
    let now = universe.time();
    let conditions = network.conditions.clone();
    let mut delay = universe
        .random
        .mostly_small(conditions.least_delay, conditions.most_delay);
    if universe.random.once_in(conditions.lost_once_in) {
        delay += universe
            .random
            .mostly_small(RETRANSMISSION.0, RETRANSMISSION.1);
    }
    let Some(state) = network.end(end) else {
        return;
    };
    let after = state.wire.back().map_or(0, |(at, _)| *at);
    if let Segment::Bytes(bytes) = &piece {
        state.wire_bytes += bytes.len();
    }
    state.wire.push_back(((now + delay).max(after), piece));
    pump_later(network, universe, end);
}

/// Schedules `pump` for the arrival of the first piece on the wire of `end`, unless it is already scheduled.
fn pump_later(network: &mut Network, universe: &mut Universe, end: StreamEnd) {
    let now = universe.time();
    let Some(state) = network.end(end) else {
        return;
    };
    let Some((at, _)) = state.wire.front() else {
        return;
    };
    if std::mem::replace(&mut state.pumping, true) {
        return;
    }
    let at = (*at).max(state.stalled_until);
    if at < FOR_EVER {
        universe.after(at.saturating_sub(now), Box::new(move || pump(end)));
    }
}

/// Delivers pieces that are due, as long as the receiver has space for them.
fn pump(end: StreamEnd) {
    let wakers = with(|network, universe| {
        let now = universe.time();
        let Some(connection) = network.connections.get_mut(&end.connection) else {
            return [None, None, None, None];
        };
        let [from, to] = ends(connection, end.side);
        from.pumping = false;
        let mut wakers = [None, None, None, None];
        while let Some((at, piece)) = from.wire.front_mut() {
            if (*at).max(from.stalled_until) > now {
                break;
            }
            match piece {
                Segment::Bytes(_) if to.closed || to.broken.is_some() => {
                    // The receiver's kernel no longer has the connection, so it sends a reset.
                    from.wire.clear();
                    from.wire_bytes = 0;
                    if from.broken.is_none() {
                        from.broken = Some(ErrorKind::ConnectionReset);
                    }
                    let [reader, writer] = from.wakers();
                    (wakers[0], wakers[1]) = (reader, writer);
                    break;
                }
                Segment::Bytes(bytes) => {
                    let room = to
                        .buffer_bytes
                        .saturating_sub(to.inbox.len())
                        .min(bytes.len());
                    to.inbox.extend(bytes.drain(..room));
                    assert!(
                        to.inbox.len() <= to.buffer_bytes && from.wire_bytes >= room,
                        "buffers have bounds"
                    );
                    from.wire_bytes -= room;
                    let rest = !bytes.is_empty();
                    wakers[2] = to.reader.take().or(wakers[2].take());
                    wakers[1] = from.writer.take().or(wakers[1].take());
                    if rest {
                        // The receiver has no space. Its next read resumes delivery.
                        break;
                    }
                }
                Segment::Fin => to.finished = true,
                Segment::Reset => {
                    to.broken.get_or_insert(ErrorKind::ConnectionReset);
                }
            }
            if to.finished || to.broken.is_some() {
                wakers[2] = to.reader.take().or(wakers[2].take());
                wakers[3] = to.writer.take().or(wakers[3].take());
            }
            from.wire.pop_front();
        }
        let is_due = |at: u64| at <= now && from.stalled_until <= now;
        let waits_for_room =
            matches!(from.wire.front(), Some((at, Segment::Bytes(_))) if is_due(*at));
        if !waits_for_room {
            pump_later(network, universe, end);
        }
        network.forget(end);
        wakers
    });
    wake(wakers);
}

fn ends(connection: &mut Connection, side: usize) -> [&mut EndState; 2] {
    let [first, second] = &mut connection.ends;
    if side == 0 {
        [first, second]
    } else {
        [second, first]
    }
}

/// A duration longer than any simulation.
const FOR_EVER: u64 = u64::MAX / 2;

/// Faults of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// A device on the path resets a connection.
    Cut,
    /// One direction of a connection carries no data for this many nanoseconds.
    Stall(u64),
    /// A connection appears intact, but no longer carries data in either direction.
    HalfOpen,
    /// No data reaches or leaves a machine for this many nanoseconds.
    Isolate(Machine, u64),
}

/// Applies a fault to a random connection.
pub(crate) fn trouble(trouble: Trouble) {
    let drawn = with(|network, universe| {
        let alive: Vec<u64> = network
            .connections
            .iter()
            .filter(|(_, connection)| connection.ends.iter().any(|end| !end.closed))
            .map(|(number, _)| *number)
            .collect();
        match alive.is_empty() {
            true => None,
            false => Some(*universe.random.pick(&alive)),
        }
    });
    let Some(connection) = drawn else { return };
    let both = [0, 1].map(|side| StreamEnd { connection, side });
    note(&[2, connection], || {
        format!("network: {trouble:?} ({connection})")
    });
    match trouble {
        Trouble::Cut => {
            let wakers = with(|network, _| {
                both.map(|end| {
                    let Some(state) = network.end(end) else {
                        return [None, None];
                    };
                    state.broken.get_or_insert(ErrorKind::ConnectionReset);
                    state.wire.clear();
                    state.wire_bytes = 0;
                    state.wakers()
                })
            });
            wake(wakers.into_iter().flatten());
        }
        Trouble::Stall(time) => {
            let side = universe::draw(|random| random.below(2)) as usize;
            stall(both[side], time);
        }
        Trouble::HalfOpen => both.into_iter().for_each(|end| stall(end, FOR_EVER)),
        Trouble::Isolate(machine, time) => {
            let all = with(|network, _| {
                let with_it = |connection: &&u64| {
                    network.connections[*connection]
                        .ends
                        .iter()
                        .any(|end| end.machine == machine)
                };
                network
                    .connections
                    .keys()
                    .filter(with_it)
                    .copied()
                    .collect::<Vec<_>>()
            });
            for connection in all {
                (0..2).for_each(|side| stall(StreamEnd { connection, side }, time));
            }
        }
    }
}

fn stall(end: StreamEnd, time: u64) {
    with(|network, universe| {
        let until = universe.time().saturating_add(time);
        if let Some(state) = network.end(end) {
            state.stalled_until = state.stalled_until.max(until);
        }
    });
}

/// Repairs all paths; half-open connections are reset.
pub(crate) fn heal() {
    let ends = with(|network, universe| {
        let now = universe.time();
        let mut reset = Vec::new();
        for connection in network.connections.values_mut() {
            for end in &mut connection.ends {
                if end.stalled_until >= FOR_EVER {
                    end.broken.get_or_insert(ErrorKind::TimedOut);
                    reset.push(end.wakers());
                }
                if end.stalled_until > now {
                    end.stalled_until = now;
                    end.pumping = false;
                }
            }
        }
        let all = network.connections.keys().copied().collect::<Vec<_>>();
        for connection in all {
            (0..2).for_each(|side| pump_later(network, universe, StreamEnd { connection, side }));
        }
        reset
    });
    wake(ends.into_iter().flatten());
}

/// Whether the other end of every connection from this address is closed.
pub(crate) fn is_closed_by_peer(from: SocketAddr) -> bool {
    with(|network, _| {
        let mut connections = network.connections.values();
        !connections
            .any(|connection| connection.ends[0].address == from && !connection.ends[1].closed)
    })
}

/// Changes the network conditions.
pub(crate) fn set_weather(conditions: NetworkConditions) {
    with(|network, _| network.conditions = conditions);
}

struct SimStream(StreamEnd);

impl SimStream {
    fn look<T>(&self, look: impl FnOnce(&mut EndState) -> T) -> io::Result<T> {
        with(|network, _| network.end(self.0).map(look))
            .ok_or_else(|| ErrorKind::NotConnected.into())
    }
}

impl Stream for SimStream {
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
        with(|network, universe| {
            universe.transfers += 1;
            let taken = {
                // Occasionally return less than is available. But a reader into shared memory has queried the
                // available amount and relies on it.
                let relies = into
                    .iter()
                    .any(|slice| matches!(slice, InSlice::Shared(bytes) if !bytes.is_empty()));
                let limit = match universe.random.once_in(4) && !relies {
                    true => universe.random.between(1, 512) as usize,
                    false => usize::MAX,
                };
                let state = network.end(self.0).ok_or(ErrorKind::NotConnected)?;
                if state.inbox.is_empty() {
                    return match state.broken {
                        Some(error) => Err(error.into()),
                        None if state.finished => Ok(0),
                        None => Err(ErrorKind::WouldBlock.into()),
                    };
                }
                let mut taken = 0;
                for slice in into {
                    let room = match slice {
                        InSlice::Bytes(bytes) => bytes.len(),
                        InSlice::Shared(bytes) => bytes.len(),
                    };
                    let count = room.min(state.inbox.len()).min(limit - taken);
                    match slice {
                        InSlice::Bytes(bytes) => {
                            state.inbox.read_exact(&mut bytes[..count])?;
                        }
                        InSlice::Shared(bytes) => {
                            let (first, second) = state.inbox.as_slices();
                            for (to, from) in bytes[..count].iter().zip(first.iter().chain(second))
                            {
                                to.store(*from, Relaxed);
                            }
                            state.inbox.drain(..count);
                        }
                    }
                    taken += count;
                }
                taken
            };
            // The read has freed space for pieces on the wire.
            pump_later(network, universe, self.0.other());
            Ok(taken)
        })
    }

    fn readable_bytes(&self) -> usize {
        self.look(|state| state.inbox.len()).unwrap_or(0)
    }

    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
        with(|network, universe| {
            universe.transfers += 1;
            let limit = match universe.random.once_in(4) {
                true => universe.random.between(1, 4096) as usize,
                false => usize::MAX,
            };
            let state = network.end(self.0).ok_or(ErrorKind::NotConnected)?;
            if let Some(error) = state.broken {
                return Err(error.into());
            }
            if state.closed {
                return Err(ErrorKind::BrokenPipe.into());
            }
            if !state.connected {
                return Err(ErrorKind::WouldBlock.into());
            }
            let mut room = state
                .buffer_bytes
                .saturating_sub(state.wire_bytes)
                .min(limit);
            let mut bytes = Vec::new();
            for slice in from {
                match slice {
                    OutSlice::Bytes(data) => bytes.extend(&data[..data.len().min(room)]),
                    OutSlice::Shared(data) => {
                        bytes.extend(data.iter().take(room).map(|byte| byte.load(Relaxed)))
                    }
                }
                room = room.min(limit).saturating_sub(match slice {
                    OutSlice::Bytes(data) => data.len(),
                    OutSlice::Shared(data) => data.len(),
                });
                if room == 0 {
                    break;
                }
            }
            if bytes.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let taken = bytes.len();
            send(network, universe, self.0, Segment::Bytes(bytes));
            Ok(taken)
        })
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ready = self.look(|state| {
            let ready = !state.inbox.is_empty() || state.finished || state.broken.is_some();
            if !ready {
                state.reader = Some(cx.waker().clone());
            }
            ready
        })?;
        if ready {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ready = self.look(|state| {
            let ready =
                state.broken.is_some() || state.connected && state.wire_bytes < state.buffer_bytes;
            if !ready {
                state.writer = Some(cx.waker().clone());
            }
            ready
        })?;
        if ready {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    fn peer(&self) -> SocketAddr {
        with(|network, _| network.other(self.0).map(|state| state.address)).unwrap_or(NOWHERE)
    }

    fn local(&self) -> SocketAddr {
        with(|network, _| network.end(self.0).map(|state| state.address)).unwrap_or(NOWHERE)
    }

    fn shutdown(&self) {
        let wakers = with(|network, universe| {
            let Some(state) = network.end(self.0) else {
                return [None, None];
            };
            if state.broken.is_none() && state.connected {
                send(network, universe, self.0, Segment::Fin);
            }
            let Some(state) = network.end(self.0) else {
                return [None, None];
            };
            state.broken.get_or_insert(ErrorKind::BrokenPipe);
            state.inbox.clear();
            state.wakers()
        });
        wake(wakers);
    }

    fn detach(self: Box<Self>) -> Detached {
        let end = self.0;
        std::mem::forget(self); // it is moved, not closed
        Box::new(DetachedStream(Some(end)))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// A stream in transit from one core to another.
struct DetachedStream(Option<StreamEnd>);

impl Drop for DetachedStream {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            close(end);
        }
    }
}

pub(crate) fn adopt(stream: Detached) -> io::Result<Box<dyn Stream>> {
    let mut travelling = stream
        .downcast::<DetachedStream>()
        .map_err(|_| ErrorKind::InvalidInput)?;
    let end = travelling.0.take().ok_or(ErrorKind::InvalidInput)?;
    Ok(Box::new(SimStream(end)))
}

const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

struct SimListener(SocketAddr);

impl Listener for SimListener {
    fn try_accept(&self) -> io::Result<Box<dyn Stream>> {
        with(|network, _| {
            let listening = network
                .listeners
                .get_mut(&self.0)
                .ok_or(ErrorKind::NotConnected)?;
            let end = listening.backlog.pop_front().ok_or(ErrorKind::WouldBlock)?;
            Ok(Box::new(SimStream(end)) as Box<dyn Stream>)
        })
    }

    fn poll_acceptable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with(|network, _| {
            let Some(listening) = network.listeners.get_mut(&self.0) else {
                return Poll::Ready(Err(ErrorKind::NotConnected.into()));
            };
            if !listening.backlog.is_empty() {
                return Poll::Ready(Ok(()));
            }
            listening.waker = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    fn local(&self) -> SocketAddr {
        self.0
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let waiting = try_with(|network, _| {
            network
                .listeners
                .remove(&self.0)
                .map(|listening| listening.backlog)
        });
        waiting.flatten().into_iter().flatten().for_each(close);
    }
}
