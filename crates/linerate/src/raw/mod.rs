//! `linerate lab raw-serve` and `raw-ask`: the ceiling of an iSCSI target on this machine, as a server and as a client.
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

pub(crate) use ask::{RawAskArguments, run as ask};
pub(crate) use serve::{RawServeArguments, run as serve};

/// How a half waits for the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Poll {
    /// Sleep when there is nothing to do
    Never,
    /// Poll all the time, which uses a whole core
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
