//! The configuration of a server: one TOML file, parsed and checked completely before any of it is applied.
//!
//! A [`Config`] is a value without effects: reading it opens no volume file and binds no address; only
//! secrets are read from their files. Omitted numbers stay `None`: their defaults are in the crates that use
//! them. Each front end reads its own sections:
//!
//! ```text
//!   FrontEndKind ── read ──► Configured ── start ──► RunningFrontEnd
//!   a line of the            its sections of a       the same as a front_end_core::FrontEnd,
//!   table                    configuration           which takes another configuration by `adopt`
//! ```

pub(crate) mod file;
mod log;
pub mod reference;
pub(crate) mod section;
pub(crate) mod values;
mod volume;

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::volume::spec::{Bytes, Time, hint, nearest};
use front_end_core::{ListenAddress, Portal, Server};
use logical_unit::LogicalUnit;
use toml::de::DeTable;
use toml_edit::Table;

use self::section::KnownKey;
use self::values::{Gather, MetricsAddress, Poll};
use crate::control;
use crate::front_ends::exposed::{self, Exposed, portal_changes};

pub use file::{Tables, not_editable, text_of};
pub use log::{Log, LogFormat, LogTargets};
pub use section::{ConfigError, Mistakes, Placed, Section};
pub use values::{Address, Unfit, Uuid, VolumeName, one_of};
pub use volume::Volume;

/// The configuration file as a value.
#[derive(Debug)]
pub struct Config {
    /// The volumes, with unique names.
    pub volumes: Vec<Volume>,
    /// The configuration of each front end: its exports and portals. There is one element for each entry of
    /// the front-end table, in the same order.
    pub(crate) front_ends: Vec<Box<dyn Configured>>,
    /// TCP congestion control of all portals; overrides the settings of the portals.
    pub congestion: Option<String>,
    /// Limits.
    pub limits: Limits,
    /// The state directory, with identities and reservations.
    pub state: Option<PathBuf>,
    /// The control socket.
    pub control: Option<PathBuf>,
    /// Reactor threads.
    pub reactors: Option<usize>,
    /// The time for which a reactor polls for events before it sleeps.
    pub poll: Option<Duration>,
    /// Time for which a reactor lets events accumulate before it polls again.
    pub gather: Option<Duration>,
    /// The I/O engine that reads and writes files.
    pub io_engine: Option<host::IoEngine>,
    /// Address of the metrics server. Port 0 selects a free port.
    pub metrics: Option<SocketAddr>,
    /// The log settings.
    pub log: Log,
}

/// The limits of the server in `[limits]`; front ends read their limits from the same section. `None` means
/// the default of [`front_end_core::Limits`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Maximum concurrent connections from one address or IPv6 network (/64).
    pub connections_per_address: Option<usize>,
    /// Maximum concurrent connections that have not logged in yet.
    pub logins: Option<usize>,
    /// The time for which task management waits for a device before fencing it.
    pub fence_time: Option<Duration>,
    /// Memory for command data and working buffers, for all sessions combined.
    pub staging_bytes: Option<usize>,
}

/// The line that reports a changed `[limits]`, of the server or of a front end.
pub(crate) const LIMITS_CHANGED: &str = "~ limits";

