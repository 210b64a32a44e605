//! The journal of a set with parity, which closes the write hole.
//!
//! A write of a stripe changes several members. If power fails in between, parity does not match the data,
//! and a strip reconstructed from it is corrupt, even if it was not being written. So the journal writes data
//! and parity to stable storage before the members do, and replays them at the next assembly:
//!
//! ```text
//!   queue ──► one write of all that wait, on every copy ──► members are written ──► members are flushed, and
//!             (stable; one at a time)                       (applied)               the header passes the record
//! ```
//!
//! A record contains the new content itself, and stripes stay locked until their record is applied. So
//! replaying all records in order is correct, whatever part of them has reached the members. A record is
//! stable before its write is acknowledged, so the write is stable as well.
//!
//! A journal on a separate device has members' areas in reserve. If the device fails, the journal moves there:
//!
//! 1. No further record is written until the journal's content is on the members' stable storage.
//! 2. An empty journal is started in the reserve.
//! 3. The set's record names the reserve as the journal.
//! 4. Pending records are written there.
//!
//! After a crash before step 3, the set's record still names the device, whose records are on the members or
//! were not acknowledged. After a crash that follows step 3, the set finds the empty journal.

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

/// The part of a journal normally in use if a flush of the members is cheap: it stays in a processor's
/// caches. In a file in memory, a record of 8.5 KiB takes half the time that it takes when spread over 32
/// MiB.
const ENOUGH_BYTES: u64 = 2 << 20;

/// Minimum number of stripe-sized records between flushes: with 1 MiB strips, 2 MiB would be flushed after each.
const LONGEST_RECORDS: u64 = 8;

