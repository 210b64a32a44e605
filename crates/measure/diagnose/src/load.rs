//! The result of a load on the path, and the contribution of each layer.

use serde::{Deserialize, Serialize};

use super::{Beside, Known, Timed};
use bench::record::Histogram;
use model::Load;

/// A load on the path, in several rounds between the probes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadRun {
    /// The requested load.
    pub load: Load,
    /// The user specified it: its depth and block size are then part of the question.
    #[serde(default)]
    pub named: bool,
    /// Bytes a second, round by round.
    pub bytes_per_s: Vec<f64>,
    /// The service times of the requests.
    pub service: Histogram,
    /// Outstanding requests on average: measured, not configured.
    pub under_way: f64,
    /// The average time of a command, by phase.
    pub parts: Parts,
    /// The share of the time in which a request was waiting for space in the target's command window.
    pub window_stalled: f64,
    /// R2Ts per command, on average.
    pub r2ts_per_command: f64,
    /// BUSY and TASK SET FULL statuses.
    pub busy_answers: u64,
    /// Requests that failed or timed out.
    pub errors: u64,
    /// The first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
    /// NOPs sent during the load.
    pub nop: Known<Timed>,
    /// The connections meanwhile.
    pub paths: Vec<PathUnderLoad>,
    /// The same load over sessions with a change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// CPU time of the thread that made the requests, as a share of the time.
    pub client_busy: f64,
    /// The share of the time in which that thread was runnable without a CPU.
    pub client_waited: f64,
    /// The part of `client_busy` used for digests, if they are enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_digests: Option<f64>,
    /// CPU time of the target's busiest thread as a share of the time, if the target is a process of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_busy: Option<f64>,
}

/// The average time of a command in microseconds, by phase: the phases of the initiator
/// (`iscsi::initiator::Phase`), and the time before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// Waiting for space in the command window, or for a session.
    pub waiting_us: f64,
    /// Until it was passed to the socket.
    pub queued_us: f64,
    /// Sending the data allowed so far.
    pub sending_us: f64,
    /// Waiting for an R2T after all allowed data was sent.
    pub r2t_us: f64,
    /// The path to the target, the target's work, and the path back.
    pub answer_us: f64,
    /// From its first data to the last.
    pub data_us: f64,
    /// Waiting for the status, if it was sent separately.
    pub status_us: f64,
}

/// TCP's counters of a connection under a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathUnderLoad {
    /// The connection's CID.
    pub cid: u16,
    /// Bytes sent during the load.
    pub sent_bytes: u64,
    /// Bytes that came.
    pub received_bytes: u64,
    /// Received segments with data, if the kernel reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments_in: Option<u64>,
    /// Sent segments with data, if the kernel reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments_out: Option<u64>,
    /// Retransmitted segments.
    pub retransmitted_segments: u64,
    /// Segments received out of order: after a loss towards this machine, or overtaken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_order_segments: Option<u64>,
    /// The smoothed round trip at the end, in microseconds.
    pub round_trip_us: f64,
    /// Bytes of the congestion window at the end.
    pub congestion_window_bytes: u64,
    /// The largest amount of data in transit that the peer's window allowed, in bytes, if the kernel reports
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_window_bytes: Option<u64>,
    /// The largest amount of data in transit to us that our window allowed, in bytes, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_window_bytes: Option<u64>,
    /// The share of the time in which sending was limited by the peer's window.
    pub limited_by_receiver: f64,
    /// The share in which sending was limited by our send buffer.
    pub limited_by_send_buffer: f64,
}
