//! 1 to 256 busy sessions over all cores, the client in the same machine.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::json;

use super::goal::Goal;
use super::server::{Server, VOLUME};
use super::workload::{self, Run};
use super::{Found, Site};

const SESSIONS: [usize; 5] = [1, 4, 16, 64, 256];

pub(super) fn measure(site: &Site) -> Result<Found> {
    let server = Server::start(site, None, &["--volume", VOLUME])?;
    workload::fill(site, &server)?;
    let mut runs: Vec<(usize, Vec<Run>)> = SESSIONS.map(|sessions| (sessions, Vec::new())).into();
    for _ in 0..site.rounds {
        for (sessions, runs) in &mut runs {
            let clients = 2.min(*sessions);
            let each = *sessions / clients;
            let workload =
                format!("--depth 8 --clients {clients} --sessions {each} --seconds {}", site.seconds);
            runs.push(workload::run(site, &server, None, &workload)?);
        }
    }
    let mut text = format!(
        "`cargo xtask scale --part sessions`: 4 KiB random reads of a RAM volume, depth 8 in each session, sessions on \
         two client threads (one session: one). The server has a reactor for each core, the client runs beside it on \
         the same cores. Medians of {} rounds of {} s.\n\n\
         | sessions | IOPS | p50 µs | p99.9 µs | server CPU µs/IO | client CPU µs/IO |\n|---:|---:|---:|---:|---:|---:|\n",
        site.rounds, site.seconds
    );
    let mut rates = Vec::new();
    for (sessions, runs) in &runs {
        let Run { iops, p50_us, p999_us, server_cpu_us_per_io, client_cpu_us_per_io, .. } =
            workload::median(runs)?;
        let _ = writeln!(
            text,
            "| {sessions} | {iops:.0} | {p50_us:.0} | {p999_us:.0} | {server_cpu_us_per_io:.2} | {client_cpu_us_per_io:.2} |"
        );
        rates.push(iops);
    }
    let best = rates.iter().copied().fold(0.0, f64::max);
    let most = rates.last().copied().unwrap_or_default();
    let goals =
        vec![Goal::at_least("256 sessions, as a share of the best number of sessions", most / best, 0.5)];
    Ok(Found { heading: "Scale: 1 to 256 sessions", text, goals, figures: json!(runs) })
}
