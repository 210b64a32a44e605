//! A path between two ends with their costs, and the load on it: its direction, the keys of the session, the
//! rate of the link, and the traffic of a command.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The known or assumed properties of a path and its ends. A limit that is `None` does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// The TCP payload rate of the link in one direction, in bytes per second, including iSCSI headers
    /// ([`Link::payload_per_s`](crate::link::Link::payload_per_s)).
    pub payload_per_s: Option<f64>,
    /// The round trip without queueing, in seconds.
    pub round_trip_s: f64,
    /// The bytes that may be in transit on each TCP connection in this direction. This is the usable part of
    /// the window, not the size of the buffer.
    pub window_bytes: Option<f64>,
    /// The time in addition to the round trip until a full window is acknowledged, in seconds.
    pub window_delay_s: f64,
    /// The number of TCP connections of each session.
    pub connections: u16,
    /// The time of both ends for one exchange (a command and its response, or an R2T and its data), in
    /// addition to the round trip, in seconds.
    pub exchange_s: f64,
    /// The additional time of both ends for a command, including the medium, in seconds.
    pub command_s: f64,
    /// The data rate of a single command, in bytes per second. Its time is the sum of the times of the link
    /// and of both ends.
    pub copy_per_s: Option<f64>,
    /// The maximum number of outstanding commands in a session that the target allows: its command window, or
    /// its queue.
    pub commands_at_once: Option<f64>,
    /// The maximum amount of outstanding write data in a session that the target allows, in bytes.
    pub writes_under_way_bytes: Option<f64>,
    /// The maximum rate of exchanges of both ends, for all commands together, per second.
    pub exchanges_per_s: Option<f64>,
    /// The maximum rate of the medium, in bytes per second.
    pub medium_per_s: Option<f64>,
}

impl Path {
    /// Creates a path with this round trip, without limits, and with ends that take no time.
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

    /// Returns the total rate of this number of TCP connections, in bytes per second: one window per round
    /// trip, up to the link's rate. Infinite if no limit is known.
    pub fn tcp_per_s(&self, connections: u32) -> f64 {
        let link = self.payload_per_s.unwrap_or(f64::INFINITY);
        link.min(self.window_per_s(connections))
    }

    /// Returns the rate of one window per round trip for each of this number of connections.
    pub(super) fn window_per_s(&self, connections: u32) -> f64 {
        let each = self
            .window_bytes
            .map(|window| window / (self.round_trip_s + self.window_delay_s));
        each.map_or(f64::INFINITY, |each| each * f64::from(connections.max(1)))
    }
}

/// A limit of throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// The capacity of the link.
    Link,
    /// One TCP window per round trip.
    Window,
    /// The queue depth, divided by the time of a request.
    Depth,
    /// The target's limit of outstanding write data.
    WritesUnderWay,
    /// The maximum rate of exchanges of both ends.
    Exchanges,
    /// The rate of the medium.
    Medium,
}

/// The direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the target to the initiator.
    Read,
    /// From the initiator to the target.
    Write,
}

/// Requests of one kind at a fixed queue depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The direction of the data.
    pub direction: Direction,
    /// The length of each request, in bytes.
    pub block_bytes: u32,
    /// The queue depth in each session, as far as the target allows it.
    pub depth: u32,
    /// The number of sessions, each with this depth.
    pub sessions: u16,
    /// Whether offsets are random; otherwise, requests are sequential.
    pub random: bool,
    /// Whether each write is on stable storage before it completes (with FUA, or a SYNCHRONIZE CACHE after
    /// the write).
    pub durable: bool,
}

