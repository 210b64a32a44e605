//! Writing pcapng files (draft-ietf-opsawg-pcapng): a section header, interfaces, packets.
//!
//! Three kinds of block and five options are all that a recording needs; `docs/dependencies.md` says why no
//! crate writes them.

/// A file under construction. The interfaces come before the packets, which name them by their number.
pub(super) struct Writer {
    file: Vec<u8>,
}

/// A packet as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// Nanoseconds since 1970.
    pub(super) at_ns: u64,
    /// The number of its interface, from 0.
    pub(super) interface: u32,
    /// From the IP header on, as far as it was kept.
    pub(super) captured: Vec<u8>,
    /// How long it was, in bytes: no less than was kept.
    pub(super) original_bytes: u32,
    /// For people.
    pub(super) comment: Option<String>,
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// How a reader finds out in which order we write numbers.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Packets begin with an IPv4 or IPv6 header (LINKTYPE_RAW).
const LINKTYPE_RAW: u16 = 101;

const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
/// 10⁻⁹ s.
const NANOSECONDS: u8 = 9;

impl Writer {
    /// Begins a file with the name of the program, and a comment for the reader.
    pub(super) fn new(application: &str, comment: &str) -> Writer {
        let mut writer = Writer { file: Vec::new() };
        let mut body = BYTE_ORDER.to_le_bytes().to_vec();
        body.extend_from_slice(&1u16.to_le_bytes()); // version 1.0
        body.extend_from_slice(&0u16.to_le_bytes());
        body.extend_from_slice(&u64::MAX.to_le_bytes()); // the section's length: not given
        option(&mut body, OPT_COMMENT, comment.as_bytes());
        option(&mut body, SHB_USERAPPL, application.as_bytes());
        end_of_options(&mut body);
        writer.block(SECTION_HEADER, &body);
        writer
    }

    /// The next interface.
    pub(super) fn interface(&mut self, name: &str, description: &str) {
        let mut body = LINKTYPE_RAW.to_le_bytes().to_vec();
        body.extend_from_slice(&[0; 6]); // reserved; packets of any length
        option(&mut body, IF_NAME, name.as_bytes());
        option(&mut body, IF_DESCRIPTION, description.as_bytes());
        option(&mut body, IF_TSRESOL, &[NANOSECONDS]);
        end_of_options(&mut body);
        self.block(INTERFACE_DESCRIPTION, &body);
    }

    /// The next packet.
    pub(super) fn packet(&mut self, packet: &Packet) {
        let mut body = packet.interface.to_le_bytes().to_vec();
        body.extend_from_slice(&((packet.at_ns >> 32) as u32).to_le_bytes());
        body.extend_from_slice(&(packet.at_ns as u32).to_le_bytes());
        body.extend_from_slice(&(packet.captured.len() as u32).to_le_bytes());
        body.extend_from_slice(&packet.original_bytes.to_le_bytes());
        padded(&mut body, &packet.captured);
        if let Some(comment) = &packet.comment {
            option(&mut body, OPT_COMMENT, comment.as_bytes());
            end_of_options(&mut body);
        }
        self.block(ENHANCED_PACKET, &body);
    }

    /// The file.
    pub(super) fn finish(self) -> Vec<u8> {
        self.file
    }

    /// A block: its kind, its length, the body, and its length again.
    fn block(&mut self, kind: u32, body: &[u8]) {
        let length = (body.len() as u32 + 12).to_le_bytes();
        self.file.extend_from_slice(&kind.to_le_bytes());
        self.file.extend_from_slice(&length);
        self.file.extend_from_slice(body);
        self.file.extend_from_slice(&length);
    }
}

/// An option; one that is longer than an option can be is cut there.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    body.extend_from_slice(&code.to_le_bytes());
    body.extend_from_slice(&length.to_le_bytes());
    padded(body, &value[..usize::from(length)]);
}

fn end_of_options(body: &mut Vec<u8>) {
    body.extend_from_slice(&[0; 4]);
}

/// Everything in a file begins at a multiple of four bytes.
fn padded(body: &mut Vec<u8>, bytes: &[u8]) {
    body.extend_from_slice(bytes);
    body.resize(body.len().next_multiple_of(4), 0);
}
