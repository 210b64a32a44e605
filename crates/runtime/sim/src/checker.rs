//! The checker of reads. It derives from requests and responses which content each block may have.
//!
//! Every write puts a unique number into each of its blocks. A write takes effect once, at some moment
//! between its request and its end. It ends with its response, or at the moment after which it must no longer
//! take effect: when its command is aborted, its nexus is fenced or reinstated, or its server is killed. A
//! read returns the state at some moment between its own request and response. If it returns a write's
//! number, it *shows* that write. The following rules apply to each block:
//!
//! 1. A read shows neither a write that was requested after the read's response, nor one that was never
//!    requested.
//! 2. A write is *superseded* once another write, requested after its end, has been answered, or shown by a
//!    read.
//! 3. A read that shows a write supersedes all other writes that had ended before the read was requested.
//! 4. An answered flush makes all writes durable that had been answered before the flush was requested. A
//!    power cut may revert any write except durable ones.
//! 5. A write's content appears in its block only once: if two commands replace content (COMPARE AND WRITE),
//!    only one of them can have found that write's content.
//!
//! Moments are increasing numbers, not times. They represent the order of events in the simulation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use derive_more::Display;

type Moment = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WriteId(u64);

/// The requester of a write. The writes of one writer can be ended together.
pub(crate) type Writer = u64;

/// The lowest writer number of our initiators.
pub(crate) const OUR_FIRST_WRITER: Writer = 1_000;

/// The possible contents of the blocks of one volume.
pub(crate) struct Checker {
    block_bytes: usize,
    tears: bool,
    /// Whether flushed writes survive a power cut.
    keeps: bool,
    /// The volume's number.
    number: u64,
    blocks: Vec<BlockHistory>,
    /// Writes that have not ended.
    open: BTreeMap<WriteId, OpenWrite>,
    /// Writes that were suspended and resumed. A response to them does not reveal whether they took effect
    /// before or after the resumption.
    resumed: BTreeSet<WriteId>,
    clock: Moment,
    reads: Reads,
    /// Moment of the latest power cut or recreation of the volume. Responses to earlier requests may reflect
    /// the earlier state.
    epoch: Moment,
    /// For each writer, the moment before which all losses of its requests have been reported to it.
    told: BTreeMap<Writer, Moment>,
    /// Moment of the server's latest restart, and a function that selects writers that check more than unit
    /// attentions.
    restarted: (Moment, fn(Writer) -> bool),
    next: u64,
    pub(crate) checks: u64,
}

impl OpenWrite {
    /// Returns the write's entry in the history of its blocks, if it starts at `begun`.
    fn entry(&self, id: WriteId, begun: Moment) -> Entry {
        let WriteKind {
            zeros,
            repeats,
            copied_from,
        } = self.kind;
        let value = if zeros { 0 } else { id.0 };
        Entry {
            id,
            value,
            writer: self.writer,
            repeats,
            copied_from,
            ..Entry::begun(begun)
        }
    }
}

/// Outstanding reads: for each, the moment of its request, its first block and its number of blocks.
#[derive(Default)]
struct Reads(BTreeMap<Moment, (u64, u64)>);

impl Reads {
    /// Returns the moment of the earliest request among the outstanding reads of this block, or `now` if
    /// there are none.
    fn horizon(&self, block: u64, now: Moment) -> Moment {
        let first = self
            .0
            .iter()
            .find(|(_, (lba, blocks))| (*lba..lba + blocks).contains(&block));
        first.map_or(now, |(begun, _)| *begun)
    }
}

