//! AoE as a front end: the part that all cores share.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use aoe::Address;
use block::Lock;
use front_end_core::{AddressBlock, CoreFrontEnd, CoreHandle, FrontEnd, HostNames, RunningCore, Server};
use volume::Volume;

use crate::config::Config;
use crate::core::{CoreShelves, StationStatus};
use crate::slot::SlotState;

/// The name of this front end in [`Portal::front_end`](front_end_core::Portal::front_end).
pub const AOE: &str = "aoe";

/// The AoE front end: slots, and what hosts have set in them.
pub struct Aoe {
    /// The current configuration. A change replaces it.
    config: Lock<Arc<Config>>,
    /// Of each address that is served. It is in memory alone.
    states: Lock<BTreeMap<Address, Arc<Lock<SlotState>>>>,
    /// What monitoring calls hosts.
    pub(crate) names: HostNames,
}

impl Aoe {
    /// A front end that serves these slots.
    pub fn new(config: Config) -> Arc<Aoe> {
        let config = Lock::new(Arc::new(config));
        Arc::new(Aoe { config, states: Lock::default(), names: HostNames::default() })
    }

    /// What is served now.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock())
    }

    /// Replaces the configuration. To be called from within [`Server::reconfigure`], after which each core adapts. What hosts
    /// have set stays at addresses that stay.
    pub fn adopt(&self, config: Config) {
        self.states.lock().retain(|address, _| config.slots.iter().any(|slot| slot.address == *address));
        *self.config.lock() = Arc::new(config);
    }

    /// The stations that use a slot now. Blocks for at most a second; not for reactor threads.
    pub fn stations(&self, server: &Server) -> Vec<StationStatus> {
        let status = |local: &Rc<RunningCore>| local.front_end::<CoreShelves>().map(|core| core.status());
        server.ask_cores(Duration::from_secs(1), status).into_iter().flatten().flatten().flatten().collect()
    }

    /// What hosts have set at an address.
    pub(crate) fn state(&self, address: Address) -> Arc<Lock<SlotState>> {
        Arc::clone(self.states.lock().entry(address).or_default())
    }
}

impl FrontEnd for Aoe {
    fn name(&self) -> &'static str {
        AOE
    }

    fn begin(self: Arc<Self>, handle: CoreHandle) -> Rc<dyn CoreFrontEnd> {
        Rc::new(CoreShelves::new(self, handle))
    }

    /// There is no login to be kept from.
    fn has_sessions(&self, _: AddressBlock) -> bool {
        false
    }

    /// Hosts ask: IDENTIFY DEVICE says the size.
    fn volume_grew(&self, _: &Arc<Volume>) {}
}
