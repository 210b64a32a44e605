//! A session with a target, as its LUNs use it: directly on the session's own thread, and through messages
//! from any other thread.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use iscsi::negotiate::{Parameters, SessionType};
use iscsi::pdu::{Cid, Lun, TaskManagementResult};
use reactor::Resident;
use scsi::cdb::Cdb;

use crate::caches::{CacheEffect, Caches};
use crate::effect::Effect;
use crate::error::CommandError;
use crate::inner::{Management, Pong};
use crate::recorder::FlightRecorder;
use crate::session::{Request, Session, Shared};
use crate::session_state::{Nexus, WriteOutcome};
use crate::statistics::Statistics;
use crate::tasks::{CommandEnd, CommandSpec, Status, Transfer};
use crate::url::Timeouts;

/// A session with a target. It can be used from any thread. When its last owner, which may be one of its
/// LUNs, drops it, the session logs out.
pub struct RemoteTarget {
    link: Link,
    /// Unflushed writes of the devices.
    pub(crate) caches: Arc<Caches>,
    timeouts: Timeouts,
}

/// The transport of commands.
enum Link {
    Iscsi {
        session: Resident<Session>,
        shared: Arc<Shared>,
        recorder: FlightRecorder,
    },
    Other(Box<dyn Carrier>),
}

/// The future of a command that is sent directly, through the session's thread, or over another protocol.
pub(crate) enum Attempt<'a> {
    Local(Request),
    Remote(Pin<Box<dyn Future<Output = CommandEnd> + 'a>>),
}

