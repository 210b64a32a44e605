//! A connection: the loop between its socket and its client's requests.
//!
//! Each round reads once what is available, begins its requests, and sends what has been answered: under
//! load, two system calls for any number of requests.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;

use front_end_core::{Charge, ConnectionPermit, Traffic};
use nbd::BadMagic;
use reactor::{Payload, SendQueue, Stream};

use crate::admission::Admitted;
use crate::client::{Answer, Beginning, Client, Closing, Outcome};
use crate::core::CoreClients;
use crate::front_end::Place;
use crate::gather::{self, Gather};
use crate::receive::{Receiver, Scratch, Stopped};

/// Beyond this many bytes no request begins until the socket has taken them.
pub(crate) const FILL_BYTES: usize = 1 << 20;
/// More of them are waited for only behind a round that moved less than this: data cost more than calls.
const GATHERED_BYTES_MAX: u64 = 128 << 10;

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum ConnectionEnd {
    /// Closed by this side, or as the client has asked.
    Closed(Closing),
    /// The client closed the connection without a word.
    PeerClosed,
    /// The socket failed.
    Socket(io::Error),
    /// The client broke a rule that has no answer.
    Violation(BadMagic),
    /// The client has taken nothing of its answers, or sent nothing of the data that it owes, for too long.
    Stalled,
}

impl ConnectionEnd {
    /// The name that monitoring has for it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ConnectionEnd::Closed(Closing::Disconnected) => "disconnected",
            ConnectionEnd::Closed(Closing::Asked | Closing::Dropped) => "dropped",
            ConnectionEnd::Closed(Closing::Gone) => "export_gone",
            ConnectionEnd::Closed(Closing::TooSlow) => "too_slow",
            ConnectionEnd::PeerClosed => "closed_by_client",
            ConnectionEnd::Socket(_) => "socket_error",
            ConnectionEnd::Violation(_) => "protocol_error",
            ConnectionEnd::Stalled => "send_stall",
        }
    }
}

impl fmt::Display for ConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionEnd::Closed(closing) => closing.fmt(f),
            ConnectionEnd::PeerClosed => f.write_str("closed by the client without disconnecting"),
            ConnectionEnd::Socket(error) => error.fmt(f),
            ConnectionEnd::Violation(violation) => violation.fmt(f),
            ConnectionEnd::Stalled => {
                f.write_str("took nothing of what was sent, or sent nothing of what it owed, for too long")
            }
        }
    }
}

/// A connection whose client has shaken hands.
pub(crate) struct Connection {
    client: Rc<Client>,
    stream: Box<dyn Stream>,
    scratch: Rc<Scratch>,
    receiver: Receiver,
    queue: SendQueue<Charge>,
    gather: Gather,
    /// The socket may have more.
    readable: bool,
    _permit: ConnectionPermit,
    _place: Place,
}

impl Connection {
    pub(crate) fn new(core: &Rc<CoreClients>, admitted: Admitted) -> io::Result<(Rc<Client>, Connection)> {
        let Admitted {
            stream,
            permit,
            place,
            peer,
            requester,
            local,
            portal,
            export,
            session,
            limits,
            losses_told,
            ..
        } = admitted;
        let stream = tls::adopt(stream)?;
        let counted_as = core.front_end.names.label(&peer.ip().to_canonical().to_string());
        let tally = core.tally.volume(&export.volume);
        let beginning = Beginning { peer, requester, local, portal, export, session, limits, losses_told };
        let client = Rc::new(Client::new(beginning, counted_as, tally, &core.handle.memory));
        let connection = Connection {
            client: Rc::clone(&client),
            stream,
            scratch: Rc::clone(&core.scratch),
            receiver: Receiver::default(),
            queue: SendQueue::default(),
            gather: Gather::default(),
            readable: true,
            _permit: permit,
            _place: place,
        };
        Ok((client, connection))
    }

