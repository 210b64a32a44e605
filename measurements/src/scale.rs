//! The memory and time that a server needs for many idle sessions, LUNs and outstanding commands. These parts of `cargo measure
//! scale` do not compare servers; the other parts are tables (measurements/tables/scale-*.toml).

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use xtask::process::{self, Background};
use xtask::serving::Serving;
use xtask::serving::linerate::Linerate;
use xtask::workspace;

use crate::figures::Judged;
use crate::machine::{own_memory, proportional_memory, threads_cpu_s};
use crate::runner::{Found, Options, Part};
use crate::server::Site;

pub(crate) const PARTS: [Part; 3] = [("idle", idle), ("luns", luns), ("commands", commands)];

const IDLE_SESSIONS: u64 = 1000;
/// Duration of a measurement of idle sessions: long enough for two of the initiator's NOPs in each session,
/// which it sends every 5 s.
const WATCHED: Duration = Duration::from_secs(12);

/// Measures the memory and CPU time of the server with 1,000 idle sessions.
fn idle(site: &Site, _: &Options) -> Result<Found> {
    let server = serve(site, &["--volume", "ram0=ram:1GiB"])?;
    thread::sleep(Duration::from_secs(1)); // until startup work is done
    let cpu_without = cpu_share(&server)?;
    let before = memory(&server)?;
    let begin = Instant::now();
    let workload = format!("--sessions {IDLE_SESSIONS} --depth 1 --rate 1 --seconds 300");
    let client = load(site, &server, "ram0", &workload)?;
    // The server itself counts the sessions.
    let logged_in = wait_for(IDLE_SESSIONS, || Ok(sessions(site, &server)?.len() as u64));
    let took = begin.elapsed();
    let watched = logged_in.and_then(|()| {
        thread::sleep(Duration::from_secs(2));
        Ok((cpu_share(&server)?, memory(&server)?))
    });
    drop(client); // terminated with SIGTERM, so that it logs out
    let (cpu_with, after) = watched?;
    let each = |before: u64, after: u64| {
        after.saturating_sub(before) as f64 / 1024.0 / IDLE_SESSIONS as f64
    };
    let (own, proportional) = (each(before.0, after.0), each(before.1, after.1));
    let text = format!(
        "`cargo measure scale --part idle`: {IDLE_SESSIONS} sessions of our initiator to a RAM volume, each with one \
         connection and default settings: one request per second over all sessions, and a NOP every 5 s in each. The logins, \
         one after another, took {:.1} s. Memory is from `/proc/PID/smaps_rollup` before and with the sessions (it excludes the \
         kernel's sockets); CPU time is from `schedstat` of all threads over {} s.\n\n\
         | | without sessions | with {IDLE_SESSIONS} | per session |\n|---|---:|---:|---:|\n\
         | private memory of the server, KiB | {} | {} | {own:.1} |\n\
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
        (cpu_with - cpu_without) * 100.0 / IDLE_SESSIONS as f64,
    );
    let goals = vec![
        Judged::at_most("KiB per idle session", own.max(proportional), 64.0),
        Judged::at_most("% of a core without sessions", cpu_without * 100.0, 0.5),
        Judged::at_most(
            format!("% of a core with {IDLE_SESSIONS} idle sessions"),
            cpu_with * 100.0,
            0.5,
        ),
    ];
    let figures = json!({
        "sessions": IDLE_SESSIONS, "own_bytes": [before.0, after.0], "proportional_bytes": [before.1, after.1],
        "cpu_share": [cpu_without, cpu_with], "logins_seconds": took.as_secs_f64(),
    });
    Ok(Found {
        heading: "1,000 idle sessions",
        text,
        goals,
        figures,
    })
}

/// Measures the server's CPU time per second, over [`WATCHED`].
fn cpu_share(server: &Linerate) -> Result<f64> {
    let (begin, before) = (Instant::now(), threads_cpu_s(pid(server))?);
    thread::sleep(WATCHED);
    Ok((threads_cpu_s(pid(server))? - before) / begin.elapsed().as_secs_f64())
}

/// Returns the server's private memory and its proportional set size.
fn memory(server: &Linerate) -> Result<(u64, u64)> {
    Ok((own_memory(pid(server))?, proportional_memory(pid(server))?))
}

const LUNS: usize = 4096;

