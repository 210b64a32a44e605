//! The task of a connection, between its socket and the machine.
//!
//! An iteration receives everything available, wakes the requesters, and sends everything queued. Woken
//! requesters run before the next iteration, so that their new commands are sent together.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use iscsi::framing::Framing;
use iscsi::initiator::ConnectionId;
use reactor::{Sleep, Stream};

use crate::error::Ending;
use crate::gather::{self, Gather, Round};
use crate::inner::SessionInner;
use crate::receive::Receiver;
use crate::recorder::{Recording, Tape};
use crate::send::Sender;
use crate::session::Session;

/// A connection in full feature phase.
pub(crate) struct Connection {
    session: Rc<Session>,
    id: ConnectionId,
    stream: Rc<dyn Stream>,
    receiver: Receiver,
    sender: Sender,
    recording: Rc<Recording>,
    gather: Gather,
    /// Until when responses are gathered.
    gathered_by: Option<Sleep>,
}

impl Connection {
    /// Continues after the login: `already` are the bytes received after its last response.
    pub(crate) fn new(
        session: Rc<Session>,
        id: ConnectionId,
        stream: Rc<dyn Stream>,
        framing: Framing,
        already: &[u8],
        recording: Rc<Recording>,
    ) -> Connection {
        let (receiver, sender) = (Receiver::new(framing, already), Sender::new(framing));
        let gather = Gather::new(true);
        Connection { session, id, stream, receiver, sender, recording, gather, gathered_by: None }
    }

    /// Whether to gather responses.
    pub(crate) fn gather(&mut self, wanted: bool) {
        self.gather = Gather::new(wanted);
    }

    /// Runs until the connection ends, and is removed from the session.
    pub(crate) async fn run(mut self) -> Ending {
        let ending = poll_fn(|cx| self.poll(cx)).await;
        match &ending {
            Ending::LoggedOut => self.stream.shutdown(),
            _ if self.session.inner().resets_lost => self.stream.reset(),
            _ => self.stream.shutdown(),
        }
        self.session.inner().last_ending = Some(ending.to_string());
        match &ending {
            Ending::LoggedOut => self.recording.end(reactor::now(), &ending),
            ending => self.recording.end_badly(reactor::now(), ending),
        }
        self.session.inner().remove_connection(self.id);
        ending
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
        match self.round(cx) {
            Ok(pending) => pending,
            Err(ending) => Poll::Ready(ending),
        }
    }

    fn round(&mut self, cx: &mut Context<'_>) -> Result<Poll<Ending>, Ending> {
        let (session, recording) = (Rc::clone(&self.session), Rc::clone(&self.recording));
        let (inner, tape) = (&mut *session.inner(), &mut *recording.tape());
        inner.begin_round(self.id, reactor::now(), cx.waker());
        let (under_way, bytes) = (inner.under_way(self.id), self.receiver.total_bytes());
        let received = self.receive(inner, tape, cx);
        inner.deliver_events();
        let more = match received {
            Err(Ending::Closed) => return Err(inner.closed_by_target(self.id)),
            received => received?,
        };
        self.send(inner, tape, cx)?;
        let answers = under_way.saturating_sub(inner.under_way(self.id));
        let bytes = (self.receiver.total_bytes() - bytes) as usize;
        self.gather_answers(Round { answers, bytes, under_way }, cx);
        // Data that do not fit into the socket buffer are not waited for: a target that receives no more
        // would keep the session for ever.
        if let Some(ending) = inner.ending_of(self.id) {
            return Ok(Poll::Ready(ending));
        }
        if more {
            cx.waker().wake_by_ref();
        }
        Ok(Poll::Pending)
    }

    /// Sets how much must be received before the next iteration, and a timeout for it.
    fn gather_answers(&mut self, round: Round, cx: &mut Context<'_>) {
        let news = self.gather.after(round);
        self.tell(news);
        if !self.gather.is_on() {
            self.gathered_by = None;
            return;
        }
        let deadline = match self.gathered_by.take() {
            Some(sleep) if round.answers == 0 => sleep,
            _ => reactor::sleep(gather::LONGEST),
        };
        if Pin::new(self.gathered_by.insert(deadline)).poll(cx).is_ready() {
            self.gathered_by = None;
            let news = self.gather.in_vain();
            self.tell(news);
        }
    }

    fn tell(&self, bytes: Option<usize>) {
        bytes.into_iter().for_each(|bytes| self.stream.gather(bytes));
    }

    /// Receives everything available. True if there may be more, for which other tasks must not wait.
    fn receive(
        &mut self,
        inner: &mut SessionInner,
        tape: &mut Tape,
        cx: &mut Context<'_>,
    ) -> Result<bool, Ending> {
        // An iteration that only sends need not try to receive.
        let mut has_unread = self.receiver.has_unread();
        while has_unread || self.stream.poll_readable(cx).map_err(Ending::Io)?.is_ready() {
            if self.receiver.receive(&*self.stream, self.id, inner, tape)? {
                return Ok(true);
            }
            has_unread = false;
        }
        Ok(false)
    }

    /// Sends everything queued, as far as there is room in the socket buffer.
    fn send(
        &mut self,
        inner: &mut SessionInner,
        tape: &mut Tape,
        cx: &mut Context<'_>,
    ) -> Result<(), Ending> {
        loop {
            let everything = self.sender.send(&*self.stream, self.id, inner, tape)?;
            if everything || self.stream.poll_writable(cx).map_err(Ending::Io)?.is_pending() {
                return Ok(());
            }
        }
    }
}
