//! What a connection has received: whole headers one after the other, and the data segments behind them
//! brought to their places.
//!
//! Everything that is there is read into the core's one scratch buffer and taken apart in place. Only when a
//! large rest of a data segment is missing is it received straight to where it belongs. Between two reads a
//! connection keeps nothing but an incomplete header: an idle session costs no receive buffer.
//!
//! With data digests, what belongs on a medium that is memory gets there when its digest has been seen to match:
//! out of the scratch buffer, if the segment lies there in one piece, else out of a buffer that takes the segment
//! meanwhile. Each piece is summed as it comes, while it is in the cache.
//!
//! ```text
//!   scratch   | hdr | data | hdr | data…          one read, many PDUs: data is copied to its place
//!   place                        |  …data  |      the rest, when it is large: no copy of ours
//!   scratch                                | hdr  and what follows it, in the same system call
//! ```

use std::time::Instant;

use block::{Buffer, Region};
use iscsi::digest::{DIGEST_BYTES, RunningDigest};
use iscsi::framing::Framing;
use iscsi::pdu::{BHS_BYTES, Bhs};
use iscsi::target::{ConnectionId, Fatal, Place};
use reactor::InSlice;

use crate::session::Session;

/// What one read takes at most. Two commands of 128 KiB, or sixty of 4 KiB.
pub(crate) const SCRATCH_BYTES: usize = 256 << 10;
/// A rest of this size is received in place. Below, the copy costs less than a short read does; measured
/// figures: reference/crates.md, section 1, rule 5.
const DIRECT_BYTES: usize = 32 << 10;

/// Where a data segment's bytes go.
pub(crate) enum Landing {
    /// Nowhere: nobody wants them.
    Nowhere,
    /// To blocks where they lie.
    Memory(Region),
    /// Into a buffer that a request will carry.
    Buffer(Buffer),
}

impl Landing {
    /// Puts `bytes` at `offset`. What lies beyond was not asked for, and is dropped.
    pub(crate) fn put(&mut self, offset: usize, bytes: &[u8]) {
        match self {
            Landing::Nowhere => {}
            Landing::Memory(region) => region.store(offset, bytes),
            Landing::Buffer(buffer) => {
                let room = buffer.get_mut(offset..).unwrap_or_default();
                let length = bytes.len().min(room.len());
                room[..length].copy_from_slice(&bytes[..length]);
            }
        }
    }

    /// The same bytes as a place to receive into.
    pub(crate) fn place(&mut self, offset: usize, length: usize) -> Option<InSlice<'_>> {
        match self {
            Landing::Nowhere => None,
            Landing::Memory(region) => region.bytes().get(offset..offset + length).map(InSlice::Shared),
            Landing::Buffer(buffer) => buffer.get_mut(offset..offset + length).map(InSlice::Bytes),
        }
    }
}

/// The core's scratch buffer, shared by its connections, which use it one at a time.
pub(crate) type Scratch = std::cell::RefCell<Box<[u8]>>;

/// What comes with every piece of input.
#[derive(Clone, Copy)]
pub(crate) struct Input {
    pub(crate) now: Instant,
    pub(crate) connection: ConnectionId,
    pub(crate) framing: Framing,
}

/// How far a connection has received.
#[derive(Default)]
pub(crate) struct Inbox {
    /// The beginning of a header whose rest has not come.
    stash: Vec<u8>,
    segment: Option<Segment>,
}

/// A data segment on its way in.
struct Segment {
    place: Place,
    /// Without padding.
    length: usize,
    received: usize,
    /// Padding and digest, at most seven bytes.
    trailer: [u8; 8],
    trailer_length: usize,
    trailer_received: usize,
    digest: RunningDigest,
    /// The data, if the medium itself is their place and their digest is still to come.
    unchecked: Option<Buffer>,
    /// For places that are no task's.
    inline: Vec<u8>,
}

impl Inbox {
    /// What a login left unread is the beginning.
    pub(crate) fn after_login(rest: Vec<u8>) -> Inbox {
        Inbox { stash: rest, segment: None }
    }

    /// Puts what was kept at the front of `scratch`, and says how much it is.
    pub(crate) fn restore(&mut self, scratch: &mut [u8]) -> usize {
        let kept = self.stash.len();
        scratch[..kept].copy_from_slice(&self.stash);
        self.stash.clear();
        kept
    }