struct OpenWrite {
    writer: Writer,
    lba: u64,
    blocks: u64,
    begun: Moment,
    kind: WriteKind,
    /// Whether the write must not take effect until it is resumed.
    suspended: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteKind {
    /// Whether the write writes only zeros.
    pub(crate) zeros: bool,
    /// Whether the writer retries the write if it is aborted.
    pub(crate) repeats: bool,
    /// The number of the volume from which the write copies its blocks. They have the same addresses on both
    /// volumes.
    pub(crate) copied_from: Option<u64>,
}

/// A block with impossible content.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[display("block {lba}: {what}")]
pub(crate) struct BlockFault {
    pub(crate) lba: u64,
    /// A description of the error.
    pub(crate) what: String,
}

/// The moment at which something started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now(Moment);

/// A write's number consists of the volume's number, from this bit on, and the write's number on that volume.
const VOLUME_SHIFT: u32 = 40;

/// Maximum number of exchanges recorded per block. No more are outstanding at the same time.
const EXCHANGES: usize = 64;

/// "LINERATE", which identifies content that the simulation wrote.
const MAGIC: u64 = 0x4c49_4e45_5241_5445;

impl Checker {
    /// Creates a checker for a volume of durable zeros. With `tears`, a read concurrent with a write may
    /// return a mixture of the old and the new block. Without `keeps`, a flush guarantees nothing.
    ///
    /// `number` identifies the volume, so that copies from one volume to another are recognised.
    pub(crate) fn new(
        number: u64,
        block_bytes: usize,
        blocks: u64,
        tears: bool,
        keeps: bool,
    ) -> Checker {
        let mut checker = Checker {
            block_bytes,
            tears,
            keeps,
            number,
            blocks: (0..blocks).map(|_| BlockHistory::default()).collect(),
            open: BTreeMap::new(),
            resumed: BTreeSet::new(),
            clock: 0,
            reads: Reads::default(),
            epoch: 0,
            told: BTreeMap::new(),
            restarted: (0, |_| false),
            next: number << VOLUME_SHIFT | 1,
            checks: 0,
        };
        checker.erase();
        checker
    }

    /// Replaces the volume with a new one: all blocks are zeros, and only writes that are retried remain
    /// outstanding.
    pub(crate) fn erase(&mut self) {
        let now = self.tick();
        self.epoch = now;
        self.open.retain(|_, open| open.kind.repeats);
        for block in &mut self.blocks {
            block.forget_all(Entry::zeros(now));
        }
    }

    fn tick(&mut self) -> Moment {
        self.clock += 1;
        self.clock
    }

    /// Called before a write of `blocks` blocks is requested. The write's data must come from
    /// [`Checker::fill`], unless the write writes zeros.
    pub(crate) fn begin_write(
        &mut self,
        writer: Writer,
        lba: u64,
        blocks: u64,
        kind: WriteKind,
    ) -> WriteId {
        let (id, begun) = (WriteId(self.next), self.tick());
        self.next += 1;
        let open = OpenWrite {
            writer,
            lba,
            blocks,
            begun,
            kind,
            suspended: false,
        };
        let entry = open.entry(id, begun);
        self.open.insert(id, open);
        for block in &mut self.blocks[lba as usize..(lba + blocks) as usize] {
            block.writes.push(entry);
            block.changes(begun);
        }
        id
    }

    pub(crate) fn fill(&self, id: WriteId, lba: u64, data: &mut [u8]) {
        for (block, lba) in data.chunks_mut(self.block_bytes).zip(lba..) {
            for (word, value) in block
                .chunks_exact_mut(8)
                .zip([MAGIC, id.0, lba].into_iter().cycle())
            {
                word.copy_from_slice(&value.to_be_bytes());
            }
        }
    }

    /// Records that a write was answered, so it has taken effect.
    pub(crate) fn wrote(&mut self, id: WriteId) {
        self.end(id, true);
    }

    /// Records that a write was answered and is durable.
    pub(crate) fn wrote_stable(&mut self, id: WriteId) {
        self.end(id, true);
        for block in &mut self.blocks {
            let own = block.writes.iter_mut().filter(|entry| entry.id == id);
            for entry in own.filter(|entry| entry.effective.is_some() && entry.loss == Loss::None) {
                entry.lasts = true;
            }
        }
    }

    /// Records that a write was answered while a duplicate of it may still be in transit. The duplicate may
    /// be executed until the write is over, but not after another answered write of the same writer that
    /// started since `opened`, because that write waits for duplicates.
    pub(crate) fn wrote_perhaps_again(&mut self, id: WriteId, opened: Now) {
        let now = self.tick();
        let Some(OpenWrite {
            writer,
            lba,
            blocks,
            ..
        }) = self.open.get(&id)
        else {
            return;
        };
        for block in &mut self.blocks[*lba as usize..(lba + blocks) as usize] {
            (block.changed, block.shown) = (now, None);
            for entry in block
                .writes
                .iter_mut()
                .filter(|entry| entry.writer == *writer)
            {
                if entry.id != id {
                    let may_repeat =
                        entry.answered && entry.ended.is_none() && entry.begun > opened.0;
                    entry.superseded = entry.superseded.or(may_repeat.then_some(now));
                    continue;
                }
                entry.answered = true;
                // A response from before the power cut reflects the earlier state.
                if !entry.cut {
                    block.settled = false;
                    entry.effective.get_or_insert(now);
                }
            }
        }
    }

