//! `cargo measure cern`: document 004's tables, one disk and sets of them, here and on other hosts. Writes docs/measured/cern.md.
//!
//! The disks are `disk:ide2004` over memory: what a disk of the document's time does, so that what stands between the levels of
//! RAID, and between one server and three, is the arithmetic of disks and of links, as there. HyperSCSI's frames are raw Ethernet:
//! the links are pairs of interfaces (veth(4)), which carry any EtherType.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

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
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long each measurement takes
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Only storage whose name contains this; may be repeated
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
const DISK: &str = "disk:ide2004:[ram:1GiB]";
const STORES: [&str; 3] = ["one", "two", "three"];
const PROTOCOLS: [&str; 3] = ["iscsi", "hyperscsi", "nbd"];
const VOLUMES: [&str; 3] = ["plain", "raid0", "raid5"];

/// A test of the document, or of documents 000 and 001 (random access, the reason they give for RAID).
struct Test {
    /// As the published rows name it, or one of ours.
    name: &'static str,
    /// Through a page cache that reads 1 MiB ahead, as bonnie++ did.
    is_buffered: bool,
    block: &'static str,
    block_bytes: f64,
    depth: &'static str,
    reads: &'static str,
    random: &'static str,
    /// Requests a second instead of MB/s.
    counts: bool,
}

const BONNIE: Test = Test {
    name: "bonnie++ sequential output block",
    is_buffered: true,
    block: "8KiB",
    block_bytes: 8192.0,
    depth: "1",
    reads: "0",
    random: "0",
    counts: false,
};
const CERN: Test = Test {
    name: "seqent_random_io64 write",
    is_buffered: false,
    block: "1536KiB",
    block_bytes: 1_572_864.0,
    ..BONNIE
};
const SHORT: Test = Test {
    name: "random read, 4 KiB, 32 at once",
    block: "4KiB",
    depth: "32",
    reads: "100",
    random: "100",
    counts: true,
    ..CERN
};

const TESTS: [Test; 7] = [
    BONNIE,
    Test { name: "bonnie++ sequential input block", reads: "100", ..BONNIE },
    CERN,
    Test { name: "seqent_random_io64 sequential read", reads: "100", ..CERN },
    Test { name: "seqent_random_io64 random read", reads: "100", random: "100", ..CERN },
    SHORT,
    Test { name: "random write, 4 KiB, 32 at once", reads: "0", ..SHORT },
];

/// What is measured.
struct Storage {
    name: &'static str,
    /// As the client names it.
    volume: String,
    /// Its row in the document: what its name ends with.
    published: Option<&'static str>,
}

fn set(level: &str, members: impl Iterator<Item = String>) -> String {
    format!("{level}:[{}]", members.collect::<Vec<_>>().join(","))
}

fn of_disks(level: &str, disks: usize) -> String {
    set(level, (0..disks).map(|_| DISK.to_owned()))
}

/// A volume of each store. Each protocol has disks of its own: one that was written to at random is at it for some time yet.
fn urls(protocol: &'static str, volume: &'static str) -> impl Iterator<Item = String> {
    (0..STORES.len()).map(move |store| match protocol {
        "iscsi" => format!("iscsi://10.88.{store}.2/iqn.2026-01.io.linerate:{volume}-iscsi/0"),
        "hyperscsi" => format!("hyperscsi://link{store}/{volume}-hyperscsi/0"),
        _ => format!("nbd://10.88.{store}.2/{volume}-nbd"),
    })
}

