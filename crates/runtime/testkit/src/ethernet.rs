//! A world with virtual time and one Ethernet segment, which loses, duplicates, delays and reorders frames.
//! The seed determines all random choices.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use reactor::{
    DatagramAddress, DatagramBatch, DatagramDrops, DatagramEndpoint, DatagramOptions, Datagrams,
    Detached, ListenOptions, Listener, MacAddress, OutDatagram, OutSlice, Park, SharedWorld,
    Stream, StreamOptions, Unpark, World,
};

use crate::Random;

/// Loss, duplication and delay of frames.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Frames that are lost, in percent.
    pub lost_percent: u64,
    /// Frames that are duplicated, in percent.
    pub doubled_percent: u64,
    /// Maximum normal delay of a frame. A duplicate is delayed independently.
    pub delay: Duration,
    /// Frames with the longer delay `late`, in percent.
    pub late_percent: u64,
    /// Maximum delay of late frames.
    pub late: Duration,
    /// Frames with longer payloads are lost, although the interfaces accept them.
    pub carried_bytes: usize,
}

/// The world, whose interfaces share one segment.
#[derive(Clone)]
pub struct Ethernet(Rc<Segment>);

struct Segment {
    now: Cell<Instant>,
    random: RefCell<Random>,
    conditions: Cell<Conditions>,
    /// The MTU reported to endpoints when they were opened, and the current MTU.
    announced_mtu: usize,
    mtu: Cell<usize>,
    /// This interface does not accept frames for sending.
    clogged: RefCell<Option<String>>,
    /// Frames from this interface are lost.
    muted: RefCell<Option<String>>,
    /// An additional delay for the next frame of the client.
    holds: Cell<Option<Duration>>,
    /// The interface that keeps receiving invalid frames, and the number of such frames in this turn.
    flood: Cell<Option<(MacAddress, u32)>>,
    /// An interface that has been removed.
    unplugged: RefCell<Option<String>>,
    stations: RefCell<Vec<Rc<Station>>>,
    /// Ordered by arrival time.
    flying: RefCell<BTreeMap<(Instant, u64), Frame>>,
    sent: Cell<u64>,
}

/// Sender, receiver and payload.
type Frame = (MacAddress, MacAddress, Vec<u8>);

struct Station {
    address: MacAddress,
    inbox: RefCell<VecDeque<(MacAddress, Vec<u8>)>>,
    waker: RefCell<Option<Waker>>,
    sender: RefCell<Option<Waker>>,
    /// The removal of the interface has yet to be reported to this endpoint.
    is_gone: Cell<bool>,
}

impl Ethernet {
    /// Creates a segment without endpoints. Its interfaces have this MTU.
    pub fn new(seed: u64, conditions: Conditions, mtu: usize) -> Ethernet {
        Ethernet(Rc::new(Segment {
            now: Cell::new(Instant::now()),
            random: RefCell::new(Random::new(seed)),
            conditions: Cell::new(conditions),
            announced_mtu: mtu,
            mtu: Cell::new(mtu),
            clogged: RefCell::default(),
            muted: RefCell::default(),
            holds: Cell::new(None),
            flood: Cell::new(None),
            unplugged: RefCell::default(),
            stations: RefCell::default(),
            flying: RefCell::default(),
            sent: Cell::new(0),
        }))
    }

    /// The segment as a world for the reactor.
    pub fn world(&self) -> SharedWorld {
        Rc::new(self.clone())
    }

    /// Changes the conditions.
    pub fn set(&self, conditions: Conditions) {
        self.0.conditions.set(conditions);
    }

    /// Changes the MTU without informing open endpoints.
    pub fn set_mtu(&self, mtu: usize) {
        self.0.mtu.set(mtu);
    }

