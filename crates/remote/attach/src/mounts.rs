//! Mounts (proc_pid_mountinfo(5)), and unmounting.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mounts;

/// The mount source that identifies Linerate's mounts.
pub const SOURCE: &str = "linerate";

/// A line of the mount table.
#[derive(Debug, PartialEq, Eq)]
pub struct Mount {
    /// The mount point.
    pub point: PathBuf,
    /// The mount source.
    pub source: String,
}

/// All mounts, in the order of mounting.
pub fn table() -> Vec<Mount> {
    table_of("self")
}

/// The mounts that a process sees; empty if they cannot be read.
fn table_of(process: &str) -> Vec<Mount> {
    let text = fs::read(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    text.split(|&byte| byte == b'\n')
        .filter_map(parse)
        .collect()
}

/// Whether the topmost mount on `point` is Linerate's.
pub fn is_ours(point: &Path) -> bool {
    is_ours_in(point, &table())
}

/// Whether a process in another mount namespace sees one of Linerate's mounts at `point`.
pub(crate) fn is_ours_elsewhere(point: &Path, pid: u32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let process = pid.to_string();
    namespace(&process).is_some_and(|other| Some(other) != namespace("self"))
        && is_ours_in(point, &table_of(&process))
}

fn is_ours_in(point: &Path, table: &[Mount]) -> bool {
    table
        .iter()
        .rev()
        .find(|mount| mount.point == point)
        .is_some_and(|mount| mount.source == SOURCE)
}

/// Parses a line such as `36 35 98:0 /root /mount\040point options … - type source options`.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let point = OsString::from_vec(unescaped(fields.nth(4)?)).into();
    fields.find(|field| *field == b"-")?;
    let source = String::from_utf8_lossy(&unescaped(fields.nth(1)?)).into_owned();
    Some(Mount { point, source })
}

/// Decodes whitespace, which the kernel writes as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let octal = (first == b'\\')
            .then(|| behind.first_chunk::<3>().and_then(octal))
            .flatten();
        bytes.push(octal.unwrap_or(first));
        rest = if octal.is_some() {
            &behind[3..]
        } else {
            behind
        };
    }
    bytes
}

fn octal(digits: &[u8; 3]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmountMode {
    /// Unmount only if the mount is not in use.
    IfUnused,
    /// Detach the mount from the tree immediately; current users can continue to use it (MNT_DETACH).
    Lazy,
    /// Unmount even if the mount is in use: current users get errors from now on (MNT_FORCE).
    Force,
}

/// Unmounts. Returns `ResourceBusy` if the mount is in use.
///
/// # Errors
/// The system's.
pub fn unmount(point: &Path, way: UnmountMode) -> io::Result<()> {
    match way {
        UnmountMode::IfUnused => unmount_with(point, UnmountFlags::empty()),
        UnmountMode::Lazy => unmount_with(point, UnmountFlags::DETACH),
        UnmountMode::Force => {
            // MNT_FORCE aborts outstanding requests, but fails while the mount still has users.
            unmount_with(point, UnmountFlags::FORCE)
                .or_else(|_| unmount_with(point, UnmountFlags::DETACH))
        }
    }
}

fn unmount_with(point: &Path, flags: UnmountFlags) -> io::Result<()> {
    match rustix::mount::unmount(point, flags | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => helped(point, flags),
        other => Ok(other?),
    }
}

/// Unmounts with the setuid helper that users other than root need.
fn helped(point: &Path, flags: UnmountFlags) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    command
        .arg("-u")
        .args(flags.contains(UnmountFlags::DETACH).then_some("-z"))
        .arg("--")
        .arg(point);
    let ended = command.output()?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    let kind = if said.contains("busy") {
        io::ErrorKind::ResourceBusy
    } else {
        io::ErrorKind::Other
    };
    Err(io::Error::new(kind, said))
}

// Users of the file: processes that have it open, and loop devices, from /proc and /sys.

/// The users as text: "process 81 (fio)", "/dev/loop0, mounted at /mnt (umount /mnt && losetup -d /dev/loop0
/// ends that)".
pub fn list(path: &Path) -> Vec<String> {
    loops(path).into_iter().chain(processes(path)).collect()
}

fn loops(path: &Path) -> Vec<String> {
    let named = |folder: &fs::DirEntry| {
        let backing = fs::read_to_string(folder.path().join("loop/backing_file")).ok()?;
        (Path::new(backing.trim_end_matches('\n')) == path)
            .then(|| folder.file_name().into_string().ok())?
    };
    let devices = entries("/sys/block").filter_map(|folder| named(&folder));
    devices
        .map(|name| in_words(&format!("/dev/{name}")))
        .collect()
}

fn in_words(device: &str) -> String {
    let mount = mounts::table()
        .into_iter()
        .find(|mount| mount.source == device);
    match mount.map(|mount| mount.point.display().to_string()) {
        Some(point) => {
            format!(
                "{device}, mounted at {point} (to release it: umount {point} && losetup -d {device})"
            )
        }
        None => format!("{device} (to release it: losetup -d {device})"),
    }
}

fn processes(path: &Path) -> Vec<String> {
    let uses = |process: &fs::DirEntry| {
        entries(process.path().join("fd"))
            .any(|open| fs::read_link(open.path()).is_ok_and(|to| to == path))
    };
    let numbers = entries("/proc").filter_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        uses(&process).then_some(pid)
    });
    numbers
        .map(|pid| format!("process {pid} ({})", name(pid)))
        .collect()
}

fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .map_or_else(|_| "gone".to_owned(), |name| name.trim().to_owned())
}

/// The entries of a directory; empty if it cannot be read.
fn entries(folder: impl AsRef<Path>) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_blanks_in_its_path() {
        let line =
            br"36 35 0:52 / /mnt/my\040disk\134 rw,nosuid shared:2 - fuse linerate rw,user_id=0";
        let mount = parse(line).expect("a mount");
        assert_eq!(
            mount,
            Mount {
                point: r"/mnt/my disk\".into(),
                source: SOURCE.to_owned()
            }
        );
    }

    #[test]
    fn lines_that_are_none_are_left_out() {
        for line in [
            &b""[..],
            b"36 35",
            b"36 35 0:52 / /mnt rw fuse linerate",
            b"36 35 0:52 / /mnt rw - fuse",
        ] {
            assert_eq!(parse(line), None);
        }
    }

    #[test]
    fn a_backslash_at_the_end_is_one() {
        assert_eq!(unescaped(br"a\04"), br"a\04");
        assert_eq!(unescaped(br"\400"), br"\400");
    }

    #[test]
    fn a_process_that_has_the_file_open_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let users = list(file.path());
        let this = format!("process {}", std::process::id());
        assert!(
            users.iter().any(|user| user.starts_with(&this)),
            "{users:?}"
        );
    }
}
