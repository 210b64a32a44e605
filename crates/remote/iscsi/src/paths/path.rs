//! One path: a separate session with the LUN. When the session is lost, the path is abandoned and not
//! recovered.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use block::{
    BlockDevice, Buffer, DeviceError, Durability, Extent, LossCounter, PAGE_BYTES, Run, Slice,
};
use failover::{Claim, Content, Failed, LIMITS_MAX, Late, Link, Loss, RequestKind};
use scsi::{AccessState, PortGroup};

use crate::lun::RemoteLun;
use crate::session::Session;

/// Data about the LUN that all paths share.
#[derive(Debug, Default)]
pub(crate) struct Common {
    /// Capacity in blocks. It is atomic because a LUN may grow while it is in use.
    pub(crate) blocks: AtomicU64,
    /// Losses of acknowledged writes, on any path.
    pub(crate) losses: LossCounter,
}

/// Interval at which the access state of an unusable path is queried.
const ACCESS_TICK: Duration = Duration::from_secs(1);
/// Interval at which the access state of usable paths is queried, in multiples of [`ACCESS_TICK`]. It is
/// queried because a target need not report a change.
const ACCESS_TICKS: u64 = 5;

/// Interval at which a request past its deadline is checked.
const LOOK: Duration = Duration::from_secs(1);

/// A session with the LUN.
pub(crate) struct Path {
    session: Rc<Session>,
    lun: RemoteLun,
    common: Arc<Common>,
    /// The numbers of resets and losses reported by the target before the session started.
    told: (u64, u64),
    /// The target port group of the session's port, if the target reports access states (ALUA).
    group: Option<u16>,
    inner: RefCell<Inner>,
}

struct Inner {
    loss: Option<Loss>,
    is_leaving: bool,
    /// Number of outstanding requests.
    outstanding: usize,
    /// Claims of changes that may still be outstanding.
    claims: BTreeMap<u64, Claim>,
    next_claim: u64,
    rank: Option<u8>,
    /// Whether a query of the access state is outstanding.
    is_asking: bool,
    watching: Vec<Waker>,
}

impl Path {
    /// Creates a path on a logged-in session. `access` contains its target port group and its rank, if the
    /// target reports them.
    pub(crate) fn begin(
        session: Rc<Session>,
        lun: RemoteLun,
        common: Arc<Common>,
        access: Option<(u16, Option<u8>)>,
    ) -> Rc<Path> {
        let (group, rank) = access.map_or((None, Some(0)), |(group, rank)| (Some(group), rank));
        let inner = Inner {
            loss: None,
            is_leaving: false,
            outstanding: 0,
            claims: BTreeMap::new(),
            next_claim: 0,
            rank,
            is_asking: false,
            watching: Vec::new(),
        };
        session.inner().resets_lost = true;
        let told = lun.cache_events();
        let path = Rc::new(Path {
            session,
            lun,
            common,
            told,
            group,
            inner: RefCell::new(inner),
        });
        drop(reactor::spawn(attend(Rc::clone(&path))));
        if path.group.is_some() {
            drop(reactor::spawn(look_at_access(Rc::downgrade(&path))));
        }
        path
    }

    async fn watch<R>(&self, ready: impl Fn(&Inner) -> Option<R>) -> R {
        failover::watch(&self.inner, |inner| &mut inner.watching, ready).await
    }

    /// Marks the path as lost. If it is already lost, the first reason is kept.
    fn lose(&self, loss: Loss) {
        let mut inner = self.inner.borrow_mut();
        inner.loss.get_or_insert(loss);
        inner.wake();
    }

    /// Executes a request that was sent over this path.
    async fn carry_out(
        self: Rc<Self>,
        asked: Asked,
        claim: Option<u64>,
    ) -> Result<Returned, Failed<DeviceError>> {
        let answer = asked.carry_out(&self.lun).await;
        // Here, the session's commands have no final timeout: each stays outstanding until the target has
        // completed or aborted it. So a failed request is no longer outstanding, unless the session or one of
        // its connections is lost and the target has not terminated the requests sent over it.
        let has_ended = answer.is_ok() || self.session.inner().state().is_settled();
        let is_over = answer.is_err() && self.session.inner().is_over();
        self.look_for_news();
        let mut inner = self.inner.borrow_mut();
        let settled = claim
            .filter(|_| has_ended)
            .and_then(|claim| inner.claims.remove(&claim));
        debug_assert!(inner.outstanding > 0);
        inner.outstanding -= 1;
        if inner.outstanding == 0 || inner.claims.is_empty() {
            inner.wake();
        }
        let (is_lost, is_usable) = (
            inner.loss.is_some() || is_over || !has_ended,
            inner.rank.is_some(),
        );
        drop(inner);
        drop(settled);
        let is_probe = matches!(asked.what, What::Probe);
        match answer {
            _ if is_lost => Err(Failed::Lost),
            // The path is currently unusable.
            Err(DeviceError::NotReady) if !is_usable && !is_probe => Err(Failed::Lost),
            Err(error) => Err(Failed::Server(error)),
            Ok(returned) => Ok(returned),
        }
    }

