//! Commands on blocks (deallocate, fill, compare and replace), SANITIZE, and commands given as raw bytes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use block::{Buffer, Extent};
use inspect::commands::settle;
use inspect::pages::dump;
use iscsi_client::verbs::{Compared, Sanitize, SanitizeManner, WriteSame};
use iscsi_client::{CommandResult, Transfer, Unit, only_asks, status, status_words};

use crate::failure::{Failure, FailureKind, of_answer};
use crate::output::{remark, say, say_json};
use crate::scsi::unit::UnitArguments;
use crate::terminal::{self, Overwritten, consent};
use crate::{private_file, remote};

#[derive(Debug, clap::Args)]
pub(super) struct VpdArguments {
    #[command(flatten)]
    pub(super) ask: UnitArguments,
    /// Page number in hexadecimal, such as 83 [default: the list of pages]
    #[arg(value_name = "PAGE", value_parser = inspect::pages::code)]
    pub(super) page: Option<u8>,
    /// Also print the bytes
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
    /// Number of blocks [default: all blocks from LBA]
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
    /// Allow the target to deallocate the blocks if they then read as the same data
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
    /// Describes the content of the LUN, and asks for confirmation that it may be lost.
    async fn may_be_lost(&self, unit: &Unit) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        let disk = remote::disk(unit).await?;
        Overwritten {
            device: &disk,
            name: &"the LUN",
            part: None,
            lun: None,
        }
        .consent(consent(false))
        .await
    }

    pub(super) fn unmap(&self) -> Result<(), Failure> {
        self.unit
            .carry_out("unmap", async |unit| -> Result<(), Failure> {
                self.may_be_lost(unit).await?;
                Ok(unit
                    .unmap(&[Extent::new(self.lba, self.count)], self.anchor)
                    .await?)
            })
    }
}

impl WriteSameArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let WriteSameArguments {
            extent,
            block,
            unmap,
        } = self;
        let given = block.as_deref().map(read).transpose()?;
        extent.unit.carry_out("write-same", async |unit| {
            extent.may_be_lost(unit).await?;
            let block_bytes = unit.read_capacity().await?.block_bytes as usize;
            let block = given.unwrap_or_else(|| vec![0; block_bytes]);
            if block.len() != block_bytes {
                let why = format!(
                    "the file has {} bytes, but a block has {block_bytes}",
                    block.len()
                );
                return Err(Failure::refused(why));
            }
            let what = WriteSame {
                block: Some(buffer(&block).share()),
                unmap: *unmap,
                anchor: extent.anchor,
            };
            Ok(unit
                .write_same(Extent::new(extent.lba, extent.count), &what)
                .await?)
        })
    }
}

