//! Range locks: reads and writes share a range of blocks, and an atomic operation holds its range
//! exclusively.
//!
//! COMPARE AND WRITE and WRITE ATOMIC must not mix with an overlapping write from another core. The lock of a
//! plain write should cost no more than two uncontended atomic additions. So the address space is
//! divided into zones of [`ZONE_BLOCKS`] blocks, which are mapped to a fixed table of counters. A shared
//! holder adds one to the counter of each of its zones; an exclusive holder marks its counters. A request
//! that cannot take all of its counters releases those that it has taken before it waits, so there are no
//! deadlocks. If there is contention, requests wait in a queue in order of arrival; without contention, the
//! queue is not touched. A [`Hold`] is an entry in that queue that never takes its range, so later requests
//! wait for it.
//!
//! ```text
//!  blocks   |  zone 0  |  zone 1  |  zone 2  | ...
//!  slot        s(0)       s(1)       s(2)           each: 0 free · n shared holders · EXCLUSIVE
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use crate::extent::Extent;
use crate::lock::{Lock, interleave};

/// Size of a zone: 1 MiB of 512-byte blocks, large enough that most commands touch only one or two zones.
const ZONE_BLOCKS: u64 = 2048;
/// Number of counters. If two atomic operations on different zones use the same counter, one operation merely
/// has to wait for the other.
const SLOTS: usize = 256;
const EXCLUSIVE: u32 = 1 << 31;

/// The locks of one device.
pub struct RangeLocks {
    slots: Box<[AtomicU32]>,
    /// Length of the queue. The fast paths read only this value.
    waiting: AtomicUsize,
    queue: Lock<Queue>,
}

#[derive(Default)]
struct Queue {
    next_ticket: u64,
    waiters: Vec<Waiter>,
}

struct Waiter {
    ticket: u64,
    zones: Zones,
    exclusive: bool,
    waker: Option<Waker>,
}

/// The slots of an extent: `count` slots from `first` on, modulo the size of the table.
#[derive(Clone, Copy, Debug)]
struct Zones {
    first: usize,
    count: usize,
}

impl Zones {
    fn from_extent(extent: Extent) -> Zones {
        if extent.is_empty() {
            return Zones { first: 0, count: 0 };
        }
        let first = extent.lba.0 / ZONE_BLOCKS;
        let last = extent.lba.0.saturating_add(extent.blocks.0 - 1) / ZONE_BLOCKS;
        debug_assert!(first <= last);
        let count = (last - first + 1).min(SLOTS as u64) as usize;
        Zones {
            first: (first % SLOTS as u64) as usize,
            count,
        }
    }

    fn slots(self) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |step| (self.first + step) % SLOTS)
    }

    fn overlaps(self, other: Zones) -> bool {
        self.slots()
            .any(|mine| other.slots().any(|theirs| mine == theirs))
    }
}

impl Default for RangeLocks {
    fn default() -> RangeLocks {
        RangeLocks {
            slots: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            waiting: AtomicUsize::new(0),
            queue: Lock::default(),
        }
    }
}

impl RangeLocks {
    /// Shares `extent` without waiting. Returns `None` if a part of it is held exclusively, or an exclusive
    /// waiter conflicts.
    pub fn try_share(self: &Arc<Self>, extent: Extent) -> Option<Shared> {
        let zones = Zones::from_extent(extent);
        if self.waiting.load(Ordering::Acquire) != 0
            && self.queue.lock().blocks(zones, u64::MAX, false)
        {
            return None;
        }
        // Do not use `then_some`, which would create the guard even if the range was not taken; dropping the
        // guard would then release the range.
        self.take_shared_now(zones).then(|| Shared {
            locks: Arc::clone(self),
            zones,
        })
    }

    /// Shares `extent` with other readers and writers. Waits for exclusive holders.
    pub async fn share(self: &Arc<Self>, extent: Extent) -> Shared {
        let zones = Zones::from_extent(extent);
        if self.waiting.load(Ordering::Acquire) != 0 || !self.take_shared_now(zones) {
            Acquire {
                locks: self,
                zones,
                exclusive: false,
                ticket: None,
            }
            .await;
        }
        Shared {
            locks: Arc::clone(self),
            zones,
        }
    }

    /// Waits until no other holder has a part of `extent`, and then holds it exclusively.
    pub async fn exclude(self: &Arc<Self>, extent: Extent) -> Exclusive {
        let zones = Zones::from_extent(extent);
        Acquire {
            locks: self,
            zones,
            exclusive: true,
            ticket: None,
        }
        .await;
        Exclusive {
            locks: Arc::clone(self),
            zones,
        }
    }

