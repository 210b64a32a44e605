//! Slots and sessions. A slot has one outstanding request, and starts the next one when it completes. A
//! session is a device with its request sequence, its data, and the order in which its slots take turns. In
//! an open loop, [`Arrivals`] determines when requests start.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent, Random, Slice, mix};

use crate::Failure;
use crate::access::{AccessStream, Ask, Kind, Layout, WorkloadError};
use crate::journal::{Journal, Unflushed};
use crate::pattern::{self, Generations, Granules};
use crate::plan::{Data, Durable, Pace, Workload};
use crate::record::Sample;
use crate::run::tally::{Completed, Go, Tally};

/// Number of consecutive requests after which a slot yields if none of them had to wait. A slot never waits
/// if the device completes requests immediately, as memory does. Without yielding, the other slots and tasks
/// of the thread would not run. A slot that has waited does not yield as well: its next request would then
/// miss the batch of the other slots' requests, and a session would send it separately.
const REQUESTS_WITHOUT_YIELD: u32 = 16;

/// The state shared by all slots of a run.
pub(super) struct Shared {
    /// The origin of all times, which are in nanoseconds.
    pub(super) base: Instant,
    pub(super) tally: RefCell<Tally>,
    /// Signals that the run is over, or that no request is outstanding.
    pub(super) ended: Signal,
    /// The due times of an open loop.
    pub(super) arrivals: Option<RefCell<Arrivals>>,
}

impl Shared {
    pub(super) fn now(&self) -> u64 {
        (reactor::now().saturating_duration_since(self.base)).as_nanos() as u64
    }

    pub(super) fn at(&self, ns: u64) -> Instant {
        self.base + Duration::from_nanos(ns)
    }

    /// Passes each sample to `each`, until the run is over.
    pub(super) async fn watch(&self, each: &mut dyn FnMut(&Sample) -> Go) {
        loop {
            let now = self.now();
            if let Some(arrivals) = &self.arrivals {
                arrivals.borrow_mut().look(now);
            }
            self.tally.borrow_mut().advance(now);
            while let Some(sample) = { self.tally.borrow_mut().next_closed() } {
                if each(&sample) == Go::Stop {
                    self.tally.borrow_mut().stop();
                }
            }
            let Some(next) = self.tally.borrow().boundary() else {
                return;
            };
            before(self.at(next), &self.ended).await;
        }
    }

    /// Waits until no request is outstanding, for at most `patience`.
    pub(super) async fn drain(&self, patience: Duration) {
        let patience = reactor::now() + patience;
        while self.tally.borrow().under_way() > 0 && reactor::now() < patience {
            before(patience, &self.ended).await;
        }
        self.tally.borrow_mut().give_up();
    }

    /// Waits until the next request of an open loop is due, and returns its due time. Returns `Some(None)`
    /// immediately in a closed loop, and `None` when the run is over.
    async fn next_due(&self) -> Option<Option<u64>> {
        if let Some(arrivals) = &self.arrivals {
            let now = self.now();
            arrivals.borrow_mut().look(now);
            let due = arrivals.borrow_mut().take();
            if due > now {
                reactor::sleep_until(self.at(due)).await;
            }
            return (!self.tally.borrow().is_over()).then_some(Some(due));
        }
        (!self.tally.borrow().is_over()).then_some(None)
    }
}

/// Sends requests until the run is over.
pub(super) async fn serve(shared: Rc<Shared>, session: Rc<Session>, number: u32) {
    let mut payload = session.payload(number);
    let mut since_wait = 0;
    // The completion time of the last request, while it can serve as the current time.
    let mut time = None;
    while let Some(due) = shared.next_due().await {
        let ask = match &session.turnstile {
            None => session.ask(),
            Some(turnstile) => match session.next(turnstile, &shared).await {
                Some(ask) => ask,
                None => return,
            },
        };
        let request = session.begin(ask);
        if session.turnstile.is_some() || due.is_some() {
            time = None;
        }
        let Returned { at, waited } =
            carry_out(&shared, &session, request, &mut payload, due, time).await;
        time = Some(at);
        if session.keeps_journal() {
            time = None;
            if let Err(failure) = session.flush_if_due().await {
                shared.tally.borrow_mut().failed(shared.now(), failure);
            }
        }
        since_wait = if waited { 0 } else { since_wait + 1 };
        if since_wait == REQUESTS_WITHOUT_YIELD {
            since_wait = 0;
            time = None;
            reactor::yield_now().await;
        }
    }
}

