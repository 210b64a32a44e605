//! The `linerate` program. Only this crate reads the arguments and the environment, and it connects devices
//! and front ends. Reading order: [`arguments`], [`serve`] (starts the server that [`daemon`] builds from a
//! configuration), and the commands for a running server. Then the commands that use a target ([`backends`]
//! opens it) and their recordings ([`interrupt`]), and [`bench`] and [`prove`], which measure.

mod arguments;
mod attach;
mod bench;
mod copy;
mod diagnose;
mod help;
mod import;
mod info;
mod interrupt;
mod lab;
mod limits;
mod listen;
mod log;
mod man;
mod output;
mod prove;
mod raid;
mod report;
mod reproduce;
mod scsi;
mod serve;
mod server;
mod stream;
mod terminal;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use arguments::Arguments;
use backends::{Failure, failure, location, remote, secrets};
use host::private_file;
use volume::spec;

/// Time limit for closing images, in case their cluster is unresponsive.
const IMAGES_CLOSE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    secrets::mask_words(std::env::args_os().skip(1));
    secrets::ask_by(terminal::secret);
    let code = match Arguments::read().map(Arguments::run) {
        Ok(Ok(code)) | Err(code) => code,
        Ok(Err(failure)) => output::report(&failure),
    };
    let code = match output::error() {
        // The error was reported when it occurred. A command that failed for another reason keeps its exit
        // code.
        Some(error) if code == ExitCode::SUCCESS => {
            ExitCode::from(Failure::unwritten("standard output", error).code())
        }
        _ => code,
    };
    // Close images, because an image that is not closed remains locked for half a minute.
    host::close_images(IMAGES_CLOSE);
    code
}
