//! HyperSCSI beside iSCSI: the same link, server, client and volume, one after the other, in short and in long frames, with cards that
//! cut and join TCP's segments and without.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use super::{LONG, Load, Options, median, serve, together};
use crate::measuring::network::Network;
use crate::measuring::server::{CLIENT_CORE, SERVER_CORE};
use crate::measuring::usage;
use xtask::process::Background;
use xtask::serving::Placement;

/// Of HyperSCSI in raw frames, beside each of iSCSI's two ways.
const WAYS: [&str; 4] = ["raw Ethernet", "over UDP", "iSCSI", "iSCSI, CRC32C"];
const RAW: usize = 0;
const ISCSI: usize = 2;
const DIGESTS: usize = 3;

struct Cell {
    what: &'static str,
    block: &'static str,
    reads: bool,
    depth: usize,
}

const fn cell(what: &'static str, block: &'static str, reads: bool, depth: usize) -> Cell {
    Cell { what, block, reads, depth }
}

const CELLS: [Cell; 7] = [
    cell("512 B read, depth 1", "512", true, 1),
    cell("4 KiB read, depth 1", "4KiB", true, 1),
    cell("4 KiB write, depth 1", "4KiB", false, 1),
    cell("4 KiB read, depth 32", "4KiB", true, 32),
    cell("4 KiB write, depth 32", "4KiB", false, 32),
    cell("256 KiB read, depth 8", "256KiB", true, 8),
    cell("256 KiB write, depth 8", "256KiB", false, 8),
];
/// The cells of 256 KiB.
const BULK_DEPTH: usize = 8;

/// Rounds of one cell and way: requests a second, the median of their times, and the CPU time of both ends for each, in µs.
#[derive(Default)]
struct Figures {
    iops: Vec<f64>,
    p50_us: Vec<f64>,
    cpu_us: Vec<f64>,
}

struct Pair<'a> {
    binary: &'a Path,
    client: Placement,
    server: Background,
    urls: [String; WAYS.len()],
    /// Removed when dropped.
    _network: Network,
}

/// Goals: better at depth 1 than iSCSI, and less CPU time for a byte in long frames, where each segment is a packet.
pub(super) fn beside(binary: &Path, folder: &Path, options: &Options) -> Result<(String, bool)> {
    let (mut text, mut holds) = (INTRODUCTION.to_owned(), true);
    for offload in [true, false] {
        for mtu in [LONG, 1500] {
            let pair = Pair::begin(binary, folder, mtu, offload)?;
            let with = if offload { "with" } else { "without" };
            let _ = write!(text, "\nMTU {mtu}, {with} segmentation offload:\n\n{HEAD}");
            for cell in &CELLS {
                let figures = pair.measured(cell, options)?;
                let of_iscsi = |other: usize, figure: fn(&Figures) -> &[f64]| {
                    let pairs = figure(&figures[RAW]).iter().zip(figure(&figures[other]));
                    median(&pairs.map(|(ours, others)| ours / others).collect::<Vec<f64>>())
                };
                let rates = [ISCSI, DIGESTS].map(|other| of_iscsi(other, |figures| &figures.iops));
                let cpu = [ISCSI, DIGESTS].map(|other| of_iscsi(other, |figures| &figures.cpu_us));
                holds &= cell.depth > 1 || rates[0] >= 1.0;
                holds &= offload || mtu != LONG || cell.depth != BULK_DEPTH || cpu[0] <= 1.0;
                let told = figures.iter().map(|figures| told(figures, cell.depth)).collect::<Vec<_>>();
                let _ = writeln!(
                    text,
                    "| {} | {} | {:.2}, {:.2} | {:.2}, {:.2} |",
                    cell.what,
                    told.join(" | "),
                    rates[0],
                    rates[1],
                    cpu[0],
                    cpu[1]
                );
            }
        }
    }
    Ok((text, holds))
}

fn told(figures: &Figures, depth: usize) -> String {
    let [iops, p50, cpu] = [&figures.iops, &figures.p50_us, &figures.cpu_us].map(|figures| median(figures));
    match depth {
        1 => format!("{iops:.0}/s, {p50:.0} µs"),
        _ => format!("{iops:.0}/s, {cpu:.1} µs"),
    }
}

