//! Flushes. A server may tell of lost writes only once, by the answer to the flush that has found them lost: so each flush is a task of
//! its own, and what it is answered counts, even if its caller does not wait for it any more.
//!
//! ```text
//!   ask ──► task: sent, and sent again ──► answered: journal, ledger ──► the caller: reported
//!             │ the caller has gone               │
//!             ▼                                   └─ nobody is told: the ledger fails the next flush
//!         abandoned: until it is answered, its connection is lost, or the channels are left
//! ```
//!
//! A later flush can be answered first, and its success says nothing of what the abandoned one is answered. So it is reported when those
//! that were abandoned before it have ended.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use block::{DeviceError, Flush};
use reactor::JoinHandle;

use crate::patience::{Late, Wait};
use crate::session::{FailedOf, ReplyOf, RequestOf, Shared};
use crate::transport::{Failed, Link, Request as _, Transport};

/// Flushes that nobody waits for. With so many, the next one is not sent before one of them has ended: callers that give up again and
/// again on a server that does not answer take no more memory than this.
const ABANDONED_MAX: usize = 16;

/// The flushes of a device.
pub(crate) struct Flushes<T: Transport> {
    next: Cell<u64>,
    /// Those that were sent, and whose callers have gone.
    abandoned: RefCell<BTreeMap<u64, JoinHandle<Ended<T>>>>,
    has_left: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

/// What a flush has come to, as the ledger has noted it.
type Ended<T> = (Flush, Result<ReplyOf<T>, FailedOf<T>>);

impl<T: Transport> Default for Flushes<T> {
    fn default() -> Flushes<T> {
        Flushes {
            next: Cell::new(0),
            abandoned: RefCell::default(),
            has_left: Cell::new(false),
            waiting: RefCell::default(),
        }
    }
}

impl<T: Transport> Flushes<T> {
    /// Ends those that nobody waits for: nobody will ask any more.
    pub(crate) fn leave(&self) {
        self.has_left.set(true);
        let abandoned = std::mem::take(&mut *self.abandoned.borrow_mut());
        abandoned.into_values().for_each(JoinHandle::abort);
        self.wake();
    }

