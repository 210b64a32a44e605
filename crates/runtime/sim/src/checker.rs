//! The checker of reads: for every block, the writes that it may show, derived from requests and responses.
//!
//! Every write puts a number of its own into each of its blocks. A write took effect once, at some moment
//! between its request and its end; its end is the answer, or the moment from which on it must not land any
//! more (the command was aborted, its nexus was fenced or reinstated, its server is dead). A read then tells
//! of the moment between its own request and answer. The rules that follow from that, for each block:
//!
//! 1. A read shows no write that was asked for after the read's answer, and none that nobody asked for.
//! 2. A write is *superseded* once another that was asked for after its end has been answered, or seen.
//! 3. A read that shows a write supersedes all others that had ended before the read was asked for.
//! 4. A flush that is answered makes lasting what had been answered before it was asked for. A power cut
//!    takes any other write back, but none that lasts.
//! 5. A write stands in its block once: of two that exchange what they find there for something else (COMPARE
//!    AND WRITE), only one can have found it.
//!
//! Moments are numbers that count up, not times: the order in which the simulation did things is the order
//! that counts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use derive_more::Display;

type Moment = u64;

/// Names a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WriteId(u64);

/// The requester of a write: writes of one writer can be ended together.
pub(crate) type Writer = u64;

/// Writers from here on are our initiators.
pub(crate) const OUR_FIRST_WRITER: Writer = 1_000;

/// The possible contents of the blocks of one volume.
pub(crate) struct Checker {
    block_bytes: usize,
    tears: bool,
    /// What is flushed survives a power cut.
    keeps: bool,
    /// The volume's.
    number: u64,
    blocks: Vec<BlockHistory>,
    /// Those that have not ended.
    open: BTreeMap<WriteId, OpenWrite>,
    /// Those that were resumed: an answer does not say whether they took effect before or behind that.
    resumed: BTreeSet<WriteId>,
    clock: Moment,
    reads: Reads,
    /// When the power was last cut, or the volume made anew: answers to what was asked for before may tell of
    /// then.
    epoch: Moment,
    /// Writers know of what was lost of all that they had asked for before.
    told: BTreeMap<Writer, Moment>,
    /// When the server has last started again, and who looks closer than at unit attentions.
    restarted: (Moment, fn(Writer) -> bool),
    next: u64,
    /// Checks that were made.
    pub(crate) checks: u64,
}

impl OpenWrite {
    /// As it is in the history of its blocks, if it begins then.
    fn entry(&self, id: WriteId, begun: Moment) -> Entry {
        let WriteKind { zeros, repeats, copied_from } = self.kind;
        let value = if zeros { 0 } else { id.0 };
        Entry { id, value, writer: self.writer, repeats, copied_from, ..Entry::begun(begun) }
    }
}

/// The reads under way: when they were asked for, first block and count.
#[derive(Default)]
struct Reads(BTreeMap<Moment, (u64, u64)>);

impl Reads {
    /// No read of that block was asked for before that and has not ended.
    fn horizon(&self, block: u64, now: Moment) -> Moment {
        let first = self.0.iter().find(|(_, (lba, blocks))| (*lba..lba + blocks).contains(&block));
        first.map_or(now, |(begun, _)| *begun)
    }
}

struct OpenWrite {
    writer: Writer,
    lba: u64,
    blocks: u64,
    begun: Moment,
    kind: WriteKind,
    /// It must not take effect now.
    suspended: bool,
}

/// Properties of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteKind {
    /// Of zeros only.
    pub(crate) zeros: bool,
    /// Sent again if it is aborted.
    pub(crate) repeats: bool,
    /// Of what is at the same blocks of the volume with this number.
    pub(crate) copied_from: Option<u64>,
}

/// A block with a content that it cannot have.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[display("block {lba}: {what}")]
pub(crate) struct BlockFault {
    pub(crate) lba: u64,
    /// What is wrong about it.
    pub(crate) what: String,
}

/// When something began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now(Moment);

/// A write's number is that of its volume, and what it is on that.
const VOLUME_SHIFT: u32 = 40;

/// So many exchanges of one block are remembered: more are not under way at once.
const EXCHANGES: usize = 64;

/// "LINERATE", so that a block of other bytes is known as such.
const MAGIC: u64 = 0x4c49_4e45_5241_5445;

