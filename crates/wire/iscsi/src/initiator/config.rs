//! Configuration of a session.

use crate::keepalive::NopPolicy;
use crate::login::Attached;
use crate::negotiate::Parameters;
use crate::serial::Sn;

/// Configuration of a session.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// As negotiated by the leading login.
    pub parameters: Parameters,
    /// The CmdSN of the first command.
    pub cmd_sn: Sn,
    /// MaxCmdSN.
    pub max_cmd_sn: Sn,
    /// Maximum number of outstanding commands, functions and pings: at most 65,535.
    pub tasks_max: u32,
    /// When to ping the target, and when to close its connection.
    pub nop: NopPolicy,
    /// Maximum size of a text response.
    pub text_bytes_max: usize,
}

/// State of a connection at the end of its login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionStart {
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
    /// Our MaxRecvDataSegmentLength.
    pub local_max_recv_data_segment_length: u32,
    /// The target's MaxRecvDataSegmentLength.
    pub peer_max_recv_data_segment_length: u32,
}

impl SessionConfig {
    /// After the leading login, with our usual limits.
    pub fn new(attached: &Attached) -> SessionConfig {
        SessionConfig {
            parameters: attached.parameters.clone(),
            cmd_sn: attached.exp_cmd_sn,
            max_cmd_sn: attached.max_cmd_sn,
            // More than any target's window; a larger one is not used in full.
            tasks_max: 4096,
            nop: NopPolicy::OF_INITIATOR,
            // A thousand targets with ten portals each.
            text_bytes_max: TEXT_BYTES_MAX,
        }
    }
}

impl ConnectionStart {
    /// After the connection's login.
    pub fn new(attached: &Attached) -> ConnectionStart {
        ConnectionStart {
            exp_stat_sn: attached.exp_stat_sn,
            local_max_recv_data_segment_length: attached.parameters.local_max_recv_data_segment_length,
            peer_max_recv_data_segment_length: attached.parameters.peer_max_recv_data_segment_length,
        }
    }
}

/// A target may have tens of thousands of names, each with several addresses. More than this is no list of targets.
const TEXT_BYTES_MAX: usize = 16 << 20;
