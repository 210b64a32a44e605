//! Instructions per command at each end, counted by callgrind and compared with a stored baseline.
//!
//! On a shared machine, time drifts by more than the effect of most changes. Instruction counts do not: they are the same on
//! every machine with the same compiler, valgrind and libc. Valgrind presents all x86-64 machines with AVX2 as one processor
//! model, so memcpy and CRC32C choose the same code everywhere. The measured program is `crates/measure/instructions`: our
//! initiator and our target, connected through memory instead of a network.
//!
//! The counts exclude the kernel, which costs more than both ends, and ignore how long an instruction takes.
//! They reveal unnecessary work and regressions, but do not measure speed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use xtask::document::write_section;
use xtask::tally::{Tally, Verdict};
use xtask::{process, workspace};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Store these counts as the baseline, and write them to docs/measured/instructions.md
    #[arg(long)]
    update: bool,
}

/// `xtask/instructions.toml`: the last accepted counts, and their toolchain.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Baseline {
    toolchain: String,
    cell: Vec<Counts>,
}

/// Instructions for one command of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    name: String,
    target: u64,
    initiator: u64,
}

/// Commands of one kind.
#[derive(Clone, Copy, Debug)]
struct Cell {
    operation: &'static str,
    bytes: u32,
    depth: u32,
    volume: &'static str,
    digests: &'static str,
}

const PLAIN: Cell = Cell {
    operation: "read",
    bytes: 4096,
    depth: 32,
    volume: "ram",
    digests: "plain",
};

/// Depth 1 includes the cost of a wake-up. A read of a cached file copies the data to a buffer immediately; a
/// read of the null device is a request that completes on its first poll.
const CELLS: &[Cell] = &[
    PLAIN,
    Cell {
        operation: "write",
        ..PLAIN
    },
    Cell { depth: 1, ..PLAIN },
    Cell {
        operation: "write",
        depth: 1,
        ..PLAIN
    },
    Cell {
        volume: "cached",
        ..PLAIN
    },
    Cell {
        operation: "write",
        volume: "cached",
        ..PLAIN
    },
    Cell {
        volume: "null",
        ..PLAIN
    },
    Cell {
        operation: "write",
        volume: "null",
        ..PLAIN
    },
    Cell {
        digests: "digests",
        ..PLAIN
    },
    Cell {
        operation: "write",
        digests: "digests",
        ..PLAIN
    },
    Cell {
        bytes: 65536,
        depth: 8,
        ..PLAIN
    },
    Cell {
        operation: "write",
        bytes: 65536,
        depth: 8,
        ..PLAIN
    },
];

/// A count that rises by more than this percentage fails. Smaller changes come from the compiler's inlining decisions.
const RISE_PERCENT_MAX: f64 = 5.0;

/// Counts all cells, and compares them with the baseline or stores them as the baseline.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    if !options.update {
        return measure().map(Tally::verdict);
    }
    process::require(&["valgrind"])?;
    let before = Baseline::load().unwrap_or_default();
    let mut after = Baseline {
        toolchain: toolchain()?,
        cell: Vec::new(),
    };
    let callgrind = Callgrind::new()?;
    println!("{HEADING}");
    for cell in CELLS {
        let counts = callgrind.count(cell)?;
        println!("{}", counts.line(before.of(cell)));
        after.cell.push(counts);
    }
    fs::write(path(), after.text()?).with_context(|| path().display().to_string())?;
    write_section("instructions", "Instructions", &after.section())?;
    Ok(Verdict::Holds)
}

/// Counts all cells and compares them. Each cell is one check, which is skipped if the baseline is from
/// another toolchain.
pub(crate) fn measure() -> Result<Tally> {
    if let Err(error) = process::require(&["valgrind"]) {
        println!("skipped: {error:#}");
        return Ok(Tally::skipped());
    }
    let (baseline, here) = (Baseline::load()?, toolchain()?);
    let comparable = baseline.toolchain == here;
    if !comparable {
        println!(
            "not compared: the baseline is from {}, this is {here}",
            baseline.toolchain
        );
    }
    let callgrind = Callgrind::new()?;
    let mut tally = Tally::default();
    println!("{HEADING}");
    for cell in CELLS {
        let (counts, before) = (callgrind.count(cell)?, baseline.of(cell));
        println!("{}", counts.line(before));
        tally += counts.judged(before.filter(|_| comparable));
    }
    if tally.failed > 0 {
        println!(
            "a count rose by more than {RISE_PERCENT_MAX} %: find the cause, or accept it with --update"
        );
    }
    Ok(tally)
}

/// Versions of everything, except the source, that affects counts: the compiler, valgrind, and libc (memcpy, malloc).
fn toolchain() -> Result<String> {
    let parts = [
        ("rustc", "--version"),
        ("valgrind", "--version"),
        ("getconf", "GNU_LIBC_VERSION"),
    ];
    let versions: Result<Vec<String>> = parts
        .iter()
        .map(|(program, option)| Ok(process::run(program, &[*option])?.trim().to_owned()))
        .collect();
    Ok(format!(
        "{}, {}",
        std::env::consts::ARCH,
        versions?.join(", ")
    ))
}

