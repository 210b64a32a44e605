//! Channels, the task of each that keeps it connected, and the replay of the journal.
//!
//! ```text
//!            connect, naming the lost connections that the server must end
//!   ┌──► no connection ──────────────► connected ── one at a time ──┐
//!   │        ▲  │ refused: back-off                                 ▼
//!   │        └──┘            the server's cache is unchanged, or another connection answers ──► in use
//!   │                        neither: process the journal (`replay`) ────────────────────────► in use
//!   └──── ended, or unresponsive although requests are outstanding ◄────────────────────┘
//! ```

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use block::{BlockDevice, FlushLedger, LossCounter, Reserve, StableWrite};
use reactor::JoinHandle;

use crate::balance::{Backoff, Estimate};
use crate::claims::{Claim, Claims};
use crate::journal::{Part as _, Writers};
use crate::journal_file::recovery::Server;
use crate::journal_file::{Content, JournalFile, JournalFileError, Owner, ReplayRule};
use crate::session::{
    FailedOf, Flushes, InUse, Pace, ReplyOf, RequestOf, Settings, Shared, Slot, State, Turns,
};
use crate::transport::{
    ChannelStatus, Connected, Failed, Link, Loss, Name, Request as _, Status, Transport,
};

/// The channels to one device. They live on the thread that created them.
pub struct Channels<T: Transport>(Rc<Shared<T>>);

/// Maximum journal memory that is reserved in advance.
const RESERVE_BYTES_MAX: usize = 64 << 20;

impl<T: Transport> Channels<T> {
    /// Creates channels. The first one uses this connection over this path; the connection's number is 0.
    pub fn new(
        transport: T,
        settings: Settings,
        first: Connected<T::Link>,
        path: usize,
    ) -> Channels<T> {
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
        let ledger = RefCell::new(FlushLedger::counting(transport.losses()));
        let shared = Rc::new(Shared {
            transport,
            settings,
            claims: Claims::default(),
            state: RefCell::new(state),
            admission: Turns::default(),
            ledger,
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
            is_behind: Cell::new(false),
            has_lost_before: Cell::new(false),
        });
        let first = InUse {
            link: first.link,
            number: 0,
            fences: first.fences,
        };
        shared.publish(0, path, first.clone());
        let mut first = Some(first);
        for slot in 0..shared.settings.channels.max(1) {
            let task = reactor::spawn(attend(Rc::clone(&shared), slot, first.take()));
            shared.state.borrow_mut().tasks.push(task);
        }
        Channels(shared)
    }

    /// Waits until each channel has connected, or has been refused a connection.
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

