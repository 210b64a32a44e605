//! Frames: the header published by Wireshark's dissector, followed by the fields of this project.
//!
//! ```text
//!  byte 0        1        2        3         4
//!  ┌────┬──────────┬─┬──────────┬─────────┬─┬────────┐
//!  │ 0  │ tag 9    │L│ frag. 10 │ version │P│ opcode │   as published; P and everything below is ours
//!  └────┴──────────┴─┴──────────┴─────────┴─┴────────┘
//!  5 length u16 │ 7 session u32 │ 11 epoch u16 │ 13 flags and path │ 14 number u48 │ 20 message u32 │
//!  24 message length u32 │ 28 body … │ AEAD tag (16 bytes, P = 1) or CRC32C (4 bytes, P = 0) │ padding
//! ```
//!
//! All numbers are big-endian. Bytes after the trailer are network padding and ignored.
//!
//! A frame to send consists of pieces ([`Frame`]): message data stays in place ([`Payload`]) until the kernel
//! copies it. Sealed (encrypted and authenticated) data must be copied. The trailer proves that a frame was
//! not damaged (CRC32C), or that the peer of the login sent it (AEAD). The header is in clear, and the
//! trailer covers it in both cases. The AEAD nonce is the frame's path and number, which is unique within an
//! epoch; the key belongs to one direction of one epoch.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::{fmt, iter};

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};
use derive_more::{Display, Error};
use num_enum::TryFromPrimitive;
use ring::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

/// The EtherType of HyperSCSI.
pub const ETHERTYPE: u16 = 0x889a;
/// The UDP port of HyperSCSI, assigned by IANA ("hyperscsi-port").
pub const UDP_PORT: u16 = 5674;
/// Our version byte, which no implementation of 2002 is known to have used.
pub const VERSION: u8 = 0x52;
/// Bytes before the body.
pub const HEADER_BYTES: usize = 28;
/// Bytes after the body of a sealed frame.
pub const TAG_BYTES: usize = 16;
/// Bytes after the body of a frame that is not sealed.
pub const CRC_BYTES: usize = 4;
/// Minimum frame size that both sides must support: IPv6's minimum MTU minus the IPv6 and UDP headers.
pub const FRAME_BYTES_MIN: usize = 1232;
/// Maximum frame size: a jumbo frame of 9,216 bytes.
pub const FRAME_BYTES_MAX: usize = 9216;
/// Maximum number of open messages: the number of tags.
pub const MESSAGES_OPEN_MAX: u32 = 512;
/// Maximum number of fragments of a message.
pub const FRAGMENTS_MAX: usize = 1024;
/// Offset of the session number in a frame.
pub const SESSION_AT: u16 = 7;
/// Maximum number of paths of a session.
pub const PATHS_MAX: usize = 8;
/// All numbers of frames are below this limit.
pub const NUMBER_END: u64 = 1 << 48;

const ACK: u8 = 0x80;
const CONTROL: u8 = 0x40;
const ASK: u8 = 0x20;
const BUNDLE: u8 = 0x10;
const PATH: u8 = 0x07;

/// The type of a frame (the dissector's table of opcodes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromPrimitive)]
#[repr(u8)]
pub enum Opcode {
    /// "Command Block Encap Request": a command or a task management function.
    Request = 0x00,
    /// "Command Block Encap Reply".
    Reply = 0x01,
    /// "Device Discovery Reply": both the question and the answer.
    Discovery = 0x10,
    /// "Auth/Device Neg Request".
    LoginRequest = 0x11,
    /// "Auth/Device Neg Reply".
    LoginReply = 0x12,
    /// "Disconnect Request".
    Disconnect = 0x13,
    /// "Flow Control Setup/Ack Request": asks for an acknowledgement.
    AckRequest = 0x20,
    /// "Flow Control Ack Reply".
    Ack = 0x21,
}

impl Opcode {
    /// Whether a frame belongs to a session, and its body is a fragment of a message.
    pub fn carries_message(self) -> bool {
        matches!(self, Opcode::Request | Opcode::Reply | Opcode::Disconnect)
    }

