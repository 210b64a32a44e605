//! The runtime environment of one thread (`World`), implemented with epoll.
//!
//! Sockets are registered once, edge-triggered, and their readiness is cached. So a steady stream of requests
//! costs only reads, writes and one `epoll_wait` per batch, and no `epoll_ctl`. Other threads and completions
//! of io_uring end the sleep through an eventfd. It is also edge-triggered, so it never has to be read.
//!
//! Before it sleeps, the thread busy-polls for as long as [`Spin`] allows.
//!
//! The timeout of `epoll_wait` is in milliseconds, which is too coarse for requests. So the thread waits
//! whole milliseconds in `epoll_wait`, and the remaining fraction in `ppoll` on the epoll descriptor.
//! (`epoll_pwait2` could do both, but older kernels and containers reject it.)

use std::cell::{Cell, RefCell};
use std::hint;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use reactor::{
    DatagramOptions, Datagrams, Detached, DetachedDatagrams, ListenOptions, Listener, Park,
    SharedWorld, Spin, Stream, StreamOptions, Unpark, World,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;
use rustix::thread::set_current_timer_slack;

use crate::datagrams::packet::ReceiveRing;
use crate::files::{IoEngine, ring::Ring};
use crate::poller::{BOTH, Poller};
use crate::{datagrams, local_socket, tcp};

/// Options of an [`Epoll`].
#[derive(Clone, Copy, Debug)]
pub struct EpollOptions {
    /// Busy-poll time before sleeping; zero sleeps immediately.
    pub spin: Duration,
    /// Time to sleep after work before polling again, so that events are handled in batches. Like interrupt
    /// coalescing (`ethtool -C rx-usecs`), this reduces CPU time per request and increases latency. Zero
    /// disables it.
    pub gather: Duration,
}

impl Default for EpollOptions {
    /// Busy-polls for up to 50 µs: compared with longer waits, the cost of a wake-up does not matter
    /// (measured on a VM with 2 cores).
    fn default() -> EpollOptions {
        EpollOptions {
            spin: Duration::from_micros(50),
            gather: Duration::ZERO,
        }
    }
}

/// A [`World`] over epoll, for the thread that created it.
pub struct Epoll {
    poller: Rc<Poller>,
    unpark: Arc<EventFd>,
    events: RefCell<Vec<epoll::Event>>,
    spin: Cell<Spin>,
    /// The spin used while a file operation is outstanding.
    file_spin: Cell<Spin>,
    looked_in_vain: Cell<Duration>,
    gathering: Option<Gathering>,
    /// State of [`World::gather`], with the length of the next sleep.
    asked: Gathering,
    asked_span: Cell<Duration>,
    /// The socket of the latest event, and whether several sockets have had events since the last wait.
    latest: Cell<u64>,
    is_mixed: Cell<bool>,
    /// The io_uring for files; `None` if threads serve files.
    ring: Option<Rc<Ring>>,
}

/// Maximum number of events per `epoll_wait`. If more sockets are ready, the next turn handles the others.
const EVENTS: usize = 256;

/// Delay before submitting file operations again that the kernel has rejected for lack of memory.
const RETRY: Duration = Duration::from_millis(1);

/// Ratio of the busy-poll time for a file operation to that for a network request. A flash disk takes 50 to
/// 100 µs, or 300 to 500 µs with 32 requests outstanding. On a virtual machine, a wake-up adds 50 µs, during
/// which the disk is idle. With slower disks, the thread sleeps. Without an outstanding file operation, this
/// limit does not apply.
const FILE_SPIN: u32 = 10;

/// Number of checks of the rings between two calls to the kernel. Together they take about as long as one
/// call.
const GLANCES: usize = 16;

/// Registration key of the eventfd; the keys of sockets start at 0.
const UNPARK: u64 = u64::MAX;

impl Epoll {
    /// Creates a world for this thread, with the file engine chosen for the process ([`IoEngine::choose`]).
    pub fn new(options: EpollOptions) -> io::Result<Epoll> {
        Epoll::with_engine(options, IoEngine::chosen())
    }

    /// Creates a world for this thread, with the given file engine. [`IoEngine::Auto`] falls back to threads
    /// if the kernel refuses to create a ring.
    pub fn with_engine(options: EpollOptions, engine: IoEngine) -> io::Result<Epoll> {
        let poller = Poller::new()?;
        let unpark = Arc::new(EventFd(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?));
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(
            &poller.epoll,
            &unpark.0,
            epoll::EventData::new_u64(UNPARK),
            edges,
        )?;
        let gathering = match options.gather {
            Duration::ZERO => None,
            span => Some(Gathering::new(span, &unpark.0)?),
        };
        let asked = Gathering::new(Duration::ZERO, &unpark.0)?;
        let ring = match engine {
            IoEngine::Threads => None,
            IoEngine::Uring => Some(Ring::open(unpark.0.as_fd())?),
            IoEngine::Auto => Ring::open(unpark.0.as_fd()).ok(),
        };
        // By default, the kernel may end a sleep 50 µs late to save wake-ups. That is as long as a request
        // takes. If this setting fails, the default remains.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        Ok(Epoll {
            ring,
            poller,
            unpark,
            events: RefCell::new(Vec::with_capacity(EVENTS)),
            spin: Cell::new(Spin::new(options.spin)),
            file_spin: Cell::new(Spin::new(options.spin.saturating_mul(FILE_SPIN))),
            looked_in_vain: Cell::default(),
            gathering,
            asked,
            asked_span: Cell::default(),
            latest: Cell::default(),
            is_mixed: Cell::default(),
        })
    }

    /// Creates a world in the form that the executor takes.
    pub fn shared(options: EpollOptions) -> io::Result<SharedWorld> {
        Ok(Rc::new(Epoll::new(options)?))
    }

    /// Waits for events for up to `limit`.
    fn wait(&self, limit: Option<Duration>) {
        let (asked, is_mixed) = (self.asked_span.take(), self.is_mixed.take());
        let Some(gathering) = &self.gathering else {
            let mut slept = Duration::ZERO;
            if !asked.is_zero() && !is_mixed {
                slept = self.asked.sleep(asked, limit);
                if self.take_events(Some(Duration::ZERO)) {
                    return;
                }
            }
            self.look_and_sleep(limit.map(|limit| limit.saturating_sub(slept)));
            return;
        };
        let mut slept = Duration::ZERO;
        if gathering.after_work.take() {
            slept = gathering.sleep(gathering.span, limit);
            if self.take_events(Some(Duration::ZERO)) {
                return gathering.after_work.set(true);
            }
        }
        let limit = limit.map(|limit| limit.saturating_sub(slept));
        gathering.after_work.set(self.look_and_sleep(limit));
    }

    /// Busy-polls for as long as [`Spin`] allows, then sleeps. Returns whether there were events.
    fn look_and_sleep(&self, limit: Option<Duration>) -> bool {
        let learnt = if self.files_are_busy() {
            &self.file_spin
        } else {
            &self.spin
        };
        let mut spin = learnt.get();
        let start = Instant::now();
        let look = spin.allowance().min(limit.unwrap_or(Duration::MAX));
        let mut looked = Duration::ZERO;
        while looked < look {
            if self.take_events(Some(Duration::ZERO)) || self.files_have_news() || self.glance() {
                spin.found();
                learnt.set(spin);
                self.note_looking(looked);
                return true;
            }
            looked = start.elapsed();
        }
        self.note_looking(looked);
        let left = limit.map(|limit| limit.saturating_sub(looked));
        let found = self.sleep(left);
        match found {
            true => spin.slept(looked, start.elapsed().saturating_sub(looked)),
            false => spin.idle(),
        }
        learnt.set(spin);
        found
    }

    /// If the latest event came from a receive ring, polls only the rings for a while. Returns whether a ring
    /// has data. This needs no system call; a query to the kernel would also take the lock under which the
    /// kernel fills the ring.
    fn glance(&self) -> bool {
        let rings = self.poller.rings.borrow();
        if !rings.iter().any(|(key, _)| *key == self.latest.get()) {
            return false;
        }
        let has_any = |ring: &Weak<ReceiveRing>| ring.upgrade().is_some_and(|ring| ring.has_any());
        let found = (0..(GLANCES / rings.len()).max(1)).find_map(|_| {
            let found = rings.iter().find(|(_, ring)| has_any(ring));
            if found.is_none() {
                hint::spin_loop();
            }
            found.map(|(key, _)| *key)
        });
        drop(rings);
        found
            .inspect(|key| self.note_event(*key, epoll::EventFlags::IN))
            .is_some()
    }

    /// Records an event of a socket.
    fn note_event(&self, key: u64, flags: epoll::EventFlags) {
        self.is_mixed
            .set(self.is_mixed.get() | (self.latest.replace(key) != key));
        self.poller.set_ready(key, flags);
    }

    /// Adds to the time spent on unsuccessful polling. Callers pass the time up to the last unsuccessful
    /// poll, because a successful poll is work.
    fn note_looking(&self, looked: Duration) {
        self.looked_in_vain.set(self.looked_in_vain.get() + looked);
    }

    /// Waits for events for up to `limit`, with microsecond precision, and wakes the tasks that wait for
    /// them. Returns whether there were events.
    fn sleep(&self, limit: Option<Duration>) -> bool {
        let Some(limit) = limit else {
            return self.take_events(None);
        };
        let (start, milliseconds) = (Instant::now(), whole_milliseconds(limit));
        if milliseconds > 0 && self.take_events(Some(Duration::from_millis(milliseconds))) {
            return true;
        }
        let rest = timespec(limit.saturating_sub(start.elapsed()));
        // If the call is interrupted, timers have not expired yet, and the tasks continue to wait.
        let _ = poll(
            &mut [PollFd::new(&self.poller.epoll, PollFlags::IN)],
            Some(&rest),
        );
        self.take_events(Some(Duration::ZERO))
    }

    /// Submits file operations to the kernel and reaps finished ones. Returns whether any had finished.
    fn turn_files(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.turn())
    }

    fn files_are_busy(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.is_busy())
    }

    fn files_have_news(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.has_news())
    }

    /// Returns the maximum wait of a turn. The wait is short while the kernel has not accepted all file
    /// operations.
    fn limit(&self, park: Park) -> Option<Duration> {
        let limit = match park {
            Park::No => Some(Duration::ZERO),
            Park::For(limit) => Some(limit),
            Park::Forever => None,
        };
        match &self.ring {
            Some(ring) if ring.is_stuck() => Some(limit.map_or(RETRY, |limit| limit.min(RETRY))),
            _ => limit,
        }
    }

    /// Waits for events for up to `limit`, with millisecond precision, and wakes the tasks that wait for
    /// them. Returns whether there were events.
    fn take_events(&self, limit: Option<Duration>) -> bool {
        let mut events = self.events.borrow_mut();
        events.clear();
        let limit = limit.map(timespec);
        let waited = epoll::wait(
            &self.poller.epoll,
            rustix::buffer::spare_capacity(&mut events),
            limit.as_ref(),
        );
        match waited {
            Ok(_) => {}
            Err(Errno::INTR) => return false,
            // Only an invalid argument could cause another error, and this epoll and timeout are valid.
            Err(errno) => unreachable!("epoll_wait on an epoll of our own: {errno}"),
        }
        for event in events.iter() {
            self.note_event(event.data.u64(), event.flags);
        }
        !events.is_empty()
    }
}