/// A kind of front end, independent of any configuration.
#[derive(Clone, Copy)]
pub struct FrontEndKind {
    /// The name that marks its portals ([`front_end_core::FrontEnd::name`]).
    pub name: &'static str,
    /// Parses an address to listen on: `[NAME://]ADDR[:PORT]`, or `NAME+unix://PATH` if it serves Unix
    /// sockets.
    pub listen: fn(&str) -> Result<ListenAddress, Unfit>,
    /// The heading of the section without which the front end exports nothing, as written in the file:
    /// `[[target]]`.
    pub heading: &'static str,
    /// Reads its sections of the configuration file, and records errors in them. All keys are optional.
    pub read: fn(&Document<'_>) -> Box<dyn Configured>,
    /// Edits the text of a configuration file so that it exports a volume of the file. The error is a
    /// sentence.
    pub add: fn(&mut Table, &Addition<'_>) -> Result<(), String>,
    /// Removes the export of a volume, if there is one.
    pub remove: fn(&mut Table, &VolumeName) -> Result<(), String>,
}

/// A table of the front ends.
#[derive(Clone, Copy)]
pub struct FrontEnds(pub &'static [FrontEndKind]);

/// A volume to add to the file and export.
#[derive(Clone, Debug)]
pub struct Addition<'a> {
    /// Its name.
    pub volume: &'a VolumeName,
    /// Its specification.
    pub spec: &'a str,
    /// The target to which the volume is added; it is created if it is not in the file. `None` creates a
    /// separate target for the volume.
    pub target: Option<&'a str>,
    /// Its LUN in that target; `None` for the first free one.
    pub lun: Option<u16>,
    /// The initiators that can see the volume; if empty, all initiators that may log in.
    pub initiators: &'a [String],
    /// Additional keys of the volume's section, with their values.
    pub keys: &'a [(String, String)],
}

/// A configuration file being read.
pub struct Document<'a> {
    /// The whole file.
    pub root: &'a Section<'a>,
    /// `[limits]`, which also contains the limits of the whole server.
    pub limits: Option<&'a Section<'a>>,
    /// The names of all volumes, including those with errors.
    volumes: &'a [String],
}

/// Settings from the command line for one front end, in addition to the file.
pub struct Beside<'a> {
    /// Addresses to listen on, instead of those in the file.
    pub listen: Vec<ListenAddress>,
    /// Whether the command line has addresses for at least one front end.
    pub has_addresses: bool,
    /// Volumes in addition to those in the file.
    pub volumes: Vec<&'a VolumeName>,
}

/// Open volumes, as logical units. Front ends without SCSI use [`LogicalUnit::volume`].
pub type Units = HashMap<VolumeName, Arc<LogicalUnit>>;

/// A configuration to serve, and its open volumes.
#[derive(Clone, Copy)]
pub struct Serving<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The open volumes. While a change is applied, some volumes may be missing; their exports are omitted.
    pub units: &'a Units,
}

/// The configuration of one front end. [`Config::front_end`] finds it by its type.
pub trait Configured: Any + fmt::Debug + Send + Sync {
    /// The entry of this front end in the front-end table.
    fn kind(&self) -> &'static FrontEndKind;

