//! `linerate detach`: the way back from `attach`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::mounts::{self, Way};
use super::place;
use super::record::{self, Found};
use super::users;
use crate::failure::Failure;

/// Flushes and takes away what `attach` has made, and waits until the target has let go
#[derive(Debug, clap::Args)]
pub(crate) struct DetachArguments {
    /// Where it is attached
    path: PathBuf,
    /// Takes the file out of the tree although it is in use, and does not wait: its process ends with the last user
    #[arg(long, conflicts_with = "force")]
    lazy: bool,
    /// Ends it although it is in use, or its target is away: users get errors, and data that the target does not have
    /// are lost
    #[arg(long)]
    force: bool,
}

/// Carries the command out.
pub(crate) fn run(arguments: &DetachArguments) -> Result<(), Failure> {
    let records = record::directory().map_err(Failure::failed)?;
    let path = place::resolved(&arguments.path)?;
    let found = Found::at(&records, &path).map_err(Failure::failed)?;
    let is_mounted = mounts::is_ours(&path);
    if found.is_none() && !is_mounted {
        return Err(Failure::refused(format!("{}: nothing is attached there", path.display())));
    }
    if is_mounted {
        let is_alive = found.as_ref().is_some_and(Found::is_alive);
        if is_alive && !arguments.force {
            flush(&path)?;
        }
        mounts::unmount(&path, arguments.way()).map_err(|error| stays(&path, &error))?;
    }
    let Some(found) = found else { return Ok(()) };
    if arguments.force {
        kill(&found)?;
    }
    if arguments.lazy { Ok(()) } else { tidy(found) }
}

impl DetachArguments {
    fn way(&self) -> Way {
        match (self.force, self.lazy) {
            (true, _) => Way::ByForce,
            (false, true) => Way::Lazily,
            (false, false) => Way::Politely,
        }
    }
}

/// While there is still somebody to tell that it failed.
fn flush(path: &Path) -> Result<(), Failure> {
    let flushed = File::open(path).and_then(|file| file.sync_all());
    flushed.map_err(|error| {
        Failure::failed(format!(
            "{} stays attached: what was written cannot be flushed: {error}; --force gives it up",
            path.display()
        ))
    })
}

fn stays(path: &Path, error: &io::Error) -> Failure {
    let users = match users::of(path) {
        users if error.kind() != io::ErrorKind::ResourceBusy || users.is_empty() => String::new(),
        users => format!(", by {}", users.join(", ")),
    };
    let why = if error.kind() == io::ErrorKind::ResourceBusy {
        "it is in use".to_owned()
    } else {
        error.to_string()
    };
    Failure::failed(format!("{} stays attached: {why}{users}", path.display()))
}

/// Ends the process that holds the record.
fn kill(found: &Found) -> Result<(), Failure> {
    let process = Pid::from_raw(found.record.pid.cast_signed());
    let Some(Ok(process)) = process.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return Ok(()) };
    // Held after the descriptor was opened: the number is still the same process's.
    if !found.is_alive() {
        return Ok(());
    }
    pidfd_send_signal(process, Signal::KILL).map_err(|error| Failure::failed(io::Error::from(error)))
}

/// Waits for the end, and removes what a killed process has left.
fn tidy(mut found: Found) -> Result<(), Failure> {
    let failure = found.wait().map_err(Failure::failed)?;
    if found.record.made_file {
        place::remove_empty(&found.record.path);
    }
    found.remove();
    failure.map_or(Ok(()), |why| Err(Failure::failed(why)))
}
