//! `linerate copy`: from any place to any other. The library `copy` does it; here is what can be asked for, and what is
//! shown.

mod arguments;
mod progress;
mod report;

use backends::location::Location;

pub(crate) use arguments::CopyArguments;
use progress::Progress;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{say, say_json};
use crate::remote;

/// Runs the command.
pub(crate) fn run(arguments: &CopyArguments) -> Result<(), Failure> {
    let from = Location::parse(&arguments.source)?;
    let to = Location::parse(&arguments.destination)?;
    let progress = Progress::new(arguments, Interrupt::listen()?);
    let copied = remote::run(copy::copy(&from, &to, &arguments.options(), &progress));
    drop(progress);
    let report = copied?;
    match (arguments.json, arguments.quiet) {
        (true, _) => say_json(&report)?,
        (false, true) => {}
        (false, false) => say(&report::text(&report)),
    }
    report.verdict()
}
