//! Execution of requests on their volume.
//!
//! Requests for whole blocks share their blocks with other requests, as all reads and writes of all front
//! ends do. Two overlapping requests may be executed in either order, but each block contains the data of
//! only one of them. A change of part of a block excludes other requests, because it reads the block and
//! writes it back.
//!
//! As over iSCSI, there is one exception, because data is sent without a copy: a long read of memory may
//! return a block that is half old and half new, if the block is written while the read is outstanding. Reads
//! of up to [`COPIED_BYTES_MAX`] are copied under the lock of their blocks, which makes reads consistent for
//! data that hosts change by compare-and-write.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use block::{
    Allocation, BlockDevice, Buffer, DeviceError, Durability, Exclusive, Extent, Run, Shared,
    bytewise,
};
use front_end_core::{Charge, Ticket, Unserved};
use nbd::flags::{allocation, command};
use nbd::{BlockStatus, Command, Errno, Request};
use reactor::{Payload, SendQueue};
use volume::{Access, Denied, RequestKind, Volume};

use crate::client::{Answer, Client, Outcome};
use crate::connection::queue_answer;

/// Size of the pieces of requests that transfer no data over the network; other tasks run after each piece.
const PIECE_BYTES: u64 = 1 << 20;
/// Reads of memory up to this length are copied, so that the kernel gets one slice per reply instead of two.
const COPIED_BYTES_MAX: usize = 8 << 10;
/// Copies are not charged to the memory budget while the send queue is at most this long.
const COPIES_BYTES_MAX: usize = 256 << 10;
/// Maximum number of extents in one reply to BLOCK_STATUS.
const EXTENTS_MAX: usize = 4096;

