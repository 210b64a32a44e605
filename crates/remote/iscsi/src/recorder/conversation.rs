//! Converts a tape to packets: a synthetic TCP connection with the recorded PDUs.
//!
//! The original segments are not recorded; a PDU is one packet here, or several if it is longer than a packet
//! can be. Addresses, ports and times are the original ones. Sequence numbers count the bytes that are in the
//! file: PDUs that the tape no longer has leave no gap in them, or every reader would complain of lost
//! segments. Windows are as large as windows can be, checksums of TCP are left to "the hardware", as in
//! captures on the sending host. Data that were not kept are "cut by the snapshot length": readers know
//! those, and check no digest over them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::pcapng::Packet;
use super::tape::{Direction, Ends, Recorded, Tape};

/// Which moment of the monotonic clock was what time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) instant: Instant,
    /// Since 1970.
    pub(super) wall: Duration,
}

impl Clock {
    /// Nanoseconds since 1970.
    fn ns(self, at: Instant) -> u64 {
        let wall = match at.checked_duration_since(self.instant) {
            Some(later) => self.wall.saturating_add(later),
            None => self.wall.saturating_sub(self.instant - at),
        };
        u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The packets of a tape, in their order.
pub(super) fn packets(tape: &Tape, clock: Clock, interface: u32) -> Vec<Packet> {
    let mut recorded = tape.recorded().peekable();
    let ending = tape.ending();
    let Some(begin) = recorded.peek().map(|first| first.at).or(ending.map(|(at, _)| at)) else {
        return Vec::new();
    };
    let mut conversation = Conversation::new(tape.ends(), clock, interface);
    conversation.open(begin);
    recorded.for_each(|pdu| conversation.pdu(&pdu));
    if let Some((at, why)) = ending {
        conversation.close(at, why);
    }
    conversation.packets
}

struct Conversation {
    clock: Clock,
    interface: u32,
    /// This end's address and the peer's, both of one family.
    addresses: [SocketAddr; 2],
    /// The next sequence number of either.
    sequence: [u32; 2],
    /// When the last packet was: none is earlier than the one before it.
    now_ns: u64,
    packets: Vec<Packet>,
}

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// MSS 65495, as on the loopback; no operation; window scale 14, the largest (RFC 7323 section 2.3).
const SYN_OPTIONS: &[u8] = &[2, 4, 0xff, 0xd7, 1, 3, 3, 14];
const WINDOW: u16 = u16::MAX;
/// An IPv4 packet of 65535 bytes has room for more, with headers of 40.
const SEGMENT_BYTES_MAX: usize = 65_000;
/// Where a TCP header without options ends.
const TCP_BYTES: usize = 20;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP: u8 = 6;
const HOPS: u8 = 64;

/// What a packet carries.
#[derive(Clone, Copy, Default)]
struct Segment<'a> {
    flags: u8,
    options: &'a [u8],
    kept: &'a [u8],
    bytes: usize,
    remark: Option<&'a str>,
}

impl Conversation {
    fn new(ends: &Ends, clock: Clock, interface: u32) -> Conversation {
        // One conversation's first number differs from the next one's, so that two between the same ports are
        // not taken for one.
        let sequence = [interface << 16; 2];
        let addresses = of_one_family(ends);
        Conversation { clock, interface, addresses, sequence, now_ns: 0, packets: Vec::new() }
    }

    fn open(&mut self, at: Instant) {
        let syn = Segment { flags: SYN, options: SYN_OPTIONS, ..Segment::default() };
        self.segment(at, Direction::Sent, syn);
        self.segment(at, Direction::Received, Segment { flags: SYN | ACK, ..syn });
        self.segment(at, Direction::Sent, Segment { flags: ACK, ..Segment::default() });
    }

    /// Everything that is kept of a PDU fits in its first packet.
    fn pdu(&mut self, pdu: &Recorded) {
        let first = pdu.wire_bytes.min(SEGMENT_BYTES_MAX);
        let kept = &pdu.kept[..pdu.kept.len().min(first)];
        let flags = PSH | ACK;
        let segment = Segment { flags, kept, bytes: first, remark: pdu.remark.as_deref(), options: &[] };
        self.segment(pdu.at, pdu.direction, segment);
        let mut left = pdu.wire_bytes - first;
        while left > 0 {
            let bytes = left.min(SEGMENT_BYTES_MAX);
            self.segment(pdu.at, pdu.direction, Segment { flags, bytes, ..Segment::default() });
            left -= bytes;
        }
    }

