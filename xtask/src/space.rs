//! Checks that the disk has space for a complete test run. A full disk makes correct tests fail.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use xtask::process;
use xtask::workspace;

/// Size of the target directory after a run in a fresh clone (8.5 GB on 2026-11-27), with a margin.
const NEEDED: u64 = 10 * GIB;

/// Additional space for incremental builds.
const INCREMENTAL: u64 = 4 * GIB;

/// With less free space than this, the disk counts as full.
const LITTLE: u64 = GIB;

const GIB: u64 = 1 << 30;

/// Fails if the target directory cannot grow to the size of a complete run.
pub(crate) fn ensure() -> Result<()> {
    let target = workspace::target_directory();
    // Cargo creates the directory and its parents if they do not exist yet.
    let existing = target.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    // A concurrent build can delete files while they are counted; that is not an error.
    let (free, held) = (free_bytes(existing)?, held_bytes(&target).unwrap_or(NEEDED + INCREMENTAL));
    let is_incremental = std::env::var_os("CARGO_INCREMENTAL").is_none_or(|set| set != "0");
    let needed = NEEDED + if is_incremental { INCREMENTAL } else { 0 };
    ensure!(
        free >= LITTLE && free.saturating_add(held) >= needed,
        "{} has {} GiB, and {} GiB are free there; a complete run needs {} GiB: free some space (`cargo clean` deletes the \
         builds), or set CARGO_TARGET_DIR to a directory on another disk",
        target.display(),
        held / GIB,
        free / GIB,
        needed / GIB,
    );
    Ok(())
}

/// A hint for a failure: reports if a disk that the run uses is full.
pub(crate) fn complaint() -> Option<String> {
    let folders = [workspace::target_directory(), std::env::temp_dir()];
    let full = folders.iter().find(|folder| free_bytes(folder).is_ok_and(|free| free < LITTLE))?;
    Some(format!("the disk of {} is full, which alone can make tests fail", full.display()))
}

fn free_bytes(folder: &Path) -> Result<u64> {
    let system = rustix::fs::statvfs(folder)
        .with_context(|| format!("cannot determine the free space of {}", folder.display()))?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

fn held_bytes(folder: &Path) -> Result<u64> {
    if !folder.exists() {
        return Ok(0);
    }
    let folder = folder.to_str().context("the target directory's name is not UTF-8")?;
    let told = process::run("du", &["--summarize", "--block-size=1", folder])?;
    let (bytes, _) = told.split_once('\t').context("du prints bytes and a name")?;
    Ok(bytes.parse()?)
}
