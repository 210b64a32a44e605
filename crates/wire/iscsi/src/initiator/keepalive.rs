//! Keepalive and timeouts.
//!
//! A connection is pinged when it is silent, and at the same interval when it is not: the round-trip time of
//! a NOP under load tells the queue in front of the target from the target. Only silence closes a connection.

use std::time::{Duration, Instant};

use super::Session;
use super::event::{CloseReason, ConnectionId, Event};
use crate::keepalive::Due;

/// The keepalive pings of a connection.
#[derive(Debug)]
pub(super) struct Probe {
    /// Time of the last ping.
    asked: Instant,
    /// Pings without a response. After a rejected ping the next is sent only when the connection is silent.
    unanswered: u32,
}

impl Probe {
    pub(super) fn new(now: Instant) -> Probe {
        Probe { asked: now, unanswered: 0 }
    }

    /// A connection in logout takes no ping; the interval passes all the same.
    fn ask(&mut self, now: Instant, is_sent: bool) {
        self.asked = now;
        self.unanswered = self.unanswered.saturating_add(u32::from(is_sent));
    }

    pub(super) fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// One outstanding ping at a time, and at least the interval between two.
    fn deadline(&self, interval: Duration) -> Option<Instant> {
        if self.unanswered == 0 { self.asked.checked_add(interval) } else { None }
    }
}

impl Session {
    /// Processes expired timeouts.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut to_ask: Vec<ConnectionId> = Vec::new();
        for connection in self.connections.iter_mut() {
            match connection.keepalive.due(now, &self.config.nop) {
                Due::Nothing => {
                    let deadline = connection.probe.deadline(self.config.nop.interval);
                    if deadline.is_some_and(|deadline| now >= deadline) {
                        to_ask.push(connection.id);
                    }
                }
                Due::Ping => to_ask.push(connection.id),
                Due::Close => self
                    .events
                    .push_back(Event::Close { connection: connection.id, reason: CloseReason::Silent }),
            }
        }
        for id in to_ask {
            self.probe(now, id);
        }
    }

    fn probe(&mut self, now: Instant, id: ConnectionId) {
        let is_sent = self.send_ping(id, &[], true).is_some();
        if let Some(connection) = self.connection_mut(id) {
            connection.probe.ask(now, is_sent);
        }
    }

    /// The next time to call [`Session::handle_timeout`]. Any other call may change it.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let nop = &self.config.nop;
        let connections = self.connections.iter();
        connections
            .flat_map(|connection| {
                [connection.keepalive.deadline(nop), connection.probe.deadline(nop.interval)]
            })
            .flatten()
            .min()
    }
}
