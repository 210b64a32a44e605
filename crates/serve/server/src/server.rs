//! What all cores of a server share, and how the rest of the program speaks to it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use block::Lock;
use reactor::Sender;
use volume::{NamedVolumes, Registry, Snapshot, Volume};

use crate::address::{AddressBlock, Counts};
use crate::core::{Core, Message, RunningCore};
use crate::front_end::{AbortOrder, FrontEnd};
use crate::listener::Portal;
use crate::log_limit::{LOG, LogLimit};

/// What a server serves, whatever the protocol. It takes another by [`Server::reconfigure`].
#[derive(Clone)]
pub struct Config {
    /// What is served.
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
    /// Connections at once that have not logged in yet, all together. One more closes the oldest of the address with the
    /// most.
    pub logins: usize,
    /// How long task management waits for a device to quiesce before it answers with the volume fenced instead.
    pub fence_time: Duration,
    /// Memory that the commands of all sessions may hold, in bytes: data of volumes that are not memory themselves, and
    /// working buffers. Reads beyond it wait; writes are told to come again.
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

/// A server. Its work is done by its [`Core`]s; this is the handle to it.
pub struct Server {
    registry: Registry,
    pub(crate) front_ends: Vec<Arc<dyn FrontEnd>>,
    limits: Lock<Limits>,
    connections: Lock<Counts>,
    log_limit: Lock<LogLimit>,
    /// The portals with the ports that were really taken.
    portals: Lock<Arc<[Portal]>>,
    phase: AtomicU8,
    cores: Vec<Sender<Message>>,
}

/// How far a server's life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Hosts are told to try again, not that what they want is not here.
    Starting,
    /// Hosts are let in.
    Open,
    /// As `Starting`, on the way out.
    Draining,
}

/// A connection's place in the count of its address; given back on drop.
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
            portals: Lock::new(config.portals.into()),
            phase: AtomicU8::new(Phase::Starting as u8),
            cores: senders,
        });
        let cores = receivers
            .into_iter()
            .enumerate()
            .map(|(index, messages)| Core { index, server: Arc::clone(&server), messages })
            .collect();
        (server, cores)
    }

    /// Lets hosts in.
    pub fn open(&self) {
        self.phase.store(Phase::Open as u8, Ordering::Release);
    }

    /// Asks hosts to leave, lets commands in flight end for at most `grace`, flushes all volumes, and ends the cores. Returns
    /// at once.
    pub fn shutdown(&self, grace: Duration) {
        self.phase.store(Phase::Draining as u8, Ordering::Release);
        (0..self.cores.len()).for_each(|core| self.send(core, Message::Drain(grace)));
    }

    /// Serves something else from now on. Sessions that it does not concern go on undisturbed; each front end tells the
    /// others. Once the portals are listened on, `adopt` has the front ends take over what is to be served by them; then all
    /// cores go by that. Commands for what is gone are ended, and their devices quiesced, as after an abort.
    ///
    /// Ends when all cores have done so. Two calls must not overlap.
    ///
    /// # Errors
    /// A portal cannot be listened on, which the text names. Then nothing has changed, and `adopt` was not called.
    pub async fn reconfigure(&self, config: Config, adopt: impl FnOnce()) -> io::Result<Vec<SocketAddr>> {
        let Config { volumes, portals, limits } = config;
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

    /// Ends the commands that the order is about, on every core and in every front end. Ends when none of them begins any
    /// more and the other volumes that they used are quiesced; [`Server::quiesce`] waits for the order's own.
    pub async fn abort(&self, order: AbortOrder) {
        self.on_all(|done| {
            let order = order.clone();
            move |local: &Rc<RunningCore>| local.abort(&order, &done)
        })
        .await;
    }

    /// Has every core run a closure, which `order` makes of what it drops when it is done; ends when all have.
    async fn on_all<F: FnOnce(&Rc<RunningCore>) + Send + 'static>(&self, order: impl Fn(Sender<()>) -> F) {
        let (done, mut all_done) = reactor::mailbox();
        (0..self.cores.len()).for_each(|core| self.run_on(core, order(Sender::clone(&done))));
        drop(done);
        // Nothing is ever sent: the mailbox ends when every core has dropped its sender.
        while let Some(()) = all_done.recv().await {}
    }

    /// Has a core run a closure on its thread: soon, in the order in which these calls come, or not at all if the core has
    /// ended. [`RunningCore::front_end`] finds the front end that it is for.
    pub fn run_on(&self, core: usize, run: impl FnOnce(&Rc<RunningCore>) + Send + 'static) {
        self.send(core, Message::Run(Box::new(run)));
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

    /// How far its life has come.
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

    /// A place for a connection from `address`, unless it has as many as it may.
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

    /// Whether a line about a stranger from this address may be written into the log. It is counted if not.
    pub fn may_log(&self, from: IpAddr) -> bool {
        let mut limit = self.log_limit.lock();
        limit.admits(reactor::now(), AddressBlock::containing(from))
    }

    /// Says how much was left out of the log.
    pub(crate) fn log_left_out(&self) {
        let mut limit = self.log_limit.lock();
        for left_out in limit.left_out(reactor::now()) {
            let from = left_out.from.map_or("other addresses".to_owned(), |block| block.to_string());
            tracing::warn!(target: LOG, from, lines = left_out.lines, "lines about logins were left out");
        }
    }

    /// What the commands of one core may hold.
    pub(crate) fn memory_of_a_core(&self) -> usize {
        self.limits().staging_bytes / self.cores.len()
    }
}
