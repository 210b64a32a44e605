//! Aborted requests that change blocks: the device may carry them out after later requests, so their blocks
//! stay locked until it cannot.

use block::{Aborted, Extent, Hold, Lock};

use crate::Volume;

/// The locked ranges of aborted requests.
pub(crate) type AbortedRequests = Lock<Aborted<Hold>>;

impl Volume {
    /// Locks `extent` of an aborted request that the device may still carry out, until it has quiesced.
    pub fn lock_until_quiesced(&self, extent: Extent) {
        let hold = self.range_locks.hold(extent);
        self.aborted.lock().push(hold);
    }

    /// Completes when no request aborted before this call can change the medium or the persistent state any
    /// more; requests for the same blocks wait until then. The caller that aborts requests must await this to
    /// its end.
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
