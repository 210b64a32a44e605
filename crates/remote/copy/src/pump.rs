//! Copies several pieces concurrently, and tracks the position before which all pieces are complete.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use backends::Failure;
use block::{Buffer, DeviceError, Slice};
use iscsi_client::verbs::ExtendedCopy;
use serde::Serialize;
use volume::spec::Bytes;

use crate::destination::{Destination, Journal, Mark, Stop, Tally, flushed};
use crate::options::{Flight, Observer, Options, Position};
use crate::pieces::{self, DataRun, Piece, Pieces, Queue};
use crate::source::{Digest, Source};
use crate::stream::requests;

/// A running copy.
pub(crate) struct Pump {
    carrier: Rc<Carrier>,
    pieces: Pieces,
    queue: Queue<(Range<u64>, Result<Carried, Failure>)>,
    /// The start positions of unfinished pieces.
    under_way: BTreeSet<u64>,
    /// Maximum distance of a new piece from the first unfinished piece. The data in between is kept for the
    /// digest, and would be copied again after an interruption.
    ahead_bytes_max: u64,
    cut: Cut,
    journal: Option<Journal>,
    digest: Option<Digest>,
    /// The account of the part before the first unfinished piece.
    account: Account,
    /// The tallies of finished pieces after the first unfinished one, by start position.
    ahead: BTreeMap<u64, Tally>,
    durable: Mark,
    /// Number of times that the copy has returned to the position `durable` without progress.
    returns: u32,
}

/// Piece lengths in bytes.
#[derive(Clone, Copy)]
struct Cut {
    request: u64,
    /// The unit of pieces: their lengths are multiples of it.
    block: u64,
}

/// The copy fails if the destination loses acknowledged writes more often than this without a successful
/// flush in between. Such a destination is expected to continue to do so.
const RETURNS_MAX: u32 = 5;

/// The results so far.
#[derive(Clone, Default)]
pub(crate) struct Account {
    pub(crate) tally: Tally,
    /// Parts of the source that were replaced by zeros.
    pub(crate) unreadable: Vec<Range<u64>>,
}

/// How a copy ended, unless it failed.
pub(crate) enum Ended {
    /// The whole source is on the destination and flushed. Contains the SHA-256, if it was requested.
    Complete(Option<String>),
    /// Interrupted; data before this position is on the destination and flushed.
    Interrupted(u64),
}

impl Pump {
    /// Prepares a copy of the source, starting at `start`.
    pub(crate) fn new(
        options: &Options<'_>,
        source: Rc<Source>,
        destination: Rc<Destination>,
        journal: Option<Journal>,
        offload: Option<Offload>,
        start: u64,
    ) -> Pump {
        let Flight {
            depth,
            request_bytes,
        } = destination.flight(options, &source);
        let request = offload
            .as_ref()
            .map_or(request_bytes, Offload::request_bytes);
        let block = source
            .block_bytes()
            .max(destination.block_bytes())
            .max(PAGE_BYTES);
        // A digest covers the whole source, so parts that are already copied are read again.
        let from = if options.checksum { 0 } else { start };
        Pump {
            pieces: Pieces::new(Rc::clone(&source), from, request, block),
            queue: Queue::new(usize::from(depth)),
            under_way: BTreeSet::new(),
            ahead_bytes_max: 4 * request * u64::from(depth),
            cut: Cut { request, block },
            journal,
            digest: options.checksum.then(Digest::default),
            account: Account::default(),
            ahead: BTreeMap::new(),
            durable: Mark {
                done: start,
                tally: Tally::default(),
            },
            returns: 0,
            carrier: Rc::new(Carrier {
                source,
                destination,
                detect_zeros: options.detect_zeros,
                skip_errors: options.skip_errors,
                keep_data: options.checksum,
                offload,
                request_bytes,
                write_from: Cell::new(start),
            }),
        }
    }

