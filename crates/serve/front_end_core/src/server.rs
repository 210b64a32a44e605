//! A server and its cores. The handle of a server contains the configuration, limits and counters that all
//! cores share, and sends messages to the cores. A core is a reactor thread with its parts of the front ends
//! and a periodic tick.
//!
//! A front end that aborts commands reports the abort once the devices have quiesced: from then on, no
//! aborted request can change the medium. If a device does not quiesce within [`Limits::fence_time`], its
//! volume is fenced (not ready for any host) until it does. The abort is then reported immediately, since no
//! request can pass the fence.
//!
//! ```text
//!                quiesced in time
//!            ┌──────────────────────► report the abort; volume in service
//!  quiescing ┤
//!            └─ fence_time passed ──► fenced, report the abort ── quiesced ──► volume in service
//! ```

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak, mpsc};
use std::time::{Duration, Instant};

use block::Lock;
use reactor::{JoinHandle, Receiver, Sender};
use volume::{NamedVolumes, Registry, Snapshot, Volume};

use crate::address::{AddressBlock, Counts};
use crate::budget::Budget;
use crate::front_end::{AbortOrder, Accepted, CoreFrontEnd, FrontEnd, Observer};
use crate::listener::{Listeners, OpenedPart, Receiving};
use crate::log_limit::{AUDIT, LogLimit};
use crate::portal::{ListenAddress, Portal};
use crate::storage::{RECORD_TIME, Watched, Watcher, last_flush, watch_failures, watch_growth};
use crate::tally::CoreStatistics;

/// The protocol-independent configuration of a server. [`Server::reconfigure`] replaces it.
#[derive(Clone)]
pub struct Config {
    /// The volumes to serve.
    pub volumes: NamedVolumes,
    /// The portals that hosts connect to.
    pub portals: Vec<Portal>,
    /// Limits of all front ends combined.
    pub limits: Limits,
}

/// Limits of all front ends combined.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum concurrent connections from one address or IPv6 network (/64), including those still logging
    /// in.
    pub connections_per_address: usize,
    /// Maximum concurrent connections that have not logged in yet, in total. When a further connection
    /// arrives, the oldest connection of the address with the most such connections is closed.
    pub logins: usize,
    /// The time for which task management waits for a device to quiesce before it fences the volume and
    /// responds.
    pub fence_time: Duration,
    /// Memory for the commands of all sessions, in bytes: data of volumes other than RAM volumes, and working
    /// buffers. When it is exhausted, reads wait and writes are asked to retry.
    pub staging_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_per_address: 1024,
            logins: 1024,
            fence_time: Duration::from_secs(2), // task management is guaranteed to complete within 5 s
            staging_bytes: 1 << 30,
        }
    }
}

/// The handle of a server. Its [`Core`]s do the work.
pub struct Server {
    registry: Registry,
    front_ends: Vec<Arc<dyn FrontEnd>>,
    limits: Lock<Limits>,
    connections: Lock<Counts>,
    log_limit: Lock<LogLimit>,
    /// The limit for important log lines, which other lines must not use up.
    alarm_limit: Lock<LogLimit>,
    /// The portals with the ports that were bound.
    portals: Lock<Arc<[Portal]>>,
    phase: AtomicU8,
    observer: OnceLock<Arc<dyn Observer>>,
    cores: Vec<Sender<Message>>,
    /// Number of unanswered closures of [`Server::ask_cores`], by core.
    unanswered: Arc<[AtomicUsize]>,
    /// Number of cores that no longer serve hosts, during a shutdown.
    drained: AtomicUsize,
    /// The time at which each core last ran its tick.
    // This is not a `block::Lock`, because a simulation need not vary the order of threads here.
    ticks: Box<[Mutex<Option<Instant>>]>,
}

/// Maximum number of unanswered [`Server::ask_cores`] calls per core, so that they do not accumulate while
/// the core hangs. In normal operation, there are fewer concurrent calls.
const QUESTIONS_MAX: usize = 64;

/// Maximum number of cores that receive datagrams. Each of them has a socket, which adds about 50 ns to the
/// processing of every frame of the interface, on the core that the network card interrupts.
const DATAGRAM_CORES_MAX: usize = 16;

/// Counts an unanswered question to a core until it is dropped.
struct Question {
    unanswered: Arc<[AtomicUsize]>,
    core: usize,
}

impl Drop for Question {
    fn drop(&mut self) {
        let before = self.unanswered[self.core].fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a question is counted until this is dropped");
    }
}

/// The phase of a server: `Starting` → `Open` → `Draining`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Logins are refused with a temporary status, so that hosts retry.
    #[default]
    Starting,
    /// Logins are accepted.
    Open,
    /// The server is shutting down; logins are refused as in `Starting`.
    Draining,
}