impl Checker {
    /// All blocks are zeros, and that lasts. With `tears` a read beside a write may show a part of the block
    /// from before it. Without `keeps` a flush promises nothing.
    ///
    /// `number` is the volume's, so that what is copied from one to another is known there.
    pub(crate) fn new(number: u64, block_bytes: usize, blocks: u64, tears: bool, keeps: bool) -> Checker {
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

    /// The volume is a new one: all blocks are zeros, and nothing is under way but what is sent again.
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

    /// Called before the request of a write of `blocks` blocks, of data that [`Checker::fill`] makes if not
    /// of zeros.
    pub(crate) fn begin_write(&mut self, writer: Writer, lba: u64, blocks: u64, kind: WriteKind) -> WriteId {
        let (id, begun) = (WriteId(self.next), self.tick());
        self.next += 1;
        let open = OpenWrite { writer, lba, blocks, begun, kind, suspended: false };
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
            for (word, value) in block.chunks_exact_mut(8).zip([MAGIC, id.0, lba].into_iter().cycle()) {
                word.copy_from_slice(&value.to_be_bytes());
            }
        }
    }

    /// It was answered: it has been carried out.
    pub(crate) fn wrote(&mut self, id: WriteId) {
        self.end(id, true);
    }

    /// The same, and what it has written lasts.
    pub(crate) fn wrote_stable(&mut self, id: WriteId) {
        self.end(id, true);
        for block in &mut self.blocks {
            let own = block.writes.iter_mut().filter(|entry| entry.id == id);
            for entry in own.filter(|entry| entry.effective.is_some() && entry.loss == Loss::None) {
                entry.lasts = true;
            }
        }
    }

    /// It was answered, and a copy of it may still be on its way, to be carried out again until it is over; but not behind
    /// another answered one of the same writer that was begun since `opened`: that one waits for the copies.
    pub(crate) fn wrote_perhaps_again(&mut self, id: WriteId, opened: Now) {
        let now = self.tick();
        let Some(OpenWrite { writer, lba, blocks, .. }) = self.open.get(&id) else { return };
        for block in &mut self.blocks[*lba as usize..(lba + blocks) as usize] {
            (block.changed, block.shown) = (now, None);
            for entry in block.writes.iter_mut().filter(|entry| entry.writer == *writer) {
                if entry.id != id {
                    let may_repeat = entry.answered && entry.ended.is_none() && entry.begun > opened.0;
                    entry.superseded = entry.superseded.or(may_repeat.then_some(now));
                    continue;
                }
                entry.answered = true;
                // An answer from before the power cut tells of then.
                if !entry.cut {
                    block.settled = false;
                    entry.effective.get_or_insert(now);
                }
            }
        }
    }

    /// It will not be carried out any more; perhaps it was.
    pub(crate) fn is_over(&mut self, id: WriteId) {
        self.end(id, false);
    }

    /// All writes of a writer that were asked for before `moment` and have not been answered are over.
    pub(crate) fn are_over(&mut self, writer: Writer, moment: Now) {
        self.are_over_but(writer, moment, &[]);
    }

    /// The same, but for some.
    pub(crate) fn are_over_but(&mut self, writer: Writer, moment: Now, spared: &[WriteId]) {
        let meant = |(id, open): &(&WriteId, &OpenWrite)| {
            open.writer == writer && open.begun < moment.0 && !spared.contains(id)
        };
        let own: Vec<WriteId> = self.open.iter().filter(meant).map(|(id, _)| *id).collect();
        own.into_iter().for_each(|id| self.is_over(id));
    }

    /// The blocks of what a writer has asked for and has no answer to: first block and count.
    pub(crate) fn under_way(&self, writer: Writer) -> Vec<(u64, u64)> {
        let own = self.open.values().filter(|open| open.writer == writer);
        own.map(|open| (open.lba, open.blocks)).collect()
    }

    /// This moment.
    pub(crate) fn now(&mut self) -> Now {
        Now(self.tick())
    }

    /// What `writer` has asked for since `moment` and has no answer to.
    pub(crate) fn open_since(&self, moment: Now, writer: Writer) -> Vec<WriteId> {
        let is_meant = |open: &OpenWrite| open.writer == writer && open.begun > moment.0;
        self.open.iter().filter(|(_, open)| is_meant(open)).map(|(id, _)| *id).collect()
    }

    /// Writes that were asked for before `moment` and have not been answered do not take effect from now on, unless they
    /// are resumed: a reservation keeps their writers out.
    pub(crate) fn suspend(&mut self, moment: Now, is_meant: impl Fn(WriteId, Writer) -> bool) {
        let now = self.tick();
        let is_meant = |id: WriteId, open: &OpenWrite| open.begun < moment.0 && is_meant(id, open.writer);
        for (id, open) in self.open.iter_mut().filter(|(id, open)| is_meant(**id, open)) {
            open.suspended = true;
            for block in &mut self.blocks[open.lba as usize..(open.lba + open.blocks) as usize] {
                for entry in block.writes.iter_mut().filter(|entry| entry.id == *id) {
                    entry.ended.get_or_insert(now);
                }
                (block.changed, block.shown) = (now, None);
            }
        }
    }

