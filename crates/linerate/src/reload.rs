//! `linerate reload`: has a running server read its configuration again.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::output::{remark, say};
use manage::control::{Reply, Request, ask, unexpected};

/// Has a running server read its configuration again and serve that
///
/// Prints what changes. Sessions that it does not concern go on. A mistake in the file changes nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct ReloadArguments {
    /// Only prints what would change
    #[arg(long)]
    dry_run: bool,
    /// Also takes away what initiators use: their commands for it are ended, and they are told
    #[arg(long)]
    force: bool,
    /// The control socket of the server [default: control.sock in the state directory]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ReloadArguments) -> Result<(), Failure> {
    let socket = manage::state::control_socket(arguments.control.as_deref())?;
    let request = Request::Reload { dry_run: arguments.dry_run, force: arguments.force };
    tell(ask(&socket, &request).map_err(Failure::failed)?)
}

/// Prints what has become of the configuration.
pub(crate) fn tell(reply: Reply) -> Result<(), Failure> {
    match reply {
        Reply::Reloaded { changes, notes, failed } => {
            let lines: String = changes.iter().map(|line| format!("{line}\n")).collect();
            say(if changes.is_empty() { "nothing is different\n" } else { &lines });
            notes.iter().for_each(remark);
            match failed.is_empty() {
                true => Ok(()),
                false => Err(Failure::failed(failed.join("\n"))),
            }
        }
        Reply::Refused { reason } => Err(Failure::refused(reason)),
        other => Err(unexpected(other)),
    }
}
