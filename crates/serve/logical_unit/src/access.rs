//! Device requests of a command. All of them go through its [`DeviceAccess`], which records each outstanding
//! request. The record has two purposes:
//!
//! - The [`Watch`] shows the front end the request that a command is waiting for, and the device of the
//!   request. A deadline therefore counts from the start of the request, not from the arrival of the command.
//! - The blocks of an aborted change stay locked until the device has completed or cancelled the change
//!   ([`volume::Volume::quiesced`]), because the kernel may execute it after later requests.
//!
//! Order and exclusion among commands are not handled here; range locks provide them.

use std::cell::{Cell, OnceCell};
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use block::{
    Buffer, Chunks, Compared, DeviceError, Durability, Extent, Pending, Run, Slice, Space,
};
use scsi::{Condition, SenseKey, asc};
use volume::RequestKind;

use crate::failure::Failure;
use crate::nexus::NexusId;
use crate::unit::LogicalUnit;

/// The progress of a running command, for its front end.
#[derive(Default)]
pub struct Watch {
    requests: Cell<u32>,
    asked: Cell<Option<usize>>,
    committed: Cell<bool>,
    others: OnceCell<Box<[Arc<LogicalUnit>]>>,
    reported_losses: Cell<u64>,
    clock: Cell<Option<fn() -> Instant>>,
    device_time: Cell<Duration>,
}

/// An outstanding device request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// The number of the request within its command. Two requests of a command never have the same number.
    pub number: u32,
    /// The logical unit whose device has the request: 0 is the unit that received the command, 1 is the first
    /// of [`Watch::others`], and so on.
    pub unit: usize,
}

impl Watch {
    /// The outstanding request. `None` while the command waits for something else: for a range lock, or for
    /// persistent state to be saved.
    pub fn request(&self) -> Option<DeviceRequest> {
        self.asked.get().map(|unit| DeviceRequest {
            number: self.requests.get(),
            unit,
        })
    }

    /// Whether the command is changing persistent state and its copy in memory. Such a command must run to
    /// completion even if it was aborted, because otherwise the copy in memory would differ from the saved
    /// state. The effects of its reply must be applied as well.
    pub fn is_committed(&self) -> bool {
        self.committed.get()
    }

    /// Units that the command uses in addition to the unit that received it (EXTENDED COPY). The command also
    /// belongs to the task sets of these units.
    pub fn others(&self) -> &[Arc<LogicalUnit>] {
        self.others.get().map_or(&[], |others| others)
    }

    /// Sets the clock that measures [`Watch::device_time`]. The front end calls this before it polls the
    /// command for the first time.
    pub fn time_requests(&self, clock: fn() -> Instant) {
        self.clock.set(Some(clock));
    }

    /// Total time that the command's requests spent in devices, excluding requests that completed in their
    /// first poll.
    pub fn device_time(&self) -> Duration {
        self.device_time.get()
    }

    /// The count of lost acknowledged writes that the command's reply reports; 0 if the reply reports no
    /// loss. The losses count as reported once the front end has passed this count to
    /// [`crate::Nexus::note_told`].
    pub fn reported_losses(&self) -> u64 {
        self.reported_losses.get()
    }

    fn now(&self) -> Option<Instant> {
        self.clock.get().map(|clock| clock())
    }

    fn count_time(&self, since: Instant) {
        let time = self
            .now()
            .map_or(Duration::ZERO, |now| now.saturating_duration_since(since));
        self.device_time.set(self.device_time.get() + time);
    }
}

/// A command's access to the device of its unit, or of another unit that it names.
#[derive(Clone)]
pub(crate) struct DeviceAccess {
    unit: Arc<LogicalUnit>,
    watch: Rc<Watch>,
    index: usize,
    /// The generation in which the unit accepted the command.
    accepted: u64,
    /// The nexus to which the command's flushes and stable writes report lost writes.
    nexus: Option<NexusId>,
}

