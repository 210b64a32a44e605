//! EXTENDED COPY and RECEIVE COPY RESULTS (SPC-4 6.3, 6.4, 6.18 to 6.20): blocks that go from one logical
//! unit to another, or within one, without passing through an initiator.
//!
//! Supported is the part of the standard that hosts use: a list identifier of one byte (LID1), copy sources
//! and destinations named by their designation descriptor (E4h), and segments from block device to block
//! device (02h). A list is checked as a whole before the first block moves; the copy then holds one piece of
//! 1 MiB at a time, and ends with its command when that is aborted.
//!
//! [`run`] carries out copies, [`results`] records their results.

pub(crate) mod results;
pub(crate) mod run;

use scsi::{CopySegment, CopyTarget, OperatingParameters};

/// What one parameter list may hold. A list just too long in both kinds of descriptors is also longer than
/// [`DESCRIPTOR_BYTES_MAX`]; which of the three is told depends on that, and libiscsi looks.
const TARGETS_MAX: usize = 8;
const SEGMENTS_MAX: usize = 64;
const DESCRIPTOR_BYTES_MAX: usize = TARGETS_MAX * CopyTarget::BYTES + SEGMENTS_MAX * CopySegment::BYTES;

/// The same for initiators.
pub(crate) fn limits() -> OperatingParameters {
    OperatingParameters {
        targets_max: TARGETS_MAX as u16,
        segments_max: SEGMENTS_MAX as u16,
        descriptor_bytes_max: DESCRIPTOR_BYTES_MAX as u32,
        total_copies_max: results::COPIES_MAX as u16,
        copies_max: u8::MAX,
        granularity_exponent: 9, // of the smallest block there is
        ..OperatingParameters::default()
    }
}
