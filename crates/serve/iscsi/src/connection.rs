//! A connection in full feature phase: the loop between its socket and its session.
//!
//! Each iteration reads the available data once, handles it, and sends the responses: under load, two system
//! calls for any number of commands.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use front_end_core::ConnectionPermit;
use iscsi::framing::Framing;
use iscsi::target::{CloseReason, ConnectionId, ConnectionStart, Fatal, Payload, Transmit};
use reactor::{Received, Stream};

use crate::inbox::{Inbox, Input, Scratch};
use crate::link::{Closing, Link, SLOW};
use crate::outbox::{self, Outbox};
use crate::registry::Admitted;
use crate::session::{Outgoing, SharedSession};

/// The reason why a connection ended.
#[derive(Debug)]
pub(crate) enum ConnectionEnd {
    /// The server closed the connection, for example after a logout.
    Closed(Closing),
    /// The peer closed the connection.
    PeerClosed,
    /// The socket failed.
    Socket(io::Error),
    /// The peer violated the protocol, and the only possible response is to close the connection.
    Violation(Fatal),
    /// The peer has not accepted any data for too long.
    Stalled,
}

/// A connection.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    pub(crate) id: ConnectionId,
    framing: Framing,
    session: SharedSession,
    pub(crate) link: Rc<Link>,
    scratch: Rc<Scratch>,
    send_stall: Duration,
    inbox: Inbox,
    outbox: Outbox,
    /// Whether the socket may have more data.
    readable: bool,
    /// The time since which the socket has accepted no data; `None` if it accepts data.
    stuck: Option<Instant>,
    /// When the socket became full, and the end of the bytes queued at that time.
    backlog: Option<(Instant, u64)>,
}

impl fmt::Display for ConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionEnd::Closed(Closing::Polite(CloseReason::Logout)) => f.write_str("logout"),
            ConnectionEnd::Closed(Closing::Polite(CloseReason::LogoutOverdue)) => {
                f.write_str("did not log out when requested")
            }
            ConnectionEnd::Closed(Closing::Polite(CloseReason::Silent)) => {
                f.write_str("unresponsive: no response to a NOP")
            }
            ConnectionEnd::Closed(Closing::Polite(CloseReason::Dropped)) => {
                f.write_str("dropped after an announcement")
            }
            ConnectionEnd::Closed(Closing::Polite(CloseReason::Reset)) => f.write_str("the target was reset"),
            ConnectionEnd::Closed(Closing::Abrupt) => f.write_str("replaced, or the server is shutting down"),
            ConnectionEnd::Closed(Closing::TooLong) => {
                f.write_str("the discovery session exceeded its time limit")
            }
            ConnectionEnd::Closed(Closing::TooSlow) => f.write_str(
                "did not send requested data, or was slow while others waited for its blocks or memory",
            ),
            ConnectionEnd::PeerClosed => f.write_str("closed by the initiator without logout"),
            ConnectionEnd::Socket(error) => write!(f, "{error}"),
            ConnectionEnd::Violation(fatal) => write!(f, "{fatal}"),
            ConnectionEnd::Stalled => f.write_str("send stalled: the initiator did not read"),
        }
    }
}

impl ConnectionEnd {
    /// The label for monitoring.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ConnectionEnd::Closed(Closing::Polite(CloseReason::Logout)) => "logout",
            ConnectionEnd::Closed(Closing::Polite(CloseReason::LogoutOverdue)) => "logout_overdue",
            ConnectionEnd::Closed(Closing::Polite(CloseReason::Silent)) => "nop_timeout",
            ConnectionEnd::Closed(Closing::Polite(CloseReason::Dropped)) => "dropped",
            ConnectionEnd::Closed(Closing::Polite(CloseReason::Reset)) => "target_reset",
            ConnectionEnd::Closed(Closing::Abrupt) => "replaced",
            ConnectionEnd::Closed(Closing::TooLong) => "discovery_time",
            ConnectionEnd::Closed(Closing::TooSlow) => "too_slow",
            ConnectionEnd::PeerClosed => "closed_by_initiator",
            ConnectionEnd::Socket(_) => "socket_error",
            ConnectionEnd::Violation(Fatal::HeaderDigest) => "header_digest",
            ConnectionEnd::Violation(_) => "protocol_error",
            ConnectionEnd::Stalled => "send_stall",
        }
    }
}

