//! `linerate detach`: the way back from `attach`.

use std::path::PathBuf;

use attach::mounts::UnmountMode;

use super::records;
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
    let way = match (arguments.force, arguments.lazy) {
        (true, _) => UnmountMode::Force,
        (false, true) => UnmountMode::Lazy,
        (false, false) => UnmountMode::IfUnused,
    };
    attach::detach(&records()?, &arguments.path, way)
}
