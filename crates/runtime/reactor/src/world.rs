//! The interface to the operating system: listeners, time, and sleeping.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::datagrams::{DatagramOptions, Datagrams, DetachedDatagrams};
use crate::stream::{Detached, Stream, StreamOptions};

/// Accepts streams.
pub trait Listener {
    /// The next pending connection, if any.
    fn try_accept(&self) -> io::Result<Box<dyn Stream>>;
    /// Ready when `try_accept` may find one.
    fn poll_acceptable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// The local address, with the port actually used.
    fn local(&self) -> SocketAddr;
}

/// Options of a listener.
#[derive(Clone, Debug, Default)]
pub struct ListenOptions {
    /// Options of every accepted stream.
    pub stream: StreamOptions,
}

/// The runtime environment of one thread: network, clock and sleep.
pub trait World {
    /// Monotonic time.
    fn now(&self) -> Instant;
    /// Listens on `at`.
    fn listen(&self, at: SocketAddr, options: &ListenOptions) -> io::Result<Box<dyn Listener>>;
    /// Starts to connect; the stream is writable once connected, and `try_write` returns the error if that failed.
    fn connect(&self, to: SocketAddr, options: &StreamOptions) -> io::Result<Box<dyn Stream>>;
    /// Connects to the Unix socket at `path`. Its address is that of the IPv4 loopback with port 0.
    ///
    /// # Errors
    /// System errors; this world has no Unix sockets.
    fn connect_local(&self, _path: &Path) -> io::Result<Box<dyn Stream>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Listens on a Unix socket at `path`, for the owner of this process only; its file is removed with the listener. The
    /// addresses are those of [`World::connect_local`].
    ///
    /// # Errors
    /// `AddrInUse`: a server listens there. Others: the path is unusable for a socket; this world has no Unix
    /// sockets.
    fn listen_local(&self, _path: &Path) -> io::Result<Box<dyn Listener>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Opens an endpoint of datagrams: frames of raw Ethernet, or UDP.
    ///
    /// # Errors
    /// A message with a remedy, if the system's error has none; this world has no datagrams.
    fn datagrams(&self, _options: &DatagramOptions) -> io::Result<Box<dyn Datagrams>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Opens an endpoint of datagrams for another thread, which adopts it with [`World::adopt_datagrams`].
    /// Datagrams that arrive meanwhile are queued.
    ///
    /// # Errors
    /// Errors of [`World::datagrams`].
    fn detached_datagrams(&self, _options: &DatagramOptions) -> io::Result<DetachedDatagrams> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Adopts an endpoint that another thread opened.
    ///
    /// # Errors
    /// System errors; the endpoint belongs to another kind of world.
    fn adopt_datagrams(&self, _detached: DetachedDatagrams) -> io::Result<Box<dyn Datagrams>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// The primary name of the interface with this alternative name, which reveals two names of one
    /// interface. Any other name is returned unchanged.
    fn interface_name(&self, name: &str) -> String {
        name.to_owned()
    }
    /// Adopts a stream that another thread detached.
    fn adopt(&self, stream: Detached) -> io::Result<Box<dyn Stream>>;
    /// Polls for events and wakes their tasks. Without events it sleeps, for `park` at most.
    fn turn(&self, park: Park);
    /// Maximum number of tasks run between two turns: enough to spread the cost of a turn, few enough that a
    /// socket waits no longer than some ten microseconds.
    fn batch(&self) -> usize {
        128
    }
    /// Makes the next wait of [`World::turn`] start with a sleep of this length, so that more work of this
    /// thread arrives in a batch. Ignored by a world that does not wait for the kernel, and if the thread
    /// also serves other sockets.
    fn gather(&self, _span: Duration) {}
    /// Busy-poll time of the thread so far, in CPU time: unsuccessful polls instead of sleeping. The rest of
    /// its CPU time is work. Zero in a world that does not busy-poll.
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
    /// No longer than this: the time until the next timer.
    For(Duration),
    /// Until an event occurs.
    Forever,
}

/// Ends a thread's sleep from another thread.
pub trait Unpark: Send + Sync {
    /// Makes the current or next [`World::turn`] return.
    fn unpark(&self);
}

/// A world shared by tasks.
pub type SharedWorld = Rc<dyn World>;
