//! The measuring programs. Most generate load: `linerate bench`, fio, `rbd bench`, and two that use libiscsi
//! (`iscsi-perf` and `qemu-img bench`). Two copy whole exports (`linerate copy` and libnbd's `nbdcopy`), and
//! two measure only this machine.
//!
//! All are measured in the same way: the program reports the rate, and the kernel reports the CPU time of the
//! whole process, including startup and login.

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
    /// Options of the program.
    #[serde(default)]
    options: Vec<String>,
    /// Keys appended to the URL of a LUN: `?data-digest=crc32c`.
    #[serde(default)]
    keys: String,
    /// Layers above the storage, which replaces `{}`: `buffered:1MiB:[{}]`.
    layer: Option<String>,
    /// Limit on requests per second.
    pub(crate) rate: Option<Rate>,
    /// Send the requests of each millisecond in one burst, as with Iometer's transfer delay.
    #[serde(default)]
    bursts: bool,
    /// Options of a second `linerate bench` that runs at the same time.
    #[serde(default)]
    other_load: Vec<String>,
}

/// A share of the rate of another run in the same round.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rate {
    pub(crate) share: f64,
    pub(crate) of: Beside,
}

/// A measuring program.
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
    /// Measures the time of CRC32C over a cell's bytes in the cache, without storage.
    Crc32c,
    /// Measures the latencies that the machine's pauses alone would cause at the rate, without storage.
    Pauses,
}

/// A cell to measure for about `seconds`, optionally at a limited rate.
#[derive(Clone, Copy)]
pub(crate) struct Measurement<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) target: &'a Target,
    pub(crate) site: &'a Site,
    /// The part of the storage to use; empty for all of it.
    pub(crate) span: &'a str,
    pub(crate) rate: Option<f64>,
    pub(crate) seconds: f64,
}

/// A program's report on its run.
#[derive(Debug, Default, PartialEq)]
struct Report {
    ios: u64,
    figures: Figures,
}

/// Duration of the warm-up: long enough to remove the effects of earlier runs from all caches.
const WARM_UP_SECONDS: f64 = 0.2;

impl Client {
    /// Returns `linerate bench` without options as the only client.
    pub(crate) fn bench_only() -> Vec<Client> {
        let (options, keys, layer, rate, bursts, other_load) = Default::default();
        let name = "bench".to_owned();
        vec![Client {
            name,
            program: Program::Bench,
            options,
            keys,
            layer,
            rate,
            bursts,
            other_load,
        }]
    }

    /// Whether the program supports a cell. iscsi-perf cannot write; the two that use libiscsi have only one session; copies are
    /// sequential.
    pub(crate) fn can(&self, cell: &Cell) -> bool {
        match self.program {
            Program::IscsiPerf => cell.is_read() && cell.sessions == 1,
            Program::QemuImg => cell.sessions == 1,
            Program::Copy | Program::Nbdcopy => !cell.is_random,
            _ => true,
        }
    }

