//! Reception: from the socket to the destination of the data.
//!
//! Available bytes are read into one large buffer, and the PDUs in it are processed in place; only a
//! Data-In's bytes are copied once more, to their command's buffer. The rest of a long data segment is read
//! directly into that buffer, and the large one gets only what follows: as the next segment is probably long
//! as well, not more than its beginning.

use std::io;
use std::ops::Range;

use iscsi::framing::Framing;
use iscsi::initiator::{ConnectionId, Destination};
use iscsi::pdu::{BHS_BYTES, Bhs};
use reactor::{InSlice, Stream};

use crate::error::Ending;
use crate::inner::SessionInner;
use crate::recorder::Tape;
use crate::tasks::Tasks;

/// The receiving half of a connection.
pub(crate) struct Receiver {
    framing: Framing,
    buffer: Box<[u8]>,
    /// Range of unprocessed bytes in `buffer`.
    unread: Range<usize>,
    open: Option<Open>,
    /// The last data segment of a task was long.
    is_long: bool,
    /// The beginning of an inline segment that arrived in several parts.
    spill: Vec<u8>,
    /// Bytes received so far.
    total_bytes: u64,
}

/// What is at the position of a header.
enum Header {
    /// Not all of one.
    Missing,
    /// One without data.
    Alone,
    /// One whose data follow.
    Segment(Open),
}

/// An incomplete data segment.
struct Open {
    destination: Destination,
    /// Its bytes, without padding and digest.
    length: usize,
    received: usize,
    /// Padding and digest.
    trailer: usize,
}

impl Open {
    fn is_long(&self) -> bool {
        self.length >= DIRECT_BYTES_MIN
    }
}

/// 32 answers of 4 KiB, with room: more at once does not help, and falls out of the second-level cache.
const BUFFER_BYTES: usize = 256 << 10;
/// From here on a read of its own is cheaper than a copy (measured).
const DIRECT_BYTES_MIN: usize = 32 << 10;
/// Read after a long segment: the next headers, and not the next segment's data, which should be read
/// directly as well.
const FOLLOWING_BYTES: usize = 4 << 10;
/// Maximum number of bytes per iteration, so that other tasks run.
const ROUND_BYTES: usize = 4 << 20;

impl Receiver {
    /// Begins with the bytes received after the last login response.
    pub(crate) fn new(framing: Framing, already: &[u8]) -> Receiver {
        let mut buffer = vec![0; BUFFER_BYTES.max(already.len())].into_boxed_slice();
        buffer[..already.len()].copy_from_slice(already);
        let unread = 0..already.len();
        Receiver { framing, buffer, unread, open: None, is_long: false, spill: Vec::new(), total_bytes: 0 }
    }

    /// Receives everything available and processes it. True if there may be more.
    pub(crate) fn receive(
        &mut self,
        stream: &dyn Stream,
        id: ConnectionId,
        inner: &mut SessionInner,
        tape: &mut Tape,
    ) -> Result<bool, Ending> {
        let mut taken = 0;
        loop {
            self.parse(id, inner, tape)?;
            if taken >= ROUND_BYTES {
                return Ok(true);
            }
            let outcome = self.read(stream, &mut inner.tasks);
            inner.meter.received.note(&outcome);
            match outcome {
                Ok(0) => return Err(Ending::Closed),
                Ok(bytes) => {
                    // The iteration has just begun when the first bytes arrive; long responses take time.
                    if taken > 0 {
                        inner.now = reactor::now();
                    }
                    taken += bytes;
                    self.total_bytes += bytes as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Ending::Io(error)),
            }
        }
    }

    /// Whether unprocessed or incomplete bytes are left.
    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Bytes received so far.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn read(&mut self, stream: &dyn Stream, tasks: &mut Tasks) -> io::Result<usize> {
        self.buffer.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        if let Some(rest) = self.direct(tasks) {
            let direct = rest.len();
            let mut into = [InSlice::Bytes(rest), InSlice::Bytes(&mut self.buffer[..FOLLOWING_BYTES])];
            let bytes = stream.try_read(&mut into)?;
            if let Some(open) = &mut self.open {
                open.received += bytes.min(direct);
            }
            self.unread = 0..bytes.saturating_sub(direct);
            return Ok(bytes);
        }
        let end = self.unread.end;
        let into = match self.is_long {
            true => &mut self.buffer[end..][..FOLLOWING_BYTES],
            false => &mut self.buffer[end..],
        };
        let bytes = stream.try_read(&mut [InSlice::Bytes(into)])?;
        self.unread.end += bytes;
        Ok(bytes)
    }

