//! What a command costs each end in instructions, counted by callgrind, beside a stored baseline.
//!
//! Time on a shared machine drifts by more than most changes make; a count of instructions does not, and is the same on
//! every machine with the same compiler, valgrind and libc: valgrind shows all x86-64 machines with AVX2 as one model of
//! processor, so that memcpy and CRC32C choose the same code everywhere. The program that is counted is
//! `crates/measure/wan/examples/instructions`: our initiator and our target over memory in the place of a network.
//!
//! What is left out is the kernel, which costs more than both, and how long an instruction takes: a count is a means to
//! find waste and to see it come back, and no measure of speed.

mod baseline;
mod callgrind;
mod cell;
mod page;
mod toolchain;

use anyhow::Result;

use self::baseline::Baseline;
use self::callgrind::Callgrind;
pub(crate) use self::callgrind::build;
use self::cell::{CELLS, Counts};
use xtask::document::write_section;
use xtask::process;
use xtask::tally::{Tally, Verdict};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Make these counts the baseline, and write them to docs/measured/instructions.md
    #[arg(long)]
    update: bool,
}

/// A change of more than this many percent is one. Smaller ones come from a function that the compiler places inline.
const CHANGE_PERCENT: f64 = 5.0;

/// Counts all cells and compares them.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    if options.update { update() } else { measure().map(Tally::verdict) }
}

/// Counts all cells beside the baseline: one check for each, skipped where the baseline is another toolchain's.
pub(crate) fn measure() -> Result<Tally> {
    if let Some(reason) = missing() {
        println!("skipped: {reason}");
        return Ok(Tally::skipped());
    }
    let (baseline, here) = (Baseline::load()?, toolchain::here()?);
    let comparable = baseline.toolchain == here;
    if !comparable {
        println!("not judged: the baseline was made with {}; here is {here}", baseline.toolchain);
    }
    let callgrind = Callgrind::new()?;
    let mut tally = Tally::default();
    println!("{}", page::heading());
    for cell in CELLS {
        let (counts, before) = (callgrind.count(cell)?, baseline.counts(cell));
        println!("{}", page::line(cell, before, counts));
        tally += judged(before, counts, comparable);
    }
    if tally.failed > 0 {
        println!("a count rose by more than {CHANGE_PERCENT} %: find out why, or accept it with --update");
    }
    Ok(tally)
}

fn update() -> Result<Verdict> {
    if let Some(reason) = missing() {
        anyhow::bail!("{reason}");
    }
    let callgrind = Callgrind::new()?;
    let before = Baseline::load().unwrap_or_default();
    let mut after = Baseline { toolchain: toolchain::here()?, cells: Vec::new() };
    println!("{}", page::heading());
    for cell in CELLS {
        let counts = callgrind.count(cell)?;
        println!("{}", page::line(cell, before.counts(cell), counts));
        after.cells.push((cell.name(), counts));
    }
    after.store()?;
    write_section("instructions", "Instructions", &page::section(&after))?;
    Ok(Verdict::Holds)
}

fn missing() -> Option<&'static str> {
    (!process::installed("valgrind")).then_some("valgrind is missing (Debian: apt-get install valgrind)")
}

fn judged(before: Option<Counts>, now: Counts, comparable: bool) -> Tally {
    match before {
        Some(before) if comparable => {
            let rose = now.percent_above(before).into_iter().any(|percent| percent > CHANGE_PERCENT);
            Tally::of(if rose { Verdict::Fails } else { Verdict::Holds })
        }
        _ => Tally::skipped(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Counts = Counts { target: 1000, initiator: 2000 };

    #[test]
    fn either_end_fails_a_cell_beyond_five_percent() {
        let judge = |target, initiator| judged(Some(BEFORE), Counts { target, initiator }, true).verdict();
        assert_eq!(judge(1050, 2100), Verdict::Holds);
        assert_eq!(judge(1051, 2000), Verdict::Fails);
        assert_eq!(judge(500, 2101), Verdict::Fails, "what one end saved is not the other's");
    }

    #[test]
    fn what_cannot_be_compared_is_skipped() {
        let much = Counts { target: 9000, initiator: 9000 };
        assert_eq!(judged(Some(BEFORE), much, false), Tally::skipped());
        assert_eq!(judged(None, much, true), Tally::skipped());
    }
}
