//! A journal of the writes that the storage has acknowledged. It survives a crash; a check then shows whether
//! the storage has kept every guarantee.
//!
//! The caller supplies the memory. If the memory is a mapped file, the journal survives a SIGKILL of the
//! program, although a record needs no system call. It does not survive a crash of the machine.
//!
//! ```text
//!   16 words    "linerate", version, epoch, start and length of the span, granule length, the device's
//! geometry
//!   3 words     for each granule, the generation of the last write that was
//!               issued          submitted to the device
//!               acknowledged    completed successfully
//!               durable         completed successfully, and either flushed later or written with FUA
//! ```
//!
//! After a crash of the client, the generation of each block must lie between the acknowledged and the issued
//! generation. A crash of the storage may lose only writes that were not durable.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use block::{BlockDevice, Blocks, Buffer, DeviceError, Extent, Geometry, Lba};
use derive_more::Display;

use crate::Failure;
use crate::access::{Layout, WorkloadError};
use crate::pattern::{self, Granules};
use crate::plan::Workload;

/// The memory of a journal: a mapped file, or a vector in tests.
pub type Words = Rc<dyn AsRef<[AtomicU32]>>;

/// The journal of a run that verifies its data. The run may still be active, or may have been killed.
pub struct Journal {
    words: Words,
    ground: Ground,
    writes: Cell<u64>,
}

/// The acknowledged but unflushed writes of one device of a run. Each device has a separate list, because a
/// flush covers only that device's writes: a server reports the loss of a session's writes to that session
/// alone.
#[derive(Default)]
pub(crate) struct Unflushed {
    writes: RefCell<Writes>,
    flushing: Cell<bool>,
}

/// Writes, each with its generation.
type Writes = Vec<(Granules, u32)>;

impl Unflushed {
    /// Removes and returns the writes that the flush covers. Writes that are acknowledged after this call may
    /// not be covered, so they wait for the next flush.
    fn begin_flush(&self) -> Writes {
        self.flushing.set(true);
        self.writes.take()
    }
}

/// The span and granules that a journal covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ground {
    epoch: u32,
    start_bytes: u64,
    span_bytes: u64,
    granule_bytes: u64,
    device_bytes: u64,
    block_bytes: u32,
}

/// The reason why a journal cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum JournalError {
    /// The file is not a journal, or is damaged.
    #[display("this is not a log of verified writes")]
    NotAJournal,
    /// The journal was written by an incompatible version of this program.
    #[display("the log has version {_0}; this program supports version {VERSION}")]
    Version(u32),
    /// The file is shorter than its header requires.
    #[display("the end of the log is missing")]
    CutOff,
    /// The journal belongs to a device with a different size or block length.
    #[display(
        "the log belongs to a different device, which has {bytes} bytes in logical blocks of {block_bytes}"
    )]
    AnotherDevice {
        /// The size of the journal's device, in bytes.
        bytes: u64,
        /// The length of that device's logical block, in bytes.
        block_bytes: u32,
    },
}

impl std::error::Error for JournalError {}

const VERSION: u32 = 1;
const MAGIC: [u32; 2] = [u32::from_le_bytes(*b"line"), u32::from_le_bytes(*b"rate")];
/// The length of the header, a multiple of a cache line.
const HEADER_WORDS: usize = 16;
const WORDS_PER_GRANULE: usize = 3;
/// Number of acknowledged writes before a flush is due. It is small enough that, at a crash, some writes have
/// been flushed and others have not.
const WRITES_PER_FLUSH: usize = 64;
/// One write in this number is written directly to stable storage (FUA).
const WRITES_PER_STABLE_ONE: u64 = 8;

impl Journal {
    /// Returns the number of words in a journal of this workload on a device with this geometry.
    pub fn words(workload: &Workload, geometry: Geometry) -> Result<usize, WorkloadError> {
        let granules = Ground::new(workload, geometry, 0)?.granules();
        Ok(HEADER_WORDS + WORDS_PER_GRANULE * granules as usize) // Layout limits their number
    }

