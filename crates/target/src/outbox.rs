//! What a connection has yet to say: headers from one arena, payload from where it lies, in one system call.
//!
//! Filled from the session's machine up to a limit, then sent until empty; the socket's own buffer keeps the
//! wire busy meanwhile.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use block::{Buffer, Region};
use iscsi::framing::Framing;
use iscsi::pdu::Bhs;
use reactor::{OutSlice, Stream};

/// Beyond this many bytes the machine is not asked for more until the socket has taken them.
const FILL_BYTES: usize = 1 << 20;
/// What one system call takes at most: what the world's streams pass on at once.
const SLICES: usize = 64;

/// Data on its way to an initiator.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// Nothing.
    None,
    /// A parameter list or an answer in text.
    Bytes(Rc<[u8]>),
    /// Blocks read into a buffer.
    Buffer(Rc<Buffer>),
    /// Blocks where they lie.
    Memory(Region),
}

impl Payload {
    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        match self {
            Payload::None => 0,
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Buffer(buffer) => buffer.len(),
            Payload::Memory(region) => region.len(),
        }
    }
}

enum Piece {
    Arena(Range<usize>),
    Payload(Payload, Range<usize>),
    /// Kept until everything before it is sent: a range lock, usually.
    Keep(#[allow(dead_code, reason = "held for its drop")] block::Shared),
}

/// The queue.
#[derive(Default)]
pub(crate) struct Outbox {
    arena: Vec<u8>,
    pieces: VecDeque<Piece>,
    /// How much of the first piece is sent.
    sent: usize,
    queued_bytes: usize,
}

impl Outbox {
    /// Whether everything is sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether more may be put in.
    pub(crate) fn has_room(&self) -> bool {
        self.queued_bytes < FILL_BYTES
    }

    /// Adds a header, and its digest if there is one.
    pub(crate) fn push_header(&mut self, header: &Bhs, framing: Framing) {
        let start = self.arena.len();
        self.arena.extend_from_slice(&header.0);
        framing.end_header(&mut self.arena, start);
        self.queue_arena(start);
    }

    /// Adds a data segment of the machine's own making.
    pub(crate) fn push_inline(&mut self, data: &[u8], framing: Framing) {
        let start = self.arena.len();
        self.arena.extend_from_slice(data);
        framing.end_data(&mut self.arena, data);
        self.queue_arena(start);
    }

    /// Adds a part of a payload as a data segment.
    pub(crate) fn push_segment(&mut self, payload: Payload, range: Range<usize>, framing: Framing) {
        let data = match &payload {
            Payload::None => return,
            Payload::Bytes(bytes) => &bytes[range.clone()],
            Payload::Buffer(buffer) => &buffer[range.clone()],
            // Whole blocks need no padding, and with digests on sessions send copies: `session::outgoing`.
            Payload::Memory(_) => &[],
        };
        // The trailer is made first, while the data is at hand, and queued behind it.
        let start = self.arena.len();
        framing.end_data(&mut self.arena, data);
        self.queued_bytes += range.len();
        self.pieces.push_back(Piece::Payload(payload, range));
        self.queue_arena(start);
    }

    /// Queues what the arena has from `start` on.
    fn queue_arena(&mut self, start: usize) {
        let end = self.arena.len();
        self.queued_bytes += end - start;
        match self.pieces.back_mut() {
            _ if start == end => {}
            Some(Piece::Arena(last)) if last.end == start => last.end = end,
            _ => self.pieces.push_back(Piece::Arena(start..end)),
        }
    }

    /// Keeps `lock` until all that is queued so far is sent.
    pub(crate) fn keep(&mut self, lock: block::Shared) {
        self.pieces.push_back(Piece::Keep(lock));
    }

    /// Sends as much as the stream takes. `Ok(true)` if anything went.
    pub(crate) fn send(&mut self, stream: &dyn Stream) -> io::Result<bool> {
        let mut progress = false;
        while self.queued_bytes > 0 {
            let outcome = self.send_once(stream);
            match outcome {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    self.advance(sent);
                    progress = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(progress)
    }

    fn send_once(&self, stream: &dyn Stream) -> io::Result<usize> {
        let mut slices = [const { OutSlice::Bytes(&[]) }; SLICES];
        let mut filled = 0;
        let mut skip = self.sent;
        for piece in &self.pieces {
            if filled == SLICES {
                break;
            }
            let Some(slice) = self.slice(piece, skip) else { continue };
            slices[filled] = slice;
            filled += 1;
            skip = 0;
        }
        stream.try_write(&slices[..filled])
    }

    /// What of `piece` follows its first `skip` bytes; `None` if it has no bytes at all.
    fn slice<'a>(&'a self, piece: &'a Piece, skip: usize) -> Option<OutSlice<'a>> {
        match piece {
            Piece::Arena(range) => Some(OutSlice::Bytes(&self.arena[range.start + skip..range.end])),
            Piece::Payload(payload, range) => {
                let rest = range.start + skip..range.end;
                match payload {
                    Payload::None => None,
                    Payload::Bytes(bytes) => Some(OutSlice::Bytes(&bytes[rest])),
                    Payload::Buffer(buffer) => Some(OutSlice::Bytes(&buffer[rest])),
                    Payload::Memory(region) => Some(OutSlice::Shared(&region.bytes()[rest])),
                }
            }
            Piece::Keep(_) => None,
        }
    }

    /// Takes `sent` bytes off the front, and what was only kept until then.
    fn advance(&mut self, mut sent: usize) {
        self.queued_bytes -= sent;
        while let Some(piece) = self.pieces.front() {
            let length = match piece {
                Piece::Arena(range) | Piece::Payload(_, range) => range.len() - self.sent,
                Piece::Keep(_) => 0,
            };
            if sent < length {
                self.sent += sent;
                return;
            }
            sent -= length;
            self.sent = 0;
            self.pieces.pop_front();
        }
        self.arena.clear();
    }
}