/// Each volume with each protocol.
fn pairs(volumes: &[&'static str]) -> impl Iterator<Item = (&'static str, &'static str)> {
    volumes.iter().flat_map(|volume| PROTOCOLS.map(|protocol| (*volume, protocol)))
}

const LOCAL: &str = "local disk";

fn storages() -> Vec<Storage> {
    let storage = |name, volume, published| Storage { name, volume, published };
    let one = |protocol| urls(protocol, "plain").next().unwrap_or_default();
    let pairs = (0..2).map(|_| of_disks("raid1", 2));
    vec![
        storage(LOCAL, DISK.to_owned(), None),
        storage("iSCSI, one server", one("iscsi"), Some("linux-iscsi 3.1.0.6 (draft 0.16)")),
        storage("HyperSCSI, one server", one("hyperscsi"), Some("HyperSCSI one server")),
        storage("NBD, one server", one("nbd"), Some("ENBD one server")),
        storage("iSCSI, RAID 0 over three", set("raid0:64KiB", urls("iscsi", "raid0")), None),
        storage("HyperSCSI, RAID 0 over three", set("raid0:64KiB", urls("hyperscsi", "raid0")), None),
        storage(
            "NBD, RAID 0 over three",
            set("raid0:64KiB", urls("nbd", "raid0")),
            Some("ENBD three servers"),
        ),
        storage("iSCSI, RAID 5 over three", set("raid5:64KiB", urls("iscsi", "raid5")), None),
        storage("HyperSCSI, RAID 5 over three", set("raid5:64KiB", urls("hyperscsi", "raid5")), None),
        storage(
            "NBD, RAID 5 over three",
            set("raid5:64KiB", urls("nbd", "raid5")),
            Some("ENBD three servers"),
        ),
        storage("RAID 0, 6 disks", of_disks("raid0:64KiB", 6), Some("6 IDE drives, software RAID 0")),
        storage("RAID 5, 6 disks", of_disks("raid5:64KiB", 6), Some("6 IDE drives, software RAID 5")),
        storage("RAID 5, 4 disks", of_disks("raid5:64KiB", 4), Some("4 drives, software RAID 5")),
        storage("RAID 10, 4 disks", of_disks("raid10:64KiB", 4), None),
        storage(
            "RAID 0 over 1, 4 disks",
            set("raid0:64KiB", pairs),
            Some("software RAID 0 + hardware RAID 1"),
        ),
    ]
}

/// One measurement: MB/s, or requests a second; the load of the client and of all servers together, in percent of one core.
#[derive(Clone, Copy)]
struct Run {
    rate: f64,
    client_percent: f64,
    server_percent: f64,
}

/// By storage and test.
type Runs = BTreeMap<(usize, usize), Vec<Run>>;

pub(crate) fn run(options: &Options) -> Result<Verdict> {
    let binary = options.binary.clone().map_or_else(workspace::release_binary, Ok)?;
    let world = World::build(&binary)?;
    let storages: Vec<Storage> = storages()
        .into_iter()
        .filter(|storage| {
            options.only.is_empty() || options.only.iter().any(|text| storage.name.contains(text))
        })
        .collect();
    let mut runs = Runs::new();
    for round in 0..options.rounds {
        println!("round {} of {}", round + 1, options.rounds);
        for turn in 0..storages.len() {
            let at = (turn + round) % storages.len();
            for (number, test) in TESTS.iter().enumerate() {
                let run = world.measure(&storages[at], test, options.seconds)?;
                runs.entry((at, number)).or_default().push(run);
            }
        }
    }
    let table = table(&storages, &runs);
    let (ratios, holds) = ratios(&storages, &runs);
    print!("{table}\n{ratios}");
    if !options.dry && options.only.is_empty() {
        let page = format!(
            "# `cargo measure cern`\n\n{INTRODUCTION}{table}\n## Levels beside each other\n\n{ratios}\nMachine: {}, Linux {}; {} rounds of {} s.\n",
            machine::machine(),
            machine::kernel(),
            options.rounds,
            options.seconds
        );
        document::write("cern", &page)?;
    }
    Ok(Verdict::of(holds))
}

const INTRODUCTION: &str = "Document 004's tests on one disk, on one server's, on sets over three servers, and on sets of 4 and 6 disks. \
A disk is `disk:ide2004` over memory; servers are hosts of their own behind links of 1 Gbit/s, and share a core; the client, which also computes parity, \
has the other. *bonnie++* moves blocks of 8 KiB through a page cache that reads 1 MiB ahead; *CERN's* program blocks of 1.5 MB, one at a time. A cell has MB/s (10^6 bytes), or \
requests a second for the two with 4 KiB, and the CPU load of the client and of all servers in percent of a core; in brackets what document 004 prints \
(its tables 3.1, 3.2, 4.1, 4.2): MB/s, the client's load, of machines with two processors, and our MB/s as a multiple of its. \
HyperSCSI is raw Ethernet (`hyperscsi://`), in frames of 1500 bytes, without a key. Document 004 has no row for HyperSCSI with three servers: it \
\"performs poorly if there are two or more connections to different servers\". Medians of all rounds.\n\n";

struct World<'a> {
    binary: &'a Path,
    network: Network,
    stores: Vec<Background>,
    folder: PathBuf,
}

