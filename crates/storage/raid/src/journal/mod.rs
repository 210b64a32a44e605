//! The journal of a set with parity, which closes the write hole.
//!
//! A write to a stripe changes several members. If power fails before all are changed, parity does not match
//! the data. A strip that is reconstructed from it is corrupt, even if that strip was not being written.
//! So the journal first stores data and parity on stable storage, and replays them at the next assembly:
//!
//! ```text
//!   queue ──► one write of all pending records to all copies ──► write members ──► flush members, then move
//!             (stable; one at a time)                            (applied)        the header past the record
//! ```
//!
//! A record contains the new content itself, and a stripe stays locked until its record has been applied. So
//! replaying all records in order is correct, whatever part of them has already reached the members. A record
//! is on stable storage before its write is acknowledged, so an acknowledged write is durable.
//!
//! If a journal is on a separate device, areas on members are in reserve. If the device fails, the journal
//! moves there:
//!
//! 1. The journal writes no record until its content is on the members' stable storage.
//! 2. It starts an empty journal in the reserve.
//! 3. It changes the set's superblocks, so that the reserve becomes the journal.
//! 4. It writes the pending records there.
//!
//! After a crash before step 3, the superblocks still name the device. All of its records are either on the
//! members or were not acknowledged. After a crash that follows step 3, the set finds the journal in the
//! reserve.

pub(crate) mod record;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use block::{BlockDevice, Buffer, DeviceError, Extent, Lock, Operations};
use record::{Change, HEADERS, Header, Ring, Start};

use crate::area::{Area, AreaCopy};
use crate::layout::Layout;
use crate::members::Members;

/// Minimum size of the part of a journal that is normally used if a flush of the members is cheap. This part
/// stays in the CPU caches: with a journal in memory, writing a record of 8.5 KiB takes half the time that it
/// takes when records spread over 32 MiB.
const ENOUGH_BYTES: u64 = 2 << 20;

/// Minimum number of stripe-sized records that the used part has space for. With 1 MiB strips, 2 MiB would
/// require a flush after each record.
const LONGEST_RECORDS: u64 = 8;

/// Maximum size of one write to the journal, unless its first record is longer.
const BATCH_BYTES: usize = 4 << 20;

pub(crate) struct Journal {
    area: Area,
    members: Arc<Members>,
    operations: Arc<Operations>,
    key: u64,
    state: Lock<State>,
}

struct State {
    ring: Ring,
    generation: u64,
    queue: VecDeque<Queued>,
    /// Requests to empty the journal, with the copies to add when it is empty.
    joining: Vec<(Option<AreaCopy>, Arc<Lock<Ticket>>)>,
    is_committing: bool,
    /// Whether the journal no longer accepts records, because writing it, or a journalled write to the
    /// members, has failed.
    has_failed: bool,
    /// The committer's waker while it waits for records to be applied.
    committer: Option<Waker>,
}

impl State {
    /// Whether records must be freed before the next one is written.
    fn frees(&self) -> bool {
        self.ring.is_half_full() && self.ring.can_free()
    }
}

struct Queued {
    change: Arc<Change>,
    ticket: Arc<Lock<Ticket>>,
}

#[derive(Default)]
struct Ticket {
    result: Option<Result<u64, DeviceError>>,
    waker: Option<Waker>,
}

