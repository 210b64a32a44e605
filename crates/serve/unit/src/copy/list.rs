//! The parameter list of EXTENDED COPY(LID1) (SPC-4 table 117).
//!
//! ```text
//!  0       LIST IDENTIFIER
//!  1       STR (5) · LIST ID USAGE (4-3) · PRIORITY (2-0)
//!  2..4    length of the target descriptors
//!  8..12   length of the segment descriptors
//!  12..16  length of the inline data
//!  16..    target descriptors · segment descriptors · inline data
//! ```
//!
//! Reserved fields are not looked at: known initiators leave garbage in them.

use scsi::{Condition, SenseKey, asc};

use super::{DESCRIPTOR_BYTES_MAX, SEGMENTS_MAX, TARGETS_MAX};

/// A list that says something we can do, as far as the list alone tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) id: u8,
    pub(crate) usage: Usage,
    pub(crate) targets: Vec<Target>,
    pub(crate) segments: Vec<Segment>,
}

/// LIST ID USAGE: for how long the list identifier stands for this copy (SPC-4 table 118).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Until its results are not needed any more.
    Hold,
    /// While it runs.
    Discard,
    /// Not at all.
    None,
}

/// An identification descriptor target descriptor, E4h (SPC-4 6.4.6.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// NUL: nobody; to be skipped unless a segment uses it.
    pub(crate) null: bool,
    /// The DESIGNATOR of VPD page 83h.
    pub(crate) designator: Vec<u8>,
    /// What the initiator takes for the length of a block, if it says.
    pub(crate) block_bytes: u32,
    /// Where the descriptor lies in the list.
    at: usize,
}

/// A block device to block device segment descriptor, 02h (SPC-4 6.4.7.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// DC: `blocks` counts blocks of the destination, not of the source.
    pub(crate) destination_counts: bool,
    pub(crate) source: u16,
    pub(crate) destination: u16,
    pub(crate) blocks: u16,
    pub(crate) source_lba: u64,
    pub(crate) destination_lba: u64,
}

pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const TARGET_BYTES: usize = 32;
pub(crate) const SEGMENT_BYTES: usize = 28;

/// Type codes, as OPERATING PARAMETERS lists them.
pub(crate) const BLOCK_TO_BLOCK: u8 = 0x02;
pub(crate) const IDENTIFICATION: u8 = 0xe4;

impl List {
    /// Reads a list that has arrived in full: `length` is the PARAMETER LIST LENGTH of the CDB.
    pub(crate) fn parse(list: &[u8], length: usize) -> Result<List, Condition> {
        let short = Condition::parameter_list_length();
        let header = list.get(..HEADER_BYTES).filter(|_| list.len() >= length).ok_or(short)?;
        let (targets, segments) = (usize::from(be16(header, 2)), be32(header, 8) as usize);
        if targets.saturating_add(segments) > DESCRIPTOR_BYTES_MAX || targets % TARGET_BYTES != 0 {
            return Err(short);
        }
        if be32(header, 12) != 0 {
            return Err(illegal(asc::INLINE_DATA_LENGTH_EXCEEDED));
        }
        let segments_at = HEADER_BYTES + targets;
        let all = list.get(HEADER_BYTES..segments_at + segments).ok_or(short)?;
        let (targets, segments) = all.split_at(targets);
        let (id, usage) = (header[0], usage(header[1] >> 3 & 3)?);
        if usage == Usage::None && id != 0 {
            return Err(Condition::invalid_parameter(0));
        }
        Ok(List {
            id,
            usage,
            targets: read_targets(targets)?,
            segments: read_segments(segments, segments_at)?,
        })
    }
}

fn usage(bits: u8) -> Result<Usage, Condition> {
    match bits {
        0 => Ok(Usage::Hold),
        2 => Ok(Usage::Discard),
        3 => Ok(Usage::None),
        _ => Err(Condition::invalid_parameter(1).at_field(false, 1, Some(4))),
    }
}

fn read_targets(bytes: &[u8]) -> Result<Vec<Target>, Condition> {
    if bytes.len() / TARGET_BYTES > TARGETS_MAX {
        return Err(illegal(asc::TOO_MANY_TARGET_DESCRIPTORS));
    }
    let descriptors = bytes.chunks_exact(TARGET_BYTES).enumerate();
    descriptors.map(|(index, bytes)| target(bytes, HEADER_BYTES + index * TARGET_BYTES)).collect()
}

