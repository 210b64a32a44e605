//! After a crash: whether every promise was kept.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use derive_more::Display;

use block::{BlockDevice, Blocks, Buffer, Extent, Lba};

use super::{Journal, JournalError, Word};
use crate::generations::Granules;
use crate::{Failure, pattern};

/// Who crashed, and so may have lost what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The program that wrote. The storage has kept all that it acknowledged.
    OfClient,
    /// The storage, or both. What was neither flushed nor written to stable storage may be gone.
    OfStorage,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Checked {
    /// Blocks that had to be there.
    pub blocks: u64,
    /// Those of them that are of a later write than they had to be: it was under way, or not flushed.
    pub newer: u64,
    /// Those that are not as they had to be.
    pub wrong: u64,
    /// What was found wrong first.
    pub first_failure: Option<Failure>,
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Checked { blocks, newer, wrong, first_failure } = self;
        match first_failure {
            None => write!(f, "{blocks} blocks are as promised, {newer} of them newer than that"),
            Some(first) => write!(f, "{wrong} of {blocks} blocks are NOT as promised: {first}"),
        }
    }
}

/// What cannot be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum CheckError {
    /// The journal is not of this device.
    Journal(JournalError),
    /// The device does not let itself be read or flushed.
    #[display("the device cannot be read back: {_0}")]
    Device(block::DeviceError),
}

impl std::error::Error for CheckError {}

/// Read at once, unless one granule is longer.
const PIECE_BYTES: u64 = 1 << 20;
/// Pieces read at the same time.
const DEPTH: usize = 8;

impl Journal {
    /// Reads all that was ever written back, and holds it against what was promised. What is as it had to be is the
    /// new promise, so that another run may go on with the journal; what is wrong stays as it is, and is found again.
    ///
    /// Runs on the reactor of this thread.
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
        let slots: Vec<_> = (0..DEPTH).map(|_| reactor::spawn(slot(Rc::clone(&check)))).collect();
        let mut outcome = Ok(());
        for slot in slots {
            outcome = outcome.and(slot.await);
        }
        outcome.map_err(CheckError::Device)?;
        let checked = check.checked.take();
        if checked.wrong == 0 && !device.profile().read_only {
            device.flush().await.map_err(CheckError::Device)?;
            (0..self.ground.granules())
                .for_each(|granule| self.set(granule, Word::Durable, self.word(granule, Word::Acknowledged)));
        }
        Ok(checked)
    }

    fn check_device(&self, device: &dyn BlockDevice) -> Result<(), JournalError> {
        let (bytes, block_bytes) = (self.ground.device_bytes, self.ground.block_bytes);
        let geometry = device.geometry();
        // A device may have grown.
        let same = geometry.bytes() >= bytes && geometry.block_size.bytes() == block_bytes;
        if same { Ok(()) } else { Err(JournalError::AnotherDevice { bytes, block_bytes }) }
    }
}

/// A check under way.
struct Check {
    journal: Rc<Journal>,
    device: Arc<dyn BlockDevice>,
    crash: Crash,
    /// The first granule that nobody has taken.
    next: Cell<u64>,
    checked: RefCell<Checked>,
}

async fn slot(check: Rc<Check>) -> Result<(), block::DeviceError> {
    while let Some(piece) = check.take() {
        let extent = check.extent(piece);
        let bytes = piece.count * check.journal.ground.granule_bytes;
        let data = check.device.read(extent, Buffer::recycled(bytes as usize)).await?;
        let granules = data.chunks_exact(check.journal.ground.granule_bytes as usize).zip(piece.each());
        granules.for_each(|(data, granule)| check.granule(granule, data));
    }
    Ok(())
}

impl Check {
    /// The next granules that were ever written.
    fn take(&self) -> Option<Granules> {
        let (journal, all) = (&self.journal, self.journal.ground.granules());
        let is_written = |granule: &u64| journal.word(*granule, Word::Issued) > 0;
        let first = (self.next.get()..all).find(is_written)?;
        let most = (PIECE_BYTES / journal.ground.granule_bytes).max(1);
        let count = (first..all).take(most as usize).take_while(is_written).count() as u64;
        self.next.set(first + count);
        Some(Granules { first, count })
    }

    fn extent(&self, granules: Granules) -> Extent {
        let ground = &self.journal.ground;
        let block = u64::from(ground.block_bytes);
        let start = ground.start_bytes + granules.first * ground.granule_bytes;
        let bytes = granules.count * ground.granule_bytes;
        Extent { lba: Lba(start / block), blocks: Blocks(bytes / block) }
    }

    /// Holds one granule against its promise, and notes what it is now.
    fn granule(&self, granule: u64, data: &[u8]) {
        let (journal, block_bytes) = (&self.journal, self.journal.ground.block_bytes as usize);
        let promised = match self.crash {
            Crash::OfClient => journal.word(granule, Word::Acknowledged),
            Crash::OfStorage => journal.word(granule, Word::Durable),
        };
        let issued = journal.word(granule, Word::Issued);
        let lba = self.extent(Granules { first: granule, count: 1 }).lba;
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
        // A mixture was a write under way: from now on anything may be there, until the next one.
        let known = if let Found::All(generation) = found { generation } else { 0 };
        journal.set(granule, Word::Acknowledged, known);
        journal.set(granule, Word::Durable, known.min(journal.word(granule, Word::Durable)));
    }

    /// The generation of a block, 0 if it holds something else and may.
    fn block(&self, block: &[u8], lba: Lba, promised: u32, issued: u32) -> Result<u32, Failure> {
        let stamp = pattern::generation(block, lba);
        let epoch = self.journal.epoch();
        match stamp {
            Ok(found) if found >> 32 == epoch >> 32 => {
                let generation = found as u32;
                let expected = epoch | u64::from(promised);
                let may = (promised..=issued).contains(&generation);
                if may { Ok(generation) } else { Err(Failure::WrongGeneration { lba, expected, found }) }
            }
            _ if promised == 0 => Ok(0),
            Ok(found) => Err(Failure::WrongGeneration { lba, expected: epoch | u64::from(promised), found }),
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

/// What the blocks of a granule are of.
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
