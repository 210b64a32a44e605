//! A device with injected faults: requests hang, are delayed, fail, or are executed partially. Used by tests
//! of error handling.
//!
//! ```text
//!   request ──► first rule that matches its kind and extent? ── none ──► inner device
//!                 Hang   wait until the rule is removed, then match again
//!                 Slow   wait, then pass to the inner device
//!                 Fail   return the error without accessing the inner device
//!                 Short  pass the first blocks to the inner device, then return the error
//! ```
//!
//! A request that is dropped while it hangs or is delayed never reaches the inner device. While all requests
//! hang, [`BlockDevice::quiesced`] also waits, as with a disk for which the kernel waits.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::buffer::{Buffer, Slice};
use crate::device::{BlockDevice, DeviceError, Durability, Pending, Run, Space};
use crate::extent::{Blocks, Extent};
use crate::forward;
use crate::lock::Lock;
use crate::losses::{LossCounter, Losses};
use crate::tasks::Sleeper;

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// The request waits until the rule is removed, then continues.
    Hang,
    /// The request starts after this delay.
    Slow(Duration),
    /// The request fails without touching the inner device.
    Fail(DeviceError),
    /// The first blocks are processed, then the request fails. A flush fails immediately.
    Short(Blocks, DeviceError),
}

/// The kinds of requests to which a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Every request.
    All,
    /// Reads, and queries of allocation and space.
    Reads,
    /// Writes, zeroes and unmaps.
    Writes,
    /// Flushes.
    Flushes,
}

/// A fault, and the requests to which it applies.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The kind of requests.
    pub requests: Requests,
    /// The rule applies to requests that overlap this extent. Requests without an extent, such as flushes,
    /// always match. `None` matches all requests.
    pub within: Option<Extent>,
    /// The effect.
    pub action: FaultAction,
}

impl Rule {
    /// Returns a rule for all requests.
    pub fn all(action: FaultAction) -> Rule {
        Rule {
            requests: Requests::All,
            within: None,
            action,
        }
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

/// Counters of a [`Fault`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of requests that were passed to the inner device, at least in part.
    pub passed: u64,
    /// Number of requests that currently hang.
    pub hanging: u64,
    /// Number of requests that were dropped while they hung or were delayed.
    pub dropped: u64,
    /// Number of requests that failed because of a rule.
    pub failed: u64,
}

/// Sets the faults of a [`Fault`], from any thread.
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
    /// Replaces the rules. The first rule that matches a request applies. Hanging requests are matched again.
    pub fn set(&self, rules: impl IntoIterator<Item = Rule>) {
        let mut state = self.shared.rules.lock();
        state.list = rules.into_iter().collect();
        let hanging = std::mem::take(&mut state.hanging);
        drop(state);
        hanging.into_iter().for_each(Waker::wake);
    }

    /// Makes all requests hang from now on.
    pub fn hang(&self) {
        self.set([Rule::all(FaultAction::Hang)]);
    }

    /// Makes all requests fail from now on.
    pub fn fail(&self, error: DeviceError) {
        self.set([Rule::all(FaultAction::Fail(error))]);
    }

    /// Makes flushes fail from now on as if acknowledged writes had been lost.
    pub fn lose(&self) {
        let lost = Rule::all(FaultAction::Fail(DeviceError::WritesLost));
        self.set([Rule {
            requests: Requests::Flushes,
            ..lost
        }]);
    }

    /// Delays all requests from now on.
    pub fn slow(&self, by: Duration) {
        self.set([Rule::all(FaultAction::Slow(by))]);
    }

    /// Removes all faults. Hanging requests continue.
    pub fn pass(&self) {
        self.set([]);
    }

    /// Returns the counters.
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
    fn matching_action(&self, request: &Request) -> Option<FaultAction> {
        self.rules
            .lock()
            .list
            .iter()
            .find(|rule| rule.matches(request))
            .map(|rule| rule.action)
    }

    /// Waits while the request hangs. Returns the effect of the other rule that then applies, if any.
    async fn released(&self, request: &Request) -> Option<FaultAction> {
        poll_fn(|cx| {
            let mut rules = self.rules.lock();
            let rule = rules
                .list
                .iter()
                .find(|rule| rule.matches(request))
                .map(|rule| rule.action);
            if rule == Some(FaultAction::Hang) {
                rules.hanging.retain(|waker| !waker.will_wake(cx.waker()));
                rules.hanging.push(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(rule)
        })
        .await
    }
}

/// Counts a hanging request for its lifetime.
struct Hanging<'a>(&'a AtomicU64);

impl Hanging<'_> {
    fn count(counter: &AtomicU64) -> Hanging<'_> {
        counter.fetch_add(1, Ordering::SeqCst);
        Hanging(counter)
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a request hangs once");
    }
}

