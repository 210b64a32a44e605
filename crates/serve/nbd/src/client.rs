//! A client: the state that its connection and the tasks of its requests share. Clients have numbers from 1
//! to 65,535, which are reused, but never by two clients at the same time.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use derive_more::Display;
use front_end_core::{
    AUDIT, Budget, Charge, ListenAddress, Operation, Portal, Requests, SessionCounts, SessionInfo,
    Span, Traffic, VolumeTally,
};
use nbd::{BadMagic, BlockStatus, Command, Errno, Request, Session};
use reactor::Payload;
use volume::{AttachmentId, HostPath, HostPort, ServicePort};

use crate::config::{Encryption, Export, Limits, Requester};
use crate::reported::Account;

/// The name of this front end in [`Portal::front_end`](front_end_core::Portal::front_end).
pub const NBD: &str = "nbd";

/// A client that has completed its handshake.
pub(crate) struct Client {
    number: Number,
    pub(crate) peer: SocketAddr,
    pub(crate) requester: Requester,
    pub(crate) local: ListenAddress,
    pub(crate) export: Arc<Export>,
    pub(crate) session: Session,
    pub(crate) limits: Limits,
    pub(crate) requests: Requests,
    /// Memory for data of its requests.
    pub(crate) memory: Rc<Budget>,
    /// The lost writes reported to the client.
    pub(crate) losses: Account,
    /// The label of its host for monitoring.
    pub(crate) counted_as: Arc<str>,
    /// Counts of the volume on this core.
    pub(crate) tally: Rc<VolumeTally>,
    /// The replies of this round, with the times at which their requests started. The time of sending counts
    /// as the end of all of these requests.
    answered: RefCell<Vec<(Operation, Instant)>>,
    since: Instant,
    /// Replies from tasks, which the connection has to send.
    answers: RefCell<VecDeque<Answer>>,
    /// Number of requests that have a task.
    pub(crate) running: Cell<usize>,
    closing: Cell<Option<Closing>>,
    /// The time since which sending has made no progress.
    pub(crate) stuck: Cell<Option<Instant>>,
    /// Time and end position, in bytes, of the oldest backlog that has not been sent yet.
    backlog: Cell<Option<(Instant, u64)>>,
    /// The time since which data of a write has been outstanding, and the time at which some of it last
    /// arrived.
    owing: Cell<Option<(Instant, Instant)>>,
    /// Whether a request waits for memory.
    pub(crate) starved: Cell<bool>,
    woken: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    traffic: Cell<Traffic>,
}

/// The status of a client.
#[derive(Clone, Debug)]
pub struct ClientStatus {
    /// Its number.
    pub number: u16,
    /// The name of its export.
    pub export: String,
    /// Its address; 127.0.0.1 with port 0 for a Unix socket.
    pub peer: SocketAddr,
    /// The properties that determine which exports are visible to the client.
    pub requester: Requester,
    /// The local address.
    pub local: ListenAddress,
    /// The time since its handshake.
    pub age: Duration,
    /// The core that serves it.
    pub core: usize,
    /// Outstanding requests.
    pub in_flight: usize,
    /// Its traffic.
    pub traffic: Traffic,
    /// The negotiated parameters, by name.
    pub parameters: Vec<(&'static str, String)>,
}

/// The reason why a connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub(crate) enum Closing {
    /// The client requested it.
    #[display("disconnected by the client")]
    Disconnected,
    /// The server is shutting down, or an administrator requested it: outstanding requests are answered.
    #[display("the server is shutting down, or an administrator dropped the connection")]
    Asked,
    /// Its export was removed.
    #[display("its export was removed, or now exports another volume")]
    Gone,
    /// It was too slow while other clients were waiting for memory.
    #[display("too slow while other clients were waiting for memory")]
    TooSlow,
    /// The connection is dropped immediately.
    #[display("dropped")]
    Dropped,
}

/// The reason why a connection ended.
#[derive(Debug, Display)]
pub(crate) enum ConnectionEnd {
    /// The server closed the connection, for this reason.
    Closed(Closing),
    /// The client closed the connection without notice.
    #[display("closed by the client without disconnecting")]
    PeerClosed,
    /// The socket failed.
    Socket(io::Error),
    /// The client violated the protocol in a way that allows no reply.
    Violation(BadMagic),
    /// The client has read no replies, or has sent none of the requested data, for too long.
    #[display("stalled: did not read, or did not send requested data")]
    Stalled,
}

