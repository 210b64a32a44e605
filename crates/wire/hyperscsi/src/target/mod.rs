//! A target with its sessions, as a state machine without I/O: frames and responses in, frames and commands out.
//!
//! ```text
//!  LoginRequest ──► HalfOpen ── first genuine frame of its epoch ──► Session ── HalfOpen of the same session ──► next epoch
//!                      │                                              │  (unacknowledged messages move to it)
//!                      └── superseded, or too many: discarded         └── DISCONNECT, silence, replaced: SessionEnded
//! ```
//!
//! A login changes nothing before the initiator has shown that it received the answer, so neither a repeated nor a
//! forged request ends a session. After a session has ended, the next one of the same nexus starts only when
//! the driver reports that its commands can no longer reach the medium ([`Target::quiesced`]).
//!
//! After every other call, the driver calls [`Target::poll_transmit`] and [`Target::poll_event`] until they
//! return `None`. It calls [`Target::handle_timeout`] at the time from [`Target::poll_timeout`]. The type
//! parameter `A` is a network address. A server with several cores has a state machine on each ([`Share`]).

mod interface;
mod session;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

pub use interface::{Admission, Config, Directory, Event, SessionEnd, SessionId, Share, TaskId};

use self::session::{Misbehaved, Nexus, Session};
use crate::discovery;
use crate::frame::{Frame, Header, Opcode, Protection};
use crate::login::{
    self, Answer, Handshake, LoginReply, LoginRequest, Outcome, Refusal, SeededRandom,
};
use crate::pdu::{FunctionResult, MESSAGE_BYTES_MAX, Response};
use crate::reassembly::Delivered;
use crate::transport::{Agreed, Counters, Transport};

/// Time for which an ended session acknowledges its initiator's retransmissions.
const CLOSING: Duration = Duration::from_secs(5);
/// Maximum number of queued frames outside sessions. Further ones are dropped: their receivers retry.
const OUTSIDE_MAX: usize = 64;

/// The state of a session.
#[derive(Clone, Debug)]
pub struct SessionState<A> {
    /// Bytes of a frame, from its header to its trailer.
    pub frame_bytes: usize,
    /// Its counters, over all its epochs.
    pub counters: Counters,
    /// Its paths.
    pub paths: Vec<PathState<A>>,
}

/// The state of a path.
#[derive(Clone, Debug)]
pub struct PathState<A> {
    /// Source address of its last authentic frame, if any.
    pub address: Option<A>,
    /// Whether it carries fragments.
    pub is_up: bool,
    /// Its round-trip time, once it has been measured.
    pub round_trip: Option<Duration>,
    /// Its window, in frames.
    pub window_frames: u32,
}

/// One or more targets on one port.
#[derive(Debug)]
pub struct Target<A, D> {
    config: Config,
    directory: D,
    random: SeededRandom,
    sessions: BTreeMap<u32, Session<A>>,
    half_open: VecDeque<HalfOpen<A>>,
    login_budget: LoginBudget,
    /// Ended sessions whose commands may still reach the medium.
    quiescing: BTreeMap<SessionId, Nexus>,
    outside: VecDeque<(A, Vec<u8>)>,
    /// Sessions that may have something to send.
    ready: BTreeSet<u32>,
    served: u32,
    events: VecDeque<Event>,
    /// Messages of the frame being handled; empty between frames.
    arrived: Vec<Delivered>,
    /// Counters of former sessions.
    counters: Counters,
}

impl<A: Clone + PartialEq, D: Directory<A>> Target<A, D> {
    /// A target without sessions. The seed must be random and used only here.
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

    /// The access control, for changes that affect later logins.
    pub fn directory_mut(&mut self) -> &mut D {
        &mut self.directory
    }