impl World<'_> {
    fn build(binary: &Path) -> Result<World<'_>> {
        let network = Network::of(&["client", "one", "two", "three"])?;
        let folder = workspace::target_directory().join(format!("xtask/cern-{}", std::process::id()));
        let mut stores = Vec::new();
        for (number, store) in STORES.into_iter().enumerate() {
            network.join(number as u8, ["client", store], LINK_BITS)?;
            let state = folder.join(store);
            fs::create_dir_all(&state).with_context(|| state.display().to_string())?;
            let mut command = network.place(store, SERVER_CORE)?.command(binary);
            command.args([
                "--log",
                "error",
                "serve",
                "--listen",
                "0.0.0.0:3260",
                "--listen",
                "nbd://0.0.0.0:10809",
                "--listen",
                &format!("hyperscsi://link{number}"),
            ]);
            for (volume, protocol) in pairs(&VOLUMES) {
                command.arg("--volume").arg(format!("{volume}-{protocol}={DISK}"));
            }
            command.arg("--state").arg(&state).arg("--control").arg(state.join("control"));
            stores.push(
                Background::start_ready(&mut command)
                    .with_context(|| format!("starting the server of {store}"))?,
            );
        }
        let world = World { binary, network, stores, folder };
        for (level, protocol) in pairs(&VOLUMES[1..]) {
            let mut command = world.network.place("client", CLIENT_CORE)?.command(binary);
            command.args(["raid", "create", &set(&format!("{level}:64KiB"), urls(protocol, level)), "--yes"]);
            process::capture(command)?;
        }
        Ok(world)
    }

    fn measure(&self, storage: &Storage, test: &Test, seconds: f64) -> Result<Run> {
        let mut command = self.network.place("client", CLIENT_CORE)?.command(self.binary);
        let volume = match test.is_buffered {
            true => format!("buffered:1MiB:[{}]", storage.volume),
            false => storage.volume.clone(),
        };
        command.args([
            "--log",
            "error",
            "bench",
            &volume,
            "--allow-write",
            "--yes",
            "--json",
            "--progress",
            "none",
        ]);
        command.args([
            "--block",
            test.block,
            "--depth",
            test.depth,
            "--read",
            test.reads,
            "--random",
            test.random,
        ]);
        command.args(["--seconds", &seconds.to_string()]);
        let used = || -> Result<(f64, f64)> {
            let servers = self.stores.iter().map(|store| usage::cpu_seconds(store.pid()));
            Ok((cpu::of_ended_children()?, servers.sum::<Result<f64>>()?))
        };
        let (begun, before) = (Instant::now(), used()?);
        let said: Value = serde_json::from_str(&process::capture(command)?)?;
        let (wall_s, after) = (begun.elapsed().as_secs_f64(), used()?);
        let number = |key: &str| said[key].as_f64().with_context(|| format!("{key} in {said}"));
        ensure!(number("errors")? == 0.0, "{}, {}: {said}", storage.name, test.name);
        let iops = number("iops")?;
        let percent = |used_s: f64| 100.0 * used_s / wall_s;
        Ok(Run {
            rate: if test.counts { iops } else { iops * test.block_bytes / 1e6 },
            client_percent: percent(after.0 - before.0),
            server_percent: percent(after.1 - before.1),
        })
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        self.stores.iter_mut().for_each(Background::stop);
        let _ = fs::remove_dir_all(&self.folder); // a folder left behind in target is harmless
    }
}

fn median(runs: &Runs, at: (usize, usize), figure: fn(&Run) -> f64) -> Option<f64> {
    middle(runs.get(&at)?.iter().map(figure).collect())
}

/// What the document prints for a storage in a test.
fn printed(storage: &Storage, test: &Test, metric: &str) -> Option<f64> {
    let system = storage.published?;
    let row = published::rows().iter().find(|row| {
        row.document == "004" && row.system.ends_with(system) && row.test == test.name && row.metric == metric
    })?;
    row.printed.parse().ok()
}