impl Pair<'_> {
    fn begin<'a>(binary: &'a Path, folder: &Path, mtu: u32, offload: bool) -> Result<Pair<'a>> {
        let network = Network::of(&["client", "store"])?;
        network.join_freely(3, ["client", "store"])?;
        network.set_mtu(3, ["client", "store"], mtu)?;
        if !offload {
            network.cut_and_join_nothing(3, ["client", "store"])?;
        }
        let place = network.place("store", SERVER_CORE)?;
        let listen = ["hyperscsi://link3", "hyperscsi+udp://10.88.3.2:5674", "10.88.3.2:3260"];
        let server = serve(binary, folder, &place, "beside", &listen.map(str::to_owned))?;
        let client = network.place("client", CLIENT_CORE)?;
        let iscsi = "iscsi://10.88.3.2/iqn.2026-01.io.linerate:beside/0";
        let urls = [
            "hyperscsi://link3/beside/0".to_owned(),
            "hyperscsi+udp://10.88.3.2/beside/0".to_owned(),
            iscsi.to_owned(),
            format!("{iscsi}?header-digest=crc32c&data-digest=crc32c"),
        ];
        let pair = Pair { binary, client, server, urls, _network: network };
        // What was never written is no medium to read.
        together(binary, &pair.client, &[Load::bulk(pair.urls[RAW].clone(), false)], 1.0)?;
        Ok(pair)
    }

    /// By way. Rounds alternate, and who is first changes.
    fn measured(&self, cell: &Cell, options: &Options) -> Result<[Figures; WAYS.len()]> {
        let mut figures: [Figures; WAYS.len()] = Default::default();
        let seconds = options.seconds / 4.0;
        for round in 0..options.rounds {
            for turn in 0..WAYS.len() {
                let way = (turn + round) % WAYS.len();
                let &Cell { block, reads, depth, .. } = cell;
                let load = Load { volume: self.urls[way].clone(), reads, sessions: 1, block, depth };
                let (begun, before) = (Instant::now(), usage::cpu_seconds(self.server.pid())?);
                let said = &together(self.binary, &self.client, &[load], seconds)?[0];
                let (wall, used) =
                    (begun.elapsed().as_secs_f64(), usage::cpu_seconds(self.server.pid())? - before);
                let number = |said: &serde_json::Value| said.as_f64().context("a figure");
                let iops = number(&said["iops"])?;
                figures[way].iops.push(iops);
                figures[way].p50_us.push(number(&said["latency_us"]["p50"])?);
                // The server has worked for all of the time, at the same rate as in the part that is measured.
                let server_us = 1e6 * used / (iops * wall.min(seconds + super::WARM_UP));
                figures[way].cpu_us.push(number(&said["client_cpu_us_per_io"])? + server_us);
            }
        }
        Ok(figures)
    }
}

const HEAD: &str = "| | raw Ethernet | over UDP | iSCSI | iSCSI, CRC32C | rate, raw: of iSCSI, with CRC32C | CPU, raw: of iSCSI, with CRC32C |\n\
                    |---|---:|---:|---:|---:|---:|---:|\n";

const INTRODUCTION: &str = "One client and one server on a link without a limit (veth). HyperSCSI in clear has a CRC32C in each frame; iSCSI without digests, and with \
those of header and data, which protect data alike. Requests a second, and at depth 1 the median of their times, else the CPU time of both ends for one, with busy-polling \
(what the kernel does in interrupts is not in it). *With segmentation offload*, the default of veth, TCP hands the kernel up to 64 KiB, which veth \
carries as one packet; so do hosts whose cards cut and join segments, and what that costs is in no figure. *Without it* (`ethtool -K`: tso, gso, gro, \
tx-udp-segmentation off at both ends) each segment is a packet, as a frame of raw Ethernet always is, and as with cards without offload, such as document \
004's. Goals for raw frames: 1.00 of iSCSI's rate at least at depth 1, and without offload, in long frames, 1.00 of its CPU time for a byte at most.\n";
