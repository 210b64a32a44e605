//! Configuration of a session.

use std::time::Duration;

use crate::keepalive::NopPolicy;
use crate::negotiate::Parameters;
use crate::pdu::TaskManagementResult;
use crate::serial::Sn;

/// Configuration of a session.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// As the leading login agreed.
    pub parameters: Parameters,
    /// Maximum number of outstanding commands.
    pub window: u32,
    /// The CmdSN of the first command: that of the leading login, which a login does not consume.
    pub exp_cmd_sn: Sn,
    /// When to ping the initiator, and when to close its connection.
    pub nop: NopPolicy,
    /// Maximum number of outstanding immediate commands and task management functions.
    pub immediate_max: u32,
    /// Maximum size of data held for commands and requests ahead of their CmdSN, with the cost of holding
    /// them.
    pub staged_bytes_max: usize,
    /// PDUs that may be queued besides those of commands: responses to pings and text requests, Rejects.
    pub unsent_max: usize,
    /// Maximum size of their data. One more PDU may exceed it.
    pub unsent_bytes_max: usize,
    /// Maximum size of the text of one exchange.
    pub text_bytes_max: usize,
    /// The response to ABORT TASK for a finished task. Section 11.6.1 (c) says that it "does not exist"; ESXi
    /// takes that for a broken target and resets it, so "function complete" is the better response there.
    pub abort_of_finished: TaskManagementResult,
}

/// State of a connection at the end of its login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionStart {
    /// The StatSN of its next status.
    pub stat_sn: Sn,
    /// Our MaxRecvDataSegmentLength.
    pub local_max_recv_data_segment_length: u32,
    /// The initiator's MaxRecvDataSegmentLength.
    pub peer_max_recv_data_segment_length: u32,
}

impl SessionConfig {
    /// With the limits of a discovery session, which may be unauthenticated: text requests, pings and logout,
    /// one after the other.
    pub fn of_discovery(parameters: Parameters, exp_cmd_sn: Sn) -> SessionConfig {
        SessionConfig {
            window: SessionConfig::DISCOVERY_WINDOW,
            immediate_max: 8,
            staged_bytes_max: 0,
            unsent_max: 16,
            unsent_bytes_max: 16 << 10,
            text_bytes_max: 8 << 10,
            ..SessionConfig::new(parameters, exp_cmd_sn)
        }
    }

    /// The command window of a discovery session.
    pub const DISCOVERY_WINDOW: u32 = 8;

    /// With our usual limits.
    pub fn new(parameters: Parameters, exp_cmd_sn: Sn) -> SessionConfig {
        SessionConfig {
            parameters,
            exp_cmd_sn,
            // Issue 2 requires at least 256; open-iscsi uses 128 (cmds_max) by default.
            window: 256,
            nop: NopPolicy::of_target(Duration::from_secs(15)),
            immediate_max: 64,
            // 64 commands of the largest FirstBurstLength that Linux offers, 256 KiB.
            staged_bytes_max: 16 << 20,
            // More outstanding pings and texts than any initiator has; four pings of 256 KiB.
            unsent_max: 1024,
            unsent_bytes_max: 1 << 20,
            text_bytes_max: 64 << 10,
            abort_of_finished: TaskManagementResult::TaskDoesNotExist,
        }
    }
}

impl ConnectionStart {
    /// As a connection's login agreed.
    pub fn new(stat_sn: Sn, parameters: &Parameters) -> ConnectionStart {
        ConnectionStart {
            stat_sn,
            local_max_recv_data_segment_length: parameters.local_max_recv_data_segment_length,
            peer_max_recv_data_segment_length: parameters.peer_max_recv_data_segment_length,
        }
    }
}
