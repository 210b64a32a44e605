//! Sets in use: their state, and orders to them, from any thread. A set can be found even if layers are above
//! it. The set's upkeep task, on the thread that opened the set, executes the orders.

use std::collections::VecDeque;
use std::future::{poll_fn, ready};
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use block::{
    BlockDevice, Buffer, DeviceError, Durability, Extent, Geometry, Pending, Profile, Run,
    SingleUser, Slice,
};
use raid::disks::Records;
use raid::{Level, MemberState, MemberStates, RaidDevice};
use volume::backend::Layers;
use volume::spec::{Bytes, Spec};

use crate::failure::Failure;
use crate::raid::state::{
    Condition, JournalStatus, MemberCondition, MemberStatus, Scrub, Scrubbing, SetState, Working,
};
use crate::raid::{named, written_with};

static SETS: Mutex<Vec<Weak<Running>>> = Mutex::new(Vec::new());

/// Returns the sets of a volume, starting with the outermost. `layers` are the layers that registered when
/// the volume was opened.
pub fn sets(layers: &Layers) -> Vec<Arc<Running>> {
    layers
        .of::<Running>()
        .into_iter()
        .filter(|set| set.is_used() || !set.state().has_ended)
        .collect()
}

/// Opens a set for one user. Also returns the open sets within it, so that the user can give them orders.
///
/// # Errors
/// The set cannot start.
pub async fn open(spec: &Spec) -> Result<(Arc<dyn BlockDevice>, Vec<Arc<Running>>), Failure> {
    let opening = crate::opening();
    let device = spec.open(&opening).await.map_err(Failure::from)?;
    Ok((Arc::new(SingleUser::new(device)), sets(&opening.layers)))
}

/// Resolves once all sets without users are closed and their records mark them as clean.
pub async fn closed() {
    loop {
        let all: Vec<_> = {
            let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
            sets.retain(|set| set.strong_count() > 0);
            sets.iter().filter_map(Weak::upgrade).collect()
        };
        let Some(set) = all
            .into_iter()
            .find(|set| !set.is_used() && !set.state().has_ended)
        else {
            return;
        };
        set.ended().await;
    }
}

