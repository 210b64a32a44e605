//! Checks that the data of a volume belongs to the identity of the volume. Hosts recognise a disk by its
//! identity, so a volume must not keep its identity when the configuration assigns other data to it.
//!
//! A served file has a mark: its volume's identity in an extended attribute. The mark distinguishes a disk
//! that hosts know from an image that is served for the first time. Only a regular file on a file system with
//! extended attributes can have a mark; a copy of the file has the mark only if the copy preserves
//! attributes. A RAID set has a UUID instead. The state directory records the mark with which each volume was
//! served ([`Mark`]). Other storage is identified only by its path or URL, which is compared with the
//! recorded specifications.
//!
//! [`check`] decides for a start, `--check`, a reload and an added volume. It refuses data with the mark of
//! another disk, and unmarked data at the path or URL of another volume. Unmarked data at an unknown path or
//! URL may be a copy of the disk: it is served, with a note.
//!
//! The cache generation changes whenever acknowledged but unflushed writes may have been lost between two
//! starts. If such writes are cached in the memory of this process, the generation changes at every start. If
//! they are cached in the page cache, it changes at every boot. It also changes when the page cache may have
//! been dropped, for example by an unmount that could not write everything back. A loss while the volume is
//! served has a separate mark ([`volume::Volume::loss_mark`]).
//!
//! The page cache is identified through sysfs. When a file system is mounted, the kernel creates entries for
//! it, and removes them when its last mount in any namespace is gone; their inode numbers are not reused.
//! Mount IDs would not work: a service with a private mount namespace has new IDs at each start although
//! nothing was lost. For ext4, XFS and F2FS, the entry is named after the device; for NFS and FUSE, it is
//! named after the device number. Other file systems (Btrfs, FAT, exFAT, NTFS, JFS, ZFS, CIFS, overlayfs)
//! have no such entry: their unmount is not detected. For a disk that is served directly, only its
//! replacement is detected.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;

use backends::{Failure, raid, secrets};
use block::BlockDevice;
use rustix::fs::{XattrFlags, getxattr, major, minor, removexattr, setxattr};
use sha2::{Digest, Sha256};
use volume::backend::{BlockPlaces, Layers, Undo};
use volume::spec::{Spec, WhichIdentity};

use crate::config::Volume;
use crate::config::values::Uuid;
use crate::state::{Kept, MARK, SPEC, have_common_store};
use crate::waiting::{answered, block_on};

pub(crate) const NAME: &str = "user.linerate.uuid";

/// The mark of a volume's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The identity in the extended attribute of its file.
    File(Uuid),
    /// The UUID of its RAID set.
    Set(String),
}

impl Mark {
    /// Returns the mark of a volume's file. The volume need not be open.
    pub(crate) fn of_file(spec: &Spec) -> Option<Mark> {
        spec.file().and_then(read_mark).map(Mark::File)
    }

    /// Returns the mark of an open volume with these layers.
    pub(crate) fn of(spec: &Spec, layers: &Layers) -> Option<Mark> {
        let set = || {
            raid::sets(layers)
                .first()
                .and_then(|set| set.status().uuid)
                .map(Mark::Set)
        };
        Mark::of_file(spec).or_else(set)
    }
}

/// The form in the state directory.
impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mark::File(uuid) => write!(f, "file {uuid}"),
            Mark::Set(uuid) => write!(f, "raid {uuid}"),
        }
    }
}

impl FromStr for Mark {
    type Err = ();

    fn from_str(text: &str) -> Result<Mark, ()> {
        match text.trim().split_once(' ') {
            Some(("file", uuid)) => uuid.parse().map(Mark::File).map_err(drop),
            Some(("raid", uuid)) => Ok(Mark::Set(uuid.to_owned())),
            _ => Err(()),
        }
    }
}