    /// Starts a journal in zeroed memory of the length returned by [`Journal::words`]. `epoch` is a random
    /// number, which distinguishes the data of this run from that of all other runs.
    pub fn begin(
        words: Words,
        workload: &Workload,
        geometry: Geometry,
        epoch: u32,
    ) -> Result<Journal, WorkloadError> {
        let ground = Ground::new(workload, geometry, epoch)?;
        ground.write((*words).as_ref());
        Ok(Journal::of(words, ground))
    }

    /// Opens the journal of an earlier run.
    pub fn open(words: Words) -> Result<Journal, JournalError> {
        let ground = Ground::read((*words).as_ref())?;
        Ok(Journal::of(words, ground))
    }

    fn of(words: Words, ground: Ground) -> Journal {
        Journal {
            words,
            ground,
            writes: Cell::new(0),
        }
    }

    /// Returns whether the journal belongs to this workload and a device with this geometry, so that a run
    /// may continue it.
    pub(crate) fn fits(&self, layout: &Layout, geometry: Geometry) -> bool {
        self.ground == Ground::of(layout, geometry, self.ground.epoch)
    }

    /// Returns the epoch, shifted to the upper half of a generation.
    pub(crate) fn epoch(&self) -> u64 {
        u64::from(self.ground.epoch) << 32
    }

    /// Returns the generation that a read of each granule must return, or `None` if it is not exactly known.
    pub(crate) fn known(&self) -> impl Iterator<Item = Option<u32>> {
        (0..self.ground.granules()).map(|granule| {
            let acknowledged = self.word(granule, Word::Acknowledged);
            (acknowledged > 0 && acknowledged == self.word(granule, Word::Issued))
                .then_some(acknowledged)
        })
    }

    /// Records that a write is about to start, and returns its generation, which is new for these granules.
    pub(crate) fn issue(&self, granules: Granules) -> u32 {
        let latest = granules
            .each()
            .map(|granule| self.word(granule, Word::Issued))
            .max();
        let generation = latest.unwrap_or(0).saturating_add(1);
        granules
            .each()
            .for_each(|granule| self.set(granule, Word::Issued, generation));
        generation
    }

    /// Returns whether the next write goes directly to stable storage.
    pub(crate) fn next_is_stable(&self) -> bool {
        self.writes.set(self.writes.get() + 1);
        self.writes.get().is_multiple_of(WRITES_PER_STABLE_ONE)
    }

    /// Records that a write succeeded. `unflushed` is the list of the device, or `None` for a write with FUA.
    pub(crate) fn acknowledge(
        &self,
        granules: Granules,
        generation: u32,
        unflushed: Option<&Unflushed>,
    ) {
        granules
            .each()
            .for_each(|granule| self.set(granule, Word::Acknowledged, generation));
        match unflushed {
            Some(unflushed) => unflushed.writes.borrow_mut().push((granules, generation)),
            None => self.is_durable(granules, generation),
        }
    }

    /// Flushes the device if a flush is due and none is running, and records the writes that it made durable.
    pub(crate) async fn flush_if_due(
        &self,
        device: &dyn BlockDevice,
        unflushed: &Unflushed,
    ) -> Result<(), DeviceError> {
        if unflushed.flushing.get() || unflushed.writes.borrow().len() < WRITES_PER_FLUSH {
            return Ok(());
        }
        let writes = unflushed.begin_flush();
        let flushed = device.flush().await;
        self.end_flush(unflushed, writes, flushed);
        flushed
    }

    fn end_flush(&self, unflushed: &Unflushed, writes: Writes, flushed: Result<(), DeviceError>) {
        unflushed.flushing.set(false);
        match flushed {
            Ok(()) => {
                writes
                    .into_iter()
                    .for_each(|(granules, generation)| self.is_durable(granules, generation));
            }
            // The error of a failed flush may also report the loss of writes that were acknowledged while the
            // flush ran. The next flush does not report these losses again, so none of these writes counts as
            // durable.
            Err(_) => drop(unflushed.writes.take()),
        }
    }

