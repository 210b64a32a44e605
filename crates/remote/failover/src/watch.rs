//! Waiting for a state that is shared by the tasks of a thread.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Waits until `ready` finds in a state what is waited for. Who changes the state wakes those in its list, `watching`.
pub async fn watch<S, R>(
    state: &RefCell<S>,
    watching: impl Fn(&mut S) -> &mut Vec<Waker>,
    ready: impl Fn(&S) -> Option<R>,
) -> R {
    poll_fn(|cx| {
        let mut state = state.borrow_mut();
        match ready(&state) {
            Some(ready) => Poll::Ready(ready),
            None => {
                watching(&mut state).push(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}
