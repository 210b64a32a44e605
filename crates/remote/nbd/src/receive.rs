//! Reception: headers of replies are parsed where they were received, and data go to the buffers of their
//! requests: the rest of a long one directly.

use std::io;
use std::ops::Range;

use block::Buffer;
use nbd::{Chunk, Command, Reply, Session};
use reactor::{Received, Stream};

use crate::link::{Ending, Inner, Task};

/// The size of one read.
const SCRATCH_BYTES: usize = 256 << 10;
/// A rest from this size on is received in place.
const DIRECT_BYTES: usize = 32 << 10;
/// Data from this length on are long: to copy them costs more than another read.
const LONG_BYTES: usize = 128 << 10;
/// So much is read behind long data, so that those of the next reply are received in place, too.
const NEXT_BYTES: usize = 4 << 10;

/// More parts of a read that do not touch are no answer: this bounds what a server can have kept.
const PARTS_MAX: usize = 1024;
/// More chunks of one reply that bring no data are no answer: a server that sends them for ever would never end it. As many as a read may
/// have parts, each of which can have failed.
const EMPTY_CHUNKS_MAX: usize = PARTS_MAX;
/// Extents beyond these are dropped: who wants to know more asks for what is behind them.
const EXTENTS_MAX: usize = 4096;

/// The receive state of a connection.
pub(crate) struct Receiver {
    scratch: Box<[u8]>,
    /// How many bytes at the beginning of `scratch` are an incomplete header.
    kept: usize,
    payload: Option<Payload>,
    /// The latest data were long, as the next may be.
    is_long: bool,
}

/// What follows a header.
struct Payload {
    cookie: u64,
    is_last: bool,
    left: usize,
    kind: Kind,
}

enum Kind {
    /// Data for the buffer, from this place on.
    Data { at: usize },
    /// Extents.
    Extents(Vec<u8>),
    /// Nothing of interest.
    Dropped,
}

impl Default for Receiver {
    fn default() -> Receiver {
        Receiver { scratch: vec![0; SCRATCH_BYTES].into(), kept: 0, payload: None, is_long: false }
    }
}

impl Receiver {
    /// Receives what is there. True if there may be more.
    pub(crate) fn receive(
        &mut self,
        stream: &dyn Stream,
        session: &Session,
        inner: &mut Inner,
    ) -> Result<bool, Ending> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let received = self.receive_into(&mut scratch, stream, session, inner);
        self.scratch = scratch;
        received
    }

    fn receive_into(
        &mut self,
        scratch: &mut [u8],
        stream: &dyn Stream,
        session: &Session,
        inner: &mut Inner,
    ) -> Result<bool, Ending> {
        let kept = self.kept;
        let least = if self.is_long { 1 } else { DIRECT_BYTES };
        let direct = self.payload.as_mut().and_then(|payload| payload.rest(inner, least)).unwrap_or_default();
        let end = if self.is_long { scratch.len().min(kept + NEXT_BYTES) } else { scratch.len() };
        let received = match stream.receive(direct, &[], &mut scratch[kept..end]) {
            Ok(Received { placed: 0, rest: 0, .. }) => return Err(Ending::Closed),
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(Ending::Socket(error)),
        };
        if let Some(payload) = &mut self.payload {
            payload.advance(received.placed);
        }
        let end = kept + received.rest;
        let taken = self.take(&scratch[..end], session, inner)?;
        scratch.copy_within(taken..end, 0);
        self.kept = end - taken;
        Ok(received.is_full)
    }

    /// The request to whose answer data are being received, and how many of them are missing.
    pub(crate) fn open(&self) -> Option<(u64, usize)> {
        self.payload.as_ref().map(|payload| (payload.cookie, payload.left))
    }

    /// Takes all that is complete. Returns how many bytes that was.
    fn take(&mut self, bytes: &[u8], session: &Session, inner: &mut Inner) -> Result<usize, Ending> {
        let mut at = 0;
        loop {
            if let Some(payload) = &mut self.payload {
                at += payload.put(&bytes[at..], inner);
                if payload.left > 0 {
                    return Ok(at);
                }
            }
            if let Some(payload) = self.payload.take() {
                payload.end(session, inner)?;
            }
            let parsed = Reply::parse(session.form, &bytes[at..]).map_err(Ending::Violation)?;
            let Some((reply, length)) = parsed else { return Ok(at) };
            at += length;
            self.begin(reply, inner)?;
        }
    }

    fn begin(&mut self, reply: Reply, inner: &mut Inner) -> Result<(), Ending> {
        let Reply { cookie, is_last, chunk } = reply;
        let task = inner.tasks.get(cookie).ok_or(Ending::Unfit)?;
        let is_read = task.request.command() == Some(Command::Read);
        // Data and holes of at least a byte end with the request's length: each byte comes once.
        let brings_data = matches!(chunk, Chunk::Data { bytes: 1.., .. } | Chunk::Hole { bytes: 1.., .. });
        task.empty_chunks += usize::from(!brings_data);
        if task.empty_chunks > EMPTY_CHUNKS_MAX {
            return Err(Ending::Endless);
        }
        let (kind, left) = match chunk {
            Chunk::Simple if is_read => {
                let whole = place(task, task.request.offset, task.request.length);
                whole.ok_or(Ending::Unfit)?;
                (Kind::Data { at: 0 }, task.request.length)
            }
            Chunk::Simple | Chunk::None => (Kind::Dropped, 0),
            Chunk::Data { offset, bytes } if is_read => {
                (Kind::Data { at: place(task, offset, bytes).ok_or(Ending::Unfit)? }, bytes)
            }
            Chunk::Hole { offset, bytes } if is_read => {
                let at = place(task, offset, bytes).ok_or(Ending::Unfit)?;
                let hole = task.buffer.as_mut().and_then(|buffer| buffer.get_mut(at..at + bytes as usize));
                hole.ok_or(Ending::Unfit)?.fill(0);
                (Kind::Dropped, 0)
            }
            // One chunk for the one context that was asked for.
            Chunk::BlockStatus { bytes }
                if task.request.command() == Some(Command::BlockStatus) && task.extents.is_empty() =>
            {
                (Kind::Extents(Vec::new()), bytes)
            }
            Chunk::Data { .. } | Chunk::Hole { .. } | Chunk::BlockStatus { .. } => return Err(Ending::Unfit),
            Chunk::Error { error, text_bytes } => {
                task.error.get_or_insert(error);
                (Kind::Dropped, text_bytes)
            }
        };
        match kind {
            Kind::Data { .. } => self.is_long = left as usize >= LONG_BYTES,
            Kind::Extents(_) => self.is_long = false,
            Kind::Dropped => {}
        }
        // Lengths are bounded: by the request, or by `Reply::parse`.
        self.payload = Some(Payload { cookie, is_last, left: left as usize, kind });
        Ok(())
    }
}

