//! The interface to the operating system: streams, listeners, time, and sleeping.

use std::any::Any;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::datagrams::{DatagramOptions, Datagrams, DetachedDatagrams};
use crate::executor;
use crate::path::PathInfo;

/// A slice to receive into.
#[derive(Debug)]
pub enum InSlice<'a> {
    /// Memory of our own.
    Bytes(&'a mut [u8]),
    /// A volume's own memory, which other cores may read at the same time.
    Shared(&'a [AtomicU8]),
}

/// A slice to send.
#[derive(Clone, Copy, Debug)]
pub enum OutSlice<'a> {
    /// Memory of our own.
    Bytes(&'a [u8]),
    /// A volume's own memory, which other cores may write at the same time.
    Shared(&'a [AtomicU8]),
}

impl OutSlice<'_> {
    /// Bytes of it.
    pub fn len(&self) -> usize {
        match self {
            OutSlice::Bytes(bytes) => bytes.len(),
            OutSlice::Shared(bytes) => bytes.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A connected byte stream that never blocks.
pub trait Stream {
    /// Receives what is there into the slices, in order. `Ok(0)` is the peer's end of stream;
    /// `WouldBlock` means nothing is there yet.
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize>;
    /// A lower bound of the bytes that the next [`Stream::try_read`] finds, if it has room for them. 0 from a
    /// stream that cannot tell.
    fn readable_bytes(&self) -> usize {
        0
    }
    /// Sends as much as fits, from the first slice on. `WouldBlock` means nothing fits now.
    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize>;
    /// Ready when `try_read` may find something. Keeps the waker of the last caller.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Ready when `try_write` may find room. Keeps the waker of the last caller.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Makes `poll_readable` wait for this many bytes, or the end of the stream (SO_RCVLOWAT): for readers
    /// that know that more is coming and need not be woken for less. One is the default. Streams without such
    /// an option are unchanged.
    fn gather(&self, _bytes: usize) {}
    /// The other end.
    fn peer(&self) -> SocketAddr;
    /// This end.
    fn local(&self) -> SocketAddr;
    /// Ends both directions; later reads and writes fail.
    fn shutdown(&self);
    /// The same, and what was written and has not been sent never will be, where the transport can do that: of a TCP
    /// connection that is lost, the kernel would deliver the rest minutes later.
    fn reset(&self) {
        self.shutdown();
    }
    /// State of the path to the peer, as the transport knows it; `None` if unknown.
    fn path(&self) -> Option<PathInfo> {
        None
    }
    /// Detaches the stream from this thread, so that another can [`World::adopt`] it. Nothing received is
    /// lost.
    fn detach(self: Box<Self>) -> Detached;
}

/// What one read has filled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// Bytes at the place that they were meant for.
    pub placed: usize,
    /// Bytes behind them, in the buffer for the rest.
    pub rest: usize,
    /// Everything was filled, so that there may be more.
    pub is_full: bool,
}

impl dyn Stream + '_ {
    /// One read to where the next bytes belong, memory of our own and then of a volume, and of what follows them to
    /// `rest`. An end of the stream fills nothing.
    pub fn receive(&self, bytes: &mut [u8], blocks: &[AtomicU8], rest: &mut [u8]) -> io::Result<Received> {
        let direct = bytes.len() + blocks.len();
        let room = direct + rest.len();
        let mut places = [InSlice::Bytes(bytes), InSlice::Shared(blocks), InSlice::Bytes(rest)];
        let read = match direct {
            0 => self.try_read(&mut places[2..])?,
            _ => self.try_read(&mut places)?,
        };
        let placed = read.min(direct);
        Ok(Received { placed, rest: read - placed, is_full: read == room })
    }

    /// Waits for bytes and receives what is there, as far as it fits. `Ok(0)` is the peer's end of stream. No byte is
    /// lost if the future is dropped.
    ///
    /// This and the other waiting calls yield to the core's other tasks once a task has moved its share in one poll:
    /// a peer that never stops sending, or taking, cannot keep a deadline from passing.
    pub async fn read_some(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            executor::proceed().await;
            let read = self.try_read(&mut [InSlice::Bytes(bytes)]);
            executor::spend(*read.as_ref().unwrap_or(&0));
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| self.poll_readable(cx)).await?;
                }
                read => return read,
            }
        }
    }

    /// Fills `bytes`, and reads nothing behind them. An end of the stream before is an error.
    pub async fn read_exact(&self, bytes: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.read_some(&mut bytes[filled..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
        Ok(())
    }

    /// Sends all of `bytes`.
    pub async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            executor::proceed().await;
            let written = self.try_write(&[OutSlice::Bytes(&bytes[sent..])]);
            executor::spend(*written.as_ref().unwrap_or(&0));
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| self.poll_writable(cx)).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A stream on its way to another thread.
pub type Detached = Box<dyn Any + Send>;

/// Accepts streams.
pub trait Listener {
    /// The next connection, if one waits.
    fn try_accept(&self) -> io::Result<Box<dyn Stream>>;
    /// Ready when `try_accept` may find one.
    fn poll_acceptable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Where it listens, with the port that was really taken.
    fn local(&self) -> SocketAddr;
}

impl dyn Listener + '_ {
    /// Waits for the next connection. Yields now and then, however many connections come.
    pub async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        loop {
            executor::proceed().await;
            executor::spend(0);
            match self.try_accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| self.poll_acceptable(cx)).await?;
                }
                accepted => return accepted,
            }
        }
    }
}

