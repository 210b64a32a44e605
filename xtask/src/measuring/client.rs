//! The programs that measure: our own `linerate bench`, the lean `linerate raw ask`, and two with libiscsi inside,
//! `iscsi-perf` and `qemu-img bench`.
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
#[serde(rename_all = "kebab-case")]
pub(crate) enum Client {
    Linerate,
    /// No block device, no clock for most requests, and never asleep.
    Lean,
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
    /// Where the client says how long requests took.
    pub(crate) latency_us: Option<Latency>,
    /// Microseconds of the server's CPU time for each request, all its threads and the kernel's work for them.
    pub(crate) server_cpu_us_per_io: f64,
    /// The same of the client.
    pub(crate) client_cpu_us_per_io: f64,
    /// Looks for answers that found none, for each request; where the client counts them. One that has none is the
    /// bottleneck itself.
    pub(crate) idle_looks_per_io: Option<f64>,
}

/// How long requests took: this share of them no longer than so many microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

impl Measured {
    /// One for tests: this rate, and so much CPU time of either side for each request.
    #[cfg(test)]
    pub(crate) fn of_rate(iops: f64, cpu_us: f64) -> Measured {
        Measured {
            iops,
            mb_per_s: iops,
            latency_us: None,
            server_cpu_us_per_io: cpu_us,
            client_cpu_us_per_io: cpu_us,
            idle_looks_per_io: None,
        }
    }

    /// How many requests a second of the client's CPU time is enough for.
    pub(crate) fn iops_per_client_cpu(&self) -> f64 {
        1e6 / self.client_cpu_us_per_io
    }

    /// The share of the time that the client's process ran for.
    pub(crate) fn client_busy(&self) -> f64 {
        self.client_cpu_us_per_io * self.iops / 1e6
    }

    /// The share of the time that the server's process ran for.
    pub(crate) fn server_busy(&self) -> f64 {
        self.server_cpu_us_per_io * self.iops / 1e6
    }
}

/// What a client says of its run.
#[derive(Debug, PartialEq)]
struct Report {
    iops: f64,
    ios: u64,
    latency_us: Option<Latency>,
    idle_looks_per_io: Option<f64>,
}

/// Of a [`Client::warm_up`].
pub(crate) const WARM_UP_SECONDS: f64 = 0.2;

impl Client {
    /// As a person would call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Client::Linerate => "linerate bench",
            Client::Lean => "linerate raw ask",
            Client::IscsiPerf => "iscsi-perf",
            Client::QemuImg => "qemu-img bench",
        }
    }

    /// iscsi-perf has no writes, and both with libiscsi inside have one session.
    pub(crate) fn can(self, cell: &Cell) -> bool {
        match self {
            Client::Linerate | Client::Lean => true,
            Client::IscsiPerf => cell.is_read() && cell.sessions == 1,
            Client::QemuImg => cell.sessions == 1,
        }
    }

    /// Asks for a moment as [`Client::measure`] will: what came before is then in no cache.
    pub(crate) fn warm_up(self, cell: &Cell, binary: &std::path::Path, target: &Target) -> Result<()> {
        self.measure(cell, binary, target, WARM_UP_SECONDS).map(drop)
    }

    /// Measures a cell for about so many seconds.
    pub(crate) fn measure(
        self,
        cell: &Cell,
        binary: &std::path::Path,
        target: &Target,
        seconds: f64,
    ) -> Result<Measured> {
        let count = match self {
            Client::QemuImg => requests_of(cell, target, seconds)?,
            Client::Linerate | Client::Lean | Client::IscsiPerf => 0,
        };
        let measured = measured(cell, target, || match self {
            Client::Linerate => bench(cell, target.placement.command(binary), &target.url, seconds),
            Client::Lean => lean(cell, target.placement.command(binary), &target.url, seconds),
            Client::IscsiPerf => iscsi_perf(cell, target, seconds),
            Client::QemuImg => qemu_img(cell, target, count),
        });
        measured.with_context(|| format!("{}, {}", self.name(), cell.name))
    }

    /// Measures a cell with our own client, which makes so many requests a second and no more.
    pub(crate) fn measure_at_rate(
        cell: &Cell,
        binary: &std::path::Path,
        target: &Target,
        rate: u64,
        arrivals: Arrivals,
        seconds: f64,
    ) -> Result<Measured> {
        let mut command = target.placement.command(binary);
        let asking = || {
            bench_arguments(&mut command, cell, &target.url, seconds);
            match arrivals {
                Arrivals::Even => command.args(["--rate", &rate.to_string()]),
                Arrivals::EveryMillisecond => {
                    command.args(["--pause-ms", "1", "--burst", &(rate / 1000).max(1).to_string()])
                }
            };
            our_report(command)
        };
        measured(cell, target, asking).with_context(|| format!("{rate} requests a second"))
    }
}

