//! EXTENDED COPY and RECEIVE COPY RESULTS (SPC-4 6.3, 6.4, 6.18 to 6.20): blocks that go from one logical unit to
//! another, or within one, without passing through an initiator.
//!
//! Of all that the standard has room for, this is what hosts use: a list identifier of one byte (LID1), copy
//! sources and destinations named by their designation descriptor (E4h), and segments from block device to block
//! device (02h). A list is checked as a whole before the first block moves; the copy then holds one piece of
//! 1 MiB at a time, and ends with its command when that is aborted.
//!
//! [`list`] reads parameter lists, [`results`] remembers how copies went, [`run`] does them.

pub(crate) mod list;
pub(crate) mod results;
pub(crate) mod run;

/// What one parameter list may hold. A list just too long in both kinds of descriptors is also longer than
/// [`DESCRIPTOR_BYTES_MAX`]; which of the three is told depends on that, and libiscsi looks.
pub(crate) const TARGETS_MAX: usize = 8;
pub(crate) const SEGMENTS_MAX: usize = 64;
pub(crate) const DESCRIPTOR_BYTES_MAX: usize =
    TARGETS_MAX * list::TARGET_BYTES + SEGMENTS_MAX * list::SEGMENT_BYTES;