/// Waits until a set without users is closed. This check is necessary because members on other hosts have no
/// locks that exclude a second user in this process. `stopped` is the set itself, when it restarts.
///
/// # Errors
/// The set is in use.
pub(super) async fn unused(uuid: &str, stopped: Option<&Running>) -> Result<(), Failure> {
    loop {
        let found = {
            let sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
            let is_stopped = |set: &Arc<Running>| {
                stopped.is_some_and(|stopped| ptr::eq(stopped, Arc::as_ptr(set)))
            };
            let is_it = |set: &Arc<Running>| {
                set.facts.uuid.as_deref() == Some(uuid)
                    && !is_stopped(set)
                    && !set.state().has_ended
            };
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

/// Opens a set for exclusive use and executes one order.
///
/// # Errors
/// The set cannot start, or the order fails.
pub async fn alone(spec: &Spec, order: Order) -> Result<String, Failure> {
    named(spec)?;
    let (device, sets) = open(spec).await?;
    let set = sets.into_iter().next();
    let set = set.ok_or_else(|| Failure::failed("the set has ended"))?;
    let (said, bytes) = (set.ask(order).await?, device.geometry().bytes());
    let mut grows = false;
    while set.state().is_growing {
        grows = true;
        reactor::sleep(LOOK_EVERY).await;
    }
    match (grows, device.geometry().bytes()) {
        (true, now) if now == bytes => {
            Err(Failure::failed("the set did not grow: a member failed"))
        }
        (true, now) => Ok(format!("the set now has {}", Bytes(now))),
        (false, _) => Ok(said),
    }
}

/// Interval at which the progress of long operations is checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Orders to a set in use.
#[derive(Clone, Debug)]
pub enum Order {
    /// Mark a member as failed, and stop using it.
    Fail {
        /// The member's number.
        member: usize,
    },
    /// Replace a failed member, and rebuild it.
    Replace {
        /// The member's number.
        member: usize,
        /// The volume.
        with: Spec,
        /// Whether the content of the volume may be overwritten.
        overwrites: bool,
    },
    /// Add a spare.
    Add {
        /// The volume.
        spare: Spec,
        /// Whether the content of the volume may be overwritten.
        overwrites: bool,
    },
    /// Read and compare the whole set while it is in use.
    Scrub {
        /// Whether to repair inconsistent stripes.
        repairs: bool,
    },
    /// Cancel the current scrub.
    CancelScrub,
    /// Add new space of the members to the set.
    Grow,
    /// Restart the set, if it has stopped.
    Assemble,
    /// Close the set, and record that no stripe is incomplete. Later requests fail.
    Close,
}

impl Order {
    /// Returns the member that the order concerns, if it concerns one.
    fn member(&self) -> Option<usize> {
        match self {
            Order::Fail { member } | Order::Replace { member, .. } => Some(*member),
            Order::Add { .. }
            | Order::Scrub { .. }
            | Order::CancelScrub
            | Order::Grow
            | Order::Assemble
            | Order::Close => None,
        }
    }
}

/// A set in use.
pub struct Running {
    pub(super) facts: Facts,
    current: Weak<Current>,
    /// Whether the set has an upkeep task, which executes orders.
    takes_orders: bool,
    /// Number of user requests started.
    requests: AtomicU64,
    state: Mutex<State>,
}

/// The constant properties of a set.
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
    /// The names of all volumes in the specification, as written there.
    pub(super) written: Vec<String>,
    /// The names of the members' volumes, by member number.
    pub(super) members: Vec<Option<String>>,
    /// The name of the journal's volume, if the journal is on a separate volume.
    pub(super) journal: Option<String>,
    pub(super) spares: Vec<String>,
    /// Replaced volumes that are still in the specification.
    pub(super) replaced: Vec<String>,
}

impl Names {
    pub(super) fn put_in_place(&mut self, member: usize, name: String) {
        debug_assert!(member < self.members.len(), "the member is one of the set");
        if let Some(member) = self.members.get_mut(member) {
            self.replaced.extend(member.replace(name));
        }
    }

    /// Puts `new` into the specification, and removes replaced volumes. Removes only one occurrence of each,
    /// because RAM volumes can have equal specifications.
    pub(super) fn write(&mut self, new: &str) {
        let mut place = self.written.len();
        for replaced in std::mem::take(&mut self.replaced) {
            if let Some(at) = self.written.iter().position(|name| *name == replaced) {
                self.written.remove(at);
                place = at;
            }
        }
        let is_there = self
            .members
            .iter()
            .flatten()
            .chain(&self.spares)
            .filter(|name| *name == new)
            .count();
        if self.written.iter().filter(|name| *name == new).count() < is_there {
            self.written
                .insert(place.min(self.written.len()), new.to_owned());
        }
    }
}

/// A set, and its records if it has any.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) set: Arc<RaidDevice>,
    /// `None` for a set of volatile members.
    pub(super) records: Option<Arc<Records>>,
}

/// The assembly that serves the set's users. While the set is stopped, there is none. When the set restarts,
/// the new assembly replaces the old one.
pub(super) struct Current(RwLock<Now>);

struct Now {
    parts: Option<Parts>,
    /// The assembly that was stopped, until none of its requests can still reach a member.
    ending: Option<Arc<RaidDevice>>,
    geometry: Geometry,
    profile: Profile,
    /// Number of earlier assemblies. Each may have lost acknowledged writes that were not flushed, so each
    /// counts as a loss.
    losses: u64,
}

impl Current {
    fn now(&self) -> RwLockReadGuard<'_, Now> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn parts(&self) -> Result<Parts, DeviceError> {
        self.now().parts.clone().ok_or(DeviceError::NotReady)
    }

    fn set(&self) -> Result<Arc<RaidDevice>, DeviceError> {
        self.now()
            .parts
            .as_ref()
            .map(|parts| Arc::clone(&parts.set))
            .ok_or(DeviceError::NotReady)
    }

    /// Detaches a stopped assembly from the set's users: no new request starts on it.
    pub(super) fn stop(&self) {
        let mut now = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(Parts { set, .. }) = now.parts.take() {
            (now.geometry, now.profile) = (set.geometry(), set.profile());
            now.losses += set.losses().count() + u64::from(set.profile().volatile_cache);
            debug_assert!(
                now.ending.is_none(),
                "a set stops after the previous one has ended"
            );
            now.ending = Some(set);
        }
    }

    /// Records that no request of the stopped assembly is outstanding, so that its members may be used again.
    pub(super) fn stopped(&self) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .ending = None;
    }

    /// Attaches the next assembly to the set's users.
    ///
    /// # Errors
    /// The assembly does not match the device that users have.
    pub(super) fn start(&self, parts: Parts) -> Result<(), Failure> {
        let mut now = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let geometry = parts.set.geometry();
        if geometry.block_size != now.geometry.block_size || geometry.blocks < now.geometry.blocks {
            return Err(Failure::refused("the set is shorter than it was"));
        }
        debug_assert!(
            now.parts.is_none() && now.ending.is_none(),
            "a set starts when the previous one has ended"
        );
        now.parts = Some(parts);
        Ok(())
    }
}

