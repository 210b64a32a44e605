//! The `linerate` program: the only reader of arguments and environment, and the place where devices and front
//! ends meet. Reading order: [`arguments`], [`spec`] and [`config`] (what was asked for), [`backends`] and
//! [`state`] (what there is), [`serve`], the commands that ask a running server; [`remote`] and the commands that
//! use a target, [`recording`] of what they say to it; then [`bench`] and [`prove`], which measure.

mod agent;
mod arguments;
mod attach;
mod backends;
mod bench;
mod bytewise;
mod compare;
mod completions;
mod config;
mod consent;
mod control;
mod copy;
mod diagnose;
mod discover;
#[cfg(test)]
mod documents;
mod environment;
mod failure;
mod fault_command;
mod figures;
mod info;
mod interrupt;
mod lab;
mod limits;
mod link_rate;
mod log;
mod man;
mod output;
mod own_target;
mod page;
mod peer;
mod place;
mod poll;
mod private_file;
mod prove;
mod published;
mod queue;
mod raw;
mod read;
mod recording;
mod reload;
mod remote;
mod report;
mod scsi;
mod secrets;
mod serve;
mod server;
mod sessions;
mod site;
mod state;
mod table;
mod verify_log;
mod wan;
mod write;

use std::process::ExitCode;

use volume::{nearest, spec};

use arguments::Arguments;
use failure::Failure;

fn main() -> ExitCode {
    let code = match Arguments::read().map(Arguments::run) {
        Ok(Ok(code)) | Err(code) => code,
        Ok(Err(failure)) => failure.report(),
    };
    match output::error() {
        // It has been reported when it happened. A command that failed for another reason keeps the code of that.
        Some(error) if code == ExitCode::SUCCESS => {
            ExitCode::from(Failure::unwritten("standard output", error).code())
        }
        _ => code,
    }
}
