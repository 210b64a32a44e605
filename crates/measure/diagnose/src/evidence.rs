//! What was measured of a path, layer by layer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::LoadRun;
use bench::record::{Facts, Histogram};
use environment::network::LinkLayer;
use model::Keys;
use stats::{Interval, median, median_interval};

/// Something that may not be known, and then why: a target may forbid a probe, or lie.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Known<T> {
    /// It was measured.
    Measured(T),
    /// It is not known; a sentence says why.
    Unknown(String),
}

/// Everything that was measured of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What was diagnosed, without user and secret.
    pub place: String,
    /// What the link is built for, in bits a second, as the person said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_link_bits_per_s: Option<f64>,
    /// The LUN, or the export.
    pub storage: Storage,
    /// What we asked for at login; nothing over NBD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Keys>,
    /// What was agreed on; nothing over NBD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub got: Option<Keys>,
    /// What was agreed on with an NBD server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbd: Option<NbdSession>,
    /// L0: the interface that the way begins with.
    pub link: Known<LinkLayer>,
    /// L1: what `connect` took.
    pub connect: Known<Timed>,
    /// L1: the session's connections at rest.
    pub paths: Vec<PathLayer>,
    /// L1: what was seen of long packets that do not arrive; nothing if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_packets: Option<LongPackets>,
    /// L3 to L6.
    pub ladder: Ladder,
    /// What loads came to.
    pub loads: Vec<LoadRun>,
    /// What else is to be known of the machine, the way, the keys and the storage, for people: the diagnosis does not
    /// depend on it.
    #[serde(default)]
    pub environment: Facts,
}

impl Evidence {
    /// What decides how often a request waits for the other side.
    pub(super) fn keys(&self) -> Keys {
        self.got.unwrap_or(NBD)
    }
}

/// A write of NBD sends its data unasked, in one message as a read's answer. Its headers are some twenty bytes shorter than
/// the 48 of iSCSI: half a percent of 4 KiB.
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

/// What was agreed on with an NBD server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NbdSession {
    /// The form of its answers: `simple`, `structured` or `extended`.
    pub replies: String,
    /// By TLS.
    pub encrypted: bool,
    /// By a Unix socket.
    pub unix_socket: bool,
    /// Several connections see one cache (NBD_FLAG_CAN_MULTI_CONN).
    pub multi_conn: bool,
    /// `base:allocation` was agreed on, so that BLOCK_STATUS can be asked.
    pub base_allocation: bool,
    /// Connections that there were.
    pub connections: u16,
}

/// A LUN or an export, as it says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    /// Its capacity.
    pub bytes: u64,
    /// Its logical block.
    pub block_bytes: u32,
    /// Its physical block.
    pub physical_block_bytes: u32,
    /// Nobody may write.
    pub read_only: bool,
    /// Whether it has a write cache that is on, if it says so.
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
    /// The shortest round trip that TCP has seen, in microseconds, if the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_min_us: Option<f64>,
    /// The smoothed round trip, in microseconds.
    pub round_trip_us: f64,
    /// The longest segment that we send, in bytes.
    pub segment_bytes: u32,
    /// The longest packet that the path carries, in bytes, as far as the kernel knows.
    pub path_mtu_bytes: u32,
    /// NOPs on this connection alone, if there are several.
    pub nop: Known<Timed>,
}

/// Long packets vanished on the way: short exchanges went on, and those that fill a packet never ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LongPackets {
    /// What did not come back in its time, in a sentence: `a READ of 65,536 bytes had no answer in 3 s`.
    pub lost: String,
    /// The longest TCP segment that was sent and received until then, in bytes.
    pub segment_bytes: u32,
    /// The longest with which the same went through, if one was found: all that is measured behind it is measured with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub works_bytes: Option<u32>,
}

/// One thing that was asked again and again, alone, in between all the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// How long each took.
    pub times: Histogram,
    /// The median, in microseconds.
    pub median_us: f64,
    /// From here to `high_us` is the 95 % interval of the median.
    pub low_us: f64,
    /// See `low_us`.
    pub high_us: f64,
}

impl Timed {
    /// How long each took; `None` if nothing was asked. An interval takes two times at least: that of one reaches from
    /// nothing to twice as long.
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

/// Commands one at a time, each a layer deeper than the one before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ladder {
    /// L3: a NOP-Out without data; over NBD a BLOCK_STATUS of one block, the shortest request that it has.
    pub nop: Known<Timed>,
    /// L2: NOP-Outs with so many bytes of ping data, which come back.
    pub nop_with_data: Vec<(u32, Known<Timed>)>,
    /// L4: TEST UNIT READY; nothing over NBD.
    pub test_unit_ready: Known<Timed>,
    /// L5: a READ of one block, always the same.
    pub cached_read: Known<Timed>,
    /// L5: READs of so many bytes, always the same.
    pub cached_reads: Vec<(u32, Known<Timed>)>,
    /// L6: a READ of one block at a place that was not read before.
    pub medium_read: Known<Timed>,
    /// L6: a WRITE of one physical block, at its place.
    pub write: Known<Timed>,
    /// L6: WRITEs of so many bytes.
    pub writes: Vec<(u32, Known<Timed>)>,
    /// L6: the same as `write` with FUA.
    pub durable_write: Known<Timed>,
    /// L6: a SYNCHRONIZE CACHE, or NBD's FLUSH, behind a write, alone.
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
