//! Between whom a session is.

use std::net::SocketAddr;

use iscsi::pdu::{Isid, Tsih};

/// The two ports that a session joins (the I_T nexus, RFC 7143 section 4.4.1), and how it came to the target's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nexus {
    /// Our iSCSI name. With `isid` it is the initiator port, which persistent reservations belong to.
    pub initiator: String,
    /// The session's identifier, of our choice.
    pub isid: Isid,
    /// The target's iSCSI name; empty for discovery.
    pub target: String,
    /// The portal group: with the target's name it is the target port. Not every target says.
    pub target_portal_group_tag: Option<u16>,
    /// The session's handle, of the target's choice.
    pub tsih: Tsih,
    /// Where the login ended: elsewhere than asked, if the target redirected it.
    pub address: SocketAddr,
}
