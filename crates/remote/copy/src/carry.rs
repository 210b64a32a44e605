//! Copying one piece: it is read, and written where it is not zero.

use std::cell::Cell;
use std::ops::{AddAssign, Range};
use std::rc::Rc;

use backends::Failure;
use block::{Buffer, DeviceError, Slice};

use crate::destination::Destination;
use crate::offload::Offload;
use crate::pieces::Piece;
use crate::source::Source;
use crate::stream::requests;
use crate::zeros::{self, DataRun};

/// What is the same for all pieces.
pub(crate) struct Carrier {
    pub(crate) source: Rc<Source>,
    pub(crate) destination: Rc<Destination>,
    /// Zeros among the data are treated as holes.
    pub(crate) detect_zeros: bool,
    /// What cannot be read is replaced by zeros.
    pub(crate) skip_errors: bool,
    /// The data are returned, for the digest.
    pub(crate) keep_data: bool,
    /// The target that copies by itself, if any.
    pub(crate) offload: Option<Offload>,
    /// The longest read in bytes.
    pub(crate) request_bytes: u64,
    /// Data before this byte are on the destination and are not written again.
    pub(crate) write_from: Cell<u64>,
}

/// The result of a piece.
#[derive(Default)]
pub(crate) struct Carried {
    /// The data, if they were to be kept; a hole has none.
    pub(crate) data: Option<Slice>,
    pub(crate) tally: Tally,
    pub(crate) unreadable: Vec<Range<u64>>,
}

/// Byte counts of a copy.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) read: u64,
    pub(crate) written: u64,
    /// Copied by the target itself.
    pub(crate) offloaded: u64,
    /// Zeroed on the destination.
    pub(crate) cleared: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Tally) {
        self.read += more.read;
        self.written += more.written;
        self.offloaded += more.offloaded;
        self.cleared += more.cleared;
    }
}

/// Copies one piece.
pub(crate) async fn carry(carrier: Rc<Carrier>, piece: Piece) -> Result<Carried, Failure> {
    let mut carried = Carried::default();
    let is_written = piece.range.end <= carrier.write_from.get();
    if piece.is_hole {
        if !is_written {
            carried.tally.cleared = carrier.clear(piece.range).await?;
        }
        return Ok(carried);
    }
    if let Some(offload) = &carrier.offload {
        if is_written || offload.carries(&piece.range).await {
            carried.tally.offloaded = if is_written { 0 } else { piece.range.end - piece.range.start };
            return Ok(carried);
        }
        // A copy whose answer was lost may be under way still.
        let quiesced = carrier.destination.quiesced().await;
        quiesced.map_err(|error| carrier.unwritten(piece.range.start, error))?;
    }
    // Only where a target was to copy, and then did not, is a piece longer than a request.
    for request in requests(piece.range, carrier.request_bytes) {
        carrier.carry_request(request, &mut carried).await?;
    }
    Ok(carried)
}

/// The parts of a range that lie in one block each, of blocks of this length.
fn pieces(range: Range<u64>, block: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        at = range.end.min((at / block + 1) * block);
        (start < range.end).then_some(start..at)
    })
}

/// Adds a range to those that follow each other.
fn lost(unreadable: &mut Vec<Range<u64>>, piece: Range<u64>) {
    match unreadable.last_mut().filter(|last| last.end == piece.start) {
        Some(last) => last.end = piece.end,
        None => unreadable.push(piece),
    }
}

impl Carrier {
    async fn carry_request(&self, range: Range<u64>, carried: &mut Carried) -> Result<(), Failure> {
        let data = match self.source.read(range.clone()).await {
            Err(DeviceError::Unreadable(_)) if self.skip_errors => {
                self.salvage(range.clone(), &mut carried.unreadable).await?
            }
            read => read.map_err(|error| self.unread(range.start, error))?,
        };
        carried.tally.read += data.len() as u64;
        if range.end > self.write_from.get() {
            self.store(range.start, &data, &mut carried.tally).await?;
        }
        carried.data = self.keep_data.then_some(data);
        Ok(())
    }

    async fn store(&self, at: u64, data: &Slice, tally: &mut Tally) -> Result<(), Failure> {
        let runs = match self.detect_zeros {
            true => zeros::runs(data),
            false => vec![DataRun { range: 0..data.len(), is_zero: false }],
        };
        for DataRun { range, is_zero } in runs {
            let start = at + range.start as u64;
            if is_zero {
                tally.cleared += self.clear(start..at + range.end as u64).await?;
                continue;
            }
            let part = data.part(range).expect("runs of these data");
            tally.written += part.len() as u64;
            let written = self.destination.write(start, part).await;
            written.map_err(|error| self.unwritten(start, error))?;
        }
        Ok(())
    }

    async fn clear(&self, range: Range<u64>) -> Result<u64, Failure> {
        let start = range.start;
        self.destination.clear(range).await.map_err(|error| self.unwritten(start, error))
    }

    /// What can be read of a piece, down to single logical blocks: first in steps of what most disks read at once, then in blocks where a
    /// step fails.
    async fn salvage(&self, range: Range<u64>, unreadable: &mut Vec<Range<u64>>) -> Result<Slice, Failure> {
        /// The physical block of most disks.
        const STEP_BYTES: u64 = 4096;
        let block = self.source.block_bytes();
        let mut whole = Buffer::zeroed((range.end - range.start) as usize);
        let mut place = |at: u64, data: &Slice| {
            whole[(at - range.start) as usize..][..data.len()].copy_from_slice(data);
        };
        for step in pieces(range.clone(), STEP_BYTES.max(block)) {
            match self.source.read(step.clone()).await {
                Ok(data) => {
                    place(step.start, &data);
                    continue;
                }
                Err(DeviceError::Unreadable(_)) => {}
                Err(error) => return Err(self.unread(step.start, error)),
            }
            for piece in pieces(step, block) {
                match self.source.read(piece.clone()).await {
                    Ok(data) => place(piece.start, &data),
                    Err(DeviceError::Unreadable(_)) => lost(unreadable, piece),
                    Err(error) => return Err(self.unread(piece.start, error)),
                }
            }
        }
        Ok(whole.share())
    }

    fn unread(&self, at: u64, error: DeviceError) -> Failure {
        Failure::device(format_args!("cannot read {} at byte {at}", self.source.name), error)
    }

    fn unwritten(&self, at: u64, error: DeviceError) -> Failure {
        Failure::device(format_args!("cannot write {} at byte {at}", self.destination.name), error)
    }
}
