//! PDU boundaries: header segments, padding and digests of a connection in full feature phase (RFC 7143
//! section 11.2).
//!
//! ```text
//!   | BHS 48 | AHS 4n | digest 4? | data | padding 0..3 | digest 4? |  next BHS …
//!   '------- header_bytes --------'------- segment_bytes ----------'
//! ```
//!
//! The drivers of both sides use this module, for both directions. It computes lengths and checks digests,
//! but stores no data.
//!
//! The header digest covers the basic header and all additional header segments. The data digest covers the
//! data segment and its padding, whatever the padding contains. A digest follows the bytes that it covers, in
//! four bytes, low byte first: the standard sends the remainder of the polynomial division with its bits
//! mirrored, which is the little-endian form of a CRC computed in the usual way.

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

use crate::negotiate::{DigestKind, Parameters};
use crate::pdu::{BHS_BYTES, Bhs, pad_bytes};

/// The digests of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// Every header is followed by a digest.
    pub header_digest: bool,
    /// Every data segment that is not empty is followed by a digest.
    pub data_digest: bool,
}

impl Framing {
    /// The digests negotiated in a login.
    pub fn new(parameters: &Parameters) -> Framing {
        Framing {
            header_digest: parameters.header_digest == DigestKind::Crc32c,
            data_digest: parameters.data_digest == DigestKind::Crc32c,
        }
    }

    /// Bytes from the start of the basic header to the data segment: at most 1,072.
    pub fn header_bytes(self, bhs: &Bhs) -> usize {
        BHS_BYTES + bhs.total_ahs_length() + digest_bytes(self.header_digest)
    }

    /// Bytes of the data segment with its padding and digest; 0 if there is no data ("A zero-length data
    /// segment also implies a zero-length Data-Digest", section 11.2.3).
    pub fn segment_bytes(self, bhs: &Bhs) -> usize {
        match bhs.data_segment_length() as usize {
            0 => 0,
            length => length + self.trailer_bytes(length),
        }
    }

    /// Bytes of padding and digest after this amount of data, which must not be 0.
    pub fn trailer_bytes(self, data_bytes: usize) -> usize {
        pad_bytes(data_bytes) + digest_bytes(self.data_digest)
    }

    /// Whether a header as received, [`Framing::header_bytes`] long, matches its digest; true without digests.
    pub fn header_intact(self, header: &[u8]) -> bool {
        !self.header_digest
            || header
                .split_last_chunk()
                .is_some_and(|(header, told)| digest(header) == *told)
    }

    /// Whether received data matches its digest, given the following padding and digest; true without digests.
    pub fn data_intact(self, data: &[u8], trailer: &[u8]) -> bool {
        !self.data_digest || data.is_empty() || {
            let Some((padding, told)) = trailer.split_last_chunk() else {
                return false;
            };
            let mut running = RunningDigest::new();
            running.update(data);
            running.update(padding);
            running.finish() == *told
        }
    }

    /// Completes a header that extends from `begin` to the end of `out`: appends the digest, if digests are
    /// enabled.
    pub fn end_header(self, out: &mut Vec<u8>, begin: usize) {
        debug_assert!(out.len() >= begin + BHS_BYTES, "a header that is cut off");
        if self.header_digest {
            let digest = digest(&out[begin..]);
            out.extend_from_slice(&digest);
        }
    }

    /// Appends padding and digest after this data segment, if any.
    pub fn end_data(self, out: &mut Vec<u8>, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        out.resize(out.len() + pad_bytes(data.len()), 0);
        debug_assert!(
            (data.len() + pad_bytes(data.len())).is_multiple_of(4),
            "a segment of no whole words"
        );
        if self.data_digest {
            out.extend_from_slice(&data_digest(data));
        }
    }
}

fn digest_bytes(present: bool) -> usize {
    if present { DIGEST_BYTES } else { 0 }
}

/// The data segment that follows a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<T> {
    /// Bytes of data, without padding.
    pub length: u32,
    /// Its destination.
    pub destination: Destination<T>,
}

/// The destination of a received data segment.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<T> {
    /// There is no data.
    None,
    /// The state machine: the driver passes the whole segment to `handle_segment`. It is not longer than our
    /// MaxRecvDataSegmentLength.
    Inline,
    /// The memory of a task.
    ///
    /// At the target, the segment starts within the range that the driver accepts for the task. It may extend
    /// beyond this range, but never beyond the EDTL. The driver drops the part beyond the range, and drops
    /// the whole segment if it has already answered the task.
    ///
    /// At the initiator, the segment lies within the command's `read_bytes`. The driver drops the segment if
    /// the command has ended after the header arrived: a function answered on another connection may have
    /// aborted the command.
    Task {
        task: T,
        /// Bytes from the start of the command's data.
        offset: u32,
    },
    /// No destination: the driver drops the segment.
    Discard,
}

/// The data of a PDU to send.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload<T> {
    /// No data.
    None,
    /// These bytes.
    Inline(Vec<u8>),
    /// A part of a task's data.
    Task {
        task: T,
        /// Bytes from the start of the command's data.
        offset: u32,
        /// Length in bytes.
        length: u32,
    },
}

impl<T> Payload<T> {
    pub(crate) fn inline(data: Vec<u8>) -> Payload<T> {
        if data.is_empty() {
            Payload::None
        } else {
            Payload::Inline(data)
        }
    }
}

/// Bytes of a digest on the wire.
pub const DIGEST_BYTES: usize = 4;

/// The digest that follows a basic header and its additional header segments.
pub fn header_digest(bhs: &Bhs, ahs: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut running = RunningDigest::new();
    running.update(&bhs.0);
    running.update(ahs);
    running.finish()
}

