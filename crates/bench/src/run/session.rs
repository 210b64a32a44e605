//! One way to the data: a device, and the order of what it is asked.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use block::{BlockDevice, Buffer, Extent};

use super::payload::Payload;
use super::signal::Signal;
use super::turn::Turnstile;
use crate::access::{AccessStream, Ask, Layout, WorkloadError};
use crate::generations::{Generations, Granules};
use crate::plan::{Data, Workload};
use crate::random::mix;
use crate::{Failure, pattern};

/// What the slots of one device share.
pub(super) struct Session {
    pub(super) device: Arc<dyn BlockDevice>,
    number: usize,
    workload: Workload,
    layout: Layout,
    stream: RefCell<AccessStream>,
    /// Where pauses or draining are asked for: slots ask one after the other.
    pub(super) turnstile: Option<Turnstile>,
    /// Requests until the next draining.
    left: Cell<u32>,
    under_way: Cell<u32>,
    /// Nothing is under way in this session any more.
    pub(super) drained: Signal,
    verified: Option<Verified>,
}

/// What a session that verifies its data knows of it.
struct Verified {
    /// Shared by all ways to the same data.
    generations: Rc<RefCell<Generations>>,
    granule_bytes: u64,
    /// The upper half of every generation: data of a run with another seed are not taken for this one's.
    epoch: u64,
}

/// One request on its way.
pub(super) struct Request {
    pub(super) ask: Ask,
    pub(super) extent: Extent,
    held: Option<Granules>,
}

/// A session for each device.
pub(super) fn sessions(
    devices: &[Arc<dyn BlockDevice>],
    workload: &Workload,
) -> Result<Vec<Rc<Session>>, WorkloadError> {
    if devices.is_empty() {
        return Err(WorkloadError::NoDevice);
    }
    let mut generations = None;
    let session = |(number, device): (usize, &Arc<dyn BlockDevice>)| {
        let layout = Layout::new(workload, device.geometry(), devices.len())?;
        if workload.writes() && device.profile().read_only {
            return Err(WorkloadError::ReadOnly);
        }
        let granule_bytes = layout.granule_bytes();
        let verified = (workload.data == Data::Stamped).then(|| Verified {
            generations: Rc::clone(generations.get_or_insert_with(|| {
                Rc::new(RefCell::new(Generations::new(layout.span_bytes / granule_bytes)))
            })),
            granule_bytes,
            epoch: mix(workload.seed) >> 32 << 32,
        });
        let paced = workload.drain_after.is_some() || layout.pauses();
        Ok(Rc::new(Session {
            device: Arc::clone(device),
            number,
            workload: workload.clone(),
            stream: RefCell::new(AccessStream::new(&layout, workload.seed, number, devices.len())),
            layout,
            turnstile: paced.then(Turnstile::default),
            left: Cell::new(workload.drain_after.unwrap_or(u32::MAX)),
            under_way: Cell::new(0),
            drained: Signal::default(),
            verified,
        }))
    };
    devices.iter().enumerate().map(session).collect()
}

impl Session {
    pub(super) fn payload(&self, slot: u32) -> Payload {
        Payload::new(&self.workload, self.layout.longest_bytes as usize, self.number, slot)
    }

    /// The next request, and the pause that belongs before it.
    pub(super) fn ask(&self) -> Ask {
        self.left.set(self.left.get().wrapping_sub(1));
        self.stream.borrow_mut().next()
    }

    /// Whether all that is under way has to end before the next request.
    pub(super) fn must_drain(&self) -> bool {
        self.left.get() == 0 && self.under_way.get() > 0
    }

    /// What was under way has ended, if it had to.
    pub(super) fn has_drained(&self) {
        if self.left.get() == 0 {
            self.left.set(self.workload.drain_after.unwrap_or(u32::MAX));
        }
    }

    /// Makes a request of what is to be asked: at a place that no other is at, if data is verified.
    pub(super) fn begin(&self, mut ask: Ask) -> Request {
        self.under_way.set(self.under_way.get() + 1);
        let held = self.verified.as_ref().map(|verified| verified.take(&mut ask));
        Request { extent: self.layout.extent(&ask), ask, held }
    }

    /// The request has ended, whatever came of it.
    pub(super) fn end(&self, request: &Request) {
        if let (Some(verified), Some(held)) = (&self.verified, request.held) {
            verified.generations.borrow_mut().release(held);
        }
        self.under_way.set(self.under_way.get() - 1);
        if self.under_way.get() == 0 {
            self.drained.give();
        }
    }

    /// Whether what was read is what was written there.
    pub(super) fn check(&self, request: &Request, data: &Buffer) -> Result<(), Failure> {
        match (&self.verified, request.held) {
            (Some(verified), Some(held)) => {
                verified.check(request.extent, held, data, self.layout.block_bytes)
            }
            _ => Ok(()),
        }
    }

    /// Data that say where they belong and which generation they are, and that generation; `None` where any will do.
    pub(super) fn stamp(&self, request: &Request, payload: &mut Payload) -> Option<(Buffer, u32)> {
        let (verified, held) = (self.verified.as_ref()?, request.held?);
        let generation = verified.generations.borrow().next(held);
        let mut data = payload.stamping(request.ask.bytes as usize);
        let stamp = verified.epoch | u64::from(generation);
        pattern::stamp(&mut data, request.extent.lba, self.layout.block_bytes as usize, stamp);
        Some((data, generation))
    }

    /// A stamped write has ended.
    pub(super) fn wrote(&self, request: &Request, generation: u32, well: bool) {
        if let (Some(verified), Some(held)) = (&self.verified, request.held) {
            let mut generations = verified.generations.borrow_mut();
            if well { generations.wrote(held, generation) } else { generations.forget(held) }
        }
    }
}

impl Verified {
    fn take(&self, ask: &mut Ask) -> Granules {
        let granule = self.granule_bytes;
        let wanted = Granules { first: ask.offset / granule, count: ask.bytes / granule };
        let held = self.generations.borrow_mut().take(wanted, ask.align / granule);
        ask.offset = held.first * granule;
        held
    }

    fn check(&self, extent: Extent, held: Granules, data: &Buffer, block_bytes: u32) -> Result<(), Failure> {
        let generations = self.generations.borrow();
        let granules = data.chunks_exact(self.granule_bytes as usize).zip(generations.expected(held));
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