/// The error of a request, as sent in the reply.
#[derive(Clone, Copy)]
struct Failed(Errno, &'static str);

impl Client {
    /// Starts a request without data, and answers it immediately if possible. Returns false if it must wait
    /// for memory.
    pub(crate) fn begin(
        self: &Rc<Self>,
        request: Request,
        command: Command,
        now: Instant,
        queue: &mut SendQueue<Charge>,
    ) -> bool {
        let mut charge = None;
        if command == Command::Read {
            if self.read_from_memory(&request, now, queue).is_some() {
                return true;
            }
            let bytes = self
                .covering(&request)
                .map_or(0, |extent| self.length(extent));
            charge = self.memory.take(Buffer::memory_bytes(bytes));
            if charge.is_none() {
                return false;
            }
            if let Some(buffer) = self.read_from_cache(&request) {
                let (payload, part) =
                    (Payload::Buffer(Rc::new(buffer)), 0..request.length as usize);
                let outcome = Outcome::Data {
                    payload,
                    part,
                    charge,
                };
                queue_answer(
                    self,
                    queue,
                    Answer {
                        request,
                        begin: now,
                        outcome,
                    },
                );
                return true;
            }
        }
        if command == Command::BlockStatus {
            // Memory for the extents and for their reply.
            charge = self
                .memory
                .take(2 * most_extents(&request) * size_of::<BlockStatus>());
            if charge.is_none() {
                return false;
            }
        }
        self.start(request, command, now, None, charge);
        true
    }

    /// Starts a task for a request, with its data, if any.
    pub(crate) fn start(
        self: &Rc<Self>,
        request: Request,
        command: Command,
        now: Instant,
        data: Option<Buffer>,
        charge: Option<Charge>,
    ) {
        debug_assert_eq!(
            data.is_some(),
            command == Command::Write,
            "a write has its data, and no other"
        );
        let (client, ticket) = (Rc::clone(self), self.requests.accept());
        self.begin_task();
        self.tally.note_wait();
        drop(reactor::spawn(async move {
            let outcome = client
                .carry_out(&request, command, ticket, data, charge)
                .await;
            let outcome =
                outcome.unwrap_or_else(|Failed(error, text)| Outcome::Failed(error, text));
            client.end_task(Answer {
                request,
                begin: now,
                outcome,
            });
        }));
    }

    /// Answers a read of blocks in memory: a short one from a copy, a long one directly.
    #[inline]
    fn read_from_memory(
        &self,
        request: &Request,
        now: Instant,
        queue: &mut SendQueue<Charge>,
    ) -> Option<()> {
        let extent = self.covering(request).ok()?;
        let _turn = self.volume().range_locks().try_share(extent)?;
        self.requests.permits(Access::Read).ok()?;
        let (region, part) = (self.device().memory(extent)?, self.part(request, extent));
        let length = part.len();
        if length <= COPIED_BYTES_MAX && queue.load() > COPIES_BYTES_MAX {
            return None; // for a slow client, data is read into buffers, whose memory is charged
        }
        let outcome = match length <= COPIED_BYTES_MAX {
            true => Outcome::Copied,
            false => Outcome::Data {
                payload: Payload::Memory(region.clone()),
                part: part.clone(),
                charge: None,
            },
        };
        let is_copied = matches!(outcome, Outcome::Copied);
        queue_answer(
            self,
            queue,
            Answer {
                request: *request,
                begin: now,
                outcome,
            },
        );
        if is_copied {
            if queue.load() > COPIED_BYTES_MAX {
                queue.make_room(COPIES_BYTES_MAX, COPIED_BYTES_MAX); // once, not in every round
            }
            queue.append(|out| {
                let at = out.len();
                out.resize(at + length, 0);
                region.load(part.start, &mut out[at..]);
            });
        }
        Some(())
    }

    /// Reads whole blocks from the page cache, if it contains them.
    fn read_from_cache(&self, request: &Request) -> Option<Buffer> {
        let extent = self
            .covering(request)
            .ok()
            .filter(|_| self.is_whole(request))?;
        let _turn = self.volume().range_locks().try_share(extent)?;
        self.requests.permits(Access::Read).ok()?;
        let mut buffer = Buffer::recycled(request.length as usize);
        self.device()
            .read_nowait(extent, &mut buffer)
            .then_some(buffer)
    }

    /// Writes whole blocks without waiting for a device. Returns `None` if it would have to wait; a part may
    /// then have been written, and the caller must call [`Client::start`].
    #[inline]
    pub(crate) fn write_now(&self, request: &Request, data: &[u8]) -> Option<Outcome> {
        debug_assert_eq!(
            data.len() as u64,
            request.length,
            "all of its data has arrived"
        );
        if self.durability(request) == Durability::Stable || !self.is_whole(request) {
            return None;
        }
        let extent = self.covering(request).ok()?;
        debug_assert_eq!(self.length(extent), data.len(), "whole blocks of data");
        let _turn = self.volume().range_locks().try_share(extent)?;
        self.requests.permits(Access::Write).ok()?;
        if let Some(mut blocks) = self.device().memory_to_write(extent) {
            blocks.put(0, data);
            return Some(Outcome::Done);
        }
        self.device()
            .write_nowait(extent, data)
            .then_some(Outcome::Done)
    }

    async fn carry_out(
        &self,
        request: &Request,
        command: Command,
        ticket: Ticket,
        data: Option<Buffer>,
        charge: Option<Charge>,
    ) -> Result<Outcome, Failed> {
        match command {
            Command::Read => self.read(request, ticket, charge).await,
            Command::Write => {
                self.write(request, ticket, data.unwrap_or_else(|| Buffer::zeroed(0)))
                    .await
            }
            Command::Flush => self.flush(ticket).await,
            Command::Trim => self.trim(request, ticket).await,
            Command::WriteZeroes => self.write_zeroes(request, ticket).await,
            Command::Cache => self.cache(request, ticket).await,
            Command::BlockStatus => self.block_status(request, ticket, charge).await,
            Command::Disconnect => Ok(Outcome::Done), // the volume is not involved
        }
    }

    async fn read(
        &self,
        request: &Request,
        ticket: Ticket,
        charge: Option<Charge>,
    ) -> Result<Outcome, Failed> {
        let extent = self.covering(request)?;
        let _turn = self.share(extent, ticket, Access::Read).await?;
        let buffer = self.fetch(extent, ticket).await?;
        let (payload, part) = (Payload::Buffer(Rc::new(buffer)), self.part(request, extent));
        Ok(Outcome::Data {
            payload,
            part,
            charge,
        })
    }

    async fn fetch(&self, extent: Extent, ticket: Ticket) -> Result<Buffer, Failed> {
        let read = || {
            self.device()
                .read(extent, Buffer::recycled(self.length(extent)))
        };
        Ok(self
            .requests
            .ask(ticket, RequestKind::Read, None, read)
            .await?)
    }

    async fn write(
        &self,
        request: &Request,
        ticket: Ticket,
        data: Buffer,
    ) -> Result<Outcome, Failed> {
        let (extent, data, durability) = (
            self.covering(request)?,
            data.share(),
            self.durability(request),
        );
        let (device, before) = (self.device(), self.volume().lost_writes());
        if !self.is_whole(request) {
            let turn = self.exclude(extent, ticket).await?;
            let write = || bytewise::write(device, request.offset, data);
            self.requests
                .ask(ticket, RequestKind::Change, Some(extent), write)
                .await?;
            drop(turn);
            return self.settle(request, ticket, before).await;
        }
        let turn = self.share(extent, ticket, Access::Write).await?;
        let write = || device.write(extent, data, durability);
        let written = self
            .requests
            .ask(ticket, RequestKind::Change, Some(extent), write)
            .await;
        drop(turn);
        if durability == Durability::Cached {
            written?;
            return Ok(Outcome::Done);
        }
        // A state directory on the same disk may hang as well, so the deadline also applies to this wait.
        self.requests
            .wait(ticket, Access::Read, self.volume().record_lost_writes())
            .await?;
        self.flushed(written, None)
    }

    /// Flushes all writes that have been acknowledged to any client.
    async fn flush(&self, ticket: Ticket) -> Result<Outcome, Failed> {
        let told = self.losses.told();
        let ended = self
            .requests
            .ask(ticket, RequestKind::Flush, None, || self.volume().flush())
            .await;
        self.flushed(ended, Some(told))
    }

    /// Completes a change that the device has executed and that started when `before` losses were counted.
    /// With FUA the change is made durable.
    async fn settle(
        &self,
        request: &Request,
        ticket: Ticket,
        before: u64,
    ) -> Result<Outcome, Failed> {
        if self.durability(request) == Durability::Cached {
            return Ok(Outcome::Done);
        }
        let settle = || self.volume().settle(before);
        self.flushed(
            self.requests
                .ask(ticket, RequestKind::Flush, None, settle)
                .await,
            None,
        )
    }

    /// Creates the reply to every request for stable storage. For a flush, `told` is the loss count that had
    /// been reported to this client when the flush started. For a change with FUA, `told` is `None`. This
    /// function alone determines the client's reply if the flush fails.
    ///
    /// A flush fails if acknowledged writes were lost and the loss had not been reported to this client when
    /// the flush started. Concurrent flushes may be for different writes, so each of them reports the loss.
    /// The reply counts as the report, whatever the result of the device's flush. The error is EIO even for a
    /// full device: after ENOSPC, QEMU waits for space and repeats the flush, which would then succeed
    /// without the lost data. A change with FUA reports only its own error, and leaves losses of earlier
    /// writes to the reply to a flush.
    fn flushed(&self, ended: Result<(), Unserved>, told: Option<u64>) -> Result<Outcome, Failed> {
        if let Some(told) = told {
            let losses = self.volume().lost_writes();
            debug_assert!(told <= self.losses.told(), "losses only grow");
            self.losses.report(losses, reactor::now());
            if told < losses {
                return Err(DeviceError::WritesLost.into());
            }
        }
        ended?;
        Ok(Outcome::Done)
    }

    /// Deallocates whole blocks, and leaves partial blocks unchanged.
    async fn trim(&self, request: &Request, ticket: Ticket) -> Result<Outcome, Failed> {
        let before = self.volume().lost_writes();
        for piece in self.pieces(self.inner(request)) {
            let _turn = self.share(piece, ticket, Access::Write).await?;
            let unmap = || self.device().unmap(piece);
            self.requests
                .ask(ticket, RequestKind::Change, Some(piece), unmap)
                .await?;
            reactor::yield_now().await;
        }
        self.settle(request, ticket, before).await
    }

    async fn write_zeroes(&self, request: &Request, ticket: Ticket) -> Result<Outcome, Failed> {
        let before = self.volume().lost_writes();
        let may_unmap = request.flags & command::NO_HOLE == 0;
        let is_fast = may_unmap && self.device().profile().thin;
        if request.flags & command::FAST_ZERO != 0 && !is_fast {
            return Err(Failed(
                Errno::Enotsup,
                "writing zeros is no faster than data here",
            ));
        }
        let (inner, whole) = (
            self.inner(request),
            request.offset..request.offset + request.length,
        );
        let geometry = self.device().geometry();
        let (from, to) = match inner.is_empty() {
            true => (whole.end, whole.end),
            false => (
                geometry.offset(inner),
                geometry.offset(inner) + geometry.length(inner),
            ),
        };
        for edge in [whole.start..from, to..whole.end] {
            self.zero_part(edge, ticket).await?;
        }
        for piece in self.pieces(inner) {
            let _turn = self.share(piece, ticket, Access::Write).await?;
            let zero = || self.device().write_zeroes(piece, may_unmap);
            self.requests
                .ask(ticket, RequestKind::Change, Some(piece), zero)
                .await?;
            reactor::yield_now().await;
        }
        self.settle(request, ticket, before).await
    }

    /// Zeroes bytes of partial blocks.
    async fn zero_part(&self, bytes: Range<u64>, ticket: Ticket) -> Result<(), Failed> {
        if bytes.is_empty() {
            return Ok(());
        }
        let extent = bytewise::covering(self.device(), &bytes)?;
        let _turn = self.exclude(extent, ticket).await?;
        let zeros = Buffer::zeroed((bytes.end - bytes.start) as usize).share();
        let write = || bytewise::write(self.device(), bytes.start, zeros);
        Ok(self
            .requests
            .ask(ticket, RequestKind::Change, Some(extent), write)
            .await?)
    }

    /// Reads the blocks, so that they are in the cache.
    async fn cache(&self, request: &Request, ticket: Ticket) -> Result<Outcome, Failed> {
        let extent = self.covering(request)?;
        if self.device().memory(extent).is_none() {
            for piece in self.pieces(extent) {
                let _turn = self.share(piece, ticket, Access::Read).await?;
                drop(self.fetch(piece, ticket).await?);
                reactor::yield_now().await;
            }
        }
        Ok(Outcome::Done)
    }

    async fn block_status(
        &self,
        request: &Request,
        ticket: Ticket,
        charge: Option<Charge>,
    ) -> Result<Outcome, Failed> {
        let extent = self.covering(request)?;
        let ask = || self.device().allocation(extent, most_extents(request));
        let runs = self
            .requests
            .ask(ticket, RequestKind::Read, None, ask)
            .await?;
        let asked = request.offset..request.offset + request.length;
        let geometry = self.device().geometry();
        let status = |run: &Run| {
            let start = geometry.offset(run.extent);
            let (from, to) = (
                start.max(asked.start),
                (start + geometry.length(run.extent)).min(asked.end),
            );
            let state = match run.allocation {
                Allocation::Mapped => 0,
                Allocation::Deallocated => allocation::HOLE | allocation::ZERO,
            };
            BlockStatus {
                bytes: to.saturating_sub(from),
                state,
            }
        };
        let extents: Vec<BlockStatus> = runs
            .iter()
            .map(status)
            .filter(|extent| extent.bytes > 0)
            .collect();
        debug_assert!(extents.iter().map(|extent| extent.bytes).sum::<u64>() <= request.length);
        match extents.is_empty() {
            false => Ok(Outcome::Extents { extents, charge }),
            true => Err(Failed(Errno::Einval, "nothing is asked for")), // a reply has at least one extent
        }
    }

    async fn share(
        &self,
        extent: Extent,
        ticket: Ticket,
        access: Access,
    ) -> Result<Shared, Unserved> {
        self.requests
            .wait(ticket, access, self.volume().range_locks().share(extent))
            .await
    }

    async fn exclude(&self, extent: Extent, ticket: Ticket) -> Result<Exclusive, Unserved> {
        self.requests
            .wait(
                ticket,
                Access::Write,
                self.volume().range_locks().exclude(extent),
            )
            .await
    }

    fn volume(&self) -> &Arc<Volume> {
        self.requests.volume()
    }

    fn device(&self) -> &dyn BlockDevice {
        &**self.volume().device()
    }

    fn length(&self, extent: Extent) -> usize {
        self.device().geometry().length(extent) as usize
    }

    /// Returns the blocks that contain a request's bytes.
    fn covering(&self, request: &Request) -> Result<Extent, DeviceError> {
        bytewise::covering(
            self.device(),
            &(request.offset..request.offset + request.length),
        )
    }

    /// Returns the blocks completely within a request.
    fn inner(&self, request: &Request) -> Extent {
        let shift = self.device().geometry().block_size.shift();
        let block = 1 << shift;
        let first = request.offset.div_ceil(block);
        let end = (request.offset + request.length) >> shift;
        Extent::new(first, end.saturating_sub(first))
    }

    /// Returns the position of a request's bytes within the blocks that contain them.
    fn part(&self, request: &Request, covering: Extent) -> Range<usize> {
        debug_assert!(
            self.device().geometry().offset(covering) <= request.offset,
            "the blocks cover the bytes"
        );
        let skipped = (request.offset - self.device().geometry().offset(covering)) as usize;
        debug_assert!(
            skipped + request.length as usize <= self.length(covering),
            "the blocks cover the last byte"
        );
        skipped..skipped + request.length as usize
    }

    fn is_whole(&self, request: &Request) -> bool {
        let block = u64::from(self.device().geometry().block_size.bytes());
        (request.offset | request.length) & (block - 1) == 0
    }

    fn pieces(&self, extent: Extent) -> block::Chunks {
        extent.chunks(PIECE_BYTES >> self.device().geometry().block_size.shift())
    }

    /// Returns the durability that a change must have before it is acknowledged. Without a volatile cache,
    /// every change is stable anyway.
    fn durability(&self, request: &Request) -> Durability {
        let is_volatile = self.device().profile().volatile_cache;
        if is_volatile && request.flags & command::FUA != 0 {
            Durability::Stable
        } else {
            Durability::Cached
        }
    }
}

/// Returns the maximum number of extents in the reply to BLOCK_STATUS.
fn most_extents(request: &Request) -> usize {
    if request.flags & command::REQ_ONE != 0 {
        1
    } else {
        EXTENTS_MAX
    }
}

impl From<Unserved> for Failed {
    fn from(unserved: Unserved) -> Failed {
        match unserved {
            Unserved::Denied(Denied::Reserved) => Failed(Errno::Eperm, "reserved by another host"),
            Unserved::Denied(Denied::WriteProtected) => {
                Failed(Errno::Eperm, "the volume is write-protected")
            }
            Unserved::Denied(Denied::Fenced) => Failed(Errno::Eio, "the device is unresponsive"),
            Unserved::Aborted => Failed(Errno::Eio, "aborted: the volume was reset or removed"),
            Unserved::Failed(error) => error.into(),
        }
    }
}

impl From<DeviceError> for Failed {
    fn from(error: DeviceError) -> Failed {
        match error {
            DeviceError::OutOfRange => Failed(Errno::Einval, "past the end of the device"),
            DeviceError::Unsupported => {
                Failed(Errno::Einval, "the device does not support this request")
            }
            // The volume was exported as writable, so becoming read-only is a failure. EPERM would mean a
            // reservation by another host.
            DeviceError::ReadOnly => Failed(Errno::Eio, "the device has become read-only"),
            DeviceError::Reserved => Failed(Errno::Eperm, "the device is reserved by another host"),
            DeviceError::NoSpace => {
                Failed(Errno::Enospc, "no space left in the underlying storage")
            }
            DeviceError::Unreadable(_) => Failed(Errno::Eio, "a block could not be read"),
            DeviceError::Unwritable(_) => Failed(Errno::Eio, "a block could not be written"),
            DeviceError::NotReady => Failed(Errno::Eio, "the device is not ready"),
            DeviceError::Fenced => Failed(
                Errno::Eio,
                "the device is fenced: another host has taken it over",
            ),
            DeviceError::TimedOut => Failed(Errno::Eio, "the device timed out"),
            DeviceError::Cancelled => Failed(Errno::Eio, "the request was cancelled"),
            DeviceError::WritesLost => Failed(Errno::Eio, "acknowledged writes may be lost"),
            DeviceError::Unsettled => Failed(
                Errno::Eio,
                "an earlier write may still be executed over a lost path",
            ),
        }
    }
}
