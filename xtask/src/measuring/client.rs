//! The programs that measure: our own `linerate bench`, and two with libiscsi inside, `iscsi-perf` and
//! `qemu-img bench`.
//!
//! Each is measured by the same clock: its rate is what it says itself, its CPU time what the kernel says of the whole
//! process, its start and its login included.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::cell::{Cell, Direction, Places};
use super::{VOLUME_BYTES, cpu};
use crate::process;
use crate::serving::Placement;

/// Who measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
pub(crate) enum Client {
    Linerate,
    IscsiPerf,
    QemuImg,
}

/// Whom it measures, and from where.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) url: String,
    /// The server's process.
    pub(crate) server: u32,
    /// Where the client runs.
    pub(crate) placement: Placement,
}

/// One run of one cell.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) iops: f64,
    pub(crate) mb_per_s: f64,
    /// Microseconds of the server's CPU time for each request, all its threads and the kernel's work for them.
    pub(crate) server_cpu_us_per_io: f64,
    /// The same of the client.
    pub(crate) client_cpu_us_per_io: f64,
}

impl Measured {
    /// How many requests a second of the client's CPU time is enough for.
    pub(crate) fn iops_per_client_cpu(&self) -> f64 {
        1e6 / self.client_cpu_us_per_io
    }
}

/// What a client says of its run.
#[derive(Debug, PartialEq)]
struct Report {
    iops: f64,
    ios: u64,
}

impl Client {
    /// As a person would call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Client::Linerate => "linerate bench",
            Client::IscsiPerf => "iscsi-perf",
            Client::QemuImg => "qemu-img bench",
        }
    }

    /// iscsi-perf has no writes.
    pub(crate) fn can(self, cell: &Cell) -> bool {
        self != Client::IscsiPerf || cell.is_read()
    }

    /// Measures a cell for about so long.
    pub(crate) fn measure(
        self,
        cell: &Cell,
        binary: &std::path::Path,
        target: &Target,
        seconds: u64,
    ) -> Result<Measured> {
        let count = match self {
            Client::QemuImg => requests_of(cell, target, seconds)?,
            Client::Linerate | Client::IscsiPerf => 0,
        };
        let before = (cpu::of_process(target.server)?, cpu::of_ended_children()?);
        let report = match self {
            Client::Linerate => bench(cell, target.placement.command(binary), &target.url, seconds),
            Client::IscsiPerf => iscsi_perf(cell, target, seconds),
            Client::QemuImg => qemu_img(cell, target, count),
        };
        let report = report.with_context(|| format!("{}, {}", self.name(), cell.name))?;
        let ios = report.ios.max(1) as f64;
        Ok(Measured {
            iops: report.iops,
            mb_per_s: report.iops * cell.block_bytes as f64 / 1e6,
            server_cpu_us_per_io: (cpu::of_process(target.server)? - before.0) * 1e6 / ios,
            client_cpu_us_per_io: (cpu::of_ended_children()? - before.1) * 1e6 / ios,
        })
    }
}

/// Writes the whole volume, so that no server reads holes; with QEMU's initiator, which is neither's.
pub(super) fn fill(url: &str, bytes: u64, placement: &Placement) -> Result<()> {
    const PIECE_MIB: u64 = 256; // qemu-io holds it in memory
    let mut command = placement.command("qemu-io");
    command.args(["--format", "raw"]);
    for at in (0..bytes >> 20).step_by(PIECE_MIB as usize) {
        command.args(["-c", &format!("write -q -P 90 {at}M {PIECE_MIB}M")]);
    }
    command.arg(url);
    process::capture(command).context("filling the volume").map(drop)
}

/// What `linerate bench --json` prints, as far as it is used here.
#[derive(Debug, Deserialize)]
struct BenchReport {
    iops: f64,
    ios: u64,
    errors: u64,
}