fn target(bytes: &[u8], at: usize) -> Result<Target, Condition> {
    if bytes[0] != IDENTIFICATION {
        return Err(illegal(asc::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE).at_field(false, at as u16, None));
    }
    // LU ID TYPE is ignored where a designator names the logical unit (SPC-4 6.4.6.5).
    let length = usize::from(bytes[7]);
    let designator = bytes[8..28].get(..length).ok_or(Condition::invalid_parameter(at as u16 + 7))?;
    Ok(Target {
        null: bytes[1] & 0x20 != 0,
        designator: designator.to_vec(),
        block_bytes: be32(bytes, 28) & 0xff_ffff,
        at,
    })
}

impl Target {
    /// The initiator counts in blocks of another length than the logical unit has: it must not go on.
    pub(crate) fn wrong_block_length(&self) -> Condition {
        Condition::invalid_parameter(self.at as u16 + 29)
    }
}

/// Segment descriptors have lengths of their own, so one of an unknown type can be told from a broken list.
fn read_segments(bytes: &[u8], start: usize) -> Result<Vec<Segment>, Condition> {
    let mut segments = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = start + bytes.len() - rest.len();
        let header = rest.get(..4).ok_or(Condition::parameter_list_length())?;
        let length = 4 + usize::from(be16(header, 2));
        let (descriptor, tail) = rest.split_at_checked(length).ok_or(Condition::parameter_list_length())?;
        if segments.len() == SEGMENTS_MAX {
            return Err(illegal(asc::TOO_MANY_SEGMENT_DESCRIPTORS));
        }
        segments.push(segment(descriptor, at)?);
        rest = tail;
    }
    Ok(segments)
}

fn segment(bytes: &[u8], at: usize) -> Result<Segment, Condition> {
    if bytes[0] != BLOCK_TO_BLOCK {
        return Err(illegal(asc::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE).at_field(false, at as u16, None));
    }
    if bytes.len() != SEGMENT_BYTES {
        return Err(Condition::invalid_parameter(at as u16 + 2));
    }
    Ok(Segment {
        destination_counts: bytes[1] & 0x02 != 0,
        source: be16(bytes, 4),
        destination: be16(bytes, 6),
        blocks: be16(bytes, 10),
        source_lba: be64(bytes, 12),
        destination_lba: be64(bytes, 20),
    })
}

fn illegal(code: u16) -> Condition {
    Condition::new(SenseKey::IllegalRequest, code)
}

