//! The state directory, which contains the state that must survive a restart. Only one server uses it at a
//! time, and that server locks the file `lock` in it. Each volume has a subdirectory `volumes/NAME`, which is
//! locked while the volume is served, so that two servers cannot give one identity to two disks. The
//! subdirectory contains:
//!
//! - `uuid`: the identity by which initiators recognise the volume.
//! - `unit`: the state of its logical unit (persistent reservations, saved mode pages).
//! - `lost`, if the volume ever lost acknowledged writes: a number that changes after each such loss.
//! - `spec` and `bytes`, if the storage of the volume is persistent: the specification and length with which
//!   it was served. They show that the volume was served before. A missing file is then not created, and a
//!   truncated file is distinguished from a file that must grow.
//! - `mark`, if the data of the volume had a mark: the mark with which it was served ([`Mark`]).
//!
//! The record of an earlier start determines which missing files are created, and with which length a file
//! that must grow is opened. The server also compares lengths with the record, so that it does not serve a
//! volume that has shrunk.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process;

use backends::raid::is_one_file;
use backends::{Failure, secrets};
use block::{DeviceError, Pending};
use host::StateDirectory;
use volume::backend::{Creation, OpenError, Undo};
use volume::spec::{Bytes, Spec};
use volume::{LossMark, PersistentState};

use crate::config::file::{ConfigFile, with_size};
use crate::config::values::{Uuid, VolumeName};
use crate::config::{FrontEnds, Volume};
use crate::difference::{growth, size};
use crate::identity::Mark;

/// The state directory. It exists, is writable, and belongs to this server until this value is dropped.
#[derive(Debug)]
pub(crate) struct ServerState {
    directory: PathBuf,
    /// The lock file. The lock is released when this value is dropped, or when the process ends.
    _lock: File,
}

/// The record of a volume in the state directory.
#[derive(Default)]
pub(crate) struct Kept {
    /// The volume's directory.
    pub(crate) folder: PathBuf,
    pub(crate) identity: Option<Uuid>,
    /// The mark of the data with which the volume was served.
    pub(crate) mark: Option<Mark>,
    /// The specification with which the volume was served.
    pub(crate) spec: Option<String>,
    /// The length with which the volume was served.
    pub(crate) bytes: Option<u64>,
}

impl Kept {
    /// Determines which missing files of the volume are created. If the volume was served before, these are
    /// only the files that the specification explicitly orders to be created, and only once.
    pub(crate) fn creation(&self, volume: &Volume) -> Creation {
        match (&self.spec, self.served_as()) {
            (None, _) => Creation::Free,
            (_, Some(before)) if before.orders_creation() && volume.spec.orders_creation() => {
                Creation::Never
            }
            _ => Creation::Ordered,
        }
    }

    /// If the volume must grow, returns its new length, and its current specification with the former length.
    pub(crate) fn growing(&self, volume: &Volume) -> Option<(Bytes, Spec)> {
        let before = self.served_as()?;
        let bytes = growth(&before, &volume.spec)?;
        debug_assert!(
            size(&before).is_some_and(|size| size.0 < bytes.0),
            "it becomes longer"
        );
        let former = with_size(&volume.spec.to_string(), size(&before)?)?;
        Some((bytes, backends::parse(&former).ok()?))
    }

    /// Refuses a smaller `size=` of a known store before the store is opened. After opening it would be too
    /// late: a RAID set would continue without that member.
    pub(crate) fn check_sizes(&self, volume: &Volume) -> Result<(), Failure> {
        let (Some(before), Some(bytes)) = (self.served_as(), self.bytes) else {
            return Ok(());
        };
        let (kept, now) = (stores(&before), stores(&volume.spec));
        let shrinks_by_order = volume.spec.cannot_shrink().is_none();
        // After an order to shrink, the recorded length is already the smaller length.
        let is_cut =
            |old: &Bytes, new: &Bytes| new.0 < old.0 && !(shrinks_by_order && new.0 >= bytes);
        let sizes = now.iter().filter_map(|store| {
            let former = kept.iter().find(|former| is_same(former, store))?;
            Some((size(former)?, size(store)?))
        });
        match sizes.into_iter().find(|(old, new)| is_cut(old, new)) {
            Some((old, new)) => Err(self.cut(volume, old, new)),
            None => Ok(()),
        }
    }

