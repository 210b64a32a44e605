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

/// A protocol that serves volumes: the part that all cores share.
pub trait FrontEnd: Send + Sync {
    /// Its name, which [`Portal::front_end`] repeats.
    fn name(&self) -> &'static str;

    /// Creates its part of one core, on the thread of that core and before the first connection.
    fn begin(self: Arc<Self>, handle: CoreHandle) -> Rc<dyn CoreFrontEnd>;

    /// Whether hosts at this address have sessions: their connections that have not logged in are evicted
    /// last.
    fn has_sessions(&self, from: AddressBlock) -> bool;

    /// The offset in its portals' datagrams of the word (big-endian) that selects the core: its remainder,
    /// divided by [`Server::datagram_cores`](crate::Server::datagram_cores), is the core's number. `None`:
    /// all are for the first core.
    fn shares_datagrams_at(&self) -> Option<u16> {
        None
    }

    /// A volume has grown: notifies the hosts that use it.
    fn volume_grew(&self, volume: &Arc<Volume>);
}

/// A front end's part of one core: the sessions that live there. Everything is called on the thread of that
/// core.
pub trait CoreFrontEnd: Any {
    /// Takes an accepted connection through its login to its session. Connections are accepted on the first
    /// core and log in on all cores, round-robin. The front end moves each to the core of its session. The
    /// future is dropped if the connection is evicted.
    fn accept(self: Rc<Self>, accepted: Accepted) -> Pin<Box<dyn Future<Output = ()>>>;

    /// Serves the datagrams of a portal, until the future is dropped. For front ends whose portals are
    /// [`ListenAddress::Datagrams`](crate::ListenAddress::Datagrams), on the first core. If the front end
    /// shares datagrams, it is called on the first [`Server::datagram_cores`](crate::Server::datagram_cores)
    /// cores, with the same number, which is unique to the portal.
    fn receive(
        self: Rc<Self>,
        _: Portal,
        _number: u32,
        _: Box<dyn Datagrams>,
    ) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async {})
    }

    /// Aborts the commands selected by the order: none of them starts any more, and hosts are notified as
    /// their protocol requires. The caller waits until the order's volume has quiesced. For other volumes
    /// that the commands used it waits for `done`: drop it when those have quiesced.
    fn abort(self: Rc<Self>, order: &AbortOrder, done: &Sender<()>);

    /// The configuration has changed: adapts the sessions that it affects. Drop `done` when removed volumes
    /// are no longer in use.
    fn adapt(self: Rc<Self>, done: &Sender<()>);

    /// The statistics of this core, for monitoring, which is independent of front ends. A
    /// [`crate::CoreTally`] provides them.
    fn statistics(&self) -> CoreStatistics;

    /// Handles timeouts of commands and of unresponsive peers. Returns true if commands are outstanding, so
    /// that the next tick comes soon.
    fn tick(&self, now: Instant) -> bool;

    /// The slow peer that has held this core's memory longest.
    fn slowest_holder(&self, now: Instant) -> Option<SlowHolder>;

    /// The server is shutting down: requests logouts within this time.
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
    /// Counts the connection against the limit of its address; kept as long as the connection.
    pub permit: ConnectionPermit,
}

/// The commands to abort.
#[derive(Clone)]
pub struct AbortOrder {
    /// The volume that they use.
    pub volume: Arc<Volume>,
    /// The attachments that issued them.
    pub owners: Owners,
    /// The attachment that ordered the abort: it has aborted its own commands, and its later ones continue.
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
    /// When it started to hold memory.
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
    /// Its front end ([`crate::FrontEnd::name`]).
    pub front_end: &'static str,
    /// The front end's number for it, if any; a later session may reuse it.
    pub handle: Option<u16>,
}

/// Receives events. Its methods are called on reactor threads and must not block.
pub trait Observer: Send + Sync {
    /// A host has logged in, from this address.
    fn session_began(&self, session: SessionInfo<'_>, peer: HostAddress);

    /// Its last connection has ended.
    fn session_ended(&self, session: SessionInfo<'_>);

    /// Requests of a volume have started to fail, or its device is unresponsive.
    fn volume_failed(&self, volume: &str, cause: &str);

    /// A volume has recovered, after this number of failed requests and this time.
    fn volume_recovered(&self, volume: &str, failed: u64, time: Duration);

    /// A volume is out of service until its device, unresponsive for this time, responds.
    fn volume_fenced(&self, volume: &str, silent: Duration);

    /// A volume has grown to this size.
    fn volume_grew(&self, volume: &str, bytes: u64);
}