    /// Whether a frame belongs to no session.
    pub fn is_outside_sessions(self) -> bool {
        matches!(
            self,
            Opcode::Discovery | Opcode::LoginRequest | Opcode::LoginReply
        )
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type of the frame.
    pub opcode: Opcode,
    /// P: the body is sealed with the keys of the session's epoch.
    pub sealed: bool,
    /// The last fragment of its message.
    pub last: bool,
    /// Number of the fragment in its message, below [`FRAGMENTS_MAX`].
    pub fragment: u16,
    /// Bytes of the body.
    pub length: u16,
    /// The session; 0 outside sessions.
    pub session: u32,
    /// The login of the session to which the frame belongs.
    pub epoch: u16,
    /// The path on which it is sent, below [`PATHS_MAX`].
    pub path: u8,
    /// The body begins with an acknowledgement.
    pub has_ack: bool,
    /// The message needs no credit, because it is short and fits into one frame.
    pub control: bool,
    /// The sender's window is full: it waits for an acknowledgement.
    pub ask: bool,
    /// Whole messages with the next numbers follow the first one. Each is preceded by its length (u16).
    pub bundle: bool,
    /// Number of the frame in one direction of its path, below [`NUMBER_END`]. Numbers are unique within an epoch.
    pub number: u64,
    /// Number of the message; the tag is its lowest nine bits.
    pub message: u32,
    /// Length of the whole message.
    pub message_bytes: u32,
}

/// Why received bytes are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum Malformed {
    /// Too short for its header, or for the length in the header.
    #[display("the frame is shorter than the length in its header")]
    Truncated,
    /// Another version of the protocol.
    #[display("the frame has version 0x{_0:02x}, but this is version 0x{VERSION:02x}")]
    Version(#[error(not(source))] u8),
    /// An unknown opcode.
    #[display("the frame has the unknown opcode 0x{_0:02x}")]
    Opcode(#[error(not(source))] u8),
    /// A reserved bit is set.
    #[display("the frame has a reserved bit set")]
    Reserved,
    /// The tag does not match the message number.
    #[display("the frame's tag does not match its message")]
    Tag,
    /// Flags or numbers that this opcode cannot have.
    #[display("the frame has fields that are invalid for its opcode")]
    Fields,
}

impl Header {
    /// The header of a frame without a message.
    pub fn plain(opcode: Opcode) -> Header {
        Header {
            opcode,
            sealed: false,
            last: true,
            fragment: 0,
            length: 0,
            session: 0,
            epoch: 0,
            path: 0,
            has_ack: false,
            control: false,
            ask: false,
            bundle: false,
            number: 0,
            message: 0,
            message_bytes: 0,
        }
    }

    /// The tag: nine bits.
    pub fn tag(&self) -> u16 {
        (self.message % MESSAGES_OPEN_MAX) as u16
    }

    /// Bytes after the body.
    pub fn trailer_bytes(&self) -> usize {
        if self.sealed { TAG_BYTES } else { CRC_BYTES }
    }

    /// Reads a header. Checks that the frame has a body and a trailer of the stated length, but not their
    /// content.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(frame: &[u8]) -> Result<Header, Malformed> {
        let head: &[u8; HEADER_BYTES] = frame.first_chunk().ok_or(Malformed::Truncated)?;
        let u32_at =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let u16_at = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        if head[3] != VERSION {
            return Err(Malformed::Version(head[3]));
        }
        let code = head[4] & 0x7f;
        let opcode = Opcode::try_from(code).map_err(|_| Malformed::Opcode(code))?;
        let word = u32_at(0) >> 8;
        if word >> 20 != 0 || head[13] & !(ACK | CONTROL | ASK | BUNDLE | PATH) != 0 {
            return Err(Malformed::Reserved);
        }
        let header = Header {
            opcode,
            sealed: head[4] & 0x80 != 0,
            last: word >> 10 & 1 == 1,
            fragment: (word & 0x3ff) as u16,
            length: u16_at(5),
            session: u32_at(usize::from(SESSION_AT)),
            epoch: u16_at(11),
            path: head[13] & PATH,
            has_ack: head[13] & ACK != 0,
            control: head[13] & CONTROL != 0,
            ask: head[13] & ASK != 0,
            bundle: head[13] & BUNDLE != 0,
            number: u64::from(u16_at(14)) << 32 | u64::from(u32_at(16)),
            message: u32_at(20),
            message_bytes: u32_at(24),
        };
        if u32::from(header.tag()) != word >> 11 & 0x1ff {
            return Err(Malformed::Tag);
        }
        if frame.len() - HEADER_BYTES < usize::from(header.length) + header.trailer_bytes() {
            return Err(Malformed::Truncated);
        }
        header.check()?;
        Ok(header)
    }

    /// Checks the fields against the opcode.
    fn check(&self) -> Result<(), Malformed> {
        let is_whole =
            self.last && self.fragment == 0 && self.message == 0 && self.message_bytes == 0;
        let is_right = match self.opcode {
            Opcode::Request | Opcode::Reply => {
                !self.bundle || self.last && self.fragment == 0 && !self.control
            }
            Opcode::Disconnect => !self.bundle,
            Opcode::AckRequest | Opcode::Ack => is_whole && !(self.control || self.bundle),
            Opcode::Discovery | Opcode::LoginRequest | Opcode::LoginReply => {
                let is_bare =
                    !(self.control || self.has_ack || self.ask || self.bundle || self.sealed);
                is_whole && is_bare && self.session == 0 && self.epoch == 0 && self.number == 0
            }
        };
        if is_right {
            Ok(())
        } else {
            Err(Malformed::Fields)
        }
    }

    /// The bytes of the header.
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        debug_assert!(
            usize::from(self.fragment) < FRAGMENTS_MAX && usize::from(self.path) < PATHS_MAX
        );
        debug_assert!(
            self.number < NUMBER_END,
            "the numbers of an epoch are used up"
        );
        let mut bytes = [0; HEADER_BYTES];
        let word = u32::from(self.tag()) << 11
            | u32::from(self.last) << 10
            | u32::from(self.fragment & 0x3ff);
        bytes[..3].copy_from_slice(&word.to_be_bytes()[1..]);
        bytes[3] = VERSION;
        bytes[4] = self.opcode as u8 | if self.sealed { 0x80 } else { 0 };
        bytes[5..7].copy_from_slice(&self.length.to_be_bytes());
        bytes[usize::from(SESSION_AT)..][..4].copy_from_slice(&self.session.to_be_bytes());
        bytes[11..13].copy_from_slice(&self.epoch.to_be_bytes());
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        bytes[13] = self.path & PATH
            | flag(self.has_ack, ACK)
            | flag(self.control, CONTROL)
            | flag(self.ask, ASK)
            | flag(self.bundle, BUNDLE);
        bytes[14..20].copy_from_slice(&self.number.to_be_bytes()[2..]);
        bytes[20..24].copy_from_slice(&self.message.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.message_bytes.to_be_bytes());
        bytes
    }
}

