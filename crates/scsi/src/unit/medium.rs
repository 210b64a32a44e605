//! The device as commands use it: in pieces of bounded size, and with the errors of a command.

use std::future::poll_fn;
use std::task::Poll;

use block::{Buffer, Durability, Extent, Slice};

use crate::failure::Failure;
use crate::sense::{Condition, SenseKey, asc};
use crate::unit::LogicalUnit;

/// The largest piece that is held in memory on behalf of a command whose data did not come from outside.
const PIECE_BYTES: u64 = 1 << 20;

impl LogicalUnit {
    /// Cuts `extent` into pieces of 1 MiB at most.
    pub(crate) fn pieces(&self, extent: Extent) -> impl Iterator<Item = Extent> + use<> {
        let step = (PIECE_BYTES >> self.device().geometry().block_size.shift()).max(1);
        let (lba, blocks) = (extent.lba.0, extent.blocks.0);
        (0..blocks.div_ceil(step)).map(move |piece| {
            let done = piece * step;
            Extent::new(lba + done, step.min(blocks - done))
        })
    }

    /// The blocks of `extent`, which must be short enough to be held at once.
    pub(crate) async fn fetch(&self, extent: Extent) -> Result<Buffer, Failure> {
        let length = self.device().geometry().length(extent) as usize;
        Ok(self.device().read(extent, Buffer::recycled(length)).await?)
    }

    /// Whether all blocks can be read.
    pub(crate) async fn scan(&self, extent: Extent) -> Result<(), Failure> {
        for piece in self.pieces(extent) {
            self.fetch(piece).await?;
            give_way().await;
        }
        Ok(())
    }

    /// MISCOMPARE unless all of `extent` holds `expected`, over and over. `offset` is what the command has compared
    /// before.
    pub(crate) async fn compare(&self, extent: Extent, expected: &[u8], offset: u64) -> Result<(), Failure> {
        if expected.is_empty() {
            return Ok(());
        }
        let mut at = 0;
        for piece in self.pieces(extent) {
            if at > 0 {
                give_way().await; // not before COMPARE AND WRITE's only piece
            }
            let found = self.fetch(piece).await?;
            if let Some(difference) = first_difference(&found, expected, at) {
                return Err(miscompare(offset + (at + difference) as u64).into());
            }
            at += found.len();
        }
        Ok(())
    }

    /// Writes `data`, which are as long as `extent`.
    pub(crate) async fn store(
        &self,
        extent: Extent,
        data: Slice,
        durability: Durability,
    ) -> Result<(), Failure> {
        Ok(self.device().write(extent, data, durability).await?)
    }
}

/// Lets others use this thread between two pieces. A device in memory ends each request at once, so without it a
/// command over many pieces would keep its reactor, and with it everybody's NOP-Ins, for as long as it takes.
pub(crate) async fn give_way() {
    let mut given = false;
    poll_fn(|context| {
        if std::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Where `found`, which begins `at` bytes into the repetition of `expected`, first differs from it. Compares runs
/// rather than bytes: a megabyte at a time where `expected` is that long.
fn first_difference(found: &[u8], expected: &[u8], at: usize) -> Option<usize> {
    let mut done = 0;
    while done < found.len() {
        let wanted = &expected[(at + done) % expected.len()..];
        let found = &found[done..];
        let length = wanted.len().min(found.len());
        if found[..length] != wanted[..length] {
            return found
                .iter()
                .zip(wanted)
                .position(|(found, wanted)| found != wanted)
                .map(|offset| done + offset);
        }
        done += length;
    }
    None
}

/// MISCOMPARE DURING VERIFY OPERATION. INFORMATION is the offset of the first byte that differs, which ESXi
/// looks at after a failed COMPARE AND WRITE (SBC-3 5.2).
fn miscompare(offset: u64) -> Condition {
    Condition::new(SenseKey::Miscompare, asc::MISCOMPARE_DURING_VERIFY).with_information(offset)
}
