//! What a session agreed on, as far as it decides how often a command waits.

use serde::{Deserialize, Serialize};

/// Keys of a session (RFC 7143 section 13), as negotiated or as offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// ImmediateData: a write's first data travel with the command.
    pub immediate_data: bool,
    /// InitialR2T: even a write's first data, but the immediate ones, wait to be asked for.
    pub initial_r2t: bool,
    /// FirstBurstLength, in bytes: what is sent of a write unasked.
    pub first_burst_bytes: u32,
    /// MaxBurstLength, in bytes: what one R2T asks for at most.
    pub max_burst_bytes: u32,
    /// MaxOutstandingR2T: R2Ts of one command at once.
    pub outstanding_r2ts: u16,
    /// The target's MaxRecvDataSegmentLength, in bytes: the longest PDU of a write.
    pub target_segment_bytes: u32,
    /// The initiator's MaxRecvDataSegmentLength, in bytes: the longest PDU of a read.
    pub initiator_segment_bytes: u32,
    /// HeaderDigest=CRC32C.
    pub header_digest: bool,
    /// DataDigest=CRC32C.
    pub data_digest: bool,
}