    /// Refuses a volume that has shrunk without an order to shrink it, if it still has one of its former
    /// stores.
    pub(crate) fn check_length(&self, volume: &Volume, bytes: u64) -> Result<(), Failure> {
        let (Some(kept), Some(before)) = (self.served_as(), self.bytes) else {
            return Ok(());
        };
        match bytes < before && have_common_store(&kept, &volume.spec) {
            true => Err(self.cut(volume, Bytes(before), Bytes(bytes))),
            false => Ok(()),
        }
    }

    fn cut(&self, volume: &Volume, before: Bytes, bytes: Bytes) -> Failure {
        let (name, kept) = (&volume.name, self.folder.join(BYTES));
        // This remedy applies to every kind of store, including data that is stored outside this server.
        let mut why = format!(
            "it was served with {before}, and would be shrunk to {bytes}: restore its former size, or, if it \
             was shrunk on purpose and the data after {bytes} is not needed, remove {}, which contains the \
             former size",
            kept.display()
        );
        if size(&volume.spec).is_some() && volume.spec.file().is_some() {
            let resize = format!("linerate server resize {name} {bytes} --shrink");
            why += &format!("; while it is served, `{resize}` checks for data first");
        }
        Failure::refused(why)
    }

    /// Whether hosts may already know this volume as a disk.
    pub(crate) fn has_disk(&self) -> bool {
        self.identity.is_some() || self.mark.is_some()
    }

    /// Whether the volume was last served with one of these stores.
    pub(crate) fn has_store_of(&self, spec: &Spec) -> bool {
        self.served_as()
            .is_some_and(|before| have_common_store(&before, spec))
    }

    /// Whether the volume was last served with exactly these stores.
    pub(crate) fn has_stores_of(&self, spec: &Spec) -> bool {
        let Some(before) = self.served_as() else {
            return false;
        };
        let (before, now) = (stores(&before), stores(spec));
        let are_in = |some: &[&Spec], all: &[&Spec]| {
            some.iter()
                .all(|one| all.iter().any(|other| is_same(one, other)))
        };
        are_in(&before, &now) && are_in(&now, &before)
    }

    /// The specification with which the volume was last served, for an error message.
    pub(crate) fn served_from(&self) -> String {
        let from = |spec: &String| format!(", last served from {}", secrets::masked(spec));
        self.spec.as_ref().map(from).unwrap_or_default()
    }

    /// Explains an error that occurred when the volume's storage was opened. A missing file may belong to
    /// another disk that was given the name of this volume.
    pub(crate) fn explain(&self, volume: &Volume, error: OpenError) -> OpenError {
        let is_missing = matches!(
            error.downcast_ref(),
            Some(host::OpenError::Missing { .. } | host::OpenError::OrderUsed { .. })
        );
        match &self.spec {
            Some(before) if is_missing && !self.has_store_of(&volume.spec) => format!(
                "{error}. Volume {} was last served from {}: use another volume name for another disk",
                volume.name,
                secrets::masked(before)
            )
            .into(),
            _ => error,
        }
    }

    /// Returns the usable records in a state directory, with the names of their volumes.
    pub(crate) fn all(directory: &Path) -> Vec<(String, Kept)> {
        let folders = fs::read_dir(directory.join("volumes"))
            .into_iter()
            .flatten()
            .flatten();
        let read = |folder: fs::DirEntry| {
            Some((
                folder.file_name().into_string().ok()?,
                Kept::read(folder.path()).ok()?,
            ))
        };
        folders.filter_map(read).collect()
    }

    fn read(folder: PathBuf) -> Result<Kept, StateError> {
        let read = |name| match fs::read_to_string(folder.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read
                .map(Some)
                .map_err(|error| StateError::Io("read", folder.join(name), error)),
        };
        let identity = read(UUID)?.and_then(|text| text.trim().parse().ok());
        let mark = read(MARK)?.and_then(|text| text.parse().ok());
        let (spec, bytes) = (
            read(SPEC)?,
            read(BYTES)?.and_then(|text| text.trim().parse().ok()),
        );
        Ok(Kept {
            identity,
            mark,
            spec,
            bytes,
            folder,
        })
    }

    /// The specification with which the volume was served, if it can still be parsed.
    pub(crate) fn served_as(&self) -> Option<Spec> {
        backends::parse(self.spec.as_deref()?).ok()
    }
}

/// Returns the stores of a specification, below all its layers.
fn stores(spec: &Spec) -> Vec<&Spec> {
    match spec.backend.members() {
        [] => vec![spec],
        members => members.iter().flat_map(stores).collect(),
    }
}

/// Whether both specifications have data in the same store.
pub(crate) fn have_common_store(one: &Spec, other: &Spec) -> bool {
    let others = stores(other);
    stores(one)
        .iter()
        .any(|one| others.iter().any(|other| is_same(one, other)))
}

