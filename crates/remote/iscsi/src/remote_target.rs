//! A session as used by its LUNs: directly on its own thread, through messages from any other.

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

/// A session with a target, usable from any thread. When the last holder drops it, LUNs included, it logs
/// out.
pub struct RemoteTarget {
    link: Link,
    /// Unflushed writes of the devices.
    pub(crate) caches: Arc<Caches>,
    timeouts: Timeouts,
}

/// The transport of commands.
enum Link {
    Iscsi { session: Resident<Session>, shared: Arc<Shared>, recorder: FlightRecorder },
    Other(Box<dyn Carrier>),
}

/// A command, sent directly, or through the session's thread or another protocol.
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
        Arc::new(RemoteTarget { link: Link::Iscsi { session, shared, recorder }, caches, timeouts })
    }

    /// The target reached by a session of another protocol; the session records its commands in `record`.
    pub fn carried(
        carrier: impl Carrier + 'static,
        record: &CommandRecord,
        timeouts: Timeouts,
    ) -> Arc<RemoteTarget> {
        let (link, caches) = (Link::Other(Box::new(carrier)), Arc::clone(&record.0));
        Arc::new(RemoteTarget { link, caches, timeouts })
    }

    /// The parameters of the last leading login; iSCSI's defaults for a session of another protocol.
    pub fn parameters(&self) -> Parameters {
        match &self.link {
            Link::Iscsi { shared, .. } => shared.parameters.lock().clone(),
            Link::Other(_) => Parameters::defaults(SessionType::Normal),
        }
    }

    /// The I_T nexus of the last leading login.
    pub fn nexus(&self) -> Nexus {
        match &self.link {
            Link::Iscsi { shared, .. } => shared.nexus.lock().clone(),
            Link::Other(carrier) => carrier.nexus(),
        }
    }

    /// Number of reinstatements.
    pub fn reinstatements(&self) -> u64 {
        match &self.link {
            Link::Iscsi { shared, .. } => shared.epoch(),
            Link::Other(carrier) => carrier.reinstatements(),
        }
    }

    /// The session's statistics, from any thread; `None` if the session's thread has ended, or it is not an
    /// iSCSI session.
    pub async fn statistics(&self) -> Option<Statistics> {
        let Link::Iscsi { session, .. } = &self.link else { return None };
        session.with(async |session| session.statistics()).await
    }

    /// Counts a resent command whose outcome was unknown.
    pub(crate) fn replayed(&self) {
        match &self.link {
            Link::Iscsi { shared, .. } => shared.replayed(),
            Link::Other(carrier) => carrier.replayed(),
        }
    }

    /// Maximum data length of a command, if the protocol has a specific limit.
    pub(crate) fn data_bytes_max(&self) -> Option<usize> {
        match &self.link {
            Link::Iscsi { .. } => None,
            Link::Other(carrier) => Some(carrier.data_bytes_max()),
        }
    }

    /// The last PDUs of the session's connections, ended ones included, as a pcapng file; `None` if recording
    /// is disabled. May be called from any thread, in any state of the session.
    pub fn flight_record(&self) -> Option<Vec<u8>> {
        let Link::Iscsi { recorder, .. } = &self.link else { return None };
        (recorder.pdus() > 0).then(|| recorder.pcapng())
    }

    /// The timeouts.
    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Sends a task management function. The commands that it ends fail with [`CommandError::Aborted`]; block
    /// devices resend theirs.
    pub async fn manage(&self, management: Management) -> Result<TaskManagementResult, CommandError> {
        let session = match &self.link {
            Link::Iscsi { session, .. } => session,
            Link::Other(carrier) => return carrier.manage(management).await,
        };
        let answer = session.with(async move |session| session.manage(management).await).await;
        answer.ok_or(CommandError::ConnectionLost)?
    }

    /// Sends a NOP-Out with data, as much as the target accepts in one PDU, over the connection with this CID
    /// or any connection. It is not repeated if the connection is lost. iSCSI only.
    pub async fn ping(&self, cid: Option<Cid>, data: &[u8]) -> Result<Pong, CommandError> {
        let Link::Iscsi { session, .. } = &self.link else { return Err(CommandError::Rejected) };
        let data = data.to_vec();
        let answer = session.with(async move |session| session.ping(cid, &data).await).await;
        answer.ok_or(CommandError::ConnectionLost)?
    }

    /// Sends a command and returns its result, with its data if the command has ended.
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

    /// Resolves when a command lost in the session `sent_in` may be sent again, or a command that is harmless
    /// even if executed late. Fails if it must not be sent, or there is no session to send it in.
    pub(crate) async fn usable(&self, sent_in: Option<u64>) -> Result<(), CommandError> {
        let session = match &self.link {
            Link::Iscsi { session, .. } => session,
            Link::Other(carrier) => return carrier.usable().await,
        };
        let answer = session.with(async move |session| session.usable(sent_in).await).await;
        answer.ok_or(CommandError::ConnectionLost)?
    }

    /// Whether the target may still execute commands lost in a session.
    pub(crate) fn is_unsettled(&self, epoch: u64) -> bool {
        match &self.link {
            Link::Iscsi { shared, .. } => shared.unsettled.contains(epoch),
            Link::Other(carrier) => carrier.is_lost() && epoch >= carrier.reinstatements(),
        }
    }

    /// The outcome of a write that failed in a session and may not have ended.
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
        // A session that does not respond has ended.
        let _ = session.with(async |session| session.close().await).await;
    }
}

