//! `linerate info`: what a login came to and what is on the target, on a screen or two.

use crate::failure::Failure;
use crate::output::say;
use crate::remote;

/// Tells what a session with a target is like, and what its LUNs are
#[derive(Debug, clap::Args)]
pub(crate) struct InfoArguments {
    /// The LUN, or the target with all its LUNs: iscsi://[user@]host[:port]/target[/lun][?key=value&...]
    #[arg(value_name = "URL")]
    url: String,
    /// Show this page of vital product data too, in words and bytes: its hexadecimal number, such as b0. Repeatable
    #[arg(long, value_name = "PAGE", value_parser = inspect::pages::code)]
    vpd: Vec<u8>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &InfoArguments) -> Result<(), Failure> {
    let (url, lun) = remote::target_url(&arguments.url)?;
    let info = remote::run(inspect::info(&url, lun, &arguments.vpd))?;
    say(info.printed(arguments.json));
    Ok(())
}
