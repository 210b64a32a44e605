//! Datagrams over packet sockets (packet(7)) and UDP, many per system call.
//!
//! A receive call requests about twice as many datagrams as the previous call received. If it receives fewer
//! than requested, the queue is empty, so receiving a single datagram costs only one call. With a ring
//! (`ring`), receiving frames needs no system call.

#![allow(unsafe_code)]

mod calls;
pub(crate) mod packet;
mod udp;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

use reactor::{
    DatagramAddress, DatagramBatch, DatagramDrops, DatagramEndpoint, DatagramOptions, Datagrams,
    DetachedDatagrams, OutDatagram,
};
use rustix::event::epoll::EventFlags;
use rustix::net::sockopt;

use self::calls::Calls;
use self::packet::{Packet, ReceiveRing};
use self::udp::Joined;
use crate::poller::{Poller, Source};

/// Maximum number of datagrams per call.
const CALL_MAX: usize = 64;
/// Maximum number of frames taken from a ring in one call.
const RING_MAX: usize = 32;

pub(crate) struct HostDatagrams {
    source: Source,
    kind: Kind,
    /// The ring for received frames; `None` if the socket uses its queue.
    ring: Option<Rc<ReceiveRing>>,
    local: DatagramAddress,
    calls: RefCell<Calls>,
    /// Number of datagrams to request in the next call.
    asking: Cell<usize>,
    drops: Cell<DatagramDrops>,
}

enum Kind {
    Packet(Packet),
    Udp(UdpSocket),
}

struct UdpSocket {
    /// State for receiving joined datagrams; `None` if the kernel does not join datagrams.
    joined: Option<RefCell<Joined>>,
    /// Whether joined datagrams may be sent.
    joins: Cell<bool>,
}

/// An open endpoint that is not yet used by a thread.
struct Opened {
    socket: OwnedFd,
    /// `None` for UDP.
    packet: Option<(Packet, Option<ReceiveRing>)>,
    local: DatagramAddress,
}

impl Opened {
    fn open(options: &DatagramOptions) -> io::Result<Opened> {
        match &options.endpoint {
            DatagramEndpoint::Ethernet {
                interface,
                ether_type,
            } => {
                let (socket, packet, ring) = Packet::open(interface, *ether_type, options)?;
                let local = packet.local();
                Ok(Opened {
                    socket,
                    packet: Some((packet, ring)),
                    local,
                })
            }
            DatagramEndpoint::Udp(at) => {
                let (socket, local) = udp::open(*at, options)?;
                Ok(Opened {
                    socket,
                    packet: None,
                    local,
                })
            }
        }
    }

    fn register(self, poller: &Rc<Poller>) -> io::Result<HostDatagrams> {
        let Opened {
            socket,
            packet,
            local,
        } = self;
        let (kind, ring) = match packet {
            Some((packet, ring)) => (Kind::Packet(packet), ring.map(Rc::new)),
            None => {
                let joined = Joined::open(&socket).map(RefCell::new);
                // Kernels that cannot receive joined datagrams (before 5.0) may not support sending them
                // either, and may not report an error.
                let joins = Cell::new(joined.is_some());
                (Kind::Udp(UdpSocket { joined, joins }), None)
            }
        };
        let source = poller.register(socket, EventFlags::IN | EventFlags::OUT)?;
        if let Some(ring) = &ring {
            poller.watch(&source, ring);
        }
        Ok(HostDatagrams {
            source,
            kind,
            ring,
            local,
            calls: RefCell::new(Calls::new(CALL_MAX)),
            asking: Cell::new(2),
            drops: Cell::default(),
        })
    }
}

pub(crate) fn open(poller: &Rc<Poller>, options: &DatagramOptions) -> io::Result<HostDatagrams> {
    Opened::open(options)?.register(poller)
}

/// Opens an endpoint for another thread.
pub(crate) fn open_detached(options: &DatagramOptions) -> io::Result<DetachedDatagrams> {
    let opened = Opened::open(options)?;
    Ok(DetachedDatagrams {
        local: opened.local,
        endpoint: Box::new(opened),
    })
}

