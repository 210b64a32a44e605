//! A workload adapted to the geometry of a device, and the reasons why a workload cannot run on a device.

use std::time::Duration;

use block::Geometry;
use derive_more::{Display, Error};

use crate::plan::{Access, Align, Data, Distribution, Pace, Percent, Span, Workload};

/// The reason why a workload cannot be run on a device.
#[derive(Clone, Copy, Debug, PartialEq, Display, Error)]
pub enum WorkloadError {
    /// The list of devices is empty.
    #[display("there is no device to run a workload on")]
    NoDevice,
    /// The workload has no access line.
    #[display("the workload has no requests; add at least one kind of request")]
    NoAccess,
    /// The shares of the access lines do not add up to 100 %.
    #[display(
        "the shares of the kinds of requests add up to {percent} %; they must add up to 100 %"
    )]
    Shares {
        /// The sum of the shares.
        percent: u32,
    },
    /// The queue depth is zero.
    #[display("the depth must not be 0; use 1 or more")]
    NoDepth,
    /// The queue depth exceeds every device's limit.
    #[display("the depth {depth} is too large; use {DEPTH_MAX} or less")]
    TooDeep {
        /// The requested depth.
        depth: u32,
    },
    /// The outstanding requests would take too much memory.
    #[display(
        "the outstanding requests have {bytes} bytes in total; reduce the depth or the request size, to a \
         total of at most {UNDER_WAY_BYTES_MAX}"
    )]
    TooMuchMemory {
        /// The total length of the outstanding requests, in bytes.
        bytes: u64,
    },
    /// The request length is not a multiple of the device's block length.
    #[display(
        "the request size {block_bytes} is not a multiple of the device's block size, {logical_block_bytes}"
    )]
    PartialBlocks {
        /// The length of a request, in bytes.
        block_bytes: u32,
        /// The length of the device's logical block, in bytes.
        logical_block_bytes: u32,
    },
    /// The alignment of requests, or the start of the span, is not a multiple of the device's block length.
    #[display(
        "the alignment {bytes} is not a multiple of the device's block size, {logical_block_bytes}"
    )]
    Misaligned {
        /// The alignment, or the start of the span, in bytes.
        bytes: u64,
        /// The length of the device's logical block, in bytes.
        logical_block_bytes: u32,
    },
    /// The span is shorter than the longest request.
    #[display("the span of {span_bytes} bytes is too small for a request")]
    SpanTooSmall {
        /// The length of the span, in bytes.
        span_bytes: u64,
    },
    /// The span reaches beyond the end of the device.
    #[display("the span extends beyond the end of the device, which has {device_bytes} bytes")]
    SpanTooLarge {
        /// The capacity of the device, in bytes.
        device_bytes: u64,
    },
    /// A parameter of the distribution is out of its range.
    #[display(
        "the distribution is out of its range: {}",
        Distribution::choices(Distribution::to_string)
    )]
    Distribution,
    /// The rate of an open loop is zero or negative, or too high.
    #[display(
        "the rate of {per_second} requests per second is out of range; use more than 0, up to 10^7"
    )]
    Rate {
        /// The rate, in requests per second.
        per_second: f64,
    },
    /// The workload has a rate, and also pauses or draining. Each of them determines when requests start.
    #[display("a rate cannot be combined with pauses between bursts or with draining")]
    PacedTwice,
    /// `drain_after` is 0.
    #[display("draining after 0 requests is not possible; use 1 or more")]
    NoDrain,
    /// The span has too few places. With verification, no two outstanding requests may overlap.
    #[display(
        "the span has space for {places} requests, but verification needs {needed}; use a larger span or a \
         lower depth"
    )]
    TooFewPlaces {
        /// Number of places in the span.
        places: u64,
        /// Number of places required.
        needed: u64,
    },
    /// The span has too many places: their generations would take too much memory.
    #[display(
        "the span has space for {places} requests, but verification supports at most {PLACES_VERIFIED_MAX}; \
         use a smaller span or larger requests"
    )]
    TooManyPlaces {
        /// Number of places in the span.
        places: u64,
    },
    /// The workload writes, and the device is read-only.
    #[display("the device is read-only")]
    ReadOnly,
    /// The workload has a journal, but does not verify its data.
    #[display("a log of writes requires verified data")]
    NothingToNote,
    /// The journal belongs to another workload or another device.
    #[display("the log of writes belongs to a different span, request size, or device")]
    AnotherJournal,
}

