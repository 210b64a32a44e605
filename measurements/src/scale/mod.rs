//! What a server takes of memory and of time for much of everything: sessions, LUNs, commands. These count what is there,
//! and compare nothing; the other parts of `cargo measure scale` are tables (measurements/tables/scale-*.toml).

mod commands;
mod idle;
mod luns;

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::measuring::goal::{self, Judged};
use crate::measuring::server::Site;
use crate::measuring::{Options, machine};
use xtask::document;
use xtask::process::{self, Background};
use xtask::serving::Serving;
use xtask::serving::linerate::Linerate;
use xtask::tally::Verdict;
use xtask::workspace;

/// What came of a part.
struct Found {
    /// The heading of its section.
    heading: &'static str,
    /// How it was measured, and the table.
    text: String,
    goals: Vec<Judged>,
    figures: Value,
}

type Part = fn(&Site) -> Result<Found>;

const PARTS: [(&str, Part); 3] =
    [("idle", idle::measure), ("luns", luns::measure), ("commands", commands::measure)];

/// The names of the parts.
pub(crate) fn parts() -> [&'static str; 3] {
    PARTS.map(|(name, _)| name)
}

/// Measures, prints, writes the page and its numbers. Holds if every goal is reached.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    let wanted: Vec<_> = PARTS.into_iter().filter(|(name, _)| options.has_part(name)).collect();
    if wanted.is_empty() {
        return Ok(Verdict::Holds);
    }
    let site = options.site()?;
    let mut verdict = Verdict::Holds;
    for (name, measure) in wanted {
        let Found { heading, text, goals, figures } = measure(&site)?;
        let machine = format!("Machine: {}, Linux {}.", machine::machine(), machine::kernel());
        let section = format!("{}\n\n{}{machine}\n", text.trim_end(), goal::rows(&goals));
        println!("## {heading}\n\n{section}");
        if options.is_for_the_page() {
            document::write_section("scale", heading, &section)?;
        }
        let path = workspace::target_directory().join(format!("scale-{name}.json"));
        let all = json!({"machine": machine, "congestion": site.namespace.congestion, "figures": figures});
        fs::write(&path, serde_json::to_string_pretty(&all)?).with_context(|| path.display().to_string())?;
        verdict = verdict.and(Verdict::of(goals.iter().all(Judged::is_reached)));
    }
    Ok(verdict)
}

/// Starts a server with these options on all cores.
fn serve(site: &Site, options: &[&str]) -> Result<Linerate> {
    Linerate::start_with(&site.binary, &owned(options), 1, &site.place(None))
}

fn owned(options: &[&str]) -> Vec<String> {
    options.iter().map(|&option| option.to_owned()).collect()
}

/// The program in the measurement's namespace.
fn linerate(site: &Site) -> Command {
    site.place(None).command(&site.binary)
}

/// Begins a load in the background.
fn load(site: &Site, server: &Linerate, volume: &str, options: &str) -> Result<Background> {
    let mut command = linerate(site);
    command.args(["bench", &server.url_of(volume, 0), "--json", "--allow-write", "--yes"]);
    command.args(options.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
    Background::start(&mut command)
}

/// Who is logged in, as the server itself tells it.
fn sessions(site: &Site, server: &Linerate) -> Result<Vec<Value>> {
    let mut command = linerate(site);
    command.args(["server", "sessions", "--json", "--control"]).arg(server.control());
    let told: Value = serde_json::from_str(&process::capture(command)?)?;
    told["sessions"].as_array().cloned().context("linerate server sessions")
}

/// Waits until there are so many.
fn wait_for(wanted: u64, limit: Duration, count: impl Fn() -> Result<u64>) -> Result<()> {
    let end = Instant::now() + limit;
    while count()? < wanted {
        ensure!(Instant::now() < end, "not {wanted} sessions or commands within {limit:?}");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn pid(server: &Linerate) -> u32 {
    server.process().pid()
}