    /// Those that were suspended may take effect again: what of them is still on its way is let in.
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

    /// The server is dead. What is sent again to the next one is not over by that.
    pub(crate) fn all_are_over(&mut self) {
        let all: Vec<WriteId> =
            self.open.iter().filter(|(_, open)| !open.kind.repeats).map(|(id, _)| *id).collect();
        all.into_iter().for_each(|id| self.is_over(id));
    }

    fn end(&mut self, id: WriteId, done: bool) {
        let now = self.tick();
        let done = done && !self.resumed.contains(&id);
        // An answer may come after the write was over otherwise: then it was carried out before that.
        let (lba, blocks) = match self.open.remove(&id) {
            Some(open) => (open.lba, open.blocks),
            None => (0, self.blocks.len() as u64),
        };
        for (block, lba) in self.blocks[lba as usize..(lba + blocks) as usize].iter_mut().zip(lba..) {
            // What ends is mostly young.
            if let Some(entry) = block.writes.iter_mut().rev().find(|entry| entry.id == id) {
                (block.changed, block.shown) = (now, None);
                let ended = *entry.ended.get_or_insert(now);
                entry.answered |= done;
                // An answer from before the power cut tells of then.
                if done && !entry.cut {
                    block.settled = false;
                    entry.effective = Some(entry.effective.map_or(ended, |at| at.min(ended)));
                }
            }
            block.forget(|| self.reads.horizon(lba, now), self.keeps);
        }
    }

    /// Called before the request of a read of `blocks` blocks.
    pub(crate) fn begin_read(&mut self, lba: u64, blocks: u64) -> Now {
        let now = self.now();
        self.reads.0.insert(now.0, (lba, blocks));
        now
    }

    /// It ended without data.
    pub(crate) fn read_nothing(&mut self, begun: Now) {
        self.reads.0.remove(&begun.0);
    }

