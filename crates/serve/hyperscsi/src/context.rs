//! The part of the front end that all cores share.

use std::collections::BTreeMap;
use std::sync::Arc;

use block::Lock;
use front_end_core::HostNames;
use reactor::{Receiver, Sender};

use crate::config::Config;
use crate::interface::Place;

/// The name of this front end in [`Portal::front_end`](front_end_core::Portal::front_end).
pub const HYPERSCSI: &str = "hyperscsi";

/// The HyperSCSI front end: targets, LUN maps, access control and sessions.
pub struct HyperScsi {
    /// The current configuration. A change replaces it; sessions hold the parts they use by `Arc`.
    pub(crate) config: Lock<Arc<Config>>,
    pub(crate) names: HostNames,
    /// The mailbox of each core for frames that other cores have received.
    pub(crate) inboxes: Lock<BTreeMap<u32, Sender<Handed>>>,
}

/// A frame on its way to its core.
pub(crate) struct Handed {
    pub(crate) from: Place,
    pub(crate) frame: Box<[u8]>,
}

/// Maximum frames waiting for a core. More are dropped, as on a network, and retransmitted.
const HANDED_MAX: usize = 256;

impl HyperScsi {
    /// A front end that serves these targets.
    pub fn new(config: Config) -> Arc<HyperScsi> {
        let (config, names) = (Lock::new(Arc::new(config)), HostNames::default());
        Arc::new(HyperScsi { config, names, inboxes: Lock::default() })
    }

    /// The mailbox of a core for frames that other cores have received for it.
    pub(crate) fn inbox(&self, core: u32) -> Receiver<Handed> {
        let (sender, receiver) = reactor::bounded_mailbox(HANDED_MAX);
        self.inboxes.lock().insert(core, sender);
        receiver
    }

    /// Hands a frame to another core. Returns false if that has no room for it.
    pub(crate) fn hand_over(&self, core: u32, handed: Handed) -> bool {
        let inbox = self.inboxes.lock().get(&core).cloned();
        inbox.is_some_and(|inbox| inbox.try_send(handed).is_ok())
    }

    /// The current configuration.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock())
    }

    /// Replaces the configuration. Call it within [`Server::reconfigure`], which lets sessions adapt.
    /// Initiators are notified of added and removed LUNs (REPORTED LUNS DATA HAS CHANGED). Sessions end if
    /// they have lost their target, or access to it. A changed key is required at the next login. `random` is
    /// not replaced.
    pub fn adopt(&self, config: Config) {
        *self.config.lock() = Arc::new(config);
    }
}
