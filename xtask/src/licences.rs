//! Licences, sources and known vulnerabilities of everything that the two workspaces depend on, by cargo-deny.
//!
//! cargo-deny is built beside the first steps of a test run, at the lowest priority, and kept below the target folder.

use std::path::PathBuf;
use std::process::Command;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};

use xtask::process;
use xtask::tally::{Tally, Verdict};
use xtask::workspace;

/// The manifest of each workspace.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "python/Cargo.toml"];

/// cargo-deny while it is installed, or where it is.
#[derive(Debug)]
pub(crate) struct Checker {
    installation: JoinHandle<Result<PathBuf>>,
}

impl Checker {
    /// Starts to install cargo-deny, unless it is there.
    pub(crate) fn prepare() -> Checker {
        Checker { installation: thread::spawn(program) }
    }

    /// Checks what can be checked: the database of vulnerabilities is fetched from the network, and skipped without one.
    pub(crate) fn check(self) -> Result<Tally> {
        let program = match self.installation.join().map_err(|_| anyhow!("a thread panicked"))? {
            Ok(program) => program,
            Err(error) => {
                println!("skipped: {error:#}");
                return Ok(Tally::skipped());
            }
        };
        let deny = |manifest: &str, words: &[&str]| {
            let mut command = Command::new(&program);
            command.args(["--manifest-path", manifest]).args(words).current_dir(workspace::root());
            process::succeed(command)
        };
        // Both find deny.toml in a folder above their manifest.
        let mut tally = Tally::default();
        for manifest in MANIFESTS {
            deny(manifest, &["check", "--hide-inclusion-graph", "bans", "licenses", "sources"])?;
            tally += Tally::of(Verdict::Holds);
            if let Err(error) = deny(manifest, &["fetch", "db"]) {
                println!("skipped: advisories, whose database cannot be fetched: {error:#}");
                tally += Tally::skipped();
                continue;
            }
            deny(manifest, &["check", "advisories"])?;
            tally += Tally::of(Verdict::Holds);
        }
        Ok(tally)
    }
}

/// Where cargo-deny is, after its installation if it was missing. Built without optimisation: it runs for seconds.
fn program() -> Result<PathBuf> {
    if let Some(installed) = process::found("cargo-deny") {
        return Ok(installed);
    }
    let folder = workspace::target_directory().join("xtask/cargo-deny");
    let program = folder.join("bin/cargo-deny");
    if !program.exists() {
        // Of this thread alone, and of what it starts.
        rustix::process::nice(19)?;
        let mut install =
            process::cargo(&["install", "cargo-deny", "--locked", "--debug", "--quiet", "--root"]);
        install.arg(&folder).env("CARGO_PROFILE_DEV_DEBUG", "0");
        process::capture(install).context("cargo-deny is missing, and could not be installed")?;
    }
    Ok(program)
}
