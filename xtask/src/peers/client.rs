//! The programs that measure: our own `linerate bench`, and libiscsi's `iscsi-perf` as a cross-check.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::cell::{Cell, Direction, Places};
use crate::process;
use crate::serving::Placement;

/// Who measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
pub(crate) enum Client {
    Linerate,
    IscsiPerf,
}

/// One run of one cell.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Measured {
    pub(super) iops: f64,
    pub(super) mb_per_s: f64,
    /// Microseconds of the server's CPU time for each request, all its threads and the kernel's work for them.
    pub(super) server_cpu_us_per_io: f64,
    /// The same of the client, where it says so.
    pub(super) client_cpu_us_per_io: Option<f64>,
}

/// What `linerate bench --json` prints, as far as it is used here.
#[derive(Debug, Deserialize)]
struct Report {
    iops: f64,
    mb_per_s: f64,
    ios: u64,
    errors: u64,
    client_cpu_us_per_io: Option<f64>,
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

/// Measures a cell, and the server's CPU time meanwhile.
pub(super) fn measure(
    client: Client,
    cell: &Cell,
    binary: &Path,
    url: &str,
    server: u32,
    seconds: u64,
    placement: &Placement,
) -> Result<Measured> {
    let before = cpu_seconds(server)?;
    let report = match client {
        Client::Linerate => bench(cell, placement.command(binary), url, seconds)?,
        Client::IscsiPerf => iscsi_perf(cell, placement.command("iscsi-perf"), url, seconds)?,
    };
    let used = cpu_seconds(server)? - before;
    anyhow::ensure!(report.errors == 0, "{}: {} requests failed", cell.name, report.errors);
    Ok(Measured {
        iops: report.iops,
        mb_per_s: report.mb_per_s,
        server_cpu_us_per_io: used * 1e6 / (report.ios.max(1) as f64),
        client_cpu_us_per_io: report.client_cpu_us_per_io,
    })
}

fn bench(cell: &Cell, mut command: Command, url: &str, seconds: u64) -> Result<Report> {
    let percent = |is_all: bool| if is_all { "100" } else { "0" };
    command.args(["bench", url, "--json", "--allow-write", "--seconds", &seconds.to_string()]);
    command.args(["--block", &format!("{}KiB", cell.block_bytes >> 10), "--depth", &cell.depth.to_string()]);
    command.args(["--read", percent(cell.direction == Direction::Read)]);
    command.args(["--random", percent(cell.places == Places::Random)]);
    let output = process::capture(command).with_context(|| cell.name.to_owned())?;
    serde_json::from_str(&output).with_context(|| format!("what linerate bench printed: {output}"))
}

fn iscsi_perf(cell: &Cell, mut command: Command, url: &str, seconds: u64) -> Result<Report> {
    command.args(["-m", &cell.depth.to_string(), "-b", &(cell.block_bytes / 512).to_string()]);
    command.args(["-t", &seconds.to_string()]);
    if cell.places == Places::Random {
        command.arg("-r");
    }
    let output = process::capture({
        command.arg(url);
        command
    })?;
    let iops = average(&output).with_context(|| format!("what iscsi-perf printed: {output}"))?;
    let ios = (iops * seconds as f64) as u64;
    let mb_per_s = iops * cell.block_bytes as f64 / 1e6;
    Ok(Report { iops, mb_per_s, ios, errors: 0, client_cpu_us_per_io: None })
}

/// The last `iops average N` of a line that it prints over and over.
fn average(output: &str) -> Option<f64> {
    let (_, after) = output.rsplit_once("iops average ")?;
    after.split_whitespace().next()?.parse().ok()
}

/// The CPU time a process has used, user and system, all its threads (proc(5), fields 14 and 15 of stat).
fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("the server has ended")?;
    let ticks = cpu_ticks(&stat).context("/proc/PID/stat")?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The program's name stands in brackets and may hold anything, brackets and spaces too: fields count from behind it.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 100 0 0 0 42 8 0 0 20 0 3 0 100 1 2";
        assert_eq!(cpu_ticks(stat), Some(50));
    }

    #[test]
    fn iscsi_perfs_last_average_counts() {
        let output = "\riops average 100 (1 MB/s)\riops average 47255 (184 MB/s)   \n\nfinished.\n";
        assert_eq!(average(output), Some(47255.0));
    }
}