impl ConnectionEnd {
    /// The name for monitoring.
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

pub(crate) struct Answer {
    pub(crate) request: Request,
    /// The time at which the request was received.
    pub(crate) begin: Instant,
    pub(crate) outcome: Outcome,
}

/// The outcome of a request.
pub(crate) enum Outcome {
    /// The request succeeded and returns no data.
    Done,
    /// The data of a read: a part of a payload, whose memory is charged.
    Data {
        payload: Payload,
        part: Range<usize>,
        charge: Option<Charge>,
    },
    /// The data of a read, which is appended after the header.
    Copied,
    /// The extents of BLOCK_STATUS, whose memory is charged.
    Extents {
        extents: Vec<BlockStatus>,
        charge: Option<Charge>,
    },
    /// The request failed. The text is a human-readable reason.
    Failed(Errno, &'static str),
}

/// The initial properties of a client.
pub(crate) struct Beginning {
    pub(crate) peer: SocketAddr,
    pub(crate) requester: Requester,
    pub(crate) local: ListenAddress,
    pub(crate) portal: Portal,
    pub(crate) export: Arc<Export>,
    pub(crate) session: Session,
    pub(crate) limits: Limits,
    pub(crate) losses: Account,
}

impl Closing {
    /// Whether outstanding requests are answered first.
    pub(crate) fn is_polite(self) -> bool {
        matches!(self, Closing::Disconnected | Closing::Asked | Closing::Gone)
    }
}

impl Client {
    pub(crate) fn number(&self) -> u16 {
        self.number.value()
    }

    /// Creates a client, whose memory also counts against the memory of its core.
    pub(crate) fn new(
        beginning: Beginning,
        counted_as: Arc<str>,
        tally: Rc<VolumeTally>,
        core_memory: &Rc<Budget>,
    ) -> Client {
        let Beginning {
            peer,
            requester,
            local,
            portal,
            export,
            session,
            limits,
            losses,
        } = beginning;
        let volume = Arc::clone(&export.volume);
        Client {
            number: Number::next(),
            peer,
            requester,
            local,
            losses,
            requests: Requests::new(
                volume,
                AttachmentId::next(),
                path(&portal, peer, &export.name),
            ),
            memory: Budget::new(limits.staging_bytes, Some(Rc::clone(core_memory))),
            export,
            session,
            limits,
            counted_as,
            tally,
            answered: RefCell::default(),
            since: reactor::now(),
            answers: RefCell::default(),
            running: Cell::new(0),
            closing: Cell::new(None),
            stuck: Cell::new(None),
            backlog: Cell::new(None),
            owing: Cell::new(None),
            starved: Cell::new(false),
            woken: Cell::new(false),
            waker: RefCell::default(),
            traffic: Cell::default(),
        }
    }

    /// Closes the client's connection. The first reason is kept, unless the new reason closes the connection
    /// immediately and the first one did not.
    pub(crate) fn close(&self, why: Closing) {
        if self
            .closing
            .get()
            .is_none_or(|before| before.is_polite() && !why.is_polite())
        {
            self.closing.set(Some(why));
        }
        self.wake();
    }

    pub(crate) fn closing(&self) -> Option<Closing> {
        self.closing.get()
    }

    /// Whether any request has a task, or a reply that has not been queued yet.
    pub(crate) fn is_working(&self) -> bool {
        self.running.get() > 0 || !self.answers.borrow().is_empty()
    }

    /// Waits until no request has a task. Aborted requests have then released their blocks, or have left them
    /// locked until the device quiesces.
    pub(crate) async fn idle(&self) {
        while self.running.get() > 0 {
            poll_fn(|cx| self.poll_woken(cx)).await;
        }
    }

    /// Whether a task may be started for another request.
    pub(crate) fn has_room(&self) -> bool {
        self.closing.get().is_none() && self.running.get() < self.limits.requests
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.running.get() > 0 || self.starved.get() || self.stuck.get().is_some()
    }

    /// Counts a request's new task.
    pub(crate) fn begin_task(&self) {
        debug_assert!(
            self.running.get() < self.limits.requests,
            "there is space for one more"
        );
        self.running.set(self.running.get() + 1);
    }

    pub(crate) fn end_task(&self, answer: Answer) {
        debug_assert!(self.running.get() > 0, "a task ends once");
        self.running.set(self.running.get() - 1);
        self.answers.borrow_mut().push_back(answer);
        self.wake();
    }

