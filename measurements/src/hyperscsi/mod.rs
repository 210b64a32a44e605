//! `cargo measure hyperscsi`: HyperSCSI beside iSCSI, several servers at once, more sessions and cores, and a link that is shared with TCP: the last three are
//! things that document 004 found wanting, or that its successor must not do. Writes docs/measured/hyperscsi.md.
//!
//! ```text
//!   client ══ link0, 1 Gbit/s ══ one          client ── link4, 10 Gbit/s ── lone, on one core
//!   client ══ link1, 1 Gbit/s ══ two          client ── link5, 10 Gbit/s ── many, on all cores
//!   client ══ link2, 1 Gbit/s ══ three
//!
//!   left, right, tcp ── link6 to link8, 10 Gbit/s ── switch ══ link9, 1 Gbit/s ══ far
//! ```

mod beside;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::measuring::figures::middle;
use crate::measuring::network::Network;
use crate::measuring::server::{CLIENT_CORE, SERVER_CORE};
use crate::measuring::{cpu, machine, usage};
use xtask::document;
use xtask::process::{self, Background};
use xtask::serving::Placement;
use xtask::serving::linerate::await_sync;
use xtask::tally::Verdict;
use xtask::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often each cell is measured
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long each measurement takes
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only sections whose name contains this; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Use this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Leave the page as it is
    #[arg(long)]
    dry: bool,
}

const GIGABIT: f64 = 1e9;
const FAST: f64 = 10e9;
/// With their links.
const STORES: [&str; 3] = ["one", "two", "three"];
const SENDERS: [&str; 3] = ["left", "right", "tcp"];
const SWITCH_LINK: u8 = 9;
/// On average, in the order of [`SENDERS`].
const JAIN: f64 = 0.9;
const SHARE: f64 = 0.9;
/// Of one core's rate, with the noise of a machine whose client needs the second core.
const HARMLESS: f64 = 0.95;