    /// Adopts settings from the command line. The error is a sentence.
    fn take_over(&mut self, _: &Beside<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Whether the front end is not configured. A front end with addresses but no volumes is not empty: its
    /// last volume can be removed.
    fn is_empty(&self) -> bool;

    /// The exports that hosts find, all of one type. A volume that no front end exports is not opened.
    fn exposed(&self) -> Vec<&dyn Exposed>;

    /// The portals to which the hosts of this front end connect.
    fn portals(&self) -> Vec<Portal>;

    /// Returns a readable description of one of its portals.
    fn describe(&self, portal: &Portal) -> String {
        portal.listen.url(portal.front_end)
    }

    /// Human-readable differences in `wanted`, a configuration of the same front end. One line each: `+`
    /// added, `-` removed, `~` changed. A reload ignores differences without a line. `renamed` lists volumes
    /// renamed in `wanted`, as pairs of old and new name.
    fn changes(
        &self,
        wanted: &dyn Configured,
        renamed: &[(VolumeName, VolumeName)],
    ) -> Vec<String> {
        let mut lines = exposed::changes(&self.exposed(), &wanted.exposed(), renamed);
        lines.extend(portal_changes(
            &self.portals(),
            &wanted.portals(),
            |portal| self.describe(portal),
        ));
        lines
    }

    /// Its exports for `serve --check`, one line each.
    fn summary(&self, config: &Config) -> String {
        config.summary_of(&self.exposed())
    }

    /// Describes the exports of the front end, in a few lines each. `portals` are the portals of all front
    /// ends, with addresses that hosts can reach.
    fn announcement(&self, _portals: &[Portal], _volumes: &[control::Volume]) -> String {
        String::new()
    }

    /// Commands to run on a host to use the exports; `portals` is as for [`Configured::announcement`].
    fn usage(&self, _portals: &[Portal]) -> String {
        String::new()
    }

    /// Creates the front end, on this many cores.
    fn start(&self, serving: Serving<'_>, cores: usize) -> Arc<dyn RunningFrontEnd>;
}

/// A front end of a running server.
pub trait RunningFrontEnd: front_end_core::FrontEnd + Any {
    /// Switches to another configuration. [`front_end_core::CoreFrontEnd::adapt`] follows on every core.
    fn adopt(&self, wanted: Serving<'_>);

    /// Returns the losses that a switch to `wanted` would cause for hosts, as one sentence each. `portals`
    /// are the portals of all front ends after the switch. Blocks for up to one second.
    fn losses(&self, server: &Server, wanted: Serving<'_>, portals: &[Portal]) -> Vec<String>;

    /// Returns the current sessions. Blocks for up to one second.
    fn sessions(&self, server: &Server) -> Vec<control::ServedSession>;

    /// Ends the sessions selected by `which`, and returns their number. Without `force` it requests a logout
    /// and gives the hosts a few seconds. Blocks for up to one second.
    fn drop_sessions(&self, _server: &Server, _which: &str, _force: bool) -> usize {
        0
    }
}

impl Config {
    /// Parses `text`, the content of `file`.
    pub fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
        Config::read(Mistakes::new(file, text, None), FrontEnds::default())
    }

    /// Parses the configuration of a server with these front ends.
    pub(crate) fn read(
        mistakes: Mistakes<'_>,
        front_ends: FrontEnds,
    ) -> Result<Config, ConfigError> {
        let Some(document) = parsed(&mistakes) else {
            return mistakes.verdict(None);
        };
        let config = Config::of_document(
            &Section::new("the file", 0..0, &document, &mistakes),
            front_ends,
        );
        mistakes.verdict(Some(config))
    }

    /// Creates the configuration of an empty file.
    pub(crate) fn empty(front_ends: FrontEnds) -> Config {
        Config::read(Mistakes::new("", "", None), front_ends).expect("all keys may be missing")
    }

    fn of_document(root: &Section<'_>, front_ends: FrontEnds) -> Config {
        let (names, volumes) = volume::all(&root.named("volume"));
        let limits = root.section("limits", "[limits]");
        let document = Document {
            root,
            limits: limits.as_ref(),
            volumes: &names,
        };
        let config = Config {
            front_ends: front_ends
                .0
                .iter()
                .map(|kind| (kind.read)(&document))
                .collect(),
            limits: limits.as_ref().map(Limits::read).unwrap_or_default(),
            congestion: None,
            state: root.text("state").map(|path| PathBuf::from(path.value)),
            control: root.text("control").map(|path| PathBuf::from(path.value)),
            reactors: root
                .count("reactors", 1..=1024)
                .map(|count| count.value as usize),
            poll: root.parsed::<Poll>("poll").map(|poll| poll.value.0),
            gather: root.parsed::<Gather>("gather").map(|gather| gather.value.0),
            io_engine: root.parsed("io-engine").map(|engine| engine.value),
            metrics: root.section("metrics", "[metrics]").and_then(|section| {
                let listen = section.parsed::<MetricsAddress>("listen");
                let listen = section.required("listen", listen, "\"127.0.0.1:9260\"");
                section.done();
                Some(listen?.value.0)
            }),
            log: root
                .section("log", "[log]")
                .map(|section| log::read(&section))
                .unwrap_or_default(),
            volumes,
        };
        debug_assert_eq!(
            config.front_ends.len(),
            front_ends.0.len(),
            "one for each line of the table"
        );
        debug_assert!(
            names.len() >= config.volumes.len(),
            "volumes with errors have names only"
        );
        limits.iter().chain([root]).for_each(Section::done);
        config
    }

    /// The configuration of a front end, if the table in use contains it.
    pub fn front_end<T: Configured>(&self) -> Option<&T> {
        self.front_ends.iter().find_map(|front_end| {
            let any: &dyn Any = &**front_end;
            any.downcast_ref()
        })
    }

    /// The configuration of each front end.
    pub fn front_ends(&self) -> impl Iterator<Item = &dyn Configured> {
        self.front_ends.iter().map(|front_end| &**front_end)
    }

    /// Returns the volume with this name.
    pub fn volume(&self, name: &VolumeName) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.name == *name)
    }

    /// The volumes that a front end exports: only these are opened.
    pub fn exported(&self) -> impl Iterator<Item = &Volume> {
        let exposed = self.front_ends().flat_map(Configured::exposed);
        let names = exposed
            .flat_map(|exposed| exposed.contents().volumes())
            .map(|(_, name)| name);
        let exported: HashSet<&VolumeName> = names.collect();
        self.volumes
            .iter()
            .filter(move |volume| exported.contains(&volume.name))
    }

    pub(crate) fn exports_of(&self, volume: &VolumeName) -> Vec<control::Lun> {
        let mut exports = Vec::new();
        for front_end in self.front_ends() {
            for exposed in front_end.exposed() {
                let its = exposed
                    .contents()
                    .volumes()
                    .into_iter()
                    .filter(|(_, name)| *name == volume);
                let front_end = front_end.kind().name;
                exports.extend(its.map(|(lun, _)| control::Lun {
                    front_end: front_end.to_owned(),
                    target: exposed.name(),
                    lun,
                }));
            }
        }
        exports
    }

    /// Returns the exports of all front ends, without sessions. `portals` are the portals of all front ends,
    /// with the ports actually bound.
    pub(crate) fn targets(&self, portals: &[Portal]) -> Vec<control::Target> {
        let of = |front_end: &dyn Configured| -> Vec<control::Target> {
            let name = front_end.kind().name;
            front_end
                .exposed()
                .into_iter()
                .map(|exposed| exposed::target(exposed, name, portals))
                .collect()
        };
        self.front_ends().flat_map(of).collect()
    }

    /// Returns the summary that `serve --check` prints.
    pub(crate) fn summary_of(&self, exposed: &[&dyn Exposed]) -> String {
        let spec_of = |name: &VolumeName| self.volume(name).map(|volume| volume.spec.to_string());
        exposed
            .iter()
            .map(|exposed| exposed::summary(*exposed, &spec_of))
            .collect()
    }

    /// The portals of all front ends, each with its front end.
    pub fn portals(&self) -> impl Iterator<Item = (&dyn Configured, Portal)> {
        let with = |mut portal: Portal| {
            portal.stream.congestion = self.congestion.clone().or(portal.stream.congestion);
            portal
        };
        self.front_ends().flat_map(move |front_end| {
            front_end
                .portals()
                .into_iter()
                .map(move |portal| (front_end, with(portal)))
        })
    }

    /// Returns the volumes under their new names. `renamed` has the old and new names.
    pub(crate) fn renamed_volumes(&self, renamed: &[(VolumeName, VolumeName)]) -> Vec<Volume> {
        // A volume that is not exported may have had the new name.
        let is_replaced = |volume: &&Volume| renamed.iter().any(|(_, to)| *to == volume.name);
        let rename = |volume: &Volume| match renamed.iter().find(|(from, _)| *from == volume.name) {
            Some((from, to)) => Volume {
                name: to.clone(),
                previous_name: Some(from.clone()),
                ..volume.clone()
            },
            None => volume.clone(),
        };
        self.volumes
            .iter()
            .filter(|volume| !is_replaced(volume))
            .map(rename)
            .collect()
    }

    /// Restores the specification, identity and names that these volumes had `before`, under their new volume
    /// names.
    pub(crate) fn keep_volumes(&mut self, before: &[Volume], names: &[VolumeName]) {
        for volume in self
            .volumes
            .iter_mut()
            .filter(|volume| names.contains(&volume.name))
        {
            if let Some(old) = before.iter().find(|old| old.name == volume.name) {
                (volume.spec, volume.uuid, volume.names) =
                    (old.spec.clone(), old.uuid, old.names.clone());
            }
        }
    }
}

fn parsed<'a>(mistakes: &Mistakes<'a>) -> Option<DeTable<'a>> {
    let (document, errors) = DeTable::parse_recoverable(mistakes.text());
    for error in &errors {
        mistakes.add(
            error.span().unwrap_or(0..0),
            format!("invalid TOML: {}", error.message()),
        );
    }
    errors.is_empty().then(|| document.into_inner())
}

