//! The response fence (RFC 7143 sections 4.2.2.3.3 and 4.2.2.3.4): an answer that no other may be seen to cross,
//! though they travel on different connections.
//!
//! ```text
//!   connection 0    answer  answer │ping                      ┌─ TMF response │ping
//!   connection 1    answer         │ping                      │
//!                                  └── both acknowledged? ────┘      acknowledged? ── the fence is lifted
//!   behind                                             answers handed over since ──────► sent
//! ```
//!
//! The answer of a function that ended many tasks is sent when all answers queued before it on the other connections
//! have been acknowledged, and answers that come after it wait until it has been acknowledged itself. A ping at
//! the end of each queue asks for the acknowledgement: ExpStatSN of anything that the initiator sends will do, and so
//! will the ping's answer. A connection that is lost, or an initiator that takes too long, is waited for no longer.
//!
//! With one connection the order of its queue is fence enough, and nothing here happens. The standard's fence is for
//! one I_T_L nexus: answers of other logical units pass.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::connection::{Closing, Ready, Say};
use super::event::{ConnectionId, Event};
use super::timeout::Patience;
use super::{Session, Transmit};
use crate::pdu::{Bhs, Lun, Opcode, Ttt};
use crate::serial::Sn;

/// The fence that stands, and what waits behind it.
#[derive(Debug, Default)]
pub(super) struct Fences {
    standing: Option<Fence>,
    /// In the order in which it is to be said.
    behind: VecDeque<Behind>,
    /// Numbers fences, so that a ping for one that was lifted by the clock says nothing of the next.
    raised: u32,
}

/// Whose answers a fence holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    LogicalUnit(Lun),
    Target,
}

#[derive(Debug)]
struct Fence {
    number: u32,
    reach: Reach,
    /// Whose answer it is raised for.
    asker: ConnectionId,
    /// That answer, until it is sent.
    answer: Option<Box<Ready>>,
    /// Connections whose acknowledgement is missing.
    missing: Vec<Missing>,
    patience: Patience,
}

#[derive(Debug)]
struct Missing {
    connection: ConnectionId,
    /// Once it is sent.
    ping: Option<Ping>,
}

#[derive(Clone, Copy, Debug)]
struct Ping {
    /// The first StatSN that need not be acknowledged.
    stat_sn: Sn,
    ttt: Option<Ttt>,
}

#[derive(Debug)]
struct Behind {
    connection: ConnectionId,
    say: Waiting,
}

#[derive(Debug)]
enum Waiting {
    Plain(Say),
    /// An answer that raises a fence itself.
    Fenced(Reach, Box<Ready>),
}

impl Fences {
    pub(super) fn is_standing(&self) -> bool {
        self.standing.is_some()
    }

    /// Whether a logical unit's answers have to wait.
    pub(super) fn holds(&self, lun: Lun) -> bool {
        self.standing.as_ref().is_some_and(|fence| fence.reach.covers(lun) || self.will_hold(lun))
    }

    fn will_hold(&self, lun: Lun) -> bool {
        self.behind.iter().any(|behind| match &behind.say {
            Waiting::Fenced(reach, _) => reach.covers(lun),
            Waiting::Plain(_) => false,
        })
    }

    /// Keeps something until the fence is lifted.
    pub(super) fn hold(&mut self, connection: ConnectionId, say: Say) {
        self.behind.push_back(Behind { connection, say: Waiting::Plain(say) });
    }

    /// How much waits.
    pub(super) fn behind(&self) -> usize {
        self.behind.len()
    }

    pub(super) fn deadline(&self, passed: Instant) -> Option<Instant> {
        self.standing.as_ref().map(|fence| fence.patience.deadline(passed))
    }

    /// Why all connections were to be closed behind an answer that waits for its turn on this one.
    pub(super) fn closing_behind(&self, id: ConnectionId) -> Option<super::CloseReason> {
        let standing = self.standing.iter().filter(|fence| fence.asker == id);
        let answers = standing.filter_map(|fence| fence.answer.as_deref());
        let behind = self.behind.iter().filter(|behind| behind.connection == id);
        let waiting = behind.filter_map(|behind| match &behind.say {
            Waiting::Plain(Say::Ready(ready)) | Waiting::Fenced(_, ready) => Some(&**ready),
            Waiting::Plain(_) => None,
        });
        answers.chain(waiting).find_map(Ready::closes_all)
    }
}

impl Reach {
    pub(super) fn covers(self, lun: Lun) -> bool {
        match self {
            Reach::LogicalUnit(of) => of == lun,
            Reach::Target => true,
        }
    }
}

impl Session {
    /// Says something behind all answers so far, a fence's among them.
    pub(super) fn say_after_answers(&mut self, id: ConnectionId, bhs: Bhs, then: Option<Closing>) {
        let say = Say::Ready(Box::new(Ready { bhs, data: Vec::new(), is_status: true, then }));
        if self.fences.is_standing() {
            self.fences.hold(id, say);
        } else if let Some(connection) = self.connection_mut(id) {
            connection.answers.push_back(say);
        }
    }

    /// Says something that no answer on any connection may cross.
    pub(super) fn say_fenced(&mut self, id: ConnectionId, bhs: Bhs, reach: Reach, then: Option<Closing>) {
        let ready = Box::new(Ready { bhs, data: Vec::new(), is_status: true, then });
        if self.fences.is_standing() {
            self.fences.behind.push_back(Behind { connection: id, say: Waiting::Fenced(reach, ready) });
        } else {
            self.raise(id, reach, ready);
            self.settle();
        }
    }

