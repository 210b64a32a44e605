//! A connection: the loop between its socket and its client's requests.
//!
//! Each round reads available bytes once, starts the requests in them, and sends completed replies: under
//! load, two system calls for any number of requests. Requests are parsed in sequence in the scratch buffer.
//! The data of a write is also taken from the scratch buffer if it is complete. Only the rest of longer data
//! is received directly into the write's own buffer.
//!
//! ```text
//!   scratch   | request | request, data | request, da…        one read, many requests
//!   buffer                                         |  …ta  |  the rest, if it is long
//! ```
//!
//! Whether the server should wait for more requests before the next read depends on the client. Some clients
//! keep many requests outstanding and send the next one after each reply. If the server is faster than such a
//! client, it answers one request at a time. Each reply then costs two system calls and a wake-up of the
//! client. If the server waits briefly, several requests arrive together, and the client loses nothing,
//! because it still has other replies to process. A client that waits for each reply would lose time. The
//! server therefore measures ([`Gather`]): it compares the duration of some requests with and without
//! waiting, and applies the result for a while.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use block::Buffer;
use front_end_core::{Charge, Traffic};
use nbd::{BadMagic, Command, Errno, Request};
use reactor::{Payload, Received, SendQueue, Stream};

use crate::client::{Answer, Client, Closing, ConnectionEnd, Outcome};

/// No request starts while more than this number of bytes waits to be sent.
const FILL_BYTES: usize = 1 << 20;
/// The server waits for more requests only after a round that moved at most this amount of data. With more
/// data, the cost of system calls is insignificant.
const GATHERED_BYTES_MAX: u64 = 128 << 10;

/// A connection whose handshake is complete.
pub(crate) struct Connection {
    client: Rc<Client>,
    stream: Box<dyn Stream>,
    scratch: Rc<Scratch>,
    receiver: Receiver,
    queue: SendQueue<Charge>,
    gather: Gather,
    /// Whether the socket may have more data.
    readable: bool,
}

impl Connection {
    pub(crate) fn new(
        client: Rc<Client>,
        stream: Box<dyn Stream>,
        scratch: Rc<Scratch>,
    ) -> Connection {
        Connection {
            client,
            stream,
            scratch,
            receiver: Receiver::default(),
            queue: SendQueue::default(),
            gather: Gather::default(),
            readable: true,
        }
    }

    pub(crate) async fn run(mut self) -> ConnectionEnd {
        loop {
            match self.round() {
                Err(end) => return end,
                Ok(true) => reactor::yield_now().await, // other tasks run before the next read
                Ok(false) => self.idle().await,
            }
        }
    }

    /// Executes one round. Returns whether there is more to do immediately.
    fn round(&mut self) -> Result<bool, ConnectionEnd> {
        while let Some(answer) = self.client.next_answer() {
            queue_answer(&self.client, &mut self.queue, answer);
        }
        let before = self.client.traffic();
        match self.client.closing() {
            None => self.receive()?,
            Some(closing) if closing.is_polite() => self.readable = false,
            Some(closing) => return Err(ConnectionEnd::Closed(closing)),
        }
        let moved = self.send()?;
        self.client.record_answers();
        self.gather(before);
        match self.client.closing() {
            Some(closing) if self.queue.is_empty() && !self.client.is_working() => {
                Err(ConnectionEnd::Closed(closing))
            }
            _ => Ok(self.may_begin() && self.has_more(moved)),
        }
    }

    /// Lets more requests accumulate, if the measurements show a benefit and all requests of this round have
    /// been answered.
    fn gather(&mut self, before: Traffic) {
        let now = self.client.traffic();
        debug_assert!(now.commands >= before.commands, "traffic only grows");
        let moved = now.read_bytes + now.written_bytes - before.read_bytes - before.written_bytes;
        let requests = now.commands - before.commands;
        let settled =
            !self.client.is_working() && self.queue.is_empty() && self.receiver.owed().is_none();
        let is_short = requests > 0 && moved <= GATHERED_BYTES_MAX;
        if settled && is_short && self.gather.after(requests, reactor::now()) {
            reactor::world().gather(SPAN);
        }
    }

    fn may_begin(&self) -> bool {
        self.client.has_room() && self.queue.load() < FILL_BYTES
    }