/// Reads the keys `control` and `state`, even if the rest of the file has errors.
pub(crate) fn places(mistakes: Mistakes<'_>) -> Result<[Option<PathBuf>; 2], ConfigError> {
    let places = parsed(&mistakes).map(|table| {
        ["control", "state"].map(|key| {
            table
                .get(key)
                .and_then(|value| value.get_ref().as_str())
                .map(PathBuf::from)
        })
    });
    mistakes.verdict(places)
}

/// Returns the sections of a document without errors, and the keys allowed in each.
fn known_keys(text: &str) -> Vec<(String, Vec<KnownKey>)> {
    let mistakes = Mistakes::new("", text, None);
    let (document, _) = DeTable::parse_recoverable(text);
    Config::of_document(
        &Section::new("", 0..0, document.get_ref(), &mistakes),
        FrontEnds::default(),
    );
    mistakes.sections()
}

impl Limits {
    fn read(section: &Section<'_>) -> Limits {
        let count = |key| {
            section
                .count(key, 1..=65_535)
                .map(|count| count.value as usize)
        };
        Limits {
            connections_per_address: count("connections-per-address"),
            logins: count("logins"),
            fence_time: section
                .parsed::<Time>("fence-time")
                .map(|time| time.value.0),
            staging_bytes: section
                .parsed::<Bytes>("staging")
                .map(|bytes| bytes.value.0 as usize),
        }
    }