    /// Processes events that the target has reported: growth, resets, losses, and changes of the access
    /// state.
    fn look_for_news(self: &Rc<Self>) {
        self.common
            .blocks
            .fetch_max(self.lun.geometry().blocks.0, Relaxed);
        let (resets, losses) = self.lun.cache_events();
        debug_assert!(
            resets >= self.told.0 && losses >= self.told.1,
            "reports are counted upwards"
        );
        if resets != self.told.0 {
            // The writes that the unit has lost from its cache are in the journal, which is replayed before
            // anything else is sent.
            self.lose(Loss::Ended("the logical unit was reset".to_owned()));
        } else if losses != self.told.1 {
            self.common.losses.count();
            self.lose(Loss::Ended(
                "the target has lost acknowledged writes".to_owned(),
            ));
        }
        if self.lun.take_access_changed() {
            self.inner.borrow_mut().rank = None; // unknown until it has been queried
            let path = Rc::clone(self);
            drop(reactor::spawn(async move { path.ask_for_access().await }));
        }
    }

    async fn ask_for_access(&self) {
        let Some(group) = self
            .group
            .filter(|_| !std::mem::replace(&mut self.inner.borrow_mut().is_asking, true))
        else {
            return;
        };
        let groups = self.lun.unit().target_port_groups().await;
        let mut inner = self.inner.borrow_mut();
        inner.is_asking = false;
        // Without a response, keep the last known state.
        let Ok(groups) = groups else { return };
        let rank = rank(&groups, group);
        if inner.rank != rank {
            tracing::info!(
                group,
                usable = rank.is_some(),
                "the access state of a path has changed"
            );
            inner.rank = rank;
            inner.wake();
        }
    }
}

impl Inner {
    fn wake(&mut self) {
        self.watching.drain(..).for_each(Waker::wake);
    }
}

/// Returns the rank of a port in this group; `None` if the LUN is currently not reachable through it (SPC-4
/// 5.16.2.4).
pub(crate) fn rank(groups: &[PortGroup], group: u16) -> Option<u8> {
    match groups.iter().find(|one| one.group == group)?.state {
        AccessState::ActiveOptimized => Some(0),
        AccessState::ActiveNonOptimized | AccessState::LbaDependent => Some(1),
        AccessState::Standby
        | AccessState::Unavailable
        | AccessState::Offline
        | AccessState::Transitioning
        | AccessState::Reserved(_) => None,
    }
}

/// Waits for the response to a request. The session has a time limit for each command, and any progress
/// restarts the limit. While none of the session's commands is overdue, the request is not overdue either,
/// regardless of its deadline. Returns `None` if the request is overdue, unless the requester continues to
/// wait for the response.
async fn in_time<R>(
    answer: impl Future<Output = R>,
    deadline: Instant,
    late_commands: impl Fn() -> u64,
    late: Option<Late>,
) -> Option<R> {
    let mut answer = pin!(answer);
    let (sent, before) = (reactor::now(), late_commands());
    let latest = sent
        + deadline
            .saturating_duration_since(sent)
            .saturating_mul(LIMITS_MAX);
    let mut until = deadline;
    debug_assert!(until <= latest);
    loop {
        if let Ok(answer) = reactor::timeout_at(until, answer.as_mut()).await {
            return Some(answer);
        }
        if until >= latest || late_commands() != before {
            late.as_ref()?.tell();
            return Some(answer.await);
        }
        until = (reactor::now() + LOOK).min(latest);
    }
}

/// Waits for the session to end. If the path must be closed, ends the session once all requests have received
/// a response.
async fn attend(path: Rc<Path>) {
    {
        let mut ended = pin!(path.session.ended());
        let mut idle =
            pin!(path.watch(|inner| (inner.is_leaving && inner.outstanding == 0).then_some(())));
        poll_fn(|cx| match ended.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => idle.as_mut().poll(cx),
        })
        .await;
    }
    path.session.close().await;
    let why = path.session.inner().last_ending.take();
    path.lose(Loss::Ended(why.unwrap_or_else(|| "logged out".to_owned())));
}

/// Queries the access state periodically.
async fn look_at_access(path: Weak<Path>) {
    for tick in 1u64.. {
        reactor::sleep(ACCESS_TICK).await;
        let Some(path) = path
            .upgrade()
            .filter(|path| path.inner.borrow().loss.is_none())
        else {
            return;
        };
        let is_usable = path.inner.borrow().rank.is_some();
        if !is_usable || tick.is_multiple_of(ACCESS_TICKS) {
            path.ask_for_access().await;
        }
    }
}