    /// Whether another request can start. `sent` is true if replies were sent, which frees memory.
    fn has_more(&self, sent: bool) -> bool {
        match self.receiver.stopped() {
            Stopped::Incomplete => self.readable,
            Stopped::Room => true,
            Stopped::Memory => sent,
        }
    }

    fn receive(&mut self) -> Result<(), ConnectionEnd> {
        if !self.may_begin() {
            // The server stopped reading, so the delay is not the client's fault.
            self.client
                .set_owing(reactor::now(), self.receiver.owed().is_some(), true);
            return Ok(());
        }
        let read = self.readable && !self.receiver.is_full();
        let (owed, answered) = (self.receiver.owed(), self.client.traffic().commands);
        let mut scratch = self.scratch.borrow_mut();
        let received = self.receiver.receive(
            &self.client,
            &*self.stream,
            &mut scratch,
            &mut self.queue,
            read,
        );
        self.client
            .starved
            .set(self.receiver.stopped() == Stopped::Memory);
        let (now, owes) = (reactor::now(), self.receiver.owed());
        if self.client.traffic().commands > answered {
            self.client.set_owing(now, false, true); // any data owed now belongs to another request
        }
        self.client.set_owing(now, owes.is_some(), owes != owed);
        let limit = self.client.limits.send_stall;
        if self
            .client
            .silent_since()
            .is_some_and(|since| now.duration_since(since) > limit)
        {
            return Err(ConnectionEnd::Stalled);
        }
        match received {
            Ok(Ok(more)) if read => self.readable = more,
            Ok(Ok(_)) => {}
            Ok(Err(magic)) => return Err(ConnectionEnd::Violation(magic)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(ConnectionEnd::PeerClosed);
            }
            Err(error) => return Err(ConnectionEnd::Socket(error)),
        }
        Ok(())
    }

    fn send(&mut self) -> Result<bool, ConnectionEnd> {
        let moved = self
            .queue
            .send(&*self.stream)
            .map_err(ConnectionEnd::Socket)?;
        if self.queue.is_empty() {
            self.client.stuck.set(None);
            self.client.set_backlog(None);
            return Ok(moved);
        }
        let now = reactor::now();
        self.client.set_backlog(Some((now, self.queue.position())));
        let since = self.client.stuck.get().filter(|_| !moved).unwrap_or(now);
        self.client.stuck.set(Some(since));
        match now.duration_since(since) > self.client.limits.send_stall {
            true => Err(ConnectionEnd::Stalled),
            false => Ok(moved),
        }
    }