    pub(crate) fn next_answer(&self) -> Option<Answer> {
        self.answers.borrow_mut().pop_front()
    }

    /// Counts a queued reply and its data.
    pub(crate) fn count(&self, request: &Request, begin: Instant, (read, written): (u64, u64)) {
        let moved = Traffic {
            commands: 1,
            read_bytes: read,
            written_bytes: written,
            window_full: 0,
        };
        self.traffic.set(self.traffic.get().plus(moved));
        self.tally.moved(read, written);
        self.answered.borrow_mut().push((operation(request), begin));
    }

    /// Its traffic.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic.get()
    }

    /// Counts an error reply.
    pub(crate) fn count_failure(&self, request: &Request, error: Errno) {
        self.tally.failed(operation(request), name_of(error));
    }

    /// Records the replies of this round, which are now being sent.
    pub(crate) fn record_answers(&self) {
        let mut answered = self.answered.borrow_mut();
        let Some((_, begin)) = answered.first() else {
            return;
        };
        let end = reactor::now();
        let mut span = Span::new(*begin, end);
        for (operation, begin) in answered.drain(..) {
            span = span.to(begin, end);
            self.tally.record(operation, span);
        }
    }

    /// Returns the description of the client for observers.
    pub(crate) fn info<'a>(&'a self, host: &'a str) -> SessionInfo<'a> {
        let (target, handle) = (Some(&*self.export.name), Some(self.number()));
        SessionInfo {
            front_end: NBD,
            initiator: host,
            user: None,
            target,
            handle,
        }
    }

    /// Records the number of bytes sent and queued while the socket is full; `None` if it is not full.
    pub(crate) fn set_backlog(&self, full: Option<(Instant, (u64, u64))>) {
        debug_assert!(
            full.is_none_or(|(_, (sent, queued))| sent <= queued),
            "sent bytes were queued"
        );
        let kept = |sent| self.backlog.get().filter(|(_, end)| *end > sent);
        self.backlog
            .set(full.map(|(now, (sent, queued))| kept(sent).unwrap_or((now, queued))));
    }

    /// Records whether the client owes data of a write. `progress` is true if some of the data has arrived.
    pub(crate) fn set_owing(&self, now: Instant, owes: bool, progress: bool) {
        let (begin, latest) = self.owing.get().unwrap_or((now, now));
        self.owing
            .set(owes.then_some((begin, if progress { now } else { latest })));
    }

    /// The time at which data that the client owes last arrived; `None` if it owes no data.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        self.owing.get().map(|(_, latest)| latest)
    }

    /// The time since which the client has held memory because it is slow, in either direction.
    pub(crate) fn slow_since(&self) -> Option<Instant> {
        let slow = [
            self.backlog.get().map(|(since, _)| since),
            self.owing.get().map(|(begin, _)| begin),
        ];
        slow.into_iter().flatten().min()
    }

    /// Makes the connection check its limits of time and memory.
    pub(crate) fn tick(&self) {
        if self.starved.get() || self.stuck.get().is_some() || self.owing.get().is_some() {
            self.wake();
        }
    }