    fn is_durable(&self, granules: Granules, generation: u32) {
        for granule in granules.each() {
            let before = self.word(granule, Word::Durable);
            self.set(granule, Word::Durable, generation.max(before));
        }
    }

    fn word(&self, granule: u64, word: Word) -> u32 {
        self.at(granule, word).load(Ordering::Acquire)
    }

    /// Stores a generation. The stores are ordered: if a store is visible after a kill, all earlier stores
    /// are visible, too.
    fn set(&self, granule: u64, word: Word, generation: u32) {
        self.at(granule, word).store(generation, Ordering::Release);
    }

    fn at(&self, granule: u64, word: Word) -> &AtomicU32 {
        let index = HEADER_WORDS + WORDS_PER_GRANULE * granule as usize + word as usize;
        &(*self.words).as_ref()[index]
    }
}

/// The three records of each granule.
#[derive(Clone, Copy)]
enum Word {
    Issued = 0,
    Acknowledged = 1,
    Durable = 2,
}

impl Ground {
    fn new(workload: &Workload, geometry: Geometry, epoch: u32) -> Result<Ground, WorkloadError> {
        Ok(Ground::of(
            &Layout::new(workload, geometry, 1)?,
            geometry,
            epoch,
        ))
    }

    fn of(layout: &Layout, geometry: Geometry, epoch: u32) -> Ground {
        Ground {
            epoch,
            start_bytes: layout.start_bytes,
            span_bytes: layout.span_bytes,
            granule_bytes: layout.granule_bytes(),
            device_bytes: geometry.bytes(),
            block_bytes: layout.block_bytes,
        }
    }

    fn granules(&self) -> u64 {
        self.span_bytes / self.granule_bytes
    }

    fn write(&self, words: &[AtomicU32]) {
        let long = [
            self.start_bytes,
            self.span_bytes,
            self.granule_bytes,
            self.device_bytes,
        ];
        let long = long
            .into_iter()
            .flat_map(|value| [value as u32, (value >> 32) as u32]);
        let header = MAGIC
            .into_iter()
            .chain([VERSION, self.epoch])
            .chain(long)
            .chain([self.block_bytes]);
        words
            .iter()
            .zip(header)
            .for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    fn read(words: &[AtomicU32]) -> Result<Ground, JournalError> {
        let word = |index: usize| words.get(index).map(|word| word.load(Ordering::Relaxed));
        let word = |index| word(index).ok_or(JournalError::NotAJournal);
        let long = |index| Ok(u64::from(word(index)?) | u64::from(word(index + 1)?) << 32);
        if [word(0)?, word(1)?] != MAGIC {
            return Err(JournalError::NotAJournal);
        }
        if word(2)? != VERSION {
            return Err(JournalError::Version(word(2)?));
        }
        let ground = Ground {
            epoch: word(3)?,
            start_bytes: long(4)?,
            span_bytes: long(6)?,
            granule_bytes: long(8)?,
            device_bytes: long(10)?,
            block_bytes: word(12)?,
        };
        ground
            .is_possible()
            .then_some(())
            .ok_or(JournalError::NotAJournal)?;
        let there = (words.len().saturating_sub(HEADER_WORDS) / WORDS_PER_GRANULE) as u64;
        if there < ground.granules() {
            Err(JournalError::CutOff)
        } else {
            Ok(ground)
        }
    }

    /// Returns whether a run can have written these values; a file may contain anything.
    fn is_possible(&self) -> bool {
        let block = u64::from(self.block_bytes);
        let end = self.start_bytes.checked_add(self.span_bytes);
        self.block_bytes >= 512
            && self.granule_bytes > 0
            && self.granule_bytes <= u64::from(u32::MAX)
            && [self.start_bytes, self.granule_bytes, self.device_bytes]
                .iter()
                .all(|at| at.is_multiple_of(block))
            && end.is_some_and(|end| end <= self.device_bytes)
    }
}

/// The component that crashed. It determines which losses are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The writing program crashed. The storage must have kept everything that it acknowledged.
    OfClient,
    /// The storage crashed, or both did. Writes that were neither flushed nor written with FUA may be lost.
    OfStorage,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Checked {
    /// Number of blocks for which the storage has a guarantee.
    pub blocks: u64,
    /// Number of blocks with a later generation than guaranteed: the later write was outstanding, or not
    /// flushed.
    pub newer: u64,
    /// Number of blocks that violate their guarantee.
    pub wrong: u64,
    /// The first failure.
    pub first_failure: Option<Failure>,
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Checked {
            blocks,
            newer,
            wrong,
            first_failure,
        } = self;
        match first_failure {
            None => write!(
                f,
                "{blocks} blocks contain the acknowledged data or newer data ({newer} newer)"
            ),
            Some(first) => {
                write!(
                    f,
                    "{wrong} of {blocks} blocks do NOT contain the acknowledged data: {first}"
                )
            }
        }
    }
}

