//! The tape of a connection, which records the whole login and the last PDUs in bounded memory.
//!
//! Recording a PDU takes a few short copies into existing memory. Once the ring is full, nothing is
//! allocated; nothing is formatted, and the clock is not read. Recording a command takes 8 ns, and a response
//! with data 21 ns. Short, informative data (text, sense data, pages, NOPs) is kept whole, in a separate ring
//! that drops the oldest data first. For reads and writes, only the first bytes are kept, which are enough to
//! recognise the kind of block.

use std::net::SocketAddr;
use std::time::Instant;

use iscsi::framing::Framing;
use iscsi::pdu::{BHS_BYTES, Bhs, Opcode};

/// The direction of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Sent,
    Received,
}

/// The endpoints of the connection.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    /// The connection ID (RFC 7143 section 4.2.7.2).
    pub(crate) cid: u16,
    /// The target's iSCSI name; `None` for discovery.
    pub(crate) target: Option<String>,
}

/// The tape of a connection: see the module.
#[derive(Clone)]
pub(crate) struct Tape {
    ends: Ends,
    /// Capacity of the ring in PDUs. With zero, nothing is recorded.
    capacity: usize,
    login: Vec<LoginPdu>,
    login_bytes: usize,
    /// The digests used after the login; `None` until the login has completed.
    framing: Option<Framing>,
    /// The PDUs of the full feature phase. Once full, this is a ring.
    pdus: Vec<Pdu>,
    /// Index of the next PDU.
    next: usize,
    /// PDUs recorded after the login, including those already overwritten.
    count: u64,
    /// The received PDU whose data has not arrived yet.
    open: Option<Slot>,
    long: ByteRing,
    whole: Whole,
    /// The reason for the connection, if it is not obvious.
    occasion: Option<String>,
    ending: Option<(Instant, String)>,
}

/// The position of a PDU, valid until it is overwritten.
#[derive(Clone, Copy)]
struct Slot {
    index: usize,
    number: u64,
}

/// A PDU of the login as it was transferred. Login PDUs have no digests.
#[derive(Clone)]
struct LoginPdu {
    at: Instant,
    direction: Direction,
    bytes: Vec<u8>,
}

/// A PDU of the full feature phase.
#[derive(Clone)]
struct Pdu {
    at: Instant,
    direction: Direction,
    bhs: Bhs,
    ahs: Option<RingRange>,
    header_digest: [u8; DIGEST_BYTES],
    data: Data,
}

/// The recorded part of a data segment.
#[derive(Clone)]
struct Data {
    head: [u8; HEAD_BYTES],
    head_bytes: u8,
    /// The rest, if there is more than the head.
    more: Option<RingRange>,
    /// Padding and digest.
    trailer: [u8; TRAILER_BYTES_MAX],
    trailer_bytes: u8,
}

/// Size of an entry of the ring: the memory figures in the documents depend on it.
const _: () = assert!(size_of::<Pdu>() <= 208);

const DIGEST_BYTES: usize = 4;
const TRAILER_BYTES_MAX: usize = 3 + DIGEST_BYTES;
/// Number of bytes kept for every data segment: enough to recognise the start of a partition table, a file
/// system's magic number, or a pattern.
const HEAD_BYTES: usize = 64;
/// Maximum number of bytes kept for a data segment that is recorded whole. No text (`iscsi::text`) and no
/// requested page is longer.
const WHOLE_BYTES_MAX: usize = 8 << 10;
/// Maximum number of bytes kept for the PDUs of a login. A regular login has two to ten PDUs of a few hundred
/// bytes each.
const LOGIN_BYTES_MAX: usize = 64 << 10;

/// A PDU as recorded on the tape.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) at: Instant,
    pub(crate) direction: Direction,
    /// The recorded part, from the start of the PDU.
    pub(crate) kept: Vec<u8>,
    /// The PDU's length on the wire, with padding and digests.
    pub(crate) wire_bytes: usize,
    /// A human-readable remark.
    pub(crate) remark: Option<String>,
}

