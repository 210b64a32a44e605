//! Requests: each goes to a channel, and to another one when that is lost.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use block::{BlockDevice, FlushLedger, LossCounter, Reserve};
use reactor::JoinHandle;

use crate::balance::{Begun, Estimate, choose};
use crate::claims::{Claim, Claims};
use crate::flushes::Flushes;
use crate::journal::{Journal, Mark};
use crate::journal_file::recovery::Server;
use crate::journal_file::{JournalFile, JournalFileError, Owner, ReplayRule};
use crate::keeping::attend;
use crate::pace::Pace;
use crate::patience::Wait;
use crate::replay::Writers;
use crate::status::{ChannelStatus, Status};
use crate::transport::{Connected, Failed, Kind, Link, Request, Transport};
use crate::turns::Turns;

/// How channels are used.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many there are: at least one.
    pub channels: usize,
    /// How many paths the transport has: at least one. A channel's own is its number modulo this.
    pub paths: usize,
    /// A request fails when it has not been answered for so long, by whichever channel.
    pub timeout: Duration,
    /// How long a request of a lost connection can still reach a server that does not fence, after the
    /// connection was reset.
    pub quarantine: Duration,
    /// Memory for acknowledged changes that no flush has covered. 0: none are kept, and a restart of the server
    /// fails the next flush.
    pub journal_bytes: usize,
    /// The server has a cache that a flush writes.
    pub is_volatile: bool,
    /// Several connections see one cache.
    pub is_coherent: bool,
    /// Who else changes the device.
    pub writers: Writers,
    /// This client.
    pub session: u128,
    /// For jitter.
    pub seed: u64,
}

pub(crate) type RequestOf<T> = <<T as Transport>::Link as Link>::Request;
pub(crate) type ReplyOf<T> = <<T as Transport>::Link as Link>::Reply;
pub(crate) type FailedOf<T> = Failed<<<T as Transport>::Link as Link>::Error>;

/// Channels to one device. They live on the thread that made them.
pub struct Channels<T: Transport>(Rc<Shared<T>>);

pub(crate) struct Shared<T: Transport> {
    pub(crate) transport: T,
    pub(crate) settings: Settings,
    pub(crate) claims: Claims,
    pub(crate) state: RefCell<State<T>>,
    pub(crate) admission: Turns,
    pub(crate) ledger: RefCell<FlushLedger>,
    pub(crate) flushes: Flushes<T>,
    pub(crate) journal: RefCell<Journal<RequestOf<T>>>,
    /// The same changes, for the next process.
    pub(crate) file: RefCell<Option<JournalFile>>,
    /// A flush empties the journal of as much at once.
    _reserve: Reserve,
    pub(crate) is_flushing: Cell<bool>,
    /// How many of these flushes have failed.
    failed_flushes: Cell<u64>,
    pace: Cell<Pace>,
    /// The server's start, if it tells.
    pub(crate) start: Cell<Option<u128>>,
    /// How many connections have been made, each of which may have led to another start.
    pub(crate) connections: Cell<u64>,
    /// When all connections were ended last because the server had lost writes.
    pub(crate) parted: Cell<Option<Instant>>,
}

pub(crate) struct State<T: Transport> {
    pub(crate) slots: Vec<Slot<T::Link>>,
    /// Claims of lost connections that the server has not fenced yet, by the connection's number.
    pub(crate) unfenced: BTreeMap<u64, Vec<Claim>>,
    /// Those of them whose claims end with a quarantine, unless they are fenced before.
    pub(crate) quarantined: BTreeSet<u64>,
    /// Lost connections by which a part of a replay may still come, or what the next one must not overtake.
    pub(crate) replay_after: BTreeSet<u64>,
    pub(crate) next_number: u64,
    /// Who waits for a channel, for room in the journal, or for the first attempts.
    pub(crate) waiters: Vec<Waker>,
    /// A change was sent.
    pub(crate) has_changed: bool,
    /// Connections that end once all is answered.
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
        InUse { link: Rc::clone(&self.link), number: self.number, fences: self.fences }
    }
}

