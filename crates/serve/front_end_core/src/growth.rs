//! Detection of volumes that grow while they are served.
//!
//! The kernel sends no notification when a file grows, so its size is polled. Front ends notify their hosts;
//! in SCSI by the unit attention CAPACITY DATA HAS CHANGED (SBC-3 4.10).

use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use block::DeviceError;
use volume::{RequestKind, Volume};

use crate::server::Server;
use crate::watched::Name;

/// Polling interval: the longest delay until a grown volume is noticed, at a cost of one stat(2) per volume.
const LOOK: Duration = Duration::from_secs(1);

/// Looks at a volume for as long as it is served, each by itself: one that hangs keeps no other from growing.
pub(crate) async fn watch(server: Arc<Server>, name: Rc<Name>, volume: Weak<Volume>) {
    let mut known = match volume.upgrade() {
        Some(volume) => volume.device().geometry().blocks,
        None => return,
    };
    loop {
        reactor::sleep(LOOK).await;
        let Some(volume) = volume.upgrade() else { return };
        if let Err(error) = volume.device().refresh().await {
            // What uses the volume will fail, and say so; its size stays what it was.
            tracing::debug!(volume = name.now(), %error, "cannot look at the size");
            // No request need be under way when another host takes the device over.
            if error == DeviceError::Fenced {
                volume.record_end(RequestKind::Inspect, &Err::<(), _>(error));
            }
        }
        let blocks = volume.device().geometry().blocks;
        if known < blocks {
            let name = name.now();
            tracing::info!(volume = name, blocks = blocks.0, "the volume has grown");
            server.volume_grew(&volume);
            let bytes = volume.device().geometry().bytes();
            server.tell(|observer| observer.volume_grew(&name, bytes));
        }
        known = blocks;
    }
}
