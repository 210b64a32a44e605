//! The bytes of a frame by layer, as in the second table of document 003's Appendix B.

use super::Link;

/// Lengths of the parts of a frame that carries TCP, in bytes and in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// Addresses and type.
    pub ethernet: u32,
    /// IEEE 802.1Q, if there is one.
    pub vlan_tag: u32,
    /// IPv4 or IPv6, without options.
    pub ip: u32,
    /// TCP, with its options.
    pub tcp: u32,
    /// What TCP carries.
    pub payload: u32,
    /// What fills a frame up to the least length.
    pub padding: u32,
    /// The frame check sequence.
    pub check: u32,
    /// Preamble, start delimiter and the gap behind the frame, which are counted with it.
    pub gap: u32,
}

/// A frame is at least so long, from header to check sequence, with a tag or without (IEEE 802.3 4A.2.3.2.4,
/// 802.1Q G.2.3).
const FRAME_BYTES_MIN: u32 = 64;

impl Layers {
    /// Of a frame that carries so many bytes of TCP payload.
    pub fn for_payload(link: Link, payload: u32) -> Layers {
        let bare = Layers {
            ethernet: 14,
            vlan_tag: if link.vlan { 4 } else { 0 },
            ip: if link.ipv6 { 40 } else { 20 },
            // The timestamps option has 10 bytes, and 2 before it that bring it to a multiple of 4.
            tcp: 20 + if link.timestamps { 12 } else { 0 },
            payload,
            padding: 0,
            check: 4,
            gap: 20,
        };
        Layers { padding: FRAME_BYTES_MIN.saturating_sub(bare.frame()), ..bare }
    }

    /// From header to check sequence.
    pub fn frame(self) -> u32 {
        let headers = self.ethernet + self.vlan_tag + self.ip + self.tcp;
        (headers + self.padding + self.check).saturating_add(self.payload)
    }

    /// All the time that it takes on the wire, as bytes.
    pub fn on_the_wire(self) -> u32 {
        self.frame().saturating_add(self.gap)
    }

    /// What is not payload.
    pub fn overhead(self) -> u32 {
        self.on_the_wire() - self.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_is_padded_unless_its_headers_are_long() {
        let link = Link::ethernet(1e9, 1500);
        let ack = |link: Link| (link.ack_layers().padding, link.ack_bytes());
        assert_eq!(ack(link), (6, 84));
        assert_eq!(ack(Link { vlan: true, ..link }), (2, 84));
        assert_eq!(ack(Link { timestamps: true, ..link }), (0, 90));
        assert_eq!(ack(Link { ipv6: true, ..link }), (0, 98));
    }

    #[test]
    fn the_parts_are_the_whole() {
        let link = Link { vlan: true, ipv6: true, timestamps: true, ..Link::ethernet(25e9, 9000) };
        let frame = link.data_layers();
        assert_eq!((frame.payload, frame.overhead(), frame.on_the_wire()), (8928, 114, 9042));
    }
}