/// How the requests of a rate are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrivals {
    /// One by one, at equal distances.
    Even,
    /// Those of a millisecond at once, as Iometer's transfer delay makes them.
    EveryMillisecond,
}

/// Both sides' CPU time while a client runs, and what it says.
fn measured(cell: &Cell, target: &Target, client: impl FnOnce() -> Result<Report>) -> Result<Measured> {
    let before = (cpu::of_process(target.server)?, cpu::of_ended_children()?);
    let report = client()?;
    let ios = report.ios.max(1) as f64;
    Ok(Measured {
        iops: report.iops,
        mb_per_s: report.iops * cell.block_bytes as f64 / 1e6,
        latency_us: report.latency_us,
        idle_looks_per_io: report.idle_looks_per_io,
        server_cpu_us_per_io: (cpu::of_process(target.server)? - before.0) * 1e6 / ios,
        client_cpu_us_per_io: (cpu::of_ended_children()? - before.1) * 1e6 / ios,
    })
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

/// What both of ours print with `--json`, as far as it is used here.
#[derive(Debug, Deserialize)]
struct OurReport {
    iops: f64,
    ios: u64,
    errors: u64,
    latency_us: Latency,
    idle_looks_per_io: Option<f64>,
}

fn bench(cell: &Cell, mut command: Command, url: &str, seconds: f64) -> Result<Report> {
    bench_arguments(&mut command, cell, url, seconds);
    our_report(command)
}

fn bench_arguments(command: &mut Command, cell: &Cell, url: &str, seconds: f64) {
    let percent = |is_all: bool| if is_all { "100" } else { "0" };
    command.args(["bench", url, "--json", "--allow-write", "--yes", "--seconds", &seconds.to_string()]);
    command.args(["--block", &cell.block_bytes.to_string(), "--depth", &cell.depth.to_string()]);
    command.args(["--sessions", &cell.sessions.to_string()]);
    command.args(["--read", percent(cell.direction == Direction::Read)]);
    command.args(["--random", percent(cell.places == Places::Random)]);
}

fn lean(cell: &Cell, mut command: Command, url: &str, seconds: f64) -> Result<Report> {
    command.args(["raw", "ask", url, "--json", "--seconds", &seconds.to_string(), "--warm-up", "0"]);
    command.args(["--block", &cell.block_bytes.to_string(), "--depth", &cell.depth.to_string()]);
    command.args(["--sessions", &cell.sessions.to_string(), "--span", &VOLUME_BYTES.to_string()]);
    if cell.direction == Direction::Write {
        command.args(["--write", "--yes"]);
    }
    if cell.places == Places::Random {
        command.arg("--random");
    }
    our_report(command)
}

fn our_report(command: Command) -> Result<Report> {
    let output = process::capture(command)?;
    let report: OurReport = serde_json::from_str(&output).with_context(|| format!("it printed: {output}"))?;
    ensure!(report.errors == 0, "{} requests failed", report.errors);
    let OurReport { iops, ios, latency_us, idle_looks_per_io, .. } = report;
    Ok(Report { iops, ios, latency_us: Some(latency_us), idle_looks_per_io })
}

impl Report {
    /// Of a client that says no more than this.
    fn of_rate(iops: f64, ios: u64) -> Report {
        Report { iops, ios, latency_us: None, idle_looks_per_io: None }
    }
}

/// It counts in whole seconds.
fn iscsi_perf(cell: &Cell, target: &Target, seconds: f64) -> Result<Report> {
    let seconds = seconds.ceil();
    let mut command = target.placement.command("iscsi-perf");
    command.args(["-m", &cell.depth.to_string(), "-b", &(cell.block_bytes / 512).to_string()]);
    command.args(["-t", &seconds.to_string()]);
    if cell.places == Places::Random {
        command.arg("-r");
    }
    command.arg(&target.url);
    let output = process::capture(command)?;
    let iops = average(&output).with_context(|| format!("it printed: {output}"))?;
    Ok(Report::of_rate(iops, (iops * seconds) as u64))
}

/// The last `iops average N` of a line that it prints over and over.
fn average(output: &str) -> Option<f64> {
    let (_, after) = output.rsplit_once("iops average ")?;
    after.split_whitespace().next()?.parse().ok()
}

/// qemu-img wants a number of requests, not of seconds: a first run of a few tells how many those are.
fn requests_of(cell: &Cell, target: &Target, seconds: f64) -> Result<u64> {
    const FIRST: u64 = 2000;
    let report = qemu_img(cell, target, FIRST).context("a first run of qemu-img bench")?;
    Ok(((report.iops * seconds) as u64).max(FIRST))
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
    Ok(Report::of_rate(count as f64 / seconds, count))
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