    /// Executes a request, over any number of connections.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub fn ask(
        &self,
        request: RequestOf<T>,
    ) -> impl Future<Output = Result<ReplyOf<T>, FailedOf<T>>> + use<'_, T> {
        self.0.ask(request)
    }

    /// Resolves when no earlier change, whether answered or dropped, can still reach the medium.
    pub async fn quiesced(&self) {
        self.0.claims.quiesced().await;
    }

    /// Keeps acknowledged changes that no flush has covered in a file from now on; a new file has room for
    /// `capacity` bytes. The file's earlier content is processed first, by the rule. `device` is the device
    /// that these channels serve, and must not be in use yet. If the earlier process was killed after a loss
    /// that it had not reported, the next flush reports it.
    ///
    /// # Errors
    /// The file cannot be used, and keeps its changes.
    pub async fn keep_in(
        &self,
        path: &Path,
        rule: ReplayRule,
        capacity: u64,
        owner: &Owner,
        device: &dyn BlockDevice,
    ) -> Result<(), JournalFileError> {
        let server = || Server {
            start: self.0.start.get(),
            connections: self.0.connections.get(),
        };
        let mut file = JournalFile::recovered(path, rule, capacity, owner, device, &server).await?;
        let _ = file.set_start(self.0.start.get()); // a failure fails the next change
        if file.has_dropped_unreported() {
            tracing::warn!(
                path = %path.display(),
                "acknowledged writes of an earlier process were lost, and no flush has reported it: the next flush fails"
            );
            self.0.has_lost_before.set(true);
        }
        self.0.file.replace(Some(file));
        Ok(())
    }

    /// The loss counter of acknowledged changes. A loss by a restarted server is counted before the next
    /// request is sent to it. A loss stays recorded in the journal file until the user has recorded it
    /// ([`LossCounter::recorded`]).
    pub fn losses(&self) -> LossCounter {
        self.0.ledger.borrow().losses()
    }

    /// Resolves when the losses are certain; false if they are still uncertain after the request timeout.
    pub async fn resolved(&self) -> bool {
        let certain = poll_fn(|cx| {
            if !self.0.ledger.borrow().losses().get().is_in_doubt() {
                return Poll::Ready(());
            }
            self.0.state.borrow_mut().waiters.push(cx.waker().clone());
            Poll::Pending
        });
        reactor::timeout(self.0.settings.timeout, certain)
            .await
            .is_ok()
    }

    /// Starts a change that must be durable when it ends, for a server without durable changes.
    pub fn begin_stable_write(&self) -> StableWrite {
        self.0.ledger.borrow().begin_stable_write()
    }

    /// Makes a stable write durable with a flush. It fails only for losses since the start of the write, and
    /// the next [`Flush`](crate::RequestKind::Flush) reports these too.
    ///
    /// # Errors
    /// The server's error, a timeout, or [`Failed::WritesLost`].
    pub async fn end_stable_write(&self, write: StableWrite) -> Result<(), FailedOf<T>> {
        self.0.unreported_flush().await?;
        if self.0.ledger.borrow().has_lost_since(write) {
            Err(Failed::WritesLost)
        } else {
            Ok(())
        }
    }

    /// Like [`Channels::leave`], but first flushes to empty the journal file, if there is one.
    pub async fn close(&self) {
        let is_kept = self
            .0
            .file
            .borrow()
            .as_ref()
            .is_some_and(|file| !file.is_empty());
        if is_kept {
            let _ = self.0.unreported_flush().await; // if it fails, the file keeps its content
        }
        self.0.forget_recorded_losses();
        self.leave();
    }

    /// Closes all channels once their requests are answered.
    pub fn leave(&self) {
        let mut state = self.0.state.borrow_mut();
        let (tasks, slots) = (
            std::mem::take(&mut state.tasks),
            std::mem::take(&mut state.slots),
        );
        drop(state);
        tasks.into_iter().for_each(JoinHandle::abort);
        self.0.flushes.leave();
        slots
            .into_iter()
            .filter_map(|slot| slot.in_use)
            .for_each(|in_use| in_use.link.leave());
    }

    /// The live connections, each with the number of its channel.
    pub fn links(&self) -> Vec<(usize, Rc<T::Link>)> {
        let state = self.0.state.borrow();
        let slots = state.slots.iter().enumerate();
        slots
            .filter_map(|(number, slot)| Some((number, Rc::clone(&slot.live()?.link))))
            .collect()
    }

    /// The status of the channels.
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
            fences: state
                .slots
                .iter()
                .any(|slot| slot.in_use.as_ref().is_some_and(|in_use| in_use.fences)),
        }
    }
}

impl<T: Transport> Drop for Channels<T> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Interval at which a channel on another path tries to return to its preferred path.
const RETURN: Duration = Duration::from_secs(10);
/// A connection that is lost sooner does not count as a success.
const BRIEF: Duration = Duration::from_secs(1);
/// Minimum interval between two closings of all connections for a replay; until then, new connections wait.
const PARTED: Duration = Duration::from_secs(5);
/// Maximum number of lost connections that one connection names.
const ENDED_MAX: usize = 64;

impl<T: Transport> State<T> {
    /// Records that no request of this lost connection can still reach the medium. Returns its claims.
    fn fenced(&mut self, number: u64) -> Option<Vec<Claim>> {
        debug_assert!(
            number < self.next_number,
            "only a connection that was made is fenced"
        );
        debug_assert!(
            !self.quarantined.contains(&number) || self.unfenced.contains_key(&number),
            "only an unfenced connection is in quarantine"
        );
        self.quarantined.remove(&number);
        self.replay_after.remove(&number);
        self.unfenced.remove(&number)
    }
}