    /// Makes later requests for `extent` wait. This does not affect current holders and earlier waiters.
    ///
    /// Intended for a request that was aborted, but which the device may still execute. Outstanding requests
    /// may be executed concurrently with it, but later ones must not be.
    pub fn hold(self: &Arc<Self>, extent: Extent) -> Hold {
        let mut queue = self.queue.lock();
        let ticket = self.enqueue(&mut queue, Zones::from_extent(extent), true);
        Hold {
            locks: Arc::clone(self),
            ticket,
        }
    }

    /// Adds an entry at the end of the queue.
    fn enqueue(&self, queue: &mut Queue, zones: Zones, exclusive: bool) -> u64 {
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        debug_assert!(
            queue.waiters.last().is_none_or(|last| last.ticket < ticket),
            "tickets only grow"
        );
        queue.waiters.push(Waiter {
            ticket,
            zones,
            exclusive,
            waker: None,
        });
        self.waiting.fetch_add(1, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        ticket
    }

    /// Removes an entry from the queue, and wakes later entries.
    fn leave_queue(&self, ticket: u64) {
        let mut queue = self.queue.lock();
        queue.waiters.retain(|waiter| waiter.ticket != ticket);
        let waiting = self.waiting.fetch_sub(1, Ordering::SeqCst);
        debug_assert_eq!(
            waiting,
            queue.waiters.len() + 1,
            "an entry leaves the queue once"
        );
        drop(queue);
        self.wake();
    }

    /// Takes the range without the queue's lock.
    fn take_shared_now(&self, zones: Zones) -> bool {
        interleave();
        let is_taken = self.take_shared(zones);
        if !is_taken {
            self.wake();
        }
        is_taken
    }

    /// Attempts to take a share of all slots. After a failure, the caller must wake waiters, unless it holds
    /// the queue's lock: then no waiter can have failed because of the shares that this call took
    /// temporarily.
    fn take_shared(&self, zones: Zones) -> bool {
        for (taken, slot) in zones.slots().enumerate() {
            if self.slots[slot].fetch_add(1, Ordering::Acquire) >= EXCLUSIVE {
                zones
                    .slots()
                    .take(taken + 1)
                    .for_each(|slot| self.free(slot, 1));
                return false;
            }
        }
        true
    }

    fn take_exclusive(&self, zones: Zones) -> bool {
        interleave();
        for (taken, slot) in zones.slots().enumerate() {
            let free = self.slots[slot].compare_exchange(
                0,
                EXCLUSIVE,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            if free.is_err() {
                for slot in zones.slots().take(taken) {
                    self.slots[slot].fetch_sub(EXCLUSIVE, Ordering::Release);
                }
                return false;
            }
        }
        true
    }

    fn release(&self, zones: Zones) {
        for slot in zones.slots() {
            self.free(slot, 1);
        }
        self.wake();
    }

    /// Removes holders from a slot. The caller must then call [`RangeLocks::wake`].
    fn free(&self, slot: usize, holders: u32) {
        let before = self.slots[slot].fetch_sub(holders, Ordering::SeqCst);
        debug_assert!(before >= holders, "a range is released once");
    }

    fn wake(&self) {
        // This load and the subtraction in `free` are SeqCst, and `Acquire::poll` has a fence between
        // incrementing `waiting` and its second attempt. So either this load sees the waiter, or the waiter's
        // attempt sees the released slots. A fence here would have the same effect, but would cost as much
        // again as the subtraction.
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut queue = self.queue.lock();
        for waiter in &mut queue.waiters {
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Queue {
    /// Returns whether a waiter with a ticket before `before` conflicts with `zones`. Shared waiters do not
    /// conflict with one another.
    fn blocks(&self, zones: Zones, before: u64, exclusive: bool) -> bool {
        self.waiters
            .iter()
            .take_while(|waiter| waiter.ticket < before)
            .any(|waiter| (exclusive || waiter.exclusive) && waiter.zones.overlaps(zones))
    }
}

/// Waits in the queue until the range is taken.
struct Acquire<'a> {
    locks: &'a RangeLocks,
    zones: Zones,
    exclusive: bool,
    ticket: Option<u64>,
}

impl Acquire<'_> {
    fn attempt(&self, queue: &Queue, ticket: u64) -> bool {
        if queue.blocks(self.zones, ticket, self.exclusive) {
            return false;
        }
        if self.exclusive {
            self.locks.take_exclusive(self.zones)
        } else {
            self.locks.take_shared(self.zones)
        }
    }
}

impl Future for Acquire<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let locks = self.locks;
        let mut queue = locks.queue.lock();
        let ticket = match self.ticket {
            Some(ticket) => ticket,
            None => {
                let ticket = locks.enqueue(&mut queue, self.zones, self.exclusive);
                self.ticket = Some(ticket);
                ticket
            }
        };
        if self.attempt(&queue, ticket) {
            drop(queue);
            return Poll::Ready(()); // `drop` removes the queue entry
        }
        if let Some(waiter) = queue
            .waiters
            .iter_mut()
            .find(|waiter| waiter.ticket == ticket)
        {
            waiter.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.locks.leave_queue(ticket);
        }
    }
}

/// A range held together with other sharers. Dropping this releases it.
pub struct Shared {
    locks: Arc<RangeLocks>,
    zones: Zones,
}

impl Shared {
    /// Returns whether there is a waiter for any range of the device, which may be this range.
    pub fn is_contended(&self) -> bool {
        self.locks.waiting.load(Ordering::Relaxed) != 0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.locks.release(self.zones);
    }
}

/// A range held exclusively. Dropping this releases it.
pub struct Exclusive {
    locks: Arc<RangeLocks>,
    zones: Zones,
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        for slot in self.zones.slots() {
            self.locks.free(slot, EXCLUSIVE);
        }
        self.locks.wake();
    }
}

