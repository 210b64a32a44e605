//! What a client has yet to send, which a task of the connection takes.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

#[derive(Default)]
pub(crate) struct Outbox {
    bytes: VecDeque<u8>,
    writer: Option<Waker>,
}

impl Outbox {
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.take_writer().into_iter().for_each(Waker::wake);
    }

    /// All of it, once there is something; nothing if the connection is lost.
    pub(crate) fn poll_take(&mut self, cx: &Context<'_>, is_lost: bool) -> Poll<Option<Vec<u8>>> {
        if is_lost {
            return Poll::Ready(None);
        }
        if self.bytes.is_empty() {
            self.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Some(std::mem::take(&mut self.bytes).into()))
    }

    /// Who waits for something to send.
    pub(crate) fn take_writer(&mut self) -> Option<Waker> {
        self.writer.take()
    }
}
