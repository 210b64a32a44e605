//! A world for this crate's own tests: virtual time that jumps to the next timer, real unparking, no sockets.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::{Detached, ListenOptions, Listener, Park, SharedWorld, Stream, StreamOptions, Unpark, World};

pub(crate) struct FakeWorld {
    now: Cell<Instant>,
}

impl FakeWorld {
    pub(crate) fn shared() -> SharedWorld {
        Rc::new(FakeWorld { now: Cell::new(Instant::now()) })
    }

    fn pass(&self, time: Duration) {
        self.now.set(self.now.get() + time);
    }
}

struct UnparkThread(Thread);

impl Unpark for UnparkThread {
    fn unpark(&self) {
        self.0.unpark();
    }
}

impl World for FakeWorld {
    fn now(&self) -> Instant {
        self.now.get()
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

    fn turn(&self, park: Park) {
        match park {
            Park::No => self.pass(Duration::from_micros(1)),
            Park::For(wait) => self.pass(wait),
            Park::Forever => thread::park(),
        }
    }

    fn unpark(&self) -> Arc<dyn Unpark> {
        Arc::new(UnparkThread(thread::current()))
    }
}