// The callers know that the bytes are there; what is not counts as zero all the same.
fn be16(bytes: &[u8], at: usize) -> u16 {
    number(bytes, at, 2) as u16
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    number(bytes, at, 4) as u32
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    number(bytes, at, 8)
}

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes.iter().skip(at).take(length).fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn target_bytes(designator: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; TARGET_BYTES];
        bytes[0] = IDENTIFICATION;
        bytes[4] = 1;
        bytes[5] = 3;
        bytes[7] = designator.len() as u8;
        bytes[8..8 + designator.len()].copy_from_slice(designator);
        bytes[30] = 2;
        bytes
    }

    pub(crate) fn segment_bytes(segment: Segment) -> Vec<u8> {
        let mut bytes = vec![BLOCK_TO_BLOCK, u8::from(segment.destination_counts) << 1, 0, 24];
        bytes.extend(segment.source.to_be_bytes());
        bytes.extend(segment.destination.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(segment.blocks.to_be_bytes());
        bytes.extend(segment.source_lba.to_be_bytes());
        bytes.extend(segment.destination_lba.to_be_bytes());
        bytes
    }

    pub(crate) fn list_bytes(id: u8, flags: u8, targets: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
        let (targets, segments) = (targets.concat(), segments.concat());
        let mut bytes = vec![id, flags];
        bytes.extend((targets.len() as u16).to_be_bytes());
        bytes.extend([0xee; 4]); // garbage, as libiscsi leaves it
        bytes.extend((segments.len() as u32).to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(targets);
        bytes.extend(segments);
        bytes
    }

    const SEGMENT: Segment = Segment {
        destination_counts: false,
        source: 0,
        destination: 1,
        blocks: 0x800,
        source_lba: 1 << 40,
        destination_lba: 7,
    };

    fn parse(bytes: &[u8]) -> Result<List, Condition> {
        List::parse(bytes, bytes.len())
    }

    fn code_of(bytes: &[u8]) -> u16 {
        parse(bytes).expect_err("it is wrong").asc
    }

    #[test]
    fn a_list_says_what_goes_where() {
        let bytes = list_bytes(3, 0x10, &[target_bytes(b"12345678")], &[segment_bytes(SEGMENT)]);
        let target = Target { null: false, designator: b"12345678".to_vec(), block_bytes: 512, at: 16 };
        let expected = List { id: 3, usage: Usage::Discard, targets: vec![target], segments: vec![SEGMENT] };
        assert_eq!(parse(&bytes), Ok(expected));
    }

    /// libiscsi ExtendedCopy.ParamHdr.
    #[test]
    fn a_list_cut_within_its_descriptors_has_a_wrong_length() {
        let bytes = list_bytes(1, 0, &[target_bytes(b"12345678")], &[segment_bytes(SEGMENT)]);
        for length in 0..bytes.len() {
            assert_eq!(List::parse(&bytes[..length], length), Err(Condition::parameter_list_length()));
            assert_eq!(List::parse(&bytes[..length], bytes.len()), Err(Condition::parameter_list_length()));
        }
    }

    /// libiscsi ExtendedCopy.DescrLimits.
    #[test]
    fn one_too_many_is_told_by_its_kind() {
        let (target, segment) = (target_bytes(b"12345678"), segment_bytes(SEGMENT));
        let list = |targets, segments| {
            list_bytes(1, 0, &vec![target.clone(); targets], &vec![segment.clone(); segments])
        };
        assert!(parse(&list(TARGETS_MAX, SEGMENTS_MAX)).is_ok());
        assert_eq!(code_of(&list(TARGETS_MAX + 1, 1)), asc::TOO_MANY_TARGET_DESCRIPTORS);
        assert_eq!(code_of(&list(1, SEGMENTS_MAX + 1)), asc::TOO_MANY_SEGMENT_DESCRIPTORS);
        assert_eq!(code_of(&list(TARGETS_MAX + 1, SEGMENTS_MAX + 1)), asc::PARAMETER_LIST_LENGTH_ERROR);
    }

    /// libiscsi ExtendedCopy.DescrType.
    #[test]
    fn other_types_are_not_supported() {
        let mut fibre_channel = target_bytes(b"12345678");
        fibre_channel[0] = 0xe0;
        let bytes = list_bytes(1, 0, &[fibre_channel], &[segment_bytes(SEGMENT)]);
        assert_eq!(code_of(&bytes), asc::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE);
        let stream_to_stream = [&[0x03, 0, 0, 0x14][..], &[0; 0x14]].concat();
        let bytes = list_bytes(1, 0, &[target_bytes(b"12345678")], &[stream_to_stream]);
        assert_eq!(code_of(&bytes), asc::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE);
    }

    /// libiscsi ExtendedCopy.ValidTgtDescr, which expects of SPC-4 that LU ID TYPE is ignored.
    #[test]
    fn the_designator_counts_and_must_fit_its_descriptor() {
        let mut typed = target_bytes(b"12345678");
        typed[1] = 0x80;
        assert!(parse(&list_bytes(1, 0, &[typed], &[])).is_ok());
        let mut long = target_bytes(b"12345678");
        long[7] = 21;
        assert_eq!(code_of(&list_bytes(1, 0, &[long], &[])), asc::INVALID_FIELD_IN_PARAMETER_LIST);
    }

    #[test]
    fn a_list_that_is_not_to_be_remembered_has_no_identifier() {
        assert!(parse(&list_bytes(0, 0x18, &[], &[])).is_ok());
        assert_eq!(parse(&list_bytes(1, 0x18, &[], &[])), Err(Condition::invalid_parameter(0)));
        assert!(parse(&list_bytes(1, 0x08, &[], &[])).is_err(), "01b is reserved");
    }

    #[test]
    fn inline_data_have_no_use() {
        let mut bytes = list_bytes(1, 0, &[], &[]);
        bytes[15] = 1;
        assert_eq!(code_of(&bytes), asc::INLINE_DATA_LENGTH_EXCEEDED);
    }

    proptest! {
        #[test]
        fn no_list_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120), tame: bool) {
            let mut bytes = bytes;
            if tame && bytes.len() >= HEADER_BYTES {
                bytes[2..16].fill(0);
                bytes[3] = 32;
                bytes[11] = 28;
            }
            let _ = parse(&bytes);
        }
    }
}
