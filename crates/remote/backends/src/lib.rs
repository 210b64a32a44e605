//! Opens any storage by name. This crate has the table of all kinds of volumes, including those that need an
//! operating system or a network. It also parses URLs, looks up their secrets, and defines the errors of
//! storage commands. `linerate`, tests and other programs use it to open storage.
//!
//! Reading order:
//!
//! - [`GRAMMAR`] and [`open`]: from a specification to a device
//! - [`location`] - all names of storage on a command line: URLs, specifications and paths
//! - [`remote`] - sessions with a target
//! - [`peers`] - code shared by storage at peers
//! - [`secrets`], [`reservation`], [`failure`]
//!
//! This crate prints nothing and parses no arguments. Secrets come from files and the environment;
//! [`secrets::ask_by`] sets another source. [`secrets::mask_words`] sets the words of the command line that
//! messages must not repeat. [`peers::announce_waits_by`] sets the function that announces an unresponsive
//! peer.
//!
//! ```
//! use block::{Buffer, Extent};
//! use volume::backend::OpenError;
//!
//! let spec = backends::parse("512e:[ram:1MiB?block=4096]").expect("a specification");
//! let device = backends::open_local(&spec, &backends::opening())?;
//! assert_eq!(device.geometry().block_size.bytes(), 512);
//! let data = backends::remote::run(async { Ok(device.read(Extent::new(7, 1), Buffer::zeroed(512)).await) });
//! assert_eq!(&data.expect("a world").expect("memory")[..], [0; 512]);
//! # Ok::<(), OpenError>(())
//! ```
//!
//! # Adding a back end
//!
//! A store or a layer is a `static` of type `volume::backend::Kind`, an `impl Backend`, and an `impl BlockDevice` if it is a device;
//! `block::forward!` writes the methods that a layer passes on.
//!
//! 1. If it needs a system, a network or a secret, add a file here, its `mod`, and a row of `OWN`. A layer with a key belongs here: it
//!    reads the key by `secrets::read`. A layer that needs only volumes, a clock and tasks can be a section with an `impl Layer` in
//!    `storage/volume/src/backends.rs`, and a row of `ALL` there. The fuzz target then covers it. Every other layer implements `Backend`
//!    here. A device that is also used without a specification is a file of `storage/block/src`. An `impl Layer` has these limits:
//!    - It has the same number of blocks as its member, at the same positions (`Layered::read` and
//!      `Layered::open` assert this).
//!    - It has no statistics: `over` runs when the member is open, which is too late for `Layers::place`, and `volume` has no serde.
//!    - It has no state on its member to read before it opens: `over` is not asynchronous.
//! 2. Run the tests here: they write its row of `docs/volumes.md`, from its `usage` and `about`. Add rows for its options there.
//!    If it writes a magic number to its member, add that to `storage/disk_contents/src/signatures.rs`.
//! 3. Declare a new dependency in the crate's `Cargo.toml`, below a comment with its reason.
//! 4. A layer with statistics registers itself with `Opening::layers`. Its state is a row of the table in
//!    `layers.rs`, and has a table of `volume::figures!` in the layer's file. A test of `daemon` writes its
//!    rows of `docs/metrics.md`; others fail until `contrib/grafana` has its metrics, and
//!    `docs/schemas/volumes.schema.json` its JSON. The test of the schema serves a `raid1:` volume only: add
//!    one with the layer.
//!
//! `Kind` has the name, the grammar, the row of the document, and the positions of blocks in the members
//! (`BlockPlaces`). `volume::spec` parses the nesting and locates errors. `Kind::read` checks the text
//! without any access to storage. `Backend::open` is asynchronous and opens the members with `Spec::open`.
//!
//! All programs open volumes through this crate. It is in the directory `remote`, not in `storage`, because
//! some kinds of volumes are sessions with a target, and `storage` does not depend on the network. `copy` and
//! `attach` are in `remote` for the same reason.
//!
//! `Kind::blocks` determines whether a file may be marked, grown and shrunk as if it were the volume.
//!
//! A back end that `opens_later` has tasks or sessions. They run on the reactor that opens the back end: a
//! command's reactor, or one of a server's cores, chosen round-robin. A back end that `is_remote` has
//! sessions; requests from other cores are passed to the core that opened it. Opening must not block, so use
//! `reactor::resolve` to look up names.

