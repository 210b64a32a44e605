//! An initiator's session, as a state machine without I/O: commands and frames in, frames and results out.
//!
//! ```text
//!  new ──► Login ── LoginReply ──► Session ── suspicion, old keys ──► Session and Login
//!            ▲                               │  ▲                                │     │ unknown: NexusLost,
//!            └── nothing answers: Ended      │  └──────── Resumed ◄──────────────┘     ▼ requests are Lost
//!                                            └── disconnect, DISCONNECT: Ended       Login
//! ```
//!
//! After every other call, the driver calls [`Initiator::poll_transmit`] and [`Initiator::poll_event`] until
//! they return `None`. It calls [`Initiator::handle_timeout`] at the time from [`Initiator::poll_timeout`].

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use derive_more::{Display, Error};

use crate::frame::{Cipher, Frame, Header, Opcode, PATHS_MAX, Payload, Protection};
use crate::login::{
    self, Answer, Handshake, LoginReply, LoginRequest, Outcome, Psk, Refusal, SeededRandom,
};
use crate::pdu::{
    CDB_BYTES_MAX, Command, DATA_BYTES_MAX, Function, FunctionResult, MESSAGE_BYTES_MAX, Reply,
    Request, Response,
};
use crate::reassembly::Delivered;
use crate::transport::{Agreed, Counters, Message, Transport};

/// Time to wait for the acknowledgement of a DISCONNECT.
const CLOSING: Duration = Duration::from_secs(1);
/// Requests reserved for task management.
const FUNCTIONS: u32 = 8;

/// An outstanding request.
#[derive(Clone, Copy, Debug)]
enum Outstanding {
    Command { data_in_bytes: u32 },
    Function,
}

/// The current session.
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
    random: SeededRandom,
    session: Option<Session>,
    login: Option<Attempt>,
    /// Number of login requests so far, over all attempts. Each request uses the next path.
    login_frames: u32,
    /// Identifies the session to the target: a random number, drawn for each session.
    instance: u64,
    /// Number of sessions so far, for [`RequestId`].
    sessions: u32,
    requests: BTreeMap<u64, Outstanding>,
    next_number: u64,
    events: VecDeque<Event>,
    /// Messages of the frame being handled; empty between frames.
    arrived: Vec<Delivered>,
    closing: Option<Instant>,
    ended: bool,
    /// Counters of earlier epochs.
    counters: Counters,
}

