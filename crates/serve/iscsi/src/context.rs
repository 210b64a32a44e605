//! The part of the front end that all cores share.

use std::net::IpAddr;
use std::sync::Arc;

use block::{Lock, LockGuard};
use front_end_core::{AddressBlock, HostNames, Portal, Server};

use crate::config::Config;
use crate::refusal::Backoff;
use crate::registry::Registry;

/// The name of this front end in [`Portal::front_end`].
pub const ISCSI: &str = "iscsi";

/// The iSCSI front end: targets, LUN maps, access control and sessions.
pub struct Iscsi {
    /// The current configuration. A configuration change replaces it; sessions hold the parts that they use
    /// by `Arc`.
    pub(crate) config: Lock<Arc<Config>>,
    pub(crate) registry: Registry,
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
    /// Creates a front end that serves these targets on `cores` reactor threads.
    pub fn new(config: Config, cores: usize) -> Arc<Iscsi> {
        Arc::new(Iscsi {
            registry: Registry::new(cores.max(1), &config.limits),
            backoff: Lock::default(),
            initiator_names: HostNames::default(),
            config: Lock::new(Arc::new(config.in_order())),
        })
    }

    /// The current configuration.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock())
    }

    /// Replaces the configuration. Must be called within [`Server::reconfigure`], which makes sessions adapt.
    /// Initiators are notified of added and removed LUNs (REPORTED LUNS DATA HAS CHANGED), and are asked to
    /// log out if they have lost their target. `random` is not replaced; existing sessions keep the memory
    /// limits of their login.
    pub fn adopt(&self, config: Config) {
        self.registry.set_limits(&config.limits);
        *self.config.lock() = Arc::new(config.in_order());
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
        self.server
            .portals()
            .iter()
            .filter(|portal| portal.front_end == ISCSI)
            .cloned()
            .collect()
    }
}
