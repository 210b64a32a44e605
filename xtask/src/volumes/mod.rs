//! File volumes by iSCSI: beside a volume in memory where the page cache has the file, beside fio where it is gone past,
//! and beside tgt where io_uring is not to be had. Alternating rounds on the machine at hand.
//!
//! The file on disk is the same for all of ours and for fio; tgt has one in memory (/dev/shm), its best case, and so has
//! ours beside it.

mod page;
mod served;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::fio::storage::{Kind, Storage};
use crate::measuring::cell::{self, Cell, Direction, Places};
use crate::measuring::document;
use crate::measuring::in_turn;
use crate::measuring::machine::Setting;
use crate::measuring::namespace::Namespace;
use crate::measuring::scope::Scope;
use crate::process;
use crate::tally::Verdict;
use crate::workspace;
use served::{Figures, Served, Site};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    scope: Scope,
    /// Only these; a goal is judged if both of its sides are there
    #[arg(long, value_enum)]
    served: Vec<Served>,
    /// Which fio
    #[arg(long, value_name = "PROGRAM", default_value = "fio")]
    fio: PathBuf,
}

/// For each figure, if nobody says.
const SECONDS: f64 = 2.0;

/// Everything measured, a list of rounds for each cell and for each way to serve.
#[derive(Debug)]
struct Results {
    setting: Setting,
    measured: BTreeMap<(&'static str, Served), Vec<Figures>>,
}

/// A floor: what one is to reach of another's rate.
#[derive(Debug)]
struct Goal {
    ours: Served,
    beside: Served,
    at_least: f64,
    /// Only where the name of the cell has this.
    cells: &'static str,
}

const GOALS: &[Goal] = &[
    Goal { ours: Served::Cached, beside: Served::Ram, at_least: 0.8, cells: "4 KiB random read, depth 32" },
    Goal { ours: Served::Memory, beside: Served::Ram, at_least: 0.8, cells: "4 KiB random read, depth 32" },
    Goal { ours: Served::Direct, beside: Served::Fio, at_least: 0.9, cells: "" },
    Goal { ours: Served::CachedThreads, beside: Served::Cached, at_least: 0.6, cells: "" },
    Goal { ours: Served::MemoryThreads, beside: Served::Memory, at_least: 0.6, cells: "" },
    Goal { ours: Served::MemoryThreads, beside: Served::Tgt, at_least: 3.0, cells: "4 KiB random" },
];

const CELLS: &[Cell] = &[
    cell("4 KiB random read, depth 1", 4, 1, Direction::Read, Places::Random),
    cell("4 KiB random read, depth 8", 4, 8, Direction::Read, Places::Random),
    cell("4 KiB random read, depth 32", 4, 32, Direction::Read, Places::Random),
    cell("4 KiB random write, depth 32", 4, 32, Direction::Write, Places::Random),
    cell("64 KiB sequential read, depth 8", 64, 8, Direction::Read, Places::Sequential),
    cell("64 KiB sequential write, depth 8", 64, 8, Direction::Write, Places::Sequential),
    cell("256 KiB sequential read, depth 32", 256, 32, Direction::Read, Places::Sequential),
];

const fn cell(name: &'static str, kib: u64, depth: u32, direction: Direction, places: Places) -> Cell {
    Cell { name, block_bytes: kib << 10, depth, sessions: 1, direction, places, goal: None }
}

/// Measures, prints the tables, writes the section and its numbers. Holds if every goal is reached.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    for program in ["tgtd", "qemu-io", "taskset", "ip"] {
        ensure!(process::installed(program), "{program} is missing: run `cargo xtask packages`");
    }
    let cells: Vec<&Cell> = CELLS.iter().filter(|cell| options.scope.has(cell)).collect();
    ensure!(!cells.is_empty(), "no cell has that name: {}", cell::names(CELLS));
    let results = measure(&cells, options)?;
    println!("{}", page::tables(&cells, &results));
    let path = workspace::target_directory().join("volumes.json");
    fs::write(&path, page::json(&results)?).with_context(|| path.display().to_string())?;
    if options.scope.is_for_the_page() && options.served.is_empty() {
        document::write_section("volumes", "File volumes", &page::section(&cells, &results))?;
    }
    Ok(if page::all_reached(&cells, &results) { Verdict::Holds } else { Verdict::Fails })
}

fn measure(cells: &[&'static Cell], options: &Options) -> Result<Results> {
    let binary = workspace::release_binary()?;
    let namespace = Namespace::create()?;
    let setting = Setting::look(&namespace, options.scope.rounds, options.scope.seconds(SECONDS));
    // On core 1, which takes the disk's interrupts here: where fio is fastest, and where our client has to run.
    let storage = Storage::prepare(Kind::Disk, &binary, &options.fio, &namespace)?;
    let site = Site::new(&binary, &options.fio, &namespace, &storage)?;
    let asked: Vec<Served> = Served::ALL
        .into_iter()
        .filter(|it| options.served.is_empty() || options.served.contains(it))
        .collect();
    let mut results = Results { setting, measured: BTreeMap::new() };
    for round in 0..options.scope.rounds {
        for served in in_turn(&asked, round) {
            println!("round {} of {}: {}", round + 1, options.scope.rounds, served.name());
            let measured = served.measure(cells, &site, options.scope.seconds(SECONDS));
            for (cell, figures) in measured.with_context(|| served.name())? {
                results.measured.entry((cell, served)).or_default().push(figures);
            }
        }
    }
    Ok(results)
}
