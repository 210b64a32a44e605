//! What a session consists of, and how word gets from the machine to those who wait.
//!
//! `connections` come and go, `commands` are submitted and climbed after, `connector` is for what is neither (functions
//! and text), and `events` is what the machine has to say of all of them.

mod commands;
mod connections;
mod events;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use iscsi::initiator::Session as Machine;

use self::connections::LiveConnection;
use self::requests::TextExchange;
use crate::caches::Caches;
use crate::management::Functions;
use crate::pings::Pings;
use crate::registrations::Registrations;
use crate::session_state::SessionState;
use crate::statistics::{Meter, Statistics};
use crate::tasks::Tasks;
use crate::timeouts::Timeouts;

pub(crate) use self::commands::Submitted;
pub(crate) use self::connections::{Outage, Restart};

/// The parts of a session.
pub(crate) struct SessionInner {
    pub(crate) machine: Machine,
    pub(crate) tasks: Tasks,
    /// As of the last round: near enough for deadlines of seconds, and free.
    pub(crate) now: Instant,
    pub(crate) timeouts: Timeouts,
    state: SessionState,
    connections: Vec<LiveConnection>,
    /// Requests for which the command window had no room, or there was no session.
    waiting: VecDeque<Waker>,
    /// We are logging out, for good.
    is_leaving: bool,
    /// When the target is to have answered the logout that it asked for.
    logout_due: Option<Instant>,
    /// The target has agreed: nothing that was sent is under way.
    is_logged_out: bool,
    /// Commands that were on lost connections since the session began, or began again.
    lost_commands: usize,
    /// Those of them that may change something, and that the target has not let go of.
    unsettled: usize,
    /// Woken when the session is over.
    ended: Vec<Waker>,
    text: TextExchange,
    functions: Functions,
    pings: Pings,
    pub(crate) meter: Meter,
    /// What was written and not flushed, shared with the devices that wrote it.
    caches: Arc<Caches>,
    /// Shared with whoever is refused for want of one.
    registrations: Arc<Registrations>,
}

impl SessionInner {
    pub(crate) fn new(
        machine: Machine,
        now: Instant,
        timeouts: Timeouts,
        caches: Arc<Caches>,
        registrations: Arc<Registrations>,
    ) -> SessionInner {
        SessionInner {
            machine,
            tasks: Tasks::default(),
            now,
            timeouts,
            state: SessionState::new(now),
            connections: Vec::new(),
            waiting: VecDeque::new(),
            is_leaving: false,
            logout_due: None,
            is_logged_out: false,
            lost_commands: 0,
            unsettled: 0,
            ended: Vec::new(),
            text: TextExchange::Idle,
            functions: Functions::default(),
            pings: Pings::default(),
            meter: Meter::new(now),
            caches,
            registrations,
        }
    }

    /// What there is to tell of the session.
    pub(crate) fn statistics(&self, now: Instant) -> Statistics {
        self.meter.statistics(
            now,
            &self.machine,
            self.connections.iter().filter_map(LiveConnection::statistics).collect(),
        )
    }
}
