//! The memory of commands under way: reads that a device keeps because it hangs.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::{Found, linerate, load, pid, serve, sessions, wait_for};
use crate::measuring::goal::Judged;
use crate::measuring::server::Site;
use crate::measuring::usage;
use xtask::process;
use xtask::serving::linerate::Linerate;

const SESSIONS: u64 = 16;
const DEPTH: u64 = 128;
const BLOCK_BYTES: u64 = 4096;
/// Until they are all under way.
const LIMIT: Duration = Duration::from_secs(20);

pub(super) fn measure(site: &Site) -> Result<Found> {
    let with = |depth| memory_with(site, depth);
    let (few, many) = (with(1)?, with(DEPTH)?);
    let each = many.saturating_sub(few) / (SESSIONS * (DEPTH - 1));
    let beside = each.saturating_sub(BLOCK_BYTES);
    let text = format!(
        "`cargo measure scale --part commands`: reads of {BLOCK_BYTES} bytes of a volume that hangs \
         (`fault:[null:1GiB]`, `linerate server fault`), {SESSIONS} sessions, 1 and {DEPTH} under way in each. A RAM volume's data are sent from \
         where they lie and take no buffer; a file's take one as long as they are.\n\n\
         | commands under way | memory of the server's own, KiB |\n|---:|---:|\n| {SESSIONS} | {} |\n| {} | {} |\n\n\
         That is {each} bytes for each command, of which {BLOCK_BYTES} are its data. What commands may hold is bounded: 256 \
         MiB of data in a session, 1 GiB in all (`staging`), and 256 commands in a session (`window`), so 1,000 sessions \
         with full windows hold at most 1 GiB of data and {} MiB beside.\n",
        few >> 10,
        SESSIONS * DEPTH,
        many >> 10,
        (beside * 256 * 1000) >> 20,
    );
    let goals = vec![Judged::at_most("bytes for each command beside its data", beside as f64, 4096.0)];
    let figures = json!({"sessions": SESSIONS, "depth": DEPTH, "own_bytes": [few, many], "bytes_each": each});
    Ok(Found { heading: "Memory of commands", text, goals, figures })
}

/// Memory of the server's own while every session has `depth` commands under way.
fn memory_with(site: &Site, depth: u64) -> Result<u64> {
    let server = serve(site, &["--volume", "ram0=fault:[null:1GiB]"])?;
    let workload = format!("--sessions {SESSIONS} --depth {depth} --rate 4000 --seconds 60");
    let mut client = load(site, &server, "ram0", &workload)?;
    let memory = wait_for(SESSIONS, LIMIT, || Ok(sessions(site, &server)?.len() as u64))
        .and_then(|()| switch(site, &server, "hang"))
        .and_then(|()| wait_for(SESSIONS * depth, LIMIT, || in_flight(site, &server)))
        .and_then(|()| usage::own_memory(pid(&server)));
    client.kill(); // it is not asked for its report
    switch(site, &server, "pass")?; // or the server would wait for it at its end
    memory
}

fn switch(site: &Site, server: &Linerate, mode: &str) -> Result<()> {
    let mut command = linerate(site);
    command.args(["server", "fault"]).arg("--control").arg(server.control()).args(["ram0", mode]);
    process::capture(command).map(drop)
}

fn in_flight(site: &Site, server: &Linerate) -> Result<u64> {
    Ok(sessions(site, server)?.iter().filter_map(|session| session["in_flight"].as_u64()).sum())
}
