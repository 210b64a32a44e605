//! The configuration of a server: one TOML file, parsed and checked completely before any of it is applied.
//!
//! A [`Config`] is a value without effects: no file of a volume is opened and no address bound for it;
//! secrets alone are read from the files they are in. Numbers left out stay `None`: their defaults are in the
//! crates that use them. What is said of a front end is its own to read:
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

use ::volume::spec::{Bytes, Time};
use ::volume::words::{hint, nearest};
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
    /// Where metrics are served; port 0 takes a free one.
    pub metrics: Option<SocketAddr>,
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

/// What is told of a change of `[limits]`, whosever they are.
pub(crate) const LIMITS_CHANGED: &str = "~ limits";

/// A front end, before anything is known of a configuration.
#[derive(Clone, Copy)]
pub struct FrontEndKind {
    /// What its portals are marked with ([`front_end_core::FrontEnd::name`]).
    pub name: &'static str,
    /// Where a text has it listen: `[NAME://]ADDR[:PORT]`, or `NAME+unix://PATH` if it serves Unix sockets.
    pub listen: fn(&str) -> Result<ListenAddress, Unfit>,
    /// The heading without which it serves nothing, as it is written in the file: `[[target]]`.
    pub heading: &'static str,
    /// Reads its sections of the configuration file, and notes their mistakes. All keys may be missing.
    pub read: fn(&Document<'_>) -> Box<dyn Configured>,
    /// Has the text of a configuration file export a volume that the file has. The error is a sentence.
    pub add: fn(&mut Table, &Addition<'_>) -> Result<(), String>,
    /// Has it export a volume no more, if it does.
    pub remove: fn(&mut Table, &VolumeName) -> Result<(), String>,
}

/// A table of front ends.
#[derive(Clone, Copy)]
pub struct FrontEnds(pub &'static [FrontEndKind]);

/// A volume to be added to the file, and exported.
#[derive(Clone, Debug)]
pub struct Addition<'a> {
    /// Its name.
    pub volume: &'a VolumeName,
    /// What it is made of.
    pub spec: &'a str,
    /// The target that has it, if it is not to have one of its own. One that is not in the file is made.
    pub target: Option<&'a str>,
    /// Its LUN there; `None`: the first free one.
    pub lun: Option<u16>,
    /// Initiators that it is visible to; if empty, all that may log in.
    pub initiators: &'a [String],
    /// More keys of its section, with their values.
    pub keys: &'a [(String, String)],
}

/// A configuration file that is being read.
pub struct Document<'a> {
    /// All of it.
    pub root: &'a Section<'a>,
    /// `[limits]`, which has the limits of the server as a whole, too.
    pub limits: Option<&'a Section<'a>>,
    /// The names of all volumes, those of volumes with mistakes too.
    volumes: &'a [String],
}

/// What the command line says to one front end, beside the file.
pub struct Beside<'a> {
    /// Where to listen, in place of the addresses of the file.
    pub listen: Vec<ListenAddress>,
    /// The command line has addresses of some front end.
    pub has_addresses: bool,
    /// Volumes besides those of the file.
    pub volumes: Vec<&'a VolumeName>,
}

/// Volumes that are open, as logical units. [`LogicalUnit::volume`] is what front ends without SCSI use.
pub type Units = HashMap<VolumeName, Arc<LogicalUnit>>;

/// What is to be served: a configuration, and those of its volumes that are open.
#[derive(Clone, Copy)]
pub struct Serving<'a> {
    /// What it is to be.
    pub config: &'a Config,
    /// In the middle of a change some are missing. What exports them leaves them out.
    pub units: &'a Units,
}

/// What a configuration says of one front end. [`Config::front_end`] finds it by its type.
pub trait Configured: Any + fmt::Debug + Send + Sync {
    /// Its line of the table.
    fn kind(&self) -> &'static FrontEndKind;