/// Maximum queue depth. Each outstanding request takes the memory of a task, so a larger value in a file is
/// rejected as an error.
const DEPTH_MAX: u32 = 65_536;
/// Maximum total length of the outstanding requests: memory that a large machine can spare.
const UNDER_WAY_BYTES_MAX: u64 = 16 << 30;
/// Maximum number of places to verify: four bytes each, 256 MiB. Enough for 256 GiB in requests of 4 KiB.
const PLACES_VERIFIED_MAX: u64 = 1 << 26;
/// Maximum rate of an open loop, higher than any thread can reach. The loop counts due requests one by one,
/// so at this rate the counting must cost little.
const PER_SECOND_MAX: f64 = 1e7;

/// A workload adapted to a device: the part of the device in use, and the kinds of requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layout {
    /// The start of the span on the device.
    pub(crate) start_bytes: u64,
    /// The length of the span; a multiple of the logical block length.
    pub(crate) span_bytes: u64,
    /// The length of the device's logical block, in bytes.
    pub(crate) block_bytes: u32,
    /// The length of the longest request, in bytes.
    pub(crate) longest_bytes: u64,
    pub(crate) distribution: Distribution,
    /// The access lines with a share above 0.
    pub(crate) lines: Vec<Line>,
}

/// An access line of the workload, with lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    /// The line is drawn if a random number below 100 is below this value and not below the previous line's.
    below: u32,
    pub(crate) bytes: u64,
    pub(crate) align: u64,
    pub(crate) read: Percent,
    pub(crate) random: Percent,
    pub(crate) burst: u32,
    pub(crate) pause: Duration,
}

impl Layout {
    /// Adapts a workload to a device with this geometry, which `sessions` sessions use concurrently.
    pub(crate) fn new(
        workload: &Workload,
        geometry: Geometry,
        sessions: usize,
    ) -> Result<Layout, WorkloadError> {
        check_depth(workload, sessions)?;
        check_pace(workload)?;
        workload
            .distribution
            .is_valid()
            .then_some(())
            .ok_or(WorkloadError::Distribution)?;
        let lines = lines(workload, geometry)?;
        let span_bytes = span_bytes(workload.span, geometry)?;
        let longest_bytes = lines.iter().map(|line| line.bytes).max().unwrap_or(0);
        if longest_bytes > span_bytes {
            return Err(WorkloadError::SpanTooSmall { span_bytes });
        }
        let layout = Layout {
            start_bytes: workload.span.start_bytes,
            span_bytes,
            block_bytes: geometry.block_size.bytes(),
            longest_bytes,
            distribution: workload.distribution,
            lines,
        };
        if workload.data == Data::Stamped {
            layout.check_verifiable(u64::from(workload.depth).saturating_mul(sessions as u64))?;
        }
        Ok(layout)
    }

    /// Returns the line that a number below 100 selects.
    pub(crate) fn line(&self, number: u64) -> Line {
        let drawn = self
            .lines
            .iter()
            .find(|line| number < u64::from(line.below));
        *drawn.unwrap_or(&self.lines[0]) // the last line's bound is 100
    }

    /// Returns the granule length in bytes. The offset in the span and the length of every request are
    /// multiples of it.
    pub(crate) fn granule_bytes(&self) -> u64 {
        self.lines
            .iter()
            .fold(0, |all, line| gcd(gcd(all, line.bytes), line.align))
    }

    /// Returns whether any line has a pause, so that a request may have to wait although a slot is free.
    pub(crate) fn pauses(&self) -> bool {
        self.lines.iter().any(|line| !line.pause.is_zero())
    }

    fn check_verifiable(&self, under_way: u64) -> Result<(), WorkloadError> {
        let (places, granules) = (
            self.span_bytes / self.longest_bytes,
            self.span_bytes / self.granule_bytes(),
        );
        // Each outstanding request excludes the starts of fewer than two places, so a free start always
        // exists.
        let needed = under_way.saturating_mul(2);
        if places < needed {
            Err(WorkloadError::TooFewPlaces { places, needed })
        } else if granules > PLACES_VERIFIED_MAX {
            Err(WorkloadError::TooManyPlaces { places: granules })
        } else {
            Ok(())
        }
    }
}

fn check_depth(workload: &Workload, sessions: usize) -> Result<(), WorkloadError> {
    let at_once = u64::from(workload.depth).saturating_mul(sessions as u64);
    let bytes = at_once.saturating_mul(u64::from(workload.block_bytes_max()));
    match workload.depth {
        0 => Err(WorkloadError::NoDepth),
        depth if depth > DEPTH_MAX => Err(WorkloadError::TooDeep { depth }),
        _ if bytes > UNDER_WAY_BYTES_MAX => Err(WorkloadError::TooMuchMemory { bytes }),
        _ => Ok(()),
    }
}