/// The sleep between work and the next poll.
struct Gathering {
    span: Duration,
    /// An epoll that contains only the eventfd, so that other threads and file completions can end the sleep.
    unparks: OwnedFd,
    /// Whether the last wait ended with events.
    after_work: Cell<bool>,
}

impl Gathering {
    fn new(span: Duration, unpark: &OwnedFd) -> io::Result<Gathering> {
        let unparks = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&unparks, unpark, epoll::EventData::new_u64(UNPARK), edges)?;
        Ok(Gathering {
            span,
            unparks,
            after_work: Cell::new(false),
        })
    }

    /// Sleeps for `span`, but no longer than `limit`, or until the thread is unparked. Returns the actual
    /// duration.
    fn sleep(&self, span: Duration, limit: Option<Duration>) -> Duration {
        let (start, span) = (Instant::now(), limit.map_or(span, |limit| limit.min(span)));
        // An interrupted sleep is shorter, which is harmless.
        let told = poll(
            &mut [PollFd::new(&self.unparks, PollFlags::IN)],
            Some(&timespec(span)),
        );
        if told == Ok(1) {
            // Consumes the edge. The main epoll reports the event separately.
            let mut edge = Vec::with_capacity(1);
            let _ = epoll::wait(
                &self.unparks,
                rustix::buffer::spare_capacity(&mut edge),
                Some(&timespec(Duration::ZERO)),
            );
        }
        start.elapsed()
    }
}