    fn close(&mut self, at: Instant, why: &str) {
        let fin = Segment { flags: FIN | ACK, remark: Some(why), ..Segment::default() };
        self.segment(at, Direction::Sent, fin);
    }

    fn segment(&mut self, at: Instant, direction: Direction, segment: Segment<'_>) {
        let (from, to) = match direction {
            Direction::Sent => (0, 1),
            Direction::Received => (1, 0),
        };
        let tcp = self.tcp(from, to, &segment);
        let mut captured = ip(self.addresses[from], self.addresses[to], tcp.len() + segment.bytes);
        captured.extend_from_slice(&tcp);
        let original = captured.len() + segment.bytes;
        captured.extend_from_slice(segment.kept);
        self.now_ns = self.now_ns.max(self.clock.ns(at));
        self.packets.push(Packet {
            at_ns: self.now_ns,
            interface: self.interface,
            captured,
            original_bytes: original as u32, // a segment is short
            comment: segment.remark.map(str::to_owned),
        });
        let takes_a_number = u32::from(segment.flags & (SYN | FIN) != 0);
        let next = &mut self.sequence[from];
        *next = next.wrapping_add(segment.bytes as u32).wrapping_add(takes_a_number);
    }

    /// RFC 9293 section 3.1.
    fn tcp(&self, from: usize, to: usize, segment: &Segment<'_>) -> Vec<u8> {
        let acknowledged = if segment.flags & ACK != 0 { self.sequence[to] } else { 0 };
        let words = (TCP_BYTES + segment.options.len()) / 4;
        let mut header = self.addresses[from].port().to_be_bytes().to_vec();
        header.extend_from_slice(&self.addresses[to].port().to_be_bytes());
        header.extend_from_slice(&self.sequence[from].to_be_bytes());
        header.extend_from_slice(&acknowledged.to_be_bytes());
        header.extend_from_slice(&[(words as u8) << 4, segment.flags]);
        header.extend_from_slice(&WINDOW.to_be_bytes());
        header.extend_from_slice(&[0; 4]); // checksum, urgent pointer
        header.extend_from_slice(segment.options);
        header
    }
}

/// IPv4-mapped if only one of them is an IPv6 address, which no real connection has.
fn of_one_family(ends: &Ends) -> [SocketAddr; 2] {
    let (local, peer) = (ends.local, ends.peer);
    if local.is_ipv4() == peer.is_ipv4() {
        return [local, peer];
    }
    [local, peer].map(|end| SocketAddr::new(IpAddr::V6(mapped(end.ip())), end.port()))
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The header in front of so many bytes.
fn ip(from: SocketAddr, to: SocketAddr, bytes: usize) -> Vec<u8> {
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ipv4(from, to, bytes).to_vec(),
        (from, to) => ipv6(mapped(from), mapped(to), bytes),
    }
}

/// RFC 791 section 3.1: no options, not to be fragmented.
fn ipv4(from: Ipv4Addr, to: Ipv4Addr, bytes: usize) -> [u8; IPV4_BYTES] {
    let [high, low] = ((IPV4_BYTES + bytes) as u16).to_be_bytes();
    let ([a, b, c, d], [e, f, g, h]) = (from.octets(), to.octets());
    let mut header = [0x45, 0, high, low, 0, 0, 0x40, 0, HOPS, TCP, 0, 0, a, b, c, d, e, f, g, h];
    let checksum = internet_checksum(&header).to_be_bytes();
    header[10..12].copy_from_slice(&checksum);
    header
}

/// RFC 1071, over an even number of bytes.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}

/// RFC 8200 section 3.
fn ipv6(from: Ipv6Addr, to: Ipv6Addr, bytes: usize) -> Vec<u8> {
    let mut header = Vec::with_capacity(IPV6_BYTES);
    header.extend_from_slice(&[0x60, 0, 0, 0]);
    header.extend_from_slice(&(bytes as u16).to_be_bytes());
    header.extend_from_slice(&[TCP, HOPS]);
    header.extend_from_slice(&from.octets());
    header.extend_from_slice(&to.octets());
    header
}