/// Measures 4,096 LUNs: the time until a server is ready, the number of LUNs that an initiator finds, and
/// their memory.
fn luns(site: &Site, _: &Options) -> Result<Found> {
    let empty = own_memory(pid(&serve(site, &["--volume", "ram0=ram:16MiB"])?))?;
    let mut text = format!(
        "`cargo measure scale --part luns`: a configuration file with {LUNS} RAM volumes. The first start generates an identity \
         for each volume and stores it on the disk; later starts read it. Memory is the server's private memory, above that of \
         a server with one LUN, without written data or sessions.\n\n\
         | presented as | first start, s | later start, s | LUNs found by an initiator | bytes per LUN |\n|---|---:|---:|---:|---:|\n"
    );
    let (mut goals, mut figures) = (Vec::new(), Vec::new());
    for (name, is_one) in [("one target with all", true), ("a target for each", false)] {
        let path =
            workspace::target_directory().join(format!("xtask/scale-{}.toml", std::process::id()));
        fs::write(&path, luns_configuration(is_one)).with_context(|| path.display().to_string())?;
        let file = path.to_string_lossy().into_owned();
        let arguments = ["--config", file.as_str()];
        let first = serve(site, &arguments)?;
        let first_s = first.started_in.as_secs_f64();
        let later = first.restart(
            &site.binary,
            &arguments.map(str::to_owned),
            &site.place(None)?,
        )?;
        let later_s = later.started_in.as_secs_f64();
        let each = own_memory(pid(&later))?.saturating_sub(empty) / LUNS as u64;
        let seen = luns_seen(is_one, site, &later)?;
        drop(later);
        let _ = fs::remove_file(&path); // a leftover under target/ is harmless
        let _ = writeln!(
            text,
            "| {name} | {first_s:.2} | {later_s:.2} | {seen} | {each} |"
        );
        goals.push(Judged::at_most(
            format!("seconds to the first start, {name}"),
            first_s,
            2.0,
        ));
        goals.push(Judged::at_most(
            format!("seconds to a later start, {name}"),
            later_s,
            2.0,
        ));
        goals.push(Judged::at_least(
            format!("LUNs seen, {name}"),
            seen as f64,
            LUNS as f64,
        ));
        figures.push(
            json!({"shape": name, "first_s": first_s, "later_s": later_s, "seen": seen, "bytes_each": each}),
        );
    }
    Ok(Found {
        heading: "4,096 LUNs",
        text,
        goals,
        figures: json!(figures),
    })
}

fn luns_configuration(is_one: bool) -> String {
    let volumes = (0..LUNS).map(|number| format!("[volume.v{number}]\nspec = \"ram:16MiB\"\n"));
    let lun = |lun: usize, volume: usize| {
        format!("[[target.lun]]\nlun = {lun}\nvolume = \"v{volume}\"\n")
    };
    let target = |name: &str| format!("[[target]]\nname = \"iqn.2026-01.io.linerate:{name}\"\n");
    match is_one {
        true => volumes
            .chain([target("all")])
            .chain((0..LUNS).map(|number| lun(number, number)))
            .collect(),
        false => volumes
            .chain((0..LUNS).map(|number| target(&format!("t{number}")) + &lun(0, number)))
            .collect(),
    }
}

/// Returns the number of LUNs that an initiator finds.
fn luns_seen(is_one: bool, site: &Site, server: &Linerate) -> Result<usize> {
    let mut command = linerate(site)?;
    match is_one {
        true => command.args(["scsi", "luns", "--json", &server.url_of("all", 0)]),
        false => command.args(["discover", "--json", &server.address()]),
    };
    let answer: Value = serde_json::from_str(&process::capture(command)?)?;
    let list = answer[if is_one { "luns" } else { "targets" }].as_array();
    // REPORT LUNS also lists the well-known logical units, which have no number.
    let is_counted = |entry: &&Value| match is_one {
        true => entry["lun"]
            .as_str()
            .is_some_and(|lun| lun.parse::<u32>().is_ok()),
        false => entry["name"].is_string(),
    };
    Ok(list
        .with_context(|| format!("no list in {answer}"))?
        .iter()
        .filter(is_counted)
        .count())
}

const BUSY_SESSIONS: u64 = 16;
const DEPTH: u64 = 128;
const BLOCK_BYTES: u64 = 4096;

