//! A target with its sessions, as a machine without I/O: frames and responses in, frames and commands out.
//!
//! ```text
//!  LoginRequest ──► HalfOpen ── first genuine frame of its epoch ──► Session ── HalfOpen of the same session ──► next epoch
//!                      │                                              │  (what is unacknowledged goes over to it)
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

mod interface;
mod session;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

pub use interface::{Admission, Config, Directory, Event, SessionEnd, SessionId, Share, TaskId};

use self::session::{Misbehaved, Nexus, Session};
use crate::discovery;
use crate::frame::{Frame, Header, Opcode, Protection};
use crate::login::{self, Answer, Handshake, LoginReply, LoginRequest, Outcome, Refusal, SeededRandom};
use crate::pdu::{FunctionResult, MESSAGE_BYTES_MAX, Response};
use crate::reassembly::Delivered;
use crate::transport::{Agreed, Counters, Transport};

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
    random: SeededRandom,
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
            random: SeededRandom::new(seed),
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
        let nonce = login::body(header, frame).and_then(discovery::asked);
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

/// Half-open epochs at once, and how long each is kept.
const HALF_OPEN_MAX: usize = 64;
const HALF_OPEN_TIME: Duration = Duration::from_secs(30);
/// Of so many sessions, or of any two, one is for initiators with a key alone: anybody may open the others, and hold them for ever.
const KEYED_SHARE: usize = 8;

/// A login that was answered, and whose initiator has not been heard in the new epoch.
#[derive(Debug)]
struct HalfOpen<A> {
    expires: Instant,
    session: u32,
    nexus: Nexus,
    instance: u64,
    /// The bytes of commands that its credit knows of, if the session goes on.
    resumes: Option<u64>,
    transport: Transport,
    /// What was asked and answered: the same is answered to the same request.
    request: Vec<u8>,
    reply: Vec<u8>,
    from: A,
}

impl<A: Clone + PartialEq, D: Directory<A>> Target<A, D> {
    fn handle_login(&mut self, now: Instant, from: &A, header: &Header, bytes: &mut [u8]) {
        let received = bytes.len();
        let Some(body) = login::body(header, bytes) else { return };
        if let Some(same) = self.half_open.iter().find(|half_open| half_open.request == body) {
            let reply = same.reply.clone();
            // Padding is no part of what is compared, and nobody is answered with more than came.
            if received >= reply.len() {
                self.send_outside(from, reply);
            }
            return;
        }
        let Some((request, clear)) = LoginRequest::parse(body) else { return };
        // A request that is shorter than the frames that it asks for proves nothing of the network, and would be
        // answered with more than it was.
        if received < usize::from(request.frame_bytes) {
            return;
        }
        let body = body.to_vec();
        let answered = self.answer(now, from, header.path, &request, clear, body);
        let content = match answered {
            Ok(Some(content)) => Ok(content),
            Ok(None) => return,
            Err(refusal) => {
                let (initiator, target) = (request.initiator.clone(), request.target.clone());
                self.events.push_back(Event::LoginRefused { initiator, target, refusal });
                Err(refusal)
            }
        };
        let padded = usize::from(request.frame_bytes.min(self.config.frame_bytes));
        let reply = LoginReply { nonce: request.nonce, content };
        let reply = login::frame(Opcode::LoginReply, header.path, &reply.body(), padded);
        if let Some(half_open) = self.half_open.back_mut().filter(|half_open| half_open.reply.is_empty()) {
            half_open.reply.clone_from(&reply);
        }
        self.send_outside(from, reply);
    }