impl Session {
    /// Returns the next request, after any draining or pause that precedes it. Returns `None` when the run is
    /// over.
    async fn next(&self, turnstile: &Turnstile, shared: &Shared) -> Option<Ask> {
        let _turn = turnstile.enter().await;
        while self.left.get() == 0 && self.under_way.get() > 0 {
            before(shared.at(FOR_EVER_NS), &self.drained).await;
        }
        if self.left.get() == 0 {
            self.left.set(self.workload.drain_after.unwrap_or(u32::MAX));
        }
        let ask = self.ask();
        if !ask.pause.is_zero() {
            reactor::sleep(ask.pause).await;
        }
        (!shared.tally.borrow().is_over()).then_some(ask)
    }
}

/// A hundred years. Waiting for a drain has no time limit.
const FOR_EVER_NS: u64 = 100 * 365 * 86_400 * 1_000_000_000;

/// The completion of a request, successful or not.
#[derive(Clone, Copy)]
struct Returned {
    at: u64,
    /// Whether the request had to wait, so that other slots ran in the meantime.
    waited: bool,
}

/// Executes one request, and counts its result.
async fn carry_out(
    shared: &Shared,
    session: &Session,
    request: Request,
    payload: &mut Payload,
    due: Option<u64>,
    time: Option<u64>,
) -> Returned {
    let ended = match request.ask.kind {
        Kind::Read => read(shared, session, &request, payload, time).await,
        Kind::Write => write(shared, session, &request, payload, time).await,
    };
    let Ended {
        handed,
        returned,
        outcome,
    } = ended;
    session.end(&request);
    let mut tally = shared.tally.borrow_mut();
    match outcome {
        Err(failure) => tally.failed(returned.at, failure),
        Ok(()) => {
            let service = returned.at - handed;
            let response = due.map(|due| returned.at - due.min(handed));
            tally.completed(
                returned.at,
                Completed {
                    kind: request.ask.kind,
                    bytes: request.ask.bytes,
                    service,
                    response,
                },
            );
        }
    }
    if tally.is_over() {
        shared.ended.give();
    }
    returned
}

/// The result of a request.
struct Ended {
    /// The time at which the request was submitted to the device.
    handed: u64,
    returned: Returned,
    outcome: Result<(), Failure>,
}

async fn read(
    shared: &Shared,
    session: &Session,
    request: &Request,
    payload: &mut Payload,
    time: Option<u64>,
) -> Ended {
    let buffer = payload.reading(request.ask.bytes as usize);
    let (handed, returned, read) =
        timed(shared, time, session.device.read(request.extent, buffer)).await;
    // Check the data only after the end time of the read has been taken.
    let outcome = read.map_err(Failure::Device).and_then(|buffer| {
        let checked = session.check(request, &buffer);
        payload.read = Some(buffer); // reusable
        checked
    });
    Ended {
        handed,
        returned,
        outcome,
    }
}

async fn write(
    shared: &Shared,
    session: &Session,
    request: &Request,
    payload: &mut Payload,
    time: Option<u64>,
) -> Ended {
    let extent = request.extent;
    let (handed, returned, written) = match session.stamp(request, payload) {
        None => {
            let data = payload.writing(request.ask.bytes as usize);
            let write = session.written(extent, data, Durability::Cached);
            timed(shared, time, write).await
        }
        Some(stamped) => {
            let data = stamped.data.clone();
            // Stamping takes time that must not count as the device's, so the clock is read again.
            let write = session.written(extent, data, stamped.durability);
            let ended = timed(shared, None, write).await;
            session.wrote(request, &stamped, ended.2.is_ok());
            payload.is_written(stamped.data);
            ended
        }
    };
    Ended {
        handed,
        returned,
        outcome: written.map_err(Failure::Device),
    }
}

