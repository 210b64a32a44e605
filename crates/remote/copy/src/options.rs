//! Options of a copy, and its progress reports.

use std::path::PathBuf;
use std::time::Duration;

use disk_contents::Consent;

/// How a copy is made.
#[derive(Clone)]
pub struct Options<'a> {
    /// Whether what is at the destination may be lost.
    pub consent: Consent<'a>,
    /// The destination is read back when all is written, and compared.
    pub verify: bool,
    /// The SHA-256 of the data is computed.
    pub checksum: bool,
    /// Outstanding requests; by default 16, and 2 between local places.
    pub depth: Option<u16>,
    /// Length of a request, a power of two; by default 256 KiB, and 1 MiB between local places.
    pub request_bytes: Option<u64>,
    /// Zeros that the source holds as data are left out.
    pub detect_zeros: bool,
    /// A target that has both ends is asked to copy by itself.
    pub offload: bool,
    /// Zeros are written in the place of data that cannot be read.
    pub skip_errors: bool,
    /// Where the copy notes how far it is.
    pub journal: JournalPlace,
    /// The copy begins at the start, whatever an earlier one has done.
    pub restart: bool,
    /// A disk image in a container (QCOW2, VMDK, VHDX, VDI) is copied to a device as the bytes that it is.
    pub raw: bool,
    /// Between two notes in the journal, each behind a flush of the destination.
    pub checkpoint: Duration,
}

/// Where a copy notes how far it is, so that the same copy resumes there after an interruption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalPlace {
    /// Nowhere: it begins again.
    Nowhere,
    /// In this directory, which is this copy's alone.
    Directory(PathBuf),
    /// In a directory of its own below this one.
    Below(PathBuf),
}

/// What a copy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It copies.
    Copy,
    /// It reads the destination back and compares.
    Compare,
}

/// Hears how far a copy is, and may end it.
pub trait Observer {
    /// A phase begins, which is over after so many bytes of the source.
    fn begin(&self, phase: Phase, bytes: u64);

    /// Everything before this byte is done.
    fn at(&self, byte: u64);

    /// Something to know beside the result, in a sentence.
    fn note(&self, sentence: &str);

    /// Whether the copy is to end. What is done by then is flushed and noted.
    fn is_interrupted(&self) -> bool;
}

/// Hears nothing, and ends nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn begin(&self, _: Phase, _: u64) {}

    fn at(&self, _: u64) {}

    fn note(&self, _: &str) {}

    fn is_interrupted(&self) -> bool {
        false
    }
}

/// Nothing that is at the destination is lost, and there is no journal.
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

/// How much is outstanding. Pieces start and end at multiples of a request's length, which therefore must fit
/// the blocks of both ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) depth: u16,
    pub(crate) request_bytes: u64,
}
