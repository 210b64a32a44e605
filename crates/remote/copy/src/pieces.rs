//! Splits the source into pieces, from start to end. Pieces also end where a hole starts or ends.
//!
//! Pieces begin and end at multiples of the block sizes of source and destination, except the end of the last
//! piece. Therefore no two pieces write to the same block of the destination.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;

use block::{Allocation, Run};
use reactor::{Receiver, Sender, mailbox};

use crate::source::Source;

/// A part of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The piece's bytes, counted from the start of the source.
    pub(crate) range: Range<u64>,
    /// Whether the piece is deallocated and reads as zeros.
    pub(crate) is_hole: bool,
}

/// The remaining pieces.
pub(crate) struct Pieces {
    source: Rc<Source>,
    cutter: Cutter,
}

impl Pieces {
    /// Creates the pieces from `start` to the end. Data pieces have at most `request` bytes.
    pub(crate) fn new(source: Rc<Source>, start: u64, request: u64, block: u64) -> Pieces {
        let end = source.bytes;
        let cutter = Cutter {
            at: start,
            end,
            known_to: start,
            holes: VecDeque::new(),
            request,
            block,
        };
        Pieces { source, cutter }
    }

    /// Like [`Pieces::new`], but ignores holes, so that the whole source is read.
    pub(crate) fn all_data(source: Rc<Source>, start: u64, request: u64, block: u64) -> Pieces {
        let end = source.bytes;
        let cutter = Cutter {
            at: start,
            end,
            known_to: end,
            holes: VecDeque::new(),
            request,
            block,
        };
        Pieces { source, cutter }
    }

    /// The start of the remaining part.
    pub(crate) fn position(&self) -> u64 {
        self.cutter.at
    }

    /// The next piece; `None` at the end. If the source fails to report its holes, it is assumed to have
    /// none: reading its data will report the error.
    pub(crate) async fn next(&mut self) -> Option<Piece> {
        let cutter = &mut self.cutter;
        if cutter.at == cutter.known_to && cutter.at < cutter.end {
            let runs = self.source.allocation(cutter.at..cutter.end).await;
            cutter.learn(&runs.unwrap_or_default(), self.source.block_bytes());
        }
        cutter.next()
    }
}

/// Splits the part of the source whose holes are known.
struct Cutter {
    at: u64,
    end: u64,
    /// The end of the part that `holes` covers.
    known_to: u64,
    /// The holes within `at..known_to`, in order.
    holes: VecDeque<Range<u64>>,
    request: u64,
    /// The unit of pieces: a multiple of the block sizes of source and destination.
    block: u64,
}

/// Minimum length of a hole. Shorter holes are read as data, because two requests, before and after the hole,
/// would take longer.
const HOLE_BYTES_MIN: u64 = 64 << 10;
/// Maximum length of a hole piece. It limits the time that a piece takes if the destination must write zeros.
const HOLE_BYTES_MAX: u64 = 64 << 20;

impl Cutter {
    /// Adds the source's report on the bytes after `at`. Runs are in blocks of `run_block` bytes.
    fn learn(&mut self, runs: &[Run], run_block: u64) {
        debug_assert!(
            self.holes.is_empty(),
            "a report is used up before the next one"
        );
        let bytes = |blocks: u64| blocks.saturating_mul(run_block).min(self.end);
        let ranges = runs.iter().map(|run| {
            let start = bytes(run.extent.lba.0);
            (
                start..bytes(run.extent.lba.0.saturating_add(run.extent.blocks.0)),
                run.allocation,
            )
        });
        let mut told_to = self.at;
        for (range, allocation) in ranges {
            told_to = told_to.max(range.end);
            let start = range.start.max(self.at).next_multiple_of(self.block);
            let hole = start..self.cut(range.end);
            let is_hole = allocation == Allocation::Deallocated;
            if is_hole
                && hole.end.saturating_sub(hole.start) >= HOLE_BYTES_MIN.min(self.end - self.at)
            {
                self.holes.push_back(hole);
            }
        }
        // If the report covers less than one request, one request is treated as data, so that the copy makes
        // progress.
        self.known_to = self
            .cut(told_to)
            .max((self.at + self.request).min(self.end));
        debug_assert!(
            self.holes
                .iter()
                .all(|hole| self.at <= hole.start && hole.end <= self.known_to),
            "the holes are within the known part"
        );
        debug_assert!(
            self.holes
                .iter()
                .is_sorted_by(|one, next| one.end <= next.start),
            "the holes are in order, and do not overlap"
        );
    }