impl Journal {
    /// Starts an empty journal. Earlier records in the area must be on the members, and are not replayed
    /// again. `generation` must be higher than in every header in the area, and `key` different from all keys
    /// there. If the journal cannot be started on a separate device, starts it on the members.
    pub(crate) async fn begin(
        area: Area,
        members: Arc<Members>,
        operations: Arc<Operations>,
        generation: u64,
        key: u64,
    ) -> Result<Journal, DeviceError> {
        let blocks = area.blocks().saturating_sub(HEADERS);
        // Members with volatile caches must be flushed before records are overwritten, so use the whole ring.
        let enough = match members.have_volatile_caches() {
            true => blocks,
            false => enough_blocks(&members.layout(), blocks),
        };
        debug_assert!(
            blocks > 0 && enough <= blocks,
            "a journal has space for records"
        );
        let ring = Ring::new(blocks, enough, 0);
        let state = State {
            ring,
            generation,
            queue: VecDeque::new(),
            joining: Vec::new(),
            is_committing: false,
            has_failed: false,
            committer: None,
        };
        let journal = Journal {
            area,
            members,
            operations,
            key,
            state: Lock::new(state),
        };
        if let Err(error) = journal
            .write_headers(Start {
                block: 0,
                sequence: 0,
            })
            .await
        {
            journal.fall_back(None, error).await?;
        }
        Ok(journal)
    }

    pub(crate) fn area(&self) -> &Area {
        &self.area
    }

    /// Whether the journal is on a separate device.
    pub(crate) fn is_on_device(&self) -> bool {
        self.area.is_on_device()
    }

    /// Returns the number of copies in use.
    pub(crate) fn copies(&self) -> usize {
        self.area.copies()
    }

    /// Whether the journal has failed, so that writes can no longer be recorded.
    pub(crate) fn has_failed(&self) -> bool {
        self.state.lock().has_failed
    }

    /// Records `change`, and resolves once it is on stable storage. The caller must then write the members
    /// and call [`Recorded::applied`].
    pub(crate) async fn record(
        self: &Arc<Self>,
        change: Arc<Change>,
    ) -> Result<Recorded, DeviceError> {
        if change.blocks(self.area.block_bytes()) > self.area.blocks() - HEADERS {
            // The record would wait for space forever. The minimum size of a journal rules this out.
            return Err(DeviceError::OutOfRange);
        }
        let sequence = match self.place_alone(&change)? {
            Some((start, committer)) => self.commit_alone(start, change, committer).await?,
            None => {
                let ticket: Arc<Lock<Ticket>> = Arc::default();
                let queued = Queued {
                    change,
                    ticket: Arc::clone(&ticket),
                };
                self.commit_soon(|state| state.queue.push_back(queued))?;
                result_of(&ticket).await?
            }
        };
        Ok(Recorded {
            journal: Arc::clone(self),
            sequence,
            is_applied: false,
        })
    }

    /// If no record is being written and there is space, reserves space for this record, and makes the caller
    /// the committer. So a record that can be written immediately needs neither the queue nor a task.
    fn place_alone(
        self: &Arc<Self>,
        change: &Change,
    ) -> Result<Option<(Start, Committer)>, DeviceError> {
        let blocks = change.blocks(self.area.block_bytes());
        let mut state = self.state.lock();
        if state.has_failed {
            return Err(DeviceError::NotReady);
        }
        // If there is no committer, the queue is empty.
        if state.is_committing {
            return Ok(None);
        }
        let Some(start) = state.ring.take(blocks) else {
            return Ok(None);
        };
        state.is_committing = true;
        Ok(Some((
            start,
            Committer {
                journal: Arc::clone(self),
                has_ended: false,
            },
        )))
    }

    /// Writes one record, and returns its sequence. If other records have been queued meanwhile, a task
    /// continues with them.
    async fn commit_alone(
        &self,
        start: Start,
        change: Arc<Change>,
        mut committer: Committer,
    ) -> Result<u64, DeviceError> {
        debug_assert!(self.state.lock().is_committing);
        let block_bytes = self.area.block_bytes();
        let mut bytes = Buffer::recycled(change.blocks(block_bytes) as usize * block_bytes);
        change.encode(self.key, start.sequence, block_bytes, &mut bytes);
        // If there is an error, or this future is dropped, the committer is dropped, and the journal fails.
        if let Err(error) = self.area.write(HEADERS + start.block, &bytes.share()).await {
            self.fall_back(Some(start.sequence), error).await?;
            let ticket: Arc<Lock<Ticket>> = Arc::default();
            self.state.lock().queue.push_front(Queued {
                change,
                ticket: Arc::clone(&ticket),
            });
            self.operations.start(committer.run());
            return result_of(&ticket).await;
        }
        {
            let mut state = self.state.lock();
            if state.queue.is_empty() && state.joining.is_empty() && !state.frees() {
                state.is_committing = false;
                committer.has_ended = true;
                return Ok(start.sequence);
            }
        }
        self.operations.start(committer.run());
        Ok(start.sequence)
    }

