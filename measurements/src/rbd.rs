//! `cargo measure rbd`: requests to an image of Ceph beside those of `rbd bench` and of fio's rbd engine, which use the same library.
//! Writes docs/measured/rbd.md.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::measuring::figures::middle;
use crate::measuring::{cpu, machine};
use xtask::document;
use xtask::process;
use xtask::serving::ceph::Ceph;
use xtask::serving::linerate::Linerate;
use xtask::serving::{Placement, Serving};
use xtask::tally::Verdict;
use xtask::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often each cell is measured
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each measurement takes
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Use this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Leave the page as it is
    #[arg(long)]
    dry: bool,
}

const DEPTH: usize = 32;
const IMAGE_MIB: u64 = 256;
/// The goal: our rate, as a part of the better of the others.
const SHARE_MIN: f64 = 0.9;

/// What is measured, at random offsets.
struct Cell {
    block_bytes: u64,
    is_read: bool,
}

const CELLS: [Cell; 4] = [
    Cell { block_bytes: 4 << 10, is_read: true },
    Cell { block_bytes: 4 << 10, is_read: false },
    Cell { block_bytes: 256 << 10, is_read: true },
    Cell { block_bytes: 256 << 10, is_read: false },
];

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contestant {
    Ours,
    RbdBench,
    Fio,
    /// Our server, and our initiator beside it.
    Served,
}

const CONTESTANTS: [Contestant; 4] =
    [Contestant::Ours, Contestant::RbdBench, Contestant::Fio, Contestant::Served];

impl Contestant {
    fn name(self) -> &'static str {
        match self {
            Contestant::Ours => "`linerate bench rbd:`",
            Contestant::RbdBench => "`rbd bench`",
            Contestant::Fio => "fio's rbd engine",
            Contestant::Served => "`linerate serve`, over iSCSI",
        }
    }
}

/// One measurement; the CPU time is that of the process for a request, or of the server.
#[derive(Clone, Copy)]
struct Run {
    iops: f64,
    cpu_us: f64,
}

pub(crate) fn run(options: &Options) -> Result<Verdict> {
    process::require(&["fio"])?;
    let binary = options.binary.clone().map_or_else(workspace::release_binary, Ok)?;
    let world = World { ceph: Ceph::start()?, binary, seconds: options.seconds };
    for image in ["direct", "served"] {
        let size = format!("{IMAGE_MIB}M");
        world.ceph.run("rbd", &["create", "--size", &size, image])?;
        // Reads find data, and no object is new.
        let fill =
            ["bench", "--io-type", "write", "--io-size", "1M", "--io-threads", "4", "--io-total", &size];
        world.ceph.run("rbd", &[&fill[..], &[image]].concat())?;
    }
    let volume = format!("vol0={}", world.ceph.volume("served", ""));
    let server = Linerate::start(&world.binary, &[volume], 1, &Placement::default())?;
    let mut runs: Vec<[Vec<Run>; CONTESTANTS.len()]> = CELLS.iter().map(|_| Default::default()).collect();
    for round in 0..options.rounds {
        println!("round {} of {}", round + 1, options.rounds);
        for (cell, runs) in CELLS.iter().zip(&mut runs) {
            for turn in 0..CONTESTANTS.len() {
                let who = (turn + round) % CONTESTANTS.len();
                // `rbd bench` is told how much, not how long.
                let guess = runs.iter().flatten().last().map_or(1000.0, |run: &Run| run.iops);
                runs[who].push(world.measure(CONTESTANTS[who], cell, guess, &server)?);
            }
        }
    }
    drop(server);
    let (table, holds) = told(&runs);
    print!("{table}");
    if !options.dry {
        let page = format!(
            "# `cargo measure rbd`\n\n{INTRODUCTION}{table}\nMachine: {}, Linux {}, {}; {} rounds of {} s.\n",
            machine::machine(),
            machine::kernel(),
            world.ceph.run("ceph", &["--version"])?.trim(),
            options.rounds,
            options.seconds
        );
        document::write("rbd", &page)?;
    }
    Ok(Verdict::of(holds))
}

const INTRODUCTION: &str = "Random requests to an image of a Ceph cluster of one node on this machine, whose object server keeps its data in memory: \
the same image, length and depth (32) for our back end, for `rbd bench` and for fio's rbd engine, which all use librbd, and for a server of ours with our \
initiator beside it. Medians of all rounds, which alternate; *ratio* is that of the rate to the better one of `rbd bench` and fio. *CPU* is the time of the process \
(of the server in the last row) for a request; most of it is librbd's, on its own threads. Cluster and clients share the machine's cores. `rbd bench` reads into buffers of the library's \
own; fio and we have it copy what it has read, since its C interface fills the caller's memory.\n\n";

struct World {
    ceph: Ceph,
    binary: PathBuf,
    seconds: f64,
}

