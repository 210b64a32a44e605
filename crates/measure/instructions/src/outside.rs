//! The replacement of the kernel: the bytes in transit between the two ends, the clock, and the turns of the
//! ends.
//!
//! This code is not counted: callgrind is configured to stop counting in the methods of [`Outside`], which it
//! identifies by the name of the type. If one method called another, callgrind would resume counting. The
//! ends take turns: one end runs until it would sleep, and only then the other runs. The batches, and
//! therefore the counts, are thus the same in every run.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reactor::{InSlice, OutSlice};

/// One of the two ends of the connection. Each has a separate thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Target,
    Initiator,
}

/// The state that both ends share.
pub(crate) struct Outside {
    state: Mutex<State>,
    passed: Condvar,
}

struct State {
    turn: End,
    now: Instant,
    /// Whether the initiator has connected, but the target has not accepted yet.
    connecting: bool,
    target: Side,
    initiator: Side,
}

/// The state of one end.
#[derive(Default)]
struct Side {
    /// The bytes that have been sent to this end.
    bytes: Vec<u8>,
    /// The number of these bytes that this end has read.
    taken: usize,
    /// Whether something has happened since the last turn of this end.
    news: bool,
    /// The time at which the wait of this end ends at the latest.
    until: Option<Instant>,
}

impl Outside {
    /// Creates the state in which the target has the first turn, and the initiator the next.
    pub(crate) fn new() -> Outside {
        let target = Side::default();
        let initiator = Side {
            news: true,
            ..Side::default()
        };
        let state = State {
            turn: End::Target,
            now: Instant::now(),
            connecting: false,
            target,
            initiator,
        };
        Outside {
            state: Mutex::new(state),
            passed: Condvar::new(),
        }
    }

    /// Waits for the first turn of this end.
    #[inline(never)]
    pub(crate) fn begin(&self, end: End) {
        let waited = self
            .passed
            .wait_while(lock(self), |state| state.turn != end);
        waited
            .unwrap_or_else(PoisonError::into_inner)
            .side(end)
            .news = false;
    }

    /// Returns the current time, which advances only while both ends wait.
    #[inline(never)]
    pub(crate) fn now(&self) -> Instant {
        lock(self).now
    }

    /// Passes the turn to the other end until that waits. Returns when this end has news, or after `limit` if
    /// both ends are idle.
    #[inline(never)]
    pub(crate) fn wait(&self, end: End, limit: Option<Duration>) {
        let mut state = lock(self);
        let until = limit.map(|limit| state.now + limit);
        state.side(end).until = until;
        state.pass(end);
        self.passed.notify_all();
        let waited = self.passed.wait_while(state, |state| state.turn != end);
        waited
            .unwrap_or_else(PoisonError::into_inner)
            .side(end)
            .news = false;
    }

    /// Makes the next wait of this end return soon.
    #[inline(never)]
    pub(crate) fn unpark(&self, end: End) {
        lock(self).side(end).news = true;
    }

    /// Whether there are bytes to read.
    #[inline(never)]
    pub(crate) fn has_bytes(&self, end: End) -> bool {
        let mut state = lock(self);
        let side = state.side(end);
        side.taken < side.bytes.len()
    }

    /// Returns the number of bytes to read.
    #[inline(never)]
    pub(crate) fn bytes(&self, end: End) -> usize {
        let mut state = lock(self);
        let side = state.side(end);
        side.bytes.len() - side.taken
    }

    /// Reads the bytes that fit, and returns their number.
    #[inline(never)]
    pub(crate) fn take(&self, end: End, into: &mut [InSlice<'_>]) -> usize {
        let mut state = lock(self);
        into.iter_mut()
            .map(|slice| state.side(end).fill(slice))
            .sum()
    }

    /// Sends bytes to the other end, and returns their number.
    #[inline(never)]
    pub(crate) fn put(&self, end: End, from: &[OutSlice<'_>]) -> usize {
        let mut state = lock(self);
        let side = state.side(end.other());
        side.news = true;
        from.iter().map(|slice| side.append(slice)).sum()
    }

    /// Connects the initiator.
    #[inline(never)]
    pub(crate) fn connect(&self) {
        let mut state = lock(self);
        state.connecting = true;
        state.target.news = true;
    }

    /// Whether there is a connection to accept.
    #[inline(never)]
    pub(crate) fn is_connecting(&self, end: End) -> bool {
        lock(self).connecting && end == End::Target
    }

    /// Accepts the connection, if there is one, and returns whether there was.
    #[inline(never)]
    pub(crate) fn accept(&self) -> bool {
        std::mem::take(&mut lock(self).connecting)
    }
}

fn lock(outside: &Outside) -> MutexGuard<'_, State> {
    outside.state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn side(&mut self, end: End) -> &mut Side {
        match end {
            End::Target => &mut self.target,
            End::Initiator => &mut self.initiator,
        }
    }

    /// Passes the turn when `end` waits. The next turn belongs to an end with news, preferably the other end.
    /// If neither has news, time advances to the end of the earlier wait.
    fn pass(&mut self, end: End) {
        let ends = [end.other(), end];
        if let Some(next) = ends.into_iter().find(|end| self.side(*end).news) {
            self.turn = next;
            return;
        }
        let waits = ends.map(|end| self.side(end).until.map(|until| (until, end)));
        let first = waits.into_iter().flatten().min_by_key(|(until, _)| *until);
        (self.now, self.turn) = first.expect("one of the two ends has a timer while nothing moves");
    }
}

impl Side {
    /// Transfers bytes into a slice, up to its capacity. The data of blocks is not copied: it consists of
    /// zeros, which the medium already contains, and copying would take most of the run.
    fn fill(&mut self, slice: &mut InSlice<'_>) -> usize {
        let left = &self.bytes[self.taken..];
        let moved = match slice {
            InSlice::Bytes(bytes) => {
                let length = bytes.len().min(left.len());
                bytes[..length].copy_from_slice(&left[..length]);
                length
            }
            InSlice::Shared(bytes) => bytes.len().min(left.len()),
        };
        self.taken += moved;
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        }
        moved
    }

    fn append(&mut self, slice: &OutSlice<'_>) -> usize {
        let before = self.bytes.len();
        match slice {
            OutSlice::Bytes(bytes) => self.bytes.extend_from_slice(bytes),
            OutSlice::Shared(bytes) => self.bytes.resize(before + bytes.len(), 0),
        }
        self.bytes.len() - before
    }
}

impl End {
    fn other(self) -> End {
        match self {
            End::Target => End::Initiator,
            End::Initiator => End::Target,
        }
    }
}