impl Link for Path {
    type Request = Asked;
    type Reply = Returned;
    type Error = DeviceError;

    fn exchange(
        self: &Rc<Path>,
        request: &Asked,
        claim: Option<Claim>,
        deadline: Instant,
        late: Option<Late>,
    ) -> impl Future<Output = Result<Returned, Failed<DeviceError>>> + 'static {
        debug_assert_eq!(
            claim.is_some(),
            matches!(failover::Request::kind(request), RequestKind::Change { .. }),
            "an outstanding change has a claim, and nothing else has"
        );
        let mut inner = self.inner.borrow_mut();
        let claim = claim.map(|claim| {
            inner.next_claim += 1;
            let number = inner.next_claim;
            let earlier = inner.claims.insert(number, claim);
            debug_assert!(earlier.is_none(), "claims are numbered");
            number
        });
        inner.outstanding += 1;
        drop(inner);
        let asked = request.clone();
        asked.buffer.replace(request.buffer.take());
        // A separate task executes the request, so that the claim is held until the target has completed
        // or aborted it, even if the caller drops its future.
        let answer = reactor::spawn(Rc::clone(self).carry_out(asked, claim));
        let path = Rc::clone(self);
        let late_commands = move || path.session.inner().meter.incidents.timeouts;
        async move {
            in_time(answer, deadline, late_commands, late)
                .await
                .unwrap_or(Err(Failed::TimedOut))
        }
    }

    fn shows(change: &Asked, reply: &Returned) -> bool {
        let Returned::Data(read) = reply else {
            return false;
        };
        failover::Request::content(change).is_some_and(|content| content.is_shown_by(read))
    }

    fn is_rejection(error: &DeviceError) -> bool {
        *error == DeviceError::Reserved
    }

    fn is_no_space(error: &DeviceError) -> bool {
        *error == DeviceError::NoSpace
    }

    fn is_lost(&self) -> bool {
        self.inner.borrow().loss.is_some()
    }

    fn rank(&self, waker: &Waker) -> Option<u8> {
        let mut inner = self.inner.borrow_mut();
        if inner.rank.is_none() {
            inner.watching.push(waker.clone());
        }
        inner.rank
    }

    async fn lost(&self) -> Loss {
        self.watch(|inner| inner.loss.clone()).await
    }

    async fn settled(&self) {
        self.watch(|inner| inner.claims.is_empty().then_some(()))
            .await;
    }

    fn take_unanswered(&self) -> Vec<Claim> {
        std::mem::take(&mut self.inner.borrow_mut().claims)
            .into_values()
            .collect()
    }

    fn reset(&self) {
        self.lose(Loss::Ended("given up".to_owned()));
        self.session.inner().reset();
    }

    fn leave(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.is_leaving = true;
        inner.wake();
    }
}

// Requests that can be sent more than once, over any path.

/// A request, in a form that can be passed to another thread.
pub(crate) struct Asked {
    pub(crate) what: What,
    /// The exponent of the device's block size. It converts blocks to bytes, because claims are in bytes.
    pub(crate) block_shift: u32,
    /// The caller's buffer, for a read that is sent for the first time.
    pub(crate) buffer: RefCell<Option<Buffer>>,
}

#[derive(Clone)]
pub(crate) enum What {
    /// A check whether the LUN is present.
    Probe,
    Read(Extent),
    Write(Extent, Slice, Durability),
    WriteZeroes(Extent, bool),
    Unmap(Extent),
    Allocation(Extent, usize),
    Flush,
}

/// The result of a request.
pub(crate) enum Returned {
    Nothing,
    Data(Buffer),
    Runs(Vec<Run>),
}

impl Asked {
    pub(crate) fn new(what: What, block_shift: u32) -> Asked {
        Asked {
            what,
            block_shift,
            buffer: RefCell::default(),
        }
    }

    /// Executes the request in one session.
    pub(crate) async fn carry_out(&self, lun: &RemoteLun) -> Result<Returned, DeviceError> {
        match self.what.clone() {
            What::Probe => lun.refresh().await.map(|()| Returned::Nothing),
            What::Read(extent) => {
                let own = self.buffer.take();
                let buffer = own.unwrap_or_else(|| Buffer::recycled(self.length(extent)));
                debug_assert_eq!(buffer.len(), self.length(extent), "a read fills its buffer");
                lun.read(extent, buffer).await.map(Returned::Data)
            }
            What::Write(extent, data, durability) => {
                debug_assert_eq!(
                    data.len(),
                    self.length(extent),
                    "a write has the data of its blocks"
                );
                lun.write(extent, data, durability)
                    .await
                    .map(|()| Returned::Nothing)
            }
            What::WriteZeroes(extent, may_unmap) => lun
                .write_zeroes(extent, may_unmap)
                .await
                .map(|()| Returned::Nothing),
            What::Unmap(extent) => lun.unmap(extent).await.map(|()| Returned::Nothing),
            What::Allocation(extent, runs_max) => {
                lun.allocation(extent, runs_max).await.map(Returned::Runs)
            }
            What::Flush => lun.flush().await.map(|()| Returned::Nothing),
        }
    }

