//! Runs of `linerate bench` against a server, and what they came to.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::Site;
use super::server::{Server, place};
use crate::measuring::cpu;
use crate::measuring::figures::middle;

/// What `linerate bench --json` prints, as far as it is used here.
#[derive(Debug, Deserialize)]
struct Report {
    iops: f64,
    ios: u64,
    errors: u64,
    latency_us: Latency,
    #[serde(default)]
    clients: Vec<Client>,
}

#[derive(Debug, Deserialize)]
struct Latency {
    p50: f64,
    p99: f64,
    p999: f64,
}

#[derive(Debug, Deserialize)]
struct Client {
    iops: f64,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) iops: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) server_cpu_us_per_io: f64,
    pub(super) client_cpu_us_per_io: f64,
    /// IOPS of each client thread, where there are several.
    pub(super) shares: Vec<f64>,
}

/// The median of each figure by itself; shares stay with the rounds.
pub(super) fn median(runs: &[Run]) -> Result<Run> {
    let of = |figure: fn(&Run) -> f64| middle(runs.iter().map(figure).collect()).context("no rounds");
    Ok(Run {
        iops: of(|run| run.iops)?,
        p50_us: of(|run| run.p50_us)?,
        p99_us: of(|run| run.p99_us)?,
        p999_us: of(|run| run.p999_us)?,
        server_cpu_us_per_io: of(|run| run.server_cpu_us_per_io)?,
        client_cpu_us_per_io: of(|run| run.client_cpu_us_per_io)?,
        shares: Vec::new(),
    })
}

/// Writes all of [`super::server::VOLUME`], so that nobody reads holes.
pub(super) fn fill(site: &Site, server: &Server) -> Result<()> {
    run(site, server, None, "--block 1MiB --depth 8 --read 0 --random 0 --seconds 1").map(drop)
}

/// Runs a workload given by arguments of `bench`, and counts the CPU time of both sides.
pub(super) fn run(site: &Site, server: &Server, core: Option<usize>, arguments: &str) -> Result<Run> {
    let before = (cpu::of_process(server.pid())?, cpu::of_ended_children()?);
    let report = read(begin(site, server, core, arguments)?, arguments)?;
    let ios = report.ios.max(1) as f64;
    Ok(Run {
        iops: report.iops,
        p50_us: report.latency_us.p50,
        p99_us: report.latency_us.p99,
        p999_us: report.latency_us.p999,
        server_cpu_us_per_io: (cpu::of_process(server.pid())? - before.0) * 1e6 / ios,
        client_cpu_us_per_io: (cpu::of_ended_children()? - before.1) * 1e6 / ios,
        shares: report.clients.iter().map(|client| client.iops).collect(),
    })
}

/// Runs two at the same time; IOPS and shares of both.
pub(super) fn run_both(
    site: &Site,
    server: &Server,
    core: Option<usize>,
    arguments: [&str; 2],
) -> Result<[f64; 2]> {
    let first = begin(site, server, core, arguments[0])?;
    let second = begin(site, server, core, arguments[1])?;
    Ok([read(first, arguments[0])?.iops, read(second, arguments[1])?.iops])
}

/// Begins a workload in the background.
pub(super) fn begin(site: &Site, server: &Server, core: Option<usize>, arguments: &str) -> Result<Child> {
    let mut command = bench(site, server, core);
    command.args(arguments.split(' ')).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().with_context(|| format!("linerate bench {arguments}"))
}

fn bench(site: &Site, server: &Server, core: Option<usize>) -> Command {
    let mut command = place(site, core);
    command.args(["bench", &server.url("ram0", 0), "--json", "--allow-write", "--yes"]);
    command
}

fn read(child: Child, arguments: &str) -> Result<Report> {
    let output = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "linerate bench {arguments}: {}", errors.trim_end());
    let report: Report = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("it printed: {}", String::from_utf8_lossy(&output.stdout)))?;
    ensure!(report.errors == 0, "{} requests failed", report.errors);
    Ok(report)
}
