//! Parses a packet from a tap interface: either one Ethernet frame, or a TCP segment that represents several
//! frames. Also extracts some of these frames.
//!
//! No TCP checksums are computed. The kernel leaves them incomplete when it sends (`NEEDS_CSUM`: the field
//! contains the sum of the pseudo header), and accepts them as correct when it receives.

use std::ops::Range;

use host::tap::HEADER_BYTES as VIRTIO_BYTES;

/// The structure of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The flow: a number computed from addresses and ports. It is the same in both directions.
    pub(crate) flow: u64,
    /// The length of the packet after the virtio header, in bytes.
    bytes: usize,
    segment: Option<Segment>,
}

/// A TCP segment that represents several frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    /// The offset of the TCP header in the packet after the virtio header. The IP header starts at 14.
    tcp: usize,
    /// The length of the Ethernet, IP and TCP headers, which each frame repeats.
    headers_bytes: usize,
    /// The length of TCP's payload in each frame except the last.
    frame_payload_bytes: usize,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V4,
    V6,
}

impl Shape {
    /// Returns `None` if the packet is not an Ethernet frame, or if it is a segment with inconsistent
    /// headers.
    pub(crate) fn parse(packet: &[u8]) -> Option<Shape> {
        let frame = packet.get(VIRTIO_BYTES..)?;
        if frame.len() < ETHERNET_BYTES {
            return None;
        }
        let gso_type = packet[1] & !GSO_ECN;
        let segment = if gso_type == GSO_NONE {
            None
        } else {
            Some(segment(packet, frame, gso_type)?)
        };
        Some(Shape {
            flow: flow(frame),
            bytes: frame.len(),
            segment,
        })
    }

    /// Returns the number of frames.
    pub(crate) fn frames(&self) -> usize {
        match self.segment {
            None => 1,
            Some(segment) => self
                .payload_bytes(segment)
                .div_ceil(segment.frame_payload_bytes)
                .max(1),
        }
    }

    /// Returns the length of the IP packet in one of the frames, in bytes.
    pub(crate) fn ip_bytes(&self, frame: usize) -> u32 {
        let bytes = match self.segment {
            None => self.bytes,
            Some(segment) => {
                let before = frame * segment.frame_payload_bytes;
                let left = self.payload_bytes(segment).saturating_sub(before);
                segment.headers_bytes + left.min(segment.frame_payload_bytes)
            }
        };
        (bytes - ETHERNET_BYTES) as u32
    }

    fn payload_bytes(&self, segment: Segment) -> usize {
        self.bytes - segment.headers_bytes
    }
}

/// Returns the length of an Ethernet frame with an IP packet of this length, from the header to the check
/// sequence.
pub(crate) fn frame_bytes(ip_bytes: u32) -> u32 {
    (ip_bytes + 18).max(64)
}

/// Returns the length of this frame on the wire, including preamble and gap.
pub(crate) fn wire_bytes(ip_bytes: u32) -> u32 {
    frame_bytes(ip_bytes) + 20
}

/// Returns a packet that contains some consecutive frames of a packet. If it contains all of them, it is a
/// copy.
pub(crate) fn cut(packet: &[u8], shape: &Shape, frames: Range<usize>) -> Vec<u8> {
    let Some(segment) = shape.segment.filter(|_| frames != (0..shape.frames())) else {
        return packet.to_vec();
    };
    let headers_end = VIRTIO_BYTES + segment.headers_bytes;
    let payload = &packet[headers_end..];
    let from = frames.start * segment.frame_payload_bytes;
    let to = (frames.end * segment.frame_payload_bytes).min(payload.len());
    let mut part = Vec::with_capacity(headers_end + to - from);
    part.extend_from_slice(&packet[..headers_end]);
    part.extend_from_slice(&payload[from..to]);
    if frames.len() == 1 {
        part[1] = GSO_NONE;
        part[GSO_SIZE].fill(0);
    }
    let last = frames.end == shape.frames();
    let frame = &mut part[VIRTIO_BYTES..];
    correct_ip(frame, segment.version, frames.start as u16);
    correct_tcp(frame, segment, from as u32, frames.start == 0, last);
    part
}

