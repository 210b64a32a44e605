//! A single-threaded executor.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use block::{Lock, Sleeper, Spawner};

pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

thread_local! {
    static SPAWNED: RefCell<Vec<Task>> = const { RefCell::new(Vec::new()) };
}

/// Spawns tasks on the thread that runs the sets.
pub(crate) struct Here;

impl Spawner for Here {
    fn spawn(&self, task: Task) {
        SPAWNED.with_borrow_mut(|tasks| tasks.push(task));
    }
}

/// The system clock. Nothing sleeps in this example.
pub(crate) struct Clock;

impl Sleeper for Clock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, _: Duration) -> Task {
        Box::pin(async {})
    }
}

struct Handle {
    index: usize,
    ready: Arc<Lock<VecDeque<usize>>>,
}

impl Wake for Handle {
    fn wake(self: Arc<Self>) {
        self.ready.lock().push_back(self.index);
    }
}

/// Runs `tasks`, and the tasks that they spawn, to completion.
pub(crate) fn run(tasks: Vec<Task>) {
    let ready: Arc<Lock<VecDeque<usize>>> = Arc::default();
    let mut all: Vec<Option<Task>> = Vec::new();
    let mut new = tasks;
    loop {
        for task in new {
            ready.lock().push_back(all.len());
            all.push(Some(task));
        }
        let Some(index) = ready.lock().pop_front() else {
            break;
        };
        if let Some(task) = &mut all[index] {
            let waker = Waker::from(Arc::new(Handle {
                index,
                ready: Arc::clone(&ready),
            }));
            if let Poll::Ready(()) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
                all[index] = None;
            }
        }
        new = SPAWNED.take();
    }
    assert!(all.iter().all(Option::is_none), "tasks wait for each other");
}

/// Runs one future and returns its result.
pub(crate) fn end<T: 'static>(future: impl Future<Output = T> + 'static) -> T {
    let result = std::rc::Rc::new(RefCell::new(None));
    let into = std::rc::Rc::clone(&result);
    run(vec![Box::pin(async move {
        let output = future.await;
        *into.borrow_mut() = Some(output);
    })]);
    result.take().expect("it has ended")
}
