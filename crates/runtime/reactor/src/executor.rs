//! The executor: one thread, its tasks, its timers, and turns of the world between them.
//!
//! ```text
//!   ┌─► run the ready tasks, at most BATCH of them, and none after one that has spent its budget
//!   │   take the tasks that other threads have woken
//!   │   fire the timers that are due
//!   └── World::turn: wait for the next timer or event, unless a task is ready
//! ```
//!
//! Waking a task from its own thread costs one atomic swap and a push on a queue, and never makes a system
//! call. If a task panics, the thread's `block_on` panics: shared invariants may be broken, so no other task
//! continues.
//!
//! Measured with `examples/wake_cost.rs`, built in release mode, on an otherwise idle VM with 2 vCPUs: a wake
//! and a poll cost 31 ns, with 1 task or with 1,024. Spawning, running and joining a task costs 130 ns. A
//! wait with a [`timeout`] that does not expire, including two clock readings, costs 126 ns.
//!
//! [`timeout`]: crate::timeout

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;
use std::{fmt, mem};

use block::Lock;

use crate::timers::Timers;
use crate::world::{Park, SharedWorld, Unpark};

/// Runs `future` to completion on this thread, together with the tasks it spawns. Tasks that have not ended
/// by then are dropped.
///
/// # Panics
/// If this thread already runs an executor.
pub fn block_on<F: Future>(world: SharedWorld, future: F) -> F::Output {
    let core = Core::enter(world);
    let _exit = Exit(Rc::clone(&core));
    let main = Handle::new(Handle::MAIN, &core.executor_handle);
    let waker = Waker::from(Arc::clone(&main));
    let mut future = pin!(future);
    waker.wake_by_ref();
    loop {
        for _ in 0..core.world.batch() {
            let Some(task) = core.next_ready() else { break };
            core.budget.set(POLL_BYTES);
            if task.place != Handle::MAIN {
                core.run(&task);
            } else {
                main.leave_queue();
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
                {
                    return output;
                }
            }
            if core.budget.get() == 0 {
                break; // the task took as long as a whole batch: serve sockets and timers first
            }
        }
        core.turn();
    }
}

/// Spawns a task on this thread. Dropping the handle detaches it.
///
/// # Panics
/// Outside of [`block_on`].
pub fn spawn<F: Future + 'static>(future: F) -> JoinHandle<F::Output> {
    let (task, outcome) = joined(future);
    let handle = current().start(Box::pin(task));
    JoinHandle::new(handle, outcome)
}

/// Returns the world in which this thread runs.
///
/// # Panics
/// Outside of [`block_on`].
pub fn world() -> SharedWorld {
    Rc::clone(&current().world)
}

/// Returns the monotonic time of this thread's world.
///
/// # Panics
/// Outside of [`block_on`].
pub fn now() -> Instant {
    CURRENT
        .with_borrow(|core| core.as_ref().map(|core| core.world.now()))
        .expect(OUTSIDE)
}

/// Yields to the other ready tasks.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Yields to the other ready tasks if the budget of this poll is spent. Each primitive that receives or sends
/// awaits this first, and then calls [`spend`]. So a loop over these primitives cannot keep the core from its
/// other tasks and its timers.
pub(crate) async fn proceed() {
    if CURRENT.with_borrow(|core| core.as_ref().is_some_and(|core| core.budget.get() == 0)) {
        yield_now().await; // the next poll starts with a full budget
    }
}

/// Charges one call on behalf of a peer, and the bytes that it moved or examined, to the budget of this poll.
pub(crate) fn spend(bytes: usize) {
    CURRENT.with_borrow(|core| {
        let Some(core) = core else { return }; // a future polled without an executor
        core.budget.set(
            core.budget
                .get()
                .saturating_sub(CALL_BYTES.saturating_add(bytes)),
        );
    });
}

/// Charges one step of long work on behalf of a peer, and the bytes that the step examined, to the budget of
/// the task's current poll. Yields to the other ready tasks when the budget is spent.
pub async fn consume_budget(bytes: usize) {
    spend(bytes);
    proceed().await;
}

/// The budget of one poll, as the number of bytes that a task may move or examine for its peer: about 30 µs
/// of work, like a batch of commands.
const POLL_BYTES: usize = 128 << 10;
/// Cost of a call in addition to its bytes: a system call takes about as long as copying this many bytes.
const CALL_BYTES: usize = 4 << 10;