/// The digest of contiguous bytes.
pub fn digest(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    crc32_iscsi(bytes).to_le_bytes()
}

/// The digest that follows this data segment when it is padded with zeros, as we send it.
pub fn data_digest(data: &[u8]) -> [u8; DIGEST_BYTES] {
    if pad_bytes(data.len()) == 0 {
        return digest(data);
    }
    let mut running = RunningDigest::new();
    running.update(data);
    running.update(&[0; 3][..pad_bytes(data.len())]);
    running.finish()
}

/// A digest of data that arrives in pieces. Received data is checked together with the received padding.
///
/// This type contains only the CRC's register. The library's own type also contains a table of constants,
/// which would take 300 bytes for every data segment.
#[derive(Clone, Copy)]
pub struct RunningDigest(u32);

impl RunningDigest {
    /// The digest of no data.
    pub fn new() -> RunningDigest {
        RunningDigest(u32::MAX)
    }

    /// Adds the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(self.0));
        digest.update(piece);
        // A 32-bit CRC is in the low half of the library's register.
        self.0 = digest.get_state() as u32;
    }

    /// The digest of all pieces, as sent.
    pub fn finish(&self) -> [u8; DIGEST_BYTES] {
        (!self.0).to_le_bytes()
    }
}

impl Default for RunningDigest {
    fn default() -> RunningDigest {
        RunningDigest::new()
    }
}

impl std::fmt::Debug for RunningDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RunningDigest")
            .field(&self.finish())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pdu::Opcode;

    const BOTH: Framing = Framing {
        header_digest: true,
        data_digest: true,
    };

    fn header(data_bytes: u32) -> Bhs {
        let mut bhs = Bhs::new(Opcode::NopOut);
        bhs.set_data_segment_length(data_bytes);
        bhs
    }

    #[test]
    fn a_data_segment_is_padded_and_an_empty_one_has_no_digest() {
        let bytes = |data| {
            (
                Framing::default().segment_bytes(&header(data)),
                BOTH.segment_bytes(&header(data)),
            )
        };
        assert_eq!(bytes(0), (0, 0));
        assert_eq!(bytes(1), (4, 8));
        assert_eq!(bytes(4), (4, 8));
        assert_eq!(bytes(5), (8, 12));
    }

    #[test]
    fn additional_headers_stand_before_the_header_digest() {
        let mut bhs = header(0);
        bhs.set_u8(4, 2);
        assert_eq!(Framing::default().header_bytes(&bhs), 56);
        assert_eq!(BOTH.header_bytes(&bhs), 60);
    }

    #[test]
    fn what_one_side_ends_the_other_finds_intact() {
        let mut wire = header(5).0.to_vec();
        BOTH.end_header(&mut wire, 0);
        assert!(BOTH.header_intact(&wire));
        let mut trailer = Vec::new();
        BOTH.end_data(&mut trailer, b"ninja");
        assert_eq!(trailer.len(), BOTH.trailer_bytes(5));
        assert!(BOTH.data_intact(b"ninja", &trailer));
    }

    #[test]
    fn any_flipped_bit_is_found_in_padding_too() {
        let mut trailer = Vec::new();
        BOTH.end_data(&mut trailer, b"ninja");
        for bit in 0..trailer.len() * 8 {
            let mut bent = trailer.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(!BOTH.data_intact(b"ninja", &bent), "bit {bit}");
        }
        assert!(!BOTH.data_intact(b"ninjA", &trailer));
    }

    #[test]
    fn a_header_cut_short_is_not_intact() {
        assert!(!BOTH.header_intact(&[]));
        assert!(!BOTH.data_intact(b"x", &[0; 3]));
    }

    /// CRC32C bit by bit, from its definition: polynomial 0x11edc6f41 with its bits mirrored.
    fn oracle(bytes: &[u8]) -> [u8; 4] {
        let shift = |crc: u32| {
            if crc & 1 == 1 {
                crc >> 1 ^ 0x82f6_3b78
            } else {
                crc >> 1
            }
        };
        let step = |crc: u32, &byte: &u8| (0..8).fold(crc ^ u32::from(byte), |crc, _| shift(crc));
        (!bytes.iter().fold(u32::MAX, step)).to_le_bytes()
    }

    /// The examples of RFC 7143 appendix A.4 (RFC 3720 B.4), in the order of their bytes on the wire.
    #[test]
    fn the_standard_s_examples() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        assert_eq!(data_digest(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(data_digest(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(data_digest(&ascending), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(data_digest(&descending), [0x5c, 0xdb, 0x3f, 0x11]);
    }

    #[test]
    fn padding_is_digested_too() {
        assert_eq!(data_digest(b"abc"), oracle(b"abc\0"));
    }

    #[test]
    fn additional_headers_are_part_of_the_header() {
        let bhs = Bhs::new(Opcode::ScsiCommand);
        let mut all = bhs.0.to_vec();
        all.extend_from_slice(&[0, 2, 1, 0, 9, 0, 0, 0]);
        assert_eq!(header_digest(&bhs, &[0, 2, 1, 0, 9, 0, 0, 0]), oracle(&all));
    }

    proptest! {
        #[test]
        fn pieces_give_the_digest_of_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..3000), cut: usize) {
            let (first, second) = bytes.split_at(cut % (bytes.len() + 1));
            let mut running = RunningDigest::new();
            running.update(first);
            running.update(second);
            prop_assert_eq!(running.finish(), oracle(&bytes));
        }
    }
}
