//! What a server is to serve: one TOML file, read completely and checked before anything is touched.
//!
//! A [`Config`] is a value without effects: no file of a volume is opened and no address bound for it; secrets
//! alone are read from the files they are in. Numbers left out stay `None`: their defaults belong to those who
//! use them.

mod chap;
mod document;
mod edit;
mod file;
mod mistake;
mod names;
mod portal;
mod section;
mod session;
mod target;
mod values;
mod volume;

use std::path::PathBuf;
use std::time::Duration;

pub(crate) use chap::{Account, Chap};
pub(crate) use edit::{Addition, no_size, with_size};
pub(crate) use file::ConfigFile;
pub(crate) use mistake::ConfigError;
pub(crate) use portal::Portal;
pub(crate) use target::{Lun, Target};
pub(crate) use values::{Address, Uuid, VolumeName};
pub(crate) use volume::Volume;

use self::chap::Source;
use crate::secrets::Exposed;

/// All that can be said in the file.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// Where initiators connect.
    pub(crate) portals: Vec<Portal>,
    /// What there is to serve, each name once.
    pub(crate) volumes: Vec<Volume>,
    /// What initiators find.
    pub(crate) targets: Vec<Target>,
    /// What discovery sessions must prove.
    pub(crate) discovery: Option<Chap>,
    /// What nobody may exceed.
    pub(crate) limits: Limits,
    /// Where identities and reservations are kept.
    pub(crate) state: Option<PathBuf>,
    /// The control socket.
    pub(crate) control: Option<PathBuf>,
    /// Reactor threads.
    pub(crate) reactors: Option<usize>,
    /// How long a reactor looks for events before it sleeps.
    pub(crate) poll: Option<Duration>,
    /// For how long it lets events gather before it looks for more.
    pub(crate) gather: Option<Duration>,
    /// How files are read and written.
    pub(crate) io_engine: Option<host::IoEngine>,
    /// What is logged.
    pub(crate) log: Log,
    /// Files with secrets that others than their owner may use.
    pub(crate) exposed: Vec<Exposed>,
}

/// `[limits]`; what is `None` has the default of `target::Limits`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    pub(crate) connections_per_address: Option<usize>,
    pub(crate) logins: Option<usize>,
    pub(crate) sessions: Option<usize>,
    pub(crate) discovery_sessions: Option<usize>,
    pub(crate) discovery_time: Option<Duration>,
    pub(crate) connections_per_session: Option<u16>,
    pub(crate) login_time: Option<Duration>,
    pub(crate) window: Option<u32>,
    pub(crate) nop_interval: Option<Duration>,
    pub(crate) send_stall: Option<Duration>,
    pub(crate) fence_time: Option<Duration>,
    pub(crate) staging_bytes: Option<usize>,
    pub(crate) session_staging_bytes: Option<usize>,
}

/// `[log]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Log {
    /// What to log, in the words of `--log`.
    pub(crate) filter: Option<String>,
    /// How to write it.
    pub(crate) format: Option<LogFormat>,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
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

    /// Files with secrets that others than their owner may use: the configuration (`itself`, if it is one), and what it names.
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
    pub(crate) fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
        document::read(file, text)
    }
}

#[cfg(test)]
mod tests;
