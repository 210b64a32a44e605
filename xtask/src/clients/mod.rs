//! Our initiator's speed and CPU beside libiscsi's, in alternating rounds on the machine at hand, against our server,
//! against tgt, and against the raw server, which is never what limits a client.
//!
//! libiscsi is measured by both programs that its users know: `iscsi-perf`, which only reads and lets all reads land in
//! one buffer, and `qemu-img bench`. Neither keeps latencies, makes data or looks at what it read; `linerate bench`
//! takes the time of every request, and all of that is in its CPU time.

mod page;

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};

use crate::measuring::cell::{self, Cell, Direction, Places};
use crate::measuring::client::{Client, Measured};
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
const SECONDS: f64 = 3.0;

/// Everything measured, a list of rounds for each cell, server and client.
#[derive(Debug)]
struct Results {
    setting: Setting,
    measured: BTreeMap<(&'static str, Peer, Client), Vec<Measured>>,
}

const SERVERS: [Peer; 3] = [Peer::Linerate, Peer::Tgt, Peer::RawSpinning];
const CLIENTS: [Client; 3] = [Client::Linerate, Client::IscsiPerf, Client::QemuImg];

/// The cells of the comparison; which figure a goal multiplies, [`page::Figure`] says.
const CELLS: &[Cell] = &[
    Cell {
        name: "4 KiB random read, depth 32",
        block_bytes: 4 << 10,
        depth: 32,
        sessions: 1,
        direction: Direction::Read,
        places: Places::Random,
        goal: Some(1.5),
    },
    Cell {
        name: "4 KiB random write, depth 32",
        block_bytes: 4 << 10,
        depth: 32,
        sessions: 1,
        direction: Direction::Write,
        places: Places::Random,
        goal: Some(1.5),
    },
    Cell {
        name: "4 KiB random read, depth 1",
        block_bytes: 4 << 10,
        depth: 1,
        sessions: 1,
        direction: Direction::Read,
        places: Places::Random,
        goal: Some(1.0),
    },
    Cell {
        name: "4 KiB random write, depth 1",
        block_bytes: 4 << 10,
        depth: 1,
        sessions: 1,
        direction: Direction::Write,
        places: Places::Random,
        goal: Some(1.0),
    },
    Cell {
        name: "256 KiB sequential read, depth 32",
        block_bytes: 256 << 10,
        depth: 32,
        sessions: 1,
        direction: Direction::Read,
        places: Places::Sequential,
        goal: None,
    },
    Cell {
        name: "256 KiB sequential write, depth 32",
        block_bytes: 256 << 10,
        depth: 32,
        sessions: 1,
        direction: Direction::Write,
        places: Places::Sequential,
        goal: None,
    },
];

/// Measures, prints the tables, writes the section and its numbers. Holds if every goal is reached beside every client
/// and against both servers.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    for program in ["tgtd", "qemu-io", "qemu-img", "iscsi-perf", "taskset", "ip"] {
        ensure!(process::installed(program), "{program} is missing: run `cargo xtask packages`");
    }
    let cells: Vec<&Cell> = CELLS.iter().filter(|cell| options.scope.has(cell)).collect();
    ensure!(!cells.is_empty(), "no cell has that name: {}", cell::names(CELLS));
    let results = measure(&cells, options)?;
    for server in SERVERS {
        println!("{server:?}:\n{}", page::table(&cells, server, &results));
    }
    write(&cells, &results, options)?;
    Ok(if page::all_reached(&cells, &results) { Verdict::Holds } else { Verdict::Fails })
}

fn measure(cells: &[&'static Cell], options: &Options) -> Result<Results> {
    let binary = workspace::release_binary()?;
    let namespace = Namespace::create()?;
    let setting = Setting::look(&namespace, options.scope.rounds, options.scope.seconds(SECONDS));
    let mut results = Results { setting, measured: BTreeMap::new() };
    for round in 0..options.scope.rounds {
        for peer in in_turn(&SERVERS, round) {
            println!("round {} of {}: {peer:?}", round + 1, options.scope.rounds);
            let server = Server::start(peer, &binary, &namespace)?;
            for cell in cells {
                for client in in_turn(&CLIENTS, round).into_iter().filter(|client| client.can(cell)) {
                    let measured =
                        client.measure(cell, &binary, &server.target(), options.scope.seconds(SECONDS))?;
                    results.measured.entry((cell.name, peer, client)).or_default().push(measured);
                }
            }
        }
    }
    Ok(results)
}

fn write(cells: &[&'static Cell], results: &Results, options: &Options) -> Result<()> {
    let path = workspace::target_directory().join("clients.json");
    fs::write(&path, page::json(cells, results)?).with_context(|| path.display().to_string())?;
    if options.scope.is_for_the_page() {
        document::write_section(
            "clients",
            "The initiator beside libiscsi",
            &page::section(cells, results),
        )?;
    }
    Ok(())
}
