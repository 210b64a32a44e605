//! Timeouts of a session, by cause. They are checked by the core's tick, not on the path of a command.
//!
//! ```text
//!   waits for                         limit               then
//!   a device request                  the LUN's deadline  the command fails, the device's volume is fenced
//!   its turn, memory, or a range lock the LUN's deadline  BUSY, or the command fails; nothing is fenced
//!   data of a WRITE                   1 s (`SLOW`)        redirected to a buffer, if others need the blocks
//!   the peer to read data of a READ   1 s (`SLOW`)        copied to a buffer, if others need the blocks
//!   the end of a discovery session    `discovery-time`    its connection is closed
//!   Data-Out that the peer owes       `send_stall`        its connection is closed
//!   a slow peer that holds memory     5 s (`PATIENCE`)    its connection is closed, if others need it
//! ```
//!
//! A deadline counts from the request to the device: a command that waits for its turn, for memory or for its
//! initiator's data is no sign of a hanging device, and must not fence it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{Buffer, DeviceError};
use iscsi::target::{ConnectionId, TaskId};
use logical_unit::{DeviceRequest, LogicalUnit, Reply, Status};

use super::{Session, Task, TaskState};
use crate::inbox::Landing;
use front_end_core::Charge;
use reactor::Payload;

/// What a task waited for at the last tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    task: TaskId,
    stage: WaitingFor,
    /// Since when, as observed by ticks.
    since: Instant,
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitingFor {
    /// Its turn, memory, or blocks that another command has.
    Others,
    /// Its initiator's data.
    Data,
    /// This request of a device.
    Device(DeviceRequest),
    /// Its logical unit's own work, or the end of a task management function: these have no deadline here.
    Unit,
    /// The network.
    Sending,
}

impl Task {
    fn stage(&self) -> WaitingFor {
        match &self.state {
            TaskState::Receiving(..) => WaitingFor::Data,
            TaskState::Held => WaitingFor::Others,
            TaskState::Running(work) => work.watch.request().map_or(WaitingFor::Others, WaitingFor::Device),
            TaskState::Lasting(_) | TaskState::Cleared => WaitingFor::Unit,
            TaskState::Answered(_) => WaitingFor::Sending,
        }
    }

    /// What it waits for now, and since when.
    fn observe(&self, before: Option<Observed>, now: Instant) -> Observed {
        let stage = self.stage();
        let since = match before.filter(|before| before.task == self.id) {
            Some(before) if before.stage == stage => before.since,
            // It came since the last look; what it waits for first, it waits for since then.
            None if stage == WaitingFor::Others => self.started,
            _ => now,
        };
        Observed { task: self.id, stage, since }
    }
}

/// Transfers of a peer that is this late are moved from the volume's memory to a buffer if others wait for
/// their blocks.
pub(crate) const SLOW: Duration = Duration::from_secs(1);
/// A slow peer that has held memory for this long loses its connection if others need the memory.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

impl Session {
    /// Observes what every task waits for; the following checks use the result.
    pub(crate) fn observe(&mut self, now: Instant) {
        self.observed.resize(self.tasks.len(), None);
        for (task, observed) in self.tasks.iter().zip(&mut self.observed) {
            *observed = task.as_ref().map(|task| task.observe(*observed, now));
        }
    }

    /// Each task that still exists, with its last observation.
    fn observed(&self) -> impl Iterator<Item = (&Task, Observed)> {
        let tasks = self.tasks.iter().zip(&self.observed);
        let tasks = tasks.filter_map(|(task, observed)| Some((task.as_ref()?, (*observed)?)));
        tasks.filter(|(task, observed)| task.id == observed.task)
    }

