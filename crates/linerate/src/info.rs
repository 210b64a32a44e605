//! `linerate info`: what a login came to and what is on the target, on a screen or two.

use crate::failure::Failure;
use crate::output::say;
use crate::remote;

#[derive(Debug, clap::Args)]
pub(crate) struct InfoArguments {
    /// LUN, target with all its LUNs, portal with all its targets, or NBD export or AoE device: iscsi://[USER@]HOST[:PORT]/IQN[/LUN][?KEY=VALUE&...],
    /// HOST[:PORT], nbd://HOST[:PORT]/EXPORT, aoe://INTERFACE/SHELF.SLOT, hyperscsi://INTERFACE/TARGET[/LUN]
    /// or hyperscsi+udp://HOST[:PORT]/TARGET[/LUN]
    #[arg(value_name = "URL|PORTAL", value_hint = clap::ValueHint::Url)]
    url: String,
    /// Show a page of vital product data in words and bytes, by its hexadecimal number such as b0; repeatable
    #[arg(long, value_name = "PAGE", value_parser = inspect::pages::code)]
    vpd: Vec<u8>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &InfoArguments) -> Result<(), Failure> {
    let answer = remote::run(inspect::describe(&arguments.url, &arguments.vpd))?;
    say(answer.printed(arguments.json));
    Ok(())
}