/// A connection that is not in use yet. It is closed when dropped, even if its task is aborted.
struct Unused<L: Link>(Option<Rc<L>>);

impl<L: Link> Drop for Unused<L> {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|link| link.leave());
    }
}

impl<T: Transport> Shared<T> {
    /// Connects a channel, retrying until it succeeds. Tries its preferred path first.
    async fn connected(
        self: &Rc<Self>,
        slot: usize,
        backoff: &mut Backoff,
    ) -> (InUse<T::Link>, usize) {
        let paths = self.settings.paths.max(1);
        loop {
            for path in (0..paths).map(|step| (slot + step) % paths) {
                match self.connect(path).await {
                    Ok(in_use) => return (in_use, path),
                    Err(why) => {
                        let mut state = self.state.borrow_mut();
                        let Some(slot) = state.slots.get_mut(slot) else {
                            break;
                        };
                        let path = self.transport.path_name(path);
                        let is_news = slot.last_error.as_ref() != Some(&why);
                        if is_news {
                            tracing::warn!(path, why, "a channel has no connection");
                        }
                        slot.last_error = Some(why);
                    }
                }
            }
            if let Some(slot) = self.state.borrow_mut().slots.get_mut(slot) {
                slot.was_tried = true;
            }
            self.wake();
            reactor::sleep(backoff.delay()).await;
        }
    }

    /// Makes a usable connection over this path: lost connections are fenced, and changes that a restarted
    /// server has lost are replayed.
    async fn connect(self: &Rc<Self>, path: usize) -> Result<InUse<T::Link>, String> {
        let losses = self.ledger.borrow().losses();
        let doubts = losses.doubts();
        let (number, ended) = {
            let mut state = self.state.borrow_mut();
            state.next_number += 1;
            // Those whose claims block other requests come first.
            let (with, without): (Vec<_>, Vec<_>) = state
                .unfenced
                .iter()
                .partition(|(_, claims)| !claims.is_empty());
            let ended = with
                .into_iter()
                .chain(without)
                .map(|(number, _)| *number)
                .take(ENDED_MAX);
            let ended: Vec<u64> = ended.collect();
            (state.next_number - 1, ended)
        };
        debug_assert!(ended.len() <= ENDED_MAX && !ended.contains(&number));
        let name = Name {
            session: self.settings.session,
            number,
        };
        let connected = self.transport.connect(path, name, &ended).await?;
        let Connected {
            link,
            fences,
            not_ended,
            start,
        } = connected;
        let in_use = InUse {
            link,
            number,
            fences,
        };
        let mut unused = Unused(Some(Rc::clone(&in_use.link)));
        debug_assert!(
            not_ended.iter().all(|lost| ended.contains(lost)),
            "the transport reports on the connections that were named"
        );
        let of_ended = |state: &mut State<T>| {
            let fenced = ended.iter().filter(|lost| !not_ended.contains(lost));
            fenced.filter_map(|lost| state.fenced(*lost)).collect()
        };
        let fenced: Vec<Vec<Claim>> = of_ended(&mut self.state.borrow_mut());
        match fences {
            true => drop(fenced),
            // A different server from the one that fenced before.
            false => self.bury(fenced.into_iter().flatten().collect()),
        }
        self.quarantine(&not_ended).await;
        let is_unnamed =
            |(number, claims): (&u64, &Vec<Claim>)| !claims.is_empty() && !ended.contains(number);
        if self.state.borrow().unfenced.iter().any(is_unnamed) {
            // More than one connection can name: an unfenced request could overtake a replay.
            return Err("more lost connections must be terminated first".to_owned());
        }
        let turn = self.admission.take().await;
        if losses.doubts() != doubts {
            // The reported generation may be that of a lost cache, so it proves neither a loss nor the
            // absence of one.
            return Err(
                "the server may have lost its cache since this connection was opened".to_owned(),
            );
        }
        let has_changed = self.state.borrow().has_changed;
        let evidence = Evidence::of(self.start.get(), start);
        if has_changed && evidence == Evidence::Loss && !self.live().is_empty() {
            // From now on, the other connections may read data without acknowledged changes.
            losses.doubt();
            // A disk that loses writes repeatedly must not close all connections each time.
            let lately = self
                .parted
                .get()
                .is_some_and(|at| reactor::now() < at + PARTED);
            if !lately {
                self.part_from_all();
            }
            return Err(
                "the server has lost writes, and earlier connections must be terminated first"
                    .to_owned(),
            );
        }
        let replayed = match has_changed {
            true => {
                let is_as_before = match evidence {
                    Evidence::Loss | Evidence::Kept if self.settings.is_coherent => {
                        evidence == Evidence::Kept
                    }
                    _ => self.is_as_before().await,
                };
                match is_as_before {
                    true => Some(Replayed::Whole),
                    false => self.replay(&in_use.link, evidence).await,
                }
            }
            false => Some(Replayed::Whole),
        };
        unused.0 = None;
        if let Some(replayed) = replayed {
            self.connections.set(self.connections.get() + 1);
            if self.start.replace(start) != start {
                losses.doubt(); // handshakes that began before may still report the lost cache: they are not believed
            }
            losses.resolve(losses.doubts()); // no other handshake can have raised one in the meantime
            self.is_behind
                .set(self.is_behind.get() || replayed == Replayed::InPart);
            if !self.is_behind.get() {
                // The server has the journal file's whole content. A failure fails the next change.
                let _ = self
                    .file
                    .borrow_mut()
                    .as_mut()
                    .map(|file| file.set_start(self.start.get()));
            }
            drop(turn);
            return Ok(in_use);
        }
        self.retire(in_use, &Loss::Ended(String::new()));
        // Nothing else may be sent while a part of the replay could still arrive.
        match fences {
            true => drop(self.state.borrow_mut().replay_after.insert(number)),
            false => reactor::sleep(self.settings.quarantine).await,
        }
        Err("the connection was lost while the journal was replayed".to_owned())
    }