    pub(crate) fn measure(&self, asked: Measurement<'_>) -> Result<Figures> {
        let Measurement {
            cell,
            rate,
            seconds,
            ..
        } = asked;
        match self.program {
            Program::Crc32c => return Ok(crc32c(cell)),
            Program::Pauses => {
                let rate = rate.context("pauses need a rate")?;
                let capacity = rate / self.rate.as_ref().map_or(1.0, |rate| rate.share);
                return pauses::alone(&[SERVER_CORE, CLIENT_CORE], rate, capacity, seconds);
            }
            _ => {}
        }
        let place = |place: &String| {
            let place = format!("{place}{}", self.keys);
            self.layer
                .as_ref()
                .map_or(place.clone(), |layer| layer.replace("{}", &place))
        };
        let places = asked.target.places.iter().map(place).collect();
        let target = &Target {
            places,
            ..asked.target.clone()
        };
        let asked = Measurement { target, ..asked };
        // A copy transfers a whole export, and needs no warm-up.
        if !matches!(self.program, Program::Copy | Program::Nbdcopy) {
            let _ = self.run(Measurement {
                seconds: WARM_UP_SECONDS,
                ..asked
            }); // an error will recur in the measurement
        }
        let before = (target.server_cpu_s()?, machine::children_cpu_s()?);
        let Report { ios, mut figures } = self.run(asked)?;
        let us_per_io = |seconds: f64| seconds * 1e6 / ios.max(1) as f64;
        if !target.servers.is_empty() {
            figures.insert(
                Figure::ServerUsPerIo,
                us_per_io(target.server_cpu_s()? - before.0),
            );
        }
        figures.insert(
            Figure::ClientUsPerIo,
            us_per_io(machine::children_cpu_s()? - before.1),
        );
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
        Measurement {
            cell,
            target,
            site,
            span,
            rate,
            seconds,
        }: Measurement<'_>,
    ) -> Result<Report> {
        let start = |place: &String, words: &[String]| -> Result<Child> {
            let mut command = target.placement.command(&site.binary);
            command.args([
                "--log",
                "error",
                "bench",
                place,
                "--json",
                "--allow-write",
                "--yes",
            ]);
            command
                .args(["--progress", "none", "--seconds", &seconds.to_string()])
                .args(words);
            let child = command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
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
        // Start a process for each place, all concurrently.
        let clients = target
            .places
            .iter()
            .map(|place| start(place, &words))
            .collect::<Result<Vec<_>>>()?;
        let reports: Vec<Result<Report>> = clients.into_iter().map(ours).collect();
        let other = other.map(ours);
        let mut reports = reports.into_iter().collect::<Result<Vec<_>>>()?;
        if let Some(other) = other {
            let other = other.context("the other load")?.figures;
            reports[0].figures.extend(
                other
                    .get(&Figure::Iops)
                    .map(|iops| (Figure::OtherIops, *iops)),
            );
        }
        if reports.len() == 1 {
            return Ok(reports.remove(0));
        }
        let rates: Vec<f64> = reports
            .iter()
            .map(|report| report.figures[&Figure::Iops])
            .collect();
        let mut all = of_rate(
            rates.iter().sum(),
            reports.iter().map(|report| report.ios).sum(),
        );
        all.figures.extend(shares(&rates));
        Ok(all)
    }

    fn fio(
        &self,
        Measurement {
            cell,
            target,
            site,
            seconds,
            ..
        }: Measurement<'_>,
    ) -> Result<Report> {
        let pattern = match (cell.is_random, cell.is_read()) {
            (true, true) => "randread",
            (true, false) => "randwrite",
            (false, true) => "read",
            (false, false) => "write",
        };
        let mut command = match (target.engine, &site.world) {
            ("rbd", Some(world)) => world
                .ceph
                .as_ref()
                .context("a Ceph cluster")?
                .command(&site.fio.to_string_lossy()),
            _ => target.placement.command(&site.fio),
        };
        command.args("--name=cell --output-format=json --direct=1 --time_based".split(' '));
        command.arg(format!("--runtime={}ms", (seconds * 1e3) as u64));
        command.args(format!("--rw={pattern} --bs={}", cell.block_bytes).split(' '));
        command.args([
            &format!("--iodepth={}", cell.depth),
            &format!("--ioengine={}", target.engine),
        ]);
        match target.engine {
            "rbd" => command.args([
                "--clientname=admin",
                "--pool=rbd",
                &format!("--rbdname={}", image(target)),
            ]),
            engine => {
                let file = if engine == "nbd" { "uri" } else { "filename" };
                command.args([
                    &format!("--size={VOLUME_BYTES}"),
                    &format!("--{file}={}", target.file),
                ])
            }
        };
        // As in `linerate bench`, positions can repeat, and each request changes a little of its data
        // (scramble_buffers, fio's default). With refill_buffers, generating data would dominate the
        // measurement.
        command.args("--norandommap --lat_percentiles=1 --clat_percentiles=0".split(' '));
        command.args((target.engine == "null").then_some("--thread")); // otherwise each request would cross processes
        command.args(&self.options);
        fio_said(&process::capture(command)?, cell)
    }
}

/// The parts of the output of `linerate bench --json` that are used here.
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

/// Waits for `linerate bench`, and reads its report.
fn ours(client: Child) -> Result<Report> {
    let output = client.wait_with_output()?;
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    ensure!(
        output.status.success(),
        "linerate bench: {}\n{}",
        output.status,
        said[1].trim_end()
    );
    said_by_ours(&said[0])
}

fn said_by_ours(output: &str) -> Result<Report> {
    let ours: Ours =
        serde_json::from_str(output).with_context(|| format!("it printed: {output}"))?;
    ensure!(ours.errors == 0, "{} requests failed", ours.errors);
    let mut figures = Figures::from([(Figure::Iops, ours.iops)]);
    figures.extend(ours.latency_us.figures());
    figures.extend(shares(
        &ours
            .clients
            .iter()
            .map(|thread| thread.iops)
            .collect::<Vec<_>>(),
    ));
    Ok(Report {
        ios: ours.ios,
        figures,
    })
}

/// Returns figures of fairness among concurrent clients.
fn shares(rates: &[f64]) -> Figures {
    let Some((jain, last)) = stats::jain(rates).zip(rates.last()) else {
        return Figures::new();
    };
    Figures::from([
        (Figure::Jain, jain),
        (
            Figure::SlowestClient,
            rates.iter().copied().fold(f64::INFINITY, f64::min),
        ),
        (
            Figure::FastestClient,
            rates.iter().copied().fold(0.0, f64::max),
        ),
        (Figure::LastClient, *last),
    ])
}

impl Latency {
    fn figures(&self) -> impl Iterator<Item = (Figure, f64)> {
        let always = [(Figure::P50Us, self.p50), (Figure::P99Us, self.p99)].into_iter();
        let p999 = self.p999.map(|p999| (Figure::P999Us, p999));
        always
            .chain(p999)
            .chain(self.mean.map(|mean| (Figure::MeanUs, mean)))
    }
}

/// Returns the report for a program that prints only its rate.
fn of_rate(iops: f64, ios: u64) -> Report {
    Report {
        ios,
        figures: Figures::from([(Figure::Iops, iops)]),
    }
}

/// Returns the number after the last `mark` in the output of a program.
fn number_after(output: &str, mark: &str) -> Result<f64> {
    let number = output
        .rsplit_once(mark)
        .and_then(|(_, after)| after.split_whitespace().next()?.parse().ok());
    number
        .filter(|number| *number > 0.0)
        .with_context(|| format!("it printed: {output}"))
}

/// Runs iscsi-perf, which measures whole seconds and prints the same line repeatedly.
fn iscsi_perf(
    Measurement {
        cell,
        target,
        seconds,
        ..
    }: Measurement<'_>,
) -> Result<Report> {
    let seconds = seconds.ceil();
    let mut command = target.placement.command("iscsi-perf");
    command.args([
        "-m",
        &cell.depth.to_string(),
        "-b",
        &(cell.block_bytes / 512).to_string(),
    ]);
    command
        .args(["-t", &seconds.to_string()])
        .args(cell.is_random.then_some("-r"))
        .arg(&target.places[0]);
    let iops = number_after(&process::capture(command)?, "iops average ")?;
    Ok(of_rate(iops, (iops * seconds) as u64))
}

/// Runs a program that takes a number of requests instead of a duration. A short first run determines the number.
fn by_count(
    asked: Measurement<'_>,
    first: u64,
    run: fn(Measurement<'_>, u64) -> Result<f64>,
) -> Result<Report> {
    let iops = run(asked, first)?;
    let count = ((iops * asked.seconds) as u64).max(first);
    Ok(of_rate(run(asked, count)?, count))
}

/// Runs `qemu-img bench`, which advances by a fixed step. A step of about 0.618 times the volume, in whole
/// requests, spreads requests as evenly as random positions. Requests that are close in time are then far
/// apart on the volume.
fn qemu_img(Measurement { cell, target, .. }: Measurement<'_>, count: u64) -> Result<f64> {
    let blocks = VOLUME_BYTES / cell.block_bytes;
    let step = match cell.is_random {
        true => ((blocks * 618 / 1000) | 1) * cell.block_bytes, // odd, so that it reaches every block
        false => cell.block_bytes,
    };
    let mut command = target.placement.command("qemu-img");
    command.args(["bench", "-f", "raw", "-t", "none", "-c", &count.to_string()]);
    command.args([
        "-d",
        &cell.depth.to_string(),
        "-s",
        &cell.block_bytes.to_string(),
    ]);
    command.args(["-S", &step.to_string()]);
    command
        .args(
            (!cell.is_read())
                .then_some(["-w", "--pattern=165"])
                .into_iter()
                .flatten(),
        )
        .args(&target.places);
    Ok(count as f64 / number_after(&process::capture(command)?, "Run completed in ")?)
}

fn rbd_bench(
    Measurement {
        cell, target, site, ..
    }: Measurement<'_>,
    count: u64,
) -> Result<f64> {
    let ceph = site
        .world
        .as_ref()
        .and_then(|world| world.ceph.as_ref())
        .context("a Ceph cluster")?;
    let kind = if cell.is_read() { "read" } else { "write" };
    let pattern = if cell.is_random { "rand" } else { "seq" };
    let arguments = format!(
        "bench --io-type {kind} --io-pattern {pattern} --io-size {} --io-threads {} --io-total {} {}",
        cell.block_bytes,
        cell.depth,
        count * cell.block_bytes,
        image(target)
    );
    number_after(&ceph.run("rbd", &arguments)?, "ops/sec:")
}

/// Returns the image of `rbd:POOL/IMAGE?KEYS`.
fn image(target: &Target) -> &str {
    let place = target.places[0].split('?').next().unwrap_or_default();
    place.rsplit('/').next().unwrap_or_default()
}

/// The parts of fio's output that are used here.
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
    // fio can print a note before the JSON.
    let begin = output.find('{').unwrap_or(0);
    let report: FioReport =
        serde_json::from_str(&output[begin..]).with_context(|| format!("it printed: {output}"))?;
    let job = report.jobs.into_iter().next().context("fio ran no job")?;
    ensure!(job.error == 0, "fio's error {}", job.error);
    let FioFlow {
        iops,
        total_ios,
        lat_ns,
    } = if cell.is_read() { job.read } else { job.write };
    let FioLatency {
        mean,
        percentile: FioPercentiles { p50, p99 },
    } = lat_ns;
    let mut report = of_rate(iops, total_ios);
    let latencies = Latency {
        p50: p50 / 1e3,
        p99: p99 / 1e3,
        p999: None,
        mean: Some(mean / 1e3),
    };
    report.figures.extend(latencies.figures());
    Ok(report)
}

/// Size of a written copy: smaller than an export, so that writing one takes about as long as reading one.
const WRITTEN_BYTES: u64 = 256 << 20;

/// Runs copies: reads from the export to a null device, or writes to the export from a file in memory.
fn copied(program: Program, options: &[String], asked: Measurement<'_>) -> Result<Report> {
    let Measurement {
        cell,
        target,
        seconds,
        ..
    } = asked;
    let (bytes, image) = match cell.is_read() {
        true => (VOLUME_BYTES, None),
        false => (
            WRITTEN_BYTES,
            Some(Image::in_memory("copied").written(WRITTEN_BYTES)?),
        ),
    };
    let nowhere = if program == Program::Nbdcopy {
        "null:".to_owned()
    } else {
        format!("null:{VOLUME_BYTES}")
    };
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
            command.args([
                &format!("--connections={}", cell.sessions),
                &format!("--requests={depth}"),
            ]);
            command.arg(format!("--request-size={block}"));
        } else {
            command = target.placement.command(&asked.site.binary);
            command.args([
                "copy",
                "--yes",
                "--quiet",
                "--restart",
                "--depth",
                &depth,
                "--request",
                &block,
            ]);
            command
                .arg("--journal")
                .arg(workspace::target_directory().join("xtask/copies"));
        }
        command.args(options).args([&from, &to]);
        process::capture(command)?;
        ios += bytes / cell.block_bytes;
    }
    Ok(of_rate(ios as f64 / begin.elapsed().as_secs_f64(), ios))
}

