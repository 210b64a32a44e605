//! `linerate lab run`: runs a command in a lab, several hosts on this machine joined by links with rate, delay and loss
//! (`docs/lab.md`).
//!
//! Reading order: [`run`], [`foreground`] (the command, its signals and its exit code). The lab itself is the crate `lab`.

mod foreground;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench_runner::site::failed;
use clap::Args;
use lab::{Background, Lab, Plan};

use crate::failure::Failure;
use crate::output::remark;

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Plan of the lab, a TOML file
    plan: PathBuf,
    /// Host that the command runs in [default: the first of the plan]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Print the hosts with their addresses and settings, before the command
    #[arg(long)]
    show: bool,
    /// Print what each link carried and dropped, after the command
    #[arg(long)]
    counts: bool,
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Builds the lab and runs the command.
pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let plan = read(&arguments.plan)?;
    // Users' own namespaces do for a lab where root is not at hand. If there are none either, building says what is
    // missing.
    let _ = host::namespace::become_root();
    let lab = Lab::build(&plan).map_err(failed)?;
    let at = match &arguments.host {
        Some(name) => lab.host(name).map_err(failed)?,
        None => &lab.hosts()[0], // a plan has a host, or is refused
    };
    if arguments.show {
        lab.hosts().iter().for_each(remark);
    }
    let background = Background::start(&lab).map_err(failed)?;
    let outcome = foreground::run(at, &arguments.command);
    drop(background);
    if arguments.counts {
        lab.links().iter().for_each(remark);
    }
    outcome
}

fn read(path: &Path) -> Result<Plan, Failure> {
    let shown = path.display();
    let cannot =
        |error: std::io::Error| Failure::refused(format_args!("cannot read the plan {shown}: {error}"));
    let mut text = String::new();
    // A byte more than a plan may have, so that a device without end is no trouble.
    File::open(path)
        .and_then(|file| file.take(PLAN_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(cannot)?;
    Plan::parse(&text).map_err(|error| Failure::refused(format_args!("{shown}:{error}")))
}

const PLAN_BYTES_MAX: u64 = 1 << 20;
