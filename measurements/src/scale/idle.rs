//! 1,000 sessions that do nothing: memory and CPU time of the server.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use super::{Found, load, pid, serve, sessions, wait_for};
use crate::measuring::goal::Judged;
use crate::measuring::server::Site;
use crate::measuring::usage;
use xtask::serving::linerate::Linerate;

const SESSIONS: u64 = 1000;
/// Long enough for two of the initiator's NOPs in each session, which it sends every 5 s.
const WATCHED: Duration = Duration::from_secs(12);
/// How long all logins may take.
const LOGINS: Duration = Duration::from_secs(60);

pub(super) fn measure(site: &Site) -> Result<Found> {
    let server = serve(site, &["--volume", "ram0=ram:1GiB"])?;
    thread::sleep(Duration::from_secs(1)); // what belongs to the start is over
    let cpu_without = cpu_share(&server)?;
    let before = memory(&server)?;
    let begin = Instant::now();
    let workload = format!("--sessions {SESSIONS} --depth 1 --rate 1 --seconds 300");
    let client = load(site, &server, "ram0", &workload)?;
    // The server itself counts them.
    let logged_in = wait_for(SESSIONS, LOGINS, || Ok(sessions(site, &server)?.len() as u64));
    let took = begin.elapsed();
    let watched = logged_in.and_then(|()| {
        thread::sleep(Duration::from_secs(2));
        Ok((cpu_share(&server)?, memory(&server)?))
    });
    drop(client); // ended as a person would, so that it logs out
    let (cpu_with, after) = watched?;
    let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / 1024.0 / SESSIONS as f64;
    let (own, proportional) = (each(before.0, after.0), each(before.1, after.1));
    let text = format!(
        "`cargo measure scale --part idle`: {SESSIONS} sessions of our initiator with one connection each and a RAM \
         volume, with default settings: one request a second over all of them, and a NOP every 5 s in each. Logged in \
         one after the other in {:.1} s. Memory is what `/proc/PID/smaps_rollup` says before and with them (the kernel's \
         sockets are not in it), CPU time what `schedstat` says of all threads over {} s.\n\n\
         | | without sessions | with {SESSIONS} | for each session |\n|---|---:|---:|---:|\n\
         | memory of the server's own, KiB | {} | {} | {own:.1} |\n\
         | proportional set size, KiB | {} | {} | {proportional:.1} |\n\
         | CPU time, % of a core | {:.3} | {:.3} | {:.5} |\n",
        took.as_secs_f64(),
        WATCHED.as_secs(),
        before.0 >> 10,
        after.0 >> 10,
        before.1 >> 10,
        after.1 >> 10,
        cpu_without * 100.0,
        cpu_with * 100.0,
        (cpu_with - cpu_without) * 100.0 / SESSIONS as f64,
    );
    let goals = vec![
        Judged::at_most("KiB for each idle session", own.max(proportional), 64.0),
        Judged::at_most("% of a core without sessions", cpu_without * 100.0, 0.5),
        Judged::at_most(format!("% of a core with {SESSIONS} idle sessions"), cpu_with * 100.0, 0.5),
    ];
    let figures = json!({
        "sessions": SESSIONS, "own_bytes": [before.0, after.0], "proportional_bytes": [before.1, after.1],
        "cpu_share": [cpu_without, cpu_with], "logins_seconds": took.as_secs_f64(),
    });
    Ok(Found { heading: "1,000 idle sessions", text, goals, figures })
}

/// CPU time for each second of [`WATCHED`].
fn cpu_share(server: &Linerate) -> Result<f64> {
    let (begin, before) = (Instant::now(), usage::cpu_seconds(pid(server))?);
    thread::sleep(WATCHED);
    Ok((usage::cpu_seconds(pid(server))? - before) / begin.elapsed().as_secs_f64())
}

fn memory(server: &Linerate) -> Result<(u64, u64)> {
    Ok((usage::own_memory(pid(server))?, usage::proportional_memory(pid(server))?))
}
