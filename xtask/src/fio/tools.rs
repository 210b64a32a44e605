//! Both programs: how each is asked for the same requests, and what it says.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::storage::{Kind, SPAN_BYTES, Storage};
use crate::measuring::cell::{Cell, Direction, Places};
use crate::measuring::cpu;
use crate::process;

/// Who measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Tool {
    /// As anybody calls it: it looks for answers for up to 100 µs before it sleeps.
    Linerate,
    /// With `--poll-us 0`: it sleeps at once, as fio does.
    LinerateAsleep,
    Fio,
}

/// One run of one cell by one program.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Measured {
    pub(crate) iops: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) mean_us: f64,
    /// Microseconds of the program's CPU time for each request, its start included.
    pub(crate) cpu_us_per_io: f64,
}

impl Tool {
    pub(crate) const ALL: [Tool; 3] = [Tool::Linerate, Tool::LinerateAsleep, Tool::Fio];

    /// For the table.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Tool::Linerate => "linerate",
            Tool::LinerateAsleep => "linerate, `--poll-us 0`",
            Tool::Fio => "fio",
        }
    }

    /// Measures a cell for about so long.
    pub(crate) fn measure(
        self,
        program: &Path,
        cell: &Cell,
        storage: &Storage,
        seconds: f64,
    ) -> Result<Measured> {
        let mut command = storage.client().command(program);
        match self {
            Tool::Linerate => ask_linerate(&mut command, cell, storage, seconds),
            Tool::LinerateAsleep => {
                ask_linerate(&mut command, cell, storage, seconds);
                command.args(["--poll-us", "0"]);
            }
            Tool::Fio => ask_fio(&mut command, cell, storage, seconds),
        }
        let before = cpu::of_ended_children()?;
        let said = process::capture(command)?;
        let cpu_s = cpu::of_ended_children()? - before;
        let said = match self {
            Tool::Linerate | Tool::LinerateAsleep => linerate_said(&said),
            Tool::Fio => fio_said(&said, cell),
        };
        let (measured, ios) = said?;
        Ok(Measured { cpu_us_per_io: cpu_s * 1e6 / ios.max(1) as f64, ..measured })
    }
}

fn ask_linerate(command: &mut Command, cell: &Cell, storage: &Storage, seconds: f64) {
    let percent = |is_all: bool| if is_all { "100" } else { "0" };
    command.args(["bench", &storage.for_linerate(), "--json", "--allow-write", "--yes"]);
    command.args(["--seconds", &seconds.to_string(), "--depth", &cell.depth.to_string()]);
    command.args(["--block", &format!("{}KiB", cell.block_bytes >> 10)]);
    command.args(["--span", &format!("{}MiB", SPAN_BYTES >> 20)]);
    command.args(["--read", percent(cell.is_read()), "--random", percent(cell.places == Places::Random)]);
}

fn ask_fio(command: &mut Command, cell: &Cell, storage: &Storage, seconds: f64) {
    let pattern = match (cell.places, cell.direction) {
        (Places::Random, Direction::Read) => "randread",
        (Places::Random, Direction::Write) => "randwrite",
        (Places::Sequential, Direction::Read) => "read",
        (Places::Sequential, Direction::Write) => "write",
    };
    command.args([
        "--name=cell",
        "--output-format=json",
        "--time_based",
        &format!("--runtime={}ms", (seconds * 1e3) as u64),
    ]);
    command.args([&format!("--rw={pattern}"), &format!("--bs={}", cell.block_bytes)]);
    command.args([&format!("--iodepth={}", cell.depth), &format!("--size={SPAN_BYTES}")]);
    command.args([&format!("--ioengine={}", storage.kind.engine()), "--direct=1"]);
    command.arg(format!("--filename={}", storage.for_fio()));
    // Places may come twice, as ours do. Of the data a little is new in each request (scramble_buffers, fio's default), as
    // of ours is; with refill_buffers it would be the making of data that is measured.
    command.args(["--norandommap", "--lat_percentiles=1", "--clat_percentiles=0"]);
    if matches!(storage.kind, Kind::Null) {
        command.arg("--thread"); // what a process of its own costs is no part of a request
    }
}

/// What `linerate bench --json` prints, as far as it is used here.
#[derive(Debug, Deserialize)]
struct OurReport {
    iops: f64,
    ios: u64,
    errors: u64,
    latency_us: OurLatency,
}

#[derive(Debug, Deserialize)]
struct OurLatency {
    p50: f64,
    p99: f64,
    mean: f64,
}

fn linerate_said(output: &str) -> Result<(Measured, u64)> {
    let OurReport { iops, ios, errors, latency_us } =
        serde_json::from_str(output).with_context(|| format!("it printed: {output}"))?;
    ensure!(errors == 0, "{errors} requests failed");
    let OurLatency { p50, p99, mean } = latency_us;
    Ok((Measured { iops, p50_us: p50, p99_us: p99, mean_us: mean, cpu_us_per_io: 0.0 }, ios))
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

fn fio_said(output: &str, cell: &Cell) -> Result<(Measured, u64)> {
    // A note may stand in front of it.
    let begin = output.find('{').unwrap_or(0);
    let report: FioReport =
        serde_json::from_str(&output[begin..]).with_context(|| format!("it printed: {output}"))?;
    let job = report.jobs.into_iter().next().context("fio ran no job")?;
    ensure!(job.error == 0, "fio's error {}", job.error);
    let FioFlow { iops, total_ios, lat_ns } = if cell.is_read() { job.read } else { job.write };
    let FioLatency { mean, percentile: FioPercentiles { p50, p99 } } = lat_ns;
    let measured =
        Measured { iops, p50_us: p50 / 1e3, p99_us: p99 / 1e3, mean_us: mean / 1e3, cpu_us_per_io: 0.0 };
    Ok((measured, total_ios))
}

/// The engines that this fio was built with.
pub(crate) fn engines(fio: &Path) -> Result<Vec<String>> {
    let mut command = Command::new(fio);
    command.arg("--enghelp");
    let said = process::capture(command).context("fio is missing: run `cargo xtask packages`")?;
    Ok(said.split_whitespace().map(str::to_owned).collect())
}

/// What it calls itself: `fio-3.33`.
pub(crate) fn version(fio: &Path) -> Result<String> {
    let mut command = Command::new(fio);
    command.arg("--version");
    process::capture(command).map(|said| said.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::CELLS;

    #[test]
    fn what_fio_says_of_the_direction_that_was_asked_for_counts() {
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
        let (measured, ios) = fio_said(&said, &CELLS[0]).expect("a report");
        assert_eq!((measured.iops, measured.p50_us, measured.p99_us, measured.mean_us), (7.5, 2.0, 9.0, 3.0));
        assert_eq!(ios, 7);
        assert!(fio_said("{}", &CELLS[0]).is_err());
    }
}