    /// Makes an interface accept no frames for sending. `None` makes all interfaces accept them again.
    pub fn clog(&self, interface: Option<&str>) {
        *self.0.clogged.borrow_mut() = interface.map(str::to_owned);
        for station in self.0.stations.borrow().iter() {
            station.sender.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Drops all frames that an interface sends. `None` ends this.
    pub fn mute(&self, interface: Option<&str>) {
        *self.0.muted.borrow_mut() = interface.map(str::to_owned);
    }

    /// Delays the client's next frame by this additional time.
    pub fn hold_next(&self, time: Duration) {
        self.0.holds.set(Some(time));
    }

    /// From now on, an interface keeps receiving invalid frames.
    pub fn flood(&self, interface: &str) {
        self.0.flood.set(Some((address_of(interface), 0)));
    }

    /// Removes an interface: its open endpoints receive nothing more, even if another interface gets the same name.
    pub fn unplug(&self, interface: &str) {
        *self.0.unplugged.borrow_mut() = Some(interface.to_owned());
        self.0.stations.borrow_mut().retain(|station| {
            let is_other = station.address != address_of(interface);
            if !is_other {
                station.is_gone.set(true);
                station.waker.take().into_iter().for_each(Waker::wake);
            }
            is_other
        });
    }

    /// Restores the interface.
    pub fn plug(&self) {
        self.0.unplugged.take();
    }

    /// A random number below `end`, from the segment's seed.
    pub fn below(&self, end: u64) -> u64 {
        self.0.random.borrow_mut().below(end)
    }

    fn send(&self, from: MacAddress, to: MacAddress, payload: &[u8]) {
        let Conditions {
            lost_percent,
            doubled_percent,
            delay,
            late_percent,
            late,
            carried_bytes,
        } = self.0.conditions.get();
        if self
            .0
            .muted
            .borrow()
            .as_deref()
            .is_some_and(|muted| address_of(muted) == from)
        {
            return;
        }
        let held = if from == address_of("client") {
            self.0.holds.take()
        } else {
            None
        };
        let copies = 1 + u64::from(self.below(100) < doubled_percent);
        for _ in 0..copies {
            if self.below(100) < lost_percent || payload.len() > carried_bytes {
                continue;
            }
            let is_late = late_percent > 0 && self.below(100) < late_percent;
            let most = if is_late { late } else { delay };
            let random = || Duration::from_nanos(1000 + self.below(most.as_nanos() as u64 + 1));
            let delay = held.unwrap_or_else(random);
            let number = self.0.sent.replace(self.0.sent.get() + 1);
            self.0.flying.borrow_mut().insert(
                (self.0.now.get() + delay, number),
                (from, to, payload.to_vec()),
            );
        }
    }

    fn deliver(&self) {
        loop {
            let mut flying = self.0.flying.borrow_mut();
            let Some(first) = flying
                .first_entry()
                .filter(|entry| entry.key().0 <= self.0.now.get())
            else {
                return;
            };
            let (from, to, payload) = first.remove();
            drop(flying);
            for station in self.0.stations.borrow().iter() {
                let is_for = to == MacAddress::BROADCAST || to == station.address;
                if is_for && station.address != from {
                    station
                        .inbox
                        .borrow_mut()
                        .push_back((from, payload.clone()));
                    station.waker.take().into_iter().for_each(Waker::wake);
                }
            }
        }
    }
}

impl World for Ethernet {
    fn now(&self) -> Instant {
        self.0.now.get()
    }

    fn listen(&self, _: SocketAddr, _: &ListenOptions) -> io::Result<Box<dyn Listener>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn connect(&self, _: SocketAddr, _: &StreamOptions) -> io::Result<Box<dyn Stream>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn adopt(&self, _: Detached) -> io::Result<Box<dyn Stream>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn datagrams(&self, options: &DatagramOptions) -> io::Result<Box<dyn Datagrams>> {
        let DatagramEndpoint::Ethernet { interface, .. } = &options.endpoint else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        if self.0.unplugged.borrow().as_ref() == Some(interface) {
            return Err(io::ErrorKind::NetworkDown.into());
        }
        let station = Rc::new(Station {
            address: address_of(interface),
            inbox: RefCell::default(),
            waker: RefCell::default(),
            sender: RefCell::default(),
            is_gone: Cell::new(false),
        });
        self.0.stations.borrow_mut().push(Rc::clone(&station));
        Ok(Box::new(Endpoint {
            ethernet: self.clone(),
            station,
        }))
    }

    fn interface_name(&self, name: &str) -> String {
        name.trim_start_matches("alt-").to_owned()
    }

    fn turn(&self, park: Park) {
        let arrival = self
            .0
            .flying
            .borrow()
            .first_key_value()
            .map(|((at, _), _)| *at);
        let now = self.0.now.get();
        let next = match park {
            Park::No => now + Duration::from_micros(1),
            Park::For(wait) => arrival.map_or(now + wait, |arrival| arrival.min(now + wait)),
            Park::Forever => arrival.expect("somebody is waited for"),
        };
        self.0.now.set(next.max(now));
        self.0
            .flood
            .set(self.0.flood.get().map(|(station, _)| (station, 0)));
        self.deliver();
    }

    fn unpark(&self) -> Arc<dyn Unpark> {
        Arc::new(Alone)
    }
}

fn address_of(interface: &str) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, interface.bytes().last().unwrap_or(0)])
}