    /// Whether an earlier connection answers, which proves that the server was not restarted. Connections
    /// that do not answer are reset.
    async fn is_as_before(&self) -> bool {
        if !self.settings.is_coherent {
            return false; // without a flush, one connection does not see another one's writes
        }
        // Concurrently: idle connections may have been dropped by the network, and each takes a whole
        // timeout.
        let live: Vec<InUse<T::Link>> = self
            .state
            .borrow()
            .slots
            .iter()
            .filter_map(|slot| slot.live().cloned())
            .collect();
        let deadline = reactor::now() + self.settings.timeout;
        let mut probes: Vec<_> = live
            .into_iter()
            .map(|InUse { link, .. }| {
                let probe = link.exchange(&self.transport.probe(), None, deadline, None);
                reactor::spawn(async move {
                    let answers = matches!(probe.await, Ok(_) | Err(Failed::Server(_)));
                    if !answers {
                        link.reset();
                    }
                    answers
                })
            })
            .collect();
        poll_fn(|cx| {
            let mut is_one = false;
            probes.retain_mut(|probe| match Pin::new(probe).poll(cx) {
                Poll::Ready(answers) => {
                    is_one |= answers;
                    false
                }
                Poll::Pending => true,
            });
            if is_one || probes.is_empty() {
                Poll::Ready(is_one)
            } else {
                Poll::Pending
            }
        })
        .await
    }

    /// The connections in use, and those being closed.
    fn live(&self) -> Vec<InUse<T::Link>> {
        let state = self.state.borrow();
        let leaving = state.leaving.iter().filter(|away| !away.link.is_lost());
        state
            .slots
            .iter()
            .filter_map(Slot::live)
            .chain(leaving)
            .cloned()
            .collect()
    }

    /// Closes all connections before a replay: a server that has lost writes without a restart still executes
    /// requests sent over them, and these must not overtake the replay.
    fn part_from_all(&self) {
        self.parted.set(Some(reactor::now()));
        let live = self.live();
        self.state
            .borrow_mut()
            .replay_after
            .extend(live.iter().map(|in_use| in_use.number));
        live.iter().for_each(|in_use| in_use.link.reset());
    }

