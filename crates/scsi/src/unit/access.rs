//! A command at its devices: every request that a command makes goes through its [`DeviceAccess`].
//!
//! This is the one place that knows of a request while a device has it. Hence
//! - the front end sees in the [`Watch`] which device a command is waiting for, and for which request: a deadline counts
//!   from when the device was asked, not from when the command came;
//! - a change that is given up keeps its blocks from later commands until the device has let go of it
//!   ([`LogicalUnit::quiesced`]): the kernel may carry it out after what came later.
//!
//! What it leaves out: order and exclusion among commands, which are the range locks'.

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use block::{Buffer, Durability, Extent, Hold, Pending, Run, Slice};

use crate::failure::Failure;
use crate::sense::{Condition, SenseKey, asc};
use crate::unit::{LogicalUnit, give_way};

/// How a command that has begun stands, for its front end.
#[derive(Debug, Default)]
pub struct Watch {
    requests: Cell<u32>,
    asked: Cell<Option<usize>>,
    committed: Cell<bool>,
}

/// A request that a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// Its number among the command's requests: another number is another request.
    pub number: u32,
    /// Whose device: 0 is the unit that received the command, 1 the first of [`crate::Running::others`], and so on.
    pub unit: usize,
}

impl Watch {
    /// The request that a device has now. None while the command waits for something else: a range that another command
    /// has alone, or a place to save what must be kept.
    pub fn request(&self) -> Option<DeviceRequest> {
        self.asked.get().map(|unit| DeviceRequest { number: self.requests.get(), unit })
    }

    /// Whether the command is changing what is kept on disk and in memory. Then it must be run to its end even if nobody
    /// wants its reply any more, or the two would differ; effects of the reply are to be carried out all the same.
    pub fn is_committed(&self) -> bool {
        self.committed.get()
    }
}

/// The devices as one command uses them: its own unit's, or that of another unit that the command names.
#[derive(Clone)]
pub(crate) struct DeviceAccess {
    unit: Arc<LogicalUnit>,
    watch: Rc<Watch>,
    index: usize,
}

/// A request while its device has it. Dropped before [`Asking::ended`], it was given up.
struct Asking<'a> {
    access: &'a DeviceAccess,
    /// The blocks that it changes.
    changes: Option<Extent>,
}

impl Asking<'_> {
    fn ended(mut self) {
        self.changes = None;
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.access.watch.asked.set(None);
        if let Some(extent) = self.changes {
            self.access.unit.hold_until_quiesced(extent);
        }
    }
}

impl DeviceAccess {
    /// A command's access to the unit that received it.
    pub(crate) fn new(unit: Arc<LogicalUnit>, watch: Rc<Watch>) -> DeviceAccess {
        DeviceAccess { unit, watch, index: 0 }
    }

    /// The same command's access to another unit, which has this index in [`Watch::request`].
    pub(crate) fn to(&self, unit: Arc<LogicalUnit>, index: usize) -> DeviceAccess {
        DeviceAccess { unit, watch: Rc::clone(&self.watch), index }
    }

    /// From here on the command is run to its end.
    pub(crate) fn commit(&self) {
        self.watch.committed.set(true);
    }

    async fn ask<T>(&self, changes: Option<Extent>, request: Pending<'_, T>) -> Result<T, Failure> {
        self.watch.requests.set(self.watch.requests.get().wrapping_add(1));
        self.watch.asked.set(Some(self.index));
        let asking = Asking { access: self, changes };
        let result = request.await;
        asking.ended();
        Ok(result?)
    }

    /// The blocks of `extent`, which must be short enough to be held at once.
    pub(crate) async fn fetch(&self, extent: Extent) -> Result<Buffer, Failure> {
        let length = self.device().geometry().length(extent) as usize;
        self.ask(None, self.device().read(extent, Buffer::recycled(length))).await
    }

    /// Writes `data`, which are as long as `extent`.
    pub(crate) async fn store(
        &self,
        extent: Extent,
        data: Slice,
        durability: Durability,
    ) -> Result<(), Failure> {
        self.ask(Some(extent), self.device().write(extent, data, durability)).await
    }

    /// Makes the blocks read as zeros ([`block::BlockDevice::write_zeroes`]).
    pub(crate) async fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Result<(), Failure> {
        self.ask(Some(extent), self.device().write_zeroes(extent, may_unmap)).await
    }