impl CompareArguments {
    /// Runs the command without confirmation: the user has confirmed the overwriting of known data.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let (expected, new) = (read(&self.expect)?, read(&self.write)?);
        self.unit.carry_out("compare-and-write", async |unit| {
            let block_bytes = unit.read_capacity().await?.block_bytes as usize;
            let blocks = u8::try_from(expected.len() / block_bytes.max(1))
                .ok()
                .filter(|blocks| *blocks > 0);
            let blocks =
                blocks.filter(|blocks| usize::from(*blocks) * block_bytes == expected.len());
            let Some(blocks) = blocks.filter(|_| new.len() == expected.len()) else {
                let why = format!(
                    "both files must have the same 1 to 255 whole blocks of {block_bytes} bytes"
                );
                return Err(Failure::refused(why));
            };
            match unit
                .compare_and_write(self.lba, blocks, &expected, &new)
                .await?
            {
                Compared::Written => Ok(()),
                Compared::Differs { offset_bytes } => {
                    let place =
                        offset_bytes.map_or_else(String::new, |at| format!(" at byte {at}"));
                    let why = format!("the content differs{place}; nothing was written");
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

#[derive(Debug, clap::Args)]
pub(super) struct SanitizeArguments {
    #[command(flatten)]
    unit: UnitArguments,
    #[command(flatten)]
    how: How,
    /// Pattern for --overwrite, in hexadecimal
    #[arg(long, value_name = "HEX", default_value = "00", value_parser = pattern, requires = "overwrite")]
    pattern: Pattern,
    /// Number of passes of --overwrite, 1 to 31
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=31), requires = "overwrite")]
    passes: u8,
    /// Write the complement in every other pass
    #[arg(long, requires = "overwrite")]
    invert: bool,
    /// Sanitize without asking
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct How {
    /// Write a pattern over everything
    #[arg(long)]
    overwrite: bool,
    /// Erase with the medium's own method
    #[arg(long)]
    block_erase: bool,
    /// Change the encryption key of the medium
    #[arg(long)]
    crypto_erase: bool,
    /// Make a medium usable again after a failed sanitize operation
    #[arg(long)]
    exit_failure_mode: bool,
}

#[derive(Clone, Debug)]
struct Pattern(Vec<u8>);

fn pattern(text: &str) -> Result<Pattern, String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    let bytes: Option<Vec<u8>> = pairs.collect();
    let bytes = bytes.filter(|bytes| !bytes.is_empty());
    bytes
        .map(Pattern)
        .ok_or_else(|| format!("{text:?} is not a pattern; write two hexadecimal digits per byte"))
}

impl SanitizeArguments {
    fn what(&self) -> Sanitize {
        let Pattern(pattern) = self.pattern.clone();
        match self.how {
            How {
                overwrite: true, ..
            } => Sanitize::Overwrite {
                pattern,
                passes: self.passes,
                invert: self.invert,
            },
            How {
                block_erase: true, ..
            } => Sanitize::BlockErase,
            How {
                crypto_erase: true, ..
            } => Sanitize::CryptographicErase,
            How { .. } => Sanitize::ExitFailureMode,
        }
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        self.unit.carry_out("sanitize", async |unit| {
            if !self.yes && !self.how.exit_failure_mode {
                let lost = format!(
                    "sanitizing makes {} permanently unreadable",
                    what_is_there(unit).await?
                );
                terminal::consent(false).to(lost)?;
            }
            // Request an immediate response, because the operation takes longer than the timeout of a
            // command.
            let manner = SanitizeManner {
                immediate: true,
                unrestricted_exit: false,
            };
            unit.sanitize(&self.what(), manner).await?;
            until_done(unit).await
        })
    }
}

async fn what_is_there(unit: &Unit) -> Result<String, Failure> {
    let disk = remote::disk(unit).await?;
    let found = disk_contents::contents(&disk)
        .await
        .map_err(|error| Failure::device("cannot examine the LUN", error))?;
    Ok(found.map_or_else(
        || "everything on the LUN".to_owned(),
        |found| found.to_string(),
    ))
}

const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Prints the progress for as long as the unit reports it.
async fn until_done(unit: &Unit) -> Result<(), Failure> {
    settle(unit).await;
    while let Some(progress) = unit
        .request_sense()
        .await?
        .and_then(|sense| sense.progress())
    {
        remark(format_args!(
            "{:.1} % done",
            f64::from(progress) * 100.0 / 65_536.0
        ));
        reactor::sleep(LOOK_AGAIN).await;
    }
    // If the operation has failed, the unit reports this to the next command that accesses the medium.
    Ok(unit.test_unit_ready().await?)
}

#[derive(Debug, clap::Args)]
pub(super) struct RawArguments {
    #[command(flatten)]
    unit: UnitArguments,
    /// Command descriptor block in hexadecimal, blanks allowed: 6 to 16 bytes
    #[arg(long, value_name = "HEX", value_parser = cdb)]
    cdb: Cdb,
    /// Maximum length of the command's response data
    #[arg(long, value_name = "BYTES", conflicts_with = "out", value_parser = clap::value_parser!(u32).range(1..=16 << 20))]
    r#in: Option<u32>,
    /// File with the data to send with the command
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Send a command that may change data or settings; needed for every command that is not known to be
    /// read-only
    #[arg(long)]
    yes: bool,
    /// Save the response data in this file instead of printing it
    #[arg(long, value_name = "FILE", requires = "in")]
    save: Option<PathBuf>,
}

/// A CDB in its transmitted form, which is padded with zeros.
type Cdb = [u8; 16];

fn cdb(text: &str) -> Result<Cdb, String> {
    let wrong = || {
        format!(
            "{text:?} is not a CDB, which has 6 to 16 bytes in hexadecimal: --cdb '12 00 00 00 24 00'"
        )
    };
    let digits: String = text
        .chars()
        .filter(|letter| !letter.is_whitespace())
        .collect();
    let is_hex =
        digits.bytes().all(|digit| digit.is_ascii_hexdigit()) && digits.len().is_multiple_of(2);
    if !is_hex || !(12..=32).contains(&digits.len()) {
        return Err(wrong());
    }
    // Pad the number at its end, so that its first byte is the operation code.
    let number = u128::from_str_radix(&format!("{digits:0<32}"), 16).map_err(|_| wrong())?;
    Ok(number.to_be_bytes())
}

/// The response in JSON.
#[derive(serde::Serialize)]
struct Raw {
    status: &'static str,
    bytes: usize,
    hex: String,
}

impl RawArguments {
    /// Sends the command once, unmodified. The result is its status with the sense data.
    pub(super) fn run(&self) -> Result<(), Failure> {
        if !(self.out.is_none() && only_asks(&self.cdb) || self.yes) {
            let why = "this command is not known to be read-only: it may modify the LUN; send it with --yes";
            return Err(Failure::refused(why));
        }
        let transfer = match &self.out {
            Some(file) => Transfer::Out(buffer(&read(file)?).share()),
            None => self.r#in.map_or(Transfer::None, |bytes| {
                Transfer::into_all_of(Buffer::zeroed(bytes as usize))
            }),
        };
        let answer = self.unit.with(async |unit| {
            settle(unit).await;
            Ok(unit.command(self.cdb, transfer).await?)
        })?;
        match answer.status {
            status::GOOD | status::CONDITION_MET => self.tell(&answer),
            status => {
                let why = answer.sense.map_or_else(
                    || status_words(status).to_owned(),
                    |sense| sense.to_string(),
                );
                Err(Failure::new(of_answer(status, answer.sense), why))
            }
        }
    }