    /// Copies to the end, to an interruption or to the first failure. In every case, nothing is outstanding
    /// when this returns, and completed parts are flushed and, if there is a journal, recorded. Data that the
    /// destination has lost is copied again.
    pub(crate) async fn run(&mut self, observer: &dyn Observer) -> Result<Ended, Failure> {
        loop {
            match self.pass(observer).await {
                Ok(()) if self.durable.done < self.carrier.source.bytes => break,
                Ok(()) => return Ok(Ended::Complete(self.digest.take().map(Digest::hex))),
                Err(Stop::WritesLost) if observer.is_interrupted() => break,
                Err(Stop::WritesLost) => self
                    .go_back(observer)
                    .map_err(|failure| self.with_hint(failure))?,
                Err(Stop::Unflushed(failure) | Stop::Failed(failure)) => {
                    return Err(self.with_hint(failure));
                }
            }
        }
        Ok(Ended::Interrupted(self.durable.done))
    }

    async fn pass(&mut self, observer: &dyn Observer) -> Result<(), Stop> {
        let mut result = self.fill(observer).await;
        while let Some((range, ended)) = self.queue.next().await {
            let accounted = self.account_for(range, ended).await;
            result = result.and(accounted);
        }
        // The flush that failed may have been the only one to report the loss, so a later successful flush
        // would prove nothing.
        match (self.noted().await, result) {
            (Err(unflushed), _) | (_, Err(unflushed @ (Stop::WritesLost | Stop::Unflushed(_)))) => {
                Err(unflushed)
            }
            (Ok(()), result) => {
                let flushed = self.flush().await;
                result.and(flushed)
            }
        }
    }

    /// Returns to the position up to which the destination is durable.
    fn go_back(&mut self, observer: &dyn Observer) -> Result<(), Failure> {
        let Mark { done, tally } = self.durable;
        let (name, durable) = (&self.carrier.destination.name, Bytes(done));
        if self.returns == RETURNS_MAX {
            return Err(Failure::device(
                format_args!(
                    "cannot copy beyond {durable} to {name}, which has lost unflushed data {} times in a row; look \
                     for storage errors in its log, or copy with a smaller --checkpoint",
                    RETURNS_MAX + 1
                ),
                DeviceError::WritesLost,
            ));
        }
        self.returns += 1;
        observer.note(&format!(
            "{name} has lost unflushed data: resuming from {durable}"
        ));
        self.carrier.destination.copied_again();
        self.carrier.write_from.set(done);
        let is_read_again = self.digest.is_some();
        let from = if is_read_again { 0 } else { done };
        self.pieces = Pieces::new(
            Rc::clone(&self.carrier.source),
            from,
            self.cut.request,
            self.cut.block,
        );
        self.digest = self.digest.is_some().then(Digest::default);
        self.account.tally = if is_read_again {
            Tally { read: 0, ..tally }
        } else {
            tally
        };
        self.account.unreadable.retain(|range| range.end <= from);
        self.ahead.clear();
        self.under_way.clear();
        Ok(())
    }

    /// Records that everything before this position is durable.
    fn is_durable(&mut self, mark: Mark) {
        if mark.done > self.durable.done {
            self.durable = mark;
            self.returns = 0;
        }
    }

    /// Waits for a checkpoint in progress.
    async fn noted(&mut self) -> Result<(), Stop> {
        if let Some(journal) = &mut self.journal {
            let noted = journal.noted().await?;
            noted.into_iter().for_each(|mark| self.is_durable(mark));
        }
        Ok(())
    }

    /// Starts pieces, and processes their results, until none is left, the copy is interrupted, or a piece
    /// fails.
    async fn fill(&mut self, observer: &dyn Observer) -> Result<(), Stop> {
        loop {
            while self.queue.is_full()
                || self.pieces.position() > self.done_to() + self.ahead_bytes_max
            {
                let Some((range, ended)) = self.queue.next().await else {
                    break;
                };
                let hashing = self.only_hashes(&range, &ended);
                self.account_for(range, ended).await?;
                let Tally {
                    written, offloaded, ..
                } = self.account.tally;
                observer.at(Position {
                    byte: self.done_to(),
                    moved_bytes: written + offloaded,
                    hashing,
                });
                self.checkpoint().await?;
            }
            if observer.is_interrupted() {
                return Ok(());
            }
            let Some(piece) = self.pieces.next().await else {
                return Ok(());
            };
            self.start(piece);
        }
    }