impl Initiator {
    /// Starts the login. The seed must be random and used only here: nonces and keys are derived from it.
    pub fn new(now: Instant, config: Config, seed: [u8; 32]) -> Initiator {
        let mut random = SeededRandom::new(seed);
        let instance = random.u64();
        let mut machine = Initiator {
            config: config.checked(),
            random,
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

    /// Number of requests that may be submitted now.
    pub fn room(&self) -> usize {
        let Some(session) = self.session.as_ref().filter(|_| self.closing.is_none()) else {
            return 0;
        };
        let functions = FUNCTIONS.min(session.queue_depth / 2);
        ((session.queue_depth - functions) as usize).saturating_sub(self.requests.len())
    }

    /// The number of the session in its frames, while there is one.
    pub fn session(&self) -> Option<u32> {
        self.session.as_ref().map(|session| session.id)
    }

    /// Number of outstanding requests.
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
        let outstanding = Outstanding::Command {
            data_in_bytes: command.data_in_bytes,
        };
        self.request(outstanding, |number| Request::Command { number, command })
    }

    /// Sends a task management function. ABORT TASK and QUERY TASK need `task`. A command that the function
    /// ends completes with TASK ABORTED.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn manage(
        &mut self,
        function: Function,
        lun: [u8; 8],
        task: Option<RequestId>,
    ) -> Result<RequestId, SubmitError> {
        let depth = self
            .session
            .as_ref()
            .map_or(0, |session| session.queue_depth as usize);
        if self.session.is_some() && self.requests.len() >= depth {
            return Err(SubmitError::Full);
        }
        // A task of another session does not exist in this one, whose numbers start at 0 again.
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
        debug_assert!(
            self.requests.len() <= session.queue_depth as usize,
            "more requests than the target takes"
        );
        session.transport.send(request(number).message());
        Ok(RequestId {
            session: self.sessions,
            number,
        })
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

    /// Handles a received frame, from its header on, with any padding. The frame is decrypted in place.
    pub fn handle_frame(&mut self, now: Instant, frame: &mut [u8]) {
        let Ok(header) = Header::parse(frame) else {
            return;
        };
        if self.ended {
            return;
        }
        if header.opcode.is_outside_sessions() {
            if header.opcode == Opcode::LoginReply {
                self.handle_login_reply(now, &header, frame);
            }
            return;
        }
        let Some(session) = &mut self.session else {
            return;
        };
        if session.id != header.session || session.transport.epoch() != header.epoch {
            return;
        }
        let mut arrived = std::mem::take(&mut self.arrived);
        session
            .transport
            .handle_frame(now, &header, frame, &mut arrived);
        arrived
            .iter()
            .for_each(|delivered| session.transport.release(delivered.charge));
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
            return self.end(if is_ours {
                EndReason::Disconnected
            } else {
                EndReason::ByTarget
            });
        }
        let reply = if delivered.opcode == Opcode::Reply {
            Reply::parse(delivered.bytes)
        } else {
            None
        };
        let Some(reply) = reply else {
            return self.end(EndReason::TargetMisbehaved);
        };
        let number = match &reply {
            Reply::Response { number, .. } | Reply::Done { number, .. } => *number,
        };
        let id = RequestId {
            session: self.sessions,
            number,
        };
        match (self.requests.remove(&number), reply) {
            // The request was answered in an earlier epoch, and the acknowledgement was lost.
            (None, _) if number < self.next_number => self.counters.messages_repeated += 1,
            // A response to a request that was never sent: the target attributed another host's frames to us.
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

    /// Handles an expired deadline of [`Initiator::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.ended {
            return;
        }
        let give_up = self.config.times.give_up;
        if let Some(login) = self
            .login
            .as_mut()
            .filter(|login| login.began + give_up <= now)
        {
            let suspect = self
                .session
                .as_ref()
                .map(|session| suspect_at(&self.config, session));
            if suspect.is_none_or(|at| at.is_some_and(|at| at <= now)) {
                return self.end(EndReason::Unreachable);
            }
            // New keys cannot be negotiated, but the session works.
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

    /// Reacts to the state of the transport.
    fn after(&mut self, now: Instant) {
        let Some(session) = self.session.as_ref().filter(|_| !self.ended) else {
            return;
        };
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

    /// Time at which to call [`Initiator::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.ended {
            return None;
        }
        let times = &self.config.times;
        let login = self
            .login
            .as_ref()
            .map(|login| login.next_at.min(login.began + times.give_up));
        // A closing session is not kept alive.
        let is_open = self.closing.is_none();
        let session = self.session.as_ref().and_then(|session| {
            let keepalive = session.transport.last_asked() + times.keepalive;
            let suspect =
                suspect_at(&self.config, session).filter(|_| is_open && self.login.is_none());
            [Some(keepalive), suspect, session.transport.deadline()]
                .into_iter()
                .flatten()
                .min()
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

    /// The next frame, with its data in place.
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

    /// The state of each path: whether it carries fragments, its round-trip time, and its window in frames.
    pub fn paths(&self) -> Vec<(bool, Option<Duration>, u32)> {
        self.session
            .as_ref()
            .map_or(Vec::new(), |session| session.transport.paths().collect())
    }

    /// Bytes of memory used by partial messages.
    pub fn held_bytes(&self) -> usize {
        self.session
            .as_ref()
            .map_or(0, |session| session.transport.held_bytes())
    }

    /// Number of unacknowledged messages.
    pub fn unacknowledged(&self) -> usize {
        self.session
            .as_ref()
            .map_or(0, |session| session.transport.unacknowledged())
    }

    fn lose_requests(&mut self) {
        let session = self.sessions;
        let lost = std::mem::take(&mut self.requests).into_keys();
        self.events.extend(lost.map(|number| Event::Lost {
            id: RequestId { session, number },
        }));
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
    session
        .transport
        .stalled()
        .map(|since| since + config.times.suspect)
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

/// Times of an initiator.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time until an unanswered login is retried; it doubles with each retry, up to eight times this value.
    pub retry: Duration,
    /// If nothing is acknowledged for this time, another login is attempted while the session continues.
    pub suspect: Duration,
    /// Interval at which an idle session requests an acknowledgement.
    pub keepalive: Duration,
    /// If nothing is answered for this time, the session ends.
    pub give_up: Duration,
    /// Number of frames after which a login negotiates new keys. A message not acknowledged by then starts
    /// from the beginning, so this must be much larger than the number of frames of the longest message. The
    /// limit of AES-GCM is above 2^24.5 frames of 9 KiB (calculated as in RFC 9001 appendix B.1).
    pub rekey_frames: u64,
}

impl Default for Times {
    fn default() -> Times {
        Times {
            retry: Duration::from_millis(250),
            suspect: Duration::from_secs(1),
            keepalive: Duration::from_secs(5),
            give_up: Duration::from_secs(60),
            rekey_frames: 1 << 24,
        }
    }
}

/// Parameters of an initiator.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name ([`is_name`](crate::is_name)).
    pub initiator: String,
    /// The target's name.
    pub target: String,
    /// A second session of the same name and port to the same target replaces the first.
    pub port: u32,
    /// The key and the cipher, if the target identifies the initiator by a key.
    pub key: Option<(Psk, Cipher)>,
    /// Frame sizes to try, longest first: the maximum of the interface, then a size that every network supports.
    pub frame_bytes: Vec<u16>,
    /// Number of paths, 1 to [`PATHS_MAX`].
    pub paths: u8,
    /// Maximum size of the partial messages that the initiator stores, in bytes. At least the length of the
    /// longest message, which is slightly more than 1 MiB.
    pub credit: u32,
    /// Whether a frame may carry several messages, if the target also supports it.
    pub bundles: bool,
    /// Times.
    pub times: Times,
}

impl Config {
    /// A configuration with defaults for everything except the names.
    pub fn new(initiator: &str, target: &str) -> Config {
        Config {
            initiator: initiator.to_owned(),
            target: target.to_owned(),
            port: 0,
            key: None,
            frame_bytes: vec![crate::FRAME_BYTES_MIN as u16],
            paths: 1,
            credit: 4 << 20,
            bundles: true,
            times: Times::default(),
        }
    }

    /// Limits all values to their valid ranges.
    fn checked(mut self) -> Config {
        let (shortest, longest) = (crate::FRAME_BYTES_MIN as u16, crate::FRAME_BYTES_MAX as u16);
        self.frame_bytes
            .iter_mut()
            .for_each(|bytes| *bytes = (*bytes).clamp(shortest, longest));
        if self.frame_bytes.is_empty() {
            self.frame_bytes.push(shortest);
        }
        self.paths = self.paths.clamp(1, PATHS_MAX as u8);
        self.credit = self.credit.max(MESSAGE_BYTES_MAX as u32);
        self
    }
}

/// Identifies a command or a function, uniquely within a state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    session: u32,
    number: u64,
}

/// An action for the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The session is established: requests may be submitted.
    LoggedIn {
        /// Maximum number of outstanding commands.
        queue_depth: u32,
        /// Frame size in bytes.
        frame_bytes: usize,
        /// Whether frames are encrypted, and the peer has proven that it has the key.
        is_encrypted: bool,
    },
    /// The session continues in another epoch. Nothing was lost.
    Resumed,
    /// A command ended.
    Completed {
        /// Its identifier.
        id: RequestId,
        /// Its result.
        response: Response,
    },
    /// A task management function ended.
    FunctionDone {
        /// Its identifier.
        id: RequestId,
        /// Its result.
        result: FunctionResult,
    },
    /// A request will not be answered, because the session was lost. It may have been executed, but will not
    /// be executed after any request of the next session.
    Lost {
        /// Its identifier.
        id: RequestId,
    },
    /// The target has no record of the session: an I_T nexus loss (SAM-5 6.3.4). Another login is in progress.
    NexusLost,
    /// The state machine has ended.
    Ended(EndReason),
}

/// Why a state machine has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum EndReason {
    /// The driver called [`Initiator::disconnect`].
    #[display("the session was closed")]
    Disconnected,
    /// The target closed the session.
    #[display("the target closed the session")]
    ByTarget,
    /// The target refused the login.
    #[display("{_0}")]
    Refused(#[error(not(source))] Refusal),
    /// There was no answer.
    #[display("no target responds")]
    Unreachable,
    /// The target violated the protocol.
    #[display("the target violated the protocol")]
    TargetMisbehaved,
}

/// Why a request was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum SubmitError {
    /// There is no session: before [`Event::LoggedIn`], after [`Event::NexusLost`] or [`Event::Ended`].
    #[display("there is no session")]
    NoSession,
    /// The number of outstanding requests has reached the target's limit.
    #[display("too many requests are outstanding")]
    Full,
    /// The CDB or the data is longer than the protocol allows.
    #[display("the command is longer than the protocol allows")]
    TooLong,
}

/// Login attempts with one frame size before the next size is tried.
const TRIES: u32 = 4;

/// An unanswered login.
#[derive(Debug)]
struct Attempt {
    began: Instant,
    next_at: Instant,
    resume: bool,
    /// Index of the frame size.
    size: usize,
    sent: u32,
    nonce: u64,
    frame_bytes: u16,
    frame: Vec<u8>,
    handshake: Option<Handshake>,
}

/// Logins: the first one, and those that continue a session.
impl Initiator {
    /// Starts a login.
    fn log_in(&mut self, now: Instant, resume: bool) {
        self.login = Some(self.attempt(now, now, resume, 0));
    }

