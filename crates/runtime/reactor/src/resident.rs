//! A value that is bound to one thread but can be used from any thread. On its own thread, holders access it
//! directly; other threads send it work as messages.
//!
//! Each thread has a list of its values, each with a unique number. Looking up that number fails on other
//! threads, and in another executor on the same thread.

use std::any::Any;
use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use crate::executor::{ExecutorId, executor, spawn};
use crate::mailbox::{Receiver, Sender, mailbox};

/// A handle to a value that stays on its thread. The value is released when the last handle is dropped.
pub struct Resident<T> {
    key: u64,
    jobs: Sender<Job<T>>,
}

/// Work that another thread requested; it runs as a task of this thread.
type Job<T> = Box<dyn FnOnce(Rc<T>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

struct Entry {
    key: u64,
    executor: Option<ExecutorId>,
    value: Rc<dyn Any>,
}

static NEXT_KEY: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The values of this thread. There are few, so a lookup takes only one or two comparisons.
    static HERE: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

impl<T: 'static> Resident<T> {
    /// Registers a value of this thread, whose executor must run as long as the value is in use. `end` is
    /// called with the value when the last holder has dropped its handle.
    pub fn new(value: Rc<T>, end: impl AsyncFnOnce(Rc<T>) + 'static) -> Resident<T> {
        let key = NEXT_KEY.fetch_add(1, Relaxed);
        let (jobs, receiver) = mailbox();
        let listed = Listed::new(key, Rc::clone(&value) as Rc<dyn Any>);
        drop(spawn(attend(value, listed, receiver, end)));
        Resident { key, jobs }
    }

    /// Returns the value, if the current thread and executor are the thread and executor of the value.
    #[inline]
    pub fn here(&self) -> Option<Rc<T>> {
        HERE.with_borrow(|here| {
            let entry = here
                .iter()
                .find(|entry| entry.key == self.key && entry.executor == executor())?;
            Rc::clone(&entry.value).downcast().ok()
        })
    }

    /// Runs `work` on the thread of the value: directly if that is the current thread, otherwise as a task
    /// there. Returns `None` if that thread has ended.
    pub async fn with<R: Send + 'static, F: Future<Output = R> + 'static>(
        &self,
        work: impl FnOnce(Rc<T>) -> F + Send + 'static,
    ) -> Option<R> {
        match self.here() {
            Some(value) => Some(work(value).await),
            None => self.ask(work).await,
        }
    }

    /// Runs `work` as a task on the thread of the value. If the returned future is dropped, the work is also
    /// dropped. Returns `None` if the thread has ended.
    pub async fn ask<R: Send + 'static, F: Future<Output = R> + 'static>(
        &self,
        work: impl FnOnce(Rc<T>) -> F + Send + 'static,
    ) -> Option<R> {
        let (reply, mut answer) = mailbox();
        let (asking, mut gone) = mailbox::<()>();
        let job: Job<T> = Box::new(move |value| {
            Box::pin(async move {
                let (mut work, mut gone) = (pin!(work(value)), pin!(gone.recv()));
                let done = poll_fn(|cx| match work.as_mut().poll(cx) {
                    Poll::Ready(done) => Poll::Ready(Some(done)),
                    Poll::Pending => gone.as_mut().poll(cx).map(|_| None),
                });
                if let Some(done) = done.await {
                    let _ = reply.send(done);
                }
            })
        });
        self.jobs.send(job).ok()?;
        let answer = answer.recv().await;
        drop(asking);
        answer
    }
}

async fn attend<T>(
    value: Rc<T>,
    listed: Listed,
    mut jobs: Receiver<Job<T>>,
    end: impl AsyncFnOnce(Rc<T>),
) {
    while let Some(job) = jobs.recv().await {
        drop(spawn(job(Rc::clone(&value))));
    }
    drop(listed);
    end(value).await;
}

/// A value's entry in the list of its thread. The value's attendant task owns it, so the entry is removed
/// even if the task is dropped because the executor has ended.
struct Listed(u64);

impl Listed {
    fn new(key: u64, value: Rc<dyn Any>) -> Listed {
        HERE.with_borrow_mut(|here| {
            here.push(Entry {
                key,
                executor: executor(),
                value,
            })
        });
        Listed(key)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let taken = HERE.try_with(|here| {
            let mut here = here.borrow_mut();
            let place = here.iter().position(|entry| entry.key == self.0)?;
            Some(here.swap_remove(place))
        });
        drop(taken); // after the borrow; if the thread is ending, its list no longer exists
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::alone::Alone;
    use crate::executor::current;
    use crate::executor::{block_on, catch_up, yield_now};

    #[derive(Default)]
    struct Request {
        has_begun: Cell<bool>,
        is_dropped: Cell<bool>,
    }

    struct Mark(Rc<Request>);

    impl Drop for Mark {
        fn drop(&mut self) {
            self.0.is_dropped.set(true);
        }
    }

    /// Another thread drops a request and sends a second one while this thread is busy and its attendant task
    /// is already queued to run.
    #[test]
    fn who_catches_up_knows_of_what_was_dropped_before_it_was_asked() {
        let (give, take) = mpsc::channel::<Resident<Request>>();
        let (asked, is_asked) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel::<()>();
        let (ready, is_ready) = mpsc::channel::<()>();
        let (busy, is_busy) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel::<()>();
        let other = thread::spawn(move || {
            let resident = take.recv().expect("the value");
            block_on(Alone::virtual_time(), async move {
                let mut first = Box::pin(resident.ask(async |request| {
                    request.has_begun.set(true);
                    let _mark = Mark(request);
                    pending::<()>().await
                }));
                let _ = poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending())).await;
                asked.send(()).expect("heard");
                has_begun.recv().expect("begun");
                let mut second = Box::pin(resident.ask(async |_| ()));
                let _ = poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending())).await;
                ready.send(()).expect("heard");
                is_busy.recv().expect("busy");
                drop(first);
                let mut last = Box::pin(resident.ask(async |request| {
                    catch_up().await;
                    request.is_dropped.get()
                }));
                let _ = poll_fn(|cx| Poll::Ready(last.as_mut().poll(cx).is_pending())).await;
                done.send(()).expect("heard");
                last.await
            })
        });
        block_on(Alone::real_time(), async move {
            let value: Rc<Request> = Rc::default();
            let (ended, mut has_ended) = mailbox::<()>();
            let end = async move |_| drop(ended);
            give.send(Resident::new(Rc::clone(&value), end))
                .expect("a thread");
            is_asked.recv().expect("asked");
            while !value.has_begun.get() {
                yield_now().await;
            }
            begun.send(()).expect("heard");
            is_ready.recv().expect("asked again");
            current().take_woken();
            // This task now blocks its thread; the attendant is queued after it.
            busy.send(()).expect("heard");
            is_done.recv().expect("done");
            has_ended.recv().await;
        });
        assert_eq!(other.join().expect("no panic"), Some(true));
    }
}
