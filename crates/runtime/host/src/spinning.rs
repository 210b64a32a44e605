//! A world that never sleeps and uses no epoll: each turn polls the sockets of all waiting tasks.
//!
//! A poll costs one `recvmsg` per waiting socket, so this is for few sockets and a core without other work:
//! for measuring the maximum throughput of a socket. It has no files.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use reactor::{
    Detached, InSlice, ListenOptions, Listener, OutSlice, Park, PathInfo, SharedWorld, Stream, StreamOptions,
    Unpark, World,
};
use socket2::SockRef;

use crate::{path, tcp};

/// A [`World`] that polls all the time.
#[derive(Default)]
pub struct Spinning {
    waiting: Rc<Waiting>,
}

impl Spinning {
    /// As the executor takes it.
    pub fn shared() -> SharedWorld {
        Rc::new(Spinning::default())
    }

    fn stream(&self, socket: OwnedFd, peer: SocketAddr) -> io::Result<Box<dyn Stream>> {
        let local = Cell::new(tcp::address(&SockRef::from(&socket).local_addr()?)?);
        let [reading, writing] = [Blocked::default(), Blocked::default()];
        Ok(Box::new(SpinningStream {
            socket,
            peer,
            local,
            reading,
            writing,
            waiting: Rc::clone(&self.waiting),
        }))
    }
}

/// Waiting tasks.
#[derive(Default)]
struct Waiting {
    streams: RefCell<Vec<Waker>>,
    listeners: RefCell<Vec<Waker>>,
    turns: Cell<u32>,
}

/// Turns between two looks for new connections: a look that finds none costs as much as one at a stream, and
/// a new connection can wait a tenth of a millisecond.
const LISTENERS_TURNS: u32 = 256;

impl Waiting {
    fn turn(&self) -> u32 {
        self.turns.get()
    }

    fn wake(list: &RefCell<Vec<Waker>>) {
        let mut waiting = list.take();
        waiting.drain(..).for_each(Waker::wake);
        // The vector goes back, so that its memory is used again; whoever waits anew has to be kept.
        let mut again = list.borrow_mut();
        waiting.append(&mut again);
        *again = waiting;
    }
}

/// Time of the last attempt without data: no other attempt is made at the same time.
#[derive(Default)]
struct Blocked(Cell<Option<u32>>);

impl Blocked {
    /// Records the result of an attempt at this time.
    fn note<T>(&self, time: u32, outcome: io::Result<T>) -> io::Result<T> {
        let is_blocked = matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        self.0.set(is_blocked.then_some(time));
        outcome
    }

    /// Ready if no attempt was made at this time; else the waker is registered.
    fn poll(&self, time: u32, list: &RefCell<Vec<Waker>>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.get() != Some(time) {
            return Poll::Ready(Ok(()));
        }
        list.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }
}

impl World for Spinning {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn listen(&self, at: SocketAddr, options: &ListenOptions) -> io::Result<Box<dyn Listener>> {
        let (socket, local) = tcp::listen(at, &options.stream)?;
        let (waiting, options) = (Rc::clone(&self.waiting), options.stream.clone());
        Ok(Box::new(SpinningListener { socket, local, options, arriving: Blocked::default(), waiting }))
    }

    fn connect(&self, to: SocketAddr, options: &StreamOptions) -> io::Result<Box<dyn Stream>> {
        self.stream(tcp::connect(to, options)?, to)
    }

    fn adopt(&self, stream: Detached) -> io::Result<Box<dyn Stream>> {
        let detached = stream.downcast::<tcp::DetachedTcp>().map_err(|_| io::ErrorKind::InvalidInput)?;
        self.stream(detached.socket, detached.peer)
    }

    fn turn(&self, _park: Park) {
        let turn = self.waiting.turns.get().wrapping_add(1);
        self.waiting.turns.set(turn);
        Waiting::wake(&self.waiting.streams);
        if turn.is_multiple_of(LISTENERS_TURNS) {
            Waiting::wake(&self.waiting.listeners);
        }
    }

    fn unpark(&self) -> Arc<dyn Unpark> {
        Arc::new(Awake)
    }
}

/// This world never sleeps.
struct Awake;

impl Unpark for Awake {
    fn unpark(&self) {}
}

struct SpinningStream {
    socket: OwnedFd,
    peer: SocketAddr,
    local: Cell<SocketAddr>,
    reading: Blocked,
    writing: Blocked,
    waiting: Rc<Waiting>,
}

