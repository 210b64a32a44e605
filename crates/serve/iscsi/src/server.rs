//! What all cores of a server share, and how the rest of the program speaks to it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use block::{Lock, LockGuard};
use reactor::Sender;

use crate::access::AddressBlock;
use crate::admission::LOG;
use crate::backoff::Backoff;
use crate::config::{Portal, ServerConfig};
use crate::core::{Core, Message};
use crate::log_limit::LogLimit;
use crate::registry::Registry;
use crate::status::SessionStatus;

/// A server. Its work is done by its [`Core`]s; this is the handle to it.
pub struct Server {
    pub(crate) config: ServerConfig,
    pub(crate) registry: Registry,
    backoff: Lock<Backoff>,
    log_limit: Lock<LogLimit>,
    /// The portals with the ports that were really taken.
    pub(crate) portals: OnceLock<Vec<Portal>>,
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
            config,
            portals: OnceLock::new(),
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

    /// The portals, with real ports once they are bound.
    pub(crate) fn portals(&self) -> &[Portal] {
        self.portals.get().unwrap_or(&self.config.portals)
    }
}
