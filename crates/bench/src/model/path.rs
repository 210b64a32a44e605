//! The way between two ends, and the ends.

use serde::{Deserialize, Serialize};

/// What is known or assumed of a way and its ends. What is `None` limits nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// TCP payload that the link carries in one direction, in bytes a second, headers of iSCSI included
    /// ([`Link::payload_per_s`](crate::link::Link::payload_per_s)).
    pub payload_per_s: Option<f64>,
    /// There and back without waiting, in seconds.
    pub round_trip_s: f64,
    /// Bytes that a TCP connection may have on the way in this direction: what of the window is usable, not the buffer.
    pub window_bytes: Option<f64>,
    /// What a window's acknowledgement takes on top of the round trip, in seconds.
    pub window_delay_s: f64,
    /// TCP connections that share the load.
    pub connections: u16,
    /// What the ends take for one exchange (a command and its answer, an R2T and its data) on top of the round trip, in
    /// seconds.
    pub exchange_s: f64,
    /// What they take for a command beside, in seconds: the medium too.
    pub command_s: f64,
    /// How fast they move the data of one command, in bytes a second.
    pub copy_per_s: Option<f64>,
    /// Commands that the target lets be under way in a session: its command window, or its queue.
    pub commands_at_once: Option<f64>,
    /// Bytes of writes that the target lets be under way.
    pub writes_under_way_bytes: Option<f64>,
    /// Exchanges a second that the ends manage, all commands together.
    pub exchanges_per_s: Option<f64>,
    /// Bytes a second that the medium gives or takes.
    pub medium_per_s: Option<f64>,
}

/// What limits a throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// The link carries no more.
    Link,
    /// A TCP window's worth each round trip.
    Window,
    /// So many requests at once, each of which takes its time.
    Depth,
    /// Bytes of writes that the target lets be under way.
    WritesUnderWay,
    /// Exchanges that the ends manage.
    Exchanges,
    /// The medium.
    Medium,
}
