//! Blocks by their addresses: how many there are, what became of them, giving them back, filling them, and replacing
//! them if they are what they should be.

use std::fs;
use std::path::{Path, PathBuf};

use block::{Buffer, Extent};
use initiator::Unit;
use initiator::verbs::{Capacity, Compared, LbaRun, LbaStatus, WriteSame};
use serde_json::{Value, json};

use super::answer::Answer;
use super::unit::{AskArguments, UnitArguments};
use crate::failure::{Failure, Kind};
use crate::remote;
use crate::spec::Bytes;
use crate::terminal::Overwritten;
use stats::figures::grouped;
use stats::table::{Align, lines, pairs};

#[derive(Debug, clap::Args)]
pub(super) struct StatusArguments {
    #[command(flatten)]
    ask: AskArguments,
    /// The first block
    #[arg(value_name = "LBA", default_value_t = 0)]
    lba: u64,
    /// How many blocks; all that follow if not given
    #[arg(value_name = "COUNT")]
    count: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(super) struct ExtentArguments {
    #[command(flatten)]
    unit: UnitArguments,
    /// The first block
    #[arg(value_name = "LBA")]
    lba: u64,
    /// How many blocks
    #[arg(value_name = "COUNT")]
    count: u64,
    /// Keep the space for these blocks (ANCHOR)
    #[arg(long)]
    anchor: bool,
    /// Do not ask whether what is on the LUN may be lost
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct WriteSameArguments {
    #[command(flatten)]
    extent: ExtentArguments,
    /// A file with the block to write everywhere; zeros if not given
    #[arg(long, value_name = "FILE")]
    block: Option<PathBuf>,
    /// Let the target give the blocks back, if they read the same then
    #[arg(long)]
    unmap: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct CompareArguments {
    #[command(flatten)]
    unit: UnitArguments,
    /// The first block
    #[arg(value_name = "LBA")]
    lba: u64,
    /// A file with what must be there
    #[arg(long, value_name = "FILE")]
    expect: PathBuf,
    /// A file with what is to be there, as long as the other
    #[arg(long, value_name = "FILE")]
    write: PathBuf,
}

pub(super) fn capacity(asked: &AskArguments) -> Result<(), Failure> {
    asked.ask(async |unit| {
        let capacity = unit.read_capacity().await?;
        let Capacity { blocks, block_bytes, physical_exponent, lowest_aligned, protection_type, .. } =
            capacity;
        let bytes = capacity.bytes();
        let physical = u64::from(block_bytes) << physical_exponent;
        let rows = [
            ("capacity", Bytes(bytes).to_string()),
            ("blocks", format!("{} of {block_bytes} bytes", grouped(blocks))),
            ("physical blocks", format!("of {physical} bytes, the first at block {lowest_aligned}")),
            ("protection", protection_type.map_or_else(|| "no".to_owned(), |kind| format!("type {kind}"))),
            ("thin", if capacity.thin { "yes" } else { "no" }.to_owned()),
        ];
        let json = json!({
            "bytes": bytes,
            "blocks": blocks,
            "block_bytes": block_bytes,
            "physical_block_bytes": physical,
            "lowest_aligned_lba": lowest_aligned,
            "protection_type": protection_type,
            "thin": capacity.thin,
        });
        Ok(Answer::new(pairs("", rows), json))
    })
}

/// More lines than anybody reads; a map of a disk in small pieces goes on for very long.
const RUNS_MOST: usize = 65_536;

pub(super) fn lba_status(asked: &StatusArguments) -> Result<(), Failure> {
    asked.ask.ask(async |unit| {
        let rest = unit.read_capacity().await?.blocks.saturating_sub(asked.lba);
        let extent = Extent::new(asked.lba, asked.count.unwrap_or(rest));
        let runs = unit.lba_status(extent, RUNS_MOST).await?;
        let rows: Vec<[String; 3]> = runs.iter().map(row).collect();
        let columns = [Align::Right, Align::Right, Align::Left];
        let json = runs.iter().map(|run| {
            json!({ "lba": run.extent.lba.0, "blocks": run.extent.blocks.0, "status": words(run.status) })
        });
        let json = json.collect::<Value>();
        Ok(Answer::new(lines(columns, &rows).join("\n"), json))
    })
}

fn row(run: &LbaRun) -> [String; 3] {
    [run.extent.lba.0.to_string(), run.extent.blocks.0.to_string(), words(run.status)]
}

fn words(status: LbaStatus) -> String {
    match status {
        LbaStatus::Mapped => "mapped".to_owned(),
        LbaStatus::Deallocated => "deallocated".to_owned(),
        LbaStatus::Anchored => "anchored".to_owned(),
        LbaStatus::Other(code) => format!("status {code}"),
    }
}

pub(super) fn unmap(asked: &ExtentArguments) -> Result<(), Failure> {
    asked.unit.with(async |unit| {
        asked.may_be_lost(unit).await?;
        Ok(unit.unmap(&[asked.extent()], asked.anchor).await?)
    })
}

pub(super) fn write_same(asked: &WriteSameArguments) -> Result<(), Failure> {
    let WriteSameArguments { extent, block, unmap } = asked;
    let given = block.as_deref().map(read).transpose()?;
    extent.unit.with(async |unit| {
        extent.may_be_lost(unit).await?;
        let block_bytes = unit.read_capacity().await?.block_bytes as usize;
        let block = given.unwrap_or_else(|| vec![0; block_bytes]);
        if block.len() != block_bytes {
            let why = format!("the file has {} bytes, and a block {block_bytes}", block.len());
            return Err(Failure::refused(why));
        }
        let mut buffer = Buffer::zeroed(block_bytes);
        buffer.copy_from_slice(&block);
        let what = WriteSame { block: Some(buffer.share()), unmap: *unmap, anchor: extent.anchor };
        Ok(unit.write_same(extent.extent(), &what).await?)
    })
}

/// Nobody is asked: what is overwritten is what the caller has shown to know.
pub(super) fn compare_and_write(asked: &CompareArguments) -> Result<(), Failure> {
    let (expected, new) = (read(&asked.expect)?, read(&asked.write)?);
    asked.unit.with(async |unit| {
        let block_bytes = unit.read_capacity().await?.block_bytes as usize;
        let blocks = u8::try_from(expected.len() / block_bytes.max(1)).ok().filter(|blocks| *blocks > 0);
        let blocks = blocks.filter(|blocks| usize::from(*blocks) * block_bytes == expected.len());
        let Some(blocks) = blocks.filter(|_| new.len() == expected.len()) else {
            let why = format!("both files must have the same 1 to 255 whole blocks of {block_bytes} bytes");
            return Err(Failure::refused(why));
        };
        match unit.compare_and_write(asked.lba, blocks, &expected, &new).await? {
            Compared::Written => Ok(()),
            Compared::Differs { offset_bytes } => {
                let place = offset_bytes.map_or_else(String::new, |at| format!(" at byte {at}"));
                let why = format!("something else is there{place}; nothing was written");
                Err(Failure::new(Kind::Mismatch, why))
            }
        }
    })
}

impl ExtentArguments {
    fn extent(&self) -> Extent {
        Extent::new(self.lba, self.count)
    }

    /// Names what is on the LUN, and asks.
    async fn may_be_lost(&self, unit: &Unit) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        let disk = remote::disk(unit).await?;
        Overwritten { device: &disk, name: &"the LUN", part: None, lun: None }
            .consent(crate::terminal::consent(false))
            .await
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| Failure::refused(format!("{}: {error}", file.display())))
}
