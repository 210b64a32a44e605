//! `linerate discover`: which targets a portal has, where they can be reached, and with `--luns` what is on them; or which exports
//! an NBD server has.

use crate::failure::Failure;
use crate::output::say;
use crate::remote;

#[derive(Debug, clap::Args)]
pub(crate) struct DiscoverArguments {
    /// Portal to ask: HOST[:PORT], [IPv6]:PORT or iscsi://[USER@]HOST[:PORT][?KEY=VALUE&...]; nbd://HOST[:PORT] lists exports
    #[arg(value_name = "PORTAL", value_hint = clap::ValueHint::Hostname)]
    portal: String,
    /// Log in to each target and list its LUNs
    #[arg(long)]
    luns: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command. A target that could not be looked at is told in its place, and the first of them by the exit code.
pub(crate) fn run(arguments: &DiscoverArguments) -> Result<(), Failure> {
    if backends::nbd::is_url(&arguments.portal) {
        say(remote::run(inspect::nbd::discover(&arguments.portal))?.printed(arguments.json));
        return Ok(());
    }
    let (portal, settings) = remote::portal(&arguments.portal)?;
    let (found, looked) = remote::run(inspect::discover(&portal, &settings, arguments.luns))?;
    say(found.printed(arguments.json));
    looked
}
