//! `cargo measure gateway`: document 003's configuration, an IP SAN on one side and another storage network on the other. Writes
//! docs/measured/gateway.md.
//!
//! ```text
//!   client ── link 0 ── gateway ──┬── link 1 ──┬── store
//!      │                          └── link 2 ──┘     │
//!      └──────────────── link 3 ─────────────────────┘   (served and attached without a gateway)
//! ```

use std::fmt::{self, Write as _};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::measuring::figures::middle;
use crate::measuring::network::Network;
use crate::measuring::server::{CLIENT_CORE, SERVER_CORE};
use crate::measuring::{cpu, machine, usage};
use xtask::document;
use xtask::process::{self, Background};
use xtask::tally::Verdict;
use xtask::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often each cell is measured
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each measurement takes
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only cells whose name contains this, as in `512 B write`; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Use this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Leave the page as it is
    #[arg(long)]
    dry: bool,
}

const LINK_BITS: f64 = 1e9;
/// A server's port for NBD comes so far behind that for iSCSI.
const NBD_BEHIND: u16 = 10810 - 3260;
const VOLUME_BYTES: u64 = 256 << 20;
/// Document 003, appendix A.
const DEPTH: &str = "6";
/// The goal for the CPU time of a gateway, as a multiple of serving and attaching.
const CPU_MAX: f64 = 1.6;

/// What is measured: the length of a request, the share of reads in percent, and document 003's figure for it: MiB/s, or with 512
/// bytes requests a second (figures 4 to 9).
struct Cell {
    block_bytes: u64,
    reads: u32,
    published: f64,
}

const CELLS: [Cell; 9] = [
    Cell { block_bytes: 64 << 10, reads: 100, published: 113.0 },
    Cell { block_bytes: 64 << 10, reads: 0, published: 113.0 },
    Cell { block_bytes: 64 << 10, reads: 50, published: 210.0 },
    Cell { block_bytes: 1 << 20, reads: 100, published: 113.0 },
    Cell { block_bytes: 1 << 20, reads: 0, published: 113.0 },
    Cell { block_bytes: 1 << 20, reads: 50, published: 210.0 },
    Cell { block_bytes: 512, reads: 100, published: 46_000.0 },
    Cell { block_bytes: 512, reads: 0, published: 23_500.0 },
    Cell { block_bytes: 512, reads: 50, published: 47_600.0 },
];

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.block_bytes {
            512 => f.write_str("512 B ")?,
            bytes => write!(f, "{} KiB ", bytes >> 10)?,
        }
        f.write_str(match self.reads {
            100 => "read",
            0 => "write",
            _ => "both ways",
        })
    }
}

impl Options {
    fn has(&self, cell: &Cell) -> bool {
        let name = cell.to_string();
        self.only.is_empty() || self.only.iter().any(|text| name.contains(text))
    }
}

/// Which way requests go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Direct,
    ByIscsi,
    ByNbd,
}

const WAYS: [Way; 3] = [Way::Direct, Way::ByIscsi, Way::ByNbd];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Direct => "no gateway",
            Way::ByIscsi => "iSCSI to iSCSI",
            Way::ByNbd => "iSCSI to NBD",
        }
    }

    fn url(self) -> String {
        let (address, volume) = match self {
            Way::Direct => ("10.88.3.2:3261", "disk"),
            Way::ByIscsi => ("10.88.0.2", "iscsi"),
            Way::ByNbd => ("10.88.0.2", "nbd"),
        };
        format!("iscsi://{address}/iqn.2026-01.io.linerate:{volume}/0")
    }
}

/// One measurement. CPU times are microseconds of a request.
#[derive(Clone, Copy)]
struct Run {
    iops: f64,
    client_us: f64,
    gateway_us: f64,
    store_us: f64,
}

pub(crate) fn run(options: &Options) -> Result<Verdict> {
    let binary = options.binary.clone().map_or_else(workspace::release_binary, Ok)?;
    let world = World::build(&binary)?;
    world.fill(Way::Direct)?;
    world.fill(Way::ByIscsi)?;
    let mut runs: Vec<[Vec<Run>; 3]> = CELLS.iter().map(|_| Default::default()).collect();
    for round in 0..options.rounds {
        println!("round {} of {}", round + 1, options.rounds);
        for (cell, runs) in CELLS.iter().zip(&mut runs).filter(|(cell, _)| options.has(cell)) {
            for turn in 0..WAYS.len() {
                let way = (turn + round) % WAYS.len();
                runs[way].push(world.measure(WAYS[way], cell, options.seconds)?);
            }
        }
    }
    let (table, is_fast) = told(&runs);
    if !options.only.is_empty() {
        print!("{table}");
        return Ok(Verdict::of(is_fast));
    }
    let (cut, is_whole) = world.cut()?;
    print!("{table}{cut}");
    if !options.dry {
        let page = format!(
            "# `cargo measure gateway`\n\n{INTRODUCTION}{table}\n## A back-end link is cut\n\n{cut}\nMachine: {}, Linux {}; {} rounds of {} s.\n",
            machine::machine(),
            machine::kernel(),
            options.rounds,
            options.seconds
        );
        document::write("gateway", &page)?;
    }
    Ok(Verdict::of(is_fast && is_whole))
}