    /// The content of the reply; `None` to say nothing.
    fn answer(
        &mut self,
        now: Instant,
        from: &A,
        path: u8,
        request: &LoginRequest,
        clear: &[u8],
        body: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let admission = self.directory.admit(&request.initiator, &request.target, from)?;
        let mut handshake = match (admission, request.cipher) {
            (Admission::Open, None) => None,
            (Admission::Key(psk), Some(_)) if !request.is_proven(&psk, &body) => {
                return Err(Refusal::Authentication);
            }
            (Admission::Key(psk), Some(cipher)) => {
                let mut handshake = Handshake::new(&psk, cipher, clear, self.random.bytes(), false);
                let payload = handshake.read(&request.noise).ok_or(Refusal::Authentication)?;
                if !payload.is_empty() {
                    return Err(Refusal::Malformed);
                }
                Some(handshake)
            }
            (Admission::Open, Some(_)) | (Admission::Key(_), None) => return Err(Refusal::Authentication),
        };
        let nexus = Nexus {
            initiator: request.initiator.clone(),
            port: request.port,
            target: request.target.clone(),
        };
        // One that this one replaces makes room for it.
        let replaces = self.sessions.values().any(|session| session.nexus == nexus);
        let is_full = self.is_full(handshake.is_some()) && !replaces;
        let open = self.sessions.values_mut().filter(|session| session.closing.is_none());
        let mut before = open.filter(|session| session.nexus == nexus);
        let before = before.find(|session| session.instance == request.instance);
        let (outcome, session, epoch, charged) = match before {
            Some(session) if request.resume => {
                session.epochs = session.epochs.wrapping_add(1);
                (Outcome::Resumed, session.id.0, session.epochs, session.charged())
            }
            // A repeated request of a session that has begun.
            Some(_) => return Ok(None),
            None if request.resume => (Outcome::Unknown, 0, 0, 0),
            None if is_full => return Err(Refusal::Full),
            None => (Outcome::New, self.new_session_id(), 1, 0),
        };
        let frame_bytes = request.frame_bytes.min(self.config.frame_bytes);
        let credit = u64::from(self.config.credit).saturating_sub(charged) as u32;
        let paths = request.paths.min(self.config.paths);
        let queue_depth = self.config.queue_depth;
        let bundles = request.bundles;
        let answer = Answer { outcome, frame_bytes, credit, queue_depth, session, epoch, paths, bundles };
        let content = match &mut handshake {
            None => answer.bytes(),
            Some(handshake) => handshake.write(&answer.bytes()),
        };
        if outcome == Outcome::Unknown {
            return Ok(Some(content));
        }
        let agreed = Agreed {
            session,
            epoch,
            protection: handshake.map_or(Protection::Crc, Handshake::protection),
            frame_bytes: usize::from(frame_bytes),
            paths: usize::from(paths),
            our_credit: u64::from(credit),
            their_credit: u64::from(request.credit),
            message_bytes_max: MESSAGE_BYTES_MAX,
            bundles,
        };
        let mut transport = Transport::new(now, agreed);
        transport.prove(usize::from(path));
        self.make_room(transport.is_encrypted());
        self.half_open.push_back(HalfOpen {
            expires: now + HALF_OPEN_TIME,
            session,
            nexus,
            instance: request.instance,
            resumes: (outcome == Outcome::Resumed).then_some(charged),
            transport,
            request: body,
            reply: Vec::new(),
            from: from.clone(),
        });
        debug_assert!(self.half_open.len() <= HALF_OPEN_MAX, "half-open epochs are bounded");
        Ok(Some(content))
    }

    /// Whether there is no place for a session more, with a key or without one.
    fn is_full(&self, has_key: bool) -> bool {
        let most = self.config.sessions_max;
        let open = self.sessions.values().filter(|session| !session.transport.is_encrypted());
        self.sessions.len() >= most
            || !has_key && open.count() >= most - (most / KEYED_SHARE).max(usize::from(most > 1))
    }

