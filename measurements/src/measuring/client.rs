//! The programs that measure: our own `linerate bench`, the lean `linerate lab raw-ask`, fio, two with libiscsi inside
//! (`iscsi-perf` and `qemu-img bench`), two that copy (`copying`), and two that measure this machine alone.
//!
//! Each is measured by the same clock: its rate is what it says itself, its CPU time what the kernel says of the whole
//! process, its start and its login included.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::copying::copied;
use super::figures::{Figure, Figures, complete};
use super::server::{CLIENT_CORE, SERVER_CORE, Site, Target, VOLUME_BYTES};
use super::table::{Beside, Cell};
use super::{cpu, crc, pauses};
use xtask::process;

/// A client of a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) program: Program,
    /// Of the program.
    #[serde(default)]
    options: Vec<String>,
    /// What is appended to the URL of a LUN: `?data-digest=crc32c`.
    #[serde(default)]
    keys: String,
    /// It makes no more requests a second than this.
    pub(crate) rate: Option<Rate>,
    /// The requests of a millisecond at once, as Iometer's transfer delay makes them.
    #[serde(default)]
    bursts: bool,
    /// Options of a second `linerate bench` that runs at the same time.
    #[serde(default)]
    other_load: Vec<String>,
}

/// A share of the rate of another run of the same round.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rate {
    pub(crate) share: f64,
    pub(crate) of: Beside,
}

/// Who measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Program {
    Bench,
    /// No block device, no clock for most requests, and never asleep.
    Ask,
    IscsiPerf,
    QemuImg,
    Fio,
    /// `linerate copy` and libnbd's program.
    Copy,
    Nbdcopy,
    /// How long CRC32C takes for a cell's bytes, which are in the cache; no storage.
    Crc32c,
    /// What the machine's pauses alone would do to requests at the rate; no storage.
    Pauses,
}

/// A cell that is measured for about so many seconds, at a rate if there is one.
#[derive(Clone, Copy)]
pub(crate) struct Measurement<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) target: &'a Target,
    pub(crate) site: &'a Site,
    pub(crate) rate: Option<f64>,
    pub(crate) seconds: f64,
}

/// What a program says of its run.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Report {
    ios: u64,
    figures: Figures,
}

/// Long enough that what came before is in no cache.
const WARM_UP_SECONDS: f64 = 0.2;

impl Client {
    /// iscsi-perf has no writes, neither of both with libiscsi inside more than one session, and who copies goes from the
    /// beginning to the end.
    pub(crate) fn can(&self, cell: &Cell) -> bool {
        match self.program {
            Program::IscsiPerf => cell.is_read && cell.sessions == 1,
            Program::QemuImg => cell.sessions == 1,
            Program::Copy | Program::Nbdcopy => !cell.is_random,
            _ => true,
        }
    }

    /// Whole exports, each of which is its own warm-up.
    fn copies(&self) -> bool {
        matches!(self.program, Program::Copy | Program::Nbdcopy)
    }

    pub(crate) fn measure(&self, asked: Measurement<'_>) -> Result<Figures> {
        let Measurement { cell, rate, seconds, .. } = asked;
        match self.program {
            Program::Crc32c => return Ok(crc::measure(cell)),
            Program::Pauses => {
                let rate = rate.context("pauses have no rate of their own")?;
                let capacity = rate / self.rate.as_ref().map_or(1.0, |rate| rate.share);
                return pauses::alone(&[SERVER_CORE, CLIENT_CORE], rate, capacity, seconds);
            }
            _ => {}
        }
        let target =
            &Target { place: format!("{}{}", asked.target.place, self.keys), ..asked.target.clone() };
        let asked = Measurement { target, ..asked };
        if !self.copies() {
            self.run(Measurement { seconds: WARM_UP_SECONDS, ..asked })?;
        }
        let server_s = || target.server.map(cpu::of_process).transpose();
        let before = (server_s()?, cpu::of_ended_children()?);
        let Report { ios, mut figures } = self.run(asked)?;
        let us_per_io = |seconds: f64| seconds * 1e6 / ios.max(1) as f64;
        if let Some((after, before)) = server_s()?.zip(before.0) {
            figures.insert(Figure::ServerUsPerIo, us_per_io(after - before));
        }
        figures.insert(Figure::ClientUsPerIo, us_per_io(cpu::of_ended_children()? - before.1));
        complete(&mut figures, cell);
        Ok(figures)
    }

