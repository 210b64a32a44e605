//! A runtime environment with one target, streams that are queues of bytes, and time that advances only if all are idle.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use reactor::{
    Detached, InSlice, ListenOptions, Listener, OutSlice, Park, SharedWorld, Stream, StreamOptions,
    Unpark, World,
};

use crate::target::Target;

pub(crate) struct InMemory {
    begin: Instant,
    now: Cell<Instant>,
    turns: Cell<u32>,
    target: RefCell<Target>,
    wires: RefCell<Vec<Rc<Wire>>>,
}

/// Limit on work, far above what all timeouts of an initiator permit: exceeding it means an endless loop.
const TURNS_MAX: u32 = 1_000_000;
/// Limit on time: some hundred commands, each with its timeout, one retry and error recovery.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// A connection with both of its ends.
#[derive(Default)]
pub(crate) struct Wire {
    to_target: RefCell<Vec<u8>>,
    to_initiator: RefCell<Vec<u8>>,
    is_closed: Cell<bool>,
    reader: RefCell<Option<Waker>>,
}

impl InMemory {
    pub(crate) fn shared(target: Target) -> SharedWorld {
        let begin = Instant::now();
        Rc::new(InMemory {
            begin,
            now: Cell::new(begin),
            turns: Cell::new(0),
            target: RefCell::new(target),
            wires: RefCell::default(),
        })
    }

    /// Lets the target process input and send output. Returns whether an initiator has data to read.
    fn deliver(&self) -> bool {
        let mut target = self.target.borrow_mut();
        let mut wires = self.wires.borrow_mut();
        for (number, wire) in wires.iter().enumerate() {
            target.serve(
                number,
                &mut wire.to_target.borrow_mut(),
                &mut wire.to_initiator.borrow_mut(),
            );
            if target.hangs_up() {
                wire.is_closed.set(true);
            }
        }
        let woken = wires
            .iter()
            .filter_map(|wire| wire.news())
            .map(Waker::wake)
            .count();
        // A wire without a stream keeps its index, so that the indices of the others do not change.
        if wires.iter().all(|wire| Rc::strong_count(wire) == 1) {
            wires.clear();
        }
        woken > 0
    }
}

impl Wire {
    /// Readers whose data is now available.
    fn news(&self) -> Option<Waker> {
        let something = self.is_closed.get() || !self.to_initiator.borrow().is_empty();
        if something { self.reader.take() } else { None }
    }
}

impl World for InMemory {
    fn now(&self) -> Instant {
        self.now.get()
    }

    fn listen(&self, _: SocketAddr, _: &ListenOptions) -> io::Result<Box<dyn Listener>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn connect(&self, _: SocketAddr, _: &StreamOptions) -> io::Result<Box<dyn Stream>> {
        if self.target.borrow_mut().refuses() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let wire = Rc::new(Wire::default());
        self.wires.borrow_mut().push(Rc::clone(&wire));
        Ok(Box::new(End(wire)))
    }

    fn adopt(&self, _: Detached) -> io::Result<Box<dyn Stream>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn turn(&self, park: Park) {
        self.turns.set(self.turns.get() + 1);
        assert!(self.turns.get() < TURNS_MAX, "it does not terminate");
        let passed = match (self.deliver(), park) {
            (true, _) | (false, Park::No) => Duration::from_micros(1),
            (false, Park::For(time)) => time,
            (false, Park::Forever) => panic!("asleep for ever"),
        };
        self.now.set(self.now.get() + passed);
        assert!(self.now.get() - self.begin < TIME_MAX, "it takes too long");
    }

    fn unpark(&self) -> Arc<dyn Unpark> {
        Arc::new(Nobody)
    }
}

/// Does nothing, because there is only one thread, and it sleeps only in virtual time.
struct Nobody;

impl Unpark for Nobody {
    fn unpark(&self) {}
}

/// The initiator's end of a wire.
struct End(Rc<Wire>);

impl Stream for End {
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
        let mut bytes = self.0.to_initiator.borrow_mut();
        if bytes.is_empty() {
            return if self.0.is_closed.get() {
                Ok(0)
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            };
        }
        let mut read = 0;
        for slice in into {
            let InSlice::Bytes(slice) = slice else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            let length = slice.len().min(bytes.len() - read);
            slice[..length].copy_from_slice(&bytes[read..read + length]);
            read += length;
        }
        bytes.drain(..read);
        Ok(read)
    }

    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
        if self.0.is_closed.get() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut bytes = self.0.to_target.borrow_mut();
        let before = bytes.len();
        for slice in from {
            let OutSlice::Bytes(slice) = slice else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            bytes.extend_from_slice(slice);
        }
        Ok(bytes.len() - before)
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.is_closed.get() || !self.0.to_initiator.borrow().is_empty() {
            return Poll::Ready(Ok(()));
        }
        *self.0.reader.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_writable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn peer(&self) -> SocketAddr {
        (Ipv4Addr::new(192, 0, 2, 1), 3260).into()
    }

    fn local(&self) -> SocketAddr {
        (Ipv4Addr::new(192, 0, 2, 2), 40_000).into()
    }

    fn shutdown(&self) {
        self.0.is_closed.set(true);
    }

    fn detach(self: Box<Self>) -> Detached {
        Box::new(())
    }
}