    /// Empties the journal: resolves once no record from before this call can be replayed. If `copy` is
    /// given, adds this copy of a replaced member to the journal. It is then equivalent to the other copies.
    pub(crate) async fn empty(self: &Arc<Self>, copy: Option<AreaCopy>) -> Result<(), DeviceError> {
        let ticket: Arc<Lock<Ticket>> = Arc::default();
        let joining = (copy, Arc::clone(&ticket));
        self.commit_soon(|state| state.joining.push(joining))?;
        result_of(&ticket).await.map(drop)
    }

    /// Adds work for the committer, and starts one if there is none.
    fn commit_soon(self: &Arc<Self>, add: impl FnOnce(&mut State)) -> Result<(), DeviceError> {
        {
            let mut state = self.state.lock();
            if state.has_failed {
                return Err(DeviceError::NotReady);
            }
            add(&mut state);
            if std::mem::replace(&mut state.is_committing, true) {
                return Ok(());
            }
        }
        let committer = Committer {
            journal: Arc::clone(self),
            has_ended: false,
        };
        self.operations.start(committer.run());
        Ok(())
    }

    async fn commit_all(&self) {
        loop {
            let result = match self.batch() {
                Batch::Nothing => return,
                Batch::Free => self.free().await.map_err(|error| (None, error)),
                Batch::NoRoom => self.make_room().await.map_err(|error| (None, error)),
                Batch::Records(batch) => self.commit(batch).await,
                Batch::Empty(copy, ticket) => self
                    .free_all(copy, ticket)
                    .await
                    .map_err(|error| (None, error)),
            };
            if let Err((unwritten, error)) = result
                && let Err(error) = self.fall_back(unwritten, error).await
            {
                return self.fail(error);
            }
        }
    }

    /// Takes the next records to write from the queue, and returns them with their locations, which are
    /// adjacent in the ring.
    fn batch(&self) -> Batch {
        let block_bytes = self.area.block_bytes();
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.frees() {
            return Batch::Free;
        }
        if let Some((copy, ticket)) = state.joining.pop() {
            return Batch::Empty(copy, ticket);
        }
        let mut batch: Vec<(Start, u64, Queued)> = Vec::new();
        let (mut bytes, mut end) = (0, None);
        while let Some(next) = state.queue.front() {
            let blocks = next.change.blocks(block_bytes);
            if !batch.is_empty() && (bytes >= BATCH_BYTES || !state.ring.takes_at(end, blocks)) {
                break;
            }
            let Some(start) = state.ring.take(blocks) else {
                return Batch::NoRoom;
            };
            end = Some(start.block + blocks);
            bytes += blocks as usize * block_bytes;
            batch.extend(
                state
                    .queue
                    .pop_front()
                    .map(|queued| (start, blocks, queued)),
            );
        }
        if batch.is_empty() {
            state.is_committing = false;
            return Batch::Nothing;
        }
        Batch::Records(batch)
    }