    /// The limits of the server; omitted ones have the default of `front_end_core`.
    pub fn of_server(&self) -> front_end_core::Limits {
        let usual = front_end_core::Limits::default();
        front_end_core::Limits {
            connections_per_address: self
                .connections_per_address
                .unwrap_or(usual.connections_per_address),
            logins: self.logins.unwrap_or(usual.logins),
            fence_time: self.fence_time.unwrap_or(usual.fence_time),
            staging_bytes: self.staging_bytes.unwrap_or(usual.staging_bytes),
        }
    }
}

impl Serving<'_> {
    /// Returns the open volume with this name.
    pub fn unit(&self, name: &VolumeName) -> Option<&Arc<LogicalUnit>> {
        self.units.get(name)
    }

    /// The part of the configuration that all front ends share.
    pub(crate) fn of_server(&self) -> front_end_core::Config {
        let named = self
            .units
            .iter()
            .map(|(name, unit)| (name.to_string(), Arc::clone(unit.volume())));
        front_end_core::Config {
            volumes: named.collect(),
            portals: self.config.portals().map(|(_, portal)| portal).collect(),
            limits: self.config.limits.of_server(),
        }
    }
}

impl FrontEnds {
    /// Returns the front end with this name; without a name, the first one.
    pub(crate) fn named(self, name: Option<&str>) -> Result<&'static FrontEndKind, String> {
        let names: Vec<&str> = self.0.iter().map(|kind| kind.name).collect();
        let found = match name {
            None => self.0.first(),
            Some(name) => self.0.iter().find(|kind| kind.name == name),
        };
        let unknown = || {
            name.map_or_else(String::new, |name| {
                format!(" `{name}`{}", hint(name, &names))
            })
        };
        found.ok_or_else(|| format!("unknown front end{}", unknown()))
    }
}

impl fmt::Debug for FrontEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|kind| kind.name))
            .finish()
    }
}

impl Document<'_> {
    /// Returns the volume that a key of `section` names. If the file has no such volume, the error is
    /// recorded at the key. The empty name means no volume: the entry keeps its host settings until it has a
    /// volume again.
    pub fn volume(&self, section: &Section<'_>, name: &Placed<&str>) -> Option<VolumeName> {
        if name.value.is_empty() {
            return None;
        }
        let names: Vec<&str> = self.volumes.iter().map(String::as_str).collect();
        if names.contains(&name.value) {
            // An invalid volume name is reported where the volume is defined.
            return name.value.parse().ok();
        }
        let meant = match nearest(name.value, &names) {
            Some(_) => hint(name.value, &names),
            None => format!("; add [volume.{}], or name an existing volume", name.value),
        };
        section.mistakes.add(
            name.at.clone(),
            format!("unknown volume `{}`{meant}", name.value),
        );
        None
    }
}

#[cfg(test)]
mod tests;
