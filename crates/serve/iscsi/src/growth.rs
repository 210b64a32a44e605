//! Volumes that grow while they are served.
//!
//! Nobody is told when a file grows, so it is looked at. Initiators hear of it as the unit attention CAPACITY DATA
//! HAS CHANGED, and find the new size in the next READ CAPACITY (SBC-3 4.10).

use std::sync::Weak;
use std::time::Duration;

use unit::LogicalUnit;

/// Whoever has grown a volume waits for it; whoever has not pays one look at a file.
const LOOK: Duration = Duration::from_secs(1);

/// Looks at a volume for as long as somebody serves it, each by itself: one that hangs keeps no other from growing.
pub(crate) async fn watch(volume: String, unit: Weak<LogicalUnit>) {
    loop {
        reactor::sleep(LOOK).await;
        let Some(unit) = unit.upgrade() else { return };
        if let Err(error) = unit.volume().device().refresh().await {
            // What uses the volume will fail, and say so; its size stays what it was.
            tracing::debug!(volume, %error, "cannot look at the size");
        }
        if let Some(blocks) = unit.tell_growth() {
            tracing::info!(volume, blocks = blocks.0, "the volume has grown");
        }
    }
}
