//! Syncs of one file. A sync succeeds only if no failed write-back was reported to another request instead.
//!
//! Linux reports a failed write-back once for each open file description (errseq_t): to the first sync, or
//! write with RWF_DSYNC, that ends after the failure. Others that end later, or at the same time, succeed. If
//! a disk, a FUSE server or an NFS server returns an error for a sync, Linux reports it to that sync only.
//! This has several consequences:
//!
//! - Each failed sync counts as a loss, whatever its error, and even if its request was dropped. For this,
//!   [`Sync`] and [`Stable`] are parts of the operation, which records the kernel's result without being
//!   polled.
//! - Only one sync is outstanding at a time. The next sync covers all requests made since that one started.
//! - Before a sync ends, it waits for concurrent stable writes, because a failure may have been reported to
//!   one of them.
//! - A stable write waits for other stable writes, but not for syncs, which have a separate file description
//!   and may take long. If a disk returns an error to a sync only, the error is counted, and the next flush
//!   reports it.
//! - After a failed sync, the file description of the writes is synced too. The kernel then reports the same
//!   failure to this second sync, and not to the next stable write. Other requests treat the second sync like
//!   a stable write, because it may receive the report of their failure.
//!
//! ```text
//!   requested     1   2 3 4         5
//!   syncs         |── 1 ──|── 2 ──| |── 3 ──|       sync 2 covers requests 2 to 4
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
    state: Mutex<SyncState>,
}

#[derive(Debug)]
struct SyncState {
    losses: u64,
    /// Number of syncs started.
    begun: u64,
    /// The number of the last sync that has ended, and its result.
    ended: u64,
    outcome: Result<(), Errno>,
    /// The number of the outstanding sync.
    under_way: Option<u64>,
    /// Number of stable writes started, and the numbers of the outstanding ones.
    stable_begun: u64,
    stable: BTreeSet<u64>,
    waiters: Vec<Waker>,
}

impl Default for SyncState {
    fn default() -> SyncState {
        SyncState {
            losses: 0,
            begun: 0,
            ended: 0,
            outcome: Ok(()),
            under_way: None,
            stable_begun: 0,
            stable: BTreeSet::new(),
            waiters: Vec::new(),
        }
    }
}

/// The next step for a request to sync.
pub(super) enum SyncStep {
    /// Run this sync.
    Sync(Sync),
    /// Nothing to do: a sync that started after the request has ended with this result.
    Ended(io::Result<()>),
}

/// An outstanding sync. It ends when the kernel has returned its result, or when this is dropped.
#[derive(Debug)]
pub(crate) struct Sync {
    syncs: Arc<Syncs>,
    number: u64,
}

/// An outstanding stable write. It ends when the kernel has returned its result, or when this is dropped.
#[derive(Debug)]
pub(crate) struct Stable {
    syncs: Arc<Syncs>,
    number: u64,
    /// Whether the write has failed at an unknown point, before or during its sync.
    is_unclear: bool,
}

impl Syncs {
    /// Number of failed syncs.
    pub(super) fn losses(&self) -> u64 {
        self.state().losses
    }

    /// Returns the number of the first sync that covers a request made now.
    pub(super) fn next(&self) -> u64 {
        self.state().begun + 1
    }

    /// Waits until this sync or a later one has ended, or until the caller must run a sync.
    pub(super) async fn turn(self: &Arc<Self>, wanted: u64) -> SyncStep {
        self.until(|state| {
            if state.ended >= wanted {
                return Some(SyncStep::Ended(state.outcome.map_err(io::Error::from)));
            }
            if state.under_way.is_some() {
                return None;
            }
            state.begun += 1;
            state.under_way = Some(state.begun);
            Some(SyncStep::Sync(Sync {
                syncs: Arc::clone(self),
                number: state.begun,
            }))
        })
        .await
    }

    /// Starts a stable write.
    pub(super) fn begin_stable(self: &Arc<Self>) -> Stable {
        let mut state = self.state();
        state.stable_begun += 1;
        let number = state.stable_begun;
        state.stable.insert(number);
        Stable {
            syncs: Arc::clone(self),
            number,
            is_unclear: false,
        }
    }

