//! Computes the capacity of an Ethernet link: frames, acknowledgements, TCP payload and iSCSI data, at any
//! rate from 10 Mbit/s to 800 Gbit/s. The method is that of document 003, Appendix B; the tests below read
//! its numbers from the document's table.
//!
//! All results follow from the lengths of headers. The [model](crate) adds the two ends.

use serde::{Deserialize, Serialize};

use crate::{Direction, Keys, Load, Path, Traffic, predict};

/// A full-duplex Ethernet link that carries TCP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The bit rate in one direction, without the line code: 1e9 for Gigabit Ethernet.
    pub bits_per_s: f64,
    /// The length of the largest IP packet, in bytes.
    pub mtu: u32,
    /// Whether TCP segments contain timestamps (RFC 7323 section 3). Linux sends them; the segments of
    /// document 003 do not contain them.
    pub timestamps: bool,
    /// Whether frames have a VLAN tag (IEEE 802.1Q).
    pub vlan: bool,
    /// Whether the packets are IPv6, which has a longer header than IPv4.
    pub ipv6: bool,
}

/// The number of frames that one acknowledgement covers (RFC 9293 section 3.8.6.3).
pub const FRAMES_PER_ACK: u32 = 2;

impl Link {
    /// Creates a link with IPv4, without VLAN tags and timestamps, as assumed in document 003.
    pub fn ethernet(bits_per_s: f64, mtu: u32) -> Link {
        Link {
            bits_per_s,
            mtu,
            timestamps: false,
            vlan: false,
            ipv6: false,
        }
    }

    /// Returns the line code and its rate, if a standard defines one for this link.
    pub fn line_code(self) -> Option<LineCode> {
        LineCode::for_rate(self.bits_per_s)
    }

    /// Returns the byte rate in one direction, without the line code.
    pub fn bytes_per_s(self) -> f64 {
        self.bits_per_s / 8.0
    }

    /// Returns the parts of a full-size frame.
    pub fn data_layers(self) -> Layers {
        Layers::for_payload(self, self.payload_bytes())
    }

    /// Returns the parts of a frame that contains only an acknowledgement.
    pub fn ack_layers(self) -> Layers {
        Layers::for_payload(self, 0)
    }

    /// Returns the TCP payload of a full-size frame, in bytes; 0 if there is no space after the headers.
    pub fn payload_bytes(self) -> u32 {
        let empty = Layers::for_payload(self, 0);
        self.mtu.saturating_sub(empty.ip + empty.tcp)
    }

    /// Returns the length of a full-size frame on the wire with all overhead, in bytes.
    pub fn frame_bytes(self) -> u32 {
        self.data_layers().on_the_wire()
    }

    /// Returns the length on the wire of a frame that contains only an acknowledgement, in bytes.
    pub fn ack_bytes(self) -> u32 {
        self.ack_layers().on_the_wire()
    }

    /// Returns the rate of full-size frames per second if the other direction carries only acknowledgements.
    pub fn frames_per_s(self) -> f64 {
        self.bytes_per_s() / f64::from(self.frame_bytes())
    }

    /// Returns the rate of full-size frames per second in each direction if both directions carry the same
    /// number of frames, and the acknowledgements for the other direction.
    pub fn frames_per_s_both_ways(self) -> f64 {
        let with_ack = f64::from(self.frame_bytes()) + self.acks_bytes_per_frame();
        self.bytes_per_s() / with_ack
    }

    /// Returns the bytes of acknowledgements that each frame causes in the other direction.
    fn acks_bytes_per_frame(self) -> f64 {
        f64::from(self.ack_bytes()) / f64::from(FRAMES_PER_ACK)
    }

    /// Returns the TCP payload rate in one direction, in bytes per second.
    pub fn payload_per_s(self) -> f64 {
        self.frames_per_s() * f64::from(self.payload_bytes())
    }