/// Executes a request, measures its time, and counts it as outstanding in the meantime.
async fn timed<T>(
    shared: &Shared,
    time: Option<u64>,
    request: impl Future<Output = Result<T, DeviceError>>,
) -> (u64, Returned, Result<T, DeviceError>) {
    let handed = time.unwrap_or_else(|| shared.now());
    shared.tally.borrow_mut().handed(handed);
    let (mut request, mut waited) = (pin!(request), false);
    let outcome = poll_fn(|cx| {
        let polled = request.as_mut().poll(cx);
        waited |= polled.is_pending();
        polled
    })
    .await;
    let at = shared.now();
    shared.tally.borrow_mut().returned(at);
    (handed, Returned { at, waited }, outcome)
}

/// The state shared by the slots of one device.
pub(super) struct Session {
    pub(super) device: Arc<dyn BlockDevice>,
    number: usize,
    workload: Workload,
    layout: Layout,
    stream: RefCell<AccessStream>,
    /// Present if pauses or draining apply. The slots then draw their requests one at a time.
    pub(super) turnstile: Option<Turnstile>,
    /// The number of requests until the next drain.
    left: Cell<u32>,
    under_way: Cell<u32>,
    /// The number of writes since the last flush, if the workload flushes.
    writes: Cell<u32>,
    /// Signals that no request is outstanding in this session.
    pub(super) drained: Signal,
    verified: Option<Verified>,
}

/// The verification state of a session.
struct Verified {
    /// The generations, shared by all sessions that use the same data.
    generations: Rc<RefCell<Generations>>,
    granule_bytes: u64,
    /// The upper half of every generation. It distinguishes this run's data from the data of runs with
    /// another seed.
    epoch: u64,
    /// The journal that records the guarantees, if they are to be checked after a crash.
    journal: Option<Rc<Journal>>,
    unflushed: Unflushed,
}

/// One outstanding request.
pub(super) struct Request {
    pub(super) ask: Ask,
    pub(super) extent: Extent,
    held: Option<Granules>,
}

/// Creates a session for each device.
pub(super) fn sessions(
    devices: &[Arc<dyn BlockDevice>],
    workload: &Workload,
    journal: Option<&Rc<Journal>>,
) -> Result<Vec<Rc<Session>>, WorkloadError> {
    if devices.is_empty() {
        return Err(WorkloadError::NoDevice);
    }
    if journal.is_some() && workload.data != Data::Stamped {
        return Err(WorkloadError::NothingToNote);
    }
    let mut generations = None;
    let session = |(number, device): (usize, &Arc<dyn BlockDevice>)| {
        let layout = Layout::new(workload, device.geometry(), devices.len())?;
        if workload.writes() && device.profile().read_only {
            return Err(WorkloadError::ReadOnly);
        }
        if journal.is_some_and(|journal| !journal.fits(&layout, device.geometry())) {
            return Err(WorkloadError::AnotherJournal);
        }
        let verified = (workload.data == Data::Stamped).then(|| {
            let generations =
                generations.get_or_insert_with(|| Verified::generations(&layout, journal));
            Verified::new(workload, &layout, Rc::clone(generations), journal)
        });
        let paced = workload.drain_after.is_some() || layout.pauses();
        Ok(Rc::new(Session {
            device: Arc::clone(device),
            number,
            workload: workload.clone(),
            stream: RefCell::new(AccessStream::new(
                &layout,
                workload.seed,
                number,
                devices.len(),
            )),
            layout,
            turnstile: paced.then(Turnstile::default),
            left: Cell::new(workload.drain_after.unwrap_or(u32::MAX)),
            under_way: Cell::new(0),
            writes: Cell::new(0),
            drained: Signal::default(),
            verified,
        }))
    };
    devices.iter().enumerate().map(session).collect()
}