/// Callgrind, and the program that it runs.
struct Callgrind {
    program: PathBuf,
    folder: PathBuf,
}

/// Commands of the shorter run: a multiple of all depths, and enough to fill all tables.
const COMMANDS: u64 = 1600;
/// Callgrind does not count in these functions, which stand in for the kernel.
const OUTSIDE: &str = "--toggle-collect=instructions::outside::Outside::*";
/// Callgrind counts a string instruction once for each byte, far above its cost: libc must use vectors up to 256 MiB.
const TUNABLES: &str =
    "glibc.cpu.x86_rep_movsb_threshold=268435456:glibc.cpu.x86_rep_stosb_threshold=268435456";

/// Builds the measured program with the profile of the packaged program.
pub(crate) fn build() -> Command {
    process::cargo(&[
        "build",
        "--profile",
        workspace::SHIPPED,
        "--package",
        "linerate-instructions",
    ])
}

impl Callgrind {
    fn new() -> Result<Callgrind> {
        process::succeed(build()).context("building the measured program")?;
        let target = workspace::target_directory();
        Ok(Callgrind {
            program: target.join(workspace::SHIPPED).join("instructions"),
            folder: target.join(format!("xtask/instructions-{}", std::process::id())),
        })
    }

    /// Counts one run, and a second run with twice the commands, so that the cost of startup cancels out.
    fn count(&self, cell: &Cell) -> Result<Counts> {
        let (few, many) = (
            self.totals(cell, COMMANDS)?,
            self.totals(cell, 2 * COMMANDS)?,
        );
        let [target, initiator] =
            [0, 1].map(|end| many[end].saturating_sub(few[end]).div_ceil(COMMANDS));
        // Each end needs at least one instruction per byte of a header. A lower count means that callgrind's pattern
        // matched nothing.
        ensure!(
            target.min(initiator) > 48,
            "{}: implausible counts {target} and {initiator}",
            cell.name()
        );
        Ok(Counts {
            name: cell.name(),
            target,
            initiator,
        })
    }

    /// Returns the target's and the initiator's instructions of a whole run.
    fn totals(&self, cell: &Cell, commands: u64) -> Result<[u64; 2]> {
        fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        let out = self.folder.join("out");
        let mut command = Command::new("valgrind");
        command
            .env("GLIBC_TUNABLES", TUNABLES)
            .args([
                "--quiet",
                "--tool=callgrind",
                "--separate-threads=yes",
                OUTSIDE,
                "--collect-atstart=yes",
            ])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(&self.program)
            .args([
                cell.operation,
                &cell.bytes.to_string(),
                &cell.depth.to_string(),
                cell.volume,
                cell.digests,
            ])
            .arg(commands.to_string());
        process::capture(command)?;
        let thread_total = |thread: u32| -> Result<u64> {
            let path = self.folder.join(format!("out-{thread:02}"));
            let profile = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            total(&profile).with_context(|| format!("{} has no totals", path.display()))
        };
        // The main thread is the initiator; the first thread that it starts is the target.
        let totals = [thread_total(2)?, thread_total(1)?];
        fs::remove_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        Ok(totals)
    }
}

/// Returns the sum at the end of callgrind's profile.
fn total(profile: &str) -> Option<u64> {
    profile
        .lines()
        .find_map(|line| line.strip_prefix("totals: "))?
        .trim()
        .parse()
        .ok()
}

impl Cell {
    /// Returns the name in the output and in the baseline.
    fn name(&self) -> String {
        let Cell {
            operation,
            bytes,
            depth,
            volume,
            digests,
        } = self;
        let digests = if *digests == "plain" {
            ""
        } else {
            ", both digests"
        };
        format!(
            "{} KiB {operation}, depth {depth}, {volume}{digests}",
            bytes >> 10
        )
    }
}

/// The heading of the lines from [`Counts::line`].
const HEADING: &str = "instructions for one command                target  baseline    change   initiator  baseline    change";

impl Counts {
    /// Returns the changes of the target's and the initiator's counts in percent. Subtracts before dividing,
    /// so that exactly 5 % gives 5.
    fn percent_above(&self, before: &Counts) -> [f64; 2] {
        let percent =
            |now: u64, before: u64| (now as f64 - before as f64) * 100.0 / before.max(1) as f64;
        [
            percent(self.target, before.target),
            percent(self.initiator, before.initiator),
        ]
    }

    /// Fails if either end's count rose too much; skipped without a baseline.
    fn judged(&self, before: Option<&Counts>) -> Tally {
        before.map_or_else(Tally::skipped, |before| {
            Tally::of(Verdict::of(
                self.percent_above(before)
                    .iter()
                    .all(|percent| *percent <= RISE_PERCENT_MAX),
            ))
        })
    }