    /// The missing part of the open segment, if it is long and belongs to a task.
    fn direct<'a>(&self, tasks: &'a mut Tasks) -> Option<&'a mut [u8]> {
        let open = self.open.as_ref().filter(|open| open.is_long() && open.received < open.length)?;
        match open.destination {
            Destination::Task { task, offset } if self.unread.is_empty() => {
                tasks.landing(task, offset as usize, open.length)?.get_mut(open.received..)
            }
            _ => None,
        }
    }

    /// Processes all complete PDUs.
    fn parse(&mut self, id: ConnectionId, inner: &mut SessionInner, tape: &mut Tape) -> Result<(), Ending> {
        loop {
            match self.open.take() {
                None => match self.header(id, inner, tape)? {
                    Header::Segment(open) => self.open = Some(open),
                    Header::Alone => {}
                    Header::Missing => return Ok(()),
                },
                Some(open) => {
                    self.open = self.segment(open, id, inner, tape)?;
                    if self.open.is_some() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// The next header, if it is complete with its digest.
    fn header(
        &mut self,
        id: ConnectionId,
        inner: &mut SessionInner,
        tape: &mut Tape,
    ) -> Result<Header, Ending> {
        let unread = &self.buffer[self.unread.clone()];
        let Some(bhs) = unread.first_chunk::<BHS_BYTES>() else { return Ok(Header::Missing) };
        let bhs = Bhs(*bhs);
        let Some(whole) = unread.get(..self.framing.header_bytes(&bhs)) else { return Ok(Header::Missing) };
        tape.received(inner.now, whole);
        if !self.framing.header_intact(whole) {
            return Err(Ending::HeaderDigest);
        }
        let ahs = &whole[BHS_BYTES..BHS_BYTES + bhs.total_ahs_length()];
        let segment = inner.machine.handle_header(inner.now, id, &bhs, ahs)?;
        self.unread.start += whole.len();
        match segment.length as usize {
            0 => Ok(Header::Alone),
            length => {
                let trailer = self.framing.trailer_bytes(length);
                let open = Open { destination: segment.destination, length, received: 0, trailer };
                if matches!(open.destination, Destination::Task { .. }) {
                    self.is_long = open.is_long();
                }
                Ok(Header::Segment(open))
            }
        }
    }

    /// The available part of a data segment. Returns the segment if it is incomplete.
    fn segment(
        &mut self,
        mut open: Open,
        id: ConnectionId,
        inner: &mut SessionInner,
        tape: &mut Tape,
    ) -> Result<Option<Open>, Ending> {
        let fresh = self.take(open.length - open.received);
        let fresh = &self.buffer[fresh];
        match open.destination {
            Destination::Task { task, offset } => {
                // A command that has ended has no buffer any more: its data are dropped.
                if let Some(landing) = inner.tasks.landing(task, offset as usize, open.length) {
                    landing[open.received..][..fresh.len()].copy_from_slice(fresh);
                }
            }
            Destination::Inline => self.spill.extend_from_slice(fresh),
            Destination::None | Destination::Discard => {}
        }
        open.received += fresh.len();
        if open.received < open.length || self.unread.len() < open.trailer {
            return Ok(Some(open));
        }
        let trailer = self.take(open.trailer);
        let trailer = &self.buffer[trailer];
        let data = match open.destination {
            Destination::Task { task, offset } => {
                inner.tasks.landing(task, offset as usize, open.length).map(|data| &*data)
            }
            Destination::Inline => Some(&self.spill[..]),
            Destination::None | Destination::Discard => None,
        };
        let intact = data.is_none_or(|data| {
            tape.received_data(data, trailer);
            let check = || self.framing.data_intact(data, trailer);
            inner.meter.digests.around(self.framing.data_digest, data.len(), check)
        });
        inner.machine.handle_segment(inner.now, id, intact, &self.spill)?;
        self.spill.clear();
        Ok(None)
    }

    /// The next bytes of the buffer, at most so many.
    fn take(&mut self, most: usize) -> Range<usize> {
        let start = self.unread.start;
        self.unread.start += most.min(self.unread.len());
        start..self.unread.start
    }
}
