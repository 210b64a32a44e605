//! `linerate diagnose`: why the path to a LUN or an NBD export is slow. What is measured and what follows from it is the crate [`diagnose`]'s
//! business; here are the arguments, the progress on a terminal, and where the result goes.

mod arguments;
mod progress;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) use arguments::DiagnoseArguments;
use diagnose::diagnose;
use diagnose::measure::{Options, Subject, confirm, evidence};
use iscsi_client::Url;
pub(crate) use progress::Progress;

use crate::bench::folder::Folder;
use crate::failure::Failure;
use crate::output::say;
use crate::{remote, terminal};
use bench::Extent;
use show::{ShowOptions, Stage};

/// Diagnoses a LUN whose data nobody misses, in about so many seconds, and leaves the report in a directory, in place of
/// an earlier one. If `quiet`, it is not told here.
pub(crate) async fn of_own(url: &Url, seconds: f64, out: PathBuf, quiet: bool) -> Result<(), Failure> {
    let options = Options {
        quick: false,
        seconds: Some(seconds),
        own: None,
        allow_write: Some(Extent::ALL),
        consent: terminal::consent(true),
        expected_link_bits_per_s: None,
        seed: 1,
    };
    let show = ShowOptions::report(out, quiet);
    let stage = Stage::new(&show, Folder::replace)?;
    let subject = Subject::Lun(Box::new(url.clone()));
    let evidence = evidence(&subject, &options, &Progress::shown(crate::progress::kind(None, false))).await?;
    stage.show(&diagnose(evidence)).map(|_| ())
}

/// Runs the command.
pub(crate) fn run(arguments: &DiagnoseArguments) -> Result<ExitCode, Failure> {
    let options = arguments.options()?;
    let stage = Stage::new(arguments.show(), Folder::create)?;
    let subject = Subject::parse(&arguments.url)?;
    let progress = Progress::shown(crate::progress::kind(arguments.show().progress, false));
    let evidence = remote::run(evidence(&subject, &options, &progress))?;
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
            confirm(&mut diagnosis, &subject, &options, &progress).await;
            Ok(())
        })?;
    }
    drop(progress);
    stage.show(&diagnosis)
}