fn check_pace(workload: &Workload) -> Result<(), WorkloadError> {
    if workload.drain_after == Some(0) {
        return Err(WorkloadError::NoDrain);
    }
    match workload.pace {
        Pace::Closed => Ok(()),
        Pace::Constant { per_second } | Pace::Poisson { per_second } => {
            let pauses = workload.accesses.iter().any(|access| access.delay_ms > 0);
            if pauses || workload.drain_after.is_some() {
                return Err(WorkloadError::PacedTwice);
            }
            let possible = per_second > 0.0 && per_second <= PER_SECOND_MAX;
            if possible {
                Ok(())
            } else {
                Err(WorkloadError::Rate { per_second })
            }
        }
    }
}

fn lines(workload: &Workload, geometry: Geometry) -> Result<Vec<Line>, WorkloadError> {
    let percent: u32 = workload
        .accesses
        .iter()
        .map(|access| u32::from(access.share.get()))
        .sum();
    match (workload.accesses.is_empty(), percent) {
        (true, _) => return Err(WorkloadError::NoAccess),
        (false, 100) => {}
        (false, percent) => return Err(WorkloadError::Shares { percent }),
    }
    let mut below = 0;
    let drawn = workload
        .accesses
        .iter()
        .filter(|access| access.share > Percent::NONE);
    let line = |access: &Access| {
        below += u32::from(access.share.get());
        Ok(Line {
            below,
            bytes: whole_blocks(access.block_bytes, geometry)?,
            align: align(access, geometry)?,
            read: access.read,
            random: access.random,
            burst: access.burst.max(1),
            pause: Duration::from_millis(u64::from(access.delay_ms)),
        })
    };
    drawn.map(line).collect()
}

fn whole_blocks(block_bytes: u32, geometry: Geometry) -> Result<u64, WorkloadError> {
    let logical_block_bytes = geometry.block_size.bytes();
    let whole = block_bytes > 0 && block_bytes.is_multiple_of(logical_block_bytes);
    if whole {
        Ok(u64::from(block_bytes))
    } else {
        Err(WorkloadError::PartialBlocks {
            block_bytes,
            logical_block_bytes,
        })
    }
}

fn align(access: &Access, geometry: Geometry) -> Result<u64, WorkloadError> {
    match access.align {
        Align::Natural => Ok(u64::from(access.block_bytes)),
        Align::Block => Ok(u64::from(geometry.block_size.bytes())),
        Align::Bytes(0) => Err(misaligned(0, geometry)),
        Align::Bytes(bytes) => aligned(u64::from(bytes), geometry),
    }
}

fn aligned(bytes: u64, geometry: Geometry) -> Result<u64, WorkloadError> {
    let fits = bytes.is_multiple_of(u64::from(geometry.block_size.bytes()));
    if fits {
        Ok(bytes)
    } else {
        Err(misaligned(bytes, geometry))
    }
}

fn misaligned(bytes: u64, geometry: Geometry) -> WorkloadError {
    WorkloadError::Misaligned {
        bytes,
        logical_block_bytes: geometry.block_size.bytes(),
    }
}

