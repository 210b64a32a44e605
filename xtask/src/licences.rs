//! Licences, sources and known vulnerabilities of all dependencies of the two workspaces, checked by cargo-deny.
//!
//! cargo-deny is built while the first steps of a test run execute, at the lowest priority, and kept in the target directory.

use std::path::PathBuf;
use std::process::Command;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};

use xtask::process;
use xtask::tally::{Tally, Verdict};
use xtask::workspace;

/// The manifest of each workspace.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "python/Cargo.toml"];

/// The installation of cargo-deny, which returns its path.
#[derive(Debug)]
pub(crate) struct Checker {
    installation: JoinHandle<Result<PathBuf>>,
}

impl Checker {
    /// Starts installing cargo-deny if it is missing.
    pub(crate) fn prepare() -> Checker {
        Checker {
            installation: thread::spawn(program),
        }
    }

    /// Runs the checks. The vulnerability database is fetched from the network; without a network, that check is skipped.
    pub(crate) fn check(self) -> Result<Tally> {
        let program = match self
            .installation
            .join()
            .map_err(|_| anyhow!("a thread panicked"))?
        {
            Ok(program) => program,
            Err(error) => {
                println!("skipped: {error:#}");
                return Ok(Tally::skipped());
            }
        };
        let deny = |manifest: &str, words: &[&str]| {
            let mut command = Command::new(&program);
            command
                .args(["--manifest-path", manifest])
                .args(words)
                .current_dir(workspace::root());
            process::succeed(command)
        };
        // Each of the two workspaces finds deny.toml in a parent directory of its manifest.
        let mut tally = Tally::default();
        for manifest in MANIFESTS {
            deny(
                manifest,
                &[
                    "check",
                    "--hide-inclusion-graph",
                    "bans",
                    "licenses",
                    "sources",
                ],
            )?;
            tally += Tally::of(Verdict::Holds);
            if let Err(error) = deny(manifest, &["fetch", "db"]) {
                println!("skipped: advisories; cannot fetch their database: {error:#}");
                tally += Tally::skipped();
                continue;
            }
            deny(manifest, &["check", "advisories"])?;
            tally += Tally::of(Verdict::Holds);
        }
        Ok(tally)
    }
}

/// Returns the path of cargo-deny, which is first installed if it is missing. It is built without
/// optimisation, because it runs only for seconds.
fn program() -> Result<PathBuf> {
    if let Some(installed) = process::found("cargo-deny") {
        return Ok(installed);
    }
    let folder = workspace::target_directory().join("xtask/cargo-deny");
    let program = folder.join("bin/cargo-deny");
    if !program.exists() {
        // Applies only to this thread and its child processes.
        rustix::process::nice(19)?;
        let mut install = process::cargo(&[
            "install",
            "cargo-deny",
            "--locked",
            "--debug",
            "--quiet",
            "--root",
        ]);
        install.arg(&folder).env("CARGO_PROFILE_DEV_DEBUG", "0");
        process::capture(install).context("cargo-deny is missing, and could not be installed")?;
    }
    Ok(program)
}
