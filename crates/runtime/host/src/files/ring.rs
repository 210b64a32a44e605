//! File operations through io_uring. Each reactor thread has one ring. Operations are submitted once per turn
//! of the thread's world, or earlier if many are queued.
//!
//! ```text
//!  queued ──flush──► submitted ──reap──► done ──poll──► removed
//!    └─ dropped: cancelled       └─ dropped: orphan, keeps its buffer until it is reaped
//! ```
//!
//! The ring signals completions through the world's eventfd. With DEFER_TASKRUN, the kernel finishes
//! operations only when this thread enters the kernel, so a completion never interrupts a task.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use io_uring::{IoUring, Probe, opcode, squeue, types};

use super::operation::Operation;
use super::orphans::Ticket;
use super::syncs::Woken;

/// Maximum number of operations submitted with one system call. The completion queue is four times as long;
/// if it overflows, the kernel keeps further completions (IORING_FEAT_NODROP).
const ENTRIES: u32 = 256;

/// Maximum number of operations of one file in the kernel; further operations wait in this process. There is
/// no limit for all files together, because a hung file and its orphans must not block other files.
const FILE_DEPTH: usize = 128;

/// Queued operations are submitted before the end of a turn when there are this many, or when none is
/// outstanding. Otherwise a disk that completes many operations together would be idle until all completions
/// have been handled. Submitted in groups of eight, 4 KiB reads at depth 32 from a virtio disk are 10 %
/// faster and cost no more CPU time.
const EAGER: usize = 8;

/// The first turn handles completions of up to this many bytes, at least one completion; each following turn
/// handles twice as many bytes. After a disk has completed many operations together, it is idle until an
/// initiator has received the first response and sent the next command. So the first response must not wait
/// until all others are sent.
const FIRST_BYTES: usize = 4 << 10;
/// Maximum number of doublings, after which the limit is 1 MiB.
const DOUBLINGS_MAX: u32 = 8;

/// Maximum number of kernel threads for blocking operations, such as reads from disk into the page cache.
/// This is enough for eight hung files; the kernel's default, four threads per CPU, would be used up by one.
/// Threads are started only when needed.
const WORKERS_MAX: u32 = 8 * FILE_DEPTH as u32;

/// The user data of a cancellation. Its completion is ignored, because the cancelled operation has its own
/// completion.
const CANCELLATION: u64 = u64::MAX;

/// Time that an exiting thread waits for outstanding operations. After that, their buffers are leaked.
const LAST_WAIT: Duration = Duration::from_secs(1);

thread_local! {
    static CURRENT: RefCell<Weak<Ring>> = const { RefCell::new(Weak::new()) };
}

/// Returns the ring of this thread, if it has one.
pub(crate) fn current() -> Option<Rc<Ring>> {
    CURRENT.with_borrow(Weak::upgrade)
}

/// An io_uring for the thread that created it.
pub(crate) struct Ring {
    ring: RefCell<IoUring>,
    state: RefCell<Slots>,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Option<Slot>>,
    vacant: Vec<usize>,
    queued: VecDeque<usize>,
    /// Number of operations queued since the last submission.
    new: usize,
    /// Number of consecutive turns that left completions for the next turn.
    crowded: u32,
    to_cancel: Vec<usize>,
    /// The number of submitted operations of each file, by the file's address. The slots keep the files
    /// alive.
    submitted: HashMap<*const File, usize>,
}

struct Slot {
    operation: Operation,
    file: Arc<File>,
    ticket: Option<Ticket>,
    stage: Stage,
    waiter: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Queued,
    Submitted,
    /// Submitted, and its future was dropped.
    Orphan,
    Done(i32),
}

impl Ring {
    /// Opens a ring for this thread, which [`current`] then returns. The ring signals completions to
    /// `eventfd`.
    pub(crate) fn open(eventfd: BorrowedFd<'_>) -> io::Result<Rc<Ring>> {
        let ring = build()?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
        ];
        if !needed.into_iter().all(|code| probe.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        ring.submitter().register_eventfd(eventfd.as_raw_fd())?;
        // Linux before 5.15 does not support setting this limit, and uses its default.
        let _ = ring
            .submitter()
            .register_iowq_max_workers(&mut [WORKERS_MAX, 0]);
        let ring = Rc::new(Ring {
            ring: RefCell::new(ring),
            state: RefCell::default(),
        });
        CURRENT.set(Rc::downgrade(&ring));
        Ok(ring)
    }

    /// Executes `operation`, or a part of it.
    pub(crate) fn perform(
        self: &Rc<Self>,
        operation: Operation,
        file: Arc<File>,
        ticket: Ticket,
    ) -> Performing {
        let slot = Slot {
            operation,
            file,
            ticket: Some(ticket),
            stage: Stage::Queued,
            waiter: None,
        };
        let mut state = self.state.borrow_mut();
        let place = state.insert(slot);
        state.queued.push_back(place);
        state.new += 1;
        // Completed operations do not count as outstanding, even if they have not been reaped yet.
        let idle = state.under_way() <= self.ring.borrow_mut().completion().len();
        let eager = idle || state.new >= EAGER;
        drop(state);
        if eager {
            self.flush();
        }
        Performing {
            ring: Rc::clone(self),
            place: Some(place),
        }
    }

