//! The state of a session and of its lost connections, and the tasks that wait for their recovery.
//!
//! ```text
//! Settling, per lost connection while others remain:
//!                               logout answered            joined
//!   connection_lost ─► LogoutNeeded ─► LogoutSent ─► Settled ─► removed
//!                           ▲ no answer ───┘ (inner::events)
//!
//! Phase, of the session:
//!   Up ── session_lost: no connection left (inner::connections) ──► Down
//!   Down ── reinstated, or moved to another portal group (recovery) ──► Up
//!   Down ── fail_requests_after(reconnect) (inner::commands) ──► Down, its requests fail
//!   Up, Down ── logged out, or recovery has failed for good ──► Over
//! ```
//!
//! A command that was sent over a lost connection may still reach the medium. It must not be resent until the
//! target has terminated it. There are two ways to terminate it. First, the target logs the connection out,
//! at the initiator's request over another connection. Second, the session is reinstated: the target "MUST"
//! terminate all tasks of the old session first (RFC 7143 section 6.3.5). Until then, the loss is not
//! *settled*.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use block::{Blocks, Extent, Lba, Lock};
use iscsi::login::Authenticated;
use iscsi::pdu::{Cid, Isid, Tsih};

use crate::error::CommandError;

/// The state of a session.
pub(crate) struct SessionState {
    state: Phase,
    /// Number of reinstatements.
    epoch: u64,
    /// Connections to be restored.
    lost: Vec<Lost>,
    /// Tasks to wake when losses are settled, or cannot be settled.
    settled: Vec<Waker>,
    /// Nexuses that the session left, with commands outstanding, for another portal group.
    left: Vec<AbandonedNexus>,
    /// The unsettled sessions, published for devices.
    unsettled: Arc<UnsettledSessions>,
    /// Wakes the task that restores connections.
    recovery: Option<Waker>,
    /// The Time2Wait that the target has requested.
    time2wait: Duration,
}

/// The sessions whose lost commands the target may still execute. Each is identified by the number of
/// reinstatements before it. They are the sessions of abandoned nexuses that have not been terminated, and
/// the current session while it is lost or has an unsettled lost connection. Devices on any thread read this.
#[derive(Debug, Default)]
pub(crate) struct UnsettledSessions(Lock<Vec<u64>>);

impl UnsettledSessions {
    pub(crate) fn contains(&self, epoch: u64) -> bool {
        self.0.lock().contains(&epoch)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Up {
        since: Instant,
    },
    /// All connections are lost. Requests wait, unless `failing_requests` is set.
    Down {
        since: Instant,
        failing_requests: bool,
    },
    /// The session will not be restored. If `settled` is set, no command can be executed any more.
    Over {
        settled: bool,
    },
}

struct Lost {
    cid: Cid,
    settling: Settling,
    /// Deadline for the target to log the connection out.
    until: Instant,
}

/// A nexus whose tasks continue until they are terminated: a login in another portal group does not terminate
/// them (RFC 7143 section 6.3.5 applies to the same target port).
struct AbandonedNexus {
    /// The session that was lost in this nexus, identified by the number of reinstatements before it.
    epoch: u64,
    /// Whether recovery is trying to terminate the nexus.
    is_awaited: bool,
}

/// Progress of settling a lost connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settling {
    LogoutNeeded,
    LogoutSent,
    Settled,
}

/// A fault that recovery must repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// There is no fault to repair, because the session is over.
    SessionOver,
    /// The last connection is lost. Recovery waits for `time2wait` before the next login.
    SessionLost { time2wait: Duration },
    /// This connection is lost and settled.
    ConnectionLost(Cid),
}

impl SessionState {
    /// Creates the state of a session that has connections.
    pub(crate) fn new(now: Instant) -> SessionState {
        SessionState {
            state: Phase::Up { since: now },
            epoch: 0,
            lost: Vec::new(),
            settled: Vec::new(),
            left: Vec::new(),
            unsettled: Arc::default(),
            recovery: None,
            time2wait: Duration::ZERO,
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn unsettled_sessions(&self) -> &Arc<UnsettledSessions> {
        &self.unsettled
    }

    /// Publishes the unsettled sessions to devices, before any waiter is woken.
    fn publish(&self) {
        let present = (!self.is_settled()).then_some(self.epoch);
        *self.unsettled.0.lock() = self
            .left
            .iter()
            .map(|left| left.epoch)
            .chain(present)
            .collect();
    }

    /// Returns whether the session has connections.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, Phase::Up { .. })
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, Phase::Over { .. })
    }

