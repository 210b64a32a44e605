//! The capacity of an Ethernet link: frames, acknowledgements, TCP payload and iSCSI data (document 003,
//! Appendix B, whose figures the tests below read from its table), at any rate from 10 Mbit/s to 800 Gbit/s.
//!
//! All of it is arithmetic on header lengths. The [model](crate) adds the two ends.

mod code;
mod commands;
mod layers;
mod limit;

use crate::{Direction, Keys};

pub use code::LineCode;
pub use commands::Goodput;
pub use layers::Layers;
pub use limit::Limit;

/// An Ethernet link in full duplex that carries TCP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bits a second in one direction, behind the line code: 1e9 for Gigabit Ethernet.
    pub bits_per_s: f64,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// Whether TCP segments carry timestamps (RFC 7323 section 3): Linux's do, those of document 003 do not.
    pub timestamps: bool,
    /// Whether frames have a VLAN tag (IEEE 802.1Q).
    pub vlan: bool,
    /// IPv6, whose header is longer, instead of IPv4.
    pub ipv6: bool,
}

/// An acknowledgement answers every other frame (RFC 9293 section 3.8.6.3).
pub const FRAMES_PER_ACK: u32 = 2;

impl Link {
    /// With IPv4, without VLAN tags and timestamps: what document 003 counts with.
    pub fn ethernet(bits_per_s: f64, mtu: u32) -> Link {
        Link { bits_per_s, mtu, timestamps: false, vlan: false, ipv6: false }
    }

    /// What the line code makes of the rate, where a standard says so.
    pub fn line_code(self) -> Option<LineCode> {
        LineCode::for_rate(self.bits_per_s)
    }

    /// Bytes a second in one direction, behind the line code.
    pub fn bytes_per_s(self) -> f64 {
        self.bits_per_s / 8.0
    }

    /// What a full frame consists of.
    pub fn data_layers(self) -> Layers {
        Layers::for_payload(self, self.payload_bytes())
    }

    /// What a frame with an acknowledgement and nothing else consists of.
    pub fn ack_layers(self) -> Layers {
        Layers::for_payload(self, 0)
    }

    /// TCP payload of a full frame, in bytes; 0 if the headers leave nothing.
    pub fn payload_bytes(self) -> u32 {
        let empty = Layers::for_payload(self, 0);
        self.mtu.saturating_sub(empty.ip + empty.tcp)
    }

    /// A full frame on the wire with everything around it, in bytes.
    pub fn frame_bytes(self) -> u32 {
        self.data_layers().on_the_wire()
    }

    /// A frame with an acknowledgement and nothing else on the wire, in bytes.
    pub fn ack_bytes(self) -> u32 {
        self.ack_layers().on_the_wire()
    }

    /// Full frames a second, if all the other direction carries is acknowledgements.
    pub fn frames_per_s(self) -> f64 {
        self.bytes_per_s() / f64::from(self.frame_bytes())
    }

    /// Full frames a second in each direction, if both carry as many, and the acknowledgements of the other
    /// one's.
    pub fn frames_per_s_both_ways(self) -> f64 {
        let with_ack = f64::from(self.frame_bytes()) + self.acks_bytes_per_frame();
        self.bytes_per_s() / with_ack
    }

    /// What each frame costs the other direction, in bytes.
    fn acks_bytes_per_frame(self) -> f64 {
        f64::from(self.ack_bytes()) / f64::from(FRAMES_PER_ACK)
    }

    /// TCP payload in one direction, in bytes a second.
    pub fn payload_per_s(self) -> f64 {
        self.frames_per_s() * f64::from(self.payload_bytes())
    }

    /// TCP payload in both directions together, in bytes a second.
    pub fn payload_per_s_both_ways(self) -> f64 {
        2.0 * self.frames_per_s_both_ways() * f64::from(self.payload_bytes())
    }

    /// The ceilings of a report: each direction for itself, and both at once, for requests of these lengths,
    /// whose data come in PDUs of at most `segment_bytes` (MaxRecvDataSegmentLength). Without digests; the
    /// status of a read comes with its last data, and all the data of a write are sent unasked.
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
            points: block_bytes.iter().map(|&block| (block, goodput(block).bytes_per_s)).collect(),
        };
        vec![
            curve("read", &|block| self.one_way(Direction::Read, block, &keys)),
            curve("write", &|block| self.one_way(Direction::Write, block, &keys)),
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

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;

    fn gigabit() -> Link {
        Link::ethernet(1e9, 1500)
    }

    /// A figure of document 003's Appendix B, as printed.
    fn printed(metric: &str) -> String {
        let row = published::rows()
            .iter()
            .find(|row| row.document == "003" && row.table.contains("Figure 10") && row.metric == metric);
        row.expect("Appendix B has it").printed.clone()
    }

    #[test]
    fn appendix_b_of_document_003_is_reproduced_to_its_last_digit() {
        let link = gigabit();
        assert_eq!(link.frame_bytes().to_string(), printed("total_bytes_per_frame"));
        assert_eq!(link.payload_bytes().to_string(), printed("data_payload_per_frame"));
        assert_eq!(format!("{:.1}", link.frames_per_s()), printed("frames_per_second_no_acks"));
        assert_eq!(format!("{:.2}", link.payload_per_s() / MIB), printed("data_rate_without_acks"));
        assert_eq!(format!("{:.1}", link.frames_per_s_both_ways()), printed("frames_per_second_with_acks"));
        let both = link.payload_per_s_both_ways() / MIB;
        assert_eq!(format!("{:.1}", both / 2.0), printed("data_rate_2_frames_per_ack"));
        assert_eq!(format!("{both:.2}"), printed("bidirectional_rate"));
    }

    #[test]
    fn tags_timestamps_and_longer_headers_cost_what_they_weigh() {
        let mib = |link: Link| format!("{:.2}", link.payload_per_s() / MIB);
        let linux = Link { timestamps: true, ..gigabit() };
        assert_eq!(mib(linux), "112.23");
        assert_eq!(mib(Link { vlan: true, ..linux }), "111.94");
        assert_eq!(mib(Link { ipv6: true, ..gigabit() }), "111.61");
        assert_eq!(mib(Link { mtu: 9000, ..gigabit() }), "118.18");
        assert_eq!(mib(Link { mtu: 9000, ..linux }), "118.02");
        // It is 218.50 if acknowledgements are padded to 64 bytes. With the option in them they have 70.
        assert_eq!(format!("{:.2}", linux.payload_per_s_both_ways() / MIB), "218.09");
    }

    #[test]
    fn a_packet_with_no_room_for_data_carries_none() {
        let link = Link { ipv6: true, ..Link::ethernet(1e9, 40) };
        assert_eq!((link.payload_bytes(), link.payload_per_s()), (0, 0.0));
        assert_eq!(link.one_way(Direction::Read, 4096, &Keys::default()).bytes_per_s, 0.0);
    }

    #[test]
    fn a_link_is_named_as_people_name_it() {
        assert_eq!(gigabit().to_string(), "1 Gbit/s Ethernet, MTU 1500");
        assert_eq!(Link::ethernet(100e6, 1500).to_string(), "100 Mbit/s Ethernet, MTU 1500");
    }
}