/// A connection counted against the limit of its address until it is dropped.
pub struct ConnectionPermit {
    server: Arc<Server>,
    from: AddressBlock,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut connections = self.server.connections.lock();
        debug_assert!(
            connections.count_of(self.from) > 0,
            "a connection is counted until this is dropped"
        );
        connections.remove(self.from);
    }
}

impl Server {
    /// Creates a server with these front ends, and a [`Core`] for each of `cores` reactor threads, at least
    /// one.
    pub fn new(
        config: Config,
        cores: usize,
        front_ends: Vec<Arc<dyn FrontEnd>>,
    ) -> (Arc<Server>, Vec<Core>) {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..cores.max(1)).map(|_| reactor::mailbox()).unzip();
        let server = Arc::new(Server {
            registry: Registry::new(config.volumes),
            front_ends,
            limits: Lock::new(config.limits),
            connections: Lock::default(),
            log_limit: Lock::default(),
            alarm_limit: Lock::default(),
            portals: Lock::new(config.portals.into()),
            phase: AtomicU8::new(Phase::Starting as u8),
            observer: OnceLock::new(),
            unanswered: senders.iter().map(|_| AtomicUsize::new(0)).collect(),
            drained: AtomicUsize::new(0),
            ticks: senders.iter().map(|_| Mutex::default()).collect(),
            cores: senders,
        });
        let cores: Vec<Core> = receivers
            .into_iter()
            .enumerate()
            .map(|(index, messages)| Core {
                index,
                server: Arc::clone(&server),
                messages,
            })
            .collect();
        debug_assert_eq!(cores.len(), server.cores());
        (server, cores)
    }

    /// Accepts logins from now on, unless the server is already shutting down.
    pub fn open(&self) {
        let (starting, open) = (Phase::Starting as u8, Phase::Open as u8);
        let _ = self
            .phase
            .compare_exchange(starting, open, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Requests logouts, waits up to `grace` for outstanding commands, flushes all volumes, and stops the
    /// cores. Returns immediately.
    pub fn shutdown(&self, grace: Duration) {
        self.phase.store(Phase::Draining as u8, Ordering::Release);
        (0..self.cores.len()).for_each(|core| self.send(core, Message::Drain(grace)));
    }

    /// Replaces the configuration. Unaffected sessions continue; each front end notifies the hosts of
    /// affected sessions. First, all cores close removed portals. Then new portals are opened, `adopt` passes
    /// the front ends their new configuration, and every core adapts its sessions. Commands for removed
    /// volumes are aborted, and the devices of these volumes quiesce.
    ///
    /// Completes when all cores have adapted. Two calls must not overlap.
    ///
    /// # Errors
    /// A portal cannot be opened; the text names it. In this case nothing has changed, and `adopt` was not
    /// called.
    pub async fn reconfigure(
        &self,
        config: Config,
        adopt: impl FnOnce(),
    ) -> io::Result<Vec<ListenAddress>> {
        let Config {
            volumes,
            portals,
            limits,
        } = config;
        // A port that several cores share is free only when the last core has closed it.
        self.on_all(|done| {
            let portals = portals.clone();
            move |local: &Rc<RunningCore>| {
                local.close_but(&portals);
                drop(done);
            }
        })
        .await;
        let (answer, mut answers) = reactor::mailbox();
        self.run_on(0, move |local| {
            // The caller may have stopped waiting.
            let _ = answer.send(local.listen(&portals));
        });
        let ended = || io::Error::other("the server ends");
        let addresses = answers.recv().await.ok_or_else(ended)??;
        *self.limits.lock() = limits;
        self.registry.replace(volumes);
        adopt();
        self.on_all(|done| move |local: &Rc<RunningCore>| local.adapt(&done))
            .await;
        Ok(addresses)
    }

    /// Aborts the commands selected by the order, on every core and in every front end. Completes when none
    /// of these commands can start any more, and the other volumes that they used have quiesced.
    /// [`Server::quiesce`] waits for the order's own volume.
    pub async fn abort(&self, order: AbortOrder) {
        self.on_all(|done| {
            let order = order.clone();
            move |local: &Rc<RunningCore>| local.abort(&order, &done)
        })
        .await;
    }

    /// Runs a closure on every core. `order` creates the closure from a sender, which the closure drops when
    /// it is done. Completes when all senders have been dropped.
    async fn on_all<F: FnOnce(&Rc<RunningCore>) + Send + 'static>(
        &self,
        order: impl Fn(Sender<()>) -> F,
    ) {
        let (done, mut all_done) = reactor::mailbox();
        (0..self.cores.len()).for_each(|core| self.run_on(core, order(Sender::clone(&done))));
        drop(done);
        // Nothing is ever sent: the mailbox is closed when every core has dropped its sender.
        while let Some(()) = all_done.recv().await {}
    }

    /// Runs a closure on a core's thread, asynchronously and in the order of the calls. The closure is
    /// dropped if the core has ended. With [`RunningCore::front_end`], it can access the part of a front end
    /// on that core.
    pub fn run_on(&self, core: usize, run: impl FnOnce(&Rc<RunningCore>) + Send + 'static) {
        self.send(core, Message::Run(Box::new(run)));
    }

    /// Runs a closure on the thread of every core and returns the results by core: `None` for a core that has
    /// ended or has not answered `within` this time. Blocks for up to that time, so reactor threads must not
    /// call this. The number of unanswered calls per core is limited, in case the core hangs.
    pub fn ask_cores<T: Send + 'static>(
        &self,
        within: Duration,
        question: impl Fn(&Rc<RunningCore>) -> T + Clone + Send + 'static,
    ) -> Vec<Option<T>> {
        let (sender, receiver) = mpsc::channel();
        let end = Instant::now() + within;
        for core in 0..self.cores() {
            let asked = Question {
                unanswered: Arc::clone(&self.unanswered),
                core,
            };
            if self.unanswered[core].fetch_add(1, Ordering::AcqRel) >= QUESTIONS_MAX {
                continue;
            }
            let (sender, question) = (sender.clone(), question.clone());
            self.run_on(core, move |local| {
                let answer = question(local);
                drop(asked);
                // The caller may have given up.
                let _ = sender.send((core, answer));
            });
        }
        drop(sender);
        let mut answers: Vec<Option<T>> = (0..self.cores()).map(|_| None).collect();
        while let Ok((core, answer)) =
            receiver.recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            answers[core] = Some(answer);
        }
        answers
    }

    /// Records that a core has run its tick.
    fn note_tick(&self, core: usize, now: Instant) {
        let mut tick = self.ticks[core]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        debug_assert!(tick.is_none_or(|last| last <= now), "time does not go back");
        *tick = Some(now);
    }

    /// Returns the cores whose last tick is older than `limit`, each with the time since that tick. A tick
    /// runs at least once a second. This reads recorded times and sends nothing to the cores. `now` must come
    /// from the clock of the cores' runtime environment.
    pub fn hung_cores(&self, now: Instant, limit: Duration) -> Vec<(usize, Duration)> {
        let since = |tick: &Mutex<Option<Instant>>| {
            let last = *tick.lock().unwrap_or_else(PoisonError::into_inner);
            last.map(|last| now.saturating_duration_since(last))
                .filter(|since| *since > limit)
        };
        self.ticks
            .iter()
            .enumerate()
            .filter_map(|(core, tick)| Some((core, since(tick)?)))
            .collect()
    }

    fn send(&self, core: usize, message: Message) {
        if self.cores[core].send(message).is_err() {
            tracing::debug!(core, "a message for a core that has ended");
        }
    }

    /// Number of reactor threads.
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// The number of cores among which a front end distributes its datagrams and sessions. It is limited
    /// because each of these cores has a socket that checks every frame of an interface.
    pub fn datagram_cores(&self) -> usize {
        self.cores().min(DATAGRAM_CORES_MAX)
    }

    /// Returns the offset of the word that selects the core for a datagram of this front end.
    pub(crate) fn shares_datagrams_at(&self, front_end: &str) -> Option<u16> {
        let found = self
            .front_ends
            .iter()
            .find(|other| other.name() == front_end);
        found.and_then(|front_end| front_end.shares_datagrams_at())
    }

    /// The phase of the server.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            phase if phase == Phase::Open as u8 => Phase::Open,
            phase if phase == Phase::Draining as u8 => Phase::Draining,
            _ => Phase::Starting,
        }
    }

    /// The volumes served now.
    pub fn volumes(&self) -> Arc<Snapshot> {
        self.registry.snapshot()
    }

    /// The current limits.
    pub fn limits(&self) -> Limits {
        *self.limits.lock()
    }

    /// The portals, with their actual ports once they are bound.
    pub fn portals(&self) -> Arc<[Portal]> {
        Arc::clone(&self.portals.lock())
    }

    pub(crate) fn set_portals(&self, portals: Vec<Portal>) {
        *self.portals.lock() = portals.into();
    }

    /// Counts a connection from `address`; `None` if the address has reached its limit.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let (most, from) = (
            self.limits().connections_per_address,
            AddressBlock::containing(address),
        );
        let mut connections = self.connections.lock();
        (connections.count_of(from) < most).then(|| {
            connections.add(from);
            ConnectionPermit {
                server: Arc::clone(self),
                from,
            }
        })
    }

    /// Whether hosts of this address have sessions, with any front end.
    pub(crate) fn has_sessions(&self, from: AddressBlock) -> bool {
        self.front_ends
            .iter()
            .any(|front_end| front_end.has_sessions(from))
    }

    /// Notifies the front ends' hosts that a volume has grown.
    pub fn volume_grew(&self, volume: &Arc<Volume>) {
        self.front_ends
            .iter()
            .for_each(|front_end| front_end.volume_grew(volume));
    }

    /// Whether a log line about a peer at this address that has not logged in may be written. A suppressed
    /// line is counted.
    pub fn may_log(&self, from: IpAddr) -> bool {
        self.may_log_of(AddressBlock::containing(from))
    }

    /// [`Server::may_log`] for a peer in this address block.
    pub fn may_log_of(&self, from: AddressBlock) -> bool {
        self.log_limit.lock().admits(reactor::now(), from)
    }

    /// [`Server::may_log_of`] for a line that an administrator must see, such as the start of a lockout.
    /// These lines have a separate limit, which other lines about the peer do not use up.
    pub fn may_log_alarm(&self, from: AddressBlock) -> bool {
        self.alarm_limit.lock().admits(reactor::now(), from)
    }

    /// Logs the number of suppressed lines.
    fn log_left_out(&self) {
        for (limit, what) in [(&self.log_limit, "logins"), (&self.alarm_limit, "lockouts")] {
            for left_out in limit.lock().left_out(reactor::now()) {
                let from = left_out
                    .from
                    .map_or("other addresses".to_owned(), |block| block.to_string());
                tracing::warn!(target: AUDIT, from, lines = left_out.lines, "lines about {what} were suppressed");
            }
        }
    }

    /// Returns the number of bytes that the commands of one core may hold.
    fn memory_of_a_core(&self) -> usize {
        self.limits().staging_bytes / self.cores.len()
    }

    /// Sets the observer of later events. Only the first call has an effect.
    pub fn set_observer(&self, observer: Arc<dyn Observer>) {
        let _ = self.observer.set(observer);
    }

    /// Notifies the observer, if there is one.
    pub fn tell(&self, what: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = self.observer.get() {
            what(&**observer);
        }
    }

    /// Waits until requests aborted before this call can no longer reach these volumes' media. A volume that
    /// takes longer than [`Limits::fence_time`] is fenced until it has quiesced; this function does not wait
    /// for it any longer.
    pub async fn quiesce(self: &Arc<Self>, volumes: Vec<Arc<Volume>>) {
        let limit = self.limits().fence_time;
        // Wait for the volumes concurrently, so that several hanging volumes take no longer than one.
        let waits: Vec<_> = volumes
            .into_iter()
            .map(|volume| reactor::spawn(quiesce(Arc::clone(self), volume, limit)))
            .collect();
        for wait in waits {
            wait.await;
        }
    }

    /// Takes `volume` out of service until its device has ended all requests that were aborted so far, and
    /// logs this (`storage`). `silent` is the time for which the device has been unresponsive.
    pub fn fence(&self, volume: &Arc<Volume>, silent: Duration) {
        let fence = volume.fence();
        self.tell(|observer| {
            if let Some(name) = self.volumes().name_of(volume) {
                observer.volume_fenced(name, silent);
            }
        });
        let volume = Arc::clone(volume);
        volume.health().falls_silent(silent);
        drop(reactor::spawn(async move {
            volume.quiesced().await;
            drop(fence);
            volume.health().answers();
        }));
    }
}