    fn start(&mut self, piece: Piece) {
        let range = piece.range.clone();
        let is_new = self.under_way.insert(range.start);
        debug_assert!(is_new, "no two pieces begin at one byte");
        let carried = carry(Rc::clone(&self.carrier), piece);
        self.queue.start(async move { (range, carried.await) });
    }

    async fn account_for(
        &mut self,
        range: Range<u64>,
        ended: Result<Carried, Failure>,
    ) -> Result<(), Stop> {
        let carried = ended?; // a failed piece stays in `under_way`, so the position does not pass it
        let start = range.start;
        let was_under_way = self.under_way.remove(&start);
        debug_assert!(was_under_way, "a piece ends once");
        if let Some(digest) = &mut self.digest {
            digest.add(range, carried.data).await;
        }
        self.account.unreadable.extend(carried.unreadable);
        let earlier = self.ahead.insert(start, carried.tally);
        debug_assert!(earlier.is_none(), "a piece is counted once");
        let done = self.done_to();
        while let Some(first) = self.ahead.first_entry().filter(|first| *first.key() < done) {
            self.account.tally += first.remove();
        }
        Ok(())
    }

    /// Whether the piece is only hashed, not copied.
    fn only_hashes(&self, range: &Range<u64>, ended: &Result<Carried, Failure>) -> bool {
        let is_hole = ended.as_ref().is_ok_and(|carried| carried.data.is_none());
        self.digest.is_some() && (is_hole || range.end <= self.carrier.write_from.get())
    }

    fn mark(&self) -> Mark {
        Mark {
            done: self.done_to(),
            tally: self.account.tally,
        }
    }

    /// The position before which everything is done.
    fn done_to(&self) -> u64 {
        self.under_way
            .first()
            .copied()
            .unwrap_or(self.pieces.position())
            .max(self.carrier.write_from.get())
    }

    /// Records the position periodically, while the copy continues.
    async fn checkpoint(&mut self) -> Result<(), Stop> {
        let mark = self.mark();
        if let Some(journal) = &mut self.journal {
            let noted = journal.perhaps(mark, &self.carrier.destination).await?;
            noted.into_iter().for_each(|mark| self.is_durable(mark));
        }
        Ok(())
    }

    /// Flushes the completed parts at the end.
    async fn flush(&mut self) -> Result<(), Stop> {
        let (mark, destination) = (self.mark(), &self.carrier.destination);
        match &mut self.journal {
            Some(journal) if mark.done < self.carrier.source.bytes => {
                journal.last(mark, destination).await?
            }
            _ => flushed(destination).await?,
        }
        self.is_durable(mark);
        Ok(())
    }

    fn with_hint(&self, failure: Failure) -> Failure {
        match (self.is_resumable(), self.durable.done > 0) {
            (true, true) => {
                failure.and("the progress is recorded; run the same command again to resume")
            }
            (true, false) => {
                failure.and("there is no checkpoint yet: the same command starts over")
            }
            (false, _) => failure,
        }
    }

