//! Eight sessions over one reactor and over two, at a load that leaves the client room, and at full load.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::json;

use super::goal::Goal;
use super::server::{Server, VOLUME};
use super::workload::{self, Run};
use super::{Found, Site};
use crate::measuring::in_turn;

/// What each of eight sessions does, and how many requests a second are made of all together when load is reduced:
/// about a quarter of what one core can do.
struct Load {
    name: &'static str,
    arguments: &'static str,
    rate: u32,
}

const LOADS: [Load; 9] = [
    Load { name: "4 KiB random read, depth 1", arguments: "--block 4KiB --depth 1", rate: 30_000 },
    Load { name: "4 KiB random read, depth 8", arguments: "--block 4KiB --depth 8", rate: 100_000 },
    Load { name: "4 KiB random read, depth 32", arguments: "--block 4KiB --depth 32", rate: 100_000 },
    Load { name: "4 KiB random write, depth 1", arguments: "--block 4KiB --depth 1 --read 0", rate: 30_000 },
    Load {
        name: "4 KiB random write, depth 32",
        arguments: "--block 4KiB --depth 32 --read 0",
        rate: 100_000,
    },
    Load {
        name: "64 KiB sequential read, depth 8",
        arguments: "--block 64KiB --depth 8 --random 0",
        rate: 15_000,
    },
    Load {
        name: "64 KiB sequential write, depth 8",
        arguments: "--block 64KiB --depth 8 --random 0 --read 0",
        rate: 15_000,
    },
    Load {
        name: "256 KiB sequential read, depth 32",
        arguments: "--block 256KiB --depth 32 --random 0",
        rate: 4000,
    },
    Load {
        name: "256 KiB sequential write, depth 32",
        arguments: "--block 256KiB --depth 32 --random 0 --read 0",
        rate: 4000,
    },
];

/// What two rounds of the same differ by on this kind of machine.
const NOISE: f64 = 0.03;

/// One load's runs, by reactors (one, two).
#[derive(Default)]
struct Runs {
    reduced: [Vec<Run>; 2],
    full: [Vec<Run>; 2],
}

pub(super) fn measure(site: &Site) -> Result<Found> {
    let mut all: Vec<Runs> = LOADS.iter().map(|_| Runs::default()).collect();
    for round in 0..site.rounds {
        for reactors in in_turn(&[1, 2], round) {
            one_round(site, reactors, &mut all)?;
        }
    }
    let mut text = format!(
        "`cargo xtask scale --part cores`: eight sessions of one client thread, over `--reactors 1` and `--reactors 2`, \
         everything on the same two cores. At reduced load the client makes so many requests a second (open loop), about \
         a quarter of what one core can do. At full load three busy threads share two cores, and what a second reactor \
         takes the client misses: that column is here to be seen, no goal. Medians of {} rounds of {} s.\n\n\
         | load | made, 1/s | IOPS, 1 | IOPS, 2 | ratio | p50 µs, 1 and 2 | server CPU µs/IO, 1 and 2 | ratio at full load |\n\
         |---|---:|---:|---:|---:|---|---|---:|\n",
        site.rounds, site.seconds
    );
    let (mut goals, mut figures) = (Vec::new(), Vec::new());
    for (load, runs) in LOADS.iter().zip(&all) {
        let [one, two] = [workload::median(&runs.reduced[0])?, workload::median(&runs.reduced[1])?];
        let full = workload::median(&runs.full[1])?.iops / workload::median(&runs.full[0])?.iops;
        let ratio = two.iops / one.iops;
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {:.0} | {ratio:.3} | {:.1}, {:.1} | {:.2}, {:.2} | {full:.2} |",
            load.name,
            load.rate,
            one.iops,
            two.iops,
            one.p50_us,
            two.p50_us,
            one.server_cpu_us_per_io,
            two.server_cpu_us_per_io,
        );
        goals.push(Goal::at_least(format!("two reactors over one, {}", load.name), ratio, 1.0 - NOISE));
        figures.push(json!({"load": load.name, "reduced": runs.reduced, "full": runs.full}));
    }
    Ok(Found { heading: "Scale: a second core", text, goals, figures: json!(figures) })
}

fn one_round(site: &Site, reactors: usize, all: &mut [Runs]) -> Result<()> {
    let server = Server::start(site, None, &["--volume", VOLUME, "--reactors", &reactors.to_string()])?;
    workload::fill(site, &server)?;
    for (load, runs) in LOADS.iter().zip(all) {
        let workload = format!("{} --sessions 8 --seconds {}", load.arguments, site.seconds);
        let reduced = format!("{workload} --rate {}", load.rate);
        runs.reduced[reactors - 1].push(workload::run(site, &server, None, &reduced)?);
        runs.full[reactors - 1].push(workload::run(site, &server, None, &workload)?);
    }
    Ok(())
}
