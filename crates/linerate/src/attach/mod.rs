//! `linerate attach`: a LUN as a file, ready for `losetup` and `mount`, or for any program that opens files.
//!
//! The library `attach` does it. Here is what is around it: [`background`], [`signals`], and the commands that look after the
//! result, [`detach`] and [`list`].

mod background;
mod detach;
mod signals;

use std::path::PathBuf;
use std::process::ExitCode;

use attach::mount_point::{MountPoint, Terms};
use attach::record::{self, FoundRecord, Record};
use attach::{NamedVolume, RecordPaths};

pub(crate) use detach::{DetachArguments, run as detach};

use crate::failure::Failure;
use crate::output::{say, say_json_list};
use crate::remote;
use crate::spec::Bytes;
use daemon::state;

#[derive(Debug, clap::Args)]
pub(crate) struct AttachArguments {
    /// LUN or volume to attach (see `linerate help targets`)
    #[arg(value_name = "TARGET", required_unless_present = "list")]
    volume: Option<String>,
    /// File to attach it as: an empty one, or one that does not exist yet
    #[arg(required_unless_present = "list", value_hint = clap::ValueHint::FilePath)]
    path: Option<PathBuf>,
    /// Refuse writes
    #[arg(long)]
    read_only: bool,
    /// Let root use the file too, which losetup needs if you are not root; /etc/fuse.conf must say user_allow_other
    #[arg(long)]
    allow_root: bool,
    /// Stay in the foreground until the file is detached, and log to standard error
    #[arg(long)]
    foreground: bool,
    /// List what is attached
    #[arg(long, conflicts_with_all = ["volume", "path", "read_only", "allow_root", "foreground"])]
    list: bool,
    /// Print the list as JSON
    #[arg(long, requires = "list")]
    json: bool,
}

/// Carries the command out.
pub(crate) fn run(arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    let (Some(volume), Some(path)) = (&arguments.volume, &arguments.path) else {
        return list(arguments.json).map(|()| ExitCode::SUCCESS);
    };
    if arguments.goes_into_background() {
        return background::start();
    }
    let named = NamedVolume::parse(volume)?;
    let records = records()?;
    let at = MountPoint::prepare(path, &records)?;
    attach::be_behind_a_disk();
    let terms = Terms { read_only: arguments.read_only, allow_root: arguments.allow_root };
    let log = (!arguments.foreground).then(|| records.join(format!("{}.log", std::process::id())));
    remote::run(async {
        let volume = named.open(arguments.read_only).await?;
        attach::attach(volume, at, terms, RecordPaths { records: &records, log }, ready).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Lists what is attached here, and whether it is well.
fn list(as_json: bool) -> Result<(), Failure> {
    let all = FoundRecord::all(&records()?).map_err(Failure::failed)?;
    match (as_json, all.is_empty()) {
        (true, _) => {
            let records: Vec<&Record> = all.iter().map(|found| &found.record).collect();
            return say_json_list("attached", &records);
        }
        (false, true) => say("nothing is attached\n"),
        (false, false) => say(&all.iter().map(|found| format!("{found}\n")).collect::<String>()),
    }
    Ok(())
}

/// Where attachments are noted.
fn records() -> Result<PathBuf, Failure> {
    let runtime = state::runtime_directory().map_err(Failure::failed)?;
    record::directory(&runtime).map_err(Failure::failed)
}

impl AttachArguments {
    /// Whether this process only starts the one that does the work.
    pub(crate) fn goes_into_background(&self) -> bool {
        !self.list && !self.foreground && !background::is_this()
    }
}

/// The file can be used: says so, and leaves the terminal unless it is to stay.
fn ready(record: &Record) -> Result<(), Failure> {
    signals::watch(record.path.clone())?;
    let kind = if record.read_only { ", read-only" } else { "" };
    say(&format!("{}: {}{kind}\n", record.path.display(), Bytes(record.bytes)));
    record.log.as_deref().map_or(Ok(()), background::leave).map_err(Failure::failed)
}