/// The future result of a carrier's operation.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Sessions that carry SCSI commands over a protocol other than iSCSI, usable from any thread. They end when
/// dropped. With it, [`RemoteTarget`], and therefore [`RemoteLun`](crate::RemoteLun), [`Unit`](crate::Unit) and
/// [`verbs`](crate::verbs), serve LUNs of both.
///
/// A carrier has consecutive sessions, which count as reinstatements of one. A command that was lost with a
/// session either has ended, or will not be executed after any command of the next one.
pub trait Carrier: Send + Sync {
    /// Sends a command, and returns its result with its data. If dropped early, the command is aborted.
    fn carry(&self, command: CommandSpec) -> Answer<'_, CommandEnd>;
    /// Sends a task management function.
    fn manage(&self, management: Management) -> Answer<'_, Result<TaskManagementResult, CommandError>>;
    /// Resolves when there is a session in which commands may be sent, including those that were lost in an
    /// earlier one. Fails if there has been none for too long, or there will be none.
    fn usable(&self) -> Answer<'_, Result<(), CommandError>>;
    /// Resolves once no command dropped before this call can still be executed. Fails if that cannot be
    /// determined.
    fn quiesced(&self) -> Answer<'_, Result<(), CommandError>>;
    /// Ends the session.
    fn close(&self) -> Answer<'_, ()>;
    /// Number of reinstatements. It changes after `is_lost` does.
    fn reinstatements(&self) -> u64;
    /// Whether the current session is lost, and the next one has not started.
    fn is_lost(&self) -> bool;
    /// Counts a resent command whose outcome was unknown.
    fn replayed(&self);
    /// Maximum data length of a command.
    fn data_bytes_max(&self) -> usize;
    /// Both sides of the session, in iSCSI's terms.
    fn nexus(&self) -> Nexus;
}

/// A session's record of its commands: the writes that a loss of the target's cache would lose. Each is
/// recorded when it ends, whether or not its requester waits, and before the requester gets the result.
#[derive(Clone, Debug, Default)]
pub struct CommandRecord(pub(crate) Arc<Caches>);

/// A command that is recorded when it ends.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    lun: Lun,
    effect: Effect,
}

impl CommandRecord {
    /// Starts the record of a command.
    pub fn begin(&self, lun: Lun, cdb: &Cdb, transfer: &Transfer) -> Recorded {
        Recorded { lun, effect: Effect::from_cdb(cdb, transfer.sent()) }
    }

    /// The session was lost, and another one starts: the target may have been restarted. Must be called
    /// before a command is sent in the new session.
    pub fn renewed(&self) {
        self.0.renewed();
    }

    /// Records the end of a command.
    pub fn end(&self, command: Recorded, outcome: &Result<Status, CommandError>) {
        self.0.note(command.lun, command.effect, CacheEffect::from_outcome(outcome));
    }
}
