//! Options of a copy, and its progress reports.

use std::path::PathBuf;
use std::time::Duration;

use disk_contents::Consent;

/// The options of a copy.
#[derive(Clone)]
pub struct Options<'a> {
    /// Whether the destination's content may be overwritten.
    pub consent: Consent<'a>,
    /// Whether to read the destination back at the end, and compare it with the source.
    pub verify: bool,
    /// Whether to compute the SHA-256 of the data.
    pub checksum: bool,
    /// Number of outstanding requests; by default 16, and 2 if both sides are local.
    pub depth: Option<u16>,
    /// Length of a request, a power of two; by default 256 KiB, and 1 MiB if both sides are local.
    pub request_bytes: Option<u64>,
    /// Whether to treat zeros in the source's data like holes.
    pub detect_zeros: bool,
    /// Whether to let the target copy the data, if source and destination are on the same target.
    pub offload: bool,
    /// Whether to replace unreadable data with zeros.
    pub skip_errors: bool,
    /// Where the copy records its position.
    pub journal: JournalPlace,
    /// Whether to start from the beginning, even if an earlier copy can be resumed.
    pub restart: bool,
    /// Whether a disk image in a container format (QCOW2, VMDK, VHDX, VDI) may be copied to a device. It is
    /// copied byte by byte, without conversion.
    pub raw: bool,
    /// Interval of checkpoints in the journal, each after a flush of the destination.
    pub checkpoint: Duration,
}

/// Where a copy records its position, so that the same copy can resume there after an interruption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalPlace {
    /// The copy does not record its position. After an interruption, it starts over.
    Nowhere,
    /// In this directory, which no other copy may use.
    Directory(PathBuf),
    /// In a directory for this copy, which is created below this one.
    Below(PathBuf),
}

/// The phase of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Copying.
    Copy,
    /// Reading the destination back and comparing it.
    Compare,
}

/// The position of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Everything before this byte of the source is done.
    pub byte: u64,
    /// Number of bytes that this run has moved or compared, without holes and without the work of an earlier
    /// run.
    pub moved_bytes: u64,
    /// Whether the last piece was only hashed: a hole, or data that an earlier run has copied.
    pub hashing: bool,
}

/// Receives the progress of a copy, and can interrupt it.
pub trait Observer {
    /// A phase starts. It starts at byte `start` of the source, which is where an earlier run ended if this
    /// copy resumes that run. The phase is complete at byte `end`.
    fn begin(&self, phase: Phase, start: u64, end: u64);

    /// The phase has reached this position.
    fn at(&self, position: Position);

    /// An additional note on the result, as a sentence.
    fn note(&self, sentence: &str);

    /// Whether to interrupt the copy. Completed parts are flushed and recorded.
    fn is_interrupted(&self) -> bool;
}

/// Ignores the progress, and never interrupts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn begin(&self, _: Phase, _: u64, _: u64) {}

    fn at(&self, _: Position) {}

    fn note(&self, _: &str) {}

    fn is_interrupted(&self) -> bool {
        false
    }
}

/// By default, the destination's content is not overwritten, and there is no journal.
impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            consent: Consent::Ask(&|_| false),
            verify: false,
            checksum: false,
            depth: None,
            request_bytes: None,
            detect_zeros: true,
            offload: true,
            skip_errors: false,
            journal: JournalPlace::Nowhere,
            restart: false,
            raw: false,
            checkpoint: Duration::from_secs(5),
        }
    }
}

/// Limits on outstanding requests. Pieces start and end at multiples of a request's length, which must
/// therefore be a multiple of the block sizes of both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) depth: u16,
    pub(crate) request_bytes: u64,
}
