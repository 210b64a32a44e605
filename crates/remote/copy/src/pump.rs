//! Several pieces at once, and the position before which all are done.

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
use crate::options::{Flight, Observer, Options};
use crate::pieces::{self, DataRun, Piece, Pieces, Queue};
use crate::source::{Digest, Source};
use crate::stream::requests;

/// A copy under way.
pub(crate) struct Pump {
    carrier: Rc<Carrier>,
    pieces: Pieces,
    queue: Queue<(Range<u64>, Result<Carried, Failure>)>,
    /// Where the pieces begin that are not done.
    under_way: BTreeSet<u64>,
    /// How far the first of them may be behind: their data are kept for the digest, and would be copied
    /// again.
    ahead_bytes_max: u64,
    cut: Cut,
    journal: Option<Journal>,
    digest: Option<Digest>,
    /// Of what lies before the first piece that is not done.
    account: Account,
    /// Of pieces that are done behind it, by their first byte.
    ahead: BTreeMap<u64, Tally>,
    durable: Mark,
    /// How often the copy went back to that byte.
    returns: u32,
}

/// How long pieces are, in bytes.
#[derive(Clone, Copy)]
struct Cut {
    request: u64,
    /// What that is a multiple of.
    block: u64,
}

/// A destination that loses what it acknowledges so often, without a flush that succeeds, will go on doing
/// so.
const RETURNS_MAX: u32 = 5;

/// What has been done so far.
#[derive(Clone, Default)]
pub(crate) struct Account {
    pub(crate) tally: Tally,
    /// Parts of the source that zeros were written for.
    pub(crate) unreadable: Vec<Range<u64>>,
}

/// How a copy that did not fail ended.
pub(crate) enum Ended {
    /// All of it is on the destination, and flushed. The SHA-256, if it was wanted.
    Complete(Option<String>),
    /// Interrupted; data before this byte are on the destination and flushed.
    Interrupted(u64),
}

