//! A connection's task: between its socket and the machine, until one of them ends.
//!
//! A round takes everything that has come, tells those who wait for it, and sends everything there is to say.
//! Whoever was told runs before the next round, so that the commands they bring go out together.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use iscsi::framing::Framing;
use iscsi::initiator::ConnectionId;
use reactor::Stream;

use crate::error::Ending;
use crate::parts::Parts;
use crate::receive::Receiver;
use crate::recorder::Recording;
use crate::send::Sender;
use crate::session::Session;

/// A connection in full feature phase.
pub(crate) struct Connection {
    session: Rc<Session>,
    id: ConnectionId,
    stream: Box<dyn Stream>,
    receiver: Receiver,
    sender: Sender,
    recording: Rc<Recording>,
}

impl Connection {
    /// Goes on where the login ended: `already` are the bytes that came behind its last response.
    pub(crate) fn new(
        session: Rc<Session>,
        id: ConnectionId,
        stream: Box<dyn Stream>,
        framing: Framing,
        already: &[u8],
        recording: Rc<Recording>,
    ) -> Connection {
        let (receiver, sender) = (Receiver::new(framing, already), Sender::new(framing));
        Connection { session, id, stream, receiver, sender, recording }
    }

    /// Runs until the connection ends. The session knows by then.
    pub(crate) async fn run(mut self) -> Ending {
        let ending = poll_fn(|cx| self.poll(cx)).await;
        self.stream.shutdown();
        match &ending {
            Ending::LoggedOut => self.recording.end(reactor::now(), &ending),
            ending => self.recording.end_badly(reactor::now(), ending),
        }
        self.session.parts().remove_connection(self.id);
        ending
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
        match self.round(cx) {
            Ok(pending) => pending,
            Err(ending) => Poll::Ready(ending),
        }
    }

    fn round(&mut self, cx: &mut Context<'_>) -> Result<Poll<Ending>, Ending> {
        let session = Rc::clone(&self.session);
        let parts = &mut *session.parts();
        parts.begin_round(self.id, reactor::now(), cx.waker());
        let received = self.receive(parts, cx);
        parts.deliver_events();
        let more = match received {
            Err(Ending::Closed) => return Err(parts.closed_by_target(self.id)),
            received => received?,
        };
        self.send(parts, cx)?;
        if self.sender.is_idle()
            && let Some(ending) = parts.ending_of(self.id)
        {
            return Ok(Poll::Ready(ending));
        }
        if more {
            cx.waker().wake_by_ref();
        }
        Ok(Poll::Pending)
    }

    /// Takes everything that has come. Whether there is more, for which others must not wait.
    fn receive(&mut self, parts: &mut Parts, cx: &mut Context<'_>) -> Result<bool, Ending> {
        loop {
            let tape = &mut self.recording.tape();
            let more = self.receiver.receive(&*self.stream, self.id, parts, tape)?;
            if more || self.stream.poll_readable(cx).map_err(Ending::Io)?.is_pending() {
                return Ok(more);
            }
        }
    }

    /// Sends everything there is to say, as far as there is room.
    fn send(&mut self, parts: &mut Parts, cx: &mut Context<'_>) -> Result<(), Ending> {
        loop {
            let tape = &mut self.recording.tape();
            let everything = self.sender.send(&*self.stream, self.id, parts, tape)?;
            if everything || self.stream.poll_writable(cx).map_err(Ending::Io)?.is_pending() {
                return Ok(());
            }
        }
    }
}
