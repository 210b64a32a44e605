//! Volumes that grow while they are served.
//!
//! Nobody is told when a file grows, so it is looked at. Initiators hear of it as the unit attention CAPACITY DATA
//! HAS CHANGED, and find the new size in the next READ CAPACITY (SBC-3 4.10).

use std::sync::Arc;
use std::time::Duration;

use unit::LogicalUnit;

/// Whoever has grown a volume waits for it; whoever has not pays one look at a file.
const LOOK: Duration = Duration::from_secs(1);

/// Looks at all units for as long as the server runs, each by itself: one that hangs keeps no other from growing.
pub(crate) fn watch(units: Vec<(String, Arc<LogicalUnit>)>) {
    for (volume, unit) in units {
        drop(reactor::spawn(watch_one(volume, unit)));
    }
}

async fn watch_one(volume: String, unit: Arc<LogicalUnit>) {
    let mut known = unit.volume().device().geometry().blocks;
    loop {
        reactor::sleep(LOOK).await;
        if let Err(error) = unit.volume().device().refresh().await {
            // What uses the volume will fail, and say so; its size stays what it was.
            tracing::debug!(volume, %error, "cannot look at the size");
        }
        let blocks = unit.volume().device().geometry().blocks;
        if blocks > known {
            tracing::info!(volume, blocks = blocks.0, "the volume has grown");
            unit.capacity_changed();
            known = blocks;
        }
    }
}
