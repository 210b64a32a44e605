//! `linerate detach`: the way back from `attach`.

use std::path::PathBuf;

use attach::mounts::UnmountMode;

use super::records;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct DetachArguments {
    /// Path where it is attached
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
    /// Remove the file from the tree even if it is in use, and do not wait: its process ends with the last user
    #[arg(long, conflicts_with = "force")]
    lazy: bool,
    /// End it even if it is in use or its target is unreachable: users get errors, and data that the target does not have
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
