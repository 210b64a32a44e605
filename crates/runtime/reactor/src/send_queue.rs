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

/// Maximum number of slices per system call, which is the limit of streams.
const SLICES: usize = 64;
/// Capacity that the arena of an empty queue keeps: enough for the headers of a whole command window.
const ARENA_KEPT_BYTES: usize = 16 << 10;

/// Data to send to the peer.
#[derive(Clone, Debug)]
pub enum Payload {
    /// No data.
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

/// A queued payload, and its position relative to the bytes in the arena.
pub struct Segment<K> {
    /// Arena offset at which the payload is sent: the bytes before this offset precede it.
    arena_end: usize,
    /// The data.
    pub payload: Payload,
    /// The part of the payload that has not been sent yet.
    pub rest: Range<usize>,
    /// A value, such as a lock, that is held until the payload has been sent.
    pub keep: Option<K>,
}

/// The send queue. Each segment can hold a `K` until it has been sent, such as the lock of its blocks.
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

    /// The size of the queued data or of the arena, whichever is larger. The arena is counted in full until all
    /// of it has been sent, because it is cleared only as a whole.
    pub fn load(&self) -> usize {
        self.queued_bytes.max(self.arena.len())
    }

    /// Total bytes sent so far, and total bytes ever queued.
    pub fn position(&self) -> (u64, u64) {
        (self.sent_bytes, self.sent_bytes + self.queued_bytes as u64)
    }

    /// Calls `write` to append bytes, such as a header, to the arena, and queues them.
    #[inline]
    pub fn append<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let before = self.arena.len();
        let written = write(&mut self.arena);
        self.queued_bytes += self.arena.len() - before;
        written
    }

    /// Queues the part `rest` of a payload, to be sent after the arena's first `arena_end` bytes and before
    /// the bytes that follow them. `arena_end` is a result of [`SendQueue::arena_end`]. `keep` is held until
    /// this part has been sent.
    pub fn push(
        &mut self,
        arena_end: usize,
        payload: Payload,
        rest: Range<usize>,
        keep: Option<K>,
    ) {
        self.queued_bytes += rest.len();
        self.segments.push_back(Segment {
            arena_end,
            payload,
            rest,
            keep,
        });
    }

    /// The current length of the arena.
    pub fn arena_end(&self) -> usize {
        self.arena.len()
    }

    /// The unsent segments, in order.
    pub fn segments(&self) -> impl Iterator<Item = &Segment<K>> {
        self.segments.iter()
    }

    /// The unsent segments, mutable. The caller must not change the length of a `rest`.
    pub fn segments_mut(&mut self) -> impl Iterator<Item = &mut Segment<K>> {
        self.segments.iter_mut()
    }

    /// If the capacity of this arena is less than `bytes`, replaces it with the core's spare arena, enlarged
    /// to at least `bytes` plus `more`.
    pub fn make_room(&mut self, bytes: usize, more: usize) {
        if self.arena.capacity() < bytes {
            let mut large = SPARE_ARENA.take();
            large.reserve(bytes + more);
            large.extend_from_slice(&self.arena);
            self.arena = large;
        }
    }

    /// Clears the arena of an empty queue. A large arena becomes the core's spare, for the next connection
    /// that needs one. So idle connections use little memory, and the spare arena is likely to be in the CPU
    /// cache.
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
        // Usually there is only one response, and initializing 64 slices takes longer than filling the few
        // used ones.
        match self.segments.len() {
            0..=3 => self.send_slices::<8>(stream),
            _ => self.send_slices::<SLICES>(stream),
        }
    }

    /// Sends up to `N` slices in one call, and returns the number of bytes that the stream accepted.
    fn send_slices<const N: usize>(&self, stream: &dyn Stream) -> io::Result<usize> {
        let mut slices = [const { OutSlice::Bytes(&[]) }; N];
        let mut filled = 0;
        let mut arena_at = self.arena_sent;
        for segment in &self.segments {
            // Each segment takes two slices at most.
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

    /// Removes the first `sent` bytes, and drops the kept values of segments that have been sent completely.
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
    /// The unsent part as a slice; `None` if it is empty.
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
