//! Sets in use: their state, and orders to them, from any thread. Whatever layers lie over a set, it is found here by its
//! specification. Its upkeep, on the thread that has opened it, carries orders out.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use block::{BlockDevice, Buffer, Durability, Extent, Pending, Slice, forward};
use raid::{Level, MemberState, RaidDevice};
use volume::backend::Backend;
use volume::spec::{Bytes, Spec};

use super::progress::{Scrubbing, Working};
use super::scrub::Scrub;
use super::status::{Condition, JournalStatus, MemberCondition, MemberStatus, SetState};
use super::{KINDS, named};
use crate::Failure;

static SETS: Mutex<Vec<Weak<Running>>> = Mutex::new(Vec::new());

/// The sets that a volume of this specification is made of, from the outermost on: those that were opened last as such.
pub fn opened(spec: &Spec) -> Vec<Arc<Running>> {
    let backend = spec.backend.as_ref();
    let is_set = KINDS.iter().any(|(kind, _)| kind.name == backend.kind().name);
    let own = is_set.then(|| found(&written(backend))).flatten();
    own.into_iter().chain(backend.members().iter().flat_map(opened)).collect()
}

fn found(written: &str) -> Option<Arc<Running>> {
    let sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    sets.iter().rev().filter_map(Weak::upgrade).find(|set| set.opened_as == written && set.is_used())
}

/// Ends once the sets that nobody uses any more are closed: what is recorded of them says so.
pub async fn closed() {
    loop {
        let all: Vec<_> = {
            let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
            sets.retain(|set| set.strong_count() > 0);
            sets.iter().filter_map(Weak::upgrade).collect()
        };
        let Some(set) = all.into_iter().find(|set| !set.is_used() && !set.state().has_ended) else { return };
        set.ended().await;
    }
}

/// Waits until a set that nobody uses any more is closed. Members on other machines have no locks that would keep a second user
/// in this process away.
///
/// # Errors
/// It is in use.
pub(super) async fn unused(uuid: &str) -> Result<(), Failure> {
    loop {
        let found = {
            let sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
            let is_it =
                |set: &Arc<Running>| set.facts.uuid.as_deref() == Some(uuid) && !set.state().has_ended;
            sets.iter().filter_map(Weak::upgrade).find(is_it)
        };
        match found {
            None => return Ok(()),
            Some(set) if set.is_used() => {
                return Err(Failure::in_use(format_args!(
                    "the set {uuid} is in use by another volume of this process"
                )));
            }
            Some(set) => set.ended().await,
        }
    }
}

/// Opens a set that nobody else uses, and has it do something.
///
/// # Errors
/// It does not start, or cannot do that.
pub async fn alone(spec: &Spec, order: Order) -> Result<String, Failure> {
    named(spec)?;
    let device = crate::open(spec).await.map_err(Failure::from)?;
    let set = opened(spec).into_iter().next();
    let set = set.ok_or_else(|| Failure::failed("the set has ended"))?;
    let (said, bytes) = (set.ask(order).await?, device.geometry().bytes());
    let mut grows = false;
    while set.state().is_growing {
        grows = true;
        reactor::sleep(LOOK_EVERY).await;
    }
    match (grows, device.geometry().bytes()) {
        (true, now) if now == bytes => Err(Failure::failed("the set has not grown: a member failed")),
        (true, now) => Ok(format!("the set has {} now", Bytes(now))),
        (false, _) => Ok(said),
    }
}

/// How often something that takes long is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A set up to its closing bracket, as it is written.
pub(super) fn written(backend: &dyn Backend) -> String {
    let members = backend.members().iter().map(ToString::to_string).collect::<Vec<_>>();
    written_with(backend.kind().name, &backend.argument(), &members)
}

fn written_with(kind: &str, argument: &str, members: &[String]) -> String {
    let colon = if argument.is_empty() { "" } else { ":" };
    format!("{kind}:{argument}{colon}[{}]", members.join(", "))
}

/// What a set in use can be told to do.
#[derive(Clone, Debug)]
pub enum Order {
    /// Take a member out.
    Fail {
        /// Its number.
        member: usize,
    },
    /// Put a volume in the place of a member that has failed, and rebuild it.
    Replace {
        /// The member's number.
        member: usize,
        /// The volume.
        with: Spec,
        /// What is on the volume may be lost.
        overwrites: bool,
    },
    /// Add a spare.
    Add {
        /// The volume.
        spare: Spec,
        /// What is on the volume may be lost.
        overwrites: bool,
    },
    /// Read and compare all of the set, beside its users.
    Scrub {
        /// What does not fit is made to.
        repairs: bool,
    },
    /// End the scrub that has begun.
    CancelScrub,
    /// Take new space of the members into use.
    Grow,
    /// End it: what is recorded says that no stripe is incomplete. Requests fail from then on.
    Close,
}