/// Counts a request that is dropped before its fault is applied.
struct Dropped<'a> {
    counter: &'a AtomicU64,
    waiting: bool,
}

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.counter
            .fetch_add(u64::from(self.waiting), Ordering::SeqCst);
    }
}

struct Request {
    kind: Requests,
    /// `None` for requests that apply to the whole device.
    extent: Option<Extent>,
}

/// Any device, with injected faults. It does not expose its memory, because no rule could apply to accesses
/// to it.
pub struct Fault<D> {
    inner: D,
    sleeper: Arc<dyn Sleeper>,
    control: FaultControl,
    /// Counts flushes that failed with a loss because of a rule.
    losses: LossCounter,
}

impl<D: BlockDevice> Fault<D> {
    /// Wraps `inner`. There are no faults until `control` sets them.
    pub fn new(inner: D, sleeper: Arc<dyn Sleeper>, control: FaultControl) -> Fault<D> {
        Fault {
            inner,
            sleeper,
            control,
            losses: LossCounter::default(),
        }
    }

    /// Waits as long as the rules require. Returns their other effect on the request: `None`, `Fail` or
    /// `Short`.
    async fn apply_rules(&self, kind: Requests, extent: Option<Extent>) -> Option<FaultAction> {
        let shared = &self.control.shared;
        let request = Request { kind, extent };
        let mut dropped = Dropped {
            counter: &shared.dropped,
            waiting: true,
        };
        let mut action = shared.matching_action(&request);
        if action == Some(FaultAction::Hang) {
            let _hanging = Hanging::count(&shared.hanging);
            action = shared.released(&request).await;
        }
        if let Some(FaultAction::Slow(by)) = action {
            self.sleeper.sleep(by).await;
            action = None;
        }
        dropped.waiting = false;
        action
    }

    /// Applies the rules to a request that cannot be executed in part: it passes or fails.
    async fn pass_or_fail(
        &self,
        kind: Requests,
        extent: Option<Extent>,
    ) -> Result<(), DeviceError> {
        match self.apply_rules(kind, extent).await {
            Some(FaultAction::Fail(error) | FaultAction::Short(_, error)) => {
                Err(self.failed(error))
            }
            None | Some(FaultAction::Hang | FaultAction::Slow(_)) => {
                self.passed();
                Ok(())
            }
        }
    }

