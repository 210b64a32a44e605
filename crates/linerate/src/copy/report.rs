//! What a copy came to.

use std::ops::Range;
use std::time::Duration;

use indicatif::BinaryBytes;
use serde::Serialize;

use super::destination::Destination;
use super::pump::Account;
use super::source::Source;
use crate::failure::Failure;
use crate::figures::significant;

/// The result. The names and units of the JSON are promised.
#[derive(Serialize)]
pub(super) struct Report {
    source: String,
    destination: String,
    /// Of the source.
    bytes: u64,
    /// Done by an earlier copy that was gone on with.
    resumed_at_bytes: u64,
    read_bytes: u64,
    written_bytes: u64,
    /// Copied by a target from one of its LUNs to another.
    offloaded_bytes: u64,
    /// Made zero without data: by WRITE SAME, UNMAP or what a file system has for it.
    cleared_bytes: u64,
    seconds: f64,
    /// Of what was written, by us or by the target.
    mb_per_s: f64,
    /// Parts of the source that could not be read.
    unreadable: Vec<Range<u64>>,
    pub(super) sha256: Option<String>,
    pub(super) verified: bool,
}

impl Report {
    pub(super) fn new(
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

    pub(super) fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map(|line| line + "\n").map_err(Failure::failed)
    }

    pub(super) fn text(&self) -> String {
        let own = self.bytes - self.resumed_at_bytes;
        let moved = self.written_bytes + self.offloaded_bytes;
        let mut text = format!(
            "copied {} in {:.2} s: {} of data at {} MB/s{}, {} of holes and zeros left out{}\n",
            BinaryBytes(own),
            self.seconds,
            BinaryBytes(moved),
            significant(self.mb_per_s),
            if self.offloaded_bytes > 0 { ", by the target itself" } else { "" },
            BinaryBytes(own.saturating_sub(moved)),
            if self.verified { "; the two are equal" } else { "" },
        );
        if let Some(digest) = &self.sha256 {
            text += &format!("sha256 {digest}\n");
        }
        text
    }

    /// Zeros in the place of data are not what was asked for.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
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
