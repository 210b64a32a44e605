//! The evidence: all measurements of a path, layer by layer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::LoadRun;
use bench::record::{Facts, Histogram};
use environment::network::LinkLayer;
use model::Keys;
use stats::{Interval, median, median_interval};

/// A measured value, or the reason why it is unknown: a target may reject a probe, or return implausible
/// values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Known<T> {
    /// The value was measured.
    Measured(T),
    /// The value is unknown, for this reason.
    Unknown(String),
}

/// All measurements of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The diagnosed storage, without user name and secret.
    pub place: String,
    /// The rated speed of the link in bits per second, if the user specified it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_link_bits_per_s: Option<f64>,
    /// The LUN, or the export.
    pub storage: Storage,
    /// The keys that the client offered at login; `None` over NBD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Keys>,
    /// The negotiated keys; `None` over NBD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub got: Option<Keys>,
    /// The number of commands that the target accepts from an idle session (MaxCmdSN); `None` over NBD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_window: Option<u32>,
    /// The parameters negotiated with an NBD server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbd: Option<NbdSession>,
    /// L0: the network interface of the first connection.
    pub link: Known<LinkLayer>,
    /// L1: the time of `connect`.
    pub connect: Known<Timed>,
    /// L1: the connections of the idle session.
    pub paths: Vec<PathLayer>,
    /// L1: lost long packets, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_packets: Option<LongPackets>,
    /// L3 to L6: the probes.
    pub ladder: Ladder,
    /// The results of the loads.
    pub loads: Vec<LoadRun>,
    /// Further facts about the machine, the path, the keys and the storage, for the reader. The diagnosis
    /// does not depend on them.
    #[serde(default)]
    pub environment: Facts,
}

impl Evidence {
    /// Returns the keys that determine the number of waits of a request for the peer.
    pub(super) fn keys(&self) -> Keys {
        self.got.unwrap_or(NBD)
    }
}

/// Keys that describe NBD. A write sends its data unsolicited, in one message, like the reply to a read.
/// NBD's headers are about twenty bytes shorter than the 48 bytes of iSCSI, a difference of half a percent
/// for 4 KiB.
const NBD: Keys = Keys {
    immediate_data: true,
    initial_r2t: false,
    first_burst_bytes: u32::MAX,
    max_burst_bytes: u32::MAX,
    outstanding_r2ts: 1,
    target_segment_bytes: u32::MAX,
    initiator_segment_bytes: u32::MAX,
    header_digest: false,
    data_digest: false,
};

/// The parameters negotiated with an NBD server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NbdSession {
    /// The form of the server's replies: `simple`, `structured` or `extended`.
    pub replies: String,
    /// Whether the session uses TLS.
    pub encrypted: bool,
    /// Whether the session uses a Unix socket.
    pub unix_socket: bool,
    /// Whether several connections share one cache (NBD_FLAG_CAN_MULTI_CONN).
    pub multi_conn: bool,
    /// Whether `base:allocation` was negotiated, which BLOCK_STATUS requires.
    pub base_allocation: bool,
    /// The number of connections.
    pub connections: u16,
}

/// A LUN or an export, as reported by the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    /// The capacity, in bytes.
    pub bytes: u64,
    /// The length of a logical block, in bytes.
    pub block_bytes: u32,
    /// The length of a physical block, in bytes.
    pub physical_block_bytes: u32,
    /// Whether the storage is read-only.
    pub read_only: bool,
    /// Whether the storage has an enabled write cache, if reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<bool>,
    /// Vendor and product.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
}

/// A connection of the idle session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathLayer {
    /// The CID.
    pub cid: u16,
    /// The peer's address.
    pub peer: String,
    /// The congestion control algorithm.
    pub congestion: String,
    /// The shortest round trip that TCP has measured, in microseconds, if the kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_min_us: Option<f64>,
    /// The smoothed round trip, in microseconds.
    pub round_trip_us: f64,
    /// The maximum segment length that we send, in bytes.
    pub segment_bytes: u32,
    /// The maximum packet length of the path, in bytes, according to the kernel.
    pub path_mtu_bytes: u32,
    /// The times of NOPs on this connection, if the session has several.
    pub nop: Known<Timed>,
}