/// Checks that the data of a volume belongs to its identity, if it has one. Returns a note if only the
/// administrator can decide whether it does. `mark` is the mark of the volume's file, or of the open volume.
///
/// # Errors
/// Hosts know the data as another disk. Writes to the volume would destroy that disk.
pub(crate) fn check(
    volume: &Volume,
    kept: &Kept,
    known: &Known<'_>,
    mark: Option<&Mark>,
) -> Result<Option<String>, Failure> {
    let Some(identity) = volume.uuid.or(kept.identity) else {
        return Ok(None);
    };
    let is_set = !is_one_store(&volume.spec);
    if let Some(Mark::Set(set)) = &kept.mark
        && !is_set
        && kept.has_store_of(&volume.spec)
    {
        return Err(member_of(volume, kept, set));
    }
    // A RAID set may have lost some of its former stores, since members can be replaced.
    let is_own_place = || match is_set {
        true => kept.has_store_of(&volume.spec) && !matches!(kept.mark, Some(Mark::File(_))),
        false => kept.has_stores_of(&volume.spec),
    };
    match mark {
        Some(Mark::File(uuid)) if *uuid == identity => Ok(None),
        mark if mark.is_some() && mark == kept.mark.as_ref() => Ok(None),
        Some(Mark::File(uuid)) => {
            let is_ordered =
                volume.spec.which_identity() == Some(WhichIdentity::New) && !kept.has_disk();
            match is_ordered {
                true => Ok(None),
                false => Err(other_mark(volume, kept, known, identity, *uuid)),
            }
        }
        Some(Mark::Set(set)) => {
            let is_other_set = matches!(&kept.mark, Some(Mark::Set(_))) || !is_own_place();
            match known.other(volume, kept, &set_key(set)) {
                Some(other) => Err(other_place(
                    volume,
                    kept,
                    known,
                    &format!("the RAID set {set}"),
                    other,
                )),
                None => Ok(moved(volume, kept).filter(|_| is_other_set)),
            }
        }
        None if is_own_place() => Ok(unmarked(volume, kept)),
        None => match place_key(&volume.spec).and_then(|key| known.other(volume, kept, &key)) {
            Some(other) => {
                let place = secrets::masked(&volume.spec.to_string());
                Err(other_place(volume, kept, known, &place, other))
            }
            None => Ok(moved(volume, kept)),
        },
    }
}

/// Whether all blocks are at the same positions in one store, unlike in a RAID set.
fn is_one_store(spec: &Spec) -> bool {
    match (spec.backend.kind().blocks, spec.backend.members()) {
        (BlockPlaces::Store, _) => true,
        (BlockPlaces::Below, [inner, ..]) => is_one_store(inner),
        _ => false,
    }
}

/// Returns the error for a member of a RAID set without the set.
fn member_of(volume: &Volume, kept: &Kept, set: &str) -> Failure {
    let (name, place) = (&volume.name, secrets::masked(&volume.spec.to_string()));
    Failure::refused(format!(
        "{place} is a member of the RAID set {set}, but {name} is the whole set{}. Hosts would find other \
         data under its identity, and their writes would destroy the set: correct the specification. If \
         {place} is no longer a member and contains the data of {name}, stop the server and remove {}",
        kept.served_from(),
        kept.folder.join(MARK).display()
    ))
}

/// Returns the error for a file that is marked as another disk.
fn other_mark(
    volume: &Volume,
    kept: &Kept,
    known: &Known<'_>,
    identity: Uuid,
    uuid: Uuid,
) -> Failure {
    let (name, folder) = (&volume.name, kept.folder.display());
    let path = volume.spec.file().unwrap_or(Path::new("")).display();
    let (as_volume, itself) = match known.other(volume, kept, &disk_key(&uuid)) {
        Some(other) => (
            format!(" (volume {other} of this state directory)"),
            format!(
                "to serve it as that disk, name the volume {other}, or set `previous-name = \"{other}\"`"
            ),
        ),
        None => (
            String::new(),
            "to serve it as that disk, use a new volume name and add `identity=file` to the specification"
                .to_owned(),
        ),
    };
    let is_disk = match volume.uuid {
        Some(_) => format!("`uuid` makes {name} the disk {identity}"),
        None => format!(
            "{name} is the disk {identity} in the state directory {}",
            known.directory.display()
        ),
    };
    let new = match (volume.uuid, kept.has_disk()) {
        (None, _) => format!(
            "; to make {name} a new disk, stop the server, remove {folder}, and add `identity=new` to the \
             specification"
        ),
        (Some(_), false) => {
            "; if it is a copy with the original's mark, add `identity=new` to the specification"
                .to_owned()
        }
        (Some(_), true) => String::new(),
    };
    Failure::refused(format!(
        "{path} was served before as the disk {uuid}{as_volume}, but {is_disk}{}. Hosts would find other \
         data under that identity: correct the specification; {itself}; if hosts should treat the file as \
         the disk {identity}, remove its mark (setfattr -x {NAME} {path}){new}",
        kept.served_from()
    ))
}