/// The reason why a check is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum CheckError {
    /// The journal cannot be used with this device.
    Journal(JournalError),
    /// The device cannot be read or flushed.
    #[display("cannot read back the device: {_0}")]
    Device(block::DeviceError),
}

impl std::error::Error for CheckError {}

/// The length of each read, unless a granule is longer.
const PIECE_BYTES: u64 = 1 << 20;
/// The number of concurrent reads.
const DEPTH: usize = 8;

impl Journal {
    /// Reads back all granules that were ever written, and compares them with the guarantees. Correct content
    /// becomes the new guarantee, so that another run may continue the journal. Wrong content does not change
    /// the journal, so the next check finds it again.
    ///
    /// The check runs on the reactor of this thread.
    pub async fn check(
        self: &Rc<Journal>,
        device: &Arc<dyn BlockDevice>,
        crash: Crash,
    ) -> Result<Checked, CheckError> {
        self.check_device(&**device).map_err(CheckError::Journal)?;
        let check = Rc::new(Check {
            journal: Rc::clone(self),
            device: Arc::clone(device),
            crash,
            next: Cell::new(0),
            checked: RefCell::default(),
        });
        let slots: Vec<_> = (0..DEPTH)
            .map(|_| reactor::spawn(slot(Rc::clone(&check))))
            .collect();
        let mut outcome = Ok(());
        for slot in slots {
            outcome = outcome.and(slot.await);
        }
        outcome.map_err(CheckError::Device)?;
        let checked = check.checked.take();
        if checked.wrong == 0 && !device.profile().read_only {
            device.flush().await.map_err(CheckError::Device)?;
            (0..self.ground.granules()).for_each(|granule| {
                self.set(
                    granule,
                    Word::Durable,
                    self.word(granule, Word::Acknowledged),
                )
            });
        }
        Ok(checked)
    }

    fn check_device(&self, device: &dyn BlockDevice) -> Result<(), JournalError> {
        let (bytes, block_bytes) = (self.ground.device_bytes, self.ground.block_bytes);
        let geometry = device.geometry();
        // The device may have grown.
        let same = geometry.bytes() >= bytes && geometry.block_size.bytes() == block_bytes;
        if same {
            Ok(())
        } else {
            Err(JournalError::AnotherDevice { bytes, block_bytes })
        }
    }
}

/// A check in progress.
struct Check {
    journal: Rc<Journal>,
    device: Arc<dyn BlockDevice>,
    crash: Crash,
    /// The first granule that no task has taken.
    next: Cell<u64>,
    checked: RefCell<Checked>,
}

async fn slot(check: Rc<Check>) -> Result<(), block::DeviceError> {
    while let Some(piece) = check.take() {
        let extent = check.extent(piece);
        let bytes = piece.count * check.journal.ground.granule_bytes;
        let data = check
            .device
            .read(extent, Buffer::recycled(bytes as usize))
            .await?;
        let granules = data
            .chunks_exact(check.journal.ground.granule_bytes as usize)
            .zip(piece.each());
        granules.for_each(|(data, granule)| check.granule(granule, data));
    }
    Ok(())
}

