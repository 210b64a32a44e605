//! A device that misbehaves on demand: it hangs, is slow, fails, or does a part of a request and then fails. How
//! the rest of the program bears that is most of what a storage system is, and this is what its tests use.
//!
//! ```text
//!   request ──► first rule that matches its kind and extent? ── none ──► inner device
//!                 Hang   wait until the rule is lifted, then look again
//!                 Slow   wait, then inner device
//!                 Fail   error, inner device untouched
//!                 Short  inner device for the first blocks, then error
//! ```
//!
//! A request that is dropped while it hangs or is slow never reaches the inner device. While everything hangs, the
//! device lets go of nothing: [`BlockDevice::quiesced`] waits too, as with a disk that the kernel waits for.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::forward::forward;
use crate::{
    BlockDevice, Blocks, Buffer, DeviceError, Durability, Extent, Lock, Pending, Run, Sleeper, Slice, Space,
};

/// What is to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misbehaviour {
    /// Nothing happens until the rule is lifted; then the request goes on.
    Hang,
    /// The request begins so much later.
    Slow(Duration),
    /// The request fails without touching the inner device.
    Fail(DeviceError),
    /// So many blocks from the start are done, then the request fails. A flush fails at once.
    Short(Blocks, DeviceError),
}

/// The kinds of request a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Every request.
    All,
    /// Reads, and questions about allocation.
    Reads,
    /// Writes, zeroes and unmaps.
    Writes,
    /// Flushes.
    Flushes,
}

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// For these requests.
    pub requests: Requests,
    /// Where they touch this; flushes touch everything. `None` is everywhere.
    pub within: Option<Extent>,
    /// What.
    pub misbehaviour: Misbehaviour,
}

impl Rule {
    /// The same everywhere for all requests.
    pub fn all(misbehaviour: Misbehaviour) -> Rule {
        Rule { requests: Requests::All, within: None, misbehaviour }
    }

    fn matches(&self, request: &Request) -> bool {
        let kind = self.requests == Requests::All || self.requests == request.kind;
        let place = match (self.within, request.extent) {
            (Some(within), Some(extent)) => within.overlaps(extent),
            (None, _) | (_, None) => true,
        };
        kind && place
    }
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests handed to the inner device, in part at least.
    pub passed: u64,
    /// Requests that hang now.
    pub hanging: u64,
    /// Requests that were dropped while they hung or were slow.
    pub dropped: u64,
    /// Requests that were made to fail.
    pub failed: u64,
}

/// Makes a [`Fault`] misbehave, from any thread.
#[derive(Clone, Default)]
pub struct FaultControl {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    rules: Lock<Rules>,
    passed: AtomicU64,
    hanging: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

#[derive(Default)]
struct Rules {
    list: Vec<Rule>,
    hanging: Vec<Waker>,
}

impl FaultControl {
    /// Puts these rules in place of those before. The first that matches a request counts. Requests that hang
    /// look again.
    pub fn set(&self, rules: impl IntoIterator<Item = Rule>) {
        let mut state = self.shared.rules.lock();
        state.list = rules.into_iter().collect();
        let hanging = std::mem::take(&mut state.hanging);
        drop(state);
        hanging.into_iter().for_each(Waker::wake);
    }

    /// Everything hangs from now on.
    pub fn hang(&self) {
        self.set([Rule::all(Misbehaviour::Hang)]);
    }

    /// Everything fails from now on.
    pub fn fail(&self, error: DeviceError) {
        self.set([Rule::all(Misbehaviour::Fail(error))]);
    }

    /// Flushes fail from now on as if acknowledged writes had been lost.
    pub fn lose(&self) {
        let lost = Rule::all(Misbehaviour::Fail(DeviceError::WritesLost));
        self.set([Rule { requests: Requests::Flushes, ..lost }]);
    }

    /// Everything is slow from now on.
    pub fn slow(&self, by: Duration) {
        self.set([Rule::all(Misbehaviour::Slow(by))]);
    }

