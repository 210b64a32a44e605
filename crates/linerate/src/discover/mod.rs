//! `linerate discover`: which targets a portal has, where they can be reached.

mod report;

use self::report::Report;
use crate::failure::Failure;
use crate::output::say;
use crate::remote;

/// Asks a portal which targets it has
#[derive(Debug, clap::Args)]
pub(crate) struct DiscoverArguments {
    /// Whom to ask: HOST[:PORT], [IPv6]:PORT or iscsi://[user@]host[:port][?key=value&...]
    #[arg(value_name = "HOST")]
    portal: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &DiscoverArguments) -> Result<(), Failure> {
    let (portal, settings) = remote::portal(&arguments.portal)?;
    let report = remote::run(async {
        let found = initiator::discover(&portal, &settings, remote::random).await?;
        Ok(Report::new(&portal, found))
    })?;
    say(&if arguments.json { report.json()? } else { report.text() });
    Ok(())
}
