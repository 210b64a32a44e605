//! The receive side of a connection: headers are parsed in sequence, and data segments are moved to their
//! destinations.
//!
//! All available bytes are read into the core's scratch buffer and parsed in place. The rest of a data
//! segment is received directly into its destination only if it is large. Between two reads a connection
//! keeps only an incomplete header, so an idle session costs no receive buffer.
//!
//! Only whole blocks are stored in a RAM volume's memory ([`WholeBlocks`]), even if a PDU, a read or the
//! connection ends within a block. The start of an incomplete block is kept with its command.
//!
//! With data digests, data is stored in a RAM volume's memory only after its digest has been checked: from
//! the scratch buffer if it contains the whole segment, otherwise from a buffer that collects the segment.
//! The digest of each piece is computed on arrival, while the piece is in the CPU cache.
//!
//! ```text
//!   scratch      | hdr | data | hdr | data…          one read, many PDUs: data are copied
//!   destination                     |  …data  |      the rest, if it is large: no copy
//!   scratch                                   | hdr  and the bytes after it, with the same system call
//! ```

use std::io;
use std::time::Instant;

use block::Buffer;
use iscsi::framing::{DIGEST_BYTES, Framing, RunningDigest};
use iscsi::pdu::{BHS_BYTES, Bhs};
use iscsi::target::{ConnectionId, Destination, Fatal};
use reactor::{Received, Stream};

use crate::session::{Landing, Session};

/// The size of one read: two commands of 128 KiB, or sixty of 4 KiB.
pub(crate) const SCRATCH_BYTES: usize = 256 << 10;
/// A remainder of at least this size is received in place. For less, a copy costs less than a short read
/// (measured).
const DIRECT_BYTES: usize = 32 << 10;

/// The core's scratch buffer, shared by its connections, which use it one at a time.
pub(crate) type Scratch = std::cell::RefCell<Box<[u8]>>;

/// The parameters that all functions for received bytes share.
#[derive(Clone, Copy)]
pub(crate) struct Input {
    pub(crate) now: Instant,
    pub(crate) connection: ConnectionId,
    pub(crate) framing: Framing,
}

/// The receive state of a connection.
#[derive(Default)]
pub(crate) struct Inbox {
    /// The start of an incomplete header.
    stash: Vec<u8>,
    segment: Option<Segment>,
}

/// A data segment being received.
struct Segment {
    destination: Destination,
    /// The length of the data, without padding.
    length: usize,
    received: usize,
    /// Padding and digest, at most seven bytes.
    trailer: [u8; 8],
    trailer_length: usize,
    trailer_received: usize,
    digest: RunningDigest,
    /// Holds the data until its digest is checked, if its destination is a RAM volume's memory.
    unchecked: Option<Buffer>,
    /// Holds all of the data, if it does not belong to a task.
    kept: Vec<u8>,
}

impl Inbox {
    /// Copies the incomplete header to the front of `scratch` and returns its length.
    pub(crate) fn restore(&mut self, scratch: &mut [u8]) -> usize {
        let kept = self.stash.len();
        debug_assert!(
            kept == 0 || self.segment.is_none(),
            "a header begins after the last segment"
        );
        scratch[..kept].copy_from_slice(&self.stash);
        self.stash.clear();
        kept
    }

    /// Receives available bytes: the rest of a large data segment into its destination, and the bytes after
    /// it into `scratch`.
    pub(crate) fn receive(
        &mut self,
        session: &mut Session,
        framing: Framing,
        stream: &dyn Stream,
        scratch: &mut [u8],
    ) -> io::Result<Received> {
        let segment = self
            .segment
            .as_mut()
            .filter(|segment| segment.length - segment.received >= DIRECT_BYTES);
        match segment {
            Some(segment) => segment.receive(session, framing, stream, scratch),
            None => stream.receive(&mut [], &[], scratch),
        }
    }

    /// Records that `length` bytes of the current data segment have been received at their destination.
    pub(crate) fn placed(
        &mut self,
        input: &Input,
        session: &mut Session,
        length: usize,
    ) -> Result<(), Fatal> {
        let Some(segment) = self.segment.as_mut().filter(|_| length > 0) else {
            return Ok(());
        };
        if input.framing.data_digest {
            segment.sum_placed(session, length);
        }
        segment.received += length;
        debug_assert!(
            segment.received <= segment.length,
            "the following bytes are in the scratch buffer"
        );
        self.end_segment(input, session)
    }

