//! Speed and CPU beside tgt, in alternating rounds on the machine at hand.
//!
//! Everything runs in a network namespace made for it, with its own loopback and cubic congestion control: what a
//! machine's default does to a loopback is no property of a target. The server has core 0 for itself, the client
//! core 1; one client measures all. Each server is started afresh in each round, filled, and measured in every cell,
//! while the other is not there.

mod cell;
mod client;
mod namespace;
mod page;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::process;
use crate::serving::Placement;
use crate::serving::linerate::Linerate;
use crate::serving::tgt::Tgt;
use crate::tally::Verdict;
use crate::workspace;
use cell::Cell;
use client::{Client, Measured};
use namespace::Namespace;

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
    /// Who measures; iscsi-perf only reads, and is here as a cross-check
    #[arg(long, value_enum, default_value_t = Client::Linerate)]
    client: Client,
    /// Leave docs/performance.md as it is
    #[arg(long)]
    dry: bool,
}

/// The size of each volume: far larger than any processor's cache.
const VOLUME_BYTES: u64 = 1 << 30;

/// The cores of the server and of the client.
const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;

/// Whose server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Peer {
    Tgt,
    Linerate,
}

/// Everything measured, a list of rounds for each cell and server.
#[derive(Debug)]
struct Results {
    setting: Setting,
    measured: BTreeMap<(&'static str, Peer), Vec<Measured>>,
}

/// What the figures depend on.
#[derive(Debug, Serialize)]
struct Setting {
    machine: String,
    kernel: String,
    /// What else the machine did when it began, in processes that want to run (the load average of a minute).
    load: f64,
    congestion: String,
    rounds: usize,
    seconds: u64,
    client: Client,
    tgt: String,
}

/// Measures, prints the table, writes the page and its numbers. Holds if every cell that has a goal reaches it.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    for program in ["tgtd", "qemu-io", "taskset", "ip"] {
        ensure!(process::installed(program), "{program} is missing: run `cargo xtask packages`");
    }
    let cells = chosen(options)?;
    let binary = workspace::release_binary()?;
    let namespace = Namespace::create()?;
    println!("network namespace {}: {}", namespace.name, namespace.congestion);
    if load() > 0.5 {
        println!("note: something else is running here (load {:.1}); these figures will be too low", load());
    }
    let mut results = Results { setting: setting(options, &namespace), measured: BTreeMap::new() };
    for round in 0..options.rounds {
        for peer in in_turn(round) {
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

/// Who goes first changes with every round, so that a machine that grows slower is unjust to both.
fn in_turn(round: usize) -> [Peer; 2] {
    if round.is_multiple_of(2) { [Peer::Tgt, Peer::Linerate] } else { [Peer::Linerate, Peer::Tgt] }
}

fn chosen(options: &Options) -> Result<Vec<&'static Cell>> {
    let named =
        |cell: &Cell| options.cells.is_empty() || options.cells.iter().any(|text| cell.name.contains(text));
    let possible = |cell: &Cell| cell.is_read() || options.client == Client::Linerate;
    let cells: Vec<&Cell> = cell::ALL.iter().filter(|cell| named(cell) && possible(cell)).collect();
    ensure!(!cells.is_empty(), "no cell has that name: {}", cell::names());
    Ok(cells)
}

fn one_round(
    peer: Peer,
    cells: &[&'static Cell],
    binary: &Path,
    namespace: &Namespace,
    options: &Options,
) -> Result<Vec<(&'static Cell, Measured)>> {
    let here = |core| Placement { namespace: Some(namespace.name.clone()), core: Some(core) };
    let server = Server::start(peer, binary, &here(SERVER_CORE))?;
    let (url, pid) = server.address();
    client::fill(&url, VOLUME_BYTES, &here(CLIENT_CORE))?;
    let measure = |cell: &&'static Cell| {
        let measured =
            client::measure(options.client, cell, binary, &url, pid, options.seconds, &here(CLIENT_CORE))?;
        Ok((*cell, measured))
    };
    cells.iter().map(measure).collect()
}

/// A server of either make, stopped when dropped.
enum Server {
    Tgt(Tgt),
    Linerate(Linerate),
}

impl Server {
    fn start(peer: Peer, binary: &Path, placement: &Placement) -> Result<Server> {
        match peer {
            Peer::Tgt => Tgt::start(VOLUME_BYTES, placement).map(Server::Tgt),
            Peer::Linerate => {
                let volume = format!("ram0=ram:{}MiB", VOLUME_BYTES >> 20);
                Linerate::start(binary, &[volume], 1, placement).map(Server::Linerate)
            }
        }
    }

    /// Its logical unit's URL, and its process.
    fn address(&self) -> (String, u32) {
        match self {
            Server::Tgt(tgt) => (tgt.url(), tgt.pid()),
            Server::Linerate(linerate) => (linerate.url("ram0", 0), linerate.pid()),
        }
    }
}

fn setting(options: &Options, namespace: &Namespace) -> Setting {
    let first_word_after = |file: &str, key: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines()
            .find_map(|line| line.strip_prefix(key))
            .unwrap_or("unknown")
            .trim_start_matches([' ', '\t', ':'])
            .to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    Setting {
        machine: format!("{cores} cores, {}", first_word_after("/proc/cpuinfo", "model name")),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        load: load(),
        congestion: namespace.congestion.clone(),
        rounds: options.rounds,
        seconds: options.seconds,
        client: options.client,
        tgt: Tgt::version(),
    }
}

/// The load average of the last minute.
fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|minute| minute.parse().ok()).unwrap_or(0.0)
}

fn write(cells: &[&'static Cell], results: &Results, options: &Options) -> Result<()> {
    let path = workspace::target_directory().join("peers.json");
    fs::write(&path, page::json(cells, results)?).with_context(|| path.display().to_string())?;
    if !options.dry && options.cells.is_empty() && options.client == Client::Linerate {
        let path = workspace::root().join("docs/performance.md");
        fs::write(&path, page::markdown(cells, results)).with_context(|| path.display().to_string())?;
        println!("wrote {}", path.display());
    }
    Ok(())
}