    async fn until(&self, is_met: impl Fn(&BTreeMap<u64, JoinHandle<Ended<T>>>) -> bool) {
        poll_fn(|cx| {
            if is_met(&self.abandoned.borrow()) {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// A caller that waits for its flush.
struct Waiting<T: Transport> {
    shared: Rc<Shared<T>>,
    number: u64,
    task: Option<JoinHandle<Ended<T>>>,
    is_sent: Rc<Cell<bool>>,
}

/// The task of a flush. When it is dropped, the flush has ended.
struct Running<T: Transport> {
    shared: Rc<Shared<T>>,
    number: u64,
    is_sent: Rc<Cell<bool>>,
}

impl<T: Transport> Shared<T> {
    pub(crate) async fn flush(
        self: &Rc<Self>,
        request: RequestOf<T>,
        wait: Wait,
    ) -> Result<ReplyOf<T>, FailedOf<T>> {
        let room = self.flushes.until(|abandoned| abandoned.len() < ABANDONED_MAX);
        reactor::timeout_at(wait.deadline, room).await.map_err(|_| Failed::TimedOut)?;
        let number = self.flushes.next.replace(self.flushes.next.get() + 1);
        let is_sent = Rc::<Cell<bool>>::default();
        let running = Running { shared: Rc::clone(self), number, is_sent: Rc::clone(&is_sent) };
        let late = Late::default();
        let task = Some(reactor::spawn(running.run(request, wait, late.clone())));
        let waiting = Waiting { shared: Rc::clone(self), number, task, is_sent };
        let (flush, answer) = unless_late(waiting, &late).await.ok_or(Failed::TimedOut)?;
        let reply = match answer {
            Ok(reply) => {
                let earlier = |abandoned: &BTreeMap<u64, _>| abandoned.range(..number).next().is_none();
                // This answer is progress.
                let deadline = reactor::now() + self.settings.timeout;
                let ended = reactor::timeout_at(deadline, self.flushes.until(earlier)).await;
                ended.map_err(|_| Failed::TimedOut)?;
                Ok(reply)
            }
            failed => failed,
        };
        let answer = match &reply {
            Ok(_) => Ok(()),
            Err(Failed::Server(_)) => Err(DeviceError::WritesLost),
            Err(_) => Err(DeviceError::NotReady),
        };
        let told = self.ledger.borrow_mut().report(flush, answer);
        let reply = reply?;
        told.map(|()| reply).map_err(|_| Failed::WritesLost)
    }
}

impl<T: Transport> Running<T> {
    async fn run(self, request: RequestOf<T>, wait: Wait, late: Late) -> Ended<T> {
        let shared = &self.shared;
        // It covers what was acknowledged before it was first sent, however often it is sent, and tells of what nobody was told of then.
        let (mark, flush) = (shared.mark(), shared.ledger.borrow_mut().begin_flush());
        let answer = self.answer(&request, wait, &late).await;
        let ended = match answer {
            Ok(reply) => {
                let kept = shared.flushed(mark);
                shared.wake();
                kept.map(|()| reply)
            }
            failed => failed,
        };
        let noted = match &ended {
            Ok(_) => Some(Ok(())),
            // The ledger makes flushes beside this one fail, too.
            Err(Failed::Server(_)) => Some(Err(DeviceError::WritesLost)),
            Err(_) => None, // whether anything was flushed is not known
        };
        if let Some(answer) = noted {
            let _ = shared.ledger.borrow_mut().note_answer(flush, answer); // the caller is told, if there is one
        }
        (flush, ended)
    }

    async fn answer(
        &self,
        request: &RequestOf<T>,
        wait: Wait,
        late: &Late,
    ) -> Result<ReplyOf<T>, FailedOf<T>> {
        let deadline = wait.deadline;
        let shared = &self.shared;
        let mut was_lost = false;
        loop {
            let (link, sending) = shared.usable(request.bytes(), deadline).await.ok_or(Failed::TimedOut)?;
            self.is_sent.set(true);
            let answer = link.exchange(request, None, deadline, Some(late.clone())).await;
            self.is_sent.set(false);
            let answer = shared.attempted(&*link, sending, request, answer, &mut was_lost, wait.asked);
            let is_abandoned = shared.flushes.abandoned.borrow().contains_key(&self.number);
            match answer {
                Err(Failed::Lost) if is_abandoned => return Err(Failed::Lost),
                Err(Failed::Lost) if reactor::now() >= deadline => return Err(Failed::TimedOut),
                Err(Failed::Lost) => shared.state.borrow_mut().resends += 1,
                ended => return ended,
            }
        }
    }
}

/// Waits for a flush; `None` if its connection says that it is late.
async fn unless_late<T: Transport>(waiting: Waiting<T>, late: &Late) -> Option<Ended<T>> {
    let (mut waiting, mut told) = (pin!(waiting), pin!(late.told()));
    poll_fn(|cx| match waiting.as_mut().poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending => told.as_mut().poll(cx).map(|()| None),
    })
    .await
}

impl<T: Transport> Future for Waiting<T> {
    type Output = Ended<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended<T>> {
        let Some(task) = &mut self.task else { return Poll::Pending };
        let ended = Pin::new(task).poll(cx);
        if ended.is_ready() {
            self.task = None;
        }
        ended
    }
}

impl<T: Transport> Drop for Waiting<T> {
    fn drop(&mut self) {
        let Some(task) = self.task.take().filter(|task| !task.is_finished()) else { return };
        let flushes = &self.shared.flushes;
        if !self.is_sent.get() || flushes.has_left.get() {
            return task.abort();
        }
        flushes.abandoned.borrow_mut().insert(self.number, task);
    }
}

impl<T: Transport> Drop for Running<T> {
    fn drop(&mut self) {
        let abandoned = self.shared.flushes.abandoned.borrow_mut().remove(&self.number);
        if abandoned.is_some() {
            self.shared.flushes.wake();
        }
    }
}

/// The answer of a flush on its way to a caller, who may be on another thread and gone: then the device is to tell of lost writes with
/// its next flush.
pub struct Untold(Option<Arc<AtomicBool>>);

impl Untold {
    /// That of `answer`: `next` is set if it tells of lost writes, and nobody [takes](Untold::told) it.
    pub fn of<R, E>(answer: &Result<R, Failed<E>>, next: &Arc<AtomicBool>) -> Untold {
        let tells = matches!(answer, Err(Failed::Server(_) | Failed::WritesLost));
        Untold(tells.then(|| Arc::clone(next)))
    }

    /// The caller has it.
    pub fn told(mut self) {
        self.0 = None;
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        if let Some(next) = &self.0 {
            next.store(true, Relaxed);
        }
    }
}
