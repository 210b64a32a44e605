//! Names of who uses a volume.

use std::sync::atomic::{AtomicU64, Ordering};

/// Names one attachment of a host to a volume, whatever protocol it uses: an I_T nexus in SCSI, a connection in NBD. Never
/// used twice in the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentId(u64);

impl AttachmentId {
    /// A name that nothing else has.
    pub fn next() -> AttachmentId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        AttachmentId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// For those that keep numbers alone.
    pub fn number(self) -> u64 {
        self.0
    }
}