    /// Rounds down to a whole block, except at the end.
    fn cut(&self, at: u64) -> u64 {
        if at >= self.end {
            self.end
        } else {
            at - at % self.block
        }
    }

    fn next(&mut self) -> Option<Piece> {
        let here = self.at;
        let hole = self.holes.front().cloned();
        let (end, is_hole) = match hole {
            Some(hole) if hole.start <= here => {
                let end = hole.end.min(here + HOLE_BYTES_MAX);
                if end == hole.end {
                    self.holes.pop_front();
                }
                (end, true)
            }
            hole => {
                let data_end = hole.map_or(self.known_to, |hole| hole.start);
                let request_end = here - here % self.request + self.request;
                (data_end.min(request_end), false)
            }
        };
        debug_assert!(
            here <= end && end <= self.known_to,
            "a piece is within the known part"
        );
        self.at = end;
        (end > here).then_some(Piece {
            range: here..end,
            is_hole,
        })
    }
}

// A queue of concurrent work with a limited depth: the next piece starts when one has ended.

/// Tasks on this thread's reactor. They return results in the order of completion.
pub(crate) struct Queue<T> {
    ended: Receiver<T>,
    end: Sender<T>,
    under_way: usize,
    depth: usize,
}

impl<T: Send + 'static> Queue<T> {
    /// Creates a queue for `depth` concurrent tasks.
    pub(crate) fn new(depth: usize) -> Queue<T> {
        let (end, ended) = mailbox();
        Queue {
            ended,
            end,
            under_way: 0,
            depth,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.under_way >= self.depth
    }

    /// Starts a task, even if the queue is full.
    pub(crate) fn start(&mut self, work: impl Future<Output = T> + 'static) {
        let end = self.end.clone();
        self.under_way += 1;
        reactor::spawn(async move {
            // Sending fails only if the process is about to end.
            let _ = end.send(work.await);
        });
    }

    /// The next result; `None` if no task is running.
    pub(crate) async fn next(&mut self) -> Option<T> {
        if self.under_way == 0 {
            return None;
        }
        self.under_way -= 1;
        let ended = self.ended.recv().await;
        debug_assert!(ended.is_some(), "each task has a result");
        ended
    }
}

// Detection of zeros in data.

/// The unit of zero detection. Shorter runs of zeros are copied with the data around them: one request of 1
/// MiB costs less than sixteen requests for half of this data.
const GRAIN_BYTES: usize = 64 << 10;

/// A part of some data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataRun {
    pub(crate) range: Range<usize>,
    pub(crate) is_zero: bool,
}

/// Splits the data into zero and nonzero runs.
pub(crate) fn runs(data: &[u8]) -> Vec<DataRun> {
    let mut runs: Vec<DataRun> = Vec::new();
    for (index, grain) in data.chunks(GRAIN_BYTES).enumerate() {
        let start = index * GRAIN_BYTES;
        let (end, is_zero) = (start + grain.len(), is_zero(grain));
        match runs.last_mut().filter(|last| last.is_zero == is_zero) {
            Some(last) => last.range.end = end,
            None => runs.push(DataRun {
                range: start..end,
                is_zero,
            }),
        }
    }
    debug_assert_eq!(
        runs.last().map_or(0, |run| run.range.end),
        data.len(),
        "the runs cover the data"
    );
    runs
}