/// Keys of a session (RFC 7143 section 13), as negotiated or as offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// ImmediateData: the command PDU of a write contains its first data.
    pub immediate_data: bool,
    /// InitialR2T: all data of a write waits for an R2T, except immediate data.
    pub initial_r2t: bool,
    /// FirstBurstLength, in bytes: the maximum amount of unsolicited data.
    pub first_burst_bytes: u32,
    /// MaxBurstLength, in bytes: the maximum amount of data that one R2T solicits.
    pub max_burst_bytes: u32,
    /// MaxOutstandingR2T: the maximum number of outstanding R2Ts of a command.
    pub outstanding_r2ts: u16,
    /// The target's MaxRecvDataSegmentLength, in bytes: the maximum data of a PDU of a write.
    pub target_segment_bytes: u32,
    /// The initiator's MaxRecvDataSegmentLength, in bytes: the maximum data of a PDU of a read.
    pub initiator_segment_bytes: u32,
    /// HeaderDigest=CRC32C.
    pub header_digest: bool,
    /// DataDigest=CRC32C.
    pub data_digest: bool,
}

impl Default for Keys {
    /// Returns the values that apply without negotiation (RFC 7143 section 13).
    fn default() -> Keys {
        Keys {
            immediate_data: true,
            initial_r2t: true,
            first_burst_bytes: 65_536,
            max_burst_bytes: 262_144,
            outstanding_r2ts: 1,
            target_segment_bytes: 8192,
            initiator_segment_bytes: 8192,
            header_digest: false,
            data_digest: false,
        }
    }
}

impl Keys {
    /// Returns the amount of data in the command PDU of a write of this length.
    pub fn immediate_bytes(&self, block_bytes: u32) -> u32 {
        match self.immediate_data {
            true => block_bytes
                .min(self.first_burst_bytes)
                .min(self.target_segment_bytes),
            false => 0,
        }
    }

    /// Returns the amount of unsolicited data of a write of this length. With InitialR2T=Yes, this is only
    /// the data in the command PDU.
    pub fn unasked_bytes(&self, block_bytes: u32) -> u32 {
        match self.initial_r2t {
            true => self.immediate_bytes(block_bytes),
            false => block_bytes.min(self.first_burst_bytes),
        }
    }

    /// Returns the minimum number of R2Ts for a write of this length. A target that solicits less data at a
    /// time sends more R2Ts.
    pub fn r2ts(&self, block_bytes: u32) -> u32 {
        let asked_for = block_bytes - self.unasked_bytes(block_bytes);
        asked_for.div_ceil(self.max_burst_bytes.max(1))
    }

    /// Returns the number of waits of a command of this length for the peer: once for its response and, in a write,
    /// once for each batch of outstanding R2Ts.
    pub fn exchanges(&self, direction: Direction, block_bytes: u32) -> u32 {
        match direction {
            Direction::Read => 1,
            Direction::Write => {
                1 + self
                    .r2ts(block_bytes)
                    .div_ceil(u32::from(self.outstanding_r2ts).max(1))
            }
        }
    }
}

/// The bit rate of a link, in bits per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkRate(f64);

impl LinkRate {
    /// 1 Gbit/s, the most common rate.
    pub const GIGABIT: LinkRate = LinkRate(1e9);

    /// Returns the rate in bits per second.
    pub fn bits_per_s(self) -> f64 {
        self.0
    }
}

/// Units of rates, the largest first. Formatting tries them in this order.
const UNITS: [(&str, f64); 4] = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];
/// The valid range, from a slow line to any future Ethernet. Values outside it are typing errors.
const LEAST: f64 = 1e4;
const MOST: f64 = 1e13;

impl FromStr for LinkRate {
    type Err = String;