    fn line(&self, before: Option<&Counts>) -> String {
        let Counts {
            name,
            target,
            initiator,
        } = self;
        let Some(before) = before else {
            return format!("{name:40} {target:>9} {:>19}   {initiator:>9}", "new");
        };
        let changes = self.percent_above(before);
        let verdict = match changes {
            changes if changes.iter().any(|percent| *percent > RISE_PERCENT_MAX) => {
                "  MORE THAN BEFORE"
            }
            changes if changes.iter().any(|percent| *percent < -RISE_PERCENT_MAX) => {
                "  less: --update keeps it"
            }
            _ => "",
        };
        format!(
            "{name:40} {target:>9} {:>9} {:>+7.1} %   {initiator:>9} {:>9} {:>+7.1} %{verdict}",
            before.target, changes[0], before.initiator, changes[1]
        )
    }
}

impl Baseline {
    fn load() -> Result<Baseline> {
        let text = fs::read_to_string(path()).with_context(|| path().display().to_string())?;
        toml::from_str(&text).with_context(|| path().display().to_string())
    }

    fn text(&self) -> Result<String> {
        let head = "# Instructions per command at each end. `cargo xtask instructions` compares with them; --update rewrites them.\n\
                    # With another toolchain, counts are shown but not compared.\n";
        Ok(format!("{head}{}", toml::to_string(self)?))
    }

    fn of(&self, cell: &Cell) -> Option<&Counts> {
        self.cell.iter().find(|counts| counts.name == cell.name())
    }

    /// Returns the section of docs/measured/instructions.md.
    fn section(&self) -> String {
        let rows = self.cell.iter().map(
            |Counts {
                 name,
                 target,
                 initiator,
             }| format!("| {name} | {target} | {initiator} |\n"),
        );
        format!(
            "{TEXT}\nToolchain: {}.\n\n| cell | target | initiator |\n|---|---:|---:|\n{}",
            self.toolchain,
            rows.collect::<String>()
        )
    }
}

fn path() -> PathBuf {
    workspace::root().join("xtask/instructions.toml")
}

const TEXT: &str = "\
`cargo xtask instructions --update` measures and writes this section. `cargo xtask instructions`, which is part of \
`cargo xtask test`, counts again and fails if a count rises more than 5 % above `xtask/instructions.toml`.

These are user-space instructions per command at each end, counted by callgrind: our complete target and initiator, \
connected through memory instead of a network (`crates/measure/instructions`). The kernel, where a server spends four \
fifths of its time, and the clock are excluded. Each count is a run with 3,200 commands minus a run with 1,600, divided by \
1,600. Runs on one machine give the same counts, except for 0.1 % with a file; other machines were not tried. `ram` is a \
RAM volume. `cached` is a file in memory, which the reactor reads and writes immediately. `null` is a device that stores \
nothing; its data goes through a buffer, as that of a file does.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(target: u64, initiator: u64) -> Counts {
        Counts {
            name: CELLS[0].name(),
            target,
            initiator,
        }
    }

    #[test]
    fn either_end_fails_a_cell_beyond_five_percent() {
        let before = counts(1000, 2000);
        let judge = |target, initiator| counts(target, initiator).judged(Some(&before)).verdict();
        assert_eq!(judge(1050, 2100), Verdict::Holds);
        assert_eq!(judge(1051, 2000), Verdict::Fails);
        assert_eq!(
            judge(500, 2101),
            Verdict::Fails,
            "what one end saved is not the other's"
        );
        assert_eq!(
            counts(9000, 9000).judged(None),
            Tally::skipped(),
            "without a baseline"
        );
    }

    #[test]
    fn a_regression_is_marked_in_its_line() {
        let shown = |target| counts(target, 1000).line(Some(&counts(1000, 1000)));
        assert!(shown(1060).ends_with("MORE THAN BEFORE"), "{}", shown(1060));
        assert!(shown(940).contains("-6.0 %") && shown(940).ends_with("--update keeps it"));
        assert!(shown(1010).ends_with("+0.0 %"));
    }

    #[test]
    fn the_total_is_found_behind_the_functions() {
        let profile = "# callgrind format\nthread: 2\nevents: Ir\nsummary: 41\n\nfn=(1) main\n12 41\n\ntotals: 41\n";
        assert_eq!(total(profile), Some(41));
        assert_eq!(total("# callgrind format\nsummary: 41\n"), None);
    }

    #[test]
    fn the_baseline_is_stored_as_it_is_loaded_and_has_every_cell() {
        let baseline = Baseline::load().expect("the file is in the repository");
        assert_eq!(
            toml::from_str::<Baseline>(&baseline.text().expect("a table")).expect("our own text"),
            baseline
        );
        for cell in CELLS {
            assert!(
                baseline.of(cell).is_some(),
                "{}: run cargo xtask instructions --update",
                cell.name()
            );
        }
    }
}
