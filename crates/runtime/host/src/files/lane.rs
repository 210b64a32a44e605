//! Runs blocking work on a few threads, which are started on demand and exit when idle. Every file has its
//! own lane, so that a hung file does not block other files.

use std::any::Any;
use std::collections::VecDeque;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// Idle time after which a thread exits.
const IDLE: Duration = Duration::from_secs(10);

/// A queue of work with a limited number of threads. Work starts in the order of submission.
pub(crate) struct Lane {
    shared: Arc<Shared>,
}

struct Shared {
    threads_max: usize,
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Arc<dyn Job>>,
    threads: usize,
    idle: usize,
    /// Whether the lane was dropped, so that threads exit once the queue is empty.
    closed: bool,
}

trait Job: Send + Sync {
    fn run(&self);
}

impl Lane {
    pub(crate) fn new(threads_max: usize) -> Lane {
        Lane {
            shared: Arc::new(Shared {
                threads_max,
                queue: Mutex::default(),
                work: Condvar::new(),
            }),
        }
    }

    /// Runs `work` on one of the threads. Dropping the future cancels the work if it has not started.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Running<T> {
        let state = TaskState {
            stage: Stage::Waiting(Box::new(work)),
            waiter: None,
        };
        let task = Arc::new(Task {
            state: Mutex::new(state),
        });
        self.shared.push(Arc::clone(&task) as Arc<dyn Job>);
        Running {
            lane: Arc::clone(&self.shared),
            task,
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(self: &Arc<Self>, job: Arc<dyn Job>) {
        let mut queue = self.queue();
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() || queue.threads >= self.threads_max {
            drop(queue);
            return self.work.notify_one();
        }
        queue.threads += 1;
        drop(queue);
        let shared = Arc::clone(self);
        let started = thread::Builder::new()
            .name("file-io".into())
            .spawn(move || shared.serve());
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start a file I/O thread; continuing with fewer");
            self.serve_without_a_thread();
        }
    }

    /// Called when no thread can be created. If no other thread runs, executes the first queued work on this
    /// thread.
    fn serve_without_a_thread(&self) {
        let mut queue = self.queue();
        queue.threads -= 1;
        if queue.threads == 0 {
            let job = queue.jobs.pop_front();
            drop(queue);
            if let Some(job) = job {
                job.run();
            }
        }
    }

    /// Executes queued work until the thread must exit.
    fn serve(&self) {
        while let Some(job) = self.next() {
            job.run();
        }
    }

    fn next(&self) -> Option<Arc<dyn Job>> {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            let mut waited_in_vain = queue.closed;
            if !waited_in_vain {
                queue.idle += 1;
                let (woken, timeout) = self
                    .work
                    .wait_timeout(queue, IDLE)
                    .unwrap_or_else(PoisonError::into_inner);
                queue = woken;
                queue.idle -= 1;
                waited_in_vain = timeout.timed_out() && queue.jobs.is_empty();
            }
            if waited_in_vain {
                queue.threads -= 1;
                return None;
            }
        }
    }

    fn take_back(&self, job: &Arc<dyn Job>) {
        self.queue()
            .jobs
            .retain(|waiting| !Arc::ptr_eq(waiting, job));
    }
}

struct Task<T> {
    state: Mutex<TaskState<T>>,
}

struct TaskState<T> {
    stage: Stage<T>,
    waiter: Option<Waker>,
}

/// The stage of a task.
///
/// ```text
/// Waiting ── a thread starts it ──► Running
/// Running ── the work has ended ──► Done
/// Done    ── output delivered ────► Over
/// any     ── future dropped ──────► Over
/// ```
enum Stage<T> {
    Waiting(Box<dyn FnOnce() -> T + Send>),
    Running,
    Done(Result<T, Box<dyn Any + Send>>),
    /// The output has been delivered, or is no longer needed.
    Over,
}

impl<T> Task<T> {
    fn state(&self) -> MutexGuard<'_, TaskState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> Option<Box<dyn FnOnce() -> T + Send>> {
        let mut state = self.state();
        match mem::replace(&mut state.stage, Stage::Running) {
            Stage::Waiting(work) => Some(work),
            other => {
                state.stage = other;
                None
            }
        }
    }

    fn end(&self, output: Result<T, Box<dyn Any + Send>>) {
        let mut state = self.state();
        if matches!(state.stage, Stage::Running) {
            state.stage = Stage::Done(output);
        }
        let waiter = state.waiter.take();
        drop(state);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl<T: Send> Job for Task<T> {
    fn run(&self) {
        if let Some(work) = self.begin() {
            // Pass a panic to the requester of the work instead of ending this thread.
            self.end(catch_unwind(AssertUnwindSafe(work)));
        }
    }
}

/// Work submitted to a lane.
pub(crate) struct Running<T: Send + 'static> {
    lane: Arc<Shared>,
    task: Arc<Task<T>>,
}

impl<T: Send + 'static> Future for Running<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.task.state();
        match mem::replace(&mut state.stage, Stage::Over) {
            Stage::Done(Ok(output)) => Poll::Ready(output),
            Stage::Done(Err(panic)) => {
                drop(state);
                resume_unwind(panic)
            }
            unfinished => {
                state.stage = unfinished;
                state.waiter = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T: Send + 'static> Drop for Running<T> {
    fn drop(&mut self) {
        let before = mem::replace(&mut self.task.state().stage, Stage::Over);
        if let Stage::Waiting(_) = before {
            self.lane
                .take_back(&(Arc::clone(&self.task) as Arc<dyn Job>));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoll, EpollOptions};
    use reactor::block_on;
    use std::sync::mpsc;

    fn run<F: Future>(future: F) -> F::Output {
        block_on(
            Epoll::shared(EpollOptions::default()).expect("an epoll"),
            future,
        )
    }

    #[test]
    fn work_gives_its_output() {
        let lane = Lane::new(2);
        assert_eq!(
            run(async { lane.run(|| 6).await * lane.run(|| 7).await }),
            42
        );
    }

    #[test]
    fn work_that_has_not_begun_is_taken_back() {
        let lane = Lane::new(1);
        let (release, gate) = mpsc::channel::<()>();
        let (begun, first_runs) = mpsc::channel();
        let first = lane.run(move || {
            begun.send(()).expect("heard");
            gate.recv()
        });
        first_runs.recv().expect("the first begins");
        let held = Arc::new(());
        let inside = Arc::clone(&held);
        drop(lane.run(move || drop(inside)));
        assert_eq!(
            Arc::strong_count(&held),
            1,
            "gone while the first still runs"
        );
        release.send(()).expect("waiting");
        assert!(run(first).is_ok());
    }

    #[test]
    fn a_lane_that_hangs_holds_only_its_own_threads() {
        let (hung, healthy) = (Lane::new(1), Lane::new(1));
        let (release, gate) = mpsc::channel::<()>();
        let waits = hung.run(move || gate.recv().is_ok());
        assert_eq!(run(healthy.run(|| 1)), 1);
        drop(release);
        assert!(!run(waits));
    }

    #[test]
    #[should_panic(expected = "of the work")]
    fn a_panic_reaches_who_waits() {
        run(Lane::new(1).run(|| panic!("of the work")));
    }
}
