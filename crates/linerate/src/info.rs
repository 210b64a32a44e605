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
    let text = &arguments.url;
    if backends::nbd::is_url(text) {
        say(remote::run(inspect::nbd::info(text))?.printed(arguments.json));
        return Ok(());
    }
    if backends::aoe::is_url(text) {
        say(remote::run(inspect::aoe::info(text))?.printed(arguments.json));
        return Ok(());
    }
    if backends::hyperscsi::is_url(text) {
        say(remote::run(inspect::hyperscsi::info(text, &arguments.vpd))?.printed(arguments.json));
        return Ok(());
    }
    if remote::is_portal(text) {
        let (portal, settings) = remote::portal(text)?;
        say(remote::run(inspect::info_of_all(&portal, &settings, &arguments.vpd))?.printed(arguments.json));
        return Ok(());
    }
    let (url, lun) = remote::target_url(text)?;
    let info = remote::run(inspect::info(&url, lun, &arguments.vpd))?;
    say(info.printed(arguments.json));
    Ok(())
}