pub(crate) fn adopt(poller: &Rc<Poller>, detached: DetachedDatagrams) -> io::Result<HostDatagrams> {
    let opened = detached
        .endpoint
        .downcast::<Opened>()
        .map_err(|_| io::ErrorKind::InvalidInput)?;
    opened.register(poller)
}

impl Datagrams for HostDatagrams {
    fn take_only(&self, at: u16, words: &[u32]) -> io::Result<()> {
        match &self.kind {
            Kind::Packet(_) => packet::take_only(self.source.socket(), at, words),
            Kind::Udp(_) => Ok(()), // a socket with its own port receives no other datagrams
        }
    }

    fn try_receive(&self, into: &mut DatagramBatch) -> io::Result<usize> {
        let most = into.clear().len();
        let mut noted = 0;
        let mut put = |from, payload: &mut [u8]| match into.put(noted, from, payload) {
            true => noted += 1,
            false => self.count(|drops| drops.too_long += 1),
        };
        if let Some(ring) = &self.ring {
            self.receive_from(ring, most, &mut put)?;
            return Ok(noted);
        }
        if let Kind::Udp(UdpSocket {
            joined: Some(joined),
            ..
        }) = &self.kind
        {
            self.receive_joined(joined, most, &mut put)?;
            return Ok(noted);
        }
        let reading = &self.source.readiness.reading;
        reading.check()?;
        let mut calls = self.calls.borrow_mut();
        let places = into.clear();
        let asked = self.asking.get().min(places.len()).min(CALL_MAX);
        let received = match calls.receive(self.source.raw(), places.take(asked)) {
            Err(error) => {
                if error.kind() == io::ErrorKind::WouldBlock {
                    reading.is_drained();
                }
                return Err(error);
            }
            Ok(received) => received,
        };
        if received < asked {
            reading.is_drained();
        }
        self.asking.set((2 * received).max(2));
        let mut noted = 0;
        for place in 0..received {
            let datagram = calls.received(place);
            let from = match &self.kind {
                Kind::Packet(_) => packet::sender(datagram.from),
                Kind::Udp(_) => udp::sender(datagram.from),
            };
            match from {
                Some(_) if datagram.is_cut => self.count(|drops| drops.too_long += 1),
                Some(from) => {
                    into.note(place, from, datagram.bytes);
                    noted += 1;
                }
                None => {}
            }
        }
        Ok(noted)
    }

    fn receive_each(
        &self,
        batch: &mut DatagramBatch,
        take: &mut dyn FnMut(DatagramAddress, &mut [u8]),
    ) -> io::Result<usize> {
        if let Some(ring) = &self.ring {
            return self.receive_from(ring, RING_MAX, take);
        }
        match &self.kind {
            Kind::Udp(UdpSocket {
                joined: Some(joined),
                ..
            }) => self.receive_joined(joined, CALL_MAX, take),
            Kind::Packet(_) | Kind::Udp(_) => {
                let received = self.try_receive(batch)?;
                batch.each_mut(take);
                Ok(received)
            }
        }
    }