    /// Submits queued operations and handles completions. Returns whether a task was woken or completions are
    /// left. If so, the next wait for events must not block: the eventfd has already been signalled for the
    /// completions left.
    pub(crate) fn turn(&self) -> bool {
        self.flush();
        self.reap()
    }

    /// Whether [`Ring::turn`] would find completions. Makes no system call.
    pub(crate) fn has_news(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        let deferred = ring.submission().taskrun();
        deferred || !ring.completion().is_empty()
    }

    /// Whether any operation is in the kernel.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.borrow().under_way() > 0
    }

    /// Whether the kernel has not accepted an operation, so that the submission must be retried soon.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.ring.borrow_mut().submission().is_empty()
    }

    fn flush(&self) {
        let mut ring = self.ring.borrow_mut();
        let mut state = self.state.borrow_mut();
        state.new = 0;
        loop {
            let all = state.submit_queued(&mut ring.submission());
            state.submit_cancellations(&mut ring.submission());
            if ring.submission().is_empty() {
                return;
            }
            // The kernel has no memory or no space for completions. The next turn submits the remaining
            // operations.
            if let Err(error) = ring.submit() {
                return tracing::debug!(%error, "io_uring does not accept operations");
            }
            if all {
                return;
            }
        }
    }

    fn reap(&self) -> bool {
        let mut woken = Vec::new();
        let leaves_some = {
            let mut ring = self.ring.borrow_mut();
            if ring.submission().taskrun() {
                enter(&ring, 0, None);
            }
            let mut state = self.state.borrow_mut();
            let mut finished = ring.completion();
            let (mut taken, room) = (0, FIRST_BYTES << state.crowded.min(DOUBLINGS_MAX));
            while taken < room
                && let Some(completion) = finished.next()
            {
                taken += usize::try_from(completion.result()).unwrap_or(0);
                woken.extend(state.complete(completion.user_data(), completion.result()));
            }
            state.crowded = if finished.is_empty() {
                0
            } else {
                state.crowded + 1
            };
            state.crowded > 0
        };
        // Wake tasks and drop orphans after the borrows have ended, because both may call into this ring
        // again.
        let any = leaves_some || !woken.is_empty();
        for Completed {
            waiter,
            others,
            orphan,
        } in woken
        {
            drop(orphan);
            others.wake();
            if let Some(waiter) = waiter {
                waiter.wake();
            }
        }
        any
    }
}

fn build() -> io::Result<IoUring> {
    let mut modern = IoUring::builder();
    modern
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_cqsize(4 * ENTRIES);
    match modern.build(ENTRIES) {
        // Linux before 6.1 does not support DEFER_TASKRUN.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().setup_cqsize(4 * ENTRIES).build(ENTRIES)
        }
        built => built,
    }
}

/// Makes the kernel finish deferred operations. Waits until `wanted` operations have finished, but no longer
/// than `limit`.
fn enter(ring: &IoUring, wanted: u32, limit: Option<Duration>) {
    let limit = limit.map(types::Timespec::from);
    let entered = match &limit {
        None => {
            const GETEVENTS: u32 = 1;
            // SAFETY: no argument is passed, so none can be invalid.
            unsafe {
                ring.submitter()
                    .enter::<libc::sigset_t>(0, wanted, GETEVENTS, None)
            }
        }
        Some(limit) => ring
            .submitter()
            .submit_with_args(wanted as usize, &types::SubmitArgs::new().timespec(limit)),
    };
    // The call was interrupted, timed out or found no memory. The next turn tries again.
    drop(entered);
}

/// A completion: the task that waits for the operation, other tasks to wake, and the operation itself if its
/// future was dropped.
struct Completed {
    waiter: Option<Waker>,
    others: Woken,
    orphan: Option<Slot>,
}

impl Slots {
    fn insert(&mut self, slot: Slot) -> usize {
        match self.vacant.pop() {
            Some(place) => {
                self.slots[place] = Some(slot);
                place
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() - 1
            }
        }
    }

    /// Number of operations in the kernel.
    fn under_way(&self) -> usize {
        self.submitted.values().sum()
    }

    fn slot(&mut self, place: usize) -> Option<&mut Slot> {
        self.slots.get_mut(place)?.as_mut()
    }

    fn remove(&mut self, place: usize) -> Option<Slot> {
        let slot = self.slots.get_mut(place)?.take();
        self.vacant.extend(slot.is_some().then_some(place));
        slot
    }

    /// Submits queued operations, as far as each file's depth allows. Returns false if the ring is full.
    fn submit_queued(&mut self, ring: &mut squeue::SubmissionQueue<'_>) -> bool {
        for _ in 0..self.queued.len() {
            let Some(place) = self.queued.pop_front() else {
                break;
            };
            match self.submit(place, ring) {
                Submitted::Yes => {}
                Submitted::FileIsBusy => self.queued.push_back(place), // keeps the file's order
                Submitted::RingIsFull => {
                    self.queued.push_front(place);
                    return false;
                }
            }
        }
        true
    }