/// An outstanding device request. Dropping it early aborts it.
pub(crate) struct OutstandingRequest<'a, T> {
    access: &'a DeviceAccess,
    /// The pending request; or an error if the medium no longer permitted a request of this kind, so none was
    /// sent.
    request: Result<Pending<'a, T>, Condition>,
    kind: RequestKind,
    /// The blocks that the request changes; `None` once it has completed.
    changes: Option<Extent>,
    /// The time at which the request was first found to be pending; `None` if its time is not measured.
    since: Option<Instant>,
}

impl<T> Future for OutstandingRequest<'_, T> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Failure>> {
        let ended = match &mut self.request {
            Ok(request) => request.as_mut().poll(cx),
            Err(refused) => return Poll::Ready(Err((*refused).into())),
        };
        match &ended {
            Poll::Ready(result) => {
                self.changes = None;
                self.access.unit.volume().record_end(self.kind, result);
                if let Some(since) = self.since {
                    self.access.watch.count_time(since);
                }
            }
            Poll::Pending if self.since.is_none() => self.since = self.access.watch.now(),
            Poll::Pending => {}
        }
        ended.map_err(Failure::from)
    }
}

impl<T> Drop for OutstandingRequest<'_, T> {
    fn drop(&mut self) {
        self.access.watch.asked.set(None);
        if let Some(extent) = self.changes {
            self.access.unit.volume().lock_until_quiesced(extent);
        }
    }
}

impl DeviceAccess {
    /// Creates the access of a command that `unit` received from `nexus` and accepted in generation
    /// `accepted`.
    pub(crate) fn new(
        unit: Arc<LogicalUnit>,
        nexus: NexusId,
        accepted: u64,
        watch: Rc<Watch>,
    ) -> DeviceAccess {
        DeviceAccess {
            unit,
            watch,
            index: 0,
            accepted,
            nexus: Some(nexus),
        }
    }

    /// Returns the same command's access to `unit`, which [`Watch::request`] reports as `index`. Index 0 is
    /// the command's own unit; any other unit accepts the command now. Requests through this access report no
    /// lost writes.
    pub(crate) fn to(&self, unit: Arc<LogicalUnit>, index: usize) -> DeviceAccess {
        debug_assert_eq!(
            index == 0,
            Arc::ptr_eq(&unit, &self.unit),
            "0 is the command's own unit"
        );
        let accepted = if Arc::ptr_eq(&unit, &self.unit) {
            self.accepted
        } else {
            unit.generation()
        };
        DeviceAccess {
            unit,
            watch: Rc::clone(&self.watch),
            index,
            accepted,
            nexus: None,
        }
    }

    /// Declares the other units that the command uses. Called once, before the command starts.
    pub(crate) fn uses(&self, others: Vec<Arc<LogicalUnit>>) {
        let told = self.watch.others.set(others.into_boxed_slice());
        debug_assert!(told.is_ok(), "told twice");
    }

    /// Records that the command must run to completion.
    pub(crate) fn commit(&self) {
        self.watch.committed.set(true);
    }

