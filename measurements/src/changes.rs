//! `cargo measure changes`: the latency of two initiators' requests while the configuration of their server changes. It runs
//! the test of the same name, optimised and with more changes. The changes, the checks after each and the loads are in
//! `crates/linerate/tests/it/changes`.

use anyhow::Result;

use xtask::packages;
use xtask::process;
use xtask::tally::Verdict;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of changes
    #[arg(long, default_value_t = 200)]
    count: u64,
    /// Seed of the order of changes and of all other random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use a debug build, which builds faster but runs slower
    #[arg(long)]
    debug: bool,
}

/// Prints each change and finally, for each load, its longest request and the longest delay of a thread on this machine.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    packages::ensure(packages::ALL)?;
    let build: &[&str] = if options.debug { &[] } else { &["--release"] };
    let test = [
        "changes::changes_disturb_no_load_and_initiators_see_them_without_another_login",
        "--exact",
        "--nocapture",
    ];
    let words = [
        &["test", "--package", "linerate", "--test", "it"],
        build,
        &["--"],
        &test,
    ]
    .concat();
    let mut command = process::cargo(&words);
    command.env("LINERATE_CHANGES", options.count.to_string());
    command.env("LINERATE_SEED", options.seed.to_string());
    process::succeed(command).map(|()| Verdict::Holds)
}
