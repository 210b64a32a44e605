//! EXTENDED COPY(LID1): its parameter list (SPC-4 table 117) and its limits.
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
//! Reserved fields are ignored: known initiators leave garbage in them.

use crate::fields::{layout, u16_at, u32_at};
use crate::sense::{Condition, SenseKey, asc};
use crate::vpd::Vpd;

/// A parameter list that is valid and supported, as far as the list alone shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyList {
    /// LIST IDENTIFIER.
    pub id: u8,
    /// LIST ID USAGE.
    pub usage: ListIdUsage,
    /// The logical units between which data is copied.
    pub targets: Vec<CopyTarget>,
    /// The ranges to copy.
    pub segments: Vec<CopySegment>,
}

/// LIST ID USAGE: lifetime of the list identifier of this copy (SPC-4 table 118).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListIdUsage {
    /// Until the results of the copy are no longer needed.
    Hold = 0,
    /// While the copy runs.
    Discard = 2,
    /// The copy has no list identifier.
    None = 3,
}

/// An identification descriptor target descriptor, E4h (SPC-4 6.4.6.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyTarget {
    /// NUL: the descriptor identifies no logical unit. It is ignored unless a segment uses it.
    pub null: bool,
    /// DESIGNATOR TYPE.
    pub designator_type: u8,
    /// The DESIGNATOR of VPD page 83h.
    pub designator: Vec<u8>,
    /// Block size that the initiator assumes, or zero.
    pub block_bytes: u32,
}

const HEADER_BYTES: usize = 16;
const TARGET_BYTES: usize = 32;

/// Type codes, as OPERATING PARAMETERS lists them.
const BLOCK_TO_BLOCK: u8 = 0x02;
const IDENTIFICATION: u8 = 0xe4;

impl CopyList {
    /// Length of the header of a list.
    pub const HEADER_BYTES: usize = HEADER_BYTES;
    /// The supported descriptor types: block device to block device, and identification.
    pub const DESCRIPTOR_TYPES: [u8; 2] = [BLOCK_TO_BLOCK, IDENTIFICATION];

    /// Parses a list, or returns the condition to report. `length` is the PARAMETER LIST LENGTH of the CDB;
    /// `limits` are the maximum counts and lengths.
    pub fn parse(
        list: &[u8],
        length: usize,
        limits: &OperatingParameters,
    ) -> Result<CopyList, Condition> {
        let short = Condition::parameter_list_length();
        let header = list
            .get(..HEADER_BYTES)
            .filter(|_| list.len() >= length)
            .ok_or(short)?;
        let (targets, segments) = (usize::from(u16_at(header, 2)), u32_at(header, 8) as usize);
        if targets.saturating_add(segments) > limits.descriptor_bytes_max as usize
            || targets % TARGET_BYTES != 0
        {
            return Err(short);
        }
        if u32_at(header, 12) != 0 {
            return Err(illegal(asc::INLINE_DATA_LENGTH_EXCEEDED));
        }
        let segments_at = HEADER_BYTES + targets;
        let all = list
            .get(HEADER_BYTES..segments_at + segments)
            .ok_or(short)?;
        let (targets, segments) = all.split_at(targets);
        let (id, usage) = (header[0], usage(header[1] >> 3 & 3)?);
        if usage == ListIdUsage::None && id != 0 {
            return Err(Condition::invalid_parameter(0));
        }
        Ok(CopyList {
            id,
            usage,
            targets: read_targets(targets, limits)?,
            segments: read_segments(segments, segments_at, limits)?,
        })
    }

    /// Encodes the list.
    pub fn write(&self) -> Vec<u8> {
        debug_assert!(
            self.targets.len() * TARGET_BYTES <= usize::from(u16::MAX),
            "more targets than a list can have"
        );
        let mut list = vec![0; HEADER_BYTES];
        (list[0], list[1]) = (self.id, (self.usage as u8) << 3);
        list[2..4].copy_from_slice(&((self.targets.len() * TARGET_BYTES) as u16).to_be_bytes());
        list[8..12]
            .copy_from_slice(&((self.segments.len() * CopySegment::BYTES) as u32).to_be_bytes());
        self.targets
            .iter()
            .for_each(|target| list.extend(target.write()));
        self.segments
            .iter()
            .for_each(|segment| list.extend(segment.write()));
        debug_assert_eq!(
            list.len(),
            HEADER_BYTES
                + self.targets.len() * TARGET_BYTES
                + self.segments.len() * CopySegment::BYTES
        );
        list
    }
}