impl Tape {
    pub(crate) fn new(ends: Ends, capacity: usize) -> Tape {
        Tape {
            ends,
            capacity,
            login: Vec::new(),
            login_bytes: 0,
            framing: None,
            pdus: Vec::new(),
            next: 0,
            count: 0,
            open: None,
            long: ByteRing::default(),
            whole: Whole::default(),
            occasion: None,
            ending: None,
        }
    }

    // --- recording

    /// Records a PDU of the login, including its padding, or the part of it that was received.
    pub(crate) fn login(&mut self, at: Instant, direction: Direction, bytes: &[u8]) {
        if self.capacity > 0 && self.login_bytes + bytes.len() <= LOGIN_BYTES_MAX {
            self.login_bytes += bytes.len();
            debug_assert!(self.login_bytes <= LOGIN_BYTES_MAX);
            self.login.push(LoginPdu {
                at,
                direction,
                bytes: bytes.to_vec(),
            });
        }
    }

    /// Records the successful end of the login; later PDUs have these digests.
    pub(crate) fn logged_in(&mut self, framing: Framing) {
        self.framing = Some(framing);
    }

    /// Sets the human-readable reason for the connection, which becomes the comment of the first packet.
    pub(crate) fn occasion(&mut self, what: String) {
        self.occasion = Some(what);
    }

    /// Records a PDU that was passed to the kernel. `header` includes the header digest; `trailer` is the
    /// data's padding and digest.
    pub(crate) fn sent(&mut self, at: Instant, header: &[u8], data: &[u8], trailer: &[u8]) {
        if let Some(slot) = self.begin(at, Direction::Sent, header) {
            self.attach(slot, data, trailer);
        }
    }

    /// Records the received header of a PDU with its digest, even if the digest is wrong.
    pub(crate) fn received(&mut self, at: Instant, header: &[u8]) {
        self.open = self.begin(at, Direction::Received, header);
    }

    /// Records the data segment of the latest header.
    pub(crate) fn received_data(&mut self, data: &[u8], trailer: &[u8]) {
        if let Some(slot) = self.open.take() {
            self.attach(slot, data, trailer);
        }
    }

    /// Records the end of the connection. Only the first reason is kept.
    pub(crate) fn end(&mut self, at: Instant, why: String) {
        self.ending.get_or_insert((at, why));
    }

    /// Records a header.
    fn begin(&mut self, at: Instant, direction: Direction, header: &[u8]) -> Option<Slot> {
        let (bhs, rest) = header
            .split_first_chunk::<BHS_BYTES>()
            .filter(|_| self.capacity > 0)?;
        let slot = self.advance(at);
        let pdu = &mut self.pdus[slot.index];
        (pdu.at, pdu.direction, pdu.bhs, pdu.ahs) = (at, direction, Bhs(*bhs), None);
        pdu.data.clear();
        self.whole.notice(&pdu.bhs);
        if !rest.is_empty() {
            let (ahs, digest) = rest.split_at(pdu.bhs.total_ahs_length().min(rest.len()));
            pdu.ahs = if ahs.is_empty() {
                None
            } else {
                Some(self.long.put(ahs))
            };
            if let Some(digest) = digest.first_chunk() {
                pdu.header_digest = *digest;
            }
        }
        Some(slot)
    }

    /// Moves to the next entry. Once the ring is full, the oldest PDU's entry is reused in place: a PDU has
    /// several cache lines, and most of them need not be written.
    fn advance(&mut self, at: Instant) -> Slot {
        let slot = Slot {
            index: self.next,
            number: self.count,
        };
        if slot.index == self.pdus.len() {
            self.pdus.push(Pdu::new(at));
        }
        self.next = if slot.index + 1 == self.capacity {
            0
        } else {
            slot.index + 1
        };
        self.count += 1;
        debug_assert!(self.pdus.len() <= self.capacity && self.next <= self.pdus.len());
        slot
    }

    /// Records the data of a PDU, unless its entry has been overwritten.
    fn attach(&mut self, slot: Slot, data: &[u8], trailer: &[u8]) {
        if data.is_empty() || self.count - slot.number > self.capacity as u64 {
            return;
        }
        debug_assert!(
            slot.number < self.count,
            "a header was recorded before its data"
        );
        let pdu = &mut self.pdus[slot.index];
        pdu.data.keep(data, trailer);
        if data.len() > HEAD_BYTES && self.whole.is_wanted(&pdu.bhs) {
            pdu.data.more = Some(self.long.put(&data[..data.len().min(WHOLE_BYTES_MAX)]));
        }
    }

