//! Who asks for what: hosts by names that outlive their connections, in the words of no protocol.

use crate::AttachmentId;

/// A host's end: what reservations are held by, so that they survive the loss of a connection and a restart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The host's name: the iSCSI name of an initiator.
    pub name: String,
    /// What distinguishes the ports of one host: the ISID with iSCSI (RFC 7143 4.4.2), zeros where the name says all.
    pub qualifier: [u8; 6],
}

/// The end by which a host is served.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServicePort {
    /// The name of what serves it: the iSCSI name of a target.
    pub name: String,
    /// The portal group tag, which with the name makes the SCSI port name (RFC 7143 4.4.2).
    pub group: u16,
    /// Its number among the ports of this name, from 1.
    pub relative_port: u16,
}

/// A way from a host to a volume by its two ends: an I_T nexus in SCSI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPath {
    /// The host's end.
    pub host: HostPort,
    /// The end by which it is served.
    pub service: ServicePort,
}

impl HostPath {
    /// Whether both are the same path. A relative port identifier may be numbered anew at a restart; the port's name is what
    /// counts.
    pub fn is(&self, other: &HostPath) -> bool {
        self.host == other.host && self.service.is(&other.service)
    }
}

impl ServicePort {
    /// The same for one end.
    pub(crate) fn is(&self, other: &ServicePort) -> bool {
        self.group == other.group && self.name == other.name
    }
}

/// Who asks for something.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    /// Its attachment: what reservations belong to that end with it.
    pub attachment: AttachmentId,
    /// Its ends: what persistent reservations are held by.
    pub path: &'a HostPath,
}

/// What a request does to blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads them.
    Read,
    /// It changes them.
    Write,
}