fn usage(bits: u8) -> Result<ListIdUsage, Condition> {
    match bits {
        0 => Ok(ListIdUsage::Hold),
        2 => Ok(ListIdUsage::Discard),
        3 => Ok(ListIdUsage::None),
        _ => Err(Condition::invalid_parameter(1).at_field(false, 1, Some(4))),
    }
}

fn read_targets(bytes: &[u8], limits: &OperatingParameters) -> Result<Vec<CopyTarget>, Condition> {
    if bytes.len() / TARGET_BYTES > usize::from(limits.targets_max) {
        return Err(illegal(asc::TOO_MANY_TARGET_DESCRIPTORS));
    }
    let descriptors = bytes.chunks_exact(TARGET_BYTES).enumerate();
    descriptors
        .map(|(index, bytes)| target(bytes, HEADER_BYTES + index * TARGET_BYTES))
        .collect()
}

fn target(bytes: &[u8], at: usize) -> Result<CopyTarget, Condition> {
    debug_assert_eq!(bytes.len(), TARGET_BYTES, "a whole descriptor");
    if bytes[0] != IDENTIFICATION {
        return Err(
            illegal(asc::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE).at_field(false, at as u16, None)
        );
    }
    // LU ID TYPE is ignored if a designator names the logical unit (SPC-4 6.4.6.5).
    let length = usize::from(bytes[7]);
    let designator = bytes[8..28]
        .get(..length)
        .ok_or(Condition::invalid_parameter(at as u16 + 7))?;
    Ok(CopyTarget {
        null: bytes[1] & 0x20 != 0,
        designator_type: bytes[5] & 0x0f,
        designator: designator.to_vec(),
        block_bytes: u32_at(bytes, 28) & 0xff_ffff,
    })
}

impl CopyTarget {
    /// Maximum length of a DESIGNATOR.
    pub const DESIGNATOR_BYTES_MAX: usize = 20;
    /// Length of a descriptor.
    pub const BYTES: usize = TARGET_BYTES;

    /// The condition for a block size that differs from that of the logical unit; `number` is the index of
    /// the target descriptor.
    pub fn wrong_block_length(number: usize) -> Condition {
        Condition::invalid_parameter((HEADER_BYTES + number * TARGET_BYTES + 29) as u16)
    }

    /// Encodes a logical unit with a binary name of up to [`CopyTarget::DESIGNATOR_BYTES_MAX`] bytes.
    fn write(&self) -> [u8; TARGET_BYTES] {
        let mut bytes = [0; TARGET_BYTES];
        let length = self.designator.len().min(Self::DESIGNATOR_BYTES_MAX);
        debug_assert!(
            self.designator_type <= 0x0f && self.block_bytes < 1 << 24,
            "numbers beyond their fields"
        );
        (bytes[0], bytes[1]) = (IDENTIFICATION, u8::from(self.null) << 5);
        // CODE SET 1: binary. ASSOCIATION 0: the logical unit.
        (bytes[4], bytes[5], bytes[7]) = (1, self.designator_type, length as u8);
        bytes[8..8 + length].copy_from_slice(&self.designator[..length]);
        bytes[29..].copy_from_slice(&self.block_bytes.to_be_bytes()[1..]);
        bytes
    }
}

/// Parses the segment descriptors. Each contains its length, so an unknown type can be distinguished from a
/// malformed list.
fn read_segments(
    bytes: &[u8],
    start: usize,
    limits: &OperatingParameters,
) -> Result<Vec<CopySegment>, Condition> {
    let mut segments = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = start + bytes.len() - rest.len();
        let header = rest.get(..4).ok_or(Condition::parameter_list_length())?;
        let length = 4 + usize::from(u16_at(header, 2));
        let (descriptor, tail) = rest
            .split_at_checked(length)
            .ok_or(Condition::parameter_list_length())?;
        if segments.len() == usize::from(limits.segments_max) {
            return Err(illegal(asc::TOO_MANY_SEGMENT_DESCRIPTORS));
        }
        segments.push(segment(descriptor, at)?);
        rest = tail;
    }
    Ok(segments)
}

fn segment(bytes: &[u8], at: usize) -> Result<CopySegment, Condition> {
    if bytes[0] != BLOCK_TO_BLOCK {
        return Err(
            illegal(asc::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE).at_field(false, at as u16, None)
        );
    }
    if bytes.len() != CopySegment::BYTES {
        return Err(Condition::invalid_parameter(at as u16 + 2));
    }
    Ok(CopySegment::parse(bytes))
}

