//! Is the initiator there? NOP both ways (RFC 7143 sections 11.18 and 11.19), and deadlines.
//!
//! Anything that arrives is a sign of life. Only a connection that is silent is asked, and only one that stays
//! silent is closed: an initiator that is busy sending has no need to answer pings.

use std::time::{Duration, Instant};

use super::Session;
use super::config::NopPolicy;
use super::event::{CloseReason, ConnectionId, Event};
use crate::pdu::{Lun, NopIn, NopOut, Ttt};
use crate::serial::Sn;

/// What is known of a connection's life.
#[derive(Debug)]
pub(super) struct Keepalive {
    since: Instant,
    last_heard: Instant,
    /// When the initiator was asked, if it was, since it was last heard.
    asked: Option<Instant>,
    pings: u32,
    given_up: bool,
}

/// What a connection's clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    Ping,
    GiveUp,
}

impl Keepalive {
    pub(super) fn new(now: Instant) -> Keepalive {
        Keepalive { since: now, last_heard: now, asked: None, pings: 0, given_up: false }
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.last_heard = now;
        self.asked = None;
    }

    fn due(&self, now: Instant, policy: &NopPolicy) -> Due {
        match self.deadline(policy) {
            Some(deadline) if now >= deadline && self.asked.is_some() => Due::GiveUp,
            Some(deadline) if now >= deadline => Due::Ping,
            Some(_) | None => Due::Nothing,
        }
    }

    fn deadline(&self, policy: &NopPolicy) -> Option<Instant> {
        if self.given_up {
            return None;
        }
        match self.asked {
            Some(asked) => Some(later(asked, policy.timeout)?.max(later(self.since, policy.grace)?)),
            None => later(self.last_heard, policy.interval),
        }
    }

    fn ask(&mut self, now: Instant) -> Option<Ttt> {
        self.asked = Some(now);
        self.pings = (self.pings + 1) & 0x7fff_ffff;
        Ttt::new(self.pings)
    }
}

impl Session {
    /// The clock spoke.
    pub fn handle_timeout(&mut self, now: Instant) {
        let policy = self.config.nop;
        for connection in self.connections.iter_mut().flatten() {
            let id = connection.id;
            if connection.logout_by.is_some_and(|by| now >= by) {
                connection.logout_by = None;
                self.events.push_back(Event::Close { connection: id, reason: CloseReason::LogoutOverdue });
            }
            match connection.keepalive.due(now, &policy) {
                Due::Nothing => {}
                Due::Ping => {
                    let ttt = connection.keepalive.ask(now);
                    connection.say_aside(nop_in(ttt).emit());
                }
                Due::GiveUp => {
                    connection.keepalive.given_up = true;
                    self.events.push_back(Event::Close { connection: id, reason: CloseReason::Silent });
                }
            }
        }
    }

    /// When to call [`Session::handle_timeout`]. Anything that happens before may move it.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let connections = self.connections.iter().flatten();
        connections
            .flat_map(|connection| [connection.keepalive.deadline(&self.config.nop), connection.logout_by])
            .flatten()
            .min()
    }

    /// A ping is answered at once with its data; an answer to ours has done its work by arriving.
    pub(super) fn handle_nop(&mut self, id: ConnectionId, pdu: &NopOut, mut data: Vec<u8>) {
        let (Some(connection), Some(itt)) = (self.connection_mut(id), pdu.itt) else { return };
        data.truncate(connection.peer_segment_max as usize);
        let answer = NopIn { itt: Some(itt), data_segment_length: data.len() as u32, ..nop_in(None) };
        connection.say_status(answer.emit(), data);
    }
}

/// A NOP-In of the target's own. "If the Target Transfer Tag is valid, the LUN field MUST hold a valid LUN":
/// zero always is, and libiscsi before 2858cb5 answers with it whatever it is told.
fn nop_in(ttt: Option<Ttt>) -> NopIn {
    NopIn {
        lun: Lun(0),
        itt: None,
        ttt,
        stat_sn: Sn(0),
        exp_cmd_sn: Sn(0),
        max_cmd_sn: Sn(0),
        data_segment_length: 0,
    }
}

/// `None` is further off than the clock goes.
fn later(from: Instant, by: Duration) -> Option<Instant> {
    from.checked_add(by)
}
