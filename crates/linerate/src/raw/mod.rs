//! `linerate raw`: the ceiling of an iSCSI target on this machine, as a server and as a client.
//!
//! Both are for measuring what is beside them: the server for initiators and, as the number that no target passes, for
//! targets; the client for targets, where an initiator is what limits. Neither stores or checks anything. `cargo xtask
//! peers` runs both.

mod ask;
mod serve;

use std::rc::Rc;

use host::{Epoll, EpollOptions, Spinning};
use reactor::SharedWorld;

use crate::failure::Failure;

/// Measures the ceiling: iSCSI's bytes without SCSI, sessions and storage
#[derive(Debug, clap::Args)]
pub(crate) struct RawArguments {
    #[command(subcommand)]
    half: Half,
}

#[derive(Debug, clap::Subcommand)]
enum Half {
    Serve(serve::RawServeArguments),
    Ask(ask::RawAskArguments),
}

/// How a half waits for the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Poll {
    /// Sleeps at once when there is nothing to do
    Never,
    /// Looks all the time, and takes a core for that
    Always,
}

impl Poll {
    fn world(self) -> Result<SharedWorld, Failure> {
        match self {
            Poll::Always => Ok(Spinning::shared()),
            Poll::Never => {
                let epoll =
                    Epoll::new(EpollOptions { spin: std::time::Duration::ZERO, ..EpollOptions::default() });
                Ok(Rc::new(epoll.map_err(Failure::failed)?))
            }
        }
    }
}

impl RawArguments {
    /// Whether it is the half that answers.
    pub(crate) fn serves(&self) -> bool {
        matches!(self.half, Half::Serve(_))
    }
}

/// Runs the half that was asked for.
pub(crate) fn run(arguments: &RawArguments) -> Result<(), Failure> {
    match &arguments.half {
        Half::Serve(arguments) => serve::run(arguments),
        Half::Ask(arguments) => ask::run(arguments),
    }
}