fn table(storages: &[Storage], runs: &Runs) -> String {
    let names: Vec<&str> = TESTS.iter().map(|test| test.name).collect();
    let mut text = format!("| storage | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    for (at, storage) in storages.iter().enumerate() {
        let mut row = vec![storage.name.to_owned()];
        for (number, test) in TESTS.iter().enumerate() {
            let figure = |figure| median(runs, (at, number), figure).unwrap_or(f64::NAN);
            let mut cell =
                format!("{:.0}, {:.0} %", figure(|run| run.rate), figure(|run| run.client_percent));
            if storage.volume.contains("//") {
                let _ = write!(cell, " + {:.0} %", figure(|run| run.server_percent));
            }
            if let Some(rate) = printed(storage, test, "throughput") {
                let load = printed(storage, test, "cpu_load_client")
                    .map_or_else(String::new, |load| format!(", {load} %"));
                let _ = write!(cell, " ({rate}{load}, ×{:.2})", figure(|run| run.rate) / rate);
            }
            row.push(cell);
        }
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// What one storage gives as a multiple of another, beside the same of the document, which is the goal; or a goal of ours.
struct Ratio {
    of: &'static str,
    by: &'static str,
    test: usize,
    goal: Option<f64>,
}

/// Indices of [`TESTS`].
const BONNIE_WRITE: usize = 0;
const BONNIE_READ: usize = 1;
const WRITE: usize = 2;
const READ: usize = 3;
const RANDOM: usize = 4;
const SHORT_READ: usize = 5;

fn wanted() -> Vec<Ratio> {
    let levels = [BONNIE_WRITE, WRITE, BONNIE_READ, READ, RANDOM].map(|test| Ratio {
        of: "RAID 5, 6 disks",
        by: "RAID 0, 6 disks",
        test,
        goal: None,
    });
    // Equal to local: section 3.2 of HyperSCSI.
    let equal = ["iSCSI, one server", "HyperSCSI, one server", "NBD, one server"]
        .into_iter()
        .flat_map(|of| [WRITE, READ, RANDOM].map(|test| Ratio { of, by: LOCAL, test, goal: Some(0.9) }));
    let three = ["iSCSI, RAID 0 over three", "HyperSCSI, RAID 0 over three", "NBD, RAID 0 over three"]
        .into_iter()
        .flat_map(|of| [WRITE, READ].map(|test| Ratio { of, by: LOCAL, test, goal: Some(0.9 * 3.0) }));
    // Documents 000 and 001 advise RAID for random access.
    let random = [
        ("RAID 0, 6 disks", 4.0),
        ("RAID 5, 6 disks", 4.0),
        ("RAID 10, 4 disks", 3.0),
        ("RAID 0 over 1, 4 disks", 3.0),
    ]
    .map(|(of, goal)| Ratio { of, by: LOCAL, test: SHORT_READ, goal: Some(goal) });
    levels.into_iter().chain(equal).chain(three).chain(random).collect()
}

/// The ratios, and whether all goals are met.
fn ratios(storages: &[Storage], runs: &Runs) -> (String, bool) {
    let mut text =
        "| test | storage | beside | ratio | document 004, or the goal |\n|---|---|---|---:|---:|\n"
            .to_owned();
    let mut holds = true;
    for Ratio { of, by, test, goal } in wanted() {
        let find = |name: &str| storages.iter().position(|storage| storage.name == name);
        let Some((of_at, by_at)) = find(of).zip(find(by)) else { continue };
        let rate = |at: usize| median(runs, (at, test), |run| run.rate).unwrap_or(f64::NAN);
        let ratio = rate(of_at) / rate(by_at);
        let printed = || {
            let rate = |at: usize| printed(&storages[at], &TESTS[test], "throughput");
            Some(rate(of_at)? / rate(by_at)?)
        };
        let least = goal.or_else(printed).unwrap_or(0.0);
        holds &= ratio >= least;
        let _ = writeln!(text, "| {} | {of} | {by} | {ratio:.2} | {least:.2} |", TESTS[test].name);
    }
    (text, holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_document_that_is_named_is_found_for_each_of_its_tests() {
        for storage in storages().iter().filter(|storage| storage.published.is_some()) {
            for test in TESTS.iter().filter(|test| !test.counts) {
                for metric in ["throughput", "cpu_load_client"] {
                    assert!(
                        printed(storage, test, metric).is_some(),
                        "{}, {}, {metric}",
                        storage.name,
                        test.name
                    );
                }
            }
        }
    }

    #[test]
    fn the_document_s_ratios_are_those_that_it_prints() {
        let storages = storages();
        let (text, _) = ratios(&storages, &Runs::new());
        for ratio in ["| 0.50 |", "| 0.48 |", "| 0.79 |", "| 0.82 |", "| 1.02 |"] {
            assert!(text.contains(ratio), "{ratio} in {text}");
        }
    }
}
