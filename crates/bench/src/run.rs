//! The closed loop: a slot for each request under way, each starting the next when one has ended.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{BlockDevice, Buffer, Durability, Extent, Geometry, Lba, Slice};
use reactor::JoinHandle;

use crate::generations::Generations;
use crate::measurement::Tally;
use crate::picker::{Kind, Pick, Picker};
use crate::random::Random;
use crate::workload::Places;
use crate::{Failure, Measurement, Workload, WorkloadError, pattern};

/// Runs the workload on each of the devices at once, and measures them together. Several devices are several
/// ways to the same data (sessions of one LUN); each keeps [`Workload::depth`] requests under way.
///
/// Runs on the reactor of this thread. Only requests that end within the duration are counted; those that do
/// not end within ten seconds after it are given up and counted as errors, and a device that fails a hundred
/// times is not asked any more.
pub async fn run(
    devices: &[Arc<dyn BlockDevice>],
    workload: &Workload,
) -> Result<Measurement, WorkloadError> {
    let end = reactor::now() + workload.duration;
    let streams = streams(devices, workload, end)?;
    let start = reactor::now();
    let slots = streams
        .iter()
        .flat_map(|stream| (0..workload.depth).map(|number| reactor::spawn(slot(Rc::clone(stream), number))));
    finish(slots.collect(), workload.duration + DRAIN).await;

    let mut total = Tally::new();
    for stream in &streams {
        stream.tally.borrow_mut().never_ended(stream.under_way.get());
        total.add(&stream.tally.borrow());
    }
    Ok(total.measurement(end.min(reactor::now()) - start, workload.block_bytes))
}

/// How long requests that are still under way at the end may take.
const DRAIN: Duration = Duration::from_secs(10);
/// A device that fails this often will not do better.
const FAILURES_MAX: u64 = 100;
/// A device that answers at once, such as memory, never makes a slot wait: it then yields by itself now and then,
/// so that the other slots, and the rest of the thread, have their turn.
const REQUESTS_WITHOUT_YIELD: u32 = 16;

async fn finish(mut slots: Vec<JoinHandle<()>>, patience: Duration) {
    let all = async {
        for slot in &mut slots {
            slot.await;
        }
    };
    if reactor::timeout(patience, all).await.is_err() {
        slots.into_iter().for_each(JoinHandle::abort);
    }
}

/// One device's share of the run.
struct Stream {
    device: Arc<dyn BlockDevice>,
    geometry: Geometry,
    places: Places,
    end: Instant,
    seed: u64,
    picker: RefCell<Picker>,
    tally: RefCell<Tally>,
    under_way: Cell<u64>,
    /// Shared by all ways to the same data.
    written: Option<Rc<RefCell<Generations>>>,
}

fn streams(
    devices: &[Arc<dyn BlockDevice>],
    workload: &Workload,
    end: Instant,
) -> Result<Vec<Rc<Stream>>, WorkloadError> {
    let mut written = None;
    let stream = |(index, device): (usize, &Arc<dyn BlockDevice>)| {
        let geometry = device.geometry();
        let places = workload.places(geometry, devices.len())?;
        if workload.read.get() < 100 && device.profile().read_only {
            return Err(WorkloadError::ReadOnly);
        }
        if workload.verify && written.is_none() {
            written = Some(Rc::new(RefCell::new(Generations::new(places.count))));
        }
        Ok(Rc::new(Stream {
            device: Arc::clone(device),
            geometry,
            places,
            end,
            seed: workload.seed.wrapping_add(index as u64),
            picker: RefCell::new(Picker::new(workload, places, index, devices.len())),
            tally: RefCell::new(Tally::new()),
            under_way: Cell::new(0),
            written: written.clone(),
        }))
    };
    devices.iter().enumerate().map(stream).collect()
}

async fn slot(stream: Rc<Stream>, number: u32) {
    let mut memory = Memory::new(&stream, number);
    let mut begun = reactor::now();
    let mut since_yield = 0;
    while begun < stream.end && stream.tally.borrow().failures() < FAILURES_MAX {
        let pick = stream.pick();
        stream.under_way.set(stream.under_way.get() + 1);
        let outcome = stream.request(pick, &mut memory).await;
        stream.under_way.set(stream.under_way.get() - 1);
        let ended = reactor::now();
        stream.count(pick, outcome, begun, ended);
        begun = ended;
        since_yield += 1;
        if since_yield == REQUESTS_WITHOUT_YIELD {
            since_yield = 0;
            reactor::yield_now().await;
        }
    }
}