const INTRODUCTION: &str = "Three hosts on one machine, joined by links of 1 Gbit/s: a client and a gateway by one, the gateway and the store by two \
(multipath: one iSCSI session or NBD connection by each), client and store by one for what no gateway is between. The store serves memory; it and \
the client share a core, the gateway has the other. Without a gateway client and server have a core each. Sequential requests, 6 at once, as in document 003 (appendix A), whose figures stand \
beside: MiB/s, or requests a second of 512 bytes. *Share* is what one direction of the first link carries of data at most \
(119.2 MiB/s; both ways 238.4). *CPU* is the gateway's time for a request, and as a multiple of server's and client's without a gateway. \
Medians of all rounds, which alternate.\n\n";

struct World<'a> {
    binary: &'a Path,
    network: Network,
    // Gateways end before what they use.
    gateway: Background,
    store: Background,
    /// What is attached without a gateway: as the store, on a core that its client does not use.
    other_store: Background,
    folder: PathBuf,
}

impl World<'_> {
    fn build(binary: &Path) -> Result<World<'_>> {
        let network = Network::of(&["client", "gateway", "store"])?;
        for (number, ends) in
            [["client", "gateway"], ["gateway", "store"], ["gateway", "store"], ["client", "store"]]
                .into_iter()
                .enumerate()
        {
            network.join(number as u8, ends, LINK_BITS)?;
        }
        let folder = workspace::target_directory().join(format!("xtask/gateway-{}", std::process::id()));
        let serve = |host: &'static str, core: usize, port: u16, volumes: &[&str]| {
            let state = folder.join(format!("{host}-{port}"));
            fs::create_dir_all(&state).with_context(|| state.display().to_string())?;
            let mut command = network.place(host, core)?.command(binary);
            command.args(["--log", "error", "serve", "--listen", &format!("0.0.0.0:{port}")]);
            command.args(["--listen", &format!("nbd://0.0.0.0:{}", port + NBD_BEHIND)]);
            command.args(volumes.iter().flat_map(|volume| ["--volume", volume]));
            command.arg("--state").arg(&state).arg("--control").arg(state.join("control"));
            Background::start_ready(&mut command).with_context(|| format!("starting the server of {host}"))
        };
        let store = serve("store", SERVER_CORE, 3260, &[&format!("disk=ram:{VOLUME_BYTES}")])?;
        let other_store = serve("store", CLIENT_CORE, 3261, &[&format!("disk=ram:{VOLUME_BYTES}")])?;
        let gateway = serve(
            "gateway",
            CLIENT_CORE,
            3260,
            &[
                "iscsi=iscsi://10.88.1.2/iqn.2026-01.io.linerate:disk/0?address=10.88.2.2&sessions=2",
                "nbd=nbd://10.88.1.2:10810/disk?address=10.88.2.2&connections=2",
            ],
        )?;
        Ok(World { binary, network, gateway, store, other_store, folder })
    }

    fn bench(&self, way: Way) -> Result<Command> {
        let mut command = self.network.place("client", SERVER_CORE)?.command(self.binary);
        command.args([
            "--log",
            "error",
            "bench",
            &way.url(),
            "--allow-write",
            "--yes",
            "--json",
            "--progress",
            "none",
        ]);
        Ok(command)
    }

    /// Reads find data, and no memory is new.
    fn fill(&self, way: Way) -> Result<()> {
        let mut command = self.bench(way)?;
        let seconds = (1.3 * VOLUME_BYTES as f64 * 8.0 / LINK_BITS).ceil();
        command.args(["--block", "1MiB", "--read", "0", "--random", "0", "--seconds", &seconds.to_string()]);
        process::capture(command).map(drop)
    }

    fn measure(&self, way: Way, cell: &Cell, seconds: f64) -> Result<Run> {
        let mut command = self.bench(way)?;
        command.args(["--block", &cell.block_bytes.to_string(), "--read", &cell.reads.to_string()]);
        command.args(["--depth", DEPTH, "--random", "0", "--seconds", &seconds.to_string()]);
        let used = || -> Result<[f64; 3]> {
            let store = if way == Way::Direct { &self.other_store } else { &self.store };
            let [gateway, store] = [&self.gateway, store].map(|server| usage::cpu_seconds(server.pid()));
            Ok([cpu::of_ended_children()?, gateway?, store?])
        };
        let before = used()?;
        let said: Value = serde_json::from_str(&process::capture(command)?)?;
        let after = used()?;
        let number = |key: &str| said[key].as_f64().with_context(|| format!("{key} in {said}"));
        ensure!(number("errors")? == 0.0, "{}: {said}", way.name());
        let requests = number("ios")?;
        let [client_us, gateway_us, store_us] = [0, 1, 2].map(|at| (after[at] - before[at]) * 1e6 / requests);
        Ok(Run { iops: number("iops")?, client_us, gateway_us, store_us })
    }

    /// A verified load through the gateway, one of whose two links with the store is cut and mended.
    fn cut(&self) -> Result<(String, bool)> {
        const STEP: Duration = Duration::from_secs(6);
        let mut text =
            "| way | requests | errors | wrong blocks | longest request |\n|---|---:|---:|---:|---:|\n"
                .to_owned();
        let mut is_whole = true;
        for way in [Way::ByIscsi, Way::ByNbd] {
            let mut command = self.bench(way)?;
            let seconds = 3 * STEP.as_secs();
            command
                .args(["--verify", "--block", "16KiB", "--depth", "32", "--random", "100", "--read", "50"]);
            command.args(["--seconds", &seconds.to_string()]).stdout(Stdio::piped());
            let mut load = Background::start(&mut command)?;
            thread::sleep(STEP);
            self.network.set_up(2, "store", false)?;
            thread::sleep(STEP);
            self.network.set_up(2, "store", true)?;
            let mut said = String::new();
            load.child.stdout.take().context("bench's standard output")?.read_to_string(&mut said)?;
            let said: Value = serde_json::from_str(&said).with_context(|| format!("bench: {said}"))?;
            let count = |key: &str| said[key].as_u64().with_context(|| format!("{key} in {said}"));
            let (requests, errors, wrong) = (count("ios")?, count("errors")?, count("mismatches")?);
            let longest_s = said["latency_us"]["max"].as_f64().context("the longest request")? / 1e6;
            writeln!(text, "| {} | {requests} | {errors} | {wrong} | {longest_s:.1} s |", way.name())?;
            is_whole &= requests > 0 && errors == 0 && wrong == 0;
        }
        Ok((text, is_whole))
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        self.gateway.stop();
        self.store.stop();
        self.other_store.stop();
        let _ = fs::remove_dir_all(&self.folder); // a folder left behind in target is harmless
    }
}