    /// Waits until the stable writes that are outstanding now have ended.
    pub(super) async fn stable_ended(&self) {
        let last = self.state().stable_begun;
        self.until(|state| {
            state
                .stable
                .first()
                .is_none_or(|&first| first > last)
                .then_some(())
        })
        .await;
    }

    async fn until<T>(&self, mut look: impl FnMut(&mut SyncState) -> Option<T>) -> T {
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

    /// Changes the state, and returns the tasks to wake.
    fn change(&self, change: impl FnOnce(&mut SyncState)) -> Woken {
        let mut state = self.state();
        change(&mut state);
        Woken(mem::take(&mut state.waiters))
    }

    fn state(&self) -> MutexGuard<'_, SyncState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sync {
    /// Records the kernel's result. A sync that was interrupted before it started must be repeated.
    pub(super) fn note(&self, result: &io::Result<usize>) -> Woken {
        let outcome = outcome(result);
        if matches!(outcome, Err(Errno::INTR | Errno::CANCELED)) {
            return Woken::default();
        }
        self.syncs.change(|state| {
            state.losses += u64::from(outcome.is_err());
            state.ended = self.number;
            state.outcome = outcome;
            state.under_way = None;
        })
    }
}

impl Drop for Sync {
    /// If the sync was cancelled before it was submitted to the kernel, allows another sync to start.
    fn drop(&mut self) {
        let under_way = self.syncs.state().under_way;
        if under_way == Some(self.number) {
            self.syncs.change(|state| state.under_way = None).wake();
        }
    }
}

impl Stable {
    /// Records the kernel's result.
    pub(super) fn note(&mut self, result: &io::Result<usize>) -> Woken {
        match outcome(result) {
            // The sync never started.
            Err(Errno::INTR | Errno::CANCELED) => Woken::default(),
            // The error may mean that the write was rejected or found no space. But it may also come from the
            // sync, for which a file system or a server can return any error.
            Err(
                Errno::NOSPC
                | Errno::DQUOT
                | Errno::NOMEM
                | Errno::AGAIN
                | Errno::INVAL
                | Errno::OPNOTSUPP
                | Errno::NOSYS
                | Errno::BADF
                | Errno::FBIG,
            ) => {
                self.is_unclear = true;
                Woken::default()
            }
            outcome => self.end(outcome.is_err()),
        }
    }

    fn end(&self, is_loss: bool) -> Woken {
        self.syncs.change(|state| {
            state.stable.remove(&self.number);
            state.losses += u64::from(is_loss);
        })
    }

    /// Whether the caller must retry the write without a sync, to determine whether the write or its sync
    /// failed.
    pub(super) fn is_unclear(&self) -> bool {
        self.is_unclear
    }