    /// Parses received bytes, and keeps the start of an incomplete header.
    pub(crate) fn take(
        &mut self,
        input: &Input,
        session: &mut Session,
        mut bytes: &[u8],
    ) -> Result<(), Fatal> {
        while !bytes.is_empty() {
            bytes = match &mut self.segment {
                Some(segment) => segment.take(input, session, bytes),
                None => match self.take_header(input, session, bytes)? {
                    Some(rest) => rest,
                    None => {
                        self.stash.extend_from_slice(bytes);
                        return Ok(());
                    }
                },
            };
            self.end_segment(input, session)?;
        }
        Ok(())
    }

    /// Parses a header. `None` if it is incomplete.
    fn take_header<'b>(
        &mut self,
        input: &Input,
        session: &mut Session,
        bytes: &'b [u8],
    ) -> Result<Option<&'b [u8]>, Fatal> {
        let Some(basic) = bytes.first_chunk::<BHS_BYTES>() else {
            return Ok(None);
        };
        let bhs = Bhs(*basic);
        let length = input.framing.header_bytes(&bhs);
        let Some(header) = bytes.get(..length) else {
            return Ok(None);
        };
        if !input.framing.header_intact(header) {
            return Err(Fatal::HeaderDigest);
        }
        let ahs = &header[BHS_BYTES..BHS_BYTES + bhs.total_ahs_length()];
        let wanted = session
            .machine
            .handle_header(input.now, input.connection, &bhs, ahs)?;
        session.handle_events(input.now);
        if wanted.length > 0 {
            self.segment = Some(Segment::new(wanted.destination, &bhs, input.framing));
        }
        Ok(Some(&bytes[length..]))
    }

    /// Finishes the segment if it has been received completely.
    fn end_segment(&mut self, input: &Input, session: &mut Session) -> Result<(), Fatal> {
        let Some(segment) = self
            .segment
            .as_mut()
            .filter(|segment| segment.is_complete())
        else {
            return Ok(());
        };
        let holds = !input.framing.data_digest || segment.digest_holds();
        if holds {
            segment.release(session);
        }
        session
            .machine
            .handle_segment(input.now, input.connection, holds, &segment.kept)?;
        if let Destination::Task { task, .. } = segment.destination {
            // The rest of the command's last block may arrive much later, so its incomplete block is charged
            // now. Only the incomplete block of a connection's current segment is not charged.
            session.charge_incomplete(task);
        }
        self.segment = None; // drop it in place, because moving it would copy it
        session.handle_events(input.now);
        Ok(())
    }
}

impl Segment {
    fn new(destination: Destination, bhs: &Bhs, framing: Framing) -> Segment {
        let length = bhs.data_segment_length() as usize;
        Segment {
            destination,
            length,
            received: 0,
            trailer: [0; 8],
            trailer_length: framing.segment_bytes(bhs) - length,
            trailer_received: 0,
            digest: RunningDigest::new(),
            unchecked: None,
            kept: Vec::new(),
        }
    }

