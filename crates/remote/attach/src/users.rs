//! Users of the file: processes that have it open, and loop devices, from /proc and /sys.

use std::fs;
use std::path::Path;

use crate::mounts;

/// The users as text: "process 81 (fio)", "/dev/loop0, mounted at /mnt (umount /mnt && losetup -d /dev/loop0 ends that)".
pub fn list(path: &Path) -> Vec<String> {
    loops(path).into_iter().chain(processes(path)).collect()
}

fn loops(path: &Path) -> Vec<String> {
    let named = |folder: &fs::DirEntry| {
        let backing = fs::read_to_string(folder.path().join("loop/backing_file")).ok()?;
        (Path::new(backing.trim_end_matches('\n')) == path).then(|| folder.file_name().into_string().ok())?
    };
    let devices = entries("/sys/block").filter_map(|folder| named(&folder));
    devices.map(|name| in_words(&format!("/dev/{name}"))).collect()
}

fn in_words(device: &str) -> String {
    let mount = mounts::table().into_iter().find(|mount| mount.source == device);
    match mount.map(|mount| mount.point.display().to_string()) {
        Some(point) => {
            format!("{device}, mounted at {point} (umount {point} && losetup -d {device} ends that)")
        }
        None => format!("{device} (losetup -d {device} ends that)"),
    }
}

fn processes(path: &Path) -> Vec<String> {
    let uses = |process: &fs::DirEntry| {
        entries(process.path().join("fd")).any(|open| fs::read_link(open.path()).is_ok_and(|to| to == path))
    };
    let numbers = entries("/proc").filter_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        uses(&process).then_some(pid)
    });
    numbers.map(|pid| format!("process {pid} ({})", name(pid))).collect()
}

fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .map_or_else(|_| "gone".to_owned(), |name| name.trim().to_owned())
}

/// What may not be read, or is gone, has none.
fn entries(folder: impl AsRef<Path>) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_the_file_open_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let users = list(file.path());
        let this = format!("process {}", std::process::id());
        assert!(users.iter().any(|user| user.starts_with(&this)), "{users:?}");
    }
}