/// Whether both specifications name the same store, regardless of size and options. Paths are compared by the
/// file that they resolve to; URLs and images are compared as text.
fn is_same(one: &Spec, other: &Spec) -> bool {
    let (one, other) = (one.backend(), other.backend());
    let is_one_place = match (one.path(), other.path()) {
        (Some(one), Some(other)) => is_one_file(one, other),
        _ => one.place() == other.place(),
    };
    one.keeps_data() && one.kind().name == other.kind().name && is_one_place
}

/// A volume's directory, locked against other servers until it is dropped.
pub(crate) struct Folder {
    keep: StateDirectory,
    path: PathBuf,
}

/// The state of a volume's logical unit, in its directory.
pub(crate) struct UnitState {
    folder: Folder,
    at_start: Option<Vec<u8>>,
    loss_mark: LossMark,
}

/// The reason why a volume's state is unavailable.
#[derive(Debug)]
pub enum StateError {
    /// Neither an argument nor the environment specifies a directory.
    NoPlace,
    /// Another server uses the directory. The number is the process ID of that server, if known.
    Held(PathBuf, Option<u32>),
    /// This server still has the volume open, so no other volume can use its directory.
    StillOpen(VolumeName),
    /// The UUID file does not contain a valid UUID.
    Damaged(PathBuf),
    /// An error of the operating system.
    Io(&'static str, PathBuf, io::Error),
}

impl std::error::Error for StateError {}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateError::NoPlace => f.write_str(
                "there is no state directory, because HOME is not set; choose one with --state",
            ),
            StateError::Held(directory, pid) => {
                let process = pid.map_or(String::new(), |pid| format!(" (process {pid})"));
                write!(
                    f,
                    "the state directory {} is in use by another server{process}; stop that server, or use --state",
                    directory.display()
                )
            }
            StateError::StillOpen(volume) => write!(
                f,
                "volume {volume} is still open in this server: its commands have not completed, or its device is unresponsive; run `linerate server reload` once they have completed"
            ),
            StateError::Damaged(path) => {
                write!(
                    f,
                    "{} does not contain a UUID; restore it, or remove it to give the volume a new identity",
                    path.display()
                )
            }
            StateError::Io(what, path, error) => {
                write!(
                    f,
                    "cannot {what} {}: {error}; check --state",
                    path.display()
                )
            }
        }
    }
}

const UUID: &str = "uuid";
const UNIT: &str = "unit";
const LOST: &str = "lost";
pub(crate) const SPEC: &str = "spec";
const BYTES: &str = "bytes";
pub(crate) const MARK: &str = "mark";
/// The lock file of the server that uses the directory; it contains the process ID.
const LOCK: &str = "lock";

