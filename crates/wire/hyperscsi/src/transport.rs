//! Messages of one epoch over unreliable paths: each arrives exactly once, in any order.
//!
//! ```text
//!  send ──► waiting ── credit and a free tag ──► open ── each fragment in a frame ──► path ── acknowledged ──► gone
//!                                                  ▲                                    │
//!                                                  └──────── resend ◄────── lost ───────┘
//! ```
//!
//! A message is begun when all before it have been sent once, so that those that hold credit can always become whole.
//! What is unacknowledged when an epoch ends goes over to the next ([`Transport::into_messages`]).
//!
//! Several messages may be in one frame. What a frame costs does not depend on its length, so small messages that wait travel
//! together, if the login says that both sides can. They are whole, of one opcode, and have consecutive numbers.
//!
//! ```text
//!  header: message, message length of the first │ [acknowledgement] │ first message │ length u16 │ next message │ …
//! ```

use std::collections::VecDeque;
use std::iter;
use std::time::{Duration, Instant};

use derive_more::AddAssign;

use crate::frame::{
    FRAGMENTS_MAX, FRAME_BYTES_MAX, FRAME_BYTES_MIN, Frame, HEADER_BYTES, Header, MESSAGES_OPEN_MAX,
    NUMBER_END, Opcode, PATHS_MAX, Payload, Protection,
};
use crate::path::{ACK_BYTES, Ack, Load, Path, Piece, Settled};
use crate::reassembly::{Delivered, Fragment, OpenMessages, Reassembly};

/// When credit is missing, and the acknowledgement that grants more was lost, it is asked for so often.
const CREDIT_RETRY: Duration = Duration::from_millis(100);

/// What both sides agreed on for an epoch.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) session: u32,
    pub(crate) epoch: u16,
    pub(crate) protection: Protection,
    /// Bytes of a frame, from its header to its trailer.
    pub(crate) frame_bytes: usize,
    /// Paths that may be used.
    pub(crate) paths: usize,
    /// Bytes that the peer may send at first.
    pub(crate) our_credit: u64,
    /// Bytes that may be sent to it.
    pub(crate) their_credit: u64,
    /// Bytes of the longest message.
    pub(crate) message_bytes_max: usize,
    /// A frame may carry several messages.
    pub(crate) bundles: bool,
}

/// A message to send.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) opcode: Opcode,
    /// It overtakes others, is outside the credit, and fits into a frame.
    pub(crate) control: bool,
    pub(crate) head: Vec<u8>,
    pub(crate) data: Payload,
    /// Told by [`Transport::take_receipts`] when it is acknowledged.
    pub(crate) receipt: Option<u64>,
}

impl Message {
    fn bytes(&self) -> usize {
        self.head.len() + self.data.len()
    }

    fn charge(&self) -> u64 {
        if self.control { 0 } else { self.bytes() as u64 }
    }

    /// Appends this range of it.
    fn write(&self, start: usize, end: usize, into: &mut Frame) {
        let cut = self.head.len();
        into.put(&self.head[start.min(cut)..end.min(cut)]);
        into.put_data(&self.data, start.max(cut) - cut, end.max(cut) - cut);
    }
}

/// A message of which fragments have been sent.
#[derive(Debug)]
struct Open {
    message: Message,
    count: u16,
    /// The next fragment that was never sent.
    next: u16,
    acknowledged: [u64; FRAGMENTS_MAX / 64],
    missing: u16,
}

impl Open {
    fn is_acknowledged(&self, fragment: u16) -> bool {
        self.acknowledged[usize::from(fragment / 64)] >> (fragment % 64) & 1 == 1
    }
}

