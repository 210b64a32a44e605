//! Reception: requests are parsed one after the other where they were received, and the data of writes are
//! taken from there, too, if all of them have come; only the rest of longer ones is received into its buffer.
//!
//! ```text
//!   scratch   | request | request, data | request, da…        one read, many requests
//!   buffer                                         |  …ta  |  the rest, if it is long
//! ```

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use block::Buffer;
use front_end_core::Charge;
use nbd::{BadMagic, Command, Errno, Request};
use reactor::{Received, SendQueue, Stream};

use crate::client::{Answer, Client, Closing, Outcome};
use crate::connection::{FILL_BYTES, queue_answer};

/// The size of one read: two writes of 128 KiB, or sixty of 4 KiB.
pub(crate) const SCRATCH_BYTES: usize = 256 << 10;
/// A rest from this size on is received in place.
const DIRECT_BYTES: usize = 32 << 10;
/// Data longer than this do not fit into a read with what else is in the socket.
const LONG_BYTES: u64 = SCRATCH_BYTES as u64 / 2;
/// So much is read behind long data, so that those of the next request are received in place, too: a copy less.
const NEXT_BYTES: usize = 4 << 10;

/// The core's scratch buffer, shared by its connections, which use it one at a time.
pub(crate) type Scratch = RefCell<Box<[u8]>>;

/// The receive state of a connection.
#[derive(Default)]
pub(crate) struct Receiver {
    /// What was received and not taken: an incomplete header, or what waits for its turn.
    stash: Vec<u8>,
    incoming: Option<Incoming>,
    /// The latest request has long data, as the next one may.
    is_long: bool,
    stopped: Stopped,
}

/// Why no more requests were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// No more have come.
    #[default]
    Incomplete,
    /// There are as many outstanding, or as much is queued, as may be.
    Room,
    /// There is no memory for the next one.
    Memory,
}

/// Data that follow a request.
struct Incoming {
    request: Request,
    /// How many bytes have come, of how many.
    received: u64,
    length: u64,
    /// Where they belong. Those of a refused request are dropped before it is answered: clients that are still sending
    /// do not expect an answer (libnbd gives up the connection).
    place: Result<(Buffer, Charge), Errno>,
}

impl Receiver {
    /// Whether what was received waits, so that nothing more should be.
    pub(crate) fn is_full(&self) -> bool {
        self.stash.len() >= SCRATCH_BYTES / 2
    }

    /// How many bytes of the data of a request have come, if it waits for more.
    pub(crate) fn owed(&self) -> Option<u64> {
        self.incoming.as_ref().map(|incoming| incoming.received)
    }

    /// Why it took no more the last time.
    pub(crate) fn stopped(&self) -> Stopped {
        self.stopped
    }

    /// Receives what is there, if `read` says so, and takes as many requests as may begin now. Returns
    /// whether the socket may have more.
    pub(crate) fn receive(
        &mut self,
        client: &Rc<Client>,
        stream: &dyn Stream,
        scratch: &mut [u8],
        queue: &mut SendQueue<Charge>,
        read: bool,
    ) -> io::Result<Result<bool, BadMagic>> {
        let kept = self.stash.len();
        scratch[..kept].copy_from_slice(&self.stash);
        self.stash.clear();
        let mut received = Received::default();
        if read {
            let least = if self.is_long { 1 } else { DIRECT_BYTES };
            let direct = self.incoming.as_mut().and_then(|incoming| incoming.rest(least)).unwrap_or_default();
            let end = if self.is_long { scratch.len().min(kept + NEXT_BYTES) } else { scratch.len() };
            received = match stream.receive(direct, &[], &mut scratch[kept..end]) {
                Ok(Received { placed: 0, rest: 0, .. }) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::default(),
                Err(error) => return Err(error),
            };
            if let Some(incoming) = &mut self.incoming {
                incoming.received += received.placed as u64;
            }
        }
        let bytes = &scratch[..kept + received.rest];
        match self.take(client, queue, bytes) {
            Ok(taken) => {
                self.stash.extend_from_slice(&bytes[taken..]);
                Ok(Ok(received.is_full))
            }
            Err(magic) => Ok(Err(magic)),
        }
    }

