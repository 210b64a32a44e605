//! A LUN or volume attached as a local file (`linerate attach`), a block device over the file, and a file system on that
//! device. Needs root, /dev/fuse and loop devices.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::Placement;
use crate::process;
use crate::workspace;

/// A loop device over an attached volume or over a file; both are removed when this is dropped.
#[derive(Debug)]
pub struct Attached {
    binary: Option<PathBuf>,
    file: PathBuf,
    /// `/dev/loop0`.
    device: Option<String>,
}

/// An ext4 file system on an attached volume. It is unmounted when this value is dropped.
#[derive(Debug)]
pub struct Mounted {
    folder: PathBuf,
    /// The file system is on this device, which is therefore dropped after it is unmounted.
    attached: Attached,
}

impl Attached {
    /// Attaches the volume, and creates a loop device over its file. The device uses direct I/O, so that all requests reach
    /// the process that serves the file.
    pub fn to(volume: &str, binary: &Path, placement: &Placement) -> Result<Attached> {
        ensure!(Path::new("/dev/fuse").exists(), "/dev/fuse is missing");
        let file = temporary("attached")?.join("disk");
        let mut attached = Attached {
            binary: Some(binary.to_owned()),
            file,
            device: None,
        };
        let mut command = placement.command(binary);
        command.args(["attach", volume]).arg(&attached.file);
        process::capture(command).context("attaching")?;
        attached.add_loop_device()?;
        Ok(attached)
    }

    /// Creates a local file instead of a volume, for comparison.
    pub fn file(bytes: u64) -> Result<Attached> {
        let file = temporary("file")?.join("disk");
        fs::File::create(&file)?.set_len(bytes)?;
        let mut attached = Attached {
            binary: None,
            file,
            device: None,
        };
        attached.add_loop_device()?;
        Ok(attached)
    }

    fn add_loop_device(&mut self) -> Result<()> {
        let options = [
            "--find",
            "--show",
            "--direct-io=on",
            &self.file.display().to_string(),
        ];
        self.device = Some(
            process::run("losetup", &options)
                .context("a loop device")?
                .trim()
                .to_owned(),
        );
        Ok(())
    }

    /// Returns the ID of the process that serves the file. The process has detached itself from its parent.
    pub fn pid(&self) -> Result<u32> {
        let file = self.file.display().to_string();
        let is_it = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words
                .split(|byte| *byte == 0)
                .any(|word| word == file.as_bytes())
        };
        let all = fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        all.into_iter()
            .find(is_it)
            .with_context(|| format!("no process serves {file}"))
    }

    /// Returns the block device.
    pub fn device(&self) -> &str {
        self.device.as_deref().unwrap_or_default() // set by both constructors
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(device) = &self.device {
            let _ = process::run("losetup", &["--detach", device]); // `losetup` lists leftovers
        }
        if let Some(binary) = &self.binary {
            let detach = ["detach", "--force", &self.file.display().to_string()];
            let _ = process::run(binary, &detach); // fails if the file was never attached
        }
        let _ = self.file.parent().map(fs::remove_dir_all);
    }
}

impl Mounted {
    /// Creates an ext4 file system on the attached volume, and mounts it.
    pub fn on(attached: Attached) -> Result<Mounted> {
        let folder = temporary("mounted")?;
        process::run("mkfs.ext4", &["-q", attached.device()])?;
        process::run("mount", &[attached.device(), &folder.display().to_string()])?;
        Ok(Mounted { folder, attached })
    }

    /// Unmounts the file system, and checks it.
    pub fn check(self) -> Result<()> {
        process::run("umount", &[&self.folder.display().to_string()])?;
        let found = process::run("e2fsck", &["-fn", self.attached.device()]);
        found.map(drop).context("the file system is damaged")
    }

    /// Returns the mount point.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let folder = self.folder.display().to_string();
        if process::run("umount", &[&folder]).is_err() {
            let _ = process::run("umount", &["--lazy", &folder]);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Creates an unused directory.
fn temporary(name: &str) -> Result<PathBuf> {
    let parent = workspace::target_directory().join("xtask");
    let name = |number| format!("{name}-{}-{number}", std::process::id());
    fs::create_dir_all(&parent).with_context(|| parent.display().to_string())?;
    let free = (0..)
        .map(|number| parent.join(name(number)))
        .find(|path| !path.exists());
    let path = free.context("a free name")?;
    fs::create_dir(&path).with_context(|| path.display().to_string())?;
    Ok(path)
}