fn bench(cell: &Cell, mut command: Command, url: &str, seconds: u64) -> Result<Report> {
    let percent = |is_all: bool| if is_all { "100" } else { "0" };
    command.args(["bench", url, "--json", "--allow-write", "--yes", "--seconds", &seconds.to_string()]);
    command.args(["--block", &format!("{}KiB", cell.block_bytes >> 10), "--depth", &cell.depth.to_string()]);
    command.args(["--read", percent(cell.direction == Direction::Read)]);
    command.args(["--random", percent(cell.places == Places::Random)]);
    let output = process::capture(command)?;
    let report: BenchReport =
        serde_json::from_str(&output).with_context(|| format!("it printed: {output}"))?;
    ensure!(report.errors == 0, "{} requests failed", report.errors);
    Ok(Report { iops: report.iops, ios: report.ios })
}

fn iscsi_perf(cell: &Cell, target: &Target, seconds: u64) -> Result<Report> {
    let mut command = target.placement.command("iscsi-perf");
    command.args(["-m", &cell.depth.to_string(), "-b", &(cell.block_bytes / 512).to_string()]);
    command.args(["-t", &seconds.to_string()]);
    if cell.places == Places::Random {
        command.arg("-r");
    }
    command.arg(&target.url);
    let output = process::capture(command)?;
    let iops = average(&output).with_context(|| format!("it printed: {output}"))?;
    Ok(Report { iops, ios: (iops * seconds as f64) as u64 })
}

/// The last `iops average N` of a line that it prints over and over.
fn average(output: &str) -> Option<f64> {
    let (_, after) = output.rsplit_once("iops average ")?;
    after.split_whitespace().next()?.parse().ok()
}

/// qemu-img wants a number of requests, not of seconds: a first run of a few tells how many those are.
fn requests_of(cell: &Cell, target: &Target, seconds: u64) -> Result<u64> {
    const FIRST: u64 = 2000;
    let report = qemu_img(cell, target, FIRST).context("a first run of qemu-img bench")?;
    Ok(((report.iops * seconds as f64) as u64).max(FIRST))
}

/// Its requests follow each other at a step. One of about 0.618 times the volume, in whole requests, scatters them over
/// all of it as evenly as random places would be, and no two that are near in time are near in place.
fn qemu_img(cell: &Cell, target: &Target, count: u64) -> Result<Report> {
    let blocks = VOLUME_BYTES / cell.block_bytes;
    let step = match cell.places {
        Places::Random => ((blocks * 618 / 1000) | 1) * cell.block_bytes, // odd: it comes to every block
        Places::Sequential => cell.block_bytes,
    };
    let mut command = target.placement.command("qemu-img");
    command.args(["bench", "-f", "raw", "-t", "none", "-c", &count.to_string()]);
    command.args(["-d", &cell.depth.to_string(), "-s", &cell.block_bytes.to_string()]);
    command.args(["-S", &step.to_string()]);
    if cell.direction == Direction::Write {
        command.args(["-w", "--pattern=165"]);
    }
    command.arg(&target.url);
    let output = process::capture(command)?;
    let seconds = completed_in(&output).with_context(|| format!("it printed: {output}"))?;
    Ok(Report { iops: count as f64 / seconds, ios: count })
}

/// `Run completed in 1.234 seconds.`
fn completed_in(output: &str) -> Option<f64> {
    let (_, after) = output.rsplit_once("Run completed in ")?;
    after.split(' ').next()?.parse().ok().filter(|seconds| *seconds > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iscsi_perfs_last_average_counts() {
        let output = "\riops average 100 (1 MB/s)\riops average 47255 (184 MB/s)   \n\nfinished.\n";
        assert_eq!(average(output), Some(47255.0));
    }

    #[test]
    fn qemu_img_says_how_long_it_took() {
        let output =
            "Sending 2000 read requests, 4096 bytes each, 32 in parallel\nRun completed in 0.125 seconds.\n";
        assert_eq!(completed_in(output), Some(0.125));
        assert_eq!(completed_in("Run completed in 0.000 seconds."), None);
    }
}