/// Returns the length of the span, rounded down to whole blocks.
fn span_bytes(span: Span, geometry: Geometry) -> Result<u64, WorkloadError> {
    let device_bytes = geometry.bytes();
    let start = aligned(span.start_bytes, geometry)?;
    let left = device_bytes
        .checked_sub(start)
        .ok_or(WorkloadError::SpanTooLarge { device_bytes })?;
    let bytes = span.bytes.unwrap_or(left);
    if bytes > left {
        return Err(WorkloadError::SpanTooLarge { device_bytes });
    }
    Ok(bytes - bytes % u64::from(geometry.block_size.bytes()))
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 {
        one
    } else {
        gcd(other, one % other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{BlockSize, Blocks};

    fn device_of(bytes: u64) -> Geometry {
        Geometry {
            block_size: BlockSize::B512,
            blocks: Blocks(bytes / 512),
            physical_exponent: 3,
        }
    }

    fn reads_of(block_bytes: u32) -> Workload {
        Workload::simple(block_bytes, 4, Percent::ALL, Percent::ALL)
    }

    fn refusal(workload: &Workload) -> WorkloadError {
        Layout::new(workload, device_of(1 << 20), 1).expect_err("it does not fit")
    }

    #[test]
    fn requests_must_be_whole_blocks() {
        let error = WorkloadError::PartialBlocks {
            block_bytes: 1000,
            logical_block_bytes: 512,
        };
        assert_eq!(refusal(&reads_of(1000)), error);
        assert!(matches!(
            refusal(&reads_of(0)),
            WorkloadError::PartialBlocks { .. }
        ));
    }

    #[test]
    fn shares_must_make_a_whole() {
        let mut half = reads_of(4096);
        half.accesses[0].share = Percent::new(50).expect("a share");
        assert_eq!(refusal(&half), WorkloadError::Shares { percent: 50 });
        half.accesses.clear();
        assert_eq!(refusal(&half), WorkloadError::NoAccess);
    }

    #[test]
    fn a_span_must_lie_on_the_device_and_hold_a_request() {
        let at = |start_bytes, bytes| Workload {
            span: Span { start_bytes, bytes },
            ..reads_of(4096)
        };
        let beyond = WorkloadError::SpanTooLarge {
            device_bytes: 1 << 20,
        };
        assert_eq!(refusal(&at(0, Some(2 << 20))), beyond);
        assert_eq!(refusal(&at(4096, Some(1 << 20))), beyond);
        assert_eq!(refusal(&at(u64::MAX - 511, None)), beyond);
        assert_eq!(
            refusal(&at(0, Some(4095))),
            WorkloadError::SpanTooSmall { span_bytes: 3584 }
        );
        let odd = WorkloadError::Misaligned {
            bytes: 100,
            logical_block_bytes: 512,
        };
        assert_eq!(refusal(&at(100, None)), odd);
    }

    #[test]
    fn verified_requests_need_room_beside_each_other() {
        let verified = Workload {
            data: Data::Stamped,
            depth: 200,
            ..reads_of(4096)
        };
        assert_eq!(
            refusal(&verified),
            WorkloadError::TooFewPlaces {
                places: 256,
                needed: 400
            }
        );
    }

    #[test]
    fn a_hostile_file_takes_no_memory() {
        let deep = Workload {
            depth: u32::MAX,
            ..reads_of(512)
        };
        assert_eq!(refusal(&deep), WorkloadError::TooDeep { depth: u32::MAX });
        let long = Workload {
            depth: 65_536,
            ..reads_of(1 << 31)
        };
        assert_eq!(
            refusal(&long),
            WorkloadError::TooMuchMemory { bytes: 1 << 47 }
        );
    }

    #[test]
    fn a_rate_must_be_one_that_can_be_made() {
        for per_second in [0.0, -1.0, 1e9, f64::NAN, f64::INFINITY] {
            let paced = Workload {
                pace: Pace::Constant { per_second },
                ..reads_of(4096)
            };
            assert!(
                matches!(refusal(&paced), WorkloadError::Rate { .. }),
                "{per_second}"
            );
        }
        let pace = Pace::Poisson { per_second: 10.0 };
        let twice = Workload {
            pace,
            drain_after: Some(10),
            ..reads_of(4096)
        };
        assert_eq!(refusal(&twice), WorkloadError::PacedTwice);
    }

    #[test]
    fn distributions_out_of_range_are_refused() {
        let wrong = [
            Distribution::Zipf { theta: 0.0 },
            Distribution::Zipf { theta: f64::NAN },
            Distribution::Pareto { h: 1.0 },
            Distribution::Hot {
                requests: Percent::ALL,
                span: Percent::NONE,
            },
        ];
        for distribution in wrong {
            let workload = Workload {
                distribution,
                ..reads_of(4096)
            };
            assert_eq!(
                refusal(&workload),
                WorkloadError::Distribution,
                "{distribution:?}"
            );
        }
    }

    #[test]
    fn requests_of_several_lengths_meet_at_their_common_divisor() {
        let mut mixed = reads_of(12_288);
        mixed.accesses[0].share = Percent::new(50).expect("a share");
        let other = Access {
            block_bytes: 8192,
            ..mixed.accesses[0].clone()
        };
        mixed.accesses.push(other);
        let layout = Layout::new(&mixed, device_of(1 << 20), 1).expect("it fits");
        assert_eq!(layout.granule_bytes(), 4096);
        assert_eq!(
            [0, 49, 50, 99].map(|number| layout.line(number).bytes),
            [12_288, 12_288, 8192, 8192]
        );
    }
}
