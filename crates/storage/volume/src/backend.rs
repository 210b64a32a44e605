//! Back ends of volumes: stores, and layers over other volumes. Each has an `impl Backend` and a [`Kind`],
//! which is its entry in the table of a program's [`Grammar`](crate::spec::Grammar).

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

/// One kind of back end: its syntax, its help and its row in the documentation.
pub struct Kind {
    /// The prefix of specifications of this kind, without the colon.
    pub name: &'static str,
    /// The syntax, for the first column of the documentation.
    pub usage: &'static str,
    /// The description, for the second column of the documentation.
    pub about: &'static str,
    /// The location of its volumes' blocks.
    pub blocks: BlockPlaces,
    /// The options of this kind, in addition to those that exist for every volume.
    pub options: Options,
    /// Parses a specification, without opening anything.
    pub read: fn(&Written<'_>) -> Result<Arc<dyn Backend>, Problem>,
}

/// The location of a volume's blocks. If all layers have [`Below`](Self::Below), the file under them is
/// marked, grown and shrunk as if the file were the volume.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BlockPlaces {
    /// The volume is a store, which contains its blocks.
    Store,
    /// Each block is in the block with the same number of the single volume in brackets.
    Below,
    /// The blocks are at other positions in the volumes in brackets. The text is the reason why the volume
    /// cannot be shrunk, such as `a RAID set cannot be shrunk`.
    Elsewhere(&'static str),
}

/// The options of a kind.
pub enum Options {
    /// These options. Any other option is an error.
    Known(&'static [&'static str]),
    /// The keys of the kind's URLs.
    Url(&'static UrlKind),
}

/// The functions of a kind whose volumes are URLs of remote storage. The name of the kind is the scheme.
pub struct UrlKind {
    /// Whether URLs of this kind have this key. Messages mask the values of keys that no kind has.
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

/// The error because of which a peer is unreachable, if any.
pub type Asked<'a> = Pin<Box<dyn Future<Output = Option<OpenError>> + 'a>>;

/// Resolves when the sessions of a thread have been closed.
pub type Closed = Pin<Box<dyn Future<Output = ()>>>;

impl Kind {
    /// Returns the functions for URLs, if volumes of this kind are URLs.
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

/// A back end as specified. Its specification has been checked, but nothing has been opened.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Returns the kind of the back end.
    fn kind(&self) -> &'static Kind;

    /// Returns the text after the kind's colon, such as `1GiB` or `/data/vm1.img`. It may be empty.
    fn argument(&self) -> String;

    /// Returns the options that differ from the defaults, as `key=value` or `key`.
    fn options(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the location of the data: the argument, and the options that select a location. Back ends of
    /// one kind with equal locations have the same data.
    fn place(&self) -> String {
        self.argument()
    }

    /// Returns the member volumes, in the order of the specification.
    fn members(&self) -> &[Spec] {
        &[]
    }

    /// Returns the logical block size, if it is known before the back end is opened.
    fn logical_block(&self) -> Option<BlockSize> {
        self.members().first()?.logical_block()
    }

    /// Returns the back end's file or block device, if any.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Returns the file that is created if it is missing when the back end is opened for writing.
    fn makes_file(&self) -> Option<&Path> {
        None
    }

    /// Returns whether the specification requests that a missing file be created.
    fn orders_creation(&self) -> bool {
        self.members().iter().any(|member| member.orders_creation())
    }

    /// Returns the identity that the specification requests for a volume without a saved one.
    fn which_identity(&self) -> Option<WhichIdentity> {
        self.members()
            .iter()
            .find_map(|member| member.which_identity())
    }

    /// Returns whether the data survives this process.
    fn keeps_data(&self) -> bool {
        self.members().iter().any(|member| member.keeps_data())
    }

    /// Returns whether unflushed acknowledged writes certainly survive this process, because the kernel or a
    /// disk of this machine has the data.
    fn cache_outlives_process(&self) -> bool {
        !self.members().is_empty()
            && self
                .members()
                .iter()
                .all(|member| member.cache_outlives_process())
    }

    /// Returns whether there is a layer that injects faults through [`Opening::faults`].
    fn has_fault_layer(&self) -> bool {
        self.members().iter().any(|member| member.has_fault_layer())
    }

    /// Returns whether the volume is accessed over a network, through sessions that are bound to the reactor
    /// that opens it.
    fn is_remote(&self) -> bool {
        self.members().iter().any(|member| member.is_remote())
    }

    /// Returns whether opening the volume takes longer than the first poll, or leaves tasks on the reactor
    /// that opens it.
    fn opens_later(&self) -> bool {
        self.is_remote() || self.members().iter().any(|member| member.opens_later())
    }

    /// Opens the back end. Opens its members with [`Spec::open`].
    ///
    /// # Errors
    /// Returns a human-readable reason why the volume cannot be used.
    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a>;
}

/// A device that is being opened. Unless the back end [opens later](Backend::opens_later), the first poll
/// returns the device.
pub type Opened<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn BlockDevice>, OpenError>> + 'a>>;

/// The reason why a device cannot be opened.
pub type OpenError = Box<dyn Error + Send + Sync>;

/// The environment in which back ends are opened.
#[derive(Clone)]
pub struct Opening {
    /// Whether to open read-only: nothing is written, and no file is created.
    pub read_only: bool,
    /// Whether the user addresses bytes and respects [`BlockDevice::length_bytes`]. If so, a device may end
    /// within its last block. Otherwise such a device is refused, because the bytes at its end could not be
    /// accessed.
    pub by_bytes: bool,
    /// Controls the faults of all `fault:` layers.
    pub faults: FaultControl,
    /// The clock of layers that need one.
    pub sleeper: Arc<dyn Sleeper>,
    /// Runs the background tasks of layers.
    pub spawner: Arc<dyn Spawner>,
    /// The missing files to create.
    pub creation: Creation,
    /// Records created files.
    pub undo: Undo,
    /// The start time of a server, which may be during boot, so layers wait for members that are not
    /// available yet. `None` if this is not the start of a server.
    pub start: Option<Instant>,
    /// The registry of layers that accept commands or have statistics while in use.
    pub layers: Layers,
}

/// The layers of a volume that accept commands or have statistics while they are in use, from the outermost
/// to the innermost. [`Layers::of`] omits closed layers.
#[derive(Clone, Default)]
pub struct Layers(Arc<Mutex<Vec<Option<Layer>>>>);

type Layer = Weak<dyn Any + Send + Sync>;

impl Layers {
    /// Reserves the position of a layer that is being opened, before the positions of its members' layers.
    pub fn place(&self) -> usize {
        let mut layers = self.lock();
        layers.push(None);
        layers.len() - 1
    }

