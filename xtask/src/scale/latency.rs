//! The longest waits: p99.9 beside p50 at 70 % of what the server can do, one session, a core for each end.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::json;
use stats::quantile;

use super::goal::Goal;
use super::pauses::{self, Pause};
use super::server::{Server, VOLUME};
use super::workload::{self, Run};
use super::{Found, Site};
use crate::measuring::{CLIENT_CORE, SERVER_CORE};

const SHARE: f64 = 0.7;
/// Times p50.
const LIMIT: f64 = 3.0;
/// Closed loops whose depth leaves the server some time of its own.
const DEPTHS: [u32; 3] = [8, 16, 32];

pub(super) fn measure(site: &Site) -> Result<Found> {
    let server = Server::start(site, Some(SERVER_CORE), &["--volume", VOLUME, "--reactors", "1"])?;
    workload::fill(site, &server)?;
    let run = |arguments: &str| {
        workload::run(site, &server, Some(CLIENT_CORE), &format!("{arguments} --seconds {}", site.seconds))
    };
    let (mut closed, mut open, mut poisson) = (vec![Vec::new(); DEPTHS.len()], Vec::new(), Vec::new());
    let mut perfect = Vec::new();
    for _ in 0..site.rounds {
        for (depth, runs) in DEPTHS.iter().zip(&mut closed) {
            runs.push(run(&format!("--depth {depth}"))?);
        }
        let capacity =
            closed.last().map(|runs| workload::median(runs)).transpose()?.map_or(1.0, |run| run.iops);
        let rate = (capacity * SHARE).max(1.0);
        perfect.push(alone(site, rate, capacity)?);
        open.push(run(&format!("--depth 32 --rate {rate:.0}"))?);
        poisson.push(run(&format!("--depth 32 --poisson --rate {rate:.0}"))?);
    }
    let closed = closed.iter().map(|runs| workload::median(runs)).collect::<Result<Vec<_>>>()?;
    let (open, poisson) = (workload::median(&open)?, workload::median(&poisson)?);
    let perfect_us = quantile(&perfect.iter().map(|found| found.p999_us).collect::<Vec<_>>(), 0.5);
    let away = quantile(&perfect.iter().map(|found| found.away_share).collect::<Vec<_>>(), 0.5);
    let best = closed.last().map_or(1.0, |run| run.iops);
    let mut text = head(site);
    for (depth, found) in DEPTHS.iter().zip(&closed) {
        row(&mut text, &format!("closed loop, depth {depth}"), found, best);
    }
    row(&mut text, "open loop, equal distances", &open, best);
    row(&mut text, "open loop, Poisson", &poisson, best);
    let _ = write!(
        text,
        "\nTwo threads that do nothing but look at the clock, one on each core, in the same rounds: the machine took a \
         core from them for {:.2} % of the time (pauses of 15 µs and more). A server without any other fault, of the same \
         capacity, under the same open loop with these pauses would have a p99.9 of {perfect_us:.0} µs of waiting, beside \
         which ours is to be read.\n",
        away * 100.0
    );
    let goal = |name: &str, run: &Run| {
        let beyond = perfect_us > LIMIT * run.p50_us;
        let reason = format!("its pauses alone make {perfect_us:.0} µs");
        Goal::at_most(format!("p99.9 over p50, {name}"), run.p999_us / run.p50_us, LIMIT)
            .though(beyond.then_some(reason))
    };
    let goals = vec![goal("open loop at 70 %", &open), goal("Poisson at 70 %", &poisson)];
    let figures = json!({"closed": closed, "open": open, "poisson": poisson, "perfect": perfect});
    Ok(Found { heading: "Scale: the longest waits", text, goals, figures })
}

/// What the machine alone does to requests.
#[derive(serde::Serialize)]
struct Alone {
    p999_us: f64,
    /// Of the time.
    away_share: f64,
}

fn alone(site: &Site, rate: f64, capacity: f64) -> Result<Alone> {
    let pauses: Vec<Pause> = pauses::of_cores(&[SERVER_CORE, CLIENT_CORE], site.seconds)?;
    let waits = pauses::waits_us(&pauses, rate, capacity, site.seconds);
    let at = (waits.len() as f64 * 0.999) as usize;
    let away_us: f64 = pauses.iter().map(|pause| pause.end_us - pause.begin_us).sum();
    Ok(Alone {
        p999_us: waits.get(at).copied().unwrap_or(0.0),
        away_share: away_us / (site.seconds * 1e6) / 2.0, // two cores were watched
    })
}

fn head(site: &Site) -> String {
    format!(
        "`cargo xtask scale --part latency`: one session, 4 KiB random reads of a RAM volume, the server on core 0 with \
         one reactor, the client on core 1. The most is the closed loop at depth 32; the open loops make 70 % of that, and \
         count each request's time from when it was meant to be made. Medians of {} rounds of {} s.\n\n\
         | load | IOPS | of the most | p50 µs | p99 µs | p99.9 µs | p99.9 over p50 |\n|---|---:|---:|---:|---:|---:|---:|\n",
        site.rounds, site.seconds
    )
}

fn row(text: &mut String, name: &str, run: &Run, best: f64) {
    let Run { iops, p50_us, p99_us, p999_us, .. } = run;
    let (share, times) = (iops / best, p999_us / p50_us);
    let _ = writeln!(
        text,
        "| {name} | {iops:.0} | {share:.2} | {p50_us:.1} | {p99_us:.1} | {p999_us:.1} | {times:.1} |"
    );
}
