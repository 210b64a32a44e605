//! A client that never stops sending before its login has ended, in virtual time. Regression: such clients kept
//! a core from every other task, and no deadline ended them.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use front_end_core::{ListenAddress, Portal, Server};
use nbd_server::{Config, Limits, NBD, Nbd};
use reactor::{
    Alone, Detached, InSlice, ListenOptions, Listener, OutSlice, Park, SharedWorld, Stream, StreamOptions,
    Unpark, World, block_on, now, sleep, spawn,
};

const PORTAL: ([u8; 4], u16) = ([127, 0, 0, 1], 10_809);
const HANDSHAKE_TIME: Duration = Duration::from_millis(1);
/// Far more than a task may receive and send before the others run.
const CALLS_MAX: u32 = 1000;

/// The client, and what it has done.
#[derive(Default)]
struct Client {
    first: Vec<u8>,
    /// Sent without end after these.
    again: Vec<u8>,
    sent: Cell<usize>,
    /// Calls in this turn of the server's thread.
    calls: Cell<u32>,
    has_come: Cell<bool>,
    is_closed: Cell<bool>,
}

impl Client {
    fn count(&self, bytes: usize) -> io::Result<usize> {
        self.calls.set(self.calls.get() + 1);
        assert!(self.calls.get() < CALLS_MAX, "a client kept the core from its other tasks and its timers");
        Ok(bytes)
    }
}

struct Connection(Rc<Client>);

impl Stream for Connection {
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
        let Client { first, again, sent, .. } = &*self.0;
        let InSlice::Bytes(place) = &mut into[0] else { panic!("a handshake has a buffer") };
        let mut left = &mut **place;
        while !left.is_empty() {
            let rest = match sent.get().checked_sub(first.len()) {
                None => &first[sent.get()..],
                Some(at) => &again[at % again.len()..],
            };
            let count = rest.len().min(left.len());
            left[..count].copy_from_slice(&rest[..count]);
            left = &mut left[count..];
            sent.set(sent.get() + count);
        }
        self.0.count(place.len())
    }

    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
        self.0.count(from.iter().map(OutSlice::len).sum())
    }

    fn poll_readable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_writable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn peer(&self) -> SocketAddr {
        ([127, 0, 0, 1], 1).into()
    }

    fn local(&self) -> SocketAddr {
        PORTAL.into()
    }

    fn shutdown(&self) {}

    fn detach(self: Box<Self>) -> Detached {
        panic!("it does not log in")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.is_closed.set(true);
    }
}

struct Door(Rc<Client>);

impl Listener for Door {
    fn try_accept(&self) -> io::Result<Box<dyn Stream>> {
        match self.0.has_come.replace(true) {
            false => Ok(Box::new(Connection(Rc::clone(&self.0)))),
            true => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn poll_acceptable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.has_come.get() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn local(&self) -> SocketAddr {
        PORTAL.into()
    }
}

/// The world of the server.
struct Flooded {
    alone: SharedWorld,
    client: Rc<Client>,
}

impl World for Flooded {
    fn now(&self) -> Instant {
        self.alone.now()
    }

    fn listen(&self, _: SocketAddr, _: &ListenOptions) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(Door(Rc::clone(&self.client))))
    }

    fn connect(&self, to: SocketAddr, options: &StreamOptions) -> io::Result<Box<dyn Stream>> {
        self.alone.connect(to, options)
    }

    fn adopt(&self, stream: Detached) -> io::Result<Box<dyn Stream>> {
        self.alone.adopt(stream)
    }

    fn turn(&self, park: Park) {
        self.client.calls.set(0);
        self.alone.turn(park);
    }

    fn unpark(&self) -> Arc<dyn Unpark> {
        self.alone.unpark()
    }
}

/// An option with this number of bytes of data, which follow.
fn option(number: u32, bytes: u32) -> Vec<u8> {
    [&b"IHAVEOPT"[..], &number.to_be_bytes(), &bytes.to_be_bytes()].concat()
}

#[test]
fn a_client_that_never_stops_sending_leaves_others_their_turns_and_is_ended_in_time() {
    let flags = 3_u32.to_be_bytes();
    for (first, again) in [
        // Its data is read and dropped.
        ([&flags[..], &option(77, u32::MAX)].concat(), vec![0; 4096]),
        // Each option is answered.
        (flags.to_vec(), [option(77, 4096), vec![0; 4096]].concat()),
    ] {
        let client = Rc::new(Client { first, again, ..Client::default() });
        let world = Rc::new(Flooded { alone: Alone::virtual_time(), client: Rc::clone(&client) });
        block_on(world, async {
            let limits = Limits { handshake_time: HANDSHAKE_TIME, ..Limits::default() };
            let front_end = Nbd::new(Config { limits, ..Config::default() }, 1);
            let portal = Portal {
                front_end: NBD,
                listen: ListenAddress::Inet(PORTAL.into()),
                tag: 1,
                advertise: None,
                stream: StreamOptions::default(),
            };
            let config = front_end_core::Config {
                volumes: Vec::new(),
                portals: vec![portal],
                limits: front_end_core::Limits::default(),
            };
            let (server, cores) = Server::new(config, 1, vec![front_end as _]);
            for core in cores {
                drop(spawn(async move {
                    let (bound, _heard) = mpsc::channel();
                    core.run(bound).await;
                }));
            }
            server.open();
            while !client.has_come.get() {
                sleep(Duration::from_micros(1)).await;
            }
            let begun = now();
            while !client.is_closed.get() {
                sleep(Duration::from_micros(10)).await;
            }
            let took = now() - begun;
            assert!(took >= HANDSHAKE_TIME / 2 && took < 2 * HANDSHAKE_TIME, "{took:?}");
        });
    }
}