impl Watcher for Server {
    fn volume_failed(&self, name: &str, cause: &str) {
        self.tell(|observer| observer.volume_failed(name, cause));
    }

    fn volume_recovered(&self, name: &str, failed: u64, time: Duration) {
        self.tell(|observer| observer.volume_recovered(name, failed, time));
    }

    fn volume_grew(&self, volume: &Arc<Volume>, name: &str) {
        Server::volume_grew(self, volume);
        let bytes = volume.device().geometry().bytes();
        self.tell(|observer| observer.volume_grew(name, bytes));
    }
}

async fn quiesce(server: Arc<Server>, volume: Arc<Volume>, limit: Duration) {
    if reactor::timeout(limit, volume.quiesced()).await.is_err() {
        server.fence(&volume, limit);
    }
}

/// A closure that runs on a core's thread.
type CoreTask = Box<dyn FnOnce(&Rc<RunningCore>) + Send>;

/// A message to a core from another thread.
enum Message {
    Run(CoreTask),
    /// The server is shutting down: request logouts, and end within this time.
    Drain(Duration),
}

/// The part of a server on one reactor thread. [`Server::new`] creates it; it is then moved to its thread and
/// run there.
pub struct Core {
    index: usize,
    server: Arc<Server>,
    messages: Receiver<Message>,
}

