//! What to ask of a device.

use std::fmt;
use std::time::Duration;

use block::{Blocks, Geometry};

/// A closed loop: `depth` requests are always under way, and each that ends is followed by the next.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The length of each request, in bytes.
    pub block_bytes: u32,
    /// Requests under way at once, on each device.
    pub depth: u32,
    /// How many of the requests are reads; the others write.
    pub read: Percent,
    /// How many of the requests go to a place of their own; the others follow the one before them.
    pub random: Percent,
    /// The part of the device that is used, in bytes from its start; all of it if `None`.
    pub span_bytes: Option<u64>,
    /// How long requests are counted.
    pub duration: Duration,
    /// Where the places, the order of reads and writes, and the data come from.
    pub seed: u64,
    /// Write data that names its place and its generation, and check it in every read of a place written before.
    pub verify: bool,
}

/// A share in percent: 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent(u8);

impl Percent {
    /// `None` above 100.
    pub fn new(percent: u8) -> Option<Percent> {
        (percent <= 100).then_some(Percent(percent))
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }
}

/// Why a workload cannot be run on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadError {
    /// No request would ever be under way.
    NoDepth,
    /// The requests are not whole blocks of the device.
    PartialBlocks {
        /// The length of a request, in bytes.
        block_bytes: u32,
        /// The length of the device's logical block, in bytes.
        logical_block_bytes: u32,
    },
    /// Not even one request fits into the span.
    SpanTooSmall {
        /// Bytes that are there.
        span_bytes: u64,
    },
    /// The span reaches beyond the end of the device.
    SpanTooLarge {
        /// Bytes that the device has.
        device_bytes: u64,
    },
    /// Every request under way needs a place of its own when data is verified.
    TooFewPlaces {
        /// Places in the span.
        places: u64,
        /// Places that are needed.
        needed: u64,
    },
    /// What was written where would take too much memory to remember.
    TooManyPlaces {
        /// Places in the span.
        places: u64,
    },
    /// Writes were asked for, and the device takes none.
    ReadOnly,
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkloadError::NoDepth => write!(f, "a depth of 0 asks for nothing; give 1 or more"),
            WorkloadError::PartialBlocks { block_bytes, logical_block_bytes } => write!(
                f,
                "requests of {block_bytes} bytes are not whole blocks of the device; give a multiple of \
                 {logical_block_bytes}"
            ),
            WorkloadError::SpanTooSmall { span_bytes } => {
                write!(f, "no request fits into a span of {span_bytes} bytes")
            }
            WorkloadError::SpanTooLarge { device_bytes } => {
                write!(f, "the span reaches beyond the end of the device, which has {device_bytes} bytes")
            }
            WorkloadError::TooFewPlaces { places, needed } => write!(
                f,
                "the span has {places} places and verifying needs {needed}; give a larger span or less depth"
            ),
            WorkloadError::TooManyPlaces { places } => write!(
                f,
                "the span has {places} places and verifying can remember {PLACES_VERIFIED_MAX}; give a smaller \
                 span or larger requests"
            ),
            WorkloadError::ReadOnly => write!(f, "the device is read-only"),
        }
    }
}

impl std::error::Error for WorkloadError {}

/// What verifying can remember at most: four bytes each, 256 MiB. Enough for 256 GiB in requests of 4 KiB.
const PLACES_VERIFIED_MAX: u64 = 1 << 26;

/// A workload cut to a device: the span as a row of places, one request long each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// How many.
    pub(crate) count: u64,
    /// The length of each.
    pub(crate) blocks: Blocks,
}

impl Workload {
    /// Cuts the workload to a device of this shape, which `devices` sessions use at the same time.
    pub(crate) fn places(&self, geometry: Geometry, devices: usize) -> Result<Places, WorkloadError> {
        if self.depth == 0 {
            return Err(WorkloadError::NoDepth);
        }
        let blocks = self.blocks(geometry)?;
        let span_bytes = self.span_bytes.unwrap_or(geometry.bytes());
        if span_bytes > geometry.bytes() {
            return Err(WorkloadError::SpanTooLarge { device_bytes: geometry.bytes() });
        }
        let count = span_bytes / u64::from(self.block_bytes);
        if count == 0 {
            return Err(WorkloadError::SpanTooSmall { span_bytes });
        }
        if self.verify {
            self.check_verifiable(count, devices)?;
        }
        Ok(Places { count, blocks })
    }

    fn blocks(&self, geometry: Geometry) -> Result<Blocks, WorkloadError> {
        let whole = geometry.block_size.exact(u64::from(self.block_bytes)).filter(|blocks| blocks.0 > 0);
        whole.ok_or(WorkloadError::PartialBlocks {
            block_bytes: self.block_bytes,
            logical_block_bytes: geometry.block_size.bytes(),
        })
    }

    fn check_verifiable(&self, places: u64, devices: usize) -> Result<(), WorkloadError> {
        let needed = u64::from(self.depth).saturating_mul(devices as u64).saturating_mul(2);
        if places < needed {
            Err(WorkloadError::TooFewPlaces { places, needed })
        } else if places > PLACES_VERIFIED_MAX {
            Err(WorkloadError::TooManyPlaces { places })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use block::BlockSize;

    pub(crate) fn reads_of_4k() -> Workload {
        Workload {
            block_bytes: 4096,
            depth: 4,
            read: Percent(100),
            random: Percent(100),
            span_bytes: None,
            duration: Duration::from_secs(1),
            seed: 1,
            verify: false,
        }
    }

    fn device_of(bytes: u64) -> Geometry {
        Geometry { block_size: BlockSize::B512, blocks: Blocks(bytes / 512), physical_exponent: 3 }
    }

    #[test]
    fn requests_must_be_whole_blocks() {
        let odd = Workload { block_bytes: 1000, ..reads_of_4k() };
        let error = WorkloadError::PartialBlocks { block_bytes: 1000, logical_block_bytes: 512 };
        assert_eq!(odd.places(device_of(1 << 20), 1), Err(error));
        let empty = Workload { block_bytes: 0, ..reads_of_4k() };
        assert!(matches!(empty.places(device_of(1 << 20), 1), Err(WorkloadError::PartialBlocks { .. })));
    }

    #[test]
    fn a_span_must_lie_on_the_device_and_hold_a_request() {
        let wide = Workload { span_bytes: Some(2 << 20), ..reads_of_4k() };
        let error = WorkloadError::SpanTooLarge { device_bytes: 1 << 20 };
        assert_eq!(wide.places(device_of(1 << 20), 1), Err(error));
        let narrow = Workload { span_bytes: Some(4095), ..reads_of_4k() };
        assert_eq!(
            narrow.places(device_of(1 << 20), 1),
            Err(WorkloadError::SpanTooSmall { span_bytes: 4095 })
        );
    }

    #[test]
    fn verified_requests_need_room_beside_each_other() {
        let verified = Workload { verify: true, depth: 200, ..reads_of_4k() };
        let error = WorkloadError::TooFewPlaces { places: 256, needed: 400 };
        assert_eq!(verified.places(device_of(1 << 20), 1), Err(error));
    }

    #[test]
    fn a_span_that_ends_within_a_request_leaves_that_request_out() {
        let workload = Workload { span_bytes: Some(10_000), ..reads_of_4k() };
        let places = Places { count: 2, blocks: Blocks(8) };
        assert_eq!(workload.places(device_of(1 << 20), 1), Ok(places));
    }
}
