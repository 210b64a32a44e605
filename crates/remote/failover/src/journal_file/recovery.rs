//! Recovers the journal file of an earlier process: compares its content with the device, and replays the
//! writes that the server has lost.

use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::task::Poll;

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent, Slice};

use crate::channels::Evidence;
use crate::journal::{Journal, Part, Writers};
use crate::journal_file::{
    ANCHOR_BYTES, Anchor, Content, Doubt, JournalFile, JournalFileError, Kind, Owner, Record,
    ReplayRule, UnreportedLoss, boot,
};

/// Maximum number of outstanding requests.
const AT_ONCE: usize = 32;
/// Number of attempts before recovery gives up, leaving the file unchanged, because the server loses its
/// cache during each.
const ROUNDS_MAX: usize = 8;
/// Number of anchors of a new file, spread over the device.
const ANCHORS: u64 = 16;
/// Zeros are compared in pieces of this length.
const PIECE_BYTES: u64 = 1 << 20;
/// Longer ranges of zeros are not compared.
const COMPARED_BYTES_MAX: u64 = 64 << 20;

/// A change in the file.
#[derive(Clone, Debug)]
struct Kept {
    start: u64,
    content: Content<Slice>,
}

impl Part for Kept {
    fn part(&self, range: Range<u64>) -> Kept {
        let content = match &self.content {
            Content::Write(data) => {
                let cut = (range.start - self.start) as usize..(range.end - self.start) as usize;
                Content::Write(Buffer::from(&data[cut]).share())
            }
            other => other.clone(),
        };
        Kept {
            start: range.start,
            content,
        }
    }

    fn memory_bytes(&self) -> usize {
        match &self.content {
            Content::Write(data) => data.len(),
            Content::Zeroes { .. } | Content::Unmap => 0,
        }
    }
}

/// An error, and the device's byte at which it occurred.
type Failed = (DeviceError, u64);
type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failed>> + 'a>>;

/// Evidence of the server's cache at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// The server's run, if it reports it.
    pub(crate) start: Option<u128>,
    /// Number of connections made to it.
    pub(crate) connections: u64,
}

impl Server {
    /// Whether the server certainly has the same cache as at that time.
    fn has_cache_of(self, before: Server) -> bool {
        match (before.start, self.start) {
            (Some(before), Some(now)) => before == now,
            _ => before.connections == self.connections,
        }
    }
}

impl JournalFile {
    /// Opens or creates the file of a device like [`JournalFile::open`], and processes its content by the
    /// rule; afterwards it is empty. `server` returns the server's current state. Nothing else may use the
    /// device during recovery.
    ///
    /// A comparison is invalid once the server has lost the compared cache: a connection that replaces a lost one may reach another
    /// cache, and the flush then covers a state that was not compared. The file is therefore emptied only if the server had one cache
    /// from the first read to the end of the flush; otherwise everything is compared again.
    ///
    /// # Errors
    /// It cannot be used, and keeps its changes.
    pub(crate) async fn recovered(
        path: &Path,
        rule: ReplayRule,
        capacity: u64,
        owner: &Owner,
        device: &dyn BlockDevice,
        server: &dyn Fn() -> Server,
    ) -> Result<JournalFile, JournalFileError> {
        let mut file = JournalFile::open(path, owner, capacity)?;
        let system = |error| JournalFileError::System(path.to_owned(), error);
        let failed = |(error, at)| JournalFileError::Device(path.to_owned(), error, at);
        let mut found = Found::default();
        file.read(|record, data| found.note(record, data))
            .map_err(system)?;
        if found
            .journal
            .changes()
            .any(|(range, _)| !fits(device, &range))
        {
            return Err(JournalFileError::Damaged(path.to_owned()));
        }
        let changes = found.journal.changes().count();
        if rule == ReplayRule::Discard {
            if changes > 0 || file.has_dropped_unreported() {
                tracing::warn!(
                    path = %path.display(),
                    changes,
                    "the content of the journal file was discarded (journal-replay=discard)"
                );
            }
            found = Found::default();
            file.loss_recorded().map_err(system)?;
        }
        let losses = device.losses();
        let mut rounds = 0..ROUNDS_MAX;
        let start = loop {
            if rounds.next().is_none() {
                return Err(failed((DeviceError::NotReady, 0)));
            }
            let before = server();
            let is_same_cache = || server().has_cache_of(before);
            if file
                .replay(
                    rule,
                    owner.writers,
                    &found,
                    device,
                    before.start,
                    &is_same_cache,
                )
                .await?
                .is_none()
            {
                continue;
            }
            // Unacknowledged requests are now either durable or lost.
            if let Err(error) = device.flush().await {
                let is_loss = error.is_loss() || device.losses().count() > losses.count();
                // The next attempt would find the lost changes in the server's cache, and its flush succeeds.
                if is_loss && !file.is_empty() {
                    file.note_loss().map_err(system)?;
                }
                return Err(failed((error, 0)));
            }
            if is_same_cache() {
                break before.start;
            }
        };
        let bytes = device.geometry().bytes();
        let length = (ANCHOR_BYTES as u64).min(bytes);
        // The first and the last location are among them, because they contain disk labels.
        let places =
            (0..ANCHORS).map(|number| (bytes - length) / (ANCHORS - 1) * number / 512 * 512);
        let mut places: Vec<u64> = places.collect();
        places.dedup();
        let anchors = places
            .iter()
            .map(|start| anchor(device, *start..*start + length));
        let anchors = all(anchors).await.map_err(failed)?;
        file.begin(owner, start, anchors).map_err(system)?;
        Ok(file)
    }