    fn attempt(&mut self, began: Instant, now: Instant, resume: bool, size: usize) -> Attempt {
        let frame_bytes = self.config.frame_bytes[size];
        let nonce = self.random.u64();
        let mut request = LoginRequest {
            resume,
            bundles: self.config.bundles,
            cipher: self.config.key.as_ref().map(|(_, cipher)| *cipher),
            frame_bytes,
            credit: self.config.credit,
            nonce,
            instance: self.instance,
            port: self.config.port,
            paths: self.config.paths,
            initiator: self.config.initiator.clone(),
            target: self.config.target.clone(),
            noise: Vec::new(),
            code: Vec::new(),
        };
        let handshake = self.config.key.as_ref().map(|(psk, cipher)| {
            let mut handshake =
                Handshake::new(psk, *cipher, &request.clear(), self.random.bytes(), true);
            request.noise = handshake.write(&[]);
            handshake
        });
        let frame = request.body(self.config.key.as_ref().map(|(psk, _)| psk));
        Attempt {
            began,
            next_at: now,
            resume,
            size,
            sent: 0,
            nonce,
            frame_bytes,
            frame,
            handshake,
        }
    }

    /// The login's next frame, if it is due.
    fn poll_login(&mut self, now: Instant, into: &mut Frame) -> Option<u8> {
        let due = self.login.as_ref().filter(|login| login.next_at <= now)?;
        if due.sent >= TRIES {
            // The network may drop frames of this size.
            let (began, resume) = (due.began, due.resume);
            let size = (due.size + 1) % self.config.frame_bytes.len();
            self.login = Some(self.attempt(began, now, resume, size));
        }
        let login = self.login.as_mut()?;
        let path = (self.login_frames % u32::from(self.config.paths)) as u8;
        self.login_frames = self.login_frames.wrapping_add(1);
        login.next_at = now + self.config.times.retry * (1 << login.sent.min(3));
        login.sent += 1;
        into.bytes = login::frame(
            Opcode::LoginRequest,
            path,
            &login.frame,
            usize::from(login.frame_bytes),
        );
        Some(path)
    }

