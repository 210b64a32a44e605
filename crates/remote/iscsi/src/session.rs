//! A session on its thread: the machine, the commands under way, and who waits for what.
//!
//! One [`Request`] is one command from beginning to end. It goes to the machine as soon as the target's command
//! window has room, on the connection with the fewest commands; the connection's task, woken once however many
//! commands a round brings, sends them all by one write. Answers find their requests by the machine's task index.
//! Nothing on this path allocates.

use std::cell::{RefCell, RefMut};
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use block::{Lock, LockGuard};
use iscsi::initiator::Session as Machine;
use iscsi::negotiate::Parameters;
use iscsi::pdu::{Cid, Lun, TaskManagementResult};
use scsi::cdb::Cdb;

use crate::caches::Caches;
use crate::error::CommandError;
use crate::inner::{Outage, Restart, SessionInner, Submitted};
use crate::management::Management;
use crate::nexus::Nexus;
use crate::pings::Pong;
use crate::registrations::Registrations;
use crate::session_state::{Fault, UnsettledSessions};
use crate::statistics::Statistics;
use crate::tasks::{Ended, Ticket, Transfer};
use crate::timeouts::Timeouts;

/// What a request asks for.
pub(crate) struct CommandSpec {
    pub(crate) lun: Lun,
    pub(crate) cdb: Cdb,
    pub(crate) transfer: Transfer,
    /// The session it is meant for, counted by reinstatements; `None` if any will do.
    pub(crate) epoch: Option<u64>,
    /// Not to be told when the time is up: whoever asks waits until the command has ended, to send it again.
    pub(crate) waits_for_end: bool,
}

/// A session, shared by its connections' tasks and by the requests on its thread. It outlives its connections: when
/// they are lost, `recovery` brings them back, with a new machine if all of them were.
pub(crate) struct Session {
    inner: RefCell<SessionInner>,
    shared: Arc<Shared>,
}

/// What other threads see of a session.
#[derive(Debug)]
pub(crate) struct Shared {
    /// How often it was begun again.
    epoch: AtomicU64,
    /// What the last leading login agreed on.
    parameters: Lock<Parameters>,
    /// Between whom that login was.
    nexus: Lock<Nexus>,
    /// Commands that block devices have sent again because what had become of them was not known.
    replays: AtomicU64,
    /// What they have written and not flushed.
    caches: Arc<Caches>,
    unsettled: Arc<UnsettledSessions>,
    registrations: Arc<Registrations>,
}

/// How long a target may take to agree to a logout.
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
        let shared = Shared { epoch, parameters, nexus, replays, caches, unsettled, registrations };
        let shared = Arc::new(shared);
        Rc::new(Session { inner: RefCell::new(inner), shared })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The session was begun again, with this machine.
    pub(crate) fn restart(&self, machine: Machine, nexus: Nexus, how: Restart) -> Outage {
        *self.shared.parameters() = machine.parameters().clone();
        *self.shared.nexus() = nexus;
        let outage = self.inner().restart(reactor::now(), machine, how);
        self.shared.epoch.fetch_add(1, Relaxed);
        outage
    }

    /// What was sent in a session of a portal group that was left has ended.
    pub(crate) fn nexus_ended(&self, epoch: u64) {
        self.inner().state().nexus_ended(epoch);
    }

    /// Nobody will end it.
    pub(crate) fn nexus_not_ended(&self, epoch: u64) {
        self.inner().state().nexus_not_ended(epoch);
    }

    /// What a connection's task works on. Held for one round, never across a wait.
    pub(crate) fn inner(&self) -> RefMut<'_, SessionInner> {
        self.inner.borrow_mut()
    }

    /// Sends a command and gives its end.
    pub(crate) fn request(self: &Rc<Session>, spec: CommandSpec) -> Request {
        Request { session: Rc::clone(self), spec, step: Step::Asked }
    }

    /// Asks which targets there are, and gives the answer's text.
    pub(crate) async fn send_targets(&self, which: &str) -> Result<Vec<u8>, CommandError> {
        self.inner().ask_for_targets(which)?;
        let answer = poll_fn(|cx| self.inner().poll_text(cx.waker()));
        let time = self.inner().timeouts.command;
        reactor::timeout(time, answer).await.unwrap_or(Err(CommandError::TimedOut))
    }

    /// Asks for a task management function, and gives the target's answer.
    pub(crate) async fn manage(&self, management: Management) -> Result<TaskManagementResult, CommandError> {
        let mut answer = self.inner().manage(management)?;
        let time = self.inner().timeouts.reset;
        let answered = reactor::timeout(time, answer.recv()).await;
        // Without an answer, the connection that was to bring it is lost.
        answered.map_err(|_| CommandError::TimedOut)?.ok_or(CommandError::ConnectionLost)
    }

    /// Sends a NOP-Out and waits for its answer, by one connection or by any.
    pub(crate) async fn ping(&self, cid: Option<Cid>, data: &[u8]) -> Result<Pong, CommandError> {
        let asked = reactor::now();
        let mut answer = self.inner().ping(cid, data)?;
        let time = self.inner().timeouts.command;
        let answered = reactor::timeout(time, answer.recv()).await.map_err(|_| CommandError::TimedOut)?;
        // Without an answer it was refused, unless the connection is lost that was to bring it.
        let data = answered.ok_or_else(|| match self.inner().has_connection(cid) {
            true => CommandError::Rejected,
            false => CommandError::ConnectionLost,
        })?;
        Ok(Pong { time: reactor::now().saturating_duration_since(asked), data })
    }

    /// Ends when no request that was given up before this call can reach the target any more; an error if nobody
    /// will ever know.
    pub(crate) async fn quiesced(&self) -> Result<(), CommandError> {
        let mark = self.inner().tasks.orphan_mark();
        poll_fn(|cx| match self.inner().tasks.poll_quiet(mark, cx.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        poll_fn(|cx| self.inner().state().poll_settled(cx.waker())).await
    }

    /// Ends when a command that was lost in the session `sent_in` may be sent again, or one that does no harm if it is
    /// carried out late; an error if it must not be, or there is no session any more to send it by.
    pub(crate) async fn usable(&self, sent_in: Option<u64>) -> Result<(), CommandError> {
        poll_fn(|cx| self.inner().state().poll_usable(sent_in, cx.waker())).await
    }

    /// Ends when something is wrong with the session, and says what.
    pub(crate) async fn fault(&self) -> Fault {
        poll_fn(|cx| self.inner().state().poll_fault(cx.waker())).await
    }

    /// Does `work` about some trouble, and gives it up when there is a worse one.
    pub(crate) async fn unless_worse_fault<T>(
        &self,
        fault: Fault,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|cx| match self.inner().state().poll_worse_fault(fault, cx.waker()) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => work.as_mut().poll(cx).map(Some),
        })
        .await
    }

    /// What the session has done.
    pub(crate) fn statistics(&self) -> Statistics {
        let mut statistics = self.inner().statistics(reactor::now());
        statistics.incidents.replays = self.shared.replays.load(Relaxed);
        statistics
    }

    /// Asks the target to end the session, and ends when it has: when it agreed, or when it had the time to.
    pub(crate) async fn close(&self) {
        self.inner().log_out();
        if reactor::timeout(LOGOUT_TIME, self.ended()).await.is_err() {
            self.inner().give_up();
            self.ended().await;
        }
    }

    /// Ends when the session has, for good.
    async fn ended(&self) {
        poll_fn(|cx| self.inner().poll_over(cx.waker())).await;
    }
}

