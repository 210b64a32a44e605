//! The interface of a protocol that serves volumes, and what a server tells whoever follows what happens in it. Nothing depends on there
//! being an observer.

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

    /// Makes its part of one core, on the thread of that core and before the first connection.
    fn begin(self: Arc<Self>, handle: CoreHandle) -> Rc<dyn CoreFrontEnd>;

    /// Whether hosts at this address have sessions: their connections that have not logged in are evicted
    /// last.
    fn has_sessions(&self, from: AddressBlock) -> bool;

    /// Where the datagrams of its portals have the word (big-endian) that says which core they are for: the one with the number of its
    /// remainder, divided by [`Server::datagram_cores`](crate::Server::datagram_cores). `None`: all are for the first core.
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
    /// core and log in on all of them by turns, and the front end moves them to the core of their session. The future
    /// is dropped if the connection is evicted.
    fn accept(self: Rc<Self>, accepted: Accepted) -> Pin<Box<dyn Future<Output = ()>>>;

    /// Serves the datagrams of a portal, until the future is dropped. For front ends whose portals are
    /// [`ListenAddress::Datagrams`](crate::ListenAddress::Datagrams), on the first core; on the first
    /// [`Server::datagram_cores`](crate::Server::datagram_cores) if the front end shares them, with the same number, which no other
    /// portal has had.
    fn receive(
        self: Rc<Self>,
        _: Portal,
        _number: u32,
        _: Box<dyn Datagrams>,
    ) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async {})
    }

    /// Aborts the commands that the order names: none of them starts any more, and hosts are notified as
    /// their protocol demands. The caller waits until the order's volume has quiesced. For other volumes that
    /// the commands used it waits for `done`: drop it when those have quiesced.
    fn abort(self: Rc<Self>, order: &AbortOrder, done: &Sender<()>);

    /// The configuration has changed: adapts the sessions that it affects. Drop `done` when removed volumes
    /// are no longer in use.
    fn adapt(self: Rc<Self>, done: &Sender<()>);

    /// What it has counted on this core, for monitoring, which knows no front end: a [`crate::CoreTally`] has it.
    fn statistics(&self) -> CoreStatistics;

    /// Handles timeouts of commands and of silent peers. Returns true if commands are outstanding, so that
    /// the next tick comes soon.
    fn tick(&self, now: Instant) -> bool;

    /// Of the slow peers that hold this core's memory, the one that has held it longest.
    fn slowest_holder(&self, now: Instant) -> Option<SlowHolder>;

    /// The server ends: asks hosts to log out within this time.
    fn ask_to_leave(&self, grace: Duration);

    /// Whether there is no session here.
    fn is_idle(&self) -> bool;

    /// Cuts all connections that are left.
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

/// The commands to be aborted.
#[derive(Clone)]
pub struct AbortOrder {
    /// The volume that they use.
    pub volume: Arc<Volume>,
    /// The attachments that issued them.
    pub owners: Owners,
    /// The attachment that ordered it: it has aborted its own commands itself, and its later ones continue.
    pub spared: Option<AttachmentId>,
}

/// Attachments whose commands for a volume are to be aborted.
#[derive(Clone, Debug)]
pub enum Owners {
    /// All attachments.
    All,
    /// These attachments.
    These(Vec<AttachmentId>),
}

impl AbortOrder {
    /// Whether commands of this attachment are to be aborted.
    pub fn is_about(&self, attachment: AttachmentId) -> bool {
        let is_meant = match &self.owners {
            Owners::All => true,
            Owners::These(these) => these.contains(&attachment),
        };
        is_meant && self.spared != Some(attachment)
    }
}

/// A peer that holds memory and is slow.
pub struct SlowHolder {
    /// When it began to hold memory.
    pub since: Instant,
    /// Cuts its connection, which frees the memory.
    pub cut: Box<dyn FnOnce()>,
}

// What a server tells whoever follows what happens in it: sessions that begin and end, volumes that fail, recover, grow and
// are fenced. Nothing of it depends on there being an observer.

/// A session of a host, in any protocol.
#[derive(Clone, Copy, Debug)]
pub struct SessionInfo<'a> {
    /// The name that the host has in its protocol, such as an iSCSI name.
    pub initiator: &'a str,
    /// Who it has proved to be.
    pub user: Option<&'a str>,
    /// What it uses; `None` is a session that only asks what there is.
    pub target: Option<&'a str>,
    /// Its front end ([`crate::FrontEnd::name`]).
    pub front_end: &'static str,
    /// The front end's number of it, if it has one; another session may have it once this one has ended.
    pub handle: Option<u16>,
}

/// Follows what happens. Its methods are called on reactor threads and must not block.
pub trait Observer: Send + Sync {
    /// A host has logged in, from this address.
    fn session_began(&self, session: SessionInfo<'_>, peer: HostAddress);

    /// Its last connection has ended.
    fn session_ended(&self, session: SessionInfo<'_>);

    /// Requests of a volume have begun to fail, or its device does not answer.
    fn volume_failed(&self, volume: &str, cause: &str);

    /// They succeed again: so many failed, in so much time.
    fn volume_recovered(&self, volume: &str, failed: u64, time: Duration);

    /// A volume is out of service until its device, which has not answered for so long, does.
    fn volume_fenced(&self, volume: &str, silent: Duration);

    /// A volume is larger now.
    fn volume_grew(&self, volume: &str, bytes: u64);
}