/// The resources of a core that its front ends can use.
#[derive(Clone)]
pub struct CoreHandle {
    /// The number of the core, from 0.
    pub core: usize,
    /// The server that the core belongs to.
    pub server: Arc<Server>,
    /// Memory for the commands of this core, for all front ends combined.
    pub memory: Rc<Budget>,
}

/// A core while it runs.
pub struct RunningCore {
    index: usize,
    server: Arc<Server>,
    memory: Rc<Budget>,
    front_ends: Vec<Rc<dyn CoreFrontEnd>>,
    /// All listeners are on the first core.
    listeners: RefCell<Listeners>,
    /// The core to which the first core passes the next connection.
    next_login: Cell<usize>,
    /// Logins on this core, by the number that the first core assigned.
    logins: RefCell<BTreeMap<u64, JoinHandle<()>>>,
    /// Datagram sockets that the first core has opened for this one.
    receiving: RefCell<Vec<Receiving>>,
    /// The volumes that the first core monitors; empty on the others.
    watched: RefCell<Watched>,
}

impl Core {
    /// Serves until [`Server::shutdown`]. The first core binds the portals and sends `bound` their addresses,
    /// or the error; the other cores send nothing. Returns true if all volumes were flushed before the end.
    pub async fn run(self, bound: std::sync::mpsc::Sender<io::Result<Vec<ListenAddress>>>) -> bool {
        let Core {
            index,
            server,
            mut messages,
        } = self;
        // Record a tick before the first message, so that a core that hangs in this message is also detected.
        server.note_tick(index, reactor::now());
        let memory = Budget::new(server.memory_of_a_core(), None);
        let handle = CoreHandle {
            core: index,
            server: Arc::clone(&server),
            memory: Rc::clone(&memory),
        };
        let front_ends = server
            .front_ends
            .iter()
            .map(|front_end| Arc::clone(front_end).begin(handle.clone()))
            .collect();
        let listeners = RefCell::new(Listeners::new(server.limits().logins));
        let watched = RefCell::default();
        let receiving = RefCell::default();
        let (next_login, logins) = (Cell::new(0), RefCell::default());
        let local = Rc::new(RunningCore {
            index,
            server,
            memory,
            front_ends,
            listeners,
            next_login,
            logins,
            receiving,
            watched,
        });
        if index == 0 {
            let portals = local.server.portals();
            match local.listen(&portals) {
                Ok(addresses) => {
                    local.watch_volumes();
                    drop(bound.send(Ok(addresses)));
                }
                Err(error) => {
                    drop(bound.send(Err(error)));
                    return true; // nothing was served
                }
            }
        }
        drop(bound);
        let _clock = reactor::spawn(tick(Rc::clone(&local)));
        while let Some(message) = messages.recv().await {
            match message {
                Message::Run(run) => run(&local),
                Message::Drain(grace) => return local.drain(grace).await,
            }
        }
        true
    }
}