/// Each makes a part of the page, and says whether its goals are met.
type Section = (&'static str, fn(&Path, &Path, &Options) -> Result<(String, bool)>);

const SECTIONS: [Section; 4] = [
    ("Beside iSCSI", beside::beside),
    ("Several servers at once", several),
    ("Sessions and cores", cores),
    ("A link shared with TCP", shared),
];

pub(crate) fn run(options: &Options) -> Result<Verdict> {
    let binary = options.binary.clone().map_or_else(workspace::release_binary, Ok)?;
    let folder = workspace::target_directory().join(format!("xtask/hyperscsi-{}", std::process::id()));
    let mut page = format!("# `cargo measure hyperscsi`\n\n{INTRODUCTION}");
    let mut holds = true;
    for (name, section) in SECTIONS {
        let is_meant = options.only.is_empty() || options.only.iter().any(|text| name.contains(text));
        if !is_meant {
            continue;
        }
        println!("{name}");
        let (text, is_met) = section(&binary, &folder, options)?;
        println!("{text}");
        holds &= is_met;
        let _ = write!(page, "## {name}\n\n{text}\n"); // a String takes everything
    }
    let _ = fs::remove_dir_all(&folder); // a folder left behind in target is harmless
    if !options.dry && options.only.is_empty() {
        let _ = writeln!(
            page,
            "Machine: {}, Linux {}; {} rounds of {} s.",
            machine::machine(),
            machine::kernel(),
            options.rounds,
            options.seconds
        );
        document::write("hyperscsi", &page)?;
    }
    Ok(Verdict::of(holds))
}

const INTRODUCTION: &str = "HyperSCSI in raw Ethernet frames (`hyperscsi://`) of 1500 bytes, without a key. Hosts are network namespaces, links \
pairs of interfaces (veth) with a token bucket that holds 10 ms at either end; volumes are memory. The client has core 1, all servers share \
core 0, unless a section says otherwise. Requests of 256 KiB, sequential, 8 at once. Medians of rounds that alternate, with the least and the greatest.\n\n";

/// A server of ours in a host, with the volume `NAME` of memory.
fn serve(
    binary: &Path,
    folder: &Path,
    place: &Placement,
    name: &str,
    listen: &[String],
) -> Result<Background> {
    let state = folder.join(name);
    fs::create_dir_all(&state).with_context(|| state.display().to_string())?;
    let mut command = place.command(binary);
    command.args(["--log", "error", "serve"]);
    command.args(listen.iter().flat_map(|listen| ["--listen", listen]));
    command.args(["--volume", &format!("{name}=ram:96MiB")]);
    command.arg("--state").arg(&state).arg("--control").arg(state.join("control"));
    Background::start_ready(&mut command).with_context(|| format!("starting the server {name}"))
}

/// Seconds before a load is measured.
const WARM_UP: f64 = 0.5;

/// What one client is to do.
struct Load {
    volume: String,
    reads: bool,
    sessions: usize,
    block: &'static str,
    depth: usize,
}

impl Load {
    fn bulk(volume: String, reads: bool) -> Load {
        Load { volume, reads, sessions: 1, block: "256KiB", depth: 8 }
    }

    fn command(&self, binary: &Path, place: &Placement, seconds: f64) -> Command {
        let mut command = place.command(binary);
        command.args(["--log", "error", "bench", &self.volume, "--allow-write", "--yes", "--json"]);
        command.args(["--progress", "none", "--random", "0", "--warm-up", &WARM_UP.to_string()]);
        command.args(["--block", self.block, "--depth", &self.depth.to_string()]);
        command.args(["--read", if self.reads { "100" } else { "0" }]);
        command.args(["--sessions", &self.sessions.to_string(), "--seconds", &seconds.to_string()]);
        command
    }
}

/// The figures of clients that run at the same time, each a process.
fn together(binary: &Path, place: &Placement, loads: &[Load], seconds: f64) -> Result<Vec<Value>> {
    let start = |load: &Load| {
        let mut command = load.command(binary, place, seconds);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("starting a client")
    };
    let clients = loads.iter().map(start).collect::<Result<Vec<Child>>>()?;
    let outputs: Vec<_> = clients.into_iter().map(Child::wait_with_output).collect();
    let figures = outputs.into_iter().zip(loads).map(|(output, load)| {
        let said: Value = serde_json::from_slice(&output?.stdout).context("what a client printed")?;
        ensure!(said["errors"].as_f64() == Some(0.0), "{}: {said}", load.volume);
        Ok(said)
    });
    figures.collect()
}

fn rate(said: &Value) -> Result<f64> {
    said["mb_per_s"].as_f64().with_context(|| format!("no rate in {said}"))
}

/// A median with the least and the greatest.
fn spread(figures: &[f64], places: usize) -> String {
    let (least, most) =
        figures.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), at| (least.min(*at), most.max(*at)));
    let middle = middle(figures.to_vec()).unwrap_or(f64::NAN);
    format!("{middle:.places$} ({least:.places$}–{most:.places$})")
}

fn median(figures: &[f64]) -> f64 {
    middle(figures.to_vec()).unwrap_or(f64::NAN)
}

/// Three servers on links of 1 Gbit/s, one client, in short frames and in long ones.
fn several(binary: &Path, folder: &Path, options: &Options) -> Result<(String, bool)> {
    let mut text = "One client host, and a link of 1 Gbit/s to each server. The client is one process with a RAID set over the servers (8 requests \
                    for each at once), or a process for each server: these \
                    have one core together, on which each of them polls. Document 004: HyperSCSI \"performs poorly if \
                    there are two or more connections to different servers\". CPU: the client, and all servers, in percent of the one core \
                    that each side has; what the kernel does in interrupts is not in it. Goal, for one process: 0.90 of the sum in long frames, \
                    where the links are the limit. A RAID 5 that was just made over used members is degraded until its last member is rebuilt, and \
                    reads at most half of what three links carry; writes of it wait for a journal with two copies of all data on the members, so that a link \
                    carries 1.5 times what it would: neither has a goal.\n\n\
                    | MTU | servers | | MB/s together | sum of each alone | ratio | CPU |\n|---|---|---|---:|---:|---:|---:|\n"
        .to_owned();
    let mut holds = true;
    for mtu in [1500, LONG] {
        for row in SeveralServers::begin(binary, folder, mtu)?.rows(options.rounds, options.seconds)? {
            let ratios: Vec<f64> = row.together.iter().zip(&row.sums).map(|(ours, sum)| ours / sum).collect();
            let has_goal = mtu == LONG && row.has_goal;
            holds &= !has_goal || median(&ratios) >= SHARE;
            let way = if row.reads { "read" } else { "write" };
            let _ = writeln!(
                text,
                "| {mtu} | {} | {way} | {} | {} | {} | {:.0} % + {:.0} % |",
                row.what,
                spread(&row.together, 0),
                spread(&row.sums, 0),
                spread(&ratios, 2),
                median(&row.client_percent),
                median(&row.server_percent),
            );
        }
    }
    Ok((text, holds))
}