    /// Returns the TCP payload rate of both directions together, in bytes per second.
    pub fn payload_per_s_both_ways(self) -> f64 {
        2.0 * self.frames_per_s_both_ways() * f64::from(self.payload_bytes())
    }

    /// Returns the limits for a report, for requests of these lengths: for each direction separately, and for
    /// both concurrently. Data is in PDUs of up to `segment_bytes` (MaxRecvDataSegmentLength), without
    /// digests. The status of a read is sent with its last data, and all data of a write is unsolicited.
    pub fn limits(self, block_bytes: &[u32], segment_bytes: u32) -> Vec<Limit> {
        let keys = Keys {
            initial_r2t: false,
            first_burst_bytes: u32::MAX,
            target_segment_bytes: segment_bytes,
            initiator_segment_bytes: segment_bytes,
            max_burst_bytes: u32::MAX,
            ..Keys::default()
        };
        let curve = |direction: &str, goodput: &dyn Fn(u32) -> Goodput| Limit {
            name: self.to_string(),
            direction: direction.to_owned(),
            depth: None,
            points: block_bytes
                .iter()
                .map(|&block| (block, goodput(block).bytes_per_s))
                .collect(),
        };
        vec![
            curve("read", &|block| self.one_way(Direction::Read, block, &keys)),
            curve("write", &|block| {
                self.one_way(Direction::Write, block, &keys)
            }),
            curve("both", &|block| self.both_ways(block, &keys)),
        ]
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (number, unit) = match self.bits_per_s {
            rate if rate >= 1e9 => (rate / 1e9, "Gbit/s"),
            rate => (rate / 1e6, "Mbit/s"),
        };
        write!(f, "{number} {unit} Ethernet, MTU {}", self.mtu)
    }
}

/// The data rate of a link for commands of one length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goodput {
    /// The data rate, in bytes per second.
    pub bytes_per_s: f64,
    /// The rate of commands, per second.
    pub requests_per_s: f64,
    /// The utilisation of the opposite direction, including acknowledgements; 1 means full.
    pub back: f64,
}

impl Link {
    /// Returns the rate of commands in one direction, with a queue depth at which only the link is a limit.
    /// The PDUs follow each other without gaps and share frames, which is the best case. Acknowledgements for
    /// the opposite direction are part of the data frames.
    pub fn one_way(self, direction: Direction, block_bytes: u32, keys: &Keys) -> Goodput {
        self.carries(
            Traffic::of_request(direction, block_bytes, keys),
            block_bytes,
        )
    }

    /// As `one_way`, for commands with the given traffic.
    pub fn carries(self, traffic: Traffic, block_bytes: u32) -> Goodput {
        let there = self.on_the_wire(traffic.more());
        let back = self.on_the_wire(traffic.less()) + self.acks(traffic.more());
        let requests_per_s = self.bytes_per_s() / there.max(back);
        Goodput {
            bytes_per_s: requests_per_s * f64::from(block_bytes),
            requests_per_s,
            back: back.min(there) / there.max(back),
        }
    }

    /// Returns the rate of equal numbers of concurrent reads and writes: the sum of both directions. Every
    /// data frame causes its share of an acknowledgement in the opposite direction.
    pub fn both_ways(self, block_bytes: u32, keys: &Keys) -> Goodput {
        let of = |direction| Traffic::of_request(direction, block_bytes, keys);
        self.carries_both(of(Direction::Read), of(Direction::Write), block_bytes)
    }

    /// As `both_ways`, for commands with the given traffic.
    pub fn carries_both(self, read: Traffic, write: Traffic, block_bytes: u32) -> Goodput {
        let pair = read.and(write);
        let there = self.on_the_wire(pair.more()) + self.acks(pair.less());
        let back = self.on_the_wire(pair.less()) + self.acks(pair.more());
        let requests_per_s = 2.0 * self.bytes_per_s() / there.max(back);
        Goodput {
            bytes_per_s: requests_per_s * f64::from(block_bytes),
            requests_per_s,
            back: back.min(there) / there.max(back),
        }
    }

