//! How the server does with much of everything: sessions, LUNs, load, cores; what that costs in memory and in CPU time
//! while nothing happens; and who waits for how long. What one session reaches beside other makes is `peers`'.
//!
//! Each part measures one thing, says what it asks for (a goal that can be missed), and writes a section of
//! docs/measured/scale.md, so that one part can be measured again without the others. The figures of all its rounds are
//! in `scale.json` in cargo's target folder.

mod commands;
mod cores;
mod fairness;
mod goal;
mod idle;
mod latency;
mod luns;
pub(crate) mod pauses;
mod server;
mod sessions;
mod workload;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::measuring::document;
use crate::measuring::machine;
use crate::measuring::namespace::Namespace;
use crate::process;
use crate::tally::Verdict;
use crate::workspace;
use goal::Goal;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only these; may be repeated
    #[arg(long, value_enum)]
    part: Vec<Part>,
    /// Rounds of what is measured in rounds; each figure is the median of them
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds for each figure in each round
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Leave the page as it is
    #[arg(long)]
    dry: bool,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// 1 to 256 busy sessions over all cores
    Sessions,
    /// Memory and CPU time of 1,000 sessions that do nothing
    Idle,
    /// 4,096 LUNs: start, REPORT LUNS, memory
    Luns,
    /// Memory of a command under way
    Commands,
    /// The shares of equal clients
    Fairness,
    /// The longest waits at 70 % load
    Latency,
    /// The same load over one core and over two
    Cores,
}

const ALL: [Part; 7] =
    [Part::Sessions, Part::Idle, Part::Luns, Part::Commands, Part::Fairness, Part::Latency, Part::Cores];

/// Where and how long to measure.
struct Site {
    binary: PathBuf,
    namespace: Namespace,
    rounds: usize,
    seconds: f64,
}

/// What came of a part.
struct Found {
    /// The heading of its section.
    heading: &'static str,
    /// How it was measured, and the table.
    text: String,
    goals: Vec<Goal>,
    figures: Value,
}

/// Measures, prints, writes the page and its numbers. Holds if every goal is reached.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    for program in ["taskset", "nsenter", "ip"] {
        ensure!(process::installed(program), "{program} is missing: run `cargo xtask packages`");
    }
    let parts = if options.part.is_empty() { &ALL[..] } else { &options.part };
    let site = Site {
        binary: workspace::release_binary()?,
        namespace: Namespace::create()?,
        rounds: options.rounds.max(1),
        seconds: options.seconds,
    };
    let mut found = Vec::new();
    for part in parts {
        let one = measure(*part, &site)?;
        println!("## {}\n\n{}", one.heading, section(&one));
        if !options.dry {
            document::write_section("scale", one.heading, &section(&one))?;
        }
        found.push(one);
    }
    write_figures(&site, &found)?;
    let reached = found.iter().flat_map(|found| &found.goals).all(Goal::is_reached);
    Ok(if reached { Verdict::Holds } else { Verdict::Fails })
}

fn measure(part: Part, site: &Site) -> Result<Found> {
    match part {
        Part::Sessions => sessions::measure(site),
        Part::Idle => idle::measure(site),
        Part::Luns => luns::measure(site),
        Part::Commands => commands::measure(site),
        Part::Fairness => fairness::measure(site),
        Part::Latency => latency::measure(site),
        Part::Cores => cores::measure(site),
    }
}

fn section(found: &Found) -> String {
    let goals: String = found.goals.iter().map(|goal| format!("- {goal}\n")).collect();
    let machine = format!("Machine: {}, Linux {}.", machine::machine(), machine::kernel());
    format!("{}\n\nGoals:\n\n{goals}\n{machine}\n", found.text.trim_end())
}

fn write_figures(site: &Site, found: &[Found]) -> Result<()> {
    let path = workspace::target_directory().join("scale.json");
    let parts: Vec<Value> = found
        .iter()
        .map(|found| {
            let goals: Vec<String> = found.goals.iter().map(Goal::to_string).collect();
            json!({"part": found.heading, "figures": found.figures, "goals": goals})
        })
        .collect();
    let all = json!({
        "machine": machine::machine(), "kernel": machine::kernel(), "congestion": site.namespace.congestion,
        "rounds": site.rounds, "seconds": site.seconds, "parts": parts,
    });
    fs::write(&path, serde_json::to_string_pretty(&all)?).with_context(|| path.display().to_string())
}
