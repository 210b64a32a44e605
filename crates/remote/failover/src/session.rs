//! Sends each request over a channel. If that channel is lost, the request is resent over another one. The
//! result of a flush is evaluated even if its caller was dropped.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use block::{DeviceError, Flush, FlushLedger, Reserve};
use reactor::JoinHandle;

use crate::balance::{Begun, Estimate, choose};
use crate::claims::{Claim, Claims};
use crate::journal::{Journal, Mark, Writers};
use crate::journal_file::JournalFile;
use crate::patience::{Late, Wait};
use crate::transport::{Failed, Link, Request, RequestKind, Transport};

/// The settings of channels.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of channels, at least one.
    pub channels: usize,
    /// Number of the transport's paths, at least one. A channel's preferred path is its number modulo this.
    pub paths: usize,
    /// Request timeout, across all channels.
    pub timeout: Duration,
    /// Maximum time after the reset of a connection during which its requests can still reach the server. It
    /// applies to servers that do not fence.
    pub quarantine: Duration,
    /// Memory for acknowledged changes that no flush has covered. With 0, no changes are kept, and after a
    /// restart of the server the next flush fails.
    pub journal_bytes: usize,
    /// Whether the server has a volatile write cache.
    pub is_volatile: bool,
    /// Whether all connections to the server share one cache.
    pub is_coherent: bool,
    /// Which other hosts write to the device.
    pub writers: Writers,
    /// Identifies this client.
    pub session: u128,
    /// Seed for jitter.
    pub seed: u64,
}

pub(crate) type RequestOf<T> = <<T as Transport>::Link as Link>::Request;
pub(crate) type ReplyOf<T> = <<T as Transport>::Link as Link>::Reply;
pub(crate) type FailedOf<T> = Failed<<<T as Transport>::Link as Link>::Error>;

pub(crate) struct Shared<T: Transport> {
    pub(crate) transport: T,
    pub(crate) settings: Settings,
    pub(crate) claims: Claims,
    pub(crate) state: RefCell<State<T>>,
    pub(crate) admission: Turns,
    pub(crate) ledger: RefCell<FlushLedger>,
    pub(crate) flushes: Flushes<T>,
    pub(crate) journal: RefCell<Journal<RequestOf<T>>>,
    /// A file with the changes in the journal, for the next process.
    pub(crate) file: RefCell<Option<JournalFile>>,
    /// Memory reserved for the flush that empties the journal.
    pub(crate) _reserve: Reserve,
    pub(crate) is_flushing: Cell<bool>,
    /// Number of failed flushes that were started to empty the journal.
    pub(crate) failed_flushes: Cell<u64>,
    pub(crate) pace: Cell<Pace>,
    /// Identifies the server's current run, if the server reports it.
    pub(crate) start: Cell<Option<u128>>,
    /// Number of connections made; each may have reached a restarted server.
    pub(crate) connections: Cell<u64>,
    /// When all connections were last closed because the server had lost writes.
    pub(crate) parted: Cell<Option<Instant>>,
    /// Whether the server may be without changes in the journal file. Until the file is empty, it must not
    /// name the server's current run.
    pub(crate) is_behind: Cell<bool>,
    /// Whether an earlier process has lost changes without a report. The user's first flush counts the loss. Until
    /// then, the layers above have recorded the count at which they start.
    pub(crate) has_lost_before: Cell<bool>,
}

pub(crate) struct State<T: Transport> {
    pub(crate) slots: Vec<Slot<T::Link>>,
    /// Unfenced claims of lost connections, by connection number.
    pub(crate) unfenced: BTreeMap<u64, Vec<Claim>>,
    /// The connections in `unfenced` whose claims end with a quarantine, unless the server fences them
    /// earlier.
    pub(crate) quarantined: BTreeSet<u64>,
    /// Lost connections whose outstanding requests the next replay must not overtake, such as parts of an
    /// earlier replay.
    pub(crate) replay_after: BTreeSet<u64>,
    pub(crate) next_number: u64,
    /// Tasks that wait for a channel, for journal space, or for the first connection attempts.
    pub(crate) waiters: Vec<Waker>,
    /// Whether a change was sent.
    pub(crate) has_changed: bool,
    /// Connections that close once all their requests are answered.
    pub(crate) leaving: Vec<InUse<T::Link>>,
    pub(crate) tasks: Vec<JoinHandle<()>>,
    pub(crate) resends: u64,
    pub(crate) longest_stall: Duration,
    pub(crate) replays: u64,
}