    /// Waits for the socket or for a reply.
    async fn idle(&mut self) {
        let blocked = !self.queue.is_empty();
        let listening = self.may_begin() && !self.receiver.is_full();
        poll_fn(|cx| {
            let readable = listening && !self.readable && self.stream.poll_readable(cx).is_ready();
            self.readable |= readable;
            let woken = self.client.poll_woken(cx).is_ready();
            let writable = blocked && self.stream.poll_writable(cx).is_ready();
            if readable || woken || writable {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// Queues and counts a reply.
pub(crate) fn queue_answer(client: &Client, queue: &mut SendQueue<Charge>, answer: Answer) {
    let Answer {
        request,
        begin,
        outcome,
    } = answer;
    let session = &client.session;
    let (mut read, mut written) = (0, 0);
    match outcome {
        Outcome::Done => {
            written = request.payload_bytes(session.form);
            queue.append(|out| session.succeed(&request, out));
        }
        Outcome::Data {
            payload,
            part,
            charge,
        } => {
            debug_assert_eq!(
                part.len() as u64,
                request.length,
                "a reply has the requested bytes"
            );
            read = request.length;
            queue.append(|out| session.read_header(&request, out));
            queue.push(queue.arena_end(), payload, part, charge);
        }
        Outcome::Copied => {
            read = request.length;
            queue.append(|out| session.read_header(&request, out));
        }
        Outcome::Extents { extents, charge } => {
            queue.append(|out| session.block_status(&request, &extents, out));
            queue.push(queue.arena_end(), Payload::None, 0..0, charge);
        }
        Outcome::Failed(error, text) => {
            client.count_failure(&request, error);
            queue.append(|out| session.fail(&request, error, text, out));
        }
    }
    client.count(&request, begin, (read, written));
}

/// The size of one read: two writes of 128 KiB, or sixty of 4 KiB.
pub(crate) const SCRATCH_BYTES: usize = 256 << 10;
/// A remainder of at least this size is received in place.
const DIRECT_BYTES: usize = 32 << 10;
/// Data of more than this length is received directly into its buffer: it does not fit into one read together
/// with other data in the socket.
const LONG_BYTES: u64 = SCRATCH_BYTES as u64 / 2;
/// Number of bytes read after long data, so that the data of the next request is received in place as well,
/// which saves a copy.
const NEXT_BYTES: usize = 4 << 10;

/// The core's scratch buffer, shared by its connections, which use it one at a time.
pub(crate) type Scratch = RefCell<Box<[u8]>>;

/// The receive state of a connection.
#[derive(Default)]
struct Receiver {
    /// Received bytes not yet consumed: an incomplete header, or requests that must wait.
    stash: Vec<u8>,
    incoming: Option<Incoming>,
    /// Whether the latest request had long data, so the next one may have long data as well.
    is_long: bool,
    stopped: Stopped,
}

/// The reason why the server stopped starting requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stopped {
    /// No more complete requests were received.
    #[default]
    Incomplete,
    /// The limit on outstanding requests or queued bytes is reached.
    Room,
    /// There is no memory for the next request.
    Memory,
}

/// The data that follows a request.
struct Incoming {
    request: Request,
    /// The number of bytes received so far, and the total number.
    received: u64,
    length: u64,
    /// The destination. The data of a rejected request is received and dropped before the reply is sent,
    /// because clients that are still sending do not expect a reply (libnbd abandons the connection).
    place: Result<(Buffer, Charge), Errno>,
}

impl Receiver {
    /// Whether so many received bytes are waiting that the server should not read more.
    fn is_full(&self) -> bool {
        self.stash.len() >= SCRATCH_BYTES / 2
    }

    /// The number of bytes received of a request's data; `None` if no request waits for data.
    fn owed(&self) -> Option<u64> {
        self.incoming.as_ref().map(|incoming| incoming.received)
    }

    /// The reason why the server last stopped starting requests.
    fn stopped(&self) -> Stopped {
        self.stopped
    }

    /// Receives available bytes if `read` is set, and starts as many requests as the limits allow. Returns
    /// whether the socket may have more.
    fn receive(
        &mut self,
        client: &Rc<Client>,
        stream: &dyn Stream,
        scratch: &mut [u8],
        queue: &mut SendQueue<Charge>,
        read: bool,
    ) -> io::Result<Result<bool, BadMagic>> {
        let kept = self.stash.len();
        debug_assert!(
            kept <= scratch.len() && !(read && self.is_full()),
            "waiting requests leave space to read"
        );
        debug_assert!(
            self.incoming.is_none() || kept == 0,
            "a request's data has a place immediately"
        );
        scratch[..kept].copy_from_slice(&self.stash);
        self.stash.clear();
        let mut received = Received::default();
        if read {
            let least = if self.is_long { 1 } else { DIRECT_BYTES };
            let direct = self
                .incoming
                .as_mut()
                .and_then(|incoming| incoming.rest(least))
                .unwrap_or_default();
            let end = if self.is_long {
                scratch.len().min(kept + NEXT_BYTES)
            } else {
                scratch.len()
            };
            received = match stream.receive(direct, &[], &mut scratch[kept..end]) {
                Ok(Received {
                    placed: 0, rest: 0, ..
                }) => return Err(io::ErrorKind::UnexpectedEof.into()),
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
                debug_assert!(taken <= bytes.len());
                self.stash.extend_from_slice(&bytes[taken..]);
                debug_assert!(
                    self.stopped != Stopped::Incomplete
                        || self.stash.len() < Request::header_bytes(client.session.form),
                    "a whole request waits for room or memory only"
                );
                Ok(Ok(received.is_full))
            }
            Err(magic) => Ok(Err(magic)),
        }
    }

    /// Starts requests while the limits allow. Returns the number of bytes consumed.
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
                match self
                    .incoming
                    .take()
                    .map(|incoming| (incoming.request, incoming.place))
                {
                    Some((request, Ok((buffer, charge)))) => {
                        debug_assert_eq!(
                            buffer.len() as u64,
                            request.length,
                            "all of its data has arrived"
                        );
                        client.start(request, Command::Write, now, Some(buffer), Some(charge));
                    }
                    Some((request, Err(error))) => {
                        let outcome = Outcome::Failed(error, why(error));
                        queue_answer(
                            client,
                            queue,
                            Answer {
                                request,
                                begin: now,
                                outcome,
                            },
                        );
                    }
                    None => {}
                }
            }
            if !client.has_room() || queue.load() >= FILL_BYTES {
                self.stopped = Stopped::Room;
                return Ok(at);
            }
            let Some(request) = Request::parse(form, &bytes[at..])? else {
                return Ok(at);
            };
            let payload_bytes = request.payload_bytes(form);
            let begun = match client.session.check(&request) {
                Ok(Command::Disconnect) => {
                    client.close(Closing::Disconnected);
                    return Ok(bytes.len()); // no request may follow
                }
                Ok(Command::Write) => {
                    let data = bytes[at + header_bytes..].get(..payload_bytes as usize);
                    if let Some(outcome) = data.and_then(|data| client.write_now(&request, data)) {
                        queue_answer(
                            client,
                            queue,
                            Answer {
                                request,
                                begin: now,
                                outcome,
                            },
                        );
                        at += header_bytes + payload_bytes as usize;
                        self.is_long = false;
                        continue;
                    }
                    let charge = client
                        .memory
                        .take(Buffer::memory_bytes(payload_bytes as usize));
                    charge
                        .map(|charge| Some(Ok((Buffer::recycled(payload_bytes as usize), charge))))
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
                self.incoming = Some(Incoming {
                    request,
                    received: 0,
                    length: payload_bytes,
                    place,
                });
            }
        }
    }
}

impl Incoming {
    /// Returns the destination of the missing part, if it has at least `least` bytes and should therefore be
    /// received in place.
    fn rest(&mut self, least: usize) -> Option<&mut [u8]> {
        let received = self.received as usize;
        let (buffer, _) = self.place.as_mut().ok()?;
        buffer
            .get_mut(received..)
            .filter(|rest| rest.len() >= least)
    }

    /// Consumes the bytes at the front of `bytes` that belong to this data. Returns their number.
    fn put(&mut self, bytes: &[u8]) -> usize {
        debug_assert!(
            self.received <= self.length,
            "no more is taken than belongs to it"
        );
        let missing = self.length - self.received;
        let taken =
            usize::try_from(missing).map_or(bytes.len(), |missing| missing.min(bytes.len()));
        if let Ok((buffer, _)) = &mut self.place {
            let received = self.received as usize;
            buffer[received..received + taken].copy_from_slice(&bytes[..taken]);
        }
        self.received += taken as u64;
        taken
    }
}

/// Returns the reason why [`nbd::Session::check`] rejects a request.
fn why(error: Errno) -> &'static str {
    match error {
        Errno::Eperm => "the export is read-only",
        Errno::Enospc => "past the end of the export",
        _ => "a request that the export does not support, or past the end of the export",
    }
}

/// Time to wait for more requests. (Virtual machines wake up 40 µs later.)
const SPAN: Duration = Duration::from_micros(20);
/// If a read returns this number of requests, the server does not wait for more.
const ENOUGH: u64 = 16;
/// Number of requests in each half of a comparison.
const WINDOW: u64 = 128;
/// Number of requests for which the result applies.
const HOLD: u64 = 64 * WINDOW;
/// After this number of consecutive waits without a second request, waiting is assumed to have no benefit.
const VAIN: u32 = 4;
/// A longer interval between two rounds counts as idle time.
const PAUSE: Duration = Duration::from_millis(1);

/// The measurements for one client.
#[derive(Debug, Default)]
struct Gather {
    phase: Phase,
    /// The requests of this phase, and the time they took.
    requests: u64,
    spent: Duration,
    latest: Option<Instant>,
    /// Whether the server waited before this round.
    waited: bool,
    /// Consecutive waits without a second request.
    in_vain: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Measuring without waiting.
    #[default]
    Alone,
    /// Measuring with waiting. `alone` is the time that `requests` took without waiting.
    Together { alone: Duration, requests: u64 },
    /// The result: whether waiting reduces the time per request.
    Known(bool),
}

impl Gather {
    /// Records that one read returned `requests` requests, which have been answered. Returns whether the
    /// server should wait for more requests before the next read.
    fn after(&mut self, requests: u64, now: Instant) -> bool {
        let since = self
            .latest
            .replace(now)
            .map_or(Duration::ZERO, |latest| now.duration_since(latest));
        self.spent += since.min(PAUSE);
        self.requests += requests;
        self.in_vain = if self.waited && requests <= 1 {
            self.in_vain + 1
        } else {
            0
        };
        match self.phase {
            Phase::Alone if self.requests >= WINDOW => {
                self.enter(Phase::Together {
                    alone: self.spent,
                    requests: self.requests,
                });
            }
            Phase::Together { .. } | Phase::Known(true) if self.in_vain >= VAIN => {
                self.enter(Phase::Known(false))
            }
            Phase::Together { alone, requests } if self.requests >= WINDOW => {
                let pays = self.spent.as_nanos() * u128::from(requests)
                    <= alone.as_nanos() * u128::from(self.requests) * 9 / 8;
                self.enter(Phase::Known(pays));
            }
            Phase::Known(_) if self.requests >= HOLD => self.enter(Phase::Alone),
            _ => {}
        }
        let waits = matches!(self.phase, Phase::Together { .. } | Phase::Known(true));
        self.waited = waits && requests < ENOUGH;
        self.waited
    }