const LONG: u32 = 9000;

struct SeveralServers<'a> {
    binary: &'a Path,
    client: Placement,
    servers: Vec<Background>,
    folder: PathBuf,
    /// Removed when dropped.
    _network: Network,
}

/// Figures of all rounds.
#[derive(Default)]
struct Row {
    what: &'static str,
    reads: bool,
    has_goal: bool,
    together: Vec<f64>,
    sums: Vec<f64>,
    client_percent: Vec<f64>,
    server_percent: Vec<f64>,
}

fn url(number: usize) -> String {
    format!("hyperscsi://link{number}/{}/0", STORES[number])
}

fn set(level: &str, members: usize) -> String {
    format!("{level}:64KiB:[{}]", (0..members).map(url).collect::<Vec<_>>().join(","))
}

impl SeveralServers<'_> {
    fn begin<'a>(binary: &'a Path, folder: &Path, mtu: u32) -> Result<SeveralServers<'a>> {
        let network = Network::of(&["client", "one", "two", "three"])?;
        let mut servers = Vec::new();
        for (number, store) in (0..).zip(STORES) {
            network.join(number, ["client", store], GIGABIT)?;
            network.set_mtu(number, ["client", store], mtu)?;
            let place = network.place(store, SERVER_CORE)?;
            servers.push(serve(binary, folder, &place, store, &[format!("hyperscsi://link{number}")])?);
        }
        let client = network.place("client", CLIENT_CORE)?;
        Ok(SeveralServers { binary, client, servers, folder: folder.to_owned(), _network: network })
    }

    /// Measures these at once into a row.
    fn measure(&self, row: &mut Row, loads: &[Load], seconds: f64) -> Result<()> {
        let used = || -> Result<[f64; 2]> {
            let servers = self.servers.iter().map(|server| usage::cpu_seconds(server.pid()));
            Ok([cpu::of_ended_children()?, servers.sum::<Result<f64>>()?])
        };
        let (begun, before) = (Instant::now(), used()?);
        let said = together(self.binary, &self.client, loads, seconds)?;
        let (wall, after) = (begun.elapsed().as_secs_f64(), used()?);
        row.together.push(said.iter().map(rate).sum::<Result<f64>>()?);
        row.client_percent.push(100.0 * (after[0] - before[0]) / wall);
        row.server_percent.push(100.0 * (after[1] - before[1]) / wall);
        Ok(())
    }

    /// Has a new set rebuilt: a client that only reads does not.
    fn synchronise(&self, set: &str) -> Result<()> {
        let state = self.folder.join("set");
        fs::create_dir_all(&state).with_context(|| state.display().to_string())?;
        let control = state.join("control");
        let mut command = self.client.command(self.binary);
        // At its end of the first link; nobody asks.
        command.args(["--log", "error", "serve", "--listen", "10.88.0.1:3260"]);
        command.args(["--volume", &format!("set={set}")]);
        command.arg("--state").arg(&state).arg("--control").arg(&control);
        let mut server = Background::start_ready(&mut command).context("starting a server of the set")?;
        await_sync(self.binary, &control, "set")?;
        server.stop();
        Ok(())
    }

    fn rows(&self, rounds: usize, seconds: f64) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let mut alone = [const { Vec::<[f64; 3]>::new() }; 2];
        // Writes first: what was never written is no medium to read.
        for reads in [false, true] {
            let mut row = Row { what: "three, a process for each", reads, ..Row::default() };
            for _ in 0..rounds {
                let mut one = Row::default();
                for number in 0..STORES.len() {
                    self.measure(&mut one, &[Load::bulk(url(number), reads)], seconds)?;
                }
                let rates = [one.together[0], one.together[1], one.together[2]];
                self.measure(&mut row, &[0, 1, 2].map(|number| Load::bulk(url(number), reads)), seconds)?;
                row.sums.push(rates.iter().sum());
                alone[usize::from(reads)].push(rates);
            }
            rows.push(row);
        }
        for (level, members, what) in [
            ("raid0", 2, "two, by one process as RAID 0"),
            ("raid0", 3, "three, by one process as RAID 0"),
            ("raid5", 3, "three, by one process as RAID 5"),
        ] {
            let set = set(level, members);
            let mut command = self.client.command(self.binary);
            command.args(["raid", "create", &set, "--yes"]);
            process::capture(command)?;
            let has_parity = level == "raid5";
            let measured = |what: &'static str, reads: bool, has_goal: bool| -> Result<Row> {
                let sums = alone[usize::from(reads)].iter().map(|rates| rates[..members].iter().sum());
                let mut row = Row { what, reads, has_goal, sums: sums.collect(), ..Row::default() };
                for _ in 0..rounds {
                    let load = Load { depth: 8 * members, ..Load::bulk(set.clone(), reads) };
                    self.measure(&mut row, &[load], seconds)?;
                }
                Ok(row)
            };
            if has_parity {
                rows.push(measured("three, by one process as a RAID 5 that is not in sync", true, false)?);
                self.synchronise(&set)?;
            }
            rows.push(measured(what, false, !has_parity)?);
            rows.push(measured(what, true, true)?);
        }
        Ok(rows)
    }
}

