//! Whether the disk has room for a whole test run. One that fills up fails tests in which nothing is wrong.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use xtask::process;
use xtask::workspace;

/// What a run in a fresh clone leaves in the target folder (8.5 GB on 2026-11-27), and a little more.
const NEEDED: u64 = 10 * GIB;

/// What cargo keeps beside that for incremental builds.
const INCREMENTAL: u64 = 4 * GIB;

/// With less than this the next file may be the one that does not fit.
const LITTLE: u64 = GIB;

const GIB: u64 = 1 << 30;

/// Fails if the target folder cannot grow to what a whole run builds.
pub(crate) fn ensure() -> Result<()> {
    let target = workspace::target_directory();
    // Cargo makes it, and its parents, where it is not there yet.
    let existing = target.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    // A build beside this one may delete files while they are counted: no reason to refuse.
    let (free, held) = (free_bytes(existing)?, held_bytes(&target).unwrap_or(NEEDED + INCREMENTAL));
    let is_incremental = std::env::var_os("CARGO_INCREMENTAL").is_none_or(|set| set != "0");
    let needed = NEEDED + if is_incremental { INCREMENTAL } else { 0 };
    ensure!(
        free >= LITTLE && free.saturating_add(held) >= needed,
        "{} has {} GiB, and {} are free there; a whole run builds {} GiB: make room (`cargo clean` takes what is there \
         away), or set CARGO_TARGET_DIR to a folder on another disk",
        target.display(),
        held / GIB,
        free / GIB,
        needed / GIB,
    );
    Ok(())
}

/// What is to be said of a failure now: that a disk of the run is full, if one is.
pub(crate) fn complaint() -> Option<String> {
    let folders = [workspace::target_directory(), std::env::temp_dir()];
    let full = folders.iter().find(|folder| free_bytes(folder).is_ok_and(|free| free < LITTLE))?;
    Some(format!("the disk of {} is full: that alone makes tests fail", full.display()))
}

fn free_bytes(folder: &Path) -> Result<u64> {
    let system = rustix::fs::statvfs(folder)
        .with_context(|| format!("cannot see how much room {} has", folder.display()))?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

fn held_bytes(folder: &Path) -> Result<u64> {
    if !folder.exists() {
        return Ok(0);
    }
    let folder = folder.to_str().context("the target folder's name is no text")?;
    let told = process::run("du", &["--summarize", "--block-size=1", folder])?;
    let (bytes, _) = told.split_once('\t').context("du prints bytes and a name")?;
    Ok(bytes.parse()?)
}
