//! An initiator's session, as a machine without I/O: commands and frames in, frames and results out.
//!
//! ```text
//!  new ──► Login ── LoginReply (login) ──► Session ── suspicion, old keys ──► Session and Login
//!            ▲                               │  ▲                                │     │ unknown: NexusLost,
//!            └── nothing answers: Ended      │  └──────── Resumed ◄──────────────┘     ▼ requests are Lost
//!                                            └── disconnect, DISCONNECT: Ended       Login
//! ```
//!
//! The driver calls [`Initiator::poll_transmit`] and [`Initiator::poll_event`] until they are empty after each other
//! call, and [`Initiator::handle_timeout`] when [`Initiator::poll_timeout`] says so.

mod config;
mod event;
mod login;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

pub use config::{Config, Times};
pub use event::{EndReason, Event, RequestId, SubmitError};

use self::login::Attempt;
use crate::chance::Chance;
use crate::counters::Counters;
use crate::frame::{Header, Opcode};
use crate::outgoing::Frame;
use crate::payload::Payload;
use crate::pdu::{CDB_BYTES_MAX, Command, DATA_BYTES_MAX, Function, Reply, Request};
use crate::reassembly::Delivered;
use crate::transport::{Message, Transport};

/// The acknowledgement of a DISCONNECT is waited for so long.
const CLOSING: Duration = Duration::from_secs(1);
/// Requests that are kept for task management.
const FUNCTIONS: u32 = 8;

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
enum Outstanding {
    Command { data_in_bytes: u32 },
    Function,
}

/// The session as it is now.
#[derive(Debug)]
struct Session {
    id: u32,
    queue_depth: u32,
    transport: Transport,
}

/// An initiator of one session with one target.
#[derive(Debug)]
pub struct Initiator {
    config: Config,
    chance: Chance,
    session: Option<Session>,
    login: Option<Attempt>,
    /// Requests to log in so far: each goes by the next path, over all attempts.
    login_frames: u32,
    /// Of the session, for the target; drawn for each.
    instance: u64,
    /// Sessions so far, for [`RequestId`].
    sessions: u32,
    requests: BTreeMap<u64, Outstanding>,
    next_number: u64,
    events: VecDeque<Event>,
    /// Messages of the frame that is being handled; empty between frames.
    arrived: Vec<Delivered>,
    closing: Option<Instant>,
    ended: bool,
    /// Counters of earlier epochs.
    counters: Counters,
}

impl Initiator {
    /// Begins to log in. The seed is random and used for nothing else: nonces and keys come from it.
    pub fn new(now: Instant, config: Config, seed: [u8; 32]) -> Initiator {
        let mut chance = Chance::new(seed);
        let instance = chance.u64();
        let mut machine = Initiator {
            config: config.checked(),
            chance,
            session: None,
            login: None,
            login_frames: 0,
            instance,
            sessions: 0,
            requests: BTreeMap::new(),
            next_number: 0,
            events: VecDeque::new(),
            arrived: Vec::new(),
            closing: None,
            ended: false,
            counters: Counters::default(),
        };
        machine.log_in(now, false);
        machine
    }

    /// Requests that may be submitted now.
    pub fn room(&self) -> usize {
        let Some(session) = self.session.as_ref().filter(|_| self.closing.is_none()) else { return 0 };
        let functions = FUNCTIONS.min(session.queue_depth / 2);
        ((session.queue_depth - functions) as usize).saturating_sub(self.requests.len())
    }

    /// The number of the session in its frames, while there is one.
    pub fn session(&self) -> Option<u32> {
        self.session.as_ref().map(|session| session.id)
    }

    /// Number of requests without an answer.
    pub fn outstanding(&self) -> usize {
        self.requests.len()
    }