    fn enter(&mut self, phase: Phase) {
        *self = Gather {
            phase,
            latest: self.latest,
            ..Gather::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves a client that keeps `depth` requests outstanding and takes the time `client` for each reply.
    /// Returns two results for the second half: requests per read after a wait, and the share of reads that
    /// followed a wait.
    fn served(depth: u64, client: Duration, waiting: Duration, total: u64) -> (f64, f64) {
        let (mut gather, mut now) = (Gather::default(), Instant::now());
        let (mut done, mut rounds, mut waits, mut gathered) = (0, 0u32, 0u32, 0);
        let mut wait = false;
        while done < total {
            // The client can send one request for each reply it has received.
            let span = if wait { waiting } else { client };
            now += span;
            let requests = ((span.as_nanos() / client.as_nanos()) as u64).clamp(1, depth);
            if done > total / 2 {
                rounds += 1;
                waits += u32::from(wait);
                gathered += if wait { requests } else { 0 };
            }
            done += requests;
            wait = gather.after(requests, now);
        }
        (
            gathered as f64 / f64::from(waits.max(1)),
            f64::from(waits) / f64::from(rounds),
        )
    }

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn a_busy_client_is_waited_for() {
        let (requests, share) = served(32, 5 * US, 60 * US, 1 << 20);
        assert!(
            requests > 11.0 && share > 0.7,
            "{requests} by {share} of the reads"
        );
    }

    #[test]
    fn a_client_that_waits_for_each_answer_is_not_made_to_wait() {
        let (_, share) = served(1, 20 * US, 60 * US, 1 << 20);
        assert!(share < 0.001, "{share}");
    }

    #[test]
    fn a_client_that_runs_out_of_answers_is_not_made_to_wait() {
        for depth in [2, 4, 8] {
            let (_, share) = served(depth, 5 * US, 60 * US, 1 << 20);
            assert!(share < 0.02, "depth {depth}: {share}");
        }
    }

    #[test]
    fn many_at_once_are_enough() {
        let (mut gather, mut now) = (Gather::default(), Instant::now());
        for _ in 0..10_000 {
            now += 100 * US;
            assert!(!gather.after(ENOUGH, now));
        }
    }

    #[test]
    fn what_was_learnt_is_forgotten_when_the_client_changes() {
        let (mut gather, mut now) = (Gather::default(), Instant::now());
        let mut waited = false;
        for _ in 0..1000 {
            let requests = if waited { 12 } else { 1 };
            now += if waited { 60 * US } else { 5 * US };
            waited = gather.after(requests, now);
        }
        assert!(waited);
        now += 60 * US;
        for alone in 1..=VAIN {
            assert_eq!(gather.after(1, now), alone < VAIN);
            now += 60 * US;
        }
        assert!(!gather.after(1, now));
    }
}