impl Shared {
    /// How often the session was begun again. Requests for an earlier one are not sent.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Relaxed)
    }

    /// A command is sent again whose fate is not known.
    pub(crate) fn replayed(&self) {
        self.replays.fetch_add(1, Relaxed);
    }

    /// What the devices have written and not flushed.
    pub(crate) fn caches(&self) -> &Arc<Caches> {
        &self.caches
    }

    /// The sessions whose lost commands the target may still carry out.
    pub(crate) fn unsettled(&self) -> &UnsettledSessions {
        &self.unsettled
    }

    /// With which units the session has registered a key.
    pub(crate) fn registrations(&self) -> &Registrations {
        &self.registrations
    }

    /// What the last leading login agreed on.
    pub(crate) fn parameters(&self) -> LockGuard<'_, Parameters> {
        self.parameters.lock()
    }

    /// Between whom that login was.
    pub(crate) fn nexus(&self) -> LockGuard<'_, Nexus> {
        self.nexus.lock()
    }
}

/// One command, from when it is asked for to its end. Dropped early, it is given up: the target is asked to abort
/// it, and what it may still do goes on without us.
pub(crate) struct Request {
    session: Rc<Session>,
    /// Without its data once it is sent.
    spec: CommandSpec,
    step: Step,
}

#[derive(Clone, Copy)]
enum Step {
    Asked,
    /// Not sent, and since when it waits for room in the target's window.
    Waiting(Instant),
    Sent(Ticket),
    Over,
}

impl Future for Request {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let this = &mut *self;
        let mut inner = this.session.inner.borrow_mut();
        let since = match this.step {
            Step::Sent(ticket) => {
                let Some(ended) = inner.tasks.poll(ticket, cx.waker()) else { return Poll::Pending };
                this.step = Step::Over;
                return Poll::Ready(ended);
            }
            // Polled again after its end, which nobody does.
            Step::Over => return Poll::Pending,
            Step::Waiting(since) => Some(since),
            Step::Asked => None,
        };
        // The last round may be long ago.
        inner.now = reactor::now();
        let submitted = match since {
            Some(since) if inner.waited(since) >= inner.timeouts.command => {
                Submitted::Failed(CommandError::TimedOut)
            }
            _ => inner.submit(&mut this.spec, cx.waker()),
        };
        match submitted {
            Submitted::Sent(ticket) => {
                since.into_iter().for_each(|since| inner.note_wait(ticket, since));
                this.step = Step::Sent(ticket);
            }
            Submitted::NoRoom => this.step = Step::Waiting(since.unwrap_or(inner.now)),
            Submitted::Failed(error) => {
                this.step = Step::Over;
                return Poll::Ready(Ended::unsent(mem::take(&mut this.spec.transfer), error));
            }
        }
        Poll::Pending
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        match self.step {
            Step::Sent(ticket) => self.session.inner().abandon(ticket),
            // Its turn may have come, and nobody else been woken for it.
            Step::Waiting(_) => self.session.inner().wake_waiting(),
            Step::Asked | Step::Over => {}
        }
    }
}