    /// Sends a command.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn submit(&mut self, command: Command) -> Result<RequestId, SubmitError> {
        let is_right = (1..=CDB_BYTES_MAX).contains(&command.cdb.len())
            && command.data_out.len() <= DATA_BYTES_MAX
            && command.data_in_bytes as usize <= DATA_BYTES_MAX;
        if !is_right {
            return Err(SubmitError::TooLong);
        }
        if self.session.is_some() && self.room() == 0 {
            return Err(SubmitError::Full);
        }
        let outstanding = Outstanding::Command { data_in_bytes: command.data_in_bytes };
        self.request(outstanding, |number| Request::Command { number, command })
    }

    /// Sends a task management function, with the task of ABORT TASK and QUERY TASK. A command that it ends is
    /// answered with TASK ABORTED.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn manage(
        &mut self,
        function: Function,
        lun: [u8; 8],
        task: Option<RequestId>,
    ) -> Result<RequestId, SubmitError> {
        let depth = self.session.as_ref().map_or(0, |session| session.queue_depth as usize);
        if self.session.is_some() && self.requests.len() >= depth {
            return Err(SubmitError::Full);
        }
        // One of another session is none of this one, where numbers begin at 0 again.
        let task = task.filter(|task| task.session == self.sessions);
        let referenced = task.map_or(u64::MAX, |task| task.number);
        self.request(Outstanding::Function, |number| Request::TaskManagement {
            number,
            function,
            lun,
            referenced,
        })
    }

    fn request(
        &mut self,
        outstanding: Outstanding,
        request: impl FnOnce(u64) -> Request,
    ) -> Result<RequestId, SubmitError> {
        let session = self.session.as_mut().filter(|_| self.closing.is_none());
        let session = session.ok_or(SubmitError::NoSession)?;
        let number = self.next_number;
        self.next_number += 1;
        self.requests.insert(number, outstanding);
        session.transport.send(request(number).message());
        Ok(RequestId { session: self.sessions, number })
    }

    /// Ends the session. Outstanding requests are lost.
    pub fn disconnect(&mut self, now: Instant) {
        match &mut self.session {
            Some(session) if self.closing.is_none() => {
                session.transport.send(disconnect());
                self.closing = Some(now + CLOSING);
                self.login = None;
                self.lose_requests();
            }
            Some(_) => {}
            None => self.end(EndReason::Disconnected),
        }
    }

    /// A frame has arrived: from its header on, with any padding. It is decrypted in place.
    pub fn handle_frame(&mut self, now: Instant, frame: &mut [u8]) {
        let Ok(header) = Header::parse(frame) else { return };
        if self.ended {
            return;
        }
        if header.opcode.is_outside_sessions() {
            if header.opcode == Opcode::LoginReply {
                self.handle_login_reply(now, &header, frame);
            }
            return;
        }
        let Some(session) = &mut self.session else { return };
        if session.id != header.session || session.transport.epoch() != header.epoch {
            return;
        }
        let mut arrived = std::mem::take(&mut self.arrived);
        session.transport.handle_frame(now, &header, frame, &mut arrived);
        arrived.iter().for_each(|delivered| session.transport.release(delivered.charge));
        for delivered in arrived.drain(..) {
            if !self.ended {
                self.handle_message(delivered);
            }
        }
        self.arrived = arrived;
        self.after(now);
    }

    fn handle_message(&mut self, delivered: Delivered) {
        if delivered.opcode == Opcode::Disconnect {
            let is_ours = self.closing.is_some();
            return self.end(if is_ours { EndReason::Disconnected } else { EndReason::ByTarget });
        }
        let reply = if delivered.opcode == Opcode::Reply { Reply::parse(delivered.bytes) } else { None };
        let Some(reply) = reply else { return self.end(EndReason::TargetMisbehaved) };
        let number = match &reply {
            Reply::Response { number, .. } | Reply::Done { number, .. } => *number,
        };
        let id = RequestId { session: self.sessions, number };
        match (self.requests.remove(&number), reply) {
            // It was answered in an earlier epoch, whose acknowledgement was lost.
            (None, _) if number < self.next_number => self.counters.messages_repeated += 1,
            // An answer to a request that was never sent: the target took somebody else's frames for ours.
            (None, _) => self.end(EndReason::TargetMisbehaved),
            (Some(Outstanding::Command { data_in_bytes }), Reply::Response { response, .. })
                if response.data.len() <= data_in_bytes as usize =>
            {
                self.events.push_back(Event::Completed { id, response });
            }
            (Some(Outstanding::Function), Reply::Done { result, .. }) => {
                self.events.push_back(Event::FunctionDone { id, result });
            }
            (Some(_), _) => {
                self.events.push_back(Event::Lost { id });
                self.end(EndReason::TargetMisbehaved);
            }
        }
    }

    /// A deadline of [`Initiator::poll_timeout`] has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.ended {
            return;
        }
        let give_up = self.config.times.give_up;
        if let Some(login) = self.login.as_mut().filter(|login| login.began + give_up <= now) {
            let suspect = self.session.as_ref().map(|session| suspect_at(&self.config, session));
            if suspect.is_none_or(|at| at.is_some_and(|at| at <= now)) {
                return self.end(EndReason::Unreachable);
            }
            // New keys are not to be had, but the session works.
            login.began = now;
        }
        if self.closing.is_some_and(|at| at <= now) {
            return self.end(EndReason::Disconnected);
        }
        if let Some(session) = &mut self.session {
            session.transport.handle_timeout(now);
            if session.transport.last_asked() + self.config.times.keepalive <= now {
                session.transport.probe_all(now);
            }
        }
        self.after(now);
    }

    /// What follows from the state of the transport.
    fn after(&mut self, now: Instant) {
        let Some(session) = self.session.as_ref().filter(|_| !self.ended) else { return };
        let is_suspect = suspect_at(&self.config, session).is_some_and(|at| at <= now);
        let is_old = session.transport.age() >= self.config.times.rekey_frames;
        if self.closing.is_some() {
            if session.transport.unacknowledged() == 0 {
                self.end(EndReason::Disconnected);
            }
        } else if self.login.is_none() {
            if is_suspect || is_old {
                self.log_in(now, true);
            }
        } else if !is_suspect && !is_old {
            // The session was only slow.
            self.login = None;
        }
    }

    /// When [`Initiator::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.ended {
            return None;
        }
        let times = &self.config.times;
        let login = self.login.as_ref().map(|login| login.next_at.min(login.began + times.give_up));
        // A session that is closing is not saved.
        let is_open = self.closing.is_none();
        let session = self.session.as_ref().and_then(|session| {
            let keepalive = session.transport.last_asked() + times.keepalive;
            let suspect = suspect_at(&self.config, session).filter(|_| is_open && self.login.is_none());
            [Some(keepalive), suspect, session.transport.deadline()].into_iter().flatten().min()
        });
        [login, session, self.closing].into_iter().flatten().min()
    }

    /// The next frame, written into `frame`, and its path.
    pub fn poll_transmit(&mut self, now: Instant, frame: &mut Vec<u8>) -> Option<u8> {
        let mut pieces = Frame::over(std::mem::take(frame));
        let path = self.poll_frame(now, &mut pieces);
        *frame = pieces.into_bytes();
        path
    }

    /// The same with data where they are.
    pub fn poll_frame(&mut self, now: Instant, frame: &mut Frame) -> Option<u8> {
        frame.clear();
        if self.ended {
            return None;
        }
        if let Some(path) = self.poll_login(now, frame) {
            return Some(path);
        }
        self.session.as_mut()?.transport.poll_transmit(now, frame)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The counters of all epochs.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters;
        if let Some(session) = &self.session {
            counters += session.transport.counters;
        }
        counters
    }

    /// The state of each path: whether it carries fragments, its round trip, and its window in frames.
    pub fn paths(&self) -> Vec<(bool, Option<Duration>, u32)> {
        self.session.as_ref().map_or(Vec::new(), |session| session.transport.paths().collect())
    }

    /// Bytes of memory that partial messages take.
    pub fn held_bytes(&self) -> usize {
        self.session.as_ref().map_or(0, |session| session.transport.held_bytes())
    }

    /// Messages that are not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.session.as_ref().map_or(0, |session| session.transport.unacknowledged())
    }

    fn lose_requests(&mut self) {
        let session = self.sessions;
        let lost = std::mem::take(&mut self.requests).into_keys();
        self.events.extend(lost.map(|number| Event::Lost { id: RequestId { session, number } }));
    }

    fn drop_session(&mut self) {
        if let Some(session) = self.session.take() {
            self.counters += session.transport.counters;
        }
        self.lose_requests();
    }

    fn end(&mut self, reason: EndReason) {
        if !self.ended {
            self.ended = true;
            self.drop_session();
            self.login = None;
            self.events.push_back(Event::Ended(reason));
        }
    }
}

fn suspect_at(config: &Config, session: &Session) -> Option<Instant> {
    session.transport.stalled().map(|since| since + config.times.suspect)
}

/// The message that ends a session.
pub(crate) fn disconnect() -> Message {
    Message {
        opcode: Opcode::Disconnect,
        control: true,
        head: vec![0],
        data: Payload::default(),
        receipt: None,
    }
}