    fn submit(&mut self, place: usize, ring: &mut squeue::SubmissionQueue<'_>) -> Submitted {
        let Some(slot) = self.slots.get_mut(place).and_then(Option::as_mut) else {
            return Submitted::Yes;
        };
        let of_file = self.submitted.entry(Arc::as_ptr(&slot.file)).or_default();
        if *of_file >= FILE_DEPTH {
            return Submitted::FileIsBusy;
        }
        let entry = slot.operation.entry(&slot.file).user_data(place as u64);
        // SAFETY: the entry points into the slot's buffer and names the slot's file. The slot keeps both
        // until the completion is reaped, also when its future is dropped; when the ring ends earlier they
        // are leaked (`Ring::drop`).
        if unsafe { ring.push(&entry) }.is_err() {
            return Submitted::RingIsFull;
        }
        slot.stage = Stage::Submitted;
        *of_file += 1;
        Submitted::Yes
    }

    /// Decrements the number of the file's submitted operations.
    fn ended(&mut self, file: *const File) {
        if let Some(of_file) = self.submitted.get_mut(&file) {
            *of_file -= 1;
            if *of_file == 0 {
                self.submitted.remove(&file);
            }
        }
    }

    fn submit_cancellations(&mut self, queue: &mut squeue::SubmissionQueue<'_>) {
        for place in self.to_cancel.drain(..) {
            let entry = opcode::AsyncCancel::new(place as u64)
                .build()
                .user_data(CANCELLATION);
            // SAFETY: a cancellation contains no pointers. If the ring is full, it is skipped: it only saves time.
            let _ = unsafe { queue.push(&entry) };
        }
    }

    fn complete(&mut self, user_data: u64, result: i32) -> Option<Completed> {
        if user_data == CANCELLATION {
            return None;
        }
        let place = user_data as usize;
        let file = Arc::as_ptr(&self.slot(place)?.file);
        self.ended(file);
        let slot = self.slot(place)?;
        let others = slot.operation.ended(&moved(result));
        if slot.stage == Stage::Orphan {
            return Some(Completed {
                waiter: None,
                others,
                orphan: self.remove(place),
            });
        }
        slot.stage = Stage::Done(result);
        slot.ticket = None;
        Some(Completed {
            waiter: slot.waiter.take(),
            others,
            orphan: None,
        })
    }
}

/// Converts the result of a completion to the result of the corresponding system call.
fn moved(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

enum Submitted {
    Yes,
    FileIsBusy,
    RingIsFull,
}

/// The future of an operation.
pub(crate) struct Performing {
    ring: Rc<Ring>,
    /// The operation's slot; `None` once the operation has ended.
    place: Option<usize>,
}

impl Future for Performing {
    type Output = (Operation, io::Result<usize>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ring = Rc::clone(&self.ring);
        let mut state = ring.state.borrow_mut();
        let place = self.place.expect("not polled after its end");
        let slot = state
            .slot(place)
            .expect("a slot stays until its future has seen the end");
        let Stage::Done(result) = slot.stage else {
            slot.waiter = Some(cx.waker().clone());
            return Poll::Pending;
        };
        self.place = None;
        let operation = state.remove(place).expect("seen above").operation;
        Poll::Ready((operation, moved(result)))
    }
}

impl Drop for Performing {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut state = self.ring.state.borrow_mut();
        let over = match state.slot(place) {
            Some(slot) if slot.stage == Stage::Submitted => {
                slot.stage = Stage::Orphan;
                slot.waiter = None;
                state.to_cancel.push(place);
                None
            }
            _ => {
                state.queued.retain(|&queued| queued != place);
                state.remove(place)
            }
        };
        drop(state);
        drop(over);
    }
}

impl Drop for Ring {
    /// Waits for outstanding operations, and leaks the memory of those that do not complete, because the
    /// kernel may still write to it.
    fn drop(&mut self) {
        let start = Instant::now();
        self.flush(); // the cancellations
        while self.state.borrow().under_way() > 0 && start.elapsed() < LAST_WAIT {
            enter(
                &self.ring.borrow(),
                1,
                Some(LAST_WAIT.saturating_sub(start.elapsed())),
            );
            self.reap();
        }
        let mut state = mem::take(self.state.get_mut());
        let hanging = state.under_way();
        if hanging > 0 {
            tracing::warn!(
                operations = hanging,
                "file operations are still hung when their thread exits"
            );
            // The results of these operations remain unknown, and a sync among them may fail. Report an
            // error, so that no other thread waits for such a sync.
            let unknown = Err(io::Error::from_raw_os_error(libc::EIO));
            for slot in state.slots.iter_mut().flatten() {
                slot.operation.ended(&unknown).wake();
            }
            mem::forget(state);
        }
    }
}