    /// Gives space back ([`block::BlockDevice::unmap`]).
    pub(crate) async fn unmap(&self, extent: Extent) -> Result<(), Failure> {
        self.ask(Some(extent), self.device().unmap(extent)).await
    }

    /// Brings what was acknowledged to stable storage.
    pub(crate) async fn flush(&self) -> Result<(), Failure> {
        self.ask(None, self.device().flush()).await
    }

    /// Which blocks take space ([`block::BlockDevice::allocation`]).
    pub(crate) async fn allocation(&self, extent: Extent, runs_max: usize) -> Result<Vec<Run>, Failure> {
        self.ask(None, self.device().allocation(extent, runs_max)).await
    }

    /// Whether all blocks can be read.
    pub(crate) async fn scan(&self, extent: Extent) -> Result<(), Failure> {
        for piece in self.pieces(extent) {
            self.fetch(piece).await?;
            give_way().await;
        }
        Ok(())
    }

    /// MISCOMPARE unless all of `extent` holds `expected`, over and over. `offset` is what the command has compared
    /// before.
    pub(crate) async fn compare(&self, extent: Extent, expected: &[u8], offset: u64) -> Result<(), Failure> {
        if expected.is_empty() {
            return Ok(());
        }
        let mut at = 0;
        for piece in self.pieces(extent) {
            if at > 0 {
                give_way().await; // not before COMPARE AND WRITE's only piece
            }
            let found = self.fetch(piece).await?;
            if let Some(difference) = first_difference(&found, expected, at) {
                return Err(miscompare(offset + (at + difference) as u64).into());
            }
            at += found.len();
        }
        Ok(())
    }
}

impl Deref for DeviceAccess {
    type Target = Arc<LogicalUnit>;

    fn deref(&self) -> &Arc<LogicalUnit> {
        &self.unit
    }
}

/// Ranges of requests that were given up, until their device has let go of them.
#[derive(Default)]
pub(crate) struct GivenUp {
    holds: Mutex<Numbered>,
}

#[derive(Default)]
struct Numbered {
    next: u64,
    holds: Vec<(u64, Hold)>,
}

impl LogicalUnit {
    /// A request that changes `extent` was given up, and the device may have it still.
    fn hold_until_quiesced(&self, extent: Extent) {
        let hold = self.locks().hold(extent);
        let mut given_up = self.given_up().holds.lock().unwrap_or_else(PoisonError::into_inner);
        let number = given_up.next;
        given_up.next += 1;
        given_up.holds.push((number, hold));
    }

    /// Ends when nothing that was given up before this call can touch the medium any more, or change what is kept; commands
    /// for the same blocks wait until then. Whoever gives commands up must see to it that this is called, and run it to its
    /// end.
    pub async fn quiesced(&self) {
        let before = self.given_up().holds.lock().unwrap_or_else(PoisonError::into_inner).next;
        // An error ends the wait as well: a device that can fail a request has answered.
        let _ = self.device().quiesced().await;
        drop(self.turn_to_keep().await);
        let mut given_up = self.given_up().holds.lock().unwrap_or_else(PoisonError::into_inner);
        // Dropped when the list is free again: a hold wakes others.
        let over: Vec<_> = given_up.holds.extract_if(.., |(number, _)| *number < before).collect();
        drop(given_up);
        drop(over);
    }
}

/// Where `found`, which begins `at` bytes into the repetition of `expected`, first differs from it. Compares runs
/// rather than bytes: a megabyte at a time where `expected` is that long.
fn first_difference(found: &[u8], expected: &[u8], at: usize) -> Option<usize> {
    let mut done = 0;
    while done < found.len() {
        let wanted = &expected[(at + done) % expected.len()..];
        let found = &found[done..];
        let length = wanted.len().min(found.len());
        if found[..length] != wanted[..length] {
            return found
                .iter()
                .zip(wanted)
                .position(|(found, wanted)| found != wanted)
                .map(|offset| done + offset);
        }
        done += length;
    }
    None
}

/// MISCOMPARE DURING VERIFY OPERATION. INFORMATION is the offset of the first byte that differs, which ESXi
/// looks at after a failed COMPARE AND WRITE (SBC-3 5.2).
fn miscompare(offset: u64) -> Condition {
    Condition::new(SenseKey::Miscompare, asc::MISCOMPARE_DURING_VERIFY).with_information(offset)
}
