//! Syncs of one file, none of which ends well by accident.
//!
//! Linux tells of a write-back that failed once for each open file description (errseq_t): whatever sync comes first is
//! told, also a write with RWF_DSYNC, and those that come later, or beside it, end well. What a disk, a FUSE server or an NFS
//! server answers to a sync is told to that sync alone. Hence
//!
//! - each failure counts as a loss, whoever asked for the sync, and even if nobody waits for it any more: the operation
//!   itself notes it when it ends ([`Sync`] and [`Stable`] go with it);
//! - one sync is under way at a time, and the next one is for all who asked after it had begun;
//! - a sync, before it ends, waits for the stable writes beside it: one of them may have been told in its place;
//! - so does a stable write, for other stable writes alone: syncs have a file description of their own, and what a large
//!   sync takes is not waited for.
//!
//! ```text
//!   asked for     1   2 3 4         5
//!   syncs         |── 1 ──|── 2 ──| |── 3 ──|       2 is for three
//! ```

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use rustix::io::Errno;

/// The syncs and stable writes of one file.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    losses: u64,
    /// How many syncs have begun.
    begun: u64,
    /// Of those, the last that has ended, and how.
    ended: u64,
    outcome: Result<(), Errno>,
    under_way: bool,
    /// How many stable writes have begun, and which of them are under way.
    stable_begun: u64,
    stable: BTreeSet<u64>,
    waiters: Vec<Waker>,
}

impl Default for State {
    fn default() -> State {
        State {
            losses: 0,
            begun: 0,
            ended: 0,
            outcome: Ok(()),
            under_way: false,
            stable_begun: 0,
            stable: BTreeSet::new(),
            waiters: Vec::new(),
        }
    }
}

/// What is to be done for somebody who asks for a sync.
pub(super) enum Turn {
    /// To carry one out.
    Sync(Sync),
    /// Nothing more: one that began after he asked has ended so.
    Ended(io::Result<()>),
}

/// A sync; it ends with the operation that carries it out, and is no longer under way when it is dropped.
#[derive(Debug)]
pub(crate) struct Sync {
    syncs: Arc<Syncs>,
    number: u64,
}

/// A stable write, from its beginning until its operation is dropped.
#[derive(Debug)]
pub(crate) struct Stable {
    syncs: Arc<Syncs>,
    number: u64,
    /// It failed, and whether before its sync or in it is not known.
    is_unclear: bool,
}

impl Syncs {
    /// How many syncs have failed so far.
    pub(super) fn losses(&self) -> u64 {
        self.state().losses
    }

    /// The number of the first sync that is for somebody who asks now.
    pub(super) fn next(&self) -> u64 {
        self.state().begun + 1
    }

    /// Waits until a sync of this number or a later one has ended, or is to be carried out by the caller.
    pub(super) async fn turn(self: &Arc<Self>, wanted: u64) -> Turn {
        self.until(|state| {
            if state.ended >= wanted {
                return Some(Turn::Ended(state.outcome.map_err(io::Error::from)));
            }
            if state.under_way {
                return None;
            }
            state.under_way = true;
            state.begun += 1;
            Some(Turn::Sync(Sync { syncs: Arc::clone(self), number: state.begun }))
        })
        .await
    }

    /// A stable write begins.
    pub(super) fn begin_stable(self: &Arc<Self>) -> Stable {
        let mut state = self.state();
        state.stable_begun += 1;
        let number = state.stable_begun;
        state.stable.insert(number);
        Stable { syncs: Arc::clone(self), number, is_unclear: false }
    }

    /// Waits for the stable writes that are under way now.
    pub(super) async fn stable_ended(&self) {
        let last = self.state().stable_begun;
        self.until(|state| state.stable.first().is_none_or(|&first| first > last).then_some(())).await;
    }