    /// Records that the write also failed without a sync, so the original write failed before its sync.
    pub(super) fn failed_before_its_sync(&mut self) {
        self.is_unclear = false;
    }
}

impl Drop for Stable {
    fn drop(&mut self) {
        let is_under_way = self.syncs.state().stable.contains(&self.number);
        if is_under_way {
            self.end(self.is_unclear).wake();
        }
    }
}

/// Tasks to wake once no lock and no borrow is held, because waking may drop a task together with its
/// operations.
#[derive(Default)]
#[must_use = "they wait for ever"]
pub(super) struct Woken(Vec<Waker>);

impl Woken {
    pub(super) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

fn outcome(result: &io::Result<usize>) -> Result<(), Errno> {
    result
        .as_ref()
        .map(drop)
        .map_err(|error| Errno::from_io_error(error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use testkit::poll;

    use super::*;

    fn failed() -> io::Result<usize> {
        Err(io::Error::from(Errno::IO))
    }

    #[test]
    fn one_sync_is_for_all_who_asked_before_it_began() {
        let syncs = Arc::new(Syncs::default());
        let Some(SyncStep::Sync(first)) = poll(pin!(syncs.turn(syncs.next()))) else {
            panic!("it begins")
        };
        let wanted = syncs.next();
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(syncs.turn(wanted))).collect();
        assert!(
            waiting.iter_mut().all(|turn| poll(turn.as_mut()).is_none()),
            "it had begun before they asked"
        );
        first.note(&Ok(0)).wake();
        drop(first);
        let turn = poll(waiting[0].as_mut());
        let Some(SyncStep::Sync(second)) = turn else {
            panic!("the second is for all three")
        };
        assert!(poll(waiting[1].as_mut()).is_none());
        second.note(&failed()).wake();
        drop(second);
        for turn in &mut waiting[1..] {
            assert!(matches!(poll(turn.as_mut()), Some(SyncStep::Ended(Err(_)))));
        }
        assert_eq!((syncs.losses(), syncs.state().begun), (1, 2));
    }

    #[test]
    fn a_sync_that_nobody_waits_for_counts_and_the_next_one_waits_for_it() {
        let syncs = Arc::new(Syncs::default());
        let Some(SyncStep::Sync(orphan)) = poll(pin!(syncs.turn(syncs.next()))) else {
            panic!("it begins")
        };
        let mut next = pin!(syncs.turn(syncs.next()));
        assert!(poll(next.as_mut()).is_none());
        orphan.note(&failed()).wake();
        drop(orphan);
        assert!(matches!(poll(next.as_mut()), Some(SyncStep::Sync(_))));
        assert_eq!(syncs.losses(), 1);
    }

    #[test]
    fn a_sync_that_was_taken_back_is_carried_out_by_another() {
        let syncs = Arc::new(Syncs::default());
        let wanted = syncs.next();
        drop(poll(pin!(syncs.turn(wanted))));
        assert!(matches!(
            poll(pin!(syncs.turn(wanted))),
            Some(SyncStep::Sync(_))
        ));
        assert_eq!(syncs.losses(), 0);
    }

    #[test]
    fn a_sync_waits_for_the_stable_writes_of_its_time_and_not_for_later_ones() {
        let syncs = Arc::new(Syncs::default());
        let mut write = syncs.begin_stable();
        let mut wait = pin!(syncs.stable_ended());
        assert!(poll(wait.as_mut()).is_none());
        let _later = syncs.begin_stable();
        write.note(&failed()).wake();
        drop(write);
        assert_eq!((poll(wait.as_mut()), syncs.losses()), (Some(()), 1));
    }

    #[test]
    fn a_write_without_room_is_no_loss_unless_its_sync_had_none() {
        let syncs = Arc::new(Syncs::default());
        let full = || {
            let mut write = syncs.begin_stable();
            write.note(&Err(io::Error::from(Errno::NOSPC))).wake();
            assert!(write.is_unclear());
            write
        };
        full().failed_before_its_sync();
        assert_eq!(syncs.losses(), 0);
        drop(full());
        assert_eq!(syncs.losses(), 1);
    }

    /// The waiting future must be polled to take the operation from its engine, and may not be polled for a
    /// long time.
    #[test]
    fn what_the_kernel_has_answered_holds_nobody_up_though_it_was_not_taken_from_its_engine() {
        let syncs = Arc::new(Syncs::default());
        let Some(SyncStep::Sync(first)) = poll(pin!(syncs.turn(syncs.next()))) else {
            panic!("it begins")
        };
        let mut next = pin!(syncs.turn(syncs.next()));
        assert!(poll(next.as_mut()).is_none());
        first.note(&Ok(0)).wake();
        let Some(SyncStep::Sync(second)) = poll(next.as_mut()) else {
            panic!("the first has ended")
        };
        drop(first);
        assert!(
            poll(pin!(syncs.turn(syncs.next()))).is_none(),
            "the second has not"
        );
        drop(second);
        let mut write = syncs.begin_stable();
        let mut wait = pin!(syncs.stable_ended());
        assert!(poll(wait.as_mut()).is_none());
        write.note(&Ok(4096)).wake();
        assert!(poll(wait.as_mut()).is_some());
    }
}
