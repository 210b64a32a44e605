//! Path statistics of the transport: limits and losses.

use std::time::Duration;

/// What TCP knows of the path to a peer at this moment (Linux `struct tcp_info`). Sums and counts are since
/// the stream began. What a kernel of this age does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathInfo {
    /// The congestion control in use, e.g. `cubic`.
    pub congestion: String,

    /// The smoothed round-trip time.
    pub round_trip: Duration,
    /// Its mean deviation.
    pub round_trip_deviation: Duration,
    /// The shortest round-trip time seen of late.
    pub round_trip_min: Option<Duration>,
    /// The round-trip time as the receiving side estimates it: the only one where we only receive. `None`
    /// until it has.
    pub receive_round_trip: Option<Duration>,

    /// The largest segment sent, in bytes.
    pub segment_bytes: u32,
    /// The largest packet that the path carries, in bytes, as far as is known.
    pub path_mtu_bytes: u32,
    /// The congestion window in segments.
    pub congestion_window_segments: u32,
    /// The window that the peer offers us, in bytes.
    pub peer_window_bytes: Option<u32>,
    /// What the peer may send in a round trip, in bytes, as the receive buffer's tuning has it.
    pub receive_space_bytes: u32,
    /// Bytes that were written and that the kernel has not sent yet.
    pub unsent_bytes: Option<u32>,

    /// What we let the peer have on the way to us, in bytes (Linux 6.2 and later).
    pub own_window_bytes: Option<u32>,

    /// Segments that came with data.
    pub data_segments_in: Option<u32>,
    /// Segments that were sent with data, those sent again included.
    pub data_segments_out: Option<u32>,
    /// Segments that came out of order: behind a gap that a loss on the way here left, or overtaken.
    pub out_of_order_segments: Option<u32>,

    /// Segments sent again.
    pub retransmissions: u32,
    /// Bytes sent, with those sent again.
    pub sent_bytes: Option<u64>,
    /// Bytes sent again.
    pub retransmitted_bytes: Option<u64>,
    /// Bytes received.
    pub received_bytes: Option<u64>,
    /// Times that segments arrived out of order at the peer.
    pub reorderings: Option<u32>,
    /// Segments received twice by the peer: spurious retransmissions.
    pub duplicates: Option<u32>,

    /// How fast the peer last acknowledged, in bytes per second.
    pub delivery_bytes_per_second: Option<u64>,
    /// Whether that was all we had to send then: the path may be faster.
    pub delivery_limited_by_sender: Option<bool>,

    /// How long there was anything to send or to be acknowledged. What is left of it after the two below was
    /// limited by the congestion window, or by us.
    pub busy: Option<Duration>,
    /// How long sending was held up by the peer's receive window.
    pub limited_by_receiver: Option<Duration>,
    /// How long sending was held up by our own send buffer.
    pub limited_by_send_buffer: Option<Duration>,
}
