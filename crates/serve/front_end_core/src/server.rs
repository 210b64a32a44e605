//! The handle of a server: configuration, limits and counters that all cores share, and messages to the
//! cores.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use block::Lock;
use reactor::Sender;
use volume::{NamedVolumes, Registry, Snapshot, Volume};

use crate::address::{AddressBlock, Counts};
use crate::core::{Core, Message, RunningCore};
use crate::front_end::{AbortOrder, FrontEnd};
use crate::listener::{ListenAddress, Portal};
use crate::log_limit::{AUDIT, LogLimit};
use crate::observer::Observer;

/// The configuration of a server that does not depend on a protocol. [`Server::reconfigure`] replaces it.
#[derive(Clone)]
pub struct Config {
    /// The volumes that are served.
    pub volumes: NamedVolumes,
    /// Where hosts connect.
    pub portals: Vec<Portal>,
    /// Limits of all front ends together.
    pub limits: Limits,
}

/// Limits of all front ends together.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once, of one address or IPv6 network (/64), those still logging in included.
    pub connections_per_address: usize,
    /// Connections at once that have not logged in yet, all together. One more closes the oldest of the
    /// address with the most.
    pub logins: usize,
    /// How long task management waits for a device to quiesce before it answers with the volume fenced
    /// instead.
    pub fence_time: Duration,
    /// Memory that the commands of all sessions may hold, in bytes: data of volumes that are not memory
    /// themselves, and working buffers. Reads beyond it wait; writes are told to come again.
    pub staging_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_per_address: 1024,
            logins: 1024,
            fence_time: Duration::from_secs(2), // task management is promised within 5 s
            staging_bytes: 1 << 30,
        }
    }
}

/// The handle of a server. Its [`Core`]s do the work.
pub struct Server {
    registry: Registry,
    pub(crate) front_ends: Vec<Arc<dyn FrontEnd>>,
    limits: Lock<Limits>,
    connections: Lock<Counts>,
    log_limit: Lock<LogLimit>,
    /// Of lines that the others must not crowd out.
    alarm_limit: Lock<LogLimit>,
    /// The portals with the ports that were bound.
    portals: Lock<Arc<[Portal]>>,
    phase: AtomicU8,
    pub(crate) observer: OnceLock<Arc<dyn Observer>>,
    cores: Vec<Sender<Message>>,
    /// Questions of [`Server::ask_cores`] that a core has not answered yet.
    unanswered: Arc<[AtomicUsize]>,
    /// Cores on which nothing answers a host any more.
    pub(crate) drained: AtomicUsize,
    /// When each core has last come round to its tick.
    // Not a `block::Lock`: a simulation need not try another order here.
    ticks: Box<[Mutex<Option<Instant>>]>,
}

/// A hanging core has at most this many questions waiting; more than its callers ask concurrently.
const QUESTIONS_MAX: usize = 64;

/// A socket more costs each frame of its interface some 50 ns, on the core that the network card interrupts.
const DATAGRAM_CORES_MAX: usize = 16;

/// A question that a core has not answered, until this is dropped.
struct Question {
    unanswered: Arc<[AtomicUsize]>,
    core: usize,
}

impl Drop for Question {
    fn drop(&mut self) {
        self.unanswered[self.core].fetch_sub(1, Ordering::AcqRel);
    }
}

/// The phase of a server: `Starting` → `Open` → `Draining`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Logins are refused with a temporary status, so that hosts try again.
    Starting,
    /// Logins are accepted.
    Open,
    /// The server ends; logins are refused as in `Starting`.
    Draining,
}

/// A connection counted against the limit of its address until it is dropped.
pub struct ConnectionPermit {
    server: Arc<Server>,
    from: AddressBlock,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.server.connections.lock().remove(self.from);
    }
}

