//! The send queue of a connection, with the digests of the PDUs it sends.
//!
//! The queue is filled from the session's state machine up to a limit, and then sent until it is empty. While
//! it is refilled, the socket's buffer keeps the link busy.
//!
//! With data digests, blocks of a RAM volume are copied when they are queued. Otherwise another session could
//! overwrite them between the digest and the kernel's copy, and the initiator would close the connection
//! because of a digest error. The amount of such copies is limited and their buffers are reused, so that they
//! stay in the cache.

use std::io;
use std::ops::Range;
use std::rc::Rc;

use block::{Buffer, Region};
use front_end_core::Charge;
use iscsi::framing::{self, DIGEST_BYTES, Framing, RunningDigest};
use iscsi::pdu::Bhs;
use reactor::{Payload, SendQueue, Stream};

/// The state machine provides no more data while more than this number of bytes waits to be sent.
const FILL_BYTES: usize = 1 << 20;
/// The limit of a discovery session, whose responses are short except SendTargets.
const DISCOVERY_FILL_BYTES: usize = 16 << 10;

/// The limit with data digests. The server's copies should still be in the L2 cache when the kernel copies
/// them.
const STAGED_BYTES: usize = 256 << 10;
/// Copies up to this length are put into the arena, next to the header, so that the kernel gets one slice per
/// PDU instead of two.
const ARENA_COPY_BYTES_MAX: usize = 8 << 10;
/// Size of the pieces that are copied and then added to the digest: small enough for the L1 cache.
const PIECE_BYTES: usize = 16 << 10;

/// Returns the longest data segment to send to a peer with the limit `peer_max`. With data digests,
/// `STAGED_BYTES` is also a limit.
pub(crate) fn segment_max(peer_max: u32, framing: Framing) -> u32 {
    if framing.data_digest {
        peer_max.min(STAGED_BYTES as u32)
    } else {
        peer_max
    }
}

/// Resources that are held until a payload has been sent.
enum HeldUntilSent {
    /// The lock of the payload's blocks, which excludes atomic writes.
    Range(block::Shared),
    /// Memory for a copy of the payload.
    Memory { _charge: Charge },
}

/// The send queue.
pub(crate) struct Outbox {
    framing: Framing,
    fill_bytes: usize,
    queue: SendQueue<HeldUntilSent>,
}

impl Outbox {
    /// Creates an empty queue.
    pub(crate) fn new(framing: Framing) -> Outbox {
        let fill_bytes = if framing.data_digest {
            STAGED_BYTES
        } else {
            FILL_BYTES
        };
        Outbox {
            framing,
            fill_bytes,
            queue: SendQueue::default(),
        }
    }

    /// Creates an empty queue for a discovery session.
    pub(crate) fn of_discovery(framing: Framing) -> Outbox {
        Outbox {
            fill_bytes: DISCOVERY_FILL_BYTES,
            ..Outbox::new(framing)
        }
    }