/// A request on its way, counted for its channel.
pub(crate) struct Sending<'a, T: Transport> {
    shared: &'a Shared<T>,
    slot: usize,
    number: u64,
    begun: Begun,
}

/// The most memory of a journal that is kept for what comes.
const RESERVE_BYTES_MAX: usize = 64 << 20;

impl<T: Transport> Channels<T> {
    /// Channels, the first of which has this connection by this path. Its name was number 0.
    pub fn new(transport: T, settings: Settings, first: Connected<T::Link>, path: usize) -> Channels<T> {
        let slot = |number: usize| Slot {
            in_use: None,
            estimate: Estimate::default(),
            was_tried: false,
            last_error: None,
            path: number % settings.paths.max(1),
            requests: 0,
            bytes: 0,
            service: Duration::ZERO,
            reconnects: 0,
            longest_outage: Duration::ZERO,
        };
        let state = State {
            slots: (0..settings.channels.max(1)).map(slot).collect(),
            unfenced: BTreeMap::new(),
            quarantined: BTreeSet::new(),
            replay_after: BTreeSet::new(),
            next_number: 1,
            waiters: Vec::new(),
            has_changed: false,
            leaving: Vec::new(),
            tasks: Vec::new(),
            resends: 0,
            longest_stall: Duration::ZERO,
            replays: 0,
        };
        let most_kept = settings.journal_bytes / 2;
        let reserve = Reserve::of(most_kept.min(RESERVE_BYTES_MAX));
        let shared = Rc::new(Shared {
            transport,
            settings,
            claims: Claims::default(),
            state: RefCell::new(state),
            admission: Turns::default(),
            ledger: RefCell::default(),
            flushes: Flushes::default(),
            journal: RefCell::default(),
            file: RefCell::default(),
            _reserve: reserve,
            is_flushing: Cell::new(false),
            failed_flushes: Cell::new(0),
            pace: Cell::new(Pace::up_to(most_kept)),
            start: Cell::new(first.start),
            connections: Cell::new(1),
            parted: Cell::new(None),
        });
        let first = InUse { link: first.link, number: 0, fences: first.fences };
        shared.publish(0, path, first.clone());
        let mut first = Some(first);
        for slot in 0..shared.settings.channels.max(1) {
            let task = reactor::spawn(attend(Rc::clone(&shared), slot, first.take()));
            shared.state.borrow_mut().tasks.push(task);
        }
        Channels(shared)
    }

