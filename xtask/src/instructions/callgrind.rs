//! One cell under callgrind: twice, with so many commands and with twice as many, so that what a start costs cancels out.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::cell::{Cell, Counts};
use xtask::process;
use xtask::workspace;

/// Callgrind, and the program that it runs.
pub(super) struct Callgrind {
    program: PathBuf,
    folder: PathBuf,
}

/// Commands of the shorter run: a multiple of all depths, and enough to fill all tables.
const COMMANDS: u64 = 1600;
/// Callgrind looks away in these: they stand for the kernel.
const OUTSIDE: &str = "--toggle-collect=instructions::outside::Outside::*";
/// Callgrind counts a string instruction once for each byte, which says nothing of its cost: libc is to use vectors for
/// lengths up to 256 MiB.
const TUNABLES: &str =
    "glibc.cpu.x86_rep_movsb_threshold=268435456:glibc.cpu.x86_rep_stosb_threshold=268435456";

/// Builds the program that is counted.
pub(crate) fn build() -> Command {
    process::cargo(&["build", "--release", "--package", "linerate-wan", "--example", "instructions"])
}

impl Callgrind {
    /// Builds the program.
    pub(super) fn new() -> Result<Callgrind> {
        process::succeed(build()).context("building the program that is counted")?;
        let target = workspace::target_directory();
        let folder = target.join(format!("xtask/instructions-{}", std::process::id()));
        Ok(Callgrind { program: target.join("release/examples/instructions"), folder })
    }

    /// Instructions for one command.
    pub(super) fn count(&self, cell: &Cell) -> Result<Counts> {
        let (few, many) = (self.total(cell, COMMANDS)?, self.total(cell, 2 * COMMANDS)?);
        let each = |few: u64, many: u64| many.saturating_sub(few).div_ceil(COMMANDS);
        let counts =
            Counts { target: each(few.target, many.target), initiator: each(few.initiator, many.initiator) };
        // Nobody can do it in fewer than a header has bytes; a pattern that matches nothing would look like that.
        ensure!(counts.target > 48 && counts.initiator > 48, "{}: {counts:?} is no count", cell.name());
        Ok(counts)
    }

    /// Of a whole run, start and end included.
    fn total(&self, cell: &Cell, commands: u64) -> Result<Counts> {
        fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        let out = self.folder.join("out");
        let mut command = Command::new("valgrind");
        command
            .env("GLIBC_TUNABLES", TUNABLES)
            .args(["--quiet", "--tool=callgrind", "--separate-threads=yes"])
            .args([OUTSIDE, "--collect-atstart=yes"])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(&self.program)
            .args(cell.arguments(commands));
        process::capture(command)?;
        // The program's main thread is the initiator, the first it makes the target.
        let counts = Counts { initiator: self.thread_total(1)?, target: self.thread_total(2)? };
        fs::remove_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        Ok(counts)
    }

    fn thread_total(&self, thread: u32) -> Result<u64> {
        let path = self.folder.join(format!("out-{thread:02}"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        total(&text).with_context(|| format!("{} has no totals", path.display()))
    }
}

/// What callgrind says at the end of a profile.
fn total(profile: &str) -> Option<u64> {
    profile.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found_behind_the_functions() {
        let profile =
            "# callgrind format\nthread: 2\nevents: Ir\nsummary: 41\n\nfn=(1) main\n12 41\n\ntotals: 41\n";
        assert_eq!(total(profile), Some(41));
        assert_eq!(total("# callgrind format\nsummary: 41\n"), None);
    }
}
