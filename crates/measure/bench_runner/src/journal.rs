//! The journal file of a run, which records acknowledged writes: a mapped file ([`host::MappedWords`]) with
//! the format of [`bench::journal`].

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::rc::Rc;

use backends::{Failure, FailureKind, peers};
use bench::journal::Journal;
use bench::plan::Workload;
use block::Geometry;
use host::MappedWords;

/// The log of a run that is over.
pub fn open(path: &Path) -> Result<Journal, Failure> {
    let words = MappedWords::open(path).map_err(|error| unusable(path, &error))?;
    Journal::open(Rc::new(words)).map_err(|error| Failure::refused(about(path, error)))
}

/// The log of a run: the one that is there, or a new one.
pub fn of_run(path: &Path, workload: &Workload, geometry: Geometry) -> Result<Rc<Journal>, Failure> {
    let journal = if path.exists() {
        open(path)?
    } else {
        let count = Journal::words(workload, geometry).map_err(Failure::refused)?;
        let words = MappedWords::create(path, count).map_err(|error| unusable(path, &error))?;
        let mut epoch = [0; 4];
        peers::random(&mut epoch);
        let epoch = u32::from_le_bytes(epoch);
        Journal::begin(Rc::new(words), workload, geometry, epoch).map_err(Failure::refused)?
    };
    Ok(Rc::new(journal))
}

/// A sentence about a log.
pub fn about(path: &Path, what: impl Display) -> String {
    format!("{}: {what}", path.display())
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            Failure::refused(about(path, "another run is using this log; wait for its end"))
        }
        io::ErrorKind::StorageFull => {
            Failure::new(FailureKind::NoSpace, about(path, "there is no space for the log"))
        }
        _ => Failure::refused(about(path, error)),
    }
}
