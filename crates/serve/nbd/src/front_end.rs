//! NBD as a front end: the part that all cores share.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use block::Lock;
use front_end_core::{
    AddressBlock, CoreFrontEnd, CoreHandle, Counts, FrontEnd, HostNames, RunningCore, Server,
};
use volume::Volume;

use crate::channels::Channels;
use crate::client::ClientStatus;
use crate::config::Config;
use crate::core::CoreClients;

/// The name of this front end in [`Portal::front_end`](front_end_core::Portal::front_end).
pub const NBD: &str = "nbd";

/// The NBD front end: exports, and who uses them.
pub struct Nbd {
    /// The current configuration. A change replaces it; clients hold their export by `Arc`.
    config: Lock<Arc<Config>>,
    /// How many clients each core has.
    loads: Box<[AtomicUsize]>,
    /// Addresses that have clients.
    addresses: Lock<Counts>,
    /// Connections that their clients have named.
    pub(crate) channels: Arc<Channels>,
    /// What monitoring calls hosts.
    pub(crate) names: HostNames,
}

/// A client counted for its core and its address, until it is dropped.
pub(crate) struct Place {
    front_end: Arc<Nbd>,
    pub(crate) core: usize,
    from: AddressBlock,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.front_end.loads[self.core].fetch_sub(1, Ordering::Relaxed);
        self.front_end.addresses.lock().remove(self.from);
    }
}

impl Nbd {
    /// A front end that serves these exports on `cores` reactor threads.
    pub fn new(config: Config, cores: usize) -> Arc<Nbd> {
        let loads = (0..cores.max(1)).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Nbd {
            config: Lock::new(Arc::new(config)),
            loads,
            addresses: Lock::default(),
            channels: Arc::default(),
            names: HostNames::default(),
        })
    }

    /// What is served now.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock())
    }

    /// Replaces the configuration. To be called from within [`Server::reconfigure`], which lets connections
    /// adapt: those whose export is gone, or is another one now, are closed, since NBD has no other way to say
    /// so. New limits are those of later connections.
    pub fn adopt(&self, config: Config) {
        *self.config.lock() = Arc::new(config);
    }

    /// The status of all clients. Blocks for at most a second; not for reactor threads.
    pub fn clients(&self, server: &Server) -> Vec<ClientStatus> {
        let status = |local: &Rc<RunningCore>| local.front_end::<CoreClients>().map(|core| core.status());
        let by_core = server.ask_cores(Duration::from_secs(1), status);
        let mut clients: Vec<ClientStatus> = by_core.into_iter().flatten().flatten().flatten().collect();
        clients.sort_by_key(|client| client.number);
        clients
    }

    /// Closes the connections with this number, or from this host, and returns how many there are. Blocks as
    /// [`Nbd::clients`] does.
    pub fn drop_clients(&self, server: &Server, which: &str, force: bool) -> usize {
        let which = which.to_owned();
        let end = move |local: &Rc<RunningCore>| {
            local.front_end::<CoreClients>().map_or(0, |core| core.drop_clients(&which, force))
        };
        server.ask_cores(Duration::from_secs(1), end).into_iter().flatten().sum()
    }

    /// A place for a client on the core that has the fewest.
    pub(crate) fn place(self: &Arc<Self>, from: AddressBlock) -> Place {
        let load = |core: &usize| self.loads[*core].load(Ordering::Relaxed);
        let core = (0..self.loads.len()).min_by_key(load).unwrap_or(0);
        self.loads[core].fetch_add(1, Ordering::Relaxed);
        self.addresses.lock().add(from);
        Place { front_end: Arc::clone(self), core, from }
    }
}

impl FrontEnd for Nbd {
    fn name(&self) -> &'static str {
        NBD
    }

    fn begin(self: Arc<Self>, handle: CoreHandle) -> Rc<dyn CoreFrontEnd> {
        Rc::new(CoreClients::new(self, handle))
    }

    fn has_sessions(&self, from: AddressBlock) -> bool {
        self.addresses.lock().count_of(from) > 0
    }

    /// The protocol has no message for it: a client learns of it when it connects again.
    fn volume_grew(&self, _: &Arc<Volume>) {}
}