/// Number of slots. The fastest slot counts, because other work on the machine only slows slots down.
const SLOTS: usize = 25;
/// Duration of a slot, which is long compared with the cost of reading the clock.
const SLOT: Duration = Duration::from_micros(400);

/// Measures the rate of checksums and the time of one checksum.
fn crc32c(cell: &Cell) -> Figures {
    let data: Vec<u8> = (0..cell.block_bytes)
        .map(|at| (at * 31 / 7) as u8)
        .collect();
    let seconds = (0..SLOTS)
        .map(|_| slot(&data))
        .fold(f64::INFINITY, f64::min);
    let mb_per_s = cell.block_bytes as f64 / seconds / 1e6;
    Figures::from([
        (Figure::Iops, 1.0 / seconds),
        (Figure::MbPerS, mb_per_s),
        (Figure::SumNs, seconds * 1e9),
    ])
}

/// Returns the seconds per checksum, over one slot.
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
        let found = [Figure::Iops, Figure::P50Us, Figure::P99Us, Figure::MeanUs]
            .map(|figure| figures[&figure]);
        assert_eq!((ios, found), (7, [7.5, 2.0, 9.0, 3.0]));
        assert!(fio_said("{}", &cell).is_err());
    }

    #[test]
    fn shares_of_client_threads_are_told_by_their_spread() {
        let said = r#"{"iops": 30.0, "ios": 30, "errors": 0, "latency_us": {"p50": 1, "p99": 2, "p999": 3},
            "clients": [{"iops": 10.0}, {"iops": 20.0}]}"#;
        let figures = said_by_ours(said).expect("a report").figures;
        assert_eq!(
            (
                figures[&Figure::SlowestClient],
                figures[&Figure::FastestClient]
            ),
            (10.0, 20.0)
        );
        assert_eq!(
            (figures[&Figure::Jain], figures.get(&Figure::MeanUs)),
            (0.9, None)
        );
    }
}