    /// Retires a lost connection: the claims of its changes are kept until none of the changes can be
    /// executed.
    fn retire(self: &Rc<Self>, lost: InUse<T::Link>, loss: &Loss) {
        let InUse {
            link,
            number,
            fences,
        } = lost;
        let is_used = |slot: &Slot<T::Link>| {
            slot.in_use
                .as_ref()
                .is_some_and(|used| used.number == number)
        };
        debug_assert!(
            !self.state.borrow().slots.iter().any(is_used),
            "no channel uses a retired connection"
        );
        self.record_loss(); // the link may have counted one
        match (fences, loss) {
            (true, _) => {
                link.reset();
                // The connection is named even without claims, because the server may still consider it open.
                let earlier = self
                    .state
                    .borrow_mut()
                    .unfenced
                    .insert(number, link.take_unanswered());
                debug_assert!(earlier.is_none(), "a connection is retired once");
            }
            (false, Loss::Ended(_)) => {
                link.reset();
                self.bury(link.take_unanswered());
            }
            // Late replies show that no request is in transit any more.
            (false, Loss::Silent) => {
                let quarantine = self.settings.quarantine;
                drop(reactor::spawn(async move {
                    let _ = reactor::timeout(quarantine, link.settled()).await;
                    link.reset();
                    let claims = link.take_unanswered();
                    if !claims.is_empty() {
                        reactor::sleep(quarantine).await;
                    }
                }));
            }
        }
    }

    /// Handles connections that the server could not terminate over the new connection's path: their claims
    /// are kept until another connection ends them, or the quarantine is over.
    async fn quarantine(self: &Rc<Self>, not_ended: &[u64]) {
        let quarantine = self.settings.quarantine;
        for number in not_ended.iter().copied() {
            let mut state = self.state.borrow_mut();
            if !state.unfenced.contains_key(&number) || !state.quarantined.insert(number) {
                continue;
            }
            let shared = Rc::clone(self);
            drop(reactor::spawn(async move {
                reactor::sleep(quarantine).await;
                let settled = shared.state.borrow_mut().fenced(number);
                drop(settled);
            }));
        }
        let is_awaited = not_ended
            .iter()
            .any(|number| self.state.borrow().replay_after.contains(number));
        if is_awaited {
            reactor::sleep(quarantine).await;
        }
    }

    /// Makes the server end a connection that no channel replaces, using a connection made for this purpose.
    async fn fence(self: &Rc<Self>, path: usize, number: u64) {
        while self.has_claims_of(number) {
            match self.connect(path).await {
                Ok(extra) => extra.link.leave(),
                Err(_) => reactor::sleep(RETURN).await,
            }
        }
    }

    fn has_claims_of(&self, number: u64) -> bool {
        let state = self.state.borrow();
        let has_ended = state.slots.is_empty(); // `leave` has taken them
        !has_ended
            && state
                .unfenced
                .get(&number)
                .is_some_and(|claims| !claims.is_empty())
    }

    /// Keeps claims until the quarantine is over.
    fn bury(&self, claims: Vec<Claim>) {
        if claims.is_empty() {
            return;
        }
        let quarantine = self.settings.quarantine;
        drop(reactor::spawn(async move {
            reactor::sleep(quarantine).await;
            drop(claims);
        }));
    }

    /// Waits until a channel's connection is lost. While it waits, a channel on another path tries to return
    /// to its preferred path.
    async fn watch(
        self: &Rc<Self>,
        slot: usize,
        mut in_use: InUse<T::Link>,
        mut path: usize,
    ) -> (InUse<T::Link>, Loss) {
        let own = slot % self.settings.paths.max(1);
        loop {
            if path == own || !self.settings.is_coherent {
                let loss = in_use.link.lost().await;
                return (in_use, loss);
            }
            match reactor::timeout(RETURN, in_use.link.lost()).await {
                Ok(loss) => return (in_use, loss),
                Err(_) => {
                    let Ok(back) = self.connect(own).await else {
                        continue;
                    };
                    let away = std::mem::replace(&mut in_use, back);
                    path = own;
                    self.publish(slot, path, in_use.clone());
                    tracing::info!(
                        path = self.transport.path_name(path),
                        "a channel is on its own path again"
                    );
                    away.link.leave();
                    self.state.borrow_mut().leaving.push(away.clone());
                    let shared = Rc::clone(self);
                    drop(reactor::spawn(async move {
                        let (loss, number) = (away.link.lost().await, away.number);
                        shared
                            .state
                            .borrow_mut()
                            .leaving
                            .retain(|other| other.number != number);
                        shared.retire(away, &loss);
                        shared.fence(own, number).await;
                    }));
                }
            }
        }
    }
}