    /// Forgets a half-open epoch if there is no place for another one: the oldest of those with keys or of those without, of whichever
    /// there are more, so that neither displaces all of the other.
    fn make_room(&mut self, has_key: bool) {
        if self.half_open.len() < HALF_OPEN_MAX {
            return;
        }
        let keyed = self.half_open.iter().filter(|half_open| half_open.transport.is_encrypted()).count();
        let forgets_keyed = keyed + usize::from(has_key) > HALF_OPEN_MAX / 2;
        let is_meant = |half_open: &HalfOpen<A>| half_open.transport.is_encrypted() == forgets_keyed;
        if let Some(index) = self.half_open.iter().position(is_meant) {
            self.half_open.remove(index);
        }
    }

    fn new_session_id(&mut self) -> u32 {
        loop {
            let id = self.random.u64() as u32;
            if !self.config.share.has(id) {
                continue;
            }
            let is_used = self.sessions.contains_key(&id)
                || self.quiescing.contains_key(&SessionId(id))
                || self.half_open.iter().any(|half_open| half_open.session == id);
            if id != 0 && !is_used {
                return id;
            }
        }
    }

    /// A frame of no epoch that is in use: if it is genuine, it is the first of a half-open one.
    fn handle_first_frame(&mut self, now: Instant, from: &A, header: &Header, bytes: &mut [u8]) {
        let is_of = |half_open: &HalfOpen<A>| {
            half_open.session == header.session && half_open.transport.epoch() == header.epoch
        };
        let Some(index) = self.half_open.iter().position(is_of) else { return };
        let mut arrived = Vec::new();
        if !self.half_open[index].transport.handle_frame(now, header, bytes, &mut arrived) {
            return;
        }
        let Some(half_open) = self.half_open.remove(index) else { return };
        // Logins that came before are overtaken: their frames must not bring an older epoch back.
        let mut position = 0;
        self.half_open.retain(|other| {
            position += 1;
            position > index || other.nexus != half_open.nexus
        });
        let path = usize::from(header.path);
        let id = half_open.session;
        self.activate(now, half_open);
        self.ready.insert(id);
        let session = self.sessions.get_mut(&id).filter(|session| session.closing.is_none());
        let Some(session) = session else { return };
        session.addresses[path] = Some(from.clone());
        let mut delivered = arrived.into_iter().map(|message| deliver(session, message, &mut self.events));
        if let Some(Err(reason)) = delivered.find(Result::is_err) {
            self.end(now, id, reason);
        }
    }

    fn activate(&mut self, now: Instant, half_open: HalfOpen<A>) {
        let id = half_open.session;
        let charged_then = match half_open.resumes {
            None => return self.begin_session(now, half_open),
            Some(charged) => charged,
        };
        let granted = u64::from(self.config.credit).saturating_sub(charged_then);
        let most = 2 * u64::from(self.config.credit);
        // A session that ended in between is not brought back. Nor does one go on by a login of so long ago that what it granted
        // comes on top of what other logins granted since: its initiator logs in anew.
        let is_fit =
            |session: &&mut Session<A>| session.closing.is_none() && session.charged() + granted <= most;
        if let Some(session) = self.sessions.get_mut(&id).filter(is_fit) {
            session.begin_epoch(half_open.transport, charged_then);
            session.begin(&mut self.events);
        }
    }

    fn begin_session(&mut self, now: Instant, half_open: HalfOpen<A>) {
        let HalfOpen { session, nexus, instance, transport, from, .. } = half_open;
        let of_nexus = self.sessions.iter().filter(|(_, other)| other.nexus == nexus);
        for id in of_nexus.map(|(id, _)| *id).collect::<Vec<u32>>() {
            // Nothing, for one that has ended and is closing.
            self.end(now, id, SessionEnd::Replaced);
            self.remove(id);
        }
        if self.is_full(transport.is_encrypted()) {
            return; // others were quicker; the next login is refused
        }
        let id = SessionId(session);
        self.events.push_back(Event::SessionBegan {
            session: id,
            initiator: nexus.initiator.clone(),
            port: nexus.port,
            target: nexus.target.clone(),
            is_encrypted: transport.is_encrypted(),
        });
        let mut begun = Session::new(&self.config, id, nexus, instance, transport);
        begun.on_hold = self.quiescing.values().any(|nexus| *nexus == begun.nexus);
        begun.addresses[0] = Some(from);
        self.sessions.insert(session, begun);
        debug_assert!(
            self.sessions.len() <= self.config.sessions_max,
            "more sessions than there is room for"
        );
    }
}