impl ServerState {
    /// Creates the directory if it does not exist, accessible only by its owner, and locks it for this
    /// process.
    pub(crate) fn open(directory: &Path, undo: &Undo) -> Result<ServerState, StateError> {
        use std::os::unix::fs::DirBuilderExt;
        let volumes = directory.join("volumes");
        let mut missing: Vec<PathBuf> = volumes
            .ancestors()
            .take_while(|path| !path.exists())
            .map(Path::to_owned)
            .collect();
        missing.reverse();
        // `remove_dir` keeps a directory to which another program has added files.
        missing
            .into_iter()
            .for_each(|path| undo.add(move || drop(fs::remove_dir(path))));
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&volumes);
        made.map_err(|error| {
            StateError::Io("create the state directory", directory.to_owned(), error)
        })?;
        let lock = take(directory, undo)?;
        Ok(ServerState {
            directory: directory.to_owned(),
            _lock: lock,
        })
    }

    /// Checks that no server uses this directory. Creates and changes nothing.
    ///
    /// # Errors
    /// [`StateError::Held`], or the lock file cannot be read.
    pub(crate) fn look(directory: &Path) -> Result<(), StateError> {
        let path = directory.join(LOCK);
        match File::open(&path) {
            Ok(lock) => lock
                .try_lock_shared()
                .map_err(|error| held(error, directory)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StateError::Io("read", path, error)),
        }
    }

    /// Reads the record of a volume in this directory, which another server may be using. Changes nothing.
    ///
    /// # Errors
    /// The record is damaged or cannot be read.
    pub(crate) fn kept_of(directory: &Path, volume: &Volume) -> Result<Kept, StateError> {
        let folder = |name: &VolumeName| directory.join("volumes").join(name.as_str());
        let previous = volume.previous_name.as_ref().map(folder);
        let own = folder(&volume.name);
        let folder = if own.exists() {
            own
        } else {
            previous.unwrap_or(own)
        };
        let kept = Kept::read(folder)?;
        let uuid = kept.folder.join(UUID);
        match volume.uuid.is_none() && kept.identity.is_none() && uuid.exists() {
            true => Err(StateError::Damaged(uuid)),
            false => Ok(kept),
        }
    }

    /// The path of the directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Locks and returns a volume's directory. A directory under the volume's previous name is renamed,
    /// unless a directory under its current name exists: `previous-name` may stay in the configuration after
    /// the rename.
    pub(crate) fn folder(&self, volume: &Volume, undo: &Undo) -> Result<Folder, StateError> {
        let path = self.path_of(&volume.name);
        if let Some(previous) = volume.previous_name.as_ref().filter(|_| !path.exists()) {
            self.rename(previous, &path, undo)?;
        }
        if !path.exists() {
            let path = path.clone();
            undo.add(move || drop(fs::remove_dir_all(path)));
        }
        self.take(&volume.name)
    }

    fn rename(&self, previous: &VolumeName, path: &Path, undo: &Undo) -> Result<(), StateError> {
        let from = self.path_of(previous);
        if !from.exists() {
            return Ok(());
        }
        let _held = self.take(previous)?;
        fs::rename(&from, path).map_err(|error| StateError::Io("rename", from.clone(), error))?;
        let path = path.to_owned();
        undo.add(move || drop(fs::rename(path, from)));
        Ok(())
    }

    fn take(&self, name: &VolumeName) -> Result<Folder, StateError> {
        let path = self.path_of(name);
        match StateDirectory::open(&path) {
            Ok(keep) => Ok(Folder { keep, path }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(StateError::StillOpen(name.clone()))
            }
            Err(error) => Err(StateError::Io("open", path, error)),
        }
    }

    /// Whether there is a record under this name.
    pub(crate) fn keeps(&self, volume: &VolumeName) -> bool {
        self.path_of(volume).exists()
    }

    fn path_of(&self, volume: &VolumeName) -> PathBuf {
        debug_assert!(!volume.as_str().starts_with('.'), "no name leads elsewhere");
        self.directory.join("volumes").join(volume.as_str())
    }
}

/// Locks a state directory for this process.
fn take(directory: &Path, undo: &Undo) -> Result<File, StateError> {
    let path = directory.join(LOCK);
    let failed = |error| StateError::Io("lock", path.clone(), error);
    let is_new = !path.exists();
    let mut lock = loop {
        let open = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let lock = open.map_err(failed)?;
        lock.try_lock().map_err(|error| held(error, directory))?;
        // A failed start may have removed the file in the meantime.
        if lock.metadata().map_err(failed)?.nlink() > 0 {
            break lock;
        }
    };
    // This is undone last, so that until then no other server can use the directory.
    let (held, place) = (lock.try_clone().map_err(failed)?, path.clone());
    undo.add(move || {
        if is_new {
            drop(fs::remove_file(place));
        }
        drop(held);
    });
    if let Err(error) = lock
        .set_len(0)
        .and_then(|()| writeln!(lock, "{}", process::id()))
    {
        // The process ID is used only in messages, so a full file system must not prevent a start.
        tracing::warn!(path = %path.display(), %error, "cannot record the process ID in the lock file");
    }
    Ok(lock)
}

/// Returns the error for a state directory that cannot be locked.
fn held(error: TryLockError, directory: &Path) -> StateError {
    let path = directory.join(LOCK);
    match error {
        TryLockError::WouldBlock => {
            let pid = fs::read_to_string(path)
                .ok()
                .and_then(|text| text.trim().parse().ok());
            StateError::Held(directory.to_owned(), pid)
        }
        TryLockError::Error(error) => StateError::Io("lock", path, error),
    }
}

impl Folder {
    /// The recorded UUID of the volume, if there is one.
    pub(crate) fn identity(&self) -> Result<Option<Uuid>, StateError> {
        let Some(kept) = self.load(UUID)? else {
            return Ok(None);
        };
        let uuid = std::str::from_utf8(&kept)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        uuid.ok_or_else(|| StateError::Damaged(self.path.join(UUID)))
            .map(Some)
    }