impl Connection {
    /// Creates a connection that has just logged in, on the core of its session. Data that was received after
    /// the login is handled first.
    pub(crate) fn new(
        scratch: &Rc<Scratch>,
        session: &SharedSession,
        admitted: Admitted,
    ) -> io::Result<(Connection, ConnectionPermit)> {
        let Admitted {
            stream,
            permit,
            peer,
            local: here,
            login,
            ..
        } = admitted;
        let stream = reactor::world().adopt(stream)?;
        let now = reactor::now();
        let link = Rc::new(Link::new(login.request.cid, peer, here));
        let framing = Framing::new(&login.parameters);
        let mut start = ConnectionStart::new(login.stat_sn, &login.parameters);
        let segment_max = &mut start.peer_max_recv_data_segment_length;
        *segment_max = outbox::segment_max(*segment_max, framing);
        let id = session.borrow_mut().open_link(now, Rc::clone(&link), start);
        session.borrow().log_in(&link);
        let connection = Connection {
            stream,
            id,
            framing,
            session: Rc::clone(session),
            link,
            scratch: Rc::clone(scratch),
            send_stall: session.borrow().context.config().limits.send_stall,
            inbox: Inbox::default(),
            outbox: match session.borrow().identity.target {
                Some(_) => Outbox::new(framing),
                None => Outbox::of_discovery(framing),
            },
            readable: true,
            stuck: None,
            backlog: None,
        };
        Ok((connection, permit))
    }

    /// Runs the connection until its end.
    pub(crate) async fn run(&mut self) -> ConnectionEnd {
        loop {
            if let Err(end) = self.round() {
                return end;
            }
            if self.readable {
                reactor::yield_now().await; // other tasks run before the rest of the socket is read
            } else {
                self.idle().await;
            }
        }
    }

    fn round(&mut self) -> Result<(), ConnectionEnd> {
        let now = reactor::now();
        self.link.begin_round();
        match self.link.closing() {
            // While the peer does not read its responses, receive nothing from it.
            None if self.readable && self.outbox.has_room() => self.receive(now)?,
            None | Some(Closing::Polite(_)) => self.readable = false,
            Some(closing) => return Err(ConnectionEnd::Closed(closing)),
        }
        // The responses to the received PDUs have woken this task. They are sent now, without another
        // iteration.
        self.link.forget_wakes();
        self.send(now)?;
        match self.link.closing() {
            Some(Closing::Polite(_)) if !self.outbox.is_empty() => Ok(()),
            Some(closing) => Err(ConnectionEnd::Closed(closing)),
            None => Ok(()),
        }
    }

    fn receive(&mut self, now: Instant) -> Result<(), ConnectionEnd> {
        let session = &mut *self.session.borrow_mut();
        let scratch = &mut *self.scratch.borrow_mut();
        session.grant_room();
        let kept = self.inbox.restore(scratch);
        let received =
            self.inbox
                .receive(session, self.framing, &*self.stream, &mut scratch[kept..]);
        let received = match received {
            Ok(Received {
                placed: 0, rest: 0, ..
            }) => return Err(ConnectionEnd::PeerClosed),
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::default(),
            Err(error) => return Err(ConnectionEnd::Socket(error)),
        };
        self.readable = received.is_full;
        let input = Input {
            now,
            connection: self.id,
            framing: self.framing,
        };
        self.inbox
            .placed(&input, session, received.placed)
            .map_err(ConnectionEnd::Violation)?;
        let taken = self
            .inbox
            .take(&input, session, &scratch[..kept + received.rest]);
        session.settle_kept();
        taken.map_err(ConnectionEnd::Violation)
    }

