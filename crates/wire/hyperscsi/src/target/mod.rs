//! A target with its sessions, as a machine without I/O: frames and responses in, frames and commands out.
//!
//! ```text
//!  LoginRequest ──► HalfOpen ── first genuine frame of its epoch ──► Session ── HalfOpen of the same session ──► next epoch
//!  (login)             │                                              │  (what is unacknowledged goes over to it)
//!                      └── overtaken, or too many: forgotten          └── DISCONNECT, silence, replaced: SessionEnded
//! ```
//!
//! A login changes nothing before the initiator has shown that it received the answer, so neither a repeated nor a
//! forged request ends a session. A session that has ended is followed by another one of the same nexus only when the
//! driver says that its commands cannot reach the medium any more ([`Target::quiesced`]).
//!
//! The driver calls [`Target::poll_transmit`] and [`Target::poll_event`] until they are empty after each other call, and
//! [`Target::handle_timeout`] when [`Target::poll_timeout`] says so. `A` is an address of the network. A server with several cores
//! has a machine on each ([`Share`]).

mod config;
mod event;
mod login;
mod login_budget;
mod session;
mod share;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

pub use config::{Admission, Config, Directory};
pub use event::{Event, SessionEnd, SessionId, TaskId};
pub use share::Share;

use self::login::HalfOpen;
use self::login_budget::LoginBudget;
use self::session::{Misbehaved, Nexus, Session};
use crate::chance::Chance;
use crate::counters::Counters;
use crate::discovery;
use crate::frame::{Header, Opcode};
use crate::outgoing::Frame;
use crate::pdu::{FunctionResult, Response};
use crate::reassembly::Delivered;

/// A session that has ended acknowledges for so long what its initiator sends again.
const CLOSING: Duration = Duration::from_secs(5);
/// Frames outside sessions that wait to be sent. More are dropped: their receivers ask again.
const OUTSIDE_MAX: usize = 64;

/// How a session is.
#[derive(Clone, Debug)]
pub struct SessionState<A> {
    /// Bytes of a frame, from its header to its trailer.
    pub frame_bytes: usize,
    /// What it has counted, over all its epochs.
    pub counters: Counters,
    /// Its paths.
    pub paths: Vec<PathState<A>>,
}

/// How a path of a session is.
#[derive(Clone, Debug)]
pub struct PathState<A> {
    /// Where its last genuine frame came from, if any has.
    pub address: Option<A>,
    /// Whether it carries fragments.
    pub is_up: bool,
    /// Its round trip, once it is measured.
    pub round_trip: Option<Duration>,
    /// Its window.
    pub window_frames: u32,
}

/// A target, or several at one place.
#[derive(Debug)]
pub struct Target<A, D> {
    config: Config,
    directory: D,
    chance: Chance,
    sessions: BTreeMap<u32, Session<A>>,
    half_open: VecDeque<HalfOpen<A>>,
    login_budget: LoginBudget,
    /// Sessions that have ended, whose commands may still reach the medium.
    quiescing: BTreeMap<SessionId, Nexus>,
    outside: VecDeque<(A, Vec<u8>)>,
    /// Sessions that may have something to send.
    ready: BTreeSet<u32>,
    served: u32,
    events: VecDeque<Event>,
    /// Messages of the frame that is being handled; empty between frames.
    arrived: Vec<Delivered>,
    /// Counters of sessions that are gone.
    counters: Counters,
}