/// Returns the error for unmarked storage that was served as another volume.
fn other_place(
    volume: &Volume,
    kept: &Kept,
    known: &Known<'_>,
    what: &str,
    other: &str,
) -> Failure {
    let (name, directory) = (&volume.name, known.directory.display());
    let remedy = match known.served_as(volume, other) {
        Some(served) if have_common_store(&served.spec, &volume.spec) => String::new(),
        Some(served) => format!(
            "; if the data of {} has moved, and this storage now contains the data of {name}, first start or \
             reload without {name}, to serve {0} from its new location",
            served.name
        ),
        None => {
            let record = known.directory.join("volumes").join(other);
            format!(
                "; if it now contains the data of {name}, stop the server and remove {} and {}: {other} \
                 keeps its identity and reservations",
                record.join(SPEC).display(),
                record.join(MARK).display()
            )
        }
    };
    Failure::refused(format!(
        "{what} was served before as volume {other}, but volume {name} is another disk in the state \
         directory {directory}{}. Hosts would find other data under the identity of {name}: correct the \
         specification; to serve the data as its former disk, name the volume {other}, or set \
         `previous-name = \"{other}\"`{remedy}",
        kept.served_from()
    ))
}

/// Returns the note on a volume whose data has no mark and is at another path or URL than before.
fn moved(volume: &Volume, kept: &Kept) -> Option<String> {
    // A missing file is created by an explicit order, or not at all.
    let is_there = volume.spec.path().is_none_or(Path::exists);
    let before = secrets::masked(kept.spec.as_deref().filter(|_| is_there)?);
    let (name, now) = (&volume.name, secrets::masked(&volume.spec.to_string()));
    Some(format!(
        "volume {name} was last served from {before}, and is now served from {now} with the same identity: \
         hosts treat it as the same disk, which is correct only if it has the same data; for another disk, \
         use another volume name"
    ))
}

/// Returns the note on a file at the recorded path whose mark is missing. There is no note if the file had no
/// mark before, as on a file system that cannot store marks.
fn unmarked(volume: &Volume, kept: &Kept) -> Option<String> {
    let path = volume.spec.file().filter(|path| path.exists())?;
    let Some(Mark::File(uuid)) = &kept.mark else {
        return None;
    };
    let (name, path) = (&volume.name, path.display());
    Some(format!(
        "{path} no longer has the mark of the disk {uuid}, with which volume {name} was last served. It may \
         be a copy without extended attributes, or another file, for example because a file system is not \
         mounted; hosts treat it as the same disk, which is correct only if it has the same data"
    ))
}

/// Logs the note of [`check`].
pub(crate) fn log_note(volume: &Volume, note: Option<&String>) {
    if let Some(note) = note {
        tracing::warn!(volume = %volume.name, "{note}");
    }
}

/// The volumes with a record in the state directory, by the data with which they were served. The records are
/// read when they are first needed.
pub(crate) struct Known<'a> {
    directory: &'a Path,
    /// The volumes of the configuration that is to be served.
    wanted: &'a [Volume],
    names: OnceLock<HashMap<String, Vec<String>>>,
}

