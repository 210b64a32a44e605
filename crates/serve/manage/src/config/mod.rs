//! The configuration of a server: one TOML file, parsed and checked completely before any of it is applied.
//!
//! A [`Config`] is a value without effects: no file of a volume is opened and no address bound for it;
//! secrets alone are read from the files they are in. Numbers left out stay `None`: their defaults are in the
//! crates that use them.

mod document;
mod edit;
mod file;
mod metrics;
mod mistake;
mod section;
mod values;
mod volume;

use std::path::PathBuf;
use std::time::Duration;

pub(crate) use edit::{Addition, no_size, with_size};
pub(crate) use file::ConfigFile;
pub use metrics::Metrics;
pub use mistake::{ConfigError, Mistakes};
pub use section::{Placed, Section};
pub use values::{Address, Unfit, Uuid, VolumeName, one_of};
pub use volume::Volume;

use crate::front_ends::iscsi::{Chap, Portal, Source, Target};
use backends::secrets::Exposed;

/// The configuration file as a value.
#[derive(Debug, Default)]
pub struct Config {
    /// Where initiators connect.
    pub portals: Vec<Portal>,
    /// The volumes, with unique names.
    pub volumes: Vec<Volume>,
    /// The targets.
    pub targets: Vec<Target>,
    /// Authentication of discovery sessions.
    pub discovery: Option<Chap>,
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
    /// Files with secrets that others than their owner may use.
    pub exposed: Vec<Exposed>,
}

/// `[limits]`; what is `None` has the default of `target::Limits`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Connections at once, of one address or IPv6 network (/64).
    pub connections_per_address: Option<usize>,
    /// Connections at once that have not logged in yet.
    pub logins: Option<usize>,
    /// Sessions at once, without those for discovery.
    pub sessions: Option<usize>,
    /// Discovery sessions at once.
    pub discovery_sessions: Option<usize>,
    /// How long one of them may last.
    pub discovery_time: Option<Duration>,
    /// Connections of one session.
    pub connections_per_session: Option<u16>,
    /// From accepting a connection to its last login response.
    pub login_time: Option<Duration>,
    /// Commands in flight in one session.
    pub window: Option<u32>,
    /// Silence after which an initiator is asked whether it is alive.
    pub nop_interval: Option<Duration>,
    /// How long a peer may read nothing, or send nothing of the data it owes.
    pub send_stall: Option<Duration>,
    /// How long task management waits for a device before it fences it off.
    pub fence_time: Option<Duration>,
    /// Memory for data and working buffers of commands, all sessions together.
    pub staging_bytes: Option<usize>,
    /// The same for one session.
    pub session_staging_bytes: Option<usize>,
}

/// `[log]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// What to log, in the words of `--log`.
    pub filter: Option<String>,
    /// How to write it.
    pub format: Option<LogFormat>,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl Config {
    /// Leaves the specifications of these volumes what they were `before`.
    pub(crate) fn keep_specs(&mut self, before: &Config, names: &[VolumeName]) {
        for volume in self.volumes.iter_mut().filter(|volume| names.contains(&volume.name)) {
            if let Some(old) = before.volumes.iter().find(|old| old.name == volume.name) {
                volume.spec = old.spec.clone();
            }
        }
    }

    /// Files with secrets that others than their owner may use: the configuration (`itself`, if it is one),
    /// and what it names.
    fn exposed_by(&self, itself: Option<&Exposed>) -> Vec<Exposed> {
        let chaps = self.targets.iter().filter_map(|target| target.chap.as_ref()).chain(&self.discovery);
        let exposed = chaps.flat_map(|chap| &chap.sources).filter_map(|source| match source {
            Source::Inline => itself.cloned(),
            Source::File(exposed) => exposed.clone(),
        });
        let mut files: Vec<Exposed> = Vec::new();
        for file in exposed {
            if !files.contains(&file) {
                files.push(file);
            }
        }
        files
    }

    /// Reads `text`, which stands in `file`.
    pub fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
        document::read(file, text)
    }
}

#[cfg(test)]
mod tests;