impl RunningCore {
    /// Returns the part of a front end on this core. `T` selects the front end.
    pub fn front_end<T: CoreFrontEnd>(&self) -> Option<Rc<T>> {
        self.front_ends.iter().find_map(|front_end| {
            let any: Rc<dyn Any> = Rc::<dyn CoreFrontEnd>::clone(front_end);
            any.downcast().ok()
        })
    }

    /// The statistics of each front end on this core, by the front end's name ([`crate::FrontEnd::name`]).
    pub fn statistics(&self) -> Vec<(&'static str, CoreStatistics)> {
        debug_assert_eq!(
            self.server.front_ends.len(),
            self.front_ends.len(),
            "a core has a part of each front end"
        );
        let names = self
            .server
            .front_ends
            .iter()
            .map(|front_end| front_end.name());
        names
            .zip(
                self.front_ends
                    .iter()
                    .map(|front_end| front_end.statistics()),
            )
            .collect()
    }

    /// Memory for the commands of this core, for all front ends combined.
    pub fn memory(&self) -> &Budget {
        &self.memory
    }

    /// Returns this core's part of the front end to which a portal belongs.
    pub(crate) fn front_end_of(&self, portal: &Portal) -> Option<&Rc<dyn CoreFrontEnd>> {
        let index = self
            .server
            .front_ends
            .iter()
            .position(|front_end| front_end.name() == portal.front_end);
        index.and_then(|index| self.front_ends.get(index))
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub(crate) fn listen(self: &Rc<Self>, portals: &[Portal]) -> io::Result<Vec<ListenAddress>> {
        debug_assert_eq!(self.index, 0, "all listeners are on the first core");
        self.listeners.borrow_mut().set(self, portals)
    }

    /// Closes this core's listeners, except those for these portals.
    pub(crate) fn close_but(&self, portals: &[Portal]) {
        self.listeners.borrow_mut().close_but(portals);
        let all = std::mem::take(&mut *self.receiving.borrow_mut());
        let (stay, gone): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|receiving| receiving.stays_for_any(portals));
        *self.receiving.borrow_mut() = stay;
        gone.into_iter().for_each(Receiving::close);
    }