    fn run(&self, asked: Measurement<'_>) -> Result<Report> {
        match self.program {
            Program::Bench => self.bench(asked),
            Program::Ask => self.ask(asked),
            Program::Fio => self.fio(asked),
            Program::IscsiPerf => iscsi_perf(asked),
            Program::QemuImg => qemu_img(asked),
            Program::Copy | Program::Nbdcopy => copied(self.program, &self.options, asked),
            Program::Crc32c | Program::Pauses => Ok(Report::default()),
        }
    }

    fn bench(&self, Measurement { cell, target, site, rate, seconds }: Measurement<'_>) -> Result<Report> {
        let command = || {
            let mut command = target.placement.command(&site.binary);
            command.args(["bench", &target.place, "--json", "--allow-write", "--yes"]);
            command.args(["--seconds", &seconds.to_string()]);
            command
        };
        let other = (!self.other_load.is_empty()).then(|| {
            let mut other = command();
            other.args(&self.other_load).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
        });
        let percent = |is_all: bool| if is_all { "100" } else { "0" };
        let mut command = command();
        command.args(["--span", &VOLUME_BYTES.to_string()]);
        command.args(["--block", &cell.block_bytes.to_string(), "--depth", &cell.depth.to_string()]);
        command.args(["--sessions", &cell.sessions.to_string(), "--clients", &cell.clients.to_string()]);
        command.args(["--read", percent(cell.is_read), "--random", percent(cell.is_random)]);
        match rate.or(cell.rate) {
            Some(rate) if self.bursts => {
                command.args(["--pause-ms", "1", "--burst", &(rate as u64 / 1000).max(1).to_string()]);
            }
            Some(rate) => {
                command.args(["--rate", &format!("{:.0}", rate.max(1.0))]);
            }
            None => {}
        }
        command.args(&self.options);
        let mut report = ours(&process::capture(command)?)?;
        if let Some(other) = other {
            let output = other?.wait_with_output()?;
            let other = ours(&String::from_utf8_lossy(&output.stdout)).context("the other load")?;
            report.figures.extend(other.figures.get(&Figure::Iops).map(|iops| (Figure::OtherIops, *iops)));
        }
        Ok(report)
    }

    fn ask(&self, Measurement { cell, target, site, seconds, .. }: Measurement<'_>) -> Result<Report> {
        let mut command = target.placement.command(&site.binary);
        command.args([
            "lab",
            "raw-ask",
            &target.place,
            "--json",
            "--seconds",
            &seconds.to_string(),
            "--warm-up",
            "0",
        ]);
        command.args(["--block", &cell.block_bytes.to_string(), "--depth", &cell.depth.to_string()]);
        command.args(["--sessions", &cell.sessions.to_string(), "--span", &VOLUME_BYTES.to_string()]);
        command.args((!cell.is_read).then_some(["--write", "--yes"]).into_iter().flatten());
        command.args(cell.is_random.then_some("--random")).args(&self.options);
        ours(&process::capture(command)?)
    }

    fn fio(&self, Measurement { cell, target, site, seconds, .. }: Measurement<'_>) -> Result<Report> {
        let pattern = match (cell.is_random, cell.is_read) {
            (true, true) => "randread",
            (true, false) => "randwrite",
            (false, true) => "read",
            (false, false) => "write",
        };
        let mut command = target.placement.command(&site.fio);
        command.args(["--name=cell", "--output-format=json", "--direct=1", "--time_based"]);
        command.arg(format!("--runtime={}ms", (seconds * 1e3) as u64));
        command.args([&format!("--rw={pattern}"), &format!("--bs={}", cell.block_bytes)]);
        command.args([&format!("--iodepth={}", cell.depth), &format!("--size={VOLUME_BYTES}")]);
        let file = if target.engine == "nbd" { "uri" } else { "filename" };
        command.args([&format!("--ioengine={}", target.engine), &format!("--{file}={}", target.file)]);
        // Places may come twice, as ours do. Of the data a little is new in each request (scramble_buffers, fio's default),
        // as of ours is; with refill_buffers it would be the making of data that is measured.
        command.args(["--norandommap", "--lat_percentiles=1", "--clat_percentiles=0"]);
        command.args((target.engine == "null").then_some("--thread")); // a process of its own is no part of a request
        command.args(&self.options);
        fio_said(&process::capture(command)?, cell)
    }
}

