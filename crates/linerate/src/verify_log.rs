//! `linerate bench verify`: whether storage has kept what it promised to a `linerate bench --verify-log` that was cut short.
//!
//! The log is a mapped file ([`host::MappedWords`]), and what is in it is [`bench::journal`]'s business; here they meet.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use bench::journal::{CheckError, Crash};
use clap::ValueEnum;

use crate::failure::{Failure, FailureKind};
use crate::location::Location;
use crate::output::{say, say_json};
use crate::remote;
use bench_runner::journal::{self, about};
use bench_runner::storage::Storage;

#[derive(clap::Args, Debug)]
pub(crate) struct VerifyLogArguments {
    /// Log that --verify-log wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Storage with the data (see `linerate help targets`)
    #[arg(value_name = "TARGET")]
    place: String,
    /// Crashed side: the client only, so that every acknowledged write must be there; or the storage, which may have lost
    /// writes that were neither flushed nor had FUA
    #[arg(long, value_name = "SIDE", default_value = "storage")]
    after: After,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Who crashed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum After {
    Client,
    Storage,
}

/// Runs the command. The exit code is a failure of its own kind if anything is missing.
pub(crate) fn run(arguments: &VerifyLogArguments) -> Result<ExitCode, Failure> {
    let path = &arguments.file;
    let journal = journal::open(path)?;
    let crash = match arguments.after {
        After::Client => Crash::OfClient,
        After::Storage => Crash::OfStorage,
    };
    let place = Location::parse(&arguments.place)?;
    let checked = remote::run(async {
        let storage = Storage::open(&place, false, None).await?;
        let checked = Rc::new(journal).check(&storage.device, crash).await;
        storage.close().await;
        checked.map_err(|error| failed(path, error))
    })?;
    if arguments.json {
        say_json(&checked)?;
    }
    if checked.wrong > 0 {
        return Err(Failure::new(FailureKind::Mismatch, checked));
    }
    if !arguments.json {
        say(&format!("{checked}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

fn failed(path: &Path, error: CheckError) -> Failure {
    match error {
        CheckError::Journal(error) => Failure::refused(about(path, error)),
        CheckError::Device(error) => Failure::device("cannot read the data back", error),
    }
}
