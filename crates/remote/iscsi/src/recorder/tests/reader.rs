//! A small, strict reader of pcapng files. It checks all lengths, numbers and checksums in a file.

use std::collections::HashMap;

/// The content of a file.
#[derive(Debug)]
pub(super) struct File {
    /// Names and descriptions.
    pub(super) interfaces: Vec<(String, String)>,
    pub(super) packets: Vec<Packet>,
}

#[derive(Debug)]
pub(super) struct Packet {
    /// The source and the destination port.
    pub(super) ports: (u16, u16),
    /// The captured part of the payload, without the TCP header.
    pub(super) payload: Vec<u8>,
    /// The payload's original length.
    pub(super) payload_bytes: usize,
    pub(super) comment: Option<String>,
}

/// Parses a file.
pub(super) fn read(file: &[u8]) -> File {
    let mut read = File {
        interfaces: Vec::new(),
        packets: Vec::new(),
    };
    let mut streams = Streams::default();
    let mut last_ns = 0;
    let mut blocks = blocks(file).into_iter();
    let (kind, section) = blocks.next().expect("a section header");
    assert_eq!(
        (kind, u32_at(section, 0), u32_at(section, 4)),
        (0x0a0d_0d0a, 0x1a2b_3c4d, 1)
    );
    options(&section[16..]);
    for (kind, body) in blocks {
        match kind {
            1 => {
                assert_eq!(u16_at(body, 0), 101, "raw IP");
                let options = options(&body[8..]);
                assert_eq!(options[&9], [9], "nanoseconds");
                let text = |code| String::from_utf8(options[&code].clone()).unwrap();
                read.interfaces.push((text(2), text(3)));
            }
            6 => {
                assert!(
                    (u32_at(body, 0) as usize) < read.interfaces.len(),
                    "an interface that is there"
                );
                let at_ns = u64::from(u32_at(body, 4)) << 32 | u64::from(u32_at(body, 8));
                assert!(at_ns >= last_ns, "time does not run backwards");
                last_ns = at_ns;
                let (captured, original) = (u32_at(body, 12) as usize, u32_at(body, 16) as usize);
                assert!(captured <= original && original <= 65_535);
                let comment = options(&body[20 + captured.next_multiple_of(4)..]).remove(&1);
                let packet = packet(&body[20..20 + captured], original, &mut streams);
                let comment = comment.map(|text| String::from_utf8(text).unwrap());
                read.packets.push(Packet { comment, ..packet });
            }
            other => panic!("a block of kind {other}"),
        }
    }
    read
}

/// Returns the types and bodies of all blocks. Both lengths of each block must be equal.
fn blocks(mut file: &[u8]) -> Vec<(u32, &[u8])> {
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let length = u32_at(file, 4) as usize;
        assert!(length.is_multiple_of(4) && length >= 12);
        assert_eq!(u32_at(file, length - 4) as usize, length);
        blocks.push((u32_at(file, 0), &file[8..length - 4]));
        file = &file[length..];
    }
    blocks
}

fn options(mut bytes: &[u8]) -> HashMap<u16, Vec<u8>> {
    let mut options = HashMap::new();
    while !bytes.is_empty() {
        let (code, length) = (u16_at(bytes, 0), usize::from(u16_at(bytes, 2)));
        let end = 4 + length.next_multiple_of(4);
        if code == 0 {
            assert_eq!((length, bytes.len()), (0, 4), "the end is the end");
            return options;
        }
        options.insert(code, bytes[4..4 + length].to_vec());
        bytes = &bytes[end..];
    }
    options
}

/// The next sequence number of every sender, by ports.
type Streams = HashMap<(u16, u16), u32>;

/// Parses an IP packet with TCP. Its sequence number must continue where the sender's last packet ended.
fn packet(captured: &[u8], original: usize, streams: &mut Streams) -> Packet {
    let header = match captured[0] {
        0x45 => {
            assert_eq!(usize::from(be16(captured, 2)), original);
            let sum: u32 = (0..10)
                .map(|word| u32::from(be16(captured, word * 2)))
                .sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the checksum of IPv4");
            20
        }
        0x60 => {
            assert_eq!(usize::from(be16(captured, 4)) + 40, original);
            40
        }
        other => panic!("IP version and header length are {other:#04x}"),
    };
    let tcp = &captured[header..];
    let (ports, flags) = ((be16(tcp, 0), be16(tcp, 2)), tcp[13]);
    let (sequence, acknowledged) = (be32(tcp, 4), be32(tcp, 8));
    let begin = header + usize::from(tcp[12] >> 4) * 4;
    let payload_bytes = original - begin;
    let is_syn = flags & 2 != 0;
    if !is_syn {
        assert_eq!(
            streams.get(&ports),
            Some(&sequence),
            "no gap, and nothing twice"
        );
        assert_eq!(streams.get(&(ports.1, ports.0)), Some(&acknowledged));
    }
    let takes_a_number = u32::from(flags & 3 != 0);
    streams.insert(
        ports,
        sequence.wrapping_add(payload_bytes as u32 + takes_a_number),
    );
    Packet {
        ports,
        payload: captured[begin..].to_vec(),
        payload_bytes,
        comment: None,
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]))
}
