//! What a volume can be made of: stores, and layers over other volumes. Each is one file with an `impl Backend` and a [`Kind`],
//! which is its line in the table of a program's [`Grammar`](crate::spec::Grammar).

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use block::{BlockDevice, BlockSize, FaultControl, Sleeper, Spawner};

use crate::spec::{Problem, Spec, Written};

/// One kind of back end: its grammar, its help and its row in the documents.
pub struct Kind {
    /// What a specification of this kind begins with, without the colon.
    pub name: &'static str,
    /// How it is written, in the document's first column.
    pub usage: &'static str,
    /// What it is, in the document's second column.
    pub about: &'static str,
    /// Whether it lies over other volumes, which stand in brackets.
    pub is_layer: bool,
    /// Its options, besides those of every volume.
    pub options: Options,
    /// Makes it of what is written, without touching anything.
    pub read: fn(&Written<'_>) -> Result<Arc<dyn Backend>, Problem>,
}

/// Which options a kind has.
pub enum Options {
    /// These; any other is a mistake.
    Known(&'static [&'static str]),
    /// Its own grammar says.
    Own,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({})", self.name)
    }
}

/// A back end as it was specified: checked as far as that goes without touching it, not open.
pub trait Backend: fmt::Debug + Send + Sync {
    /// What it is a kind of.
    fn kind(&self) -> &'static Kind;

    /// What is written behind the kind's colon: `1GiB`, `/data/vm1.img`; empty if nothing is.
    fn argument(&self) -> String;

    /// The options that differ from what goes without saying, `key=value` or `key`.
    fn options(&self) -> Vec<String> {
        Vec::new()
    }

    /// The volumes that it lies over, in the order in which they are written.
    fn members(&self) -> &[Spec] {
        &[]
    }

    /// What its addresses count, if that is known before it is open.
    fn logical_block(&self) -> Option<BlockSize> {
        self.members().first().and_then(Spec::logical_block)
    }

    /// The file or block device that it is.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// The file that is made when it is opened for writing and is not there yet.
    fn makes_file(&self) -> Option<&Path> {
        None
    }

    /// Whether what is on it outlives this process.
    fn keeps_data(&self) -> bool {
        self.members().iter().any(Spec::keeps_data)
    }

    /// Whether what it has acknowledged and not flushed outlives this process, for certain: it is with the kernel or a disk of
    /// this machine.
    fn cache_outlives_process(&self) -> bool {
        !self.members().is_empty() && self.members().iter().all(Spec::cache_outlives_process)
    }

    /// Whether it misbehaves when [`Opening::faults`] say so.
    fn has_fault_layer(&self) -> bool {
        self.members().iter().any(Spec::has_fault_layer)
    }

    /// Whether it is reached over a network, by sessions that live on the reactor that opens it.
    fn is_remote(&self) -> bool {
        self.members().iter().any(Spec::is_remote)
    }

    /// Opens it, and what it lies over by [`Spec::open`].
    ///
    /// # Errors
    /// Whatever keeps it from being used, as a sentence for people.
    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a>;
}

/// A device being opened. Where nothing [is remote](Backend::is_remote) it is open at the first poll.
pub type Opened<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn BlockDevice>, OpenError>> + 'a>>;

/// Why a device cannot be opened.
pub type OpenError = Box<dyn Error + Send + Sync>;

/// With what back ends are opened.
#[derive(Clone)]
pub struct Opening {
    /// Nothing is written, and what is not there is not made.
    pub read_only: bool,
    /// Makes all `fault:` layers misbehave.
    pub faults: FaultControl,
    /// The clock of layers that need one.
    pub sleeper: Arc<dyn Sleeper>,
    /// Runs what layers do beside requests.
    pub spawner: Arc<dyn Spawner>,
}