    // --- reading

    pub(crate) fn ends(&self) -> &Ends {
        &self.ends
    }

    pub(crate) fn has_logged_in(&self) -> bool {
        self.framing.is_some()
    }

    /// If the connection has ended, returns the time at which it ended, and the reason.
    pub(crate) fn ending(&self) -> Option<(Instant, &str)> {
        self.ending.as_ref().map(|(at, why)| (*at, why.as_str()))
    }

    /// Returns all recorded PDUs, oldest first.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = Recorded> {
        let mut login = self.login.iter().map(LoginPdu::recorded).peekable();
        if let Some(first) = login.peek_mut() {
            first.remark = self.occasion.clone();
        }
        let lost = self.count - self.pdus.len() as u64;
        let (newer, older) = self.pdus.split_at(if lost == 0 { 0 } else { self.next });
        let remark =
            (lost > 0).then(|| format!("{lost} PDUs between the login and this one were not kept"));
        let mut ring = older
            .iter()
            .chain(newer)
            .map(|pdu| self.read(pdu))
            .peekable();
        if let Some(first) = ring.peek_mut() {
            first.remark = remark.or(first.remark.take());
        }
        login.chain(ring)
    }

    /// Returns the recorded bytes of a PDU, up to the first missing byte.
    fn read(&self, pdu: &Pdu) -> Recorded {
        let framing = self.framing.unwrap_or_default();
        let length = pdu.bhs.data_segment_length() as usize;
        let mut kept = pdu.bhs.0.to_vec();
        let ahs = pdu.ahs.map_or(Some(&[][..]), |place| self.long.get(place));
        if let Some(ahs) = ahs {
            kept.extend_from_slice(ahs);
            kept.extend_from_slice(
                &pdu.header_digest[..if framing.header_digest {
                    DIGEST_BYTES
                } else {
                    0
                }],
            );
            let data = pdu
                .data
                .more
                .and_then(|place| self.long.get(place))
                .unwrap_or(pdu.data.head());
            kept.extend_from_slice(data);
            if data.len() == length {
                kept.extend_from_slice(pdu.data.trailer());
            }
        }
        let remark = (length > 0 && pdu.data.head().is_empty())
            .then(|| "its data was not received, or was no longer expected".to_owned());
        let wire_bytes = framing.header_bytes(&pdu.bhs) + framing.segment_bytes(&pdu.bhs);
        Recorded {
            at: pdu.at,
            direction: pdu.direction,
            kept,
            wire_bytes,
            remark,
        }
    }
}

impl LoginPdu {
    fn recorded(&self) -> Recorded {
        let framing = Framing::default();
        let announced = self.bytes.first_chunk().map_or(0, |bhs| {
            framing.header_bytes(&Bhs(*bhs)) + framing.segment_bytes(&Bhs(*bhs))
        });
        let kept = self.bytes.clone();
        let wire_bytes = announced.max(kept.len());
        Recorded {
            at: self.at,
            direction: self.direction,
            kept,
            wire_bytes,
            remark: None,
        }
    }
}

impl Pdu {
    /// Returns an empty entry.
    fn new(at: Instant) -> Pdu {
        let data = Data {
            head: [0; HEAD_BYTES],
            head_bytes: 0,
            more: None,
            trailer: [0; TRAILER_BYTES_MAX],
            trailer_bytes: 0,
        };
        let bhs = Bhs([0; BHS_BYTES]);
        Pdu {
            at,
            direction: Direction::Sent,
            bhs,
            ahs: None,
            header_digest: [0; DIGEST_BYTES],
            data,
        }
    }
}

impl Data {
    fn clear(&mut self) {
        (self.head_bytes, self.trailer_bytes, self.more) = (0, 0, None);
    }