    /// Whether a repetition of the same command resumes this copy.
    pub(crate) fn is_resumable(&self) -> bool {
        self.journal.is_some()
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Removes the journal: there is nothing to resume.
    pub(crate) async fn forget_journal(&mut self) -> Result<(), Failure> {
        match self.journal.take() {
            Some(journal) => journal.forget().await,
            None => Ok(()),
        }
    }
}

/// The unit of the page cache and of most file systems. If a piece were not a multiple of this unit, they
/// would have to read before they write.
const PAGE_BYTES: u64 = 4096;

// Copies one piece: reads it, and writes the parts that are not zero.

/// State common to all pieces.
pub(crate) struct Carrier {
    pub(crate) source: Rc<Source>,
    pub(crate) destination: Rc<Destination>,
    /// Whether zeros in the data are treated as holes.
    pub(crate) detect_zeros: bool,
    /// Whether unreadable data is replaced by zeros.
    pub(crate) skip_errors: bool,
    /// Whether the data is returned, for the digest.
    pub(crate) keep_data: bool,
    /// The target that copies internally, if any.
    pub(crate) offload: Option<Offload>,
    /// Maximum length of a read in bytes.
    pub(crate) request_bytes: u64,
    /// Data before this position is on the destination and is not written again.
    pub(crate) write_from: Cell<u64>,
}

/// The result of a piece.
#[derive(Default)]
pub(crate) struct Carried {
    /// The data, if requested; `None` for a hole.
    pub(crate) data: Option<Slice>,
    pub(crate) tally: Tally,
    pub(crate) unreadable: Vec<Range<u64>>,
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
            carried.tally.offloaded = if is_written {
                0
            } else {
                piece.range.end - piece.range.start
            };
            return Ok(carried);
        }
        // The target may still be executing a copy command whose response was lost.
        let quiesced = carrier.destination.quiesced().await;
        quiesced.map_err(|error| carrier.unwritten(piece.range.start, error))?;
    }
    // A piece is longer than a request only if the target was expected to copy it, and did not.
    for request in requests(piece.range, carrier.request_bytes) {
        carrier.carry_request(request, &mut carried).await?;
    }
    Ok(carried)
}

/// Splits a range so that each part is within one block of this length.
fn pieces(range: Range<u64>, block: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        at = range.end.min((at / block + 1) * block);
        (start < range.end).then_some(start..at)
    })
}

/// Appends a range to a list, merging consecutive ranges.
fn lost(unreadable: &mut Vec<Range<u64>>, piece: Range<u64>) {
    debug_assert!(
        unreadable.last().is_none_or(|last| last.end <= piece.start),
        "the parts of a piece are read in order"
    );
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
            true => {
                reactor::consume_budget(data.len()).await;
                pieces::runs(data)
            }
            false => vec![DataRun {
                range: 0..data.len(),
                is_zero: false,
            }],
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
        self.destination
            .clear(range)
            .await
            .map_err(|error| self.unwritten(start, error))
    }

    /// Reads the readable parts of a piece. Reads in steps of the physical block size of most disks, and,
    /// where a step fails, in single logical blocks.
    async fn salvage(
        &self,
        range: Range<u64>,
        unreadable: &mut Vec<Range<u64>>,
    ) -> Result<Slice, Failure> {
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
        Failure::device(
            format_args!("cannot read {} at byte {at}", self.source.name),
            error,
        )
    }

    fn unwritten(&self, at: u64, error: DeviceError) -> Failure {
        Failure::device(
            format_args!("cannot write {} at byte {at}", self.destination.name),
            error,
        )
    }
}

// Copies by the target itself (EXTENDED COPY, SPC-4 6.4): the data does not pass through this process.

/// A target that copies internally, until its first failure.
pub(crate) struct Offload {
    copy: RefCell<Option<ExtendedCopy>>,
    block_bytes: u64,
}

/// Maximum length that one command copies. If the command fails, this process copies the same range.
const COMMAND_BYTES_MAX: u64 = 16 << 20;

impl Offload {
    /// If source and destination are LUNs, queries whether the target can copy between them. Returns `None`
    /// if it cannot.
    pub(crate) async fn between(
        source: &Source,
        destination: &Destination,
    ) -> Result<Option<Offload>, String> {
        let Some(((from, from_at), (to, to_at))) = source.unit().zip(destination.unit()) else {
            return Ok(None);
        };
        // EXTENDED COPY identifies LUNs by names, and cloned systems have LUNs with the same names. Only at
        // the same address does a name certainly identify one LUN.
        if from_at != to_at {
            return Ok(None);
        }
        let copy = ExtendedCopy::between(&from, &to).await;
        let copy =
            copy.map_err(|error| format!("the data is copied through this host, because {error}"))?;
        Ok(Some(Offload {
            copy: RefCell::new(Some(copy)),
            block_bytes: source.block_bytes(),
        }))
    }

