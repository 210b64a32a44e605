//! Identifiers of attachments.

use std::sync::atomic::{AtomicU64, Ordering};

/// Identifies an attachment of a host to a volume in any protocol: an I_T nexus in SCSI, a connection in NBD.
/// Never reused within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentId(u64);

impl AttachmentId {
    /// A new unique identifier.
    pub fn next() -> AttachmentId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        AttachmentId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The identifier as a number.
    pub fn number(self) -> u64 {
        self.0
    }
}
