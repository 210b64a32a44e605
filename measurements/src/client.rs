//! The programs that measure: our own `linerate bench`, fio, `rbd bench`, two with libiscsi inside
//! (`iscsi-perf` and `qemu-img bench`), two that copy whole exports (`linerate copy` and libnbd's `nbdcopy`), and two that measure
//! this machine alone.
//!
//! Each is measured by the same clock: its rate is what it says itself, its CPU time what the kernel says of the whole process, its
//! start and its login included.

use std::hint::black_box;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use xtask::serving::image::Image;
use xtask::{process, workspace};

use crate::cell::{Beside, Cell};
use crate::figures::{Figure, Figures, complete};
use crate::machine;
use crate::pauses;
use crate::server::{CLIENT_CORE, SERVER_CORE, Site, Target, VOLUME_BYTES};

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
    /// What the storage is put into, at `{}`: `buffered:1MiB:[{}]`.
    layer: Option<String>,
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
    IscsiPerf,
    QemuImg,
    Fio,
    RbdBench,
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
    /// The part of the storage that is used, if not all.
    pub(crate) span: &'a str,
    pub(crate) rate: Option<f64>,
    pub(crate) seconds: f64,
}

/// What a program says of its run.
#[derive(Debug, Default, PartialEq)]
struct Report {
    ios: u64,
    figures: Figures,
}

/// Long enough that what came before is in no cache.
const WARM_UP_SECONDS: f64 = 0.2;

impl Client {
    /// `linerate bench` as it is.
    pub(crate) fn bench_only() -> Vec<Client> {
        let (options, keys, layer, rate, bursts, other_load) = Default::default();
        let name = "bench".to_owned();
        vec![Client { name, program: Program::Bench, options, keys, layer, rate, bursts, other_load }]
    }

    /// iscsi-perf has no writes, neither of both with libiscsi inside more than one session, and who copies goes from the
    /// beginning to the end.
    pub(crate) fn can(&self, cell: &Cell) -> bool {
        match self.program {
            Program::IscsiPerf => cell.is_read() && cell.sessions == 1,
            Program::QemuImg => cell.sessions == 1,
            Program::Copy | Program::Nbdcopy => !cell.is_random,
            _ => true,
        }
    }

    pub(crate) fn measure(&self, asked: Measurement<'_>) -> Result<Figures> {
        let Measurement { cell, rate, seconds, .. } = asked;
        match self.program {
            Program::Crc32c => return Ok(crc32c(cell)),
            Program::Pauses => {
                let rate = rate.context("pauses have no rate of their own")?;
                let capacity = rate / self.rate.as_ref().map_or(1.0, |rate| rate.share);
                return pauses::alone(&[SERVER_CORE, CLIENT_CORE], rate, capacity, seconds);
            }
            _ => {}
        }
        let place = |place: &String| {
            let place = format!("{place}{}", self.keys);
            self.layer.as_ref().map_or(place.clone(), |layer| layer.replace("{}", &place))
        };
        let places = asked.target.places.iter().map(place).collect();
        let target = &Target { places, ..asked.target.clone() };
        let asked = Measurement { target, ..asked };
        // A copy is one of a whole export, and its own warm-up.
        if !matches!(self.program, Program::Copy | Program::Nbdcopy) {
            let _ = self.run(Measurement { seconds: WARM_UP_SECONDS, ..asked }); // an error comes again
        }
        let before = (target.server_cpu_s()?, machine::children_cpu_s()?);
        let Report { ios, mut figures } = self.run(asked)?;
        let us_per_io = |seconds: f64| seconds * 1e6 / ios.max(1) as f64;
        if !target.servers.is_empty() {
            figures.insert(Figure::ServerUsPerIo, us_per_io(target.server_cpu_s()? - before.0));
        }
        figures.insert(Figure::ClientUsPerIo, us_per_io(machine::children_cpu_s()? - before.1));
        complete(&mut figures, cell.block_bytes);
        Ok(figures)
    }

    fn run(&self, asked: Measurement<'_>) -> Result<Report> {
        match self.program {
            Program::Bench => self.bench(asked),
            Program::Fio => self.fio(asked),
            Program::IscsiPerf => iscsi_perf(asked),
            Program::QemuImg => by_count(asked, 2000, qemu_img),
            Program::RbdBench => by_count(asked, 100, rbd_bench),
            Program::Copy | Program::Nbdcopy => copied(self.program, &self.options, asked),
            Program::Crc32c | Program::Pauses => Ok(Report::default()),
        }
    }