    fn wake(&self) {
        self.woken.set(true);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Ready if it was woken since the last call.
    pub(crate) fn poll_woken(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.woken.take() {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The name of the client's host: its address.
    pub(crate) fn host(&self) -> String {
        self.peer.ip().to_canonical().to_string()
    }

    pub(crate) fn log_in(&self) {
        let (peer, client, export) = (self.peer, self.number(), &self.export.name);
        match &self.requester.encryption {
            None => tracing::info!(target: AUDIT, %peer, client, export, "connected"),
            Some(Encryption { cipher, names }) => {
                let certificate = names.join(", ");
                tracing::info!(target: AUDIT, %peer, client, export, tls = cipher, certificate, "connected");
            }
        }
    }

    pub(crate) fn log_out(&self, end: &ConnectionEnd) {
        let (peer, client, export) = (self.peer, self.number(), &self.export.name);
        let Traffic {
            commands,
            read_bytes,
            written_bytes,
            ..
        } = self.traffic.get();
        tracing::info!(target: AUDIT, why = %end, %peer, client, export, commands, read_bytes, written_bytes,
            "connection ended");
    }

    /// Its statistics for monitoring.
    pub(crate) fn counts(&self) -> SessionCounts {
        SessionCounts {
            target: Some(self.export.name.clone()),
            host: Arc::clone(&self.counted_as),
            connections: 1,
            traffic: self.traffic.get(),
        }
    }

    pub(crate) fn status(&self, core: usize) -> ClientStatus {
        let form = format!("{:?}", self.session.form).to_lowercase();
        let mut parameters = vec![
            ("replies", form),
            (
                "base:allocation",
                if self.session.allocation.is_some() {
                    "yes"
                } else {
                    "no"
                }
                .to_owned(),
            ),
        ];
        if let Some(Encryption { cipher, names }) = &self.requester.encryption {
            parameters.push(("tls", cipher.clone()));
            parameters.extend(names.iter().map(|name| ("certificate", name.clone())));
        }
        ClientStatus {
            number: self.number(),
            export: self.export.name.clone(),
            peer: self.peer,
            requester: self.requester.clone(),
            local: self.local.clone(),
            age: reactor::now().duration_since(self.since),
            core,
            in_flight: self.running.get(),
            traffic: self.traffic.get(),
            parameters,
        }
    }
}

/// Returns the name of a request for monitoring.
fn operation(request: &Request) -> Operation {
    match request.command() {
        Some(Command::Read) => Operation::Read,
        Some(Command::Write) => Operation::Write,
        Some(Command::Flush) => Operation::Flush,
        Some(Command::Trim) => Operation::Unmap,
        Some(Command::WriteZeroes) => Operation::WriteSame,
        Some(Command::Cache | Command::BlockStatus | Command::Disconnect) | None => {
            Operation::Other
        }
    }
}

/// Returns the name of an error for monitoring.
fn name_of(error: Errno) -> &'static str {
    match error {
        Errno::Eperm => "eperm",
        Errno::Eio => "eio",
        Errno::Enomem => "enomem",
        Errno::Einval => "einval",
        Errno::Enospc => "enospc",
        Errno::Eoverflow => "eoverflow",
        Errno::Enotsup => "enotsup",
        Errno::Eshutdown => "eshutdown",
    }
}

/// Returns the path of a client. A client has no name except its address.
fn path(portal: &Portal, peer: SocketAddr, export: &str) -> HostPath {
    let host = HostPort {
        name: format!("{NBD}:{}", peer.ip().to_canonical()),
        qualifier: [0; 6],
    };
    let service = ServicePort {
        name: format!("{NBD}:{export}"),
        group: portal.tag,
        relative_port: 1,
    };
    HostPath { host, service }
}

/// A client's number, which is released when this value is dropped.
pub(crate) struct Number(u16);

/// The numbers in use, and the last one assigned.
#[derive(Default)]
struct Numbers {
    used: BTreeSet<u16>,
    last: u16,
}

/// One set for the process, so that a number identifies a client across all cores.
static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers {
    used: BTreeSet::new(),
    last: 0,
});

impl Number {
    /// The next free number. If there are 65,535 clients, no number is free, and two clients share one.
    pub(crate) fn next() -> Number {
        Number(
            NUMBERS
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .next(),
        )
    }

    pub(crate) fn value(&self) -> u16 {
        self.0
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        NUMBERS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .used
            .remove(&self.0);
    }
}

impl Numbers {
    fn next(&mut self) -> u16 {
        let later = (self.last..u16::MAX)
            .map(|before| before + 1)
            .chain(1..=self.last);
        self.last = later
            .into_iter()
            .find(|number| !self.used.contains(number))
            .unwrap_or(u16::MAX);
        self.used.insert(self.last);
        debug_assert_ne!(self.last, 0, "no client has this number");
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_given_again_while_its_client_is_there() {
        let mut numbers = Numbers::default();
        let first: Vec<u16> = (0..3).map(|_| numbers.next()).collect();
        assert_eq!(first, [1, 2, 3]);
        numbers.used.remove(&2);
        numbers.last = u16::MAX - 1;
        let later: Vec<u16> = (0..4).map(|_| numbers.next()).collect();
        assert_eq!(later, [u16::MAX, 2, 4, 5]);
    }

    #[test]
    fn there_is_an_end_of_looking_where_all_are_used() {
        let mut numbers = Numbers {
            used: (1..=u16::MAX).collect(),
            last: 7,
        };
        assert_eq!(numbers.next(), u16::MAX);
    }
}
