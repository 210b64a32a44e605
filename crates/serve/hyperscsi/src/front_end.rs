//! HyperSCSI as a front end: the part that all cores share.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use block::Lock;
use front_end_core::{AddressBlock, CoreFrontEnd, CoreHandle, FrontEnd, HostNames, RunningCore, Server};
use hyperscsi::SESSION_AT;
use logical_unit::LogicalUnit;
use reactor::{Receiver, Sender};
use volume::Volume;

use crate::config::Config;
use crate::core::CoreSessions;
use crate::interface::Place;
use crate::loss::losses;
use crate::status::SessionStatus;

/// The name of this front end in [`Portal::front_end`](front_end_core::Portal::front_end).
pub const HYPERSCSI: &str = "hyperscsi";

/// The HyperSCSI front end: targets, LUN maps, access control and sessions.
pub struct HyperScsi {
    /// The current configuration. A change replaces it; sessions hold what they use of it by `Arc`.
    config: Lock<Arc<Config>>,
    pub(crate) names: HostNames,
    /// Where each core takes frames that others have received.
    inboxes: Lock<BTreeMap<u32, Sender<Handed>>>,
}

/// A frame on its way to the core that it is for.
pub(crate) struct Handed {
    pub(crate) from: Place,
    pub(crate) frame: Box<[u8]>,
}

/// Frames that wait for a core. More are dropped, as on a network, and sent again.
const HANDED_MAX: usize = 256;

impl HyperScsi {
    /// A front end that serves these targets.
    pub fn new(config: Config) -> Arc<HyperScsi> {
        let (config, names) = (Lock::new(Arc::new(config)), HostNames::default());
        Arc::new(HyperScsi { config, names, inboxes: Lock::default() })
    }

    /// Where a core takes frames that others have received for it.
    pub(crate) fn inbox(&self, core: u32) -> Receiver<Handed> {
        let (sender, receiver) = reactor::bounded_mailbox(HANDED_MAX);
        self.inboxes.lock().insert(core, sender);
        receiver
    }

    /// Hands a frame to another core. False if that has no room for it.
    pub(crate) fn hand_over(&self, core: u32, handed: Handed) -> bool {
        let inbox = self.inboxes.lock().get(&core).cloned();
        inbox.is_some_and(|inbox| inbox.try_send(handed).is_ok())
    }

    /// What is served now.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock())
    }

    /// Replaces the configuration. To be called from within [`Server::reconfigure`], which lets sessions adapt: initiators are
    /// told of LUNs that come and go (REPORTED LUNS DATA HAS CHANGED), and sessions end that have lost their target, or access
    /// to it. A key that is another now is asked for at the next login. `random` stays.
    pub fn adopt(&self, config: Config) {
        *self.config.lock() = Arc::new(config);
    }

    /// What current sessions would lose if `wanted` were served, a sentence each. Blocks as [`HyperScsi::sessions`] does.
    pub fn losses(&self, server: &Server, wanted: &Config) -> Vec<String> {
        losses(&self.sessions(server), &self.config(), wanted)
    }

    /// The status of all sessions. Blocks for at most a second; not for reactor threads.
    pub fn sessions(&self, server: &Server) -> Vec<SessionStatus> {
        let status = |local: &Rc<RunningCore>| local.front_end::<CoreSessions>().map(|core| core.status());
        let by_core = server.ask_cores(Duration::from_secs(1), status);
        let mut sessions: Vec<SessionStatus> = by_core.into_iter().flatten().flatten().flatten().collect();
        sessions.sort_by_key(|session| session.handle);
        sessions
    }

    /// Ends the sessions with this number, or of this initiator, and returns how many there are. Their initiators are told,
    /// and may log in again. Blocks as [`HyperScsi::sessions`] does.
    pub fn drop_sessions(&self, server: &Server, which: &str) -> usize {
        let (handle, name) = (which.parse::<u16>().ok(), which.to_owned());
        let end = move |local: &Rc<RunningCore>| {
            local.front_end::<CoreSessions>().map_or(0, |core| core.end_sessions(handle, &name))
        };
        server.ask_cores(Duration::from_secs(1), end).into_iter().flatten().sum()
    }
}

impl FrontEnd for HyperScsi {
    fn name(&self) -> &'static str {
        HYPERSCSI
    }

    fn begin(self: Arc<Self>, handle: CoreHandle) -> Rc<dyn CoreFrontEnd> {
        CoreSessions::begin(self, handle)
    }

    /// By the number of the session: what is outside sessions has none, 0, and comes to the first core.
    fn shares_datagrams_at(&self) -> Option<u16> {
        Some(SESSION_AT)
    }

    /// There are no connections that could be evicted.
    fn has_sessions(&self, _: AddressBlock) -> bool {
        false
    }

    fn volume_grew(&self, volume: &Arc<Volume>) {
        let config = self.config();
        let exports = config.targets.iter().flat_map(|target| &target.exports);
        let presents = |unit: &&Arc<LogicalUnit>| Arc::ptr_eq(unit.volume(), volume);
        for unit in exports.map(|export| &export.unit).filter(presents) {
            unit.tell_growth();
        }
    }
}