/// A range for which later requests wait. Dropping this releases it.
pub struct Hold {
    locks: Arc<RangeLocks>,
    ticket: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.locks.leave_queue(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Wake;

    struct Flag(AtomicUsize);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> (Option<F::Output>, Arc<Flag>) {
        let flag = Arc::new(Flag(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&flag));
        match future.poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => (Some(output), flag),
            Poll::Pending => (None, flag),
        }
    }

    #[test]
    fn sharers_do_not_wait_for_each_other() {
        let locks = Arc::new(RangeLocks::default());
        let first = locks.try_share(Extent::new(0, 8));
        assert!(first.is_some() && locks.try_share(Extent::new(4, 8)).is_some());
    }

    #[test]
    fn an_exclusive_holder_waits_for_sharers_and_keeps_new_ones_out() {
        let locks = Arc::new(RangeLocks::default());
        let shared = locks.try_share(Extent::new(0, 8)).expect("free");
        let mut exclusive = pin!(locks.exclude(Extent::new(0, 1)));
        let (held, flag) = poll(exclusive.as_mut());
        assert!(held.is_none());
        assert!(
            locks.try_share(Extent::new(0, 8)).is_none(),
            "a waiter is not starved by newcomers"
        );
        drop(shared);
        assert_eq!(flag.0.load(Ordering::SeqCst), 1);
        let (held, _) = poll(exclusive.as_mut());
        assert!(held.is_some());
        assert!(locks.try_share(Extent::new(0, 8)).is_none());
        drop(held);
        assert!(locks.try_share(Extent::new(0, 8)).is_some());
    }

    #[test]
    fn an_abandoned_wait_lets_those_behind_go() {
        let locks = Arc::new(RangeLocks::default());
        let shared = locks.try_share(Extent::new(0, 8)).expect("free");
        {
            let mut given_up = Box::pin(locks.exclude(Extent::new(0, 1)));
            assert!(poll(given_up.as_mut()).0.is_none());
            drop(given_up);
        }
        assert!(locks.try_share(Extent::new(0, 8)).is_some());
        drop(shared);
    }

    #[test]
    fn a_hold_keeps_newcomers_out_and_lets_holders_and_earlier_waiters_be() {
        let locks = Arc::new(RangeLocks::default());
        let alone = {
            let mut exclusive = pin!(locks.exclude(Extent::new(0, 8)));
            poll(exclusive.as_mut()).0.expect("free")
        };
        let mut earlier = pin!(locks.share(Extent::new(4, 8)));
        assert!(poll(earlier.as_mut()).0.is_none());
        let hold = locks.hold(Extent::new(0, 8));
        let mut later = pin!(locks.share(Extent::new(0, 1)));
        assert!(poll(later.as_mut()).0.is_none());
        assert!(
            locks.try_share(Extent::new(ZONE_BLOCKS, 1)).is_some(),
            "another zone is free"
        );
        drop(alone);
        assert!(poll(earlier.as_mut()).0.is_some());
        let (newcomer, flag) = poll(later.as_mut());
        assert!(newcomer.is_none());
        drop(hold);
        assert_eq!(flag.0.load(Ordering::SeqCst), 1);
        assert!(poll(later.as_mut()).0.is_some());
        assert_eq!(locks.waiting.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn every_slot_is_free_after_many_threads_contended() {
        let locks = Arc::new(RangeLocks::default());
        let threads: Vec<_> = (0..4u64)
            .map(|seed| {
                let locks = Arc::clone(&locks);
                std::thread::spawn(move || {
                    for step in 0..2000u64 {
                        let extent =
                            Extent::new((seed * 7 + step * 13) % 4096 * 512, 1 + step % 5000);
                        block_on(async {
                            if step % 3 == 0 {
                                drop(locks.exclude(extent).await);
                            } else {
                                drop(locks.share(extent).await);
                            }
                        });
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("a contender ends");
        }
        assert!(
            locks
                .slots
                .iter()
                .all(|slot| slot.load(Ordering::SeqCst) == 0)
        );
        assert_eq!(locks.waiting.load(Ordering::SeqCst), 0);
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        struct Unpark(std::thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}