impl Known<'_> {
    pub(crate) fn new<'a>(directory: &'a Path, wanted: &'a [Volume]) -> Known<'a> {
        Known {
            directory,
            wanted,
            names: OnceLock::new(),
        }
    }

    /// Returns the name of another volume that was served with the data of this key. `kept` is the record of
    /// `volume`.
    fn other(&self, volume: &Volume, kept: &Kept, key: &str) -> Option<&str> {
        let names = self.names.get_or_init(|| {
            let mut names: HashMap<String, Vec<String>> = HashMap::new();
            for (name, kept) in Kept::all(self.directory) {
                for key in keys(&kept) {
                    names.entry(key).or_default().push(name.clone());
                }
            }
            names
        });
        let own = kept.folder.file_name().unwrap_or_default();
        let is_other = |name: &&str| own != *name && volume.name.as_str() != *name;
        names.get(key)?.iter().map(String::as_str).find(is_other)
    }

    /// Returns the volume, other than `volume`, that has this record according to the configuration.
    fn served_as(&self, volume: &Volume, record: &str) -> Option<&Volume> {
        let is_its = |other: &&Volume| {
            let names = [Some(&other.name), other.previous_name.as_ref()];
            other.name != volume.name
                && names
                    .into_iter()
                    .flatten()
                    .any(|name| name.as_str() == record)
        };
        self.wanted.iter().find(is_its)
    }
}

/// Returns the keys of a record. Only data without a mark is identified by its path or URL.
fn keys(kept: &Kept) -> Vec<String> {
    let place = || kept.served_as().and_then(|spec| place_key(&spec));
    let (disk, other) = match &kept.mark {
        Some(Mark::File(uuid)) => (Some(*uuid), None),
        Some(Mark::Set(set)) => (None, Some(set_key(set))),
        None => (None, place()),
    };
    kept.identity
        .or(disk)
        .map(|uuid| disk_key(&uuid))
        .into_iter()
        .chain(other)
        .collect()
}

fn disk_key(uuid: &Uuid) -> String {
    format!("disk {uuid}")
}

fn set_key(uuid: &str) -> String {
    format!("raid {uuid}")
}

/// Returns the location of data that is in one store: a path that is the same for all names of a file, or a
/// URL or image.
fn place_key(spec: &Spec) -> Option<String> {
    match (spec.backend.kind().blocks, spec.backend.members()) {
        (BlockPlaces::Store, _) if !spec.keeps_data() => None,
        (BlockPlaces::Store, _) => {
            let place = match spec.backend.path() {
                Some(path) => path
                    .canonicalize()
                    .unwrap_or_else(|_| path.to_owned())
                    .display()
                    .to_string(),
                None => spec.backend.place(),
            };
            Some(format!("{} {place}", spec.backend.kind().name))
        }
        (BlockPlaces::Below, [inner, ..]) => place_key(inner),
        _ => None,
    }
}

/// Returns the identity, according to the mark of its file, of a volume that has no identity in the state
/// directory or the configuration; `None` for a new volume.
///
/// # Errors
/// The file was served before and has data, or is the disk of another volume. Hosts may know the disk, and
/// only the administrator can decide whether it is still the same disk.
pub(crate) fn marked(
    volume: &Volume,
    kept: &Kept,
    known: &Known<'_>,
    device: &dyn BlockDevice,
) -> Result<Option<Uuid>, Failure> {
    let (name, directory) = (&volume.name, known.directory.display());
    let marked = volume
        .spec
        .file()
        .and_then(|path| Some((path, read_mark(path)?)));
    // The volume was served under a `uuid` that was since removed from the configuration. If no specification
    // is recorded, no start was completed. The mark of a read-only file may differ from the identity.
    if let Some((_, uuid)) = marked
        && kept.mark == Some(Mark::File(uuid))
        && kept.served_as().is_some_and(|before| !before.is_readonly())
    {
        return Ok(Some(uuid));
    }
    let other = marked.and_then(|(_, uuid)| known.other(volume, kept, &disk_key(&uuid)));
    let found = || block_on(answered(disk_contents::contents(device)));
    match (marked, other, volume.spec.which_identity()) {
        (_, _, Some(WhichIdentity::New)) => Ok(None),
        (Some((path, uuid)), Some(other), _) => Err(Failure::refused(format!(
            "{} was served before, as the disk {uuid}, which is volume {other} in the state directory \
             {directory}: name the volume {other} again, or add `previous-name = \"{other}\"` to it in the \
             configuration file; if the file is a copy that hosts should treat as another disk, add \
             `identity=new` to the specification",
            path.display()
        ))),
        (Some((_, uuid)), None, Some(WhichIdentity::OfFile)) => Ok(Some(uuid)),
        (None, _, order) => {
            if let Ok(Some(found)) = found() {
                let other = place_key(&volume.spec).and_then(|key| known.other(volume, kept, &key));
                tracing::warn!(
                    volume = %name, %found, state = %directory, served_before_as = other,
                    "this volume has data and gets a new identity: hosts that used it before see a different \
                     disk; if the state directory was lost, stop the server and restore it, or set the \
                     volume's former `uuid`"
                );
            } else if order == Some(WhichIdentity::OfFile) {
                tracing::warn!(
                    volume = %name, state = %directory,
                    "this volume has `identity=file`, but no identity mark, and gets a new identity"
                );
            }
            Ok(None)
        }
        (Some((path, uuid)), None, None) => {
            let found = match found() {
                Ok(None) => return Ok(None),
                Ok(Some(found)) => found.to_string(),
                Err(error) => format!("data that cannot be read ({error})"),
            };
            Err(Failure::refused(format!(
                "{} has {found} and was served before, as the disk {uuid}, but the state directory \
                 {directory} has no record of it: if the directory was lost, restore it; otherwise add \
                 `identity=file` to the specification to serve the same disk without its reservations, or \
                 `identity=new` if hosts should treat it as another disk, for example a copy",
                path.display()
            )))
        }
    }
}

