//! The state of a session on its thread, and the delivery of the machine's events.
//!
//! `connections` are added and removed, `commands` are submitted and escalated, `requests` are everything
//! else (functions, pings, text), and `events` delivers the machine's events for all of them.

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

/// The state of a session, behind [`crate::session::Session`].
pub(crate) struct SessionInner {
    pub(crate) machine: Machine,
    pub(crate) tasks: Tasks,
    /// Time of the last iteration: precise enough for deadlines of seconds, without a system call.
    pub(crate) now: Instant,
    pub(crate) timeouts: Timeouts,
    state: SessionState,
    connections: Vec<LiveConnection>,
    /// Requests that wait for room in the command window, or for the session.
    waiting: VecDeque<Waker>,
    /// A final logout was requested.
    is_leaving: bool,
    /// Deadline for the answer to a logout that the target requested.
    logout_due: Option<Instant>,
    /// The target confirmed the logout: no command is outstanding.
    is_logged_out: bool,
    /// Commands lost with connections since the session began or was reinstated.
    lost_commands: usize,
    /// Those that may change something and are not settled.
    unsettled: usize,
    /// Woken when the session is over.
    ended: Vec<Waker>,
    /// Connections that are lost are reset, so that this machine delivers nothing more of them: no session will take their place.
    pub(crate) resets_lost: bool,
    /// Why its last connection ended.
    pub(crate) last_ending: Option<String>,
    text: TextExchange,
    functions: Functions,
    pings: Pings,
    pub(crate) meter: Meter,
    /// Unflushed writes, shared with the devices that sent them.
    caches: Arc<Caches>,
    /// Shared with units whose commands fail for want of a registration.
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
            resets_lost: false,
            last_ending: None,
            text: TextExchange::Idle,
            functions: Functions::default(),
            pings: Pings::default(),
            meter: Meter::new(now),
            caches,
            registrations,
        }
    }

    /// The statistics of the session.
    pub(crate) fn statistics(&self, now: Instant) -> Statistics {
        self.meter.statistics(
            now,
            &self.machine,
            self.connections.iter().filter_map(LiveConnection::statistics).collect(),
        )
    }
}