    /// Writes a batch of records. If this fails, the error names the first unwritten record. That record and
    /// all later ones have then been queued again.
    async fn commit(
        &self,
        batch: Vec<(Start, u64, Queued)>,
    ) -> Result<(), (Option<u64>, DeviceError)> {
        let block_bytes = self.area.block_bytes();
        let blocks: u64 = batch.iter().map(|(_, blocks, _)| blocks).sum();
        let are_adjacent =
            |pair: &[(Start, u64, Queued)]| pair[0].0.block + pair[0].1 == pair[1].0.block;
        debug_assert!(
            !batch.is_empty() && batch.windows(2).all(are_adjacent),
            "one write"
        );
        let mut bytes = Buffer::recycled(blocks as usize * block_bytes);
        let mut at = 0;
        for (start, blocks, queued) in &batch {
            let end = at + *blocks as usize * block_bytes;
            queued
                .change
                .encode(self.key, start.sequence, block_bytes, &mut bytes[at..end]);
            at = end;
        }
        let first = batch.first().map_or(0, |(start, _, _)| start.block);
        match self.area.write(HEADERS + first, &bytes.share()).await {
            Ok(()) => {
                batch
                    .iter()
                    .for_each(|(start, _, queued)| end(&queued.ticket, Ok(start.sequence)));
                Ok(())
            }
            Err(error) => {
                let unwritten = batch.first().map(|(start, ..)| start.sequence);
                let mut state = self.state.lock();
                batch
                    .into_iter()
                    .rev()
                    .for_each(|(_, _, queued)| state.queue.push_front(queued));
                Err((unwritten, error))
            }
        }
    }

    /// Called when a write to the journal has failed with `error`. If the journal is on a separate device,
    /// moves it to the members; records from `unwritten` on are not in the new journal. If this returns an
    /// error, the set no longer has a journal.
    async fn fall_back(
        &self,
        unwritten: Option<u64>,
        error: DeviceError,
    ) -> Result<(), DeviceError> {
        // Do not continue if another host has taken over the set.
        self.members.check_service()?;
        if !self.area.is_on_device() {
            return Err(error);
        }
        if let Some(sequence) = unwritten {
            self.state.lock().ring.withdraw(sequence);
        }
        self.wait_for(Ring::is_applied).await?;
        // Until now, acknowledged writes may have been durable only on the device. After this flush, the
        // members have them.
        self.members.flush().await?;
        if !self.area.use_reserve() {
            return Err(error);
        }
        let start = self.state.lock().ring.restart();
        self.write_headers(start).await?;
        self.members.record_journal_on_members().await
    }

    /// Waits until the oldest record has been applied, then frees it.
    async fn make_room(&self) -> Result<(), DeviceError> {
        self.wait_for(Ring::can_free).await?;
        self.free().await
    }

    /// Waits until all records have been applied, then frees them. Adds copies while the journal is empty, so
    /// that no copy misses a record.
    async fn free_all(
        &self,
        mut copy: Option<AreaCopy>,
        ticket: Arc<Lock<Ticket>>,
    ) -> Result<(), DeviceError> {
        let freed = async {
            self.wait_for(Ring::is_applied).await?;
            self.free().await?;
            if let Some(copy) = copy.take() {
                self.area.add(&copy);
                let start = self.state.lock().ring.next_start();
                self.write_headers(start).await?;
                self.state.lock().ring.begins(start);
            }
            Ok(())
        };
        let result = freed.await;
        match result {
            Ok(()) => end(&ticket, Ok(0)),
            // If an error occurs, a copy that was added stays part of the journal.
            Err(_) => self.state.lock().joining.push((copy, ticket)),
        }
        result
    }