impl<A: Clone + PartialEq, D: Directory<A>> Target<A, D> {
    /// A target without sessions. The seed is random and used for nothing else.
    pub fn new(config: Config, directory: D, seed: [u8; 32]) -> Target<A, D> {
        Target {
            config: config.checked(),
            directory,
            chance: Chance::new(seed),
            sessions: BTreeMap::new(),
            half_open: VecDeque::new(),
            login_budget: LoginBudget::NEW,
            quiescing: BTreeMap::new(),
            outside: VecDeque::new(),
            ready: BTreeSet::new(),
            served: 0,
            events: VecDeque::new(),
            arrived: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Who may log in, to change it: for logins from now on.
    pub fn directory_mut(&mut self) -> &mut D {
        &mut self.directory
    }

    /// A frame has arrived: from its header on, with any padding. It is decrypted in place.
    pub fn handle_frame(&mut self, now: Instant, from: &A, frame: &mut [u8]) {
        let Ok(header) = Header::parse(frame) else { return };
        match header.opcode {
            Opcode::LoginRequest => self.handle_login(now, from, &header, frame),
            Opcode::Discovery => self.handle_discovery(from, &header, frame),
            Opcode::LoginReply => {}
            _ => self.handle_session_frame(now, from, &header, frame),
        }
    }

    fn handle_discovery(&mut self, from: &A, header: &Header, frame: &mut [u8]) {
        let room = frame.len();
        let nonce = crate::login::body(header, frame).and_then(discovery::asked);
        let Some(nonce) = nonce else { return };
        let targets = self.directory.targets(from);
        if !targets.is_empty() {
            self.send_outside(from, discovery::answer(nonce, &targets, room));
        }
    }

    fn send_outside(&mut self, to: &A, frame: Vec<u8>) {
        if self.outside.len() < OUTSIDE_MAX {
            self.outside.push_back((to.clone(), frame));
        }
    }

    fn handle_session_frame(&mut self, now: Instant, from: &A, header: &Header, frame: &mut [u8]) {
        let session = self.sessions.get_mut(&header.session);
        let Some(session) = session.filter(|session| session.transport.epoch() == header.epoch) else {
            return self.handle_first_frame(now, from, header, frame);
        };
        if !session.transport.handle_frame(now, header, frame, &mut self.arrived) {
            return;
        }
        session.note_receipts(&mut self.events);
        self.ready.insert(header.session);
        let address = &mut session.addresses[usize::from(header.path)];
        if address.as_ref() != Some(from) {
            *address = Some(from.clone());
        }
        if session.closing.is_some() {
            return self.arrived.clear();
        }
        let messages = self.arrived.drain(..);
        let mut delivered = messages.map(|message| deliver(session, message, &mut self.events));
        let ended = delivered.find(Result::is_err);
        drop(delivered); // with what is behind the one that broke a rule
        match ended {
            Some(Err(reason)) => self.end(now, header.session, reason),
            // What was acknowledged may have made room for commands that wait.
            _ => session.begin(&mut self.events),
        }
    }

    /// Ends a session, which stays for a while to acknowledge.
    fn end(&mut self, now: Instant, id: u32, reason: SessionEnd) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.closing.is_none()) else {
            return;
        };
        if matches!(reason, SessionEnd::Silent | SessionEnd::Misbehaved) {
            // It may still be there: without a word, what it sends until then would be acknowledged and never executed.
            session.transport.send(crate::initiator::disconnect());
            self.ready.insert(id);
        }
        self.quiescing.insert(session.id, session.nexus.clone());
        session.close(now + CLOSING, reason, &mut self.events);
    }

