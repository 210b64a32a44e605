//! A runtime environment of plain sockets without readiness notifications: every turn wakes all waiting
//! tasks. It is slow and simple, and shares no code with the real environments, because this crate must not
//! depend on these. Everything except sockets is provided by [`Alone`].

use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use reactor::{
    Alone, Detached, InSlice, ListenOptions, Listener, OutSlice, Park, SharedWorld, Stream,
    StreamOptions, Unpark, World,
};

/// Polling interval while there is nothing else to do.
const NAP: Duration = Duration::from_micros(200);

pub(crate) struct Polled {
    alone: SharedWorld,
    waiting: Rc<RefCell<Vec<Waker>>>,
}

impl Polled {
    pub(crate) fn world() -> SharedWorld {
        Rc::new(Polled {
            alone: Alone::real_time(),
            waiting: Rc::default(),
        })
    }
}

impl World for Polled {
    fn now(&self) -> Instant {
        self.alone.now()
    }

    fn listen(&self, at: SocketAddr, options: &ListenOptions) -> io::Result<Box<dyn Listener>> {
        self.alone.listen(at, options)
    }

    fn connect(&self, to: SocketAddr, _: &StreamOptions) -> io::Result<Box<dyn Stream>> {
        let socket = TcpStream::connect(to)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Box::new(Socket {
            socket,
            full: Cell::new(false),
            waiting: Rc::clone(&self.waiting),
        }))
    }

    fn adopt(&self, stream: Detached) -> io::Result<Box<dyn Stream>> {
        self.alone.adopt(stream)
    }

    fn turn(&self, park: Park) {
        self.alone.turn(match park {
            Park::No => Park::No,
            Park::For(time) => Park::For(time.min(NAP)),
            Park::Forever => Park::For(NAP),
        });
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    fn unpark(&self) -> Arc<dyn Unpark> {
        self.alone.unpark()
    }
}

struct Socket {
    socket: TcpStream,
    /// Whether the last write would have blocked, and no task has waited since.
    full: Cell<bool>,
    waiting: Rc<RefCell<Vec<Waker>>>,
}

impl Socket {
    /// Wakes the caller after the next turn.
    fn wait(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.waiting.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }
}

impl Stream for Socket {
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
        let mut total = 0;
        for slice in into {
            let InSlice::Bytes(bytes) = slice else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            match (&self.socket).read(bytes) {
                // Stop here, because bytes that arrive later must be stored after these, not in the next
                // slice.
                Ok(read) if read < bytes.len() => return Ok(total + read),
                Ok(read) => total += read,
                Err(error) if total > 0 && error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
        let mut total = 0;
        for slice in from {
            let OutSlice::Bytes(bytes) = slice else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            match (&self.socket).write(bytes) {
                Ok(written) => {
                    total += written;
                    if written < bytes.len() {
                        break;
                    }
                }
                Err(error) if total > 0 && error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.full.set(error.kind() == io::ErrorKind::WouldBlock);
                    return Err(error);
                }
            }
        }
        Ok(total)
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.socket.peek(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Only an attempt to write shows whether the socket has space. There is one attempt per turn.
        if self.full.replace(false) {
            self.wait(cx)
        } else {
            Poll::Ready(Ok(()))
        }
    }

    fn peer(&self) -> SocketAddr {
        self.socket.peer_addr().expect("it is connected")
    }

    fn local(&self) -> SocketAddr {
        self.socket.local_addr().expect("it is connected")
    }

    fn shutdown(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn detach(self: Box<Self>) -> Detached {
        Box::new(self.socket)
    }
}
