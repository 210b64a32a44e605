//! The clock spoke.

use std::time::Instant;

use super::Session;
use super::event::{CloseReason, ConnectionId, Event};
use crate::keepalive::Due;

impl Session {
    /// The clock spoke.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut silent: Vec<ConnectionId> = Vec::new();
        for connection in self.connections.iter_mut().flatten() {
            match connection.keepalive.due(now, &self.config.nop) {
                Due::Nothing => {}
                Due::Ping => silent.push(connection.id),
                Due::GiveUp => self
                    .events
                    .push_back(Event::Close { connection: connection.id, reason: CloseReason::Silent }),
            }
        }
        for id in silent {
            self.send_ping(id, &[], true);
        }
    }

    /// When to call [`Session::handle_timeout`]. Anything that happens before may move it.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let connections = self.connections.iter().flatten();
        connections.filter_map(|connection| connection.keepalive.deadline(&self.config.nop)).min()
    }
}