    /// Whether everything is sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether more may be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.load() < self.fill_bytes
    }

    /// Adds a header, and its digest if there is one.
    pub(crate) fn push_header(&mut self, header: &Bhs) {
        let framing = self.framing;
        self.queue.append(|arena| {
            let start = arena.len();
            arena.extend_from_slice(&header.0);
            framing.end_header(arena, start);
        });
    }

    /// Queues a data segment created by the state machine.
    pub(crate) fn push_inline(&mut self, data: &[u8]) {
        let framing = self.framing;
        self.queue.append(|arena| {
            arena.extend_from_slice(data);
            framing.end_data(arena, data);
        });
    }

    /// Adds a part of a payload as a data segment, and keeps `keep` until it is sent.
    pub(crate) fn push_segment(
        &mut self,
        payload: Payload,
        range: Range<usize>,
        keep: Option<block::Shared>,
    ) {
        debug_assert!(
            matches!(payload, Payload::None) || range.end <= payload.len(),
            "a segment is a part of its payload"
        );
        let (framing, arena_end) = (self.framing, self.queue.arena_end());
        let segment = match payload {
            Payload::None => None,
            Payload::Memory(region) if framing.data_digest => self.push_copy(&region, range),
            Payload::Memory(_) => Some((payload, range, keep)),
            Payload::Bytes(ref bytes) => {
                self.queue
                    .append(|arena| framing.end_data(arena, &bytes[range.clone()]));
                Some((payload, range, keep))
            }
            Payload::Slice(ref slice) => {
                self.queue
                    .append(|arena| framing.end_data(arena, &slice[range.clone()]));
                Some((payload, range, keep))
            }
            Payload::Buffer(ref buffer) => {
                self.queue
                    .append(|arena| framing.end_data(arena, &buffer[range.clone()]));
                Some((payload, range, keep))
            }
        };
        // The trailer was computed from the data above, and is placed after the position of the data.
        if let Some((payload, rest, keep)) = segment {
            self.queue
                .push(arena_end, payload, rest, keep.map(HeldUntilSent::Range));
        }
    }

    /// Queues a copy of blocks and its digest. The copy needs no lock. A short copy is put into the arena
    /// with its digest. For a long copy, only the digest is put into the arena. Whole blocks need no padding.
    fn push_copy(
        &mut self,
        region: &Region,
        range: Range<usize>,
    ) -> Option<(Payload, Range<usize>, Option<block::Shared>)> {
        debug_assert!(
            self.framing.data_digest,
            "else blocks are sent from where they are"
        );
        if range.len() <= ARENA_COPY_BYTES_MAX {
            self.queue.make_room(STAGED_BYTES, ARENA_COPY_BYTES_MAX);
            self.queue.append(|arena| {
                let start = arena.len();
                arena.resize(start + range.len(), 0);
                region.load(range.start, &mut arena[start..]);
                let digest = framing::digest(&arena[start..]);
                arena.extend_from_slice(&digest);
            });
            return None;
        }
        let (copy, digest) = copy_and_sum(region, range);
        self.queue.append(|arena| arena.extend_from_slice(&digest));
        let whole = 0..copy.len();
        Some((Payload::Buffer(Rc::new(copy)), whole, None))
    }

    /// Holds `lock` until everything queued so far has been sent, unless the data was copied.
    pub(crate) fn keep(&mut self, lock: block::Shared) {
        if !self.framing.data_digest && self.queue.segments().next().is_some() {
            let arena_end = self.queue.arena_end();
            self.queue.push(
                arena_end,
                Payload::None,
                0..0,
                Some(HeldUntilSent::Range(lock)),
            );
        }
    }

    /// Whether another command waits for blocks that are being sent in place.
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.queue
            .segments()
            .any(|segment| matches!(&segment.keep, Some(HeldUntilSent::Range(lock)) if lock.is_contended()))
    }

    /// Whether some of the queued data was copied by [`Outbox::withdraw`].
    pub(crate) fn has_copies(&self) -> bool {
        self.queue
            .segments()
            .any(|segment| matches!(segment.keep, Some(HeldUntilSent::Memory { .. })))
    }

    /// Number of queued bytes that are in the volume's memory.
    pub(crate) fn medium_bytes(&self) -> usize {
        let on_the_medium = self
            .queue
            .segments()
            .filter(|segment| matches!(segment.payload, Payload::Memory(_)));
        on_the_medium.map(|segment| segment.rest.len()).sum()
    }

    /// Copies the queued blocks from the volume's memory and unlocks them. `charge` accounts for the copy.
    pub(crate) fn withdraw(&mut self, mut charge: Charge) {
        for segment in self.queue.segments_mut() {
            if matches!(segment.keep, Some(HeldUntilSent::Range(_))) {
                segment.keep = None;
            }
            if let Payload::Memory(region) = &segment.payload {
                let mut copy = Buffer::recycled(segment.rest.len());
                region.load(segment.rest.start, &mut copy);
                segment.rest = 0..copy.len();
                segment.payload = Payload::Buffer(Rc::new(copy));
                let charge = charge.split(segment.rest.len());
                segment.keep = Some(HeldUntilSent::Memory { _charge: charge });
            }
        }
        debug_assert_eq!(self.medium_bytes(), 0, "no block of the medium is left");
        debug_assert!(!self.is_in_the_way(), "no lock is left");
    }

    /// The numbers of bytes sent and queued so far.
    pub(crate) fn position(&self) -> (u64, u64) {
        self.queue.position()
    }

    /// Sends as much as the stream accepts. `Ok(true)` if anything was sent.
    pub(crate) fn send(&mut self, stream: &dyn Stream) -> io::Result<bool> {
        self.queue.send(stream)
    }
}

