//! What digests cost: the rate with them as a share of the rate without, of the same server to the same client in
//! alternating rounds; and the sum by itself, by length.

mod cost;
mod page;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::measuring::cell::{Cell, Direction, Places};
use crate::measuring::client::{Client, Measured, Target};
use crate::measuring::document;
use crate::measuring::machine::Setting;
use crate::measuring::namespace::Namespace;
use crate::measuring::scope::Scope;
use crate::measuring::{Server, in_turn};
use crate::process;
use crate::serving::Peer;
use crate::tally::Verdict;
use crate::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    scope: Scope,
}

/// For each figure, if nobody says.
const SECONDS: f64 = 1.0;

/// What a session has agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
enum Digests {
    None,
    Data,
    Both,
}

/// Everything measured, a list of rounds for each cell without digests and with them.
#[derive(Debug)]
struct Results {
    setting: Setting,
    measured: BTreeMap<(&'static str, Digests), Vec<Measured>>,
    costs: Vec<cost::Cost>,
}

/// Digests that are measured over a cell; its goal is the share of the rate that must be left.
#[derive(Debug)]
struct Case {
    cell: Cell,
    digests: Digests,
}

/// Issue 6's: short requests have two headers and little data, long ones only the data's digest counts.
const CASES: &[Case] = &[
    short("4 KiB random read, depth 32", Direction::Read),
    short("4 KiB random write, depth 32", Direction::Write),
    long("64 KiB sequential read, depth 8", 64, 8, Direction::Read),
    long("64 KiB sequential write, depth 8", 64, 8, Direction::Write),
    long("64 KiB sequential read, depth 32", 64, 32, Direction::Read),
    long("64 KiB sequential write, depth 32", 64, 32, Direction::Write),
    long("256 KiB sequential read, depth 32", 256, 32, Direction::Read),
    long("256 KiB sequential write, depth 32", 256, 32, Direction::Write),
];

/// The share of the rate that must be left with digests.
const GOAL: f64 = 0.85;

const fn short(name: &'static str, direction: Direction) -> Case {
    let places = Places::Random;
    Case {
        cell: Cell {
            name,
            block_bytes: 4 << 10,
            depth: 32,
            sessions: 1,
            direction,
            places,
            goal: Some(GOAL),
        },
        digests: Digests::Both,
    }
}

const fn long(name: &'static str, kib: u64, depth: u32, direction: Direction) -> Case {
    let places = Places::Sequential;
    Case {
        cell: Cell { name, block_bytes: kib << 10, depth, sessions: 1, direction, places, goal: Some(GOAL) },
        digests: Digests::Data,
    }
}

impl Digests {
    /// What a URL says for it.
    fn keys(self) -> &'static str {
        match self {
            Digests::None => "",
            Digests::Data => "?data-digest=crc32c",
            Digests::Both => "?header-digest=crc32c&data-digest=crc32c",
        }
    }
}

/// Measures, prints the tables, writes the section and its numbers. Holds if every cell keeps its share.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    for program in ["qemu-io", "taskset", "ip"] {
        ensure!(process::installed(program), "{program} is missing: run `cargo xtask packages`");
    }
    let cases: Vec<&Case> = CASES.iter().filter(|case| options.scope.has(&case.cell)).collect();
    ensure!(!cases.is_empty(), "no cell has that name: {}", names());
    let binary = workspace::release_binary()?;
    let namespace = Namespace::create()?;
    let setting = Setting::look(&namespace, options.scope.rounds, options.scope.seconds(SECONDS));
    let mut results = Results { setting, measured: BTreeMap::new(), costs: cost::measure() };
    for round in 0..options.scope.rounds {
        println!("round {} of {}", round + 1, options.scope.rounds);
        one_round(round, &cases, &binary, &namespace, options.scope.seconds(SECONDS), &mut results)?;
    }
    print!("{}", page::table(&cases, &results));
    write(&cases, &results, options)?;
    let kept =
        cases.iter().all(|case| page::comparison(case, &results).is_none_or(|found| found.is_reached()));
    Ok(if kept { Verdict::Holds } else { Verdict::Fails })
}

fn names() -> String {
    CASES.iter().map(|case| case.cell.name).collect::<Vec<_>>().join("; ")
}

/// One server, and each cell without and with digests one after the other.
fn one_round(
    round: usize,
    cases: &[&'static Case],
    binary: &Path,
    namespace: &Namespace,
    seconds: f64,
    results: &mut Results,
) -> Result<()> {
    let server = Server::start(Peer::Linerate, binary, namespace)?;
    for case in cases {
        for digests in in_turn(&[Digests::None, case.digests], round) {
            let target = server.target();
            let target = Target { url: target.url + digests.keys(), ..target };
            let measured = Client::Linerate.measure(&case.cell, binary, &target, seconds)?;
            results.measured.entry((case.cell.name, digests)).or_default().push(measured);
        }
    }
    Ok(())
}

fn write(cases: &[&'static Case], results: &Results, options: &Options) -> Result<()> {
    let path = workspace::target_directory().join("digests.json");
    fs::write(&path, page::json(cases, results)?).with_context(|| path.display().to_string())?;
    if options.scope.is_for_the_page() {
        document::write_section("digests", "Digests", &page::section(cases, results))?;
    }
    Ok(())
}