    /// Runs it to its end.
    pub(crate) async fn run(mut self) -> ConnectionEnd {
        loop {
            match self.round() {
                Err(end) => return end,
                Ok(true) => reactor::yield_now().await, // others first; then what is left in the socket
                Ok(false) => self.idle().await,
            }
        }
    }

    /// Returns whether there is more to do at once.
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

    /// Lets more requests come together, if that is known to pay and all of this round are answered.
    fn gather(&mut self, before: Traffic) {
        let now = self.client.traffic();
        let moved = now.read_bytes + now.written_bytes - before.read_bytes - before.written_bytes;
        let requests = now.commands - before.commands;
        let settled = !self.client.is_working() && self.queue.is_empty() && self.receiver.owed().is_none();
        let is_short = requests > 0 && moved <= GATHERED_BYTES_MAX;
        if settled && is_short && self.gather.after(requests, reactor::now()) {
            reactor::world().gather(gather::SPAN);
        }
    }

    /// Whether another request may begin.
    fn may_begin(&self) -> bool {
        self.client.has_room() && self.queue.load() < FILL_BYTES
    }

    /// Whether there may be another request, given whether answers were sent, which frees memory.
    fn has_more(&self, sent: bool) -> bool {
        match self.receiver.stopped() {
            Stopped::Incomplete => self.readable,
            Stopped::Room => true,
            Stopped::Memory => sent,
        }
    }

    fn receive(&mut self) -> Result<(), ConnectionEnd> {
        if !self.may_begin() {
            // Nothing is read, which is not the client's fault.
            self.client.set_owing(reactor::now(), self.receiver.owed().is_some(), true);
            return Ok(());
        }
        let read = self.readable && !self.receiver.is_full();
        let (owed, answered) = (self.receiver.owed(), self.client.traffic().commands);
        let mut scratch = self.scratch.borrow_mut();
        let received =
            self.receiver.receive(&self.client, &*self.stream, &mut scratch, &mut self.queue, read);
        self.client.set_starved(self.receiver.stopped() == Stopped::Memory);
        let (now, owes) = (reactor::now(), self.receiver.owed());
        if self.client.traffic().commands > answered {
            self.client.set_owing(now, false, true); // what is owed now is another request's
        }
        self.client.set_owing(now, owes.is_some(), owes != owed);
        let limit = self.client.limits.send_stall;
        if self.client.silent_since().is_some_and(|since| now.duration_since(since) > limit) {
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

    /// Returns whether anything was sent.
    fn send(&mut self) -> Result<bool, ConnectionEnd> {
        let moved = self.queue.send(&*self.stream).map_err(ConnectionEnd::Socket)?;
        if self.queue.is_empty() {
            self.client.set_stuck(None);
            self.client.set_backlog(None);
            return Ok(moved);
        }
        let now = reactor::now();
        self.client.set_backlog(Some((now, self.queue.position())));
        let since = self.client.stuck_since().filter(|_| !moved).unwrap_or(now);
        self.client.set_stuck(Some(since));
        match now.duration_since(since) > self.client.limits.send_stall {
            true => Err(ConnectionEnd::Stalled),
            false => Ok(moved),
        }
    }

    /// Waits for the socket, or for an answer.
    async fn idle(&mut self) {
        let blocked = !self.queue.is_empty();
        let listening = self.may_begin() && !self.receiver.is_full();
        poll_fn(|cx| {
            let readable = listening && !self.readable && self.stream.poll_readable(cx).is_ready();
            self.readable |= readable;
            let woken = self.client.poll_woken(cx).is_ready();
            let writable = blocked && self.stream.poll_writable(cx).is_ready();
            if readable || woken || writable { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Queues the reply that an answer is, and counts it.
pub(crate) fn queue_answer(client: &Client, queue: &mut SendQueue<Charge>, answer: Answer) {
    let Answer { request, begin, outcome } = answer;
    let session = &client.session;
    let (mut read, mut written) = (0, 0);
    match outcome {
        Outcome::Done => {
            written = request.payload_bytes(session.form);
            queue.append(|out| session.succeed(&request, out));
        }
        Outcome::Data { payload, part, charge } => {
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
