//! The result of a copy.

use std::ops::Range;
use std::time::Duration;

use backends::Failure;
use serde::Serialize;

use crate::destination::Destination;
use crate::pump::Account;
use crate::source::Source;

/// The result. The names and units of the JSON are promised.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The source, for people.
    pub source: String,
    /// The destination, for people.
    pub destination: String,
    /// Of the source.
    pub bytes: u64,
    /// Done by an earlier copy, which this one resumed.
    pub resumed_at_bytes: u64,
    /// Read from the source by us.
    pub read_bytes: u64,
    /// Written to the destination by us.
    pub written_bytes: u64,
    /// Copied by a target from one of its LUNs to another.
    pub offloaded_bytes: u64,
    /// Made zero without data: by WRITE SAME, UNMAP or what a file system has for it.
    pub cleared_bytes: u64,
    /// How long it took, without the comparison.
    pub seconds: f64,
    /// Of what was written, by us or by the target.
    pub mb_per_s: f64,
    /// Parts of the source that could not be read.
    pub unreadable: Vec<Range<u64>>,
    /// Of the source, if it was wanted, in hexadecimal digits.
    pub sha256: Option<String>,
    /// The destination was read back, and is equal.
    pub verified: bool,
}

impl Report {
    pub(crate) fn new(
        source: &Source,
        destination: &Destination,
        resumed_at_bytes: u64,
        account: &Account,
        time: Duration,
    ) -> Report {
        let seconds = time.as_secs_f64();
        Report {
            source: source.name.clone(),
            destination: destination.name.clone(),
            bytes: source.bytes,
            resumed_at_bytes,
            read_bytes: account.tally.read,
            written_bytes: account.tally.written,
            offloaded_bytes: account.tally.offloaded,
            cleared_bytes: account.tally.cleared,
            seconds,
            mb_per_s: (account.tally.written + account.tally.offloaded) as f64 / seconds.max(1e-9) / 1e6,
            unreadable: account.unreadable.clone(),
            sha256: None,
            verified: false,
        }
    }

    /// Whether the copy is what was asked for.
    ///
    /// # Errors
    /// It has zeros in the place of data that cannot be read.
    pub fn verdict(&self) -> Result<(), Failure> {
        if self.unreadable.is_empty() {
            return Ok(());
        }
        let ranges = self.unreadable.iter().map(|range| format!("\n  {}-{}", range.start, range.end - 1));
        Err(Failure::failed(format_args!(
            "{} has data that cannot be read, and zeros were written for the bytes{}",
            self.source,
            ranges.collect::<String>()
        )))
    }
}