    /// Where the rest of the current data segment can be received without a copy, if that pays.
    pub(crate) fn direct_place<'s>(
        &'s mut self,
        session: &'s mut Session,
        framing: Framing,
    ) -> Option<(InSlice<'s>, usize)> {
        let segment = self.segment.as_mut()?;
        let (received, rest) = (segment.received, segment.length - segment.received);
        let Place::Task { task, offset } = segment.place else { return None };
        if rest < DIRECT_BYTES {
            return None;
        }
        let landing = session.landing(task)?;
        if segment.is_to_be_checked(landing, framing) {
            return Some((InSlice::Bytes(&mut segment.unchecked()[received..]), rest));
        }
        Some((landing.place(offset as usize + received, rest)?, rest))
    }

    /// `length` bytes have been received where [`Inbox::direct_place`] said.
    pub(crate) fn placed(
        &mut self,
        input: &Input,
        session: &mut Session,
        length: usize,
    ) -> Result<(), Fatal> {
        let Some(segment) = self.segment.as_mut().filter(|_| length > 0) else { return Ok(()) };
        if input.framing.data_digest {
            segment.sum_placed(session, length);
        }
        segment.received += length;
        self.end_segment(input, session)
    }

    /// Takes received bytes apart, and keeps the beginning of a header that is not all there.
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

    /// `None` if the header is not all there.
    fn take_header<'b>(
        &mut self,
        input: &Input,
        session: &mut Session,
        bytes: &'b [u8],
    ) -> Result<Option<&'b [u8]>, Fatal> {
        let Some(basic) = bytes.first_chunk::<BHS_BYTES>() else { return Ok(None) };
        let bhs = Bhs(*basic);
        let length = input.framing.header_bytes(&bhs);
        let Some(header) = bytes.get(..length) else { return Ok(None) };
        if !input.framing.header_intact(header) {
            return Err(Fatal::HeaderDigest);
        }
        let ahs = &header[BHS_BYTES..BHS_BYTES + bhs.total_ahs_length()];
        let wanted = session.machine.handle_header(input.now, input.connection, &bhs, ahs)?;
        session.handle_events(input.now);
        if wanted.length > 0 {
            self.segment = Some(Segment::new(wanted.place, &bhs, input.framing));
        }
        Ok(Some(&bytes[length..]))
    }

    /// If the segment is complete, says so.
    fn end_segment(&mut self, input: &Input, session: &mut Session) -> Result<(), Fatal> {
        let Some(segment) = self.segment.take_if(|segment| segment.is_complete()) else { return Ok(()) };
        let holds = !input.framing.data_digest || segment.digest_holds();
        if holds {
            segment.release(session);
        }
        session.machine.handle_segment(input.now, input.connection, holds, &segment.inline)?;
        session.handle_events(input.now);
        Ok(())
    }
}

impl Segment {
    fn new(place: Place, bhs: &Bhs, framing: Framing) -> Segment {
        let length = bhs.data_segment_length() as usize;
        Segment {
            place,
            length,
            received: 0,
            trailer: [0; 8],
            trailer_length: framing.segment_bytes(bhs) - length,
            trailer_received: 0,
            digest: RunningDigest::new(),
            unchecked: None,
            inline: Vec::new(),
        }
    }

    fn take<'b>(&mut self, input: &Input, session: &mut Session, bytes: &'b [u8]) -> &'b [u8] {
        let (data, rest) = bytes.split_at(bytes.len().min(self.length - self.received));
        let (trailer, rest) = rest.split_at(rest.len().min(self.trailer_length - self.trailer_received));
        self.trailer[self.trailer_received..][..trailer.len()].copy_from_slice(trailer);
        self.trailer_received += trailer.len();
        if !data.is_empty() {
            if input.framing.data_digest {
                self.digest.update(data);
            }
            self.put(session, data, input.framing);
            self.received += data.len();
        }
        rest
    }

    fn put(&mut self, session: &mut Session, data: &[u8], framing: Framing) {
        match self.place {
            Place::None | Place::Discard => {}
            Place::Inline => self.inline.extend_from_slice(data),
            Place::Task { task, offset } => {
                let Some(landing) = session.landing(task) else { return };
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

    /// Whether the data have to wait for their digest. Those that began to wait go on, even if their place is no
    /// longer the medium (`Session::withdraw_slow_transfers`).
    fn is_to_be_checked(&self, landing: &Landing, framing: Framing) -> bool {
        self.unchecked.is_some() || framing.data_digest && matches!(landing, Landing::Memory(_))
    }

    /// Where they wait.
    fn unchecked(&mut self) -> &mut Buffer {
        self.unchecked.get_or_insert_with(|| Buffer::recycled(self.length))
    }

    /// Sums `length` bytes that the kernel has put behind those received before.
    fn sum_placed(&mut self, session: &mut Session, length: usize) {
        let placed = self.received..self.received + length;
        if let Some(unchecked) = &self.unchecked {
            self.digest.update(&unchecked[placed]);
        } else if let Place::Task { task, offset } = self.place
            && let Some(Landing::Buffer(buffer)) = session.landing(task)
        {
            self.digest.update(&buffer[offset as usize..][placed]);
        }
    }

    /// The digest matches: what waited for it goes where it belongs.
    fn release(&self, session: &mut Session) {
        if let Place::Task { task, offset } = self.place
            && let Some(unchecked) = &self.unchecked
            && let Some(landing) = session.landing(task)
        {
            landing.put(offset as usize, unchecked);
        }
    }

    fn is_complete(&self) -> bool {
        self.received == self.length && self.trailer_received == self.trailer_length
    }

    /// The digest covers the padding, too (RFC 7143 section 11.2.4).
    fn digest_holds(&self) -> bool {
        let (padding, told) =
            self.trailer[..self.trailer_length].split_at(self.trailer_length - DIGEST_BYTES);
        let mut digest = self.digest;
        digest.update(padding);
        digest.finish() == *told
    }
}