/// A channel.
pub(crate) struct Slot<L> {
    pub(crate) in_use: Option<InUse<L>>,
    pub(crate) estimate: Estimate,
    pub(crate) was_tried: bool,
    pub(crate) last_error: Option<String>,
    pub(crate) path: usize,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) service: Duration,
    pub(crate) reconnects: u64,
    pub(crate) longest_outage: Duration,
}

/// The connection of a channel.
pub(crate) struct InUse<L> {
    pub(crate) link: Rc<L>,
    pub(crate) number: u64,
    pub(crate) fences: bool,
}

impl<L> Clone for InUse<L> {
    fn clone(&self) -> InUse<L> {
        InUse {
            link: Rc::clone(&self.link),
            number: self.number,
            fences: self.fences,
        }
    }
}

/// An outstanding request, counted for its channel.
pub(crate) struct Sending<'a, T: Transport> {
    shared: &'a Shared<T>,
    slot: usize,
    number: u64,
    begun: Begun,
}

impl<L: Link> Slot<L> {
    pub(crate) fn live(&self) -> Option<&InUse<L>> {
        self.in_use.as_ref().filter(|in_use| !in_use.link.is_lost())
    }
}

impl<T: Transport> Shared<T> {
    pub(crate) async fn ask(
        self: &Rc<Self>,
        request: RequestOf<T>,
    ) -> Result<ReplyOf<T>, FailedOf<T>> {
        let mut wait = Wait::new(reactor::now(), self.settings.timeout);
        let kind = request.kind();
        if kind == RequestKind::Flush {
            return self.flush(request).await;
        }
        let mut claim = None;
        if let RequestKind::Change { range, is_durable } = &kind {
            let claimed = self.claims.await_claim(range.clone());
            let granted = claimed.claim().granted();
            let are_awaited = || claimed.is_behind_an_awaited_one();
            wait.behind(granted, are_awaited, || self.answers())
                .await
                .ok_or(Failed::TimedOut)?;
            self.state.borrow_mut().has_changed = true;
            if !is_durable {
                self.has_room(&mut wait).await.ok_or(Failed::TimedOut)?;
            }
            self.announce(range).await?;
            claim = Some(claimed);
        }
        let deadline = wait.deadline;
        let mut was_lost = false;
        loop {
            let (link, sending) = self
                .usable(request.bytes(), deadline)
                .await
                .ok_or(Failed::TimedOut)?;
            let claim = claim.as_ref().map(|awaited| awaited.claim().clone());
            let answer = link.exchange(&request, claim, deadline, None).await;
            match self.attempted(&*link, sending, &request, answer, &mut was_lost, wait.asked) {
                Err(Failed::Lost) if reactor::now() >= deadline => return Err(Failed::TimedOut),
                Err(Failed::Lost) => self.state.borrow_mut().resends += 1,
                Err(failed) => return Err(failed),
                Ok(reply) => {
                    if let RequestKind::Change { range, is_durable } = kind {
                        self.acknowledge(range, is_durable, &request).await?;
                    }
                    return Ok(reply);
                }
            }
        }
    }