    fn length(&self, extent: Extent) -> usize {
        (extent.blocks.0 << self.block_shift) as usize
    }

    fn bytes_of(&self, extent: Extent) -> Range<u64> {
        let start = extent.lba.0 << self.block_shift;
        start..start + (extent.blocks.0 << self.block_shift)
    }
}

/// A clone omits the caller's buffer, which exists only once.
impl Clone for Asked {
    fn clone(&self) -> Asked {
        Asked::new(self.what.clone(), self.block_shift)
    }
}

impl failover::Request for Asked {
    fn kind(&self) -> RequestKind {
        let change = |extent, is_durable| RequestKind::Change {
            range: self.bytes_of(extent),
            is_durable,
        };
        match self.what {
            What::Probe | What::Read(_) | What::Allocation(..) => RequestKind::Read,
            What::Write(extent, _, durability) => change(extent, durability == Durability::Stable),
            What::WriteZeroes(extent, _) | What::Unmap(extent) => change(extent, false),
            What::Flush => RequestKind::Flush,
        }
    }

    fn bytes(&self) -> u64 {
        match self.what {
            What::Read(extent) | What::Write(extent, ..) => extent.blocks.0 << self.block_shift,
            _ => 0,
        }
    }

    fn content(&self) -> Option<Content<&[u8]>> {
        match &self.what {
            What::Write(_, data, _) => Some(Content::Write(data)),
            What::WriteZeroes(_, may_unmap) => Some(Content::Zeroes {
                may_unmap: *may_unmap,
            }),
            What::Unmap(_) => Some(Content::Unmap),
            What::Probe | What::Read(_) | What::Allocation(..) | What::Flush => None,
        }
    }
}

impl failover::Part for Asked {
    fn part(&self, range: Range<u64>) -> Asked {
        let shift = self.block_shift;
        debug_assert!(
            (range.start | range.end).trailing_zeros() >= shift,
            "a part of a change is whole blocks"
        );
        let part = Extent::new(range.start >> shift, (range.end - range.start) >> shift);
        let what = match &self.what {
            What::Write(extent, data, durability) => {
                let from = (range.start - (extent.lba.0 << shift)) as usize;
                let data =
                    Buffer::from(&data[from..from + (range.end - range.start) as usize]).share();
                What::Write(part, data, *durability)
            }
            What::WriteZeroes(_, may_unmap) => What::WriteZeroes(part, *may_unmap),
            What::Unmap(_) => What::Unmap(part),
            other => other.clone(),
        };
        Asked::new(what, shift)
    }

    fn memory_bytes(&self) -> usize {
        let data = match &self.what {
            What::Write(_, data, _) => data.len().next_multiple_of(PAGE_BYTES),
            _ => 0,
        };
        size_of::<Asked>() + data
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use reactor::{Alone, block_on, sleep, spawn};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Executes a request with a deadline of 150 s. The response arrives after `answer` seconds, and the
    /// session has an overdue command after `late_command` seconds. Returns whether the request succeeded,
    /// and its duration in seconds.
    fn ended(answer: u32, late_command: u32, late: Option<Late>) -> (bool, u64) {
        block_on(Alone::exact_virtual_time(), async {
            let (begun, late_commands) = (reactor::now(), Rc::new(Cell::new(0)));
            let counted = Rc::clone(&late_commands);
            drop(spawn(async move {
                sleep(SECOND * late_command).await;
                counted.set(1);
            }));
            let deadline = begun + SECOND * 150;
            let ended = in_time(
                sleep(SECOND * answer),
                deadline,
                || late_commands.get(),
                late,
            )
            .await;
            (ended.is_some(), (reactor::now() - begun).as_secs())
        })
    }

    /// 16 reads of 1 MiB take 168 s at 100 kB/s. No command is late, so the request is not late either.
    #[test]
    fn a_request_is_not_late_while_no_command_of_its_session_is() {
        assert_eq!(ended(168, 5000, None), (true, 168));
        assert_eq!(ended(168, 100, None), (false, 150));
        assert_eq!(ended(300, 200, None), (false, 200));
        assert_eq!(ended(5000, 9000, None), (false, 1500), "not without end");
        assert_eq!(
            ended(168, 100, Some(Late::default())),
            (true, 168),
            "its answer counts"
        );
    }
}
