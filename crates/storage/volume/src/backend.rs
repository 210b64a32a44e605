//! Back ends of volumes: stores, and layers over other volumes. Each is one file with an `impl Backend` and a
//! [`Kind`], which is its entry in the table of a program's [`Grammar`](crate::spec::Grammar).

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::fmt::Display;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use block::{BlockDevice, BlockSize, FaultControl, Sleeper, Spawner};

use crate::spec::{Problem, Spec, WhichIdentity, Written};

/// One kind of back end: its grammar, its help and its row in the documents.
pub struct Kind {
    /// The prefix of its specifications, without the colon.
    pub name: &'static str,
    /// Its syntax, for the document's first column.
    pub usage: &'static str,
    /// Its description, for the document's second column.
    pub about: &'static str,
    /// Location of its volumes' blocks.
    pub blocks: BlockPlaces,
    /// Its options, in addition to the options of every volume.
    pub options: Options,
    /// Parses a specification, without opening anything.
    pub read: fn(&Written<'_>) -> Result<Arc<dyn Backend>, Problem>,
}

/// Location of a volume's blocks. The file under a layer with [`Below`](Self::Below) is marked, grown and
/// shrunk as if the file were the volume.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BlockPlaces {
    /// In a store.
    Store,
    /// Each in the block with the same number of the single volume in brackets.
    Below,
    /// Elsewhere in the volumes in brackets. The text is the reason that it cannot be shrunk: `a RAID set
    /// cannot be shrunk`.
    Elsewhere(&'static str),
}

/// The options of a kind.
pub enum Options {
    /// These; any other is an error.
    Known(&'static [&'static str]),
    /// Those of its URLs.
    Url(&'static UrlKind),
}

/// Functions of a kind whose volumes are URLs of remote storage. Its name is the scheme.
pub struct UrlKind {
    /// Whether its URLs have this key. Messages mask the value of a key that no kind has.
    pub has_key: fn(&str) -> bool,
    /// Checks a URL, without accessing anything.
    pub check: fn(&str) -> Result<(), String>,
    /// Opens the storage of a URL.
    pub open: for<'a> fn(String, &'a Opening) -> Opened<'a>,
    /// Determines why the peer is unreachable, after the device has failed; `None` if it is reachable.
    pub unreachable: Option<for<'a> fn(&'a str) -> Asked<'a>>,
    /// Closes all sessions of this thread, so that their peers do not keep them until they time out.
    pub close: Option<fn() -> Closed>,
}

/// The error that makes a peer unreachable, if any.
pub type Asked<'a> = Pin<Box<dyn Future<Output = Option<OpenError>> + 'a>>;

/// The end of a thread's sessions.
pub type Closed = Pin<Box<dyn Future<Output = ()>>>;

impl Kind {
    /// Its functions for URLs, if its volumes are URLs.
    pub fn url(&self) -> Option<&'static UrlKind> {
        match self.options {
            Options::Url(url) => Some(url),
            Options::Known(_) => None,
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({})", self.name)
    }
}

/// A specified back end: checked, not opened.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Its kind.
    fn kind(&self) -> &'static Kind;

    /// The text after the kind's colon, such as `1GiB` or `/data/vm1.img`; may be empty.
    fn argument(&self) -> String;

    /// The options that differ from the defaults, as `key=value` or `key`.
    fn options(&self) -> Vec<String> {
        Vec::new()
    }

    /// The place of its data: the argument, and the options that select a place. Back ends of one kind with
    /// equal places have the same data.
    fn place(&self) -> String {
        self.argument()
    }

    /// Its member volumes, in the order of the specification.
    fn members(&self) -> &[Spec] {
        &[]
    }

    /// Its logical block length, if known before it is opened.
    fn logical_block(&self) -> Option<BlockSize> {
        self.members().first()?.logical_block()
    }

    /// Its file or block device.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// The file that is created if it is missing when opened for writing.
    fn makes_file(&self) -> Option<&Path> {
        None
    }

    /// Whether a specification requests that a missing file be created.
    fn orders_creation(&self) -> bool {
        self.members().iter().any(|member| member.orders_creation())
    }

    /// The identity that a specification requests for a volume without a saved one.
    fn which_identity(&self) -> Option<WhichIdentity> {
        self.members().iter().find_map(|member| member.which_identity())
    }

    /// Whether its data survives this process.
    fn keeps_data(&self) -> bool {
        self.members().iter().any(|member| member.keeps_data())
    }

    /// Whether unflushed acknowledged writes certainly survive this process: the kernel or a disk of this
    /// machine has them.
    fn cache_outlives_process(&self) -> bool {
        !self.members().is_empty() && self.members().iter().all(|member| member.cache_outlives_process())
    }

    /// Whether it injects faults through [`Opening::faults`].
    fn has_fault_layer(&self) -> bool {
        self.members().iter().any(|member| member.has_fault_layer())
    }

    /// Whether it is accessed over a network, through sessions bound to the reactor that opens it.
    fn is_remote(&self) -> bool {
        self.members().iter().any(|member| member.is_remote())
    }

    /// Whether opening it takes longer than the first poll, or leaves tasks on the reactor that opens it.
    fn opens_later(&self) -> bool {
        self.is_remote() || self.members().iter().any(|member| member.opens_later())
    }

    /// Opens it, and its members with [`Spec::open`].
    ///
    /// # Errors
    /// A human-readable reason that it cannot be used.
    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a>;
}

