//! Placeholder.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {}
pub(crate) fn run(_: &Options) -> anyhow::Result<crate::tally::Verdict> {
    anyhow::bail!("")
}