    /// Processes the reply to a request sent over a channel, and updates the channel's figures.
    pub(crate) fn attempted(
        &self,
        link: &T::Link,
        sending: Sending<'_, T>,
        request: &RequestOf<T>,
        answer: Result<ReplyOf<T>, FailedOf<T>>,
        was_lost: &mut bool,
        asked: Instant,
    ) -> Result<ReplyOf<T>, FailedOf<T>> {
        // A reply over a lost link is not accepted: if the server has restarted since, it may have lost the
        // acknowledged change, and the journal may already have been replayed.
        let answer = if link.is_lost() && answer.is_ok() {
            Err(Failed::Lost)
        } else {
            answer
        };
        match answer {
            Err(Failed::Lost) => *was_lost = true,
            Err(_) => {}
            Ok(_) => {
                sending.complete(request.bytes());
                if *was_lost {
                    let mut state = self.state.borrow_mut();
                    state.longest_stall = state
                        .longest_stall
                        .max(reactor::now().saturating_duration_since(asked));
                }
            }
        }
        answer
    }

    /// Returns the preferred channel with the shortest expected reply time. Waits until a channel is usable.
    pub(crate) async fn usable(
        &self,
        bytes: u64,
        deadline: Instant,
    ) -> Option<(Rc<T::Link>, Sending<'_, T>)> {
        let usable = poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            let now = reactor::now();
            let rank =
                |slot: &Slot<T::Link>| slot.live().and_then(|in_use| in_use.link.rank(cx.waker()));
            let best = state.slots.iter().filter_map(rank).min();
            let preferred = state
                .slots
                .iter()
                .enumerate()
                .filter(|(_, slot)| best.is_some() && rank(slot) == best);
            let estimates = preferred.map(|(number, slot)| (number, &slot.estimate));
            let Some(chosen) = choose(estimates, now, bytes) else {
                state.waiters.push(cx.waker().clone());
                return Poll::Pending;
            };
            let slot = &mut state.slots[chosen];
            debug_assert!(
                slot.live().is_some(),
                "a channel without a connection has no rank"
            );
            let Some(InUse { link, number, .. }) = slot.in_use.clone() else {
                return Poll::Pending;
            };
            let begun = slot.estimate.begin(now, bytes);
            Poll::Ready((
                link,
                Sending {
                    shared: self,
                    slot: chosen,
                    number,
                    begun,
                },
            ))
        });
        reactor::timeout_at(deadline, usable).await.ok()
    }

    /// Records in the journal file that a change is about to be sent.
    async fn announce(self: &Rc<Self>, range: &Range<u64>) -> Result<(), FailedOf<T>> {
        let announced = match &mut *self.file.borrow_mut() {
            None => Ok(true),
            Some(file) => file.will_change(range, self.journal.borrow().overlaps(range)),
        };
        match announced.map_err(|_| Failed::JournalFile)? {
            true => Ok(()),
            // The file has no space for the record. After a flush, the change overwrites no recorded change.
            false => Box::pin(self.make_room()).await,
        }
    }

    /// Records that the server has acknowledged a change.
    async fn acknowledge(
        self: &Rc<Self>,
        range: Range<u64>,
        is_durable: bool,
        change: &RequestOf<T>,
    ) -> Result<(), FailedOf<T>> {
        debug_assert!(
            self.state.borrow().has_changed,
            "a change was sent before it is acknowledged"
        );
        let content = if is_durable || !self.settings.is_volatile {
            if !self.journal.borrow_mut().forget(range.clone()) {
                return Ok(());
            }
            None
        } else if self.settings.journal_bytes == 0 {
            self.ledger.borrow_mut().note_write();
            return Ok(());
        } else {
            self.journal
                .borrow_mut()
                .insert(range.clone(), change.clone());
            self.flush_if_over(self.pace.get().bytes());
            change.content()
        };
        let appended = match &mut *self.file.borrow_mut() {
            None => Ok(true),
            Some(file) => file.append(&range, content.as_ref()),
        };
        match appended.map_err(|_| Failed::JournalFile)? {
            true => Ok(()),
            // The journal file has no space for the change. A flush makes the change durable instead.
            false => Box::pin(self.make_room()).await,
        }
    }

    /// Frees space in the journal and its file with a flush. If the server's flush fails, the changes may be
    /// lost. They are still dropped from the journal: the ledger and the file have recorded the loss, and the
    /// user's next flush reports it.
    async fn make_room(self: &Rc<Self>) -> Result<(), FailedOf<T>> {
        let mark = self.mark();
        match self.unreported_flush().await {
            Err(failed) if failed.may_lose_changes::<T::Link>() => {
                self.remove(mark, JournalFile::drop_lost)
            }
            ended => ended,
        }
    }

    /// Marks the changes that a flush sent now would cover.
    pub(crate) fn mark(&self) -> (Mark, u64) {
        let file = self.file.borrow().as_ref().map_or(0, JournalFile::mark);
        (self.journal.borrow().mark(), file)
    }

    /// Records the success of a flush that was sent at the mark.
    pub(crate) fn flushed(&self, mark: (Mark, u64)) -> Result<(), FailedOf<T>> {
        self.record_loss();
        self.remove(mark, JournalFile::flushed)
    }

    /// Removes the changes before the mark from the journal, and with `from_file` from its file.
    fn remove(
        &self,
        (mark, in_file): (Mark, u64),
        from_file: impl FnOnce(&mut JournalFile, u64) -> io::Result<()>,
    ) -> Result<(), FailedOf<T>> {
        self.journal.borrow_mut().flushed(mark);
        let kept = self.file.borrow_mut().as_mut().map_or(Ok(()), |file| {
            from_file(file, in_file)?;
            // After a partial replay, the file still contains the earlier run of the server. Once the file is
            // empty, it contains no change of that run.
            if file.is_empty() {
                self.is_behind.set(false);
                file.set_start(self.start.get())
            } else {
                Ok(())
            }
        });
        kept.map_err(|_| Failed::JournalFile)
    }

    /// Waits until the journal has space for a change. Returns `None` if there is no space in time.
    async fn has_room(self: &Rc<Self>, wait: &mut Wait) -> Option<()> {
        let limit = self.settings.journal_bytes;
        let room = poll_fn(|cx| {
            if self.journal.borrow().bytes() <= limit {
                return Poll::Ready(());
            }
            self.flush_if_over(limit);
            self.state.borrow_mut().waiters.push(cx.waker().clone());
            Poll::Pending
        });
        let failed = self.failed_flushes.get();
        let are_awaited = || self.is_flushing.get() && self.failed_flushes.get() == failed;
        wait.behind(room, are_awaited, || self.answers()).await
    }

    /// Number of requests answered.
    fn answers(&self) -> u64 {
        self.state
            .borrow()
            .slots
            .iter()
            .map(|slot| slot.requests)
            .sum()
    }

    /// Starts a flush to empty the journal if it holds more than `bytes`, unless such a flush is outstanding.
    fn flush_if_over(self: &Rc<Self>, bytes: usize) {
        let is_half_full = self
            .file
            .borrow()
            .as_ref()
            .is_some_and(JournalFile::is_half_full);
        let is_due = self.journal.borrow().bytes() > bytes || is_half_full;
        if is_due && !self.is_flushing.replace(true) {
            drop(reactor::spawn(flush_behind(Rc::clone(self))));
        }
    }

    /// Counts a loss of acknowledged changes. The user's next flush reports it.
    pub(crate) fn count_loss(&self) {
        self.ledger.borrow().losses().count();
        self.record_loss();
    }

    /// Records in the journal file whether there are losses that the user has not recorded, for the next
    /// process. If the file cannot be written, the next change fails.
    pub(crate) fn record_loss(&self) {
        if !self.are_losses_recorded()
            && let Some(file) = &mut *self.file.borrow_mut()
        {
            let _ = file.note_loss();
        }
    }

    fn are_losses_recorded(&self) -> bool {
        !self.has_lost_before.get() && self.ledger.borrow().losses().are_recorded()
    }

    /// Removes the record of losses from the journal file if the user has recorded them all.
    pub(crate) fn forget_recorded_losses(&self) {
        if self.are_losses_recorded()
            && let Some(file) = &mut *self.file.borrow_mut()
        {
            let _ = file.loss_recorded();
        }
    }

    pub(crate) fn wake(&self) {
        let waiters = std::mem::take(&mut self.state.borrow_mut().waiters);
        waiters.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn publish(&self, slot: usize, path: usize, in_use: InUse<T::Link>) {
        let mut state = self.state.borrow_mut();
        if let Some(slot) = state.slots.get_mut(slot) {
            let earlier = slot.in_use.as_ref().map(|earlier| earlier.number);
            debug_assert!(
                earlier < Some(in_use.number),
                "the connections of a channel are numbered in order"
            );
            slot.in_use = Some(in_use);
            slot.estimate = Estimate::default();
            slot.path = path;
            slot.was_tried = true;
        }
        drop(state);
        self.wake();
    }
}

