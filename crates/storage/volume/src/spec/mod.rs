//! Volume specifications: `ram:1GiB?block=4096`, `file:/data/vm1.img?size=50GiB`,
//! `limit:1000iops:[ram:1GiB]`.
//!
//! One grammar for the command line, the configuration file and tests. A [`Spec`] is a parsed specification,
//! checked without opening anything. Its printed form parses to the same value. The kinds of volumes are the
//! table of the [`Grammar`], one line each.

mod blocks;
mod error;
mod rate;
mod share;
mod size;
mod syntax;
mod time;
mod written;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use block::BlockSize;

use crate::backend::{Backend, Kind, Opened, Opening};

pub use blocks::BlockShape;
pub use error::{Problem, SpecError};
pub use rate::{AtMost, NotARate};
pub use share::PerMillion;
pub use size::{Bytes, NotASize, bare_unit};
pub use syntax::{Token, decode, encode};
pub use time::{NotATime, Time};
pub use written::Written;

/// A parsed volume specification.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The store, or the layer over others.
    pub backend: Arc<dyn Backend>,
    /// Read-only for initiators.
    pub readonly: bool,
    /// Reported as removable medium (`START STOP UNIT` ejects it). Only of a whole volume, not of members in
    /// brackets.
    pub removable: bool,
    /// Reported as fully provisioned, whether or not the store can deallocate blocks. Only of a whole volume.
    pub thick: bool,
}

/// The kinds of volumes that a program knows: tables of them, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Grammar(pub &'static [&'static [&'static Kind]]);

impl Grammar {
    /// Reads all of `text` as one volume.
    ///
    /// # Errors
    /// What is wrong with it, where, and what to write instead.
    pub fn parse(self, text: &str) -> Result<Spec, SpecError> {
        let spec = syntax::parse(self, text).and_then(|node| written::whole(&node));
        spec.map_err(|problem| SpecError::new(text, problem))
    }

    /// Whether a text is meant as a volume specification, rather than as a path.
    pub fn is_meant(self, text: &str) -> bool {
        let name = text.split_once(':').map(|(name, _)| name);
        name.is_some_and(|name| self.kind(name).is_some())
    }

    /// All of them, in the order of the tables.
    pub fn kinds(self) -> impl Iterator<Item = &'static Kind> {
        self.0.iter().copied().flatten().copied()
    }

    /// The one of this name.
    pub fn kind(self, name: &str) -> Option<&'static Kind> {
        self.kinds().find(|kind| kind.name == name)
    }

    fn names(self) -> Vec<&'static str> {
        self.kinds().map(|kind| kind.name).collect()
    }
}

/// The identity of a volume of which none is kept although its file was served before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichIdentity {
    /// That with which the file is marked: it is the same disk.
    OfFile,
    /// A new one: it is another disk.
    New,
}

impl FromStr for WhichIdentity {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<WhichIdentity, &'static str> {
        match text {
            "file" => Ok(WhichIdentity::OfFile),
            "new" => Ok(WhichIdentity::New),
            _ => Err("write identity=file for the disk that the file was, or identity=new for another one"),
        }
    }
}

impl fmt::Display for WhichIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhichIdentity::OfFile => "file",
            WhichIdentity::New => "new",
        })
    }
}

impl Spec {
    /// A volume without options.
    pub fn new(backend: Arc<dyn Backend>) -> Spec {
        Spec { backend, readonly: false, removable: false, thick: false }
    }

    /// What it is, without the options that every volume has.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// The store below all layers; the first, if there are several.
    pub fn store(&self) -> &dyn Backend {
        self.backend.members().first().map_or(&*self.backend, Spec::store)
    }

    /// Its logical block length, if known before it is opened.
    pub fn logical_block(&self) -> Option<BlockSize> {
        self.backend.logical_block()
    }

    /// Whether writes are refused, by an option of this volume or of a member.
    pub fn is_readonly(&self) -> bool {
        self.readonly || self.backend.members().iter().any(Spec::is_readonly)
    }

    /// Whether a `fault:` layer is in it.
    pub fn has_fault_layer(&self) -> bool {
        self.backend.has_fault_layer()
    }

    /// Whether unflushed acknowledged writes survive this process: the kernel or a disk has them.
    pub fn cache_outlives_process(&self) -> bool {
        self.backend.cache_outlives_process()
    }

    /// Whether it orders that a missing file is created.
    pub fn orders_creation(&self) -> bool {
        self.backend.orders_creation()
    }

    /// Which identity it orders for a volume of which none is kept.
    pub fn which_identity(&self) -> Option<WhichIdentity> {
        self.backend.which_identity()
    }

    /// Whether its data survive this process.
    pub fn keeps_data(&self) -> bool {
        self.backend.keeps_data()
    }

    /// Whether some of it is reached over a network.
    pub fn is_remote(&self) -> bool {
        self.backend.is_remote()
    }

    /// The file or block device below all layers, if any.
    pub fn path(&self) -> Option<&Path> {
        self.store().path()
    }

    /// Opens it. A read-only volume is opened read-only down to its stores, which are not created then.
    ///
    /// # Errors
    /// Whatever keeps it from being used, as a sentence for people.
    pub fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async move {
            let read_only = self.readonly || opening.read_only;
            // Layers count blocks, whoever uses them.
            let by_bytes = opening.by_bytes && self.backend.members().is_empty();
            self.backend.open(&Opening { read_only, by_bytes, ..opening.clone() }).await
        })
    }
}

/// Volumes that are written alike are alike.
impl PartialEq for Spec {
    fn eq(&self, other: &Spec) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Spec {}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let argument = self.backend.argument();
        write!(f, "{}:{argument}", self.backend.kind().name)?;
        if let [first, others @ ..] = self.backend.members() {
            let colon = if argument.is_empty() { "" } else { ":" };
            write!(f, "{colon}[{first}")?;
            others.iter().try_for_each(|member| write!(f, ", {member}"))?;
            write!(f, "]")?;
        }
        let mut options = self.backend.options();
        let flags = [("read-only", self.readonly), ("removable", self.removable), ("thick", self.thick)];
        options.extend(flags.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name.to_owned()));
        let mark = if options.is_empty() { "" } else { "?" };
        write!(f, "{mark}{}", options.join("&"))
    }
}
