//! Additional header segments (RFC 7143 section 11.2.2): the parts of a SCSI Command that do not fit in its
//! basic header.
//!
//! ```text
//!    byte 0   AHSLength: bytes after AHSType, without padding
//!         2   AHSType
//!         3   reserved, counted in AHSLength
//!         4   extended CDB: the CDB from its byte 16 on        (AHSType 1, AHSLength = CDB length - 15)
//!             bidirectional: expected read length, four bytes  (AHSType 2, AHSLength = 5)
//! ```
//!
//! Each segment is padded to a whole word. TotalAHSLength is one byte that counts four-byte words, so the
//! segments have up to 1020 bytes.

use super::bhs::{Malformed, pad_bytes};

/// Maximum length of a CDB in iSCSI (section 11.2.2.3).
pub const CDB_BYTES_MAX: usize = 260;

/// The additional header segments of a SCSI Command. Types that the standard does not define are
/// skipped: their length is known, and a target that does not support them cannot use them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ahs<'a> {
    /// The CDB from its byte 16 on, if it is longer than the basic header can hold. Never empty.
    pub extended_cdb: Option<&'a [u8]>,
    /// For a bidirectional command: bytes that the initiator expects to read.
    pub expected_read_length: Option<u32>,
}

impl<'a> Ahs<'a> {
    /// Parses the segments: `bytes` is all of them, TotalAHSLength words.
    pub fn parse(mut bytes: &'a [u8]) -> Result<Ahs<'a>, Malformed> {
        let mut ahs = Ahs::default();
        while !bytes.is_empty() {
            let segment = Segment::first_of(bytes)?;
            match segment.kind {
                EXTENDED_CDB => set_once(&mut ahs.extended_cdb, extended_cdb(segment.body)?)?,
                EXPECTED_READ_LENGTH => {
                    set_once(&mut ahs.expected_read_length, read_length(segment.body)?)?
                }
                _ => {}
            }
            bytes = segment.rest;
        }
        Ok(ahs)
    }

    /// Appends the segments to `out`, each padded. An extended CDB must be of 1 to 244 bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        if let Some(cdb) = self.extended_cdb {
            debug_assert!(!cdb.is_empty() && cdb.len() <= CDB_BYTES_MAX - 16);
            emit_segment(EXTENDED_CDB, cdb, out);
        }
        if let Some(length) = self.expected_read_length {
            emit_segment(EXPECTED_READ_LENGTH, &length.to_be_bytes(), out);
        }
    }

    /// Bytes that `emit` appends, to be stated as TotalAHSLength in the basic header.
    pub fn total_length(&self) -> usize {
        let cdb = self
            .extended_cdb
            .map_or(0, |cdb| 4 + cdb.len() + pad_bytes(cdb.len()));
        cdb + self.expected_read_length.map_or(0, |_| 8)
    }
}

/// AHSType, its low six bits; the other two are reserved.
const EXTENDED_CDB: u8 = 1;
const EXPECTED_READ_LENGTH: u8 = 2;
const KIND_MASK: u8 = 0x3f;

/// One segment, and the bytes after its padding.
struct Segment<'a> {
    kind: u8,
    /// Without the reserved byte.
    body: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Segment<'a> {
    fn first_of(bytes: &'a [u8]) -> Result<Segment<'a>, Malformed> {
        let [high, low, kind, rest @ ..] = bytes else {
            return Err(Malformed::AhsLength);
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (specific, rest) = rest.split_at_checked(length).ok_or(Malformed::AhsLength)?;
        // A length of 0 would not even cover the reserved byte.
        let (_, body) = specific.split_first().ok_or(Malformed::AhsLength)?;
        let rest = rest
            .get(pad_bytes(3 + length)..)
            .ok_or(Malformed::AhsLength)?;
        Ok(Segment {
            kind: kind & KIND_MASK,
            body,
            rest,
        })
    }
}

fn extended_cdb(body: &[u8]) -> Result<&[u8], Malformed> {
    if body.is_empty() || body.len() > CDB_BYTES_MAX - 16 {
        Err(Malformed::AhsLength)
    } else {
        Ok(body)
    }
}

fn read_length(body: &[u8]) -> Result<u32, Malformed> {
    Ok(u32::from_be_bytes(
        body.try_into().map_err(|_| Malformed::AhsLength)?,
    ))
}

fn set_once<T>(place: &mut Option<T>, value: T) -> Result<(), Malformed> {
    if place.is_some() {
        return Err(Malformed::AhsRepeated);
    }
    *place = Some(value);
    Ok(())
}

fn emit_segment(kind: u8, body: &[u8], out: &mut Vec<u8>) {
    // At most 245: a body has 4 bytes, or up to 244, which the callers check.
    debug_assert!(
        !body.is_empty() && body.len() <= CDB_BYTES_MAX - 16,
        "a segment of {} bytes",
        body.len()
    );
    let length = body.len() as u16 + 1;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&[kind, 0]);
    out.extend_from_slice(body);
    out.resize(out.len() + pad_bytes(body.len()), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_bidirectional_command_with_a_cdb_of_21_bytes() {
        let ahs = Ahs {
            extended_cdb: Some(&[1, 2, 3, 4, 5]),
            expected_read_length: Some(0x1000),
        };
        let mut wire = Vec::new();
        ahs.emit(&mut wire);
        assert_eq!(
            wire,
            [
                0, 6, 1, 0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 5, 2, 0, 0, 0, 0x10, 0
            ]
        );
        assert_eq!(wire.len(), ahs.total_length());
        assert_eq!(Ahs::parse(&wire), Ok(ahs));
    }

    #[test]
    fn a_segment_longer_than_the_header_is_refused() {
        assert_eq!(Ahs::parse(&[0, 6, 1, 0]), Err(Malformed::AhsLength));
        assert_eq!(Ahs::parse(&[0xff, 0xff, 1, 0]), Err(Malformed::AhsLength));
        assert_eq!(Ahs::parse(&[0, 2, 1, 0, 9]), Err(Malformed::AhsLength));
    }

    #[test]
    fn a_segment_of_no_length_ends_the_parse_instead_of_repeating_it() {
        assert_eq!(Ahs::parse(&[0, 0, 1, 0]), Err(Malformed::AhsLength));
    }

    #[test]
    fn a_cdb_is_not_extended_twice_nor_by_nothing_nor_beyond_260_bytes() {
        assert_eq!(
            Ahs::parse(&[0, 2, 1, 0, 9, 0, 0, 0, 0, 2, 1, 0, 9, 0, 0, 0]),
            Err(Malformed::AhsRepeated)
        );
        assert_eq!(Ahs::parse(&[0, 1, 1, 0]), Err(Malformed::AhsLength));
        let mut wire = vec![0, 246, 1];
        wire.resize(3 + 246 + 3, 0);
        assert_eq!(Ahs::parse(&wire), Err(Malformed::AhsLength));
    }

    #[test]
    fn unknown_segments_are_passed_over() {
        let ahs = Ahs::parse(&[0, 1, 0x3f, 0, 0, 5, 2, 0, 0, 0, 0, 7]).expect("well formed");
        assert_eq!(ahs.expected_read_length, Some(7));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(ahs) = Ahs::parse(&bytes) {
                let mut wire = Vec::new();
                ahs.emit(&mut wire);
                prop_assert_eq!(wire.len(), ahs.total_length());
                prop_assert_eq!(Ahs::parse(&wire), Ok(ahs));
            }
        }
    }
}