/// The transport of one epoch.
#[derive(Debug)]
pub(crate) struct Transport {
    agreed: Agreed,
    paths: Vec<Path>,
    urgent: VecDeque<Message>,
    waiting: VecDeque<Message>,
    open: OpenMessages<Open>,
    next_message: u32,
    /// The message whose fragments are being sent for the first time.
    current: Option<u32>,
    resend: VecDeque<Piece>,
    /// Bytes of messages begun, and how many the peer allows.
    charged: u64,
    allowed: u64,
    reassembly: Reassembly,
    /// The credit that the peer was last told of.
    told: u64,
    /// Bytes of the messages that are not acknowledged.
    unacknowledged_bytes: usize,
    /// Of messages that were acknowledged.
    receipts: Vec<u64>,
    /// Since when nothing is acknowledged though something should be.
    stalled: Option<Instant>,
    last_heard: Instant,
    last_asked: Instant,
    pub(crate) counters: Counters,
}

impl Transport {
    pub(crate) fn new(now: Instant, agreed: Agreed) -> Transport {
        debug_assert!(
            (FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&agreed.frame_bytes),
            "what a login agrees on"
        );
        let fragment_bytes = agreed.frame_bytes - HEADER_BYTES - agreed.protection.trailer_bytes();
        Transport {
            paths: (0..agreed.paths.min(PATHS_MAX)).map(|_| Path::new()).collect(),
            urgent: VecDeque::new(),
            waiting: VecDeque::new(),
            open: OpenMessages::new(),
            next_message: 0,
            current: None,
            resend: VecDeque::new(),
            charged: 0,
            allowed: agreed.their_credit,
            reassembly: Reassembly::new(fragment_bytes, agreed.message_bytes_max, agreed.our_credit),
            told: agreed.our_credit,
            unacknowledged_bytes: 0,
            receipts: Vec::new(),
            stalled: None,
            last_heard: now,
            last_asked: now,
            counters: Counters::default(),
            agreed,
        }
    }

    fn fragment_bytes(&self) -> usize {
        self.agreed.frame_bytes - HEADER_BYTES - self.agreed.protection.trailer_bytes()
    }

    pub(crate) fn epoch(&self) -> u16 {
        self.agreed.epoch
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.agreed.protection.is_aead()
    }

    pub(crate) fn frame_bytes(&self) -> usize {
        self.agreed.frame_bytes
    }