/// How a listener is set up.
#[derive(Clone, Debug, Default)]
pub struct ListenOptions {
    /// For every accepted stream.
    pub stream: StreamOptions,
}

/// How a stream is set up. NODELAY is always on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Congestion control by name, e.g. `cubic`; the system's default if `None`.
    pub congestion: Option<String>,
    /// SO_SNDBUF in bytes; the system's automatic size if `None`.
    pub send_buffer_bytes: Option<usize>,
    /// SO_RCVBUF in bytes; the system's automatic size if `None`.
    pub receive_buffer_bytes: Option<usize>,
    /// TCP_MAXSEG: the longest segment in either direction, in bytes, for a path that silently drops longer
    /// ones; for connecting only. `None`: what the path allows.
    pub segment_bytes: Option<u16>,
    /// The address to come from; for connecting only.
    pub source: Option<SocketAddr>,
}

/// One thread's access to the world.
pub trait World {
    /// Monotonic time.
    fn now(&self) -> Instant;
    /// Listens on `at`.
    fn listen(&self, at: SocketAddr, options: &ListenOptions) -> io::Result<Box<dyn Listener>>;
    /// Begins to connect; the stream is writable once connected, and `try_write` returns the error if that
    /// failed.
    fn connect(&self, to: SocketAddr, options: &StreamOptions) -> io::Result<Box<dyn Stream>>;
    /// Connects to the Unix socket at `path`. Its address is that of the IPv4 loopback with port 0.
    ///
    /// # Errors
    /// The system's; that this world has none.
    fn connect_local(&self, _path: &Path) -> io::Result<Box<dyn Stream>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Listens on a Unix socket at `path`, for the owner of this process only; its file is removed with the listener. The
    /// addresses are those of [`World::connect_local`].
    ///
    /// # Errors
    /// `AddrInUse`: a server listens there. Others: there can be no socket; this world has none.
    fn listen_local(&self, _path: &Path) -> io::Result<Box<dyn Listener>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Opens an endpoint of datagrams: frames of raw Ethernet, or UDP.
    ///
    /// # Errors
    /// A sentence that says what is missing and how to get it, where the system's has none; that this world has none.
    fn datagrams(&self, _options: &DatagramOptions) -> io::Result<Box<dyn Datagrams>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Opens an endpoint of datagrams for another thread, which makes it its own by [`World::adopt_datagrams`]. What arrives meanwhile
    /// waits there.
    ///
    /// # Errors
    /// Those of [`World::datagrams`].
    fn detached_datagrams(&self, _options: &DatagramOptions) -> io::Result<DetachedDatagrams> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Makes an endpoint that another thread opened one of this thread.
    ///
    /// # Errors
    /// The system's; that it is one of another kind of world.
    fn adopt_datagrams(&self, _detached: DetachedDatagrams) -> io::Result<Box<dyn Datagrams>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// The interface's own name, if this is one of its alternative names: two names of one interface are told by it. Any other name is given
    /// back as it is.
    fn interface_name(&self, name: &str) -> String {
        name.to_owned()
    }
    /// Makes a stream that another thread detached one of this thread.
    fn adopt(&self, stream: Detached) -> io::Result<Box<dyn Stream>>;
    /// Polls for events and wakes their tasks. Without events it sleeps, for at most `park`.
    fn turn(&self, park: Park);
    /// How many tasks may run between two turns: enough to spread the cost of a turn, few enough that a
    /// socket waits for at most some ten microseconds.
    fn batch(&self) -> usize {
        128
    }
    /// Lets the next wait of [`World::turn`] begin with a sleep of so long, in which more of what this thread serves
    /// can come together. Ignored by a world that does not wait for the kernel, and if others are served, too.
    fn gather(&self, _span: Duration) {}
    /// Busy-poll time of the thread so far, in CPU time: idle polls instead of sleeping. The rest of its CPU
    /// time is work. Zero in a world that does not busy-poll.
    fn looked_in_vain(&self) -> Duration {
        Duration::ZERO
    }
    /// A handle by which any thread can end the sleep of [`World::turn`].
    fn unpark(&self) -> Arc<dyn Unpark>;
}