    /// Takes requests as long as they may begin. Returns how many bytes they were.
    fn take(
        &mut self,
        client: &Rc<Client>,
        queue: &mut SendQueue<Charge>,
        bytes: &[u8],
    ) -> Result<usize, BadMagic> {
        let form = client.session.form;
        let header_bytes = Request::header_bytes(form);
        let mut at = 0;
        self.stopped = Stopped::Incomplete;
        let now = reactor::now();
        loop {
            if let Some(incoming) = &mut self.incoming {
                at += incoming.put(&bytes[at..]);
                if incoming.received < incoming.length {
                    return Ok(at);
                }
                match self.incoming.take().map(|incoming| (incoming.request, incoming.place)) {
                    Some((request, Ok((buffer, charge)))) => {
                        client.start(request, Command::Write, now, Some(buffer), Some(charge));
                    }
                    Some((request, Err(error))) => {
                        let outcome = Outcome::Failed(error, why(error));
                        queue_answer(client, queue, Answer { request, begin: now, outcome });
                    }
                    None => {}
                }
            }
            if !client.has_room() || queue.load() >= FILL_BYTES {
                self.stopped = Stopped::Room;
                return Ok(at);
            }
            let Some(request) = Request::parse(form, &bytes[at..])? else { return Ok(at) };
            let payload_bytes = request.payload_bytes(form);
            let begun = match client.session.check(&request) {
                Ok(Command::Disconnect) => {
                    client.close(Closing::Disconnected);
                    return Ok(bytes.len()); // nothing may follow
                }
                Ok(Command::Write) => {
                    let data = bytes[at + header_bytes..].get(..payload_bytes as usize);
                    if let Some(outcome) = data.and_then(|data| client.write_now(&request, data)) {
                        queue_answer(client, queue, Answer { request, begin: now, outcome });
                        at += header_bytes + payload_bytes as usize;
                        self.is_long = false;
                        continue;
                    }
                    let charge = client.memory.take(Buffer::memory_bytes(payload_bytes as usize));
                    charge.map(|charge| Some(Ok((Buffer::recycled(payload_bytes as usize), charge))))
                }
                Ok(command) => client.begin(request, command, now, queue).then_some(None),
                Err(error) => Some(Some(Err(error))),
            };
            let Some(place) = begun else {
                self.stopped = Stopped::Memory;
                return Ok(at);
            };
            at += header_bytes;
            self.is_long = payload_bytes > LONG_BYTES && matches!(place, Some(Ok(_)));
            if let Some(place) = place {
                self.incoming = Some(Incoming { request, received: 0, length: payload_bytes, place });
            }
        }
    }
}

impl Incoming {
    /// What is missing, if it should be received in place: `least` bytes or more.
    fn rest(&mut self, least: usize) -> Option<&mut [u8]> {
        let received = self.received as usize;
        let (buffer, _) = self.place.as_mut().ok()?;
        buffer.get_mut(received..).filter(|rest| rest.len() >= least)
    }

    /// Takes what belongs to it from the front of `bytes`, and returns how much that is.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let missing = self.length - self.received;
        let taken = usize::try_from(missing).map_or(bytes.len(), |missing| missing.min(bytes.len()));
        if let Ok((buffer, _)) = &mut self.place {
            let received = self.received as usize;
            buffer[received..received + taken].copy_from_slice(&bytes[..taken]);
        }
        self.received += taken as u64;
        taken
    }
}

/// Why [`nbd::Session::check`] refuses a request.
fn why(error: Errno) -> &'static str {
    match error {
        Errno::Eperm => "the export is read-only",
        Errno::Enospc => "past the end of the export",
        _ => "not a request that this export knows, or past its end",
    }
}
