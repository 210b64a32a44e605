//! Quiescing of devices after an abort, and fencing of volumes whose device does not quiesce.
//!
//! A front end that aborts commands reports it when the devices have quiesced: then no aborted request can
//! change the medium any more. If a device does not quiesce within
//! [`Limits::fence_time`](crate::Limits::fence_time), its volume is fenced (not ready for any host) until it
//! does, and the abort is reported at once, since no request can pass the fence.
//!
//! ```text
//!                quiesced in time
//!            ┌──────────────────────► report the abort; volume in service
//!  quiescing ┤
//!            └─ fence_time passed ──► fenced, report the abort ── quiesced ──► volume in service
//! ```

use std::sync::Arc;
use std::time::Duration;

use volume::Volume;

use crate::server::Server;

impl Server {
    /// Waits until no request aborted before this call can reach the media of these volumes any more, at most
    /// [`Limits::fence_time`](crate::Limits::fence_time). A volume that has not quiesced by then is fenced.
    pub async fn quiesce(&self, volumes: Vec<Arc<Volume>>) {
        let limit = self.limits().fence_time;
        // Concurrently: several hanging devices take no longer than one.
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

/// Fences `volume` until its device, which has not answered for `silent`, has completed or cancelled all
/// requests aborted so far. `storage` logs it.
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