/// Unparks nothing: all tasks of this world run on one thread.
struct Alone;

impl Unpark for Alone {
    fn unpark(&self) {}
}

struct Endpoint {
    ethernet: Ethernet,
    station: Rc<Station>,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.ethernet
            .0
            .stations
            .borrow_mut()
            .retain(|station| !Rc::ptr_eq(station, &self.station));
    }
}

impl Endpoint {
    fn is_clogged(&self) -> bool {
        self.ethernet
            .0
            .clogged
            .borrow()
            .as_deref()
            .is_some_and(|clogged| address_of(clogged) == self.station.address)
    }

    fn is_flooded(&self) -> bool {
        self.ethernet
            .0
            .flood
            .get()
            .is_some_and(|(flooded, _)| flooded == self.station.address)
    }
}

impl Datagrams for Endpoint {
    fn try_receive(&self, into: &mut DatagramBatch) -> io::Result<usize> {
        if self.station.is_gone.take() {
            return Err(io::ErrorKind::NetworkDown.into());
        }
        let mut inbox = self.station.inbox.borrow_mut();
        if inbox.is_empty() && self.is_flooded() {
            let flood = self
                .ethernet
                .0
                .flood
                .get()
                .map(|(station, frames)| (station, frames + 1));
            assert!(
                flood.is_some_and(|(_, frames)| frames < 10_000),
                "others have their turns"
            );
            self.ethernet.0.flood.set(flood);
            inbox.push_back((MacAddress::BROADCAST, vec![0; 46]));
        }
        if inbox.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut filled = Vec::new();
        for place in into.clear() {
            let Some((from, payload)) = inbox.pop_front() else {
                break;
            };
            // A network card pads short payloads.
            let bytes = payload.len().max(46).min(place.len());
            place[..bytes].fill(0);
            place[..payload.len()].copy_from_slice(&payload);
            filled.push((from, bytes));
        }
        for (place, (from, bytes)) in filled.iter().enumerate() {
            into.note(place, DatagramAddress::Ethernet(*from), *bytes);
        }
        Ok(filled.len())
    }

    fn try_send(&self, datagrams: &[OutDatagram<'_>]) -> io::Result<usize> {
        assert!(!datagrams.is_empty(), "there is something to send");
        if !self
            .ethernet
            .0
            .stations
            .borrow()
            .iter()
            .any(|station| Rc::ptr_eq(station, &self.station))
        {
            return Err(io::ErrorKind::NetworkDown.into());
        }
        if self.is_clogged() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        for (sent, datagram) in datagrams.iter().enumerate() {
            let DatagramAddress::Ethernet(to) = datagram.to else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let mut payload = Vec::new();
            for slice in datagram.payload {
                match slice {
                    OutSlice::Bytes(bytes) => payload.extend_from_slice(bytes),
                    OutSlice::Shared(_) => return Err(io::ErrorKind::Unsupported.into()),
                }
            }
            assert!(
                payload.len() <= self.ethernet.0.announced_mtu,
                "no longer than the MTU"
            );
            if payload.len() > self.ethernet.0.mtu.get() {
                return if sent > 0 {
                    Ok(sent)
                } else {
                    Err(io::ErrorKind::InvalidInput.into())
                };
            }
            self.ethernet.send(self.station.address, to, &payload);
        }
        Ok(datagrams.len())
    }

    fn poll_receivable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_filled = !self.station.inbox.borrow().is_empty() || self.is_flooded();
        if is_filled || self.station.is_gone.get() {
            return Poll::Ready(Ok(()));
        }
        *self.station.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_sendable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_clogged() {
            *self.station.sender.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn local(&self) -> DatagramAddress {
        DatagramAddress::Ethernet(self.station.address)
    }

    fn payload_bytes_max(&self) -> usize {
        self.ethernet.0.mtu.get()
    }

    fn drops(&self) -> DatagramDrops {
        DatagramDrops::default()
    }
}