impl Session {
    /// Writes with at least this durability and the guarantee of the workload.
    async fn written(
        &self,
        extent: Extent,
        data: Slice,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        let flushes = match self.workload.durable {
            Durable::FlushAfter(writes) => {
                let count = self.writes.get() + 1;
                self.writes.set(count % writes);
                count == writes
            }
            Durable::Cached | Durable::Fua => false,
        };
        let durability = match self.workload.durable {
            Durable::Fua => Durability::Stable,
            Durable::Cached | Durable::FlushAfter(_) => durability,
        };
        self.device.write(extent, data, durability).await?;
        if flushes {
            self.device.flush().await?;
        }
        Ok(())
    }

    pub(super) fn payload(&self, slot: u32) -> Payload {
        Payload::new(
            &self.workload,
            self.layout.longest_bytes as usize,
            self.number,
            slot,
        )
    }

    /// Returns the next request, with the pause before it.
    pub(super) fn ask(&self) -> Ask {
        self.left.set(self.left.get().wrapping_sub(1));
        self.stream.borrow_mut().next()
    }

    /// Starts a request. If data is verified, this may move the request to an offset that no other request
    /// uses.
    pub(super) fn begin(&self, mut ask: Ask) -> Request {
        self.under_way.set(self.under_way.get() + 1);
        let held = self
            .verified
            .as_ref()
            .map(|verified| verified.take(&mut ask));
        Request {
            extent: self.layout.extent(&ask),
            ask,
            held,
        }
    }

    /// Ends a request, successful or not.
    pub(super) fn end(&self, request: &Request) {
        if let (Some(verified), Some(held)) = (&self.verified, request.held) {
            verified.generations.borrow_mut().release(held);
        }
        self.under_way.set(self.under_way.get() - 1);
        if self.under_way.get() == 0 {
            self.drained.give();
        }
    }

    /// Checks that the data read matches the data last written there.
    pub(super) fn check(&self, request: &Request, data: &Buffer) -> Result<(), Failure> {
        match (&self.verified, request.held) {
            (Some(verified), Some(held)) => {
                verified.check(request.extent, held, data, self.layout.block_bytes)
            }
            _ => Ok(()),
        }
    }

    /// Returns data that contains its address and generation, or `None` if data is not verified.
    pub(super) fn stamp(&self, request: &Request, payload: &mut Payload) -> Option<Stamped> {
        let (verified, held) = (self.verified.as_ref()?, request.held?);
        let generation = match &verified.journal {
            Some(journal) => journal.issue(held),
            None => verified.generations.borrow().next(held),
        };
        let stable = verified
            .journal
            .as_ref()
            .is_some_and(|journal| journal.next_is_stable());
        let mut data = payload.stamping(request.ask.bytes as usize);
        let stamp = verified.epoch | u64::from(generation);
        pattern::stamp(
            &mut data,
            request.extent.lba,
            self.layout.block_bytes as usize,
            stamp,
        );
        let durability = if stable {
            Durability::Stable
        } else {
            Durability::Cached
        };
        Some(Stamped {
            data: data.share(),
            generation,
            durability,
        })
    }

    /// Records the result of a stamped write.
    pub(super) fn wrote(&self, request: &Request, stamped: &Stamped, well: bool) {
        let (Some(verified), Some(held)) = (&self.verified, request.held) else {
            return;
        };
        let mut generations = verified.generations.borrow_mut();
        if !well {
            return generations.forget(held);
        }
        generations.wrote(held, stamped.generation);
        if let Some(journal) = &verified.journal {
            let unflushed =
                (stamped.durability == Durability::Cached).then_some(&verified.unflushed);
            journal.acknowledge(held, stamped.generation, unflushed);
        }
    }

    /// Returns whether the session records guarantees in a journal.
    pub(super) fn keeps_journal(&self) -> bool {
        self.verified
            .as_ref()
            .is_some_and(|verified| verified.journal.is_some())
    }

