//! Messages of one epoch over unreliable paths: each arrives exactly once, in any order.
//!
//! ```text
//!  send ──► waiting ── credit and a free tag ──► open ── each fragment in a frame ──► path ── acknowledged ──► gone
//!                                                  ▲                                    │
//!                                                  └──────── resend ◄────── lost ───────┘
//! ```
//!
//! A message is started when all earlier ones have been sent once, so that messages that hold credit can
//! always be completed. Unacknowledged messages at the end of an epoch move to the next one
//! ([`Transport::into_messages`]).
//!
//! A frame may contain several messages. The cost of a frame does not depend on its length, so small queued
//! messages are sent together if both sides negotiated this at login. All messages of such a frame are
//! complete, and have the same opcode and consecutive numbers.
//!
//! ```text
//!  header: message, message length of the first │ [acknowledgement] │ first message │ length u16 │ next message │ …
//! ```

use std::collections::VecDeque;
use std::iter;
use std::time::{Duration, Instant};

use derive_more::AddAssign;

use crate::frame::{
    FRAGMENTS_MAX, FRAME_BYTES_MAX, FRAME_BYTES_MIN, Frame, HEADER_BYTES, Header,
    MESSAGES_OPEN_MAX, NUMBER_END, Opcode, PATHS_MAX, Payload, Protection,
};
use crate::path::{ACK_BYTES, Ack, Load, Path, Piece, Settled};
use crate::reassembly::{Delivered, Fragment, OpenMessages, Reassembly};

/// Interval at which missing credit is requested, in case the acknowledgement that grants more was lost.
const CREDIT_RETRY: Duration = Duration::from_millis(100);

/// The negotiated parameters of an epoch.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) session: u32,
    pub(crate) epoch: u16,
    pub(crate) protection: Protection,
    /// Bytes of a frame, from its header to its trailer.
    pub(crate) frame_bytes: usize,
    /// Number of usable paths.
    pub(crate) paths: usize,
    /// Initial credit granted to the peer in bytes.
    pub(crate) our_credit: u64,
    /// Credit granted by the peer in bytes.
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
    /// It overtakes others, needs no credit, and fits into a frame.
    pub(crate) control: bool,
    pub(crate) head: Vec<u8>,
    pub(crate) data: Payload,
    /// Returned by [`Transport::take_receipts`] when the message is acknowledged.
    pub(crate) receipt: Option<u64>,
}

impl Message {
    fn bytes(&self) -> usize {
        self.head.len() + self.data.len()
    }

    fn charge(&self) -> u64 {
        if self.control { 0 } else { self.bytes() as u64 }
    }

    /// Appends this range of the message to a frame.
    fn write(&self, start: usize, end: usize, into: &mut Frame) {
        let cut = self.head.len();
        into.put(&self.head[start.min(cut)..end.min(cut)]);
        into.put_data(&self.data, start.max(cut) - cut, end.max(cut) - cut);
    }
}

/// A message with fragments already sent.
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
    /// Bytes of messages started, and the peer's limit.
    charged: u64,
    allowed: u64,
    reassembly: Reassembly,
    /// The credit last advertised to the peer.
    told: u64,
    /// Bytes of unacknowledged messages.
    unacknowledged_bytes: usize,
    /// Receipts of acknowledged messages.
    receipts: Vec<u64>,
    /// Time since which an expected acknowledgement is missing.
    stalled: Option<Instant>,
    last_heard: Instant,
    last_asked: Instant,
    pub(crate) counters: Counters,
}

