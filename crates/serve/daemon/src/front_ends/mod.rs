//! The front ends of a configured server. The rest of this crate knows none of them by name: a front end is a line of the
//! table ([`ALL`]), and what it gives is here.
//!
//! ```text
//!   Kind ── read ──► Configured ── start ──► Running
//!   a line of the    its sections of a       the same as a front_end_core::FrontEnd,
//!   table            configuration           which takes another configuration by `adopt`
//! ```
//!
//! A program, or a test, may have a table of its own ([`Desired::front_ends`]).

pub mod aoe;
pub mod hyperscsi;
pub mod iscsi;
mod lun_edit;
pub mod nbd;
mod portals;
mod secret;
mod typed;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use front_end_core::{ListenAddress, Portal, Server};
use toml_edit::Table;
use volume::nearest::{hint, nearest};

use crate::config::{Addition, Config, Placed, Section, Unfit, VolumeName};
use crate::control::{self, Lun};
use crate::desired::Desired;
use crate::volumes::Volumes;

pub use portals::{listen_address, listen_address_or_path, portal_changes};

/// All front ends. `server add` means the first one unless it names another.
pub const ALL: &[Kind] = &[iscsi::KIND, nbd::KIND, aoe::KIND, hyperscsi::KIND];

/// A front end, before anything is known of a configuration.
#[derive(Clone, Copy)]
pub struct Kind {
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
pub struct FrontEnds(pub &'static [Kind]);

/// A configuration file that is being read.
pub struct Document<'a> {
    /// All of it.
    pub root: &'a Section<'a>,
    /// `[limits]`, which has the limits of the server as a whole, too.
    pub limits: Option<&'a Section<'a>>,
    /// The names of all volumes, those of volumes with mistakes too.
    pub(crate) volumes: &'a [String],
}

/// What is to be served: a configuration, and those of its volumes that are open.
#[derive(Clone, Copy)]
pub struct Serving<'a> {
    /// What it is to be.
    pub config: &'a Config,
    /// In the middle of a change some are missing. What exports them leaves them out.
    pub volumes: &'a Volumes,
}

/// What a configuration says of one front end. [`Config::front_end`] finds it by its type.
pub trait Configured: Any + fmt::Debug + Send + Sync {
    /// Takes over what stands beside the file and is for this front end: volumes, addresses. The error is a sentence.
    fn take_over(&mut self, _: &Desired) -> Result<(), String> {
        Ok(())
    }

    /// Whether nothing is said of it. What listens by its section may be without volumes: the last one can be removed.
    fn is_empty(&self) -> bool;

    /// The volumes that it exports. A volume that no front end exports is not opened.
    fn volumes(&self) -> Vec<&VolumeName>;

    /// Where its hosts connect.
    fn portals(&self) -> Vec<Portal>;

    /// One of its portals, as people are told of it.
    fn describe(&self, portal: &Portal) -> String {
        portal.listen.url(portal.front_end)
    }

    /// What is different in `wanted`, for people, a line each: `+` is new, `-` is gone, `~` is different. What has no line is
    /// no difference, and a reload ignores it. `renamed` are volumes that have another name there, from and to.
    fn changes(&self, wanted: &Config, renamed: &[(VolumeName, VolumeName)]) -> Vec<String>;

    /// What it would serve, for `serve --check`, a line each.
    fn summary(&self, config: &Config) -> String;

    /// Where hosts find a volume.
    fn exports_of(&self, volume: &VolumeName) -> Vec<Lun>;

    /// Its targets, as [`control::Request::Targets`] tells of them, without their sessions. The portals are those of all front
    /// ends, with the ports that were taken.
    fn targets(&self, _portals: &[Portal]) -> Vec<control::Target> {
        Vec::new()
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
    fn start(&self, serving: Serving<'_>, cores: usize) -> Arc<dyn Running>;
}

/// A front end of a server that runs.
pub trait Running: front_end_core::FrontEnd + Any {
    /// Serves something else from now on. [`front_end_core::CoreFrontEnd::adapt`] follows on every core.
    fn adopt(&self, wanted: Serving<'_>);

    /// What hosts would lose if `wanted` were served by these portals of all front ends, a sentence each. Blocks for at most
    /// a second.
    fn losses(&self, server: &Server, wanted: Serving<'_>, portals: &[Portal]) -> Vec<String>;

    /// Who uses it now. Blocks for at most a second.
    fn sessions(&self, server: &Server) -> Vec<control::Session>;

    /// Ends the sessions that `which` names, and returns how many. Without `force` their hosts are asked to log out, and have
    /// seconds to do it. Blocks for at most a second.
    fn drop_sessions(&self, _server: &Server, _which: &str, _force: bool) -> usize {
        0
    }
}

/// Who may use something, as a change tells of it: what is open to everybody stands out.
pub(crate) fn for_whom(audience: &str) -> String {
    format!("for {}", audience.replacen("any ", "ANY ", 1))
}

impl FrontEnds {
    /// The front end of this name; the first one without a name.
    pub(crate) fn named(self, name: Option<&str>) -> Result<&'static Kind, String> {
        let names: Vec<&str> = self.0.iter().map(|kind| kind.name).collect();
        let found = match name {
            None => self.0.first(),
            Some(name) => self.0.iter().find(|kind| kind.name == name),
        };
        let unknown = || name.map_or_else(String::new, |name| format!(" `{name}`{}", hint(name, &names)));
        found.ok_or_else(|| format!("there is no front end{}", unknown()))
    }

    /// What is missing in a configuration that serves nothing: `[[target]]`.
    pub(crate) fn headings(self) -> String {
        let headings: Vec<&str> = self.0.iter().map(|kind| kind.heading).collect();
        headings.join(" and no ")
    }
}

impl Default for FrontEnds {
    fn default() -> FrontEnds {
        FrontEnds(ALL)
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
