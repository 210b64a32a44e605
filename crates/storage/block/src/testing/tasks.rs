//! An executor that polls only woken tasks, in random order.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::{DeviceError, Pending, Random, Spawner};

pub(crate) type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

thread_local! {
    static SPAWNED: RefCell<Vec<Task<'static>>> = const { RefCell::new(Vec::new()) };
    static RANDOM: RefCell<Random> = RefCell::new(Random::new(1));
}

/// A random number below `below`.
pub(crate) fn draw(below: u64) -> u64 {
    RANDOM.with_borrow_mut(|random| random.below(below))
}

/// Sets the random seed of this thread.
pub(crate) fn seed(number: u64) {
    RANDOM.set(Random::new(number));
}

pub(crate) struct LocalSpawner;

impl Spawner for LocalSpawner {
    fn spawn(&self, task: Task<'static>) {
        SPAWNED.with_borrow_mut(|tasks| tasks.push(task));
    }
}

/// Runs the given tasks and those they spawn until none is woken; returns those that have not ended.
pub(crate) fn run<'a>(users: Vec<Task<'a>>) -> Vec<Task<'a>> {
    let mut tasks: Vec<(bool, Task<'a>, Arc<Woken>)> = Vec::new();
    let start = |task, user| (user, task, Arc::new(Woken(AtomicBool::new(true))));
    tasks.extend(users.into_iter().map(|task| start(task, true)));
    loop {
        tasks.extend(SPAWNED.take().into_iter().map(|task| start(task as Task<'a>, false)));
        let woken: Vec<usize> = (0..tasks.len()).filter(|at| tasks[*at].2.0.load(Ordering::SeqCst)).collect();
        if woken.is_empty() {
            break;
        }
        let at = woken[draw(woken.len() as u64) as usize];
        let (_, task, flag) = &mut tasks[at];
        flag.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(flag));
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            drop(tasks.remove(at));
        }
    }
    tasks.into_iter().map(|(_, task, _)| task).collect()
}

/// Runs one request to its end; panics if it does not end.
pub(crate) fn end<T>(request: Pending<'_, T>) -> Result<T, DeviceError> {
    let result = RefCell::new(None);
    let left = run(vec![Box::pin(async { *result.borrow_mut() = Some(request.await) })]);
    drop(left);
    result.into_inner().expect("it comes to its end")
}

/// Polls `task` at most `polls` times, then drops it.
pub(crate) async fn with_poll_limit(mut polls: u64, mut task: Task<'_>) {
    std::future::poll_fn(|context| {
        polls = polls.saturating_sub(1);
        if polls == 0 { Poll::Ready(()) } else { task.as_mut().poll(context) }
    })
    .await;
}
