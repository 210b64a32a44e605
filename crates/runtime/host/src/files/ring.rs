//! File operations by io_uring: one ring per reactor thread, submitted once per turn of its world, or earlier
//! if many are queued.
//!
//! ```text
//!  queued ──flush──► submitted ──reap──► done ──poll──► gone
//!    └─ dropped: taken back      └─ dropped: orphan, keeps its buffer until reaped, then gone
//! ```
//!
//! The ring signals completions by the world's eventfd. With DEFER_TASKRUN the kernel finishes operations
//! only when this thread enters it, so a request never interrupts another task's work.

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

/// Operations handed over with one system call, and completions that fit the ring; more than that at once the
/// kernel keeps for us (IORING_FEAT_NODROP).
const ENTRIES: u32 = 256;

/// Operations of one file that the kernel has at once; what is beyond waits here. There is no limit for all
/// files together: one that hangs, with its orphans, must not use up what the others need.
const FILE_DEPTH: usize = 128;

/// This many queued operations are submitted before the end of a turn, and so is the first one if none is
/// outstanding. A disk that completes many at once would otherwise be idle until all completions are handled:
/// 4 KiB reads at depth 32 from a virtio disk go a tenth faster, and cost no more, handed over by eights.
const EAGER: usize = 8;

/// Bytes of completions handled in the first turn, at least one completion; each following turn handles twice
/// as many. A disk that completes many operations at once is idle until an initiator has received the first
/// response and sends the next command; so the first response must not wait until all others are sent.
const FIRST_BYTES: usize = 4 << 10;
/// How often that is doubled: up to 1 MiB.
const DOUBLINGS_MAX: u32 = 8;

/// Kernel threads for what would block, such as reads from the disk into the page cache: enough for eight
/// files that hang. The usual four per CPU would be taken by one. They are started only when needed.
const WORKERS_MAX: u32 = 8 * FILE_DEPTH as u32;

/// The user data of a cancellation; its completion is ignored, since the operation has its own.
const CANCELLATION: u64 = u64::MAX;

/// How long a thread waits at its end for outstanding operations; then their buffers are leaked.
const LAST_WAIT: Duration = Duration::from_secs(1);

thread_local! {
    static CURRENT: RefCell<Weak<Ring>> = const { RefCell::new(Weak::new()) };
}

/// The ring of this thread, if it has one.
pub(crate) fn current() -> Option<Rc<Ring>> {
    CURRENT.with_borrow(Weak::upgrade)
}

/// An io_uring for the thread that made it.
pub(crate) struct Ring {
    ring: RefCell<IoUring>,
    state: RefCell<Slots>,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Option<Slot>>,
    vacant: Vec<usize>,
    queued: VecDeque<usize>,
    /// Operations queued since the last submission.
    new: usize,
    /// Consecutive turns that left completions to the next.
    crowded: u32,
    to_cancel: Vec<usize>,
    /// By the file's address; the slots keep the files alive.
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
    /// A ring for this thread, which from now on [`current`] gives; its completions are told to `eventfd`.
    pub(crate) fn open(eventfd: BorrowedFd<'_>) -> io::Result<Rc<Ring>> {
        let ring = build()?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE, opcode::Fallocate::CODE];
        if !needed.into_iter().all(|code| probe.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        ring.submitter().register_eventfd(eventfd.as_raw_fd())?;
        // Linux before 5.15 does not know this limit; it then has its own.
        let _ = ring.submitter().register_iowq_max_workers(&mut [WORKERS_MAX, 0]);
        let ring = Rc::new(Ring { ring: RefCell::new(ring), state: RefCell::default() });
        CURRENT.set(Rc::downgrade(&ring));
        Ok(ring)
    }

    /// Carries `operation` out, or a part of it.
    pub(crate) fn perform(
        self: &Rc<Self>,
        operation: Operation,
        file: Arc<File>,
        ticket: Ticket,
    ) -> Performing {
        let slot = Slot { operation, file, ticket: Some(ticket), stage: Stage::Queued, waiter: None };
        let mut state = self.state.borrow_mut();
        let place = state.insert(slot);
        state.queued.push_back(place);
        state.new += 1;
        // What it has ended is not under way, though it is not taken yet.
        let idle = state.under_way() <= self.ring.borrow_mut().completion().len();
        let eager = idle || state.new >= EAGER;
        drop(state);
        if eager {
            self.flush();
        }
        Performing { ring: Rc::clone(self), place: Some(place) }
    }

    /// Submits queued operations and handles completions. Returns whether a task was woken or completions are
    /// left; then the next turn must not wait, since the eventfd was signalled already.
    pub(crate) fn turn(&self) -> bool {
        self.flush();
        self.reap()
    }

