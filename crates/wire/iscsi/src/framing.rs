//! Where one PDU ends and the next begins: header segments, padding and digests of a connection in full feature
//! phase (RFC 7143 section 11.2).
//!
//! ```text
//!   | BHS 48 | AHS 4n | digest 4? | data | padding 0..3 | digest 4? |  next BHS …
//!   '------- header_bytes --------'------- segment_bytes ----------'
//! ```
//!
//! Both drivers need it, each for both directions; it computes and checks, and keeps no bytes.

use crate::digest::{DIGEST_BYTES, RunningDigest, data_digest, digest};
use crate::negotiate::{DigestKind, Parameters};
use crate::pdu::{BHS_BYTES, Bhs, pad_bytes};

/// Which digests a connection has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// Every header is followed by a digest.
    pub header_digest: bool,
    /// Every data segment that is not empty is followed by a digest.
    pub data_digest: bool,
}

impl Framing {
    /// As a login agreed.
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

    /// Bytes of the data segment with its padding and digest; nothing if there is no data ("A zero-length data
    /// segment also implies a zero-length Data-Digest", section 11.2.3).
    pub fn segment_bytes(self, bhs: &Bhs) -> usize {
        match bhs.data_segment_length() as usize {
            0 => 0,
            length => length + self.trailer_bytes(length),
        }
    }

    /// Bytes of padding and digest behind this much data, which must not be nothing.
    pub fn trailer_bytes(self, data_bytes: usize) -> usize {
        pad_bytes(data_bytes) + digest_bytes(self.data_digest)
    }

    /// Whether a header as received, [`Framing::header_bytes`] long, matches its digest; true without digests.
    pub fn header_intact(self, header: &[u8]) -> bool {
        !self.header_digest || header.split_last_chunk().is_some_and(|(header, told)| digest(header) == *told)
    }

    /// Whether data as received match their digest, given the padding and digest behind them; true without
    /// digests.
    pub fn data_intact(self, data: &[u8], trailer: &[u8]) -> bool {
        !self.data_digest || data.is_empty() || {
            let Some((padding, told)) = trailer.split_last_chunk() else { return false };
            let mut running = RunningDigest::new();
            running.update(data);
            running.update(padding);
            running.finish() == *told
        }
    }

    /// Ends a header that begins at `begin` of `out` and reaches to its end: appends the digest, if there is one.
    pub fn end_header(self, out: &mut Vec<u8>, begin: usize) {
        if self.header_digest {
            let digest = digest(&out[begin..]);
            out.extend_from_slice(&digest);
        }
    }

    /// Appends what follows this data segment: padding and digest, as far as there are any.
    pub fn end_data(self, out: &mut Vec<u8>, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        out.resize(out.len() + pad_bytes(data.len()), 0);
        if self.data_digest {
            out.extend_from_slice(&data_digest(data));
        }
    }
}

fn digest_bytes(present: bool) -> usize {
    if present { DIGEST_BYTES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::Opcode;

    const BOTH: Framing = Framing { header_digest: true, data_digest: true };

    fn header(data_bytes: u32) -> Bhs {
        let mut bhs = Bhs::new(Opcode::NopOut);
        bhs.set_data_segment_length(data_bytes);
        bhs
    }

    #[test]
    fn a_data_segment_is_padded_and_an_empty_one_has_no_digest() {
        let bytes =
            |data| (Framing::default().segment_bytes(&header(data)), BOTH.segment_bytes(&header(data)));
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
}