/// The task of a channel.
pub(crate) async fn attend<T: Transport>(
    shared: Rc<Shared<T>>,
    slot: usize,
    first: Option<InUse<T::Link>>,
) {
    let mut backoff =
        Backoff::new(shared.settings.seed ^ (slot as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut connected = match first {
        Some(first) => {
            let path = shared
                .state
                .borrow()
                .slots
                .first()
                .map_or(0, |slot| slot.path);
            Some((first, path))
        }
        None => None,
    };
    let mut since = None;
    loop {
        let (in_use, path) = match connected.take() {
            Some(connected) => connected,
            None => {
                let (in_use, path) = shared.connected(slot, &mut backoff).await;
                shared.publish(slot, path, in_use.clone());
                (in_use, path)
            }
        };
        if let Some(since) = since {
            let outage = reactor::now().saturating_duration_since(since);
            let mut state = shared.state.borrow_mut();
            if let Some(slot) = state.slots.get_mut(slot) {
                slot.reconnects += 1;
                slot.longest_outage = slot.longest_outage.max(outage);
            }
            let path = shared.transport.path_name(path);
            tracing::info!(
                path,
                outage_ms = outage.as_millis() as u64,
                "a channel has reconnected"
            );
        }
        let connected_at = reactor::now();
        let (lost, loss) = shared.watch(slot, in_use, path).await;
        let lived = reactor::now().saturating_duration_since(connected_at);
        if lived > RETURN {
            backoff.reset();
        }
        since = Some(reactor::now());
        let path = {
            let mut state = shared.state.borrow_mut();
            let Some(slot) = state.slots.get_mut(slot) else {
                return;
            };
            let used = slot.in_use.as_ref().map(|in_use| in_use.number);
            debug_assert_eq!(
                used,
                Some(lost.number),
                "a channel loses the connection that it uses"
            );
            slot.in_use = None;
            slot.estimate = Estimate::default();
            slot.last_error = Some(loss.to_string());
            shared.transport.path_name(slot.path)
        };
        tracing::warn!(path, why = %loss, "a channel is lost");
        shared.retire(lost, &loss);
        if lived < BRIEF {
            // A server that accepts every connection and closes it immediately is not retried in a tight
            // loop.
            reactor::sleep(backoff.delay()).await;
        }
    }
}

// The journal after the server may have lost acknowledged changes: which ones are replayed.
//
// ```text
//                                  │ only this client writes │ not known            │ others also write
//   the cache is a different one   │ replayed                │ replayed             │ not replayed
//   the cache is the same          │ nothing was lost        │ nothing was lost     │ nothing was lost
//   the cache is unknown, and no   │ replayed                │ compared             │ compared
//   earlier connection answers     │                         │                      │
// ```
//
// A restart is not a loss: the page cache of a killed server survives. Writes that another host has since
// flushed must not be replaced by earlier writes of this client. Without evidence of a loss, the client
// therefore reads the blocks. A block with the content as written counts as not lost. A block with other content was
// either lost or replaced by another host, and nothing shows which. It is left unchanged, and the next flush
// fails, as without a journal. The exception is blocks that this client is changing at the time, unless other
// hosts are known to write. That change and another host's change have no defined order, so the earlier
// change to these blocks, and only to these, is replayed.
//
// With evidence of a loss, a comparison proves nothing: after a failed flush, Linux keeps the data in its
// cache, where it reads as written until the cache is dropped. If other hosts also write, all changes then
// count as lost. Without evidence, such a failure is only detected if the reply to the flush arrives.

/// Number of journal entries replayed concurrently.
const AT_ONCE: usize = 32;
/// A change is compared in pieces of up to this length, or of the server's maximum read length.
const PIECE_BYTES: u64 = 1 << 20;
/// Longer changes, which can only be zeros, are not compared: they count as missing.
const COMPARED_BYTES_MAX: u64 = 64 << 20;

/// Evidence whether the server has lost acknowledged changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// It reports a different cache than before.
    Loss,
    /// It reports the same cache, so it has lost nothing.
    Kept,
    /// It reports nothing about its cache.
    None,
}

impl Evidence {
    /// The evidence in the generations that a server has reported before and now.
    pub(crate) fn of(before: Option<u128>, now: Option<u128>) -> Evidence {
        match before.zip(now) {
            Some((before, now)) if before != now => Evidence::Loss,
            Some(_) => Evidence::Kept,
            None => Evidence::None,
        }
    }
}

type Change<T> = (Range<u64>, RequestOf<T>);

/// Whether the change promises content. That of deallocated blocks is undefined, so it cannot be lost.
fn promises_content<T: Transport>((_, change): &Change<T>) -> bool {
    !matches!(change.content(), Some(Content::Unmap))
}

/// The result of a comparison.
struct Compared<T: Transport> {
    /// Changes, or parts of them, to replay.
    again: Vec<Change<T>>,
    /// Number of changes, or parts of them, that were lost or replaced by another host.
    missing: usize,
}

/// The outcome of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replayed {
    /// The server has the whole content.
    Whole,
    /// Some of the content was lost or replaced by another host: the next flush fails.
    InPart,
}

