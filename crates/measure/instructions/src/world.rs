//! The reactor's runtime environment for one end of a single connection. It is minimal, since its
//! instructions count as those of the end.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use reactor::{
    Detached, InSlice, ListenOptions, Listener, OutSlice, Park, SharedWorld, Stream, StreamOptions,
    Unpark, World,
};

use crate::outside::{End, Outside};

/// The address of the target and of its peer.
pub(crate) const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 3260);

/// Creates the runtime environment of `end`, for its thread.
pub(crate) fn shared(end: End, outside: &Arc<Outside>) -> SharedWorld {
    let socket = Socket {
        end,
        outside: Arc::clone(outside),
        waiting: Rc::default(),
    };
    let listening = Listening {
        outside: Arc::clone(outside),
        socket: socket.clone(),
        waiting: Rc::default(),
    };
    Rc::new(Memory { socket, listening })
}

struct Memory {
    socket: Socket,
    listening: Listening,
}

/// An end of the connection.
#[derive(Clone)]
struct Socket {
    end: End,
    outside: Arc<Outside>,
    /// The task that waits for bytes.
    waiting: Waiting,
}

#[derive(Clone)]
struct Listening {
    outside: Arc<Outside>,
    /// The accepted connection.
    socket: Socket,
    /// The task that waits for a connection.
    waiting: Waiting,
}

type Waiting = Rc<RefCell<Option<Waker>>>;

struct Wake {
    end: End,
    outside: Arc<Outside>,
}

impl World for Memory {
    fn now(&self) -> Instant {
        self.socket.outside.now()
    }

    fn listen(&self, _: SocketAddr, _: &ListenOptions) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(self.listening.clone()))
    }

    fn connect(&self, _: SocketAddr, _: &StreamOptions) -> io::Result<Box<dyn Stream>> {
        self.socket.outside.connect();
        Ok(Box::new(self.socket.clone()))
    }

    fn adopt(&self, _: Detached) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.socket.clone()))
    }

    fn turn(&self, park: Park) {
        let Socket {
            end,
            outside,
            waiting,
        } = &self.socket;
        match park {
            Park::No => {}
            Park::For(limit) => outside.wait(*end, Some(limit)),
            Park::Forever => outside.wait(*end, None),
        }
        if outside.has_bytes(*end) {
            wake(waiting);
        }
        if outside.is_connecting(*end) {
            wake(&self.listening.waiting);
        }
    }

    fn unpark(&self) -> Arc<dyn Unpark> {
        Arc::new(Wake {
            end: self.socket.end,
            outside: Arc::clone(&self.socket.outside),
        })
    }
}

impl Unpark for Wake {
    fn unpark(&self) {
        self.outside.unpark(self.end);
    }
}

impl Listener for Listening {
    fn try_accept(&self) -> io::Result<Box<dyn Stream>> {
        match self.outside.accept() {
            true => Ok(Box::new(self.socket.clone())),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn poll_acceptable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll(
            self.outside.is_connecting(self.socket.end),
            &self.waiting,
            cx,
        )
    }

    fn local(&self) -> SocketAddr {
        ADDRESS
    }
}

impl Stream for Socket {
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
        match self.outside.take(self.end, into) {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    fn readable_bytes(&self) -> usize {
        self.outside.bytes(self.end)
    }

    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
        Ok(self.outside.put(self.end, from))
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll(self.outside.has_bytes(self.end), &self.waiting, cx)
    }

    fn poll_writable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn peer(&self) -> SocketAddr {
        ADDRESS
    }

    fn local(&self) -> SocketAddr {
        ADDRESS
    }

    fn shutdown(&self) {}

    fn detach(self: Box<Self>) -> Detached {
        Box::new(()) // there is only one connection
    }
}

fn poll(ready: bool, waiting: &Waiting, cx: &Context<'_>) -> Poll<io::Result<()>> {
    if ready {
        return Poll::Ready(Ok(()));
    }
    match &mut *waiting.borrow_mut() {
        Some(known) => known.clone_from(cx.waker()),
        none => *none = Some(cx.waker().clone()),
    }
    Poll::Pending
}

fn wake(waiting: &Waiting) {
    if let Some(waker) = &*waiting.borrow() {
        waker.wake_by_ref();
    }
}