/// A server on one core and one on all, with more and more sessions.
fn cores(binary: &Path, folder: &Path, options: &Options) -> Result<(String, bool)> {
    let network = Network::of(&["client", "lone", "many"])?;
    let mut servers = Vec::new();
    for (number, store, is_pinned) in [(4, "lone", true), (5, "many", false)] {
        network.join(number, ["client", store], FAST)?;
        let place = network.place(store, SERVER_CORE)?;
        let place = Placement { core: place.core.filter(|_| is_pinned), ..place };
        let listen = [format!("hyperscsi://link{number}"), "hyperscsi+udp://0.0.0.0:5674".to_owned()];
        servers.push(serve(binary, folder, &place, store, &listen)?);
    }
    let client = network.place("client", CLIENT_CORE)?;
    let raw = ["hyperscsi://link4/lone/0", "hyperscsi://link5/many/0"];
    let udp = ["hyperscsi+udp://10.88.4.2/lone/0", "hyperscsi+udp://10.88.5.2/many/0"];
    for volume in raw {
        together(binary, &client, &[Load::bulk(volume.to_owned(), false)], 1.0)?;
    }
    let mut text = "| | sessions | one core | two cores | ratio |\n|---|---:|---:|---:|---:|\n".to_owned();
    let mut holds = true;
    for (what, volumes, block, reads, depth, counts) in [
        ("4 KiB reads, 8 at once each", raw, "4KiB", true, 8, &[1, 2, 4, 8, 16][..]),
        ("256 KiB writes, 2 at once each", raw, "256KiB", false, 2, &[1, 2, 4, 8, 16]),
        ("4 KiB reads, 8 at once each, over UDP", udp, "4KiB", true, 8, &[1, 4, 16]),
    ] {
        for &sessions in counts {
            let mut rates = [Vec::new(), Vec::new()];
            for round in 0..options.rounds {
                for turn in [round % 2, (round + 1) % 2] {
                    let volume = volumes[turn].to_owned();
                    let load = Load { volume, reads, sessions, block, depth };
                    let said = together(binary, &client, &[load], options.seconds)?;
                    let iops = said[0]["iops"].as_f64().context("requests a second")?;
                    rates[turn].push(iops);
                }
            }
            let ratios: Vec<f64> = rates[1].iter().zip(&rates[0]).map(|(many, one)| many / one).collect();
            holds &= median(&ratios) >= HARMLESS;
            let _ = writeln!(
                text,
                "| {what} | {sessions} | {} | {} | {} |",
                spread(&rates[0], 0),
                spread(&rates[1], 0),
                spread(&ratios, 2)
            );
        }
    }
    drop(servers);
    let text = format!(
        "Requests a second of a server that has core 0, and of one that has both cores of this machine, one of which the client needs: the second \
         core can give little here, and must take nothing. The server's sessions live on both cores in turn. Each session has a packet socket of its own, with a filter for \
         its frames; so has each core of the server. Document 004: HyperSCSI \"works only on uniprocessor kernels\". Goal: \
         {HARMLESS:.2} of one core's rate, which leaves room for noise.\n\n{text}"
    );
    Ok((text, holds))
}