    /// Takes over what stands beside the file. The error is a sentence.
    fn take_over(&mut self, _: &Beside<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Whether nothing is said of it. What listens by its section may be without volumes: the last one can be removed.
    fn is_empty(&self) -> bool;

    /// What hosts find at it, all of one type. A volume that is not on any of these, at no front end, is not opened.
    fn exposed(&self) -> Vec<&dyn Exposed>;

    /// Where its hosts connect.
    fn portals(&self) -> Vec<Portal>;

    /// One of its portals, as people are told of it.
    fn describe(&self, portal: &Portal) -> String {
        portal.listen.url(portal.front_end)
    }

    /// What is different in `wanted`, which is of the same front end, for people, a line each: `+` is new, `-` is gone, `~` is different.
    /// What has no line is no difference, and a reload ignores it. `renamed` are volumes that have another name there, from and to.
    fn changes(&self, wanted: &dyn Configured, renamed: &[(VolumeName, VolumeName)]) -> Vec<String> {
        let mut lines = exposed::changes(&self.exposed(), &wanted.exposed(), renamed);
        lines.extend(portal_changes(&self.portals(), &wanted.portals(), |portal| self.describe(portal)));
        lines
    }

    /// What it would serve, for `serve --check`, a line each.
    fn summary(&self, config: &Config) -> String {
        config.summary_of(&self.exposed())
    }

    /// What it serves, in a few lines for each thing that hosts connect to. The portals are those of all front ends, with
    /// addresses that hosts can reach.
    fn announcement(&self, _portals: &[Portal], _volumes: &[control::Volume]) -> String {
        String::new()
    }

    /// What to type on a host to use what it serves; the portals as above.
    fn usage(&self, _portals: &[Portal]) -> String {
        String::new()
    }

    /// A front end that serves this on so many cores.
    fn start(&self, serving: Serving<'_>, cores: usize) -> Arc<dyn RunningFrontEnd>;
}

/// A front end of a server that runs.
pub trait RunningFrontEnd: front_end_core::FrontEnd + Any {
    /// Serves something else from now on. [`front_end_core::CoreFrontEnd::adapt`] follows on every core.
    fn adopt(&self, wanted: Serving<'_>);

    /// What hosts would lose if `wanted` were served by these portals of all front ends, a sentence each. Blocks for at most
    /// a second.
    fn losses(&self, server: &Server, wanted: Serving<'_>, portals: &[Portal]) -> Vec<String>;

    /// Who uses it now. Blocks for at most a second.
    fn sessions(&self, server: &Server) -> Vec<control::ServedSession>;

    /// Ends the sessions that `which` names, and returns how many. Without `force` their hosts are asked to log out, and have
    /// seconds to do it. Blocks for at most a second.
    fn drop_sessions(&self, _server: &Server, _which: &str, _force: bool) -> usize {
        0
    }
}

impl Config {
    /// Reads `text`, which stands in `file`.
    pub fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
        Config::read(Mistakes::new(file, text, None), FrontEnds::default())
    }

    /// Reads a text as these front ends understand it.
    pub(crate) fn read(mistakes: Mistakes<'_>, front_ends: FrontEnds) -> Result<Config, ConfigError> {
        let Some(document) = parsed(&mistakes) else { return mistakes.verdict(None) };
        let config = Config::of_document(&Section::new("the file", 0..0, &document, &mistakes), front_ends);
        mistakes.verdict(Some(config))
    }

    /// That of a file with nothing in it.
    pub(crate) fn empty(front_ends: FrontEnds) -> Config {
        Config::read(Mistakes::new("", "", None), front_ends).expect("all keys may be missing")
    }

    fn of_document(root: &Section<'_>, front_ends: FrontEnds) -> Config {
        let (names, volumes) = volume::all(&root.named("volume"));
        let limits = root.section("limits", "[limits]");
        let document = Document { root, limits: limits.as_ref(), volumes: &names };
        let config = Config {
            front_ends: front_ends.0.iter().map(|kind| (kind.read)(&document)).collect(),
            limits: limits.as_ref().map(Limits::read).unwrap_or_default(),
            congestion: None,
            state: root.text("state").map(|path| PathBuf::from(path.value)),
            control: root.text("control").map(|path| PathBuf::from(path.value)),
            reactors: root.count("reactors", 1..=1024).map(|count| count.value as usize),
            poll: root.parsed::<Poll>("poll").map(|poll| poll.value.0),
            gather: root.parsed::<Gather>("gather").map(|gather| gather.value.0),
            io_engine: root.parsed("io-engine").map(|engine| engine.value),
            metrics: root.section("metrics", "[metrics]").and_then(|section| {
                let listen = section.parsed::<MetricsAddress>("listen");
                let listen = section.required("listen", listen, "\"127.0.0.1:9260\"");
                section.done();
                Some(listen?.value.0)
            }),
            log: root.section("log", "[log]").map(|section| log::read(&section)).unwrap_or_default(),
            volumes,
        };
        debug_assert_eq!(config.front_ends.len(), front_ends.0.len(), "one for each line of the table");
        debug_assert!(names.len() >= config.volumes.len(), "volumes with mistakes have names only");
        limits.iter().chain([root]).for_each(Section::done);
        config
    }

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
        let exposed = self.front_ends().flat_map(Configured::exposed);
        let names = exposed.flat_map(|exposed| exposed.contents().volumes()).map(|(_, name)| name);
        let exported: HashSet<&VolumeName> = names.collect();
        self.volumes.iter().filter(move |volume| exported.contains(&volume.name))
    }

    pub(crate) fn exports_of(&self, volume: &VolumeName) -> Vec<control::Lun> {
        let mut exports = Vec::new();
        for front_end in self.front_ends() {
            for exposed in front_end.exposed() {
                let its = exposed.contents().volumes().into_iter().filter(|(_, name)| *name == volume);
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

    /// What hosts find at all front ends, without sessions; the portals are those of all front ends, with the ports that were taken.
    pub(crate) fn targets(&self, portals: &[Portal]) -> Vec<control::Target> {
        let of = |front_end: &dyn Configured| -> Vec<control::Target> {
            let name = front_end.kind().name;
            front_end.exposed().into_iter().map(|exposed| exposed::target(exposed, name, portals)).collect()
        };
        self.front_ends().flat_map(of).collect()
    }

    /// What `serve --check` prints of them.
    pub(crate) fn summary_of(&self, exposed: &[&dyn Exposed]) -> String {
        let spec_of = |name: &VolumeName| self.volume(name).map(|volume| volume.spec.to_string());
        exposed.iter().map(|exposed| exposed::summary(*exposed, &spec_of)).collect()
    }

    /// The portals of all front ends, each with what people are told of it.
    pub fn portals(&self) -> impl Iterator<Item = (&dyn Configured, Portal)> {
        let with = |mut portal: Portal| {
            portal.stream.congestion = self.congestion.clone().or(portal.stream.congestion);
            portal
        };
        self.front_ends().flat_map(move |front_end| {
            front_end.portals().into_iter().map(move |portal| (front_end, with(portal)))
        })
    }

    /// Leaves these volumes what they were `before`.
    pub(crate) fn keep_volumes(&mut self, before: &Config, names: &[VolumeName]) {
        for volume in self.volumes.iter_mut().filter(|volume| names.contains(&volume.name)) {
            if let Some(old) = before.volume(&volume.name) {
                (volume.spec, volume.uuid, volume.names) = (old.spec.clone(), old.uuid, old.names.clone());
            }
        }
    }
}

fn parsed<'a>(mistakes: &Mistakes<'a>) -> Option<DeTable<'a>> {
    let (document, errors) = DeTable::parse_recoverable(mistakes.text());
    for error in &errors {
        mistakes.add(error.span().unwrap_or(0..0), format!("this is not TOML: {}", error.message()));
    }
    errors.is_empty().then(|| document.into_inner())
}

/// The keys `control` and `state`, whatever else is in the file.
pub(crate) fn places(mistakes: Mistakes<'_>) -> Result<[Option<PathBuf>; 2], ConfigError> {
    let places = parsed(&mistakes).map(|table| {
        ["control", "state"]
            .map(|key| table.get(key).and_then(|value| value.get_ref().as_str()).map(PathBuf::from))
    });
    mistakes.verdict(places)
}

/// The sections of a document without mistakes, and the keys that each may have.
fn known_keys(text: &str) -> Vec<(String, Vec<KnownKey>)> {
    let mistakes = Mistakes::new("", text, None);
    let (document, _) = DeTable::parse_recoverable(text);
    Config::of_document(&Section::new("", 0..0, document.get_ref(), &mistakes), FrontEnds::default());
    mistakes.sections()
}

impl Limits {
    fn read(section: &Section<'_>) -> Limits {
        let count = |key| section.count(key, 1..=65_535).map(|count| count.value as usize);
        Limits {
            connections_per_address: count("connections-per-address"),
            logins: count("logins"),
            fence_time: section.parsed::<Time>("fence-time").map(|time| time.value.0),
            staging_bytes: section.parsed::<Bytes>("staging").map(|bytes| bytes.value.0 as usize),
        }
    }

    /// What the file leaves out is as `front_end_core` has it.
    pub fn of_server(&self) -> front_end_core::Limits {
        let usual = front_end_core::Limits::default();
        front_end_core::Limits {
            connections_per_address: self.connections_per_address.unwrap_or(usual.connections_per_address),
            logins: self.logins.unwrap_or(usual.logins),
            fence_time: self.fence_time.unwrap_or(usual.fence_time),
            staging_bytes: self.staging_bytes.unwrap_or(usual.staging_bytes),
        }
    }
}

impl Serving<'_> {
    /// A volume that is open.
    pub fn unit(&self, name: &VolumeName) -> Option<&Arc<LogicalUnit>> {
        self.units.get(name)
    }

    /// What all front ends share.
    pub(crate) fn of_server(&self) -> front_end_core::Config {
        let named = self.units.iter().map(|(name, unit)| (name.to_string(), Arc::clone(unit.volume())));
        front_end_core::Config {
            volumes: named.collect(),
            portals: self.config.portals().map(|(_, portal)| portal).collect(),
            limits: self.config.limits.of_server(),
        }
    }
}

impl FrontEnds {
    /// The front end of this name; the first one without a name.
    pub(crate) fn named(self, name: Option<&str>) -> Result<&'static FrontEndKind, String> {
        let names: Vec<&str> = self.0.iter().map(|kind| kind.name).collect();
        let found = match name {
            None => self.0.first(),
            Some(name) => self.0.iter().find(|kind| kind.name == name),
        };
        let unknown = || name.map_or_else(String::new, |name| format!(" `{name}`{}", hint(name, &names)));
        found.ok_or_else(|| format!("there is no front end{}", unknown()))
    }
}

impl fmt::Debug for FrontEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|kind| kind.name)).finish()
    }
}

impl Document<'_> {
    /// The volume of this name, which a key of `section` says. It is a mistake there if the file has none. The empty name is that
    /// of no volume: its entry keeps what it says of hosts until it has one again.
    pub fn volume(&self, section: &Section<'_>, name: &Placed<&str>) -> Option<VolumeName> {
        if name.value.is_empty() {
            return None;
        }
        let names: Vec<&str> = self.volumes.iter().map(String::as_str).collect();
        if names.contains(&name.value) {
            // A name that is not fit for a volume has its mistake where the volume is.
            return name.value.parse().ok();
        }
        let meant = match nearest(name.value, &names) {
            Some(_) => hint(name.value, &names),
            None => format!("; add [volume.{}] or name one that is there", name.value),
        };
        section.mistakes.add(name.at.clone(), format!("there is no volume `{}`{meant}", name.value));
        None
    }
}

#[cfg(test)]
mod tests;