impl Transport {
    pub(crate) fn new(now: Instant, agreed: Agreed) -> Transport {
        debug_assert!(
            (FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&agreed.frame_bytes),
            "parameters negotiated at login"
        );
        let fragment_bytes = agreed.frame_bytes - HEADER_BYTES - agreed.protection.trailer_bytes();
        Transport {
            paths: (0..agreed.paths.min(PATHS_MAX))
                .map(|_| Path::new())
                .collect(),
            urgent: VecDeque::new(),
            waiting: VecDeque::new(),
            open: OpenMessages::new(),
            next_message: 0,
            current: None,
            resend: VecDeque::new(),
            charged: 0,
            allowed: agreed.their_credit,
            reassembly: Reassembly::new(
                fragment_bytes,
                agreed.message_bytes_max,
                agreed.our_credit,
            ),
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

    /// Number of unacknowledged messages.
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

    /// Time since which an expected acknowledgement is missing.
    pub(crate) fn stalled(&self) -> Option<Instant> {
        self.stalled
    }

    /// Time of the last authentic frame.
    pub(crate) fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// Time of the last sent frame that requests an acknowledgement, on a path that may deliver one.
    pub(crate) fn last_asked(&self) -> Instant {
        self.last_asked
    }

    /// The age of the epoch: the largest of the number of messages sent, the number of frames sent on the
    /// busiest path, and the number of frames received.
    pub(crate) fn age(&self) -> u64 {
        let ours = self.paths.iter().map(Path::next_number);
        ours.max()
            .unwrap_or(0)
            .max(u64::from(self.next_message))
            .max(self.counters.frames_received)
    }

    /// The state of each path: whether it carries fragments, its round-trip time and its window.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (bool, Option<Duration>, u32)> {
        self.paths
            .iter()
            .map(|path| (path.is_usable(), path.round_trip(), path.window()))
    }

    /// Notes that a frame of the peer arrived on this path before the epoch started.
    pub(crate) fn prove(&mut self, path: usize) {
        if let Some(path) = self.paths.get_mut(path) {
            path.heard();
        }
    }

    /// Requests an acknowledgement on each path.
    pub(crate) fn probe_all(&mut self, now: Instant) {
        self.last_asked = now;
        self.paths
            .iter_mut()
            .for_each(|path| path.probe_at = Some(now));
    }

    pub(crate) fn send(&mut self, message: Message) {
        self.unacknowledged_bytes += message.bytes();
        if message.control {
            self.urgent.push_back(message)
        } else {
            self.waiting.push_back(message)
        }
    }

    /// The receipts of messages acknowledged since the last call.
    pub(crate) fn take_receipts(&mut self) -> impl Iterator<Item = u64> + use<> {
        std::mem::take(&mut self.receipts).into_iter()
    }

    /// Releases a delivered message.
    pub(crate) fn release(&mut self, charge: u64) {
        self.reassembly.release(charge);
    }

    /// Unacknowledged messages, in sending order.
    pub(crate) fn into_messages(self) -> impl Iterator<Item = Message> {
        let open = self.open.into_values().map(|open| open.message);
        open.chain(self.urgent).chain(self.waiting)
    }

    /// Handles a frame of this session and epoch. Returns false if it is not authentic or a duplicate.
    /// Messages that it completes are added to `arrived`.
    pub(crate) fn handle_frame(
        &mut self,
        now: Instant,
        header: &Header,
        frame: &mut [u8],
        arrived: &mut Vec<Delivered>,
    ) -> bool {
        let path = usize::from(header.path);
        if !self
            .paths
            .get(path)
            .is_some_and(|path| path.received.is_new(header.number))
        {
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
            let Some(ack) = Ack::parse(body) else {
                return true;
            };
            self.acknowledge(now, path, &ack);
            body = &body[ACK_BYTES..];
        }
        if header.opcode.carries_message() && !self.take_messages(header, body, arrived) {
            // The frame is treated as lost: how a misbehaving peer reacts does not matter.
            self.counters.fragments_refused += 1;
            return true;
        }
        let wants_ack = header.opcode != Opcode::Ack;
        let at_once = header.ask || header.opcode == Opcode::AckRequest;
        self.paths[path]
            .received
            .record(now, header.number, wants_ack, at_once);
        true
    }

    /// Accepts the messages of a frame. Returns false if they violate the protocol: the frame will then not
    /// be acknowledged. Messages accepted before the violation was detected are not delivered again.
    fn take_messages(
        &mut self,
        header: &Header,
        body: &[u8],
        arrived: &mut Vec<Delivered>,
    ) -> bool {
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

    /// Ends a stall when no acknowledgement is outstanding. While all paths are down, the stall remains.
    fn end_stall(&mut self) {
        if self.usable().next().is_some() && !self.is_waiting() && self.resend.is_empty() {
            self.stalled = None;
        }
    }

    fn settle(&mut self, settled: &Settled) {
        for piece in &settled.acknowledged {
            let Some(open) = self.open.get_mut(piece.message) else {
                continue;
            };
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
        // Pieces that arrived after all are not retransmitted. With nothing more to send, nothing else would
        // remove them from the queue, and the session would count as stalled.
        while let Some(piece) = self.resend.front()
            && !self.is_wanted(*piece)
        {
            self.resend.pop_front();
        }
    }

    /// Whether a piece is still unacknowledged.
    fn is_wanted(&self, piece: Piece) -> bool {
        self.open
            .get(piece.message)
            .is_some_and(|open| !open.is_acknowledged(piece.fragment))
    }

    /// The paths usable for fragments. Others are probed continuously, and are irrelevant to the session's state.
    fn usable(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter(|path| path.is_usable())
    }

    /// Whether an acknowledgement is outstanding.
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
        self.paths
            .iter_mut()
            .for_each(|path| path.handle_timeout(now, &mut settled));
        self.settle(&settled);
        // The lost frame, or the path now down, may have been the last one with an outstanding
        // acknowledgement. After a timeout the request for it is repeated.
        if self.usable().all(|path| path.probe_at.is_none()) {
            self.end_stall();
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.paths.iter().filter_map(Path::deadline).min()
    }

    /// Writes the next frame into `frame`, and returns its path.
    pub(crate) fn poll_transmit(&mut self, now: Instant, frame: &mut Frame) -> Option<u8> {
        let path = self
            .fragment_path()
            .and_then(|path| Some((path, self.next_piece(now)?)));
        if let Some((path, piece)) = path {
            self.write_fragment(now, path, piece, frame)?;
            return Some(path as u8);
        }
        self.poll_control(now, frame)
    }

    /// The path for the next fragment.
    fn fragment_path(&self) -> Option<usize> {
        let usable = self
            .paths
            .iter()
            .enumerate()
            .filter(|(_, path)| path.is_usable() && path.has_room());
        let with_numbers = usable.filter(|(_, path)| path.next_number() < NUMBER_END - 1);
        with_numbers
            .min_by_key(|(_, path)| path.load())
            .map(|(index, _)| index)
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
        debug_assert!(
            usize::from(count) <= FRAGMENTS_MAX,
            "a message of too many fragments"
        );
        let serial = self.next_message;
        self.next_message += 1;
        self.counters.messages_sent += 1;
        let open = Open {
            message,
            count,
            next: 0,
            acknowledged: [0; _],
            missing: count,
        };
        self.open.push(serial, open);
        Some(serial)
    }

    /// Requests an acknowledgement after a while, if none is expected that could grant more credit.
    fn ask_for_credit(&mut self, now: Instant) {
        if self.is_waiting() || self.usable().any(|path| path.probe_at.is_some()) {
            return;
        }
        if let Some(path) = self.paths.iter_mut().find(|path| path.is_usable()) {
            path.probe_at = Some(now + CREDIT_RETRY);
        }
    }

    /// Writes a frame with a fragment, and with further whole messages if they fit. `None` if the fragment's
    /// message no longer exists, which cannot happen for one that was just looked up.
    fn write_fragment(
        &mut self,
        now: Instant,
        path: usize,
        piece: Piece,
        frame: &mut Frame,
    ) -> Option<()> {
        let fragment_bytes = self.fragment_bytes();
        let open = self.open.get(piece.message)?;
        let total = open.message.bytes();
        let start = usize::from(piece.fragment) * fragment_bytes;
        let end = total.min(start + fragment_bytes);
        debug_assert!(start <= end, "a fragment beyond the end of its message");
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
        let ack = if tells && end - start + ACK_BYTES <= fragment_bytes {
            self.take_ack(now, path)
        } else {
            None
        };
        let mut load = Load {
            first: piece,
            more: 0,
        };
        if is_whole && self.agreed.bundles {
            let ack_bytes = if ack.is_some() { ACK_BYTES } else { 0 };
            let mut room = fragment_bytes - (end - start) - ack_bytes;
            while let Some(bytes) = self.add_to_bundle(now, header.opcode, load, room) {
                load.more += 1;
                room -= LENGTH_BYTES + bytes;
            }
        }
        let header = Header {
            bundle: load.more > 0,
            ..header
        };
        let number = self.paths[path].send(now, Some(load));
        self.asked(now);
        self.write(path, number, header, ack, frame, |transport, frame| {
            if let Some(open) = transport.open.get(piece.message) {
                open.message.write(start, end, frame);
            }
            for behind in 1..=u32::from(load.more) {
                let Some(Open { message, .. }) = transport.open.get(piece.message + behind) else {
                    continue;
                };
                frame.put(&(message.bytes() as u16).to_be_bytes());
                message.write(0, message.bytes(), frame);
            }
        });
        Some(())
    }

    /// Adds the message with the next number to a frame, if it may be sent now and fits; returns its length.
    fn add_to_bundle(
        &mut self,
        now: Instant,
        opcode: Opcode,
        load: Load,
        room: usize,
    ) -> Option<usize> {
        let next = load.first.message + u32::from(load.more) + 1;
        let fits = |message: &Message| {
            let has_room = message.bytes() + LENGTH_BYTES <= room;
            has_room && message.opcode == opcode && !message.control
        };
        if let Some(lost) = self.resend.front() {
            let open = self.open.get(next).filter(|_| {
                *lost
                    == Piece {
                        message: next,
                        fragment: 0,
                    }
            })?;
            let is_wanted = open.count == 1 && !open.is_acknowledged(0) && fits(&open.message);
            let bytes = open.message.bytes();
            return is_wanted.then(|| self.resend.pop_front()).map(|_| bytes);
        }
        let is_turn = self.current.is_none() && self.urgent.is_empty() && self.next_message == next;
        let bytes = self
            .waiting
            .front()
            .filter(|message| is_turn && fits(message))?
            .bytes();
        let begun = self.begin(now)?;
        let open = self.open.get_mut(begun)?;
        open.next = open.count;
        Some(bytes)
    }

    fn asked(&mut self, now: Instant) {
        self.last_asked = now;
        self.stalled.get_or_insert(now);
    }

    /// Whether to advertise more credit to the peer without a request.
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

    /// Writes an acknowledgement, or a request for one.
    fn poll_control(&mut self, now: Instant, frame: &mut Frame) -> Option<u8> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let probed = self.paths.iter().position(|path| is_due(path.probe_at));
        if let Some(path) = probed {
            let ack = if self.paths[path].received.is_pending() {
                self.take_ack(now, path)
            } else {
                None
            };
            let number = self.paths[path].send(now, None);
            if self.paths[path].is_usable() {
                self.asked(now);
            }
            self.write(
                path,
                number,
                Header::plain(Opcode::AckRequest),
                ack,
                frame,
                |_, _| {},
            );
            return Some(path as u8);
        }
        let due = self
            .paths
            .iter()
            .position(|path| path.is_proven() && is_due(path.received.due()));
        let due = due.or_else(|| {
            let usable = || {
                self.paths
                    .iter()
                    .position(|path| path.is_proven() && !path.is_down())
            };
            if self.owes_credit() { usable() } else { None }
        });
        let path = due?;
        let ack = self.take_ack(now, path)?;
        let number = self.paths[path].take_number();
        self.write(
            path,
            number,
            Header::plain(Opcode::Ack),
            Some(ack),
            frame,
            |_, _| {},
        );
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
        debug_assert!(
            frame.len() <= self.agreed.frame_bytes,
            "a frame that is too long"
        );
        self.counters.frames_sent += 1;
    }
}

/// Bytes before each message except the first.
const LENGTH_BYTES: usize = 2;

/// Minimum length of a message in a bundle, which limits the number of messages in a frame. All PDUs that a
/// bundle may contain are longer.
const MESSAGE_BYTES_MIN: usize = 12;

/// Whether a body consists of two or more whole messages, according to the lengths in the header and in the
/// body.
fn is_bundle(header: &Header, body: &[u8]) -> bool {
    let first = header.message_bytes as usize;
    let (mut rest, mut last) = (
        body.get(first..).filter(|_| first >= MESSAGE_BYTES_MIN),
        header.message,
    );
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

/// The messages of a body that [`is_bundle`], each with the header that it would have in a separate frame.
fn bundled<'a>(header: &Header, body: &'a [u8]) -> impl Iterator<Item = (Header, &'a [u8])> {
    debug_assert!(is_bundle(header, body));
    let alone = |message: u32, bytes: usize| Header {
        bundle: false,
        length: bytes as u16,
        message,
        message_bytes: bytes as u32,
        ..*header
    };
    let (first, mut rest) = body
        .split_at_checked(header.message_bytes as usize)
        .unwrap_or((body, &[]));
    let behind = (header.message..=u32::MAX)
        .skip(1)
        .map_while(move |message| {
            let (length, from) = rest.split_first_chunk()?;
            let (bytes, behind) =
                from.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            rest = behind;
            Some((message, bytes))
        });
    let all = iter::once((header.message, first)).chain(behind);
    all.map(move |(message, bytes)| (alone(message, bytes.len()), bytes))
}

/// Counters of one side of a session, over all its epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AddAssign)]
pub struct Counters {
    /// Frames sent.
    pub frames_sent: u64,
    /// Authentic frames received.
    pub frames_received: u64,
    /// Duplicate frames.
    pub frames_repeated: u64,
    /// Frames with a wrong checksum or authentication tag.
    pub frames_damaged: u64,
    /// Fragments that violated the protocol.
    pub fragments_refused: u64,
    /// Fragments that counted as lost. They are retransmitted unless they turn out to be only late.
    pub fragments_lost: u64,
    /// Messages sent.
    pub messages_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Messages already received in an earlier epoch, which were not executed again.
    pub messages_repeated: u64,
}

impl Counters {
    /// The difference from earlier counters.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            frames_sent: self.frames_sent.saturating_sub(earlier.frames_sent),
            frames_received: self.frames_received.saturating_sub(earlier.frames_received),
            frames_repeated: self.frames_repeated.saturating_sub(earlier.frames_repeated),
            frames_damaged: self.frames_damaged.saturating_sub(earlier.frames_damaged),
            fragments_refused: self
                .fragments_refused
                .saturating_sub(earlier.fragments_refused),
            fragments_lost: self.fragments_lost.saturating_sub(earlier.fragments_lost),
            messages_sent: self.messages_sent.saturating_sub(earlier.messages_sent),
            messages_received: self
                .messages_received
                .saturating_sub(earlier.messages_received),
            messages_repeated: self
                .messages_repeated
                .saturating_sub(earlier.messages_repeated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Opcode;

    fn bundle(message: u32, bytes: u32) -> Header {
        let plain = Header::plain(Opcode::Request);
        Header {
            bundle: true,
            message,
            message_bytes: bytes,
            ..plain
        }
    }

    /// The bytes of each message, preceded by its length except for the first.
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
        assert_eq!(
            out,
            [
                (510, 13, 13, all[0]),
                (511, 14, 14, all[1]),
                (512, 12, 12, all[2])
            ]
        );
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
        assert!(
            !is_bundle(&bundle(0, 13), &[&good[..], b"f"].concat()),
            "a byte too many"
        );
        assert!(!is_bundle(&bundle(0, u32::MAX), &good), "a giant");
        assert!(
            !is_bundle(&bundle(u32::MAX, 13), &good),
            "no number is behind the last one"
        );
        assert!(
            !is_bundle(&bundle(0, 13), &body(&[b"the first one", b""])),
            "shorter than any PDU"
        );
        assert!(
            !is_bundle(&bundle(0, 1), &body(&[b"1", b"and the second"])),
            "shorter than any PDU"
        );
    }
}
