//! The identity mark of a served file: its volume's identity in an extended attribute. It distinguishes a
//! disk that hosts know, and whose state directory was lost, from an image that is served for the first time.
//! Only a regular file on a file system with extended attributes can have one; a copy loses it unless it
//! preserves attributes.
//!
//! The cache generation changes whenever acknowledged but unflushed writes may have been lost between two
//! starts. If such writes are in the memory of this process, it changes at every start. If they are in the page
//! cache, it changes at every boot. It also changes when the page cache may have been dropped, as by an unmount
//! that could not write everything back. A loss while the volume is served has a separate mark
//! ([`volume::Volume::loss_mark`]).
//!
//! The page cache is identified through sysfs. When a file system is mounted, the kernel creates entries for
//! it, and removes them when its last mount in any namespace is gone; their inode numbers are not reused.
//! Mount IDs would not work: a service with a private mount namespace gets new ones at each start although
//! nothing was lost. ext4, XFS and F2FS have such an entry named after their device, NFS and FUSE one named
//! after their number. Others have none (Btrfs, FAT, exFAT, NTFS, JFS, ZFS, CIFS, overlayfs): their unmount
//! is not detected. For a disk that is served directly, only its replacement is detected.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use backends::Failure;
use block::BlockDevice;
use rustix::fs::{XattrFlags, getxattr, major, minor, removexattr, setxattr};
use sha2::{Digest, Sha256};
use volume::backend::Undo;
use volume::spec::{Spec, WhichIdentity};

use crate::config::Volume;
use crate::config::values::Uuid;
use crate::waiting::{answered, block_on};

const NAME: &str = "user.linerate.uuid";

/// The identity of a volume that has none in the state directory or the configuration; `None` for a new one.
///
/// # Errors
/// Its file was served before and has data. Hosts may know it, and only the administrator can decide whether
/// it is still the same disk.
pub(crate) fn marked(
    volume: &Volume,
    state: &Path,
    device: &dyn BlockDevice,
) -> Result<Option<Uuid>, Failure> {
    let marked = volume.spec.file().and_then(|path| Some((path, read_mark(path)?)));
    let found = || block_on(answered(disk_contents::contents(device)));
    match (marked, volume.spec.which_identity()) {
        (marked, Some(WhichIdentity::OfFile)) => Ok(marked.map(|(_, uuid)| uuid)),
        (_, Some(WhichIdentity::New)) => Ok(None),
        (None, None) => {
            if let Ok(Some(found)) = found() {
                let (volume, state) = (&volume.name, state.display());
                tracing::warn!(
                    %volume, %found, %state,
                    "this volume has data and gets a new identity: hosts that used it before see another disk; if \
                     the state directory was lost, stop the server and restore it, or give the volume its former uuid"
                );
            }
            Ok(None)
        }
        (Some((path, uuid)), None) => {
            let found = match found() {
                Ok(None) => return Ok(None),
                Ok(Some(found)) => found.to_string(),
                Err(error) => format!("data that cannot be read ({error})"),
            };
            let (name, path, state) = (&volume.name, path.display(), state.display());
            Err(Failure::refused(format!(
                "volume {name}: {path} has {found} and was served before, as the disk {uuid}, but is not in the \
                 state directory {state}: if that was lost, restore it; otherwise add to the specification \
                 `identity=file` to serve the same disk without its reservations, or `identity=new` if hosts should \
                 treat it as another disk, as for a copy; a renamed volume needs `previous-name`"
            )))
        }
    }
}

/// Marks the file of a volume with the identity under which it is served.
pub(crate) fn put_mark(volume: &Volume, uuid: Uuid, undo: &Undo) {
    let Some(path) = volume.spec.file().filter(|_| !volume.spec.is_readonly()) else { return };
    let before = read_mark(path);
    if before == Some(uuid) || !fs::metadata(path).is_ok_and(|file| file.is_file()) {
        return;
    }
    if let Err(error) = write_mark(path, uuid) {
        // Without a mark, a lost state directory only causes a warning.
        tracing::debug!(volume = %volume.name, %error, "the file has no mark of its identity");
        return;
    }
    let path: PathBuf = path.to_owned();
    undo.add(move || {
        let _ = match before {
            Some(before) => write_mark(&path, before),
            None => removexattr(&path, NAME),
        };
    });
}

