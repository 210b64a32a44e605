//! A write that continues after its requester was dropped.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::{DeviceError, Lock};

/// A write outstanding at the device, shared by the task that writes and those that wait for its completion.
#[derive(Default)]
pub(super) struct DetachedWrite {
    state: Lock<Completion>,
}

#[derive(Default)]
struct Completion {
    result: Option<Result<(), DeviceError>>,
    waiting: Vec<Waker>,
}

impl DetachedWrite {
    /// The handle of the task that writes.
    pub(super) fn completer(self: Arc<DetachedWrite>) -> Completer {
        Completer(self)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.state.lock().result.is_some()
    }

    pub(super) async fn completion(&self) -> Result<(), DeviceError> {
        poll_fn(|context| {
            let mut state = self.state.lock();
            match state.result {
                Some(result) => Poll::Ready(result),
                None => {
                    if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                        state.waiting.push(context.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn end(&self, result: Result<(), DeviceError>) {
        let mut state = self.state.lock();
        state.result.get_or_insert(result);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Completes the write; with [`DeviceError::Cancelled`] if the task is dropped with its thread, so that no
/// waiter is left.
pub(super) struct Completer(Arc<DetachedWrite>);

impl Completer {
    pub(super) fn complete(self, result: Result<(), DeviceError>) {
        self.0.end(result);
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.0.end(Err(DeviceError::Cancelled));
    }
}