impl Order {
    /// The member that it is about.
    fn member(&self) -> Option<usize> {
        match self {
            Order::Fail { member } | Order::Replace { member, .. } => Some(*member),
            Order::Add { .. } | Order::Scrub { .. } | Order::CancelScrub | Order::Grow | Order::Close => None,
        }
    }
}

/// A set in use.
pub struct Running {
    pub(super) facts: Facts,
    /// As it was opened, up to the bracket.
    opened_as: String,
    device: Weak<RaidDevice>,
    /// Whether an upkeep takes orders.
    takes_orders: bool,
    /// Requests of users that have begun.
    requests: AtomicU64,
    state: Mutex<State>,
}

/// What does not change of a set.
pub(super) struct Facts {
    pub(super) kind: &'static str,
    pub(super) argument: String,
    pub(super) level: Level,
    pub(super) uuid: Option<String>,
    pub(super) name: String,
}

/// The names of the volumes of a set.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// All that the specification has, as they are written there.
    pub(super) written: Vec<String>,
    /// By member.
    pub(super) members: Vec<Option<String>>,
    /// Of the journal, if that is on a volume of its own.
    pub(super) journal: Option<String>,
    pub(super) spares: Vec<String>,
    /// Others have their places, and the specification still has them.
    pub(super) replaced: Vec<String>,
}

impl Names {
    pub(super) fn put_in_place(&mut self, member: usize, name: String) {
        if let Some(member) = self.members.get_mut(member) {
            self.replaced.extend(member.replace(name));
        }
    }

    /// Has the specification name `new`, and no volume that was replaced.
    pub(super) fn write(&mut self, new: &str) {
        let replaced = std::mem::take(&mut self.replaced);
        let is_old = |name: &String| name == new || replaced.contains(name);
        let at = self.written.iter().position(is_old).unwrap_or(self.written.len());
        self.written.retain(|name| !is_old(name));
        self.written.insert(at.min(self.written.len()), new.to_owned());
    }
}

pub(super) struct State {
    /// What people call it.
    label: String,
    pub(super) names: Names,
    pub(super) working: Option<Working>,
    pub(super) scrubbing: Option<Scrubbing>,
    pub(super) is_growing: bool,
    /// Why the last round of upkeep stopped.
    pub(super) trouble: Option<String>,
    /// A device of the set is with its users.
    is_used: bool,
    has_ended: bool,
    orders: VecDeque<Ordered>,
    /// The upkeep has something to look at.
    is_woken: bool,
    upkeep: Option<Waker>,
    /// What takes members out, whatever the upkeep waits for.
    taking_out: Option<Waker>,
    waiting_for_end: Vec<Waker>,
}

/// An order, and who waits for its outcome.
pub(super) struct Ordered {
    pub(super) order: Order,
    outcome: Arc<Mutex<Outcome>>,
}

#[derive(Default)]
struct Outcome {
    result: Option<Result<String, Failure>>,
    waker: Option<Waker>,
}

impl Ordered {
    pub(super) fn end(self, result: Result<String, Failure>) {
        self.set(result);
    }

