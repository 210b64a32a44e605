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
    /// Waits until nothing that was aborted before this call can reach these volumes' media any more, or they are fenced
    /// until then: for as long as [`Limits::fence_time`](crate::Limits::fence_time) at most.
    pub async fn quiesce(self: &Arc<Self>, volumes: Vec<Arc<Volume>>) {
        let limit = self.limits().fence_time;
        // All at once: several that hang take no longer than one.
        let waits: Vec<_> = volumes
            .into_iter()
            .map(|volume| reactor::spawn(quiesce(Arc::clone(self), volume, limit)))
            .collect();
        for wait in waits {
            wait.await;
        }
    }

    /// Takes `volume` out of service until its device, which has not answered for so long, has ended everything that was
    /// aborted up to now. The log tells of it (`storage`).
    pub fn fence(&self, volume: &Arc<Volume>, silent: Duration) {
        let fence = volume.fence();
        self.tell(|observer| {
            if let Some(name) = self.volumes().name_of(volume) {
                observer.volume_fenced(name, silent);
            }
        });
        let volume = Arc::clone(volume);
        volume.health().falls_silent(silent);
        drop(reactor::spawn(async move {
            volume.quiesced().await;
            drop(fence);
            volume.health().answers();
        }));
    }
}

async fn quiesce(server: Arc<Server>, volume: Arc<Volume>, limit: Duration) {
    if reactor::timeout(limit, volume.quiesced()).await.is_err() {
        server.fence(&volume, limit);
    }
}
