//! `cargo measure changes`: how long two initiators' requests take while the configuration of their server changes. It is the
//! test of the same name, optimised, with more changes: those that are drawn, what is checked after each, and the loads stand
//! in `crates/linerate/tests/it/changes`.

use anyhow::Result;

use xtask::packages;
use xtask::process;
use xtask::tally::Verdict;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many changes
    #[arg(long, default_value_t = 200)]
    count: u64,
    /// What their order, and everything else that is drawn, comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Not optimised: at once there, and slower
    #[arg(long)]
    debug: bool,
}

/// Prints each change and, in the end, the longest request of each load beside the longest delay of a thread of this machine.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    packages::ensure(packages::ALL)?;
    let build: &[&str] = if options.debug { &[] } else { &["--release"] };
    let test = [
        "changes::changes_disturb_no_load_and_initiators_see_them_without_another_login",
        "--exact",
        "--nocapture",
    ];
    let words = [&["test", "--package", "linerate", "--test", "it"], build, &["--"], &test].concat();
    let mut command = process::cargo(&words);
    command.env("LINERATE_CHANGES", options.count.to_string());
    command.env("LINERATE_SEED", options.seed.to_string());
    process::succeed(command).map(|()| Verdict::Holds)
}
