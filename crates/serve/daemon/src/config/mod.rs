//! The configuration of a server: one TOML file, parsed and checked completely before any of it is applied.
//!
//! A [`Config`] is a value without effects: no file of a volume is opened and no address bound for it;
//! secrets alone are read from the files they are in. Numbers left out stay `None`: their defaults are in the
//! crates that use them.

mod document;
mod edit;
mod file;
mod log;
mod metrics;
mod mistake;
pub mod reference;
mod section;
mod values;
mod volume;

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

pub use edit::{Addition, Tables, not_editable, text_of};
pub(crate) use edit::{fill, no_size, vacate, with_size};
pub(crate) use file::ConfigFile;
pub use log::{Log, LogFormat, LogTargets};
pub use metrics::Metrics;
pub use mistake::{ConfigError, Mistakes};
pub use section::{KnownKey, Placed, Section};
pub use values::{Address, Unfit, Uuid, VolumeName, one_of};
pub use volume::Volume;

use std::any::Any;

use crate::front_ends::{Configured, FrontEnds};

/// The configuration file as a value.
#[derive(Debug)]
pub struct Config {
    /// The volumes, with unique names.
    pub volumes: Vec<Volume>,
    /// What front ends serve of it, and where: one for each line of their table, in its order.
    pub(crate) front_ends: Vec<Box<dyn Configured>>,
    /// TCP congestion control of all portals, in place of their own.
    pub congestion: Option<String>,
    /// Limits.
    pub limits: Limits,
    /// Where identities and reservations are kept.
    pub state: Option<PathBuf>,
    /// The control socket.
    pub control: Option<PathBuf>,
    /// Reactor threads.
    pub reactors: Option<usize>,
    /// How long a reactor looks for events before it sleeps.
    pub poll: Option<Duration>,
    /// For how long it lets events gather before it looks for more.
    pub gather: Option<Duration>,
    /// How files are read and written.
    pub io_engine: Option<host::IoEngine>,
    /// Where metrics are served.
    pub metrics: Option<Metrics>,
    /// What is logged.
    pub log: Log,
}

/// `[limits]`, as far as they are the server's; front ends read theirs from the same section. What is `None` has the default of
/// [`front_end_core::Limits`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Connections at once, of one address or IPv6 network (/64).
    pub connections_per_address: Option<usize>,
    /// Connections at once that have not logged in yet.
    pub logins: Option<usize>,
    /// How long task management waits for a device before it fences it off.
    pub fence_time: Option<Duration>,
    /// Memory for data and working buffers of commands, all sessions together.
    pub staging_bytes: Option<usize>,
}

impl Config {
    /// What it says of a front end, if the table that it was read by has that front end.
    pub fn front_end<T: Configured>(&self) -> Option<&T> {
        self.front_ends.iter().find_map(|front_end| {
            let any: &dyn Any = &**front_end;
            any.downcast_ref()
        })
    }

    /// What it says of each front end.
    pub fn front_ends(&self) -> impl Iterator<Item = &dyn Configured> {
        self.front_ends.iter().map(|front_end| &**front_end)
    }

    /// The volume of this name.
    pub fn volume(&self, name: &VolumeName) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.name == *name)
    }

    /// The volumes that a front end exports: no other is opened.
    pub fn exported(&self) -> impl Iterator<Item = &Volume> {
        let exported: HashSet<&VolumeName> = self.front_ends().flat_map(Configured::volumes).collect();
        self.volumes.iter().filter(move |volume| exported.contains(&volume.name))
    }

    /// The portals of all front ends, each with what people are told of it.
    pub fn portals(&self) -> impl Iterator<Item = (&dyn Configured, front_end_core::Portal)> {
        let with = |mut portal: front_end_core::Portal| {
            portal.stream.congestion = self.congestion.clone().or(portal.stream.congestion);
            portal
        };
        self.front_ends().flat_map(move |front_end| {
            front_end.portals().into_iter().map(move |portal| (front_end, with(portal)))
        })
    }

    /// That of a file with nothing in it.
    pub(crate) fn empty(front_ends: FrontEnds) -> Config {
        document::read(Mistakes::new("", "", None), front_ends).expect("all keys may be missing")
    }

    /// Leaves these volumes what they were `before`.
    pub(crate) fn keep_volumes(&mut self, before: &Config, names: &[VolumeName]) {
        for volume in self.volumes.iter_mut().filter(|volume| names.contains(&volume.name)) {
            if let Some(old) = before.volume(&volume.name) {
                (volume.spec, volume.uuid, volume.names) = (old.spec.clone(), old.uuid, old.names.clone());
            }
        }
    }

    /// Reads `text`, which stands in `file`.
    pub fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
        document::read(Mistakes::new(file, text, None), FrontEnds::default())
    }
}

#[cfg(test)]
mod tests;