    fn try_send(&self, datagrams: &[OutDatagram<'_>]) -> io::Result<usize> {
        let writing = &self.source.readiness.writing;
        writing.check()?;
        if datagrams.is_empty() {
            return Ok(0);
        }
        let name = |to| match (&self.kind, to) {
            (Kind::Packet(packet), DatagramAddress::Ethernet(to)) => Some(packet.name(to)),
            (Kind::Udp(_), DatagramAddress::Udp(to)) => Some(udp::name(to)),
            _ => None,
        };
        let mut calls = self.calls.borrow_mut();
        let joins = match &self.kind {
            Kind::Udp(socket) => socket.joins.get(),
            Kind::Packet(_) => false,
        };
        let mut sent = calls.send(self.source.raw(), datagrams, joins, name);
        // Sending joined datagrams does not work on every interface and with every length, so retry without
        // joining.
        if let (Kind::Udp(socket), Err(error)) = (&self.kind, &sent)
            && joins
            && matches!(
                error.raw_os_error(),
                Some(libc::EINVAL | libc::EIO | libc::EMSGSIZE)
            )
        {
            sent = calls.send(self.source.raw(), datagrams, false, name);
            socket.joins.set(sent.is_err());
        }
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                writing.is_drained();
                Err(error)
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                self.count(|drops| drops.send_queue_full += 1);
                Ok(1)
            }
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a datagram is longer than the path takes",
            )),
            sent => sent,
        }
    }

    fn poll_receivable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let has_any = match &self.kind {
            Kind::Packet(_) => self.ring.as_ref().is_some_and(|ring| ring.has_any()),
            Kind::Udp(socket) => socket
                .joined
                .as_ref()
                .is_some_and(|joined| joined.try_borrow().is_ok_and(|joined| joined.has_any())),
        };
        if has_any {
            return Poll::Ready(Ok(()));
        }
        self.source.readiness.reading.poll(cx)
    }

    fn poll_sendable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.source.readiness.writing.poll(cx)
    }

    fn local(&self) -> DatagramAddress {
        self.local
    }

    fn payload_bytes_max(&self) -> usize {
        match &self.kind {
            Kind::Packet(packet) => {
                let received = self
                    .ring
                    .as_ref()
                    .map_or(usize::MAX, |ring| ring.payload_bytes_max());
                packet.mtu(self.source.socket()).min(received)
            }
            Kind::Udp(_) => udp::PAYLOAD_BYTES_MAX,
        }
    }

    fn drops(&self) -> DatagramDrops {
        match &self.kind {
            // The kernel resets its counter at each query.
            Kind::Packet(_) => {
                let new = packet::drops(self.source.socket());
                self.count(|drops| drops.receive_buffer_full += new);
                if let Some(ring) = &self.ring {
                    let too_long = ring.too_long.take();
                    self.count(|drops| drops.too_long += too_long);
                }
            }
            Kind::Udp(_) => {
                let all = udp::drops(self.source.socket());
                self.count(|drops| drops.receive_buffer_full = all);
            }
        }
        self.drops.get()
    }
}

impl HostDatagrams {
    /// Receives joined datagrams, and passes up to `most` datagrams to `take`. Returns their number.
    fn receive_joined(
        &self,
        joined: &RefCell<Joined>,
        most: usize,
        take: &mut dyn FnMut(DatagramAddress, &mut [u8]),
    ) -> io::Result<usize> {
        let reading = &self.source.readiness.reading;
        // While `joined` is borrowed, no other call can use the received data that was passed to `take`.
        let Ok(mut joined) = joined.try_borrow_mut() else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        if !joined.has_any() {
            reading.check()?;
        }
        let found = joined.receive(self.source.raw(), most, take);
        match found {
            Ok(found) => {
                if found.is_drained {
                    reading.is_drained();
                }
                Ok(found.taken)
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::WouldBlock {
                    reading.is_drained();
                }
                Err(error)
            }
        }
    }

    /// Passes up to `most` frames in the ring to `take`. Returns their number.
    fn receive_from(
        &self,
        ring: &ReceiveRing,
        most: usize,
        take: &mut dyn FnMut(DatagramAddress, &mut [u8]),
    ) -> io::Result<usize> {
        let reading = &self.source.readiness.reading;
        let mut taken = 0;
        let read = ring.receive(most, &mut |from, payload| {
            taken += 1;
            take(from, payload);
        });
        if read < most && reading.has_ended() {
            reading.is_drained();
            // The ring does not report errors, so query the socket.
            if let Err(errno) = sockopt::socket_error(self.source.socket())? {
                return Err(errno.into());
            }
        }
        if read < most {
            reading.is_drained();
        }
        if read == 0 {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(taken)
        }
    }

    fn count(&self, what: impl FnOnce(&mut DatagramDrops)) {
        let mut drops = self.drops.get();
        what(&mut drops);
        self.drops.set(drops);
    }
}
