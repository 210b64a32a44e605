//! A LUN in use.

use std::sync::Arc;

use block::BlockDevice;
use initiator::{RemoteTarget, Url};

use crate::failure::Failure;
use crate::remote;

/// A LUN, and the session that it is reached by.
pub(super) struct Attached {
    pub(super) device: Arc<dyn BlockDevice>,
    target: Arc<RemoteTarget>,
}

impl Attached {
    /// A LUN by a session of its own.
    pub(super) async fn to(url: &Url) -> Result<Attached, Failure> {
        let lun = remote::open(url).await?;
        let target = Arc::clone(lun.target());
        Ok(Attached { device: Arc::new(lun), target })
    }

    /// Says good-bye, so that the target need not find out by itself.
    pub(super) async fn detach(self) {
        self.target.close().await;
    }
}