    fn take<'b>(&mut self, input: &Input, session: &mut Session, bytes: &'b [u8]) -> &'b [u8] {
        let (data, rest) = bytes.split_at(bytes.len().min(self.length - self.received));
        let (trailer, rest) =
            rest.split_at(rest.len().min(self.trailer_length - self.trailer_received));
        self.trailer[self.trailer_received..][..trailer.len()].copy_from_slice(trailer);
        self.trailer_received += trailer.len();
        debug_assert!(
            self.trailer_received <= self.trailer_length
                && self.trailer_length <= self.trailer.len()
        );
        if !data.is_empty() {
            if input.framing.data_digest {
                self.digest.update(data);
            }
            self.put(session, data, input.framing);
            self.received += data.len();
            debug_assert!(self.received <= self.length, "the rest is of the next PDU");
        }
        rest
    }

    /// Receives as much as possible of the rest at its destination, and the bytes after it into `scratch`.
    fn receive(
        &mut self,
        session: &mut Session,
        framing: Framing,
        stream: &dyn Stream,
        scratch: &mut [u8],
    ) -> io::Result<Received> {
        let rest = self.received..self.length;
        let (at, landing) = match self.destination {
            Destination::Task { task, offset } => {
                (offset as usize + self.received, session.landing(task))
            }
            Destination::None | Destination::Inline | Destination::Discard => (0, None),
        };
        match landing {
            Some(landing) if self.is_to_be_checked(landing, framing) => {
                stream.receive(&mut self.unchecked()[rest], &[], scratch)
            }
            Some(Landing::Buffer { start, buffer }) => {
                let place = at
                    .checked_sub(*start)
                    .and_then(|at| buffer.get_mut(at..at + rest.len()));
                stream.receive(place.unwrap_or_default(), &[], scratch)
            }
            Some(Landing::Memory { blocks, .. }) => {
                let mut received = None;
                let sure = rest.len().min(stream.readable_bytes());
                blocks.receive(at, sure, |head, whole| {
                    let outcome = received.insert(stream.receive(head, whole, scratch));
                    outcome.as_ref().map_or(0, |received| received.placed)
                });
                received.unwrap_or_else(|| stream.receive(&mut [], &[], scratch))
            }
            None => stream.receive(&mut [], &[], scratch),
        }
    }

    fn put(&mut self, session: &mut Session, data: &[u8], framing: Framing) {
        match self.destination {
            Destination::None | Destination::Discard => {}
            Destination::Inline => {
                self.kept.reserve_exact(self.length - self.received); // no more than was charged
                self.kept.extend_from_slice(data);
            }
            Destination::Task { task, offset } => {
                let Some(landing) = session.landing(task) else {
                    return;
                };
                if !self.is_to_be_checked(landing, framing) {
                    landing.put(offset as usize + self.received, data);
                } else if data.len() < self.length || self.trailer_received < self.trailer_length {
                    let received = self.received;
                    self.unchecked()[received..][..data.len()].copy_from_slice(data);
                } else if self.digest_holds() {
                    landing.put(offset as usize, data);
                }
            }
        }
    }

    /// Whether the data is buffered until its digest is checked. Once the data of a segment is being
    /// buffered, the rest of it is buffered as well, even if its destination is no longer a RAM volume's
    /// memory (`Session::withdraw_slow_transfers`).
    fn is_to_be_checked(&self, landing: &Landing, framing: Framing) -> bool {
        self.unchecked.is_some() || framing.data_digest && matches!(landing, Landing::Memory { .. })
    }

    /// The buffer of unchecked data.
    fn unchecked(&mut self) -> &mut Buffer {
        self.unchecked
            .get_or_insert_with(|| Buffer::recycled(self.length))
    }

    /// Adds the `length` bytes that were received last to the digest.
    fn sum_placed(&mut self, session: &mut Session, length: usize) {
        let placed = self.received..self.received + length;
        if let Some(unchecked) = &self.unchecked {
            self.digest.update(&unchecked[placed]);
        } else if let Destination::Task { task, offset } = self.destination
            && let Some(Landing::Buffer { start, buffer }) = session.landing(task)
        {
            self.digest
                .update(&buffer[offset as usize - *start..][placed]);
        }
    }

    /// Moves the buffered data to its destination, once its digest has been verified.
    fn release(&self, session: &mut Session) {
        if let Destination::Task { task, offset } = self.destination
            && let Some(unchecked) = &self.unchecked
            && let Some(landing) = session.landing(task)
        {
            landing.put(offset as usize, unchecked);
        }
    }

    fn is_complete(&self) -> bool {
        self.received == self.length && self.trailer_received == self.trailer_length
    }

    /// Whether the received digest is correct. A digest also covers the padding (RFC 7143 section 11.2.4).
    fn digest_holds(&self) -> bool {
        let (padding, told) =
            self.trailer[..self.trailer_length].split_at(self.trailer_length - DIGEST_BYTES);
        let mut digest = self.digest;
        digest.update(padding);
        digest.finish() == *told
    }
}
