//! The measurements of a path, layer by layer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::LoadRun;
use bench::record::{Facts, Histogram};
use environment::network::LinkLayer;
use model::Keys;
use stats::{Interval, median, median_interval};

/// A value that may be unknown, with the reason: a target may reject a probe, or return implausible values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Known<T> {
    /// It was measured.
    Measured(T),
    /// It is unknown, for this reason.
    Unknown(String),
}

/// All measurements of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The diagnosed storage, without user and secret.
    pub place: String,
    /// The rated speed of the link in bits a second, if the user specified it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_link_bits_per_s: Option<f64>,
    /// The LUN, or the export.
    pub storage: Storage,
    /// The keys that we offered at login; `None` over NBD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Keys>,
    /// The negotiated keys; `None` over NBD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub got: Option<Keys>,
    /// The parameters negotiated with an NBD server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbd: Option<NbdSession>,
    /// L0: the first interface of the path.
    pub link: Known<LinkLayer>,
    /// L1: what `connect` took.
    pub connect: Known<Timed>,
    /// L1: the session's connections at rest.
    pub paths: Vec<PathLayer>,
    /// L1: lost long packets, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_packets: Option<LongPackets>,
    /// L3 to L6.
    pub ladder: Ladder,
    /// The results of the loads.
    pub loads: Vec<LoadRun>,
    /// Further facts on the machine, the path, the keys and the storage, for people: the diagnosis does not
    /// depend on them.
    #[serde(default)]
    pub environment: Facts,
}

impl Evidence {
    /// The keys that determine how often a request waits for the peer.
    pub(super) fn keys(&self) -> Keys {
        self.got.unwrap_or(NBD)
    }
}

/// A write over NBD sends its data unsolicited, in one message, like the reply to a read. Its headers are
/// some twenty bytes shorter than the 48 of iSCSI: half a percent of 4 KiB.
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
    /// The form of its replies: `simple`, `structured` or `extended`.
    pub replies: String,
    /// By TLS.
    pub encrypted: bool,
    /// By a Unix socket.
    pub unix_socket: bool,
    /// Several connections share one cache (NBD_FLAG_CAN_MULTI_CONN).
    pub multi_conn: bool,
    /// `base:allocation` was negotiated, so that BLOCK_STATUS can be used.
    pub base_allocation: bool,
    /// Connections that there were.
    pub connections: u16,
}

/// A LUN or an export, as reported by the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    /// Its capacity.
    pub bytes: u64,
    /// Its logical block.
    pub block_bytes: u32,
    /// Its physical block.
    pub physical_block_bytes: u32,
    /// It is read-only.
    pub read_only: bool,
    /// Whether it has an enabled write cache, if reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<bool>,
    /// Vendor and product.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
}

/// A connection at rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathLayer {
    /// Its CID.
    pub cid: u16,
    /// The peer's address.
    pub peer: String,
    /// Its congestion control.
    pub congestion: String,
    /// The shortest round trip that TCP has measured, in microseconds, if the kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_min_us: Option<f64>,
    /// The smoothed round trip, in microseconds.
    pub round_trip_us: f64,
    /// The longest segment that we send, in bytes.
    pub segment_bytes: u32,
    /// The longest packet of the path, in bytes, according to the kernel.
    pub path_mtu_bytes: u32,
    /// NOPs on this connection only, if there are several.
    pub nop: Known<Timed>,
}

/// Long packets were lost on the path: short exchanges completed, and those with full-size packets never did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LongPackets {
    /// The exchange that timed out, in a sentence: `a READ of 65,536 bytes had no response in 3 s`.
    pub lost: String,
    /// The longest TCP segment sent or received before that, in bytes.
    pub segment_bytes: u32,
    /// The segment length with which the same exchange completed, if one was found: all later measurements
    /// use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub works_bytes: Option<u32>,
}

/// A probe that was repeated, alone, interleaved with all the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// The time of each request.
    pub times: Histogram,
    /// The median, in microseconds.
    pub median_us: f64,
    /// From here to `high_us` is the 95 % interval of the median.
    pub low_us: f64,
    /// See `low_us`.
    pub high_us: f64,
}

impl Timed {
    /// The times of a probe; `None` if there were none. An interval needs two times or more: that of a single
    /// one extends from zero to twice its value.
    pub fn of(times: &[Duration]) -> Option<Timed> {
        let us: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
        let median_us = median(&us);
        let interval = match median_interval(&us) {
            Some(interval) => interval,
            None => Interval { low: 0.0, high: 2.0 * us.first()? },
        };
        let times = times.iter().map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let times = Histogram(times.map(|ns| (ns, 1)).collect()).merged(&Histogram::default());
        Some(Timed { times, median_us, low_us: interval.low.max(0.0), high_us: interval.high })
    }
}

/// Single commands, each reaching one layer deeper than the previous one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ladder {
    /// L3: a NOP-Out without data; over NBD, a BLOCK_STATUS of one block, its shortest request.
    pub nop: Known<Timed>,
    /// L2: NOP-Outs with this number of bytes of ping data, which is returned.
    pub nop_with_data: Vec<(u32, Known<Timed>)>,
    /// L4: TEST UNIT READY; absent over NBD.
    pub test_unit_ready: Known<Timed>,
    /// L5: a READ of one block, always the same.
    pub cached_read: Known<Timed>,
    /// L5: READs of this number of bytes, always the same.
    pub cached_reads: Vec<(u32, Known<Timed>)>,
    /// L6: a READ of one block that was not read before.
    pub medium_read: Known<Timed>,
    /// L6: an aligned WRITE of one physical block.
    pub write: Known<Timed>,
    /// L6: WRITEs of this number of bytes.
    pub writes: Vec<(u32, Known<Timed>)>,
    /// L6: the same as `write` with FUA.
    pub durable_write: Known<Timed>,
    /// L6: a SYNCHRONIZE CACHE, or NBD's FLUSH, after a write, timed separately.
    pub flush: Known<Timed>,
    /// L6: a WRITE of one logical block that is shorter than the physical one.
    pub short_write: Known<Timed>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_known_better_the_more_often_it_was_measured() {
        let ms = |values: &[u64]| {
            Timed::of(&values.iter().copied().map(Duration::from_millis).collect::<Vec<_>>())
        };
        assert_eq!(ms(&[]), None);
        let once = ms(&[3]).unwrap();
        assert_eq!((once.low_us, once.median_us, once.high_us), (0.0, 3000.0, 6000.0));
        let often = ms(&[3, 2, 3, 4, 3, 2, 3, 4, 3, 900]).unwrap();
        assert_eq!((often.low_us, often.median_us, often.high_us), (2000.0, 3000.0, 4000.0));
        assert_eq!(often.times.0, [(2_000_000, 2), (3_000_000, 5), (4_000_000, 2), (900_000_000, 1)]);
    }
}
