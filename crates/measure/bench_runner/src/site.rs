//! The network of a thread: that of this process, or that of a host of a lab.

use std::sync::Arc;

use lab::{Lab, LabError};

use backends::Failure;

/// A network to work on.
#[derive(Clone)]
pub enum Site {
    /// The one that this process is on.
    Here,
    /// That of a host of a lab, which exists as long as this value.
    Host {
        /// The lab.
        lab: Arc<Lab>,
        /// Its host.
        name: &'static str,
    },
}

impl Site {
    /// Does `work` there and waits for it; on a thread of its own, if that is not here.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        match self {
            Site::Here => Ok(work()),
            Site::Host { lab, name } => lab.host(name).and_then(|host| host.run(work)).map_err(failed),
        }
    }
}

/// A lab that the machine or the user has no right to is refused; all else has failed.
pub fn failed(error: LabError) -> Failure {
    match error {
        LabError::Plan(_) | LabError::Missing(_) | LabError::NoSuch(_) => Failure::refused(error),
        LabError::System { .. } | LabError::NotReady(_) => Failure::failed(error),
    }
}
