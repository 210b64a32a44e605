//! One way to the data: a device, and the order of what it is asked.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use block::{BlockDevice, Buffer, Durability, Extent, Slice, mix};

use super::payload::Payload;
use super::signal::Signal;
use super::turn::Turnstile;
use crate::access::{AccessStream, Ask, Layout, WorkloadError};
use crate::generations::{Generations, Granules};
use crate::journal::{Journal, Unflushed};
use crate::plan::{Data, Workload};
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
    /// Where what was promised is noted, if it is to be checked after a crash.
    journal: Option<Rc<Journal>>,
    unflushed: Unflushed,
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
            let generations = generations.get_or_insert_with(|| Verified::generations(&layout, journal));
            Verified::new(workload, &layout, Rc::clone(generations), journal)
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

    /// Data that say where they belong and which generation they are; `None` where any will do.
    pub(super) fn stamp(&self, request: &Request, payload: &mut Payload) -> Option<Stamped> {
        let (verified, held) = (self.verified.as_ref()?, request.held?);
        let generation = match &verified.journal {
            Some(journal) => journal.issue(held),
            None => verified.generations.borrow().next(held),
        };
        let stable = verified.journal.as_ref().is_some_and(|journal| journal.next_is_stable());
        let mut data = payload.stamping(request.ask.bytes as usize);
        let stamp = verified.epoch | u64::from(generation);
        pattern::stamp(&mut data, request.extent.lba, self.layout.block_bytes as usize, stamp);
        let durability = if stable { Durability::Stable } else { Durability::Cached };
        Some(Stamped { data: data.share(), generation, durability })
    }

    /// A stamped write has ended.
    pub(super) fn wrote(&self, request: &Request, stamped: &Stamped, well: bool) {
        let (Some(verified), Some(held)) = (&self.verified, request.held) else { return };
        let mut generations = verified.generations.borrow_mut();
        if !well {
            return generations.forget(held);
        }
        generations.wrote(held, stamped.generation);
        if let Some(journal) = &verified.journal {
            let unflushed = (stamped.durability == Durability::Cached).then_some(&verified.unflushed);
            journal.acknowledge(held, stamped.generation, unflushed);
        }
    }

    /// Whether what was promised is noted.
    pub(super) fn keeps_journal(&self) -> bool {
        self.verified.as_ref().is_some_and(|verified| verified.journal.is_some())
    }

    /// Flushes the device, if a journal has to know that what was written is durable.
    pub(super) async fn flush_if_due(&self) -> Result<(), Failure> {
        let Some(Verified { journal: Some(journal), unflushed, .. }) = &self.verified else { return Ok(()) };
        journal.flush_if_due(&*self.device, unflushed).await.map_err(Failure::Device)
    }
}

/// Data of a write that can be recognised.
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
        Verified { generations, granule_bytes, epoch, journal, unflushed: Unflushed::default() }
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
