//! The mark of a file that was served: the identity of its volume, in an extended attribute. It tells a disk that
//! hosts know, and whose state directory is lost, from an image that is served for the first time. Only a regular file of a file system with
//! attributes has one; it is lost with a copy that does not keep attributes.

use std::fs;
use std::path::{Path, PathBuf};

use block::BlockDevice;
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use volume::backend::Undo;
use volume::spec::WhichIdentity;

use crate::config::{Uuid, Volume};
use crate::live::{answered, block_on};
use backends::Failure;
use backends::raid::file_of;

const NAME: &str = "user.linerate.uuid";

/// The identity of a volume of which neither the state directory nor the configuration has one; `None` for a new one.
///
/// # Errors
/// Its file was served before and has data: hosts may know it, and only people can tell whether as this disk.
pub(crate) fn identity(
    volume: &Volume,
    state: &Path,
    device: &dyn BlockDevice,
) -> Result<Option<Uuid>, Failure> {
    let marked = file_of(&volume.spec).and_then(|path| Some((path, read(path)?)));
    let found = || block_on(answered(disk_contents::contents(device)));
    match (marked, volume.spec.which_identity()) {
        (marked, Some(WhichIdentity::OfFile)) => Ok(marked.map(|(_, uuid)| uuid)),
        (_, Some(WhichIdentity::New)) => Ok(None),
        (None, None) => {
            if let Ok(Some(found)) = found() {
                let (volume, state) = (&volume.name, state.display());
                tracing::warn!(
                    %volume, %found, %state,
                    "this volume has data and gets a new identity: to hosts that know it, it is another disk; if the state \
                     directory was lost, stop the server and restore it, or give the volume its former uuid"
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
                "volume {name}: {path} has {found} and was served before, as the disk {uuid}, but the state directory {state} \
                 does not know it: if it was lost, restore it; else add to the specification `identity=file` to serve the same \
                 disk without its reservations, or `identity=new` if hosts are to take it for another disk, as for a copy; a \
                 volume with another name than before needs `previous-name`"
            )))
        }
    }
}

/// Marks the file of a volume that is served under this identity.
pub(crate) fn put(volume: &Volume, uuid: Uuid, undo: &Undo) {
    let Some(path) = file_of(&volume.spec).filter(|_| !volume.spec.is_readonly()) else { return };
    let before = read(path);
    if before == Some(uuid) || !fs::metadata(path).is_ok_and(|file| file.is_file()) {
        return;
    }
    if let Err(error) = write(path, uuid) {
        // Without one a lost state directory is only warned of.
        tracing::debug!(volume = %volume.name, %error, "the file has no mark of its identity");
        return;
    }
    let path: PathBuf = path.to_owned();
    undo.add(move || {
        let _ = match before {
            Some(before) => write(&path, before),
            None => removexattr(&path, NAME),
        };
    });
}

fn read(path: &Path) -> Option<Uuid> {
    let mut text = [0; 64];
    let length = getxattr(path, NAME, &mut text[..]).ok()?;
    std::str::from_utf8(text.get(..length)?).ok()?.parse().ok()
}

fn write(path: &Path, uuid: Uuid) -> rustix::io::Result<()> {
    setxattr(path, NAME, uuid.to_string().as_bytes(), XattrFlags::empty())
}