    /// Flushes the device if a flush is due for the journal.
    pub(super) async fn flush_if_due(&self) -> Result<(), Failure> {
        let Some(Verified {
            journal: Some(journal),
            unflushed,
            ..
        }) = &self.verified
        else {
            return Ok(());
        };
        journal
            .flush_if_due(&*self.device, unflushed)
            .await
            .map_err(Failure::Device)
    }
}

/// The stamped data of a write, with its generation.
pub(super) struct Stamped {
    pub(super) data: Slice,
    generation: u32,
    pub(super) durability: Durability,
}

impl Verified {
    fn new(
        workload: &Workload,
        layout: &Layout,
        generations: Rc<RefCell<Generations>>,
        journal: Option<&Rc<Journal>>,
    ) -> Verified {
        let epoch = journal.map_or(mix(workload.seed) >> 32 << 32, |journal| journal.epoch());
        let (granule_bytes, journal) = (layout.granule_bytes(), journal.cloned());
        Verified {
            generations,
            granule_bytes,
            epoch,
            journal,
            unflushed: Unflushed::default(),
        }
    }

    fn generations(layout: &Layout, journal: Option<&Rc<Journal>>) -> Rc<RefCell<Generations>> {
        let generations = match journal {
            Some(journal) => Generations::known(journal.known()),
            None => Generations::new(layout.span_bytes / layout.granule_bytes()),
        };
        Rc::new(RefCell::new(generations))
    }

    fn take(&self, ask: &mut Ask) -> Granules {
        let granule = self.granule_bytes;
        let wanted = Granules {
            first: ask.offset / granule,
            count: ask.bytes / granule,
        };
        let held = self
            .generations
            .borrow_mut()
            .take(wanted, ask.align / granule);
        ask.offset = held.first * granule;
        held
    }

    fn check(
        &self,
        extent: Extent,
        held: Granules,
        data: &Buffer,
        block_bytes: u32,
    ) -> Result<(), Failure> {
        let generations = self.generations.borrow();
        let granules = data
            .chunks_exact(self.granule_bytes as usize)
            .zip(generations.expected(held));
        let blocks = self.granule_bytes / u64::from(block_bytes);
        for ((data, expected), lba) in granules.zip((extent.lba.0..).step_by(blocks as usize)) {
            if let Some(generation) = expected {
                let stamp = self.epoch | u64::from(generation);
                pattern::check(data, block::Lba(lba), block_bytes as usize, stamp)?;
            }
        }
        Ok(())
    }
}

/// The memory of one slot.
pub(super) struct Payload {
    read: Option<Buffer>,
    write: Option<Slice>,
    /// Earlier buffers to which the device still has references, the oldest first. The device releases them
    /// eventually; for example, a journal releases them after a flush.
    kept: VecDeque<Slice>,
    longest: usize,
    data: Data,
    /// The seed of the incompressible data.
    seed: u64,
    /// A copy of the incompressible data, for a device that keeps references to written buffers. Copying it
    /// is cheaper than generating the data again.
    pattern: Option<Slice>,
    /// The number of 4 KiB units that have been made unique.
    written: u64,
}

/// Maximum number of shared buffers in `kept`. Older ones are dropped, and belong to the device alone.
const KEPT_MAX: usize = 64;

/// The smallest unit in which storage usually deduplicates.
const UNIQUE_BYTES: usize = 4096;

impl Payload {
    /// Creates the memory of slot number `number` of session number `session`.
    pub(super) fn new(workload: &Workload, longest: usize, session: usize, number: u32) -> Payload {
        let seed = mix(workload.seed) ^ mix((session as u64) << 32 | u64::from(number));
        Payload {
            read: None,
            write: None,
            kept: VecDeque::new(),
            longest,
            data: workload.data,
            seed,
            pattern: None,
            written: 0,
        }
    }

    /// Returns a buffer to read into. The previous buffer is reused unless the read failed, which consumes
    /// it.
    pub(super) fn reading(&mut self, bytes: usize) -> Buffer {
        let kept = self.read.take().filter(|buffer| buffer.len() == bytes);
        kept.unwrap_or_else(|| Buffer::recycled(bytes))
    }