impl<T: Transport> Shared<T> {
    /// Processes the journal before anything else is sent over this connection. `None` if the connection was
    /// lost.
    pub(crate) async fn replay(
        self: &Rc<Self>,
        link: &Rc<T::Link>,
        evidence: Evidence,
    ) -> Option<Replayed> {
        debug_assert!(
            self.state.borrow().has_changed,
            "without a change there is nothing to replay"
        );
        if self.ledger.borrow_mut().note_loss() {
            self.record_loss();
            tracing::warn!(
                "the server may have been restarted, and acknowledged writes may be lost"
            );
        }
        // Their later replies would come from the old instance of the server.
        std::mem::take(&mut self.state.borrow_mut().leaving)
            .iter()
            .for_each(|away| away.link.reset());
        let changes: Vec<Change<T>> = {
            let journal = self.journal.borrow();
            journal
                .changes()
                .map(|(range, change)| (range, change.clone()))
                .collect()
        };
        if changes.is_empty() {
            return Some(Replayed::Whole);
        }
        let all = changes.len();
        let Compared { again, missing } = match (self.settings.writers, evidence) {
            (Writers::One, _) | (Writers::Unknown, Evidence::Loss) => Compared {
                again: changes,
                missing: 0,
            },
            (Writers::Several, Evidence::Loss) => {
                let missing = changes
                    .iter()
                    .filter(|change| promises_content::<T>(change))
                    .count();
                Compared {
                    again: Vec::new(),
                    missing,
                }
            }
            (_, Evidence::Kept | Evidence::None) => self.compare(link, changes).await?,
        };
        if missing > 0 {
            tracing::warn!(
                changes = missing,
                "acknowledged writes were lost, or another host has replaced them: they are not replayed, and the \
                 next flush fails. If no other host writes here, writers=one enables replay"
            );
            self.count_loss();
        }
        if again.is_empty() {
            tracing::info!(changes = all, missing, "the journal was not replayed");
            return Some(if missing > 0 {
                Replayed::InPart
            } else {
                Replayed::Whole
            });
        }
        let refused = self.write_again(link, &again).await?;
        Some(if missing > 0 || refused > 0 {
            Replayed::InPart
        } else {
            Replayed::Whole
        })
    }