impl Stream for SpinningStream {
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
        let wanted = tcp::InVector::from_slices(into);
        if wanted.bytes == 0 {
            return Ok(0);
        }
        self.reading.note(self.waiting.turn(), wanted.receive(self.socket.as_raw_fd()))
    }

    fn readable_bytes(&self) -> usize {
        tcp::readable_bytes(&self.socket)
    }

    /// False while it connects; if that fails, an attempt returns the error.
    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
        let offered = tcp::OutVector::from_slices(from);
        if offered.bytes == 0 {
            return Ok(0);
        }
        self.writing.note(self.waiting.turn(), offered.send(self.socket.as_raw_fd()))
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.reading.poll(self.waiting.turn(), &self.waiting.streams, cx)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writing.poll(self.waiting.turn(), &self.waiting.streams, cx)
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn local(&self) -> SocketAddr {
        // A socket that was still connecting has its address now.
        if let Ok(Ok(local)) = SockRef::from(&self.socket).local_addr().map(|local| tcp::address(&local)) {
            self.local.set(local);
        }
        self.local.get()
    }

    fn shutdown(&self) {
        // It fails only if the peer ended the connection first, which is as good.
        let _ = SockRef::from(&self.socket).shutdown(std::net::Shutdown::Both);
    }

    fn path(&self) -> Option<PathInfo> {
        path::info(&self.socket)
    }

    fn detach(self: Box<Self>) -> Detached {
        let SpinningStream { socket, peer, .. } = *self;
        Box::new(tcp::DetachedTcp { socket, peer, connecting: true })
    }
}

struct SpinningListener {
    socket: OwnedFd,
    local: SocketAddr,
    options: StreamOptions,
    arriving: Blocked,
    waiting: Rc<Waiting>,
}

impl Listener for SpinningListener {
    fn try_accept(&self) -> io::Result<Box<dyn Stream>> {
        let accepted = SockRef::from(&self.socket).accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let (socket, peer) = self.arriving.note(self.waiting.turn() / LISTENERS_TURNS, accepted)?;
        tcp::apply(&socket, &self.options)?;
        let world = Spinning { waiting: Rc::clone(&self.waiting) };
        world.stream(socket.into(), tcp::address(&peer)?)
    }

    fn poll_acceptable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.arriving.poll(self.waiting.turn() / LISTENERS_TURNS, &self.waiting.listeners, cx)
    }

    fn local(&self) -> SocketAddr {
        self.local
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::Ipv4Addr;

    use super::*;

    async fn send(stream: &dyn Stream, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match stream.try_write(&[OutSlice::Bytes(bytes)]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| stream.poll_writable(cx)).await?;
                }
                sent => return sent,
            }
        }
    }

    async fn receive(stream: &dyn Stream, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match stream.try_read(&mut [InSlice::Bytes(into)]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| stream.poll_readable(cx)).await?;
                }
                received => return received,
            }
        }
    }

    #[test]
    fn both_ends_of_a_connection_get_what_the_other_one_sends() {
        let said = reactor::block_on(Spinning::shared(), async {
            let world = reactor::world();
            let listener = world.listen((Ipv4Addr::LOCALHOST, 0).into(), &ListenOptions::default())?;
            let at = listener.local();
            let echo = reactor::spawn(async move {
                let stream = listener.accept().await?;
                let mut bytes = [0; 8];
                let count = receive(&*stream, &mut bytes).await?;
                send(&*stream, &bytes[..count]).await
            });
            let stream = world.connect(at, &StreamOptions::default())?;
            send(&*stream, b"spin").await?;
            let mut bytes = [0; 8];
            let count = receive(&*stream, &mut bytes).await?;
            echo.await?;
            Ok::<_, io::Error>(bytes[..count].to_vec())
        });
        assert_eq!(said.expect("a connection over the loopback"), b"spin");
    }

    #[test]
    fn a_connection_that_is_refused_says_so() {
        let refused = reactor::block_on(Spinning::shared(), async {
            let listener =
                reactor::world().listen((Ipv4Addr::LOCALHOST, 0).into(), &ListenOptions::default())?;
            let at = listener.local();
            drop(listener);
            let stream = reactor::world().connect(at, &StreamOptions::default())?;
            send(&*stream, b"spin").await
        });
        assert_eq!(refused.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionRefused));
    }
}