    /// Returns the data of the next write that is not stamped.
    pub(super) fn writing(&mut self, bytes: usize) -> Slice {
        let slice = match self.data {
            Data::Zeros => self
                .write
                .take()
                .unwrap_or_else(|| Buffer::zeroed(self.longest).share()),
            Data::Random | Data::Compressible(_) | Data::Stamped => {
                self.unlike_the_last(bytes).share()
            }
        };
        self.write = Some(slice.clone());
        slice.part(0..bytes).unwrap_or(slice)
    }

    /// Returns a buffer for new data: the buffer of the last write, unless the device still has a reference
    /// to it.
    pub(super) fn stamping(&mut self, bytes: usize) -> Buffer {
        let kept = self
            .write
            .take()
            .and_then(Slice::into_buffer)
            .filter(|buffer| buffer.len() == bytes);
        kept.unwrap_or_else(|| Buffer::recycled(bytes))
    }

    /// Keeps the buffer of a completed write. It is reused when the device has released it.
    pub(super) fn is_written(&mut self, slice: Slice) {
        self.write = Some(slice);
    }

    /// Returns random data in which every 4 KiB unit differs from all earlier ones in every word, so that no
    /// earlier data helps to compress it. Each unit is combined with a number, because the cost of generating
    /// the whole buffer again would distort the measurement.
    fn unlike_the_last(&mut self, bytes: usize) -> Buffer {
        let mut buffer = self.free().unwrap_or_else(|| self.random());
        for chunk in buffer[..bytes].chunks_mut(UNIQUE_BYTES) {
            self.written += 1;
            let number = mix(self.seed ^ self.written);
            for word in chunk.chunks_exact_mut(8) {
                let now = u64::from_le_bytes(std::array::from_fn(|at| word[at])) ^ number;
                word.copy_from_slice(&now.to_le_bytes());
            }
            if let Data::Compressible(share) = self.data {
                let random = chunk.len() * usize::from(100 - share.get()) / 100;
                chunk[random..].fill(0);
            }
        }
        buffer
    }

    /// Returns a buffer of random data that the device has released, if there is one.
    fn free(&mut self) -> Option<Buffer> {
        match self.write.take() {
            Some(last) if last.is_shared() => self.kept.push_back(last),
            last => return last.and_then(Slice::into_buffer),
        }
        let is_free = self.kept.front().is_some_and(|oldest| !oldest.is_shared());
        let oldest = (is_free || self.kept.len() > KEPT_MAX)
            .then(|| self.kept.pop_front())
            .flatten();
        oldest.and_then(Slice::into_buffer)
    }

    fn random(&mut self) -> Buffer {
        if self.written == 0 {
            return random(self.longest, self.seed);
        }
        let pattern = self
            .pattern
            .get_or_insert_with(|| random(self.longest, self.seed).share());
        Buffer::from(&**pattern)
    }
}

fn random(bytes: usize, seed: u64) -> Buffer {
    let (mut buffer, mut random) = (Buffer::recycled(bytes), Random::new(seed));
    for word in buffer.chunks_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes()[..word.len()]);
    }
    buffer
}

/// Admits one slot at a time, in order of arrival. A slot can keep the turn while all others wait; this
/// implements pauses.
#[derive(Default)]
pub(super) struct Turnstile {
    taken: Cell<bool>,
    waiting: RefCell<VecDeque<Waker>>,
}

/// The turn of a slot. Dropping it passes the turn to the next slot.
pub(super) struct Turn<'a>(&'a Turnstile);