    /// Messages that are not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.urgent.len() + self.waiting.len() + self.open.len()
    }

    pub(crate) fn unacknowledged_bytes(&self) -> usize {
        self.unacknowledged_bytes
    }

    /// Bytes of partial messages.
    pub(crate) fn held_bytes(&self) -> usize {
        self.reassembly.held_bytes()
    }

    /// Since when nothing is acknowledged though something should be.
    pub(crate) fn stalled(&self) -> Option<Instant> {
        self.stalled
    }

    /// When the last genuine frame came.
    pub(crate) fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// When a frame was last sent that asks for an acknowledgement, on a path that may give one.
    pub(crate) fn last_asked(&self) -> Instant {
        self.last_asked
    }

    /// The largest number of frames of a path, in its busier direction, and of messages.
    pub(crate) fn age(&self) -> u64 {
        let ours = self.paths.iter().map(Path::next_number);
        ours.max().unwrap_or(0).max(u64::from(self.next_message)).max(self.counters.frames_received)
    }

    /// The state of each path: whether it carries fragments, its round trip and its window.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (bool, Option<Duration>, u32)> {
        self.paths.iter().map(|path| (path.is_usable(), path.round_trip(), path.window()))
    }

    /// The peer was heard on this path before the epoch began.
    pub(crate) fn prove(&mut self, path: usize) {
        if let Some(path) = self.paths.get_mut(path) {
            path.heard();
        }
    }

    /// Asks for an acknowledgement on each path.
    pub(crate) fn probe_all(&mut self, now: Instant) {
        self.last_asked = now;
        self.paths.iter_mut().for_each(|path| path.probe_at = Some(now));
    }

    pub(crate) fn send(&mut self, message: Message) {
        self.unacknowledged_bytes += message.bytes();
        if message.control { self.urgent.push_back(message) } else { self.waiting.push_back(message) }
    }

    /// The receipts of messages that were acknowledged since the last call.
    pub(crate) fn take_receipts(&mut self) -> impl Iterator<Item = u64> + use<> {
        std::mem::take(&mut self.receipts).into_iter()
    }

    /// A delivered message is done with.
    pub(crate) fn release(&mut self, charge: u64) {
        self.reassembly.release(charge);
    }

    /// What is not acknowledged, in the order in which it was to be sent.
    pub(crate) fn into_messages(self) -> impl Iterator<Item = Message> {
        let open = self.open.into_values().map(|open| open.message);
        open.chain(self.urgent).chain(self.waiting)
    }

    /// A frame of this session and epoch. False if it is not genuine or was met before. The messages that it makes whole are
    /// added to `arrived`.
    pub(crate) fn handle_frame(
        &mut self,
        now: Instant,
        header: &Header,
        frame: &mut [u8],
        arrived: &mut Vec<Delivered>,
    ) -> bool {
        let path = usize::from(header.path);
        if !self.paths.get(path).is_some_and(|path| path.received.is_new(header.number)) {
            self.counters.frames_repeated += u64::from(path < self.paths.len());
            return false;
        }
        let Some(mut body) = self.agreed.protection.open(header, frame) else {
            self.counters.frames_damaged += 1;
            return false;
        };
        self.counters.frames_received += 1;
        self.last_heard = now;
        self.paths[path].heard();
        if header.has_ack || header.opcode == Opcode::Ack {
            let Some(ack) = Ack::parse(body) else { return true };
            self.acknowledge(now, path, &ack);
            body = &body[ACK_BYTES..];
        }
        if header.opcode.carries_message() && !self.take_messages(header, body, arrived) {
            // As if it had been lost: nothing depends on how a peer that keeps no rules is answered.
            self.counters.fragments_refused += 1;
            return true;
        }
        let wants_ack = header.opcode != Opcode::Ack;
        let at_once = header.ask || header.opcode == Opcode::AckRequest;
        self.paths[path].received.record(now, header.number, wants_ack, at_once);
        true
    }

    /// Takes what a frame carries. False if that breaks a rule: the frame will not be acknowledged. Messages of it that were taken
    /// before that was seen are not delivered again.
    fn take_messages(&mut self, header: &Header, body: &[u8], arrived: &mut Vec<Delivered>) -> bool {
        let may_be = self.agreed.bundles && body.len() <= self.fragment_bytes();
        if header.bundle && !(may_be && is_bundle(header, body)) {
            return false;
        }
        let mut take = |header: &Header, body: &[u8]| match self.reassembly.take(header, body) {
            Fragment::Complete(delivered) => {
                self.counters.messages_received += 1;
                arrived.push(delivered);
                true
            }
            Fragment::Taken => true,
            Fragment::Refused => false,
        };
        if header.bundle {
            bundled(header, body).all(|(header, body)| take(&header, body))
        } else {
            take(header, body)
        }
    }

    fn acknowledge(&mut self, now: Instant, path: usize, ack: &Ack) {
        self.allowed = self.allowed.max(ack.granted);
        let mut settled = Settled::default();
        self.paths[path].acknowledge(now, ack, &mut settled);
        if settled.frames > 0 {
            self.stalled = Some(now);
        }
        self.settle(&settled);
        if self.is_blocked() && !self.is_waiting() {
            self.paths[path].probe_at = Some(now + CREDIT_RETRY);
        }
        self.end_stall();
    }

    /// When nothing is waited for any more, nothing is stalled. If all paths are down, something is.
    fn end_stall(&mut self) {
        if self.usable().next().is_some() && !self.is_waiting() && self.resend.is_empty() {
            self.stalled = None;
        }
    }

    fn settle(&mut self, settled: &Settled) {
        for piece in &settled.acknowledged {
            let Some(open) = self.open.get_mut(piece.message) else { continue };
            if open.is_acknowledged(piece.fragment) {
                continue;
            }
            open.acknowledged[usize::from(piece.fragment / 64)] |= 1 << (piece.fragment % 64);
            debug_assert!(open.missing > 0, "more fragments than the message has");
            open.missing -= 1;
            if open.missing == 0
                && let Some(open) = self.open.remove(piece.message)
            {
                self.unacknowledged_bytes -= open.message.bytes();
                self.receipts.extend(open.message.receipt);
            }
        }
        self.counters.fragments_lost += settled.lost.len() as u64;
        self.resend.extend(&settled.lost);
        // What arrived after all is not sent again. Nothing else would take it out when there is nothing more to send, and the session
        // would count as stalled.
        while let Some(piece) = self.resend.front()
            && !self.is_wanted(*piece)
        {
            self.resend.pop_front();
        }
    }

    /// Whether a piece is not acknowledged.
    fn is_wanted(&self, piece: Piece) -> bool {
        self.open.get(piece.message).is_some_and(|open| !open.is_acknowledged(piece.fragment))
    }

    /// The paths that fragments may travel by. Others are tried all the time, and say nothing of the session.
    fn usable(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter(|path| path.is_usable())
    }

    /// Whether an acknowledgement is to come.
    fn is_waiting(&self) -> bool {
        self.usable().any(|path| path.in_flight() > 0)
    }

    /// Whether a message waits for credit.
    fn is_blocked(&self) -> bool {
        let next = self.waiting.front();
        next.is_some_and(|next| self.charged + next.charge() > self.allowed)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let mut settled = Settled::default();
        self.paths.iter_mut().for_each(|path| path.handle_timeout(now, &mut settled));
        self.settle(&settled);
        // What was lost, or the path that is down now, may have been the last that was waited for. After a timeout the question is asked
        // again.
        if self.usable().all(|path| path.probe_at.is_none()) {
            self.end_stall();
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.paths.iter().filter_map(Path::deadline).min()
    }

    /// Writes the next frame into `frame`, and tells its path.
    pub(crate) fn poll_transmit(&mut self, now: Instant, frame: &mut Frame) -> Option<u8> {
        let path = self.fragment_path().and_then(|path| Some((path, self.next_piece(now)?)));
        if let Some((path, piece)) = path {
            self.write_fragment(now, path, piece, frame)?;
            return Some(path as u8);
        }
        self.poll_control(now, frame)
    }

    /// The path for the next fragment.
    fn fragment_path(&self) -> Option<usize> {
        let usable = self.paths.iter().enumerate().filter(|(_, path)| path.is_usable() && path.has_room());
        let with_numbers = usable.filter(|(_, path)| path.next_number() < NUMBER_END - 1);
        with_numbers.min_by_key(|(_, path)| path.load()).map(|(index, _)| index)
    }

    /// The next fragment to send: a lost one, or the next one of the messages in their order.
    fn next_piece(&mut self, now: Instant) -> Option<Piece> {
        while let Some(piece) = self.resend.pop_front() {
            if self.is_wanted(piece) {
                return Some(piece);
            }
        }
        if self.current.is_none() {
            self.current = self.begin(now);
        }
        let message = self.current?;
        let open = self.open.get_mut(message)?;
        let fragment = open.next;
        open.next += 1;
        if open.next == open.count {
            self.current = None;
        }
        Some(Piece { message, fragment })
    }

    /// Opens the next message, if there is a tag and credit for it.
    fn begin(&mut self, now: Instant) -> Option<u32> {
        let oldest = self.open.oldest().unwrap_or(self.next_message);
        if self.next_message - oldest >= MESSAGES_OPEN_MAX || self.next_message == u32::MAX {
            return None;
        }
        let message = match self.urgent.pop_front() {
            Some(message) => message,
            None if self.is_blocked() => {
                self.ask_for_credit(now);
                return None;
            }
            None => self.waiting.pop_front()?,
        };
        self.charged += message.charge();
        debug_assert!(self.charged <= self.allowed, "a message beyond the credit");
        let count = message.bytes().div_ceil(self.fragment_bytes()).max(1) as u16;
        debug_assert!(usize::from(count) <= FRAGMENTS_MAX, "a message of too many fragments");
        let serial = self.next_message;
        self.next_message += 1;
        self.counters.messages_sent += 1;
        let open = Open { message, count, next: 0, acknowledged: [0; _], missing: count };
        self.open.push(serial, open);
        Some(serial)
    }

    /// If no acknowledgement is under way that could grant more, one is asked for after a while.
    fn ask_for_credit(&mut self, now: Instant) {
        if self.is_waiting() || self.usable().any(|path| path.probe_at.is_some()) {
            return;
        }
        if let Some(path) = self.paths.iter_mut().find(|path| path.is_usable()) {
            path.probe_at = Some(now + CREDIT_RETRY);
        }
    }

    /// `None`: the piece's message is gone, which none is that was just looked up.
    fn write_fragment(&mut self, now: Instant, path: usize, piece: Piece, frame: &mut Frame) -> Option<()> {
        let fragment_bytes = self.fragment_bytes();
        let open = self.open.get(piece.message)?;
        let total = open.message.bytes();
        let start = usize::from(piece.fragment) * fragment_bytes;
        let end = total.min(start + fragment_bytes);
        debug_assert!(start <= end, "a fragment behind the end of its message");
        let header = Header {
            last: piece.fragment + 1 == open.count,
            fragment: piece.fragment,
            control: open.message.control,
            message: piece.message,
            message_bytes: total as u32,
            ask: self.paths[path].fills_up(),
            ..Header::plain(open.message.opcode)
        };
        let is_whole = open.count == 1 && !open.message.control;
        let tells = self.paths[path].received.is_pending() || self.owes_credit();
        let ack =
            if tells && end - start + ACK_BYTES <= fragment_bytes { self.take_ack(now, path) } else { None };
        let mut load = Load { first: piece, more: 0 };
        if is_whole && self.agreed.bundles {
            let ack_bytes = if ack.is_some() { ACK_BYTES } else { 0 };
            let mut room = fragment_bytes - (end - start) - ack_bytes;
            while let Some(bytes) = self.add_to_bundle(now, header.opcode, load, room) {
                load.more += 1;
                room -= LENGTH_BYTES + bytes;
            }
        }
        let header = Header { bundle: load.more > 0, ..header };
        let number = self.paths[path].send(now, Some(load));
        self.asked(now);
        self.write(path, number, header, ack, frame, |transport, frame| {
            if let Some(open) = transport.open.get(piece.message) {
                open.message.write(start, end, frame);
            }
            for behind in 1..=u32::from(load.more) {
                let Some(Open { message, .. }) = transport.open.get(piece.message + behind) else { continue };
                frame.put(&(message.bytes() as u16).to_be_bytes());
                message.write(0, message.bytes(), frame);
            }
        });
        Some(())
    }

    /// Adds the message with the next number to a frame, if it may be sent now and there is room for it: its bytes.
    fn add_to_bundle(&mut self, now: Instant, opcode: Opcode, load: Load, room: usize) -> Option<usize> {
        let next = load.first.message + u32::from(load.more) + 1;
        let fits = |message: &Message| {
            let has_room = message.bytes() + LENGTH_BYTES <= room;
            has_room && message.opcode == opcode && !message.control
        };
        if let Some(lost) = self.resend.front() {
            let open = self.open.get(next).filter(|_| *lost == Piece { message: next, fragment: 0 })?;
            let is_wanted = open.count == 1 && !open.is_acknowledged(0) && fits(&open.message);
            let bytes = open.message.bytes();
            return is_wanted.then(|| self.resend.pop_front()).map(|_| bytes);
        }
        let is_turn = self.current.is_none() && self.urgent.is_empty() && self.next_message == next;
        let bytes = self.waiting.front().filter(|message| is_turn && fits(message))?.bytes();
        let begun = self.begin(now)?;
        let open = self.open.get_mut(begun)?;
        open.next = open.count;
        Some(bytes)
    }

    fn asked(&mut self, now: Instant) {
        self.last_asked = now;
        self.stalled.get_or_insert(now);
    }

    /// Whether the peer is to be told of more credit without being asked.
    fn owes_credit(&self) -> bool {
        let granted = self.reassembly.granted();
        debug_assert!(granted >= self.told, "credit is not taken back");
        granted - self.told >= (self.agreed.our_credit / 4).max(1)
    }

    fn take_ack(&mut self, now: Instant, path: usize) -> Option<Ack> {
        let granted = self.reassembly.granted();
        let ack = self.paths[path].received.ack(now, granted)?;
        self.told = granted;
        Some(ack)
    }

    /// An acknowledgement, or the question for one.
    fn poll_control(&mut self, now: Instant, frame: &mut Frame) -> Option<u8> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let probed = self.paths.iter().position(|path| is_due(path.probe_at));
        if let Some(path) = probed {
            let ack = if self.paths[path].received.is_pending() { self.take_ack(now, path) } else { None };
            let number = self.paths[path].send(now, None);
            if self.paths[path].is_usable() {
                self.asked(now);
            }
            self.write(path, number, Header::plain(Opcode::AckRequest), ack, frame, |_, _| {});
            return Some(path as u8);
        }
        let due = self.paths.iter().position(|path| path.is_proven() && is_due(path.received.due()));
        let due = due.or_else(|| {
            let usable = || self.paths.iter().position(|path| path.is_proven() && !path.is_down());
            if self.owes_credit() { usable() } else { None }
        });
        let path = due?;
        let ack = self.take_ack(now, path)?;
        let number = self.paths[path].take_number();
        self.write(path, number, Header::plain(Opcode::Ack), Some(ack), frame, |_, _| {});
        Some(path as u8)
    }

    fn write(
        &mut self,
        path: usize,
        number: u64,
        header: Header,
        ack: Option<Ack>,
        frame: &mut Frame,
        body: impl FnOnce(&Transport, &mut Frame),
    ) {
        frame.begin(self.agreed.protection.is_aead());
        frame.put(&[0; HEADER_BYTES]);
        if let Some(ack) = &ack {
            frame.put(&ack.bytes());
        }
        body(self, frame);
        let header = Header {
            sealed: self.agreed.protection.is_aead(),
            length: (frame.len() - HEADER_BYTES) as u16,
            session: self.agreed.session,
            epoch: self.agreed.epoch,
            path: path as u8,
            has_ack: ack.is_some() && header.opcode != Opcode::Ack,
            number,
            ..header
        };
        frame.bytes[..HEADER_BYTES].copy_from_slice(&header.bytes());
        self.agreed.protection.seal(&header, frame);
        debug_assert!(frame.len() <= self.agreed.frame_bytes, "a frame that is too long");
        self.counters.frames_sent += 1;
    }
}