/// A login that is not answered is sent again after 250 ms, 500 ms and so on, of which this is no part: one that met the rush at the
/// beginning of a period does not meet it again.
const PERIOD: Duration = Duration::from_millis(200);
/// Requests of a period. One with a right key costs 0.1 to 0.25 ms of arithmetic, one to an open target or with a wrong key some µs.
const FIRST_COME: u32 = 200;
const PARTS: usize = 256;

/// A budget of requests.
#[derive(Debug)]
struct Budget {
    began: Option<Instant>,
    seed: u64,
    taken: u32,
    /// Those parts of which one has asked in this period.
    heard: [bool; PARTS],
}

/// How many requests to log in are looked at: a flood of them takes no more than a part of a core's time, and keeps nobody out who has a
/// key, or asks from elsewhere.
///
/// In each period a fixed number of requests is looked at, in the order in which they arrive. After that, requesters are divided into parts, and
/// the first request of each part is looked at. The parts are drawn anew in each period, so that nobody can choose one, and a requester that a
/// flood displaces in one period is not displaced in the next. A requester whose code shows that it knows its key is counted by its name, which
/// nobody else can use up. All others are counted by their origin, which hosts of an Ethernet can invent. The two groups have a budget each.
#[derive(Debug)]
struct LoginBudget {
    proven: Budget,
    others: Budget,
}

impl Budget {
    const NEW: Budget = Budget { began: None, seed: 0, taken: 0, heard: [false; PARTS] };

    fn admits(&mut self, now: Instant, random: &mut SeededRandom, requester: &[&[u8]]) -> bool {
        if self.began.is_none_or(|began| now.saturating_duration_since(began) >= PERIOD) {
            *self = Budget { began: Some(now), seed: random.u64(), ..Budget::NEW };
        }
        let mut hasher = DefaultHasher::new();
        (self.seed, requester).hash(&mut hasher);
        let part = hasher.finish() % PARTS as u64;
        let was_heard = std::mem::replace(&mut self.heard[part as usize], true);
        self.taken = self.taken.saturating_add(1);
        self.taken <= FIRST_COME || !was_heard
    }
}

impl LoginBudget {
    const NEW: LoginBudget = LoginBudget { proven: Budget::NEW, others: Budget::NEW };
}

impl<A: Clone + PartialEq, D: Directory<A>> Target<A, D> {
    /// Whether there is time for a frame that has arrived, which is to be asked before [`Target::handle_frame`] of this machine, or of
    /// another one at its place: only requests to log in are ever refused. What is damaged, or shorter than a login may be, takes
    /// nothing from others.
    pub fn has_time_for(&mut self, now: Instant, from: &A, header: &Header, frame: &mut [u8]) -> bool {
        if header.opcode != Opcode::LoginRequest {
            return true;
        }
        let received = frame.len();
        let Some(body) = login::body(header, frame) else { return false };
        let Some((request, _)) = LoginRequest::parse(body) else { return false };
        if received < usize::from(request.frame_bytes) {
            return false;
        }
        let (initiator, target) = (&request.initiator, &request.target);
        match self.directory.admit(initiator, target, from) {
            Ok(Admission::Key(psk)) if request.is_proven(&psk, body) => {
                let name = [initiator.as_bytes(), target.as_bytes()];
                self.login_budget.proven.admits(now, &mut self.random, &name)
            }
            _ => {
                let origin = self.directory.origin(from).to_be_bytes();
                self.login_budget.others.admits(now, &mut self.random, &[&origin])
            }
        }
    }
}
