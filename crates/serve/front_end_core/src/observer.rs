//! What a server tells whoever follows what happens in it: sessions that begin and end, volumes that fail, recover, grow and
//! are fenced. Nothing of it depends on there being an observer.

use std::sync::Arc;
use std::time::Duration;

use crate::address::HostAddress;
use crate::server::Server;

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

impl Server {
    /// Has this observer told of everything from now on; the first that is set stays.
    pub fn set_observer(&self, observer: Arc<dyn Observer>) {
        let _ = self.observer.set(observer);
    }

    /// Tells the observer, if there is one.
    pub fn tell(&self, what: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = self.observer.get() {
            what(&**observer);
        }
    }
}
