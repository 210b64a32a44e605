//! What a load on the path came to, and what each layer had to do with it.

use serde::{Deserialize, Serialize};

use super::{Beside, Known, Timed};
use bench::record::Histogram;
use model::Load;

/// A load that was put on the path, in several rounds between the probes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadRun {
    /// What was asked.
    pub load: Load,
    /// The person asked for it: it is theirs, and its depth and its block are part of the question.
    #[serde(default)]
    pub named: bool,
    /// Bytes a second, round by round.
    pub bytes_per_s: Vec<f64>,
    /// How long requests took.
    pub service: Histogram,
    /// Requests under way on average: measured, not asked.
    pub under_way: f64,
    /// Where a command's time went, on average.
    pub parts: Parts,
    /// The share of the time in which there was a request to make and the target's command window had no room.
    pub window_stalled: f64,
    /// R2Ts a command, on average.
    pub r2ts_per_command: f64,
    /// Answers BUSY and TASK SET FULL.
    pub busy_answers: u64,
    /// Requests that failed or did not end in their time.
    pub errors: u64,
    /// What was wrong first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
    /// NOPs that went beside the load.
    pub nop: Known<Timed>,
    /// The connections meanwhile.
    pub paths: Vec<PathUnderLoad>,
    /// The same load by sessions with something changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// CPU time of the thread that made the requests, as a share of the time.
    pub client_busy: f64,
    /// The share of the time in which that thread could have gone on and had no CPU.
    pub client_waited: f64,
    /// What digests took of `client_busy`, if they are on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_digests: Option<f64>,
    /// CPU time of the target's busiest thread as a share of the time, if the target is a process of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_busy: Option<f64>,
}

/// Where a command's time went, on average, in microseconds: the phases of the initiator's machine
/// (`iscsi::initiator::Phase`), and what was before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// There was no room in the command window, or no session.
    pub waiting_us: f64,
    /// Until it was handed to the socket.
    pub queued_us: f64,
    /// Its data, as far as they might be sent.
    pub sending_us: f64,
    /// All that might be sent was, and the target had not asked for more.
    pub r2t_us: f64,
    /// The way there, the target's work, and the way back.
    pub answer_us: f64,
    /// From its first data to the last.
    pub data_us: f64,
    /// The status, if it came by itself.
    pub status_us: f64,
}

/// What TCP told of a connection under a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathUnderLoad {
    /// The connection's CID.
    pub cid: u16,
    /// Bytes that were sent meanwhile.
    pub sent_bytes: u64,
    /// Bytes that came.
    pub received_bytes: u64,
    /// Segments that came with data, if the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments_in: Option<u64>,
    /// Segments that were sent with data, if the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments_out: Option<u64>,
    /// Segments that were sent again.
    pub retransmitted_segments: u64,
    /// Segments that came out of order: behind a loss on the way here, or overtaken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_order_segments: Option<u64>,
    /// The smoothed round trip at the end, in microseconds.
    pub round_trip_us: f64,
    /// Bytes of the congestion window at the end.
    pub congestion_window_bytes: u64,
    /// The most that the peer's window let be on the way, in bytes, if the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_window_bytes: Option<u64>,
    /// The most that ours let be on the way to us, in bytes, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_window_bytes: Option<u64>,
    /// The share of the time in which the peer's window kept us from sending.
    pub limited_by_receiver: f64,
    /// The share in which our own send buffer did.
    pub limited_by_send_buffer: f64,
}
