//! Blocks by their addresses: giving them back, filling them, and replacing them if they are what they should be.

use std::fs;
use std::path::{Path, PathBuf};

use block::{Buffer, Extent};
use iscsi_client::Unit;
use iscsi_client::verbs::{Compared, WriteSame};

use super::unit::UnitArguments;
use crate::failure::{Failure, FailureKind};
use crate::remote;
use crate::terminal::{Overwritten, consent};

#[derive(Debug, clap::Args)]
pub(super) struct VpdArguments {
    #[command(flatten)]
    pub(super) ask: UnitArguments,
    /// Page by its hexadecimal number, such as 83 [default: the list of pages]
    #[arg(value_name = "PAGE", value_parser = inspect::pages::code)]
    pub(super) page: Option<u8>,
    /// Print the bytes too
    #[arg(long)]
    pub(super) hex: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct StatusArguments {
    #[command(flatten)]
    pub(super) ask: UnitArguments,
    /// First block
    #[arg(value_name = "LBA", default_value_t = 0)]
    pub(super) lba: u64,
    /// Number of blocks [default: all that follow]
    #[arg(value_name = "COUNT")]
    pub(super) count: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(super) struct ExtentArguments {
    #[command(flatten)]
    unit: UnitArguments,
    /// First block
    #[arg(value_name = "LBA")]
    lba: u64,
    /// Number of blocks
    #[arg(value_name = "COUNT")]
    count: u64,
    /// Keep the space for these blocks (ANCHOR)
    #[arg(long)]
    anchor: bool,
    /// Overwrite the data without asking
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct WriteSameArguments {
    #[command(flatten)]
    extent: ExtentArguments,
    /// File with the block to write [default: zeros]
    #[arg(long, value_name = "FILE")]
    block: Option<PathBuf>,
    /// Let the target deallocate the blocks if they then read the same
    #[arg(long)]
    unmap: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct CompareArguments {
    #[command(flatten)]
    unit: UnitArguments,
    /// First block
    #[arg(value_name = "LBA")]
    lba: u64,
    /// File with the expected data
    #[arg(long, value_name = "FILE")]
    expect: PathBuf,
    /// File with the new data, of the same length
    #[arg(long, value_name = "FILE")]
    write: PathBuf,
}

impl ExtentArguments {
    /// Names what is on the LUN, and asks.
    async fn may_be_lost(&self, unit: &Unit) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        let disk = remote::disk(unit).await?;
        Overwritten { device: &disk, name: &"the LUN", part: None, lun: None }.consent(consent(false)).await
    }

    pub(super) fn unmap(&self) -> Result<(), Failure> {
        self.unit.carry_out("unmap", async |unit| -> Result<(), Failure> {
            self.may_be_lost(unit).await?;
            Ok(unit.unmap(&[Extent::new(self.lba, self.count)], self.anchor).await?)
        })
    }
}

impl WriteSameArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let WriteSameArguments { extent, block, unmap } = self;
        let given = block.as_deref().map(read).transpose()?;
        extent.unit.carry_out("write-same", async |unit| {
            extent.may_be_lost(unit).await?;
            let block_bytes = unit.read_capacity().await?.block_bytes as usize;
            let block = given.unwrap_or_else(|| vec![0; block_bytes]);
            if block.len() != block_bytes {
                let why = format!("the file has {} bytes, and a block {block_bytes}", block.len());
                return Err(Failure::refused(why));
            }
            let what =
                WriteSame { block: Some(buffer(&block).share()), unmap: *unmap, anchor: extent.anchor };
            Ok(unit.write_same(Extent::new(extent.lba, extent.count), &what).await?)
        })
    }
}

impl CompareArguments {
    /// Nobody is asked: what is overwritten is what the caller has shown to know.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let (expected, new) = (read(&self.expect)?, read(&self.write)?);
        self.unit.carry_out("compare-and-write", async |unit| {
            let block_bytes = unit.read_capacity().await?.block_bytes as usize;
            let blocks = u8::try_from(expected.len() / block_bytes.max(1)).ok().filter(|blocks| *blocks > 0);
            let blocks = blocks.filter(|blocks| usize::from(*blocks) * block_bytes == expected.len());
            let Some(blocks) = blocks.filter(|_| new.len() == expected.len()) else {
                let why =
                    format!("both files must have the same 1 to 255 whole blocks of {block_bytes} bytes");
                return Err(Failure::refused(why));
            };
            match unit.compare_and_write(self.lba, blocks, &expected, &new).await? {
                Compared::Written => Ok(()),
                Compared::Differs { offset_bytes } => {
                    let place = offset_bytes.map_or_else(String::new, |at| format!(" at byte {at}"));
                    let why = format!("something else is there{place}; nothing was written");
                    Err(Failure::new(FailureKind::Mismatch, why))
                }
            }
        })
    }
}

pub(super) fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| Failure::refused(format!("{}: {error}", file.display())))
}

pub(super) fn buffer(data: &[u8]) -> Buffer {
    let mut buffer = Buffer::zeroed(data.len());
    buffer.copy_from_slice(data);
    buffer
}
