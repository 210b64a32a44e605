//! Our server's speed and CPU beside tgt's, in alternating rounds on the machine at hand; one client measures both.

mod page;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::measuring::cell::{self, Cell, Direction, Places};
use crate::measuring::client::{Client, Measured};
use crate::measuring::document::{self, Page};
use crate::measuring::machine::Setting;
use crate::measuring::namespace::Namespace;
use crate::measuring::{Server, in_turn};
use crate::process;
use crate::serving::Peer;
use crate::tally::Verdict;
use crate::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only cells whose name contains this; may be repeated
    #[arg(long, value_name = "TEXT")]
    cells: Vec<String>,
    /// Rounds; each figure is the median of them
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds for each cell in each round
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Who measures; iscsi-perf only reads; the others are here as a cross-check
    #[arg(long, value_enum, default_value_t = Client::Linerate)]
    client: Client,
    /// Leave docs/performance.md as it is
    #[arg(long)]
    dry: bool,
}

/// Everything measured, a list of rounds for each cell and server.
#[derive(Debug)]
struct Results {
    setting: Setting,
    measured: BTreeMap<(&'static str, Peer), Vec<Measured>>,
}

/// The cells of the comparison; the goals are multiples of tgt's rate, with no more CPU per request. They are half to
/// two thirds of what SPDK reaches by polling (6.5 and 2.45 times tgt on this kind of machine).
const CELLS: &[Cell] = &[
    Cell {
        name: "4 KiB random read, depth 32",
        block_bytes: 4 << 10,
        depth: 32,
        direction: Direction::Read,
        places: Places::Random,
        goal: Some(4.0),
    },
    Cell {
        name: "256 KiB sequential read, depth 32",
        block_bytes: 256 << 10,
        depth: 32,
        direction: Direction::Read,
        places: Places::Sequential,
        goal: Some(2.0),
    },
    Cell {
        name: "4 KiB random read, depth 1",
        block_bytes: 4 << 10,
        depth: 1,
        direction: Direction::Read,
        places: Places::Random,
        goal: None,
    },
    Cell {
        name: "4 KiB random write, depth 32",
        block_bytes: 4 << 10,
        depth: 32,
        direction: Direction::Write,
        places: Places::Random,
        goal: None,
    },
    Cell {
        name: "64 KiB sequential write, depth 8",
        block_bytes: 64 << 10,
        depth: 8,
        direction: Direction::Write,
        places: Places::Sequential,
        goal: None,
    },
];

/// Measures, prints the table, writes the page and its numbers. Holds if every cell that has a goal reaches it.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    for program in ["tgtd", "qemu-io", "taskset", "ip"] {
        ensure!(process::installed(program), "{program} is missing: run `cargo xtask packages`");
    }
    let cells = chosen(options)?;
    let binary = workspace::release_binary()?;
    let namespace = Namespace::create()?;
    let setting = Setting::look(&namespace, options.rounds, options.seconds);
    let mut results = Results { setting, measured: BTreeMap::new() };
    for round in 0..options.rounds {
        for peer in in_turn(&[Peer::Tgt, Peer::Linerate], round) {
            println!("round {} of {}: {peer:?}", round + 1, options.rounds);
            for (cell, measured) in one_round(peer, &cells, &binary, &namespace, options)? {
                results.measured.entry((cell.name, peer)).or_default().push(measured);
            }
        }
    }
    print!("{}", page::table(&cells, &results));
    write(&cells, &results, options)?;
    let reached =
        cells.iter().all(|cell| page::comparison(cell, &results).is_none_or(|found| found.is_reached()));
    Ok(if reached { Verdict::Holds } else { Verdict::Fails })
}

fn chosen(options: &Options) -> Result<Vec<&'static Cell>> {
    let wanted = |cell: &&Cell| cell.is_named(&options.cells) && options.client.can(cell);
    let cells: Vec<&Cell> = CELLS.iter().filter(wanted).collect();
    ensure!(!cells.is_empty(), "no cell has that name: {}", cell::names(CELLS));
    Ok(cells)
}

fn one_round(
    peer: Peer,
    cells: &[&'static Cell],
    binary: &Path,
    namespace: &Namespace,
    options: &Options,
) -> Result<Vec<(&'static Cell, Measured)>> {
    let server = Server::start(peer, binary, namespace)?;
    let target = server.target();
    let measure =
        |cell: &&'static Cell| Ok((*cell, options.client.measure(cell, binary, &target, options.seconds)?));
    cells.iter().map(measure).collect()
}

fn write(cells: &[&'static Cell], results: &Results, options: &Options) -> Result<()> {
    let path = workspace::target_directory().join("peers.json");
    fs::write(&path, page::json(cells, results)?).with_context(|| path.display().to_string())?;
    if !options.dry && options.cells.is_empty() && options.client == Client::Linerate {
        document::write_section(Page::Performance, "The server beside tgt", &page::section(cells, results))?;
    }
    Ok(())
}