    /// Registers the open layer at this position.
    pub fn put<T: Any + Send + Sync>(&self, place: usize, layer: &Arc<T>) {
        let layer: Arc<dyn Any + Send + Sync> = Arc::clone(layer) as _;
        let mut layers = self.lock();
        debug_assert!(
            place < layers.len(),
            "a layer has its place before it is open"
        );
        if let Some(known) = layers.get_mut(place) {
            *known = Some(Arc::downgrade(&layer));
        }
    }

    /// Returns the open layers of this type.
    pub fn of<T: Any + Send + Sync>(&self) -> Vec<Arc<T>> {
        let open = self
            .lock()
            .iter()
            .flatten()
            .filter_map(Weak::upgrade)
            .collect::<Vec<_>>();
        open.into_iter()
            .filter_map(|layer| layer.downcast().ok())
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Layer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The missing files that are created when a volume is opened for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// All files with a specified length.
    Free,
    /// Files whose creation the specification [requests](Backend::orders_creation).
    Ordered,
    /// No files.
    Never,
}

/// Steps that undo the creations of an operation that may still fail. Dropping this undoes nothing.
#[derive(Clone, Default)]
pub struct Undo(Arc<Mutex<Vec<Step>>>);

type Step = Box<dyn FnOnce() + Send>;

impl Undo {
    /// Adds a step that undoes a creation.
    pub fn add(&self, step: impl FnOnce() + Send + 'static) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Box::new(step));
    }

    /// Discards the steps of all clones, so that nothing will be undone. If a step holds a lock, the lock is
    /// released.
    pub fn keep(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// Executes the steps in reverse order.
    pub fn take_back(&self) {
        let steps = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        steps.into_iter().rev().for_each(|step| step());
    }
}

// Figures for monitoring: metrics with their samples. A layer defines a table of figures.

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only increases.
    Counter,
    /// A value that increases and decreases.
    Gauge,
    /// Counts of durations, by bucket.
    Histogram,
}

impl MetricKind {
    /// Returns the name of the type in Prometheus's format.
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
    /// The name of the metric.
    pub name: &'static str,
    /// The type of the metric.
    pub kind: MetricKind,
    /// The names of the samples' labels.
    pub labels: &'static [&'static str],
    /// The help text of the metric.
    pub help: &'static str,
}

/// A metric, and the source of its samples.
#[derive(Debug)]
pub struct Figure<S: 'static> {
    /// The metric.
    pub family: Family,
    /// Adds the samples of one instance. Each has the values of the last labels, which distinguish the
    /// samples of an instance.
    pub samples: fn(&S, &mut Add<'_>),
}

/// Adds a sample, with the values of its last labels.
pub type Add<'a> = dyn FnMut(&[&str], &dyn Display) + 'a;

/// Defines a table of figures, in the given order. Each is written as `KIND "name" ["label"] "help" =>
/// samples;`.
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
