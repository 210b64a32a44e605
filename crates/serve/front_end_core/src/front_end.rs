//! The interface of a protocol that serves volumes, and the events that a server reports to an observer. The
//! observer is optional.

use std::any::Any;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reactor::{Datagrams, Sender, Stream};
use volume::{AttachmentId, Volume};

use crate::address::{AddressBlock, HostAddress};
use crate::portal::Portal;
use crate::server::{ConnectionPermit, CoreHandle};
use crate::tally::CoreStatistics;

/// A protocol that serves volumes. This is the part that all cores share.
pub trait FrontEnd: Send + Sync {
    /// The name of the front end. Portals refer to the front end by this name ([`Portal::front_end`]).
    fn name(&self) -> &'static str;

    /// Creates the part of the front end for one core. Called on the thread of that core, before the first
    /// connection.
    fn begin(self: Arc<Self>, handle: CoreHandle) -> Rc<dyn CoreFrontEnd>;

    /// Whether hosts at this address have sessions. If so, connections from this address that have not logged
    /// in are evicted last.
    fn has_sessions(&self, from: AddressBlock) -> bool;

    /// The offset of the big-endian word that selects the core of a datagram: the core's number is this word
    /// modulo [`Server::datagram_cores`](crate::Server::datagram_cores). `None` if the first core receives
    /// all datagrams.
    fn shares_datagrams_at(&self) -> Option<u16> {
        None
    }

    /// Notifies the hosts that use a volume that it has grown.
    fn volume_grew(&self, volume: &Arc<Volume>);
}

/// The part of a front end for one core: the sessions on that core. All methods are called on the thread of
/// that core.
pub trait CoreFrontEnd: Any {
    /// Takes an accepted connection through its login to its session. Connections are accepted on the first
    /// core and log in on all cores, round-robin. The front end moves each to the core of its session. The
    /// future is dropped if the connection is evicted.
    fn accept(self: Rc<Self>, accepted: Accepted) -> Pin<Box<dyn Future<Output = ()>>>;

    /// Serves the datagrams of a portal, until the future is dropped. Called on the first core, for front
    /// ends whose portals are [`ListenAddress::Datagrams`](crate::ListenAddress::Datagrams). If the front end
    /// shares datagrams, this is called on the first
    /// [`Server::datagram_cores`](crate::Server::datagram_cores) cores, with the same number, which is unique
    /// to the portal.
    fn receive(
        self: Rc<Self>,
        _: Portal,
        _number: u32,
        _: Box<dyn Datagrams>,
    ) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async {})
    }

    /// Aborts the commands selected by the order. None of them may start afterwards, and hosts are notified
    /// as their protocol requires. The caller waits until the order's volume has quiesced. If the commands
    /// used other volumes, the front end drops `done` once those have quiesced; the caller waits for that,
    /// too.
    fn abort(self: Rc<Self>, order: &AbortOrder, done: &Sender<()>);

    /// Adapts the sessions to a changed configuration. The front end drops `done` once removed volumes are no
    /// longer in use.
    fn adapt(self: Rc<Self>, done: &Sender<()>);

    /// The statistics of this core, in the form that monitoring uses for all front ends. A
    /// [`crate::CoreTally`] provides them.
    fn statistics(&self) -> CoreStatistics;

    /// Handles timeouts of commands and of unresponsive peers. Returns true if commands are outstanding,
    /// which shortens the time until the next tick.
    fn tick(&self, now: Instant) -> bool;

    /// Returns the slow peer that has held memory of this core for the longest time.
    fn slowest_holder(&self, now: Instant) -> Option<SlowHolder>;

    /// Asks hosts to log out within `grace`, because the server is shutting down.
    fn ask_to_leave(&self, grace: Duration);

    /// Whether this core has no sessions.
    fn is_idle(&self) -> bool;

    /// Cuts all remaining connections.
    fn close_all(&self);
}

/// An accepted connection.
pub struct Accepted {
    /// The portal that accepted it, with its bound port.
    pub portal: Portal,
    /// The connection.
    pub stream: Box<dyn Stream>,
    /// Counts the connection against the limit of its address. Must be kept as long as the connection.
    pub permit: ConnectionPermit,
}

/// The commands to abort.
#[derive(Clone)]
pub struct AbortOrder {
    /// The volume that they use.
    pub volume: Arc<Volume>,
    /// The attachments that issued them.
    pub owners: Owners,
    /// The attachment that ordered the abort. It has already aborted its own commands, and its later commands
    /// continue.
    pub spared: Option<AttachmentId>,
}

/// The attachments whose commands for a volume are aborted.
#[derive(Clone, Debug)]
pub enum Owners {
    /// All attachments.
    All,
    /// These attachments.
    These(Vec<AttachmentId>),
}

impl AbortOrder {
    /// Whether the order includes commands of this attachment.
    pub fn is_about(&self, attachment: AttachmentId) -> bool {
        let is_meant = match &self.owners {
            Owners::All => true,
            Owners::These(these) => these.contains(&attachment),
        };
        is_meant && self.spared != Some(attachment)
    }
}

/// A slow peer that holds memory.
pub struct SlowHolder {
    /// The time at which the peer started to hold memory.
    pub since: Instant,
    /// Cuts its connection, which frees the memory.
    pub cut: Box<dyn FnOnce()>,
}

// Events that a server reports to an observer: sessions that start and end, volumes that fail, recover, grow
// and are fenced. The observer is optional.

/// A session of a host, in any protocol.
#[derive(Clone, Copy, Debug)]
pub struct SessionInfo<'a> {
    /// The host's name in its protocol, such as an iSCSI name.
    pub initiator: &'a str,
    /// The authenticated user.
    pub user: Option<&'a str>,
    /// The target that it uses; `None` for a discovery session.
    pub target: Option<&'a str>,
    /// The name of its front end ([`crate::FrontEnd::name`]).
    pub front_end: &'static str,
    /// The number that the front end assigned to the session, if any. A later session may reuse the number.
    pub handle: Option<u16>,
}

/// Receives events. Its methods are called on reactor threads and must not block.
pub trait Observer: Send + Sync {
    /// A host has logged in, from this address.
    fn session_began(&self, session: SessionInfo<'_>, peer: HostAddress);

    /// A session has ended: its last connection is closed.
    fn session_ended(&self, session: SessionInfo<'_>);

    /// Requests of a volume have started to fail, or its device is unresponsive.
    fn volume_failed(&self, volume: &str, cause: &str);

    /// A volume has recovered: `failed` requests failed in a period of `time`.
    fn volume_recovered(&self, volume: &str, failed: u64, time: Duration);

    /// A volume was fenced: its device has been unresponsive for this time, and the volume is out of service
    /// until the device responds.
    fn volume_fenced(&self, volume: &str, silent: Duration);

    /// A volume has grown to this size.
    fn volume_grew(&self, volume: &str, bytes: u64);
}
