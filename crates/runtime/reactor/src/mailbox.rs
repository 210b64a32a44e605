//! A queue of values for a task on the same or another thread: many senders, one receiver, in order.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use block::{Lock, LockGuard};

/// Creates an unbounded mailbox.
pub fn mailbox<T: Send>() -> (Sender<T>, Receiver<T>) {
    bounded_mailbox(usize::MAX)
}

/// Creates a mailbox in which [`Sender::try_send`] queues up to `limit` values. [`Sender::send`] ignores the
/// limit.
pub fn bounded_mailbox<T: Send>(limit: usize) -> (Sender<T>, Receiver<T>) {
    let state = MailboxState {
        values: VecDeque::new(),
        receiver: None,
        senders: 1,
        open: true,
    };
    let shared = Arc::new(Shared {
        state: Lock::new(state),
        limit,
    });
    (
        Sender {
            shared: Arc::clone(&shared),
        },
        Receiver { shared },
    )
}

struct Shared<T> {
    state: Lock<MailboxState<T>>,
    limit: usize,
}

struct MailboxState<T> {
    values: VecDeque<T>,
    receiver: Option<Waker>,
    senders: usize,
    /// Whether the receiver still exists.
    open: bool,
}

/// Puts values into a mailbox, from any thread.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// The error for a mailbox whose receiver no longer exists. Contains the value that was not sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Closed<T>(pub T);

/// The reason why a bounded mailbox refused a value. Contains the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Refused<T> {
    /// The number of queued values has reached the limit.
    Full(T),
    /// The receiver no longer exists.
    Closed(T),
}

impl<T: Send> Sender<T> {
    /// Sends a value regardless of the limit. For values that must not be lost.
    pub fn send(&self, value: T) -> Result<(), Closed<T>> {
        let mut state = self.shared.state.lock();
        if !state.open {
            return Err(Closed(value));
        }
        state.values.push_back(value);
        wake_receiver(state);
        Ok(())
    }

    /// Sends a value if there is space.
    pub fn try_send(&self, value: T) -> Result<(), Refused<T>> {
        let mut state = self.shared.state.lock();
        if !state.open {
            return Err(Refused::Closed(value));
        }
        if state.values.len() >= self.shared.limit {
            return Err(Refused::Full(value));
        }
        state.values.push_back(value);
        wake_receiver(state);
        Ok(())
    }
}

/// Unlocks the mailbox, then wakes the receiver, so that the receiver does not contend for the lock.
fn wake_receiver<T>(mut state: LockGuard<'_, MailboxState<T>>) {
    let receiver = state.receiver.take();
    drop(state);
    if let Some(receiver) = receiver {
        receiver.wake();
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.state.lock().senders += 1;
        Sender {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.senders -= 1;
        if state.senders == 0 {
            wake_receiver(state);
        }
    }
}

/// Takes values out of a mailbox.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

impl<T: Send> Receiver<T> {
    /// Waits for the next value. Returns `None` once the mailbox is empty and no sender is left.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// [`Receiver::recv`] for hand-written futures.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.shared.state.lock();
        match state.values.pop_front() {
            Some(value) => Poll::Ready(Some(value)),
            None if state.senders == 0 => Poll::Ready(None),
            None => {
                state.receiver = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Returns the next value, if there is one.
    pub fn try_recv(&mut self) -> Option<T> {
        self.shared.state.lock().values.pop_front()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.open = false;
        let unread = std::mem::take(&mut state.values);
        drop(state);
        drop(unread); // after unlocking: a value may hold a sender of this very mailbox
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed(the receiver is gone)")
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Full(_) => f.write_str("Full(no room)"),
            Refused::Closed(_) => f.write_str("Closed(the receiver is gone)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::Alone;
    use crate::executor::block_on;

    #[test]
    fn values_sent_before_the_last_sender_left_are_still_received() {
        let (sender, mut receiver) = mailbox();
        sender.send(1).expect("open");
        sender.clone().send(2).expect("open");
        drop(sender);
        let heard = block_on(Alone::virtual_time(), async {
            (
                receiver.recv().await,
                receiver.recv().await,
                receiver.recv().await,
            )
        });
        assert_eq!(heard, (Some(1), Some(2), None));
    }

    #[test]
    fn a_value_for_a_receiver_that_is_gone_comes_back() {
        let (sender, receiver) = mailbox();
        drop(receiver);
        assert!(matches!(sender.send(7), Err(Closed(7))));
    }

    #[test]
    fn a_full_mailbox_refuses_and_takes_again_after_a_receive() {
        let (sender, mut receiver) = bounded_mailbox(1);
        sender.try_send(1).expect("room");
        assert!(matches!(sender.try_send(2), Err(Refused::Full(2))));
        assert_eq!(receiver.try_recv(), Some(1));
        sender.try_send(2).expect("room again");
    }

    #[test]
    fn a_value_that_holds_a_sender_does_not_block_the_end() {
        let (sender, receiver) = mailbox::<Box<dyn std::any::Any + Send>>();
        sender.send(Box::new(sender.clone())).expect("open");
        drop(receiver);
    }
}
