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
    /// The next connection, if one waits.
    fn try_accept(&self) -> io::Result<Box<dyn Stream>>;
    /// Ready when `try_accept` may find one.
    fn poll_acceptable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Where it listens, with the port that was really taken.
    fn local(&self) -> SocketAddr;
}

/// How a listener is set up.
#[derive(Clone, Debug, Default)]
pub struct ListenOptions {
    /// For every accepted stream.
    pub stream: StreamOptions,
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