    fn from_str(text: &str) -> Result<LinkRate, String> {
        if text.contains("B/s") || text.contains("Bps") {
            return Err(format!(
                "`{text}` is in bytes; specify the rate of a link in bits per second, such as 1Gbit/s"
            ));
        }
        let ends = ["bit/s", "bits/s", "bps", "b/s", ""];
        let bare = ends
            .iter()
            .find_map(|end| text.strip_suffix(end))
            .unwrap_or(text);
        let unit = UNITS
            .iter()
            .find(|(unit, _)| bare.ends_with(unit) || (*unit == "k" && bare.ends_with('K')));
        let (digits, unit) = unit.map_or((bare, 1.0), |(unit, factor)| {
            (&bare[..bare.len() - unit.len()], *factor)
        });
        let is_plain = digits.chars().all(|c| c.is_ascii_digit() || c == '.');
        let number: Option<f64> = digits.parse().ok().filter(|_| is_plain);
        let Some(number) = number else {
            return Err(format!(
                "`{text}` is not the rate of a link; use bits per second, such as 1G, 100M or 2.5Gbit/s"
            ));
        };
        // In binary floating point, 2.3 × 10^9 may not be exactly a whole number of bits, so round it.
        let bits_per_s = (number * unit).round();
        match (LEAST..=MOST).contains(&bits_per_s) {
            true => Ok(LinkRate(bits_per_s)),
            false => Err(format!(
                "the link rate `{text}` is out of range; use {} to {}",
                LinkRate(LEAST),
                LinkRate(MOST)
            )),
        }
    }
}

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, factor)| self.0 >= *factor) {
            Some((unit, factor)) => write!(f, "{}{unit}bit/s", self.0 / factor),
            None => write!(f, "{}bit/s", self.0),
        }
    }
}

/// The TCP payload of one command, including PDU headers, digests and padding, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes from the initiator to the target.
    pub to_target: u64,
    /// Bytes from the target to the initiator.
    pub to_initiator: u64,
}

/// The length of a basic header segment (RFC 7143 section 11.2.1).
const BHS_BYTES: u64 = 48;
/// The length of a CRC32C (section 13.1).
const DIGEST_BYTES: u64 = 4;
/// Data segments are padded to a multiple of this length (section 11.2.3).
const PADDED_TO_BYTES: u32 = 4;

impl Traffic {
    /// Returns the traffic of a read or write of `block_bytes`. The status of a read is sent with its last
    /// data (section 11.7.3), as fast targets do. For other targets, see [`Traffic::with_status_apart`].
    pub fn of_request(direction: Direction, block_bytes: u32, keys: &Keys) -> Traffic {
        match direction {
            Direction::Read => Traffic {
                to_target: header(keys),
                to_initiator: bursts(block_bytes, keys.max_burst_bytes)
                    .map(|(burst, times)| times * pdus(burst, keys.initiator_segment_bytes, keys))
                    .sum(),
            },
            Direction::Write => write(block_bytes, keys),
        }
    }

    /// Returns this traffic with a separate response PDU.
    pub fn with_status_apart(self, keys: &Keys) -> Traffic {
        Traffic {
            to_initiator: self.to_initiator + header(keys),
            ..self
        }
    }

    /// Returns the sum of the traffic of two commands.
    pub fn and(self, other: Traffic) -> Traffic {
        Traffic {
            to_target: self.to_target + other.to_target,
            to_initiator: self.to_initiator + other.to_initiator,
        }
    }

    /// Returns the bytes in the direction with more bytes.
    pub fn more(self) -> u64 {
        self.to_target.max(self.to_initiator)
    }

    /// Returns the bytes in the direction with fewer bytes.
    pub fn less(self) -> u64 {
        self.to_target.min(self.to_initiator)
    }
}

fn write(block_bytes: u32, keys: &Keys) -> Traffic {
    let immediate = keys.immediate_bytes(block_bytes);
    let unasked = keys.unasked_bytes(block_bytes);
    let command = header(keys) + data(immediate, keys);
    let unsolicited = pdus(unasked - immediate, keys.target_segment_bytes, keys);
    let solicited: u64 = bursts(block_bytes - unasked, keys.max_burst_bytes)
        .map(|(burst, times)| times * pdus(burst, keys.target_segment_bytes, keys))
        .sum();
    let r2ts = u64::from(keys.r2ts(block_bytes));
    Traffic {
        to_target: command + unsolicited + solicited,
        to_initiator: (r2ts + 1) * header(keys),
    }
}

