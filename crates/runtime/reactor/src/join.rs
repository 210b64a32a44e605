//! The handle of a spawned task.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::executor;
use crate::task::Handle;

/// The handle of a task of this thread. Awaiting it returns the output; dropping it detaches the task.
pub struct JoinHandle<T> {
    task: Arc<Handle>,
    outcome: Rc<Outcome<T>>,
}

/// The slot for the output of a task.
pub(crate) struct Outcome<T> {
    output: Cell<Option<T>>,
    ended: Cell<bool>,
    waiter: RefCell<Option<Waker>>,
}

/// `future` as a task, and the place of its output.
pub(crate) fn joined<F: Future>(future: F) -> (impl Future<Output = ()> + use<F>, Rc<Outcome<F::Output>>) {
    let outcome =
        Rc::new(Outcome { output: Cell::new(None), ended: Cell::new(false), waiter: RefCell::new(None) });
    let task = Joined { future: Some(Box::pin(future)), place: Rc::clone(&outcome) };
    (task, outcome)
}

/// A task, as the executor polls it. The future is moved once, into its box: an `async` block around it would be twice as long, and
/// copied from place to place.
struct Joined<F: Future> {
    future: Option<Pin<Box<F>>>,
    place: Rc<Outcome<F::Output>>,
}

impl<F: Future> Future for Joined<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(future) = &mut self.future else { return Poll::Ready(()) };
        let Poll::Ready(output) = future.as_mut().poll(cx) else { return Poll::Pending };
        self.future = None;
        self.place.output.set(Some(output));
        self.place.ended.set(true);
        if let Some(waiter) = self.place.waiter.take() {
            waiter.wake();
        }
        Poll::Ready(())
    }
}

impl<T> JoinHandle<T> {
    pub(crate) fn new(task: Arc<Handle>, outcome: Rc<Outcome<T>>) -> JoinHandle<T> {
        JoinHandle { task, outcome }
    }

    /// Drops the task's future now. A task that aborts itself ends at its next await.
    pub fn abort(self) {
        executor::abort(&self.task);
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.outcome.ended.get()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match self.outcome.output.take() {
            Some(output) => Poll::Ready(output),
            None => {
                *self.outcome.waiter.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish()
    }
}
