//! Compares the costs of RAID levels. An example of `linerate-raid` measures sets over members in memory,
//! without a server or a network.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use xtask::{process, workspace};

use crate::figures::Judged;
use crate::runner::{Found, Options, Part};
use crate::server::Site;

pub(crate) const PARTS: [Part; 1] = [("levels", measure)];

fn measure(_: &Site, options: &Options) -> Result<Found> {
    let (build, folder): (&[&str], _) = if options.quick {
        (&[], "debug")
    } else {
        (&["--profile", workspace::SHIPPED], workspace::SHIPPED)
    };
    let words = ["build", "--package", "linerate-raid", "--example", "device"];
    process::succeed(process::cargo(&[&words[..], build].concat()))
        .context("building the measuring program")?;
    let mut command = Command::new(
        workspace::target_directory()
            .join(folder)
            .join("examples/device"),
    );
    // Members use huge pages, as RAM volumes do.
    command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    command
        .args(options.quick.then_some("--quick"))
        .stderr(Stdio::inherit());
    let output = command.output().context("running the measuring program")?;
    let tables = String::from_utf8(output.stdout).context("its tables")?;
    // Exit code 1 means that a goal was missed.
    ensure!(
        matches!(output.status.code(), Some(0 | 1)),
        "the measuring program: {}",
        output.status
    );
    let missed = if output.status.success() { 0.0 } else { 1.0 };
    let goals = vec![Judged::at_most(
        "the program's own goals are missed",
        missed,
        0.0,
    )];
    Ok(Found {
        heading: "Levels",
        text: format!("{TEXT}\n{tables}"),
        goals,
        figures: json!(tables),
    })
}

const TEXT: &str = "\
`cargo measure raid --part levels` measures and writes this section, and fails if a goal is missed. The sets have strips of 64 KiB over members of 64 MiB in \
memory. One thread on one core sends one request at a time (`crates/storage/raid/examples/device`). Each of seven rounds measures all sets \
in turn. Figures are medians, ratios are medians of the ratios within a round, and all time is CPU time: a request in memory does not wait, \
so this is also its duration on an otherwise idle machine. A sequential request is one stripe (for RAID 1, 256 KiB), and GB/s count user \
data. A journal has 32 MiB on each of two members (RAID 5) or three (RAID 6), in memory or in files in /dev/shm that are synchronised with \
each record; a separate journal is a single file. The last line is the minimum cost of such a file: a `pwritev2` of the length of a record \
(a one-block header, data, and parity: 8.5 KiB), without a set. There is no cache or server above or below a set.
";
