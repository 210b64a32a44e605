//! A single thread that polls tasks in random order, with a clock that advances with each poll, and seeded
//! random numbers.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use block::{Random, Sleeper, Spawner};

pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

thread_local! {
    static SPAWNED: RefCell<Vec<Task>> = const { RefCell::new(Vec::new()) };
    static RANDOM: RefCell<Random> = RefCell::new(Random::new(1));
    static STEPS: Cell<u64> = const { Cell::new(0) };
    static START: Instant = Instant::now();
}

/// Sets the seed of this thread.
pub(crate) fn seed(number: u64) {
    RANDOM.set(Random::new(number));
}

/// Draws a number below `below`.
pub(crate) fn draw(below: u64) -> u64 {
    RANDOM.with_borrow_mut(|random| random.below(below))
}

/// Returns true once in `many` calls on average.
pub(crate) fn once_in(many: u64) -> bool {
    draw(many) == 0
}

/// Yields to other tasks a random number of times, which may be zero.
pub(crate) async fn pause() {
    for _ in 0..draw(3) {
        wait_a_poll().await;
    }
}

/// Yields to other tasks once.
pub(crate) async fn wait_a_poll() {
    let mut has_waited = false;
    poll_fn(|cx| {
        cx.waker().wake_by_ref();
        if std::mem::replace(&mut has_waited, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Spawns tasks on the thread that runs the test.
pub(crate) struct HereSpawner;

impl Spawner for HereSpawner {
    fn spawn(&self, task: Task) {
        SPAWNED.with_borrow_mut(|tasks| tasks.push(task));
    }
}

/// A clock that advances by one microsecond with each poll.
pub(crate) struct StepClock;

impl Sleeper for StepClock {
    fn now(&self) -> Instant {
        START.with(|start| *start + Duration::from_micros(STEPS.get()))
    }

    fn sleep(&self, duration: Duration) -> Task {
        let end = self.now() + duration;
        Box::pin(poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            if StepClock.now() >= end {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }))
    }
}

/// The result of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    /// The limit on polls was reached, and all tasks were dropped.
    Crashed,
}

/// Runs `tasks`, and tasks that they spawn, to completion. After `polls_max` polls, drops all that have not
/// ended. Panics if there is a deadlock.
pub(crate) fn run(tasks: Vec<Task>, polls_max: u64) -> End {
    let start = |task| (task, Arc::new(Woken(AtomicBool::new(true))));
    let mut tasks: Vec<(Task, Arc<Woken>)> = tasks.into_iter().map(start).collect();
    for _ in 0..polls_max {
        tasks.extend(SPAWNED.take().into_iter().map(start));
        if tasks.is_empty() {
            return End::Done;
        }
        let woken: Vec<usize> = (0..tasks.len())
            .filter(|at| tasks[*at].1.0.load(Ordering::SeqCst))
            .collect();
        assert!(
            !woken.is_empty(),
            "{} tasks wait for each other",
            tasks.len()
        );
        let at = woken[draw(woken.len() as u64) as usize];
        let (task, flag) = &mut tasks[at];
        flag.0.store(false, Ordering::SeqCst);
        STEPS.set(STEPS.get() + 1);
        let waker = Waker::from(Arc::clone(flag));
        if task
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            drop(tasks.remove(at));
        }
    }
    // Tasks that are spawned while others are dropped are also dropped.
    drop(tasks);
    SPAWNED.take();
    End::Crashed
}

/// Runs one future to completion.
pub(crate) fn end<T: 'static>(future: impl Future<Output = T> + 'static) -> T {
    let result = std::rc::Rc::new(RefCell::new(None));
    let into = std::rc::Rc::clone(&result);
    let task = Box::pin(async move {
        let output = future.await;
        *into.borrow_mut() = Some(output);
    });
    assert_eq!(run(vec![task], 10_000_000), End::Done, "it comes to no end");
    result.take().expect("it has ended")
}
