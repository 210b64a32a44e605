//! A session as its LUNs hold it: direct on its own thread, by messages from any other.
//!
//! A session cannot leave its thread, and a block device must be usable from all threads. So the session is
//! in a list of its thread, where a [`RemoteTarget`] finds it by a unique number. On another thread that
//! number is not found, and the command is sent by mailbox to a task on the session's thread.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use iscsi::negotiate::Parameters;
use iscsi::pdu::{Cid, Lun, TaskManagementResult};
use reactor::{ExecutorId, Receiver, Sender, mailbox};
use scsi::{LunAddress, cdb::Cdb};

use crate::caches::CachedWrites;
use crate::error::{CommandError, OpenError};
use crate::lun::RemoteLun;
use crate::management::Management;
use crate::nexus::Nexus;
use crate::pings::Pong;
use crate::recorder::FlightRecorder;
use crate::session::{CommandSpec, Request, Session, Shared};
use crate::statistics::Statistics;
use crate::tasks::{Ended, Status, Transfer};
use crate::timeouts::Timeouts;
use crate::unit::Unit;
use crate::unsettled_extents::WriteOutcome;

/// A session with a target, usable from any thread. When the last holder drops it, LUNs included, it logs
/// out.
pub struct RemoteTarget {
    key: u64,
    jobs: Sender<Job>,
    shared: Arc<Shared>,
    timeouts: Timeouts,
    recorder: FlightRecorder,
}

/// A command, sent directly or through the session's thread.
pub(crate) enum Attempt<'a> {
    Local(Request),
    Remote(Pin<Box<dyn Future<Output = Ended> + 'a>>),
}

impl Future for Attempt<'_> {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        match self.get_mut() {
            Attempt::Local(request) => Pin::new(request).poll(cx),
            Attempt::Remote(answer) => answer.as_mut().poll(cx),
        }
    }
}

/// A request of another thread to the session.
enum Job {
    Command(CommandSpec, Sender<Ended>),
    Manage(Management, Sender<Result<TaskManagementResult, CommandError>>),
    Ping(Option<Cid>, Vec<u8>, Sender<Result<Pong, CommandError>>),
    Quiesce(Sender<Result<(), CommandError>>),
    Use(Option<u64>, Sender<Result<(), CommandError>>),
    Describe(Sender<Statistics>),
    LogOut(Sender<()>),
}

static NEXT_KEY: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The sessions of this thread, and the executors that run them: few, so that looking one up is a
    /// comparison or two.
    static LOCAL_SESSIONS: RefCell<Vec<LocalSession>> = const { RefCell::new(Vec::new()) };
}

struct LocalSession {
    key: u64,
    executor: Option<ExecutorId>,
    session: Rc<Session>,
}

impl RemoteTarget {
    /// Registers a session of this thread, and starts its task.
    pub(crate) fn new(
        session: Rc<Session>,
        timeouts: Timeouts,
        recorder: FlightRecorder,
    ) -> Arc<RemoteTarget> {
        let key = NEXT_KEY.fetch_add(1, Relaxed);
        let (jobs, receiver) = mailbox();
        let shared = Arc::clone(session.shared());
        let listed = SessionEntry::new(key, &session);
        reactor::spawn(attend(session, listed, receiver));
        Arc::new(RemoteTarget { key, jobs, shared, timeouts, recorder })
    }

    /// What the last leading login agreed on.
    pub fn parameters(&self) -> Parameters {
        self.shared.parameters().clone()
    }

    /// The I_T nexus of the last leading login.
    pub fn nexus(&self) -> Nexus {
        self.shared.nexus().clone()
    }

    /// Number of reinstatements.
    pub fn reinstatements(&self) -> u64 {
        self.shared.epoch()
    }

    /// The session's statistics, from any thread; `None` if the session's thread is gone.
    pub async fn statistics(&self) -> Option<Statistics> {
        match self.here() {
            Some(session) => Some(session.statistics()),
            None => self.ask(Job::Describe).await,
        }
    }

    /// Adds a ledger of a device's writes to one of the target's LUNs.
    pub(crate) fn watch_cache(&self, lun: Lun) -> CachedWrites {
        self.shared.caches().watch(lun)
    }

    /// Counts a command that is sent again with an unknown outcome.
    pub(crate) fn replayed(&self) {
        self.shared.replayed();
    }

    /// The last PDUs of the session's connections, ended ones included, as a pcapng file; `None` if recording
    /// is disabled. May be called from any thread, in any state of the session.
    pub fn flight_record(&self) -> Option<Vec<u8>> {
        (self.recorder.pdus() > 0).then(|| self.recorder.pcapng())
    }

    /// Reads identity, capacity and features of one of the target's LUNs.
    pub async fn lun(self: &Arc<Self>, number: u16) -> Result<RemoteLun, OpenError> {
        RemoteLun::attach(Arc::clone(self), number).await
    }

    /// The logical unit of this number, of any device type.
    pub fn unit(self: &Arc<Self>, number: u16) -> Unit {
        Unit::new(Arc::clone(self), Lun(LunAddress::Number(number.into()).write()))
    }

    /// The timeouts.
    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Sends a command and returns its status and data.
    pub(crate) async fn execute(
        &self,
        lun: Lun,
        cdb: Cdb,
        transfer: Transfer,
    ) -> Result<(Status, Transfer), CommandError> {
        let ended = self.attempt(CommandSpec { lun, cdb, transfer, epoch: None, waits_for_end: false }).await;
        Ok((ended.outcome?, ended.transfer))
    }

