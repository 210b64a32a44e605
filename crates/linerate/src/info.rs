//! `linerate info` shows the parameters of a login and the LUNs of a target. `linerate discover` lists the
//! targets of a portal.

use crate::failure::Failure;
use crate::output::say;
use crate::remote;

#[derive(Debug, clap::Args)]
pub(crate) struct InfoArguments {
    /// LUN, target (all its LUNs), portal (all its targets), NBD export or AoE device: iscsi://[USER@]HOST[:PORT]/IQN[/LUN][?KEY=VALUE&...],
    /// HOST[:PORT], nbd://HOST[:PORT]/EXPORT, aoe://INTERFACE/SHELF.SLOT, hyperscsi://INTERFACE/TARGET[/LUN]
    /// or hyperscsi+udp://HOST[:PORT]/TARGET[/LUN]
    #[arg(value_name = "URL|PORTAL", value_hint = clap::ValueHint::Url)]
    url: String,
    /// Show this page of vital product data, decoded and as bytes; a hexadecimal number such as b0;
    /// repeatable
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

// `linerate discover` lists the targets of a portal with their addresses and, with `--luns`, their LUNs. It
// also lists the exports of an NBD server, and the AoE devices or HyperSCSI targets on an Ethernet.

#[derive(Debug, clap::Args)]
pub(crate) struct DiscoverArguments {
    /// Portal to query: HOST[:PORT], [IPv6]:PORT or iscsi://[USER@]HOST[:PORT][?KEY=VALUE&...];
    /// nbd://HOST[:PORT] lists exports
    #[arg(value_name = "PORTAL", value_hint = clap::ValueHint::Hostname, required_unless_present_any = ["aoe", "hyperscsi"])]
    portal: Option<String>,
    /// List the ATA-over-Ethernet devices that respond on this interface instead
    #[arg(long, value_name = "INTERFACE", conflicts_with_all = ["portal", "luns"])]
    aoe: Option<String>,
    /// List the HyperSCSI targets that respond on this interface, or at hyperscsi+udp://HOST[:PORT], instead
    #[arg(long, value_name = "INTERFACE", conflicts_with_all = ["portal", "luns", "aoe"])]
    hyperscsi: Option<String>,
    /// Log in to each target and list its LUNs
    #[arg(long)]
    luns: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command. Targets that could not be queried are reported in the list. The exit code is that of the
/// first such failure; finding nothing is also a failure.
pub(crate) fn run_discover(arguments: &DiscoverArguments) -> Result<(), Failure> {
    let portal = arguments.portal.as_deref().unwrap_or_default();
    let (found, looked) = match (&arguments.aoe, &arguments.hyperscsi) {
        (Some(interface), _) => remote::run(inspect::aoe::discover(interface))?,
        (None, Some(place)) => remote::run(inspect::hyperscsi::discover(place))?,
        (None, None) if backends::nbd::is_url(portal) => {
            remote::run(inspect::nbd::discover(portal))?
        }
        (None, None) => {
            let (portal, settings) = remote::portal(portal)?;
            remote::run(inspect::discover(&portal, &settings, arguments.luns))?
        }
    };
    say(found.printed(arguments.json));
    looked
}
