//! The guest's boot files: Debian's kernel, and a root file system in memory. The file system is built from
//! the kernel's modules, busybox, and programs of this machine with their libraries.
//!
//! `apt-get download` fetches the packages, which are unpacked in the target directory. They are not installed: installing a
//! kernel would change this machine's boot loader.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use xtask::{process, workspace};

/// The two files for QEMU.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) kernel: PathBuf,
    pub(super) root: PathBuf,
    /// The kernel's version.
    pub(super) version: String,
}

/// Debian's package names for the cloud kernel; the first existing one is used. In Debian 12, 6.12 is a security update, and the
/// plain name is 6.1. In Debian 13, the plain name is 6.12.
const KERNELS: [&str; 2] = ["linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64"];

/// Modules that scenes load; their dependencies are added.
const MODULES: [&str; 13] = [
    "virtio_net",
    "sd_mod",
    "sg",
    "iscsi_tcp",
    "nbd",
    "aoe",
    "dm-mod",
    "dm-multipath",
    "dm-round-robin",
    "xfs",
    "target_core_mod",
    "target_core_file",
    "iscsi_target_mod",
];

/// Programs of this machine that scenes run in the guest.
pub(super) const PROGRAMS: [&str; 23] = [
    "iscsid",
    "iscsiadm",
    "nbd-client",
    "dmsetup",
    "mkfs.ext4",
    "e2fsck",
    "mkfs.xfs",
    "xfs_repair",
    "xfs_growfs",
    "sg_inq",
    "sg_vpd",
    "sg_luns",
    "sg_readcap",
    "sg_turs",
    "sg_opcodes",
    "sg_persist",
    "sg_unmap",
    "sg_write_same",
    "sg_get_lba_status",
    "sg_compare_and_write",
    "sg_verify",
    "sg_sync",
    "sg_reset",
];

/// Debian's settings of open-iscsi, except for the NOP-Out interval and timeout: on a loaded machine, the
/// emulated machine can respond late.
const ISCSID_CONF: &str = "node.startup = manual
node.leading_login = No
node.session.timeo.replacement_timeout = 120
node.conn[0].timeo.login_timeout = 30
node.conn[0].timeo.logout_timeout = 30
node.conn[0].timeo.noop_out_interval = 15
node.conn[0].timeo.noop_out_timeout = 60
node.session.err_timeo.abort_timeout = 60
node.session.err_timeo.lu_reset_timeout = 60
node.session.err_timeo.tgt_reset_timeout = 60
node.session.initial_login_retry_max = 8
node.session.cmds_max = 128
node.session.queue_depth = 32
node.session.xmit_thread_priority = -20
node.session.iscsi.InitialR2T = No
node.session.iscsi.ImmediateData = Yes
node.session.iscsi.FirstBurstLength = 262144
node.session.iscsi.MaxBurstLength = 16776192
node.conn[0].iscsi.MaxRecvDataSegmentLength = 262144
node.session.nr_sessions = 1
node.session.reopen_max = 0
node.session.iscsi.FastAbort = Yes
node.session.scan = auto
";

/// The initiator's name in the guest.
pub(super) const INITIATOR: &str = "iqn.2026-01.io.linerate:guest";

impl Image {
    /// Fetches missing packages, and builds the boot files.
    ///
    /// # Errors
    /// A package or a program is unavailable.
    pub(super) fn ready() -> Result<Image> {
        let folder = workspace::target_directory().join("xtask/guest");
        let packages = folder.join("packages");
        fs::create_dir_all(&packages).with_context(|| packages.display().to_string())?;
        if !packages.join("boot").exists() {
            let names = [kernel_package()?, "busybox-static".to_owned()];
            fetch(&packages, &names)?;
        }
        let kernel = only(&packages.join("boot"), "vmlinuz-")?;
        let name = kernel
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let version = name.trim_start_matches("vmlinuz-").to_owned();
        let root = folder.join("root.cpio");
        let archive = pack(&packages, &version)?;
        fs::write(&root, archive).with_context(|| root.display().to_string())?;
        Ok(Image {
            kernel,
            root,
            version,
        })
    }
}

/// Returns the name of the kernel package of a specific version, on which the meta-package depends.
fn kernel_package() -> Result<String> {
    let told = |name: &str| process::run("apt-cache", &["depends", name]).ok();
    let depended = KERNELS
        .iter()
        .filter_map(|name| told(name))
        .find_map(|text| {
            text.lines()
                .find_map(|line| Some(line.trim().strip_prefix("Depends: ")?.to_owned()))
        });
    depended.with_context(|| format!("apt has none of the packages {}", KERNELS.join(", ")))
}