    /// Applies the rules to a change, which may be executed in part.
    async fn change<'a>(
        &'a self,
        extent: Extent,
        change: impl FnOnce(&'a D, Extent) -> Pending<'a, ()>,
    ) -> Result<(), DeviceError> {
        match self.apply_rules(Requests::Writes, Some(extent)).await {
            Some(FaultAction::Fail(error)) => Err(self.failed(error)),
            Some(FaultAction::Short(blocks, error)) => {
                self.passed();
                change(&self.inner, truncated(extent, blocks)).await?;
                Err(self.failed(error))
            }
            None | Some(FaultAction::Hang | FaultAction::Slow(_)) => {
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

fn truncated(extent: Extent, blocks: Blocks) -> Extent {
    Extent {
        lba: extent.lba,
        blocks: blocks.min(extent.blocks),
    }
}

impl<D: BlockDevice> BlockDevice for Fault<D> {
    forward!(self => self.inner; geometry, profile, resolve_losses, allocated_bytes, refresh, grow, take_os_error);

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            self.pass_or_fail(Requests::Reads, Some(extent)).await?;
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
            self.pass_or_fail(Requests::Flushes, None)
                .await
                .inspect_err(|error| {
                    if error.is_loss() {
                        self.losses.count();
                    }
                })?;
            self.inner.flush().await
        })
    }

    fn losses(&self) -> Losses {
        self.inner.losses().and(self.losses.get())
    }

    fn losses_recorded(&self, count: u64) {
        let own = self.losses.get().count();
        self.inner.losses_recorded(count.saturating_sub(own));
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(self.change(extent, |inner, extent| inner.unmap(extent)))
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(self.change(extent, move |inner, extent| {
            inner.write_zeroes(extent, may_unmap)
        }))
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            self.pass_or_fail(Requests::Reads, Some(extent)).await?;
            self.inner.allocation(extent, runs_max).await
        })
    }

    fn space(&self) -> Pending<'_, Space> {
        Box::pin(async {
            self.pass_or_fail(Requests::Reads, None).await?;
            self.inner.space().await
        })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.control
                .shared
                .released(&Request {
                    kind: Requests::All,
                    extent: None,
                })
                .await;
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
        Scene {
            device,
            control,
            clock,
        }
    }

    fn ones(blocks: usize) -> Slice {
        Buffer::from(&vec![1; blocks * 512][..]).share()
    }

    #[test]
    fn what_hangs_goes_on_when_released() {
        let Scene {
            device, control, ..
        } = scene();
        control.hang();
        let mut write = device.write(Extent::new(0, 1), ones(1), Durability::Cached);
        assert!(poll(write.as_mut()).is_none());
        assert_eq!(control.counts().hanging, 1);
        control.pass();
        assert_eq!(poll(write.as_mut()), Some(Ok(())));
        assert_eq!(
            control.counts(),
            Counts {
                passed: 1,
                ..Counts::default()
            }
        );
        assert_eq!(device.inner.byte(0), 1);
    }

    #[test]
    fn what_is_dropped_while_it_hangs_never_reaches_the_device() {
        let Scene {
            device, control, ..
        } = scene();
        control.hang();
        let mut write = device.write(Extent::new(0, 1), ones(1), Durability::Cached);
        assert!(poll(write.as_mut()).is_none());
        drop(write);
        control.pass();
        assert_eq!(ready(device.quiesced()), Ok(()));
        assert_eq!(device.inner.requests(), 0);
        assert_eq!(
            control.counts(),
            Counts {
                dropped: 1,
                ..Counts::default()
            }
        );
    }

    #[test]
    fn a_device_that_hangs_lets_go_of_nothing() {
        let Scene {
            device, control, ..
        } = scene();
        control.hang();
        let mut quiesced = device.quiesced();
        assert!(poll(quiesced.as_mut()).is_none());
        control.pass();
        assert_eq!(poll(quiesced.as_mut()), Some(Ok(())));
        assert_eq!(control.counts(), Counts::default());
        control.set([Rule {
            requests: Requests::Reads,
            within: None,
            action: FaultAction::Hang,
        }]);
        assert_eq!(ready(device.quiesced()), Ok(()), "only reads hang");
    }

    #[test]
    fn releasing_wakes_from_another_thread() {
        let Scene {
            device, control, ..
        } = scene();
        control.hang();
        let mut flush = device.flush();
        let woken = Arc::new(Flag::default());
        let waker = Waker::from(Arc::clone(&woken));
        assert!(
            flush
                .as_mut()
                .poll(&mut std::task::Context::from_waker(&waker))
                .is_pending()
        );
        std::thread::spawn(move || control.pass())
            .join()
            .expect("released");
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
        let Scene {
            device, control, ..
        } = scene();
        control.hang();
        let mut flush = device.flush();
        assert!(poll(flush.as_mut()).is_none());
        control.fail(DeviceError::NotReady);
        assert_eq!(poll(flush.as_mut()), Some(Err(DeviceError::NotReady)));
        assert_eq!(control.counts().failed, 1);
    }

    #[test]
    fn a_flush_that_is_made_to_lose_writes_counts_as_a_loss_and_others_do_not() {
        let Scene {
            device, control, ..
        } = scene();
        for (error, losses) in [(DeviceError::NotReady, 0), (DeviceError::NoSpace, 1)] {
            control.fail(error);
            let write = device.write(Extent::new(0, 1), ones(1), Durability::Stable);
            assert_eq!(
                (ready(write), ready(device.flush())),
                (Err(error), Err(error))
            );
            assert_eq!(device.losses().count(), losses);
        }
        control.pass();
        assert_eq!(
            (ready(device.flush()), device.losses().count()),
            (Ok(()), 1)
        );
    }

    #[test]
    fn slow_requests_wait_for_the_clock() {
        let Scene {
            device,
            control,
            clock,
        } = scene();
        control.slow(Duration::from_secs(3));
        let mut flush = device.flush();
        assert!(poll(flush.as_mut()).is_none());
        clock.pass(Duration::from_secs(3));
        assert_eq!(poll(flush.as_mut()), Some(Ok(())));
    }

    #[test]
    fn rules_are_for_kinds_and_places() {
        let Scene {
            device, control, ..
        } = scene();
        let action = FaultAction::Fail(DeviceError::Unreadable(crate::Lba(9)));
        control.set([Rule {
            requests: Requests::Reads,
            within: Some(Extent::new(8, 8)),
            action,
        }]);
        let read = |lba| ready(device.read(Extent::new(lba, 4), Buffer::zeroed(2048))).err();
        assert_eq!(read(0), None);
        assert_eq!(read(6), Some(DeviceError::Unreadable(crate::Lba(9))));
        assert_eq!(
            ready(device.write(Extent::new(8, 1), ones(1), Durability::Cached)),
            Ok(())
        );
        assert_eq!(ready(device.flush()), Ok(()));
    }

    #[test]
    fn a_short_write_leaves_its_beginning_on_the_medium() {
        let Scene {
            device, control, ..
        } = scene();
        control.set([Rule::all(FaultAction::Short(
            Blocks(1),
            DeviceError::NoSpace,
        ))]);
        let write = device.write(Extent::new(0, 3), ones(3), Durability::Cached);
        assert_eq!(ready(write), Err(DeviceError::NoSpace));
        assert_eq!((device.inner.byte(511), device.inner.byte(512)), (1, 0));
    }
}
