//! The configuration of the front end as values, and its access control. The caller reads files and
//! arguments.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use front_end_core::{AddressBlock, HostAddress, Network};
use hyperscsi::target::{Admission, Directory};
use hyperscsi::{Psk, Refusal};
use reactor::MacAddress;
use scsi_session::{Export, NamePattern};

use crate::interface::Place;

/// The configuration of the front end. [`HyperScsi::adopt`](crate::HyperScsi::adopt) replaces it, except
/// `random`.
#[derive(Clone)]
pub struct Config {
    /// The targets; their names differ.
    pub targets: Vec<Arc<Target>>,
    /// Fills a slice from the operating system's random source: for keys and session numbers.
    pub random: fn(&mut [u8]),
}

/// A target: its name, LUNs and access control.
#[derive(Clone)]
pub struct Target {
    /// Its name ([`hyperscsi::is_name`]).
    pub name: String,
    /// Its LUNs.
    pub exports: Vec<Export>,
    /// Access control.
    pub access: Access,
    /// The keys of initiators, by name. If there are any keys, an initiator without a key is rejected.
    pub keys: BTreeMap<String, Psk>,
}

/// Access control of a target. The initiator must match every list that is present.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Names of initiators; `None` allows any.
    pub initiators: Option<Vec<NamePattern>>,
    /// The Ethernet stations from which initiators may log in; `None` allows any. This does not authenticate
    /// a host, since any host can use the MAC address of another.
    pub stations: Option<Vec<MacAddress>>,
    /// The networks from which initiators may log in over UDP; `None` allows any.
    pub networks: Option<Vec<Network>>,
}

impl Access {
    /// Whether initiators may log in from this address.
    pub(crate) fn admits_address(&self, from: HostAddress) -> bool {
        match from {
            HostAddress::Station(station) => self
                .stations
                .as_ref()
                .is_none_or(|stations| stations.contains(&station)),
            HostAddress::Inet(address) => self.networks.as_ref().is_none_or(|networks| {
                networks
                    .iter()
                    .any(|network| network.contains(address.ip()))
            }),
        }
    }

    fn admits_name(&self, initiator: &str) -> bool {
        self.initiators
            .as_ref()
            .is_none_or(|names| names.iter().any(|name| name.matches(initiator)))
    }
}

impl Config {
    /// Returns the target with this name.
    pub(crate) fn target(&self, name: &str) -> Option<&Arc<Target>> {
        self.targets.iter().find(|target| target.name == name)
    }
}

impl Target {
    /// Whether the lists admit this initiator.
    pub(crate) fn admits(&self, initiator: &str, from: HostAddress) -> bool {
        self.access.admits_name(initiator) && self.access.admits_address(from)
    }

    /// Whether an initiator that has logged in, with a key or without, still has access.
    pub(crate) fn keeps(&self, initiator: &str, from: HostAddress, is_proven: bool) -> bool {
        let may = if self.keys.is_empty() {
            !is_proven
        } else {
            is_proven && self.keys.contains_key(initiator)
        };
        may && self.admits(initiator, from)
    }
}

/// The targets of this server and their access control, for the protocol's state machine.
pub(crate) struct Door {
    pub(crate) config: Arc<Config>,
}

impl Directory<Place> for Door {
    fn admit(&self, initiator: &str, target: &str, from: &Place) -> Result<Admission, Refusal> {
        let target = self.config.target(target).ok_or(Refusal::UnknownTarget)?;
        if !target.admits(initiator, from.address.into()) {
            return Err(Refusal::UnknownTarget);
        }
        match target.keys.get(initiator) {
            Some(key) => Ok(Admission::Key(key.clone())),
            None if target.keys.is_empty() => Ok(Admission::Open),
            None => Err(Refusal::Authentication),
        }
    }

    fn origin(&self, from: &Place) -> u64 {
        let mut hasher = DefaultHasher::new();
        AddressBlock::from(HostAddress::from(from.address)).hash(&mut hasher);
        hasher.finish()
    }

    /// Returns the targets that a discovery query from this address may see. A query does not contain the
    /// initiator's name, so only the address is checked.
    fn targets(&self, from: &Place) -> Vec<String> {
        let targets = self.config.targets.iter();
        let known = targets.filter(|target| target.access.admits_address(from.address.into()));
        known.map(|target| target.name.clone()).collect()
    }
}