impl Server {
    /// A server with these front ends, and a [`Core`] for each of `cores` reactor threads, at least one.
    pub fn new(config: Config, cores: usize, front_ends: Vec<Arc<dyn FrontEnd>>) -> (Arc<Server>, Vec<Core>) {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..cores.max(1)).map(|_| reactor::mailbox()).unzip();
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
        let cores = receivers
            .into_iter()
            .enumerate()
            .map(|(index, messages)| Core { index, server: Arc::clone(&server), messages })
            .collect();
        (server, cores)
    }

    /// Accepts logins from now on.
    pub fn open(&self) {
        self.phase.store(Phase::Open as u8, Ordering::Release);
    }

    /// Asks hosts to log out, waits at most `grace` for commands in flight, flushes all volumes, and ends the
    /// cores. Returns at once.
    pub fn shutdown(&self, grace: Duration) {
        self.phase.store(Phase::Draining as u8, Ordering::Release);
        (0..self.cores.len()).for_each(|core| self.send(core, Message::Drain(grace)));
    }

    /// Replaces the configuration. Sessions that are not affected continue; each front end notifies the
    /// others. Order: portals that go are closed on all cores, then others are opened; `adopt` gives the front ends their new configuration; every
    /// core adapts its sessions. Commands for removed volumes are aborted, and their devices quiesced.
    ///
    /// Completes when all cores have adapted. Two calls must not overlap.
    ///
    /// # Errors
    /// A portal cannot be listened on; the text names it. Then nothing has changed, and `adopt` was not
    /// called.
    pub async fn reconfigure(&self, config: Config, adopt: impl FnOnce()) -> io::Result<Vec<ListenAddress>> {
        let Config { volumes, portals, limits } = config;
        // A port that several cores have is free when the last one has closed it.
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
            // The caller may be gone by now.
            let _ = answer.send(local.listen(&portals));
        });
        let ended = || io::Error::other("the server ends");
        let addresses = answers.recv().await.ok_or_else(ended)??;
        *self.limits.lock() = limits;
        self.registry.replace(volumes);
        adopt();
        self.on_all(|done| move |local: &Rc<RunningCore>| local.adapt(&done)).await;
        Ok(addresses)
    }

    /// Aborts the commands that the order names, on every core and in every front end. Completes when none of
    /// them can start any more and the other volumes that they used have quiesced; [`Server::quiesce`] waits
    /// for the order's own volume.
    pub async fn abort(&self, order: AbortOrder) {
        self.on_all(|done| {
            let order = order.clone();
            move |local: &Rc<RunningCore>| local.abort(&order, &done)
        })
        .await;
    }

    /// Runs a closure on every core. `order` makes it from a sender, which the closure drops when it is done;
    /// completes when all have.
    async fn on_all<F: FnOnce(&Rc<RunningCore>) + Send + 'static>(&self, order: impl Fn(Sender<()>) -> F) {
        let (done, mut all_done) = reactor::mailbox();
        (0..self.cores.len()).for_each(|core| self.run_on(core, order(Sender::clone(&done))));
        drop(done);
        // Nothing is ever sent: the mailbox ends when every core has dropped its sender.
        while let Some(()) = all_done.recv().await {}
    }

    /// Runs a closure on a core's thread, asynchronously and in the order of the calls; it is dropped if the
    /// core has ended. [`RunningCore::front_end`] finds the front end there.
    pub fn run_on(&self, core: usize, run: impl FnOnce(&Rc<RunningCore>) + Send + 'static) {
        self.send(core, Message::Run(Box::new(run)));
    }

    /// Runs a question on the thread of every core and returns the answers by core: `None` for a core that has
    /// ended, or has not answered `within` this time. Blocks that long at most; not for reactor threads. A core
    /// that hangs is not asked without limit.
    pub fn ask_cores<T: Send + 'static>(
        &self,
        within: Duration,
        question: impl Fn(&Rc<RunningCore>) -> T + Clone + Send + 'static,
    ) -> Vec<Option<T>> {
        let (sender, receiver) = mpsc::channel();
        let end = Instant::now() + within;
        for core in 0..self.cores() {
            let asked = Question { unanswered: Arc::clone(&self.unanswered), core };
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
        while let Ok((core, answer)) = receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
            answers[core] = Some(answer);
        }
        answers
    }

    /// A core has come round to its tick.
    pub(crate) fn note_tick(&self, core: usize, now: Instant) {
        *self.ticks[core].lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// The cores that have not come round to their tick, which they do once a second at least, for longer than `limit`: with
    /// the time since. No core is asked. `now` is by the clock of the cores' world.
    pub fn hung_cores(&self, now: Instant, limit: Duration) -> Vec<(usize, Duration)> {
        let since = |tick: &Mutex<Option<Instant>>| {
            let last = *tick.lock().unwrap_or_else(PoisonError::into_inner);
            last.map(|last| now.saturating_duration_since(last)).filter(|since| *since > limit)
        };
        self.ticks.iter().enumerate().filter_map(|(core, tick)| Some((core, since(tick)?))).collect()
    }

    fn send(&self, core: usize, message: Message) {
        if self.cores[core].send(message).is_err() {
            tracing::debug!(core, "a message for a core that has ended");
        }
    }

    /// Reactor threads.
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// The number of cores that have sessions of a front end which shares its datagrams among them: not all of very many, since each has
    /// a socket at which every frame of an interface is looked at.
    pub fn datagram_cores(&self) -> usize {
        self.cores().min(DATAGRAM_CORES_MAX)
    }

    /// Where the datagrams of this front end have the word by which they are shared.
    pub(crate) fn shares_datagrams_at(&self, front_end: &str) -> Option<u16> {
        let found = self.front_ends.iter().find(|other| other.name() == front_end);
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

    /// The volumes that are served now.
    pub fn volumes(&self) -> Arc<Snapshot> {
        self.registry.snapshot()
    }

    /// The limits now.
    pub fn limits(&self) -> Limits {
        *self.limits.lock()
    }

    /// The portals, with real ports once they are bound.
    pub fn portals(&self) -> Arc<[Portal]> {
        Arc::clone(&self.portals.lock())
    }

    pub(crate) fn set_portals(&self, portals: Vec<Portal>) {
        *self.portals.lock() = portals.into();
    }

    /// Counts a connection from `address`; `None` if the address has reached its limit.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let (most, from) = (self.limits().connections_per_address, AddressBlock::containing(address));
        let mut connections = self.connections.lock();
        (connections.count_of(from) < most).then(|| {
            connections.add(from);
            ConnectionPermit { server: Arc::clone(self), from }
        })
    }

    /// Whether hosts of this address have sessions, with any front end.
    pub(crate) fn has_sessions(&self, from: AddressBlock) -> bool {
        self.front_ends.iter().any(|front_end| front_end.has_sessions(from))
    }

    /// A volume has become larger: front ends tell their hosts.
    pub fn volume_grew(&self, volume: &Arc<Volume>) {
        self.front_ends.iter().for_each(|front_end| front_end.volume_grew(volume));
    }

    /// Whether a log line about a peer at this address that has not logged in may be written. A suppressed
    /// line is counted.
    pub fn may_log(&self, from: IpAddr) -> bool {
        self.may_log_of(AddressBlock::containing(from))
    }

    /// The same, of a peer of this block.
    pub fn may_log_of(&self, from: AddressBlock) -> bool {
        self.log_limit.lock().admits(reactor::now(), from)
    }

    /// The same for a line that an administrator must see, such as the beginning of a lockout: other lines about the peer take none of its room.
    pub fn may_log_alarm(&self, from: AddressBlock) -> bool {
        self.alarm_limit.lock().admits(reactor::now(), from)
    }

    /// Logs how many lines were suppressed.
    pub(crate) fn log_left_out(&self) {
        for (limit, what) in [(&self.log_limit, "logins"), (&self.alarm_limit, "lockouts")] {
            for left_out in limit.lock().left_out(reactor::now()) {
                let from = left_out.from.map_or("other addresses".to_owned(), |block| block.to_string());
                tracing::warn!(target: AUDIT, from, lines = left_out.lines, "lines about {what} were left out");
            }
        }
    }

    /// Bytes that the commands of one core may hold.
    pub(crate) fn memory_of_a_core(&self) -> usize {
        self.limits().staging_bytes / self.cores.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On virtual time: the second core runs for three seconds and then no more, the first goes on.
    #[test]
    fn a_core_that_does_not_come_round_is_told_apart_from_one_that_does() {
        let config = Config { volumes: Vec::new(), portals: Vec::new(), limits: Limits::default() };
        let (server, cores) = Server::new(config, 2, Vec::new());
        let limit = Duration::from_secs(5);
        assert!(server.hung_cores(Instant::now(), limit).is_empty(), "none has begun");
        let mut cores = cores.into_iter();
        let (first, second) = (cores.next().expect("two"), cores.next().expect("two"));
        let run = async |core: Core, seconds| {
            let (bound, _) = mpsc::channel();
            let ran = reactor::timeout(Duration::from_secs(seconds), core.run(bound)).await;
            assert!(ran.is_err(), "it has not ended by itself");
            reactor::now()
        };
        let (first_world, second_world) = (reactor::Alone::virtual_time(), reactor::Alone::virtual_time());
        let end = reactor::block_on(second_world, run(second, 3));
        assert!(server.hung_cores(end, limit).is_empty());
        let end = reactor::block_on(first_world, run(first, 20));
        let hung = server.hung_cores(end, limit);
        assert!(matches!(hung[..], [(1, since)] if since > Duration::from_secs(15)), "{hung:?}");
    }

    #[test]
    fn a_core_that_hangs_in_its_first_message_is_seen() {
        let config = Config { volumes: Vec::new(), portals: Vec::new(), limits: Limits::default() };
        let (server, cores) = Server::new(config, 1, Vec::new());
        let (said, heard) = mpsc::channel();
        server.run_on(0, move |core| {
            let later = reactor::now() + Duration::from_secs(6); // as if it had not come back since
            let _ = said.send(core.server().hung_cores(later, Duration::from_secs(5)).len());
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
        let config = Config { volumes: Vec::new(), portals: Vec::new(), limits: Limits::default() };
        let (server, cores) = Server::new(config, 2, Vec::new());
        for _ in 0..2 * QUESTIONS_MAX {
            assert_eq!(server.ask_cores(Duration::ZERO, |_| ()), [None, None]);
        }
        let waiting = |core: usize| server.unanswered[core].load(Ordering::Relaxed);
        assert_eq!((waiting(0), waiting(1)), (QUESTIONS_MAX, QUESTIONS_MAX));
        drop(cores); // their questions go with them
        assert_eq!((waiting(0), waiting(1)), (0, 0));
        assert_eq!(server.ask_cores(Duration::from_secs(3600), |_| ()), [None, None]);
    }
}