/// Bytes in front of each message but the first.
const LENGTH_BYTES: usize = 2;

/// Bytes of a message in a bundle at least, so that a frame carries no more of them than there are requests: the shortest PDU has more.
const MESSAGE_BYTES_MIN: usize = 12;

/// Whether the lengths in a body are those of two messages or more that fill it.
fn is_bundle(header: &Header, body: &[u8]) -> bool {
    let first = header.message_bytes as usize;
    let (mut rest, mut last) = (body.get(first..).filter(|_| first >= MESSAGE_BYTES_MIN), header.message);
    loop {
        match rest {
            None => return false,
            Some([]) => return last > header.message,
            Some([high, low, behind @ ..]) if last < u32::MAX => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                rest = behind.get(length..).filter(|_| length >= MESSAGE_BYTES_MIN);
                last += 1;
            }
            Some(_) => return false,
        }
    }
}

/// The messages of a body that [`is_bundle`], each with the header that it would have alone.
fn bundled<'a>(header: &Header, body: &'a [u8]) -> impl Iterator<Item = (Header, &'a [u8])> {
    debug_assert!(is_bundle(header, body));
    let alone = |message: u32, bytes: usize| Header {
        bundle: false,
        length: bytes as u16,
        message,
        message_bytes: bytes as u32,
        ..*header
    };
    let (first, mut rest) = body.split_at_checked(header.message_bytes as usize).unwrap_or((body, &[]));
    let behind = (header.message..=u32::MAX).skip(1).map_while(move |message| {
        let (length, from) = rest.split_first_chunk()?;
        let (bytes, behind) = from.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        rest = behind;
        Some((message, bytes))
    });
    let all = iter::once((header.message, first)).chain(behind);
    all.map(move |(message, bytes)| (alone(message, bytes.len()), bytes))
}