    /// It was answered with `data`.
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
                value => value.map_err(|what| BlockFault { lba, what: what.to_string() })?,
            };
            self.blocks[lba as usize].shows(value, begun.0, now).map_err(|what| BlockFault { lba, what })?;
            self.blocks[lba as usize].forget(|| self.reads.horizon(lba, now), self.keeps);
        }
        Ok(())
    }

    /// Whether a block of `data` lacks the write `later`: it shows one that had ended before that began. A write that a failed sync
    /// may have lost is not meant, of which nobody knows before a flush.
    pub(crate) fn lacks(&self, lba: u64, block: &[u8], later: WriteId) -> bool {
        let Ok(shown) = value(block, lba) else { return false };
        let writes = &self.blocks[lba as usize].writes;
        let later = writes.iter().find(|entry| entry.id == later && entry.loss == Loss::None);
        // Zeros come again.
        let shown = writes.iter().find(|entry| shown != 0 && entry.id.0 == shown);
        later.zip(shown).is_some_and(|(later, shown)| shown.is_before(later.begun))
    }

    /// `found` was at a block, and was exchanged for something else by one command that was asked for then.
    pub(crate) fn exchanged(&mut self, begun: Now, lba: u64, found: &[u8]) -> Result<(), BlockFault> {
        let Ok(found) = value(found, lba) else { return Ok(()) }; // a read has told
        let block = &mut self.blocks[lba as usize];
        // Zeros come again, and so does what is sent or copied again.
        let is_unique = found != 0 && block.writes.iter().any(|entry| entry.id.0 == found && !entry.repeats);
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

    /// A flush that `writer` had asked for then was answered: what had been answered before that lasts.
    pub(crate) fn flushed(&mut self, writer: Writer, begun: Now) -> Result<(), BlockFault> {
        if begun.0 < self.epoch {
            return Ok(());
        }
        for (block, lba) in self.blocks.iter_mut().zip(0..).filter(|(block, _)| !block.settled) {
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
                // One that looks closer counts what was answered: what it gave up before the restart it knows to be uncertain.
                entry.told |= self.told.get(&entry.writer).is_some_and(|at| entry.begun < *at)
                    || entry.begun < restart && !(looks_closer(entry.writer) && entry.answered);
                block.settled &= entry.told;
                if entry.writer == writer && !entry.told {
                    let what = format!(
                        "write {} was lost, and its writer's flush is answered as if it were not",
                        entry.id.0
                    );
                    return Err(BlockFault { lba, what });
                }
            }
        }
        Ok(())
    }

    /// A flush that `writer` had asked for has failed, and so it knows.
    pub(crate) fn flush_failed(&mut self, writer: Writer) {
        let now = self.tick();
        self.told.insert(writer, now);
    }

    /// `writer` will not flush what it wrote so far.
    pub(crate) fn is_gone(&mut self, writer: Writer) {
        self.flush_failed(writer);
    }

    /// The server has started again. Writers that look at nothing but unit attentions have to reckon with the
    /// loss of what they did not flush; `looks_closer` is to hear of it by the generation of the cache.
    pub(crate) fn has_restarted(&mut self, looks_closer: fn(Writer) -> bool) {
        self.restarted = (self.tick(), looks_closer);
        self.blocks.iter_mut().for_each(|block| block.exchanged.clear());
    }

    /// The disk has lost `lost`, which is in its cache for `lba`, and has `kept` on stable storage instead.
    pub(crate) fn sync_failed(&mut self, lba: u64, lost: &[u8], kept: &[u8]) {
        let now = self.tick();
        let block = &mut self.blocks[lba as usize];
        block.changes(now);
        block.exchanged.clear();
        let writes = &mut block.writes;
        let (lost, kept) = (value(lost, lba).ok(), value(kept, lba).ok());
        // Of those before it, it is the one that counts; what was under way beside it may have been before
        // it.
        let latest = |is_it: &dyn Fn(&Entry) -> bool| {
            let those = writes.iter().filter(|entry| is_it(entry));
            // One that is under way may come after any other.
            those.map(|entry| entry.latest().unwrap_or(Moment::MAX)).max()
        };
        // Zeros, and what was seen of a copy, may be there by a write or by a later copy.
        let written = |entry: &Entry| kept.is_some_and(|kept| entry.value == kept);
        let copied =
            |entry: &Entry| kept.is_some_and(|kept| entry.copied_from.is_some() && entry.may_show(kept));
        let kept_at = latest(&written).max(latest(&copied));
        // Of two copies that may have put it there, the other one may have been lost.
        let kept_since =
            writes.iter().filter(|entry| written(entry) || copied(entry)).filter_map(Entry::latest).min();
        let lost_at = lost.and_then(|lost| latest(&|entry| entry.may_show(lost)));
        for entry in writes {
            let is_newer = kept_at.is_none_or(|at| entry.begun > at);
            let may_be_newer = is_newer || kept_since.is_some_and(|since| entry.begun > since);
            // What is younger than what the disk had may be in a cache above it, and reach it yet.
            let has_landed = match lost {
                Some(lost) if entry.may_show(lost) => true,
                _ => entry.effective.is_some() && lost_at.is_none_or(|at| entry.begun < at),
            };
            // What is sent again may land again.
            let lands_again = entry.repeats && entry.ended.is_none();
            let loss = if is_newer && has_landed && !lands_again { Loss::Certain } else { Loss::Possible };
            if !entry.lasts && may_be_newer {
                entry.loss = entry.loss.max(loss);
            }
        }
    }

    /// The power is off: no command is under way any more, and what lasts is there.
    pub(crate) fn cut_power(&mut self) {
        self.all_are_over();
        let now = self.tick();
        self.epoch = now;
        for block in &mut self.blocks {
            match self.keeps {
                true => block.cut_power(now),
                false => block.forget_all(Entry { copied_from: Some(self.number), ..Entry::zeros(now) }),
            }
        }
    }
}

/// Why a block shows no write.
#[derive(Display)]
enum Unread {
    #[display("shows bytes that nobody wrote")]
    Foreign,
    #[display("is torn: it begins with write {_0}, and goes on otherwise")]
    Torn(u64),
    #[display("shows block {_0} of write {_1}")]
    Elsewhere(u64, u64),
}