fn read_mark(path: &Path) -> Option<Uuid> {
    let mut text = [0; 64];
    let length = getxattr(path, NAME, &mut text[..]).ok()?;
    std::str::from_utf8(text.get(..length)?).ok()?.parse().ok()
}

fn write_mark(path: &Path, uuid: Uuid) -> rustix::io::Result<()> {
    setxattr(path, NAME, uuid.to_string().as_bytes(), XattrFlags::empty())
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const SYSFS: &str = "/sys";

/// The cache generation of an open volume.
pub(crate) fn cache_generation(uuid: &Uuid, spec: &Spec) -> [u8; 16] {
    let mut generation = [0; 16];
    match fs::read(BOOT_ID) {
        Ok(boot) if spec.cache_outlives_process() => {
            let mut digest = Sha256::new_with_prefix(uuid.0).chain_update(boot);
            add_caches(spec, &mut digest);
            generation.copy_from_slice(&digest.finalize()[..16]);
        }
        _ => getrandom::fill(&mut generation).expect("the system has random numbers once it has started"),
    }
    generation
}

/// Adds the page caches of all files of a specification.
fn add_caches(spec: &Spec, digest: &mut Sha256) {
    if let Some(path) = spec.backend.path() {
        // If the page cache cannot be identified, only a boot changes the generation.
        let signs = page_cache(Path::new(SYSFS), path).unwrap_or_default();
        digest.update(signs.len().to_be_bytes());
        signs.iter().for_each(|sign| digest.update(sign.to_be_bytes()));
    }
    spec.backend.members().iter().for_each(|member| add_caches(member, digest));
}

/// Numbers that identify the page cache of this file or disk: at least one differs for another page cache.
fn page_cache(sysfs: &Path, path: &Path) -> io::Result<Vec<u64>> {
    let file = fs::metadata(path)?;
    let is_disk = file.file_type().is_block_device();
    let device = if is_disk { file.rdev() } else { file.dev() };
    let number = format!("{}:{}", major(device), minor(device));
    let Ok(disk) = fs::canonicalize(sysfs.join("dev/block").join(&number)) else {
        // A file system without a disk, such as NFS.
        return Ok(vec![fs::metadata(sysfs.join("class/bdi").join(number))?.ino()]);
    };
    let mut signs = Vec::new();
    if let Some(name) = disk.file_name().filter(|_| !is_disk) {
        let systems = fs::read_dir(sysfs.join("fs"))?.filter_map(Result::ok);
        signs.extend(systems.filter_map(|system| Some(fs::metadata(system.path().join(name)).ok()?.ino())));
        signs.sort_unstable();
    }
    // For a partition, its disk has the number.
    let whole = disk.parent().unwrap_or(&disk);
    let sequence =
        [disk.as_path(), whole].into_iter().find_map(|disk| fs::read_to_string(disk.join("diskseq")).ok());
    signs.extend(sequence.and_then(|text| text.trim().parse::<u64>().ok()));
    Ok(signs)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// A file, and a simulated sysfs for its file system.
    struct Machine {
        folder: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Machine {
            let machine = Machine { folder: tempfile::tempdir().expect("a temporary directory") };
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
            fs::write(self.path("sys/devices/sda/diskseq"), format!("{sequence}\n")).expect("written");
        }

        fn page_cache(&self) -> Vec<u64> {
            page_cache(&self.path("sys"), &self.path("image")).expect("there is a sign")
        }
    }

    /// Regression: the generation only depended on the boot, so after an unmount that lost writes a client
    /// assumed that they were still there.
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
