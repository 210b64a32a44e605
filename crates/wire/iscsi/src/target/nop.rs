//! NOP in both directions (RFC 7143 sections 11.18 and 11.19), and the timeouts of connections.

use std::time::Instant;

use super::Session;
use super::event::{CloseReason, ConnectionId, Event};
use crate::keepalive::Due;
use crate::pdu::{Lun, NopIn, NopOut, TargetNumbers, Ttt};

impl Session {
    /// Processes expired timeouts.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.fences_timeout(now);
        self.tmfs_timeout(now);
        let policy = self.config.nop;
        for connection in self.connections.iter_mut() {
            let id = connection.id;
            if connection.logout_by.is_some_and(|by| now >= by) {
                connection.logout_by = None;
                self.events.push_back(Event::Close { connection: id, reason: CloseReason::LogoutOverdue });
            }
            match connection.keepalive.due(now, &policy) {
                Due::Nothing => {}
                Due::Ping => {
                    let ttt = connection.next_ping();
                    connection.queue_without_status(nop_in(ttt).emit());
                    self.events.push_back(Event::TransmitReady { connection: id });
                }
                Due::Close => {
                    self.events.push_back(Event::Close { connection: id, reason: CloseReason::Silent });
                }
            }
        }
    }

    /// The next time to call [`Session::handle_timeout`]. Any other call may change it.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let connections = self.connections.iter();
        let passed = connections.clone().map(|connection| connection.keepalive.last_received()).max()?;
        connections
            .flat_map(|connection| [connection.keepalive.deadline(&self.config.nop), connection.logout_by])
            .chain([self.fences.deadline(passed), self.tmfs_deadline(passed)])
            .flatten()
            .min()
    }

    /// A ping is answered with its data; the response to our ping needs no action, since its arrival counts.
    pub(super) fn handle_nop(&mut self, id: ConnectionId, pdu: &NopOut, mut data: Vec<u8>) {
        let (Some(connection), Some(itt)) = (self.connection_mut(id), pdu.itt) else { return };
        data.truncate(connection.peer_segment_max as usize);
        let answer = NopIn { itt: Some(itt), data_segment_length: data.len() as u32, ..nop_in(None) };
        connection.queue_status(answer.emit(), data);
    }
}

/// A NOP-In of the target. "If the Target Transfer Tag is valid, the LUN field MUST hold a valid LUN": zero
/// always is, and libiscsi before 2858cb5 answers with it in any case.
pub(super) fn nop_in(ttt: Option<Ttt>) -> NopIn {
    NopIn { lun: Lun(0), itt: None, ttt, numbers: TargetNumbers::default(), data_segment_length: 0 }
}