fn fetch(folder: &Path, names: &[String]) -> Result<()> {
    let mut download = Command::new("apt-get");
    process::capture({
        download
            .args(["download", "--quiet"])
            .args(names)
            .current_dir(folder);
        download
    })
    .context("fetching the guest's packages")?;
    for entry in fs::read_dir(folder)? {
        let package = entry?.path();
        if package.extension().is_some_and(|ending| ending == "deb") {
            let (package, folder) = (package.display().to_string(), folder.display().to_string());
            process::run("dpkg-deb", &["--extract", &package, &folder])?;
            fs::remove_file(package)?;
        }
    }
    Ok(())
}

/// Returns the entry of a directory whose name has this prefix.
fn only(folder: &Path, beginning: &str) -> Result<PathBuf> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(beginning))
        {
            return Ok(path);
        }
    }
    bail!("{} contains no {beginning}…", folder.display())
}

/// Builds the root file system. Programs and libraries have the same paths as on this machine. Modules are
/// stored decompressed, because decompressing them would take the emulated processor seconds.
fn pack(packages: &Path, version: &str) -> Result<Vec<u8>> {
    let mut tree = Tree::default();
    let busybox = packages.join("bin/busybox");
    let busybox = if busybox.exists() {
        busybox
    } else {
        packages.join("usr/bin/busybox")
    };
    tree.copy(&busybox, "bin/busybox")?;
    tree.archive.link("bin/sh", "busybox");
    tree.file("init", include_bytes!("init.sh"));
    tree.file("etc/iscsi/iscsid.conf", ISCSID_CONF.as_bytes());
    tree.file(
        "etc/iscsi/initiatorname.iscsi",
        format!("InitiatorName={INITIATOR}\n").as_bytes(),
    );
    tree.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n");
    for program in PROGRAMS {
        tree.program(&process::found(program).with_context(|| format!("{program} is missing"))?)?;
    }
    let modules = Modules::unpack(&packages.join("lib/modules").join(version), &busybox)
        .or_else(|_| Modules::unpack(&packages.join("usr/lib/modules").join(version), &busybox))?;
    let folder = format!("lib/modules/{version}");
    for Module { name, content, .. } in &modules.loaded_in_order {
        tree.file(&format!("{folder}/{name}.ko"), content);
    }
    tree.file(
        &format!("{folder}/modules.dep"),
        modules.dependencies().as_bytes(),
    );
    Ok(tree.archive.finish())
}

/// An archive under construction. It contains each file only once, and directories before their files.
#[derive(Default)]
struct Tree {
    archive: Archive,
    paths: BTreeSet<String>,
}

impl Tree {
    fn file(&mut self, path: &str, content: &[u8]) {
        for (at, _) in path.match_indices('/') {
            if self.paths.insert(path[..at].to_owned()) {
                self.archive.folder(&path[..at]);
            }
        }
        if self.paths.insert(path.to_owned()) {
            self.archive.file(path, content);
        }
    }

    fn copy(&mut self, from: &Path, path: &str) -> Result<()> {
        self.file(
            path,
            &fs::read(from).with_context(|| from.display().to_string())?,
        );
        Ok(())
    }

    /// Adds a program and the libraries that its loader finds, each at the path where the loader looks for it.
    fn program(&mut self, path: &Path) -> Result<()> {
        let path = path.to_str().context("a program's path is not UTF-8")?;
        self.copy(Path::new(path), path.trim_start_matches('/'))?;
        for line in process::run("ldd", &[path])?.lines() {
            let words = line.split_whitespace();
            if let Some(library) = words.into_iter().find(|word| word.starts_with('/')) {
                self.copy(Path::new(library), library.trim_start_matches('/'))?;
            }
        }
        Ok(())
    }
}

/// A kernel module.
struct Module {
    name: String,
    content: Vec<u8>,
    /// Names of all modules that it needs, direct dependencies first.
    needs: Vec<String>,
}

/// The modules of [`MODULES`] and their dependencies, each after its own dependencies.
#[derive(Default)]
struct Modules {
    loaded_in_order: Vec<Module>,
}

impl Modules {
    fn unpack(folder: &Path, busybox: &Path) -> Result<Modules> {
        let list = fs::read_to_string(folder.join("modules.order"))
            .with_context(|| folder.join("modules.order").display().to_string())?;
        let mut modules = Modules::default();
        for name in MODULES {
            modules.add(name, folder, &list, busybox)?;
        }
        Ok(modules)
    }