    /// Waits until each channel has a connection, or has been refused one.
    pub async fn tried(&self) {
        poll_fn(|cx| {
            let mut state = self.0.state.borrow_mut();
            if state.slots.iter().all(|slot| slot.was_tried) {
                return Poll::Ready(());
            }
            state.waiters.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Has a request carried out, over as many connections as it takes.
    ///
    /// # Errors
    /// The server's, or it was not answered in time.
    pub fn ask(
        &self,
        request: RequestOf<T>,
    ) -> impl Future<Output = Result<ReplyOf<T>, FailedOf<T>>> + use<'_, T> {
        self.0.ask(request)
    }

    /// Ends when no change that was asked for before can reach the medium any more, whether it was answered or dropped.
    pub async fn quiesced(&self) {
        self.0.claims.quiesced().await;
    }

    /// Keeps acknowledged changes that no flush has covered in a file from now on, with room for `capacity` bytes if it is new. What the
    /// file holds from before is dealt with first, by the rule. `device` is that of these channels, and nobody uses it yet.
    ///
    /// # Errors
    /// The file cannot be used; then it holds what it did.
    pub async fn keep_in(
        &self,
        path: &Path,
        rule: ReplayRule,
        capacity: u64,
        owner: &Owner,
        device: &dyn BlockDevice,
    ) -> Result<(), JournalFileError> {
        let server = || Server { start: self.0.start.get(), connections: self.0.connections.get() };
        let mut file = JournalFile::recovered(path, rule, capacity, owner, device, &server).await?;
        let _ = file.set_start(self.0.start.get()); // a failure fails the next change
        self.0.file.replace(Some(file));
        Ok(())
    }

    /// The losses of acknowledged changes. Those of a server that was restarted are counted before a request is sent to it.
    pub fn losses(&self) -> LossCounter {
        self.0.ledger.borrow().losses()
    }

    /// Ends when the losses are certain; false if they are not in the time of a request.
    pub async fn resolved(&self) -> bool {
        let certain = poll_fn(|cx| {
            if !self.0.ledger.borrow().losses().get().is_in_doubt() {
                return Poll::Ready(());
            }
            self.0.state.borrow_mut().waiters.push(cx.waker().clone());
            Poll::Pending
        });
        reactor::timeout(self.0.settings.timeout, certain).await.is_ok()
    }

    /// Has the next flush say that acknowledged writes are lost, since who was told was no flush.
    pub fn tell_of_loss(&self) {
        self.0.tell_of_loss();
    }

    /// The same as [`Channels::leave`], after a flush that empties the journal file if there is one.
    pub async fn close(&self) {
        let is_kept = self.0.file.borrow().as_ref().is_some_and(|file| !file.is_empty());
        if is_kept {
            let _ = self.0.ask(self.0.transport.flush()).await; // without it the file holds what it does
        }
        self.leave();
    }

    /// Ends all channels once their requests are answered.
    pub fn leave(&self) {
        let mut state = self.0.state.borrow_mut();
        let (tasks, slots) = (std::mem::take(&mut state.tasks), std::mem::take(&mut state.slots));
        drop(state);
        tasks.into_iter().for_each(JoinHandle::abort);
        self.0.flushes.leave();
        slots.into_iter().filter_map(|slot| slot.in_use).for_each(|in_use| in_use.link.leave());
    }

    /// The connections that are alive, each with the number of its channel.
    pub fn links(&self) -> Vec<(usize, Rc<T::Link>)> {
        let state = self.0.state.borrow();
        let slots = state.slots.iter().enumerate();
        slots.filter_map(|(number, slot)| Some((number, Rc::clone(&slot.live()?.link)))).collect()
    }

    /// What is known of the channels.
    pub fn status(&self) -> Status {
        let state = self.0.state.borrow();
        let channel = |slot: &Slot<T::Link>| ChannelStatus {
            path: self.0.transport.path_name(slot.path),
            is_connected: slot.live().is_some(),
            last_error: slot.last_error.clone(),
            requests: slot.requests,
            bytes: slot.bytes,
            service: slot.service,
            outstanding_bytes: slot.estimate.outstanding(),
            rate: slot.estimate.rate(),
            latency: Duration::from_secs_f64(slot.estimate.latency()),
            reconnects: slot.reconnects,
            longest_outage: slot.longest_outage,
        };
        Status {
            channels: state.slots.iter().map(channel).collect(),
            resends: state.resends,
            longest_stall: state.longest_stall,
            replays: state.replays,
            journal_bytes: self.0.journal.borrow().bytes(),
            fences: state.slots.iter().any(|slot| slot.in_use.as_ref().is_some_and(|in_use| in_use.fences)),
        }
    }
}

impl<T: Transport> Drop for Channels<T> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<L: Link> Slot<L> {
    pub(crate) fn live(&self) -> Option<&InUse<L>> {
        self.in_use.as_ref().filter(|in_use| !in_use.link.is_lost())
    }
}

impl<T: Transport> Shared<T> {
    async fn ask(self: &Rc<Self>, request: RequestOf<T>) -> Result<ReplyOf<T>, FailedOf<T>> {
        let mut wait = Wait::new(reactor::now(), self.settings.timeout);
        let kind = request.kind();
        if kind == Kind::Flush {
            return self.flush(request, wait).await;
        }
        let mut claim = None;
        if let Kind::Change { range, is_durable } = &kind {
            let claimed = self.claims.await_claim(range.clone());
            let granted = claimed.claim().granted();
            let are_awaited = || claimed.is_behind_an_awaited_one();
            wait.behind(granted, are_awaited, || self.answers()).await.ok_or(Failed::TimedOut)?;
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
            let (link, sending) = self.usable(request.bytes(), deadline).await.ok_or(Failed::TimedOut)?;
            let claim = claim.as_ref().map(|awaited| awaited.claim().clone());
            let answer = link.exchange(&request, claim, deadline, None).await;
            match self.attempted(&*link, sending, &request, answer, &mut was_lost, wait.asked) {
                Err(Failed::Lost) if reactor::now() >= deadline => return Err(Failed::TimedOut),
                Err(Failed::Lost) => self.state.borrow_mut().resends += 1,
                Err(failed) => return Err(failed),
                Ok(reply) => {
                    if let Kind::Change { range, is_durable } = kind {
                        self.acknowledge(range, is_durable, &request).await?;
                    }
                    return Ok(reply);
                }
            }
        }
    }

    /// The answer of a request that was sent by a channel, of which the channel's figures tell from now on.
    pub(crate) fn attempted(
        &self,
        link: &T::Link,
        sending: Sending<'_, T>,
        request: &RequestOf<T>,
        answer: Result<ReplyOf<T>, FailedOf<T>>,
        was_lost: &mut bool,
        asked: Instant,
    ) -> Result<ReplyOf<T>, FailedOf<T>> {
        // A server that was restarted since may have lost what it has answered, and the journal may be replayed.
        let answer = if link.is_lost() && answer.is_ok() { Err(Failed::Lost) } else { answer };
        match answer {
            Err(Failed::Lost) => *was_lost = true,
            Err(_) => {}
            Ok(_) => {
                sending.complete(request.bytes());
                if *was_lost {
                    let mut state = self.state.borrow_mut();
                    state.longest_stall =
                        state.longest_stall.max(reactor::now().saturating_duration_since(asked));
                }
            }
        }
        answer
    }

    /// Of the channels that are preferred, the one that is expected to answer first, once there is one.
    pub(crate) async fn usable(
        &self,
        bytes: u64,
        deadline: Instant,
    ) -> Option<(Rc<T::Link>, Sending<'_, T>)> {
        let usable = poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            let now = reactor::now();
            let rank = |slot: &Slot<T::Link>| slot.live().and_then(|in_use| in_use.link.rank(cx.waker()));
            let best = state.slots.iter().filter_map(rank).min();
            let preferred =
                state.slots.iter().enumerate().filter(|(_, slot)| best.is_some() && rank(slot) == best);
            let estimates = preferred.map(|(number, slot)| (number, &slot.estimate));
            let Some(chosen) = choose(estimates, now, bytes) else {
                state.waiters.push(cx.waker().clone());
                return Poll::Pending;
            };
            let slot = &mut state.slots[chosen];
            let Some(InUse { link, number, .. }) = slot.in_use.clone() else { return Poll::Pending };
            let begun = slot.estimate.begin(now, bytes);
            Poll::Ready((link, Sending { shared: self, slot: chosen, number, begun }))
        });
        reactor::timeout_at(deadline, usable).await.ok()
    }