/// Empties the journal with a flush.
fn flush_behind<T: Transport>(shared: Rc<Shared<T>>) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        debug_assert!(
            shared.is_flushing.get(),
            "one flush at a time empties the journal"
        );
        let begun = reactor::now();
        match shared.make_room().await {
            Ok(()) => {
                let mut pace = shared.pace.get();
                pace.flushed(begun, reactor::now());
                shared.pace.set(pace);
            }
            // A failure to write the journal file fails the next change.
            Err(_) => shared.failed_flushes.set(shared.failed_flushes.get() + 1),
        }
        shared.is_flushing.set(false);
        shared.wake();
    })
}

impl<T: Transport> Sending<'_, T> {
    fn complete(mut self, bytes: u64) {
        let (begun, now) = (self.begun, reactor::now());
        if let Some(mut slot) = self.slot() {
            let service = slot.estimate.complete(now, begun);
            slot.service += service;
            slot.requests += 1;
            slot.bytes += bytes;
        }
        std::mem::forget(self);
    }

    /// The channel of the request, if it still has the same connection.
    fn slot(&mut self) -> Option<std::cell::RefMut<'_, Slot<T::Link>>> {
        let state = self.shared.state.borrow_mut();
        let (place, number) = (self.slot, self.number);
        std::cell::RefMut::filter_map(state, |state| {
            let slot = state.slots.get_mut(place)?;
            slot.in_use
                .as_ref()
                .is_some_and(|in_use| in_use.number == number)
                .then_some(slot)
        })
        .ok()
    }
}

