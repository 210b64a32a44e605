//! Commands that were aborted while a device had their requests: when they can no longer reach the medium, and what holds
//! others off until then.
//!
//! Who aborts commands answers when the devices have quiesced: what was aborted cannot change the medium any more. A device
//! that does not come to that in time leaves its volume fenced, not ready for any host, until it does; then the answer is given
//! all the same, because the fence keeps the promise.

use std::sync::Arc;
use std::time::Duration;

use volume::Volume;

use crate::server::Server;

impl Server {
    /// Waits until nothing that was aborted before this call can reach these volumes' media any more, or they are fenced
    /// until then: for as long as [`Limits::fence_time`](crate::Limits::fence_time) at most.
    pub async fn quiesce(&self, volumes: Vec<Arc<Volume>>) {
        let limit = self.limits().fence_time;
        // All at once: several that hang take no longer than one.
        let waits: Vec<_> =
            volumes.into_iter().map(|volume| reactor::spawn(quiesce(volume, limit))).collect();
        for wait in waits {
            wait.await;
        }
    }
}

async fn quiesce(volume: Arc<Volume>, limit: Duration) {
    if reactor::timeout(limit, volume.quiesced()).await.is_err() {
        fence(&volume, limit);
    }
}

/// Takes `volume` out of service until its device, which has not answered for so long, has ended everything that was aborted
/// up to now. The log tells of it (`storage`).
pub fn fence(volume: &Arc<Volume>, silent: Duration) {
    let fence = volume.fence();
    let volume = Arc::clone(volume);
    volume.health().falls_silent(silent);
    drop(reactor::spawn(async move {
        volume.quiesced().await;
        drop(fence);
        volume.health().answers();
    }));
}
