//! What a protocol has to do to serve volumes.

use std::any::Any;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reactor::{Sender, Stream};
use volume::{AttachmentId, Volume};

use crate::address::AddressBlock;
use crate::core::CoreHandle;
use crate::listener::Portal;
use crate::server::ConnectionPermit;

/// A protocol joined to volumes: what all cores share of it.
pub trait FrontEnd: Send + Sync {
    /// Its name, which [`Portal::front_end`] repeats.
    fn name(&self) -> &'static str;

    /// Its part of one core, made on the thread of that core before the first connection.
    fn begin(self: Arc<Self>, handle: CoreHandle) -> Rc<dyn CoreFrontEnd>;

    /// Whether hosts of this address have sessions: their further connections are the last to give way to others.
    fn has_sessions(&self, from: AddressBlock) -> bool;

    /// A volume has become larger. Hosts that use it are told.
    fn volume_grew(&self, volume: &Arc<Volume>);
}

/// A front end's part of one core: the sessions that live there. Everything is called on the thread of that core.
pub trait CoreFrontEnd: Any {
    /// Takes a connection in that has come by one of its portals, as far as its session; connections come in on the first
    /// core, and the front end moves them. The future is dropped when the connection has to give way to others.
    fn accept(self: Rc<Self>, accepted: Accepted) -> Pin<Box<dyn Future<Output = ()>>>;

    /// Ends the commands that the order is about: none of them begins any more, and hosts are told of the end of theirs as
    /// their protocol wants it. The caller waits until they cannot change the order's volume any more, and by
    /// `done` for the other volumes that they were at work on: a sender is dropped when those are quiesced.
    fn abort(self: Rc<Self>, order: &AbortOrder, done: &Sender<()>);

    /// What is served has changed: sessions that it concerns are told. `done` is dropped when volumes that are not served any
    /// more are not used any more.
    fn adapt(self: Rc<Self>, done: &Sender<()>);

    /// Looks at what no arrival wakes: commands that take too long, peers that are silent. True if commands are under way,
    /// so that it is to be called again soon.
    fn tick(&self, now: Instant) -> bool;

    /// Of the peers that hold memory of this core and are slow to send or to read, the one that has held some longest.
    fn slowest_holder(&self, now: Instant) -> Option<SlowHolder>;

    /// The server ends: hosts are asked to leave within this time.
    fn ask_to_leave(&self, grace: Duration);

    /// Whether there is no session here.
    fn is_idle(&self) -> bool;

    /// Cuts all connections that are left.
    fn close_all(&self);
}

/// A connection that has come in.
pub struct Accepted {
    /// By which portal, with its real port.
    pub portal: Portal,
    /// The connection.
    pub stream: Box<dyn Stream>,
    /// Its place in the count of connections; kept as long as the connection is.
    pub permit: ConnectionPermit,
}

/// Commands that have to end.
#[derive(Clone)]
pub struct AbortOrder {
    /// Those that use this volume.
    pub volume: Arc<Volume>,
    /// Whose.
    pub owners: Owners,
    /// The attachment that ordered it: it has ended its own commands itself, and what it began since is not meant.
    pub spared: Option<AttachmentId>,
}

/// Whose commands for a volume are to end.
#[derive(Clone, Debug)]
pub enum Owners {
    /// Everybody's.
    All,
    /// Those of these attachments.
    These(Vec<AttachmentId>),
}

impl AbortOrder {
    /// Whether commands of this attachment are meant.
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
    /// Since when.
    pub since: Instant,
    /// Cuts its connection, which frees the memory.
    pub cut: Box<dyn FnOnce()>,
}
