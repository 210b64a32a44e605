//! File operations by io_uring: one ring per reactor thread, submitted once per turn of its world.
//!
//! ```text
//!  queued ──flush──► submitted ──reap──► done ──poll──► gone
//!    └─ dropped: taken back      └─ dropped: orphan, keeps its buffer until reaped, then gone
//! ```
//!
//! The ring tells the world's eventfd of completions. With DEFER_TASKRUN the kernel finishes operations only
//! when this thread enters it, so a request never interrupts another task's work.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
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

/// Operations the kernel has at once; what is beyond waits here. Four LUNs with a queue of 64 each.
const DEPTH: usize = 256;

/// The completion of a cancellation: the operation's own completion tells all there is to know.
const CANCELLATION: u64 = u64::MAX;

/// How long the end of a thread waits for operations it has under way; then their buffers are given up for lost.
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
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    slots: Vec<Option<Slot>>,
    vacant: Vec<usize>,
    queued: VecDeque<usize>,
    to_cancel: Vec<usize>,
    submitted: usize,
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
    /// Submitted, and nobody waits for it.
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
        Performing { ring: Rc::clone(self), place: Some(place) }
    }

    /// Gives the kernel what is queued and takes what it has finished; whether that woke anyone.
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

    /// Whether something could not be given to the kernel yet and has to be tried again soon.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.ring.borrow_mut().submission().is_empty()
    }

    fn flush(&self) {
        let mut ring = self.ring.borrow_mut();
        let mut state = self.state.borrow_mut();
        while state.submitted < DEPTH
            && let Some(place) = state.queued.pop_front()
        {
            if !state.submit(place, &mut ring.submission()) {
                state.queued.push_front(place);
                break;
            }
        }
        state.submit_cancellations(&mut ring.submission());
        if !ring.submission().is_empty() {
            // Out of memory or out of room for completions: what is left in the ring goes with the next turn.
            if let Err(error) = ring.submit() {
                tracing::debug!(%error, "io_uring takes no operations at the moment");
            }
        }
    }

    fn reap(&self) -> bool {
        let mut woken = Vec::new();
        {
            let mut ring = self.ring.borrow_mut();
            if ring.submission().taskrun() {
                enter(&ring, 0, None);
            }
            let mut state = self.state.borrow_mut();
            for completion in ring.completion() {
                woken.extend(state.complete(completion.user_data(), completion.result()));
            }
        }
        // Wakers and what orphans held are let go after the borrows: they may come back here.
        let any = !woken.is_empty();
        for (waiter, orphan) in woken {
            drop(orphan);
            if let Some(waiter) = waiter {
                waiter.wake();
            }
        }
        any
    }
}

fn build() -> io::Result<IoUring> {
    let mut modern = IoUring::builder();
    modern.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_cqsize(2 * DEPTH as u32);
    match modern.build(DEPTH as u32) {
        // Linux before 6.1 does not know DEFER_TASKRUN.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().setup_cqsize(2 * DEPTH as u32).build(DEPTH as u32)
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

/// Whom a completion wakes, and what it lets go.
type Completed = (Option<Waker>, Option<Slot>);

impl State {
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

    fn slot(&mut self, place: usize) -> Option<&mut Slot> {
        self.slots.get_mut(place)?.as_mut()
    }

    fn remove(&mut self, place: usize) -> Option<Slot> {
        let slot = self.slots.get_mut(place)?.take();
        self.vacant.extend(slot.is_some().then_some(place));
        slot
    }

    /// False if the ring is full.
    fn submit(&mut self, place: usize, queue: &mut squeue::SubmissionQueue<'_>) -> bool {
        let Some(slot) = self.slot(place) else { return true };
        let entry = slot.operation.entry(&slot.file).user_data(place as u64);
        // SAFETY: the entry points into the slot's buffer and names the slot's file. The slot keeps both until
        // the completion is reaped, also when its future is dropped; when the ring ends earlier they are leaked
        // (`Ring::drop`).
        if unsafe { queue.push(&entry) }.is_err() {
            return false;
        }
        slot.stage = Stage::Submitted;
        self.submitted += 1;
        true
    }

    fn submit_cancellations(&mut self, queue: &mut squeue::SubmissionQueue<'_>) {
        for place in self.to_cancel.drain(..) {
            let entry = opcode::AsyncCancel::new(place as u64).build().user_data(CANCELLATION);
            // SAFETY: a cancellation points to nothing. If the ring is full it is left out: it saves time, no more.
            let _ = unsafe { queue.push(&entry) };
        }
    }

    fn complete(&mut self, user_data: u64, result: i32) -> Option<Completed> {
        if user_data == CANCELLATION {
            return None;
        }
        let place = user_data as usize;
        self.submitted -= 1;
        let slot = self.slot(place)?;
        if slot.stage == Stage::Orphan {
            return Some((None, self.remove(place)));
        }
        slot.stage = Stage::Done(result);
        slot.ticket = None;
        Some((slot.waiter.take(), None))
    }
}

/// An operation on its way.
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
        let mut operation = state.remove(place).expect("seen above").operation;
        let moved = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        operation.advance(*moved.as_ref().unwrap_or(&0));
        Poll::Ready((operation, moved))
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
    /// Memory that the kernel may still write to must not be used for anything else: it is waited for, and then
    /// leaked rather than freed.
    fn drop(&mut self) {
        let start = Instant::now();
        self.flush(); // the cancellations
        while self.state.borrow().submitted > 0 && start.elapsed() < LAST_WAIT {
            enter(&self.ring.borrow(), 1, Some(LAST_WAIT.saturating_sub(start.elapsed())));
            self.reap();
        }
        let state = mem::take(self.state.get_mut());
        if state.submitted > 0 {
            tracing::warn!(
                operations = state.submitted,
                "file operations still hang at the end of their thread"
            );
            mem::forget(state);
        }
    }
}
