//! What the levels of RAID cost beside each other. Writes docs/measured/raid.md.
//!
//! The program that measures is an example of `linerate-raid`: sets over members in memory, with no server and no network. `programs`:
//! what a journal costs where sets are used.

mod programs;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::measuring::machine;
use xtask::document::write_section;
use xtask::process;
use xtask::tally::Verdict;
use xtask::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// One short round, and no page: whether it runs, not how fast
    #[arg(long)]
    quick: bool,
    /// Print, and leave the page alone
    #[arg(long)]
    dry: bool,
    /// Only what a journal costs `linerate bench` and `linerate serve`
    #[arg(long)]
    programs: bool,
    /// Use this binary for that instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<Verdict> {
    let mut holds = true;
    if !options.programs {
        holds &= levels(options)?;
    }
    if !options.quick {
        let (table, is_reached) = programs::measured(&programs::binary(options.binary.as_ref())?)?;
        print!("{table}");
        holds &= is_reached;
        if !options.dry {
            let machine = format!("Machine: {}, Linux {}.", machine::machine(), machine::kernel());
            write_section(
                "raid",
                "A journal in programs",
                &format!("{}\n{machine}\n\n{table}", programs::TEXT),
            )?;
        }
    }
    Ok(Verdict::of(holds))
}

fn levels(options: &Options) -> Result<bool> {
    let build = ["build", "--release", "--package", "linerate-raid", "--example", "device"];
    process::succeed(process::cargo(&build)).context("building the program that measures")?;
    let mut command = Command::new(workspace::target_directory().join("release/examples/device"));
    // Members lie in huge pages, as RAM volumes do.
    command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    command.args(options.quick.then_some("--quick")).stderr(Stdio::inherit());
    let output = command.output().context("the program that measures")?;
    let tables = String::from_utf8(output.stdout).context("its tables")?;
    print!("{tables}");
    // 1 says that a goal was missed.
    ensure!(matches!(output.status.code(), Some(0 | 1)), "the program that measures: {}", output.status);
    if !options.quick && !options.dry {
        let body =
            format!("{TEXT}\nMachine: {}, Linux {}.\n\n{tables}", machine::machine(), machine::kernel());
        write_section("raid", "Levels", &body)?;
    }
    Ok(output.status.success())
}

const TEXT: &str = "\
`cargo measure raid` measures this and writes this page, and fails if a goal is missed. Sets of strips of 64 KiB over members of 64 MiB of \
memory, asked by one thread on one core, one request at a time (`crates/storage/raid/examples/device`). All sets take turns in each of \
seven rounds. Figures are medians, ratios the medians of the ratios of a round, and all time is CPU time: a request in memory waits for \
nothing, so that it is the time the request takes on a machine with nothing else to do. A sequential request is a stripe (of RAID 1, \
256 KiB), and GB/s are of the users' data. A journal has 32 MiB on each of two members (RAID 5) or three (RAID 6), in memory or in files \
in /dev/shm that are synchronised with each record; one of its own is a single file. The last line is the least that such a file can cost: a \
`pwritev2` of the length of a record (a head of a block, data, and parity: 8.5 KiB), without a set. Nothing lies before or behind a set: no cache, \
no server.
";