    /// Notes in the journal file that a change is about to be sent.
    async fn announce(self: &Rc<Self>, range: &Range<u64>) -> Result<(), FailedOf<T>> {
        let announced = match &mut *self.file.borrow_mut() {
            None => Ok(true),
            Some(file) => file.will_change(range, self.journal.borrow().overlaps(range)),
        };
        match announced.map_err(|_| Failed::JournalFile)? {
            true => Ok(()),
            // Then there is none that it is sent over.
            false => self.flush_at_once().await,
        }
    }

    /// The server has answered a change.
    async fn acknowledge(
        self: &Rc<Self>,
        range: Range<u64>,
        is_durable: bool,
        change: &RequestOf<T>,
    ) -> Result<(), FailedOf<T>> {
        let content = if is_durable || !self.settings.is_volatile {
            if !self.journal.borrow_mut().forget(range.clone()) {
                return Ok(());
            }
            None
        } else if self.settings.journal_bytes == 0 {
            self.ledger.borrow_mut().note_write();
            return Ok(());
        } else {
            self.journal.borrow_mut().insert(range.clone(), change.clone());
            self.flush_if_over(self.pace.get().bytes());
            change.content()
        };
        let appended = match &mut *self.file.borrow_mut() {
            None => Ok(true),
            Some(file) => file.append(&range, content.as_ref()),
        };
        match appended.map_err(|_| Failed::JournalFile)? {
            true => Ok(()),
            // Durable is as good, and makes room.
            false => self.flush_at_once().await,
        }
    }