fn whole_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn timespec(duration: Duration) -> Timespec {
    // Limits the duration to a century, which fits the type.
    let seconds = duration.as_secs().min(100 * 365 * 86_400);
    Timespec {
        tv_sec: seconds as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

impl World for Epoll {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn listen(&self, at: SocketAddr, options: &ListenOptions) -> io::Result<Box<dyn Listener>> {
        let (socket, local) = tcp::listen(at, &options.stream)?;
        let source = self.poller.register(socket, epoll::EventFlags::IN)?;
        Ok(Box::new(tcp::TcpListener {
            source,
            local,
            options: options.stream.clone(),
            file: None,
        }))
    }

    fn connect(&self, to: SocketAddr, options: &StreamOptions) -> io::Result<Box<dyn Stream>> {
        let socket = tcp::connect(to, options)?;
        let stream = tcp::TcpStream::new(self.poller.register(socket, BOTH)?, to, true)?;
        Ok(Box::new(stream))
    }

    fn connect_local(&self, path: &Path) -> io::Result<Box<dyn Stream>> {
        let source = self
            .poller
            .register(local_socket::connect_local(path)?, BOTH)?;
        Ok(Box::new(tcp::TcpStream::new(source, tcp::LOCAL, false)?))
    }

    fn listen_local(&self, path: &Path) -> io::Result<Box<dyn Listener>> {
        let (socket, file) = local_socket::bind(path)?;
        socket.set_nonblocking(true)?;
        let source = self.poller.register(socket.into(), epoll::EventFlags::IN)?;
        let options = StreamOptions::default();
        Ok(Box::new(tcp::TcpListener {
            source,
            local: tcp::LOCAL,
            options,
            file: Some(file),
        }))
    }

    fn datagrams(&self, options: &DatagramOptions) -> io::Result<Box<dyn Datagrams>> {
        Ok(Box::new(datagrams::open(&self.poller, options)?))
    }

    fn detached_datagrams(&self, options: &DatagramOptions) -> io::Result<DetachedDatagrams> {
        datagrams::open_detached(options)
    }

    fn adopt_datagrams(&self, detached: DetachedDatagrams) -> io::Result<Box<dyn Datagrams>> {
        Ok(Box::new(datagrams::adopt(&self.poller, detached)?))
    }

    fn interface_name(&self, name: &str) -> String {
        datagrams::packet::interface_name(name).unwrap_or_else(|_| name.to_owned())
    }

    fn adopt(&self, stream: Detached) -> io::Result<Box<dyn Stream>> {
        let detached = stream
            .downcast::<tcp::DetachedTcp>()
            .map_err(|_| io::ErrorKind::InvalidInput)?;
        let tcp::DetachedTcp {
            socket,
            peer,
            connecting,
        } = *detached;
        Ok(Box::new(tcp::TcpStream::new(
            self.poller.register(socket, BOTH)?,
            peer,
            connecting,
        )?))
    }

    fn turn(&self, park: Park) {
        // If operations have already finished, as on cached data, do not wait.
        let finished = self.turn_files();
        match self.limit(if finished { Park::No } else { park }) {
            Some(Duration::ZERO) => {
                self.take_events(Some(Duration::ZERO));
            }
            limit => self.wait(limit),
        }
        if !finished {
            self.turn_files();
        }
    }

    fn gather(&self, span: Duration) {
        self.asked_span.set(span);
    }

    fn looked_in_vain(&self) -> Duration {
        self.looked_in_vain.get()
    }

    fn unpark(&self) -> Arc<dyn Unpark> {
        Arc::clone(&self.unpark) as Arc<dyn Unpark>
    }
}

/// An eventfd that wakes the thread with whose epoll it is registered.
struct EventFd(OwnedFd);

impl Unpark for EventFd {
    fn unpark(&self) {
        // Each addition to the count triggers an edge. Writing fails only if the count is full, after 2^64
        // unparks, and then an earlier write has already woken the sleeper.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}
