//! One reactor per core. Each is an OS thread with a world and an executor. Threads are not pinned, so the
//! scheduler can put both ends of a local connection on one CPU, which is 12 times as fast on a VM with 2
//! cores.

use std::future::Future;
use std::io;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use block::{Sleeper, Spawner};
use rustix::time::{ClockId, clock_gettime};

use crate::{Epoll, EpollOptions};

/// Number of CPUs that this process may use, according to its affinity mask and its cgroup's quota.
pub fn available() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// The started reactor threads, in the order of their numbers.
#[derive(Debug)]
pub struct Reactors<T> {
    threads: Vec<JoinHandle<io::Result<T>>>,
}

/// Starts `count` reactor threads, named `reactor-0` and so on. Each thread creates its world, and runs the
/// future that `main` returns for the thread's number. The future is created on that thread, so it need not
/// be `Send`.
pub fn start<T, F, M>(
    count: NonZeroUsize,
    options: EpollOptions,
    main: M,
) -> io::Result<Reactors<T>>
where
    T: Send + 'static,
    F: Future<Output = T>,
    M: Fn(usize) -> F + Clone + Send + 'static,
{
    let threads = (0..count.get()).map(|number| {
        let main = main.clone();
        thread::Builder::new()
            .name(format!("reactor-{number}"))
            .spawn(move || {
                // Create the future first, so that this thread releases its resources even if the world cannot be
                // created.
                let future = main(number);
                Ok(reactor::block_on(Epoll::shared(options)?, future))
            })
    });
    Ok(Reactors {
        threads: threads.collect::<io::Result<_>>()?,
    })
}

impl<T> Reactors<T> {
    /// Waits until all threads have ended. A panic of a thread is propagated.
    pub fn join(self) -> io::Result<Vec<T>> {
        let outcomes: Vec<_> = self.threads.into_iter().map(JoinHandle::join).collect();
        outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    }
}

/// Gives the calling thread precedence over all threads with ordinary priority (`SCHED_FIFO` at its lowest
/// level). Intended for threads that mostly wait. Needs `CAP_SYS_NICE`.
#[allow(unsafe_code)] // sched_setscheduler(2) for the calling thread
pub fn run_at_once() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads one sched_param, which lives for the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

// The reactor's clock, for layers that need timing, and the kernel's clock, for times to report.

/// Sleeps on the reactor of the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReactorClock;

impl Sleeper for ReactorClock {
    fn now(&self) -> Instant {
        reactor::now()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move { reactor::sleep(duration).await })
    }
}

/// CLOCK_MONOTONIC. Unlike an opaque [`Instant`], its value can be compared with values of other processes.
pub fn monotonic() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    // The clock starts at zero, so neither part is negative.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Spawns tasks on the reactor of the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReactorTasks;

impl Spawner for ReactorTasks {
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>) {
        // Dropping the handle detaches the task, which continues to run.
        drop(reactor::spawn(task));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reactor_runs_its_own_future_on_its_own_thread() {
        let three = NonZeroUsize::new(3).expect("not zero");
        let reactors = start(three, EpollOptions::default(), |number| async move {
            reactor::yield_now().await;
            (number, thread::current().name().map(str::to_owned))
        })
        .expect("threads start");
        let ran = reactors.join().expect("worlds open");
        let names: Vec<_> = (0..3)
            .map(|number| (number, Some(format!("reactor-{number}"))))
            .collect();
        assert_eq!(ran, names);
    }
}
