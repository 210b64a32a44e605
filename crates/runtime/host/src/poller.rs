//! The epoll of one thread, and the sockets that are registered with it.
//!
//! Each socket is registered once, edge-triggered, and its readiness is cached.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use rustix::event::epoll;

use crate::datagrams::packet::ReceiveRing;

/// Event flags for a stream.
pub(crate) const BOTH: epoll::EventFlags = epoll::EventFlags::IN
    .union(epoll::EventFlags::OUT)
    .union(epoll::EventFlags::RDHUP);

/// The epoll and the sockets registered with it.
pub(crate) struct Poller {
    pub(crate) epoll: OwnedFd,
    sources: RefCell<Sources>,
    /// The mapped receive rings, with the keys of their sockets.
    pub(crate) rings: RefCell<Vec<(u64, Weak<ReceiveRing>)>>,
}

#[derive(Default)]
struct Sources {
    slots: Vec<Slot>,
    vacant: Vec<usize>,
}

#[derive(Default)]
struct Slot {
    /// Distinguishes successive sockets in this slot: an event of a socket that has been closed must not
    /// reach the next socket.
    generation: u32,
    source: Weak<Readiness>,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Rc<Poller>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Rc::new(Poller {
            epoll,
            sources: RefCell::default(),
            rings: RefCell::default(),
        }))
    }

    pub(crate) fn register(
        self: &Rc<Poller>,
        socket: OwnedFd,
        interest: epoll::EventFlags,
    ) -> io::Result<Source> {
        let readiness = Rc::new(Readiness::default());
        let key = self.sources.borrow_mut().insert(&readiness);
        let data = epoll::EventData::new_u64(key);
        let source = Source {
            socket: Some(socket),
            readiness,
            key,
            poller: Rc::clone(self),
        };
        epoll::add(
            &self.epoll,
            source.socket(),
            data,
            interest | epoll::EventFlags::ET,
        )?;
        Ok(source)
    }

    /// Adds a receive ring of a socket to the rings that are busy-polled.
    pub(crate) fn watch(&self, source: &Source, ring: &Rc<ReceiveRing>) {
        self.rings
            .borrow_mut()
            .push((source.key, Rc::downgrade(ring)));
    }

    pub(crate) fn set_ready(&self, key: u64, flags: epoll::EventFlags) {
        let readiness = self.sources.borrow().get(key);
        if let Some(readiness) = readiness {
            readiness.set_ready(flags);
        }
    }
}

impl Sources {
    fn insert(&mut self, readiness: &Rc<Readiness>) -> u64 {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        self.slots[slot].source = Rc::downgrade(readiness);
        u64::from(self.slots[slot].generation) << 32 | slot as u64
    }

    fn get(&self, key: u64) -> Option<Rc<Readiness>> {
        let slot = self.slots.get(key as u32 as usize)?;
        (u64::from(slot.generation) == key >> 32)
            .then(|| slot.source.upgrade())
            .flatten()
    }

    fn remove(&mut self, key: u64) {
        let index = key as u32 as usize;
        if let Some(slot) = self.slots.get_mut(index) {
            // The highest generation is not used, so that no key equals the key of a world's eventfd.
            slot.generation = (slot.generation + 1) % u32::MAX;
            slot.source = Weak::new();
            self.vacant.push(index);
        }
    }
}

/// A socket and its registration.
pub(crate) struct Source {
    /// `None` only between [`Source::take`] and the drop.
    socket: Option<OwnedFd>,
    pub(crate) readiness: Rc<Readiness>,
    key: u64,
    poller: Rc<Poller>,
}

impl Source {
    pub(crate) fn socket(&self) -> &OwnedFd {
        self.socket
            .as_ref()
            .expect("a source in use has its socket")
    }

    pub(crate) fn raw(&self) -> i32 {
        self.socket().as_raw_fd()
    }

    /// Removes the registration, and returns the socket.
    pub(crate) fn take(mut self) -> OwnedFd {
        let socket = self.socket.take().expect("a source in use has its socket");
        // The socket was added when the source was created. If it is no longer registered, there is nothing
        // to do.
        let _ = epoll::delete(&self.poller.epoll, socket.as_fd());
        socket
    }

    pub(crate) fn accepted(&self, socket: OwnedFd) -> io::Result<Source> {
        self.poller.register(socket, BOTH)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // Closing the socket removes its registration from the kernel.
        self.poller.sources.borrow_mut().remove(self.key);
        self.poller
            .rings
            .borrow_mut()
            .retain(|(key, _)| *key != self.key);
    }
}

/// The cached readiness of a socket, and the wakers of waiting tasks. Both directions start as ready; the
/// first attempt determines the real state.
pub(crate) struct Readiness {
    pub(crate) reading: Direction,
    pub(crate) writing: Direction,
}

impl Default for Readiness {
    fn default() -> Readiness {
        Readiness {
            reading: Direction::ready(),
            writing: Direction::ready(),
        }
    }
}

impl Readiness {
    fn set_ready(&self, flags: epoll::EventFlags) {
        use epoll::EventFlags as Flags;
        if flags.intersects(Flags::RDHUP | Flags::HUP | Flags::ERR) {
            // From now on every read returns a result, so this direction must not be marked as not ready
            // again.
            self.reading.ends();
        }
        if flags.intersects(Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR) {
            self.reading.becomes_ready();
        }
        if flags.intersects(Flags::OUT | Flags::HUP | Flags::ERR) {
            self.writing.becomes_ready();
        }
    }
}

/// One direction of a socket.
pub(crate) struct Direction {
    ready: Cell<bool>,
    ended: Cell<bool>,
    waiter: RefCell<Option<Waker>>,
}

impl Direction {
    fn ready() -> Direction {
        Direction {
            ready: Cell::new(true),
            ended: Cell::new(false),
            waiter: RefCell::new(None),
        }
    }

    fn becomes_ready(&self) {
        self.ready.set(true);
        let waiter = self.waiter.take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    fn ends(&self) {
        self.ended.set(true);
    }

    /// Called when an attempt moved fewer bytes than requested: marks the direction as not ready until the
    /// next event. At the end of a stream it stays ready, because there is no further event.
    pub(crate) fn is_exhausted(&self) {
        self.ready.set(self.ended.get());
    }

    /// Like `is_exhausted`, for a datagram socket. An error does not end such a socket: the kernel reports it
    /// once, and later events follow.
    pub(crate) fn is_drained(&self) {
        self.ended.set(false);
        self.ready.set(false);
    }

    /// Whether an error is pending.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Returns `WouldBlock` unless an attempt may succeed.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.ready.get() {
            Ok(())
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ready.get() {
            return Poll::Ready(Ok(()));
        }
        let mut waiter = self.waiter.borrow_mut();
        match &mut *waiter {
            Some(waiter) => waiter.clone_from(cx.waker()),
            None => *waiter = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}