pub mod aoe;
pub mod failure;
mod file;
pub mod hyperscsi;
pub mod layers;
pub mod location;
pub mod nbd;
pub mod peers;
pub mod raid;
mod ram;
mod rbd;
pub mod remote;
pub mod reservation;
pub mod secrets;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use block::{BlockDevice, FaultControl, SingleUser};
use host::{ReactorClock, ReactorTasks};
use volume::backend::{self, Creation, Layers, OpenError, Opening, Undo};
use volume::spec::{Grammar, Spec, SpecError};

pub use failure::{Failure, FailureKind};
pub use reservation::Overwritten;

/// All kinds of volumes, in the order of the document.
pub const GRAMMAR: Grammar = Grammar(&[OWN, volume::backends::ALL]);

/// The kinds that need an operating system, a network or a secret.
const OWN: &[&backend::Kind] = &[
    &ram::RAM,
    &file::FILE,
    &remote::ISCSI,
    &nbd::NBD,
    &nbd::NBDS,
    &nbd::NBD_UNIX,
    &nbd::NBDS_UNIX,
    &rbd::RBD,
    &aoe::AOE,
    &hyperscsi::HYPERSCSI,
    &hyperscsi::HYPERSCSI_UDP,
    &raid::RAID0,
    &raid::RAID1,
    &raid::RAID5,
    &raid::RAID6,
    &raid::RAID10,
];

/// Parses a volume specification, such as `512e:[ram:1MiB?block=4096]`.
///
/// # Errors
/// Returns the first error, with its position. The message contains no secrets.
pub fn parse(text: &str) -> Result<Spec, SpecError> {
    GRAMMAR
        .parse(text)
        .map_err(|error| error.masked(secrets::masked_url))
}

/// Opens the volume that `spec` describes, for one user.
///
/// # Errors
/// The volume cannot be used; a [`Failure`] if it is remote.
pub async fn open(spec: &Spec) -> Result<Arc<dyn BlockDevice>, OpenError> {
    Ok(Arc::new(SingleUser::new(spec.open(&opening()).await?)))
}

/// Like [`open`], for a caller that addresses bytes and respects [`BlockDevice::length_bytes`].
///
/// # Errors
/// Returns the same errors as [`open`].
pub async fn open_by_bytes(spec: &Spec) -> Result<Arc<dyn BlockDevice>, OpenError> {
    let opening = Opening {
        by_bytes: true,
        ..opening()
    };
    Ok(Arc::new(SingleUser::new(spec.open(&opening).await?)))
}

/// Like [`Spec::open`], but on a thread without a reactor, so the device must be open at the first poll.
/// Servers use it: the device is not restricted to one user, because a logical unit reports lost writes to
/// each of its users.
///
/// # Errors
/// Returns the same errors as [`open`]. Also fails if the volume [opens
/// later](backend::Backend::opens_later).
pub fn open_local(spec: &Spec, opening: &Opening) -> Result<Arc<dyn BlockDevice>, OpenError> {
    match pin!(spec.open(opening)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(opened) => opened,
        Poll::Pending => Err(format!("{spec} needs a reactor").into()),
    }
}

/// Returns the context for opening volumes: for writing, with the clock and the tasks of the reactor.
pub fn opening() -> Opening {
    Opening {
        read_only: false,
        by_bytes: false,
        faults: FaultControl::default(),
        sleeper: Arc::new(ReactorClock),
        spawner: Arc::new(ReactorTasks),
        creation: Creation::Free,
        undo: Undo::default(),
        start: None,
        layers: Layers::default(),
    }
}

/// Opens a volume for a test, for one user.
#[cfg(test)]
fn memory(text: &str) -> Arc<dyn BlockDevice> {
    let spec = parse(text).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(SingleUser::new(
        open_local(&spec, &opening()).expect("memory"),
    ))
}

#[cfg(test)]
mod tests;
