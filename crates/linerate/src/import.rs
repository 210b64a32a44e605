//! `linerate import`: converts the configuration of another target.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::failure::{Failure, FailureKind};
use crate::output::{remark, say};
use crate::private_file;

#[derive(Debug, clap::Args)]
pub(crate) struct ImportArguments {
    /// Configuration: /etc/tgt/targets.conf, or /etc/target/saveconfig.json (on Debian /etc/rtslib-fb-target/saveconfig.json)
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Write to this new file, with mode 600, instead of standard output; the file must not exist yet
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ImportArguments) -> Result<ExitCode, Failure> {
    let imported = daemon::import::read(&arguments.file)?;
    match &arguments.out {
        Some(path) => write(path, &imported.text)?,
        None => {
            say(&imported.text);
            if imported.has_secrets {
                remark(
                    "linerate: this output contains secrets; use --out FILE for a file that only its owner can read",
                );
            }
        }
    }
    imported.notes.iter().for_each(remark);
    Ok(match imported.notes.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(Failure::new(FailureKind::Incomplete, "").code()),
    })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let file = private_file::create_new(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Failure::refused(format_args!("{} already exists", path.display()))
        }
        _ => Failure::unwritten(path.display(), &error),
    })?;
    let written = |mut file: File| -> io::Result<()> {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    written(file).map_err(|error| Failure::unwritten(path.display(), &error))
}