/// Parses the segment in a packet, whose headers must have the form that the kernel uses.
fn segment(packet: &[u8], frame: &[u8], gso_type: u8) -> Option<Segment> {
    let frame_payload_bytes = usize::from(u16::from_ne_bytes(packet[GSO_SIZE].try_into().ok()?));
    let (version, tcp) = match gso_type {
        GSO_TCP4 => (
            Version::V4,
            ETHERNET_BYTES + usize::from(frame.get(IP)? & 0xf) * 4,
        ),
        GSO_TCP6 => (
            Version::V6,
            usize::from(u16::from_ne_bytes(packet[CSUM_START].try_into().ok()?)),
        ),
        _ => return None,
    };
    let shortest = match version {
        Version::V4 => ETHERNET_BYTES + 20,
        Version::V6 => ETHERNET_BYTES + 40,
    };
    let tcp_bytes = usize::from(frame.get(tcp.checked_add(12)?)? >> 4) * 4;
    let headers_bytes = tcp + tcp_bytes;
    let sound = frame_payload_bytes > 0
        && tcp >= shortest
        && tcp_bytes >= 20
        && headers_bytes <= frame.len();
    sound.then_some(Segment {
        tcp,
        headers_bytes,
        frame_payload_bytes,
        version,
    })
}

/// Corrects the length, identification and checksum of an IP header after some frames of the segment were
/// removed.
fn correct_ip(frame: &mut [u8], version: Version, frames_before: u16) {
    let bytes = (frame.len() - ETHERNET_BYTES) as u16;
    match version {
        Version::V4 => {
            frame[IP + 2..IP + 4].copy_from_slice(&bytes.to_be_bytes());
            let identification = be16(frame, IP + 4).wrapping_add(frames_before);
            frame[IP + 4..IP + 6].copy_from_slice(&identification.to_be_bytes());
            frame[IP + 10..IP + 12].fill(0);
            let header = IP..IP + usize::from(frame[IP] & 0xf) * 4;
            let checksum = !folded(sum(&frame[header]));
            frame[IP + 10..IP + 12].copy_from_slice(&checksum.to_be_bytes());
        }
        // The length in this header does not include the header itself.
        Version::V6 => frame[IP + 4..IP + 6].copy_from_slice(&(bytes - 40).to_be_bytes()),
    }
}

/// Corrects the sequence number, the flags and the incomplete checksum of a TCP header after some frames of
/// the segment were removed.
fn correct_tcp(frame: &mut [u8], segment: Segment, bytes_before: u32, first: bool, last: bool) {
    let tcp = segment.tcp;
    let sequence = u32::from_be_bytes([
        frame[tcp + 4],
        frame[tcp + 5],
        frame[tcp + 6],
        frame[tcp + 7],
    ]);
    frame[tcp + 4..tcp + 8].copy_from_slice(&sequence.wrapping_add(bytes_before).to_be_bytes());
    if !last {
        frame[tcp + 13] &= !(FIN | PSH);
    }
    if !first {
        frame[tcp + 13] &= !CWR;
    }
    let addresses = match segment.version {
        Version::V4 => IP + 12..IP + 20,
        Version::V6 => IP + 8..IP + 40,
    };
    let pseudo_header = sum(&frame[addresses]) + u64::from(TCP) + (frame.len() - tcp) as u64;
    frame[tcp + 16..tcp + 18].copy_from_slice(&folded(pseudo_header).to_be_bytes());
}

/// Returns a number for the flow of a frame, computed from its addresses and, for TCP and UDP, from its
/// ports. Returns 0 if the frame is not IP.
fn flow(frame: &[u8]) -> u64 {
    let ends = match be16(frame, ETHERNET_BYTES - 2) {
        0x0800 if frame.len() >= IP + 20 => {
            let header = usize::from(frame[IP] & 0xf) * 4;
            ends(
                frame,
                frame[IP + 9],
                IP + 12..IP + 16,
                IP + 16..IP + 20,
                IP + header,
            )
        }
        0x86dd if frame.len() >= IP + 40 => ends(
            frame,
            frame[IP + 6],
            IP + 8..IP + 24,
            IP + 24..IP + 40,
            IP + 40,
        ),
        _ => [0, 0],
    };
    // The sum does not depend on the order of the ends, so both directions are one flow.
    ends[0].wrapping_add(ends[1])
}