    /// Returns whether requests wait for the session to be restored.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(
            self.state,
            Phase::Down {
                failing_requests: false,
                ..
            }
        )
    }

    /// Returns how long a request that has been waiting since `since` has waited since the session was last
    /// restored. Returns zero while the session is down.
    pub(crate) fn waited(&self, since: Instant, now: Instant) -> Duration {
        match self.state {
            Phase::Up { since: up } => now.saturating_duration_since(since.max(up)),
            Phase::Down { .. } | Phase::Over { .. } => Duration::ZERO,
        }
    }

    // --- transitions

    /// Records that the target has requested a wait before the next login.
    pub(crate) fn set_time2wait(&mut self, time2wait: Duration) {
        self.time2wait = time2wait;
    }

    /// Records the loss of a connection while others remain. The target has until `until` to log it out.
    pub(crate) fn connection_lost(&mut self, cid: Cid, until: Instant) {
        debug_assert!(
            self.lost.iter().all(|lost| lost.cid != cid),
            "a connection is lost once"
        );
        self.lost.push(Lost {
            cid,
            settling: Settling::LogoutNeeded,
            until,
        });
        self.publish();
    }

    /// Returns whether a lost connection was not logged out before its deadline: the target refuses, or does
    /// not respond.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        let overdue = |lost: &Lost| lost.settling != Settling::Settled && lost.until <= now;
        matches!(self.state, Phase::Up { .. }) && self.lost.iter().any(overdue)
    }

    /// Records the loss of the last connection.
    pub(crate) fn session_lost(&mut self, now: Instant) {
        debug_assert!(
            self.is_up(),
            "a session is lost once, and not after its end"
        );
        self.state = Phase::Down {
            since: now,
            failing_requests: false,
        };
        self.publish();
        self.wake_recovery();
    }

    /// Records that the session will not be restored.
    pub(crate) fn end(&mut self, settled: bool) {
        self.state = Phase::Over {
            settled: settled && self.is_settled(),
        };
        self.publish();
        self.settled.drain(..).for_each(Waker::wake);
        self.wake_recovery();
    }

    /// Records that the session was reinstated, which has terminated all earlier commands. Returns the length
    /// of the outage.
    pub(crate) fn reinstated(&mut self, now: Instant) -> Duration {
        debug_assert!(!self.is_over(), "an ended session does not return");
        let away = match self.state {
            Phase::Down { since, .. } => now.saturating_duration_since(since),
            Phase::Up { .. } | Phase::Over { .. } => Duration::ZERO,
        };
        self.state = Phase::Up { since: now };
        self.epoch += 1;
        debug_assert!(
            self.left.iter().all(|left| left.epoch < self.epoch),
            "nexuses were left before"
        );
        self.lost.clear();
        self.time2wait = Duration::ZERO;
        self.publish();
        self.settled.drain(..).for_each(Waker::wake);
        away
    }

    /// Records that the session was restored in another portal group. Earlier commands may still be
    /// outstanding in the old one. Returns the length of the outage.
    pub(crate) fn moved(&mut self, now: Instant, is_unsettled: bool) -> Duration {
        if is_unsettled {
            self.left.push(AbandonedNexus {
                epoch: self.epoch,
                is_awaited: true,
            });
        }
        self.reinstated(now)
    }

    /// Records that an abandoned nexus was terminated, with all commands of its session.
    pub(crate) fn nexus_ended(&mut self, epoch: u64) {
        self.left.retain(|left| left.epoch != epoch);
        self.publish();
        self.settled.drain(..).for_each(Waker::wake);
    }

    /// Records that recovery no longer tries to terminate an abandoned nexus.
    pub(crate) fn nexus_not_ended(&mut self, epoch: u64) {
        let failing_requests = self.left.iter_mut().filter(|left| left.epoch == epoch);
        failing_requests.for_each(|left| left.is_awaited = false);
        self.settled.drain(..).for_each(Waker::wake);
    }

    /// Returns a lost connection to log out. Its logout counts as sent from now on.
    pub(crate) fn next_to_settle(&mut self) -> Option<Cid> {
        let lost = self
            .lost
            .iter_mut()
            .find(|lost| lost.settling == Settling::LogoutNeeded)?;
        lost.settling = Settling::LogoutSent;
        Some(lost.cid)
    }

    /// Records that the logout of a connection could not be sent, or was not answered.
    pub(crate) fn settling_failed(&mut self, cid: Cid) {
        self.mark(cid, Settling::LogoutNeeded);
    }

    /// Records that the target has logged out a lost connection.
    pub(crate) fn settle(&mut self, cid: Cid) {
        self.mark(cid, Settling::Settled);
        self.publish();
        if self.is_settled() {
            self.settled.drain(..).for_each(Waker::wake);
        }
        self.wake_recovery();
    }

    fn mark(&mut self, cid: Cid, settling: Settling) {
        self.lost
            .iter_mut()
            .filter(|lost| lost.cid == cid)
            .for_each(|lost| lost.settling = settling);
    }

    /// Records that a connection was restored or added.
    pub(crate) fn joined(&mut self, cid: Cid) {
        self.lost.retain(|lost| lost.cid != cid);
    }

    /// Records that a connection is missing. It has never been logged in, so there is nothing to settle.
    pub(crate) fn connection_missing(&mut self, cid: Cid, now: Instant) {
        debug_assert!(
            self.lost.iter().all(|lost| lost.cid != cid),
            "a connection is missing once"
        );
        self.lost.push(Lost {
            cid,
            settling: Settling::Settled,
            until: now,
        });
        self.wake_recovery();
    }

    /// Makes requests fail once an outage has lasted for `timeouts`. Returns true if requests fail from now
    /// on.
    pub(crate) fn fail_requests_after(&mut self, timeouts: Duration, now: Instant) -> bool {
        match &mut self.state {
            Phase::Down {
                since,
                failing_requests,
            } if !*failing_requests && now.saturating_duration_since(*since) >= timeouts => {
                *failing_requests = true;
                self.settled.drain(..).for_each(Waker::wake);
                true
            }
            Phase::Down { .. } | Phase::Up { .. } | Phase::Over { .. } => false,
        }
    }

    // --- waiting

    /// Returns whether no command lost in the current nexus can still reach the medium.
    pub(crate) fn is_settled(&self) -> bool {
        match self.state {
            Phase::Up { .. } => self
                .lost
                .iter()
                .all(|lost| lost.settling == Settling::Settled),
            Phase::Down { .. } => false,
            Phase::Over { settled } => settled,
        }
    }

    /// Returns `Ready` when a command that was lost in the session `sent_in` may be sent again. With `None`,
    /// returns `Ready` when a command that is harmless even if executed late may be sent again. Fails if the
    /// command must not be sent, or there is no session in which to send it.
    pub(crate) fn poll_usable(
        &mut self,
        sent_in: Option<u64>,
        waker: &Waker,
    ) -> Poll<Result<(), CommandError>> {
        match self.state {
            Phase::Down {
                failing_requests: true,
                ..
            }
            | Phase::Over { .. } => Poll::Ready(Err(CommandError::ConnectionLost)),
            Phase::Up { .. }
            | Phase::Down {
                failing_requests: false,
                ..
            } => match self.poll_left(|epoch| Some(epoch) == sent_in, waker) {
                Poll::Ready(Ok(())) => self.poll_present(waker),
                unsettled => unsettled,
            },
        }
    }

    /// Returns `Ready` when no lost command can still reach the medium. Fails if this cannot be determined.
    pub(crate) fn poll_settled(&mut self, waker: &Waker) -> Poll<Result<(), CommandError>> {
        match self.poll_left(|_| true, waker) {
            Poll::Ready(Ok(())) => self.poll_present(waker),
            unsettled => unsettled,
        }
    }

    /// Like [`Self::poll_settled`], for abandoned nexuses.
    fn poll_left(
        &mut self,
        is_meant: impl Fn(u64) -> bool,
        waker: &Waker,
    ) -> Poll<Result<(), CommandError>> {
        let is_over = self.is_over();
        let mut left = self
            .left
            .iter()
            .filter(|left| is_meant(left.epoch))
            .peekable();
        if left.peek().is_none() {
            return Poll::Ready(Ok(()));
        }
        if is_over || left.any(|left| !left.is_awaited) {
            return Poll::Ready(Err(CommandError::Unsettled));
        }
        self.settled.push(waker.clone());
        Poll::Pending
    }

    /// Like [`Self::poll_settled`], for the current nexus.
    fn poll_present(&mut self, waker: &Waker) -> Poll<Result<(), CommandError>> {
        match self.state {
            _ if self.is_settled() => Poll::Ready(Ok(())),
            Phase::Over { .. }
            | Phase::Down {
                failing_requests: true,
                ..
            } => Poll::Ready(Err(CommandError::ConnectionLost)),
            Phase::Up { .. } | Phase::Down { .. } => {
                self.settled.push(waker.clone());
                Poll::Pending
            }
        }
    }

    /// Returns `Ready` when there is a fault.
    pub(crate) fn poll_fault(&mut self, waker: &Waker) -> Poll<Fault> {
        match self.state {
            Phase::Over { .. } => return Poll::Ready(Fault::SessionOver),
            Phase::Down { .. } => {
                return Poll::Ready(Fault::SessionLost {
                    time2wait: self.time2wait,
                });
            }
            Phase::Up { .. } => {}
        }
        match self
            .lost
            .iter()
            .find(|lost| lost.settling == Settling::Settled)
        {
            Some(lost) => Poll::Ready(Fault::ConnectionLost(lost.cid)),
            None => {
                self.recovery = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    /// Returns `Ready` when there is a worse fault than `fault`, whose repair is in progress.
    pub(crate) fn poll_worse_fault(&mut self, fault: Fault, waker: &Waker) -> Poll<()> {
        let is_worse = match self.state {
            Phase::Over { .. } => true,
            Phase::Down { .. } => matches!(fault, Fault::ConnectionLost(_)),
            Phase::Up { .. } => false,
        };
        if is_worse {
            return Poll::Ready(());
        }
        self.recovery = Some(waker.clone());
        Poll::Pending
    }

    fn wake_recovery(&mut self) {
        self.recovery.take().into_iter().for_each(Waker::wake);
    }
}

// Blocks that must not be used because an earlier write to them may still be executed.

/// Extents of writes that failed and may still be outstanding, each with the session in which it was sent.
#[derive(Debug, Default)]
pub(crate) struct UnsettledExtents {
    /// Whether there are any extents. Usually there are none, and requests check only this flag.
    is_any: AtomicBool,
    extents: Lock<Extents>,
}

#[derive(Debug, Default)]
struct Extents {
    present: Vec<Unsettled>,
    added: u64,
}

#[derive(Debug)]
struct Unsettled {
    number: u64,
    epoch: u64,
    extent: Extent,
}

/// The possible outcome of a session's writes that failed and may not have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// The writes have ended.
    Ended,
    /// The writes are outstanding in the current session, and are being aborted. If the session is lost
    /// before this completes, they become unsettled.
    InSession,
    /// The target may execute the writes at any time.
    Unsettled,
}

/// Maximum number of extents. If there are more, all blocks are blocked. A session has fewer outstanding
/// commands.
const EXTENTS_MAX: usize = 4096;

impl UnsettledExtents {
    /// Records that a write to these blocks, sent in the session `epoch`, may still be executed. Returns true
    /// if this was not yet recorded.
    pub(crate) fn add(&self, epoch: u64, extent: Extent) -> bool {
        let mut extents = self.extents.lock();
        let all = Extent {
            lba: Lba(0),
            blocks: Blocks(u64::MAX),
        };
        let extent = if extents.present.len() < EXTENTS_MAX {
            extent
        } else {
            all
        };
        let number = extents.added;
        let before = extents
            .present
            .iter_mut()
            .find(|old| (old.epoch, old.extent) == (epoch, extent));
        let is_news = before.is_none();
        match before {
            Some(old) => old.number = number,
            None => extents.present.push(Unsettled {
                number,
                epoch,
                extent,
            }),
        }
        extents.added += 1;
        debug_assert!(
            extents
                .present
                .iter()
                .all(|unsettled| unsettled.number < extents.added)
        );
        self.is_any.store(true, Relaxed);
        is_news
    }

    /// Returns a mark for [`UnsettledExtents::end_before`]. All current extents are before the mark.
    pub(crate) fn mark(&self) -> u64 {
        self.extents.lock().added
    }

    /// Removes extents from before `mark`, whose writes have ended.
    pub(crate) fn end_before(&self, mark: u64) {
        let mut extents = self.extents.lock();
        debug_assert!(mark <= extents.added, "marks only grow");
        extents.present.retain(|unsettled| unsettled.number >= mark);
        self.is_any.store(!extents.present.is_empty(), Relaxed);
    }

    /// Returns whether any of these blocks has a write with this outcome.
    pub(crate) fn has(
        &self,
        extent: Extent,
        meant: WriteOutcome,
        outcome: impl Fn(u64) -> WriteOutcome,
    ) -> bool {
        self.is_any.load(Relaxed) && self.look(extent, meant, outcome)
    }

    #[cold]
    fn look(
        &self,
        extent: Extent,
        meant: WriteOutcome,
        outcome: impl Fn(u64) -> WriteOutcome,
    ) -> bool {
        let mut extents = self.extents.lock();
        extents
            .present
            .retain(|unsettled| outcome(unsettled.epoch) != WriteOutcome::Ended);
        self.is_any.store(!extents.present.is_empty(), Relaxed);
        extents
            .present
            .iter()
            .any(|unsettled| unsettled.extent.overlaps(extent) && outcome(unsettled.epoch) == meant)
    }
}

// The I_T nexus of a session.

/// The two ports of a session (the I_T nexus, RFC 7143 section 4.4.1), and the target's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nexus {
    /// The initiator's iSCSI name. With `isid` it identifies the initiator port, to which persistent
    /// reservations belong.
    pub initiator: String,
    /// The ISID.
    pub isid: Isid,
    /// The target's iSCSI name; empty for discovery.
    pub target: String,
    /// The portal group tag. With the target's name, it identifies the target port. `None` if the target did
    /// not report it.
    pub target_portal_group_tag: Option<u16>,
    /// The TSIH.
    pub tsih: Tsih,
    /// The portal of the login, after redirections.
    pub address: SocketAddr,
    /// The parties that the login has authenticated.
    pub authentication: Authenticated,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session_state::WriteOutcome::{Ended, InSession, Unsettled};

    struct Scene {
        state: SessionState,
        begun: Instant,
    }

    fn scene() -> Scene {
        let begun = Instant::now();
        Scene {
            state: SessionState::new(begun),
            begun,
        }
    }

    impl Scene {
        fn at(&self, seconds: u64) -> Instant {
            self.begun + Duration::from_secs(seconds)
        }

        fn usable(&mut self) -> Option<bool> {
            match self.state.poll_usable(None, Waker::noop()) {
                Poll::Ready(outcome) => Some(outcome.is_ok()),
                Poll::Pending => None,
            }
        }

        fn fault(&mut self) -> Option<Fault> {
            match self.state.poll_fault(Waker::noop()) {
                Poll::Ready(fault) => Some(fault),
                Poll::Pending => None,
            }
        }
    }

    #[test]
    fn what_was_on_a_lost_connection_waits_until_the_target_has_let_go_of_it() {
        let mut scene = scene();
        scene.state.connection_lost(Cid(2), scene.at(20));
        assert_eq!((scene.usable(), scene.fault()), (None, None));
        assert_eq!(scene.state.next_to_settle(), Some(Cid(2)));
        assert_eq!(scene.state.next_to_settle(), None, "it was asked");
        scene.state.settle(Cid(2));
        assert_eq!(scene.usable(), Some(true));
        assert_eq!(scene.fault(), Some(Fault::ConnectionLost(Cid(2))));
        scene.state.joined(Cid(2));
        assert_eq!(scene.fault(), None);
    }

    #[test]
    fn a_target_has_so_much_time_to_let_go() {
        let mut scene = scene();
        scene.state.connection_lost(Cid(1), scene.at(20));
        assert_eq!(scene.state.next_to_settle(), Some(Cid(1)));
        assert!(!scene.state.is_overdue(scene.at(19)));
        assert!(scene.state.is_overdue(scene.at(20)));
        scene.state.settle(Cid(1));
        assert!(!scene.state.is_overdue(scene.at(20)));
    }

    #[test]
    fn a_target_that_could_not_be_asked_is_asked_again() {
        let mut scene = scene();
        scene.state.connection_lost(Cid(1), scene.at(20));
        assert_eq!(scene.state.next_to_settle(), Some(Cid(1)));
        scene.state.settling_failed(Cid(1));
        assert_eq!(scene.state.next_to_settle(), Some(Cid(1)));
    }

    #[test]
    fn a_session_that_is_begun_again_settles_every_loss() {
        let mut scene = scene();
        scene.state.connection_lost(Cid(1), scene.at(20));
        scene.state.session_lost(scene.at(1));
        assert_eq!(scene.usable(), None);
        assert_eq!(scene.state.reinstated(scene.at(4)), Duration::from_secs(3));
        assert_eq!(
            (scene.usable(), scene.fault(), scene.state.epoch()),
            (Some(true), None, 1)
        );
    }

    #[test]
    fn what_was_sent_in_a_nexus_that_was_left_waits_until_that_has_ended() {
        let mut scene = scene();
        scene.state.session_lost(scene.at(1));
        scene.state.moved(scene.at(2), true);
        assert_eq!(scene.usable(), Some(true), "what does no harm goes on");
        assert!(scene.state.poll_usable(Some(0), Waker::noop()).is_pending());
        assert!(scene.state.poll_settled(Waker::noop()).is_pending());
        scene.state.session_lost(scene.at(3));
        scene.state.reinstated(scene.at(4));
        assert!(
            scene.state.poll_usable(Some(0), Waker::noop()).is_pending(),
            "that was another nexus"
        );
        assert!(scene.state.poll_usable(Some(1), Waker::noop()).is_ready());
        scene.state.nexus_ended(0);
        assert_eq!(
            scene.state.poll_usable(Some(0), Waker::noop()),
            Poll::Ready(Ok(()))
        );
        assert_eq!(scene.state.poll_settled(Waker::noop()), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_session_is_unsettled_while_it_is_lost_and_after_a_move_until_its_nexus_has_ended() {
        let mut scene = scene();
        let unsettled = Arc::clone(scene.state.unsettled_sessions());
        assert!(!unsettled.contains(0));
        scene.state.connection_lost(Cid(1), scene.at(20));
        assert!(
            unsettled.contains(0),
            "the target has not let go of the connection"
        );
        scene.state.settle(Cid(1));
        assert!(!unsettled.contains(0));
        scene.state.session_lost(scene.at(10));
        scene
            .state
            .fail_requests_after(Duration::from_secs(1), scene.at(20));
        assert!(
            unsettled.contains(0),
            "requests have failed, and what was sent has not ended"
        );
        scene.state.moved(scene.at(30), true);
        assert!(
            unsettled.contains(0) && !unsettled.contains(1),
            "it is being ended"
        );
        scene.state.nexus_not_ended(0);
        assert!(unsettled.contains(0));
        scene.state.nexus_ended(0);
        assert!(!unsettled.contains(0));
        scene.state.session_lost(scene.at(40));
        scene.state.reinstated(scene.at(50));
        assert!(!unsettled.contains(1), "the login has ended it");
        scene.state.end(false);
        assert!(unsettled.contains(2), "for ever");
    }

    #[test]
    fn what_was_sent_in_a_nexus_that_nobody_ends_is_never_settled() {
        for gives_up in [true, false] {
            let mut scene = scene();
            scene.state.session_lost(scene.at(1));
            scene.state.moved(scene.at(2), true);
            if gives_up {
                scene.state.nexus_not_ended(0);
            } else {
                scene.state.end(true);
            }
            let unsettled = Poll::Ready(Err(CommandError::Unsettled));
            assert_eq!(scene.state.poll_settled(Waker::noop()), unsettled);
            let expected = if gives_up {
                CommandError::Unsettled
            } else {
                CommandError::ConnectionLost
            };
            assert_eq!(
                scene.state.poll_usable(Some(0), Waker::noop()),
                Poll::Ready(Err(expected))
            );
        }
    }

    #[test]
    fn nothing_waits_for_a_nexus_that_was_left_with_nothing_under_way() {
        let mut scene = scene();
        scene.state.session_lost(scene.at(1));
        scene.state.moved(scene.at(2), false);
        assert_eq!(scene.state.poll_settled(Waker::noop()), Poll::Ready(Ok(())));
        assert_eq!(scene.state.epoch(), 1);
    }

    #[test]
    fn requests_wait_for_a_lost_session_as_long_as_they_are_told_to() {
        let mut scene = scene();
        scene.state.session_lost(scene.at(10));
        assert!(
            !scene
                .state
                .fail_requests_after(Duration::from_secs(5), scene.at(14))
        );
        assert!(scene.state.is_awaited());
        assert!(
            scene
                .state
                .fail_requests_after(Duration::from_secs(5), scene.at(15))
        );
        assert_eq!(
            (scene.usable(), scene.state.is_awaited()),
            (Some(false), false)
        );
        assert!(
            !scene
                .state
                .fail_requests_after(Duration::from_secs(5), scene.at(16)),
            "it is no news"
        );
        scene.state.reinstated(scene.at(60));
        assert_eq!(scene.usable(), Some(true));
    }

    #[test]
    fn the_time_without_a_session_is_nobodys_waiting_time() {
        let mut scene = scene();
        let asked = scene.at(1);
        scene.state.session_lost(scene.at(2));
        assert_eq!(scene.state.waited(asked, scene.at(50)), Duration::ZERO);
        scene.state.reinstated(scene.at(60));
        assert_eq!(
            scene.state.waited(asked, scene.at(61)),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn who_brings_a_connection_back_drops_it_when_the_session_is_lost() {
        let mut scene = scene();
        let one = Fault::ConnectionLost(Cid(1));
        assert!(
            scene
                .state
                .poll_worse_fault(one, Waker::noop())
                .is_pending()
        );
        scene.state.session_lost(scene.at(1));
        assert!(scene.state.poll_worse_fault(one, Waker::noop()).is_ready());
        let all = Fault::SessionLost {
            time2wait: Duration::ZERO,
        };
        assert!(
            scene
                .state
                .poll_worse_fault(all, Waker::noop())
                .is_pending()
        );
        scene.state.end(false);
        assert!(scene.state.poll_worse_fault(all, Waker::noop()).is_ready());
    }

    #[test]
    fn what_a_session_that_broke_off_has_sent_is_never_known_to_have_ended() {
        for (settled, expected) in [(true, true), (false, false)] {
            let mut scene = scene();
            scene.state.end(settled);
            assert_eq!(
                scene.state.poll_settled(Waker::noop()),
                Poll::Ready(expected.then_some(()).ok_or(CommandError::ConnectionLost))
            );
            assert_eq!(scene.fault(), Some(Fault::SessionOver));
        }
    }

    #[test]
    fn blocks_are_barred_until_their_session_is_settled() {
        let unsettled = UnsettledExtents::default();
        unsettled.add(3, Extent::new(10, 5));
        unsettled.add(4, Extent::new(100, 1));
        let has = |extent| unsettled.has(extent, Unsettled, |_| Unsettled);
        assert!(has(Extent::new(14, 1)) && !has(Extent::new(15, 1)));
        let one = |epoch| if epoch == 3 { Ended } else { Unsettled };
        assert!(!unsettled.has(Extent::new(14, 1), Unsettled, one));
        assert!(has(Extent::new(100, 1)) && !has(Extent::new(14, 1)));
    }

    #[test]
    fn blocks_of_a_write_that_its_session_still_has_are_barred_once_that_is_lost() {
        let unsettled = UnsettledExtents::default();
        unsettled.add(3, Extent::new(10, 5));
        let (early, block) = (|_| InSession, Extent::new(14, 1));
        assert!(!unsettled.has(block, Unsettled, early) && unsettled.has(block, InSession, early));
        assert!(unsettled.has(block, Unsettled, |_| Unsettled));
    }

    #[test]
    fn those_that_have_ended_bar_nothing_and_later_ones_do() {
        let unsettled = UnsettledExtents::default();
        unsettled.add(3, Extent::new(10, 5));
        let mark = unsettled.mark();
        unsettled.add(3, Extent::new(20, 5));
        unsettled.end_before(mark);
        let has = |extent| unsettled.has(extent, Unsettled, |_| Unsettled);
        assert!(!has(Extent::new(10, 5)) && has(Extent::new(20, 5)));
        let mark = unsettled.mark();
        unsettled.add(3, Extent::new(20, 5)); // once more
        unsettled.end_before(mark);
        assert!(has(Extent::new(20, 5)));
    }

    #[test]
    fn too_many_bar_everything() {
        let unsettled = UnsettledExtents::default();
        for lba in 0..10_000 {
            unsettled.add(0, Extent::new(lba, 1));
        }
        assert!(unsettled.has(Extent::new(1 << 40, 1), Unsettled, |_| Unsettled));
        assert!(unsettled.extents.lock().present.len() <= EXTENTS_MAX + 1);
    }
}
