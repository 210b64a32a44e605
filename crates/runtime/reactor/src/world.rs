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
    /// Ready when `try_accept` may return a connection.
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
    /// Listens on the address `at`.
    fn listen(&self, at: SocketAddr, options: &ListenOptions) -> io::Result<Box<dyn Listener>>;
    /// Starts to connect, and returns immediately. The stream becomes writable once the connection is
    /// established. If connecting fails, `try_write` returns the error.
    fn connect(&self, to: SocketAddr, options: &StreamOptions) -> io::Result<Box<dyn Stream>>;
    /// Connects to the Unix socket at `path`. The stream reports both of its addresses as 127.0.0.1:0.
    ///
    /// # Errors
    /// System errors, or `Unsupported` if this world has no Unix sockets.
    fn connect_local(&self, _path: &Path) -> io::Result<Box<dyn Stream>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Listens on a Unix socket at `path`. Only the user of this process can connect. Dropping the listener
    /// removes the socket file. Streams and listener report the same address as in [`World::connect_local`].
    ///
    /// # Errors
    /// `AddrInUse` if another server listens on this socket; `Unsupported` if this world has no Unix sockets;
    /// other errors if a socket cannot be created at the path.
    fn listen_local(&self, _path: &Path) -> io::Result<Box<dyn Listener>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Opens a datagram endpoint: raw Ethernet frames, or UDP.
    ///
    /// # Errors
    /// System errors, with a remedy added where the system's message has none; `Unsupported` if this world
    /// has no datagrams.
    fn datagrams(&self, _options: &DatagramOptions) -> io::Result<Box<dyn Datagrams>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Opens a datagram endpoint for another thread, which adopts it with [`World::adopt_datagrams`].
    /// Datagrams that arrive before the adoption are queued.
    ///
    /// # Errors
    /// The same as for [`World::datagrams`].
    fn detached_datagrams(&self, _options: &DatagramOptions) -> io::Result<DetachedDatagrams> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Attaches to this thread a datagram endpoint that another thread opened.
    ///
    /// # Errors
    /// System errors, or an error if the endpoint was opened by another kind of world.
    fn adopt_datagrams(&self, _detached: DetachedDatagrams) -> io::Result<Box<dyn Datagrams>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Returns the primary name of the interface with this alternative name, so that callers can detect two
    /// names of one interface. Any other name is returned unchanged.
    fn interface_name(&self, name: &str) -> String {
        name.to_owned()
    }
    /// Attaches to this thread a stream that another thread detached.
    fn adopt(&self, stream: Detached) -> io::Result<Box<dyn Stream>>;
    /// Polls for events and wakes the tasks that wait for them. If there is no event, it sleeps, at most as
    /// long as `park` permits.
    fn turn(&self, park: Park);
    /// Maximum number of tasks run between two turns: enough to amortize the cost of a turn, and few enough
    /// that a ready socket waits only some tens of microseconds.
    fn batch(&self) -> usize {
        128
    }
    /// Makes the next wait in [`World::turn`] start with a sleep of this length, so that more work for this
    /// thread accumulates and is processed in one batch. Ignored by worlds that do not wait for the kernel,
    /// and if the thread also serves other sockets.
    fn gather(&self, _span: Duration) {}
    /// Total CPU time that the thread has spent on unsuccessful busy-polling. It has spent the rest of its
    /// CPU time on work. Zero in a world that does not busy-poll.
    fn looked_in_vain(&self) -> Duration {
        Duration::ZERO
    }
    /// Returns a handle with which any thread can end the sleep in [`World::turn`].
    fn unpark(&self) -> Arc<dyn Unpark>;
}

/// The time for which [`World::turn`] may wait for an event.
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