    /// Records that a write will no longer take effect. It may already have taken effect.
    pub(crate) fn is_over(&mut self, id: WriteId) {
        self.end(id, false);
    }

    /// Records that all unanswered writes of a writer requested before `moment` are over.
    pub(crate) fn are_over(&mut self, writer: Writer, moment: Now) {
        self.are_over_but(writer, moment, &[]);
    }

    /// Like [`Checker::are_over`], except for some writes.
    pub(crate) fn are_over_but(&mut self, writer: Writer, moment: Now, spared: &[WriteId]) {
        let meant = |(id, open): &(&WriteId, &OpenWrite)| {
            open.writer == writer && open.begun < moment.0 && !spared.contains(id)
        };
        let own: Vec<WriteId> = self.open.iter().filter(meant).map(|(id, _)| *id).collect();
        own.into_iter().for_each(|id| self.is_over(id));
    }

    /// Returns the blocks of a writer's unanswered writes, as first block and count.
    pub(crate) fn under_way(&self, writer: Writer) -> Vec<(u64, u64)> {
        let own = self.open.values().filter(|open| open.writer == writer);
        own.map(|open| (open.lba, open.blocks)).collect()
    }

    pub(crate) fn now(&mut self) -> Now {
        Now(self.tick())
    }

    /// Returns the unanswered writes of `writer` requested since `moment`.
    pub(crate) fn open_since(&self, moment: Now, writer: Writer) -> Vec<WriteId> {
        let is_meant = |open: &OpenWrite| open.writer == writer && open.begun > moment.0;
        self.open
            .iter()
            .filter(|(_, open)| is_meant(open))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Suspends unanswered writes requested before `moment`. Because a reservation excludes their writers,
    /// they do not take effect unless they are resumed.
    pub(crate) fn suspend(&mut self, moment: Now, is_meant: impl Fn(WriteId, Writer) -> bool) {
        let now = self.tick();
        let is_meant =
            |id: WriteId, open: &OpenWrite| open.begun < moment.0 && is_meant(id, open.writer);
        for (id, open) in self
            .open
            .iter_mut()
            .filter(|(id, open)| is_meant(**id, open))
        {
            open.suspended = true;
            for block in &mut self.blocks[open.lba as usize..(open.lba + open.blocks) as usize] {
                for entry in block.writes.iter_mut().filter(|entry| entry.id == *id) {
                    entry.ended.get_or_insert(now);
                }
                (block.changed, block.shown) = (now, None);
            }
        }
    }

    /// Resumes suspended writes. Those that are still in transit may take effect again.
    pub(crate) fn resume(&mut self) {
        let now = self.tick();
        for (id, open) in self.open.iter_mut().filter(|(_, open)| open.suspended) {
            open.suspended = false;
            self.resumed.insert(*id);
            let entry = open.entry(*id, now);
            for block in &mut self.blocks[open.lba as usize..(open.lba + open.blocks) as usize] {
                block.writes.push(entry);
                block.changes(now);
            }
        }
    }

    /// Records that the server was killed. All writes are over, except those that are retried on the next
    /// server.
    pub(crate) fn all_are_over(&mut self) {
        let all: Vec<WriteId> = self
            .open
            .iter()
            .filter(|(_, open)| !open.kind.repeats)
            .map(|(id, _)| *id)
            .collect();
        all.into_iter().for_each(|id| self.is_over(id));
    }

    fn end(&mut self, id: WriteId, done: bool) {
        let now = self.tick();
        let done = done && !self.resumed.contains(&id);
        // If a response arrives after the write was over, the write took effect before it was over.
        let (lba, blocks) = match self.open.remove(&id) {
            Some(open) => (open.lba, open.blocks),
            None => (0, self.blocks.len() as u64),
        };
        for (block, lba) in self.blocks[lba as usize..(lba + blocks) as usize]
            .iter_mut()
            .zip(lba..)
        {
            // Search from the end, because writes that end are mostly recent.
            if let Some(entry) = block.writes.iter_mut().rev().find(|entry| entry.id == id) {
                (block.changed, block.shown) = (now, None);
                let ended = *entry.ended.get_or_insert(now);
                entry.answered |= done;
                // A response from before the power cut reflects the earlier state.
                if done && !entry.cut {
                    block.settled = false;
                    entry.effective = Some(entry.effective.map_or(ended, |at| at.min(ended)));
                }
            }
            block.forget(|| self.reads.horizon(lba, now), self.keeps);
        }
    }

    /// Called before a read of `blocks` blocks is requested.
    pub(crate) fn begin_read(&mut self, lba: u64, blocks: u64) -> Now {
        let now = self.now();
        self.reads.0.insert(now.0, (lba, blocks));
        now
    }

    /// Records that a read failed or was abandoned, and so returned no data.
    pub(crate) fn read_nothing(&mut self, begun: Now) {
        self.reads.0.remove(&begun.0);
    }

    /// Checks a read that was answered with `data`.
    pub(crate) fn read(&mut self, begun: Now, lba: u64, data: &[u8]) -> Result<(), BlockFault> {
        let now = self.tick();
        self.reads.0.remove(&begun.0);
        if begun.0 < self.epoch {
            return Ok(());
        }
        for (bytes, lba) in data.chunks(self.block_bytes).zip(lba..) {
            self.checks += 1;
            let value = match value(bytes, lba) {
                Err(_) if self.tears && self.blocks[lba as usize].changes_since(begun.0) => {
                    continue;
                }
                value => value.map_err(|what| BlockFault {
                    lba,
                    what: what.to_string(),
                })?,
            };
            self.blocks[lba as usize]
                .shows(value, begun.0, now)
                .map_err(|what| BlockFault { lba, what })?;
            self.blocks[lba as usize].forget(|| self.reads.horizon(lba, now), self.keeps);
        }
        Ok(())
    }

    /// Whether the write `later` is missing from `block`, that is, whether `block` shows a write that had
    /// ended before `later` started. Returns false for writes that a failed sync may have lost, because only
    /// a flush reports such a loss.
    pub(crate) fn lacks(&self, lba: u64, block: &[u8], later: WriteId) -> bool {
        let Ok(shown) = value(block, lba) else {
            return false;
        };
        let writes = &self.blocks[lba as usize].writes;
        let later = writes
            .iter()
            .find(|entry| entry.id == later && entry.loss == Loss::None);
        // Zeros are not unique.
        let shown = writes
            .iter()
            .find(|entry| shown != 0 && entry.id.0 == shown);
        later
            .zip(shown)
            .is_some_and(|(later, shown)| shown.is_before(later.begun))
    }

    /// Records that a command requested at `begun` found `found` in a block and replaced it. Fails if another
    /// command has found and replaced the same content.
    pub(crate) fn exchanged(
        &mut self,
        begun: Now,
        lba: u64,
        found: &[u8],
    ) -> Result<(), BlockFault> {
        let Ok(found) = value(found, lba) else {
            return Ok(());
        }; // a read reports this
        let block = &mut self.blocks[lba as usize];
        // Zeros can appear several times, and so can the content of retried or copied writes.
        let is_unique = found != 0
            && block
                .writes
                .iter()
                .any(|entry| entry.id.0 == found && !entry.repeats);
        if begun.0 < self.epoch || !is_unique {
            return Ok(());
        }
        if block.exchanged.contains(&found) {
            let what = format!("write {found} was found and exchanged twice");
            return Err(BlockFault { lba, what });
        }
        block.exchanged.push_back(found);
        if block.exchanged.len() > EXCHANGES {
            block.exchanged.pop_front();
        }
        Ok(())
    }

    /// Records that a flush requested by `writer` at `begun` was answered: writes answered before `begun` are
    /// durable. Fails if such a write was lost without a report to its writer.
    pub(crate) fn flushed(&mut self, writer: Writer, begun: Now) -> Result<(), BlockFault> {
        if begun.0 < self.epoch {
            return Ok(());
        }
        for (block, lba) in self
            .blocks
            .iter_mut()
            .zip(0..)
            .filter(|(block, _)| !block.settled)
        {
            (block.settled, block.shown) = (true, None);
            for entry in &mut block.writes {
                if entry.effective.is_none_or(|at| at >= begun.0) {
                    block.settled &= entry.effective.is_none();
                    continue;
                }
                match entry.loss {
                    Loss::None => {
                        entry.lasts = true;
                        continue;
                    }
                    Loss::Possible => continue,
                    Loss::Certain => {}
                }
                let (restart, looks_closer) = self.restarted;
                // A writer that checks more than unit attentions relies on its answered writes. Its
                // unanswered writes from before the restart are uncertain.
                entry.told |= self
                    .told
                    .get(&entry.writer)
                    .is_some_and(|at| entry.begun < *at)
                    || entry.begun < restart && !(looks_closer(entry.writer) && entry.answered);
                block.settled &= entry.told;
                if entry.writer == writer && !entry.told {
                    let what = format!(
                        "write {} was lost, but its writer's flush succeeded",
                        entry.id.0
                    );
                    return Err(BlockFault { lba, what });
                }
            }
        }
        Ok(())
    }

    /// Records that a flush by `writer` failed. The error has notified the writer of losses.
    pub(crate) fn flush_failed(&mut self, writer: Writer) {
        let now = self.tick();
        self.told.insert(writer, now);
    }

    /// Records that `writer` will not flush its earlier writes.
    pub(crate) fn is_gone(&mut self, writer: Writer) {
        self.flush_failed(writer);
    }

    /// Records that the server was restarted. Writers that check only unit attentions must assume that
    /// unflushed writes were lost. Writers selected by `looks_closer` detect from the cache generation
    /// whether they were.
    pub(crate) fn has_restarted(&mut self, looks_closer: fn(Writer) -> bool) {
        self.restarted = (self.tick(), looks_closer);
        self.blocks
            .iter_mut()
            .for_each(|block| block.exchanged.clear());
    }

    /// Records a failed sync: the disk has lost `lost`, which is still in its cache for block `lba`, and has
    /// `kept` on stable storage instead.
    pub(crate) fn sync_failed(&mut self, lba: u64, lost: &[u8], kept: &[u8]) {
        let now = self.tick();
        let block = &mut self.blocks[lba as usize];
        block.changes(now);
        block.exchanged.clear();
        let writes = &mut block.writes;
        let (lost, kept) = (value(lost, lba).ok(), value(kept, lba).ok());
        // A write supersedes all writes that ended before it started. Concurrent writes may have taken effect
        // earlier or later.
        let latest = |is_it: &dyn Fn(&Entry) -> bool| {
            let those = writes.iter().filter(|entry| is_it(entry));
            // An outstanding write may take effect after any other.
            those
                .map(|entry| entry.latest().unwrap_or(Moment::MAX))
                .max()
        };
        // Zeros, and values that a copy has shown, may come from a write or from a later copy.
        let written = |entry: &Entry| kept.is_some_and(|kept| entry.value == kept);
        let copied = |entry: &Entry| {
            kept.is_some_and(|kept| entry.copied_from.is_some() && entry.may_show(kept))
        };
        let kept_at = latest(&written).max(latest(&copied));
        // If several writes or copies may have written `kept`, all but one of them may have been lost.
        let kept_since = writes
            .iter()
            .filter(|entry| written(entry) || copied(entry))
            .filter_map(Entry::latest)
            .min();
        let lost_at = lost.and_then(|lost| latest(&|entry| entry.may_show(lost)));
        for entry in writes {
            let is_newer = kept_at.is_none_or(|at| entry.begun > at);
            let may_be_newer = is_newer || kept_since.is_some_and(|since| entry.begun > since);
            // Writes that are newer than the disk's content may still be in a cache above the disk, and reach
            // the disk later.
            let has_landed = match lost {
                Some(lost) if entry.may_show(lost) => true,
                _ => entry.effective.is_some() && lost_at.is_none_or(|at| entry.begun < at),
            };
            // A write that is retried may take effect again.
            let lands_again = entry.repeats && entry.ended.is_none();
            let loss = if is_newer && has_landed && !lands_again {
                Loss::Certain
            } else {
                Loss::Possible
            };
            if !entry.lasts && may_be_newer {
                entry.loss = entry.loss.max(loss);
            }
        }
    }

    /// Records a power cut: no command is outstanding any more, and only durable writes are certain to
    /// survive.
    pub(crate) fn cut_power(&mut self) {
        self.all_are_over();
        let now = self.tick();
        self.epoch = now;
        for block in &mut self.blocks {
            match self.keeps {
                true => block.cut_power(now),
                false => block.forget_all(Entry {
                    copied_from: Some(self.number),
                    ..Entry::zeros(now)
                }),
            }
        }
    }
}

/// The reason why a block shows no write.
#[derive(Display)]
enum Unread {
    #[display("shows bytes that were never written")]
    Foreign,
    #[display("is torn: it starts with write {_0}, but continues with different data")]
    Torn(u64),
    #[display("shows block {_0} of write {_1}")]
    Elsewhere(u64, u64),
}

/// Returns the number of the write that a block shows; 0 for zeros.
fn value(bytes: &[u8], lba: u64) -> Result<u64, Unread> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let word = |at: usize| {
        bytes[at * 8..][..8]
            .try_into()
            .map_or(0, u64::from_be_bytes)
    };
    let (magic, value, place) = (word(0), word(1), word(2));
    if magic != MAGIC {
        return Err(Unread::Foreign);
    }
    let whole = (0..bytes.len() / 8).all(|at| word(at) == [MAGIC, value, place][at % 3]);
    match (whole, place == lba) {
        (false, _) => Err(Unread::Torn(value)),
        (_, false) => Err(Unread::Elsewhere(place, value)),
        _ => Ok(value),
    }
}

#[derive(Default)]
struct BlockHistory {
    /// Writes that a read could still show, and writes that supersede them.
    writes: Vec<Entry>,
    /// Number of entries at which obsolete ones are dropped.
    tidy_at: usize,
    /// Whether all writes known to have taken effect are durable, so that a flush changes nothing.
    settled: bool,
    /// Moment of the latest start, end or loss of a write.
    changed: Moment,
    /// The result of a read requested after `changed`, and whether that content is durable. Another read with
    /// the same result adds no information.
    shown: Option<Shown>,
    /// Values that exchanges found in this block and replaced, latest last. Cleared when writes may have been
    /// lost.
    exchanged: VecDeque<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Shown {
    value: u64,
    begun: Moment,
    lasts: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: WriteId,
    /// The value that a block with this write contains: the write's number, or 0 for zeros.
    value: u64,
    begun: Moment,
    /// Moment from which the write can no longer take effect.
    ended: Option<Moment>,
    /// Whether the writer received a response.
    answered: bool,
    /// Moment by which the write had taken effect.
    effective: Option<Moment>,
    /// Whether a flush has made the write durable.
    lasts: bool,
    writer: Writer,
    /// Whether the write may be executed several times until it has ended, because its initiator retries it
    /// if it is aborted.
    repeats: bool,
    /// The volume from which the write is copied. Until the copied value is known, the block may contain any
    /// value of that volume and of volumes with lower numbers.
    copied_from: Option<u64>,
    /// Whether a failed sync has lost the write.
    loss: Loss,
    /// Whether the writer has been notified of the loss.
    told: bool,
    /// Whether the write had started before the latest power cut.
    cut: bool,
    /// Moment of the response to a read that showed a later write.
    superseded: Option<Moment>,
}

/// Whether a failed sync has lost a write. A later sync does not store a lost write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    None,
    /// The write may have been lost, or may still reach the disk.
    Possible,
    Certain,
}

impl Entry {
    /// Creates an entry for durable zeros at this moment.
    fn zeros(now: Moment) -> Entry {
        Entry {
            ended: Some(now),
            effective: Some(now),
            lasts: true,
            ..Entry::begun(0)
        }
    }

