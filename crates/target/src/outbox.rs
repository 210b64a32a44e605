//! What a connection has yet to say: headers from one arena, payload from where it lies, in one system call.
//!
//! Filled from the session's machine up to a limit, then sent until empty; the socket's own buffer keeps the
//! wire busy meanwhile.
//!
//! With data digests, blocks of a medium that is memory are copied when it is their turn, since another session may
//! overwrite them between the sum and the kernel's copy, and their reader would close its connection for that. Of
//! such copies the queue has few: they are taken from the buffers that were sent last, and stay in the cache.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use block::{Buffer, Region};
use iscsi::digest::{self, DIGEST_BYTES, RunningDigest};
use iscsi::framing::Framing;
use iscsi::pdu::Bhs;
use reactor::{OutSlice, Stream};

/// Beyond this many bytes the machine is not asked for more until the socket has taken them.
const FILL_BYTES: usize = 1 << 20;
/// What one system call takes at most: what the world's streams pass on at once.
const SLICES: usize = 64;

/// The same with data digests: the copies are to be in the second-level cache still when the kernel takes them.
const STAGED_BYTES: usize = 256 << 10;
/// Copies this short go among the headers: one slice for the kernel instead of two for each PDU.
const ARENA_COPY_BYTES_MAX: usize = 8 << 10;
/// What a connection keeps of its arena when all is sent: the headers of a whole window.
const ARENA_KEPT_BYTES: usize = 16 << 10;
/// What is copied and then summed at once: a part of the first-level cache.
const PIECE_BYTES: usize = 16 << 10;

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

/// How long a data segment may be, if the peer takes `peer_max`: no longer than what is copied for it may be.
pub(crate) fn segment_max(peer_max: u32, framing: Framing) -> u32 {
    if framing.data_digest { peer_max.min(STAGED_BYTES as u32) } else { peer_max }
}

enum Piece {
    Arena(Range<usize>),
    Payload(Payload, Range<usize>),
    /// Kept until everything before it is sent: a range lock, usually.
    Keep(#[allow(dead_code, reason = "held for its drop")] block::Shared),
}

/// The queue.
pub(crate) struct Outbox {
    framing: Framing,
    arena: Vec<u8>,
    pieces: VecDeque<Piece>,
    /// How much of the first piece is sent.
    sent: usize,
    queued_bytes: usize,
}

impl Outbox {
    /// An empty one.
    pub(crate) fn new(framing: Framing) -> Outbox {
        Outbox { framing, arena: Vec::new(), pieces: VecDeque::new(), sent: 0, queued_bytes: 0 }
    }

    /// Whether everything is sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether more may be put in. The arena counts as long as a part of it is not sent: it is emptied as a whole.
    pub(crate) fn has_room(&self) -> bool {
        let room_bytes = if self.framing.data_digest { STAGED_BYTES } else { FILL_BYTES };
        self.queued_bytes.max(self.arena.len()) < room_bytes
    }

    /// Adds a header, and its digest if there is one.
    pub(crate) fn push_header(&mut self, header: &Bhs) {
        let start = self.arena.len();
        self.arena.extend_from_slice(&header.0);
        self.framing.end_header(&mut self.arena, start);
        self.queue_arena(start);
    }

    /// Adds a data segment of the machine's own making.
    pub(crate) fn push_inline(&mut self, data: &[u8]) {
        let start = self.arena.len();
        self.arena.extend_from_slice(data);
        self.framing.end_data(&mut self.arena, data);
        self.queue_arena(start);
    }

    /// Adds a part of a payload as a data segment.
    pub(crate) fn push_segment(&mut self, payload: Payload, range: Range<usize>) {
        // The trailer is made first, while the data is at hand, and queued behind it.
        let start = self.arena.len();
        let (payload, range) = match payload {
            Payload::None => return,
            Payload::Memory(region) if self.framing.data_digest && range.len() <= ARENA_COPY_BYTES_MAX => {
                self.make_room_for_copies();
                self.arena.resize(start + range.len(), 0);
                region.load(range.start, &mut self.arena[start..]);
                let digest = digest::digest(&self.arena[start..]);
                self.arena.extend_from_slice(&digest);
                return self.queue_arena(start);
            }
            Payload::Memory(region) if self.framing.data_digest => {
                let (copy, digest) = copy_and_sum(&region, range);
                // Whole blocks need no padding.
                self.arena.extend_from_slice(&digest);
                let whole = 0..copy.len();
                (Payload::Buffer(Rc::new(copy)), whole)
            }
            Payload::Memory(_) => (payload, range),
            Payload::Bytes(ref bytes) => {
                self.framing.end_data(&mut self.arena, &bytes[range.clone()]);
                (payload, range)
            }
            Payload::Buffer(ref buffer) => {
                self.framing.end_data(&mut self.arena, &buffer[range.clone()]);
                (payload, range)
            }
        };
        self.queued_bytes += range.len();
        self.pieces.push_back(Piece::Payload(payload, range));
        self.queue_arena(start);
    }

    /// Takes the core's large arena, if this one is not large itself.
    fn make_room_for_copies(&mut self) {
        if self.arena.capacity() < STAGED_BYTES {
            let mut large = SPARE_ARENA.take();
            large.reserve(STAGED_BYTES + ARENA_COPY_BYTES_MAX);
            large.extend_from_slice(&self.arena);
            self.arena = large;
        }
    }

    /// Nothing is queued. A large arena is for whoever needs one next: connections that are idle cost no memory, and
    /// it is in the cache.
    fn clear_arena(&mut self) {
        self.arena.clear();
        if self.arena.capacity() > ARENA_KEPT_BYTES {
            SPARE_ARENA.set(std::mem::take(&mut self.arena));
        }
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

    /// Keeps `lock` until all that is queued so far is sent, or not at all if that was copied.
    pub(crate) fn keep(&mut self, lock: block::Shared) {
        if !self.framing.data_digest {
            self.pieces.push_back(Piece::Keep(lock));
        }
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
        self.clear_arena();
    }
}

thread_local! {
    /// The core's large arena, while nobody has it.
    static SPARE_ARENA: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A copy of a part of `region`, and the copy's digest.
fn copy_and_sum(region: &Region, range: Range<usize>) -> (Buffer, [u8; DIGEST_BYTES]) {
    let mut copy = Buffer::recycled(range.len());
    let mut digest = RunningDigest::new();
    for (index, piece) in copy.chunks_mut(PIECE_BYTES).enumerate() {
        region.load(range.start + index * PIECE_BYTES, piece);
        digest.update(piece);
    }
    (copy, digest.finish())
}
