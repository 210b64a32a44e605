//! Several pieces at once, and the position before which all are done.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use backends::Failure;
use block::DeviceError;
use volume::spec::Bytes;

use crate::carry::{Carried, Carrier, Tally, carry};
use crate::destination::Destination;
use crate::digest::Digest;
use crate::journal::Journal;
use crate::offload::Offload;
use crate::options::{Flight, Observer, Options};
use crate::pieces::{Piece, Pieces};
use crate::queue::Queue;
use crate::source::Source;

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

/// The position of a copy: all before this byte is on the destination; with its byte counts.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) done: u64,
    pub(crate) tally: Tally,
}

/// Why a copy does not go on.
pub(crate) enum Stop {
    /// The destination may have lost what it acknowledged since it was flushed last.
    WritesLost,
    /// It cannot be flushed.
    Unflushed(Failure),
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
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
        let Flight { depth, request_bytes } = options.flight(&source, &destination);
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

/// Everything acknowledged so far is on stable storage.
pub(crate) async fn flushed(destination: &Destination) -> Result<(), Stop> {
    let name = &destination.name;
    destination.flush().await.map_err(|error| match error {
        DeviceError::WritesLost => Stop::WritesLost,
        error => Stop::Unflushed(Failure::device(format_args!("cannot flush {name}"), error)),
    })
}