    /// Handles a received frame, from its header on, with any padding. The frame is decrypted in place.
    pub fn handle_frame(&mut self, now: Instant, from: &A, frame: &mut [u8]) {
        let Ok(header) = Header::parse(frame) else {
            return;
        };
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
        let Some(session) = session.filter(|session| session.transport.epoch() == header.epoch)
        else {
            return self.handle_first_frame(now, from, header, frame);
        };
        if !session
            .transport
            .handle_frame(now, header, frame, &mut self.arrived)
        {
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
        drop(delivered); // including messages after the one that violated the protocol
        match ended {
            Some(Err(reason)) => self.end(now, header.session, reason),
            // The acknowledgement may have freed memory for waiting commands.
            _ => session.begin(&mut self.events),
        }
    }

    /// Ends a session, which remains for a while to send acknowledgements.
    fn end(&mut self, now: Instant, id: u32, reason: SessionEnd) {
        let Some(session) = self
            .sessions
            .get_mut(&id)
            .filter(|session| session.closing.is_none())
        else {
            return;
        };
        if matches!(reason, SessionEnd::Silent | SessionEnd::Misbehaved) {
            // The initiator may still exist: without a notification, its messages until then would be
            // acknowledged but never executed.
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

    /// Notes that no command of an ended session can reach the medium any more.
    pub fn quiesced(&mut self, session: SessionId) {
        self.quiescing.remove(&session);
        for session in self.sessions.values_mut().filter(|session| session.on_hold) {
            session.on_hold = self.quiescing.values().any(|nexus| *nexus == session.nexus);
            session.begin(&mut self.events);
        }
    }

    /// Completes a command. Data and sense data are truncated to the initiator's buffers. Returns false if
    /// there is no such command because its session has ended.
    pub fn respond(&mut self, task: TaskId, response: Response) -> bool {
        let Some(session) = self.sessions.get_mut(&task.session.0) else {
            return false;
        };
        self.ready.insert(task.session.0);
        session.respond(task.number, response, &mut self.events)
    }

    /// Like `respond`, but reports [`Event::Received`] once the initiator has the response, unless the
    /// session ends first.
    pub fn respond_with_receipt(&mut self, task: TaskId, response: Response) -> bool {
        let Some(session) = self.sessions.get_mut(&task.session.0) else {
            return false;
        };
        self.ready.insert(task.session.0);
        session.wants_receipt = true;
        let is_there = session.respond(task.number, response, &mut self.events);
        session.wants_receipt = false;
        is_there
    }

    /// Completes a function; none of the commands that it ended can reach the medium any more. Returns false
    /// if there is no such function.
    pub fn function_done(&mut self, task: TaskId, result: FunctionResult) -> bool {
        let Some(session) = self.sessions.get_mut(&task.session.0) else {
            return false;
        };
        self.ready.insert(task.session.0);
        session.function_done(task.number, result)
    }

    /// Closes a session.
    pub fn disconnect(&mut self, now: Instant, session: SessionId) {
        if let Some(open) = self
            .sessions
            .get_mut(&session.0)
            .filter(|session| session.closing.is_none())
        {
            open.transport.send(crate::initiator::disconnect());
            self.ready.insert(session.0);
            self.end(now, session.0, SessionEnd::Closed);
        }
    }

    /// Handles an expired deadline of [`Target::poll_timeout`].
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
        silent
            .into_iter()
            .for_each(|id| self.end(now, id, SessionEnd::Silent));
        gone.into_iter().for_each(|id| self.remove(id));
    }

    /// Time at which to call [`Target::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let sessions = self.sessions.values().flat_map(|session| {
            let silent = session.alive_at() + self.config.session_timeout;
            [
                Some(session.closing.unwrap_or(silent)),
                session.transport.deadline(),
            ]
        });
        let half_open = self.half_open.front().map(|half_open| half_open.expires);
        sessions.flatten().chain(half_open).min()
    }

    /// Writes the next frame into `frame`, and returns its destination.
    pub fn poll_transmit(&mut self, now: Instant, frame: &mut Vec<u8>) -> Option<A> {
        let mut pieces = Frame::over(std::mem::take(frame));
        let to = self.poll_frame(now, &mut pieces);
        *frame = pieces.into_bytes();
        to
    }

    /// The next frame, with its data in place.
    pub fn poll_frame(&mut self, now: Instant, frame: &mut Frame) -> Option<A> {
        frame.clear();
        if let Some((to, outside)) = self.outside.pop_front() {
            frame.bytes = outside;
            return Some(to);
        }
        // Round-robin, one frame per session.
        while let Some(id) = self
            .ready
            .range(self.served + 1..)
            .next()
            .or(self.ready.first())
            .copied()
        {
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

    /// Number of sessions, including closing ones.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The counters of all sessions.
    pub fn counters(&self) -> Counters {
        self.sessions
            .values()
            .fold(self.counters, |mut sum, session| {
                sum += session.counters;
                sum += session.transport.counters;
                sum
            })
    }

    /// The state of a session.
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

    /// Bytes of partial messages, commands and unacknowledged replies.
    pub fn memory_bytes(&self) -> usize {
        let of_session = |session: &Session<A>| {
            let transport = &session.transport;
            transport.held_bytes() + transport.unacknowledged_bytes() + session.charged() as usize
        };
        self.sessions.values().map(of_session).sum()
    }

    /// Number of outstanding requests and of unacknowledged messages, and bytes of partial messages and commands.
    pub fn holds(&self) -> (usize, usize, usize) {
        self.sessions
            .values()
            .fold((0, 0, 0), |(live, unacknowledged, bytes), session| {
                let held = session.transport.held_bytes() + session.charged() as usize;
                (
                    live + session.live(),
                    unacknowledged + session.transport.unacknowledged(),
                    bytes + held,
                )
            })
    }
}

/// Delivers a message of an initiator.
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

/// Maximum number of half-open epochs, and the lifetime of each.
const HALF_OPEN_MAX: usize = 64;
const HALF_OPEN_TIME: Duration = Duration::from_secs(30);
/// One of this many sessions is reserved for initiators with a key, and at least one if there may be two or
/// more. Anyone may open the other sessions and keep them forever.
const KEYED_SHARE: usize = 8;

/// An answered login whose initiator has not sent anything in the new epoch.
#[derive(Debug)]
struct HalfOpen<A> {
    expires: Instant,
    session: u32,
    nexus: Nexus,
    instance: u64,
    /// Bytes of commands included in its credit, if the session is resumed.
    resumes: Option<u64>,
    transport: Transport,
    /// The request and its reply: a repeated request gets the same reply.
    request: Vec<u8>,
    reply: Vec<u8>,
    from: A,
}

impl<A: Clone + PartialEq, D: Directory<A>> Target<A, D> {
    fn handle_login(&mut self, now: Instant, from: &A, header: &Header, bytes: &mut [u8]) {
        let received = bytes.len();
        let Some(body) = login::body(header, bytes) else {
            return;
        };
        if let Some(same) = self
            .half_open
            .iter()
            .find(|half_open| half_open.request == body)
        {
            let reply = same.reply.clone();
            // Padding is not compared, and a reply is never longer than the request received.
            if received >= reply.len() {
                self.send_outside(from, reply);
            }
            return;
        }
        let Some((request, clear)) = LoginRequest::parse(body) else {
            return;
        };
        // A request shorter than its proposed frame size proves nothing about the network, and its reply
        // would be longer than the request.
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
                self.events.push_back(Event::LoginRefused {
                    initiator,
                    target,
                    refusal,
                });
                Err(refusal)
            }
        };
        let padded = usize::from(request.frame_bytes.min(self.config.frame_bytes));
        let reply = LoginReply {
            nonce: request.nonce,
            content,
        };
        let reply = login::frame(Opcode::LoginReply, header.path, &reply.body(), padded);
        if let Some(half_open) = self
            .half_open
            .back_mut()
            .filter(|half_open| half_open.reply.is_empty())
        {
            half_open.reply.clone_from(&reply);
        }
        self.send_outside(from, reply);
    }

    /// The content of the reply; `None` to send no reply.
    fn answer(
        &mut self,
        now: Instant,
        from: &A,
        path: u8,
        request: &LoginRequest,
        clear: &[u8],
        body: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let admission = self
            .directory
            .admit(&request.initiator, &request.target, from)?;
        let mut handshake = match (admission, request.cipher) {
            (Admission::Open, None) => None,
            (Admission::Key(psk), Some(_)) if !request.is_proven(&psk, &body) => {
                return Err(Refusal::Authentication);
            }
            (Admission::Key(psk), Some(cipher)) => {
                let mut handshake = Handshake::new(&psk, cipher, clear, self.random.bytes(), false);
                let payload = handshake
                    .read(&request.noise)
                    .ok_or(Refusal::Authentication)?;
                if !payload.is_empty() {
                    return Err(Refusal::Malformed);
                }
                Some(handshake)
            }
            (Admission::Open, Some(_)) | (Admission::Key(_), None) => {
                return Err(Refusal::Authentication);
            }
        };
        let nexus = Nexus {
            initiator: request.initiator.clone(),
            port: request.port,
            target: request.target.clone(),
        };
        // A session that this one replaces frees its slot.
        let replaces = self.sessions.values().any(|session| session.nexus == nexus);
        let is_full = self.is_full(handshake.is_some()) && !replaces;
        let open = self
            .sessions
            .values_mut()
            .filter(|session| session.closing.is_none());
        let mut before = open.filter(|session| session.nexus == nexus);
        let before = before.find(|session| session.instance == request.instance);
        let (outcome, session, epoch, charged) = match before {
            Some(session) if request.resume => {
                session.epochs = session.epochs.wrapping_add(1);
                (
                    Outcome::Resumed,
                    session.id.0,
                    session.epochs,
                    session.charged(),
                )
            }
            // A repeated request of an established session.
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
        let answer = Answer {
            outcome,
            frame_bytes,
            credit,
            queue_depth,
            session,
            epoch,
            paths,
            bundles,
        };
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
        debug_assert!(
            self.half_open.len() <= HALF_OPEN_MAX,
            "half-open epochs are bounded"
        );
        Ok(Some(content))
    }

    /// Whether there is no free slot for another session, with or without a key.
    fn is_full(&self, has_key: bool) -> bool {
        let most = self.config.sessions_max;
        let open = self
            .sessions
            .values()
            .filter(|session| !session.transport.is_encrypted());
        self.sessions.len() >= most
            || !has_key && open.count() >= most - (most / KEYED_SHARE).max(usize::from(most > 1))
    }

    /// Drops a half-open epoch if there is no free slot: the oldest of those with keys or of those without,
    /// whichever group is larger, so that neither group displaces the other completely.
    fn make_room(&mut self, has_key: bool) {
        if self.half_open.len() < HALF_OPEN_MAX {
            return;
        }
        let keyed = self
            .half_open
            .iter()
            .filter(|half_open| half_open.transport.is_encrypted())
            .count();
        let forgets_keyed = keyed + usize::from(has_key) > HALF_OPEN_MAX / 2;
        let is_meant =
            |half_open: &HalfOpen<A>| half_open.transport.is_encrypted() == forgets_keyed;
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
                || self
                    .half_open
                    .iter()
                    .any(|half_open| half_open.session == id);
            if id != 0 && !is_used {
                return id;
            }
        }
    }

    /// Handles a frame outside current epochs: an authentic one is the first frame of a half-open epoch.
    fn handle_first_frame(&mut self, now: Instant, from: &A, header: &Header, bytes: &mut [u8]) {
        let is_of = |half_open: &HalfOpen<A>| {
            half_open.session == header.session && half_open.transport.epoch() == header.epoch
        };
        let Some(index) = self.half_open.iter().position(is_of) else {
            return;
        };
        let mut arrived = Vec::new();
        if !self.half_open[index]
            .transport
            .handle_frame(now, header, bytes, &mut arrived)
        {
            return;
        }
        let Some(half_open) = self.half_open.remove(index) else {
            return;
        };
        // Earlier logins are obsolete: their frames must not restore an older epoch.
        let mut position = 0;
        self.half_open.retain(|other| {
            position += 1;
            position > index || other.nexus != half_open.nexus
        });
        let path = usize::from(header.path);
        let id = half_open.session;
        self.activate(now, half_open);
        self.ready.insert(id);
        let session = self
            .sessions
            .get_mut(&id)
            .filter(|session| session.closing.is_none());
        let Some(session) = session else { return };
        session.addresses[path] = Some(from.clone());
        let mut delivered = arrived
            .into_iter()
            .map(|message| deliver(session, message, &mut self.events));
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
        // A session that has ended meanwhile is not restored. Nor is one resumed by an old login whose credit
        // would exceed the limit together with credit granted since: its initiator must log in again.
        let is_fit = |session: &&mut Session<A>| {
            session.closing.is_none() && session.charged() + granted <= most
        };
        if let Some(session) = self.sessions.get_mut(&id).filter(is_fit) {
            session.begin_epoch(half_open.transport, charged_then);
            session.begin(&mut self.events);
        }
    }

    fn begin_session(&mut self, now: Instant, half_open: HalfOpen<A>) {
        let HalfOpen {
            session,
            nexus,
            instance,
            transport,
            from,
            ..
        } = half_open;
        let of_nexus = self
            .sessions
            .iter()
            .filter(|(_, other)| other.nexus == nexus);
        for id in of_nexus.map(|(id, _)| *id).collect::<Vec<u32>>() {
            // This has no effect on a session that has ended and is closing.
            self.end(now, id, SessionEnd::Replaced);
            self.remove(id);
        }
        if self.is_full(transport.is_encrypted()) {
            return; // other sessions took the last slots; the next login is refused
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
            "more sessions than slots"
        );
    }
}