    /// Ends commands that have waited too long. Returns the units whose devices do not answer, with the time
    /// since the request, for the caller to fence.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<(Arc<LogicalUnit>, Duration)> {
        let mut late = Vec::new();
        for (task, Observed { stage, since, .. }) in self.observed() {
            let Some(index) = task.slot else { continue };
            let time = now.duration_since(since);
            if time > self.luns.deadline(index) {
                late.push((task.id, index, stage, time));
            }
        }
        let mut hung: Vec<(Arc<LogicalUnit>, Duration)> = Vec::new();
        for (id, index, stage, time) in late {
            match stage {
                WaitingFor::Device(request) => {
                    let Some(unit) = self.fail_late(id, index, Some(request)) else { continue };
                    unit.volume().health().timed_out();
                    if !hung.iter().any(|(known, _)| Arc::ptr_eq(known, &unit)) {
                        hung.push((unit, time));
                    }
                }
                WaitingFor::Others => drop(self.fail_late(id, index, None)),
                WaitingFor::Data | WaitingFor::Unit | WaitingFor::Sending => {}
            }
        }
        hung
    }

    /// Ends a command that has waited too long. Returns the unit whose device has had `request` for so long.
    fn fail_late(
        &mut self,
        id: TaskId,
        index: usize,
        request: Option<DeviceRequest>,
    ) -> Option<Arc<LogicalUnit>> {
        let unit = self.luns.unit(index);
        let task = self.task(id)?;
        let TaskState::Running(work) = std::mem::replace(&mut task.state, TaskState::Held) else {
            // It has not begun: nothing of it has happened (SAM-5 5.3.1, BUSY).
            self.answer(id, Reply::status(Status::Busy));
            return None;
        };
        let others = work.give_up();
        let hung = request.map(|request| match request.unit.checked_sub(1) {
            None => Arc::clone(&unit),
            Some(other) => others.get(other).map_or_else(|| Arc::clone(&unit), Arc::clone),
        });
        self.add_aborted_units(Some(index), &others);
        self.answer(id, unit.gave_up(DeviceError::TimedOut));
        hung
    }

    /// Moves transfers of slow peers from the volume's memory to buffers if other commands wait for their
    /// blocks: an initiator that has died during a transfer, or does not read its data, must not delay a
    /// COMPARE AND WRITE of another (ESXi waits eight seconds for those). If there is no memory for the
    /// buffer, the connection is cut.
    pub(crate) fn withdraw_slow_transfers(&mut self, now: Instant) {
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        for (task, Observed { since, .. }) in self.observed() {
            if now.duration_since(since) <= SLOW {
                continue;
            }
            match &task.state {
                TaskState::Receiving(job, _) if job.is_in_the_way() => writes.push(task.id),
                TaskState::Answered(outgoing)
                    if outgoing.lock.as_ref().is_some_and(block::Shared::is_contended) =>
                {
                    reads.push(task.id);
                }
                _ => {}
            }
        }
        for id in writes {
            self.withdraw_write(id);
        }
        for id in reads {
            // What it has queued is the connection's.
            if let Some(link) = self.link(id.connection()) {
                link.withdraw();
            }
        }
    }

    /// Redirects the missing blocks of a write to a buffer. If there is no memory for it, its connection is
    /// cut.
    fn withdraw_write(&mut self, id: TaskId) {
        let Some(Landing::Memory { blocks, .. }) = self.landing(id) else { return };
        let start = blocks.rest_start();
        let bytes = Buffer::memory_bytes(blocks.len() - start);
        if !self.charge(id, bytes) {
            return self.cut_slow(id.connection());
        }
        let Some(task) = self.task(id) else { return };
        task.state = match std::mem::replace(&mut task.state, TaskState::Held) {
            TaskState::Receiving(job, Landing::Memory { blocks, is_charged }) => {
                match job.withdraw(&blocks) {
                    Ok((job, buffer)) => TaskState::Receiving(job, Landing::Buffer { start, buffer }),
                    Err(job) => TaskState::Receiving(job, Landing::Memory { blocks, is_charged }),
                }
            }
            other => other,
        };
    }

    /// Memory for a copy of what a connection has queued.
    pub(crate) fn charge_copy(&self, bytes: usize) -> Option<Charge> {
        self.budget.take(bytes)
    }

    /// Copies the data that a connection has not queued yet from the volume's memory, and unlocks the blocks;
    /// `None` if there is not enough memory.
    pub(crate) fn withdraw_reads(&mut self, id: ConnectionId) -> Option<()> {
        let is_on_the_medium = |task: &&Task| {
            task.id.connection() == id
                && matches!(&task.state, TaskState::Answered(outgoing) if outgoing.lock.is_some())
        };
        let tasks: Vec<TaskId> =
            self.tasks.iter().flatten().filter(is_on_the_medium).map(|task| task.id).collect();
        for id in tasks {
            let bytes = self.outgoing(id).len();
            if !self.charge(id, bytes) {
                return None;
            }
            let Some(TaskState::Answered(outgoing)) = self.task(id).map(|task| &mut task.state) else {
                continue;
            };
            if let Payload::Memory(region) = &outgoing.payload {
                let mut copy = Buffer::recycled(region.len());
                region.load(0, &mut copy);
                outgoing.payload = Payload::Buffer(Rc::new(copy));
            }
            outgoing.lock = None;
        }
        Some(())
    }

    /// Ends a discovery session that has lasted longer than it may.
    pub(crate) fn end_discovery(&self, now: Instant) {
        if self.identity.target.is_some() {
            return;
        }
        let most = self.context.config().limits.discovery_time;
        if now.duration_since(self.identity.started) > most {
            self.links().for_each(|link| link.cut_late());
        }
    }

    /// Cuts the connections of peers that owe data and have sent none of it for `stall`.
    pub(crate) fn cut_stalled(&mut self, now: Instant, stall: Duration) {
        for (id, link) in self.links.iter().flatten() {
            let owed =
                self.tasks.iter().flatten().filter(|task| {
                    task.id.connection() == *id && matches!(task.state, TaskState::Receiving(..))
                });
            let received =
                owed.map(|task| 1 + u64::from(self.machine.data_received(task.id))).reduce(u64::wrapping_add);
            if link.observe_owed(now, received).is_some_and(|since| now.duration_since(since) > stall) {
                link.cut_slow();
            }
        }
    }

    /// The connection whose slow peer has held memory longest (by a transfer, copies, a segment or early
    /// data), if that is longer than [`PATIENCE`], and since when.
    pub(crate) fn slowest_holder(&self, now: Instant) -> Option<(Instant, ConnectionId)> {
        let held = self.observed().filter(|(task, Observed { stage, .. })| {
            let by_its_peer = matches!(stage, WaitingFor::Data | WaitingFor::Sending);
            task.charge.is_some() && by_its_peer
        });
        let held = held.map(|(task, observed)| (observed.since, task.id.connection()));
        let copied = self.links.iter().flatten().filter_map(|(id, link)| Some((link.copies_since()?, *id)));
        let late = held
            .chain(copied)
            .chain(self.machine.oldest_staged())
            .filter(|(since, _)| now.duration_since(*since) > PATIENCE);
        late.min_by_key(|(since, _)| *since)
    }
}