/// What a block shows.
fn value(bytes: &[u8], lba: u64) -> Result<u64, Unread> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let word = |at: usize| bytes[at * 8..][..8].try_into().map_or(0, u64::from_be_bytes);
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
    /// Those that a read could still show, and their younger competitors.
    writes: Vec<Entry>,
    /// With so many of them it is time to forget some.
    tidy_at: usize,
    /// All that is known to have taken effect lasts: a flush changes nothing.
    settled: bool,
    /// When a write was last begun or ended, or lost.
    changed: Moment,
    /// What a read showed that was asked for after that, and whether it lasts: the next one that shows it
    /// says nothing new.
    shown: Option<Shown>,
    /// What was found there and exchanged for something else, the latest last. Forgotten when writes may have
    /// been lost.
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
    /// What it shows: its own number, or 0 for zeros.
    value: u64,
    begun: Moment,
    /// From then on it will not take effect any more.
    ended: Option<Moment>,
    /// Its writer was told that it is done.
    answered: bool,
    /// It had taken effect by then.
    effective: Option<Moment>,
    /// A flush has made it last.
    lasts: bool,
    /// Who asked for it.
    writer: Writer,
    /// It may be carried out several times until it has ended: its initiator sends it again when it is
    /// aborted.
    repeats: bool,
    /// Until it is seen, it may show any write of that volume, and of those before it.
    copied_from: Option<u64>,
    /// What a failed sync has done to it.
    loss: Loss,
    /// Its writer was found to know of that.
    told: bool,
    /// It had ended when the power was cut.
    cut: bool,
    /// A read that was answered then has shown another that must be later.
    superseded: Option<Moment>,
}

/// Whether a failed sync has lost a write, which no later sync stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    None,
    /// It was outstanding then, so it may have been lost or may still be written.
    Possible,
    Certain,
}

impl Entry {
    /// Nothing but zeros was there at that moment.
    fn zeros(now: Moment) -> Entry {
        Entry { ended: Some(now), effective: Some(now), lasts: true, ..Entry::begun(0) }
    }

    /// One of zeros that has begun then.
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
            // Copies go to volumes with higher numbers only, so the source has nothing from here.
            Some(source) => value >> VOLUME_SHIFT <= source,
            None => self.value == value,
        }
    }

    /// By then it had taken effect, if it ever did.
    fn latest(&self) -> Option<Moment> {
        match (self.ended, self.effective.filter(|_| !self.repeats)) {
            (Some(ended), Some(effective)) => Some(ended.min(effective)),
            (one, other) => one.or(other),
        }
    }

    /// Whether it is gone for a read that is asked for at `moment`; `newest` is what had taken effect by
    /// then.
    fn is_superseded_at(&self, moment: Moment, newest: Moment) -> bool {
        self.superseded.is_some_and(|at| at < moment) || self.is_before(newest)
    }

    /// Whether it had taken effect, if it ever did, when a write began that began then.
    fn is_before(&self, begun: Moment) -> bool {
        self.latest().is_some_and(|latest| latest < begun)
    }
}

impl BlockHistory {
    fn shows(&mut self, value: u64, begun: Moment, now: Moment) -> Result<(), String> {
        if let Some(shown) = self.shown.filter(|shown| shown.value == value && shown.begun < begun) {
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
            self.shown = (self.changed < begun).then_some(Shown { value, begun, lasts: entry.lasts });
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

    /// When the last of these writes began; 0 if there is none. Those that had taken effect before cannot be
    /// seen behind it.
    fn newest(&self, is_meant: impl Fn(&Entry) -> bool) -> Moment {
        self.writes.iter().filter(|entry| is_meant(entry)).map(|entry| entry.begun).max().unwrap_or(0)
    }

    /// Whether a write was under way at that moment, or has begun since.
    fn changes_since(&self, moment: Moment) -> bool {
        self.writes.iter().any(|entry| entry.ended.is_none_or(|ended| ended > moment))
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
        format!("shows write {value}, which is over or superseded ({what:?}); it may show {legal:?}")
    }

    /// Takes those off the books that no read can show any more, not even after a power cut; unless one shows
    /// whatever it likes.
    fn forget(&mut self, horizon: impl FnOnce() -> Moment, keeps: bool) {
        if self.writes.len() < self.tidy_at.max(8) {
            return;
        }
        let horizon = horizon();
        let counts = |entry: &Entry| entry.lasts || !keeps;
        let newest = self.newest(|entry| counts(entry) && entry.effective.is_some_and(|at| at < horizon));
        self.writes.retain(|entry| !entry.is_before(newest));
        self.tidy_at = 2 * self.writes.len();
    }

    /// Nothing is known any more but what is there now, and what is sent again.
    fn forget_all(&mut self, now: Entry) {
        self.changes(now.effective.unwrap_or_default());
        self.exchanged.clear();
        self.writes.retain(|entry| entry.repeats && entry.ended.is_none());
        self.writes.iter_mut().for_each(|entry| (entry.effective, entry.cut) = (None, true));
        self.writes.push(now);
    }

    fn cut_power(&mut self, now: Moment) {
        self.changes(now);
        self.exchanged.clear();
        let newest = self.newest(|entry| entry.lasts);
        self.writes.retain(|entry| !entry.is_before(newest));
        for entry in &mut self.writes {
            // It was there before the cut, or was not; who read it then does not know what is there now.
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