    /// Receives from a datagram socket that the first core has opened for this one.
    pub(crate) fn receive(&self, wanted: Portal, number: u32, part: OpenedPart) {
        debug_assert_ne!(self.index, 0, "the first core keeps its own sockets");
        let receiving = Receiving::begin(self, wanted, number, part);
        self.receiving.borrow_mut().extend(receiving);
    }

    /// Selects the core for the next login, round-robin. A draining server refuses logins on the core that
    /// accepts them, because the other cores no longer process messages.
    pub(crate) fn next_login_core(&self) -> usize {
        debug_assert_eq!(self.index, 0, "connections are accepted on the first core");
        if self.server.phase() == Phase::Draining {
            return self.index;
        }
        let core = self.next_login.get();
        debug_assert!(core < self.server.cores());
        self.next_login.set((core + 1) % self.server.cores());
        core
    }

    /// Runs the login of a connection.
    pub(crate) fn log_in(self: &Rc<Self>, number: u64, accepted: Accepted) {
        let Some(front_end) = self.front_end_of(&accepted.portal) else {
            return self.forget_login(number);
        };
        let login = Rc::clone(front_end).accept(accepted);
        let local = Rc::clone(self);
        let task = reactor::spawn(async move {
            login.await;
            drop(local.logins.borrow_mut().remove(&number));
            local.forget_login(number);
        });
        let before = self.logins.borrow_mut().insert(number, task);
        debug_assert!(
            before.is_none(),
            "the first core gives each login its number"
        );
    }

    /// Ends a connection that has not logged in. Returns false if its login has already ended.
    pub(crate) fn end_login(&self, number: u64) -> bool {
        let login = self.logins.borrow_mut().remove(&number);
        login.map(JoinHandle::abort).is_some()
    }

    /// Notifies the first core that a login is over.
    pub(crate) fn forget_login(&self, number: u64) {
        match self.index {
            0 => self.listeners.borrow().forget_login(number),
            _ => self.server.run_on(0, move |first| {
                first.listeners.borrow().forget_login(number)
            }),
        }
    }

    pub(crate) fn abort(&self, order: &AbortOrder, done: &Sender<()>) {
        self.front_ends
            .iter()
            .for_each(|front_end| Rc::clone(front_end).abort(order, done));
    }

    /// Makes each front end adapt its sessions on this core to a changed configuration.
    pub(crate) fn adapt(self: &Rc<Self>, done: &Sender<()>) {
        self.memory.set_limit(self.server.memory_of_a_core());
        if self.index == 0 {
            self.listeners
                .borrow()
                .set_limit(self.server.limits().logins);
            self.watch_volumes();
        }
        self.front_ends
            .iter()
            .for_each(|front_end| Rc::clone(front_end).adapt(done));
    }

    /// Starts monitoring volumes that were added.
    fn watch_volumes(&self) {
        for (volume, name) in self.watched.borrow_mut().adapt(&self.server.volumes()) {
            let server = Arc::clone(&self.server);
            drop(reactor::spawn(watch_growth(
                Arc::clone(&server),
                Rc::clone(&name),
                Weak::clone(&volume),
            )));
            drop(reactor::spawn(watch_failures(server, name, volume)));
        }
    }

    /// If a command was refused memory on this core since the last tick, cuts the connection of the slow peer
    /// that has held memory longest.
    fn reclaim_memory(&self, now: Instant) {
        if !self.memory.take_refusal() {
            return;
        }
        let holders = self
            .front_ends
            .iter()
            .filter_map(|front_end| front_end.slowest_holder(now));
        if let Some(slowest) = holders.min_by_key(|holder| holder.since) {
            (slowest.cut)();
        }
    }