/// Lost long packets: short exchanges completed, but exchanges with full-size packets never did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LongPackets {
    /// The exchange that timed out, in a sentence: `a READ of 65,536 bytes had no response in 3 s`.
    pub lost: String,
    /// The longest TCP segment sent or received before that, in bytes.
    pub segment_bytes: u32,
    /// A segment length with which the same exchange completed, if one was found. All later measurements use
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub works_bytes: Option<u32>,
}

/// The times of a probe. Each probe is a single request, repeated in random order with all other probes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// The time of each request.
    pub times: Histogram,
    /// The median, in microseconds.
    pub median_us: f64,
    /// The start of the 95 % interval of the median, in microseconds.
    pub low_us: f64,
    /// The end of the interval, in microseconds.
    pub high_us: f64,
}

impl Timed {
    /// Returns the times of a probe, or `None` if there are none. An interval needs at least two times; with
    /// a single one, it extends from zero to twice its value.
    pub fn of(times: &[Duration]) -> Option<Timed> {
        let us: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
        let median_us = median(&us);
        let interval = match median_interval(&us) {
            Some(interval) => interval,
            None => Interval {
                low: 0.0,
                high: 2.0 * us.first()?,
            },
        };
        let times = times
            .iter()
            .map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let times = Histogram(times.map(|ns| (ns, 1)).collect()).merged(&Histogram::default());
        Some(Timed {
            times,
            median_us,
            low_us: interval.low.max(0.0),
            high_us: interval.high,
        })
    }
}

/// Single commands, each reaching one layer deeper than the previous one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ladder {
    /// L3: a NOP-Out without data. Over NBD: a BLOCK_STATUS of one block, the shortest request.
    pub nop: Known<Timed>,
    /// L2: a NOP-Out with this number of bytes of ping data, which the target returns.
    pub nop_with_data: Vec<(u32, Known<Timed>)>,
    /// L4: TEST UNIT READY. Not available over NBD.
    pub test_unit_ready: Known<Timed>,
    /// L5: a READ of one block, always the same block.
    pub cached_read: Known<Timed>,
    /// L5: a READ of this number of bytes, always the same blocks.
    pub cached_reads: Vec<(u32, Known<Timed>)>,
    /// L6: a READ of one block that has not been read before.
    pub medium_read: Known<Timed>,
    /// L6: an aligned WRITE of one physical block.
    pub write: Known<Timed>,
    /// L6: a WRITE of this number of bytes.
    pub writes: Vec<(u32, Known<Timed>)>,
    /// L6: as `write`, with FUA.
    pub durable_write: Known<Timed>,
    /// L6: a SYNCHRONIZE CACHE (over NBD, a FLUSH) after a write. The write is not part of the time.
    pub flush: Known<Timed>,
    /// L6: a WRITE of one logical block that is shorter than a physical block.
    pub short_write: Known<Timed>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_known_better_the_more_often_it_was_measured() {
        let ms = |values: &[u64]| {
            Timed::of(
                &values
                    .iter()
                    .copied()
                    .map(Duration::from_millis)
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(ms(&[]), None);
        let once = ms(&[3]).unwrap();
        assert_eq!(
            (once.low_us, once.median_us, once.high_us),
            (0.0, 3000.0, 6000.0)
        );
        let often = ms(&[3, 2, 3, 4, 3, 2, 3, 4, 3, 900]).unwrap();
        assert_eq!(
            (often.low_us, often.median_us, often.high_us),
            (2000.0, 3000.0, 4000.0)
        );
        assert_eq!(
            often.times.0,
            [
                (2_000_000, 2),
                (3_000_000, 5),
                (4_000_000, 2),
                (900_000_000, 1)
            ]
        );
    }
}
