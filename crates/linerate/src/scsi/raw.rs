//! A command by its bytes, for what has no verb here.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use block::Buffer;
use initiator::{Answer, Transfer, status, status_words};

use super::unit::{UnitArguments, settle};
use crate::failure::{Failure, of_answer};
use crate::output::say;
use crate::page::dump;
use crate::private_file;

#[derive(Debug, clap::Args)]
pub(super) struct RawArguments {
    #[command(flatten)]
    unit: UnitArguments,
    /// The command descriptor block in hexadecimal, blanks allowed: 6 to 16 bytes
    #[arg(long, value_name = "HEX", value_parser = cdb)]
    cdb: Cdb,
    /// How many bytes the command may answer with
    #[arg(long, value_name = "BYTES", conflicts_with = "out", value_parser = clap::value_parser!(u32).range(1..=16 << 20))]
    r#in: Option<u32>,
    /// A file with the data that the command takes
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Send a command that may change something, which is every one that is not known to ask only
    #[arg(long)]
    yes: bool,
    /// Put the answer into this file instead of showing it
    #[arg(long, value_name = "FILE", requires = "in")]
    save: Option<PathBuf>,
}

/// Filled up with zeros, as it travels.
type Cdb = [u8; 16];
/// Operation codes of commands that only ask (SPC-4, SBC-3, SSC-4 and MMC-6).
const ASKING: [u8; 29] = [
    0x00, // TEST UNIT READY
    0x03, // REQUEST SENSE
    0x08, // READ(6)
    0x12, // INQUIRY
    0x1a, // MODE SENSE(6)
    0x1c, // RECEIVE DIAGNOSTIC RESULTS
    0x23, // READ FORMAT CAPACITIES
    0x25, // READ CAPACITY(10)
    0x28, // READ(10)
    0x37, // READ DEFECT DATA(10)
    0x3c, // READ BUFFER
    0x3e, // READ LONG(10)
    0x43, // READ TOC
    0x46, // GET CONFIGURATION
    0x4a, // GET EVENT STATUS NOTIFICATION
    0x4d, // LOG SENSE
    0x51, // READ DISC INFORMATION
    0x52, // READ TRACK INFORMATION
    0x5a, // MODE SENSE(10)
    0x5e, // PERSISTENT RESERVE IN
    0x84, // RECEIVE COPY RESULTS
    0x88, // READ(16)
    0x8c, // READ ATTRIBUTE
    0x9e, // SERVICE ACTION IN(16)
    0xa0, // REPORT LUNS
    0xa2, // SECURITY PROTOCOL IN
    0xa3, // MAINTENANCE IN
    0xa8, // READ(12)
    0xab, // SERVICE ACTION IN(12)
];

fn cdb(text: &str) -> Result<Cdb, String> {
    let wrong = || format!("{text:?} is no CDB; write 6 to 16 bytes such as 12 00 00 00 24 00");
    let digits: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit()) && digits.len().is_multiple_of(2);
    if !is_hex || !(12..=32).contains(&digits.len()) {
        return Err(wrong());
    }
    // Filled up behind, so that the number's first byte is the operation code.
    let number = u128::from_str_radix(&format!("{digits:0<32}"), 16).map_err(|_| wrong())?;
    Ok(number.to_be_bytes())
}

/// Sends it as it is, once. Its status is the answer; sense data go with it.
pub(super) fn run(asked: &RawArguments) -> Result<(), Failure> {
    let only_asks = asked.out.is_none() && ASKING.contains(&asked.cdb[0]);
    if !only_asks && !asked.yes {
        let why =
            "a command that does not only ask may change what is on the LUN; say --yes if that is meant";
        return Err(Failure::refused(why));
    }
    let transfer = asked.transfer()?;
    let answer = asked.unit.with(async |unit| {
        settle(unit).await;
        Ok(unit.command(asked.cdb, transfer).await?)
    })?;
    match answer.status {
        status::GOOD | status::CONDITION_MET => asked.tell(&answer),
        status => {
            let why = answer.sense.map_or_else(|| status_words(status).to_owned(), |sense| sense.to_string());
            Err(Failure::new(of_answer(status, answer.sense), why))
        }
    }
}

impl RawArguments {
    fn transfer(&self) -> Result<Transfer, Failure> {
        if let Some(file) = &self.out {
            let data =
                fs::read(file).map_err(|error| Failure::refused(format!("{}: {error}", file.display())))?;
            let mut buffer = Buffer::zeroed(data.len());
            buffer.copy_from_slice(&data);
            return Ok(Transfer::Out(buffer.share()));
        }
        Ok(self.r#in.map_or(Transfer::None, |bytes| Transfer::into_all_of(Buffer::zeroed(bytes as usize))))
    }

    fn tell(&self, answer: &Answer) -> Result<(), Failure> {
        match &self.save {
            Some(file) => {
                let written = private_file::create(file).and_then(|mut saved| saved.write_all(&answer.data));
                written.map_err(|error| Failure::unwritten(file.display(), &error))
            }
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