/// What both of ours print with `--json`, as far as it is used here.
#[derive(Debug, Deserialize)]
struct Ours {
    iops: f64,
    ios: u64,
    errors: u64,
    latency_us: Latency,
    idle_looks_per_io: Option<f64>,
    #[serde(default)]
    clients: Vec<Thread>,
}

#[derive(Debug, Deserialize)]
struct Latency {
    p50: f64,
    p99: f64,
    p999: Option<f64>,
    mean: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Thread {
    iops: f64,
}

fn ours(output: &str) -> Result<Report> {
    let ours: Ours = serde_json::from_str(output).with_context(|| format!("it printed: {output}"))?;
    ensure!(ours.errors == 0, "{} requests failed", ours.errors);
    let mut figures = Figures::from([(Figure::Iops, ours.iops)]);
    figures.extend(ours.latency_us.figures());
    figures.extend(ours.idle_looks_per_io.map(|looks| (Figure::IdlePolls, looks)));
    let shares: Vec<f64> = ours.clients.iter().map(|thread| thread.iops).collect();
    if let Some(jain) = stats::jain(&shares) {
        figures.insert(Figure::Jain, jain);
        figures.insert(Figure::SlowestClient, shares.iter().copied().fold(f64::INFINITY, f64::min));
        figures.insert(Figure::FastestClient, shares.iter().copied().fold(0.0, f64::max));
    }
    Ok(Report { ios: ours.ios, figures })
}

impl Latency {
    fn figures(&self) -> impl Iterator<Item = (Figure, f64)> {
        let always = [(Figure::P50Us, self.p50), (Figure::P99Us, self.p99)].into_iter();
        let p999 = self.p999.map(|p999| (Figure::P999Us, p999));
        always.chain(p999).chain(self.mean.map(|mean| (Figure::MeanUs, mean)))
    }
}

/// Of a program that says no more than this.
pub(super) fn of_rate(iops: f64, ios: u64) -> Report {
    Report { ios, figures: Figures::from([(Figure::Iops, iops)]) }
}

/// It counts in whole seconds.
fn iscsi_perf(Measurement { cell, target, seconds, .. }: Measurement<'_>) -> Result<Report> {
    let seconds = seconds.ceil();
    let mut command = target.placement.command("iscsi-perf");
    command.args(["-m", &cell.depth.to_string(), "-b", &(cell.block_bytes / 512).to_string()]);
    command.args(["-t", &seconds.to_string()]).args(cell.is_random.then_some("-r")).arg(&target.place);
    let output = process::capture(command)?;
    let iops = average(&output).with_context(|| format!("it printed: {output}"))?;
    Ok(of_rate(iops, (iops * seconds) as u64))
}

/// The last `iops average N` of a line that it prints over and over.
fn average(output: &str) -> Option<f64> {
    let (_, after) = output.rsplit_once("iops average ")?;
    after.split_whitespace().next()?.parse().ok()
}

/// It wants a number of requests, not of seconds: a first run of a few tells how many those are.
fn qemu_img(Measurement { cell, target, seconds, .. }: Measurement<'_>) -> Result<Report> {
    const FIRST: u64 = 2000;
    let first = qemu_img_bench(cell, target, FIRST)?;
    let iops = first.figures.get(&Figure::Iops).copied().unwrap_or_default();
    qemu_img_bench(cell, target, ((iops * seconds) as u64).max(FIRST))
}

/// Its requests follow each other at a step. One of about 0.618 times the volume, in whole requests, scatters them over
/// all of it as evenly as random places would be, and no two that are near in time are near in place.
fn qemu_img_bench(cell: &Cell, target: &Target, count: u64) -> Result<Report> {
    let blocks = VOLUME_BYTES / cell.block_bytes;
    let step = match cell.is_random {
        true => ((blocks * 618 / 1000) | 1) * cell.block_bytes, // odd: it comes to every block
        false => cell.block_bytes,
    };
    let mut command: Command = target.placement.command("qemu-img");
    command.args(["bench", "-f", "raw", "-t", "none", "-c", &count.to_string()]);
    command.args(["-d", &cell.depth.to_string(), "-s", &cell.block_bytes.to_string()]);
    command.args(["-S", &step.to_string()]);
    command.args((!cell.is_read).then_some(["-w", "--pattern=165"]).into_iter().flatten()).arg(&target.place);
    let output = process::capture(command)?;
    let seconds = completed_in(&output).with_context(|| format!("it printed: {output}"))?;
    Ok(of_rate(count as f64 / seconds, count))
}

/// `Run completed in 1.234 seconds.`
fn completed_in(output: &str) -> Option<f64> {
    let (_, after) = output.rsplit_once("Run completed in ")?;
    after.split(' ').next()?.parse().ok().filter(|seconds| *seconds > 0.0)
}

/// What fio prints, as far as it is used here.
#[derive(Debug, Deserialize)]
struct FioReport {
    jobs: Vec<FioJob>,
}

#[derive(Debug, Deserialize)]
struct FioJob {
    error: i32,
    read: FioFlow,
    write: FioFlow,
}

#[derive(Debug, Deserialize)]
struct FioFlow {
    iops: f64,
    total_ios: u64,
    lat_ns: FioLatency,
}

#[derive(Debug, Deserialize)]
struct FioLatency {
    mean: f64,
    #[serde(default)]
    percentile: FioPercentiles,
}

#[derive(Debug, Default, Deserialize)]
struct FioPercentiles {
    #[serde(rename = "50.000000")]
    p50: f64,
    #[serde(rename = "99.000000")]
    p99: f64,
}

fn fio_said(output: &str, cell: &Cell) -> Result<Report> {
    // A note may stand in front of it.
    let begin = output.find('{').unwrap_or(0);
    let report: FioReport =
        serde_json::from_str(&output[begin..]).with_context(|| format!("it printed: {output}"))?;
    let job = report.jobs.into_iter().next().context("fio ran no job")?;
    ensure!(job.error == 0, "fio's error {}", job.error);
    let FioFlow { iops, total_ios, lat_ns } = if cell.is_read { job.read } else { job.write };
    let FioLatency { mean, percentile: FioPercentiles { p50, p99 } } = lat_ns;
    let mut report = of_rate(iops, total_ios);
    let latencies = Latency { p50: p50 / 1e3, p99: p99 / 1e3, p999: None, mean: Some(mean / 1e3) };
    report.figures.extend(latencies.figures());
    Ok(report)
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

    #[test]
    fn what_fio_says_of_the_direction_that_was_asked_for_counts() {
        let cell = Cell::try_from("4 KiB random read, depth 32".to_owned()).expect("a cell");
        let flow = |iops: u32| {
            format!(
                r#"{{"iops": {iops}.5, "total_ios": {iops}, "lat_ns": {{"mean": 3000.0,
                    "percentile": {{"50.000000": 2000, "99.000000": 9000}}}}}}"#
            )
        };
        let empty = r#"{"iops": 0.0, "total_ios": 0, "lat_ns": {"mean": 0.0}}"#;
        let said = format!(
            "note: something\n{{\"jobs\": [{{\"error\": 0, \"read\": {}, \"write\": {empty}}}]}}",
            flow(7)
        );
        let Report { ios, figures } = fio_said(&said, &cell).expect("a report");
        let found =
            [Figure::Iops, Figure::P50Us, Figure::P99Us, Figure::MeanUs].map(|figure| figures[&figure]);
        assert_eq!((ios, found), (7, [7.5, 2.0, 9.0, 3.0]));
        assert!(fio_said("{}", &cell).is_err());
    }

    #[test]
    fn shares_of_client_threads_are_told_by_their_spread() {
        let said = r#"{"iops": 30.0, "ios": 30, "errors": 0, "latency_us": {"p50": 1, "p99": 2, "p999": 3},
            "clients": [{"iops": 10.0}, {"iops": 20.0}]}"#;
        let figures = ours(said).expect("a report").figures;
        assert_eq!((figures[&Figure::SlowestClient], figures[&Figure::FastestClient]), (10.0, 20.0));
        assert_eq!((figures[&Figure::Jain], figures.get(&Figure::MeanUs)), (0.9, None));
    }
}