/// Two HyperSCSI flows and one of TCP through a switch to one host, and from it.
fn shared(binary: &Path, folder: &Path, options: &Options) -> Result<(String, bool)> {
    let network = Network::of(&["left", "right", "tcp", "switch", "far"])?;
    let mut servers = Vec::new();
    for (number, sender) in (6..).zip(SENDERS) {
        network.join(number, [sender, "switch"], FAST)?;
        network.send_segments_alone(number, sender)?;
    }
    network.join(SWITCH_LINK, ["far", "switch"], GIGABIT)?;
    network.send_segments_alone(SWITCH_LINK, "far")?;
    network.bridge("switch", &[6, 7, 8, SWITCH_LINK])?;
    let addresses = [("tcp", 8, "10.89.0.1/24"), ("far", SWITCH_LINK, "10.89.0.2/24")];
    for (host, link, address) in addresses {
        network.address(host, link, address)?;
    }
    for (number, sender) in (6..).zip(SENDERS) {
        let place = network.place(sender, SERVER_CORE)?;
        let listen = match sender {
            "tcp" => "10.89.0.1:3260".to_owned(),
            _ => format!("hyperscsi://link{number}"),
        };
        servers.push(serve(binary, folder, &place, sender, &[listen])?);
    }
    let far = network.place("far", CLIENT_CORE)?;
    let urls = [
        format!("hyperscsi://link{SWITCH_LINK}/left/0"),
        format!("hyperscsi://link{SWITCH_LINK}/right/0"),
        "iscsi://10.89.0.1/iqn.2026-01.io.linerate:tcp/0".to_owned(),
    ];
    for url in &urls {
        together(binary, &far, &[Load::bulk(url.clone(), false)], 2.5)?;
    }
    let mut text = "| | HyperSCSI | HyperSCSI | iSCSI | sum | Jain's index | sum, of the link |\n\
                    |---|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    let mut holds = true;
    for (reads, what) in
        [(true, "read: the queue of the switch"), (false, "write: the queue of the host itself")]
    {
        let (mut each, mut sums, mut jains) = ([Vec::new(), Vec::new(), Vec::new()], Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            let loads = urls.clone().map(|url| Load::bulk(url, reads));
            // Long enough for windows to meet: a cycle of one takes a good second.
            let said = together(binary, &far, &loads, options.seconds * 2.0)?;
            let rates = said.iter().map(rate).collect::<Result<Vec<f64>>>()?;
            rates.iter().zip(&mut each).for_each(|(rate, rates)| rates.push(*rate));
            sums.push(rates.iter().sum());
            jains.push(jain(&rates));
        }
        let of_link: Vec<f64> = sums.iter().map(|sum: &f64| sum * 8e6 / GIGABIT).collect();
        if reads {
            holds &= median(&jains) >= JAIN && median(&of_link) >= SHARE;
        }
        let _ = writeln!(
            text,
            "| {what} | {} | {} | {} | {} | {} | {} |",
            spread(&each[0], 0),
            spread(&each[1], 0),
            spread(&each[2], 0),
            spread(&sums, 0),
            spread(&jains, 2),
            spread(&of_link, 2)
        );
    }
    drop(servers);
    let text = format!(
        "Three hosts with a server each, a switch (a bridge) and a host with three clients, whose link of 1 Gbit/s all share; the iSCSI connection uses \
         CUBIC, and its host sends segments one by one (no segmentation offload), as a wire would carry them. MB/s of data in {} s; \
         headers take 3 to 6 % of the link. Goals, for the queue of the switch: an index of {JAIN:.2}, and {SHARE:.2} of the link. Writes \
         leave by one host's own queue, where the kernel tells TCP of every drop at once and keeps it from filling the queue.\n\n{text}",
        options.seconds * 2.0
    );
    Ok((text, holds))
}

fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    sum * sum / (rates.len() as f64 * rates.iter().map(|rate| rate * rate).sum::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_1_for_equals_and_a_third_for_one_of_three() {
        assert!((jain(&[5.0, 5.0, 5.0]) - 1.0).abs() < 1e-9);
        assert!((jain(&[5.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(spread(&[3.0, 1.0, 2.0], 0), "2 (1–3)");
    }
}