/// How long [`World::turn`] may wait for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Park {
    /// Do not sleep: tasks are ready to run.
    No,
    /// At most so long: the next timer.
    For(Duration),
    /// Until something happens.
    Forever,
}

/// Ends a thread's sleep from another thread.
pub trait Unpark: Send + Sync {
    /// Makes the current or next [`World::turn`] return.
    fn unpark(&self);
}

/// A world shared by tasks.
pub type SharedWorld = Rc<dyn World>;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{Alone, Elapsed, block_on, sleep, spawn, timeout};

    /// A peer that always has more to say, and takes all that it is sent.
    #[derive(Default)]
    struct Endless {
        calls: Cell<u32>,
    }

    impl Endless {
        fn count(&self, bytes: usize) -> io::Result<usize> {
            self.calls.set(self.calls.get() + 1);
            assert!(self.calls.get() < STARVED, "a peer kept the core from its other tasks and its timers");
            Ok(bytes)
        }
    }

    /// Far more calls than a task may make before the others run.
    const STARVED: u32 = 1_000_000;

    impl Stream for Endless {
        fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
            let room = into.iter().map(|slice| match slice {
                InSlice::Bytes(bytes) => bytes.len(),
                InSlice::Shared(bytes) => bytes.len(),
            });
            self.count(room.sum())
        }

        fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
            self.count(from.iter().map(OutSlice::len).sum())
        }

        fn poll_readable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_writable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn peer(&self) -> SocketAddr {
            SocketAddr::from(([127, 0, 0, 1], 1))
        }

        fn local(&self) -> SocketAddr {
            SocketAddr::from(([127, 0, 0, 1], 2))
        }

        fn shutdown(&self) {}

        fn detach(self: Box<Self>) -> Detached {
            Box::new(())
        }
    }

    /// Receives options of 16 bytes and answers each, as a handshake does.
    async fn talk(stream: &dyn Stream) -> io::Result<()> {
        loop {
            stream.read_exact(&mut [0; 16]).await?;
            stream.write_all(&[0; 20]).await?;
        }
    }

    #[test]
    fn a_peer_that_never_stops_sending_runs_into_its_deadline() {
        block_on(Alone::virtual_time(), async {
            let talked = timeout(Duration::from_millis(1), talk(&Endless::default())).await;
            assert!(matches!(talked, Err(Elapsed)));
        });
    }

    #[test]
    fn a_peer_that_never_stops_sending_leaves_other_tasks_their_turns() {
        block_on(Alone::virtual_time(), async {
            let flood = spawn(async { talk(&Endless::default()).await });
            for _ in 0..100 {
                sleep(Duration::from_micros(10)).await;
            }
            flood.abort();
        });
    }

    #[test]
    fn long_work_for_a_peer_is_done_in_parts() {
        block_on(Alone::virtual_time(), async {
            let scan = async {
                for step in 0.. {
                    assert!(step < STARVED, "a scan kept the core from its timers");
                    crate::consume_budget(64 << 10).await;
                }
            };
            assert_eq!(timeout(Duration::from_millis(1), scan).await, Err(Elapsed));
        });
    }
}