    /// Records the UUID `known`, or a new one, for data that still has the mark `mark`. The mark is recorded
    /// first, so that the next start recognises the data by this mark if the server ends before it has
    /// written the new mark to the data.
    pub(crate) fn keep_identity(
        &self,
        known: Option<Uuid>,
        mark: Option<&Mark>,
        undo: &Undo,
    ) -> Result<Uuid, StateError> {
        if mark.is_some() {
            self.keep_mark(mark, undo)?;
        }
        let failed = |error| StateError::Io("write", self.path.join(UUID), error);
        let mut random = [0; 16];
        getrandom::fill(&mut random)
            .map_err(|error| failed(io::Error::other(error.to_string())))?;
        let uuid = known.unwrap_or_else(|| Uuid::from_random(random));
        self.keep
            .save_at_start(UUID, format!("{uuid}\n").as_bytes())
            .map_err(failed)?;
        Ok(uuid)
    }

    /// Records the specification and length with which the volume is served; `undo` restores the former
    /// record.
    pub(crate) fn keep_served(
        &self,
        spec: &str,
        bytes: u64,
        undo: &Undo,
    ) -> Result<(), StateError> {
        self.keep(BYTES, format!("{bytes}\n").as_bytes(), undo)?;
        self.keep(SPEC, spec.as_bytes(), undo)
    }

    /// Records the mark of the data with which the volume is served; `undo` restores the former mark.
    pub(crate) fn keep_mark(&self, mark: Option<&Mark>, undo: &Undo) -> Result<(), StateError> {
        match mark {
            Some(mark) => self.keep(MARK, format!("{mark}\n").as_bytes(), undo),
            None if self.load(MARK)?.is_none() => Ok(()),
            None => self.keep(MARK, b"", undo),
        }
    }

    fn keep(&self, name: &str, value: &[u8], undo: &Undo) -> Result<(), StateError> {
        if self.load(name)?.as_deref() == Some(value) {
            return Ok(());
        }
        let failed = |error| StateError::Io("write", self.path.join(name), error);
        let restore = self.keep.restore(name).map_err(failed)?;
        undo.add(move || drop(restore()));
        self.keep.save_at_start(name, value).map_err(failed)
    }

    /// Returns the state of the volume's logical unit, which owns the locked directory from now on.
    pub(crate) fn unit(self) -> Result<UnitState, StateError> {
        let (at_start, lost) = (self.load(UNIT)?, self.load(LOST)?);
        // Linerate never truncates this file. Content of another length is still a valid mark.
        let mut loss_mark = LossMark::default();
        loss_mark
            .iter_mut()
            .zip(lost.into_iter().flatten())
            .for_each(|(byte, kept)| *byte = kept);
        Ok(UnitState {
            folder: self,
            at_start,
            loss_mark,
        })
    }

    /// The path of the logical unit's state.
    pub(crate) fn unit_path(&self) -> PathBuf {
        self.path.join(UNIT)
    }

    fn load(&self, name: &str) -> Result<Option<Vec<u8>>, StateError> {
        self.keep
            .load_at_start(name)
            .map_err(|error| StateError::Io("read", self.path.join(name), error))
    }
}

impl PersistentState for UnitState {
    fn save<'a>(&'a self, bytes: Vec<u8>) -> Pending<'a, ()> {
        Box::pin(self.replace(UNIT, bytes, "cannot save reservations"))
    }

    fn load(&self) -> Option<Vec<u8>> {
        self.at_start.clone()
    }

    fn loss_mark(&self) -> LossMark {
        self.loss_mark
    }

    fn new_loss_mark(&self) -> LossMark {
        let mut mark = LossMark::default();
        getrandom::fill(&mut mark).expect("the system has random numbers once it has started");
        mark
    }

    fn record_loss(&self, mark: LossMark) -> Pending<'_, ()> {
        Box::pin(self.replace(
            LOST,
            mark.to_vec(),
            "cannot record a loss of writes for the next start",
        ))
    }
}

impl UnitState {
    /// Moves the state to the directory of a volume with this name, which must not exist yet.
    pub(crate) async fn rename(&self, state: &ServerState, to: &VolumeName) -> io::Result<()> {
        self.folder.keep.rename(state.path_of(to)).await
    }

    /// Records the specification and length with which the volume is served.
    pub(crate) async fn keep_served(&self, spec: String, bytes: u64) -> io::Result<()> {
        self.keep_bytes(bytes).await?;
        self.keep_spec(spec).await
    }

    /// Records the specification with which the volume is served.
    pub(crate) async fn keep_spec(&self, spec: String) -> io::Result<()> {
        self.folder.keep.save(SPEC, spec.into_bytes()).await
    }

    /// Records the length that the volume must have.
    pub(crate) async fn keep_bytes(&self, bytes: u64) -> io::Result<()> {
        self.folder
            .keep
            .save(BYTES, format!("{bytes}\n").into_bytes())
            .await
    }

