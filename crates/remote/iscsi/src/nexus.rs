//! The I_T nexus of a session.

use std::net::SocketAddr;

use iscsi::pdu::{Isid, Tsih};

/// The two ports of a session (the I_T nexus, RFC 7143 section 4.4.1), and the address of the target's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nexus {
    /// Our iSCSI name. With `isid` it is the initiator port, to which persistent reservations belong.
    pub initiator: String,
    /// The ISID.
    pub isid: Isid,
    /// The target's iSCSI name; empty for discovery.
    pub target: String,
    /// The portal group tag: with the target's name it is the target port. `None` if the target did not
    /// report it.
    pub target_portal_group_tag: Option<u16>,
    /// The TSIH.
    pub tsih: Tsih,
    /// The portal of the login, after redirections.
    pub address: SocketAddr,
}
