//! A session on its thread: the protocol's state machine, the outstanding commands, and their requesters.
//!
//! One [`Request`] is one command from start to end. It is submitted to the state machine as soon as the
//! target's command window has space, on the connection with the fewest outstanding commands. The
//! connection's task is woken once per iteration, for any number of commands, and sends them in one write.
//! Responses find their requests by the state machine's task index. Nothing on this path allocates.

use crate::tasks::CommandSpec;
use std::cell::{RefCell, RefMut};
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use block::Lock;
use iscsi::initiator::Session as Machine;
use iscsi::negotiate::Parameters;
use iscsi::pdu::{Cid, TaskManagementResult};

use crate::caches::Caches;
use crate::effect::Registrations;
use crate::error::CommandError;
use crate::inner::{Management, Outage, Pong, Restart, SessionInner, Submitted};
use crate::session_state::{Fault, Nexus, UnsettledSessions};
use crate::statistics::Statistics;
use crate::tasks::{CommandEnd, Ticket};
use crate::url::Timeouts;

/// A session, shared by its connections' tasks and by the requests on its thread. It outlives its
/// connections: when they are lost, `recovery` restores them, with a new state machine if all of them were
/// lost.
pub(crate) struct Session {
    inner: RefCell<SessionInner>,
    shared: Arc<Shared>,
}

/// The part of a session's state that other threads read.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Number of reinstatements.
    epoch: AtomicU64,
    /// The parameters of the last leading login.
    pub(crate) parameters: Lock<Parameters>,
    /// The nexus of the last leading login.
    pub(crate) nexus: Lock<Nexus>,
    /// Commands that block devices sent again because their outcome was unknown.
    replays: AtomicU64,
    /// Unflushed writes of devices.
    pub(crate) caches: Arc<Caches>,
    pub(crate) unsettled: Arc<UnsettledSessions>,
    pub(crate) registrations: Arc<Registrations>,
}

/// Timeout of a logout.
const LOGOUT_TIME: Duration = Duration::from_secs(5);