    /// Creates an entry for a write of zeros that started at `begun`.
    fn begun(begun: Moment) -> Entry {
        Entry {
            id: WriteId(0),
            value: 0,
            begun,
            ended: None,
            answered: false,
            effective: None,
            lasts: false,
            writer: 0,
            repeats: false,
            copied_from: None,
            loss: Loss::None,
            told: false,
            cut: false,
            superseded: None,
        }
    }

    fn may_show(&self, value: u64) -> bool {
        match self.copied_from {
            // Copies go only to volumes with higher numbers, so the source contains no data of this volume.
            Some(source) => value >> VOLUME_SHIFT <= source,
            None => self.value == value,
        }
    }

    /// Returns the moment by which the write had taken effect, if it ever did.
    fn latest(&self) -> Option<Moment> {
        match (self.ended, self.effective.filter(|_| !self.repeats)) {
            (Some(ended), Some(effective)) => Some(ended.min(effective)),
            (one, other) => one.or(other),
        }
    }

    /// Whether a read requested at `moment` can no longer show this write. `newest` is the latest start of a
    /// write that had taken effect by `moment`.
    fn is_superseded_at(&self, moment: Moment, newest: Moment) -> bool {
        self.superseded.is_some_and(|at| at < moment) || self.is_before(newest)
    }

