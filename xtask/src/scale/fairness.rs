//! The shares of clients that ask for the same at the same time, and of one that asks for more.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::json;
use stats::jain;

use super::goal::Goal;
use super::server::{Server, VOLUME};
use super::workload;
use super::{Found, Site};
use crate::measuring::figures::middle;
use crate::measuring::{CLIENT_CORE, SERVER_CORE};

pub(super) fn measure(site: &Site) -> Result<Found> {
    let mut text = format!(
        "`cargo xtask scale --part fairness`: 8 clients, each a thread with one session of depth 8 and 4 KiB random \
         reads. Equal means the same IOPS; Jain's index is 1 when all have the same, and 1/8 when one has all. {} rounds \
         of {} s; the index is the median of the rounds, the shares are those of the last.\n\n\
         | server | client | Jain's index | IOPS of each |\n|---|---|---:|---|\n",
        site.rounds, site.seconds
    );
    let (mut goals, mut figures) = (Vec::new(), Vec::new());
    let workload = format!("--clients 8 --depth 8 --seconds {}", site.seconds);
    let places = [
        ("one reactor on core 0", "core 1", Some(SERVER_CORE), Some(CLIENT_CORE), "1"),
        ("two reactors on both cores", "both cores", None, None, "2"),
    ];
    for (server_place, client_place, server_core, client_core, reactors) in places {
        let server = Server::start(site, server_core, &["--volume", VOLUME, "--reactors", reactors])?;
        workload::fill(site, &server)?;
        let (mut indices, mut shares) = (Vec::new(), Vec::new());
        for _ in 0..site.rounds {
            shares = workload::run(site, &server, client_core, &workload)?.shares;
            indices.push(jain(&shares).context("nobody had anything")?);
        }
        let index = middle(indices.clone()).context("no rounds")?;
        let list = shares.iter().map(|iops| format!("{iops:.0}")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "| {server_place} | {client_place} | {index:.4} | {list} |");
        goals.push(Goal::at_least(format!("Jain's index, {server_place}"), index, 0.95));
        figures.push(json!({"server": server_place, "indices": indices, "shares": shares}));
        if server_core.is_some() {
            let unequal = unequal(site, &server, client_core)?;
            figures.push(json!({"deep_and_shallow_iops": unequal}));
            let _ = write!(text, "| {server_place} | core 1, 1 × depth 32 beside 8 × depth 1 | | ");
            let _ = writeln!(text, "{:.0} (depth 32), {:.0} (all of depth 1) |", unequal[0], unequal[1]);
        }
    }
    text += "\nA session that asks for more at once gets more: each round of a reactor answers all that has arrived of \
             each session, up to what one read takes (256 KiB).\n";
    Ok(Found { heading: "Scale: fair shares", text, goals, figures: json!(figures) })
}

/// IOPS of one session of depth 32, and of eight of depth 1 beside it.
fn unequal(site: &Site, server: &Server, core: Option<usize>) -> Result<[f64; 2]> {
    let deep = format!("--depth 32 --seconds {}", site.seconds);
    let shallow = format!("--clients 8 --depth 1 --seconds {}", site.seconds);
    workload::run_both(site, server, core, [&deep, &shallow])
}
