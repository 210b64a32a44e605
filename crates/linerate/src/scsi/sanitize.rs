//! SANITIZE: makes everything that was ever written to a LUN unreadable. It asks first, and names what is there.

use std::time::Duration;

use inspect::commands::settle;
use iscsi_client::Unit;
use iscsi_client::verbs::{Sanitize, SanitizeManner};

use super::unit::UnitArguments;
use crate::failure::Failure;
use crate::output::remark;
use crate::remote;
use crate::terminal;

#[derive(Debug, clap::Args)]
pub(super) struct SanitizeArguments {
    #[command(flatten)]
    unit: UnitArguments,
    #[command(flatten)]
    how: How,
    /// Pattern that --overwrite writes, hexadecimal
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
    /// Erase by the means of the medium
    #[arg(long)]
    block_erase: bool,
    /// Change the key that encrypts everything
    #[arg(long)]
    crypto_erase: bool,
    /// Make a medium whose sanitizing failed usable again
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
    bytes.map(Pattern).ok_or_else(|| format!("{text:?} is no pattern; write two hexadecimal digits a byte"))
}

impl SanitizeArguments {
    fn what(&self) -> Sanitize {
        let Pattern(pattern) = self.pattern.clone();
        match self.how {
            How { overwrite: true, .. } => {
                Sanitize::Overwrite { pattern, passes: self.passes, invert: self.invert }
            }
            How { block_erase: true, .. } => Sanitize::BlockErase,
            How { crypto_erase: true, .. } => Sanitize::CryptographicErase,
            How { .. } => Sanitize::ExitFailureMode,
        }
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        self.unit.carry_out("sanitize", async |unit| {
            if !self.yes && !self.how.exit_failure_mode {
                let lost = format!("sanitizing makes {} unreadable for good", what_is_there(unit).await?);
                terminal::consent(false).to(lost)?;
            }
            // The answer comes at once: a medium of any size takes longer than a command may.
            let manner = SanitizeManner { immediate: true, unrestricted_exit: false };
            unit.sanitize(&self.what(), manner).await?;
            until_done(unit).await
        })
    }
}

async fn what_is_there(unit: &Unit) -> Result<String, Failure> {
    let disk = remote::disk(unit).await?;
    let found = disk_contents::contents(&disk)
        .await
        .map_err(|error| Failure::device("cannot look at the LUN", error))?;
    Ok(found.map_or_else(|| "everything on the LUN".to_owned(), |found| found.to_string()))
}

const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Says how far it is, as long as the unit does.
async fn until_done(unit: &Unit) -> Result<(), Failure> {
    settle(unit).await;
    while let Some(progress) = unit.request_sense().await?.and_then(|sense| sense.progress()) {
        remark(format_args!("{:.1} % done", f64::from(progress) * 100.0 / 65_536.0));
        reactor::sleep(LOOK_AGAIN).await;
    }
    // A failure is told to the next command that wants the medium.
    Ok(unit.test_unit_ready().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_whole_bytes() {
        assert_eq!(pattern("a55a").map(|pattern| pattern.0), Ok(vec![0xa5, 0x5a]));
        assert!(pattern("").is_err() && pattern("a55").is_err() && pattern("zz").is_err());
    }
}