    fn send(&mut self, now: Instant) -> Result<(), ConnectionEnd> {
        loop {
            self.fill(now);
            if self.outbox.is_empty() {
                self.stuck = None;
                self.backlog = None;
                return Ok(());
            }
            let moved = self
                .outbox
                .send(&*self.stream)
                .map_err(ConnectionEnd::Socket)?;
            if !self.outbox.is_empty() {
                let since = *self.stuck.get_or_insert(now);
                self.stuck = (!moved).then_some(since);
                let stalled = !moved && now.duration_since(since) > self.send_stall;
                return if stalled {
                    Err(ConnectionEnd::Stalled)
                } else {
                    self.make_way(now)
                };
            }
        }
    }

    /// Called while the socket is full: copies blocks of the volume's memory that have been queued for a
    /// while, if other commands wait for them.
    fn make_way(&mut self, now: Instant) -> Result<(), ConnectionEnd> {
        let (sent, queued) = self.outbox.position();
        let since = match self.backlog {
            Some((since, end)) if end > sent => since,
            _ => {
                self.backlog = Some((now, queued));
                now
            }
        };
        let is_slow = now.duration_since(since) > SLOW && self.outbox.is_in_the_way();
        self.link.note_copies(now, self.outbox.has_copies());
        if self.link.take_withdrawal() || is_slow {
            self.withdraw()
                .ok_or(ConnectionEnd::Closed(Closing::TooSlow))?;
            self.link.note_copies(now, self.outbox.has_copies());
        }
        Ok(())
    }

    /// Copies queued blocks from the volume's memory; `None` if there is no memory for it. Queued data is
    /// copied first, because copying the rest of a transfer releases the lock that protects its beginning.
    fn withdraw(&mut self) -> Option<()> {
        let session = &mut *self.session.borrow_mut();
        let charge = session.charge_copy(self.outbox.medium_bytes())?;
        self.outbox.withdraw(charge);
        session.withdraw_reads(self.id)
    }

    /// Moves the session's PDUs to the outbox.
    fn fill(&mut self, now: Instant) {
        let session = &mut *self.session.borrow_mut();
        // All commands whose responses are sent now have the same end time, so that the clock is read only
        // once.
        let mut ended = None;
        while self.outbox.has_room() {
            let Some(transmit) = session.machine.poll_transmit(self.id) else {
                break;
            };
            let Transmit {
                header,
                payload,
                last_of,
            } = transmit;
            self.outbox.push_header(&header);
            let sent = last_of
                .and_then(|task| session.sent(task, *ended.get_or_insert_with(reactor::now)));
            match payload {
                Payload::None => {}
                Payload::Inline(bytes) => self.outbox.push_inline(&bytes),
                Payload::Task {
                    task,
                    offset,
                    length,
                } => {
                    let range = offset as usize..offset as usize + length as usize;
                    let Outgoing { payload, lock } = sent.unwrap_or_else(|| Outgoing {
                        payload: session.payload(task),
                        lock: None,
                    });
                    self.outbox.push_segment(payload, range, lock);
                    continue;
                }
            }
            if let Some(lock) = sent.and_then(|outgoing| outgoing.lock) {
                self.outbox.keep(lock);
            }
        }
        // The state machine may report that the connection can be closed after the last queued PDU.
        session.handle_events(now);
    }

    /// Waits for the socket or the session.
    async fn idle(&mut self) {
        let blocked = !self.outbox.is_empty();
        self.link.set_blocked(blocked);
        let listening = self.link.closing().is_none() && self.outbox.has_room();
        poll_fn(|cx| {
            self.readable = listening && self.stream.poll_readable(cx).is_ready();
            let woken = self.link.poll_woken(cx).is_ready();
            let writable = blocked && self.stream.poll_writable(cx).is_ready();
            if self.readable || woken || writable {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}