/// The table, and whether all goals are met.
fn told(runs: &[[Vec<Run>; 3]]) -> (String, bool) {
    let mut text = "| cell | way | rate | share | document 003 | ratio | CPU, µs | multiple |\n|---|---|---:|---:|---:|---:|---:|---:|\n".to_owned();
    let mut holds = true;
    for (cell, runs) in CELLS.iter().zip(runs).filter(|(_, runs)| !runs[0].is_empty()) {
        let median = |way: usize, figure: fn(&Run) -> f64| {
            middle(runs[way].iter().map(figure).collect()).unwrap_or(f64::NAN)
        };
        let apart_us = median(0, |run| run.client_us) + median(0, |run| run.store_us);
        for (at, way) in WAYS.into_iter().enumerate() {
            let iops = median(at, |run| run.iops);
            let mib_per_s = iops * cell.block_bytes as f64 / f64::from(1 << 20);
            let is_short = cell.block_bytes == 512;
            let rate = if is_short { iops } else { mib_per_s };
            let capacity = LINK_BITS / 8.0 / f64::from(1 << 20) * if cell.reads == 50 { 2.0 } else { 1.0 };
            let ratio = rate / cell.published;
            let cpu_us = median(at, |run| run.gateway_us);
            let multiple = cpu_us / apart_us;
            let gateway = if way == Way::Direct {
                format!("{apart_us:.1} (both) | -")
            } else {
                format!("{cpu_us:.1} | {multiple:.2}")
            };
            holds &= way == Way::Direct || (ratio >= 1.0 && multiple <= CPU_MAX);
            let unit = if is_short { "/s" } else { "MiB/s" };
            let _ = writeln!(
                text,
                "| {cell} | {} | {rate:.0} {unit} | {:.3} | {:.0} {unit} | {ratio:.2} | {gateway} |",
                way.name(),
                mib_per_s / capacity,
                cell.published,
            );
        }
    }
    (text, holds)
}