/// The reason why a set has stopped, and the state of its members.
#[derive(Clone)]
pub(super) struct Stopped {
    pub(super) states: MemberStates,
    pub(super) why: String,
}

pub(super) struct State {
    /// The set's display name.
    label: String,
    pub(super) names: Names,
    /// The names of all volumes in the configuration's specification.
    configured: Vec<String>,
    pub(super) working: Option<Working>,
    pub(super) scrubbing: Option<Scrubbing>,
    pub(super) is_growing: bool,
    /// The reason why the last round of upkeep stopped.
    pub(super) trouble: Option<String>,
    /// Whether the set's device has users.
    is_used: bool,
    has_ended: bool,
    pub(super) stopped: Option<Stopped>,
    orders: VecDeque<Ordered>,
    /// Whether the upkeep has pending work.
    is_woken: bool,
    upkeep: Option<Waker>,
    /// Wakes the task that removes members, even while the upkeep waits.
    taking_out: Option<Waker>,
    waiting_for_end: Vec<Waker>,
}

/// An order, and the channel for its outcome, for which the requester waits.
pub(super) struct Ordered {
    pub(super) order: Order,
    outcome: Arc<Mutex<Outcome>>,
}

/// An order whose outcome is pending. Dropping it withdraws the order, unless the order has started.
pub struct PendingOrder {
    set: Arc<Running>,
    outcome: Arc<Mutex<Outcome>>,
}

impl PendingOrder {
    /// Withdraws the order. Returns false, without effect, if it has started.
    pub fn withdraw(&self) -> bool {
        let mut state = self.set.state();
        let queued = state.orders.len();
        state
            .orders
            .retain(|ordered| !Arc::ptr_eq(&ordered.outcome, &self.outcome));
        state.orders.len() < queued
    }
}