/// Divides data into bursts: returns the number of full bursts, and a last one with the rest. A PDU never
/// spans two bursts.
fn bursts(bytes: u32, burst_bytes: u32) -> impl Iterator<Item = (u32, u64)> {
    let burst_bytes = burst_bytes.max(1);
    let rest = bytes % burst_bytes;
    [
        (burst_bytes, u64::from(bytes / burst_bytes)),
        (rest, u64::from(rest > 0)),
    ]
    .into_iter()
    .filter(|(_, times)| *times > 0)
}

/// Returns the bytes of data in PDUs of up to `segment_bytes`.
fn pdus(bytes: u32, segment_bytes: u32, keys: &Keys) -> u64 {
    let segment_bytes = segment_bytes.max(1);
    let rest = bytes % segment_bytes;
    let full = u64::from(bytes / segment_bytes) * (header(keys) + data(segment_bytes, keys));
    full + if rest > 0 {
        header(keys) + data(rest, keys)
    } else {
        0
    }
}

fn header(keys: &Keys) -> u64 {
    BHS_BYTES + if keys.header_digest { DIGEST_BYTES } else { 0 }
}

/// Returns the length of a data segment with its padding and digest. A PDU without data has neither.
fn data(bytes: u32, keys: &Keys) -> u64 {
    let digest = if keys.data_digest && bytes > 0 {
        DIGEST_BYTES
    } else {
        0
    };
    u64::from(bytes).next_multiple_of(u64::from(PADDED_TO_BYTES)) + digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIB: u32 = 1024;

    #[test]
    fn a_write_waits_for_what_it_may_not_send_unasked() {
        let solicited = Keys {
            immediate_data: false,
            ..Keys::default()
        };
        let immediate = Keys::default();
        let unsolicited = Keys {
            initial_r2t: false,
            ..Keys::default()
        };
        let exchanges =
            |keys: Keys| [4, 8, 64, 256].map(|kib| keys.exchanges(Direction::Write, kib * KIB));
        assert_eq!(exchanges(solicited), [2, 2, 2, 2]);
        assert_eq!(exchanges(immediate), [1, 1, 2, 2]);
        assert_eq!(exchanges(unsolicited), [1, 1, 1, 2]);
        assert_eq!(unsolicited.exchanges(Direction::Read, 1 << 20), 1);
    }

    #[test]
    fn immediate_data_fit_into_the_targets_pdu_and_the_first_burst() {
        let keys = Keys {
            target_segment_bytes: 4096,
            first_burst_bytes: 2048,
            ..Keys::default()
        };
        assert_eq!(keys.immediate_bytes(512), 512);
        assert_eq!(keys.immediate_bytes(65_536), 2048);
        let keys = Keys {
            first_burst_bytes: 65_536,
            ..keys
        };
        assert_eq!(keys.immediate_bytes(65_536), 4096);
    }

    #[test]
    fn several_r2ts_at_once_are_one_wait() {
        let keys = Keys {
            max_burst_bytes: 8192,
            immediate_data: false,
            ..Keys::default()
        };
        assert_eq!(keys.exchanges(Direction::Write, 65_536), 9);
        let keys = Keys {
            outstanding_r2ts: 4,
            ..keys
        };
        assert_eq!(
            (keys.r2ts(65_536), keys.exchanges(Direction::Write, 65_536)),
            (8, 3)
        );
        // Such values cannot be negotiated, but must not cause a panic.
        let nonsense = Keys {
            max_burst_bytes: 0,
            outstanding_r2ts: 0,
            ..keys
        };
        assert_eq!(nonsense.exchanges(Direction::Write, 512), 513);
    }

    fn rate(text: &str) -> Result<f64, String> {
        text.parse().map(LinkRate::bits_per_s)
    }

    #[test]
    fn what_is_no_rate_of_a_link_is_refused_with_one() {
        for text in ["", "G", "fast", "1X", "1.2.3G", "-1G", "1e9", "infG", "NaN"] {
            assert!(
                rate(text)
                    .expect_err("a mistake")
                    .contains("such as 1G, 100M or 2.5Gbit/s"),
                "{text}"
            );
        }
        assert!(
            rate("125MB/s")
                .expect_err("a mistake")
                .contains("is in bytes")
        );
        assert!(
            rate("1")
                .expect_err("a mistake")
                .ends_with("use 10kbit/s to 10Tbit/s")
        );
        assert!(
            rate("11T")
                .expect_err("a mistake")
                .ends_with("use 10kbit/s to 10Tbit/s")
        );
    }

    #[test]
    fn letters_and_units_mean_powers_of_ten_in_bits() {
        for text in ["1G", "1Gbit/s", "1000M", "1Gbps", "1Gb/s", "1000000000"] {
            assert_eq!(rate(text), Ok(1e9), "{text}");
        }
        assert_eq!(rate("2.5G"), Ok(2.5e9));
        assert_eq!(rate("56k"), rate("56K"));
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(mbit in 1..1_000_000u32) {
            let rate = LinkRate(f64::from(mbit) * 1e6);
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9.a-zA-Zµ/]{0,16}") {
            let _ = rate(&text);
        }
    }

    #[test]
    fn a_read_is_a_command_and_its_data() {
        let keys = Keys::default();
        let read = Traffic::of_request(Direction::Read, 65_536, &keys);
        assert_eq!(
            read,
            Traffic {
                to_target: 48,
                to_initiator: 65_536 + 8 * 48
            }
        );
        assert_eq!(read.with_status_apart(&keys).to_initiator, 65_536 + 9 * 48);
        // A PDU ends where a burst ends: 20 KiB in bursts of 12 KiB and PDUs of up to 8 KiB are 8 + 4 + 8
        // KiB.
        let keys = Keys {
            max_burst_bytes: 12 << 10,
            ..keys
        };
        assert_eq!(
            Traffic::of_request(Direction::Read, 20 << 10, &keys).to_initiator,
            (20 << 10) + 3 * 48
        );
    }

    #[test]
    fn a_write_begins_in_its_command_and_goes_on_when_it_is_asked_to() {
        let keys = Keys::default();
        let short = Traffic::of_request(Direction::Write, 4096, &keys);
        assert_eq!(
            short,
            Traffic {
                to_target: 48 + 4096,
                to_initiator: 48
            }
        );
        // 8 KiB in the command, and then 7 Data-Outs for one R2T.
        let long = Traffic::of_request(Direction::Write, 65_536, &keys);
        assert_eq!(
            long,
            Traffic {
                to_target: 65_536 + 8 * 48,
                to_initiator: 2 * 48
            }
        );
        let solicited = Keys {
            immediate_data: false,
            max_burst_bytes: 8192,
            ..keys
        };
        let long = Traffic::of_request(Direction::Write, 65_536, &solicited);
        assert_eq!(
            long,
            Traffic {
                to_target: 65_536 + 9 * 48,
                to_initiator: 9 * 48
            }
        );
    }

    #[test]
    fn digests_and_padding_are_counted_where_they_are() {
        let keys = Keys {
            header_digest: true,
            data_digest: true,
            ..Keys::default()
        };
        let read = Traffic::of_request(Direction::Read, 510, &keys);
        assert_eq!(
            read,
            Traffic {
                to_target: 52,
                to_initiator: 52 + 512 + 4
            }
        );
        let write = Traffic::of_request(Direction::Write, 16_384, &keys);
        assert_eq!(
            write,
            Traffic {
                to_target: 16_384 + 2 * (52 + 4),
                to_initiator: 2 * 52
            }
        );
    }

    #[test]
    fn what_nobody_can_agree_on_is_counted_without_a_panic() {
        let keys = Keys {
            max_burst_bytes: 0,
            target_segment_bytes: 0,
            initiator_segment_bytes: 0,
            ..Keys::default()
        };
        assert!(
            Traffic::of_request(Direction::Write, u32::MAX, &keys).to_target > u64::from(u32::MAX)
        );
        assert!(
            Traffic::of_request(Direction::Read, u32::MAX, &keys).to_initiator
                > u64::from(u32::MAX)
        );
        assert_eq!(
            Traffic::of_request(Direction::Read, 0, &keys).to_initiator,
            0
        );
    }
}