impl Future for Attempt<'_> {
    type Output = CommandEnd;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CommandEnd> {
        match self.get_mut() {
            Attempt::Local(request) => Pin::new(request).poll(cx),
            Attempt::Remote(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl RemoteTarget {
    /// Registers a session of this thread, and starts its task.
    pub(crate) fn new(
        session: Rc<Session>,
        timeouts: Timeouts,
        recorder: FlightRecorder,
    ) -> Arc<RemoteTarget> {
        let shared = Arc::clone(session.shared());
        let session = Resident::new(session, async |session: Rc<Session>| session.close().await);
        let caches = Arc::clone(&shared.caches);
        Arc::new(RemoteTarget {
            link: Link::Iscsi {
                session,
                shared,
                recorder,
            },
            caches,
            timeouts,
        })
    }

    /// Creates a target that is reached by a session of another protocol. The session must record its
    /// commands in the [`CommandRecord`].
    pub fn carried(
        carrier: impl Carrier + 'static,
        record: &CommandRecord,
        timeouts: Timeouts,
    ) -> Arc<RemoteTarget> {
        let (link, caches) = (Link::Other(Box::new(carrier)), Arc::clone(&record.0));
        Arc::new(RemoteTarget {
            link,
            caches,
            timeouts,
        })
    }

    /// Returns the parameters of the last leading login. For a session of another protocol, returns iSCSI's
    /// defaults.
    pub fn parameters(&self) -> Parameters {
        match &self.link {
            Link::Iscsi { shared, .. } => shared.parameters.lock().clone(),
            Link::Other(_) => Parameters::defaults(SessionType::Normal),
        }
    }

    /// Returns the I_T nexus of the last leading login.
    pub fn nexus(&self) -> Nexus {
        match &self.link {
            Link::Iscsi { shared, .. } => shared.nexus.lock().clone(),
            Link::Other(carrier) => carrier.nexus(),
        }
    }

    /// Returns the number of reinstatements.
    pub fn reinstatements(&self) -> u64 {
        match &self.link {
            Link::Iscsi { shared, .. } => shared.epoch(),
            Link::Other(carrier) => carrier.reinstatements(),
        }
    }

    /// Returns the session's statistics; `None` if the session's thread has ended, or this is not an iSCSI
    /// session.
    pub async fn statistics(&self) -> Option<Statistics> {
        let Link::Iscsi { session, .. } = &self.link else {
            return None;
        };
        session.with(async |session| session.statistics()).await
    }

    /// Counts a resent command whose outcome was unknown.
    pub(crate) fn replayed(&self) {
        match &self.link {
            Link::Iscsi { shared, .. } => shared.replayed(),
            Link::Other(carrier) => carrier.replayed(),
        }
    }

    /// Returns the maximum data length of a command, if the protocol has a specific limit.
    pub(crate) fn data_bytes_max(&self) -> Option<usize> {
        match &self.link {
            Link::Iscsi { .. } => None,
            Link::Other(carrier) => Some(carrier.data_bytes_max()),
        }
    }

    /// Returns the last PDUs of the session's connections, including ended connections, as a pcapng file;
    /// `None` if recording is disabled. May be called from any thread, in any state of the session.
    pub fn flight_record(&self) -> Option<Vec<u8>> {
        let Link::Iscsi { recorder, .. } = &self.link else {
            return None;
        };
        (recorder.pdus() > 0).then(|| recorder.pcapng())
    }

    /// Returns the timeouts.
    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Sends a task management function. The commands that it aborts fail with [`CommandError::Aborted`].
    /// Block devices resend their commands.
    pub async fn manage(
        &self,
        management: Management,
    ) -> Result<TaskManagementResult, CommandError> {
        let session = match &self.link {
            Link::Iscsi { session, .. } => session,
            Link::Other(carrier) => return carrier.manage(management).await,
        };
        let answer = session
            .with(async move |session| session.manage(management).await)
            .await;
        answer.ok_or(CommandError::ConnectionLost)?
    }

    /// Sends a NOP-Out with as much of the data as the target accepts in one PDU, over the connection with
    /// this CID, or over any connection. The NOP-Out is not repeated if the connection is lost. Supported for
    /// iSCSI only.
    pub async fn ping(&self, cid: Option<Cid>, data: &[u8]) -> Result<Pong, CommandError> {
        let Link::Iscsi { session, .. } = &self.link else {
            return Err(CommandError::Rejected);
        };
        let data = data.to_vec();
        let answer = session
            .with(async move |session| session.ping(cid, &data).await)
            .await;
        answer.ok_or(CommandError::ConnectionLost)?
    }

    /// Sends a command, and returns its result. The data is returned as well if the command has ended.
    pub(crate) fn attempt(&self, spec: CommandSpec) -> Attempt<'_> {
        let session = match &self.link {
            Link::Iscsi { session, .. } => session,
            Link::Other(carrier) => return Attempt::Remote(carrier.carry(spec)),
        };
        match session.here() {
            Some(session) => Attempt::Local(session.request(spec)),
            None => Attempt::Remote(Box::pin(async {
                let ended = session.ask(|session| session.request(spec)).await;
                ended.unwrap_or(CommandEnd::unfinished(CommandError::ConnectionLost))
            })),
        }
    }

    /// Resolves when a command that was lost in the session `sent_in` may be sent again. With `None`,
    /// resolves when a command that is harmless even if executed late may be sent again. Fails if the command
    /// must not be sent, or there is no session in which to send it.
    pub(crate) async fn usable(&self, sent_in: Option<u64>) -> Result<(), CommandError> {
        let session = match &self.link {
            Link::Iscsi { session, .. } => session,
            Link::Other(carrier) => return carrier.usable().await,
        };
        let answer = session
            .with(async move |session| session.usable(sent_in).await)
            .await;
        answer.ok_or(CommandError::ConnectionLost)?
    }

    /// Returns whether the target may still execute commands lost in a session.
    pub(crate) fn is_unsettled(&self, epoch: u64) -> bool {
        match &self.link {
            Link::Iscsi { shared, .. } => shared.unsettled.contains(epoch),
            Link::Other(carrier) => carrier.is_lost() && epoch >= carrier.reinstatements(),
        }
    }

    /// Returns the outcome of a write that failed in a session and may not have ended.
    pub(crate) fn outcome(&self, epoch: u64) -> WriteOutcome {
        // Read the number first, because it changes after the list of unsettled sessions.
        let is_present = epoch >= self.reinstatements();
        match self.is_unsettled(epoch) {
            true => WriteOutcome::Unsettled,
            false if is_present => WriteOutcome::InSession,
            false => WriteOutcome::Ended,
        }
    }

    /// Returns whether a key was registered with this logical unit in another portal group, before the
    /// session moved. A registration belongs to one I_T nexus, so reservations now exclude this session.
    pub fn has_orphaned_registration(&self, lun: Lun) -> bool {
        match &self.link {
            Link::Iscsi { shared, .. } => shared.registrations.is_orphaned(lun),
            Link::Other(_) => false,
        }
    }

    /// Resolves when no request dropped before this call can still reach the target. Fails if that cannot be
    /// determined.
    pub(crate) async fn quiesced(&self) -> Result<(), CommandError> {
        let session = match &self.link {
            Link::Iscsi { session, .. } => session,
            Link::Other(carrier) => return carrier.quiesced().await,
        };
        match session.here() {
            Some(session) => session.quiesced().await,
            None => session
                .ask(async |session| {
                    reactor::catch_up().await;
                    session.quiesced().await
                })
                .await
                .ok_or(CommandError::ConnectionLost)?,
        }
    }

    /// Logs out, and resolves when the session has ended.
    pub async fn close(&self) {
        let session = match &self.link {
            Link::Iscsi { session, .. } => session,
            Link::Other(carrier) => return carrier.close().await,
        };
        // If the session's thread does not respond, the session has ended.
        let _ = session.with(async |session| session.close().await).await;
    }
}

/// The future result of a carrier's operation.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Carries SCSI commands over a protocol other than iSCSI. A carrier can be used from any thread, and its
/// session ends when the carrier is dropped. With a carrier, [`RemoteTarget`], and therefore
/// [`RemoteLun`](crate::RemoteLun), [`Unit`](crate::Unit) and [`verbs`](crate::verbs), also work for LUNs
/// over that protocol.
///
/// A carrier has consecutive sessions, which count as reinstatements of one session. A command that was lost
/// with a session either has ended, or will not be executed after any command of the next session.
pub trait Carrier: Send + Sync {
    /// Sends a command, and returns its result with its data. If the future is dropped early, the command is
    /// aborted.
    fn carry(&self, command: CommandSpec) -> Answer<'_, CommandEnd>;
    /// Sends a task management function.
    fn manage(
        &self,
        management: Management,
    ) -> Answer<'_, Result<TaskManagementResult, CommandError>>;
    /// Resolves when there is a session in which commands may be sent, including commands that were lost in
    /// an earlier session. Fails if there has been no session for too long, or there will be none.
    fn usable(&self) -> Answer<'_, Result<(), CommandError>>;
    /// Resolves once no command dropped before this call can still be executed. Fails if that cannot be
    /// determined.
    fn quiesced(&self) -> Answer<'_, Result<(), CommandError>>;
    /// Ends the session.
    fn close(&self) -> Answer<'_, ()>;
    /// Returns the number of reinstatements. It changes after `is_lost` does.
    fn reinstatements(&self) -> u64;
    /// Returns whether the current session is lost, and the next one has not started.
    fn is_lost(&self) -> bool;
    /// Counts a resent command whose outcome was unknown.
    fn replayed(&self);
    /// Returns the maximum data length of a command.
    fn data_bytes_max(&self) -> usize;
    /// Returns the initiator and the target of the session, in iSCSI's terms.
    fn nexus(&self) -> Nexus;
}

/// A session's record of its commands, which determines the writes that a loss of the target's cache would
/// affect. Each command is recorded when it completes, before the requester receives the result, and even if
/// the requester no longer waits.
#[derive(Clone, Debug, Default)]
pub struct CommandRecord(pub(crate) Arc<Caches>);

/// An outstanding command, to be recorded when it ends.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    lun: Lun,
    effect: Effect,
}

impl CommandRecord {
    /// Starts the record of a command.
    pub fn begin(&self, lun: Lun, cdb: &Cdb, transfer: &Transfer) -> Recorded {
        Recorded {
            lun,
            effect: Effect::from_cdb(cdb, transfer.sent()),
        }
    }

    /// Records that the session was lost, and another one starts. The target may have been restarted. Must be
    /// called before a command is sent in the new session.
    pub fn renewed(&self) {
        self.0.renewed();
    }

    /// Records the outcome of a command.
    pub fn end(&self, command: Recorded, outcome: &Result<Status, CommandError>) {
        self.0.note(
            command.lun,
            command.effect,
            CacheEffect::from_outcome(outcome),
        );
    }
}