/// Maximum bytes in one write to the journal, apart from the first record.
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
    /// Requests for an empty journal, with the copies to add at that point.
    joining: Vec<(Option<AreaCopy>, Arc<Lock<Ticket>>)>,
    is_committing: bool,
    /// No more records are accepted: writing the journal, or a journalled write to the members, failed.
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
    /// Starts an empty journal: earlier records in the area are on the members and are not replayed again.
    /// `generation` is higher than in every header in the area, and `key` differs from the keys in these
    /// headers. If the journal cannot be started on a separate device, it is started on the members.
    pub(crate) async fn begin(
        area: Area,
        members: Arc<Members>,
        operations: Arc<Operations>,
        generation: u64,
        key: u64,
    ) -> Result<Journal, DeviceError> {
        let blocks = area.blocks().saturating_sub(HEADERS);
        // Members are flushed before records are overwritten.
        let enough = match members.have_volatile_caches() {
            true => blocks,
            false => enough_blocks(&members.layout(), blocks),
        };
        debug_assert!(blocks > 0 && enough <= blocks, "a journal has room for records");
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
        let journal = Journal { area, members, operations, key, state: Lock::new(state) };
        if let Err(error) = journal.write_headers(Start { block: 0, sequence: 0 }).await {
            journal.fall_back(None, error).await?;
        }
        Ok(journal)
    }

    /// The area.
    pub(crate) fn area(&self) -> &Area {
        &self.area
    }

    /// Whether the journal is on a separate device.
    pub(crate) fn is_on_device(&self) -> bool {
        self.area.is_on_device()
    }

    /// Number of copies in use.
    pub(crate) fn copies(&self) -> usize {
        self.area.copies()
    }

    /// Whether writes can no longer be recorded.
    pub(crate) fn has_failed(&self) -> bool {
        self.state.lock().has_failed
    }

    /// Resolves once `change` is on stable storage. The caller then writes the members and calls
    /// [`Recorded::applied`].
    pub(crate) async fn record(self: &Arc<Self>, change: Arc<Change>) -> Result<Recorded, DeviceError> {
        if change.blocks(self.area.block_bytes()) > self.area.blocks() - HEADERS {
            // It would wait for space forever. The minimum size of a journal rules this out.
            return Err(DeviceError::OutOfRange);
        }
        let sequence = match self.place_alone(&change)? {
            Some((start, committer)) => self.commit_alone(start, change, committer).await?,
            None => {
                let ticket: Arc<Lock<Ticket>> = Arc::default();
                let queued = Queued { change, ticket: Arc::clone(&ticket) };
                self.commit_soon(|state| state.queue.push_back(queued))?;
                result_of(&ticket).await?
            }
        };
        Ok(Recorded { journal: Arc::clone(self), sequence, is_applied: false })
    }

    /// If no record is being written and there is space, takes space for this record and makes its requester
    /// the committer. A record that need not wait requires neither a queue nor a task.
    fn place_alone(self: &Arc<Self>, change: &Change) -> Result<Option<(Start, Committer)>, DeviceError> {
        let blocks = change.blocks(self.area.block_bytes());
        let mut state = self.state.lock();
        if state.has_failed {
            return Err(DeviceError::NotReady);
        }
        // Without a committer the queue is empty.
        if state.is_committing {
            return Ok(None);
        }
        let Some(start) = state.ring.take(blocks) else { return Ok(None) };
        state.is_committing = true;
        Ok(Some((start, Committer { journal: Arc::clone(self), has_ended: false })))
    }

    /// Writes one record and returns its sequence. If others are queued behind it, a task continues.
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
        // An error, or dropping this future, drops the committer, and the journal fails.
        if let Err(error) = self.area.write(HEADERS + start.block, &bytes.share()).await {
            self.fall_back(Some(start.sequence), error).await?;
            let ticket: Arc<Lock<Ticket>> = Arc::default();
            self.state.lock().queue.push_front(Queued { change, ticket: Arc::clone(&ticket) });
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

    /// Resolves once no record from before this call can be replayed. Adds `copy`, which belongs to a
    /// replaced member and is then equivalent to the others.
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
        let committer = Committer { journal: Arc::clone(self), has_ended: false };
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
                Batch::Empty(copy, ticket) => {
                    self.free_all(copy, ticket).await.map_err(|error| (None, error))
                }
            };
            if let Err((unwritten, error)) = result
                && let Err(error) = self.fall_back(unwritten, error).await
            {
                return self.fail(error);
            }
        }
    }

    /// The next records to write, with their locations, which are adjacent in the ring.
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
            batch.extend(state.queue.pop_front().map(|queued| (start, blocks, queued)));
        }
        if batch.is_empty() {
            state.is_committing = false;
            return Batch::Nothing;
        }
        Batch::Records(batch)
    }

    /// An error includes the first unwritten record: from it on, all are queued again.
    async fn commit(&self, batch: Vec<(Start, u64, Queued)>) -> Result<(), (Option<u64>, DeviceError)> {
        let block_bytes = self.area.block_bytes();
        let blocks: u64 = batch.iter().map(|(_, blocks, _)| blocks).sum();
        let are_adjacent = |pair: &[(Start, u64, Queued)]| pair[0].0.block + pair[0].1 == pair[1].0.block;
        debug_assert!(!batch.is_empty() && batch.windows(2).all(are_adjacent), "one write");
        let mut bytes = Buffer::recycled(blocks as usize * block_bytes);
        let mut at = 0;
        for (start, blocks, queued) in &batch {
            let end = at + *blocks as usize * block_bytes;
            queued.change.encode(self.key, start.sequence, block_bytes, &mut bytes[at..end]);
            at = end;
        }
        let first = batch.first().map_or(0, |(start, _, _)| start.block);
        match self.area.write(HEADERS + first, &bytes.share()).await {
            Ok(()) => {
                batch.iter().for_each(|(start, _, queued)| end(&queued.ticket, Ok(start.sequence)));
                Ok(())
            }
            Err(error) => {
                let unwritten = batch.first().map(|(start, ..)| start.sequence);
                let mut state = self.state.lock();
                batch.into_iter().rev().for_each(|(_, _, queued)| state.queue.push_front(queued));
                Err((unwritten, error))
            }
        }
    }

    /// If the journal was on a separate device, which failed with this error, moves the journal to the
    /// members; records from `unwritten` on are not in the new journal. After an error, the set no longer has
    /// a journal.
    async fn fall_back(&self, unwritten: Option<u64>, error: DeviceError) -> Result<(), DeviceError> {
        // Another host may have taken over the set.
        self.members.check_service()?;
        if !self.area.is_on_device() {
            return Err(error);
        }
        if let Some(sequence) = unwritten {
            self.state.lock().ring.withdraw(sequence);
        }
        self.wait_for(Ring::is_applied).await?;
        // So far the device had all acknowledged writes; from here on the members have them.
        self.members.flush().await?;
        if !self.area.use_reserve() {
            return Err(error);
        }
        let start = self.state.lock().ring.restart();
        self.write_headers(start).await?;
        self.members.record_journal_on_members().await
    }

    /// Waits until the oldest record is applied, and frees it.
    async fn make_room(&self) -> Result<(), DeviceError> {
        self.wait_for(Ring::can_free).await?;
        self.free().await
    }

    /// Frees all records, and adds a copy while the journal is empty, so that the copy misses none.
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
            // A copy that was added stays part of the journal.
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

    /// Frees applied records: they are no longer replayed.
    async fn free(&self) -> Result<(), DeviceError> {
        let start = self.state.lock().ring.next_start();
        self.members.flush().await?;
        self.write_header(start).await?;
        self.state.lock().ring.begins(start);
        Ok(())
    }

    /// Writes both header blocks, so that no old header is found if the newer header is torn, or on a new
    /// copy.
    async fn write_headers(&self, start: Start) -> Result<(), DeviceError> {
        for _ in 0..HEADERS {
            self.write_header(start).await?;
        }
        Ok(())
    }

    async fn write_header(&self, start: Start) -> Result<(), DeviceError> {
        let generation = {
            let mut state = self.state.lock();
            // A new set may occupy the space of an old journal, whose generation can be the highest possible.
            state.generation = state.generation.wrapping_add(1);
            state.generation
        };
        let header = Header { generation, key: self.key, start: start.block, sequence: start.sequence };
        self.area.write(generation % HEADERS, &header.encode(self.area.block_bytes())).await
    }

    /// Accepts no more records; pending ones fail with this error.
    fn fail(&self, error: DeviceError) {
        let (queue, joining, committer) = {
            let mut state = self.state.lock();
            state.has_failed = true;
            (std::mem::take(&mut state.queue), std::mem::take(&mut state.joining), state.committer.take())
        };
        let tickets = queue
            .into_iter()
            .map(|queued| queued.ticket)
            .chain(joining.into_iter().map(|(_, ticket)| ticket));
        tickets.for_each(|ticket| end(&ticket, Err(error)));
        committer.into_iter().for_each(Waker::wake);
    }
}