impl Turnstile {
    pub(super) async fn enter(&self) -> Turn<'_> {
        poll_fn(|cx| {
            if self.taken.replace(true) {
                self.waiting.borrow_mut().push_back(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(Turn(self))
        })
        .await
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.taken.set(false);
        let next = self.0.waiting.borrow_mut().pop_front();
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

/// Wakes the waiting task, if there is one. At most one task may wait.
#[derive(Default)]
pub(super) struct Signal(RefCell<Option<Waker>>);

impl Signal {
    pub(super) fn give(&self) {
        let waiting = self.0.borrow_mut().take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// Waits for a point in time or the next signal, whichever comes first.
pub(super) async fn before(deadline: Instant, signal: &Signal) {
    let mut sleep = pin!(reactor::sleep_until(deadline));
    let mut waits = false;
    poll_fn(|cx| {
        let given = waits && signal.0.borrow().is_none();
        waits = true;
        if given || sleep.as_mut().poll(cx).is_ready() {
            signal.0.borrow_mut().take();
            return Poll::Ready(());
        }
        *signal.0.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

// The open loop: due times of requests, independent of the device.
//
// The times depend only on the rate and the seed, and are generated twice. The slots take them one after the
// other as they become free; independently, the clock counts the due times that have passed. The difference
// is the backlog. It is only a number, so even a device that stops for a day causes no memory use here.

/// The due times of an open loop.
pub(super) struct Arrivals {
    /// The next due time that no slot has taken.
    next: Times,
    /// The next due time that has not passed yet.
    coming: Times,
    taken: u64,
    due: u64,
    backlog_max: u64,
}

impl Arrivals {
    /// Creates the due times; `None` if the pace sets no rate.
    pub(super) fn new(pace: Pace, seed: u64) -> Option<Arrivals> {
        let times = Times::of(pace, seed)?;
        Some(Arrivals {
            next: times.clone(),
            coming: times,
            taken: 0,
            due: 0,
            backlog_max: 0,
        })
    }

    /// Takes the next request and returns its due time.
    pub(super) fn take(&mut self) -> u64 {
        self.taken += 1;
        self.next.step()
    }

    /// Updates the backlog: the number of requests that are due at `now` and wait for a slot. A request that
    /// a slot took before it was due does not count.
    pub(super) fn look(&mut self, now: u64) {
        while self.coming.at() <= now {
            self.coming.step();
            self.due += 1;
        }
        self.backlog_max = self.backlog_max.max(self.due.saturating_sub(self.taken));
    }

    pub(super) fn backlog_max(&self) -> u64 {
        self.backlog_max
    }
}

/// A sequence of times in nanoseconds.
#[derive(Clone)]
pub(super) struct Times {
    number: f64,
    /// The next time. As an `f64` it is precise: one day in nanoseconds needs only 47 of the 53 bits.
    at: f64,
    mean: f64,
    /// The source of random intervals; `None` if intervals are equal.
    random: Option<Random>,
}

impl Times {
    pub(super) fn of(pace: Pace, seed: u64) -> Option<Times> {
        let mean = 1e9 / pace.per_second()?;
        let random = matches!(pace, Pace::Poisson { .. }).then(|| Random::new(!seed));
        let mut times = Times {
            number: 0.0,
            at: 0.0,
            mean,
            random,
        };
        if times.random.is_some() {
            times.step(); // the first interval from the start equals the others
        }
        Some(times)
    }

    fn at(&self) -> u64 {
        self.at as u64
    }

    /// Returns the current time, and advances to the next one.
    pub(super) fn step(&mut self) -> u64 {
        let at = self.at();
        self.number += 1.0;
        self.at = match &mut self.random {
            None => self.number * self.mean,
            // 1 minus a fraction is never 0, so its logarithm is finite.
            Some(random) => self.at - (1.0 - random.fraction()).ln() * self.mean,
        };
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Percent;

    fn payload(data: Data) -> Payload {
        let workload = Workload {
            data,
            ..Workload::simple(16_384, 1, Percent::NONE, Percent::ALL)
        };
        Payload::new(&workload, 16_384, 0, 0)
    }

    /// With only one new word in each 4 KiB, a compressor with a window of some MiB reduced the data to a
    /// fiftieth.
    #[test]
    fn no_word_of_random_data_is_written_twice() {
        let mut payload = payload(Data::Random);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..64 {
            let data = payload.writing(16_384);
            assert!(data.chunks_exact(8).all(|word| seen.insert(word.to_vec())));
        }
    }

    #[test]
    fn a_share_of_compressible_data_is_zeros() {
        let share = Percent::new(75).expect("a share");
        let mut payload = payload(Data::Compressible(share));
        for bytes in [16_384, 512, 4096] {
            let data = payload.writing(bytes);
            let zeros = data.iter().filter(|byte| **byte == 0).count();
            let expected = bytes * 3 / 4;
            // One random byte in 256 is zero, too.
            assert!(
                (expected..expected + bytes / 32).contains(&zeros),
                "{bytes}: {zeros}"
            );
        }
    }

    #[test]
    fn no_4_kib_are_written_twice() {
        let mut payload = payload(Data::Random);
        let mut seen = std::collections::HashSet::new();
        for bytes in [16_384, 8192, 16_384, 4096] {
            let data = payload.writing(bytes);
            assert_eq!(data.len(), bytes);
            assert!(data.chunks(4096).all(|chunk| seen.insert(chunk.to_vec())));
        }
    }

    #[test]
    fn data_that_the_device_keeps_are_left_alone() {
        let mut payload = payload(Data::Random);
        let kept = payload.writing(16_384);
        let before = kept.to_vec();
        drop(payload.writing(16_384));
        assert_eq!(*kept, before);
    }

    #[test]
    fn what_the_device_lets_go_of_is_used_again() {
        let mut payload = payload(Data::Random);
        let mut journal: Vec<_> = (0..3).map(|_| payload.writing(16_384)).collect();
        let first = journal[0].as_ptr();
        journal.clear();
        let next: Vec<_> = (0..3).map(|_| payload.writing(16_384)).collect();
        assert!(next.iter().any(|data| data.as_ptr() == first));
    }

    #[test]
    fn zeros_are_zeros() {
        let mut payload = payload(Data::Zeros);
        assert!(payload.writing(8192).iter().all(|&byte| byte == 0));
        assert!(payload.writing(16_384).iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_constant_rate_does_not_drift() {
        let mut times = Times::of(Pace::Constant { per_second: 3.0 }, 1).expect("a rate");
        assert_eq!(
            [0, 1, 2].map(|_| times.step()),
            [0, 333_333_333, 666_666_666]
        );
        let third: Vec<u64> = (0..3_000_000).map(|_| times.step()).collect();
        assert_eq!(third.last(), Some(&1_000_000_666_666_666));
    }

    #[test]
    fn poisson_distances_are_exponential() {
        let mut times = Times::of(Pace::Poisson { per_second: 1000.0 }, 7).expect("a rate");
        let at: Vec<u64> = (0..100_001).map(|_| times.step()).collect();
        let distances: Vec<u64> = at.windows(2).map(|two| two[1] - two[0]).collect();
        let mean = distances.iter().sum::<u64>() as f64 / 100_000.0;
        assert!(
            (990_000.0..1_010_000.0).contains(&mean),
            "{mean} ns, not 1 ms"
        );
        // A share of e^-1 of the intervals is longer than the mean, and a share of e^-3 longer than three
        // times the mean.
        let longer = |ns: u64| distances.iter().filter(|distance| **distance > ns).count();
        assert!(
            (36_300..37_300).contains(&longer(1_000_000)),
            "{}",
            longer(1_000_000)
        );
        assert!(
            (4_750..5_200).contains(&longer(3_000_000)),
            "{}",
            longer(3_000_000)
        );
    }

    #[test]
    fn what_is_due_and_not_taken_is_the_backlog() {
        let mut arrivals = Arrivals::new(Pace::Constant { per_second: 1000.0 }, 1).expect("a rate");
        assert_eq!([arrivals.take(), arrivals.take()], [0, 1_000_000]);
        arrivals.look(500_000);
        assert_eq!(arrivals.backlog_max(), 0);
        arrivals.look(9_500_000);
        assert_eq!(arrivals.backlog_max(), 8);
        assert_eq!((0..8).map(|_| arrivals.take()).last(), Some(9_000_000));
        arrivals.look(10_500_000);
        assert_eq!(arrivals.backlog_max(), 8, "the most, not the last");
    }
}