    /// Sends a task management function. The commands that it ends fail with [`CommandError::Aborted`]; block
    /// devices send theirs again.
    pub async fn manage(&self, management: Management) -> Result<TaskManagementResult, CommandError> {
        match self.here() {
            Some(session) => session.manage(management).await,
            None => {
                let answer = self.ask(|reply| Job::Manage(management, reply)).await;
                answer.ok_or(CommandError::ConnectionLost)?
            }
        }
    }

    /// Sends a NOP-Out with data, as much as the target accepts in one PDU, by the connection with this CID
    /// or by any. It is not repeated if the connection is lost.
    pub async fn ping(&self, cid: Option<Cid>, data: &[u8]) -> Result<Pong, CommandError> {
        match self.here() {
            Some(session) => session.ping(cid, data).await,
            None => {
                let answer = self.ask(|reply| Job::Ping(cid, data.to_vec(), reply)).await;
                answer.ok_or(CommandError::ConnectionLost)?
            }
        }
    }

    /// Sends a command and returns its result, with its data if the command has ended.
    pub(crate) fn attempt(&self, spec: CommandSpec) -> Attempt<'_> {
        match self.here() {
            Some(session) => Attempt::Local(session.request(spec)),
            None => Attempt::Remote(Box::pin(async {
                let ended = self.ask(|reply| Job::Command(spec, reply)).await;
                ended.unwrap_or(Ended::unfinished(CommandError::ConnectionLost))
            })),
        }
    }

    /// Ends when a command lost in the session `sent_in` may be sent again, or one that is harmless when
    /// executed late; an error if it must not be sent, or there is no session to send it in.
    pub(crate) async fn usable(&self, sent_in: Option<u64>) -> Result<(), CommandError> {
        match self.here() {
            Some(session) => session.usable(sent_in).await,
            None => {
                let answer = self.ask(|reply| Job::Use(sent_in, reply)).await;
                answer.ok_or(CommandError::ConnectionLost)?
            }
        }
    }

    /// Whether the target may still execute commands lost in a session.
    pub(crate) fn is_unsettled(&self, epoch: u64) -> bool {
        self.shared.unsettled().contains(epoch)
    }

    /// The outcome of a write that failed in a session before it was certain to have ended.
    pub(crate) fn outcome(&self, epoch: u64) -> WriteOutcome {
        // In this order: the number changes after the list.
        let is_present = epoch >= self.reinstatements();
        match self.is_unsettled(epoch) {
            true => WriteOutcome::Unsettled,
            false if is_present => WriteOutcome::InSession,
            false => WriteOutcome::Ended,
        }
    }

    /// Whether a key was registered with this logical unit in another portal group, before the session moved.
    /// A registration belongs to one I_T nexus, so reservations exclude this session.
    pub fn has_orphaned_registration(&self, lun: Lun) -> bool {
        self.shared.registrations().is_orphaned(lun)
    }

    /// Ends when no request dropped before can reach the target any more; an error if that will never be
    /// known.
    pub(crate) async fn quiesced(&self) -> Result<(), CommandError> {
        match self.here() {
            Some(session) => session.quiesced().await,
            None => self.ask(Job::Quiesce).await.ok_or(CommandError::ConnectionLost)?,
        }
    }

    /// Logs out, and ends when the session has.
    pub async fn close(&self) {
        match self.here() {
            Some(session) => session.close().await,
            // A session that does not respond has ended.
            None => drop(self.ask(Job::LogOut).await),
        }
    }

    fn here(&self) -> Option<Rc<Session>> {
        LOCAL_SESSIONS.with_borrow(|here| {
            let here = here.iter().find(|here| here.key == self.key && here.executor == reactor::executor());
            here.map(|here| Rc::clone(&here.session))
        })
    }

    async fn ask<T: Send>(&self, job: impl FnOnce(Sender<T>) -> Job) -> Option<T> {
        let (reply, mut answer) = mailbox();
        self.jobs.send(job(reply)).ok()?;
        answer.recv().await
    }
}

/// Serves requests of other threads, and ends the session when it has no holder.
async fn attend(session: Rc<Session>, listed: SessionEntry, mut jobs: Receiver<Job>) {
    while let Some(job) = jobs.recv().await {
        let session = Rc::clone(&session);
        reactor::spawn(async move {
            // The requester was dropped.
            match job {
                Job::Command(spec, reply) => {
                    let _ = reply.send(session.request(spec).await);
                }
                Job::Manage(management, reply) => {
                    let _ = reply.send(session.manage(management).await);
                }
                Job::Ping(cid, data, reply) => {
                    let _ = reply.send(session.ping(cid, &data).await);
                }
                Job::Quiesce(reply) => {
                    let _ = reply.send(session.quiesced().await);
                }
                Job::Use(sent_in, reply) => {
                    let _ = reply.send(session.usable(sent_in).await);
                }
                Job::Describe(reply) => {
                    let _ = reply.send(session.statistics());
                }
                Job::LogOut(reply) => {
                    session.close().await;
                    let _ = reply.send(());
                }
            }
        });
    }
    drop(listed);
    session.close().await;
}

/// A session's place in the list of its thread. It ends with the task that attends to the session, also when
/// that is dropped because the thread's executor has ended: a thread may have another.
struct SessionEntry(u64);

impl SessionEntry {
    fn new(key: u64, session: &Rc<Session>) -> SessionEntry {
        let session = Rc::clone(session);
        LOCAL_SESSIONS
            .with_borrow_mut(|here| here.push(LocalSession { key, executor: reactor::executor(), session }));
        SessionEntry(key)
    }
}

impl Drop for SessionEntry {
    fn drop(&mut self) {
        let taken = LOCAL_SESSIONS.try_with(|here| {
            let mut here = here.borrow_mut();
            let place = here.iter().position(|here| here.key == self.0)?;
            Some(here.swap_remove(place))
        });
        drop(taken); // after the borrow; where the thread is ending, its list has ended before
    }
}
