//! `linerate diagnose`: why an iSCSI path is slow, for any vendor's target and without anything on it.
//!
//! ```text
//!   arguments ── way ── long_packets ──► course ──► Evidence ──► diagnose::diagnose
//!                 ▲                       │   │
//!                 │ again, when lost      │   └── load: rounds of requests, with all clocks and counters
//!                 └───────────────────────┴────── ladder: probes alone, in random order, between the rounds
//! ```
//!
//! Nothing on the LUN is changed unless writing is allowed, and no task management function is asked for but the abort
//! of a command that hangs: others use the LUN too. What a target does not do, or lies about, is not known, and the rest
//! goes on. Reading order: [`run`], `course` (the order of events), `ladder` and `probe` (what is asked alone), `load`
//! (what is asked together), `pace` (how long that takes), `way` (the session), `confirm` (whether a change brings what is predicted), `show`.

mod arguments;
mod confirm;
mod course;
mod keys;
mod ladder;
mod load;
mod long_packets;
mod pace;
mod places;
mod probe;
mod progress;
mod show;
mod way;
mod writing;

use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) use arguments::DiagnoseArguments;
pub(crate) use course::evidence;
use diagnose::diagnose;
use initiator::Url;
use model::Load;
pub(crate) use progress::Progress;

use crate::bench::extent::Extent;
use crate::failure::Failure;
use crate::output::say;
use crate::remote;
use show::{ShowOptions, Stage};

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    /// About how long it may take, if that was said.
    pub(crate) seconds: Option<f64>,
    /// The load that the person has.
    pub(crate) own: Option<Load>,
    pub(crate) allow_write: Option<Extent>,
    /// Overwrite without asking.
    pub(crate) yes: bool,
    pub(crate) expected_link_bits_per_s: Option<f64>,
    pub(crate) seed: u64,
}

/// Diagnoses a LUN whose data nobody misses, in about so many seconds, and leaves the report in a directory, in place of
/// an earlier one.
pub(crate) async fn of_own(url: &Url, seconds: f64, out: PathBuf) -> Result<(), Failure> {
    let options = Options {
        quick: false,
        seconds: Some(seconds),
        own: None,
        allow_write: Some(Extent::ALL),
        yes: true,
        expected_link_bits_per_s: None,
        seed: 1,
    };
    let show = ShowOptions::report(out);
    let stage = Stage::replace(&show)?;
    let evidence = evidence(url, &options, &Progress::shown()).await?;
    stage.show(&diagnose(evidence)).map(|_| ())
}

/// Runs the command.
pub(crate) fn run(arguments: &DiagnoseArguments) -> Result<ExitCode, Failure> {
    let options = arguments.options()?;
    let stage = Stage::set(arguments.show())?;
    let url = remote::url(&arguments.url)?;
    let progress = Progress::shown();
    let evidence = remote::run(evidence(&url, &options, &progress))?;
    if let Some(file) = arguments.evidence() {
        let json = serde_json::to_string_pretty(&evidence).map_err(Failure::failed)? + "\n";
        if file.as_os_str() == "-" {
            say(&json);
            return Ok(ExitCode::SUCCESS);
        }
        std::fs::write(file, json).map_err(|error| Failure::unwritten(file.display(), &error))?;
    }
    let mut diagnosis = diagnose(evidence);
    if arguments.confirm {
        remote::run(async {
            confirm::confirm(&mut diagnosis, &url, &options, &progress).await;
            Ok(())
        })?;
    }
    drop(progress);
    stage.show(&diagnosis)
}
