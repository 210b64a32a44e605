//! Digests (RFC 7143 section 13.1): CRC32C over a PDU's header, and over its data.
//!
//! The header digest covers the basic header and all additional ones. The data digest covers the data segment
//! and its padding, whatever the padding says. Each follows what it covers, in four bytes, low byte first: the
//! standard writes the polynomial's remainder with its bits mirrored, which for a CRC computed in the usual way
//! comes to little endian.

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

use crate::pdu::{Bhs, pad_bytes};

/// Bytes of a digest on the wire.
pub const DIGEST_BYTES: usize = 4;

/// The digest that follows a basic header and its additional header segments.
pub fn header_digest(bhs: &Bhs, ahs: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut running = RunningDigest::new();
    running.update(&bhs.0);
    running.update(ahs);
    running.finish()
}

/// The digest of bytes that lie in one piece.
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

/// A digest of data that comes in pieces. What was received is checked with the padding that was received.
///
/// It is the CRC's register and nothing else: the library's own value has a table of its constants inside, 300
/// bytes that every data segment would carry about.
#[derive(Clone, Copy)]
pub struct RunningDigest(u32);

impl RunningDigest {
    /// The digest of nothing, so far.
    pub fn new() -> RunningDigest {
        RunningDigest(u32::MAX)
    }

    /// Takes in the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(self.0));
        digest.update(piece);
        // A 32-bit CRC comes in the low half of the library's register.
        self.0 = digest.get_state() as u32;
    }

    /// The digest of all pieces, as it travels.
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
        f.debug_tuple("RunningDigest").field(&self.finish()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::Opcode;
    use proptest::prelude::*;

    /// CRC32C bit by bit, from its definition: polynomial 0x11edc6f41 with its bits mirrored.
    fn oracle(bytes: &[u8]) -> [u8; 4] {
        let shift = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
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
