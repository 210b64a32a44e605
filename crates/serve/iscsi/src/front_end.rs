//! iSCSI as a front end: the part that all cores share.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use block::{Lock, LockGuard};
use front_end_core::{
    AddressBlock, CoreFrontEnd, CoreHandle, FrontEnd, HostNames, Portal, RunningCore, Server,
};
use logical_unit::LogicalUnit;
use volume::Volume;

use crate::backoff::Backoff;
use crate::config::Config;
use crate::core::CoreSessions;
use crate::loss::{Loss, losses};
use crate::registry::Registry;
use crate::status::SessionStatus;

/// The name of this front end in [`Portal::front_end`].
pub const ISCSI: &str = "iscsi";

/// The iSCSI front end: targets, LUN maps, access control and sessions.
pub struct Iscsi {
    /// The current configuration. A change replaces it; sessions hold what they use of it by `Arc`.
    config: Lock<Arc<Config>>,
    registry: Registry,
    backoff: Lock<Backoff>,
    initiator_names: HostNames,
}

/// The server and the shared part of the front end, for all of its objects.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) server: Arc<Server>,
    pub(crate) iscsi: Arc<Iscsi>,
}

impl Iscsi {
    /// A front end that serves these targets on `cores` reactor threads.
    pub fn new(config: Config, cores: usize) -> Arc<Iscsi> {
        Arc::new(Iscsi {
            registry: Registry::new(cores.max(1), &config.limits),
            backoff: Lock::default(),
            initiator_names: HostNames::default(),
            config: Lock::new(Arc::new(config.in_order())),
        })
    }

    /// What is served now.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock())
    }

    /// Replaces the configuration. To be called from within [`Server::reconfigure`], which lets sessions
    /// adapt. Initiators are notified of added and removed LUNs (REPORTED LUNS DATA HAS CHANGED), and are
    /// asked to log out if they have lost their target. `random` stays; memory limits of existing sessions
    /// stay those of their login.
    pub fn adopt(&self, config: Config) {
        self.registry.set_limits(&config.limits);
        *self.config.lock() = Arc::new(config.in_order());
    }

    /// What current sessions would lose if `wanted` were served by `portals`. Blocks as [`Iscsi::sessions`]
    /// does.
    pub fn losses(&self, server: &Server, wanted: &Config, portals: &[Portal]) -> Vec<Loss> {
        losses(&self.sessions(server), &self.config(), &server.portals(), wanted, portals)
    }

    /// The status of all sessions. Blocks for at most a second; not for reactor threads.
    pub fn sessions(&self, server: &Server) -> Vec<SessionStatus> {
        let status = |local: &Rc<RunningCore>| local.front_end::<CoreSessions>().map(|core| core.status());
        let by_core = server.ask_cores(Duration::from_secs(1), status);
        let mut sessions: Vec<SessionStatus> = by_core.into_iter().flatten().flatten().flatten().collect();
        sessions.sort_by_key(|session| session.tsih);
        sessions
    }
}

impl Iscsi {
    /// Ends the sessions with this TSIH, or of this initiator, and returns how many there are. Their initiators are asked to
    /// log out within five seconds; with `force` connections are closed at once. They may log in again. Blocks as
    /// [`Iscsi::sessions`] does.
    pub fn drop_sessions(&self, server: &Server, which: &str, force: bool) -> usize {
        let (tsih, name) = (which.parse::<u16>().ok(), which.to_owned());
        let end = move |local: &Rc<RunningCore>| {
            local.front_end::<CoreSessions>().map_or(0, |core| core.end_sessions(tsih, &name, force))
        };
        server.ask_cores(Duration::from_secs(1), end).into_iter().flatten().sum()
    }
}

impl FrontEnd for Iscsi {
    fn name(&self) -> &'static str {
        ISCSI
    }

    fn begin(self: Arc<Self>, handle: CoreHandle) -> Rc<dyn CoreFrontEnd> {
        Rc::new(CoreSessions::new(self, handle))
    }

    fn has_sessions(&self, from: AddressBlock) -> bool {
        self.registry.has_sessions(from)
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

impl Context {
    pub(crate) fn config(&self) -> Arc<Config> {
        self.iscsi.config()
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.iscsi.registry
    }

    /// Counts of wrong secrets.
    pub(crate) fn backoff(&self) -> LockGuard<'_, Backoff> {
        self.iscsi.backoff.lock()
    }

    /// The names under which initiators are counted.
    pub(crate) fn initiator_names(&self) -> &HostNames {
        &self.iscsi.initiator_names
    }

    pub(crate) fn may_log_alarm(&self, from: AddressBlock) -> bool {
        self.server.may_log_alarm(from)
    }

    pub(crate) fn may_log(&self, from: IpAddr) -> bool {
        self.server.may_log(from)
    }

    /// The portals of this front end, with their bound ports.
    pub(crate) fn portals(&self) -> Vec<Portal> {
        self.server.portals().iter().filter(|portal| portal.front_end == ISCSI).cloned().collect()
    }

    /// Runs a closure on another core with that core's part of the front end.
    pub(crate) fn tell(&self, core: usize, what: impl FnOnce(&Rc<CoreSessions>) + Send + 'static) {
        self.server.run_on(core, move |local| {
            if let Some(core) = local.front_end::<CoreSessions>() {
                what(&core);
            }
        });
    }
}