    /// Requests logouts, waits for commands to end, then cuts the remaining connections. Returns whether the
    /// flush succeeded, which only the first core performs.
    async fn drain(self: &Rc<Self>, grace: Duration) -> bool {
        let end = reactor::now() + grace;
        self.front_ends
            .iter()
            .for_each(|front_end| front_end.ask_to_leave(grace));
        while reactor::now() < end && !self.front_ends.iter().all(|front_end| front_end.is_idle()) {
            reactor::sleep(DRAIN_STEP).await;
        }
        self.front_ends
            .iter()
            .for_each(|front_end| front_end.close_all());
        // The tasks of the closed connections detect this when they run next, and end their sessions.
        reactor::sleep(DRAIN_STEP).await;
        let drained = &self.server.drained;
        let before = drained.fetch_add(1, Ordering::AcqRel);
        debug_assert!(before < self.server.cores(), "a core drains once");
        if self.index != 0 {
            return true;
        }
        // Writes that other cores have acknowledged must be flushed as well, so wait for these cores to stop,
        // but not for a hanging one.
        while drained.load(Ordering::Acquire) < self.server.cores()
            && reactor::now() < end + DRAIN_MAX
        {
            reactor::sleep(DRAIN_STEP).await;
        }
        let until = end + FLUSH_END;
        self.flush_all(FLUSH_TIME.min(until.saturating_duration_since(reactor::now())))
            .await
    }

    /// Flushes all volumes, so that acknowledged writes are on stable storage. Volumes are flushed
    /// concurrently, so that a hanging volume does not delay the others.
    async fn flush_all(&self, limit: Duration) -> bool {
        let mut all = true;
        let volumes = self.server.volumes();
        let flush = |volume: Arc<Volume>| async move { last_flush(&volume, limit).await };
        let flushing: Vec<_> = volumes
            .iter()
            .map(|(name, volume)| (reactor::spawn(flush(Arc::clone(volume))), name))
            .collect();
        for (flushed, volume) in flushing {
            if let Err(cause) = flushed.await {
                tracing::error!(volume, %cause, "could not flush before closing");
                all = false;
            }
        }
        all
    }
}

/// Handles timeouts: slow commands, unresponsive peers, stalled sockets.
async fn tick(local: Rc<RunningCore>) {
    loop {
        let now = reactor::now();
        let mut busy = false;
        local.server.note_tick(local.index, now);
        if local.index == 0 {
            local.server.log_left_out();
        }
        for front_end in &local.front_ends {
            busy |= front_end.tick(now);
        }
        local.reclaim_memory(now);
        reactor::sleep(if busy { BUSY_TICK } else { IDLE_TICK }).await;
    }
}

/// The interval of ticks while commands are outstanding. Deadlines are in seconds, so a resolution of a
/// quarter of a second is enough.
const BUSY_TICK: Duration = Duration::from_millis(250);
/// The interval of ticks while no command is outstanding, when only unresponsive peers must be detected.
const IDLE_TICK: Duration = Duration::from_secs(1);
/// Additional time after the grace period for cores to cut their last connections.
const DRAIN_MAX: Duration = Duration::from_millis(500);
const DRAIN_STEP: Duration = Duration::from_millis(20);
/// Maximum duration of the last flush. The flush is shorter if hosts have used up their grace period, because
/// it ends no later than [`FLUSH_END`].
const FLUSH_TIME: Duration = Duration::from_secs(4);
/// Latest end of the last flush, after the grace period.
const FLUSH_END: Duration = Duration::from_secs(3);
/// Maximum time from the end of [`Server::shutdown`]'s grace period until each volume is flushed or its loss
/// is recorded for the next start. A process that is killed earlier loses writes without a record.
pub const AFTER_GRACE: Duration = FLUSH_END.saturating_add(RECORD_TIME);

#[cfg(test)]
mod tests {
    use block::{BlockDevice, BlockSize, Blocks, Fault, FaultControl, Geometry, Null};
    use volume::{PersistentState, VolumeOptions};

    use crate::storage::tests::{Paper, ReactorSleep};

    use super::*;

    /// A signal can arrive before the start is complete.
    #[test]
    fn a_server_that_is_shutting_down_does_not_open() {
        let config = Config {
            volumes: Vec::new(),
            portals: Vec::new(),
            limits: Limits::default(),
        };
        let (server, _cores) = Server::new(config, 1, Vec::new());
        server.shutdown(Duration::from_secs(1));
        server.open();
        assert_eq!(server.phase(), Phase::Draining);
    }