    fn ask<'a, T>(
        &'a self,
        kind: RequestKind,
        changes: Option<Extent>,
        request: impl FnOnce() -> Pending<'a, T>,
    ) -> OutstandingRequest<'a, T> {
        debug_assert_eq!(
            kind == RequestKind::Change,
            changes.is_some(),
            "a change names its blocks"
        );
        if let Err(refused) = self.unit.still_permits(self.accepted, kind) {
            return OutstandingRequest {
                access: self,
                request: Err(refused),
                kind,
                changes: None,
                since: None,
            };
        }
        debug_assert!(
            self.watch.asked.get().is_none(),
            "a command has one request at a time"
        );
        self.watch
            .requests
            .set(self.watch.requests.get().wrapping_add(1));
        self.watch.asked.set(Some(self.index));
        OutstandingRequest {
            access: self,
            request: Ok(request()),
            kind,
            changes,
            since: None,
        }
    }

    /// Reads the blocks of `extent`, which must be short enough for one buffer.
    pub(crate) fn fetch(&self, extent: Extent) -> OutstandingRequest<'_, Buffer> {
        let length = self.device().geometry().length(extent) as usize;
        self.ask(RequestKind::Read, None, || {
            self.device().read(extent, Buffer::recycled(length))
        })
    }

    /// Writes `data`, which is as long as `extent`. A stable write reports no loss of earlier writes.
    pub(crate) fn store(
        &self,
        extent: Extent,
        data: Slice,
        durability: Durability,
    ) -> OutstandingRequest<'_, ()> {
        debug_assert_eq!(
            self.device().geometry().length(extent),
            data.len() as u64,
            "whole blocks of data"
        );
        self.ask(RequestKind::Change, Some(extent), || {
            let write = self.device().write(extent, data, durability);
            match durability {
                Durability::Cached => write,
                Durability::Stable => Box::pin(async {
                    let written = write.await;
                    self.unit.volume().record_lost_writes().await;
                    written
                }),
            }
        })
    }

    /// Writes `data` if the blocks contain `expected`, as one operation of the device. `None` if the device
    /// does not support this.
    pub(crate) fn compare_and_store(
        &self,
        extent: Extent,
        expected: &Slice,
        data: &Slice,
        durability: Durability,
    ) -> Option<OutstandingRequest<'_, Compared>> {
        debug_assert_eq!(
            expected.len(),
            data.len(),
            "both are the blocks of the extent"
        );
        let request = self.device().compare_and_write(extent, expected, data)?;
        Some(self.ask(RequestKind::Change, Some(extent), || {
            Box::pin(async move {
                let compared = request.await?;
                if compared == Compared::Written && durability == Durability::Stable {
                    self.unit.volume().record_lost_writes().await;
                }
                Ok(compared)
            })
        }))
    }

    /// Makes the blocks read as zeros ([`block::BlockDevice::write_zeroes`]).
    pub(crate) fn write_zeroes(
        &self,
        extent: Extent,
        may_unmap: bool,
    ) -> OutstandingRequest<'_, ()> {
        self.ask(RequestKind::Change, Some(extent), || {
            self.device().write_zeroes(extent, may_unmap)
        })
    }

    /// Deallocates blocks ([`block::BlockDevice::unmap`]).
    pub(crate) fn unmap(&self, extent: Extent) -> OutstandingRequest<'_, ()> {
        self.ask(RequestKind::Change, Some(extent), || {
            self.device().unmap(extent)
        })
    }

    /// Flushes acknowledged writes to stable storage, and reports lost writes to the nexus.
    pub(crate) fn flush(&self) -> OutstandingRequest<'_, ()> {
        // Concurrent flushes may be for different writes, so each reports every loss that was unreported when
        // it began.
        let told = self.nexus.and_then(|nexus| self.unit.losses_told(nexus));
        self.ask(RequestKind::Flush, None, || {
            Box::pin(async move { self.flushed(told, self.unit.volume().flush().await) })
        })
    }

    /// Flushes without reporting lost writes, because the initiator would attribute the error to this
    /// command.
    pub(crate) fn flush_untold(&self) -> OutstandingRequest<'_, ()> {
        self.ask(RequestKind::Flush, None, || {
            Box::pin(self.unit.volume().flush())
        })
    }

    /// Flushes, and fails while any loss has not been reported to this nexus. The failure does not count as
    /// the report, which is left to SYNCHRONIZE CACHE.
    pub(crate) async fn flush_unless_lost(&self) -> Result<(), Failure> {
        self.flush_untold().await?;
        let told = self.nexus.and_then(|nexus| self.unit.losses_told(nexus));
        match told.is_some_and(|told| told < self.unit.volume().lost_writes()) {
            true => Err(DeviceError::WritesLost.into()),
            false => Ok(()),
        }
    }

    /// Makes a change durable ([`volume::Volume::settle`]); `before` is the count of losses when the change
    /// started.
    pub(crate) fn settle(&self, before: u64) -> OutstandingRequest<'_, ()> {
        self.ask(RequestKind::Flush, None, || {
            Box::pin(self.unit.volume().settle(before))
        })
    }

    /// Returns the result of a flush, given the device's result and the losses reported to this nexus when it
    /// began.
    fn flushed(
        &self,
        told: Option<u64>,
        ended: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        match ended {
            // This error does not report the loss: hosts wait for free space and repeat the flush, and that
            // flush reports it.
            Err(DeviceError::NoSpace) => ended,
            Err(error) if !error.is_loss() => ended,
            Ok(()) => self.report_losses(told),
            Err(_) => self.report_losses(told).and(Err(DeviceError::WritesLost)),
        }
    }

    /// Returns [`DeviceError::WritesLost`] if the volume has counted more losses than the `told` losses that
    /// were reported to this nexus.
    fn report_losses(&self, told: Option<u64>) -> Result<(), DeviceError> {
        let losses = self.unit.volume().lost_writes();
        if told.is_none_or(|told| told >= losses) {
            return Ok(());
        }
        self.watch.reported_losses.set(losses);
        Err(DeviceError::WritesLost)
    }

    /// Reports which blocks are allocated ([`block::BlockDevice::allocation`]).
    pub(crate) fn allocation(
        &self,
        extent: Extent,
        runs_max: usize,
    ) -> OutstandingRequest<'_, Vec<Run>> {
        self.ask(RequestKind::Read, None, || {
            self.device().allocation(extent, runs_max)
        })
    }

    /// Reports free and used space ([`block::BlockDevice::space`]), or `None` if the device does not report
    /// it.
    pub(crate) fn space(&self) -> OutstandingRequest<'_, Option<Space>> {
        self.ask(RequestKind::Inspect, None, || {
            Box::pin(async { Ok(self.device().space().await.ok()) })
        })
    }

    /// Checks that all blocks are readable.
    pub(crate) async fn scan(&self, extent: Extent) -> Result<(), Failure> {
        for piece in self.pieces(extent) {
            self.fetch(piece).await?;
            give_way().await;
        }
        Ok(())
    }

    /// Returns MISCOMPARE unless `extent` contains `expected`, repeated to the length of `extent`. `offset`
    /// is the number of bytes that the command has already compared.
    pub(crate) async fn compare(
        &self,
        extent: Extent,
        expected: &[u8],
        offset: u64,
    ) -> Result<(), Failure> {
        if expected.is_empty() {
            return Ok(());
        }
        let mut at = 0;
        for piece in self.pieces(extent) {
            if at > 0 {
                give_way().await; // COMPARE AND WRITE has one piece, so it never yields here
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

/// Returns the position of the first difference between `found` and the repeated pattern `expected`; `found`
/// starts `at` bytes into the repetition. Compares runs rather than bytes: a megabyte at a time if `expected`
/// is that long.
fn first_difference(found: &[u8], expected: &[u8], at: usize) -> Option<usize> {
    debug_assert!(!expected.is_empty(), "nothing differs from nothing");
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
/// checks after a failed COMPARE AND WRITE (SBC-3 5.2).
pub(crate) fn miscompare(offset: u64) -> Condition {
    Condition::new(SenseKey::Miscompare, asc::MISCOMPARE_DURING_VERIFY).with_information(offset)
}

/// The largest piece held in memory for a command without data from the initiator.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;

impl LogicalUnit {
    /// Splits `extent` into pieces of up to 1 MiB.
    pub(crate) fn pieces(&self, extent: Extent) -> Chunks {
        extent.chunks(PIECE_BYTES >> self.device().geometry().block_size.shift())
    }

    /// Returns the memory that a piece of `extent` takes, in bytes.
    pub(crate) fn piece_memory_bytes(&self, extent: Extent) -> usize {
        let geometry = self.device().geometry();
        let longest = self
            .pieces(extent)
            .next()
            .map_or(0, |piece| geometry.length(piece));
        Buffer::memory_bytes(longest as usize) // no more than PIECE_BYTES, or one block
    }
}

// Long operations are split into pieces of bounded size, so that no command holds much memory or blocks its
// thread for long.

/// Yields to other tasks of this thread between two pieces. A RAM device completes each request immediately.
/// Without yielding, a command over many pieces would block its reactor, and with it the NOP-Ins of all
/// sessions.
pub(crate) async fn give_way() {
    let mut given = false;
    poll_fn(|context| {
        if std::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
