//! The end of a write that goes on when nobody waits for it any more.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::{DeviceError, Lock};

/// A write under way, seen by those who wait for its end: who asked for it, and who wants to know that it is over.
#[derive(Default)]
pub(super) struct Parting {
    state: Lock<State>,
}

#[derive(Default)]
struct State {
    result: Option<Result<(), DeviceError>>,
    waiting: Vec<Waker>,
}

impl Parting {
    /// What the task that writes keeps.
    pub(super) fn ending(self: Arc<Parting>) -> Ending {
        Ending(self)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().result.is_some()
    }

    pub(super) async fn ended(&self) -> Result<(), DeviceError> {
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

/// Tells the end, and does so too if the task is dropped with its thread: nobody waits for ever.
pub(super) struct Ending(Arc<Parting>);

impl Ending {
    pub(super) fn with(self, result: Result<(), DeviceError>) {
        self.0.end(result);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(Err(DeviceError::Cancelled));
    }
}
