//! Transmission: from the memory of the data to the socket.
//!
//! The PDUs of one iteration are sent by one write: headers, padding and digests are staged one after the
//! other, payloads stay in place until the kernel copies them.

use std::io;

use block::Slice;
use iscsi::framing::Framing;
use iscsi::initiator::{ConnectionId, Payload, Transmit};
use reactor::{OutSlice, Stream};

use crate::error::Ending;
use crate::inner::SessionInner;
use crate::recorder::Tape;
use crate::statistics::Calls;

/// The sending half of a connection.
pub(crate) struct Sender {
    framing: Framing,
    /// Headers, padding and digests of all `chunks`.
    staged: Vec<u8>,
    chunks: Vec<Chunk>,
    /// Bytes of payloads in `chunks` with a digest.
    summed_bytes: usize,
    /// Number of chunks sent, and bytes sent of the next.
    sent_chunks: usize,
    sent_bytes: usize,
}

enum Chunk {
    /// A part of `staged`, from here to here.
    Staged(usize, usize),
    /// Data of a write, kept alive until they are sent even if the command is dropped.
    Data(Slice),
}

/// Slices per write: the kernel accepts 1,024, and 64 PDUs fill a socket's buffer.
const SLICES_MAX: usize = 64;
/// A round with one command has one or two, and to make room for all costs more than the rest of its sending.
const SLICES_FEW: usize = 4;
/// Payloads this short are copied: less work than another slice for the kernel.
const COPIED_BYTES_MAX: usize = 512;
/// Payloads are sent before so much more is summed: the kernel is to find them in the second-level cache.
const SUMMED_BYTES: usize = 256 << 10;
/// PDUs per iteration. A window of 256 commands is sent in four.
const ROUND_CHUNKS: usize = 2 * SLICES_MAX;

impl Sender {
    pub(crate) fn new(framing: Framing) -> Sender {
        Sender {
            framing,
            staged: Vec::new(),
            chunks: Vec::new(),
            summed_bytes: 0,
            sent_chunks: 0,
            sent_bytes: 0,
        }
    }

    /// Sends all queued PDUs of this connection. True if all of them fit.
    pub(crate) fn send(
        &mut self,
        stream: &dyn Stream,
        id: ConnectionId,
        inner: &mut SessionInner,
        tape: &mut Tape,
    ) -> Result<bool, Ending> {
        loop {
            while !self.is_full() {
                let Some(transmit) = inner.machine.poll_transmit(inner.now, id) else { break };
                self.stage(transmit, inner, tape)?;
            }
            if self.chunks.is_empty() {
                return Ok(true);
            }
            let is_much = self.is_full();
            match self.write(stream, &mut inner.meter.sent) {
                Ok(()) if is_much => inner.now = reactor::now(),
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Ending::Io(error)),
            }
        }
    }

    /// Whether an iteration is full.
    fn is_full(&self) -> bool {
        self.chunks.len() >= ROUND_CHUNKS || self.summed_bytes >= SUMMED_BYTES
    }

    fn stage(&mut self, transmit: Transmit, inner: &mut SessionInner, tape: &mut Tape) -> Result<(), Ending> {
        let begin = self.staged.len();
        self.staged.extend_from_slice(&transmit.header.0);
        self.staged.extend_from_slice(&transmit.ahs);
        self.framing.end_header(&mut self.staged, begin);
        let header = begin..self.staged.len();
        match transmit.payload {
            Payload::None => {
                tape.sent(inner.now, &self.staged[header], &[], &[]);
                self.push_staged(begin);
            }
            Payload::Inline(bytes) => {
                self.staged.extend_from_slice(&bytes);
                let end = self.staged.len();
                self.framing.end_data(&mut self.staged, &bytes);
                tape.sent(inner.now, &self.staged[header], &bytes, &self.staged[end..]);
                self.push_staged(begin);
            }
            Payload::Task { task, offset, length } => {
                let (offset, length) = (offset as usize, length as usize);
                let data = inner.tasks.outgoing(task, offset, length).ok_or(Ending::NoPlace)?;
                if length <= COPIED_BYTES_MAX {
                    self.staged.extend_from_slice(&data);
                } else {
                    self.push_staged(begin);
                    self.chunks.push(Chunk::Data(data.clone()));
                }
                if self.framing.data_digest {
                    self.summed_bytes += length;
                }
                let end = self.staged.len();
                let end_data = || self.framing.end_data(&mut self.staged, &data);
                inner.meter.digests.around(self.framing.data_digest, length, end_data);
                tape.sent(inner.now, &self.staged[header], &data, &self.staged[end..]);
                self.push_staged(if length <= COPIED_BYTES_MAX { begin } else { end });
            }
        }
        Ok(())
    }

    /// Everything staged from `begin` on is next, in one piece with what was staged just before it.
    fn push_staged(&mut self, begin: usize) {
        let end = self.staged.len();
        match self.chunks.last_mut() {
            Some(Chunk::Staged(_, last)) if *last == begin => *last = end,
            _ if begin < end => self.chunks.push(Chunk::Staged(begin, end)),
            _ => {}
        }
    }

    /// Writes what is left to the socket.
    fn write(&mut self, stream: &dyn Stream, calls: &mut Calls) -> io::Result<()> {
        while self.sent_chunks < self.chunks.len() {
            let left = self.chunks.len() - self.sent_chunks;
            let outcome = match left <= SLICES_FEW {
                true => self.offer::<SLICES_FEW>(stream),
                false => self.offer::<SLICES_MAX>(stream),
            };
            calls.note(&outcome);
            self.advance(outcome?);
        }
        self.staged.clear();
        self.chunks.clear();
        self.summed_bytes = 0;
        self.sent_chunks = 0;
        Ok(())
    }

    /// Offers the kernel as much of it as so many slices hold.
    fn offer<const SLICES: usize>(&self, stream: &dyn Stream) -> io::Result<usize> {
        let mut slices = [OutSlice::Bytes(&[]); SLICES];
        let mut count = 0;
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks[self.sent_chunks..]) {
            *slice = OutSlice::Bytes(self.bytes(chunk));
            count += 1;
        }
        if let Some(OutSlice::Bytes(first)) = slices.first_mut() {
            *first = &first[self.sent_bytes..];
        }
        stream.try_write(&slices[..count])
    }

    fn bytes<'a>(&'a self, chunk: &'a Chunk) -> &'a [u8] {
        match chunk {
            Chunk::Staged(begin, end) => &self.staged[*begin..*end],
            Chunk::Data(data) => data,
        }
    }

    fn advance(&mut self, sent: usize) {
        self.sent_bytes += sent;
        while let Some(chunk) = self.chunks.get(self.sent_chunks) {
            let length = self.bytes(chunk).len();
            if self.sent_bytes < length {
                return;
            }
            self.sent_bytes -= length;
            self.sent_chunks += 1;
        }
    }
}
