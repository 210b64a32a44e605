//! What can be asked of `linerate diagnose`.

use std::path::{Path, PathBuf};

use model::{Direction, Load};

use super::show::ShowOptions;
use crate::bench::seconds;
use crate::failure::Failure;
use crate::spec::Bytes;
use crate::terminal;
use bench::Extent;
use diagnose::measure::Options;
use model::LinkRate;

#[derive(clap::Args, Debug)]
pub(crate) struct DiagnoseArguments {
    /// LUN or NBD export at the end of the path: iscsi://[USER@]HOST[:PORT]/IQN/LUN[?KEY=VALUE&...], or nbd://HOST[:PORT]/EXPORT
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    pub(super) url: String,
    /// Take 10 to 15 seconds instead of 40, with less precision
    #[arg(long)]
    pub(super) quick: bool,
    /// Time that the diagnosis takes [default: 40s]
    #[arg(long, value_name = "TIME", conflicts_with = "quick", value_parser = seconds)]
    seconds: Option<f64>,
    /// Nominal rate of the link, such as 1Gbit/s or 100Mbit/s
    #[arg(long, value_name = "RATE")]
    link: Option<LinkRate>,
    /// Try each change that is possible on this side: measure with and without it, in turns
    #[arg(long)]
    pub(super) confirm: bool,
    /// Random seed of offsets, data and the order of measurements
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the measurements to this file as JSON before they are analysed (- is standard output, without an analysis)
    #[arg(long, value_name = "FILE", hide = true)]
    evidence: Option<PathBuf>,
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    writing: WritingOptions,
    #[command(flatten)]
    show: ShowOptions,
}

/// The load that is slow. What is found is about it then; without any of these, about usual loads.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Load to diagnose")]
struct LoadOptions {
    /// Block size of its requests [default: 4KiB]
    #[arg(long, visible_alias = "bs", value_name = "SIZE")]
    block: Option<Bytes>,
    /// Queue depth: outstanding requests of each session [default: 1]
    #[arg(long, visible_alias = "iodepth", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    depth: Option<u32>,
    /// Sessions, each with that queue depth [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    sessions: Option<u16>,
    /// Diagnose reads
    #[arg(long, conflicts_with = "write")]
    read: bool,
    /// Diagnose writes (needs --allow-write)
    #[arg(long)]
    write: bool,
    /// Use sequential offsets instead of random ones
    #[arg(long)]
    sequential: bool,
    /// Complete each write on stable storage, as databases do
    #[arg(long, requires = "write")]
    durable: bool,
}

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Writing")]
struct WritingOptions {
    /// Measure writes too, anywhere or in a part of the storage (--allow-write=1GiB..3GiB), which destroys its data. Without
    /// it nothing is changed
    #[arg(long, value_name = "START..END", num_args = 0..=1, require_equals = true,
        default_missing_value = "..")]
    allow_write: Option<Extent>,
    /// Overwrite the data without asking
    #[arg(long, requires = "allow_write")]
    yes: bool,
}

impl DiagnoseArguments {
    pub(super) fn options(&self) -> Result<Options, Failure> {
        let own = self.load.load()?;
        if own.is_some_and(|load| load.direction == Direction::Write) && self.writing.allow_write.is_none() {
            return Err(Failure::refused(
                "to measure writes destroys what is on the storage; say --allow-write",
            ));
        }
        Ok(Options {
            quick: self.quick,
            seconds: self.seconds,
            own,
            allow_write: self.writing.allow_write,
            consent: terminal::consent(self.writing.yes),
            expected_link_bits_per_s: self.link.map(LinkRate::bits_per_s),
            seed: self.seed,
        })
    }

    pub(super) fn show(&self) -> &ShowOptions {
        &self.show
    }

    pub(super) fn evidence(&self) -> Option<&Path> {
        self.evidence.as_deref()
    }
}

impl LoadOptions {
    /// The load, if any of it was said.
    fn load(&self) -> Result<Option<Load>, Failure> {
        let LoadOptions { block, depth, sessions, read, write, sequential, durable } = self;
        let is_said = block.is_some() || depth.is_some() || sessions.is_some();
        if !is_said && !read && !write && !sequential {
            return Ok(None);
        }
        let bytes = block.map_or(4096, |block| block.0);
        let block_bytes = u32::try_from(bytes).ok().filter(|bytes| (1..=BLOCK_MAX).contains(bytes));
        Ok(Some(Load {
            direction: if *write { Direction::Write } else { Direction::Read },
            block_bytes: block_bytes
                .ok_or_else(|| Failure::refused("--block: a request has from 1 byte to 16MiB"))?,
            depth: depth.unwrap_or(1),
            sessions: sessions.unwrap_or(1),
            random: !sequential,
            durable: *durable,
        }))
    }
}

/// Longer requests are cut into such by our initiator, and mean nothing for the path.
const BLOCK_MAX: u32 = 16 << 20;