    async fn until<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        poll_fn(|cx| {
            let mut state = self.state();
            if let Some(found) = look(&mut state) {
                return Poll::Ready(found);
            }
            state.waiters.retain(|waiter| !waiter.will_wake(cx.waker()));
            state.waiters.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let waiters = mem::take(&mut state.waiters);
        drop(state);
        waiters.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sync {
    /// The kernel has answered so. Interrupted before it had begun, it is to be asked again.
    pub(super) fn note(&self, result: &io::Result<usize>) {
        let outcome = match result {
            Ok(_) => Ok(()),
            Err(error) => Err(Errno::from_io_error(error).unwrap_or(Errno::IO)),
        };
        if matches!(outcome, Err(Errno::INTR | Errno::CANCELED)) {
            return;
        }
        let mut state = self.syncs.state();
        state.losses += u64::from(outcome.is_err_and(|errno| Cause::of(errno) != Cause::Refused));
        state.ended = self.number;
        state.outcome = outcome;
    }
}

impl Drop for Sync {
    /// If it has not ended, because it was taken back before the kernel had it, another one begins in its place.
    fn drop(&mut self) {
        self.syncs.change(|state| state.under_way = false);
    }
}

impl Stable {
    /// The kernel has answered so.
    pub(super) fn note(&mut self, result: &io::Result<usize>) {
        let Err(error) = result else { return };
        match Errno::from_io_error(error).map_or(Cause::Sync, Cause::of) {
            Cause::Refused => {}
            Cause::Unclear => self.is_unclear = true,
            Cause::Sync => self.syncs.state().losses += 1,
        }
    }

    /// Whether the same write without a sync must tell where it failed.
    pub(super) fn is_unclear(&self) -> bool {
        self.is_unclear
    }

    /// The same write without a sync has failed as well: there never was a sync.
    pub(super) fn failed_before_its_sync(&mut self) {
        self.is_unclear = false;
    }
}

impl Drop for Stable {
    fn drop(&mut self) {
        let (number, lost) = (self.number, u64::from(self.is_unclear));
        self.syncs.change(|state| {
            state.stable.remove(&number);
            state.losses += lost;
        });
    }
}

/// What an error says of a write with a sync behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Nothing was begun.
    Refused,
    /// The write has failed, for want of room or memory, or the sync has.
    Unclear,
    /// The sync may have failed.
    Sync,
}

impl Cause {
    fn of(errno: Errno) -> Cause {
        match errno {
            Errno::INTR
            | Errno::CANCELED
            | Errno::AGAIN
            | Errno::INVAL
            | Errno::OPNOTSUPP
            | Errno::NOSYS
            | Errno::BADF
            | Errno::FBIG => Cause::Refused,
            Errno::NOSPC | Errno::DQUOT | Errno::NOMEM => Cause::Unclear,
            _ => Cause::Sync,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::Context;

    use super::*;

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn failed() -> io::Result<usize> {
        Err(io::Error::from(Errno::IO))
    }

    #[test]
    fn one_sync_is_for_all_who_asked_before_it_began() {
        let syncs = Arc::new(Syncs::default());
        let Some(Turn::Sync(first)) = poll(pin!(syncs.turn(syncs.next()))) else { panic!("it begins") };
        let wanted = syncs.next();
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(syncs.turn(wanted))).collect();
        assert!(
            waiting.iter_mut().all(|turn| poll(turn.as_mut()).is_none()),
            "it had begun before they asked"
        );
        first.note(&Ok(0));
        drop(first);
        let turn = poll(waiting[0].as_mut());
        let Some(Turn::Sync(second)) = turn else { panic!("the second is for all three") };
        assert!(poll(waiting[1].as_mut()).is_none());
        second.note(&failed());
        drop(second);
        for turn in &mut waiting[1..] {
            assert!(matches!(poll(turn.as_mut()), Some(Turn::Ended(Err(_)))));
        }
        assert_eq!((syncs.losses(), syncs.state().begun), (1, 2));
    }

    #[test]
    fn a_sync_that_nobody_waits_for_counts_and_the_next_one_waits_for_it() {
        let syncs = Arc::new(Syncs::default());
        let Some(Turn::Sync(orphan)) = poll(pin!(syncs.turn(syncs.next()))) else { panic!("it begins") };
        let mut next = pin!(syncs.turn(syncs.next()));
        assert!(poll(next.as_mut()).is_none());
        orphan.note(&failed());
        drop(orphan);
        assert!(matches!(poll(next.as_mut()), Some(Turn::Sync(_))));
        assert_eq!(syncs.losses(), 1);
    }

    #[test]
    fn a_sync_that_was_taken_back_is_carried_out_by_another() {
        let syncs = Arc::new(Syncs::default());
        let wanted = syncs.next();
        drop(poll(pin!(syncs.turn(wanted))));
        assert!(matches!(poll(pin!(syncs.turn(wanted))), Some(Turn::Sync(_))));
        assert_eq!(syncs.losses(), 0);
    }

    #[test]
    fn a_sync_waits_for_the_stable_writes_of_its_time_and_not_for_later_ones() {
        let syncs = Arc::new(Syncs::default());
        let mut write = syncs.begin_stable();
        let mut wait = pin!(syncs.stable_ended());
        assert!(poll(wait.as_mut()).is_none());
        let _later = syncs.begin_stable();
        write.note(&failed());
        drop(write);
        assert_eq!((poll(wait.as_mut()), syncs.losses()), (Some(()), 1));
    }

    #[test]
    fn a_write_without_room_is_no_loss_unless_its_sync_had_none() {
        let syncs = Arc::new(Syncs::default());
        let full = || {
            let mut write = syncs.begin_stable();
            write.note(&Err(io::Error::from(Errno::NOSPC)));
            assert!(write.is_unclear());
            write
        };
        full().failed_before_its_sync();
        assert_eq!(syncs.losses(), 0);
        drop(full());
        assert_eq!(syncs.losses(), 1);
    }
}
