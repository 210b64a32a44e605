//! Hosts, requesters and their attachments, independent of protocols: hosts have names that outlive their
//! connections.

use std::sync::atomic::{AtomicU64, Ordering};

/// A host port: the holder of reservations, which survives the loss of a connection and a restart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The host's name: the iSCSI name of an initiator.
    pub name: String,
    /// Distinguishes the ports of one host: the ISID in iSCSI (RFC 7143 4.4.2), zeros if the name is sufficient.
    pub qualifier: [u8; 6],
}

/// A port that serves hosts: a target port in SCSI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServicePort {
    /// The name of the server side: the iSCSI name of a target.
    pub name: String,
    /// The portal group tag, which together with the name forms the SCSI port name (RFC 7143 4.4.2).
    pub group: u16,
    /// Its number among the ports of this name, from 1.
    pub relative_port: u16,
}

/// A path from a host to a volume, identified by its two ports: an I_T nexus in SCSI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPath {
    /// The port of the host.
    pub host: HostPort,
    /// The port that serves it.
    pub service: ServicePort,
}

impl HostPath {
    /// Whether both are the same path. Relative port identifiers may be renumbered at a restart, so the
    /// port's name is compared.
    pub fn is(&self, other: &HostPath) -> bool {
        self.host == other.host && self.service.is(&other.service)
    }
}

impl ServicePort {
    /// Whether both are the same port.
    pub(crate) fn is(&self, other: &ServicePort) -> bool {
        self.group == other.group && self.name == other.name
    }
}

/// The requester of an access.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    /// Its attachment, which holds the reservations that end with it.
    pub attachment: AttachmentId,
    /// Its path, which holds persistent reservations.
    pub path: &'a HostPath,
}

/// The access of a request to blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads them.
    Read,
    /// It changes them.
    Write,
}

/// Identifies an attachment of a host to a volume in any protocol: an I_T nexus in SCSI, a connection in NBD.
/// Never reused within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentId(u64);

impl AttachmentId {
    /// A new unique identifier.
    pub fn next() -> AttachmentId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        debug_assert!(number > 0, "no number comes twice");
        AttachmentId(number)
    }

    /// The identifier as a number.
    pub fn number(self) -> u64 {
        self.0
    }
}