    fn flush_at_once(self: &Rc<Self>) -> Pin<Box<dyn Future<Output = Result<(), FailedOf<T>>>>> {
        let shared = Rc::clone(self);
        Box::pin(async move { shared.ask(shared.transport.flush()).await.map(drop) })
    }

    /// What a flush covers that is sent now.
    pub(crate) fn mark(&self) -> (Mark, u64) {
        let file = self.file.borrow().as_ref().map_or(0, JournalFile::mark);
        (self.journal.borrow().mark(), file)
    }

    /// A flush that was sent then has succeeded.
    pub(crate) fn flushed(&self, (mark, in_file): (Mark, u64)) -> Result<(), FailedOf<T>> {
        self.journal.borrow_mut().flushed(mark);
        let kept = self.file.borrow_mut().as_mut().map_or(Ok(()), |file| {
            file.flushed(in_file)?;
            // After a replay in part the file has kept the earlier start. Nothing of that time is left in it.
            if file.is_empty() { file.set_start(self.start.get()) } else { Ok(()) }
        });
        kept.map_err(|_| Failed::JournalFile)
    }

    /// Waits until the journal has room for a change. `None` if it has none in time.
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

    /// How many requests were answered.
    fn answers(&self) -> u64 {
        self.state.borrow().slots.iter().map(|slot| slot.requests).sum()
    }

    /// Empties the journal by a flush, if there is more in it and none is on its way.
    fn flush_if_over(self: &Rc<Self>, bytes: usize) {
        let is_half_full = self.file.borrow().as_ref().is_some_and(JournalFile::is_half_full);
        let is_due = self.journal.borrow().bytes() > bytes || is_half_full;
        if is_due && !self.is_flushing.replace(true) {
            drop(reactor::spawn(flush_behind(Rc::clone(self))));
        }
    }

    pub(crate) fn tell_of_loss(&self) {
        let mut ledger = self.ledger.borrow_mut();
        ledger.note_write();
        ledger.note_loss();
    }

    pub(crate) fn wake(&self) {
        let waiters = std::mem::take(&mut self.state.borrow_mut().waiters);
        waiters.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn publish(&self, slot: usize, path: usize, in_use: InUse<T::Link>) {
        let mut state = self.state.borrow_mut();
        if let Some(slot) = state.slots.get_mut(slot) {
            slot.in_use = Some(in_use);
            slot.estimate = Estimate::default();
            slot.path = path;
            slot.was_tried = true;
        }
        drop(state);
        self.wake();
    }
}

/// Empties the journal by a flush.
fn flush_behind<T: Transport>(shared: Rc<Shared<T>>) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let (mark, begun) = (shared.mark(), reactor::now());
        let flushed = shared.ask(shared.transport.flush()).await;
        if flushed.is_ok() {
            let mut pace = shared.pace.get();
            pace.flushed(begun, reactor::now());
            shared.pace.set(pace);
        }
        if let Err(Failed::Server(_) | Failed::WritesLost) = flushed {
            // What could not be flushed may be lost: the next flush of the user says so.
            let _ = shared.flushed(mark); // a failure of the file fails the next change
            shared.tell_of_loss();
        }
        if flushed.is_err() {
            shared.failed_flushes.set(shared.failed_flushes.get() + 1);
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

    /// Its channel, if that has the same connection still.
    fn slot(&mut self) -> Option<std::cell::RefMut<'_, Slot<T::Link>>> {
        let state = self.shared.state.borrow_mut();
        let (place, number) = (self.slot, self.number);
        std::cell::RefMut::filter_map(state, |state| {
            let slot = state.slots.get_mut(place)?;
            slot.in_use.as_ref().is_some_and(|in_use| in_use.number == number).then_some(slot)
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