    /// Section 4.2.2.3.3: "takes note of last-sent and unacknowledged StatSN on each of the connections", by a ping
    /// that has to pass everything queued there.
    fn raise(&mut self, asker: ConnectionId, reach: Reach, answer: Box<Ready>) {
        let number = self.fences.raised.wrapping_add(1);
        self.fences.raised = number;
        let others: Vec<ConnectionId> =
            self.connections().map(|(id, _)| id).filter(|&other| other != asker).collect();
        let missing = others.into_iter().map(|other| self.ask(number, other)).collect();
        let answer = Some(answer);
        let patience = Patience::of(ACKNOWLEDGE_WITHIN);
        self.fences.standing = Some(Fence { number, reach, asker, answer, missing, patience });
    }

    /// Queues a ping. A connection that is logged out says nothing more, and nothing follows its logout response:
    /// there only its end is waited for.
    fn ask(&mut self, number: u32, id: ConnectionId) -> Missing {
        if let Some(connection) = self.connection_mut(id).filter(|connection| !connection.logged_out) {
            connection.answers.push_back(Say::Mark(number));
            self.events.push_back(Event::Speak { connection: id });
        }
        Missing { connection: id, ping: None }
    }

    /// The ping's turn has come.
    pub(super) fn say_mark(&mut self, id: ConnectionId, number: u32) -> Option<Transmit> {
        let standing = self.fences.standing.as_mut().filter(|fence| fence.number == number)?;
        let missing = standing.missing.iter_mut().find(|missing| missing.connection == id)?;
        let connection = self.connections.get_mut(id.index())?.as_mut()?;
        let ttt = connection.next_ping();
        missing.ping = Some(Ping { stat_sn: connection.stat_sn, ttt });
        let ready =
            Ready { bhs: super::nop::nop_in(ttt).emit(), data: Vec::new(), is_status: false, then: None };
        Some(self.say_ready(id, ready))
    }

    /// The initiator has said something while a fence stands.
    pub(super) fn note_acknowledgement(&mut self, id: ConnectionId, bhs: &Bhs) {
        let Some(fence) = &mut self.fences.standing else { return };
        let exp_stat_sn = exp_stat_sn(bhs);
        let answered = match bhs.opcode() {
            Some(Opcode::NopOut) => Ttt::new(bhs.u32(TTT)),
            _ => None,
        };
        let arrived =
            |ping: Ping| ping.stat_sn.le(exp_stat_sn) || (answered.is_some() && answered == ping.ttt);
        fence.missing.retain(|missing| missing.connection != id || !missing.ping.is_some_and(arrived));
        self.settle();
    }

    /// A connection is gone, and with it what was said on it.
    pub(super) fn fences_lose(&mut self, id: ConnectionId) {
        if let Some(fence) = &mut self.fences.standing {
            fence.missing.retain(|missing| missing.connection != id);
            self.settle();
        }
    }

    /// The clock spoke.
    pub(super) fn fences_time(&mut self, now: Instant) {
        if let Some(fence) = &mut self.fences.standing
            && fence.patience.is_over(now)
        {
            fence.missing.clear();
            self.settle();
        }
    }

    /// Goes on with fences for which nothing is missing: sends the answer, or lifts the fence.
    fn settle(&mut self) {
        while let Some(mut fence) = self.fences.standing.take_if(|fence| fence.missing.is_empty()) {
            match fence.answer.take() {
                Some(answer) => self.fences.standing = Some(self.let_through(fence, answer)),
                None => self.release_behind(),
            }
        }
    }

    /// All before it have arrived. "The fence … MUST NOT be considered cleared" before it has arrived too.
    fn let_through(&mut self, fence: Fence, answer: Box<Ready>) -> Fence {
        let is_last = answer.then.is_some();
        if let Some(connection) = self.connection_mut(fence.asker) {
            connection.answers.push_back(Say::Ready(answer));
            self.events.push_back(Event::Speak { connection: fence.asker });
        }
        // Nobody acknowledges what the connections are closed behind.
        let is_heard = !is_last && self.connections().count() > 1 && self.connection(fence.asker).is_some();
        let missing = if is_heard { vec![self.ask(fence.number, fence.asker)] } else { Vec::new() };
        let patience = Patience::of(ACKNOWLEDGE_WITHIN);
        Fence { missing, patience, ..fence }
    }

    /// Says what has waited, up to the next answer that raises a fence.
    fn release_behind(&mut self) {
        while let Some(Behind { connection: id, say }) = self.fences.behind.pop_front() {
            match say {
                Waiting::Fenced(reach, ready) => return self.raise(id, reach, ready),
                Waiting::Plain(say) => {
                    if let Some(connection) = self.connection_mut(id) {
                        connection.answers.push_back(say);
                        self.events.push_back(Event::Speak { connection: id });
                    }
                }
            }
        }
    }
}

/// Which StatSN the initiator expects next: all before it have arrived.
pub(super) fn exp_stat_sn(bhs: &Bhs) -> Sn {
    Sn(bhs.u32(EXP_STAT_SN))
}

/// An initiator on a LAN acknowledges within milliseconds; issue 2 wants resets answered within five seconds.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_secs(1);
/// Where all PDUs of an initiator have them (section 11).
const EXP_STAT_SN: usize = 28;
const TTT: usize = 20;