fn illegal(code: u16) -> Condition {
    Condition::new(SenseKey::IllegalRequest, code)
}

layout! {
    /// A block device to block device segment descriptor, 02h (SPC-4 6.4.7.5).
    CopySegment: 28 bytes from [BLOCK_TO_BLOCK, 0, 0, 24],
    {
        destination_counts: bool =
            (1, 1, 1, "DC", "blocks of the destination are counted, not of the source"),
        source: u16 = (4, 7, 16, "SOURCE TARGET DESCRIPTOR INDEX", "target descriptor of the source"),
        destination: u16 = (6, 7, 16, "DESTINATION TARGET DESCRIPTOR INDEX", "its target descriptor"),
        blocks: u16 = (10, 7, 16, "NUMBER OF BLOCKS", "how many"),
        source_lba: u64 = (12, 7, 64, "SOURCE LBA", "the first block of the source"),
        destination_lba: u64 = (20, 7, 64, "DESTINATION LBA", "the first block of the destination"),
    }

    /// Copy limits: RECEIVE COPY RESULTS, OPERATING PARAMETERS (SPC-4 table 255), without the descriptor
    /// types.
    OperatingParameters: 44 bytes,
    {
        available_bytes: u32 = (0, 7, 32, "AVAILABLE DATA", "length of the following data"),
        nameless: bool = (4, 0, 1, "SNLID", "a copy need not have a list identifier"),
        targets_max: u16 = (8, 7, 16, "MAXIMUM TARGET COUNT", "target descriptors"),
        segments_max: u16 = (10, 7, 16, "MAXIMUM SEGMENT COUNT", "segment descriptors"),
        descriptor_bytes_max: u32 = (12, 7, 32, "MAXIMUM DESCRIPTOR LIST LENGTH", "in bytes"),
        segment_bytes_max: u32 =
            (16, 7, 32, "MAXIMUM SEGMENT LENGTH", "0: limited only by the descriptor"),
        total_copies_max: u16 = (34, 7, 16, "TOTAL CONCURRENT COPIES", "of all initiators"),
        copies_max: u8 = (36, 7, 8, "MAXIMUM CONCURRENT COPIES", "of one initiator"),
        granularity_exponent: u8 = (37, 7, 8, "DATA SEGMENT GRANULARITY", "power of two"),
        descriptor_types: u8 = (43, 7, 8, "IMPLEMENTED DESCRIPTOR LIST LENGTH", "number of following types"),
    }
}

impl OperatingParameters {
    /// Parses the parameters of a copy manager; `None` if it does not support [`CopyList::DESCRIPTOR_TYPES`]
    /// or the data is truncated.
    pub fn parse_all(answer: &[u8]) -> Option<OperatingParameters> {
        let fixed = OperatingParameters::parse(answer.get(..Self::BYTES)?);
        let types = answer.get(Self::BYTES..)?;
        let types = &types[..types.len().min(usize::from(fixed.descriptor_types))];
        CopyList::DESCRIPTOR_TYPES
            .iter()
            .all(|kind| types.contains(kind))
            .then_some(fixed)
    }

    /// Encodes the parameters, with [`CopyList::DESCRIPTOR_TYPES`]. Inline data and held data are not
    /// supported.
    pub fn write_all(self) -> Vec<u8> {
        let types = CopyList::DESCRIPTOR_TYPES;
        let available_bytes = (Self::BYTES - 4 + types.len()) as u32;
        let fixed = OperatingParameters {
            available_bytes,
            descriptor_types: types.len() as u8,
            ..self
        };
        [&fixed.write()[..], &types].concat()
    }

    /// Encodes the limits as third-party copy descriptors (SPC-4 7.8.17): VPD page 8Fh.
    pub fn write_page(&self) -> Vec<u8> {
        let mut page = Vec::new();
        // EXTENDED COPY(LID1), and RECEIVE COPY RESULTS with its two service actions.
        descriptor(&mut page, 0x0001, &[7, 0x83, 1, 0x00, 0x84, 2, 0x00, 0x03]);
        let mut parameters = [0; 28];
        parameters[4..6].copy_from_slice(&self.targets_max.to_be_bytes());
        parameters[6..8].copy_from_slice(&self.segments_max.to_be_bytes());
        parameters[8..12].copy_from_slice(&self.descriptor_bytes_max.to_be_bytes());
        descriptor(&mut page, 0x0004, &parameters);
        let [block_to_block, identification] = CopyList::DESCRIPTOR_TYPES;
        descriptor(&mut page, 0x0008, &[2, block_to_block, identification]);
        // The only CSCD descriptor IDs are the indexes of descriptors in the list.
        descriptor(&mut page, 0x000c, &[0, 0]);
        let mut general = [0; 32];
        general[..4].copy_from_slice(&u32::from(self.total_copies_max).to_be_bytes());
        general[4..8].copy_from_slice(&u32::from(self.copies_max).to_be_bytes());
        general[12] = self.granularity_exponent;
        descriptor(&mut page, 0x8001, &general);
        Vpd::write(0x8f, &page)
    }
}