    /// Compares the changes with the server's current content, and replays them as [`decide`] requires. `None`
    /// if the server has lost its cache during this.
    async fn replay(
        &self,
        rule: ReplayRule,
        writers: Writers,
        found: &Found,
        device: &dyn BlockDevice,
        start: Option<u128>,
        is_same_cache: &dyn Fn() -> bool,
    ) -> Result<Option<()>, JournalFileError> {
        let failed = |(error, at)| JournalFileError::Device(self.path.clone(), error, at);
        let Found { journal, sent } = found;
        let held: Vec<(Range<u64>, &Kept)> = journal.changes().collect();
        if held.is_empty() {
            return Ok(Some(()));
        }
        let evidence = match self.header.loss {
            UnreportedLoss::None => Evidence::of(self.header.start, start),
            UnreportedLoss::InFile | UnreportedLoss::Dropped => Evidence::Loss,
        };
        let has_kept = evidence == Evidence::Kept;
        let compared = held.iter().map(|(range, kept)| {
            // If the server has lost nothing, a later change that was sent over this one may have been
            // executed.
            let is_settled = !has_kept || !sent.overlaps(range);
            compare(device, range, kept, has_kept, is_settled)
        });
        let differing = all(compared)
            .await
            .map_err(failed)?
            .into_iter()
            .filter(|same| !same)
            .count();
        let doubt = match rule {
            ReplayRule::Auto => self.doubt(device, evidence, writers).await?,
            ReplayRule::Force | ReplayRule::Discard => None,
        };
        if !is_same_cache() {
            return Ok(None); // the differences and the doubt concern a lost cache
        }
        // The content of deallocated blocks is undefined, so it cannot be lost.
        let promises = |(_, kept): &&(Range<u64>, &Kept)| !matches!(kept.content, Content::Unmap);
        let again: Vec<&(Range<u64>, &Kept)> = match decide(evidence, doubt, differing > 0) {
            Decision::Refuse(doubt) => {
                let changes = if differing > 0 { differing } else { held.len() };
                return Err(JournalFileError::Refused(self.path.clone(), changes, doubt));
            }
            Decision::ReplayNone => Vec::new(),
            Decision::ReplayPromised => held.iter().filter(promises).collect(),
            Decision::ReplayAll => held.iter().collect(),
        };
        all(again.iter().map(|(range, kept)| write(device, range, kept)))
            .await
            .map_err(failed)?;
        let (changes, bytes, replayed) = (held.len(), journal.bytes(), again.len());
        tracing::info!(
            path = %self.path.display(),
            changes,
            bytes,
            differing,
            replayed,
            "the journal file was compared with the server's data"
        );
        Ok(Some(()))
    }