/// Marks the file of a volume with the identity under which it is served.
pub(crate) fn put_mark(volume: &Volume, uuid: Uuid, undo: &Undo) {
    let Some(path) = volume.spec.file().filter(|_| !volume.spec.is_readonly()) else {
        return;
    };
    let before = read_mark(path);
    if before == Some(uuid) || !fs::metadata(path).is_ok_and(|file| file.is_file()) {
        return;
    }
    let marked: PathBuf = path.to_owned();
    undo.add(move || {
        let _ = match before {
            Some(before) => write_mark(&marked, before),
            None => removexattr(&marked, NAME).map_err(io::Error::from),
        };
    });
    if let Err(error) = write_mark(path, uuid) {
        // Not an error: without a mark, the loss of the state directory only causes a warning.
        tracing::debug!(volume = %volume.name, %error, "cannot store the identity mark in the file");
    }
}

pub(crate) fn read_mark(path: &Path) -> Option<Uuid> {
    let mut text = [0; 64];
    let length = getxattr(path, NAME, &mut text[..]).ok()?;
    std::str::from_utf8(text.get(..length)?).ok()?.parse().ok()
}

/// Writes the mark and syncs the file. The mark must survive a power failure before it is recorded, because
/// the record may be on another file system.
fn write_mark(path: &Path, uuid: Uuid) -> io::Result<()> {
    setxattr(path, NAME, uuid.to_string().as_bytes(), XattrFlags::empty())?;
    fs::File::open(path)?.sync_all()
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const SYSFS: &str = "/sys";

/// Returns the cache generation of an open volume.
pub(crate) fn cache_generation(uuid: &Uuid, spec: &Spec) -> [u8; 16] {
    let mut generation = [0; 16];
    match fs::read(BOOT_ID) {
        Ok(boot) if spec.cache_outlives_process() => {
            let mut digest = Sha256::new_with_prefix(uuid.0).chain_update(boot);
            add_caches(spec, &mut digest);
            generation.copy_from_slice(&digest.finalize()[..16]);
        }
        _ => getrandom::fill(&mut generation)
            .expect("the system has random numbers once it has started"),
    }
    generation
}

/// Adds the page caches of all files of a specification.
fn add_caches(spec: &Spec, digest: &mut Sha256) {
    if let Some(path) = spec.backend.path() {
        // If the page cache cannot be identified, only a boot changes the generation.
        let signs = page_cache(Path::new(SYSFS), path).unwrap_or_default();
        digest.update(signs.len().to_be_bytes());
        signs
            .iter()
            .for_each(|sign| digest.update(sign.to_be_bytes()));
    }
    spec.backend
        .members()
        .iter()
        .for_each(|member| add_caches(member, digest));
}

/// Numbers that identify the page cache of this file or disk: two page caches differ in at least one number.
fn page_cache(sysfs: &Path, path: &Path) -> io::Result<Vec<u64>> {
    let file = fs::metadata(path)?;
    let is_disk = file.file_type().is_block_device();
    let device = if is_disk { file.rdev() } else { file.dev() };
    let number = format!("{}:{}", major(device), minor(device));
    let Ok(disk) = fs::canonicalize(sysfs.join("dev/block").join(&number)) else {
        // This is a file system without a disk, such as NFS.
        return Ok(vec![
            fs::metadata(sysfs.join("class/bdi").join(number))?.ino(),
        ]);
    };
    let mut signs = Vec::new();
    if let Some(name) = disk.file_name().filter(|_| !is_disk) {
        let systems = fs::read_dir(sysfs.join("fs"))?.filter_map(Result::ok);
        signs.extend(
            systems.filter_map(|system| Some(fs::metadata(system.path().join(name)).ok()?.ino())),
        );
        signs.sort_unstable();
    }
    // A partition has the sequence number of its disk.
    let whole = disk.parent().unwrap_or(&disk);
    let sequence = [disk.as_path(), whole]
        .into_iter()
        .find_map(|disk| fs::read_to_string(disk.join("diskseq")).ok());
    signs.extend(sequence.and_then(|text| text.trim().parse::<u64>().ok()));
    Ok(signs)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// A host with a file and a simulated sysfs for the file's file system.
    struct Machine {
        folder: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Machine {
            let machine = Machine {
                folder: tempfile::tempdir().expect("a temporary directory"),
            };
            fs::write(machine.path("image"), "").expect("a file");
            fs::create_dir_all(machine.path("sys/fs/tmpfs")).expect("a folder");
            machine
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// `MAJOR:MINOR` of the file system.
        fn number(&self) -> String {
            let device = fs::metadata(self.path("image")).expect("there").dev();
            format!("{}:{}", major(device), minor(device))
        }

        fn on_a_partition(self) -> Machine {
            fs::create_dir_all(self.path("sys/devices/sda/sda1")).expect("a folder");
            self.insert_disk(5);
            fs::create_dir_all(self.path("sys/dev/block")).expect("a folder");
            let link = self.path("sys/dev/block").join(self.number());
            symlink(self.path("sys/devices/sda/sda1"), link).expect("a link");
            self.mount("sys/fs/ext4/sda1");
            self
        }

        /// Simulates a mount: the kernel creates the entry with an unused inode number.
        fn mount(&self, entry: &str) {
            let entry = self.path(entry);
            let new = entry.with_extension("new");
            fs::create_dir_all(&new).expect("a folder");
            let _ = fs::remove_dir(&entry); // not mounted yet
            fs::rename(new, entry).expect("renamed");
        }

        fn insert_disk(&self, sequence: u64) {
            fs::write(
                self.path("sys/devices/sda/diskseq"),
                format!("{sequence}\n"),
            )
            .expect("written");
        }

        fn page_cache(&self) -> Vec<u64> {
            page_cache(&self.path("sys"), &self.path("image")).expect("there is a sign")
        }
    }

    /// Regression: the generation depended only on the boot. After an unmount that lost writes, a client
    /// assumed that the writes were still there.
    #[test]
    fn a_file_system_that_was_mounted_again_has_another_cache() {
        let machine = Machine::new().on_a_partition();
        let before = machine.page_cache();
        assert_eq!(machine.page_cache(), before, "another start of the server");
        machine.mount("sys/fs/xfs/sdb1");
        assert_eq!(machine.page_cache(), before, "another file system");
        machine.mount("sys/fs/ext4/sda1");
        let after = machine.page_cache();
        assert_ne!(after, before);
        machine.insert_disk(6);
        assert_ne!(machine.page_cache(), after, "another disk");
    }

    #[test]
    fn a_network_file_system_that_was_mounted_again_has_another_cache() {
        let machine = Machine::new();
        let entry = format!("sys/class/bdi/{}", machine.number());
        machine.mount(&entry);
        let before = machine.page_cache();
        assert_eq!(machine.page_cache(), before);
        machine.mount(&entry);
        assert_ne!(machine.page_cache(), before);
    }
}
