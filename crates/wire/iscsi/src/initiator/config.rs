//! What a session is told when it begins.

use crate::keepalive::NopPolicy;
use crate::login::Attached;
use crate::negotiate::Parameters;
use crate::serial::Sn;

/// What a session is told when it begins.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// As the leading login agreed.
    pub parameters: Parameters,
    /// The CmdSN of the first command.
    pub cmd_sn: Sn,
    /// The last CmdSN that the target has room for.
    pub max_cmd_sn: Sn,
    /// Commands, functions and pings that may be under way at a time: at most 65,535.
    pub tasks_max: u32,
    /// When to ask whether the target is there.
    pub nop: NopPolicy,
    /// Bytes of text that an answer may have.
    pub text_bytes_max: usize,
}

/// How a connection stands when its login ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionStart {
    /// The StatSN to expect next.
    pub exp_stat_sn: Sn,
    /// Bytes of data that we take in one PDU.
    pub local_max_recv_data_segment_length: u32,
    /// Bytes of data that the target takes in one PDU.
    pub peer_max_recv_data_segment_length: u32,
}

impl SessionConfig {
    /// As the leading login left it, with our usual limits.
    pub fn new(attached: &Attached) -> SessionConfig {
        SessionConfig {
            parameters: attached.parameters.clone(),
            cmd_sn: attached.exp_cmd_sn,
            max_cmd_sn: attached.max_cmd_sn,
            // More than any target's window; a target that offers more is not believed.
            tasks_max: 4096,
            nop: NopPolicy::OF_INITIATOR,
            // A thousand targets with ten portals each.
            text_bytes_max: 1 << 20,
        }
    }
}

impl ConnectionStart {
    /// As the connection's login left it.
    pub fn new(attached: &Attached) -> ConnectionStart {
        ConnectionStart {
            exp_stat_sn: attached.exp_stat_sn,
            local_max_recv_data_segment_length: attached.parameters.local_max_recv_data_segment_length,
            peer_max_recv_data_segment_length: attached.parameters.peer_max_recv_data_segment_length,
        }
    }
}
