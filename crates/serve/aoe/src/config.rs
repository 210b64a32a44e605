//! What is served.

use std::sync::Arc;
use std::time::Duration;

use aoe::Address;
use reactor::MacAddress;
use volume::Volume;

/// The configuration of the front end. [`Aoe::adopt`](crate::Aoe::adopt) replaces it.
#[derive(Clone, Default)]
pub struct Config {
    /// The volumes; their addresses differ.
    pub slots: Vec<Arc<Slot>>,
    /// Limits besides those of the server.
    pub limits: Limits,
}

/// A volume at an address.
pub struct Slot {
    /// Shelf and slot.
    pub address: Address,
    /// The volume.
    pub volume: Arc<Volume>,
    /// Hosts cannot write.
    pub read_only: bool,
    /// The stations that may use it; `None` is any.
    pub stations: Option<Vec<MacAddress>>,
    /// A device that has not answered a request for so long is fenced.
    pub deadline: Duration,
}

/// Limits of this front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Commands that one station may have outstanding at one slot, as it is told (the buffer count).
    pub commands: u16,
    /// Memory for data of commands of all stations on one core, in bytes.
    pub staging_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { commands: 64, staging_bytes: 64 << 20 }
    }
}

impl Slot {
    /// Its address, as people write it.
    pub fn name(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn admits(&self, station: MacAddress) -> bool {
        self.stations.as_ref().is_none_or(|stations| stations.contains(&station))
    }
}