    /// In virtual time, the second core stops after three seconds, and the first core continues.
    #[test]
    fn a_core_that_does_not_come_round_is_told_apart_from_one_that_does() {
        let config = Config {
            volumes: Vec::new(),
            portals: Vec::new(),
            limits: Limits::default(),
        };
        let (server, cores) = Server::new(config, 2, Vec::new());
        let limit = Duration::from_secs(5);
        assert!(
            server.hung_cores(Instant::now(), limit).is_empty(),
            "none has begun"
        );
        let mut cores = cores.into_iter();
        let (first, second) = (cores.next().expect("two"), cores.next().expect("two"));
        let run = async |core: Core, seconds| {
            let (bound, _) = mpsc::channel();
            let ran = reactor::timeout(Duration::from_secs(seconds), core.run(bound)).await;
            assert!(ran.is_err(), "it has not ended by itself");
            reactor::now()
        };
        let (first_world, second_world) = (
            reactor::Alone::virtual_time(),
            reactor::Alone::virtual_time(),
        );
        let end = reactor::block_on(second_world, run(second, 3));
        assert!(server.hung_cores(end, limit).is_empty());
        let end = reactor::block_on(first_world, run(first, 20));
        let hung = server.hung_cores(end, limit);
        assert!(
            matches!(hung[..], [(1, since)] if since > Duration::from_secs(15)),
            "{hung:?}"
        );
    }

    #[test]
    fn a_core_that_hangs_in_its_first_message_is_seen() {
        let config = Config {
            volumes: Vec::new(),
            portals: Vec::new(),
            limits: Limits::default(),
        };
        let (server, cores) = Server::new(config, 1, Vec::new());
        let (said, heard) = mpsc::channel();
        server.run_on(0, move |core| {
            let later = reactor::now() + Duration::from_secs(6); // as if it had stayed stopped
            let _ = said.send(
                core.server()
                    .hung_cores(later, Duration::from_secs(5))
                    .len(),
            );
        });
        let (bound, _) = mpsc::channel();
        let core = cores.into_iter().next().expect("one");
        let ran = reactor::timeout(Duration::from_secs(1), core.run(bound));
        assert!(
            reactor::block_on(reactor::Alone::virtual_time(), ran).is_err(),
            "it has not ended by itself"
        );
        assert_eq!(heard.recv(), Ok(1));
    }

    #[test]
    fn a_core_that_hangs_is_not_asked_without_limit() {
        let config = Config {
            volumes: Vec::new(),
            portals: Vec::new(),
            limits: Limits::default(),
        };
        let (server, cores) = Server::new(config, 2, Vec::new());
        for _ in 0..2 * QUESTIONS_MAX {
            assert_eq!(server.ask_cores(Duration::ZERO, |_| ()), [None, None]);
        }
        let waiting = |core: usize| server.unanswered[core].load(Ordering::Relaxed);
        assert_eq!((waiting(0), waiting(1)), (QUESTIONS_MAX, QUESTIONS_MAX));
        drop(cores); // their questions are dropped with them
        assert_eq!((waiting(0), waiting(1)), (0, 0));
        assert_eq!(
            server.ask_cores(Duration::from_secs(3600), |_| ()),
            [None, None]
        );
    }

    /// Regression: a device hung and a core used up the grace period, so no time was left to record the loss.
    /// The process was killed before the record was written.
    #[test]
    fn the_loss_of_a_hanging_volume_is_recorded_in_the_time_that_a_shutdown_has() {
        let (faults, paper) = (
            FaultControl::default(),
            Arc::new(Paper::slow(RECORD_TIME / 2)),
        );
        let geometry = Geometry {
            block_size: BlockSize::B512,
            blocks: Blocks(8),
            physical_exponent: 0,
        };
        let device = Fault::new(Null::new(geometry), Arc::new(ReactorSleep), faults.clone());
        let state = Arc::clone(&paper) as Arc<dyn PersistentState>;
        let options = VolumeOptions {
            persistent_state: Some(state),
            ..VolumeOptions::default()
        };
        let volume = Volume::new(Arc::new(device) as Arc<dyn BlockDevice>, options)
            .expect("nothing is kept");
        faults.hang();
        let volumes = vec![("v".to_owned(), volume)];
        let config = Config {
            volumes,
            portals: Vec::new(),
            limits: Limits::default(),
        };
        // The second core hangs: it never reads its messages.
        let (server, mut cores) = Server::new(config, 2, Vec::new());
        let first = cores.remove(0);
        let grace = Duration::from_secs(5);
        let (flushed, took) = reactor::block_on(reactor::Alone::virtual_time(), async {
            let start = reactor::now();
            server.shutdown(grace);
            let (bound, _addresses) = std::sync::mpsc::channel();
            (first.run(bound).await, reactor::now() - start)
        });
        assert!(!flushed);
        assert!(paper.mark().is_some(), "the loss is recorded");
        assert!(took <= grace + AFTER_GRACE, "{took:?}");
        assert!(took >= grace, "the core that hangs was waited for");
    }
}