/// A device being opened. Unless it [opens later](Backend::opens_later) it is open at the first poll.
pub type Opened<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn BlockDevice>, OpenError>> + 'a>>;

/// Why a device cannot be opened.
pub type OpenError = Box<dyn Error + Send + Sync>;

/// The environment in which back ends are opened.
#[derive(Clone)]
pub struct Opening {
    /// Nothing is written, and no file is created.
    pub read_only: bool,
    /// The user addresses bytes and respects [`BlockDevice::length_bytes`]: a device may end within its last
    /// block. Otherwise such a device is refused, since its end would be cut off.
    pub by_bytes: bool,
    /// Controls the faults of all `fault:` layers.
    pub faults: FaultControl,
    /// The clock of layers that need one.
    pub sleeper: Arc<dyn Sleeper>,
    /// Runs the background tasks of layers.
    pub spawner: Arc<dyn Spawner>,
    /// Which missing files are created.
    pub creation: Creation,
    /// Records created files.
    pub undo: Undo,
    /// Start time of a server, perhaps during boot: layers wait for members that are not available yet.
    /// `None` outside a server start.
    pub start: Option<Instant>,
    /// The registry of layers that accept commands or have statistics while in use.
    pub layers: Layers,
}

/// The layers of a volume that accept commands or have statistics while in use, from the outermost to the
/// innermost. [`Layers::of`] omits closed ones.
#[derive(Clone, Default)]
pub struct Layers(Arc<Mutex<Vec<Option<Layer>>>>);

type Layer = Weak<dyn Any + Send + Sync>;

impl Layers {
    /// Reserves the position of a layer being opened: before those of its members.
    pub fn place(&self) -> usize {
        let mut layers = self.lock();
        layers.push(None);
        layers.len() - 1
    }

    /// Registers the open layer at this position.
    pub fn put<T: Any + Send + Sync>(&self, place: usize, layer: &Arc<T>) {
        let layer: Arc<dyn Any + Send + Sync> = Arc::clone(layer) as _;
        let mut layers = self.lock();
        debug_assert!(place < layers.len(), "a layer has its place before it is open");
        if let Some(known) = layers.get_mut(place) {
            *known = Some(Arc::downgrade(&layer));
        }
    }

    /// The layers of this type.
    pub fn of<T: Any + Send + Sync>(&self) -> Vec<Arc<T>> {
        let open = self.lock().iter().flatten().filter_map(Weak::upgrade).collect::<Vec<_>>();
        open.into_iter().filter_map(|layer| layer.downcast().ok()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Layer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which missing files are created when a volume is opened for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// All files with a specified length.
    Free,
    /// Those whose creation the specification [requests](Backend::orders_creation).
    Ordered,
    /// None.
    Never,
}

/// Steps that undo what was created during an operation that may still fail. Dropping it undoes nothing.
#[derive(Clone, Default)]
pub struct Undo(Arc<Mutex<Vec<Step>>>);

type Step = Box<dyn FnOnce() + Send>;

impl Undo {
    /// Adds a step that undoes a creation.
    pub fn add(&self, step: impl FnOnce() + Send + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(step));
    }

    /// Discards the steps, in all clones: nothing will be undone. A lock held by a step is released.
    pub fn keep(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Undoes everything, in reverse order.
    pub fn take_back(&self) {
        let steps = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        steps.into_iter().rev().for_each(|step| step());
    }
}

// Figures for monitoring: metrics with their samples. A layer in use has a table of them.

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of durations by bucket.
    Histogram,
}

impl MetricKind {
    /// Its name in Prometheus's format.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// A metric: its name, and the common properties of its samples.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: MetricKind,
    /// The names of their labels.
    pub labels: &'static [&'static str],
    /// Its help text.
    pub help: &'static str,
}

/// A metric, and the source of its samples.
#[derive(Debug)]
pub struct Figure<S: 'static> {
    /// The metric.
    pub family: Family,
    /// Adds the samples of one instance, with the values of the last labels, which distinguish its samples.
    pub samples: fn(&S, &mut Add<'_>),
}

/// Takes the last labels of a sample, and its value.
pub type Add<'a> = dyn FnMut(&[&str], &dyn Display) + 'a;

/// A table of figures, in the order in which they are written: `KIND "name" ["label"] "help" => samples;` each.
#[macro_export]
macro_rules! figures {
    ($visibility:vis $table:ident of $source:ty:
     $($kind:ident $name:literal [$($label:literal),*] $help:literal => $samples:expr;)*) => {
        $visibility static $table: &[$crate::backend::Figure<$source>] = &[$($crate::backend::Figure {
            family: $crate::backend::Family {
                name: $name,
                kind: $crate::backend::MetricKind::$kind,
                labels: &[$($label),*],
                help: $help,
            },
            samples: $samples,
        }),*];
    };
}