    /// Returns the bytes on the wire for this TCP payload in full-size frames. Infinite if frames have no
    /// space for payload.
    fn on_the_wire(self, payload_bytes: u64) -> f64 {
        self.frames(payload_bytes) * f64::from(self.frame_bytes())
    }

    fn acks(self, payload_bytes: u64) -> f64 {
        self.frames(payload_bytes) * self.acks_bytes_per_frame()
    }

    fn frames(self, payload_bytes: u64) -> f64 {
        payload_bytes as f64 / f64::from(self.payload_bytes())
    }

    /// Returns the TCP window that fills the link over this round trip, in bytes of payload: all data that is
    /// sent before the first acknowledgement arrives.
    pub fn window_bytes(self, round_trip_s: f64) -> f64 {
        self.payload_per_s() * round_trip_s
    }

    /// Returns the queue depth that fills the link over this round trip, if the ends take no time. Returns
    /// `None` if it is too large to count.
    pub fn depth(
        self,
        direction: Direction,
        block_bytes: u32,
        keys: &Keys,
        round_trip_s: f64,
    ) -> Option<u32> {
        let load = Load {
            direction,
            block_bytes,
            depth: 1,
            sessions: 1,
            random: false,
            durable: false,
        };
        let alone = predict(&self.path(round_trip_s), keys, &load).alone_s;
        let depth = (self.one_way(direction, block_bytes, keys).requests_per_s * alone).ceil();
        (depth >= 1.0 && depth <= f64::from(u32::MAX)).then_some(depth as u32)
    }

    /// Returns the path over this link, with ends that take no time. The data of a single command takes the
    /// link's transmission time.
    pub fn path(self, round_trip_s: f64) -> Path {
        let payload_per_s = Some(self.payload_per_s());
        Path {
            payload_per_s,
            copy_per_s: payload_per_s,
            ..Path::of_round_trip(round_trip_s)
        }
    }
}

/// The lengths of the parts of a frame that carries TCP, in bytes and in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// MAC addresses and type field.
    pub ethernet: u32,
    /// The IEEE 802.1Q tag, if present.
    pub vlan_tag: u32,
    /// The IPv4 or IPv6 header, without options.
    pub ip: u32,
    /// The TCP header, with its options.
    pub tcp: u32,
    /// The TCP payload.
    pub payload: u32,
    /// Padding to the minimum frame length.
    pub padding: u32,
    /// The frame check sequence.
    pub check: u32,
    /// Preamble, start delimiter and the gap after the frame, which also take time on the link.
    pub gap: u32,
}

/// The minimum length of a frame, from header to check sequence, with or without a tag (IEEE 802.3
/// 4A.2.3.2.4, 802.1Q G.2.3).
const FRAME_BYTES_MIN: u32 = 64;

impl Layers {
    /// Returns the parts of a frame with this TCP payload, in bytes.
    pub fn for_payload(link: Link, payload: u32) -> Layers {
        let bare = Layers {
            ethernet: 14,
            vlan_tag: if link.vlan { 4 } else { 0 },
            ip: if link.ipv6 { 40 } else { 20 },
            // The timestamps option has 10 bytes, and 2 bytes of padding to a multiple of 4.
            tcp: 20 + if link.timestamps { 12 } else { 0 },
            payload,
            padding: 0,
            check: 4,
            gap: 20,
        };
        Layers {
            padding: FRAME_BYTES_MIN.saturating_sub(bare.frame()),
            ..bare
        }
    }

    /// Returns the length from the header to the check sequence.
    pub fn frame(self) -> u32 {
        let headers = self.ethernet + self.vlan_tag + self.ip + self.tcp;
        (headers + self.padding + self.check).saturating_add(self.payload)
    }