    /// Evidence that the changes must not replace the server's content.
    async fn doubt(
        &self,
        device: &dyn BlockDevice,
        evidence: Evidence,
        writers: Writers,
    ) -> Result<Option<Doubt>, JournalFileError> {
        if evidence == Evidence::Kept {
            return Ok(Some(Doubt::SameStart));
        }
        if writers == Writers::Several {
            return Ok(Some(Doubt::Several));
        }
        if boot().map_err(|error| JournalFileError::System(self.path.clone(), error))?
            != self.header.boot
        {
            return Ok(Some(Doubt::Boot));
        }
        let anchors = &self.header.anchors;
        if anchors.is_empty() {
            return Ok(Some(Doubt::NoAnchors));
        }
        let now = all(anchors.iter().map(|before| anchor(device, before.range()))).await;
        let now =
            now.map_err(|(error, at)| JournalFileError::Device(self.path.clone(), error, at))?;
        Ok((now != *anchors).then_some(Doubt::Anchors))
    }
}

// Changes from the file: which ones are replayed.
//
// ```text
//                           │ no change differs                      │ some differ
//   the cache is the same   │ none                                   │ refused; all with `force`
//   the cache is unknown    │ all, or with a doubt none              │ all, or with a doubt refused
//   changes were lost       │ all; with `writers=several` refused    │ all, or with a doubt refused
// ```
//
// There is no doubt with `force`, and no change with `discard`. Unless the server has certainly kept its
// cache, changes that do not differ are replayed too: after a failed flush, Linux keeps the data in its
// cache, where it reads as written, but no later flush stores it. An unreported loss in the header counts as
// a loss.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// The file is left unchanged, and the device cannot be opened with it.
    Refuse(Doubt),
    ReplayNone,
    /// Only changes that promise content.
    ReplayPromised,
    ReplayAll,
}

fn decide(evidence: Evidence, doubt: Option<Doubt>, is_any_different: bool) -> Decision {
    match (is_any_different, evidence, doubt) {
        (true, _, Some(doubt)) | (false, Evidence::Loss, Some(doubt @ Doubt::Several)) => {
            Decision::Refuse(doubt)
        }
        (true, _, None) => Decision::ReplayAll,
        (false, Evidence::Kept, _) | (false, Evidence::None, Some(_)) => Decision::ReplayNone,
        (false, Evidence::None, None) | (false, Evidence::Loss, _) => Decision::ReplayPromised,
    }
}

/// The content of a file.
#[derive(Default)]
struct Found {
    journal: Journal<Kept>,
    /// Changes sent over acknowledged ones, and not acknowledged.
    sent: Journal<Kept>,
}

impl Found {
    fn note(&mut self, record: Record, data: &[u8]) {
        let Record { range, kind, .. } = record;
        let content = match kind {
            Kind::Write => Content::Write(Buffer::from(data).share()),
            Kind::Zeroes => Content::Zeroes { may_unmap: false },
            Kind::ZeroesOrHoles => Content::Zeroes { may_unmap: true },
            Kind::Unmap | Kind::Durable | Kind::Sent => Content::Unmap,
        };
        let kept = Kept {
            start: range.start,
            content,
        };
        self.sent.forget(range.clone());
        match kind {
            Kind::Sent => self.sent.insert(range, kept),
            Kind::Durable => drop(self.journal.forget(range)),
            _ => self.journal.insert(range, kept),
        }
    }
}

fn fits(device: &dyn BlockDevice, range: &Range<u64>) -> bool {
    let mask = (1 << device.geometry().block_size.shift()) - 1;
    (range.start | range.end) & mask == 0 && range.end <= device.geometry().bytes()
}

