//! The path between two ends, with their costs.

use serde::{Deserialize, Serialize};

/// What is known or assumed of a way and its ends. What is `None` limits nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// TCP payload that the link carries in one direction, in bytes a second, headers of iSCSI included
    /// ([`Link::payload_per_s`](crate::link::Link::payload_per_s)).
    pub payload_per_s: Option<f64>,
    /// There and back without waiting, in seconds.
    pub round_trip_s: f64,
    /// Bytes that a TCP connection may have on the way in this direction: what of the window is usable, not
    /// the buffer.
    pub window_bytes: Option<f64>,
    /// What a window's acknowledgement takes on top of the round trip, in seconds.
    pub window_delay_s: f64,
    /// TCP connections of each session.
    pub connections: u16,
    /// What the ends take for one exchange (a command and its answer, an R2T and its data) on top of the
    /// round trip, in seconds.
    pub exchange_s: f64,
    /// What they take for a command beside, in seconds: the medium too.
    pub command_s: f64,
    /// How fast the data of one command move when nothing else does, in bytes a second: what the link takes
    /// for them and what the ends take, one after the other.
    pub copy_per_s: Option<f64>,
    /// Commands that the target lets be under way in a session: its command window, or its queue.
    pub commands_at_once: Option<f64>,
    /// Bytes of writes that the target lets be under way in a session.
    pub writes_under_way_bytes: Option<f64>,
    /// Exchanges a second that the ends manage, all commands together.
    pub exchanges_per_s: Option<f64>,
    /// Bytes a second that the medium gives or takes.
    pub medium_per_s: Option<f64>,
}

impl Path {
    /// A way of so long a round trip with nothing that limits and ends that take no time.
    pub fn of_round_trip(round_trip_s: f64) -> Path {
        Path {
            payload_per_s: None,
            round_trip_s,
            window_bytes: None,
            window_delay_s: 0.0,
            connections: 1,
            exchange_s: 0.0,
            command_s: 0.0,
            copy_per_s: None,
            commands_at_once: None,
            writes_under_way_bytes: None,
            exchanges_per_s: None,
            medium_per_s: None,
        }
    }

    /// What so many TCP connections carry together, in bytes a second: a window each round trip, as long as
    /// the link does. Infinite if nothing is known to limit.
    pub fn tcp_per_s(&self, connections: u32) -> f64 {
        let link = self.payload_per_s.unwrap_or(f64::INFINITY);
        link.min(self.window_per_s(connections))
    }

    /// A window each round trip, for so many connections.
    pub(super) fn window_per_s(&self, connections: u32) -> f64 {
        let each = self.window_bytes.map(|window| window / (self.round_trip_s + self.window_delay_s));
        each.map_or(f64::INFINITY, |each| each * f64::from(connections.max(1)))
    }
}

/// A limit of throughput.
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
