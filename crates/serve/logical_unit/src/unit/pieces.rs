//! Long operations in pieces of bounded size, so that no command holds much memory or blocks its thread for
//! long.

use std::future::poll_fn;
use std::task::Poll;

use block::{Buffer, Chunks, Extent};

use crate::unit::LogicalUnit;

/// The largest piece held in memory for a command without data from the initiator.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;

impl LogicalUnit {
    /// Cuts `extent` into pieces of 1 MiB at most.
    pub(crate) fn pieces(&self, extent: Extent) -> Chunks {
        extent.chunks(PIECE_BYTES >> self.device().geometry().block_size.shift())
    }

    /// The memory that a piece of `extent` takes, in bytes.
    pub(crate) fn piece_memory_bytes(&self, extent: Extent) -> usize {
        let geometry = self.device().geometry();
        let longest = self.pieces(extent).next().map_or(0, |piece| geometry.length(piece));
        Buffer::memory_bytes(longest as usize) // no more than PIECE_BYTES, or one block
    }
}

/// Yields to other tasks of this thread between two pieces. A device in memory completes each request at
/// once, so without it a command over many pieces would block its reactor, and with it the NOP-Ins of all
/// sessions.
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