impl Future for PendingOrder {
    type Output = Result<String, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                outcome.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for PendingOrder {
    fn drop(&mut self) {
        self.withdraw();
    }
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
    /// Creates the state of a set in use, and the device for its users.
    pub(super) fn new(
        facts: Facts,
        names: Names,
        parts: Parts,
        takes_orders: bool,
    ) -> (Arc<Running>, Arc<Current>, Arc<dyn BlockDevice>) {
        let label = match (&facts.uuid, facts.name.is_empty()) {
            (_, false) => facts.name.clone(),
            (Some(uuid), true) => uuid.clone(),
            (None, true) => facts.kind.to_owned(),
        };
        let (geometry, profile) = (parts.set.geometry(), parts.set.profile());
        let now = Now {
            parts: Some(parts),
            ending: None,
            geometry,
            profile,
            losses: 0,
        };
        let current = Arc::new(Current(RwLock::new(now)));
        let running = Arc::new(Running {
            facts,
            current: Arc::downgrade(&current),
            takes_orders,
            requests: AtomicU64::new(0),
            state: Mutex::new(State {
                label,
                configured: names.written.clone(),
                names,
                working: None,
                scrubbing: None,
                is_growing: false,
                trouble: None,
                is_used: true,
                has_ended: !takes_orders,
                stopped: None,
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
        let in_use = InUse {
            current: Arc::clone(&current),
            running: Arc::clone(&running),
        };
        (running, current, Arc::new(in_use))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the name that the log and tables use from now on.
    pub fn called(&self, name: &str) {
        name.clone_into(&mut self.state().label);
    }

    pub(super) fn label(&self) -> String {
        self.state().label.clone()
    }

    /// Returns the display name of a member's volume.
    pub(super) fn disk(&self, member: usize) -> String {
        let name = self.state().names.members.get(member).cloned().flatten();
        name.unwrap_or_else(|| "missing".to_owned())
    }

    /// Returns the specification of the set up to its closing bracket, with its current volumes. The next
    /// start needs it.
    pub(super) fn written(&self) -> String {
        written_with(
            self.facts.kind,
            &self.facts.argument,
            &self.state().names.written,
        )
    }

    /// If orders have changed the specification since the last call (or since the set was opened), returns
    /// the old and the new specification up to the closing bracket. The caller replaces the old one in the
    /// configuration.
    pub fn rewritten(&self) -> Option<[String; 2]> {
        let mut state = self.state();
        let after = state.names.written.clone();
        let before = std::mem::replace(&mut state.configured, after.clone());
        let text = |names: &[String]| written_with(self.facts.kind, &self.facts.argument, names);
        (before != after).then(|| [text(&before), text(&after)])
    }

    /// Returns the set's status.
    pub fn status(&self) -> SetState {
        let device = self
            .current
            .upgrade()
            .and_then(|current| current.set().ok());
        let status = device.as_ref().map(|device| device.status());
        let stripes = device
            .as_ref()
            .map_or(1, |device| device.layout().stripes().max(1));
        let state = self.state();
        let states = status.as_ref().map(|status| &status.states);
        let states = states.or(state.stopped.as_ref().map(|stopped| &stopped.states));
        let of_member = |(member, volume): (usize, &Option<String>)| {
            let found = states.and_then(|states| states.members.get(member).copied());
            let (state, percent) = match found.unwrap_or(MemberState::Failed) {
                MemberState::InSync => (MemberCondition::InSync, None),
                MemberState::Rebuilding { done } => {
                    (MemberCondition::Rebuilding, Some(100 * done / stripes))
                }
                MemberState::Failed if volume.is_none() => (MemberCondition::Missing, None),
                MemberState::Failed => (MemberCondition::Failed, None),
            };
            let lost_blocks = status.as_ref().map_or(0, |status| {
                status.lost_blocks.get(member).copied().unwrap_or(0)
            });
            let is_noted = status
                .as_ref()
                .is_some_and(|status| status.missed_regions.is_some());
            let missed_regions_recorded =
                is_noted && matches!(state, MemberCondition::Failed | MemberCondition::Missing);
            MemberStatus {
                volume: volume.clone(),
                state,
                percent,
                lost_blocks,
                missed_regions_recorded,
            }
        };
        let members: Vec<MemberStatus> = state
            .names
            .members
            .iter()
            .enumerate()
            .map(of_member)
            .collect();
        let has = |condition| members.iter().any(|member| member.state == condition);
        let is_serving = status.as_ref().is_some_and(|status| {
            !status.is_out_of_service && status.journal_copies.is_none_or(|copies| copies > 0)
        });
        let condition = match () {
            () if !is_serving => Condition::Failed,
            () if has(MemberCondition::Rebuilding) => Condition::Rebuilding,
            () if has(MemberCondition::Failed) || has(MemberCondition::Missing) => {
                Condition::Degraded
            }
            () if status
                .as_ref()
                .is_some_and(|status| status.unsynced_regions > 0) =>
            {
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
            why: state.stopped.as_ref().map(|stopped| stopped.why.clone()),
            scrub: state.scrubbing.as_ref().map(Scrubbing::status),
            trouble: state.trouble.clone(),
        }
    }

    /// Executes an order. Resolves when the order is complete, or, for a rebuild or a scrub, when it has
    /// started.
    ///
    /// # Errors
    /// Returns the reason why the order cannot be executed.
    pub async fn ask(self: &Arc<Self>, order: Order) -> Result<String, Failure> {
        self.order(order)?.await
    }

    /// Like [`Running::ask`], for a requester that may stop waiting.
    ///
    /// # Errors
    /// The set takes no orders.
    pub fn order(self: &Arc<Self>, order: Order) -> Result<PendingOrder, Failure> {
        if !self.takes_orders {
            return Err(Failure::refused("the set is only read"));
        }
        let outcome: Arc<Mutex<Outcome>> = Arc::default();
        let ordered = Ordered {
            order,
            outcome: Arc::clone(&outcome),
        };
        {
            let mut state = self.state();
            if state.has_ended {
                return Err(Failure::failed("the set has ended"));
            }
            state.orders.push_back(ordered);
        }
        self.wake();
        Ok(PendingOrder {
            set: Arc::clone(self),
            outcome,
        })
    }

    /// Closes the set ([`Order::Close`]), unless it is already closed.
    ///
    /// # Errors
    /// A member fails. When the set is next opened, it then resynchronises or replays its journal.
    pub async fn close(self: &Arc<Self>) -> Result<(), Failure> {
        match self.takes_orders && !self.state().has_ended {
            true => self.ask(Order::Close).await.map(drop),
            false => Ok(()),
        }
    }

    /// Returns the findings of the scrub that was requested last, once it has completed.
    pub fn scrubbed(&self) -> Option<Scrub> {
        self.state()
            .scrubbing
            .as_ref()
            .filter(|scrubbing| scrubbing.has_ended)
            .map(|scrubbing| scrubbing.found.clone())
    }

    /// Returns the number of user requests started.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn is_used(&self) -> bool {
        self.state().is_used
    }

    /// Returns whether the upkeep must interrupt long operations.
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

    /// Waits for the next order to remove a member, and returns it. The order overtakes others, except those
    /// for the same member.
    pub(super) async fn next_to_take_out(&self) -> Ordered {
        poll_fn(|cx| {
            let mut state = self.state();
            let at = state.orders.iter().enumerate().position(|(at, ordered)| {
                let is_of = |before: &Ordered| {
                    before
                        .order
                        .member()
                        .is_some_and(|of| ordered.order.member() == Some(of))
                };
                matches!(ordered.order, Order::Fail { .. })
                    && !state.orders.iter().take(at).any(is_of)
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

    /// Resolves after this time, or earlier if an order arrives or the last user is dropped.
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

    /// Records that the upkeep has ended, and fails outstanding orders.
    pub(super) fn end(&self) {
        let (orders, waiting) = {
            let mut state = self.state();
            debug_assert!(!state.has_ended, "a set ends once");
            (state.has_ended, state.is_growing) = (true, false);
            (
                std::mem::take(&mut state.orders),
                std::mem::take(&mut state.waiting_for_end),
            )
        };
        drop(orders);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// The device that the set's users access. Dropping it notifies the upkeep.
struct InUse {
    current: Arc<Current>,
    running: Arc<Running>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut state = self.running.state();
        debug_assert!(state.is_used, "the users of a set leave once");
        state.is_used = false;
        drop(state);
        self.running.wake();
    }
}

impl InUse {
    /// Returns the current assembly for a request that moves data, and counts the request. Upkeep slows down
    /// while such requests start.
    fn counted(&self) -> Result<Arc<RaidDevice>, DeviceError> {
        self.running.requests.fetch_add(1, Ordering::Relaxed);
        self.current.set()
    }

    /// Sends a request to the current assembly.
    fn asked<'a, T: 'a>(
        set: Result<Arc<RaidDevice>, DeviceError>,
        request: impl for<'b> FnOnce(&'b RaidDevice) -> Pending<'b, T> + 'a,
    ) -> Pending<'a, T> {
        Box::pin(async move { request(&*set?).await })
    }
}

impl BlockDevice for InUse {
    fn geometry(&self) -> Geometry {
        let now = self.current.now();
        now.parts
            .as_ref()
            .map_or(now.geometry, |parts| parts.set.geometry())
    }

    fn profile(&self) -> Profile {
        let now = self.current.now();
        now.parts
            .as_ref()
            .map_or(now.profile, |parts| parts.set.profile())
    }

    fn losses(&self) -> block::Losses {
        let now = self.current.now();
        let own = block::Losses::counted(now.losses);
        now.parts
            .as_ref()
            .map_or(own, |parts| own.and(parts.set.losses()))
    }

    fn resolve_losses(&self) -> Pending<'_, ()> {
        InUse::asked(self.current.set(), |set| set.resolve_losses())
    }

    fn losses_recorded(&self, count: u64) {
        let now = self.current.now();
        if let Some(parts) = &now.parts {
            parts.set.losses_recorded(count.saturating_sub(now.losses));
        }
    }

    fn take_os_error(&self) -> Option<i32> {
        self.current.set().ok()?.take_os_error()
    }

    fn read_nowait(&self, extent: Extent, buffer: &mut [u8]) -> bool {
        self.counted()
            .is_ok_and(|set| set.read_nowait(extent, buffer))
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        match self.counted() {
            Ok(set) => set.read_shared(extent, buffer),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        match self.counted() {
            Ok(set) => set.write_shared(extent, data, durability),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn flush(&self) -> Pending<'_, ()> {
        InUse::asked(self.current.set(), |set| set.flush())
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        InUse::asked(self.counted(), move |set| set.unmap(extent))
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        InUse::asked(self.counted(), move |set| {
            set.write_zeroes(extent, may_unmap)
        })
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        InUse::asked(self.current.set(), move |set| {
            set.allocation(extent, runs_max)
        })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        let ending = self.current.now().ending.clone();
        match self.current.set().ok().or(ending) {
            Some(set) => InUse::asked(Ok(set), |set| set.quiesced()),
            None => Box::pin(ready(Ok(()))),
        }
    }
}