    /// Whether this write, if it ever took effect, did so before `begun`, at which another write started.
    fn is_before(&self, begun: Moment) -> bool {
        self.latest().is_some_and(|latest| latest < begun)
    }
}

impl BlockHistory {
    fn shows(&mut self, value: u64, begun: Moment, now: Moment) -> Result<(), String> {
        if let Some(shown) = self
            .shown
            .filter(|shown| shown.value == value && shown.begun < begun)
        {
            self.settled &= shown.lasts;
            return Ok(());
        }
        let newest = self.newest(|entry| entry.effective.is_some_and(|at| at < begun));
        let mut possible = (0..self.writes.len()).filter(|place| {
            let entry = &self.writes[*place];
            entry.may_show(value) && !entry.is_superseded_at(begun, newest)
        });
        let (first, second) = (possible.next(), possible.next());
        let Some(only) = first else {
            return Err(self.explain(value, begun));
        };
        if second.is_none() {
            let id = self.writes[only].id;
            let entry = &mut self.writes[only];
            (entry.value, entry.copied_from) = (value, None);
            entry.effective = Some(entry.effective.map_or(now, |at| at.min(now)));
            self.settled &= entry.lasts;
            self.shown = (self.changed < begun).then_some(Shown {
                value,
                begun,
                lasts: entry.lasts,
            });
            for other in self.writes.iter_mut().filter(|other| other.id != id) {
                if other.latest().is_some_and(|latest| latest < begun) {
                    other.superseded.get_or_insert(now);
                }
            }
        }
        Ok(())
    }