/// Minimum length of a separate data piece: shorter data is cheaper to copy.
const PIECE_BYTES_MIN: usize = 1024;
/// Maximum number of data pieces in a frame. Before the first and after each is a piece of the frame's own bytes.
const DATA_PIECES_MAX: usize = 3;

/// A frame.
#[derive(Debug, Default)]
pub struct Frame {
    /// Header, acknowledgement, heads and short data of messages, trailer, padding.
    pub(crate) bytes: Vec<u8>,
    /// Data of messages, each with its position in `bytes`.
    data: Vec<(usize, Payload)>,
    /// The frame will be sealed, so data must not be in separate pieces.
    is_sealed: bool,
}

impl Frame {
    /// Maximum number of pieces of a frame.
    pub const PIECES_MAX: usize = 2 * DATA_PIECES_MAX + 1;

    /// An empty frame that reuses this memory.
    pub(crate) fn over(bytes: Vec<u8>) -> Frame {
        let mut frame = Frame {
            bytes,
            ..Frame::default()
        };
        frame.clear();
        frame
    }

    /// Empties the frame.
    pub fn clear(&mut self) {
        self.begin(false);
    }

    pub(crate) fn begin(&mut self, is_sealed: bool) {
        self.bytes.clear();
        self.data.clear();
        self.is_sealed = is_sealed;
    }

