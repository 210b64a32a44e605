//! The result of a load on the path, and the contribution of each layer to its time.

use serde::{Deserialize, Serialize};

use super::{Beside, Known, Timed};
use bench::record::Histogram;
use model::Load;

/// A load on the path, in several rounds between the probes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadRun {
    /// The requested load.
    pub load: Load,
    /// Whether the user specified the load. Its depth and block size can then be changed as well.
    #[serde(default)]
    pub named: bool,
    /// Bytes per second, for each round.
    pub bytes_per_s: Vec<f64>,
    /// The service times of the requests.
    pub service: Histogram,
    /// The measured average number of requests at the target. Requests that wait for the command window do not count.
    pub under_way: f64,
    /// The average time of a command, by phase.
    pub parts: Parts,
    /// The share of the time in which a request waited for space in the target's command window.
    pub window_stalled: f64,
    /// The average number of R2Ts per command.
    pub r2ts_per_command: f64,
    /// Number of responses with the status BUSY or TASK SET FULL.
    pub busy_answers: u64,
    /// Number of requests that failed or timed out.
    pub errors: u64,
    /// The first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
    /// The times of NOPs sent during the load.
    pub nop: Known<Timed>,
    /// The times of TCP handshakes during the load. A queue in the network delays them; data that waits in the
    /// session's own connection, and a target without CPU time, do not. Not measured over NBD.
    #[serde(default = "not_measured")]
    pub connect: Known<Timed>,
    /// The connections during the load.
    pub paths: Vec<PathUnderLoad>,
    /// The same load over sessions with a change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// The share of the time in which the thread that made the requests ran on a CPU.
    pub client_busy: f64,
    /// The share of the time in which this thread was runnable, but waited for a CPU.
    pub client_waited: f64,
    /// The part of `client_busy` used for digests, if they are enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_digests: Option<f64>,
    /// The share of the time in which the target's busiest thread ran, if the target is a process of this
    /// machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_busy: Option<f64>,
}

impl LoadRun {
    /// Returns the maximum number of outstanding requests of all sessions.
    pub(super) fn places(&self) -> f64 {
        f64::from(self.load.depth.max(1)) * f64::from(self.load.sessions.max(1))
    }
}

fn not_measured() -> Known<Timed> {
    Known::Unknown("it was not measured".to_owned())
}

/// The average time of a command in microseconds, by phase: the initiator's phases
/// (`iscsi::initiator::Phase`), and the time before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// Waiting for space in the command window, or for a session.
    pub waiting_us: f64,
    /// Time until the command was passed to the socket.
    pub queued_us: f64,
    /// Time to send the data that may be sent without a further R2T.
    pub sending_us: f64,
    /// Waiting for an R2T after all allowed data was sent.
    pub r2t_us: f64,
    /// Time of the path to the target, the target's work, and the path back.
    pub answer_us: f64,
    /// Time from the first data to the last.
    pub data_us: f64,
    /// Waiting for the status, if the target sent it separately.
    pub status_us: f64,
}

/// TCP's counters of a connection under a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathUnderLoad {
    /// The connection's CID.
    pub cid: u16,
    /// Bytes sent during the load.
    pub sent_bytes: u64,
    /// Bytes received during the load.
    pub received_bytes: u64,
    /// Number of received segments with data, if the kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments_in: Option<u64>,
    /// Number of sent segments with data, if the kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments_out: Option<u64>,
    /// Number of retransmitted segments.
    pub retransmitted_segments: u64,
    /// Number of segments received out of order: a segment before them was lost, or was overtaken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_order_segments: Option<u64>,
    /// The smoothed round trip at the end of the load, in microseconds.
    pub round_trip_us: f64,
    /// The congestion window at the end of the load, in bytes.
    pub congestion_window_bytes: u64,
    /// The maximum amount of data in transit that the peer's window allowed, in bytes, if the kernel reports
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_window_bytes: Option<u64>,
    /// The maximum amount of data in transit to us that our window allowed, in bytes, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_window_bytes: Option<u64>,
    /// The share of the time in which the peer's window limited sending.
    pub limited_by_receiver: f64,
    /// The share of the time in which our send buffer limited sending.
    pub limited_by_send_buffer: f64,
}