    fn tell(&self, answer: &CommandResult) -> Result<(), Failure> {
        match &self.save {
            Some(file) => {
                let written =
                    private_file::create(file).and_then(|mut saved| saved.write_all(&answer.data));
                written.map_err(|error| Failure::unwritten(file.display(), &error))?;
                self.unit.done("raw")
            }
            None if self.unit.json => say_json(&Raw {
                status: status_words(answer.status),
                bytes: answer.data.len(),
                hex: answer
                    .data
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
            }),
            None => {
                say(&format!(
                    "{}, {} bytes\n{}",
                    status_words(answer.status),
                    answer.data.len(),
                    dump(&answer.data)
                ));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_whole_bytes() {
        assert_eq!(
            pattern("a55a").map(|pattern| pattern.0),
            Ok(vec![0xa5, 0x5a])
        );
        assert!(pattern("").is_err() && pattern("a55").is_err() && pattern("zz").is_err());
    }

    #[test]
    fn a_command_is_filled_up_with_zeros() {
        let inquiry = cdb("12 00 00 00 24 00").expect("six bytes");
        assert_eq!(inquiry[..6], [0x12, 0, 0, 0, 0x24, 0]);
        assert_eq!(inquiry[6..], [0; 10]);
        assert_eq!(cdb("000000000000").map(|cdb| cdb[0]), Ok(0));
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for text in [
            "",
            "12",
            "12 00 00 00 24 0",
            "12 00 00 00 24 0g",
            "+1 00 00 00 24 00",
            &"00".repeat(17),
        ] {
            assert!(cdb(text).is_err(), "{text:?}");
        }
    }
}