/// Measures the memory of outstanding commands, which are reads on a hanging device.
fn commands(site: &Site, _: &Options) -> Result<Found> {
    let with = |depth| memory_with(site, depth);
    let (few, many) = (with(1)?, with(DEPTH)?);
    let each = many.saturating_sub(few) / (BUSY_SESSIONS * (DEPTH - 1));
    let beside = each.saturating_sub(BLOCK_BYTES);
    let text = format!(
        "`cargo measure scale --part commands`: reads of {BLOCK_BYTES} bytes from a hanging volume (`fault:[null:1GiB]`, \
         `linerate server fault`), with {BUSY_SESSIONS} sessions and 1 or {DEPTH} outstanding commands in each. Data of a RAM \
         volume is sent from its memory without a buffer; data of a file needs a buffer of its length.\n\n\
         | outstanding commands | private memory of the server, KiB |\n|---:|---:|\n| {BUSY_SESSIONS} | {} |\n| {} | {} |\n\n\
         Each command uses {each} bytes, {BLOCK_BYTES} of them for its data. The memory of commands is limited to 256 MiB of \
         data per session, 1 GiB of data in total (`staging`), and 256 commands per session (`window`). So 1,000 sessions with \
         full windows use up to 1 GiB for data and {} MiB in addition.\n",
        few >> 10,
        BUSY_SESSIONS * DEPTH,
        many >> 10,
        (beside * 256 * 1000) >> 20,
    );
    let goals = vec![Judged::at_most(
        "bytes for each command without its data",
        beside as f64,
        4096.0,
    )];
    let figures = json!({"sessions": BUSY_SESSIONS, "depth": DEPTH, "own_bytes": [few, many], "bytes_each": each});
    Ok(Found {
        heading: "Memory of commands",
        text,
        goals,
        figures,
    })
}

/// Measures the server's private memory while every session has `depth` outstanding commands.
fn memory_with(site: &Site, depth: u64) -> Result<u64> {
    let server = serve(site, &["--volume", "ram0=fault:[null:1GiB]"])?;
    let workload = format!("--sessions {BUSY_SESSIONS} --depth {depth} --rate 4000 --seconds 60");
    let mut client = load(site, &server, "ram0", &workload)?;
    let memory = wait_for(BUSY_SESSIONS, || Ok(sessions(site, &server)?.len() as u64))
        .and_then(|()| switch(site, &server, "hang"))
        .and_then(|()| wait_for(BUSY_SESSIONS * depth, || in_flight(site, &server)))
        .and_then(|()| own_memory(pid(&server)));
    client.kill(); // its report is not needed
    switch(site, &server, "pass")?; // otherwise the server would wait for the device when it shuts down
    memory
}

fn switch(site: &Site, server: &Linerate, mode: &str) -> Result<()> {
    let mut command = linerate(site)?;
    command
        .args(["server", "fault"])
        .arg("--control")
        .arg(server.control())
        .args(["ram0", mode]);
    process::capture(command).map(drop)
}

fn in_flight(site: &Site, server: &Linerate) -> Result<u64> {
    Ok(sessions(site, server)?
        .iter()
        .filter_map(|session| session["in_flight"].as_u64())
        .sum())
}

/// Starts a server with these options on all cores.
fn serve(site: &Site, options: &[&str]) -> Result<Linerate> {
    let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    Linerate::start_with(&site.binary, &options, 1, &site.place(None)?)
}

/// Returns the program in the measurement's namespace.
fn linerate(site: &Site) -> Result<Command> {
    Ok(site.place(None)?.command(&site.binary))
}

/// Starts a load in the background.
fn load(site: &Site, server: &Linerate, volume: &str, options: &str) -> Result<Background> {
    let mut command = linerate(site)?;
    command.args([
        "bench",
        &server.url_of(volume, 0),
        "--json",
        "--allow-write",
        "--yes",
    ]);
    command
        .args(options.split(' '))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Background::start(&mut command)
}

/// Asks the server for its current sessions.
fn sessions(site: &Site, server: &Linerate) -> Result<Vec<Value>> {
    let mut command = linerate(site)?;
    command
        .args(["server", "sessions", "--json", "--control"])
        .arg(server.control());
    let told: Value = serde_json::from_str(&process::capture(command)?)?;
    told["sessions"]
        .as_array()
        .cloned()
        .context("linerate server sessions")
}

/// Time limit until all sessions are logged in, or all commands are outstanding.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until `count` reaches `wanted`.
fn wait_for(wanted: u64, count: impl Fn() -> Result<u64>) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while count()? < wanted {
        ensure!(
            Instant::now() < end,
            "not {wanted} sessions or commands within {LIMIT:?}"
        );
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn pid(server: &Linerate) -> u32 {
    server.process().pid()
}
