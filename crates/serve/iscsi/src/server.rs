//! What all cores of a server share, and how the rest of the program speaks to it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use block::{Lock, LockGuard};
use reactor::Sender;

use crate::access::AddressBlock;
use crate::admission::LOG;
use crate::backoff::Backoff;
use crate::config::{Portal, ServerConfig};
use crate::core::{Core, Message};
use crate::log_limit::LogLimit;
use crate::loss::{Loss, losses};
use crate::registry::Registry;
use crate::status::SessionStatus;

/// A server. Its work is done by its [`Core`]s; this is the handle to it.
pub struct Server {
    /// What is served now. A change makes another one; sessions hold what they use of it by `Arc`.
    config: Lock<Arc<ServerConfig>>,
    pub(crate) registry: Registry,
    backoff: Lock<Backoff>,
    log_limit: Lock<LogLimit>,
    /// The portals with the ports that were really taken.
    portals: Lock<Arc<[Portal]>>,
    phase: AtomicU8,
    cores: Vec<Sender<Message>>,
}

/// How far a server's life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Logins are put off with "service unavailable", which initiators try again; "target not found" they
    /// would not.
    Starting,
    Open,
    /// As `Starting`, on the way out.
    Draining,
}

impl Server {
    /// A server and one core for each reactor thread.
    pub fn new(config: ServerConfig) -> (Arc<Server>, Vec<Core>) {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..config.cores.max(1)).map(|_| reactor::mailbox()).unzip();
        let server = Arc::new(Server {
            registry: Registry::new(senders.len(), &config.limits),
            backoff: Lock::default(),
            log_limit: Lock::default(),
            portals: Lock::new(config.portals.clone().into()),
            config: Lock::new(Arc::new(config)),
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

    /// Lets initiators in.
    pub fn open(&self) {
        self.phase.store(Phase::Open as u8, Ordering::Release);
    }

    /// Asks initiators to log out, lets commands in flight end for at most `grace`, flushes all volumes, and
    /// ends the cores. Returns at once.
    pub fn shutdown(&self, grace: Duration) {
        self.phase.store(Phase::Draining as u8, Ordering::Release);
        self.tell_all(|_| Message::Drain(grace));
    }

    /// Serves something else from now on. Sessions that it does not concern go on undisturbed. An initiator is told what it
    /// sees of it: of LUNs that have come or gone (REPORTED LUNS DATA HAS CHANGED), or that it has to log out, since its target
    /// is gone or not for it any more. Commands for LUNs that are gone are ended, and their devices let go of them as after
    /// an abort. `cores` and `random` stay what they were; limits of memory within a session are those of its login.
    ///
    /// Ends when all cores have done so. Two calls must not overlap.
    ///
    /// # Errors
    /// A portal cannot be listened on, which the text names. Then nothing has changed.
    pub async fn reconfigure(&self, config: ServerConfig) -> io::Result<Vec<SocketAddr>> {
        let (answer, mut answers) = reactor::mailbox();
        self.tell(0, Message::Listen { portals: config.portals.clone(), answer });
        let ended = || io::Error::other("the server ends");
        let addresses = answers.recv().await.ok_or_else(ended)??;
        self.registry.set_limits(&config.limits);
        *self.config.lock() = Arc::new(config);
        let (done, mut all_done) = reactor::mailbox();
        self.tell_all(|_| Message::Changed { done: Sender::clone(&done) });
        drop(done);
        // Nothing is ever sent: the mailbox ends when every core has dropped its sender.
        while let Some(()) = all_done.recv().await {}
        Ok(addresses)
    }

    /// What the sessions of now would lose if `wanted` were served. Blocks as [`Server::sessions`] does.
    pub fn losses(&self, wanted: &ServerConfig) -> Vec<Loss> {
        losses(&self.sessions(), &self.config(), &self.portals(), wanted)
    }

    /// All sessions now. Blocks for at most a second; not for reactor threads.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        let (answer, answers) = std::sync::mpsc::channel();
        self.tell_all(|_| Message::Status(answer.clone()));
        drop(answer);
        let mut sessions = Vec::new();
        while let Ok(mut some) = answers.recv_timeout(Duration::from_secs(1)) {
            sessions.append(&mut some);
        }
        sessions.sort_by_key(|session| session.tsih);
        sessions
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            phase if phase == Phase::Open as u8 => Phase::Open,
            phase if phase == Phase::Draining as u8 => Phase::Draining,
            _ => Phase::Starting,
        }
    }

    /// What is known of wrong secrets.
    pub(crate) fn backoff(&self) -> LockGuard<'_, Backoff> {
        self.backoff.lock()
    }

    /// Whether a line about a stranger from this address may be written into the log. It is counted if not.
    pub(crate) fn may_log(&self, from: IpAddr) -> bool {
        let mut limit = self.log_limit.lock();
        limit.admits(reactor::now(), AddressBlock::of(from))
    }

    /// Says how much was left out of the log.
    pub(crate) fn log_left_out(&self) {
        let mut limit = self.log_limit.lock();
        for left_out in limit.left_out(reactor::now()) {
            let from = left_out.from.map_or("other addresses".to_owned(), |block| block.to_string());
            tracing::warn!(target: LOG, from, lines = left_out.lines, "lines about logins were left out");
        }
    }

    pub(crate) fn tell(&self, core: usize, message: Message) {
        if self.cores[core].send(message).is_err() {
            tracing::debug!(core, "a message for a core that has ended");
        }
    }

    pub(crate) fn tell_all(&self, message: impl Fn(usize) -> Message) {
        (0..self.cores.len()).for_each(|core| self.tell(core, message(core)));
    }

    /// What the commands of one core may hold.
    pub(crate) fn memory_of_a_core(&self, config: &ServerConfig) -> usize {
        config.limits.staging_bytes / self.cores.len()
    }

    /// What is served now.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.lock())
    }

    /// The portals, with real ports once they are bound.
    pub(crate) fn portals(&self) -> Arc<[Portal]> {
        Arc::clone(&self.portals.lock())
    }

    pub(crate) fn set_portals(&self, portals: Vec<Portal>) {
        *self.portals.lock() = portals.into();
    }
}
