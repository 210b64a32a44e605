//! Logins of an initiator: the first one, and those that a session goes on with.

use std::time::Instant;

use super::{EndReason, Event, Initiator, Session};
use crate::frame::{Header, Opcode};
use crate::login::{Answer, Handshake, LoginReply, LoginRequest, Outcome, body, frame};
use crate::outgoing::Frame;
use crate::pdu::MESSAGE_BYTES_MAX;
use crate::protection::Protection;
use crate::transport::{Agreed, Transport};

/// A login with frames of one size is tried so often before the next size is.
const TRIES: u32 = 4;

/// A login that is not answered yet.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) began: Instant,
    pub(super) next_at: Instant,
    resume: bool,
    /// Which of the sizes of frames.
    size: usize,
    sent: u32,
    nonce: u64,
    frame_bytes: u16,
    frame: Vec<u8>,
    handshake: Option<Handshake>,
}

impl Initiator {
    /// Begins a login.
    pub(super) fn log_in(&mut self, now: Instant, resume: bool) {
        self.login = Some(self.attempt(now, now, resume, 0));
    }

    fn attempt(&mut self, began: Instant, now: Instant, resume: bool, size: usize) -> Attempt {
        let frame_bytes = self.config.frame_bytes[size];
        let nonce = self.chance.u64();
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
            let mut handshake = Handshake::new(psk, *cipher, &request.clear(), self.chance.bytes(), true);
            request.noise = handshake.write(&[]);
            handshake
        });
        let frame = request.body(self.config.key.as_ref().map(|(psk, _)| psk));
        Attempt { began, next_at: now, resume, size, sent: 0, nonce, frame_bytes, frame, handshake }
    }

    /// The login's next frame, if it is due.
    pub(super) fn poll_login(&mut self, now: Instant, into: &mut Frame) -> Option<u8> {
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
        into.bytes = frame(Opcode::LoginRequest, path, &login.frame, usize::from(login.frame_bytes));
        Some(path)
    }

    pub(super) fn handle_login_reply(&mut self, now: Instant, header: &Header, frame: &mut [u8]) {
        let Some(reply) = body(header, frame).and_then(LoginReply::parse) else { return };
        let Some(login) = self.login.as_mut().filter(|login| login.nonce == reply.nonce) else { return };
        let sealed = match reply.content {
            Ok(sealed) => sealed,
            // It is not proven: somebody who cannot end the session could send it.
            Err(_) if login.resume => return,
            Err(refusal) => return self.end(EndReason::Refused(refusal)),
        };
        let content = match &mut login.handshake {
            None => Some(sealed),
            Some(handshake) => handshake.read(&sealed),
        };
        let Some(answer) = content.and_then(|content| Answer::parse(&content)) else { return };
        match (login.resume, answer.outcome) {
            (true, Outcome::Unknown) => self.lose_nexus(now),
            (true, Outcome::Resumed) | (false, Outcome::New) if answer.frame_bytes <= login.frame_bytes => {
                self.begin_epoch(now, header.path, &answer);
            }
            _ => {}
        }
    }

    /// The target has no record of the session.
    fn lose_nexus(&mut self, now: Instant) {
        self.drop_session();
        self.events.push_back(Event::NexusLost);
        self.instance = self.chance.u64();
        self.log_in(now, false);
    }

    fn begin_epoch(&mut self, now: Instant, path: u8, answer: &Answer) {
        let Some(login) = self.login.take() else { return };
        let agreed = Agreed {
            session: answer.session,
            epoch: answer.epoch,
            protection: login.handshake.map_or(Protection::Crc, Handshake::protection),
            frame_bytes: usize::from(answer.frame_bytes),
            paths: usize::from(answer.paths.min(self.config.paths)),
            our_credit: u64::from(self.config.credit),
            their_credit: u64::from(answer.credit),
            message_bytes_max: MESSAGE_BYTES_MAX,
            bundles: answer.bundles && self.config.bundles,
        };
        let mut transport = Transport::new(now, agreed);
        transport.prove(usize::from(path));
        // The first frame of an epoch tells the target that the answer arrived; the other paths are new.
        transport.probe_all(now);
        match self.session.take() {
            Some(before) => {
                self.counters += before.transport.counters;
                before.transport.into_messages().for_each(|message| transport.send(message));
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
        self.session = Some(Session { id: answer.session, queue_depth, transport });
    }
}
