//! What an Ethernet link carries at most: frames, acknowledgements, TCP's payload and iSCSI's data (document 003,
//! Appendix B, whose figures the tests below read from its table).

use crate::record::Limit;

/// An Ethernet link in full duplex that carries IPv4 and TCP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bits a second in one direction, behind the line code: 1e9 for Gigabit Ethernet.
    pub bits_per_s: f64,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// Whether TCP segments carry timestamps (RFC 7323 section 3): Linux's do, those of document 003 do not.
    pub timestamps: bool,
}

/// Ethernet header 14, frame check sequence 4, preamble and gap 20.
const FRAME_BYTES: u32 = 38;
/// IPv4 and TCP headers without options.
const HEADERS_BYTES: u32 = 40;
/// The timestamps option with its padding.
const TIMESTAMPS_BYTES: u32 = 12;
/// A frame is at least so long, from header to check sequence.
const FRAME_BYTES_MIN: u32 = 64;
const PREAMBLE_AND_GAP_BYTES: u32 = 20;
const CHECK_BYTES: u32 = 4;
const ETHERNET_HEADER_BYTES: u32 = 14;
/// An acknowledgement answers every other frame (RFC 9293 section 3.8.6.3).
const FRAMES_PER_ACK: f64 = 2.0;
/// A basic header segment (RFC 7143 section 11.2.1).
const BHS_BYTES: f64 = 48.0;

impl Link {
    fn options_bytes(self) -> u32 {
        if self.timestamps { TIMESTAMPS_BYTES } else { 0 }
    }

    /// TCP payload of a full frame, in bytes.
    pub fn payload_bytes(self) -> u32 {
        self.mtu.saturating_sub(HEADERS_BYTES + self.options_bytes())
    }

    /// A full frame on the wire with everything around it, in bytes.
    pub fn frame_bytes(self) -> u32 {
        self.mtu.saturating_add(FRAME_BYTES)
    }

    /// A frame with an acknowledgement and nothing else on the wire, in bytes.
    pub fn ack_bytes(self) -> u32 {
        let frame = ETHERNET_HEADER_BYTES + HEADERS_BYTES + self.options_bytes() + CHECK_BYTES;
        frame.max(FRAME_BYTES_MIN) + PREAMBLE_AND_GAP_BYTES
    }

    /// Full frames a second, if all the other direction carries is acknowledgements.
    pub fn frames_per_s(self) -> f64 {
        self.bits_per_s / 8.0 / f64::from(self.frame_bytes())
    }

    /// Full frames a second in each direction, if both carry as many, and the acknowledgements of the other one's.
    pub fn frames_per_s_both_ways(self) -> f64 {
        let with_ack = f64::from(self.frame_bytes()) + f64::from(self.ack_bytes()) / FRAMES_PER_ACK;
        self.bits_per_s / 8.0 / with_ack
    }

    /// TCP payload in one direction, in bytes a second.
    pub fn payload_per_s(self) -> f64 {
        self.frames_per_s() * f64::from(self.payload_bytes())
    }

    /// TCP payload in both directions together, in bytes a second.
    pub fn payload_per_s_both_ways(self) -> f64 {
        2.0 * self.frames_per_s_both_ways() * f64::from(self.payload_bytes())
    }

    /// What iSCSI's headers leave of a payload rate for requests of this length, whose data come in PDUs of at most
    /// `segment_bytes` (MaxRecvDataSegmentLength). Without digests; the status of a read comes with its last data
    /// (RFC 7143 section 11.7.4), and the data of a write begin in its command.
    pub fn goodput(payload_per_s: f64, block_bytes: u32, segment_bytes: u32) -> f64 {
        let pdus = f64::from(block_bytes.div_ceil(segment_bytes.max(1)));
        payload_per_s * f64::from(block_bytes) / (f64::from(block_bytes) + BHS_BYTES * pdus)
    }

    /// The ceilings of a report: each direction for itself, and both at once, for requests of these lengths.
    pub fn limits(self, block_bytes: &[u32], segment_bytes: u32) -> Vec<Limit> {
        let curve = |direction: &str, payload_per_s: f64| Limit {
            name: self.to_string(),
            direction: direction.to_owned(),
            depth: None,
            points: block_bytes
                .iter()
                .map(|&block| (block, Link::goodput(payload_per_s, block, segment_bytes)))
                .collect(),
        };
        vec![
            curve("read", self.payload_per_s()),
            curve("write", self.payload_per_s()),
            curve("both", self.payload_per_s_both_ways()),
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
    use crate::published;

    const GIGABIT: Link = Link { bits_per_s: 1e9, mtu: 1500, timestamps: false };
    const MIB: f64 = 1_048_576.0;

    /// A figure of document 003's Appendix B, as printed.
    fn printed(metric: &str) -> String {
        let row = published::rows()
            .iter()
            .find(|row| row.document == "003" && row.table.contains("Figure 10") && row.metric == metric);
        row.expect("Appendix B has it").printed.clone()
    }

    #[test]
    fn appendix_b_of_document_003_is_reproduced_to_its_last_digit() {
        assert_eq!(GIGABIT.frame_bytes().to_string(), printed("total_bytes_per_frame"));
        assert_eq!(GIGABIT.payload_bytes().to_string(), printed("data_payload_per_frame"));
        assert_eq!(format!("{:.1}", GIGABIT.frames_per_s()), printed("frames_per_second_no_acks"));
        assert_eq!(format!("{:.2}", GIGABIT.payload_per_s() / MIB), printed("data_rate_without_acks"));
        assert_eq!(
            format!("{:.1}", GIGABIT.frames_per_s_both_ways()),
            printed("frames_per_second_with_acks")
        );
        let both = GIGABIT.payload_per_s_both_ways() / MIB;
        assert_eq!(format!("{:.1}", both / 2.0), printed("data_rate_2_frames_per_ack"));
        assert_eq!(format!("{both:.2}"), printed("bidirectional_rate"));
    }

    #[test]
    fn timestamps_and_headers_cost_what_they_weigh() {
        let linux = Link { timestamps: true, ..GIGABIT };
        assert_eq!(format!("{:.2}", linux.payload_per_s() / MIB), "112.23");
        assert_eq!(Link::goodput(100.0, 512, 8192), 100.0 * 512.0 / 560.0);
        assert_eq!(Link::goodput(100.0, 65_536, 8192), 100.0 * 65_536.0 / (65_536.0 + 8.0 * 48.0));
    }

    #[test]
    fn a_link_is_named_as_people_name_it() {
        assert_eq!(GIGABIT.to_string(), "1 Gbit/s Ethernet, MTU 1500");
        assert_eq!(Link { bits_per_s: 100e6, ..GIGABIT }.to_string(), "100 Mbit/s Ethernet, MTU 1500");
    }
}