    /// Whether [`Ring::turn`] would find something finished. No system call.
    pub(crate) fn has_news(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        let deferred = ring.submission().taskrun();
        deferred || !ring.completion().is_empty()
    }

    /// Whether the kernel has any operation.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.borrow().under_way() > 0
    }

    /// Whether something could not be given to the kernel yet and has to be tried again soon.
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
            // Out of memory or out of room for completions: what is left in the ring goes with the next turn.
            if let Err(error) = ring.submit() {
                return tracing::debug!(%error, "io_uring takes no operations at the moment");
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
            state.crowded = if finished.is_empty() { 0 } else { state.crowded + 1 };
            state.crowded > 0
        };
        // Wakers and what orphans held are let go after the borrows: they may come back here.
        let any = leaves_some || !woken.is_empty();
        for Completed { waiter, others, orphan } in woken {
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
    modern.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_cqsize(4 * ENTRIES);
    match modern.build(ENTRIES) {
        // Linux before 6.1 does not know DEFER_TASKRUN.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().setup_cqsize(4 * ENTRIES).build(ENTRIES)
        }
        built => built,
    }
}

/// Lets the kernel finish deferred operations, waiting for `wanted` of them at most as long as given.
fn enter(ring: &IoUring, wanted: u32, limit: Option<Duration>) {
    let limit = limit.map(types::Timespec::from);
    let entered = match &limit {
        None => {
            const GETEVENTS: u32 = 1;
            // SAFETY: no argument is passed, so none can be invalid.
            unsafe { ring.submitter().enter::<libc::sigset_t>(0, wanted, GETEVENTS, None) }
        }
        Some(limit) => {
            ring.submitter().submit_with_args(wanted as usize, &types::SubmitArgs::new().timespec(limit))
        }
    };
    // Interrupted, timed out or short of memory: the next turn tries again.
    drop(entered);
}

/// The task that waits for an operation, those that its end concerns too, and the operation if its future was
/// dropped.
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

    /// Operations the kernel has.
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

    /// Hands over what its file's depth allows; false if the ring is full.
    fn submit_queued(&mut self, ring: &mut squeue::SubmissionQueue<'_>) -> bool {
        for _ in 0..self.queued.len() {
            let Some(place) = self.queued.pop_front() else { break };
            match self.submit(place, ring) {
                Submitted::Yes => {}
                Submitted::FileIsBusy => self.queued.push_back(place), // in their order behind each other
                Submitted::RingIsFull => {
                    self.queued.push_front(place);
                    return false;
                }
            }
        }
        true
    }

    fn submit(&mut self, place: usize, ring: &mut squeue::SubmissionQueue<'_>) -> Submitted {
        let Some(slot) = self.slots.get_mut(place).and_then(Option::as_mut) else { return Submitted::Yes };
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

    /// One operation fewer of this file.
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
            let entry = opcode::AsyncCancel::new(place as u64).build().user_data(CANCELLATION);
            // SAFETY: a cancellation points to nothing. If the ring is full it is left out: it saves time, no
            // more.
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
            return Some(Completed { waiter: None, others, orphan: self.remove(place) });
        }
        slot.stage = Stage::Done(result);
        slot.ticket = None;
        Some(Completed { waiter: slot.waiter.take(), others, orphan: None })
    }
}

/// A completion's result, as a system call would have given it.
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
    /// `None` once it is over.
    place: Option<usize>,
}

impl Future for Performing {
    type Output = (Operation, io::Result<usize>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ring = Rc::clone(&self.ring);
        let mut state = ring.state.borrow_mut();
        let place = self.place.expect("not polled after its end");
        let slot = state.slot(place).expect("a slot stays until its future has seen the end");
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
    /// Memory that the kernel may still write to must not be used for anything else: it is waited for, and
    /// then leaked rather than freed.
    fn drop(&mut self) {
        let start = Instant::now();
        self.flush(); // the cancellations
        while self.state.borrow().under_way() > 0 && start.elapsed() < LAST_WAIT {
            enter(&self.ring.borrow(), 1, Some(LAST_WAIT.saturating_sub(start.elapsed())));
            self.reap();
        }
        let mut state = mem::take(self.state.get_mut());
        let hanging = state.under_way();
        if hanging > 0 {
            tracing::warn!(operations = hanging, "file operations still hang at the end of their thread");
            // Their results are never known: a sync may fail, and other threads must not wait for it.
            let unknown = Err(io::Error::from_raw_os_error(libc::EIO));
            for slot in state.slots.iter_mut().flatten() {
                slot.operation.ended(&unknown).wake();
            }
            mem::forget(state);
        }
    }
}