    /// Returns the time on the wire, in byte times.
    pub fn on_the_wire(self) -> u32 {
        self.frame().saturating_add(self.gap)
    }

    /// Returns the number of bytes other than payload.
    pub fn overhead(self) -> u32 {
        self.on_the_wire() - self.payload
    }
}

/// A line code, and the resulting bit rate on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineCode {
    /// The name, such as `8B/10B`.
    pub name: &'static str,
    /// The bit rate on the wire, including the code.
    pub bits_per_s: f64,
}

/// Rates in Mbit/s, each with its line code and the code's overhead factor (IEEE 802.3: clauses 7, 24, 36,
/// 49, 82, 107, 119, 133 and 172). Gigabit and faster links over twisted pairs use symbols whose overhead is
/// not such a fraction; for them, this is not the code on the wire.
const CODES: [(f64, &str, f64); 12] = [
    (10.0, "Manchester", 2.0),
    (100.0, "4B/5B", 5.0 / 4.0),
    (1_000.0, "8B/10B", 10.0 / 8.0),
    (2_500.0, "8B/10B", 10.0 / 8.0),
    (5_000.0, "64B/66B", 66.0 / 64.0),
    (10_000.0, "64B/66B", 66.0 / 64.0),
    (25_000.0, "64B/66B", 66.0 / 64.0),
    (40_000.0, "64B/66B", 66.0 / 64.0),
    (100_000.0, "64B/66B", 66.0 / 64.0),
    (200_000.0, "256B/257B, RS(544,514)", REED_SOLOMON),
    (400_000.0, "256B/257B, RS(544,514)", REED_SOLOMON),
    (800_000.0, "256B/257B, RS(544,514)", REED_SOLOMON),
];

/// The overhead of RS(544,514) over 256B/257B: each block of 256 bits gets one additional bit, and each 514
/// symbols get 30 symbols of error correction.
const REED_SOLOMON: f64 = 257.0 / 256.0 * 544.0 / 514.0;

impl LineCode {
    /// Returns the line code of a link with this rate, or `None` if no standard has this rate.
    pub fn for_rate(bits_per_s: f64) -> Option<LineCode> {
        let (_, name, factor) = CODES.iter().find(|(mbit, ..)| *mbit * 1e6 == bits_per_s)?;
        Some(LineCode {
            name,
            bits_per_s: bits_per_s * factor,
        })
    }
}