    /// Its bytes in order, in up to [`Frame::PIECES_MAX`] pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self
            .data
            .iter()
            .map(|(end, _)| *end)
            .chain([self.bytes.len()]);
        let starts = iter::once(0).chain(self.data.iter().map(|(end, _)| *end));
        let own = starts.zip(ends).map(|(start, end)| &self.bytes[start..end]);
        let data = self
            .data
            .iter()
            .map(|(_, data)| Some(&**data))
            .chain([None]);
        own.zip(data)
            .flat_map(|(own, data)| iter::once(own).chain(data))
    }

    /// Its bytes in one piece.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        if self.data.is_empty() {
            self.bytes
        } else {
            self.pieces().collect::<Vec<&[u8]>>().concat()
        }
    }

    /// The number of its bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.data.iter().map(|(_, data)| data.len()).sum::<usize>()
    }

    /// Whether the frame is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pads the frame to at least this length.
    pub fn pad(&mut self, bytes: usize) {
        let missing = bytes.saturating_sub(self.len());
        self.bytes.resize(self.bytes.len() + missing, 0);
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn put_data(&mut self, all: &Payload, start: usize, end: usize) {
        debug_assert!(start <= end && end <= all.len(), "a part beyond the data");
        if end - start < PIECE_BYTES_MIN || self.is_sealed || self.data.len() == DATA_PIECES_MAX {
            self.put(&all[start..end]);
        } else {
            self.data.push((self.bytes.len(), all.part(start..end)));
        }
    }

    pub(crate) fn crc(&self) -> u32 {
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        self.pieces().for_each(|piece| digest.update(piece));
        digest.finalize() as u32
    }
}

/// Bytes of a shared buffer. A clone refers to the same bytes.
#[derive(Clone, Default)]
pub struct Payload {
    /// `None`: no bytes.
    buffer: Option<Arc<dyn AsRef<[u8]> + Send + Sync>>,
    range: Range<usize>,
}

impl Payload {
    /// All bytes of a buffer. They must not change while the payload exists.
    pub fn new(buffer: impl AsRef<[u8]> + Send + Sync + 'static) -> Payload {
        let range = 0..buffer.as_ref().len();
        if range.is_empty() {
            Payload::default()
        } else {
            Payload {
                buffer: Some(Arc::new(buffer)),
                range,
            }
        }
    }

    /// A part of the payload. A range beyond its end is truncated.
    pub fn part(&self, part: Range<usize>) -> Payload {
        let end = (self.range.start + part.end).min(self.range.end);
        let start = (self.range.start + part.start).min(end);
        Payload {
            buffer: self.buffer.clone(),
            range: start..end,
        }
    }

    /// Truncates the payload to this many bytes.
    pub fn truncate(&mut self, bytes: usize) {
        self.range.end = self.range.end.min(self.range.start + bytes);
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self
            .buffer
            .as_ref()
            .map_or(&[][..], |buffer| (**buffer).as_ref());
        bytes.get(self.range.clone()).unwrap_or_default()
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Payload {
        Payload::new(bytes)
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Payload {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Eq for Payload {}

/// The cipher that seals the frames of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// AES-256-GCM: the faster one on processors with AES instructions.
    Aes256Gcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

/// The protection of an epoch's frames.
pub(crate) enum Protection {
    /// Detects damage, but not forgery.
    Crc,
    /// Detects damage and forgery. The keys are this side's and the peer's.
    Aead {
        ours: Box<LessSafeKey>,
        theirs: Box<LessSafeKey>,
    },
}

impl fmt::Debug for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_aead() { "Aead" } else { "Crc" })
    }
}

impl Protection {
    pub(crate) fn aead(cipher: Cipher, ours: &[u8; 32], theirs: &[u8; 32]) -> Protection {
        let algorithm: &'static Algorithm = match cipher {
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = |bytes| {
            let key = UnboundKey::new(algorithm, bytes);
            Box::new(LessSafeKey::new(
                key.expect("both ciphers have keys of 32 bytes"),
            ))
        };
        Protection::Aead {
            ours: key(ours),
            theirs: key(theirs),
        }
    }

    pub(crate) fn is_aead(&self) -> bool {
        matches!(self, Protection::Aead { .. })
    }

    /// Bytes after a body.
    pub(crate) fn trailer_bytes(&self) -> usize {
        if self.is_aead() { TAG_BYTES } else { CRC_BYTES }
    }

