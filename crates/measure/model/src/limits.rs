//! Computes the capacity of a link for requests of several lengths, and the window and queue depth that fill
//! the link over a distance.

use crate::link::{Goodput, Link};
use crate::{Direction, Keys, Load, Path, Prediction, Traffic, predict};

/// The computed limits of a link.
pub struct LinkLimits {
    /// The link.
    pub link: Link,
    /// The keys used for the tables of goodput.
    pub keys: Keys,
    /// Whether a separate response PDU ends each read. Otherwise, the status is sent with the last data.
    pub status_apart: bool,
    /// Names of the write modes, in the order of [`DistantBlock::ways`].
    pub write_modes: Vec<&'static str>,
    /// The capacity for each request length.
    pub blocks: Vec<Block>,
    /// The limits over a distance, if one was given.
    pub distance: Option<DistanceLimits>,
}

/// A write mode: the part of the data that is unsolicited.
#[derive(Clone, Copy)]
pub struct WriteMode {
    /// The name.
    pub name: &'static str,
    /// The negotiated keys.
    pub keys: Keys,
}

/// The capacity for requests of one length.
pub struct Block {
    /// The length of the requests, in bytes.
    pub bytes: u32,
    /// Only reads.
    pub reads: Goodput,
    /// Only writes, with only unsolicited data.
    pub writes: Goodput,
    /// Reads and writes concurrently.
    pub both: Goodput,
}

/// A distance, with the known properties of the session.
#[derive(Clone, Copy)]
pub struct Distance {
    /// The round-trip time, in seconds.
    pub round_trip_s: f64,
    /// TCP's window in bytes, if given.
    pub window_bytes: Option<u32>,
    /// The number of outstanding requests, if given.
    pub depth: Option<u32>,
    /// The number of TCP connections, each with this window.
    pub connections: u16,
}

impl Distance {
    /// Whether a window or a depth was given.
    pub fn is_limited(&self) -> bool {
        self.window_bytes.is_some() || self.depth.is_some()
    }
}

/// The limits over a distance.
pub struct DistanceLimits {
    /// The given distance.
    pub asked: Distance,
    /// The window that fills the link, in bytes.
    pub window_bytes: f64,
    /// TCP's rate with the given window, in bytes per second.
    pub tcp_per_s: f64,
    /// The limits for each request length.
    pub blocks: Vec<DistantBlock>,
}

/// The limits over a distance for requests of one length: for reads, and for each write mode.
pub struct DistantBlock {
    /// The length of the requests, in bytes.
    pub bytes: u32,
    /// The limits of reads, followed by those of the write modes.
    pub ways: Vec<DirectionLimits>,
}

/// The limits over a distance, for one direction or write mode.
pub struct DirectionLimits {
    /// Round trips per request.
    pub exchanges: u32,
    /// The queue depth that fills the link, unless it is too large to count.
    pub depth: Option<u32>,
    /// The prediction for the given window and depth.
    pub prediction: Prediction,
}

impl WriteMode {
    /// Returns the three modes that document 002 compares, from mostly unsolicited to mostly solicited.
    pub fn all(keys: Keys) -> Vec<WriteMode> {
        vec![
            WriteMode {
                name: "unsolicited",
                keys: Keys {
                    initial_r2t: false,
                    immediate_data: true,
                    ..keys
                },
            },
            WriteMode {
                name: "immediate",
                keys: Keys {
                    initial_r2t: true,
                    immediate_data: true,
                    ..keys
                },
            },
            WriteMode {
                name: "solicited",
                keys: Keys {
                    initial_r2t: true,
                    immediate_data: false,
                    ..keys
                },
            },
        ]
    }
}

impl LinkLimits {
    /// Computes the limits.
    pub fn calculate(
        link: Link,
        keys: Keys,
        status_apart: bool,
        modes: &[WriteMode],
        blocks: &[u32],
        distance: Option<Distance>,
    ) -> LinkLimits {
        let block = |&bytes: &u32| {
            let read = Traffic::of_request(Direction::Read, bytes, &keys);
            let read = if status_apart {
                read.with_status_apart(&keys)
            } else {
                read
            };
            let write = Traffic::of_request(Direction::Write, bytes, &keys);
            Block {
                bytes,
                reads: link.carries(read, bytes),
                writes: link.carries(write, bytes),
                both: link.carries_both(read, write, bytes),
            }
        };
        LinkLimits {
            link,
            keys,
            status_apart,
            write_modes: modes.iter().map(|mode| mode.name).collect(),
            blocks: blocks.iter().map(block).collect(),
            distance: distance.map(|asked| far(link, keys, modes, blocks, asked)),
        }
    }
}

fn far(
    link: Link,
    keys: Keys,
    modes: &[WriteMode],
    blocks: &[u32],
    asked: Distance,
) -> DistanceLimits {
    let path = Path {
        window_bytes: asked.window_bytes.map(f64::from),
        connections: asked.connections,
        ..link.path(asked.round_trip_s)
    };
    let way = |direction, block_bytes, keys: &Keys| {
        // If no depth was given, the number of outstanding requests is unlimited.
        let depth = asked.depth.unwrap_or(u32::MAX);
        let load = Load {
            direction,
            block_bytes,
            depth,
            sessions: 1,
            random: false,
            durable: false,
        };
        DirectionLimits {
            exchanges: keys.exchanges(direction, block_bytes),
            depth: link.depth(direction, block_bytes, keys, asked.round_trip_s),
            prediction: predict(&path, keys, &load),
        }
    };
    let block = |&bytes: &u32| {
        let writes = modes
            .iter()
            .map(|mode| way(Direction::Write, bytes, &mode.keys));
        DistantBlock {
            bytes,
            ways: std::iter::once(way(Direction::Read, bytes, &keys))
                .chain(writes)
                .collect(),
        }
    };
    DistanceLimits {
        asked,
        window_bytes: link.window_bytes(asked.round_trip_s),
        tcp_per_s: path.tcp_per_s(u32::from(asked.connections)),
        blocks: blocks.iter().map(block).collect(),
    }
}
