//! The send queue of a stream: headers in one arena, payloads in place, sent with one vectored system call.
//!
//! ```text
//!   arena      | header | header | trailer, header | header |
//!   segments                     ^ data            ^ data
//! ```

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use block::{Buffer, Region, Slice};

use crate::stream::{OutSlice, Stream};

/// Slices per system call: the limit of streams.
const SLICES: usize = 64;
/// Capacity of an idle arena: the headers of a whole command window.
const ARENA_KEPT_BYTES: usize = 16 << 10;

/// Data on its way to the peer.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Nothing.
    None,
    /// A parameter list or a text response.
    Bytes(Rc<[u8]>),
    /// Blocks read into a buffer.
    Buffer(Rc<Buffer>),
    /// Blocks to write.
    Slice(Slice),
    /// Blocks in the volume's own memory.
    Memory(Region),
}

impl Payload {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Payload::None => 0,
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Buffer(buffer) => buffer.len(),
            Payload::Slice(slice) => slice.len(),
            Payload::Memory(region) => region.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A queued payload, and its position among the bytes of the arena.
pub struct Segment<K> {
    /// The end of the arena bytes before it.
    arena_end: usize,
    /// The data.
    pub payload: Payload,
    /// The part of the payload that is not sent yet.
    pub rest: Range<usize>,
    /// Held until it is sent.
    pub keep: Option<K>,
}

/// The queue; its segments hold a `K` until they are sent, such as the lock of their blocks.
pub struct SendQueue<K> {
    arena: Vec<u8>,
    /// Number of arena bytes sent.
    arena_sent: usize,
    segments: VecDeque<Segment<K>>,
    queued_bytes: usize,
    sent_bytes: u64,
}

impl<K> Default for SendQueue<K> {
    fn default() -> SendQueue<K> {
        SendQueue {
            arena: Vec::new(),
            arena_sent: 0,
            segments: VecDeque::new(),
            queued_bytes: 0,
            sent_bytes: 0,
        }
    }
}

impl<K> SendQueue<K> {
    /// Whether everything is sent.
    pub fn is_empty(&self) -> bool {
        self.queued_bytes == 0
    }

    /// The memory and the queued data, in bytes. The whole arena counts until all of it is sent, since it is
    /// emptied as a whole.
    pub fn load(&self) -> usize {
        self.queued_bytes.max(self.arena.len())
    }

    /// Bytes sent so far, and bytes queued in total.
    pub fn position(&self) -> (u64, u64) {
        (self.sent_bytes, self.sent_bytes + self.queued_bytes as u64)
    }

    /// Appends what `write` appends to the arena, such as a header.
    #[inline]
    pub fn append<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let before = self.arena.len();
        let written = write(&mut self.arena);
        self.queued_bytes += self.arena.len() - before;
        written
    }

    /// Queues a part of a payload before the bytes appended from `arena_end` on, which is the length of the
    /// arena at that point ([`SendQueue::arena_end`]). Keeps `keep` until it is sent.
    pub fn push(&mut self, arena_end: usize, payload: Payload, rest: Range<usize>, keep: Option<K>) {
        self.queued_bytes += rest.len();
        self.segments.push_back(Segment { arena_end, payload, rest, keep });
    }

    /// The end of what has been appended.
    pub fn arena_end(&self) -> usize {
        self.arena.len()
    }

    /// The unsent segments, in order.
    pub fn segments(&self) -> impl Iterator<Item = &Segment<K>> {
        self.segments.iter()
    }

    /// The unsent segments, mutable: the length of a `rest` must not change.
    pub fn segments_mut(&mut self) -> impl Iterator<Item = &mut Segment<K>> {
        self.segments.iter_mut()
    }

    /// Takes the core's large arena, of at least `bytes` plus `more`, if this one has less than `bytes`.
    pub fn make_room(&mut self, bytes: usize, more: usize) {
        if self.arena.capacity() < bytes {
            let mut large = SPARE_ARENA.take();
            large.reserve(bytes + more);
            large.extend_from_slice(&self.arena);
            self.arena = large;
        }
    }

    /// Clears the arena of an empty queue. A large arena goes to the next connection that needs one: idle
    /// connections use no memory, and the arena is in the cache.
    fn clear_arena(&mut self) {
        self.arena.clear();
        self.arena_sent = 0;
        if self.arena.capacity() > ARENA_KEPT_BYTES {
            SPARE_ARENA.set(std::mem::take(&mut self.arena));
        }
    }

    /// Sends as much as the stream accepts. `Ok(true)` if anything was sent.
    pub fn send(&mut self, stream: &dyn Stream) -> io::Result<bool> {
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
        // Usually there is only one response, and 64 slices take longer to clear than to fill.
        match self.segments.len() {
            0..=3 => self.send_slices::<8>(stream),
            _ => self.send_slices::<SLICES>(stream),
        }
    }

    /// Sends slices from the first on, up to `N`, as far as the stream accepts them in one call.
    fn send_slices<const N: usize>(&self, stream: &dyn Stream) -> io::Result<usize> {
        let mut slices = [const { OutSlice::Bytes(&[]) }; N];
        let mut filled = 0;
        let mut arena_at = self.arena_sent;
        for segment in &self.segments {
            // Each takes two at most.
            if filled + 2 > N {
                return stream.try_write(&slices[..filled]);
            }
            if segment.arena_end > arena_at {
                slices[filled] = OutSlice::Bytes(&self.arena[arena_at..segment.arena_end]);
                filled += 1;
                arena_at = segment.arena_end;
            }
            if let Some(slice) = segment.slice() {
                slices[filled] = slice;
                filled += 1;
            }
        }
        if filled < N {
            slices[filled] = OutSlice::Bytes(&self.arena[arena_at..]);
            filled += 1;
        }
        stream.try_write(&slices[..filled])
    }

    /// Removes `sent` bytes from the front, and releases values kept until then.
    pub fn advance(&mut self, mut sent: usize) {
        self.queued_bytes -= sent;
        self.sent_bytes += sent as u64;
        while let Some(segment) = self.segments.front_mut() {
            let before = segment.arena_end - self.arena_sent;
            if sent < before {
                break;
            }
            sent -= before;
            self.arena_sent = segment.arena_end;
            if sent < segment.rest.len() {
                segment.rest.start += sent;
                return;
            }
            sent -= segment.rest.len();
            self.segments.pop_front();
        }
        self.arena_sent += sent;
        if self.queued_bytes == 0 {
            self.clear_arena();
        }
    }
}

impl<K> Segment<K> {
    /// Its unsent part; `None` if it has no bytes.
    fn slice(&self) -> Option<OutSlice<'_>> {
        let rest = self.rest.clone();
        match &self.payload {
            Payload::None => None,
            Payload::Bytes(bytes) => Some(OutSlice::Bytes(&bytes[rest])),
            Payload::Buffer(buffer) => Some(OutSlice::Bytes(&buffer[rest])),
            Payload::Slice(slice) => Some(OutSlice::Bytes(&slice[rest])),
            Payload::Memory(region) => Some(OutSlice::Shared(&region.bytes()[rest])),
        }
    }
}

thread_local! {
    /// The core's large arena, while it is unused.
    static SPARE_ARENA: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}