/// Counters of an end of a session, over all its epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AddAssign)]
pub struct Counters {
    /// Frames sent.
    pub frames_sent: u64,
    /// Genuine frames received.
    pub frames_received: u64,
    /// Frames that had been received before.
    pub frames_repeated: u64,
    /// Frames with a wrong checksum or seal.
    pub frames_damaged: u64,
    /// Fragments that broke a rule.
    pub fragments_refused: u64,
    /// Fragments that were sent again.
    pub fragments_lost: u64,
    /// Messages sent.
    pub messages_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Messages that had been received in an earlier epoch, and were not executed again.
    pub messages_repeated: u64,
}

impl Counters {
    /// What was counted since these.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            frames_sent: self.frames_sent.saturating_sub(earlier.frames_sent),
            frames_received: self.frames_received.saturating_sub(earlier.frames_received),
            frames_repeated: self.frames_repeated.saturating_sub(earlier.frames_repeated),
            frames_damaged: self.frames_damaged.saturating_sub(earlier.frames_damaged),
            fragments_refused: self.fragments_refused.saturating_sub(earlier.fragments_refused),
            fragments_lost: self.fragments_lost.saturating_sub(earlier.fragments_lost),
            messages_sent: self.messages_sent.saturating_sub(earlier.messages_sent),
            messages_received: self.messages_received.saturating_sub(earlier.messages_received),
            messages_repeated: self.messages_repeated.saturating_sub(earlier.messages_repeated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Opcode;

    fn bundle(message: u32, bytes: u32) -> Header {
        let plain = Header::plain(Opcode::Request);
        Header { bundle: true, message, message_bytes: bytes, ..plain }
    }

    /// `message_bytes` of each, then its bytes, each with its length but for the first.
    fn body(messages: &[&[u8]]) -> Vec<u8> {
        let mut body = messages[0].to_vec();
        for message in &messages[1..] {
            body.extend((message.len() as u16).to_be_bytes());
            body.extend_from_slice(message);
        }
        body
    }

    #[test]
    fn messages_come_out_with_the_headers_that_they_would_have_alone() {
        let all: [&[u8]; 3] = [b"the first one", b"and the second", b"the last one"];
        let (header, body) = (bundle(510, 13), body(&all));
        assert!(is_bundle(&header, &body));
        let out: Vec<(u32, u32, u16, &[u8])> = bundled(&header, &body)
            .map(|(header, bytes)| {
                assert!(!header.bundle);
                (header.message, header.message_bytes, header.length, bytes)
            })
            .collect();
        assert_eq!(out, [(510, 13, 13, all[0]), (511, 14, 14, all[1]), (512, 12, 12, all[2])]);
    }

    #[test]
    fn lengths_that_do_not_fill_the_body_are_wrong() {
        let good = body(&[b"the first one", b"and the second"]);
        assert!(is_bundle(&bundle(0, 13), &good));
        for length in 0..good.len() {
            assert!(
                !is_bundle(&bundle(0, 13), &good[..length]),
                "{length} bytes: cut off, or one message alone"
            );
        }
        assert!(!is_bundle(&bundle(0, 13), &[&good[..], b"f"].concat()), "a byte too many");
        assert!(!is_bundle(&bundle(0, u32::MAX), &good), "a giant");
        assert!(!is_bundle(&bundle(u32::MAX, 13), &good), "no number is behind the last one");
        assert!(!is_bundle(&bundle(0, 13), &body(&[b"the first one", b""])), "shorter than any PDU");
        assert!(!is_bundle(&bundle(0, 1), &body(&[b"1", b"and the second"])), "shorter than any PDU");
    }
}
