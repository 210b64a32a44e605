//! Installs, uses, removes and purges a package in a separate root directory, without affecting this machine.
//!
//! dpkg runs the package's scripts with `$DPKG_ROOT` (`--force-script-chrootless`). A chroot would need a complete system in
//! that root directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::FILES;
use crate::tidy::links::{self, links};
use xtask::process;
use xtask::tally::{Tally, Verdict};
use xtask::workspace;

/// A root directory that initially contains only a package database and the files for users.
struct Root {
    path: PathBuf,
}

pub(super) fn run(package: &Path) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut check = |what: &str, outcome: Result<()>| {
        if let Err(error) = &outcome {
            println!("{what}: {error:#}");
        }
        tally += Tally::of(if outcome.is_ok() {
            Verdict::Holds
        } else {
            Verdict::Fails
        });
    };
    if rustix::process::geteuid().is_root() {
        let root = Root::new(&workspace::target_directory().join("debian/installed"))?;
        check("install", root.install(package));
        check("use", root.is_usable());
        check("remove", root.remove());
        check("purge", root.purge());
    } else {
        println!("skipped: only root can change the owner of files to the server's user");
        tally += Tally::skipped();
    }
    if process::installed("lintian") {
        let mut command = Command::new("lintian");
        command
            .args(["--fail-on", "error", "--allow-root"])
            .arg(package);
        tally += Tally::of(if process::succeed(command).is_ok() {
            Verdict::Holds
        } else {
            Verdict::Fails
        });
    } else {
        println!("skipped: lintian is missing");
        tally += Tally::skipped();
    }
    Ok(tally)
}

const CONFIGURATION: &str = "etc/linerate/linerate.toml";
const PROGRAM: &str = "usr/bin/linerate";

impl Root {
    fn new(path: &Path) -> Result<Root> {
        if path.exists() {
            fs::remove_dir_all(path)?;
        }
        for folder in ["etc", "var/lib/dpkg/info", "var/lib/dpkg/updates"] {
            fs::create_dir_all(path.join(folder))?;
        }
        fs::write(path.join("var/lib/dpkg/status"), "")?;
        // dpkg and its scripts read the system's users from these files.
        fs::write(path.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
        fs::write(path.join("etc/group"), "root:x:0:\n")?;
        Ok(Root {
            path: path.to_owned(),
        })
    }

    fn dpkg(&self, arguments: &[&str]) -> Result<String> {
        let mut dpkg = Command::new("dpkg");
        // The packages that linerate depends on are not in this root directory.
        dpkg.args(["--force-script-chrootless", "--force-depends", "--root"])
            .arg(&self.path)
            .args(arguments);
        let path = std::env::var("PATH").unwrap_or_default();
        dpkg.env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .env("DEBIAN_FRONTEND", "noninteractive");
        process::capture(dpkg)
    }

    fn there(&self, file: &str) -> Result<()> {
        ensure!(self.path.join(file).is_file(), "{file} is missing");
        Ok(())
    }

    fn gone(&self, file: &str) -> Result<()> {
        ensure!(!self.path.join(file).exists(), "{file} is still there");
        Ok(())
    }

    fn install(&self, package: &Path) -> Result<()> {
        self.dpkg(&["--install", &package.display().to_string()])?;
        let installed = FILES
            .iter()
            .map(|(_, to, _)| *to)
            .filter(|to| !to.starts_with("DEBIAN/"));
        let others = [
            "man1/linerate.1.gz",
            "man1/linerate-serve.1.gz",
            "man5/linerate.toml.5.gz",
        ];
        let others = others.map(|page| format!("usr/share/man/{page}"));
        installed
            .chain(others.iter().map(String::as_str))
            .chain([PROGRAM])
            .try_for_each(|file| self.there(file))?;
        super::COMPLETIONS
            .iter()
            .try_for_each(|(_, file)| self.there(file))?;
        self.links_lead_somewhere(&self.path.join(super::DOCUMENTS))?;
        let user = fs::read_to_string(self.path.join("etc/passwd"))?;
        let user = user
            .lines()
            .find(|line| line.starts_with("linerate:"))
            .context("no user linerate")?;
        let number: u32 = user.split(':').nth(2).context("the user's ID")?.parse()?;
        let configuration = fs::metadata(self.path.join(CONFIGURATION))?;
        ensure!(
            configuration.uid() == number,
            "the configuration belongs to user {}",
            configuration.uid()
        );
        ensure!(
            configuration.mode() & 0o777 == 0o600,
            "the configuration has the mode {:o}",
            configuration.mode()
        );
        Ok(())
    }

    /// Checks that each link of the installed documents leads to an installed file and heading.
    fn links_lead_somewhere(&self, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                self.links_lead_somewhere(&path)?;
            } else if path.extension().is_some_and(|end| end == "md") {
                let text = fs::read_to_string(&path)?;
                let fault = links(&text).find_map(|(_, link)| links::fault(folder, &path, link));
                ensure!(fault.is_none(), "{}: {fault:?}", path.display());
            }
        }
        Ok(())
    }

    fn is_usable(&self) -> Result<()> {
        let program = self.path.join(PROGRAM);
        let version = process::run(&program, &["--version"])?;
        ensure!(
            version.trim() == concat!("linerate ", env!("CARGO_PKG_VERSION")),
            "unexpected version: {version}"
        );
        let serve = ["serve", "--check", "--volume", "disk=ram:1MiB", "--config"];
        let configuration = self.path.join(CONFIGURATION).display().to_string();
        let said = process::run(&program, &[&serve[..], &[&configuration]].concat())?;
        ensure!(said.contains("the configuration is valid"), "{said}");
        if !process::installed("systemd-analyze") {
            println!("systemd-analyze is missing: the units are not checked");
            return Ok(());
        }
        for unit in ["linerate.service", "linerate-attach@disk1.service"] {
            let mut verify = Command::new("systemd-analyze");
            verify
                .args(["verify", "--man=no"])
                .arg("--root")
                .arg(&self.path)
                .arg(unit);
            let output = verify.output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            // This root directory has neither the system's own units nor a shell.
            let is_ours = |line: &&str| {
                !line.contains("sysinit.target not found") && !line.contains("/bin/sh")
            };
            let ours: Vec<&str> = said
                .lines()
                .filter(|line| line.contains("linerate"))
                .filter(is_ours)
                .collect();
            ensure!(ours.is_empty(), "{}", ours.join("\n"));
        }
        Ok(())
    }

    /// Removes the package. Changes made by an administrator must be kept.
    fn remove(&self) -> Result<()> {
        let written = "# changed by an administrator\n";
        fs::write(self.path.join(CONFIGURATION), written)?;
        fs::create_dir_all(self.path.join("var/lib/linerate"))?;
        self.dpkg(&["--remove", "linerate"])?;
        self.gone(PROGRAM)?;
        self.gone("usr/lib/systemd/system/linerate.service")?;
        ensure!(
            fs::read_to_string(self.path.join(CONFIGURATION))? == written,
            "the configuration has changed"
        );
        Ok(())
    }

    /// Purges the package. This must delete the configuration, but not volumes.
    fn purge(&self) -> Result<()> {
        let said = self.dpkg(&["--purge", "linerate"])?;
        ensure!(said.contains("keeping /var/lib/linerate"), "{said}");
        self.gone("etc/linerate")?;
        self.gone("usr/share/doc/linerate")?;
        ensure!(
            self.path.join("var/lib/linerate").is_dir(),
            "the state directory was deleted"
        );
        Ok(())
    }
}