/// Copies a part of `region`, and returns the copy and its digest.
fn copy_and_sum(region: &Region, range: Range<usize>) -> (Buffer, [u8; DIGEST_BYTES]) {
    let mut copy = Buffer::recycled(range.len());
    let mut digest = RunningDigest::new();
    for (index, piece) in copy.chunks_mut(PIECE_BYTES).enumerate() {
        region.load(range.start + index * PIECE_BYTES, piece);
        digest.update(piece);
    }
    (copy, digest.finish())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::task::{Context, Poll};

    use block::{Extent, RangeLocks};
    use iscsi::pdu::Opcode;
    use reactor::{Detached, InSlice, OutSlice};

    use super::*;

    /// Accepts up to `width` bytes per call.
    struct Narrow {
        width: usize,
        taken: RefCell<Vec<u8>>,
    }

    impl Stream for Narrow {
        fn try_read(&self, _: &mut [InSlice<'_>]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
            let bytes = from.iter().flat_map(|slice| match slice {
                OutSlice::Bytes(bytes) => bytes.to_vec(),
                OutSlice::Shared(_) => unreachable!("no memory is sent here"),
            });
            let before = self.taken.borrow().len();
            self.taken.borrow_mut().extend(bytes.take(self.width));
            Ok(self.taken.borrow().len() - before)
        }

        fn poll_readable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_writable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn peer(&self) -> SocketAddr {
            (Ipv4Addr::LOCALHOST, 1).into()
        }

        fn local(&self) -> SocketAddr {
            self.peer()
        }

        fn shutdown(&self) {}

        fn detach(self: Box<Self>) -> Detached {
            self
        }
    }

    fn buffer(length: usize, byte: u8) -> Payload {
        let mut buffer = Buffer::zeroed(length);
        buffer.fill(byte);
        Payload::Buffer(Rc::new(buffer))
    }

    #[test]
    fn bytes_leave_in_their_order_however_few_are_taken_at_once() {
        let header = Bhs::new(Opcode::DataIn);
        // The expected bytes are headers alone, data that needs padding, and data that follows other data
        // without a header in between.
        let mut expected = [
            &header.0[..],
            &header.0,
            &[7; 5],
            &[0; 3],
            &header.0,
            &[8; 4],
        ]
        .concat();
        expected.extend([9; 6].iter().chain(&[0; 2]).chain(&header.0));
        for width in 1..=expected.len() {
            let mut outbox = Outbox::new(Framing::default());
            outbox.push_header(&header);
            outbox.push_header(&header);
            outbox.push_segment(buffer(9, 7), 4..9, None);
            outbox.push_header(&header);
            outbox.push_inline(&[8; 4]);
            outbox.push_segment(buffer(6, 9), 0..6, None);
            outbox.push_header(&header);
            let stream = Narrow {
                width,
                taken: RefCell::default(),
            };
            assert!(outbox.send(&stream).expect("sent"));
            assert!(outbox.is_empty() && outbox.queue.segments().next().is_none());
            assert!(*stream.taken.borrow() == expected, "{width} bytes at once");
        }
    }

    #[test]
    fn a_lock_is_held_until_the_data_before_it_are_sent() {
        let locks = std::sync::Arc::new(RangeLocks::default());
        let mut outbox = Outbox::new(Framing::default());
        outbox.push_header(&Bhs::new(Opcode::DataIn));
        outbox.push_segment(buffer(8, 1), 0..8, locks.try_share(Extent::new(0, 8)));
        outbox.push_header(&Bhs::new(Opcode::ScsiResponse));
        outbox.keep(locks.try_share(Extent::new(0, 8)).expect("shared"));
        let held = |outbox: &Outbox| {
            outbox
                .queue
                .segments()
                .filter(|segment| segment.keep.is_some())
                .count()
        };
        outbox.queue.advance(48 + 7);
        assert_eq!(held(&outbox), 2, "a byte of the data is left");
        outbox.queue.advance(1);
        assert_eq!(held(&outbox), 1, "the response is left");
        outbox.queue.advance(48);
        assert_eq!((held(&outbox), outbox.is_empty()), (0, true));
    }
}