/// Unanswered logins are retried after 250 ms, 500 ms and so on, which are not multiples of this period: a
/// login that hit the rush at the start of a period does not hit it again.
const PERIOD: Duration = Duration::from_millis(200);
/// Requests processed per period. A request with a valid key takes 0.1 to 0.25 ms of CPU time; one to an open
/// target or with a wrong key takes some µs.
const FIRST_COME: u32 = 200;
const PARTS: usize = 256;

/// A budget of requests.
#[derive(Debug)]
struct Budget {
    began: Option<Instant>,
    seed: u64,
    taken: u32,
    /// Parts from which a request was processed in this period.
    heard: [bool; PARTS],
}

/// Limits the number of login requests processed: a flood uses only a part of a core's time, and does not
/// lock out initiators with a key or from other origins.
///
/// In each period a fixed number of requests is processed in order of arrival. After that, requesters are
/// divided into parts, and only the first request of each part is processed. The parts are drawn again in
/// each period, so that an attacker cannot choose a part. A requester displaced by a flood in one period is
/// therefore not displaced in the next. A requester whose code proves that it has its key is counted by name, which
/// no one else can use up. All others are counted by origin, which hosts on an Ethernet can forge. The two
/// groups have separate budgets.
#[derive(Debug)]
struct LoginBudget {
    proven: Budget,
    others: Budget,
}

