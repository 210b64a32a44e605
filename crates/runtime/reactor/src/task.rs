//! Wakers: they put their task on the ready queue of its thread, or, from another thread, on that thread's
//! remote queue.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use block::Lock;

use crate::Unpark;
use crate::executor;

/// The handle of a task, to which wakers point. The future stays in its thread's [`Tasks`](crate::executor).
pub(crate) struct Handle {
    /// The task's place in its executor; [`Handle::MAIN`] for the future given to `block_on`.
    pub(crate) place: usize,
    /// Whether the task is in a queue: further wakes have no effect.
    queued: AtomicBool,
    pub(crate) executor_handle: Arc<ExecutorHandle>,
}

impl Handle {
    pub(crate) const MAIN: usize = usize::MAX;

    /// A task that is in no queue yet.
    pub(crate) fn new(place: usize, executor_handle: &Arc<ExecutorHandle>) -> Arc<Handle> {
        Arc::new(Handle {
            place,
            queued: AtomicBool::new(false),
            executor_handle: Arc::clone(executor_handle),
        })
    }

    /// To be called before the task is polled: wakes from now on queue it again. A swap rather than a store,
    /// so that what a waker's thread wrote before it found the task queued already is seen by the poll.
    pub(crate) fn leave_queue(&self) {
        self.queued.swap(false, Ordering::AcqRel);
    }

    fn enters_queue(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
    }

    fn queue(self: Arc<Self>) {
        if let Some(foreign) = executor::queue_local(self) {
            let executor_handle = Arc::clone(&foreign.executor_handle);
            executor_handle.queue_remote(foreign);
        }
    }
}

impl Wake for Handle {
    fn wake(self: Arc<Self>) {
        if self.enters_queue() {
            self.queue();
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Many tasks wake a connection's task to send, and only the first must queue it. That a
        // task of this very thread stands in the queue stays true until the thread comes to it: no swap is
        // needed to see that.
        let is_queued =
            self.queued.load(Ordering::Relaxed) && executor::is_current_executor(&self.executor_handle);
        if !is_queued && self.enters_queue() {
            Arc::clone(self).queue();
        }
    }
}

/// The handle of a thread's executor for other threads.
pub(crate) struct ExecutorHandle {
    queue_remote: Lock<RemoteQueue>,
    has_mail: AtomicBool,
    /// The thread sleeps or is about to: it must be unparked after an entry in the remote queue.
    asleep: AtomicBool,
    unpark: Arc<dyn Unpark>,
}

#[derive(Default)]
struct RemoteQueue {
    woken: Vec<Arc<Handle>>,
    /// The executor has ended; nothing is taken any more, else wakers and mail would keep each other alive.
    closed: bool,
}

impl ExecutorHandle {
    pub(crate) fn new(unpark: Arc<dyn Unpark>) -> Arc<ExecutorHandle> {
        Arc::new(ExecutorHandle {
            queue_remote: Lock::default(),
            has_mail: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            unpark,
        })
    }

    fn queue_remote(&self, task: Arc<Handle>) {
        let mut queue_remote = self.queue_remote.lock();
        if queue_remote.closed {
            return;
        }
        queue_remote.woken.push(task);
        drop(queue_remote);
        // Pairs with `begin_park`: in the one order of all SeqCst operations, either the sleeper sees the
        // mail, or this sees the sleeper.
        self.has_mail.store(true, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.unpark.unpark();
        }
    }

    /// Passes the tasks woken by other threads to `each`.
    pub(crate) fn drain_remote_queue(&self, each: impl FnMut(Arc<Handle>)) {
        if self.has_mail.load(Ordering::Relaxed) && self.has_mail.swap(false, Ordering::SeqCst) {
            let woken = mem::take(&mut self.queue_remote.lock().woken);
            woken.into_iter().for_each(each);
        }
    }

    /// Announces that the thread is about to sleep; false if woken tasks are queued, so that it must not.
    pub(crate) fn begin_park(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let may = !self.has_mail.load(Ordering::SeqCst);
        if !may {
            self.end_park();
        }
        may
    }

    pub(crate) fn end_park(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    pub(crate) fn close(&self) {
        let mut queue_remote = self.queue_remote.lock();
        queue_remote.closed = true;
        let unread = mem::take(&mut queue_remote.woken);
        drop(queue_remote);
        drop(unread);
    }
}
