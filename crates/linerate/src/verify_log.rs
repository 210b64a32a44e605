//! `linerate verify-log`: whether storage has kept what it promised to a `linerate bench --verify-log` that was cut short.
//!
//! The log is a mapped file ([`host::MappedWords`]), and what is in it is [`bench::journal`]'s business; here they meet.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use bench::journal::{CheckError, Crash};
use clap::ValueEnum;

use crate::failure::{Failure, Kind};
use crate::location::Location;
use crate::output::say;
use crate::remote;
use conduct::journal::{self, about};
use conduct::storage::Storage;

/// Checks after a crash that storage has kept what it promised to `linerate bench --verify-log`
#[derive(clap::Args, Debug)]
pub(crate) struct VerifyLogArguments {
    /// The log
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where the data are: a URL, a volume, or the path of a file or block device
    #[arg(value_name = "PLACE")]
    place: String,
    /// What crashed: only the client, so that all that was acknowledged must be there; or the storage, which may have
    /// lost what was neither flushed nor written with FUA
    #[arg(long, value_name = "WHAT", default_value = "storage")]
    after: After,
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
    if checked.wrong > 0 {
        return Err(Failure::new(Kind::Mismatch, checked));
    }
    say(&format!("{checked}\n"));
    Ok(ExitCode::SUCCESS)
}

fn failed(path: &Path, error: CheckError) -> Failure {
    match error {
        CheckError::Journal(error) => Failure::refused(about(path, error)),
        CheckError::Device(error) => Failure::device("cannot read the data back", error),
    }
}