impl Session {
    pub(crate) fn new(machine: Machine, nexus: Nexus, timeouts: Timeouts) -> Rc<Session> {
        let (epoch, parameters) = (AtomicU64::new(0), Lock::new(machine.parameters().clone()));
        let nexus = Lock::new(nexus);
        let (replays, caches) = (AtomicU64::new(0), Arc::<Caches>::default());
        let registrations = Arc::<Registrations>::default();
        let told = (Arc::clone(&caches), Arc::clone(&registrations));
        let mut inner = SessionInner::new(machine, reactor::now(), timeouts, told.0, told.1);
        let unsettled = Arc::clone(inner.state().unsettled_sessions());
        let shared = Shared {
            epoch,
            parameters,
            nexus,
            replays,
            caches,
            unsettled,
            registrations,
        };
        let shared = Arc::new(shared);
        Rc::new(Session {
            inner: RefCell::new(inner),
            shared,
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Restarts the session with this state machine.
    pub(crate) fn restart(&self, machine: Machine, nexus: Nexus, how: Restart) -> Outage {
        *self.shared.parameters.lock() = machine.parameters().clone();
        *self.shared.nexus.lock() = nexus;
        self.shared.caches.renewed();
        let outage = self.inner().restart(reactor::now(), machine, how);
        self.shared.epoch.fetch_add(1, Relaxed);
        debug_assert_eq!(self.inner().state().epoch(), self.shared.epoch());
        outage
    }

    /// Records that an abandoned nexus was terminated, together with its commands.
    pub(crate) fn nexus_ended(&self, epoch: u64) {
        self.inner().state().nexus_ended(epoch);
    }

    /// Records that an abandoned nexus will not be terminated.
    pub(crate) fn nexus_not_ended(&self, epoch: u64) {
        self.inner().state().nexus_not_ended(epoch);
    }

    /// Borrows the state of the session. A connection's task borrows it for one iteration, and never across
    /// an await.
    pub(crate) fn inner(&self) -> RefMut<'_, SessionInner> {
        self.inner.borrow_mut()
    }

    /// Sends a command and returns its result.
    pub(crate) fn request(self: &Rc<Session>, spec: CommandSpec) -> Request {
        Request {
            session: Rc::clone(self),
            spec,
            stage: RequestStage::New,
        }
    }

    /// Sends SendTargets and returns the text.
    pub(crate) async fn send_targets(&self, which: &str) -> Result<Vec<u8>, CommandError> {
        self.inner().ask_for_targets(which)?;
        let answer = poll_fn(|cx| self.inner().poll_text(cx.waker()));
        let time = self.inner().timeouts.command;
        reactor::timeout(time, answer)
            .await
            .unwrap_or(Err(CommandError::TimedOut))
    }

    /// Sends a task management function and returns the response.
    pub(crate) async fn manage(
        &self,
        management: Management,
    ) -> Result<TaskManagementResult, CommandError> {
        let mut answer = self.inner().manage(management)?;
        let time = self.inner().timeouts.reset;
        let answered = reactor::timeout(time, answer.recv()).await;
        // If the receiver was closed without a response, the connection was lost.
        answered
            .map_err(|_| CommandError::TimedOut)?
            .ok_or(CommandError::ConnectionLost)
    }

    /// Sends a NOP-Out, over one connection or over any, and waits for the response.
    pub(crate) async fn ping(&self, cid: Option<Cid>, data: &[u8]) -> Result<Pong, CommandError> {
        let asked = reactor::now();
        let mut answer = self.inner().ping(cid, data)?;
        let time = self.inner().timeouts.command;
        let answered = reactor::timeout(time, answer.recv())
            .await
            .map_err(|_| CommandError::TimedOut)?;
        // If the receiver was closed without a response, the ping was rejected, unless its connection was
        // lost.
        let data = answered.ok_or_else(|| match self.inner().has_connection(cid) {
            true => CommandError::Rejected,
            false => CommandError::ConnectionLost,
        })?;
        Ok(Pong {
            time: reactor::now().saturating_duration_since(asked),
            data,
        })
    }

    /// Resolves when no request dropped before this call can still reach the target. Fails if that cannot be
    /// determined.
    pub(crate) async fn quiesced(&self) -> Result<(), CommandError> {
        let mark = self.inner().tasks.orphan_mark();
        poll_fn(|cx| match self.inner().tasks.poll_quiet(mark, cx.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        poll_fn(|cx| self.inner().state().poll_settled(cx.waker())).await
    }

    /// Resolves when a command that was lost in the session `sent_in` may be sent again. With `None`,
    /// resolves when a command that is harmless even if executed late may be sent again. Fails if the command
    /// must not be sent, or there is no session in which to send it.
    pub(crate) async fn usable(&self, sent_in: Option<u64>) -> Result<(), CommandError> {
        poll_fn(|cx| self.inner().state().poll_usable(sent_in, cx.waker())).await
    }

    /// Resolves when the session has a fault, and returns the fault.
    pub(crate) async fn fault(&self) -> Fault {
        poll_fn(|cx| self.inner().state().poll_fault(cx.waker())).await
    }

    /// Runs `work` on a fault, and drops it if a worse fault occurs.
    pub(crate) async fn unless_worse_fault<T>(
        &self,
        fault: Fault,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(
            |cx| match self.inner().state().poll_worse_fault(fault, cx.waker()) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => work.as_mut().poll(cx).map(Some),
            },
        )
        .await
    }

    /// Returns the statistics.
    pub(crate) fn statistics(&self) -> Statistics {
        let mut statistics = self.inner().statistics(reactor::now());
        statistics.incidents.replays = self.shared.replays.load(Relaxed);
        statistics
    }

    /// Logs out. Resolves when the session has ended: when the target has confirmed the logout, or at the
    /// timeout.
    pub(crate) async fn close(&self) {
        self.inner().log_out();
        if reactor::timeout(LOGOUT_TIME, self.ended()).await.is_err() {
            self.inner().give_up();
            self.ended().await;
        }
    }

    /// Resolves when the session is over.
    pub(crate) async fn ended(&self) {
        poll_fn(|cx| self.inner().poll_over(cx.waker())).await;
    }
}

impl Shared {
    /// Returns the number of reinstatements. Requests for an earlier session are not sent.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Relaxed)
    }

    /// Counts a command that is resent because its outcome is unknown.
    pub(crate) fn replayed(&self) {
        self.replays.fetch_add(1, Relaxed);
    }
}

/// A future for one command, from submission to completion. If the future is dropped early, the command is
/// aborted, and tracked as an orphan until the target has completed or aborted it.
pub(crate) struct Request {
    session: Rc<Session>,
    /// The command. Once it has been sent, it no longer contains the data.
    spec: CommandSpec,
    stage: RequestStage,
}

/// The stage of a request.
///
/// ```text
/// New     ── room in the window ────────────────────► Sent
/// New     ── no room ───────────────────────────────► Waiting
/// Waiting ── room ──────────────────────────────────► Sent
/// Sent    ── response ──────────────────────────────► Ended
/// New, Waiting ── command timeout, or no session ───► Ended
/// ```
#[derive(Clone, Copy)]
enum RequestStage {
    New,
    /// Not sent. Contains the time since which the request has been waiting for space in the window.
    Waiting(Instant),
    Sent(Ticket),
    Ended,
}

impl Future for Request {
    type Output = CommandEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CommandEnd> {
        let this = &mut *self;
        let mut inner = this.session.inner.borrow_mut();
        let since = match this.stage {
            RequestStage::Sent(ticket) => {
                let Some(ended) = inner.tasks.poll(ticket, cx.waker()) else {
                    return Poll::Pending;
                };
                this.stage = RequestStage::Ended;
                return Poll::Ready(ended);
            }
            // The future was polled after its completion, which a caller must not do.
            RequestStage::Ended => return Poll::Pending,
            RequestStage::Waiting(since) => Some(since),
            RequestStage::New => None,
        };
        // The last iteration may have been long ago, so update the time.
        inner.now = reactor::now();
        let submitted = match since {
            // The second condition is needed because, if sessions are lost repeatedly, the command never
            // waits long in any of them.
            Some(since)
                if inner.waited(since) >= inner.timeouts.command
                    || inner.now.saturating_duration_since(since) >= inner.timeouts.request() =>
            {
                Submitted::Failed(CommandError::TimedOut)
            }
            _ => inner.submit(&mut this.spec, cx.waker()),
        };
        match submitted {
            Submitted::Sent(ticket) => {
                since
                    .into_iter()
                    .for_each(|since| inner.note_wait(ticket, since));
                this.stage = RequestStage::Sent(ticket);
            }
            Submitted::NoRoom => this.stage = RequestStage::Waiting(since.unwrap_or(inner.now)),
            Submitted::Failed(error) => {
                this.stage = RequestStage::Ended;
                return Poll::Ready(CommandEnd::unsent(
                    mem::take(&mut this.spec.transfer),
                    error,
                ));
            }
        }
        Poll::Pending
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        match self.stage {
            RequestStage::Sent(ticket) => self.session.inner().abandon(ticket),
            // This request may have been woken for space that another request can use.
            RequestStage::Waiting(_) => self.session.inner().wake_waiting(),
            RequestStage::New | RequestStage::Ended => {}
        }
    }
}