impl<T: Transport> Drop for Sending<'_, T> {
    fn drop(&mut self) {
        let begun = self.begun;
        if let Some(mut slot) = self.slot() {
            slot.estimate.give_up(begun);
        }
    }
}

// Flushes. A server may report lost writes only once, in the reply to the flush that detected the loss. Each
// flush is therefore a separate task, and its result is evaluated even if the caller no longer waits for it.
//
// ```text
//   ask ──► task: sent, and sent again ──► answered: journal, ledger ──► the caller: reported
//             │ the caller has gone               │
//             ▼                                   └─ caller gone: the ledger fails the next flush
//         abandoned: until it is answered, its connection is lost, or the channels are left
// ```
//
// A flush that was sent later can be answered first. Its success says nothing about the result of an
// abandoned flush, so it is reported only after all flushes that were abandoned before it have ended.

/// Maximum number of abandoned flushes. At this limit, the next flush is not sent before one of them has
/// ended. This limits the memory used by callers that repeatedly give up on an unresponsive server.
const ABANDONED_MAX: usize = 16;

/// The flushes of a device.
pub(crate) struct Flushes<T: Transport> {
    next: Cell<u64>,
    /// Flushes that were sent and whose callers were dropped.
    abandoned: RefCell<BTreeMap<u64, JoinHandle<FlushEnd<T>>>>,
    has_left: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

/// The outcome of a flush: its entry in the ledger, and its reply.
type FlushEnd<T> = (Flush, Result<ReplyOf<T>, FailedOf<T>>);

impl<T: Transport> Default for Flushes<T> {
    fn default() -> Flushes<T> {
        Flushes {
            next: Cell::new(0),
            abandoned: RefCell::default(),
            has_left: Cell::new(false),
            waiting: RefCell::default(),
        }
    }
}

impl<T: Transport> Flushes<T> {
    /// Ends abandoned flushes, and accepts no new ones.
    pub(crate) fn leave(&self) {
        self.has_left.set(true);
        let abandoned = std::mem::take(&mut *self.abandoned.borrow_mut());
        abandoned.into_values().for_each(JoinHandle::abort);
        self.wake();
    }