    fn bench(
        &self,
        Measurement { cell, target, site, span, rate, seconds }: Measurement<'_>,
    ) -> Result<Report> {
        let start = |place: &String, words: &[String]| -> Result<Child> {
            let mut command = target.placement.command(&site.binary);
            command.args(["--log", "error", "bench", place, "--json", "--allow-write", "--yes"]);
            command.args(["--progress", "none", "--seconds", &seconds.to_string()]).args(words);
            let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            child.with_context(|| format!("starting linerate bench {place}"))
        };
        let mut words = cell.arguments();
        let mut word = |name: &str, value: String| words.extend([name.to_owned(), value]);
        if !span.is_empty() {
            word("--span", span.to_owned());
        }
        match rate.or(cell.rate) {
            Some(rate) if self.bursts => {
                word("--pause-ms", "1".to_owned());
                word("--burst", (rate as u64 / 1000).max(1).to_string());
            }
            Some(rate) => word("--rate", format!("{:.0}", rate.max(1.0))),
            None => {}
        }
        words.extend(self.options.iter().cloned());
        let other = match self.other_load.is_empty() {
            true => None,
            false => Some(start(&target.places[0], &self.other_load)?),
        };
        // Several places at the same time, by a process for each.
        let clients = target.places.iter().map(|place| start(place, &words)).collect::<Result<Vec<_>>>()?;
        let reports: Vec<Result<Report>> = clients.into_iter().map(ours).collect();
        let other = other.map(ours);
        let mut reports = reports.into_iter().collect::<Result<Vec<_>>>()?;
        if let Some(other) = other {
            let other = other.context("the other load")?.figures;
            reports[0].figures.extend(other.get(&Figure::Iops).map(|iops| (Figure::OtherIops, *iops)));
        }
        if reports.len() == 1 {
            return Ok(reports.remove(0));
        }
        let rates: Vec<f64> = reports.iter().map(|report| report.figures[&Figure::Iops]).collect();
        let mut all = of_rate(rates.iter().sum(), reports.iter().map(|report| report.ios).sum());
        all.figures.extend(shares(&rates));
        Ok(all)
    }

