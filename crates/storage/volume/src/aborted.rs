//! Aborted requests that change blocks: the device may carry them out after what came later, so their blocks stay locked
//! until it cannot.

use block::{Extent, Hold, Lock};

use crate::Volume;

/// Locked ranges, numbered in the order in which their requests were aborted.
#[derive(Default)]
pub(crate) struct AbortedRequests {
    ranges: Lock<Numbered>,
}

#[derive(Default)]
struct Numbered {
    next: u64,
    held: Vec<(u64, Hold)>,
}

impl Volume {
    /// A request that changes `extent` was aborted, and the device may have it still.
    pub fn lock_until_quiesced(&self, extent: Extent) {
        let hold = self.range_locks.hold(extent);
        let mut ranges = self.aborted.ranges.lock();
        let number = ranges.next;
        ranges.next += 1;
        ranges.held.push((number, hold));
    }

    /// Ends when no request that was aborted before this call can reach the medium any more, or change the persistent state;
    /// requests for the same blocks wait until then. The caller that aborts requests must await this to its end.
    pub async fn quiesced(&self) {
        let before = self.aborted.ranges.lock().next;
        // An error ends the wait as well: a device that can fail a request has answered.
        let _ = self.device.quiesced().await;
        drop(self.lock_to_save().await);
        let mut ranges = self.aborted.ranges.lock();
        // Dropped when the list is free again: a hold wakes others.
        let over: Vec<_> = ranges.held.extract_if(.., |(number, _)| *number < before).collect();
        drop(ranges);
        drop(over);
    }
}
