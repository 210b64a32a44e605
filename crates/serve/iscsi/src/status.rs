//! Status of sessions: plain values, made on request.

use std::net::SocketAddr;
use std::time::Duration;

use front_end_core::Traffic;
use iscsi::negotiate::{DigestKind, Parameters};

/// A session.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The authenticated CHAP name; none without authentication.
    pub user: Option<String>,
    /// The initiator's half of the session's identity, in hexadecimal.
    pub isid: String,
    /// The target's half.
    pub tsih: u16,
    /// The target's name; `None` for a discovery session.
    pub target: Option<String>,
    /// Since its login.
    pub age: Duration,
    /// The reactor thread it lives on.
    pub core: usize,
    /// Its connections.
    pub connections: Vec<ConnectionStatus>,
    /// What was negotiated, as `Key=Value`.
    pub parameters: Vec<String>,
    /// The numbers of the LUNs it sees.
    pub luns: Vec<u16>,
    /// Commands in flight now.
    pub in_flight: usize,
    /// Its traffic so far.
    pub traffic: Traffic,
}

/// A connection.
#[derive(Clone, Debug)]
pub struct ConnectionStatus {
    /// The CID.
    pub cid: u16,
    /// The initiator's address.
    pub peer: SocketAddr,
    /// The local address.
    pub local: SocketAddr,
}

/// Negotiated keys as `Key=Value`, those that matter to performance first.
pub(crate) fn keys(parameters: &Parameters) -> Vec<String> {
    let yes = |on: bool| if on { "Yes" } else { "No" };
    let digest = |kind: DigestKind| if kind == DigestKind::None { "None" } else { "CRC32C" };
    vec![
        format!("HeaderDigest={}", digest(parameters.header_digest)),
        format!("DataDigest={}", digest(parameters.data_digest)),
        format!("InitialR2T={}", yes(parameters.initial_r2t)),
        format!("ImmediateData={}", yes(parameters.immediate_data)),
        format!("FirstBurstLength={}", parameters.first_burst_length),
        format!("MaxBurstLength={}", parameters.max_burst_length),
        format!("MaxRecvDataSegmentLength={}", parameters.local_max_recv_data_segment_length),
        format!("InitiatorMaxRecvDataSegmentLength={}", parameters.peer_max_recv_data_segment_length),
        format!("MaxOutstandingR2T={}", parameters.max_outstanding_r2t),
        format!("MaxConnections={}", parameters.max_connections),
        format!("ErrorRecoveryLevel={}", parameters.error_recovery_level),
    ]
}