/// What a slot reads into and writes from, kept from one request to the next.
struct Memory {
    read: Option<Buffer>,
    write: Option<Slice>,
    bytes: usize,
}

impl Memory {
    fn new(stream: &Stream, number: u32) -> Memory {
        let bytes = stream.geometry.length(Extent { lba: Lba(0), blocks: stream.places.blocks }) as usize;
        let mut data = Buffer::recycled(bytes);
        // Incompressible, and different from slot to slot: a target that compresses or finds duplicates should
        // not look faster than it is.
        let mut random = Random::new(stream.seed ^ (u64::from(number) << 40));
        data.chunks_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()[..word.len()]));
        Memory { read: None, write: Some(data.share()), bytes }
    }

    /// A buffer to read into; a failed read has taken the last one with it.
    fn reading(&mut self) -> Buffer {
        self.read.take().unwrap_or_else(|| Buffer::recycled(self.bytes))
    }

    /// A buffer to make new data in: the last write's, unless the device has kept a share of it.
    fn stamping(&mut self) -> Buffer {
        self.write.take().and_then(Slice::into_buffer).unwrap_or_else(|| Buffer::recycled(self.bytes))
    }
}

impl Stream {
    fn pick(&self) -> Pick {
        let pick = self.picker.borrow_mut().next();
        match &self.written {
            Some(written) => Pick { place: written.borrow_mut().take(pick.place), ..pick },
            None => pick,
        }
    }

    fn extent(&self, place: u64) -> Extent {
        Extent { lba: Lba(place * self.places.blocks.0), blocks: self.places.blocks }
    }

    fn block_bytes(&self) -> usize {
        self.geometry.block_size.bytes() as usize
    }

    async fn request(&self, pick: Pick, memory: &mut Memory) -> Result<(), Failure> {
        let outcome = match pick.kind {
            Kind::Read => self.read(pick.place, memory).await,
            Kind::Write => self.write(pick.place, memory).await,
        };
        if let Some(written) = &self.written {
            written.borrow_mut().release(pick.place);
        }
        outcome
    }

    async fn read(&self, place: u64, memory: &mut Memory) -> Result<(), Failure> {
        let extent = self.extent(place);
        let buffer = self.device.read(extent, memory.reading()).await.map_err(Failure::Device)?;
        let expected = self.written.as_ref().and_then(|written| written.borrow().expected(place));
        let checked = expected
            .map_or(Ok(()), |generation| pattern::check(&buffer, extent.lba, self.block_bytes(), generation));
        memory.read = Some(buffer);
        checked
    }

    async fn write(&self, place: u64, memory: &mut Memory) -> Result<(), Failure> {
        let extent = self.extent(place);
        let Some(written) = &self.written else {
            let data = memory.write.clone().unwrap_or_else(|| Buffer::zeroed(memory.bytes).share());
            return self.device.write(extent, data, Durability::Cached).await.map_err(Failure::Device);
        };
        let generation = written.borrow().next(place);
        let mut data = memory.stamping();
        pattern::stamp(&mut data, extent.lba, self.block_bytes(), generation);
        let data = data.share();
        memory.write = Some(data.clone());
        let outcome = self.device.write(extent, data, Durability::Cached).await;
        match outcome {
            Ok(()) => written.borrow_mut().wrote(place, generation),
            Err(_) => written.borrow_mut().forget(place),
        }
        outcome.map_err(Failure::Device)
    }

    fn count(&self, pick: Pick, outcome: Result<(), Failure>, begun: Instant, ended: Instant) {
        let mut tally = self.tally.borrow_mut();
        match outcome {
            Err(failure) => tally.failed(failure),
            Ok(()) if ended <= self.end => tally.ended(pick.kind == Kind::Read, ended - begun),
            Ok(()) => {}
        }
    }
}

#[cfg(test)]
mod tests;