/// Whether all bytes are zero. Most data has a nonzero byte near its start, so the start is checked first.
/// The rest is combined in strides, which the compiler vectorizes.
fn is_zero(bytes: &[u8]) -> bool {
    const STRIDE: usize = 1024;
    bytes
        .chunks(STRIDE)
        .all(|stride| stride.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use backends::remote;
    use block::Extent;
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Returns all pieces of a source of `end` bytes. The source reports its runs, in blocks of 512 bytes,
    /// `at_once` at a time.
    fn pieces(end: u64, runs: &[Run], at_once: usize) -> Vec<Piece> {
        let mut cutter = Cutter {
            at: 0,
            end,
            known_to: 0,
            holes: VecDeque::new(),
            request: MIB,
            block: 4096,
        };
        let mut pieces = Vec::new();
        while cutter.at < end {
            if cutter.at == cutter.known_to {
                let here = cutter.at / 512;
                let ahead = runs
                    .iter()
                    .filter(|run| run.extent.end().is_some_and(|end| end.0 > here));
                let told: Vec<Run> = ahead.take(at_once).copied().collect();
                cutter.learn(&told, 512);
            }
            pieces.extend(cutter.next());
        }
        pieces
    }

    fn hole(lba: u64, blocks: u64) -> Run {
        Run {
            extent: Extent::new(lba, blocks),
            allocation: Allocation::Deallocated,
        }
    }

    fn data(lba: u64, blocks: u64) -> Run {
        Run {
            extent: Extent::new(lba, blocks),
            allocation: Allocation::Mapped,
        }
    }

    #[test]
    fn data_is_cut_at_holes_and_requests() {
        let runs = [data(0, 3000), hole(3000, 1096), data(4096, 4096)];
        let cut: Vec<_> = pieces(4 * MIB, &runs, 3)
            .into_iter()
            .map(|piece| (piece.range, piece.is_hole))
            .collect();
        let hole_start = 3000_u64.div_ceil(8) * 4096;
        let expected = [
            (0..MIB, false),
            (MIB..hole_start, false),
            (hole_start..2 * MIB, true),
            (2 * MIB..3 * MIB, false),
            (3 * MIB..4 * MIB, false),
        ];
        assert_eq!(cut, expected);
    }

    #[test]
    fn a_source_that_tells_nothing_is_all_data() {
        assert!(
            pieces(3 * MIB + 512, &[], 1)
                .iter()
                .all(|piece| !piece.is_hole)
        );
    }

    proptest! {
        #[test]
        fn nothing_is_left_out_and_no_data_taken_for_a_hole(
            lengths in prop::collection::vec(1u64..5000, 1..24),
            at_once in 1usize..5,
        ) {
            let mut lba = 0;
            let mut runs = Vec::new();
            for (index, length) in lengths.iter().enumerate() {
                runs.push(if index % 2 == 0 { data(lba, *length) } else { hole(lba, *length) });
                lba += length;
            }
            let mut at = 0;
            for piece in pieces(lba * 512, &runs, at_once) {
                prop_assert_eq!(piece.range.start, at);
                at = piece.range.end;
                prop_assert!(at.is_multiple_of(4096) || at == lba * 512);
                let extent = Extent::new(piece.range.start / 512, (at - piece.range.start).div_ceil(512));
                let is_mapped = |run: &Run| run.allocation == Allocation::Mapped;
                let has_data = |run: &Run| is_mapped(run) && run.extent.overlaps(extent);
                prop_assert!(!piece.is_hole || !runs.iter().any(has_data), "{piece:?}");
            }
            prop_assert_eq!(at, lba * 512);
        }
    }

    #[test]
    fn what_ends_first_comes_first_and_then_nothing() {
        let order = remote::run(async {
            let mut queue = Queue::new(2);
            for ms in [20, 0] {
                queue.start(async move {
                    reactor::sleep(Duration::from_millis(ms)).await;
                    ms
                });
            }
            assert!(queue.is_full());
            Ok((queue.next().await, queue.next().await, queue.next().await))
        });
        assert_eq!(order.expect("a world"), (Some(0), Some(20), None));
    }

    #[test]
    fn one_byte_makes_a_grain_data() {
        let mut bytes = vec![0; 4 * GRAIN_BYTES + 5];
        bytes[2 * GRAIN_BYTES - 1] = 1;
        let expected = [
            (0..GRAIN_BYTES, true),
            (GRAIN_BYTES..2 * GRAIN_BYTES, false),
            (2 * GRAIN_BYTES..bytes.len(), true),
        ];
        let expected = expected.map(|(range, is_zero)| DataRun { range, is_zero });
        assert_eq!(runs(&bytes), expected);
    }

    #[test]
    fn no_data_have_no_parts() {
        assert_eq!(runs(&[]), []);
    }
}
