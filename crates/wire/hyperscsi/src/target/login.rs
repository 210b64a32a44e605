//! Logins at a target: a half-open epoch for each, until the first genuine frame in it.

use std::time::{Duration, Instant};

use super::config::{Admission, Directory};
use super::event::{Event, SessionEnd, SessionId};
use super::session::{Nexus, Session};
use super::{Target, deliver};
use crate::frame::{Header, Opcode};
use crate::login::{Answer, Handshake, LoginReply, LoginRequest, Outcome, Refusal, body, frame};
use crate::pdu::MESSAGE_BYTES_MAX;
use crate::protection::Protection;
use crate::transport::{Agreed, Transport};

/// Half-open epochs at once, and how long each is kept.
const HALF_OPEN_MAX: usize = 64;
const HALF_OPEN_TIME: Duration = Duration::from_secs(30);
/// Of so many sessions, or of any two, one is for initiators with a key alone: anybody may open the others, and hold them for ever.
const KEYED_SHARE: usize = 8;

/// A login that was answered, and whose initiator has not been heard in the new epoch.
#[derive(Debug)]
pub(super) struct HalfOpen<A> {
    pub(super) expires: Instant,
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
    pub(super) fn handle_login(&mut self, now: Instant, from: &A, header: &Header, bytes: &mut [u8]) {
        let received = bytes.len();
        let Some(body) = body(header, bytes) else { return };
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
        let reply = frame(Opcode::LoginReply, header.path, &reply.body(), padded);
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
                let mut handshake = Handshake::new(&psk, cipher, clear, self.chance.bytes(), false);
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
            let id = self.chance.u64() as u32;
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
    pub(super) fn handle_first_frame(&mut self, now: Instant, from: &A, header: &Header, bytes: &mut [u8]) {
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
    }
}
