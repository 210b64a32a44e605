//! What the levels of RAID cost beside each other: an example of `linerate-raid` measures sets over members in memory, with no server
//! and no network.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use xtask::{process, workspace};

use crate::figures::Judged;
use crate::runner::{Found, Options, Part};
use crate::server::Site;

pub(crate) const PARTS: [Part; 1] = [("levels", measure)];

fn measure(_: &Site, options: &Options) -> Result<Found> {
    let (build, folder): (&[&str], _) =
        if options.quick { (&[], "debug") } else { (&["--profile", workspace::SHIPPED], workspace::SHIPPED) };
    let words = ["build", "--package", "linerate-raid", "--example", "device"];
    process::succeed(process::cargo(&[&words[..], build].concat()))
        .context("building the program that measures")?;
    let mut command = Command::new(workspace::target_directory().join(folder).join("examples/device"));
    // Members lie in huge pages, as RAM volumes do.
    command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    command.args(options.quick.then_some("--quick")).stderr(Stdio::inherit());
    let output = command.output().context("the program that measures")?;
    let tables = String::from_utf8(output.stdout).context("its tables")?;
    // 1 says that a goal was missed.
    ensure!(matches!(output.status.code(), Some(0 | 1)), "the program that measures: {}", output.status);
    let missed = if output.status.success() { 0.0 } else { 1.0 };
    let goals = vec![Judged::at_most("the program's own goals are missed", missed, 0.0)];
    Ok(Found { heading: "Levels", text: format!("{TEXT}\n{tables}"), goals, figures: json!(tables) })
}

const TEXT: &str = "\
`cargo measure raid --part levels` measures this and writes this section, and fails if a goal is missed. Sets of strips of 64 KiB over members of 64 MiB of \
memory, asked by one thread on one core, one request at a time (`crates/storage/raid/examples/device`). All sets take turns in each of \
seven rounds. Figures are medians, ratios the medians of the ratios of a round, and all time is CPU time: a request in memory waits for \
nothing, so that it is the time the request takes on a machine with nothing else to do. A sequential request is a stripe (of RAID 1, \
256 KiB), and GB/s are of the users' data. A journal has 32 MiB on each of two members (RAID 5) or three (RAID 6), in memory or in files \
in /dev/shm that are synchronised with each record; one of its own is a single file. The last line is the least that such a file can cost: a \
`pwritev2` of the length of a record (a head of a block, data, and parity: 8.5 KiB), without a set. Nothing lies before or behind a set: no cache, \
no server.
";