    fn handle_login_reply(&mut self, now: Instant, header: &Header, frame: &mut [u8]) {
        let Some(reply) = login::body(header, frame).and_then(LoginReply::parse) else {
            return;
        };
        let Some(login) = self
            .login
            .as_mut()
            .filter(|login| login.nonce == reply.nonce)
        else {
            return;
        };
        let sealed = match reply.content {
            Ok(sealed) => sealed,
            // The refusal is not authenticated: an attacker who cannot end the session could send it.
            Err(_) if login.resume => return,
            Err(refusal) => return self.end(EndReason::Refused(refusal)),
        };
        let content = match &mut login.handshake {
            None => Some(sealed),
            Some(handshake) => handshake.read(&sealed),
        };
        let Some(answer) = content.and_then(|content| Answer::parse(&content)) else {
            return;
        };
        match (login.resume, answer.outcome) {
            (true, Outcome::Unknown) => self.lose_nexus(now),
            (true, Outcome::Resumed) | (false, Outcome::New)
                if answer.frame_bytes <= login.frame_bytes =>
            {
                self.begin_epoch(now, header.path, &answer);
            }
            _ => {}
        }
    }

    /// Handles the loss of the session at the target: starts a login for a new session.
    fn lose_nexus(&mut self, now: Instant) {
        self.drop_session();
        self.events.push_back(Event::NexusLost);
        self.instance = self.random.u64();
        self.log_in(now, false);
    }

    fn begin_epoch(&mut self, now: Instant, path: u8, answer: &Answer) {
        let Some(login) = self.login.take() else {
            return;
        };
        let agreed = Agreed {
            session: answer.session,
            epoch: answer.epoch,
            protection: login
                .handshake
                .map_or(Protection::Crc, Handshake::protection),
            frame_bytes: usize::from(answer.frame_bytes),
            paths: usize::from(answer.paths.min(self.config.paths)),
            our_credit: u64::from(self.config.credit),
            their_credit: u64::from(answer.credit),
            message_bytes_max: MESSAGE_BYTES_MAX,
            bundles: answer.bundles && self.config.bundles,
        };
        let mut transport = Transport::new(now, agreed);
        transport.prove(usize::from(path));
        // The first frame of an epoch confirms to the target that the answer arrived; the other paths are new.
        transport.probe_all(now);
        match self.session.take() {
            Some(before) => {
                self.counters += before.transport.counters;
                before
                    .transport
                    .into_messages()
                    .for_each(|message| transport.send(message));
                self.events.push_back(Event::Resumed);
            }
            None => {
                self.sessions += 1;
                self.next_number = 0;
                self.events.push_back(Event::LoggedIn {
                    queue_depth: u32::from(answer.queue_depth),
                    frame_bytes: transport.frame_bytes(),
                    is_encrypted: transport.is_encrypted(),
                });
            }
        }
        let queue_depth = u32::from(answer.queue_depth);
        self.session = Some(Session {
            id: answer.session,
            queue_depth,
            transport,
        });
    }
}