impl Budget {
    const NEW: Budget = Budget {
        began: None,
        seed: 0,
        taken: 0,
        heard: [false; PARTS],
    };

    fn admits(&mut self, now: Instant, random: &mut SeededRandom, requester: &[&[u8]]) -> bool {
        if self
            .began
            .is_none_or(|began| now.saturating_duration_since(began) >= PERIOD)
        {
            *self = Budget {
                began: Some(now),
                seed: random.u64(),
                ..Budget::NEW
            };
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
    const NEW: LoginBudget = LoginBudget {
        proven: Budget::NEW,
        others: Budget::NEW,
    };
}

impl<A: Clone + PartialEq, D: Directory<A>> Target<A, D> {
    /// Whether a received frame may be processed now. Call it before [`Target::handle_frame`] of this state
    /// machine, or of another one on the same port. Only login requests are ever refused. Damaged or too
    /// short requests are refused without using a budget.
    pub fn has_time_for(
        &mut self,
        now: Instant,
        from: &A,
        header: &Header,
        frame: &mut [u8],
    ) -> bool {
        if header.opcode != Opcode::LoginRequest {
            return true;
        }
        let received = frame.len();
        let Some(body) = login::body(header, frame) else {
            return false;
        };
        let Some((request, _)) = LoginRequest::parse(body) else {
            return false;
        };
        if received < usize::from(request.frame_bytes) {
            return false;
        }
        let (initiator, target) = (&request.initiator, &request.target);
        match self.directory.admit(initiator, target, from) {
            Ok(Admission::Key(psk)) if request.is_proven(&psk, body) => {
                let name = [initiator.as_bytes(), target.as_bytes()];
                self.login_budget
                    .proven
                    .admits(now, &mut self.random, &name)
            }
            _ => {
                let origin = self.directory.origin(from).to_be_bytes();
                self.login_budget
                    .others
                    .admits(now, &mut self.random, &[&origin])
            }
        }
    }
}
