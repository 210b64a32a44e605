//! A command by its bytes, for what has no verb here.

use std::io::Write;
use std::path::PathBuf;

use block::Buffer;
use inspect::commands::settle;
use inspect::pages::dump;
use iscsi_client::{CommandResult, Transfer, only_asks, status, status_words};

use super::blocks::{buffer, read};
use super::unit::UnitArguments;
use crate::failure::{Failure, of_answer};
use crate::output::{say, say_json};
use crate::private_file;

#[derive(Debug, clap::Args)]
pub(super) struct RawArguments {
    #[command(flatten)]
    unit: UnitArguments,
    /// Command descriptor block in hexadecimal, blanks allowed: 6 to 16 bytes
    #[arg(long, value_name = "HEX", value_parser = cdb)]
    cdb: Cdb,
    /// Most bytes that the command answers with
    #[arg(long, value_name = "BYTES", conflicts_with = "out", value_parser = clap::value_parser!(u32).range(1..=16 << 20))]
    r#in: Option<u32>,
    /// File with the data that the command takes
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Send a command that may change data or settings; needed for every command that is not known only to read
    #[arg(long)]
    yes: bool,
    /// Save the answer in this file instead of printing it
    #[arg(long, value_name = "FILE", requires = "in")]
    save: Option<PathBuf>,
}

/// Filled up with zeros, as it travels.
type Cdb = [u8; 16];

fn cdb(text: &str) -> Result<Cdb, String> {
    let wrong =
        || format!("{text:?} is no CDB, which has 6 to 16 bytes in hexadecimal: --cdb '12 00 00 00 24 00'");
    let digits: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit()) && digits.len().is_multiple_of(2);
    if !is_hex || !(12..=32).contains(&digits.len()) {
        return Err(wrong());
    }
    // Filled up behind, so that the number's first byte is the operation code.
    let number = u128::from_str_radix(&format!("{digits:0<32}"), 16).map_err(|_| wrong())?;
    Ok(number.to_be_bytes())
}

/// An answer as JSON.
#[derive(serde::Serialize)]
struct Raw {
    status: &'static str,
    bytes: usize,
    hex: String,
}

impl RawArguments {
    /// Sends it as it is, once. Its status is the answer; sense data go with it.
    pub(super) fn run(&self) -> Result<(), Failure> {
        if !(self.out.is_none() && only_asks(&self.cdb) || self.yes) {
            let why = "this command may change what is on the LUN, since it is not one that is known to only read; \
                       add --yes to send it";
            return Err(Failure::refused(why));
        }
        let transfer = match &self.out {
            Some(file) => Transfer::Out(buffer(&read(file)?).share()),
            None => self
                .r#in
                .map_or(Transfer::None, |bytes| Transfer::into_all_of(Buffer::zeroed(bytes as usize))),
        };
        let answer = self.unit.with(async |unit| {
            settle(unit).await;
            Ok(unit.command(self.cdb, transfer).await?)
        })?;
        match answer.status {
            status::GOOD | status::CONDITION_MET => self.tell(&answer),
            status => {
                let why =
                    answer.sense.map_or_else(|| status_words(status).to_owned(), |sense| sense.to_string());
                Err(Failure::new(of_answer(status, answer.sense), why))
            }
        }
    }

    fn tell(&self, answer: &CommandResult) -> Result<(), Failure> {
        match &self.save {
            Some(file) => {
                let written = private_file::create(file).and_then(|mut saved| saved.write_all(&answer.data));
                written.map_err(|error| Failure::unwritten(file.display(), &error))?;
                self.unit.done("raw")
            }
            None if self.unit.json => say_json(&Raw {
                status: status_words(answer.status),
                bytes: answer.data.len(),
                hex: answer.data.iter().map(|byte| format!("{byte:02x}")).collect(),
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
    fn a_command_is_filled_up_with_zeros() {
        let inquiry = cdb("12 00 00 00 24 00").expect("six bytes");
        assert_eq!(inquiry[..6], [0x12, 0, 0, 0, 0x24, 0]);
        assert_eq!(inquiry[6..], [0; 10]);
        assert_eq!(cdb("000000000000").map(|cdb| cdb[0]), Ok(0));
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for text in ["", "12", "12 00 00 00 24 0", "12 00 00 00 24 0g", "+1 00 00 00 24 00", &"00".repeat(17)]
        {
            assert!(cdb(text).is_err(), "{text:?}");
        }
    }
}