impl Pump {
    /// A copy of what lies from `start` on.
    pub(crate) fn new(
        options: &Options<'_>,
        source: Rc<Source>,
        destination: Rc<Destination>,
        journal: Option<Journal>,
        offload: Option<Offload>,
        start: u64,
    ) -> Pump {
        let Flight { depth, request_bytes } = destination.flight(options, &source);
        let request = offload.as_ref().map_or(request_bytes, Offload::request_bytes);
        let block = source.block_bytes().max(destination.block_bytes()).max(PAGE_BYTES);
        // A digest is of everything, so that what is copied already is read again.
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
            durable: Mark { done: start, tally: Tally::default() },
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

    /// Copies to the end, to an interruption or to the first failure. Either way nothing is under way any
    /// more when this ends, and what is done is flushed and, if there is a journal, written down. What the
    /// destination has lost is copied again.
    pub(crate) async fn run(&mut self, observer: &dyn Observer) -> Result<Ended, Failure> {
        loop {
            match self.pass(observer).await {
                Ok(()) if self.durable.done < self.carrier.source.bytes => break,
                Ok(()) => return Ok(Ended::Complete(self.digest.take().map(Digest::hex))),
                Err(Stop::WritesLost) if observer.is_interrupted() => break,
                Err(Stop::WritesLost) => self.go_back(observer).map_err(|failure| self.with_hint(failure))?,
                Err(Stop::Unflushed(failure) | Stop::Failed(failure)) => return Err(self.with_hint(failure)),
            }
        }
        Ok(Ended::Interrupted(self.durable.done))
    }

    async fn pass(&mut self, observer: &dyn Observer) -> Result<(), Stop> {
        let mut result = self.fill(observer).await;
        while let Some((range, ended)) = self.queue.next().await {
            result = result.and(self.account_for(range, ended));
        }
        // The last flush that failed may have been the only one to be told, so that another one proves
        // nothing.
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

    /// Begins again where the destination's stable storage ends.
    fn go_back(&mut self, observer: &dyn Observer) -> Result<(), Failure> {
        let Mark { done, tally } = self.durable;
        let (name, durable) = (&self.carrier.destination.name, Bytes(done));
        if self.returns == RETURNS_MAX {
            return Err(Failure::device(
                format_args!(
                    "cannot copy beyond {durable} to {name}, which has lost what was not flushed {} times in \
                     a row; look for errors of its storage in its log, or copy with a smaller --checkpoint",
                    RETURNS_MAX + 1
                ),
                DeviceError::WritesLost,
            ));
        }
        self.returns += 1;
        observer.note(&format!("{name} has lost what was not flushed: going back to {durable}"));
        self.carrier.destination.copied_again();
        self.carrier.write_from.set(done);
        let is_read_again = self.digest.is_some();
        let from = if is_read_again { 0 } else { done };
        self.pieces = Pieces::new(Rc::clone(&self.carrier.source), from, self.cut.request, self.cut.block);
        self.digest = self.digest.is_some().then(Digest::default);
        self.account.tally = if is_read_again { Tally { read: 0, ..tally } } else { tally };
        self.account.unreadable.retain(|range| range.end <= from);
        self.ahead.clear();
        self.under_way.clear();
        Ok(())
    }

    /// What lies before this byte is durable.
    fn is_durable(&mut self, mark: Mark) {
        if mark.done > self.durable.done {
            self.durable = mark;
            self.returns = 0;
        }
    }

    /// Waits for a note that is being made.
    async fn noted(&mut self) -> Result<(), Stop> {
        if let Some(journal) = &mut self.journal {
            let noted = journal.noted().await?;
            noted.into_iter().for_each(|mark| self.is_durable(mark));
        }
        Ok(())
    }

    /// Starts pieces until none are left, an interruption, or a failure.
    async fn fill(&mut self, observer: &dyn Observer) -> Result<(), Stop> {
        loop {
            while self.queue.is_full() || self.pieces.position() > self.done_to() + self.ahead_bytes_max {
                let Some((range, ended)) = self.queue.next().await else { break };
                self.account_for(range, ended)?;
                observer.at(self.done_to());
                self.checkpoint().await?;
            }
            if observer.is_interrupted() {
                return Ok(());
            }
            let Some(piece) = self.pieces.next().await else { return Ok(()) };
            self.start(piece);
        }
    }

    fn start(&mut self, piece: Piece) {
        let range = piece.range.clone();
        self.under_way.insert(range.start);
        let carried = carry(Rc::clone(&self.carrier), piece);
        self.queue.start(async move { (range, carried.await) });
    }

    fn account_for(&mut self, range: Range<u64>, ended: Result<Carried, Failure>) -> Result<(), Stop> {
        let carried = ended?; // a piece that has failed stays under way: nothing behind it is sure
        let start = range.start;
        self.under_way.remove(&start);
        if let Some(digest) = &mut self.digest {
            digest.add(range, carried.data);
        }
        self.account.unreadable.extend(carried.unreadable);
        self.ahead.insert(start, carried.tally);
        let done = self.done_to();
        while let Some(first) = self.ahead.first_entry().filter(|first| *first.key() < done) {
            self.account.tally += first.remove();
        }
        Ok(())
    }

    fn mark(&self) -> Mark {
        Mark { done: self.done_to(), tally: self.account.tally }
    }

    /// The byte before which everything is done.
    fn done_to(&self) -> u64 {
        self.under_way.first().copied().unwrap_or(self.pieces.position()).max(self.carrier.write_from.get())
    }

    /// Writes down how far it is, now and then, while the copy goes on.
    async fn checkpoint(&mut self) -> Result<(), Stop> {
        let mark = self.mark();
        if let Some(journal) = &mut self.journal {
            let noted = journal.perhaps(mark, &self.carrier.destination).await?;
            noted.into_iter().for_each(|mark| self.is_durable(mark));
        }
        Ok(())
    }

    /// Makes what is done last.
    async fn flush(&mut self) -> Result<(), Stop> {
        let (mark, destination) = (self.mark(), &self.carrier.destination);
        match &mut self.journal {
            Some(journal) if mark.done < self.carrier.source.bytes => journal.last(mark, destination).await?,
            _ => flushed(destination).await?,
        }
        self.is_durable(mark);
        Ok(())
    }

    fn with_hint(&self, failure: Failure) -> Failure {
        match (self.is_resumable(), self.durable.done > 0) {
            (true, true) => {
                failure.and("what is copied is written down; run the same command again to go on")
            }
            (true, false) => failure.and("no checkpoint was made yet: the same command begins again"),
            (false, _) => failure,
        }
    }

    /// Whether the same command will go on where this one ended.
    pub(crate) fn is_resumable(&self) -> bool {
        self.journal.is_some()
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// There is nothing to go on with any more.
    pub(crate) async fn forget_journal(&mut self) -> Result<(), Failure> {
        match self.journal.take() {
            Some(journal) => journal.forget().await,
            None => Ok(()),
        }
    }
}

/// What the page cache and most file systems work in: a piece that is no multiple of it would have to be read
/// first.
const PAGE_BYTES: u64 = 4096;

// Copying one piece: it is read, and written where it is not zero.

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
            true => pieces::runs(data),
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

// Copies by the target itself (EXTENDED COPY, SPC-4 6.4): the data do not pass through this process.

/// A target that copies, as long as it succeeds.
pub(crate) struct Offload {
    copy: RefCell<Option<ExtendedCopy>>,
    block_bytes: u64,
}

/// The longest copy of one command; if it fails, this much is copied by us.
const COMMAND_BYTES_MAX: u64 = 16 << 20;

impl Offload {
    /// Queries the target if both ends are LUNs; `None`, and the reason, if it does not copy.
    pub(crate) async fn between(
        source: &Source,
        destination: &Destination,
    ) -> Result<Option<Offload>, String> {
        let Some(((from, from_at), (to, to_at))) = source.unit().zip(destination.unit()) else {
            return Ok(None);
        };
        // A copy names LUNs by identifiers, which clones of a machine share: only what is reached at one
        // place is certain to be one.
        if from_at != to_at {
            return Ok(None);
        }
        let copy = ExtendedCopy::between(&from, &to).await;
        let copy = copy.map_err(|error| format!("the data go through this host, as {error}"))?;
        Ok(Some(Offload { copy: RefCell::new(Some(copy)), block_bytes: source.block_bytes() }))
    }

    /// What one command copies, in bytes: a power of two.
    pub(crate) fn request_bytes(&self) -> u64 {
        let most = self.copy.borrow().as_ref().map_or(1, |copy| copy.blocks_max()) * self.block_bytes;
        1 << most.min(COMMAND_BYTES_MAX).ilog2()
    }

    /// Lets the target copy `range`; false if it failed. After a failure it is not asked again: a target that
    /// has only one of the two LUNs reports it only here.
    pub(crate) async fn carries(&self, range: &Range<u64>) -> bool {
        let Some(copy) = self.copy.borrow().clone() else { return false };
        let (first, blocks) = (range.start / self.block_bytes, (range.end - range.start) / self.block_bytes);
        let Err(error) = copy.copy(first, first, blocks).await else { return true };
        if self.copy.take().is_some() {
            tracing::info!("the target does not copy by itself: {error}");
        }
        false
    }
}

// The result of a copy.

/// The result. The names and units of the JSON are promised.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The source, for people.
    pub source: String,
    /// The destination, for people.
    pub destination: String,
    /// Of the source.
    pub bytes: u64,
    /// Done by an earlier copy, which this one resumed.
    pub resumed_at_bytes: u64,
    /// Read from the source by us.
    pub read_bytes: u64,
    /// Written to the destination by us.
    pub written_bytes: u64,
    /// Copied by a target from one of its LUNs to another.
    pub offloaded_bytes: u64,
    /// Made zero without data: by WRITE SAME, UNMAP or what a file system has for it.
    pub cleared_bytes: u64,
    /// How long it took, without the comparison.
    pub seconds: f64,
    /// Of what was written, by us or by the target.
    pub mb_per_s: f64,
    /// Parts of the source that could not be read.
    pub unreadable: Vec<Range<u64>>,
    /// Of the source, if it was wanted, in hexadecimal digits.
    pub sha256: Option<String>,
    /// The destination was read back, and is equal.
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
            mb_per_s: (account.tally.written + account.tally.offloaded) as f64 / seconds.max(1e-9) / 1e6,
            unreadable: account.unreadable.clone(),
            sha256: None,
            verified: false,
        }
    }

    /// Whether the copy is what was asked for.
    ///
    /// # Errors
    /// It has zeros in the place of data that cannot be read.
    pub fn verdict(&self) -> Result<(), Failure> {
        if self.unreadable.is_empty() {
            return Ok(());
        }
        let ranges = self.unreadable.iter().map(|range| format!("\n  {}-{}", range.start, range.end - 1));
        Err(Failure::failed(format_args!(
            "{} has data that cannot be read, and zeros were written for the bytes{}",
            self.source,
            ranges.collect::<String>()
        )))
    }
}