    fn set(&self, result: Result<String, Failure>) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.result.get_or_insert(result);
        outcome.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl Drop for Ordered {
    fn drop(&mut self) {
        self.set(Err(Failure::failed("the set has ended")));
    }
}

impl Running {
    /// A set that is used from now on, and its device for users.
    pub(super) fn new(
        facts: Facts,
        names: Names,
        device: &Arc<RaidDevice>,
        takes_orders: bool,
    ) -> (Arc<Running>, Arc<dyn BlockDevice>) {
        let label = match (&facts.uuid, facts.name.is_empty()) {
            (_, false) => facts.name.clone(),
            (Some(uuid), true) => uuid.clone(),
            (None, true) => facts.kind.to_owned(),
        };
        let running = Arc::new(Running {
            opened_as: written_with(facts.kind, &facts.argument, &names.written),
            facts,
            device: Arc::downgrade(device),
            takes_orders,
            requests: AtomicU64::new(0),
            state: Mutex::new(State {
                label,
                names,
                working: None,
                scrubbing: None,
                is_growing: false,
                trouble: None,
                is_used: true,
                has_ended: !takes_orders,
                orders: VecDeque::new(),
                is_woken: false,
                upkeep: None,
                taking_out: None,
                waiting_for_end: Vec::new(),
            }),
        });
        let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
        sets.retain(|set| set.strong_count() > 0);
        sets.push(Arc::downgrade(&running));
        let in_use = InUse { set: Arc::clone(device), running: Arc::clone(&running) };
        (running, Arc::new(in_use))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lines of the log and of tables call it so from now on.
    pub fn called(&self, name: &str) {
        name.clone_into(&mut self.state().label);
    }

    pub(super) fn label(&self) -> String {
        self.state().label.clone()
    }

    /// The name of a member's volume, for people.
    pub(super) fn disk(&self, member: usize) -> String {
        let name = self.state().names.members.get(member).cloned().flatten();
        name.unwrap_or_else(|| "missing".to_owned())
    }

    /// The set up to its closing bracket, with the volumes that it has now: what the next start is to open.
    pub fn written(&self) -> String {
        written_with(self.facts.kind, &self.facts.argument, &self.state().names.written)
    }

    /// How it is.
    pub fn status(&self) -> SetState {
        let device = self.device.upgrade();
        let status = device.as_ref().map(|device| device.status());
        let stripes = device.as_ref().map_or(1, |device| device.layout().stripes().max(1));
        let state = self.state();
        let of_member = |(member, volume): (usize, &Option<String>)| {
            let found = status.as_ref().and_then(|status| status.states.members.get(member).copied());
            let (state, percent) = match found.unwrap_or(MemberState::Failed) {
                MemberState::InSync => (MemberCondition::InSync, None),
                MemberState::Rebuilding { done } => (MemberCondition::Rebuilding, Some(100 * done / stripes)),
                MemberState::Failed if volume.is_none() => (MemberCondition::Missing, None),
                MemberState::Failed => (MemberCondition::Failed, None),
            };
            let lost_blocks =
                status.as_ref().map_or(0, |status| status.lost_blocks.get(member).copied().unwrap_or(0));
            MemberStatus { volume: volume.clone(), state, percent, lost_blocks }
        };
        let members: Vec<MemberStatus> = state.names.members.iter().enumerate().map(of_member).collect();
        let has = |condition| members.iter().any(|member| member.state == condition);
        let is_serving = status.as_ref().is_some_and(|status| {
            !status.is_out_of_service && status.journal_copies.is_none_or(|copies| copies > 0)
        });
        let condition = match () {
            () if !is_serving => Condition::Failed,
            () if has(MemberCondition::Rebuilding) => Condition::Rebuilding,
            () if has(MemberCondition::Failed) || has(MemberCondition::Missing) => Condition::Degraded,
            () if status.as_ref().is_some_and(|status| status.unsynced_regions > 0) => {
                Condition::Synchronising
            }
            () if state.is_growing => Condition::Growing,
            () => Condition::Healthy,
        };
        SetState {
            uuid: self.facts.uuid.clone(),
            name: self.facts.name.clone(),
            level: self.facts.level.to_string(),
            state: condition,
            work: state.working.as_ref().map(Working::progress),
            members,
            journal: state.names.journal.clone().map(|volume| JournalStatus {
                volume: Some(volume),
                has_failed: status.is_none_or(|status| !status.is_journal_on_device),
            }),
            spares: state.names.spares.clone(),
            scrub: state.scrubbing.as_ref().map(Scrubbing::status),
            trouble: state.trouble.clone(),
        }
    }

    /// Has it do something; ends when that is done, or, of a rebuild or a scrub, when it has begun.
    ///
    /// # Errors
    /// It cannot be done, and why.
    pub async fn ask(&self, order: Order) -> Result<String, Failure> {
        if !self.takes_orders {
            return Err(Failure::refused("the set is only read"));
        }
        let outcome: Arc<Mutex<Outcome>> = Arc::default();
        let ordered = Ordered { order, outcome: Arc::clone(&outcome) };
        {
            let mut state = self.state();
            if state.has_ended {
                return Err(Failure::failed("the set has ended"));
            }
            state.orders.push_back(ordered);
        }
        let _given_up = GivenUp(self, Arc::clone(&outcome));
        self.wake();
        poll_fn(|cx| {
            let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
            match outcome.result.take() {
                Some(result) => Poll::Ready(result),
                None => {
                    outcome.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Ends it ([`Order::Close`]), unless that is done.
    ///
    /// # Errors
    /// A member fails. The set is synchronised, or replays its journal, when it is opened next.
    pub async fn close(&self) -> Result<(), Failure> {
        match self.takes_orders && !self.state().has_ended {
            true => self.ask(Order::Close).await.map(drop),
            false => Ok(()),
        }
    }

    /// What the scrub that was asked for last has found, once it has ended.
    pub fn scrubbed(&self) -> Option<Scrub> {
        self.state()
            .scrubbing
            .as_ref()
            .filter(|scrubbing| scrubbing.has_ended)
            .map(|scrubbing| scrubbing.found.clone())
    }

    /// How many requests of users have begun.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn is_used(&self) -> bool {
        self.state().is_used
    }

    /// Whether the upkeep is to stop what takes long.
    pub(super) fn is_interrupted(&self) -> bool {
        let state = self.state();
        !state.is_used || !state.orders.is_empty()
    }

    pub(super) fn next_order(&self) -> Option<Ordered> {
        self.state().orders.pop_front()
    }

    fn wake(&self) {
        let mut state = self.state();
        state.is_woken = true;
        let waiting = [state.upkeep.take(), state.taking_out.take()];
        drop(state);
        waiting.into_iter().flatten().for_each(Waker::wake);
    }

    /// The next order to take a member out, as soon as there is one: before others, but for those about the same member.
    pub(super) async fn next_to_take_out(&self) -> Ordered {
        poll_fn(|cx| {
            let mut state = self.state();
            let at = state.orders.iter().enumerate().position(|(at, ordered)| {
                let is_of = |before: &Ordered| {
                    before.order.member().is_some_and(|of| ordered.order.member() == Some(of))
                };
                matches!(ordered.order, Order::Fail { .. }) && !state.orders.iter().take(at).any(is_of)
            });
            match at.and_then(|at| state.orders.remove(at)) {
                Some(ordered) => Poll::Ready(ordered),
                None => {
                    state.taking_out = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Ends after this time, or when there is an order, or no user any more.
    pub(super) async fn woken(&self, sleeper: &dyn block::Sleeper, time: Duration) {
        let mut sleep = sleeper.sleep(time);
        poll_fn(|cx| {
            let mut state = self.state();
            let is_woken = std::mem::take(&mut state.is_woken);
            if is_woken || !state.is_used || !state.orders.is_empty() {
                return Poll::Ready(());
            }
            state.upkeep = Some(cx.waker().clone());
            drop(state);
            sleep.as_mut().poll(cx)
        })
        .await;
    }

    async fn ended(&self) {
        poll_fn(|cx| {
            let mut state = self.state();
            if state.has_ended {
                return Poll::Ready(());
            }
            state.waiting_for_end.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Nobody looks after it any more.
    pub(super) fn end(&self) {
        let (orders, waiting) = {
            let mut state = self.state();
            (state.has_ended, state.is_growing) = (true, false);
            (std::mem::take(&mut state.orders), std::mem::take(&mut state.waiting_for_end))
        };
        drop(orders);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// A set with its users, whose end its upkeep learns.
struct InUse {
    set: Arc<RaidDevice>,
    running: Arc<Running>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.running.state().is_used = false;
        self.running.wake();
    }
}

impl InUse {
    /// The set, for a request that moves data: upkeep slows down beside these.
    fn counted(&self) -> &RaidDevice {
        self.running.requests.fetch_add(1, Ordering::Relaxed);
        &self.set
    }
}

impl BlockDevice for InUse {
    forward!(self => self.set; geometry, profile, memory, memory_to_write, flush, losses, allocation, space, allocated_bytes, refresh, grow, take_os_error, quiesced);

    fn read_nowait(&self, extent: Extent, buffer: &mut [u8]) -> bool {
        self.counted().read_nowait(extent, buffer)
    }

    fn write_nowait(&self, extent: Extent, data: &[u8]) -> bool {
        self.counted().write_nowait(extent, data)
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        self.counted().read(extent, buffer)
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        self.counted().write(extent, data, durability)
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.counted().unmap(extent)
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        self.counted().write_zeroes(extent, may_unmap)
    }
}

/// Who waits no longer takes an order back that has not begun.
struct GivenUp<'a>(&'a Running, Arc<Mutex<Outcome>>);

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        self.0.state().orders.retain(|ordered| !Arc::ptr_eq(&ordered.outcome, &self.1));
    }
}
