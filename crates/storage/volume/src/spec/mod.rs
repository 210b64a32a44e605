//! Volume specifications: `ram:1GiB?block=4096`, `file:/data/vm1.img?size=50GiB`,
//! `limit:1000iops:[ram:1GiB]`.
//!
//! The command line, the configuration file and tests use the same grammar. A [`Spec`] is a specification
//! that has been parsed and checked without opening anything. Its printed form parses to the same value. The
//! table of a [`Grammar`] contains the kinds of volumes.

mod syntax;
mod values;
mod written;

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use derive_more::Display;

use crate::backend::{Backend, BlockPlaces, Opened, Opening};

pub use syntax::{
    Grammar, Problem, SpecError, Token, decode, encode, hint, list, nearest, shell_word,
};
pub use values::{AtMost, BlockShape, Bytes, NotAValue, PerMillion, Time, bare_unit};
pub use written::Written;

/// A parsed volume specification.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The store, or the layer over others.
    pub backend: Arc<dyn Backend>,
    /// Whether the volume is read-only for initiators.
    pub readonly: bool,
    /// Whether the volume is reported as a removable medium, which `START STOP UNIT` ejects. Applies only to
    /// a whole volume, not to members in brackets.
    pub removable: bool,
    /// Whether the volume is reported as fully provisioned, even if the store can deallocate blocks. Applies
    /// only to a whole volume.
    pub thick: bool,
}

/// The identity to use for a volume without a saved identity whose file was served before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum WhichIdentity {
    /// The identity with which the file is marked: the volume is the same disk.
    #[display("file")]
    OfFile,
    /// A new identity: the volume is a different disk.
    #[display("new")]
    New,
}

impl FromStr for WhichIdentity {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<WhichIdentity, &'static str> {
        match text {
            "file" => Ok(WhichIdentity::OfFile),
            "new" => Ok(WhichIdentity::New),
            _ => Err(
                "write identity=file for the identity recorded in the file, or identity=new for a new one",
            ),
        }
    }
}

impl Spec {
    /// Creates the specification of a volume without options.
    pub fn new(backend: Arc<dyn Backend>) -> Spec {
        Spec {
            backend,
            readonly: false,
            removable: false,
            thick: false,
        }
    }

    /// Returns the back end, without the options that exist for every volume.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Returns the store below all layers, or the first store if there are several.
    pub fn store(&self) -> &dyn Backend {
        self.backend
            .members()
            .first()
            .map_or(&*self.backend, Spec::store)
    }

    /// Returns whether an option of this volume or of a member makes it read-only.
    pub fn is_readonly(&self) -> bool {
        self.readonly || self.backend.members().iter().any(Spec::is_readonly)
    }

    /// Returns the file or block device below all layers, if any.
    pub fn path(&self) -> Option<&Path> {
        self.store().path()
    }

    /// Returns the file or block device that contains each block of the volume at the same position, if any.
    pub fn file(&self) -> Option<&Path> {
        match self.backend.kind().blocks {
            BlockPlaces::Store => self.backend.path(),
            BlockPlaces::Below => self.backend.members().first()?.file(),
            BlockPlaces::Elsewhere(_) => None,
        }
    }

    /// Returns the reason why the volume cannot be shrunk, if a layer prevents it.
    pub fn cannot_shrink(&self) -> Option<&'static str> {
        match self.backend.kind().blocks {
            BlockPlaces::Elsewhere(why) => Some(why),
            _ => self.backend.members().iter().find_map(Spec::cannot_shrink),
        }
    }

    /// Opens the volume. For a read-only volume, all layers and stores are opened read-only, and missing
    /// stores are not created.
    ///
    /// # Errors
    /// Returns a human-readable reason why the volume cannot be used.
    pub fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async move {
            let read_only = self.readonly || opening.read_only;
            // A layer always addresses its members by blocks.
            let by_bytes = opening.by_bytes && self.backend.members().is_empty();
            self.backend
                .open(&Opening {
                    read_only,
                    by_bytes,
                    ..opening.clone()
                })
                .await
        })
    }
}

/// Gives access to the back end, which contains everything except the options that exist for every volume.
impl Deref for Spec {
    type Target = dyn Backend;

    fn deref(&self) -> &(dyn Backend + 'static) {
        &*self.backend
    }
}

/// Specifications are equal if their printed forms are equal.
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
            others
                .iter()
                .try_for_each(|member| write!(f, ", {member}"))?;
            write!(f, "]")?;
        }
        let mut options = self.backend.options();
        let flags = [
            ("read-only", self.readonly),
            ("removable", self.removable),
            ("thick", self.thick),
        ];
        options.extend(
            flags
                .into_iter()
                .filter(|(_, is_on)| *is_on)
                .map(|(name, _)| name.to_owned()),
        );
        let mark = if options.is_empty() { "" } else { "?" };
        write!(f, "{mark}{}", options.join("&"))
    }
}