    /// Replays the changes. Returns the number that the server rejected.
    async fn write_again(
        self: &Rc<Self>,
        link: &Rc<T::Link>,
        changes: &[Change<T>],
    ) -> Option<usize> {
        let mut refused = 0;
        for some in changes.chunks(AT_ONCE) {
            let deadline = reactor::now() + self.settings.timeout; // for each request, not for the whole replay
            let mut sent = Vec::with_capacity(some.len());
            for (range, change) in some {
                let claim = self.claims.claim(range.clone());
                sent.push(reactor::spawn(link.exchange(
                    change,
                    Some(claim),
                    deadline,
                    None,
                )));
            }
            for answer in sent {
                match answer.await {
                    Ok(_) => {}
                    Err(Failed::Server(_)) => refused += 1,
                    Err(_) => return None,
                }
            }
        }
        if refused > 0 {
            self.count_loss();
        }
        let bytes: usize = changes
            .iter()
            .map(|(_, change)| change.memory_bytes())
            .sum();
        tracing::info!(
            changes = changes.len(),
            bytes,
            refused,
            "the journal was replayed: the server may have been restarted"
        );
        self.state.borrow_mut().replays += 1;
        Some(refused)
    }

    /// Reads the blocks of these changes from the server. `None` if the connection was lost.
    async fn compare(
        self: &Rc<Self>,
        link: &Rc<T::Link>,
        changes: Vec<Change<T>>,
    ) -> Option<Compared<T>> {
        let mut compared = Compared {
            again: Vec::new(),
            missing: 0,
        };
        let others_write = self.settings.writers == Writers::Several;
        let parts =
            changes
                .into_iter()
                .filter(promises_content::<T>)
                .flat_map(|(range, change)| {
                    let parts = self.claims.cut(&range).into_iter();
                    parts.map(move |(part, is_claimed)| {
                        debug_assert!(range.start <= part.start && part.end <= range.end);
                        let is_whole = part == range;
                        let change = if is_whole {
                            change.clone()
                        } else {
                            change.part(part.clone())
                        };
                        (part, change, is_claimed)
                    })
                });
        let mut parts = parts.peekable();
        while parts.peek().is_some() {
            let ask = |(range, change, is_claimed): (Range<u64>, RequestOf<T>, bool)| {
                let asked =
                    Rc::clone(self).is_there(Rc::clone(link), range.clone(), change.clone());
                (range, change, is_claimed, reactor::spawn(asked))
            };
            let asked: Vec<_> = parts.by_ref().take(AT_ONCE).map(ask).collect();
            for (range, change, is_claimed, is_there) in asked {
                match is_there.await? {
                    true => {}
                    // The newer, unanswered write may have been partly executed, and is resent after this.
                    // Writes by two hosts to the same block at the same time have no defined order. Until then
                    // the earlier change would replace what another host has written.
                    false if is_claimed && !others_write => compared.again.push((range, change)),
                    false => compared.missing += 1,
                }
            }
        }
        Some(compared)
    }

    /// Whether the server has the result of a change in these bytes. `None` if the connection was lost.
    async fn is_there(
        self: Rc<Self>,
        link: Rc<T::Link>,
        range: Range<u64>,
        change: RequestOf<T>,
    ) -> Option<bool> {
        if range.end - range.start > COMPARED_BYTES_MAX {
            return Some(false);
        }
        let longest = PIECE_BYTES.min(self.transport.read_bytes_max()).max(1);
        let mut at = range.start;
        while at < range.end {
            let piece = at..range.end.min(at + longest);
            at = piece.end;
            let deadline = reactor::now() + self.settings.timeout;
            match link
                .exchange(&self.transport.read(piece.clone()), None, deadline, None)
                .await
            {
                Ok(reply) if T::Link::shows(&change.part(piece), &reply) => {}
                Ok(_) | Err(Failed::Server(_)) => return Some(false),
                Err(_) => return None,
            }
        }
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_starts_are_evidence() {
        for (before, now, evidence) in [
            (Some(1), Some(2), Evidence::Loss),
            (Some(1), Some(1), Evidence::Kept),
            (None, Some(1), Evidence::None),
            (Some(1), None, Evidence::None),
            (None, None, Evidence::None),
        ] {
            assert_eq!(Evidence::of(before, now), evidence, "{before:?}, {now:?}");
        }
    }
}