    fn changes(&mut self, now: Moment) {
        (self.changed, self.shown) = (now, None);
    }

    /// Returns the moment at which the last of these writes started, or 0 if there is none. Once that write
    /// has taken effect, no read can show a write that took effect before this moment.
    fn newest(&self, is_meant: impl Fn(&Entry) -> bool) -> Moment {
        self.writes
            .iter()
            .filter(|entry| is_meant(entry))
            .map(|entry| entry.begun)
            .max()
            .unwrap_or(0)
    }

    /// Whether a write was outstanding at this moment, or has started since.
    fn changes_since(&self, moment: Moment) -> bool {
        self.writes
            .iter()
            .any(|entry| entry.ended.is_none_or(|ended| ended > moment))
    }

    fn explain(&self, value: u64, begun: Moment) -> String {
        let newest = self.newest(|entry| entry.effective.is_some_and(|at| at < begun));
        let legal: Vec<u64> = self
            .writes
            .iter()
            .filter(|entry| !entry.is_superseded_at(begun, newest))
            .map(|entry| entry.value)
            .collect();
        let what = self.writes.iter().find(|entry| entry.value == value);
        format!(
            "shows write {value}, which can no longer be visible ({what:?}); permitted are {legal:?}"
        )
    }

    /// Drops writes that no read can show any more, even after a power cut. Requires that the volume keeps
    /// flushed writes.
    fn forget(&mut self, horizon: impl FnOnce() -> Moment, keeps: bool) {
        if self.writes.len() < self.tidy_at.max(8) {
            return;
        }
        let horizon = horizon();
        let counts = |entry: &Entry| entry.lasts || !keeps;
        let newest =
            self.newest(|entry| counts(entry) && entry.effective.is_some_and(|at| at < horizon));
        self.writes.retain(|entry| !entry.is_before(newest));
        self.tidy_at = 2 * self.writes.len();
    }

    /// Drops all writes except the current content and retried writes.
    fn forget_all(&mut self, now: Entry) {
        self.changes(now.effective.unwrap_or_default());
        self.exchanged.clear();
        self.writes
            .retain(|entry| entry.repeats && entry.ended.is_none());
        self.writes
            .iter_mut()
            .for_each(|entry| (entry.effective, entry.cut) = (None, true));
        self.writes.push(now);
    }

    fn cut_power(&mut self, now: Moment) {
        self.changes(now);
        self.exchanged.clear();
        let newest = self.newest(|entry| entry.lasts);
        self.writes.retain(|entry| !entry.is_before(newest));
        for entry in &mut self.writes {
            // It is unknown whether the write was on stable storage, so reads before the power cut do not
            // determine the current content.
            entry.superseded = None;
            entry.cut = true;
            if !entry.lasts {
                entry.effective = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