/// The part of a ring of `blocks` normally in use if a flush of the members is cheap: 8 stripes of data, so
/// that it stays in processors' caches, but at least 2 MiB and at most a quarter of the ring. No memory is
/// allocated for it. With checksums, some of which each flush writes, a larger part makes random writes no
/// faster and sequential ones slower.
fn enough_blocks(layout: &Layout, blocks: u64) -> u64 {
    let least = ENOUGH_BYTES >> layout.block_size().shift();
    least.max(LONGEST_RECORDS * layout.stripe_blocks()).min(blocks / 4)
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

/// The writer of records: a task, or the requester of a record that need not wait. If it is dropped with its
/// thread, the waiting requests fail.
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

/// A record on stable storage. If it is dropped before it is applied, the journal fails, since the record
/// must be replayed.
pub(crate) struct Recorded {
    journal: Arc<Journal>,
    sequence: u64,
    is_applied: bool,
}

impl Recorded {
    /// Marks the record applied: its members have the content, or have failed.
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

/// The records of one copy of a journal, in order.
pub(crate) struct Log {
    device: Arc<dyn BlockDevice>,
    ring: u64,
    header: Header,
    /// Where the next record is expected.
    at: u64,
    sequence: u64,
    /// Blocks of the records so far: no more than the ring has.
    blocks_read: u64,
}

impl Log {
    /// The log of the most recent copy: among those with the newest key, the one with the last record. `None`
    /// if no copy has a header.
    pub(crate) async fn newest(devices: &[Arc<dyn BlockDevice>]) -> Result<Option<Log>, DeviceError> {
        let mut logs = Vec::new();
        let mut failure = None;
        for device in devices {
            match Log::open(Arc::clone(device)).await {
                Ok(log) => logs.extend(log),
                Err(error) => failure = Some(error),
            }
        }
        let Some(newest) = logs.iter().map(|log| log.header).max_by_key(|header| header.generation) else {
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
                // Another copy has the records that are unreadable here.
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

    /// The version of a journal that a newer program has written to one of the readable copies.
    pub(crate) async fn newer_version(devices: &[Arc<dyn BlockDevice>]) -> Option<u32> {
        let mut newest = None;
        for device in devices.iter().filter(|device| device.geometry().blocks.0 >= HEADERS) {
            for block in 0..HEADERS {
                let header = read(&**device, block, 1).await.ok();
                newest = newest.max(header.and_then(|header| Header::newer_version(&header)));
            }
        }
        newest
    }

    async fn open(device: Arc<dyn BlockDevice>) -> Result<Option<Log>, DeviceError> {
        let blocks = device.geometry().blocks.0;
        let Some(ring) = blocks.checked_sub(HEADERS) else { return Ok(None) };
        let mut newest: Option<Header> = None;
        for block in 0..HEADERS {
            let header = Header::decode(&read(&*device, block, 1).await?);
            newest = newest.into_iter().chain(header).max_by_key(|header| header.generation);
        }
        let Some(header) = newest.filter(|header| header.start <= ring) else { return Ok(None) };
        let mut log = Log { device, ring, header, at: 0, sequence: 0, blocks_read: 0 };
        log.rewind();
        Ok(Some(log))
    }

    fn rewind(&mut self) {
        (self.at, self.sequence, self.blocks_read) = (self.header.start, self.header.sequence, 0);
    }

    /// The generation of the newest header.
    pub(crate) fn generation(&self) -> u64 {
        self.header.generation
    }

    /// The key of the records.
    pub(crate) fn key(&self) -> u64 {
        self.header.key
    }

    /// The next record; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Change>, DeviceError> {
        let mut places = vec![self.at];
        if self.at != 0 {
            places.push(0);
        }
        for place in places {
            let Some((change, blocks)) = self.record_at(place).await? else { continue };
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
        let Some(blocks) = Change::length(&first, self.header.key, self.sequence) else { return Ok(None) };
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
    device.read(Extent::new(lba, blocks), Buffer::recycled(length)).await
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
