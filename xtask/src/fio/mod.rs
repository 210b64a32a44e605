//! `linerate bench` beside fio, in alternating rounds, on the same storage with the same requests: two programs that
//! share no line must agree on rate and latency, or the difference must have a reason.
//!
//! Both go to the same file or device with `O_DIRECT` by io_uring, from the same core, over the same span, with the
//! same depth. What each says of itself is compared; the CPU time is what the kernel says of each process. fio's
//! latency is its `lat`, from the submission to the completion, as ours is.

mod page;
pub(crate) mod storage;
pub(crate) mod tools;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::measuring::cell::{self, Cell, Direction, Places};
use crate::measuring::document;
use crate::measuring::in_turn;
use crate::measuring::machine::Setting;
use crate::measuring::namespace::Namespace;
use crate::measuring::scope::Scope;
use crate::process;
use crate::tally::Verdict;
use crate::workspace;
use storage::{Kind, Storage};
use tools::{Measured, Tool};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    scope: Scope,
    /// Only these kinds of storage
    #[arg(long, value_enum)]
    storage: Vec<Kind>,
    /// Which fio; Debian's has no libiscsi engine
    #[arg(long, value_name = "PROGRAM", default_value = "fio")]
    fio: PathBuf,
}

/// For each figure, if nobody says.
const SECONDS: f64 = 3.0;

/// Everything measured, a list of rounds for each kind of storage, cell and program.
#[derive(Debug)]
struct Results {
    setting: Setting,
    fio: String,
    measured: BTreeMap<(Kind, &'static str, Tool), Vec<Measured>>,
}

/// What both are asked. Enough of both ends: where the device is what takes the time, and where the program is.
const CELLS: &[Cell] = &[
    Cell {
        name: "4 KiB random read, depth 32",
        block_bytes: 4 << 10,
        depth: 32,
        sessions: 1,
        direction: Direction::Read,
        places: Places::Random,
        goal: None,
    },
    Cell {
        name: "4 KiB random read, depth 1",
        block_bytes: 4 << 10,
        depth: 1,
        sessions: 1,
        direction: Direction::Read,
        places: Places::Random,
        goal: None,
    },
    Cell {
        name: "4 KiB random write, depth 32",
        block_bytes: 4 << 10,
        depth: 32,
        sessions: 1,
        direction: Direction::Write,
        places: Places::Random,
        goal: None,
    },
    Cell {
        name: "256 KiB sequential read, depth 8",
        block_bytes: 256 << 10,
        depth: 8,
        sessions: 1,
        direction: Direction::Read,
        places: Places::Sequential,
        goal: None,
    },
    Cell {
        name: "256 KiB sequential write, depth 8",
        block_bytes: 256 << 10,
        depth: 8,
        sessions: 1,
        direction: Direction::Write,
        places: Places::Sequential,
        goal: None,
    },
];

/// Measures, prints the tables, writes the section. It holds if every rate is within 3 % of fio's, or above it.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    for program in ["taskset", "ip", "losetup"] {
        ensure!(process::installed(program), "{program} is missing: run `cargo xtask packages`");
    }
    let cells: Vec<&Cell> = CELLS.iter().filter(|cell| options.scope.has(cell)).collect();
    ensure!(!cells.is_empty(), "no cell has that name: {}", cell::names(CELLS));
    let results = measure(&cells, options)?;
    println!("{}", page::tables(&cells, &results));
    let path = workspace::target_directory().join("fio.json");
    fs::write(&path, page::json(&results)?).with_context(|| path.display().to_string())?;
    if options.scope.is_for_the_page() && options.storage.is_empty() {
        document::write_section("fio", "Beside fio", &page::section(&cells, &results))?;
    }
    Ok(if page::all_agree(&cells, &results) { Verdict::Holds } else { Verdict::Fails })
}

fn measure(cells: &[&'static Cell], options: &Options) -> Result<Results> {
    let binary = workspace::release_binary()?;
    let engines = tools::engines(&options.fio)?;
    let namespace = Namespace::create()?;
    let setting = Setting::look(&namespace, options.scope.rounds, options.scope.seconds(SECONDS));
    let mut results = Results { setting, fio: tools::version(&options.fio)?, measured: BTreeMap::new() };
    let asked = |kind: &Kind| options.storage.is_empty() || options.storage.contains(kind);
    for kind in Kind::ALL.into_iter().filter(asked) {
        if !engines.iter().any(|engine| engine == kind.engine()) {
            println!("skipped: {kind:?}: this fio has no engine {}", kind.engine());
            continue;
        }
        let storage = Storage::prepare(kind, &binary, &options.fio, &namespace)?;
        for round in 0..options.scope.rounds {
            println!("{kind:?}, round {} of {}", round + 1, options.scope.rounds);
            for cell in cells.iter().filter(|cell| kind.takes(cell)) {
                for tool in in_turn(&Tool::ALL, round) {
                    let program = if tool == Tool::Fio { &options.fio } else { &binary };
                    let measured = tool.measure(program, cell, &storage, options.scope.seconds(SECONDS));
                    let measured = measured.with_context(|| format!("{tool:?}, {kind:?}, {}", cell.name))?;
                    results.measured.entry((kind, cell.name, tool)).or_default().push(measured);
                }
            }
        }
    }
    Ok(results)
}
