//! What a session is told when it begins.

use std::time::Duration;

use crate::keepalive::NopPolicy;
use crate::negotiate::Parameters;
use crate::pdu::TaskManagementResult;
use crate::serial::Sn;

/// What a session is told when it begins.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// As the leading login agreed.
    pub parameters: Parameters,
    /// Commands that may be under way at a time.
    pub window: u32,
    /// The CmdSN of the first command: the leading login's, which a login does not use up.
    pub exp_cmd_sn: Sn,
    /// When to ask whether the initiator is there.
    pub nop: NopPolicy,
    /// Immediate commands and task management functions that may be under way beside the window.
    pub immediate_max: u32,
    /// Bytes kept of commands and requests that came before their turn, those of the keeping included.
    pub staged_bytes_max: usize,
    /// PDUs that may wait to be sent beside those that commands have a right to: answers to pings and texts, Rejects.
    pub unsent_max: usize,
    /// Data in them. One more PDU may be longer.
    pub unsent_bytes_max: usize,
    /// Bytes of text in one exchange.
    pub text_bytes_max: usize,
    /// What ABORT TASK is told of a task that has ended. Section 11.6.1 (c) says that it "does not exist"; ESXi takes
    /// that for a broken target and resets it, and is better told that the function is complete.
    pub abort_of_finished: TaskManagementResult,
}

/// How a connection stands when its login ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionStart {
    /// The StatSN of its next status.
    pub stat_sn: Sn,
    /// Bytes of data that we take in one PDU.
    pub local_max_recv_data_segment_length: u32,
    /// Bytes of data that the initiator takes in one PDU.
    pub peer_max_recv_data_segment_length: u32,
}

impl SessionConfig {
    /// With the limits of a discovery session, for which nobody need have proved anything: it knows texts, pings and the
    /// logout, one after the other.
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
            // Issue 2 asks for 256 at least; open-iscsi uses 128 (cmds_max) unless told otherwise.
            window: 256,
            nop: NopPolicy::of_target(Duration::from_secs(15)),
            immediate_max: 64,
            // 64 commands of the largest FirstBurstLength that Linux offers, 256 KiB.
            staged_bytes_max: 16 << 20,
            // More than any initiator has pings and texts under way; four pings of 256 KiB.
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