/// Appends a third-party copy descriptor, padded to a multiple of four.
fn descriptor(page: &mut Vec<u8>, kind: u16, parameters: &[u8]) {
    let length = parameters.len().next_multiple_of(4);
    page.extend(kind.to_be_bytes());
    page.extend((length as u16).to_be_bytes());
    page.extend(parameters);
    page.resize(page.len() + length - parameters.len(), 0);
    debug_assert!(page.len().is_multiple_of(4), "descriptors are whole words");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TARGETS_MAX: usize = 8;
    const SEGMENTS_MAX: usize = 64;

    fn limits() -> OperatingParameters {
        OperatingParameters {
            targets_max: TARGETS_MAX as u16,
            segments_max: SEGMENTS_MAX as u16,
            descriptor_bytes_max: (TARGETS_MAX * TARGET_BYTES + SEGMENTS_MAX * CopySegment::BYTES)
                as u32,
            total_copies_max: 256,
            copies_max: 255,
            granularity_exponent: 9,
            ..OperatingParameters::default()
        }
    }

    fn target(designator: &[u8]) -> CopyTarget {
        CopyTarget {
            null: false,
            designator_type: 3,
            designator: designator.to_vec(),
            block_bytes: 512,
        }
    }

    fn target_bytes(designator: &[u8]) -> Vec<u8> {
        target(designator).write().to_vec()
    }

    fn segment_bytes(segment: CopySegment) -> Vec<u8> {
        segment.write().to_vec()
    }

    fn list_bytes(id: u8, flags: u8, targets: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
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

    const SEGMENT: CopySegment = CopySegment {
        destination_counts: false,
        source: 0,
        destination: 1,
        blocks: 0x800,
        source_lba: 1 << 40,
        destination_lba: 7,
    };

    fn parse(bytes: &[u8]) -> Result<CopyList, Condition> {
        CopyList::parse(bytes, bytes.len(), &limits())
    }

    fn code_of(bytes: &[u8]) -> u16 {
        parse(bytes).expect_err("it is wrong").asc
    }

    #[test]
    fn a_list_says_what_goes_where() {
        let bytes = list_bytes(
            3,
            0x10,
            &[target_bytes(b"12345678")],
            &[segment_bytes(SEGMENT)],
        );
        let expected = CopyList {
            id: 3,
            usage: ListIdUsage::Discard,
            targets: vec![target(b"12345678")],
            segments: vec![SEGMENT],
        };
        assert_eq!(parse(&bytes), Ok(expected));
    }

    /// As in libiscsi's test ExtendedCopy.ParamHdr.
    #[test]
    fn a_list_cut_within_its_descriptors_has_a_wrong_length() {
        let bytes = list_bytes(
            1,
            0,
            &[target_bytes(b"12345678")],
            &[segment_bytes(SEGMENT)],
        );
        for length in 0..bytes.len() {
            assert_eq!(
                CopyList::parse(&bytes[..length], length, &limits()),
                Err(Condition::parameter_list_length())
            );
            assert_eq!(
                CopyList::parse(&bytes[..length], bytes.len(), &limits()),
                Err(Condition::parameter_list_length())
            );
        }
    }

    /// As in libiscsi's test ExtendedCopy.DescrLimits.
    #[test]
    fn one_too_many_is_told_by_its_kind() {
        let (target, segment) = (target_bytes(b"12345678"), segment_bytes(SEGMENT));
        let list = |targets, segments| {
            list_bytes(
                1,
                0,
                &vec![target.clone(); targets],
                &vec![segment.clone(); segments],
            )
        };
        assert!(parse(&list(TARGETS_MAX, SEGMENTS_MAX)).is_ok());
        assert_eq!(
            code_of(&list(TARGETS_MAX + 1, 1)),
            asc::TOO_MANY_TARGET_DESCRIPTORS
        );
        assert_eq!(
            code_of(&list(1, SEGMENTS_MAX + 1)),
            asc::TOO_MANY_SEGMENT_DESCRIPTORS
        );
        assert_eq!(
            code_of(&list(TARGETS_MAX + 1, SEGMENTS_MAX + 1)),
            asc::PARAMETER_LIST_LENGTH_ERROR
        );
    }

    /// As in libiscsi's test ExtendedCopy.DescrType.
    #[test]
    fn other_types_are_not_supported() {
        let mut fibre_channel = target_bytes(b"12345678");
        fibre_channel[0] = 0xe0;
        let bytes = list_bytes(1, 0, &[fibre_channel], &[segment_bytes(SEGMENT)]);
        assert_eq!(
            code_of(&bytes),
            asc::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE
        );
        let stream_to_stream = [&[0x03, 0, 0, 0x14][..], &[0; 0x14]].concat();
        let bytes = list_bytes(1, 0, &[target_bytes(b"12345678")], &[stream_to_stream]);
        assert_eq!(
            code_of(&bytes),
            asc::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE
        );
    }

    /// As in libiscsi's test ExtendedCopy.ValidTgtDescr, which expects that LU ID TYPE is ignored, as in
    /// SPC-4.
    #[test]
    fn the_designator_counts_and_must_fit_its_descriptor() {
        let mut typed = target_bytes(b"12345678");
        typed[1] = 0x80;
        assert!(parse(&list_bytes(1, 0, &[typed], &[])).is_ok());
        let mut long = target_bytes(b"12345678");
        long[7] = 21;
        assert_eq!(
            code_of(&list_bytes(1, 0, &[long], &[])),
            asc::INVALID_FIELD_IN_PARAMETER_LIST
        );
    }

    #[test]
    fn a_list_that_is_not_to_be_remembered_has_no_identifier() {
        assert!(parse(&list_bytes(0, 0x18, &[], &[])).is_ok());
        assert_eq!(
            parse(&list_bytes(1, 0x18, &[], &[])),
            Err(Condition::invalid_parameter(0))
        );
        assert!(
            parse(&list_bytes(1, 0x08, &[], &[])).is_err(),
            "01b is reserved"
        );
    }

    #[test]
    fn inline_data_have_no_use() {
        let mut bytes = list_bytes(1, 0, &[], &[]);
        bytes[15] = 1;
        assert_eq!(code_of(&bytes), asc::INLINE_DATA_LENGTH_EXCEEDED);
    }

    #[test]
    fn descriptors_look_as_in_the_standard() {
        let written = target(&[0x60; 16]).write();
        assert_eq!(written[..8], [0xe4, 0, 0, 0, 1, 3, 0, 16]);
        assert_eq!(
            (written[8], written[23], written[24..].to_vec()),
            (0x60, 0x60, vec![0, 0, 0, 0, 0, 0, 2, 0])
        );
        let written = SEGMENT.write();
        assert_eq!(written[..12], [2, 0, 0, 24, 0, 0, 0, 1, 0, 0, 8, 0]);
        assert_eq!((written[14], written[27]), (1, 7));
    }

    #[test]
    fn operating_parameters_look_as_in_the_standard() {
        let data = limits().write_all();
        assert_eq!(data[..4], [0, 0, 0, 42]);
        assert_eq!(data[8..16], [0, 8, 0, 64, 0, 0, 8, 0]);
        assert_eq!(data[43..], [2, 0x02, 0xe4]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            id: u8, targets in 1usize..3, destination_counts: bool, blocks: u16, nameless: bool, segment_bytes_max: u32,
        ) {
            let segments = vec![CopySegment { destination_counts, blocks, ..SEGMENT }; 2];
            let list = CopyList { id, usage: ListIdUsage::Hold, targets: vec![target(&[7; 16]); targets], segments };
            prop_assert_eq!(parse(&list.write()), Ok(list));
            let limits = OperatingParameters { nameless, segment_bytes_max, ..limits() };
            let read = OperatingParameters::parse_all(&limits.write_all());
            prop_assert_eq!(read.map(|read| (read.nameless, read.segment_bytes_max, read.segments_max)),
                Some((nameless, segment_bytes_max, limits.segments_max)));
        }

        #[test]
        fn no_list_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120), tame: bool) {
            let mut bytes = bytes;
            if tame && bytes.len() >= HEADER_BYTES {
                bytes[2..16].fill(0);
                bytes[3] = 32;
                bytes[11] = 28;
            }
            let _ = (parse(&bytes), OperatingParameters::parse_all(&bytes));
        }
    }
}