/// An upper limit: a curve of bytes per second over the length of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The limiting component: `1 Gbit/s Ethernet, MTU 1500`, `raw TCP on this machine`.
    pub name: String,
    /// The limited direction: `read`, `write`, or `both` concurrently.
    pub direction: String,
    /// The queue depth to which the limit applies; `None` means any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// The points of the curve: the length of requests in bytes, and bytes per second.
    pub points: Vec<(u32, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;

    fn gigabit() -> Link {
        Link::ethernet(1e9, 1500)
    }

    /// Returns a number of document 003's Appendix B, as printed.
    fn printed(metric: &str) -> String {
        let row = published::rows().iter().find(|row| {
            row.document == "003" && row.table.contains("Figure 10") && row.metric == metric
        });
        row.expect("Appendix B has it").printed.clone()
    }

    #[test]
    fn appendix_b_of_document_003_is_reproduced_to_its_last_digit() {
        let link = gigabit();
        assert_eq!(
            link.frame_bytes().to_string(),
            printed("total_bytes_per_frame")
        );
        assert_eq!(
            link.payload_bytes().to_string(),
            printed("data_payload_per_frame")
        );
        assert_eq!(
            format!("{:.1}", link.frames_per_s()),
            printed("frames_per_second_no_acks")
        );
        assert_eq!(
            format!("{:.2}", link.payload_per_s() / MIB),
            printed("data_rate_without_acks")
        );
        assert_eq!(
            format!("{:.1}", link.frames_per_s_both_ways()),
            printed("frames_per_second_with_acks")
        );
        let both = link.payload_per_s_both_ways() / MIB;
        assert_eq!(
            format!("{:.1}", both / 2.0),
            printed("data_rate_2_frames_per_ack")
        );
        assert_eq!(format!("{both:.2}"), printed("bidirectional_rate"));
    }

    #[test]
    fn tags_timestamps_and_longer_headers_cost_what_they_weigh() {
        let mib = |link: Link| format!("{:.2}", link.payload_per_s() / MIB);
        let linux = Link {
            timestamps: true,
            ..gigabit()
        };
        assert_eq!(mib(linux), "112.23");
        assert_eq!(
            mib(Link {
                vlan: true,
                ..linux
            }),
            "111.94"
        );
        assert_eq!(
            mib(Link {
                ipv6: true,
                ..gigabit()
            }),
            "111.61"
        );
        assert_eq!(
            mib(Link {
                mtu: 9000,
                ..gigabit()
            }),
            "118.18"
        );
        assert_eq!(mib(Link { mtu: 9000, ..linux }), "118.02");
        // The result is 218.50 if acknowledgements are padded to 64 bytes. With the timestamps option, they
        // have 70 bytes.
        assert_eq!(
            format!("{:.2}", linux.payload_per_s_both_ways() / MIB),
            "218.09"
        );
    }

    #[test]
    fn a_packet_with_no_room_for_data_carries_none() {
        let link = Link {
            ipv6: true,
            ..Link::ethernet(1e9, 40)
        };
        assert_eq!((link.payload_bytes(), link.payload_per_s()), (0, 0.0));
        assert_eq!(
            link.one_way(Direction::Read, 4096, &Keys::default())
                .bytes_per_s,
            0.0
        );
    }

    #[test]
    fn a_link_is_named_as_people_name_it() {
        assert_eq!(gigabit().to_string(), "1 Gbit/s Ethernet, MTU 1500");
        assert_eq!(
            Link::ethernet(100e6, 1500).to_string(),
            "100 Mbit/s Ethernet, MTU 1500"
        );
    }

    const KIB: u32 = 1024;

    #[test]
    fn headers_leave_what_is_computed_by_hand() {
        // Calculated manually: 0.9942 with 8 KiB PDUs (0.9932 with both digests), 0.9993 with 64 KiB, 0.9998
        // with 256 KiB.
        let share = |segment: u32, digests: bool| {
            let keys = Keys {
                initiator_segment_bytes: segment,
                header_digest: digests,
                data_digest: digests,
                ..Keys::default()
            };
            let goodput = gigabit().one_way(Direction::Read, 256 * KIB, &keys);
            format!("{:.4}", goodput.bytes_per_s / gigabit().payload_per_s())
        };
        assert_eq!(
            [share(8 * KIB, false), share(8 * KIB, true)],
            ["0.9942", "0.9932"]
        );
        assert_eq!(
            [share(64 * KIB, false), share(256 * KIB, false)],
            ["0.9993", "0.9998"]
        );
    }

    #[test]
    fn what_goes_back_is_commands_and_acknowledgements() {
        let goodput = gigabit().one_way(Direction::Read, 512, &Keys::default());
        assert_eq!(goodput.bytes_per_s, goodput.requests_per_s * 512.0);
        // 48 bytes in one direction for each 560 bytes in the other, and an acknowledgement of 84 bytes for
        // two frames of 1538.
        let expected = 48.0 / 560.0 + 42.0 / 1538.0;
        assert!((goodput.back - expected).abs() < 1e-12, "{}", goodput.back);
    }

    #[test]
    fn both_ways_at_once_are_less_than_twice_one_way() {
        let keys = Keys {
            initiator_segment_bytes: 256 * KIB,
            target_segment_bytes: 256 * KIB,
            ..Keys::default()
        };
        let one = gigabit()
            .one_way(Direction::Read, 256 * KIB, &keys)
            .bytes_per_s;
        let both = gigabit().both_ways(256 * KIB, &keys);
        let payload = gigabit().payload_per_s_both_ways();
        assert!(
            both.bytes_per_s < 2.0 * one
                && both.bytes_per_s < payload
                && both.bytes_per_s > 0.999 * payload
        );
        assert!(both.back > 0.999);
    }

    #[test]
    fn so_many_commands_fill_a_link_and_one_less_does_not() {
        let solicited = Keys {
            immediate_data: false,
            ..Keys::default()
        };
        for (direction, keys, block) in [
            (Direction::Read, Keys::default(), 4 * KIB),
            (Direction::Write, Keys::default(), 64 * KIB),
            (Direction::Write, solicited, 8 * KIB),
        ] {
            let depth = gigabit()
                .depth(direction, block, &keys, 0.05)
                .expect("a depth");
            let full = gigabit().one_way(direction, block, &keys).bytes_per_s;
            let at = |depth| {
                let load = Load {
                    direction,
                    block_bytes: block,
                    depth,
                    sessions: 1,
                    random: false,
                    durable: false,
                };
                predict(&gigabit().path(0.05), &keys, &load).bytes_per_s
            };
            assert!(
                at(depth) > 0.999_999 * full,
                "{depth}: {} {full}",
                at(depth)
            );
            assert!(at(depth - 1) < full, "{depth}: {} {full}", at(depth - 1));
        }
    }

    #[test]
    fn a_solicited_write_needs_twice_the_depth() {
        let solicited = Keys {
            immediate_data: false,
            ..Keys::default()
        };
        let depth = |keys: &Keys| {
            gigabit()
                .depth(Direction::Write, 4 * KIB, keys, 0.05)
                .expect("a depth")
        };
        // The depth is not quite doubled: with the header of the Data-Out, the link carries fewer commands
        // per second.
        let times = f64::from(depth(&solicited)) / f64::from(depth(&Keys::default()));
        assert!((1.97..2.0).contains(&times), "{times}");
        assert_eq!(
            Link::ethernet(0.0, 1500).depth(Direction::Read, 4096, &solicited, 0.0),
            None
        );
    }

    #[test]
    fn the_window_of_a_gigabit_over_50_ms_is_5_9_megabytes() {
        assert_eq!((gigabit().window_bytes(0.05) / 1e4).round(), 593.0);
    }

    #[test]
    fn an_acknowledgement_is_padded_unless_its_headers_are_long() {
        let link = Link::ethernet(1e9, 1500);
        let ack = |link: Link| (link.ack_layers().padding, link.ack_bytes());
        assert_eq!(ack(link), (6, 84));
        assert_eq!(ack(Link { vlan: true, ..link }), (2, 84));
        assert_eq!(
            ack(Link {
                timestamps: true,
                ..link
            }),
            (0, 90)
        );
        assert_eq!(ack(Link { ipv6: true, ..link }), (0, 98));
    }

    #[test]
    fn the_parts_are_the_whole() {
        let link = Link {
            vlan: true,
            ipv6: true,
            timestamps: true,
            ..Link::ethernet(25e9, 9000)
        };
        let frame = link.data_layers();
        assert_eq!(
            (frame.payload, frame.overhead(), frame.on_the_wire()),
            (8928, 114, 9042)
        );
    }

    #[test]
    fn the_rates_on_the_wire_are_the_standards() {
        let rate = |gbit: f64| {
            LineCode::for_rate(gbit * 1e9).map(|code| format!("{}", code.bits_per_s / 1e9))
        };
        assert_eq!(rate(1.0).as_deref(), Some("1.25"));
        assert_eq!(rate(10.0).as_deref(), Some("10.3125"));
        assert_eq!(rate(400.0).as_deref(), Some("425"));
        assert_eq!(rate(0.16), None);
    }
}