    async fn wait_for(&self, condition: fn(&Ring) -> bool) -> Result<(), DeviceError> {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.has_failed {
                return Poll::Ready(Err(DeviceError::NotReady));
            }
            if condition(&state.ring) {
                return Poll::Ready(Ok(()));
            }
            state.committer = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Frees applied records, so that they are no longer replayed.
    async fn free(&self) -> Result<(), DeviceError> {
        let start = self.state.lock().ring.next_start();
        self.members.flush().await?;
        self.write_header(start).await?;
        self.state.lock().ring.begins(start);
        Ok(())
    }

    /// Writes both header blocks. Otherwise, an old header could be found on a new copy, or if the newer
    /// header is torn.
    async fn write_headers(&self, start: Start) -> Result<(), DeviceError> {
        for _ in 0..HEADERS {
            self.write_header(start).await?;
        }
        Ok(())
    }

    async fn write_header(&self, start: Start) -> Result<(), DeviceError> {
        let generation = {
            let mut state = self.state.lock();
            // Wraps around: a new set may occupy the space of an old journal, whose generation can have any
            // value.
            state.generation = state.generation.wrapping_add(1);
            state.generation
        };
        let header = Header {
            generation,
            key: self.key,
            start: start.block,
            sequence: start.sequence,
        };
        self.area
            .write(
                generation % HEADERS,
                &header.encode(self.area.block_bytes()),
            )
            .await
    }

    /// Stops accepting records. Pending records fail with this error.
    fn fail(&self, error: DeviceError) {
        let (queue, joining, committer) = {
            let mut state = self.state.lock();
            state.has_failed = true;
            (
                std::mem::take(&mut state.queue),
                std::mem::take(&mut state.joining),
                state.committer.take(),
            )
        };
        let tickets = queue
            .into_iter()
            .map(|queued| queued.ticket)
            .chain(joining.into_iter().map(|(_, ticket)| ticket));
        tickets.for_each(|ticket| end(&ticket, Err(error)));
        committer.into_iter().for_each(Waker::wake);
    }
}

/// Returns the size of the part of a ring of `blocks` that is normally used if a flush of the members is
/// cheap. It has space for 8 stripes of data, so that it stays in the CPU caches, but is at least 2 MiB and
/// at most a quarter of the ring. No memory is allocated for it. With checksums, each flush also writes
/// checksums; a larger part would not make random writes faster, and would make sequential writes slower.
fn enough_blocks(layout: &Layout, blocks: u64) -> u64 {
    let least = ENOUGH_BYTES >> layout.block_size().shift();
    least
        .max(LONGEST_RECORDS * layout.stripe_blocks())
        .min(blocks / 4)
}

async fn result_of(ticket: &Lock<Ticket>) -> Result<u64, DeviceError> {
    poll_fn(|cx| {
        let mut ticket = ticket.lock();
        match ticket.result {
            Some(result) => Poll::Ready(result),
            None => {
                ticket.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

fn end(ticket: &Lock<Ticket>, result: Result<u64, DeviceError>) {
    let waker = {
        let mut ticket = ticket.lock();
        debug_assert!(ticket.result.is_none(), "a ticket ends once");
        ticket.result = Some(result);
        ticket.waker.take()
    };
    waker.into_iter().for_each(Waker::wake);
}

enum Batch {
    Nothing,
    Free,
    NoRoom,
    Empty(Option<AreaCopy>, Arc<Lock<Ticket>>),
    Records(Vec<(Start, u64, Queued)>),
}

/// The writer of records: a task, or the request itself if its record can be written immediately. If the
/// committer is dropped with its thread, the waiting requests fail.
struct Committer {
    journal: Arc<Journal>,
    has_ended: bool,
}

impl Committer {
    async fn run(mut self) {
        self.journal.commit_all().await;
        self.has_ended = true;
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        if !self.has_ended {
            self.journal.fail(DeviceError::NotReady);
        }
    }
}

/// A record on stable storage. If this is dropped before the record has been applied, the journal fails,
/// because the record must be replayed.
pub(crate) struct Recorded {
    journal: Arc<Journal>,
    sequence: u64,
    is_applied: bool,
}

impl Recorded {
    /// Marks the record as applied: each of its members has the content, or has failed.
    pub(crate) fn applied(mut self) {
        self.is_applied = true;
        let committer = {
            let mut state = self.journal.state.lock();
            state.ring.applied(self.sequence);
            state.committer.take()
        };
        committer.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if !self.is_applied {
            self.journal.fail(DeviceError::NotReady);
        }
    }
}

/// Reads the records in one copy of a journal, in order.
pub(crate) struct Log {
    device: Arc<dyn BlockDevice>,
    ring: u64,
    header: Header,
    /// The position at which the next record is expected.
    at: u64,
    sequence: u64,
    /// Total length of the records read so far, which cannot exceed the ring.
    blocks_read: u64,
}

impl Log {
    /// Returns the log of the most recent copy: among the copies with the newest key, the one that contains
    /// the last record. Returns `None` if no copy has a header.
    pub(crate) async fn newest(
        devices: &[Arc<dyn BlockDevice>],
    ) -> Result<Option<Log>, DeviceError> {
        let mut logs = Vec::new();
        let mut failure = None;
        for device in devices {
            match Log::open(Arc::clone(device)).await {
                Ok(log) => logs.extend(log),
                Err(error) => failure = Some(error),
            }
        }
        let Some(newest) = logs
            .iter()
            .map(|log| log.header)
            .max_by_key(|header| header.generation)
        else {
            return failure.map_or(Ok(None), Err);
        };
        let mut best: Option<(u64, Log)> = None;
        for mut log in logs.into_iter().filter(|log| log.header.key == newest.key) {
            let end = loop {
                match log.next().await {
                    Ok(Some(_)) => {}
                    end => break end,
                }
            };
            match end {
                // Another copy may contain the records that are unreadable here.
                Err(error) => failure = Some(error),
                Ok(_) if best.as_ref().is_none_or(|(most, _)| log.sequence > *most) => {
                    let last = log.sequence;
                    log.rewind();
                    best = Some((last, log));
                }
                Ok(_) => {}
            }
        }
        match (best, failure) {
            (Some((_, log)), _) => Ok(Some(log)),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    /// Returns the version of a journal that a newer program has written to a readable copy, if any.
    pub(crate) async fn newer_version(devices: &[Arc<dyn BlockDevice>]) -> Option<u32> {
        let mut newest = None;
        for device in devices
            .iter()
            .filter(|device| device.geometry().blocks.0 >= HEADERS)
        {
            for block in 0..HEADERS {
                let header = read(&**device, block, 1).await.ok();
                newest = newest.max(header.and_then(|header| Header::newer_version(&header)));
            }
        }
        newest
    }

    async fn open(device: Arc<dyn BlockDevice>) -> Result<Option<Log>, DeviceError> {
        let blocks = device.geometry().blocks.0;
        let Some(ring) = blocks.checked_sub(HEADERS) else {
            return Ok(None);
        };
        let mut newest: Option<Header> = None;
        for block in 0..HEADERS {
            let header = Header::decode(&read(&*device, block, 1).await?);
            newest = newest
                .into_iter()
                .chain(header)
                .max_by_key(|header| header.generation);
        }
        let Some(header) = newest.filter(|header| header.start <= ring) else {
            return Ok(None);
        };
        let mut log = Log {
            device,
            ring,
            header,
            at: 0,
            sequence: 0,
            blocks_read: 0,
        };
        log.rewind();
        Ok(Some(log))
    }

    /// Writes the records to stable storage again, on all copies. A record that was read may be only in a
    /// cache, because its write was interrupted; a flush does not prove the opposite, because an earlier one
    /// may have failed. If such a record were lost while it is being replayed, the stripe would stay
    /// inconsistent. If the records cannot be written to a separate device, they move to the members.
    pub(crate) async fn secure(&mut self, area: &Area) -> Result<(), DeviceError> {
        let Err(error) = self.write_again(area).await else {
            return Ok(());
        };
        area.members().check_service()?;
        if !area.is_on_device() || !area.use_reserve() {
            return Err(error);
        }
        self.write_again(area).await?;
        area.members().record_journal_on_members().await
    }

    async fn write_again(&mut self, area: &Area) -> Result<(), DeviceError> {
        let records = self.extents().await?;
        if records.is_empty() {
            return Ok(());
        }
        let block_bytes = area.block_bytes();
        for part in records
            .iter()
            .flat_map(|extent| extent.chunks((BATCH_BYTES / block_bytes) as u64))
        {
            let bytes = read(&*self.device, part.lba.0, part.blocks.0).await?;
            area.write(part.lba.0, &bytes.share()).await?;
        }
        for _ in 0..HEADERS {
            self.header.generation = self.header.generation.wrapping_add(1);
            let header = self.header.encode(block_bytes);
            area.write(self.header.generation % HEADERS, &header)
                .await?;
        }
        Ok(())
    }

    /// Returns the blocks of all records.
    async fn extents(&mut self) -> Result<Vec<Extent>, DeviceError> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut before = 0;
        self.rewind();
        while self.next().await?.is_some() {
            let blocks = self.blocks_read - before;
            before = self.blocks_read;
            let lba = HEADERS + self.at - blocks;
            match extents.last_mut() {
                Some(last) if last.lba.0 + last.blocks.0 == lba => last.blocks.0 += blocks,
                _ => extents.push(Extent::new(lba, blocks)),
            }
        }
        self.rewind();
        Ok(extents)
    }

    fn rewind(&mut self) {
        (self.at, self.sequence, self.blocks_read) = (self.header.start, self.header.sequence, 0);
    }

    /// Returns the generation of the newest header.
    pub(crate) fn generation(&self) -> u64 {
        self.header.generation
    }

    pub(crate) fn key(&self) -> u64 {
        self.header.key
    }

    /// Returns the next record; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<Change>, DeviceError> {
        let mut places = vec![self.at];
        if self.at != 0 {
            places.push(0);
        }
        for place in places {
            let Some((change, blocks)) = self.record_at(place).await? else {
                continue;
            };
            (self.at, self.blocks_read) = (place + blocks, self.blocks_read + blocks);
            debug_assert!(self.at <= self.ring);
            self.sequence += 1;
            return Ok(Some(change));
        }
        Ok(None)
    }

    async fn record_at(&self, place: u64) -> Result<Option<(Change, u64)>, DeviceError> {
        if place >= self.ring {
            return Ok(None);
        }
        let first = read(&*self.device, HEADERS + place, 1).await?;
        let Some(blocks) = Change::length(&first, self.header.key, self.sequence) else {
            return Ok(None);
        };
        debug_assert!(self.blocks_read <= self.ring, "records do not overlap");
        let room = (self.ring - place).min(self.ring - self.blocks_read);
        if blocks == 0 || blocks > room {
            return Ok(None);
        }
        let record = read(&*self.device, HEADERS + place, blocks).await?.share();
        let block_bytes = self.device.geometry().block_size.bytes() as usize;
        Ok(Change::decode(&record, block_bytes).map(|change| (change, blocks)))
    }
}

async fn read(device: &dyn BlockDevice, lba: u64, blocks: u64) -> Result<Buffer, DeviceError> {
    let length = (blocks << device.geometry().block_size.shift()) as usize;
    device
        .read(Extent::new(lba, blocks), Buffer::recycled(length))
        .await
}

#[cfg(test)]
mod tests {
    use block::{BlockSize, Blocks};

    use crate::layout::Level;

    use super::*;

    #[test]
    fn a_ring_is_used_as_far_as_its_records_are_long() {
        let enough = |strip: u64, ring_mib: u64| {
            let layout = Layout::new(Level::Raid5, 4, strip, BlockSize::B512, Blocks(1 << 20));
            enough_blocks(&layout.expect("a layout"), ring_mib << 11) >> 11
        };
        assert_eq!(enough(4 << 10, 1024), 2);
        assert_eq!(enough(64 << 10, 1024), 2);
        assert_eq!(enough(1 << 20, 1024), 24);
        assert_eq!(enough(1 << 20, 32), 8);
    }
}