/// Returns a number for each end, computed from its address and port.
fn ends(
    frame: &[u8],
    protocol: u8,
    source: Range<usize>,
    destination: Range<usize>,
    ports: usize,
) -> [u64; 2] {
    let ports = match frame.get(ports..ports + 4) {
        Some(ports) if [TCP, UDP].contains(&protocol) => [&ports[..2], &ports[2..]],
        _ => [&[][..], &[]],
    };
    [(source, ports[0]), (destination, ports[1])].map(|(address, port)| {
        let bytes = frame[address].iter().chain(port);
        block::mix(bytes.fold(0, |number, &byte| block::mix(number << 8 ^ u64::from(byte))))
    })
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Returns the sum of 16-bit words (RFC 1071). An odd last byte is the high half of a word.
fn sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0)))
        .sum()
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

const ETHERNET_BYTES: usize = 14;
/// The offset of the IP header.
const IP: usize = ETHERNET_BYTES;
const TCP: u8 = 6;
const UDP: u8 = 17;
// Flags in byte 13 of the TCP header (RFC 9293 section 3.1). Only the first or the last frame of a segment
// has these.
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
// The virtio header (virtio 1.2 section 5.1.6): flags, gso_type, hdr_len, gso_size, csum_start, csum_offset.
const GSO_SIZE: Range<usize> = 4..6;
const CSUM_START: Range<usize> = 6..8;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_ECN: u8 = 0x80;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const MSS: usize = 1000;
    pub(crate) use super::Version;

    /// Returns a segment as the kernel passes it: virtio header, Ethernet, IP, TCP with timestamps, payload.
    pub(crate) fn made(version: Version, payload: &[u8], flags: u8) -> Vec<u8> {
        let tcp = ETHERNET_BYTES + if version == Version::V4 { 20 } else { 40 };
        let mut packet = vec![
            1,
            if version == Version::V4 {
                GSO_TCP4
            } else {
                GSO_TCP6
            },
            0,
            0,
        ];
        packet.extend((MSS as u16).to_ne_bytes());
        packet.extend((tcp as u16).to_ne_bytes());
        packet.extend(16u16.to_ne_bytes());
        packet.extend([0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2]);
        match version {
            Version::V4 => {
                packet.extend([
                    0x08, 0x00, 0x45, 0, 0, 0, 0xff, 0xff, 0x40, 0, 64, TCP, 0, 0,
                ]);
                packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            }
            Version::V6 => {
                packet.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, TCP, 64]);
                packet.extend((1..=32).collect::<Vec<u8>>());
            }
        }
        packet.extend([0x80, 0x00, 0x0c, 0xbc]); // ports 32768 and 3260
        packet.extend(0xffff_fc18u32.to_be_bytes()); // 1000 before the sequence numbers wrap
        packet.extend([0, 0, 0, 9, 0x80, flags, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        packet.extend(payload);
        let segment = segment(&packet, &packet[VIRTIO_BYTES..], packet[1]).expect("sound");
        let frame = &mut packet[VIRTIO_BYTES..];
        correct_ip(frame, version, 0);
        correct_tcp(frame, segment, 0, true, true);
        packet
    }

    pub(crate) fn payload(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|byte| (byte * 7 % 251) as u8).collect()
    }

    /// Returns the completed checksum, as a network card computes it: over the payload and the TCP header,
    /// which contains the incomplete sum.
    fn checksum_on_the_wire(packet: &[u8], version: Version) -> u16 {
        let tcp = VIRTIO_BYTES + ETHERNET_BYTES + if version == Version::V4 { 20 } else { 40 };
        !folded(sum(&packet[tcp..]))
    }

    /// Whether a receiver accepts the checksum over pseudo header, header and payload, which must be all
    /// ones.
    fn receiver_accepts(packet: &[u8], version: Version) -> bool {
        let frame = &packet[VIRTIO_BYTES..];
        let (tcp, addresses) = match version {
            Version::V4 => (IP + 20, IP + 12..IP + 20),
            Version::V6 => (IP + 40, IP + 8..IP + 40),
        };
        let mut segment = frame[tcp..].to_vec();
        segment[16..18].copy_from_slice(&checksum_on_the_wire(packet, version).to_be_bytes());
        let pseudo = sum(&frame[addresses]) + u64::from(TCP) + segment.len() as u64;
        let ip_is_sound = version == Version::V6 || folded(sum(&frame[IP..IP + 20])) == 0xffff;
        folded(pseudo + sum(&segment)) == 0xffff && ip_is_sound
    }

    #[test]
    fn a_segment_that_contradicts_itself_is_none() {
        let sound = made(Version::V4, &payload(2500), 0x10);
        let broken = |change: fn(&mut Vec<u8>)| {
            let mut packet = sound.clone();
            change(&mut packet);
            Shape::parse(&packet)
        };
        assert!(Shape::parse(&sound).is_some());
        assert_eq!(broken(|packet| packet.truncate(VIRTIO_BYTES + 13)), None);
        assert_eq!(broken(|packet| packet.truncate(VIRTIO_BYTES + 40)), None);
        assert_eq!(broken(|packet| packet[GSO_SIZE].fill(0)), None);
        assert_eq!(broken(|packet| packet[1] = 3), None); // UDP, which was not offered
        assert_eq!(broken(|packet| packet[VIRTIO_BYTES + IP] = 0x40), None); // no IP header
        assert_eq!(
            broken(|packet| packet[VIRTIO_BYTES + IP + 20 + 12] = 0),
            None
        ); // no TCP header
    }

    #[test]
    fn a_segment_counts_as_the_frames_that_it_would_be() {
        let shape = Shape::parse(&made(Version::V4, &payload(2500), 0x10)).expect("sound");
        assert_eq!(shape.frames(), 3);
        assert_eq!(
            [0, 1, 2].map(|frame| shape.ip_bytes(frame)),
            [1052, 1052, 552]
        );
        assert_eq!((frame_bytes(1500), wire_bytes(1500)), (1518, 1538));
        assert_eq!((frame_bytes(40), wire_bytes(40)), (64, 84)); // padded
    }

    #[test]
    fn parts_of_a_segment_are_sound_and_together_the_whole() {
        for version in [Version::V4, Version::V6] {
            let whole = payload(3500);
            let packet = made(version, &whole, CWR | PSH | FIN | 0x10);
            let shape = Shape::parse(&packet).expect("sound");
            assert!(receiver_accepts(&packet, version));
            let headers = shape.segment.expect("a segment").headers_bytes + VIRTIO_BYTES;
            let tcp = shape.segment.expect("a segment").tcp + VIRTIO_BYTES;
            let mut batch = Vec::new();
            for frames in [0..1, 1..3, 3..4] {
                let part = cut(&packet, &shape, frames.clone());
                assert!(receiver_accepts(&part, version), "{version:?} {frames:?}");
                let of_part = Shape::parse(&part).expect("sound");
                assert_eq!(of_part.frames(), frames.len());
                assert_eq!(of_part.flow, shape.flow);
                let sequence = u32::from_be_bytes(part[tcp + 4..tcp + 8].try_into().expect("four"));
                assert_eq!(sequence, 0xffff_fc18u32.wrapping_add(batch.len() as u32));
                assert_eq!(part[tcp + 13] & (FIN | PSH) != 0, frames.end == 4);
                assert_eq!(part[tcp + 13] & CWR != 0, frames.start == 0);
                batch.extend_from_slice(&part[headers..]);
            }
            assert_eq!(batch, whole);
            assert_eq!(cut(&packet, &shape, 0..4), packet);
        }
    }

    #[test]
    fn identifications_count_the_frames_before() {
        let packet = made(Version::V4, &payload(3000), 0x10);
        let shape = Shape::parse(&packet).expect("sound");
        let identification = |part: &[u8]| be16(part, VIRTIO_BYTES + IP + 4);
        assert_eq!(identification(&cut(&packet, &shape, 1..2)), 0); // 0xffff and one more
        assert_eq!(identification(&cut(&packet, &shape, 2..3)), 1);
    }

    #[test]
    fn both_directions_are_one_flow_and_ports_tell_flows_apart() {
        let packet = made(Version::V4, &payload(100), 0x10);
        let flow = Shape::parse(&packet).expect("sound").flow;
        let ip = VIRTIO_BYTES + IP;
        let mut back = packet.clone();
        back[ip + 12..ip + 20].rotate_left(4);
        back[ip + 20..ip + 24].rotate_left(2);
        assert_eq!(Shape::parse(&back).expect("sound").flow, flow);
        let mut other = packet.clone();
        other[ip + 21] ^= 1;
        assert_ne!(Shape::parse(&other).expect("sound").flow, flow);
    }
}