    /// The length copied by one command, in bytes: a power of two.
    pub(crate) fn request_bytes(&self) -> u64 {
        let most = self
            .copy
            .borrow()
            .as_ref()
            .map_or(1, |copy| copy.blocks_max())
            * self.block_bytes;
        1 << most.min(COMMAND_BYTES_MAX).ilog2()
    }

    /// Lets the target copy `range`. Returns false if this failed. After a failure, the target is not used
    /// for copying again. A failure can be permanent: a target that has only one of the two LUNs reports this
    /// only here.
    pub(crate) async fn carries(&self, range: &Range<u64>) -> bool {
        let Some(copy) = self.copy.borrow().clone() else {
            return false;
        };
        let (first, blocks) = (
            range.start / self.block_bytes,
            (range.end - range.start) / self.block_bytes,
        );
        let Err(error) = copy.copy(first, first, blocks).await else {
            return true;
        };
        if self.copy.take().is_some() {
            tracing::info!("the target does not support internal copies: {error}");
        }
        false
    }
}

// The result of a copy.

/// The result of a copy. The JSON names and units are stable.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Display name of the source.
    pub source: String,
    /// Display name of the destination.
    pub destination: String,
    /// Length of the source.
    pub bytes: u64,
    /// Bytes copied by an earlier run, which this run resumed.
    pub resumed_at_bytes: u64,
    /// Bytes read from the source by this process.
    pub read_bytes: u64,
    /// Bytes written to the destination by this process.
    pub written_bytes: u64,
    /// Bytes copied by a target from one of its LUNs to another.
    pub offloaded_bytes: u64,
    /// Bytes zeroed without sending data: by WRITE SAME, UNMAP or the file system's equivalent.
    pub cleared_bytes: u64,
    /// Duration of the copy, without the comparison.
    pub seconds: f64,
    /// Write throughput, by this process or by the target.
    pub mb_per_s: f64,
    /// Parts of the source that could not be read.
    pub unreadable: Vec<Range<u64>>,
    /// SHA-256 of the source in hexadecimal, if requested.
    pub sha256: Option<String>,
    /// Whether the destination was read back and matches.
    pub verified: bool,
}

impl Report {
    pub(crate) fn new(
        source: &Source,
        destination: &Destination,
        resumed_at_bytes: u64,
        account: &Account,
        time: Duration,
    ) -> Report {
        let seconds = time.as_secs_f64();
        Report {
            source: source.name.clone(),
            destination: destination.name.clone(),
            bytes: source.bytes,
            resumed_at_bytes,
            read_bytes: account.tally.read,
            written_bytes: account.tally.written,
            offloaded_bytes: account.tally.offloaded,
            cleared_bytes: account.tally.cleared,
            seconds,
            mb_per_s: (account.tally.written + account.tally.offloaded) as f64
                / seconds.max(1e-9)
                / 1e6,
            unreadable: account.unreadable.clone(),
            sha256: None,
            verified: false,
        }
    }

    /// Whether the copy is complete.
    ///
    /// # Errors
    /// Unreadable data was replaced by zeros.
    pub fn verdict(&self) -> Result<(), Failure> {
        if self.unreadable.is_empty() {
            return Ok(());
        }
        let ranges = self
            .unreadable
            .iter()
            .map(|range| format!("\n  {}-{}", range.start, range.end - 1));
        Err(Failure::failed(format_args!(
            "{} has unreadable data, and zeros were written for the bytes{}",
            self.source,
            ranges.collect::<String>()
        )))
    }
}
