//! Aborted requests that change blocks: the device may carry them out after what came later, so their blocks stay locked
//! until it cannot.

use block::{Aborted, Extent, Hold, Lock};

use crate::Volume;

/// The locked ranges of aborted requests.
pub(crate) type AbortedRequests = Lock<Aborted<Hold>>;

impl Volume {
    /// A request that changes `extent` was aborted, and the device may have it still.
    pub fn lock_until_quiesced(&self, extent: Extent) {
        let hold = self.range_locks.hold(extent);
        self.aborted.lock().push(hold);
    }

    /// Ends when no request that was aborted before this call can reach the medium any more, or change the persistent state;
    /// requests for the same blocks wait until then. The caller that aborts requests must await this to its end.
    pub async fn quiesced(&self) {
        let before = self.aborted.lock().count();
        // An error ends the wait as well: a device that can fail a request has answered.
        let _ = self.device.quiesced().await;
        drop(self.lock_to_save().await);
        let over = self.aborted.lock().settle(before);
        // Dropped when the list is free again: a hold wakes others.
        drop(over);
    }
}