    async fn replace(
        &self,
        name: &str,
        bytes: Vec<u8>,
        consequence: &str,
    ) -> Result<(), DeviceError> {
        let Err(error) = self.folder.keep.save(name, bytes).await else {
            return Ok(());
        };
        tracing::error!(path = %self.folder.keep.path().join(name).display(), %error, "{consequence}");
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Err(DeviceError::NoSpace),
            _ => Err(DeviceError::NotReady),
        }
    }
}

/// The default state directory: `/var/lib/linerate` for root, `$XDG_STATE_HOME/linerate` or
/// `~/.local/state/linerate` for others.
pub fn usual_directory() -> Result<PathBuf, StateError> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    place(is_root(), variable("XDG_STATE_HOME"), variable("HOME")).ok_or(StateError::NoPlace)
}

fn place(root: bool, state_home: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    match (root, state_home, home) {
        (true, ..) => Some(PathBuf::from("/var/lib/linerate")),
        // The base directory specification requires relative paths to be ignored.
        (false, Some(state), _) if state.is_absolute() => Some(state.join("linerate")),
        (false, _, home) => home.map(|home| home.join(".local/state/linerate")),
    }
}

/// The directory for files that do not survive a reboot: `/run/linerate` for root,
/// `$XDG_RUNTIME_DIR/linerate` for others, or within the state directory.
pub fn runtime_directory() -> Result<PathBuf, StateError> {
    if is_root() {
        return Ok(PathBuf::from("/run/linerate"));
    }
    let variable = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    match variable {
        Some(directory) => Ok(directory.join("linerate")),
        None => usual_directory().map(|directory| directory.join("run")),
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    // /proc/self belongs to the effective user. The standard library has no function that returns this user.
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// Returns the control socket of a server: `named` if specified, else the socket in its configuration file,
/// else the default.
///
/// # Errors
/// The file cannot be read, or is not TOML. The other keys of the file are not checked.
pub fn control_socket(named: Option<&Path>, config: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    let [control, state] = config.map_or(Ok([None, None]), places)?;
    let state = state
        .map_or_else(usual_directory, Ok)
        .map_err(Failure::refused);
    control.map_or_else(|| state.map(|directory| directory.join(CONTROL)), Ok)
}

/// Reads the keys `control` and `state` of a configuration file.
fn places(config: &Path) -> Result<[Option<PathBuf>; 2], Failure> {
    let file = ConfigFile::read(config, FrontEnds::default());
    file.and_then(|file| file.places())
        .map_err(Failure::refused)
}

/// The control socket's name within the state directory.
pub(crate) const CONTROL: &str = "control.sock";

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str) -> Volume {
        let spec = backends::parse("ram:1MiB").expect("a specification");
        Volume::new(name.parse().expect("a name"), spec)
    }

    fn state() -> (tempfile::TempDir, ServerState) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let state = opened(&directory.path().join("a/b")).expect("a state directory");
        (directory, state)
    }

    fn opened(directory: &Path) -> Result<ServerState, StateError> {
        ServerState::open(directory, &Undo::default())
    }

    fn folder(state: &ServerState, volume: &Volume) -> Result<Folder, StateError> {
        state.folder(volume, &Undo::default())
    }

    fn new_identity(folder: &Folder) -> Result<Uuid, StateError> {
        folder.keep_identity(None, None, &Undo::default())
    }

    fn identity(state: &ServerState, volume: &Volume) -> Uuid {
        let folder = folder(state, volume).expect("a folder");
        let kept = folder.identity().expect("no damage");
        volume
            .uuid
            .or(kept)
            .unwrap_or_else(|| new_identity(&folder).expect("kept"))
    }

    #[test]
    fn an_identity_survives_a_restart_and_is_nobody_elses() {
        let (_directory, state) = state();
        let (uuid, directory) = (
            identity(&state, &volume("vm1")),
            state.directory().to_owned(),
        );
        drop(state);
        let again = opened(&directory).expect("again");
        assert_eq!(identity(&again, &volume("vm1")), uuid);
        assert_ne!(identity(&again, &volume("vm2")), uuid);
    }

    #[test]
    fn what_a_logical_unit_saves_is_there_after_a_restart() {
        let (_directory, state) = state();
        let unit = || {
            folder(&state, &volume("vm1"))
                .and_then(Folder::unit)
                .expect("a folder")
        };
        let first = unit();
        assert_eq!(first.load(), None);
        let world = host::Epoll::shared(host::EpollOptions::default()).expect("an epoll");
        reactor::block_on(world, first.save(b"reserved".to_vec())).expect("saved");
        drop(first);
        assert_eq!(unit().load(), Some(b"reserved".to_vec()));
    }

    #[test]
    fn an_identity_and_what_the_unit_keeps_move_with_a_rename() {
        let (_directory, state) = state();
        let uuid = identity(&state, &volume("old"));
        fs::write(state.directory().join("volumes/old/unit"), "kept").expect("reservations");
        let renamed = Volume {
            previous_name: Some("old".parse().expect("a name")),
            ..volume("new")
        };
        for _restart in 0..2 {
            assert_eq!(identity(&state, &renamed), uuid);
        }
        assert_eq!(
            fs::read_to_string(state.directory().join("volumes/new/unit")).expect("moved"),
            "kept"
        );
        assert_ne!(
            identity(&state, &volume("old")),
            uuid,
            "a new volume under the old name"
        );
    }

    #[test]
    fn a_volume_cannot_be_renamed_while_it_is_served() {
        let (_directory, state) = state();
        let _served = folder(&state, &volume("old")).expect("free");
        let renamed = Volume {
            previous_name: Some("old".parse().expect("a name")),
            ..volume("new")
        };
        assert!(matches!(
            folder(&state, &renamed),
            Err(StateError::StillOpen(_))
        ));
    }

    #[test]
    fn a_configured_uuid_goes_before_a_kept_one() {
        let (_directory, state) = state();
        identity(&state, &volume("vm1"));
        let uuid = Uuid([7; 16]);
        assert_eq!(
            identity(
                &state,
                &Volume {
                    uuid: Some(uuid),
                    ..volume("vm1")
                }
            ),
            uuid
        );
    }

    #[test]
    fn a_damaged_identity_is_not_silently_replaced() {
        let (_directory, state) = state();
        let folder = folder(&state, &volume("vm1")).expect("free");
        fs::write(state.directory().join("volumes/vm1/uuid"), "").expect("damage");
        let error = folder.identity().expect_err("damaged");
        assert!(
            error
                .to_string()
                .contains("uuid does not contain a UUID; restore it"),
            "{error}"
        );
    }

    #[test]
    fn a_volume_that_is_not_closed_yet_is_not_opened_again_and_no_other_server_is_blamed() {
        let (_directory, state) = state();
        let served = folder(&state, &volume("vm1")).expect("free");
        let error = folder(&state, &volume("vm1")).err().expect("taken");
        assert!(
            error
                .to_string()
                .starts_with("volume vm1 is still open in this server"),
            "{error}"
        );
        drop(served);
        folder(&state, &volume("vm1")).expect("free again");
    }

    #[test]
    fn a_directory_is_one_server_s_whose_process_is_named() {
        let (_directory, state) = state();
        let path = state.directory().to_owned();
        for refused in [opened(&path).map(drop), ServerState::look(&path)] {
            let error = refused.expect_err("taken").to_string();
            testkit::says(
                &error,
                &[&format!("by another server (process {})", process::id())],
            );
        }
        drop(state);
        ServerState::look(&path).expect("free again");
        opened(&path).expect("free again");
    }

    /// Regression: no server could start once the file system of the state directory was full.
    #[test]
    fn a_lock_file_that_cannot_contain_the_process_id_is_locked() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        // A device cannot be truncated.
        std::os::unix::fs::symlink("/dev/null", directory.path().join(LOCK)).expect("a link");
        let _state = opened(directory.path()).expect("a state directory");
        assert!(matches!(
            ServerState::look(directory.path()),
            Err(StateError::Held(_, None))
        ));
    }

    #[test]
    fn what_was_made_is_taken_back_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("a/b");
        let (first, second) = (Undo::default(), Undo::default());
        let state = ServerState::open(&path, &first).expect("a state directory");
        let made = |name, undo| {
            state
                .folder(&volume(name), undo)
                .and_then(|folder| new_identity(&folder))
        };
        made("old", &first).expect("an identity");
        let uuid = made("kept", &Undo::default()).expect("an identity");
        let renamed = Volume {
            previous_name: Some("kept".parse().expect("a name")),
            ..volume("new")
        };
        state.folder(&renamed, &second).map(drop).expect("free");
        second.take_back();
        assert_eq!(
            identity(&state, &volume("kept")),
            uuid,
            "its name is what it was"
        );
        first.take_back();
        assert!(!state.keeps(&"old".parse().expect("a name")));
        assert!(
            state.keeps(&"kept".parse().expect("a name")),
            "another start has made it"
        );
        fs::remove_dir_all(path.join("volumes")).expect("there");
        second.take_back();
        let state =
            ServerState::open(&directory.path().join("c/d"), &second).expect("a state directory");
        drop(state);
        second.take_back();
        assert!(!directory.path().join("c").exists());
    }

    #[test]
    fn a_configuration_says_where_the_control_socket_is() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let socket = |text: &str, named: Option<&str>| {
            fs::write(file.path(), text).expect("written");
            let socket = control_socket(named.map(Path::new), Some(file.path()));
            socket
                .map_err(|failure| failure.to_string())
                .map(|path| path.display().to_string())
        };
        assert_eq!(
            socket("state = \"/s\"", None).as_deref(),
            Ok("/s/control.sock")
        );
        assert_eq!(
            socket("state = \"/s\"\ncontrol = \"/c\"", None).as_deref(),
            Ok("/c")
        );
        assert_eq!(
            socket("control = \"/c\"", Some("/named")).as_deref(),
            Ok("/named")
        );
        let wrong = socket("state = \"/s\"\ncontrol = = 3", None).expect_err("not TOML");
        assert!(wrong.contains(":2:11: invalid TOML: "), "{wrong}");
    }

    #[test]
    fn the_usual_place_depends_on_who_asks() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(
            place(true, path("/x"), path("/root")),
            path("/var/lib/linerate")
        );
        assert_eq!(
            place(false, path("/x"), path("/home/a")),
            path("/x/linerate")
        );
        assert_eq!(
            place(false, path("x"), path("/home/a")),
            path("/home/a/.local/state/linerate")
        );
        assert_eq!(place(false, None, None), None);
    }

    fn made_of(spec: &str) -> Volume {
        Volume::new(
            "v".parse().expect("a name"),
            backends::parse(spec).expect("a specification"),
        )
    }

    fn served(spec: &str, mib: u64) -> Kept {
        Kept {
            spec: Some(spec.to_owned()),
            bytes: Some(mib << 20),
            ..Kept::default()
        }
    }

    /// Regression: any two LUNs counted as one store, since neither has a path, and only the first member of
    /// a set was compared.
    #[test]
    fn a_volume_has_become_smaller_if_it_has_a_store_of_before() {
        for (before, now, is_refused) in [
            (
                "iscsi://san1/iqn.2026-01.com.example:a/0",
                "iscsi://san1/iqn.2026-01.com.example:a/0",
                true,
            ),
            (
                "iscsi://san1/iqn.2026-01.com.example:a/0",
                "iscsi://san1/iqn.2026-01.com.example:a/1",
                false,
            ),
            ("nbd://san1/a", "delay:1ms:[nbd://san1/a]", true),
            ("nbd://san1/a", "nbd://san1/b", false),
            ("raid1:[file:/a,file:/b]", "raid1:[file:/c,file:/b]", true),
            ("raid1:[file:/a,file:/b]", "raid1:[file:/c,file:/d]", false),
            (
                "raid1:[ram:2MiB,file:/b]",
                "raid1:[ram:2MiB,file:/d]",
                false,
            ),
            ("file:/a?direct", "file:/a?size=1MiB", true),
            ("file:/a/b", "file:/a//./b", true),
            ("file:/proc/self/mounts", "file:/proc/mounts", true),
        ] {
            let refused = served(before, 2).check_length(&made_of(now), 1 << 20);
            assert_eq!(refused.is_err(), is_refused, "{before} {now}");
            assert!(
                served(before, 2)
                    .check_length(&made_of(now), 2 << 20)
                    .is_ok(),
                "{before} {now}"
            );
        }
    }

    #[test]
    fn a_smaller_size_of_any_member_is_refused_before_it_is_opened() {
        let before = "raid1:[file:/a?size=2MiB,file:/b?size=2MiB]";
        for (now, is_refused) in [
            ("raid1:[file:/a?size=2MiB,file:/b?size=1MiB]", true),
            ("raid1:[file:/a?size=1MiB,file:/b?size=2MiB]", true),
            ("raid1:[file:/a?size=2MiB,file:/c?size=1MiB]", false),
            ("raid1:[file:/a?size=3MiB,file:/b?size=2MiB]", false),
        ] {
            assert_eq!(
                served(before, 1).check_sizes(&made_of(now)).is_err(),
                is_refused,
                "{now}"
            );
        }
        let shrunk = served("file:/a?size=2MiB", 1);
        assert!(
            shrunk.check_sizes(&made_of("file:/a?size=1MiB")).is_ok(),
            "by an order"
        );
    }
}