    fn fio(&self, Measurement { cell, target, site, seconds, .. }: Measurement<'_>) -> Result<Report> {
        let pattern = match (cell.is_random, cell.is_read()) {
            (true, true) => "randread",
            (true, false) => "randwrite",
            (false, true) => "read",
            (false, false) => "write",
        };
        let mut command = match (target.engine, &site.world) {
            ("rbd", Some(world)) => {
                world.ceph.as_ref().context("a Ceph cluster")?.command(&site.fio.to_string_lossy())
            }
            _ => target.placement.command(&site.fio),
        };
        command.args(["--name=cell", "--output-format=json", "--direct=1", "--time_based"]);
        command.arg(format!("--runtime={}ms", (seconds * 1e3) as u64));
        command.args([&format!("--rw={pattern}"), &format!("--bs={}", cell.block_bytes)]);
        command.args([&format!("--iodepth={}", cell.depth), &format!("--ioengine={}", target.engine)]);
        match target.engine {
            "rbd" => {
                command.args(["--clientname=admin", "--pool=rbd", &format!("--rbdname={}", image(target))])
            }
            engine => {
                let file = if engine == "nbd" { "uri" } else { "filename" };
                command.args([&format!("--size={VOLUME_BYTES}"), &format!("--{file}={}", target.file)])
            }
        };
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

/// Waits for a client of ours.
fn ours(client: Child) -> Result<Report> {
    let output = client.wait_with_output()?;
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    ensure!(output.status.success(), "linerate bench: {}\n{}", output.status, said[1].trim_end());
    said_by_ours(&said[0])
}

fn said_by_ours(output: &str) -> Result<Report> {
    let ours: Ours = serde_json::from_str(output).with_context(|| format!("it printed: {output}"))?;
    ensure!(ours.errors == 0, "{} requests failed", ours.errors);
    let mut figures = Figures::from([(Figure::Iops, ours.iops)]);
    figures.extend(ours.latency_us.figures());
    figures.extend(shares(&ours.clients.iter().map(|thread| thread.iops).collect::<Vec<_>>()));
    Ok(Report { ios: ours.ios, figures })
}

/// How evenly several at the same time were served.
fn shares(rates: &[f64]) -> Figures {
    let Some((jain, last)) = stats::jain(rates).zip(rates.last()) else { return Figures::new() };
    Figures::from([
        (Figure::Jain, jain),
        (Figure::SlowestClient, rates.iter().copied().fold(f64::INFINITY, f64::min)),
        (Figure::FastestClient, rates.iter().copied().fold(0.0, f64::max)),
        (Figure::LastClient, *last),
    ])
}

impl Latency {
    fn figures(&self) -> impl Iterator<Item = (Figure, f64)> {
        let always = [(Figure::P50Us, self.p50), (Figure::P99Us, self.p99)].into_iter();
        let p999 = self.p999.map(|p999| (Figure::P999Us, p999));
        always.chain(p999).chain(self.mean.map(|mean| (Figure::MeanUs, mean)))
    }
}

/// Of a program that says no more than this.
fn of_rate(iops: f64, ios: u64) -> Report {
    Report { ios, figures: Figures::from([(Figure::Iops, iops)]) }
}

/// The word behind the last `mark` of what a program printed, as a number.
fn number_after(output: &str, mark: &str) -> Result<f64> {
    let number =
        output.rsplit_once(mark).and_then(|(_, after)| after.split_whitespace().next()?.parse().ok());
    number.filter(|number| *number > 0.0).with_context(|| format!("it printed: {output}"))
}

/// It counts in whole seconds, and prints one line over and over.
fn iscsi_perf(Measurement { cell, target, seconds, .. }: Measurement<'_>) -> Result<Report> {
    let seconds = seconds.ceil();
    let mut command = target.placement.command("iscsi-perf");
    command.args(["-m", &cell.depth.to_string(), "-b", &(cell.block_bytes / 512).to_string()]);
    command.args(["-t", &seconds.to_string()]).args(cell.is_random.then_some("-r")).arg(&target.places[0]);
    let iops = number_after(&process::capture(command)?, "iops average ")?;
    Ok(of_rate(iops, (iops * seconds) as u64))
}

/// A program that wants a number of requests, not of seconds: a first run of a few tells how many those are.
fn by_count(
    asked: Measurement<'_>,
    first: u64,
    run: fn(Measurement<'_>, u64) -> Result<f64>,
) -> Result<Report> {
    let iops = run(asked, first)?;
    let count = ((iops * asked.seconds) as u64).max(first);
    Ok(of_rate(run(asked, count)?, count))
}

/// Its requests follow each other at a step. One of about 0.618 times the volume, in whole requests, scatters them over
/// all of it as evenly as random places would be, and no two that are near in time are near in place.
fn qemu_img(Measurement { cell, target, .. }: Measurement<'_>, count: u64) -> Result<f64> {
    let blocks = VOLUME_BYTES / cell.block_bytes;
    let step = match cell.is_random {
        true => ((blocks * 618 / 1000) | 1) * cell.block_bytes, // odd: it comes to every block
        false => cell.block_bytes,
    };
    let mut command = target.placement.command("qemu-img");
    command.args(["bench", "-f", "raw", "-t", "none", "-c", &count.to_string()]);
    command.args(["-d", &cell.depth.to_string(), "-s", &cell.block_bytes.to_string()]);
    command.args(["-S", &step.to_string()]);
    command
        .args((!cell.is_read()).then_some(["-w", "--pattern=165"]).into_iter().flatten())
        .args(&target.places);
    Ok(count as f64 / number_after(&process::capture(command)?, "Run completed in ")?)
}

fn rbd_bench(Measurement { cell, target, site, .. }: Measurement<'_>, count: u64) -> Result<f64> {
    let ceph = site.world.as_ref().and_then(|world| world.ceph.as_ref()).context("a Ceph cluster")?;
    let kind = if cell.is_read() { "read" } else { "write" };
    let pattern = if cell.is_random { "rand" } else { "seq" };
    let numbers =
        [cell.block_bytes, cell.depth.into(), count * cell.block_bytes].map(|number| number.to_string());
    let words = ["bench", "--io-type", kind, "--io-pattern", pattern, "--io-size", &numbers[0]];
    let more = ["--io-threads", &numbers[1], "--io-total", &numbers[2], image(target)];
    number_after(&ceph.run("rbd", &[&words[..], &more].concat())?, "ops/sec:")
}

/// The image of `rbd:POOL/IMAGE?KEYS`.
fn image(target: &Target) -> &str {
    let place = target.places[0].split('?').next().unwrap_or_default();
    place.rsplit('/').next().unwrap_or_default()
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
    let FioFlow { iops, total_ios, lat_ns } = if cell.is_read() { job.read } else { job.write };
    let FioLatency { mean, percentile: FioPercentiles { p50, p99 } } = lat_ns;
    let mut report = of_rate(iops, total_ios);
    let latencies = Latency { p50: p50 / 1e3, p99: p99 / 1e3, p999: None, mean: Some(mean / 1e3) };
    report.figures.extend(latencies.figures());
    Ok(report)
}

/// What is written: less than an export, so that a copy into one is about as short as one out of it.
const WRITTEN_BYTES: u64 = 256 << 20;

/// Reads go to nowhere, and what is written comes from a file in memory.
fn copied(program: Program, options: &[String], asked: Measurement<'_>) -> Result<Report> {
    let Measurement { cell, target, seconds, .. } = asked;
    let (bytes, image) = match cell.is_read() {
        true => (VOLUME_BYTES, None),
        false => (WRITTEN_BYTES, Some(Image::in_memory("copied").written(WRITTEN_BYTES)?)),
    };
    let nowhere =
        if program == Program::Nbdcopy { "null:".to_owned() } else { format!("null:{VOLUME_BYTES}") };
    let (from, to) = match &image {
        None => (target.places[0].clone(), nowhere),
        Some(image) => (image.path().display().to_string(), target.places[0].clone()),
    };
    let (block, depth) = (cell.block_bytes.to_string(), cell.depth.to_string());
    let (mut ios, begin) = (0, Instant::now());
    while ios == 0 || begin.elapsed().as_secs_f64() < seconds {
        let mut command: Command;
        if program == Program::Nbdcopy {
            command = target.placement.command("nbdcopy");
            command.args(["--destination-is-zero", "--flush", "--threads=1"]);
            command.args([&format!("--connections={}", cell.sessions), &format!("--requests={depth}")]);
            command.arg(format!("--request-size={block}"));
        } else {
            command = target.placement.command(&asked.site.binary);
            command.args(["copy", "--yes", "--quiet", "--restart", "--depth", &depth, "--request", &block]);
            command.arg("--journal").arg(workspace::target_directory().join("xtask/copies"));
        }
        command.args(options).args([&from, &to]);
        process::capture(command)?;
        ios += bytes / cell.block_bytes;
    }
    Ok(of_rate(ios as f64 / begin.elapsed().as_secs_f64(), ios))
}

/// The fastest of so many slots counts: others on the machine can only make it slower.
const SLOTS: usize = 25;
/// Long beside the clock's own cost.
const SLOT: Duration = Duration::from_micros(400);

/// Sums a second, and how long one takes.
fn crc32c(cell: &Cell) -> Figures {
    let data: Vec<u8> = (0..cell.block_bytes).map(|at| (at * 31 / 7) as u8).collect();
    let seconds = (0..SLOTS).map(|_| slot(&data)).fold(f64::INFINITY, f64::min);
    let mb_per_s = cell.block_bytes as f64 / seconds / 1e6;
    Figures::from([(Figure::Iops, 1.0 / seconds), (Figure::MbPerS, mb_per_s), (Figure::SumNs, seconds * 1e9)])
}

/// Seconds for each sum, over one slot.
fn slot(data: &[u8]) -> f64 {
    const AT_ONCE: u32 = 16;
    let (begun, mut sums) = (Instant::now(), 0);
    while begun.elapsed() < SLOT {
        for _ in 0..AT_ONCE {
            black_box(iscsi::framing::digest(black_box(data)));
        }
        sums += AT_ONCE;
    }
    begun.elapsed().as_secs_f64() / f64::from(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_behind_a_mark_counts() {
        for (output, mark, number) in [
            (
                "\riops average 100 (1 MB/s)\riops average 47255 (184 MB/s)   \n\nfinished.\n",
                "iops average ",
                47255.0,
            ),
            (
                "Sending 2000 requests, 32 in parallel\nRun completed in 0.125 seconds.\n",
                "Run completed in ",
                0.125,
            ),
            (
                "  SEC  OPS  OPS/SEC\nelapsed: 1   ops: 16384   ops/sec: 13810.23   bytes/sec: 54 MiB/s\n",
                "ops/sec:",
                13_810.23,
            ),
        ] {
            assert_eq!(number_after(output, mark).expect("a number"), number);
        }
        assert!(number_after("Run completed in 0.000 seconds.", "Run completed in ").is_err());
        assert!(number_after("rbd: error opening image", "ops/sec:").is_err());
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
        let figures = said_by_ours(said).expect("a report").figures;
        assert_eq!((figures[&Figure::SlowestClient], figures[&Figure::FastestClient]), (10.0, 20.0));
        assert_eq!((figures[&Figure::Jain], figures.get(&Figure::MeanUs)), (0.9, None));
    }
}