/// Runs every task that is ready or that another thread has woken before this call. A message from another
/// thread can overtake the wakes that the thread made before it. Effects of these wakes, such as the drop of
/// a request, are certain only once this call has completed.
pub async fn catch_up() {
    current().take_woken();
    yield_now().await;
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

const OUTSIDE: &str = "called by a task of a thread that runs `reactor::block_on`";

/// Suspends this thread's executor, so that another one can be entered. For simulations, in which all cores
/// share one thread. No task of the executor may run before [`Suspended::resume`].
pub fn suspend() -> Suspended {
    Suspended(CURRENT.take())
}

/// A suspended executor, detached from its thread.
#[derive(Default)]
pub struct Suspended(Option<Rc<Core>>);

impl Suspended {
    /// Makes this executor the executor of the thread again.
    ///
    /// # Panics
    /// If another executor is entered.
    pub fn resume(&self) {
        CURRENT.with_borrow_mut(|current| {
            assert!(current.is_none(), "one thread runs one executor at a time");
            *current = self.0.clone();
        });
    }
}

/// Returns the identifier of this thread's executor, if any. Identifiers of live executors are unique.
pub fn executor() -> Option<ExecutorId> {
    CURRENT.with_borrow(|core| {
        core.as_ref()
            .map(|core| ExecutorId(Rc::as_ptr(core).addr()))
    })
}

/// Identifies an executor during its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutorId(usize);

/// The executor of this thread.
pub(crate) fn current() -> Rc<Core> {
    CURRENT.with_borrow(|core| core.clone()).expect(OUTSIDE)
}

/// Whether this thread runs the executor to which `executor_handle` belongs.
pub(crate) fn is_current_executor(executor_handle: &Arc<ExecutorHandle>) -> bool {
    let here = |core: &Rc<Core>| Arc::ptr_eq(&core.executor_handle, executor_handle);
    // The thread-local variable may no longer exist while the thread ends.
    CURRENT
        .try_with(|current| current.borrow().as_ref().is_some_and(here))
        .unwrap_or(false)
}

/// Puts a woken task on this thread's ready queue, or returns it if it belongs to another thread.
pub(crate) fn queue_local(task: Arc<Handle>) -> Option<Arc<Handle>> {
    let mut task = Some(task);
    // A waker may be used while this thread ends, after the thread-local variable was destroyed. In that
    // case, this thread's executor has also ended.
    let _ = CURRENT.try_with(|current| {
        let current = current.borrow();
        let here = |core: &&Rc<Core>| {
            task.as_ref()
                .is_some_and(|task| Arc::ptr_eq(&core.executor_handle, &task.executor_handle))
        };
        if let Some(core) = current.as_ref().filter(here)
            && let Some(task) = task.take()
        {
            core.ready.borrow_mut().push_back(task);
        }
    });
    task
}

/// Removes a task from its executor, so that it never runs again, and drops it.
pub(crate) fn abort(task: &Arc<Handle>) {
    let core = CURRENT.with_borrow(|core| core.clone());
    if let Some(core) =
        core.filter(|core| Arc::ptr_eq(&core.executor_handle, &task.executor_handle))
    {
        let removed = core.tasks.borrow_mut().remove(task);
        drop(removed); // after the borrow: its destructor may spawn or wake tasks
    }
}

/// One thread's executor.
pub(crate) struct Core {
    world: SharedWorld,
    executor_handle: Arc<ExecutorHandle>,
    ready: RefCell<VecDeque<Arc<Handle>>>,
    tasks: RefCell<Tasks>,
    pub(crate) timers: RefCell<Timers>,
    /// Remaining budget of the task being polled ([`spend`]).
    budget: Cell<usize>,
}

impl Core {
    fn enter(world: SharedWorld) -> Rc<Core> {
        let core = Rc::new(Core {
            executor_handle: ExecutorHandle::new(world.unpark()),
            world,
            ready: RefCell::default(),
            tasks: RefCell::default(),
            timers: RefCell::default(),
            budget: Cell::new(POLL_BYTES),
        });
        CURRENT.with_borrow_mut(|current| {
            assert!(current.is_none(), "one thread runs one executor at a time");
            *current = Some(Rc::clone(&core));
        });
        core
    }

    pub(crate) fn now(&self) -> Instant {
        self.world.now()
    }

    fn start(&self, future: LocalFuture) -> Arc<Handle> {
        let handle = self
            .tasks
            .borrow_mut()
            .insert(&self.executor_handle, future);
        Waker::from(Arc::clone(&handle)).wake();
        handle
    }

    fn next_ready(&self) -> Option<Arc<Handle>> {
        self.ready.borrow_mut().pop_front()
    }

    fn run(&self, task: &Arc<Handle>) {
        task.leave_queue();
        let Some(mut body) = self.tasks.borrow_mut().begin(task) else {
            return;
        };
        let finished = body
            .future
            .as_mut()
            .poll(&mut Context::from_waker(&body.waker))
            .is_ready();
        let over = match finished {
            true => self.tasks.borrow_mut().remove(task).or(Some(body)),
            false => self.tasks.borrow_mut().end(task, body),
        };
        drop(over); // after the borrow: its destructor may spawn or wake tasks
    }

    /// Moves tasks woken by other threads to the ready queue.
    pub(crate) fn take_woken(&self) {
        self.executor_handle
            .drain_remote_queue(|task| self.ready.borrow_mut().push_back(task));
    }

    fn turn(&self) {
        self.take_woken();
        let now = self.fire_timers();
        let park = self.park(now);
        if park == Park::No || !self.executor_handle.begin_park() {
            return self.world.turn(Park::No);
        }
        self.world.turn(park);
        self.executor_handle.end_park();
        self.take_woken();
        // If tasks are ready, the next turn wakes expired timers. This saves one reading of the clock.
        if self.ready.borrow().is_empty() {
            self.fire_timers();
        }
    }

    /// Wakes the tasks of expired timers, and returns the current time. If there are no timers, does not read
    /// the clock, and returns `None`.
    fn fire_timers(&self) -> Option<Instant> {
        self.timers.borrow().next()?;
        let now = self.now();
        loop {
            let due = self.timers.borrow_mut().expire(now);
            match due {
                Some(waker) => waker.wake(),
                None => return Some(now),
            }
        }
    }

    /// Returns the maximum wait of the next turn. `now` is the current time, or `None` if the clock has not
    /// been read.
    fn park(&self, now: Option<Instant>) -> Park {
        if !self.ready.borrow().is_empty() {
            return Park::No;
        }
        match self.timers.borrow().next() {
            None => Park::Forever,
            Some(at) => match at.saturating_duration_since(now.unwrap_or_else(|| self.now())) {
                due if due.is_zero() => Park::No,
                wait => Park::For(wait),
            },
        }
    }
}

/// Drops an executor's remaining tasks when its `block_on` ends, by return or by panic.
struct Exit(Rc<Core>);

impl Drop for Exit {
    fn drop(&mut self) {
        // Repeats until no task is left, because destructors of tasks may spawn others.
        loop {
            let left = self.0.tasks.borrow_mut().take_all();
            if left.is_empty() {
                break;
            }
            drop(left);
        }
        CURRENT.with_borrow_mut(Option::take);
        self.0.executor_handle.close();
        self.0.ready.borrow_mut().clear();
    }
}

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// A task's future, and its waker, created once.
struct Body {
    future: LocalFuture,
    waker: Waker,
}

/// The tasks of a thread. Slots are reused, so a waker is valid only as long as the slot contains the waker's
/// handle.
#[derive(Default)]
struct Tasks {
    places: Vec<Option<Task>>,
    vacant: Vec<usize>,
}

struct Task {
    handle: Arc<Handle>,
    /// `None` while the task is being polled.
    body: Option<Body>,
}

impl Tasks {
    fn insert(
        &mut self,
        executor_handle: &Arc<ExecutorHandle>,
        future: LocalFuture,
    ) -> Arc<Handle> {
        let place = self.vacant.pop().unwrap_or(self.places.len());
        let handle = Handle::new(place, executor_handle);
        let body = Some(Body {
            future,
            waker: Waker::from(Arc::clone(&handle)),
        });
        let task = Some(Task {
            handle: Arc::clone(&handle),
            body,
        });
        match self.places.get_mut(place) {
            Some(vacant) => *vacant = task,
            None => self.places.push(task),
        }
        handle
    }

    fn get_mut(&mut self, handle: &Arc<Handle>) -> Option<&mut Task> {
        let task = self.places.get_mut(handle.place)?.as_mut()?;
        Arc::ptr_eq(&task.handle, handle).then_some(task)
    }

    fn begin(&mut self, handle: &Arc<Handle>) -> Option<Body> {
        self.get_mut(handle)?.body.take()
    }

    /// Puts a task's body back after a poll. If the task was aborted during the poll, returns the body for
    /// the caller to drop.
    fn end(&mut self, handle: &Arc<Handle>, body: Body) -> Option<Body> {
        match self.get_mut(handle) {
            Some(task) => task.body.replace(body),
            None => Some(body),
        }
    }

    fn remove(&mut self, handle: &Arc<Handle>) -> Option<Body> {
        self.get_mut(handle)?;
        let task = self.places.get_mut(handle.place)?.take()?;
        self.vacant.push(handle.place);
        task.body
    }

    fn take_all(&mut self) -> Vec<Option<Task>> {
        self.vacant.clear();
        std::mem::take(&mut self.places)
    }
}

// Wakers put their task on the ready queue of its thread, or, from another thread, on the remote queue of its
// thread.

/// The handle of a task, to which its wakers point. The task's future is not in the handle, but in the
/// [`Tasks`](crate::executor) of its thread.
pub(crate) struct Handle {
    /// The task's slot in its executor; [`Handle::MAIN`] for the future passed to `block_on`.
    pub(crate) place: usize,
    /// Whether the task is in a queue. If so, further wakes have no effect.
    queued: AtomicBool,
    pub(crate) executor_handle: Arc<ExecutorHandle>,
}

impl Handle {
    pub(crate) const MAIN: usize = usize::MAX;

    /// Creates the handle of a task that is not yet in a queue.
    pub(crate) fn new(place: usize, executor_handle: &Arc<ExecutorHandle>) -> Arc<Handle> {
        Arc::new(Handle {
            place,
            queued: AtomicBool::new(false),
            executor_handle: Arc::clone(executor_handle),
        })
    }

    /// Called before the task is polled, so that later wakes queue it again. This is a swap rather than a
    /// store: a thread that found the task already queued did not queue it, but the poll must see what that
    /// thread wrote before.
    pub(crate) fn leave_queue(&self) {
        self.queued.swap(false, Ordering::AcqRel);
    }

    fn enters_queue(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
    }

    fn queue(self: Arc<Self>) {
        if let Some(foreign) = queue_local(self) {
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
        // Many tasks wake a connection's task to send, and only the first wake must queue it. A queued task
        // of this thread stays queued until this thread runs it, so a load is enough for this check.
        let is_queued =
            self.queued.load(Ordering::Relaxed) && is_current_executor(&self.executor_handle);
        if !is_queued && self.enters_queue() {
            Arc::clone(self).queue();
        }
    }
}

/// The handle of a thread's executor for other threads.
pub(crate) struct ExecutorHandle {
    queue_remote: Lock<RemoteQueue>,
    has_mail: AtomicBool,
    /// Whether the thread sleeps or is about to. If so, a thread that adds a task to the remote queue must
    /// unpark it.
    asleep: AtomicBool,
    unpark: Arc<dyn Unpark>,
}

#[derive(Default)]
struct RemoteQueue {
    woken: Vec<Arc<Handle>>,
    /// Whether the executor has ended. If so, the queue accepts no more tasks: a queued handle would keep the
    /// queue alive, and the queue would keep the handle alive.
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
        // Pairs with `begin_park`: in the single total order of SeqCst operations, either the thread that is
        // about to sleep sees `has_mail`, or this thread sees `asleep`.
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

    /// Announces that the thread is about to sleep. Returns false if another thread has woken tasks, so that
    /// this thread must not sleep.
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

/// The handle of a spawned task. Awaiting the handle returns the task's output; dropping it detaches the
/// task.
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

/// Wraps `future` as a task. Returns the task and the slot for its output.
pub(crate) fn joined<F: Future>(
    future: F,
) -> (impl Future<Output = ()> + use<F>, Rc<Outcome<F::Output>>) {
    let outcome = Rc::new(Outcome {
        output: Cell::new(None),
        ended: Cell::new(false),
        waiter: RefCell::new(None),
    });
    let task = Joined {
        future: Some(Box::pin(future)),
        place: Rc::clone(&outcome),
    };
    (task, outcome)
}

/// A task in the form that the executor polls. The future is moved only once, into its box. A wrapping
/// `async` block would be twice as large, and would be moved repeatedly.
struct Joined<F: Future> {
    future: Option<Pin<Box<F>>>,
    place: Rc<Outcome<F::Output>>,
}

impl<F: Future> Future for Joined<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(future) = &mut self.future else {
            return Poll::Ready(());
        };
        let Poll::Ready(output) = future.as_mut().poll(cx) else {
            return Poll::Pending;
        };
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
        abort(&self.task);
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
        f.debug_struct("JoinHandle")
            .field("finished", &self.is_finished())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;
    use crate::alone::Alone;
    use crate::mailbox::mailbox;
    use crate::timer::sleep;

    #[test]
    fn the_output_of_the_future_is_returned() {
        assert_eq!(block_on(Alone::virtual_time(), async { 42 }), 42);
    }

    #[test]
    fn a_spawned_task_gives_its_output_to_who_awaits_it() {
        let sum = block_on(Alone::virtual_time(), async {
            let tasks: Vec<_> = (0..10).map(|n| spawn(async move { n })).collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await;
            }
            sum
        });
        assert_eq!(sum, 45);
    }

    #[test]
    fn a_detached_task_runs_on() {
        let (sender, mut receiver) = mailbox();
        let heard = block_on(Alone::virtual_time(), async move {
            drop(spawn(async move {
                yield_now().await;
                sender.send("done").ok();
            }));
            receiver.recv().await
        });
        assert_eq!(heard, Some("done"));
    }

    struct Mark(Rc<Cell<u32>>);
    impl Drop for Mark {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn an_aborted_task_is_dropped_at_once_and_only_once() {
        let dropped = Rc::new(Cell::new(0));
        let mark = Mark(Rc::clone(&dropped));
        block_on(Alone::virtual_time(), async {
            let task = spawn(async move {
                let _mark = mark;
                std::future::pending::<()>().await
            });
            yield_now().await;
            task.abort();
            assert_eq!(dropped.get(), 1);
        });
        assert_eq!(dropped.get(), 1);
    }

    #[test]
    fn a_task_may_abort_itself() {
        block_on(Alone::virtual_time(), async {
            let slot: Rc<RefCell<Option<JoinHandle<()>>>> = Rc::default();
            let own = Rc::clone(&slot);
            *slot.borrow_mut() = Some(spawn(async move {
                own.borrow_mut().take().expect("its handle").abort();
                yield_now().await;
                unreachable!("an aborted task does not run on");
            }));
            for _ in 0..4 {
                yield_now().await;
            }
        });
    }

    #[test]
    fn a_late_wake_of_an_ended_task_does_not_reach_its_successor() {
        block_on(Alone::virtual_time(), async {
            let waker = spawn(poll_fn(|cx| Poll::Ready(cx.waker().clone()))).await;
            let polls = Rc::new(Cell::new(0));
            let counter = Rc::clone(&polls);
            let _successor = spawn(poll_fn(move |_| {
                counter.set(counter.get() + 1);
                Poll::<()>::Pending
            }));
            yield_now().await;
            waker.wake();
            yield_now().await;
            assert_eq!(polls.get(), 1);
        });
    }

    #[test]
    fn tasks_left_at_the_end_are_dropped_even_if_their_destructors_spawn() {
        struct Spawner(Rc<Cell<u32>>);
        impl Drop for Spawner {
            fn drop(&mut self) {
                let mark = Mark(Rc::clone(&self.0));
                spawn(async move { drop(mark) });
            }
        }
        let dropped = Rc::new(Cell::new(0));
        let spawner = Spawner(Rc::clone(&dropped));
        block_on(Alone::virtual_time(), async move {
            spawn(async move {
                let _spawner = spawner;
                std::future::pending::<()>().await
            });
            yield_now().await;
        });
        assert_eq!(dropped.get(), 1);
    }

    #[test]
    fn a_task_that_never_rests_leaves_the_world_its_turns() {
        let world = Alone::virtual_time();
        block_on(world.clone(), async {
            spawn(async {
                loop {
                    yield_now().await;
                }
            });
            sleep(Duration::from_millis(1)).await;
        });
    }

    #[test]
    fn a_wake_from_another_thread_ends_the_sleep() {
        let (sender, mut receiver) = mailbox();
        let thread = std::thread::spawn(move || {
            for n in 0..1000 {
                sender.send(n).expect("the receiver lives");
            }
        });
        let sum = block_on(Alone::virtual_time(), async move {
            let mut sum = 0;
            while let Some(n) = receiver.recv().await {
                sum += n;
            }
            sum
        });
        thread.join().expect("the sender ends");
        assert_eq!(sum, 499_500);
    }

    #[test]
    fn a_wake_after_the_end_is_harmless() {
        let waker = block_on(
            Alone::virtual_time(),
            poll_fn(|cx| Poll::Ready(cx.waker().clone())),
        );
        waker.wake_by_ref();
        std::thread::spawn(move || waker.wake())
            .join()
            .expect("a late waker ends");
    }

    #[test]
    fn one_executor_may_follow_another() {
        for _ in 0..2 {
            block_on(Alone::virtual_time(), async {
                sleep(Duration::from_secs(1)).await
            });
        }
    }

    #[test]
    #[should_panic(expected = "one executor at a time")]
    fn one_executor_inside_another_is_refused() {
        block_on(Alone::virtual_time(), async {
            block_on(Alone::virtual_time(), async {})
        });
    }
}