    fn remove(&mut self, id: u32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.counters += session.counters;
            self.counters += session.transport.counters;
        }
        self.ready.remove(&id);
    }

    /// No command of a session that has ended can reach the medium any more.
    pub fn quiesced(&mut self, session: SessionId) {
        self.quiescing.remove(&session);
        for session in self.sessions.values_mut().filter(|session| session.on_hold) {
            session.on_hold = self.quiescing.values().any(|nexus| *nexus == session.nexus);
            session.begin(&mut self.events);
        }
    }

    /// A command has ended. Data and sense beyond what the initiator has room for are cut off. False if there is no such
    /// command: its session has ended.
    pub fn respond(&mut self, task: TaskId, response: Response) -> bool {
        let Some(session) = self.sessions.get_mut(&task.session.0) else { return false };
        self.ready.insert(task.session.0);
        session.respond(task.number, response, &mut self.events)
    }

    /// The same, and [`Event::Received`] follows when the initiator has the response, unless the session ends before.
    pub fn respond_with_receipt(&mut self, task: TaskId, response: Response) -> bool {
        let Some(session) = self.sessions.get_mut(&task.session.0) else { return false };
        self.ready.insert(task.session.0);
        session.wants_receipt = true;
        let is_there = session.respond(task.number, response, &mut self.events);
        session.wants_receipt = false;
        is_there
    }

    /// A function has ended, and none of the commands that it ended can reach the medium any more. False if there is no
    /// such function.
    pub fn function_done(&mut self, task: TaskId, result: FunctionResult) -> bool {
        let Some(session) = self.sessions.get_mut(&task.session.0) else { return false };
        self.ready.insert(task.session.0);
        session.function_done(task.number, result)
    }

    /// Closes a session.
    pub fn disconnect(&mut self, now: Instant, session: SessionId) {
        if let Some(open) = self.sessions.get_mut(&session.0).filter(|session| session.closing.is_none()) {
            open.transport.send(crate::initiator::disconnect());
            self.ready.insert(session.0);
            self.end(now, session.0, SessionEnd::Closed);
        }
    }

    /// A deadline of [`Target::poll_timeout`] has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.half_open.retain(|half_open| half_open.expires > now);
        let mut silent = Vec::new();
        let mut gone = Vec::new();
        for (&id, session) in &mut self.sessions {
            session.transport.handle_timeout(now);
            self.ready.insert(id);
            match session.closing {
                Some(until) if until <= now => gone.push(id),
                None if session.alive_at() + self.config.session_timeout <= now => silent.push(id),
                _ => {}
            }
        }
        silent.into_iter().for_each(|id| self.end(now, id, SessionEnd::Silent));
        gone.into_iter().for_each(|id| self.remove(id));
    }

    /// When [`Target::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let sessions = self.sessions.values().flat_map(|session| {
            let silent = session.alive_at() + self.config.session_timeout;
            [Some(session.closing.unwrap_or(silent)), session.transport.deadline()]
        });
        let half_open = self.half_open.front().map(|half_open| half_open.expires);
        sessions.flatten().chain(half_open).min()
    }

    /// The next frame, written into `frame`, and where to send it.
    pub fn poll_transmit(&mut self, now: Instant, frame: &mut Vec<u8>) -> Option<A> {
        let mut pieces = Frame::over(std::mem::take(frame));
        let to = self.poll_frame(now, &mut pieces);
        *frame = pieces.into_bytes();
        to
    }

    /// The same with data where they are.
    pub fn poll_frame(&mut self, now: Instant, frame: &mut Frame) -> Option<A> {
        frame.clear();
        if let Some((to, outside)) = self.outside.pop_front() {
            frame.bytes = outside;
            return Some(to);
        }
        // One frame each in turn.
        while let Some(id) = self.ready.range(self.served + 1..).next().or(self.ready.first()).copied() {
            self.served = id;
            let session = self.sessions.get_mut(&id);
            if let Some(session) = session {
                while let Some(path) = session.transport.poll_transmit(now, frame) {
                    if let Some(to) = session.addresses[usize::from(path)].clone() {
                        return Some(to);
                    }
                    frame.clear();
                }
            }
            self.ready.remove(&id);
        }
        None
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Number of sessions, with those that are closing.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The counters of all sessions.
    pub fn counters(&self) -> Counters {
        self.sessions.values().fold(self.counters, |mut sum, session| {
            sum += session.counters;
            sum += session.transport.counters;
            sum
        })
    }

    /// How a session is.
    pub fn session(&self, id: SessionId) -> Option<SessionState<A>> {
        let session = self.sessions.get(&id.0)?;
        let mut counters = session.counters;
        counters += session.transport.counters;
        let paths = session.transport.paths().zip(&session.addresses);
        let path = |((is_up, round_trip, window_frames), address): (_, &Option<A>)| PathState {
            address: address.clone(),
            is_up,
            round_trip,
            window_frames,
        };
        Some(SessionState {
            frame_bytes: session.transport.frame_bytes(),
            counters,
            paths: paths.map(path).collect(),
        })
    }

    /// Bytes of partial messages, of commands, and of replies that are not acknowledged.
    pub fn memory_bytes(&self) -> usize {
        let of_session = |session: &Session<A>| {
            let transport = &session.transport;
            transport.held_bytes() + transport.unacknowledged_bytes() + session.charged() as usize
        };
        self.sessions.values().map(of_session).sum()
    }

    /// Requests without a reply, messages without an acknowledgement, and bytes of partial messages and of commands.
    pub fn holds(&self) -> (usize, usize, usize) {
        self.sessions.values().fold((0, 0, 0), |(live, unacknowledged, bytes), session| {
            let held = session.transport.held_bytes() + session.charged() as usize;
            (live + session.live(), unacknowledged + session.transport.unacknowledged(), bytes + held)
        })
    }
}

/// A message of an initiator.
fn deliver<A>(
    session: &mut Session<A>,
    delivered: Delivered,
    events: &mut VecDeque<Event>,
) -> Result<(), SessionEnd> {
    match delivered.opcode {
        Opcode::Request => session
            .handle_request(delivered.bytes, delivered.charge, events)
            .map_err(|Misbehaved| SessionEnd::Misbehaved),
        Opcode::Disconnect => Err(SessionEnd::Disconnected),
        _ => Err(SessionEnd::Misbehaved),
    }
}