impl Check {
    /// Takes the next range of granules that were ever written.
    fn take(&self) -> Option<Granules> {
        let (journal, all) = (&self.journal, self.journal.ground.granules());
        let is_written = |granule: &u64| journal.word(*granule, Word::Issued) > 0;
        let first = (self.next.get()..all).find(is_written)?;
        let most = (PIECE_BYTES / journal.ground.granule_bytes).max(1);
        let count = (first..all)
            .take(most as usize)
            .take_while(is_written)
            .count() as u64;
        self.next.set(first + count);
        Some(Granules { first, count })
    }

    fn extent(&self, granules: Granules) -> Extent {
        let ground = &self.journal.ground;
        let block = u64::from(ground.block_bytes);
        let start = ground.start_bytes + granules.first * ground.granule_bytes;
        let bytes = granules.count * ground.granule_bytes;
        Extent {
            lba: Lba(start / block),
            blocks: Blocks(bytes / block),
        }
    }

    /// Compares one granule with its guarantee. If the granule is correct, its content becomes the new
    /// guarantee.
    fn granule(&self, granule: u64, data: &[u8]) {
        let (journal, block_bytes) = (&self.journal, self.journal.ground.block_bytes as usize);
        let promised = match self.crash {
            Crash::OfClient => journal.word(granule, Word::Acknowledged),
            Crash::OfStorage => journal.word(granule, Word::Durable),
        };
        let issued = journal.word(granule, Word::Issued);
        let lba = self
            .extent(Granules {
                first: granule,
                count: 1,
            })
            .lba;
        let (mut found, mut seen) = (Found::Nothing, Checked::default());
        for (block, lba) in data.chunks_exact(block_bytes).zip(lba.0..) {
            let block = self.block(block, Lba(lba), promised, issued);
            seen.count(block, promised);
            found = block.map_or(found, |generation| found.and(generation));
        }
        let wrong = seen.wrong > 0;
        self.checked.borrow_mut().add(&seen);
        if wrong {
            return;
        }
        // If the blocks differ, a write was outstanding. Any content is then allowed until the next write.
        let known = if let Found::All(generation) = found {
            generation
        } else {
            0
        };
        journal.set(granule, Word::Acknowledged, known);
        journal.set(
            granule,
            Word::Durable,
            known.min(journal.word(granule, Word::Durable)),
        );
    }

    /// Returns the generation of a block, or 0 if the block has no guarantee and contains other data.
    fn block(&self, block: &[u8], lba: Lba, promised: u32, issued: u32) -> Result<u32, Failure> {
        let stamp = pattern::generation(block, lba);
        let epoch = self.journal.epoch();
        match stamp {
            Ok(found) if found >> 32 == epoch >> 32 => {
                let generation = found as u32;
                let expected = epoch | u64::from(promised);
                let may = (promised..=issued).contains(&generation);
                if may {
                    Ok(generation)
                } else {
                    Err(Failure::WrongGeneration {
                        lba,
                        expected,
                        found,
                    })
                }
            }
            _ if promised == 0 => Ok(0),
            Ok(found) => Err(Failure::WrongGeneration {
                lba,
                expected: epoch | u64::from(promised),
                found,
            }),
            Err(failure) => Err(failure),
        }
    }
}

impl Checked {
    fn count(&mut self, block: Result<u32, Failure>, promised: u32) {
        self.blocks += u64::from(promised > 0);
        match block {
            Ok(generation) => self.newer += u64::from(promised > 0 && generation > promised),
            Err(failure) => {
                self.wrong += 1;
                self.first_failure.get_or_insert(failure);
            }
        }
    }

    fn add(&mut self, more: &Checked) {
        self.blocks += more.blocks;
        self.newer += more.newer;
        self.wrong += more.wrong;
        self.first_failure = self.first_failure.or(more.first_failure);
    }
}

/// The generations found in the blocks of a granule.
#[derive(Clone, Copy)]
enum Found {
    Nothing,
    All(u32),
    Several,
}

impl Found {
    fn and(self, generation: u32) -> Found {
        match self {
            Found::Nothing => Found::All(generation),
            Found::All(before) if before == generation => self,
            Found::All(_) | Found::Several => Found::Several,
        }
    }
}

#[cfg(test)]
mod tests;