    fn keep(&mut self, data: &[u8], trailer: &[u8]) {
        debug_assert!(
            trailer.len() <= TRAILER_BYTES_MAX,
            "a trailer is padding and a digest"
        );
        match data.first_chunk() {
            // The usual case has a constant length, so the copy needs no function call.
            Some(head) => (self.head, self.head_bytes) = (*head, HEAD_BYTES as u8),
            None => self.head_bytes = copied(data, &mut self.head),
        }
        self.trailer_bytes = if trailer.is_empty() {
            0
        } else {
            copied(trailer, &mut self.trailer)
        };
    }

    fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_bytes)]
    }

    fn trailer(&self) -> &[u8] {
        &self.trailer[..usize::from(self.trailer_bytes)]
    }
}

/// Copies as many bytes as fit, and returns their number. No destination here is longer than 64 bytes.
fn copied(from: &[u8], to: &mut [u8]) -> u8 {
    debug_assert!(to.len() <= HEAD_BYTES);
    let bytes = from.len().min(to.len());
    to[..bytes].copy_from_slice(&from[..bytes]);
    bytes as u8
}

// A ring buffer of byte strings in bounded memory.
//
// Every string is contiguous. A string that does not fit before the end of the memory is stored at the start
// of the memory, over the oldest strings. A [`RingRange`] refers to a string until the string is overwritten.

/// The capacity of a ring in bytes.
pub(crate) const RING_BYTES: usize = 64 << 10;

/// A ring buffer of byte strings.
#[derive(Clone, Default)]
pub(crate) struct ByteRing {
    /// The memory. It grows up to [`RING_BYTES`] on the first lap.
    bytes: Vec<u8>,
    /// Bytes written since the start, including those skipped at the end of the memory.
    written: u64,
}

/// The position of a string in the ring.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct RingRange {
    start: u64,
    length: usize,
}

impl ByteRing {
    /// Stores a string. If the string is longer than the ring, stores only its start.
    pub(crate) fn put(&mut self, piece: &[u8]) -> RingRange {
        let piece = &piece[..piece.len().min(RING_BYTES)];
        let mut at = index(self.written);
        if at + piece.len() > RING_BYTES {
            self.written += (RING_BYTES - at) as u64;
            at = 0;
        }
        let (start, end) = (self.written, at + piece.len());
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at..end].copy_from_slice(piece);
        self.written += piece.len() as u64;
        debug_assert!(self.bytes.len() <= RING_BYTES);
        RingRange {
            start,
            length: piece.len(),
        }
    }

    /// Returns a string; `None` if it has been overwritten.
    pub(crate) fn get(&self, place: RingRange) -> Option<&[u8]> {
        debug_assert!(place.start <= self.written, "the string is of this ring");
        if self.written - place.start > RING_BYTES as u64 {
            return None;
        }
        let at = index(place.start);
        self.bytes.get(at..at + place.length)
    }
}

fn index(position: u64) -> usize {
    (position % RING_BYTES as u64) as usize
}

// Decides which data is recorded whole: the data of all commands except reads and writes.
//
// A Data-In PDU does not contain the operation code of its command, so the tags of commands are recorded.

/// The tags of the last commands that moved data other than blocks.
#[derive(Clone)]
pub(crate) struct Whole {
    tags: [u32; TAGS],
    /// The index of the tag that is overwritten next.
    oldest: usize,
}

/// Number of tags. In practice, no more commands of this kind are outstanding at the same time.
const TAGS: usize = 16;
/// The reserved tag (RFC 7143 section 11.2.1.8).
const RESERVED: u32 = 0xffff_ffff;
/// Offset of the CDB, which starts with the operation code, in a SCSI Command.
const CDB: usize = 32;

impl Default for Whole {
    fn default() -> Whole {
        Whole {
            tags: [RESERVED; TAGS],
            oldest: 0,
        }
    }
}

impl Whole {
    /// If this is the header of a command, records its tag, or removes the tag if the command transfers
    /// blocks.
    pub(crate) fn notice(&mut self, bhs: &Bhs) {
        if !is(bhs, Opcode::ScsiCommand) {
            return;
        }
        let tag = bhs.itt_raw();
        // Always compare all tags, so that the compiler can vectorise the loop.
        self.tags
            .iter_mut()
            .for_each(|known| *known = if *known == tag { RESERVED } else { *known });
        if !moves_blocks(bhs.u8(CDB)) {
            self.tags[self.oldest] = tag;
            self.oldest = (self.oldest + 1) % TAGS;
        }
    }