    async fn until(&self, is_met: impl Fn(&BTreeMap<u64, JoinHandle<FlushEnd<T>>>) -> bool) {
        poll_fn(|cx| {
            if is_met(&self.abandoned.borrow()) {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// A caller waiting for its flush.
struct Waiting<T: Transport> {
    shared: Rc<Shared<T>>,
    number: u64,
    task: Option<JoinHandle<FlushEnd<T>>>,
    is_sent: Rc<Cell<bool>>,
}

/// The task of a flush. The flush has ended when this is dropped.
struct FlushTask<T: Transport> {
    shared: Rc<Shared<T>>,
    number: u64,
    is_sent: Rc<Cell<bool>>,
}

impl<T: Transport> Shared<T> {
    /// Flushes for the user. Reports the losses that no earlier flush of the user has reported.
    async fn flush(self: &Rc<Self>, request: RequestOf<T>) -> Result<ReplyOf<T>, FailedOf<T>> {
        let (flush, reply) = self.ended_flush(request).await?;
        if self.has_lost_before.take() {
            self.count_loss();
        }
        let answer = match &reply {
            Ok(_) => Ok(()),
            Err(Failed::Server(error)) if <T::Link as Link>::is_no_space(error) => {
                Err(DeviceError::NoSpace)
            }
            Err(failed) if failed.may_lose_changes::<T::Link>() => Err(DeviceError::WritesLost),
            Err(_) => Err(DeviceError::NotReady),
        };
        let told = self.ledger.borrow_mut().report(flush, answer);
        self.forget_recorded_losses();
        let reply = reply?;
        told.map(|()| reply).map_err(|_| Failed::WritesLost)
    }

    /// Flushes for another purpose. Fails only if this flush itself fails. All losses, including one that
    /// this flush detects, are reported by the user's next flush.
    pub(crate) async fn unreported_flush(self: &Rc<Self>) -> Result<(), FailedOf<T>> {
        let (_, reply) = self.ended_flush(self.transport.flush()).await?;
        reply.map(drop)
    }

    /// Starts a flush and waits for its end. Its result is recorded in the ledger.
    async fn ended_flush(
        self: &Rc<Self>,
        request: RequestOf<T>,
    ) -> Result<FlushEnd<T>, FailedOf<T>> {
        debug_assert_eq!(request.kind(), RequestKind::Flush, "a flush is sent as one");
        let wait = Wait::new(reactor::now(), self.settings.timeout);
        let room = self
            .flushes
            .until(|abandoned| abandoned.len() < ABANDONED_MAX);
        reactor::timeout_at(wait.deadline, room)
            .await
            .map_err(|_| Failed::TimedOut)?;
        let number = self.flushes.next.replace(self.flushes.next.get() + 1);
        let is_sent = Rc::<Cell<bool>>::default();
        let running = FlushTask {
            shared: Rc::clone(self),
            number,
            is_sent: Rc::clone(&is_sent),
        };
        let late = Late::default();
        let task = Some(reactor::spawn(running.run(request, wait, late.clone())));
        let waiting = Waiting {
            shared: Rc::clone(self),
            number,
            task,
            is_sent,
        };
        let (flush, answer) = unless_late(waiting, &late).await.ok_or(Failed::TimedOut)?;
        if answer.is_ok() {
            let earlier = |abandoned: &BTreeMap<u64, _>| abandoned.range(..number).next().is_none();
            // The reply to this flush counts as progress, so the deadline starts again.
            let deadline = reactor::now() + self.settings.timeout;
            let ended = reactor::timeout_at(deadline, self.flushes.until(earlier)).await;
            ended.map_err(|_| Failed::TimedOut)?;
        }
        Ok((flush, answer))
    }
}

impl<T: Transport> FlushTask<T> {
    async fn run(self, request: RequestOf<T>, wait: Wait, late: Late) -> FlushEnd<T> {
        let shared = &self.shared;
        // Even if the flush is resent, it covers the writes acknowledged before it was first sent, and
        // reports the losses that were not reported until then.
        let (mark, flush) = (shared.mark(), shared.ledger.borrow_mut().begin_flush());
        let answer = self.answer(&request, wait, &late).await;
        let ended = match answer {
            Ok(reply) => {
                let kept = shared.flushed(mark);
                shared.wake();
                kept.map(|()| reply)
            }
            failed => failed,
        };
        let noted = match &ended {
            Ok(_) => Some(Ok(())),
            // The ledger then also fails concurrent flushes.
            Err(failed) if failed.may_lose_changes::<T::Link>() => {
                Some(Err(DeviceError::WritesLost))
            }
            Err(_) => None, // it is not known whether anything was flushed
        };
        if let Some(answer) = noted {
            let _ = shared.ledger.borrow_mut().note_answer(flush, answer); // the caller gets any error
            shared.record_loss();
        }
        (flush, ended)
    }

    async fn answer(
        &self,
        request: &RequestOf<T>,
        wait: Wait,
        late: &Late,
    ) -> Result<ReplyOf<T>, FailedOf<T>> {
        let deadline = wait.deadline;
        let shared = &self.shared;
        let mut was_lost = false;
        loop {
            let (link, sending) = shared
                .usable(request.bytes(), deadline)
                .await
                .ok_or(Failed::TimedOut)?;
            self.is_sent.set(true);
            let answer = link
                .exchange(request, None, deadline, Some(late.clone()))
                .await;
            self.is_sent.set(false);
            let answer =
                shared.attempted(&*link, sending, request, answer, &mut was_lost, wait.asked);
            let is_abandoned = shared.flushes.abandoned.borrow().contains_key(&self.number);
            match answer {
                Err(Failed::Lost) if is_abandoned => return Err(Failed::Lost),
                Err(Failed::Lost) if reactor::now() >= deadline => return Err(Failed::TimedOut),
                Err(Failed::Lost) => shared.state.borrow_mut().resends += 1,
                ended => return ended,
            }
        }
    }
}

/// Waits for a flush. Returns `None` if the connection reports the flush as late.
async fn unless_late<T: Transport>(waiting: Waiting<T>, late: &Late) -> Option<FlushEnd<T>> {
    let (mut waiting, mut told) = (pin!(waiting), pin!(late.told()));
    poll_fn(|cx| match waiting.as_mut().poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending => told.as_mut().poll(cx).map(|()| None),
    })
    .await
}

impl<T: Transport> Future for Waiting<T> {
    type Output = FlushEnd<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<FlushEnd<T>> {
        let Some(task) = &mut self.task else {
            return Poll::Pending;
        };
        let ended = Pin::new(task).poll(cx);
        if ended.is_ready() {
            self.task = None;
        }
        ended
    }
}

impl<T: Transport> Drop for Waiting<T> {
    fn drop(&mut self) {
        let Some(task) = self.task.take().filter(|task| !task.is_finished()) else {
            return;
        };
        let flushes = &self.shared.flushes;
        if !self.is_sent.get() || flushes.has_left.get() {
            return task.abort();
        }
        let earlier = flushes.abandoned.borrow_mut().insert(self.number, task);
        debug_assert!(earlier.is_none(), "a flush is abandoned once");
    }
}

impl<T: Transport> Drop for FlushTask<T> {
    fn drop(&mut self) {
        let abandoned = self
            .shared
            .flushes
            .abandoned
            .borrow_mut()
            .remove(&self.number);
        if abandoned.is_some() {
            self.shared.flushes.wake();
        }
    }
}

// The size at which the journal is flushed. A large journal displaces other data from the processor's caches,
// but a flush costs server time. The limit is therefore the smallest at which flushes take only a small part
// of the time.

/// Minimum limit: a flush of less data is not worth its cost.
const BYTES_MIN: usize = 1 << 20;
/// Flushes may take up to 1/`SHARE` of the time.
const SHARE: u32 = 16;

/// Determines when the next flush is due. It starts at the maximum, because the server's speed is not known
/// yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    bytes: usize,
    most: usize,
    begun: Option<Instant>,
}

impl Pace {
    /// Creates a pace that starts at, and is limited to, `most` unflushed bytes.
    pub(crate) fn up_to(most: usize) -> Pace {
        Pace {
            bytes: most,
            most,
            begun: None,
        }
    }

    /// The number of bytes above which a flush is due.
    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }

    /// Records a flush that emptied the journal.
    pub(crate) fn flushed(&mut self, begun: Instant, ended: Instant) {
        debug_assert!(
            self.begun.is_none_or(|before| before <= begun),
            "flushes begin in order"
        );
        let took = ended.saturating_duration_since(begun);
        let before = self
            .begun
            .replace(begun)
            .map(|before| begun.saturating_duration_since(before));
        debug_assert!(self.bytes <= self.most && begun <= ended);
        // Between half the share and the share, the limit does not change.
        match before {
            Some(interval) if took.saturating_mul(SHARE) > interval => {
                self.bytes = (self.bytes * 2).min(self.most)
            }
            Some(interval) if took.saturating_mul(2 * SHARE) < interval => {
                self.bytes = (self.bytes / 2).max(BYTES_MIN.min(self.most));
            }
            _ => {}
        }
    }
}

// A lock for work that only one task may do at a time.

/// A lock that waiting tasks get in turn.
#[derive(Default)]
pub(crate) struct Turns {
    is_taken: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    pub(crate) async fn take(&self) -> Turn<'_> {
        poll_fn(|cx| {
            if !self.is_taken.replace(true) {
                return Poll::Ready(Turn(self));
            }
            self.waiting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        debug_assert!(self.0.is_taken.get(), "the owner of the turn releases it");
        self.0.is_taken.set(false);
        let waiting = std::mem::take(&mut *self.0.waiting.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Simulates a client that writes at `bytes_per_s`. Each flush takes the time `flush`, plus the time to
    /// write the data to the medium. Returns the final flush limit, and the share of time that flushes took.
    fn settled(bytes_per_s: f64, flush: Duration, medium_bytes_per_s: f64) -> (usize, f64) {
        let (mut pace, mut now) = (Pace::up_to(32 << 20), Instant::now());
        let mut share = 0.0;
        for _ in 0..50 {
            let bytes = pace.bytes() as f64;
            let filled = Duration::from_secs_f64(bytes / bytes_per_s);
            let took = flush + Duration::from_secs_f64(bytes / medium_bytes_per_s);
            now += filled;
            pace.flushed(now, now + took);
            share = took.as_secs_f64() / filled.as_secs_f64();
        }
        (pace.bytes(), share)
    }

    #[test]
    fn a_server_that_flushes_at_once_is_asked_often() {
        assert_eq!(
            settled(1e9, Duration::from_micros(20), f64::INFINITY).0,
            1 << 20
        );
    }

    #[test]
    fn a_server_that_needs_long_is_asked_as_seldom_as_there_is_memory() {
        assert_eq!(
            settled(1e9, Duration::from_millis(10), f64::INFINITY).0,
            32 << 20
        );
        assert_eq!(settled(1e9, Duration::ZERO, 2e9).0, 32 << 20);
    }

    #[test]
    fn in_between_flushes_take_a_small_part_of_the_time() {
        for micros in [100, 200, 500, 900] {
            let (bytes, share) = settled(1e9, Duration::from_micros(micros), f64::INFINITY);
            assert!((2 << 20..32 << 20).contains(&bytes), "{micros} µs: {bytes}");
            assert!(share < 1.0 / f64::from(SHARE), "{micros} µs: {share}");
        }
    }
}