/// The blocks that contain these bytes.
fn blocks(device: &dyn BlockDevice, range: &Range<u64>) -> Extent {
    let shift = device.geometry().block_size.shift();
    let first = range.start >> shift;
    Extent::new(first, range.end.div_ceil(1 << shift) - first)
}

/// Adds the first byte of a request to its error.
fn at<T>(range: &Range<u64>, done: Result<T, DeviceError>) -> Result<T, Failed> {
    done.map_err(|error| (error, range.start))
}

async fn read(device: &dyn BlockDevice, range: &Range<u64>) -> Result<Buffer, Failed> {
    let blocks = blocks(device, range);
    let buffer = Buffer::zeroed(device.geometry().length(blocks) as usize);
    at(range, device.read(blocks, buffer).await)
}

fn anchor<'a>(device: &'a dyn BlockDevice, range: Range<u64>) -> Work<'a, Anchor> {
    Box::pin(async move {
        let read = read(device, &range).await?;
        let from = (range.start - device.geometry().offset(blocks(device, &range))) as usize;
        Ok(Anchor::new(
            range.start,
            &read[from..from + (range.end - range.start) as usize],
        ))
    })
}

/// Whether the device contains the result of a change. Unmapped blocks may have any content.
fn compare<'a>(
    device: &'a dyn BlockDevice,
    range: &'a Range<u64>,
    kept: &'a Kept,
    is_same_start: bool,
    is_settled: bool,
) -> Work<'a, bool> {
    Box::pin(async move {
        match &kept.content {
            _ if !is_settled => Ok(true),
            Content::Unmap if !device.profile().thin => Ok(true),
            Content::Write(data) => Ok(read(device, range).await?[..] == data[..]),
            // On a thin device, unmapped blocks read as zeros.
            Content::Zeroes { .. } | Content::Unmap
                if range.end - range.start > COMPARED_BYTES_MAX =>
            {
                Ok(is_same_start)
            }
            Content::Zeroes { .. } | Content::Unmap => {
                for piece in range.clone().step_by(PIECE_BYTES as usize) {
                    let piece = piece..(piece + PIECE_BYTES).min(range.end);
                    if read(device, &piece).await?.iter().any(|byte| *byte != 0) {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    })
}

fn write<'a>(device: &'a dyn BlockDevice, range: &'a Range<u64>, kept: &'a Kept) -> Work<'a, ()> {
    let extent = blocks(device, range);
    let written = match &kept.content {
        Content::Write(data) => device.write(extent, data.clone(), Durability::Cached),
        Content::Zeroes { may_unmap } => device.write_zeroes(extent, *may_unmap),
        Content::Unmap => device.unmap(extent),
    };
    Box::pin(async move { at(range, written.await) })
}

/// Runs all of the work, some of it concurrently; the results are in order.
async fn all<'a, T>(work: impl Iterator<Item = Work<'a, T>>) -> Result<Vec<T>, Failed> {
    let mut work = work.fuse();
    let mut outstanding: Vec<(usize, Work<'a, T>)> = Vec::new();
    let mut results: Vec<Option<T>> = Vec::new();
    std::future::poll_fn(|cx| {
        loop {
            while outstanding.len() < AT_ONCE {
                let Some(one) = work.next() else { break };
                outstanding.push((results.len(), one));
                results.push(None);
            }
            let before = outstanding.len();
            let mut failed = None;
            outstanding.retain_mut(|(number, one)| match one.as_mut().poll(cx) {
                Poll::Pending => true,
                Poll::Ready(done) => {
                    match done {
                        Ok(done) => results[*number] = Some(done),
                        Err(error) => failed = Some(error),
                    }
                    false
                }
            });
            match failed {
                Some(error) => return Poll::Ready(Err(error)),
                None if outstanding.is_empty() => return Poll::Ready(Ok(())),
                None if outstanding.len() == before => return Poll::Pending,
                None => {}
            }
        }
    })
    .await?;
    debug_assert!(results.iter().all(Option::is_some), "all work has a result");
    Ok(results.into_iter().flatten().collect())
}
