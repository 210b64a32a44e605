//! The engine of file operations, chosen once for the process.

use std::io;
use std::os::fd::AsFd as _;
use std::str::FromStr;
use std::sync::OnceLock;

use derive_more::{Display, Error};

use rustix::event::{EventfdFlags, eventfd};

use super::ring::Ring;

/// Which way file operations go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display)]
pub enum IoEngine {
    /// io_uring where the kernel lets us, threads elsewhere.
    #[default]
    #[display("auto")]
    Auto,
    /// io_uring, or no start.
    #[display("uring")]
    Uring,
    /// Blocking threads.
    #[display("threads")]
    Threads,
}

static CHOSEN: OnceLock<IoEngine> = OnceLock::new();

impl IoEngine {
    /// Decides for all reactors of this process that start from now on, and logs the outcome:
    /// [`IoEngine::Uring`] or [`IoEngine::Threads`]. The first decision stands. Fails if io_uring is required
    /// and unavailable.
    pub fn choose(self) -> io::Result<IoEngine> {
        if let Some(&chosen) = CHOSEN.get() {
            return Ok(chosen);
        }
        let chosen = match self {
            IoEngine::Threads => IoEngine::Threads,
            IoEngine::Uring => probe().map(|()| IoEngine::Uring)?,
            IoEngine::Auto => match probe() {
                Ok(()) => IoEngine::Uring,
                Err(error) => {
                    tracing::info!(%error, "io_uring is unavailable; files are read and written by \
                        threads");
                    IoEngine::Threads
                }
            },
        };
        tracing::info!(engine = %chosen, "file operations");
        Ok(*CHOSEN.get_or_init(|| chosen))
    }

    /// What was chosen, or what `auto` comes to if nothing was.
    pub(crate) fn chosen() -> IoEngine {
        IoEngine::Auto.choose().unwrap_or(IoEngine::Threads)
    }
}

/// Opens a ring and closes it again: seccomp profiles and the sysctl kernel.io_uring_disabled refuse that.
fn probe() -> io::Result<()> {
    std::thread::scope(|scope| {
        // On a thread of its own: the caller's thread may have a ring already.
        let probing = scope.spawn(|| Ring::open(eventfd(0, EventfdFlags::CLOEXEC)?.as_fd()).map(drop));
        probing.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}

impl FromStr for IoEngine {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<IoEngine, UnknownEngine> {
        match name {
            "auto" => Ok(IoEngine::Auto),
            "uring" => Ok(IoEngine::Uring),
            "threads" => Ok(IoEngine::Threads),
            _ => Err(UnknownEngine),
        }
    }
}

/// The name is none of `auto`, `uring` and `threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
#[display("there are the engines auto, uring and threads")]
pub struct UnknownEngine;