    /// Completes a frame that consists of this header and the following body.
    pub(crate) fn seal(&self, header: &Header, frame: &mut Frame) {
        debug_assert_eq!(
            frame.len() - HEADER_BYTES,
            usize::from(header.length),
            "the length of the body"
        );
        match self {
            Protection::Crc => frame.put(&frame.crc().to_be_bytes()),
            Protection::Aead { ours, .. } => {
                debug_assert!(frame.data.is_empty(), "encrypted data is in one piece");
                let (head, body) = frame.bytes.split_at_mut(HEADER_BYTES);
                let tag = ours.seal_in_place_separate_tag(nonce(header), Aad::from(&*head), body);
                frame.put(
                    tag.expect("a frame is shorter than a cipher's limit")
                        .as_ref(),
                );
            }
        }
    }

    /// The body of a frame whose trailer is valid. The length was checked by [`Header::parse`].
    pub(crate) fn open<'a>(&self, header: &Header, frame: &'a mut [u8]) -> Option<&'a [u8]> {
        if header.sealed != self.is_aead() {
            return None;
        }
        let end = HEADER_BYTES + usize::from(header.length);
        match self {
            Protection::Crc => {
                let crc = frame.get(end..end + CRC_BYTES)?;
                (crc == crc32_iscsi(&frame[..end]).to_be_bytes()).then(|| &frame[HEADER_BYTES..end])
            }
            Protection::Aead { theirs, .. } => {
                let (head, sealed) = frame.get_mut(..end + TAG_BYTES)?.split_at_mut(HEADER_BYTES);
                let body = theirs.open_in_place(nonce(header), Aad::from(&*head), sealed);
                body.ok().map(|body| &*body)
            }
        }
    }
}

fn nonce(header: &Header) -> Nonce {
    let mut bytes = [0; 12];
    bytes[0] = header.path;
    bytes[4..].copy_from_slice(&header.number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(frame: &Frame) -> Vec<Vec<u8>> {
        frame.pieces().map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn long_data_stay_where_they_are() {
        let data = Payload::from((0..5000).map(|at| at as u8).collect::<Vec<u8>>());
        let mut frame = Frame::default();
        frame.put(b"head");
        frame.put_data(&data, 0, 2000);
        frame.put(b"x");
        frame.put_data(&data, 1990, 2000);
        frame.put_data(&data, 2000, 4000);
        frame.put(b"tail");
        let wanted = [
            b"head",
            &data[..2000],
            b"x",
            &data[1990..2000],
            &data[2000..4000],
            b"tail",
        ]
        .concat();
        assert_eq!(pieces(&frame).concat(), wanted);
        assert_eq!((pieces(&frame).len(), frame.len()), (5, wanted.len()));
        assert!(
            frame
                .pieces()
                .any(|piece| piece.as_ptr() == data[2000..].as_ptr())
        );
        assert_eq!(frame.crc(), crc_fast::crc32_iscsi(&wanted));
        frame.pad(wanted.len() + 2);
        assert_eq!(pieces(&frame).concat(), [&wanted[..], &[0, 0]].concat());
        frame.begin(true);
        frame.put_data(&data, 0, 5000);
        assert_eq!(pieces(&frame), [data.to_vec()], "it will be sealed");
    }

    #[test]
    fn a_frame_has_no_more_pieces_than_it_says() {
        let data = Payload::from(vec![7; 2000]);
        let mut frame = Frame::default();
        for _ in 0..9 {
            frame.put(b"head");
            frame.put_data(&data, 0, 2000);
        }
        assert_eq!(
            (pieces(&frame).len(), frame.len()),
            (Frame::PIECES_MAX, 9 * 2004)
        );
    }

    #[test]
    fn parts_are_the_same_bytes_and_reach_no_further_than_the_whole() {
        let mut all = Payload::from(b"0123456789".to_vec());
        assert_eq!(all.part(2..5), *b"234");
        assert_eq!(all.part(2..5).part(1..9), *b"34", "of the part");
        assert_eq!(all.part(20..30), *b"");
        assert_eq!(all.part(2..5).as_ptr(), all[2..].as_ptr());
        all.truncate(4);
        assert_eq!(all, *b"0123");
        all.truncate(9);
        assert_eq!(all.len(), 4);
        assert_eq!(Payload::from(Vec::new()), Payload::default());
    }
}
