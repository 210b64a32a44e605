//! The `linerate` program: the only reader of arguments and environment, and the place where devices and front
//! ends meet. Reading order: [`arguments`], [`serve`] (starts what [`daemon`] makes of a configuration), the commands that ask a running server; the commands that use a target ([`backends`] opens it) and
//! their recordings ([`interrupt`]); then [`bench`] and [`prove`], which measure.

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

/// A cluster that hangs keeps no process longer.
const IMAGES_CLOSE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    secrets::mask_words(std::env::args_os().skip(1));
    secrets::ask_by(terminal::secret);
    let code = match Arguments::read().map(Arguments::run) {
        Ok(Ok(code)) | Err(code) => code,
        Ok(Err(failure)) => output::report(&failure),
    };
    let code = match output::error() {
        // It has been reported when it happened. A command that failed for another reason keeps the code of that.
        Some(error) if code == ExitCode::SUCCESS => {
            ExitCode::from(Failure::unwritten("standard output", error).code())
        }
        _ => code,
    };
    // An image that is not closed stays locked for half a minute.
    host::close_images(IMAGES_CLOSE);
    code
}