/// Where `bytes` bytes at `offset` of the export belong in the buffer of a read, which is there from the first on.
fn place(task: &mut Task, offset: u64, bytes: u64) -> Option<usize> {
    let at = offset.checked_sub(task.request.offset)?;
    let end = at.checked_add(bytes).filter(|end| *end <= task.request.length)?;
    if !is_new(&mut task.received, at..end) {
        return None;
    }
    task.buffer.get_or_insert_with(|| Buffer::recycled(task.request.length as usize));
    Some(at as usize)
}

/// Notes a part of a read. False if some of it was there before: each byte comes once, or what a server left out would
/// be data of an earlier request.
fn is_new(received: &mut Vec<Range<u64>>, part: Range<u64>) -> bool {
    let before = received.partition_point(|known| known.end <= part.start);
    if received.get(before).is_some_and(|next| next.start < part.end) {
        return false;
    }
    let parts = received.len();
    match received[..before].last_mut().filter(|last| last.end == part.start) {
        Some(last) => last.end = part.end,
        None if parts == PARTS_MAX => return false,
        None => received.insert(before, part),
    }
    true
}

impl Payload {
    /// What is missing, if it should be received in place: `least` bytes or more.
    fn rest<'a>(&self, inner: &'a mut Inner, least: usize) -> Option<&'a mut [u8]> {
        let Kind::Data { at } = self.kind else { return None };
        let buffer = inner.tasks.get(self.cookie)?.buffer.as_mut()?;
        buffer.get_mut(at..at + self.left).filter(|rest| rest.len() >= least)
    }

    /// Takes what belongs to it from the front of `bytes`, and returns how much that is.
    fn put(&mut self, bytes: &[u8], inner: &mut Inner) -> usize {
        let taken = self.left.min(bytes.len());
        match &mut self.kind {
            Kind::Data { at } => {
                let buffer = inner.tasks.get(self.cookie).and_then(|task| task.buffer.as_mut());
                if let Some(place) = buffer.and_then(|buffer| buffer.get_mut(*at..*at + taken)) {
                    place.copy_from_slice(&bytes[..taken]);
                }
            }
            Kind::Extents(extents) => extents.extend_from_slice(&bytes[..taken]),
            Kind::Dropped => {}
        }
        self.advance(taken);
        taken
    }

    fn advance(&mut self, bytes: usize) {
        self.left -= bytes;
        if let Kind::Data { at } = &mut self.kind {
            *at += bytes;
        }
    }

    fn end(self, session: &Session, inner: &mut Inner) -> Result<(), Ending> {
        let Some(task) = inner.tasks.get(self.cookie) else { return Ok(()) };
        if let Kind::Extents(payload) = &self.kind {
            let extents = session.extents(payload).ok_or(Ending::Unfit)?;
            task.extents.extend(extents.into_iter().take(EXTENTS_MAX));
        }
        if self.is_last {
            let is_read = task.request.command() == Some(Command::Read);
            if is_read && task.error.is_none() && task.received_bytes() != task.request.length {
                return Err(Ending::Unfit);
            }
            inner.answered(self.cookie);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use nbd::{BlockSizes, Export, ReplyForm};
    use reactor::Alone;

    use super::*;

    fn session() -> Session {
        let export = Export {
            name: String::new(),
            description: String::new(),
            bytes: 1 << 40,
            flags: 0,
            block_sizes: BlockSizes { minimum: 1, preferred: 4096, maximum: 32 << 20 },
        };
        Session { export, form: ReplyForm::Structured, allocation: Some(1), channel: None }
    }

    /// A structured chunk, which is not the last of its reply.
    fn chunk(cookie: u64, kind: u16, payload: &[u8]) -> Vec<u8> {
        let header =
            [&0x668e_33ef_u32.to_be_bytes()[..], &[0, 0], &kind.to_be_bytes(), &cookie.to_be_bytes()];
        [&header.concat()[..], &(payload.len() as u32).to_be_bytes(), payload].concat()
    }

    /// How many of such chunks a request takes before its connection ends, and the extents that it keeps.
    fn taken(kind: Command, chunk_kind: u16, payload: &[u8]) -> (usize, usize) {
        reactor::block_on(Alone::virtual_time(), async {
            let (mut inner, cookie) = Inner::asking(kind, 1 << 20);
            let (mut receiver, session) = (Receiver::default(), session());
            let chunk = chunk(cookie, chunk_kind, payload);
            let times =
                (0..100_000).take_while(|_| receiver.take(&chunk, &session, &mut inner).is_ok()).count();
            (times, inner.tasks.get(cookie).map_or(0, |task| task.extents.len()))
        })
    }

    /// A server that never sends the last chunk of a reply (4.4 GiB in 47 s, once).
    #[test]
    fn a_reply_that_does_not_end_is_no_reply() {
        let extents = [&1_u32.to_be_bytes()[..], &[0, 0, 2, 0, 0, 0, 0, 3].repeat(4096)].concat();
        assert_eq!(taken(Command::BlockStatus, 5, &extents), (1, 4096));
        let of_another_context = [&9_u32.to_be_bytes()[..], &[0, 0, 2, 0, 0, 0, 0, 3]].concat();
        assert_eq!(taken(Command::BlockStatus, 5, &of_another_context), (EMPTY_CHUNKS_MAX, 0));
        let error = [0, 0, 0, 5, 0, 0];
        for kind in [Command::Read, Command::Write, Command::Flush, Command::BlockStatus] {
            assert_eq!(taken(kind, 0x8001, &error), (EMPTY_CHUNKS_MAX, 0), "{kind:?}");
        }
        let hole_of_nothing = [0; 12];
        assert_eq!(taken(Command::Read, 2, &hole_of_nothing), (EMPTY_CHUNKS_MAX, 0));
    }

    #[test]
    fn extents_that_nobody_asked_for_so_many_of_are_dropped() {
        let extents = [&1_u32.to_be_bytes()[..], &[0, 0, 2, 0, 0, 0, 0, 3].repeat(100_000)].concat();
        assert_eq!(taken(Command::BlockStatus, 5, &extents), (1, EXTENTS_MAX));
    }

    #[test]
    fn no_byte_of_a_read_comes_twice() {
        let mut received = Vec::new();
        for part in [512..1024, 0..512, 2048..4096, 1024..2048] {
            assert!(is_new(&mut received, part));
        }
        assert_eq!(received.iter().map(|part| part.end - part.start).sum::<u64>(), 4096);
        for part in [0..1, 511..513, 4095..4097, 0..4096] {
            assert!(!is_new(&mut received, part));
        }
        assert!(is_new(&mut received, 4096..4097));
    }

    #[test]
    fn parts_that_do_not_touch_are_bounded() {
        let mut received = Vec::new();
        let taken = (0..10_000).filter(|part| is_new(&mut received, 2 * part..2 * part + 1)).count();
        assert_eq!((taken, received.len()), (PARTS_MAX, PARTS_MAX));
    }
}