impl World {
    fn measure(&self, who: Contestant, cell: &Cell, guess: f64, server: &Linerate) -> Result<Run> {
        let pid = server.process().pid();
        let used = || if who == Contestant::Served { cpu::of_process(pid) } else { cpu::of_ended_children() };
        let before = used()?;
        let (iops, requests) = match who {
            Contestant::Ours => self.by_bench(&self.ceph.volume("direct", ""), cell)?,
            Contestant::Served => self.by_bench(&server.url(), cell)?,
            Contestant::RbdBench => self.by_rbd(cell, guess)?,
            Contestant::Fio => self.by_fio(cell)?,
        };
        Ok(Run { iops, cpu_us: (used()? - before) * 1e6 / requests })
    }

    fn by_bench(&self, storage: &str, cell: &Cell) -> Result<(f64, f64)> {
        let mut command = Command::new(&self.binary);
        let (block, depth) = (cell.block_bytes.to_string(), DEPTH.to_string());
        command.args(["--log", "error", "bench", storage, "--block", &block, "--depth", &depth]);
        command.args(["--read", if cell.is_read { "100" } else { "0" }, "--random", "100"]);
        command.args(["--seconds", &self.seconds.to_string(), "--json", "--progress", "none"]);
        if !cell.is_read {
            command.args(["--allow-write", "--yes"]);
        }
        let said: Value = serde_json::from_str(&process::capture(command)?)?;
        let number = |key: &str| said[key].as_f64().with_context(|| format!("{key} in {said}"));
        ensure!(number("errors")? == 0.0, "{said}");
        Ok((number("iops")?, number("ios")?))
    }

    fn by_rbd(&self, cell: &Cell, guess: f64) -> Result<(f64, f64)> {
        let requests = (guess * self.seconds).max(DEPTH as f64).round();
        let (size, depth) = (cell.block_bytes.to_string(), DEPTH.to_string());
        let total = (requests as u64 * cell.block_bytes).to_string();
        let kind = if cell.is_read { "read" } else { "write" };
        let said = self.ceph.run(
            "rbd",
            &[
                "bench",
                "--io-type",
                kind,
                "--io-size",
                &size,
                "--io-threads",
                &depth,
                "--io-total",
                &total,
                "--io-pattern",
                "rand",
                "direct",
            ],
        )?;
        Ok((rate(&said).with_context(|| said.clone())?, requests))
    }

    fn by_fio(&self, cell: &Cell) -> Result<(f64, f64)> {
        let mut command = self.ceph.command("fio");
        let kind = if cell.is_read { "randread" } else { "randwrite" };
        command.args([
            "--name=rbd",
            "--ioengine=rbd",
            "--clientname=admin",
            "--pool=rbd",
            "--rbdname=direct",
        ]);
        command.args([&format!("--rw={kind}"), &format!("--bs={}", cell.block_bytes)]);
        command.args([&format!("--iodepth={DEPTH}"), &format!("--runtime={}", self.seconds)]);
        command.args(["--time_based", "--output-format=json"]);
        let said = process::capture(command)?;
        let said = said.find('{').map_or("", |at| &said[at..]); // it may say something before
        let said: Value = serde_json::from_str(said).context("fio's JSON")?;
        let side = &said["jobs"][0][if cell.is_read { "read" } else { "write" }];
        let number = |key: &str| side[key].as_f64().with_context(|| format!("{key} in {side}"));
        Ok((number("iops")?, number("total_ios")?))
    }
}

/// What `rbd bench` says at its end: `elapsed: 1   ops: 4096   ops/sec: 3810.23   bytes/sec: 15 MiB/s`.
fn rate(said: &str) -> Option<f64> {
    let line = said.lines().rev().find(|line| line.starts_with("elapsed:"))?;
    line.split("ops/sec:").nth(1)?.split_whitespace().next()?.parse().ok()
}

/// The table, and whether the goal is met.
fn told(runs: &[[Vec<Run>; CONTESTANTS.len()]]) -> (String, bool) {
    let mut text = "| cell | who | rate | ratio | CPU, µs |\n|---|---|---:|---:|---:|\n".to_owned();
    let mut holds = true;
    for (cell, runs) in CELLS.iter().zip(runs) {
        let median = |who: usize, figure: fn(&Run) -> f64| {
            middle(runs[who].iter().map(figure).collect()).unwrap_or(f64::NAN)
        };
        let best = median(1, |run| run.iops).max(median(2, |run| run.iops));
        for (at, who) in CONTESTANTS.into_iter().enumerate() {
            let (iops, cpu_us) = (median(at, |run| run.iops), median(at, |run| run.cpu_us));
            holds &= who != Contestant::Ours || iops >= SHARE_MIN * best;
            let kind = if cell.is_read { "read" } else { "write" };
            let block = cell.block_bytes >> 10;
            let _ = writeln!(
                text,
                "| {block} KiB {kind} | {} | {iops:.0} /s | {:.2} | {cpu_us:.0} |",
                who.name(),
                iops / best
            );
        }
    }
    (text, holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_line() {
        let said = "bench  type read io_size 4096\n  SEC       OPS   OPS/SEC   BYTES/SEC\n    1     14208   14284.3    56 MiB/s\n\
                    elapsed: 1   ops: 16384   ops/sec: 13810.23   bytes/sec: 54 MiB/s\n";
        assert_eq!(rate(said), Some(13_810.23));
        assert_eq!(rate("rbd: error opening image"), None);
    }
}