    /// Everything works again, and what hung goes on.
    pub fn pass(&self) {
        self.set([]);
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        let shared = &self.shared;
        Counts {
            passed: read(&shared.passed),
            hanging: read(&shared.hanging),
            dropped: read(&shared.dropped),
            failed: read(&shared.failed),
        }
    }
}

impl Shared {
    fn verdict(&self, request: &Request) -> Option<Misbehaviour> {
        self.rules.lock().list.iter().find(|rule| rule.matches(request)).map(|rule| rule.misbehaviour)
    }

    /// Waits while a rule makes the request hang; what another one then does to it.
    async fn released(&self, request: &Request) -> Option<Misbehaviour> {
        poll_fn(|cx| {
            let mut rules = self.rules.lock();
            let rule = rules.list.iter().find(|rule| rule.matches(request)).map(|rule| rule.misbehaviour);
            if rule == Some(Misbehaviour::Hang) {
                rules.hanging.retain(|waker| !waker.will_wake(cx.waker()));
                rules.hanging.push(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(rule)
        })
        .await
    }
}

/// Counts a hanging request for as long as it lives.
struct Hanging<'a>(&'a AtomicU64);

impl Hanging<'_> {
    fn count(counter: &AtomicU64) -> Hanging<'_> {
        counter.fetch_add(1, Ordering::SeqCst);
        Hanging(counter)
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts a request that is dropped before its verdict is carried out.
struct Dropped<'a> {
    counter: &'a AtomicU64,
    waiting: bool,
}

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.counter.fetch_add(u64::from(self.waiting), Ordering::SeqCst);
    }
}

struct Request {
    kind: Requests,
    /// `None` for what touches everything.
    extent: Option<Extent>,
}

/// Any device, with faults. Offers no memory, which no rule could guard.
pub struct Fault<D> {
    inner: D,
    sleeper: Arc<dyn Sleeper>,
    control: FaultControl,
    /// Flushes that were made to fail with a loss.
    losses: AtomicU64,
}

impl<D: BlockDevice> Fault<D> {
    /// `inner`, which works until `control` says otherwise.
    pub fn new(inner: D, sleeper: Arc<dyn Sleeper>, control: FaultControl) -> Fault<D> {
        Fault { inner, sleeper, control, losses: AtomicU64::new(0) }
    }

    /// Waits as long as the rules say; what they then do to the request: `None`, `Fail` or `Short`.
    async fn judge(&self, kind: Requests, extent: Option<Extent>) -> Option<Misbehaviour> {
        let shared = &self.control.shared;
        let request = Request { kind, extent };
        let mut dropped = Dropped { counter: &shared.dropped, waiting: true };
        let mut misbehaviour = shared.verdict(&request);
        if misbehaviour == Some(Misbehaviour::Hang) {
            let _hanging = Hanging::count(&shared.hanging);
            misbehaviour = shared.released(&request).await;
        }
        if let Some(Misbehaviour::Slow(by)) = misbehaviour {
            self.sleeper.sleep(by).await;
            misbehaviour = None;
        }
        dropped.waiting = false;
        misbehaviour
    }

    /// Judges a request of which a part is worth nothing: it passes or fails.
    async fn allow(&self, kind: Requests, extent: Option<Extent>) -> Result<(), DeviceError> {
        match self.judge(kind, extent).await {
            Some(Misbehaviour::Fail(error) | Misbehaviour::Short(_, error)) => Err(self.failed(error)),
            None | Some(Misbehaviour::Hang | Misbehaviour::Slow(_)) => {
                self.passed();
                Ok(())
            }
        }
    }