    /// Returns whether the data of this PDU is recorded whole.
    pub(crate) fn is_wanted(&self, bhs: &Bhs) -> bool {
        let of_a_command = [Opcode::ScsiCommand, Opcode::DataIn, Opcode::DataOut];
        !of_a_command.iter().any(|opcode| is(bhs, *opcode)) || self.has(bhs.itt_raw())
    }

    /// Returns whether the tag is recorded. The loop has no early exit, so that the compiler can vectorise
    /// it.
    fn has(&self, tag: u32) -> bool {
        self.tags
            .iter()
            .fold(false, |found, known| found | (*known == tag))
    }
}

fn is(bhs: &Bhs, opcode: Opcode) -> bool {
    bhs.u8(0) & 0x3f == opcode as u8
}

/// Returns whether a command transfers the medium's data (SBC-3 table 12).
fn moves_blocks(operation_code: u8) -> bool {
    match operation_code {
        0x08 | 0x28 | 0xa8 | 0x88 => true, // READ (6), (10), (12), (16)
        0x0a | 0x2a | 0xaa | 0x8a => true, // WRITE
        0x2e | 0xae | 0x8e | 0x2f | 0xaf | 0x8f => true, // WRITE AND VERIFY, VERIFY
        0x41 | 0x93 | 0x89 | 0x9c => true, // WRITE SAME, COMPARE AND WRITE, WRITE ATOMIC (16)
        0x7f => true,                      // the 32-byte forms
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_piece_is_there_until_the_ring_has_come_round() {
        let mut ring = ByteRing::default();
        let first = ring.put(b"first");
        ring.put(&vec![1; RING_BYTES - 5]);
        assert_eq!(ring.get(first), Some(&b"first"[..]));
        ring.put(b"x");
        assert_eq!(ring.get(first), None);
    }

    #[test]
    fn a_piece_longer_than_the_ring_keeps_its_beginning() {
        let mut ring = ByteRing::default();
        let place = ring.put(&vec![7; RING_BYTES + 1]);
        assert_eq!(ring.get(place).map(<[u8]>::len), Some(RING_BYTES));
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_was_put(lengths in prop::collection::vec(0usize..20_000, 1..40)) {
            let mut ring = ByteRing::default();
            let mut put = Vec::new();
            for (number, length) in lengths.into_iter().enumerate() {
                let piece = vec![number as u8; length];
                put.push((ring.put(&piece), piece));
                let (last, piece) = &put[number];
                prop_assert_eq!(ring.get(*last), Some(&piece[..]));
            }
            for (place, piece) in put {
                prop_assert!(ring.get(place).is_none_or(|found| found == piece));
            }
            prop_assert!(ring.bytes.len() <= RING_BYTES);
        }
    }

    fn command(tag: u32, operation_code: u8) -> Bhs {
        let mut bhs = Bhs::new(Opcode::ScsiCommand);
        bhs.set_u32(16, tag);
        bhs.set_u8(CDB, operation_code);
        bhs
    }

    fn answer(tag: u32) -> Bhs {
        let mut bhs = Bhs::new(Opcode::DataIn);
        bhs.set_u32(16, tag);
        bhs
    }

    #[test]
    fn data_are_wanted_that_are_no_mediums() {
        let mut whole = Whole::default();
        whole.notice(&command(1, 0x12)); // INQUIRY
        whole.notice(&command(2, 0x28)); // READ (10)
        assert!(whole.is_wanted(&answer(1)));
        assert!(!whole.is_wanted(&answer(2)));
        assert!(whole.is_wanted(&Bhs::new(Opcode::TextResponse)));
    }

    #[test]
    fn a_tag_that_is_used_again_counts_for_its_last_command() {
        let mut whole = Whole::default();
        whole.notice(&command(1, 0x12));
        whole.notice(&command(1, 0x8a)); // WRITE (16)
        assert!(!whole.is_wanted(&answer(1)));
    }
}
