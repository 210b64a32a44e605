//! SIGTERM and SIGINT to the process behind a file: unmounts it if nobody uses it, which ends the process in good
//! order. Who uses it is not left with a broken disk: a second signal takes the file out of the tree, and the process
//! goes on until its last user has let go.

use std::path::{Path, PathBuf};
use std::thread;

use attach::mounts::{self, UnmountMode};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Waits for signals on a thread of its own.
pub(super) fn watch(path: PathBuf) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(Failure::failed)?;
    let watch = move || {
        for attempt in signals.forever().enumerate().map(|(attempt, _)| attempt) {
            end(&path, if attempt == 0 { UnmountMode::IfUnused } else { UnmountMode::Lazy });
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(watch).map(drop).map_err(Failure::failed)
}

fn end(path: &Path, way: UnmountMode) {
    if let Err(error) = mounts::unmount(path, way) {
        let users = mounts::list(path).join(", ");
        tracing::error!(
            "{} stays attached: {error} {users}; the next signal unmounts lazily",
            path.display()
        );
    }
}