    /// Judges a change and carries out what is left of it.
    async fn change<'a>(
        &'a self,
        extent: Extent,
        change: impl FnOnce(&'a D, Extent) -> Pending<'a, ()>,
    ) -> Result<(), DeviceError> {
        match self.judge(Requests::Writes, Some(extent)).await {
            Some(Misbehaviour::Fail(error)) => Err(self.failed(error)),
            Some(Misbehaviour::Short(blocks, error)) => {
                self.passed();
                change(&self.inner, beginning(extent, blocks)).await?;
                Err(self.failed(error))
            }
            None | Some(Misbehaviour::Hang | Misbehaviour::Slow(_)) => {
                self.passed();
                change(&self.inner, extent).await
            }
        }
    }

    fn passed(&self) {
        self.control.shared.passed.fetch_add(1, Ordering::SeqCst);
    }

    fn failed(&self, error: DeviceError) -> DeviceError {
        self.control.shared.failed.fetch_add(1, Ordering::SeqCst);
        error
    }
}

fn beginning(extent: Extent, blocks: Blocks) -> Extent {
    Extent { lba: extent.lba, blocks: blocks.min(extent.blocks) }
}

impl<D: BlockDevice> BlockDevice for Fault<D> {
    forward!(self => self.inner; geometry, profile, refresh, grow, take_os_error);

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            self.allow(Requests::Reads, Some(extent)).await?;
            self.inner.read(extent, buffer).await
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(self.change(extent, move |inner, extent| {
            let length = usize::try_from(inner.geometry().length(extent)).unwrap_or(usize::MAX);
            let data = data.part(0..length.min(data.len())).unwrap_or(data);
            inner.write(extent, data, durability)
        }))
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.allow(Requests::Flushes, None).await.inspect_err(|error| {
                self.losses.fetch_add(u64::from(error.is_loss()), Ordering::SeqCst);
            })?;
            self.inner.flush().await
        })
    }

    fn losses(&self) -> u64 {
        self.inner.losses() + self.losses.load(Ordering::SeqCst)
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(self.change(extent, |inner, extent| inner.unmap(extent)))
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(self.change(extent, move |inner, extent| inner.write_zeroes(extent, may_unmap)))
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            self.allow(Requests::Reads, Some(extent)).await?;
            self.inner.allocation(extent, runs_max).await
        })
    }

    fn space(&self) -> Pending<'_, Space> {
        Box::pin(async {
            self.allow(Requests::Reads, None).await?;
            self.inner.space().await
        })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.control.shared.released(&Request { kind: Requests::All, extent: None }).await;
            self.inner.quiesced().await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ManualClock, Memory, poll, ready};

    struct Scene {
        device: Fault<Memory>,
        control: FaultControl,
        clock: Arc<ManualClock>,
    }

    fn scene() -> Scene {
        let (clock, control) = (Arc::new(ManualClock::default()), FaultControl::default());
        let device = Fault::new(Memory::new(64), Arc::clone(&clock) as _, control.clone());
        Scene { device, control, clock }
    }

    fn ones(blocks: usize) -> Slice {
        Buffer::from(&vec![1; blocks * 512][..]).share()
    }

    #[test]
    fn what_hangs_goes_on_when_released() {
        let Scene { device, control, .. } = scene();
        control.hang();
        let mut write = device.write(Extent::new(0, 1), ones(1), Durability::Cached);
        assert!(poll(write.as_mut()).is_none());
        assert_eq!(control.counts().hanging, 1);
        control.pass();
        assert_eq!(poll(write.as_mut()), Some(Ok(())));
        assert_eq!(control.counts(), Counts { passed: 1, ..Counts::default() });
        assert_eq!(device.inner.byte(0), 1);
    }

    #[test]
    fn what_is_dropped_while_it_hangs_never_reaches_the_device() {
        let Scene { device, control, .. } = scene();
        control.hang();
        let mut write = device.write(Extent::new(0, 1), ones(1), Durability::Cached);
        assert!(poll(write.as_mut()).is_none());
        drop(write);
        control.pass();
        assert_eq!(ready(device.quiesced()), Ok(()));
        assert_eq!(device.inner.requests(), 0);
        assert_eq!(control.counts(), Counts { dropped: 1, ..Counts::default() });
    }

    #[test]
    fn a_device_that_hangs_lets_go_of_nothing() {
        let Scene { device, control, .. } = scene();
        control.hang();
        let mut quiesced = device.quiesced();
        assert!(poll(quiesced.as_mut()).is_none());
        control.pass();
        assert_eq!(poll(quiesced.as_mut()), Some(Ok(())));
        assert_eq!(control.counts(), Counts::default());
        control.set([Rule { requests: Requests::Reads, within: None, misbehaviour: Misbehaviour::Hang }]);
        assert_eq!(ready(device.quiesced()), Ok(()), "only reads hang");
    }

    #[test]
    fn releasing_wakes_from_another_thread() {
        let Scene { device, control, .. } = scene();
        control.hang();
        let mut flush = device.flush();
        let woken = Arc::new(Flag::default());
        let waker = Waker::from(Arc::clone(&woken));
        assert!(flush.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        std::thread::spawn(move || control.pass()).join().expect("released");
        assert!(woken.0.load(Ordering::SeqCst));
        assert_eq!(poll(flush.as_mut()), Some(Ok(())));
    }

    #[derive(Default)]
    struct Flag(std::sync::atomic::AtomicBool);

    impl std::task::Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_hang_may_end_in_a_failure() {
        let Scene { device, control, .. } = scene();
        control.hang();
        let mut flush = device.flush();
        assert!(poll(flush.as_mut()).is_none());
        control.fail(DeviceError::NotReady);
        assert_eq!(poll(flush.as_mut()), Some(Err(DeviceError::NotReady)));
        assert_eq!(control.counts().failed, 1);
    }

    #[test]
    fn a_flush_that_is_made_to_lose_writes_counts_as_a_loss_and_others_do_not() {
        let Scene { device, control, .. } = scene();
        for (error, losses) in [(DeviceError::NotReady, 0), (DeviceError::NoSpace, 1)] {
            control.fail(error);
            let write = device.write(Extent::new(0, 1), ones(1), Durability::Stable);
            assert_eq!((ready(write), ready(device.flush())), (Err(error), Err(error)));
            assert_eq!(device.losses(), losses);
        }
        control.pass();
        assert_eq!((ready(device.flush()), device.losses()), (Ok(()), 1));
    }

    #[test]
    fn slow_requests_wait_for_the_clock() {
        let Scene { device, control, clock } = scene();
        control.slow(Duration::from_secs(3));
        let mut flush = device.flush();
        assert!(poll(flush.as_mut()).is_none());
        clock.pass(Duration::from_secs(3));
        assert_eq!(poll(flush.as_mut()), Some(Ok(())));
    }

    #[test]
    fn rules_are_for_kinds_and_places() {
        let Scene { device, control, .. } = scene();
        let misbehaviour = Misbehaviour::Fail(DeviceError::Unreadable(crate::Lba(9)));
        control.set([Rule { requests: Requests::Reads, within: Some(Extent::new(8, 8)), misbehaviour }]);
        let read = |lba| ready(device.read(Extent::new(lba, 4), Buffer::zeroed(2048))).err();
        assert_eq!(read(0), None);
        assert_eq!(read(6), Some(DeviceError::Unreadable(crate::Lba(9))));
        assert_eq!(ready(device.write(Extent::new(8, 1), ones(1), Durability::Cached)), Ok(()));
        assert_eq!(ready(device.flush()), Ok(()));
    }

    #[test]
    fn a_short_write_leaves_its_beginning_on_the_medium() {
        let Scene { device, control, .. } = scene();
        control.set([Rule::all(Misbehaviour::Short(Blocks(1), DeviceError::NoSpace))]);
        let write = device.write(Extent::new(0, 3), ones(3), Durability::Cached);
        assert_eq!(ready(write), Err(DeviceError::NoSpace));
        assert_eq!((device.inner.byte(511), device.inner.byte(512)), (1, 0));
    }
}