    /// Adds a module after its dependencies, unless it was already added.
    fn add(
        &mut self,
        name: &str,
        folder: &Path,
        list: &str,
        busybox: &Path,
    ) -> Result<Vec<String>> {
        let name = name.replace('-', "_");
        if let Some(known) = self
            .loaded_in_order
            .iter()
            .find(|module| module.name == name)
        {
            return Ok(known.needs.clone());
        }
        // Lines such as `kernel/drivers/md/dm-mod.ko`; `-` and `_` are equivalent in module names.
        let stem = |line: &str| {
            Path::new(line)
                .file_stem()
                .map(|stem| stem.to_string_lossy().replace('-', "_"))
        };
        let line = list.lines().find(|line| stem(line).as_ref() == Some(&name));
        let line = line.with_context(|| format!("the kernel has no module {name}"))?;
        let packed = folder.join(format!("{line}.xz")).display().to_string();
        let output = Command::new(busybox).args(["unxz", "-c", &packed]).output();
        let output = output.with_context(|| busybox.display().to_string())?;
        anyhow::ensure!(output.status.success(), "cannot decompress {packed}");
        let mut needs = Vec::new();
        for direct in direct_needs(&output.stdout) {
            let of_it = self.add(&direct, folder, list, busybox)?;
            needs.extend([direct.replace('-', "_")].into_iter().chain(of_it));
        }
        // Keep the last of duplicates, so that common dependencies are loaded first.
        let mut seen = BTreeSet::new();
        needs.reverse();
        needs.retain(|need| seen.insert(need.clone()));
        needs.reverse();
        self.loaded_in_order.push(Module {
            name,
            content: output.stdout,
            needs: needs.clone(),
        });
        Ok(needs)
    }

    /// Returns the file `modules.dep`: a line for each module, with its dependencies, direct ones first.
    fn dependencies(&self) -> String {
        let line = |module: &Module| {
            let needs = module
                .needs
                .iter()
                .map(|need| format!(" {need}.ko"))
                .collect::<String>();
            format!("{}.ko:{needs}\n", module.name)
        };
        self.loaded_in_order.iter().map(line).collect()
    }
}

/// Returns a module's dependencies from its section `.modinfo`: `depends=` and names separated by commas,
/// terminated by a NUL.
fn direct_needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let rest = &module[at + KEY.len()..];
    let names = rest.split(|&byte| byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(names);
    names
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

// The archive that Linux unpacks as its initial root file system: cpio's "newc" format
// (the kernel's Documentation/driver-api/early-userspace/buffer-format.rst).

/// An archive under construction. Directories must be added before their entries.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const TRAILER: &str = "TRAILER!!!";

impl Archive {
    /// Adds a directory, by its path without a leading slash.
    pub(super) fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER, &[]);
    }

    /// Adds a file that all users can read and execute.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, content);
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.entry(path, LINK, target.as_bytes());
    }

    /// Returns the whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, &[]);
        self.bytes
    }

    /// Adds an entry: a header of 13 numbers of eight hexadecimal digits, the name with a NUL, and the content. Name and content
    /// are each padded with zeros to a multiple of four.
    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        debug_assert!(!path.starts_with('/'), "{path}");
        self.entries += 1;
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        debug_assert!(length < u32::MAX, "{path} is too long for the format");
        let name_length = path.len() as u32 + 1;
        let (owner, group, links, time, device, checksum) = (0, 0, 1, 0, 0, 0);
        self.bytes.extend(b"070701");
        for number in [
            self.entries,
            mode,
            owner,
            group,
            links,
            time,
            length,
            device,
            device,
            device,
            device,
            name_length,
            checksum,
        ] {
            self.bytes.extend(format!("{number:08x}").bytes());
        }
        self.bytes.extend(path.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_names_what_it_needs() {
        let module = b"ELF\0license=GPL\0depends=dm-mod,scsi_mod\0name=x\0";
        assert_eq!(direct_needs(module), ["dm-mod", "scsi_mod"]);
        assert_eq!(
            direct_needs(b"ELF\0depends=\0name=x\0"),
            <[&str; 0]>::default()
        );
        assert_eq!(direct_needs(b"ELF"), <[&str; 0]>::default());
    }

    #[test]
    fn dependencies_are_listed_as_modprobe_reads_them() {
        let module = |name: &str, needs: &[&str]| Module {
            name: name.to_owned(),
            content: Vec::new(),
            needs: needs.iter().map(|need| (*need).to_owned()).collect(),
        };
        let modules = Modules {
            loaded_in_order: vec![module("a", &[]), module("b", &["a"])],
        };
        assert_eq!(modules.dependencies(), "a.ko:\nb.ko: a.ko\n");
    }

    #[test]
    fn every_header_and_every_content_begins_at_a_multiple_of_four() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.file("bin/sh", b"hello");
        archive.link("init", "bin/sh");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let headers: Vec<usize> = (0..bytes.len())
            .filter(|&at| bytes[at..].starts_with(b"070701"))
            .collect();
        assert_eq!(headers.len(), 4, "three entries and the trailer");
        assert!(headers.iter().all(|at| at % 4 == 0), "{headers:?}");
        // `bin/sh` has 7 bytes with its NUL: 110 + 7 is padded to 120.
        assert_eq!(&bytes[headers[1] + 120..headers[1] + 125], b"hello");
    }
}
